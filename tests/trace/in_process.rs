//! Whole requests over an in-process cluster.

use std::sync::Arc;

use foretoken_draft_worker::Source;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_runtime::RuntimeConfig;
use foretoken_telemetry::names;
use foretoken_testkit::client::{generate, ids_request};
use foretoken_testkit::cluster::{Cluster, host, ngram};
use foretoken_testkit::otlp::SeenSpan;
use foretoken_testkit::table::{Table, TableModel, random_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_worker::Host;

use crate::collected::{collected, spans_of, trace_of_request};
use crate::shape::Trace;

const VOCAB: usize = 8;

fn model(name: &str, table: Table) -> Host {
    let tokenizer = letters(VOCAB, false).unwrap();
    host(TableModel::new(name, VOCAB, 4096, table), &tokenizer, &RuntimeConfig::default())
}

/// Says the alphabet over and over, mostly: what an n-gram drafter can guess, and sometimes wrongly.
fn alphabet() -> Table {
    Arc::new(|text| {
        let next = text.last().map_or(0, |&token| (token as usize + 1) % VOCAB);
        (0..VOCAB).map(|id| if id == next { 0.79 } else { 0.03 }).collect()
    })
}

async fn whole(request_id: &str) -> Vec<SeenSpan> {
    let trace = trace_of_request(request_id).await;
    spans_of(&trace, Trace::is_whole).await
}

#[test]
fn an_answer_is_one_trace_of_the_right_shape() {
    collected(async {
        let by_model = (random_table(1, VOCAB, 0), Source::Model(model("draft", random_table(2, VOCAB, 0))));
        for (target, source) in [by_model, (alphabet(), ngram())] {
            let cluster = Cluster::start(model("target", target), vec![source], Config::default()).await;
            for rule in [v1::Rule::Token, v1::Rule::Block, v1::Rule::Gumbel] {
                let request = v1::GenerateRequest {
                    draft_len: Some(3),
                    rule: rule.into(),
                    sampling: Some(v1::Sampling { temperature: 1.0, ..v1::Sampling::default() }),
                    ..ids_request(&[0, 1, 2, 3, 4, 5, 6, 7, 0, 1], 48)
                };
                let answer = generate(&cluster.orchestrator, request).await.unwrap();
                assert!(answer.ledger().blocks > 0, "{:?}", answer.ledger());
                let spans = whole(&answer.started.request_id).await;
                Trace(&spans).check(answer.ledger());
            }
        }
    });
}

#[test]
fn an_answer_without_a_drafter_is_a_trace_too() {
    collected(async {
        let cluster =
            Cluster::start(model("target", random_table(1, VOCAB, 0)), vec![], Config::default()).await;
        let request = v1::GenerateRequest { draft_len: Some(0), ..ids_request(&[0, 1], 12) };
        let answer = generate(&cluster.orchestrator, request).await.unwrap();
        let trace = trace_of_request(&answer.started.request_id).await;
        let spans = spans_of(&trace, |spans| {
            spans.iter().any(|span| span.name == names::SPAN_VERIFY_SESSION)
                && spans.iter().any(|span| span.name == names::SPAN_GENERATE)
        })
        .await;
        Trace(&spans).check(answer.ledger());
        assert!(!spans.iter().any(|span| span.name == names::SPAN_DRAFT));
    });
}

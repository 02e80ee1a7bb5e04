//! Whole requests over an in-process cluster.

use std::sync::Arc;
use std::time::Duration;

use foretoken_draft_worker::Source;
use foretoken_orchestrator::Config;
use foretoken_proto::v1;
use foretoken_proto::v1::generate_response::Event;
use foretoken_proto::v1::orchestrator_client::OrchestratorClient;
use foretoken_runtime::RuntimeConfig;
use foretoken_telemetry::names;
use foretoken_testkit::client::{events_at, generate, ids_request};
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

/// Waits for the root span of the request with this id.
async fn root(request_id: &str) -> SeenSpan {
    let trace = trace_of_request(request_id).await;
    let spans = spans_of(&trace, |spans| spans.iter().any(|span| span.name == names::SPAN_GENERATE)).await;
    spans.into_iter().find(|span| span.name == names::SPAN_GENERATE).unwrap()
}

#[test]
fn an_answer_whose_client_goes_tells_what_was_spent_on_it() {
    collected(async {
        let paced = TableModel::new("paced", VOCAB, 4096, random_table(1, VOCAB, 0))
            .paced(Duration::from_millis(2), Duration::ZERO);
        let target = host(paced, &letters(VOCAB, false).unwrap(), &RuntimeConfig::default());
        let cluster = Cluster::start(target, vec![ngram()], Config::default()).await;
        for samples in [1, 2] {
            let request_id = format!("gone-{samples}");
            let request = v1::GenerateRequest {
                n: Some(samples),
                request_id: request_id.clone(),
                ..ids_request(&[0, 1, 2], 2000)
            };
            let mut events = events_at(cluster.orchestrator.channel(), request).await.unwrap();
            let mut read = 0;
            while read < 20 {
                if let Some(Event::Tokens(event)) = events.message().await.unwrap().unwrap().event {
                    read += event.tokens.len();
                }
            }
            drop(events);
            let root = root(&request_id).await;
            assert_eq!(root.text(names::RPC_STATUS), Some("CANCELLED"));
            assert_eq!(root.text(names::ERROR_TYPE), Some("CANCELLED"));
            let spans = spans_of(&root.trace_id, |_| true).await;
            let name = if samples == 1 { names::SPAN_GENERATE } else { names::SPAN_SAMPLE };
            let answers: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
            assert_eq!(answers.len(), samples as usize);
            let sum = |name| answers.iter().map(|answer| answer.number(name)).sum::<i64>();
            assert!(sum(names::OUTPUT_TOKENS) >= read as i64, "{answers:#?}");
            // Two samples may share a pass of two milliseconds.
            assert!(sum(names::VERIFY_CHARGED_US) >= 1_000 * sum(names::TARGET_PASSES), "{answers:#?}");
            assert!(answers.iter().all(|answer| answer.text(names::FINISH_REASON) == Some("cancelled")));
        }
    });
}

#[test]
fn a_refused_request_tells_its_code_and_its_reason() {
    collected(async {
        let cluster =
            Cluster::start(model("target", random_table(1, VOCAB, 0)), vec![], Config::default()).await;
        let refused = |temperature| v1::GenerateRequest {
            sampling: Some(v1::Sampling { temperature, ..v1::Sampling::default() }),
            ..ids_request(&[0, 1], 12)
        };
        // What is wrong with it comes before its id: the trace that the client began tells it.
        let mut request = tonic::Request::new(refused(-1.0));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let parent = format!("00-{trace}-b7ad6b7169203331-01").parse().unwrap();
        request.metadata_mut().insert("traceparent", parent);
        let mut client = OrchestratorClient::new(cluster.orchestrator.channel());
        client.generate(request).await.unwrap_err();
        let spans = spans_of(trace, |spans| spans.iter().any(|span| span.name == names::SPAN_GENERATE)).await;
        let root = spans.iter().find(|span| span.name == names::SPAN_GENERATE).unwrap();
        assert_eq!(root.text(names::ERROR_TYPE), Some("INVALID_FIELD"));
        assert_eq!(root.text(names::RPC_STATUS), Some("INVALID_ARGUMENT"));
    });
}

/// One thing wrong with a trace or with the ledger beside it.
type Wrong = (&'static str, fn(&mut Vec<SeenSpan>, &mut v1::Ledger));

/// What the check must not let pass.
const WRONG: [Wrong; 9] = [
    ("a frame under the root", |spans, _| {
        let root = find(spans, names::SPAN_GENERATE).span_id.clone();
        find(spans, names::SPAN_FRAME).parent_id = Some(root);
    }),
    ("a frame whose parent is elsewhere", |spans, _| {
        find(spans, names::SPAN_FRAME).parent_id = Some("0123456789abcdef".into());
    }),
    ("a span of another trace", |spans, _| {
        find(spans, names::SPAN_PASS).trace_id = "0123456789abcdef0123456789abcdef".into();
    }),
    ("a call that ends before its frame", |spans, _| {
        let call = find(spans, names::SPAN_DRAFT);
        call.end_ns = call.start_ns;
        let id = call.span_id.clone();
        let frame = spans.iter_mut().find(|span| span.parent_id.as_ref() == Some(&id)).unwrap();
        frame.end_ns = frame.start_ns + 2_000_000;
    }),
    ("a pass before its frame", |spans, _| find(spans, names::SPAN_PASS).start_ns -= 2_000_000),
    ("a judged block without a frame", |spans, _| {
        let block = spans.iter().position(|span| span.text(names::FRAME_KIND) == Some("block")).unwrap();
        let id = spans.remove(block).span_id;
        spans.retain(|span| span.parent_id.as_ref() != Some(&id));
    }),
    ("no passes", |spans, _| spans.retain(|span| span.name != names::SPAN_PASS)),
    ("a ledger that accepted more", |_, ledger| ledger.accepted += 1),
    ("a ledger with another byte", |_, ledger| ledger.verify_bytes_down += 1),
];

fn find<'a>(spans: &'a mut [SeenSpan], name: &str) -> &'a mut SeenSpan {
    spans.iter_mut().find(|span| span.name == name).unwrap()
}

#[test]
fn a_wrong_trace_is_detected() {
    collected(async {
        let drafts = vec![Source::Model(model("draft", random_table(2, VOCAB, 0)))];
        let target = model("target", random_table(1, VOCAB, 0));
        let cluster = Cluster::start(target, drafts, Config::default()).await;
        let request = v1::GenerateRequest { draft_len: Some(3), ..ids_request(&[0, 1, 2], 32) };
        let answer = generate(&cluster.orchestrator, request).await.unwrap();
        let spans = whole(&answer.started.request_id).await;
        Trace(&spans).check(answer.ledger());
        for (what, wrong) in WRONG {
            let (mut spans, mut ledger) = (spans.clone(), answer.ledger().clone());
            wrong(&mut spans, &mut ledger);
            let checked = std::panic::catch_unwind(|| Trace(&spans).check(&ledger));
            assert!(checked.is_err(), "{what} was not detected");
        }
    });
}

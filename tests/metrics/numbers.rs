//! What is scraped is what happened.

use std::time::Duration;

use foretoken_proto::v1;
use foretoken_telemetry::metrics::{Metric, Service, names};
use foretoken_testkit::client::Answer;
use foretoken_tests::process::until;

use crate::exposition::Page;
use crate::measured::{Cluster, KV_TOKENS, request};

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn metrics_add_up_to_what_clients_were_told() {
    let cluster = Cluster::start(&[]);
    let sampling = Some(v1::Sampling { temperature: 0.8, ..v1::Sampling::default() });
    let requests = [
        request(40),
        v1::GenerateRequest { draft_len: Some(0), ..request(10) },
        v1::GenerateRequest { sampling, seed: Some(5), n: Some(2), ..request(24) },
        request(1),
    ];
    let answers: Vec<_> = requests.into_iter().flat_map(|request| cluster.ask(request).unwrap()).collect();
    cluster.ask(request(0)).unwrap_err();

    let page = cluster.orchestrator.scrape();
    let told = |count: fn(&v1::Ledger) -> u64| {
        answers.iter().map(|answer| count(answer.ledger())).sum::<u64>() as f64
    };
    let origin = |origin| page.value(names::GENERATION_TOKENS.name, &[(names::ORIGIN, origin)]);
    assert_eq!(origin("accepted"), told(|ledger| ledger.accepted.into()));
    assert_eq!(origin("repair"), told(|ledger| ledger.repair.into()));
    assert_eq!(origin("bonus"), told(|ledger| ledger.bonus.into()));
    assert_eq!(origin("plain"), told(|ledger| ledger.plain.into()));
    assert!(origin("accepted") > 10.0 && origin("plain") > 10.0, "the test shows something: {answers:?}");
    assert_eq!(page.sum(names::GENERATION_TOKENS.name), told(|ledger| ledger.output_tokens.into()));
    assert_eq!(page.sum(names::PROMPT_TOKENS.name), told(|ledger| ledger.prompt_tokens.into()));
    assert_eq!(page.sum(names::NUM_DRAFTS.name), told(|ledger| ledger.blocks.into()));
    assert_eq!(page.sum(names::NUM_DRAFT_TOKENS.name), told(|ledger| ledger.drafted.into()));
    assert_eq!(page.sum(names::NUM_ACCEPTED_TOKENS.name), told(|ledger| ledger.accepted.into()));
    assert_eq!(page.sum(names::NUM_JUDGED_TOKENS.name), told(|ledger| ledger.judged.into()));
    assert_eq!(page.sum(names::TARGET_PASSES.name), told(|ledger| ledger.target_passes.into()));
    assert_eq!(page.sum(names::SAVED_PASSES.name), told(|ledger| ledger.saved_passes as u64));
    per_position(&page, &answers);
    in_time(&page, &answers);
    let bytes = |link, direction| {
        page.value(names::PAYLOAD_BYTES.name, &[(names::LINK, link), (names::DIRECTION, direction)])
    };
    let wire = page.sum(names::WIRE_BYTES.name);
    assert!(wire > page.sum(names::PAYLOAD_BYTES.name), "headers and frames come on top: {wire}");
    assert_eq!(bytes("draft", "up"), told(|ledger| ledger.draft_bytes_up));
    assert_eq!(bytes("draft", "down"), told(|ledger| ledger.draft_bytes_down));
    assert_eq!(bytes("verify", "up"), told(|ledger| ledger.verify_bytes_up));
    assert_eq!(bytes("verify", "down"), told(|ledger| ledger.verify_bytes_down));

    let finished = answers.len() as f64;
    assert_eq!(page.value(names::REQUEST_SUCCESS.name, &[(names::FINISH_REASON, "length")]), finished);
    assert_eq!(page.value(names::REQUEST_FAILURES.name, &[(names::REASON, "INVALID_FIELD")]), 1.0);
    assert_eq!(page.sum(names::REQUEST_FAILURES.name), 1.0);
    let count = |name: &str| page.sum(&format!("{name}_count"));
    assert_eq!(count(names::TIME_TO_FIRST_TOKEN.name), finished);
    assert_eq!(count(names::E2E_LATENCY.name), finished);
    assert_eq!(count(names::TIME_PER_OUTPUT_TOKEN.name), finished - 1.0, "one answer has a single token");
    let ttft = told(|ledger| ledger.ttft_us) * 1e-6;
    let measured = page.sum(&format!("{}_sum", names::TIME_TO_FIRST_TOKEN.name));
    assert!((measured - ttft).abs() < 1e-5 * finished, "{measured} and {ttft}");
    let by_table = answers.iter().filter(|answer| answer.finished.drafter == "ngram+table").count() as f64;
    assert!(by_table >= 2.0, "somebody drafted");
    assert_eq!(page.value(names::DRAFTER_ANSWERS.name, &[(names::DRAFTER, "ngram+table")]), by_table);
    assert_eq!(page.sum(names::DRAFTER_ANSWERS.name), finished);
    assert_eq!(page.value(names::WORKERS_READY.name, &[(names::ROLE, "verifier")]), 1.0);
    assert_eq!(page.value(names::WORKERS_CONFIGURED.name, &[(names::ROLE, "draft_worker")]), 1.0);
    assert_eq!(page.sum(names::REQUESTS_MAX.name), 64.0);
    let idle = || cluster.orchestrator.scrape().sum(names::REQUESTS_RUNNING.name) == 0.0;
    assert!(until(Duration::from_secs(5), idle), "no answer is in work any more");
    for metric in names::ALL.iter().filter(|metric| metric.service == Service::Orchestrator) {
        assert!(page.names().contains(&metric.name), "{} is declared and not there", metric.name);
    }
}

/// Σ over positions is the whole, position by position.
fn per_position(page: &Page, answers: &[Answer]) {
    let positions = || answers.iter().flat_map(|answer| answer.ledger().positions.iter().enumerate());
    let longest = positions().map(|(index, _)| index + 1).max().unwrap();
    for index in 0..longest {
        let told = |count: fn(&v1::Position) -> u32| {
            positions()
                .filter(|&(at, _)| at == index)
                .map(|(_, position)| f64::from(count(position)))
                .sum::<f64>()
        };
        let place = [(names::POSITION, &*index.to_string())];
        let value = |metric: Metric| page.value(metric.name, &place);
        assert_eq!(value(names::NUM_DRAFT_TOKENS_PER_POS), told(|position| position.drafted), "{index}");
        assert_eq!(value(names::NUM_ACCEPTED_TOKENS_PER_POS), told(|position| position.accepted), "{index}");
    }
    assert_eq!(page.sum(names::NUM_DRAFT_TOKENS_PER_POS.name), page.sum(names::NUM_DRAFT_TOKENS.name));
    assert_eq!(page.sum(names::NUM_ACCEPTED_TOKENS_PER_POS.name), page.sum(names::NUM_ACCEPTED_TOKENS.name));
}

/// Stages add up to the wall time, gain less loss to what the answers were told, and rounds are all there.
fn in_time(page: &Page, answers: &[Answer]) {
    let told =
        |seconds: fn(&v1::Ledger) -> f64| answers.iter().map(|answer| seconds(answer.ledger())).sum::<f64>();
    let close = |name: &str, measured: f64, told: f64| {
        assert!((measured - told).abs() < 2e-6 * answers.len() as f64, "{name}: {measured} and {told}");
    };
    let sum = |metric: Metric| page.sum(metric.name);
    close("wall", sum(names::STAGE_SECONDS), told(|ledger| ledger.wall_us as f64 * 1e-6));
    let gain = sum(names::GAIN_SECONDS) - sum(names::LOSS_SECONDS);
    close("gain", gain, told(|ledger| ledger.gain_seconds.unwrap_or_default()));
    close("gain", gain, sum(names::PLAIN_SECONDS) - sum(names::STAGE_SECONDS));
    let charged = page.value(names::CAPACITY_SECONDS.name, &[(names::ROLE, "verifier")]);
    close("charged", charged, told(|ledger| ledger.verify_charged_us as f64 * 1e-6));
    assert!(sum(names::PLAIN_STEP) > 0.0 && charged > 0.0);
    let rounds = |kind| page.value(&format!("{}_count", names::ROUND.name), &[(names::KIND, kind)]);
    assert_eq!(rounds("prefill"), answers.len() as f64);
    assert_eq!(rounds("block"), sum(names::NUM_DRAFTS));
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn what_was_spent_on_answers_that_were_broken_off_is_counted() {
    let cluster = Cluster::start(&[]);
    let long = || v1::GenerateRequest { n: Some(2), ..request(2000) };
    let read = cluster.ask_and_leave(long(), 10);
    let counted = || {
        let page = cluster.orchestrator.scrape();
        page.value(names::BROKEN_OFF_ANSWERS.name, &[(names::REASON, "CANCELLED")]) == 2.0
    };
    assert!(until(Duration::from_secs(10), counted), "both samples are counted");
    let page = cluster.orchestrator.scrape();
    let tokens = page.value(names::BROKEN_OFF_TOKENS.name, &[(names::REASON, "CANCELLED")]);
    assert!(tokens >= read as f64, "{tokens} tokens, of which {read} were read");
    assert_eq!(tokens, page.sum(names::GENERATION_TOKENS.name));
    assert_eq!(page.sum(names::BROKEN_OFF_PASSES.name), page.sum(names::TARGET_PASSES.name));
    let charged = page.value(names::BROKEN_OFF_CAPACITY.name, &[(names::ROLE, "verifier")]);
    assert_eq!(charged, page.value(names::CAPACITY_SECONDS.name, &[(names::ROLE, "verifier")]));
    assert!(charged > 0.0);
    assert_eq!(page.value(names::REQUEST_FAILURES.name, &[(names::REASON, "CANCELLED")]), 1.0);
    assert_eq!(page.sum(names::REQUEST_SUCCESS.name), 0.0);

    // A finished answer adds to the one and not to the other.
    let answer = cluster.ask(request(10)).unwrap().remove(0);
    let page = cluster.orchestrator.scrape();
    assert_eq!(page.sum(names::BROKEN_OFF_TOKENS.name), tokens);
    let told = f64::from(answer.ledger().output_tokens);
    assert_eq!(page.sum(names::GENERATION_TOKENS.name), tokens + told);
}

#[test]
#[ignore = "needs FORETOKEN_TEST_MODEL and the foretoken binary"]
fn workers_tell_their_passes_sessions_and_room() {
    let cluster = Cluster::start(&[]);
    let answer = cluster.ask(request(30)).unwrap().remove(0);
    let too_long = v1::GenerateRequest { max_tokens: Some(5000), ..request(0) };
    cluster.ask(too_long).unwrap_err();
    let idle = || cluster.verifier.scrape().sum(names::SESSIONS.name) == 0.0;
    assert!(until(Duration::from_secs(5), idle), "the session is closed");

    let page = cluster.verifier.scrape();
    let passes = page.sum(names::PASSES.name);
    assert!(passes >= f64::from(answer.ledger().target_passes), "{passes}");
    for histogram in [names::PASS_SECONDS, names::PASS_ROWS, names::PASS_SESSIONS] {
        assert_eq!(page.sum(&format!("{}_count", histogram.name)), passes, "{}", histogram.name);
    }
    assert_eq!(page.sum(&format!("{}_sum", names::PASS_ROWS.name)), page.sum(names::ROWS.name));
    assert_eq!(page.sum(&format!("{}_sum", names::PASS_SESSIONS.name)), passes, "one session");
    let (busy, in_passes) =
        (page.sum(names::BUSY_SECONDS.name), page.sum(&format!("{}_sum", names::PASS_SECONDS.name)));
    // Both are sums of values cut to microseconds.
    assert!(busy > 0.0 && busy >= in_passes - passes * 2e-6, "{busy} and {in_passes}");
    assert!(page.sum(&format!("{}_count", names::QUEUE_WAIT.name)) >= 1.0);
    assert_eq!(page.sum(names::KV_TOKENS_MAX.name), KV_TOKENS.parse::<f64>().unwrap());
    assert_eq!(page.sum(names::KV_TOKENS_USED.name), 0.0);
    assert_eq!(page.value(names::REFUSED_OPENS.name, &[(names::REASON, "KV_TOO_SMALL")]), 1.0);
    assert_eq!(page.sum(names::REFUSED_OPENS.name), 1.0);
    for metric in names::ALL.iter().filter(|metric| metric.service == Service::Workers) {
        assert!(page.names().contains(&metric.name), "{} is declared and not there", metric.name);
    }
    let page = cluster.draft_worker.scrape();
    assert_eq!((page.sum(names::SESSIONS.name), page.sum(names::SESSIONS_MAX.name)), (0.0, 64.0));
}

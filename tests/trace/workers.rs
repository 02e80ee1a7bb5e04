//! The workers' side alone: frames with span ids, sent by hand.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use foretoken_draft_worker::Source;
use foretoken_engine::conversation::{
    Ask, Block, CommittedText, DraftFrame, DraftReply, VerifyFrame, VerifyReply, WorkerView,
};
use foretoken_engine::generate::{Plan, Timeouts};
use foretoken_engine::link::{Drafter, Verifier};
use foretoken_engine::{RequestKeys, Rule, Sampling};
use foretoken_orchestrator::remote::{Draft, InUse, Remote, RemoteVerifier, Verify};
use foretoken_runtime::RuntimeConfig;
use foretoken_telemetry::{names, propagation};
use foretoken_testkit::cluster::{Node, draft_worker, host, verifier};
use foretoken_testkit::otlp::SeenSpan;
use foretoken_testkit::table::{Table, TableModel, random_table};
use foretoken_testkit::vocabulary::letters;
use foretoken_worker::Host;
use tracing::{Instrument, Span};

use crate::collected::{all_spans, collected, spans_of};

const VOCAB: usize = 8;

/// Long enough that frames sent during a pass arrive during it, however loaded the machine.
const PASS: Duration = Duration::from_millis(80);

/// A model whose rows take [`PASS`] each.
fn slow(name: &str) -> Host {
    let quick = random_table(1, VOCAB, 0);
    let table: Table = Arc::new(move |text| {
        std::thread::sleep(PASS);
        quick(text)
    });
    let tokenizer = letters(VOCAB, false).unwrap();
    host(TableModel::new(name, VOCAB, 256, table), &tokenizer, &RuntimeConfig::default())
}

fn plan(session_id: &str) -> Plan {
    Plan {
        session_id: session_id.into(),
        prompt: vec![0, 1, 2],
        sampling: Sampling::GREEDY,
        adjustments: Default::default(),
        logprobs: None,
        rule: Rule::Token,
        keys: RequestKeys::new(7, 0),
        stop_ids: vec![],
        max_tokens: 32,
        draft_len: 2,
        min_confidence: 0.0,
        vocab_size: VOCAB,
        model_fingerprint: String::new(),
        tokenizer_fingerprint: String::new(),
        timeouts: Timeouts { draft: Duration::from_secs(10), verify: Duration::from_secs(10) },
    }
}

/// The caller's span of a request: what an orchestrator would have open.
fn request() -> Span {
    tracing::info_span!(target: "foretoken_tests", "request")
}

fn call(request: &Span) -> Span {
    tracing::info_span!(target: "foretoken_tests", parent: request, "call")
}

fn id(span: &Span) -> Option<[u8; 8]> {
    propagation::sampled_span_id(span).map(u64::to_be_bytes)
}

fn trace_id(span: &Span) -> String {
    let traceparent = propagation::inject_context(span).unwrap();
    traceparent.split('-').nth(1).unwrap().to_owned()
}

fn in_use() -> InUse {
    InUse::of(&Arc::new(AtomicUsize::new(0)))
}

async fn open(node: &Node, session_id: &str, request: &Span) -> RemoteVerifier {
    let open = plan(session_id).verify_open();
    Remote::<Verify>::open(node.metered_channel(), 1 << 20, "verifier".into(), &open, in_use())
        .instrument(request.clone())
        .await
        .unwrap()
}

async fn ask(verifier: &mut RemoteVerifier, call: &Span, ask: Ask) {
    let text = CommittedText::new(plan("any").prompt);
    let text = text.frame(&mut WorkerView::default(), 0, id(call));
    verifier.send(VerifyFrame { text, ask }).await.unwrap();
}

fn block() -> Ask {
    Ask::Block(Block { tokens: vec![3, 4], q: None })
}

async fn verdict(verifier: &mut RemoteVerifier) -> VerifyReply {
    loop {
        match verifier.receive().await.unwrap() {
            reply @ (VerifyReply::Verdict(_) | VerifyReply::Refused(_) | VerifyReply::Finished(_)) => {
                return reply;
            }
            VerifyReply::Opened { .. } | VerifyReply::Token(_) | VerifyReply::Draining => {}
        }
    }
}

#[track_caller]
fn one<'a>(spans: &'a [SeenSpan], name: &str) -> &'a SeenSpan {
    let mut named = spans.iter().filter(|span| span.name == name);
    let found = named.next().unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(named.next().is_none(), "several {name} in {spans:#?}");
    found
}

#[track_caller]
fn assert_within(inner: &SeenSpan, outer: &SeenSpan) {
    assert!(
        outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns,
        "{} is not within {}: {inner:#?} {outer:#?}",
        inner.name,
        outer.name
    );
}

#[test]
fn a_judged_block_has_a_span_with_its_wait_and_pass() {
    collected(async {
        let node = verifier(slow("target")).await;
        node.healthy().await;
        let request = request();
        let trace = trace_id(&request);
        let mut session = open(&node, "judged", &request).await;
        let call = call(&request);
        let call_id = id(&call).unwrap();
        ask(&mut session, &call, block()).await;
        let VerifyReply::Verdict(verdict) = verdict(&mut session).await else { panic!("no verdict") };
        drop((call, session, request));
        let spans =
            spans_of(&trace, |spans| spans.iter().any(|span| span.name == names::SPAN_VERIFY_SESSION)).await;

        let frame = one(&spans, names::SPAN_FRAME);
        let call = one(&spans, "call");
        assert_eq!(call.span_id, format!("{:016x}", u64::from_be_bytes(call_id)));
        assert_eq!(frame.parent_id.as_ref(), Some(&call.span_id));
        assert_within(frame, call);
        assert_eq!(frame.text(names::FRAME_KIND), Some("block"));
        assert_eq!(frame.text(names::OUTCOME), Some("verdict"));
        for (name, value) in [(names::DRAFTED, 2), (names::SEQ, 1), (names::EPOCH, 0), (names::START, 3)] {
            assert_eq!(frame.number(name), value, "{name}");
        }
        // What the span says is what the reply says.
        for (name, value) in [
            (names::MODEL_US, verdict.times.model_us),
            (names::QUEUE_US, verdict.times.queue_us),
            (names::SAMPLING_US, verdict.times.sampling_us),
            (names::PASSES, verdict.times.passes.into()),
            (names::BATCH_SESSIONS, 1),
        ] {
            assert_eq!(frame.number(name), i64::try_from(value).unwrap(), "{name}");
        }
        let (queue, pass) = (one(&spans, names::SPAN_QUEUE), one(&spans, names::SPAN_PASS));
        for part in [queue, pass] {
            assert_eq!(part.parent_id.as_ref(), Some(&frame.span_id));
            assert_within(part, frame);
        }
        assert_eq!((queue.start_ns, queue.end_ns), (frame.start_ns, pass.start_ns));
        assert!(
            pass.end_ns - pass.start_ns >= 3 * PASS.as_nanos() as u64,
            "three rows with logits: {pass:#?}"
        );
        assert!(pass.links.is_empty(), "nobody shared it: {pass:#?}");
        let [(event, at)] = frame.events.as_slice() else { panic!("{frame:#?}") };
        assert_eq!(event, names::EVENT_SAMPLING);
        assert!((pass.end_ns..=frame.end_ns).contains(at));

        let session = one(&spans, names::SPAN_VERIFY_SESSION);
        assert_eq!(session.parent_id.as_ref(), Some(&one(&spans, "request").span_id));
        for (name, value) in [
            (names::RPC_SYSTEM, "grpc"),
            (names::RPC_METHOD, "foretoken.v1.TargetVerifier/Verify"),
            (names::RPC_STATUS, "OK"),
            (names::SESSION_ID, "judged"),
            (names::REQUEST_MODEL, "target"),
        ] {
            assert_eq!(session.text(name), Some(value), "{name}");
        }
        assert!(session.end_ns >= frame.end_ns, "the session's span lasts as long as its stream");
    });
}

#[test]
fn frames_that_share_a_pass_are_linked() {
    collected(async {
        let node = verifier(slow("target")).await;
        node.healthy().await;
        let requests = [request(), request(), request()];
        let mut sessions = Vec::new();
        for (request, name) in requests.iter().zip(["first", "second", "third"]) {
            sessions.push(open(&node, name, request).await);
        }
        let calls: Vec<_> = requests.iter().map(call).collect();
        // The first frame's pass is on its way when the others come: these share the next.
        ask(&mut sessions[0], &calls[0], block()).await;
        tokio::time::sleep(PASS / 2).await;
        ask(&mut sessions[1], &calls[1], block()).await;
        ask(&mut sessions[2], &calls[2], block()).await;
        for session in &mut sessions {
            assert!(matches!(verdict(session).await, VerifyReply::Verdict(_)));
        }
        let traces: Vec<_> = requests.iter().map(trace_id).collect();
        drop((calls, sessions, requests));
        let mut passes = Vec::new();
        let mut frames = Vec::new();
        for trace in &traces {
            let spans =
                spans_of(trace, |spans| spans.iter().any(|span| span.name == names::SPAN_FRAME)).await;
            frames.push(one(&spans, names::SPAN_FRAME).clone());
            passes.push(one(&spans, names::SPAN_PASS).clone());
        }
        let place = |span: &SeenSpan| (span.trace_id.clone(), span.span_id.clone());
        assert_eq!(passes[0].number(names::BATCH_SESSIONS), 1);
        assert!(passes[0].links.is_empty());
        for (own, other) in [(1, 2), (2, 1)] {
            assert_eq!(passes[own].number(names::BATCH_SESSIONS), 2, "{passes:#?}");
            assert_eq!(passes[own].links, [place(&frames[other])]);
        }
        // One pass, told from two frames' readings of the clocks.
        let apart = passes[1].start_ns.abs_diff(passes[2].start_ns);
        assert!(Duration::from_nanos(apart) < PASS / 10, "{apart} ns apart: {passes:#?}");
    });
}

#[test]
fn a_refused_frame_says_why() {
    collected(async {
        let node = verifier(slow("target")).await;
        node.healthy().await;
        let request = request();
        let trace = trace_id(&request);
        let mut session = open(&node, "refused", &request).await;
        let call = call(&request);
        ask(&mut session, &call, Ask::Block(Block { tokens: vec![3; 65], q: None })).await;
        assert!(matches!(verdict(&mut session).await, VerifyReply::Refused(_)));
        drop((call, session, request));
        let spans = spans_of(&trace, |spans| spans.iter().any(|span| span.name == names::SPAN_FRAME)).await;
        let frame = one(&spans, names::SPAN_FRAME);
        assert_eq!(frame.text(names::OUTCOME), Some("failed"));
        assert_eq!(frame.text(names::ERROR_TYPE), Some("OUT_OF_RANGE"));
        assert!(!spans.iter().any(|span| span.name == names::SPAN_PASS));
    });
}

#[test]
fn drafts_of_models_and_of_none_have_spans() {
    collected(async {
        let sources = [(Source::Model(slow("draft")), 3), (foretoken_testkit::cluster::ngram(), 0)];
        for (source, passes) in sources {
            let node = draft_worker(source).await;
            node.healthy().await;
            let request = request();
            let trace = trace_id(&request);
            let open = plan("drafted").draft_open();
            let mut session =
                Remote::<Draft>::open(node.metered_channel(), 1 << 20, "d".into(), &open, in_use())
                    .instrument(request.clone())
                    .await
                    .unwrap();
            let call = call(&request);
            let text = CommittedText::new(plan("any").prompt);
            let text = text.frame(&mut WorkerView::default(), 0, id(&call));
            session.send(DraftFrame { text, draft_len: 3, min_confidence: 0.0 }).await.unwrap();
            let drafted = loop {
                if let DraftReply::Drafted(drafted) = session.receive().await.unwrap() {
                    break drafted;
                }
            };
            drop((call, session, request));
            let spans =
                spans_of(&trace, |spans| spans.iter().any(|span| span.name == names::SPAN_DRAFT_SESSION))
                    .await;
            let frame = one(&spans, names::SPAN_FRAME);
            assert_eq!(frame.parent_id.as_ref(), Some(&one(&spans, "call").span_id));
            assert_within(frame, one(&spans, "call"));
            assert_eq!(frame.text(names::FRAME_KIND), Some("draft"));
            assert_eq!(frame.number(names::DRAFT_LEN), 3);
            assert_eq!(frame.number(names::TOKENS), i64::try_from(drafted.block.tokens.len()).unwrap());
            let told: Vec<_> = spans.iter().filter(|span| span.name == names::SPAN_PASS).collect();
            assert_eq!(told.len(), passes);
            for pass in told {
                assert_within(pass, frame);
            }
        }
    });
}

#[test]
fn a_run_tells_its_first_passes_and_the_sum_of_all() {
    collected(async {
        let tokenizer = letters(VOCAB, false).unwrap();
        let quick = TableModel::new("target", VOCAB, 256, random_table(1, VOCAB, 0));
        let node = verifier(host(quick, &tokenizer, &RuntimeConfig::default())).await;
        node.healthy().await;
        let request = request();
        let trace = trace_id(&request);
        let mut session = open(&node, "run", &request).await;
        let call = call(&request);
        ask(&mut session, &call, Ask::Decode { grant: 3 + 20 }).await;
        assert!(matches!(verdict(&mut session).await, VerifyReply::Finished(_)));
        drop((call, session, request));
        let spans = spans_of(&trace, |spans| spans.iter().any(|span| span.name == names::SPAN_FRAME)).await;
        let frame = one(&spans, names::SPAN_FRAME);
        assert_eq!(frame.text(names::FRAME_KIND), Some("decode"));
        assert_eq!(frame.text(names::OUTCOME), Some("grant"));
        assert_eq!((frame.number(names::PASSES), frame.number(names::TOKENS)), (20, 20));
        let told = spans.iter().filter(|span| span.name == names::SPAN_PASS).count();
        assert_eq!(told, foretoken_runtime::MAX_TRACED_PASSES);
    });
}

#[test]
fn a_trace_that_is_not_sampled_leaves_nothing() {
    collected(async {
        let node = verifier(slow("target")).await;
        node.healthy().await;
        // A caller's decision, as it would come in metadata; and frames with an id all the same.
        let unsampled = "00-11112222333344445555666677778888-0102030405060708-00";
        let request = request();
        propagation::set_parent(&request, propagation::extract_text(unsampled));
        let mut session = open(&node, "unsampled", &request).await;
        let text = CommittedText::new(plan("any").prompt);
        let text = text.frame(&mut WorkerView::default(), 0, Some([1; 8]));
        session.send(VerifyFrame { text, ask: block() }).await.unwrap();
        assert!(matches!(verdict(&mut session).await, VerifyReply::Verdict(_)));
        drop((session, request));
        // A sampled trace that was recorded after it has come: what was recorded before has too.
        let later = tracing::info_span!(target: "foretoken_tests", "later");
        let trace = trace_id(&later);
        drop(later);
        spans_of(&trace, |spans| !spans.is_empty()).await;
        assert!(!all_spans().iter().any(|span| span.trace_id == "11112222333344445555666677778888"));
    });
}

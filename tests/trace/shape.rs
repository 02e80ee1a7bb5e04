//! What must hold of the trace of one answer, wherever it was collected.

use foretoken_proto::v1;
use foretoken_telemetry::names;
use foretoken_testkit::otlp::SeenSpan;

/// A span may stick out of the one around it by this much. Both are times of one machine's clock; what is left is its
/// correction between two readings.
const TOLERANCE_NS: u64 = 1_000_000;

/// The spans of one trace.
pub(crate) struct Trace<'a>(pub(crate) &'a [SeenSpan]);

impl<'a> Trace<'a> {
    /// Everything that holds of a finished answer with this ledger.
    pub(crate) fn check(&self, ledger: &v1::Ledger) {
        self.check_tree();
        self.check_times();
        self.check_ledger(ledger);
        self.check_rounds(ledger);
    }

    /// Whether the root and the spans of both sessions have come, which end last.
    pub(crate) fn is_whole(spans: &[SeenSpan]) -> bool {
        let ended = |name: &str| spans.iter().any(|span| span.name == name);
        [names::SPAN_GENERATE, names::SPAN_VERIFY_SESSION, names::SPAN_DRAFT_SESSION].into_iter().all(ended)
            && spans.iter().all(|span| {
                let parent = span.parent_id.as_ref();
                parent.is_none_or(|id| spans.iter().any(|other| other.span_id == *id))
            })
    }

    pub(crate) fn named(&self, name: &'a str) -> impl Iterator<Item = &'a SeenSpan> {
        self.0.iter().filter(move |span| span.name == name)
    }

    fn parent(&self, span: &SeenSpan) -> &'a SeenSpan {
        let parent = span.parent_id.as_ref().unwrap_or_else(|| panic!("{span:#?} has no parent"));
        let found = self.0.iter().find(|other| other.span_id == *parent);
        found.unwrap_or_else(|| panic!("the parent of {span:#?} is not in the trace"))
    }

    fn children(&self, of: &SeenSpan) -> impl Iterator<Item = &'a SeenSpan> {
        let id = of.span_id.clone();
        self.0.iter().filter(move |span| span.parent_id.as_ref() == Some(&id))
    }

    pub(crate) fn root(&self) -> &'a SeenSpan {
        let roots: Vec<_> = self.0.iter().filter(|span| span.parent_id.is_none()).collect();
        let [root] = roots.as_slice() else { panic!("{} roots: {roots:#?}", roots.len()) };
        assert_eq!(root.name, names::SPAN_GENERATE);
        root
    }

    /// One trace; every span under a parent of the right kind.
    fn check_tree(&self) {
        let root = self.root();
        for span in self.0 {
            assert_eq!(span.trace_id, root.trace_id, "{span:#?}");
            let parents: &[&str] = match span.name.as_str() {
                names::SPAN_GENERATE => continue,
                names::SPAN_ROUND | names::SPAN_VERIFY_SESSION | names::SPAN_DRAFT_SESSION => {
                    &[names::SPAN_GENERATE]
                }
                names::SPAN_DRAFT | names::SPAN_VERIFY => &[names::SPAN_ROUND],
                names::SPAN_FRAME => &[names::SPAN_DRAFT, names::SPAN_VERIFY],
                names::SPAN_QUEUE | names::SPAN_PASS => &[names::SPAN_FRAME],
                // Of the orchestrator's own work, anywhere within the request.
                _ => continue,
            };
            let parent = self.parent(span);
            assert!(parents.contains(&parent.name.as_str()), "{} is under {}", span.name, parent.name);
        }
        for call in self.named(names::SPAN_DRAFT).chain(self.named(names::SPAN_VERIFY)) {
            assert!(self.children(call).any(|span| span.name == names::SPAN_FRAME), "no frame of {call:#?}");
        }
    }

    /// Every span lies within its parent, as far as what it stands for does.
    fn check_times(&self) {
        for span in self.0 {
            assert!(span.start_ns <= span.end_ns, "{span:#?}");
            if span.parent_id.is_none() {
                continue;
            }
            let parent = self.parent(span);
            assert!(span.start_ns + TOLERANCE_NS >= parent.start_ns, "{span:#?} begins before {parent:#?}");
            // A session ends when its stream does, a run when the worker has heard that enough came, and what a caller has
            // given up when the worker is done with it.
            let outlives = [names::SPAN_VERIFY_SESSION, names::SPAN_DRAFT_SESSION]
                .contains(&span.name.as_str())
                || span.text(names::FRAME_KIND) == Some("decode")
                || parent.text(names::FRAME_KIND) == Some("decode")
                || parent.text(names::ERROR_TYPE).is_some();
            assert!(
                outlives || span.end_ns <= parent.end_ns + TOLERANCE_NS,
                "{span:#?} ends {} ns after {parent:#?}",
                span.end_ns.saturating_sub(parent.end_ns)
            );
        }
    }

    /// The root says what the reply's ledger says.
    fn check_ledger(&self, ledger: &v1::Ledger) {
        let root = self.root();
        for (name, value) in [
            (names::INPUT_TOKENS, ledger.prompt_tokens.into()),
            (names::OUTPUT_TOKENS, ledger.output_tokens.into()),
            (names::TOKENS_ACCEPTED, ledger.accepted.into()),
            (names::TOKENS_REPAIR, ledger.repair.into()),
            (names::TOKENS_BONUS, ledger.bonus.into()),
            (names::TOKENS_PLAIN, ledger.plain.into()),
            (names::DRAFTED, ledger.drafted.into()),
            (names::JUDGED, ledger.judged.into()),
            (names::TARGET_PASSES, ledger.target_passes.into()),
            (names::SAVED_PASSES, ledger.saved_passes.into()),
            (names::DRAFT_BYTES_UP, count(ledger.draft_bytes_up)),
            (names::DRAFT_BYTES_DOWN, count(ledger.draft_bytes_down)),
            (names::VERIFY_BYTES_UP, count(ledger.verify_bytes_up)),
            (names::VERIFY_BYTES_DOWN, count(ledger.verify_bytes_down)),
            (names::DRAFT_WIRE_UP, count(ledger.draft_wire_up)),
            (names::DRAFT_WIRE_DOWN, count(ledger.draft_wire_down)),
            (names::VERIFY_WIRE_UP, count(ledger.verify_wire_up)),
            (names::VERIFY_WIRE_DOWN, count(ledger.verify_wire_down)),
            (names::TTFT_US, count(ledger.ttft_us)),
            (names::WALL_US, count(ledger.wall_us)),
            (names::DRAFT_CHARGED_US, count(ledger.draft_charged_us)),
            (names::VERIFY_CHARGED_US, count(ledger.verify_charged_us)),
        ] {
            assert_eq!(root.number(name), value, "{name} of {root:#?}");
        }
    }

    /// What the rounds and the workers' frames say adds up to the ledger.
    fn check_rounds(&self, ledger: &v1::Ledger) {
        let blocks: Vec<_> = self.frames("block").collect();
        assert_eq!(blocks.len(), ledger.blocks as usize, "one frame for each judged block");
        let drafted: i64 = blocks.iter().map(|frame| frame.number(names::DRAFTED)).sum();
        assert_eq!(drafted, i64::from(ledger.drafted));
        let accepted: i64 = self
            .named(names::SPAN_ROUND)
            .filter(|round| round.text(names::ACCEPTED).is_some())
            .map(|round| round.number(names::ACCEPTED))
            .sum();
        assert_eq!(accepted, i64::from(ledger.accepted));
        for frame in blocks {
            assert_eq!(self.parent(frame).name, names::SPAN_VERIFY);
            assert!(self.children(frame).any(|span| span.name == names::SPAN_PASS), "{frame:#?}");
        }
        for frame in self.frames("draft") {
            assert_eq!(self.parent(frame).name, names::SPAN_DRAFT);
        }
    }

    fn frames(&self, kind: &'a str) -> impl Iterator<Item = &'a SeenSpan> {
        self.named(names::SPAN_FRAME).filter(move |frame| frame.text(names::FRAME_KIND) == Some(kind))
    }
}

fn count(value: u64) -> i64 {
    value.try_into().unwrap()
}

//! Names of spans and attributes, each declared once. `NAMES.md` beside this crate's `Cargo.toml` is the same table for
//! people who read traces; a test keeps the two alike.
//!
//! A span uses them as `info_span!("round", { names::ROUND } = 3, { names::ACCEPTED } = tracing::field::Empty)` and
//! `span.record(names::ACCEPTED, 2)`. Names of the OpenTelemetry conventions (`gen_ai.*`, `rpc.*`) are used
//! where they say what we mean; `foretoken.*` is the rest.

/// Root span of a request, in the orchestrator: its attributes are the request's ledger.
pub const SPAN_GENERATE: &str = "generate";
/// What is checked and opened before an answer begins.
pub const SPAN_ADMISSION: &str = "admission";
/// One of several samples of a request: its attributes are that sample's ledger.
pub const SPAN_SAMPLE: &str = "sample";
/// One round: a block drafted, verified and decided, or a run of plain decoding.
pub const SPAN_ROUND: &str = "round";
/// The orchestrator's call of a draft worker within a round.
pub const SPAN_DRAFT: &str = "draft";
/// The orchestrator's call of a verifier within a round.
pub const SPAN_VERIFY: &str = "verify";
/// A session's stream at a verifier, from its call to its end.
pub const SPAN_VERIFY_SESSION: &str = "verify_session";
/// A session's stream at a draft worker, from its call to its end.
pub const SPAN_DRAFT_SESSION: &str = "draft_session";
/// A worker's handling of one frame, from its arrival to its terminal reply: a child of the call that sent it.
pub const SPAN_FRAME: &str = "frame";
/// A frame's wait for the model's thread and for its first pass.
pub const SPAN_QUEUE: &str = "queue";
/// One forward pass that a frame took part in, one of the frame's first 8; linked to the frames that shared it.
pub const SPAN_PASS: &str = "pass";
/// Event of a frame: a pass's logits became thresholds and repairs, a token, or a draft.
pub const EVENT_SAMPLING: &str = "sampling";

/// Id of the request, as in the reply and the logs. Text.
pub const REQUEST_ID: &str = "foretoken.request.id";
/// Name of the API key that a request came with, where keys are asked for; never the key. Text.
pub const API_KEY_NAME: &str = "foretoken.api_key.name";
/// Id of a worker's session, one per request and worker. Text.
pub const SESSION_ID: &str = "foretoken.session.id";
/// Model that answers, by the name its file gives it. Text.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// Tokens of the prompt.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the reply, the end-of-sequence token included.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Why the reply ended: `stop`, `length`, `cancelled`, `error`. Text.
pub const FINISH_REASON: &str = "foretoken.finish_reason";

/// Number of a sample within its request, from 0.
pub const SAMPLE: &str = "foretoken.sample";
/// Number of the round within its request, from 0.
pub const ROUND: &str = "foretoken.round";
/// Sequence number of a frame within its stream.
pub const SEQ: &str = "foretoken.seq";
/// What a frame asks for: `block`, `decode` or `draft`. Text.
pub const FRAME_KIND: &str = "foretoken.frame.kind";
/// Text length that a run of plain decoding may reach.
pub const GRANT: &str = "foretoken.grant";
/// What became of a frame: `verdict`, `draft`; of a run `stop`, `grant`, `context`, `superseded`; `stale`,
/// `need_prefix`; `failed`. Text.
pub const OUTCOME: &str = "foretoken.outcome";
/// Tokens that a frame brought: drafted, or decoded plainly.
pub const TOKENS: &str = "foretoken.tokens";
/// Epoch of a frame: counts what voided the workers' uncommitted text.
pub const EPOCH: &str = "foretoken.epoch";
/// Position in the text at which a block or run starts.
pub const START: &str = "foretoken.start";
/// Draft length asked for in this round; 0 is plain decoding.
pub const DRAFT_LEN: &str = "foretoken.draft_len";
/// Drafted tokens sent to the verifier.
pub const DRAFTED: &str = "foretoken.drafted";
/// Drafted tokens that became text.
pub const ACCEPTED: &str = "foretoken.accepted";
/// Who drafted: `model`, `ngram`, `none`. Text.
pub const DRAFTER: &str = "foretoken.drafter";

/// Committed tokens that were drafted and accepted.
pub const TOKENS_ACCEPTED: &str = "foretoken.tokens.accepted";
/// Committed tokens drawn by the verifier in place of a rejected one.
pub const TOKENS_REPAIR: &str = "foretoken.tokens.repair";
/// Committed tokens drawn by the verifier behind a block that passed whole.
pub const TOKENS_BONUS: &str = "foretoken.tokens.bonus";
/// Committed tokens of plain decoding, the first token included.
pub const TOKENS_PLAIN: &str = "foretoken.tokens.plain";

/// Forward passes of the target model that produced text.
pub const TARGET_PASSES: &str = "foretoken.target_passes";
/// Forward passes that plain decoding would have needed on top.
pub const SAVED_PASSES: &str = "foretoken.saved_passes";

/// What a round was: `prefill`, `block` or `run`. Text.
pub const ROUND_KIND: &str = "foretoken.round.kind";
/// Tokens that a round committed.
pub const COMMITTED: &str = "foretoken.committed";
/// Where a round's last token came from: `accepted`, `repair`, `bonus`, `plain`. Text.
pub const CLOSING: &str = "foretoken.closing";
/// How many of the judged tokens were to be accepted, on average: Σ β, or Σ P under the block rule.
pub const OVERLAP: &str = "foretoken.overlap";
/// Positions whose acceptance could be foretold.
pub const JUDGED: &str = "foretoken.judged";

/// β at each position of the request's blocks, as far as any was judged there. Numbers, in order.
pub const BETA: &str = "foretoken.beta";
/// Bytes on the wire, of both links and both ways, for each pass saved.
pub const BYTES_PER_SAVED_PASS: &str = "foretoken.bytes_per_saved_pass";

/// Time to the first token, from the request's arrival, microseconds.
pub const TTFT_US: &str = "foretoken.ttft_us";
/// Time from the first token's commit to the last one's, microseconds: the sum of the stages.
pub const WALL_US: &str = "foretoken.wall_us";
/// Stage: waiting for the drafter, its work and the way there and back, microseconds.
pub const STAGE_DRAFT_US: &str = "foretoken.stage.draft_us";
/// Stage: the verifier's link, both ways, microseconds.
pub const STAGE_NET_US: &str = "foretoken.stage.net_us";
/// Stage: waiting at the verifier for its model's thread and for earlier passes, microseconds.
pub const STAGE_QUEUE_US: &str = "foretoken.stage.queue_us";
/// Stage: waiting at the verifier, with the pass over, for the other sessions of the pass, microseconds.
pub const STAGE_BATCH_WAIT_US: &str = "foretoken.stage.batch_wait_us";
/// Stage: the target's passes, with thresholds, repairs and draws, microseconds.
pub const STAGE_PASS_US: &str = "foretoken.stage.pass_us";
/// Stage: the orchestrator's own work, microseconds.
pub const STAGE_OWN_US: &str = "foretoken.stage.own_us";
/// Stage: waiting for the client to take what was committed, microseconds.
pub const STAGE_CLIENT_US: &str = "foretoken.stage.client_us";
/// Stage: what led to no token, microseconds.
pub const STAGE_RECOVERY_US: &str = "foretoken.stage.recovery_us";
/// Of the draft stage, what the draft worker itself spent, microseconds.
pub const DRAFTING_US: &str = "foretoken.drafting_us";
/// T(1): one plain step of the verifier at this load, microseconds.
pub const PLAIN_STEP_US: &str = "foretoken.plain_step_us";
/// What speculation gained between first and last token, microseconds; negative if it lost.
pub const GAIN_US: &str = "foretoken.gain_us";
/// The longest round trip of both links at which drafting as here would have paid, microseconds.
pub const BREAK_EVEN_US: &str = "foretoken.break_even_us";
/// Draft worker's time charged to the request by rows, microseconds.
pub const DRAFT_CHARGED_US: &str = "foretoken.draft.charged_us";
/// Verifier's time charged to the request by rows, microseconds.
pub const VERIFY_CHARGED_US: &str = "foretoken.verify.charged_us";

/// Forward passes a frame took part in, those included that only read text.
pub const PASSES: &str = "foretoken.passes";
/// Rows of the frame's session in a pass; on a frame, in its last.
pub const ROWS: &str = "foretoken.rows";
/// Rows of all sessions in that pass.
pub const BATCH_ROWS: &str = "foretoken.batch.rows";
/// Sessions in that pass.
pub const BATCH_SESSIONS: &str = "foretoken.batch.sessions";
/// Time a frame waited for the model's thread and a place in a pass, microseconds; of a run, for all its tokens.
pub const QUEUE_US: &str = "foretoken.queue_us";
/// Time a frame waited, with the pass over, for the other sessions that shared it, microseconds.
pub const BATCH_WAIT_US: &str = "foretoken.batch_wait_us";
/// Time of a frame's passes, microseconds.
pub const MODEL_US: &str = "foretoken.model_us";
/// Time a frame spent in distributions, thresholds and draws, microseconds; on the event `sampling`, after one pass.
pub const SAMPLING_US: &str = "foretoken.sampling_us";

/// Bytes of encoded messages from the orchestrator to the draft worker.
pub const DRAFT_BYTES_UP: &str = "foretoken.draft.bytes_up";
/// Bytes of encoded messages from the draft worker to the orchestrator.
pub const DRAFT_BYTES_DOWN: &str = "foretoken.draft.bytes_down";
/// Bytes of encoded messages from the orchestrator to the verifier.
pub const VERIFY_BYTES_UP: &str = "foretoken.verify.bytes_up";
/// Bytes of encoded messages from the verifier to the orchestrator.
pub const VERIFY_BYTES_DOWN: &str = "foretoken.verify.bytes_down";
/// Bytes on the wire from the orchestrator to the draft worker: its own frames and its share of the connection's.
pub const DRAFT_WIRE_UP: &str = "foretoken.draft.wire_up";
/// Bytes on the wire from the draft worker to the orchestrator.
pub const DRAFT_WIRE_DOWN: &str = "foretoken.draft.wire_down";
/// Bytes on the wire from the orchestrator to the verifier.
pub const VERIFY_WIRE_UP: &str = "foretoken.verify.wire_up";
/// Bytes on the wire from the verifier to the orchestrator.
pub const VERIFY_WIRE_DOWN: &str = "foretoken.verify.wire_down";

/// `grpc`. Text.
pub const RPC_SYSTEM: &str = "rpc.system.name";
/// Service and method of a call, e.g. `foretoken.v1.TargetVerifier/Verify`. Text.
pub const RPC_METHOD: &str = "rpc.method";
/// The gRPC code that a call ended with, e.g. `OK`. Text.
pub const RPC_STATUS: &str = "rpc.response.status_code";
/// Why something failed: a reason of the error table, or a gRPC code. Text.
pub const ERROR_TYPE: &str = "error.type";

//! Metrics and their labels, each declared once.
//!
//! No label takes text that a client or an untrusted worker chooses: reasons outside the known ones count as
//! [`OTHER`]. `deploy/metrics.md` is this table for operators, compared with it by a test.

use super::metric::{Kind, Metric, Service};

/// Why a request failed, a session was refused or speculation was off.
pub const REASON: &str = "reason";
/// A reason that is in none of our tables.
pub const OTHER: &str = "OTHER";
/// `stop` or `length`.
pub const FINISH_REASON: &str = "finish_reason";
/// How a token came to be: `accepted`, `repair`, `bonus` or `plain`.
pub const ORIGIN: &str = "origin";
/// Place of a token within its draft, from 0; a draft's length is bounded.
pub const POSITION: &str = "position";
/// Which worker a link leads to: `draft` or `verify`.
pub const LINK: &str = "link";
/// `up` from the orchestrator, `down` to it.
pub const DIRECTION: &str = "direction";
/// What an answer waited for: `draft`, `net`, `queue`, `batch_wait`, `pass`, `own`, `client` or `recovery`.
pub const STAGE: &str = "stage";
/// `prefill`, `block` or `run`.
pub const KIND: &str = "kind";
/// `verifier` or `draft_worker`.
pub const ROLE: &str = "role";
/// What drafted at the end of an answer: `model`, `ngram`, `ngram+table` or `none`.
pub const DRAFTER: &str = "drafter";

/// Bounds of times within a worker: a tenth of a millisecond to ten seconds.
const SHORT_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Bounds of times that a client waits: a millisecond to five minutes.
const LONG_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Bounds of rows and sessions of a pass.
const COUNTS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

const LONG: Kind = Kind::Histogram(LONG_SECONDS);
const SHORT: Kind = Kind::Histogram(SHORT_SECONDS);
const COUNT: Kind = Kind::Histogram(COUNTS);

macro_rules! metrics {
    ($($service:ident { $($id:ident = $name:literal, $kind:expr, $unit:literal, [$($label:expr),*], $help:literal;)* })*) => {
        $($(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: $name,
                kind: $kind,
                service: Service::$service,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*)*

        /// All of them, in the order of the operators' table.
        pub const ALL: &[Metric] = &[$($($id,)*)*];
    };
}

use Kind::{Counter, Gauge};

metrics! {
    Orchestrator {
        REQUESTS_RUNNING = "foretoken_requests_running", Gauge, "{answer}", [], "Answers in work; a request counts once per sample";
        REQUESTS_MAX = "foretoken_requests_max", Gauge, "{answer}", [], "Answers that may be in work at once (--max-requests)";
        REQUEST_SUCCESS = "foretoken_request_success_total", Counter, "{answer}", [FINISH_REASON], "Answers finished; a request counts once per sample";
        REQUEST_FAILURES = "foretoken_request_failures_total", Counter, "{request}", [REASON], "Requests refused or broken off; CANCELLED are those whose client went away";
        BROKEN_OFF_ANSWERS = "foretoken_broken_off_answers_total", Counter, "{answer}", [REASON], "Answers broken off in work; a request counts once per sample";
        BROKEN_OFF_TOKENS = "foretoken_broken_off_tokens_total", Counter, "{token}", [REASON], "Their tokens: of the tokens generated, those of answers that did not end by themselves";
        BROKEN_OFF_PASSES = "foretoken_broken_off_passes_total", Counter, "{pass}", [REASON], "Of the target model's passes that committed tokens, theirs";
        BROKEN_OFF_CAPACITY = "foretoken_broken_off_capacity_seconds_total", Counter, "s", [ROLE], "Of the worker time charged to answers, theirs";
        PROMPT_TOKENS = "foretoken_prompt_tokens_total", Counter, "{token}", [], "Prompt tokens of finished answers";
        GENERATION_TOKENS = "foretoken_generation_tokens_total", Counter, "{token}", [ORIGIN], "Tokens of answers, by how they came to be";
        NUM_DRAFTS = "foretoken_spec_decode_num_drafts_total", Counter, "{draft}", [], "Drafted blocks that committed at least one token";
        NUM_DRAFT_TOKENS = "foretoken_spec_decode_num_draft_tokens_total", Counter, "{token}", [], "Tokens sent to the verifier for judgement";
        NUM_ACCEPTED_TOKENS = "foretoken_spec_decode_num_accepted_tokens_total", Counter, "{token}", [], "Drafted tokens that became text";
        NUM_DRAFT_TOKENS_PER_POS = "foretoken_spec_decode_num_draft_tokens_per_pos_total", Counter, "{token}", [POSITION], "Tokens drafted, by place in their block";
        NUM_ACCEPTED_TOKENS_PER_POS = "foretoken_spec_decode_num_accepted_tokens_per_pos_total", Counter, "{token}", [POSITION], "Of these, the ones that became text";
        NUM_JUDGED_TOKENS = "foretoken_spec_decode_num_judged_tokens_total", Counter, "{token}", [], "Tokens whose acceptance could be foretold";
        OVERLAP = "foretoken_spec_decode_overlap_total", Counter, "{token}", [], "What was foretold of them; divided by their number, β";
        TARGET_PASSES = "foretoken_target_passes_total", Counter, "{pass}", [], "Passes of the target model that committed tokens";
        SAVED_PASSES = "foretoken_saved_passes_total", Counter, "{pass}", [], "Passes that plain decoding would have needed on top";
        PAYLOAD_BYTES = "foretoken_payload_bytes_total", Counter, "By", [LINK, DIRECTION], "Encoded messages between the orchestrator and its workers";
        WIRE_BYTES = "foretoken_wire_bytes_total", Counter, "By", [LINK, DIRECTION], "What the connections carried for them: frames, headers and their part of what belongs to no request";
        SPECULATION_OFF = "foretoken_speculation_off_total", Counter, "{event}", [REASON], "Times that an answer fell back to plain decoding although speculation was wanted";
        DRAFTER_ANSWERS = "foretoken_drafter_answers_total", Counter, "{answer}", [DRAFTER], "Finished answers, by what drafted at their end";
        STAGE_SECONDS = "foretoken_stage_seconds_total", Counter, "s", [STAGE], "Time from first to last token, by what it was spent on; the stages add up to all of it";
        MOVING_SECONDS = "foretoken_moving_seconds_total", Counter, "s", [], "Of this, moving data between the services";
        PLAIN_SECONDS = "foretoken_plain_seconds_total", Counter, "s", [], "What the same tokens would have taken one plain step each";
        GAIN_SECONDS = "foretoken_gain_seconds_total", Counter, "s", [], "Time won by answers that speculation made faster";
        LOSS_SECONDS = "foretoken_loss_seconds_total", Counter, "s", [], "Time lost by answers that speculation made slower";
        CAPACITY_SECONDS = "foretoken_capacity_seconds_total", Counter, "s", [ROLE], "Worker time charged to answers, each pass by its rows";
        PLAIN_STEP = "foretoken_plain_step_seconds", Gauge, "s", [], "One plain step of the verifier at the load of the last answer";
        BREAK_EVEN = "foretoken_break_even_round_trip_seconds", Gauge, "s", [], "The longest round trip, of both links together, at which drafting would still have paid for the last answer";
        WORKERS_READY = "foretoken_workers_ready", Gauge, "{worker}", [ROLE], "Workers that take sessions now";
        WORKERS_CONFIGURED = "foretoken_workers_configured", Gauge, "{worker}", [ROLE], "Workers that the orchestrator was told of";
        TIME_TO_FIRST_TOKEN = "foretoken_time_to_first_token_seconds", LONG, "s", [], "From a request's arrival to the commit of its first token";
        TIME_PER_OUTPUT_TOKEN = "foretoken_time_per_output_token_seconds", SHORT, "s", [], "Mean time per token after the first, one value per answer";
        ROUND = "foretoken_round_duration_seconds", SHORT, "s", [KIND], "Rounds that committed tokens, from the commit before them to their own";
        E2E_LATENCY = "foretoken_e2e_request_latency_seconds", LONG, "s", [], "From a request's arrival to the commit of its last token";
    }
    Workers {
        SESSIONS = "foretoken_worker_sessions", Gauge, "{session}", [], "Sessions held, those in their grace time included";
        SESSIONS_MAX = "foretoken_worker_sessions_max", Gauge, "{session}", [], "Sessions that may be held at once (--max-sessions)";
        SESSIONS_WAITING = "foretoken_worker_sessions_waiting", Gauge, "{session}", [], "Sessions whose frame waits for its first pass";
        KV_TOKENS_USED = "foretoken_worker_kv_tokens_used", Gauge, "{token}", [], "Positions of the KV cache reserved by sessions";
        KV_TOKENS_MAX = "foretoken_worker_kv_tokens_max", Gauge, "{token}", [], "Positions of the KV cache in all (--kv-tokens)";
        PASSES = "foretoken_worker_passes_total", Counter, "{pass}", [], "Passes of the model";
        SHARED_PASSES = "foretoken_worker_shared_passes_total", Counter, "{pass}", [], "Passes that more than one session shared";
        ROWS = "foretoken_worker_rows_total", Counter, "{row}", [], "Rows of all passes";
        BUSY_SECONDS = "foretoken_worker_busy_seconds_total", Counter, "s", [], "Time spent in passes and sampling";
        STALE_FRAMES = "foretoken_worker_stale_frames_total", Counter, "{frame}", [], "Frames of an old epoch";
        REPEATED_FRAMES = "foretoken_worker_repeated_frames_total", Counter, "{frame}", [], "Frames that came more than once";
        REFUSED_OPENS = "foretoken_worker_refused_opens_total", Counter, "{session}", [REASON], "Sessions that were not opened";
        QUEUE_WAIT = "foretoken_worker_queue_wait_seconds", SHORT, "s", [], "From a frame's arrival to the start of the first pass that it was in";
        PASS_SECONDS = "foretoken_worker_pass_seconds", SHORT, "s", [], "Times of passes, without sampling";
        PASS_ROWS = "foretoken_worker_pass_rows", COUNT, "{row}", [], "Rows of a pass";
        PASS_SESSIONS = "foretoken_worker_pass_sessions", COUNT, "{session}", [], "Sessions of a pass";
    }
}

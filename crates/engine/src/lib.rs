//! The conversation between orchestrator and workers, and the speculative round.

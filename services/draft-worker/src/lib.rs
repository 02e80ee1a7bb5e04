//! Drafts blocks of tokens for the orchestrator.

//! Drafting without weights.
//!
//! A [`Guesser`] follows one session's text and says, position by position, what may come next: what usually follows
//! the text's last tokens according to a [`Table`] counted once from texts or from the target's own answers,
//! outweighed by what followed them where they stood before in the text itself ([`LookUp`]). Whether a guess is one-hot
//! or drawn depends on the text alone, so it is settled before anything is drawn, and both are equally exact.
//!
//! Tables are counted by [`Corpus`] and written by [`Table::encode`]; how they look on disk is told in
//! [`table`]. Nothing here reads files, tokenizes or knows frames.

mod count;
mod guess;
mod look_up;
mod smoothing;
pub mod table;

pub use count::{Corpus, CountConfig, CountError};
pub use guess::{Candidates, Guess, Guesser};
pub use look_up::{LookUp, NgramConfig, Place};
pub use table::{Table, TableError};

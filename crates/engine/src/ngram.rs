//! Drafting without weights.
//!
//! A [`Guesser`] follows one session's text and says, position by position, what may come next: what followed
//! the text's last tokens where they stood before ([`LookUp`]), else what usually follows them according to a
//! [`Table`] counted once from texts or from the target's own answers. Which of the two speaks depends on the
//! text alone, so it is settled before anything is drawn, and one-hot guesses and drawn ones are equally exact.
//!
//! Tables are counted by [`Corpus`] and written by [`Table::encode`]; how they look on disk is told in
//! [`table`]. Nothing here reads files, tokenizes or knows frames.

mod count;
mod guess;
mod look_up;
pub mod table;

pub use count::{Corpus, CountConfig, CountError};
pub use guess::{Candidates, Guess, Guesser};
pub use look_up::{LookUp, NgramConfig};
pub use table::{Table, TableError};

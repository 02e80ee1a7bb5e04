//! A session's shaping, lent to the judge while it reads that session's rows.

use foretoken_acceptance::Shaping;

use super::Judge;

/// A shaping, and where the rows to be read stand.
#[derive(Debug)]
pub(super) struct Shaped {
    shaping: Box<Shaping>,
    first_row: usize,
    /// Position of the token that `first_row` is about; the rows behind it are about the next ones.
    first_position: usize,
}

impl Shaped {
    /// A row's logits, adjusted by the text before its position.
    pub(super) fn row(&mut self, logits: &[f32], row: usize) -> &[f32] {
        self.shaping.adjust(logits, self.first_position + row.saturating_sub(self.first_row))
    }
}

impl Judge {
    /// Takes what shapes the rows from `first_row` on, which are about `first_position` and those behind it, of a
    /// session that holds `text`. Give it back with [`unshape`](Self::unshape).
    pub(crate) fn shape(
        &mut self,
        shaping: Option<Box<Shaping>>,
        text: &[u32],
        first_row: usize,
        first_position: usize,
    ) {
        self.shaped = shaping.map(|mut shaping| {
            shaping.follow(text);
            Shaped { shaping, first_row, first_position }
        });
    }

    /// What was lent.
    pub(crate) fn unshape(&mut self) -> Option<Box<Shaping>> {
        self.shaped.take().map(|shaped| shaped.shaping)
    }
}

//! The table of slots, and the checks before a pass: what every engine does the same way.

use foretoken_runtime::decoder::{DecoderError, ModelShape, SessionRows, Slot};

/// A session's cache, as far as the table looks into it.
pub(crate) trait Positions {
    /// Positions held.
    fn len(&self) -> usize;
    /// Positions there is room for.
    fn capacity(&self) -> usize;
    /// Forgets the positions from `len` on.
    fn truncate(&mut self, len: usize);
}

/// Caches by slot number; numbers given back are used again, lowest first.
#[derive(Debug)]
pub(crate) struct Slots<C>(Vec<Option<C>>);

/// One session's part of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Its slot's number.
    pub(crate) slot: usize,
    /// Index of its first row among the rows of the pass.
    pub(crate) first: usize,
    /// How many rows it has.
    pub(crate) rows: usize,
    /// Position of its first row in the session.
    pub(crate) position: usize,
    /// How many of its last rows want logits.
    pub(crate) logits: usize,
}

impl<C> Default for Slots<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<C: Positions> Slots<C> {
    /// Puts what `make` makes into the lowest free slot, unless `capacity` is beyond the model's context.
    pub(crate) fn allocate(
        &mut self,
        shape: &ModelShape,
        capacity: usize,
        make: impl FnOnce() -> Result<C, DecoderError>,
    ) -> Result<Slot, DecoderError> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let Ok(slot) = u32::try_from(free) else {
            return Err(DecoderError::Backend(format!("{free} slots are in use, which is the most")));
        };
        let max_context = shape.max_context;
        if capacity > max_context {
            return Err(DecoderError::Capacity { slot, len: 0, capacity: max_context, rows: capacity });
        }
        let cache = make()?;
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(cache);
        Ok(Slot(slot))
    }

    /// The cache of the numbered slot, if there is one.
    pub(crate) fn get(&self, slot: usize) -> Option<&C> {
        self.0.get(slot)?.as_ref()
    }

    /// The cache of the numbered slot, if there is one, to change.
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut C> {
        self.0.get_mut(slot)?.as_mut()
    }

    /// Positions the slot holds; 0 if it is not allocated.
    pub(crate) fn len(&self, slot: Slot) -> usize {
        self.get(slot.0 as usize).map_or(0, C::len)
    }

    /// Forgets the slot's positions from `len` on.
    pub(crate) fn truncate(&mut self, slot: Slot, len: usize) {
        if let Some(cache) = self.get_mut(slot.0 as usize) {
            cache.truncate(len);
        }
    }

    /// Gives the slot back.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let Some(cache) = self.0.get_mut(slot.0 as usize) {
            *cache = None;
        }
    }

    /// See [`plan`].
    pub(crate) fn plan(
        &self,
        batch: &[SessionRows<'_>],
        vocab_size: usize,
    ) -> Result<Vec<Span>, DecoderError> {
        let mut spans = Vec::with_capacity(batch.len());
        plan(
            batch,
            vocab_size,
            |slot| self.get(slot).map(|cache| (cache.len(), cache.capacity())),
            &mut spans,
        )?;
        Ok(spans)
    }
}

/// Checks a whole batch and lays out its rows; nothing has changed if it is refused.
///
/// `size` tells the positions that a slot holds and has room for, if it is allocated.
pub(crate) fn plan(
    batch: &[SessionRows<'_>],
    vocab_size: usize,
    size: impl Fn(usize) -> Option<(usize, usize)>,
    spans: &mut Vec<Span>,
) -> Result<(), DecoderError> {
    spans.clear();
    let mut first = 0;
    for session in batch {
        let number = session.slot.0;
        let Some((len, capacity)) = size(number as usize) else {
            return Err(DecoderError::Backend(format!("slot {number} is not allocated")));
        };
        if spans.iter().any(|span| span.slot == number as usize) {
            return Err(DecoderError::Backend(format!("slot {number} appears twice in one pass")));
        }
        let (rows, logits) = (session.tokens.len(), session.logits);
        if rows == 0 || logits > rows {
            let problem = format!("slot {number} was fed {rows} rows and asked for {logits} rows of logits");
            return Err(DecoderError::Backend(problem));
        }
        if let Some(&token) = session.tokens.iter().find(|&&t| t as usize >= vocab_size) {
            return Err(DecoderError::Token { token, vocab_size });
        }
        if rows > capacity - len {
            return Err(DecoderError::Capacity { slot: number, len, capacity, rows });
        }
        spans.push(Span { slot: number as usize, first, rows, position: len, logits });
        first += rows;
    }
    Ok(())
}

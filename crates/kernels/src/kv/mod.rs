//! Keys and values of all sessions, in pages from one pool.
//!
//! A page holds the same positions of every layer and key head. Keys stand transposed in tiles of
//! sixteen positions, the way the score loop reads them; values stand row by row. A session's cache is
//! a list of pages and a length; forgetting positions is lowering the length, and what lies behind it
//! is overwritten before it is read again.

mod element;

pub use element::Precision;
pub(crate) use element::{Element, Half};

use crate::buffer::Buffer;
use crate::simd::LANES;

/// Positions of a page.
pub const PAGE: usize = 64;

/// The sizes that a cache is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheShape {
    /// Decoder layers.
    pub layers: usize,
    /// Key heads, of which there are as many value heads.
    pub heads: usize,
    /// Components of a head.
    pub dim: usize,
    /// How numbers are kept.
    pub precision: Precision,
}

/// The caches of all sessions.
#[derive(Debug)]
pub struct Cache {
    shape: CacheShape,
    /// Numbers of the shape's precision.
    pages: Vec<Buffer<u8>>,
    free: Vec<u32>,
    slots: Vec<Option<Slot>>,
}

/// One session's pages and how many positions of them are held.
#[derive(Debug)]
struct Slot {
    pages: Vec<u32>,
    len: usize,
    capacity: usize,
}

impl CacheShape {
    /// Numbers of one value row, filled up to whole vectors.
    pub(crate) fn value_width(self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    /// Numbers of one head's keys in a page.
    fn keys(self) -> usize {
        PAGE * self.dim
    }

    /// Numbers of one head in a page.
    fn head(self) -> usize {
        self.keys() + PAGE * self.value_width()
    }

    /// Numbers of a page.
    fn page(self) -> usize {
        self.layers * self.heads * self.head()
    }

    /// Bytes that one position costs.
    pub fn position_bytes(self) -> usize {
        self.page() / PAGE * self.precision.bytes()
    }
}

impl Cache {
    /// No sessions, and no pages: they are made when sessions grow, and used again.
    pub fn new(shape: CacheShape) -> Self {
        Self { shape, pages: Vec::new(), free: Vec::new(), slots: Vec::new() }
    }

    /// The sizes.
    pub fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Pages made so far, and how many of them are free.
    pub fn pages(&self) -> (usize, usize) {
        (self.pages.len(), self.free.len())
    }

    /// Reserves a slot that may come to hold `capacity` positions; the lowest free number.
    pub fn allocate(&mut self, capacity: usize) -> usize {
        // All its page numbers have room at once: growing in a pass allocates nothing but pages.
        let slot = Slot { pages: Vec::with_capacity(capacity.div_ceil(PAGE)), len: 0, capacity };
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[free] = Some(slot);
        free
    }

    /// Gives the slot back, and its pages.
    pub fn release(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot).and_then(Option::take) {
            self.free.extend(slot.pages);
        }
    }

    /// Positions held and positions reserved; `None` where there is no such slot.
    pub fn size(&self, slot: usize) -> Option<(usize, usize)> {
        self.slot(slot).map(|slot| (slot.len, slot.capacity))
    }

    /// Forgets the positions from `len` on. Its pages stay with the session, which is about to grow again.
    pub fn truncate(&mut self, slot: usize, len: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(slot) {
            slot.len = slot.len.min(len);
        }
    }

    /// Counts `rows` positions, written to every layer, as held.
    pub fn advance(&mut self, slot: usize, rows: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(slot) {
            slot.len += rows;
        }
    }

    /// Makes sure that the slot has pages for `rows` positions more.
    ///
    /// # Panics
    /// If there is no such slot, or it has not reserved so many.
    pub fn reserve(&mut self, slot: usize, rows: usize) {
        let Some(Some(slot)) = self.slots.get_mut(slot) else { panic!("there is no slot {slot}") };
        let needed = slot.len + rows;
        assert!(needed <= slot.capacity, "{needed} positions in a slot of {}", slot.capacity);
        while slot.pages.len() * PAGE < needed {
            let page = self.free.pop().unwrap_or_else(|| {
                self.pages.push(Buffer::zeroed(self.shape.page() * self.shape.precision.bytes()));
                (self.pages.len() - 1) as u32
            });
            slot.pages.push(page);
        }
    }

    fn slot(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref()
    }

    /// Lends the pages to the threads of a job.
    pub(crate) fn share(&mut self) -> SharedCache<'_> {
        SharedCache { shape: self.shape, pages: &mut self.pages, slots: &self.slots }
    }
}

/// [`Cache`] in a job of several threads.
#[derive(Debug)]
pub(crate) struct SharedCache<'a> {
    shape: CacheShape,
    /// Borrowed alone: only this view's own slices reach the numbers.
    pages: &'a mut [Buffer<u8>],
    slots: &'a [Option<Slot>],
}

impl SharedCache<'_> {
    pub(crate) fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Positions that a slot held before the pass.
    pub(crate) fn len(&self, slot: usize) -> usize {
        self.slots[slot].as_ref().map_or(0, |slot| slot.len)
    }

    /// The page of a slot's position.
    #[inline(always)]
    pub(crate) fn page(&self, slot: usize, position: usize) -> u32 {
        match &self.slots[slot] {
            Some(slot) => slot.pages[position / PAGE],
            None => panic!("there is no slot {slot}"),
        }
    }

    /// Where a head's keys begin in a page.
    fn keys_at(&self, layer: usize, head: usize) -> usize {
        (layer * self.shape.heads + head) * self.shape.head()
    }

    /// Some numbers of a page, which are of the shape's precision.
    #[inline(always)]
    fn part<E: Element>(&self, page: u32, start: usize, len: usize) -> *mut E {
        let page = &self.pages[page as usize];
        let count = page.count() / size_of::<E>();
        assert_eq!(size_of::<E>(), self.shape.precision.bytes(), "pages hold {}", self.shape.precision);
        assert!(start + len <= count, "numbers {start} and {len} more of a page of {count}");
        // SAFETY: the range was just found to be within the page, which begins on a cache line.
        unsafe { page.as_mut_ptr().cast::<E>().add(start) }
    }

    /// The keys of a page: for every sixteen positions, for every component, sixteen numbers.
    ///
    /// # Safety
    /// Nothing writes them while the result lives, and who wrote has passed a barrier since.
    #[inline(always)]
    pub(crate) unsafe fn keys<E: Element>(&self, page: u32, layer: usize, head: usize) -> &[[E; LANES]] {
        let len = self.shape.keys();
        let start = self.part(page, self.keys_at(layer, head), len);
        // SAFETY: `part` checked the range, every bit pattern is a number; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(start, len) }.as_chunks().0
    }

    /// The values of a page, rows of [`CacheShape::value_width`].
    ///
    /// # Safety
    /// As [`Self::keys`].
    #[inline(always)]
    pub(crate) unsafe fn values<E: Element>(&self, page: u32, layer: usize, head: usize) -> &[[E; LANES]] {
        let len = PAGE * self.shape.value_width();
        let start = self.part(page, self.keys_at(layer, head) + self.shape.keys(), len);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(start, len) }.as_chunks().0
    }

    /// Writes the key and the value of one position.
    ///
    /// # Safety
    /// No other thread uses this position of this head meanwhile, nor holds its page's slices.
    pub(crate) unsafe fn write<E: Element>(
        &self,
        page: u32,
        layer: usize,
        head: usize,
        position: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let (dim, within) = (self.shape.dim, position % PAGE);
        assert!(key.len() == dim && value.len() == dim, "a key and a value of {dim}");
        let keys = self.part::<E>(page, self.keys_at(layer, head), self.shape.keys());
        let column = within / LANES * dim * LANES + within % LANES;
        for (component, &k) in key.iter().enumerate() {
            // SAFETY: the index is below `PAGE * dim`, the length checked by `part`; the cell is of this
            // position alone.
            unsafe { keys.add(column + component * LANES).write(E::narrow(k)) };
        }
        let row = self.keys_at(layer, head) + self.shape.keys() + within * self.shape.value_width();
        let values = self.part::<E>(page, row, dim);
        for (component, &v) in value.iter().enumerate() {
            // SAFETY: `part` checked `dim` numbers from there, which are of this position alone.
            unsafe { values.add(component).write(E::narrow(v)) };
        }
    }
}

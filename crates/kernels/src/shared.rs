//! Slices that the threads of a pass write together, each its own elements.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice lent to several threads at once.
///
/// It checks bounds; that no element is written by one thread while another reads or writes it is
/// the caller's promise at each use.
#[derive(Debug)]
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` whose elements are handed to threads one by one.
unsafe impl<T: Send + Sync> Sync for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Lends `slice`.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrowed: PhantomData }
    }

    /// Some elements, to write.
    ///
    /// # Safety
    /// While the result lives, no other thread and no other result covers any of them.
    ///
    /// # Panics
    /// If the range is not within the slice.
    #[allow(clippy::mut_from_ref, reason = "this is what the type is for; see the safety contract")]
    #[inline(always)]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range is within the slice borrowed, and the caller has it alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Some elements, to read.
    ///
    /// # Safety
    /// While the result lives, nothing writes any of them, and what other threads wrote to them
    /// before happened before this call.
    ///
    /// # Panics
    /// If the range is not within the slice.
    #[inline(always)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range is within the slice borrowed, and the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }
}

//! Zeroed memory on cache-line bounds, in large pages where the system gives them.

use crate::region::{self, LINE, Region};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// From this size on, a buffer is part of a region: below it, its small pages are few.
const LARGE: usize = 32 << 10;

/// Numbers of which every bit pattern is valid, zero included.
///
/// # Safety
/// The type has no padding, no invalid bit pattern and nothing to drop.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: integers and floats are valid in every bit pattern and have no padding.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for [u8; 2] {}
// SAFETY: as above.
unsafe impl Plain for f32 {}

/// A fixed number of values, zero at first, the first at the start of a cache line.
pub(crate) struct Buffer<T: Plain> {
    start: NonNull<T>,
    len: usize,
    /// What it is part of, where it has no memory of its own.
    region: Option<Arc<Region>>,
}

// SAFETY: the buffer owns its memory as a `Vec` does, and `T` may be sent.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: shared access is by `&[T]` only, and `T` may be shared.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        if layout.size() >= LARGE {
            let (memory, region) = region::take(layout.size());
            // SAFETY: as many bytes were taken.
            unsafe { memory.as_ptr().write_bytes(0, layout.size()) };
            return Self { start: memory.cast(), len, region: Some(region) };
        }
        if layout.size() == 0 {
            return Self { start: NonNull::dangling(), len, region: None };
        }
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory.cast::<T>()) else { handle_alloc_error(layout) };
        Self { start, len, region: None }
    }

    /// How many values there are, told without touching them: other threads may be writing some.
    pub(crate) fn count(&self) -> usize {
        self.len
    }

    /// The first value, through which threads that share the buffer's owner write their own values.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// Where the length overflows, as `Vec` would.
    #[allow(clippy::expect_used, reason = "lengths come from tensors that were read into memory before")]
    fn layout(len: usize) -> Layout {
        let layout = Layout::array::<T>(len).and_then(|layout| layout.align_to(LINE));
        layout.expect("a buffer larger than the address space")
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        if layout.size() > 0 && self.region.is_none() {
            // SAFETY: the memory came from `alloc_zeroed` with this very layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie at `start`, initialised to zero, and live as long as the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the buffer is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {})", self.len, std::any::type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_aligned_and_writable() {
        for len in [0, 1, 63, 4096, LARGE] {
            let mut buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.as_ptr().addr().is_multiple_of(LINE) || len == 0);
            assert!(buffer.iter().all(|&v| v == 0.0));
            buffer.fill(1.5);
            assert!(buffer.iter().all(|&v| v == 1.5));
        }
    }
}

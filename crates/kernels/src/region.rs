//! Large pages that buffers share.
//!
//! A matrix is read front to back in every pass. In small pages the processor looks up an address every few dozen blocks
//! of weights; a buffer smaller than a large page gets none of its own. So buffers lie side by side in regions. What
//! is not handed out of a region is never touched, and costs no memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of a large page, on whose bounds regions begin and end; few for Miri, which writes them one by one.
const LARGE_PAGE: usize = if cfg!(miri) { 4 << 10 } else { 2 << 20 };
/// Bytes of a region for several buffers.
const REGION: usize = 8 * LARGE_PAGE;
/// Buffers begin at bounds of cache lines, which are the widest loads' too.
pub(crate) const LINE: usize = 64;

/// Memory of which buffers have parts, freed when the last of them is gone.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a region only frees its memory; its parts are handed out once each.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// The region that the next buffer may have a part of.
struct Open {
    region: Weak<Region>,
    /// Bytes of it that were handed out.
    used: usize,
}

static OPEN: Mutex<Open> = Mutex::new(Open { region: Weak::new(), used: 0 });

/// The first byte of `bytes` bytes that nobody else has while the region lives; they are not initialised.
///
/// # Panics
/// If there are more of them than the address space has.
pub(crate) fn take(bytes: usize) -> (NonNull<u8>, Arc<Region>) {
    let bytes = bytes.next_multiple_of(LINE);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let left = |region: &Region, used: usize| region.layout.size() - used;
    let current = open.region.upgrade();
    if let Some(region) = current.as_ref().filter(|region| left(region, open.used) >= bytes) {
        // SAFETY: so many bytes of the region are left.
        let start = unsafe { region.start.add(open.used) };
        open.used += bytes;
        return (start, Arc::clone(region));
    }
    let region = Arc::new(Region::new(bytes.max(REGION)));
    if current.is_none_or(|current| left(&current, open.used) < left(&region, bytes)) {
        *open = Open { region: Arc::downgrade(&region), used: bytes };
    }
    (region.start, region)
}

impl Region {
    #[allow(clippy::expect_used, reason = "lengths come from tensors that were read into memory before")]
    fn new(bytes: usize) -> Self {
        let layout = bytes.checked_next_multiple_of(LARGE_PAGE).map(|bytes| (bytes, LARGE_PAGE));
        let layout = layout.and_then(|(bytes, align)| Layout::from_size_align(bytes, align).ok());
        let layout = layout.expect("a buffer larger than the address space");
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(memory) else { handle_alloc_error(layout) };
        // Before the first write, which decides what kind of page it gets.
        #[cfg(all(target_os = "linux", not(miri)))]
        // SAFETY: the range is memory of ours that begins on a page's bound; the advice changes nothing that a program
        // can see, and its failure leaves small pages.
        unsafe {
            libc::madvise(memory.cast(), layout.size(), libc::MADV_HUGEPAGE)
        };
        Self { start, layout }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the memory came from `alloc` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_outlive_the_region_that_is_open() {
        let sizes = [1, 64, 65, LARGE_PAGE, REGION + 1, 3, REGION / 2 + 1, REGION / 2];
        let parts: Vec<_> = sizes.iter().map(|&size| (take(size), size)).collect();
        for (index, ((start, _), size)) in parts.iter().enumerate() {
            assert!(start.as_ptr().addr().is_multiple_of(LINE));
            // SAFETY: so many bytes were asked for.
            unsafe { start.as_ptr().write_bytes(index as u8, *size) };
        }
        for (index, ((start, _), size)) in parts.iter().enumerate() {
            // SAFETY: they were written just now, and the region lives.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), *size) };
            assert!(bytes.iter().all(|&byte| byte == index as u8));
        }
    }
}

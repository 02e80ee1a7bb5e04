//! Keeping the threads of a pool on different processors.
//!
//! A scheduler that sees other load may leave two threads that wait for each other on one processor for
//! seconds, where they take turns and a pass takes twice its time. A pool that is as large as the
//! machine has no choice of processors to make: its workers stay on those that the caller is not on. A
//! smaller pool is left to the scheduler, which has room to move its threads, and so is every pool on
//! systems other than Linux.

/// The processors of a pool that uses all of them.
#[derive(Debug)]
pub(crate) struct Placement {
    processors: Vec<usize>,
}

/// What is said for "not known, or not to be chosen".
pub(crate) const ANYWHERE: u32 = u32::MAX;

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::mem;

    /// Processors that this thread may use.
    pub(super) fn allowed() -> Vec<usize> {
        // SAFETY: the set is plain bits, for which zero is valid, and is written within its size.
        let set = unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
                return Vec::new();
            }
            set
        };
        // SAFETY: the numbers are within the set's size.
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    }

    /// The processor that this thread is on.
    pub(super) fn current() -> Option<usize> {
        // SAFETY: it takes nothing and tells a number.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Moves this thread to a processor; where the system refuses, it stays where it is.
    pub(super) fn move_to(processor: usize) {
        // SAFETY: the set is plain bits; the number came from such a set.
        unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn allowed() -> Vec<usize> {
        Vec::new()
    }
    pub(super) fn current() -> Option<usize> {
        None
    }
    pub(super) fn move_to(_processor: usize) {}
}

impl Placement {
    /// The placement of a pool of `threads`, the caller's among them.
    pub(crate) fn new(threads: usize) -> Self {
        let mut processors = system::allowed();
        if processors.len() != threads || threads < 2 {
            processors.clear();
        }
        Self { processors }
    }

    /// Where the caller is among the processors; [`ANYWHERE`] if that is of no use.
    pub(crate) fn caller(&self) -> u32 {
        if self.processors.is_empty() {
            return ANYWHERE;
        }
        let place = system::current().and_then(|cpu| self.processors.iter().position(|&p| p == cpu));
        place.map_or(ANYWHERE, |place| place as u32)
    }

    /// Moves worker `index` to its place, counted from the caller's; `at` is where it was put last.
    pub(crate) fn settle(&self, index: usize, caller: u32, at: &mut u32) {
        if caller == ANYWHERE {
            return;
        }
        let place = (caller as usize + index) % self.processors.len();
        if *at != place as u32 {
            system::move_to(self.processors[place]);
            *at = place as u32;
        }
    }
}

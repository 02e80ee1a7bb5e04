//! Threads that run one job together, split by their numbers, and wait for each other cheaply.
//!
//! The split is the job's own and static: each thread streams its own part of the weights, always
//! the same. Waiting spins a little, then yields, then sleeps, so that pools of several processes
//! on one machine do not take time slices from each other. See [`crate::placement`] for where they run.

use crate::placement::{ANYWHERE, Placement};
use std::any::Any;
use std::fmt;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Looks at a signal before the first yield: some ten microseconds, the length of most waits within a pass. Where
/// another process wants the processor a yield gives it a whole slice, which is a thousand times as long.
const SPINS: u32 = 1000;
/// How long a thread yields before it sleeps: longer than threads wait for each other within a pass, where their shares
/// of the memory's speed differ. With a tenth of it a pass over 637 MB took 35 ms, with this 25: most barriers had put a
/// thread to sleep, and waking it costs more than the wait.
const PATIENCE: Duration = Duration::from_micros(500);
/// A yield that took longer let another thread run: the processor is wanted, and who goes on yielding is put back further
/// each time.
const CONTENDED: Duration = Duration::from_micros(20);

/// A pool of threads; the one that calls [`run`](Self::run) is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// A thread's view of the job it is in.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// This thread's number, from 0.
    pub index: usize,
    /// Threads in the job.
    pub count: usize,
    shared: &'a Shared,
}

/// What the threads of a pool share.
struct Shared {
    threads: u32,
    placement: Placement,
    start: Apart<Start>,
    /// Counts workers that have left a job.
    finished: Apart<Signal>,
    /// Counts barriers passed.
    passed: Apart<Signal>,
    /// Threads that have reached the barrier.
    arrived: Apart<AtomicU32>,
    /// Set when a thread panicked in the job: others must not wait for it.
    failed: AtomicBool,
    stopping: AtomicBool,
}

/// A value on cache lines of its own, which processors fetch in pairs: what is written beside it does not take them away.
#[repr(align(128))]
struct Apart<T>(T);

/// A job's closure, its lifetime erased.
type Job = &'static (dyn Fn(Part<'_>) + Sync);

/// What the caller of a job tells the workers. All of it is in the cache line that they look at, and comes with the signal.
struct Start {
    /// Counts jobs; a change starts one.
    signal: Signal,
    /// The job, null if there has been none. It points to the stack of [`Pool::run`].
    job: AtomicPtr<Job>,
    /// Where the caller is, for [`Placement`].
    caller: AtomicU32,
}

impl Pool {
    /// A pool of `threads`, the caller's among them.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            threads: threads as u32,
            placement: Placement::new(threads),
            start: Apart(Start {
                signal: Signal::default(),
                job: AtomicPtr::new(ptr::null_mut()),
                caller: AtomicU32::new(ANYWHERE),
            }),
            finished: Apart(Signal::default()),
            passed: Apart(Signal::default()),
            arrived: Apart(AtomicU32::new(0)),
            failed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let mut pool = Self { shared, workers: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker =
                thread::Builder::new().name(format!("model-{index}")).spawn(move || shared.work(index))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` once on every thread and returns when all have left it.
    ///
    /// # Panics
    /// If the job panics on any thread.
    pub fn run(&mut self, job: impl Fn(Part<'_>) + Sync) {
        let shared = &*self.shared;
        let (Apart(start), Apart(finished)) = (&shared.start, &shared.finished);
        let part = Part { index: 0, count: self.workers.len() + 1, shared };
        if self.workers.is_empty() {
            return job(part);
        }
        let job: &(dyn Fn(Part<'_>) + Sync) = &job;
        // SAFETY: only the lifetime changes; this function does not return, nor unwind, before
        // `finished` tells that no worker will use the closure again.
        let mut erased: Job = unsafe { std::mem::transmute(job) };
        start.job.store(&raw mut erased, Ordering::Relaxed);
        start.caller.store(shared.placement.caller(), Ordering::Relaxed);
        let last = finished.now().wrapping_add(self.workers.len() as u32);
        start.signal.advance();
        let own = shared.attempt(job, part);
        finished.wait(|value| value == last);
        if shared.failed.swap(false, Ordering::Relaxed) {
            // Threads that were waiting at a barrier when another panicked have left it uncounted.
            shared.arrived.0.store(0, Ordering::Relaxed);
            match own {
                Err(panic) => resume_unwind(panic),
                Ok(()) => panic!("a thread of the pool panicked in its part of the job"),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.start.0.signal.advance();
        for worker in self.workers.drain(..) {
            // A worker's panics are caught and told where the job was run.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

impl Part<'_> {
    /// This thread's share of `items`, in order; the first threads have the larger shares.
    pub fn share(&self, items: usize) -> std::ops::Range<usize> {
        let bound = |index: usize| (items * index).div_ceil(self.count);
        bound(self.index)..bound(self.index + 1)
    }

    /// Waits until every thread of the job is here. What they wrote before is seen after it.
    ///
    /// # Panics
    /// If another thread of the job panicked.
    pub fn barrier(&self) {
        let shared = self.shared;
        if self.count == 1 {
            return;
        }
        let (Apart(signal), Apart(arrived)) = (&shared.passed, &shared.arrived);
        let passed = signal.now();
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == shared.threads {
            arrived.store(0, Ordering::Relaxed);
            signal.advance();
        } else {
            signal.wait(|value| value != passed || shared.failed.load(Ordering::Relaxed));
            assert!(!shared.failed.load(Ordering::Relaxed), "another thread of the job panicked");
        }
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} of {})", self.index, self.count)
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self, index: usize) {
        let (Apart(start), Apart(finished)) = (&self.start, &self.finished);
        let (mut seen, mut place) = (0, ANYWHERE);
        loop {
            seen = start.signal.wait(|value| value != seen);
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            self.placement.settle(index, start.caller.load(Ordering::Relaxed), &mut place);
            // SAFETY: null, or what `run` stored before the signal, and it waits for `finished`.
            if let Some(job) = unsafe { start.job.load(Ordering::Relaxed).as_ref() } {
                // The panic's own message was printed on this thread; `run` tells its caller.
                let _ = self.attempt(job, Part { index, count: self.threads as usize, shared: self });
            }
            finished.advance();
        }
    }

    /// Runs a part; a panic is noted, so that nobody waits at a barrier for this thread.
    fn attempt(
        &self,
        job: &(dyn Fn(Part<'_>) + Sync),
        part: Part<'_>,
    ) -> Result<(), Box<dyn Any + Send + 'static>> {
        let outcome = catch_unwind(AssertUnwindSafe(|| job(part)));
        if outcome.is_err() {
            self.failed.store(true, Ordering::SeqCst);
            self.passed.0.advance();
        }
        outcome
    }
}

/// A counter that threads wait on.
#[derive(Default)]
struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Signal {
    fn now(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Counts up and wakes who sleeps.
    fn advance(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        // Either this load sees the sleeper, or the sleeper, which looks again after it has made
        // itself known, sees the new value: both are sequentially consistent.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Waits for a value that is `wanted`, and returns it.
    fn wait(&self, wanted: impl Fn(u32) -> bool) -> u32 {
        let mut yielding: Option<(Instant, Instant)> = None;
        for attempt in 0.. {
            let value = self.now();
            if wanted(value) {
                return value;
            }
            if attempt < SPINS {
                spin_loop();
                continue;
            }
            let (began, last) = *yielding.get_or_insert_with(|| (Instant::now(), Instant::now()));
            thread::yield_now();
            let now = Instant::now();
            if now - last > CONTENDED || now - began > PATIENCE {
                break;
            }
            yielding = Some((began, now));
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let value = loop {
            let value = self.value.load(Ordering::SeqCst);
            if wanted(value) {
                break value;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_thread_runs_its_part_and_shares_cover_all() {
        for threads in [1, 2, 5] {
            let mut pool = Pool::new(threads).unwrap();
            for items in [0, 1, 7, 64] {
                let seen: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                pool.run(|part| {
                    for item in part.share(items) {
                        seen[item].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn what_is_written_before_a_barrier_is_seen_behind_it() {
        let mut pool = Pool::new(3).unwrap();
        let cells: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
        let rounds = if cfg!(miri) { 3 } else { 2000 };
        pool.run(|part| {
            for round in 1..=rounds {
                cells[part.index].store(round, Ordering::Relaxed);
                part.barrier();
                assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == round));
                part.barrier();
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(3).unwrap();
        for culprit in 0..3 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(|part| {
                    assert!(part.index != culprit, "wanted");
                    part.barrier();
                });
            }));
            assert!(outcome.is_err());
            let count = AtomicUsize::new(0);
            pool.run(|part| {
                part.barrier();
                count.fetch_add(1, Ordering::Relaxed);
                part.barrier();
            });
            assert_eq!(count.into_inner(), 3);
        }
    }

    #[test]
    fn sleeping_threads_are_woken() {
        let mut pool = Pool::new(2).unwrap();
        for _ in 0..if cfg!(miri) { 2 } else { 20 } {
            thread::sleep(std::time::Duration::from_millis(1));
            let count = AtomicUsize::new(0);
            pool.run(|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 2);
        }
    }
}

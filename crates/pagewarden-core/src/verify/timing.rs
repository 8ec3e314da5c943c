//! What the time of a run went to, and where its bytes came from.
//!
//! A thread waits for a read, computes, or is held back; what remains of its time
//! it was ready and another program had the processor. Waiting is time on the clock
//! without the processor time spent meanwhile, so that the system's copying out of
//! the page cache counts as computing.

use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::system::processor_time;

/// Where bytes came from and what time went to, over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Bytes that the page cache held before they were read.
    pub cached_bytes: u64,
    /// Bytes of which it is not known whether it held them.
    pub unknown_bytes: u64,
    /// Bytes that were never written and so are not read.
    pub hole_bytes: u64,
    /// Time in which threads were at work.
    pub total: Duration,
    /// Of that, waiting for reads.
    pub waited: Duration,
    /// Of that, processor time.
    pub computed: Duration,
    /// Of that, held back: by a ceiling on the rate, or by other threads.
    pub paused: Duration,
}

/// What decided how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setter {
    /// Reads were waited for.
    Disk,
    /// Reads were there before they could be looked at.
    Processor,
    /// It was held back.
    Limit,
    /// Other programs had the processor.
    OtherPrograms,
}

impl Setter {
    /// As it stands in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Processor => "processor",
            Self::Limit => "limit",
            Self::OtherPrograms => "other programs",
        }
    }
}

impl Timing {
    /// What took the largest part of the time; `None` if there was none.
    #[must_use]
    pub fn setter(&self) -> Option<Setter> {
        let parts = [
            (self.waited, Setter::Disk),
            (self.computed, Setter::Processor),
            (self.paused, Setter::Limit),
            (self.lost(), Setter::OtherPrograms),
        ];
        // Of equal parts the first.
        let most = parts.into_iter().rev().max_by_key(|(part, _)| *part);
        most.filter(|(part, _)| !part.is_zero()).map(|(_, setter)| setter)
    }

    /// Time in which other programs had the processor.
    #[must_use]
    pub fn lost(&self) -> Duration {
        self.total.saturating_sub(self.waited + self.computed + self.paused)
    }

    /// A part of the time as a share of all of it.
    #[must_use]
    pub fn share(&self, part: Duration) -> f64 {
        let total = self.total.as_secs_f64();
        if total > 0.0 { (part.as_secs_f64() / total).min(1.0) } else { 0.0 }
    }
}

impl AddAssign for Timing {
    fn add_assign(&mut self, other: Self) {
        self.cached_bytes = self.cached_bytes.saturating_add(other.cached_bytes);
        self.unknown_bytes = self.unknown_bytes.saturating_add(other.unknown_bytes);
        self.hole_bytes = self.hole_bytes.saturating_add(other.hole_bytes);
        self.total += other.total;
        self.waited += other.waited;
        self.computed += other.computed;
        self.paused += other.paused;
    }
}

/// Tells a thread's waiting from its computing. To be asked in the thread that
/// started it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    begin: Instant,
    processor: Duration,
}

impl Stopwatch {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { begin: Instant::now(), processor: processor_time() }
    }

    /// Time since then.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Processor time since then.
    #[must_use]
    pub fn computed(&self) -> Duration {
        processor_time().saturating_sub(self.processor)
    }

    /// Time since then in which this thread did not run.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.total().saturating_sub(self.computed())
    }
}

/// What the workers of a run add up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    cached_bytes: AtomicU64,
    unknown_bytes: AtomicU64,
    hole_bytes: AtomicU64,
    waited_nanoseconds: AtomicU64,
    paused_nanoseconds: AtomicU64,
    queued_nanoseconds: AtomicU64,
    lives: Mutex<(Duration, Duration)>,
}

fn add(to: &AtomicU64, more: u64) {
    to.fetch_add(more, Ordering::Relaxed);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Tally {
    /// `bytes` are about to be read of which the page cache holds `cached`; `None`
    /// if that is not known.
    pub(super) fn read(&self, bytes: u64, cached: Option<u64>) {
        match cached {
            Some(cached) => add(&self.cached_bytes, cached),
            None => add(&self.unknown_bytes, bytes),
        }
    }

    pub(super) fn hole(&self, bytes: u64) {
        add(&self.hole_bytes, bytes);
    }

    /// Does what waits for a read.
    pub(super) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let watch = Stopwatch::start();
        let result = wait();
        add(&self.waited_nanoseconds, nanoseconds(watch.waited()));
        result
    }

    /// Does what holds a thread back.
    pub(super) fn pausing<T>(&self, pause: impl FnOnce() -> T) -> T {
        let watch = Stopwatch::start();
        let result = pause();
        add(&self.paused_nanoseconds, nanoseconds(watch.waited()));
        result
    }

    /// Waits for a turn to compute: threads that are there for the sake of reads in
    /// flight only are not at work meanwhile.
    pub(super) fn queueing<T>(&self, queue: impl FnOnce() -> T) -> T {
        let watch = Stopwatch::start();
        let result = queue();
        add(&self.queued_nanoseconds, nanoseconds(watch.waited()));
        result
    }

    /// A worker has ended that was started with this watch.
    pub(super) fn life(&self, watch: &Stopwatch) {
        let (total, computed) = (watch.total(), watch.computed());
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.0 += total;
        lives.1 += computed;
    }

    pub(super) fn pace(&self) -> Timing {
        let (total, computed) = *self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let time = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        Timing {
            cached_bytes: bytes(&self.cached_bytes),
            unknown_bytes: bytes(&self.unknown_bytes),
            hole_bytes: bytes(&self.hole_bytes),
            total: total.saturating_sub(time(&self.queued_nanoseconds)),
            waited: time(&self.waited_nanoseconds),
            computed,
            paused: time(&self.paused_nanoseconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn whatever_took_most_of_the_time_set_the_pace() {
        let of = |waited: u32, computed: u32, paused: u32| {
            let pace = Timing {
                total: 10 * SECOND,
                waited: waited * SECOND,
                computed: computed * SECOND,
                paused: paused * SECOND,
                ..Timing::default()
            };
            pace.setter()
        };
        assert_eq!(of(6, 2, 0), Some(Setter::Disk));
        assert_eq!(of(2, 6, 0), Some(Setter::Processor));
        assert_eq!(of(2, 2, 5), Some(Setter::Limit));
        assert_eq!(of(2, 2, 0), Some(Setter::OtherPrograms));
        assert_eq!(of(5, 5, 0), Some(Setter::Disk), "of equals the first");
        assert_eq!(Timing::default().setter(), None);
    }

    /// One thread that only sleeps, and one that only computes.
    #[test]
    fn sleeping_is_waiting_and_computing_is_not() {
        let tally = Tally::default();
        let life = Stopwatch::start();
        tally.waiting(|| std::thread::sleep(Duration::from_millis(60)));
        tally.pausing(|| std::thread::sleep(Duration::from_millis(30)));
        let mut number = 0_u64;
        let watch = Stopwatch::start();
        while watch.computed() < Duration::from_millis(20) {
            number = std::hint::black_box(number.wrapping_mul(3).wrapping_add(1));
        }
        tally.life(&life);
        let pace = tally.pace();
        assert!(pace.waited >= Duration::from_millis(55), "{pace:?}");
        assert!(pace.paused >= Duration::from_millis(25), "{pace:?}");
        assert!(pace.computed >= Duration::from_millis(20), "{pace:?}");
        assert!(pace.total >= pace.waited + pace.paused + Duration::from_millis(20), "{pace:?}");
    }
}

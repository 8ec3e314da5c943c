//! The engine: drives every page of a target through its page format.
//!
//! ```text
//!           +--> worker: read, judge --+
//! plan ---->|                          +--> collector --> sink
//! (runs in  +--> worker: read, judge --+    (in order)
//!  order)
//! ```
//!
//! The plan walks the target and cuts its files into runs of about a
//! mebibyte. Workers take runs, keep several reads in flight and judge what
//! came in; each byte is touched once. The collector puts the results back in
//! order, so that findings come out as the files lie, and bounds how far the
//! fastest worker may get ahead: memory does not grow with the target.

use std::io;
use std::num::NonZero;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::source::queue::{BlockingQueue, ReadQueue};
use crate::target::Target;
use crate::verdict::{
    Finding, ModeCounts, Note, PageCounts, Protection, SeverityCounts, Unread, Verdict,
};

mod collect;
mod look;
mod plan;
mod worker;

/// Bytes read at once: past this, neither disks nor the page cache get faster
/// (measured; see `docs/benchmarks.md`).
pub const RUN_BYTES: usize = 1 << 20;

/// Direct reads in flight over all workers, where the device decides the pace.
const READS_IN_FLIGHT: usize = 8;

/// Whether reads go through the host's page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caching {
    /// Through it where the data already is there, past it elsewhere.
    #[default]
    Auto,
    /// Always past it: what is judged is what the device holds.
    Direct,
    /// Always through it.
    Cached,
}

/// How direct reads are kept in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// `io_uring` where the system allows it, else threads.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// A thread for each read in flight.
    Threads,
}

/// How to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that judge pages.
    pub jobs: NonZero<usize>,
    /// A ceiling on bytes read a second, over all threads.
    pub rate: Option<NonZero<u64>>,
    /// Whether to read through the page cache.
    pub caching: Caching,
    /// How to keep direct reads in flight.
    pub method: Method,
    /// Set from outside to end the run early.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jobs: std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
            rate: None,
            caching: Caching::default(),
            method: Method::default(),
            stop: Arc::default(),
        }
    }
}

/// Told of the run's progress, from any thread.
pub trait Progress: Sync {
    /// `bytes` more were read.
    fn advance(&self, bytes: u64);
}

/// Shows no progress.
impl Progress for () {
    fn advance(&self, _bytes: u64) {}
}

/// Takes what is found, in the order of the files.
pub trait Sink: Send {
    /// Something is wrong.
    ///
    /// # Errors
    /// The result could not be written; the run ends.
    fn finding(&mut self, finding: &Finding) -> io::Result<()>;

    /// Something could not be read.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn unread(&mut self, unread: &Unread) -> io::Result<()>;

    /// Something worth knowing.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn note(&mut self, note: &Note) -> io::Result<()>;
}

/// What came out, without the findings themselves.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Files of pages that were opened.
    pub files: u64,
    /// Pages by what they count as.
    pub pages: PageCounts,
    /// Pages in use by protection.
    pub by_mode: ModeCounts,
    /// Bytes read and judged.
    pub bytes: u64,
    /// Findings by severity.
    pub severities: SeverityCounts,
    /// Stretches that could not be read.
    pub unread: u64,
    /// True if the run ended before all was read.
    pub stopped: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl Summary {
    /// The verdict on a target with this setting, by the order in
    /// [`Verdict`]'s documentation.
    #[must_use]
    pub fn verdict(&self, setting: Option<Protection>) -> Verdict {
        let tested = self.pages.ok;
        let locked = self.pages.unverifiable > 0 && tested == 0;
        if self.severities.damage > 0 {
            Verdict::Damaged
        } else if self.unread > 0 || self.pages.undecided > 0 || locked || self.stopped {
            Verdict::Incomplete
        } else if self.severities.suspect > 0 {
            Verdict::Suspect
        } else if setting == Some(Protection::None)
            || (self.pages.used() > 0 && self.by_mode.checksum == 0 && self.by_mode.torn == 0)
        {
            Verdict::Unprotected
        } else {
            Verdict::Intact
        }
    }

    /// Mebibytes a second.
    #[must_use]
    pub fn mib_per_second(&self) -> f64 {
        mib_per_second(self.bytes, self.elapsed)
    }
}

/// The figures of several targets together; times follow one another.
impl AddAssign<&Summary> for Summary {
    fn add_assign(&mut self, other: &Self) {
        self.files += other.files;
        self.pages += other.pages;
        self.by_mode += other.by_mode;
        self.bytes += other.bytes;
        self.severities += other.severities;
        self.unread += other.unread;
        self.stopped |= other.stopped;
        self.elapsed += other.elapsed;
    }
}

/// Mebibytes a second; 0 for no time.
#[must_use]
pub fn mib_per_second(bytes: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { bytes as f64 / f64::from(1 << 20) / seconds } else { 0.0 }
}

/// Verifies every page of `target`.
///
/// # Errors
/// The sink could not take a result, or no way of reading could be set up.
/// What cannot be read is reported to the sink and is no error.
pub fn verify(
    target: Target,
    options: &Options,
    progress: &dyn Progress,
    sink: &mut dyn Sink,
) -> io::Result<Summary> {
    let begin = Instant::now();
    let queues = queues(options)?;
    let run = worker::Shared::new(target, options, progress, sink, queues.len());
    std::thread::scope(|scope| {
        for mut queue in queues {
            let run = &run;
            scope.spawn(move || run.work(queue.as_mut()));
        }
    });
    let mut summary = run.finish()?;
    summary.elapsed = begin.elapsed();
    summary.stopped = options.stop.load(Ordering::Relaxed);
    Ok(summary)
}

/// A queue for each worker.
fn queues(options: &Options) -> io::Result<Vec<Box<dyn ReadQueue + Send>>> {
    let jobs = options.jobs.get();
    let blocking = |threads: usize| {
        (0..threads)
            .map(|_| Box::new(BlockingQueue::new(RUN_BYTES)) as Box<dyn ReadQueue + Send>)
            .collect()
    };
    if options.caching == Caching::Cached {
        return Ok(blocking(jobs));
    }
    let _ = Method::Uring;
    Ok(blocking(jobs.max(READS_IN_FLIGHT)))
}

//! The engine: drives every page of a target through its page format.
//!
//! ```text
//!           +--> worker: read, judge --+
//! plan ---->|                          +--> collector --> sink
//! (runs in  +--> worker: read, judge --+    (in order)
//!  order)
//! ```
//!
//! The plan walks the target and cuts its files into runs of two mebibytes at
//! most. Workers take runs, keep several reads in flight and judge what
//! came in; each byte is touched once. The collector puts the results back in
//! order, so that findings come out as the files lie, and bounds how far the
//! fastest worker may get ahead: memory does not grow with the target.

use std::io;
use std::num::NonZero;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::database::{Description, Target};
use crate::source::priority::stand_back;
use crate::source::queue::{BlockingQueue, ReadQueue};
use crate::source::rate::Rate;
#[cfg(target_os = "linux")]
use crate::source::uring::UringQueue;
use crate::verdict::{
    Finding, ModeCounts, Note, PageCounts, Protection, Recount, SeverityCounts, Stretch, Unread,
    Verdict,
};
use crate::verify::timing::Timing;

mod again;
mod apart;
mod collect;
mod held;
mod kept;
mod look;
mod open_file;
mod plan;
#[cfg(test)]
mod tests;
pub mod timing;
mod worker;

pub use kept::{KEPT_MAX, Kept};

/// Bytes read at once: one huge page, so that a direct read is one piece for
/// the device. Past this, neither disks nor the page cache get faster
/// (measured; see `docs/benchmarks-postgres.md`).
pub const RUN_BYTES: usize = 2 << 20;

/// Direct reads in flight over all workers, where the device decides the pace.
/// Not more, because each keeps [`RUN_BYTES`] of memory.
const READS_IN_FLIGHT: usize = 4;

/// Whether reads go through the host's page cache. It is left as it was found,
/// whichever way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caching {
    /// Through it where the data already is there, past it elsewhere.
    #[default]
    Auto,
    /// Always past it: what is judged is what the device holds. Where the file
    /// system refuses that, a note says so and it is as with `Cached`.
    Direct,
    /// Always through it. What was not there before is taken out again, as far
    /// as the system says what was there.
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
    /// How fast to read.
    pub rate: Rate,
    /// Whether to read through the page cache.
    pub caching: Caching,
    /// How to keep direct reads in flight.
    pub method: Method,
    /// Pages that cannot be tested, because a key or a reader of their format is
    /// missing, do not make the verdict incomplete.
    pub accepts_unverifiable: bool,
    /// Set from outside to end the run early.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jobs: std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
            rate: Rate::default(),
            caching: Caching::default(),
            method: Method::default(),
            accepts_unverifiable: false,
            stop: Arc::default(),
        }
    }
}

/// Receives the progress of a run. Called from any thread, also at the same time.
pub trait Progress: Sync {
    /// `bytes` more were read.
    fn advance(&self, bytes: u64);
}

/// Shows no progress.
impl Progress for () {
    fn advance(&self, _bytes: u64) {}
}

/// Receives the results of a run, one call at a time, in the order of the files and of the pages in
/// them.
///
/// Every method may fail: the run then ends at once, and [`verify`] returns that error. No call
/// follows a failed one.
pub trait Sink: Send {
    /// Something is wrong with a page or a file.
    ///
    /// # Errors
    /// The result could not be written.
    fn finding(&mut self, finding: &Finding) -> io::Result<()>;

    /// A range of a file, or a whole file, could not be read. Its pages are in no count.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn unread(&mut self, unread: &Unread) -> io::Result<()>;

    /// A circumstance that is worth knowing and is no finding.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn note(&mut self, note: &Note) -> io::Result<()>;

    /// A run of pages that count as the same. Together the calls cover each page of each file
    /// once, without a gap: pages that were read, and ranges that could not be.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        let _ = stretch;
        Ok(())
    }

    /// Corrects counts that [`Sink::pages`] reported before.
    ///
    /// # Errors
    /// As [`Sink::finding`].
    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        let _ = recount;
        Ok(())
    }
}

/// Keeps nothing: for those to whom the counts that [`verify`] returns are enough.
impl Sink for () {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
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
    /// Files in use that there is no reader for.
    pub untested_files: u64,
    /// See [`Options::accepts_unverifiable`].
    pub accepts_unverifiable: bool,
    /// True if the run ended before all was read.
    pub stopped: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// What that time went to, and where the bytes came from.
    pub pace: Timing,
}

/// A database that was verified.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Verified {
    /// What it is. Of a stream, what it turned out to be at its end.
    pub description: Description,
    /// What was counted.
    pub summary: Summary,
}

impl Verified {
    /// What another process verified, as its result says.
    #[must_use]
    pub fn of(description: Description, summary: Summary) -> Self {
        Self { description, summary }
    }

    /// The verdict, by the order in [`Verdict`]'s documentation.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.summary.verdict(self.description.setting)
    }
}

impl Summary {
    /// The verdict on a target with this setting, by the order in
    /// [`Verdict`]'s documentation.
    #[must_use]
    pub fn verdict(&self, setting: Option<Protection>) -> Verdict {
        if self.severities.damage > 0 {
            Verdict::Damaged
        } else if !self.is_complete() {
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

    /// True if everything that was named could be looked at, whatever was found.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let untested = self.pages.unverifiable > 0 || self.untested_files > 0;
        let is_accepted = !untested || self.accepts_unverifiable;
        self.unread == 0 && self.pages.undecided == 0 && is_accepted && !self.stopped
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
        self.untested_files += other.untested_files;
        self.accepts_unverifiable |= other.accepts_unverifiable;
        self.stopped |= other.stopped;
        self.elapsed += other.elapsed;
        self.pace += other.pace;
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
) -> io::Result<Verified> {
    let begin = Instant::now();
    let queues = queues(options)?;
    let description = target.description.clone();
    let stands_back = match options.rate {
        Rate::Yielding => true,
        Rate::ByTarget => target.description.live,
        Rate::Unlimited | Rate::AtMost(_) => false,
    };
    let run = worker::Shared::new(target, options, progress, sink, queues.len());
    std::thread::scope(|scope| {
        for mut queue in queues {
            let run = &run;
            scope.spawn(move || {
                if stands_back {
                    stand_back();
                }
                run.work(queue.as_mut());
            });
        }
    });
    let pace = run.pace();
    let (mut summary, turned_out) = run.finish()?;
    summary.pace = pace;
    summary.elapsed = begin.elapsed();
    summary.accepts_unverifiable = options.accepts_unverifiable;
    summary.stopped = options.stop.load(Ordering::Relaxed);
    Ok(Verified { description: turned_out.map_or(description, |it| *it), summary })
}

/// A queue for each worker.
fn queues(options: &Options) -> io::Result<Vec<Box<dyn ReadQueue + Send>>> {
    let jobs = options.jobs.get();
    if options.caching == Caching::Cached {
        return Ok(blocking_queues(jobs));
    }
    if options.method != Method::Threads {
        match uring_queues(jobs) {
            Ok(queues) => return Ok(queues),
            Err(error) if options.method == Method::Uring => {
                let text = format!("io_uring cannot be used here: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Err(_) => {}
        }
    }
    Ok(blocking_queues(jobs.max(READS_IN_FLIGHT)))
}

fn blocking_queues(threads: usize) -> Vec<Box<dyn ReadQueue + Send>> {
    (0..threads)
        .map(|_| Box::new(BlockingQueue::new(RUN_BYTES)) as Box<dyn ReadQueue + Send>)
        .collect()
}

#[cfg(target_os = "linux")]
fn uring_queues(jobs: usize) -> io::Result<Vec<Box<dyn ReadQueue + Send>>> {
    UringQueue::prove()?;
    // One more than are to be in flight, for the one that is being judged.
    let depth = READS_IN_FLIGHT.div_ceil(jobs) + 1;
    (0..jobs)
        .map(|_| {
            let queue = UringQueue::new(depth, RUN_BYTES)?;
            Ok(Box::new(queue) as Box<dyn ReadQueue + Send>)
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn uring_queues(_: usize) -> io::Result<Vec<Box<dyn ReadQueue + Send>>> {
    Err(io::ErrorKind::Unsupported.into())
}

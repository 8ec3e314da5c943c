//! Turning page verification on or off: the one place of this library that
//! writes to a database.
//!
//! ```text
//! request --> engine: may it be done? --> pages --> sync --> setting --> outcome
//!             lock, state, files           |                    |
//!                                       journal: which       last of all, so that
//!                                       files are done       it never says too much
//! ```
//!
//! The order is the whole safety: the setting that makes an engine verify its
//! pages is written when every page is on the device, and never before. Whatever
//! ends a run early leaves a database with its old setting, whose pages are sound
//! under it; the same request, made again, goes on from the journal. (InnoDB has no
//! such setting: see [`innodb`].)
//!
//! To add an engine: one file here, one line in [`ENGINES`]. SQLite's is not among
//! them: its work is here ([`sqlite`]), but needs the library SQLite, which this one
//! does not link. Who does makes an engine of both and asks [`protect_among`].

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::Error;
use crate::verdict::{Finding, Protection};
use crate::verify::Progress;

mod cold;
mod disk;
pub mod innodb;
mod journal;
pub(crate) mod pace;
mod plan;
pub mod postgres;
pub mod sqlite;
pub mod sqlserver;

pub use plan::{Cost, Wish};

/// An engine whose databases can be protected.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The name of its format.
    pub name: &'static str,
    /// For help.
    pub summary: &'static str,
    /// What can be asked for.
    pub modes: &'static [Protection],
    /// True if `path` is one of its databases.
    pub probe: fn(&Path) -> bool,
    /// Does the work.
    pub run: fn(&Request, &Options, &dyn Progress) -> Result<Outcome, Error>,
}

/// All engines, in the order in which they are asked.
pub const ENGINES: &[Engine] = &[postgres::ENGINE, innodb::ENGINE, sqlserver::ENGINE];

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The database.
    pub path: PathBuf,
    /// How its pages are to be protected.
    pub wish: Wish,
    /// Where a changed copy goes; without it the database itself is changed.
    pub copy_to: Option<PathBuf>,
    /// Only say what would change.
    pub dry_run: bool,
    /// Go on where pages are damaged, and leave those as they are.
    pub skip_damaged: bool,
}

/// How it is done.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that work on pages.
    pub jobs: NonZero<usize>,
    /// A ceiling on bytes read and written a second, over all threads.
    pub rate: Option<NonZero<u64>>,
    /// Read what was written back from the device before it is relied on.
    pub verify: bool,
    /// Wait until the device holds what was written.
    pub sync: bool,
    /// Set from outside to end the run early.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jobs: std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
            rate: None,
            verify: true,
            sync: true,
            stop: Arc::default(),
        }
    }
}

/// Pages that were looked at, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageTally {
    /// They carry what they are to carry now.
    pub changed: u64,
    /// They did before.
    pub right: u64,
    /// Never written: nothing to protect.
    pub empty: u64,
    /// Damaged, and left as they are.
    pub damaged: u64,
    /// Sound, but stored in a way that allows no change: left as they are.
    pub left: u64,
}

impl PageTally {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.changed, self.right, self.empty, self.damaged, self.left]
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl std::ops::AddAssign for PageTally {
    fn add_assign(&mut self, other: Self) {
        self.changed = self.changed.saturating_add(other.changed);
        self.right = self.right.saturating_add(other.right);
        self.empty = self.empty.saturating_add(other.empty);
        self.damaged = self.damaged.saturating_add(other.damaged);
        self.left = self.left.saturating_add(other.left);
    }
}

/// What came out.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The engine and its version.
    pub engine: String,
    /// How pages were protected before.
    pub before: Protection,
    /// How they were to be protected.
    pub wanted: Protection,
    /// How they are now: `wanted`, unless damage or a signal kept it from that.
    /// Of a copy, where one was made.
    pub after: Protection,
    /// Files of pages that were looked at.
    pub files: u64,
    /// Files that an earlier, interrupted run had finished.
    pub files_resumed: u64,
    /// Their pages, but for those of resumed files.
    pub pages: PageTally,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written to files of pages.
    pub bytes_written: u64,
    /// Bytes read back from the device after they were written.
    pub bytes_verified: u64,
    /// Damaged pages, in the order of the files.
    pub findings: Vec<Finding>,
    /// What somebody should know.
    pub warnings: Vec<String>,
    /// What fitting the other database instead would cost, where two were named.
    pub costs: Option<[Cost; 2]>,
    /// True if a signal ended the run before it was done.
    pub stopped: bool,
    /// How long it took.
    pub elapsed: Duration,
}

/// Changes how the pages of a database are protected.
///
/// # Errors
/// It cannot be done, or not safely: the database runs, is not sound, or is of
/// no kind that can be changed; a file cannot be read or written. The database is
/// then under its old setting, and sound under it.
pub fn protect(
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    protect_among(ENGINES, request, options, progress)
}

/// The same, with engines of the caller's beside those of this library.
///
/// # Errors
/// As [`protect`].
pub fn protect_among(
    engines: &[Engine],
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let metadata = std::fs::metadata(&request.path)
        .map_err(|error| Error::io("open", &request.path, error))?;
    let Some(engine) = engines.iter().find(|engine| (engine.probe)(&request.path)) else {
        let names: Vec<_> = engines.iter().map(|engine| engine.summary).collect();
        let what = if metadata.is_dir() { "this folder is" } else { "this file is" };
        return Err(Error::unknown(
            &request.path,
            format!("{what} no database whose protection can be changed"),
            format!("name one of: {}", names.join(", ")),
        ));
    };
    let begin = std::time::Instant::now();
    let mut outcome = (engine.run)(request, options, progress)?;
    outcome.elapsed = begin.elapsed();
    Ok(outcome)
}

/// The refusal of a mode that an engine does not have.
fn check_mode(engine: &Engine, path: &Path, mode: Protection) -> Result<(), Error> {
    if engine.modes.contains(&mode) {
        return Ok(());
    }
    let names: Vec<_> = engine.modes.iter().map(|mode| mode.name()).collect();
    let reason = format!("{} pages have no protection '{}'", engine.summary, mode.name());
    Err(Error::unknown(path, reason, format!("--mode {}", names.join(" or --mode "))))
}

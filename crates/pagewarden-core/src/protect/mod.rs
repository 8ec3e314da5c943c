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
//! such setting.)
//!
//! To add an engine: an `ENGINE` in the folder of its format. SQLite's is not among
//! them: its work is in its folder, but needs the library SQLite, which this project's library does
//! not link. Who does makes an engine of both and asks [`protect_among`].

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;
use crate::verdict::Protection;
use crate::verify::Progress;

pub mod batch;
pub mod cold;
pub mod copy;
pub mod disk;
pub mod journal;
pub mod outcome;
pub mod plan;
pub mod read_back;
pub mod stretches;
pub mod threads;

pub use outcome::{Outcome, PageTally};
pub use plan::{Cost, Feature, Request, TablespaceMapping, Wish};

/// An engine whose databases can be protected.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The name of its format.
    pub name: &'static str,
    /// For help.
    pub summary: &'static str,
    /// True if a database has one setting for all of its pages.
    pub has_setting: bool,
    /// What can be asked for.
    pub modes: &'static [Protection],
    /// What else of a request it understands.
    pub features: &'static [Feature],
    /// True if `path` is one of its databases.
    pub probe: fn(&Path) -> bool,
    /// Does the work.
    pub run: fn(&Request, &Options, &dyn Progress) -> Result<Outcome, Error>,
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

/// Changes how the pages of a database are protected, with these engines.
///
/// # Errors
/// It cannot be done, or not safely: the database runs, is not sound, or is of
/// no kind that can be changed; a file cannot be read or written. The database is
/// then under its old setting, and sound under it.
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
        return Err(Error::unrecognised(
            &request.path,
            format!("{what} no database whose protection can be changed"),
            format!("name one of: {}", names.join(", ")),
        ));
    };
    check_features(engine, request)?;
    let begin = std::time::Instant::now();
    let mut outcome = (engine.run)(request, options, progress)?;
    outcome.elapsed = begin.elapsed();
    Ok(outcome)
}

/// The refusal of a mode that an engine does not have.
pub fn check_mode(engine: &Engine, path: &Path, mode: Protection) -> Result<(), Error> {
    if engine.modes.contains(&mode) {
        return Ok(());
    }
    let names: Vec<_> = engine.modes.iter().map(|mode| mode.name()).collect();
    let reason = format!("{} pages have no protection '{}'", engine.summary, mode.name());
    Err(Error::refused(path, reason, format!("--mode {}", names.join(" or --mode "))))
}

/// The refusal of what an engine does not know.
fn check_features(engine: &Engine, request: &Request) -> Result<(), Error> {
    let refuse = |reason: &str, hint: &str| {
        let reason = format!("{}: {reason}", engine.summary);
        Err(Error::refused(&request.path, reason, hint))
    };
    let has = |feature| engine.features.contains(&feature);
    if !request.further.is_empty() && !has(Feature::SeveralFiles) {
        return refuse("one PATH is one database", "run it once for each PATH");
    }
    if !request.tablespaces.is_empty() && !has(Feature::Tablespaces) {
        return refuse("--tablespace-mapping is for the tablespaces of PostgreSQL", "leave it out");
    }
    if request.heal && !has(Feature::Heal) {
        return refuse("--heal is for SQLite databases", "leave it out");
    }
    if request.guard && !has(Feature::Guard) {
        return refuse("--guard is for SQLite databases", "leave it out");
    }
    Ok(())
}

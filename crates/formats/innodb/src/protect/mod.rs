//! InnoDB: pages with the sum `innodb`, or with none, get `crc32`.
//!
//! Every page says by itself which sum it has, and servers read all of them side by side unless
//! they are set to a `strict_` algorithm. So there is no setting to be written last: a directory
//! of which only some files are changed is as sound as before.
//!
//! # Why files are replaced and not written to
//!
//! The sum is in two fields, at both ends of a page, and a power failure may leave a page of which
//! only one sector was written. What a server thinks of such a page:
//!
//! | beginning | end | MariaDB from 10.6 on | MySQL 8 |
//! | --- | --- | --- | --- |
//! | `crc32` | `crc32` | sound | sound |
//! | `innodb` or none | `innodb` or none | sound | the same in both: sound |
//! | `crc32` | `innodb` or none | **damaged** | **damaged** |
//! | `innodb` or none | `crc32` | **damaged** | **damaged** |
//!
//! (`buf_page_is_corrupted` in `storage/innobase/buf/buf0buf.cc` of MariaDB: where one field is
//! `crc32`, the other must be; `BlockReporter::is_corrupted` in `buf/checksum.cc` of MySQL: each
//! algorithm is asked for both fields. Tried on MariaDB 10.11.19, each row, by `tests/servers.rs`.)
//! So there is no order in which the two fields could be written: whichever comes last, the page
//! before it is one that a server refuses. A journal would mend that only if we ran before
//! the server does, and the server's own doublewrite area is read after a crash only.
//!
//! Therefore a file in which anything changes is made anew beside the old one, and takes its name
//! when the device holds it:
//!
//! | step | what a kill or a power failure leaves |
//! | --- | --- |
//! | locks: no server starts | nothing: they end with the process |
//! | `t.ibd.pagewarden-protect` is written, synced, read back | the old file, and one that servers ignore |
//! | it is renamed to `t.ibd`, and the folder synced | the old file or the new one, both whole |
//! | the journal says that the file is done | the new file |
//! | journal taken away | the same, and a file that servers ignore |
//!
//! At every moment each file is as it was or as it is to be, and a server reads either.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::files::description::engine_of;
use crate::files::single;
use crate::files::state::{Circumstances, State, directory_above, is_root};
use crate::files::tablespace::{Context, is_tablespace_name, open_file};
use pagewarden_core::database::Probe;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::protect::journal::{self, Done, Journal};
use pagewarden_core::protect::plan::{Request, Wish};
use pagewarden_core::protect::threads::lock;
use pagewarden_core::protect::{Engine, Options, Outcome};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::hold::is_locked;
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::verdict::Protection;
use pagewarden_core::verify::Progress;

pub(crate) mod copy;
mod files;
pub(crate) mod lock;
mod replace;
#[cfg(test)]
mod tests;
mod work;

use files::Listing;
use lock::{Locks, running};
use replace::Tools;
use work::{BATCH_FILES, LeftTally, Totals, Work, sweep};

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    name: "innodb",
    summary: "MySQL or MariaDB data directory, or one tablespace of it",
    has_setting: false,
    modes: &[Protection::Checksum],
    features: &[],
    probe,
    run,
};

/// Bytes read and written at once: eight of the largest pages.
const RUN_BYTES: usize = 512 << 10;

fn probe(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if metadata.is_dir() {
        return is_root(path);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| is_tablespace_name(&name))
        || single::probe(path, &metadata) == Probe::Yes
}

fn run(request: &Request, options: &Options, progress: &dyn Progress) -> Result<Outcome, Error> {
    Run {
        disk: &System,
        request,
        options,
        progress,
        run_bytes: RUN_BYTES,
        batch_files: BATCH_FILES,
    }
    .run()
}

/// A request on its way.
struct Run<'a> {
    disk: &'a dyn Disk,
    request: &'a Request,
    options: &'a Options,
    progress: &'a dyn Progress,
    run_bytes: usize,
    batch_files: usize,
}

/// What may be changed: at rest, and of a layout that we know.
struct Database {
    /// The data directory, or the file.
    path: PathBuf,
    owner: Metadata,
    engine: String,
    /// The state of the data directory, by the end of its log; a lone file has none.
    checkpoint: Option<u64>,
    listing: Listing,
    /// The log does not tell which server wrote it.
    is_of_unknown_age: bool,
}

/// Where a database is.
struct Place {
    /// The data directory, or the file; no link.
    path: PathBuf,
    /// The data directory, where there is one.
    root: Option<PathBuf>,
    is_file: bool,
}

impl Place {
    fn of(path: &Path) -> Result<Self, Error> {
        // A link may be named by the user; links are followed by servers as well.
        let real = fs::canonicalize(path).map_err(|error| Error::io("open", path, error))?;
        let is_file = !real.is_dir();
        let root = if is_file { directory_above(&real) } else { Some(real.clone()) };
        Ok(Self { path: real, root, is_file })
    }

    /// Keeps servers away.
    fn lock(&self) -> Result<Locks, Error> {
        let locks = match &self.root {
            Some(root) => Locks::of_directory(root)?,
            None => Locks::default(),
        };
        if self.is_file && !locks.has(&self.path) {
            locks.take(&self.path, &self.path)?;
        }
        Ok(locks)
    }

    /// Looks at what is there. While the locks are held no server and no other run changes it.
    fn open(&self, locks: Option<&Locks>) -> Result<Database, Error> {
        let owner = fs::metadata(&self.path);
        let owner = owner.map_err(|error| Error::io("open", &self.path, error))?;
        let mut checkpoint = None;
        let mut engine = None;
        let mut is_of_unknown_age = false;
        if let Some(root) = &self.root {
            let state =
                if locks.is_some() { State::of_idle(root, None) } else { State::find(root, None) };
            check_state(root, &state)?;
            checkpoint = Some(state.log.as_ref().map_or(0, |log| log.checkpoint));
            is_of_unknown_age = state.log.as_ref().is_some_and(|log| log.creator.is_empty());
            engine = Some(engine_of(root, &state));
        } else if locks.is_none() {
            let file = open_regular(&self.path);
            let file = file.map_err(|error| Error::io("open", &self.path, error))?;
            if is_locked(&file) {
                return Err(running(&self.path));
            }
        }
        let listing = match self.is_file {
            true => Listing::of_file(&self.path)?,
            false => Listing::of(&self.path)?,
        };
        listing.check()?;
        let engine = match engine {
            Some(engine) => engine,
            None => open_file(&self.path, Context::alone(String::new()))?.engine().to_owned(),
        };
        Ok(Database {
            path: self.path.clone(),
            owner,
            engine,
            checkpoint,
            listing,
            is_of_unknown_age,
        })
    }
}

/// Refuses a directory that was not shut down cleanly.
pub(crate) fn check_state(root: &Path, state: &State) -> Result<(), Error> {
    let circumstances = state.circumstances;
    let hint = match circumstances {
        Circumstances::AtRest | Circumstances::Prepared => return Ok(()),
        Circumstances::Running => return Err(running(root)),
        Circumstances::Crashed => {
            "start its server once so that it recovers, and shut it down cleanly"
        }
        Circumstances::Backup => "prepare the backup first (--prepare of the program that made it)",
        Circumstances::Unknown => {
            "only a directory whose log shows that it was shut down cleanly is changed"
        }
    };
    Err(Error::in_use(root, circumstances.in_words(), hint))
}

impl Run<'_> {
    fn run(&self) -> Result<Outcome, Error> {
        self.check_wish()?;
        let place = Place::of(&self.request.path)?;
        if let Some(target) = &self.request.copy_to {
            return copy::run(self, &place, target);
        }
        if self.request.dry_run {
            return self.in_place(&place.open(None)?, None);
        }
        // Before the state is looked at: no server can change it from here on.
        let locks = place.lock()?;
        let outcome = place.open(Some(&locks)).and_then(|it| self.in_place(&it, Some(&locks)));
        let warning = locks.release();
        let mut outcome = outcome?;
        outcome.warnings.extend(warning);
        Ok(outcome)
    }

    fn check_wish(&self) -> Result<(), Error> {
        const REBUILD: &str = "ALTER TABLE ... FORCE, on a server that is set to it";
        let (reason, hint) = match &self.request.wish {
            Wish::Mode(Protection::Checksum) => return Ok(()),
            Wish::Mode(Protection::Torn) => (
                "InnoDB has no marks for torn writes alone: its sums and the LSN at both ends of a \
                 page show them",
                "--mode checksum".to_owned(),
            ),
            Wish::Mode(_) => (
                "the sums of InnoDB pages are not taken away: pages without one are what this is \
                 to end, and MariaDB from 10.6 on writes none",
                "--mode checksum, for pages with the older sum innodb, or with none".to_owned(),
            ),
            Wish::ForUpgrade(_) | Wish::Like(_) => (
                "servers of InnoDB read crc32 and full_crc32 side by side, so that no directory \
                 need be fitted to another; full_crc32 is another layout of the page",
                format!(
                    "--mode checksum; a table becomes full_crc32 when it is rebuilt: {REBUILD}"
                ),
            ),
        };
        Err(Error::refused(&self.request.path, reason, hint))
    }

    fn tools<'b>(&'b self, pace: &'b RateLimiter) -> Tools<'b> {
        Tools { disk: self.disk, options: self.options, pace, run_bytes: self.run_bytes }
    }

    fn in_place(&self, database: &Database, locks: Option<&Locks>) -> Result<Outcome, Error> {
        let pace = RateLimiter::new(self.options.rate);
        let tools = self.tools(&pace);
        let (journal, done) = self.open_journal(database)?;
        if !self.request.dry_run {
            sweep(tools, &database.listing)?;
        }
        let work = Work {
            tools,
            progress: self.progress,
            listing: &database.listing,
            dry_run: self.request.dry_run,
            skip_damaged: self.request.skip_damaged,
            copy: None,
            locks,
            done,
            journal: journal.map(Mutex::new),
            batch_files: self.batch_files,
        };
        let mut outcome = self.outcome(database, work.run()?);
        outcome.stopped = self.options.stop.load(Ordering::Relaxed);
        if outcome.stopped {
            if let Some(journal) = &work.journal {
                // What was done is known to the next run, also after a power failure.
                let synced = lock(journal).sync();
                synced.map_err(|error| Error::io("sync", &self.journal(database), error))?;
            }
            outcome.after = outcome.before;
        } else if let Some(journal) = work.journal {
            drop(journal);
            Journal::discard(self.disk, self.options, &self.journal(database))?;
        }
        Ok(outcome)
    }

    fn journal(&self, database: &Database) -> PathBuf {
        database.path.join(journal::NAME)
    }

    /// Of data directories only: one file is done or not. None where nothing is written.
    fn open_journal(
        &self,
        database: &Database,
    ) -> Result<(Option<Journal<'_>>, Option<Done>), Error> {
        let Some(checkpoint) = database.checkpoint.filter(|_| database.owner.is_dir()) else {
            return Ok((None, None));
        };
        if self.request.dry_run {
            return Ok((None, None));
        }
        let title = (ENGINE.name, &checkpoint as &dyn std::fmt::Display);
        let path = self.journal(database);
        Journal::of_run(self.disk, self.options, &path, title, &database.owner)
    }

    fn outcome(&self, database: &Database, totals: Totals) -> Outcome {
        let Totals { worked, left, .. } = &totals;
        let mut warnings = database.listing.warnings.clone();
        warnings.extend(warnings_of(&totals));
        if database.is_of_unknown_age && worked.pages.changed > 0 {
            warnings.push(
                "the log does not tell which server wrote it: crc32 is read by MySQL from 5.6 and \
                 MariaDB from 10.0 on, and by no older server"
                    .to_owned(),
            );
        }
        let is_kept = left.kept > 0;
        let is_right = worked.pages.changed == 0 && !is_kept;
        let before = if is_right { Protection::Checksum } else { Protection::None };
        let is_done = !self.request.dry_run && !is_kept;
        let mut outcome = Outcome::of(database.engine.clone(), before, Protection::Checksum);
        if is_done {
            outcome.after = outcome.wanted;
        }
        outcome.warnings = warnings;
        outcome.add(totals.worked);
        outcome
    }
}

/// What stays as it is, and why.
fn warnings_of(totals: &Totals) -> Vec<String> {
    let LeftTally { copies: _, compressed, encrypted, kept } = totals.left;
    let mut warnings = Vec::new();
    if compressed > 0 {
        warnings.push(format!(
            "{compressed} compressed pages keep the older sum that was packed with them: they get \
             another when the table is rebuilt (ALTER TABLE ... FORCE)"
        ));
    }
    if encrypted > 0 {
        warnings.push(format!(
            "{encrypted} encrypted pages are left as they are: which sum they have in the clear \
             only the key tells; they get another when the table is rebuilt (ALTER TABLE ... FORCE)"
        ));
    }
    if totals.files_kept > 0 {
        warnings.push(format!(
            "{} files with damaged pages stay as they are, with {kept} pages that were to change",
            totals.files_kept
        ));
    }
    if totals.links > 0 {
        warnings.push(format!(
            "{} files have a second name elsewhere (hard links), which keeps the former bytes",
            totals.links
        ));
    }
    warnings
}

//! The changed database while it is written beside the old one, until it has its name.

use crate::page::header::HEADER_BYTES;
use crate::protect::check::Soundness;
use crate::protect::database::Database;
use crate::protect::library::Held;
use crate::protect::names::{self, Place, beside};
use crate::protect::pages::{self, Stamps};
use crate::protect::{Run, Work, attributes, log_bytes, openers};
use pagewarden_core::error::Error;
use pagewarden_core::protect::Outcome;
use pagewarden_core::protect::disk::{Written, remove, sync, sync_folder};
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::system::MetadataExt as _;

/// A changed database that is being written.
pub(super) struct Making<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) database: &'a Database,
    pub(super) work: Work,
    pub(super) sound: &'a Soundness,
    pub(super) place: &'a Place,
}

impl Making<'_> {
    /// True if the database has its name.
    pub(super) fn fill(
        &self,
        mut held: Box<dyn Held>,
        unfinished: &names::Unfinished,
        outcome: &mut Outcome,
    ) -> Result<bool, Error> {
        let (run, database) = (self.run, self.database);
        let copy = &unfinished.file;
        let (stamps, passed) = match self.work {
            Work::Nothing => return Ok(false),
            Work::SamePages(stamps) => {
                let passes = run.passes(0.5);
                let excused = &self.sound.excused;
                (stamps, passes.same_pages(database, stamps, excused, Some(copy))?)
            }
            Work::NewPages(stamps) => {
                let watch = run.watch(&copy.file, 0.3);
                if !held.write_to(&copy.path, stamps.room.bytes(), &watch)? {
                    return Ok(false);
                }
                let passed = run.passes(0.2).new_pages(&database.header, copy, stamps)?;
                let length = passed.bytes;
                outcome.bytes_read = outcome.bytes_read.saturating_add(database.like.len());
                outcome.bytes_written = outcome.bytes_written.saturating_add(length);
                (Some(stamps), passed)
            }
        };
        outcome.files = 1;
        outcome.pages = passed.tally;
        outcome.bytes_read = outcome.bytes_read.saturating_add(passed.bytes);
        outcome.bytes_written = outcome.bytes_written.saturating_add(passed.bytes);
        if run.is_stopped() {
            return Ok(false);
        }
        attributes::give(copy, &database.file.file, &database.path, &mut outcome.warnings)?;
        sync(run.disk, run.options, copy)?;
        if run.options.verify && !self.verify(&mut *held, copy, stamps, outcome)? {
            return Ok(false);
        }
        self.take_name(held, copy)?;
        outcome.after = outcome.wanted;
        Ok(true)
    }

    /// False if it was ended early.
    fn verify(
        &self,
        held: &mut dyn Held,
        copy: &Written,
        stamps: Option<Stamps>,
        outcome: &mut Outcome,
    ) -> Result<bool, Error> {
        let run = self.run;
        let passes = run.passes(if self.is_new() { 0.1 } else { 0.5 });
        outcome.bytes_verified = passes.read_back(self.database, copy, stamps)?;
        if !self.is_new() {
            return Ok(!run.is_stopped());
        }
        let pace = RateLimiter::new(run.options.rate);
        let progress = pages::Share { whole: run.progress, share: 0.2 };
        let watch = |bytes: u64| {
            progress.advance(bytes);
            pace.pay(bytes, &run.options.stop);
            !run.is_stopped()
        };
        let faults = held.compare(&copy.path, &watch)?;
        if run.is_stopped() {
            return Ok(false);
        }
        if faults.is_empty() {
            return Ok(true);
        }
        Err(Error::damaged(
            &self.database.path,
            format!(
                "what SQLite copied is not sound, so neither is the database: {}",
                faults.join("; ")
            ),
            "see what PRAGMA integrity_check says of it; where only an index is wrong, REINDEX mends it",
        ))
    }

    fn is_new(&self) -> bool {
        matches!(self.work, Work::NewPages(_))
    }

    /// Gives the copy its name. The lock of the old database is kept until then.
    fn take_name(&self, mut held: Box<dyn Held>, copy: &Written) -> Result<(), Error> {
        let (run, path) = (self.run, &self.place.path);
        if self.run.request.copy_to.is_none() {
            self.database.check_unchanged()?;
            openers::check_nobody(path, &self.database.like)?;
            // It would be played into the new database.
            held.leave_log()?;
            self.remove_log()?;
        } else {
            self.place.check_free()?;
        }
        let renamed = run.disk.rename(&copy.path, path);
        renamed.map_err(|error| Error::io("replace", path, error))?;
        self.sync_folder()?;
        if run.request.copy_to.is_none() && run.options.sync {
            self.close_old_file()?;
        }
        drop(held);
        Ok(())
    }

    /// Makes the old file, which no name leads to any more, no database. A program that
    /// opened it in the last moment waits for our lock; it is to get an error then, and
    /// not old rows, to which it would put the new database's log.
    fn close_old_file(&self) -> Result<(), Error> {
        let (file, path) = (&self.database.file, &self.database.path);
        let failed = |error| Error::io("close", path, error);
        if file.file.metadata().map_err(failed)?.nlink() > 0 {
            return Ok(());
        }
        self.run.disk.write_at(file, &[0; HEADER_BYTES], 0).map_err(failed)
    }

    fn remove_log(&self) -> Result<(), Error> {
        let path = &self.database.path;
        if log_bytes(path) > 0 {
            let reason = "another program wrote to its log meanwhile";
            return Err(Error::changed(path, reason, "stop the programs that use it"));
        }
        for suffix in ["-wal", "-shm"] {
            remove(self.run.disk, &beside(path, suffix))?;
        }
        self.sync_folder()
    }

    fn sync_folder(&self) -> Result<(), Error> {
        sync_folder(self.run.disk, self.run.options, &self.place.folder)
    }
}

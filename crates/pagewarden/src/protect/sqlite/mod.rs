//! SQLite: checksums, torn page detection or nothing, in the markers of our VFS.
//!
//! A marker needs 16 reserved bytes on every page, and no page of an ordinary
//! database has them. So a changed database is written beside the old one, proven,
//! and then takes its name, in one step. The old file is never written to.
//!
//! | step | what a kill or a power failure leaves |
//! | --- | --- |
//! | alone: SQLite's exclusive lock, the log brought into the database | the old database, as any program that closes it leaves it |
//! | copy: `VACUUM INTO`, with 16 reserved bytes | the old one, and a copy that nobody opens |
//! | markers and the header's journal mode written into the copy | the same |
//! | copy synced, read back, its rows held against those of the old one | the same |
//! | copy renamed to the database's name, folder synced | the old one or the new one, whole |
//! | header of the old file, which has no name now, zeroed | the new one |
//!
//! **Who writes the markers.** `VACUUM INTO` makes the copy through the default VFS
//! and this library puts the markers on afterwards, instead of VACUUM through our
//! own VFS doing both. The bytes are the same, from the same function
//! ([`page_verify::stamp`]), and so is the work: the VFS too stamps such a file as a
//! whole, once all pages are there. Done here, it can be slowed, stopped, recorded
//! in tests, and needs no new rule in the VFS. `VACUUM INTO` and not `VACUUM`: it
//! writes every page once, without a journal, and keeps the rowids of tables that
//! have no INTEGER PRIMARY KEY, where `VACUUM` counts them anew (`xferOptimization`
//! in SQLite's `insert.c`; our comparison of rows includes them).
//!
//! **A database that has markers** keeps its pages and its numbers; only markers are
//! written anew, in a copy as above.
//!
//! **Locks.** SQLite's own, through SQLite ([`Library`]): EXCLUSIVE on the database
//! from before the first page is read until the new one has its name. Closing any
//! descriptor of a file drops the locks of the whole process on it, so while they
//! are held the database's file is never opened by this module: it was before. And
//! so the lock is taken twice, to bring the log in and, after the check of all pages,
//! which opens the file, for the rest. Who wrote in between is seen by the file's
//! length and time.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::checksum::page_verify::{self, Marker, Mode};
use crate::checksum::sqlite::{page_sum, stored_sum};
use crate::error::Error;
use crate::page::sqlite::header::{DatabaseHeader, HEADER_BYTES, MAGIC};
use crate::protect::disk::{Disk, System, Written};
use crate::protect::pace::Pace;
use crate::protect::plan::Wish;
use crate::protect::{Options, Outcome, PageTally, Request};
use crate::source::file::open_regular;
use crate::verdict::{PageNo, Protection};
use crate::verify::Progress;

mod attributes;
mod check;
mod names;
mod openers;
mod pages;
#[cfg(test)]
mod tests;

use check::{Soundness, look};
use names::{Place, beside};
use pages::{Passes, Stamps};

/// The name of the format.
pub const NAME: &str = "sqlite";
/// For help.
pub const SUMMARY: &str = "SQLite database";
/// What can be asked for.
pub const MODES: &[Protection] = &[Protection::Checksum, Protection::Torn, Protection::None];

/// Bytes that a marker takes at the end of each page.
pub const RESERVED_BYTES: u8 = 16;
/// Those of the official checksum VFS.
const RESERVED_BYTES_OFFICIAL: u8 = 8;

/// SQLite, which this library does not link: whoever does lends it.
pub trait Library: Sync {
    /// Opens a database and keeps others away until what it gives is dropped.
    ///
    /// # Errors
    /// Somebody uses it, or SQLite cannot open it.
    fn hold(&self, path: &Path, how: Hold) -> Result<Box<dyn Held>, Error>;
}

/// Who is kept away from a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Everybody: nobody else reads or writes.
    Alone,
    /// Writers, of a database in rollback mode. The file is opened for reading only.
    Reading,
}

/// A database that nobody else can write to.
///
/// `watch` is told how many bytes were worked through; where it answers false the
/// work ends early, which is then no error.
pub trait Held {
    /// Brings what is in the write-ahead log into the database, and empties the log.
    ///
    /// # Errors
    /// SQLite's own.
    fn checkpoint(&mut self) -> Result<(), Error>;

    /// From here on, the write-ahead log is left as it is, also when this is dropped.
    ///
    /// # Errors
    /// SQLite's own.
    fn leave_log(&mut self) -> Result<(), Error>;

    /// Writes the whole database, as it is for a reader, into an empty file, with so
    /// many reserved bytes on each page. False if it was ended early.
    ///
    /// # Errors
    /// SQLite's own; a damaged page among them.
    fn write_to(
        &mut self,
        copy: &Path,
        reserved_bytes: u8,
        watch: &dyn Fn(u64) -> bool,
    ) -> Result<bool, Error>;

    /// Reads all rows of both databases, and has SQLite check the copy's structure.
    /// What is different or wrong, in words; nothing else is.
    ///
    /// # Errors
    /// SQLite's own.
    fn compare(&mut self, copy: &Path, watch: &dyn Fn(u64) -> bool) -> Result<Vec<String>, Error>;
}

/// True if `path` is a SQLite database.
#[must_use]
pub fn is_database(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    fs::canonicalize(path)
        .and_then(|path| open_regular(&path))
        .and_then(|file| file.read_exact_at(&mut head, 0))
        .is_ok()
        && head == *MAGIC
}

/// Changes how the pages of a database are protected.
///
/// # Errors
/// As [`crate::protect::protect`].
pub fn run(
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
    library: &dyn Library,
) -> Result<Outcome, Error> {
    Run { disk: &System, request, options, progress, library, step_bytes: pages::STEP_BYTES }.run()
}

/// A request on its way.
struct Run<'a> {
    disk: &'a dyn Disk,
    request: &'a Request,
    options: &'a Options,
    progress: &'a dyn Progress,
    library: &'a dyn Library,
    /// Bytes of pages worked on at once.
    step_bytes: usize,
}

/// What the pages of a database carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Plain,
    /// Sums of the official checksum VFS.
    Official,
    Marked {
        database: NonZeroU32,
        setting: Mode,
    },
}

/// A database that nobody has open.
struct Database {
    /// Without links.
    path: PathBuf,
    /// Open before any lock is, see above.
    file: Written,
    like: Metadata,
    page_size: usize,
    /// Whole pages that are part of the database.
    pages: u64,
    header: DatabaseHeader,
    layout: Layout,
}

/// What is to be done to make the wish true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Nothing,
    /// The same pages, with these markers; with none, as they are.
    SamePages(Option<Stamps>),
    /// New pages that SQLite writes, with these markers.
    NewPages(Stamps),
}

impl Run<'_> {
    fn run(&self) -> Result<Outcome, Error> {
        let wanted = self.wanted()?;
        let path = fs::canonicalize(&self.request.path)
            .map_err(|error| Error::io("open", &self.request.path, error))?;
        let place = Place::find(&path, self.request.copy_to.as_deref())?;
        place.check_free()?;
        let in_place = self.request.copy_to.is_none() && !self.request.dry_run;
        // Open until all locks are given back.
        let file = if in_place { Written::open(&path) } else { open_to_read(&path) };
        let file = file.map_err(|error| Error::io("open", &path, error))?;
        self.check_at_rest(&path, &file.file, in_place)?;
        let has_log = log_bytes(&path) > 0;
        self.settle(&path, &file.file, in_place)?;

        let sound = look(&path, self.options, has_log && !in_place)?;
        let mut outcome = outcome(sound.setting.unwrap_or(Protection::None), wanted);
        outcome.bytes_read = sound.bytes;
        if sound.is_damaged() || sound.stopped {
            outcome.stopped = sound.stopped;
            outcome.pages.damaged = sound.damaged;
            outcome.findings = sound.findings;
            return Ok(outcome);
        }
        let database = Database::look_at(path, file)?;
        if has_log && in_place {
            outcome.warnings.push("its write-ahead log was brought into the database".to_owned());
        }
        let mut held = self.hold(&database.path, &database.file.file, in_place)?;
        database.check_unchanged()?;
        let work = self.plan(&database, wanted, has_log && !in_place)?;
        self.warn(&database, work, &mut outcome);
        match work {
            Work::Nothing => {}
            Work::SamePages(_) if self.request.dry_run => {
                self.count_pages(&database, work, &sound, &mut outcome)?;
            }
            Work::SamePages(Some(stamps)) if in_place && database.has_all(stamps, &sound) => {
                outcome.files = 1;
                outcome.pages.right = sound.pages;
            }
            Work::NewPages(_) if self.request.dry_run => {
                self.count_new_pages(&mut *held, &mut outcome)?;
            }
            _ => return self.make(&database, held, work, &sound, &place, outcome),
        }
        outcome.stopped = self.is_stopped();
        Ok(outcome)
    }

    fn wanted(&self) -> Result<Protection, Error> {
        let path = &self.request.path;
        if self.request.skip_damaged {
            return Err(Error::unknown(
                path,
                "--skip-damaged is not for SQLite: a copy is made of all rows, and SQLite reads no page that is damaged",
                "restore the database from a backup, or save what is readable with the sqlite3 shell's .recover, into a new file",
            ));
        }
        match self.request.wish {
            Wish::Mode(mode) => Ok(mode),
            Wish::ForUpgrade(_) | Wish::Like(_) => Err(Error::unknown(
                path,
                "a SQLite database is not upgraded into another",
                "name what you want: --mode checksum, --mode torn or --mode none",
            )),
        }
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn check_at_rest(&self, path: &Path, file: &File, in_place: bool) -> Result<(), Error> {
        let metadata = file.metadata().map_err(|error| Error::io("open", path, error))?;
        if in_place && metadata.nlink() > 1 {
            return Err(Error::unknown(
                path,
                "it has a second name (a hard link), which would keep leading to the old database",
                "remove the other name, or make a changed copy (--copy-to)",
            ));
        }
        openers::check_nobody(path, &metadata)?;
        let journal = beside(path, "-journal");
        let mut first = [0];
        let is_hot = open_regular(&journal)
            .and_then(|file| file.read_exact_at(&mut first, 0))
            .is_ok_and(|()| first != [0]);
        if is_hot {
            return Err(Error::unknown(
                path,
                "a rollback journal with content stands beside it: a program is writing to it, or was interrupted",
                "stop the programs that use it; after a crash let SQLite undo the transaction: sqlite3 FILE 'SELECT count(*) FROM sqlite_schema'",
            ));
        }
        Ok(())
    }

    /// Makes sure that nobody uses it, and that the file is the whole database.
    fn settle(&self, path: &Path, file: &File, in_place: bool) -> Result<(), Error> {
        let mut held = self.hold(path, file, in_place)?;
        if in_place { held.checkpoint() } else { Ok(()) }
    }

    /// A log that is there stays, unless the database itself is changed. One that SQLite
    /// makes when it opens the database goes again.
    fn hold(&self, path: &Path, file: &File, in_place: bool) -> Result<Box<dyn Held>, Error> {
        let leaves_log = !in_place && beside(path, "-wal").exists();
        let mut held = self.library.hold(path, self.how(path, file)?)?;
        if leaves_log {
            held.leave_log()?;
        }
        Ok(held)
    }

    /// In write-ahead log mode there is no lock that keeps out writers only.
    fn how(&self, path: &Path, file: &File) -> Result<Hold, Error> {
        let in_place = self.request.copy_to.is_none() && !self.request.dry_run;
        let mut head = [0; HEADER_BYTES];
        file.read_exact_at(&mut head, 0).map_err(|error| Error::io("read", path, error))?;
        let is_wal = DatabaseHeader::parse(&head).is_some_and(|header| header.is_wal())
            || beside(path, "-wal").exists();
        Ok(if in_place || is_wal { Hold::Alone } else { Hold::Reading })
    }

    fn plan(&self, database: &Database, wanted: Protection, has_log: bool) -> Result<Work, Error> {
        let copies = self.request.copy_to.is_some();
        let mode = match wanted {
            Protection::Checksum => Mode::Checksum,
            Protection::Torn => Mode::Torn,
            Protection::None => Mode::None,
        };
        let is_as_wanted = match database.layout {
            Layout::Plain => mode == Mode::None,
            Layout::Official => mode == Mode::Checksum,
            Layout::Marked { .. } => false,
        };
        if is_as_wanted && copies && has_log {
            return Err(Error::unknown(
                &database.path,
                "it is as it should be, and what is in its write-ahead log would be missing from a copy of the file",
                "copy it with SQLite: sqlite3 FILE '.backup COPY'",
            ));
        }
        Ok(match database.layout {
            _ if is_as_wanted && copies => Work::SamePages(None),
            _ if is_as_wanted => Work::Nothing,
            Layout::Marked { database, .. } if !has_log => {
                Work::SamePages(Some(Stamps { database, mode }))
            }
            _ => Work::NewPages(Stamps { database: random_number(), mode }),
        })
    }

    fn warn(&self, database: &Database, work: Work, outcome: &mut Outcome) {
        let mut warn = |words: &str| outcome.warnings.push(words.to_owned());
        match (database.layout, work) {
            (Layout::Official, Work::Nothing | Work::SamePages(None)) => {
                warn("its pages carry the sums of SQLite's own checksum VFS already");
            }
            (Layout::Official, _) => warn(
                "its pages lose the sums of SQLite's own checksum VFS, which takes a database with 16 reserved bytes for one without sums",
            ),
            (Layout::Marked { .. }, Work::SamePages(Some(Stamps { mode: Mode::None, .. }))) => {
                warn(
                    "the 16 reserved bytes of each page stay, with a marker that says NONE; only a new database (.dump) is rid of them",
                );
            }
            (Layout::Plain, Work::NewPages(_)) => warn(
                "from now on every program that writes to it must open it with vfs=pagewarden: pages that are written without fail when they are verified",
            ),
            _ => {}
        }
    }

    fn passes(&self, share: f64) -> Passes<'_> {
        Passes {
            disk: self.disk,
            pace: Pace::new(self.options.rate),
            stop: &self.options.stop,
            progress: pages::Share { whole: self.progress, share },
            step_bytes: self.step_bytes,
        }
    }

    /// What would become of the pages; nothing is written.
    fn count_pages(
        &self,
        database: &Database,
        work: Work,
        sound: &Soundness,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let Work::SamePages(stamps) = work else { return Ok(()) };
        let passed = self.passes(1.0).same_pages(database, stamps, &sound.excused, None)?;
        outcome.files = 1;
        outcome.pages = passed.tally;
        outcome.bytes_read = outcome.bytes_read.saturating_add(passed.bytes);
        Ok(())
    }

    /// How many pages the copy would have: makes it, elsewhere, and throws it away.
    fn count_new_pages(&self, held: &mut dyn Held, outcome: &mut Outcome) -> Result<(), Error> {
        let folder = tempfile::tempdir()
            .map_err(|error| Error::io("write to", &std::env::temp_dir(), error))?;
        let path = folder.path().join("copy.db");
        let failed = |error| Error::io("write", &path, error);
        let file = File::create_new(&path).map_err(failed)?;
        if !held.write_to(&path, RESERVED_BYTES, &self.watch(&file, 1.0))? {
            return Ok(());
        }
        let length = file.metadata().map_err(failed)?.len();
        let mut head = [0; HEADER_BYTES];
        file.read_exact_at(&mut head, 0).map_err(failed)?;
        let header = DatabaseHeader::parse(&head);
        let page_size = header.and_then(|header| header.page_size()).unwrap_or(1);
        outcome.files = 1;
        outcome.pages.changed = pages::written_pages(length, page_size);
        Ok(())
    }

    /// Told while SQLite writes into `copy`: pays for what has come since.
    fn watch<'w>(&'w self, copy: &'w File, share: f64) -> impl Fn(u64) -> bool + use<'w> {
        let pace = Pace::new(self.options.rate);
        let seen = std::cell::Cell::new(0_u64);
        let progress = pages::Share { whole: self.progress, share };
        move |_| {
            let length = copy.metadata().map_or(0, |metadata| metadata.len());
            let more = length.saturating_sub(seen.replace(length));
            progress.advance(more);
            // About as much is read as is written.
            pace.pay(more.saturating_mul(2), &self.options.stop);
            !self.is_stopped()
        }
    }

    /// Makes the changed database and gives it its name.
    fn make(
        &self,
        database: &Database,
        held: Box<dyn Held>,
        work: Work,
        sound: &Soundness,
        place: &Place,
        mut outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let unfinished = names::Unfinished::begin(self.disk, place, &database.like, &mut outcome)?;
        let making = Making { run: self, database, work, sound, place };
        let made = making.fill(held, &unfinished, &mut outcome);
        if !matches!(made, Ok(true)) {
            unfinished.discard(self.disk);
        }
        outcome.stopped = !made?;
        Ok(outcome)
    }
}

/// A changed database that is being written.
struct Making<'a> {
    run: &'a Run<'a>,
    database: &'a Database,
    work: Work,
    sound: &'a Soundness,
    place: &'a Place,
}

impl Making<'_> {
    /// True if the database has its name.
    fn fill(
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
                if !held.write_to(&copy.path, RESERVED_BYTES, &watch)? {
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
        if run.options.sync {
            let synced = run.disk.sync(copy);
            synced.map_err(|error| Error::io("sync", &copy.path, error))?;
        }
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
        let pace = Pace::new(run.options.rate);
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
        Err(Error::unknown(
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
            let reason = "somebody wrote to its log meanwhile";
            return Err(Error::unknown(path, reason, "stop the programs that use it"));
        }
        for suffix in ["-wal", "-shm"] {
            let file = beside(path, suffix);
            match self.run.disk.remove(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &file, error));
                }
                _ => {}
            }
        }
        self.sync_folder()
    }

    fn sync_folder(&self) -> Result<(), Error> {
        let folder = &self.place.folder;
        if !self.run.options.sync {
            return Ok(());
        }
        self.run.disk.sync_folder(folder).map_err(|error| Error::io("sync", folder, error))
    }
}

impl Database {
    fn look_at(path: PathBuf, file: Written) -> Result<Self, Error> {
        let failed = |error| Error::io("read", &path, error);
        let like = file.file.metadata().map_err(failed)?;
        let mut head = [0; HEADER_BYTES];
        file.file.read_exact_at(&mut head, 0).map_err(failed)?;
        let header = DatabaseHeader::parse(&head).filter(|header| header.has_magic);
        let (Some(header), Some(page_size)) =
            (header, header.and_then(|header| header.page_size()))
        else {
            let reason = "its header is damaged";
            return Err(Error::unknown(&path, reason, "pagewarden check says more"));
        };
        let mut first = vec![0; page_size];
        file.file.read_exact_at(&mut first, 0).map_err(failed)?;
        let whole = like.len().checked_div(page_size as u64).unwrap_or(0);
        let pages = header.page_count().map_or(whole, |count| count.min(whole));
        let layout = Self::layout(&path, &header, &first)?;
        Ok(Self { path, file, like, page_size, pages, header, layout })
    }

    fn layout(path: &Path, header: &DatabaseHeader, first: &[u8]) -> Result<Layout, Error> {
        let marker = Marker::read(first).map(|marker| Layout::Marked {
            database: marker.database,
            setting: marker.setting.unwrap_or(Mode::Checksum),
        });
        match (header.reserved_bytes, marker) {
            (0, _) => Ok(Layout::Plain),
            (RESERVED_BYTES, Some(marked)) => Ok(marked),
            (RESERVED_BYTES_OFFICIAL, _) if stored_sum(first) == page_sum(first) => {
                Ok(Layout::Official)
            }
            (bytes, _) => Err(Error::unknown(
                path,
                format!(
                    "{bytes} bytes at the end of each page are reserved for something that is not known, such as encryption"
                ),
                "only what reserved them can tell what is lost without them",
            )),
        }
    }

    /// True if there is nothing to do: all pages passed, and are in this mode.
    fn has_all(&self, stamps: Stamps, sound: &Soundness) -> bool {
        let counts = &sound.counts;
        let right = match stamps.mode {
            Mode::Checksum => counts.checksum,
            Mode::Torn => counts.torn,
            Mode::None => counts.none,
        };
        let is_set =
            matches!(self.layout, Layout::Marked { setting, .. } if setting == stamps.mode);
        is_set && sound.excused.is_empty() && right == sound.pages
    }

    /// The file is what it was when it was looked at, and has its name still.
    fn check_unchanged(&self) -> Result<(), Error> {
        let failed = |error| Error::io("look at", &self.path, error);
        let now = self.file.file.metadata().map_err(failed)?;
        let named = fs::metadata(&self.path).map_err(failed)?;
        let stamp =
            |data: &Metadata| (data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec());
        if stamp(&now) == stamp(&self.like) && stamp(&named) == stamp(&self.like) {
            return Ok(());
        }
        Err(Error::unknown(
            &self.path,
            "somebody wrote to it, or put another file in its place, while it was looked at",
            "stop the programs that use it",
        ))
    }
}

fn outcome(before: Protection, wanted: Protection) -> Outcome {
    Outcome {
        engine: "SQLite 3".to_owned(),
        before,
        wanted,
        after: before,
        files: 0,
        files_resumed: 0,
        pages: PageTally::default(),
        bytes_read: 0,
        bytes_written: 0,
        bytes_verified: 0,
        findings: Vec::new(),
        warnings: Vec::new(),
        costs: None,
        stopped: false,
        elapsed: Duration::ZERO,
    }
}

fn open_to_read(path: &Path) -> io::Result<Written> {
    Ok(Written { file: open_regular(path)?, path: path.to_owned() })
}

/// Bytes of the write-ahead log.
fn log_bytes(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |metadata| metadata.len())
}

/// The number of a new database.
fn random_number() -> NonZeroU32 {
    let bytes = RandomState::new().hash_one(std::process::id()).to_le_bytes();
    bytes
        .first_chunk()
        .and_then(|bytes| NonZeroU32::new(u32::from_le_bytes(*bytes)))
        .unwrap_or(NonZeroU32::MIN)
}

/// A page passes under its own marker, and is of this database.
fn passes(page: &[u8], number: PageNo, database: NonZeroU32) -> bool {
    page_verify::verify(page, number).is_some_and(|marker| marker.database == database)
}

//! SQLite: checksums, torn page detection or nothing, in the markers of our VFS.
//!
//! A marker needs 24 reserved bytes on every page, and no page of an ordinary
//! database has them. So a changed database is written beside the old one, proven,
//! and then takes its name, in one step. The old file is never written to.
//!
//! | step | what a kill or a power failure leaves |
//! | --- | --- |
//! | alone: SQLite's exclusive lock, the log brought into the database | the old database, as any program that closes it leaves it |
//! | copy: `VACUUM INTO`, with 24 reserved bytes | the old one, and a copy that no program opens |
//! | markers and the header's journal mode written into the copy | the same |
//! | copy synced, read back, its rows compared with those of the old one | the same |
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

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::checksum::page_verify::{self, Mode, Room};
use crate::page::header::{DatabaseHeader, HEADER_BYTES, MAGIC};
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, System, Written};
use pagewarden_core::protect::plan::{Request, Wish};
use pagewarden_core::protect::{Options, Outcome};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::system::{FileExt as _, MetadataExt as _};
use pagewarden_core::verdict::{PageNo, Protection};
use pagewarden_core::verify::Progress;

mod attributes;
mod check;
mod database;
mod heal;
mod library;
mod making;
pub(super) mod names;
pub(super) mod openers;
mod pages;
#[cfg(test)]
mod tests;

pub use heal::{Healing, examine};
pub use library::{Held, Hold, Library};

use check::{Soundness, look};
use database::{Database, Layout, refuse_without_sums};
use making::Making;
use names::{Place, beside};
use pages::{Passes, Stamps};

/// The name of the format.
pub const NAME: &str = "sqlite";
/// For help.
pub const SUMMARY: &str = "SQLite database";
/// What can be asked for.
pub const MODES: &[Protection] = &[Protection::Checksum, Protection::Torn, Protection::None];

/// What is reserved on each page of a copy that SQLite writes.
const ROOM: Room = Room::BalanceAndMarker;

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
/// As [`pagewarden_core::protect::protect_among`].
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

        let mut sound = look(&path, self.options, has_log && !in_place)?;
        let healed = self.heal(&path, &file.file, has_log && !in_place, &mut sound)?;
        let before = sound.setting.unwrap_or(Protection::None);
        let mut outcome = Outcome::of("SQLite 3".to_owned(), before, wanted);
        outcome.bytes_read = sound.bytes;
        outcome.warnings = healed;
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
            return Err(Error::refused(
                path,
                "--skip-damaged is not for SQLite: a copy is made of all rows, and SQLite reads no page that is damaged",
                "restore the database from a backup, or save what is readable with the sqlite3 shell's .recover, into a new file",
            ));
        }
        match self.request.wish {
            Wish::Mode(mode) => Ok(mode),
            Wish::ForUpgrade(_) | Wish::Like(_) => Err(Error::refused(
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
            return Err(Error::refused(
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
            return Err(Error::in_use(
                path,
                "a rollback journal with content stands beside it: a program is writing to it, or was interrupted",
                "stop the programs that use it; after a crash let SQLite undo the transaction: sqlite3 FILE 'SELECT count(*) FROM sqlite_schema'",
            ));
        }
        Ok(())
    }

    /// What is stamped again, in words, where that is asked for.
    fn heal(
        &self,
        path: &Path,
        file: &File,
        has_log: bool,
        sound: &mut Soundness,
    ) -> Result<Vec<String>, Error> {
        if !self.request.heal {
            return Ok(Vec::new());
        }
        if has_log {
            return Err(Error::refused(
                path,
                "what is in its write-ahead log may be what was written without the VFS",
                "leave out --dry-run and --copy-to: the log is then brought into the database first",
            ));
        }
        let mut head = [0; HEADER_BYTES];
        file.read_exact_at(&mut head, 0).map_err(|error| Error::io("read", path, error))?;
        match DatabaseHeader::parse(&head) {
            Some(header) => heal::judge(path, (file, &header), self.options, sound),
            None => Ok(Vec::new()),
        }
    }

    /// Makes sure that no other program uses it, and that the file is the whole database.
    fn settle(&self, path: &Path, file: &File, in_place: bool) -> Result<(), Error> {
        let mut held = self.hold(path, file, in_place)?;
        if in_place { held.checkpoint() } else { Ok(()) }
    }

    /// A log that is there stays, unless the database itself is changed. One that SQLite
    /// makes when it opens the database goes again.
    fn hold(&self, path: &Path, file: &File, in_place: bool) -> Result<Box<dyn Held>, Error> {
        refuse_without_sums(path, file)?;
        let leaves_log = !in_place && beside(path, "-wal").exists();
        let mut held = self.library.hold(path, self.how(path, file)?, self.request.heal)?;
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
            return Err(Error::refused(
                &database.path,
                "it is as it should be, and what is in its write-ahead log would be missing from a copy of the file",
                "copy it with SQLite: sqlite3 FILE '.backup COPY'",
            ));
        }
        if self.request.guard && mode == Mode::None {
            return Err(Error::refused(
                &database.path,
                "--guard keeps out programs that would break page verification, and --mode none asks for none",
                "leave out --guard, or ask for --mode checksum",
            ));
        }
        if self.request.guard && is_as_wanted {
            return Err(Error::refused(
                &database.path,
                "its pages carry the sums of SQLite's own checksum VFS, which have no room for a guard",
                "VACUUM it into a database without reserved bytes, then pagewarden protect --mode checksum --guard",
            ));
        }
        // What keeps other programs out is no use where nothing is verified.
        let guard = self.request.guard || database.header.is_guarded() && mode != Mode::None;
        Ok(match database.layout {
            _ if is_as_wanted && copies => Work::SamePages(None),
            _ if is_as_wanted => Work::Nothing,
            // Without a balance no guard holds in a write-ahead log.
            Layout::Marked { database, room, .. } if !has_log && (!guard || room == ROOM) => {
                Work::SamePages(Some(Stamps { database, mode, room, guard }))
            }
            _ => Work::NewPages(Stamps { database: random_number(), mode, room: ROOM, guard }),
        })
    }

    fn warn(&self, database: &Database, work: Work, outcome: &mut Outcome) {
        let mut warn = |words: &str| outcome.warnings.push(words.to_owned());
        match (database.layout, work) {
            (Layout::Official, Work::Nothing | Work::SamePages(None)) => {
                warn("its pages carry the sums of SQLite's own checksum VFS already");
            }
            (Layout::Official, _) => warn(
                "its pages lose the sums of SQLite's own checksum VFS, which takes a database with 24 reserved bytes for one without sums",
            ),
            (Layout::Marked { .. }, Work::SamePages(Some(Stamps { mode: Mode::None, .. }))) => {
                warn(
                    "the reserved bytes of each page stay, with a marker that says NONE; only a new database (.dump) is rid of them",
                );
            }
            (_, Work::NewPages(stamps) | Work::SamePages(Some(stamps))) if stamps.guard => warn(
                "programs that do not load the pagewarden VFS can read it from now on, and not write to it",
            ),
            (Layout::Plain, Work::NewPages(_)) => warn(
                "from now on every program that writes to it must load the pagewarden VFS: a page that another program writes fails when it is verified",
            ),
            _ => {}
        }
    }

    fn passes(&self, share: f64) -> Passes<'_> {
        Passes {
            disk: self.disk,
            pace: RateLimiter::new(self.options.rate),
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
        if !held.write_to(&path, ROOM.bytes(), &self.watch(&file, 1.0))? {
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
        let pace = RateLimiter::new(self.options.rate);
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

//! The folder of the copy, and the names in it.
//!
//! The run that makes the copy keeps its marker locked. Files are called
//! `x.mdf.pagewarden-unfinished` until all of them are whole; the primary file, by which a server
//! finds the others, gets its name last.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::checksum::PAGE_BYTES;
use crate::files::data_file::read_page;
use crate::page::system::BOOT_PAGE;
use crate::protect::database::{Database, Pages, SourceFile};
use crate::protect::pages::{CopiedFile, FIRST_PAGE, Job, Work, changed_meanwhile};
use crate::protect::{EXPERIMENTAL, Run};
use pagewarden_core::error::Error;
use pagewarden_core::protect::Outcome;
use pagewarden_core::protect::copy::{CopyFolder, Folder, Found, MARKER, copying_to};
use pagewarden_core::protect::disk::{Written, remove};
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::system::Errno;
use pagewarden_core::system::fs::FlockOperation;
use pagewarden_core::system::{identity, identity_of_open};
use pagewarden_core::verdict::Protection;

/// Behind the names of files that are not whole.
const UNFINISHED: &str = ".pagewarden-unfinished";

/// Makes the copy.
pub(super) fn run(
    run: &Run<'_>,
    database: &Database,
    target: &Path,
    wanted: Protection,
) -> Result<Outcome, Error> {
    let state = state(database, wanted);
    let folder = CopyFolder::new(run.disk, run.options, target, &state);
    let copy = Copy { run, database, folder, wanted };
    let mut outcome = copy.outcome();
    let mut found = copy.look()?;
    let lock = if run.request.dry_run { None } else { Some(copy.lock(found)?) };
    if let Some(lock) = &lock {
        // No other run changes it from here on.
        found = copy.look()?;
        if found == Found::Complete {
            copy.end_names()?;
            outcome.after = wanted;
            outcome.warnings.push("an earlier run had made this copy".to_owned());
            return Ok(outcome);
        }
        copy.begin(found, lock)?;
    }
    let work = Work {
        disk: run.disk,
        options: run.options,
        progress: run.progress,
        pace: RateLimiter::new(run.options.rate),
        wanted,
        skip_damaged: run.request.skip_damaged,
        run_bytes: run.run_bytes,
        damage: AtomicBool::new(false),
        done: Mutex::default(),
    };
    let mut jobs = Vec::new();
    for source in &database.files {
        let file = if run.request.dry_run { None } else { Some(copy.create(source)?) };
        jobs.push(Job { source, copy: file });
    }
    work.run(&jobs)?;
    outcome.stopped = run.options.stop.load(Ordering::Relaxed);
    let is_damaged = work.damage.load(Ordering::Relaxed) && !run.request.skip_damaged;
    if is_damaged && !run.request.dry_run {
        copy.give_up()?;
    } else if !run.request.dry_run && !outcome.stopped {
        let is_whole = copy.end(&work, &jobs)?;
        outcome.stopped = !is_whole;
        if is_whole {
            outcome.after = wanted;
        }
    }
    let notes = database.files.iter().filter_map(SourceFile::pages);
    outcome.warnings.extend(notes.flat_map(Pages::notes));
    outcome.add(work.done.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(outcome)
}

/// What the copy is of: these files, in this state.
fn state(database: &Database, wanted: Protection) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in &database.files {
        let modified = file.metadata.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        hasher.update(format!("{}/{}/{modified:?}/", file.name, file.length()).as_bytes());
        for page in [FIRST_PAGE.start, BOOT_PAGE] {
            hasher.update(&read_page(&file.file, page).unwrap_or([0; PAGE_BYTES]));
        }
    }
    format!("{} {}", wanted.name(), hasher.finalize())
}

struct Copy<'a> {
    run: &'a Run<'a>,
    database: &'a Database,
    folder: CopyFolder<'a>,
    wanted: Protection,
}

impl Copy<'_> {
    fn outcome(&self) -> Outcome {
        let Database { engine, before, files, warnings, .. } = self.database;
        let mut outcome = Outcome::of(engine.clone(), *before, self.wanted);
        outcome.files = files.iter().filter(|file| file.pages().is_some()).count() as u64;
        outcome.warnings.push(EXPERIMENTAL.to_owned());
        outcome.warnings.extend(warnings.iter().cloned());
        outcome
    }

    fn path(&self, file: &SourceFile) -> PathBuf {
        self.folder.path.join(&file.name)
    }

    fn unfinished(&self, file: &SourceFile) -> PathBuf {
        self.folder.path.join(format!("{}{UNFINISHED}", file.name))
    }

    /// Looks whether no file of another program is in the way.
    fn look(&self) -> Result<Found, Error> {
        let last = self.database.files.last().map_or("", |last| &last.name);
        self.folder.look(last, MARKER)
    }

    /// Makes the folder and the marker where they are not there, and locks that.
    fn lock(&self, found: Found) -> Result<Written, Error> {
        let disk = self.run.disk;
        self.folder.make(found)?;
        let marker = self.folder.marker();
        let opened = match self.database.files.last() {
            Some(like) => disk.create(&marker, &like.metadata),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        };
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Written::open(&marker),
            opened => opened,
        };
        let file = opened.map_err(|error| Error::io("create", &marker, error))?;
        let locked = pagewarden_core::system::fs::flock(
            &file.file,
            FlockOperation::NonBlockingLockExclusive,
        );
        // The run that had it may have taken its name away just now.
        let is_there = || is_same(&file, &marker);
        if locked == Err(Errno::WOULDBLOCK) || (locked.is_ok() && !is_there()) {
            return Err(Error::in_use(
                &marker,
                "another run of pagewarden is making this copy",
                "wait until it has ended",
            ));
        }
        locked.map_err(|error| Error::io("lock", &marker, error.into()))?;
        Ok(file)
    }

    /// Says that this is an unfinished copy, or takes away what is left of one.
    fn begin(&self, found: Found, marker: &Written) -> Result<(), Error> {
        if found == Found::Unfinished {
            return self.remove_files();
        }
        let written = self.folder.write_mark(marker);
        written.map_err(|error| Error::io("write", &marker.path, error))?;
        self.folder.sync_folder(&self.folder.path)
    }

    fn create(&self, source: &SourceFile) -> Result<CopiedFile, Error> {
        let path = self.unfinished(source);
        let disk = self.run.disk;
        let create = || {
            let written = disk.create(&path, &source.metadata)?;
            let is_clone = disk.share_blocks(&written, &source.file);
            if is_clone {
                let first = source.length().min(FIRST_PAGE.end);
                let zeroes = vec![0; usize::try_from(first).unwrap_or(0)];
                disk.write_at(&written, &zeroes, FIRST_PAGE.start)?;
            } else {
                disk.set_length(&written, source.length())?;
            }
            Ok(CopiedFile::new(written, is_clone))
        };
        create().map_err(copying_to(&path))
    }

    /// Makes the copy a database; false if it was to stop before.
    fn end(&self, work: &Work<'_>, jobs: &[Job<'_>]) -> Result<bool, Error> {
        work.settle(jobs)?;
        if self.run.options.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        for (source, copy) in jobs.iter().filter_map(|job| Some((job.source, job.copy.as_ref()?))) {
            work.write_first_page(copy)?;
            let set = self.run.disk.set_attributes(&copy.written, &source.metadata);
            set.map_err(copying_to(&copy.written.path))?;
        }
        work.settle(jobs)?;
        if let Some(changed) = self.database.files.iter().find(|file| file.has_changed()) {
            return Err(changed_meanwhile(changed));
        }
        if self.run.options.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.folder.sync_folder(&self.folder.path)?;
        let Some((last, others)) = self.database.files.split_last() else { return Ok(false) };
        others.iter().try_for_each(|file| self.rename(file))?;
        self.folder.sync_folder(&self.folder.path)?;
        self.rename(last)?;
        self.folder.sync_folder(&self.folder.path)?;
        self.end_names()?;
        Ok(true)
    }

    fn rename(&self, file: &SourceFile) -> Result<(), Error> {
        let (from, to) = (self.unfinished(file), self.path(file));
        self.run.disk.rename(&from, &to).map_err(|error| Error::io("rename", &from, error))
    }

    /// What is left to do when the copy is a database.
    fn end_names(&self) -> Result<(), Error> {
        let like = self.database.folder.clone();
        let folder = like.map(|like| Folder { name: PathBuf::new(), like, elsewhere: None });
        self.folder.end(folder.as_slice())
    }

    /// There is damage: takes away what was begun.
    fn give_up(&self) -> Result<(), Error> {
        self.remove_files()?;
        remove(self.run.disk, &self.folder.marker())?;
        self.folder.sync_folder(&self.folder.path)
    }

    fn remove_files(&self) -> Result<(), Error> {
        for file in &self.database.files {
            remove(self.run.disk, &self.unfinished(file))?;
            remove(self.run.disk, &self.path(file))?;
        }
        Ok(())
    }
}

fn is_same(file: &Written, path: &Path) -> bool {
    let there = fs::metadata(path).and_then(|there| identity(&there, path));
    matches!((identity_of_open(&file.file), there), (Ok(ours), Ok(there)) if ours == there)
}

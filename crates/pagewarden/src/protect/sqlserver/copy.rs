//! The folder of the copy, and the names in it.
//!
//! While it is made, `pagewarden-protect.copy` says that the copy is not finished
//! and of what it is one, and lets the same command begin it again; whoever makes it
//! keeps it locked. Files are called `x.mdf.pagewarden-unfinished` until all of them are whole; the primary
//! file, by which a server finds the others, gets its name last.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::checksum::sqlserver::PAGE_BYTES;
use crate::error::Error;
use crate::page::sqlserver::system::BOOT_PAGE;
use crate::protect::disk::Written;
use crate::protect::pace::Pace;
use crate::protect::sqlserver::database::{Database, Pages, SourceFile};
use crate::protect::sqlserver::pages::{CopiedFile, FIRST_PAGE, Job, Work, changed_meanwhile};
use crate::protect::sqlserver::{EXPERIMENTAL, Run};
use crate::protect::{Outcome, PageTally};
use crate::target::sqlserver::data_file::read_page;
use crate::verdict::Protection;

/// Says that a copy is not finished, and of what.
const MARKER: &str = "pagewarden-protect.copy";
/// Behind the names of files that are not whole.
const UNFINISHED: &str = ".pagewarden-unfinished";

/// What is in the place of the copy.
#[derive(PartialEq, Eq)]
enum Found {
    /// No folder.
    Nothing,
    /// An empty folder.
    Empty,
    /// What an interrupted run left.
    Unfinished,
    /// What a run left that was interrupted when all was done.
    Complete,
}

/// Makes the copy.
pub(super) fn run(
    run: &Run<'_>,
    database: &Database,
    target: &Path,
    wanted: Protection,
) -> Result<Outcome, Error> {
    let copy = Copy { run, database, target, wanted };
    let mut outcome = copy.outcome();
    let mut found = copy.look()?;
    let lock = if run.request.dry_run { None } else { Some(copy.lock(&found)?) };
    if let Some(lock) = &lock {
        // Nobody else changes it from here on.
        found = copy.look()?;
        if found == Found::Complete {
            copy.end_names()?;
            outcome.after = wanted;
            outcome.warnings.push("an earlier run had made this copy".to_owned());
            return Ok(outcome);
        }
        copy.begin(&found, lock)?;
    }
    let work = Work {
        disk: run.disk,
        options: run.options,
        progress: run.progress,
        pace: Pace::new(run.options.rate),
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
    let done = work.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.pages = done.pages;
    outcome.bytes_read = done.bytes_read;
    outcome.bytes_written = done.bytes_written;
    outcome.bytes_verified = done.bytes_verified;
    outcome.findings = done.findings;
    Ok(outcome)
}

struct Copy<'a> {
    run: &'a Run<'a>,
    database: &'a Database,
    target: &'a Path,
    wanted: Protection,
}

impl Copy<'_> {
    fn outcome(&self) -> Outcome {
        let mut warnings = vec![EXPERIMENTAL.to_owned()];
        warnings.extend(self.database.warnings.iter().cloned());
        let data_files = self.database.files.iter().filter(|file| file.pages().is_some());
        Outcome {
            engine: self.database.engine.clone(),
            before: self.database.before,
            wanted: self.wanted,
            after: self.database.before,
            files: data_files.count() as u64,
            files_resumed: 0,
            pages: PageTally::default(),
            bytes_read: 0,
            bytes_written: 0,
            bytes_verified: 0,
            findings: Vec::new(),
            warnings,
            costs: None,
            stopped: false,
            elapsed: Duration::ZERO,
        }
    }

    fn path(&self, file: &SourceFile) -> PathBuf {
        self.target.join(&file.name)
    }

    fn unfinished(&self, file: &SourceFile) -> PathBuf {
        self.target.join(format!("{}{UNFINISHED}", file.name))
    }

    fn marker(&self) -> PathBuf {
        self.target.join(MARKER)
    }

    /// What the copy is of: these files, in this state.
    fn mark(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for file in &self.database.files {
            let modified = file.metadata.modified().ok();
            let modified =
                modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            hasher.update(format!("{}/{}/{modified:?}/", file.name, file.length()).as_bytes());
            for page in [FIRST_PAGE.start, BOOT_PAGE] {
                hasher.update(&read_page(&file.file, page).unwrap_or([0; PAGE_BYTES]));
            }
        }
        let (wanted, hash) = (self.wanted.name(), hasher.finalize());
        format!("unfinished copy by pagewarden protect, not to be used\n{wanted} {hash}\n")
    }

    /// Looks whether nothing of somebody else's is in the way.
    fn look(&self) -> Result<Found, Error> {
        let mut names = Vec::new();
        match fs::read_dir(self.target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(Error::io("list", self.target, error)),
            Ok(entries) => {
                for entry in entries {
                    names
                        .push(entry.map_err(|error| Error::io("list", self.target, error))?.path());
                }
            }
        }
        if fs::read(self.marker()).is_ok_and(|found| found == self.mark().as_bytes()) {
            let is_last_there =
                self.database.files.last().is_some_and(|last| self.path(last).exists());
            return Ok(if is_last_there { Found::Complete } else { Found::Unfinished });
        }
        // A marker alone is that of a run that had just begun.
        if names.iter().any(|name| *name != self.marker()) {
            return Err(Error::unknown(
                self.target,
                "this folder is not empty, and what is in it is no unfinished copy of these files as they are now",
                "name a folder that does not exist or is empty",
            ));
        }
        Ok(Found::Empty)
    }

    /// Makes the folder and the marker where they are not there, and locks that.
    fn lock(&self, found: &Found) -> Result<Written, Error> {
        let disk = self.run.disk;
        if *found == Found::Nothing {
            let made = disk.make_folder(self.target);
            made.map_err(|error| Error::io("create", self.target, error))?;
            let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.sync_folder(parent.unwrap_or_else(|| Path::new(".")))?;
        }
        let marker = self.marker();
        let opened = match self.database.files.last() {
            Some(like) => disk.create(&marker, &like.metadata),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        };
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Written::open(&marker),
            opened => opened,
        };
        let file = opened.map_err(|error| Error::io("create", &marker, error))?;
        let locked = rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive);
        // Whoever had it may have taken its name away just now.
        let is_there = || fs::metadata(&marker).is_ok_and(|there| is_same(&file, &there));
        if locked == Err(Errno::WOULDBLOCK) || (locked.is_ok() && !is_there()) {
            return Err(Error::unknown(
                &marker,
                "another run of pagewarden is making this copy",
                "wait until it has ended",
            ));
        }
        locked.map_err(|error| Error::io("lock", &marker, error.into()))?;
        Ok(file)
    }

    /// Says that this is an unfinished copy, or takes away what is left of one.
    fn begin(&self, found: &Found, marker: &Written) -> Result<(), Error> {
        if *found == Found::Unfinished {
            return self.remove_files();
        }
        let mark = self.mark();
        let write = || {
            self.run.disk.write_at(marker, mark.as_bytes(), 0)?;
            self.run.disk.set_length(marker, mark.len() as u64)?;
            if self.run.options.sync { self.run.disk.sync(marker) } else { Ok(()) }
        };
        write().map_err(|error| Error::io("write", &marker.path, error))?;
        self.sync_folder(self.target)
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
        create().map_err(|error| Error::io("copy to", &path, error))
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
            set.map_err(|error| Error::io("copy to", &copy.written.path, error))?;
        }
        work.settle(jobs)?;
        if let Some(changed) = self.database.files.iter().find(|file| file.has_changed()) {
            return Err(changed_meanwhile(changed));
        }
        if self.run.options.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.sync_folder(self.target)?;
        let Some((last, others)) = self.database.files.split_last() else { return Ok(false) };
        others.iter().try_for_each(|file| self.rename(file))?;
        self.sync_folder(self.target)?;
        self.rename(last)?;
        self.sync_folder(self.target)?;
        self.end_names()?;
        Ok(true)
    }

    fn rename(&self, file: &SourceFile) -> Result<(), Error> {
        let (from, to) = (self.unfinished(file), self.path(file));
        self.run.disk.rename(&from, &to).map_err(|error| Error::io("rename", &from, error))
    }

    /// What is left to do when the copy is a database.
    fn end_names(&self) -> Result<(), Error> {
        self.remove(&self.marker())?;
        if let Some(like) = &self.database.folder {
            let set = self.run.disk.set_folder_attributes(self.target, like);
            set.map_err(|error| Error::io("copy to", self.target, error))?;
        }
        self.sync_folder(self.target)
    }

    /// There is damage: takes away what was begun.
    fn give_up(&self) -> Result<(), Error> {
        self.remove_files()?;
        self.remove(&self.marker())?;
        self.sync_folder(self.target)
    }

    fn remove_files(&self) -> Result<(), Error> {
        for file in &self.database.files {
            self.remove(&self.unfinished(file))?;
            self.remove(&self.path(file))?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        match self.run.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }

    fn sync_folder(&self, path: &Path) -> Result<(), Error> {
        if !self.run.options.sync {
            return Ok(());
        }
        self.run.disk.sync_folder(path).map_err(|error| Error::io("sync", path, error))
    }
}

fn is_same(file: &Written, other: &Metadata) -> bool {
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    file.file.metadata().is_ok_and(|metadata| identity(&metadata) == identity(other))
}

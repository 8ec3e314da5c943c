//! Databases of pages with markers, changed and interrupted at every change to the
//! disk; SQLite is played by a library that knows one database.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::names::UNFINISHED;
use super::{Held, Hold, Library, Run};
use crate::checksum::page_verify::{Marker, Mode, Room, stamp};
use crate::page::header::MAGIC;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, System, Written};
use pagewarden_core::protect::plan::Wish;
use pagewarden_core::protect::{Options, Outcome, Request};
use pagewarden_core::verdict::{PageNo, Protection};

const PAGE: usize = 512;
const PAGES: usize = PAGE_COUNT as usize;
const PAGE_COUNT: u8 = 70;

/// A database without tables, and pages that belong to nothing.
fn database(reserved: u8, marker: Option<Mode>) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..PAGE * PAGES).map(|at| at.to_le_bytes()[0].wrapping_mul(7) | 1).collect();
    bytes[..PAGE].fill(0);
    bytes[..16].copy_from_slice(MAGIC);
    for (at, field) in [
        (16, &[2, 0, 1, 1, reserved, 64, 32, 32][..]),
        (24, &[0, 0, 0, 9, 0, 0, 0, PAGE_COUNT]),
        (44, &[0, 0, 0, 4]),
        (56, &[0, 0, 0, 1]),
        (92, &[0, 0, 0, 9, 0, 46, 0, 0]),
        (100, &[13, 0, 0, 0, 0]),
    ] {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    let usable = u16::try_from(PAGE).unwrap() - u16::from(reserved);
    bytes[105..107].copy_from_slice(&usable.to_be_bytes());
    for (number, page) in (1..).map(PageNo).zip(bytes.chunks_exact_mut(PAGE)) {
        if let Some(mode) = marker {
            let setting = (number == PageNo(1)).then_some(mode);
            let room = Room::of_bytes(reserved).unwrap();
            let database = NonZeroU32::new(5).unwrap();
            stamp(page, number, Marker { mode, setting, database, room });
        }
    }
    bytes
}

/// Knows what `VACUUM INTO` makes of the database.
struct Fake {
    copy: Vec<u8>,
    faults: Vec<String>,
}

impl Library for Fake {
    fn hold(&self, _: &Path, _: Hold, _: bool) -> Result<Box<dyn Held>, Error> {
        Ok(Box::new(Self { copy: self.copy.clone(), faults: self.faults.clone() }))
    }
}

impl Held for Fake {
    fn checkpoint(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn leave_log(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn write_to(
        &mut self,
        copy: &Path,
        reserved_bytes: u8,
        watch: &dyn Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        assert_eq!((reserved_bytes, fs::metadata(copy).unwrap().len()), (24, 0));
        fs::write(copy, &self.copy).unwrap();
        Ok(watch(0))
    }

    fn compare(&mut self, copy: &Path, _: &dyn Fn(u64) -> bool) -> Result<Vec<String>, Error> {
        assert_eq!(fs::metadata(copy).unwrap().len(), self.copy.len() as u64);
        Ok(self.faults.clone())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Create(PathBuf),
    Write(PathBuf),
    Sync(PathBuf),
    SyncFolder,
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// Notes every change, and dies at one of them: from then on nothing happens.
#[derive(Debug)]
struct Recorder {
    lives: usize,
    changes: Mutex<Vec<Change>>,
}

impl Recorder {
    fn new(lives: usize) -> Self {
        Self { lives, changes: Mutex::new(Vec::new()) }
    }

    fn note(&self, change: Change) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap();
        if changes.len() >= self.lives {
            return Err(io::Error::other("dead"));
        }
        changes.push(change);
        Ok(())
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path, like: &fs::Metadata) -> io::Result<Written> {
        self.note(Change::Create(path.to_owned()))?;
        System.create(path, like)
    }

    fn write_at(&self, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Err(error) = self.note(Change::Write(file.path.clone())) {
            // Killed inside this write: the system has done part of it.
            System.write_at(file, &bytes[..bytes.len() / 3], offset)?;
            return Err(error);
        }
        System.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &Written) -> io::Result<()> {
        self.note(Change::Sync(file.path.clone()))?;
        System.sync(file)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.note(Change::SyncFolder)?;
        System.sync_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(Change::Rename(from.to_owned(), to.to_owned()))?;
        System.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_err() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.note(Change::Remove(path.to_owned()))?;
        System.remove(path)
    }
}

fn run_on(disk: &dyn Disk, path: &Path, mode: Protection, fake: &Fake) -> Result<Outcome, Error> {
    let request = Request::new(path, Wish::Mode(mode));
    let options = Options::default();
    // Small steps, so that there are many.
    let step_bytes = PAGE;
    Run { disk, request: &request, options: &options, progress: &(), library: fake, step_bytes }
        .run()
}

fn image(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// What the run must leave, but for the database number.
fn is_done(bytes: &[u8], mode: Mode) -> bool {
    bytes.len() == PAGE * PAGES
        && (1..).map(PageNo).zip(bytes.chunks_exact(PAGE)).all(|(number, page)| {
            crate::checksum::page_verify::verify(page, number)
                .is_some_and(|marker| marker.mode == mode)
        })
}

fn sweep(before: &[u8], fake: &Fake, wanted: Protection, mode: Mode) {
    let mut lives = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(folder.path()).unwrap().join("x.db");
        let unfinished = PathBuf::from(format!("{}{UNFINISHED}", path.display()));
        fs::write(&path, before).unwrap();
        let recorder = Recorder::new(lives);
        let outcome = run_on(&recorder, &path, wanted, fake);
        let names = image(folder.path());
        let now = &names[&path];
        assert!(now == before || is_done(now, mode), "killed at change {lives}");
        assert!(names.keys().all(|name| name == &path || name == &unfinished), "{names:?}");
        let ended = outcome.is_ok();
        let outcome = run_on(&System, &path, wanted, fake).unwrap();
        assert_eq!(outcome.after, wanted);
        assert!(is_done(&fs::read(&path).unwrap(), mode), "rerun after change {lives}");
        assert_eq!(image(folder.path()).len(), 1);
        if ended {
            assert_order(&recorder.changes.into_inner().unwrap(), &path);
            break;
        }
        lives += 1;
    }
    assert!(lives > PAGES, "{lives}");
}

/// Nothing that is written is not synced when it gets the name, and the name is.
fn assert_order(changes: &[Change], path: &Path) {
    let is_rename = |change: &Change| matches!(change, Change::Rename(_, to) if to == path);
    let renamed = changes.iter().position(is_rename).unwrap();
    let (before, after) = changes.split_at(renamed);
    let written = before.iter().rposition(|change| matches!(change, Change::Write(_))).unwrap();
    assert!(
        before[written..].iter().any(|change| matches!(change, Change::Sync(_))),
        "{changes:?}"
    );
    assert!(after.contains(&Change::SyncFolder), "{changes:?}");
    let is_old = |change: &Change| matches!(change, Change::Write(file) if file == path);
    assert!(!before.iter().any(is_old), "{changes:?}");
}

#[test]
fn new_markers_are_whole_or_not_there_wherever_the_run_ends() {
    let before = database(16, Some(Mode::Checksum));
    let fake = Fake { copy: Vec::new(), faults: Vec::new() };
    sweep(&before, &fake, Protection::Torn, Mode::Torn);
    sweep(&before, &fake, Protection::None, Mode::None);
    sweep(&database(24, Some(Mode::Checksum)), &fake, Protection::Torn, Mode::Torn);
}

#[test]
fn first_markers_are_whole_or_not_there_wherever_the_run_ends() {
    let fake = Fake { copy: database(24, None), faults: Vec::new() };
    sweep(&database(0, None), &fake, Protection::Checksum, Mode::Checksum);
}

/// The guard is asked for, kept, and given up with page verification; the pages pass with it.
#[test]
fn guard_is_a_version_that_no_sqlite_writes_with() {
    const WRITE_VERSION: usize = 18;
    let folder = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(folder.path()).unwrap().join("x.db");
    let written = || fs::read(&path).unwrap();
    let run = |mode, guard, copy: Vec<u8>| {
        let fake = Fake { copy, faults: Vec::new() };
        let request = Request { guard, ..Request::new(&path, Wish::Mode(mode)) };
        let (options, progress) = (Options { sync: false, ..Options::default() }, &());
        let (request, options) = (&request, &options);
        let disk = &System;
        Run { disk, request, options, progress, library: &fake, step_bytes: PAGE }.run()
    };
    for before in [database(0, None), database(16, Some(Mode::Torn))] {
        fs::write(&path, before).unwrap();
        run(Protection::Checksum, true, database(24, None)).unwrap();
        assert_eq!((written()[WRITE_VERSION], written()[20]), (3, 24));
        assert!(is_done(&written(), Mode::Checksum));
        run(Protection::Torn, false, Vec::new()).unwrap();
        assert!(is_done(&written(), Mode::Torn) && written()[WRITE_VERSION] == 3);
        run(Protection::None, false, Vec::new()).unwrap();
        assert!(is_done(&written(), Mode::None) && written()[WRITE_VERSION] == 1);
        run(Protection::Torn, true, Vec::new()).unwrap();
        assert!(is_done(&written(), Mode::Torn) && written()[WRITE_VERSION] == 3);
    }
    let error = run(Protection::None, true, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("--guard"), "{error}");
    assert_eq!(written()[WRITE_VERSION], 3);
}

#[test]
fn copy_that_is_not_the_same_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let before = database(0, None);
    fs::write(&path, &before).unwrap();
    let fake = Fake { copy: database(24, None), faults: vec!["row 3 differs".to_owned()] };
    let error = run_on(&System, &path, Protection::Checksum, &fake).unwrap_err().to_string();
    assert!(error.contains("row 3 differs"), "{error}");
    assert_eq!(image(folder.path()), BTreeMap::from([(path, before)]));
}

#[test]
fn program_that_has_the_old_file_in_its_hands_finds_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::write(&path, database(16, Some(Mode::Checksum))).unwrap();
    let mut old = fs::File::open(&path).unwrap();
    let fake = Fake { copy: Vec::new(), faults: Vec::new() };
    run_on(&System, &path, Protection::Torn, &fake).unwrap();
    let mut header = [1; 100];
    io::Read::read_exact(&mut old, &mut header).unwrap();
    assert_eq!(header, [0; 100]);
}

#[test]
fn page_that_fails_is_named_and_everything_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let mut before = database(16, Some(Mode::Checksum));
    before[40 * PAGE + 9] ^= 1;
    fs::write(&path, &before).unwrap();
    let fake = Fake { copy: Vec::new(), faults: Vec::new() };
    let outcome = run_on(&System, &path, Protection::Torn, &fake).unwrap();
    assert_eq!((outcome.after, outcome.pages.damaged), (Protection::Checksum, 1));
    assert_eq!(outcome.findings[0].place.page, Some(PageNo(41)));
    assert_eq!(image(folder.path()), BTreeMap::from([(path, before)]));
}

//! Runs that end at any change to the disk, by a kill or by power failure.
//!
//! After a kill, what was written is there. After power failure, of everything
//! that was not synced any part may be there: any of the names, any of the
//! 512-byte sectors, in any order. From the record of a run, such disks are built,
//! and each must be true to what its control file says, and be finished by the
//! same command.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::{
    Dice, all_pages_are_right, assert_protected, cluster_in, image, one_thread, request,
    run_cached, run_on, setting,
};
use crate::protect::Request;
use crate::protect::disk::{Disk, System, Written};
use crate::protect::journal::{Journal, Stamp};
use crate::protect::postgres::JOURNAL;
use crate::verdict::Protection;
use crate::verify::Caching;

const SECTOR: usize = 512;

/// A change to the disk.
#[derive(Debug, Clone)]
pub(in crate::protect) enum Change {
    Create(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    Length(PathBuf, u64),
    Sync(PathBuf),
    SyncFolder(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Folder(PathBuf),
    Attributes,
}

/// Notes every change, and dies at one of them: from then on nothing happens.
pub(in crate::protect) struct Recorder {
    root: PathBuf,
    lives: usize,
    pub(in crate::protect) changes: Mutex<(Vec<Change>, Dice)>,
    /// The file of each write that went past the page cache.
    past: Mutex<Vec<PathBuf>>,
}

impl Recorder {
    pub(in crate::protect) fn new(root: &Path, lives: usize, seed: u64) -> Self {
        let changes = Mutex::new((Vec::new(), Dice(seed.max(1))));
        Self { root: root.to_owned(), lives, changes, past: Mutex::default() }
    }

    /// The file names that were made in the root.
    pub(in crate::protect) fn names_made(&self) -> Vec<String> {
        let changes = self.changes.lock().unwrap();
        let names = changes.0.iter().filter_map(|change| match change {
            Change::Create(name) => name.to_str().map(str::to_owned),
            _ => None,
        });
        names.collect()
    }

    /// How many writes to a file went past the page cache.
    pub(in crate::protect::postgres) fn writes_past(&self, name: &str) -> usize {
        let past = self.past.lock().unwrap();
        past.iter().filter(|written| **written == Path::new(name)).count()
    }

    fn name(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }

    fn note(&self, change: Change) -> io::Result<MutexGuard<'_, (Vec<Change>, Dice)>> {
        let mut changes = self.changes.lock().unwrap();
        if changes.0.len() >= self.lives {
            return Err(io::Error::other("dead"));
        }
        changes.0.push(change);
        Ok(changes)
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path, like: &Metadata) -> io::Result<Written> {
        let _guard = self.note(Change::Create(self.name(path)))?;
        System.create(path, like).inspect_err(|_| self.forget())
    }

    fn write_at(&self, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_by(&file.file, file, bytes, offset)
    }

    // The same to whoever looks after a kill, for a read sees both; and to power
    // failure, for what no sync has waited for may be lost either way, by sectors.
    fn write_past(
        &self,
        file: &Written,
        direct: &File,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        self.past.lock().unwrap().push(self.name(&file.path));
        assert!(is_direct(direct), "it goes through the cache");
        self.write_by(direct, file, bytes, offset)
    }

    fn set_length(&self, file: &Written, length: u64) -> io::Result<()> {
        let _guard = self.note(Change::Length(self.name(&file.path), length))?;
        System.set_length(file, length)
    }

    fn share_blocks(&self, _: &Written, _: &File) -> bool {
        false
    }

    fn set_attributes(&self, file: &Written, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Attributes)?;
        System.set_attributes(file, like)
    }

    // Nothing is waited for: what is synced is in the record.
    fn sync(&self, file: &Written) -> io::Result<()> {
        self.note(Change::Sync(self.name(&file.path))).map(drop)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.note(Change::SyncFolder(self.name(path))).map(drop)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Link(self.name(from), self.name(to)))?;
        System.link(from, to).inspect_err(|_| self.forget())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Rename(self.name(from), self.name(to)))?;
        System.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Remove(self.name(path)))?;
        System.remove(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Folder(self.name(path)))?;
        System.make_folder(path)
    }

    fn set_folder_attributes(&self, path: &Path, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Attributes)?;
        System.set_folder_attributes(path, like)
    }
}

impl Recorder {
    /// What failed has changed nothing. (The record is locked by the caller, and
    /// names that exist already are never made anew in these tests.)
    fn forget(&self) {}

    fn write_by(&self, by: &File, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        let change = Change::Write(self.name(&file.path), offset, bytes.to_vec());
        let Ok(_guard) = self.note(change) else {
            // Killed inside this write: the system may have done part of it, and of
            // one past the cache whole sectors in any order.
            let mut changes = self.changes.lock().unwrap();
            if changes.0.len() == self.lives {
                let dice = &mut changes.1;
                if is_direct(by) {
                    for (sector, part) in (0..).zip(bytes.chunks(SECTOR)) {
                        if dice.below(2) == 0 {
                            System.write_at(file, part, offset + sector * SECTOR as u64).unwrap();
                        }
                    }
                } else {
                    let part = &bytes[..dice.below(bytes.len() + 1)];
                    System.write_at(file, part, offset).unwrap();
                }
                // Counts as the moment of death.
                changes.0.push(Change::Attributes);
            }
            return Err(io::Error::other("dead"));
        };
        if is_direct(by) {
            System.write_past(file, by, bytes, offset)
        } else {
            System.write_at(file, bytes, offset)
        }
    }
}

fn is_direct(file: &File) -> bool {
    rustix::fs::fcntl_getfl(file).unwrap().contains(rustix::fs::OFlags::DIRECT)
}

/// Does not wait for the device: these tests have no power failures of their own.
pub(in crate::protect) struct Hasty;

impl Disk for Hasty {
    fn sync(&self, _: &Written) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

pub(in crate::protect) type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// A disk as power failure may leave it: files by number, names that lead to them.
pub(in crate::protect) struct Remains {
    files: Vec<Vec<u8>>,
    /// `None` for folders.
    names: BTreeMap<PathBuf, Option<usize>>,
}

impl Remains {
    /// What may be left of `before` and `changes`.
    pub(in crate::protect) fn of(before: &Image, changes: &[Change], dice: &mut Dice) -> Self {
        let mut remains = Self { files: Vec::new(), names: BTreeMap::new() };
        for (name, bytes) in before {
            let file = bytes.as_ref().map(|bytes| {
                remains.files.push(bytes.clone());
                remains.files.len() - 1
            });
            remains.names.insert(name.clone(), file);
        }
        // What every name led to in the run, lost or not.
        let mut running: HashMap<PathBuf, usize> = HashMap::new();
        for (name, file) in &remains.names {
            running.extend(file.map(|file| (name.clone(), file)));
        }
        for (at, change) in changes.iter().enumerate() {
            let later = &changes[at + 1..];
            let folder_synced = |name: &Path| {
                let parent = name.parent().unwrap_or(Path::new(""));
                later
                    .iter()
                    .any(|one| matches!(one, Change::SyncFolder(synced) if synced == parent))
            };
            let synced = |name: &Path| {
                later.iter().any(|one| matches!(one, Change::Sync(path) if path == name))
            };
            match change {
                Change::Create(name) => {
                    remains.files.push(Vec::new());
                    let file = remains.files.len() - 1;
                    running.insert(name.clone(), file);
                    if folder_synced(name) || dice.below(2) == 0 {
                        remains.names.insert(name.clone(), Some(file));
                    }
                }
                Change::Folder(name) => {
                    if folder_synced(name) || dice.below(2) == 0 {
                        remains.names.entry(name.clone()).or_insert(None);
                    }
                }
                Change::Write(name, offset, bytes) => {
                    let file = running[name];
                    let all = synced(name);
                    for (sector, part) in (0..).zip(bytes.chunks(SECTOR)) {
                        if all || dice.below(2) == 0 {
                            let begin = usize::try_from(*offset).unwrap() + sector * SECTOR;
                            remains.put(file, begin, part);
                        }
                    }
                }
                Change::Length(name, length) => {
                    if synced(name) || dice.below(2) == 0 {
                        remains.files[running[name]].resize(usize::try_from(*length).unwrap(), 0);
                    }
                }
                Change::Link(from, to) => {
                    let file = running[from];
                    running.insert(to.clone(), file);
                    if folder_synced(to) || dice.below(2) == 0 {
                        remains.names.insert(to.clone(), Some(file));
                    }
                }
                Change::Rename(from, to) => {
                    let file = running.remove(from).unwrap();
                    running.insert(to.clone(), file);
                    // In one step, on every file system that servers run on.
                    if folder_synced(to) || dice.below(2) == 0 {
                        remains.names.remove(from);
                        remains.names.insert(to.clone(), Some(file));
                    }
                }
                Change::Remove(name) => {
                    running.remove(name);
                    if folder_synced(name) || dice.below(2) == 0 {
                        remains.names.remove(name);
                    }
                }
                Change::Sync(_) | Change::SyncFolder(_) | Change::Attributes => {}
            }
        }
        remains
    }

    fn put(&mut self, file: usize, begin: usize, part: &[u8]) {
        let file = &mut self.files[file];
        if file.len() < begin + part.len() {
            file.resize(begin + part.len(), 0);
        }
        file[begin..begin + part.len()].copy_from_slice(part);
    }

    /// Puts what is left below a folder that the run made itself, if that is left, into an empty
    /// one.
    pub(in crate::protect) fn lay_out_below(mut self, root: &Path) {
        if self.names.remove(Path::new("")).is_some() {
            self.lay_out(root);
        }
    }

    /// Puts it into an empty folder.
    pub(in crate::protect) fn lay_out(&self, root: &Path) {
        let mut first: HashMap<usize, PathBuf> = HashMap::new();
        for (name, file) in &self.names {
            let path = root.join(name);
            // A folder that was lost takes with it what was in it.
            if !path.parent().unwrap().is_dir() {
                continue;
            }
            match file {
                None => fs::create_dir(&path).unwrap(),
                Some(file) => match first.get(file) {
                    Some(other) => fs::hard_link(other, &path).unwrap(),
                    None => {
                        fs::write(&path, &self.files[*file]).unwrap();
                        first.insert(*file, path);
                    }
                },
            }
        }
    }
}

/// Files that were laid out anew have other numbers and times than those that the
/// journal names: lets it name these, so that it is believed as it would be.
pub(in crate::protect) fn let_journal_name_these_files(root: &Path) {
    let path = root.join(JOURNAL);
    let Ok(bytes) = fs::read(&path) else { return };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some(title) = text.lines().next().and_then(|line| line.split(' ').nth(4)) else { return };
    let like = fs::metadata(root).unwrap();
    let (_, Some(done)) = Journal::open(&System, &path, title, &like).unwrap() else { return };
    fs::remove_file(&path).unwrap();
    let (mut journal, _) = Journal::open(&Hasty, &path, title, &like).unwrap();
    for name in done.keys() {
        journal.record(name, Stamp::of(&fs::metadata(root.join(name)).unwrap())).unwrap();
    }
}

/// What holds in every moment: the control file is whole and says no more than is
/// true, pages are what they were, and no lock file stops a server for ever.
fn assert_true_to_its_word(before: &Image, root: &Path) {
    let after = image(root);
    let right = all_pages_are_right(before, &after);
    if setting(&after).unwrap() == Protection::Checksum {
        assert!(right, "the control file claims too much");
    }
    if let Some(Some(lock)) = after.get(Path::new("postmaster.pid")) {
        assert!(lock.starts_with(b"-"), "a server refuses to start over {lock:?}");
    }
}

/// Every change of a whole run, and how many writes went past the page cache.
fn whole_record(request: &Request, root: &Path, caching: Caching) -> (Vec<Change>, usize) {
    let recorder = Recorder::new(root, usize::MAX, 0);
    run_cached(&recorder, request, &one_thread(), caching).unwrap();
    (recorder.changes.into_inner().unwrap().0, recorder.past.into_inner().unwrap().len())
}

/// In memory where there is such a place: hundreds of clusters are made here.
pub(in crate::protect) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

pub(in crate::protect) fn laid_out(before: &Image) -> (tempfile::TempDir, PathBuf) {
    let folder = in_memory();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    Remains::of(before, &[], &mut Dice(1)).lay_out(&root);
    (folder, root)
}

#[test]
fn killed_at_any_change_the_same_command_finishes() {
    kill_at_any_change(Caching::Cached);
}

#[test]
fn killed_at_any_change_past_the_page_cache_the_same_command_finishes() {
    kill_at_any_change(Caching::Direct);
}

fn kill_at_any_change(caching: Caching) {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let (changes, past) = whole_record(&request(&root, Protection::Checksum), &root, caching);
    if caching == Caching::Direct && past == 0 {
        eprintln!("skipped: this file system has no way past the page cache");
        return;
    }
    assert_eq!(past > 50, caching == Caching::Direct);
    let count = changes.len();
    // Past the cache runs are longer, and so fewer.
    assert!(count >= if past > 0 { 150 } else { 200 }, "{count} moments");
    let mut resumed_most = 0;
    for lives in 0..count {
        let (_folder, root) = laid_out(&before);
        let request = request(&root, Protection::Checksum);
        let recorder = Recorder::new(&root, lives, lives as u64 + 1);
        let first = run_cached(&recorder, &request, &one_thread(), caching);
        assert_true_to_its_word(&before, &root);
        // Whoever dies while it tidies up has done its work.
        let was_done = first.is_ok() || setting(&image(&root)) == Some(Protection::Checksum);
        let second = run_cached(&Hasty, &request, &one_thread(), caching)
            .unwrap_or_else(|error| panic!("after {lives} of {count}: {error}"));
        assert_protected(&before, &root);
        assert!(was_done || second.before == Protection::None);
        resumed_most = resumed_most.max(second.files_resumed);
    }
    assert!(resumed_most > 20, "the journal was of no use: {resumed_most}");
}

#[test]
fn killed_with_several_threads_the_same_command_finishes() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    for lives in (3..230).step_by(9) {
        let (_folder, root) = laid_out(&before);
        let request = request(&root, Protection::Checksum);
        let options =
            crate::protect::Options { jobs: std::num::NonZero::new(4).unwrap(), ..one_thread() };
        let _ = run_on(&Recorder::new(&root, lives, 5), &request, &options);
        assert_true_to_its_word(&before, &root);
        run_on(&Hasty, &request, &options).unwrap();
        assert_protected(&before, &root);
    }
}

#[test]
fn after_power_failure_at_any_change_the_same_command_finishes() {
    fail_power_at_any_change(Caching::Cached, 3);
}

#[test]
fn after_power_failure_past_the_page_cache_the_same_command_finishes() {
    fail_power_at_any_change(Caching::Direct, 1);
}

fn fail_power_at_any_change(caching: Caching, times: usize) {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let (changes, past) = whole_record(&request(&root, Protection::Checksum), &root, caching);
    if caching == Caching::Direct && past == 0 {
        eprintln!("skipped: this file system has no way past the page cache");
        return;
    }
    let mut dice = Dice(3);
    let mut resumed_most = 0;
    for end in 0..=changes.len() {
        for _ in 0..times {
            let folder = in_memory();
            let root = folder.path().join("data");
            fs::create_dir(&root).unwrap();
            Remains::of(&before, &changes[..end], &mut dice).lay_out(&root);
            assert_true_to_its_word(&before, &root);
            let_journal_name_these_files(&root);
            let request = request(&root, Protection::Checksum);
            let outcome = run_cached(&Hasty, &request, &one_thread(), caching)
                .unwrap_or_else(|error| panic!("after {end}: {error}"));
            resumed_most = resumed_most.max(outcome.files_resumed);
            assert_protected(&before, &root);
        }
    }
    assert!(resumed_most > 3, "the journal was of no use: {resumed_most}");
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let request = request(&root, Protection::Checksum);
    let (mut changes, _) = whole_record(&request, &root, Caching::Cached);
    changes.retain(|change| !matches!(change, Change::Sync(_)));
    let mut dice = Dice(3);
    let mut lies = 0;
    for _ in 0..20 {
        let folder = in_memory();
        Remains::of(&before, &changes, &mut dice).lay_out(folder.path());
        let after = image(folder.path());
        let claims = setting(&after) == Some(Protection::Checksum);
        lies += u32::from(claims && !all_pages_are_right(&before, &after));
    }
    assert!(lies > 0);
}

#[test]
fn copy_that_is_interrupted_is_no_cluster_and_is_finished() {
    let (_folder, root) = cluster_in(in_memory());
    let before = image(&root);
    let into = |folder: &Path| Request {
        copy_to: Some(folder.join("copy")),
        ..request(&root, Protection::Checksum)
    };
    let folder = in_memory();
    let copy = folder.path().join("copy");
    let recorder = Recorder::new(&copy, usize::MAX, 0);
    run_on(&recorder, &into(folder.path()), &one_thread()).unwrap();
    assert_protected(&before, &copy);
    let changes = recorder.changes.into_inner().unwrap().0;
    let mut dice = Dice(11);
    let is_true = |copy: &Path| {
        let after = if copy.exists() { image(copy) } else { BTreeMap::new() };
        if setting(&after).is_some() {
            assert!(after.contains_key(Path::new("PG_VERSION")));
            assert!(all_pages_are_right(&before, &after), "the copy claims too much");
        }
    };
    for end in (0..changes.len()).step_by(3) {
        // A kill.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        let _ = run_on(&Recorder::new(&copy, end, 9), &into(folder.path()), &one_thread());
        is_true(&copy);
        let again = run_on(&Hasty, &into(folder.path()), &one_thread());
        match again {
            Ok(_) => {}
            // Complete, and no longer ours to touch.
            Err(error) => {
                assert!(error.to_string().contains("not empty"), "after {end}: {error}");
                assert!(setting(&image(&copy)).is_some(), "after {end}: {error}");
            }
        }
        assert_protected(&before, &copy);
        // Power failure.
        let folder = in_memory();
        let copy = folder.path().join("copy");
        let remains = Remains::of(&BTreeMap::new(), &changes[..end], &mut dice);
        fs::create_dir(&copy).unwrap();
        remains.lay_out_below(&copy);
        is_true(&copy);
    }
    assert_eq!(image(&root), before, "the source was written to");
}

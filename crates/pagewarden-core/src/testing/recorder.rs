//! A disk that notes every change, dies at any of them, and tells what a power failure would leave.
//!
//! After a kill, what was written is there, and part of what was being written. After power
//! failure, of everything that was not synced any part may be there: any of the names, any of the
//! 512-byte sectors, in any order. From the record of a run, such disks are built.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use crate::protect::Options;
use crate::protect::disk::{Disk, System, Written};
use crate::protect::journal::{self, Journal, Stamp};

/// Numbers that look random, the same in every run (xorshift64*).
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.any() % end as u64).unwrap()
    }
}

const SECTOR: usize = 512;

/// A change to the disk.
#[derive(Debug, Clone)]
pub enum Change {
    /// A file was made.
    Create(PathBuf),
    /// Bytes were written at an offset.
    Write(PathBuf, u64, Vec<u8>),
    /// A file was cut or grew.
    Length(PathBuf, u64),
    /// A file is on the device.
    Sync(PathBuf),
    /// So is everything.
    SyncAll,
    /// So are the names in a folder.
    SyncFolder(PathBuf),
    /// A file got a second name.
    Link(PathBuf, PathBuf),
    /// A file got another name.
    Rename(PathBuf, PathBuf),
    /// A name is gone.
    Remove(PathBuf),
    /// A folder was made.
    Folder(PathBuf),
    /// Owner, times or permissions changed.
    Attributes,
}

/// Notes every change, and dies at one of them: from then on nothing happens.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    lives: usize,
    /// What happened so far, and what decides how much of an interrupted write is there.
    pub changes: Mutex<(Vec<Change>, Dice)>,
    /// The file of each write that went past the page cache.
    pub past: Mutex<Vec<PathBuf>>,
}

impl Recorder {
    /// A disk that dies at the change with the number `lives`.
    pub fn new(root: &Path, lives: usize, seed: u64) -> Self {
        let changes = Mutex::new((Vec::new(), Dice(seed.max(1))));
        Self { root: root.to_owned(), lives, changes, past: Mutex::default() }
    }

    /// The file names that were made in the root.
    pub fn names_made(&self) -> Vec<String> {
        let changes = self.changes.lock().unwrap();
        let names = changes.0.iter().filter_map(|change| match change {
            Change::Create(name) => name.to_str().map(str::to_owned),
            _ => None,
        });
        names.collect()
    }

    /// How many writes to a file went past the page cache.
    pub fn writes_past(&self, name: &str) -> usize {
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
        let mut guard = self.note(Change::Create(self.name(path)))?;
        // What is there already is no change.
        System.create(path, like).inspect_err(|_| drop(guard.0.pop()))
    }

    fn write_at(&self, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_by(&file.file, file, bytes, offset)
    }

    // The same to a process that looks after a kill, for a read sees both; and to power
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

    fn sync_file_system(&self, _: &Written) -> io::Result<()> {
        self.note(Change::SyncAll).map(drop)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.note(Change::SyncFolder(self.name(path))).map(drop)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut guard = self.note(Change::Link(self.name(from), self.name(to)))?;
        System.link(from, to).inspect_err(|_| drop(guard.0.pop()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Rename(self.name(from), self.name(to)))?;
        System.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut guard = self.note(Change::Remove(self.name(path)))?;
        System.remove(path).inspect_err(|_| drop(guard.0.pop()))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Folder(self.name(path)))?;
        System.make_folder(path)
    }

    fn set_folder_attributes(&self, path: &Path, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Attributes)?;
        System.set_folder_attributes(path, like)
    }

    // Of these, power failure is not played.
    fn make_link(&self, content: &Path, path: &Path, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Attributes)?;
        System.make_link(content, path, like)
    }
}

impl Recorder {
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
#[derive(Debug)]
pub struct Hasty;

impl Disk for Hasty {
    fn sync(&self, _: &Written) -> io::Result<()> {
        Ok(())
    }

    fn sync_file_system(&self, _: &Written) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// What is below a folder: files with their bytes, and folders.
pub type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// True if the name's folder is synced by one of `later`.
fn is_folder_synced(later: &[Change], name: &Path) -> bool {
    let parent = name.parent().unwrap_or(Path::new(""));
    later.iter().any(|one| match one {
        Change::SyncAll => true,
        Change::SyncFolder(synced) => synced == parent,
        _ => false,
    })
}

/// True if the file is synced by one of `later`.
fn is_synced(later: &[Change], name: &Path) -> bool {
    later.iter().any(|one| match one {
        Change::SyncAll => true,
        Change::Sync(path) => path == name,
        _ => false,
    })
}

/// A disk as power failure may leave it: files by number, names that lead to them.
#[derive(Debug)]
pub struct Remains {
    files: Vec<Vec<u8>>,
    /// `None` for folders.
    names: BTreeMap<PathBuf, Option<usize>>,
}

impl Remains {
    /// What may be left of `before` and `changes`.
    pub fn of(before: &Image, changes: &[Change], dice: &mut Dice) -> Self {
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
            let folder_synced = |name: &Path| is_folder_synced(later, name);
            let synced = |name: &Path| is_synced(later, name);
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
                Change::Sync(_) | Change::SyncAll | Change::SyncFolder(_) | Change::Attributes => {}
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
    pub fn lay_out_below(mut self, root: &Path) {
        if self.names.remove(Path::new("")).is_some() {
            self.lay_out(root);
        }
    }

    /// The files as they would be laid out.
    pub fn image(&self) -> Image {
        let mut image = Image::new();
        for (name, file) in &self.names {
            let parent = name.parent().unwrap_or(Path::new(""));
            // A folder that was lost takes with it what was in it.
            if parent == Path::new("") || image.get(parent) == Some(&None) {
                image.insert(name.clone(), file.map(|file| self.files[file].clone()));
            }
        }
        image
    }

    /// Puts it into an empty folder.
    pub fn lay_out(&self, root: &Path) {
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

/// Every file by its path below `root`; folders with no content.
pub fn image(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut image = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
                image.insert(name, None);
            } else {
                image.insert(name, Some(fs::read(path).unwrap()));
            }
        }
    }
    image
}

/// In memory where there is such a place: hundreds of clusters are made here.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Without reading back, which waits for a real device.
pub fn one_thread() -> Options {
    Options { jobs: std::num::NonZero::<usize>::MIN, verify: false, ..Options::default() }
}

/// Lays out what power failure may leave, `times` times for each end that these changes may have,
/// and calls `each` with the folder and the number of changes.
pub fn after_each_power_failure(
    before: &Image,
    changes: &[Change],
    times: usize,
    mut each: impl FnMut(&Path, usize),
) {
    let mut dice = Dice(3);
    for end in 0..=changes.len() {
        for _ in 0..times {
            let folder = in_memory();
            let root = folder.path().join("data");
            fs::create_dir(&root).unwrap();
            Remains::of(before, &changes[..end], &mut dice).lay_out(&root);
            each(&root, end);
        }
    }
}

/// A folder with these files, as if they had always been there.
pub fn laid_out(before: &Image) -> (tempfile::TempDir, PathBuf) {
    let folder = in_memory();
    let root = folder.path().join("data");
    fs::create_dir(&root).unwrap();
    Remains::of(before, &[], &mut Dice(1)).lay_out(&root);
    (folder, root)
}

/// Files that were laid out anew have other numbers and times than those that the
/// journal names: lets it name these, so that it is believed as it would be.
pub fn let_journal_name_these_files(root: &Path) {
    let path = root.join(journal::NAME);
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

//! Stores filled, read by others, altered under those who use them, and without room.
#![cfg(target_os = "linux")]

use std::fs::{self, OpenOptions, Permissions};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use pagewarden_core::system::{PermissionsExt as _, chown, symlink};

use tempfile::TempDir;

use super::*;
use crate::pack::codec::{Method, Settings};
use crate::pack::reader::ReaderSettings;
use crate::pack::tests::{content, file, packed};

const MEMORY: &str = "/dev/shm";
const BLOCK: u32 = 16 << 10;

/// A pack of one file that is no whole number of blocks, and a folder in memory.
struct Sample {
    _folder: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    memory: TempDir,
}

impl Sample {
    fn new(bytes: usize) -> Self {
        let (folder, bytes) = (TempDir::new().unwrap(), content(bytes));
        let path = folder.path().join("x.pwk");
        let settings =
            Settings { block_bytes: BLOCK, method: Method::Zstd(1), dictionary: Vec::new() };
        fs::write(&path, packed(&[(file("x", &bytes), bytes.clone())], &settings)).unwrap();
        let memory = TempDir::new_in(MEMORY).unwrap();
        Self { _folder: folder, path, bytes, memory }
    }

    fn open(&self) -> Result<Expanded, ExpandedError> {
        self.open_in(self.memory.path())
    }

    fn open_in(&self, folder: &Path) -> Result<Expanded, ExpandedError> {
        Expanded::open(folder, &Pack::open(&self.path).unwrap(), 0)
    }

    fn reader(&self) -> Reader {
        let settings = ReaderSettings { threads: 1, ..ReaderSettings::default() };
        Reader::new(Arc::new(Pack::open(&self.path).unwrap()), settings).unwrap()
    }

    fn store(&self) -> PathBuf {
        only_store(self.memory.path())
    }

    /// Reads page after page and holds each against what was packed.
    fn scan(&self, expanded: &Expanded) {
        let reader = self.reader();
        for at in (0..self.bytes.len()).step_by(4096) {
            self.expect(expanded, &reader, at, 4096);
        }
    }

    fn expect(&self, expanded: &Expanded, reader: &Reader, at: usize, count: usize) {
        let mut page = vec![0x5a; count];
        let count = expanded.read_at(reader, at as u64, &mut page).unwrap();
        let end = (at + page.len()).min(self.bytes.len()).max(at);
        let expected = self.bytes.get(at..end).unwrap_or_default();
        assert!(page[..count] == *expected, "{at}");
    }

    /// True if all of it comes from the store alone, and is right.
    fn is_all_there(&self, expanded: &Expanded) -> bool {
        let mut all = vec![0; self.bytes.len()];
        expanded.read(0, &mut all) && all == self.bytes
    }
}

/// The only store in a folder.
fn only_store(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let stores: Vec<_> = entries.filter(|path| path.extension().is_some()).collect();
    let [store] = stores.as_slice() else { panic!("{stores:?}") };
    assert_eq!(store.extension().unwrap(), "expanded");
    store.clone()
}

#[test]
fn what_one_expands_others_find() {
    let sample = Sample::new((5 << 20) + 777);
    let (first, early) = (sample.open().unwrap(), sample.open().unwrap());
    assert!(!sample.is_all_there(&first) && !sample.is_all_there(&early));
    sample.scan(&first);
    assert!(sample.is_all_there(&first) && sample.is_all_there(&early));
    assert!(sample.is_all_there(&sample.open().unwrap()));
    // The states of blocks and the head are all it takes besides.
    let taken = fs::metadata(sample.store()).unwrap().blocks() * 512;
    assert!(taken < sample.bytes.len() as u64 + 4 * HEAD_BYTES, "{taken}");
    // A pack that lies elsewhere is another one, whatever root it claims.
    let copy = sample.path.with_extension("copy");
    fs::copy(&sample.path, &copy).unwrap();
    let other = Expanded::open(sample.memory.path(), &Pack::open(&copy).unwrap(), 0).unwrap();
    assert!(!sample.is_all_there(&other));
}

#[test]
fn reads_of_any_length_from_a_store_that_is_half_full_are_right() {
    let sample = Sample::new((2 << 20) + 777);
    let (expanded, reader) = (sample.open().unwrap(), sample.reader());
    let mut state = 7_u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % end
    };
    for _ in 0..400 {
        let at = below(sample.bytes.len() + 5000);
        sample.expect(&expanded, &reader, at, below(70_000));
    }
    for count in [0, 1, 100, 4096, 65_536] {
        sample.expect(&sample.open().unwrap(), &reader, sample.bytes.len() - 50, count);
    }
}

#[test]
fn damaged_block_is_refused_and_is_no_part_of_the_store() {
    let sample = Sample::new(1 << 20);
    let mut bytes = fs::read(&sample.path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&sample.path, bytes).unwrap();
    let (expanded, reader) = (sample.open().unwrap(), sample.reader());
    let mut damaged = 0;
    for at in (0..sample.bytes.len()).step_by(4096) {
        for _ in 0..2 {
            let mut page = [0; 4096];
            match expanded.read_at(&reader, at as u64, &mut page) {
                Ok(count) => assert!(page[..count] == sample.bytes[at..at + 4096], "{at}"),
                Err(PackError::Damaged { part: "block", .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    // The pages of one block, each asked for twice.
    assert_eq!(damaged, 2 * BLOCK / 4096);
    assert!(!sample.is_all_there(&sample.open().unwrap()));
}

#[test]
fn store_that_is_cut_is_left_at_once() {
    let sample = Sample::new(1 << 20);
    for new_bytes in [0, HEAD_BYTES, 500_000, 1 << 20] {
        let (full, half) = (sample.open().unwrap(), sample.open().unwrap());
        sample.scan(&full);
        assert!(sample.is_all_there(&full));
        let cut = OpenOptions::new().write(true).open(sample.store()).unwrap();
        cut.set_len(new_bytes).unwrap();
        // Both go on, the one that knew of every block too, and neither makes it long again.
        sample.scan(&half);
        sample.scan(&full);
        assert_eq!(cut.metadata().unwrap().len(), new_bytes);
        let why = sample.open().unwrap_err().to_string();
        assert!(why.contains("or was cut; remove it"), "{why}");
        fs::remove_file(sample.store()).unwrap();
    }
}

/// What the open store says of what lies under its name.
fn refused(sample: &Sample, expected: &str) {
    let error = sample.open().unwrap_err();
    assert!(matches!(error, ExpandedError::NotNow(_)), "{error}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn what_others_may_have_made_is_not_used() {
    let sample = Sample::new(200_000);
    drop(sample.open().unwrap());
    let store = sample.store();
    fs::set_permissions(&store, Permissions::from_mode(0o620)).unwrap();
    refused(&sample, "others may have written to it");
    fs::set_permissions(&store, Permissions::from_mode(0o600)).unwrap();
    drop(sample.open().unwrap());
    let other = TempDir::new_in(MEMORY).unwrap();
    let second = other.path().join("second");
    fs::hard_link(&store, &second).unwrap();
    refused(&sample, "others may have written to it");
    fs::remove_file(&store).unwrap();
    symlink(&second, &store).unwrap();
    refused(&sample, "symbolic link");
    fs::remove_file(&store).unwrap();
    fs::create_dir(&store).unwrap();
    refused(&sample, "directory");
    fs::remove_dir(&store).unwrap();
    fs::rename(&second, &store).unwrap();
    drop(sample.open().unwrap());
    if pagewarden_core::system::process::geteuid().is_root() {
        chown(&store, Some(1), None).unwrap();
        refused(&sample, "another user");
    } else {
        eprintln!("SKIPPED: only root can give a file away");
    }
}

#[test]
fn store_of_something_else_is_not_used() {
    let sample = Sample::new(200_000);
    drop(sample.open().unwrap());
    let store = sample.store();
    let mut bytes = fs::read(&store).unwrap();
    // One byte of each field of its head.
    for place in [0, 8, 12, 17, 24, 55] {
        bytes[place] ^= 1;
        fs::write(&store, &bytes).unwrap();
        refused(&sample, "not what this program made");
        bytes[place] ^= 1;
    }
    fs::write(&store, &bytes).unwrap();
    drop(sample.open().unwrap());
}

#[test]
fn folder_on_a_disk_is_refused() {
    let sample = Sample::new(10_000);
    for (folder, words) in [
        ("/proc/self", "does not lie in memory"),
        ("/dev/shm/there is none", "No such file"),
        ("/proc/self/status", "Not a directory"),
    ] {
        let error = sample.open_in(Path::new(folder)).unwrap_err();
        assert!(matches!(error, ExpandedError::NoPlace(_)), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains(folder), "{error}");
    }
}

/// A file system in memory of a given size, if we may mount one.
struct Small(TempDir);

impl Small {
    fn new(bytes: u64, options: &str) -> Option<Self> {
        let folder = TempDir::new_in(MEMORY).unwrap();
        let arguments = ["-t", "tmpfs", "-o", &format!("{options},size={bytes}"), "none"];
        let done = Command::new("mount").args(arguments).arg(folder.path()).output();
        if done.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("SKIPPED: no file system can be mounted here");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn store_takes_half_of_what_is_free_and_the_rest_is_read_without_it() {
    const ROOM: u64 = 32 << 20;
    // Where a block takes two mebibytes, all of them may be taken by a few.
    for options in ["huge=never", "huge=always"] {
        let Some(small) = Small::new(ROOM, options) else { return };
        let sample = Sample::new(24 << 20);
        let (expanded, reader) = (sample.open_in(small.0.path()).unwrap(), sample.reader());
        for at in (0..sample.bytes.len()).step_by(1 << 20) {
            sample.expect(&expanded, &reader, at, 4096);
        }
        sample.scan(&expanded);
        sample.scan(&sample.open_in(small.0.path()).unwrap());
        assert_eq!(expanded.use_of.load(Ordering::Relaxed), FULL);
        let taken = expanded.store.metadata().unwrap().blocks() * 512;
        let (least, most) = (ROOM / 2 - 2 * ROOM_STEP_BYTES, ROOM / 2 + (2 << 20));
        assert!(taken <= most && taken >= least, "{taken} {options}");
    }
}

#[test]
fn file_system_without_room_is_no_error() {
    let Some(small) = Small::new(32 << 20, "mode=700") else { return };
    let sample = Sample::new(8 << 20);
    let expanded = sample.open_in(small.0.path()).unwrap();
    // There is room, and it was granted, and then another file takes all of it.
    sample.expect(&expanded, &sample.reader(), 0, 4096);
    let taken = expanded.store.metadata().unwrap().blocks() * 512;
    assert!(expanded.most_bytes.load(Ordering::Relaxed) > taken + (1 << 20));
    let mut other = File::create(small.0.path().join("other")).unwrap();
    while io::Write::write_all(&mut other, &[7; 4096]).is_ok() {}
    sample.scan(&expanded);
    assert_eq!(expanded.use_of.load(Ordering::Relaxed), FULL);
    // What was there is still read from there.
    let mut page = [0; 4096];
    assert!(expanded.read(0, &mut page) && page == sample.bytes[..4096]);
    // Nor is there room to make one.
    fs::remove_file(only_store(small.0.path())).unwrap();
    drop(expanded);
    while io::Write::write_all(&mut other, &[7; 4096]).is_ok() {}
    let error = sample.open_in(small.0.path()).unwrap_err();
    assert!(matches!(error, ExpandedError::NotNow(_)), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
}

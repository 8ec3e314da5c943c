//! Runs that end at any change to the disk, by a kill or by power failure.
//!
//! After a kill, what was written is there, and part of what was being written.
//! After power failure, of everything that was not synced any part may be there:
//! any of the names, any of the 512-byte sectors, in any order.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::{
    CHECKSUM, CLEAN, Dice, Files, assert_copied, copy_of, image, lay_out, request, run_on, shop_of,
};
use crate::checksum::sqlserver::PAGE_BYTES;
use crate::protect::Options;
use crate::protect::disk::{Disk, System, Written};
use crate::verdict::Protection;

const SECTOR: usize = 512;

/// A change to the disk; files by name.
#[derive(Debug, Clone)]
enum Change {
    Create(String),
    Write(String, u64, Vec<u8>),
    Length(String, u64),
    Sync(String),
    SyncFolder,
    Rename(String, String),
    Remove(String),
    Other,
}

/// Notes every change, and dies at one of them: from then on nothing happens.
struct Recorder {
    lives: usize,
    changes: Mutex<(Vec<Change>, Dice)>,
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn dead() -> io::Error {
    io::Error::other("dead")
}

impl Recorder {
    fn new(lives: usize) -> Self {
        Self { lives, changes: Mutex::new((Vec::new(), Dice((lives as u64).saturating_add(1)))) }
    }

    fn note(&self, change: Change) -> io::Result<MutexGuard<'_, (Vec<Change>, Dice)>> {
        let mut changes = self.changes.lock().unwrap();
        if changes.0.len() >= self.lives {
            return Err(dead());
        }
        changes.0.push(change);
        Ok(changes)
    }
}

impl Disk for Recorder {
    fn create(&self, path: &Path, like: &Metadata) -> io::Result<Written> {
        let mut guard = self.note(Change::Create(name(path)))?;
        // What is there already is no change.
        System.create(path, like).inspect_err(|_| drop(guard.0.pop()))
    }

    fn write_at(&self, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Ok(_guard) = self.note(Change::Write(name(&file.path), offset, bytes.to_vec())) else {
            // Killed inside this write: the system may have done part of it.
            let mut changes = self.changes.lock().unwrap();
            if changes.0.len() == self.lives {
                let part = changes.1.below(bytes.len() + 1);
                System.write_at(file, &bytes[..part], offset)?;
                changes.0.push(Change::Other);
            }
            return Err(dead());
        };
        System.write_at(file, bytes, offset)
    }

    fn set_length(&self, file: &Written, length: u64) -> io::Result<()> {
        let _guard = self.note(Change::Length(name(&file.path), length))?;
        System.set_length(file, length)
    }

    fn share_blocks(&self, _: &Written, _: &File) -> bool {
        false
    }

    fn set_attributes(&self, file: &Written, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Other)?;
        System.set_attributes(file, like)
    }

    // Nothing is waited for: what is synced is in the record.
    fn sync(&self, file: &Written) -> io::Result<()> {
        self.note(Change::Sync(name(&file.path))).map(drop)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let is_copy = name(path) == "copy";
        self.note(if is_copy { Change::SyncFolder } else { Change::Other }).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Rename(name(from), name(to)))?;
        System.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut guard = self.note(Change::Remove(name(path)))?;
        System.remove(path).inspect_err(|_| drop(guard.0.pop()))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let _guard = self.note(Change::Other)?;
        System.make_folder(path)
    }

    fn set_folder_attributes(&self, path: &Path, like: &Metadata) -> io::Result<()> {
        let _guard = self.note(Change::Other)?;
        System.set_folder_attributes(path, like)
    }
}

/// Does not wait for the device: these tests have no power failures of their own.
struct Hasty;

impl Disk for Hasty {
    fn sync(&self, _: &Written) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// What power failure may leave of these changes in the folder of the copy.
fn remains(changes: &[Change], dice: &mut Dice) -> Files {
    let mut files: Vec<Vec<u8>> = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    // What every name led to in the run, lost or not.
    let mut running: HashMap<String, usize> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        let later = &changes[at + 1..];
        let named = later.iter().any(|one| matches!(one, Change::SyncFolder));
        let synced =
            |name: &str| later.iter().any(|one| matches!(one, Change::Sync(it) if it == name));
        let mut lucky = || dice.below(2) == 0;
        match change {
            Change::Create(name) => {
                files.push(Vec::new());
                running.insert(name.clone(), files.len() - 1);
                if named || lucky() {
                    names.insert(name.clone(), files.len() - 1);
                }
            }
            Change::Write(name, offset, bytes) => {
                let all = synced(name);
                let file = &mut files[running[name]];
                for (sector, part) in bytes.chunks(SECTOR).enumerate() {
                    if all || lucky() {
                        let begin = usize::try_from(*offset).unwrap() + sector * SECTOR;
                        file.resize(file.len().max(begin + part.len()), 0);
                        file[begin..begin + part.len()].copy_from_slice(part);
                    }
                }
            }
            Change::Length(name, length) => {
                if synced(name) || lucky() {
                    files[running[name]].resize(usize::try_from(*length).unwrap(), 0);
                }
            }
            Change::Rename(from, to) => {
                let file = running.remove(from).unwrap();
                running.insert(to.clone(), file);
                // In one step, on every file system that databases lie on.
                if named || lucky() {
                    names.remove(from);
                    names.insert(to.clone(), file);
                }
            }
            Change::Remove(name) => {
                running.remove(name);
                if named || lucky() {
                    names.remove(name);
                }
            }
            Change::Sync(_) | Change::SyncFolder | Change::Other => {}
        }
    }
    names.into_iter().map(|(name, file)| (name, files[file].clone())).collect()
}

/// Without reading back, which waits for a real device.
fn one_thread() -> Options {
    Options { jobs: std::num::NonZero::<usize>::MIN, verify: false, ..Options::default() }
}

/// What holds in every moment: whatever has its own name is whole, a primary file has it only
/// when all others do, and what has not is known by its name, and without its first page unless it
/// is whole. Says whether the copy is complete.
fn is_true_to_its_word(whole: &Files, copy: &Files) -> bool {
    for (name, bytes) in copy {
        if let Some(own) = name.strip_suffix(".pagewarden-unfinished") {
            let begin = &bytes[..bytes.len().min(PAGE_BYTES)];
            let page = &whole[own][..PAGE_BYTES];
            let is_begun = begin.iter().zip(page).all(|(is, was)| is == was || *is == 0);
            assert!(is_begun, "{name} begins with something else");
            if begin.iter().any(|byte| *byte != 0) {
                // The first page is written when all others are on the device.
                assert!(bytes[PAGE_BYTES..] == whole[own][PAGE_BYTES..], "{name} begins too soon");
            }
        } else if name != "pagewarden-protect.copy" {
            assert!(*bytes == whole[name], "{name} is not whole");
        }
    }
    let is_complete = copy.contains_key("shop.mdf");
    assert!(!is_complete || whole.keys().all(|name| copy.contains_key(name)));
    is_complete
}

fn whole_copy(before: &Files, mode: Protection) -> (Files, Vec<Change>) {
    let (_folder, root) = lay_out(before);
    let recorder = Recorder::new(usize::MAX);
    run_on(&recorder, &request(&root, mode), &one_thread()).unwrap();
    let copy = image(&copy_of(&root));
    assert_copied(before, &copy, mode);
    (copy, recorder.changes.into_inner().unwrap().0)
}

/// Makes the copy on what is left of one.
fn finish(root: &Path, whole: &Files, was_complete: bool, mode: Protection) {
    match run_on(&Hasty, &request(root, mode), &one_thread()) {
        Ok(_) => {}
        // Complete, and no longer ours to touch.
        Err(error) => {
            assert!(was_complete && error.to_string().contains("not empty"), "{error}");
        }
    }
    assert!(image(&copy_of(root)) == *whole);
}

#[test]
fn killed_at_any_change_the_copy_is_known_as_unfinished_and_the_same_command_makes_it() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    let copy = copy_of(&root);
    let mut moments = 0;
    for mode in super::MODES {
        let (whole, changes) = whole_copy(&before, mode);
        for lives in 0..changes.len() {
            let died = run_on(&Recorder::new(lives), &request(&root, mode), &one_thread());
            assert!(died.is_err(), "{lives}");
            let is_complete = is_true_to_its_word(&whole, &image(&copy));
            finish(&root, &whole, is_complete, mode);
            fs::remove_dir_all(&copy).unwrap();
            moments += 1;
        }
    }
    assert!(moments >= 200, "{moments} moments");
    assert!(image(&root) == before, "the source was written to");
}

#[test]
fn killed_again_and_again_the_same_command_makes_the_copy() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (whole, changes) = whole_copy(&before, Protection::Torn);
    let (_folder, root) = lay_out(&before);
    let mut dice = Dice(17);
    for _ in 0..30 {
        let mut is_complete = false;
        for _ in 0..3 {
            let lives = dice.below(changes.len());
            let _ = run_on(
                &Recorder::new(lives),
                &request(&root, Protection::Torn),
                &Options { jobs: std::num::NonZero::new(3).unwrap(), ..one_thread() },
            );
            is_complete = is_true_to_its_word(&whole, &image(&copy_of(&root)));
        }
        finish(&root, &whole, is_complete, Protection::Torn);
        fs::remove_dir_all(copy_of(&root)).unwrap();
    }
}

fn lay_out_copy(root: &Path, files: &Files) -> PathBuf {
    let copy = copy_of(root);
    fs::create_dir(&copy).unwrap();
    for (name, bytes) in files {
        fs::write(copy.join(name), bytes).unwrap();
    }
    copy
}

#[test]
fn after_power_failure_at_any_change_the_same_command_makes_the_copy() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (_folder, root) = lay_out(&before);
    // Of this very folder: the marker knows the times of its files.
    let recorder = Recorder::new(usize::MAX);
    run_on(&recorder, &request(&root, Protection::Torn), &one_thread()).unwrap();
    let whole = image(&copy_of(&root));
    fs::remove_dir_all(copy_of(&root)).unwrap();
    let changes = recorder.changes.into_inner().unwrap().0;
    let mut dice = Dice(3);
    for end in 0..=changes.len() {
        for _ in 0..3 {
            let left = remains(&changes[..end], &mut dice);
            let is_complete = is_true_to_its_word(&whole, &left);
            let copy = lay_out_copy(&root, &left);
            finish(&root, &whole, is_complete, Protection::Torn);
            fs::remove_dir_all(copy).unwrap();
        }
    }
}

/// The same test must fail where the order is broken, or it proves nothing.
#[test]
fn power_failure_without_syncs_would_be_noticed() {
    let before = shop_of(CLEAN | CHECKSUM);
    let (whole, mut changes) = whole_copy(&before, Protection::Torn);
    changes.retain(|change| !matches!(change, Change::Sync(_)));
    let mut dice = Dice(3);
    let lies = (0..20).filter(|_| {
        let left = remains(&changes, &mut dice);
        left.get("shop.mdf").is_some_and(|bytes| *bytes != whole["shop.mdf"])
    });
    assert!(lies.count() > 0);
}

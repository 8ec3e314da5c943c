//! Which files a target has, before a page of any is read.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use pagewarden::database::{Step, Target};
use pagewarden::system::{self, MetadataExt as _};
use sha2::{Digest as _, Sha256};

use crate::ledger::claims::{Identity, Listed};

/// A file that was changed less than this before it was looked at may be changed again without
/// another time: file systems count in ticks of the system's clock.
const TICK_NANOSECONDS: i64 = 20_000_000;

/// The files of a target.
#[derive(Debug, Default)]
pub struct Listing {
    /// As the ledger wants them.
    pub files: Vec<Listed>,
    /// Where they are, by name.
    pub places: HashMap<String, PathBuf>,
    /// Something could not be read, such as a folder: there may be other files.
    pub is_blind: bool,
}

impl Listing {
    /// Walks a target. `None` if its pages come out of something that must be read as a whole: an
    /// archive, a pack, a backup.
    #[must_use]
    pub fn of(target: Target) -> Option<Self> {
        let mut listing = Self::default();
        for step in target.steps {
            match step {
                Step::File(file) => {
                    let identity = identity(&file.path).unwrap_or(Identity {
                        // It cannot be looked at; reading it will say why.
                        inode: 0,
                        born: 0,
                        changed: 0,
                        size: file.listed_bytes,
                    });
                    let before = listing.places.insert(file.name.clone(), file.path.clone());
                    if before.is_some() {
                        return None;
                    }
                    listing.files.push(Listed {
                        identity,
                        page_size: file.format.page_size().max(1) as u64,
                        first: file.first_offset.0,
                        end: file.end(identity.size).0,
                        name: file.name,
                    });
                }
                Step::Unread(_) => listing.is_blind = true,
                // What comes behind files is no matter of pages.
                Step::Passed(_) if !listing.files.is_empty() => break,
                Step::Pages(_) | Step::Apart(_) | Step::Passed(_) => return None,
                _ => {}
            }
        }
        Some(listing)
    }
}

/// What a file looks like now; `None` if it cannot be looked at.
#[must_use]
pub fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    let (_, inode) = system::identity(&metadata, path).ok()?;
    Some(identity_of(&metadata, inode))
}

/// What a file was that was opened at this place.
pub(crate) fn identity_of_opened(metadata: &Metadata, path: &Path) -> Option<Identity> {
    let (_, inode) = system::identity(metadata, path).ok()?;
    Some(identity_of(metadata, inode))
}

fn identity_of(metadata: &Metadata, inode: u64) -> Identity {
    // When the inode was changed: a program can set back the time of the content, not this one.
    let changed = metadata
        .ctime()
        .checked_mul(1_000_000_000)
        .and_then(|time| time.checked_add(metadata.ctime_nsec()))
        .unwrap_or(0);
    let is_young = nanoseconds(SystemTime::now()).saturating_sub(changed) < TICK_NANOSECONDS;
    Identity {
        inode: inode.cast_signed(),
        born: metadata.created().map_or(0, nanoseconds),
        changed: if is_young { 0 } else { changed },
        size: metadata.len(),
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// Folders in folders that a signature looks into.
const DEPTH_MAX: usize = 32;

/// What all files of an archive or a repository look like: another signature is another archive.
#[must_use]
pub fn signature(paths: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    let mut seen = HashSet::new();
    for path in paths {
        add(path, 0, &mut hash, &mut seen);
    }
    hex(&hash.finalize())
}

fn add(path: &Path, depth: usize, hash: &mut Sha256, seen: &mut HashSet<(u64, u64)>) {
    use pagewarden::system::OsStrExt as _;
    hash.update((path.as_os_str().len() as u64).to_le_bytes());
    hash.update(path.as_os_str().as_bytes());
    let metadata = if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) };
    let Ok(metadata) = metadata else { return };
    let Ok(known) = system::identity(&metadata, path) else { return };
    if metadata.is_dir() {
        if depth >= DEPTH_MAX || !seen.insert(known) {
            return;
        }
        let mut entries: Vec<_> = fs::read_dir(path)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        entries.sort();
        for entry in entries {
            add(&entry, depth + 1, hash, seen);
        }
        return;
    }
    let identity = identity_of(&metadata, known.1);
    // Such a file may be written again within the same tick: it looks like no other, itself included.
    if identity.changed == 0 {
        hash.update(nanoseconds(SystemTime::now()).to_le_bytes());
    }
    for word in [identity.inode, identity.born, identity.changed, identity.size.cast_signed()] {
        hash.update(word.to_le_bytes());
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_follows_every_file() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().to_owned()];
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/a"), "one").unwrap();
        let before = signature(&paths);
        fs::write(folder.path().join("deep/b"), "").unwrap();
        let with_another = signature(&paths);
        assert_ne!(before, with_another);
        fs::write(folder.path().join("deep/a"), "three").unwrap();
        assert_ne!(with_another, signature(&paths));
    }
    #[test]
    fn file_that_was_just_written_looks_like_no_other_until_a_tick_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        let paths = [file.clone()];
        fs::write(&file, "one").unwrap();
        let (first, second) = (signature(&paths), signature(&paths));
        // A machine that stops for a tick between the two is no fault.
        let is_young = fs::metadata(&file).map(|metadata| identity_of(&metadata, 0).changed == 0);
        assert!(first != second || !is_young.unwrap());
        let tick = std::time::Duration::from_nanos(TICK_NANOSECONDS.unsigned_abs());
        std::thread::sleep(2 * tick);
        assert_eq!(signature(&paths), signature(&paths));
    }
}

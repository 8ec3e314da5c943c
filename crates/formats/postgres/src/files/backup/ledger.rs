//! What was seen of a backup's files, to be compared with its manifest.
//!
//! A backup has as many files as its cluster, so that each takes 24 bytes here:
//! its name by a keyed hash, its length, and the first bytes of its own hash,
//! which is enough against accidents. Names that are to be reported come from
//! the manifest.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read, Seek, SeekFrom};

use crate::files::backup::hash::Algorithm;
use crate::files::backup::manifest::{self, Entry, Manifest, ManifestError};
use pagewarden_core::verdict::{Finding, Kind, Severity};

/// Past this number of files with something wrong the others are counted only.
const FINDINGS_MAX: u64 = 10_000;

/// Files that may differ from the manifest or be missing in it: what is written
/// after it, or kept apart from it. Source: `pg_verifybackup`, which leaves out
/// the same.
#[must_use]
pub fn is_beyond_manifest(path: &str) -> bool {
    matches!(
        path,
        "backup_manifest" | "postgresql.auto.conf" | "recovery.signal" | "standby.signal"
    ) || path.starts_with("pg_wal/")
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    /// The beginning of the hash.
    hash: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ledger {
    /// How files are hashed.
    pub(super) algorithm: Algorithm,
    keys: RandomState,
    files: HashMap<u64, Seen>,
    /// How many of them a manifest ought to list.
    to_be_listed: u64,
}

/// What came of the comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) manifest: Manifest,
    pub(super) findings: Vec<Finding>,
    /// Files with something wrong that are not among the findings.
    pub(super) more: u64,
    /// Files that the manifest does not list.
    pub(super) unlisted: u64,
    /// Files that are hashed in another way than we did.
    pub(super) other_hashes: u64,
}

impl Ledger {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, keys: RandomState::new(), files: HashMap::new(), to_be_listed: 0 }
    }

    /// Records a file; false if it was recorded before.
    pub(super) fn add(&mut self, path: &str, bytes: u64, hash: &[u8]) -> bool {
        self.to_be_listed = self.to_be_listed.saturating_add(u64::from(!is_beyond_manifest(path)));
        let seen = Seen { bytes, hash: beginning(hash) };
        self.files.insert(self.keys.hash_one(path), seen).is_none()
    }

    /// True if a file was recorded.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(&self.keys.hash_one(path))
    }

    /// Holds what was seen against a manifest. Only files that `is_ours` says
    /// yes to may be missing.
    ///
    /// # Errors
    /// The manifest cannot be believed; then nothing is said of the files.
    pub(super) fn compare(
        &self,
        mut source: impl Read + Seek,
        is_ours: &dyn Fn(&str) -> bool,
    ) -> Result<Compared, ManifestError> {
        // Once for its own checksum, once for what it says.
        let rewind = |source: &mut dyn Seek| {
            source.seek(SeekFrom::Start(0)).map_err(|error| ManifestError(error.to_string()))
        };
        rewind(&mut source)?;
        let manifest = manifest::read(&mut source, &mut |_| {})?;
        rewind(&mut source)?;
        let mut compared = Compared { manifest, ..Compared::default() };
        let mut listed = 0_u64;
        manifest::read(&mut source, &mut |entry| {
            if self.has(&entry.path) {
                listed = listed.saturating_add(u64::from(!is_beyond_manifest(&entry.path)));
            }
            if let Some(finding) = self.fault(&entry, is_ours, &mut compared.other_hashes) {
                if (compared.findings.len() as u64) < FINDINGS_MAX {
                    compared.findings.push(finding);
                } else {
                    compared.more = compared.more.saturating_add(1);
                }
            }
        })?;
        compared.unlisted = self.to_be_listed.saturating_sub(listed);
        Ok(compared)
    }

    fn fault(
        &self,
        entry: &Entry,
        is_ours: &dyn Fn(&str) -> bool,
        other_hashes: &mut u64,
    ) -> Option<Finding> {
        if is_beyond_manifest(&entry.path) || !is_ours(&entry.path) {
            return None;
        }
        let Some(seen) = self.files.get(&self.keys.hash_one(&entry.path)) else {
            return Some(missing(&entry.path));
        };
        if seen.bytes != entry.bytes {
            return Some(wrong_length(&entry.path, seen.bytes, entry.bytes));
        }
        match &entry.hash {
            Some((algorithm, _)) if *algorithm != self.algorithm => {
                *other_hashes = other_hashes.saturating_add(1);
                None
            }
            Some((_, hash)) if beginning(hash) != seen.hash => {
                Some(wrong_hash(&entry.path, self.algorithm))
            }
            _ => None,
        }
    }
}

/// A file of the manifest that is not there.
pub(super) fn missing(path: &str) -> Finding {
    let detail = "the backup's manifest lists this file, and it is not there".to_owned();
    found(path, Kind::Missing, detail)
}

/// A file that has another length than in the manifest.
pub(super) fn wrong_length(path: &str, bytes: u64, listed: u64) -> Finding {
    let kind = if bytes < listed { Kind::Truncated } else { Kind::Checksum };
    found(path, kind, format!("{bytes} bytes, in the backup's manifest {listed}"))
}

/// A file that has another hash than in the manifest.
pub(super) fn wrong_hash(path: &str, algorithm: Algorithm) -> Finding {
    let detail = format!(
        "its {} is not the one in the backup's manifest: the file changed after it was backed up",
        algorithm.name()
    );
    found(path, Kind::Checksum, detail)
}

fn found(path: &str, kind: Kind, detail: String) -> Finding {
    Finding::of_file(path, Severity::Damage, kind, detail)
        .with_hint("take this file from another copy of the backup, or take a new backup")
}

fn beginning(hash: &[u8]) -> u64 {
    hash.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

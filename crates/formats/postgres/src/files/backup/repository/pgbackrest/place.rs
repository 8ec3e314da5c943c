//! Where a set's files lie, and how what is wrong with one is said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::SEGMENT_BYTES;
use crate::files::backup::place::{Role, locate};
use crate::files::backup::repository::pgbackrest::expiry::Expiry;
use crate::files::backup::repository::pgbackrest::manifest::Entry;
use crate::files::backup::repository::pgbackrest::memory::Memory;
use crate::files::backup::repository::pgbackrest::stored::{Coding, Summed};
use pagewarden_core::database::Step;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, StoredPlace, Unread};

/// Damaged files past which the others are not remembered for the pages' findings.
const DAMAGED_MAX: usize = 100_000;
const HINT: &str = "restore from another repository or another set that does not need these bytes, and take a \
     new full backup";

/// Pages of the cluster, once its control file was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) page_size: u64,
    pub(super) segment_pages: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { page_size: 8192, segment_pages: SEGMENT_BYTES / 8192 }
    }
}

/// Stored files that turned out to be damaged, by the name in the database.
pub(super) type Damaged = Arc<Mutex<HashMap<String, StoredPlace>>>;

/// Bytes of a file that do not come, as part of what a finding says or for another reason.
pub(super) fn lost(entry: &Entry, at: u64, length: u64, error: impl Into<String>) -> Step {
    Step::Unread(Unread::stretch(&*entry.name, ByteOffset(at), length, error))
}

/// A set, as its files see it.
#[derive(Clone)]
pub(super) struct SetPlace {
    /// The folder of the stanza's backups.
    pub(super) folder: StorePath,
    /// Its name in the repository: `backup/main`.
    pub(super) shown: String,
    /// The set's label.
    pub(super) label: String,
    /// Which sets are listed by now.
    pub(super) expiry: Arc<Expiry>,
    /// Labels that block maps refer to.
    pub(super) references: Vec<String>,
    /// How whole files that are not bundled are stored.
    pub(super) coding: Coding,
    /// Bundled files are stored without magic bytes.
    pub(super) is_raw: bool,
    /// What the run has verified.
    pub(super) memory: Arc<Mutex<Memory>>,
    /// What is damaged.
    pub(super) damaged: Damaged,
    pub(super) geometry: Geometry,
}

impl SetPlace {
    /// The stored file of an entry, below the stanza's folder.
    pub(super) fn stored_file(&self, entry: &Entry) -> String {
        let label = entry.fields.reference.as_deref().unwrap_or(&self.label);
        match entry.fields.bundle {
            Some(bundle) => format!("{label}/bundle/{bundle}"),
            None if entry.fields.map_bytes.is_some() => {
                format!("{label}/{}.pgbi", entry.stored_name)
            }
            None => format!("{label}/{}{}", entry.stored_name, self.coding.codec.ending()),
        }
    }

    /// The stored place of an entry.
    pub(super) fn origin(&self, entry: &Entry) -> StoredPlace {
        self.origin_of(&self.stored_file(entry), entry.fields.bundle_offset)
    }

    /// A place in a stored file below the stanza's folder.
    pub(super) fn origin_of(&self, stored_file: &str, offset: u64) -> StoredPlace {
        let stored_file = format!("{}/{stored_file}", self.shown);
        StoredPlace { stored_file, stored_offset: Some(ByteOffset(offset)) }
    }

    /// The page at a byte of a relation's file, with that byte.
    fn page_at(&self, name: &str, offset: u64) -> Option<(PageNo, ByteOffset)> {
        let (_, Role::Relation(place)) = locate(name)? else { return None };
        let before = u64::from(place.file.segment).saturating_mul(self.geometry.segment_pages);
        let index = offset.checked_div(self.geometry.page_size)?;
        let begin = index.saturating_mul(self.geometry.page_size);
        Some((PageNo(before.saturating_add(index)), ByteOffset(begin)))
    }

    /// Damage of stored bytes; `at` is the byte of the file up to which all is well.
    pub(super) fn damage(
        &self,
        entry: &Entry,
        at: Option<u64>,
        origin: StoredPlace,
        (kind, detail): (Kind, String),
    ) -> Step {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.len() < DAMAGED_MAX {
            damaged.entry(entry.name.clone()).or_insert_with(|| origin.clone());
        }
        let mut finding = Finding::of_file(&entry.name, Severity::Damage, kind, detail)
            .with_hint(HINT)
            .stored_at(origin);
        if let Some((page, offset)) = at.and_then(|at| self.page_at(&entry.name, at)) {
            finding.place.page = Some(page);
            finding.place.offset = Some(offset);
        }
        Step::Finding(finding)
    }

    /// Bytes of a file whose stored bytes cannot be read.
    pub(super) fn unread(&self, entry: &Entry, at: u64, length: u64, error: &str) -> Step {
        let stored = self.stored_file(entry);
        lost(entry, at, length, format!("{error} ({}/{stored})", self.shown))
    }

    /// True if the set was expired while it was read.
    pub(super) fn has_expired(&self) -> bool {
        self.expiry.has_expired(&self.label)
    }

    /// What is wrong with the stored bytes of an entry by their sum and length alone.
    pub(super) fn fault_of(&self, entry: &Entry, summed: &Summed) -> Option<(Kind, String)> {
        let listed = entry.stored_bytes();
        if summed.bytes < listed {
            let what = if entry.fields.bundle.is_some() { "bundle" } else { "stored file" };
            let detail = format!(
                "the {what} ends after {} of the {listed} bytes that the manifest lists for this file",
                summed.bytes
            );
            return Some((Kind::Truncated, detail));
        }
        let rck = entry.fields.rck.as_ref()?;
        (*rck != summed.hash).then(|| {
            let detail = format!(
                "the stored bytes are not those that were written: their SHA-1 is {}, in the manifest {rck}",
                summed.hash
            );
            (Kind::Checksum, detail)
        })
    }
}

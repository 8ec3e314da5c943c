//! Files under a running server, which may put others in their place: TRUNCATE,
//! ALTER TABLE and OPTIMIZE make a new file and give it the old one's name.
//!
//! A file is opened to see how its pages are laid out, and opened again to read
//! them. If another took its name in between, its pages are not those that were
//! meant. So a page that fails is believed only while the name still stands for the
//! file that was looked at first; if not, the new file is checked for itself in the
//! end.
//!
//! The same if page 0 names another tablespace than then: IMPORT TABLESPACE writes that
//! name into all pages of a file. And if it names another key, or none any more: ALTER TABLESPACE ...
//! ENCRYPTION of MySQL encrypts the pages of a file in their places, each time with a new key.
//!
//! What was looked at again as often as that is done, and is another file once more, is undecided.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::tablespaces::{Opening, OpeningKind};
use crate::page::encryption::info_offset;
use crate::page::fields::{FSP_FLAGS, SPACE_ID, read_u32};
use crate::page::layout::Layout;
use pagewarden_core::page::{
    Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict,
};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::system::identity;
use pagewarden_core::verdict::Standing;

/// More files are not opened again.
const REPLACED_MAX: usize = 10_000;

/// What tells a file from another that has had its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    space: Option<u32>,
    flags: Option<u32>,
    key_info: Option<[u8; KEY_INFO_BYTES]>,
}

/// As much of page 0 as has its tablespace's number and flags, in every layout.
const HEAD_BYTES: usize = FSP_FLAGS + 4;
/// What it says of the tablespace's key.
const KEY_INFO_BYTES: usize = 111;

impl FileIdentity {
    /// Of the file that has this name now.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        let (device, inode) = identity(&metadata, path).ok()?;
        Some(Self { device, inode, space: None, flags: None, key_info: None })
    }

    /// The same of a tablespace, which goes by its number and its key too.
    pub(crate) fn of_tablespace(path: &Path) -> Option<Self> {
        let known = Self::of(path)?;
        let Ok(file) = open_regular(path) else { return Some(known) };
        let mut head = [0; HEAD_BYTES];
        if !matches!(read_fully(&file, &mut head, 0), Ok(HEAD_BYTES)) {
            return Some(known);
        }
        let flags = read_u32(&head, FSP_FLAGS);
        let mut key_info = [0; KEY_INFO_BYTES];
        let place = Layout::of_flags(flags).and_then(|layout| info_offset(&layout));
        let place = place.and_then(|place| u64::try_from(place).ok());
        let read = place.map(|place| read_fully(&file, &mut key_info, place));
        let key_info = matches!(read, Some(Ok(KEY_INFO_BYTES))).then_some(key_info);
        let space = Some(read_u32(&head, SPACE_ID));
        Some(Self { space, flags: Some(flags), key_info, ..known })
    }

    fn now(opening: &Opening, path: &Path) -> Option<Self> {
        match opening.kind {
            OpeningKind::Aria => Self::of(path),
            OpeningKind::Tablespace | OpeningKind::Undo | OpeningKind::Fleeting => {
                Self::of_tablespace(path)
            }
        }
    }
}

/// Files that were replaced, by their names in the report.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    files: Mutex<BTreeMap<String, Opening>>,
    /// They are not opened again.
    is_last_round: AtomicBool,
}

impl Replaced {
    fn add(&self, opening: &Opening) {
        let mut replaced = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if replaced.len() < REPLACED_MAX {
            replaced.entry(opening.shown.clone()).or_insert_with(|| opening.clone());
        }
    }

    /// All so far; the list is empty then.
    pub(crate) fn take(&self) -> Vec<Opening> {
        let mut replaced = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *replaced).into_values().collect()
    }

    /// What is replaced from now on is not opened again.
    pub(crate) fn begin_last_round(&self) {
        self.is_last_round.store(true, Ordering::Relaxed);
    }
}

/// The pages of a file under a running server.
#[derive(Debug)]
pub(crate) struct InUse {
    /// What they must look like.
    pub(crate) pages: Arc<dyn PageFormat>,
    /// The file.
    pub(crate) path: PathBuf,
    /// Which one that was when it was looked at.
    pub(crate) identity: Option<FileIdentity>,
    /// How to open it again.
    pub(crate) opening: Opening,
    /// Where that is asked for.
    pub(crate) replaced: Arc<Replaced>,
}

/// Where the file is not the one that was meant, a page that passed is sound all the same.
fn undecided(found: &RunVerdict) -> RunVerdict {
    let mut open = RunVerdict { by_mode: found.by_mode, ..RunVerdict::default() };
    for (standing, pages) in found.standings.iter() {
        let is_sound =
            matches!(standing, Some(Standing::Ok | Standing::Empty | Standing::Unprotected));
        let standing = if is_sound { standing } else { Some(Standing::Undecided) };
        for _ in 0..pages {
            standing.into_iter().for_each(|standing| open.counts.add(standing));
            open.standings.push(standing);
        }
    }
    open
}

impl PageFormat for InUse {
    fn page_size(&self) -> usize {
        self.pages.page_size()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let mut found = RunVerdict::default();
        self.pages.judge(run, &mut found);
        // What cannot be tested may have another key by now.
        let is_asked = !found.findings.is_empty() || found.counts.unverifiable > 0;
        let now = is_asked.then(|| FileIdentity::now(&self.opening, &self.path));
        if now.is_some_and(|now| now != self.identity) {
            let is_gone = now.flatten().is_none();
            if is_gone || !self.replaced.is_last_round.load(Ordering::Relaxed) {
                self.replaced.add(&self.opening);
                run.bytes.chunks_exact(self.page_size()).for_each(|_| verdict.skip());
                return;
            }
            found = undecided(&found);
        }
        verdict.counts += found.counts;
        verdict.by_mode += found.by_mode;
        verdict.findings.append(&mut found.findings);
        for (standing, pages) in found.standings.iter() {
            (0..pages).for_each(|_| verdict.standings.push(standing));
        }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        self.pages.explain(page, finding, neighbours);
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        self.pages.fingerprint(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::page::PageFinding;
    use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity};

    #[test]
    fn tablespace_with_another_key_is_another_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut page = vec![0; 16_384];
        let identity = |page: &[u8]| {
            std::fs::write(file.path(), page).unwrap();
            FileIdentity::of_tablespace(file.path())
        };
        // A shared tablespace of MySQL, in the clear and encrypted.
        page[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&0x4800_u32.to_be_bytes());
        let clear = identity(&page);
        assert_eq!(identity(&page), clear);
        page[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&0x6800_u32.to_be_bytes());
        let encrypted = identity(&page);
        assert_ne!(encrypted, clear);
        // Another key.
        page[10_390 + 50] = 7;
        let other = identity(&page);
        assert_ne!(other, encrypted);
        page[SPACE_ID + 3] = 9;
        assert_ne!(identity(&page), other);
    }

    #[test]
    fn what_fails_of_a_file_that_is_another_by_now_is_undecided() {
        let mut found = RunVerdict::default();
        found.pass(Standing::Ok, Protection::Checksum);
        found.empty();
        found.pass(Standing::Unverifiable, Protection::Checksum);
        let failed = PageFinding::failed(PageNo(3), Severity::Damage, Kind::Checksum);
        found.fail(Protection::Checksum, failed);
        let open = undecided(&found);
        assert_eq!(open.findings, []);
        assert_eq!((open.counts.ok, open.counts.empty, open.counts.undecided), (1, 1, 2));
        assert_eq!((open.counts.unverifiable, open.counts.damaged), (0, 0));
        assert_eq!(open.by_mode.checksum, 3);
    }
}

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
//! name into all pages of a file.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::formats::innodb::files::tablespaces::{Opening, OpeningKind};
use crate::page::{Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict};
use crate::source::file::{open_regular, read_fully};

/// More files are not opened again.
const REPLACED_MAX: usize = 10_000;

/// What tells a file from another that has had its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    space: Option<u32>,
}

/// Where page 0 has its tablespace's number, in every layout.
const SPACE_ID: u64 = 34;

impl FileIdentity {
    /// Of the file that has this name now.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino(), space: None })
    }

    /// The same of a tablespace, which goes by its number too.
    pub(crate) fn of_tablespace(path: &Path) -> Option<Self> {
        let mut space = [0; 4];
        let read = open_regular(path).and_then(|file| read_fully(&file, &mut space, SPACE_ID));
        let space = matches!(read, Ok(4)).then(|| u32::from_be_bytes(space));
        Some(Self { space, ..Self::of(path)? })
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
pub(crate) struct Replaced(Mutex<BTreeMap<String, Opening>>);

impl Replaced {
    fn add(&self, opening: &Opening) {
        let mut replaced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if replaced.len() < REPLACED_MAX {
            replaced.entry(opening.shown.clone()).or_insert_with(|| opening.clone());
        }
    }

    /// All so far; the list is empty then.
    pub(crate) fn take(&self) -> Vec<Opening> {
        let mut replaced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *replaced).into_values().collect()
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

impl PageFormat for InUse {
    fn page_size(&self) -> usize {
        self.pages.page_size()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let mut found = RunVerdict::default();
        self.pages.judge(run, &mut found);
        if !found.findings.is_empty()
            && FileIdentity::now(&self.opening, &self.path) != self.identity
        {
            self.replaced.add(&self.opening);
            run.bytes.chunks_exact(self.page_size()).for_each(|_| verdict.skip());
            return;
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

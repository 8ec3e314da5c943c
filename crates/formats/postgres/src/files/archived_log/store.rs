//! What a tool gives of the log that it keeps.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::archived_log::fetched::{Ahead, Fetched};
use crate::files::archived_log::history::Histories;
use crate::files::wal::segment::{LooseSegments, SegmentName};
use pagewarden_core::verdict::Kind;

/// The log as a tool keeps it.
pub(crate) trait LogArchive: Send + Sync {
    /// All whole segments, in any order.
    fn segments(&self) -> &[StoredSegment];

    /// The histories of timelines, each with its number and its text, or why it cannot be read.
    fn histories(&self) -> Vec<(u32, Result<String, String>)>;

    /// The bytes of a segment as the server wrote them, in a file without a name.
    ///
    /// # Errors
    /// Why there are none.
    fn open(&self, segment: &StoredSegment) -> Result<File, NoSegment>;
}

/// A file of the log as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSegment {
    /// The 24 digits that the server named it by.
    pub(in crate::files) name: String,
    /// The path in the repository.
    pub(in crate::files) stored_file: String,
    /// It was still being received when it was left: `.partial`. What follows its last record is no
    /// part of the log.
    pub(in crate::files) is_partial: bool,
    /// Bytes of the stored file, where its folder tells.
    pub(in crate::files) stored_bytes: Option<u64>,
}

/// Why a segment has no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoSegment {
    /// What is stored is not what was: the kind of damage, where in the stored file if that is
    /// known, and the evidence in words.
    Damaged(Kind, Option<u64>, String),
    /// It was not looked at, for this reason, with what to do about it.
    Unread(String),
}

/// The segments of an archive by name, and what came of those that were asked for.
pub(super) struct Shelf {
    archive: Arc<dyn LogArchive>,
    histories: Histories,
    by_name: BTreeMap<SegmentName, StoredSegment>,
    failed: Mutex<BTreeMap<SegmentName, NoSegment>>,
    /// The one that was opened last: what is not sound in it is looked for page by page.
    last: Mutex<Option<(SegmentName, File)>>,
    pub(super) ahead: Ahead,
    /// Segments that were opened in their turn, since that was asked last.
    opened: AtomicU64,
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("segments", &self.by_name.len()).finish_non_exhaustive()
    }
}

impl Shelf {
    pub(super) fn new(archive: Arc<dyn LogArchive>, segment_bytes: u32) -> Self {
        let named = archive.segments().iter().filter_map(|stored| {
            Some((SegmentName::parse(&stored.name, segment_bytes)?, stored.clone()))
        });
        let by_name = named.collect();
        let texts = archive.histories().into_iter();
        let texts: Vec<_> = texts.filter_map(|(number, text)| Some((number, text.ok()?))).collect();
        let histories = Histories::parse(&texts);
        Self {
            archive,
            histories,
            by_name,
            failed: Mutex::default(),
            last: Mutex::default(),
            ahead: Ahead::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// The bytes of a segment, whatever came of it before; `None`: there is none of that name.
    pub(super) fn fetch(&self, name: SegmentName) -> Option<Fetched> {
        Some(self.archive.open(self.by_name.get(&name)?))
    }

    /// How many segments were opened in their turn since this was asked last.
    pub(super) fn take_opened(&self) -> u64 {
        self.opened.swap(0, Ordering::Relaxed)
    }

    pub(super) fn histories(&self) -> &Histories {
        &self.histories
    }

    /// In the order of timelines, and of addresses in each.
    pub(super) fn segments(&self) -> &BTreeMap<SegmentName, StoredSegment> {
        &self.by_name
    }

    /// True if a segment that was asked for has no bytes.
    pub(super) fn has_failed(&self, name: SegmentName) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(name).is_some_and(|(name, _)| failed.contains_key(name))
    }

    /// What a timeline has not itself is what its parent has: up to where it left it.
    pub(super) fn find(&self, name: SegmentName) -> Option<(&SegmentName, &StoredSegment)> {
        self.by_name.get_key_value(&name).or_else(|| {
            let parent = self.histories.timeline_at(name.timeline, name.begin)?;
            self.by_name.get_key_value(&SegmentName { timeline: parent, ..name })
        })
    }

    /// All that failed, in the order of their names.
    pub(super) fn failures(&self) -> Vec<(SegmentName, NoSegment)> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.iter().map(|(name, why)| (*name, why.clone())).collect()
    }
}

impl LooseSegments for Shelf {
    fn open(&self, name: SegmentName) -> io::Result<File> {
        if self.has_failed(name) {
            return Err(io::Error::other("it was tried before"));
        }
        let (name, stored) = self.find(name).ok_or(io::ErrorKind::NotFound)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = last.as_ref().filter(|(last, _)| last == name) {
            return file.try_clone();
        }
        let fetched = self.ahead.take(*name).unwrap_or_else(|| {
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.archive.open(stored)
        });
        let file = fetched.map_err(|why| {
            let words = match &why {
                NoSegment::Damaged(_, _, words) | NoSegment::Unread(words) => words.clone(),
            };
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(*name, why);
            io::Error::other(words)
        })?;
        *last = Some((*name, file.try_clone()?));
        Ok(file)
    }

    fn names(&self) -> Vec<SegmentName> {
        self.by_name.keys().copied().collect()
    }
}

//! Which pages of a file are allocated, by its pages of free space.
//!
//! A page of free space tells of 8,088 pages (63 MiB) and is looked for when it is first asked: most
//! intervals of most files never are, because only pages that are not formatted need it. One that is
//! damaged proves nothing about any page.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::checksum::PAGE_BYTES;
use crate::page::header::{Header, Lsn};
use crate::page::system::{PFS_PAGES, is_allocated, pfs_bytes, pfs_page_of};
use crate::page::{Allocation, Allocations};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{PageNo, Severity};

const WORD_PAGES: u64 = 64;
/// Intervals that are remembered: 1 KiB each.
const INTERVALS_MAX: usize = 1024;

/// The allocated pages of one interval.
#[derive(Debug)]
pub(super) struct Interval {
    words: Vec<u64>,
    /// The position in the log of the page that says so.
    lsn: Lsn,
}

impl Interval {
    /// What a page of free space says; `None` where it is none or damaged.
    pub(super) fn parse(page: &[u8; PAGE_BYTES], file: u16, number: u64) -> Option<Self> {
        let bytes = pfs_bytes(page, file, number)?;
        let word = |bytes: &[u8]| {
            let bits = bytes.iter().zip(0_u32..);
            bits.fold(0_u64, |word, (byte, at)| word | u64::from(is_allocated(*byte)) << at)
        };
        let words = bytes.chunks(64).map(word).collect();
        Some(Self { words, lsn: Header::parse(page).lsn })
    }

    fn is_allocated(&self, page: u64) -> bool {
        let at = page % PFS_PAGES;
        let word = usize::try_from(at / WORD_PAGES).ok().and_then(|at| self.words.get(at));
        word.is_some_and(|word| word >> (at % WORD_PAGES) & 1 != 0)
    }

    /// How many pages from `page` on are allocated, to the end of the interval.
    pub(super) fn allocated_from(&self, page: u64) -> u64 {
        let end = (page / PFS_PAGES).saturating_add(1).saturating_mul(PFS_PAGES);
        (page..end).map(|page| u64::from(self.is_allocated(page))).sum()
    }
}

/// Of a file that can be read at any place.
#[derive(Debug)]
pub(super) struct FileAllocations {
    file: File,
    number: u16,
    /// What a page proves that is in use and not formatted.
    proves: Severity,
    known: Mutex<BTreeMap<u64, Option<Arc<Interval>>>>,
}

impl FileAllocations {
    pub(super) fn new(file: File, number: u16, proves: Severity) -> Self {
        Self { file, number, proves, known: Mutex::default() }
    }

    /// What is known of the interval of `page`.
    pub(super) fn interval(&self, page: u64) -> Option<Arc<Interval>> {
        let number = pfs_page_of(page);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(interval) = known.get(&number) {
            return interval.clone();
        }
        if known.len() >= INTERVALS_MAX {
            known.pop_first();
        }
        let interval = self.read(number).map(Arc::new);
        known.insert(number, interval.clone());
        interval
    }

    fn read(&self, number: u64) -> Option<Interval> {
        let mut page = [0; PAGE_BYTES];
        let offset = number.checked_mul(PAGE_BYTES as u64)?;
        let read = read_fully(&self.file, &mut page, offset).ok()?;
        Interval::parse(&page, self.number, number).filter(|_| read == PAGE_BYTES)
    }
}

impl Allocations for FileAllocations {
    fn of(&self, page: PageNo) -> Allocation {
        match self.interval(page.0) {
            None => Allocation::Unknown,
            Some(interval) if interval.is_allocated(page.0) => Allocation::InUse(self.proves),
            Some(_) => Allocation::Free,
        }
    }
}

/// Of a file of a backup, whose pages come one after the other.
///
/// A backup is no picture of a moment. A page that was allocated while it was made may be on its way
/// to the disk, and the backup's log brings it back. The backup begins with a checkpoint, though, and
/// pages that were in use before that are on the disk: what a page of free space says that is older
/// than the checkpoint is proof.
#[derive(Debug, Default)]
pub(super) struct StreamAllocations {
    known: Mutex<BTreeMap<u64, Arc<Interval>>>,
    checkpoint: Arc<Mutex<Option<Lsn>>>,
}

impl StreamAllocations {
    /// The database's last checkpoint is available there, once it is known.
    pub(super) fn new(checkpoint: &Arc<Mutex<Option<Lsn>>>) -> Self {
        Self { known: Mutex::default(), checkpoint: Arc::clone(checkpoint) }
    }

    /// A page of free space came along. It comes before the pages that it tells of, and those are
    /// judged soon after: old ones need not be remembered.
    pub(super) fn learn(&self, number: u64, interval: Interval) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(number, Arc::new(interval));
        if known.len() > INTERVALS_MAX {
            known.pop_first();
        }
    }
}

impl Allocations for StreamAllocations {
    fn of(&self, page: PageNo) -> Allocation {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(interval) = known.get(&pfs_page_of(page.0)) else { return Allocation::Unknown };
        if !interval.is_allocated(page.0) {
            return Allocation::Free;
        }
        let checkpoint = *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        // Another block of the log at least: what was begun in the last one may not be done.
        let block = |lsn: Lsn| (lsn.log_file, lsn.block);
        let is_old = checkpoint.is_some_and(|checkpoint| block(interval.lsn) < block(checkpoint));
        Allocation::InUse(if is_old { Severity::Damage } else { Severity::Suspect })
    }
}

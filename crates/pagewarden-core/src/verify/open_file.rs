//! A file of pages while it is read: its descriptors, and which way each run
//! of it is read so that the page cache stays as it was.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::database::PageFile;
use crate::source::buffer::ALIGNMENT;
use crate::source::file::open_regular_with_status;
use crate::source::residency::{Residency, absent, expect_random_reads, fetch, forget, residency};
use crate::verdict::{ByteOffset, PageNo, Unread};
use crate::verify::again::Again;
use crate::verify::{Caching, RUN_BYTES};

/// A file of pages while it is read.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) page_file: PageFile,
    pub(super) page_size: u64,
    /// For reads through the page cache.
    pub(super) cached: Arc<File>,
    /// The length when it was opened.
    pub(super) length: u64,
    caching: Caching,
    /// No program is writing to it, and it takes less room than it is long: some of
    /// it was never written.
    has_holes: bool,
    /// For reads past the page cache, opened when they are first wanted;
    /// `None` where they are refused.
    direct: OnceLock<Option<Arc<File>>>,
    /// Set when a direct read was refused after all.
    direct_refused: AtomicBool,
    /// What the page cache did not hold before we read through it; `None` if
    /// that is not known.
    absent_before: OnceLock<Option<Vec<Range<u64>>>>,
    /// Up to where was read ahead through the page cache.
    fetched_to: AtomicU64,
}

/// What `st_blocks` counts in, everywhere.
const STATUS_BLOCK_BYTES: i64 = 512;
/// How far is read ahead through the page cache.
const AHEAD_BYTES: u64 = 4 * RUN_BYTES as u64;

/// Which way a run is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the page cache, which is left alone.
    Past,
    /// Out of the page cache, which holds all of it: left as it is, too.
    Resident,
    /// Through the page cache, since there is no other way or none is wanted:
    /// what it did not hold before is taken out of it again.
    Through,
    /// Not at all: nothing was ever written there, and reading it would give
    /// zeroes.
    Hole,
}

impl OpenFile {
    /// Opens a file.
    ///
    /// # Errors
    /// What the system says, or that it is no regular file.
    pub(super) fn open(page_file: &PageFile, caching: Caching, live: bool) -> io::Result<Self> {
        let (file, status) = open_regular_with_status(&page_file.path)?;
        if let Some(reading) = &page_file.reading {
            let _ = reading.opened.set(file.metadata()?);
        }
        let held_bytes = status.st_blocks.saturating_mul(STATUS_BLOCK_BYTES);
        expect_random_reads(&file);
        Ok(Self {
            page_size: page_file.format.page_size() as u64,
            page_file: page_file.clone(),
            cached: Arc::new(file),
            length: u64::try_from(status.st_size).unwrap_or(0),
            caching,
            has_holes: !live && held_bytes < status.st_size,
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            absent_before: OnceLock::new(),
            fetched_to: AtomicU64::new(0),
        })
    }

    /// The number of the page at `offset`.
    pub(super) fn page_at(&self, offset: u64) -> PageNo {
        self.page_file.page_at(ByteOffset(offset))
    }

    pub(super) fn unread(&self, offset: u64, length: u64, error: impl Into<String>) -> Unread {
        Unread {
            file: self.page_file.name.clone(),
            offset: ByteOffset(offset),
            length,
            error: error.into(),
        }
    }

    /// Notes that it ended before its length.
    pub(super) fn is_cut(&self) {
        if let Some(reading) = &self.page_file.reading {
            reading.was_cut.store(true, Ordering::Relaxed);
        }
    }

    /// The way for a run that has not been read yet.
    pub(super) fn way(&self, offset: u64, length: usize) -> Way {
        if self.has_holes && is_hole(&self.cached, &(offset..offset + length as u64)) {
            return Way::Hole;
        }
        if self.caching == Caching::Cached {
            return Way::Through;
        }
        if self.caching == Caching::Auto
            && residency(&self.cached, offset..offset + length as u64) == Residency::Whole
        {
            return Way::Resident;
        }
        if offset.is_multiple_of(ALIGNMENT as u64) && self.direct().is_some() {
            Way::Past
        } else {
            Way::Through
        }
    }

    /// The file for direct reads; `None` where they are refused or not wanted.
    pub(super) fn direct(&self) -> Option<&Arc<File>> {
        if self.caching == Caching::Cached || self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        self.direct.get_or_init(|| self.open_direct_twin().map(Arc::new)).as_ref()
    }

    /// To read pages again that were read this way.
    pub(super) fn again(&self, way: Way) -> Again<'_> {
        Again { file: self, was_past: way == Way::Past }
    }

    /// To be called when a direct read turns out to be refused.
    pub(super) fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    /// What to read from when it is done step by step. A run that goes past
    /// the page cache stays past it, or a sector that has gone bad would hide
    /// behind its cached copy; only pages smaller than the alignment of direct
    /// reads must be read the other way.
    pub(super) fn readable(&self, way: Way) -> (&File, Way) {
        if way == Way::Resident {
            return (&self.cached, way);
        }
        let aligned = way == Way::Past && self.page_size.is_multiple_of(ALIGNMENT as u64);
        match aligned.then(|| self.direct()).flatten() {
            Some(direct) => (direct, Way::Past),
            None => (&self.cached, Way::Through),
        }
    }

    /// To be called before `range` is read through the page cache: remembers
    /// what is in there, and reads ahead. The kernel's own read-ahead is off
    /// (see [`OpenFile::open`]), because it is not known what it brings in, and
    /// several threads in one file confuse it.
    pub(super) fn before_through(&self, range: &Range<u64>) {
        let absent = self.absent_before.get_or_init(|| absent(&self.cached, self.length));
        // Each byte once and in order, whatever the order of the runs: what was
        // read and taken out already must not be fetched again.
        let ahead = range.end.saturating_add(AHEAD_BYTES).min(self.length);
        let begin = self.fetched_to.fetch_max(ahead, Ordering::Relaxed).max(range.end);
        match absent {
            Some(absent) => {
                overlaps(absent, &(begin..ahead)).for_each(|gap| fetch(&self.cached, &gap));
            }
            None => fetch(&self.cached, &(begin..ahead)),
        }
    }

    /// How much of `range` the page cache held before the first read through it;
    /// `None` if that is not known.
    pub(super) fn cached_before(&self, range: &Range<u64>) -> Option<u64> {
        let absent = self.absent_before.get()?.as_ref()?;
        let missing = overlaps(absent, range)
            .fold(0_u64, |sum, gap| sum.saturating_add(gap.end.saturating_sub(gap.start)));
        Some(range.end.saturating_sub(range.start).saturating_sub(missing))
    }

    /// Takes out of the page cache what reading `range` has brought into it.
    /// Where it is not known what was there before, nothing is taken: it may
    /// be what a server works with.
    pub(super) fn after_through(&self, range: &Range<u64>) {
        let Some(Some(absent)) = self.absent_before.get() else { return };
        overlaps(absent, range).for_each(|gap| forget(&self.cached, &gap));
    }

    /// The same file again, for direct reads; `None` where they are refused or
    /// the name has passed to another file.
    #[cfg(target_os = "linux")]
    fn open_direct_twin(&self) -> Option<File> {
        let (file, twin) = crate::source::file::open_direct(&self.page_file.path).ok()?;
        let ours = crate::system::fs::fstat(&self.cached).ok()?;
        ((twin.st_dev, twin.st_ino) == (ours.st_dev, ours.st_ino)).then_some(file)
    }

    #[cfg(not(target_os = "linux"))]
    fn open_direct_twin(&self) -> Option<File> {
        None
    }
}

/// True if nothing was ever written to `range`; false also where the system does not say.
#[cfg(target_os = "linux")]
fn is_hole(file: &File, range: &Range<u64>) -> bool {
    use crate::system::fs::{SeekFrom, seek};
    // Moves the descriptor's position, which is not used.
    match seek(file, SeekFrom::Data(range.start)) {
        Ok(data) => data >= range.end,
        // Nothing from there to the end, or the end itself has come nearer.
        Err(crate::system::Errno::NXIO) => {
            file.metadata().is_ok_and(|metadata| metadata.len() >= range.end)
        }
        Err(_) => false,
    }
}

#[cfg(not(target_os = "linux"))]
fn is_hole(_: &File, _: &Range<u64>) -> bool {
    false
}

impl Drop for OpenFile {
    /// Once more for all of the file: the kernel may keep in one piece what
    /// lies across the ends of two runs.
    fn drop(&mut self) {
        self.after_through(&(0..self.length));
    }
}

/// The parts of `gaps`, which are in order, that lie in `range`.
fn overlaps(gaps: &[Range<u64>], range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = *range;
    let first = gaps.partition_point(|gap| gap.end <= start);
    gaps.iter()
        .skip(first)
        .take_while(move |gap| gap.start < end)
        .map(move |gap| gap.start.max(start)..gap.end.min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_written_is_known_and_what_was_is_read() {
        use crate::system::FileExt as _;
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"data", 32 << 20).unwrap();
        assert!(!is_hole(&file, &(31 << 20..33 << 20)));
        assert!(!is_hole(&file, &(32 << 20..(32 << 20) + 4096)));
        assert!(!is_hole(&file, &(63 << 20..65 << 20)), "the file ends before");
        if cfg!(target_os = "linux") && !is_hole(&file, &(0..1 << 20)) {
            // A file system that cannot tell says so by calling all of it data.
            assert!(!is_hole(&file, &(40 << 20..41 << 20)));
        }
    }

    #[test]
    fn overlaps_are_what_is_in_both() {
        let gaps = [0..10, 20..30, 40..50];
        let of = |range| overlaps(&gaps, &range).collect::<Vec<_>>();
        assert_eq!(of(5..45), [5..10, 20..30, 40..45]);
        assert_eq!(of(22..44), [22..30, 40..44]);
        assert_eq!(of(10..20), []);
        assert_eq!(of(50..90), []);
        assert_eq!(of(0..0), []);
    }
}

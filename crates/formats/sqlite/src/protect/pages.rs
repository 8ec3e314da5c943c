//! The passes over all pages of a database file.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checksum::page_verify::{Marker, Mode, Room, stamp};
use crate::page::header::{DatabaseHeader, VERSION_GUARDED};
use crate::page::lock_byte_page;
use crate::protect::{Database, passes};
use pagewarden_core::error::Error;
use pagewarden_core::protect::PageTally;
use pagewarden_core::protect::disk::{Disk, Written};
use pagewarden_core::protect::read_back::Reader;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::verdict::PageNo;
use pagewarden_core::verify::Progress;

/// Bytes read at once; a multiple of every page size.
pub(super) const STEP_BYTES: usize = 1 << 20;
/// Offset of the two versions in page 1: 1 for the rollback journal, 2 for the log.
const VERSIONS: std::ops::Range<usize> = 18..20;
/// Offsets of the change counter, and of its value when the header was last written.
const CHANGE_COUNTERS: [std::ops::Range<usize>; 2] = [24..28, 92..96];

/// The markers that pages get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) database: NonZeroU32,
    pub(super) mode: Mode,
    pub(super) room: Room,
    /// Programs without the VFS are to read only.
    pub(super) guard: bool,
}

impl Stamps {
    fn put(self, page: &mut [u8], number: PageNo) {
        let Self { database, mode, room, guard } = self;
        let setting = (number == PageNo(1)).then_some(mode);
        if setting.is_some() {
            set_guard(page, guard);
        }
        stamp(page, number, Marker { mode, setting, database, room });
    }
}

/// A part of the whole work, so that a bar that is full means the end of it.
pub(super) struct Share<'a> {
    pub(super) whole: &'a dyn Progress,
    pub(super) share: f64,
}

impl Share<'_> {
    pub(super) fn advance(&self, bytes: u64) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.whole.advance((bytes as f64 * self.share) as u64);
    }
}

/// What all passes need.
pub(super) struct Passes<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) pace: RateLimiter,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: Share<'a>,
    pub(super) step_bytes: usize,
}

/// What came of a pass.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) tally: PageTally,
    pub(super) bytes: u64,
}

/// Pages in a file of this length, without the one that SQLite never writes.
pub(super) fn written_pages(file_bytes: u64, page_size: usize) -> u64 {
    let pages = file_bytes.checked_div(page_size as u64).unwrap_or(0);
    pages.saturating_sub(u64::from(pages >= lock_byte_page(page_size)))
}

impl Passes<'_> {
    /// The pages of `database` as they are but for their markers, into `copy` if there
    /// is one. Pages that fail are an error, but for those that need not pass.
    pub(super) fn same_pages(
        &self,
        database: &Database,
        stamps: Option<Stamps>,
        excused: &[PageNo],
        copy: Option<&Written>,
    ) -> Result<Passed, Error> {
        let mut passed = Passed::default();
        let mut failing = None;
        let page_size = database.page_size;
        let length = database.pages.saturating_mul(page_size as u64);
        let write = |number: PageNo, bytes: &mut [u8], offset: u64| {
            for (number, page) in (number.0..).map(PageNo).zip(bytes.chunks_exact_mut(page_size)) {
                let Some(stamps) = stamps else {
                    passed.tally.right = passed.tally.right.saturating_add(1);
                    continue;
                };
                if number.0 == lock_byte_page(page_size) {
                    continue;
                }
                let is_sound = passes(page, number, stamps.database);
                if !is_sound && excused.binary_search(&number).is_err() {
                    failing.get_or_insert(number);
                }
                let before = marker_of(page);
                stamps.put(page, number);
                let tally = &mut passed.tally;
                let count =
                    if before == marker_of(page) { &mut tally.right } else { &mut tally.changed };
                *count = count.saturating_add(1);
            }
            match copy {
                Some(copy) => self.disk.write_at(copy, bytes, offset),
                None => Ok(()),
            }
        };
        let copies = copy.is_some();
        let done = self.each_step(&database.file.file, page_size, length, copies, write);
        passed.bytes = done.map_err(|error| Error::io("copy", &database.path, error))?;
        match failing {
            None => Ok(passed),
            Some(page) => Err(Error::damaged(
                &database.path,
                format!("page {} fails now, and did not a moment ago", page.0),
                "check the memory and the disk of this machine",
            )),
        }
    }

    /// Gives the pages that SQLite has written their markers. Page 1 also gets back
    /// what `VACUUM INTO` does not keep: the mode of the journal, and a change counter
    /// that goes on from `before`, by which readers tell that a database has changed.
    pub(super) fn new_pages(
        &self,
        before: &DatabaseHeader,
        copy: &Written,
        stamps: Stamps,
    ) -> Result<Passed, Error> {
        let failed = |error| Error::io("write", &copy.path, error);
        let length = copy.file.metadata().map_err(failed)?.len();
        let page_size = before.page_size().unwrap_or(STEP_BYTES);
        let mut passed = Passed::default();
        let write = |number: PageNo, bytes: &mut [u8], offset: u64| {
            for (number, page) in (number.0..).map(PageNo).zip(bytes.chunks_exact_mut(page_size)) {
                if number.0 == lock_byte_page(page_size) {
                    continue;
                }
                if number == PageNo(1) {
                    go_on_from(before, page);
                }
                stamps.put(page, number);
                passed.tally.changed = passed.tally.changed.saturating_add(1);
            }
            self.disk.write_at(copy, bytes, offset)
        };
        passed.bytes =
            self.each_step(&copy.file, page_size, length, true, write).map_err(failed)?;
        Ok(passed)
    }

    /// Reads `copy` from the device and tests every page; against the pages of
    /// `database` where they carry no markers. Gives the bytes that were read.
    pub(super) fn read_back(
        &self,
        database: &Database,
        copy: &Written,
        stamps: Option<Stamps>,
    ) -> Result<u64, Error> {
        let failed = |error| Error::io("read back", &copy.path, error);
        let page_size = database.page_size;
        let length = copy.file.metadata().map_err(failed)?.len();
        let mut reader = Reader::open(&copy.path, STEP_BYTES).map_err(failed)?;
        let mut source = vec![0; STEP_BYTES];
        let mut offset = 0_u64;
        while offset < length && !self.stop.load(Ordering::Relaxed) {
            self.pace.pay(STEP_BYTES as u64, self.stop);
            let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(STEP_BYTES);
            let bytes = reader.read(offset, left.min(STEP_BYTES)).map_err(failed)?;
            let first = offset.checked_div(page_size as u64).unwrap_or(0).saturating_add(1);
            let wrong = match stamps {
                Some(stamps) => {
                    (first..).map(PageNo).zip(bytes.chunks(page_size)).find(|(number, page)| {
                        number.0 != lock_byte_page(page_size)
                            && !passes(page, *number, stamps.database)
                    })
                }
                None => {
                    let count =
                        read_fully(&database.file.file, &mut source, offset).map_err(failed)?;
                    let source = source.get(..count.min(bytes.len())).unwrap_or_default();
                    (source != bytes).then_some((PageNo(first), bytes))
                }
            };
            if let Some((page, _)) = wrong {
                return Err(Error::lost_write(
                    &copy.path,
                    format!("page {} does not read back as it was written", page.0),
                    "the device or file system loses writes: check them",
                ));
            }
            self.progress.advance(bytes.len() as u64);
            offset = offset.saturating_add(STEP_BYTES as u64);
        }
        Ok(length)
    }

    /// Reads a file in order and hands out some pages at once, with the number and the
    /// offset of the first. Gives the bytes read; fewer if the run is to stop.
    fn each_step(
        &self,
        file: &File,
        page_size: usize,
        length: u64,
        writes: bool,
        mut work: impl FnMut(PageNo, &mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let most = self.pace.step_bytes(self.step_bytes);
        let step = most.checked_div(page_size).unwrap_or(1).max(1).saturating_mul(page_size);
        let mut buffer = vec![0; step];
        let mut offset = 0_u64;
        while offset < length && !self.stop.load(Ordering::Relaxed) {
            let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(step);
            let bytes = buffer.get_mut(..step.min(left)).unwrap_or_default();
            let moved = bytes.len() as u64;
            self.pace.pay(if writes { moved.saturating_mul(2) } else { moved }, self.stop);
            if read_fully(file, bytes, offset)? < bytes.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let index = offset.checked_div(page_size as u64).unwrap_or(0);
            work(PageNo(index.saturating_add(1)), bytes, offset)?;
            self.progress.advance(moved);
            offset = offset.saturating_add(moved);
        }
        Ok(offset)
    }
}

/// Sets the version to write with to one that no SQLite knows, which then only reads, or back to that
/// to read with.
fn set_guard(first: &mut [u8], guard: bool) {
    if let Some([write, read]) = first.get_mut(VERSIONS) {
        *write = if guard { VERSION_GUARDED } else { *read };
    }
}

fn marker_of(page: &[u8]) -> Option<[u8; 16]> {
    page.last_chunk().copied()
}

fn go_on_from(before: &DatabaseHeader, page: &mut [u8]) {
    if let Some(versions) = page.get_mut(VERSIONS) {
        versions.copy_from_slice(&[before.write_version, before.read_version]);
    }
    let counter = before.change_counter.wrapping_add(1).to_be_bytes();
    for field in CHANGE_COUNTERS {
        if let Some(field) = page.get_mut(field) {
            field.copy_from_slice(&counter);
        }
    }
}

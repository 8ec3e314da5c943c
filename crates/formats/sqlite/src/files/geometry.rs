//! How the pages of a SQLite file lie, and whether they carry sums: what page 1 says, compared with
//! a sample of other pages, so that a damaged page 1 does not hide the rest of the file.
//!
//! | question | answered by |
//! |---|---|
//! | page size | the header; where that is impossible: sums that fit, the header's page count against the file's length, pages that look like b-tree pages |
//! | our own VFS in use | the reserved bytes that markers say and markers that fit, or most pages with such a marker; or the reserved bytes and a marker on page 1, and none but its own and zeroes elsewhere, where programs without the VFS wrote to all pages |
//! | checksum VFS in use | 8 reserved bytes, and sums that fit; or sums that fit although the header says otherwise |
//! | encrypted | a header that is readable for its first 32 bytes alone, and pages that look random |

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;

use crate::checksum::page_verify::{MARKER_BYTES, Marker, verify};
use crate::checksum::{SUM_BYTES, page_sum, stored_sum};
use crate::page::header::{
    DatabaseHeader, HEADER_BYTES, MAGIC, PAGE_SIZE_MAX, PAGE_SIZE_MIN, USABLE_BYTES_MIN,
    btree_fault, is_page_size,
};
use crate::page::lock_byte_page;
use crate::page::marked::Markers;
use pagewarden_core::system::FileExt;
use pagewarden_core::verdict::PageNo;

/// Pages looked at, spread over the file. More would tell no more, and cost a seek each.
const SAMPLE_PAGES: u64 = 64;
/// Pages looked at for each page size where page 1 does not tell it: enough to find b-tree pages
/// among many of blobs.
const VOTE_PAGES: u64 = 2048;
/// The reserve that switches the checksum VFS on.
pub const SUM_RESERVE: u8 = 8;
/// This many pages, and this great a share of them, prove a database by themselves: text and pictures have no
/// such page, and a database that keeps large values has few.
const PROOFS_MIN: u64 = 2;
const PAGES_A_PROOF: u64 = 4;
/// An encryption needs at least this much of a page for itself.
const ENCRYPTION_RESERVE_MIN: u8 = 16;
/// Faults in the fields behind byte 32 that one damaged field alone does not make.
const ENCRYPTION_FAULTS_MIN: usize = 3;
/// Bytes of the magic that must be left for a file to be taken for a damaged database.
const MAGIC_BYTES_MIN: usize = 12;

const _: () = assert!(SUM_RESERVE as usize == SUM_BYTES);

/// How the pages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a page.
    pub page_size: usize,
    /// Bytes at the end of each page that are not SQLite's own.
    pub reserved_bytes: u8,
    /// The pages carry the checksum VFS's sums.
    pub has_sums: bool,
    /// The pages carry the markers of our own VFS.
    pub markers: Option<Markers>,
    /// Less than half of the pages looked at have a sum that fits.
    pub sums_are_rare: bool,
    /// The pages are encrypted.
    pub is_encrypted: bool,
}

/// True if `head`, the first bytes of a file, begins as a database with a damaged header does.
#[must_use]
pub fn is_nearly_a_database(head: &[u8]) -> bool {
    DatabaseHeader::parse(head).is_some_and(|header| header.fractions_are_right())
        && right_magic_bytes(head) >= MAGIC_BYTES_MIN
}

fn right_magic_bytes(head: &[u8]) -> usize {
    head.iter().zip(MAGIC).filter(|(byte, right)| byte == right).count()
}

/// Finds out how the pages of `file` lie. `None` if it cannot, which includes files that
/// are no SQLite database, or are encrypted as a whole.
#[must_use]
pub fn find(file: &File, file_bytes: u64, head: &[u8]) -> Option<Geometry> {
    let header = DatabaseHeader::parse(head);
    let claimed = header.and_then(|header| header.page_size());
    let trusted = header.is_some_and(|header| header.has_magic) && claimed.is_some();
    let page_size = if trusted { claimed } else { None }
        .or_else(|| vote(file, file_bytes, header.as_ref(), claimed))
        .or_else(|| {
            // So little is left of a file this short that its page size does not matter.
            (head.starts_with(MAGIC) && head.len() < HEADER_BYTES).then_some(PAGE_SIZE_MIN)
        })?;

    let sample = Sample::take(file, file_bytes, page_size, SAMPLE_PAGES);
    let reserved_field = header.map_or(0, |header| header.reserved_bytes);
    let markers = sample
        .markers
        .filter(|markers| reserved_field == markers.room.bytes() || sample.most_are_marked())
        .or_else(|| sample.stale().filter(|markers| reserved_field == markers.room.bytes()));
    let has_sums = if markers.is_some() {
        false
    } else if reserved_field == SUM_RESERVE {
        sample.fitting > 0
    } else {
        // Damage to this one byte must not switch the protection of all pages off.
        sample.most_fit() || first_fits_with_reserve(file, page_size)
    };
    let reserved_bytes = match (markers, has_sums, header) {
        (Some(markers), ..) => markers.room.bytes(),
        (None, true, _) => SUM_RESERVE,
        (None, false, Some(_)) if usize::from(reserved_field) + USABLE_BYTES_MIN <= page_size => {
            reserved_field
        }
        _ => 0,
    };
    Some(Geometry {
        page_size,
        reserved_bytes,
        has_sums,
        markers,
        sums_are_rare: has_sums && !sample.most_fit(),
        is_encrypted: !has_sums
            && markers.is_none()
            && header.is_some_and(|header| is_encrypted(&header, head, &sample)),
    })
}

/// True if pages behind the first say that the file is a database, whatever became of its header: at
/// least two, and one in four of those that are looked at, are sound b-tree pages or have a sum or a
/// marker that fits.
#[must_use]
pub fn pages_prove_one(file: &File, file_bytes: u64) -> bool {
    page_sizes().any(|size| {
        let sample = Sample::take(file, file_bytes, size, SAMPLE_PAGES);
        let proofs = sample.framed.max(sample.fitting).max(sample.marked);
        proofs >= PROOFS_MIN && proofs.saturating_mul(PAGES_A_PROOF) >= sample.looked_at
    })
}

fn page_sizes() -> impl Iterator<Item = usize> {
    (PAGE_SIZE_MIN.trailing_zeros()..=PAGE_SIZE_MAX.trailing_zeros()).map(|n| 1 << n)
}

fn is_encrypted(header: &DatabaseHeader, head: &[u8], sample: &Sample) -> bool {
    let mut faults = header.field_faults().len().saturating_add(header.oddities().len());
    if !matches!(head.get(HEADER_BYTES), Some(5 | 13)) {
        faults = faults.saturating_add(1);
    }
    header.geometry_faults().is_empty()
        && header.reserved_bytes >= ENCRYPTION_RESERVE_MIN
        && faults >= ENCRYPTION_FAULTS_MIN
        && sample.plausible.saturating_mul(2) <= sample.used
}

/// The page size by evidence other than the field of that name.
fn vote(
    file: &File,
    file_bytes: u64,
    header: Option<&DatabaseHeader>,
    claimed: Option<usize>,
) -> Option<usize> {
    let samples: Vec<(usize, Sample)> =
        page_sizes().map(|size| (size, Sample::take(file, file_bytes, size, VOTE_PAGES))).collect();
    let by_sums = samples.iter().find(|(_, sample)| sample.most_fit() || sample.most_are_marked());
    // Twice the true size shows the frames of every other page in order, so the smallest wins. In
    // half of it no frame is in order: the cells lie at the end of the page.
    let most_frames = samples.iter().map(|(_, sample)| sample.frames_in_a_thousand()).max();
    let by_frames = samples.iter().find(|(_, sample)| {
        let frames = sample.frames_in_a_thousand();
        frames > 0 && most_frames.is_some_and(|most| frames.saturating_mul(2) >= most)
    });
    if let Some((size, _)) = by_sums.or(by_frames) {
        return Some(*size);
    }
    let header = header.filter(|header| header.fractions_are_right())?;
    let by_count = header
        .page_count()
        .filter(|count| file_bytes.checked_rem(*count) == Some(0))
        .and_then(|count| usize::try_from(file_bytes.checked_div(count)?).ok())
        .filter(|size| is_page_size(*size));
    if header.has_magic || by_count.is_some() {
        return by_count;
    }
    // One page, or pages of blobs only: nothing else speaks against the field.
    claimed.filter(|size| Some(*size).and_then(|size| u64::try_from(size).ok()) == Some(file_bytes))
}

/// What some pages of the file look like at one page size.
#[derive(Debug, Default)]
struct Sample {
    looked_at: u64,
    /// Pages that are not all zero.
    used: u64,
    /// Of these, pages with a sum that fits.
    fitting: u64,
    /// Of these, pages with a marker that fits.
    marked: u64,
    /// What those markers say: page 1's, or those of the first page that has one.
    markers: Option<Markers>,
    /// What the marker of page 1 says, whether it fits or not.
    claimed: Option<Markers>,
    /// Pages behind page 1 that have something else where they would have a marker of the same database.
    foreign: u64,
    /// Pages behind page 1 that are not all zero.
    behind_first: u64,
    /// Of these, pages that are sound as b-tree pages.
    framed: u64,
    /// Pages whose first byte is one that most pages begin with.
    plausible: u64,
}

impl Sample {
    fn take(file: &File, file_bytes: u64, page_size: usize, pages_max: u64) -> Self {
        let mut sample = Self::default();
        let mut page = vec![0; page_size];
        let Ok(page_bytes) = u64::try_from(page_size) else { return sample };
        let pages = file_bytes.checked_div(page_bytes).unwrap_or(0);
        let step = pages.div_ceil(pages_max).max(1);
        let mut index = 0_u64;
        while index < pages {
            let offset = index.saturating_mul(page_bytes);
            let is_lock_page = index.saturating_add(1) == lock_byte_page(page_size);
            if !is_lock_page && file.read_exact_at(&mut page, offset).is_ok() {
                sample.looked_at = sample.looked_at.saturating_add(1);
                sample.see(&page, PageNo(index.saturating_add(1)));
            }
            index = index.saturating_add(step);
        }
        sample
    }

    fn see(&mut self, page: &[u8], number: PageNo) {
        if page.iter().all(|byte| *byte == 0) {
            return;
        }
        self.used = self.used.saturating_add(1);
        let fits = stored_sum(page) == page_sum(page);
        self.fitting = self.fitting.saturating_add(u64::from(fits));
        if let Some(Marker { database, setting, room, .. }) = verify(page, number) {
            self.marked = self.marked.saturating_add(1);
            self.markers.get_or_insert(Markers { database, setting, room });
        }
        let claimed = Marker::read(page);
        if number == PageNo(1) {
            self.claimed = claimed.map(|Marker { database, setting, room, .. }| Markers {
                database,
                setting,
                room,
            });
            return;
        }
        let database = self.claimed.map(|markers| markers.database);
        let is_zero = page.last_chunk::<MARKER_BYTES>() == Some(&[0; MARKER_BYTES]);
        let is_foreign = !is_zero && claimed.map(|marker| marker.database) != database;
        self.foreign = self.foreign.saturating_add(u64::from(is_foreign));
        self.behind_first = self.behind_first.saturating_add(1);
        let has_frame = btree_fault(page, 0, page.len()).is_none();
        self.framed = self.framed.saturating_add(u64::from(has_frame));
        let is_plausible = matches!(page.first(), Some(0..=5 | 10 | 13));
        self.plausible = self.plausible.saturating_add(u64::from(is_plausible));
    }

    fn most_fit(&self) -> bool {
        self.fitting > 0 && self.fitting.saturating_mul(2) >= self.used
    }

    fn most_are_marked(&self) -> bool {
        self.marked > 0 && self.marked.saturating_mul(2) >= self.used
    }

    /// What the marker of page 1 says, where none fits any more: pages that a program without the VFS makes
    /// have zeroes there.
    fn stale(&self) -> Option<Markers> {
        self.claimed.filter(|_| self.foreign == 0)
    }

    fn frames_in_a_thousand(&self) -> u64 {
        self.framed.saturating_mul(1000).checked_div(self.behind_first).unwrap_or(0)
    }
}

/// True if the last bytes are zero on every page that is looked at.
#[must_use]
pub fn reserve_is_zero(file: &File, file_bytes: u64, page_size: usize, reserved: u8) -> bool {
    let pages = u64::try_from(page_size).ok().and_then(|size| file_bytes.checked_div(size));
    let step = pages.unwrap_or(0).div_ceil(SAMPLE_PAGES).max(1);
    (1..=pages.unwrap_or(0)).step_by(usize::try_from(step).unwrap_or(usize::MAX)).all(|page| {
        let mut bytes = [1; u8::MAX as usize];
        let Some(bytes) = bytes.get_mut(..usize::from(reserved)) else { return false };
        let end = u64::try_from(page_size).ok().and_then(|size| size.checked_mul(page));
        let begin = end.and_then(|end| end.checked_sub(u64::from(reserved)));
        page == lock_byte_page(page_size)
            || begin.is_some_and(|begin| file.read_exact_at(bytes, begin).is_ok())
                && bytes.iter().all(|byte| *byte == 0)
    })
}

/// True if page 1 has a sum that fits once its reserve is the checksum VFS's.
fn first_fits_with_reserve(file: &File, page_size: usize) -> bool {
    let mut page = vec![0; page_size];
    if file.read_exact_at(&mut page, 0).is_err() {
        return false;
    }
    if let Some(reserve) = page.get_mut(20) {
        *reserve = SUM_RESERVE;
    }
    stored_sum(&page) == page_sum(&page)
}

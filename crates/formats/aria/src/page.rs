//! Pages of Aria, the engine of MariaDB's system tables.
//!
//! A data file (`.MAD`) whose rows are in pages, and the part of an index file
//! (`.MAI`) behind its header, end each page with a sum, low byte first:
//!
//! | page | sum of |
//! | --- | --- |
//! | data, bitmap | all but the last 4 bytes |
//! | index | the bytes in use |
//!
//! or with FFFFFFFE (bitmap) or FFFFFFFF where the table has no page checksums.
//! The sum begins with the page's number. Bytes in use of an index page are in two
//! bytes, high byte first, at 15 in a transactional table and at 2 in another.
//!
//! A page of zeroes may be one that was never written: the engine writes a later
//! page before an earlier one and takes both for sound. In a table that was closed
//! it is no page that a bitmap has in use, and none of an index: see [`Written`].
//!
//! An encrypted page has the sum of what it was before: without the key nothing
//! can be said of it. Bitmaps are not encrypted.
//!
//! Source: `ma_pagecrc.c`, `ma_blockrec.h`, `ma_backup.c` of MariaDB 10.11, and
//! tables of that server.

#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use crate::checksum::{NO_SUM_BITMAP, checksum, flipped_bit};
use pagewarden_core::page::{PageFinding, PageFormat, PageRun, RunVerdict, Specimen};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

pub mod header;

use header::AriaHeader;

const SUM_BYTES: usize = 4;
/// LSN (7), transaction (6), index (1), flags (1).
const USED_AT_TRANSACTIONAL: usize = 15;
/// Index (1), flags (1).
const USED_AT: usize = 2;
const USED_BYTES: usize = 2;

/// A bitmap has three bits for each page behind it, in groups of six bytes.
const GROUP_BYTES: usize = 6;
const PAGES_PER_GROUP: u64 = 16;
const BITS_PER_PAGE: u64 = 3;

/// How far bitmaps are apart in a data file.
#[must_use]
pub fn bitmap_every(page_size: usize) -> u64 {
    let groups = page_size.saturating_sub(SUM_BYTES) / GROUP_BYTES;
    u64::try_from(groups).unwrap_or(0).saturating_mul(PAGES_PER_GROUP).saturating_add(1)
}

/// Which file of a table the pages are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AriaFile {
    /// `.MAD`.
    Data,
    /// `.MAI`: pages before this number are its header.
    Index(u64),
}

/// The pages of one file of a table.
#[derive(Debug, Clone)]
pub struct AriaPages {
    /// What the table's index file says.
    pub header: AriaHeader,
    /// Which file.
    pub file: AriaFile,
    /// What a page that fails is.
    pub failure: Severity,
    /// Which pages are never zero.
    pub written: Written,
}

/// Which pages of a table that was closed were written: only those may not be zero.
#[derive(Debug, Clone, Default)]
pub enum Written {
    /// Not known.
    #[default]
    Unknown,
    /// All before this page: of an index file those that its header counts. Pages that were given back
    /// say so.
    Before(u64),
    /// Of a data file: those that its bitmaps have in use.
    InUse(Arc<Bitmaps>),
}

/// The bitmaps of a data file that pass their test, in order.
#[derive(Debug, Clone, Default)]
pub struct Bitmaps(Vec<Option<Box<[u8]>>>);

impl Bitmaps {
    /// 32 MiB of pages of 8K: of tables of 700 GiB.
    const MAX: usize = 4096;

    /// Adds the next bitmap page; `None` of one that fails.
    pub fn push(&mut self, page: Option<&[u8]>) {
        if self.0.len() < Self::MAX {
            self.0.push(page.map(Box::from));
        }
    }

    /// True if that page is in use. Of bitmaps themselves nothing is known.
    fn contains(&self, number: PageNo, page_size: usize) -> bool {
        let every = bitmap_every(page_size);
        let group_of = |bitmap: &[u8]| {
            let behind = number.0.checked_rem(every)?.checked_sub(1)?;
            let group = usize::try_from(behind / PAGES_PER_GROUP).ok()?.checked_mul(GROUP_BYTES)?;
            let bits = bits_of(bitmap.get(group..)?.get(..GROUP_BYTES)?);
            let shift = (behind % PAGES_PER_GROUP).checked_mul(BITS_PER_PAGE)?;
            Some(bits >> shift & ((1 << BITS_PER_PAGE) - 1) != 0)
        };
        let bitmap = number.0.checked_div(every).and_then(|at| usize::try_from(at).ok());
        let bitmap = bitmap.and_then(|at| self.0.get(at)?.as_deref());
        bitmap.and_then(group_of).unwrap_or(false)
    }
}

/// A group of a bitmap: low byte first, three bits a page.
fn bits_of(group: &[u8]) -> u64 {
    group.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// What the sum of a page says.
enum Tested {
    Sound,
    NoSum,
    NeedsKey,
    /// More bytes in use than a page has.
    Unbounded(usize),
    Failed {
        stored: u32,
        computed: u32,
        covered: usize,
    },
}

impl AriaPages {
    fn test(&self, number: PageNo, page: &[u8]) -> Tested {
        let Some((content, sum)) = page.split_last_chunk::<SUM_BYTES>() else {
            return Tested::NoSum;
        };
        let stored = u32::from_le_bytes(*sum);
        if stored >= NO_SUM_BITMAP {
            return Tested::NoSum;
        }
        let covered = match self.file {
            AriaFile::Data if self.header.is_encrypted && !self.is_bitmap(number) => {
                return Tested::NeedsKey;
            }
            AriaFile::Index(_) if self.header.is_encrypted => return Tested::NeedsKey,
            AriaFile::Data => content.len(),
            AriaFile::Index(_) => {
                let at = if self.header.is_transactional { USED_AT_TRANSACTIONAL } else { USED_AT };
                let used = content.get(at..).and_then(|rest| rest.first_chunk::<USED_BYTES>());
                let used = used.map_or(usize::MAX, |used| usize::from(u16::from_be_bytes(*used)));
                if used > content.len() || used < at.saturating_add(USED_BYTES) {
                    return Tested::Unbounded(used);
                }
                used
            }
        };
        let computed = checksum(content.get(..covered).unwrap_or_default(), number.0);
        match stored == computed {
            true => Tested::Sound,
            false => Tested::Failed { stored, computed, covered },
        }
    }

    fn is_bitmap(&self, number: PageNo) -> bool {
        number.0.is_multiple_of(bitmap_every(self.header.page_size))
    }

    /// One past the last page of a data file that a bitmap page has in use, if its sum fits.
    #[must_use]
    pub fn end_by_bitmap(&self, number: PageNo, page: &[u8]) -> Option<u64> {
        if !self.is_bitmap(number) || !matches!(self.test(number, page), Tested::Sound) {
            return None;
        }
        let content = page.get(..page.len().saturating_sub(SUM_BYTES))?;
        let groups = content.chunks_exact(GROUP_BYTES).zip(0_u64..);
        let (bytes, group) = groups.filter(|(bytes, _)| bytes.iter().any(|it| *it != 0)).last()?;
        let bits = bits_of(bytes);
        let last = u64::from(63_u32.saturating_sub(bits.leading_zeros())) / BITS_PER_PAGE;
        let behind = group.saturating_mul(PAGES_PER_GROUP).saturating_add(last).saturating_add(2);
        number.0.checked_add(behind)
    }

    /// Why a page of zeroes was written; `None` if it may not have been.
    fn zeroed_words(&self, number: PageNo) -> Option<&'static str> {
        match &self.written {
            Written::Before(end) if number.0 < *end => {
                Some("all zero, and the table's header counts it among the pages of its indexes")
            }
            Written::InUse(bitmaps) if bitmaps.contains(number, self.header.page_size) => {
                Some("all zero, and in use by the table's bitmap")
            }
            Written::Unknown | Written::Before(_) | Written::InUse(_) => None,
        }
    }

    fn finding(&self, number: PageNo, stored: u32, computed: u32, covered: usize) -> PageFinding {
        let difference = stored ^ computed;
        let (kind, detail) = match flipped_bit(difference, covered) {
            Some((byte, bit)) => {
                (Kind::BitFlip, format!("bit {bit} of byte {byte} flipped explains the sum"))
            }
            None if difference.is_power_of_two() => {
                (Kind::BitFlip, "one flipped bit in the stored sum explains it".to_owned())
            }
            None => (Kind::Checksum, "the page's CRC-32 does not match its content".to_owned()),
        };
        PageFinding {
            stored: Some(format!("{stored:08x}")),
            computed: Some(format!("{computed:08x}")),
            ..PageFinding::failed(number, self.failure, kind).with_detail(detail)
        }
    }
}

impl PageFormat for AriaPages {
    fn page_size(&self) -> usize {
        self.header.page_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (page, index) in run.bytes.chunks_exact(self.header.page_size).zip(0_u64..) {
            let number = run.first.plus(index);
            if matches!(self.file, AriaFile::Index(begin) if number.0 < begin) {
                verdict.skip();
                continue;
            }
            if page.iter().all(|byte| *byte == 0) {
                match self.zeroed_words(number) {
                    Some(words) => verdict.fail(
                        Protection::Checksum,
                        PageFinding::failed(number, self.failure, Kind::Zeroed).with_detail(words),
                    ),
                    None => verdict.empty(),
                }
                continue;
            }
            match self.test(number, page) {
                Tested::Sound => verdict.pass(Standing::Ok, Protection::Checksum),
                Tested::NoSum => verdict.pass(Standing::Unprotected, Protection::None),
                Tested::NeedsKey => verdict.pass(Standing::Unverifiable, Protection::Checksum),
                Tested::Unbounded(used) => {
                    let detail = format!(
                        "{used} bytes in use, which is less than a header or more than a page"
                    );
                    let finding = PageFinding::failed(number, self.failure, Kind::Header);
                    verdict.fail(Protection::Checksum, finding.with_detail(detail));
                }
                Tested::Failed { stored, computed, covered } => {
                    let finding = self.finding(number, stored, computed, covered);
                    verdict.fail(Protection::Checksum, finding);
                }
            }
        }
    }
}

/// Pages as the engine lays them out; those of a real server are in
/// `fixtures/aria`.
pub fn specimens() -> Vec<Specimen> {
    const PAGE_BYTES: usize = 8192;
    /// Bytes in use of the index page.
    const USED: u16 = 5000;
    let header = AriaHeader {
        page_size: PAGE_BYTES,
        index_begin: 8192,
        has_sums: true,
        is_encrypted: false,
        is_transactional: true,
        has_data_pages: true,
        is_closed: true,
        is_unused: true,
        rows: 0,
        index_bytes: 0,
        data_bytes: 0,
    };
    let pages = |file| {
        Box::new(AriaPages { header, file, failure: Severity::Damage, written: Written::Unknown })
    };
    let content = |number: u64| -> Vec<u8> {
        let words = (1..=PAGE_BYTES as u64 / 8).map(|word| word.wrapping_mul(number));
        words.flat_map(u64::to_be_bytes).collect()
    };
    let mut data = content(0x9E37_79B9_7F4A_7C15);
    stamp_data(&mut data, PageNo(7));
    let mut index = content(0xBF58_476D_1CE4_E5B9);
    if let Some(used) = index.get_mut(USED_AT_TRANSACTIONAL..).and_then(<[u8]>::first_chunk_mut) {
        *used = USED.to_be_bytes();
    }
    stamp_index(&mut index, PageNo(7));
    vec![
        Specimen {
            name: "aria data",
            format: pages(AriaFile::Data),
            page: PageNo(7),
            good: data,
            standing: Standing::Ok,
            stamp: Some(stamp_data),
            blind_bytes: Vec::new(),
            blind_bits: Vec::new(),
            zero: Standing::Empty,
        },
        Specimen {
            name: "aria index",
            format: pages(AriaFile::Index(1)),
            page: PageNo(7),
            good: index,
            standing: Standing::Ok,
            stamp: Some(stamp_index),
            // Behind the keys nothing is in use, and nothing is covered.
            blind_bytes: std::iter::once(usize::from(USED)..PAGE_BYTES - SUM_BYTES).collect(),
            blind_bits: Vec::new(),
            zero: Standing::Empty,
        },
    ]
}

fn stamp_data(page: &mut [u8], number: PageNo) {
    let covered = page.len().saturating_sub(SUM_BYTES);
    stamp(page, covered, number);
}

fn stamp_index(page: &mut [u8], number: PageNo) {
    let used = page.get(USED_AT_TRANSACTIONAL..).and_then(|rest| rest.first_chunk());
    let used = used.map_or(0, |used| usize::from(u16::from_be_bytes(*used)));
    stamp(page, used.min(page.len().saturating_sub(SUM_BYTES)), number);
}

fn stamp(page: &mut [u8], covered: usize, number: PageNo) {
    let sum = checksum(page.get(..covered).unwrap_or_default(), number.0);
    if let Some((_, place)) = page.split_last_chunk_mut::<SUM_BYTES>() {
        *place = sum.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_pages(change: impl FnOnce(&mut AriaHeader)) -> AriaPages {
        let mut header = AriaHeader::parse(&header::tests::header()).unwrap();
        change(&mut header);
        AriaPages {
            header,
            file: AriaFile::Data,
            failure: Severity::Damage,
            written: Written::Unknown,
        }
    }

    fn judge(format: &AriaPages, first: u64, bytes: &[u8]) -> RunVerdict {
        let mut verdict = RunVerdict::default();
        format.judge(PageRun { first: PageNo(first), bytes }, &mut verdict);
        verdict
    }

    /// See `fixtures/aria`.
    #[test]
    fn pages_of_a_real_server_pass_at_their_place_only() {
        const DATA: &[u8] = include_bytes!("../../../../fixtures/aria/10.11/data.1.page");
        const INDEX: &[u8] = include_bytes!("../../../../fixtures/aria/10.11/index.1.page");
        for (file, page) in [(AriaFile::Data, DATA), (AriaFile::Index(1), INDEX)] {
            let format = AriaPages { file, ..data_pages(|_| ()) };
            assert_eq!(judge(&format, 1, page).counts.ok, 1, "{file:?}");
            assert_eq!(judge(&format, 2, page).findings.len(), 1, "{file:?}");
        }
    }

    #[test]
    fn page_of_zeroes_is_damage_where_the_table_has_it_in_use() {
        let blank = vec![0; 8192];
        let index = |written| AriaPages { file: AriaFile::Index(1), written, ..data_pages(|_| ()) };
        let before = index(Written::Before(4));
        assert_eq!(judge(&before, 3, &blank).findings[0].kind, Kind::Zeroed);
        assert_eq!(judge(&before, 4, &blank).counts.empty, 1);
        assert_eq!(judge(&index(Written::Unknown), 3, &blank).counts.empty, 1);
        // The second, the third and the seventeenth page behind the first bitmap; the first behind
        // the second one, and behind the third, which fails.
        let mut bitmaps = Bitmaps::default();
        let mut bitmap = vec![0; 8192];
        bitmap[0] = 0b1000_1000;
        bitmap[6] = 1;
        bitmaps.push(Some(&bitmap));
        bitmaps.push(Some(&[1; 8192]));
        bitmaps.push(None);
        let written = Written::InUse(Arc::new(bitmaps));
        let data = AriaPages { written, ..data_pages(|_| ()) };
        let every = bitmap_every(8192);
        let zeroed =
            [0, 1, 2, 3, 4, 16, 17, 18, every, every + 1, 2 * every, 2 * every + 1, u64::MAX]
                .map(|number| judge(&data, number, &blank).findings.len());
        assert_eq!(zeroed, [0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn page_without_a_sum_is_unprotected() {
        let mut page = vec![7; 8192];
        for mark in [[0xFF; 4], [0xFE, 0xFF, 0xFF, 0xFF]] {
            page[8188..].copy_from_slice(&mark);
            assert_eq!(judge(&data_pages(|_| ()), 3, &page).counts.unprotected, 1);
        }
    }

    #[test]
    fn encrypted_page_needs_a_key_but_its_bitmap_does_not() {
        let format = data_pages(|header| header.is_encrypted = true);
        let mut page = vec![7; 8192];
        stamp_data(&mut page, PageNo(21_825));
        assert_eq!(judge(&format, 5, &page).counts.unverifiable, 1);
        assert_eq!(judge(&format, 21_825, &page).counts.ok, 1);
        assert_eq!(judge(&format, 0, &page).findings.len(), 1);
    }

    #[test]
    fn bitmap_says_which_page_is_the_last_in_use() {
        let format = data_pages(|_| ());
        for (at, byte, end) in [(0, 0b1, 2), (0, 0b100_0000, 4), (5, 0x80, 17), (6, 2, 18)] {
            let mut page = vec![0; 8192];
            page[at] = byte;
            page[0] |= 1;
            stamp_data(&mut page, PageNo(21_825));
            let found = format.end_by_bitmap(PageNo(21_825), &page);
            assert_eq!(found, Some(21_825 + end), "byte {at}");
            assert_eq!(format.end_by_bitmap(PageNo(21_826), &page), None);
            page[100] ^= 1;
            assert_eq!(format.end_by_bitmap(PageNo(21_825), &page), None, "its sum fails");
        }
        let mut page = vec![0; 8192];
        stamp_data(&mut page, PageNo(0));
        assert_eq!(format.end_by_bitmap(PageNo(0), &page), None, "nothing is in use");
    }

    #[test]
    fn header_of_an_index_file_is_no_page() {
        let format = AriaPages { file: AriaFile::Index(2), ..data_pages(|_| ()) };
        let verdict = judge(&format, 0, &[0x40; 3 * 8192]);
        assert_eq!((verdict.counts.total(), verdict.findings.len()), (0, 1));
        assert_eq!(verdict.findings[0].kind, Kind::Header, "16448 bytes in use");
    }

    #[test]
    fn flipped_bit_is_named() {
        let mut page = vec![7; 8192];
        stamp_data(&mut page, PageNo(9));
        page[100] ^= 4;
        let verdict = judge(&data_pages(|_| ()), 9, &page);
        let finding = &verdict.findings[0];
        assert_eq!(finding.kind, Kind::BitFlip);
        assert!(finding.detail.as_ref().unwrap().contains("bit 2 of byte 100"), "{finding:?}");
        page[200] ^= 4;
        assert_eq!(judge(&data_pages(|_| ()), 9, &page).findings[0].kind, Kind::Checksum);
    }
}

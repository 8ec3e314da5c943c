//! Which pages of a tablespace others lead to.
//!
//! The extent map alone does not show that a page of zeroes was lost. MariaDB erases
//! pages that it gives back (of page_compressed tables, or where it is told to), and
//! after a crash and its recovery such pages were seen to be in use by the extent map.
//! A page that its neighbours in an index lead to was written, and so was the root of
//! an index, which the segments on page 2 name.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 8 | 4 | the page before it in its level of the index; all ones if none |
//! | 12 | 4 | the page after it |
//! | 24 | 2 | the page's type |
//!
//! These fields are in the clear in compressed and encrypted pages too.
//!
//! | offset on page 2 | bytes | what |
//! |---|---|---|
//! | 50 | 64 + 2 * pages of an extent, each | segments: two for an index, its upper levels first |
//! | 0 in it | 8 | its number; 0 if there is none |
//! | 60 in it | 4 | 97937874 |
//! | 64 in it | 4 each | its single pages: the first one of the upper levels is the root |
//!
//! Source: MariaDB and MySQL `fil0fil.h`, `fsp0fsp.h`; of 89 such segments in real files of
//! all page sizes each one begins with a page without neighbours.

#![deny(clippy::arithmetic_side_effects)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::formats::innodb::files::fields::{u16_at, u32_at, u64_at};
use crate::formats::innodb::page::allocation::AllocationMap;
use crate::source::file::{open_regular, read_fully};
use crate::verdict::PageNo;

const WORD_PAGES: u64 = 64;
const BEFORE: usize = 8;
const AFTER: usize = 12;
const TYPE: usize = 24;
const HEADER_BYTES: usize = 26;
const SEGMENTS_PAGE: u64 = 2;
const TYPE_SEGMENTS: u16 = 3;
const SEGMENTS: usize = 50;
const SEGMENT_MAGIC: usize = 60;
const MAGIC: u32 = 97_937_874;
const SINGLE_PAGES: usize = 64;
/// Header, change buffer's bitmap, segments and the first root: always in use.
const FIXED_PAGES: u64 = 4;
/// Index pages: R-tree, B-tree, of the dictionary; and what may be one inside, as MariaDB and MySQL
/// compress and encrypt them.
const TYPES: [u16; 9] = [17_853, 17_854, 17_855, 18, 14, 15, 16, 17, 34_354];
const ENCRYPTED_TOO: u16 = 37_401;
/// Compressed, in `full_crc32`.
const COMPRESSED_MARK: u16 = 1 << 15;

/// The pages of one file that others lead to, read when they are first asked for.
#[derive(Debug)]
pub(crate) struct Links {
    path: PathBuf,
    page_bytes: usize,
    extent_pages: usize,
    /// The pages in use: what a free page says counts for nothing.
    allocated: Arc<AllocationMap>,
    /// A bit a page.
    targets: OnceLock<Vec<u64>>,
}

impl Links {
    /// Of a tablespace in one file.
    pub(crate) fn new(
        path: PathBuf,
        page_bytes: usize,
        extent_pages: usize,
        allocated: Arc<AllocationMap>,
    ) -> Self {
        Self { path, page_bytes, extent_pages, allocated, targets: OnceLock::new() }
    }

    /// True if `page` must have been written. False also where nobody can tell.
    pub(crate) fn lead_to(&self, page: PageNo) -> bool {
        if page.0 < FIXED_PAGES {
            return true;
        }
        let targets = self.targets.get_or_init(|| self.read().unwrap_or_default());
        let word = usize::try_from(page.0 / WORD_PAGES).ok();
        let word = word.and_then(|word| targets.get(word)).copied().unwrap_or(0);
        word & bit_of(page.0) != 0
    }

    fn read(&self) -> std::io::Result<Vec<u64>> {
        let file = open_regular(&self.path)?;
        let page_bytes = u64::try_from(self.page_bytes).unwrap_or(u64::MAX).max(1);
        let pages = file.metadata()?.len().checked_div(page_bytes).unwrap_or(0);
        let words = usize::try_from(pages.div_ceil(WORD_PAGES)).unwrap_or(0);
        let mut targets = vec![0_u64; words];
        let mut add = |target: u32| {
            let word = usize::try_from(u64::from(target) / WORD_PAGES).ok();
            if let Some(word) = word.and_then(|word| targets.get_mut(word)) {
                *word |= bit_of(u64::from(target));
            }
        };
        let mut segments = vec![0; self.page_bytes];
        read_fully(&file, &mut segments, SEGMENTS_PAGE.saturating_mul(page_bytes))?;
        self.roots(&segments).for_each(&mut add);
        let mut header = [0; HEADER_BYTES];
        for page in 0..pages {
            let offset = page.saturating_mul(page_bytes);
            if !self.allocated.contains(page)
                || !matches!(read_fully(&file, &mut header, offset), Ok(HEADER_BYTES))
                || !u16_at(&header, TYPE).is_some_and(may_be_of_an_index)
            {
                continue;
            }
            [BEFORE, AFTER].into_iter().filter_map(|at| u32_at(&header, at)).for_each(&mut add);
        }
        Ok(targets)
    }

    /// The roots of indexes, by the page of segments, if that is in the clear.
    fn roots(&self, page: &[u8]) -> impl Iterator<Item = u32> {
        let is_clear = u16_at(page, TYPE) == Some(TYPE_SEGMENTS);
        let segment_bytes = SINGLE_PAGES.saturating_add(self.extent_pages.saturating_mul(2));
        let segments = page.get(SEGMENTS..).filter(|_| is_clear).unwrap_or_default();
        segments.chunks_exact(segment_bytes).step_by(2).filter_map(|segment| {
            let is_used = u64_at(segment, 0)? != 0 && u32_at(segment, SEGMENT_MAGIC)? == MAGIC;
            is_used.then(|| u32_at(segment, SINGLE_PAGES)).flatten()
        })
    }
}

fn bit_of(page: u64) -> u64 {
    1 << (page % WORD_PAGES)
}

fn may_be_of_an_index(page_type: u16) -> bool {
    TYPES.contains(&page_type) || page_type == ENCRYPTED_TOO || page_type & COMPRESSED_MARK != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_an_index_lead_to_a_page_and_nothing_else_does() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let page = |page_type: u16, before: u32, after: u32| {
            let mut page = vec![0; 4096];
            page[BEFORE..AFTER].copy_from_slice(&before.to_be_bytes());
            page[AFTER..16].copy_from_slice(&after.to_be_bytes());
            page[TYPE..HEADER_BYTES].copy_from_slice(&page_type.to_be_bytes());
            page
        };
        let mut segments = page(3, 7, 7);
        for (at, number, root) in [(50, 1_u64, 6_u32), (626, 2, 8), (1202, 0, 10)] {
            segments[at..at + 8].copy_from_slice(&number.to_be_bytes());
            segments[at + 60..at + 64].copy_from_slice(&MAGIC.to_be_bytes());
            segments[at + 64..at + 68].copy_from_slice(&root.to_be_bytes());
        }
        let pages = [
            page(8, 5, 5),
            page(5, 6, 6),
            segments,
            page(17_855, u32::MAX, u32::MAX),
            page(17_855, u32::MAX, 9),
            page(0, 0, 0),
        ];
        std::io::Write::write_all(&mut file, &pages.concat()).unwrap();
        file.as_file().set_len(4096 * 80).unwrap();
        let mut all = AllocationMap::default();
        (0..80).for_each(|page| all.insert(page));
        let links = Links::new(file.path().to_owned(), 4096, 256, Arc::new(all));
        assert!((0..4).all(|page| links.lead_to(PageNo(page))));
        let led_to: Vec<u64> = (4..200).filter(|page| links.lead_to(PageNo(*page))).collect();
        // The second segment is that of an index's leaves; the third is none.
        assert_eq!(led_to, [6, 9]);
        let none = Links::new(file.path().to_owned(), 4096, 256, Arc::default());
        assert!(!none.lead_to(PageNo(9)), "what a free page says counts for nothing");
    }
}

//! Which pages of a tablespace others lead to.
//!
//! After a clean shutdown the extent map shows that a page of zeroes was lost, and this says what
//! it was. Of a prepared backup, and where the state is not known, the map alone does not:
//! MariaDB erases pages that it gives back (of page_compressed tables, or where a setting says so),
//! and after a crash such pages were seen to be in use by the extent map.
//! A page that its neighbours in an index lead to was written, and so was the root of
//! an index, which the segments on the pages of segments name.
//!
//! | page | offset | bytes | what |
//! |---|---|---|---|
//! | any | 8 | 4 | the page before it in its level of the index; all ones if none |
//! | any | 12 | 4 | the page after it; the next part of a long value in a compressed table |
//! | any | 24 | 2 | the page's type |
//! | of an index | 54 | 2 | its records: above the leaves each leads to one page |
//! | of an index | 64 | 2 | its level; the leaves are 0 |
//! | of an index | 66 | 8 | the index |
//! | of a long value | 42 | 4 | the next part of it |
//! | of an undo log | 44, 50 | 4 each | the pages before and after it in their segment |
//! | rollback segments, in MySQL 8.0 and later | 56 | 4 each | the first page of each |
//!
//! An index that a server was making when it was killed is no index: its root, which is filled last,
//! is an empty leaf, and other pages say that they belong to it. Where the server was killed at that
//! moment these pages stay in use by the extent map for good, some of them were never written, and
//! nothing reads any of them: seen in MariaDB 10.11 after recovery and a shutdown in order, in a
//! table that `CHECK TABLE ... EXTENDED` finds sound. Such pages lead nowhere, and where there are any
//! the map alone proves nothing.
//!
//! The first two are in the clear in compressed and encrypted pages too. From the others follows
//! how many pages each level of an index has: where there are fewer, the missing ones are lost,
//! however many of them lie side by side.
//!
//! | offset on a page of segments | bytes | what |
//! |---|---|---|
//! | 50 | 64 + 2 * pages of an extent, each | segments: two for an index, its upper levels first |
//! | 0 in it | 8 | its number, in the order in which they were made; 0 if there is none |
//! | 60 in it | 4 | 97937874 |
//! | 64 in it | 4 each | its single pages: the first one of the upper levels is the root, that of an undo tablespace's segment its header |
//!
//! Indexes are all that has segments in a tablespace of tables, so that upper levels have the odd
//! numbers. Of the system tablespace that is not so, and segments are not asked there.
//!
//! Source: MariaDB and MySQL `fil0fil.h`, `fsp0fsp.h`, `page0types.h`, `trx0undo.h`, `trx0rseg.h`; of
//! 89 such segments in real files of all page sizes each one begins with a page without neighbours.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::files::fields::{u16_at, u32_at, u64_at};
use crate::page::allocation::AllocationMap;
use crate::page::index::TYPE_INDEX;
use crate::page::layout::{Form, Layout};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::PageNo;

const WORD_PAGES: u64 = 64;
const BEFORE: usize = 8;
const AFTER: usize = 12;
const TYPE: usize = 24;
/// Of the key of an encrypted page, in `full_crc32` and in the old layouts.
const KEY_VERSIONS: [usize; 2] = [0, 26];
const VALUE_NEXT: usize = 42;
const UNDO_NEIGHBOURS: [usize; 2] = [44, 50];
const ROLLBACK_SEGMENTS: usize = 56;
const ROLLBACK_SEGMENTS_MAX: usize = 128;
const RECORDS: usize = 54;
const LEVEL: usize = 64;
const INDEX: usize = 66;
const HEADER_BYTES: usize = 74;
const TYPE_UNDO: u16 = 2;
const TYPE_SEGMENTS: u16 = 3;
const TYPE_VALUE: u16 = 10;
const TYPES_PACKED_VALUE: [u16; 2] = [11, 12];
const TYPE_ROLLBACK_SEGMENTS: u16 = 21;
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

/// What has segments in a tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Indexes only.
    Tables,
    /// Undo logs and what leads to them.
    Undo,
    /// Both, and others.
    System,
}

/// How sure it is that a page of zeroes was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// A page leads to it.
    Link,
    /// An index lacks as many pages as there are pages of zeroes.
    Count,
    /// An index has too few pages, and this may be one of them.
    Perhaps,
}

/// The pages of one file that others lead to, read when they are first asked for.
#[derive(Debug)]
pub(crate) struct Links {
    path: PathBuf,
    layout: Layout,
    owner: Owner,
    /// The pages in use: what a free page says counts for nothing.
    allocated: Arc<AllocationMap>,
    found: OnceLock<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// A bit a page that others lead to.
    targets: Vec<u64>,
    /// What a page in use that is all zero is if none leads to it.
    unnamed: Option<Lead>,
    /// An index was being made when a server was killed.
    has_unfinished_index: bool,
}

/// What is known of the indexes once all pages were seen.
#[derive(Debug, Default)]
struct Indexes {
    levels: HashMap<(u64, u16), Level>,
    /// The pages that those of each lead to.
    targets: HashMap<u64, Vec<u32>>,
    /// Leaves without a row: page, index.
    empty: HashMap<u32, u64>,
    roots: Vec<u32>,
}

impl Indexes {
    /// Notes a page of an index, and those that it leads to.
    fn add(&mut self, page: u64, header: &[u8]) {
        let fields =
            || Some((u64_at(header, INDEX)?, u16_at(header, LEVEL)?, u16_at(header, RECORDS)?));
        let Some((index, level, records)) = fields() else { return };
        let own = self.levels.entry((index, level)).or_default();
        own.pages = own.pages.saturating_add(1);
        if let Some(below) = level.checked_sub(1) {
            let below = self.levels.entry((index, below)).or_default();
            below.wanted = below.wanted.saturating_add(u64::from(records));
        }
        if let (0, 0, Ok(page)) = (level, records, u32::try_from(page)) {
            self.empty.insert(page, index);
        }
        let targets = self.targets.entry(index).or_default();
        targets.extend([BEFORE, AFTER].iter().filter_map(|at| u32_at(header, *at)));
    }

    /// Those whose root is an empty leaf, and that have other pages all the same.
    fn unfinished(&self) -> HashSet<u64> {
        let is_alone = |index: u64| {
            let own = self.levels.iter().filter(|((of, _), _)| *of == index);
            own.map(|(_, level)| level.pages).sum::<u64>() <= 1
        };
        let roots = self.roots.iter().filter_map(|root| self.empty.get(root)).copied();
        roots.filter(|index| !is_alone(*index)).collect()
    }
}

/// What was seen of a level of an index.
#[derive(Debug, Default)]
struct Level {
    pages: u64,
    /// Records of the level above.
    wanted: u64,
}

impl Found {
    fn add(&mut self, target: u32) {
        let word = usize::try_from(u64::from(target) / WORD_PAGES).ok();
        if let Some(word) = word.and_then(|word| self.targets.get_mut(word)) {
            *word |= bit_of(u64::from(target));
        }
    }

    fn contains(&self, page: u64) -> bool {
        let word = usize::try_from(page / WORD_PAGES).ok();
        let word = word.and_then(|word| self.targets.get(word)).copied().unwrap_or(0);
        word & bit_of(page) != 0
    }
}

impl Links {
    /// Of a tablespace in one file.
    pub(crate) fn new(
        path: PathBuf,
        layout: Layout,
        owner: Owner,
        allocated: Arc<AllocationMap>,
    ) -> Self {
        Self { path, layout, owner, allocated, found: OnceLock::new() }
    }

    /// Why a page in use that is all zero must have been written; `None` also where it is unknown.
    pub(crate) fn lead_to(&self, page: PageNo) -> Option<Lead> {
        // Of the system tablespace the fixed pages are known beside page 0: see `system`.
        if page.0 == 0 || page.0 < FIXED_PAGES && self.owner != Owner::System {
            return Some(Lead::Link);
        }
        let found = self.found.get_or_init(|| self.read().unwrap_or_default());
        if found.contains(page.0) { Some(Lead::Link) } else { found.unnamed }
    }

    /// True if pages may be in use by the extent map and never have been written.
    pub(crate) fn has_unfinished_index(&self) -> bool {
        self.found.get_or_init(|| self.read().unwrap_or_default()).has_unfinished_index
    }

    fn read(&self) -> std::io::Result<Found> {
        let file = open_regular(&self.path)?;
        let page_bytes = u64::try_from(self.layout.page_size).unwrap_or(u64::MAX).max(1);
        let pages = file.metadata()?.len().checked_div(page_bytes).unwrap_or(0);
        let words = usize::try_from(pages.div_ceil(WORD_PAGES)).unwrap_or(0);
        let mut found = Found { targets: vec![0; words], ..Found::default() };
        let mut indexes = Indexes::default();
        let mut zeroed = Vec::new();
        let mut header = [0; HEADER_BYTES];
        for page in (0..pages).filter(|page| self.allocated.contains(*page)) {
            let offset = page.saturating_mul(page_bytes);
            if !matches!(read_fully(&file, &mut header, offset), Ok(HEADER_BYTES)) {
                continue;
            }
            if header.iter().all(|byte| *byte == 0) {
                if self.whole(&file, offset)?.iter().all(|byte| *byte == 0) {
                    zeroed.push(page);
                }
                continue;
            }
            if self.is_clear(&header) && u16_at(&header, TYPE) == Some(TYPE_INDEX) {
                indexes.add(page, &header);
                continue;
            }
            self.follow(&file, offset, &header, &mut found, &mut indexes.roots)?;
        }
        let unfinished = indexes.unfinished();
        found.has_unfinished_index = !unfinished.is_empty();
        let targets = indexes.targets.iter().filter(|(index, _)| !unfinished.contains(index));
        targets.flat_map(|(_, pages)| pages).for_each(|page| found.add(*page));
        indexes.roots.iter().for_each(|root| found.add(*root));
        let levels = indexes.levels.iter().filter(|((index, _), _)| !unfinished.contains(index));
        let lost = levels.map(|(_, level)| level.wanted.saturating_sub(level.pages));
        let lost = lost.fold(0, u64::saturating_add);
        let unnamed = zeroed.iter().filter(|page| !found.contains(**page)).count();
        let named = zeroed.len().saturating_sub(unnamed);
        let left = lost.saturating_sub(u64::try_from(named).unwrap_or(u64::MAX));
        found.unnamed = match u64::try_from(unnamed).unwrap_or(u64::MAX) {
            unnamed if left >= unnamed && left > 0 => Some(Lead::Count),
            _ => (left > 0).then_some(Lead::Perhaps),
        };
        Ok(found)
    }

    /// The pages that one leads to.
    fn follow(
        &self,
        file: &File,
        offset: u64,
        header: &[u8],
        found: &mut Found,
        roots: &mut Vec<u32>,
    ) -> std::io::Result<()> {
        let page_type = u16_at(header, TYPE).unwrap_or(0);
        let at = |places: &[usize], found: &mut Found| {
            places.iter().filter_map(|at| u32_at(header, *at)).for_each(|page| found.add(page));
        };
        if may_be_of_an_index(page_type) {
            at(&[BEFORE, AFTER], found);
        }
        if !self.is_clear(header) {
            return Ok(());
        }
        match page_type {
            TYPE_VALUE => at(&[VALUE_NEXT], found),
            TYPE_UNDO => at(&UNDO_NEIGHBOURS, found),
            TYPE_ROLLBACK_SEGMENTS => {
                let page = self.whole(file, offset)?;
                let slots = page.get(ROLLBACK_SEGMENTS..).unwrap_or_default().chunks_exact(4);
                let slots = slots.take(ROLLBACK_SEGMENTS_MAX).filter_map(|slot| u32_at(slot, 0));
                slots.filter(|page| *page != 0).for_each(|page| found.add(page));
            }
            TYPE_SEGMENTS if self.owner != Owner::System => {
                let page = self.whole(file, offset)?;
                roots.extend(first_pages(&self.layout, &page, self.owner == Owner::Undo));
            }
            packed if TYPES_PACKED_VALUE.contains(&packed) => at(&[AFTER], found),
            _ => {}
        }
        Ok(())
    }

    fn whole(&self, file: &File, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut page = vec![0; self.layout.page_size];
        let count = read_fully(file, &mut page, offset)?;
        page.truncate(count);
        Ok(page)
    }

    /// What is behind the header of this page is neither compressed nor encrypted. R-trees have
    /// something else where others have their key.
    fn is_clear(&self, header: &[u8]) -> bool {
        let [full_crc32, old] = KEY_VERSIONS.map(|at| u32_at(header, at));
        let key = if self.layout.form == Form::FullCrc32 { full_crc32 } else { old };
        let is_marked = u16_at(header, TYPE).is_none_or(|it| it & COMPRESSED_MARK != 0);
        key == Some(0) && !is_marked
    }
}

/// The first pages of the segments on a page of them: the roots of indexes, and of a tablespace of undo
/// logs the headers of these.
pub(super) fn first_pages(
    layout: &Layout,
    page: &[u8],
    is_of_undo: bool,
) -> impl Iterator<Item = u32> {
    let segment_bytes = SINGLE_PAGES.saturating_add(layout.extent_pages().saturating_mul(2));
    let segments = page.get(SEGMENTS..).unwrap_or_default();
    segments.chunks_exact(segment_bytes).filter_map(move |segment| {
        let number = u64_at(segment, 0).filter(|number| *number != 0)?;
        let is_used = u32_at(segment, SEGMENT_MAGIC)? == MAGIC;
        let is_asked = is_of_undo || number % 2 == 1;
        (is_used && is_asked).then(|| u32_at(segment, SINGLE_PAGES)).flatten()
    })
}

/// The single pages of a segment, by its entry; `None` if that is none.
pub(crate) fn single_pages(layout: &Layout, segment: &[u8]) -> Option<impl Iterator<Item = u32>> {
    const NONE: u32 = u32::MAX;
    let is_used = u64_at(segment, 0)? != 0 && u32_at(segment, SEGMENT_MAGIC)? == MAGIC;
    let pages = segment.get(SINGLE_PAGES..)?.chunks_exact(4).take(layout.extent_pages() / 2);
    let pages = pages.filter_map(|page| u32_at(page, 0)).filter(|page| *page != NONE);
    is_used.then_some(pages)
}

fn bit_of(page: u64) -> u64 {
    1 << (page % WORD_PAGES)
}

fn may_be_of_an_index(page_type: u16) -> bool {
    TYPES.contains(&page_type) || page_type == ENCRYPTED_TOO || page_type & COMPRESSED_MARK != 0
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn page(page_type: u16, before: u32, after: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        page[BEFORE..AFTER].copy_from_slice(&before.to_be_bytes());
        page[AFTER..16].copy_from_slice(&after.to_be_bytes());
        page[TYPE..TYPE + 2].copy_from_slice(&page_type.to_be_bytes());
        page
    }

    fn of_index(level: u16, records: u16, before: u32, after: u32) -> Vec<u8> {
        let mut page = page(TYPE_INDEX, before, after);
        page[RECORDS..RECORDS + 2].copy_from_slice(&records.to_be_bytes());
        page[LEVEL..LEVEL + 2].copy_from_slice(&level.to_be_bytes());
        page[INDEX..INDEX + 8].copy_from_slice(&77_u64.to_be_bytes());
        page
    }

    fn links(pages: &[Vec<u8>], owner: Owner) -> (tempfile::NamedTempFile, Links) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &pages.concat()).unwrap();
        file.as_file().set_len(PAGE as u64 * 80).unwrap();
        let mut all = AllocationMap::default();
        (0..pages.len() as u64).for_each(|page| all.insert(page));
        let layout = Layout::guessed(Form::Old, PAGE);
        let links = Links::new(file.path().to_owned(), layout, owner, Arc::new(all));
        (file, links)
    }

    fn led_to(links: &Links) -> Vec<(u64, Lead)> {
        (4..80).filter_map(|page| Some((page, links.lead_to(PageNo(page))?))).collect()
    }

    fn segments() -> Vec<u8> {
        let mut segments = page(3, 7, 7);
        let bytes = SINGLE_PAGES + 2 * Layout::guessed(Form::Old, PAGE).extent_pages();
        for (index, (number, first)) in [(1_u64, 6_u32), (2, 8), (0, 10)].into_iter().enumerate() {
            let at = SEGMENTS + index * bytes;
            segments[at..at + 8].copy_from_slice(&number.to_be_bytes());
            segments[at + 60..at + 64].copy_from_slice(&MAGIC.to_be_bytes());
            segments[at + 64..at + 68].copy_from_slice(&first.to_be_bytes());
        }
        segments
    }

    #[test]
    fn neighbours_in_an_index_lead_to_a_page_and_nothing_else_does() {
        let pages = [
            page(8, 5, 5),
            page(5, 6, 6),
            segments(),
            page(17_855, u32::MAX, u32::MAX),
            page(17_855, u32::MAX, 9),
            page(0, 0, 0),
        ];
        let (_file, tables) = links(&pages, Owner::Tables);
        assert!((0..4).all(|page| tables.lead_to(PageNo(page)) == Some(Lead::Link)));
        // The second segment is that of an index's leaves; the third is none.
        assert_eq!(led_to(&tables), [(6, Lead::Link), (9, Lead::Link)]);
        let (_file, undo) = links(&pages, Owner::Undo);
        assert_eq!(led_to(&undo), [6, 8, 9].map(|page| (page, Lead::Link)));
        let (_file, system) = links(&pages, Owner::System);
        assert_eq!(led_to(&system), [(9, Lead::Link)]);
        assert_eq!(system.lead_to(PageNo(2)), None);
        let layout = Layout::guessed(Form::Old, PAGE);
        let (file, _) = links(&pages, Owner::Tables);
        let none = Links::new(file.path().to_owned(), layout, Owner::Tables, Arc::default());
        assert_eq!(none.lead_to(PageNo(9)), None, "what a free page says counts for nothing");
    }

    #[test]
    fn index_with_too_few_pages_lost_as_many_of_those_that_are_zero() {
        let none = u32::MAX;
        let zero = || page(0, 0, 0);
        let begin = || vec![page(8, 0, 0), page(5, 0, 0), page(3, 0, 0)];
        let count = |pages: Vec<Vec<u8>>| {
            let (_file, links) = links(&[begin(), pages].concat(), Owner::Tables);
            led_to(&links).into_iter().take(6).collect::<Vec<_>>()
        };
        // Five leaves, three of them zero, side by side: the middle one has no neighbour.
        let leaf = |before, after| of_index(0, 9, before, after);
        let root = || of_index(1, 5, none, none);
        let whole = vec![root(), leaf(none, 5), zero(), zero(), zero(), leaf(7, none)];
        let found = count(whole.clone());
        let expected = [4, 5, 6, 7].map(|page| (page, Lead::Link));
        // Page 4 and 8 are there, and are not asked for.
        assert_eq!(found[0], (4, Lead::Count));
        assert_eq!((found[1], found[3]), (expected[1], expected[3]));
        assert_eq!(found[2], (6, Lead::Count));
        // One page more is zero than is missing: which one is not known.
        let found = count([whole, vec![zero()]].concat());
        assert_eq!(found[2], (6, Lead::Perhaps));
        // As many leaves as the root has records: nothing is missing.
        let sound = vec![of_index(1, 2, none, none), leaf(none, 5), leaf(4, none), zero()];
        assert_eq!(count(sound), [(4, Lead::Link), (5, Lead::Link)]);
        // All leaves of an index are zero.
        let bare = vec![of_index(1, 2, none, none), zero(), zero()];
        assert_eq!(count(bare)[..2], [(4, Lead::Count), (5, Lead::Count)]);
        // What an encrypted page says there is no number of records.
        let mut locked = of_index(1, 2, none, none);
        locked[26] = 1;
        assert_eq!(count(vec![locked, zero(), zero()]), []);
    }

    #[test]
    fn index_that_was_never_finished_leads_nowhere() {
        let none = u32::MAX;
        let of = |root: Vec<u8>, leaf: Vec<u8>| {
            let zero = page(0, 0, 0);
            let mut first = of_index(0, 1, none, none);
            first[INDEX] = 2;
            let head = [page(8, 0, 0), page(5, 0, 0), segments(), first];
            let pages = [&head[..], &[zero.clone(), zero.clone(), root, leaf, zero]].concat();
            links(&pages, Owner::Tables)
        };
        let (_file, killed) = of(of_index(0, 0, none, none), of_index(0, 9, none, 8));
        assert!(killed.has_unfinished_index());
        assert_eq!(led_to(&killed), [(6, Lead::Link)]);
        // Its root leads to its leaves, two of which are zero: they were lost.
        let (_file, whole) = of(of_index(1, 3, none, none), of_index(0, 9, none, 8));
        assert!(!whole.has_unfinished_index());
        assert_eq!(whole.lead_to(PageNo(8)), Some(Lead::Link));
        assert_eq!(whole.lead_to(PageNo(4)), Some(Lead::Perhaps));
        // An index without a row, and a page of another one.
        let mut other = of_index(0, 9, none, 8);
        other[INDEX] = 1;
        let (_file, empty) = of(of_index(0, 0, none, none), other);
        assert!(!empty.has_unfinished_index());
        assert_eq!(empty.lead_to(PageNo(8)), Some(Lead::Link));
    }

    #[test]
    fn parts_of_long_values_and_undo_logs_lead_to_others() {
        let with = |mut page: Vec<u8>, at: usize, target: u32| {
            page[at..at + 4].copy_from_slice(&target.to_be_bytes());
            page
        };
        let pages = [
            with(page(10, 0, 0), VALUE_NEXT, 11),
            page(11, 0, 12),
            with(with(page(2, 0, 0), 44, 13), 50, 14),
            with(page(21, 0, 0), ROLLBACK_SEGMENTS, 15),
        ];
        let (_file, links) = links(&pages, Owner::Undo);
        assert_eq!(led_to(&links), [11, 12, 13, 14, 15].map(|page| (page, Lead::Link)));
    }
}

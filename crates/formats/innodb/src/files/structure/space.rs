//! The books of a tablespace: extents, segments, and the lists of both.
//!
//! Page 0, from byte 38 on:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 46 | 4 | pages |
//! | 50 | 4 | pages from here on were never initialised |
//! | 58 | 4 | pages in use in the extents of the second list |
//! | 62 | 16 each | lists: free extents, extents of single pages with free ones, without |
//! | 110 | 8 | the next segment's number |
//! | 118 | 16 each | lists of pages of segments: without room, with room |
//!
//! A list: length, page and offset of the first and of the last one; in each of them those of the
//! one before and behind it. A descriptor of an extent is in `page/allocation.rs`. A segment, from byte 50
//! of its page on:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | number, 0 if there is none |
//! | 8 | 4 | pages in use in the extents of the second list |
//! | 12 | 16 each | lists of extents: all free, some free, none free |
//! | 60 | 4 | 97,937,874 |
//! | 64 | 4 each | single pages, as many as half an extent has |
//!
//! Sources: `fsp0fsp.h`, `fsp0fsp.cc` of MariaDB 10.11 and MySQL 8.0.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::files::structure::tree::Faults;
use crate::files::structure::{Gathered, Structure, TYPE_BLOB, TYPE_INODE, TYPE_XDES, What};
use crate::page::fields::{
    EXTENT_DESCRIPTORS, FSP_FLAGS, FSP_FREE_LIMIT, FSP_SIZE, FSP_SPACE_ID, PAGE_TYPE, SPACE_ID,
    TYPE_FSP_HDR, read_u16, read_u32, read_u64,
};
use crate::page::layout::Layout;

const SINGLE_IN_USE: usize = 58;
/// Lists of page 0, of extents in the states 1, 2 and 3.
const LISTS: [usize; 3] = [62, 78, 94];
const NEXT_SEGMENT: usize = 110;
const SEGMENT_PAGES: [usize; 2] = [118, 134];
const LIST_BYTES: usize = 16;
const NODE: usize = 8;
const STATE: usize = 20;
const BITMAP: usize = 24;
const SEGMENTS: usize = 50;
const SEGMENT_LISTS: [usize; 3] = [12, 28, 44];
const MAGIC: usize = 60;
const MAGIC_VALUE: u32 = 97_937_874;
const SINGLES: usize = 64;
const NONE: u32 = u32::MAX;
const FREE: u32 = 1;
const SINGLE_LEFT: u32 = 2;
const SINGLE_FULL: u32 = 3;
const OF_SEGMENT: u32 = 4;
/// Of MySQL 8.0 and later: one with a page of descriptors, whose other pages a segment has.
const LENT: u32 = 5;
/// Of the bits of a page the high one is always set.
const ALWAYS_SET: u8 = 0xAA;

/// Where a node of a list is.
type Address = (u32, usize);

#[derive(Debug)]
struct Extent {
    /// The page of its descriptor, and where its node is there.
    at: Address,
    first: u32,
    segment: u64,
    before: Address,
    next: Address,
    state: u32,
    in_use: usize,
    pages: usize,
    is_marked: bool,
}

impl Extent {
    /// Which list of its segment it is in.
    fn list(&self) -> usize {
        match self.in_use {
            0 => 0,
            count if count < self.pages => 1,
            _ => 2,
        }
    }
}

#[derive(Debug)]
struct List {
    length: u32,
    first: Address,
    last: Address,
}

fn address(page: &[u8], at: usize) -> Address {
    let rest = page.get(at..).unwrap_or_default();
    (read_u32(rest, 0), usize::from(read_u16(rest, 4)))
}

fn list(page: &[u8], at: usize) -> List {
    let rest = page.get(at..).unwrap_or_default();
    List { length: read_u32(rest, 0), first: address(rest, 4), last: address(rest, 10) }
}

struct Books<'a> {
    gathered: &'a Gathered,
    extents: Vec<Extent>,
    faults: &'a mut Faults,
}

impl Structure {
    /// Extents and segments.
    pub(super) fn compare_space(&self, gathered: &Gathered, faults: &mut Faults) {
        let kept = &gathered.found.kept;
        let Some((_, first)) = kept.iter().find(|(number, _)| *number == 0) else { return };
        let (own, space) = (read_u32(first, FSP_SPACE_ID), read_u32(first, SPACE_ID));
        if own != space {
            faults.insert(0, format!("it is of tablespace {space}, and says {own} of the file"));
            return;
        }
        let flags = read_u32(first, FSP_FLAGS);
        let by_flags = [Layout::of_flags(flags), Layout::of_early_mariadb_flags(flags)];
        let is_as_said =
            |said: Layout| (said.form, said.page_size) == (self.layout.form, self.layout.page_size);
        if !by_flags.into_iter().flatten().any(is_as_said) {
            faults.insert(0, format!("its flags, {flags:#x}, are not those of its pages"));
            return;
        }
        let limit = u64::from(read_u32(first, FSP_FREE_LIMIT));
        let size = u64::from(read_u32(first, FSP_SIZE));
        // Small files end before their first extent does.
        let extent = u64::try_from(self.layout.extent_pages()).unwrap_or(u64::MAX).max(1);
        if limit > size.next_multiple_of(extent) || !limit.is_multiple_of(extent) {
            faults.insert(0, format!("{size} pages, and initialised up to page {limit}"));
            return;
        }
        let is_of_extents =
            |page: &[u8]| matches!(read_u16(page, PAGE_TYPE), TYPE_FSP_HDR | TYPE_XDES);
        let step = u64::try_from(self.layout.page_size).unwrap_or(u64::MAX).max(1);
        let wanted = limit.div_ceil(step);
        let mut extents = Vec::new();
        let mut descriptions = 0_u64;
        for (number, page) in kept.iter().filter(|(_, page)| is_of_extents(page)) {
            if u64::from(*number).is_multiple_of(step) {
                descriptions = descriptions.saturating_add(1);
                self.read_extents(*number, page, limit, &mut extents);
            }
        }
        // One that failed is missing.
        if descriptions != wanted || !gathered.is_whole() {
            return;
        }
        extents.sort_unstable_by_key(|extent| extent.first);
        let mut books = Books { gathered, extents, faults };
        books.test_extents(first);
        let owners = self.test_segments(&mut books, first);
        if books.faults.is_empty() {
            self.compare_owners(gathered, &owners, faults);
        }
    }

    fn read_extents(&self, number: u32, page: &[u8], limit: u64, to: &mut Vec<Extent>) {
        let pages = self.layout.extent_pages().max(1);
        let bitmap_bytes = pages.saturating_mul(2).div_ceil(8);
        let bytes = BITMAP.saturating_add(bitmap_bytes);
        let count = self.layout.page_size.checked_div(pages).unwrap_or(0);
        let descriptors = page.get(EXTENT_DESCRIPTORS..).unwrap_or_default().chunks_exact(bytes);
        let firsts = (number..).step_by(pages);
        let places = (EXTENT_DESCRIPTORS..).step_by(bytes);
        for ((descriptor, first), at) in descriptors.take(count).zip(firsts).zip(places) {
            if u64::from(first) >= limit {
                break;
            }
            let bitmap = descriptor.get(BITMAP..).unwrap_or_default();
            let free: u32 = bitmap.iter().map(|byte| (byte & !ALWAYS_SET).count_ones()).sum();
            to.push(Extent {
                at: (number, at.saturating_add(NODE)),
                first,
                segment: read_u64(descriptor, 0),
                before: address(descriptor, NODE),
                next: address(descriptor, NODE.saturating_add(6)),
                state: read_u32(descriptor, STATE),
                in_use: pages.saturating_sub(usize::try_from(free).unwrap_or(usize::MAX)),
                pages,
                is_marked: bitmap.iter().all(|byte| byte & ALWAYS_SET == ALWAYS_SET),
            });
        }
    }

    /// The segments of all pages of segments. To which each page belongs that one has.
    fn test_segments(&self, books: &mut Books<'_>, first: &[u8]) -> Owners {
        let mut owners = Owners::default();
        let singles = self.layout.extent_pages() / 2;
        let bytes = singles.saturating_mul(4).saturating_add(SINGLES);
        let kept = &books.gathered.found.kept;
        let pages: Vec<_> =
            kept.iter().filter(|(_, page)| read_u16(page, PAGE_TYPE) == TYPE_INODE).collect();
        let counted: u32 =
            SEGMENT_PAGES.iter().map(|at| read_u32(first, *at)).fold(0, u32::saturating_add);
        if usize::try_from(counted).ok() != Some(pages.len()) {
            let words =
                format!("{counted} pages of segments by its lists, and {} are there", pages.len());
            books.fault(0, words);
        }
        let last = read_u64(first, NEXT_SEGMENT);
        for (number, page) in pages {
            let end = page.len().saturating_sub(10);
            let rest = page.get(SEGMENTS..end).unwrap_or_default();
            for (segment, at) in rest.chunks_exact(bytes).zip((SEGMENTS..).step_by(bytes)) {
                let id = read_u64(segment, 0);
                if id == 0 {
                    continue;
                }
                owners.places.insert((*number, at), id);
                if read_u32(segment, MAGIC) != MAGIC_VALUE || id >= last {
                    books.fault(*number, format!("at byte {at} there is no segment, or none yet"));
                    continue;
                }
                books.test_lists(*number, segment, id);
                let slots = segment.get(SINGLES..).unwrap_or_default().chunks_exact(4);
                for page in slots.map(|slot| read_u32(slot, 0)).filter(|page| *page != NONE) {
                    let is_twice = owners.singles.insert(page, id).is_some();
                    if is_twice || !books.is_single(page) {
                        books.fault(
                            *number,
                            format!("page {page} of segment {id} is not in use as a single page"),
                        );
                    }
                }
            }
        }
        let ids: HashSet<u64> = owners.places.values().copied().collect();
        for extent in books.extents.iter().filter(|it| matches!(it.state, OF_SEGMENT | LENT)) {
            if !ids.contains(&extent.segment) {
                let words = format!(
                    "pages from {} on are of segment {}, which is not there",
                    extent.first, extent.segment
                );
                books.faults.entry(extent.at.0).or_insert(words);
            }
            owners.extents.insert(extent.first, extent.segment);
        }
        owners
    }

    /// Pages of indexes lie in the segments that their roots name.
    fn compare_owners(&self, gathered: &Gathered, owners: &Owners, faults: &mut Faults) {
        let extent = u32::try_from(self.layout.extent_pages()).unwrap_or(1).max(1);
        let mut of_roots: HashMap<u64, [u64; 2]> = HashMap::new();
        for (page, places) in &gathered.found.segments {
            let named = places.map(|place| owners.places.get(&place).copied());
            if let [Some(leaves), Some(upper)] = named {
                of_roots.insert(gathered.fact(*page).index, [leaves, upper]);
            }
        }
        for (page, fact) in gathered.pages() {
            let What::Type(kind) = fact.what else { continue };
            let first = page.checked_div(extent).unwrap_or(0).saturating_mul(extent);
            let owner = owners.singles.get(&page).or_else(|| owners.extents.get(&first));
            let is_owned_kind = fact.is_of_index() || kind == TYPE_BLOB;
            let words = match (owner, of_roots.get(&fact.index)) {
                (None, _) if is_owned_kind => "it is in use, and of no segment".to_owned(),
                (Some(owner), Some(segments))
                    if fact.is_of_index() && !segments.contains(owner) =>
                {
                    format!("it is of index {}, and in another's segment {owner}", fact.index)
                }
                _ => continue,
            };
            faults.entry(page).or_insert(words);
        }
    }
}

/// To which segment pages belong.
#[derive(Debug, Default)]
struct Owners {
    /// Segments by where they are written.
    places: HashMap<Address, u64>,
    singles: HashMap<u32, u64>,
    extents: BTreeMap<u32, u64>,
}

impl Books<'_> {
    fn fault(&mut self, page: u32, words: String) {
        self.faults.entry(page).or_insert(words);
    }

    fn is_single(&self, page: u32) -> bool {
        let after = self.extents.partition_point(|extent| extent.first <= page);
        let extent = after.checked_sub(1).and_then(|at| self.extents.get(at));
        let is_free = self.gathered.fact(page).what == What::Free;
        !is_free && extent.is_some_and(|it| matches!(it.state, SINGLE_LEFT | SINGLE_FULL))
    }

    fn test_extents(&mut self, first: &[u8]) {
        for extent in &self.extents {
            let is_possible = match extent.state {
                FREE => extent.in_use == 0,
                SINGLE_LEFT => extent.list() == 1,
                SINGLE_FULL => extent.list() == 2,
                OF_SEGMENT | LENT => true,
                _ => false,
            };
            if !is_possible || !extent.is_marked {
                let words = format!(
                    "the extent of page {} has state {} and {} pages in use",
                    extent.first, extent.state, extent.in_use
                );
                self.faults.entry(extent.at.0).or_insert(words);
            }
        }
        for (at, state) in LISTS.into_iter().zip(FREE..) {
            self.test_list(0, &list(first, at), |extent| extent.state == state);
        }
        let left = self.extents.iter().filter(|extent| extent.state == SINGLE_LEFT);
        let in_use = left.map(|extent| extent.in_use).fold(0, usize::saturating_add);
        let by_header = read_u32(first, SINGLE_IN_USE);
        if usize::try_from(by_header).ok() != Some(in_use) {
            self.fault(
                0,
                format!("{in_use} single pages are in use, and {by_header} by its header"),
            );
        }
    }

    fn test_lists(&mut self, page: u32, segment: &[u8], id: u64) {
        if self.extents.iter().any(|extent| extent.state == LENT) {
            return;
        }
        for (which, at) in SEGMENT_LISTS.into_iter().enumerate() {
            let own = list(segment, at);
            self.test_list(page, &own, |extent| {
                extent.state == OF_SEGMENT && extent.segment == id && extent.list() == which
            });
        }
        let part = self.extents.iter().filter(|extent| {
            extent.state == OF_SEGMENT && extent.segment == id && extent.list() == 1
        });
        let in_use = part.map(|extent| extent.in_use).fold(0, usize::saturating_add);
        let by_segment = read_u32(segment, 8);
        if usize::try_from(by_segment).ok() != Some(in_use) {
            let words = format!(
                "segment {id} has {in_use} pages in use in extents with free ones, and {by_segment} by its count"
            );
            self.fault(page, words);
        }
    }

    /// A list has all extents that should be in it, each linked to the one before it.
    fn test_list(&mut self, page: u32, list: &List, is_in: impl Fn(&Extent) -> bool) {
        const _: () = assert!(LIST_BYTES == 4 + 6 + 6);
        let those: HashMap<Address, &Extent> =
            self.extents.iter().filter(|it| is_in(it)).map(|it| (it.at, it)).collect();
        let count = those.len();
        if usize::try_from(list.length).ok() != Some(count) {
            self.fault(
                page,
                format!("a list of {} extents, of which there are {count}", list.length),
            );
            return;
        }
        let (mut at, mut before, mut seen) = (list.first, (NONE, 0), 0_usize);
        let is_end = |address: Address| address.0 == NONE;
        while !is_end(at) && seen <= count {
            let linked = those.get(&at).filter(|extent| {
                extent.before == before || is_end(extent.before) && is_end(before)
            });
            let Some(extent) = linked else {
                let words = format!("a list of extents leads to byte {} of page {}", at.1, at.0);
                self.faults.entry(page).or_insert(words);
                return;
            };
            (before, at) = (at, extent.next);
            seen = seen.saturating_add(1);
        }
        let is_last = list.last == before || is_end(list.last) && is_end(before);
        if seen != count || !is_last {
            self.fault(page, format!("a list of {count} extents ends after {seen}"));
        }
    }
}

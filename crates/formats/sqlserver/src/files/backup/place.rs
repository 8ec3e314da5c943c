//! Where an extent of a backup belongs.
//!
//! Extents carry no address: their pages do. Those without a formatted page (all zero, or destroyed)
//! are placed by their neighbours, for extents come in order: where as many places are free between
//! two that are known as extents came, or where the map of extents (GAM) names as many, the place is
//! certain. Nothing that depends on its place is said of an extent whose place is not.
//!
//! | page | bytes | |
//! |---|---|---|
//! | GAM: 2, then every 511,232 pages | 194 to 8182 | a bit an extent, lowest first; 0: allocated |
//! | DIFF map: 6, then every 511,232 pages | the same | 1: changed since the last full backup |
//!
//! Source: the first data file of every fixture: as many extents are in a full backup as zero bits are
//! in its GAM. In all 8 differential sets those that the DIFF map names are there, and no other.
//!
//! The last transfer of a backup may be filled up with pages of a type of their own: 101, page 0:0.

use std::collections::BTreeMap;

use crate::checksum::{PAGE_BYTES, Page};
use crate::mtf::EXTENT_BYTES;
pub(super) use crate::page::diff_map::EXTENT_PAGES;
use crate::page::diff_map::{BITS_AT, BITS_BYTES, INTERVAL_PAGES};
use crate::page::header::{Header, Tested, VERSION, kinds, tested};
use crate::page::system::with_own_bits;

/// Pages that one GAM page tells of.
const GAM_PAGES: u64 = INTERVAL_PAGES;
const GAM_EXTENTS: u64 = GAM_PAGES / EXTENT_PAGES;
const GAM_AT: usize = BITS_AT;
const GAM_BYTES: usize = BITS_BYTES;
/// Maps that are remembered.
const GAMS_MAX: usize = 1024;

const _: () = assert!(GAM_BYTES as u64 * 8 == GAM_EXTENTS && GAM_AT + GAM_BYTES <= PAGE_BYTES);

/// A place: of which file, and which of its extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    /// The file.
    pub(super) file: u16,
    /// The extent, counted from the beginning of the file.
    pub(super) extent: u64,
}

/// The place that an extent's own pages name.
pub(super) fn claimed(bytes: &[u8; EXTENT_BYTES]) -> Option<Address> {
    let mut votes: Vec<(Address, u32)> = Vec::new();
    for (page, slot) in bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(0_u64..) {
        let header = Header::parse(page);
        let number = u64::from(header.page);
        if !header.is_formatted() || header.file == 0 || number % EXTENT_PAGES != slot {
            continue;
        }
        let address = Address { file: header.file, extent: number / EXTENT_PAGES };
        match votes.iter_mut().find(|(voted, _)| *voted == address) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => votes.push((address, 1)),
        }
    }
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address)
}

/// True for an extent that only fills up the last transfer. One page of it may be damaged: that
/// harms nothing.
pub(super) fn is_filler(bytes: &[u8; EXTENT_BYTES]) -> bool {
    const FILLER: u8 = 101;
    const PAGES_MIN: usize = 7;
    let pages = bytes.as_chunks::<PAGE_BYTES>().0.iter();
    let fillers = pages.map(Header::parse).filter(|header| {
        header.version == VERSION && header.kind == FILLER && (header.page, header.file) == (0, 0)
    });
    fillers.count() >= PAGES_MIN
}

/// The map of one file's extents that must be in a backup set, as far as it came along.
#[derive(Debug, Default)]
pub(super) struct ExtentMap {
    /// Of a differential set: the DIFF map counts, and not the GAM.
    is_differential: bool,
    /// A bit an extent; 0: it must be there.
    gams: BTreeMap<u64, Vec<u8>>,
}

impl ExtentMap {
    /// A map of which nothing is known.
    pub(super) fn new(is_differential: bool) -> Self {
        Self { is_differential, gams: BTreeMap::new() }
    }

    /// Takes the map's page out of an extent of this place, if it has one.
    pub(super) fn learn(&mut self, address: Address, bytes: &[u8; EXTENT_BYTES]) {
        const DIFF_MAP_IN_INTERVAL: u64 = 6;
        let first = address.extent.saturating_mul(EXTENT_PAGES);
        for (page, number) in bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(first..) {
            let interval = number / GAM_PAGES;
            let (is_place, kind, turned) = if self.is_differential {
                (number % GAM_PAGES == DIFF_MAP_IN_INTERVAL, kinds::DIFF_MAP, 0xFF)
            } else {
                let is_place = number == 2 || (interval > 0 && number % GAM_PAGES == 0);
                (is_place, kinds::GAM, 0)
            };
            if is_place && is_map(page, kind, address.file, number) {
                // On a page with torn bits, those of the map are displaced.
                let own = with_own_bits(page);
                let map = own.get(GAM_AT..).and_then(|rest| rest.get(..GAM_BYTES));
                let map = map.unwrap_or_default().iter().map(|byte| byte ^ turned);
                self.gams.insert(interval, map.collect());
                if self.gams.len() > GAMS_MAX {
                    self.gams.pop_first();
                }
            }
        }
    }

    /// True for an extent that need not be there: what the map says for sure.
    pub(super) fn leaves_out(&self, extent: u64) -> bool {
        let map = self.gams.get(&(extent / GAM_EXTENTS));
        let at = extent % GAM_EXTENTS;
        let byte = map.and_then(|map| map.get(usize::try_from(at / 8).ok()?));
        byte.is_some_and(|byte| byte >> (at % 8) & 1 != 0)
    }

    /// The extents from `begin` on that must be there, up to `end` if there is one; `None` where
    /// that is not known, or their number is not `count`.
    pub(super) fn exactly(&self, begin: u64, end: Option<u64>, count: usize) -> Option<Vec<u64>> {
        // To the end of the interval, where nothing is known of the next.
        let last_interval = end.map_or(begin / GAM_EXTENTS, |end| end / GAM_EXTENTS);
        let end =
            end.unwrap_or_else(|| last_interval.saturating_add(1).saturating_mul(GAM_EXTENTS));
        if end.saturating_sub(begin) > GAM_EXTENTS {
            return None;
        }
        let mut found = Vec::new();
        for extent in begin..end {
            let map = self.gams.get(&(extent / GAM_EXTENTS))?;
            let at = extent % GAM_EXTENTS;
            let byte = map.get(usize::try_from(at / 8).ok()?)?;
            if byte >> (at % 8) & 1 == 0 {
                found.push(extent);
                if found.len() > count {
                    return None;
                }
            }
        }
        (found.len() == count).then_some(found)
    }
}

/// Extents of one file, small where they lie together.
#[derive(Debug, Default)]
pub(super) struct Seen {
    words: BTreeMap<u64, u64>,
}

impl Seen {
    /// 4 TiB of a file; the first ones are forgotten then.
    const WORDS_MAX: usize = 1 << 20;

    /// Those that were added, in order.
    pub(super) fn extents(&self) -> impl Iterator<Item = u64> {
        self.words.iter().flat_map(|(word, bits)| {
            let here = (0..64_u64).filter(move |bit| bits >> bit & 1 != 0);
            here.map(move |bit| word.saturating_mul(64).saturating_add(bit))
        })
    }

    /// Adds an extent; false if it was added before.
    pub(super) fn add(&mut self, extent: u64) -> bool {
        let word = self.words.entry(extent / 64).or_default();
        let bit = 1 << (extent % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        if self.words.len() > Self::WORDS_MAX {
            self.words.pop_first();
        }
        is_new
    }
}

fn is_map(page: &Page, kind: u8, file: u16, number: u64) -> bool {
    let header = Header::parse(page);
    header.kind == kind && header.is_of(file, number) && tested(page, &header) != Tested::Failed
}

/// The places of extents without one of their own, which came between these two; and whether they
/// are certain.
pub(super) fn between(
    map: Option<&ExtentMap>,
    before: Option<u64>,
    after: Option<u64>,
    count: usize,
) -> (Vec<u64>, bool) {
    let begin = before.map_or(0, |before| before.saturating_add(1));
    let following = || (begin..).take(count).collect::<Vec<_>>();
    let room = after.map(|after| after.saturating_sub(begin));
    if room == u64::try_from(count).ok() {
        return (following(), true);
    }
    match map.and_then(|map| map.exactly(begin, after, count)) {
        Some(places) => (places, true),
        None => (following(), false),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test's own numbers")]
mod tests {
    use super::*;

    fn extent(first: u32, pages: &[usize]) -> Box<[u8; EXTENT_BYTES]> {
        let mut bytes = Box::new([0; EXTENT_BYTES]);
        for slot in pages {
            let page = &mut bytes[slot * PAGE_BYTES..(slot + 1) * PAGE_BYTES];
            page[0] = 1;
            page[1] = 1;
            let number = first + u32::try_from(*slot).unwrap();
            page[32..36].copy_from_slice(&number.to_le_bytes());
            page[36] = 1;
        }
        bytes
    }

    #[test]
    fn pages_name_the_place_of_their_extent() {
        assert_eq!(claimed(&extent(0, &[])), None);
        let place = Some(Address { file: 1, extent: 5 });
        assert_eq!(claimed(&extent(40, &[7])), place);
        // One that is out of place does not outvote the others, nor does one in another slot.
        let mut bytes = extent(40, &[1, 2, 3]);
        bytes[32] = 0x90;
        assert_eq!(claimed(&bytes), place);
        bytes = extent(40, &[2]);
        bytes.copy_within(2 * PAGE_BYTES..3 * PAGE_BYTES, 0);
        assert_eq!(claimed(&bytes), place);
    }

    #[test]
    fn extents_without_pages_go_where_room_or_the_map_says() {
        assert_eq!(between(None, Some(4), Some(7), 2), (vec![5, 6], true));
        assert_eq!(between(None, None, Some(1), 1), (vec![0], true));
        assert_eq!(between(None, Some(4), Some(9), 2), (vec![5, 6], false));
        assert_eq!(between(None, Some(4), None, 2), (vec![5, 6], false));
        let mut map = ExtentMap::default();
        let mut bits = vec![0xFF; GAM_BYTES];
        bits[0] = 0b0101_0000;
        map.gams.insert(0, bits);
        // Allocated: 0 to 3, 5 and 7.
        assert_eq!(between(Some(&map), Some(3), None, 2), (vec![5, 7], true));
        assert_eq!(between(Some(&map), Some(3), Some(7), 1), (vec![5], true));
        assert_eq!(between(Some(&map), Some(3), None, 3), (vec![4, 5, 6], false));
    }
}

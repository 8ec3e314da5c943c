//! The keys by which inner pages of a btree lead to their children: each is the high key of the
//! child's left neighbour, byte by byte, as a split wrote both.
//!
//! Pages come in any order, so that hashes of the keys are kept: 20 bytes a page, up to
//! [`PAGES_MAX`]. An index with more is not tested so. Source: `bt_child_highkey_check` in
//! `contrib/amcheck/verify_nbtree.c`, 13 to 18.

use crate::files::structure::live::KeyHash;
use crate::files::structure::values::Value;

/// Pages of one index: some 160 MiB.
const PAGES_MAX: usize = 8 << 20;
/// What is compared of a key begins here: behind the block, and up to 11 behind the number.
const SINCE_12: usize = 4;
const UP_TO_11: usize = 6;
const VERSION_BY_ROW: u32 = 4;
/// A key of more bytes goes by the first ones: pages have no longer ones.
const KEY_BYTES_MAX: usize = 400;

/// What inner pages and high keys say, by block. A hash of 0 stands for none.
#[derive(Debug, Default)]
pub(super) struct Downlinks {
    places: Vec<Place>,
    /// A page lies behind those that are remembered.
    pub(super) is_full: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Place {
    left: u32,
    /// Of the entry that leads here.
    leading: u64,
    high: u64,
}

impl Downlinks {
    fn place(&mut self, block: u32) -> Option<&mut Place> {
        let Some(at) = usize::try_from(block).ok().filter(|at| *at < PAGES_MAX) else {
            self.is_full = true;
            return None;
        };
        if self.places.len() <= at {
            self.places.resize(at.checked_add(1)?, Place::default());
        }
        self.places.get_mut(at)
    }

    /// A page, with its left neighbour and its high key.
    pub(super) fn page(&mut self, block: u32, left: u32, high: Option<&[u8]>, version: u32) {
        if let Some(place) = self.place(block) {
            place.left = left;
            place.high = high.map_or(0, |high| hash(high, version));
        }
    }

    /// An entry of an inner page, but for the first one.
    pub(super) fn lead(&mut self, entry: &[u8], version: u32) {
        use crate::files::witness::Tid;
        let leading = hash(entry, version);
        let child = Tid::read(entry).map_or(0, |tid| tid.block);
        if let Some(place) = self.place(child) {
            place.leading = leading;
        }
    }

    /// What is wrong, by the block of the child.
    pub(super) fn faults(&self) -> Vec<(u32, String)> {
        let faulty = (0_u32..).zip(&self.places).filter(|(_, place)| {
            let left = usize::try_from(place.left).ok().and_then(|left| self.places.get(left));
            let high = left.filter(|_| place.left != 0).map_or(0, |left| left.high);
            place.leading != 0 && high != 0 && place.leading != high
        });
        let text = |left| {
            format!(
                "the key that leads to it is not the high key of its left neighbour, page {left}"
            )
        };
        faulty.map(|(block, place)| (block, text(place.left))).collect()
    }
}

fn hash(key: &[u8], version: u32) -> u64 {
    let begin = if version >= VERSION_BY_ROW { SINCE_12 } else { UP_TO_11 };
    let mut hash = KeyHash::new();
    for part in key.get(begin..).unwrap_or_default().chunks(KEY_BYTES_MAX) {
        hash.add(Value::Plain(part));
    }
    hash.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_that_leads_to_a_page_is_the_high_key_before_it() {
        let key =
            |block: u8, number: u8, key: u8| [0, 0, block, 0, number, 0x20, 16, 0x20, key, 0, 0, 0];
        let told = |leading: &[u8]| {
            let mut downlinks = Downlinks::default();
            downlinks.page(2, 1, None, 4);
            downlinks.lead(leading, 4);
            downlinks.page(1, 0, Some(&key(9, 1, 7)), 4);
            downlinks.faults()
        };
        assert_eq!(told(&key(2, 1, 7)), []);
        for other in [key(2, 1, 6), key(2, 2, 7)] {
            let found = told(&other);
            assert!(found[0].0 == 2 && found[0].1.ends_with("page 1"), "{found:?}");
        }
    }
}

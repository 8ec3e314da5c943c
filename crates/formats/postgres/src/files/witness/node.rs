//! One page of a btree index: whether a server could have written it, and what it says of its
//! place in the tree.
//!
//! | tested | of |
//! | --- | --- |
//! | magic number and version of the metapage; a level that a tree can have | metapages |
//! | level 0 on leaf pages, and on no other | pages in use |
//! | a high key on every page but the rightmost, a downlink on inner pages | pages in use |
//! | entries inside of the page, aligned, apart; length as the entry itself says | pages in use |
//!
//! Deleted and half-dead pages hold what their deletion left, and are asked for their flags
//! alone. Layout of the special space: see `btree`. Sources: `nbtree.h`, `nbtpage.c`,
//! `palloc_btree_page` in `contrib/amcheck/verify_nbtree.c`, 9.6 to 18.

use crate::files::control::u32_at;
use crate::files::witness::items::{Tiles, overlap};
use crate::files::witness::tid::{special, u16_at};
use crate::page::{HEADER_BYTES, Header};

const LEAF: u16 = 1;
const DELETED: u16 = 4;
const META: u16 = 8;
const HALF_DEAD: u16 = 16;
const INCOMPLETE: u16 = 128;
const MAGIC: u32 = 0x0005_3162;
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=4;
/// A tree of 2^32 pages has fewer levels: every inner page has two children or more, but for
/// those that are being deleted.
pub const LEVEL_MAX: u32 = 60;
/// Size of an entry, in `t_info`.
const ENTRY_SIZE: u16 = 0x1FFF;
const ENTRY_BYTES: usize = 8;

/// What a page says of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The metapage: the root and its level.
    Meta {
        /// Its block; 0 for an index that is empty.
        root: u32,
        /// 0 if it is a leaf.
        level: u32,
    },
    /// A page of the tree.
    Member {
        /// The left neighbour; 0 for none.
        left: u32,
        /// The right neighbour; 0 for none.
        right: u32,
        /// 0 for leaf pages.
        level: u32,
        /// It is being deleted: its parent has forgotten it.
        is_half_dead: bool,
        /// Its parent does not know of its right neighbour yet.
        is_incomplete: bool,
    },
    /// A page that was deleted.
    Deleted,
}

/// What a page of a btree says of itself; what is wrong with it, in words, if no server could
/// have written it. `page` has passed its own tests; one without the special space of a btree
/// is a deleted one.
///
/// # Errors
/// What is wrong.
pub fn read(page: &[u8]) -> Result<Node, String> {
    let Some(special) = special::<16>(page) else { return Ok(Node::Deleted) };
    let word = |at: usize| u32_at(special, at).unwrap_or(0);
    let flags = u16_at(special, 12);
    if flags & META != 0 {
        return meta(page);
    }
    if flags & DELETED != 0 {
        return Ok(Node::Deleted);
    }
    let (left, right, level) = (word(0), word(4), word(8));
    let is_leaf = flags & LEAF != 0;
    if is_leaf != (level == 0) || level > LEVEL_MAX {
        let kind = if is_leaf { "a leaf" } else { "an inner page" };
        return Err(format!("it is {kind} of level {level}"));
    }
    let is_half_dead = flags & HALF_DEAD != 0;
    if !is_half_dead {
        let needed = usize::from(right != 0) + usize::from(!is_leaf);
        entries(page, needed)?;
    }
    let is_incomplete = flags & INCOMPLETE != 0;
    Ok(Node::Member { left, right, level, is_half_dead, is_incomplete })
}

fn meta(page: &[u8]) -> Result<Node, String> {
    let word = |field: usize| u32_at(page, HEADER_BYTES.saturating_add(field)).unwrap_or(0);
    let (magic, version, root, level) = (word(0), word(4), word(8), word(12));
    if magic != MAGIC || !VERSIONS.contains(&version) {
        return Err(format!("a metapage with magic number 0x{magic:x} and version {version}"));
    }
    if level > LEVEL_MAX {
        return Err(format!("a metapage with its root at level {level}"));
    }
    Ok(Node::Meta { root, level })
}

/// Whether the entries are ones that a server writes, and at least `needed` of them.
fn entries(page: &[u8], needed: usize) -> Result<(), String> {
    let Some(header) = Header::read(page) else { return Ok(()) };
    let (upper, end) = (u32::from(header.upper), u32::from(header.special));
    let pointers = page.get(HEADER_BYTES..usize::from(header.lower)).unwrap_or_default();
    let pointers = pointers.as_chunks::<4>().0;
    if pointers.len() < needed {
        return Err(format!("it has {} entries, and needs {needed}", pointers.len()));
    }
    let mut tiles = Tiles::default();
    for (index, bits) in pointers.iter().enumerate() {
        let bits = u32::from_le_bytes(*bits);
        let (begin, length) = (bits & 0x7FFF, bits >> 17);
        let at = usize::try_from(begin).unwrap_or(usize::MAX);
        let entry = page.get(at..).and_then(|rest| rest.first_chunk::<ENTRY_BYTES>());
        let size = entry.map_or(0, |entry| u32::from(u16_at(entry, 6) & ENTRY_SIZE));
        // Normal, or known to be dead: both have storage.
        let has_row = bits >> 15 & 1 == 1;
        let is_inside = begin >= upper && begin.wrapping_add(length) <= end && begin & 7 == 0;
        if !(has_row & is_inside & (size == length) & (length >= 8)) {
            return Err(format!(
                "its line pointer {} leads to {length} bytes at {begin}, where an entry of {size} bytes is",
                index.saturating_add(1)
            ));
        }
        tiles = tiles.with(begin, length);
    }
    if tiles.fill(upper, end) { Ok(()) } else { overlap_of(page) }
}

fn overlap_of(page: &[u8]) -> Result<(), String> {
    overlap(page).map_or(Ok(()), Err)
}

#[cfg(test)]
pub(in crate::files) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page with entries of 16 bytes that lead to these blocks, and its special space.
    pub(in crate::files) fn page(
        left: u32,
        right: u32,
        level: u32,
        flags: u16,
        blocks: &[u16],
    ) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let count = u16::try_from(blocks.len()).unwrap();
        page[12..14].copy_from_slice(&(24 + 4 * count).to_le_bytes());
        page[14..16].copy_from_slice(&(8176 - 16 * count).to_le_bytes());
        page[16..18].copy_from_slice(&8176_u16.to_le_bytes());
        for (index, block) in blocks.iter().enumerate() {
            let begin = 8176 - 16 * (index + 1);
            let bits = u32::try_from(begin).unwrap() | 1 << 15 | 16 << 17;
            page[24 + index * 4..][..4].copy_from_slice(&bits.to_le_bytes());
            page[begin + 2..begin + 4].copy_from_slice(&block.to_le_bytes());
            page[begin + 4] = 1;
            page[begin + 6] = 16;
        }
        for (at, word) in [(8176, left), (8180, right), (8184, level)] {
            page[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        page[8188..8190].copy_from_slice(&flags.to_le_bytes());
        page
    }

    pub(in crate::files) fn metapage(root: u32, level: u32) -> Vec<u8> {
        let mut page = page(0, 0, 0, META, &[]);
        for (index, word) in [MAGIC, 4, root, level, root, level].iter().enumerate() {
            page[24 + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    #[test]
    fn pages_that_servers_write_say_where_they_belong() {
        assert_eq!(read(&metapage(3, 1)), Ok(Node::Meta { root: 3, level: 1 }));
        let member = |left, right, level, is_half_dead, is_incomplete| {
            Ok(Node::Member { left, right, level, is_half_dead, is_incomplete })
        };
        assert_eq!(read(&page(0, 0, 0, LEAF, &[])), member(0, 0, 0, false, false));
        assert_eq!(read(&page(1, 2, 0, LEAF, &[7, 8])), member(1, 2, 0, false, false));
        let parent = page(1, 0, 1, INCOMPLETE, &[7, 8]);
        assert_eq!(read(&parent), member(1, 0, 1, false, true));
        // What was deleted up to 13 has a transaction where others have their level.
        assert_eq!(read(&page(1, 2, 12_345, LEAF | DELETED, &[])), Ok(Node::Deleted));
        assert_eq!(read(&page(1, 2, 0, LEAF | HALF_DEAD, &[])), member(1, 2, 0, true, false));
        // An entry that is known to be dead stays where it is.
        let mut dead = page(0, 0, 0, LEAF, &[7, 8]);
        dead[25..27].copy_from_slice(&[0x9F, 0x21]);
        assert_eq!(read(&dead), member(0, 0, 0, false, false));
    }

    #[test]
    fn pages_that_no_server_writes_are_faults() {
        for (page, words) in [
            (page(0, 0, 1, LEAF, &[]), "it is a leaf of level 1"),
            (page(0, 0, 0, 0, &[7]), "it is an inner page of level 0"),
            (page(0, 0, 61, 0, &[7]), "it is an inner page of level 61"),
            (page(0, 2, 0, LEAF, &[]), "it has 0 entries, and needs 1"),
            (page(0, 2, 1, 0, &[7]), "it has 1 entries, and needs 2"),
            (metapage(3, 61), "a metapage with its root at level 61"),
        ] {
            assert_eq!(read(&page), Err(words.to_owned()));
        }
        let mut foreign = metapage(3, 1);
        foreign[24] ^= 1;
        assert!(read(&foreign).is_err());
        let sound = page(0, 0, 0, LEAF, &[7, 8, 9]);
        for (bits, words) in [
            (0, "line pointer 2 leads to 0 bytes at 0"),
            (8144 | 2 << 15 | 16 << 17, "line pointer 2 leads to 16 bytes at 8144"),
            (
                8144 | 1 << 15 | 24 << 17,
                "line pointer 2 leads to 24 bytes at 8144, where an entry of 16",
            ),
            (8104 | 1 << 15 | 16 << 17, "line pointer 2 leads to 16 bytes at 8104"),
            (8168 | 1 << 15 | 16 << 17, "line pointer 2 leads to 16 bytes at 8168"),
            (8160 | 1 << 15 | 16 << 17, "line pointer 2 leads into the bytes of another tuple"),
        ] {
            let mut page: Vec<u8> = sound.clone();
            page[28..32].copy_from_slice(&u32::to_le_bytes(bits));
            let text = read(&page).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_page_is_too_strange(
            blocks in prop::collection::vec(any::<u16>(), 0..300),
            changes in prop::collection::vec((0..8192_usize, any::<u8>()), 0..60),
            length in 0..=8192_usize,
        ) {
            let mut page = page(1, 2, 0, LEAF, &blocks);
            for (at, byte) in changes {
                page[at] = byte;
            }
            let _ = read(&page);
            let _ = read(&page[..length]);
        }
    }
}

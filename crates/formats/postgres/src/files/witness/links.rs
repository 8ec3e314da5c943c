//! The pages of an index that another page of it leads to: such a page is in use, and
//! neither all zero nor past the end of the file.
//!
//! | method | links |
//! | --- | --- |
//! | btree | root and fast root of the metapage; siblings; entries of inner pages |
//! | hash | the buckets and bitmaps of the metapage; the next page of a bucket; neighbours of overflow pages |
//! | GiST | right neighbours; entries of inner pages |
//! | GIN | the root, at 1; pending list; right neighbours; children of keys and of posting trees; posting trees |
//! | SP-GiST | the roots, at 1 and 2; nodes of inner tuples |
//! | BRIN | the revmap, and the pages that it leads to |
//!
//! ```text
//! metapage of btree, from offset 24: magic (4), version (4), root (4), level (4), fast root (4)
//! metapage of hash                   magic (4), version (4); at 24 + 24 the highest bucket, at 24 + 44 the number
//!                                    of bitmaps, at 24 + 52 pages spared before each of 98 split points, then
//!                                    the blocks of the bitmaps
//! metapage of GIN                    head (4) and tail (4) of the pending list
//! metapage of BRIN                   magic (4), version (4), pages a range (4), last page of the revmap (4)
//! inner page of a posting tree       from offset 32, ten bytes each: block (high half, low half), row (6)
//! inner tuple of SP-GiST             state, number of nodes and size of the prefix in 4 bytes (3 + 13 + 16
//!                                    bits), size (2), from offset 8 the prefix and the nodes, index tuples
//! page of the revmap of BRIN         from offset 24 rows of six bytes, up to the special space
//! ```
//!
//! Deleted pages are not asked: their links may be older than the pages that they lead to.
//! A link and the page it leads to change in one record of the log, and pages are never
//! given back, so that after a clean stop every link leads to a page in use. Pages that are
//! yet to be used are legally zero, and nothing leads to them. Hash indexes before 10 are not
//! logged, and prove nothing.
//!
//! Sources: `nbtree.h`, `hash.h` (`BUCKET_TO_BLKNO`), `_hash_spareindex` in `hashutil.c`, `gist.h`, `ginblock.h`, `spgist_private.h`, `brin_page.h` in
//! `src/include/access`, 9.6 to 18.

use crate::files::control::u32_at;
use crate::files::witness::Method;
use crate::files::witness::tid::{TID_BYTES, Tid, entries, special, u16_at};
use crate::page::HEADER_BYTES;

/// `InvalidBlockNumber`.
const NONE: u32 = u32::MAX;

/// Calls `each` for every block that a sound page leads to.
pub fn visit(method: Method, page: &[u8], mut each: impl FnMut(u32)) {
    let each = &mut |block: u32| {
        if block != NONE {
            each(block);
        }
    };
    match method {
        Method::Btree => btree(page, each),
        Method::Hash => hash(page, each),
        Method::Gist => gist(page, each),
        Method::Gin => gin(page, each),
        Method::SpGist => spgist(page, each),
        Method::Brin => brin(page, each),
    }
}

fn meta(page: &[u8], field: usize) -> Option<u32> {
    u32_at(page, HEADER_BYTES.checked_add(field)?)
}

fn btree(page: &[u8], each: &mut impl FnMut(u32)) {
    const LEAF: u16 = 1;
    const DELETED: u16 = 4;
    const META: u16 = 8;
    const HALF_DEAD: u16 = 16;
    const ROOT: usize = 8;
    const FAST_ROOT: usize = 16;
    let Some(special) = special::<16>(page) else { return };
    let flags = u16_at(special, 12);
    // 0 is the metapage, to which nothing leads: it stands for no link.
    let mut link =
        |block: Option<u32>| block.filter(|block| *block != 0).into_iter().for_each(&mut *each);
    if flags & META != 0 {
        link(meta(page, ROOT));
        return link(meta(page, FAST_ROOT));
    }
    if flags & (DELETED | HALF_DEAD) != 0 {
        return;
    }
    let next = u32_at(special, 4);
    link(u32_at(special, 0));
    link(next);
    if flags & LEAF == 0 {
        children(page, |block| link(Some(block)));
    }
}

/// Calls `each` for the block of every entry of an inner page of a btree.
pub fn children(page: &[u8], mut each: impl FnMut(u32)) {
    let Some(special) = special::<16>(page) else { return };
    // The first entry of a page that is not the rightmost is its high key.
    let first = usize::from(u32_at(special, 4) != Some(0));
    for (entry, _) in entries(page, first) {
        each(Tid::of(entry).block);
    }
}

fn hash(page: &[u8], each: &mut impl FnMut(u32)) {
    const PAGE: u16 = 0xFF80;
    const TYPE: u16 = 15;
    const OVERFLOW: u16 = 1;
    const BUCKET: u16 = 2;
    const META: u16 = 8;
    let Some(special) = special::<16>(page) else { return };
    if u16_at(special, 14) != PAGE {
        return;
    }
    match u16_at(special, 12) & TYPE {
        META => hash_meta(page, each),
        // The first field of a bucket's page counts buckets.
        BUCKET => u32_at(special, 4).into_iter().for_each(each),
        OVERFLOW => [0, 4].into_iter().filter_map(|at| u32_at(special, at)).for_each(each),
        _ => {}
    }
}

fn hash_meta(page: &[u8], each: &mut impl FnMut(u32)) {
    const MAGIC: u32 = 0x0644_0640;
    /// That of 10 and later.
    const VERSION: u32 = 4;
    const HIGHEST_BUCKET: usize = 24;
    const BITMAPS_COUNT: usize = 44;
    const SPARES: usize = 52;
    const SPARES_COUNT: usize = 98;
    const BITMAPS: usize = SPARES + SPARES_COUNT * 4;
    const BITMAPS_MAX: u32 = 1024;
    /// More than a metapage that is not damaged tells of.
    const BUCKETS_MAX: u32 = 1 << 26;
    if meta(page, 0) != Some(MAGIC) || meta(page, 4) != Some(VERSION) {
        return;
    }
    let highest = meta(page, HIGHEST_BUCKET).unwrap_or(0).min(BUCKETS_MAX);
    for bucket in 0..=highest {
        let before = match bucket {
            0 => Some(0),
            bucket => split_point(bucket.saturating_add(1))
                .checked_sub(1)
                .filter(|index| *index < SPARES_COUNT)
                .and_then(|index| meta(page, SPARES + index * 4)),
        };
        before
            .and_then(|before| before.checked_add(bucket)?.checked_add(1))
            .into_iter()
            .for_each(&mut *each);
    }
    let count = meta(page, BITMAPS_COUNT).unwrap_or(0).min(BITMAPS_MAX);
    let blocks = page.get(HEADER_BYTES + BITMAPS..).unwrap_or_default().as_chunks::<4>().0;
    for block in blocks.iter().take(usize::try_from(count).unwrap_or(0)) {
        each(u32::from_le_bytes(*block));
    }
}

/// `_hash_spareindex`: at which split point there are that many buckets. The buckets double
/// from one to the next, from the tenth on in four phases each.
fn split_point(buckets: u32) -> usize {
    const WITH_ONE_PHASE: u32 = 10;
    const PHASE_BITS: u32 = 2;
    const PHASES: u32 = 1 << PHASE_BITS;
    let group = u32::BITS - buckets.saturating_sub(1).leading_zeros();
    let point = match group.checked_sub(WITH_ONE_PHASE) {
        None => group,
        Some(beyond) => {
            let phase = buckets.saturating_sub(1) >> (group - (PHASE_BITS + 1)) & (PHASES - 1);
            WITH_ONE_PHASE + beyond * PHASES + phase
        }
    };
    usize::try_from(point).unwrap_or(usize::MAX)
}

fn gist(page: &[u8], each: &mut impl FnMut(u32)) {
    const LEAF: u16 = 1;
    const DELETED: u16 = 2;
    const PAGE: u16 = 0xFF81;
    let Some(special) = special::<16>(page) else { return };
    let flags = u16_at(special, 12);
    if flags & DELETED != 0 || u16_at(special, 14) != PAGE {
        return;
    }
    u32_at(special, 8).into_iter().for_each(&mut *each);
    if flags & LEAF == 0 {
        entries(page, 0).for_each(|(entry, _)| each(Tid::of(entry).block));
    }
}

fn gin(page: &[u8], each: &mut impl FnMut(u32)) {
    const DATA: u16 = 1;
    const LEAF: u16 = 2;
    const DELETED: u16 = 4;
    const META: u16 = 8;
    const PENDING: u16 = 16;
    const IN_TREE: u16 = 0xFFFF;
    const CHILDREN: usize = 32;
    const CHILD_BYTES: usize = 10;
    let Some(special) = special::<8>(page) else { return };
    let flags = u16_at(special, 6);
    if flags & DELETED != 0 {
        return;
    }
    if flags & META != 0 {
        const ROOT: u32 = 1;
        each(ROOT);
        return [0, 4].into_iter().filter_map(|at| meta(page, at)).for_each(each);
    }
    u32_at(special, 0).into_iter().for_each(&mut *each);
    match flags & (DATA | LEAF | PENDING) {
        0 => entries(page, 0).for_each(|(entry, _)| each(Tid::of(entry).block)),
        LEAF => entries(page, 0)
            .map(|(entry, _)| Tid::of(entry))
            .filter(|tid| tid.number == IN_TREE)
            .for_each(|tid| each(tid.block)),
        DATA => {
            let count = usize::from(u16_at(special, 4));
            let end = page.len().saturating_sub(8);
            let children = page.get(CHILDREN..end).unwrap_or_default();
            let children = children.chunks_exact(CHILD_BYTES).take(count);
            children.filter_map(Tid::read).for_each(|child| each(child.block));
        }
        _ => {}
    }
}

fn spgist(page: &[u8], each: &mut impl FnMut(u32)) {
    const META: u16 = 1;
    const DELETED: u16 = 2;
    const LEAF: u16 = 4;
    const PAGE: u16 = 0xFF82;
    const TUPLE_BYTES: usize = 8;
    const NODE_BYTES: usize = 8;
    const STATE: u32 = 3;
    const NODE_SIZE: u16 = 0x1FFF;
    let Some(special) = special::<8>(page) else { return };
    let flags = u16_at(special, 0);
    if u16_at(special, 6) != PAGE {
        return;
    }
    if flags & META != 0 {
        // That of rows, and that of nulls.
        return [1, 2].into_iter().for_each(each);
    }
    if flags & (DELETED | LEAF) != 0 {
        return;
    }
    for (_, begin) in entries(page, 0) {
        let Some(tuple) = page.get(begin..) else { return };
        let head = u32_at(tuple, 0).unwrap_or(0);
        if head & STATE != 0 {
            continue;
        }
        let nodes = head >> 3 & 0x1FFF;
        let mut at = TUPLE_BYTES.saturating_add(usize::try_from(head >> 16).unwrap_or(0));
        for _ in 0..nodes {
            let Some(node) = tuple.get(at..).filter(|node| node.len() >= NODE_BYTES) else { break };
            // One without a child has no line pointer.
            if let Some(child) = Tid::read(node).filter(|child| child.number != 0) {
                each(child.block);
            }
            let bytes = usize::from(u16_at(node, TID_BYTES) & NODE_SIZE);
            at = at.saturating_add(bytes.max(NODE_BYTES));
        }
    }
}

fn brin(page: &[u8], each: &mut impl FnMut(u32)) {
    const META: u16 = 0xF091;
    const REVMAP: u16 = 0xF092;
    const LAST_OF_REVMAP: usize = 12;
    /// A revmap is never longer: it holds 1,360 ranges a page.
    const REVMAP_MAX: u32 = 1 << 22;
    let Some(special) = special::<8>(page) else { return };
    match u16_at(special, 6) {
        META => {
            let last = meta(page, LAST_OF_REVMAP).unwrap_or(0).min(REVMAP_MAX);
            (1..=last).for_each(each);
        }
        REVMAP => {
            let end = page.len().saturating_sub(8);
            let rows = page.get(HEADER_BYTES..end).unwrap_or_default().chunks_exact(TID_BYTES);
            let rows = rows.filter_map(Tid::read).filter(|row| row.number != 0);
            rows.for_each(|row| each(row.block));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(special: &[u8]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let begin = 8192 - special.len();
        page[16..18].copy_from_slice(&u16::try_from(begin).unwrap().to_le_bytes());
        page[begin..].copy_from_slice(special);
        page
    }

    fn links(method: Method, page: &[u8]) -> Vec<u32> {
        let mut links = Vec::new();
        visit(method, page, |block| links.push(block));
        links
    }

    #[test]
    fn metapages_lead_to_roots_and_lists() {
        let mut btree = page(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
        btree[32] = 3;
        btree[40] = 4;
        assert_eq!(links(Method::Btree, &btree), [3, 4]);
        let mut gin = page(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 8, 0]);
        gin[24..32].copy_from_slice(&[5, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(links(Method::Gin, &gin), [1, 5]);
        let mut brin = page(&[0, 0, 0, 0, 0, 0, 0x91, 0xF0]);
        brin[36] = 3;
        assert_eq!(links(Method::Brin, &brin), [1, 2, 3]);
    }

    #[test]
    fn buckets_double_from_one_split_point_to_the_next_and_later_in_four_phases() {
        let points = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (512, 9), (513, 10), (640, 10)];
        let later =
            [(641, 11), (769, 12), (897, 13), (1024, 13), (1025, 14), (1280, 14), (1281, 15)];
        for (buckets, point) in points.into_iter().chain(later) {
            assert_eq!(split_point(buckets), point, "{buckets}");
        }
    }

    #[test]
    fn inner_pages_of_a_btree_lead_to_their_children_and_neighbours() {
        let mut inner = page(&[7, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        inner[12..14].copy_from_slice(&32_u16.to_le_bytes());
        inner[24..26].copy_from_slice(&(8000_u16 | 0x8000).to_le_bytes());
        inner[28..30].copy_from_slice(&(8008_u16 | 0x8000).to_le_bytes());
        inner[8000..8004].copy_from_slice(&[0, 0, 1, 0]);
        inner[8008..8012].copy_from_slice(&[0, 0, 2, 0]);
        assert_eq!(links(Method::Btree, &inner), [7, 9, 2]);
        // A leaf, and a deleted page.
        inner[8188] = 1;
        assert_eq!(links(Method::Btree, &inner), [7, 9]);
        inner[8188] = 4;
        assert_eq!(links(Method::Btree, &inner), [] as [u32; 0]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            mut page in prop::collection::vec(any::<u8>(), 64..1024),
            marker in prop_oneof![Just(0xFF80_u16), Just(0xFF81), Just(0xFF82), Just(0xF092), 0..64_u16],
            bytes in prop_oneof![Just(8_usize), Just(16)],
            lower in 0..1100_u16,
        ) {
            let length = page.len();
            let begin = u16::try_from(length - bytes).unwrap();
            page[16..18].copy_from_slice(&begin.to_le_bytes());
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[length - 2..].copy_from_slice(&marker.to_le_bytes());
            for method in [Method::Btree, Method::Hash, Method::Gist, Method::Gin, Method::SpGist, Method::Brin] {
                let mut count = 0_usize;
                visit(method, &page, |_| count += 1);
                prop_assert!(count <= length * length);
            }
        }
    }
}

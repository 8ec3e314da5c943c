//! A b-tree page, taken apart and compared with what SQLite writes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 2 and 10 index, 5 and 13 table; 2 and 5 have children |
//! | 1 | 2 | first free block, or 0 |
//! | 3 | 2 | number of cells |
//! | 5 | 2 | where cell content begins; 0 stands for 65536 |
//! | 7 | 1 | fragments: free bytes in stretches of up to three |
//! | 8 | 4 | rightmost child, on pages with children only |
//!
//! Behind it the places of the cells in the order of their keys, two bytes each. A cell is:
//!
//! | page | cell |
//! |---|---|
//! | table, leaf | payload length, rowid, payload |
//! | table, interior | left child (4 bytes), rowid |
//! | index, leaf | payload length, payload |
//! | index, interior | left child, payload length, payload |
//!
//! Lengths and rowids are numbers of variable length. What does not fit of a payload goes to
//! overflow pages, and the number of the first stands behind the part that does. Cells, free blocks
//! and fragments fill the page to the byte.
//!
//! Facts from SQLite's public documentation (`fileformat2.html`, 1.6); what counts as a fault is what
//! `PRAGMA quick_check` calls one.

#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use super::header::{
    CELL_BYTES_MIN, INTERIOR_INDEX, INTERIOR_TABLE, LEAF_INDEX, LEAF_TABLE, varint,
};

const LEAF_HEADER_BYTES: usize = 8;
const INTERIOR_HEADER_BYTES: usize = 12;
/// A free block's own header: its successor and its length.
const FREE_BLOCK_BYTES_MIN: usize = 4;
/// What a cell and its pointer take at least, behind the header.
const CELL_AND_POINTER_BYTES: usize = 6;
const CONTENT_MAX: usize = 65_536;

/// What the keys of a b-tree are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// Rowids.
    Table,
    /// Records.
    Index,
}

impl TreeKind {
    /// The word for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Index => "index",
        }
    }
}

/// How much of a payload stands on the page.
#[derive(Debug, Clone, Copy)]
struct Room {
    usable: u64,
    local_max: u64,
    local_min: u64,
}

impl Room {
    fn new(kind: TreeKind, usable: usize) -> Option<Self> {
        let usable = u64::try_from(usable).ok()?;
        let part = |share: u64| {
            usable.checked_sub(12)?.checked_mul(share)?.checked_div(255)?.checked_sub(23)
        };
        Some(Self {
            usable,
            local_max: match kind {
                TreeKind::Table => usable.checked_sub(35)?,
                TreeKind::Index => part(64)?,
            },
            local_min: part(32)?,
        })
    }

    /// The bytes on the page, and whether the rest is elsewhere.
    fn local(&self, payload: u64) -> Option<(usize, bool)> {
        if payload <= self.local_max {
            return Some((usize::try_from(payload).ok()?, false));
        }
        let rest = payload.checked_sub(self.local_min)?.checked_rem(self.usable.checked_sub(4)?)?;
        let local = self.local_min.checked_add(rest)?;
        let local = if local <= self.local_max { local } else { self.local_min };
        Some((usize::try_from(local).ok()?, true))
    }
}

/// One cell of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its bytes on the page.
    pub bytes: Range<usize>,
    /// The page with the keys before it; 0 on a leaf.
    pub left_child: u32,
    /// Its key in a table; 0 in an index.
    pub rowid: i64,
    /// The length of its payload, wherever that is; 0 on an interior page of a table.
    pub payload_bytes: u64,
    /// The payload's bytes on the page.
    pub local: Range<usize>,
    /// The first overflow page; `None` if all is on this page.
    pub overflow: Option<u32>,
}

/// A page whose header was understood.
#[derive(Debug, Clone, Copy)]
pub struct BtreePage<'a> {
    /// What is its own of the page.
    bytes: &'a [u8],
    /// The kind of its tree.
    pub kind: TreeKind,
    /// It has no children.
    pub is_leaf: bool,
    /// Its rightmost child; 0 on a leaf.
    pub right_child: u32,
    pointers: &'a [[u8; 2]],
    array_end: usize,
    content: usize,
    first_free: usize,
    fragments: u8,
    room: Room,
}

impl<'a> BtreePage<'a> {
    /// Reads the header at `header_offset` (100 on page 1, else 0) of a page of which `usable`
    /// bytes are SQLite's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(page: &'a [u8], header_offset: usize, usable: usize) -> Result<Self, String> {
        let cut = || "the page is cut".to_owned();
        let bytes = page.get(..usable).ok_or_else(cut)?;
        let header: &[u8; INTERIOR_HEADER_BYTES] =
            bytes.get(header_offset..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
        let [flag, free_a, free_b, cells_a, cells_b, content_a, content_b, fragments, right @ ..] =
            *header;
        let (kind, is_leaf) = match flag {
            INTERIOR_INDEX => (TreeKind::Index, false),
            INTERIOR_TABLE => (TreeKind::Table, false),
            LEAF_INDEX => (TreeKind::Index, true),
            LEAF_TABLE => (TreeKind::Table, true),
            other => return Err(format!("its first byte is {other}: no page of a b-tree")),
        };
        let cell_count = usize::from(u16::from_be_bytes([cells_a, cells_b]));
        let cells_max = page.len().saturating_sub(8).checked_div(CELL_AND_POINTER_BYTES);
        if Some(cell_count) > cells_max {
            return Err(format!("it counts {cell_count} cells, more than it has room for"));
        }
        let header_bytes = if is_leaf { LEAF_HEADER_BYTES } else { INTERIOR_HEADER_BYTES };
        let array = header_offset.saturating_add(header_bytes);
        let array_end = array.saturating_add(cell_count.saturating_mul(2));
        let (pointers, _) = bytes.get(array..array_end).ok_or_else(cut)?.as_chunks();
        let content = match usize::from(u16::from_be_bytes([content_a, content_b])) {
            0 => CONTENT_MAX,
            begin => begin,
        };
        if content < array_end || content > usable {
            return Err(format!(
                "its cell content begins at byte {content}, outside of {array_end} to {usable}"
            ));
        }
        Ok(Self {
            bytes,
            kind,
            is_leaf,
            right_child: if is_leaf { 0 } else { u32::from_be_bytes(right) },
            pointers,
            array_end,
            content,
            first_free: usize::from(u16::from_be_bytes([free_a, free_b])),
            fragments,
            room: Room::new(kind, usable).ok_or_else(cut)?,
        })
    }

    /// The number of its cells.
    #[must_use]
    pub fn cell_count(&self) -> usize {
        self.pointers.len()
    }

    /// The bytes of a cell's payload that are on this page.
    #[must_use]
    pub fn local(&self, cell: &Cell) -> &'a [u8] {
        self.bytes.get(cell.local.clone()).unwrap_or_default()
    }

    /// Takes the cell with that index apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn cell(&self, index: usize) -> Result<Cell, String> {
        let begin = self.pointers.get(index).map_or(0, |at| usize::from(u16::from_be_bytes(*at)));
        let last = self.bytes.len().saturating_sub(CELL_BYTES_MIN);
        if begin < self.content || begin > last {
            return Err(format!(
                "cell {index} begins at byte {begin}, outside of {} to {last}",
                self.content
            ));
        }
        self.parse_cell(begin).ok_or_else(|| format!("cell {index} extends beyond the page"))
    }

    fn parse_cell(&self, begin: usize) -> Option<Cell> {
        let mut at = begin;
        let mut left_child = 0;
        if !self.is_leaf {
            left_child = u32::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?);
            at = at.checked_add(4)?;
        }
        let mut number = || {
            let (value, length) = varint(self.bytes.get(at..)?)?;
            at = at.checked_add(length)?;
            Some(value)
        };
        let has_payload = self.is_leaf || self.kind == TreeKind::Index;
        let payload_bytes = if has_payload { number()? } else { 0 };
        let rowid = if self.kind == TreeKind::Table { number()?.cast_signed() } else { 0 };
        let (local, has_overflow) = self.room.local(payload_bytes)?;
        let local = at..at.checked_add(local)?;
        let mut end = local.end;
        let mut overflow = None;
        if has_overflow {
            overflow = Some(u32::from_be_bytes(*self.bytes.get(end..)?.first_chunk()?));
            end = end.checked_add(4)?;
        }
        let end = end.max(begin.checked_add(CELL_BYTES_MIN)?);
        (end <= self.bytes.len()).then_some(Cell {
            bytes: begin..end,
            left_child,
            rowid,
            payload_bytes,
            local,
            overflow,
        })
    }

    /// Holds the free blocks and `cells`, all cells of the page, against each other: they must not
    /// overlap, and what is between them must be what the header counts as fragments. `stretches`
    /// is room for them.
    ///
    /// # Errors
    /// What is wrong.
    pub fn cover(&self, cells: &[Cell], stretches: &mut Vec<(u32, u32)>) -> Result<(), String> {
        stretches.clear();
        let free_bytes = self.free_blocks(stretches)?;
        let usable = self.bytes.len();
        let taken =
            free_bytes.saturating_add(self.content).saturating_add(usize::from(self.fragments));
        if taken > usable {
            return Err("it counts more free bytes than there are".to_owned());
        }
        let stretch = |cell: &Cell| (to_u32(cell.bytes.start), to_u32(cell.bytes.end));
        // New cells are put in front of the older ones, so that this is mostly in order.
        stretches.extend(cells.iter().rev().map(stretch));
        stretches.sort_unstable();
        let (mut end, mut gaps) = (to_u32(self.content), 0_u32);
        for (begin, next_end) in stretches.iter() {
            let Some(gap) = begin.checked_sub(end) else {
                return Err(format!("byte {begin} is used twice"));
            };
            gaps = gaps.saturating_add(gap);
            end = *next_end;
        }
        gaps = gaps.saturating_add(to_u32(usable).saturating_sub(end));
        if gaps != u32::from(self.fragments) {
            return Err(format!(
                "{gaps} bytes between its cells are not accounted for, where its header counts {}",
                self.fragments
            ));
        }
        Ok(())
    }

    /// Puts the free blocks into `stretches`, and says how many bytes they have.
    fn free_blocks(&self, stretches: &mut Vec<(u32, u32)>) -> Result<usize, String> {
        let mut total = 0_usize;
        let mut block = self.first_free;
        if block == 0 {
            return Ok(0);
        }
        if block < self.content {
            return Err(format!("a free block at byte {block}, in front of the cell content"));
        }
        let last = self.bytes.len().saturating_sub(FREE_BLOCK_BYTES_MIN);
        // Ascending, so it comes to an end.
        loop {
            let head = self.bytes.get(block..).and_then(|rest| rest.first_chunk::<4>());
            let Some([next_a, next_b, size_a, size_b]) = head.filter(|_| block <= last) else {
                return Err(format!("a free block at byte {block}, beyond the end of the page"));
            };
            let next = usize::from(u16::from_be_bytes([*next_a, *next_b]));
            let size = usize::from(u16::from_be_bytes([*size_a, *size_b]));
            let end = block.saturating_add(size);
            if size < FREE_BLOCK_BYTES_MIN || end > self.bytes.len() {
                return Err(format!("a free block of {size} bytes at byte {block}"));
            }
            total = total.saturating_add(size);
            stretches.push((to_u32(block), to_u32(end)));
            if next == 0 {
                return Ok(total);
            }
            if next < end.saturating_add(FREE_BLOCK_BYTES_MIN) {
                return Err(format!("the free block at byte {block} is followed by one at {next}"));
            }
            block = next;
        }
    }

    /// The bytes behind the cell pointers and in front of the cells.
    #[must_use]
    pub fn gap_bytes(&self) -> usize {
        self.content.saturating_sub(self.array_end)
    }
}

/// Places on a page fit well.
fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows must stop")]
mod tests {
    use super::*;

    const SIZE: usize = 512;

    /// A leaf of a table with these rowids, each with a record of three bytes.
    fn leaf(rowids: &[u8]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        let mut content = SIZE;
        for (index, rowid) in rowids.iter().enumerate() {
            content -= 5;
            page[content..content + 5].copy_from_slice(&[3, *rowid, 2, 1, 7]);
            let at = 8 + 2 * index;
            page[at..at + 2].copy_from_slice(&u16::try_from(content).unwrap().to_be_bytes());
        }
        page[0] = LEAF_TABLE;
        page[4] = u8::try_from(rowids.len()).unwrap();
        page[5..7].copy_from_slice(&u16::try_from(content).unwrap().to_be_bytes());
        page
    }

    fn fault(page: &[u8]) -> Option<String> {
        let look = || {
            let page = BtreePage::parse(page, 0, SIZE)?;
            let cells: Result<Vec<_>, _> = (0..page.cell_count()).map(|at| page.cell(at)).collect();
            page.cover(&cells?, &mut Vec::new())
        };
        look().err()
    }

    #[test]
    fn cells_are_taken_apart() {
        let page = leaf(&[3, 9]);
        let page = BtreePage::parse(&page, 0, SIZE).unwrap();
        let cell = page.cell(1).unwrap();
        assert_eq!((cell.rowid, cell.payload_bytes, cell.overflow), (9, 3, None));
        assert_eq!(page.local(&cell), [2, 1, 7]);
        assert_eq!(page.gap_bytes(), SIZE - 10 - 12);
    }

    #[test]
    fn sound_page_has_no_fault_and_each_wound_is_one() {
        assert_eq!(fault(&leaf(&[1, 2, 3])), None);
        for (at, value) in [(0, 7), (1, 1), (2, 40), (3, 1), (4, 2), (5, 0), (6, 0), (7, 1), (9, 0)]
        {
            let mut page = leaf(&[1, 2, 3]);
            page[at] = value;
            assert!(fault(&page).is_some(), "byte {at}");
        }
    }

    #[test]
    fn free_block_must_be_what_is_left_between_cells() {
        let mut page = leaf(&[1, 2, 3]);
        // The second cell is removed: SQLite leaves a block of its five bytes.
        page.copy_within(12..14, 10);
        page[12..14].fill(0);
        page[4] = 2;
        page[1..3].copy_from_slice(&502_u16.to_be_bytes());
        page[502..506].copy_from_slice(&[0, 0, 0, 5]);
        assert_eq!(fault(&page), None);
        page[505] = 4;
        assert!(fault(&page).is_some());
        page[505] = 6;
        assert!(fault(&page).is_some());
        page[502..504].copy_from_slice(&502_u16.to_be_bytes());
        assert!(fault(&page).is_some());
    }

    /// The table in section 1.6 of the documentation: 35 bytes less than the page for a leaf of a
    /// table, 64 parts in 255 for an index.
    #[test]
    fn long_payload_leaves_the_documented_part_on_the_page() {
        let table = Room::new(TreeKind::Table, 4096).unwrap();
        assert_eq!(table.local(4061), Some((4061, false)));
        assert_eq!(table.local(4062), Some((489, true)));
        assert_eq!(table.local(4581), Some((489, true)));
        let index = Room::new(TreeKind::Index, 4096).unwrap();
        assert_eq!(index.local(1002), Some((1002, false)));
        assert!(index.local(1003).unwrap().1);
    }

    #[test]
    fn hostile_pages_are_faults_and_nothing_worse() {
        let mut state = 7_u32;
        for round in 0..20_000_usize {
            let mut page = [0_u8; SIZE];
            for byte in &mut page {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = if state >> 30 == 0 { state.to_be_bytes()[1] } else { 0 };
            }
            page[0] = [2, 5, 10, 13][round % 4];
            page[3] = 0;
            let _ = fault(&page);
        }
    }
}

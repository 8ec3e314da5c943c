//! The heap blocks that a page of a visibility map vouches for.
//!
//! ```text
//! offset  size  field
//!     24        two bits a heap block, four blocks in a byte, from the low bits:
//!               1 all rows are visible to all, 2 all of them are frozen
//! ```
//!
//! A page of 8,192 bytes covers 32,672 heap blocks. The bits of a block are set only
//! while the block is in use and intact, and both change in one record of the log;
//! when a heap is cut, so is its map, and bits past the end of the last page are
//! cleared.
//!
//! Source: `src/backend/access/heap/visibilitymap.c`, 9.6 to 18 (before 9.6 one bit a
//! block).

use crate::page::HEADER_BYTES;

/// Heap blocks in a byte.
pub const BLOCKS_A_BYTE: u32 = 4;

/// Calls `each` for every heap block that has a bit on page `map_block` of the
/// map: all visible, and whether all frozen.
#[inline]
pub fn visit(page: &[u8], map_block: u32, mut each: impl FnMut(u32, bool)) {
    let bytes = page.get(HEADER_BYTES..).unwrap_or_default();
    let Some(first) = u32::try_from(bytes.len())
        .ok()
        .and_then(|bytes| bytes.checked_mul(BLOCKS_A_BYTE)?.checked_mul(map_block))
    else {
        return;
    };
    // Most of a map is all zeroes or all set: eight bytes at a time.
    for (index, word) in (0_u32..).zip(bytes.chunks(8)) {
        if word.iter().all(|byte| *byte == 0) {
            continue;
        }
        for (in_word, byte) in (0_u32..).zip(word) {
            for pair in (0..BLOCKS_A_BYTE).filter(|pair| byte >> (pair * 2) & 3 != 0) {
                let byte_index = index.saturating_mul(8).saturating_add(in_word);
                let block = byte_index.saturating_mul(BLOCKS_A_BYTE).saturating_add(pair);
                if let Some(block) = block.checked_add(first) {
                    each(block, byte >> (pair * 2) & 2 != 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_told_by_the_block_they_stand_for() {
        let mut page = vec![0_u8; 8192];
        page[24] = 0b0000_1101;
        page[8191] = 0b1100_0000;
        let mut seen = Vec::new();
        visit(&page, 2, |block, frozen| seen.push((block, frozen)));
        let first = 2 * 32_672;
        assert_eq!(seen, [(first, false), (first + 1, true), (first + 32_671, true)]);
        visit(&page, u32::MAX, |_, _| panic!("no heap is that long"));
        for length in 0..40 {
            visit(&page[..length], 0, |block, _| assert!(block < 2));
        }
    }
}

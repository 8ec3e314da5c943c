//! The three headers of a DuckDB file, 4 KiB each, and which blocks are in use.
//!
//! | main header, at byte 0 | bytes | |
//! |---|---|---|
//! | 0 | 8 | sum |
//! | 8 | 4 | `DUCK` |
//! | 12 | 8 | storage version: 64 and later are known |
//! | 20 | 8 | flags; bit 0: encrypted, with all but this header |
//! | 52 | 32 | the version of DuckDB that made the file, ended by zeroes |
//!
//! | database header, at bytes 4096 and 8192 | bytes | |
//! |---|---|---|
//! | 0 | 8 | sum |
//! | 8 | 8 | iteration: the header with the greater one counts, the second one if they are equal |
//! | 24 | 8 | where the list of free blocks begins; all ones: nowhere |
//! | 32 | 8 | blocks |
//! | 40 | 8 | bytes in a block; 0: 256 KiB |
//!
//! DuckDB reads all three and opens no file in which one of the sums does not fit, tried with
//! 1.1.3, 1.5.6 and 2.0.0.
//!
//! The list of free blocks is in metadata: a block of metadata has its sum and 64 parts, each of
//! which begins with the place of the next one (the lower 56 bits are the block, the upper 8 the
//! part; all ones ends the chain). It begins with the number of free blocks and the block numbers,
//! 8 bytes each.
//!
//! Sources: `SingleFileBlockManager`, `MetadataReader` and `MetadataManager` of DuckDB; tried on the
//! same versions.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::ops::Range;

use crate::checksum::{SUM_BYTES, fits};
use crate::page::InUse;
use pagewarden_core::source::file::read_fully;

/// Bytes in a header.
pub const HEADER_BYTES: usize = 4096;
/// All three: the blocks begin behind them.
pub const HEADERS_BYTES: usize = 3 * HEADER_BYTES;
/// What the main header has behind its sum.
pub const MAGIC: &[u8] = b"DUCK";
const MAGIC_AT: Range<usize> = 8..12;
const VERSION_AT: usize = 12;
const FLAGS_AT: usize = 20;
const ENCRYPTED: u64 = 1;
const LIBRARY_AT: Range<usize> = 52..84;
const ITERATION_AT: usize = 8;
const FREE_LIST_AT: usize = 24;
const BLOCK_COUNT_AT: usize = 32;
const BLOCK_SIZE_AT: usize = 40;
const NOWHERE: u64 = u64::MAX;

/// The first storage version that is known here, of DuckDB 0.10.
const VERSION_MIN: u64 = 64;
/// The block size of most databases, and the largest one.
pub const BLOCK_SIZE_MAX: usize = 256 << 10;
/// The smallest block size.
pub const BLOCK_SIZE_MIN: usize = 16 << 10;
const PARTS: usize = 64;
const WORD_BYTES: usize = 8;
const PLACE_BLOCK_BITS: u32 = 56;
/// Free blocks that are remembered: 32 MiB of numbers, for a tebibyte of free blocks.
const FREE_MAX: u64 = 1 << 22;

/// The headers of a file, as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    bytes: Vec<u8>,
}

impl Headers {
    /// Reads them; fewer bytes than [`HEADERS_BYTES`] if the file is shorter.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(file: &File) -> io::Result<Self> {
        let mut bytes = vec![0; HEADERS_BYTES];
        let count = read_fully(file, &mut bytes, 0)?;
        bytes.truncate(count);
        Ok(Self { bytes })
    }

    /// One of the three, 0 the main one; shorter or empty if the file is.
    #[must_use]
    pub fn area(&self, index: usize) -> &[u8] {
        self.bytes.chunks(HEADER_BYTES).nth(index).unwrap_or_default()
    }

    /// True if it is whole and its sum fits.
    #[must_use]
    pub fn is_sound(&self, index: usize) -> bool {
        self.area(index).len() == HEADER_BYTES && fits(self.area(index))
    }

    /// True if the file has DuckDB's mark.
    #[must_use]
    pub fn has_magic(&self) -> bool {
        self.bytes.get(MAGIC_AT) == Some(MAGIC)
    }

    /// True for a file without the mark that has both database headers.
    #[must_use]
    pub fn has_lost_its_magic(&self) -> bool {
        !self.has_magic()
            && (1..3).all(|index| self.is_sound(index) && self.size_in(index).is_some())
    }

    /// Whether all but the main header is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.has_magic()
            && u64_at(self.area(0), FLAGS_AT).is_some_and(|flags| flags & ENCRYPTED != 0)
    }

    /// The storage version of the file.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        u64_at(self.area(0), VERSION_AT).filter(|_| self.has_magic())
    }

    /// The version of DuckDB that made the file, printable.
    #[must_use]
    pub fn library(&self) -> Option<&str> {
        let text = self.area(0).get(LIBRARY_AT)?.split(|byte| *byte == 0).next()?;
        let text = std::str::from_utf8(text).ok()?;
        (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
    }

    /// Bytes in a block, by a header that is sound.
    #[must_use]
    pub fn block_size(&self) -> Option<usize> {
        (1..3).filter(|index| self.is_sound(*index)).find_map(|index| self.size_in(index))
    }

    fn size_in(&self, index: usize) -> Option<usize> {
        let size = usize::try_from(u64_at(self.area(index), BLOCK_SIZE_AT)?).ok()?;
        let size = if size == 0 { BLOCK_SIZE_MAX } else { size };
        let is_legal = size.is_power_of_two() && (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size);
        is_legal.then_some(size)
    }

    /// The database header that counts, if all headers are sound.
    fn active(&self) -> Option<&[u8]> {
        if !(0..3).all(|index| self.is_sound(index)) || self.version()? < VERSION_MIN {
            return None;
        }
        let iteration = |index| u64_at(self.area(index), ITERATION_AT);
        Some(self.area(if iteration(1)? > iteration(2)? { 1 } else { 2 }))
    }

    /// Which state of the database this is: each checkpoint adds one.
    #[must_use]
    pub fn iteration(&self) -> Option<u64> {
        u64_at(self.active()?, ITERATION_AT)
    }

    /// Which blocks hold data. Nothing is known of them if a header is damaged.
    #[must_use]
    pub fn in_use(&self, file: &File) -> InUse {
        let block_count = self.active().and_then(|header| u64_at(header, BLOCK_COUNT_AT));
        let block_count = block_count.unwrap_or(0);
        let mut broken_list = None;
        let free = self.free_blocks(file, block_count, &mut broken_list);
        InUse { block_count, free, broken_list: broken_list.filter(|block| *block < block_count) }
    }

    /// The list of free blocks, or the block of it that cannot be read.
    fn free_blocks(
        &self,
        file: &File,
        block_count: u64,
        broken: &mut Option<u64>,
    ) -> Option<Vec<u64>> {
        let place = u64_at(self.active()?, FREE_LIST_AT)?;
        if place == NOWHERE {
            return Some(Vec::new());
        }
        let block_size = self.block_size()?;
        let mut chain = Chain { file, block_size, place, block: None, left: Vec::new(), broken };
        let count = chain.next_word().filter(|count| *count <= block_count.min(FREE_MAX))?;
        let mut free = Vec::new();
        for _ in 0..count {
            free.push(chain.next_word()?);
        }
        free.sort_unstable();
        Some(free)
    }
}

/// Words of metadata, from one part to the next. As many are taken as the list has numbers, so
/// that a chain that runs in a circle ends.
struct Chain<'a> {
    file: &'a File,
    block_size: usize,
    /// Where the next part is.
    place: u64,
    /// The last block that was read, with its number.
    block: Option<(u64, Vec<u8>)>,
    /// Words of this part that were not taken yet, the last one first.
    left: Vec<u64>,
    /// Set to the number of a block that does not have its sum.
    broken: &'a mut Option<u64>,
}

impl Chain<'_> {
    fn next_word(&mut self) -> Option<u64> {
        if self.left.is_empty() {
            self.next_part()?;
        }
        self.left.pop()
    }

    fn next_part(&mut self) -> Option<()> {
        let number = self.place & 1_u64.checked_shl(PLACE_BLOCK_BITS)?.checked_sub(1)?;
        let part = usize::try_from(self.place.checked_shr(PLACE_BLOCK_BITS)?).ok()?;
        if self.place == NOWHERE || part >= PARTS {
            return None;
        }
        if self.block.as_ref().is_none_or(|(last, _)| *last != number) {
            let block = self.read(number);
            if block.is_none() {
                *self.broken = Some(number);
            }
            self.block = Some((number, block?));
        }
        let (_, block) = self.block.as_ref()?;
        let part_words = self.block_size.checked_sub(SUM_BYTES)? / PARTS / WORD_BYTES;
        let part_bytes = part_words.checked_mul(WORD_BYTES)?;
        let begin = part.checked_mul(part_bytes)?.checked_add(SUM_BYTES)?;
        let words = block.get(begin..begin.checked_add(part_bytes)?)?.as_chunks().0;
        let (next, words) = words.split_first()?;
        self.place = u64::from_le_bytes(*next);
        self.left = words.iter().rev().map(|word| u64::from_le_bytes(*word)).collect();
        Some(())
    }

    /// A block whose sum fits.
    fn read(&self, number: u64) -> Option<Vec<u8>> {
        let size = u64::try_from(self.block_size).ok()?;
        let begin = u64::try_from(HEADERS_BYTES).ok()?;
        let offset = number.checked_mul(size)?.checked_add(begin)?;
        let mut block = vec![0; self.block_size];
        let count = read_fully(self.file, &mut block, offset).ok()?;
        (count == block.len() && fits(&block)).then_some(block)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

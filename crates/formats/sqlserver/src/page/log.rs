//! Blocks of SQL Server's log, and the parts of a log file (virtual log files) that hold them.
//!
//! A log file is its first page, a file header, and then virtual log files (VLFs) one behind the
//! other, to its very end. Each begins with a header of 8 KiB; the blocks follow without a gap.
//!
//! ```text
//! virtual log file
//! offset  size  field
//!      0     1  0xAB
//!      1     1  parity of its blocks: 0x40 or 0x80, 0 before its first use
//!      4     4  sequence number, which every LSN begins with
//!     12     4  0 as long as it holds no log
//!     16     8  its size in bytes
//!     24     8  its offset in the file
//!
//! block: sectors of 512 bytes
//!      0     1  of every sector: parity, 0x10 in the first one, 0x08 in the last one
//!      4     2  bytes in use
//!      6     2  its size in bytes
//!     10     2  the size of the block before
//!     12     4  sequence number of its virtual log file
//!     16     4  its place there, in sectors
//!     24     4  the sum, 0 in databases that are not set to PAGE_VERIFY CHECKSUM
//! ```
//!
//! The sum is that of pages: for each sector in order `sum = rotate_left(sum, 1) ^ (XOR of the
//! sector's words)`, the field itself taken as zero and the first bytes of the sectors as they are.
//!
//! Source: measured on 21 log files of 2005 to 2014 and the log in 20 plain backup sets of 2008 R2 to
//! 2019. Every block with a sum has the right one; every virtual log file that was followed by a
//! later one is filled to its last sector; the size of the block before is right across them too.

use crate::checksum::{PAGE_BYTES, SECTOR_BYTES};
use crate::page::header::{u16_at, u32_at};

/// Bytes before the first block of a virtual log file.
pub const VLF_HEADER_BYTES: u64 = PAGE_BYTES as u64;
/// The place of the first block of a virtual log file, in sectors.
pub const FIRST_BLOCK: u32 = 16;
/// Bytes of a virtual log file's header that are read.
pub const VLF_FIELDS_BYTES: usize = 32;

/// Sizes of blocks are multiples of this.
const BLOCK_UNIT: u16 = 512;
const VLF_MARK: u8 = 0xAB;
const VLF_SEQUENCE_AT: usize = 4;
const VLF_USE_AT: usize = 12;
const VLF_SIZE_AT: usize = 16;
const VLF_OFFSET_AT: usize = 24;
const USED_AT: usize = 4;
const SIZE_AT: usize = 6;
const PREVIOUS_AT: usize = 10;
const SEQUENCE_AT: usize = 12;
const PLACE_AT: usize = 16;
const SUM_AT: usize = 24;
const SUM_END: usize = SUM_AT + 4;
const PARITIES: [u8; 2] = [0x40, 0x80];
const PARITY: u8 = 0xC0;
const FIRST: u8 = 0x10;
const LAST: u8 = 0x08;

const _: () = assert!(
    BLOCK_UNIT as usize == SECTOR_BYTES && FIRST_BLOCK as usize * SECTOR_BYTES == PAGE_BYTES
);

/// Whole sectors in this number of bytes.
#[must_use]
pub fn sectors_in(bytes: u64) -> u32 {
    const UNIT: u64 = BLOCK_UNIT as u64;
    u32::try_from(bytes / UNIT).unwrap_or(u32::MAX)
}

/// What the header of a virtual log file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlfHeader {
    /// The number that every LSN in it begins with.
    pub sequence: u32,
    /// Log was written into it.
    pub is_begun: bool,
    /// Its size, its header included.
    pub bytes: u64,
}

impl VlfHeader {
    /// Reads the header that lies at `offset` of its file; `None` where there is none.
    #[must_use]
    pub fn parse(bytes: &[u8], offset: u64) -> Option<Self> {
        let u64_at = |at: usize| {
            bytes.get(at..).and_then(<[u8]>::first_chunk).map(|field| u64::from_le_bytes(*field))
        };
        let size = u64_at(VLF_SIZE_AT)?;
        let is_one = bytes.first() == Some(&VLF_MARK)
            && u64_at(VLF_OFFSET_AT) == Some(offset)
            && size >= VLF_HEADER_BYTES
            && size.is_multiple_of(SECTOR_BYTES as u64);
        is_one.then(|| Self {
            sequence: u32_at(bytes, VLF_SEQUENCE_AT),
            is_begun: u32_at(bytes, VLF_USE_AT) != 0,
            bytes: size,
        })
    }
}

/// What a test of a log block says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockTest {
    /// It has its sum, and its sectors belong together.
    Sound,
    /// It carries no sum; its sectors belong together.
    NoSum,
    /// This sector, counted from 0 on, is of another write.
    Torn(usize),
    /// The sum does not fit.
    Sum {
        /// The one in it.
        stored: u32,
        /// The one it has.
        computed: u32,
    },
}

impl BlockTest {
    /// True for a block that nothing speaks against.
    #[must_use]
    pub fn passes(self) -> bool {
        matches!(self, Self::Sound | Self::NoSum)
    }

    /// True where one flipped bit explains what is wrong.
    #[must_use]
    pub fn is_one_bit(self) -> bool {
        matches!(self, Self::Sum { stored, computed } if (stored ^ computed).is_power_of_two())
    }
}

/// What the header of a log block says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBlock {
    /// Its virtual log file.
    pub sequence: u32,
    /// Its place there, in sectors.
    pub place: u32,
    /// Its size.
    pub bytes: u16,
    /// The size of the block before.
    pub previous_bytes: u16,
    status: u8,
    stored: u32,
}

impl LogBlock {
    /// Reads the header of a block; `None` where none begins.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.get(..SUM_END)?;
        let status = *bytes.first()?;
        let block = Self {
            sequence: u32_at(bytes, SEQUENCE_AT),
            place: u32_at(bytes, PLACE_AT),
            bytes: u16_at(bytes, SIZE_AT),
            previous_bytes: u16_at(bytes, PREVIOUS_AT),
            status,
            stored: u32_at(bytes, SUM_AT),
        };
        let used = usize::from(u16_at(bytes, USED_AT));
        let size = usize::from(block.bytes);
        let is_block = PARITIES.contains(&(status & PARITY))
            && status & FIRST != 0
            && size >= SECTOR_BYTES
            && size.is_multiple_of(SECTOR_BYTES)
            && (SUM_END..=size).contains(&used);
        is_block.then_some(block)
    }

    /// One past its last sector.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.place.saturating_add(u32::from(self.bytes / BLOCK_UNIT))
    }

    /// Tests the block whose header this is. `bytes` are all of it.
    #[must_use]
    pub fn test(&self, bytes: &[u8]) -> BlockTest {
        let sectors = bytes.as_chunks::<SECTOR_BYTES>().0;
        let last = sectors.len().saturating_sub(1);
        for (sector, index) in sectors.iter().zip(0..) {
            let first = if index == 0 { FIRST } else { 0 };
            let end = if index == last { LAST } else { 0 };
            if sector.first() != Some(&(self.status & PARITY | first | end)) {
                return BlockTest::Torn(index);
            }
        }
        if self.stored == 0 {
            return BlockTest::NoSum;
        }
        let sum = sectors.iter().fold(0_u32, |sum, sector| {
            let words = sector.as_chunks::<4>().0.iter();
            sum.rotate_left(1) ^ words.fold(0, |sum, word| sum ^ u32::from_le_bytes(*word))
        });
        // The field's own share, which rotated with the first sector.
        let rotated = u32::try_from(last).unwrap_or(0) % u32::BITS;
        let computed = sum ^ self.stored.rotate_left(rotated);
        if computed == self.stored {
            BlockTest::Sound
        } else {
            BlockTest::Sum { stored: self.stored, computed }
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test's own numbers")]
mod tests {
    use super::*;

    /// A block of this many sectors, with its sum.
    fn block(sectors: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..sectors * SECTOR_BYTES).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        for sector in bytes.chunks_mut(SECTOR_BYTES) {
            sector[0] = 0x80;
        }
        bytes[0] |= FIRST;
        bytes[(sectors - 1) * SECTOR_BYTES] |= LAST;
        let size = u16::try_from(bytes.len()).unwrap();
        bytes[USED_AT..USED_AT + 2].copy_from_slice(&(size - 20).to_le_bytes());
        bytes[SIZE_AT..SIZE_AT + 2].copy_from_slice(&size.to_le_bytes());
        bytes[SUM_AT..SUM_END].copy_from_slice(&1_u32.to_le_bytes());
        let parsed = LogBlock::parse(&bytes).unwrap();
        let BlockTest::Sum { computed, .. } = parsed.test(&bytes) else { panic!("no sum") };
        bytes[SUM_AT..SUM_END].copy_from_slice(&computed.to_le_bytes());
        bytes
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_found() {
        for sectors in [1, 2, 17, 40] {
            let bytes = block(sectors);
            assert_eq!(LogBlock::parse(&bytes).unwrap().test(&bytes), BlockTest::Sound);
            for at in (0..bytes.len()).step_by(3) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                let found = LogBlock::parse(&damaged).map(|block| block.test(&damaged));
                assert!(found != Some(BlockTest::Sound), "byte {at} of {sectors} sectors");
            }
        }
    }

    #[test]
    fn sectors_of_another_write_are_named() {
        let mut bytes = block(9);
        bytes[5 * SECTOR_BYTES] = 0x40;
        assert_eq!(LogBlock::parse(&bytes).unwrap().test(&bytes), BlockTest::Torn(5));
        bytes[5 * SECTOR_BYTES] = 0x80;
        bytes[SUM_AT..SUM_END].fill(0);
        assert_eq!(LogBlock::parse(&bytes).unwrap().test(&bytes), BlockTest::NoSum);
    }

    #[test]
    fn headers_of_virtual_log_files_name_their_own_place() {
        let mut bytes = [0; VLF_FIELDS_BYTES];
        bytes[0] = VLF_MARK;
        bytes[4] = 27;
        bytes[12] = 1;
        bytes[16..24].copy_from_slice(&253_952_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&8192_u64.to_le_bytes());
        let header = VlfHeader { sequence: 27, is_begun: true, bytes: 253_952 };
        assert_eq!(VlfHeader::parse(&bytes, 8192), Some(header));
        assert_eq!(VlfHeader::parse(&bytes, 16_384), None);
        assert_eq!(VlfHeader::parse(&bytes[..20], 8192), None);
    }
}

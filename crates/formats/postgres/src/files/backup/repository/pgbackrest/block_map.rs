//! The block map of a block incremental file: where each block of the file lies.
//!
//! ```text
//! flags               varint; bit 0 must be 0
//! runs, of blocks of one reference each:
//!   e                 varint: reference = e >> 3; bit 0: the last run
//!     first time      bit 1: bundle varint follows; bit 2: offset varint follows (else 0)
//!     seen before     bit 1: goes on in the super block of before, of which bit 2 says that it is the
//!                     run's last; else bit 2: a varint to add to the end of the super block of before
//!   super blocks:
//!     s               varint, but for one that goes on: bit 0: the last of the run;
//!                     s >> 3: stored bytes, after the first one as the zigzag difference
//!     bit 1: v        varint: super block bytes = (v >> 1) * block + (v & 1 ? varint : 0)
//!     bit 2: v        varint: blocks = (v >> 1) + 1; v & 1: varint to add to the number of the block in
//!                     the super block; without bit 2 all blocks of the super block
//!     blocks          a checksum each: the first bytes of XXH3-128, big-endian
//! ```
//!
//! Varints are LEB128. The map is complete: entry i is block i of the file. Numbers come from a
//! stored file and are bounded here: by the count of blocks that the file's size allows, and by
//! [`SUPER_BLOCK_BYTES_MAX`].
//!
//! Source: `command/backup/blockMap.c` of pgBackRest; maps of 2.45 and 2.60.

use std::collections::HashMap;

/// The tool makes super blocks of 16 MiB at most, or of one block.
pub(super) const SUPER_BLOCK_BYTES_MAX: u64 = 32 << 20;
/// What compression and encryption may add.
const STORED_EXTRA: u64 = 1 << 20;

/// Sizes that the manifest gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes in a block.
    pub(super) block_bytes: u64,
    /// Bytes of each block's checksum.
    pub(super) checksum_bytes: usize,
    /// Blocks in the file.
    pub(super) blocks: u64,
}

/// A super block: blocks that were compressed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SuperBlock {
    /// The place of its label in the manifest's list of references.
    pub(super) reference: u32,
    /// The bundle; 0: the file's own stored file.
    pub(super) bundle: u64,
    /// Where it begins there.
    pub(super) offset: u64,
    /// Stored bytes.
    pub(super) stored_bytes: u64,
    /// Bytes when it is restored.
    pub(super) bytes: u64,
}

/// Where a block of the file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// The place of its super block in [`BlockMap::super_blocks`].
    pub(super) super_block: u32,
    /// Which block of the super block it is.
    pub(super) number: u32,
}

/// The map, in order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BlockMap {
    pub(super) super_blocks: Vec<SuperBlock>,
    pub(super) blocks: Vec<Block>,
    /// The checksums of the blocks, one behind the other.
    pub(super) checksums: Vec<u8>,
}

/// What is known of a reference in a map.
#[derive(Debug, Clone, Copy, Default)]
struct Reference {
    bundle: u64,
    offset: u64,
    stored_bytes: u64,
    bytes: u64,
    block: u64,
}

/// Reads numbers and checksums of a map.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for shift in (0..63).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or("it ends early")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }
}

fn plus(value: u64, more: u64) -> Result<u64, &'static str> {
    value.checked_add(more).filter(|sum| *sum < 1 << 62).ok_or("a number is too large")
}

impl BlockMap {
    /// Reads a map.
    ///
    /// # Errors
    /// It is not as the tool writes maps, or not of a file of this shape.
    pub(super) fn parse(bytes: &[u8], shape: Shape) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        if reader.number()? & 1 != 0 {
            return Err("it is of a version that is not known");
        }
        let mut parser = Parser {
            reader,
            shape,
            references: HashMap::new(),
            places: HashMap::new(),
            last_stored: None,
            map: Self::default(),
        };
        while !parser.run()? {}
        if !parser.reader.0.is_empty() {
            return Err("something follows its end");
        }
        if parser.map.blocks.len() as u64 != shape.blocks {
            return Err("it has another number of blocks than the file");
        }
        Ok(parser.map)
    }

    /// The checksum of a block of the file.
    pub(super) fn checksum(&self, index: usize, shape: Shape) -> &[u8] {
        let begin = index.saturating_mul(shape.checksum_bytes);
        let end = begin.saturating_add(shape.checksum_bytes);
        self.checksums.get(begin..end).unwrap_or_default()
    }
}

struct Parser<'a> {
    reader: Reader<'a>,
    shape: Shape,
    references: HashMap<u32, Reference>,
    /// Where super blocks are in the map.
    places: HashMap<SuperBlock, u32>,
    /// Stored bytes of the super block before.
    last_stored: Option<u64>,
    map: BlockMap,
}

impl Parser<'_> {
    /// Reads the blocks of one reference; true for the last run.
    fn run(&mut self) -> Result<bool, &'static str> {
        let begin = self.reader.number()?;
        let number = u32::try_from(begin >> 3).map_err(|_| "a reference is too large")?;
        let mut goes_on = false;
        let mut at = match self.references.get(&number).copied() {
            None => {
                let bundle = if begin & 2 != 0 { self.reader.number()? } else { 0 };
                let offset = if begin & 4 != 0 { self.reader.number()? } else { 0 };
                Reference { bundle, offset, bytes: self.shape.block_bytes, ..Reference::default() }
            }
            Some(known) if begin & 2 != 0 => {
                goes_on = true;
                known
            }
            Some(known) => {
                let gap = if begin & 4 != 0 { self.reader.number()? } else { 0 };
                let offset = plus(plus(known.offset, known.stored_bytes)?, gap)?;
                Reference { offset, ..known }
            }
        };
        let mut is_first = true;
        loop {
            let flags = if goes_on {
                u64::from(begin & 4 != 0) | 4
            } else {
                if !is_first {
                    at.offset = plus(at.offset, at.stored_bytes)?;
                }
                self.super_block(&mut at)?
            };
            goes_on = false;
            is_first = false;
            self.blocks(number, &mut at, flags & 4 != 0)?;
            self.last_stored = Some(at.stored_bytes);
            if flags & 1 != 0 {
                break;
            }
        }
        self.references.insert(number, at);
        Ok(begin & 1 != 0)
    }

    /// Reads what a new super block begins with; its flags.
    fn super_block(&mut self, at: &mut Reference) -> Result<u64, &'static str> {
        let flags = self.reader.number()?;
        let size = flags >> 3;
        at.stored_bytes = match self.last_stored {
            None => size,
            Some(last) if size & 1 == 0 => plus(last, size >> 1)?,
            Some(last) => last
                .checked_sub(plus(size >> 1, 1)?)
                .ok_or("a super block of fewer than no bytes")?,
        };
        if flags & 2 != 0 {
            let value = self.reader.number()?;
            let rest = if value & 1 != 0 { self.reader.number()? } else { 0 };
            let whole = (value >> 1).checked_mul(self.shape.block_bytes);
            at.bytes = plus(whole.ok_or("a number is too large")?, rest)?;
        }
        if at.bytes == 0 || at.bytes > SUPER_BLOCK_BYTES_MAX {
            return Err("a super block of an impossible size");
        }
        if at.stored_bytes == 0 || at.stored_bytes > plus(at.bytes, STORED_EXTRA)? {
            return Err("a super block of an impossible stored size");
        }
        at.block = 0;
        Ok(flags)
    }

    /// Reads the checksums of blocks of the super block.
    fn blocks(
        &mut self,
        reference: u32,
        at: &mut Reference,
        has_count: bool,
    ) -> Result<(), &'static str> {
        let all = at.bytes.div_ceil(self.shape.block_bytes);
        let count = if has_count {
            let value = self.reader.number()?;
            if value & 1 != 0 {
                at.block = plus(at.block, self.reader.number()?)?;
            }
            plus(value >> 1, 1)?
        } else {
            all
        };
        let end = plus(at.block, count)?;
        if end > all {
            return Err("a block that its super block does not have");
        }
        if plus(self.map.blocks.len() as u64, count)? > self.shape.blocks {
            return Err("it has more blocks than the file");
        }
        let super_block = SuperBlock {
            reference,
            bundle: at.bundle,
            offset: at.offset,
            stored_bytes: at.stored_bytes,
            bytes: at.bytes,
        };
        let next = u32::try_from(self.map.super_blocks.len()).map_err(|_| "it is too large")?;
        let place = *self.places.entry(super_block).or_insert(next);
        if place == next {
            self.map.super_blocks.push(super_block);
        }
        for number in at.block..end {
            let number = u32::try_from(number).map_err(|_| "it is too large")?;
            let (sum, rest) =
                self.reader.0.split_at_checked(self.shape.checksum_bytes).ok_or("it ends early")?;
            self.reader.0 = rest;
            self.map.checksums.extend_from_slice(sum);
            self.map.blocks.push(Block { super_block: place, number });
        }
        at.block = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(blocks: u64) -> Shape {
        Shape { block_bytes: 8192, checksum_bytes: 6, blocks }
    }

    /// A map of a real file: 12 of the 13 blocks of one super block.
    fn real() -> Vec<u8> {
        let mut map = vec![0x00, 0x06, 0x01, 0xBB, 0xC8, 0x0D, 0xD7, 0xCC, 0x11, 0x1A, 0x16];
        // The reference's run is not its last in the example; here it is.
        map[1] |= 1;
        map.extend((0..72).map(|byte| byte + 1));
        map
    }

    #[test]
    fn super_blocks_and_their_blocks_are_found() {
        let map = BlockMap::parse(&real(), shape(12)).unwrap();
        let expected = SuperBlock {
            reference: 0,
            bundle: 1,
            offset: 222_267,
            stored_bytes: 36_042,
            bytes: 13 * 8192,
        };
        assert_eq!(map.super_blocks, [expected]);
        let numbers: Vec<_> = map.blocks.iter().map(|block| block.number).collect();
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
        assert_eq!(map.checksum(1, shape(12)), [7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn runs_of_two_references_are_put_together() {
        // Reference 0: bundle 2, offset 0, one super block of two blocks, the first of them.
        let mut map = vec![0x00, 0x02, 0x02, (5 << 3) | 7, 2 << 1, 0x00];
        map.extend([1; 6]);
        // Reference 1: no bundle, offset 9, one block; five stored bytes more.
        map.extend([0x0C, 9, (10 << 3) | 1]);
        map.extend([2; 6]);
        // Reference 0 goes on, last super block, last run: the second block.
        map.extend([0x07, 0x00]);
        map.extend([3; 6]);
        let map = BlockMap::parse(&map, shape(3)).unwrap();
        let stored: Vec<_> =
            map.super_blocks.iter().map(|it| (it.offset, it.stored_bytes)).collect();
        assert_eq!(stored, [(0, 5), (9, 10)]);
        let blocks: Vec<_> = map.blocks.iter().map(|it| (it.super_block, it.number)).collect();
        assert_eq!(blocks, [(0, 0), (1, 0), (0, 1)]);
    }

    #[test]
    fn maps_of_other_files_are_refused() {
        let real = real();
        assert!(BlockMap::parse(&real, shape(11)).is_err());
        assert!(BlockMap::parse(&real, shape(13)).is_err());
        for length in 0..real.len() {
            assert!(BlockMap::parse(&real[..length], shape(12)).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn hostile_maps_are_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(map) = BlockMap::parse(&bytes, shape(5)) {
                prop_assert_eq!(map.blocks.len(), 5);
            }
        }
    }
}

//! The sum of DuckDB's headers and blocks.
//!
//! The first 8 bytes of each hold the sum of all bytes after them, little-endian: each 8-byte word
//! times `FACTOR`, all of that and `SEED` combined by XOR. Headers and blocks are whole words, so
//! that DuckDB's rule for a shorter end never applies. Source: `Checksum` in DuckDB's
//! `src/common/checksum.cpp`; tried on files of DuckDB 1.1.3, 1.5.6 and 2.0.0.
//!
//! XOR knows no order: two words that change places leave the sum as it is, and so does one bit, the
//! highest, that flips in two words.

#![deny(clippy::arithmetic_side_effects)]

/// Bytes of the sum, at the head of what it covers.
pub const SUM_BYTES: usize = 8;
const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;
const SEED: u64 = 5381;
const WORD_BYTES: usize = 8;
/// Words whose products are combined apart, so that the processor multiplies without waiting.
const LANES: usize = 8;

/// The sum that a header or block has stored; `None` if it is too short for one.
#[must_use]
pub fn stored_sum(area: &[u8]) -> Option<u64> {
    area.first_chunk().map(|sum| u64::from_le_bytes(*sum))
}

/// The sum of a header or block, of which the first 8 bytes do not count.
#[must_use]
pub fn computed_sum(area: &[u8]) -> u64 {
    let words = area.get(SUM_BYTES..).unwrap_or_default();
    let (rows, rest) = words.as_chunks::<{ LANES * WORD_BYTES }>();
    let mut lanes = [0_u64; LANES];
    for row in rows {
        for (lane, word) in lanes.iter_mut().zip(row.as_chunks().0) {
            *lane ^= product(*word);
        }
    }
    let rest = rest.as_chunks().0.iter().fold(SEED, |sum, word| sum ^ product(*word));
    lanes.iter().fold(rest, |sum, lane| sum ^ lane)
}

fn product(word: [u8; WORD_BYTES]) -> u64 {
    u64::from_le_bytes(word).wrapping_mul(FACTOR)
}

/// True if a header or block has the sum of its content.
#[must_use]
pub fn fits(area: &[u8]) -> bool {
    stored_sum(area).is_some_and(|stored| stored == computed_sum(area))
}

/// Gives a header or block the sum of its content.
pub fn stamp(area: &mut [u8]) {
    let sum = computed_sum(area);
    if let Some(stored) = area.first_chunk_mut() {
        *stored = sum.to_le_bytes();
    }
}

/// One bit that would make content and sum agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlippedBit {
    /// The first byte that may hold it.
    pub byte: usize,
    /// Which of its bits, 0 the lowest.
    pub bit: u32,
    /// In how many places such a flip has the same effect on the sum.
    pub candidates: u64,
}

/// The flipped bit that explains why the sum of `area` does not fit; `None` if one does not.
#[must_use]
pub fn flipped_bit(area: &[u8]) -> Option<FlippedBit> {
    let difference = stored_sum(area)? ^ computed_sum(area);
    let mut found: Option<FlippedBit> = None;
    let mut note = |byte: usize, bit: u32| {
        let byte = byte.saturating_add(usize::try_from(bit / 8).unwrap_or(0));
        let first = FlippedBit { byte, bit: bit % 8, candidates: 0 };
        let found = found.get_or_insert(first);
        found.candidates = found.candidates.saturating_add(1);
    };
    if difference.is_power_of_two() {
        note(0, difference.trailing_zeros());
    }
    let words = area.get(SUM_BYTES..).unwrap_or_default().as_chunks::<WORD_BYTES>().0;
    // The factor is odd: the lowest bit that differs is the bit that flipped.
    let bit = difference.trailing_zeros();
    let flip = 1_u64.checked_shl(bit)?;
    for (index, word) in words.iter().enumerate() {
        let mended = u64::from_le_bytes(*word) ^ flip;
        if product(*word) ^ product(mended.to_le_bytes()) == difference {
            note(index.saturating_add(1).saturating_mul(WORD_BYTES), bit);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula word by word.
    fn plain(area: &[u8]) -> u64 {
        area[8..].chunks_exact(8).fold(5381, |sum, word| {
            sum ^ u64::from_le_bytes(word.try_into().unwrap()).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
    }

    fn block(bytes: u32) -> Vec<u8> {
        (0..bytes).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
    }

    #[test]
    fn sum_is_that_of_the_plain_formula() {
        for bytes in [8, 16, 72, 80, 4096, 16_384, 262_144] {
            let block = block(bytes);
            assert_eq!(computed_sum(&block), plain(&block), "{bytes}");
        }
        assert_eq!(computed_sum(&[0; 4096]), 5381);
        assert!(!fits(&[0; 4096]) && !fits(&[]));
    }

    #[test]
    fn flipped_bit_is_found_wherever_it_is() {
        let mut good = block(4096);
        stamp(&mut good);
        assert!(fits(&good));
        assert_eq!(flipped_bit(&good), None);
        for byte in 0..4096 {
            for bit in 0..8 {
                let mut area = good.clone();
                area[byte] ^= 1 << bit;
                assert!(!fits(&area), "bit {bit} of byte {byte}");
                let found = flipped_bit(&area).unwrap();
                let is_it = (found.byte, found.bit) == (byte, bit);
                assert!(is_it || found.candidates > 1, "bit {bit} of byte {byte}: {found:?}");
            }
        }
        good[100] ^= 1;
        good[900] ^= 4;
        assert_eq!(flipped_bit(&good), None);
    }

    /// By its design: see the head of this file.
    #[test]
    fn swapped_words_and_two_highest_bits_pass() {
        let mut area = block(4096);
        stamp(&mut area);
        let words = area.as_chunks_mut::<8>().0;
        assert_ne!(words[5], words[77]);
        words.swap(5, 77);
        assert!(fits(&area));
        area[23] ^= 0x80;
        area[71] ^= 0x80;
        assert!(fits(&area));
    }
}

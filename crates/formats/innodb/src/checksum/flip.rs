//! Which one flipped bit explains a wrong CRC-32C.
//!
//! A CRC is linear: a bit flipped in the content changes the sum by a value that depends only on
//! how many bits follow it. That value is the register after a single one and that number of zero
//! bits, and the polynomial's order (2^31 - 1) is far above the bits of a page, so that each place
//! has its own. From the difference the place is found in two kinds of steps: a table knows the
//! last 256 places, and a linear map goes 256 places back at once.
//!
//! Several runs that are combined by XOR share their differences: a place may then have a twin
//! in another run, as far from its end.

use std::ops::Range;
use std::sync::OnceLock;

use pagewarden_core::crc::{CRC32C_POLYNOMIAL as POLYNOMIAL, crc32c_step as step};

/// Places in the table, and places taken back at once.
const NEAR_BITS: usize = 256;
const BYTE_VALUES: usize = 256;

/// One bit of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlippedBit {
    /// The byte's offset in the page.
    pub byte: usize,
    /// The bit in that byte, 0 the lowest.
    pub bit: u8,
}

impl FlippedBit {
    /// Flips it.
    pub fn flip(self, page: &mut [u8]) {
        if let Some(byte) = page.get_mut(self.byte) {
            *byte ^= 1_u8.checked_shl(u32::from(self.bit)).unwrap_or(0);
        }
    }
}

/// The places, one a run at most, at which one flipped bit changes the sum by `difference`.
#[must_use]
pub fn flipped_bits(difference: u32, runs: &[Range<usize>]) -> Vec<FlippedBit> {
    let longest = runs.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let Some(behind) = bits_behind(difference, longest.saturating_mul(8)) else {
        return Vec::new();
    };
    let in_run = |run: &Range<usize>| {
        // Bits enter the register low one first, so the last of a byte is its highest.
        let byte = run.end.checked_sub(1)?.checked_sub(behind / 8)?;
        let bit = 7_u8.checked_sub(u8::try_from(behind % 8).ok()?)?;
        (byte >= run.start).then_some(FlippedBit { byte, bit })
    };
    runs.iter().filter_map(in_run).collect()
}

/// The bit of a big-endian checksum field at `offset` that makes the difference, if it is one.
#[must_use]
pub fn flipped_field_bit(difference: u32, offset: usize) -> Option<FlippedBit> {
    if difference.count_ones() != 1 {
        return None;
    }
    let bit = difference.trailing_zeros();
    let byte = 3_u32.checked_sub(bit / 8)?;
    Some(FlippedBit {
        byte: offset.checked_add(usize::try_from(byte).ok()?)?,
        bit: u8::try_from(bit % 8).ok()?,
    })
}

/// How many bits follow the flipped one, if fewer than `bits_max` do.
fn bits_behind(difference: u32, bits_max: usize) -> Option<usize> {
    let tables = Tables::get();
    let mut left = difference;
    let mut behind = 0_usize;
    while behind < bits_max {
        if let Ok(found) = tables.near.binary_search_by_key(&left, |(value, _)| *value) {
            let (_, near) = tables.near.get(found)?;
            return behind.checked_add(*near).filter(|behind| *behind < bits_max);
        }
        left = tables.back(left);
        behind = behind.saturating_add(NEAR_BITS);
    }
    None
}

struct Tables {
    /// The differences of the last places, with how many bits follow, in order.
    near: Vec<(u32, usize)>,
    /// What each byte of a difference was [`NEAR_BITS`] zero bits before.
    back: [[u32; BYTE_VALUES]; 4],
}

impl Tables {
    fn get() -> &'static Self {
        static TABLES: OnceLock<Tables> = OnceLock::new();
        TABLES.get_or_init(|| {
            let values = std::iter::successors(Some(step(1)), |value| Some(step(*value)));
            let mut near: Vec<_> = values.zip(0..NEAR_BITS).collect();
            near.sort_unstable();
            let mut back = [[0; BYTE_VALUES]; 4];
            for (table, shift) in back.iter_mut().zip([0, 8, 16, 24]) {
                for (entry, byte) in table.iter_mut().zip(0_u32..) {
                    *entry = (0..NEAR_BITS).fold(byte << shift, |value, _| step_back(value));
                }
            }
            Self { near, back }
        })
    }

    fn back(&self, value: u32) -> u32 {
        let of_byte = |(table, byte): (&[u32; BYTE_VALUES], u8)| {
            table.get(usize::from(byte)).copied().unwrap_or(0)
        };
        self.back.iter().zip(value.to_le_bytes()).map(of_byte).fold(0, |sum, value| sum ^ value)
    }
}

/// Undoes [`step`]: the polynomial's highest bit tells whether it was added.
fn step_back(state: u32) -> u32 {
    if state >> 31 == 1 { (state ^ POLYNOMIAL) << 1 | 1 } else { state << 1 }
}

#[cfg(test)]
mod tests {
    use super::super::{body_run, crc32, full_crc32, zip_crc32};
    use super::*;
    use pagewarden_core::crc::crc32c;
    use pagewarden_core::testing::noise;

    #[test]
    fn every_flipped_bit_of_a_run_is_named() {
        let good = noise(1024, 11);
        for byte in 0..good.len() {
            for bit in 0..8 {
                let flip = FlippedBit { byte, bit };
                let mut bad = good.clone();
                flip.flip(&mut bad);
                let runs = [0..good.len(), 0..0];
                assert_eq!(flipped_bits(crc32c(&good) ^ crc32c(&bad), &runs), [flip]);
            }
        }
    }

    #[test]
    fn flips_all_over_large_pages_are_named() {
        for size in [4096_usize, 16_384, 65_536] {
            let good = noise(size, 12);
            for byte in (0..size).step_by(97) {
                let flip = FlippedBit { byte, bit: u8::try_from(byte % 8).unwrap() };
                let mut bad = good.clone();
                flip.flip(&mut bad);
                if byte < size - 4 {
                    let found =
                        flipped_bits(full_crc32(&good) ^ full_crc32(&bad), &[0..size - 4, 0..0]);
                    assert_eq!(found, [flip]);
                }
                let runs = [4..26, body_run(size)];
                let found = flipped_bits(crc32(&good) ^ crc32(&bad), &runs);
                let is_covered = runs.iter().any(|run| run.contains(&byte));
                assert_eq!(found.contains(&flip), is_covered, "{flip:?} {found:?}");
                let runs = [4..16, 24..26, 34..size];
                let found = flipped_bits(zip_crc32(&good) ^ zip_crc32(&bad), &runs);
                let is_covered = runs.iter().any(|run| run.contains(&byte));
                assert_eq!(found.contains(&flip), is_covered, "{flip:?} {found:?}");
            }
        }
    }

    #[test]
    fn two_flipped_bits_and_noise_are_not_taken_for_one() {
        let good = noise(16_384, 13);
        let runs = [0..good.len(), 0..0];
        for byte in (0..good.len() - 1).step_by(331) {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            bad[byte + 1] ^= 0x01;
            assert_eq!(flipped_bits(crc32c(&good) ^ crc32c(&bad), &runs), []);
        }
        assert_eq!(flipped_bits(0, &runs), []);
    }

    #[test]
    fn flipped_bit_of_a_field_is_named() {
        for bit in 0..32 {
            let stored = 0x1234_5678_u32;
            let mut page = [vec![0; 8], stored.to_be_bytes().to_vec()].concat();
            let flip = flipped_field_bit(1 << bit, 8).unwrap();
            flip.flip(&mut page);
            assert_eq!(page[8..12], (stored ^ 1 << bit).to_be_bytes());
        }
        assert_eq!(flipped_field_bit(3, 0), None);
        assert_eq!(flipped_field_bit(0, 0), None);
    }
}

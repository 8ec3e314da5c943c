//! CRC-32 with the polynomial of gzip, over a page as it is stored: what Parquet's page headers may hold.
//!
//! The sum of two strings that differ in one bit differs by the sum of that bit alone, which depends only
//! on how many bits follow: so the bit is found by going back from the end, one shift a bit. In pages of
//! [`EXPLAINED_BYTES_MAX`] at most, a wrong sum looks like one flipped bit by chance once in 4,096 times.

#![deny(clippy::arithmetic_side_effects)]

use pagewarden_core::crc::{CRC32_POLYNOMIAL as POLYNOMIAL, crc32};

/// Longer pages are not searched for a flipped bit.
pub const EXPLAINED_BYTES_MAX: usize = 128 << 10;

/// The sum of a page.
#[must_use]
pub fn page_sum(stored: &[u8]) -> u32 {
    crc32(stored)
}

/// The one bit, by byte and number, that was flipped in `stored` if its sum was `expected`.
#[must_use]
pub fn flipped_bit(stored: &[u8], expected: u32) -> Option<(usize, u8)> {
    if stored.len() > EXPLAINED_BYTES_MAX {
        return None;
    }
    let wanted = page_sum(stored) ^ expected;
    // Of a byte, the highest bit is the last one. What it adds to the sum.
    let mut syndrome = POLYNOMIAL;
    for byte in (0..stored.len()).rev() {
        for bit in (0..8).rev() {
            if syndrome == wanted {
                return Some((byte, bit));
            }
            syndrome = syndrome >> 1 ^ if syndrome & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_that_of_gzip() {
        assert_eq!(page_sum(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn each_flipped_bit_is_named() {
        let good: Vec<u8> =
            (0..997_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[0]).collect();
        let sum = page_sum(&good);
        for byte in (0..good.len()).step_by(83) {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                assert_eq!(flipped_bit(&bad, sum), Some((byte, bit)));
                bad[(byte + 7) % 997] ^= 1;
                assert_eq!(flipped_bit(&bad, sum), None);
            }
        }
        assert_eq!(flipped_bit(&good, sum), None);
    }
}

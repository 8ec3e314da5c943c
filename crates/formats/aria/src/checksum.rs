//! Aria's page checksum: the CRC-32 of zlib, begun with the page's number, so
//! that a page at another place does not fit.
//!
//! Source: `maria_page_crc` in MariaDB's `storage/maria/ma_pagecrc.c`, and the
//! system tables of MariaDB 10.11.

use pagewarden_core::crc::{CRC32_POLYNOMIAL as POLYNOMIAL, Crc32};

/// Stored instead of a sum where pages carry none: a page of a bitmap, and any
/// other. No page's sum is one of these.
pub const NO_SUM_BITMAP: u32 = 0xFFFF_FFFE;
/// See [`NO_SUM_BITMAP`].
pub const NO_SUM: u32 = 0xFFFF_FFFF;

/// The sum of `data`, the protected part of a page. Only the low 32 bits of the
/// number count.
#[must_use]
pub fn checksum(data: &[u8], page: u64) -> u32 {
    let seed = u32::try_from(page & u64::from(u32::MAX)).unwrap_or(0);
    let mut crc = Crc32::after(seed);
    crc.update(data);
    crc.finish().min(NO_SUM_BITMAP - 1)
}

/// The bit of `data_bytes` bytes whose flip changes their sum by `difference`,
/// as byte and bit; `None` where no single one does.
#[must_use]
pub fn flipped_bit(difference: u32, data_bytes: usize) -> Option<(usize, u8)> {
    let mut register = 1_u32;
    // From the last bit on: each one before runs through one step more.
    for byte in (0..data_bytes).rev() {
        for bit in (0..8_u8).rev() {
            register = if register & 1 == 1 { register >> 1 ^ POLYNOMIAL } else { register >> 1 };
            if register == difference {
                return Some((byte, bit));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_that_of_zlib_begun_with_the_number() {
        // `zlib.crc32(b"123456789", n)` of Python.
        assert_eq!(checksum(b"123456789", 0), 0xCBF4_3926);
        assert_eq!(checksum(b"", 77), 77);
        let begun = checksum(b"1234", 0);
        assert_eq!(checksum(b"56789", u64::from(begun)), 0xCBF4_3926);
        assert_eq!(checksum(b"123456789", 1 << 32), 0xCBF4_3926);
    }

    #[test]
    fn sum_is_never_a_mark_for_none() {
        assert_eq!(checksum(b"", u64::from(NO_SUM)), NO_SUM_BITMAP - 1);
        assert_eq!(checksum(b"", u64::from(NO_SUM_BITMAP)), NO_SUM_BITMAP - 1);
    }

    #[test]
    fn flipped_bit_is_found_from_the_difference() {
        let data: Vec<u8> = (0..999_u16).map(|number| (number % 251) as u8).collect();
        let sum = checksum(&data, 5);
        for (byte, bit) in [(0, 0), (0, 7), (17, 3), (998, 0), (998, 7)] {
            let mut damaged = data.clone();
            damaged[byte] ^= 1 << bit;
            let difference = sum ^ checksum(&damaged, 5);
            assert_eq!(flipped_bit(difference, data.len()), Some((byte, bit)));
        }
        assert_eq!(flipped_bit(0, data.len()), None);
        assert_eq!(flipped_bit(0x1234_5678, data.len()), None);
    }
}

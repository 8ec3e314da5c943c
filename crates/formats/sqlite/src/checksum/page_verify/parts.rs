//! The sum of the torn mode: the highest bits of the CRC-32C of each part, the first part lowest.
//!
//! The parts of the usual pages are so short that a function for slices of any length spends much
//! of its time on their ends: 84 ns for the eight parts of 4 KiB, where the one for parts of whole
//! lines takes 63, and the CHECKSUM of such a page 58 (Zen 5, in cache, each kernel by itself).

use super::{DIGEST_BYTES, part_bits, parts};
use pagewarden_core::crc::{crc32c, crc32c_of_parts};

/// In longer parts more vectors have to take turns, as [`crc32c`] has them.
const PART_BYTES_MAX: usize = 1024;

/// The sum of `page`, whose digest takes the last eight bytes.
pub(super) fn of_page(page: &[u8]) -> u64 {
    known_length(page).unwrap_or_else(|| plain(page))
}

/// What the eight bytes in front of the marker add to the sum of a page of `page_bytes` bytes, see
/// [`super::crc64::share_of`].
pub(super) fn share_of(balance: [u8; DIGEST_BYTES], page_bytes: usize) -> u64 {
    if balance == [0; _] {
        return 0;
    }
    let crc = |bytes: &[u8; 16]| u64::from(crc32c(bytes));
    let [a, b, c, d, e, f, g, h] = balance;
    let share = crc(&[a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]) ^ crc(&[0; 16]);
    let (count, _) = parts(page_bytes);
    let others = std::iter::repeat_n(0, count.saturating_sub(1));
    highest_bits(count, others.chain([share]))
}

fn known_length(page: &[u8]) -> Option<u64> {
    match parts(page.len()) {
        (2, _) => crc32c_of_parts::<2, DIGEST_BYTES>(page).map(joined),
        (4, _) => crc32c_of_parts::<4, DIGEST_BYTES>(page).map(joined),
        (8, ..=PART_BYTES_MAX) => crc32c_of_parts::<8, DIGEST_BYTES>(page).map(joined),
        _ => None,
    }
}

/// One part after the other.
fn plain(page: &[u8]) -> u64 {
    let (count, part_bytes) = parts(page.len());
    let content = page.get(..page.len().saturating_sub(DIGEST_BYTES)).unwrap_or(&[]);
    let crcs = content.chunks(part_bytes).take(count);
    highest_bits(count, crcs.map(|part| u64::from(crc32c(part))))
}

fn joined<const COUNT: usize>(crcs: [u32; COUNT]) -> u64 {
    highest_bits(COUNT, crcs.into_iter().map(u64::from))
}

fn highest_bits(count: usize, crcs: impl Iterator<Item = u64>) -> u64 {
    let bits = part_bits(count);
    crcs.zip(0_u32..).fold(0, |sum, (crc, index)| {
        sum | (crc >> 32_u32.saturating_sub(bits)).wrapping_shl(index.saturating_mul(bits))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_any_length_and_place_has_the_sum_of_its_parts() {
        let mut state = 11_u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .take(65_544)
        .collect();
        for size in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 1000, 1023, 4104, 8, 0] {
            for begin in [0, 1, 8] {
                let Some(page) = bytes.get(begin..begin + size) else { continue };
                assert_eq!(of_page(page), plain(page), "{size} bytes at {begin}");
            }
        }
    }

    #[test]
    fn every_bit_in_front_of_the_digest_counts_in_its_own_part() {
        let mut page: Vec<u8> = (0..4096_u32).map(|at| at.to_le_bytes()[0]).collect();
        let sound = of_page(&page);
        for at in 0..page.len() {
            for bit in 0..8 {
                page[at] ^= 1 << bit;
                let difference = of_page(&page) ^ sound;
                // One bit in 256 leaves the highest eight bits of a CRC as they were.
                assert_eq!(difference & !(0xff << (at / 512 * 8)), 0, "bit {bit} of {at}");
                assert!(at < 4088 || difference == 0);
                page[at] ^= 1 << bit;
            }
        }
    }

    /// The CRC written out bit by bit.
    #[test]
    fn known_answer_holds() {
        let slow = |bytes: &[u8]| {
            u64::from(!bytes.iter().fold(u32::MAX, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
                })
            }))
        };
        assert_eq!(slow(b"123456789"), 0xe306_9283);
        let page: Vec<u8> = (0..2048_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
        let sum = (0..4).fold(0, |sum, part| {
            let end = if part == 3 { 2040 } else { (part + 1) * 512 };
            sum | slow(&page[part * 512..end]) >> 16 << (16 * part)
        });
        assert_eq!(of_page(&page), sum);
    }
}

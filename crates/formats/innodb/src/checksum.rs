//! The checksums of InnoDB pages.
//!
//! | name | computed over | where it is stored |
//! |---|---|---|
//! | crc32 | CRC-32C of bytes 4..26 XOR CRC-32C of 38..end-8, two runs | 0..4 and end-8..end-4 |
//! | crc32, other byte order | the same, aligned words of 8 bytes taken backwards | the same |
//! | innodb | [`fold`] of 4..26 plus fold of 38..end-8 | 0..4; end-8 has the fold of 0..26 |
//! | none | nothing | `DEADBEEF` in both |
//! | full_crc32 | one CRC-32C of all but the last four bytes | the last four bytes |
//! | zip crc32 | CRC-32C of 4..16 XOR of 24..26 XOR of 34..end, three runs | 0..4 |
//! | zip innodb | Adler-32 over the same three ranges in a row, begun with 0 | 0..4 |
//!
//! The names are those of `innodb_checksum_algorithm`; zip are the pages of
//! `ROW_FORMAT=COMPRESSED`. All fields are big-endian. A page that MariaDB
//! encrypted in the old layout has its sum, taken over the encrypted page, at 30..34.
//!
//! What no sum of the old layouts covers: 26..38 (the space id is in there) and the low half
//! of the LSN in the last four bytes; in zip pages 16..24 and 26..34.
//!
//! Facts from the public sources of MySQL (`buf/checksum.cc`, `ut/crc32.cc`) and MariaDB
//! (`buf0checksum.cc`, `page0zip.cc`), settled by pages of real servers.

#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use pagewarden_core::crc::crc32c;

pub mod flip;
pub mod fold;

/// Stands in the checksum fields of a page without a sum.
pub const NO_CHECKSUM_MAGIC: u32 = 0xDEAD_BEEF;

/// The part of the header that the sums of the old layouts cover.
pub const HEADER_RUN: Range<usize> = 4..26;
/// Where the body begins.
pub const BODY_BEGIN: usize = 38;
/// The second checksum field and the low half of the LSN.
pub const TRAILER_BYTES: usize = 8;
/// What the sums of zip pages cover of the header.
pub const ZIP_RUNS: [Range<usize>; 2] = [4..16, 24..26];
/// Where the third run of a zip page begins, which goes to its end.
pub const ZIP_BODY_BEGIN: usize = 34;
/// Bytes of a checksum field.
pub const SUM_BYTES: usize = 4;

const _: () = assert!(HEADER_RUN.end < BODY_BEGIN && ZIP_RUNS[1].end < ZIP_BODY_BEGIN);

/// The body of a page of the old layout: all between the header and the trailer.
#[must_use]
pub fn body_run(page_size: usize) -> Range<usize> {
    BODY_BEGIN..page_size.saturating_sub(TRAILER_BYTES).max(BODY_BEGIN)
}

fn part(page: &[u8], range: Range<usize>) -> &[u8] {
    page.get(range).unwrap_or_default()
}

/// The sum `crc32`. A page too short to have a body has that of nothing.
#[must_use]
pub fn crc32(page: &[u8]) -> u32 {
    crc32c(part(page, HEADER_RUN)) ^ crc32c(part(page, body_run(page.len())))
}

/// The sum `crc32` as some builds wrote it that took aligned words of eight bytes backwards.
#[must_use]
pub fn crc32_other_order(page: &[u8]) -> u32 {
    let mut swapped = page.to_vec();
    let (words, _) = swapped.as_chunks_mut::<8>();
    // The runs begin and end inside words; only whole words of a run were swapped.
    let body_words = body_run(page.len());
    for (word, begin) in words.iter_mut().zip((0_usize..).step_by(8)) {
        let end = begin.saturating_add(8);
        let is_inside = |run: &Range<usize>| run.start <= begin && end <= run.end;
        if is_inside(&HEADER_RUN) || is_inside(&body_words) {
            word.reverse();
        }
    }
    crc32(&swapped)
}

/// The sum `full_crc32` of a page, or of the stored part of a page_compressed one.
#[must_use]
pub fn full_crc32(stored: &[u8]) -> u32 {
    crc32c(part(stored, 0..stored.len().saturating_sub(SUM_BYTES)))
}

/// The sum `crc32` of a page of `ROW_FORMAT=COMPRESSED`.
#[must_use]
pub fn zip_crc32(page: &[u8]) -> u32 {
    let [first, second] = ZIP_RUNS;
    crc32c(part(page, first))
        ^ crc32c(part(page, second))
        ^ crc32c(page.get(ZIP_BODY_BEGIN..).unwrap_or_default())
}

/// The sum `innodb` of a page of `ROW_FORMAT=COMPRESSED`.
#[must_use]
pub fn zip_adler32(page: &[u8]) -> u32 {
    let [first, second] = ZIP_RUNS;
    let sum = adler32(0, part(page, first));
    let sum = adler32(sum, part(page, second));
    adler32(sum, page.get(ZIP_BODY_BEGIN..).unwrap_or_default())
}

/// The largest prime below 2^16.
const ADLER_MODULUS: u32 = 65_521;
/// This number of bytes can be summed before either half may overflow.
const ADLER_CHUNK_BYTES: usize = 5552;

/// Adler-32 of `bytes`, going on from `sum`.
#[must_use]
pub fn adler32(sum: u32, bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (sum & 0xffff, sum >> 16);
    for chunk in bytes.chunks(ADLER_CHUNK_BYTES) {
        for byte in chunk {
            low = low.wrapping_add(u32::from(*byte));
            high = high.wrapping_add(low);
        }
        low %= ADLER_MODULUS;
        high %= ADLER_MODULUS;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::crc::crc32c_plain;
    use pagewarden_core::testing::noise;

    #[test]
    fn adler_equals_the_definition() {
        for length in [0, 1, 7, 5551, 5552, 5553, 65_490] {
            let bytes = noise(length, 2);
            let (mut low, mut high) = (0_u64, 0_u64);
            for byte in &bytes {
                low = (low + u64::from(*byte)) % 65_521;
                high = (high + low) % 65_521;
            }
            assert_eq!(u64::from(adler32(0, &bytes)), high << 16 | low);
        }
        assert_eq!(adler32(1, b"Wikipedia"), 0x11E6_0398);
    }

    /// As the definition has it: byte by byte up to an aligned address, then words of eight
    /// bytes, the last byte first.
    #[test]
    fn other_byte_order_equals_the_definition() {
        let backwards = |page: &[u8], run: Range<usize>| {
            let mut bytes = Vec::new();
            let mut at = run.start;
            while at < run.end {
                if at.is_multiple_of(8) && at + 8 <= run.end {
                    bytes.extend(page[at..at + 8].iter().rev());
                    at += 8;
                } else {
                    bytes.push(page[at]);
                    at += 1;
                }
            }
            crc32c_plain(&bytes)
        };
        for size in [4096, 16_384] {
            let page = noise(size, 3);
            let expected = backwards(&page, 4..26) ^ backwards(&page, 38..size - 8);
            assert_eq!(crc32_other_order(&page), expected);
            assert_ne!(crc32_other_order(&page), crc32(&page));
        }
    }
}

//! CRC-64/NVME of a page in front of its digest, in one go.
//!
//! Bytes are polynomials with the lowest bit first, so a product of two 64-bit words comes out
//! multiplied by x once too often; every constant is a power of x less by one for that. A lane of
//! 128 bits moves over `d` bytes of message as `low * x^(8d + 64) + high * x^8d`. The digest's own
//! place counts as 8 bytes of zero behind the message. That multiplies it by x^64, which a CRC asks
//! for anyway, so what is left of the lanes has only to be taken modulo the polynomial. (Barrett's
//! way, as in Intel's paper "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ".)
//!
//! A page is a whole number of [`LINE_BYTES`], so that there is neither a head nor a tail, on which
//! a function for slices of any length and place spends as long as on the rest of 4 KiB.
#![allow(unsafe_code)]

use pagewarden_core::crc::crc64 as plain;

use super::DIGEST_BYTES;

#[cfg(target_arch = "x86_64")]
mod avx512;

/// The polynomial, lowest bit first, without its highest term.
pub(super) const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// Bytes taken in one step.
#[cfg(any(target_arch = "x86_64", test))]
const LINE_BYTES: usize = 256;

/// The CRC of all bytes of `page` but the last eight.
pub(super) fn of_page(page: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = avx512::of_page(page) {
        return crc;
    }
    plain(page.get(..page.len().saturating_sub(DIGEST_BYTES)).unwrap_or(&[]))
}

/// What the eight bytes in front of the marker add to a page's CRC, which is linear: zero for zeros.
pub(super) fn share_of(balance: [u8; DIGEST_BYTES]) -> u64 {
    if balance == [0; _] {
        return 0;
    }
    // Eight bytes of the marker that are covered come behind them.
    eight_bytes_on(eight_bytes_on(u64::from_le_bytes(balance)))
}

/// What `share` of a CRC is eight bytes of the message further on: `of_word` without the bits that a CRC
/// begins and ends with.
fn eight_bytes_on(share: u64) -> u64 {
    !of_word((!share).to_le_bytes())
}

/// The CRC of eight bytes.
pub(super) fn of_word(word: [u8; DIGEST_BYTES]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = avx512::of_word(word) {
        return crc;
    }
    plain(&word)
}

/// x to the power of `exponent`, modulo the polynomial.
#[cfg(any(target_arch = "x86_64", test))]
const fn power(exponent: usize) -> u64 {
    let (mut power, mut count) = (1 << 63, 0);
    while count < exponent {
        power = times_x(power);
        count = count.wrapping_add(1);
    }
    power
}

#[cfg(any(target_arch = "x86_64", test))]
const fn times_x(value: u64) -> u64 {
    (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// The whole part of x^127 divided by the polynomial.
#[cfg(target_arch = "x86_64")]
const fn quotient() -> u64 {
    let (mut rest, mut quotient, mut bit) = (1, 0, 0);
    while bit < u64::BITS {
        quotient |= (rest & 1) << bit;
        rest = times_x(rest);
        bit = bit.wrapping_add(1);
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn slow(bytes: &[u8]) -> u64 {
        !bytes
            .iter()
            .fold(u64::MAX, |crc, byte| (0..8).fold(crc ^ u64::from(*byte), |crc, _| times_x(crc)))
    }

    fn bytes(count: usize) -> Vec<u8> {
        let mut state = 7_u32;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .take(count)
        .collect()
    }

    #[test]
    fn known_answer_holds() {
        assert_eq!(slow(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(power(64), POLYNOMIAL);
    }

    #[test]
    fn page_of_any_length_and_place_has_the_crc_that_its_bits_give() {
        let bytes = bytes(66_000);
        for count in [0, 7, 8, 9, 255, 256, 264, 512, 768, 1024, 2048, 4096, 16_384, 65_536] {
            for begin in [0, 1, 8] {
                let page = &bytes[begin..begin + count];
                let covered = &page[..count.saturating_sub(8)];
                assert_eq!(of_page(page), slow(covered), "{count} bytes at {begin}");
                assert_eq!(plain(covered), slow(covered));
            }
        }
    }

    #[test]
    fn every_bit_in_front_of_the_digest_counts_and_none_in_it() {
        let mut page = bytes(2 * LINE_BYTES);
        let sound = of_page(&page);
        for at in 0..page.len() {
            for bit in 0..8 {
                page[at] ^= 1 << bit;
                assert_eq!(of_page(&page) == sound, at >= page.len() - DIGEST_BYTES);
                page[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn share_of_the_balance_is_what_it_adds_to_the_crc() {
        let mut page = bytes(512);
        page[488..496].fill(0);
        let without = of_page(&page);
        assert_eq!(share_of([0; 8]), 0);
        for balance in [[1, 0, 0, 0, 0, 0, 0, 0], [0xff; 8], [9, 8, 7, 6, 5, 4, 3, 2]] {
            page[488..496].copy_from_slice(&balance);
            assert_eq!(of_page(&page) ^ share_of(balance), without);
        }
    }

    #[test]
    fn word_has_the_crc_that_its_bits_give() {
        for begin in 0..200 {
            let word: [u8; 8] = bytes(208)[begin..begin + 8].try_into().unwrap();
            assert_eq!(of_word(word), slow(&word));
        }
    }
}

//! The running sum of a write-ahead log.
//!
//! It starts at the sum before, and every pair of words `a, b` does `s1 += a + s2`, then
//! `s2 += b + s1`, modulo 2^32. Each word so enters both halves with a Fibonacci number for its
//! weight, by its distance from the end: the effect of one flipped bit is known without summing
//! again.

#![deny(clippy::arithmetic_side_effects)]

const WORD_BYTES: usize = 4;
const WORD_BITS: u32 = 32;

/// Both halves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(pub u32, pub u32);

impl Sum {
    /// The sum goes on over `bytes`, two words at a time.
    pub fn over(self, bytes: &[u8], is_big_endian: bool) -> Self {
        let (pairs, _) = bytes.as_chunks::<{ 2 * WORD_BYTES }>();
        let mut sum = self;
        for [a, b, c, d, e, f, g, h] in pairs {
            let one = word([*a, *b, *c, *d], is_big_endian);
            let other = word([*e, *f, *g, *h], is_big_endian);
            sum.0 = sum.0.wrapping_add(one).wrapping_add(sum.1);
            sum.1 = sum.1.wrapping_add(other).wrapping_add(sum.0);
        }
        sum
    }

    /// As it stands in the file.
    pub fn to_bytes(self) -> [u8; 8] {
        let [a, b, c, d] = self.0.to_be_bytes();
        let [e, f, g, h] = self.1.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// As a dump of the file shows it.
    pub fn to_hex(self) -> String {
        format!("{:08x}{:08x}", self.0, self.1)
    }
}

fn word(bytes: [u8; WORD_BYTES], is_big_endian: bool) -> u32 {
    if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The bit of two stretches, one behind the other, that makes `computed` the `stored` sum when it
/// is flipped; counted from the highest of the first byte. High bits of words repeat their weight
/// soon: then it is one of several, which all explain the sum.
pub fn flipped_bit(
    (first, second): (&[u8], &[u8]),
    computed: Sum,
    stored: Sum,
    is_big_endian: bool,
) -> Option<u64> {
    let wanted = (stored.0.wrapping_sub(computed.0), stored.1.wrapping_sub(computed.1));
    if wanted == (0, 0) {
        return None;
    }
    let (first_words, _) = first.as_chunks::<WORD_BYTES>();
    let (second_words, _) = second.as_chunks::<WORD_BYTES>();
    let words = first_words.iter().chain(second_words);
    let count = first_words.len().saturating_add(second_words.len());
    // The last word enters the second half alone.
    let mut weights = (0_u32, 1_u32);
    for (place, bytes) in (0..count).rev().zip(words.rev()) {
        let value = word(*bytes, is_big_endian);
        for bit in 0..WORD_BITS {
            let one = 1_u32.checked_shl(bit)?;
            let change = if value & one == 0 { one } else { one.wrapping_neg() };
            let effect = (change.wrapping_mul(weights.0), change.wrapping_mul(weights.1));
            if effect == wanted {
                return Some(bit_of_file(place, bit, is_big_endian));
            }
        }
        weights = (weights.1, weights.0.wrapping_add(weights.1));
    }
    None
}

/// A bit of a word's value, as the place where it stands.
fn bit_of_file(word: usize, bit: u32, is_big_endian: bool) -> u64 {
    let (byte, in_byte) = (bit / 8, bit % 8);
    let byte = if is_big_endian { 3_u32.saturating_sub(byte) } else { byte };
    let bytes = u64::try_from(word).unwrap_or(u64::MAX).saturating_mul(4);
    bytes
        .saturating_add(u64::from(byte))
        .saturating_mul(8)
        .saturating_add(u64::from(7_u32.saturating_sub(in_byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit: it is found, or another that has the same effect.
    #[test]
    fn every_flipped_bit_is_explained_by_one_that_mends_the_sum() {
        let content: Vec<u8> = (0..512_u32).map(|i| (i * i / 7).to_le_bytes()[0]).collect();
        for is_big_endian in [false, true] {
            let (head, page) = content.split_at(8);
            let before = Sum(0x1234_5678, 0x9abc_def0);
            let sum = |bytes: &[u8]| before.over(bytes, is_big_endian);
            let stored = sum(&content);
            assert_eq!(flipped_bit((head, page), stored, stored, is_big_endian), None);
            let mut exact = 0;
            for bit in 0..content.len() * 8 {
                let mut damaged = content.clone();
                damaged[bit / 8] ^= 0x80 >> (bit % 8);
                let (head, page) = damaged.split_at(8);
                let found = flipped_bit((head, page), sum(&damaged), stored, is_big_endian);
                let found = usize::try_from(found.unwrap()).unwrap();
                let mut mended = damaged.clone();
                mended[found / 8] ^= 0x80 >> (found % 8);
                assert_eq!(sum(&mended), stored);
                exact += usize::from(found == bit);
            }
            assert!(exact > content.len() * 6, "{exact}");
        }
    }

    #[test]
    fn two_flipped_bits_far_apart_are_not_one() {
        let content = [0x5a; 512];
        let mut damaged = content;
        damaged[17] ^= 1;
        damaged[400] ^= 2;
        let (stored, computed) =
            (Sum::default().over(&content, false), Sum::default().over(&damaged, false));
        let (head, page) = damaged.split_at(8);
        assert_eq!(flipped_bit((head, page), computed, stored, false), None);
    }
}

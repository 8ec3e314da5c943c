//! The page sum of SQLite's checksum VFS (the `cksumvfs` extension).
//!
//! | bytes of a page | what they are |
//! |---|---|
//! | `0 .. size - 8` | content, read as little-endian 32-bit words; the header on page 1 included |
//! | `size - 8 .. size - 4` | `s1`, little-endian |
//! | `size - 4 .. size` | `s2`, little-endian |
//!
//! Both halves start at 0 and every pair of words `a, b` does `s1 += a + s2`, then `s2 += b + s1`,
//! modulo 2^32. So each word `x` enters as `f(k) = f(k-1) + f(k-2) + x(k)`, and `s1`, `s2` are the
//! last two values: a sum of the words weighted with Fibonacci numbers. Two things follow. The
//! effect of one flipped bit is known without summing again, so all bits can be tried; and a high
//! bit's weight repeats soon (that of bit 31 every third word), so that the place of a flipped high
//! bit is often not known.
//!
//! What the sum cannot see, by its design: an all-zero page has the sum zero and passes, and there
//! is no page number in it, so that a page at a wrong place passes.
//!
//! The recurrence is serial. Several pages side by side fill the processor where one page would
//! wait for its own additions.
//!
//! Facts from SQLite's public documentation and source (`ext/misc/cksumvfs.c`), settled by pages
//! that the VFS itself wrote.

#![deny(clippy::arithmetic_side_effects)]

pub mod page_verify;

/// Bytes of the sum, at the end of the page.
pub const SUM_BYTES: usize = 8;

const WORD_BYTES: usize = 4;
const PAIR_BYTES: usize = 2 * WORD_BYTES;
const WORD_BITS: u32 = 32;
/// Pages summed side by side: enough to hide the two additions each pair of words waits for.
const LANE_COUNT: usize = 4;

const _: () = assert!(SUM_BYTES == 2 * WORD_BYTES && SUM_BYTES == PAIR_BYTES);

/// A page's sum: `s1` in the low half, `s2` in the high one, as its eight bytes are read
/// little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSum(pub u64);

impl PageSum {
    fn of_halves(halves: Halves) -> Self {
        Self(u64::from(halves.first) | u64::from(halves.second) << WORD_BITS)
    }

    fn halves(self) -> (u32, u32) {
        let bytes = self.0.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
    }

    /// The eight bytes in the order of the file, hexadecimal: what a hex dump of the page's end
    /// shows.
    #[must_use]
    pub fn to_hex(self) -> String {
        format!("{:016x}", self.0.swap_bytes())
    }
}

/// The sum that `page` carries in its last eight bytes; zero for a page too short to carry one.
#[must_use]
pub fn stored_sum(page: &[u8]) -> PageSum {
    PageSum(page.last_chunk::<SUM_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// The sum that belongs to `page`'s content. Plain, one page; the reference of [`page_sums`].
#[must_use]
pub fn page_sum(page: &[u8]) -> PageSum {
    let mut halves = Halves::default();
    for pair in content_pairs(page) {
        halves.add(*pair);
    }
    PageSum::of_halves(halves)
}

/// Writes the sum that belongs to `page`'s content into its last eight bytes.
pub fn stamp(page: &mut [u8]) {
    let sum = page_sum(page);
    if let Some(tail) = page.last_chunk_mut::<SUM_BYTES>() {
        *tail = sum.0.to_le_bytes();
    }
}

/// The sums of all whole pages in `pages`, in their order, appended to `sums`.
pub fn page_sums(pages: &[u8], page_size: usize, sums: &mut Vec<PageSum>) {
    if page_size < SUM_BYTES {
        return;
    }
    let mut groups = pages.chunks_exact(page_size.saturating_mul(LANE_COUNT));
    for group in &mut groups {
        sums.extend(four_page_sums(group, page_size));
    }
    sums.extend(groups.remainder().chunks_exact(page_size).map(page_sum));
}

fn four_page_sums(group: &[u8], page_size: usize) -> [PageSum; LANE_COUNT] {
    let (first, rest) = group.split_at(page_size);
    let (second, rest) = rest.split_at(page_size);
    let (third, fourth) = rest.split_at(page_size);
    let mut lanes = [Halves::default(); LANE_COUNT];
    let [a, b, c, d] = &mut lanes;
    let pairs = content_pairs(first)
        .iter()
        .zip(content_pairs(second))
        .zip(content_pairs(third))
        .zip(content_pairs(fourth));
    for (((in_first, in_second), in_third), in_fourth) in pairs {
        a.add(*in_first);
        b.add(*in_second);
        c.add(*in_third);
        d.add(*in_fourth);
    }
    lanes.map(PageSum::of_halves)
}

#[derive(Debug, Clone, Copy, Default)]
struct Halves {
    first: u32,
    second: u32,
}

impl Halves {
    fn add(&mut self, pair: [u8; PAIR_BYTES]) {
        let [a, b, c, d, e, f, g, h] = pair;
        self.first =
            self.first.wrapping_add(u32::from_le_bytes([a, b, c, d])).wrapping_add(self.second);
        self.second =
            self.second.wrapping_add(u32::from_le_bytes([e, f, g, h])).wrapping_add(self.first);
    }
}

fn content_pairs(page: &[u8]) -> &[[u8; PAIR_BYTES]] {
    let (pairs, _) = page.as_chunks::<PAIR_BYTES>();
    pairs.split_last().map_or(&[], |(_sum, content)| content)
}

/// The places at which one flipped bit would explain a wrong sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlippedBit {
    /// The first such place: the byte's offset in the page.
    pub byte: usize,
    /// The bit in that byte, 0 the lowest.
    pub bit: u32,
    /// How many places there are; more than one only for the high bits of a word and for the last word.
    pub candidates: usize,
}

/// The one flipped bit, in the content or in the sum itself, that explains why `page` fails.
///
/// `None` where the page passes or where no single bit explains it. A match by chance is excluded:
/// fewer than 2^20 bits are tried against 64 bits of sum.
#[must_use]
pub fn flipped_bit(page: &[u8]) -> Option<FlippedBit> {
    let (stored, computed) = (stored_sum(page), page_sum(page));
    let content_bytes = page.len().checked_sub(SUM_BYTES)?;
    let (stored_first, stored_second) = stored.halves();
    let (first, second) = computed.halves();
    let missing = (stored_first.wrapping_sub(first), stored_second.wrapping_sub(second));
    if missing == (0, 0) {
        return None;
    }

    // The weights of a word in `s1` and `s2`, from the last word of the content backwards.
    let mut weights = (0_u32, 1_u32);
    let mut found = flipped_sum_bit(stored.0 ^ computed.0, content_bytes);
    let (words, _) = page.get(..content_bytes)?.as_chunks::<WORD_BYTES>();
    for (index, word) in words.iter().enumerate().rev() {
        if let Some(bit) = explaining_bit(u32::from_le_bytes(*word), weights, missing) {
            let byte = usize::try_from(bit / u8::BITS).ok()?;
            found = Some(FlippedBit {
                byte: index.checked_mul(WORD_BYTES)?.checked_add(byte)?,
                bit: bit % u8::BITS,
                candidates: found.map_or(1, |flip| flip.candidates.saturating_add(1)),
            });
        }
        weights = (weights.1, weights.0.wrapping_add(weights.1));
    }
    found
}

/// The bit of the sum itself that explains `difference`.
fn flipped_sum_bit(difference: u64, content_bytes: usize) -> Option<FlippedBit> {
    let place = difference.is_power_of_two().then(|| difference.trailing_zeros())?;
    let byte = usize::try_from(place / u8::BITS).ok()?.checked_add(content_bytes)?;
    Some(FlippedBit { byte, bit: place % u8::BITS, candidates: 1 })
}

/// The bit of `word` that, turned back, adds `missing` to the sum.
fn explaining_bit(word: u32, weights: (u32, u32), missing: (u32, u32)) -> Option<u32> {
    // One weight is odd (neighbours in the Fibonacci row never are both even), so a bit's number
    // is the number of zeroes at the end of the smaller change.
    let bit = missing.0.trailing_zeros().min(missing.1.trailing_zeros());
    let value = 1_u32.checked_shl(bit)?;
    let step = if word & value == 0 { value } else { value.wrapping_neg() };
    let change = (weights.0.wrapping_mul(step), weights.1.wrapping_mul(step));
    (change == missing).then_some(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(page_size: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut page: Vec<u8> = (0..page_size)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        stamp(&mut page);
        page
    }

    /// The sum written out as its documentation has it, over words instead of pairs of bytes.
    #[test]
    fn sum_follows_the_published_recurrence() {
        let mut page = vec![0; 512];
        for (byte, at) in page.iter_mut().zip(0_u32..) {
            *byte = (at * 7 % 251) as u8;
        }
        let (mut s1, mut s2) = (0_u32, 0_u32);
        for pair in page[..504].chunks_exact(8) {
            let a = u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
            let b = u32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
            s1 = s1.wrapping_add(a.wrapping_add(s2));
            s2 = s2.wrapping_add(b.wrapping_add(s1));
        }
        assert_eq!(page_sum(&page), PageSum(u64::from(s1) | u64::from(s2) << 32));
        assert_eq!(page_sum(&page).to_hex().len(), 16);
    }

    /// Every page of databases that the official VFS wrote.
    #[test]
    fn sums_are_those_of_the_official_vfs() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/sqlite/3.40.1");
        for page_size in [512, 4096] {
            let file = std::fs::read(format!("{root}/cksumvfs-{page_size}.db")).unwrap();
            let mut sums = Vec::new();
            page_sums(&file, page_size, &mut sums);
            assert!(sums.len() > 20);
            for (page, sum) in file.chunks(page_size).zip(sums) {
                assert_eq!(sum, stored_sum(page));
            }
        }
    }

    #[test]
    fn pages_side_by_side_have_the_sums_of_each_alone() {
        for page_size in [512, 1024, 4096, 65_536] {
            for count in 0..=9 {
                let pages: Vec<u8> =
                    (0..count).flat_map(|seed| filled(page_size, seed * 31 + 5)).collect();
                let mut sums = Vec::new();
                page_sums(&pages, page_size, &mut sums);
                let alone: Vec<_> = pages.chunks_exact(page_size).map(page_sum).collect();
                assert_eq!(sums, alone);
            }
        }
    }

    #[test]
    fn zero_page_has_the_sum_zero() {
        assert_eq!(page_sum(&[0; 4096]), PageSum(0));
        assert_eq!(stored_sum(&[0; 4096]), PageSum(0));
    }

    /// Every bit of a page, one at a time: the sum fails, and the bit is named or is among the
    /// candidates, which are few for low bits.
    #[test]
    fn every_flipped_bit_is_found() {
        let mut page = filled(512, 9);
        assert_eq!(flipped_bit(&page), None);
        for byte in 0..page.len() {
            for bit in 0..8 {
                page[byte] ^= 1 << bit;
                assert_ne!(stored_sum(&page), page_sum(&page));
                let flip = flipped_bit(&page).expect("one bit explains it");
                if flip.candidates == 1 {
                    assert_eq!((flip.byte, flip.bit), (byte, bit));
                } else {
                    // The high bits of a word, the last word of the content (which goes into
                    // `s2` as it is) and the bits of the sum that these look like.
                    assert!(byte % 4 >= 2 || byte >= 500, "byte {byte} bit {bit}: {flip:?}");
                    assert_eq!((flip.byte % 4, flip.bit), (byte % 4, bit));
                    assert!(flip.byte <= byte);
                }
                page[byte] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn two_flipped_bits_are_not_taken_for_one() {
        let mut page = filled(4096, 3);
        page[100] ^= 1;
        page[2000] ^= 4;
        assert_eq!(flipped_bit(&page), None);
    }

    #[test]
    fn short_slices_are_no_pages() {
        assert_eq!(page_sum(&[1, 2, 3]), PageSum(0));
        assert_eq!(stored_sum(&[1, 2, 3]), PageSum(0));
        assert_eq!(flipped_bit(&[1, 2, 3]), None);
        let mut sums = Vec::new();
        page_sums(&[1; 64], 4, &mut sums);
        assert!(sums.is_empty());
    }
}

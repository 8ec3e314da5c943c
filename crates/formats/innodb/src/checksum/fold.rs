//! The sum `innodb`, of before `crc32`: a fold of bytes into 32 bits.
//!
//! Each byte does `f = ((((f ^ b ^ 1653893711) << 8) + f) ^ 1463735687) + b`, so that no step can
//! begin before the last one ended: five operations, one after the other, for a byte. So pages are
//! folded side by side, one in each lane of a vector, and several vectors in turn, so that each has
//! ended a step when its next one comes. Lines of 64 bytes are turned so that each vector has the
//! same word of sixteen pages: read word by word, pages of 16K would push each other out of the
//! first cache.
//!
//! Measured on AMD's Zen 5, where each of the five takes two cycles, in GB/s of one thread, for
//! pages of 16K that lie at multiples of 64 bytes, one alone being 0.7:
//!
//! | pages side by side | AVX-512 | AVX2 |
//! |---|---|---|
//! | 16 | 6.8 | 5.6 |
//! | 32 | 13 | 8.3 |
//! | 48 | 13 | 9.6 |
//! | 64 | 16 | 9.7 |
//!
//! 64 pages of 16K are as much as the second cache holds. From memory it is 9. Fetching lines ahead
//! gained nothing. Pages that do not lie so cost a third, since each load then takes parts of two
//! lines.
//!
//! Facts from the public source of MySQL (`ut0rnd.ic`, `buf0checksum.cc`).

#![allow(unsafe_code)]

use std::ops::Range;

use super::{HEADER_RUN, body_run};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Pages in a vector.
const LANE_COUNT: usize = 16;
/// The most vectors that take turns.
const GROUP_COUNT_MAX: usize = 4;
/// This number of pages side by side is folded fastest.
pub const PAGES_AT_ONCE: usize = LANE_COUNT * GROUP_COUNT_MAX;

const MASK_SHIFTED: u32 = 1_653_893_711;
const MASK_ADDED: u32 = 1_463_735_687;
const WORD_BYTES: usize = 4;
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;

/// For each byte of a word: what picks it, alone in its word, for the four words of 16 bytes. Places
/// with the high bit become zero.
#[cfg(target_arch = "x86_64")]
const BYTES_OF_WORDS: [[i32; 4]; WORD_BYTES] = {
    const fn picks(byte: u8) -> [i32; 4] {
        const fn pick(from: u8) -> i32 {
            i32::from_le_bytes([from, 0x80, 0x80, 0x80])
        }
        [pick(byte), pick(byte | 4), pick(byte | 8), pick(byte | 12)]
    }
    [picks(0), picks(1), picks(2), picks(3)]
};

/// With fewer pages left than this, one after the other is no slower.
const PAGES_WORTHWHILE: usize = 3;

/// A page for each lane, all of one length.
type Lanes<'a> = [&'a [[u8; LINE_BYTES]]; LANE_COUNT];
type Folds = [u32; LANE_COUNT];

#[inline(always)]
fn step(fold: u32, byte: u32) -> u32 {
    (((fold ^ byte ^ MASK_SHIFTED) << 8).wrapping_add(fold) ^ MASK_ADDED).wrapping_add(byte)
}

fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| step(sum, u32::from(*byte)))
}

/// The sum at the beginning of a page. Plain, one page; the reference of [`new_folds`].
#[must_use]
pub fn new_fold(page: &[u8]) -> u32 {
    let header = page.get(HEADER_RUN).unwrap_or_default();
    fold(header).wrapping_add(fold(page.get(body_run(page.len())).unwrap_or_default()))
}

/// The sum in the trailer of a page. It covers the first field, so that one comes first.
#[must_use]
pub fn old_fold(page: &[u8]) -> u32 {
    fold(page.get(..HEADER_RUN.end).unwrap_or_default())
}

/// The sums at the beginning of all whole pages in `pages`, in their order, appended to `sums`.
pub fn new_folds(pages: &[u8], page_size: usize, sums: &mut Vec<u32>) {
    if page_size == 0 || body_run(page_size).is_empty() {
        return;
    }
    for pages in pages.chunks(page_size.saturating_mul(PAGES_AT_ONCE)) {
        let count = pages.len().checked_div(page_size).unwrap_or(0);
        match count.div_ceil(LANE_COUNT) {
            _ if count < PAGES_WORTHWHILE || !page_size.is_multiple_of(LINE_BYTES) => {
                sums.extend(pages.chunks_exact(page_size).map(new_fold));
            }
            1 => fold_side_by_side::<1>(pages, page_size, sums),
            2 => fold_side_by_side::<2>(pages, page_size, sums),
            3 => fold_side_by_side::<3>(pages, page_size, sums),
            _ => fold_side_by_side::<GROUP_COUNT_MAX>(pages, page_size, sums),
        }
    }
}

/// Pages for `GROUPS` vectors at most.
fn fold_side_by_side<const GROUPS: usize>(pages: &[u8], page_size: usize, sums: &mut Vec<u32>) {
    let mut groups: [Lanes<'_>; GROUPS] = [[&[]; LANE_COUNT]; GROUPS];
    // Lanes without a page fold the first one once more.
    let spare = pages.get(..page_size).unwrap_or_default();
    let filled = pages.chunks_exact(page_size).chain(std::iter::repeat(spare));
    for (lane, page) in groups.as_flattened_mut().iter_mut().zip(filled) {
        *lane = page.as_chunks().0;
    }
    let headers = fold_groups(&groups, HEADER_RUN);
    let bodies = fold_groups(&groups, body_run(page_size));
    let both = headers.as_flattened().iter().zip(bodies.as_flattened());
    let count = pages.len().checked_div(page_size).unwrap_or(0);
    sums.extend(both.take(count).map(|(header, body)| header.wrapping_add(*body)));
}

/// The folds of these bytes of each page.
fn fold_groups<const GROUPS: usize>(
    groups: &[Lanes<'_>; GROUPS],
    bytes: Range<usize>,
) -> [Folds; GROUPS] {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::available() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { avx512::fold_groups(groups, bytes) };
        }
        if avx2::available() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { avx2::fold_groups(groups, bytes) };
        }
    }
    fold_groups_plain(groups, &bytes)
}

/// Lines that every lane has.
#[cfg(target_arch = "x86_64")]
fn line_count<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> usize {
    groups.as_flattened().iter().map(|lane| lane.len()).min().unwrap_or(0)
}

/// Pieces of `length` bytes that have some of `bytes`: the number of each, and which of its own.
fn pieces(bytes: &Range<usize>, length: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = *bytes;
    let (first, count) = if bytes.is_empty() {
        (0, 0)
    } else {
        (start.checked_div(length).unwrap_or(0), end.div_ceil(length))
    };
    (first..count).map(move |piece| {
        let begin = piece.saturating_mul(length);
        (piece, start.saturating_sub(begin)..end.saturating_sub(begin).min(length))
    })
}

/// Written so that the compiler makes vectors of it, as wide as the build's target allows.
fn fold_groups_plain<const GROUPS: usize>(
    groups: &[Lanes<'_>; GROUPS],
    bytes: &Range<usize>,
) -> [Folds; GROUPS] {
    let mut folds = [[0; LANE_COUNT]; GROUPS];
    for (at, own) in pieces(bytes, LINE_BYTES) {
        for (folds, lines) in folds.iter_mut().zip(groups) {
            let mut columns = [[0_u8; LANE_COUNT]; LINE_BYTES];
            for (line, lane) in lines.iter().zip(0..) {
                let line = line.get(at).map_or(&[][..], |line| line.as_slice());
                for (column, byte) in columns.iter_mut().zip(line) {
                    if let Some(place) = column.get_mut(lane) {
                        *place = *byte;
                    }
                }
            }
            for column in columns.get(own.clone()).unwrap_or_default() {
                for (fold, byte) in folds.iter_mut().zip(column) {
                    *fold = step(*fold, u32::from(*byte));
                }
            }
        }
    }
    folds
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use pagewarden_core::testing::noise;

    #[test]
    fn pages_side_by_side_have_the_sums_of_each_alone() {
        for page_size in [1024, 4096, 16_384, 65_536] {
            for count in [0, 1, 2, 3, 15, 16, 17, 33, 63, 64, 65, 100] {
                if page_size > 16_384 && count > 33 {
                    continue;
                }
                let bytes = noise(page_size * count + 100, 7);
                let mut sums = Vec::new();
                new_folds(&bytes, page_size, &mut sums);
                let expected: Vec<_> = bytes.chunks_exact(page_size).map(new_fold).collect();
                assert_eq!(sums, expected, "{count} pages of {page_size}");
            }
        }
    }

    #[test]
    fn every_width_of_vector_gives_the_same() {
        same_for_groups::<1>();
        same_for_groups::<2>();
        same_for_groups::<3>();
        same_for_groups::<4>();
    }

    fn same_for_groups<const GROUPS: usize>() {
        const LINES: usize = 5;
        let bytes = noise((LINE_BYTES * LINES * LANE_COUNT).saturating_mul(GROUPS), 8);
        let mut pages = bytes.as_chunks::<LINE_BYTES>().0.chunks_exact(LINES);
        let groups: [Lanes<'_>; GROUPS] =
            std::array::from_fn(|_| std::array::from_fn(|_| pages.next().unwrap()));
        let ranges = [0..0, 4..26, 38..320, 38..312, 0..64, 0..320, 63..65, 31..33, 5..6, 64..128];
        for range in ranges {
            let expected =
                groups.map(|lanes| lanes.map(|page| fold(&page.as_flattened()[range.clone()])));
            assert_eq!(fold_groups_plain(&groups, &range), expected);
            assert_eq!(fold_groups(&groups, range.clone()), expected);
            #[cfg(target_arch = "x86_64")]
            {
                if avx2::available() {
                    // SAFETY: the processor has what the function asks for.
                    assert_eq!(unsafe { avx2::fold_groups(&groups, range.clone()) }, expected);
                }
                if avx512::available() {
                    // SAFETY: the processor has what the function asks for.
                    assert_eq!(unsafe { avx512::fold_groups(&groups, range) }, expected);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn pages_of_any_bytes_have_the_sums_of_each_alone(
            bytes in vec(any::<u8>(), 0..100_000),
            size in 6..15_u32,
        ) {
            let page_size = 1 << size;
            let mut sums = Vec::new();
            new_folds(&bytes, page_size, &mut sums);
            let expected: Vec<_> = bytes.chunks_exact(page_size).map(new_fold).collect();
            prop_assert_eq!(sums, expected);
        }
    }
}

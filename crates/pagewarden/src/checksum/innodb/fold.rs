//! The sum `innodb`, of before `crc32`: a fold of bytes into 32 bits.
//!
//! Each byte does `f = ((((f ^ b ^ 1653893711) << 8) + f) ^ 1463735687) + b`, so that no step can
//! begin before the last one ended: five operations, one after the other, for a byte. So pages are
//! folded side by side, one in each lane of a vector, and two vectors in turn, which costs little
//! more than one page. Lines of 64 bytes are turned so that each vector has the same word of
//! sixteen pages: read word by word, pages of 16K would push each other out of the first cache.
//!
//! Facts from the public source of MySQL (`ut0rnd.ic`, `buf0checksum.cc`).

#![allow(unsafe_code)]

use super::{HEADER_RUN, body_run};

#[cfg(target_arch = "x86_64")]
mod avx512;

/// Pages in a vector.
const LANE_COUNT: usize = 16;
/// The most vectors that take turns. More gain nothing (measured).
const GROUP_COUNT_MAX: usize = 2;
/// So many pages side by side are folded fastest.
pub const PAGES_AT_ONCE: usize = LANE_COUNT * GROUP_COUNT_MAX;

const MASK_SHIFTED: u32 = 1_653_893_711;
const MASK_ADDED: u32 = 1_463_735_687;
const WORD_BYTES: usize = 4;
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;
/// With fewer pages left than this, one after the other is no slower.
const PAGES_WORTHWHILE: usize = 3;

type Lanes<'a> = [&'a [u8]; LANE_COUNT];
type Folds = [u32; LANE_COUNT];

#[inline(always)]
fn step(fold: u32, byte: u32) -> u32 {
    (((fold ^ byte ^ MASK_SHIFTED) << 8).wrapping_add(fold) ^ MASK_ADDED).wrapping_add(byte)
}

fn fold_from(begin: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(begin, |sum, byte| step(sum, u32::from(*byte)))
}

fn fold(bytes: &[u8]) -> u32 {
    fold_from(0, bytes)
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
            _ if count < PAGES_WORTHWHILE => {
                sums.extend(pages.chunks_exact(page_size).map(new_fold));
            }
            1 => fold_side_by_side::<1>(pages, page_size, sums),
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
        *lane = page.get(body_run(page_size)).unwrap_or_default();
    }
    let folds = fold_groups(&groups);
    let of_header = |page: &[u8]| fold(page.get(HEADER_RUN).unwrap_or_default());
    let in_order = pages.chunks_exact(page_size).zip(folds.as_flattened());
    sums.extend(in_order.map(|(page, body)| of_header(page).wrapping_add(*body)));
}

fn fold_groups<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> [Folds; GROUPS] {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::available() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { avx512::fold_groups(groups) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function asks for.
            return unsafe { fold_groups_avx2(groups) };
        }
    }
    fold_groups_plain(groups)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_groups_avx2<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> [Folds; GROUPS] {
    fold_groups_plain(groups)
}

/// Written so that the compiler makes vectors of it, as wide as its caller allows.
#[inline(always)]
fn fold_groups_plain<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> [Folds; GROUPS] {
    let lines = groups.map(|lanes| lanes.map(|lane| lane.as_chunks::<LINE_BYTES>().0));
    let count = line_count(groups);
    let mut folds = [[0; LANE_COUNT]; GROUPS];
    for at in 0..count {
        for (folds, lines) in folds.iter_mut().zip(&lines) {
            let mut words = [[0_u32; LANE_COUNT]; LINE_WORDS];
            for (line, lane) in lines.iter().zip(0..) {
                let line = line.get(at).map_or(&[][..], |line| line.as_chunks().0);
                for (row, word) in words.iter_mut().zip(line) {
                    if let Some(place) = row.get_mut(lane) {
                        *place = u32::from_le_bytes(*word);
                    }
                }
            }
            for row in &words {
                for shift in [0, 8, 16, 24] {
                    for (fold, word) in folds.iter_mut().zip(row) {
                        *fold = step(*fold, word >> shift & 0xff);
                    }
                }
            }
        }
    }
    fold_rest(groups, count, &mut folds);
    folds
}

/// Lines that every lane has.
fn line_count<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> usize {
    groups.as_flattened().iter().map(|lane| lane.len() / LINE_BYTES).min().unwrap_or(0)
}

/// Goes on behind the lines.
fn fold_rest<const GROUPS: usize>(
    groups: &[Lanes<'_>; GROUPS],
    lines: usize,
    folds: &mut [Folds; GROUPS],
) {
    let begin = lines.saturating_mul(LINE_BYTES);
    for (fold, lane) in folds.as_flattened_mut().iter_mut().zip(groups.as_flattened()) {
        *fold = fold_from(*fold, lane.get(begin..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

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

    /// Lanes of any length, also of different ones.
    #[test]
    fn every_width_of_vector_gives_the_same() {
        for (length, more) in [(0, 0), (1, 0), (63, 0), (64, 0), (65, 0), (1000, 7), (16_338, 0)] {
            let bytes = noise(length + more * 32 + 500, 8);
            let lane = |at: usize| &bytes[at..at + length + more * at];
            let groups: [Lanes<'_>; 2] =
                std::array::from_fn(|group| std::array::from_fn(|at| lane(16 * group + at)));
            let expected = groups.map(|lanes| lanes.map(fold));
            assert_eq!(fold_groups_plain(&groups), expected);
            assert_eq!(fold_groups(&groups), expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has what the function asks for.
                assert_eq!(unsafe { fold_groups_avx2(&groups) }, expected);
            }
        }
    }
}

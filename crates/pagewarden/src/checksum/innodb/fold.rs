//! The sum `innodb`, of before `crc32`: a fold of bytes into 32 bits.
//!
//! Each byte does `f = ((((f ^ b ^ 1653893711) << 8) + f) ^ 1463735687) + b`, so that no step
//! can begin before the last one ended: five operations of latency a byte. Sixteen pages are
//! folded side by side, one in each lane of a vector, which costs as much as one.
//!
//! Facts from the public source of MySQL (`ut0rnd.ic`, `buf0checksum.cc`).

#![allow(unsafe_code)]

use super::{HEADER_RUN, body_run};

/// Pages folded side by side.
pub const LANE_COUNT: usize = 16;

const MASK_SHIFTED: u32 = 1_653_893_711;
const MASK_ADDED: u32 = 1_463_735_687;
const WORD_BYTES: usize = 4;
/// With fewer pages left than this, one after the other is no slower.
const LANES_WORTHWHILE: usize = 3;

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
    let body = body_run(page_size);
    if page_size == 0 || body.is_empty() {
        return;
    }
    let mut bodies: [&[u8]; LANE_COUNT] = [&[]; LANE_COUNT];
    for group in pages.chunks(page_size.saturating_mul(LANE_COUNT)) {
        let in_group = group.chunks_exact(page_size);
        if in_group.len() < LANES_WORTHWHILE {
            sums.extend(in_group.map(new_fold));
            continue;
        }
        // Lanes without a page fold the first one once more.
        let spare = group.get(..page_size).unwrap_or_default();
        let filled = in_group.clone().chain(std::iter::repeat(spare));
        for (lane, page) in bodies.iter_mut().zip(filled) {
            *lane = page.get(body.clone()).unwrap_or_default();
        }
        let folds = fold_lanes(&bodies);
        sums.extend(in_group.zip(folds).map(|(page, body_fold)| {
            fold(page.get(HEADER_RUN).unwrap_or_default()).wrapping_add(body_fold)
        }));
    }
}

/// Folds slices of one length.
fn fold_lanes(lanes: &[&[u8]; LANE_COUNT]) -> [u32; LANE_COUNT] {
    let length = lanes.first().map_or(0, |lane| lane.len());
    if lanes.iter().any(|lane| lane.len() != length) {
        return lanes.map(fold);
    }
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has what the function asks for.
            return unsafe { fold_lanes_avx512(lanes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function asks for.
            return unsafe { fold_lanes_avx2(lanes) };
        }
    }
    fold_lanes_of_target(lanes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn fold_lanes_avx512(lanes: &[&[u8]; LANE_COUNT]) -> [u32; LANE_COUNT] {
    fold_lanes_of_target(lanes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fold_lanes_avx2(lanes: &[&[u8]; LANE_COUNT]) -> [u32; LANE_COUNT] {
    fold_lanes_of_target(lanes)
}

/// Written so that the compiler makes vectors of it, as wide as its caller allows.
#[inline(always)]
fn fold_lanes_of_target(lanes: &[&[u8]; LANE_COUNT]) -> [u32; LANE_COUNT] {
    let length = lanes.iter().map(|lane| lane.len()).min().unwrap_or(0);
    let mut folds = [0_u32; LANE_COUNT];
    for at in (0..length / WORD_BYTES).map(|word| word.saturating_mul(WORD_BYTES)) {
        let words = lanes.map(|lane| {
            // SAFETY: `at` is at most `length - 4`, and every lane has `length` bytes; a read
            // of bytes asks for no alignment.
            u32::from_le_bytes(unsafe { lane.as_ptr().add(at).cast::<[u8; WORD_BYTES]>().read() })
        });
        for shift in [0, 8, 16, 24] {
            for (fold, word) in folds.iter_mut().zip(&words) {
                *fold = step(*fold, word >> shift & 0xff);
            }
        }
    }
    let rest = length.saturating_sub(length % WORD_BYTES);
    for (fold, lane) in folds.iter_mut().zip(lanes) {
        for byte in lane.get(rest..length).unwrap_or_default() {
            *fold = step(*fold, u32::from(*byte));
        }
    }
    folds
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    #[test]
    fn pages_side_by_side_have_the_sums_of_each_alone() {
        for page_size in [1024, 4096, 16_384, 65_536] {
            for count in [0, 1, 2, 3, 15, 16, 17, 33] {
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
        for length in [0, 1, 3, 4, 5, 1000, 16_338] {
            let bytes = noise(length * LANE_COUNT, 8);
            let lanes: [&[u8]; LANE_COUNT] =
                std::array::from_fn(|lane| &bytes[lane * length..(lane + 1) * length]);
            let expected = lanes.map(fold);
            assert_eq!(fold_lanes_of_target(&lanes), expected);
            assert_eq!(fold_lanes(&lanes), expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has what the function asks for.
                assert_eq!(unsafe { fold_lanes_avx2(&lanes) }, expected);
            }
        }
    }

    #[test]
    fn lanes_of_different_lengths_are_folded_one_by_one() {
        let bytes = noise(100, 9);
        let lanes: [&[u8]; LANE_COUNT] = std::array::from_fn(|lane| &bytes[..lane * 5]);
        assert_eq!(fold_lanes(&lanes), lanes.map(fold));
    }
}

//! The fold for x86 with AVX2: eight pages in a vector, two vectors to a group.

use std::arch::x86_64::{
    __m256i, _mm_set_epi32, _mm256_add_epi32, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_slli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::ops::Range;

use super::{
    BYTES_OF_WORDS, Folds, LANE_COUNT, LINE_BYTES, Lanes, MASK_ADDED, MASK_SHIFTED, WORD_BYTES,
    line_count, pieces,
};

type Vector = __m256i;

/// Half a line.
const HALF_BYTES: usize = size_of::<Vector>();
const _: () = assert!(2 * HALF_BYTES == LINE_BYTES);
const VECTOR_LANES: usize = HALF_BYTES / WORD_BYTES;
const GROUP_VECTORS: usize = LANE_COUNT / VECTOR_LANES;

/// Whether this processor can run it.
pub fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

#[inline]
#[target_feature(enable = "avx2")]
fn step(fold: Vector, byte: Vector) -> Vector {
    let masked = _mm256_xor_si256(byte, _mm256_set1_epi32(MASK_SHIFTED.cast_signed()));
    let shifted = _mm256_slli_epi32::<8>(_mm256_xor_si256(fold, masked));
    let added = _mm256_add_epi32(shifted, fold);
    let mixed = _mm256_xor_si256(added, _mm256_set1_epi32(MASK_ADDED.cast_signed()));
    _mm256_add_epi32(mixed, byte)
}

/// Half a line of eight pages each becomes eight words of all pages each.
#[inline]
#[target_feature(enable = "avx2")]
fn turn(lines: [Vector; VECTOR_LANES]) -> [Vector; VECTOR_LANES] {
    let [a, b, c, d, e, f, g, h] = lines;
    let [a, b, c, d] = turn_quarter(a, b, c, d);
    let [e, f, g, h] = turn_quarter(e, f, g, h);
    let low = |x, y| _mm256_permute2x128_si256::<0x20>(x, y);
    let high = |x, y| _mm256_permute2x128_si256::<0x31>(x, y);
    [low(a, e), low(b, f), low(c, g), low(d, h), high(a, e), high(b, f), high(c, g), high(d, h)]
}

/// Within each 16 bytes of four lines.
#[inline]
#[target_feature(enable = "avx2")]
fn turn_quarter(a: Vector, b: Vector, c: Vector, d: Vector) -> [Vector; 4] {
    let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(low_ab, low_cd),
        _mm256_unpackhi_epi64(low_ab, low_cd),
        _mm256_unpacklo_epi64(high_ab, high_cd),
        _mm256_unpackhi_epi64(high_ab, high_cd),
    ]
}

/// The words of half a line of every page, as [`turn`] makes them.
type Words<const GROUPS: usize> = [[[Vector; VECTOR_LANES]; GROUP_VECTORS]; GROUPS];
/// A lane for each page.
type Vectors<const GROUPS: usize> = [[Vector; GROUP_VECTORS]; GROUPS];

/// What puts one byte of each word alone.
#[inline]
#[target_feature(enable = "avx2")]
fn picks() -> [Vector; WORD_BYTES] {
    let mut picks = [_mm256_setzero_si256(); WORD_BYTES];
    for (pick, [a, b, c, d]) in picks.iter_mut().zip(BYTES_OF_WORDS) {
        *pick = _mm256_broadcastsi128_si256(_mm_set_epi32(d, c, b, a));
    }
    picks
}

/// Goes on over half a line of every page. Apart, so that the words stay in memory: there are more
/// of them than registers.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn fold_half<const GROUPS: usize>(folds: &mut Vectors<GROUPS>, words: &Words<GROUPS>) {
    let picks = picks();
    let mut now = *folds;
    for at in 0..VECTOR_LANES {
        // The vectors take turns, so that none waits for itself.
        for pick in picks {
            for (fold, words) in now.as_flattened_mut().iter_mut().zip(words.as_flattened()) {
                if let Some(word) = words.get(at) {
                    *fold = step(*fold, _mm256_shuffle_epi8(*word, pick));
                }
            }
        }
    }
    *folds = now;
}

/// Goes on over some bytes of half a line of every page.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn fold_part<const GROUPS: usize>(
    folds: &mut Vectors<GROUPS>,
    words: &Words<GROUPS>,
    bytes: Range<usize>,
) {
    let picks = picks();
    for byte in bytes {
        let Some(pick) = picks.get(byte % WORD_BYTES) else { continue };
        for (fold, words) in folds.as_flattened_mut().iter_mut().zip(words.as_flattened()) {
            if let Some(word) = words.get(byte / WORD_BYTES) {
                *fold = step(*fold, _mm256_shuffle_epi8(*word, *pick));
            }
        }
    }
}

/// See [`super::fold_groups`].
#[target_feature(enable = "avx2")]
pub fn fold_groups<const GROUPS: usize>(
    groups: &[Lanes<'_>; GROUPS],
    bytes: Range<usize>,
) -> [Folds; GROUPS] {
    let zero = _mm256_setzero_si256();
    let mut vectors = [[zero; GROUP_VECTORS]; GROUPS];
    let mut words = [[[zero; VECTOR_LANES]; GROUP_VECTORS]; GROUPS];
    // A test for each lane and line would take a third of the time.
    let in_all = line_count(groups).saturating_mul(LINE_BYTES / HALF_BYTES);
    let begins = groups.map(|lanes| lanes.map(|lines| lines.as_ptr().cast::<Vector>()));
    for (at, own) in pieces(&bytes, HALF_BYTES).take_while(|(at, _)| *at < in_all) {
        let lanes = begins.as_flattened().as_chunks::<VECTOR_LANES>().0;
        for (words, begins) in words.as_flattened_mut().iter_mut().zip(lanes) {
            let mut loaded = [zero; VECTOR_LANES];
            for (place, begin) in loaded.iter_mut().zip(begins) {
                // SAFETY: every lane has more halves of lines than `at`, of 32 bytes, which are
                // read. The load asks for no alignment.
                *place = unsafe { _mm256_loadu_si256(begin.add(at)) };
            }
            *words = turn(loaded);
        }
        if own == (0..HALF_BYTES) {
            fold_half(&mut vectors, &words);
        } else {
            fold_part(&mut vectors, &words, own);
        }
    }
    let mut folds = [[0; LANE_COUNT]; GROUPS];
    let places = folds.as_flattened_mut().as_chunks_mut::<VECTOR_LANES>().0;
    for (place, vector) in places.iter_mut().zip(vectors.as_flattened()) {
        // SAFETY: the array has the 32 bytes written; the store asks for no alignment.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), *vector) };
    }
    folds
}

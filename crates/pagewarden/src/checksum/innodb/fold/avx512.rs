//! The fold for x86 with AVX-512: sixteen pages in a vector.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_and_si512, _mm512_loadu_si512, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::{
    Folds, LANE_COUNT, LINE_BYTES, LINE_WORDS, Lanes, MASK_ADDED, MASK_SHIFTED, fold_rest,
    line_count,
};

type Vector = __m512i;

const _: () = assert!(LINE_WORDS == LANE_COUNT && size_of::<Vector>() == LINE_BYTES);

/// Whether this processor can run it.
pub fn available() -> bool {
    is_x86_feature_detected!("avx512f")
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &[u8; LINE_BYTES]) -> Vector {
    // SAFETY: the reference covers the 64 bytes read; the load asks for no alignment.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn step(fold: Vector, byte: Vector) -> Vector {
    let masked = _mm512_xor_si512(byte, _mm512_set1_epi32(MASK_SHIFTED.cast_signed()));
    let shifted = _mm512_slli_epi32::<8>(_mm512_xor_si512(fold, masked));
    let added = _mm512_add_epi32(shifted, fold);
    let mixed = _mm512_xor_si512(added, _mm512_set1_epi32(MASK_ADDED.cast_signed()));
    _mm512_add_epi32(mixed, byte)
}

/// Sixteen lines of a page each become sixteen words of all pages each.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn(lines: [Vector; LANE_COUNT]) -> [Vector; LINE_WORDS] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = lines;
    let [a, b, c, d] = turn_quarter(a, b, c, d);
    let [e, f, g, h] = turn_quarter(e, f, g, h);
    let [i, j, k, l] = turn_quarter(i, j, k, l);
    let [m, n, o, p] = turn_quarter(m, n, o, p);
    let [w0, w4, w8, w12] = join_quarters(a, e, i, m);
    let [w1, w5, w9, w13] = join_quarters(b, f, j, n);
    let [w2, w6, w10, w14] = join_quarters(c, g, k, o);
    let [w3, w7, w11, w15] = join_quarters(d, h, l, p);
    [w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15]
}

/// Within each 16 bytes of four lines.
#[inline]
#[target_feature(enable = "avx512f")]
fn turn_quarter(a: Vector, b: Vector, c: Vector, d: Vector) -> [Vector; 4] {
    let (low_ab, high_ab) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (low_cd, high_cd) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(low_ab, low_cd),
        _mm512_unpackhi_epi64(low_ab, low_cd),
        _mm512_unpacklo_epi64(high_ab, high_cd),
        _mm512_unpackhi_epi64(high_ab, high_cd),
    ]
}

/// The same 16 bytes of four vectors into one.
#[inline]
#[target_feature(enable = "avx512f")]
fn join_quarters(a: Vector, b: Vector, c: Vector, d: Vector) -> [Vector; 4] {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let (even_ab, odd_ab) = (_mm512_shuffle_i32x4::<EVEN>(a, b), _mm512_shuffle_i32x4::<ODD>(a, b));
    let (even_cd, odd_cd) = (_mm512_shuffle_i32x4::<EVEN>(c, d), _mm512_shuffle_i32x4::<ODD>(c, d));
    [
        _mm512_shuffle_i32x4::<EVEN>(even_ab, even_cd),
        _mm512_shuffle_i32x4::<EVEN>(odd_ab, odd_cd),
        _mm512_shuffle_i32x4::<ODD>(even_ab, even_cd),
        _mm512_shuffle_i32x4::<ODD>(odd_ab, odd_cd),
    ]
}

/// See [`super::fold_groups_plain`].
#[target_feature(enable = "avx512f")]
pub fn fold_groups<const GROUPS: usize>(groups: &[Lanes<'_>; GROUPS]) -> [Folds; GROUPS] {
    let zero = _mm512_setzero_si512();
    let low_byte = _mm512_set1_epi32(0xff);
    let lines = groups.map(|lanes| lanes.map(|lane| lane.as_chunks::<LINE_BYTES>().0));
    let count = line_count(groups);
    let mut vectors = [zero; GROUPS];
    for at in 0..count {
        let mut words = [[zero; LINE_WORDS]; GROUPS];
        for (words, lines) in words.iter_mut().zip(&lines) {
            let mut loaded = [zero; LANE_COUNT];
            for (place, lines) in loaded.iter_mut().zip(lines) {
                if let Some(line) = lines.get(at) {
                    *place = load(line);
                }
            }
            *words = turn(loaded);
        }
        for at in 0..LINE_WORDS {
            // The groups take turns, so that none waits for itself.
            for _ in 0..size_of::<u32>() {
                for (fold, words) in vectors.iter_mut().zip(&mut words) {
                    if let Some(word) = words.get_mut(at) {
                        *fold = step(*fold, _mm512_and_si512(*word, low_byte));
                        *word = _mm512_srli_epi32::<8>(*word);
                    }
                }
            }
        }
    }
    let mut folds = [[0; LANE_COUNT]; GROUPS];
    for (folds, vector) in folds.iter_mut().zip(vectors) {
        // SAFETY: the array has the 64 bytes written; the store asks for no alignment.
        unsafe { _mm512_storeu_si512(folds.as_mut_ptr().cast(), vector) };
    }
    fold_rest(groups, count, &mut folds);
    folds
}

//! The fold for x86 with AVX-512: sixteen pages in a vector.

use std::arch::x86_64::{
    __m512i, _mm_set_epi32, _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_i32x4,
    _mm512_slli_epi32, _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};
use std::ops::Range;

use super::{
    BYTES_OF_WORDS, Folds, LANE_COUNT, LINE_BYTES, LINE_WORDS, Lanes, MASK_ADDED, MASK_SHIFTED,
    WORD_BYTES, line_count, pieces,
};

type Vector = __m512i;

const _: () = assert!(LINE_WORDS == LANE_COUNT && size_of::<Vector>() == LINE_BYTES);

/// Whether this processor can run it.
pub fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

#[inline]
#[target_feature(enable = "avx512f")]
fn step(fold: Vector, byte: Vector) -> Vector {
    const XOR_OF_THREE: i32 = 0x96;
    let mask = _mm512_set1_epi32(MASK_SHIFTED.cast_signed());
    let shifted =
        _mm512_slli_epi32::<8>(_mm512_ternarylogic_epi32::<XOR_OF_THREE>(fold, byte, mask));
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

/// The words of one line of every page, as [`turn`] makes them.
type Words<const GROUPS: usize> = [[Vector; LINE_WORDS]; GROUPS];

/// What puts one byte of each word alone.
#[inline]
#[target_feature(enable = "avx512f")]
fn picks() -> [Vector; WORD_BYTES] {
    let mut picks = [_mm512_setzero_si512(); WORD_BYTES];
    for (pick, [a, b, c, d]) in picks.iter_mut().zip(BYTES_OF_WORDS) {
        *pick = _mm512_broadcast_i32x4(_mm_set_epi32(d, c, b, a));
    }
    picks
}

/// Goes on over one line of every page. Apart, so that the words stay in memory: there are more of
/// them than registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
fn fold_line<const GROUPS: usize>(folds: &mut [Vector; GROUPS], words: &Words<GROUPS>) {
    let picks = picks();
    let mut now = *folds;
    for at in 0..LINE_WORDS {
        // The groups take turns, so that none waits for itself.
        for pick in picks {
            for (fold, words) in now.iter_mut().zip(words) {
                if let Some(word) = words.get(at) {
                    *fold = step(*fold, _mm512_shuffle_epi8(*word, pick));
                }
            }
        }
    }
    *folds = now;
}

/// Goes on over some bytes of a line of every page.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
fn fold_part<const GROUPS: usize>(
    folds: &mut [Vector; GROUPS],
    words: &Words<GROUPS>,
    bytes: Range<usize>,
) {
    let picks = picks();
    for byte in bytes {
        let Some(pick) = picks.get(byte % WORD_BYTES) else { continue };
        for (fold, words) in folds.iter_mut().zip(words) {
            if let Some(word) = words.get(byte / WORD_BYTES) {
                *fold = step(*fold, _mm512_shuffle_epi8(*word, *pick));
            }
        }
    }
}

/// See [`super::fold_groups`].
#[target_feature(enable = "avx512f,avx512bw")]
pub fn fold_groups<const GROUPS: usize>(
    groups: &[Lanes<'_>; GROUPS],
    bytes: Range<usize>,
) -> [Folds; GROUPS] {
    let zero = _mm512_setzero_si512();
    let mut vectors = [zero; GROUPS];
    let mut words = [[zero; LINE_WORDS]; GROUPS];
    // A test for each lane and line would take a third of the time.
    let in_all = line_count(groups);
    let begins = groups.map(|lanes| lanes.map(<[_]>::as_ptr));
    for (at, own) in pieces(&bytes, LINE_BYTES).take_while(|(at, _)| *at < in_all) {
        for (words, begins) in words.iter_mut().zip(&begins) {
            let mut loaded = [zero; LANE_COUNT];
            for (place, begin) in loaded.iter_mut().zip(begins) {
                // SAFETY: every lane has more lines than `at`, of 64 bytes, which are read. The
                // load asks for no alignment.
                *place = unsafe { _mm512_loadu_si512(begin.add(at).cast()) };
            }
            *words = turn(loaded);
        }
        if own == (0..LINE_BYTES) {
            fold_line(&mut vectors, &words);
        } else {
            fold_part(&mut vectors, &words, own);
        }
    }
    let mut folds = [[0; LANE_COUNT]; GROUPS];
    for (folds, vector) in folds.iter_mut().zip(vectors) {
        // SAFETY: the array has the 64 bytes written; the store asks for no alignment.
        unsafe { _mm512_storeu_si512(folds.as_mut_ptr().cast(), vector) };
    }
    folds
}

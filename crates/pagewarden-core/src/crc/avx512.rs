//! Folding of four lanes in each of four vectors. [`super`] has the algorithm.
//!
//! Vectors are loaded from where lines of the cache begin: one that has bytes of two takes as long as
//! two. What lies in front of the first such place is in a vector of its own, behind bytes of zero,
//! which change nothing.

#![allow(clippy::arithmetic_side_effects, reason = "places within a vector")]

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_storeu_si128,
    _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32,
    _mm512_loadu_si512, _mm512_mask_set1_epi64, _mm512_maskz_loadu_epi8, _mm512_maskz_set1_epi64,
    _mm512_set_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{Check, LANE_BYTES, distance, tables};

const WORD_BYTES: usize = 8;
const VECTOR_BYTES: usize = 64;
/// Vectors that take turns.
const VECTOR_COUNT: usize = 4;

/// Whether this processor has the instructions.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
}

/// See [`super::folded`].
///
/// # Safety
/// The processor must have what [`available`] asks for.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq")]
pub(super) fn fold<C: Check>(mut state: u64, bytes: &[u8]) -> Option<([u8; LANE_BYTES], &[u8])> {
    let before = bytes.as_ptr().addr() % VECTOR_BYTES;
    let (head, bytes) = bytes.split_at_checked((VECTOR_BYTES - before) % VECTOR_BYTES)?;
    let (vectors, rest) = bytes.as_chunks();
    let (mut all, mut vectors) = if head.len() < WORD_BYTES {
        state = tables::advance::<C>(state, head);
        let (first, vectors) = vectors.split_first()?;
        (_mm512_xor_si512(load(first), word_at(0, state)), vectors)
    } else {
        (_mm512_xor_si512(load_end(head, before), word_at(before, state)), vectors)
    };
    let over_one = factors(const { distance::<C>(VECTOR_BYTES) });
    if let Some((next, later)) = vectors.split_first_chunk::<{ VECTOR_COUNT - 1 }>() {
        let over_others = factors(const { distance::<C>(VECTOR_COUNT * VECTOR_BYTES) });
        let over_two = factors(const { distance::<C>(2 * VECTOR_BYTES) });
        let mut a = all;
        let [mut b, mut c, mut d] = next.each_ref().map(|it| load(it));
        let (lines, later) = later.as_chunks::<VECTOR_COUNT>();
        for [e, f, g, h] in lines {
            a = moved(a, over_others, load(e));
            b = moved(b, over_others, load(f));
            c = moved(c, over_others, load(g));
            d = moved(d, over_others, load(h));
        }
        all = moved(moved(a, over_one, b), over_two, moved(c, over_one, d));
        vectors = later;
    }
    for vector in vectors {
        all = moved(all, over_one, load(vector));
    }
    let mut last = joined::<C>(all);
    let (lanes, rest) = rest.as_chunks();
    for lane in lanes {
        last = moved_lane(last, const { distance::<C>(LANE_BYTES) }, lane);
    }
    let mut lane = [0; LANE_BYTES];
    // SAFETY: there is room for the 16 bytes written, and no alignment is asked for.
    unsafe { _mm_storeu_si128(lane.as_mut_ptr().cast(), last) };
    Some((lane, rest))
}

/// `word` at this byte of a vector, as far as it has room there, and zeros around it.
#[target_feature(enable = "avx512f")]
fn word_at(byte: usize, word: u64) -> __m512i {
    let (index, shift) = (byte / WORD_BYTES, 8 * (byte % WORD_BYTES));
    // In two steps, since the high part of a word that is not moved is empty.
    let [low, high] = [word << shift, word >> 1 >> (u64::BITS as usize - 1 - shift)];
    let here = 1_u8 << index;
    let vector = _mm512_maskz_set1_epi64(here, low.cast_signed());
    _mm512_mask_set1_epi64(vector, here << 1, high.cast_signed())
}

/// `head` at the end of a vector, behind `before` zeros.
#[target_feature(enable = "avx512f,avx512bw")]
fn load_end(head: &[u8], before: usize) -> __m512i {
    let begin = head.as_ptr().wrapping_sub(before).cast();
    // SAFETY: only bytes of `head` are read: the mask leaves out those before.
    unsafe { _mm512_maskz_loadu_epi8(u64::MAX << before, begin) }
}

#[target_feature(enable = "avx512f")]
fn load(vector: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: there are the 64 bytes read, and no alignment is asked for.
    unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn factors([low, high]: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(high.cast_signed(), low.cast_signed()))
}

/// The lanes of `vector` where those of `next` are.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn moved(vector: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let low = _mm512_clmulepi64_epi128::<0x00>(vector, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(vector, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, next)
}

/// The first three lanes moved to the last.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn joined<C: Check>(vector: __m512i) -> __m128i {
    let [[a, b], [c, d], [e, f]] = const {
        [distance::<C>(3 * LANE_BYTES), distance::<C>(2 * LANE_BYTES), distance::<C>(LANE_BYTES)]
    };
    let [a, b, c, d, e, f] = [a, b, c, d, e, f].map(u64::cast_signed);
    let factors = _mm512_set_epi64(0, 0, f, e, d, c, b, a);
    let low = _mm512_clmulepi64_epi128::<0x00>(vector, factors);
    let moved = _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x11>(vector, factors));
    let first = _mm512_extracti32x4_epi32::<0>(moved);
    let second = _mm512_extracti32x4_epi32::<1>(moved);
    let third = _mm512_extracti32x4_epi32::<2>(moved);
    let last = _mm512_extracti32x4_epi32::<3>(vector);
    _mm_xor_si128(_mm_xor_si128(first, second), _mm_xor_si128(third, last))
}

/// `lane` where `next` is.
#[target_feature(enable = "pclmulqdq")]
fn moved_lane(lane: __m128i, [low, high]: [u64; 2], next: &[u8; LANE_BYTES]) -> __m128i {
    // SAFETY: there are the 16 bytes read, and no alignment is asked for.
    let next = unsafe { _mm_loadu_si128(next.as_ptr().cast()) };
    let factors = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
    let low = _mm_clmulepi64_si128::<0x00>(lane, factors);
    let high = _mm_clmulepi64_si128::<0x11>(lane, factors);
    _mm_xor_si128(_mm_xor_si128(low, high), next)
}

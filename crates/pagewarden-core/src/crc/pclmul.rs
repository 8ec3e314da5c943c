//! Folding by x86-64's multiplication of 64 bits, four lanes in turn. [`super`] has the algorithm.

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi64x,
    _mm_storeu_si128, _mm_xor_si128,
};

use super::{Check, LANE_BYTES, distance};

/// Lanes that take turns.
const LANE_COUNT: usize = 4;

/// Whether this processor has the instructions.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("pclmulqdq")
}

/// See [`super::folded`].
///
/// # Safety
/// The processor must have what [`available`] asks for.
#[target_feature(enable = "pclmulqdq")]
pub(super) fn fold<C: Check>(state: u64, bytes: &[u8]) -> Option<([u8; LANE_BYTES], &[u8])> {
    let (lanes, rest) = bytes.as_chunks();
    let (lines, lanes) = lanes.as_chunks::<LANE_COUNT>();
    let (first, lines) = lines.split_first()?;
    let over_one = factors(const { distance::<C>(LANE_BYTES) });
    let over_others = factors(const { distance::<C>(LANE_COUNT * LANE_BYTES) });
    let [mut a, mut b, mut c, mut d] = first.each_ref().map(|it| load(it));
    a = _mm_xor_si128(a, _mm_cvtsi64_si128(state.cast_signed()));
    for [e, f, g, h] in lines {
        a = moved(a, over_others, load(e));
        b = moved(b, over_others, load(f));
        c = moved(c, over_others, load(g));
        d = moved(d, over_others, load(h));
    }
    let mut all = moved(moved(moved(a, over_one, b), over_one, c), over_one, d);
    for lane in lanes {
        all = moved(all, over_one, load(lane));
    }
    let mut lane = [0; LANE_BYTES];
    // SAFETY: there is room for the 16 bytes written, and no alignment is asked for.
    unsafe { _mm_storeu_si128(lane.as_mut_ptr().cast(), all) };
    Some((lane, rest))
}

#[target_feature(enable = "sse2")]
fn load(lane: &[u8; LANE_BYTES]) -> __m128i {
    // SAFETY: there are the 16 bytes read, and no alignment is asked for.
    unsafe { _mm_loadu_si128(lane.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
fn factors([low, high]: [u64; 2]) -> __m128i {
    _mm_set_epi64x(high.cast_signed(), low.cast_signed())
}

/// `lane` where `next` is.
#[target_feature(enable = "pclmulqdq")]
fn moved(lane: __m128i, factors: __m128i, next: __m128i) -> __m128i {
    let low = _mm_clmulepi64_si128::<0x00>(lane, factors);
    let high = _mm_clmulepi64_si128::<0x11>(lane, factors);
    _mm_xor_si128(_mm_xor_si128(low, high), next)
}

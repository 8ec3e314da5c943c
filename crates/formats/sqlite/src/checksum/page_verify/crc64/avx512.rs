//! Four lanes in each of four vectors. `super` has the algorithm.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x,
    _mm_xor_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_maskz_loadu_epi64, _mm512_set_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use super::{POLYNOMIAL, power, quotient};

const VECTOR_BYTES: usize = 64;
const VECTOR_COUNT: usize = super::LINE_BYTES / VECTOR_BYTES;
const XOR_OF_THREE: i32 = 0x96;
/// All words of a vector but the digest.
const BUT_THE_LAST: u8 = 0x7f;

type Line = [[u8; VECTOR_BYTES]; VECTOR_COUNT];

/// `None` where the processor lacks what it takes, and for what is not a whole number of lines.
pub(super) fn of_page(page: &[u8]) -> Option<u64> {
    let (vectors, []) = page.as_chunks() else { return None };
    let (lines, []) = vectors.as_chunks() else { return None };
    let (first, lines) = lines.split_first()?;
    is_there().then(|| {
        // SAFETY: the processor has the features, which is all the function asks for.
        unsafe { crc(first, lines) }
    })
}

/// `None` where the processor lacks what it takes.
pub(super) fn of_word(word: [u8; 8]) -> Option<u64> {
    is_there().then(|| {
        // SAFETY: the processor has the features, which is all the function asks for.
        unsafe { !modulo(lane(!u64::from_le_bytes(word), 0)) }
    })
}

fn is_there() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
fn crc(first: &Line, rest: &[Line]) -> u64 {
    // A CRC begins with all bits set.
    let begin = _mm512_zextsi128_si512(lane(u64::MAX, 0));
    let step = over(const { distance(super::LINE_BYTES) });
    let [mut a, mut b, mut c, mut d] = load(first, rest.is_empty());
    a = _mm512_xor_si512(a, begin);
    if let [middle @ .., last] = rest {
        for line in middle {
            let [e, f, g, h] = load(line, false);
            (a, b, c, d) = (fold(a, step, e), fold(b, step, f), fold(c, step, g), fold(d, step, h));
        }
        let [e, f, g, h] = load(last, true);
        (a, b, c, d) = (fold(a, step, e), fold(b, step, f), fold(c, step, g), fold(d, step, h));
    }
    let step = over(const { distance(VECTOR_BYTES) });
    let (left, right) = (fold(a, step, b), fold(c, step, d));
    let vector = fold(left, over(const { distance(2 * VECTOR_BYTES) }), right);
    // The lanes of the vector that is left move to the last one, each over its own distance.
    let ((a, b), (c, d), (e, f)) = const { (distance(48), distance(32), distance(16)) };
    let moved = times(vector, words([a, b, c, d, e, f, 0, 0]));
    let left =
        _mm_xor_si128(_mm512_extracti32x4_epi32::<0>(moved), _mm512_extracti32x4_epi32::<1>(moved));
    let right = _mm_xor_si128(
        _mm512_extracti32x4_epi32::<2>(moved),
        _mm512_extracti32x4_epi32::<3>(vector),
    );
    !modulo(_mm_xor_si128(left, right))
}

/// A line's vectors; `is_last` takes zero for the digest at its end.
#[target_feature(enable = "avx512f")]
fn load(line: &Line, is_last: bool) -> [__m512i; VECTOR_COUNT] {
    let [a, b, c, d] = line.each_ref().map(|vector| vector.as_ptr());
    let mask = if is_last { BUT_THE_LAST } else { u8::MAX };
    // SAFETY: each pointer is to the bytes of one vector, which may lie anywhere.
    unsafe {
        [
            _mm512_loadu_si512(a.cast()),
            _mm512_loadu_si512(b.cast()),
            _mm512_loadu_si512(c.cast()),
            _mm512_maskz_loadu_epi64(mask, d.cast()),
        ]
    }
}

/// What moves a lane over `bytes` of message: the factors of its low and its high word.
const fn distance(bytes: usize) -> (u64, u64) {
    let bits = bytes.saturating_mul(8);
    (power(bits.saturating_add(63)), power(bits.saturating_sub(1)))
}

#[target_feature(enable = "avx512f")]
fn over((low, high): (u64, u64)) -> __m512i {
    words([low, high, low, high, low, high, low, high])
}

#[target_feature(enable = "avx512f")]
fn words([a, b, c, d, e, f, g, h]: [u64; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(u64::cast_signed);
    _mm512_set_epi64(h, g, f, e, d, c, b, a)
}

#[target_feature(enable = "sse2")]
fn lane(low: u64, high: u64) -> __m128i {
    _mm_set_epi64x(high.cast_signed(), low.cast_signed())
}

/// Each lane over a distance.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn times(vector: __m512i, factors: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(vector, factors);
    _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x11>(vector, factors))
}

#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(vector: __m512i, factors: __m512i, more: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(vector, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(vector, factors);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(low, high, more)
}

/// A lane modulo the polynomial. The quotient is the low word's, since the high word is shorter
/// than the polynomial.
#[target_feature(enable = "sse4.1,pclmulqdq")]
fn modulo(value: __m128i) -> u64 {
    // Of the polynomial itself the lowest term is left out, and added by hand.
    let constants = lane(const { quotient() }, const { POLYNOMIAL << 1 | 1 });
    let quotient = _mm_clmulepi64_si128::<0x00>(value, constants);
    let product = _mm_clmulepi64_si128::<0x10>(quotient, constants);
    let high = _mm_extract_epi64::<1>(_mm_xor_si128(value, product));
    (high ^ _mm_cvtsi128_si64(quotient)).cast_unsigned()
}

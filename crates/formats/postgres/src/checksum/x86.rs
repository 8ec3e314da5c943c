//! The page hash for x86, in three vector widths. `super` has the algorithm.
//!
//! How many pages are hashed side by side is measured, see the kernel benchmark: more pages hide the
//! latency of the multiplication until the lanes no longer fit the registers (16, or 32 with AVX-512).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86")]
use std::arch::x86 as arch;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64 as arch;
use std::hint::black_box;

use arch::{_MM_HINT_T0, _mm_prefetch};

use super::{
    BASIS_BYTES, CLOSING_ROW_COUNT, FNV_PRIME, FNV_SHIFT, ROW_BYTES, checksum_field, vector_kernel,
};

const PRIME: i32 = FNV_PRIME.cast_signed();
const SHIFT: i32 = FNV_SHIFT.cast_signed();

/// How far ahead of the row in work the same page is fetched. Processors see one long stream well by
/// themselves, several pages at once less so. Measured: pages in memory gain a tenth to a third, pages in
/// the cache lose nothing.
const PREFETCH_BYTES: usize = 2048;
const CACHE_LINE_BYTES: usize = 64;

#[inline]
#[target_feature(enable = "sse4.1")]
#[allow(unused_unsafe, reason = "the intrinsic became safe after the oldest supported compiler")]
fn prefetch(row: &[u8; ROW_BYTES]) {
    for offset in (PREFETCH_BYTES..PREFETCH_BYTES + ROW_BYTES).step_by(CACHE_LINE_BYTES) {
        // SAFETY: a prefetch of any address, mapped or not, reads nothing and never faults; the
        // pointer is made without the rules of a pointer into the page.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(offset).cast()) };
    }
}

/// Four lanes in a vector, eight vectors in a row.
pub(super) mod sse41 {
    use super::arch::{
        __m128i, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_mullo_epi32,
        _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_epi32, _mm_slli_si128, _mm_srli_epi32,
        _mm_xor_si128,
    };
    use super::*;

    type Vector = __m128i;
    const VECTOR_BYTES: usize = size_of::<Vector>();

    vector_kernel!("sse4.1", is_x86_feature_detected, [page]);

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn load(bytes: &[u8; VECTOR_BYTES]) -> Vector {
        // SAFETY: the reference covers the 16 bytes read; the load asks for no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn zero() -> Vector {
        _mm_setzero_si128()
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    pub(super) fn lift_field(field: u32) -> Vector {
        _mm_slli_si128::<8>(_mm_cvtsi32_si128(field.cast_signed()))
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn xor(left: Vector, right: Vector) -> Vector {
        _mm_xor_si128(left, right)
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    fn mix(mixed: Vector) -> Vector {
        let product = _mm_mullo_epi32(mixed, _mm_set1_epi32(PRIME));
        xor(product, _mm_srli_epi32::<SHIFT>(mixed))
    }

    #[inline]
    #[target_feature(enable = "sse4.1")]
    pub(super) fn fold(lanes: Vector) -> u32 {
        let pairs = xor(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
        let all = xor(pairs, _mm_shuffle_epi32::<0b10_11_00_01>(pairs));
        _mm_cvtsi128_si32(all).cast_unsigned()
    }
}

/// Eight lanes in a vector, four vectors in a row.
pub(super) mod avx2 {
    use super::arch::{
        __m256i, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256,
        _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_set1_epi32, _mm256_setzero_si256,
        _mm256_srli_epi32, _mm256_xor_si256, _mm256_zextsi128_si256,
    };
    use super::*;

    type Vector = __m256i;
    const VECTOR_BYTES: usize = size_of::<Vector>();

    vector_kernel!("avx2", is_x86_feature_detected, [first, second]);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; VECTOR_BYTES]) -> Vector {
        // SAFETY: the reference covers the 32 bytes read; the load asks for no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Vector {
        _mm256_setzero_si256()
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lift_field(field: u32) -> Vector {
        _mm256_zextsi128_si256(sse41::lift_field(field))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn xor(left: Vector, right: Vector) -> Vector {
        _mm256_xor_si256(left, right)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix(mixed: Vector) -> Vector {
        let product = _mm256_mullo_epi32(mixed, _mm256_set1_epi32(PRIME));
        xor(product, _mm256_srli_epi32::<SHIFT>(mixed))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn fold(lanes: Vector) -> u32 {
        let high = _mm256_extracti128_si256::<1>(lanes);
        sse41::fold(_mm_xor_si128(_mm256_castsi256_si128(lanes), high))
    }
}

/// Sixteen lanes in a vector, two vectors in a row.
pub(super) mod avx512 {
    use super::arch::{
        __m512i, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
        _mm512_loadu_si512, _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
        _mm512_srli_epi32, _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    use super::*;

    type Vector = __m512i;
    const VECTOR_BYTES: usize = size_of::<Vector>();
    const SHIFT: u32 = FNV_SHIFT;

    vector_kernel!("avx512f", is_x86_feature_detected, [first, second, third, fourth]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(bytes: &[u8; VECTOR_BYTES]) -> Vector {
        // SAFETY: the reference covers the 64 bytes read; the load asks for no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn zero() -> Vector {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn lift_field(field: u32) -> Vector {
        _mm512_zextsi128_si512(sse41::lift_field(field))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn xor(left: Vector, right: Vector) -> Vector {
        _mm512_xor_si512(left, right)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn mix(mixed: Vector) -> Vector {
        let product = _mm512_mullo_epi32(mixed, _mm512_set1_epi32(PRIME));
        xor(product, _mm512_srli_epi32::<SHIFT>(mixed))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fold(lanes: Vector) -> u32 {
        let high = _mm512_extracti64x4_epi64::<1>(lanes);
        avx2::fold(_mm256_xor_si256(_mm512_castsi512_si256(lanes), high))
    }
}

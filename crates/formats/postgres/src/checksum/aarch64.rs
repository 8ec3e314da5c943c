//! The page hash for 64-bit Arm. `super` has the algorithm.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::{
    BASIS_BYTES, CLOSING_ROW_COUNT, FNV_PRIME, FNV_SHIFT, ROW_BYTES, checksum_field, vector_kernel,
};

/// Four lanes in a vector, eight vectors in a row. Two pages side by side fill 16 of the 32 registers
/// and hide the latency on cores that start two multiplications a cycle.
pub(super) mod neon {
    use std::arch::aarch64::{
        uint32x4_t, vdupq_n_u32, veorq_u32, vgetq_lane_u32, vld1q_u8, vmulq_u32,
        vreinterpretq_u32_u8, vsetq_lane_u32, vshrq_n_u32,
    };

    use super::*;

    type Vector = uint32x4_t;
    const VECTOR_BYTES: usize = size_of::<Vector>();
    const SHIFT: i32 = FNV_SHIFT.cast_signed();

    vector_kernel!("neon", is_aarch64_feature_detected, [first, second]);

    /// Nothing: stable Rust has no prefetch for Arm.
    fn prefetch(_row: &[u8; ROW_BYTES]) {}

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(bytes: &[u8; VECTOR_BYTES]) -> Vector {
        // SAFETY: the reference covers the 16 bytes read; the load asks for no alignment.
        vreinterpretq_u32_u8(unsafe { vld1q_u8(bytes.as_ptr()) })
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> Vector {
        vdupq_n_u32(0)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn lift_field(field: u32) -> Vector {
        vsetq_lane_u32::<2>(field, zero())
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn xor(left: Vector, right: Vector) -> Vector {
        veorq_u32(left, right)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn mix(mixed: Vector) -> Vector {
        let product = vmulq_u32(mixed, vdupq_n_u32(FNV_PRIME));
        xor(product, vshrq_n_u32::<SHIFT>(mixed))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn fold(lanes: Vector) -> u32 {
        vgetq_lane_u32::<0>(lanes)
            ^ vgetq_lane_u32::<1>(lanes)
            ^ vgetq_lane_u32::<2>(lanes)
            ^ vgetq_lane_u32::<3>(lanes)
    }
}

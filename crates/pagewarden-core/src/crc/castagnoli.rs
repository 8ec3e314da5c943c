//! CRC-32C by the instructions that processors have for it.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::fused;

/// Longer pieces are done faster by folding.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const CHAINED_MAX: usize = 127;

/// The state behind `bytes`; `None` where it is faster to fold them, or this processor has no instruction.
#[cfg(target_arch = "x86_64")]
pub(super) fn advance(state: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() > CHAINED_MAX {
        // SAFETY: the processor has what the function asks for.
        return if fused::is_fastest() { unsafe { fused::advance(state, bytes) } } else { None };
    }
    // SAFETY: the processor has what the function asks for.
    is_x86_feature_detected!("sse4.2").then(|| unsafe { chain(state, bytes) })
}

/// The state behind `bytes`; `None` where it is faster to fold them, or this processor has no instruction.
#[cfg(target_arch = "aarch64")]
pub(super) fn advance(state: u32, bytes: &[u8]) -> Option<u32> {
    let has_it = std::arch::is_aarch64_feature_detected!("crc");
    // SAFETY: the processor has what the function asks for.
    (has_it && bytes.len() <= CHAINED_MAX).then(|| unsafe { chain(state, bytes) })
}

/// `None`: no instruction is known.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn advance(_state: u32, _bytes: &[u8]) -> Option<u32> {
    None
}

/// A few bytes, one after the other.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn chain(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let state = words
        .iter()
        .fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    let (halves, rest) = rest.as_chunks();
    let state = halves.iter().fold(super::low_half(state), |state, half| {
        _mm_crc32_u32(state, u32::from_le_bytes(*half))
    });
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

/// A few bytes, one after the other.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn chain(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::aarch64::{__crc32cb, __crc32cd};
    let (words, rest) = bytes.as_chunks();
    let state = words.iter().fold(state, |state, word| __crc32cd(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state, |state, byte| __crc32cb(state, *byte))
}

/// CRC-32C of each of `COUNT` equal parts of a page, the last one without the last `LEFT_OUT` bytes
/// of the page; `None` where there is no faster way than one after the other.
pub fn crc32c_of_parts<const COUNT: usize, const LEFT_OUT: usize>(
    page: &[u8],
) -> Option<[u32; COUNT]> {
    #[cfg(target_arch = "x86_64")]
    if fused::available() {
        // SAFETY: the processor has what the function asks for.
        return unsafe { fused::crc32c_of_parts::<COUNT, LEFT_OUT>(page) };
    }
    let _ = page;
    None
}

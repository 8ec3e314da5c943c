//! The page checksum for wider vectors of x86: the same loop, compiled for them. `super` has the
//! algorithm.
#![allow(unsafe_code)]

use super::{Page, fold};

/// Whether this processor has AVX2.
pub(super) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Whether this processor has AVX-512.
pub(super) fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

/// `None` where the processor lacks it.
pub(super) fn fold_avx2(page: &Page) -> Option<u32> {
    #[target_feature(enable = "avx2")]
    fn wide(page: &Page) -> u32 {
        fold(page)
    }
    has_avx2().then(|| {
        // SAFETY: the processor has the feature, which is all the function asks for.
        unsafe { wide(page) }
    })
}

/// `None` where the processor lacks it.
pub(super) fn fold_avx512(page: &Page) -> Option<u32> {
    #[target_feature(enable = "avx512f")]
    fn wide(page: &Page) -> u32 {
        fold(page)
    }
    has_avx512().then(|| {
        // SAFETY: the processor has the feature, which is all the function asks for.
        unsafe { wide(page) }
    })
}

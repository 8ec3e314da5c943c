//! What the tests of formats use: the suite that every format passes, and disks and files that fail.
//! Compiled for tests only, by the feature `testing`.

// A test may end at anything that it did not expect.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

pub mod conformance;
pub mod fault;
pub mod fixtures;
pub mod interrupted_repair;
pub mod recorder;

/// Bytes that look random, the same in every run.
#[must_use]
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(length).collect()
}

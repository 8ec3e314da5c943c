//! Folding by aarch64's multiplication of 64 bits, four lanes in turn. [`super`] has the algorithm.

use std::arch::aarch64::vmull_p64;
use std::arch::is_aarch64_feature_detected;

use super::{Check, LANE_BYTES, distance};

/// Lanes that take turns.
const LANE_COUNT: usize = 4;

/// Whether this processor has the instructions.
pub(super) fn available() -> bool {
    is_aarch64_feature_detected!("aes") && is_aarch64_feature_detected!("neon")
}

/// See [`super::folded`].
///
/// # Safety
/// The processor must have what [`available`] asks for.
#[target_feature(enable = "neon,aes")]
pub(super) fn fold<C: Check>(state: u64, bytes: &[u8]) -> Option<([u8; LANE_BYTES], &[u8])> {
    let (lanes, rest) = bytes.as_chunks::<LANE_BYTES>();
    let (lines, lanes) = lanes.as_chunks::<LANE_COUNT>();
    let (first, lines) = lines.split_first()?;
    let over_one = const { distance::<C>(LANE_BYTES) };
    let over_others = const { distance::<C>(LANE_COUNT * LANE_BYTES) };
    let [mut a, mut b, mut c, mut d] = first.map(u128::from_le_bytes);
    a ^= u128::from(state);
    for line in lines {
        let [e, f, g, h] = line.map(u128::from_le_bytes);
        a = moved(a, over_others, e);
        b = moved(b, over_others, f);
        c = moved(c, over_others, g);
        d = moved(d, over_others, h);
    }
    let mut all = moved(moved(moved(a, over_one, b), over_one, c), over_one, d);
    for lane in lanes {
        all = moved(all, over_one, u128::from_le_bytes(*lane));
    }
    Some((all.to_le_bytes(), rest))
}

/// `lane` where `next` is.
#[target_feature(enable = "neon,aes")]
#[allow(clippy::cast_possible_truncation, reason = "the two halves")]
fn moved(lane: u128, [low, high]: [u64; 2], next: u128) -> u128 {
    vmull_p64(lane as u64, low) ^ vmull_p64((lane >> 64) as u64, high) ^ next
}

//! What is written: bytes that no disk can make less of, or a share that it can.
//!
//! Arrays and file systems that compress or recognise what they have already seen
//! are fast with zeros. Database pages lie somewhere between.

use crate::stats::random::Random;

/// So much is made, and written over and over; each write is stamped besides, so
/// that no two of them are the same.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Compressible bytes come in stretches of this size, so that also a file system
/// that compresses small blocks finds its share of them.
const STRETCH_BYTES: usize = 4096;

/// Bytes of which `compressible_percent` of every stretch is the same byte.
#[must_use]
pub fn payload(compressible_percent: u8, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes: Vec<u8> =
        (0..PAYLOAD_BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
    let plain = STRETCH_BYTES * usize::from(compressible_percent.min(100)) / 100;
    for stretch in bytes.chunks_mut(STRETCH_BYTES) {
        if let Some(tail) = stretch.len().checked_sub(plain).and_then(|at| stretch.get_mut(at..)) {
            tail.fill(b' ');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_that_is_plain(bytes: &[u8]) -> f64 {
        let plain = bytes.iter().filter(|byte| **byte == b' ').count();
        plain as f64 / bytes.len() as f64
    }

    #[test]
    fn as_much_is_compressible_as_was_asked_for() {
        assert!(share_that_is_plain(&payload(0, 1)) < 0.01);
        assert!((share_that_is_plain(&payload(50, 1)) - 0.5).abs() < 0.01);
        assert!(share_that_is_plain(&payload(100, 1)) > 0.99);
        assert_ne!(payload(0, 1), payload(0, 2));
    }
}

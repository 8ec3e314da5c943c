//! The BLAKE3 hash of a file from those of its spans, which are made in any order.
//!
//! BLAKE3 is a tree over chunks of 1 KiB whose left branches hold a power of two
//! of them (section 2.1 of its paper). A span is a whole branch of it.

use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::pack::SPAN_BYTES;

/// A hash, or what stands for a branch in that of a file.
pub(crate) type Hash = [u8; 32];

/// What stands for a span in the hash of its file, which has `spans` of them.
pub(crate) fn span_hash(span: u64, spans: u64, bytes: &[u8]) -> Hash {
    // What could not be read has no bytes, and no hash that fits.
    if spans <= 1 || bytes.is_empty() {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = Hasher::new();
    hasher.set_input_offset(span.saturating_mul(SPAN_BYTES as u64));
    hasher.update(bytes).finalize_non_root()
}

/// The hash of the file that these are the spans of, all of them and in order.
pub(crate) fn file_hash(spans: &[Hash]) -> Hash {
    match spans {
        [] => *blake3::hash(&[]).as_bytes(),
        [only] => *only,
        _ => {
            let (left, right) = halves(spans);
            *merge_subtrees_root(&branch(left), &branch(right), Mode::Hash).as_bytes()
        }
    }
}

fn branch(spans: &[Hash]) -> Hash {
    match spans {
        [] => Hash::default(),
        [only] => *only,
        _ => {
            let (left, right) = halves(spans);
            merge_subtrees_non_root(&branch(left), &branch(right), Mode::Hash)
        }
    }
}

/// The left half is the largest power of two that leaves something.
fn halves(spans: &[Hash]) -> (&[Hash], &[Hash]) {
    let left = spans.len().next_power_of_two() / 2;
    spans.split_at(left.min(spans.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_whole() {
        let lengths = [0, 1, 1000, SPAN_BYTES - 1, SPAN_BYTES, SPAN_BYTES + 1]
            .into_iter()
            .chain((2..10).map(|spans| spans * SPAN_BYTES))
            .chain([3 * SPAN_BYTES + 5000, 6 * SPAN_BYTES + 1]);
        for length in lengths {
            let file: Vec<u8> =
                (0..length).map(|at| (at.wrapping_mul(at) >> 7).to_le_bytes()[0]).collect();
            let spans = file.len().div_ceil(SPAN_BYTES) as u64;
            let hashes: Vec<_> = (0..)
                .zip(file.chunks(SPAN_BYTES))
                .map(|(span, bytes)| span_hash(span, spans, bytes))
                .collect();
            assert_eq!(file_hash(&hashes), *blake3::hash(&file).as_bytes(), "{length}");
        }
    }
}

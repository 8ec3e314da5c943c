//! Where the next chunk begins, when the one before does not say.

use super::index::index_head;
use super::{
    COMPRESSED_BYTES_MAX, DATA, DATA_HEADER_BYTES, DataHeader, FILEMARK, HEADER_BYTES, INDEX,
    PADDING, sum,
};
use crate::mtf::block_sum_fits;
use crate::xpress;

/// Looked through at once for the next chunk.
pub(super) const SEARCH_BYTES: usize = 1 << 16;
pub(super) const CHUNK_BYTES_MAX: usize = DATA_HEADER_BYTES + COMPRESSED_BYTES_MAX;

/// Looks for the next chunk, whatever comes before it.
pub(super) struct Search {
    /// Bytes that may yet be summed up, and those that were.
    pub(super) left: u64,
    pub(super) used: u64,
}

impl Search {
    /// The first place of [`SEARCH_BYTES`], from `begin` on, where a chunk
    /// proves to be one.
    pub(super) fn first(&mut self, bytes: &[u8], begin: usize) -> Option<usize> {
        let count = bytes.len().min(SEARCH_BYTES);
        (begin..count).find(|at| bytes.get(*at..).is_some_and(|bytes| self.is_chunk(bytes)))
    }

    fn is_chunk(&mut self, bytes: &[u8]) -> bool {
        match bytes {
            [DATA, ..] => {
                let Some(header) = DataHeader::read(bytes).filter(DataHeader::is_possible) else {
                    return false;
                };
                let payload = bytes
                    .get(DATA_HEADER_BYTES..)
                    .and_then(|rest| rest.get(..header.compressed_bytes))
                    .filter(|payload| xpress::begins_with_code_lengths(payload));
                let used = self.used.saturating_add(header.compressed_bytes as u64);
                let Some(payload) = payload.filter(|_| used <= self.left) else { return false };
                self.used = used;
                sum(payload) == header.sum
            }
            [PADDING, 0, low, high, ..] => {
                let bytes_count = usize::from(u16::from_le_bytes([*low, *high]));
                let end = bytes_count.saturating_add(HEADER_BYTES);
                let zeroes = bytes.get(4..end).unwrap_or(&[1]);
                zeroes.iter().all(|byte| *byte == 0)
                    && bytes.get(end..).is_some_and(|next| next.starts_with(FILEMARK))
            }
            [INDEX, header @ ..] => {
                let mut zeroes = header.iter().take(HEADER_BYTES.saturating_sub(1));
                zeroes.all(|byte| *byte == 0) && index_head(bytes).is_some()
            }
            _ => bytes.starts_with(FILEMARK) && block_sum_fits(bytes),
        }
    }
}

/// Whether a block stands here, one byte of whose type may be damaged.
pub(super) fn is_filemark(bytes: &[u8]) -> bool {
    let right = bytes.iter().zip(FILEMARK).filter(|(a, b)| a == b).count();
    right.saturating_add(1) >= FILEMARK.len()
}

/// Whether a chunk, or the end, may begin with these bytes.
pub(super) fn may_follow(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [DATA, ..] => DataHeader::read(bytes).is_none_or(|header| header.is_possible()),
        [PADDING | INDEX, 0, ..] => true,
        _ => is_filemark(bytes),
    }
}

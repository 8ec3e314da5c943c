//! What small blocks of a database have in common, so that each need not say it.

use std::io;

use crate::pack::codec::is_zero;
use crate::pack::content::Content;
use crate::source::file::{open_regular, read_fully};

/// More brings nothing (measured on pages of 4 and 8 KiB; `docs/packs-profiles.md`).
const DICTIONARY_BYTES: usize = 110 << 10;
/// zstd's own advice is a hundred times the dictionary.
const SAMPLE_BYTES: u64 = 100 * DICTIONARY_BYTES as u64;

/// Makes a dictionary for blocks of this size from some of the content, taken at
/// even distances. Empty if there is too little to learn from.
///
/// # Errors
/// A file cannot be read.
pub fn train(content: &Content, block_bytes: u32) -> io::Result<Vec<u8>> {
    let block = u64::from(block_bytes);
    let every = content.bytes().div_ceil(SAMPLE_BYTES).max(1).saturating_mul(block);
    let (mut samples, mut sizes) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; usize::try_from(block).map_err(io::Error::other)?];
    // Where the next sample begins, counted over all files.
    let (mut next, mut begin) = (0, 0_u64);
    for (number, entry) in content.entries.iter().enumerate() {
        let end = begin.saturating_add(entry.bytes());
        if next < end {
            let file = open_regular(&content.path(number))?;
            while next < end {
                let within = next.saturating_sub(begin);
                let count = read_fully(&file, &mut buffer, within - within % block)?;
                let sample = buffer.get(..count).unwrap_or_default();
                if !is_zero(sample) {
                    samples.extend(sample);
                    sizes.push(count);
                }
                next = next.saturating_add(every);
            }
        }
        begin = end;
    }
    Ok(made_of(&samples, &sizes))
}

/// The same from what a stream begins with.
#[must_use]
pub fn train_on_begin(begin: &[u8], block_bytes: u32) -> Vec<u8> {
    let block = usize::try_from(block_bytes).unwrap_or(usize::MAX).max(1);
    let every = (begin.len() as u64).div_ceil(SAMPLE_BYTES).max(1);
    let (mut samples, mut sizes) = (Vec::new(), Vec::new());
    for sample in begin.chunks(block).step_by(usize::try_from(every).unwrap_or(1)) {
        if !is_zero(sample) {
            samples.extend(sample);
            sizes.push(sample.len());
        }
    }
    made_of(&samples, &sizes)
}

/// Empty where there is too little, which is refused: then there is no need of one either.
fn made_of(samples: &[u8], sizes: &[usize]) -> Vec<u8> {
    zstd::dict::from_continuous(samples, sizes, DICTIONARY_BYTES).unwrap_or_default()
}

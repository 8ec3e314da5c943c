//! How much room packs and what is in them will take.

use std::io;

use crate::pack::PackError;
use crate::pack::codec::{Encoder, Settings};
use crate::pack::content::Content;
use crate::pack::layout::span_count;
use crate::pack::read::Pack;
use crate::pack::table::{Entry, What};
use crate::source::file::{open_regular, read_fully};

/// Blocks that are tried.
const SAMPLES: u64 = 64;

/// About how many bytes a whole pack of this content will have, by blocks taken at
/// even distances.
///
/// # Errors
/// A file cannot be read.
pub fn likely_bytes(content: &Content, settings: &Settings) -> io::Result<u64> {
    let block = u64::from(settings.block_bytes);
    let every = content.bytes().div_ceil(SAMPLES).max(1);
    let mut encoder = Encoder::new(settings)?;
    let mut buffer = vec![0; usize::try_from(block).map_err(io::Error::other)?];
    let (mut tried, mut stored) = (0_u64, Vec::new());
    // Where the next sample begins, counted over all files.
    let (mut next, mut begin) = (every / 2, 0_u64);
    for (number, entry) in content.entries.iter().enumerate() {
        let end = begin.saturating_add(entry.bytes());
        if next < end {
            let file = open_regular(&content.path(number))?;
            while next < end {
                let within = next.saturating_sub(begin);
                let count = read_fully(&file, &mut buffer, within - within % block)?;
                let sample = buffer.get(..count).unwrap_or_default();
                encoder.encode(sample, &mut stored)?;
                tried = tried.saturating_add(count as u64);
                next = next.saturating_add(every);
            }
        }
        begin = end;
    }
    let share = stored.len() as f64 / tried.max(1) as f64;
    // An entry for each block, twice, and the heads.
    let index = content.bytes().div_ceil(block).saturating_mul(30);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
    let blocks = (content.bytes() as f64 * share) as u64;
    Ok(blocks.saturating_add(index))
}

/// Bytes that must be written to have the wanted entries of a pack as files again:
/// what will be a hole takes none.
///
/// # Errors
/// The index cannot be read.
pub fn fresh_bytes(pack: &Pack, wanted: &dyn Fn(&Entry) -> bool) -> Result<u64, PackError> {
    let mut bytes = 0_u64;
    for (number, entry) in pack.entries().iter().enumerate().filter(|(_, entry)| wanted(entry)) {
        bytes = bytes.saturating_add(bytes_of(pack, number, entry)?);
    }
    Ok(bytes)
}

/// The same of one file.
pub(super) fn bytes_of(pack: &Pack, number: usize, entry: &Entry) -> Result<u64, PackError> {
    let What::File { bytes, has_holes: true, .. } = entry.what else { return Ok(entry.bytes()) };
    let mut holes = 0_u64;
    for span in 0..span_count(bytes) {
        if pack.is_zero_span(number, span)? {
            holes = holes.saturating_add(crate::pack::layout::span_bytes(bytes, span) as u64);
        }
    }
    Ok(bytes.saturating_sub(holes))
}

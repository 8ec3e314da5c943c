//! WAL summaries (17 and later): which blocks a stretch of the log has changed.
//!
//! `pg_wal/summaries/TTTTTTTTBBBBBBBBBBBBBBBBEEEEEEEEEEEEEEEE.summary`: the timeline,
//! and the positions of begin and end, in hexadecimal digits.
//!
//! ```text
//! offset  size  field
//!      0     4  magic, 0x652B137B
//!               forks, one after the other:
//!      0     4    tablespace
//!      4     4    database
//!      8     4    file number
//!     12     4    fork: 0 main, 1 free space, 2 visibility, 3 init
//!     16     4    limit block: the fork was cut to, or made with, as many blocks or
//!                 fewer at some time; 0xFFFFFFFF: it was not
//!     20     4    n, the chunks that follow, of 65,536 blocks each
//!     24   2*n    how many words of two bytes each chunk has
//!               chunks, one after the other: with 4,096 words a bit for each block,
//!               with fewer the numbers of blocks within the chunk
//!           24  zeroes in the place of a fork
//!            4  CRC-32C of everything before it
//! ```
//!
//! Blocks from the limit on were changed after the cut, those below it before or
//! after.
//!
//! Sources: `src/common/blkreftable.c`, `src/include/common/blkreftable.h` and
//! `src/include/backup/walsummary.h` of 17 and 18; compared with what
//! `pg_wal_summary_contents` says in `tests/witness.rs`.

use std::io::{self, Read};

use crate::files::control::u32_at;
use crate::files::names::Fork;
use crate::files::wal::block::Locator;
use pagewarden_core::crc::Crc32c;

const MAGIC: u32 = 0x652B_137B;
/// Bytes of a fork before its chunks.
const FORK_BYTES: usize = 24;
const NO_LIMIT: u32 = u32::MAX;
const CHUNK_BLOCKS: u32 = 1 << 16;
/// Words of a chunk that has a bit for each block.
const BITMAP_WORDS: u16 = 4096;
/// Enough for every block number there is.
const CHUNKS_MAX: u32 = 1 << 16;

/// What the name of a summary says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryName {
    /// The timeline of the log.
    pub timeline: u32,
    /// Where in the log the summary begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
}

impl SummaryName {
    /// Reads a file name; `None` if no server gives this name to a summary.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".summary")?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
        if digits.len() != 40 || !digits.bytes().all(is_digit) {
            return None;
        }
        let (timeline, positions) = digits.split_at_checked(8)?;
        let (begin, end) = positions.split_at_checked(16)?;
        let name = Self {
            timeline: u32::from_str_radix(timeline, 16).ok()?,
            begin: u64::from_str_radix(begin, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
        };
        (name.begin < name.end).then_some(name)
    }
}

/// What a summary says of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was cut to, or made with, this many blocks at some time. Comes before
    /// the blocks of the fork.
    Limit(u32),
    /// This block was changed.
    Block(u32),
}

/// Why a summary cannot be believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SummaryError {
    /// The system's word.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// It ends too early.
    #[error("it ends too early")]
    Truncated,
    /// It does not begin as a summary does.
    #[error("its magic is wrong")]
    Magic,
    /// It says what no server says.
    #[error("{0}")]
    Impossible(&'static str),
    /// The sum at its end does not fit.
    #[error("its CRC does not match its content")]
    Checksum,
}

/// Reads a summary and calls `each` for all that it says. Takes 150 KiB at most,
/// however long it is. The source should be buffered.
///
/// # Errors
/// Why the summary cannot be believed. The sum stands at the end: what `each` was
/// told before an error may be wrong and must not be used.
pub fn read(
    source: impl Read,
    mut each: impl FnMut(Locator, Fork, Change),
) -> Result<(), SummaryError> {
    let mut source = Summed { source, crc: Crc32c::new() };
    if u32_at(&source.take::<4>()?, 0) != Some(MAGIC) {
        return Err(SummaryError::Magic);
    }
    let mut sizes = Vec::new();
    let mut chunk = Vec::new();
    loop {
        let header = source.take::<FORK_BYTES>()?;
        if header == [0; FORK_BYTES] {
            break;
        }
        let field = |at: usize| u32_at(&header, at).unwrap_or(0);
        let locator = Locator { tablespace: field(0), database: field(4), number: field(8) };
        let fork = match field(12) {
            0 => Fork::Main,
            1 => Fork::FreeSpace,
            2 => Fork::Visibility,
            3 => Fork::Init,
            _ => return Err(SummaryError::Impossible("it names a fork that no relation has")),
        };
        if field(16) != NO_LIMIT {
            each(locator, fork, Change::Limit(field(16)));
        }
        let count = field(20);
        if count > CHUNKS_MAX {
            return Err(SummaryError::Impossible("a fork has more blocks than there are numbers"));
        }
        sizes.resize(usize::try_from(count).unwrap_or(0).saturating_mul(2), 0);
        source.fill(&mut sizes)?;
        let (words, _) = sizes.as_chunks::<2>();
        for (number, words) in (0..count).zip(words) {
            let words = u16::from_le_bytes(*words);
            if words > BITMAP_WORDS {
                return Err(SummaryError::Impossible("a chunk has more words than bits need"));
            }
            chunk.resize(usize::from(words) * 2, 0);
            source.fill(&mut chunk)?;
            let first = number.saturating_mul(CHUNK_BLOCKS);
            blocks(&chunk, words, |block| each(locator, fork, Change::Block(first | block)));
        }
    }
    let computed = source.crc.finish();
    let stored = source.take::<4>()?;
    if u32_at(&stored, 0) != Some(computed) {
        return Err(SummaryError::Checksum);
    }
    match source.source.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(SummaryError::Impossible("it goes on behind its end")),
    }
}

/// The blocks of a chunk, within it.
fn blocks(chunk: &[u8], count: u16, mut each: impl FnMut(u32)) {
    let (words, _) = chunk.as_chunks::<2>();
    for (index, word) in (0_u32..).zip(words) {
        let word = u32::from(u16::from_le_bytes(*word));
        if count < BITMAP_WORDS {
            each(word);
            continue;
        }
        for bit in (0..16).filter(|bit| word >> bit & 1 == 1) {
            each(index.saturating_mul(16).saturating_add(bit));
        }
    }
}

/// A source that keeps the sum of all that was read.
struct Summed<R> {
    source: R,
    crc: Crc32c,
}

impl<R: Read> Summed<R> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], SummaryError> {
        let mut bytes = [0; BYTES];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SummaryError> {
        self.source.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SummaryError::Truncated,
            _ => SummaryError::Io(error),
        })?;
        self.crc.update(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::crc::crc32c;

    const LOCATOR: Locator = Locator { tablespace: 1663, database: 5, number: 16384 };

    /// A fork with a limit, a list of two blocks, an empty chunk and a bitmap.
    fn summary() -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        for field in [1663_u32, 5, 16384, 0, 7, 3] {
            bytes.extend(field.to_le_bytes());
        }
        for words in [2_u16, 0, 4096, 65_535, 3] {
            bytes.extend(words.to_le_bytes());
        }
        let mut bitmap = [0_u8; 8192];
        (bitmap[0], bitmap[8191]) = (0b10, 0b1000_0000);
        bytes.extend(bitmap);
        bytes.extend([0; FORK_BYTES]);
        let crc = crc32c(&bytes).to_le_bytes();
        bytes.extend(crc);
        bytes
    }

    fn changes(bytes: &[u8]) -> Result<Vec<Change>, SummaryError> {
        let mut changes = Vec::new();
        read(bytes, |locator, fork, change| {
            if (locator, fork) == (LOCATOR, Fork::Main) {
                changes.push(change);
            }
        })?;
        Ok(changes)
    }

    #[test]
    fn lists_and_bitmaps_of_blocks_are_read() {
        let blocks = [65_535, 3, 2 * 65_536 + 1, 3 * 65_536 - 1].map(Change::Block);
        let mut expected = vec![Change::Limit(7)];
        expected.extend(blocks);
        assert_eq!(changes(&summary()).unwrap(), expected);
    }

    #[test]
    fn no_changed_byte_and_no_cut_is_believed() {
        let whole = summary();
        for length in 0..whole.len() {
            assert!(changes(&whole[..length]).is_err(), "{length} bytes");
        }
        for at in (0..64).chain(whole.len() - 40..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            assert!(changes(&bytes).is_err(), "byte {at}");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(changes(&longer).is_err());
    }

    #[test]
    fn names_say_which_stretch_of_the_log_is_summed_up() {
        let name = "0000000100000000010000280000000002000100.summary";
        let expected = SummaryName { timeline: 1, begin: 0x100_0028, end: 0x200_0100 };
        assert_eq!(SummaryName::parse(name), Some(expected));
        for name in ["temp.summary", &name[1..], &name.replace(".summary", ""), "x.summary"] {
            assert_eq!(SummaryName::parse(name), None, "{name}");
        }
    }
}

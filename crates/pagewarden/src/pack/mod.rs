//! Packs: a database as one compressed, verified file that is only read.
//!
//! ```text
//! target --> verify --> witness: spans --> encoder --> writer --> FILE.pwk
//!            (as for check)                              ^
//! what has no pages (settings, log) -- read plainly -----+
//! ```
//!
//! A file's bytes are cut into *spans* of a mebibyte and these into *blocks*, each
//! compressed by itself, so that any byte is read at the cost of a block. A pack is
//! written from its beginning to its end and never added to. All numbers are
//! little-endian:
//!
//! ```text
//! offset  size  field
//!      0     8  "PWPACK\r\n"
//!      8     4  version, 1 or 2
//!     12     4  bytes in a block: a power of two, 4 KiB to 1 MiB
//!     16     4  bytes of the dictionary
//!     20     8  its CRC
//!     28    32  in version 2 alone: the root of the base, if this is a delta;
//!               else zeroes
//!     28     8  CRC of the bytes before (at 60 in version 2)
//!     36        dictionary of zstd for blocks that use one (at 68 in version 2)
//!               records of all files and folders, in the order of the table:
//!                 "FILE", length of the rest (4), number of the file (4),
//!                   CRC of these and the rest (8); the rest is an entry of the
//!                   table, without a hash
//!               records of spans, in any order:
//!                 "SPAN", blocks in it (4), number of the file (4), number of the
//!                   span in the file (4), CRC of these and of the entries (8);
//!                   an entry for each block: bytes stored (3), codec (1), CRC of
//!                   what it expands to (8); then the blocks
//!               of a file that came as a stream its record again, now with its
//!                 length
//!               the index, in leaves of 64 spans in the order of files; for each
//!                 span where its record begins (8; 0: nothing but zeroes, no
//!                 record, as earlier programs did it) and its blocks' entries
//!                 again; CRC of the leaf (8)
//!               the table, compressed by zstd: see `table`
//!               the report of the check that was made while packing, compressed
//!                 by zstd: JSON; with "tablespace": { "name", "folder" } if that
//!                 was packed to be mounted in its place
//! end-120       footer: see `layout::Footer`
//! ```
//!
//! Codecs: 0 zeroes, not stored; 1 stored as it is; 2 LZ4; 3 zstd; 4 zstd with the
//! dictionary; 5 (version 2) not stored: the block has the same bytes, and the same
//! CRC, as the base has at the same place in the file of the same name.
//!
//! Version 2 is written where an earlier program would misunderstand: deltas, links
//! and files that came as streams. A delta names its base by its root alone: any
//! pack with that root will do.
//!
//! The records say all that the index and the table do but the hashes of the files,
//! so that a pack that was cut can be read up to there (`salvage`). CRC is
//! CRC-64/NVME: it is there for accidents, and is checked whenever something is
//! read. The BLAKE3 hash of each file is in the table, the same as `b3sum` prints;
//! the *root* is the BLAKE3 hash of the table, so that who knows the root knows
//! every byte, name and mode. It does not depend on codecs, nor on the order of the
//! records, nor on what a delta builds on.

mod cache;
mod chain;
mod codec;
mod content;
mod dictionary;
mod draining;
mod estimate;
mod expanded;
mod file;
mod forecast;
mod layout;
mod packing;
mod read;
mod read_ahead;
mod reader;
mod restore;
mod room;
mod salvage;
mod stream;
mod table;
mod tree;
mod write;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use chain::{Search, open_chain, open_chain_in};
pub(crate) use codec::block_sum;
pub use codec::{Method, Settings};
pub use content::{Content, Strays};
pub use dictionary::{train, train_on_begin};
pub use draining::Draining;
pub use estimate::{Estimate, Sampling, SizeInterval};
pub use expanded::{Expanded, ExpandedError};
pub use forecast::{Coding, Forecast};
pub use packing::Packing;
pub use read::{Contents, Pack, PackedTablespace, Root};
pub use reader::{Reader, ReaderSettings};
pub use restore::{Places, Restored, Restoring, restore};
pub use room::{fresh_bytes, likely_bytes};
pub use salvage::{Missing, Salvaged, SalvagedFiles};
pub use stream::{StreamPacking, Tee};
pub use table::{Attributes, Entry, What};
pub(crate) use tree::{file_hash, span_hash};
pub use write::Totals;

// The sum that is checked whenever something is read.
use crate::crc::crc64 as crc;
use crate::source::file::open_regular;
use crate::source::store::{StorePath, is_not_read};

/// Bytes in a span but for a file's last one.
pub const SPAN_BYTES: usize = 1 << 20;
/// What every pack begins with.
pub const BEGIN: &str = "PWPACK\r\n";
/// The latest version. Raised when an older reader would misunderstand.
pub const VERSION: u32 = 2;
/// The version of packs that every program reads.
pub const VERSION_PLAIN: u32 = 1;

/// What is in a lock. A thread that panicked holding it has ended the run, and each change
/// under these locks is whole at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if this is a file that begins as packs do.
#[must_use]
pub fn is_pack(path: &Path) -> bool {
    let mut begin = [0; BEGIN.len()];
    let read = open_regular(path).and_then(|mut file: File| file.read_exact(&mut begin));
    read.is_ok() && begin == *BEGIN.as_bytes()
}

/// The same of a file of a store.
///
/// # Errors
/// It cannot be read.
pub fn is_pack_in(place: &StorePath) -> io::Result<bool> {
    place.first_bytes(BEGIN.len()).map(|begin| begin == BEGIN.as_bytes())
}

/// Why a pack, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not begin as packs do.
    #[error("it is no pack")]
    NotAPack,
    /// A later program made it.
    #[error("it is a pack of version {0}, and this program reads versions 1 and 2")]
    Version(u32),
    /// It does not end as packs do.
    #[error("it has no end: it was cut, or is not yet complete")]
    Cut,
    /// A part of it is not what was written.
    #[error("its {part} at byte {offset} is damaged")]
    Damaged {
        /// Which part.
        part: &'static str,
        /// Where the part begins.
        offset: u64,
    },
    /// Something is wrong with the pack that it builds on.
    #[error("in its base, the pack with root {root}: {source}")]
    Base {
        /// The root of that pack.
        root: Root,
        /// What.
        source: Box<PackError>,
    },
    /// Its base is not available.
    #[error("it is a delta to the pack with root {0}, which is not available")]
    NoBase(Root),
    /// It is sound in itself but says what no pack says.
    #[error("invalid pack: {0}")]
    Hostile(&'static str),
}

impl PackError {
    /// True if a store did not give what it has: nothing is known of the pack.
    fn is_not_read(&self) -> bool {
        match self {
            Self::Io(error) => is_not_read(error),
            Self::Base { source, .. } => source.is_not_read(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;

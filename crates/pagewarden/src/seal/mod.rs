//! Seals: what a healthy database looked like, for a comparison on another
//! day.
//!
//! A seal remembers the length of every file and a fingerprint of every page.
//! Compared with the same database later, it shows what no page tells by itself:
//! pages that were zeroed or went back to an older version, files that were cut
//! or are gone, bytes that changed although nothing was written.
//!
//! One file, all numbers little-endian:
//!
//! ```text
//! offset  size  field
//!      0     8  "PWSEAL\r\n"
//!      8     4  version, 1
//!     12     4  length of the header
//!     16        header, JSON: see `Header`
//!               a section for each file, in any order:
//!                 LSNs of its pages, each as the difference to the one before,
//!                 zigzag and LEB128, compressed by zstd
//!                 hashes of its pages, 8 bytes each; 0 for a page that is empty
//!               the index, compressed by zstd; for each file:
//!                 length of its name (2), its name, its length (8), the number
//!                 of its first page (8), its pages (8), where its section
//!                 begins (8), bytes of its LSNs (4)
//! end-64     8  where the index begins
//! end-56     8  files
//! end-48     8  bytes of the index, not compressed
//! end-40    32  BLAKE3 hash of all before it
//!  end-8     8  "PWSEAL\r\n"
//! ```
//!
//! Eight bytes of a hash and two or so of an LSN a page: 1.3 GiB for a tebibyte
//! of 8 KiB pages.

use serde::{Deserialize, Serialize};

use crate::database::{Epoch, Step};
use crate::verdict::Unread;

mod against;
mod proof;
mod read;
mod write;

pub use against::Against;
pub use proof::Proof;
pub use read::{Sealed, SealedFile};
pub use write::Sealing;

/// At both ends of the file. The line ending shows what a transfer as text did.
const MAGIC: [u8; 8] = *b"PWSEAL\r\n";
/// What every seal begins with.
pub const BEGIN: &str = "PWSEAL\r\n";
/// Raised when an older reader would misunderstand.
pub const VERSION: u32 = 1;
/// Magic, version and length of the header.
const PROLOGUE_BYTES: usize = 16;
const FOOTER_BYTES: usize = 64;
const HASH_BYTES: usize = 8;

/// What a seal says of itself and of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the program.
    pub pagewarden: String,
    /// The target's format: `postgres`.
    pub format: String,
    /// `PostgreSQL 15`.
    pub engine: String,
    /// Bytes in a page.
    pub page_size: u32,
    /// Which state of the database it was, if it is known.
    pub epoch: Option<Epoch>,
    /// When the seal was begun, in seconds since 1970.
    pub made: u64,
}

/// Archives are read once, and what tells their states from one another comes
/// last.
fn not_of_archives() -> Step {
    let why = "seals are for files whose pages stay in their places, not for archives and Parquet";
    Step::Unread(Unread::of_file("", why))
}

#[cfg(test)]
mod tests;

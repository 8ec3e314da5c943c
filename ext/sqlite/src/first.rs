//! Page 1 as SQLite is shown it.
//!
//! The guard is a version to write with that no SQLite knows: one without this VFS then only reads
//! the database. It stands on the disk, in the log and in the journal; SQLite above this VFS is shown
//! the version to read with in its place, and writes.

use pagewarden::formats::sqlite::checksum::page_verify::Marker;
use pagewarden::formats::sqlite::page::header::{DatabaseHeader, MAGIC, VERSION_GUARDED};

/// Where the versions to write and to read with are, one byte each.
const VERSIONS: std::ops::Range<usize> = 18..20;

/// What SQLite was shown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FirstPage {
    /// Bytes at the end of each page.
    pub reserved: u8,
    /// It has the guard, which SQLite was not shown.
    pub guard: bool,
}

impl FirstPage {
    /// Takes the guard out of `page`, where it is one of a file with markers; `None` if this is no
    /// page 1. Its first 100 bytes do, too.
    pub fn show(page: &mut [u8], has_markers: bool) -> Option<Self> {
        let header = DatabaseHeader::parse(page).filter(|header| header.has_magic)?;
        let is_marked = || has_markers || Marker::read(page).is_some();
        let guard = header.is_guarded() && is_marked();
        if guard && let Some([write, read]) = page.get_mut(VERSIONS) {
            *write = *read;
        }
        Some(Self { reserved: header.reserved_bytes, guard })
    }
}

/// True if these bytes may be a page 1.
pub fn is_first(page: &[u8]) -> bool {
    page.starts_with(MAGIC)
}

/// Puts the guard into a page 1.
pub fn set_guard(page: &mut [u8]) {
    if let Some([write, _]) = page.get_mut(VERSIONS) {
        *write = VERSION_GUARDED;
    }
}

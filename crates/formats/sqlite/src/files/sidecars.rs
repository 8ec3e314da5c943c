//! The files beside a SQLite database: what they mean for the pages in the main file.
//!
//! They are read, never written, renamed, locked or removed, and never opened by the library, which
//! would play them back.
//!
//! - `-journal`, the rollback journal, is hot if it is not empty and its first byte is not zero:
//!   the program that opens the database next will undo what the main file holds of the last
//!   transaction. It does not say which pages those are: pages that were free before are not in it.
//! - `-wal`, the write-ahead log, holds pages that belong into the main file. Only a checkpoint
//!   writes there, and only what is in the log, so a page that is not in the log cannot be half
//!   written.
//!
//! | write-ahead log | bytes | |
//! |---|---|---|
//! | header | 32 | magic at 0 (0x377f0682 or 0x377f0683), page size at 8 |
//! | frame | 24 + page size | page number at 0; the page behind its header |
//!
//! Facts from SQLite's public documentation (`fileformat2.html`).

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::journal;
use crate::page::{LOCK_BYTE, PageSet};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::hold;
use pagewarden_core::system::FileExt;

const WAL_HEADER_BYTES: u64 = 32;
const WAL_FRAME_HEADER_BYTES: u64 = 24;
const WAL_MAGICS: [u32; 2] = [0x377f_0682, 0x377f_0683];
/// Frames looked at one by one; of a longer log it is taken that it may hold every page.
const WAL_FRAMES_MAX: u64 = 4_000_000;
/// The pending byte, the reserved byte and the 510 bytes of the shared lock, from [`LOCK_BYTE`].
const LOCK_BYTES: u64 = 512;

/// What stands beside a database.
#[derive(Debug, Default)]
pub struct Sidecars {
    /// A rollback journal that will be played back.
    pub hot_journal: bool,
    /// The pages that the write-ahead log holds, if there is one with content.
    pub wal: Option<PageSet>,
    /// A sentence for each file that is worth knowing, with its name.
    pub notes: Vec<(String, String)>,
}

impl Sidecars {
    /// Looks at the files beside `database`, the real path of the main file.
    #[must_use]
    pub fn beside(database: &Path, page_size: usize) -> Self {
        let mut found = Self::default();
        if let Some((name, file, bytes)) = open_beside(database, "-journal") {
            found.see_journal(name, file.as_ref(), bytes);
        }
        if let Some((name, file, bytes)) = open_beside(database, "-wal") {
            found.see_wal(name, file.as_ref(), bytes, page_size);
        }
        found
    }

    /// True if the main file alone is not the whole state of the database.
    #[must_use]
    pub fn have_content(&self) -> bool {
        self.hot_journal || self.wal.is_some()
    }

    fn see_journal(&mut self, name: String, file: Option<&File>, bytes: u64) {
        self.hot_journal = is_hot(file, bytes);
        let text = if self.hot_journal {
            "a rollback journal is there: unless a transaction is running, the last one was \
             interrupted, and the next program that opens the database will undo it; keep the \
             journal together with the database"
        } else {
            "a rollback journal is there, finished with: it holds nothing to undo"
        };
        self.notes.push((name, text.to_owned()));
    }

    fn see_wal(&mut self, name: String, file: Option<&File>, bytes: u64, page_size: usize) {
        if bytes <= WAL_HEADER_BYTES {
            let text = "a write-ahead log is there, without content".to_owned();
            self.notes.push((name, text));
            return;
        }
        let pages = file.and_then(|file| wal_pages(file, bytes, page_size));
        self.wal = Some(pages.unwrap_or_else(PageSet::everything));
        let text = "a write-ahead log is there: committed changes may be in it alone, checked is \
                    what the main file holds; keep the log together with the database";
        self.notes.push((name, text.to_owned()));
    }
}

/// True if a rollback journal beside `database` will be played back, or a transaction that runs
/// has one.
#[must_use]
pub fn has_hot_journal(database: &Path) -> bool {
    hot_journal(database).is_some()
}

/// That journal: its length, and when it was written last, as far as it can be opened.
#[must_use]
pub fn hot_journal(database: &Path) -> Option<(u64, Option<SystemTime>)> {
    let (_, file, bytes) = open_beside(database, "-journal")?;
    let modified = file.as_ref().and_then(|file| file.metadata().ok()?.modified().ok());
    is_hot(file.as_ref(), bytes).then_some((bytes, modified))
}

fn is_hot(journal: Option<&File>, bytes: u64) -> bool {
    let mut first = [0];
    let is_zeroed = journal
        .is_some_and(|file| bytes > 0 && file.read_exact_at(&mut first, 0).is_ok() && first == [0]);
    let is_left_over = || journal.is_some_and(|file| journal::is_left_over(file, bytes));
    bytes > 0 && !is_zeroed && !is_left_over()
}

/// The pages that have a frame in the log, valid or left over from before, and those behind the
/// shortest length that one of its transactions gave the database: a checkpoint may have stopped
/// before it cut the file. `None` if the log is not understood.
fn wal_pages(file: &File, bytes: u64, page_size: usize) -> Option<PageSet> {
    let mut header = [0; 24];
    file.read_exact_at(&mut header, 0).ok()?;
    let [m0, m1, m2, m3, _, _, _, _, s0, s1, s2, s3, _, _, _, _, salt @ ..] = header;
    let magic = u32::from_be_bytes([m0, m1, m2, m3]);
    let log_page_size = u32::from_be_bytes([s0, s1, s2, s3]);
    let page_size = u64::try_from(page_size).ok()?;
    if !WAL_MAGICS.contains(&magic) || u64::from(log_page_size) != page_size {
        return None;
    }
    let frame_bytes = WAL_FRAME_HEADER_BYTES.checked_add(page_size)?;
    let frames = bytes.checked_sub(WAL_HEADER_BYTES)?.checked_div(frame_bytes)?;
    if frames > WAL_FRAMES_MAX {
        return None;
    }
    let mut pages = PageSet::default();
    for frame in 0..frames {
        let mut header = [0; 16];
        let offset = frame.checked_mul(frame_bytes)?.checked_add(WAL_HEADER_BYTES)?;
        file.read_exact_at(&mut header, offset).ok()?;
        let [n0, n1, n2, n3, c0, c1, c2, c3, frame_salt @ ..] = header;
        pages.insert(u64::from(u32::from_be_bytes([n0, n1, n2, n3])));
        let page_count = u32::from_be_bytes([c0, c1, c2, c3]);
        if page_count != 0 && frame_salt == salt {
            pages.insert_from(u64::from(page_count).saturating_add(1));
        }
    }
    Some(pages)
}

/// A regular file beside the database: its name, its content if it can be read, its length.
pub fn open_beside(database: &Path, suffix: &str) -> Option<(String, Option<File>, u64)> {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    let path = PathBuf::from(path);
    let metadata = std::fs::symlink_metadata(&path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    let name = path.file_name()?.to_string_lossy().into_owned();
    match open_regular(&path) {
        Ok(file) => Some((name, Some(file), metadata.len())),
        // A transaction ended between the two looks, and SQLite removed its journal.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some((name, None, metadata.len())),
    }
}

/// True if another process holds one of SQLite's locks on the main file: it has the database open,
/// and may write. Takes no lock itself.
#[must_use]
pub fn is_locked(database: &File) -> bool {
    hold::is_locked_in(database, LOCK_BYTE, LOCK_BYTES)
}

/// True while a transaction may be writing to the file itself, with what it undoes in no file
/// (`journal_mode` MEMORY or OFF): another process holds the RESERVED lock, and there is no journal.
#[must_use]
pub fn may_be_written_without_journal(database: &File, real_path: &Path) -> bool {
    let is_reserved = || hold::is_locked_in(database, LOCK_BYTE.saturating_add(1), 1);
    open_beside(real_path, "-journal").is_none() && is_reserved()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;

    use super::*;

    /// Its holder is no process, so that the system gives no number of one.
    #[test]
    fn lock_of_an_open_file_is_seen_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        fs::write(&path, b"SQLite format 3\0").unwrap();
        let database = File::open(&path).unwrap();
        assert!(!is_locked(&database));
        let holder = File::options().read(true).write(true).open(&path).unwrap();
        assert!(hold::lock(&holder).unwrap());
        assert!(is_locked(&database));
        drop(holder);
        assert!(!is_locked(&database));
    }
}

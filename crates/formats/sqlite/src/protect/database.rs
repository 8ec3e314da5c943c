//! A database file: its header, and what its pages carry.

use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use crate::checksum::page_verify::{Marker, Mode, Room};
use crate::checksum::{page_sum, stored_sum};
use crate::page::header::{DatabaseHeader, HEADER_BYTES};
use crate::page::lock_byte_page;
use crate::protect::check::Soundness;
use crate::protect::pages::Stamps;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::Written;
use pagewarden_core::system::{FileExt as _, MetadataExt as _, identity, inode};

/// Those of the official checksum VFS.
const RESERVED_BYTES_OFFICIAL: u8 = 8;

/// What the pages of a database carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Plain,
    /// Sums of the official checksum VFS.
    Official,
    Marked {
        database: NonZeroU32,
        setting: Mode,
        room: Room,
    },
}

/// A database that no other process has open.
pub(super) struct Database {
    /// Without links.
    pub(super) path: PathBuf,
    /// Open before any lock is, see above.
    pub(super) file: Written,
    pub(super) like: Metadata,
    pub(super) page_size: usize,
    /// Whole pages that are part of the database.
    pub(super) pages: u64,
    pub(super) header: DatabaseHeader,
    pub(super) layout: Layout,
}

impl Database {
    pub(super) fn look_at(path: PathBuf, file: Written) -> Result<Self, Error> {
        let failed = |error| Error::io("read", &path, error);
        let like = file.file.metadata().map_err(failed)?;
        let mut head = [0; HEADER_BYTES];
        file.file.read_exact_at(&mut head, 0).map_err(failed)?;
        let header = DatabaseHeader::parse(&head).filter(|header| header.has_magic);
        let (Some(header), Some(page_size)) =
            (header, header.and_then(|header| header.page_size()))
        else {
            let reason = "its header is damaged";
            return Err(Error::damaged(&path, reason, "pagewarden check says more"));
        };
        let mut first = vec![0; page_size];
        file.file.read_exact_at(&mut first, 0).map_err(failed)?;
        let whole = like.len().checked_div(page_size as u64).unwrap_or(0);
        let pages = header.page_count().map_or(whole, |count| count.min(whole));
        // What VACUUM by a program without the VFS leaves of markers, or the SQLite of macOS.
        let layout = if has_unused_reserve(&file.file, &header, pages).map_err(failed)? {
            Layout::Plain
        } else {
            Self::layout(&path, &header, &first)?
        };
        Ok(Self { path, file, like, page_size, pages, header, layout })
    }

    fn layout(path: &Path, header: &DatabaseHeader, first: &[u8]) -> Result<Layout, Error> {
        let marker = Marker::read(first)
            .filter(|marker| marker.room.bytes() == header.reserved_bytes)
            .map(|marker| Layout::Marked {
                database: marker.database,
                setting: marker.setting.unwrap_or(Mode::Checksum),
                room: marker.room,
            });
        match (header.reserved_bytes, marker) {
            (0, _) => Ok(Layout::Plain),
            (_, Some(marked)) => Ok(marked),
            (RESERVED_BYTES_OFFICIAL, _) if stored_sum(first) == page_sum(first) => {
                Ok(Layout::Official)
            }
            (bytes, _) => Err(Error::refused(
                path,
                format!(
                    "{bytes} bytes at the end of each page are reserved for something that is not known, such as encryption"
                ),
                "only what reserved them can tell what is lost without them",
            )),
        }
    }

    /// True if there is nothing to do: all pages passed, and are in this mode.
    pub(super) fn has_all(&self, stamps: Stamps, sound: &Soundness) -> bool {
        let counts = &sound.counts;
        let right = match stamps.mode {
            Mode::Checksum => counts.checksum,
            Mode::Torn => counts.torn,
            Mode::None => counts.none,
        };
        let is_set =
            matches!(self.layout, Layout::Marked { setting, .. } if setting == stamps.mode);
        is_set
            && self.header.is_guarded() == stamps.guard
            && sound.excused.is_empty()
            && right == sound.pages
    }

    /// The file is what it was when it was looked at, and has its name still.
    pub(super) fn check_unchanged(&self) -> Result<(), Error> {
        let failed = |error| Error::io("look at", &self.path, error);
        let now = self.file.file.metadata().map_err(failed)?;
        let named = fs::metadata(&self.path).map_err(failed)?;
        let stamp = |data: &Metadata| {
            let known = (inode(data), data.len(), data.mtime(), data.mtime_nsec());
            identity(data, &self.path).map(|(device, _)| (device, known)).map_err(failed)
        };
        let like = stamp(&self.like)?;
        if stamp(&now)? == like && stamp(&named)? == like {
            return Ok(());
        }
        Err(Error::changed(
            &self.path,
            "another program wrote to it, or put another file in its place, while it was looked at",
            "stop the programs that use it",
        ))
    }
}

/// Refuses a database whose pages have room for the sums of SQLite's own checksum VFS, and no sum: that VFS
/// and ours open it nowhere. The log may have newer pages, without sums as well.
pub(super) fn refuse_without_sums(path: &Path, file: &File) -> Result<(), Error> {
    let failed = |error| Error::io("read", path, error);
    let mut head = [0; HEADER_BYTES];
    file.read_exact_at(&mut head, 0).map_err(failed)?;
    let header = DatabaseHeader::parse(&head).filter(|header| header.has_magic);
    let page_bytes = header.and_then(|header| header.page_size()).unwrap_or(0) as u64;
    let pages = file.metadata().map_err(failed)?.len().checked_div(page_bytes).unwrap_or(0);
    let is_empty = match header.filter(|it| it.reserved_bytes == RESERVED_BYTES_OFFICIAL) {
        Some(header) => has_unused_reserve(file, &header, pages).map_err(failed)?,
        None => false,
    };
    if !is_empty {
        return Ok(());
    }
    Err(Error::refused(
        path,
        "its pages have room for the sums of SQLite's checksum VFS, and no sum: a program without that VFS \
         wrote all of them anew, and no program that has it opens the database",
        "make a database without that room: sqlite3 OLD .dump | sqlite3 NEW",
    ))
}

/// True if bytes are reserved and zero on every page.
fn has_unused_reserve(file: &File, header: &DatabaseHeader, pages: u64) -> io::Result<bool> {
    let page_size = header.page_size().unwrap_or(0);
    let reserved = usize::from(header.reserved_bytes);
    let mut bytes = vec![0; reserved];
    for page in 1..=pages {
        let end = page.saturating_mul(page_size as u64);
        if page == lock_byte_page(page_size) {
            continue;
        }
        file.read_exact_at(&mut bytes, end.saturating_sub(reserved as u64))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(reserved > 0)
}

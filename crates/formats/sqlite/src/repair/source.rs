//! A copy of the database that pages may come from: a file, compressed or not, or a pack of one.
//!
//! What is refused by name: the database itself, a file that a program has open or that needs
//! recovery, another layout of pages, the markers of another database. A copy is checked as a whole
//! first, and a page that the check finds anything about is not taken.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::files::geometry;
use crate::files::sidecars::{Sidecars, is_locked};
use crate::page::header::{DatabaseHeader, HEADER_BYTES, MAGIC};
use crate::repair::pages::Pages;
use pagewarden_core::database::OpenOptions;
use pagewarden_core::error::Error;
use pagewarden_core::repair::copies::{Moment, Packs, Unpacked, moment_of_copy};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::system::{MetadataExt as _, identity};
use pagewarden_core::verify::{self, Kept, verify};
use pagewarden_core::words::utc;

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    /// What it is, in words.
    pub(super) what: String,
    pub(super) pages: Pages,
    pub(super) header: DatabaseHeader,
    /// When the file that was copied was last written, where the copy says so and was made
    /// clearly later.
    pub(super) written: Option<Moment>,
    suspected: HashSet<u32>,
    trunks: HashSet<u32>,
    /// The file goes with it.
    _unpacked: Option<Unpacked>,
}

impl Source {
    /// Opens a copy of the database at `database`.
    pub(super) fn open(
        path: &Path,
        database: &Path,
        ours: &Pages,
        packs: Packs,
    ) -> Result<Self, Error> {
        let failed = |error| Error::io("read", path, error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let own =
            std::fs::metadata(database).map_err(|error| Error::io("open", database, error))?;
        let refuse = |reason: &str, hint: &str| Err(Error::refused(path, reason, hint));
        let theirs = identity(&metadata, path).map_err(failed)?;
        if theirs == identity(&own, database).map_err(failed)? {
            return refuse(
                "this is the database that is to be repaired",
                "name a copy of it; its own log is asked in any case",
            );
        }
        if !metadata.is_file() {
            return refuse("no file", "name a copy of the database, compressed or not, or a pack");
        }
        let unpacked = Unpacked::of(path, &metadata, packs)?;
        let (plain, written) = match &unpacked {
            Some(unpacked) => (unpacked.path(), unpacked.written),
            None => (path.to_owned(), moment_of_copy(&metadata)),
        };
        let file = open_regular(&plain).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut head = vec![0; HEADER_BYTES + 1];
        let count = read_fully(&file, &mut head, 0).map_err(failed)?;
        head.truncate(count);
        let header = DatabaseHeader::parse(&head).filter(|_| head.starts_with(MAGIC));
        let (Some(header), Some(geometry)) = (header, geometry::find(&file, bytes, &head)) else {
            return refuse("no SQLite database", "name a copy of the database");
        };
        if is_locked(&file) {
            return Err(Error::in_use(path, "a program has this source open", "stop it"));
        }
        if Sidecars::beside(&plain, geometry.page_size).have_content() {
            return refuse(
                "its log or rollback journal waits beside it: the file alone is no state of the database",
                "let SQLite bring it in: sqlite3 COPY 'PRAGMA wal_checkpoint(TRUNCATE)'",
            );
        }
        let layout = |one: &geometry::Geometry| {
            let database = one.markers.map(|markers| markers.database);
            (one.page_size, one.reserved_bytes, one.has_sums, one.is_encrypted, database)
        };
        if layout(&geometry) != layout(&ours.geometry) {
            return refuse(
                "a copy of another database, or with other pages: page size, checksums or marker differ",
                "name a copy of the database as it is now",
            );
        }
        let suspected = suspected(&plain).map_err(|error| error.about(path))?;
        let pages = Pages { file, bytes, geometry };
        let seconds = written.map_or_else(|| metadata.mtime(), |(seconds, _)| seconds);
        let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Self {
            name: path.display().to_string(),
            what: format!("change counter {}, of {}", header.change_counter, utc(modified)),
            trunks: trunks(&pages, &header),
            pages,
            header,
            written,
            suspected,
            _unpacked: unpacked,
        })
    }

    /// True if the check has found anything about this page of the copy.
    pub(super) fn is_suspected(&self, number: u32) -> bool {
        self.suspected.contains(&number)
    }

    /// The header page, maps of pointers, and trunks of the list of free pages.
    pub(super) fn is_map(&self, number: u32) -> bool {
        let entries =
            self.pages.page_size().saturating_sub(usize::from(self.header.reserved_bytes)) / 5;
        let round = u32::try_from(entries.saturating_add(1)).unwrap_or(u32::MAX).max(1);
        let is_pointer_map = self.header.largest_root != 0
            && number >= 2
            && number.saturating_sub(2).checked_rem(round) == Some(0);
        number == 1 || is_pointer_map || self.trunks.contains(&number)
    }
}

/// The trunks of the list of free pages.
fn trunks(pages: &Pages, header: &DatabaseHeader) -> HashSet<u32> {
    let mut trunks = HashSet::new();
    let mut next = header.first_trunk;
    while next != 0 && trunks.insert(next) {
        let page = pages.read(next).ok().flatten();
        let word = page.as_ref().and_then(|page| page.first_chunk());
        next = word.map_or(0, |word| u32::from_be_bytes(*word));
    }
    trunks
}

/// The pages of a copy of which the check has found anything.
fn suspected(path: &Path) -> Result<HashSet<u32>, Error> {
    let failed = |error| Error::io("check", path, error);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let target = crate::files::open(path, &metadata, &OpenOptions::default())?;
    let mut kept = Kept::default();
    verify(target, &verify::Options::default(), &(), &mut kept).map_err(failed)?;
    let pages = kept.findings.iter().filter_map(|one| u32::try_from(one.place.page?.0).ok());
    Ok(pages.collect())
}

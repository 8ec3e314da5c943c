//! The doublewrite areas: pages are written here before they are written to their
//! place, so that a crash leaves one of both whole.
//!
//! | written by | where |
//! | --- | --- |
//! | MySQL 8.0.20 and later | files `#ib_<page size>_<n>.dblwr`, a slot of one page after the other |
//! | all others | two extents of `ibdata1` |
//!
//! Where the extents are, page 5 of `ibdata1` says, 200 bytes before its end:
//!
//! ```text
//! offset  size  field (big-endian)
//!     10     4  magic 536853855
//!     14     4  first page of the first extent
//!     18     4  first page of the second
//!     22    12  all three once more
//! ```
//!
//! MariaDB writes a copy before the log that belongs to it, and the page itself only
//! behind that log: a copy may be newer than the end of the log.
//!
//! With `innodb_doublewrite=DETECT_ONLY` those files stay blank, and `#ib_<page size>_<n>.bdblwr`
//! beside them hold the numbers and LSNs of pages, and no page.
//!
//! A slot holds a page of any tablespace, in the layout of that tablespace; one
//! that is shorter than the slot is followed by what was there before. So a slot is
//! judged by the format of the page that it is to stand in for.
//!
//! Sources: `trx0sys.h`, `buf0dblwr.cc` of MariaDB 10.11 and MySQL 8.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::files::fields::{u32_at, u64_at};
use crate::files::redo::PageId;
use crate::files::system::Area;
use pagewarden_core::page::{PageFormat, PageRun, RunVerdict};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::PageNo;

/// The page of `ibdata1` that says where the extents are.
pub const TRANSACTION_PAGE: u64 = 5;
const FROM_END: usize = 200;
const MAGIC: usize = 10;
const FIRST_EXTENT: usize = 14;
const SECOND_EXTENT: usize = 18;
/// All three once more, this far behind.
const REPEATED: usize = 12;
const MAGIC_VALUE: u32 = 536_853_855;

const PAGE_NUMBER: usize = 4;
const PAGE_LSN: usize = 16;
const SPACE: usize = 34;

/// Of larger files only so much is looked at: a server keeps a few mebibytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
const FILES_MAX: usize = 1024;

/// The two extents in `ibdata1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    first: u64,
    second: u64,
    pages: u64,
}

impl Extents {
    /// Reads page 5 of `ibdata1`; `None` where it names none.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        Self::parse_at(page, 0)
    }

    /// What the page says once more.
    #[must_use]
    pub fn parse_second(page: &[u8]) -> Option<Self> {
        Self::parse_at(page, REPEATED)
    }

    /// Where servers put them when they make the file.
    #[must_use]
    pub fn usual(pages: u64) -> Self {
        Self { first: pages, second: pages.saturating_mul(2), pages }
    }

    fn parse_at(page: &[u8], behind: usize) -> Option<Self> {
        let begin = page.len().checked_sub(FROM_END)?.checked_add(behind)?;
        let header = page.get(begin..)?;
        if u32_at(header, MAGIC)? != MAGIC_VALUE {
            return None;
        }
        let pages = extent_pages(page.len());
        let first = u64::from(u32_at(header, FIRST_EXTENT)?);
        let second = u64::from(u32_at(header, SECOND_EXTENT)?);
        (first > 0 && second > 0).then_some(Self { first, second, pages })
    }

    /// Their pages.
    #[must_use]
    pub fn ranges(&self) -> [std::ops::Range<u64>; 2] {
        [self.first, self.second].map(|first| first..first.saturating_add(self.pages))
    }

    /// The numbers of their pages.
    fn all(&self) -> impl Iterator<Item = u64> + use<> {
        self.ranges().into_iter().flatten()
    }
}

/// A mebibyte of pages up to 16 KiB, 64 larger ones.
pub(crate) fn extent_pages(page_size: usize) -> u64 {
    const SMALLEST_EXTENT: u64 = 64;
    let page_size = u64::try_from(page_size).unwrap_or(u64::MAX);
    (1_u64 << 20).checked_div(page_size).unwrap_or(0).max(SMALLEST_EXTENT)
}

/// A page in the doublewrite area that is sound in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoodCopy {
    /// The file, relative to the data directory.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// The log position on it.
    pub lsn: u64,
}

#[derive(Debug)]
struct Slot {
    file: u32,
    offset: u64,
}

/// The copies of a data directory, looked for when the first page fails.
#[derive(Debug)]
pub struct Doublewrite {
    root: PathBuf,
    /// Bytes in a page of `ibdata1`.
    page_size: usize,
    found: OnceLock<Found>,
}

#[derive(Debug, Default)]
struct Found {
    files: Vec<String>,
    slots: HashMap<PageId, Vec<Slot>>,
    /// There is an area, and it could be read.
    is_known: bool,
    extents: Option<Extents>,
}

impl Doublewrite {
    /// The areas of a data directory whose system tablespace has such pages.
    #[must_use]
    pub fn of(root: &Path, page_size: usize) -> Arc<Self> {
        Arc::new(Self { root: root.to_owned(), page_size, found: OnceLock::new() })
    }

    /// True if all that a server would look into was looked into.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.found().is_known
    }

    /// True for a page of the system tablespace that is a copy.
    #[must_use]
    pub fn is_copy(&self, page: u64) -> bool {
        let extents = self.found().extents;
        extents.is_some_and(|extents| extents.ranges().iter().any(|range| range.contains(&page)))
    }

    /// The newest sound copy of a page that is no newer than the log, where its end
    /// is known. `format` is that of its tablespace.
    #[must_use]
    pub fn good_copy(
        &self,
        page: PageId,
        log_end: Option<u64>,
        format: &dyn PageFormat,
    ) -> Option<GoodCopy> {
        let found = self.found();
        let slots = found.slots.get(&page)?;
        let copies = slots.iter().filter_map(|slot| {
            let file = found.files.get(usize::try_from(slot.file).ok()?)?;
            let bytes = self.read(file, slot.offset, format.page_size())?;
            let mut verdict = RunVerdict::default();
            let run = PageRun { first: PageNo(u64::from(page.1)), bytes: &bytes };
            format.judge(run, &mut verdict);
            let is_sound = verdict.findings.is_empty() && verdict.counts.ok == 1;
            let lsn = u64_at(&bytes, PAGE_LSN)?;
            is_sound.then(|| GoodCopy { file: file.clone(), offset: slot.offset, lsn })
        });
        copies.filter(|copy| log_end.is_none_or(|end| copy.lsn <= end)).max_by_key(|copy| copy.lsn)
    }

    /// Every copy of a page, sound or not, with its bytes.
    pub(crate) fn copies(&self, page: PageId, page_size: usize) -> Vec<(GoodCopy, Vec<u8>)> {
        let found = self.found();
        let slots = found.slots.get(&page).map(Vec::as_slice).unwrap_or_default();
        let copies = slots.iter().filter_map(|slot| {
            let file = found.files.get(usize::try_from(slot.file).ok()?)?;
            let bytes = self.read(file, slot.offset, page_size)?;
            let lsn = u64_at(&bytes, PAGE_LSN)?;
            Some((GoodCopy { file: file.clone(), offset: slot.offset, lsn }, bytes))
        });
        copies.collect()
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Option<Vec<u8>> {
        let file = open_regular(&self.root.join(file)).ok()?;
        let mut bytes = vec![0; length];
        (read_fully(&file, &mut bytes, offset).ok()? == length).then_some(bytes)
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let mut found = Found::default();
            self.look_into_system_tablespace(&mut found);
            self.look_into_files(&mut found);
            found
        })
    }

    fn look_into_system_tablespace(&self, found: &mut Found) {
        const NAME: &str = "ibdata1";
        let page_size = u64::try_from(self.page_size).unwrap_or(0);
        let page_at = |page: u64| self.read(NAME, page.checked_mul(page_size)?, self.page_size);
        let Some(page) = page_at(TRANSACTION_PAGE) else { return };
        let area = Area::of_untested(&page);
        let Some(extents) = area.extents() else { return };
        found.extents = Some(extents);
        let file = found.add_file(NAME.to_owned());
        for page in extents.all() {
            let Some(bytes) = page_at(page) else { return };
            let offset = page.saturating_mul(page_size);
            found.add(&bytes, Slot { file, offset });
        }
        found.is_known = matches!(area, Area::At(_));
    }

    fn look_into_files(&self, found: &mut Found) {
        for name in files_in(&self.root) {
            let Some(slot_bytes) = slot_bytes_of(&name) else { continue };
            let Ok(file) = open_regular(&self.root.join(&name)) else { continue };
            let length = file.metadata().map_or(0, |metadata| metadata.len()).min(FILE_BYTES_MAX);
            let index = found.add_file(name);
            let mut page = vec![0; slot_bytes];
            let step = u64::try_from(slot_bytes).unwrap_or(u64::MAX);
            let mut offset = 0_u64;
            while offset.saturating_add(step) <= length {
                if !matches!(read_fully(&file, &mut page, offset), Ok(count) if count == slot_bytes)
                {
                    break;
                }
                found.add(&page, Slot { file: index, offset });
                offset = offset.saturating_add(step);
            }
            found.is_known = true;
        }
    }
}

impl Found {
    fn add_file(&mut self, name: String) -> u32 {
        self.files.push(name);
        u32::try_from(self.files.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn add(&mut self, page: &[u8], slot: Slot) {
        if page.iter().all(|byte| *byte == 0) {
            return;
        }
        if let (Some(space), Some(number)) = (u32_at(page, SPACE), u32_at(page, PAGE_NUMBER)) {
            self.slots.entry((space, number)).or_default().push(slot);
        }
    }
}

/// The names of a folder's doublewrite files, in order.
#[must_use]
pub fn files_in(root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> =
        names.filter(|name| slot_bytes_of(name).is_some()).take(FILES_MAX).collect();
    names.sort();
    names
}

/// Bytes in a slot of a file of that name: `#ib_16384_0.dblwr`. A copy may have
/// lost its first character.
#[must_use]
pub fn slot_bytes_of(name: &str) -> Option<usize> {
    slot_bytes(name.strip_suffix(".dblwr")?)
}

/// True for the files that MySQL writes instead with `innodb_doublewrite=DETECT_ONLY`.
#[must_use]
pub fn has_numbers_only(name: &str) -> bool {
    name.strip_suffix(".bdblwr").is_some_and(|stem| slot_bytes(stem).is_some())
}

fn slot_bytes(stem: &str) -> Option<usize> {
    let stem = stem.strip_prefix('#').unwrap_or(stem).strip_prefix("ib_")?;
    let (bytes, number) = stem.split_once('_')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let bytes: usize = bytes.parse().ok()?;
    (is_number && bytes.is_power_of_two() && (4096..=65_536).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_where_page_five_says() {
        let mut page = vec![0; 16_384];
        let header = 16_384 - 200;
        page[header + 14..header + 18].copy_from_slice(&64_u32.to_be_bytes());
        page[header + 18..header + 22].copy_from_slice(&128_u32.to_be_bytes());
        assert_eq!(Extents::parse(&page), None, "no magic");
        page[header + 10..header + 14].copy_from_slice(&MAGIC_VALUE.to_be_bytes());
        let extents = Extents::parse(&page).unwrap();
        assert_eq!(extents.ranges(), [64..128, 128..192]);
        assert_eq!(extents.all().count(), 128);
        assert_eq!(Extents::parse(&page[..100]), None);
        assert_eq!([4096, 8192, 16_384, 32_768, 65_536].map(extent_pages), [256, 128, 64, 64, 64]);
    }

    #[test]
    fn files_are_known_by_their_names() {
        for (name, bytes) in [
            ("#ib_16384_0.dblwr", Some(16_384)),
            ("#ib_4096_15.dblwr", Some(4096)),
            ("#ib_4096_15.bdblwr", None),
            ("ib_16384_0.dblwr", Some(16_384)),
            ("#ib_16384_.dblwr", None),
            ("#ib_100_0.dblwr", None),
            ("#ib_16384_0", None),
            ("ib_logfile0", None),
        ] {
            assert_eq!(slot_bytes_of(name), bytes, "{name}");
        }
        assert!(has_numbers_only("#ib_4096_15.bdblwr") && !has_numbers_only("#ib_4096_15.dblwr"));
    }
}

//! What the system pages of a data file say: its file header (page 0), its page free space (page 1,
//! then every 8,088 pages), and the database's boot page (page 9 of file 1).
//!
//! Records lie where the last slot of the page points, at 8190. On a page with torn bits that slot
//! is itself altered: the bits are put back first.
//!
//! | page | where | bytes | field |
//! |---|---|---|---|
//! | boot | record + 4 | 2 | version of the database |
//! | | record + 6 | 2 | version it was made with |
//! | | record + 36 | 4 | status: 0x10 torn bits, 0x10000 checksums, 0x40000000 shut down cleanly |
//! | | record + 52 | 256 | name of the database, UTF-16, padded with bytes 0x20 |
//! | | record + 348 | 10 | position of the last checkpoint |
//! | | record + 408 | 16 | family of the database, the same over restores |
//! | file header | column 0 | 16 | `BindingID`, the same in all files of a database |
//! | | column 2 | 2 | number of the file |
//! | | column 4 | 4 | pages in the file |
//! | | column 20, 21 | 10, 16 | full backup that differential ones build on: LSN of its checkpoint, id of its set |
//! | | column 27 | | logical name, UTF-16 |
//! | | column 28 | 16 | id of the backup set that the file was restored from last |
//! | GAM, SGAM, DIFF map, ML map | 98 | 2 | bytes in the first record: 94 |
//! | | 192 | 2 | bytes in the second one, the map: 7,992 |
//! | free space | 98 | 2 | bytes in the record: 8,092 |
//! | | 100 | 8,088 | a byte for each page of the interval; 0x40: allocated |
//!
//! A file header's columns are of variable length: behind the record's fixed part (its end is at
//! record + 2) come the number of columns, a bit for each, the number of variable ones, and where
//! each of those ends.
//!
//! Sources: OrcaMDF and DBCC DBINFO and FILEHEADER for the names; the offsets are those of real
//! files, 2005 to 2019. The checkpoint's position was found there: in all of 14 boot pages it is past
//! the position of every other page. That files of one database share column 0 is said of `BindingID`
//! on nocentino.com ("Reading SQL Server File Headers with DBCC FILEHEADER"); so it is in the one
//! database of two data files that was available, and those of ten databases all differ. The family and
//! the differential base were found by the ids in backups of the same databases: 2008 R2 to 2019.

use crate::checksum::{PAGE_BYTES, Page, restore_torn_bits};
use crate::page::header::{
    HAS_TORN_BITS, HEADER_BYTES, Header, Lsn, Tested, kinds, tested, u16_at, u32_at,
};
use crate::page::stamp::restamp;
use pagewarden_core::verdict::Protection;

/// Pages that one page of free space tells of.
pub const PFS_PAGES: u64 = 8088;
/// The number of the boot page, in file 1.
pub const BOOT_PAGE: u64 = 9;

const LAST_SLOT_AT: usize = PAGE_BYTES - 2;
const BOOT_VERSION: usize = 4;
const BOOT_CREATED: usize = 6;
const BOOT_STATUS: usize = 36;
const BOOT_NAME: usize = 52;
const BOOT_NAME_BYTES: usize = 256;
const BOOT_CHECKPOINT: usize = 348;
const BOOT_FAMILY: usize = 408;
const STATUS_TORN: u32 = 0x10;
const STATUS_CHECKSUM: u32 = 0x1_0000;
const STATUS_CLEAN: u32 = 0x4000_0000;
const COLUMN_BINDING: usize = 0;
const COLUMN_FILE: usize = 2;
const COLUMN_SIZE: usize = 4;
const COLUMN_BASE_LSN: usize = 20;
const COLUMN_BASE_ID: usize = 21;
const COLUMN_NAME: usize = 27;
const COLUMN_RESTORED: usize = 28;
/// SQL Server 7.0: what is older is in no form that is known.
const VERSION_MIN: u16 = 515;
const MAP_HEAD_BYTES: u16 = 94;
const MAP_AT: usize = HEADER_BYTES + MAP_HEAD_BYTES as usize;
const MAP_BYTES: u16 = 7992;
const PFS_LENGTH_AT: usize = HEADER_BYTES + 2;
const PFS_RECORD_BYTES: u16 = 8092;
const PFS_AT: usize = HEADER_BYTES + 4;
const PFS_ALLOCATED: u8 = 0x40;
/// What names are padded with, taken as UTF-16: two blanks.
const BLANKS: char = '\u{2020}';
/// Names are of this number of characters at most.
const NAME_CHARACTERS: usize = 128;

/// The number of the page of free space that tells of `page`.
#[must_use]
pub fn pfs_page_of(page: u64) -> u64 {
    match page / PFS_PAGES {
        0 => 1,
        interval => interval.saturating_mul(PFS_PAGES),
    }
}

/// The page as it was before its bits were displaced.
#[must_use]
pub fn with_own_bits(page: &Page) -> Page {
    let mut own = *page;
    if Header::parse(page).flags & HAS_TORN_BITS != 0 {
        restore_torn_bits(&mut own);
    }
    own
}

/// What a boot page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootPage {
    /// The version of the database's format.
    pub version: u16,
    /// The version that it was made with.
    pub created: u16,
    /// What pages are protected by when they are written.
    pub setting: Protection,
    /// The database was shut down cleanly.
    pub is_clean: bool,
    /// The database's name, or its file's for one that was attached by it.
    pub database: Option<String>,
    /// Where the last checkpoint began.
    pub checkpoint: Lsn,
    /// The same for all copies of the database, over restores; `None` where it has none.
    pub family: Option<[u8; 16]>,
}

impl BootPage {
    /// Reads a boot page that is sound; `None` where it is none.
    #[must_use]
    pub fn parse(page: &Page) -> Option<Self> {
        let header = Header::parse(page);
        let is_boot = header.kind == kinds::BOOT && header.is_of(1, BOOT_PAGE);
        if !is_boot || tested(page, &header) == Tested::Failed {
            return None;
        }
        let page = with_own_bits(page);
        let record = record(&page)?;
        record.get(..BOOT_CHECKPOINT + 10)?;
        let status = u32_at(record, BOOT_STATUS);
        Some(Self {
            version: u16_at(record, BOOT_VERSION),
            created: u16_at(record, BOOT_CREATED),
            setting: match (status & STATUS_CHECKSUM != 0, status & STATUS_TORN != 0) {
                (true, _) => Protection::Checksum,
                (false, true) => Protection::Torn,
                (false, false) => Protection::None,
            },
            is_clean: status & STATUS_CLEAN != 0,
            database: name(record.get(BOOT_NAME..BOOT_NAME + BOOT_NAME_BYTES)?),
            checkpoint: Lsn::parse(record, BOOT_CHECKPOINT),
            family: id(record.get(BOOT_FAMILY..).unwrap_or_default()),
        })
    }

    /// Shut down cleanly, and nothing of it is missing. No server ever flushes what lies in the
    /// database of temporary tables, however the server ends.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_clean && self.database.as_deref().is_none_or(|name| name != "tempdb")
    }

    /// The engine, as people say it: `SQL Server 2014 (782)`.
    #[must_use]
    pub fn engine(&self) -> String {
        engine(self.version)
    }

    /// Writes into a boot page that is sound what pages are to be protected by when they are written,
    /// and protects it so itself; true if that changed it. What is no boot page stays as it is.
    pub fn set(page: &mut Page, setting: Protection) -> bool {
        if Self::parse(page).is_none() {
            return false;
        }
        let before = *page;
        let mut own = with_own_bits(page);
        let at = usize::from(u16_at(&own, LAST_SLOT_AT)).saturating_add(BOOT_STATUS);
        let status = u32_at(&own, at);
        let bit = match setting {
            Protection::Checksum => STATUS_CHECKSUM,
            Protection::Torn => STATUS_TORN,
            Protection::None => 0,
        };
        let wanted = status & !(STATUS_CHECKSUM | STATUS_TORN) | bit;
        let is_so = wanted == status && Header::parse(page).protection() == Some(setting);
        if let Some(field) = own.get_mut(at..).and_then(<[u8]>::first_chunk_mut).filter(|_| !is_so)
        {
            *field = wanted.to_le_bytes();
            *page = own;
            restamp(page, setting);
        }
        *page != before
    }
}

/// True for a version whose data files were seen, and verified page by page: 2005 to 2022. Of 2025 only
/// one half of a striped backup was.
#[must_use]
pub fn is_seen(version: u16) -> bool {
    const SQL_SERVER_2005: u16 = 611;
    const SQL_SERVER_2022: u16 = 957;
    (SQL_SERVER_2005..=SQL_SERVER_2022).contains(&version) && release(version).is_some()
}

/// The engine of a database of this version. Versions of releases lie in ranges, as service packs
/// raised some.
#[must_use]
pub fn engine(version: u16) -> String {
    match release(version) {
        Some(release) => format!("SQL Server {release} ({version})"),
        None => format!("SQL Server ({version})"),
    }
}

fn release(version: u16) -> Option<&'static str> {
    Some(match version {
        515 => "7.0",
        539 => "2000",
        611 | 612 => "2005",
        655 => "2008",
        660..=669 => "2008 R2",
        684..=706 => "2012",
        782 => "2014",
        850..=852 => "2016",
        868 | 869 => "2017",
        895..=904 => "2019",
        947..=957 => "2022",
        998 => "2025",
        _ => return None,
    })
}

/// What a file header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// The file's number.
    pub file: u16,
    /// Pages in the file; `None` where it cannot be read.
    pub pages: Option<u32>,
    /// The file's logical name.
    pub name: Option<String>,
    /// The same in all files of a database; `None` where it cannot be read.
    pub binding: Option<[u8; 16]>,
    /// The full backup that differential ones build on; `None` where there is none.
    pub base: Option<DifferentialBase>,
    /// The id of the backup set that the file was restored from last; `None` if it never was.
    pub restored_from: Option<[u8; 16]>,
}

/// The full backup since which the map of changed extents counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DifferentialBase {
    /// The LSN of the checkpoint that it began with.
    pub checkpoint: Lsn,
    /// The id of its backup set.
    pub set_id: [u8; 16],
}

impl FileHeader {
    /// Reads a file header that is sound; `None` where it is none.
    #[must_use]
    pub fn parse(page: &Page) -> Option<Self> {
        let header = Header::parse(page);
        let is_file_header = header.kind == kinds::FILE_HEADER && header.is_of(header.file, 0);
        if !is_file_header || tested(page, &header) == Tested::Failed {
            return None;
        }
        let page = with_own_bits(page);
        let columns = record(&page).and_then(Columns::parse);
        // Both say which file this is; where they do not agree, the record was read wrongly.
        let columns = columns.filter(|columns| columns.u16(COLUMN_FILE) == Some(header.file));
        Some(Self {
            file: header.file,
            pages: columns.as_ref().and_then(|columns| columns.u32(COLUMN_SIZE)),
            binding: columns
                .as_ref()
                .and_then(|columns| columns.get(COLUMN_BINDING)?.try_into().ok()),
            restored_from: columns.as_ref().and_then(|columns| id(columns.get(COLUMN_RESTORED)?)),
            base: columns.as_ref().and_then(|columns| {
                let checkpoint: &[u8; 10] = columns.get(COLUMN_BASE_LSN)?.try_into().ok()?;
                let set_id = id(columns.get(COLUMN_BASE_ID)?)?;
                Some(DifferentialBase { checkpoint: Lsn::parse(checkpoint, 0), set_id })
            }),
            name: columns.and_then(|columns| name(columns.get(COLUMN_NAME)?)),
        })
    }
}

/// The columns of variable length in a record.
struct Columns<'a> {
    record: &'a [u8],
    /// Where the first begins and each ends.
    ends: Vec<usize>,
}

impl<'a> Columns<'a> {
    fn parse(record: &'a [u8]) -> Option<Self> {
        const COMPLEX: u16 = 0x8000;
        let fixed_end = usize::from(u16_at(record, 2));
        let count = usize::from(u16_at(record, fixed_end));
        let variable_at = fixed_end.checked_add(2)?.checked_add(count.div_ceil(8))?;
        let variable = usize::from(u16_at(record, variable_at));
        let ends_at = variable_at.checked_add(2)?;
        let begin = ends_at.checked_add(variable.checked_mul(2)?)?;
        record.get(..begin)?;
        let ends = (0..variable).map(|index| {
            usize::from(u16_at(record, ends_at.saturating_add(index.saturating_mul(2))) & !COMPLEX)
        });
        Some(Self { record, ends: std::iter::once(begin).chain(ends).collect() })
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (begin, end) = (self.ends.get(index)?, self.ends.get(index.checked_add(1)?)?);
        self.record.get(*begin..*end)
    }

    fn u16(&self, index: usize) -> Option<u16> {
        self.get(index)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&self, index: usize) -> Option<u32> {
        self.get(index)?.try_into().ok().map(u32::from_le_bytes)
    }
}

/// The first record of a page.
fn record(page: &Page) -> Option<&[u8]> {
    let at = usize::from(u16_at(page, LAST_SLOT_AT));
    page.get(at..LAST_SLOT_AT).filter(|_| at >= HEADER_BYTES)
}

/// An id that is not zero.
fn id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.first_chunk().copied().filter(|id| *id != [0; 16])
}

/// A name in UTF-16 that may be padded; `None` for none, or for what is no name.
fn name(bytes: &[u8]) -> Option<String> {
    let words = bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word));
    let words: Vec<_> = words.take(NAME_CHARACTERS).take_while(|word| *word != 0).collect();
    let text = String::from_utf16(&words).ok()?;
    let text = text.trim_end_matches([' ', BLANKS]);
    let is_name = !text.is_empty() && !text.chars().any(char::is_control);
    is_name.then(|| text.to_owned())
}

/// The bytes of a page of free space that is sound, one for each page of its interval; `None` where
/// it proves nothing.
///
/// The bits that torn bits displace are the two lowest of a byte, which say nothing of allocation.
#[must_use]
pub fn pfs_bytes(page: &Page, file: u16, number: u64) -> Option<&[u8]> {
    let header = Header::parse(page);
    let is_pfs = header.kind == kinds::PFS && header.is_of(file, number);
    if !is_pfs || tested(page, &header) == Tested::Failed {
        return None;
    }
    let is_record = u16_at(page, PFS_LENGTH_AT) == PFS_RECORD_BYTES;
    page.get(PFS_AT..)?.get(..usize::try_from(PFS_PAGES).ok()?).filter(|_| is_record)
}

/// True for a page of the kind that every file has if the record that its kind has can be read. A sum
/// may be that of a page that was emptied before it was written.
#[must_use]
pub fn has_its_record(page: &Page, header: &Header) -> bool {
    match header.kind {
        kinds::FILE_HEADER => FileHeader::parse(page)
            .is_some_and(|header| header.pages.is_some() && header.binding.is_some()),
        kinds::BOOT => BootPage::parse(page).is_some_and(|boot| boot.version >= VERSION_MIN),
        kinds::PFS => pfs_bytes(page, header.file, u64::from(header.page)).is_some(),
        kinds::GAM | kinds::SGAM | kinds::DIFF_MAP | kinds::ML_MAP => {
            let own = with_own_bits(page);
            let is_at = |slot_at: usize, at: usize, length: u16| {
                usize::from(u16_at(&own, slot_at)) == at
                    && u16_at(&own, at.saturating_add(2)) == length
            };
            is_at(LAST_SLOT_AT, HEADER_BYTES, MAP_HEAD_BYTES)
                && is_at(LAST_SLOT_AT - 2, MAP_AT, MAP_BYTES)
        }
        _ => true,
    }
}

/// True for the byte of a page that is allocated.
#[must_use]
pub fn is_allocated(byte: u8) -> bool {
    byte & PFS_ALLOCATED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_lies_on_page_1_and_then_on_the_first_page_of_its_interval() {
        for (page, pfs) in [
            (0, 1),
            (1, 1),
            (8087, 1),
            (8088, 8088),
            (8089, 8088),
            (16_175, 8088),
            (16_176, 16_176),
        ] {
            assert_eq!(pfs_page_of(page), pfs, "{page}");
        }
        assert_eq!(pfs_page_of(u64::MAX) % PFS_PAGES, 0);
    }

    #[test]
    fn engines_are_called_by_their_year() {
        assert_eq!(engine(782), "SQL Server 2014 (782)");
        assert_eq!(engine(661), "SQL Server 2008 R2 (661)");
        assert_eq!(engine(998), "SQL Server 2025 (998)");
        assert_eq!(engine(1200), "SQL Server (1200)");
        assert!([611, 655, 661, 706, 782, 852, 869, 904, 957].into_iter().all(is_seen));
        assert!([0, 515, 539, 998, u16::MAX].into_iter().all(|version| !is_seen(version)));
    }
}

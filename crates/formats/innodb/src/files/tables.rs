//! The tables that the dictionary in the system tablespace names, of MariaDB and of MySQL up to 5.7.
//!
//! `SYS_TABLES` has its root on page 8. A record of its clustered index is in the redundant format,
//! all integers big-endian:
//!
//! ```text
//! offset  size  field
//!     -7     -  where each field ends, from 0, back to front: one byte each, or two
//!     -6     1  32: deleted
//!     -4     2  twice the number of fields; the lowest bit: one byte for each end
//!     -2     2  where the next record is on the page
//!      0     -  NAME: `database/table`, as the files are called
//!               the page below (upper levels), or transaction, roll pointer, ID,
//!               N_COLS: the highest bit says that TYPE and MIX_LEN can be believed
//!               TYPE: 64 for DATA DIRECTORY; 128 without 3840: in a tablespace with others
//!               MIX_ID, MIX_LEN: 1 temporary, 16 a file of its own, 32 discarded
//!               CLUSTER_NAME, SPACE: the tablespace's number, 0 for the system's
//! ```
//!
//! Sources: `rem0rec.h`, `dict0boot.h`, `dict0mem.h` of MariaDB 10.11 and MySQL 5.7; files of
//! MariaDB 10.11 and MySQL 5.5.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::directory::Role;
use crate::files::tablespace::{Context, Tablespace, open_file};
use crate::page::Look;
use crate::page::encryption::{Keyring, is_encrypted_by_mariadb};
use crate::page::fields::{
    PAGE_TYPE, TYPE_PAGE_COMPRESSED, TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32, read_u64,
};
use crate::page::index::TYPE_INDEX;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::Standing;

/// The root of a table of the dictionary, where each has been made since the first version, and the
/// number of its index.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfDictionary {
    root: u64,
    index: u64,
}

/// `SYS_TABLES`.
const TABLES: OfDictionary = OfDictionary { root: 8, index: 1 };
/// `SYS_COLUMNS`.
pub(super) const COLUMNS_OF_TABLES: OfDictionary = OfDictionary { root: 10, index: 2 };
/// `SYS_INDEXES`.
pub(super) const INDEXES_OF_TABLES: OfDictionary = OfDictionary { root: 11, index: 3 };
/// `SYS_FIELDS`.
pub(super) const FIELDS_OF_INDEXES: OfDictionary = OfDictionary { root: 12, index: 4 };
const NEXT: usize = 12;
const NO_PAGE: u32 = u32::MAX;
const COMPACT_BIT: u16 = 1 << 15;
const RECORDS_ON_PAGE: usize = 42;
const LEVEL: usize = 64;
const INDEX: usize = 66;
const INFIMUM: usize = 101;
const SUPREMUM: usize = 116;
const DELETED: u8 = 32;
/// Numbers of a record's fields.
const NAME: usize = 0;
const COLUMNS: usize = 4;
const TYPE: usize = 5;
const MIX_LEN: usize = 7;
const SPACE: usize = 9;
const IS_COMPACT: u32 = 1 << 31;
const DATA_DIRECTORY: u32 = 64;
const SHARED: u32 = 128;
const COMPRESSION_LEVEL: u32 = 0xF00;
const TEMPORARY: u32 = 1;
const OWN_FILE: u32 = 16;
const DISCARDED: u32 = 32;
/// From here on they are the server's own.
const SPACES_END: u32 = 0xFFFF_FFF0;

const PAGES_MAX: usize = 1 << 20;
const LEVELS_MAX: usize = 8;

/// Why a dictionary cannot be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// It is encrypted.
    Locked,
    /// One of its pages cannot be read, or fails.
    Broken(String),
}

/// The keys that were given.
pub(super) type Keys<'a> = Option<&'a Arc<Keyring>>;

/// A tablespace that a dictionary names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Its file, from the data directory; or with its whole path.
    pub(super) file: String,
    /// Its number, where the dictionary has it beside the name.
    pub(super) space: Option<u32>,
    /// Where it is.
    pub(super) place: Placement,
}

/// Where a table's file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Under its name.
    Here,
    /// The same, by a server that did not note which tables were discarded.
    HereOrDiscarded,
    /// Where a link file beside the others says.
    Linked,
    /// In a tablespace with others, of any name.
    Shared,
}

/// The tablespaces of the tables in the dictionary whose first file is in this folder.
#[allow(clippy::redundant_closure_for_method_calls, reason = "it would be for one lifetime")]
pub(super) fn named(folder: &Path, keys: Keys<'_>) -> Result<Vec<Named>, Unasked> {
    each(folder, keys, TABLES, |record| record.named())
}

/// The names of all of its tables, those in the system tablespace too: `database/table`.
#[allow(clippy::redundant_closure_for_method_calls, reason = "it would be for one lifetime")]
pub(super) fn names(folder: &Path, keys: Keys<'_>) -> Result<Vec<String>, Unasked> {
    each(folder, keys, TABLES, |record| record.name())
}

/// The greatest number that a server of this system tablespace has given a tablespace: `DICT_HDR_MAX_SPACE_ID`
/// of `dict0boot.h`, 4 bytes on page 7. Not of those that number undo, temporary and its own tablespaces
/// from the other end.
pub(super) fn newest_space(folder: &Path, keys: Keys<'_>) -> Result<u32, Unasked> {
    const PAGE: u64 = 7;
    const TYPE_SYS: u16 = 6;
    const NEWEST: usize = 62;
    let page = Pages::open(folder, keys)?.sound(PAGE)?;
    match read_u16(&page, PAGE_TYPE) {
        TYPE_SYS => Ok(read_u32(&page, NEWEST)),
        _ => Err(broken("page 7 of ibdata is not the head of a dictionary")),
    }
}

/// What there is of each record that is not deleted.
pub(super) fn each<T>(
    folder: &Path,
    keys: Keys<'_>,
    table: OfDictionary,
    wanted: impl Fn(&Record<'_>) -> Option<T>,
) -> Result<Vec<T>, Unasked> {
    let pages = Pages::open(folder, keys)?;
    let mut page = pages.read(table, table.root)?;
    for _ in 0..LEVELS_MAX {
        if read_u16(&page, LEVEL) == 0 {
            break;
        }
        let first = records(&page).into_iter().next();
        let child = first.and_then(|(_, record)| record.child());
        let child = child.ok_or_else(|| broken("its upper levels lead nowhere"))?;
        page = pages.read(table, u64::from(child))?;
    }
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let those = records(&page).into_iter().filter(|(is_deleted, _)| !is_deleted);
        found.extend(those.filter_map(|(_, record)| wanted(&record)));
        match read_u32(&page, NEXT) {
            NO_PAGE => return Ok(found),
            next => page = pages.read(table, u64::from(next))?,
        }
    }
    Err(broken("its pages lead to one another in a circle"))
}

fn broken(why: &str) -> Unasked {
    Unasked::Broken(why.to_owned())
}

/// The files of the system tablespace.
struct Pages {
    opened: Tablespace,
    /// Each with its first page and the one behind its last.
    files: Vec<(u64, u64, File)>,
}

impl Pages {
    fn open(folder: &Path, keys: Keys<'_>) -> Result<Self, Unasked> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let paths: BTreeMap<u32, PathBuf> = names
            .filter_map(|name| match Role::of(&name) {
                Role::System(number) => Some((number, folder.join(name))),
                _ => None,
            })
            .collect();
        let first = paths.get(&1).ok_or_else(|| broken("ibdata1 is not here"))?;
        let context = Context { keyring: keys.cloned(), ..Context::alone("ibdata1".to_owned()) };
        let opened = open_file(first, context).map_err(|_| broken("ibdata1 cannot be opened"))?;
        let page_bytes = u64::try_from(opened.geometry.layout.page_size).unwrap_or(u64::MAX);
        let mut files = Vec::new();
        let mut begin = 0_u64;
        for path in paths.values() {
            let file = open_regular(path).map_err(|error| broken(&error.to_string()))?;
            let bytes = file.metadata().map_or(0, |metadata| metadata.len());
            let end = begin.saturating_add(bytes.checked_div(page_bytes).unwrap_or(0));
            files.push((begin, end, file));
            begin = end;
        }
        Ok(Self { opened, files })
    }

    fn read(&self, table: OfDictionary, number: u64) -> Result<Vec<u8>, Unasked> {
        let page = self.sound(number)?;
        let is_of_index = read_u16(&page, PAGE_TYPE) == TYPE_INDEX
            && read_u64(&page, INDEX) == table.index
            && read_u16(&page, RECORDS_ON_PAGE) & COMPACT_BIT == 0;
        match is_of_index {
            true => Ok(page),
            false => Err(broken(&format!("page {number} of ibdata is none of a dictionary"))),
        }
    }

    /// A page that passes its test, in the clear.
    fn sound(&self, number: u64) -> Result<Vec<u8>, Unasked> {
        let layout = &self.opened.geometry.layout;
        let of_page = |why: &str| broken(&format!("page {number} of ibdata {why}"));
        let mut page = vec![0; layout.page_size];
        let place = self.files.iter().find(|(begin, end, _)| (*begin..*end).contains(&number));
        let (begin, _, file) = place.ok_or_else(|| of_page("is not there"))?;
        let page_bytes = u64::try_from(page.len()).unwrap_or(u64::MAX);
        let offset = number.saturating_sub(*begin).saturating_mul(page_bytes);
        let count = read_fully(file, &mut page, offset).map_err(|_| of_page("cannot be read"))?;
        let look = self.opened.pages.look(number, &page, None);
        let is_packed = matches!(
            read_u16(&page, PAGE_TYPE),
            TYPE_PAGE_COMPRESSED | TYPE_PAGE_COMPRESSED_ENCRYPTED
        );
        let is_encrypted = self.opened.is_encrypted && is_encrypted_by_mariadb(layout.form, &page);
        match look {
            Look::Sound(..) if count < page.len() => Err(of_page("fails")),
            Look::Sound(Standing::Unverifiable, _) => Err(Unasked::Locked),
            Look::Sound(..) if is_packed => Err(Unasked::Locked),
            Look::Sound(..) if is_encrypted => {
                self.opened.pages.decrypted(&page).ok_or(Unasked::Locked)
            }
            Look::Sound(..) => Ok(page),
            Look::Blank | Look::Faulty(_) => Err(of_page("fails")),
        }
    }
}

/// One record's fields.
pub(super) struct Record<'a>(Vec<&'a [u8]>);

/// The records of a page, each with whether it was deleted.
fn records(page: &[u8]) -> Vec<(bool, Record<'_>)> {
    const RECORD_BYTES_MIN: usize = 8;
    let mut found = Vec::new();
    let mut at = next_of(page, INFIMUM);
    for _ in 0..page.len() / RECORD_BYTES_MIN {
        let Some(record) = at else { break };
        if let Some(one) = record_at(page, record) {
            found.push(one);
        }
        at = next_of(page, record);
    }
    found
}

fn next_of(page: &[u8], record: usize) -> Option<usize> {
    let next = usize::from(read_u16(page.get(record.checked_sub(2)?..)?, 0));
    (next > SUPREMUM && next < page.len()).then_some(next)
}

fn record_at(page: &[u8], record: usize) -> Option<(bool, Record<'_>)> {
    const HEADER_BYTES: usize = 6;
    const NULL_SHORT: u8 = 0x80;
    const NULL_OR_OUTSIDE: u16 = 0xC000;
    const FIELDS_MAX: u16 = 0x3FF;
    let header = page.get(record.checked_sub(HEADER_BYTES)?..record)?;
    let fields_and_form = read_u16(header, 2);
    let is_short = fields_and_form & 1 == 1;
    let fields = usize::from((fields_and_form >> 1) & FIELDS_MAX);
    let ends = page.get(..record.checked_sub(HEADER_BYTES)?)?;
    let mut begin = 0_usize;
    let mut parts = Vec::with_capacity(fields.min(16));
    for _ in 0..fields {
        let at = parts.len();
        let end = if is_short {
            let byte = *ends.get(ends.len().checked_sub(at)?.checked_sub(1)?)?;
            usize::from(byte & !NULL_SHORT)
        } else {
            let from_end = at.checked_add(1)?.checked_mul(2)?;
            let value = read_u16(ends.get(ends.len().checked_sub(from_end)?..)?, 0);
            usize::from(value & !NULL_OR_OUTSIDE)
        };
        parts.push(page.get(record.checked_add(begin)?..record.checked_add(end)?)?);
        begin = end;
    }
    let is_deleted = header.first().is_some_and(|flags| flags & DELETED != 0);
    Some((is_deleted, Record(parts)))
}

impl Record<'_> {
    /// A field.
    pub(super) fn field(&self, field: usize) -> Option<&[u8]> {
        self.0.get(field).copied()
    }

    /// The page below, of a record of an upper level.
    fn child(&self) -> Option<u32> {
        self.number(self.0.len().checked_sub(1)?)
    }

    /// A field of four bytes.
    pub(super) fn number(&self, field: usize) -> Option<u32> {
        self.0.get(field)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// The table's name, if it outlives its server.
    fn name(&self) -> Option<String> {
        let name = String::from_utf8(self.0.get(NAME)?.to_vec()).ok()?;
        let (_, table) = name.split_once('/')?;
        let is_fleeting = self.number(MIX_LEN)? & TEMPORARY != 0;
        (!is_fleeting && !super::names::is_temporary(table)).then_some(name)
    }

    /// The table's tablespace, if it must have one of its own or with others.
    fn named(&self) -> Option<Named> {
        let name = String::from_utf8(self.0.get(NAME)?.to_vec()).ok()?;
        let (_, table) = name.split_once('/')?;
        let (columns, form, flags) =
            (self.number(COLUMNS)?, self.number(TYPE)?, self.number(MIX_LEN)?);
        let space = self.number(SPACE)?;
        let has_none = space == 0 || space >= SPACES_END || flags & (TEMPORARY | DISCARDED) != 0;
        if has_none || super::names::is_temporary(table) {
            return None;
        }
        let is_believed = columns & IS_COMPACT != 0;
        let is_shared = form & SHARED != 0 && form & COMPRESSION_LEVEL == 0;
        let place = match form & DATA_DIRECTORY != 0 {
            true if is_believed => Placement::Linked,
            _ if is_shared && is_believed => Placement::Shared,
            _ if flags & OWN_FILE == 0 => Placement::HereOrDiscarded,
            _ => Placement::Here,
        };
        Some(Named { file: format!("{name}.ibd"), space: Some(space), place })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn records_that_lead_nowhere_end() {
        for byte in [0, 1, 2, 7, 0x80, 0xff] {
            let page = vec![byte; 4096];
            assert!(records(&page).len() <= page.len() / 8);
        }
        assert!(records(&[]).is_empty() && records(&[1; 100]).is_empty());
    }

    #[test]
    fn record_tells_where_its_table_is() {
        let number = |number: u32| number.to_be_bytes().to_vec();
        let place = |name: &str, columns: u32, form: u32, flags: u32, space: u32| {
            let fields = [
                name.as_bytes().to_vec(),
                vec![0; 6],
                vec![0; 7],
                vec![0; 8],
                number(columns),
                number(form),
                vec![0; 8],
                number(flags),
                Vec::new(),
                number(space),
            ];
            let record = Record(fields.iter().map(Vec::as_slice).collect());
            (record.named().map(|named| named.place), record.name().is_some())
        };
        for (name, columns, form, flags, space, expected) in [
            ("t/a", IS_COMPACT | 2, 33, 0x50, 5, (Some(Placement::Here), true)),
            ("t/a", IS_COMPACT | 2, 97, 0x50, 5, (Some(Placement::Linked), true)),
            ("t/a", IS_COMPACT | 2, 0xA1, 0x40, 5, (Some(Placement::Shared), true)),
            ("t/a", IS_COMPACT | 2, 0x6A1, 0x50, 5, (Some(Placement::Here), true)),
            ("t/old", 1, 1, 0x50, 6, (Some(Placement::Here), true)),
            ("t/a", IS_COMPACT | 2, 1, 0, 5, (Some(Placement::HereOrDiscarded), true)),
            ("t/disc", IS_COMPACT | 1, 33, 0x70, 24, (None, true)),
            ("t/tmp", IS_COMPACT | 1, 33, 0x51, 24, (None, false)),
            ("t/insys", IS_COMPACT | 1, 33, 0x40, 0, (None, true)),
            ("t/#sql-ib41", IS_COMPACT | 1, 33, 0x50, 27, (None, false)),
            ("SYS_VIRTUAL", 3, 1, 0x40, 0, (None, false)),
        ] {
            assert_eq!(place(name, columns, form, flags, space), expected, "{name} {form}");
        }
    }
}

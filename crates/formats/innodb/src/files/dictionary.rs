//! The files of tablespaces that the dictionary of MySQL 8.0 and later names.
//!
//! `mysql.tablespace_files` is a table in `mysql.ibd`. A record of its clustered index, in the
//! compact format, all integers big-endian:
//!
//! ```text
//! offset  size  field
//!     -7     1  bytes in the file's name, if below 128; else its 6 low bits are the high ones, and
//!               the byte before has the low ones
//!     -6     1  which fields are null
//!     -5     1  32: deleted
//!     -2     2  where the next record is, from here
//!      0     8  number of the tablespace
//!      8     4  number of the file in it: 1
//!     12    13  transaction, roll pointer; in upper levels 4: the page below
//!     25        the file's name: ./undo_001, u3.ibu, /srv/undo/undo_002
//! ```
//!
//! The index is known by its first record, which is that of `mysql.ibd` itself. So is that of
//! `mysql.tablespaces`, whose records begin like this:
//!
//! ```text
//! offset  size  field
//!     -7     -  bytes in each of the following that is not null, back to front, as above
//!     -6     1  1: no options; 2: no data of the engine
//!     -5     1  64, 128: made before the table was altered: not read here
//!      0     8  number of the tablespace
//!      8    13  transaction, roll pointer; in upper levels 4: the page below
//!     21     -  name, options, data of the engine: id=5;state=normal; and others
//! ```
//!
//! Sources: `rem0rec.h`, `page0page.h`, the tables of the dictionary; `mysql.ibd` of MySQL 9.7.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use crate::files::names::is_temporary;
use crate::files::tables::{Keys, Named, Placement, Unasked};
use crate::files::tablespace::{Context, Tablespace, open_file};
use crate::page::Look;
use crate::page::fields::{PAGE_TYPE, read_u16, read_u32, read_u64};
use crate::page::index::TYPE_INDEX;
use pagewarden_core::source::file::{open_regular, read_fully};

const PREVIOUS: usize = 8;
const NEXT: usize = 12;
const NO_PAGE: u32 = u32::MAX;
const LEVEL: usize = 64;
const INDEX_NUMBER: usize = 66;
const INFIMUM: usize = 99;
const SUPREMUM: usize = 112;
const DELETED: u8 = 32;
const FILE_NUMBER: usize = 8;
const CHILD: usize = 12;
const NAME: usize = 25;
const ENTRY_CHILD: usize = 8;
const ENTRY_NAME: usize = 21;
const DICTIONARY: &[u8] = b"mysql.ibd";

/// The roots of the dictionary's tables are made with it, at its beginning.
const ROOTS_END: u32 = 1024;
/// Tables by the million.
const PAGES_MAX: usize = 1 << 16;
const LEVELS_MAX: usize = 8;

/// The names of the undo tablespaces' files; `None` where that cannot be read.
pub(super) fn undo_files(root: &Path, keys: Keys<'_>) -> Option<Vec<String>> {
    let pages = Pages::open(root, keys)?;
    let names = pages.table(CHILD, is_of_dictionary, name_of)?;
    Some(names.into_iter().filter(|name| is_of_undo(name)).collect())
}

/// The tablespaces of tables, of partitions and of several tables, but those that were discarded.
pub(super) fn named(root: &Path, keys: Keys<'_>) -> Result<Vec<Named>, Unasked> {
    let Some(pages) = Pages::open(root, keys) else {
        return Err(Unasked::Broken("mysql.ibd cannot be opened".to_owned()));
    };
    if pages.opened.is_encrypted && !pages.opened.has_key {
        return Err(Unasked::Locked);
    }
    let read = || {
        let files = pages.table(CHILD, is_of_dictionary, |page, at| {
            Some((read_u64(page.get(at..)?, 0), name_of(page, at)?))
        })?;
        let is_first = |page: &[u8], at: usize| {
            Entry::parse(page, at).is_some_and(|entry| entry.number == 1 && entry.name == "mysql")
        };
        let entries = pages.table(ENTRY_CHILD, is_first, Entry::parse)?;
        Some((files, entries))
    };
    let Some((files, entries)) = read() else {
        return Err(Unasked::Broken(
            "a page of mysql.ibd fails, or is of no known form".to_owned(),
        ));
    };
    let entries: HashMap<_, _> = entries.into_iter().map(|it| (it.number, it)).collect();
    let those = files.into_iter().filter(|(_, file)| file.ends_with(".ibd"));
    let named = those.filter_map(|(number, file)| {
        let entry = entries.get(&number)?;
        let file = file.trim_start_matches("./").to_owned();
        let last = file.rsplit('/').next().unwrap_or(&file);
        let is_wanted = entry.number != 1 && !entry.is_discarded() && !is_temporary(last);
        let space = entry.space()?;
        is_wanted.then_some(Named { file, space: Some(space), place: Placement::Here })
    });
    Ok(named.collect())
}

/// A record of `mysql.tablespaces`.
#[derive(Debug)]
struct Entry {
    number: u64,
    name: String,
    /// What the engine keeps there: `id=5;state=normal;`.
    data: String,
}

impl Entry {
    fn parse(page: &[u8], record: usize) -> Option<Self> {
        const ALTERED: u8 = 0xC0;
        const NO_OPTIONS: u8 = 1;
        const NO_DATA: u8 = 2;
        let byte = |back: usize| page.get(record.checked_sub(back)?).copied();
        let nulls = byte(6)?;
        if byte(5)? & ALTERED != 0 || nulls & NO_DATA != 0 {
            return None;
        }
        let (name_bytes, mut back) = length_at(page, record, 7)?;
        let mut options_bytes = 0;
        if nulls & NO_OPTIONS == 0 {
            (options_bytes, back) = length_at(page, record, back)?;
        }
        let (data_bytes, _) = length_at(page, record, back)?;
        let rest = page.get(record.checked_add(ENTRY_NAME)?..)?;
        let (name, rest) = rest.split_at_checked(name_bytes)?;
        let data = rest.get(options_bytes..)?.get(..data_bytes)?;
        Some(Self {
            number: read_u64(page.get(record..)?, 0),
            name: String::from_utf8(name.to_vec()).ok()?,
            data: String::from_utf8(data.to_vec()).ok()?,
        })
    }

    fn value(&self, wanted: &str) -> Option<&str> {
        let mut pairs = self.data.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    fn space(&self) -> Option<u32> {
        self.value("id")?.parse().ok()
    }

    fn is_discarded(&self) -> bool {
        self.value("state") == Some("discarded") || self.value("discard") == Some("1")
    }
}

/// How long a field is, by its byte so far before the record; and where the next one is.
fn length_at(page: &[u8], record: usize, back: usize) -> Option<(usize, usize)> {
    const SHORT_MAX: u8 = 127;
    const OUTSIDE: u8 = 0x40;
    let byte = |back: usize| page.get(record.checked_sub(back)?).copied();
    let low = byte(back)?;
    let next = back.checked_add(1)?;
    match low {
        0..=SHORT_MAX => Some((usize::from(low), next)),
        _ if low & OUTSIDE != 0 => None,
        _ => {
            let length = usize::from(low & 0x3f) << 8 | usize::from(byte(next)?);
            Some((length, next.checked_add(1)?))
        }
    }
}

fn is_of_undo(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let is_numbered = last
        .strip_prefix("undo_")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
    is_numbered || last.ends_with(".ibu")
}

struct Pages {
    file: File,
    opened: Tablespace,
}

impl Pages {
    fn open(root: &Path, keys: Keys<'_>) -> Option<Self> {
        let path = root.join("mysql.ibd");
        let context = Context { keyring: keys.cloned(), ..Context::alone("mysql.ibd".to_owned()) };
        let opened = open_file(&path, context).ok()?;
        Some(Self { file: open_regular(&path).ok()?, opened })
    }

    /// The records of the table whose first one is the one that is looked for. `child` is where
    /// upper levels have the page below.
    fn table<T>(
        &self,
        child: usize,
        is_first: impl Fn(&[u8], usize) -> bool,
        parse: impl Fn(&[u8], usize) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut page = (0..ROOTS_END).find_map(|root| self.first_leaf(root, child, &is_first))?;
        let mut found = Vec::new();
        for _ in 0..PAGES_MAX {
            found.extend(records(&page).into_iter().filter_map(|record| parse(&page, record)));
            let next = read_u32(&page, NEXT);
            if next == NO_PAGE {
                return Some(found);
            }
            let index = read_u64(&page, INDEX_NUMBER);
            page = self.read(next).filter(|page| read_u64(page, INDEX_NUMBER) == index)?;
        }
        None
    }

    /// A page of an index that passes its test.
    fn read(&self, number: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; self.opened.geometry.layout.page_size];
        let offset = u64::from(number).checked_mul(u64::try_from(page.len()).ok()?)?;
        let count = read_fully(&self.file, &mut page, offset).ok()?;
        let is_sound = count == page.len()
            && matches!(self.opened.pages.look(u64::from(number), &page, None), Look::Sound(..));
        let clear = self.opened.pages.decrypted(&page).unwrap_or(page);
        (is_sound && read_u16(&clear, PAGE_TYPE) == TYPE_INDEX).then_some(clear)
    }

    /// The first leaf of the index with this root, if it is the one that is looked for.
    fn first_leaf(
        &self,
        root: u32,
        child: usize,
        is_first: &impl Fn(&[u8], usize) -> bool,
    ) -> Option<Vec<u8>> {
        let mut page = self.read(root)?;
        if read_u32(&page, PREVIOUS) != NO_PAGE || read_u32(&page, NEXT) != NO_PAGE {
            return None;
        }
        for _ in 0..LEVELS_MAX {
            let first = next_of(&page, INFIMUM)?;
            if read_u16(&page, LEVEL) == 0 {
                return is_first(&page, first).then_some(page);
            }
            page = self.read(read_u32(page.get(first..)?, child))?;
        }
        None
    }
}

/// True of the first record of `mysql.tablespace_files`.
fn is_of_dictionary(page: &[u8], record: usize) -> bool {
    const NUMBERS: [u8; CHILD] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    name_of(page, record).is_some_and(|name| name.as_bytes() == DICTIONARY)
        && page.get(record..).is_some_and(|record| record.starts_with(&NUMBERS))
}

/// Where the record behind this one is; `None` at the end.
fn next_of(page: &[u8], record: usize) -> Option<usize> {
    let offset = read_u16(page.get(record.checked_sub(2)?..)?, 0);
    // Forth or back, within the page.
    let mask = page.len().checked_sub(1)?;
    let next = record.checked_add(usize::from(offset))? & mask & usize::from(u16::MAX);
    (offset != 0 && next != SUPREMUM && next > SUPREMUM && next < page.len()).then_some(next)
}

/// Where the records of a leaf are that are not deleted.
fn records(page: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut record = next_of(page, INFIMUM);
    // A record takes more bytes than this.
    for _ in 0..page.len() / NAME {
        let Some(at) = record else { break };
        let flags = at.checked_sub(5).and_then(|flags| page.get(flags)).copied().unwrap_or(DELETED);
        if flags & DELETED == 0 {
            found.push(at);
        }
        record = next_of(page, at);
    }
    found
}

fn name_of(page: &[u8], record: usize) -> Option<String> {
    let (length, _) = length_at(page, record, 7)?;
    if read_u32(page.get(record..)?, FILE_NUMBER) == 0 {
        return None;
    }
    let name = page.get(record.checked_add(NAME)?..)?.get(..length)?;
    String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;
    use crate::files::fixture;

    #[test]
    fn undo_tablespaces_of_a_real_dictionary_are_found() {
        let Some(packed) = fixture("wild/mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst") else {
            return;
        };
        let mut bytes = zstd::stream::decode_all(&packed[..]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mysql.ibd");
        std::fs::write(&path, &bytes).unwrap();
        let names = undo_files(folder.path(), None).unwrap();
        assert!(
            names.starts_with(&["./undo_001".to_owned(), "./undo_002".to_owned()]),
            "{names:?}"
        );
        // A deleted record counts for nothing: it may be of a tablespace that was dropped.
        let name = b"./undo_002";
        let places: Vec<_> =
            (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
        for at in places {
            let page = at / 16_384 * 16_384;
            bytes[at - NAME - 5] |= DELETED;
            let crc = crate::checksum::crc32(&bytes[page..page + 16_384]).to_be_bytes();
            bytes[page..page + 4].copy_from_slice(&crc);
            bytes[page + 16_376..page + 16_380].copy_from_slice(&crc);
        }
        std::fs::write(&path, &bytes).unwrap();
        let without = undo_files(folder.path(), None).unwrap();
        assert_eq!(without.len() + 1, names.len(), "{without:?}");
        std::fs::write(&path, [7; 100_000]).unwrap();
        assert_eq!(undo_files(folder.path(), None), None);
    }

    #[test]
    fn tablespaces_of_a_real_dictionary_are_told_with_their_numbers() {
        let Some(packed) = fixture("wild/mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst") else {
            return;
        };
        let mut bytes = zstd::stream::decode_all(&packed[..]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mysql.ibd");
        std::fs::write(&path, &bytes).unwrap();
        let named = named(folder.path(), None).unwrap();
        let space = |file: &str| named.iter().find(|it| it.file == file).map(|it| it.space);
        assert_eq!(space("sys/sys_config.ibd"), Some(Some(1)));
        assert_eq!(space("t/part_s#p#p0#sp#p0sp0.ibd"), Some(Some(21)));
        assert!(space("gts1.ibd").is_some(), "{named:?}");
        for other in ["mysql.ibd", "t/discarded.ibd", "undo_001", "ibtmp1"] {
            assert_eq!(space(other), None, "{other}");
        }
        // A page that fails says nothing of the rest.
        let name = b"./t/blobs.ibd";
        let places: Vec<_> =
            (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(super::named(folder.path(), None), Err(Unasked::Broken(_))));
    }

    #[test]
    fn chains_of_records_that_lead_nowhere_end() {
        for byte in [0, 1, 2, 7, 0x80, 0xff] {
            let page = vec![byte; 4096];
            assert!(records(&page).len() <= page.len() / NAME);
        }
        assert!(records(&[]).is_empty() && records(&[1; 100]).is_empty());
    }
}

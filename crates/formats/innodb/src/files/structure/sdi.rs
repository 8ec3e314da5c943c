//! Where the definitions of indexes come from: the dictionary of a directory, read once, or the file.
//!
//! Of a table with partitions, MySQL keeps them in the file of the first one alone. A partition that
//! was exchanged with a table may have come with definitions of its own: those are older.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flate2::read::ZlibDecoder;

use crate::files::names;
use crate::files::structure::definition::{Index, Indexes, Told, read_sdi};
use crate::files::structure::{dictionary, transactions, zip};
use crate::files::system::sdi_root;
use crate::page::compression::{Unpacked, unpack_mysql};
use crate::page::fields::{PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED, read_u16, read_u32};
use crate::page::index::{IndexPage, TYPE_INSTANT};
use crate::page::layout::{Form, Layout};
use pagewarden_core::source::file::{open_regular, read_fully};

/// Pages of definitions, and of one that is long.
const PAGES_MAX: usize = 4096;
const LEVELS_MAX: usize = 8;

/// What a target knows of its indexes.
#[derive(Debug, Default)]
pub(in crate::files) struct Definitions {
    /// The folder of the system tablespace.
    folder: Option<PathBuf>,
    by_dictionary: OnceLock<HashMap<u32, Indexes>>,
    /// Of tables with partitions, by their files' names up to the partition.
    by_table: Mutex<HashMap<PathBuf, Indexes>>,
    last_transaction: OnceLock<Option<u64>>,
}

impl Definitions {
    /// Of a directory whose system tablespace is there.
    pub(in crate::files) fn of_directory(folder: PathBuf) -> Self {
        Self { folder: Some(folder), ..Self::default() }
    }

    /// No transaction has a larger number.
    pub(super) fn last_transaction(&self) -> Option<u64> {
        let read = || self.folder.as_deref().and_then(transactions::last);
        *self.last_transaction.get_or_init(read)
    }

    pub(super) fn of_file(&self, path: &Path, layout: Layout) -> Indexes {
        let Some(pages) = Pages::open(path, layout) else { return Indexes::new() };
        if let Some(told) = pages.told() {
            let of_table = self.of_partitions(path, layout);
            return of_table.filter(|it| !it.is_empty()).unwrap_or(told.indexes);
        }
        let read = || {
            let folder = self.folder.as_deref();
            folder.and_then(|it| dictionary::indexes(it).ok()).unwrap_or_default()
        };
        let all = self.by_dictionary.get_or_init(read);
        let own = pages.read(0).and_then(|first| all.get(&read_u32(&first, SPACE_ID)).cloned());
        let mut own = own.unwrap_or_default();
        pages.mark_altered(&mut own);
        own
    }

    /// What the file of the first partition says; `None` if the file is of no partition.
    fn of_partitions(&self, path: &Path, layout: Layout) -> Option<Indexes> {
        let parts = names::parts(path.file_stem()?.to_str()?);
        parts.partition?;
        let mut by_table = self.by_table.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || by_first_partition(path.parent()?, parts.table, layout);
        let table = by_table.entry(path.with_file_name(parts.table));
        Some(table.or_insert_with(|| read().unwrap_or_default()).clone())
    }
}

/// The definitions of a table, from the file of the partition that they name as the first.
fn by_first_partition(folder: &Path, table: &str, layout: Layout) -> Option<Indexes> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let parts = stem.map(names::parts).filter(|it| it.table == table);
        let partition = parts.and_then(|it| it.partition).map(names::decoded);
        let is_tablespace = path.extension().is_some_and(|ending| ending == "ibd");
        let Some(partition) = partition.filter(|_| is_tablespace) else { continue };
        let told = Pages::open(&path, layout).and_then(|pages| pages.told());
        let Some(Told { indexes, first_partition: Some(first) }) = told else { continue };
        if first.to_lowercase() == partition.to_lowercase() {
            return Some(indexes);
        }
    }
    None
}

struct Pages {
    file: File,
    layout: Layout,
}

impl Pages {
    fn open(path: &Path, layout: Layout) -> Option<Self> {
        Some(Self { file: open_regular(path).ok()?, layout })
    }

    fn read(&self, number: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; self.layout.page_size];
        let offset = u64::from(number).checked_mul(u64::try_from(page.len()).ok()?)?;
        let count = read_fully(&self.file, &mut page, offset).ok()?;
        if count != page.len() || read_u32(&page, 4) != number {
            return None;
        }
        match read_u16(&page, PAGE_TYPE) {
            TYPE_COMPRESSED => match unpack_mysql(&page) {
                Unpacked::Page(page) => Some(page),
                Unpacked::Unsupported | Unpacked::Broken(_) => None,
            },
            _ => Some(page),
        }
    }

    /// MariaDB gives the root of a table with instant columns a type of its own.
    fn mark_altered(&self, indexes: &mut Indexes) {
        for index in indexes.values_mut() {
            const FIRST_FIELDS: usize = 50;
            let root = self.read(index.root);
            let Some(root) = root.filter(|it| read_u16(it, PAGE_TYPE) == TYPE_INSTANT) else {
                continue;
            };
            // Where columns were removed or moved, too, the root has no word at its beginning.
            let page = IndexPage::new(&root);
            let is_altered = page.is_none_or(|page| page.test_words().is_err());
            let first_count = Some(usize::from(read_u16(&root, FIRST_FIELDS) >> 3));
            *index = Arc::new(Index { is_altered, first_count, ..(**index).clone() });
        }
    }

    /// `None` if the file has no definitions.
    fn told(&self) -> Option<Told> {
        let first = self.read(0)?;
        let mut number = u32::try_from(sdi_root(&self.layout, &first)?).ok()?;
        let mut found = Told::default();
        let mut page = self.read_index(number)?;
        for _ in 0..LEVELS_MAX {
            let index = IndexPage::new(&page)?;
            if index.level() == 0 {
                break;
            }
            // Kind and number are the key: the page below is behind them.
            let place = index.records().next()?;
            number = read_u32(page.get(place.origin..)?, 12);
            page = self.read_index(number)?;
        }
        for _ in 0..PAGES_MAX {
            let index = IndexPage::new(&page)?;
            read_sdi(&index, |first| self.chain(first), &mut found);
            let [_, next] = index.beside();
            let Some(next) = next else { break };
            page = self.read_index(next)?;
        }
        Some(found)
    }

    /// A page of an index in the clear.
    fn read_index(&self, number: u32) -> Option<Vec<u8>> {
        let page = self.read(number)?;
        match self.layout.form {
            Form::Zip => zip::unpack(&IndexPage::new(&page)?, self.layout.logical_page_size).ok(),
            Form::FullCrc32 | Form::Old => Some(page),
        }
    }

    /// A long value of a compressed table: one stream from byte 38 of each page on, the next page at 12.
    fn compressed_chain(&self, first: u32) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut number = first;
        for _ in 0..PAGES_MAX {
            let Some(page) = self.read(number) else { break };
            stream.extend(page.get(38..).unwrap_or_default());
            number = read_u32(&page, 12);
            if number == u32::MAX || number == 0 {
                break;
            }
        }
        let mut value = Vec::new();
        let bytes = u64::try_from(stream.len()).unwrap_or(u64::MAX);
        // It is compressed already.
        let _ = ZlibDecoder::new(&stream[..]).take(bytes.saturating_mul(2)).read_to_end(&mut value);
        value
    }

    /// A long value: bytes and next page from byte 38 on.
    fn chain(&self, first: u32) -> Vec<u8> {
        if self.layout.form == Form::Zip {
            return self.compressed_chain(first);
        }
        let mut value = Vec::new();
        let mut number = first;
        for _ in 0..PAGES_MAX {
            let Some(page) = self.read(number) else { break };
            let length = usize::try_from(read_u32(&page, 38)).unwrap_or(0);
            let rest = page.get(46..).unwrap_or_default();
            // SDI is compressed already, and may be marked so.
            value.extend(rest.get(..length).unwrap_or(rest));
            number = read_u32(&page, 42);
            if number == u32::MAX || number == 0 {
                break;
            }
        }
        value
    }
}

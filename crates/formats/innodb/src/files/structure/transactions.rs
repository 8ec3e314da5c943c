//! The last transaction of a server, by its system tablespace: no page has one with a larger number.
//!
//! | place | what |
//! |---|---|
//! | page 5, 38 | MySQL, MariaDB up to 10.2: the next number, rounded up to 256 now and then |
//! | page 5, 56, 8 each | rollback segments: tablespace, page |
//! | a rollback segment, behind its slots | MariaDB from 10.3 on: the last number of its transactions |
//!
//! Sources: `trx0sys.h`, `trx0rseg.h` of MariaDB 10.11 and MySQL 8.0.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::files::tablespace::{Context, Tablespace, is_tablespace_name, open_file};
use crate::page::Look;
use crate::page::fields::{BODY, read_u32, read_u64};
use pagewarden_core::source::file::{open_regular, read_fully};

const TRANSACTION_PAGE: u32 = 5;
/// A server that starts begins at least twice this behind what is written.
const MARGIN: u64 = 256;
const SEGMENTS: usize = BODY + 18;
const SEGMENTS_COUNT: usize = 128;
const SLOTS: usize = BODY + 34;
/// A slot of four bytes for each sixteen of a page.
const BYTES_PER_SLOT_BYTE: usize = 4;
const NONE: u32 = u32::MAX;

/// A number of a transaction in a record: six bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

struct Pages {
    file: File,
    opened: Tablespace,
}

impl Pages {
    fn open(path: &Path) -> Option<Self> {
        let opened = open_file(path, Context::alone(String::new())).ok()?;
        Some(Self { file: open_regular(path).ok()?, opened })
    }

    /// A page that passes its test.
    fn read(&self, number: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; self.opened.geometry.layout.page_size];
        let offset = u64::from(number).checked_mul(u64::try_from(page.len()).ok()?)?;
        let count = read_fully(&self.file, &mut page, offset).ok()?;
        let look = self.opened.pages.look(u64::from(number), &page, None);
        (count == page.len() && matches!(look, Look::Sound(..))).then_some(page)
    }
}

/// The last number, if all that has it can be read.
pub(super) fn last(folder: &Path) -> Option<u64> {
    let system = Pages::open(&folder.join("ibdata1"))?;
    let page = system.read(TRANSACTION_PAGE)?;
    let next = read_u64(&page, BODY).checked_add(MARGIN.checked_mul(3)?)?;
    let mut others: HashMap<u32, Pages> = HashMap::new();
    for path in undo_files(folder) {
        let pages = Pages::open(&path)?;
        others.insert(pages.opened.geometry.space_id?, pages);
    }
    let mut last = next;
    let slots = page.get(SEGMENTS..)?.chunks_exact(8).take(SEGMENTS_COUNT);
    for (space, number) in slots.map(|slot| (read_u32(slot, 0), read_u32(slot, 4))) {
        if number == NONE || space == NONE {
            continue;
        }
        let segment = match space {
            0 => system.read(number)?,
            // Of temporary tables, or of a server that has them elsewhere.
            _ => match others.get(&space) {
                Some(pages) => pages.read(number)?,
                None => return None,
            },
        };
        let at = SLOTS.checked_add(segment.len() / BYTES_PER_SLOT_BYTE)?;
        last = last.max(read_u64(&segment, at).checked_add(MARGIN)?);
    }
    Some(last)
}

fn undo_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_undo = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("undo") && is_tablespace_name(&name))
    };
    entries.map(|entry| entry.path()).filter(is_undo).collect()
}

//! Whether a relation is established: listed by a catalogue row that is
//! committed and current, so that all of its pages have been synced once.
//!
//! What lies in a cluster's folders without such a row is being built, or was
//! left behind by a crash, and its pages may be torn for ever without any harm.
//! The rows are read from the files, without a server. Every doubt (a page that
//! fails, a row that is being changed, an unknown version) is a no.
//!
//! ```text
//! tuple:     t_xmin (4) t_xmax (4) ... t_infomask @20 (2) t_hoff @22 (1), data at t_hoff
//! pg_class:  oid (4, from 12 on; before in front of the data), relname (64),
//!            relnamespace reltype reloftype relowner relam relfilenode
//!            reltablespace relpages (4 each), reltuples relallvisible (4 each),
//!            from 18 relallfrozen (4), reltoastrelid (4), relhasindex
//!            relisshared relpersistence relkind (1 each)
//! pg_xact:   two bits a transaction, 1 means committed; 32 pages a file
//! ```
//!
//! Sources: `src/include/access/htup_details.h`, `src/include/catalog/pg_class.h`
//! and `pg_database.h` of 9.6 to 18, `src/backend/access/transam/clog.c`.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::checksum::postgres::{checksum, hash_pages};
use crate::page::postgres::{Checksums, HEADER_BYTES, Header};
use crate::source::file::open_regular;
use crate::target::postgres::control::{Control, u32_at};
use crate::target::postgres::maps::{self, MAP_BYTES_MAX};
use crate::target::postgres::read_small;
use crate::target::postgres::wal::block::Locator;
use crate::target::postgres::wal::segment::read_fully;

/// The oid of the tablespace that is `base`.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// The oid of the tablespace that is `global`.
pub const GLOBAL_TABLESPACE: u32 = 1664;

const PG_CLASS: u32 = 1259;
const PG_DATABASE: u32 = 1262;
/// Pages of a catalogue that are read at a time.
const PAGES_AT_ONCE: usize = 16;

/// `HEAP_HASOID`, up to 11.
const HAS_OID: u16 = 0x0008;
const XMAX_LOCK_ONLY: u16 = 0x0080;
const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_INVALID: u16 = 0x0200;
const XMAX_INVALID: u16 = 0x0800;
const XMAX_IS_MULTI: u16 = 0x1000;
/// The first transaction that is no constant: those below are always committed.
const FIRST_TRANSACTION: u32 = 3;

/// Access methods of indexes whose pages are changed by the rules: btree, hash,
/// gist, gin, spgist, brin.
const INDEX_METHODS: [u32; 6] = [403, HASH, 783, 2742, 4000, 3580];
const HASH: u32 = 405;
/// The access method of tables, which has a number since 12.
const HEAP: u32 = 2;

/// The catalogues of a cluster, as they are on disk.
#[derive(Debug, Clone)]
pub struct Catalogue {
    root: PathBuf,
    page_size: usize,
    max_align: u16,
    checksums: Checksums,
    segment_pages: u32,
    /// 9 stands for 9.6.
    major: u32,
    /// As in `PG_15_202209061`.
    version_folder: String,
}

impl Catalogue {
    /// The catalogues below `root`; `None` for versions whose rows are unknown.
    #[must_use]
    pub fn find(root: &Path, version: &str, control: &Control) -> Option<Self> {
        let major = match version {
            "9.6" => 9,
            other => other.parse().ok().filter(|major| (10..=18).contains(major))?,
        };
        Some(Self {
            root: root.to_owned(),
            page_size: control.page_size,
            max_align: control.max_align,
            checksums: control.checksums,
            segment_pages: control.segment_pages,
            major,
            version_folder: format!("PG_{version}_{}", control.catalog_version),
        })
    }

    /// True if the main fork of this relation has been complete and synced at
    /// some time.
    #[must_use]
    pub fn establishes(&self, locator: Locator) -> bool {
        self.look_for(locator).is_some()
    }

    fn look_for(&self, locator: Locator) -> Option<()> {
        let Locator { tablespace, database, number } = locator;
        if database == 0 {
            let map = read_small(&self.root.join("global/pg_filenode.map"), MAP_BYTES_MAX).ok()?;
            return (tablespace == GLOBAL_TABLESPACE && maps::names_file(&map, number))
                .then_some(());
        }
        let home = self.tablespace_of(database)?;
        let folder = self.folder(home, database);
        let map = read_small(&folder.join("pg_filenode.map"), MAP_BYTES_MAX).ok()?;
        if tablespace == home && maps::names_file(&map, number) {
            return Some(());
        }
        let pg_class = folder.join(maps::file_number(&map, PG_CLASS)?.to_string());
        let mut found = None;
        self.rows(&pg_class, |row| {
            if row.relation(self.major).is_some_and(|relation| {
                let place = Some(relation.tablespace).filter(|oid| *oid != 0).unwrap_or(home);
                relation.file == number && place == tablespace && relation.is_complete(self.major)
            }) && self.is_current(&row)
            {
                found = Some(());
            }
        });
        found
    }

    /// The default tablespace of a database, if the database itself is
    /// established.
    fn tablespace_of(&self, database: u32) -> Option<u32> {
        // Behind oid, name, owner, encoding: the two locales up to 14, the
        // provider from 15 on; then flags, limits, horizons.
        let at = match self.major {
            9..=11 => 220,
            12..=14 => 224,
            _ => 92,
        };
        let map = read_small(&self.root.join("global/pg_filenode.map"), MAP_BYTES_MAX).ok()?;
        let file = maps::file_number(&map, PG_DATABASE)?;
        let mut found = None;
        self.rows(&self.root.join("global").join(file.to_string()), |row| {
            if row.oid(self.major) == Some(database) && self.is_current(&row) {
                found = u32_at(row.data, at);
            }
        });
        found
    }

    fn folder(&self, tablespace: u32, database: u32) -> PathBuf {
        let database = database.to_string();
        if tablespace == DEFAULT_TABLESPACE {
            return self.root.join("base").join(database);
        }
        let link = self.root.join("pg_tblspc").join(tablespace.to_string());
        link.join(&self.version_folder).join(database)
    }

    /// Calls `each` for the rows on all sound pages of a catalogue.
    fn rows(&self, first_file: &Path, mut each: impl FnMut(Row<'_>)) {
        let mut chunk = vec![0_u8; self.page_size.saturating_mul(PAGES_AT_ONCE)];
        for segment in 0_u32.. {
            let mut path = first_file.as_os_str().to_owned();
            if segment > 0 {
                path.push(format!(".{segment}"));
            }
            let Ok(file) = open_regular(Path::new(&path)) else { return };
            let mut block = segment.saturating_mul(self.segment_pages);
            let mut offset = 0_u64;
            loop {
                let filled = read_fully(&file, &mut chunk, offset).unwrap_or(0);
                let pages = chunk.get(..filled).unwrap_or_default();
                for page in pages.chunks_exact(self.page_size) {
                    if self.is_sound(page, block) {
                        rows_of_page(page, &mut each);
                    }
                    block = block.saturating_add(1);
                }
                if filled < chunk.len() {
                    break;
                }
                offset = offset.saturating_add(filled as u64);
            }
        }
    }

    fn is_sound(&self, page: &[u8], block: u32) -> bool {
        let Some(header) = Header::read(page).filter(|header| header.upper > 0) else {
            return false;
        };
        if self.checksums == Checksums::On {
            let mut hash = [0_u32];
            hash_pages(page, self.page_size, &mut hash);
            let [hash] = hash;
            if checksum(hash, block) != header.checksum {
                return false;
            }
        }
        header.fault(self.page_size, self.max_align).is_none()
    }

    /// True if the row was committed, and nobody has replaced or removed it,
    /// or is about to.
    fn is_current(&self, row: &Row<'_>) -> bool {
        let committed = match row.mask & (XMIN_COMMITTED | XMIN_INVALID) {
            XMIN_INVALID => false,
            0 => row.xmin < FIRST_TRANSACTION || self.is_committed(row.xmin) == Some(true),
            // Committed, or frozen: both bits.
            _ => true,
        };
        let locked_only = row.mask & XMAX_LOCK_ONLY != 0 && row.mask & XMAX_IS_MULTI == 0;
        committed && (row.xmax == 0 || row.mask & XMAX_INVALID != 0 || locked_only)
    }

    fn is_committed(&self, transaction: u32) -> Option<bool> {
        const PAGES_A_FILE: u64 = 32;
        let folder = if self.major < 10 { "pg_clog" } else { "pg_xact" };
        let file_bytes = PAGES_A_FILE.checked_mul(u64::try_from(self.page_size).ok()?)?;
        let at = u64::from(transaction / 4);
        let name = format!("{:04X}", at.checked_div(file_bytes)?);
        let file: File = open_regular(&self.root.join(folder).join(name)).ok()?;
        let mut byte = [0_u8];
        let filled = read_fully(&file, &mut byte, at.checked_rem(file_bytes)?).ok()?;
        let [byte] = byte;
        (filled == 1).then_some(byte >> ((transaction % 4) * 2) & 3 == 1)
    }
}

/// A row of a catalogue, whether it counts or not.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    xmin: u32,
    xmax: u32,
    mask: u16,
    /// In front of the data, up to 11.
    hidden_oid: Option<u32>,
    data: &'a [u8],
}

/// What `pg_class` says of a relation.
#[derive(Debug, Clone, Copy)]
struct Relation {
    method: u32,
    file: u32,
    /// 0 for the database's default.
    tablespace: u32,
    pages: u32,
    persistence: u8,
    kind: u8,
}

impl Row<'_> {
    fn oid(&self, major: u32) -> Option<u32> {
        if major < 12 { self.hidden_oid } else { u32_at(self.data, 0) }
    }

    fn relation(&self, major: u32) -> Option<Relation> {
        const NAME_BYTES: usize = 64;
        let oid_bytes = if major < 12 { 0 } else { 4 };
        let frozen_bytes = if major < 18 { 0 } else { 4 };
        let fields = self.data.get(oid_bytes + NAME_BYTES..)?;
        let kinds = fields.get(44 + frozen_bytes..)?;
        Some(Relation {
            method: u32_at(fields, 16)?,
            file: u32_at(fields, 20)?,
            tablespace: u32_at(fields, 24)?,
            pages: u32_at(fields, 28)?,
            persistence: *kinds.get(2)?,
            kind: *kinds.get(3)?,
        })
    }
}

impl Relation {
    /// True if its pages follow the rules, and were all synced before the row
    /// could look like this.
    fn is_complete(&self, major: u32) -> bool {
        let follows_rules = match self.kind {
            b'r' | b't' | b'm' => self.method == if major < 12 { 0 } else { HEAP },
            b'S' => true,
            b'i' => {
                let logged = self.method != HASH || major >= 10;
                logged && self.pages > 0 && INDEX_METHODS.contains(&self.method)
            }
            _ => false,
        };
        follows_rules && self.persistence == b'p'
    }
}

/// Calls `each` for every tuple that a line pointer of the page leads to.
fn rows_of_page(page: &[u8], each: &mut impl FnMut(Row<'_>)) {
    const NORMAL: u32 = 1;
    let Some(lower) = Header::read(page).map(|header| usize::from(header.lower)) else { return };
    let pointers = page.get(HEADER_BYTES..lower).unwrap_or_default();
    for pointer in pointers.chunks_exact(4) {
        // 15 bits of offset, 2 of state, 15 of length.
        let pointer = u32_at(pointer, 0).unwrap_or(0);
        if pointer >> 15 & 3 != NORMAL {
            continue;
        }
        let begin = pointer as usize & 0x7FFF;
        let length = (pointer >> 17) as usize;
        let tuple = page.get(begin..).and_then(|rest| rest.get(..length));
        if let Some(row) = tuple.and_then(row) {
            each(row);
        }
    }
}

fn row(tuple: &[u8]) -> Option<Row<'_>> {
    let mask = u16::from_le_bytes(*tuple.get(20..)?.first_chunk()?);
    let data_begin = usize::from(*tuple.get(22)?);
    let hidden_oid = match mask & HAS_OID {
        0 => None,
        _ => u32_at(tuple, data_begin.checked_sub(4)?),
    };
    Some(Row {
        xmin: u32_at(tuple, 0)?,
        xmax: u32_at(tuple, 4)?,
        mask,
        hidden_oid,
        data: tuple.get(data_begin..)?,
    })
}

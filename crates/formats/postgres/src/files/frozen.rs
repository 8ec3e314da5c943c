//! Whether the tables of a tablespace are frozen: no row of them will ever need the
//! transaction logs again, so that the files may stay as they are for good.
//!
//! A block counts as frozen if both say so that know:
//!
//! | who | what |
//! | --- | --- |
//! | the visibility map | both bits of the block are set |
//! | the page itself | `PD_ALL_VISIBLE` is set; no line pointer is dead; of every tuple xmin is frozen and there is no xmax |
//!
//! A block of zeroes has no rows. Indexes hold no transactions, and the one row of a
//! sequence is frozen from the beginning.
//!
//! Sources: `heap_tuple_needs_eventual_freeze` in `src/backend/access/heap/heapam.c`
//! and `src/backend/access/heap/visibilitymap.c`, 9.6 to 18.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::catalogue::relations::{
    Certainty, Persistence, Relation, RelationKind, Relations,
};
use crate::files::catalogue::transactions::Moment;
use crate::files::catalogue::tuple::Tuple;
use crate::files::catalogue::{Catalogue, DEFAULT_TABLESPACE, Database, GLOBAL_TABLESPACE};
use crate::files::names::Fork;
use crate::files::state::Circumstances;
use crate::files::witness::heap::{self, LinePointer, line_pointers};
use crate::files::witness::visibility_map;
use crate::files::{read_control_settled, sanitised};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::read_small;
use pagewarden_core::source::file::{open_regular, read_fully};

/// Both bits of `t_infomask` that mean that xmin is frozen.
const XMIN_FROZEN: u16 = 0x0300;
const XMAX_IS_MULTI: u16 = 0x1000;
const MOVED: u16 = 0xC000;
/// The first transaction that is no constant.
const FIRST_TRANSACTION: u32 = 3;
/// Pages that are read at a time.
const PAGES_AT_ONCE: usize = 128;

/// A tablespace of a cluster that is shut down.
#[derive(Debug, Clone)]
pub struct Tablespace {
    /// Its oid.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// The folder of this server version behind its link in `pg_tblspc`.
    pub version_folder: PathBuf,
    /// What its link leads to.
    pub folder: PathBuf,
    catalogue: Catalogue,
    page_size: usize,
}

/// A table of which something is not frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfrozen {
    /// The database it is in.
    pub database: String,
    /// The table, as SQL would have it.
    pub table: String,
    /// What is not frozen.
    pub reason: String,
    /// The statement that changes that.
    pub statement: String,
}

fn refuse<T>(path: &Path, reason: impl Into<String>, hint: impl Into<String>) -> Result<T, Error> {
    Err(Error::refused(path, reason, hint))
}

impl Tablespace {
    /// Finds a tablespace by its name, or its oid.
    ///
    /// # Errors
    /// It is no cluster, or one that is not shut down, or has no such tablespace, or
    /// its catalogues cannot be read.
    pub fn find(root: &Path, name: &str) -> Result<Self, Error> {
        let version = read_small(&root.join("PG_VERSION"), 64)
            .map_err(|error| Error::io("open", &root.join("PG_VERSION"), error))?;
        let version = sanitised(String::from_utf8_lossy(&version).trim());
        let control = root.join("global/pg_control");
        let control =
            read_control_settled(root).map_err(|error| Error::io("read", &control, error))?;
        let control = match control {
            Ok(control) => control,
            Err(fault) => {
                return refuse(root, fault.detail, "check the cluster: pagewarden check");
            }
        };
        if !Circumstances::find(root, Some(&control)).is_settled() {
            return refuse(root, "it is not shut down cleanly", "shut the server down first");
        }
        let Some(catalogue) = Catalogue::find(root, &version, &control) else {
            let reason = format!("the catalogues of version {version} are not known");
            return refuse(root, reason, "pack the whole cluster");
        };
        let (known, gaps) = catalogue.tablespaces(Moment::AtRest);
        if let Some(gap) = gaps.listed.first() {
            let reason = format!("its catalogues cannot be read: {gap}");
            return refuse(root, reason, "check the cluster: pagewarden check");
        }
        let found = known.iter().find(|one| one.name == name);
        let by_oid = || known.iter().find(|one| one.oid.to_string() == name);
        let listed = found.or_else(by_oid).map(|one| (&one.oid, &one.name));
        let Some((oid, name)) = listed else {
            let names: Vec<_> = known
                .iter()
                .filter(|one| ![DEFAULT_TABLESPACE, GLOBAL_TABLESPACE].contains(&one.oid))
                .map(|one| one.name.as_str())
                .collect();
            let hint = match names.as_slice() {
                [] => "it has none but its own".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            return refuse(root, format!("it has no tablespace {name}"), hint);
        };
        if [DEFAULT_TABLESPACE, GLOBAL_TABLESPACE].contains(oid) {
            let hint =
                "move the tables to a tablespace of their own: ALTER TABLE ... SET TABLESPACE";
            return refuse(root, format!("{name} is part of the cluster itself"), hint);
        }
        let link = root.join("pg_tblspc").join(oid.to_string());
        let folder =
            std::fs::canonicalize(&link).map_err(|error| Error::io("follow", &link, error))?;
        let version_folder = catalogue.version_folder(*oid);
        if !version_folder.is_dir() {
            return refuse(&version_folder, "it is not there", "is the right file system mounted?");
        }
        Ok(Self {
            oid: *oid,
            name: name.clone(),
            version_folder,
            folder,
            catalogue,
            page_size: control.page_size,
        })
    }

    /// The tables in it of which something is not frozen.
    ///
    /// # Errors
    /// Something cannot be read, or no VACUUM will make it fit to stay as it is.
    pub fn unfrozen(&self) -> Result<Vec<Unfrozen>, Error> {
        let mut unfrozen = Vec::new();
        let databases = self.catalogue.databases(Moment::AtRest);
        self.no_gaps(databases.gaps.listed.first())?;
        for database in &databases.listed {
            if database.tablespace == self.oid {
                let reason = format!("database {} has its catalogues in it", database.name);
                let hint = "ALTER DATABASE ... SET TABLESPACE moves them";
                return refuse(&self.version_folder, reason, hint);
            }
            if !self.catalogue.folder(self.oid, database.oid).is_dir() {
                continue;
            }
            let relations = self.catalogue.relations(database, Moment::AtRest);
            self.no_gaps(relations.gaps.listed.first())?;
            for relation in relations.iter().filter(|one| one.tablespace == self.oid) {
                unfrozen.extend(self.look_at(database, &relations, relation)?);
            }
        }
        Ok(unfrozen)
    }

    fn no_gaps(&self, gap: Option<&crate::files::catalogue::pages::Gap>) -> Result<(), Error> {
        match gap {
            None => Ok(()),
            Some(gap) => {
                let reason = format!("the catalogues of its cluster cannot be read: {gap}");
                refuse(&self.version_folder, reason, "check the cluster: pagewarden check")
            }
        }
    }

    fn look_at(
        &self,
        database: &Database,
        relations: &Relations,
        relation: &Relation,
    ) -> Result<Option<Unfrozen>, Error> {
        let name = relations.name(relation);
        let shown = format!("{name} in database {}", database.name);
        if relation.persistence != Persistence::Permanent {
            let hint = format!("in database {}: ALTER TABLE {name} SET LOGGED", database.name);
            return refuse(&self.version_folder, format!("{shown} is not logged"), hint);
        }
        if relation.certainty == Certainty::InDoubt {
            let hint = "end what is prepared, and try again";
            return refuse(&self.version_folder, format!("{shown} is in doubt"), hint);
        }
        match relation.kind {
            RelationKind::Index | RelationKind::Sequence => return Ok(None),
            _ if !relation.is_heap() => {
                let reason = format!("{shown} is no heap, and nothing is known of its rows");
                return refuse(&self.version_folder, reason, "move it to another tablespace");
            }
            _ => {}
        }
        let folder = self.catalogue.folder(self.oid, database.oid);
        let counts = count(&folder, relation.number, self.page_size)?;
        let (by_map, by_rows) = (counts.not_by_map, counts.not_by_rows);
        if by_map == 0 && by_rows == 0 {
            return Ok(None);
        }
        let reason = format!(
            "of {} pages {by_map} are not frozen by the visibility map, {by_rows} by their rows",
            counts.pages
        );
        // VACUUM skips what the map says is frozen.
        let options = if by_map == 0 { "FREEZE, DISABLE_PAGE_SKIPPING" } else { "FREEZE" };
        // A TOAST table is vacuumed with its table.
        let owner = relations.by_oid(relation.owner).filter(|_| relation.owner != 0);
        let table = relations.name(owner.unwrap_or(relation));
        let statement = format!("VACUUM ({options}) {table};");
        Ok(Some(Unfrozen { database: database.name.clone(), table: name, reason, statement }))
    }
}

/// Pages of a table, and how many of them are not frozen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    pages: u64,
    not_by_map: u64,
    not_by_rows: u64,
}

fn count(folder: &Path, number: u32, page_size: usize) -> Result<Counts, Error> {
    let mut frozen: Vec<u64> = Vec::new();
    pages(folder, number, Fork::Visibility, page_size, |block, page| {
        visibility_map::visit(page, block, |heap_block, is_frozen| {
            let index = usize::try_from(heap_block / u64::BITS).unwrap_or(usize::MAX);
            if is_frozen && index < usize::MAX {
                if frozen.len() <= index {
                    frozen.resize(index.saturating_add(1), 0);
                }
                if let Some(word) = frozen.get_mut(index) {
                    *word |= 1 << (heap_block % u64::BITS);
                }
            }
        });
    })?;
    let is_in_map = |block: u32| {
        let index = usize::try_from(block / u64::BITS).unwrap_or(usize::MAX);
        frozen.get(index).is_some_and(|word| word >> (block % u64::BITS) & 1 == 1)
    };
    let mut counts = Counts::default();
    pages(folder, number, Fork::Main, page_size, |block, page| {
        counts.pages = counts.pages.saturating_add(1);
        if page.iter().all(|byte| *byte == 0) {
            return;
        }
        if !is_in_map(block) {
            counts.not_by_map = counts.not_by_map.saturating_add(1);
        }
        if !is_frozen(page) {
            counts.not_by_rows = counts.not_by_rows.saturating_add(1);
        }
    })?;
    Ok(counts)
}

/// True if nothing on a page of a heap needs a transaction log.
fn is_frozen(page: &[u8]) -> bool {
    let is_visible = heap::is_all_visible(page);
    is_visible
        && line_pointers(page).all(|pointer| match pointer {
            LinePointer::Unused | LinePointer::Redirect(_) => true,
            LinePointer::Dead => false,
            LinePointer::Normal { offset, length } => {
                let rest = page.get(usize::from(offset)..).unwrap_or_default();
                let tuple = rest.get(..usize::from(length)).and_then(Tuple::parse);
                tuple.is_some_and(|tuple| is_frozen_tuple(&tuple))
            }
        })
}

fn is_frozen_tuple(tuple: &Tuple<'_>) -> bool {
    let made = tuple.flags & XMIN_FROZEN == XMIN_FROZEN || tuple.xmin < FIRST_TRANSACTION;
    let removed = match tuple.flags & XMAX_IS_MULTI {
        0 => tuple.xmax >= FIRST_TRANSACTION,
        _ => tuple.xmax != 0,
    };
    made && !removed && tuple.flags & MOVED == 0
}

/// Calls `each` for all pages of a fork, with their numbers. A map that is not
/// there has no pages.
fn pages(
    folder: &Path,
    number: u32,
    fork: Fork,
    page_size: usize,
    mut each: impl FnMut(u32, &[u8]),
) -> Result<(), Error> {
    let mut chunk = vec![0_u8; page_size.saturating_mul(PAGES_AT_ONCE)];
    let mut block = 0_u32;
    for segment in 0_u32.. {
        let mut name = format!("{number}{}", fork.suffix());
        if segment > 0 {
            name.push_str(&format!(".{segment}"));
        }
        let path = folder.join(name);
        let may_be_absent = segment > 0 || fork == Fork::Visibility;
        let file = match open_regular(&path) {
            Err(error) if may_be_absent && error.kind() == io::ErrorKind::NotFound => break,
            opened => opened.map_err(|error| Error::io("open", &path, error))?,
        };
        let mut offset = 0_u64;
        loop {
            let filled = read_fully(&file, &mut chunk, offset)
                .map_err(|error| Error::io("read", &path, error))?;
            for page in chunk.get(..filled).unwrap_or_default().chunks_exact(page_size) {
                each(block, page);
                block = block.saturating_add(1);
            }
            if filled < chunk.len() {
                break;
            }
            offset = offset.saturating_add(filled as u64);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_ALL_VISIBLE;

    fn page(tuples: &[(u32, u32, u16)], flags: u16) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let lower = 24 + tuples.len() * 4;
        page[10..12].copy_from_slice(&flags.to_le_bytes());
        page[12..14].copy_from_slice(&u16::try_from(lower).unwrap().to_le_bytes());
        for (index, (xmin, xmax, infomask)) in tuples.iter().enumerate() {
            let at = 8192 - 32 * (index + 1);
            let pointer = u32::try_from(at).unwrap() | 1 << 15 | 32 << 17;
            page[24 + index * 4..28 + index * 4].copy_from_slice(&pointer.to_le_bytes());
            page[at..at + 4].copy_from_slice(&xmin.to_le_bytes());
            page[at + 4..at + 8].copy_from_slice(&xmax.to_le_bytes());
            page[at + 20..at + 22].copy_from_slice(&infomask.to_le_bytes());
            page[at + 22] = 24;
        }
        page
    }

    #[test]
    fn what_needs_a_transaction_log_is_not_frozen() {
        for (xmin, xmax, infomask, expected) in [
            (700, 0, 0x0B00, true),
            (2, 0, 0x0900, true),
            (700, 0, 0x0900, false),
            (700, 0, 0x0A00, false),
            (700, 701, 0x0B00, false),
            (700, 701, 0x0380, false),
            (700, 1, 0x1380, false),
            (700, 0, 0x4B00, false),
        ] {
            let whole = page(&[(700, 0, 0x0B00), (xmin, xmax, infomask)], PAGE_ALL_VISIBLE);
            assert_eq!(is_frozen(&whole), expected, "{xmin} {xmax} {infomask:#06x}");
        }
        assert!(!is_frozen(&page(&[(700, 0, 0x0B00)], 0)), "the page must say so");
        let mut dead = page(&[(700, 0, 0x0B00)], PAGE_ALL_VISIBLE);
        dead[24..28].copy_from_slice(&(3_u32 << 15).to_le_bytes());
        assert!(!is_frozen(&dead));
    }

    #[test]
    fn map_and_rows_must_both_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let frozen = page(&[(700, 0, 0x0B00)], PAGE_ALL_VISIBLE);
        let fresh = page(&[(700, 0, 0x0900)], PAGE_ALL_VISIBLE);
        let heap = [frozen.as_slice(), &fresh, &[0; 8192], &frozen].concat();
        std::fs::write(folder.path().join("16397"), heap).unwrap();
        let counted = || count(folder.path(), 16397, 8192).unwrap();
        assert_eq!(counted(), Counts { pages: 4, not_by_map: 3, not_by_rows: 1 });
        let mut map = vec![0_u8; 8192];
        map[24] = 0b0100_1111;
        std::fs::write(folder.path().join("16397_vm"), map).unwrap();
        assert_eq!(counted(), Counts { pages: 4, not_by_map: 1, not_by_rows: 1 });
    }
}

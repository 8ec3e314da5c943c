//! Tables of MyISAM: their rows have no sums, but the index file says how long both files are.
//!
//! ```text
//! offset  size  field of t.MYI (big-endian)
//!      0     4  FE FE 07 01
//!     24     2  how often it is open
//!     60     8  bytes of t.MYI
//!     68     8  bytes of t.MYD
//! ```
//!
//! Accounts and privileges are in such tables before MySQL 8.0 and MariaDB 10.4: without them a server
//! does not start. Asked after a clean shutdown, of tables that were closed.
//!
//! Source: `mi_open.c` of MariaDB 10.11; files of MySQL 5.5 and MariaDB 10.1 to 11.8.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::files::directory::is_database;
use crate::files::names::{self, is_temporary};
use crate::files::state::read_small;
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};

const INDEX: &str = "MYI";
const DATA: &str = "MYD";
const MAGIC: [u8; 4] = [0xFE, 0xFE, 7, 1];
const HEADER_BYTES: usize = 76;
const HINT: &str = "the server does not open this table, or not all of its rows: copy the files before \
                    anything else, then REPAIR TABLE ... USE_FRM, or restore the table from a backup";

/// What is wrong with the lengths of these tables in a data directory.
pub(super) fn steps(root: &Path) -> Vec<Step> {
    let mut steps = Vec::new();
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for folder in folders.filter(|folder| folder.path().is_dir()) {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !is_database(&name) {
            continue;
        }
        let entries = fs::read_dir(folder.path()).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let files: BTreeSet<_> = files.filter(|file| !is_temporary(file)).collect();
        let tables: BTreeSet<_> = files
            .iter()
            .filter_map(|file| file.rsplit_once('.'))
            .filter(|(_, ending)| matches!(*ending, INDEX | DATA))
            .map(|(stem, _)| stem)
            .collect();
        steps.extend(tables.iter().filter_map(|table| step(&folder.path(), &name, table)));
    }
    steps
}

fn step(path: &Path, folder: &str, table: &str) -> Option<Step> {
    let [index, data] = [INDEX, DATA].map(|ending| format!("{table}.{ending}"));
    let told = |file: &str, severity, kind, detail: &str| {
        let finding =
            Finding::of_file(&format!("{folder}/{file}"), severity, kind, detail.to_owned())
                .about(Some(&names::decoded(folder)), Some(&names::object(folder, table)));
        Some(Step::Finding(finding.with_hint(HINT)))
    };
    let [index_path, data_path] = [&index, &data].map(|name| path.join(name));
    for (path, file) in [(&index_path, &index), (&data_path, &data)] {
        // A link (DATA DIRECTORY) that leads nowhere is unread: see below.
        if !path.try_exists().unwrap_or(true) && !path.is_symlink() {
            let detail = "the other file of this table is here, and this one is not";
            return told(file, Severity::Suspect, Kind::Missing, detail);
        }
    }
    let Some(header) = read_small(&index_path, HEADER_BYTES) else {
        let error = "the header of this table cannot be read";
        return Some(Step::Unread(Unread::of_file(format!("{folder}/{index}"), error)));
    };
    if !header.starts_with(&MAGIC) {
        return told(&index, Severity::Damage, Kind::Header, "not the index file of a table");
    }
    let Some((lengths, is_open)) = fields(&header) else {
        let detail = "it ends before its header does";
        return told(&index, Severity::Damage, Kind::Truncated, detail);
    };
    if is_open {
        return None;
    }
    for (path, file, wanted) in [(&index_path, &index, lengths.0), (&data_path, &data, lengths.1)] {
        let found = fs::metadata(path).ok()?.len();
        let detail = format!("it has {found} bytes, and the header of this table says {wanted}");
        if found < wanted {
            return told(file, Severity::Damage, Kind::Truncated, &detail);
        }
        // Behind its end an index has what is not used yet.
        if found > wanted && file == &data {
            return told(file, Severity::Suspect, Kind::Structure, &detail);
        }
    }
    None
}

/// The lengths of index and data, and whether a server had it open.
fn fields(header: &[u8]) -> Option<((u64, u64), bool)> {
    let number = |at: usize| Some(u64::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let open = u16::from_be_bytes(*header.get(24..)?.first_chunk()?);
    Some(((number(60)?, number(68)?), open != 0))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_table_are_as_long_as_its_header_says() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("mysql");
        fs::create_dir(&shop).unwrap();
        let mut index = vec![0; 2048];
        index[..4].copy_from_slice(&MAGIC);
        index[60..68].copy_from_slice(&2048_u64.to_be_bytes());
        index[68..76].copy_from_slice(&100_u64.to_be_bytes());
        let found = |index: &[u8], data: usize| -> Vec<_> {
            fs::write(shop.join("user.MYI"), index).unwrap();
            fs::write(shop.join("user.MYD"), vec![1; data]).unwrap();
            let told = steps(folder.path()).into_iter().map(|step| match step {
                Step::Finding(it) => (it.place.file, it.kind),
                _ => panic!(),
            });
            told.collect()
        };
        let named = |file: &str, kind| vec![(format!("mysql/user.{file}"), kind)];
        assert_eq!(found(&index, 100), []);
        assert_eq!(found(&index, 99), named("MYD", Kind::Truncated));
        assert_eq!(found(&index, 101), named("MYD", Kind::Structure));
        assert_eq!(found(&index[..2047], 100), named("MYI", Kind::Truncated));
        assert_eq!(found(&index[..50], 100), named("MYI", Kind::Truncated));
        assert_eq!(found(&[], 100), named("MYI", Kind::Header));
        assert_eq!(found(&[0; 2048], 100), named("MYI", Kind::Header));
        index[25] = 1;
        assert_eq!(found(&index, 7), []);
        fs::remove_file(shop.join("user.MYI")).unwrap();
        let told = steps(folder.path());
        assert!(matches!(told.as_slice(), [Step::Finding(it)] if it.kind == Kind::Missing));
    }
}

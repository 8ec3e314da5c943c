//! What a file is by its path in an archive, whatever stands before the data
//! directory in it.

use crate::files::backup::{label, manifest};
use crate::files::names::RelationFile;

/// A relation's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelationPlace {
    /// As `pg_filenode_relation` wants it; `None` where the path does not tell.
    pub(crate) tablespace: Option<u32>,
    /// `None` for `global`.
    pub(crate) database: Option<u32>,
    pub(crate) file: RelationFile,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Relation(RelationPlace),
    Control,
    RelationMap,
    Label,
    TablespaceMap,
    Version,
    Manifest,
    TransactionLog,
}

/// `GLOBALTABLESPACE_OID`.
const GLOBAL_TABLESPACE: u32 = 1664;
/// What `pg_filenode_relation` takes for a database's default tablespace.
const DEFAULT_TABLESPACE: u32 = 0;

/// What a file is, and the folder in the archive that is the data directory
/// (or the tablespace), with a slash at its end if it is not the archive's own.
/// `None`: nothing that is looked into.
pub(crate) fn locate(path: &str) -> Option<(&str, Role)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (above, last) = folder.rsplit_once('/').unwrap_or(("", folder));
    let root_of = |root: &str| {
        let with_slash = if root.is_empty() { 0 } else { root.len() + 1 };
        path.get(..with_slash)
    };
    if last == "global" {
        let role = match name {
            "pg_control" => Role::Control,
            "pg_filenode.map" => Role::RelationMap,
            _ => relation(name, Some(GLOBAL_TABLESPACE), None)?,
        };
        return Some((root_of(above)?, role));
    }
    let (over, parent) = above.rsplit_once('/').unwrap_or(("", above));
    if let Some(database) = oid(last) {
        if parent == "base" {
            let role = match name {
                "pg_filenode.map" => Role::RelationMap,
                _ => relation(name, Some(DEFAULT_TABLESPACE), Some(database))?,
            };
            return Some((root_of(over)?, role));
        }
        if parent.starts_with("PG_") {
            let (top, tablespace) = over.rsplit_once('/').unwrap_or(("", over));
            let (root, links) = top.rsplit_once('/').unwrap_or(("", top));
            let (root, tablespace) = match oid(tablespace).filter(|_| links == "pg_tblspc") {
                Some(tablespace) => (root, Some(tablespace)),
                None => (over, None),
            };
            return Some((root_of(root)?, relation(name, tablespace, Some(database))?));
        }
    }
    let root = root_of(folder)?;
    let is_segment = name.len() >= 4 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (last, name) {
        (_, "PG_VERSION") => Some((root, Role::Version)),
        (_, label::LABEL) => Some((root, Role::Label)),
        (_, label::TABLESPACE_MAP) => Some((root, Role::TablespaceMap)),
        (_, manifest::NAME) => Some((root, Role::Manifest)),
        ("pg_xact" | "pg_clog" | "pg_commit_ts", _) if is_segment => {
            Some((root_of(above)?, Role::TransactionLog))
        }
        ("offsets" | "members", _) if is_segment && parent == "pg_multixact" => {
            Some((root_of(over)?, Role::TransactionLog))
        }
        _ => None,
    }
}

fn relation(name: &str, tablespace: Option<u32>, database: Option<u32>) -> Option<Role> {
    let file = RelationFile::parse(name)?;
    Some(Role::Relation(RelationPlace { tablespace, database, file }))
}

fn oid(name: &str) -> Option<u32> {
    let canonical = !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation_at(path: &str) -> Option<(&str, Option<u32>, Option<u32>, String)> {
        match locate(path) {
            Some((root, Role::Relation(place))) => {
                Some((root, place.tablespace, place.database, place.file.name()))
            }
            _ => None,
        }
    }

    #[test]
    fn relations_are_found_wherever_the_data_directory_lies_in_the_archive() {
        let file = || "1259".to_owned();
        for (path, expected) in [
            ("base/5/1259", ("", Some(0), Some(5), file())),
            ("15/main/base/5/1259", ("15/main/", Some(0), Some(5), file())),
            ("global/1259", ("", Some(1664), None, file())),
            ("main/global/1259", ("main/", Some(1664), None, file())),
            ("PG_15_202209061/5/1259", ("", None, Some(5), file())),
            ("ts/PG_15_202209061/5/1259", ("ts/", None, Some(5), file())),
            ("x/pg_tblspc/16384/PG_15_2/5/1259", ("x/", Some(16384), Some(5), file())),
            ("base/5/INCREMENTAL.1259", ("", Some(0), Some(5), "INCREMENTAL.1259".to_owned())),
        ] {
            assert_eq!(relation_at(path), Some(expected), "{path}");
        }
        for path in ["1259", "base/1259", "base/x/1259", "pg_wal/1259", "base/5/x", "x/5/1259"] {
            assert_eq!(relation_at(path), None, "{path}");
        }
    }

    #[test]
    fn other_files_are_known_by_their_places() {
        for (path, root, role) in [
            ("global/pg_control", "", Role::Control),
            ("a/global/pg_control", "a/", Role::Control),
            ("base/5/pg_filenode.map", "", Role::RelationMap),
            ("backup_label", "", Role::Label),
            ("a/b/tablespace_map", "a/b/", Role::TablespaceMap),
            ("PG_VERSION", "", Role::Version),
            ("backup_manifest", "", Role::Manifest),
            ("pg_xact/0000", "", Role::TransactionLog),
            ("a/pg_multixact/members/0000", "a/", Role::TransactionLog),
        ] {
            assert_eq!(locate(path), Some((root, role)), "{path}");
        }
        for path in ["base/5/PG_VERSION", "pg_wal/00000001000000000000000A", "", "/", "pg_xact/x"] {
            assert_eq!(locate(path), None, "{path}");
        }
    }
}

//! RESTORE statements, ready to be run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::files::backup::SetKind;
use crate::files::backup::chains::links::Set;

/// The statements that restore these backups, in this order, and end in recovery. The paths are those
/// of this machine; of files in a store, their names.
pub(super) fn restore(database: &str, way: &[&Set]) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    if way.iter().any(|set| set.is_elsewhere) {
        let text =
            "-- Copy the files to a disk of the server, and write its folder before their names.";
        statements.push(text.to_owned());
    }
    statements.extend(way.iter().map(|set| one(database, "", set)));
    if !way.is_empty() {
        statements.push(format!("RESTORE DATABASE {} WITH RECOVERY;", identifier(database)));
    }
    statements
}

/// The statements that restore these pages (`1:57`) by the first of these backups, bring them on by the
/// others, and then by the log that is not backed up yet. A server takes PAGE under the
/// full or bulk-logged recovery model; the source is "Restore Pages" in its documentation.
pub(super) fn restore_pages(database: &str, pages: &[String], way: &[&Set]) -> Vec<String> {
    let Some((full, others)) = way.split_first().filter(|_| !pages.is_empty()) else {
        return Vec::new();
    };
    let list = format!(" PAGE = '{}'", pages.join(", "));
    let mut statements = vec![one(database, &list, full)];
    statements.extend(others.iter().map(|set| one(database, "", set)));
    // A file in the server's own folder for backups, so that its name must not lead elsewhere.
    let is_plain = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let stem: String = database.chars().filter(is_plain).collect();
    let tail = format!("N'{stem}_tail.trn'");
    let name = identifier(database);
    statements.push(format!("BACKUP LOG {name} TO DISK = {tail};"));
    statements.push(format!("RESTORE LOG {name} FROM DISK = {tail} WITH RECOVERY;"));
    statements
}

/// Restores one backup, and leaves the database ready for the next.
fn one(database: &str, pages: &str, set: &Set) -> String {
    let what = if set.kind() == SetKind::Log { "LOG" } else { "DATABASE" };
    let mut text = format!("RESTORE {what} {}{pages} FROM ", identifier(database));
    for (path, index) in set.files.iter().zip(0_u32..) {
        let comma = if index > 0 { ", " } else { "" };
        let name = path.file_name().filter(|_| set.is_elsewhere).map(Path::new);
        let path = name.map_or_else(|| absolute(path), Path::to_owned);
        let _ = write!(text, "{comma}DISK = {}", literal(&path));
    }
    let _ = write!(text, " WITH FILE = {}, NORECOVERY;", set.header.number);
    text
}

fn identifier(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// A server would look for a relative path in a folder of its own.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn literal(path: &Path) -> String {
    format!("N'{}'", path.to_string_lossy().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_quoted() {
        assert_eq!(identifier("a]b [c"), "[a]]b [c]");
        assert_eq!(literal(Path::new("/b/it's.bak")), "N'/b/it''s.bak'");
        assert!(restore("x", &[]).is_empty());
    }
}

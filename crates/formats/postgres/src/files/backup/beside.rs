//! What lies beside a data directory in the folders of backup tools: Barman's tablespaces, and the books
//! that say that a folder is a part of a set only.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pagewarden_core::source::file::open_regular;

/// The section that says what the set is begins the file.
const BOOKS_BYTES: u64 = 64 << 10;

/// The folder of a tablespace beside the data directory of a backup, where its link is of no use: there is
/// none, it leads nowhere, or into another copy of the same backup, as when Barman's folder was copied
/// with its links, which are absolute. `None` where the link is to be followed.
pub(in crate::files) fn tablespace(root: &Path, oid: &str) -> Option<PathBuf> {
    let real = fs::canonicalize(root).ok()?;
    let place = real.parent()?.join(oid);
    if !place.is_dir() {
        return None;
    }
    let last_two = |path: &Path| {
        let mut names = path.components().rev();
        Some((names.next()?.as_os_str().to_owned(), names.next()?.as_os_str().to_owned()))
    };
    let is_copy = match fs::canonicalize(real.join("pg_tblspc").join(oid)) {
        Ok(target) => target != place && last_two(&target) == last_two(&place),
        Err(_) => true,
    };
    is_copy.then_some(place)
}

/// Why a data directory is a part of a pgBackRest set only, with what to do; `None` if it is none.
pub(in crate::files) fn part_of_set(root: &Path) -> Option<String> {
    let real = fs::canonicalize(root).ok()?;
    let set = real.parent().filter(|_| real.file_name().is_some_and(|name| name == "pg_data"))?;
    let mut text = String::new();
    let file = ["backup.manifest", "backup.manifest.copy"]
        .iter()
        .find_map(|name| open_regular(&set.join(name)).ok())?;
    // What was read before a byte that is no text counts.
    let _ = file.take(BOOKS_BYTES).read_to_string(&mut text);
    let says = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let why = match says("backup-type")?.as_str() {
        "full" if says("backup-bundle").as_deref() == Some("true") => "the rest is in bundles",
        "full" => return None,
        _ => "files that have not changed lie in the sets before it",
    };
    let set = set.display();
    Some(format!(
        "this folder is only a part of a pgBackRest set, {why}: files that are not here were not read; check the set itself: pagewarden check {set}"
    ))
}

#[cfg(test)]
mod tests {
    use pagewarden_core::system::symlink;

    use super::*;

    #[test]
    fn tablespace_beside_is_taken_where_the_link_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| fs::canonicalize(folder.path()).unwrap().join(name);
        for name in ["a/ID/data/pg_tblspc", "a/ID/7", "b/ID/7", "elsewhere"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let link = at("a/ID/data/pg_tblspc/7");
        let root = at("a/ID/data");
        assert_eq!(tablespace(&root, "7"), Some(at("a/ID/7")), "no link");
        assert_eq!(tablespace(&root, "8"), None);
        for (target, expected) in [
            ("nowhere", Some(at("a/ID/7"))),
            ("b/ID/7", Some(at("a/ID/7"))),
            ("a/ID/7", None),
            ("elsewhere", None),
        ] {
            let _ = fs::remove_file(&link);
            symlink(at(target), &link).unwrap();
            assert_eq!(tablespace(&root, "7"), expected, "{target}");
        }
    }

    #[test]
    fn folder_of_a_set_that_needs_others_is_known_by_the_books_of_the_set() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("pg_data");
        fs::create_dir(&root).unwrap();
        assert_eq!(part_of_set(&root), None);
        for (text, is_part) in [
            ("[backup]\nbackup-type=\"full\"\n", false),
            ("[backup]\nbackup-bundle=true\nbackup-type=\"full\"\n", true),
            ("[backup]\nbackup-type=\"incr\"\n", true),
            ("Salted__", false),
        ] {
            fs::write(folder.path().join("backup.manifest"), text).unwrap();
            assert_eq!(part_of_set(&root).is_some(), is_part, "{text}");
        }
    }
}

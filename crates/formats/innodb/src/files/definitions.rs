//! Which server a data directory is of, where its log does not say.
//!
//! The definitions of tables beside their files, up to MySQL 5.7 and in MariaDB: `t.frm`.
//!
//! ```text
//! offset  size  field (little-endian)
//!      0     2  FE 01
//!     51     4  the version of the server that wrote it: 50509 is 5.5.9, 100123 is 10.1.23
//! ```
//!
//! `mysql_upgrade_history` of MySQL 8.4 and later is JSON: `upgrade_history` is a list of the servers
//! that ran here, the last one last, each with its `version`.
//!
//! Source: `unireg.cc` of MySQL 5.5 and `table.cc` of MariaDB 10.11.

#![deny(clippy::arithmetic_side_effects)]

use std::fs;
use std::path::Path;

use crate::files::state::read_small;

const MAGIC: [u8; 2] = [0xFE, 1];
const VERSION: usize = 51;
const HEADER_BYTES: usize = 64;
/// Folders and files that are looked into.
const FOLDERS_MAX: usize = 64;
const FILES_MAX: usize = 256;
const FIRST_OF_MARIADB: u32 = 100_000;
const FIRST_POSSIBLE: u32 = 32_300;

/// The newest server that wrote a definition in a data directory.
pub(super) fn server_of(root: &Path) -> Option<String> {
    let folders = fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
    let files = folders.filter(|path| path.is_dir()).take(FOLDERS_MAX).flat_map(|folder| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|it| it == "frm")).take(FILES_MAX)
    });
    let version = files.filter_map(|path| version_of(&read_small(&path, HEADER_BYTES)?)).max()?;
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    let is_mariadb = version >= FIRST_OF_MARIADB || root.join("aria_log_control").is_file();
    let maker = if is_mariadb { "MariaDB" } else { "MySQL" };
    Some(format!("{maker} {major}.{minor}.{patch}"))
}

/// The last server that ran on a data directory, by its own notes.
pub(super) fn newest_of_history(root: &Path) -> Option<String> {
    const BYTES_MAX: usize = 1 << 20;
    let text = read_small(&root.join("mysql_upgrade_history"), BYTES_MAX)?;
    let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let last = json.get("upgrade_history")?.as_array()?.last()?;
    let version = last.get("version")?.as_str()?;
    let is_version = |it: char| it.is_ascii_digit() || it == '.';
    (!version.is_empty() && version.chars().all(is_version)).then(|| version.to_owned())
}

fn version_of(header: &[u8]) -> Option<u32> {
    let version = header.get(VERSION..)?.first_chunk().map(|it| u32::from_le_bytes(*it))?;
    (header.starts_with(&MAGIC) && (FIRST_POSSIBLE..1_000_000).contains(&version))
        .then_some(version)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn history_of_a_directory_names_the_last_server() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |text: &str| fs::write(folder.path().join("mysql_upgrade_history"), text).unwrap();
        assert_eq!(newest_of_history(folder.path()), None);
        write(
            r#"{"file_format":"1","upgrade_history":[{"version":"9.7.4","initialize":true},
                {"version":"26.4.0"}]}"#,
        );
        assert_eq!(newest_of_history(folder.path()).as_deref(), Some("26.4.0"));
        write(r#"{"upgrade_history":[{"version":"9\u001b[2J"}]}"#);
        assert_eq!(newest_of_history(folder.path()), None);
    }

    #[test]
    fn newest_definition_says_which_server_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("mysql")).unwrap();
        let write = |name: &str, version: u32| {
            let mut header = vec![0; HEADER_BYTES];
            header[..2].copy_from_slice(&MAGIC);
            header[VERSION..VERSION + 4].copy_from_slice(&version.to_le_bytes());
            fs::write(root.join("mysql").join(name), header).unwrap();
        };
        assert_eq!(server_of(root), None);
        write("user.frm", 50_147);
        write("db.frm", 50_509);
        write("odd.frm", 7);
        assert_eq!(server_of(root).as_deref(), Some("MySQL 5.5.9"));
        fs::write(root.join("aria_log_control"), "").unwrap();
        assert_eq!(server_of(root).as_deref(), Some("MariaDB 5.5.9"));
        write("new.frm", 100_123);
        assert_eq!(server_of(root).as_deref(), Some("MariaDB 10.1.23"));
    }
}

//! Files that a server of MySQL or MariaDB has open, found as `fuser` finds them.
//!
//! Servers lock the first file of their data directory and few others. A table made with `DATA
//! DIRECTORY` lies where nothing else tells that a server is about to write to it, and between two
//! checkpoints its pages contradict one another.
//!
//! | in `/proc/PID` | what |
//! | --- | --- |
//! | `comm` | the name of the program |
//! | `fd` | what it has open; to be seen by its own user and by root |
//!
//! Where there is no such folder, or the program has another name, nothing is known to be open.

use std::fs;
use std::path::{Path, PathBuf};

use pagewarden_core::system::{MetadataExt as _, identity};

const SERVERS: [&str; 2] = ["mariadbd", "mysqld"];

/// True if a server has one of these files open, or may have: of a server that we may not look
/// into, all files of its user are its own.
pub(super) fn any_is_open<'a>(paths: impl IntoIterator<Item = &'a Path>) -> bool {
    let seen = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((identity(&metadata, path).ok()?, metadata.uid()))
    };
    let files: Vec<_> = paths.into_iter().filter_map(seen).collect();
    if files.is_empty() {
        return false;
    }
    servers().any(|server| match fs::read_dir(server.join("fd")) {
        Ok(open) => open
            .flatten()
            .filter_map(|open| seen(&open.path()))
            .any(|(open, _)| files.iter().any(|(file, _)| *file == open)),
        Err(_) => {
            let user = server.metadata().map(|server| server.uid()).ok();
            files.iter().any(|(_, owner)| Some(*owner) == user)
        }
    })
}

fn servers() -> impl Iterator<Item = PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|process| process.path()).filter(|process| {
        let is_number = process
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_number
            && fs::read_to_string(process.join("comm"))
                .is_ok_and(|name| SERVERS.contains(&name.trim()))
    })
}

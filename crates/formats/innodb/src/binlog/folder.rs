//! Which files of a folder are the log: `NAME.NNNNNN`, in the order of their numbers, and `NAME.index`,
//! which lists them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{HINT, is_binlog};
use pagewarden_core::database::Step;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Finding, Kind, Severity};

/// A name has at least this number of digits.
const DIGITS_MIN: usize = 6;
const INDEX: &str = ".index";
/// A line for each file.
const INDEX_BYTES_MAX: usize = 16 << 20;
/// Files that are looked at before a folder is taken for something else.
const LOOKED_AT: usize = 1000;
/// What servers and their programs write beside the log.
const BESIDE: [&str; 4] = ["index", "state", "idx", "gtid"];

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) name: String,
    /// What the names of one log have in common.
    pub(super) base: String,
    pub(super) number: Option<u64>,
}

/// The files of a log, in order.
pub(super) struct Folder {
    pub(super) files: Vec<LogFile>,
    /// What is said before any is read.
    pub(super) steps: Vec<Step>,
}

impl LogFile {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let (base, number) = match parts_of(&name) {
            Some((base, number)) => (base.to_owned(), Some(number)),
            None => (name.clone(), None),
        };
        Self { path: path.to_owned(), name, base, number }
    }
}

impl Folder {
    /// A single file is judged alone.
    pub(super) fn of_file(path: &Path) -> Self {
        Self { files: vec![LogFile::of(path)], steps: Vec::new() }
    }

    /// The files in a folder, and those that its index names and that are not in it.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(super) fn list(folder: &Path) -> io::Result<Self> {
        let (mut files, mut indexes) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let file = LogFile::of(&path);
            if file.name.ends_with(INDEX) {
                indexes.push(file);
            } else if file.number.is_some() && path.is_file() {
                files.push(file);
            }
        }
        files.sort_by(|a, b| (&a.base, a.number).cmp(&(&b.base, b.number)));
        let here: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let mut steps = Vec::new();
        for index in indexes {
            let listed = read_small(&index.path, INDEX_BYTES_MAX)?;
            let listed = String::from_utf8_lossy(&listed).into_owned();
            let names = listed.lines().filter_map(|line| line.trim().rsplit(['/', '\\']).next());
            for name in names.filter(|name| parts_of(name).is_some() && !here.contains(name)) {
                let words = format!("{} lists it, and it is not here", index.name);
                let finding = Finding::of_file(name, Severity::Suspect, Kind::Missing, words);
                steps.push(Step::Finding(finding.with_hint(HINT)));
            }
        }
        Ok(Self { files, steps })
    }
}

/// The name that the files of a log share, and the number of one.
fn parts_of(name: &str) -> Option<(&str, u64)> {
    let (base, digits) = name.rsplit_once('.')?;
    let is_number = digits.len() >= DIGITS_MIN && digits.bytes().all(|it| it.is_ascii_digit());
    (is_number && !base.is_empty()).then(|| digits.parse().ok().map(|number| (base, number)))?
}

/// True for a folder that has a log, and nothing that is none.
pub(super) fn is_one(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut found = false;
    for entry in entries.take(LOOKED_AT) {
        let Ok(entry) = entry else { return false };
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let is_beside =
            BESIDE.iter().any(|ending| path.extension().is_some_and(|it| it == *ending));
        match parts_of(&name).is_some() && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            true => found |= is_binlog(&path),
            false if is_beside => {}
            false => return false,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_log_are_known_by_their_numbers() {
        assert_eq!(parts_of("mysql-bin.000007"), Some(("mysql-bin", 7)));
        assert_eq!(parts_of("a.b.1000000"), Some(("a.b", 1_000_000)));
        for name in ["mysql-bin.index", ".000001", "x.00001", "x.00000a", "000001"] {
            assert_eq!(parts_of(name), None, "{name}");
        }
    }
}

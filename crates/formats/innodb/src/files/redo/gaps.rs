//! Files of the log that are not there, or shorter than their server made them.
//!
//! | files | what holds of them | a server that finds otherwise |
//! | --- | --- | --- |
//! | a ring, up to MySQL 8.0.29 and MariaDB 10.4 | all are of one size; before MySQL 5.7 there are two at least | does not start |
//! | a row, from MySQL 8.0.30 on | each is 64 KiB at least, and whole pages of the data | does not start (9.7: "smaller than 65536 bytes", MY-012962) |
//! | | each begins where the one before ends | does not start where it needs what is between |
//!
//! The rows were measured on MySQL 9.7.4: its files were cut after a clean stop and after a kill.

#![deny(clippy::arithmetic_side_effects)]

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use super::{
    FORMAT_BEFORE_57, FORMAT_IS_ENCRYPTED, FORMAT_MYSQL_8030, FORMATS_OF_MARIADB, LogFile,
    MYSQL_FOLDER, names_of_files, open_files,
};
use pagewarden_core::verdict::Kind;

/// 10.3 and 10.4; 10.2 has the number of MySQL 5.7.
const RINGS_OF_MARIADB: RangeInclusive<u32> = 103..=104;
const RING_FILES_MAX: u32 = 100;
/// The smallest file of a row.
const ROW_FILE_BYTES_MIN: u64 = 64 << 10;
/// What stands before the blocks of a file.
const FILE_HEADER_BYTES: u64 = 2048;

/// A file of the log that is not as its server left it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::files) struct Gap {
    /// The file, relative to the data directory.
    pub(in crate::files) name: String,
    pub(in crate::files) kind: Kind,
    /// The evidence in words.
    pub(in crate::files) detail: String,
    /// A server that was killed may have left it like this.
    pub(in crate::files) may_be_healthy: bool,
}

/// Looks for a gap in the log of a data directory whose pages have `page_bytes`.
pub(in crate::files) fn find(root: &Path, page_bytes: u64) -> Option<Gap> {
    let files = open_files(root, &mut Vec::new()).ok()?;
    let format = files.first()?.header.format & !FORMAT_IS_ENCRYPTED;
    match format {
        FORMAT_MYSQL_8030..FORMATS_OF_MARIADB => {
            short_in_row(root, page_bytes).or_else(|| between_files_of_row(&files))
        }
        format if format < FORMAT_MYSQL_8030 || RINGS_OF_MARIADB.contains(&format) => {
            in_ring(root, format)
        }
        _ => None,
    }
}

/// The names and sizes of all files, also of those without a header.
fn sizes(root: &Path) -> Vec<(u64, String)> {
    let files = names_of_files(root).into_iter();
    files.filter_map(|(name, path)| Some((path.metadata().ok()?.len(), name))).collect()
}

fn in_ring(root: &Path, format: u32) -> Option<Gap> {
    let mut sizes = sizes(root);
    // `ib_logfile101` is one that a server was about to make.
    sizes.retain(|(_, name)| {
        let number = name.rsplit("ib_logfile").next().and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| number < RING_FILES_MAX)
    });
    let (shortest, longest) = (sizes.iter().min()?, sizes.iter().max()?);
    if sizes.len() == 1 && format == FORMAT_BEFORE_57 {
        return Some(Gap {
            name: format!("{}1", shortest.1.trim_end_matches('0')),
            kind: Kind::Missing,
            detail: "the log of such a server has two files at least, and there is one".to_owned(),
            may_be_healthy: true,
        });
    }
    (shortest.0 < longest.0).then(|| Gap {
        name: shortest.1.clone(),
        kind: Kind::Truncated,
        detail: format!(
            "it has {} bytes, and {} has {}: files of one log are of one size",
            shortest.0, longest.1, longest.0
        ),
        // A server that was killed while it made its log leaves the same.
        may_be_healthy: true,
    })
}

/// A server gives a file its size under another name, so a kill leaves none that is too short.
fn short_in_row(root: &Path, page_bytes: u64) -> Option<Gap> {
    let is_whole = |bytes: u64| {
        bytes >= ROW_FILE_BYTES_MIN && bytes.checked_rem(page_bytes).is_none_or(|rest| rest == 0)
    };
    let (bytes, name) = sizes(root).into_iter().find(|(bytes, _)| !is_whole(*bytes))?;
    Some(Gap {
        name,
        kind: Kind::Truncated,
        detail: format!(
            "it has {bytes} bytes: a file of the log has {ROW_FILE_BYTES_MIN} at least, and whole \
             pages of {page_bytes}"
        ),
        may_be_healthy: false,
    })
}

/// `files` are in the order of their LSNs.
fn between_files_of_row(files: &[LogFile]) -> Option<Gap> {
    let mut pairs = files.iter().zip(files.iter().skip(1));
    pairs.find_map(|(file, next)| {
        let end = file.header.start_lsn.saturating_add(file.bytes).checked_sub(FILE_HEADER_BYTES)?;
        (end != next.header.start_lsn).then(|| Gap {
            name: file.name.clone(),
            kind: Kind::Truncated,
            detail: format!(
                "its {} bytes end at LSN {end}, and {} begins at LSN {}: what is between is not here",
                file.bytes, next.name, next.header.start_lsn
            ),
            may_be_healthy: true,
        })
    })
}

/// The size of the largest file that a server keeps for the log that is yet to come.
pub(super) fn largest_spare(root: &Path) -> Option<u64> {
    let entries = fs::read_dir(root.join(MYSQL_FOLDER)).ok()?.flatten();
    let is_spare = |name: &str| name.starts_with("#ib_redo") && name.ends_with("_tmp");
    let spares = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_spare));
    spares.filter_map(|entry| Some(entry.metadata().ok()?.len())).max()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use std::fs::File;

    use super::super::tests::{folder_with, log_of_55, mysql_fixture};
    use super::super::{FORMAT_MARIADB_105, HEADER_SUM};
    use super::*;
    use pagewarden_core::crc::crc32c;

    const PAGE: u64 = 16 << 10;

    #[test]
    fn old_log_has_two_files_of_one_size() {
        let folder = folder_with("ib_logfile0", &log_of_55(0));
        let gap = || find(folder.path(), PAGE).map(|gap| (gap.name, gap.kind));
        let second = "ib_logfile1";
        assert_eq!(gap(), Some((second.to_owned(), Kind::Missing)));
        for (bytes, is_short) in [(5 << 20, false), (4 << 20, true), (0, true)] {
            File::create(folder.path().join(second)).unwrap().set_len(bytes).unwrap();
            assert_eq!(gap(), is_short.then(|| (second.to_owned(), Kind::Truncated)), "{bytes}");
        }
        // MariaDB 10.2 and MySQL 5.7, 10.4 with encryption, and 10.5, which has one file: of the
        // first ones a second file may be absent, and none is shorter than the other.
        for (format, is_ring) in
            [(1, true), (104 | FORMAT_IS_ENCRYPTED, true), (FORMAT_MARIADB_105, false)]
        {
            let mut log = log_of_55(0);
            log[..4].copy_from_slice(&format.to_be_bytes());
            let sum = crc32c(&log[..508]);
            log[508..512].copy_from_slice(&sum.to_be_bytes());
            let folder = folder_with("ib_logfile0", &log);
            let gap = || find(folder.path(), PAGE).map(|gap| (gap.name, gap.kind));
            assert_eq!(gap(), None, "{format:x}");
            fs::write(folder.path().join(second), b"").unwrap();
            let expected = is_ring.then(|| (second.to_owned(), Kind::Truncated));
            assert_eq!(gap(), expected, "{format:x}");
            // One that a server was about to make when it crashed.
            fs::rename(folder.path().join(second), folder.path().join("ib_logfile101")).unwrap();
            assert_eq!(gap(), None, "{format:x}");
        }
    }

    /// A folder with a row of two files: the fixture, and one of `second` bytes that begins where
    /// `lsn` says.
    fn row(bytes: &[u8], second: usize, lsn: u64) -> tempfile::TempDir {
        let folder = folder_with("#innodb_redo/#ib_redo7", bytes);
        let mut next = bytes.to_vec();
        next.resize(second, 0);
        next[8..16].copy_from_slice(&lsn.to_be_bytes());
        let sum = crc32c(&next[..HEADER_SUM]);
        next[HEADER_SUM..512].copy_from_slice(&sum.to_be_bytes());
        fs::write(folder.path().join("#innodb_redo/#ib_redo8"), next).unwrap();
        folder
    }

    #[test]
    fn file_of_a_row_is_whole_pages_and_ends_where_the_next_begins() {
        let Some(bytes) = mysql_fixture() else { return };
        let start = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        let end = start + bytes.len() as u64 - 2048;
        let found = |second: usize, lsn: u64| {
            find(row(&bytes, second, lsn).path(), PAGE)
                .map(|gap| (gap.name, gap.kind, gap.may_be_healthy))
        };
        let name = |number: u8| format!("#innodb_redo/#ib_redo{number}");
        assert_eq!(found(bytes.len(), end), None);
        assert_eq!(found(2 * bytes.len(), end), None);
        for short in [1024, 32 << 10, (64 << 10) + 8192] {
            assert_eq!(found(short, end), Some((name(8), Kind::Truncated, false)), "{short}");
        }
        for lsn in [end - 512, end + 512, end + 10 * PAGE] {
            assert_eq!(found(bytes.len(), lsn), Some((name(7), Kind::Truncated, true)), "{lsn}");
        }
        // One that is empty has no header, and counts all the same.
        let folder = row(&bytes, bytes.len(), end);
        File::create(folder.path().join(name(8))).unwrap();
        assert_eq!(find(folder.path(), PAGE).map(|gap| gap.name), Some(name(8)));
    }
}

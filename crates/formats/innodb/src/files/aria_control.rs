//! What a server of MariaDB needs beside its tables of Aria: `aria_log_control` says where their log
//! ends. All integers are little-endian.
//!
//! ```text
//! offset  size  field
//!      0     4  FE FE 0C, version
//!      4    16  a UUID, drawn when the directory was made
//!     20     2  bytes of the first part, a: 30
//!     22     2  bytes of the second part, b: 22
//!    a-4     4  CRC-32 of what is before it
//!      a     4  CRC-32 of the rest of the second part: b - 4 bytes
//!    a+4     3  the log file of the last checkpoint: aria_log.00000001 is 1; 0 if there was none
//!    a+7     4  where it is in that file
//! ```
//!
//! A program that copies a server's files may leave it out: then the next server makes a new one.
//! Where there are logs, and no word of a backup, it was lost. A server whose last checkpoint is not
//! in its log does not start. Each page of the log, of 8 KiB but the first, begins with its number and
//! that of its file, 3 bytes each; the low six bits of a record's first byte are its kind, 29 for a
//! checkpoint.
//!
//! Source: `ma_control_file.c` and `ma_loghandler.c` of MariaDB 10.11; files of 10.1 to 11.8.

#![deny(clippy::arithmetic_side_effects)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use pagewarden_core::crc::crc32;

use crate::files::state::read_small;
use pagewarden_core::database::Step;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};

const NAME: &str = "aria_log_control";
const MAGIC: [u8; 3] = [0xFE, 0xFE, 0x0C];
const UUID: usize = 4;
const UUID_BYTES: usize = 16;
const FIRST_BYTES: usize = 20;
const SECOND_BYTES: usize = 22;
const SUM_BYTES: usize = 4;
/// A block of a disk: it is written as one.
const BYTES_MAX: usize = 512;
const HINT: &str = "the server does not open its tables of Aria with it: restore the directory from a \
                    backup, or let aria_chk --zerofill make all of them good for a new one";
const LOG_HINT: &str = "the server does not start: restore the directory from a backup, or move this log \
                        and aria_log_control away once aria_chk --zerofill made all tables of Aria good";

/// What is wrong with that file in a directory that was shut down. `has_tables`: there are tables of
/// Aria in it.
pub(super) fn step(root: &Path, has_tables: bool) -> Option<Step> {
    let path = root.join(NAME);
    let damage = |kind, detail: &str| {
        let finding = Finding::of_file(NAME, Severity::Damage, kind, detail.to_owned());
        Some(Step::Finding(finding.with_hint(HINT)))
    };
    if !path.try_exists().unwrap_or(true) {
        if has_log(root) {
            return damage(
                Kind::Missing,
                "Aria's logs are here, and what says where they end is not",
            );
        }
        let error = "there are tables of Aria, and neither their log nor what says where it ends is \
                     here: aria_log_dir_path says where they are";
        return has_tables.then(|| Step::Unread(Unread::of_file(NAME, error)));
    }
    let Some(bytes) = read_small(&path, BYTES_MAX) else {
        return Some(Step::Unread(Unread::of_file(NAME, "it cannot be read")));
    };
    if !bytes.starts_with(&MAGIC) {
        return damage(Kind::Header, "not the control file of Aria's log");
    }
    match sums_fit(&bytes) {
        Some(true) => last_checkpoint(&bytes).and_then(|place| log_of(root, place)),
        Some(false) => damage(Kind::Checksum, "one of its two sums does not match"),
        None => damage(Kind::Truncated, "it ends before its second part does"),
    }
}

/// The UUID, which copies of the directory have too; `None` where there is no such file, or a damaged one.
pub(crate) fn uuid(root: &Path) -> Option<[u8; UUID_BYTES]> {
    let bytes = read_small(&root.join(NAME), BYTES_MAX)?;
    let is_sound = bytes.starts_with(&MAGIC) && sums_fit(&bytes) == Some(true);
    bytes.get(UUID..).filter(|_| is_sound)?.first_chunk().copied()
}

/// The file of the log that the last checkpoint is in, if it is not there to its end.
fn log_of(root: &Path, (number, offset): (u32, u64)) -> Option<Step> {
    let name = format!("aria_log.{number:08}");
    let told = |kind, detail: String| {
        let finding = Finding::of_file(&name, Severity::Damage, kind, detail);
        Some(Step::Finding(finding.with_hint(LOG_HINT)))
    };
    match root.join(&name).metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            told(Kind::Missing, format!("{NAME} has the last checkpoint in it"))
        }
        Err(error) => Some(Step::Unread(Unread::of_file(name, error.to_string()))),
        Ok(metadata) if metadata.len() > offset => {
            match holds_checkpoint(root, &name, number, offset) {
                Ok(true) => None,
                Ok(false) => told(
                    Kind::Header,
                    format!("{NAME} has the last checkpoint at {offset}, and there is none"),
                ),
                Err(error) => Some(Step::Unread(Unread::of_file(name, error.to_string()))),
            }
        }
        Ok(metadata) => told(
            Kind::Truncated,
            format!(
                "{NAME} has the last checkpoint at {offset}, and this has {} bytes",
                metadata.len()
            ),
        ),
    }
}

/// True if a file of the log begins as one, and has a checkpoint there.
fn holds_checkpoint(root: &Path, name: &str, number: u32, offset: u64) -> io::Result<bool> {
    const PAGE_BYTES: u64 = 8192;
    const LOG_MAGIC: [u8; 3] = [0xFE, 0xFE, 0x0B];
    const KIND_MASK: u8 = 0x3F;
    const CHECKPOINT: u8 = 29;
    let file = open_regular(&root.join(name))?;
    let read = |bytes: &mut [u8], at| read_fully(&file, bytes, at);
    let (mut magic, mut page, mut record) = ([0; 3], [0; 6], [0; 1]);
    let page_number = offset.checked_div(PAGE_BYTES).unwrap_or(0);
    read(&mut magic, 0)?;
    read(&mut page, page_number.saturating_mul(PAGE_BYTES))?;
    read(&mut record, offset)?;
    let [kind] = record.map(|byte| byte & KIND_MASK);
    let [low, middle, high, rest @ ..] = page;
    let [own_low, own_middle, own_high] = rest;
    let is_page = u64::from(u32::from_le_bytes([low, middle, high, 0])) == page_number
        && u32::from_le_bytes([own_low, own_middle, own_high, 0]) == number;
    Ok(magic == LOG_MAGIC && is_page && kind == CHECKPOINT)
}

/// The number of the file and the place in it; `None` if there was no checkpoint yet.
fn last_checkpoint(bytes: &[u8]) -> Option<(u32, u64)> {
    const FILE_BYTES: usize = 3;
    let first = usize::from(u16::from_le_bytes(*bytes.get(FIRST_BYTES..)?.first_chunk()?));
    let place = bytes.get(first.checked_add(SUM_BYTES)?..)?;
    let [low, middle, high] = *place.first_chunk::<FILE_BYTES>()?;
    let number = u32::from_le_bytes([low, middle, high, 0]);
    let offset = u32::from_le_bytes(*place.get(FILE_BYTES..)?.first_chunk()?);
    (number != 0).then(|| (number, u64::from(offset)))
}

fn has_log(root: &Path) -> bool {
    let mut entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries.any(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("aria_log."));
        number
            .is_some_and(|number| number.len() == 8 && number.bytes().all(|it| it.is_ascii_digit()))
    })
}

/// `None` where a part is not there.
fn sums_fit(bytes: &[u8]) -> Option<bool> {
    let size =
        |at: usize| bytes.get(at..)?.first_chunk().map(|it| usize::from(u16::from_le_bytes(*it)));
    let sum = |at: usize| bytes.get(at..)?.first_chunk().map(|it| u32::from_le_bytes(*it));
    let (first, second) = (size(FIRST_BYTES)?, size(SECOND_BYTES)?);
    let first_sum = first.checked_sub(SUM_BYTES)?;
    let end = first.checked_add(second)?;
    let covered = bytes.get(first.checked_add(SUM_BYTES)?..end)?;
    let is_first = crc32(bytes.get(..first_sum)?) == sum(first_sum)?;
    Some(is_first && crc32(covered) == sum(first)?)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    /// Of MariaDB 10.11.
    const REAL: [u8; 52] = [
        0xfe, 0xfe, 0x0c, 0x01, 0xf7, 0xe1, 0x4b, 0x11, 0xe7, 0x5b, 0x11, 0xf1, 0x97, 0x07, 0x02,
        0xfc, 0x00, 0x00, 0x00, 0x01, 0x1e, 0x00, 0x16, 0x00, 0x00, 0x20, 0xcc, 0xca, 0x3b, 0x8e,
        0x3f, 0x83, 0x5c, 0xdc, 0x01, 0x00, 0x00, 0xf5, 0x4e, 0x06, 0x00, 0x01, 0x00, 0x00, 0x00,
        0xec, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn log_must_reach_the_last_checkpoint() {
        assert_eq!(last_checkpoint(&REAL), Some((1, 0x0006_4ef5)));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), REAL).unwrap();
        let kind = || match step(folder.path(), true) {
            Some(Step::Finding(finding)) => Some((finding.place.file, finding.kind)),
            Some(_) => panic!(),
            None => None,
        };
        let log = "aria_log.00000001";
        assert_eq!(kind(), Some((log.to_owned(), Kind::Missing)));
        let path = folder.path().join(log);
        let mut whole = vec![0; 0x0006_4ef6];
        whole[..3].copy_from_slice(&[0xFE, 0xFE, 0x0B]);
        // Page 50 of file 1.
        whole[50 * 8192..50 * 8192 + 4].copy_from_slice(&[50, 0, 0, 1]);
        whole[0x0006_4ef5] = 29;
        for bytes in [0, 0x0006_4ef5] {
            fs::write(&path, &whole[..bytes]).unwrap();
            assert_eq!(kind(), Some((log.to_owned(), Kind::Truncated)), "{bytes}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(kind(), None);
        for wrong in [0, 50 * 8192, 50 * 8192 + 3, 0x0006_4ef5] {
            let mut bytes = whole.clone();
            bytes[wrong] = 0;
            fs::write(&path, bytes).unwrap();
            assert_eq!(kind(), Some((log.to_owned(), Kind::Header)), "{wrong}");
        }
        assert_eq!(last_checkpoint(&[0; 52]), None);
    }

    #[test]
    fn any_changed_bit_of_a_control_file_is_seen() {
        assert_eq!(sums_fit(&REAL), Some(true));
        for at in 0..REAL.len() {
            for bit in 0..8 {
                let mut bytes = REAL;
                bytes[at] ^= 1 << bit;
                assert_ne!(sums_fit(&bytes), Some(true), "byte {at}, bit {bit}");
            }
        }
        for length in 0..REAL.len() {
            assert_eq!(sums_fit(&REAL[..length]), None, "{length} bytes");
        }
    }
}

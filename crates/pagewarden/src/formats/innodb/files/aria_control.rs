//! What a server of MariaDB needs beside its tables of Aria: `aria_log_control` says where their log
//! ends. All integers are little-endian.
//!
//! ```text
//! offset  size  field
//!      0     4  FE FE 0C, version
//!     20     2  bytes of the first part, a: 30
//!     22     2  bytes of the second part, b: 22
//!    a-4     4  CRC-32 of what is before it
//!      a     4  CRC-32 of the rest of the second part: b - 4 bytes
//! ```
//!
//! A program that copies a server's files may leave it out: then the next server makes a new one.
//! Where there are logs, and no word of a backup, it was lost.
//!
//! Source: `ma_control_file.c` of MariaDB 10.11, and its files.

#![deny(clippy::arithmetic_side_effects)]

use std::fs;
use std::path::Path;

use crc_fast::CrcAlgorithm;

use crate::database::Step;
use crate::formats::innodb::files::state::read_small;
use crate::verdict::{Finding, Kind, Severity, Unread};

const NAME: &str = "aria_log_control";
const MAGIC: [u8; 3] = [0xFE, 0xFE, 0x0C];
const FIRST_BYTES: usize = 20;
const SECOND_BYTES: usize = 22;
const SUM_BYTES: usize = 4;
/// A block of a disk: it is written as one.
const BYTES_MAX: usize = 512;
const HINT: &str = "the server does not open its tables of Aria with it: restore the directory from a \
                    backup, or let aria_chk --zerofill make all of them good for a new one";

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
        Some(true) => None,
        Some(false) => damage(Kind::Checksum, "one of its two sums does not match"),
        None => damage(Kind::Truncated, "it ends before its second part does"),
    }
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

fn crc32(bytes: &[u8]) -> Option<u32> {
    u32::try_from(crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes)).ok()
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
    let is_first = crc32(bytes.get(..first_sum)?)? == sum(first_sum)?;
    Some(is_first && crc32(covered)? == sum(first)?)
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

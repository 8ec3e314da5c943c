//! Where a cluster's write-ahead log ends, as an upper bound for the LSNs of
//! its pages.
//!
//! A server flushes the log up to a page's LSN before it writes the page. So
//! after a clean shutdown no page is newer than the shutdown checkpoint; and
//! while a server runs, or after a crash, none is newer than the end of the
//! newest segment in `pg_wal`, if the folder is listed after the page was
//! read. A standby that replays from an archive has no such segment; there the
//! control file's minRecoveryPoint, raised before every page write, bounds it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::page::postgres::LogEnd;
use crate::target::postgres::control::Control;

/// The end after a clean shutdown: the position of its checkpoint.
#[derive(Debug)]
pub struct ShutdownCheckpoint(pub u64);

impl LogEnd for ShutdownCheckpoint {
    fn end_for(&self, _lsn: u64) -> Option<u64> {
        Some(self.0)
    }
}

/// The end while a server runs or after a crash: asked again whenever a page
/// claims to be newer than what was known before.
#[derive(Debug)]
pub struct NewestSegment {
    data_dir: PathBuf,
    wal_segment_bytes: u32,
    /// The highest end seen; pages up to it need no new look.
    seen: AtomicU64,
}

impl NewestSegment {
    /// `None` if there is no log to look at, so that nothing is certain.
    #[must_use]
    pub fn find(data_dir: &Path, control: &Control) -> Option<Self> {
        let log = Self {
            data_dir: data_dir.to_owned(),
            wal_segment_bytes: control.wal_segment_bytes,
            seen: AtomicU64::new(0),
        };
        log.look()?;
        Some(log)
    }

    /// Lists the log now.
    fn look(&self) -> Option<u64> {
        let newest = ["pg_wal", "pg_xlog"]
            .iter()
            .filter_map(|folder| {
                newest_segment_end(&self.data_dir.join(folder), self.wal_segment_bytes)
            })
            .max()?;
        let replayed =
            super::read_control(&self.data_dir).map_or(0, |control| control.min_recovery_lsn);
        let end = newest.max(replayed);
        Some(self.seen.fetch_max(end, Ordering::Relaxed).max(end))
    }
}

impl LogEnd for NewestSegment {
    fn end_for(&self, lsn: u64) -> Option<u64> {
        let seen = self.seen.load(Ordering::Relaxed);
        if lsn <= seen { Some(seen) } else { self.look() }
    }
}

fn newest_segment_end(folder: &Path, segment_bytes: u32) -> Option<u64> {
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| segment_end(entry.file_name().to_str()?, segment_bytes))
        .max()
}

/// The position one past the segment with this file name: 8 hexadecimal digits
/// each of timeline, log and segment. Source: `XLogFromFileName` in
/// `src/include/access/xlog_internal.h`.
fn segment_end(name: &str, segment_bytes: u32) -> Option<u64> {
    let is_segment =
        name.len() == 24 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
    if !is_segment {
        return None;
    }
    let log = u64::from_str_radix(name.get(8..16)?, 16).ok()?;
    let segment = u64::from_str_radix(name.get(16..24)?, 16).ok()?;
    let begin =
        log.checked_mul(1 << 32)?.checked_add(segment.checked_mul(u64::from(segment_bytes))?)?;
    begin.checked_add(u64::from(segment_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_give_the_end_of_the_log() {
        assert_eq!(segment_end("000000010000000000000001", 16 << 20), Some(0x200_0000));
        assert_eq!(segment_end("0000000A00000002000000FF", 16 << 20), Some(0x3_0000_0000));
        assert_eq!(segment_end("000000010000000000000003", 64 << 20), Some(0x1000_0000));
        for name in [
            "000000010000000000000001.partial",
            "00000001.history",
            "archive_status",
            "",
            "00000001000000000000000g",
            "0000000100000000000000a1",
        ] {
            assert_eq!(segment_end(name, 16 << 20), None, "{name}");
        }
    }
}

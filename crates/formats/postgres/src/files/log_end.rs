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

use crate::files::control::Control;
use crate::files::state::Circumstances;
use crate::files::wal::segment::SegmentName;
use crate::page::LogEnd;

/// The end after a clean shutdown: the position of its checkpoint. It is no end any
/// more once a server has been started, which is asked for when a page is newer.
#[derive(Debug)]
pub struct ShutdownCheckpoint {
    data_dir: PathBuf,
    end: u64,
}

impl ShutdownCheckpoint {
    /// By the control file of a cluster that was shut down cleanly.
    #[must_use]
    pub fn new(data_dir: &Path, control: &Control) -> Self {
        Self { data_dir: data_dir.to_owned(), end: control.checkpoint_lsn }
    }
}

impl LogEnd for ShutdownCheckpoint {
    fn end_for(&self, lsn: u64) -> Option<u64> {
        let still_ends = lsn <= self.end || is_still_at_rest(&self.data_dir, self.end);
        still_ends.then_some(self.end)
    }
}

/// True if a cluster that was shut down cleanly with its checkpoint at this position
/// still is: no server was started on it since.
pub fn is_still_at_rest(data_dir: &Path, checkpoint_lsn: u64) -> bool {
    let control = super::read_control(data_dir);
    let is_same = control.as_ref().is_some_and(|now| now.checkpoint_lsn == checkpoint_lsn);
    is_same && Circumstances::find(data_dir, control.as_ref()).is_settled()
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

/// The position one past the segment with this file name.
fn segment_end(name: &str, segment_bytes: u32) -> Option<u64> {
    SegmentName::parse(name, segment_bytes)?.begin.checked_add(u64::from(segment_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory with these files in its log folder.
    fn cluster(folder: &str, segments: &[&str]) -> (tempfile::TempDir, Control) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join(folder)).unwrap();
        for segment in segments {
            std::fs::write(root.path().join(folder).join(segment), b"").unwrap();
        }
        let golden = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fixtures/postgres/15/control.on.shutdown"
        );
        let control = Control::parse(&std::fs::read(golden).unwrap()).unwrap();
        (root, control)
    }

    #[test]
    fn end_of_the_log_is_that_of_its_newest_segment_on_any_timeline() {
        for folder in ["pg_wal", "pg_xlog"] {
            let (root, control) = cluster(
                folder,
                &[
                    "000000010000000000000003",
                    "000000020000000000000002",
                    "00000002.history",
                    "000000030000000000000009.partial",
                    "archive_status",
                ],
            );
            let log = NewestSegment::find(root.path(), &control).unwrap();
            assert_eq!(log.end_for(0x100), Some(0x400_0000), "{folder}");
        }
    }

    #[test]
    fn log_that_grew_is_looked_at_again_when_a_page_is_newer() {
        let (root, control) = cluster("pg_wal", &["000000010000000000000001"]);
        let log = NewestSegment::find(root.path(), &control).unwrap();
        assert_eq!(log.end_for(0x200_0000), Some(0x200_0000));
        assert_eq!(log.end_for(0x200_0001), Some(0x200_0000));
        std::fs::write(root.path().join("pg_wal/000000010000000000000002"), b"").unwrap();
        // An older page is no reason to list the folder.
        assert_eq!(log.end_for(0x200_0000), Some(0x200_0000));
        assert_eq!(log.end_for(0x200_0001), Some(0x300_0000));
        // Segments are recycled; the end never goes back.
        std::fs::remove_file(root.path().join("pg_wal/000000010000000000000002")).unwrap();
        assert_eq!(log.end_for(0x300_0001), Some(0x300_0000));
    }

    #[test]
    fn without_a_log_its_end_is_not_known() {
        let (root, control) = cluster("pg_wal", &["00000002.history"]);
        assert!(NewestSegment::find(root.path(), &control).is_none());
        assert!(NewestSegment::find(&root.path().join("nowhere"), &control).is_none());
    }
}

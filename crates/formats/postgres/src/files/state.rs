//! Whether a cluster is at rest, running, crashed or a backup, and what a
//! failing page therefore proves.
//!
//! | circumstances | a page that fails is |
//! | --- | --- |
//! | shut down cleanly | damage |
//! | running, past recovery | damage, once it has stood still over several reads |
//! | crashed, or a backup | as the log says (see `wal`): a notice if replay overwrites it; damage if it does not, and nothing else explains it; else suspect |
//! | recovering | suspect: replay of the log mends torn pages |
//! | running, and no checkpoint of its own since it recovered | as of a crashed one: what replay mended is on disk at the next checkpoint only |

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::files::backup::directory::has_lost_its_label;
use crate::files::catalogue::Catalogue;
use crate::files::control::{ClusterState, Control};
use crate::files::log_end::{NewestSegment, ShutdownCheckpoint};
use crate::files::wal::replay::Replay;
use crate::files::wal::segment::{SegmentName, Segments};
use crate::files::wal::span::Span;
use crate::page::LogEnd;
use pagewarden_core::system::identity;
use pagewarden_core::verdict::Severity;

/// What the cluster is doing while we look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Circumstances {
    /// Shut down cleanly: nothing is waiting to be replayed.
    AtRest,
    /// A standby that was shut down cleanly.
    StandbyAtRest,
    /// A server runs on it and accepts connections.
    Running,
    /// A server runs on it and accepts connections, but what it replayed of the log when
    /// it started need not be on disk yet: a standby before its first restartpoint, or
    /// one that was promoted since.
    RunningUnsynced,
    /// A server runs on it and is starting, recovering or stopping.
    RunningUnsettled,
    /// Not shut down cleanly, and no server to be seen.
    Crashed,
    /// A base backup that was never started.
    Backup,
    /// The control file does not tell.
    Unknown,
    /// We may not read the control file; a server may.
    Unreadable,
}

impl Circumstances {
    /// Finds out from `pg_control`, `postmaster.pid`, `backup_label` and the manifest of a backup.
    pub(crate) fn find(root: &Path, control: Option<&Control>) -> Self {
        match postmaster(root, control) {
            Some(Postmaster::Ready { since }) => {
                let control = control.filter(|control| is_unsynced(root, control, since));
                return if control.is_some() { Self::RunningUnsynced } else { Self::Running };
            }
            Some(Postmaster::Unsettled) => return Self::RunningUnsettled,
            None => {}
        }
        if root.join("backup_label").exists() {
            return Self::Backup;
        }
        match control.map(|control| (control.state, control.backup_start_lsn)) {
            None => Self::Unknown,
            Some((ClusterState::ShutDown, _)) => Self::AtRest,
            // A standby stopped before a restored backup became consistent
            // still has torn pages to mend.
            Some((ClusterState::ShutDownInRecovery, 0)) => Self::StandbyAtRest,
            Some(_) if has_lost_its_label(root) => Self::Backup,
            Some(_) => Self::Crashed,
        }
    }

    /// True while files may change under us, or may have been left torn: such
    /// pages are read more than once.
    pub(crate) fn may_change(self) -> bool {
        matches!(self, Self::Running | Self::RunningUnsynced | Self::RunningUnsettled)
    }

    /// True if evidence from other files proves damage: nothing is in flight.
    pub(crate) fn is_settled(self) -> bool {
        self == Self::AtRest
    }

    /// What a page that fails is.
    pub(crate) fn failure(self) -> Severity {
        match self {
            Self::AtRest | Self::StandbyAtRest | Self::Running => Severity::Damage,
            // With pg_control gone no server can replay the log either.
            Self::Unknown => Severity::Damage,
            Self::RunningUnsynced
            | Self::RunningUnsettled
            | Self::Crashed
            | Self::Backup
            | Self::Unreadable => Severity::Suspect,
        }
    }

    /// What a finding from another file's evidence is.
    pub(crate) fn cross_file(self) -> Severity {
        if self.is_settled() { Severity::Damage } else { Severity::Suspect }
    }

    /// What replay of the log will do, where it is yet to be done and no server is
    /// at it. `wal` is where more of the log lies.
    pub(crate) fn replay(
        self,
        root: &Path,
        version: &str,
        control: &Control,
        wal: Option<&Path>,
    ) -> Option<Arc<Replay>> {
        let replays = [Self::Crashed, Self::StandbyAtRest, Self::Backup, Self::RunningUnsynced];
        if !replays.contains(&self) {
            return None;
        }
        let log = Span::find(root, control, self).and_then(|span| {
            let folders = ["pg_wal", "pg_xlog"].map(|folder| root.join(folder)).into_iter();
            let folders = folders.chain(wal.map(Path::to_owned)).collect();
            Ok((Segments::of(control, span.timeline, folders)?, span))
        });
        let catalogue = Catalogue::find(root, version, control);
        Some(Arc::new(Replay::new(log, catalogue, control.full_page_writes)))
    }

    /// The end of the log, where it is certain.
    pub(crate) fn log_end(self, root: &Path, control: &Control) -> Option<Arc<dyn LogEnd>> {
        match self {
            Self::AtRest => Some(Arc::new(ShutdownCheckpoint::new(root, control))),
            // The log of a backup may lie elsewhere.
            Self::Backup | Self::Unknown | Self::Unreadable => None,
            Self::StandbyAtRest
            | Self::Running
            | Self::RunningUnsynced
            | Self::RunningUnsettled
            | Self::Crashed => Some(Arc::new(NewestSegment::find(root, control)?)),
        }
    }

    /// For people.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::AtRest => "shut down cleanly",
            Self::StandbyAtRest => "a standby, shut down cleanly",
            Self::Running => "running",
            Self::RunningUnsynced => "running, without a checkpoint since it recovered",
            Self::RunningUnsettled => "starting, recovering or stopping",
            Self::Crashed => "not shut down cleanly: recovery has yet to run",
            Self::Backup => "a backup: recovery has yet to run",
            Self::Unknown => "state unknown",
            Self::Unreadable => "state unknown, as we may not read pg_control",
        }
    }
}

/// True if what this server replayed of the log when it started may not be on disk yet,
/// so that pages that a crash tore are still torn there. A standby writes them by its
/// first restartpoint, which is at a checkpoint of its primary that it has replayed; one
/// that is promoted, by the first checkpoint on its own timeline.
fn is_unsynced(root: &Path, control: &Control, since: Option<u64>) -> bool {
    let is_recovering = matches!(
        control.state,
        ClusterState::InArchiveRecovery | ClusterState::InCrashRecovery | ClusterState::StartingUp
    );
    // By the clock of the primary, in whole seconds.
    let is_older = since.is_none_or(|since| control.checkpoint_time <= since);
    is_recovering && is_older || newest_timeline(root, control) > control.timeline
}

/// The newest timeline that the log's folder holds a segment of; 0 for none.
fn newest_timeline(root: &Path, control: &Control) -> u32 {
    let folders =
        ["pg_wal", "pg_xlog"].iter().filter_map(|name| fs::read_dir(root.join(name)).ok());
    let names = folders.flat_map(Iterator::flatten).map(|entry| entry.file_name());
    let timelines = names.filter_map(|name| {
        SegmentName::parse(name.to_str()?, control.wal_segment_bytes).map(|name| name.timeline)
    });
    timelines.max().unwrap_or(0)
}

enum Postmaster {
    /// Accepts connections: recovery is over, or a standby is consistent.
    Ready {
        /// When it was started, in seconds since 1970.
        since: Option<u64>,
    },
    /// Runs, but may still be recovering.
    Unsettled,
}

/// The server that holds this data directory, if one is running.
///
/// `postmaster.pid`, by lines: process id, data directory, start time, port,
/// socket folder, listen address, shared memory key, status (from 10). Source:
/// `src/include/utils/pidfile.h`.
fn postmaster(root: &Path, control: Option<&Control>) -> Option<Postmaster> {
    let bytes =
        pagewarden_core::source::file::read_small(&root.join("postmaster.pid"), 4096).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    // A negative number is a single-user backend.
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    let pid = pagewarden_core::system::process::Pid::from_raw(pid.checked_abs()?)?;
    if pagewarden_core::system::process::test_kill_process(pid)
        == Err(pagewarden_core::system::Errno::SRCH)
    {
        return None;
    }
    // A killed server keeps its number until its parent process has waited for it.
    if let Ok(stat) = pagewarden_core::source::file::read_small(
        Path::new(&format!("/proc/{}/stat", pid.as_raw_nonzero())),
        512,
    ) && is_dead(&String::from_utf8_lossy(&stat))
    {
        return None;
    }
    // The number may have passed to another program since a crash: a server's
    // working directory is its data directory.
    if works_elsewhere(root, &format!("/proc/{}/cwd", pid.as_raw_nonzero())) {
        return None;
    }
    let since = lines.nth(1).and_then(|line| line.trim().parse().ok());
    match lines.nth(4).map(str::trim) {
        // "standby", of one that takes no connections, is set before a restored
        // backup is consistent.
        Some("ready") => Some(Postmaster::Ready { since }),
        Some(_) => Some(Postmaster::Unsettled),
        // 9.6 has no status line, and neither has a single-user backend: both
        // write to the control file when recovery is over.
        None if control.is_some_and(|control| control.state == ClusterState::InProduction) => {
            Some(Postmaster::Ready { since })
        }
        None => Some(Postmaster::Unsettled),
    }
}

/// True if a process works in another folder than this one. In a container it sees the
/// folder by another name, so that what the link leads to is compared, not the words.
fn works_elsewhere(root: &Path, link: &str) -> bool {
    let known = |path: &Path| fs::metadata(path).and_then(|found| identity(&found, path));
    match (known(Path::new(link)), known(root)) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        // A process that may not follow the link may perhaps read it.
        _ => match (fs::read_link(link), fs::canonicalize(root)) {
            (Ok(folder), Ok(root)) => folder != root,
            _ => false,
        },
    }
}

/// True if Linux's line about a process, `PID (name) STATE ...`, is about one
/// that has ended. The name may hold anything.
fn is_dead(stat: &str) -> bool {
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A data directory with a control file in this state, as far as its
    /// circumstances go.
    fn cluster(state: ClusterState, backup_start_lsn: u64) -> (tempfile::TempDir, Control) {
        let golden = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fixtures/postgres/15/control.on.shutdown"
        );
        let control = Control::parse(&fs::read(golden).unwrap()).unwrap();
        (tempfile::tempdir().unwrap(), Control { state, backup_start_lsn, ..control })
    }

    #[test]
    fn state_without_a_server_decides_what_a_failing_page_is() {
        let cases = [
            (ClusterState::ShutDown, 0, Circumstances::AtRest, Severity::Damage),
            (ClusterState::ShutDownInRecovery, 0, Circumstances::StandbyAtRest, Severity::Damage),
            (ClusterState::ShutDownInRecovery, 0x28, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::StartingUp, 0, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::ShuttingDown, 0, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::InCrashRecovery, 0, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::InArchiveRecovery, 0, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::InProduction, 0, Circumstances::Crashed, Severity::Suspect),
            (ClusterState::Other(99), 0, Circumstances::Crashed, Severity::Suspect),
        ];
        for (state, backup_start, expected, failure) in cases {
            let (root, control) = cluster(state, backup_start);
            let found = Circumstances::find(root.path(), Some(&control));
            assert_eq!(found, expected, "{state:?}");
            assert_eq!(found.failure(), failure, "{state:?}");
            // Other files prove damage after a clean stop only.
            let cross_file = match expected {
                Circumstances::AtRest => Severity::Damage,
                _ => Severity::Suspect,
            };
            assert_eq!(found.cross_file(), cross_file, "{state:?}");
            assert!(!found.may_change());

            fs::write(root.path().join("backup_label"), "").unwrap();
            let found = Circumstances::find(root.path(), Some(&control));
            assert_eq!(found, Circumstances::Backup, "{state:?}");
            assert_eq!(found.failure(), Severity::Suspect);
        }
        let (root, _) = cluster(ClusterState::ShutDown, 0);
        assert_eq!(Circumstances::find(root.path(), None), Circumstances::Unknown);
    }

    /// Not only a process: one whose working directory is the data directory.
    #[test]
    fn pid_file_is_believed_only_with_a_process_that_works_there() {
        let (root, control) = cluster(ClusterState::InProduction, 0);
        let found = |pid: &str, status: Option<&str>| {
            let mut text = format!("{pid}\n/data\n1\n5432\n/tmp\n\n1 2\n");
            text.extend(status.map(|status| format!("{status}\n")));
            fs::write(root.path().join("postmaster.pid"), text).unwrap();
            Circumstances::find(root.path(), Some(&control))
        };
        let mut server =
            std::process::Command::new("sleep").arg("60").current_dir(root.path()).spawn().unwrap();
        let pid = server.id().to_string();
        for pid in [pid.clone(), format!("-{pid}"), format!(" {pid} ")] {
            assert_eq!(found(&pid, Some("ready   ")), Circumstances::Running, "{pid}");
        }
        for status in ["starting", "stopping", "standby ", "", "nonsense"] {
            assert_eq!(found(&pid, Some(status)), Circumstances::RunningUnsettled, "{status}");
        }
        // 9.6 has no status: its control file says that recovery is over.
        assert_eq!(found(&pid, None), Circumstances::Running);
        server.kill().unwrap();
        // Until it is waited for, its number lives on.
        let begin = std::time::Instant::now();
        while found(&pid, Some("ready")) != Circumstances::Crashed {
            assert!(begin.elapsed().as_secs() < 10);
        }
        server.wait().unwrap();
        // It is gone, works elsewhere, or the file is nonsense.
        let ours = std::process::id().to_string();
        let no_process = ["999999999", "0", "", "x", "99999999999999999999", "-2147483648"];
        for pid in no_process.into_iter().chain([&*pid, &*ours]) {
            assert_eq!(found(pid, Some("ready")), Circumstances::Crashed, "{pid}");
        }
    }
}

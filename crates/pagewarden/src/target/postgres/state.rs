//! Whether a cluster is at rest, running, crashed or a backup, and what a
//! failing page therefore proves.
//!
//! | circumstances | a page that fails is |
//! | --- | --- |
//! | shut down cleanly | damage |
//! | running, past recovery | damage, once it has stood still over several reads |
//! | crashed, recovering, or a backup | suspect: replay of the log mends torn pages |

use std::path::Path;
use std::sync::Arc;

use crate::page::postgres::LogEnd;
use crate::target::postgres::control::{ClusterState, Control};
use crate::target::postgres::log_end::{NewestSegment, ShutdownCheckpoint};
use crate::verdict::Severity;

/// What the cluster is doing while we look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Circumstances {
    /// Shut down cleanly: nothing is waiting to be replayed.
    AtRest,
    /// A standby that was shut down cleanly.
    StandbyAtRest,
    /// A server runs on it and accepts connections.
    Running,
    /// A server runs on it and is starting, recovering or stopping.
    RunningUnsettled,
    /// Not shut down cleanly, and no server to be seen.
    Crashed,
    /// A base backup that was never started.
    Backup,
    /// The control file does not tell.
    Unknown,
}

impl Circumstances {
    /// Finds out from `pg_control`, `postmaster.pid` and `backup_label`.
    pub(crate) fn find(root: &Path, control: Option<&Control>) -> Self {
        match postmaster(root, control) {
            Some(Postmaster::Ready) => return Self::Running,
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
            Some(_) => Self::Crashed,
        }
    }

    /// True while files may change under us, or may have been left torn: such
    /// pages are read more than once.
    pub(crate) fn may_change(self) -> bool {
        matches!(self, Self::Running | Self::RunningUnsettled)
    }

    /// True if evidence from other files proves damage: nothing is in flight.
    pub(crate) fn is_settled(self) -> bool {
        self == Self::AtRest
    }

    /// What a page that fails is.
    pub(crate) fn failure(self) -> Severity {
        match self {
            Self::AtRest | Self::StandbyAtRest | Self::Running => Severity::Damage,
            // With pg_control gone nobody can replay the log either.
            Self::Unknown => Severity::Damage,
            Self::RunningUnsettled | Self::Crashed | Self::Backup => Severity::Suspect,
        }
    }

    /// What a finding from another file's evidence is.
    pub(crate) fn cross_file(self) -> Severity {
        if self.is_settled() { Severity::Damage } else { Severity::Suspect }
    }

    /// The end of the log, where it is certain.
    pub(crate) fn log_end(self, root: &Path, control: &Control) -> Option<Arc<dyn LogEnd>> {
        match self {
            Self::AtRest => Some(Arc::new(ShutdownCheckpoint(control.checkpoint_lsn))),
            // The log of a backup may lie elsewhere.
            Self::Backup | Self::Unknown => None,
            Self::StandbyAtRest | Self::Running | Self::RunningUnsettled | Self::Crashed => {
                Some(Arc::new(NewestSegment::find(root, control)?))
            }
        }
    }

    /// For people.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::AtRest => "shut down cleanly",
            Self::StandbyAtRest => "a standby, shut down cleanly",
            Self::Running => "running",
            Self::RunningUnsettled => "starting, recovering or stopping",
            Self::Crashed => "not shut down cleanly: recovery has yet to run",
            Self::Backup => "a backup: recovery has yet to run",
            Self::Unknown => "state unknown",
        }
    }
}

enum Postmaster {
    /// Accepts connections: recovery is over, or a standby is consistent.
    Ready,
    /// Runs, but may still be recovering.
    Unsettled,
}

/// The server that holds this data directory, if one is running.
///
/// `postmaster.pid`, by lines: process id, data directory, start time, port,
/// socket folder, listen address, shared memory key, status (from 10). Source:
/// `src/include/utils/pidfile.h`.
fn postmaster(root: &Path, control: Option<&Control>) -> Option<Postmaster> {
    let bytes = super::read_small(&root.join("postmaster.pid"), 4096).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    // A negative number is a single-user backend.
    let pid: i32 = lines.next()?.trim().parse().ok()?;
    let pid = rustix::process::Pid::from_raw(pid.checked_abs()?)?;
    if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return None;
    }
    // The number may have passed to another program since a crash: a server's
    // working directory is its data directory.
    if let Ok(folder) = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()))
        && let Ok(root) = std::fs::canonicalize(root)
        && folder != root
    {
        return None;
    }
    match lines.nth(6).map(str::trim) {
        // "standby", of one that takes no connections, is set before a restored
        // backup is consistent.
        Some("ready") => Some(Postmaster::Ready),
        Some(_) => Some(Postmaster::Unsettled),
        // 9.6 has no status line, and neither has a single-user backend: both
        // write to the control file when recovery is over.
        None if control.is_some_and(|control| control.state == ClusterState::InProduction) => {
            Some(Postmaster::Ready)
        }
        None => Some(Postmaster::Unsettled),
    }
}

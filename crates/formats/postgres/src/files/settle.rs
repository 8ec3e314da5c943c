//! Evidence from other files of a running server, which counts once it has
//! outlived a checkpoint.
//!
//! A server changes several files one after the other: a reader that looks in between
//! sees a hole that is none. A checkpoint brings all of them to one state, so
//! that what still stands after one that began and ended since the first look
//! is no moment's matter. Its own time, in whole seconds, says that it began since;
//! the control file, which names it then, says that it ended.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::files::control::ClusterState;
use crate::files::state::Circumstances;
use crate::files::{Cluster, read_control};
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{Finding, Note, Severity};

/// How long to wait before looking again whether there was a checkpoint.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A hole in a relation: a segment that is not there or not full, although
/// there is content behind it.
#[derive(Debug)]
pub(super) struct Hole {
    /// What is reported if it stands.
    pub(super) finding: Finding,
    /// The segment.
    pub(super) segment: PathBuf,
    /// The segment behind it, which has content.
    pub(super) behind: PathBuf,
    /// Bytes in a full segment.
    pub(super) full: u64,
    /// A crash long ago may have left it so; no checkpoint mends that.
    pub(super) may_be_a_remnant: bool,
}

impl Hole {
    /// True if the segment is full by now, or what lay behind it is gone.
    pub(super) fn is_closed(&self) -> bool {
        let length =
            |path: &PathBuf| std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
        length(&self.segment) >= self.full || length(&self.behind) == 0
    }

    /// The finding, now that it has outlived a checkpoint.
    fn outlived(self) -> Finding {
        const WORDS: &str = "still so after a checkpoint that began and ended since";
        let mut finding = self.finding;
        finding.add_detail(WORDS);
        if !self.may_be_a_remnant {
            finding.severity = Severity::Damage;
        }
        finding
    }
}

/// What was seen and waits for a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    holes: Vec<Hole>,
    /// When the last of them was seen, in seconds since 1970.
    seen: u64,
    /// Since when a checkpoint is waited for.
    since: Option<Instant>,
}

impl Waiting {
    pub(super) fn add(&mut self, hole: Hole) {
        self.holes.push(hole);
        self.seen = seconds_now();
    }

    /// What comes of it: a step that says that, or how long, to wait, or all that
    /// stands; nothing if nothing waits. Waits for `patience` from the first
    /// call on.
    pub(super) fn next(&mut self, cluster: &Cluster, patience: Duration) -> Vec<Step> {
        if self.holes.is_empty() {
            return Vec::new();
        }
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            let text = format!(
                "evidence from other files waits for a checkpoint, for {} s at most; the statement CHECKPOINT hastens it",
                patience.as_secs()
            );
            return vec![Step::Note(Note { file: String::new(), text })];
        };
        let settled = self.checkpoint_since(cluster);
        if !settled && since.elapsed() < patience && runs(cluster) {
            return vec![Step::Wait(LOOK_AGAIN_AFTER)];
        }
        let mut steps: Vec<_> = std::mem::take(&mut self.holes)
            .into_iter()
            .filter(|hole| !hole.is_closed())
            .map(|hole| Step::Finding(if settled { hole.outlived() } else { hole.finding }))
            .collect();
        if !settled && !steps.is_empty() {
            let text = if runs(cluster) {
                format!(
                    "no checkpoint began and ended within {} s: evidence from other files stays suspect",
                    patience.as_secs()
                )
            } else {
                "the server stopped while a checkpoint was waited for: check again".to_owned()
            };
            steps.push(Step::Note(Note { file: String::new(), text }));
        }
        steps
    }

    fn checkpoint_since(&self, cluster: &Cluster) -> bool {
        read_control(&cluster.root).is_some_and(|control| {
            control.state == ClusterState::InProduction && control.checkpoint_time > self.seen
        })
    }
}

/// True for a server whose own checkpoints count: those of a standby are the
/// primary's, by the primary's clock.
fn runs(cluster: &Cluster) -> bool {
    let control = read_control(&cluster.root);
    let in_production =
        control.as_ref().is_some_and(|control| control.state == ClusterState::InProduction);
    in_production && Circumstances::find(&cluster.root, control.as_ref()) == Circumstances::Running
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

//! What a server reads before anything else: the control file, and the checkpoint record
//! that it names.
//!
//! A sum that fits does not make a control file one that a server wrote. Its state, its
//! version and the constants of the build exclude one another in most combinations, and
//! the checkpoint that it holds is a copy of the record's.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Lack, Lacks, What};
use crate::files::backup::label::{LABEL, Label};
use crate::files::control::{Build, CONTROL_BYTES, ClusterState, Control, Ids, is_same_checkpoint};
use crate::files::state::Circumstances;
use crate::files::wal::block::{CHECKPOINT_ONLINE, CHECKPOINT_SHUTDOWN, Dialect, OF_LOG, touched};
use crate::files::wal::reader::{LogReader, Record, Stop};
use crate::files::wal::segment::Segments;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Kind, Severity};
use pagewarden_core::words::LsnText;

const LABEL_BYTES_MAX: usize = 1 << 16;

impl Lacks<'_> {
    /// What no server writes into a control file, and what only some servers open.
    pub(super) fn control(&mut self, control: &Control) {
        let path = self.cluster.root.join("global/pg_control");
        let mut wrong = Vec::new();
        if let ClusterState::StartingUp | ClusterState::Other(_) = control.state {
            wrong.push("no server leaves the state that it says, and each refuses it".to_owned());
        }
        let is_at_rest = self.cluster.circumstances == Circumstances::AtRest;
        if is_at_rest && (control.min_recovery_lsn, control.min_recovery_timeline) != (0, 0) {
            wrong.push(format!(
                "it says that the cluster was shut down cleanly, and that recovery must reach {} in timeline {}",
                LsnText(control.min_recovery_lsn),
                control.min_recovery_timeline
            ));
        }
        if let Some((major, version)) = control.release()
            && version != control.version
        {
            wrong.push(format!(
                "its version is {}, and by its catalogue version it is of PostgreSQL {major}, which writes {version}",
                control.version
            ));
        }
        let bytes = read_small(&path, CONTROL_BYTES).unwrap_or_default();
        let build = Build::read(&bytes);
        wrong.extend(build.iter().flat_map(|build| build.impossible(control)));
        for detail in wrong {
            self.finding_of(&path, Severity::Damage, Kind::Header, detail);
        }
        let mut unusual: Vec<_> = build.iter().flat_map(|build| build.unusual(control)).collect();
        if control.release().is_none() && !control.guessed {
            unusual.push(format!("the catalogue version {}", control.catalog_version));
        }
        if !unusual.is_empty() {
            let text = format!(
                "no release of PostgreSQL has {}: only a server that was built like this one opens the cluster",
                unusual.join(", ")
            );
            self.found.push(Lack { path, what: What::Note(text) });
        }
    }

    fn own_log(&self) -> PathBuf {
        self.cluster.root.join(match self.cluster.major.as_str() {
            "9.6" => "pg_xlog",
            _ => "pg_wal",
        })
    }

    /// The log of the cluster, and more of it in `wal`. `None`: it cannot be read, or its folder is not
    /// there, which was said already.
    pub(super) fn segments(&self, control: &Control, wal: Option<&Path>) -> Option<Segments> {
        let own = Some(self.own_log()).filter(|own| own.is_dir())?;
        let folders = [own].into_iter().chain(wal.map(Path::to_owned)).collect();
        Segments::of(control, control.timeline, folders).ok()
    }

    /// The record that a server reads first; gives the numbers that it found in use.
    pub(super) fn checkpoint(&mut self, control: &Control, wal: Option<&Path>) -> Option<Ids> {
        let segments = self.segments(control, wal)?;
        let path = self.own_log().join(segments.name_of(control.checkpoint_lsn));
        if let Err(error) = segments.open(control.checkpoint_lsn)
            && error.kind() != ErrorKind::NotFound
        {
            self.unread(&path, error.to_string());
            return None;
        }
        let mut reader = LogReader::new(segments, control.checkpoint_lsn, None, 0);
        let stop = match reader.next_record() {
            Ok(record) if record.begin == control.checkpoint_lsn => {
                let ids = Dialect::of_magic(record.magic)
                    .and_then(|dialect| touched(record.head, dialect, |_| {}))
                    .and_then(Ids::of_checkpoint);
                if let Some(detail) = self.is_other_checkpoint(control, &record) {
                    self.finding(&path, Kind::Header, detail);
                }
                return ids;
            }
            Ok(_) => Stop::End,
            Err(stop) => stop,
        };
        let at = LsnText(control.checkpoint_lsn);
        let (kind, detail) = match stop {
            Stop::Gap(words) if !path.exists() => (
                Kind::Missing,
                format!(
                    "it holds the checkpoint record at {at}, which a server reads first: {words}"
                ),
            ),
            Stop::Gap(words) => (
                Kind::Header,
                format!(
                    "the checkpoint record at {at}, which a server reads first, cannot be read: {words}"
                ),
            ),
            Stop::End => (
                Kind::Header,
                format!("there is no checkpoint record at {at}, where the control file says it is"),
            ),
        };
        match self.recovers_from_archive() {
            // It may find its log there.
            true => self.finding_of(&path, Severity::Suspect, kind, detail),
            false => self.finding(&path, kind, detail),
        }
        None
    }

    /// The label of a backup, and the log from its begin to its end: without them no server
    /// starts on it.
    pub(super) fn log_of_backup(&mut self) {
        let path = self.cluster.root.join(LABEL);
        let label = match read_small(&path, LABEL_BYTES_MAX) {
            Ok(label) => label,
            Err(error) => return self.unread(&path, error.to_string()),
        };
        if Label::parse(&label).start_lsn.is_none() {
            let detail = "it does not say where the log of the backup begins, and no server starts with such a label";
            return self.finding_of(&path, Severity::Damage, Kind::Header, detail);
        }
        let Some(replay) = self.cluster.replay.as_ref().filter(|replay| replay.knows_its_log())
        else {
            return;
        };
        let Some(gap) = replay.scanned().gap().filter(|_| !self.cluster.no_log) else { return };
        let error = format!(
            "the log that the backup needs to be consistent, from {} on, is not here as a whole: {gap} (--wal DIR names a folder with more of it, --no-log leaves it out)",
            LsnText(replay.scanned().begin())
        );
        self.unread(&self.cluster.root.join("pg_wal"), error);
    }

    /// Why a record is not the checkpoint that the control file holds a copy of.
    fn is_other_checkpoint(&self, control: &Control, record: &Record<'_>) -> Option<String> {
        let at = LsnText(control.checkpoint_lsn);
        let kind = (record.header.manager, record.header.operation());
        let is_at_rest = self.cluster.circumstances == Circumstances::AtRest;
        match kind {
            (OF_LOG, CHECKPOINT_SHUTDOWN) => {}
            (OF_LOG, CHECKPOINT_ONLINE) if !is_at_rest => {}
            (OF_LOG, CHECKPOINT_ONLINE) => {
                return Some(format!(
                    "the control file says that the server was shut down cleanly, and the checkpoint at {at} is one that was made while it ran"
                ));
            }
            _ => {
                return Some(format!(
                    "the record at {at}, where the control file says the last checkpoint is, is none of a checkpoint"
                ));
            }
        }
        let main = touched(record.head, Dialect::of_magic(record.magic)?, |_| {})?;
        let path = self.cluster.root.join("global/pg_control");
        let bytes = read_small(&path, CONTROL_BYTES).ok()?;
        let copy = Control::checkpoint_of(&bytes)?;
        // A standby's next transaction is that of the newest checkpoint that it has seen.
        let is_next_same = !is_at_rest || Ids::of_checkpoint(main) == control.ids;
        let is_same = is_same_checkpoint(main, copy) && is_next_same;
        (!is_same).then(|| {
            format!("the checkpoint record at {at} is not the one that the control file holds")
        })
    }

    /// True if a server looks for the log in an archive, too.
    pub(super) fn recovers_from_archive(&self) -> bool {
        let signals = ["standby.signal", "recovery.signal", "recovery.conf"];
        signals.iter().any(|name| self.cluster.root.join(name).exists())
    }
}

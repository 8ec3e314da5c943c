//! Which stretch of the log recovery has to replay, from the control file or
//! the label of a backup.

use std::path::Path;

use crate::files::control::Control;
use crate::files::state::Circumstances;
use pagewarden_core::source::file::read_small;

/// A stretch of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The timeline it is in.
    pub timeline: u32,
    /// Where replay begins: the redo position.
    pub begin: u64,
    /// Where the record of the checkpoint is, which must be met on the way.
    pub checkpoint: u64,
    /// Where it ends.
    pub until: Until,
}

/// How the end of a [`Span`] is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The end of all there is, which cannot be before this position.
    EndOfLog(u64),
    /// The record that says a backup that began at the span's begin has ended.
    EndOfBackup,
    /// A position.
    Position(u64),
}

impl Span {
    /// What has to be replayed in a cluster.
    ///
    /// # Errors
    /// Why that is not known, in words.
    pub(crate) fn find(
        root: &Path,
        control: &Control,
        circumstances: Circumstances,
    ) -> Result<Self, String> {
        match circumstances {
            Circumstances::Crashed
            | Circumstances::StandbyAtRest
            | Circumstances::RunningUnsynced => Self::after_crash(control),
            Circumstances::Backup => {
                let label = read_small(&root.join("backup_label"), 16 << 10)
                    .map_err(|error| format!("backup_label cannot be read: {error}"))?;
                Self::of_backup(&String::from_utf8_lossy(&label), control)
            }
            _ => Err(format!("the cluster is {}", circumstances.in_words())),
        }
    }

    /// What has to be replayed of a copy with this label, or of one without.
    ///
    /// # Errors
    /// Why that is not known, in words.
    pub fn of_copy(label: Option<&str>, control: &Control) -> Result<Self, String> {
        match label {
            Some(label) => Self::of_backup(label, control),
            None => Self::after_crash(control),
        }
    }

    fn after_crash(control: &Control) -> Result<Self, String> {
        if control.backup_start_lsn != 0 {
            return Err("a restored backup is not consistent yet".to_owned());
        }
        if control.min_recovery_timeline > control.timeline {
            return Err(another_timeline());
        }
        Ok(Self {
            timeline: control.timeline,
            begin: control.redo_lsn,
            checkpoint: control.checkpoint_lsn,
            until: Until::EndOfLog(control.min_recovery_lsn),
        })
    }

    /// Reads a `backup_label`:
    ///
    /// ```text
    /// START WAL LOCATION: 0/2000028 (file 000000010000000000000002)
    /// CHECKPOINT LOCATION: 0/2000060
    /// BACKUP METHOD: streamed
    /// BACKUP FROM: primary
    /// ```
    ///
    /// Source: `read_backup_label` in
    /// `src/backend/access/transam/xlogrecovery.c`. The label of a standby's
    /// backup says so; no record tells its end, the control file does, which is
    /// copied last.
    fn of_backup(label: &str, control: &Control) -> Result<Self, String> {
        let value = |name: &str| {
            let mut lines = label.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::trim))
        };
        let unclear = || "backup_label cannot be understood".to_owned();
        let start = value("START WAL LOCATION").ok_or_else(unclear)?;
        let (begin, file) = start.split_once(" (file ").ok_or_else(unclear)?;
        let timeline = file.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let timeline = timeline.ok_or_else(unclear)?;
        let checkpoint = value("CHECKPOINT LOCATION").and_then(lsn).ok_or_else(unclear)?;
        if value("BACKUP METHOD") == Some("pg_rewind") {
            return Err("pg_rewind was at work here".to_owned());
        }
        let until = match value("BACKUP FROM") {
            // Up to 13 it is called master.
            Some("primary" | "master") => Until::EndOfBackup,
            Some("standby") if control.min_recovery_lsn == 0 => return Err(unclear()),
            Some("standby") if control.min_recovery_timeline > timeline => {
                return Err(another_timeline());
            }
            Some("standby") => Until::Position(control.min_recovery_lsn),
            _ => return Err(unclear()),
        };
        Ok(Self { timeline, begin: lsn(begin).ok_or_else(unclear)?, checkpoint, until })
    }
}

/// Said where a promotion lies between the redo position and the end.
pub(super) fn another_timeline() -> String {
    "the log goes on in another timeline".to_owned()
}

/// A position in PostgreSQL's notation, `16/B374D848`.
fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let part = |digits| u32::from_str_radix(digits, 16).ok().map(u64::from);
    Some(part(high)? << 32 | part(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "START WAL LOCATION: 16/B374D848 (file 0000000300000016000000B3)\n\
        CHECKPOINT LOCATION: 16/B374D8B0\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
        START TIME: 2024-05-01 12:00:00 UTC\nLABEL: pg_basebackup base backup\n\
        START TIMELINE: 3\n";

    fn control() -> Control {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fixtures/postgres/16/control.on.crashed"
        );
        Control::parse(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn label_of_a_backup_says_what_has_to_be_replayed() {
        let span = Span {
            timeline: 3,
            begin: 0x16_B374_D848,
            checkpoint: 0x16_B374_D8B0,
            until: Until::EndOfBackup,
        };
        assert_eq!(Span::of_backup(LABEL, &control()), Ok(span));
        let mut control = control();
        let of_standby = LABEL.replace("primary", "standby");
        assert!(Span::of_backup(&of_standby, &control).is_err());
        control.min_recovery_lsn = 0x16_C000_0000;
        control.min_recovery_timeline = 3;
        let until = Until::Position(control.min_recovery_lsn);
        assert_eq!(Span::of_backup(&of_standby, &control), Ok(Span { until, ..span }));
        control.min_recovery_timeline = 4;
        assert!(Span::of_backup(&of_standby, &control).is_err());
    }

    #[test]
    fn label_that_is_not_understood_tells_nothing() {
        for length in 0..LABEL.find("START TIME").unwrap() - 1 {
            assert!(Span::of_backup(&LABEL[..length], &control()).is_err(), "{length} bytes");
        }
        let rewound = LABEL.replace("streamed", "pg_rewind");
        assert!(Span::of_backup(&rewound, &control()).is_err());
    }

    #[test]
    fn crashed_cluster_is_replayed_from_its_redo_position() {
        let mut control = control();
        let span = Span::after_crash(&control).unwrap();
        assert_eq!((span.begin, span.checkpoint), (control.redo_lsn, control.checkpoint_lsn));
        assert_eq!(span.until, Until::EndOfLog(control.min_recovery_lsn));
        control.min_recovery_timeline = control.timeline + 1;
        assert!(Span::after_crash(&control).is_err());
        control.min_recovery_timeline = 0;
        control.backup_start_lsn = 1;
        assert!(Span::after_crash(&control).is_err());
    }
}

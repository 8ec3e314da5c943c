//! What a real backup's message says of the disk that it came from.

use serde::Serialize;

use pagewarden::words::{grouped, rate};

use crate::iotest::diagnosis::{Reading, limits};
use crate::iotest::messages::{Backup, Megabyte};
use crate::iotest::session::Session;

/// A backup, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// What the message says.
    #[serde(flatten)]
    pub backup: Backup,
    /// What follows, in sentences.
    pub sentences: Vec<String>,
}

/// Judges backups against a disk, or by themselves where none was measured.
#[must_use]
pub fn judge(backups: Vec<Backup>, session: Option<&Session>) -> Vec<Judgement> {
    backups
        .into_iter()
        .map(|backup| {
            let sentences = sentences(&backup, session);
            Judgement { backup, sentences }
        })
        .collect()
}

fn sentences(backup: &Backup, session: Option<&Session>) -> Vec<String> {
    let mut said = vec![format!(
        "{} pages in {} s: {} MiB/s ({} MB/s of 10^6 bytes); printed as {} MB/s, {}.",
        grouped(backup.pages),
        backup.seconds,
        figure(backup.mib_per_second),
        figure(backup.mb_per_second),
        backup.printed_rate,
        match backup.megabyte {
            Megabyte::Decimal => "which has 10^6 bytes",
            Megabyte::Binary => "which is MiB/s",
            Megabyte::Unknown => "which does not tell its megabyte",
        }
    )];
    if !backup.is_consistent {
        said.push(format!(
            "These figures contradict each other: {} pages in {} s are not {} MB/s of any kind. The line \
             was changed, or is of something else: believe none of them.",
            grouped(backup.pages),
            backup.seconds,
            backup.printed_rate
        ));
    }
    if backup.adds_up == Some(false) {
        let sum: u64 = backup.files.iter().fold(0, |sum, pages| sum.saturating_add(*pages));
        said.push(format!(
            "Its files have {} pages, not {}: lines are missing.",
            grouped(sum),
            grouped(backup.pages)
        ));
    }
    let Some(session) = session.filter(|_| backup.is_consistent) else { return said };
    if backup.statement.starts_with("RESTORE") {
        if let Some(restore) = session.pattern("restore") {
            // What is restored is read once and written once.
            let here = restore.mib_per_second / 2.0;
            said.push(format!(
                "This disk restores {} MiB/s from itself: x{:.2} of that.",
                rate(here),
                backup.mib_per_second / here.max(1e-9)
            ));
        }
        return said;
    }
    let reading = Reading {
        bytes: backup.pages.saturating_mul(8192),
        seconds: backup.seconds,
        mib_per_second: backup.mib_per_second,
        cores_busy: None,
        jobs: None,
        files: None,
        is_same_disk: None,
    };
    said.extend(limits(&reading, session));
    said
}

fn figure(rate: f64) -> String {
    format!("{rate:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::measured::Measured;
    use crate::iotest::messages::parse;
    use crate::iotest::session::PatternResult;

    const TEXT: &str = "BACKUP DATABASE successfully processed 302810923 pages in 6010.400 \
                        seconds (412.727 MB/sec).";

    #[test]
    fn a_message_is_judged_alone_and_against_a_disk() {
        let alone = judge(parse(TEXT), None);
        let said = alone.first().unwrap().sentences.join("\n");
        assert!(said.contains("393.6 MiB/s"), "{said}");
        assert!(said.contains("10^6 bytes"), "{said}");
        let measured = Measured { mib_per_second: 1200.0, ..Measured::default() };
        let session = Session {
            patterns: vec![PatternResult { name: "backup", depth: 8, measured, fio: None }],
            ..Session::default()
        };
        let said = judge(parse(TEXT), Some(&session)).first().unwrap().sentences.join("\n");
        assert!(said.contains("x0.33 of that"), "{said}");
    }

    #[test]
    fn figures_that_contradict_each_other_are_told_and_compared_with_nothing() {
        let text = TEXT.replace("412.727", "51.6");
        let measured = Measured { mib_per_second: 1200.0, ..Measured::default() };
        let session = Session {
            patterns: vec![PatternResult { name: "backup", depth: 8, measured, fio: None }],
            ..Session::default()
        };
        for session in [None, Some(&session)] {
            let said = judge(parse(&text), session).first().unwrap().sentences.join("\n");
            assert!(said.contains("contradict each other"), "{said}");
            assert!(!said.contains("of that"), "{said}");
        }
    }

    #[test]
    fn a_backup_whose_lines_are_missing_is_told() {
        let text = format!("Processed 5 pages for database 'a', file 'a' on file 1.\n{TEXT}");
        let said = judge(parse(&text), None).first().unwrap().sentences.join("\n");
        assert!(said.contains("lines are missing"), "{said}");
    }
}

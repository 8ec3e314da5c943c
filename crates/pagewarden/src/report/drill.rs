//! A restore drill: a backup that was brought back, and read by a real server.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::words::{bytes, counted, duration, grouped, printable};

/// What came of a drill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drill {
    /// Whether a server could open the backup and read every row.
    pub verdict: DrillVerdict,
    /// The repository or backup, and what was brought back of it.
    pub backup: String,
    /// The server's programs.
    pub server: Option<String>,
    /// Files that were brought back.
    pub files: u64,
    /// The bytes in them.
    pub bytes: u64,
    /// The position at which replay ended, and the time of the last transaction in it, as the server says them.
    pub replayed_to: Option<String>,
    /// See `replayed_to`.
    pub last_transaction: Option<String>,
    /// Databases of which every table was read.
    pub databases: u64,
    /// Tables and materialized views, those of TOAST included.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// `pg_amcheck` looked at every table and B-tree index.
    pub amcheck: bool,
    /// What was not looked at, and why.
    pub notes: Vec<String>,
    /// What went wrong, or was found.
    pub complaints: Vec<String>,
    /// From the first byte to the end.
    #[serde(serialize_with = "seconds")]
    pub seconds: Duration,
}

/// See [`Drill::verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DrillVerdict {
    /// It was brought back, replayed to the end of the log, and read.
    Passed,
    /// It was not, or the server complained.
    Failed,
    /// It could not be tried here: a program is missing.
    Impossible,
}

impl Drill {
    /// A store did not give all that was asked for, so that a failure proves nothing.
    pub fn was_kept_from_the_backup(&mut self, why: &str) {
        if self.verdict == DrillVerdict::Failed {
            self.verdict = DrillVerdict::Impossible;
            self.complaints.push(why.to_owned());
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// Lines for people, the first of them a result.
impl fmt::Display for Drill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.verdict {
            DrillVerdict::Passed => "passed",
            DrillVerdict::Failed => "FAILED",
            DrillVerdict::Impossible => "could not be tried",
        };
        write!(f, "Restore drill of {}: {word}", printable(&self.backup))?;
        if self.files > 0 {
            write!(
                f,
                "\n  brought back {} ({}) in a temporary folder",
                counted(self.files, "file"),
                bytes(self.bytes)
            )?;
        }
        if let (Some(server), Some(end)) = (&self.server, &self.replayed_to) {
            write!(f, "\n  {server} replayed the log to {}", printable(end))?;
            if let Some(time) = &self.last_transaction {
                write!(f, ", the last transaction of {}", printable(time))?;
            }
        }
        if self.databases > 0 {
            write!(
                f,
                "\n  read {} in {} of {}",
                counted(self.rows, "row"),
                counted(self.tables, "table"),
                counted(self.databases, "database")
            )?;
            f.write_str(match (self.amcheck, self.verdict) {
                (true, DrillVerdict::Passed) => "; pg_amcheck found nothing",
                (true, _) => "; pg_amcheck ran",
                (false, _) => "; pg_amcheck is not installed, so indexes were not looked at",
            })?;
        }
        for note in &self.notes {
            write!(f, "\n  note: {}", printable(note))?;
        }
        for complaint in self.complaints.iter().take(SHOWN) {
            write!(f, "\n  {}", printable(complaint))?;
        }
        let more = self.complaints.len().saturating_sub(SHOWN);
        if more > 0 {
            write!(f, "\n  and {} more", grouped(more as u64))?;
        }
        write!(f, "\n  in {}", duration(self.seconds))
    }
}

/// Complaints in a text.
const SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn drill() -> Drill {
        Drill {
            verdict: DrillVerdict::Passed,
            backup: "/repo: full backup of one".to_owned(),
            server: Some("PostgreSQL 15.18".to_owned()),
            files: 1200,
            bytes: 31 << 20,
            replayed_to: Some("0/5000028".to_owned()),
            last_transaction: None,
            databases: 2,
            tables: 140,
            rows: 100_000,
            amcheck: true,
            notes: Vec::new(),
            complaints: Vec::new(),
            seconds: Duration::from_millis(4200),
        }
    }

    #[test]
    fn drill_is_told_in_lines() {
        let told = drill().to_string();
        assert!(told.starts_with("Restore drill of /repo: full backup of one: passed\n"), "{told}");
        assert!(
            told.contains(
                "read 100,000 rows in 140 tables of 2 databases; pg_amcheck found nothing"
            )
        );
        let failed = Drill {
            verdict: DrillVerdict::Failed,
            complaints: vec!["bad\u{1b}[31m".to_owned(); 25],
            ..drill()
        };
        let told = failed.to_string();
        assert!(told.contains("FAILED") && told.contains("and 5 more") && !told.contains('\u{1b}'));
    }
}

//! What came of a comparison.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::diagnosis::Diagnosis;
use super::map::{PartMap, PartState};
use super::mode::Mode;
use super::plan::NotCompared;
use super::sample::Sampled;
use crate::engine::Beside;
use crate::row::Value;
use crate::table::Column;

/// What is said of a table, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Seen to be equal.
    Equal,
    /// Not all of it could be compared, and nothing different was found.
    Incomplete,
    /// Something is different.
    Different,
}

impl Verdict {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Incomplete => "incomplete",
            Self::Different => "different",
        }
    }
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The target lacks it.
    OnlySource,
    /// The source lacks it.
    OnlyTarget,
    /// Both have the key, and not the same values.
    Changed,
}

impl Kind {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnlySource => "only_source",
            Self::OnlyTarget => "only_target",
            Self::Changed => "changed",
        }
    }
}

/// A row that differs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Difference {
    /// How.
    pub kind: Kind,
    /// Its key, by columns; all of the row where there is no key.
    pub key: Vec<(String, Value)>,
    /// The columns that differ, if the row is on both sides.
    pub columns: Vec<String>,
    /// The source's values, in the order of the report's columns.
    pub source: Option<Vec<Value>>,
    /// The target's values.
    pub target: Option<Vec<Value>>,
}

/// Rows that differ.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// Rows whose values differ.
    pub changed: u64,
    /// Rows that the target lacks.
    pub only_source: u64,
    /// Rows that the source lacks.
    pub only_target: u64,
    /// Some of them, as many as are listed.
    pub differences: Vec<Difference>,
    /// Where they are in the map of the table's parts.
    pub places: BTreeSet<u64>,
}

impl Found {
    /// Takes others in.
    pub fn join(&mut self, other: Self) {
        self.changed += other.changed;
        self.only_source += other.only_source;
        self.only_target += other.only_target;
        self.differences.extend(other.differences);
        self.places.extend(other.places);
    }

    /// How many there are.
    pub fn rows(&self) -> u64 {
        self.changed + self.only_source + self.only_target
    }
}

/// A part of a table that differs, of which no row is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartDifference {
    /// Its number.
    pub part: u64,
    /// Which rows, as a condition of a statement; empty for all.
    pub rows_of: String,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
}

/// What came of one table.
#[derive(Debug, Clone, Default)]
pub struct TableReport {
    /// Its name in the source.
    pub table: String,
    /// Its name in the target, as the target's statements write it.
    pub target_table: String,
    /// The columns that were compared.
    pub columns: Vec<String>,
    /// The same as the target has them.
    pub target_columns: Vec<Column>,
    /// How many of the first of them are the key.
    pub key_count: usize,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// Rows that the target lacks.
    pub only_source: u64,
    /// Rows that the source lacks.
    pub only_target: u64,
    /// Rows whose values differ.
    pub changed: u64,
    /// Rows that kept changing to the end.
    pub unresolved: u64,
    /// True if there are more differences than were counted.
    pub counts_at_least: bool,
    /// What was not compared.
    pub not_compared: Vec<NotCompared>,
    /// The parts in which the table was read.
    pub chunks: u64,
    /// In which way.
    pub mode: Mode,
    /// Why in that way; nothing where it was asked for.
    pub mode_because: String,
    /// What came of the parts.
    pub map: PartMap,
    /// The bytes of both sides' rows.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Rows that differ, as many as were asked for.
    pub differences: Vec<Difference>,
    /// Parts that differ, where servers have summed for themselves.
    pub parts_different: Vec<PartDifference>,
    /// What the differences have in common.
    pub diagnosis: Vec<Diagnosis>,
    /// Why the table, or the rest of it, could not be compared.
    pub error: Option<String>,
    /// True if it was ended from outside.
    pub stopped: bool,
    /// How long the run has waited for the servers' load or lag to fall.
    pub paused_seconds: f64,
    /// Parts that an earlier run had read.
    pub chunks_resumed: u64,
    /// True if an earlier run had read and settled all.
    pub is_known: bool,
    /// What only a part of the table was compared, and what that says.
    pub sample: Option<Sampled>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

impl TableReport {
    /// Counts rows that differ in.
    pub fn take(&mut self, found: Found) {
        // They may come from a file.
        self.changed = self.changed.saturating_add(found.changed);
        self.only_source = self.only_source.saturating_add(found.only_source);
        self.only_target = self.only_target.saturating_add(found.only_target);
        self.differences.extend(found.differences);
        found.places.into_iter().for_each(|place| self.map.mark(place, PartState::Different));
    }

    /// The rows that differ.
    pub fn different(&self) -> u64 {
        self.only_source.saturating_add(self.only_target).saturating_add(self.changed)
    }

    /// What is said of the table.
    pub fn verdict(&self) -> Verdict {
        if self.different() > 0 || !self.parts_different.is_empty() {
            Verdict::Different
        } else if self.error.is_some()
            || self.stopped
            || self.unresolved > 0
            || self.counts_at_least
            || !self.not_compared.is_empty()
            || self.sample.as_ref().is_some_and(|sample| !sample.is_whole())
        {
            Verdict::Incomplete
        } else {
            Verdict::Equal
        }
    }
}

/// What came of two databases.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The source, without its password.
    pub source: String,
    /// What the source's server calls itself.
    pub source_server: String,
    /// The target, without its password.
    pub target: String,
    /// The kind of the target's server, as its URLs begin.
    pub target_scheme: &'static str,
    /// What the target's server calls itself.
    pub target_server: String,
    /// Its tables.
    pub tables: Vec<TableReport>,
    /// What else the source holds and the target, which is not compared; nothing where tables
    /// were named.
    pub beside: [Vec<Beside>; 2],
    /// True if it was ended from outside, after all tables had been read.
    pub stopped: bool,
}

impl Outcome {
    /// True if it was ended from outside.
    pub fn is_stopped(&self) -> bool {
        self.stopped || self.tables.iter().any(|table| table.stopped)
    }
}

/// What is said of all tables; nothing to compare is nothing proven.
pub fn verdict<'a>(tables: impl Iterator<Item = &'a TableReport>) -> Verdict {
    tables.map(TableReport::verdict).max().unwrap_or(Verdict::Incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_equal_is_not_called_equal() {
        let equal = TableReport::default();
        assert_eq!(equal.verdict(), Verdict::Equal);
        let sample = Some(Sampled::of(100, 100, 0, 1));
        assert_eq!(TableReport { sample, ..equal.clone() }.verdict(), Verdict::Equal);
        let left = NotCompared { column: "c".to_owned(), reason: String::new() };
        for incomplete in [
            TableReport { unresolved: 1, ..equal.clone() },
            TableReport { error: Some("gone".to_owned()), ..equal.clone() },
            TableReport { stopped: true, ..equal.clone() },
            TableReport { not_compared: vec![left], ..equal.clone() },
            TableReport { sample: Some(Sampled::of(100, 99, 0, 1)), ..equal.clone() },
        ] {
            assert_eq!(incomplete.verdict(), Verdict::Incomplete);
            let different = TableReport { changed: 1, ..incomplete.clone() };
            assert_eq!(different.verdict(), Verdict::Different);
            assert_eq!(verdict([&equal, &incomplete].into_iter()), Verdict::Incomplete);
            assert_eq!(verdict([&different, &incomplete].into_iter()), Verdict::Different);
        }
        assert_eq!(verdict([].into_iter()), Verdict::Incomplete);
    }
}

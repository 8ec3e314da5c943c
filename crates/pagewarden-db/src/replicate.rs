//! Checksums that replicas compute for themselves.
//!
//! On the primary, each part of a table is summed by one statement, `INSERT ... SELECT` into
//! the table [`TABLE`] of the same database. The session's binary log is one of statements:
//! each replica runs the same statement at the same place of the log, over its own rows. What
//! differs there, differed at that moment, however late the replica is.
//!
//! | column | what |
//! |---|---|
//! | `table_name`, `part` | the key |
//! | `run` | a word that no other run has |
//! | `is_last` | 1 in the last part of a table |
//! | `rows_of` | which rows, as a condition; empty for all |
//! | `server` | the `server_id` of who computed it, which tells a replica that only got rows |
//! | `row_count`, `hashed_count` | its rows, and those that could be hashed |
//! | `sum_high`, `sum_low` | the sums of the halves of their hashes |

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::checksum::{Checksum, Tell};
use crate::compare::report::{Outcome, PartDifference, TableReport};
use crate::engine::{self, Connection, Query, Range};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::Value;
use crate::table::TableName;

/// The table of checksums.
pub const TABLE: &str = "pagewarden_checksums";
/// Its comment, which tells it and its version.
pub const COMMENT: &str = "pagewarden checksums, version 1";
/// The time between two looks at how far a replica has come.
const NAP: Duration = Duration::from_millis(200);
/// Its columns, as they are read.
const COLUMNS: [&str; 10] = [
    "table_name",
    "part",
    "run",
    "is_last",
    "rows_of",
    "server",
    "row_count",
    "hashed_count",
    "sum_high",
    "sum_low",
];

/// How sums are made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Rows of a part; else as many as a short time allows.
    pub chunk_rows: Option<u64>,
}

/// Makes the checksums of a table.
pub type Write = fn(&Location, &TableName, Options, &Tell<'_>) -> Result<Checksum>;

/// Writes a table's checksums on the primary.
///
/// # Errors
/// The engine has no replicas that run statements, or the server refuses.
pub fn write(
    primary: &Location,
    name: &TableName,
    options: Options,
    tell: &Tell<'_>,
) -> Result<Checksum> {
    let engine = engine::of(primary)?;
    let Some(write) = engine.replicate else {
        return Err(Error::Unsupported(format!(
            "{} has no replicas that run statements: replicate is of MySQL and MariaDB\n\
             hint: compare the servers themselves",
            engine.title
        )));
    };
    write(primary, name, options, tell)
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who was written to.
    pub primary: Location,
    /// Who computed its own.
    pub replica: Location,
    /// The tables by their names; all if there are none.
    pub tables: Vec<String>,
    /// Tables to leave out.
    pub excluded_tables: Vec<String>,
    /// How long parts that have not come to the replica are waited for.
    pub patience: Duration,
}

/// A part as one server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Part {
    run: String,
    is_last: bool,
    rows_of: String,
    server: String,
    rows: u64,
    hashed: u64,
    sum: String,
}

/// Parts by their tables and numbers.
type Parts = BTreeMap<String, BTreeMap<u64, Part>>;

/// Compares what a primary's statements made of its tables with what they made of a
/// replica's.
///
/// # Errors
/// A server cannot be reached, or has no checksums.
pub fn compare(
    request: &Request,
    tell: &Tell<'_>,
    seen: &mut dyn FnMut(&TableReport),
) -> Result<Outcome> {
    for location in [&request.primary, &request.replica] {
        if engine::of(location)?.replicate.is_none() {
            let reason = "checksums by replication are of MySQL and MariaDB only";
            return Err(Error::Unsupported(reason.to_owned()));
        }
    }
    let connect = |location: &Location| (engine::of(location)?.connect)(location);
    let (mut primary, mut replica) = (connect(&request.primary)?, connect(&request.replica)?);
    let mut wanted = read(primary.as_mut()).map_err(|error| match error {
        Error::NoTable { place, table } => Error::Refused {
            place,
            reason: format!(
                "there is no table {table}\nhint: pagewarden checksum --strategy replicate makes it"
            ),
        },
        other => other,
    })?;
    let excluded = |name: &String| request.excluded_tables.contains(name);
    let named = |name: &String| request.tables.is_empty() || request.tables.contains(name);
    wanted.retain(|name, _| named(name) && !excluded(name));
    // What was asked for and never summed must be said.
    for name in request.tables.iter().filter(|name| !excluded(name)) {
        wanted.entry(name.clone()).or_default();
    }
    let found = await_parts(replica.as_mut(), &wanted, request.patience, tell)?;
    let mut outcome = Outcome {
        source: request.primary.to_string(),
        source_server: primary.server().to_owned(),
        target: request.replica.to_string(),
        target_scheme: engine::of(&request.replica)?.scheme,
        target_server: replica.server().to_owned(),
        ..Outcome::default()
    };
    let none = BTreeMap::new();
    for (name, parts) in &wanted {
        let report = compare_table(name, parts, found.get(name).unwrap_or(&none));
        seen(&report);
        outcome.tables.push(report);
    }
    Ok(outcome)
}

/// Reads the replica's parts until it has all, or patience ends.
fn await_parts(
    replica: &mut dyn Connection,
    wanted: &Parts,
    patience: Duration,
    tell: &Tell<'_>,
) -> Result<Parts> {
    let begin = Instant::now();
    loop {
        tell(0, 0)?;
        let found = match read(replica) {
            // The statement that makes the table has not come either.
            Err(Error::NoTable { .. }) => Parts::new(),
            other => other?,
        };
        let has = |name: &String, number: &u64, part: &Part| {
            let known = found.get(name).and_then(|parts| parts.get(number));
            known.is_some_and(|known| known.run == part.run)
        };
        let complete = wanted
            .iter()
            .all(|(name, parts)| parts.iter().all(|(number, part)| has(name, number, part)));
        if complete || begin.elapsed() >= patience {
            return Ok(found);
        }
        std::thread::sleep(NAP);
    }
}

fn read(connection: &mut dyn Connection) -> Result<Parts> {
    let name = TableName { schema: None, name: TABLE.to_owned() };
    let table = connection.describe(&name)?;
    let place = |wanted: &str| {
        let place = table.columns.iter().position(|column| column.name == wanted);
        let column = place.and_then(|place| table.columns.get(place));
        column.zip(place).map(|(column, place)| (place, column.form.clone()))
    };
    let columns: Vec<_> = COLUMNS.iter().filter_map(|name| place(name)).collect();
    if columns.len() != COLUMNS.len() {
        return Err(Error::Unsupported(format!("{TABLE} is a table of another kind")));
    }
    let range = Range::default();
    let query = Query::of(&table, &columns, &range);
    let mut parts = Parts::new();
    connection.read(&query, &mut |row| {
        let mut values = row.values().into_iter();
        let mut text = || values.next().map(|value| words(&value)).unwrap_or_default();
        let (name, number) = (text(), text().parse());
        let number: u64 = number.map_err(|_| garbled())?;
        let (run, is_last, rows_of, server) = (text(), text() == "1", text(), text());
        let rows = text().parse().map_err(|_| garbled())?;
        let hashed = text().parse().map_err(|_| garbled())?;
        let sum = text() + &text();
        let part = Part { run, is_last, rows_of, server, rows, hashed, sum };
        parts.entry(name).or_default().insert(number, part);
        Ok(())
    })?;
    Ok(parts)
}

fn garbled() -> Error {
    Error::Unsupported(format!("{TABLE} holds what no checksum is"))
}

/// A number or text in the words of a statement.
fn words(value: &Value) -> String {
    crate::row::number::plain(&value.payload)
        .filter(|_| value.tag == crate::row::Tag::Number)
        .unwrap_or_else(|| String::from_utf8_lossy(&value.payload).into_owned())
}

/// Holds one table's parts against each other. What the replica has not computed itself, for
/// this very run, is not known to be equal.
fn compare_table(
    name: &str,
    of_primary: &BTreeMap<u64, Part>,
    of_replica: &BTreeMap<u64, Part>,
) -> TableReport {
    let mut report = TableReport { table: name.to_owned(), ..TableReport::default() };
    let (mut missing, mut copied, mut unhashed) = (0_u64, 0_u64, 0_u64);
    for (number, part) in of_primary {
        let same_run = |other: &&Part| other.run == part.run;
        let Some(other) = of_replica.get(number).filter(same_run) else {
            missing += 1;
            continue;
        };
        if other.server == part.server {
            copied += 1;
            continue;
        }
        report.chunks += 1;
        report.rows_source += part.rows;
        report.rows_target += other.rows;
        if (part.rows, &part.sum) == (other.rows, &other.sum) {
            unhashed += u64::from(part.hashed != part.rows || other.hashed != other.rows);
        } else {
            report.parts_different.push(PartDifference {
                part: *number,
                rows_of: part.rows_of.clone(),
                rows_source: part.rows,
                rows_target: other.rows,
            });
        }
    }
    let whole = of_primary.values().next_back().is_some_and(|part| part.is_last)
        && of_primary
            .values()
            .all(|part| of_primary.get(&0).is_some_and(|one| one.run == part.run));
    let all = of_primary.len();
    report.error = if of_primary.is_empty() {
        Some("the primary has no checksums of it".to_owned())
    } else if missing > 0 {
        Some(format!("{missing} of {all} parts have not come to the replica"))
    } else if copied > 0 {
        Some(format!("{copied} of {all} parts came as rows: the replica did not compute them"))
    } else if unhashed > 0 {
        Some(format!("{unhashed} of {all} parts have rows that are too long to be hashed"))
    } else if !whole {
        Some("the run on the primary did not come to its end".to_owned())
    } else {
        None
    };
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::Verdict;

    fn parts(server: &str, sums: &[&str]) -> BTreeMap<u64, Part> {
        let part = |sum: &&str, is_last| Part {
            run: "a".to_owned(),
            server: server.to_owned(),
            is_last,
            rows: 2,
            hashed: 2,
            sum: (*sum).to_owned(),
            ..Part::default()
        };
        let numbered = sums.iter().enumerate();
        numbered.map(|(at, sum)| (at as u64, part(sum, at + 1 == sums.len()))).collect()
    }

    fn verdict(one: &BTreeMap<u64, Part>, other: &BTreeMap<u64, Part>) -> Verdict {
        compare_table("t", one, other).verdict()
    }

    #[test]
    fn parts_that_differ_are_named() {
        let report = compare_table("t", &parts("1", &["x", "y"]), &parts("2", &["x", "z"]));
        assert_eq!((report.verdict(), report.chunks), (Verdict::Different, 2));
        assert_eq!(report.parts_different.len(), 1);
        assert_eq!(report.parts_different[0].part, 1);
        assert_eq!(verdict(&parts("1", &["x", "y"]), &parts("2", &["x", "y"])), Verdict::Equal);
    }

    /// Nothing counts as equal that the replica did not compute for this run.
    #[test]
    fn what_the_replica_did_not_compute_is_not_equal() {
        let primary = parts("1", &["x", "y"]);
        let good = parts("2", &["x", "y"]);
        assert_eq!(verdict(&primary, &parts("1", &["x", "y"])), Verdict::Incomplete, "copied");
        assert_eq!(verdict(&primary, &parts("2", &["x"])), Verdict::Incomplete, "missing");
        assert_eq!(verdict(&BTreeMap::new(), &good), Verdict::Incomplete, "never summed");
        let change = |change: &dyn Fn(&mut Part)| {
            let mut changed = good.clone();
            changed.values_mut().for_each(change);
            changed
        };
        let of_another_run = change(&|part| part.run = "b".to_owned());
        assert_eq!(verdict(&primary, &of_another_run), Verdict::Incomplete);
        assert_eq!(verdict(&primary, &change(&|part| part.hashed = 1)), Verdict::Incomplete);
        let mut unfinished = primary.clone();
        unfinished.values_mut().for_each(|part| part.is_last = false);
        assert_eq!(verdict(&unfinished, &good), Verdict::Incomplete);
    }
}

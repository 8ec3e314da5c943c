//! Checksums that a primary makes by statements, which its binary log brings to replicas as
//! statements, so that each replica computes its own: see [`crate::replicate`].
//!
//! A row's hash is MD5 of its columns, each with its length before it, so that no text moves
//! from one column into the next unseen. Its halves are summed modulo 2^64, so that rows that
//! stand twice do not cancel. A row that is longer than `max_allowed_packet` has no hash: the
//! rows that have one are counted.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mysql::prelude::Queryable as _;

use super::sums::LONG;
use super::{Mysql, MysqlDialect, NO_MD5, open};
use crate::checksum::{Checksum, Tell};
use crate::engine::statement::{Dialect as _, conditions, is_writable};
use crate::engine::{Connection as _, Query, Range};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::replicate::{COMMENT, Options, TABLE};
use crate::row::Value;
use crate::table::{Column, Form, Table, TableName};

/// Rows of the first part, the fewest and the most.
const FIRST_ROWS: u64 = 2_000;
const ROWS_MIN: u64 = 500;
const ROWS_MAX: u64 = 100_000;
/// How long a part should take: so long are its rows locked, and so long does each replica
/// stand still.
const PART_TIME: Duration = Duration::from_millis(300);
/// How often a part is tried again where others hold its rows.
const TRIES: u32 = 5;
/// Text keys whose order is the same in a comparison as in an ORDER BY (not so ENUM).
const ORDERED_TEXT: &[&str] = &["char", "varchar", "varbinary"];

/// Sums a table part by part on the primary.
///
/// # Errors
/// The server refuses. Parts that were summed before stay, without one that is the last.
pub fn write(
    location: &Location,
    name: &TableName,
    options: Options,
    tell: &Tell<'_>,
) -> Result<Checksum> {
    tell(0, 0)?;
    let mut server = open(location)?;
    prepare(&mut server)?;
    let table = server.describe(name)?;
    let begin = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut run = Run {
        into: format!("{}.{}", MysqlDialect.name(&server.database), MysqlDialect.name(TABLE)),
        name: MysqlDialect.text(&name.to_string()),
        id: MysqlDialect.text(&format!("{:x}-{:x}", now.as_nanos(), std::process::id())),
        server: &mut server,
        table: &table,
        key: usable_key(&table),
    };
    let (rows, sums) = run.parts(options, tell)?;
    let value = format!("{:016x}{:016x}", sums.0, sums.1);
    Ok(Checksum {
        rows,
        bytes_read: None,
        value: Some(value),
        elapsed: begin.elapsed(),
        by_server: true,
    })
}

/// Makes sure that statements go to replicas as statements, and that there is a table to
/// write into.
fn prepare(server: &mut Mysql) -> Result<()> {
    let refused = |place: &str, reason: String| Error::Refused { place: place.to_owned(), reason };
    let place = server.place.clone();
    if server.one("SELECT @@GLOBAL.log_bin")?.as_deref() != Some("1") {
        let reason = "it writes no binary log, so that no replica would compute anything\n\
                      hint: --strategy multiset, or compare the servers themselves";
        return Err(refused(&place, reason.to_owned()));
    }
    if server.one("SELECT @@GLOBAL.read_only")?.as_deref() != Some("0") {
        let reason = "it is read-only, as replicas are\nhint: name the primary";
        return Err(refused(&place, reason.to_owned()));
    }
    // Before anything is written: a statement that fails on a replica ends its replication.
    if !server.has_md5()? {
        return Err(refused(&place, NO_MD5.to_owned()));
    }
    for statement in [
        "SET SESSION TRANSACTION READ WRITE",
        "SET SESSION autocommit = 1",
        "SET SESSION innodb_lock_wait_timeout = 1",
        "SET SESSION sql_log_bin = 1",
        "SET SESSION binlog_format = 'STATEMENT'",
    ] {
        match server.ask(statement) {
            Err(error) if !error.is_fatal() => {
                let hint = "hint: MariaDB asks for the right BINLOG ADMIN (before 10.5 SUPER), \
                            MySQL for SYSTEM_VARIABLES_ADMIN";
                return Err(refused(&place, format!("{statement} is refused: {error}\n{hint}")));
            }
            other => drop(other?),
        }
    }
    if server.one("SELECT @@SESSION.binlog_format")?.as_deref() != Some("STATEMENT") {
        let reason = "the session's binlog_format does not become STATEMENT";
        return Err(refused(&place, reason.to_owned()));
    }
    let comment = |server: &mut Mysql| {
        server.one(&format!(
            "SELECT table_comment FROM information_schema.tables \
             WHERE table_schema = database() AND table_name = '{TABLE}'"
        ))
    };
    match comment(server)?.as_deref() {
        Some(COMMENT) => return Ok(()),
        Some(_) => {
            let reason = format!("the table {TABLE} is not Pagewarden's, or of another version");
            return Err(refused(&place, reason));
        }
        None => {}
    }
    server.ask(&format!(
        "CREATE TABLE IF NOT EXISTS {TABLE} (\
         table_name varchar(200) NOT NULL, part bigint unsigned NOT NULL, \
         run varchar(80) NOT NULL, is_last tinyint NOT NULL, rows_of longtext NOT NULL, \
         server bigint unsigned NOT NULL, row_count bigint unsigned NOT NULL, \
         hashed_count bigint unsigned NOT NULL, sum_high varchar(16) NOT NULL, \
         sum_low varchar(16) NOT NULL, PRIMARY KEY (table_name, part)\
         ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT = '{COMMENT}'"
    ))?;
    Ok(())
}

/// The key by whose ranges parts are made; empty where its order cannot be relied on.
fn usable_key(table: &Table) -> Vec<usize> {
    let is_usable = |place: &usize| {
        let usable = |column: &Column| {
            column.exact
                || ORDERED_TEXT.contains(&column.wire.as_str())
                    && matches!(column.form, Form::Text | Form::Bytes)
        };
        table.columns.get(*place).is_some_and(usable)
    };
    if table.key.iter().all(is_usable) { table.key.clone() } else { Vec::new() }
}

/// The hash of a row.
fn hash_of_row(table: &Table) -> String {
    let mut parts = Vec::new();
    for column in &table.columns {
        let name = MysqlDialect.name(&column.name);
        let value = if LONG.contains(&column.wire.as_str()) {
            format!("MD5({name})")
        } else if column.wire == "vector" {
            // MySQL joins it to no text.
            format!("HEX({name})")
        } else if matches!(column.form, Form::Text) {
            format!("CONVERT({name} USING utf8mb4)")
        } else if column.wire == "float" {
            // As text, a float of four bytes has six digits only.
            format!("({name} + 0e0)")
        } else {
            name
        };
        parts.push(if column.nullable {
            // CONCAT_WS leaves NULL out.
            format!("COALESCE(LENGTH({value}), 'N'), {value}")
        } else {
            format!("LENGTH({value}), {value}")
        });
    }
    format!("MD5(CONCAT_WS('#', {}))", parts.join(", "))
}

fn summed_half(row: &str, begin: u8) -> String {
    format!(
        "LPAD(LOWER(CONV(MOD(COALESCE(SUM(CAST(CONV(SUBSTRING({row}, {begin}, 16), 16, 10) AS \
         UNSIGNED)), 0), 18446744073709551616), 10, 16)), 16, '0')"
    )
}

/// How many rows the next part should have.
fn next_rows(rows: u64, elapsed: Duration) -> u64 {
    let factor = PART_TIME.as_secs_f64() / elapsed.as_secs_f64().max(0.001);
    let wanted = rows as f64 * factor.clamp(0.25, 2.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^32")]
    (wanted as u64).clamp(ROWS_MIN, ROWS_MAX)
}

struct Run<'a> {
    server: &'a mut Mysql,
    table: &'a Table,
    key: Vec<usize>,
    /// What is written, as statements write it.
    into: String,
    name: String,
    id: String,
}

impl Run<'_> {
    fn parts(&mut self, options: Options, tell: &Tell<'_>) -> Result<(u64, (u64, u64))> {
        let earlier = format!("DELETE FROM {} WHERE table_name = {}", self.into, self.name);
        self.patiently(&earlier)?;
        let (mut all_rows, mut high, mut low) = (0, 0_u64, 0_u64);
        let mut rows = options.chunk_rows.unwrap_or(FIRST_ROWS);
        let mut after: Option<Vec<Value>> = None;
        for part in 0_u64.. {
            let upto = self.bound(after.as_ref(), rows)?;
            let range = Range { key: self.key.clone(), after, upto: upto.clone() };
            let begin = Instant::now();
            self.sum(part, &range)?;
            let elapsed = begin.elapsed();
            let (row_count, of_part) = self.summed(part)?;
            (high, low) = (high.wrapping_add(of_part.0), low.wrapping_add(of_part.1));
            all_rows += row_count;
            tell(row_count, 0)?;
            if upto.is_none() {
                break;
            }
            if options.chunk_rows.is_none() {
                rows = next_rows(rows, elapsed);
            }
            after = upto;
        }
        Ok((all_rows, (high, low)))
    }

    /// The key of the last row of a part; none if the part is the last one.
    fn bound(&mut self, after: Option<&Vec<Value>>, rows: u64) -> Result<Option<Vec<Value>>> {
        if self.key.is_empty() {
            return Ok(None);
        }
        let form = |place: &usize| {
            self.table.columns.get(*place).map(|column| (*place, column.form.clone()))
        };
        let columns: Vec<(usize, Form)> = self.key.iter().filter_map(form).collect();
        let range = Range { key: self.key.clone(), after: after.cloned(), upto: None };
        let query = Query {
            table: self.table,
            columns: &columns,
            range: &range,
            ordered: true,
            offset: rows.saturating_sub(1),
            limit: Some(1),
        };
        let mut bound = None;
        self.server.read(&query, &mut |row| {
            bound = Some(row.values());
            Ok(())
        })?;
        if bound.is_some() && bound.as_ref() == after {
            return Err(Error::Unsupported(format!(
                "the key of {} cannot be cut into parts: it does not move on",
                self.table.name
            )));
        }
        // What no statement can say is no bound: the rest is one part.
        Ok(bound.filter(|bound| bound.iter().all(is_writable)))
    }

    fn sum(&mut self, part: u64, range: &Range) -> Result<()> {
        let row = hash_of_row(self.table);
        let condition = conditions(&MysqlDialect, self.table, range).join(" AND ");
        let filter =
            if condition.is_empty() { String::new() } else { format!(" WHERE {condition}") };
        // The session's own server_id is that of the primary while a replica runs its statement.
        let statement = format!(
            "INSERT INTO {} (table_name, part, run, is_last, rows_of, server, row_count, \
             hashed_count, sum_high, sum_low) SELECT {}, {part}, {}, {}, {}, @@GLOBAL.server_id, \
             COUNT(*), COUNT({row}), {}, {} FROM {}{filter}",
            self.into,
            self.name,
            self.id,
            u8::from(range.upto.is_none()),
            MysqlDialect.text(&condition),
            summed_half(&row, 1),
            summed_half(&row, 17),
            self.table.engine,
        );
        self.patiently(&statement)
    }

    /// What the primary itself has made of a part.
    fn summed(&mut self, part: u64) -> Result<(u64, (u64, u64))> {
        let rows = self.server.ask(&format!(
            "SELECT row_count, hashed_count, sum_high, sum_low FROM {} \
             WHERE table_name = {} AND part = {part}",
            self.into, self.name
        ))?;
        let row = rows.into_iter().next().unwrap_or_default();
        let number = |place: usize, radix| {
            let text = row.get(place).and_then(Option::as_ref);
            text.and_then(|text| u64::from_str_radix(text, radix).ok())
        };
        let (Some(rows), Some(hashed), Some(high), Some(low)) =
            (number(0, 10), number(1, 10), number(2, 16), number(3, 16))
        else {
            return Err(self.refused("a part that was written is gone: another run?".to_owned()));
        };
        if hashed != rows {
            return Err(self.refused(format!(
                "{} of {rows} rows of {} are too long for a statement (max_allowed_packet)",
                rows - hashed.min(rows),
                self.table.name
            )));
        }
        Ok((rows, (high, low)))
    }

    fn refused(&self, reason: String) -> Error {
        Error::Refused { place: self.server.place.clone(), reason }
    }

    /// Runs a statement, again where others hold the rows.
    fn patiently(&mut self, statement: &str) -> Result<()> {
        /// Waiting for a lock took too long; two waited for each other.
        const LOCKED: [u16; 2] = [1205, 1213];
        let place = self.server.place.clone();
        for left in (0..TRIES).rev() {
            match self.server.connection()?.query_drop(statement) {
                Err(mysql::Error::MySqlError(answer))
                    if left > 0 && LOCKED.contains(&answer.code) => {}
                result => return result.map_err(|error| Mysql::fail(&place, &error)),
            }
        }
        Ok(())
    }
}

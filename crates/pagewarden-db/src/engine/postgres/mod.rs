//! PostgreSQL: rows come by `COPY ... (FORMAT binary)`, the rest by simple queries.
//!
//! `copy` takes the stream apart, `wire` turns values into their canonical form, `position`
//! asks how far a server has come in the log of another, `skim` reads whole tables from their
//! pages, which `heap` takes apart. `files` are those of the data directory.
//! Types that we know are read as the server sends them; all others as the text that
//! the server makes of them, under settings that are the same for every session.

pub mod copy;
pub mod files;
pub mod heap;
mod position;
mod session;
mod skim;
mod sums;
pub mod wire;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use session::Session;
use tokio_postgres::{Config, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::interrupt::Interrupt;
use super::statement::{Dialect, quoted, select};
use super::{Ability, Beside, Connection, Engine, Hashing, Query, Sink, Sums};
use crate::error::{Error, Result};
use crate::location::{Location, Tls};
use crate::row::{Row, Tag, Value, hex_text, number};
use crate::table::{Column, Filled, Form, Table, TableName};
use crate::tls;

/// PostgreSQL.
pub const ENGINE: Engine = Engine {
    scheme: "postgres",
    title: "PostgreSQL",
    connect,
    dialect: &PostgresDialect,
    replicate: None,
    is_one_table: false,
};

/// Where packages put the socket.
const SOCKET_FOLDERS: &[&str] = &["/var/run/postgresql", "/run/postgresql", "/tmp"];
const PORT: u16 = 5432;
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How soon a server that went without a word is asked for.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What every session is, whatever the server, the database or the role would have it be.
///
/// `row_security = off` makes the server refuse where it would leave rows out.
const SESSION: &str = "SET default_transaction_read_only = on; SET search_path = pg_catalog; \
    SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; \
    SET IntervalStyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex'; \
    SET xmloption = 'content'; SET lc_monetary = 'C'; SET standard_conforming_strings = on; \
    SET row_security = off; \
    SET default_transaction_isolation = 'read committed'; SET statement_timeout = 0; SET lock_timeout = '30s'; \
    SET idle_in_transaction_session_timeout = 0; SET jit = off; \
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'";

#[derive(Debug)]
struct PostgresDialect;

impl Dialect for PostgresDialect {
    fn name(&self, name: &str) -> String {
        quoted(name, '"')
    }

    fn text(&self, text: &str) -> String {
        // Standard strings know no escapes; this form says so to every server.
        if text.contains('\\') {
            format!(" E{}", quoted(&text.replace('\\', "\\\\"), '\''))
        } else {
            quoted(text, '\'')
        }
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        // An escape, so that standard_conforming_strings does not matter.
        format!(" E'\\\\x{}'", hex_text(bytes))
    }

    fn has_row_values(&self) -> bool {
        true
    }

    fn selected(&self, column: &Column) -> String {
        let name = self.name(&column.name);
        match (column.wire.as_str(), column.declared.as_str()) {
            ("", "money") => format!("{name}::pg_catalog.numeric::pg_catalog.text"),
            ("", _) => format!("{name}::pg_catalog.text"),
            _ => name,
        }
    }

    fn same(&self, one: &str, other: &str) -> String {
        format!("{one} IS NOT DISTINCT FROM {other}")
    }

    fn before(&self, columns: &[Column]) -> Option<&'static str> {
        // Values are in UTC.
        let has_zone = columns.iter().any(|column| column.wire == "timestamptz");
        has_zone.then_some("SET TIME ZONE 'UTC';")
    }

    fn written(&self, column: &Column, value: &Value) -> Option<String> {
        let text = std::str::from_utf8(&value.payload).ok()?;
        match (value.tag, column.wire.as_str()) {
            (Tag::Number, "bool") => {
                Some(if number::whole(&value.payload)? == 0 { "false" } else { "true" }.to_owned())
            }
            (Tag::Time, _) => Some(self.text(&time_in_words(text)?)),
            _ => None,
        }
    }

    fn holds(&self, column: &Column, _: &Value, written: &str) -> Option<String> {
        let name = self.name(&column.name);
        match (&column.form, column.wire.as_str()) {
            // JSON has no comparison, and spaces and an order of keys.
            (Form::Json, _) => {
                let json = |what: &str| format!("{what}::pg_catalog.jsonb");
                Some(self.same(&json(&name), &json(written)))
            }
            // As it was read.
            (_, "") => Some(self.same(&self.selected(column), written)),
            _ => None,
        }
    }

    fn insists(&self) -> &'static str {
        " OVERRIDING SYSTEM VALUE"
    }
}

/// A date before the first year of our count, or behind year 9999, as PostgreSQL takes it; `None` if it
/// takes it as it is.
fn time_in_words(text: &str) -> Option<String> {
    if let Some(text) = text.strip_prefix('+') {
        return Some(text.to_owned());
    }
    let (year, rest) = text.strip_prefix('-').or(Some(text))?.split_once('-')?;
    let year: u64 = year.parse().ok()?;
    // The year 0 is 1 BC.
    let is_before = text.starts_with('-') || year == 0;
    is_before.then(|| format!("{:04}-{rest} BC", year.saturating_add(1)))
}

struct Postgres {
    /// None once it was left in the middle of an answer.
    session: Option<Session>,
    /// How to encrypt, where that is done.
    tls: Option<MakeRustlsConnect>,
    place: String,
    server: String,
    schema: String,
    /// True within a transaction that gives one view.
    frozen: bool,
    /// Ranges are read by an index.
    by_index: bool,
}

fn connect(location: &Location) -> Result<Box<dyn Connection>> {
    Ok(Box::new(open(location)?))
}

/// A session that only reads.
fn open(location: &Location) -> Result<Postgres> {
    let place = location.to_string();
    let fail = |reason: String| Error::Connect { place: place.clone(), reason };
    let mut config = Config::new();
    config.application_name("pagewarden").connect_timeout(CONNECT_LIMIT);
    config.keepalives_idle(KEEPALIVE);
    config.user(location.user.as_deref().unwrap_or("postgres"));
    if let Some(database) = &location.database {
        config.dbname(database);
    }
    if let Some(password) = &location.password {
        config.password(password.reveal());
    }
    let port = location.port.unwrap_or(PORT);
    config.port(port);
    let folder = socket_folder(location, port);
    match (&folder, &location.host) {
        #[cfg(unix)]
        (Some(folder), _) => config.host_path(folder),
        #[cfg(not(unix))]
        (Some(_), _) => return Err(fail("there are no sockets with a path here".to_owned())),
        (None, Some(host)) => config.host(host),
        (None, None) => config.host("localhost"),
    };
    let tls = match location.tls() == Tls::Off || folder.is_some() {
        true => None,
        false => Some(MakeRustlsConnect::new(tls::config(location).map_err(fail)?)),
    };
    let opened = Session::open(&mut config, tls.as_ref());
    let opened = opened.map_err(|error| fail(error.to_string()))?;
    let session = opened.map_err(|error| {
        let mut reason = said(&error);
        if reason.contains("does not support TLS") {
            reason.push_str("\nhint: add ?tls=off to the URL if no attacker can listen in between");
        }
        fail(reason)
    })?;
    let schema = location.schema.clone().unwrap_or_else(|| "public".to_owned());
    let mut postgres = Postgres {
        session: Some(session),
        tls,
        place,
        server: String::new(),
        schema,
        frozen: false,
        by_index: false,
    };
    postgres.ask(SESSION)?;
    let version = postgres.ask("SHOW server_version")?;
    let version = version.first().and_then(|row| row.first().cloned().flatten());
    let version = version.unwrap_or_default();
    postgres.server =
        format!("PostgreSQL {}", version.split_whitespace().next().unwrap_or_default());
    Ok(postgres)
}

/// The folder of the socket: the one that was named or, without a host, where packages put it.
fn socket_folder(location: &Location, port: u16) -> Option<PathBuf> {
    let file = format!(".s.PGSQL.{port}");
    if let Some(named) = &location.socket {
        let is_socket = named.file_name().is_some_and(|name| name.to_string_lossy() == file);
        return if is_socket { named.parent().map(Path::to_owned) } else { Some(named.clone()) };
    }
    let mut folders = SOCKET_FOLDERS.iter().map(PathBuf::from).filter(|_| location.host.is_none());
    folders.find(|folder| folder.join(&file).exists())
}

/// All that an error has to say.
fn said(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        let mut text = answer.message().to_owned();
        for more in [answer.detail(), answer.hint()].into_iter().flatten() {
            text.push_str(&format!(" ({more})"));
        }
        return text;
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The values of a row, as text.
type Answer = Vec<Option<String>>;

impl Postgres {
    fn fail(place: &str, error: &tokio_postgres::Error) -> Error {
        let (place, reason) = (place.to_owned(), said(error));
        // 57P01 and its kin: the server goes down, or has thrown us out.
        let thrown_out = error.code().is_some_and(|code| code.code().starts_with("57P"));
        if error.as_db_error().is_none() || thrown_out {
            Error::Gone { place, reason }
        } else {
            Error::Refused { place, reason }
        }
    }

    fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(|| Error::Gone {
            place: self.place.clone(),
            reason: "it was left in the middle of a table".to_owned(),
        })
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Answer>> {
        let place = self.place.clone();
        let messages = self.session()?.ask(sql).map_err(|error| Self::fail(&place, &error))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// An answer of one value; none where we may not ask.
    fn one_if_allowed(&mut self, sql: &str) -> Result<Option<String>> {
        match self.ask(sql) {
            Ok(rows) => {
                Ok(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Has the server read a range of a key of several columns by its index: it expects a fifth of the table
    /// from any such range, and would read all of it.
    fn plan_for(&mut self, query: &Query<'_>) -> Result<()> {
        let range = query.range;
        let by_index = range.key.len() > 1 && (range.after.is_some() || range.upto.is_some());
        if by_index != self.by_index {
            self.ask(match by_index {
                true => "SET enable_seqscan = off",
                false => "RESET enable_seqscan",
            })?;
            self.by_index = by_index;
        }
        Ok(())
    }

    /// Gives the tuples of `COPY`.
    fn copy(&mut self, query: &Query<'_>, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.plan_for(query)?;
        self.copy_rows(&select(&PostgresDialect, query), query.columns.len(), see)
    }

    /// The same of what a statement selects.
    fn copy_rows(
        &mut self,
        select: &str,
        columns: usize,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let place = self.place.clone();
        let mut frames = copy::Frames::new(columns);
        let copied = self
            .session()?
            .copy_out(&format!("COPY ({select}) TO STDOUT (FORMAT binary)"), &mut |piece| {
                frames.feed(piece, see)
            });
        let result = copied.map_err(|error| Self::fail(&place, &error))?;
        let result = result.and_then(|()| frames.end());
        if matches!(result, Err(Error::Stopped)) {
            // To close it in the middle of a table is to read the table.
            if let Some(session) = self.session.take() {
                session.abandon();
            }
        }
        result.map_err(|error| match error {
            Error::Unsupported(reason) => Error::Gone { place, reason },
            other => other,
        })
    }

    fn columns(&mut self, oid: &str) -> Result<(Vec<Column>, Vec<i16>)> {
        // Domains lead to the type that they are made of.
        let sql = format!(
            "WITH RECURSIVE kind(number, type) AS ( \
               SELECT attnum, atttypid FROM pg_attribute \
                 WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped \
               UNION ALL SELECT number, typbasetype FROM kind JOIN pg_type t ON t.oid = type \
                 WHERE typtype = 'd') \
             SELECT attnum, attname, format_type(atttypid, atttypmod), attnotnull, typname, \
               typtype, nspname, to_jsonb(a) ->> 'attgenerated', to_jsonb(a) ->> 'attidentity' \
               FROM pg_attribute a JOIN kind ON number = attnum \
               JOIN pg_type t ON t.oid = type AND typtype <> 'd' \
               JOIN pg_namespace n ON n.oid = typnamespace \
             WHERE attrelid = {oid} ORDER BY attnum"
        );
        let mut columns = Vec::new();
        let mut numbers = Vec::new();
        for row in self.ask(&sql)? {
            let mut row = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || row.next().unwrap_or_default();
            numbers.push(next().parse().unwrap_or(0));
            let (name, declared, not_null) = (next(), next(), next());
            let (type_name, kind, namespace) = (next(), next(), next());
            let known = wire::known(&type_name, &kind, namespace == "pg_catalog");
            let filled = match (next().as_str(), next().as_str()) {
                ("s" | "v", _) => Filled::Made,
                (_, "a") => Filled::Counted,
                _ => Filled::Said,
            };
            let bare = declared.split('(').next().unwrap_or_default().trim();
            let (wire, form, exact) = match known {
                // A user's type may have the name of another.
                Some((form, exact)) if kind == "e" => ("enum".to_owned(), form, exact),
                Some((form, exact)) => (type_name, form, exact),
                None => (String::new(), Form::Opaque(format!("postgres {bare}")), false),
            };
            columns.push(Column {
                name,
                declared,
                wire,
                character_set: None,
                nullable: not_null != "t",
                exact,
                filled,
                form,
            });
        }
        Ok((columns, numbers))
    }

    /// The primary key, or another unique one whose columns cannot be NULL.
    fn key(&mut self, oid: &str) -> Result<Vec<i16>> {
        let sql = format!(
            "SELECT array_to_string(indkey::int2[], ' '), indnatts FROM pg_index i \
             WHERE indrelid = {oid} AND indisunique AND indisvalid AND indpred IS NULL \
               AND indexprs IS NULL AND NOT EXISTS (SELECT FROM pg_attribute a \
                 WHERE a.attrelid = {oid} AND a.attnum = ANY (i.indkey) AND NOT a.attnotnull) \
             ORDER BY indisprimary DESC, indnatts, indexrelid LIMIT 1"
        );
        let rows = self.ask(&sql)?;
        let key = rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
        Ok(key.split(' ').filter_map(|number| number.parse().ok()).collect())
    }
}

impl Connection for Postgres {
    fn server(&self) -> &str {
        &self.server
    }

    fn freeze(&mut self) -> Result<()> {
        // The first statement within takes the snapshot.
        self.ask("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT 1")?;
        self.frozen = true;
        Ok(())
    }

    fn tables(&mut self) -> Result<Vec<TableName>> {
        let rows = self.ask(
            "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
             WHERE relkind IN ('r', 'p') AND NOT relispartition AND relpersistence <> 't' \
               AND nspname <> 'information_schema' AND nspname !~ '^pg_' \
             ORDER BY nspname, relname",
        )?;
        let mut tables: Vec<TableName> = Vec::with_capacity(rows.len());
        for row in rows {
            let [schema, name] = row.as_slice() else { continue };
            let schema = schema.clone().filter(|schema| *schema != self.schema);
            tables.push(TableName { schema, name: name.clone().unwrap_or_default() });
        }
        Ok(tables)
    }

    fn beside_tables(&mut self) -> Result<Vec<Beside>> {
        let rows = self.ask(
            "SELECT relkind::text, nspname, relname FROM pg_class c \
             JOIN pg_namespace n ON n.oid = relnamespace \
             WHERE relkind IN ('S', 'm', 'f') AND relpersistence <> 't' \
               AND nspname <> 'information_schema' AND nspname !~ '^pg_' \
             ORDER BY nspname, relname",
        )?;
        let mut found = Vec::new();
        let kinds = [("S", "sequence"), ("m", "materialized view"), ("f", "foreign table")];
        for (letter, kind) in kinds {
            let named = rows.iter().filter_map(|row| match row.as_slice() {
                [Some(of), schema, Some(name)] if of == letter => {
                    let schema = schema.clone().filter(|schema| *schema != self.schema);
                    Some(TableName { schema, name: name.clone() })
                }
                _ => None,
            });
            let names: Vec<TableName> = named.collect();
            found.push(Beside { kind, count: names.len() as u64, names });
        }
        let rows = self.ask("SELECT count(*) FROM pg_largeobject_metadata")?;
        let count = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        found.push(Beside { kind: "large object", count, names: Vec::new() });
        found.retain(|beside| beside.count > 0);
        Ok(found)
    }

    fn describe(&mut self, name: &TableName) -> Result<Table> {
        let dialect = PostgresDialect;
        let schema = name.schema.clone().unwrap_or_else(|| self.schema.clone());
        let rows = self.ask(&format!(
            "SELECT c.oid, relkind, pg_table_size(c.oid), reltuples::int8 FROM pg_class c \
             JOIN pg_namespace n ON n.oid = relnamespace \
             WHERE nspname = {} AND relname = {} AND relkind IN ('r', 'p', 'm', 'v', 'f')",
            dialect.text(&schema),
            dialect.text(&name.name)
        ))?;
        let answer = |index: usize| rows.first().and_then(|row| row.get(index).cloned().flatten());
        let Some(oid) = answer(0) else {
            return Err(Error::NoTable { place: self.place.clone(), table: name.clone() });
        };
        let (columns, numbers) = self.columns(&oid)?;
        let key = self.key(&oid)?;
        let key = key.iter().filter_map(|part| numbers.iter().position(|number| number == part));
        // What inherits from an ordinary table is a table of its own.
        let only = if answer(1).as_deref() == Some("r") { "ONLY " } else { "" };
        Ok(Table {
            name: name.clone(),
            columns,
            key: key.collect(),
            engine: format!("{only}{}.{}", dialect.name(&schema), dialect.name(&name.name)),
            bytes: answer(2).and_then(|bytes| bytes.parse().ok()),
            // -1 before the first count.
            rows_estimated: answer(3).and_then(|rows| rows.parse().ok()),
        })
    }

    fn count(&mut self, table: &Table) -> Result<u64> {
        let rows = self.ask(&format!("SELECT count(*) FROM {}", table.engine))?;
        let count = rows.first().and_then(|row| row.first().cloned().flatten());
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let columns: Vec<(&Column, &Form)> = query
            .columns
            .iter()
            .filter_map(|(place, form)| Some((query.table.columns.get(*place)?, form)))
            .collect();
        let mut row = Row::new();
        self.copy(query, &mut |tuple| {
            copy::decode(&mut row, &columns, tuple)?;
            sink(&row)
        })
    }

    fn sends_alike(&self, one: &Column, other: &Column) -> bool {
        one.wire == other.wire
    }

    fn read_as_sent(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.copy(query, see)
    }

    fn skims(&mut self, query: &Query<'_>) -> Result<Option<[i64; 2]>> {
        self.skims_table(query)
    }

    fn skim(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(i64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.skim_table(query, see)
    }

    fn position(&mut self) -> Result<Option<String>> {
        self.one_if_allowed(position::POSITION)
    }

    fn has_reached(&mut self, position: &str) -> Result<Option<bool>> {
        let Some(questions) = position::questions(position) else { return Ok(None) };
        for question in questions {
            if let Some(answer) = self.one_if_allowed(&question)? {
                return Ok(Some(answer == "t"));
            }
        }
        Ok(None)
    }

    fn load(&mut self) -> Result<Option<u64>> {
        // Within a transaction the first answer would be given again and again.
        let rows = self.ask(
            "SELECT pg_stat_clear_snapshot(); \
             SELECT pg_has_role('pg_read_all_stats', 'USAGE'), count(*) FROM pg_stat_activity \
             WHERE state = 'active' AND pid <> pg_backend_pid() \
               AND backend_type IN ('client backend', 'parallel worker')",
        )?;
        let mut answer = rows.into_iter().next_back().unwrap_or_default().into_iter().flatten();
        if answer.next().as_deref() != Some("t") {
            return Err(Error::Refused {
                place: self.place.clone(),
                reason: "the statements of other users are hidden from us\n\
                         hint: GRANT pg_read_all_stats, or leave --max-load out"
                    .to_owned(),
            });
        }
        Ok(answer.next().and_then(|count| count.parse().ok()))
    }

    fn lag(&mut self) -> Result<Option<Duration>> {
        // What was received and is replayed is not late, however long ago it was written.
        let rows = self.ask(
            "SELECT CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() \
                 AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0 \
               ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) END \
             WHERE pg_is_in_recovery()",
        )?;
        let Some(answer) = rows.into_iter().next() else { return Ok(None) };
        let seconds = answer.into_iter().next().flatten().and_then(|text| text.parse().ok());
        // No time: nothing was replayed yet.
        let lag = seconds.map(|seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)));
        Ok(Some(lag.and_then(std::result::Result::ok).unwrap_or(Duration::MAX)))
    }

    fn interrupt(&self) -> Option<Interrupt> {
        let (token, tls) = (self.session.as_ref()?.cancel_token(), self.tls.clone());
        Some(Box::new(move || session::cancel(&token, tls.as_ref())))
    }

    fn sums_of(&mut self, hashing: Hashing) -> Result<Ability> {
        let rows = self.ask("SELECT current_setting('server_encoding')")?;
        let encoding = rows.first().and_then(|row| row.first().cloned().flatten());
        let encoding = encoding.unwrap_or_default();
        let version = self.server.split('.').next().unwrap_or_default();
        Ok(match hashing {
            Hashing::Native => Ability::As(format!("{version} with text in {encoding}")),
            Hashing::Portable if encoding == "UTF8" => Ability::As(String::new()),
            Hashing::Portable => {
                Ability::No(format!("the database holds text in {encoding}, not in UTF8"))
            }
        })
    }

    fn sums(&mut self, query: &Query<'_>, hashing: Hashing) -> Result<Sums> {
        self.plan_for(query)?;
        let statement = sums::statement(query, hashing);
        let rows = if self.frozen {
            // A refusal must not end the view that everything else is read in.
            self.ask("SAVEPOINT sums")?;
            let rows = self.ask(&statement);
            if rows.as_ref().is_err_and(|error| !error.is_fatal()) {
                self.ask("ROLLBACK TO sums")?;
            }
            rows
        } else {
            self.ask(&statement)
        }?;
        let sums = rows.first().and_then(|answer| Sums::of_answer(answer));
        sums.ok_or_else(|| Error::Refused {
            place: self.place.clone(),
            reason: format!("no sums come of {}", query.table.name),
        })
    }

    fn native(&mut self, table: &Table) -> Result<String> {
        let rows = self.ask(&format!(
            "SELECT sum(hash_record_extended(t, 0)), sum(hash_record_extended(t, 1)) FROM {} t",
            table.engine
        ))?;
        let sums = rows.into_iter().next().unwrap_or_default();
        let sums: Vec<String> =
            sums.into_iter().map(|sum| sum.unwrap_or_else(|| "0".to_owned())).collect();
        Ok(sums.join("/"))
    }
}

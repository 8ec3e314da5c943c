//! MySQL and MariaDB, which speak one protocol: rows come by prepared statements, whose
//! binary protocol sends numbers and dates as they are, where text would lose digits of
//! floats. Between two servers with columns of the same types the bytes of the rows are enough
//! (`raw`, `packets`).

pub mod gtid;
mod login;
pub mod packets;
mod portable;
mod raw;
mod replicate;
mod sums;
pub mod tablespaces;
pub mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use mysql::prelude::Queryable as _;
use mysql::{Conn, OptsBuilder};

use packets::Answer;

use super::interrupt::Interrupt;
use super::statement::{Dialect, quoted, select};
use super::{Ability, Connection, Engine, Hashing, Query, ServerSum, Sink, Sums};
use crate::error::{Error, Result};
use crate::location::{Location, Tls};
use crate::row::{Row, Tag, Value, hex_text};
use crate::table::{Column, Filled, Form, Table, TableName};

/// MySQL and MariaDB.
pub const ENGINE: Engine = Engine {
    scheme: "mysql",
    title: "MySQL and MariaDB",
    connect,
    dialect: &MysqlDialect,
    replicate: Some(replicate::write),
    is_one_table: false,
};

/// Where packages put the socket.
const SOCKETS: &[&str] =
    &["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock"];
const PORT: u16 = 3306;
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How soon a server that went without a word is asked for.
const KEEPALIVE_MS: u32 = 60_000;
/// The protocol's own limit.
const PACKET_BYTES_MAX: usize = 1 << 30;

/// What every session is, whatever the server would have it be. Without these we do not read.
const SESSION: &[&str] = &[
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_select_limit = 18446744073709551615",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

/// Text in UTF-8, converted by the server where it is kept otherwise; or as it is kept.
const TEXT_CONVERTED: &str = "SET SESSION character_set_results = utf8mb4";
const TEXT_AS_KEPT: &str = "SET SESSION character_set_results = NULL";

/// Character sets whose text is UTF-8 as it is kept.
const UTF8: &[&str] = &["utf8mb4", "utf8mb3", "utf8", "ascii"];

/// Bytes of a statement that makes the server's buffer for us so large (`net_buffer_length`
/// is 16 KiB, and no session may set it). Rows then come by fewer calls of the system, each of
/// which wakes us: a tenth of what sending them costs.
const SERVER_BUFFER_BYTES: usize = 128 << 10;

const READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";

/// What only some servers know.
const SESSION_WHERE_KNOWN: &[&str] = &[
    "SET SESSION sql_big_selects = 1",
    "SET SESSION max_join_size = 18446744073709551615",
    "SET SESSION max_statement_time = 0",
    "SET SESSION max_execution_time = 0",
    "SET SESSION lock_wait_timeout = 30",
    "SET SESSION wait_timeout = 28800",
    "SET SESSION net_write_timeout = 3600",
];

/// MySQL 9 has `MD5()` as a component, which is not installed.
const NO_MD5: &str = "this server has no MD5()\n\
    hint: INSTALL COMPONENT 'file://component_classic_hashing' brings it back";

/// There is no such function.
const NO_FUNCTION: u16 = 1305;

#[derive(Debug)]
struct MysqlDialect;

impl Dialect for MysqlDialect {
    fn name(&self, name: &str) -> String {
        quoted(name, '`')
    }

    fn text(&self, text: &str) -> String {
        quoted(&text.replace('\\', "\\\\"), '\'')
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        format!("x'{}'", hex_text(bytes))
    }

    fn has_row_values(&self) -> bool {
        // It has them, and finds no index for them.
        false
    }

    fn same(&self, one: &str, other: &str) -> String {
        format!("{one} <=> {other}")
    }

    fn before(&self, columns: &[Column]) -> Option<&'static str> {
        // Values are in UTC.
        let has_zone = columns.iter().any(|column| column.wire == "timestamp");
        has_zone.then_some("SET time_zone = '+00:00';")
    }

    fn holds(&self, column: &Column, value: &Value, written: &str) -> Option<String> {
        // MariaDB's JSON is text with any spaces, and in any order.
        let is_json = column.form == Form::Json && value.tag == Tag::Json;
        let name = self.name(&column.name);
        is_json.then(|| {
            format!("JSON_CONTAINS({name}, {written}) AND JSON_CONTAINS({written}, {name})")
        })
    }
}

struct Mysql {
    // An early end leaves it where it is: closing would first read all that comes.
    connection: Option<Conn>,
    location: Location,
    place: String,
    server: String,
    is_mariadb: bool,
    /// True if the socket carries the protocol as it is, and not encrypted.
    is_plain: bool,
    /// True if the server converts text that it sends.
    is_text_converted: bool,
    database: String,
}

fn connect(location: &Location) -> Result<Box<dyn Connection>> {
    let mut mysql = open(location)?;
    mysql.ask(READ_ONLY)?;
    mysql.enlarge_server_buffer()?;
    Ok(Box::new(mysql))
}

/// A connection that the server would let write.
fn open(location: &Location) -> Result<Mysql> {
    let place = location.to_string();
    let fail = |reason: String| Error::Connect { place: place.clone(), reason };
    let Some(database) = location.database.clone() else {
        return Err(fail("the URL names no database\nhint: mysql://host/DATABASE".to_owned()));
    };
    let mut options = OptsBuilder::new()
        .user(location.user.as_deref())
        .pass(location.password.as_ref().map(crate::secret::Secret::reveal))
        .db_name(Some(database.as_str()))
        .prefer_socket(false)
        .tcp_connect_timeout(Some(CONNECT_LIMIT))
        .tcp_keepalive_time_ms(Some(KEEPALIVE_MS))
        .max_allowed_packet(Some(PACKET_BYTES_MAX))
        .stmt_cache_size(0);
    let socket = socket(location);
    options = match &socket {
        Some(socket) => options.socket(Some(socket.to_string_lossy().into_owned())),
        None => {
            let host = location.host.as_deref().unwrap_or("127.0.0.1");
            options.ip_or_hostname(Some(host)).tcp_port(location.port.unwrap_or(PORT))
        }
    };
    let encryption = login::encryption(location, socket.as_deref()).map_err(fail)?;
    let is_plain = encryption.is_none();
    let options = options.ssl_opts(encryption);
    let connection = login::log_in(options, location, socket.as_deref()).map_err(fail)?;
    let mut mysql = Mysql {
        connection: Some(connection),
        location: location.clone(),
        place,
        server: String::new(),
        is_mariadb: false,
        is_plain,
        is_text_converted: true,
        database,
    };
    for statement in SESSION {
        mysql.ask(statement)?;
    }
    for statement in SESSION_WHERE_KNOWN {
        match mysql.ask(statement) {
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
    }
    let version = mysql.one("SELECT version()")?.unwrap_or_default();
    mysql.is_mariadb = version.contains("MariaDB");
    let name = if mysql.is_mariadb { "MariaDB" } else { "MySQL" };
    mysql.server = format!("{name} {}", version.split('-').next().unwrap_or_default());
    // The name as the server has it, which may fold its case.
    if let Some(database) = mysql.one("SELECT database()")? {
        mysql.database = database;
    }
    Ok(mysql)
}

/// The socket: the one that was named, or, on this machine, where packages put it.
fn socket(location: &Location) -> Option<PathBuf> {
    if location.socket.is_some() {
        return location.socket.clone();
    }
    let is_here = location.host.as_deref().is_none_or(|host| host == "localhost");
    let known = SOCKETS.iter().map(PathBuf::from).find(|socket| Path::exists(socket));
    // The driver encrypts nothing that goes through a socket.
    known.filter(|_| is_here && location.port.is_none() && location.tls() == Tls::Off)
}

/// All that an error has to say. None of them holds the password.
fn said(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(answer) => answer.message.clone(),
        mysql::Error::IoError(error) => error.to_string(),
        mysql::Error::DriverError(error) => error.to_string(),
        other => other.to_string(),
    }
}

impl Mysql {
    fn fail(place: &str, error: &mysql::Error) -> Error {
        let code = match error {
            mysql::Error::MySqlError(answer) => Some(answer.code),
            _ => None,
        };
        Self::fail_by_code(place, code, said(error))
    }

    /// What the server said, with its number for it; none if the connection broke.
    fn fail_by_code(place: &str, code: Option<u16>, reason: String) -> Error {
        let place = place.to_owned();
        match code {
            // The server goes down, or our connection was ended.
            Some(1053 | 1927 | 4031) | None => Error::Gone { place, reason },
            Some(_) => Error::Refused { place, reason },
        }
    }

    fn connection(&mut self) -> Result<&mut Conn> {
        self.connection.as_mut().ok_or_else(|| Error::Gone {
            place: self.place.clone(),
            reason: "it was left in the middle of a table".to_owned(),
        })
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let place = self.place.clone();
        let rows: Vec<mysql::Row> =
            self.connection()?.query(sql).map_err(|error| Self::fail(&place, &error))?;
        let text = |row: &mysql::Row| {
            (0..row.len()).map(|index| row.as_ref(index).and_then(wire::text)).collect()
        };
        Ok(rows.iter().map(text).collect())
    }

    fn one(&mut self, sql: &str) -> Result<Option<String>> {
        let rows = self.ask(sql)?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
    }

    /// False if the server has no `MD5()`.
    fn has_md5(&mut self) -> Result<bool> {
        let place = self.place.clone();
        match self.connection()?.query_drop("DO MD5('')") {
            Ok(()) => Ok(true),
            Err(mysql::Error::MySqlError(answer)) if answer.code == NO_FUNCTION => Ok(false),
            Err(error) => Err(Self::fail(&place, &error)),
        }
    }

    /// The server's buffer grows with what it receives, up to `max_allowed_packet`, and stays so
    /// large. Blanks at the end are no part of the statement.
    fn enlarge_server_buffer(&mut self) -> Result<()> {
        let most = self.one("SELECT @@max_allowed_packet")?.and_then(|bytes| bytes.parse().ok());
        if most.is_some_and(|bytes: usize| bytes > 2 * SERVER_BUFFER_BYTES) {
            self.ask(&format!("DO 0{}", " ".repeat(SERVER_BUFFER_BYTES)))?;
        }
        Ok(())
    }

    /// Has text sent in UTF-8. Where all of it is kept so, the server need not look at it, nor at
    /// numbers and UUIDs, which it else converts, too.
    fn choose_text(&mut self, query: &Query<'_>) -> Result<()> {
        let mut columns =
            query.columns.iter().filter_map(|(place, _)| query.table.columns.get(*place));
        let is_utf8 = |set: &String| UTF8.contains(&set.as_str());
        let convert = !columns.all(|column| column.character_set.as_ref().is_none_or(is_utf8));
        if convert != self.is_text_converted {
            self.ask(if convert { TEXT_CONVERTED } else { TEXT_AS_KEPT })?;
            self.is_text_converted = convert;
        }
        Ok(())
    }

    /// What is said of transactions' identifiers, where they are in use and we may ask.
    fn gtids(&mut self, sql: &str) -> Result<Option<String>> {
        match self.one(sql) {
            Ok(answer) => Ok(answer.filter(|answer| !answer.is_empty())),
            Err(error) if error.is_fatal() => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn database_of<'a>(&'a self, name: &'a TableName) -> &'a str {
        name.schema.as_deref().unwrap_or(&self.database)
    }

    fn columns(&mut self, name: &TableName) -> Result<Vec<Column>> {
        let place = format!(
            "table_schema = {} AND table_name = {}",
            MysqlDialect.text(self.database_of(name)),
            MysqlDialect.text(&name.name)
        );
        let rows = self.ask(&format!(
            "SELECT column_name, data_type, column_type, is_nullable, character_set_name, \
               extra FROM information_schema.columns WHERE {place} ORDER BY ordinal_position"
        ))?;
        let json = if self.is_mariadb { self.json_columns(name)? } else { Vec::new() };
        let mut columns = Vec::with_capacity(rows.len());
        for row in rows {
            let mut row = row.into_iter();
            let mut next = || row.next().flatten();
            let name = next().unwrap_or_default();
            let wire = next().unwrap_or_default().to_ascii_lowercase();
            let declared = next().unwrap_or_default();
            let nullable = next().as_deref() != Some("NO");
            let character_set = next();
            let has_set = character_set.is_some();
            let (form, exact) = wire::form_of(&wire, has_set, json.contains(&name));
            let extra = next().unwrap_or_default().to_ascii_uppercase();
            // Not those with a default that is an expression: `DEFAULT_GENERATED`.
            let is_made = ["VIRTUAL", "STORED", "PERSISTENT"].iter().any(|it| extra.contains(it));
            let filled = if is_made { Filled::Made } else { Filled::Said };
            columns.push(Column {
                name,
                declared,
                wire,
                character_set,
                nullable,
                exact,
                filled,
                form,
            });
        }
        Ok(columns)
    }

    /// MariaDB's JSON is text with a condition.
    fn json_columns(&mut self, name: &TableName) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT check_clause FROM information_schema.check_constraints \
             WHERE constraint_schema = {} AND table_name = {}",
            MysqlDialect.text(self.database_of(name)),
            MysqlDialect.text(&name.name)
        );
        // Servers before 10.2 have no such table, and no JSON.
        let rows = match self.ask(&sql) {
            Err(error) if !error.is_fatal() => Vec::new(),
            other => other?,
        };
        let clauses = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
        let column = |clause: String| {
            let name = clause.strip_prefix("json_valid(`")?.strip_suffix("`)")?;
            Some(name.replace("``", "`"))
        };
        Ok(clauses.filter_map(column).collect())
    }

    /// The primary key, or another unique one whose columns cannot be NULL.
    fn key(&mut self, name: &TableName, columns: &[Column]) -> Result<Vec<usize>> {
        let rows = self.ask(&format!(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics \
             WHERE table_schema = {} AND table_name = {} AND non_unique = 0 \
             ORDER BY index_name = 'PRIMARY' DESC, index_name, seq_in_index",
            MysqlDialect.text(self.database_of(name)),
            MysqlDialect.text(&name.name)
        ))?;
        let mut indexes: Vec<(Option<String>, Vec<Option<usize>>)> = Vec::new();
        for row in rows {
            let [index, column, part] = row.as_slice() else { continue };
            let place = columns.iter().position(|known| {
                !known.nullable && part.is_none() && Some(&known.name) == column.as_ref()
            });
            match indexes.last_mut() {
                Some((name, places)) if name == index => places.push(place),
                _ => indexes.push((index.clone(), vec![place])),
            }
        }
        let whole = indexes.into_iter().find_map(|(_, places)| places.into_iter().collect());
        Ok(whole.unwrap_or_default())
    }
}

impl Connection for Mysql {
    fn server(&self) -> &str {
        &self.server
    }

    fn freeze(&mut self) -> Result<()> {
        self.ask("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").map(|_| ())
    }

    fn tables(&mut self) -> Result<Vec<TableName>> {
        // Checksums that servers made for themselves are not what is compared.
        let rows = self.ask(&format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = database() \
             AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') \
             AND NOT (table_name = '{}' AND table_comment = '{}') ORDER BY table_name",
            crate::replicate::TABLE,
            crate::replicate::COMMENT,
        ))?;
        let names = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
        Ok(names.map(|name| TableName { schema: None, name }).collect())
    }

    fn describe(&mut self, name: &TableName) -> Result<Table> {
        let columns = self.columns(name)?;
        if columns.is_empty() {
            return Err(Error::NoTable { place: self.place.clone(), table: name.clone() });
        }
        let key = self.key(name, &columns)?;
        let database = self.database_of(name).to_owned();
        let engine = format!("{}.{}", MysqlDialect.name(&database), MysqlDialect.name(&name.name));
        // Columns that we may not read are not in the catalogue; here they are refused.
        self.ask(&format!("SELECT * FROM {engine} LIMIT 0")).map_err(|error| match error {
            Error::Refused { place, reason } => {
                let hint = "hint: it needs SELECT on the table, not on some columns";
                Error::Refused { place, reason: format!("{reason}\n{hint}") }
            }
            other => other,
        })?;
        let sizes = self.ask(&format!(
            "SELECT data_length, table_rows FROM information_schema.tables \
             WHERE table_schema = {} AND table_name = {}",
            MysqlDialect.text(&database),
            MysqlDialect.text(&name.name)
        ))?;
        let size = |place: usize| sizes.first()?.get(place)?.as_ref()?.parse().ok();
        Ok(Table {
            name: name.clone(),
            columns,
            key,
            engine,
            bytes: size(0),
            rows_estimated: size(1),
        })
    }

    fn count(&mut self, table: &Table) -> Result<u64> {
        let count = self.one(&format!("SELECT count(*) FROM {}", table.engine))?;
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    fn read(&mut self, query: &Query<'_>, sink: &mut Sink<'_>) -> Result<()> {
        self.choose_text(query)?;
        let sql = select(&MysqlDialect, query);
        let place = self.place.clone();
        let connection = self.connection()?;
        let fail = |error: &mysql::Error| Self::fail(&place, error);
        let mut answer = connection.exec_iter(sql, ()).map_err(|error| fail(&error))?;
        let mut out = Row::new();
        let mut result = Ok(());
        for row in answer.by_ref() {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    result = Err(fail(&error));
                    break;
                }
            };
            out.clear();
            for (index, (place, form)) in query.columns.iter().enumerate() {
                let wire = query.table.columns.get(*place).map_or("", |column| &column.wire);
                wire::append(&mut out, wire, form, row.as_ref(index));
            }
            result = sink(&out);
            if result.is_err() {
                break;
            }
        }
        if matches!(result, Err(Error::Stopped)) {
            // To close a connection in the middle of a table is to read the table.
            std::mem::forget(answer);
            std::mem::forget(self.connection.take());
        }
        result
    }

    fn sends_alike(&self, one: &Column, other: &Column) -> bool {
        // The same bytes are -1 and, in a column that is unsigned, 2^64 - 1.
        raw::IS_POSSIBLE && self.is_plain && one.declared == other.declared
    }

    fn read_as_sent(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.choose_text(query)?;
        let sql = select(&MysqlDialect, query);
        let place = self.place.clone();
        let connection = self.connection()?;
        let statement = connection.prep(sql).map_err(|error| Self::fail(&place, &error))?;
        let mut answer = Answer::new(query.columns.len());
        let result = raw::execute((connection, &place), statement.id(), &mut answer, see);
        if answer.is_over() && result.is_ok() {
            connection.close(statement).map_err(|error| Self::fail(&place, &error))?;
        } else {
            // To close a connection in the middle of a table is to read the table.
            std::mem::forget(self.connection.take());
        }
        match (result, answer.into_refusal()) {
            (Ok(()), Some(said)) => Err(Self::fail_by_code(&place, Some(said.code), said.message)),
            (Err(Error::Unsupported(reason)), _) => Err(Error::Gone { place, reason }),
            (result, _) => result,
        }
    }

    fn position(&mut self) -> Result<Option<String>> {
        let log = if self.is_mariadb { "gtid_binlog_pos" } else { "gtid_executed" };
        self.gtids(&format!("SELECT @@GLOBAL.{log}"))
    }

    fn has_reached(&mut self, position: &str) -> Result<Option<bool>> {
        if self.is_mariadb {
            let applied = self.gtids("SELECT @@GLOBAL.gtid_slave_pos")?;
            return Ok(applied.and_then(|applied| gtid::has_reached(&applied, position)));
        }
        let answer = self.gtids(&gtid::of_mysql(&MysqlDialect.text(position)))?;
        Ok(answer.map(|answer| answer == "1"))
    }

    fn load(&mut self) -> Result<Option<u64>> {
        let running = self.ask("SHOW GLOBAL STATUS LIKE 'Threads_running'")?;
        let running = running.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten());
        let running: Option<u64> = running.and_then(|running| running.parse().ok());
        // One of them is ours.
        Ok(running.map(|running| running.saturating_sub(1)))
    }

    fn lag(&mut self) -> Result<Option<Duration>> {
        // A replica may follow several servers by connections of their names.
        let statement =
            if self.is_mariadb { "SHOW ALL SLAVES STATUS" } else { "SHOW REPLICA STATUS" };
        let place = self.place.clone();
        let rows: Vec<mysql::Row> =
            self.connection()?.query(statement).map_err(|error| Self::fail(&place, &error))?;
        let lag = |row: &mysql::Row| {
            let mut columns = row.columns_ref().iter();
            let index = columns.position(|column| {
                matches!(&*column.name_str(), "Seconds_Behind_Master" | "Seconds_Behind_Source")
            });
            let seconds = index.and_then(|index| row.as_ref(index)).and_then(wire::text);
            // NULL: it does not replicate.
            let seconds = seconds.and_then(|seconds| seconds.parse().ok());
            seconds.map_or(Duration::MAX, Duration::from_secs)
        };
        Ok(rows.iter().map(lag).max())
    }

    fn interrupt(&self) -> Option<Interrupt> {
        let (number, location) = (self.connection.as_ref()?.connection_id(), self.location.clone());
        Some(Box::new(move || {
            // Everybody may end statements of their own. A server that cannot be reached ends
            // nothing, and no caller waits for its error.
            let _ =
                open(&location).and_then(|mut other| other.ask(&format!("KILL QUERY {number}")));
        }))
    }

    fn sums_of(&mut self, hashing: Hashing) -> Result<Ability> {
        Ok(match hashing {
            Hashing::Native => Ability::No(
                "CHECKSUM TABLE has 32 bits, and does not see text that moved from one column \
                 into the next"
                    .to_owned(),
            ),
            Hashing::Portable if !self.has_md5()? => Ability::No(NO_MD5.to_owned()),
            Hashing::Portable => Ability::As(String::new()),
        })
    }

    fn sums(&mut self, query: &Query<'_>, _hashing: Hashing) -> Result<Sums> {
        let rows = self.ask(&portable::statement(query))?;
        let sums = rows.first().and_then(|answer| portable::sums(answer));
        sums.ok_or_else(|| Error::Refused {
            place: self.place.clone(),
            reason: format!("no sums come of {}", query.table.name),
        })
    }

    fn native(&mut self, table: &Table) -> Result<String> {
        let rows = self.ask(&format!("CHECKSUM TABLE {} EXTENDED", table.engine))?;
        let sum = rows.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten());
        sum.ok_or_else(|| Error::Refused {
            place: self.place.clone(),
            reason: format!("CHECKSUM TABLE gives nothing for {}", table.name),
        })
    }

    fn summed(&mut self, table: &Table, sum: ServerSum) -> Result<Option<(u64, String)>> {
        if sum.md5 && !self.has_md5()? {
            let reason = format!("{NO_MD5}; --strategy multiset needs none");
            return Err(Error::Refused { place: self.place.clone(), reason });
        }
        if sum.accumulated {
            self.ask("SET @crc := '', @cnt := 0")?;
        }
        let rows = self.ask(&sums::statement(&MysqlDialect, table, sum))?;
        let mut row = rows.into_iter().next().unwrap_or_default().into_iter();
        let count = row.next().flatten().and_then(|count| count.parse().ok()).unwrap_or(0);
        let hashed: u64 = row.next().flatten().and_then(|count| count.parse().ok()).unwrap_or(0);
        if hashed != count {
            return Err(Error::Refused {
                place: self.place.clone(),
                reason: format!(
                    "{} of {count} rows of {} are too long for a statement (max_allowed_packet)",
                    count - hashed.min(count),
                    table.name
                ),
            });
        }
        let parts: Vec<String> = row.map(Option::unwrap_or_default).collect();
        Ok(Some((count, parts.concat().to_ascii_lowercase())))
    }
}

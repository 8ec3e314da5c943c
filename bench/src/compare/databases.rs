//! Two databases with an equal table each, and the servers that have them.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use pagewarden_scratch::mariadb::replication::{await_arrival, pair};
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{Cluster, Options};

use super::seconds_of;
use crate::subject;

/// Columns of the table `t`.
pub const COLUMNS: usize = 15;

/// Whose they are.
enum Servers {
    /// Databases `one` and `other` of one server.
    Postgres(Box<Cluster>),
    /// A database `d` of a primary and its replica.
    Mariadb(Box<[Server; 2]>),
    /// The database `one` of PostgreSQL, and `d` of MariaDB.
    Both(Box<(Cluster, Server)>),
}

/// The most rows of a part that `compare` reads.
const PART_ROWS: usize = 100_000;

/// What both tables of PostgreSQL cost at the least: all rows sent into nothing, so that no way of
/// reading them is cheaper; and PostgreSQL's own hash of a row, with one seed and unguarded.
const FLOORS: [(&str, &str); 2] = [
    ("COPY into nothing", "COPY t TO '/dev/null' (FORMAT binary)"),
    ("hash_record_extended, bare", "SELECT sum(hash_record_extended(t, 0)) FROM t"),
];

/// The memory of one of two MariaDBs, and that logs cost little.
const MARIADB_OPTIONS: [&str; 3] = [
    "innodb_buffer_pool_size=1536M",
    "innodb_log_file_size=512M",
    "innodb_flush_log_at_trx_commit=0",
];

/// Two databases.
pub struct Databases {
    servers: Servers,
    pids: Vec<u32>,
    version: String,
}

impl Databases {
    /// Two of one PostgreSQL, with all that is read in its memory.
    pub fn of_postgres(version: &str, rows: u64) -> Result<Self> {
        let (mut cluster, title) = postgres(version, rows)?;
        cluster.psql("CREATE DATABASE other TEMPLATE one")?;
        cluster.psql("CHECKPOINT")?;
        let pids = vec![cluster.postmaster_pid().context("PostgreSQL has ended")?];
        Ok(Self { servers: Servers::Postgres(Box::new(cluster)), pids, version: title })
    }

    /// One of a MariaDB, and one of its replica.
    pub fn of_mariadb(rows: u64) -> Result<Self> {
        let installation = installed()?;
        let options = [&["binlog-format=STATEMENT"], &MARIADB_OPTIONS[..]].concat();
        let mut servers = pair(&installation, &options, 0)?;
        println!("filling MariaDB and its replica with {rows} rows");
        let [primary, replica] = &servers;
        primary.sql(&of_mariadb(rows))?;
        await_arrival(primary, replica)?;
        let pids = servers.iter_mut().map(|server| server.pid().context("MariaDB has ended"));
        let pids = pids.collect::<Result<_>>()?;
        let version = format!("MariaDB {}", installation.version()?);
        Ok(Self { servers: Servers::Mariadb(Box::new(servers)), pids, version })
    }

    /// One of a PostgreSQL, and one of a MariaDB.
    pub fn of_both(version: &str, rows: u64) -> Result<Self> {
        let (mut cluster, title) = postgres(version, rows)?;
        let installation = installed()?;
        let mut server = Server::install(&installation, &MARIADB_OPTIONS)?;
        server.start()?;
        println!("filling MariaDB with {rows} rows");
        server.sql(&of_mariadb(rows))?;
        let pids = [cluster.postmaster_pid(), server.pid()];
        let pids = pids.into_iter().collect::<Option<_>>().context("a server has ended")?;
        let version = format!("{title} and MariaDB {}", installation.version()?);
        Ok(Self { servers: Servers::Both(Box::new((cluster, server))), pids, version })
    }

    /// What the servers are.
    pub fn server(&self) -> &str {
        &self.version
    }

    /// The source and the target.
    pub fn urls(&self) -> [String; 2] {
        match &self.servers {
            Servers::Postgres(cluster) => ["one", "other"].map(|name| cluster.url(name)),
            Servers::Mariadb(servers) => servers.each_ref().map(|server| server.url("d")),
            Servers::Both(servers) => [servers.0.url("one"), servers.1.url("d")],
        }
    }

    /// The port of PostgreSQL.
    pub fn port(&self) -> Option<u16> {
        match &self.servers {
            Servers::Postgres(cluster) => Some(cluster.port()),
            Servers::Mariadb(_) | Servers::Both(_) => None,
        }
    }

    /// Statements that say how little can be had from the server, and what they are called.
    pub fn floors(&self) -> Result<Vec<(&'static str, Command)>> {
        let Servers::Postgres(cluster) = &self.servers else { return Ok(Vec::new()) };
        let floor = |(name, statement)| Ok((name, psql_of_both(cluster, statement)?));
        FLOORS.into_iter().map(floor).collect()
    }

    /// `COUNT(*)` of both tables by their keys, in parts as `compare` reads them, one after the
    /// other. Not of two engines.
    pub fn count_by_key(&self, rows: u64) -> Result<Option<Command>> {
        let mut count = String::new();
        for after in (0..rows).step_by(PART_ROWS) {
            let (first, last) = (after + 1, after + PART_ROWS as u64);
            // Writing into memory does not fail.
            let _ = write!(count, "SELECT count(*) FROM t WHERE id BETWEEN {first} AND {last};");
        }
        match &self.servers {
            Servers::Postgres(cluster) => psql_of_both(cluster, &count).map(Some),
            Servers::Mariadb(servers) => {
                let mut command = Command::new("sh");
                let client = "\"$0\" --no-defaults --user=root --database=d --execute=\"$1\"";
                let script = format!("{client} --socket=\"$2\" && {client} --socket=\"$3\"");
                let [primary, replica] = servers.as_ref();
                command.args(["-c", &script]).arg(primary.client().get_program()).arg(count);
                command.arg(primary.socket()).arg(replica.socket());
                Ok(Some(command))
            }
            Servers::Both(_) => Ok(None),
        }
    }

    /// The primary and its replica.
    pub fn replicated(&self) -> Option<&[Server; 2]> {
        match &self.servers {
            Servers::Postgres(_) | Servers::Both(_) => None,
            Servers::Mariadb(servers) => Some(servers),
        }
    }

    /// Processor time that the servers have used.
    pub fn server_seconds(&self) -> Result<f64> {
        seconds_of(&self.pids)
    }

    /// Runs statements on the target alone. Those of PostgreSQL and of MariaDB.
    pub fn change_target(&self, of_postgres: &str, of_mariadb: &str) -> Result<()> {
        let target = match &self.servers {
            Servers::Postgres(cluster) => {
                cluster.psql_in("other", of_postgres)?;
                return Ok(());
            }
            Servers::Mariadb(servers) => {
                let [_, replica] = servers.as_ref();
                replica
            }
            Servers::Both(servers) => &servers.1,
        };
        target.sql(&format!("SET sql_log_bin = 0; USE d; {of_mariadb}"))?;
        Ok(())
    }
}

/// A statement in one database of PostgreSQL, then in the other.
fn psql_of_both(cluster: &Cluster, statement: &str) -> Result<Command> {
    let mut command = cluster.client("psql")?;
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
    for words in ["\\connect one", statement, "\\connect other", statement] {
        command.args(["-c", words]);
    }
    Ok(command)
}

/// A PostgreSQL with a filled database `one`, and what it is called.
fn postgres(version: &str, rows: u64) -> Result<(Cluster, String)> {
    let installation = subject::postgres(version)?;
    // COUNT(*) is to read the table, in one process, as a comparison does.
    let options = [
        ("max_parallel_workers_per_gather", "0"),
        ("enable_indexonlyscan", "off"),
        ("autovacuum", "off"),
        ("jit", "off"),
        ("shared_buffers", "'3GB'"),
        ("max_wal_size", "'2GB'"),
        // For those who know no sockets.
        ("listen_addresses", "'127.0.0.1'"),
    ];
    let options =
        options.iter().fold(Options::default(), |all, (name, value)| all.with(name, value));
    let mut cluster = Cluster::init(&installation, &options)?;
    cluster.start()?;
    println!("filling PostgreSQL with {rows} rows");
    cluster.psql("CREATE DATABASE one")?;
    cluster.psql_in("one", &format!("{}; VACUUM (ANALYZE, FREEZE) t", of_postgres(rows)))?;
    // What gives `compare` whole pages.
    cluster.psql_in("one", "CREATE EXTENSION pageinspect")?;
    cluster.psql("CHECKPOINT")?;
    Ok((cluster, format!("PostgreSQL {}", installation.server_version()?)))
}

fn installed() -> Result<mariadb::Installation> {
    mariadb::Installation::find()
        .context("MariaDB is not installed\nhint: apt-get install mariadb-server")
}

/// What a column is in an engine, and the value of row `n` in its words.
type Words = (&'static str, &'static str);

/// The columns: their names, and what they are in PostgreSQL and in MariaDB, with the same
/// values in both. Names have emoji in one row of 13, what may be NULL is in some. Numbers are
/// divided such that no engine has to round.
const TABLE: [(&str, Words, Words); COLUMNS] = [
    ("id", ("bigint PRIMARY KEY", "n"), ("bigint PRIMARY KEY", "n")),
    ("i", ("int NOT NULL", "n % 1000"), ("int NOT NULL", "n % 1000")),
    ("s", ("smallint", "nullif(n % 100, 0)"), ("smallint", "nullif(n % 100, 0)")),
    ("d", ("numeric(12, 2) NOT NULL", "n / 100.0"), ("decimal(12, 2) NOT NULL", "n / 100.0")),
    (
        "e",
        ("numeric(18, 4)", "nullif(n % 8, 0) * n / 16.0"),
        ("decimal(18, 4)", "nullif(n % 8, 0) * n / 16.0"),
    ),
    ("r", ("float8 NOT NULL", "n / 3::float8"), ("double NOT NULL", "n / 3e0")),
    ("f", ("float4", "nullif(n % 5, 0) * n / 8.0"), ("float", "nullif(n % 5, 0) * n / 8.0")),
    ("b", ("boolean NOT NULL", "n % 2 = 0"), ("boolean NOT NULL", "n % 2 = 0")),
    ("name", ("varchar(60) NOT NULL", NAME), ("varchar(60) CHARACTER SET utf8mb4 NOT NULL", NAME)),
    (
        "note",
        ("text", "'a note that is a little longer ' || nullif(n % 11, 0) || ' ' || n"),
        (
            "text CHARACTER SET utf8mb4",
            "concat('a note that is a little longer ', nullif(n % 11, 0), ' ', n)",
        ),
    ),
    (
        "at",
        ("timestamp(6) NOT NULL", "timestamp '2024-01-01' + n * interval '1.000001 s'"),
        ("datetime(6) NOT NULL", "timestamp('2024-01-01') + INTERVAL n * 1000001 MICROSECOND"),
    ),
    (
        "day",
        ("date", "date '2024-01-01' + nullif(n % 3000, 0)::int"),
        ("date", "date('2024-01-01') + INTERVAL nullif(n % 3000, 0) DAY"),
    ),
    // Of version 4: MariaDB refuses some that are of none.
    (
        "u",
        (
            "uuid NOT NULL",
            "overlay(overlay(md5(n::text) placing '4' from 13) placing '8' from 17)::uuid",
        ),
        ("uuid NOT NULL", "insert(insert(md5(n), 13, 1, '4'), 17, 1, '8')"),
    ),
    (
        "raw",
        ("bytea", "CASE WHEN n % 9 > 0 THEN decode(md5(n::text), 'hex') END"),
        ("varbinary(16)", "CASE WHEN n % 9 > 0 THEN unhex(md5(n)) END"),
    ),
    (
        "doc",
        ("text", "concat('{\"k\": ', n, '}')"),
        ("text CHARACTER SET utf8mb4", "concat('{\"k\": ', n, '}')"),
    ),
];

const NAME: &str =
    "concat('name of row ', n, CASE WHEN n % 13 = 0 THEN ' \u{1f600} \u{4f60}' ELSE '' END)";

fn of_postgres(rows: u64) -> String {
    filled(|(_, words, _)| *words, &format!("generate_series(1::bigint, {rows}) AS n"))
}

fn of_mariadb(rows: u64) -> String {
    let numbers = format!("(SELECT seq AS n FROM seq_1_to_{rows}) AS numbers");
    let table = filled(|(_, _, words)| *words, &numbers);
    format!("SET NAMES utf8mb4; CREATE DATABASE d; USE d; {table}")
}

fn filled(words: impl Fn(&(&str, Words, Words)) -> Words, numbers: &str) -> String {
    let (mut columns, mut values) = (String::new(), String::new());
    for (index, column) in TABLE.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let (kind, value) = words(column);
        // Writing into memory does not fail.
        let _ = write!(columns, "{comma}{} {kind}", column.0);
        let _ = write!(values, "{comma}{value}");
    }
    format!("CREATE TABLE t ({columns}); INSERT INTO t SELECT {values} FROM {numbers}")
}

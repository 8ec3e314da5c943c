//! Two databases with an equal table each, and the servers that have them.

use std::fmt::Write as _;

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
}

/// Two databases.
pub struct Databases {
    servers: Servers,
    pids: Vec<u32>,
    version: String,
}

impl Databases {
    /// Two of one PostgreSQL, with all that is read in its memory.
    pub fn of_postgres(version: &str, rows: u64) -> Result<Self> {
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
        cluster.psql("CREATE DATABASE other TEMPLATE one")?;
        cluster.psql("CHECKPOINT")?;
        let pids = vec![cluster.postmaster_pid().context("PostgreSQL has ended")?];
        let version = format!("PostgreSQL {}", installation.server_version()?);
        Ok(Self { servers: Servers::Postgres(Box::new(cluster)), pids, version })
    }

    /// One of a MariaDB, and one of its replica.
    pub fn of_mariadb(rows: u64) -> Result<Self> {
        let installation = mariadb::Installation::find()
            .context("MariaDB is not installed\nhint: apt-get install mariadb-server")?;
        let options = [
            "binlog-format=STATEMENT",
            "innodb_buffer_pool_size=1536M",
            "innodb_log_file_size=512M",
            "innodb_flush_log_at_trx_commit=0",
        ];
        let mut servers = pair(&installation, &options, 0)?;
        println!("filling MariaDB and its replica with {rows} rows");
        let [primary, replica] = &servers;
        primary
            .sql(&format!("SET NAMES utf8mb4; CREATE DATABASE d; USE d; {}", of_mariadb(rows)))?;
        await_arrival(primary, replica)?;
        let pids = servers.iter_mut().map(|server| server.pid().context("MariaDB has ended"));
        let pids = pids.collect::<Result<_>>()?;
        let version = format!("MariaDB {}", installation.version()?);
        Ok(Self { servers: Servers::Mariadb(Box::new(servers)), pids, version })
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
        }
    }

    /// The port of PostgreSQL.
    pub fn port(&self) -> Option<u16> {
        match &self.servers {
            Servers::Postgres(cluster) => Some(cluster.port()),
            Servers::Mariadb(_) => None,
        }
    }

    /// The primary and its replica.
    pub fn replicated(&self) -> Option<&[Server; 2]> {
        match &self.servers {
            Servers::Postgres(_) => None,
            Servers::Mariadb(servers) => Some(servers),
        }
    }

    /// Processor time that the servers have used.
    pub fn server_seconds(&self) -> Result<f64> {
        seconds_of(&self.pids)
    }

    /// Runs statements on the target alone. Those of PostgreSQL and of MariaDB.
    pub fn change_target(&self, of_postgres: &str, of_mariadb: &str) -> Result<()> {
        match &self.servers {
            Servers::Postgres(cluster) => cluster.psql_in("other", of_postgres)?,
            Servers::Mariadb(servers) => {
                let [_, replica] = servers.as_ref();
                replica.sql(&format!("SET sql_log_bin = 0; USE d; {of_mariadb}"))?
            }
        };
        Ok(())
    }
}

/// The columns: what each is in PostgreSQL and in MariaDB, and the value of row `n` in the words
/// of either, if they differ. Names have emoji in one row of 13, what may be NULL is in some.
const TABLE: [(&str, &str, &str, &str, &str); COLUMNS] = [
    ("id", "bigint PRIMARY KEY", "bigint PRIMARY KEY", "n", ""),
    ("i", "int NOT NULL", "int NOT NULL", "n % 1000", ""),
    ("s", "smallint", "smallint", "nullif(n % 100, 0)", ""),
    ("d", "numeric(12, 2) NOT NULL", "decimal(12, 2) NOT NULL", "n / 100.0", ""),
    ("e", "numeric(18, 4)", "decimal(18, 4)", "nullif(n % 8, 0) * n / 7.0", ""),
    ("r", "float8 NOT NULL", "double NOT NULL", "n / 3.0", ""),
    ("f", "float4", "float", "nullif(n % 5, 0) * n / 11.0", ""),
    ("b", "boolean NOT NULL", "boolean NOT NULL", "n % 2 = 0", ""),
    (
        "name",
        "varchar(60) NOT NULL",
        "varchar(60) CHARACTER SET utf8mb4 NOT NULL",
        "concat('name of row ', n, CASE WHEN n % 13 = 0 THEN ' \u{1f600} \u{4f60}' ELSE '' END)",
        "",
    ),
    (
        "note",
        "text",
        "text CHARACTER SET utf8mb4",
        "concat('a note that is a little longer ', nullif(n % 11, 0), ' ', n)",
        "",
    ),
    (
        "at",
        "timestamp(6) NOT NULL",
        "datetime(6) NOT NULL",
        "timestamp '2024-01-01' + n * interval '1.000001 s'",
        "timestamp('2024-01-01') + INTERVAL n * 1000001 MICROSECOND",
    ),
    (
        "day",
        "date",
        "date",
        "date '2024-01-01' + nullif(n % 3000, 0)::int",
        "date('2024-01-01') + INTERVAL nullif(n % 3000, 0) DAY",
    ),
    ("u", "uuid NOT NULL", "uuid NOT NULL", "md5(n::text)::uuid", UUID_OF_MARIADB),
    (
        "raw",
        "bytea",
        "varbinary(16)",
        "CASE WHEN n % 9 > 0 THEN decode(md5(n::text), 'hex') END",
        "CASE WHEN n % 9 > 0 THEN unhex(md5(n)) END",
    ),
    ("doc", "text", "text", "concat('{\"k\": ', n, '}')", ""),
];

/// Of version 4: MariaDB refuses some that are of none.
const UUID_OF_MARIADB: &str = "insert(insert(md5(n), 13, 1, '4'), 17, 1, '8')";

fn of_postgres(rows: u64) -> String {
    filled(
        |column| column.1,
        |column| column.3,
        &format!("generate_series(1::bigint, {rows}) AS n"),
    )
}

fn of_mariadb(rows: u64) -> String {
    let numbers = format!("(SELECT seq AS n FROM seq_1_to_{rows}) AS numbers");
    filled(
        |column| column.2,
        |column| if column.4.is_empty() { column.3 } else { column.4 },
        &numbers,
    )
}

type Column = (&'static str, &'static str, &'static str, &'static str, &'static str);

fn filled(
    kind: impl Fn(&Column) -> &'static str,
    value: impl Fn(&Column) -> &'static str,
    numbers: &str,
) -> String {
    let (mut columns, mut values) = (String::new(), String::new());
    for (index, column) in TABLE.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        // Writing into memory does not fail.
        let _ = write!(columns, "{comma}{} {}", column.0, kind(column));
        let _ = write!(values, "{comma}{}", value(column));
    }
    format!("CREATE TABLE t ({columns}); INSERT INTO t SELECT {values} FROM {numbers}")
}

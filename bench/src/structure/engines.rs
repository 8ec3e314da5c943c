//! Databases of four engines with the same kind of tables: one with short rows and a key, one
//! with three more indexes, one with long values.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use pagewarden_scratch::any_mysql::{Installation, Server};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use rusqlite::Connection;

use super::{Subject, answer};
use crate::subject;

/// Shares of the rows, so that each table has about a third of the bytes.
const ORDERS_PER_MEBIBYTE: u64 = 1300;
const ACCOUNTS_PER_ORDER: u64 = 2;
const ORDERS_PER_DOCUMENT: u64 = 20;
/// Characters of a long value: on pages of its own in all engines.
const DOCUMENT_HASHES: u64 = 190;

/// Rows of the three tables.
struct Rows {
    accounts: u64,
    orders: u64,
    documents: u64,
}

impl Rows {
    fn of(mebibytes: u64) -> Self {
        let orders = mebibytes.saturating_mul(ORDERS_PER_MEBIBYTE);
        Self {
            accounts: orders * ACCOUNTS_PER_ORDER,
            orders,
            documents: orders / ORDERS_PER_DOCUMENT,
        }
    }
}

/// A stopped cluster, and its copy with a server.
pub(super) fn postgres(version: &str, mebibytes: u64) -> Result<Subject> {
    let installation = subject::postgres(version)?;
    let rows = Rows::of(mebibytes);
    let cache = format!("'{}MB'", mebibytes * 2 + 64);
    let options = Options::default()
        .with("shared_buffers", &cache)
        .with("autovacuum", "off")
        .with("max_wal_size", "'4GB'");
    let mut cluster = Cluster::init(&installation, &options)?;
    cluster.start()?;
    cluster.psql(&format!(
        "CREATE TABLE accounts (id int PRIMARY KEY, branch int, balance int, filler char(84));
         INSERT INTO accounts SELECT n, n % 100, 0, '' FROM generate_series(1, {accounts}) n;
         CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL,
             reference text COLLATE \"C\" NOT NULL, amount numeric(12, 2), placed timestamptz, note text);
         INSERT INTO orders SELECT n, hashint8(n) % 100000, md5(n::text), n / 7.0,
             timestamptz '2024-01-01' + n * interval '61 s', 'a note of order ' || n
             FROM generate_series(1::bigint, {orders}) n;
         CREATE UNIQUE INDEX ON orders (reference);
         CREATE INDEX ON orders (customer);
         CREATE INDEX ON orders (placed);
         CREATE TABLE documents (id int PRIMARY KEY, body text);
         ALTER TABLE documents ALTER body SET STORAGE EXTERNAL;
         INSERT INTO documents SELECT n, repeat(md5(n::text), {DOCUMENT_HASHES})
             FROM generate_series(1, {documents}) n;
         CREATE EXTENSION amcheck;",
        accounts = rows.accounts,
        orders = rows.orders,
        documents = rows.documents,
    ))?;
    cluster.psql("VACUUM ANALYZE")?;
    cluster.stop(StopMode::Fast)?;
    let mut running = cluster.duplicate()?;
    running.start()?;
    let mut amcheck = running.client("pg_amcheck")?;
    amcheck.args(["--heapallindexed", "--parent-check", "-j", "2", "--all", "--install-missing"]);
    Ok(Subject {
        title: format!("PostgreSQL {}", installation.server_version()?),
        path: cluster.data_dir().to_owned(),
        server: running.postmaster_pid(),
        peers: vec![("pg_amcheck", amcheck)],
        goal: 20.0,
        lesser: &[],
        _servers: vec![Box::new(cluster), Box::new(running)],
    })
}

/// A file that no program has open.
pub(super) fn sqlite(mebibytes: u64) -> Result<Subject> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bench.db");
    let rows = Rows::of(mebibytes);
    let connection = Connection::open(&path)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000;
         CREATE TABLE accounts (id INTEGER PRIMARY KEY, branch INT, balance INT, filler TEXT);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT NOT NULL, reference TEXT NOT NULL UNIQUE,
             amount REAL, placed INT, note TEXT);
         CREATE INDEX customers ON orders (customer);
         CREATE INDEX days ON orders (placed);
         CREATE TABLE documents (id INTEGER PRIMARY KEY, body TEXT);
         BEGIN;
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {accounts})
             INSERT INTO accounts SELECT n, n % 100, 0, printf('%84s', '') FROM n;
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {orders})
             INSERT INTO orders SELECT n, n * 48271 % 100003, hex(randomblob(16)), n / 7.0,
                 1700000000 + n * 61, 'a note of order ' || n FROM n;
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {documents})
             INSERT INTO documents SELECT n, hex(zeroblob({DOCUMENT_HASHES} * 16)) FROM n;
         COMMIT;",
        accounts = rows.accounts,
        orders = rows.orders,
        documents = rows.documents,
    ))?;
    connection.close().map_err(|(_, error)| error)?;
    // Room for the whole file: its index look-ups need no second read.
    let cached = fs::metadata(&path)?.len() / 1024 + 1024;
    let ask = |statement: &str, cache: Option<u64>| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("pragma").arg(&path).arg(statement);
        if let Some(kibibytes) = cache {
            command.arg("--cache").arg(kibibytes.to_string());
        }
        Ok(command)
    };
    let peers = vec![
        ("quick_check", ask("quick_check", Some(cached))?),
        ("integrity_check", ask("integrity_check", Some(cached))?),
        ("integrity_check, usual cache", ask("integrity_check", None)?),
    ];
    Ok(Subject {
        title: format!("SQLite {}", rusqlite::version()),
        path,
        server: None,
        peers,
        goal: 10.0,
        lesser: &["quick_check"],
        _servers: vec![Box::new(folder)],
    })
}

/// Asks a database of SQLite, in a process of its own.
#[derive(Debug, clap::Args)]
pub struct Pragma {
    file: PathBuf,
    name: String,
    /// Kibibytes of its page cache
    #[arg(long)]
    cache: Option<u64>,
}

/// Runs the hidden command. Fails if the answer is not that all is well.
pub fn pragma(arguments: &Pragma) -> Result<()> {
    let connection = Connection::open(&arguments.file)?;
    if let Some(kibibytes) = arguments.cache {
        connection.execute_batch(&format!("PRAGMA cache_size = -{kibibytes}"))?;
    }
    let statement = format!("PRAGMA {}", arguments.name);
    let answer: String = connection.query_row(&statement, [], |row| row.get(0))?;
    ensure!(answer == "ok", "{answer}");
    Ok(())
}

const CHECK: &str =
    "CHECK TABLE bench.accounts, bench.orders, bench.documents, bench.digits EXTENDED";

/// A stopped data directory, and its copy with a server; `None` if it is not installed.
pub(super) fn mysql(version: &'static str, mebibytes: u64) -> Result<Option<Subject>> {
    let Some(installation) = Installation::find(version) else { return Ok(None) };
    let cache = format!("innodb_buffer_pool_size={}M", mebibytes * 2 + 128);
    let options = [cache.as_str(), "innodb_flush_log_at_trx_commit=0"];
    let mut stopped = Server::install(&installation, &options)?;
    stopped.start()?;
    stopped.sql(&tables(&Rows::of(mebibytes)))?;
    let title = stopped.sql("SELECT VERSION()")?;
    stopped.stop()?;
    let mut running = stopped.duplicate()?;
    running.start()?;
    let mut check = running.client()?;
    check.arg("--execute").arg(CHECK);
    let said = answer(&mut check)?;
    let is_sound = |line: &str| line.ends_with("OK") || line.contains("\tnote\t");
    ensure!(said.lines().count() >= 3 && said.lines().all(is_sound), "CHECK TABLE: {said}");
    Ok(Some(Subject {
        title: format!("{} {title}", if installation.is_mariadb() { "MariaDB" } else { "MySQL" }),
        path: stopped.data_dir(),
        server: running.pid(),
        peers: vec![("CHECK TABLE ... EXTENDED", check)],
        goal: 10.0,
        lesser: &[],
        _servers: vec![Box::new(stopped), Box::new(running)],
    }))
}

/// Statements that MariaDB and MySQL both know: numbers come from a table of 1,024 of them.
fn tables(rows: &Rows) -> String {
    let mut sql = "CREATE DATABASE bench; USE bench;
        CREATE TABLE digits (i INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO digits VALUES (0);"
        .to_owned();
    for power in 0..10 {
        sql.push_str(&format!("INSERT INTO digits SELECT i + {} FROM digits;", 1 << power));
    }
    let numbers = |count: u64| {
        format!(
            "(SELECT a.i * 1048576 + b.i * 1024 + c.i + 1 AS n FROM digits a, digits b, digits c
              WHERE a.i <= {count} DIV 1048576) AS numbers WHERE n <= {count} ORDER BY n"
        )
    };
    sql.push_str(&format!(
        "CREATE TABLE accounts (id INT PRIMARY KEY, branch INT, balance INT, filler CHAR(84)
             CHARACTER SET latin1) ENGINE=InnoDB;
         INSERT INTO accounts SELECT n, n % 100, 0, 'filler' FROM {accounts};
         CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT NOT NULL,
             reference VARBINARY(32) NOT NULL, amount DECIMAL(12, 2), placed DATETIME, note VARCHAR(60),
             UNIQUE KEY (reference), KEY (customer), KEY (placed)) ENGINE=InnoDB;
         INSERT INTO orders SELECT n, CRC32(n) % 100000, LEFT(SHA2(n, 256), 32), n / 7,
             TIMESTAMP('2024-01-01') + INTERVAL n * 61 SECOND, CONCAT('a note of order ', n)
             FROM {orders};
         CREATE TABLE documents (id INT PRIMARY KEY, body LONGTEXT CHARACTER SET latin1) ENGINE=InnoDB;
         INSERT INTO documents SELECT n, REPEAT(LEFT(SHA2(n, 256), 32), {bytes}) FROM {documents};",
        accounts = numbers(rows.accounts),
        orders = numbers(rows.orders),
        documents = numbers(rows.documents),
        // Longer than half of a page of 16 KiB.
        bytes = DOCUMENT_HASHES * 2,
    ));
    sql
}

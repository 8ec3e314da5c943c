//! What reading a table costs its server and us, beside COUNT(*).
//!
//! `cargo run --release -p pagewarden-db --example cost [ROWS]` starts a PostgreSQL and a
//! MariaDB of its own, fills a table of 15 columns, and prints, in paired rounds, the
//! processor time a row of COUNT(*) on the server, and that of server and client for the
//! multiset checksum.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::fs;

use anyhow::{Context as _, Result};
use pagewarden_db::checksum::{Function, Strategy, checksum};
use pagewarden_db::engine;
use pagewarden_db::location::Location;
use pagewarden_db::table::TableName;
use pagewarden_scratch::{mariadb, postgres};

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(600_000), |text| text.parse())?;
    if let Some(installation) = postgres::Installation::for_test("15")? {
        let options = postgres::Options::default().with("max_parallel_workers_per_gather", "0");
        let options = options.with("enable_indexonlyscan", "off").with("shared_buffers", "'1GB'");
        let mut cluster = postgres::Cluster::init(&installation, &options)?;
        cluster.start()?;
        cluster.psql(&format!(
            "CREATE TABLE t (id bigint PRIMARY KEY, i int, s smallint, d numeric(12, 2), \
             e numeric(18, 4), r float8, f float4, b boolean, name varchar(60), note text, \
             at timestamp(6), day date, u uuid, raw bytea, doc text); \
             INSERT INTO t SELECT n, n % 1000, n % 100, n / 100.0, n / 7.0, n / 3.0, n / 11.0, \
             n % 2 = 0, 'name of row ' || n, 'a note that is a little longer ' || n, \
             timestamp '2024-01-01' + n * interval '1.000001 s', date '2024-01-01' + (n % 3000)::int, \
             md5(n::text)::uuid, decode(md5(n::text), 'hex'), '{{\"k\": ' || n || '}}' \
             FROM generate_series(1, {rows}) n; VACUUM ANALYZE t",
        ))?;
        let server = cluster.postmaster_pid().context("no server")?;
        let (socket, port) = (cluster.socket_dir().display(), cluster.port());
        let url = format!("postgres://postgres@:{port}/postgres?socket={socket}");
        measure(&url, rows, &|| nanoseconds_of_children(server))?;
    }
    if let Some(installation) = mariadb::Installation::for_test()? {
        let mut server = mariadb::Server::install(&installation, &["innodb_buffer_pool_size=1G"])?;
        server.start()?;
        server.sql(&format!(
            "CREATE DATABASE d; USE d; SET NAMES utf8mb4; \
             CREATE TABLE t (id bigint PRIMARY KEY, i int, s smallint, d decimal(12, 2), \
             e decimal(18, 4), r double, f float, b boolean, name varchar(60), note text, \
             at datetime(6), day date, u uuid, raw binary(16), doc text); \
             INSERT INTO t SELECT seq, seq % 1000, seq % 100, seq / 100, seq / 7, seq / 3, seq / 11, \
             seq % 2 = 0, CONCAT('name of row ', seq), CONCAT('a note that is a little longer ', seq), \
             TIMESTAMPADD(SECOND, seq, '2024-01-01'), DATE_ADD('2024-01-01', INTERVAL seq % 3000 DAY), \
             UUID(), UNHEX(MD5(seq)), CONCAT('{{\"k\": ', seq, '}}') FROM seq_1_to_{rows}",
        ))?;
        let pid = server.pid().context("no server")?;
        let url =
            format!("mysql://root@/d?socket={}", server.home().path().join("socket").display());
        measure(&url, rows, &|| nanoseconds(pid))?;
    }
    Ok(())
}

fn measure(url: &str, rows: u64, server_time: &dyn Fn() -> u64) -> Result<()> {
    let location = Location::parse(url)?;
    let mut connection = (engine::of(&location)?.connect)(&location)?;
    let table = connection.describe(&TableName { schema: None, name: "t".to_owned() })?;
    let mut figures: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let mut run = |strategy| -> Result<(f64, f64)> {
            let (client, server) = (nanoseconds(std::process::id()), server_time());
            let made =
                checksum(connection.as_mut(), &table, strategy, Function::Md5, &|_, _| Ok(()))?;
            anyhow::ensure!(made.rows == rows, "{} rows", made.rows);
            let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / rows as f64;
            Ok((each(server_time(), server), each(nanoseconds(std::process::id()), client)))
        };
        let (count, _) = run(Strategy::Count)?;
        let (server, client) = run(Strategy::Multiset)?;
        for (figure, value) in
            figures.iter_mut().zip([count, server, client, server / count.max(1.0)])
        {
            figure.push(value);
        }
    }
    let [count, server, client, ratio] = figures.map(median);
    println!(
        "{}: COUNT(*) {count:.0} ns a row on the server; multiset {server:.0} ns on the server \
         ({ratio:.1} x), {client:.0} ns on the client",
        connection.server()
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time that all threads of a process have had, in nanoseconds.
fn nanoseconds(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.filter_map(|task| of_task(task.path())).sum()
}

/// The process that a process was started by.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn nanoseconds_of_children(of: u32) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent(*pid) == Some(of)).map(nanoseconds).sum()
}

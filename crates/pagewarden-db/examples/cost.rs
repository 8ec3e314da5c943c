//! What reading a table costs its server and us, beside COUNT(*).
//!
//! `cargo run --release -p pagewarden-db --example cost [ROWS]` starts a PostgreSQL and a
//! MariaDB of its own, fills a table of 15 columns, and prints, in paired rounds, the
//! processor time a row of COUNT(*) on the server, and that of server and client for reading
//! all rows (`stream`, the multiset checksum) and for the sums that servers make themselves
//! (`native`, `pushdown`). For PostgreSQL also what `COPY` itself costs, into nothing: less no
//! way of reading rows can cost the server.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::fs;

use anyhow::{Context as _, Result};
use pagewarden_db::checksum::{Function, Strategy, checksum};
use pagewarden_db::engine::{self, Ability, Hashing, Query, Range};
use pagewarden_db::location::Location;
use pagewarden_db::table::{Form, TableName};
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
        let mut client = postgres_client(&cluster)?;
        let copy = move || Ok(client.execute("COPY t TO '/dev/null' (FORMAT binary)", &[])?);
        measure(&url, rows, &|| nanoseconds_of_children(server), Some(("COPY", Box::new(copy))))?;
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
        measure(&url, rows, &|| nanoseconds(pid), None)?;
    }
    Ok(())
}

/// Something that reads the whole table, and gives how many rows it saw.
type Way<'a> = (&'static str, Box<dyn FnMut() -> Result<u64> + 'a>);

fn measure(
    url: &str,
    rows: u64,
    server_time: &dyn Fn() -> u64,
    floor: Option<Way<'_>>,
) -> Result<()> {
    let location = Location::parse(url)?;
    let connect = || (engine::of(&location)?.connect)(&location);
    let mut connection = connect()?;
    let server = connection.server().to_owned();
    let table = connection.describe(&TableName { schema: None, name: "t".to_owned() })?;
    drop(connection);
    let columns: Vec<(usize, Form)> =
        table.columns.iter().map(|column| column.form.clone()).enumerate().collect();
    let everything = Range::default();
    let query = Query::of(&table, &columns, &everything);
    let mut ways: Vec<Way<'_>> = Vec::new();
    for (name, strategy) in [("COUNT(*)", Strategy::Count), ("stream", Strategy::Multiset)] {
        let (mut connection, table) = (connect()?, &table);
        let tell = |_, _| Ok(());
        ways.push((
            name,
            Box::new(move || {
                Ok(checksum(connection.as_mut(), table, strategy, Function::Md5, &tell)?.rows)
            }),
        ));
    }
    for (name, hashing) in [("native", Hashing::Native), ("pushdown", Hashing::Portable)] {
        let (mut connection, query) = (connect()?, &query);
        if let Ability::As(_) = connection.sums_of(hashing)? {
            ways.push((name, Box::new(move || Ok(connection.sums(query, hashing)?.rows))));
        }
    }
    ways.extend(floor);
    let mut figures: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = vec![Default::default(); ways.len()];
    for _ in 0..ROUNDS {
        let mut count = 1.0;
        for ((name, way), (on_server, on_client, ratio)) in ways.iter_mut().zip(&mut figures) {
            let (client, server) = (nanoseconds(std::process::id()), server_time());
            let seen = way()?;
            anyhow::ensure!(seen == rows, "{seen} rows by {name}");
            let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / rows as f64;
            let cost = each(server_time(), server);
            if *name == "COUNT(*)" {
                count = cost.max(1.0);
            }
            on_server.push(cost);
            on_client.push(each(nanoseconds(std::process::id()), client));
            ratio.push(cost / count);
        }
    }
    println!("{server}, processor time of a row of 15 columns, medians of {ROUNDS} rounds:");
    for ((name, _), (on_server, on_client, ratio)) in ways.iter().zip(figures) {
        println!(
            "  {name:<9} {:>5.0} ns on the server ({:>4.1} x COUNT(*)), {:>5.0} ns on the client",
            median(on_server),
            median(ratio),
            median(on_client)
        );
    }
    Ok(())
}

fn postgres_client(cluster: &postgres::Cluster) -> Result<::postgres::Client> {
    let mut config = ::postgres::Config::new();
    config.user("postgres").dbname("postgres").host_path(cluster.socket_dir()).port(cluster.port());
    Ok(config.connect(::postgres::NoTls)?)
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

//! `pagewarden compare` of PostgreSQL with Parquet, beside PostgreSQL with PostgreSQL.
//!
//! The table `lineitem` of TPC-H, made by the Python package `duckdb` (by its own generator where its
//! extension `tpch` can be loaded, else rows of the same columns, types and widths), in two databases of
//! one PostgreSQL and in a Parquet file. Both comparisons run once in each round, in turn; before that
//! each runs once and is not measured. At the end one value is changed, and must be named.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pagewarden_scratch::postgres::{Cluster, Options};
use serde_json::Value;

use crate::process::measure;
use crate::samples::{Ratio, spread};
use crate::subject::{load, pagewarden, postgres};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scale of TPC-H: 1 has about 6,000,000 rows
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How often each comparison runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    version: String,
    /// A Python that has the package duckdb
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// The goal that this project set itself: times the wall time of PostgreSQL with PostgreSQL.
const GOAL: f64 = 1.3;

const MAKE: &str = r"
import sys, duckdb
root, scale = sys.argv[1], float(sys.argv[2])
c = duckdb.connect()
try:
    c.execute('INSTALL tpch; LOAD tpch')
    c.execute(f'CALL dbgen(sf={scale})')
    made = 'dbgen of the extension tpch'
except duckdb.Error:
    made = 'rows of the shape of TPC-H'
    orders = int(1500000 * scale)
    c.execute(f'''CREATE TABLE lineitem AS
        SELECT (o // 8 * 32 + o % 8 + 1)::BIGINT AS l_orderkey,
            (hash(o, n) % 200000)::BIGINT + 1 AS l_partkey, (hash(n, o) % 10000)::BIGINT + 1 AS l_suppkey,
            n::BIGINT AS l_linenumber, (hash(o, n, 1) % 50 + 1)::DECIMAL(15,2) AS l_quantity,
            ((hash(o, n, 2) % 10000000 + 90000) / 100)::DECIMAL(15,2) AS l_extendedprice,
            ((hash(o, n, 3) % 11) / 100)::DECIMAL(15,2) AS l_discount,
            ((hash(o, n, 4) % 9) / 100)::DECIMAL(15,2) AS l_tax,
            ['R', 'A', 'N'][1 + (hash(o, n, 5) % 3)::INT] AS l_returnflag,
            ['O', 'F'][1 + (hash(o, n, 6) % 2)::INT] AS l_linestatus,
            DATE '1992-01-02' + (hash(o, n, 7) % 2525)::INT AS l_shipdate,
            DATE '1992-01-31' + (hash(o, n, 8) % 2465)::INT AS l_commitdate,
            DATE '1992-01-04' + (hash(o, n, 9) % 2553)::INT AS l_receiptdate,
            ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'][1 + (hash(o, n, 10) % 4)::INT] AS l_shipinstruct,
            ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'][1 + (hash(o, n, 11) % 7)::INT] AS l_shipmode,
            substr(repeat(md5(o::VARCHAR || n::VARCHAR), 2), 1, 10 + (hash(o, n, 12) % 34)::INT) AS l_comment
        FROM range({orders}) AS orders(o), range(1, 8) AS lines(n) WHERE n <= 1 + hash(o) % 7
        ORDER BY l_orderkey, l_linenumber''')
c.execute(f'''COPY lineitem TO '{root}/lineitem.parquet' (FORMAT parquet)''')
c.execute(f'''COPY lineitem TO '{root}/lineitem.csv' (FORMAT csv, HEADER false)''')
print(made, 'duckdb', duckdb.__version__)
";

const TABLE: &str = "CREATE TABLE lineitem (l_orderkey bigint NOT NULL, l_partkey bigint, \
    l_suppkey bigint, l_linenumber bigint NOT NULL, l_quantity numeric(15,2), \
    l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2), \
    l_returnflag text, l_linestatus text, l_shipdate date, l_commitdate date, l_receiptdate date, \
    l_shipinstruct text, l_shipmode text, l_comment text)";

/// Runs the benchmark and prints its table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let folder = tempfile::tempdir()?;
    let made = Command::new(&arguments.python)
        .args(["-c", MAKE])
        .arg(folder.path())
        .arg(arguments.scale.to_string())
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let cluster = filled(&arguments.version, folder.path())?;
    let parquet = format!("parquet:{}", folder.path().join("lineitem.parquet").display());
    let (one, other) = (cluster.url("one"), cluster.url("other"));
    println!("{}; {}", String::from_utf8_lossy(&made.stdout).trim(), load());
    let compare = |target: &str| {
        let mut command = Command::new(&pagewarden);
        command.args(["compare", "--json", "--settle", "200ms", &one, target]);
        command
    };
    let mut wall = [Vec::new(), Vec::new()];
    let mut cpu = [Vec::new(), Vec::new()];
    let mut memory = [0, 0];
    for round in 0..=arguments.rounds {
        for turn in 0..2 {
            let arm = (turn + round) % 2;
            let target = if arm == 0 { &other } else { &parquet };
            let measured = measure(&mut compare(target), true)?;
            let report: Value = serde_json::from_slice(&measured.output)?;
            ensure!(word(&report, "/verdict") == "\"equal\"", "{report}");
            if round == 0 {
                let of_table = |name: &str| word(&report, &format!("/tables/0/{name}"));
                println!(
                    "{target}: {} rows in {} parts, {} {}",
                    of_table("rows_source"),
                    of_table("chunks"),
                    of_table("mode"),
                    of_table("mode_because")
                );
                continue;
            }
            let places = (wall.get_mut(arm), cpu.get_mut(arm), memory.get_mut(arm));
            if let (Some(wall), Some(cpu), Some(memory)) = places {
                wall.push(measured.wall.as_secs_f64());
                cpu.push(measured.cpu.as_secs_f64());
                *memory = measured.memory_bytes.max(*memory);
            }
        }
    }
    let [databases, lake] = &wall;
    for ((name, wall), (cpu, memory)) in
        ["PostgreSQL", "Parquet"].iter().zip(&wall).zip(cpu.iter().zip(memory))
    {
        println!(
            "PostgreSQL with {name}: wall {} s, processor of the program {} s, {} MiB",
            spread(wall),
            spread(cpu),
            memory >> 20
        );
    }
    let ratio = Ratio::new(lake, databases).context("no rounds")?;
    let met = if ratio.paired <= GOAL { "met" } else { "missed" };
    println!(
        "ratio of medians {:.2}, median of paired ratios {:.2} (goal {GOAL}: {met})",
        ratio.of_medians, ratio.paired
    );
    planted(&cluster, &mut compare(&parquet))
}

fn filled(version: &str, folder: &Path) -> Result<Cluster> {
    let installation = postgres(version)?;
    let options = Options::default().with("shared_buffers", "'2GB'").with("max_wal_size", "'4GB'");
    let mut cluster = Cluster::init(&installation, &options)?;
    cluster.start()?;
    cluster.psql("CREATE DATABASE one")?;
    cluster.psql_in("one", TABLE)?;
    let csv = folder.join("lineitem.csv");
    cluster
        .psql_in("one", &format!("\\copy lineitem FROM '{}' WITH (FORMAT csv)", csv.display()))?;
    cluster.psql_in("one", "ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber)")?;
    cluster.psql_in("one", "VACUUM (ANALYZE, FREEZE) lineitem")?;
    cluster.psql("CREATE DATABASE other TEMPLATE one")?;
    cluster.psql("CHECKPOINT")?;
    Ok(cluster)
}

/// One value is changed: it must be named, and nothing else.
fn planted(cluster: &Cluster, compare: &mut Command) -> Result<()> {
    let key = cluster.psql_in(
        "one",
        "UPDATE lineitem SET l_tax = l_tax + 0.01 WHERE (l_orderkey, l_linenumber) = (SELECT l_orderkey, \
         l_linenumber FROM lineitem ORDER BY 1, 2 OFFSET (SELECT count(*) / 2 FROM lineitem) LIMIT 1) \
         RETURNING l_orderkey",
    )?;
    let report = different(compare)?;
    let of_table = |name: &str| word(&report, &format!("/tables/0/{name}"));
    println!(
        "changed in order {}: {} in {} s",
        key.lines().next().unwrap_or_default(),
        of_table("differences"),
        word(&report, "/seconds")
    );
    ensure!(["changed", "only_source", "only_target"].map(of_table) == ["1", "0", "0"], "{report}");
    Ok(())
}

/// A value of a report, as JSON has it.
fn word(report: &Value, place: &str) -> String {
    report.pointer(place).map(Value::to_string).unwrap_or_default()
}

fn different(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    ensure!(output.status.code() == Some(1), "not found: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

//! A workload that leaves every kind of file.
//!
//! | relation | what it is there for |
//! |---|---|
//! | `item` | heap with holes, all forks; `item_btree`, `item_hash`, `item_gin`, `item_gist`, `item_spgist`, `item_brin`, and `item_bloom` where contrib is there |
//! | `wide` | values out of line, in a TOAST table with its index |
//! | `fleeting` | unlogged, with rows and an index: `_init` forks and no LSNs |
//! | `summary` | materialised view |
//! | `serial` | sequence |
//! | `elsewhere` | table and index in the tablespace `sample_space` |
//! | `part`, `part_low`, `part_high` | partitions (children before 10) |
//! | `loaded` | filled by two COPY sessions at once, so extended in bulk |
//! | `sparse` | most rows deleted, vacuumed, the end given back |
//! | `refilled` | truncated and filled again: file name and OID differ |
//! | `nothing` | a file of no bytes |
//! | `pgbench_*` | pgbench's tables after some transactions |
//! | `other.item` | in a second database |
//!
//! Also a large object, an aborted CREATE and an aborted INSERT.
//!
//! The result is healthy and yet holds pages of zeroes: at the end of `loaded`
//! (16 and later), in the middle of `item_spgist`, in `_fsm` and `_vm` files.

use std::fmt::Write;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;

/// Name of the tablespace that the workload makes.
pub const TABLESPACE: &str = "sample_space";
/// Name of the second database that the workload makes.
pub const OTHER_DATABASE: &str = "other";

/// Rows of a table at scale 1: some MiB in each.
const ROWS: u32 = 20_000;

const ITEM: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, word text, tags int[], place point)",
    "INSERT INTO item SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i],
       point(i % 211, i % 307) FROM generate_series(1, {rows}) i",
    "CREATE INDEX item_btree ON item (word)",
    "CREATE INDEX item_hash ON item USING hash (id)",
    "CREATE INDEX item_gin ON item USING gin (tags)",
    "CREATE INDEX item_gist ON item USING gist (place)",
    "CREATE INDEX item_spgist ON item USING spgist (place)",
    "CREATE INDEX item_brin ON item USING brin (id)",
    // Rows after the indexes: page splits, pending lists, free space.
    "INSERT INTO item SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i],
       point(i % 211, i % 307) FROM generate_series({rows} + 1, {rows} * 5 / 4) i",
    "DELETE FROM item WHERE id % 5 = 0",
    "VACUUM ANALYZE item",
    "UPDATE item SET word = word || '+' WHERE id % 9 = 0",
];

const BLOOM: &[&str] =
    &["CREATE EXTENSION bloom", "CREATE INDEX item_bloom ON item USING bloom (id, word)"];

const OTHER_TABLES: &[&str] = &[
    "CREATE TABLE wide (id int PRIMARY KEY, document text)",
    "ALTER TABLE wide ALTER document SET STORAGE EXTERNAL",
    "INSERT INTO wide SELECT i, repeat(md5(i::text), 300 + i % 200)
       FROM generate_series(1, {rows} / 100) i",
    "CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY, word text)",
    "INSERT INTO fleeting SELECT i, md5(i::text) FROM generate_series(1, {rows} / 4) i",
    "CREATE MATERIALIZED VIEW summary AS
       SELECT id % 100 AS class, count(*) AS items FROM item GROUP BY 1",
    "CREATE SEQUENCE serial",
    "SELECT count(nextval('serial')) FROM generate_series(1, 100)",
    "CREATE TABLE elsewhere (id int, word text) TABLESPACE sample_space",
    "INSERT INTO elsewhere SELECT i, md5(i::text) FROM generate_series(1, {rows} / 4) i",
    "CREATE INDEX elsewhere_btree ON elsewhere (word) TABLESPACE sample_space",
    "CREATE TABLE sparse (id int, word text)",
    "INSERT INTO sparse SELECT i, md5(i::text) FROM generate_series(1, {rows} * 2) i",
    "DELETE FROM sparse WHERE id > {rows} OR id % 40 <> 0",
    "VACUUM sparse",
    "CREATE TABLE refilled (id int PRIMARY KEY)",
    "INSERT INTO refilled SELECT generate_series(1, {rows})",
    "TRUNCATE refilled",
    "INSERT INTO refilled SELECT generate_series(1, {rows} / 10)",
    "CREATE TABLE nothing (id int)",
    "SELECT lo_create(4711)",
    "INSERT INTO pg_largeobject
       SELECT 4711, i, decode(repeat(md5(i::text), 60), 'hex') FROM generate_series(0, 99) i",
    "BEGIN",
    "CREATE TABLE aborted AS SELECT generate_series(1, {rows}) AS id",
    "ROLLBACK",
    "BEGIN",
    "INSERT INTO nothing SELECT generate_series(1, {rows})",
    "ROLLBACK",
    "TRUNCATE nothing",
];

const PARTITIONS: &[&str] = &[
    "CREATE TABLE part (id int, word text) PARTITION BY RANGE (id)",
    "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (1000)",
    "CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (1000) TO (1000000000)",
    "INSERT INTO part SELECT i, md5(i::text) FROM generate_series(1, {rows} / 4) i",
];

/// Before 10 a partition is a child with a constraint.
const CHILDREN: &[&str] = &[
    "CREATE TABLE part (id int, word text)",
    "CREATE TABLE part_low (CHECK (id < 1000)) INHERITS (part)",
    "CREATE TABLE part_high (CHECK (id >= 1000)) INHERITS (part)",
    "INSERT INTO part_low SELECT i, md5(i::text) FROM generate_series(1, 999) i",
    "INSERT INTO part_high SELECT i, md5(i::text) FROM generate_series(1000, {rows} / 4) i",
];

const LOADED: &str = "CREATE TABLE loaded (id int, word text)";
/// In place of COPY where there is no psql to send the data.
const LOADED_BY_INSERT: &str =
    "INSERT INTO loaded SELECT i, md5(i::text) FROM generate_series(1, {rows} * 2) i";

const OTHER_ITEM: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, word text)",
    "INSERT INTO item SELECT i, md5(i::text) FROM generate_series(1, {rows} / 4) i",
    "VACUUM item",
];

impl Cluster {
    /// Fills the cluster with every kind of file; see [the table](self). Each
    /// unit of `scale` adds about 35 MiB and a second. A stopped server is
    /// started. In the end the server runs, with everything written out by a
    /// checkpoint. To be called once; fails when its relations exist.
    ///
    /// Without psql on this machine it does what [`Cluster::load_sample_offline`]
    /// does.
    pub fn load_sample(&mut self, scale: u32) -> Result<()> {
        if !self.has_psql() {
            return self.load_sample_offline(scale);
        }
        let rows = row_count(scale)?;
        self.start()?;
        self.load_sample_tables(rows)?;
        self.copy_in_parallel(rows)?;
        if self.client("pgbench").is_ok() {
            self.pgbench(&["-i", "-q", "-s", &scale.max(1).to_string()])?;
            self.pgbench(&["-n", "-c", "2", "-t", "200"])?;
        }
        self.psql("CHECKPOINT")?;
        Ok(())
    }

    /// As [`Cluster::load_sample`], in single-user mode, which needs no client:
    /// there is no parallel load and no pgbench. The server must be stopped; in
    /// the end the cluster is cleanly shut down.
    pub fn load_sample_offline(&mut self, scale: u32) -> Result<()> {
        ensure!(!self.is_running(), "single-user mode needs the server stopped");
        let rows = row_count(scale)?;
        self.load_sample_tables(rows)?;
        self.load("postgres", &[LOADED_BY_INSERT], rows)
    }

    fn load_sample_tables(&mut self, rows: u32) -> Result<()> {
        self.load("postgres", ITEM, rows)?;
        if self.installation().has_extension("bloom") {
            self.load("postgres", BLOOM, rows)?;
        }
        self.add_tablespace(TABLESPACE)?;
        self.load("postgres", OTHER_TABLES, rows)?;
        let partitions = match self.installation().major {
            10.. => PARTITIONS,
            _ => CHILDREN,
        };
        self.load("postgres", partitions, rows)?;
        self.load("postgres", &[LOADED], rows)?;
        self.load("postgres", &["CREATE DATABASE other"], rows)?;
        self.load(OTHER_DATABASE, OTHER_ITEM, rows)
    }

    fn load(&mut self, database: &str, statements: &[&str], rows: u32) -> Result<()> {
        let statements: Vec<String> =
            statements.iter().map(|one| one.replace("{rows}", &rows.to_string())).collect();
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        self.execute(database, &statements).context("cannot load the sample")?;
        Ok(())
    }

    /// Two sessions that extend one table at a time: each adds pages in bulk,
    /// and those that it does not fill remain empty.
    fn copy_in_parallel(&self, rows: u32) -> Result<()> {
        let copy = |begin: u32| {
            let mut script = String::from("COPY loaded FROM STDIN;\n");
            for id in begin..begin.saturating_add(rows) {
                let word = id.wrapping_mul(2_654_435_761);
                writeln!(script, "{id}\tloaded {word:08x} in parallel")?;
            }
            script.push_str("\\.\n");
            self.psql(&script)
        };
        thread::scope(|scope| {
            let second = scope.spawn(|| copy(rows.saturating_add(1)));
            copy(1)?;
            match second.join() {
                Ok(result) => result.map(drop),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

fn row_count(scale: u32) -> Result<u32> {
    ROWS.checked_mul(scale.max(1))
        .filter(|rows| *rows < 100_000_000)
        .context("the scale is too large")
}

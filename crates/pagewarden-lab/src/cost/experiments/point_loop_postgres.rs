//! E0 on PostgreSQL: a loop of point selects and inserts in one session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use pagewarden_scratch::postgres::Cluster;

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres::{self, NONE_OR_CHECKSUMS};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct PointLoop;

/// A buffer smaller than the table, so that pages are read, verified, stamped
/// and written; a real disk.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "16MB"),
    ("fsync", "on"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "8GB"),
    ("autovacuum", "off"),
];
/// The seed does not say how its loop was committed.
const FLUSHED: &str = "each step flushed to disk";
const NOT_FLUSHED: &str = "not flushed";

static DESCRIPTION: Description = Description {
    name: "e0",
    title: "a loop of point selects and inserts",
    question: "How much longer does a mixed loop take with checksums on?",
    seed: "PAGE_VERIFY modes of SQL Server, 30 runs of 1 million steps: medians 1053 s (NONE), 1051.5 s (TORN), 1060.5 s (CHECKSUM)",
    by_hand: "\
1. initdb --no-data-checksums (before 18: without -k). CREATE TABLE item (id int PRIMARY KEY, body text), 2 million
   rows of 100 characters; CREATE TABLE journal (id int PRIMARY KEY, body text); a procedure that a million times
   picks a random id, reads its row, inserts into journal, and commits. Stop the server.
2. Copy the data directory twice with cp -a; pg_checksums --enable -D on the second copy.
3. In both: shared_buffers = 16MB, autovacuum = off, checkpoint_timeout = 1h; start both.
4. By turns in each, 30 times: TRUNCATE journal; CHECKPOINT; SELECT setseed(the same number); \\timing on;
   CALL the procedure. Once with synchronous_commit = on, once with off: with on the disk decides.
5. Compare the ratios of neighbouring runs.",
    arms: NONE_OR_CHECKSUMS,
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "server_cpu_seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "wal_bytes", unit: "bytes", kind: Kind::Timed, better: Better::Lower },
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        SeedFigure {
            condition: FLUSHED,
            arm: "checksums",
            metric: "seconds",
            ratio: 1060.5 / 1053.0,
            said: "medians 1053 s (NONE) and 1060.5 s (CHECKSUM) on SQL Server",
        },
        SeedFigure {
            condition: NOT_FLUSHED,
            arm: "checksums",
            metric: "seconds",
            ratio: 1060.5 / 1053.0,
            said: "medians 1053 s (NONE) and 1060.5 s (CHECKSUM) on SQL Server",
        },
    ],
    blocks: (6, 30),
};

/// The number is chosen before the statement: a random number in the WHERE
/// clause would be a new one for every row, and a scan of the table.
const PROCEDURE: &str = "\
CREATE PROCEDURE point_loop(steps int, choices int) LANGUAGE plpgsql AS $$
DECLARE wanted int; found text;
BEGIN
    FOR step IN 1..steps LOOP
        wanted := 1 + floor(random() * choices)::int;
        SELECT body INTO found FROM item WHERE id = wanted;
        INSERT INTO journal VALUES (step, found);
        COMMIT;
    END LOOP;
END $$";

impl Experiment for PointLoop {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let size = match lab.form {
            Form::Short => Size { rows: 200_000, flushed: 1_000, not_flushed: 50_000 },
            Form::Whole => Size { rows: 2_000_000, flushed: 50_000, not_flushed: 1_000_000 },
        };
        let installation = postgres::required_newest()?;
        let mut base = postgres::empty_base(&installation)?;
        base.start()?;
        let rows = size.rows;
        let sql = format!(
            "CREATE TABLE item (id int PRIMARY KEY, body text);
            INSERT INTO item SELECT i, repeat(md5(i::text), 3) FROM generate_series(1, {rows}) i;
            CREATE TABLE journal (id int PRIMARY KEY, body text);
            {PROCEDURE};
            VACUUM (FREEZE, ANALYZE)"
        );
        postgres::query(&base, &sql, &lab.stop)?;
        let arms = postgres::started_arms(base, SETTINGS, &lab.stop)?;
        Ok(Box::new(Loops { size, arms, stop: Arc::clone(&lab.stop) }))
    }
}

#[derive(Debug, Clone, Copy)]
struct Size {
    rows: u32,
    /// Steps of one measurement.
    flushed: u32,
    not_flushed: u32,
}

struct Loops {
    size: Size,
    arms: BTreeMap<&'static str, Cluster>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Loops {
    fn conditions(&self) -> Vec<String> {
        vec![FLUSHED.to_owned(), NOT_FLUSHED.to_owned()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("rows".to_owned(), self.size.rows.to_string());
        settings.insert(format!("steps, {FLUSHED}"), self.size.flushed.to_string());
        settings.insert(format!("steps, {NOT_FLUSHED}"), self.size.not_flushed.to_string());
        postgres::add_version(&mut settings, self.arms.values());
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let (steps, commit) = match condition {
            FLUSHED => (self.size.flushed, "on"),
            NOT_FLUSHED => (self.size.not_flushed, "off"),
            other => bail!("{other} is not measured"),
        };
        let stop = &self.stop;
        let cluster =
            self.arms.get_mut(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        postgres::query(cluster, "TRUNCATE journal; CHECKPOINT", stop)?;
        let before = postgres::wal_position(cluster, stop)?;
        // Every arm of a block asks for the same rows.
        let seed = f64::from(block % 1000) / 1000.0;
        let sql = format!(
            "SET synchronous_commit = {commit}; SELECT setseed({seed});
            CALL point_loop({steps}, {})",
            self.size.rows
        );
        let (answer, cpu) =
            postgres::with_server_cpu(cluster, |cluster| postgres::query(cluster, &sql, stop))?;
        let after = postgres::wal_position(cluster, stop)?;
        let seconds = answer.seconds.last().copied().context("psql does not tell the time")?;
        Ok(Reading::of([
            ("seconds", seconds),
            ("server_cpu_seconds", cpu),
            ("wal_bytes", after.saturating_sub(before) as f64),
        ]))
    }
}

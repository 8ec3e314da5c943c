//! E2f: how much write-ahead log checksums cost, and which step writes it.
//!
//! A hint bit that a reader sets is no change to the data, and is not logged.
//! With checksums (or `wal_log_hints`) on, the first such change of a page after
//! a checkpoint writes the whole page into the log, lest a torn write leave a
//! page whose checksum does not match. The first reader pays: rows loaded by
//! `INSERT .. SELECT` have no hint bits yet, rows loaded by `COPY .. FREEZE`
//! need none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::{Cluster, Installation, Options};

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres;
use crate::cost::program;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct WalMechanism;

const SETTINGS: &[(&str, &str)] = &[
    ("autovacuum", "off"),
    ("shared_buffers", "128MB"),
    // Only the checkpoint that is asked for, and the log kept for counting.
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "16GB"),
    ("wal_keep_size", "16GB"),
    // Nothing here is about waiting for a disk: the bytes are the same.
    ("fsync", "off"),
];

/// Steps of pgbench's initialisation, and what is asked between them.
const STEPS: &[(&str, Step)] = &[
    ("wal_load", Step::Load),
    ("wal_checkpoint", Step::Checkpoint),
    ("wal_first_read", Step::Sql("SELECT count(*) FROM pgbench_accounts")),
    ("wal_vacuum", Step::Initialise("v")),
    ("wal_pkey", Step::Initialise("p")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Load,
    Checkpoint,
    Sql(&'static str),
    Initialise(&'static str),
}

/// Steps of `pgbench -i -I`: drop, create, generate by COPY or by INSERT.
const LOADS: &[(&str, &str)] = &[("client load", "dtg"), ("server load", "dtG")];
const CHECKPOINTS: &[(&str, bool)] = &[("no checkpoint", false), ("checkpoint", true)];

static DESCRIPTION: Description = Description {
    name: "e2f",
    title: "the write-ahead log's part of the price",
    question: "How many bytes of log do checksums add, in which step, and does wal_compression give them back?",
    seed: "enabling data checksums by default: Tomas' hypothesis (CREATE INDEX writes the additional log) and his 155 %; Christoph's question about wal_compression",
    by_hand: "\
1. For each arm a fresh cluster: initdb, then wal_log_hints = on, or pg_checksums --enable, or that and
   wal_compression = on; autovacuum = off, checkpoint_timeout = 1h, max_wal_size = 16GB.
2. Before and after each step: SELECT pg_current_wal_insert_lsn(); subtract with pg_wal_lsn_diff().
3. Load by the client: pgbench -i -I dtg -s 10, or by the server: pgbench -i -I dtG -s 10.
4. With or without CHECKPOINT here: this is what the seed's measurements did not control.
5. SELECT count(*) FROM pgbench_accounts; then pgbench -i -I v; then pgbench -i -I p.
6. pg_waldump --stats=record from the first to the last position shows FPI_FOR_HINT.
The bytes are the same every time: one run is enough.",
    arms: &[
        Arm { name: "no-hints", what: "checksums off, wal_log_hints off" },
        Arm { name: "hints", what: "checksums off, wal_log_hints on" },
        Arm { name: "checksums", what: "checksums on" },
        Arm { name: "compressed", what: "checksums on, wal_compression on" },
    ],
    metrics: &[
        bytes("wal_total"),
        bytes("wal_load"),
        bytes("wal_checkpoint"),
        bytes("wal_first_read"),
        bytes("wal_vacuum"),
        bytes("wal_pkey"),
        Metric { name: "hint_images", unit: "", kind: Kind::Exact, better: Better::Lower },
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        SeedFigure {
            condition: "PostgreSQL 15, server load, checkpoint",
            arm: "checksums",
            metric: "wal_total",
            ratio: 1.55,
            said: "155 % of the log without (Tomas, upper end)",
        },
        SeedFigure {
            condition: "PostgreSQL 15, client load, no checkpoint",
            arm: "checksums",
            metric: "wal_total",
            ratio: 0.95,
            said: "95 % of the log without (Tomas, lower end)",
        },
    ],
    blocks: (1, 1),
};

const fn bytes(name: &'static str) -> Metric {
    Metric { name, unit: "bytes", kind: Kind::Exact, better: Better::Lower }
}

impl Experiment for WalMechanism {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let scale = match lab.form {
            Form::Short => 2,
            Form::Whole => 10,
        };
        let mut steps = Steps { scale, conditions: Vec::new(), stop: Arc::clone(&lab.stop) };
        for installation in postgres::installations() {
            let arms = Arc::new(fresh_arms(&installation, &lab.stop)?);
            for (load, initialise) in LOADS {
                for (checkpoint, with_checkpoint) in CHECKPOINTS {
                    let version = postgres::label(&installation);
                    steps.conditions.push(Condition {
                        name: format!("{version}, {load}, {checkpoint}"),
                        arms: Arc::clone(&arms),
                        initialise,
                        checkpoint: *with_checkpoint,
                    });
                }
            }
        }
        Ok(Box::new(steps))
    }
}

type Arms = BTreeMap<&'static str, Cluster>;

/// Stopped clusters without tables; each run works on a copy of one.
fn fresh_arms(installation: &Installation, stop: &AtomicBool) -> Result<Arms> {
    let options = Options { checksums: false, ..Options::default() };
    let base = Cluster::init(installation, &options)?;
    base.append_settings(SETTINGS.iter().copied())?;
    let mut arms = BTreeMap::new();
    for arm in DESCRIPTION.arms {
        let settings: &[(&str, &str)] = match arm.name {
            "hints" => &[("wal_log_hints", "on")],
            "compressed" => &[("wal_compression", "on")],
            _ => &[],
        };
        let checksums = matches!(arm.name, "checksums" | "compressed");
        arms.insert(arm.name, postgres::arm(&base, checksums, settings, stop)?);
    }
    Ok(arms)
}

struct Condition {
    name: String,
    arms: Arc<Arms>,
    initialise: &'static str,
    checkpoint: bool,
}

struct Steps {
    scale: u32,
    conditions: Vec<Condition>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Steps {
    fn conditions(&self) -> Vec<String> {
        self.conditions.iter().map(|condition| condition.name.clone()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("pgbench scale".to_owned(), self.scale.to_string());
        for condition in &self.conditions {
            postgres::add_version(&mut settings, condition.arms.values());
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let found = self.conditions.iter().find(|one| one.name == condition);
        let condition = found.with_context(|| format!("{condition} is not measured"))?;
        let base = condition.arms.get(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        let mut cluster = base.duplicate()?;
        cluster.start()?;
        let mut reading = Reading::default();
        let begin = postgres::wal_position(&cluster, &self.stop)?;
        let mut before = begin;
        for (name, step) in STEPS {
            if *step != Step::Checkpoint || condition.checkpoint {
                self.take(*step, condition, &cluster)?;
            }
            let after = postgres::wal_position(&cluster, &self.stop)?;
            reading = reading.with_value(name, after.saturating_sub(before) as f64);
            before = after;
        }
        let images = hint_images(&cluster, begin, before, &self.stop)?;
        let total = before.saturating_sub(begin) as f64;
        Ok(reading.with_value("wal_total", total).with_value("hint_images", images))
    }
}

impl Steps {
    fn take(&self, step: Step, condition: &Condition, cluster: &Cluster) -> Result<()> {
        match step {
            Step::Load => self.initialise(condition.initialise, cluster),
            Step::Initialise(steps) => self.initialise(steps, cluster),
            Step::Checkpoint => postgres::query(cluster, "CHECKPOINT", &self.stop).map(drop),
            Step::Sql(sql) => postgres::query(cluster, sql, &self.stop).map(drop),
        }
    }

    fn initialise(&self, steps: &str, cluster: &Cluster) -> Result<()> {
        let scale = self.scale.to_string();
        let arguments = ["-i", "-q", "-I", steps, "-s", &scale];
        program::expect(cluster.client("pgbench")?.args(arguments), "", &self.stop)?;
        Ok(())
    }
}

/// Whole pages in the log for the sake of hint bits. What has been inserted into
/// the log is written out before it is counted.
fn hint_images(cluster: &Cluster, begin: u64, end: u64, stop: &AtomicBool) -> Result<f64> {
    postgres::query(cluster, "SELECT pg_switch_wal()", stop)?;
    let position = |position: u64| format!("{:X}/{:X}", position >> 32, position & 0xFFFF_FFFF);
    let mut command = cluster.tool("pg_waldump");
    command.arg("--stats=record").arg("-p").arg(cluster.data_dir().join("pg_wal")).args([
        "-s",
        &position(begin),
        "-e",
        &position(end),
    ]);
    let output = program::expect(&mut command, "", stop)?;
    Ok(count_of(&output.stdout, "XLOG/FPI_FOR_HINT"))
}

/// `XLOG/FPI_FOR_HINT    16394 ( 32.97)  803306 ( 2.77) ...`; no line for none.
fn count_of(stats: &str, record: &str) -> f64 {
    let line = stats.lines().find_map(|line| line.trim_start().strip_prefix(record));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_kind_are_counted() {
        let stats =
            "Type      N   (%)\n----\nXLOG/FPI   3 ( 1.0)\nXLOG/FPI_FOR_HINT   16394 ( 32.97)\n";
        assert!((count_of(stats, "XLOG/FPI_FOR_HINT") - 16394.0).abs() < 0.1);
        assert!(count_of("", "XLOG/FPI_FOR_HINT").abs() < 0.1);
    }
}

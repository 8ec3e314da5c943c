//! The first half of E2e: how long it takes to fill a database, and how much
//! log that writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::Cluster;

use super::matrix::{ARMS, settings_of, three_arms};
use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::{postgres, program};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct Initialisation;

/// Letters of `pgbench -i -I`: drop and create, generate, vacuum, primary keys.
const STAGES: &[(&str, &str)] = &[
    ("create_seconds", "dt"),
    ("generate_seconds", ""),
    ("vacuum_seconds", "v"),
    ("pkey_seconds", "p"),
];
const LOADS: &[(&str, &str)] = &[("client load", "g"), ("server load", "G")];
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "128MB"),
    ("fsync", "on"),
    ("autovacuum", "off"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
];

static DESCRIPTION: Description = Description {
    name: "e2e-init",
    title: "filling a database",
    question: "How much longer does pgbench -i take with hint bits logged, and with checksums?",
    seed: "enabling data checksums by default: Tomas' matrix; small machine 365, 423 and 504 s; with SATA disks 206 to 282 %",
    by_hand: "\
1. Three clusters, copies of one fresh data directory: without anything; wal_log_hints = on; pg_checksums --enable.
   shared_buffers = 128MB, autovacuum = off, max_wal_size = 8GB, checkpoint_timeout = 1h.
2. By turns in each, dropping the tables in between: time pgbench -i -I dt -s 50, then -I g (or G), -I v, -I p;
   pg_current_wal_insert_lsn() before and after, subtracted, is the log.
3. Compare the ratios of neighbouring runs. The seed's times are of another version, which did not freeze what
   pgbench loads: see e2f for the mechanism.",
    arms: ARMS,
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "wal_bytes", unit: "bytes", kind: Kind::Timed, better: Better::Lower },
        seconds("create_seconds"),
        seconds("generate_seconds"),
        seconds("vacuum_seconds"),
        seconds("pkey_seconds"),
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        small("hints", 423.0 / 365.0, "365 s and 423 s"),
        small("checksums", 504.0 / 365.0, "365 s and 504 s"),
    ],
    blocks: (6, 10),
};

const fn seconds(name: &'static str) -> Metric {
    Metric { name, unit: "s", kind: Kind::Timed, better: Better::Lower }
}

const fn small(arm: &'static str, ratio: f64, said: &'static str) -> SeedFigure {
    SeedFigure { condition: "client load", arm, metric: "seconds", ratio, said }
}

impl Experiment for Initialisation {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let scale = match lab.form {
            Form::Short => 2,
            Form::Whole => 50,
        };
        let installation = postgres::required_newest()?;
        let base = postgres::empty_base(&installation)?;
        let mut arms = three_arms(&base, SETTINGS, &lab.stop)?;
        for cluster in arms.values_mut() {
            cluster.start()?;
        }
        Ok(Box::new(Filling { scale, arms, stop: Arc::clone(&lab.stop) }))
    }
}

struct Filling {
    scale: u32,
    arms: BTreeMap<&'static str, Cluster>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Filling {
    fn conditions(&self) -> Vec<String> {
        LOADS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        settings_of(SETTINGS, self.scale, self.arms.values())
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let load = LOADS.iter().find(|(name, _)| *name == condition);
        let (_, load) = load.with_context(|| format!("{condition} is not measured"))?;
        let cluster = self.arms.get(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        // Every run begins with nothing left to write from the one before.
        self.stage(cluster, "d")?;
        postgres::query(cluster, "CHECKPOINT", &self.stop)?;
        let before = postgres::wal_position(cluster, &self.stop)?;
        let mut reading = Reading::default();
        let mut total = 0.0;
        for (name, letters) in STAGES {
            let letters = if letters.is_empty() { load } else { letters };
            let seconds = self.stage(cluster, letters)?;
            total += seconds;
            reading = reading.with_value(name, seconds);
        }
        let after = postgres::wal_position(cluster, &self.stop)?;
        let wal = after.saturating_sub(before) as f64;
        Ok(reading.with_value("seconds", total).with_value("wal_bytes", wal))
    }
}

impl Filling {
    fn stage(&self, cluster: &Cluster, letters: &str) -> Result<f64> {
        let scale = self.scale.to_string();
        let arguments = ["-i", "-q", "-I", letters, "-s", &scale];
        let output = program::expect(cluster.client("pgbench")?.args(arguments), "", &self.stop)?;
        Ok(output.seconds)
    }
}

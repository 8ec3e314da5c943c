//! E2c: point reads past a tiny buffer, by ever more clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Description, Experiment, Form, Lab, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres::{self, NONE_OR_CHECKSUMS, ReadOnlyArms, THROUGHPUT};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct Clients;

/// 16 pages, as in the seed.
const SETTINGS: &[(&str, &str)] = &[("shared_buffers", "128kB")];
const CLIENTS: &[(&str, u32)] =
    &[("1 client", 1), ("2 clients", 2), ("4 clients", 4), ("8 clients", 8), ("16 clients", 16)];

static DESCRIPTION: Description = Description {
    name: "e2c",
    title: "select-only by number of clients",
    question: "Does verification cost more when more clients read at the same time?",
    seed: "enabling data checksums by default: Bernd's measurement, one run of 60 s each",
    by_hand: "\
1. Two copies of one data directory, as for e2a; shared_buffers = 128kB; start both.
2. For 1, 2, 4, 8 and 16 clients, by turns in each copy, many times:
   pgbench -n -S -M prepared -c CLIENTS -j 1 -T 10
3. Compare the ratios of neighbouring runs, for each number of clients. The seed has one run each:
   its dip at 8 clients may be noise.",
    arms: NONE_OR_CHECKSUMS,
    metrics: THROUGHPUT,
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        bernd("1 client", 0.926),
        bernd("2 clients", 0.917),
        bernd("4 clients", 0.932),
        bernd("8 clients", 0.822),
        bernd("16 clients", 0.907),
    ],
    blocks: (7, 12),
};

const fn bernd(condition: &'static str, ratio: f64) -> SeedFigure {
    SeedFigure { condition, arm: "checksums", metric: "tps", ratio, said: "one run of 60 s each" }
}

impl Experiment for Clients {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let (scale, seconds) = match lab.form {
            Form::Short => (10, 1),
            Form::Whole => (50, 10),
        };
        let installation = postgres::required_newest()?;
        let arms = ReadOnlyArms::new(&installation, scale, SETTINGS, &lab.stop)?;
        Ok(Box::new(PointReads { scale, seconds, arms, stop: Arc::clone(&lab.stop) }))
    }
}

struct PointReads {
    scale: u32,
    seconds: u32,
    arms: ReadOnlyArms,
    stop: Arc<AtomicBool>,
}

impl Prepared for PointReads {
    fn conditions(&self) -> Vec<String> {
        CLIENTS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("pgbench scale".to_owned(), self.scale.to_string());
        settings.insert("seconds of one measurement".to_owned(), self.seconds.to_string());
        postgres::add_version(&mut settings, self.arms.clusters());
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let (_, clients) = CLIENTS
            .iter()
            .find(|(name, _)| *name == condition)
            .with_context(|| format!("{condition} is not measured"))?;
        postgres::select_only(self.arms.get(arm)?, *clients, self.seconds, &self.stop)
    }
}

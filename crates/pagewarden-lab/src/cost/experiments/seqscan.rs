//! E2b: reading a whole table past a tiny buffer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::Cluster;

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres::{self, NONE_OR_CHECKSUMS, ReadOnlyArms};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct SequentialScan;

/// 16 pages: nearly every page comes from the system's cache and is verified.
const SETTINGS: &[(&str, &str)] =
    &[("shared_buffers", "128kB"), ("jit", "off"), ("max_parallel_workers_per_gather", "0")];
const STATEMENT: &str = "SELECT count(bid) FROM pgbench_accounts";
/// Scans in one measurement; the figure is their mean.
const SCANS: u32 = 10;

static DESCRIPTION: Description = Description {
    name: "e2b",
    title: "sequential scan with tiny buffers",
    question: "How much longer does a count over a table in the page cache take when each page is verified?",
    seed: "enabling data checksums by default: Christoph's second measurement (456 and 489 ms), Ants' (344 and 384 ms)",
    by_hand: "\
1. initdb --no-data-checksums (before 18: without -k); pgbench -i -s 50; VACUUM FREEZE; stop the server.
2. Copy the data directory twice with cp -a; pg_checksums --enable -D on the second copy.
3. In both: shared_buffers = 128kB, jit = off, max_parallel_workers_per_gather = 0; start both.
4. In psql with \\timing on, by turns in each, many times: SELECT count(bid) FROM pgbench_accounts;
   The first of each fills the page cache and does not count.
5. Compare the ratios of neighbouring runs, not the means. On 18, whose workers read and verify
   outside of your backend, add up the processor time of all processes of the server.",
    arms: NONE_OR_CHECKSUMS,
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "server_cpu_seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        christoph("PostgreSQL 15"),
        ants("PostgreSQL 15"),
        christoph("PostgreSQL 18"),
        ants("PostgreSQL 18"),
    ],
    blocks: (10, 30),
};

const fn christoph(condition: &'static str) -> SeedFigure {
    SeedFigure {
        condition,
        arm: "checksums",
        metric: "seconds",
        ratio: 489.0 / 456.0,
        said: "456 ms and 489 ms (Christoph)",
    }
}

const fn ants(condition: &'static str) -> SeedFigure {
    SeedFigure {
        condition,
        arm: "checksums",
        metric: "seconds",
        ratio: 384.0 / 344.0,
        said: "344 ms and 384 ms (Ants)",
    }
}

impl Experiment for SequentialScan {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let scale = match lab.form {
            Form::Short => 10,
            Form::Whole => 50,
        };
        let mut scans = Scans { scale, conditions: Vec::new(), stop: Arc::clone(&lab.stop) };
        for installation in postgres::installations() {
            let arms = ReadOnlyArms::new(&installation, scale, SETTINGS, &lab.stop)?;
            scans.conditions.push((postgres::label(&installation), arms));
        }
        Ok(Box::new(scans))
    }
}

struct Scans {
    scale: u32,
    conditions: Vec<(String, ReadOnlyArms)>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Scans {
    fn conditions(&self) -> Vec<String> {
        self.conditions.iter().map(|(name, _)| name.clone()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("pgbench scale".to_owned(), self.scale.to_string());
        settings.insert("scans in one measurement".to_owned(), SCANS.to_string());
        for (_, arms) in &self.conditions {
            postgres::add_version(&mut settings, arms.clusters());
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let stop = Arc::clone(&self.stop);
        scan(self.arms(condition)?.get(arm)?, &stop)
    }

    fn measure_together(
        &mut self,
        condition: &str,
        arms: &[Arm],
        _block: u32,
    ) -> Option<Result<Vec<Reading>>> {
        let stop = Arc::clone(&self.stop);
        let all = self.arms(condition);
        Some(all.and_then(|all| all.at_once(arms, |cluster| scan(cluster, &stop))))
    }
}

impl Scans {
    fn arms(&mut self, condition: &str) -> Result<&mut ReadOnlyArms> {
        let found = self.conditions.iter_mut().find(|(name, _)| name == condition);
        let found = found.map(|(_, arms)| arms);
        found.with_context(|| format!("{condition} is not measured"))
    }
}

fn scan(cluster: &mut Cluster, stop: &AtomicBool) -> Result<Reading> {
    let statements = vec![STATEMENT; usize::try_from(SCANS)?].join(";\n");
    let (answer, cpu) =
        postgres::with_server_cpu(cluster, |cluster| postgres::query(cluster, &statements, stop))?;
    let scans = f64::from(SCANS);
    Ok(Reading::of([
        ("seconds", answer.total_seconds() / scans),
        ("server_cpu_seconds", cpu / scans),
    ]))
}

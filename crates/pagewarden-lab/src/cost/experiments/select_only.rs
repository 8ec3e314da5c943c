//! E2a: point reads past a tiny buffer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use pagewarden_scratch::postgres::Cluster;

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Description, Experiment, Form, Lab, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres::{self, NONE_OR_CHECKSUMS, ReadOnlyArms, THROUGHPUT};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct SelectOnly;

/// 64 pages, as in the seed: nearly every read misses and is verified.
const SETTINGS: &[(&str, &str)] = &[("shared_buffers", "512kB")];
/// Fewer than the processors of most machines: pgbench and the server's other
/// processes need some too.
const CLIENTS: u32 = 2;

static DESCRIPTION: Description = Description {
    name: "e2a",
    title: "select-only with tiny buffers",
    question: "How many fewer point reads a second does a server do when each page that it reads is verified?",
    seed: "enabling data checksums by default: Christoph's first measurement (97363 and 92551 tps)",
    by_hand: "\
1. initdb --no-data-checksums (before 18: without -k); pgbench -i -s 50; VACUUM FREEZE; stop the server.
2. Copy the data directory twice with cp -a; pg_checksums --enable -D on the second copy.
3. In both: shared_buffers = 512kB; start both.
4. By turns in each, many times: pgbench -n -S -M prepared -c 2 -j 1 -T 10
5. Compare the ratios of neighbouring runs. Beside them: user and system time of all processes
   of the server (fields 14 to 17 of /proc/PID/stat), divided by the number of transactions.",
    arms: NONE_OR_CHECKSUMS,
    metrics: THROUGHPUT,
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[SeedFigure {
        condition: "",
        arm: "checksums",
        metric: "tps",
        ratio: 92551.0 / 97363.0,
        said: "97363 and 92551 transactions a second",
    }],
    blocks: (10, 30),
};

impl Experiment for SelectOnly {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let (scale, seconds) = match lab.form {
            Form::Short => (10, 2),
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
        vec![String::new()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("pgbench scale".to_owned(), self.scale.to_string());
        settings.insert("clients".to_owned(), CLIENTS.to_string());
        settings.insert("seconds of one measurement".to_owned(), self.seconds.to_string());
        postgres::add_version(&mut settings, self.arms.clusters());
        settings
    }

    fn measure(&mut self, _condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let cluster = self.arms.get(arm)?;
        postgres::select_only(cluster, CLIENTS, self.seconds, &self.stop)
    }

    fn measure_together(
        &mut self,
        _condition: &str,
        arms: &[Arm],
        _block: u32,
    ) -> Option<Result<Vec<Reading>>> {
        let (seconds, stop) = (self.seconds, &self.stop);
        let measure =
            |cluster: &mut Cluster| postgres::select_only(cluster, CLIENTS, seconds, stop);
        Some(self.arms.at_once(arms, measure))
    }
}

//! E2e: reading and writing transactions, at several sizes of the database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden_scratch::home::memory_limit_unavailable;
use pagewarden_scratch::postgres::{Cluster, StopMode};

use crate::cost::decision::{Decides, POSTGRES_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::postgres;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct Matrix;

/// The three ways of treating a change of hint bits.
pub(super) const ARMS: &[Arm] = &[
    Arm { name: "no-hints", what: "checksums off, wal_log_hints off" },
    Arm { name: "hints", what: "checksums off, wal_log_hints on" },
    Arm { name: "checksums", what: "checksums on" },
];
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("autovacuum", "off"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
];
const CLIENTS: &str = "2";

/// Read-only and simple-update transactions of pgbench.
const WORKLOADS: &[(&str, &str)] = &[("read-only", "-S"), ("read-write", "-N")];

/// How a database lies in memory.
#[derive(Debug, Clone, Copy)]
struct Size {
    name: &'static str,
    /// Scale of pgbench, about 15 MiB each: short, whole.
    scales: (u32, u32),
    /// `shared_buffers`: short, whole; the server's default of 128 MB if none.
    buffers: Option<(&'static str, &'static str)>,
    /// The memory of the whole server in MiB: short, whole.
    memory_mib: Option<(u64, u64)>,
}

const IN_BUFFERS: &str = "in buffers";
const IN_PAGE_CACHE: &str = "in page cache";
const BEYOND_MEMORY: &str = "beyond memory";
const DEFAULT_BUFFERS: &str = "default shared_buffers";

const SIZES: &[Size] = &[
    Size { name: IN_BUFFERS, scales: (3, 20), buffers: Some(("128MB", "768MB")), memory_mib: None },
    Size {
        name: IN_PAGE_CACHE,
        scales: (5, 100),
        buffers: Some(("16MB", "64MB")),
        memory_mib: None,
    },
    Size {
        name: BEYOND_MEMORY,
        scales: (10, 200),
        buffers: Some(("16MB", "64MB")),
        memory_mib: Some((128, 768)),
    },
    Size { name: DEFAULT_BUFFERS, scales: (5, 50), buffers: None, memory_mib: None },
];

static DESCRIPTION: Description = Description {
    name: "e2e",
    title: "reading and writing by size of the database",
    question: "What do logged hint bits and checksums cost transactions, in buffers, in the page cache, and beyond memory?",
    seed: "enabling data checksums by default: Tomas' matrix; small machine, read-only: 38680, 38670 and 37510 tps; with SATA disks ro 68 to 100 %, log 95 to 155 %",
    by_hand: "\
1. For each size one data directory, filled by pgbench -i, copied three times: without anything; wal_log_hints = on;
   pg_checksums --enable. Scales and shared_buffers as in the settings; fsync = on, autovacuum = off,
   max_wal_size = 8GB, checkpoint_timeout = 1h.
2. Beyond memory: a control group with a limit on memory (as root: mkdir /sys/fs/cgroup/memory/NAME, write the
   bytes to memory.limit_in_bytes, or memory.max in version 2, and the server's number to cgroup.procs).
3. By turns in each: CHECKPOINT; pgbench -n -M prepared -c 2 -j 1 -T 10 with -S (read-only) or -N (read-write);
   pg_current_wal_insert_lsn() before and after, divided by the transactions, is the log for each.
4. Compare the ratios of neighbouring runs.
A measured pgbench -i is the experiment e2e-init.",
    arms: ARMS,
    metrics: &[
        Metric { name: "tps", unit: "1/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "cpu_us", unit: "us", kind: Kind::Timed, better: Better::Lower },
        Metric {
            name: "wal_bytes_per_transaction",
            unit: "bytes",
            kind: Kind::Timed,
            better: Better::Lower,
        },
    ],
    is_price: true,
    decides: Some(Decides::by_main_metric(&POSTGRES_CHECKSUMS, &["checksums"])),
    seed_figures: &[
        small("read-only, in buffers", "hints", 38670.0 / 38680.0, "38680 and 38670 tps"),
        small("read-only, in buffers", "checksums", 37510.0 / 38680.0, "38680 and 37510 tps"),
        small("read-only, beyond memory", "checksums", 0.68, "68 % with SATA disks (lower end)"),
    ],
    blocks: (6, 12),
};

const fn small(
    condition: &'static str,
    arm: &'static str,
    ratio: f64,
    said: &'static str,
) -> SeedFigure {
    SeedFigure { condition, arm, metric: "tps", ratio, said }
}

impl Experiment for Matrix {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let installation = postgres::required_newest()?;
        let no_limit = memory_limit_unavailable();
        let mut databases = Vec::new();
        for size in SIZES {
            if size.memory_mib.is_some() && no_limit.is_some() {
                continue;
            }
            let scale = of(lab.form, size.scales);
            let base = postgres::base(&installation, scale, &lab.stop)?;
            let mut settings = SETTINGS.to_vec();
            // The base was filled with 128 MB too, said once more for the record.
            let buffers = size.buffers.map_or("128MB", |buffers| of(lab.form, buffers));
            settings.push(("shared_buffers", buffers));
            let arms = three_arms(&base, &settings, &lab.stop)?;
            if let Some(memory) = size.memory_mib {
                for cluster in arms.values() {
                    cluster.home_of_server().limit_memory(of(lab.form, memory) << 20)?;
                    // What the copy left in memory is counted against no arm.
                    cluster.home_of_server().drop_page_cache()?;
                }
            }
            databases.push(Database { size, scale, buffers, arms });
        }
        let seconds = of(lab.form, (1, 10));
        let stop = Arc::clone(&lab.stop);
        Ok(Box::new(Databases {
            seconds,
            form: lab.form,
            databases,
            no_limit,
            running: None,
            stop,
        }))
    }
}

fn of<T>(form: Form, (short, whole): (T, T)) -> T {
    match form {
        Form::Short => short,
        Form::Whole => whole,
    }
}

/// Three stopped copies of `base`, by the name of their arm.
pub(super) fn three_arms(
    base: &Cluster,
    settings: &[(&str, &str)],
    stop: &AtomicBool,
) -> Result<BTreeMap<&'static str, Cluster>> {
    let mut arms = BTreeMap::new();
    for arm in ARMS {
        let mut settings = settings.to_vec();
        if arm.name == "hints" {
            settings.push(("wal_log_hints", "on"));
        }
        arms.insert(arm.name, postgres::arm(base, arm.name == "checksums", &settings, stop)?);
    }
    Ok(arms)
}

pub(super) fn settings_of<'a>(
    settings: &[(&str, &str)],
    scale: u32,
    clusters: impl IntoIterator<Item = &'a Cluster>,
) -> BTreeMap<String, String> {
    let mut settings = postgres::settings(settings);
    settings.insert("pgbench scale".to_owned(), scale.to_string());
    postgres::add_version(&mut settings, clusters);
    settings
}

struct Database {
    size: &'static Size,
    scale: u32,
    buffers: &'static str,
    arms: BTreeMap<&'static str, Cluster>,
}

struct Databases {
    seconds: u32,
    form: Form,
    databases: Vec<Database>,
    /// Why memory cannot be limited, if so.
    no_limit: Option<String>,
    /// The size whose servers run: those of the others would take its memory.
    running: Option<&'static str>,
    stop: Arc<AtomicBool>,
}

fn condition(workload: &str, size: &Size) -> String {
    format!("{workload}, {}", size.name)
}

impl Prepared for Databases {
    fn conditions(&self) -> Vec<String> {
        let of_size = |database: &Database| {
            WORKLOADS.iter().map(|(workload, _)| condition(workload, database.size)).collect()
        };
        self.databases.iter().flat_map(|database| -> Vec<String> { of_size(database) }).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = postgres::settings(SETTINGS);
        settings.insert("clients".to_owned(), CLIENTS.to_owned());
        settings.insert("seconds of one measurement".to_owned(), self.seconds.to_string());
        for database in &self.databases {
            let limit = database.size.memory_mib.map_or_else(String::new, |memory| {
                format!(", the server limited to {} MiB", of(self.form, memory))
            });
            let what = format!("scale {}, buffers {}{limit}", database.scale, database.buffers);
            settings.insert(database.size.name.to_owned(), what);
            postgres::add_version(&mut settings, database.arms.values());
        }
        if let Some(reason) = &self.no_limit {
            settings.insert(BEYOND_MEMORY.to_owned(), format!("not measured: {reason}"));
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let found = self.databases.iter().find_map(|database| {
            let of_this =
                |workload: &&(&str, &str)| self::condition(workload.0, database.size) == condition;
            WORKLOADS.iter().find(of_this).map(|(_, flag)| (database.size.name, *flag))
        });
        let (size, flag) = found.with_context(|| format!("{condition} is not measured"))?;
        self.run_only(size)?;
        let stop = &self.stop;
        let database = self.databases.iter_mut().find(|database| database.size.name == size);
        let cluster = database.and_then(|database| database.arms.get_mut(arm.name));
        let cluster = cluster.with_context(|| format!("no arm {}", arm.name))?;
        postgres::query(cluster, "CHECKPOINT", stop)?;
        let before = postgres::wal_position(cluster, stop)?;
        let seconds = self.seconds.to_string();
        let arguments = ["-n", flag, "-M", "prepared", "-c", CLIENTS, "-j", "1", "-T", &seconds];
        let (throughput, cpu) = postgres::with_server_cpu(cluster, |cluster| {
            postgres::pgbench(cluster, &arguments, stop)
        })?;
        let after = postgres::wal_position(cluster, stop)?;
        let mut reading = throughput.reading(cpu);
        if flag == "-N" && throughput.transactions > 0.0 {
            let wal = after.saturating_sub(before) as f64 / throughput.transactions;
            reading = reading.with_value("wal_bytes_per_transaction", wal);
        }
        Ok(reading)
    }
}

impl Databases {
    /// Stops the servers of the size before and starts those of this one.
    fn run_only(&mut self, size: &'static str) -> Result<()> {
        if self.running == Some(size) {
            return Ok(());
        }
        self.running = None;
        for database in &mut self.databases {
            for cluster in database.arms.values_mut() {
                if database.size.name == size {
                    cluster.start()?;
                } else {
                    cluster.stop(StopMode::Fast)?;
                }
            }
        }
        self.running = Some(size);
        Ok(())
    }
}

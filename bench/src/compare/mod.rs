//! `pagewarden compare` beside COUNT(*) over the same tables, and beside others that compare.
//!
//! Two equal tables of 15 columns: in two databases of one PostgreSQL, on a MariaDB and its
//! replica, and on a PostgreSQL and a MariaDB. All contenders are processes that run once in each round, in an order that
//! turns from round to round; before that each runs once and is not measured. Counted are
//! the processor time of the servers and of the process, wall time and memory.
//!
//! At the end differences are planted, and it is said who finds them.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden_lab::cost::server_cpu;
use serde_json::Value;

use crate::process::{Measured, measure};
use crate::samples::{Ratio, spread};
use crate::subject::{load, pagewarden};

mod databases;
mod peers;
mod planted;

use databases::Databases;

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Rows of each table
    #[arg(long, default_value_t = 3_000_000)]
    rows: u64,
    /// How often each contender runs; 0: only what is planted is looked for
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    version: String,
    /// Only the pair whose name contains this: PostgreSQL, MariaDB, both
    #[arg(long, default_value = "")]
    only: String,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
    /// reladiff, where it is: `python3 -m venv DIR; DIR/bin/pip install 'reladiff[postgresql]'`
    #[arg(long, default_value = "target/reladiff/bin/reladiff")]
    reladiff: PathBuf,
    /// pt-table-checksum, where it is: `apt-get install percona-toolkit`
    #[arg(long, default_value = "/usr/bin/pt-table-checksum")]
    pt_table_checksum: PathBuf,
    /// Leave the others out
    #[arg(long)]
    no_peers: bool,
    /// Leave out the differences that are planted at the end
    #[arg(long)]
    no_planted: bool,
}

/// The goals that this project set itself; see docs/benchmarks-compare.md.
const CLIENT_NS_A_ROW: f64 = 1200.0;
const MEMORY_BYTES: u64 = 256 << 20;

/// A program to be measured, and what is asked of it.
struct Arm {
    name: &'static str,
    command: Command,
    /// The most of the server's time, in times of COUNT(*).
    server_goal: Option<f64>,
    /// The least of its wall time, in times of `compare`.
    wall_goal: Option<f64>,
    server: Vec<f64>,
    client: Vec<f64>,
    wall: Vec<f64>,
    memory_bytes: u64,
}

impl Arm {
    fn new(name: &'static str, command: Command) -> Self {
        let (server_goal, wall_goal) = (None, None);
        let (server, client, wall) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, command, server_goal, wall_goal, server, client, wall, memory_bytes: 0 }
    }

    fn slower(self, than_ours: f64) -> Self {
        Self { wall_goal: Some(than_ours), ..self }
    }

    /// Runs it once, to see whether it can; says why not, if it cannot.
    fn can_run(&mut self) -> bool {
        let (ended, said) = match self.command.output() {
            Ok(output) if output.status.success() => {
                self.say_mode(&output.stdout);
                return true;
            }
            Ok(output) => {
                let said = if output.stderr.is_empty() { output.stdout } else { output.stderr };
                (output.status.to_string(), String::from_utf8_lossy(&said).into_owned())
            }
            Err(error) => ("cannot be run".to_owned(), error.to_string()),
        };
        // The last line of those that say something: the rest is how it came to it.
        let first = said.lines().find(|line| line.contains("rror")).or_else(|| said.lines().last());
        println!("{}: left out: {ended}: {}", self.name, first.unwrap_or_default().trim());
        false
    }

    /// Says in which way a comparison of Pagewarden's was made.
    fn say_mode(&self, report: &[u8]) {
        let Ok(report) = serde_json::from_slice::<Value>(report) else { return };
        let word =
            |name: &str| report.pointer(&format!("/tables/0/{name}")).and_then(Value::as_str);
        if let (Some(mode), Some(because)) = (word("mode"), word("mode_because")) {
            println!("{}: {mode} {because}", self.name);
        }
    }

    fn run(&mut self, databases: &Databases) -> Result<()> {
        let before = databases.server_seconds()?;
        let measured: Measured =
            measure(&mut self.command, false).with_context(|| self.name.to_owned())?;
        self.server.push(databases.server_seconds()? - before);
        self.client.push(measured.cpu.as_secs_f64());
        self.wall.push(measured.wall.as_secs_f64());
        self.memory_bytes = self.memory_bytes.max(measured.memory_bytes);
        Ok(())
    }
}

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let suite = Suite { arguments, pagewarden };
    let mut any = false;
    if "PostgreSQL".contains(&arguments.only) {
        any = true;
        let databases = Databases::of_postgres(&arguments.version, arguments.rows)?;
        let goals = Goals { compare: Some(3.5), native: Some(4.0) };
        suite.measure(&databases, &goals)?;
    }
    if "MariaDB".contains(&arguments.only) {
        any = true;
        let databases = Databases::of_mariadb(arguments.rows)?;
        let goals = Goals { compare: Some(8.0), native: None };
        suite.measure(&databases, &goals)?;
    }
    if "both".contains(&arguments.only) {
        any = true;
        let databases = Databases::of_both(&arguments.version, arguments.rows)?;
        suite.measure(&databases, &Goals { compare: None, native: None })?;
    }
    ensure!(any, "there is no engine '{}'", arguments.only);
    Ok(())
}

const COUNT: &str = "COUNT(*)";
const COUNT_BY_KEY: &str = "COUNT(*) by key";
const COMPARE: &str = "compare";
/// The same, of a PostgreSQL that would give no pages.
const COMPARE_BY_RANGES: &str = "compare by ranges";

/// The most of the servers' time, in times of COUNT(*). Without a goal for it there is no native
/// way, and no pages are given.
struct Goals {
    compare: Option<f64>,
    native: Option<f64>,
}

struct Suite<'a> {
    arguments: &'a Arguments,
    pagewarden: PathBuf,
}

impl Suite<'_> {
    /// One of our own: `compare` as it is without options, or in a mode that was named.
    fn ours(&self, name: &'static str, databases: &Databases) -> Arm {
        let mut command = Command::new(&self.pagewarden);
        match name {
            COUNT => command.args(["checksum", "--strategy", "count"]),
            COMPARE => command.args(["compare", "--jobs", "1"]),
            // A server whose load is limited is asked for it between ranges.
            COMPARE_BY_RANGES => command.args(["compare", "--jobs", "1", "--max-load", "1000"]),
            mode => command.args(["compare", "--jobs", "1", "--mode", mode]),
        };
        if name != COUNT {
            command.arg("--json");
        }
        command.arg("--quiet").args(databases.urls());
        Arm::new(name, command)
    }

    fn measure(&self, databases: &Databases, goals: &Goals) -> Result<()> {
        let Arguments { rows, rounds, .. } = *self.arguments;
        println!(
            "\n{}: two tables of {rows} rows and {} columns, {rounds} rounds, load {}",
            databases.server(),
            databases::COLUMNS,
            load()
        );
        if rounds > 0 {
            self.cost(databases, goals)?;
        }
        if !self.arguments.no_planted {
            let is_here = |arm: &Arm| Path::new(arm.command.get_program()).exists();
            let peer = peers::of(self.arguments, databases)?.filter(is_here);
            planted::find(&self.pagewarden, peer, databases, rows)?;
        }
        println!("load {}", load());
        Ok(())
    }

    fn cost(&self, databases: &Databases, goals: &Goals) -> Result<()> {
        let Arguments { rows, rounds, .. } = *self.arguments;
        let ours = |name| self.ours(name, databases);
        let mut arms = vec![ours(COUNT), Arm { server_goal: goals.compare, ..ours(COMPARE) }];
        if let Some(goal) = goals.native {
            arms.push(ours(COMPARE_BY_RANGES));
            arms.push(Arm { server_goal: Some(goal), ..ours("native") });
        }
        arms.push(ours("pushdown"));
        let by_key = databases.count_by_key(rows)?;
        arms.extend(by_key.map(|command| Arm::new(COUNT_BY_KEY, command)));
        let floors = databases.floors()?.into_iter();
        arms.extend(floors.map(|(name, command)| Arm::new(name, command)));
        arms.extend(peers::of(self.arguments, databases)?);
        arms.retain_mut(Arm::can_run);
        let count = arms.len();
        for round in 0..rounds {
            for turn in 0..count {
                if let Some(arm) = arms.get_mut((round + turn) % count) {
                    arm.run(databases)?;
                }
            }
        }
        show(&arms, rows)
    }
}

fn show(arms: &[Arm], rows: u64) -> Result<()> {
    let arm = |name: &str| arms.iter().find(|arm| arm.name == name);
    let (Some(count), Some(compare)) = (arm(COUNT), arm(COMPARE)) else {
        bail!("COUNT(*) or compare did not run");
    };
    // Each row is read on either side.
    let rows = 2.0 * rows as f64;
    println!("seconds: median (least..most); server: of both sides together");
    for arm in arms {
        println!(
            "{:<26} server CPU {:>24}  client CPU {:>24}  wall {:>24}  {:>4} MiB",
            arm.name,
            spread(&arm.server),
            spread(&arm.client),
            spread(&arm.wall),
            arm.memory_bytes >> 20
        );
    }
    let by_key = arm(COUNT_BY_KEY).and_then(|by_key| Ratio::new(&compare.server, &by_key.server));
    for arm in arms.iter().filter(|arm| arm.name != COUNT) {
        let Some(ratio) = Ratio::new(&arm.server, &count.server) else { continue };
        let goal = arm.server_goal.map(|goal| judged(ratio.paired <= goal, "at most", goal));
        println!(
            "{}: server CPU {:.2} x COUNT(*) paired, {:.2} of medians{}",
            arm.name,
            ratio.paired,
            ratio.of_medians,
            goal.unwrap_or_default()
        );
        let Some(goal) = arm.wall_goal else { continue };
        let Some(ratio) = Ratio::new(&arm.wall, &compare.wall) else { continue };
        println!(
            "{}: wall {:.2} x compare paired, {:.2} of medians{}",
            arm.name,
            ratio.paired,
            ratio.of_medians,
            judged(ratio.paired >= goal, "at least", goal)
        );
    }
    if let Some(ratio) = by_key {
        println!(
            "compare: server CPU {:.2} x {COUNT_BY_KEY} paired, {:.2} of medians",
            ratio.paired, ratio.of_medians
        );
    }
    let each = crate::samples::median(compare.client.clone()).unwrap_or(f64::NAN) * 1e9 / rows;
    println!(
        "compare: {each:.0} ns of the client for a row{}",
        judged(each <= CLIENT_NS_A_ROW, "at most", CLIENT_NS_A_ROW)
    );
    let mebibytes = (compare.memory_bytes >> 20) as f64;
    let most = (MEMORY_BYTES >> 20) as f64;
    println!("compare: {mebibytes} MiB{}", judged(mebibytes <= most, "at most", most));
    Ok(())
}

fn judged(met: bool, word: &str, goal: f64) -> String {
    format!("; goal {word} {goal}: {}", if met { "met" } else { "NOT met" })
}

/// The processor time of servers, by their first processes.
fn seconds_of(pids: &[u32]) -> Result<f64> {
    let each = pids.iter().map(|pid| server_cpu::seconds(*pid).context("a server has ended"));
    each.sum()
}

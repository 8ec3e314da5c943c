//! What a scrub does to the server whose files it reads, and what the server leaves of the disk.
//!
//! A server serves transactions at a share of what it can, with and without a scrub in turns. p50 and
//! p99 are of all transactions of a phase, from when each was due. Before that, with an idle server:
//! how fast the same files are read by `check` and by `scrub`.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::harm::load::{Latencies, Load, of_mariadb, of_postgres};
use crate::samples::{Ratio, median, spread};
use crate::subject::{self, pagewarden};

mod load;

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// postgres or mariadb
    #[arg(long, default_value = "postgres")]
    engine: String,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    version: String,
    /// How much data
    #[arg(long, default_value_t = 2048)]
    mebibytes: u32,
    /// The memory that the server may have, its page cache included; 0: no limit, and everything
    /// is in the cache
    #[arg(long, default_value_t = 0)]
    memory: u64,
    /// How long each phase is
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// How often each of the two comes
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The share of its capacity at which the server works
    #[arg(long, default_value_t = 0.7)]
    share: f64,
    /// The rate of the scrub
    #[arg(long, default_value = "auto")]
    rate: String,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// The goals of docs/benchmarks-scrub.md.
const P99_GOAL: f64 = 1.05;
const BANDWIDTH_GOAL: f64 = 0.5;
const IDLE_GOAL: f64 = 0.95;

/// Runs the benchmark and prints its table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = pagewarden(arguments.pagewarden.as_deref())?;
    let load: Box<dyn Load> = match arguments.engine.as_str() {
        "postgres" => of_postgres(&arguments.version, arguments.mebibytes, arguments.memory)?,
        "mariadb" => of_mariadb(arguments.mebibytes, arguments.memory)?,
        other => anyhow::bail!("no such engine: {other}\nhint: postgres, mariadb"),
    };
    let trial = Trial { arguments, program, load: &*load, state: tempfile::tempdir()? };
    trial.run()
}

struct Trial<'a> {
    arguments: &'a Arguments,
    program: PathBuf,
    load: &'a dyn Load,
    state: tempfile::TempDir,
}

impl Trial<'_> {
    fn run(&self) -> Result<()> {
        let (check, scrub) = self.idle()?;
        let seconds = self.arguments.seconds;
        let most = self.load.run(None, seconds)?.per_second;
        let rate = most * self.arguments.share;
        println!("capacity {most:.0} transactions a second; load {}", subject::load());
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut read = Vec::new();
        for round in 0..self.arguments.rounds {
            // ABAB: what drifts is in both.
            without.push(self.load.run(Some(rate), seconds)?);
            let scrubbing = Scrubbing::begin(self)?;
            with.push(self.load.run(Some(rate), seconds)?);
            read.push(scrubbing.end()?);
            let last = |all: &[Latencies]| all.last().map_or((0.0, 0.0), |one| (one.p50, one.p99));
            println!(
                "round {}: p50, p99 without {:.2?} ms, with {:.2?} ms, {:.0} MiB/s",
                round + 1,
                last(&without),
                last(&with),
                read.last().copied().unwrap_or(0.0)
            );
        }
        self.table(&without, &with, &read, check, scrub);
        Ok(())
    }

    /// MiB a second of `check` and `scrub` with no other load, out of the cache if memory is short.
    fn idle(&self) -> Result<(f64, f64)> {
        let (mut check, mut scrub) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            self.load.forget()?;
            let mut command = Command::new(&self.program);
            command.args(["check", "--json", "--rate", "none"]).arg(self.load.folder());
            check.push(speed(&mut command)?);
            self.load.forget()?;
            scrub.push(speed(&mut self.scrub("1h"))?);
        }
        println!("idle: check {}, scrub {} MiB/s", spread(&check), spread(&scrub));
        let middle = |all| median(all).unwrap_or(f64::NAN);
        Ok((middle(check), middle(scrub)))
    }

    fn scrub(&self, budget: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["scrub", "--json", "--every", "0s", "--budget", budget]);
        command.args(["--rate", &self.arguments.rate, "--state"]).arg(self.state.path());
        command.arg(self.load.folder());
        command
    }

    fn table(
        &self,
        without: &[Latencies],
        with: &[Latencies],
        read: &[f64],
        check: f64,
        scrub: f64,
    ) {
        let of = |all: &[Latencies], which: fn(&Latencies) -> f64| -> Vec<f64> {
            all.iter().map(which).collect()
        };
        let goal = |met: bool| if met { "met" } else { "not met" };
        for (name, which) in
            [("p50", (|one| one.p50) as fn(&Latencies) -> f64), ("p99", |one| one.p99)]
        {
            let (with, without) = (of(with, which), of(without, which));
            let ratio = Ratio::new(&with, &without).map_or(f64::NAN, |ratio| ratio.paired);
            println!(
                "{name}: without {}, with {} ms; paired {ratio:.3}",
                spread(&without),
                spread(&with)
            );
            if name == "p99" {
                println!("goal {P99_GOAL}: {}", goal(ratio <= P99_GOAL));
            }
        }
        let got = median(read.to_vec()).unwrap_or(f64::NAN);
        println!(
            "the scrub read {got:.0} MiB/s, {:.2} of what it reads alone (goal {BANDWIDTH_GOAL}: {})",
            got / scrub,
            goal(got / scrub >= BANDWIDTH_GOAL)
        );
        println!(
            "on an idle disk: {:.3} of check (goal {IDLE_GOAL}: {})",
            scrub / check,
            goal(scrub / check >= IDLE_GOAL)
        );
    }
}

/// MiB a second of a run that verifies everything.
fn speed(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(mebibytes(&output.stdout)? / seconds)
}

fn mebibytes(report: &[u8]) -> Result<f64> {
    let report: Value = serde_json::from_slice(report).context("no report")?;
    let bytes = report.get("bytes").and_then(Value::as_f64).context("no bytes in the report")?;
    ensure!(report.get("error").is_none_or(Value::is_null), "{report}");
    Ok(bytes / f64::from(1 << 20))
}

/// A scrub that begins again whenever it is through.
struct Scrubbing {
    child: Child,
    reports: tempfile::NamedTempFile,
    begin: Instant,
}

impl Scrubbing {
    fn begin(trial: &Trial<'_>) -> Result<Self> {
        let reports = tempfile::NamedTempFile::new()?;
        let command = trial.scrub("1h");
        // The loop goes on until it is asked to stop, and then waits for the last report.
        let script = "trap 'kill $run; wait $run; exit' TERM
                      while :; do \"$@\" & run=$!; wait $run; done";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdout(reports.reopen()?)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, reports, begin: Instant::now() })
    }

    /// Ends it. MiB a second that it read.
    fn end(mut self) -> Result<f64> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begin.elapsed() < Duration::from_secs(60), "the scrub does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = fs::read_to_string(self.reports.path())?;
        let reports = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let bytes: f64 = reports.filter_map(|report| report.ok()?.get("bytes")?.as_f64()).sum();
        ensure!(bytes > 0.0, "the scrub read nothing");
        Ok(bytes / f64::from(1 << 20) / seconds)
    }
}

//! `pagewarden check` as a whole process, beside others that read the same
//! files: `cat`, `pg_checksums --check`, and `fio` for what the disk can do.
//!
//! All contenders run once in each round, in an order that turns from round to
//! round, so that whatever else the machine does meets all of them. Before each
//! run the files are brought into the page cache, or out of it, and that is
//! verified.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use pagewarden_scratch::postgres::Installation;

use crate::cache::FileSet;
use crate::process::{Measured, measure};
use crate::samples::{Ratio, spread};
use crate::subject::{load, make_cluster, page_files, pagewarden, postgres};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// pgbench's scale: 15 MB for each
    #[arg(long, default_value_t = 200)]
    scale: u32,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    version: String,
    /// How often each contender runs
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// A data directory that was shut down cleanly; made if it does not exist
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
    /// Leave out the runs with the files in the page cache
    #[arg(long)]
    no_warm: bool,
    /// Leave out the runs with the files out of the page cache
    #[arg(long)]
    no_cold: bool,
}

/// The goals that this project set itself; see docs/benchmarks-postgres.md.
const CPU_TO_CAT: f64 = 1.15;
const CPU_OF_WITNESSES: f64 = 1.25;
const CPU_TO_PG_CHECKSUMS: f64 = 0.45;
const WALL_TO_PG_CHECKSUMS: f64 = 0.4;
const COLD_WALL_TO_CAT: f64 = 0.65;
const COLD_SPEED_TO_FIO: f64 = 0.95;
const MEMORY_BYTES: u64 = 64 << 20;

/// fio's reads in flight; the best of them is what the disk can do.
const FIO_DEPTHS: [u32; 5] = [1, 4, 8, 16, 32];
/// Bytes in each of fio's reads; it passes over files shorter than that.
const FIO_BLOCK_BYTES: u64 = 1 << 20;

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let installation = postgres(&arguments.version)?;
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let cluster;
    let dir = match &arguments.dir {
        Some(dir) if dir.exists() => dir.clone(),
        Some(dir) => {
            make_cluster(&installation, arguments.scale)?.copy_data_dir(dir)?;
            dir.clone()
        }
        None => {
            cluster = make_cluster(&installation, arguments.scale)?;
            cluster.data_dir().to_owned()
        }
    };
    let files = page_files(&dir)?;
    rustix::fs::sync();
    println!(
        "{} bytes in {} files of PostgreSQL {}, {} rounds, load {}",
        files.bytes(),
        files.files.len(),
        installation.server_version()?,
        arguments.rounds,
        load()
    );
    let suite = Suite { files, dir, pagewarden, installation, rounds: arguments.rounds };
    if !arguments.no_warm {
        suite.warm()?;
    }
    if !arguments.no_cold {
        suite.cold()?;
    }
    println!("\nload {}", load());
    Ok(())
}

struct Suite {
    files: FileSet,
    dir: PathBuf,
    pagewarden: PathBuf,
    installation: Installation,
    rounds: usize,
}

/// Finds the seconds that a program says it took, in its output.
type OwnTime = fn(&[u8]) -> anyhow::Result<f64>;

/// A program to be measured.
pub struct Contender {
    pub name: String,
    command: Command,
    /// The seconds that count, if not those of the whole process.
    own_time: Option<OwnTime>,
    pub wall: Vec<f64>,
    pub cpu: Vec<f64>,
    pub memory_bytes: u64,
}

impl Contender {
    pub fn new(name: impl Into<String>, command: Command) -> Self {
        Self {
            name: name.into(),
            command,
            own_time: None,
            wall: Vec::new(),
            cpu: Vec::new(),
            memory_bytes: 0,
        }
    }

    pub fn run(&mut self) -> anyhow::Result<()> {
        let measured: Measured = measure(&mut self.command, self.own_time.is_some())?;
        self.wall.push(match self.own_time {
            Some(own_time) => own_time(&measured.output)?,
            None => measured.wall.as_secs_f64(),
        });
        self.cpu.push(measured.cpu.as_secs_f64());
        self.memory_bytes = self.memory_bytes.max(measured.memory_bytes);
        Ok(())
    }
}

impl Suite {
    fn check(&self, name: &str, flags: &[&str]) -> Contender {
        let mut command = Command::new(&self.pagewarden);
        command.arg("check").arg("--quiet").args(flags).arg(&self.dir);
        Contender::new(name, command)
    }

    fn cat(&self) -> Contender {
        let mut command = Command::new("cat");
        command.args(self.files.files.iter().map(|(path, _)| path));
        Contender::new("cat", command)
    }

    fn pg_checksums(&self) -> Contender {
        let program = self.installation.program("pg_checksums");
        let mut command = Command::new(program);
        // As the user who owns the files, so with the environment and not the user
        // of the scratch clusters.
        for (name, value) in self.installation.command("pg_checksums").get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg("--check").arg("-D").arg(&self.dir);
        Contender::new("pg_checksums", command)
    }

    fn fio(&self, depth: u32) -> Contender {
        let large = self.files.files.iter().filter(|(_, length)| *length >= FIO_BLOCK_BYTES);
        let names: Vec<_> = large.map(|(path, _)| path.to_string_lossy()).collect();
        let mut command = Command::new("fio");
        command.args(["--name=bench", "--rw=read", "--direct=1", "--ioengine=io_uring"]);
        command.args(["--readonly", "--minimal", "--file_service_type=sequential"]);
        command.arg(format!("--bs={FIO_BLOCK_BYTES}"));
        command.arg(format!("--iodepth={depth}"));
        command.arg(format!("--filename={}", names.join(":")));
        let mut contender = Contender::new(format!("fio, {depth} in flight"), command);
        contender.own_time = Some(fio_seconds);
        contender
    }

    fn rounds(
        &self,
        mut contenders: Vec<Contender>,
        prepare: impl Fn(&FileSet) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Contender>> {
        let count = contenders.len();
        for round in 0..self.rounds {
            for index in 0..count {
                prepare(&self.files)?;
                if let Some(contender) = contenders.get_mut((index + round) % count) {
                    contender.run().with_context(|| contender.name.clone())?;
                }
            }
        }
        Ok(contenders)
    }

    fn warm(&self) -> anyhow::Result<()> {
        println!("\nIn the page cache");
        let contenders = vec![
            self.cat(),
            self.check("check -j1 no witness", &["-j1", "--no-witness"]),
            self.check("check -j2 no witness", &["-j2", "--no-witness"]),
            self.pg_checksums(),
            self.check("check -j1", &["-j1"]),
            self.check("check -j2", &["-j2"]),
        ];
        let contenders = self.rounds(contenders, FileSet::warm_up)?;
        self.print(&contenders);
        let [cat, one, two, pg_checksums, asked, _] = contenders.as_slice() else {
            return Ok(());
        };
        println!("\nWithout witnesses, if not said otherwise");
        at_most("CPU of check -j1 to cat", Ratio::new(&one.cpu, &cat.cpu), CPU_TO_CAT);
        let name = "CPU of check -j1 to pg_checksums";
        at_most(name, Ratio::new(&one.cpu, &pg_checksums.cpu), CPU_TO_PG_CHECKSUMS);
        let name = "wall of check -j2 to pg_checksums";
        at_most(name, Ratio::new(&two.wall, &pg_checksums.wall), WALL_TO_PG_CHECKSUMS);
        let name = "CPU with witnesses to without, -j1";
        at_most(name, Ratio::new(&asked.cpu, &one.cpu), CPU_OF_WITNESSES);
        memory(&[one, two, asked]);
        Ok(())
    }

    fn cold(&self) -> anyhow::Result<()> {
        println!("\nOut of the page cache");
        let mut contenders = vec![
            self.cat(),
            self.check("check", &[]),
            self.check("check --io threads", &["--io", "threads"]),
            self.check("check --cached", &["--cached"]),
        ];
        let with_fio = measure(Command::new("fio").arg("--version"), false).is_ok();
        if with_fio {
            contenders.extend(FIO_DEPTHS.iter().map(|depth| self.fio(*depth)));
        } else {
            println!("fio is not installed: what the disk can do is not known");
        }
        let contenders = self.rounds(contenders, FileSet::cool_down)?;
        self.print(&contenders);
        let [cat, check, _, _, fio @ ..] = contenders.as_slice() else { return Ok(()) };
        println!();
        at_most("wall of check to cat", Ratio::new(&check.wall, &cat.wall), COLD_WALL_TO_CAT);
        let speeds = |contender: &Contender| -> Vec<f64> {
            contender.wall.iter().map(|wall| self.bytes_of(contender) / wall).collect()
        };
        let best = fio.iter().map(|fio| (fio, speeds(fio))).max_by(|(_, a), (_, b)| {
            let of = |speeds: &Vec<f64>| crate::samples::median(speeds.clone()).unwrap_or(0.0);
            of(a).total_cmp(&of(b))
        });
        if let Some((fio, best)) = best {
            let name = format!("speed of check to {}", fio.name);
            at_least(&name, Ratio::new(&speeds(check), &best), COLD_SPEED_TO_FIO);
        }
        memory(&[check]);
        Ok(())
    }

    /// The bytes that a contender reads.
    fn bytes_of(&self, contender: &Contender) -> f64 {
        let shortest = if contender.own_time.is_some() { FIO_BLOCK_BYTES } else { 0 };
        let lengths = self.files.files.iter().map(|(_, length)| *length);
        lengths.filter(|length| *length >= shortest).sum::<u64>() as f64
    }

    fn print(&self, contenders: &[Contender]) {
        println!(
            "{:<20} {:>22} {:>22} {:>7} {:>8}",
            "", "CPU seconds", "wall seconds", "MB/s", "MiB held"
        );
        for contender in contenders {
            let wall = crate::samples::median(contender.wall.clone()).unwrap_or(f64::NAN);
            println!(
                "{:<20} {:>22} {:>22} {:>7.0} {:>8.0}",
                contender.name,
                spread(&contender.cpu),
                spread(&contender.wall),
                self.bytes_of(contender) / wall / 1e6,
                contender.memory_bytes as f64 / f64::from(1 << 20),
            );
        }
    }
}

pub fn at_most(name: &str, ratio: Option<Ratio>, goal: f64) {
    verdict(name, ratio, "at most", goal, |ratio| ratio <= goal);
}

fn at_least(name: &str, ratio: Option<Ratio>, goal: f64) {
    verdict(name, ratio, "at least", goal, |ratio| ratio >= goal);
}

fn verdict(name: &str, ratio: Option<Ratio>, bound: &str, goal: f64, met: impl Fn(f64) -> bool) {
    let Some(ratio) = ratio else { return };
    println!(
        "{name:<36} {:.3} paired, {:.3} of medians; goal {bound} {goal:.2}: {}",
        ratio.paired,
        ratio.of_medians,
        if met(ratio.paired) { "met" } else { "NOT met" }
    );
}

pub fn memory(contenders: &[&Contender]) {
    let most = contenders.iter().map(|contender| contender.memory_bytes).max().unwrap_or(0);
    println!(
        "{:<36} {:.1} MiB; goal at most {} MiB: {}",
        "memory held by check",
        most as f64 / f64::from(1 << 20),
        MEMORY_BYTES >> 20,
        if most <= MEMORY_BYTES { "met" } else { "NOT met" }
    );
}

/// The running time in fio's terse output, version 3: the 9th field, in
/// milliseconds. Its process spends more on preparations.
fn fio_seconds(output: &[u8]) -> anyhow::Result<f64> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find(|line| line.starts_with("3;")).context("no result of fio")?;
    let field = line.split(';').nth(8).context("a short result of fio")?;
    Ok(field.parse::<f64>()? / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_in_the_output_of_fio() {
        let line = b"fio: note\n3;fio-3.33;bench;0;0;2622464;1708000;1708;1535;0;0\n";
        assert!((fio_seconds(line).unwrap() - 1.535).abs() < 1e-9);
        assert!(fio_seconds(b"fio: error").is_err());
    }
}

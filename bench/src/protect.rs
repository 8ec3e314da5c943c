//! `pagewarden protect` beside `pg_checksums --enable`, on the same cluster.
//!
//! Before each run every page is given a wrong checksum and the cluster's setting
//! is off (or, for runs with nothing to change, every checksum is right), and the
//! device holds all of it. The files are in the page cache, as the server and what came
//! after it left them there, or out of it. `rewrite` tells what of that is not ours to change:
//! in the cache the system's own work, and out of it what the disk gives.
#![allow(clippy::print_stdout)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::postgres::Installation;

use crate::cache::FileSet;
use crate::check::Contender;
use crate::process::measure;
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
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only the cases whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Requests in flight of what shows the disk's own speed
    #[arg(long, default_value_t = 4)]
    in_flight: usize,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

const PAGE_BYTES: u64 = 8192;
const CHECKSUM_OFFSET: u64 = 8;

const REWRITING: &str = "rewriting alone";
const READING: &str = "reading alone";
const DISK: &str = "the disk alone";
/// The same, and every byte is looked at: that is where a host may make it wait that has put
/// the data far from the processor.
const LOOKING: &str = "disk and a sum";
const READ_BACK: &str = "with reading back";

/// Runs of both programs under the same conditions.
struct Case {
    name: &'static str,
    /// Whether the files are in the page cache.
    cached: bool,
    /// Whether pages are to be changed.
    changes: bool,
    /// Whether the device is waited for.
    syncs: bool,
    cpu_goal: f64,
    wall_goal: f64,
}

const CACHED: Case = Case {
    name: "every page, synced",
    cached: true,
    changes: true,
    syncs: true,
    cpu_goal: 0.4,
    wall_goal: 0.6,
};

const UNSYNCED: Case =
    Case { name: "every page, not synced", syncs: false, wall_goal: 0.35, ..CACHED };

const NOTHING: Case = Case {
    name: "nothing to change, synced",
    changes: false,
    cpu_goal: 0.5,
    wall_goal: 0.5,
    ..CACHED
};

const NOTHING_UNSYNCED: Case =
    Case { name: "nothing to change, not synced", syncs: false, ..NOTHING };

/// Those in the page cache come first: what was read into it anew lies there in larger
/// pieces than what a server wrote.
const CASES: [Case; 8] = [
    CACHED,
    UNSYNCED,
    NOTHING,
    NOTHING_UNSYNCED,
    Case { name: "out of the page cache, every page, synced", cached: false, ..CACHED },
    Case { name: "out of the page cache, every page, not synced", cached: false, ..UNSYNCED },
    Case { name: "out of the page cache, nothing to change, synced", cached: false, ..NOTHING },
    Case {
        name: "out of the page cache, nothing to change, not synced",
        cached: false,
        ..NOTHING_UNSYNCED
    },
];

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let installation = postgres(&arguments.version)?;
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let cluster = make_cluster(&installation, arguments.scale)?;
    let files = page_files(cluster.data_dir())?;
    println!(
        "{} bytes in {} files of PostgreSQL {}, {} rounds, load {}",
        files.bytes(),
        files.files.len(),
        installation.server_version()?,
        arguments.rounds,
        load()
    );
    let dir = cluster.data_dir().to_owned();
    let suite = Suite { files, dir, pagewarden, installation, in_flight: arguments.in_flight };
    for case in CASES.iter().filter(|case| case.name.contains(&arguments.only)) {
        suite.compare(case, arguments.rounds)?;
    }
    println!("\nload {}", load());
    Ok(())
}

struct Suite {
    files: FileSet,
    dir: PathBuf,
    pagewarden: PathBuf,
    installation: Installation,
    in_flight: usize,
}

impl Suite {
    fn compare(&self, case: &Case, rounds: usize) -> anyhow::Result<()> {
        let mut contenders = vec![
            Contender::new("pg_checksums", self.theirs(case)),
            Contender::new("pagewarden", self.ours(case)),
        ];
        let alone: &[&str] = match case {
            Case { cached: false, changes: false, .. } => &[DISK, LOOKING],
            Case { cached: false, .. } => &[DISK],
            Case { changes: true, .. } => &[REWRITING],
            Case { .. } => &[READING],
        };
        for name in alone {
            contenders.push(Contender::new(*name, self.rewriting(case, *name == LOOKING)?));
        }
        if case.changes && case.syncs {
            contenders.push(Contender::new(READ_BACK, self.protecting()));
        }
        let count = contenders.len();
        for round in 0..rounds {
            for turn in 0..count {
                self.prepare(case)?;
                if let Some(contender) = contenders.get_mut((round + turn) % count) {
                    contender.run()?;
                }
            }
        }
        println!("\n{}", case.name);
        for contender in &contenders {
            let (cpu, wall) = (spread(&contender.cpu), spread(&contender.wall));
            println!("{:<17} CPU {cpu:>22}  wall {wall:>24}", contender.name);
        }
        let [theirs, ours, others @ ..] = contenders.as_slice() else { return Ok(()) };
        for (name, ratio, goal) in [
            ("CPU", Ratio::new(&ours.cpu, &theirs.cpu), case.cpu_goal),
            ("wall", Ratio::new(&ours.wall, &theirs.wall), case.wall_goal),
        ] {
            let Some(ratio) = ratio else { continue };
            println!(
                "{name:<5} {:.3} paired, {:.3} of medians; goal at most {goal:.2}: {}",
                ratio.paired,
                ratio.of_medians,
                if ratio.paired <= goal { "met" } else { "NOT met" }
            );
        }
        for other in others {
            let cpu = Ratio::new(&other.cpu, &theirs.cpu);
            let wall = Ratio::new(&other.wall, &theirs.wall);
            let Some((cpu, wall)) = cpu.zip(wall) else { continue };
            let (cpu, wall) = (cpu.paired, wall.paired);
            println!("{} to pg_checksums: CPU {cpu:.3}, wall {wall:.3} paired", other.name);
            if alone.contains(&other.name.as_str())
                && let Some((cpu, wall)) =
                    Ratio::new(&ours.cpu, &other.cpu).zip(Ratio::new(&ours.wall, &other.wall))
            {
                let (cpu, wall) = (cpu.paired, wall.paired);
                println!("pagewarden to {}: CPU {cpu:.3}, wall {wall:.3} paired", other.name);
            }
        }
        Ok(())
    }

    /// Checksums off, and of the pages all or none wrong.
    fn prepare(&self, case: &Case) -> anyhow::Result<()> {
        measure(self.protect().args(["--mode", "checksum", "--no-verify"]), false)?;
        measure(self.protect().args(["--mode", "none"]), false)?;
        if case.changes {
            for (path, length) in &self.files.files {
                spoil(path, *length)?;
            }
        }
        rustix::fs::sync();
        if case.cached { self.files.warm_up() } else { self.files.cool_down() }
    }

    fn protect(&self) -> Command {
        let mut command = Command::new(&self.pagewarden);
        command.args(["protect", "--quiet"]).arg(&self.dir);
        command
    }

    /// As it is without options: what was written is read back from the device.
    fn protecting(&self) -> Command {
        let mut command = self.protect();
        command.args(["--mode", "checksum"]);
        command
    }

    fn ours(&self, case: &Case) -> Command {
        let mut command = self.protecting();
        command.arg("--no-verify");
        command.args((!case.syncs).then_some("--no-sync"));
        command
    }

    fn theirs(&self, case: &Case) -> Command {
        let mut command = self.installation.command("pg_checksums");
        command.arg("--enable").args((!case.syncs).then_some("--no-sync"));
        command.arg("-D").arg(&self.dir);
        command
    }

    fn rewriting(&self, case: &Case, looks: bool) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("rewrite").args(case.syncs.then_some("--sync"));
        command.args((!case.changes).then_some("--only-read"));
        command.args(looks.then_some("--look"));
        let cores = std::thread::available_parallelism()?.get();
        let threads = if case.cached { cores } else { self.in_flight };
        command.args((!case.cached).then_some("--past"));
        command.arg("--threads").arg(threads.to_string());
        command.args(self.files.files.iter().map(|(path, _)| path));
        Ok(command)
    }
}

/// Turns the bits of every page's checksum around: no page is right then, but
/// those that were never written, which stay as they are.
fn spoil(path: &Path, length: u64) -> anyhow::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    for page in 0..length / PAGE_BYTES {
        let mut stored = [0; 2];
        let offset = page * PAGE_BYTES + CHECKSUM_OFFSET;
        file.read_exact_at(&mut stored, offset)?;
        if stored != [0; 2] {
            file.write_all_at(&stored.map(|byte| !byte), offset)?;
        }
    }
    Ok(())
}

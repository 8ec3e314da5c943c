//! `pagewarden protect` beside `pg_checksums --enable`, on the same cluster.
//!
//! Before each run every page is given a wrong checksum and the cluster's setting
//! is off (or, for runs with nothing to change, every checksum is right), and the
//! device holds all of it. The files are in the page cache.
#![allow(clippy::print_stdout)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use pagewarden_scratch::postgres::Installation;

use crate::cache::FileSet;
use crate::check::{load, make_cluster, page_files};
use crate::process::measure;
use crate::samples::{Ratio, spread};

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
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

const PAGE_BYTES: u64 = 8192;
const CHECKSUM_OFFSET: u64 = 8;

/// Runs of both programs under the same conditions.
struct Case {
    name: &'static str,
    /// Whether pages are to be changed.
    changes: bool,
    theirs: &'static [&'static str],
    ours: &'static [&'static str],
    cpu_goal: f64,
    wall_goal: f64,
}

const CASES: [Case; 3] = [
    Case {
        name: "every page, synced",
        changes: true,
        theirs: &[],
        ours: &["--no-verify"],
        cpu_goal: 0.4,
        wall_goal: 0.6,
    },
    Case {
        name: "every page, not synced",
        changes: true,
        theirs: &["--no-sync"],
        ours: &["--no-verify", "--no-sync"],
        cpu_goal: 0.4,
        wall_goal: 0.35,
    },
    Case {
        name: "nothing to change",
        changes: false,
        theirs: &["--no-sync"],
        ours: &["--no-verify", "--no-sync"],
        cpu_goal: 0.5,
        wall_goal: 0.5,
    },
];

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let installation = Installation::find(&arguments.version)
        .with_context(|| format!("no PostgreSQL {}", arguments.version))?;
    let pagewarden = match &arguments.pagewarden {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("pagewarden"),
    };
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
    let suite = Suite { files, dir: cluster.data_dir().to_owned(), pagewarden, installation };
    for case in &CASES {
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
}

impl Suite {
    fn compare(&self, case: &Case, rounds: usize) -> anyhow::Result<()> {
        let mut cpu = [Vec::new(), Vec::new()];
        let mut wall = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for turn in 0..2 {
                let who = (round + turn) % 2;
                self.prepare(case.changes)?;
                let mut command = if who == 0 { self.theirs(case) } else { self.ours(case) };
                let measured = measure(&mut command, false)?;
                if let (Some(cpu), Some(wall)) = (cpu.get_mut(who), wall.get_mut(who)) {
                    cpu.push(measured.cpu.as_secs_f64());
                    wall.push(measured.wall.as_secs_f64());
                }
            }
        }
        println!("\n{}", case.name);
        for (who, name) in ["pg_checksums", "pagewarden"].iter().enumerate() {
            if let (Some(cpu), Some(wall)) = (cpu.get(who), wall.get(who)) {
                println!("{name:<14} CPU {:>22}  wall {:>24}", spread(cpu), spread(wall));
            }
        }
        let [their_cpu, our_cpu] = &cpu;
        let [their_wall, our_wall] = &wall;
        for (name, ratio, goal) in [
            ("CPU", Ratio::new(our_cpu, their_cpu), case.cpu_goal),
            ("wall", Ratio::new(our_wall, their_wall), case.wall_goal),
        ] {
            let Some(ratio) = ratio else { continue };
            println!(
                "{name:<5} {:.3} paired, {:.3} of medians; goal at most {goal:.2}: {}",
                ratio.paired,
                ratio.of_medians,
                if ratio.paired <= goal { "met" } else { "NOT met" }
            );
        }
        Ok(())
    }

    /// Checksums off, and of the pages all or none wrong.
    fn prepare(&self, wrong: bool) -> anyhow::Result<()> {
        measure(self.protect().args(["--mode", "checksum", "--no-verify"]), false)?;
        measure(self.protect().args(["--mode", "none"]), false)?;
        if wrong {
            for (path, length) in &self.files.files {
                spoil(path, *length)?;
            }
        }
        rustix::fs::sync();
        self.files.warm_up()
    }

    fn protect(&self) -> Command {
        let mut command = Command::new(&self.pagewarden);
        command.args(["protect", "--quiet"]).arg(&self.dir);
        command
    }

    fn ours(&self, case: &Case) -> Command {
        let mut command = self.protect();
        command.args(["--mode", "checksum"]).args(case.ours);
        command
    }

    fn theirs(&self, case: &Case) -> Command {
        let mut command = self.installation.command("pg_checksums");
        command.arg("--enable").args(case.theirs).arg("-D").arg(&self.dir);
        command
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

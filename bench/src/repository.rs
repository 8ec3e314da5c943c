//! `pagewarden check` of a pgBackRest repository, beside `pgbackrest verify`.
//!
//! A cluster that pgbench filled is backed up in full, changed, and backed up again: every file of the
//! repository is read by both. `verify` compares each file with the sum that the manifest has of it, and
//! looks for holes in the log; `check` does the same, and verifies the pages and the records too.
//! Contenders run once in each round, in an order that turns, with the files in the page cache.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::cache::FileSet;
use crate::check::{Contender, at_most};
use crate::samples::{Ratio, ratio_with_interval, spread};
use crate::subject::{load, pagewarden, postgres};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// pgbench's scale: 15 MB for each
    #[arg(long, default_value_t = 100)]
    scale: u32,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    version: String,
    /// How the repository is compressed
    #[arg(long, value_delimiter = ',', default_value = "gz,zst,none")]
    compress_type: Vec<String>,
    /// How often each contender runs
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
    /// pgBackRest
    #[arg(long, default_value = "/usr/bin/pgbackrest")]
    pgbackrest: PathBuf,
}

/// The goal that this project set itself: of the faster of pgBackRest's two.
const WALL_TO_VERIFY: f64 = 0.6;
const TRANSACTIONS: &str = "2000";

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    ensure!(
        arguments.pgbackrest.is_file(),
        "{} is not there\nhint: apt-get install pgbackrest, or name it by --pgbackrest",
        arguments.pgbackrest.display()
    );
    let installation = postgres(&arguments.version)?;
    println!("making a cluster of scale {}", arguments.scale);
    let mut cluster = Cluster::init(&installation, &Options::default())?;
    cluster.start()?;
    let scale = arguments.scale.to_string();
    cluster.pgbench(&["--initialize", "--quiet", "--scale", &scale])?;
    for compression in &arguments.compress_type {
        let repository = back_up(&mut cluster, &arguments.pgbackrest, compression)?;
        let measured = measure(arguments, &cluster, &pagewarden, &repository, compression);
        fs::remove_dir_all(&repository)?;
        measured?;
    }
    println!("\nload {}", load());
    Ok(())
}

/// Runs pgBackRest as the server's user, to whom the repository belongs.
fn pgbackrest(cluster: &Cluster, program: &Path, arguments: &[&str]) -> Command {
    let mut command = cluster.tool(&program.to_string_lossy());
    command.arg(format!("--config={}", config(cluster).display()));
    command.args(["--stanza=bench"]).args(arguments);
    command
}

fn config(cluster: &Cluster) -> PathBuf {
    cluster.home().join("pgbackrest.conf")
}

/// A repository with a full and an incremental backup, and the log since.
fn back_up(cluster: &mut Cluster, program: &Path, compression: &str) -> anyhow::Result<PathBuf> {
    let repository = cluster.add_dir(&format!("repository_{compression}"))?;
    let home = cluster.home().display().to_string();
    let text = format!(
        "[global]\nrepo1-path={}\ncompress-type={compression}\nlock-path={home}/lock\n\
         log-level-file=off\nlog-level-console=off\nlog-level-stderr=error\nstart-fast=y\n\
         process-max=2\n[bench]\npg1-path={}\npg1-socket-path={}\npg1-user=postgres\n",
        repository.display(),
        cluster.data_dir().display(),
        cluster.socket_dir().display(),
    );
    fs::write(config(cluster), text)?;
    cluster.stop(StopMode::Fast)?;
    let push = format!(
        "'{} --config={} --stanza=bench archive-push %p'",
        program.display(),
        config(cluster).display()
    );
    cluster.append_settings([("archive_mode", "on"), ("archive_command", push.as_str())])?;
    cluster.start()?;
    let run = |arguments: &[&str]| -> anyhow::Result<()> {
        let output = pgbackrest(cluster, program, arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "pgbackrest {}: {said}", arguments.join(" "));
        Ok(())
    };
    run(&["stanza-create"])?;
    run(&["--type=full", "backup"])?;
    cluster.pgbench(&["--transactions", TRANSACTIONS, "--client", "4"])?;
    run(&["--type=incr", "backup"])?;
    Ok(repository)
}

fn measure(
    arguments: &Arguments,
    cluster: &Cluster,
    pagewarden: &Path,
    repository: &Path,
    compression: &str,
) -> anyhow::Result<()> {
    let mut files = FileSet { files: Vec::new() };
    collect(repository, &mut files)?;
    rustix::fs::sync();
    println!(
        "\n{} bytes in {} files, compress-type={compression}, in the page cache; {} rounds, load {}",
        files.bytes(),
        files.files.len(),
        arguments.rounds,
        load()
    );
    let mut check = Command::new(pagewarden);
    check.args(["check", "--quiet"]).arg(repository);
    let verify = |processes: &str| {
        let most = format!("--process-max={processes}");
        pgbackrest(cluster, &arguments.pgbackrest, &[&most, "verify"])
    };
    let mut contenders = [
        Contender::new("check", check),
        Contender::new("verify, 1 process", verify("1")),
        Contender::new("verify, 2 processes", verify("2")),
    ];
    let count = contenders.len();
    for round in 0..arguments.rounds {
        for turn in 0..count {
            files.warm_up()?;
            let Some(contender) = contenders.get_mut((round + turn) % count) else { continue };
            contender.run().with_context(|| contender.name.clone())?;
        }
    }
    println!("{:<22} {:>22} {:>22} {:>10}", "", "CPU seconds", "wall seconds", "MiB held");
    for Contender { name, wall, cpu, memory_bytes, .. } in &contenders {
        let memory = memory_bytes / (1 << 20);
        println!("{name:<22} {:>22} {:>22} {memory:>10}", spread(cpu), spread(wall));
    }
    let [check, one, two] = &contenders;
    for verify in [one, two] {
        println!(
            "wall of check to {}: {}",
            verify.name,
            ratio_with_interval(&check.wall, &verify.wall)
        );
        println!(
            "CPU of check to {}: {}",
            verify.name,
            ratio_with_interval(&check.cpu, &verify.cpu)
        );
    }
    at_most(
        "wall of check to verify, 2 processes",
        Ratio::new(&check.wall, &two.wall),
        WALL_TO_VERIFY,
    );
    Ok(())
}

fn collect(folder: &Path, files: &mut FileSet) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() && entry.metadata()?.len() > 0 {
            files.files.push((entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(())
}

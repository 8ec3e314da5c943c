//! `pagewarden check --structure` beside what the engines themselves offer for the same question:
//! do pages, and tables and their indexes, agree?
//!
//! Two copies of a database are made: one stands still for us, a server runs on the other. All
//! contenders run once in each round, in an order that turns. The files of both are in the page
//! cache, the server's own cache has room for all, and a first round that does not count fills it:
//! that is the best case of the engine's tool.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use pagewarden_lab::cost::server_cpu;

use crate::cache::FileSet;
use crate::check::{Contender, at_most};
use crate::process::measure;
use crate::samples::{Ratio, ratio_with_interval, spread};
use crate::subject::{load, page_files, pagewarden};

pub mod engines;

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The engines; all of them if none is named
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Mebibytes of a database, about
    #[arg(long, default_value_t = 256)]
    mebibytes: u64,
    /// How often each contender runs; an interval takes six
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The version of PostgreSQL
    #[arg(long, default_value = "18")]
    version: String,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
    /// Another build of the program, measured in the same rounds
    #[arg(long)]
    beside: Option<PathBuf>,
}

/// An engine whose databases are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Postgres,
    Sqlite,
    Mariadb,
    Mysql,
}

/// A database for us, and commands by which the engine looks at its own.
pub struct Subject {
    /// What it is called.
    pub title: String,
    /// What we check: a stopped directory, or a file.
    pub path: PathBuf,
    /// The first process of its server.
    pub server: Option<u32>,
    /// The engine's own ways to ask, with their names.
    pub peers: Vec<(&'static str, Command)>,
    /// How often the fastest of those that compare pages takes what we take.
    pub goal: f64,
    /// Those of `peers` that look at no more than pages, and are no measure of the goal.
    pub lesser: &'static [&'static str],
    /// Servers that run as long as this lives.
    pub _servers: Vec<Box<dyn std::any::Any>>,
}

const STRUCTURE: &str = "check --structure";

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let wanted =
        |engine: &&Engine| arguments.engine.is_empty() || arguments.engine.contains(engine);
    for engine in Engine::value_variants().iter().filter(wanted) {
        let made = match engine {
            Engine::Postgres => {
                engines::postgres(&arguments.version, arguments.mebibytes).map(Some)
            }
            Engine::Sqlite => engines::sqlite(arguments.mebibytes).map(Some),
            Engine::Mariadb => engines::mysql("mariadb", arguments.mebibytes),
            Engine::Mysql => engines::mysql("mysql", arguments.mebibytes),
        };
        match made.with_context(|| format!("{engine:?}"))? {
            Some(subject) => measure_one(arguments, &pagewarden, subject)?,
            None => println!("\n{engine:?} is not here: it is not measured"),
        }
    }
    println!("\nload {}", load());
    Ok(())
}

fn measure_one(arguments: &Arguments, pagewarden: &Path, subject: Subject) -> Result<()> {
    let files = page_files(&subject.path)?;
    println!(
        "\n{}: {} bytes in {} files, {} rounds, load {}",
        subject.title,
        files.bytes(),
        files.files.len(),
        arguments.rounds,
        load()
    );
    let check = |program: &Path, flags: &[&str]| {
        let mut command = Command::new(program);
        command.args(["check", "--quiet"]).args(flags).arg(&subject.path);
        command
    };
    let mut contenders = vec![
        Contender::new(STRUCTURE, check(pagewarden, &["--structure"])),
        Contender::new("check", check(pagewarden, &[])),
    ];
    if let Some(other) = &arguments.beside {
        contenders.push(Contender::new("the other build", check(other, &["--structure"])));
    }
    let peers = contenders.len();
    contenders
        .extend(subject.peers.into_iter().map(|(name, command)| Contender::new(name, command)));
    rounds(&files, &mut contenders, subject.server, arguments.rounds)?;
    print(&contenders);
    let Some((ours, others)) = contenders.split_first() else { return Ok(()) };
    for other in others {
        let wall = ratio_with_interval(&other.wall, &ours.wall);
        let cpu = ratio_with_interval(&other.cpu, &ours.cpu);
        println!("{:<30} wall {wall}, CPU {cpu}", format!("{} to ours", other.name));
    }
    let measures = contenders
        .iter()
        .skip(peers)
        .filter(|peer| !subject.lesser.contains(&peer.name.as_str()))
        .min_by(|one, other| median(one).total_cmp(&median(other)));
    if let Some(peer) = measures {
        let name = format!("wall of {STRUCTURE} to {}", peer.name);
        at_most(&name, Ratio::new(&ours.wall, &peer.wall), 1.0 / subject.goal);
    }
    Ok(())
}

fn median(contender: &Contender) -> f64 {
    crate::samples::median(contender.wall.clone()).unwrap_or(f64::NAN)
}

/// All of them in turns. A round before the first one fills caches, and shows that all work.
fn rounds(
    files: &FileSet,
    contenders: &mut [Contender],
    server: Option<u32>,
    rounds: usize,
) -> Result<()> {
    let of_server = || server.and_then(server_cpu::seconds).unwrap_or(0.0);

    files.warm_up()?;
    let count = contenders.len();
    for contender in contenders.iter_mut() {
        contender.run().with_context(|| contender.name.clone())?;
        contender.wall.clear();
        contender.cpu.clear();
    }
    for round in 0..rounds {
        for index in 0..count {
            files.warm_up()?;
            if let Some(contender) = contenders.get_mut((index + round) % count) {
                let before = of_server();
                contender.run().with_context(|| contender.name.clone())?;
                let used = of_server() - before;
                contender.cpu.iter_mut().next_back().into_iter().for_each(|cpu| *cpu += used);
            }
        }
    }
    Ok(())
}

fn print(contenders: &[Contender]) {
    println!(
        "{:<34} {:>24} {:>24} {:>8}",
        "", "wall seconds", "CPU, with its server's", "MiB held"
    );
    for contender in contenders {
        println!(
            "{:<34} {:>24} {:>24} {:>8.0}",
            contender.name,
            spread(&contender.wall),
            spread(&contender.cpu),
            contender.memory_bytes as f64 / f64::from(1 << 20),
        );
    }
}

/// What the engine's tool says.
fn answer(command: &mut Command) -> Result<String> {
    let measured = measure(command, true)?;
    Ok(String::from_utf8_lossy(&measured.output).into_owned())
}

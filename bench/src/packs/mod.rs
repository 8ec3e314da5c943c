//! A read-only database in a pack beside the same in file systems, compressed and not: what a
//! scan and lookups cost cold and warm, with the disk at its full speed and held back; and how
//! large each is.
//!
//! In each round every store is asked once, in an order that turns from round to round. A store
//! is cold when it was mounted anew, and warm when the same was asked before: by another process,
//! so that the system's page cache is what is warm, or by the same one, as a server's would be.
//!
//! Beside the packs stand their floors, which nothing that is compressed can pass: the plain files
//! served by FUSE as they are, and by the VFS a pack with a block for each page, stored as it is.
//! What a block takes to expand is reported with the sizes.
//!
//! Packs that are "shared" are read by the VFS, and what is expanded is kept in memory for all
//! processes, in huge pages or in those that the system takes. Cold, nothing is there yet: what
//! these take longer than their like is the price of putting it there. Warm, all of it is there.
#![allow(clippy::print_stdout)]

mod making;
pub mod passed;
mod postgres;
mod question;
pub mod sqlite;
mod stock;
mod store;
mod subject;
mod throttle;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use pagewarden_scratch::home;

use crate::packs::postgres::Postgres;
use crate::packs::question::{Answer, Question};
use crate::packs::sqlite::Sqlite;
use crate::packs::stock::Strings;
use crate::packs::store::{KINDS, PLAIN, Store, bytes_below};
use crate::packs::subject::Subject;
use crate::packs::throttle::Throttle;
use crate::samples::{Ratio, spread};
use crate::subject::{load, pagewarden};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Whose database it is
    #[arg(long, default_value = "sqlite")]
    engine: Engine,
    /// The version of PostgreSQL
    #[arg(long, default_value = "15")]
    postgres: String,
    /// Warehouses in the table of stock: 32 MB for each
    #[arg(long, default_value_t = 40)]
    warehouses: u32,
    /// What its strings are made of
    #[arg(long, default_values = ["random", "words"])]
    strings: Vec<Strings>,
    /// How often each store is asked each question
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only stores whose names contain this, or one of these with commas between; and the plain one
    #[arg(long, default_value = "")]
    only: String,
    /// Only questions whose names contain this
    #[arg(long, default_value = "")]
    question: String,
    /// What the disk is held to, in bytes a second
    #[arg(long, default_value_t = 250_000_000)]
    limit: u64,
    /// Where the stores are made; needs room for eight times the table
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Leave out how fast packs are made and unpacked
    #[arg(long)]
    no_making: bool,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// Whose database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// One file, clustered by its key
    Sqlite,
    /// A tablespace with the table and its index
    Postgres,
}

/// Who has asked the same before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// No process.
    Cold,
    /// A process that has ended.
    Another,
    /// The process that asks again.
    Itself,
}

/// A question under some conditions, and the goal of the best pack that answers it.
struct Case {
    name: &'static str,
    question: Question,
    before: Before,
    is_held_back: bool,
    /// Of random strings and of words, to the plain store: the scan, or the median lookup.
    goals: [f64; 2],
}

const COLD_LOOKUPS: u32 = 2_000;
const WARM_LOOKUPS: u32 = 20_000;
const P99_GOAL: f64 = 1.5;

const SCAN: Case = Case {
    name: "scan, cold",
    question: Question::Scan,
    before: Before::Cold,
    is_held_back: false,
    goals: [1.3, 1.3],
};

const CASES: [Case; 6] = [
    Case { name: "scan, cold, disk held back", is_held_back: true, goals: [0.75, 0.35], ..SCAN },
    SCAN,
    Case { name: "scan, warm", before: Before::Another, goals: [1.05, 1.05], ..SCAN },
    Case {
        name: "lookups, cold",
        question: Question::Lookups { count: COLD_LOOKUPS, seed: 0 },
        ..SCAN
    },
    Case {
        name: "lookups, warm",
        question: Question::Lookups { count: WARM_LOOKUPS, seed: 0 },
        before: Before::Another,
        ..SCAN
    },
    Case {
        name: "lookups, warm, in one process",
        question: Question::Lookups { count: WARM_LOOKUPS, seed: 0 },
        before: Before::Itself,
        ..SCAN
    },
];

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    if let Some(dir) = &arguments.dir {
        home::choose_directory(dir)?;
    }
    let work = tempfile::tempdir_in(home::temp_dir()?)?;
    // Servers are not root.
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755))?;
    for strings in &arguments.strings {
        let folder = work.path().join(strings.name());
        measure(arguments, *strings, &folder, &pagewarden)?;
        fs::remove_dir_all(&folder)?;
    }
    println!("\nload {}", load());
    Ok(())
}

fn measure(
    arguments: &Arguments,
    strings: Strings,
    folder: &Path,
    pagewarden: &Path,
) -> anyhow::Result<()> {
    let (database, making) = (folder.join("database"), folder.join("making"));
    for folder in [folder, &database, &making] {
        fs::create_dir(folder)?;
    }
    let (mut subject, name): (Box<dyn Subject>, _) = match arguments.engine {
        Engine::Sqlite => {
            let subject = Sqlite::make(&database, arguments.warehouses, strings)?;
            (Box::new(subject), "SQLite".to_owned())
        }
        Engine::Postgres => {
            let version = &arguments.postgres;
            let subject = Postgres::make(version, arguments.warehouses, strings)?;
            (Box::new(subject), format!("a tablespace of PostgreSQL {version}"))
        }
    };
    let bytes = bytes_below(&subject.kept().folder)?;
    rustix::fs::sync();
    println!(
        "\n{bytes} bytes of {} strings in {name}, {} rounds, load {}",
        strings.name(),
        arguments.rounds,
        load()
    );
    if !arguments.no_making {
        making::run(pagewarden, &subject.made(&making), &making, arguments.rounds)?;
    }
    let mut stores = make_stores(arguments, folder, &*subject, pagewarden)?;
    print_sizes(&stores, bytes);
    let throttle = Throttle::new()?;
    for case in CASES.iter().filter(|case| case.name.contains(&arguments.question)) {
        let limit = case.is_held_back.then_some(arguments.limit);
        let answers =
            compare(&mut *subject, &mut stores, case, limit, &throttle, arguments.rounds)?;
        print(case, strings, &answers);
    }
    Ok(())
}

fn make_stores(
    arguments: &Arguments,
    folder: &Path,
    subject: &dyn Subject,
    pagewarden: &Path,
) -> anyhow::Result<Vec<Store>> {
    let wanted = KINDS.iter().filter(|kind| {
        subject.answers_from(kind)
            && (kind.name == PLAIN.name
                || arguments.only.split(',').any(|only| kind.name.contains(only)))
    });
    wanted
        .enumerate()
        .map(|(number, kind)| {
            let folder = folder.join(number.to_string());
            Store::make(*kind, folder, subject.kept().clone(), pagewarden)
        })
        .collect()
}

fn print_sizes(stores: &[Store], bytes: u64) {
    println!("\n{:<23} {:>14} {:>8} {:>11}", "store", "bytes", "of plain", "us a block");
    #[allow(clippy::cast_precision_loss)]
    for store in stores {
        let share = store.stored_bytes as f64 / bytes as f64;
        let micros = store.expanding.map(|time| format!("{:.1}", time.as_secs_f64() * 1e6));
        let (name, micros) = (store.kind.name, micros.unwrap_or_default());
        println!("{name:<23} {:>14} {share:>8.3} {micros:>11}", store.stored_bytes);
    }
}

/// A figure of an answer.
type Figure = fn(&Answer) -> f64;

type Answers = BTreeMap<usize, (&'static str, Vec<Answer>)>;

fn compare(
    subject: &mut dyn Subject,
    stores: &mut [Store],
    case: &Case,
    limit: Option<u64>,
    throttle: &Throttle,
    rounds: usize,
) -> anyhow::Result<Answers> {
    let mut answers = Answers::new();
    let mut expected = None;
    let count = stores.len();
    for round in 0..rounds {
        for turn in 0..count {
            let number = (turn + round) % count;
            let Some(store) = stores.get_mut(number) else { continue };
            let question = match case.question {
                Question::Lookups { count, .. } => Question::Lookups { count, seed: round as u64 },
                Question::Scan => Question::Scan,
            };
            store.set_up(throttle, limit)?;
            subject.begin(store, throttle)?;
            if case.before != Before::Cold {
                subject.ask(store, throttle, Question::Scan, false)?;
                subject.ask(store, throttle, question, false)?;
                store.expect_all_shared()?;
            }
            let again = case.before == Before::Itself;
            let answer = subject.ask(store, throttle, question, again)?;
            subject.end()?;
            store.take_down()?;
            ensure!(
                *expected.get_or_insert(answer.rows) == answer.rows,
                "{} answers otherwise: {:?}",
                store.kind.name,
                answer.rows
            );
            let entry = answers.entry(number).or_insert((store.kind.name, Vec::new()));
            entry.1.push(answer);
        }
    }
    Ok(answers)
}

fn print(case: &Case, strings: Strings, answers: &Answers) {
    let [random, words] = case.goals;
    let goal = if strings == Strings::Random { random } else { words };
    println!("\n{}: packs at most {goal:.2} of plain", case.name);
    let columns: &[(&str, Figure)] = match case.question {
        Question::Scan => &[("seconds", |answer| answer.seconds)],
        Question::Lookups { .. } => {
            println!("(the 99th hundredth at most {P99_GOAL:.2})");
            &[("us, p50", |answer| answer.p50 * 1e6), ("us, p99", |answer| answer.p99 * 1e6)]
        }
    };
    for (title, figure) in columns {
        println!("{:<23} {:>28} {:>8} {:>10}", "store", title, "paired", "of medians");
        let figures = |answers: &[Answer]| answers.iter().map(figure).collect::<Vec<_>>();
        let Some((_, plain)) = answers.get(&0) else { continue };
        let plain = figures(plain);
        for (name, answers) in answers.values() {
            let values = figures(answers);
            if let Some(ratio) = Ratio::new(&values, &plain) {
                println!(
                    "{name:<23} {:>28} {:>8.3} {:>10.3}",
                    spread(&values),
                    ratio.paired,
                    ratio.of_medians
                );
            }
        }
    }
}

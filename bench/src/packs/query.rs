//! What one process asks of a database: a scan, or lookups, and how long that took.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::packs::stock;
use crate::packs::throttle::Throttle;

/// What to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// All rows, in the order of the table.
    Scan,
    /// Rows by their keys.
    Lookups {
        /// How many.
        count: u32,
        /// Which: the same for the same number.
        seed: u64,
    },
}

/// What it took.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The whole of it.
    pub seconds: f64,
    /// One lookup of two took less.
    pub p50: f64,
    /// One of a hundred took more.
    pub p99: f64,
    /// The rows and their sum, by which stores are held against each other.
    pub rows: (i64, i64),
}

/// The hidden command that `ask` runs.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    uri: String,
    #[arg(long, default_value_t = 0)]
    lookups: u32,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Ask twice, and tell of the second time
    #[arg(long)]
    again: bool,
}

/// Asks in this process, and prints the answer as four numbers and one.
#[allow(clippy::print_stdout)]
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    pagewarden_sqlite::register()?;
    let connection = stock::open(&arguments.uri)?;
    // The schema is read before the clock starts.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    let question = || -> anyhow::Result<_> {
        Ok(match arguments.lookups {
            0 => (stock::scan(&connection)?, Vec::new()),
            count => ((0, 0), stock::look_up(&connection, count, arguments.seed)?),
        })
    };
    if arguments.again {
        question()?;
    }
    let begin = Instant::now();
    let (rows, mut times) = question()?;
    let seconds = begin.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied().unwrap_or(0.0);
    println!("{seconds} {} {} {} {}", at(50), at(99), rows.0, rows.1);
    Ok(())
}

/// Asks in a process of its own, held back as `throttle` says; `again` if it is to ask
/// before the clock starts.
pub fn ask(
    throttle: &Throttle,
    uri: &str,
    question: Question,
    again: bool,
) -> anyhow::Result<Answer> {
    let this = std::env::current_exe()?;
    let mut command = throttle.command(Path::new(&this));
    command.arg("query").arg(uri);
    if let Question::Lookups { count, seed } = question {
        command.args(["--lookups", &count.to_string(), "--seed", &seed.to_string()]);
    }
    if again {
        command.arg("--again");
    }
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{uri}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [seconds, p50, p99, rows, sum] = words.as_slice() else {
        anyhow::bail!("an answer of another form: {text}");
    };
    let number = |word: &str| word.parse::<f64>().with_context(|| text.clone());
    Ok(Answer {
        seconds: number(seconds)?,
        p50: number(p50)?,
        p99: number(p99)?,
        rows: (rows.parse()?, sum.parse()?),
    })
}

//! A session that keeps changing single rows, and how long each change took: what others feel
//! of a table being read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::stats::random::Random;

/// Between one change and the next: a table in use, not a machine without a rest.
const PAUSE: Duration = Duration::from_millis(2);

/// Changes, as they were answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Writes {
    /// How many.
    pub count: u64,
    /// The one that took longest, in seconds.
    pub longest: f64,
}

/// The session.
pub struct Writer {
    client: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
    table: String,
    rows: u32,
    random: Random,
}

impl Writer {
    /// Opens it by the server's `client` program, and changes a first row.
    ///
    /// # Errors
    /// The program cannot be run, or the server refuses.
    pub fn begin(client: &mut Command, table: &str, rows: u32, seed: u64) -> Result<Self> {
        let client = client.arg("--unbuffered").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.stderr(Stdio::null()).spawn().context("cannot run the client")?;
        let statements = client.stdin.take().context("the client takes no statements")?;
        let answers = BufReader::new(client.stdout.take().context("the client gives no answers")?);
        let (table, random) = (table.to_owned(), Random::new(seed));
        let mut writer = Self { client, statements, answers, table, rows, random };
        writer.change()?;
        Ok(writer)
    }

    /// Changes rows until `is_over`.
    ///
    /// # Errors
    /// The server refuses.
    pub fn go_on(mut self, is_over: &AtomicBool) -> Result<Writes> {
        let mut writes = Writes { count: 0, longest: 0.0 };
        while !is_over.load(Ordering::Relaxed) {
            let taken = self.change()?.as_secs_f64();
            writes = Writes { count: writes.count + 1, longest: writes.longest.max(taken) };
            thread::sleep(PAUSE);
        }
        Ok(writes)
    }

    /// Changes a row, and waits until it is done.
    fn change(&mut self) -> Result<Duration> {
        let rows = usize::try_from(self.rows)?;
        let id = self.random.below(rows) + 1;
        let begin = Instant::now();
        let sql = format!(
            "UPDATE {} SET quantity = quantity + 1 WHERE id = {id}; SELECT 1;\n",
            self.table
        );
        self.statements.write_all(sql.as_bytes())?;
        self.statements.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.trim() == "1", "a row of {} cannot be changed", self.table);
        Ok(begin.elapsed())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Between two statements: nothing is lost.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

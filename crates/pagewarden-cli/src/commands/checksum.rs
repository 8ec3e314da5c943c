//! `pagewarden checksum`: checksums of the tables of live databases.

use std::time::Instant;

use anyhow::bail;
use pagewarden::source::rate::Rate;
use pagewarden::words::{bytes, counted, printable};
use pagewarden_db::checksum::database::{Ended, Line, Request, Taker, database};
use pagewarden_db::checksum::{BLINDNESS, Function, Strategy};
use pagewarden_db::location::{Given, Location};
use pagewarden_db::table::TableName;
use serde_json::Value;

use super::reading::Reading;
use crate::args::checksum::Checksum;
use crate::exit::{self, Exit};
use crate::terminal::print;

mod side_by_side;

use side_by_side::{Cell, SideBySide};

/// What `replicate` does beside summing.
const EFFECTS: &str = "replicate writes into pagewarden_checksums on the primary; INSERT ... \
    SELECT locks the rows of a part against writes while it is summed (about 0.3 s; next-key \
    locks of InnoDB, all of the table in other engines and without a key to cut it by)\n\
    hint: a replica that lacks a table or a column of it stops replicating; one behind a \
    replica whose own log has rows computes nothing";

/// Runs the command.
pub fn run(arguments: &Checksum) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let reading = Reading::begin(
        arguments.pace.quiet || arguments.json,
        arguments.pace.progress,
        arguments.pace.rate.and_then(Rate::ceiling),
    )?;
    let mut run = Run {
        arguments,
        reading: &reading,
        shown: String::new(),
        wide: 0,
        objects: Vec::new(),
        lines: None,
        failed: 0,
        stopped: false,
    };
    let error = run.all().err();
    reading.end();
    if arguments.json {
        let text = error.as_ref().map(|error| format!("{error:#}"));
        let ended = Ended {
            failed: run.failed > 0,
            stopped: run.stopped,
            error: text.as_deref(),
            elapsed: begin.elapsed(),
        };
        print(&format!("{}\n", ended.object(&run.objects)))?;
    } else if error.is_none() {
        let failed =
            if run.failed > 0 { format!(", {} failed", run.failed) } else { String::new() };
        let stopped = if run.stopped { ", stopped early" } else { "" };
        let count = counted((run.objects.len() as u64).saturating_sub(run.failed), "checksum");
        print(&format!(
            "Made {count} in {:.2} s{failed}{stopped}\n",
            begin.elapsed().as_secs_f64()
        ))?;
    }
    Ok(match error {
        Some(error) => exit::report(&error),
        None if run.stopped => Exit::Stopped,
        None if run.failed > 0 => Exit::Unable,
        None => Exit::Fine,
    })
}

struct Run<'a> {
    arguments: &'a Checksum,
    reading: &'a Reading,
    /// The database that is being summed.
    shown: String,
    /// How wide names of tables are.
    wide: usize,
    objects: Vec<Value>,
    /// Where the strategies of a table stand beside each other.
    lines: Option<SideBySide>,
    failed: u64,
    stopped: bool,
}

impl Run<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        let strategies: Vec<Strategy> =
            self.arguments.strategy.iter().filter_map(|name| Strategy::named(name)).collect();
        if strategies.contains(&Strategy::Replicate) {
            if !self.arguments.yes {
                bail!(
                    "replicate writes a table on the server and on its replicas, and needs --yes\n\
                     hint: compare reads only"
                );
            }
            if self.function() == Function::Crc32 {
                bail!(
                    "replicate sums MD5 of rows: CRC-32 is too short for sums\n\
                     hint: leave --function crc32 out"
                );
            }
            if self.arguments.snapshot {
                bail!(
                    "replicate sums each part at a moment of its own: not with --snapshot\n\
                     hint: leave --snapshot out"
                );
            }
            if !self.arguments.pace.quiet {
                self.warn(EFFECTS);
            }
        }
        let function = self.function();
        if strategies.contains(&Strategy::Bitxor) && function == Function::Crc32 {
            self.warn(BLINDNESS);
        }
        let given = Given { password_file: self.arguments.password_file.clone() };
        let quiet = self.arguments.pace.quiet;
        let storage = &self.arguments.storage;
        let locate = |url: &String| self.reading.locate(url, &given, quiet, storage);
        let locations = self.arguments.urls.iter().map(locate);
        let locations: Vec<Location> = locations.collect::<Result<_, _>>()?;
        for location in locations {
            self.database(location, &strategies, function)?;
            if self.stopped {
                break;
            }
        }
        Ok(())
    }

    fn function(&self) -> Function {
        if self.arguments.function == "crc32" { Function::Crc32 } else { Function::Md5 }
    }

    fn warn(&self, text: &str) {
        self.reading.aside(|| {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "warning: {text}");
        });
    }

    fn database(
        &mut self,
        location: Location,
        strategies: &[Strategy],
        function: Function,
    ) -> anyhow::Result<()> {
        let (arguments, reading) = (self.arguments, self.reading);
        let request = Request {
            location,
            tables: arguments.table.clone(),
            strategies: strategies.to_vec(),
            function,
            frozen: arguments.snapshot,
            chunk_rows: arguments.chunk_rows,
            jobs: arguments.jobs,
        };
        self.shown = request.location.to_string();
        if arguments.side_by_side {
            self.lines = Some(SideBySide::new(strategies));
        }
        let tell = |rows, bytes| reading.tell(rows, bytes);
        database(&request, &tell, &|name| reading.table(name), self)
    }
}

impl Taker<anyhow::Error> for Run<'_> {
    fn opened(&mut self, server: &str, names: &[TableName]) -> anyhow::Result<()> {
        if self.arguments.urls.len() > 1 && !self.arguments.json {
            print(&format!("{}, {server}\n", printable(&self.shown)))?;
        }
        let wide = names.iter().map(|name| printable(&name.to_string()).chars().count());
        self.wide = wide.max().unwrap_or(0).min(40);
        if let Some(lines) = &mut self.lines {
            lines.widen(self.wide);
            print(&lines.head())?;
        }
        Ok(())
    }

    fn take(&mut self, line: Option<Line>) -> anyhow::Result<()> {
        let Some(line) = line else {
            self.stopped = true;
            let begun = self.lines.as_mut().and_then(SideBySide::end);
            return Ok(begun.map_or(Ok(()), |line| self.reading.aside(|| print(&line)))?);
        };
        let failed = line.made.is_err();
        self.failed += u64::from(failed);
        self.objects.push(line.object());
        if self.arguments.json {
            return Ok(());
        }
        // Why one failed does not fit beside the others.
        if failed || self.lines.is_none() {
            self.reading.aside(|| print(&text(&line, self.wide)))?;
        }
        let beside = self.lines.as_mut().and_then(|lines| lines.take(cell(&line)));
        Ok(beside.map_or(Ok(()), |line| self.reading.aside(|| print(&line)))?)
    }
}

/// A line for people.
fn text(line: &Line, wide: usize) -> String {
    let text = match &line.made {
        Ok((_, sum)) => format!(
            "{:>18}  {:>10}  {:<32}  {:>8.2} s",
            counted(sum.rows, "row"),
            line.bytes().map_or_else(|| "?".to_owned(), bytes),
            sum.value.as_deref().unwrap_or("-"),
            sum.elapsed.as_secs_f64()
        ),
        Err(error) => format!("failed: {}", printable(&error.to_string().replace('\n', "; "))),
    };
    let name = printable(&line.table.to_string());
    format!("{name:<wide$}  {:<10}{text}\n", line.strategy.name())
}

/// What it gives to the line of its table.
fn cell(line: &Line) -> Cell {
    let table = line.table.to_string();
    match &line.made {
        Ok((_, sum)) => Cell {
            table,
            rows: Some(sum.rows),
            bytes: line.bytes(),
            seconds: Some(sum.elapsed.as_secs_f64()),
        },
        Err(_) => Cell { table, ..Cell::default() },
    }
}

//! `pagewarden checksum`: checksums of the tables of live databases.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::bail;
use pagewarden::source::rate::Rate;
use pagewarden::words::{bytes, counted, printable};
use pagewarden_db::checksum::{self, BLINDNESS, Function, Strategy};
use pagewarden_db::engine::{self, Connection};
use pagewarden_db::error::Error;
use pagewarden_db::location::{Given, Location};
use pagewarden_db::replicate;
use pagewarden_db::table::TableName;
use serde_json::{Value, json};

use super::reading::{Reading, locate, seconds};
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
        reading: Arc::new(reading),
        objects: Vec::new(),
        lines: None,
        failed: 0,
        stopped: false,
    };
    let result = run.all();
    run.reading.end();
    let error = result.err();
    let verdict =
        if error.is_some() || run.failed > 0 || run.stopped { "incomplete" } else { "complete" };
    if arguments.json {
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "checksum",
            "verdict": verdict,
            "seconds": seconds(begin.elapsed()),
            "stopped": run.stopped,
            "tables": run.objects,
        });
        if let (Some(error), Some(object)) = (&error, object.as_object_mut()) {
            object.insert("error".to_owned(), json!(format!("{error:#}")));
        }
        print(&format!("{object}\n"))?;
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
    reading: Arc<Reading>,
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
        let locations = self.arguments.urls.iter().map(|url| locate(url, &given, quiet));
        let locations: Vec<Location> = locations.collect::<Result<_, _>>()?;
        for location in &locations {
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
        location: &Location,
        strategies: &[Strategy],
        function: Function,
    ) -> anyhow::Result<()> {
        let frozen = self.arguments.snapshot;
        let mut connection = connect(location, frozen)?;
        if self.arguments.urls.len() > 1 && !self.arguments.json {
            print(&format!("{}, {}\n", printable(&location.to_string()), connection.server()))?;
        }
        let names = self.names(connection.as_mut(), location)?;
        let wide = names.iter().map(|name| printable(&name.to_string()).chars().count());
        let wide = wide.max().unwrap_or(0).min(40);
        if self.arguments.side_by_side {
            let lines = SideBySide::new(wide, strategies);
            print(&lines.head())?;
            self.lines = Some(lines);
        }
        // A frozen view belongs to one connection.
        let jobs = if frozen { 1 } else { self.arguments.jobs.get().min(names.len()) };
        let next = AtomicUsize::new(0);
        let (done, arriving) = mpsc::channel();
        let arguments = self.arguments;
        let reading = Arc::clone(&self.reading);
        let work = |first: Option<Box<dyn Connection>>, done: mpsc::Sender<_>| {
            let mut connection = first;
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(name) = names.get(index)
            {
                reading.table(&name.to_string());
                for (place, strategy) in strategies.iter().enumerate() {
                    let line = Line { location, name, strategy: *strategy, function, wide };
                    let made = one(&mut connection, &line, arguments, &reading);
                    let ended = !matches!(made, Ok(Some(_)));
                    // The receiver is gone once the run has failed.
                    if done.send((index * strategies.len() + place, made)).is_err() || ended {
                        return;
                    }
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            for _ in 1..jobs {
                let done = done.clone();
                scope.spawn(move || work(None, done));
            }
            scope.spawn(move || work(Some(connection), done));
            // In the order of the tables, whichever was done first.
            let mut early = BTreeMap::new();
            let mut given = 0;
            for (index, made) in arriving {
                early.insert(index, made?);
                while let Some(made) = early.remove(&given) {
                    self.give(made)?;
                    given += 1;
                }
            }
            early.into_values().try_for_each(|made| self.give(made))
        })
    }

    /// Takes a line in; none came where a user ended the run.
    fn give(&mut self, made: Option<Made>) -> anyhow::Result<()> {
        let Some(made) = made else {
            self.stopped = true;
            let begun = self.lines.as_mut().and_then(SideBySide::end);
            return Ok(begun.map_or(Ok(()), |line| self.reading.aside(|| print(&line)))?);
        };
        let failed = made.cell.seconds.is_none();
        self.failed += u64::from(failed);
        self.objects.push(made.object);
        if self.arguments.json {
            return Ok(());
        }
        // Why one failed does not fit beside the others.
        if failed || self.lines.is_none() {
            self.reading.aside(|| print(&made.text))?;
        }
        let line = self.lines.as_mut().and_then(|lines| lines.take(made.cell));
        Ok(line.map_or(Ok(()), |line| self.reading.aside(|| print(&line)))?)
    }

    fn names(
        &self,
        connection: &mut dyn Connection,
        location: &Location,
    ) -> anyhow::Result<Vec<TableName>> {
        let known = connection.tables()?;
        let asked = || self.arguments.table.iter().chain(&location.table);
        if asked().next().is_none() {
            return Ok(known);
        }
        let find = |wanted: &String| {
            let found = known.iter().find(|name| name.to_string() == *wanted).cloned();
            found.unwrap_or_else(|| TableName { schema: None, name: wanted.clone() })
        };
        Ok(asked().map(find).collect())
    }
}

/// What came of one table and strategy.
struct Made {
    object: Value,
    text: String,
    cell: Cell,
}

fn connect(location: &Location, frozen: bool) -> Result<Box<dyn Connection>, Error> {
    let mut connection = (engine::of(location)?.connect)(location)?;
    if frozen {
        connection.freeze()?;
    }
    Ok(connection)
}

/// One table and strategy, by the connection that there is or a new one; none if a user
/// ended the run. A server that cannot be reached is an error.
fn one(
    connection: &mut Option<Box<dyn Connection>>,
    line: &Line<'_>,
    arguments: &Checksum,
    reading: &Reading,
) -> Result<Option<Made>, Error> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => connect(line.location, arguments.snapshot)?,
    };
    let server = open.server().to_owned();
    let tell = |rows, bytes| reading.tell(rows, bytes);
    let made = open.describe(line.name).and_then(|table| {
        let sum = if line.strategy == Strategy::Replicate {
            let options = replicate::Options { chunk_rows: arguments.chunk_rows };
            replicate::write(line.location, line.name, options, &tell)?
        } else {
            checksum::checksum(open.as_mut(), &table, line.strategy, line.function, &tell)?
        };
        Ok((table.bytes, sum))
    });
    if !made.as_ref().is_err_and(Error::is_fatal) {
        *connection = Some(open);
    }
    let function = match line.strategy {
        Strategy::Accum | Strategy::Bitxor => Some(arguments.function.as_str()),
        _ => None,
    };
    let mut object = json!({
        "url": line.location.to_string(),
        "server": server,
        "table": line.name.to_string(),
        "strategy": line.strategy.name(),
        "function": function,
    });
    let mut cell = Cell { table: line.name.to_string(), ..Cell::default() };
    let (more, text) = match made {
        Ok((table_bytes, sum)) => {
            let size = table_bytes.or(sum.bytes_read);
            let seconds = Some(sum.elapsed.as_secs_f64());
            cell = Cell { rows: Some(sum.rows), bytes: size, seconds, ..cell };
            described(line, size, &sum)
        }
        Err(Error::Stopped) => return Ok(None),
        Err(error) => {
            let text = printable(&error.to_string().replace('\n', "; "));
            (vec![("error", json!(error.to_string()))], format!("failed: {text}"))
        }
    };
    if let Some(fields) = object.as_object_mut() {
        fields.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let name = printable(&line.name.to_string());
    let text = format!("{name:<0$}  {1:<10}{text}\n", line.wide, line.strategy.name());
    Ok(Some(Made { object, text, cell }))
}

/// A checksum for programs, and for people.
fn described(
    line: &Line<'_>,
    size: Option<u64>,
    sum: &checksum::Checksum,
) -> (Vec<(&'static str, Value)>, String) {
    let mut more = vec![
        ("rows", json!(sum.rows)),
        ("bytes", json!(size)),
        ("bytes_read", json!(sum.bytes_read)),
        ("checksum", json!(sum.value)),
        ("seconds", json!(seconds(sum.elapsed))),
        ("computed_by", json!(if sum.by_server { "server" } else { "client" })),
    ];
    if line.strategy == Strategy::Bitxor && line.function == Function::Crc32 {
        more.push(("warning", json!(BLINDNESS)));
    }
    let size = size.map_or_else(|| "?".to_owned(), bytes);
    let text = format!(
        "{:>18}  {size:>10}  {:<32}  {:>8.2} s",
        counted(sum.rows, "row"),
        sum.value.as_deref().unwrap_or("-"),
        sum.elapsed.as_secs_f64()
    );
    (more, text)
}

/// What a line is about.
struct Line<'a> {
    location: &'a Location,
    name: &'a TableName,
    strategy: Strategy,
    function: Function,
    wide: usize,
}

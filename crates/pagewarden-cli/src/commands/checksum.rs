//! `pagewarden checksum`: checksums of the tables of live databases.

use std::time::Instant;

use anyhow::bail;
use pagewarden::report::words::{bytes, counted, printable};
use pagewarden_db::checksum::{self, BLINDNESS, Function, Strategy};
use pagewarden_db::engine::{self, Connection};
use pagewarden_db::error::Error;
use pagewarden_db::location::{Given, Location};
use pagewarden_db::table::TableName;
use serde_json::{Value, json};

use super::reading::{Reading, locate, print, seconds};
use crate::args::checksum::Checksum;
use crate::exit::{self, Exit};

/// Runs the command.
pub fn run(arguments: &Checksum) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let reading =
        Reading::begin(arguments.quiet || arguments.json, arguments.progress, arguments.rate)?;
    let mut run = Run { arguments, reading, objects: Vec::new(), failed: 0, stopped: false };
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
        let count = counted(run.objects.len() as u64, "checksum");
        print(&format!("Made {count} in {:.2} s{failed}\n", begin.elapsed().as_secs_f64()))?;
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
    reading: Reading,
    objects: Vec<Value>,
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
                    "replicate writes a table on the server, and needs --yes; it is not here yet\n\
                     hint: --strategy multiset on the primary and on the replica, or compare"
                );
            }
            bail!(
                "replicate is not here yet, and nothing was written\n\
                 hint: --strategy multiset on the primary and on the replica, or compare"
            );
        }
        let function = self.function();
        if strategies.contains(&Strategy::Bitxor) && function == Function::Crc32 {
            self.warn(BLINDNESS);
        }
        let given = Given { password_file: self.arguments.password_file.clone() };
        let quiet = self.arguments.quiet;
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
        let connect = engine::of(location)?.connect;
        let mut connection = connect(location)?;
        if self.arguments.snapshot {
            connection.freeze()?;
        }
        if self.arguments.urls.len() > 1 && !self.arguments.json {
            print(&format!("{}, {}\n", printable(&location.to_string()), connection.server()))?;
        }
        let names = self.names(connection.as_mut())?;
        let wide = names.iter().map(|name| printable(&name.to_string()).chars().count());
        let wide = wide.max().unwrap_or(0).min(40);
        for name in &names {
            self.reading.table(&name.to_string());
            for strategy in strategies {
                let line = Line { location, name, strategy: *strategy, function, wide };
                let fatal = self.one(connection.as_mut(), &line)?;
                if self.stopped {
                    return Ok(());
                }
                if fatal {
                    connection = connect(location)?;
                    if self.arguments.snapshot {
                        connection.freeze()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn names(&self, connection: &mut dyn Connection) -> anyhow::Result<Vec<TableName>> {
        let known = connection.tables()?;
        if self.arguments.table.is_empty() {
            return Ok(known);
        }
        let find = |wanted: &String| {
            let found = known.iter().find(|name| name.to_string() == *wanted).cloned();
            found.unwrap_or_else(|| TableName { schema: None, name: wanted.clone() })
        };
        Ok(self.arguments.table.iter().map(find).collect())
    }

    /// One table and strategy. True if the connection is of no more use.
    fn one(&mut self, connection: &mut dyn Connection, line: &Line<'_>) -> anyhow::Result<bool> {
        let server = connection.server().to_owned();
        let reading = &self.reading;
        let tell = |rows, bytes| reading.tell(rows, bytes);
        let made = connection.describe(line.name).and_then(|table| {
            let sum = checksum::checksum(connection, &table, line.strategy, line.function, &tell)?;
            Ok((table.bytes, sum))
        });
        let function = match line.strategy {
            Strategy::Accum | Strategy::Bitxor => Some(self.arguments.function.as_str()),
            _ => None,
        };
        let mut object = json!({
            "url": line.location.to_string(),
            "server": server,
            "table": line.name.to_string(),
            "strategy": line.strategy.name(),
            "function": function,
        });
        let mut more: Vec<(&str, Value)> = Vec::new();
        let mut fatal = false;
        let text = match made {
            Ok((table_bytes, sum)) => {
                let size = table_bytes.or(sum.bytes_read);
                more.push(("rows", json!(sum.rows)));
                more.push(("bytes", json!(size)));
                more.push(("bytes_read", json!(sum.bytes_read)));
                more.push(("checksum", json!(sum.value)));
                more.push(("seconds", json!(seconds(sum.elapsed))));
                more.push(("computed_by", json!(if sum.by_server { "server" } else { "client" })));
                if line.strategy == Strategy::Bitxor && line.function == Function::Crc32 {
                    more.push(("warning", json!(BLINDNESS)));
                }
                let size = size.map_or_else(|| "?".to_owned(), bytes);
                format!(
                    "{:>19}  {size:>10}  {:<32}  {:>8.2} s",
                    counted(sum.rows, "row"),
                    sum.value.as_deref().unwrap_or("-"),
                    sum.elapsed.as_secs_f64()
                )
            }
            Err(Error::Stopped) => {
                self.stopped = true;
                return Ok(false);
            }
            Err(error) => {
                self.failed += 1;
                fatal = error.is_fatal();
                more.push(("error", json!(error.to_string())));
                format!("failed: {}", printable(&error.to_string().replace('\n', "; ")))
            }
        };
        if let Some(fields) = object.as_object_mut() {
            fields.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        self.objects.push(object);
        if !self.arguments.json {
            let name = printable(&line.name.to_string());
            let text = format!("{name:<0$}  {1:<9}{text}\n", line.wide, line.strategy.name());
            self.reading.aside(|| print(&text))?;
        }
        Ok(fatal)
    }
}

/// What a line is about.
struct Line<'a> {
    location: &'a Location,
    name: &'a TableName,
    strategy: Strategy,
    function: Function,
    wide: usize,
}

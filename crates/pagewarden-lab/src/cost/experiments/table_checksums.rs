//! E3: checksums of tables, by every strategy, and who waits for them.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use pagewarden_scratch::mariadb::sample::{self, IN_MEMORY, MEDIUM, NARROW, Shape, WIDE};
use pagewarden_scratch::mariadb::{Installation, Server};
use serde_json::Value;

use crate::cost::decision::{Decides, TABLE_CHECKSUMS};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::own_program::OwnProgram;
use crate::cost::samples::Sample;
use crate::cost::{program, server_cpu};

mod writer;

use writer::{Writer, Writes};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct TableChecksums;

const DATABASE: &str = "shop";
/// A table: its name, its storage engine, what its rows are, and how many of them in a short run.
#[derive(Debug, Clone, Copy)]
struct Table {
    name: &'static str,
    engine: &'static str,
    shape: Shape,
    rows: u32,
}

const TABLES: &[Table] = &[
    Table { name: "in_innodb", engine: "InnoDB", shape: MEDIUM, rows: 60_000 },
    Table { name: "in_aria", engine: "Aria", shape: MEDIUM, rows: 60_000 },
    Table { name: "in_myisam", engine: "MyISAM", shape: MEDIUM, rows: 60_000 },
    Table { name: "narrow", engine: "InnoDB", shape: NARROW, rows: 120_000 },
    Table { name: "wide", engine: "InnoDB", shape: WIDE, rows: 6_000 },
];
/// How many times more rows a whole run has.
const WHOLE: u32 = 10;

/// The conditions: what is summed, and whether others change it meanwhile.
const CONDITIONS: &[(&str, &str, bool)] = &[
    ("InnoDB, idle", "in_innodb", false),
    ("InnoDB, written to", "in_innodb", true),
    ("Aria, idle", "in_aria", false),
    ("Aria, written to", "in_aria", true),
    ("MyISAM, idle", "in_myisam", false),
    ("MyISAM, written to", "in_myisam", true),
    ("InnoDB, narrow rows, idle", "narrow", false),
    ("InnoDB, wide rows, idle", "wide", false),
];

/// What each arm is on the command line.
const WORDS: &[(&str, &[&str])] = &[
    ("native", &["--strategy", "native"]),
    ("count", &["--strategy", "count"]),
    ("accum", &["--strategy", "accum"]),
    ("bitxor-crc32", &["--strategy", "bitxor", "--function", "crc32"]),
    ("bitxor-md5", &["--strategy", "bitxor"]),
    ("replicate", &["--strategy", "replicate", "--yes"]),
    ("multiset", &["--strategy", "multiset"]),
];

const ROW_LOCKS: &str = "row_lock_waits";
const TABLE_LOCKS: &str = "table_lock_waits";
const LONGEST_WRITE: &str = "longest_write";

static DESCRIPTION: Description = Description {
    name: "e3",
    title: "checksums of tables, by every strategy",
    question: "How long does each way to make a checksum of a table take beside the server's own CHECKSUM TABLE, and who waits for it?",
    seed: "how long table checksums take: a table of 2.17 GB 258 s (CHECKSUM TABLE), 303 s (ACCUM through replication), 335 s (ACCUM), 541 s (BIT_XOR), 151 s (COUNT(*)); one of 332 MB 52, 56, 43, 77 and 4 s",
    by_hand: "\
1. MariaDB with log_bin, a buffer pool larger than the tables. 60,000 rows of 8 columns in InnoDB, Aria and MyISAM;
   120,000 rows of 2 numbers and 6,000 rows of 2,000 characters in InnoDB. Ten times as many in a whole run.
2. By turns, many times: pagewarden checksum mysql://root@/shop --table T --strategy native (then count, accum,
   bitxor --function crc32, bitxor, replicate --yes, multiset); its JSON tells the seconds of each.
3. Beside it once no session, once one that changes one row by its key every 2 ms and times each change.
4. Before and after: SHOW GLOBAL STATUS LIKE '%lock%wait%', and the processor time of the server's threads
   (/proc/PID/task/*/schedstat).
COUNT(*) reads every row in InnoDB; Aria and MyISAM keep the number and read nothing. replicate logs statements: with
binlog_format=ROW no replica would compute anything, so that there is no such arm.",
    arms: &[
        Arm { name: "native", what: "CHECKSUM TABLE ... EXTENDED" },
        Arm { name: "count", what: "COUNT(*), which Aria and MyISAM know without reading" },
        Arm { name: "accum", what: "MD5 of each row and of all before it, by a user variable" },
        Arm { name: "bitxor-crc32", what: "CRC-32 of rows by exclusive or: blind to swapped values" },
        Arm { name: "bitxor-md5", what: "MD5 of rows by exclusive or, in two halves" },
        Arm { name: "replicate", what: "sums of MD5, written part by part on the primary for its replicas" },
        Arm { name: "multiset", what: "sums of BLAKE3 of rows that are read and hashed by pagewarden" },
    ],
    metrics: &[
        Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "mib_per_second", unit: "MiB/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "server_cpu_seconds", unit: "s", kind: Kind::Timed, better: Better::Lower },
        Metric { name: LONGEST_WRITE, unit: "s", kind: Kind::Timed, better: Better::Lower },
    ],
    is_price: false,
    decides: Some(Decides::by_main_metric(&TABLE_CHECKSUMS, &["replicate", "multiset"])),
    seed_figures: &[
        figure("count", 151.0 / 258.0, "2.17 GB: COUNT(*) 151 s, CHECKSUM TABLE 258 s"),
        figure("accum", 335.0 / 258.0, "2.17 GB: ACCUM 335 s, CHECKSUM TABLE 258 s"),
        figure("bitxor-md5", 541.0 / 258.0, "2.17 GB: BIT_XOR 541 s, CHECKSUM TABLE 258 s"),
        figure("replicate", 303.0 / 258.0, "2.17 GB: ACCUM through replication 303 s, CHECKSUM TABLE 258 s"),
    ],
    // Six questions take 8 blocks.
    blocks: (8, 10),
};

const fn figure(arm: &'static str, ratio: f64, said: &'static str) -> SeedFigure {
    SeedFigure { condition: "InnoDB, idle", arm, metric: "seconds", ratio, said }
}

impl Experiment for TableChecksums {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        Installation::missing()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let factor = match lab.form {
            Form::Short => 1,
            Form::Whole => WHOLE,
        };
        let installation = Installation::find().context("no MariaDB to measure")?;
        let mut server = Server::install(&installation, IN_MEMORY)?;
        server.start()?;
        server.sql(&format!("CREATE DATABASE {DATABASE}"))?;
        for Table { name, engine, shape, rows } in TABLES {
            let table = sample::table(name, engine, *shape, rows * factor);
            let sql = format!("SET sql_log_bin = 0; USE {DATABASE}; {table}");
            program::expect(&mut server.client(), &sql, &lab.stop)?;
        }
        // So that nothing is left to write in the middle of a measurement.
        server.stop()?;
        server.home().write_out()?;
        server.start()?;
        let (version, stop) = (installation.version()?, Arc::clone(&lab.stop));
        Ok(Box::new(Sums { factor, version, server, program: lab.program, stop }))
    }
}

struct Sums {
    /// How many times the rows of a short run.
    factor: u32,
    version: String,
    server: Server,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

impl Prepared for Sums {
    fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|(name, _, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([("MariaDB".to_owned(), self.version.clone())]);
        let described = |table: &Table| {
            let sql = format!(
                "SELECT data_length FROM information_schema.tables \
                 WHERE table_schema = '{DATABASE}' AND table_name = '{}'",
                table.name
            );
            let bytes = self.server.sql(&sql).unwrap_or_default();
            format!("{} rows, {bytes} bytes", table.rows * self.factor)
        };
        settings.extend(TABLES.iter().map(|table| (table.name.to_owned(), described(table))));
        let options = IN_MEMORY.iter().filter_map(|option| option.split_once('='));
        settings.extend(options.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let found = CONDITIONS.iter().find(|(name, _, _)| *name == condition);
        let (_, name, is_written) =
            found.with_context(|| format!("{condition} is not measured"))?;
        let table = TABLES.iter().find(|table| table.name == *name).context("no such table")?;
        let words = WORDS.iter().find(|(name, _)| *name == arm.name);
        let (_, words) = words.with_context(|| format!("no arm {}", arm.name))?;
        let Some(mut command) = self.program.command(&["checksum", "--json", "--quiet"]) else {
            return Ok(Reading::unavailable("this program has no command `checksum`"));
        };
        // No files of the user who runs this say who logs in.
        command.args(*words).args(["--table", table.name]).arg(self.url());
        command.env("HOME", self.server.home().path()).env_remove("MYSQL_PWD");
        let pid = self.server.pid().context("the server does not run")?;
        let waits = self.lock_waits()?;
        let cpu = server_cpu::thread_seconds(pid);
        let (output, writes) = if *is_written {
            let rows = table.rows * self.factor;
            let name = format!("{DATABASE}.{}", table.name);
            let writer = Writer::begin(&mut self.server.client(), &name, rows, u64::from(block))?;
            self.beside(&mut command, writer)?
        } else {
            (program::run(&mut command, "", &self.stop)?, None)
        };
        let cpu = server_cpu::thread_seconds(pid).zip(cpu).map(|(after, before)| after - before);
        ensure!(output.status == Some(0), "checksum fails: {}", output.said());
        let mut reading = reading(&output.stdout)?;
        match writes {
            Some(writes) => {
                reading = reading
                    .with_value(LONGEST_WRITE, writes.longest)
                    .with_value("writes", writes.count as f64);
            }
            // With a writer beside it, the time is of both.
            None => {
                if let Some(cpu) = cpu.filter(|cpu| *cpu > 0.0) {
                    reading = reading.with_value("server_cpu_seconds", cpu);
                }
            }
        }
        for ((name, after), (_, before)) in self.lock_waits()?.into_iter().zip(waits) {
            reading = reading.with_value(name, after - before);
        }
        Ok(reading)
    }

    fn conclusion(&self, samples: &[&Sample]) -> Option<String> {
        let written = CONDITIONS.iter().filter(|(_, _, is_written)| *is_written);
        let said: Vec<String> =
            written.filter_map(|(condition, _, _)| waited_for(samples, condition)).collect();
        (!said.is_empty()).then(|| {
            format!(
                "Who changes rows waits for locks, by the server's counters, with the longest \
                 change: {}.",
                said.join("; ")
            )
        })
    }
}

impl Sums {
    fn url(&self) -> String {
        format!("mysql://root@/{DATABASE}?socket={}", self.server.socket().display())
    }

    /// Runs a command beside a writer.
    fn beside(
        &self,
        command: &mut Command,
        writer: Writer,
    ) -> Result<(program::Output, Option<Writes>)> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = scope.spawn(|| writer.go_on(&is_over));
            let output = program::run(command, "", &self.stop);
            is_over.store(true, Ordering::Relaxed);
            let writes = writing.join().map_err(|_| anyhow!("the writer ended early"))?;
            Ok((output?, Some(writes?)))
        })
    }

    /// How often anybody has waited for a lock so far.
    fn lock_waits(&self) -> Result<[(&'static str, f64); 2]> {
        let counter = |name: &str| -> Result<f64> {
            let line = self.server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
            let value = line.split_whitespace().last().and_then(|word| word.parse().ok());
            value.with_context(|| format!("the server does not count {name}"))
        };
        Ok([
            (ROW_LOCKS, counter("Innodb_row_lock_waits")?),
            (TABLE_LOCKS, counter("Table_locks_waited")?),
        ])
    }
}

/// What the program says of the one table.
fn reading(json: &str) -> Result<Reading> {
    let object: Value = serde_json::from_str(json).context("checksum gives no JSON")?;
    let number = |name: &str| {
        let value = object.pointer(&format!("/tables/0/{name}")).and_then(Value::as_f64);
        value.with_context(|| format!("checksum tells no {name}: {json}"))
    };
    let seconds = number("seconds")?;
    ensure!(seconds > 0.0, "no time was measured: {json}");
    Ok(Reading::of([
        ("seconds", seconds),
        ("rows", number("rows")?),
        ("mib_per_second", number("bytes")? / f64::from(1 << 20) / seconds),
    ]))
}

/// Which strategies were waited for under a condition: how often, and how long at the most.
fn waited_for(samples: &[&Sample], condition: &str) -> Option<String> {
    let of_condition = || samples.iter().filter(|sample| sample.condition == condition);
    let mut told = Vec::new();
    for arm in DESCRIPTION.arms {
        let value = |metric: &'static str| {
            of_condition()
                .filter(|sample| sample.arm == arm.name)
                .filter_map(move |sample| sample.values.get(metric).copied())
        };
        let longest = value(LONGEST_WRITE).fold(0.0, f64::max);
        for (kind, metric) in [("row", ROW_LOCKS), ("table", TABLE_LOCKS)] {
            let waits: f64 = value(metric).sum();
            if waits > 0.0 {
                told.push(format!("{} ({waits} {kind} locks, {longest:.3} s)", arm.name));
            }
        }
    }
    let anything = of_condition().any(|sample| sample.values.contains_key(LONGEST_WRITE));
    let told = if told.is_empty() { "for none".to_owned() } else { told.join(", ") };
    anything.then(|| format!("{condition}: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_its_words_and_every_condition_its_table() {
        let arms: Vec<&str> = DESCRIPTION.arms.iter().map(|arm| arm.name).collect();
        let words: Vec<&str> = WORDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(arms, words);
        for (_, name, _) in CONDITIONS {
            assert!(TABLES.iter().any(|table| table.name == *name), "{name}");
        }
    }

    #[test]
    fn what_the_program_says_becomes_a_reading() {
        let json = r#"{"tables": [{"rows": 10, "bytes": 2097152, "seconds": 0.5}]}"#;
        assert_eq!(reading(json).unwrap().values["mib_per_second"], 4.0);
        for json in ["", "{}", r#"{"tables": [{"rows": 10, "bytes": 1, "seconds": 0}]}"#] {
            assert!(reading(json).is_err(), "{json}");
        }
    }

    fn sample(arm: &str, longest: f64, table_waits: f64) -> Sample {
        let values = [(LONGEST_WRITE, longest), (TABLE_LOCKS, table_waits), (ROW_LOCKS, 0.0)];
        Sample {
            experiment: DESCRIPTION.name.to_owned(),
            condition: "MyISAM, written to".to_owned(),
            arm: arm.to_owned(),
            block: 0,
            order: 0,
            warm_up: false,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            words: BTreeMap::new(),
            noise: BTreeMap::new(),
        }
    }

    #[test]
    fn waits_are_told_by_strategy() {
        let samples =
            [sample("native", 0.25, 2.0), sample("native", 0.5, 1.0), sample("count", 0.01, 0.0)];
        let samples: Vec<&Sample> = samples.iter().collect();
        assert_eq!(
            waited_for(&samples, "MyISAM, written to").unwrap(),
            "MyISAM, written to: native (3 table locks, 0.500 s)"
        );
        assert_eq!(waited_for(&samples, "InnoDB, written to"), None);
        assert_eq!(
            waited_for(&samples[2..], "MyISAM, written to").unwrap(),
            "MyISAM, written to: for none"
        );
    }
}

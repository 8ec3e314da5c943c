//! A table that no program writes to, in databases of SQLite, and scans of it.
//!
//! The table lies in several databases of one size, so that some or all of them
//! can be scanned at once, by a thread each. Its text is made of words, as what
//! people write is: it shrinks to about a third.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::cost::experiment::Reading;
use crate::cost::server_cpu;
use crate::cost::sqlite::Meter;
use crate::stats::random::Random;

/// Words in each text.
const WORDS: usize = 9;
/// Words that there are.
const VOCABULARY: usize = 64;

/// Makes a database at `path`: a table `stock` of `rows` rows.
///
/// # Errors
/// It cannot be written.
pub fn make(path: &Path, rows: u32, seed: u64) -> Result<()> {
    let mut database = Connection::open(path)?;
    database.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
        CREATE TABLE stock (id INTEGER PRIMARY KEY, quantity INTEGER, body TEXT)",
    )?;
    let mut random = Random::new(seed);
    let transaction = database.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO stock VALUES (?1, ?2, ?3)")?;
        for id in 1..=rows {
            let text: Vec<String> = (0..WORDS).map(|_| word(random.below(VOCABULARY))).collect();
            let quantity = i64::try_from(random.below(90))?;
            insert.execute((id, quantity, text.join(" ")))?;
        }
    }
    Ok(transaction.commit()?)
}

/// Four syllables out of eight: `kamolika`.
fn word(number: usize) -> String {
    const SYLLABLES: [&str; 8] = ["ka", "mo", "li", "ren", "ta", "su", "ver", "no"];
    let (low, high) = (number % 8, number / 8);
    // The first two tell words apart, the others follow from them.
    let places = [low, high, 5 * low + 3, low + 3 * high];
    places.iter().filter_map(|place| SYLLABLES.get(place % 8)).copied().collect()
}

/// What a process of its own is to scan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// URIs of the databases, which are scanned at once.
    pub databases: Vec<String>,
    /// Rows that each of them has.
    pub rows: u32,
    /// SQLite's cache for each, in KiB.
    pub pool_kib: u32,
    /// Each is scanned once before the clock starts, by the same connection.
    pub warm: bool,
    /// Another process works for it: a child of its parent.
    pub has_server: bool,
}

impl Task {
    /// Scans them: `seconds`, `cpu_seconds`, and where the system says so
    /// `disk_busy_share` of the disk below the current folder and
    /// `processors_busy`, of the whole machine.
    ///
    /// # Errors
    /// One cannot be scanned, or has other rows.
    pub fn run(&self) -> Result<Reading> {
        pagewarden_sqlite::register()?;
        // Ready, go: no thread is in the middle of opening while another scans.
        let gate = Barrier::new(self.databases.len().saturating_add(1));
        thread::scope(|scope| {
            let scans: Vec<_> =
                self.databases.iter().map(|uri| scope.spawn(|| self.scan(uri, &gate))).collect();
            gate.wait();
            let machine = Machine::read();
            let server = self.server_seconds();
            let meter = Meter::start();
            gate.wait();
            for scan in scans {
                let done = scan.join().map_err(|_| anyhow::anyhow!("a scan panicked"))?;
                done?;
            }
            let mut reading = meter.stop();
            if let (Some(before), Some(after)) = (server, self.server_seconds()) {
                // All of the family, this process too.
                reading = reading.with_value("cpu_seconds", after - before);
            }
            let seconds = reading.values.get("seconds").copied().unwrap_or(0.0);
            Ok(Machine::read().since(&machine, seconds, reading))
        })
    }

    /// One database. Whatever happens, it passes the gate twice.
    fn scan(&self, uri: &str, gate: &Barrier) -> Result<()> {
        let ready = self.open(uri);
        gate.wait();
        gate.wait();
        self.read(&ready?).with_context(|| format!("cannot scan {uri}"))
    }

    fn open(&self, uri: &str) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let cannot = || format!("cannot open {uri}");
        let database = Connection::open_with_flags(uri, flags).with_context(cannot)?;
        database.execute_batch(&format!("PRAGMA cache_size = -{}", self.pool_kib))?;
        // The schema is read before the clock starts.
        let sql = "SELECT count(*) FROM sqlite_schema";
        database.query_row(sql, [], |row| row.get::<_, i64>(0)).with_context(cannot)?;
        if self.warm {
            self.read(&database)?;
        }
        Ok(database)
    }

    fn read(&self, database: &Connection) -> Result<()> {
        let sql = "SELECT count(*), sum(quantity), sum(length(body)) FROM stock";
        let (rows, _, characters): (i64, i64, i64) =
            database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        ensure!(rows == i64::from(self.rows) && characters > rows, "{rows} rows, {characters}");
        Ok(())
    }

    fn server_seconds(&self) -> Option<f64> {
        self.has_server.then(parent).flatten().and_then(server_cpu::seconds)
    }
}

/// As `/proc` numbers it, also where this process sees other numbers.
fn parent() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// What the whole machine has done since it started.
#[derive(Debug, Default)]
struct Machine {
    /// Seconds in which the disk had something to do.
    disk: Option<f64>,
    /// Seconds of all processors.
    processors: Option<f64>,
}

impl Machine {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let device = fs::metadata(".").ok().map(|folder| folder.dev());
        let device = device.map(|device| (rustix::fs::major(device), rustix::fs::minor(device)));
        Self {
            disk: device.and_then(|device| disk_seconds(&text("/proc/diskstats"), device)),
            processors: processor_seconds(&text("/proc/stat")),
        }
    }

    fn since(&self, before: &Self, seconds: f64, mut reading: Reading) -> Reading {
        let mut put = |name: &str, now: Option<f64>, then: Option<f64>| {
            if let (Some(now), Some(then)) = (now, then)
                && seconds > 0.0
            {
                let share = (now - then).max(0.0) / seconds;
                reading.values.insert(name.to_owned(), share);
            }
        };
        put("disk_busy_share", self.disk, before.disk);
        put("processors_busy", self.processors, before.processors);
        reading
    }
}

/// `254 0 vda 1 2 3 4 5 6 7 8 9 10 ...`: the tenth figure behind the name is
/// milliseconds with something to do.
fn disk_seconds(diskstats: &str, (major, minor): (u32, u32)) -> Option<f64> {
    diskstats.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_it = fields.next()?.parse() == Ok(major) && fields.next()?.parse() == Ok(minor);
        let milliseconds: f64 = fields.nth(10)?.parse().ok()?;
        is_it.then_some(milliseconds / 1000.0)
    })
}

/// All of the first line of `/proc/stat` but `idle` and `iowait`, in hundredths
/// of a second; guests are in `user` already.
fn processor_seconds(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let busy = |place: &usize| ticks.get(*place).copied();
    [0, 1, 2, 5, 6, 7].iter().map(busy).sum::<Option<f64>>().map(|ticks| ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(databases: Vec<String>, rows: u32) -> Task {
        Task { databases, rows, pool_kib: 100, warm: true, has_server: false }
    }

    #[test]
    fn databases_are_made_and_scanned_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let uri = |name: &str| {
            let path = folder.path().join(name);
            make(&path, 500, 3).unwrap();
            format!("file:{}?immutable=1", path.display())
        };
        let databases = vec![uri("a.db"), uri("b.db")];
        let reading = task(databases.clone(), 500).run().unwrap();
        assert!(reading.values["seconds"] > 0.0 && reading.values["cpu_seconds"] > 0.0);
        assert!(task(databases, 501).run().is_err(), "other rows than were made");
    }

    #[test]
    fn database_that_is_not_there_ends_all_scans_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        make(&path, 5, 3).unwrap();
        let good = format!("file:{}", path.display());
        let error = task(vec![good, "file:/nowhere/b.db".to_owned()], 5).run().unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/b.db"), "{error:#}");
    }

    #[test]
    fn counters_of_the_system_are_read_by_their_places() {
        let stats = " 7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n 254 0 vda 1 2 3 4 5 6 7 8 9 2500 11\n";
        assert_eq!(disk_seconds(stats, (254, 0)), Some(2.5));
        assert_eq!(disk_seconds(stats, (8, 0)), None);
        assert_eq!(processor_seconds("cpu  100 1 20 900 50 3 4 5 60 7\n"), Some(1.33));
        assert_eq!(processor_seconds("cpu  100 1"), None);
    }

    #[test]
    fn words_are_many_and_of_syllables() {
        let mut all: Vec<String> = (0..VOCABULARY).map(word).collect();
        assert_eq!(all[0], "kakarenka");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), VOCABULARY);
    }
}

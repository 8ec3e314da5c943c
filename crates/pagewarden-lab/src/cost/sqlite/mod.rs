//! What experiments on SQLite have in common: the arms, a database for each, and
//! the work that a process of its own does on one.
//!
//! All arms are the SQLite that is linked into this program, and differ in the
//! VFS between it and the file:
//!
//! | arm | VFS | reserved bytes of a page |
//! |---|---|---|
//! | `plain` | `unix`, nothing in between | 0 |
//! | `none`, `torn`, `checksum` | `pagewarden` in that mode | 16 |
//! | `cksumvfs` | `cksmvfs` over `unix` | 8 |

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pagewarden_scratch::home::Home;
use pagewarden_scratch::sqlite::checksum_vfs;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cost::experiment::{Arm, Better, Kind, Lab, Metric, Reading};
use crate::cost::own_program::{self, OwnProgram};
use crate::stats::random::Random;

mod official;

const PLAIN: &str = "plain";
const CKSUMVFS: &str = "cksumvfs";

/// The arms of every experiment on SQLite.
pub const ARMS: &[Arm] = &[
    Arm { name: PLAIN, what: "SQLite without Pagewarden's VFS: nothing is verified" },
    Arm { name: "none", what: "page_verify = NONE: a marker, which says nothing of the content" },
    Arm {
        name: "torn",
        what: "page_verify = TORN_PAGE_DETECTION: a few bits for each part of the page",
    },
    Arm { name: "checksum", what: "page_verify = CHECKSUM: 64 bits for all of the page" },
    Arm { name: CKSUMVFS, what: "SQLite's own checksum VFS: 64 bits without a page number" },
];

/// By the clock.
pub const SECONDS: Metric =
    Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower };
/// Processor time of the arm's process.
pub const CPU_SECONDS: Metric =
    Metric { name: "cpu_seconds", unit: "s", kind: Kind::Timed, better: Better::Lower };
/// By system calls, wherever the bytes came from. All runs of an arm do the same
/// work.
pub const READ_BYTES: Metric =
    Metric { name: "read_bytes", unit: "bytes", kind: Kind::Exact, better: Better::Lower };
/// By system calls.
pub const WRITTEN_BYTES: Metric =
    Metric { name: "written_bytes", unit: "bytes", kind: Kind::Exact, better: Better::Lower };

/// Characters in each row of `item`, as in the loops on the servers.
const BODY_BYTES: usize = 96;

/// A database for each arm, with the same rows.
#[derive(Debug)]
pub struct Databases {
    home: Home,
    rows: u32,
    official: Option<PathBuf>,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

impl Databases {
    /// Makes them: a table `item` with `rows` rows, and an empty one `journal`.
    ///
    /// # Errors
    /// One could not be made.
    pub fn make(rows: u32, lab: &Lab) -> Result<Self> {
        let databases = Self {
            home: Home::new()?,
            rows,
            official: checksum_vfs(),
            program: lab.program,
            stop: Arc::clone(&lab.stop),
        };
        for arm in ARMS {
            databases.run(arm, &name_of(arm), Work::Make { rows })?;
        }
        // So that nothing is left to write in the middle of a measurement.
        databases.home.write_out()?;
        Ok(databases)
    }

    /// Versions and settings for the record.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        let official = match &self.official {
            Some(_) => "loaded",
            None => "not here",
        };
        BTreeMap::from([
            ("SQLite".to_owned(), rusqlite::version().to_owned()),
            ("rows".to_owned(), format!("{} of {BODY_BYTES} characters", self.rows)),
            ("page size".to_owned(), "4096 bytes, SQLite's default".to_owned()),
            ("page cache of SQLite".to_owned(), "2 MB, its default".to_owned()),
            ("SQLite's checksum VFS".to_owned(), official.to_owned()),
        ])
    }

    /// Work on an arm's database, which it only reads.
    ///
    /// # Errors
    /// There is no such arm, or the work failed.
    pub fn read(&self, arm: &Arm, work: Work) -> Result<Reading> {
        known(arm)?;
        self.run(arm, &name_of(arm), work)
    }

    /// Work on a copy of an arm's database, which goes with it.
    ///
    /// # Errors
    /// As for [`Databases::read`], or it could not be copied.
    pub fn change(&self, arm: &Arm, work: Work) -> Result<Reading> {
        known(arm)?;
        const COPY: &str = "run.db";
        let source = self.home.path().join(name_of(arm));
        if source.exists() {
            let copy = self.home.path().join(COPY);
            fs::copy(source, &copy).context("cannot copy a database")?;
            // What the copy left to be written is not the loop's to wait for.
            fs::File::open(&copy)?.sync_all()?;
        }
        let reading = self.run(arm, COPY, work);
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let path = self.home.path().join(format!("{COPY}{suffix}"));
            if path.exists() {
                fs::remove_file(path)?;
            }
        }
        reading
    }

    fn run(&self, arm: &Arm, database: &str, work: Work) -> Result<Reading> {
        if arm.name == CKSUMVFS && self.official.is_none() {
            return Ok(Reading::unavailable(
                "SQLite's checksum VFS is not here; compile ext/misc/cksumvfs.c of SQLite's source \
                 and name the library in PAGEWARDEN_CKSUMVFS, or run cargo xtask cksumvfs in the \
                 source tree of this program",
            ));
        }
        let task = Task {
            arm: arm.name.to_owned(),
            database: database.to_owned(),
            official: self.official.clone(),
            work,
        };
        self.program.arm(&own_program::Task::Sqlite(task), self.home.path(), &self.stop)
    }
}

fn known(arm: &Arm) -> Result<()> {
    ensure!(ARMS.iter().any(|one| one.name == arm.name), "no arm {}", arm.name);
    Ok(())
}

fn name_of(arm: &Arm) -> String {
    format!("{}.db", arm.name)
}

/// What a process of its own is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    arm: String,
    /// A file in the process's folder.
    database: String,
    /// The library of SQLite's checksum VFS.
    official: Option<PathBuf>,
    work: Work,
}

/// Work on one database.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Work {
    /// Makes it.
    Make {
        /// In the table `item`.
        rows: u32,
    },
    /// A point select and an insert, over and over.
    Loop {
        /// In the table `item`.
        rows: u32,
        /// Selects, and inserts.
        steps: u32,
        /// Which rows are asked for.
        seed: u64,
        /// How it is committed.
        commits: Commits,
    },
    /// Every row of `item`.
    Scan {
        /// How often.
        rounds: u32,
    },
}

/// How a loop is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commits {
    /// SQLite's `journal_mode`.
    pub wal: bool,
    /// `synchronous` is FULL, else OFF.
    pub flushed: bool,
    /// Steps in one transaction.
    pub steps: u32,
}

impl Task {
    /// Does it, in this process and its current folder.
    ///
    /// # Errors
    /// SQLite's, or the database is not what the arm says.
    pub fn run(&self) -> Result<Reading> {
        match self.arm.as_str() {
            PLAIN => {}
            CKSUMVFS => official::load(self.official.as_deref().context("no checksum VFS")?)?,
            _ => pagewarden_sqlite::register()?,
        }
        match self.work {
            Work::Make { rows } => self.make(rows),
            Work::Loop { rows, steps, seed, commits } => self.steps(rows, steps, seed, commits),
            Work::Scan { rounds } => self.scan(rounds),
        }
    }

    fn open(&self) -> Result<Connection> {
        let vfs = match self.arm.as_str() {
            PLAIN => "vfs=unix".to_owned(),
            CKSUMVFS => format!("vfs={}", official::NAME),
            _ => format!("vfs=pagewarden&page_verify={}", self.mode()?),
        };
        let uri = format!("file:{}?{vfs}", self.database);
        Ok(Connection::open_with_flags(uri, OpenFlags::default())?)
    }

    /// The mode of our VFS.
    fn mode(&self) -> Result<&'static str> {
        match self.arm.as_str() {
            "none" => Ok("NONE"),
            "torn" => Ok("TORN_PAGE_DETECTION"),
            "checksum" => Ok("CHECKSUM"),
            other => anyhow::bail!("no arm {other}"),
        }
    }

    /// Fails if the database is not under the protection that the arm measures.
    fn ensure_protected(&self, database: &Connection) -> Result<()> {
        let ask = |pragma: &str| -> Result<Option<String>> {
            let row = database.query_row(pragma, [], |row| row.get(0)).optional();
            Ok(row?)
        };
        let ours = ask("PRAGMA page_verify")?;
        let official = ask("PRAGMA checksum_verification")?;
        let fits = match self.arm.as_str() {
            PLAIN => ours.is_none() && official.is_none(),
            CKSUMVFS => ours.is_none() && official.as_deref() == Some("1"),
            _ => ours.as_deref() == Some(self.mode()?) && official.is_none(),
        };
        ensure!(fits, "the arm {} is not what it says: {ours:?}, {official:?}", self.arm);
        Ok(())
    }

    fn make(&self, rows: u32) -> Result<Reading> {
        let database = self.open()?;
        if self.arm == CKSUMVFS {
            official::reserve(&database)?;
        }
        database.execute_batch(
            "PRAGMA synchronous = OFF;
            CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT);
            CREATE TABLE journal (id INTEGER PRIMARY KEY, body TEXT);
            BEGIN",
        )?;
        let mut insert = database.prepare("INSERT INTO item VALUES (?1, ?2)")?;
        // The same rows in every arm.
        let mut random = Random::new(rows.into());
        for id in 1..=rows {
            let words: Vec<String> =
                (0..BODY_BYTES / 16).map(|_| format!("{:016x}", random.bits())).collect();
            insert.execute((id, words.concat()))?;
        }
        database.execute_batch("COMMIT")?;
        self.ensure_protected(&database)?;
        Ok(Reading::default())
    }

    fn steps(&self, rows: u32, steps: u32, seed: u64, commits: Commits) -> Result<Reading> {
        let database = self.open()?;
        let journal = if commits.wal { "WAL" } else { "DELETE" };
        let now: String =
            database
                .query_row(&format!("PRAGMA journal_mode = {journal}"), [], |row| row.get(0))?;
        ensure!(now.eq_ignore_ascii_case(journal), "the journal mode is {now}");
        let synchronous = if commits.flushed { "FULL" } else { "OFF" };
        database.execute_batch(&format!("PRAGMA synchronous = {synchronous}"))?;
        self.ensure_protected(&database)?;
        let mut random = Random::new(seed);
        let choices = usize::try_from(rows)?;

        let meter = Meter::start();
        let mut select = database.prepare("SELECT body FROM item WHERE id = ?1")?;
        let mut insert = database.prepare("INSERT INTO journal VALUES (?1, ?2)")?;
        // One step is a transaction by itself.
        let gathers = commits.steps > 1;
        for step in 1..=steps {
            if gathers && step % commits.steps == 1 {
                database.execute_batch("BEGIN")?;
            }
            let wanted = i64::try_from(1 + random.below(choices))?;
            let found: String = select.query_row([wanted], |row| row.get(0))?;
            insert.execute((step, found))?;
            if gathers && (step % commits.steps == 0 || step == steps) {
                database.execute_batch("COMMIT")?;
            }
        }
        drop((select, insert));
        // The end of a log is written into the database when it is closed.
        database.close().map_err(|(_, error)| error)?;
        let reading = meter.stop();

        let count = self.open()?.query_row("SELECT count(*) FROM journal", [], |row| row.get(0));
        let count: u32 = count?;
        ensure!(count == steps, "{count} of {steps} steps are in the journal");
        Ok(reading)
    }

    fn scan(&self, rounds: u32) -> Result<Reading> {
        let database = self.open()?;
        self.ensure_protected(&database)?;
        let meter = Meter::start();
        for _ in 0..rounds {
            let (rows, characters): (i64, i64) =
                database.query_row("SELECT count(*), sum(length(body)) FROM item", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            let expected = rows.checked_mul(i64::try_from(BODY_BYTES)?);
            ensure!(rows > 0 && expected == Some(characters), "{rows} rows, {characters}");
        }
        Ok(meter.stop())
    }
}

/// What this process uses from now on.
pub(crate) struct Meter {
    begin: Instant,
    cpu: Duration,
    transferred: Option<Transferred>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let transferred = Transferred::read();
        Self { transferred, cpu: process_time(), begin: Instant::now() }
    }

    pub(crate) fn stop(self) -> Reading {
        let seconds = self.begin.elapsed().as_secs_f64();
        let cpu = process_time().saturating_sub(self.cpu).as_secs_f64();
        let reading = Reading::of([("seconds", seconds), ("cpu_seconds", cpu)]);
        match (self.transferred, Transferred::read()) {
            (Some(before), Some(after)) => {
                // The first look at the counters was counted by the second.
                let begun = before.read.saturating_add(before.look);
                reading
                    .with_value("read_bytes", after.read.saturating_sub(begun) as f64)
                    .with_value(
                        "written_bytes",
                        after.written.saturating_sub(before.written) as f64,
                    )
            }
            _ => reading,
        }
    }
}

fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Bytes that this process has moved by system calls, wherever they came from:
/// `rchar` and `wchar` of `/proc/self/io`.
struct Transferred {
    read: u64,
    written: u64,
    /// Bytes read to learn this.
    look: u64,
}

impl Transferred {
    /// Nothing, if the kernel does not count.
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/io").ok()?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let look = u64::try_from(text.len()).ok()?;
        Some(Self { read: field("rchar:")?, written: field("wchar:")?, look })
    }
}

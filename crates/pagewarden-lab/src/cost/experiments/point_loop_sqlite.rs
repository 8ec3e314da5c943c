//! E0 on SQLite: a loop of point selects and inserts in one connection.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::cost::decision::{Decides, SQLITE_PAGE_VERIFY};
use crate::cost::experiment::{
    Arm, Description, Experiment, Form, Lab, Prepared, Reading, SeedFigure,
};
use crate::cost::sqlite::{
    ARMS, CPU_SECONDS, Commits, Databases, READ_BYTES, SECONDS, WRITTEN_BYTES, Work,
};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct PointLoop;

const FLUSHED: &str = "WAL, each step flushed to disk";
const WAL: &str = "WAL, not flushed";
const ROLLBACK: &str = "rollback journal, not flushed";

/// The seed does not say how its loop was committed. Each step by itself would
/// drown the protection in system calls, with a rollback journal above all.
const CONDITIONS: &[(&str, Commits)] = &[
    (FLUSHED, Commits { wal: true, flushed: true, steps: 1 }),
    (WAL, Commits { wal: true, flushed: false, steps: 100 }),
    (ROLLBACK, Commits { wal: false, flushed: false, steps: 100 }),
];

static DESCRIPTION: Description = Description {
    name: "e0-sqlite",
    title: "a loop of point selects and inserts on SQLite",
    question: "How much longer does a mixed loop take with each PAGE_VERIFY mode of our VFS?",
    seed: "PAGE_VERIFY modes of SQL Server, 30 runs of 1 million steps: medians 1053 s (NONE), 1051.5 s (TORN), 1060.5 s (CHECKSUM)",
    by_hand: "\
1. Build the VFS (docs/sqlite-vfs.md), and SQLite's own from ext/misc/cksumvfs.c of its source.
2. Five databases with CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT), 500,000 rows of 96 characters, and an
   empty table journal: a plain one; three with file:NAME?vfs=pagewarden&page_verify=NONE, TORN_PAGE_DETECTION
   and CHECKSUM; one under cksumvfs with .filectrl reserve_bytes 8 before its first table.
3. A program with prepared statements that a million times reads the row of a random id and inserts it into
   journal, 100 steps a transaction, PRAGMA synchronous = OFF; the time up to and with sqlite3_close.
4. By turns on a fresh copy of each database, 30 times: once with journal_mode = WAL, once with DELETE, and once with
   WAL, synchronous = FULL and a commit after each of 10,000 steps.
5. Compare the ratios of neighbouring runs, of the clock and of the processor time of the process.",
    arms: ARMS,
    metrics: &[SECONDS, CPU_SECONDS, READ_BYTES, WRITTEN_BYTES],
    is_price: true,
    decides: Some(Decides::by_main_metric(&SQLITE_PAGE_VERIFY, &["checksum"])),
    seed_figures: &[
        torn(WAL),
        checksum(WAL),
        torn(ROLLBACK),
        checksum(ROLLBACK),
    ],
    // Fewer than 8 cannot tell four arms from the baseline at once.
    blocks: (8, 30),
};

const fn torn(condition: &'static str) -> SeedFigure {
    SeedFigure {
        condition,
        arm: "torn",
        metric: "seconds",
        ratio: 1051.5 / 1053.0,
        said: "medians 1053 s (NONE) and 1051.5 s (TORN) on SQL Server, where nothing is below NONE",
    }
}

const fn checksum(condition: &'static str) -> SeedFigure {
    SeedFigure {
        condition,
        arm: "checksum",
        metric: "seconds",
        ratio: 1060.5 / 1053.0,
        said: "medians 1053 s (NONE) and 1060.5 s (CHECKSUM) on SQL Server, where nothing is below NONE",
    }
}

impl Experiment for PointLoop {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let size = match lab.form {
            Form::Short => Size { rows: 50_000, flushed: 300, not_flushed: 20_000 },
            Form::Whole => Size { rows: 500_000, flushed: 10_000, not_flushed: 1_000_000 },
        };
        Ok(Box::new(Loops { size, seed: lab.seed, databases: Databases::make(size.rows, lab)? }))
    }
}

#[derive(Debug, Clone, Copy)]
struct Size {
    rows: u32,
    /// Steps of one measurement.
    flushed: u32,
    not_flushed: u32,
}

impl Size {
    fn steps(self, commits: Commits) -> u32 {
        if commits.flushed { self.flushed } else { self.not_flushed }
    }
}

struct Loops {
    size: Size,
    seed: u64,
    databases: Databases,
}

impl Prepared for Loops {
    fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.databases.settings();
        for (name, commits) in CONDITIONS {
            let synchronous = if commits.flushed { "FULL" } else { "OFF" };
            let text = format!(
                "{}, {} in a transaction, synchronous = {synchronous}",
                self.size.steps(*commits),
                commits.steps
            );
            settings.insert(format!("steps, {name}"), text);
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let found = CONDITIONS.iter().find(|(name, _)| *name == condition);
        let (_, commits) = found.with_context(|| format!("{condition} is not measured"))?;
        let work = Work::Loop {
            rows: self.size.rows,
            steps: self.size.steps(*commits),
            // The same rows in every run, so that its bytes can be counted.
            seed: self.seed,
            commits: *commits,
        };
        self.databases.change(arm, work)
    }
}

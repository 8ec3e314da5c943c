//! E2b on SQLite: a scan of a whole table.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::cost::decision::{Decides, SQLITE_PAGE_VERIFY};
use crate::cost::experiment::{
    Arm, Description, Experiment, Form, Lab, Prepared, Reading, SeedFigure,
};
use crate::cost::sqlite::{ARMS, CPU_SECONDS, Databases, READ_BYTES, SECONDS, Work};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct SequentialScan;

static DESCRIPTION: Description = Description {
    name: "e2b-sqlite",
    title: "a scan of a whole table on SQLite",
    question: "How much longer does a scan of a table in the page cache take with each PAGE_VERIFY mode of our VFS?",
    seed: "enabling data checksums by default: Christoph's sequential scan of PostgreSQL, 456 ms without and 489 ms with checksums",
    by_hand: "\
1. Build the VFS (docs/sqlite-vfs.md), and SQLite's own from ext/misc/cksumvfs.c of its source.
2. Five databases with CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT) and 2 million rows of 96 characters: a
   plain one; three with file:NAME?vfs=pagewarden&page_verify=NONE, TORN_PAGE_DETECTION and CHECKSUM; one under
   cksumvfs with .filectrl reserve_bytes 8 before its first table. Read each once, so that it is in memory.
3. By turns on each, 30 times, in a process of its own: SELECT count(*), sum(length(body)) FROM item.
4. Compare the ratios of neighbouring runs, of the clock and of the processor time of the process.",
    arms: ARMS,
    metrics: &[SECONDS, CPU_SECONDS, READ_BYTES],
    is_price: true,
    decides: Some(Decides::by_main_metric(&SQLITE_PAGE_VERIFY, &["checksum"])),
    seed_figures: &[SeedFigure {
        condition: "",
        arm: "checksum",
        metric: "seconds",
        ratio: 489.0 / 456.0,
        said: "456 ms without and 489 ms with checksums on PostgreSQL",
    }],
    // Fewer than 8 cannot tell four arms from the baseline at once.
    blocks: (8, 30),
};

impl Experiment for SequentialScan {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let (rows, rounds) = match lab.form {
            Form::Short => (100_000, 4),
            Form::Whole => (2_000_000, 2),
        };
        Ok(Box::new(Scans { rounds, databases: Databases::make(rows, lab)? }))
    }
}

struct Scans {
    rounds: u32,
    databases: Databases,
}

impl Prepared for Scans {
    fn conditions(&self) -> Vec<String> {
        vec![String::new()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.databases.settings();
        settings.insert("scans of one measurement".to_owned(), self.rounds.to_string());
        settings
    }

    fn measure(&mut self, _condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        self.databases.read(arm, Work::Scan { rounds: self.rounds })
    }
}

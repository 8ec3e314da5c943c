//! E5: what each protection is worth: the share of faults that are noticed.
//!
//! Faults are let happen to pages of real servers, over and over, and to pages in the files of
//! whole databases at rest, which are then verified as a whole; nothing is timed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden_scratch::mariadb::{Installation, Server};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::faults::{Fault, Stock};
use crate::cost::protection::PROTECTIONS;
use crate::cost::whole::{self, Database};
use crate::cost::{postgres, program};
use crate::stats::random::Random;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct Worth;

/// Pages taken of each engine's files: enough for variety, few enough for the
/// processor's cache.
const STOCK_BYTES: usize = 8 << 20;
/// The largest fault covers this number of the smallest pages.
const LONG_FAULT: usize = 64 << 10;
const LONG_FAULT_DIVISOR: u32 = 10;

const CONDITIONS: &[(&str, Fault)] = &[
    ("1 bit", Fault::Bits(1)),
    ("2 bits", Fault::Bits(2)),
    ("3 bits", Fault::Bits(3)),
    ("4 bits", Fault::Bits(4)),
    ("a sector of noise", Fault::Noise(512)),
    ("4 KiB of noise", Fault::Noise(4096)),
    ("64 KiB of noise", Fault::Noise(LONG_FAULT)),
    ("torn write", Fault::Torn),
    ("misplaced page", Fault::Misplaced),
    ("zeroed page", Fault::Zeroed),
    ("lost write", Fault::LostWrite),
    ("1 bit, sum made right", Fault::Stamped),
];

/// Arms that are whole databases. A try takes three checks, which is why there are fewer.
const OF_POSTGRES: &str = "postgres-files";
const OF_MARIADB: &str = "mariadb-files";
const OF_SQLITE: &str = "sqlite-file";
const WHOLE_SHORT: u32 = 10;
const WHOLE: u32 = 300;

static DESCRIPTION: Description = Description {
    name: "e5",
    title: "what protection is worth",
    question: "Which share of faults does each kind of protection notice?",
    seed: "PAGE_VERIFY modes of SQL Server: the article times NONE, TORN and CHECKSUM, and does not say what each buys",
    by_hand: "\
1. Take pages of real databases: pgbench's tables of PostgreSQL, a table of MariaDB.
2. Put each protection on them by its published algorithm: PostgreSQL's and MariaDB's pages keep their own;
   SQL Server's, SQLite's and the markers of our VFS are made from the bytes of PostgreSQL's.
3. Damage a copy of a random page: 1 to 4 bits anywhere on the page; an aligned stretch of random bytes (of 64 KiB:
   all pages that it covers); the first sectors of a newer version before the rest of the older; another page's
   bytes; zeroes; the version before.
4. Verify it as the engine would when it reads. Count. A fault that changes nothing is no fault.
5. For the arms of files: stop a PostgreSQL with two tables and their indexes, a MariaDB with the same, and close a
   file of SQLite that our VFS wrote under CHECKSUM. Put each fault into a page that is in use of those tables, and
   run `pagewarden check --no-witness`: by_sum. Stamp the page anew (its sum, its number, all that protects it), and
   run that again, and `pagewarden check --structure`: what only the second finds is found by structure.
`detected` is by whatever the engine looks at (the page's number and header too), `by_sum` by the sum or the marks
alone, in arms of files by all that `--no-witness` looks at: InnoDB's lists of pages in use are part of that. All are faults of one page at rest, and an engine may
notice more by its log. Of a page whose sum fails structure is not asked: what is found `by_both` would have been
found by either, had the other not been there.",
    arms: &[
        Arm { name: "none", what: "SQL Server, PAGE_VERIFY NONE: the page's number only" },
        Arm { name: "torn", what: "SQL Server, TORN_PAGE_DETECTION: two bits a sector" },
        Arm { name: "checksum", what: "SQL Server, CHECKSUM: 32 bits by XOR and rotation" },
        Arm { name: "postgres", what: "PostgreSQL, data checksums: 16 bits with the block's number" },
        Arm { name: "crc32", what: "InnoDB, crc32: 32 bits, not over the whole page" },
        Arm { name: "full_crc32", what: "MariaDB, full_crc32: 32 bits over the whole page" },
        Arm { name: "cksumvfs", what: "SQLite's official checksum VFS: 64 bits without a page number" },
        Arm { name: "marker-none", what: "our VFS for SQLite, NONE: a marker with the page's number" },
        Arm { name: "marker-torn", what: "our VFS, TORN_PAGE_DETECTION: 8 bits for each eighth of the page, and the number" },
        Arm { name: "marker-checksum", what: "our VFS, CHECKSUM: 64 bits with the page's number" },
        Arm { name: OF_POSTGRES, what: "a PostgreSQL cluster at rest: data checksums, and structure" },
        Arm { name: OF_MARIADB, what: "a MariaDB data directory at rest: its checksums, and structure" },
        Arm { name: OF_SQLITE, what: "a SQLite file under our VFS, CHECKSUM, and structure" },
    ],
    metrics: &[
        Metric { name: "detected", unit: "", kind: Kind::Share, better: Better::Higher },
        Metric { name: "by_sum", unit: "", kind: Kind::Share, better: Better::Higher },
        Metric { name: "by_sum_alone", unit: "", kind: Kind::Share, better: Better::Higher },
        Metric { name: "by_structure_alone", unit: "", kind: Kind::Share, better: Better::Higher },
        Metric { name: "by_both", unit: "", kind: Kind::Share, better: Better::Higher },
    ],
    is_price: true,
    decides: None,
    seed_figures: &[],
    blocks: (1, 1),
};

impl Experiment for Worth {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let (tries, whole_tries) = match lab.form {
            Form::Short => (20_000, WHOLE_SHORT),
            Form::Whole => (1_000_000, WHOLE),
        };
        let of_postgres = pages_of_postgres(&lab.stop)?;
        let mut whole = BTreeMap::from([
            (OF_POSTGRES, whole::postgres(&lab.stop)?),
            (OF_SQLITE, whole::sqlite()?),
        ]);
        let (of_innodb, source) = match Installation::find() {
            Some(installation) => {
                whole.insert(OF_MARIADB, whole::mariadb(&installation, &lab.stop)?);
                (pages_of_mariadb(&installation, &lab.stop)?, "MariaDB")
            }
            None => (of_postgres.clone(), "PostgreSQL, as MariaDB is not installed"),
        };
        let mut stocks = BTreeMap::new();
        for protection in PROTECTIONS {
            let bytes = if protection.name.ends_with("crc32") { &of_innodb } else { &of_postgres };
            let stock = Stock::new(bytes, protection.page_bytes).context("too few pages")?;
            stocks.insert(protection.name, stock);
        }
        let stop = Arc::clone(&lab.stop);
        Ok(Box::new(Simulation { tries, whole_tries, source, stocks, whole, seed: lab.seed, stop }))
    }
}

struct Simulation {
    tries: u32,
    whole_tries: u32,
    source: &'static str,
    stocks: BTreeMap<&'static str, Stock>,
    whole: BTreeMap<&'static str, Database>,
    seed: u64,
    stop: Arc<AtomicBool>,
}

impl Prepared for Simulation {
    fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([
            ("faults of each class".to_owned(), self.tries.to_string()),
            ("faults of each class in whole files".to_owned(), self.whole_tries.to_string()),
            ("pages for InnoDB".to_owned(), format!("of {}", self.source)),
        ]);
        for (name, stock) in &self.stocks {
            settings.insert(format!("pages, {name}"), stock.page_count().to_string());
        }
        for (name, database) in &self.whole {
            settings.insert(format!("pages, {name}"), database.page_count().to_string());
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let not_measured = || format!("{} under {condition} is not measured", arm.name);
        let (index, (_, fault)) = CONDITIONS
            .iter()
            .enumerate()
            .find(|(_, (name, _))| *name == condition)
            .with_context(not_measured)?;
        // Other faults in every block and condition, the same ones when it is
        // run again.
        let salt = u64::from(block) << 8 | u64::try_from(index)?;
        let mut random = Random::new(self.seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if let Some(database) = self.whole.get(arm.name) {
            return in_files(database, *fault, self.whole_tries, &mut random, &self.stop);
        }
        if arm.name == OF_MARIADB {
            return Ok(Reading::unavailable("MariaDB is not installed"));
        }
        let protection =
            PROTECTIONS.iter().find(|one| one.name == arm.name).with_context(not_measured)?;
        let stock = self.stocks.get(arm.name).with_context(not_measured)?;
        let tries = match fault {
            Fault::Noise(LONG_FAULT) => self.tries / LONG_FAULT_DIVISOR,
            _ => self.tries,
        };
        let (mut happened, mut by_sum, mut detected) = (0_u32, 0_u32, 0_u32);
        for count in 0..tries {
            if count % 1024 == 0 {
                program::go_on(&self.stop)?;
            }
            if let Some(outcome) = fault.happen(stock, protection, &mut random) {
                happened += 1;
                by_sum += u32::from(outcome.by_sum);
                detected += u32::from(outcome.noticed);
            }
        }
        Ok(Reading::of([
            ("detected", f64::from(detected)),
            ("detected_of", f64::from(happened)),
            ("by_sum", f64::from(by_sum)),
            ("by_sum_of", f64::from(happened)),
        ]))
    }
}

/// Faults in the files of a database that is verified as a whole.
fn in_files(
    database: &Database,
    fault: Fault,
    tries: u32,
    random: &mut Random,
    stop: &AtomicBool,
) -> Result<Reading> {
    let (mut happened, mut sum, mut structure, mut both) = (0_u32, 0_u32, 0_u32, 0_u32);
    for _ in 0..tries {
        let Some(outcome) = database.happen(fault, random, stop)? else { continue };
        happened += 1;
        match (outcome.by_sum, outcome.by_structure) {
            (true, true) => both += 1,
            (true, false) => sum += 1,
            (false, true) => structure += 1,
            (false, false) => {}
        }
    }
    let counts = [
        ("detected", sum + structure + both),
        ("by_sum", sum + both),
        ("by_sum_alone", sum),
        ("by_structure_alone", structure),
        ("by_both", both),
    ];
    let shares = counts.into_iter().flat_map(|(name, count)| {
        [(name.to_owned(), f64::from(count)), (format!("{name}_of"), f64::from(happened))]
    });
    Ok(Reading { values: shares.collect(), words: BTreeMap::new() })
}

/// Heap and index pages of pgbench's tables, some of them changed since they
/// were loaded.
fn pages_of_postgres(stop: &AtomicBool) -> Result<Vec<u8>> {
    let installation = postgres::required_newest()?;
    let mut cluster = Cluster::init(&installation, &Options::default())?;
    cluster.start()?;
    let initialise = ["-i", "-q", "-s", "1"];
    program::expect(cluster.client("pgbench")?.args(initialise), "", stop)?;
    postgres::pgbench(&cluster, &["-n", "-t", "2000"], stop)?;
    let mut paths = Vec::new();
    for relation in ["pgbench_accounts", "pgbench_accounts_pkey", "pgbench_history", "pg_proc"] {
        paths.push(cluster.relation_path("postgres", relation)?);
    }
    cluster.stop(StopMode::Fast)?;
    let mut bytes = Vec::new();
    for path in paths {
        take(&cluster.data_dir().join(path), &mut bytes)?;
    }
    Ok(bytes)
}

/// Pages of a table with an index.
fn pages_of_mariadb(installation: &Installation, stop: &AtomicBool) -> Result<Vec<u8>> {
    let mut server = Server::install(installation, &[])?;
    server.start()?;
    let sql = "CREATE DATABASE cost; USE cost;
        CREATE TABLE item (id INT PRIMARY KEY, word VARCHAR(40), body TEXT, KEY (word));
        INSERT INTO item SELECT seq, MD5(seq), REPEAT(SHA1(seq), 1 + seq % 5) FROM seq_1_to_30000;
        UPDATE item SET body = REVERSE(body) WHERE id % 7 = 0;";
    program::expect(&mut server.client(), sql, stop)?;
    server.stop()?;
    let mut bytes = Vec::new();
    take(&server.data_dir().join("cost/item.ibd"), &mut bytes)?;
    Ok(bytes)
}

fn take(path: &Path, bytes: &mut Vec<u8>) -> Result<()> {
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    bytes.extend(file.iter().take(STOCK_BYTES));
    Ok(())
}

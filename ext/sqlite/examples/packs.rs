//! A database read out of a pack beside the same one as a plain file: scans and lookups of single
//! rows, cold (the file is taken out of the page cache before) and warm, in pairs.
//!
//!     pagewarden pack --profile scan stock.db -o stock.pwk
//!     cargo run --release --no-default-features --features bundled --example packs -- \
//!         stock.db stock.pwk [ROUNDS [SCAN [LOOKUP]]]
//!
//! The pack may be followed by parameters of its URI: `'stock.pwk&pack_cache_mib=512'`. `SCAN` and `LOOKUP` are statements; the latter has a parameter between 1 and the largest rowid of
//! `stock`. Prints a line for each measurement, and the ratios of pack to plain at the end.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement that fails must stop"
)]

use std::path::Path;
use std::time::Instant;

use pagewarden::source::file::open_regular;
use pagewarden::source::residency::forget;
use rusqlite::{Connection, OpenFlags};

const ARMS: [&str; 2] = ["plain", "pack"];
const MEASURES: [&str; 6] = [
    "cold scan",
    "warm scan",
    "cold lookup, median",
    "cold lookup, 99th of 100",
    "warm lookup, median",
    "warm lookup, 99th of 100",
];
const SCAN: &str = "SELECT count(*), sum(s_ytd) FROM stock";
const LOOKUP: &str = "SELECT * FROM stock WHERE rowid=?1";
const COLD_LOOKUPS: usize = 300;
const WARM_LOOKUPS: usize = 3000;

struct Run<'a> {
    path: &'a Path,
    parameters: &'a str,
    scan: &'a str,
    lookup: &'a str,
}

impl Run<'_> {
    fn open(&self, arm: usize) -> Connection {
        let vfs = if arm == 0 { "unix" } else { "pagewarden" };
        let uri = format!("file:{}?mode=ro&vfs={vfs}&{}", self.path.display(), self.parameters);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(uri, flags).expect("a database")
    }

    /// Takes the file out of the page cache.
    fn cool(&self) {
        let file = open_regular(self.path).expect("the file");
        let bytes = file.metadata().expect("its length").len();
        forget(&file, &(0..bytes));
    }

    fn scan(&self, db: &Connection) -> f64 {
        let begin = Instant::now();
        db.query_row(self.scan, [], |_| Ok(())).expect("a row");
        begin.elapsed().as_secs_f64()
    }

    /// The time of each lookup, in order of length.
    fn lookups(&self, db: &Connection, count: usize, random: &mut u64) -> Vec<f64> {
        let largest: i64 =
            db.query_row("SELECT max(rowid) FROM stock", [], |row| row.get(0)).expect("a number");
        let largest = u64::try_from(largest).expect("a rowid");
        let mut statement = db.prepare(self.lookup).expect("a statement");
        let mut one = || {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = i64::try_from((*random >> 20) % largest + 1).expect("small");
            let begin = Instant::now();
            let mut rows = statement.query([key]).expect("an answer");
            while rows.next().expect("a row").is_some() {}
            begin.elapsed().as_secs_f64()
        };
        let mut times: Vec<f64> = (0..count).map(|_| one()).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    fn measure(&self, arm: usize, random: &mut u64) -> [f64; MEASURES.len()] {
        self.cool();
        let db = self.open(arm);
        let scans = [self.scan(&db), self.scan(&db)];
        // A connection of its own: what SQLite and the VFS keep is gone.
        drop(db);
        self.cool();
        let db = self.open(arm);
        let cold = self.lookups(&db, COLD_LOOKUPS, random);
        self.scan(&db);
        let warm = self.lookups(&db, WARM_LOOKUPS, random);
        let of = |times: &[f64]| [times[times.len() / 2], times[times.len() * 99 / 100]];
        let ([cold_median, cold_long], [warm_median, warm_long]) = (of(&cold), of(&warm));
        [scans[0], scans[1], cold_median, cold_long, warm_median, warm_long]
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plain, pack, more @ ..] = arguments.as_slice() else {
        println!("packs PLAIN.db PACK.pwk [ROUNDS [SCAN [LOOKUP]]]");
        return;
    };
    let rounds = more.first().and_then(|word| word.parse().ok()).unwrap_or(7_usize);
    let scan = more.get(1).map_or(SCAN, String::as_str);
    let lookup = more.get(2).map_or(LOOKUP, String::as_str);
    pagewarden_sqlite::register().expect("the VFS");
    let runs = [plain, pack].map(|name| {
        let (path, parameters) = name.split_once('&').unwrap_or((name, ""));
        Run { path: Path::new(path), parameters, scan, lookup }
    });
    let mut samples: [Vec<[f64; MEASURES.len()]>; 2] = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // Both arms look the same rows up; the order changes.
        for step in 0..2 {
            let arm = (round + step) % 2;
            let mut random = 88_172_645 + round as u64;
            let times = runs[arm].measure(arm, &mut random);
            for (name, seconds) in MEASURES.iter().zip(times) {
                println!("{round},{name},{},{seconds:.7}", ARMS[arm]);
            }
            samples[arm].push(times);
        }
    }
    println!("median ratio of pack to plain (lowest .. highest)");
    for (measure, name) in MEASURES.iter().enumerate() {
        let pairs = samples[1].iter().zip(&samples[0]);
        let mut ratios: Vec<f64> =
            pairs.map(|(pack, plain)| pack[measure] / plain[measure]).collect();
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        println!("{name}: {:.3} ({low:.3} .. {high:.3})", ratios[ratios.len() / 2]);
    }
}

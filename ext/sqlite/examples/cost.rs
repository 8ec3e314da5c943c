//! What the VFS costs: a full scan, and a loop of point selects and inserts, without it and in each
//! mode, interleaved. Prints the ratios of CPU time to that without the VFS, pair by pair.
//!
//!     cargo run --release --no-default-features --features bundled --example cost -- [BLOCKS [ROWS]]

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement that fails must stop"
)]

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};

const ARMS: [&str; 4] = ["plain", "NONE", "TORN_PAGE_DETECTION", "CHECKSUM"];
const WORKLOADS: [&str; 3] = ["scan", "loop, WAL", "loop, DELETE"];

fn open(folder: &Path, name: &str, arm: &str) -> Connection {
    let vfs = if arm == "plain" { "vfs=unix" } else { "vfs=pagewarden" };
    let name = folder.join(name);
    let uri = format!("file:{}?{vfs}&page_verify={arm}", name.display());
    let db = Connection::open_with_flags(uri, OpenFlags::default()).expect("a database");
    db.execute_batch("PRAGMA synchronous=OFF").expect("a setting");
    db
}

/// Nanoseconds of this thread on a processor.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}

fn fill(db: &Connection, rows: u64) {
    db.execute_batch(&format!(
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
         WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<{rows})
         INSERT INTO t SELECT v, hex(randomblob(150)) FROM n;"
    ))
    .expect("rows");
}

fn scan(db: &Connection) {
    // A cache of its own size: every page comes from the file.
    db.execute_batch("PRAGMA cache_size=100").expect("a setting");
    for _ in 0..2 {
        let _: i64 =
            db.query_row("SELECT sum(length(b)) FROM t", [], |row| row.get(0)).expect("a sum");
    }
}

fn select_and_insert(db: &Connection, rows: u64) {
    let mut select = db.prepare("SELECT b FROM t WHERE a=?1").expect("a statement");
    let mut insert = db.prepare("INSERT INTO t(b) VALUES(?1)").expect("a statement");
    let mut state = 88_172_645_463_325_252_u64;
    for number in 0..rows {
        if number % 100 == 0 {
            db.execute_batch("BEGIN").expect("a transaction");
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let key = i64::try_from(state % rows + 1).expect("small");
        let text: String = select.query_row([key], |row| row.get(0)).expect("a row");
        insert.execute([text]).expect("an insert");
        if number % 100 == 99 {
            db.execute_batch("COMMIT").expect("a commit");
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (blocks, rows) = (arguments.next().unwrap_or(9), arguments.next().unwrap_or(1_000_000));
    pagewarden_sqlite::register().expect("the VFS");
    let folder = tempfile::tempdir().expect("a folder");
    for arm in ARMS {
        fill(&open(folder.path(), &format!("{arm}.db"), arm), rows);
    }
    let mut samples = vec![vec![Vec::new(); ARMS.len()]; WORKLOADS.len()];
    for block in 0..blocks {
        for (workload, name) in WORKLOADS.iter().enumerate() {
            // Another order in each block.
            for step in 0..ARMS.len() {
                let arm = (step + usize::try_from(block).expect("small")) % ARMS.len();
                let source = folder.path().join(format!("{}.db", ARMS[arm]));
                let file =
                    if workload == 0 { format!("{}.db", ARMS[arm]) } else { "copy.db".into() };
                if workload > 0 {
                    std::fs::copy(source, folder.path().join(&file)).expect("a copy");
                }
                let db = open(folder.path(), &file, ARMS[arm]);
                if workload == 1 {
                    let _: String = db
                        .query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))
                        .expect("the mode");
                }
                let (begin, wall) = (cpu(), Instant::now());
                if workload == 0 {
                    scan(&db)
                } else {
                    select_and_insert(&db, rows)
                }
                let (cpu, wall) = (cpu() - begin, wall.elapsed());
                println!("{block},{name},{},{:.3},{:.3}", ARMS[arm], cpu / 1e9, wall.as_secs_f64());
                samples[workload][arm].push(cpu);
                drop(db);
                for suffix in ["", "-wal", "-shm", "-journal"] {
                    let _ = std::fs::remove_file(folder.path().join(format!("copy.db{suffix}")));
                }
            }
        }
    }
    println!("workload, mode: median ratio of CPU time to none (lowest .. highest)");
    for (workload, name) in WORKLOADS.iter().enumerate() {
        for arm in 1..ARMS.len() {
            let pairs = samples[workload][arm].iter().zip(&samples[workload][0]);
            let mut ratios: Vec<f64> = pairs.map(|(with, without)| with / without).collect();
            ratios.sort_by(f64::total_cmp);
            let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
            println!(
                "{name}, {}: {:.3} ({low:.3} .. {high:.3})",
                ARMS[arm],
                ratios[ratios.len() / 2]
            );
        }
    }
}

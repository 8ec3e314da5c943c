//! A server of a thousand databases, one of them of ten thousand files.

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::{any_installation, page_files};
use crate::scrub::make_summed;
use crate::serve::{Serving, with_config};
use crate::sqlite::has_shell;

/// Databases of two pages, and tables of four files each in one more.
const DATABASES: usize = 999;
const TABLES: u32 = 2400;
/// What a page may take, and the server hold.
const PAGE_LIMIT: Duration = Duration::from_millis(300);
const MEMORY_KIB_MAX: u64 = 128 << 10;
/// All of them are verified once within this.
const PASS_LIMIT: Duration = Duration::from_secs(900);

fn cluster_of_many_files() -> Option<Cluster> {
    let installation = any_installation()?;
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    let tables = (0..TABLES).fold(String::new(), |mut sql, number| {
        let _ = writeln!(sql, "CREATE TABLE t{number} (a int PRIMARY KEY, b text);");
        let _ = writeln!(sql, "INSERT INTO t{number} VALUES (1, 'x');");
        sql
    });
    cluster.psql(&tables).unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    Some(cluster)
}

#[test]
#[ignore = "makes ten thousand files"]
fn thousand_databases_and_ten_thousand_files_are_shown_at_once() {
    let Some(cluster) = cluster_of_many_files().filter(|_| has_shell()) else { return };
    let files = page_files(cluster.data_dir()).len();
    assert!(files >= 10_000, "{files}");
    let folder = TempDir::new().unwrap();
    let first = folder.path().join("0.sqlite");
    make_summed(&first, 1);
    let mut config =
        format!("[[database]]\nname = \"large\"\npath = \"{}\"\n", cluster.data_dir().display());
    for number in 0..DATABASES {
        let path = folder.path().join(format!("{number}.sqlite"));
        if number > 0 {
            fs::copy(&first, &path).unwrap();
        }
        let _ = write!(config, "[[database]]\nname = \"db{number}\"\npath = \"{number}.sqlite\"\n");
    }
    fs::write(folder.path().join("pagewarden.toml"), config).unwrap();
    thread::sleep(Duration::from_millis(100));
    let serve = with_config(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let serving = Serving::of(serve);
    let mut slowest = Duration::ZERO;
    let begin = Instant::now();
    let mut left = DATABASES + 1;
    while left > 0 {
        assert!(begin.elapsed() < PASS_LIMIT, "{left} of them are left");
        thread::sleep(Duration::from_secs(1));
        slowest = slowest.max(look(&serving));
        let (_, answer) = serving.get("/api/v1/status");
        let json: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let targets = json["targets"].as_array().unwrap();
        left = targets.iter().filter(|one| one["coverage"]["pass_complete"] != true).count();
    }
    let read = begin.elapsed();
    // With nothing else to do.
    let mut quiet: Vec<_> = (0..9).map(|_| look(&serving)).collect();
    quiet.sort();
    let status = fs::read_to_string(format!("/proc/{}/status", serving.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap();
    eprintln!(
        "{} databases, {files} files in one of them, verified in {read:?}; the slowest page {:?} by \
         itself in the middle, {:?} at most, {slowest:?} while it read; {peak} KiB",
        DATABASES + 1,
        quiet[4],
        quiet[8],
    );
    assert!(quiet[4] < PAGE_LIMIT, "{quiet:?}");
    assert!(peak <= MEMORY_KIB_MAX, "{peak} KiB");
}

/// How long the slowest of the pages takes.
fn look(serving: &Serving) -> Duration {
    let pages = ["/", "/targets/large", "/targets/large?map=age", "/metrics", "/targets/db7"];
    let times = pages.map(|path| {
        let begin = Instant::now();
        let (status, answer) = serving.get(path);
        assert_eq!(status, 200, "{path}: {answer}");
        begin.elapsed()
    });
    times.into_iter().max().unwrap()
}

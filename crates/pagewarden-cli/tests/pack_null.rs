//! `pagewarden pack --to null:`: what it says of the page cache, of the pace and of
//! the device; and that it leaves no trace.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pagewarden::source::device::device_load;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::clusters::{any_installation, contents, forget_accesses, metadata, sample};
use crate::runner::{Outcome, pagewarden, run};
use crate::sqlite;

fn null(path: &Path, flags: &[&str]) -> Outcome {
    let outcome = run(pagewarden().args(["pack", "--to", "null:"]).args(flags).arg(path));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    outcome
}

fn null_json(path: &Path, flags: &[&str]) -> Value {
    let flags = [&["--json"], flags].concat();
    serde_json::from_str(&null(path, &flags).stdout).unwrap()
}

/// A database of some 12 MiB.
fn database(folder: &Path) -> Option<PathBuf> {
    if !sqlite::has_shell() {
        return None;
    }
    sqlite::shell(
        folder,
        ".open shop.db\n\
         CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)\n\
         INSERT INTO t SELECT i, randomblob(960) FROM n;",
    );
    Some(folder.join("shop.db"))
}

/// Takes a file out of the page cache. False, said aloud, where it lies in memory
/// for good.
fn forget(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let has_device = device_load(path, Duration::ZERO).is_some();
    if !has_device {
        eprintln!("SKIPPED: no block device beneath the temporary folder");
    }
    has_device
}

#[test]
fn a_null_run_leaves_no_trace_in_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut roots = Vec::new();
    if database(folder.path()).is_some() {
        roots.push((folder.path().to_owned(), folder.path().join("shop.db")));
    }
    let cluster = any_installation().map(|installation| sample(&installation, true).copy());
    if let Some(cluster) = &cluster {
        roots.push((cluster.data_dir().to_owned(), cluster.data_dir().to_owned()));
    }
    for (root, source) in roots {
        let before = contents(&root);
        // Only then: to sum up is to read.
        forget_accesses(&root);
        let times = metadata(&root);
        null(&source, &[]);
        assert!(metadata(&root) == times, "{}", root.display());
        assert!(contents(&root) == before, "{}", root.display());
    }
}

#[test]
fn the_page_caches_share_is_told_and_left_as_it_was() {
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let root = source.data_dir();
    let files: Vec<PathBuf> = contents(root).into_keys().collect();
    if !files.iter().all(|file| forget(file)) {
        return;
    }
    // Twice: the first run must not have brought much in. What the target is takes a
    // look into some of its files, through the page cache.
    for _ in 0..2 {
        let cold = null_json(root, &[]);
        let cached = cold["cached_bytes"].as_u64().unwrap();
        assert!(cached < cold["bytes"].as_u64().unwrap() / 2, "{cold}");
        assert_eq!(cold["pace"]["unknown_bytes"], 0);
    }
    // The system may take some of it back while other programs want memory: then it is read again.
    let warmed = |is_all: &dyn Fn() -> bool| {
        let is_one = (0..10).any(|_| {
            contents(root);
            is_all()
        });
        assert!(is_one, "not once was all of it in the page cache, or told to be");
    };
    warmed(&|| {
        let warm = null_json(root, &[]);
        let is_all = warm["cached_bytes"] == warm["bytes"];
        assert!(!is_all || warm["pace"]["set_by"] != "disk", "{warm}");
        is_all
    });
    warmed(&|| null(root, &[]).stdout.contains("From the page cache: 100 % ("));
}

#[test]
fn whoever_set_the_pace_is_named_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = database(folder.path()) else { return };
    let slow = null_json(&path, &["--rate", "8MiB/s"]);
    let pace = &slow["pace"];
    assert_eq!(pace["set_by"], "limit", "{slow}");
    let shares = ["waited", "computed", "held_back", "without_processor"]
        .map(|name| pace[format!("{name}_share")].as_f64().unwrap());
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{slow}");
    let sum: f64 = shares.iter().sum();
    assert!((0.98..1.02).contains(&sum), "{sum} {slow}");
    let text = null(&path, &["--rate", "8MiB/s"]).stdout;
    let sentence = text.lines().filter(|line| line.contains("set the pace")).collect::<Vec<_>>();
    assert!(matches!(sentence[..], [one] if one.starts_with("--rate set the pace: ")), "{text}");
}

/// Of a cluster its log, too, which has no pages that anybody verifies.
#[test]
fn the_rate_holds_for_all_that_is_read() {
    const RATE: f64 = 64.0;
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let slow = null_json(source.data_dir(), &["--rate", "64MiB/s"]);
    let [bytes, pages, seconds] =
        ["bytes", "pages", "seconds"].map(|name| slow[name].as_f64().unwrap());
    assert!(bytes > pages * 8192.0 + 16e6, "{slow}");
    assert!(seconds > bytes / (RATE * 1024.0 * 1024.0) * 0.9, "{slow}");
}

const LOOKS_AT_A_BUSY_DEVICE: usize = 40;

#[test]
fn a_device_that_works_for_others_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = database(folder.path()) else { return };
    // Longer than what the system reads ahead of a program that looks what it is.
    let twice = "INSERT INTO t SELECT id + (SELECT max(id) FROM t), randomblob(960) FROM t;\n";
    sqlite::shell(folder.path(), &format!(".open shop.db\n{twice}{twice}"));
    if !forget(&path) {
        return;
    }
    let other = folder.path().join("other");
    fs::write(&other, vec![1; 32 << 20]).unwrap();
    File::open(&other).unwrap().sync_all().unwrap();
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let Ok(file) = OpenOptions::new().read(true).custom_flags(direct).open(&other) else {
        eprintln!("SKIPPED: no direct reads here");
        return;
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..4_u64 {
            let (file, over) = (&file, &over);
            scope.spawn(move || {
                // Aligned as direct reads want it.
                let mut memory = vec![0; (1 << 20) + 4096];
                let begin = memory.as_ptr().align_offset(4096);
                let mut at = reader << 20;
                while !over.load(Ordering::Relaxed) {
                    file.read_at(&mut memory[begin..begin + (1 << 20)], at).unwrap();
                    at = (at + (4 << 20)) % (32 << 20);
                }
            });
        }
        // On a machine that is short of processors the readers stand still now and then.
        let tries = || (0..LOOKS_AT_A_BUSY_DEVICE).map(|_| forget(&path));
        let loud = tries().map(|_| null(&path, &[])).find(|run| !run.stderr.is_empty());
        forget(&path);
        let quiet = null(&path, &["--quiet"]);
        let json = tries().map(|_| null_json(&path, &["--quiet"])).find(|json| {
            json["device_before"]["busy_share"].as_f64().is_some_and(|busy| busy > 0.3)
        });
        // What is read from memory does not wait for the device.
        fs::read(&path).unwrap();
        let cached = (null(&path, &[]), null_json(&path, &[]));
        over.store(true, Ordering::Relaxed);
        assert_eq!((cached.0.stderr.as_str(), &cached.1["device_before"]), ("", &Value::Null));
        let loud = loud.expect("a warning");
        assert!(loud.stderr.starts_with("warning: the device "), "{loud:?}");
        assert!(loud.stderr.contains(" is busy: "), "{loud:?}");
        assert_eq!(quiet.stderr, "");
        let json = json.expect("a device that is busy");
        let device = &json["device_before"];
        assert!(device["bytes_per_second"].as_u64().unwrap() > 1 << 20, "{json}");
    });
}

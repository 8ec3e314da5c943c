//! `pagewarden iotest`: what it refuses, what it leaves, and what it says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::clusters::{contents, metadata};
use crate::runner::{Outcome, Started, pagewarden, run};
use crate::sqlite;

/// Small enough for any folder, and long enough for figures.
const SMALL: [&str; 4] = ["--size", "16MiB", "--time", "40ms"];

fn iotest(arguments: &[&str], folder: &Path) -> Outcome {
    run(pagewarden().arg("iotest").args(arguments).arg(folder))
}

fn object(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr))
}

fn names(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A block device of this machine, if it has one.
fn block_device() -> Option<PathBuf> {
    let devices = fs::read_dir("/dev").ok()?.filter_map(Result::ok);
    let is_block =
        |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_block_device());
    devices.into_iter().find(is_block).map(|entry| entry.path())
}

#[test]
fn what_exists_is_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("base.mdf");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    // In a folder of their own: who walks over them would walk in circles.
    let links = tempfile::tempdir().unwrap();
    let (to_file, to_folder) = (links.path().join("to_file"), links.path().join("to_folder"));
    symlink(&file, &to_file).unwrap();
    symlink(folder.path(), &to_folder).unwrap();
    let nothing = folder.path().join("nothing");
    let before = (contents(folder.path()), metadata(folder.path()), names(folder.path()));
    let mut refused = vec![
        (file, "no folder"),
        (to_file, "symbolic link"),
        (to_folder, "symbolic link"),
        (nothing, "cannot open"),
        (PathBuf::from("/dev/null"), "device"),
    ];
    match block_device() {
        Some(device) => refused.push((device, "device")),
        None => eprintln!("SKIPPED: no block device here"),
    }
    for (path, word) in refused {
        let outcome = iotest(&["--json"], &path);
        assert_eq!(outcome.status, Some(2), "{path:?}: {outcome:?}");
        let error = object(&outcome)["error"].as_str().unwrap().to_owned();
        assert!(error.contains(word), "{path:?}: {error}");
        assert!(outcome.stderr.contains(word), "{path:?}: {outcome:?}");
    }
    assert_eq!((contents(folder.path()), metadata(folder.path()), names(folder.path())), before);
}

/// Mounted for a test, and gone with it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, said aloud, where it may not be mounted.
    fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("SKIPPED: nothing may be mounted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_without_room_is_refused_and_its_reserve_is_kept() {
    let Some(disk) = SmallDisk::of("24m") else { return };
    let folder = disk.0.path();
    for arguments in [["--size", "64MiB"], ["--size", "23MiB"]] {
        let outcome = iotest(&arguments, folder);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("stay free"), "{outcome:?}");
        assert!(outcome.stderr.contains("hint:"), "{outcome:?}");
    }
    let kept = iotest(&["--size", "16MiB", "--reserve", "12MiB"], folder);
    assert_eq!(kept.status, Some(2), "{kept:?}");
    // Others fill it up: what is left is too little even for a small file.
    fs::write(folder.join("others"), vec![1; 14 << 20]).unwrap();
    let full = iotest(&["--size", "8MiB", "--reserve", "4MiB"], folder);
    assert_eq!(full.status, Some(2), "{full:?}");
    fs::remove_file(folder.join("others")).unwrap();
    let measured = iotest(&["--json", "--size", "16MiB", "--time", "20ms"], folder);
    assert_eq!(measured.status, Some(0), "{measured:?}");
    assert_eq!(object(&measured)["device"]["file_system"], "tmpfs");
    assert!(names(folder).is_empty());
}

#[test]
fn everything_is_measured_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), "precious").unwrap();
    let before = (contents(folder.path()), names(folder.path()));
    let measured = iotest(&[&["--json"], &SMALL[..]].concat(), folder.path());
    assert_eq!(measured.status, Some(0), "{measured:?}");
    let json = object(&measured);
    assert_eq!(json["pagewarden"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&json["command"], &json["verdict"]), (&"iotest".into(), &"measured".into()));
    let patterns = json["patterns"].as_array().unwrap();
    let found: Vec<&str> = patterns.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let expected =
        ["oltp-log", "oltp-data", "bulk-insert", "read-ahead", "backup", "restore", "checkdb"];
    assert_eq!(found, expected);
    for one in patterns {
        let number = |name: &str| one.pointer(name).and_then(Value::as_f64).unwrap();
        assert!(number("/mib_per_second") > 0.0 && number("/iops") > 0.0, "{one}");
        let ladder =
            ["p50", "p95", "p99", "p999", "max"].map(|name| number(&format!("/latency_us/{name}")));
        assert!(ladder.is_sorted() && ladder[0] > 0.0, "{one}");
        assert!(number("/cpu_us_per_transfer") > 0.0 && number("/outstanding") > 0.0, "{one}");
    }
    assert_eq!(json["sweeps"].as_array().unwrap().len(), 2);
    assert_eq!(json["scans"].as_array().unwrap().len(), 6);
    assert!(json["bytes_written"].as_u64().unwrap() <= 64 << 20, "{json}");
    let about: BTreeSet<&str> = json["doubts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["about"].as_str().unwrap())
        .collect();
    assert!(about.is_superset(&BTreeSet::from(["flush", "cache", "size", "payload"])), "{about:?}");

    let text =
        iotest(&[&["--pattern", "backup", "--no-sweep"], &SMALL[..]].concat(), folder.path());
    assert_eq!(text.status, Some(0), "{text:?}");
    assert!(text.stdout.contains("MiB/s") && text.stdout.contains("p99.9"), "{}", text.stdout);
    assert!(!text.stdout.contains("oltp-log"), "{}", text.stdout);
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 80), "{}", text.stdout);
    assert!(text.stderr.is_empty(), "no terminal, no progress: {}", text.stderr);
    assert_eq!((contents(folder.path()), names(folder.path())), before);
}

#[test]
fn a_run_that_is_stopped_says_what_it_has_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let arguments = ["iotest", "--json", "--progress", "--size", "64MiB", "--time", "2s"];
        let run = Started::spawn(pagewarden().args(arguments).arg(folder.path()));
        // The log, both ways, and a part of the next.
        sleep(Duration::from_millis(3700));
        run.signal(signal);
        let outcome = run.wait();
        assert_eq!(outcome.status, Some(3), "{outcome:?}");
        let json = object(&outcome);
        assert_eq!(json["verdict"], "incomplete");
        assert_eq!(json["stopped"], true);
        let measured = json["patterns"].as_array().unwrap().len();
        assert!((1..7).contains(&measured), "{json}");
        assert_eq!(json["not_run"].as_array().unwrap().len(), 7 - measured);
        assert!(outcome.stderr.contains("steps done"), "{}", outcome.stderr);
        assert!(names(folder.path()).is_empty());
    }
}

/// Not even a program that is killed leaves its file: it has no name.
#[test]
fn whoever_is_killed_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for wait in [5, 60, 700] {
        let run = Started::spawn(
            pagewarden().args(["iotest", "--size", "64MiB", "--time", "2s"]).arg(folder.path()),
        );
        sleep(Duration::from_millis(wait));
        // Between making the folder and removing it lie microseconds.
        assert!(names(folder.path()).is_empty());
        run.signal(Signal::KILL);
        assert_eq!(run.wait().signal, Some(9));
        assert!(names(folder.path()).is_empty());
    }
}

#[test]
fn messages_of_backups_are_judged_with_and_without_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Processed 584 pages for database 'shop', file 'shop' on file 1.\r\n\
        Processed 1 pages for database 'shop', file 'shop_log' on file 1.\r\n\
        BACKUP DATABASE successfully processed 585 pages in 0.037 seconds (123.350 MB/sec).\r\n";
    let plain = folder.path().join("plain.txt");
    fs::write(&plain, text).unwrap();
    let wide = folder.path().join("wide.txt");
    let units = std::iter::once(0xfeff_u16).chain(text.encode_utf16());
    fs::write(&wide, units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let judge = |files: &[&Path], more: &[&Path]| {
        let mut command = pagewarden();
        command.args(["iotest", "--json", "--no-sweep"]).args(SMALL);
        for file in files {
            command.arg("--judge").arg(file);
        }
        run(command.args(more))
    };
    let alone = judge(&[&plain, &wide], &[]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    let judged = object(&alone)["judged"].as_array().unwrap().clone();
    assert_eq!(judged.len(), 2);
    for one in &judged {
        assert_eq!(one["pages"], 585);
        assert_eq!(one["megabyte"], "binary");
        assert_eq!(one["files"], serde_json::json!([584, 1]));
        assert_eq!(one["adds_up"], true);
    }
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let beside = object(&judge(&[&plain], &[&disk]));
    let said = beside["judged"][0]["sentences"].to_string();
    assert!(said.contains("of that"), "{said}");
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "nothing of the kind").unwrap();
    let refused = judge(&[&empty], &[]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("no message of a backup"), "{refused:?}");
}

#[test]
fn a_database_is_held_against_its_disk_and_not_changed() {
    if !sqlite::has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sqlite::shell(
        folder.path(),
        ".open shop.db\n\
         CREATE TABLE stock(id INTEGER PRIMARY KEY, data TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)\n\
         INSERT INTO stock SELECT i, hex(randomblob(30)) FROM n;",
    );
    let database = folder.path().join("shop.db");
    let before = (contents(folder.path()), metadata(folder.path()));
    let mut command = pagewarden();
    command.args(["iotest", "--json"]).args(SMALL).arg("--against").arg(&database);
    let outcome = run(command.arg(folder.path()));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let against = object(&outcome)["against"].clone();
    assert_eq!(against["reading"]["bytes"].as_u64(), Some(fs::metadata(&database).unwrap().len()));
    assert_eq!(against["reading"]["is_same_disk"], true);
    assert!(against["sentences"].as_array().unwrap().len() >= 2, "{against}");
    assert_eq!(contents(folder.path()), before.0);
    let times = metadata(folder.path());
    // The folder itself was written to, for a moment.
    assert_eq!(times.get(&database), before.1.get(&database));
}

#[test]
fn a_rate_bounds_what_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--json",
        "--no-sweep",
        "--pattern",
        "backup",
        "--rate",
        "32MiB/s",
        "--size",
        "16MiB",
        "--time",
        "1s",
    ];
    let json = object(&iotest(&arguments, folder.path()));
    let rate = json["patterns"][0]["mib_per_second"].as_f64().unwrap();
    // Never above, but for what may be in flight at the end.
    assert!(rate < 48.0, "{rate}");
}

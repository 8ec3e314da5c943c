//! `pagewarden cost` from outside: tables from elsewhere, reports, statuses.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use pagewarden_scratch::mariadb;
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::any_installation;
use crate::runner::pagewarden;

/// Eight blocks in which `ON` takes about a tenth longer.
const DEARER: &str = "run,OFF,ON\n1,100,110\n2,101,110.5\n3,99,109.5\n4,100,111\n\
                      5,102,112\n6,100,110.2\n7,98,108\n8,100,110.7\n";

struct Table {
    folder: TempDir,
}

impl Table {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("runs.csv"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("runs.csv")
    }

    fn page(&self) -> PathBuf {
        self.folder.path().join("runs.html")
    }

    fn analyse(&self, words: &[&str]) -> Output {
        cost(&[&["analyse", self.path().to_str().unwrap()], words].concat())
    }
}

fn cost(words: &[&str]) -> Output {
    pagewarden().arg("cost").args(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn experiments_are_listed_one_a_line() {
    let output = cost(&["--list"]);
    assert_eq!(output.status.code(), Some(0));
    let names: Vec<String> = stdout(&output)
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    for name in ["e0", "e2a", "e2b", "e2f"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    let json: Value = serde_json::from_slice(&cost(&["--list", "--json"]).stdout).unwrap();
    assert_eq!(json["experiments"].as_array().unwrap().len(), names.len());
    assert_eq!(json["experiments"][0]["name"], names[0].as_str());
}

#[test]
fn table_from_elsewhere_ends_in_medians_a_ratio_and_a_verdict() {
    let table = Table::new(DEARER);
    let output = table.analyse(&[]);
    assert_eq!(output.status.code(), Some(0), "a price is no fault");
    let text = stdout(&output);
    for part in
        ["100.0", "110.3", "ON/OFF  time x1.1", "throughput x0.9", "p = 0.008", "\n      worse\n"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert_eq!(text.lines().last(), Some("verdict: worse"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    assert_eq!(table.analyse(&["--strict"]).status.code(), Some(1));
    let wide = stdout(&table.analyse(&["--margin", "20%"]));
    assert_eq!(wide.lines().last(), Some("verdict: equivalent"), "{wide}");
    let higher = stdout(&table.analyse(&["--better", "higher"]));
    assert_eq!(higher.lines().last(), Some("verdict: better"), "{higher}");
}

#[test]
fn json_holds_the_verdict_and_every_sample() {
    let output = Table::new(DEARER).analyse(&["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["command"], "cost");
    assert_eq!(json["verdict"], "worse");
    assert!(json["pagewarden"].is_string() && json["seconds"].is_number());
    assert_eq!(json["samples"].as_array().unwrap().len(), 16);
    let pair = &json["experiments"][0]["results"][0]["pairs"][0];
    assert_eq!((&pair["arm"], &pair["against"]), (&"ON".into(), &"OFF".into()));
    assert_eq!(pair["verdict"], "worse");
    let low = pair["cost"]["low"].as_f64().unwrap();
    assert!(low > 1.08 && pair["ratio"]["low"] == pair["cost"]["low"], "{pair}");
}

#[test]
fn page_is_written_whole_and_nothing_else_is_overwritten() {
    let table = Table::new(DEARER);
    let page = table.page();
    let page_name = page.to_str().unwrap();
    for _ in 0..2 {
        let output = table.analyse(&["--html", page_name]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = fs::read_to_string(&page).unwrap();
        assert!(
            text.contains("<h1>The price of ON against OFF is ") && text.ends_with("</html>\n"),
            "{text}"
        );
    }
    let own = table.path();
    let output = table.analyse(&["--html", own.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(own).unwrap(), DEARER, "the table itself is safe");
}

#[test]
fn what_cannot_be_analysed_is_said_with_its_line_and_status_2() {
    let table = Table::new("run,A,B\n1,2,3\n2,quick,3\n");
    let output = table.analyse(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("line 3, A: 'quick' is not a number"), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&table.analyse(&["--json"]).stdout).unwrap();
    assert!(json["error"].as_str().unwrap().contains("line 3"), "{json}");
    for (words, part) in [
        (&["nosuch"][..], "there is no experiment 'nosuch'"),
        (&[], "required"),
        (&["analyse"], "required"),
        (&["analyse", "/nonexistent.csv"], "/nonexistent.csv"),
        (&["--continue", "/nonexistent.jsonl"], "there is no run"),
        (&["e2a", "--margin", "0"], "a margin lies above 0 %"),
        (&["e2a", "--blocks", "0"], "0 is not in 1..=100000"),
        (&["e2a", "--list"], "cannot be used with"),
    ] {
        let output = cost(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(part), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn table_is_read_from_standard_input() {
    let mut command = pagewarden();
    command.args(["cost", "analyse", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(DEARER.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).ends_with("verdict: worse\n"));
}

/// The kernels need no server, so that a whole run can be made anywhere.
#[test]
fn run_keeps_its_samples_and_can_be_analysed_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = cost(&[
        "e2d",
        "--short",
        "--blocks",
        "6",
        "--seed",
        "5",
        "--out",
        out,
        "--progress",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["run"]["plan"]["seed"], 5);
    assert!(stderr(&output).contains("e2d (1 of 1): preparing"), "{}", stderr(&output));
    let kept = only_file(folder.path());
    assert!(stderr(&output).contains(kept.to_str().unwrap()), "{}", stderr(&output));
    let again = cost(&["analyse", kept.to_str().unwrap(), "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["experiments"], json["experiments"], "the same samples, the same results");
    // The end cut off, it goes on.
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, &text[..text.len() * 2 / 3]).unwrap();
    let cut = cost(&["analyse", kept.to_str().unwrap(), "--json"]);
    assert_eq!(cut.status.code(), Some(2), "not all that was asked for is there");
    let whole = cost(&["--continue", kept.to_str().unwrap(), "--json", "--quiet"]);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    let whole: Value = serde_json::from_slice(&whole.stdout).unwrap();
    let count = |json: &Value| json["samples"].as_array().unwrap().len();
    assert_eq!(count(&whole), count(&json));
}

/// Each of them is this program once more; the one that is missing is named.
#[test]
fn arms_on_sqlite_run_and_the_missing_one_is_said_aloud() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let mut command = pagewarden();
    command.args(["cost", "e2b-sqlite", "--short", "--blocks", "2", "--json", "--out", out]);
    let output = command.env("PAGEWARDEN_CKSUMVFS", "/nowhere/cksumvfs.so").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = json["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "said once: {notes:?}");
    let text = notes[0]["text"].as_str().unwrap();
    assert!(text.starts_with("cksumvfs is not measured: SQLite's checksum VFS is not"), "{text}");
    assert_eq!(json["incomplete"], false);
    for arm in ["plain", "none", "torn", "checksum", "plain (again)"] {
        let sample = sample(&json, "", arm);
        assert!(sample["values"]["cpu_seconds"].as_f64().unwrap() > 0.0, "{sample}");
        // 100,000 rows of 96 characters, four times.
        assert!(sample["values"]["read_bytes"].as_f64().unwrap() > 4e7, "{sample}");
    }
}

/// The laboratory's own tests run the arms of the server's tool.
#[test]
fn protect_is_measured_beside_the_servers_tool_and_survives_a_kill() {
    if any_installation().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let words = ["e2h", "--short", "--blocks", "1", "--no-control", "--json", "--out", out];
    let output = cost(&words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for condition in ["uninterrupted", "killed at a random moment, and run again"] {
        for arm in ["enable", "protect", "protect-no-verify", "protect-no-sync", "protect-none"] {
            let sample = sample(&json, condition, arm);
            assert_eq!(sample["values"]["sound"], 1.0, "{sample}");
        }
    }
}

/// Runs an experiment once, in its short form, without the control.
fn run_once(name: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = cost(&[name, "--short", "--blocks", "1", "--no-control", "--json", "--out", out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The reason why a sample has no figures, unless it has some.
fn unavailable(sample: &Value) -> Option<&str> {
    sample["words"]["unavailable"].as_str()
}

/// Engines that are installed; what is required and missing fails.
fn engines() -> Vec<&'static str> {
    let mut engines = vec!["SQLite"];
    if any_installation().is_some() {
        engines.push("PostgreSQL");
    }
    if mariadb::Installation::for_test().unwrap().is_some() {
        engines.push("MariaDB");
    }
    engines
}

/// A pack answers through the VFS in every profile, from cold and warm; what only
/// root and other programs can mount says why if it did not run.
#[test]
fn packed_table_is_scanned_beside_the_plain_one() {
    let json = run_once("e1");
    let value = |condition: &str, arm: &str, name: &str| {
        let sample = sample(&json, condition, arm);
        sample["values"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {sample}"))
    };
    let first = "1 file, small pool, cold";
    for condition in [first, "1 file, large pool, warm", "4 files, small pool, cold"] {
        for arm in ["plain", "pack", "pack-scan", "pack-lz4"] {
            assert!(value(condition, arm, "mib_per_second") > 0.0);
            assert!(value(condition, arm, "seconds") > 0.0);
        }
    }
    let plain = value(first, "plain", "stored_bytes");
    for arm in ["pack", "pack-scan", "pack-lz4"] {
        let stored = value(first, arm, "stored_bytes");
        assert!(stored > plain * 0.05 && stored < plain * 0.7, "{arm}: {stored} of {plain}");
    }
    for arm in ["mounted", "btrfs", "squashfs"] {
        match unavailable(sample(&json, first, arm)) {
            Some(reason) => {
                let notes = json["notes"].to_string();
                assert!(notes.contains(&format!("{arm} is not measured: ")), "{reason}: {notes}");
            }
            None => assert!(value(first, arm, "stored_bytes") < plain, "{arm}"),
        }
    }
    // The advice, by the warm scans.
    let notes = json["notes"].as_array().unwrap();
    let advice = notes.iter().filter_map(|note| note["text"].as_str());
    let advice = advice.filter(|text| text.starts_with("memory ")).collect::<Vec<_>>();
    assert!(advice.len() == 1 && advice[0].contains("plain (x"), "{notes:?}");
}

#[test]
fn run_to_nowhere_is_measured_beside_plain_reads_of_as_many_bytes() {
    let json = run_once("e4a");
    for engine in engines() {
        for state in ["cold", "warm"] {
            let condition = format!("{engine}, {state}");
            let bytes = |arm: &str| {
                let sample = sample(&json, &condition, arm);
                let value = |name: &str| sample["values"][name].as_f64().unwrap();
                let decimal = value("mb_per_second") / value("mib_per_second");
                assert!((decimal - 1.048_576).abs() < 1e-9, "{sample}");
                value("bytes")
            };
            let ratio = bytes("null") / bytes("read");
            assert!((0.98..1.02).contains(&ratio), "{condition}: {ratio}");
        }
    }
}

/// Bytes, times of every kind, and what the next delta holds.
#[test]
fn run_to_nowhere_changes_nothing_and_moves_no_base() {
    let json = run_once("e4c");
    for engine in engines() {
        for arm in ["null", "check"] {
            let sample = sample(&json, engine, arm);
            assert_eq!(sample["values"]["unchanged"], 1.0, "{sample}");
            let word = sample["words"]["unchanged"].as_str().unwrap();
            assert_eq!(word, "nothing has changed, nor has the next delta", "{sample}");
        }
    }
}

/// Every pattern moves bytes, and what of it means little is said.
#[test]
fn patterns_of_io_are_measured_on_one_disk() {
    let json = run_once("e4b");
    for (name, writes) in [
        ("oltp-log", true),
        ("oltp-data", true),
        ("bulk-insert", true),
        ("read-ahead", false),
        ("backup", false),
        ("restore", true),
        ("checkdb", false),
    ] {
        for (condition, most) in
            [("as many in flight as engines have", 36.0), ("one in flight for each stream", 2.2)]
        {
            let sample = sample(&json, condition, name);
            let value = |name: &str| sample["values"][name].as_f64().unwrap();
            assert!(
                value("mib_per_second") > 0.0 && value("p99_us") >= value("p50_us"),
                "{sample}"
            );
            assert!(value("outstanding") < most, "{sample}");
            assert_eq!(value("written_bytes") > 0.0, writes, "{sample}");
        }
    }
    let notes = json["notes"].to_string();
    assert!(notes.contains("A commit that waits for its flush takes"), "{notes}");
    assert!(
        notes.to_lowercase().contains("backup and read-ahead") || notes.contains("than read-ahead"),
        "{notes}"
    );
}

/// Every strategy on every storage engine; and which session waits for which. A session that
/// sums a table of MyISAM locks it, `COUNT(*)` there reads nothing, and no strategy locks a table
/// of InnoDB.
#[test]
fn checksums_of_tables_are_timed_and_waits_for_them_counted() {
    if mariadb::Installation::for_test().unwrap().is_none() {
        return;
    }
    let json = run_once("e3");
    let arms = ["native", "count", "accum", "bitxor-crc32", "bitxor-md5", "replicate", "multiset"];
    for engine in ["InnoDB", "Aria", "MyISAM"] {
        for (state, is_written) in [("idle", false), ("written to", true)] {
            let condition = format!("{engine}, {state}");
            for arm in arms {
                let sample = sample(&json, &condition, arm);
                let value = |name: &str| sample["values"][name].as_f64().unwrap();
                assert!(value("seconds") > 0.0 && value("mib_per_second") > 0.0, "{sample}");
                assert_eq!(sample["values"]["rows"], 60_000.0, "{sample}");
                assert_eq!(sample["values"]["longest_write"].is_null(), !is_written, "{sample}");
                if !is_written {
                    assert!(value("row_lock_waits") + value("table_lock_waits") < 0.5, "{sample}");
                }
                if is_written && engine == "InnoDB" {
                    assert!(value("table_lock_waits") < 0.5, "{sample}");
                }
            }
        }
    }
    let waits = |arm: &str| {
        let sample = sample(&json, "MyISAM, written to", arm);
        sample["values"]["table_lock_waits"].as_f64().unwrap()
    };
    assert!(waits("native") > 0.5 && waits("bitxor-md5") > 0.5);
    let notes = json["notes"].to_string();
    assert!(notes.contains("MyISAM, written to: native ("), "{notes}");
}

fn sample<'a>(json: &'a Value, condition: &str, arm: &str) -> &'a Value {
    let mut samples = json["samples"].as_array().unwrap().iter();
    let found = samples.find(|one| one["condition"] == condition && one["arm"] == arm);
    found.unwrap_or_else(|| panic!("no sample of {arm} under {condition:?}: {json}"))
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

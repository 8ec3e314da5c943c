//! `pagewarden check` of binary logs, of MariaDB 10.11 and of MySQL 9.7: beside what the servers' own programs
//! say, where they are here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::runner::{pagewarden, run};

const SERVERS: [(&str, &str); 2] = [("mariadb-10.11", "shop-bin"), ("mysql-9.7", "binlog")];
/// Where wounds are, is the same in each run.
const SEED: u64 = 0x5EED_B106;

fn golden(server: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/binlog")).join(server)
}

/// A copy that may be changed.
fn copied(server: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(server)).unwrap().flatten() {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn check(arguments: &[&Path]) -> (Option<i32>, Value) {
    let outcome = run(pagewarden().args(["check", "--json"]).args(arguments));
    let report = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", outcome.stdout, outcome.stderr));
    (outcome.status, report)
}

fn findings(report: &Value) -> Vec<Value> {
    report["targets"].as_array().unwrap().last().unwrap()["findings"].as_array().unwrap().clone()
}

/// The next of a row of numbers.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn logs_of_running_servers_are_intact_as_a_folder_and_file_by_file() {
    for (server, base) in SERVERS {
        let folder = golden(server);
        let (status, report) = check(&[&folder]);
        assert_eq!(status, Some(0), "{server}: {report}");
        assert_eq!(report["verdict"], "intact", "{report}");
        assert_eq!(findings(&report).len(), 0, "{report}");
        let binlogs = &report["targets"][0]["binlogs"];
        assert_eq!(binlogs["files"], 4, "{report}");
        let reachable = binlogs["reachable"].as_array().unwrap();
        assert_eq!(reachable.len(), 1, "{report}");
        assert_eq!(reachable[0]["from_file"], format!("{base}.000001"));
        assert_eq!(reachable[0]["to_file"], format!("{base}.000004"));
        let engine = report["targets"][0]["engine"].as_str().unwrap();
        assert!(engine.starts_with(if base == "binlog" { "MySQL 9.7" } else { "MariaDB 10.11" }));
        for number in 1..=4 {
            let (status, report) = check(&[&folder.join(format!("{base}.00000{number}"))]);
            assert_eq!(status, Some(0), "{report}");
        }
    }
}

#[test]
fn last_file_may_end_anywhere_and_others_may_not() {
    for (server, base) in SERVERS {
        for (number, is_last) in [(4, true), (2, false)] {
            let folder = copied(server);
            let path = folder.path().join(format!("{base}.00000{number}"));
            let bytes = fs::read(&path).unwrap();
            for length in (4..bytes.len()).step_by(bytes.len() / 40 + 1) {
                fs::write(&path, &bytes[..length]).unwrap();
                let (status, report) = check(&[folder.path()]);
                let found = findings(&report);
                if is_last {
                    assert_eq!((status, found.len()), (Some(0), 0), "{server} {length}: {report}");
                } else {
                    // At the end of an event nothing but the missing rotation tells.
                    let severity = &found[0]["severity"];
                    assert!(severity == "damage" || severity == "suspect", "{report}");
                    assert_eq!(found[0]["kind"], "truncated", "{report}");
                }
            }
        }
    }
}

#[test]
fn missing_files_are_found_by_numbers_and_by_the_index() {
    for (server, base) in SERVERS {
        let folder = copied(server);
        fs::remove_file(folder.path().join(format!("{base}.000002"))).unwrap();
        let (status, report) = check(&[folder.path()]);
        assert_eq!((status, &report["verdict"]), (Some(0), &Value::from("suspect")), "{report}");
        let gap = &report["targets"][0]["binlogs"]["gaps"][0];
        assert_eq!(gap["first"], format!("{base}.000002"));
        assert_eq!(report["targets"][0]["binlogs"]["reachable"].as_array().unwrap().len(), 2);
        assert!(findings(&report).iter().all(|it| it["kind"] == "missing"), "{report}");
        fs::remove_file(folder.path().join(format!("{base}.000004"))).unwrap();
        let (_, report) = check(&[folder.path()]);
        let of_index = findings(&report);
        assert!(of_index.iter().any(|it| it["file"] == format!("{base}.000004")), "{report}");
    }
}

/// Flips one bit in each of many copies; the ones that no sum covers are the two of the magic of a file.
#[test]
fn each_flipped_bit_is_found_in_its_file() {
    let mut state = SEED;
    for (server, base) in SERVERS {
        let folder = copied(server);
        for _ in 0..150 {
            let number = random(&mut state) % 3 + 1;
            let path = folder.path().join(format!("{base}.00000{number}"));
            let whole = fs::read(&path).unwrap();
            let at = usize::try_from(random(&mut state)).unwrap() % whole.len();
            let bit = 1_u8 << (random(&mut state) % 8);
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            fs::write(&path, &bytes).unwrap();
            let (status, report) = check(&[folder.path()]);
            let case = format!("{SEED:x} {server} {number} {at} {bit}: {report}");
            // In use or not is the one bit that no sum covers.
            if at == 4 + 17 && bit == 1 {
                assert_eq!(status, Some(0), "{case}");
            } else {
                assert_eq!(status, Some(1), "{case}");
                let found = findings(&report);
                let damage: Vec<_> = found.iter().filter(|it| it["severity"] == "damage").collect();
                assert_eq!(damage.len(), 1, "{case}");
                assert_eq!(damage[0]["file"], format!("{base}.00000{number}"), "{case}");
                let place = damage[0]["offset"].as_u64().unwrap();
                assert!(place <= at as u64, "{case}");
            }
            fs::write(&path, &whole).unwrap();
        }
    }
}

/// What the servers' own programs find, where they are: `MYSQLBINLOG` and `MARIADB_BINLOG` name them.
#[test]
#[ignore = "needs the programs of the servers; 600 runs of each"]
fn what_the_servers_programs_find_is_found() {
    let mut state = SEED;
    for ((server, base), variable) in SERVERS.into_iter().zip(["MARIADB_BINLOG", "MYSQLBINLOG"]) {
        let Some(program) = std::env::var_os(variable) else {
            eprintln!("SKIPPED: {variable} names no program");
            continue;
        };
        let folder = copied(server);
        let (mut by_us, mut by_them, mut only_them) = (0, 0, Vec::new());
        for _ in 0..600 {
            let number = random(&mut state) % 3 + 1;
            let path = folder.path().join(format!("{base}.00000{number}"));
            let whole = fs::read(&path).unwrap();
            let at = usize::try_from(random(&mut state)).unwrap() % whole.len();
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (random(&mut state) % 8);
            fs::write(&path, &bytes).unwrap();
            let ours = run(pagewarden().arg("check").arg(&path)).status != Some(0);
            let mut command = Command::new("sh");
            command
                .args(["-c", "$0 --no-defaults --verify-binlog-checksum \"$1\" >/dev/null 2>&1"]);
            let theirs = !command.arg(&program).arg(&path).status().unwrap().success();
            by_us += i32::from(ours);
            by_them += i32::from(theirs);
            if theirs && !ours {
                only_them.push((number, at));
            }
            fs::write(&path, &whole).unwrap();
        }
        eprintln!(
            "{server}: of 600 flips {by_us} found by pagewarden, {by_them} by the server's program"
        );
        assert!(only_them.is_empty(), "{server}: {only_them:?}");
    }
}

#[test]
fn backup_is_brought_to_the_last_transaction_before_a_fault() {
    for (server, base) in SERVERS {
        let folder = copied(server);
        let backup = tempfile::tempdir().unwrap();
        // Nothing of it is a database: the log is what is asked about.
        let label = backup.path().join("xtrabackup_binlog_info");
        let log = Path::new("--log");
        let position = |file: u8, position: u64| {
            fs::write(&label, format!("{base}.00000{file}\t{position}\t0-1-2\n")).unwrap();
            fs::write(
                backup.path().join("xtrabackup_checkpoints"),
                "backup_type = full-backuped\nfrom_lsn = 0\nto_lsn = 1\nlast_lsn = 1\n",
            )
            .unwrap();
            check(&[backup.path(), log, folder.path()]).1
        };
        let report = position(2, 4);
        let way = |report: &Value| {
            let target = report["targets"].as_array().unwrap().last().unwrap().clone();
            target["binlogs"]["reachable"].get(0).cloned()
        };
        let whole = way(&report).unwrap_or_else(|| panic!("{report}"));
        assert_eq!(whole["to_file"], format!("{base}.000004"), "{report}");
        assert!(whole["to_time"].is_string());
        // No event begins there.
        assert!(way(&position(2, 77)).is_none());
        assert!(way(&position(9, 4)).is_none());
        let path = folder.path().join(format!("{base}.000003"));
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 60;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let cut = way(&position(2, 4)).unwrap();
        assert_ne!(cut["to_file"], format!("{base}.000004"));
        fs::remove_file(&path).unwrap();
        assert_eq!(way(&position(2, 4)).unwrap()["to_file"], format!("{base}.000002"));
    }
}

#[test]
fn encrypted_logs_are_not_called_good() {
    let folder = copied("mysql-9.7");
    let path = folder.path().join("binlog.000002");
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] = 0xfd;
    fs::write(&path, &bytes).unwrap();
    let (status, report) = check(&[&path]);
    assert_eq!((status, &report["verdict"]), (Some(2), &Value::from("incomplete")), "{report}");
    assert!(report.to_string().contains("encrypted"), "{report}");
}

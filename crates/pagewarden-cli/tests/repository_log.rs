//! The log that repositories keep, read by `pagewarden check`: what it brings back, and what a lost or
//! damaged segment costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::runner::{Outcome, pagewarden, run};

/// Repositories of the collection, each with the folder of its log; none of them encrypted.
const REPOSITORIES: [(&str, &str, &str); 7] = [
    ("pgbackrest-2.45-gz", "repo", "archive/demo/15-1/0000000100000000"),
    ("pgbackrest-2.45-bundle-lz4", "repo", "archive/demo/15-1/0000000100000000"),
    ("pgbackrest-2.60-zst", "repo", "archive/demo/15-1/0000000100000000"),
    ("walg-lz4", "repo", "wal_005"),
    ("walg-brotli-parts", "repo", "wal_005"),
    ("barman-3.4-tar-gz", "demo", "wals/0000000100000000"),
    ("barman-3.19-tar-zstd", "demo", "wals/0000000100000000"),
];

/// A copy of each of them. What is not there is said aloud.
fn copies() -> Vec<(&'static str, tempfile::TempDir, PathBuf, PathBuf)> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into();
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let mut copies = Vec::new();
    for (name, repository, log) in REPOSITORIES {
        let fixture = root.join("backups").join(name).join(repository);
        if !fixture.is_dir() {
            assert!(std::env::var_os("CI").is_none(), "{} is not there", fixture.display());
            eprintln!("SKIPPED: {} is not there", fixture.display());
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let copied =
            Command::new("cp").arg("-a").arg(&fixture).arg(folder.path()).status().unwrap();
        let opened = Command::new("chmod").args(["-R", "u+w"]).arg(folder.path()).status().unwrap();
        assert!(copied.success() && opened.success());
        let repository = folder.path().join(repository);
        let log = repository.join(log);
        copies.push((name, folder, repository, log));
    }
    copies
}

/// The stored segments by the names that the server gave them.
fn segments(log: &Path) -> Vec<(String, PathBuf)> {
    let paths = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            let digits = name.get(..24)?.to_owned();
            (!name.contains(".backup") && !name.contains("history")).then_some((digits, path))
        })
        .collect();
    found.sort();
    found
}

fn check(repository: &Path) -> (Outcome, Value) {
    let outcome = run(pagewarden().args(["check", "--json"]).arg(repository));
    let json = outcome.report().json;
    let whole = json["targets"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(whole["path"], repository.display().to_string());
    (outcome, whole)
}

/// The segment in which a set's log begins.
fn segment_of(restorable: &Value, sets: &Value) -> String {
    let label = restorable["set"].as_str().unwrap();
    let set = sets.as_array().unwrap().iter().find(|set| set["backup"]["label"] == label).unwrap();
    let lsn = set["backup"]["from_lsn"].as_str().unwrap();
    let (high, low) = lsn.split_once('/').unwrap();
    let (high, low) =
        (u64::from_str_radix(high, 16).unwrap(), u64::from_str_radix(low, 16).unwrap());
    // The collection's segments have 1 MiB.
    format!("00000001{high:08X}{:08X}", low >> 20)
}

#[test]
fn sound_log_brings_every_set_to_its_end() {
    for (name, _folder, repository, log) in copies() {
        let (outcome, whole) = check(&repository);
        assert_eq!(outcome.status, Some(0), "{name}: {}", outcome.stdout);
        assert_eq!(whole["log"]["segments"], segments(&log).len(), "{name}");
        assert_eq!(whole["log"]["gaps"], serde_json::json!([]), "{name}");
        let sets = outcome.report().json["targets"].as_array().unwrap().len() - 1;
        let restorable = whole["log"]["restorable"].as_array().unwrap();
        assert_eq!(restorable.len(), sets, "{name}: {restorable:?}");
        for way in restorable {
            assert!(way["from_time"].as_str() <= way["to_time"].as_str(), "{name}: {way}");
        }
        let text = run(pagewarden().arg("check").arg(&repository)).stdout;
        let sentence = format!("{sets} of {sets} set");
        assert!(text.contains(&sentence) && text.contains("can be restored"), "{name}: {text}");
        let without = run(pagewarden().args(["check", "--no-log"]).arg(&repository));
        assert_eq!(without.status, Some(0), "{name}");
        assert!(without.stdout.contains("(--no-log)"), "{name}: {}", without.stdout);
    }
}

#[test]
fn set_whose_log_lacks_a_segment_cannot_be_made_consistent() {
    for (name, folder, repository, log) in copies() {
        let (outcome, whole) = check(&repository);
        let sets = outcome.report().json["targets"].clone();
        for way in whole["log"]["restorable"].as_array().unwrap() {
            let wanted = segment_of(way, &sets);
            let all = segments(&log);
            let (_, path) = all.iter().find(|(segment, _)| *segment == wanted).unwrap();
            let is_first = all[0].0 == wanted;
            let kept = folder.path().join("kept");
            fs::rename(path, &kept).unwrap();
            let (outcome, whole) = check(&repository);
            let label = way["set"].as_str().unwrap();
            let findings = whole["findings"].as_array().unwrap();
            let is_named = findings.iter().any(|finding| {
                finding["severity"] == "damage"
                    && finding["kind"] == "missing"
                    && (finding["file"] == wanted.as_str() || all.len() == 1)
                    && finding["detail"].as_str().unwrap().contains(label)
            });
            // Of tools that call a set done before its log is archived: what is kept may begin later,
            // and what is the last may be on its way.
            let waits = !name.starts_with("walg");
            if waits {
                assert!(is_named, "{name} {wanted}: {findings:?}");
                assert_eq!(outcome.status, Some(1), "{name} {wanted}");
            } else {
                assert!(outcome.status == Some(1) && is_named || outcome.status != Some(1));
                assert!(whole["verdict"] != "intact", "{name} {wanted} {is_first}");
            }
            let ways = whole["log"]["restorable"].as_array().cloned().unwrap_or_default();
            assert!(ways.iter().all(|way| way["set"] != label), "{name} {wanted}: {ways:?}");
            fs::rename(&kept, path).unwrap();
        }
    }
}

#[test]
fn flipped_bit_in_a_stored_segment_is_named_by_its_stored_file() {
    let (mut made, mut found) = (0, 0);
    for (name, _folder, repository, log) in copies() {
        for (segment, path) in segments(&log) {
            let sound = fs::read(&path).unwrap();
            let mut bytes = sound.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let (_, whole) = check(&repository);
            made += 1;
            let stored = path.strip_prefix(&repository).unwrap().display().to_string();
            let is_named = whole["findings"].as_array().unwrap().iter().any(|finding| {
                finding["stored_file"] == stored.as_str() && finding["severity"] != "notice"
            });
            let is_unused = whole["findings"].as_array().unwrap().iter().any(|finding| {
                finding["stored_file"] == stored.as_str() && finding["severity"] == "notice"
            });
            // Brotli and LZMA have no sum: a flip in what becomes zeroes behind the last record of a
            // segment changes nothing that a server reads.
            let has_no_sum = name.contains("brotli");
            assert!(is_named || is_unused || has_no_sum, "{name} {segment}: {}", whole["findings"]);
            found += u32::from(is_named || is_unused);
            fs::write(&path, &sound).unwrap();
        }
    }
    eprintln!("{found} of {made} flipped bits in stored segments were named");
    assert!(made == 0 || found * 10 >= made * 9);
}

/// What one change of a stored file makes of a repository.
fn changed(name: &str, change: impl Fn(&Path)) -> Option<(Option<i32>, Vec<Value>)> {
    let (_, _folder, repository, _) = copies().into_iter().find(|copy| copy.0 == name)?;
    change(&repository);
    let outcome = run(pagewarden().args(["check", "--json"]).arg(&repository));
    let json = outcome.report().json;
    let findings = json["targets"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|target| target["findings"].as_array().unwrap().clone());
    Some((outcome.status, findings.collect()))
}

fn is_said(findings: &[Value], severity: &str, kind: &str, words: &str) -> bool {
    findings.iter().any(|finding| {
        let text = format!("{} {}", finding["file"], finding["detail"]);
        finding["severity"] == severity && finding["kind"] == kind && text.contains(words)
    })
}

/// Each leaves every stored sum right.
#[test]
fn books_that_do_not_fit_what_is_stored_are_told() {
    let archive = |repository: &Path| repository.join("archive/demo/15-1");
    let sets = |repository: &Path| repository.join("basebackups_005");
    /// The repository, the status, what is said (severity, kind, words), and the change.
    type Case<'a> = (&'a str, Option<i32>, (&'a str, &'a str, &'a str), Box<dyn Fn(&Path) + 'a>);
    let cases: Vec<Case<'_>> = vec![
        (
            "walg-lz4",
            Some(1),
            ("damage", "missing", "backup_label"),
            Box::new(|repository| {
                for set in fs::read_dir(sets(repository)).unwrap().flatten() {
                    let _ = fs::remove_file(set.path().join("tar_partitions/backup_label.tar.lz4"));
                }
            }),
        ),
        (
            "walg-lz4",
            Some(1),
            ("damage", "misplaced", "another backup"),
            Box::new(|repository| {
                let full = "base_000000010000000000000010/tar_partitions/backup_label.tar.lz4";
                let delta = "base_000000010000000000000012_D_000000010000000000000010/tar_partitions/\
                         backup_label.tar.lz4";
                fs::copy(sets(repository).join(full), sets(repository).join(delta)).unwrap();
            }),
        ),
        (
            "pgbackrest-2.60-zst",
            Some(1),
            ("damage", "structure", "stored twice"),
            Box::new(|repository| {
                let log = archive(repository).join("0000000100000000");
                let (name, path) = segments(&log).into_iter().nth(1).unwrap();
                let sum = "0123456789abcdef0123456789abcdef01234567";
                fs::copy(path, log.join(format!("{name}-{sum}.zst"))).unwrap();
            }),
        ),
        (
            "pgbackrest-2.60-zst",
            Some(1),
            ("damage", "missing", "no segment"),
            Box::new(|repository| {
                let other = repository.join("archive/demo/14-1");
                fs::rename(archive(repository), other).unwrap();
            }),
        ),
        (
            "pgbackrest-2.60-zst",
            Some(0),
            ("suspect", "header", "00000002.history"),
            Box::new(|repository| {
                fs::write(archive(repository).join("00000002.history"), "x\n").unwrap();
            }),
        ),
        (
            "pgbackrest-2.60-zst",
            Some(1),
            ("damage", "missing", "backup.info"),
            Box::new(|repository| {
                for name in ["backup.info", "backup.info.copy"] {
                    fs::remove_file(repository.join("backup/demo").join(name)).unwrap();
                }
            }),
        ),
        (
            "barman-3.4-tar-gz",
            Some(1),
            ("damage", "header", "backup.info"),
            Box::new(|repository| {
                for set in fs::read_dir(repository.join("base")).unwrap().flatten() {
                    fs::write(set.path().join("backup.info"), "").unwrap();
                }
            }),
        ),
    ];
    for (name, status, (severity, kind, words), change) in cases {
        let Some((found, findings)) = changed(name, change) else { continue };
        assert!(is_said(&findings, severity, kind, words), "{name} {words}: {findings:#?}");
        assert_eq!(found, status, "{name} {words}: {findings:#?}");
    }
}

/// The newest set's log does not matter to a user who asks for an older one.
#[test]
fn log_is_judged_for_the_sets_that_are_asked_for() {
    for (name, _folder, repository, log) in copies() {
        let (outcome, _) = check(&repository);
        let json = outcome.report().json;
        let labels: Vec<_> = json["targets"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|target| target["backup"]["label"].as_str().map(str::to_owned))
            .collect();
        if labels.len() < 2 {
            continue;
        }
        let (_, newest) = segments(&log).pop().unwrap();
        fs::remove_file(newest).unwrap();
        let one = ["check", "--json", "--set", &labels[0]];
        let outcome = run(pagewarden().args(one).arg(&repository));
        assert_eq!(outcome.status, Some(0), "{name}: {}", outcome.stdout);
    }
}

//! `pagewarden survey` of repositories, on a disk and in a bucket: what the names tell, and nothing more.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::server::{Fault, Server};
use super::{command, repository};
use crate::runner::{pagewarden, run};

const REPOSITORIES: [(&str, &str); 6] = [
    ("pgbackrest-2.60-block-zst-pageerror", "repo"),
    ("walg-zstd", "repo"),
    ("walg-brotli-parts", "repo"),
    ("barman-3.19-tar-zstd", "demo"),
    ("barman-cloud-gz", "gz"),
    ("pgbackrest-2.45-bundle-lz4", "repo"),
];

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The ways of all logs: set, timeline, and both positions.
fn ways(logs: &Value) -> Vec<String> {
    let logs = logs.as_array().unwrap().iter();
    let ways = logs.flat_map(|log| log["restorable"].as_array().unwrap().clone());
    let mut ways: Vec<_> =
        ways.map(|way| format!("{} {} {}", way["set"], way["timeline"], way["from_lsn"])).collect();
    ways.sort();
    ways
}

#[test]
fn sets_and_ways_of_a_survey_are_those_of_a_check() {
    let mut seen = 0;
    for (name, folder) in REPOSITORIES {
        let Some(path) = repository(name, "").filter(|path| path.join(folder).is_dir()) else {
            continue;
        };
        seen += 1;
        let path = path.join(folder);
        let surveyed = run(pagewarden().args(["survey", "--json"]).arg(&path));
        let survey = object(&surveyed.stdout);
        let checked = run(pagewarden().args(["check", "--json"]).arg(&path));
        let check = object(&checked.stdout);
        let targets = check["targets"].as_array().unwrap();
        let labels = |sets: Vec<&Value>| -> Vec<String> {
            sets.into_iter()
                .map(|set| format!("{} {} {}", set["label"], set["type"], set["prior"]))
                .collect()
        };
        let of_check = targets.iter().filter_map(|it| it.get("backup")).collect();
        let of_survey = survey["sets"].as_array().unwrap().iter().collect();
        assert_eq!(labels(of_survey), labels(of_check), "{name}");
        let log = targets.iter().find_map(|it| it.get("log")).unwrap();
        let segments: u64 = survey["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|log| log["segments"].as_u64().unwrap())
            .sum();
        assert_eq!(log["segments"], segments, "{name}");
        assert_eq!(ways(&survey["logs"]), ways(&Value::from(vec![log.clone()])), "{name}");
        // This one came without the log that it needs.
        let status = if name == "barman-cloud-gz" { 2 } else { 0 };
        assert_eq!(surveyed.status, Some(status), "{name}: {}", surveyed.stdout);
        assert_eq!(survey["verdict"], "not checked");
        let screen = run(pagewarden().arg("survey").arg(&path));
        for word in ["intact", "healthy", "3 sound", "is sound"] {
            assert!(
                !format!("{}{}", screen.stdout, surveyed.stdout).contains(word),
                "{}",
                screen.stdout
            );
        }
        assert!(screen.stdout.contains("not checked"), "{}", screen.stdout);
        let server = Server::start();
        server.put_folder("it", &path);
        let stored = run(&mut command(&server, "survey", &["--json", "s3://bucket/it"]));
        let stored = object(&stored.stdout);
        assert_eq!(ways(&stored["logs"]), ways(&survey["logs"]), "{name}");
        assert_eq!(stored["full_check"]["bytes"], survey["full_check"]["bytes"], "{name}");
        assert_eq!(stored["storage"]["requests"], server.seen().len(), "{name}");
        assert!(stored["full_check"]["requests"].as_u64().unwrap() > 0);
    }
    assert!(seen >= 4 || std::env::var_os("CI").is_none(), "{seen}");
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copied(&path, &to),
            false if path.is_symlink() => {}
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

#[test]
fn segment_that_a_set_needs_is_missed_by_its_name() {
    let Some(path) = repository("walg-zstd", "repo") else { return };
    let folder = tempfile::tempdir().unwrap();
    copied(&path, folder.path());
    let mut segments: Vec<_> = fs::read_dir(folder.path().join("wal_005"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_stem().is_some_and(|stem| stem.len() == 24))
        .collect();
    segments.sort();
    for segment in &segments {
        let bytes = fs::read(segment).unwrap();
        fs::remove_file(segment).unwrap();
        let surveyed = run(pagewarden().args(["survey", "--json"]).arg(folder.path()));
        let survey = object(&surveyed.stdout);
        let checked = run(pagewarden().args(["check", "--json"]).arg(folder.path()));
        let check = object(&checked.stdout);
        let log = check["targets"].as_array().unwrap().iter().find_map(|it| it.get("log"));
        let gaps = log.map_or(Value::Array(Vec::new()), |log| log["gaps"].clone());
        assert_eq!(survey["logs"][0]["gaps"], gaps, "{}", segment.display());
        let lacking = survey["logs"][0]["lacking"].as_array().unwrap().len();
        // WAL-G does not wait for the log of a set.
        assert_eq!(surveyed.status, Some(if lacking > 0 { 2 } else { 0 }), "{survey}");
        fs::write(segment, bytes).unwrap();
    }
}

#[test]
fn list_that_fails_is_not_taken_for_an_empty_log() {
    let Some(path) = repository("walg-zstd", "repo") else { return };
    let server = Server::start();
    server.put_folder("it", &path);
    server.fail("prefix=it%2Fwal_005", usize::MAX, Fault::Status(503));
    let surveyed = run(&mut command(&server, "survey", &["s3://bucket/it"]));
    assert_eq!(surveyed.status, Some(2), "{}{}", surveyed.stdout, surveyed.stderr);
    assert!(surveyed.stdout.contains("unknown"), "{}", surveyed.stdout);
}

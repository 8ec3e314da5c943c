//! A folder of a bucket with many databases in it: each is found and checked, at once or in parts, and
//! what cannot be looked at is never passed over.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::server::{Fault, Server};
use super::{command, repository};
use crate::runner::{pagewarden, run};

const PACK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pack/1/shop.pwk");

fn sqlite(statements: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it");
    let mut sqlite = std::process::Command::new("sqlite3");
    assert!(sqlite.arg(&path).arg(statements).status().unwrap().success());
    fs::read(&path).unwrap()
}

/// Packs, SQLite files under names that say nothing, one archive's worth of other things; damage in one
/// of the first and one of the second.
fn fill(server: &Server) {
    let pack = fs::read(PACK).unwrap();
    let sqlite = sqlite("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2);");
    for number in 0..20 {
        let (mut pack, mut sqlite) = (pack.clone(), sqlite.clone());
        if number == 7 {
            let middle = pack.len() / 2;
            pack[middle] ^= 1;
            sqlite[4096] = 0xFF;
        }
        server.put(&format!("fleet/packs/{number:02}.pwk"), pack);
        server.put(&format!("fleet/customers/{number:02}/data"), sqlite);
    }
    server.put("fleet/README", "nothing of interest");
    server.put("fleet/empty.sqlite", "");
}

fn report(server: &Server, arguments: &[&str], status: i32) -> Value {
    let outcome = run(&mut command(server, arguments[0], &arguments[1..]));
    assert_eq!(outcome.status, Some(status), "{}{}", outcome.stdout, outcome.stderr);
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Paths of targets with a finding, and all paths.
fn paths(report: &Value) -> (Vec<String>, Vec<String>) {
    let (mut wounded, mut all) = (Vec::new(), Vec::new());
    for target in report["targets"].as_array().unwrap() {
        let path = target["path"].as_str().unwrap().to_owned();
        if target["verdict"] == "damaged" {
            wounded.push(path.clone());
        }
        all.push(path);
    }
    (wounded, all)
}

#[test]
fn all_databases_in_a_folder_are_found_at_once_and_in_parts() {
    let server = Server::start();
    fill(&server);
    let whole = report(&server, &["check", "--json", "s3://bucket/fleet"], 1);
    let (wounded, all) = paths(&whole);
    assert_eq!(all.len(), 40);
    let expected = ["s3://bucket/fleet/customers/07/data", "s3://bucket/fleet/packs/07.pwk"];
    assert_eq!(wounded, expected);
    assert_eq!(whole["verdict"], "damaged");
    let data = whole["targets"].as_array().unwrap().iter().find(|one| one["path"] == expected[0]);
    assert_eq!(data.unwrap()["findings"][0]["file"], "data");

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let plan = path("plan");
    let planned = ["plan", "--json", "--unit", "100KiB", "s3://bucket/fleet", "-o", plan.as_str()];
    let planned = report(&server, &planned, 0);
    assert_eq!(planned["targets"], 40);
    assert!(planned["units"].as_u64().unwrap() >= 3, "{planned}");
    assert!(!fs::read_to_string(&plan).unwrap().contains("canary"));
    let results = [path("1"), path("2"), path("3")];
    for (number, result) in (1..).zip(&results) {
        let part = format!("{number}/3");
        let mut part =
            command(&server, "check", &["-q", "--plan", &plan, "--part", &part, "-o", result]);
        assert!(matches!(run(&mut part).status, Some(0 | 1)));
    }
    let merged = run(pagewarden().args(["merge", "--json", &plan]).args(&results));
    assert_eq!(merged.status, Some(1), "{}", merged.stderr);
    let merged: Value = serde_json::from_str(&merged.stdout).unwrap();
    assert_eq!(super::comparable(&merged, "-"), super::comparable(&whole, "-"));

    // An object that is another one by then is checked as it is, and this is said.
    server.put("fleet/customers/03/data", sqlite("CREATE TABLE t (a); CREATE TABLE u (a);"));
    let late = path("late");
    let last = run(&mut command(&server, "check", &["--plan", &plan, "-o", &late]));
    assert!(last.stdout.contains("it changed since it was planned"), "{}", last.stdout);
}

/// As a gateway has them of files that were put into its folder by others.
#[test]
fn objects_without_tags_are_read_and_their_lengths_watched() {
    let server = Server::start();
    fill(&server);
    server.forget_tags();
    let whole = report(&server, &["check", "--json", "s3://bucket/fleet"], 1);
    let (wounded, all) = paths(&whole);
    assert_eq!((wounded.len(), all.len(), &whole["verdict"]), (2, 40, &"damaged".into()));
    let alone = report(&server, &["check", "--json", "s3://bucket/fleet/packs/05.pwk"], 0);
    assert_eq!(alone["verdict"], "intact");
}

#[test]
fn store_that_does_not_answer_hides_nothing() {
    let (folder, says) = ("s3://bucket/fleet", "what it is could not be found out");
    for (part, fault) in [
        ("prefix=fleet%2Fcustomers%2F05%2F", Fault::Status(503)),
        ("GET /bucket/fleet/customers/05/data", Fault::Status(403)),
        ("GET /bucket/fleet/customers/05/data", Fault::CutBody),
        ("prefix=fleet%2F HTTP", Fault::Status(500)),
    ] {
        let server = Server::start();
        fill(&server);
        server.fail(part, usize::MAX, fault);
        let outcome = run(&mut command(&server, "check", &[folder]));
        let case = format!("{part} {fault:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.status, Some(2), "{case}");
        assert!(outcome.stderr.contains(says), "{case}");
        let place = tempfile::tempdir().unwrap();
        let plan = place.path().join("plan");
        let plan = ["-o", plan.to_str().unwrap(), folder];
        let planned = run(&mut command(&server, "plan", &plan));
        assert_eq!(planned.status, Some(2), "{case}");
        assert!(planned.stderr.contains(says) && !Path::new(plan[1]).exists(), "{case}");
    }
    // Once it is known what there is, what fails is of one object.
    let server = Server::start();
    fill(&server);
    server.fail("GET /bucket/fleet/packs/05.pwk", usize::MAX, Fault::Status(500));
    let outcome = run(&mut command(&server, "check", &[folder, "--json"]));
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    let report = outcome.report().json;
    assert_eq!(paths(&report).0.len(), 2, "the others were read");
    assert!(outcome.stderr.contains("fleet/packs/05.pwk"), "{}", outcome.stderr);
}

#[test]
fn database_in_files_of_its_own_is_refused_and_not_taken_for_some_of_its_files() {
    let Some(repository) = repository("walg-zstd", "repo") else { return };
    let server = Server::start();
    fill(&server);
    server.put_folder("fleet/walg", &repository);
    let pack = fs::read(PACK).unwrap();
    for (key, mark) in [
        ("fleet/main/PG_VERSION", "PG_VERSION"),
        ("fleet/global/pg_control", "pg_control"),
        ("fleet/mysql/ibdata1", "ibdata1"),
        ("fleet/aria/t.MAD", "t.MAD"),
    ] {
        server.put(key, "15\n");
        let beside = Path::new(key).parent().unwrap().join("x.pwk");
        server.put(beside.to_str().unwrap(), pack.clone());
        let outcome = run(&mut command(&server, "check", &["s3://bucket/fleet", "--json"]));
        let case = format!("{key}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("in files of its own"), "{case}");
        assert!(outcome.stderr.contains(mark) && outcome.stderr.contains("hint:"), "{case}");
        let (_, all) = paths(&outcome.report().json);
        assert!(!all.iter().any(|path| path.ends_with("x.pwk")), "{case}");
        assert_eq!(all.iter().filter(|path| path.contains("fleet/walg")).count(), 4, "{case}");
        let alone = format!("s3://bucket/fleet/{}", key.split('/').nth(1).unwrap());
        let alone = run(&mut command(&server, "check", &[&alone]));
        assert_eq!(alone.status, Some(2), "{case}");
        assert!(alone.stderr.contains("in files of its own"), "{case}");
    }
}

#[test]
fn database_is_read_with_its_log_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live");
    // The process ends without closing the database, so that its log stays.
    let script = "import os,sqlite3,sys; c=sqlite3.connect(sys.argv[1]);\n\
                  c.execute('PRAGMA journal_mode=WAL'); c.execute('CREATE TABLE t (a)');\n\
                  c.execute('INSERT INTO t VALUES (1)'); c.commit(); os._exit(0)";
    let mut python = std::process::Command::new("python3");
    assert!(python.args(["-c", script]).arg(&path).status().unwrap().success());
    fs::remove_file(folder.path().join("live-shm")).unwrap();
    let log = fs::read(folder.path().join("live-wal")).unwrap();
    assert!(log.len() > 8000, "{}", log.len());
    let server = Server::start();
    server.put("apps/live", fs::read(&path).unwrap());
    server.put("apps/live-wal", log.clone());
    let here = run(pagewarden().args(["check", "--json"]).arg(&path)).report().json;
    for address in ["s3://bucket/apps", "s3://bucket/apps/live"] {
        let there = report(&server, &["check", "--json", address], 0);
        let (here, there) = (&here["targets"][0], &there["targets"][0]);
        for key in ["pages", "engine", "state", "findings", "verdict"] {
            assert_eq!(here[key], there[key], "{address} {key}");
        }
        let notes = |target: &Value| target["notes"].as_array().unwrap().len();
        assert_eq!(notes(there), notes(here) + 1, "{there}");
    }
    let mut torn = log;
    let last = torn.len() - 4000;
    torn[last] ^= 1;
    server.put("apps/live-wal", torn);
    let there = run(&mut command(&server, "check", &["s3://bucket/apps"]));
    assert_ne!(there.status, Some(0), "{}", there.stdout);
}

#[test]
fn folder_of_a_bucket_is_listed_once_and_asked_for_nothing_that_is_not_in_it() {
    let server = Server::start();
    let database = sqlite("CREATE TABLE t (a); INSERT INTO t VALUES (1), (2);");
    for customer in 0..5 {
        server.put(&format!("all/{customer}/shop.sqlite"), database.clone());
    }
    let report = report(&server, &["check", "--json", "s3://bucket/all"], 0);
    assert_eq!(report["targets"].as_array().unwrap().len(), 5, "{report}");
    for customer in 0..5 {
        let (listed, read) = (format!("prefix=all%2F{customer}%2F"), format!("/all/{customer}/"));
        let is_of_it = |head: &String| head.contains(&listed) || head.contains(&read);
        let seen =
            server.seen().into_iter().map(|seen| seen.head.lines().next().unwrap().to_owned());
        let asked: Vec<_> = seen.filter(is_of_it).collect();
        let [list, get] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(list.contains("delimiter=") && get.starts_with("GET /bucket/all/"), "{asked:?}");
    }
}

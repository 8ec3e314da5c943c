//! Backups of SQL Server in a bucket: which of them fit together, and those striped over several files,
//! as on a disk.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::server::{Fault, Server};
use super::{command, comparable};
use crate::runner::{pagewarden, run};
use crate::sqlserver::backups::striped;
use crate::sqlserver::chains::{CHAIN, folder_of};
use crate::sqlserver::fixture;
use crate::sqlserver::wild::wild;

const ADDRESS: &str = "s3://bucket/backups/sql";
/// One that can be dealt out to two stripes, and where its first page lies.
const PUBS: (&str, usize) = ("pubs-full-2012.bak", 16_384);

fn report(server: &Server, arguments: &[&str]) -> (Option<i32>, Value) {
    let outcome = run(&mut command(server, arguments[0], &arguments[1..]));
    let report = serde_json::from_str(&outcome.stdout);
    (outcome.status, report.unwrap_or_else(|error| panic!("{error}: {}", outcome.stderr)))
}

fn on_disk(folder: &TempDir) -> (Option<i32>, Value) {
    let outcome = run(pagewarden().args(["check", "--json"]).arg(folder.path()));
    (outcome.status, outcome.report().json)
}

/// The statements of the folder, the last target, taken out of the report and its notes.
fn statements(report: &mut Value) -> Vec<String> {
    let folder = report["targets"].as_array_mut().unwrap().last_mut().unwrap();
    let is_statement = |text: &str| text.starts_with("RESTORE ") || text.starts_with("-- ");
    let notes = folder["notes"].as_array_mut().unwrap();
    notes.retain(|note| !is_statement(note["text"].as_str().unwrap()));
    let restore = folder["databases"][0]["restore"].take();
    let all = restore.as_array().unwrap_or_else(|| panic!("{folder}"));
    all.iter().map(|statement| statement.as_str().unwrap().to_owned()).collect()
}

/// The same report, but for where the files are copied from before they are restored.
#[track_caller]
fn assert_same(there: Value, here: Value, root: &Path) {
    assert_same_at(ADDRESS, there, here, root);
}

/// The same, of backups at another address.
#[track_caller]
pub(super) fn assert_same_at(address: &str, mut there: Value, mut here: Value, root: &Path) {
    let (there_by, here_by) = (statements(&mut there), statements(&mut here));
    assert!(there_by[0].starts_with("-- Copy the files"), "{there_by:?}");
    let folder = format!("{}/", root.display());
    let names: Vec<_> = here_by.iter().map(|statement| statement.replace(&folder, "")).collect();
    assert_eq!(there_by[1..], names[..]);
    assert_equal(&comparable(&there, address), &comparable(&here, root.to_str().unwrap()));
}

/// Long texts, of which the first difference is shown.
#[track_caller]
fn assert_equal(one: &str, other: &str) {
    let alike = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let shown = |text: &str| text.chars().skip(alike.saturating_sub(80)).take(200).collect();
    let [one_there, other_there]: [String; 2] = [one, other].map(shown);
    assert!(one == other, "{one_there}\n{other_there}");
}

#[test]
fn chain_in_a_bucket_is_told_as_on_a_disk_and_in_parts() {
    let Some(folder) = folder_of(&CHAIN) else { return };
    let server = Server::start();
    server.put_folder("backups/sql", folder.path());
    let (here_status, here) = on_disk(&folder);
    let (status, there) = report(&server, &["check", "--json", ADDRESS]);
    assert_eq!(status, here_status);
    assert_same(there.clone(), here, folder.path());

    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (plan, result) = (path("plan"), path("result"));
    let (_, planned) = report(&server, &["plan", "--json", ADDRESS, "-o", &plan]);
    assert_eq!((&planned["units"], &planned["targets"]), (&1.into(), &5.into()), "{planned}");
    let part = ["-q", "--plan", &plan, "--part", "1/1", "-o", &result];
    assert_eq!(run(&mut command(&server, "check", &part)).status, Some(0));
    let merged = run(pagewarden().args(["merge", "--json", &plan, &result]));
    assert_eq!(merged.status, status, "{}", merged.stderr);
    assert_eq!(comparable(&merged.report().json, "-"), comparable(&there, "-"));

    // Each of them damaged in its middle, and each gone.
    for name in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()) {
        let (file, key) = (folder.path().join(&name), format!("backups/sql/{}", name.display()));
        let sound = fs::read(&file).unwrap();
        let mut wounded = sound.clone();
        let middle = wounded.len() / 2;
        wounded[middle..middle + 64].fill(0xA5);
        fs::write(&file, &wounded).unwrap();
        server.put(&key, wounded);
        let (here_status, mut here) = on_disk(&folder);
        let (status, mut there) = report(&server, &["check", "--json", ADDRESS]);
        assert_eq!(status, here_status, "{key}");
        assert_eq!(there["targets"].as_array().unwrap().len(), 5, "{key}");
        statements(&mut here);
        statements(&mut there);
        let here = comparable(&here, folder.path().to_str().unwrap());
        assert_equal(&comparable(&there, ADDRESS), &here);
        fs::write(&file, &sound).unwrap();
        server.put(&key, sound);
    }
}

#[test]
fn each_backup_of_a_bucket_is_asked_once_what_it_is() {
    // With names that say so, and with some that do not.
    for name in [|name: &str| name.to_owned(), |name: &str| format!("{name}.data")] {
        let server = Server::start();
        for file in CHAIN {
            let Some(bytes) = wild(file) else { return };
            assert!(bytes.len() < 4 << 20, "{file} is read in one piece");
            server.put(&format!("backups/sql/{}", name(file)), bytes);
        }
        let (_, there) = report(&server, &["check", "--json", ADDRESS]);
        assert_eq!(there["targets"].as_array().unwrap().len(), 5, "{there}");
        let gets = |file: &str| {
            let of_it = |head: &str| head.starts_with("GET ") && head.contains(&name(file));
            server.seen().iter().filter(|seen| of_it(&seen.head)).count()
        };
        assert_eq!(CHAIN.map(gets), [2; 4], "its first bytes, and all of it");
        let requests = there["storage"]["requests"].as_u64();
        assert_eq!(requests, Some(server.seen().len() as u64));
    }
}

#[test]
fn backup_that_the_store_does_not_give_is_not_built_upon() {
    let Some(folder) = folder_of(&CHAIN) else { return };
    let server = Server::start();
    server.put_folder("backups/sql", folder.path());
    // Its first bytes come, and then no more.
    server.fail("GET /bucket/backups/sql/file0.data", usize::MAX, Fault::Status(503));
    let outcome = run(&mut command(&server, "check", &["--json", ADDRESS]));
    assert_eq!(outcome.status, Some(2), "{}{}", outcome.stdout, outcome.stderr);
    assert!(!outcome.stdout.contains("\"verdict\":\"intact\""), "{}", outcome.stdout);
}

#[test]
fn stripes_in_a_bucket_are_read_together() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    for (number, stripe) in (1..).zip(striped(&bytes, PUBS.1)) {
        fs::write(folder.path().join(format!("{number}.bak")), &stripe).unwrap();
        server.put(&format!("backups/sql/{number}.bak"), stripe);
    }
    let (here_status, here) = on_disk(&folder);
    let (status, there) = report(&server, &["check", "--json", ADDRESS]);
    assert_eq!((status, here_status), (Some(0), Some(0)), "{there}");
    assert_eq!(there["targets"][0]["verdict"], here["targets"][0]["verdict"]);
    assert_eq!(there["targets"].as_array().unwrap().len(), 2);
    assert_same(there, here, folder.path());

    let stripes = [1, 2].map(|number| format!("{ADDRESS}/{number}.bak"));
    let named = report(&server, &["check", "--json", &stripes[0], &stripes[1]]);
    assert_eq!(named.0, Some(0), "{}", named.1);
    assert_eq!(named.1["targets"].as_array().unwrap().len(), 1);
    let (status, alone) = report(&server, &["check", "--json", &stripes[1]]);
    assert_eq!((status, &alone["verdict"]), (Some(2), &"incomplete".into()), "{alone}");

    let [there, here] = ["there", "here"].map(|name| folder.path().join(name));
    let (to, files) = (there.to_str().unwrap(), [stripes[0].as_str(), stripes[1].as_str()]);
    let unpacked = run(&mut command(&server, "unpack", &[files[0], files[1], to]));
    assert_eq!(unpacked.status, Some(0), "{}", unpacked.stderr);
    let files = ["1.bak", "2.bak"].map(|name| folder.path().join(name));
    assert_eq!(run(pagewarden().arg("unpack").args(files).arg(&here)).status, Some(0));
    for entry in fs::read_dir(&here).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(fs::read(there.join(&name)).unwrap(), fs::read(here.join(&name)).unwrap());
    }
}

//! What is in object storage: `pagewarden check` here, packs and surveys in `packs`, by a server of our own that fails on request.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::runner::{pagewarden, run};

#[path = "../../pagewarden-cloud/tests/server.rs"]
pub(crate) mod server;

mod folders;
mod lake;
mod packs;
mod sqlserver;
mod store_trials;
mod stores;
mod surveys;

use server::{Fault, Server};

const KEY: &str = "canary-key-id";
const SECRET: &str = "canary-secret-access-key";

fn check(server: &Server, arguments: &[&str]) -> Command {
    command(server, "check", arguments)
}

/// The program, with credentials for a server.
pub(crate) fn command(server: &Server, name: &str, arguments: &[&str]) -> Command {
    let mut command = pagewarden();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.args([name, "--endpoint", &server.endpoint]);
    command.args(["--storage-option", "retry_wait_ms=1", "--storage-option", "retries=2"]);
    command.args(arguments);
    command
}

/// A repository of the collection. `None`, said aloud, where there are no fixtures.
pub(crate) fn repository(name: &str, folder: &str) -> Option<PathBuf> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into();
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let path = root.join("backups").join(name).join(folder);
    if !path.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", path.display());
        eprintln!("SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// A report without what differs from run to run, and with the repository under one name.
pub(crate) fn comparable(report: &Value, root: &str) -> String {
    let mut report = report.clone();
    let object = report.as_object_mut().unwrap();
    for key in ["seconds", "mib_per_second", "storage"] {
        object.remove(key);
    }
    for target in object["targets"].as_array_mut().unwrap() {
        let target = target.as_object_mut().unwrap();
        target
            .retain(|key, _| !matches!(key.as_str(), "seconds" | "mib_per_second" | "throughput"));
    }
    report.to_string().replace(root, "ROOT")
}

#[test]
fn repository_in_a_bucket_gives_the_report_that_it_gives_on_a_disk() {
    for (name, folder) in [
        ("pgbackrest-2.60-block-zst-pageerror", "repo"),
        ("walg-zstd", "repo"),
        ("barman-3.19-tar-zstd", "demo"),
        ("barman-cloud-gz", "gz"),
    ] {
        let Some(path) = repository(name, folder) else { return };
        let server = Server::start();
        server.put_folder("backups/it", &path);
        let here = run(pagewarden().args(["check", "--json"]).arg(&path));
        let there = run(&mut check(&server, &["--json", "s3://bucket/backups/it"]));
        assert_eq!(there.status, here.status, "{name}: {} {}", there.stdout, there.stderr);
        let report = there.report().json;
        assert_eq!(
            comparable(&report, "s3://bucket/backups/it"),
            comparable(&here.report().json, path.to_str().unwrap()),
            "{name}"
        );
        let storage = &report["storage"];
        assert_eq!(storage["requests"].as_u64().unwrap(), server.seen().len() as u64, "{name}");
        assert_eq!(storage["retries"], 0);
        assert!(storage["bytes"].as_u64().unwrap() > 100_000, "{storage}");
        assert!(here.report().json.get("storage").is_none());
        let heads: String = server.seen().iter().map(|seen| seen.head.clone()).collect();
        assert!(heads.contains("AWS4-HMAC-SHA256") && !heads.contains(SECRET));
        assert!(!heads.contains("PUT ") && !heads.contains("POST ") && !heads.contains("DELETE "));
    }
}

#[test]
fn request_that_fails_leaves_the_check_incomplete_and_says_why() {
    let Some(path) = repository("walg-zstd", "repo") else { return };
    for (part, fault, says) in [
        ("part_001", Fault::Status(500), "500 Internal Server Error"),
        ("part_001", Fault::Status(403), "check that the credentials"),
        ("part_001", Fault::CutBody, "the request failed"),
        ("part_001", Fault::WrongRange, "another part"),
        ("part_001", Fault::ReplacedUnsaid, "replaced or changed"),
        ("files_metadata.json", Fault::Status(503), "503 Service Unavailable: SlowDown"),
        ("GET /bucket/it/wal_005", Fault::Replaced, "replaced or changed"),
        ("prefix=it%2Fwal_005", Fault::Status(503), "SlowDown"),
        ("prefix=it%2Fbasebackups", Fault::Status(403), "check that the credentials"),
    ] {
        let server = Server::start();
        server.put_folder("it", &path);
        server.fail(part, usize::MAX, fault);
        let outcome = run(&mut check(&server, &["--json", "s3://bucket/it"]));
        let case = format!("{part} {fault:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.status, Some(2), "{case}");
        let report = outcome.report().json;
        for target in report["targets"].as_array().unwrap() {
            assert_eq!(target["findings"].as_array().unwrap().len(), 0, "{case}");
        }
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains(says), "{case}");
        assert!(!format!("{}{}", outcome.stdout, outcome.stderr).contains("canary"), "{case}");
    }
}

#[test]
fn single_files_are_read_as_streams_or_copied_first() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"));
    let pack = std::fs::read(fixtures.join("pack/1/shop.pwk")).unwrap();
    let server = Server::start();
    server.put("a/shop.pwk", pack.clone());
    let mut damaged = pack.clone();
    damaged[pack.len() / 2] ^= 1;
    server.put("a/damaged.pwk", damaged);
    server.put("a/empty", "");
    server.put("a/other", "nothing of interest");
    server.put("b/other", "nothing of interest");
    let healthy = run(&mut check(&server, &["--json", "s3://bucket/a/shop.pwk"]));
    assert_eq!(healthy.status, Some(0), "{}{}", healthy.stdout, healthy.stderr);
    assert_eq!(healthy.report().json["targets"][0]["path"], "s3://bucket/a/shop.pwk");
    let wounded = run(&mut check(&server, &["s3://bucket/a/damaged.pwk"]));
    assert_eq!(wounded.status, Some(1), "{}{}", wounded.stdout, wounded.stderr);
    assert!(wounded.stdout.contains("Object storage: "), "{}", wounded.stdout);
    for (what, says) in [
        ("a/empty", "an empty file"),
        ("a/other", "no database format was recognised"),
        ("a/absent", "there is no such object"),
        ("b", "no repository of backups and no database was recognised"),
    ] {
        let outcome = run(&mut check(&server, &[&format!("s3://bucket/{what}")]));
        assert_eq!(outcome.status, Some(2), "{what}");
        assert!(outcome.stderr.contains(says), "{what}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("hint:") || what == "a/absent", "{}", outcome.stderr);
    }
}

#[test]
fn secrets_in_addresses_and_options_are_refused_and_never_shown() {
    let server = Server::start();
    for arguments in [
        ["https://user:canary@host/x", "--json"],
        ["https://host/x?X-Amz-Signature=canary", "--json"],
        ["s3://bucket/x", "--storage-option=secret_access_key=canary"],
    ] {
        let outcome = run(&mut check(&server, &arguments));
        assert_eq!(outcome.status, Some(2), "{arguments:?}");
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("hint"), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }
}

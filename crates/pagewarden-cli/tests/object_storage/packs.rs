//! Packs, surveys and seals in object storage: what comes out is what comes out on a disk, and what
//! fails leaves nothing behind and nothing half told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::server::{Fault, Server};
use super::{command, comparable, repository};
use crate::clusters::{any_installation, sample};
use crate::runner::{pagewarden, run};

/// A database of several parts of an upload, which does not shrink, and its folder.
fn database(folder: &Path) -> PathBuf {
    let path = folder.join("shop.sqlite");
    sqlite(
        &path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
         INSERT INTO t SELECT i, randomblob(3000) FROM n;",
    );
    path
}

fn sqlite(database: &Path, statements: &str) {
    let status = Command::new("sqlite3").arg(database).arg(statements).status().unwrap();
    assert!(status.success());
}

fn pack(server: &Server, source: &str, output: &str, more: &[&str]) -> Command {
    let mut command = command(server, "pack", &[source, "-o", output, "-q"]);
    command.args(more);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn pack_in_a_bucket_is_unpacked_to_the_very_bytes_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let server = Server::start();
    let packed = run(&mut pack(&server, text(&source), "s3://bucket/p/shop.pwk", &["--json"]));
    assert_eq!(packed.status, Some(0), "{}{}", packed.stdout, packed.stderr);
    let report: Value = serde_json::from_str(&packed.stdout).unwrap();
    let stored = server.get("p/shop.pwk").unwrap();
    assert!(stored.len() > 16 << 20, "{}", stored.len());
    assert_eq!(report["packed"]["stored_bytes"], stored.len());
    assert_eq!(report["storage"]["sent_bytes"], stored.len());
    assert_eq!(report["storage"]["requests"], server.seen().len());
    let again = run(&mut pack(&server, text(&source), "s3://bucket/p/shop.pwk", &[]));
    assert_eq!(again.status, Some(2));
    assert!(again.stderr.contains("not overwritten") && again.stderr.contains("hint:"));
    let checked = run(&mut command(&server, "check", &["s3://bucket/p/shop.pwk"]));
    assert_eq!(checked.status, Some(0), "{}{}", checked.stdout, checked.stderr);
    let out = folder.path().join("out");
    let unpack = ["s3://bucket/p/shop.pwk", text(&out), "--json"];
    let unpacked = run(&mut command(&server, "unpack", &unpack));
    assert_eq!(unpacked.status, Some(0), "{}{}", unpacked.stdout, unpacked.stderr);
    assert!(fs::read(out.join("shop.sqlite")).unwrap() == fs::read(&source).unwrap());
    let report: Value = serde_json::from_str(&unpacked.stdout).unwrap();
    assert!(report["storage"]["bytes"].as_u64().unwrap() >= stored.len() as u64);
    assert!(server.get("p/shop.pwk").unwrap() == stored);
    assert_eq!(server.unfinished(), 0);
}

/// Packs are read there in the order in which their parts lie, which is not that of files.
#[test]
fn pack_in_a_bucket_gives_the_report_that_it_gives_on_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, true);
    let (old, new) = (folder.path().join("old.pwk"), folder.path().join("new.pwk"));
    let make = |from: &Path, name: &Path, more: &[&str]| {
        let mut command = pagewarden();
        command.args(["pack", "-q"]).arg(from).arg("-o").arg(name).args(more);
        assert_eq!(run(&mut command).status, Some(0));
    };
    make(cluster.cluster.data_dir(), &old, &[]);
    let source = database(folder.path());
    let base = folder.path().join("base.pwk");
    make(&source, &base, &[]);
    sqlite(&source, "UPDATE t SET b = randomblob(3000) WHERE id % 700 = 77;");
    make(&source, &new, &["--base", text(&base)]);
    let sound = fs::read(&old).unwrap();
    let mut wounds: Vec<_> = [sound.len() / 3, sound.len() / 2, sound.len() - sound.len() / 7]
        .map(|at| {
            let mut bytes = sound.clone();
            bytes[at] ^= 4;
            bytes
        })
        .into();
    let (begin, end) = (sound.len() / 4, sound.len() / 4 + 70_000);
    wounds.push([&sound[..begin], &[0; 70_000], &sound[end..]].concat());
    wounds.push(sound[..sound.len() / 2].to_vec());
    let server = Server::start();
    server.put("p/old.pwk", sound.clone());
    server.put("p/base.pwk", fs::read(&base).unwrap());
    server.put("p/new.pwk", fs::read(&new).unwrap());
    let assert_same = |name: &str, verdict: &str| {
        let path = folder.path().join(name);
        let address = format!("s3://bucket/p/{name}");
        let here = run(pagewarden().args(["check", "--json"]).arg(&path));
        let there = run(&mut command(&server, "check", &["--json", &address]));
        assert_eq!(there.status, here.status, "{name}: {}{}", there.stdout, there.stderr);
        if here.stdout.is_empty() {
            assert_eq!(verdict, "refused", "{}", here.stderr);
            return;
        }
        let report = here.report();
        assert_eq!(report.verdict(), verdict, "{name}");
        // Only where they lie tells them apart, and what was found in which order.
        let in_order = |report: Value, root: &str| {
            let mut report = report;
            for target in report["targets"].as_array_mut().unwrap() {
                target["findings"].as_array_mut().unwrap().sort_by_key(Value::to_string);
            }
            comparable(&report, root)
        };
        let (there, here) =
            (in_order(there.report().json, &address), in_order(report.json, text(&path)));
        assert!(there == here, "{name}: {there:.2000}\n{here:.2000}");
    };
    assert_same("old.pwk", "intact");
    assert_same("new.pwk", "intact");
    for (number, bytes) in wounds.into_iter().enumerate() {
        let name = format!("wounded-{number}.pwk");
        fs::write(folder.path().join(&name), &bytes).unwrap();
        server.put(&format!("p/{name}"), bytes);
        // Of one that is cut off, the index is not there to say what was in it.
        assert_same(&name, if number == 4 { "incomplete" } else { "damaged" });
    }
    // What a store does not give was not read.
    server.fail("GET /bucket/p/old.pwk", usize::MAX, Fault::CutBody);
    let outcome = run(&mut command(&server, "check", &["--json", "s3://bucket/p/old.pwk"]));
    assert_eq!(outcome.status, Some(2), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn delta_and_its_base_are_found_in_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let server = Server::start();
    let (old, new) = ("s3://bucket/p/old.pwk", "s3://bucket/p/new.pwk");
    assert_eq!(run(&mut pack(&server, text(&source), old, &[])).status, Some(0));
    sqlite(&source, "UPDATE t SET b = randomblob(3000) WHERE id = 77;");
    let made = run(&mut pack(&server, text(&source), new, &["--base", old]));
    assert_eq!(made.status, Some(0), "{}{}", made.stdout, made.stderr);
    assert!(server.get("p/new.pwk").unwrap().len() < 1 << 20);
    for (out, more) in [("beside", &[][..]), ("named", &["--base", old])] {
        let out = folder.path().join(out);
        let mut command = command(&server, "unpack", &[new, text(&out)]);
        let unpacked = run(command.args(more));
        assert_eq!(unpacked.status, Some(0), "{}{}", unpacked.stdout, unpacked.stderr);
        assert!(fs::read(out.join("shop.sqlite")).unwrap() == fs::read(&source).unwrap());
    }
}

#[test]
fn pack_that_fails_or_is_refused_leaves_nothing_in_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    for (part, fault, says) in [
        ("partNumber=2", Fault::Status(500), "SlowDown"),
        ("partNumber=1&", Fault::Status(403), "check that the credentials"),
        ("POST /bucket/x.pwk?uploadId", Fault::Status(400), "the request failed"),
        ("partNumber=1&", Fault::CutBody, "the request failed"),
    ] {
        let server = Server::start();
        server.fail(part, usize::MAX, fault);
        let outcome = run(&mut pack(&server, text(&source), "s3://bucket/x.pwk", &[]));
        let said = format!("{part} {fault:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.status, Some(2), "{said}");
        assert!(said.contains(says) && !said.contains("canary"), "{said}");
        assert_eq!((server.get("x.pwk"), server.unfinished()), (None, 0), "{said}");
    }
    let mut bytes = fs::read(&source).unwrap();
    bytes[(2 << 20) + 4096..][..8].fill(0xEE);
    fs::write(&source, &bytes).unwrap();
    let server = Server::start();
    let refused = run(&mut pack(&server, text(&source), "s3://bucket/x.pwk", &[]));
    let stream = run(&mut command(&server, "pack", &[text(&source), "--to", "null:"]));
    assert_eq!(refused.status, Some(1), "{}{}", refused.stdout, refused.stderr);
    assert_eq!(stream.status, Some(1));
    assert_eq!((server.get("x.pwk"), server.unfinished()), (None, 0));
    // The same as a stream, whose threads end with it.
    server.put("shop.sqlite", bytes);
    let refused = run(&mut pack(&server, "s3://bucket/shop.sqlite", "s3://bucket/x.pwk", &[]));
    assert_eq!(refused.status, Some(1), "{}{}", refused.stdout, refused.stderr);
    assert_eq!((server.get("x.pwk"), server.unfinished()), (None, 0));
}

#[test]
fn pack_that_is_stopped_leaves_nothing_in_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let server = Server::start();
    server.fail("partNumber=2", usize::MAX, Fault::Silence);
    let mut child = pack(&server, text(&source), "s3://bucket/x.pwk", &[]).spawn().unwrap();
    let begin = Instant::now();
    while !server.seen().iter().any(|seen| seen.head.contains("partNumber=2")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no part was sent");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!((server.get("x.pwk"), server.unfinished()), (None, 0));
}

#[test]
fn store_that_fails_or_changes_lets_nothing_be_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let whole = Server::start();
    assert_eq!(run(&mut pack(&whole, text(&source), "s3://bucket/x.pwk", &[])).status, Some(0));
    let stored = whole.get("x.pwk").unwrap();
    for (number, (fault, says)) in [
        (Fault::Status(500), "SlowDown"),
        (Fault::Status(403), "check that the credentials"),
        (Fault::CutBody, "the request failed"),
        (Fault::WrongRange, "another part"),
        (Fault::Replaced, "replaced or changed"),
        (Fault::ReplacedUnsaid, "replaced or changed"),
    ]
    .into_iter()
    .enumerate()
    {
        for more in [&[][..], &["--salvage"]] {
            let server = Server::start();
            server.put("x.pwk", stored.clone());
            // What is seen first is sound: the head, the begin and the end.
            server.fail_after("GET /bucket/x.pwk", 3, fault);
            let out = folder.path().join(format!("out-{number}{}", more.len()));
            let mut command = command(&server, "unpack", &["s3://bucket/x.pwk", text(&out)]);
            let outcome = run(command.args(more));
            let said = format!("{fault:?} {more:?}: {}{}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.status, Some(2), "{said}");
            assert!(said.contains(says) && !said.contains("canary"), "{said}");
            assert!(!said.contains("damaged") && !said.contains("lost"), "{said}");
            assert!(!out.exists(), "{said}");
        }
    }
}

#[test]
fn survey_and_pack_of_an_object_say_what_they_say_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let server = Server::start();
    let bytes = fs::read(&source).unwrap();
    server.put("shop.sqlite", bytes.clone());
    let here = run(pagewarden().args(["survey", "--json"]).arg(&source));
    let there = run(&mut command(&server, "survey", &["--json", "s3://bucket/shop.sqlite"]));
    assert_eq!(there.status, Some(0), "{}{}", there.stdout, there.stderr);
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (here, there) = (parse(&here.stdout), parse(&there.stdout));
    for key in ["verdict", "engine", "pages", "severities", "protection", "findings"] {
        assert_eq!(here[key], there[key], "{key}");
    }
    assert_eq!(there["storage"]["requests"], server.seen().len());
    assert_eq!(there["reading"]["device_bytes"], Value::Null);
    assert!(there["recommended"]["command"].as_str().unwrap().contains("s3://bucket/shop.sqlite"));
    let null = run(&mut command(&server, "pack", &["s3://bucket/shop.sqlite", "--to", "null:"]));
    assert_eq!(null.status, Some(0), "{}{}", null.stdout, null.stderr);
    assert!(null.stdout.contains("Object storage: ") && null.stdout.contains("Processed "));
    let local = folder.path().join("x.pwk");
    let made = run(&mut pack(&server, "s3://bucket/shop.sqlite", text(&local), &[]));
    assert_eq!(made.status, Some(0), "{}{}", made.stdout, made.stderr);
    let out = folder.path().join("out");
    assert_eq!(run(pagewarden().arg("unpack").args([&local, &out])).status, Some(0));
    assert!(fs::read(out.join("shop.sqlite")).unwrap() == bytes);
    for arguments in [
        &["survey", "s3://bucket/absent"][..],
        &["unpack", "s3://bucket/absent", "never"],
        &["pack", "s3://bucket/absent", "-o", "never.pwk"],
        &["pack", "s3://bucket/shop.sqlite", "--estimate"],
    ] {
        let outcome = run(&mut command(&server, arguments[0], &arguments[1..]));
        assert_eq!(outcome.status, Some(2), "{arguments:?}: {}", outcome.stdout);
        assert!(!Path::new("never").exists() && !Path::new("never.pwk").exists());
    }
}

#[test]
fn seal_in_a_bucket_is_compared_with_a_database_here_and_there() {
    let folder = tempfile::tempdir().unwrap();
    let source = database(folder.path());
    let seal = folder.path().join("shop.seal");
    let sealed = run(pagewarden().arg("check").arg("--seal").args([&seal, &source]));
    assert_eq!(sealed.status, Some(0), "{}{}", sealed.stdout, sealed.stderr);
    let server = Server::start();
    server.put("shop.seal", fs::read(&seal).unwrap());
    server.put("shop.sqlite", fs::read(&source).unwrap());
    let mut bytes = fs::read(&source).unwrap();
    let page = 4096 * 700;
    bytes.copy_within(page + 4096..page + 4196, page + 4000);
    bytes[page + 3000] ^= 1;
    server.put("changed.sqlite", bytes);
    for (database, status) in
        [(text(&source), 0), ("s3://bucket/shop.sqlite", 0), ("s3://bucket/changed.sqlite", 1)]
    {
        let arguments = ["--against", "s3://bucket/shop.seal", database];
        let outcome = run(&mut command(&server, "check", &arguments));
        assert_eq!(
            outcome.status,
            Some(status),
            "{database}: {}{}",
            outcome.stdout,
            outcome.stderr
        );
    }
    server.fail("shop.seal", usize::MAX, Fault::Status(500));
    let arguments = ["--against", "s3://bucket/shop.seal", text(&source)];
    let outcome = run(&mut command(&server, "check", &arguments));
    assert_eq!(outcome.status, Some(2), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn backup_of_sql_server_is_unpacked_from_a_bucket() {
    let Some(folder) = repository("", "../sqlserver") else { return };
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut backups: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "bak")).collect();
    backups.sort();
    let work = tempfile::tempdir().unwrap();
    let mut unpacked = 0;
    for (number, path) in backups.iter().enumerate().take(4) {
        let server = Server::start();
        server.put("a/b.bak", fs::read(path).unwrap());
        let [here, there] = ["here", "there"].map(|it| work.path().join(format!("{it}{number}")));
        let local = run(pagewarden().arg("unpack").args([path, &here]));
        let stored = run(&mut command(&server, "unpack", &["s3://bucket/a/b.bak", text(&there)]));
        assert_eq!(stored.status, local.status, "{}: {}", path.display(), stored.stderr);
        for file in fs::read_dir(&here).into_iter().flatten().flatten() {
            unpacked += 1;
            let same =
                fs::read(file.path()).unwrap() == fs::read(there.join(file.file_name())).unwrap();
            assert!(same, "{}", file.path().display());
        }
    }
    assert!(unpacked > 0);
}

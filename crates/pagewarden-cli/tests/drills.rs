//! `check --restore-drill`: backups that a server can open pass, and those that it cannot do not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::postgres::{Cluster, Installation, Options};
use serde_json::Value;

use crate::clusters::installations;
use crate::object_storage::repository;
use crate::runner::{Outcome, pagewarden, run};

/// That of the collection.
fn has_server() -> bool {
    let found = Installation::for_test("15").unwrap();
    found.is_some_and(|found| found.has("psql"))
}

fn drill(path: &Path, arguments: &[&str]) -> Outcome {
    let mut command = pagewarden();
    command.arg("check").arg(path).args(["--json", "--quiet"]);
    if !arguments.iter().any(|one| one.starts_with("--restore-drill")) {
        command.arg("--restore-drill");
    }
    run(command.args(arguments))
}

fn drill_of(outcome: &Outcome) -> Value {
    let object: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    object["restore_drill"].clone()
}

fn complaints(drill: &Value) -> String {
    drill["complaints"].to_string()
}

#[test]
fn sets_of_every_tool_are_brought_back_and_read() {
    if !has_server() {
        return;
    }
    let pass = tempfile::NamedTempFile::new().unwrap();
    fs::write(pass.path(), "fixture-pass\n").unwrap();
    let pass = pass.path().to_str().unwrap();
    for (name, folder, arguments) in [
        ("pgbackrest-2.45-bundle-lz4", "repo", &[][..]),
        ("pgbackrest-2.60-block-zst-cipher", "repo", &["--cipher-pass-file", pass][..]),
        ("barman-3.19-tar-zstd", "demo", &[]),
        ("walg-brotli-parts", "repo", &[]),
    ] {
        let Some(path) = repository(name, folder) else { return };
        let outcome = drill(&path, arguments);
        assert_eq!(outcome.status, Some(0), "{name}: {} {}", outcome.stdout, outcome.stderr);
        let drill = drill_of(&outcome);
        assert_eq!(drill["verdict"], "passed", "{name}: {drill}");
        let read = (drill["rows"].as_u64().unwrap(), drill["tables"].as_u64().unwrap());
        assert!(read.0 > 10_000 && read.1 > 60, "{name}: {drill}");
        assert!(drill["replayed_to"].as_str().unwrap().contains('/'), "{name}: {drill}");
        assert!(drill["server"].as_str().unwrap().starts_with("PostgreSQL 15"), "{name}");
    }
}

#[test]
fn set_that_cannot_be_opened_or_read_fails() {
    if !has_server() {
        return;
    }
    // A page that was damaged in the database.
    let Some(path) = repository("pgbackrest-2.60-block-zst-pageerror", "repo") else { return };
    let outcome = drill(&path, &[]);
    assert_eq!(outcome.status, Some(1), "{}", outcome.stdout);
    let found = drill_of(&outcome);
    assert_eq!(found["verdict"], "failed", "{found}");
    assert!(complaints(&found).contains("invalid page in block"), "{found}");
    // A key that is not given: nothing is known.
    let Some(path) = repository("pgbackrest-2.60-bundle-gz-cipher", "repo") else { return };
    let outcome = drill(&path, &[]);
    assert_eq!(outcome.status, Some(2), "{}", outcome.stdout);
    assert_eq!(drill_of(&outcome)["verdict"], "impossible");
    // No log to make it consistent by, which the check says too.
    let Some(path) = repository("barman-cloud-gz", "gz") else { return };
    let outcome = drill(&path, &[]);
    assert_eq!(outcome.status, Some(2), "{}", outcome.stdout);
    assert_eq!(drill_of(&outcome)["verdict"], "impossible");
    assert!(complaints(&drill_of(&outcome)).contains("checkpoint record"), "{}", outcome.stdout);
    // A set that is not there.
    let Some(path) = repository("walg-lz4", "repo") else { return };
    let outcome = drill(&path, &["--restore-drill=base_of_nothing"]);
    assert_eq!(outcome.status, Some(2), "{} {}", outcome.stdout, outcome.stderr);
}

/// A backup in archives and the log since, of a cluster with a tablespace and another superuser.
fn backup(cluster: &mut Cluster) -> (PathBuf, PathBuf) {
    cluster.start().unwrap();
    let log = cluster.add_dir("log").unwrap();
    let command = format!("'cp %p {}/%f'", log.display());
    cluster.append_settings([("archive_command", &*command)]).unwrap();
    cluster.add_tablespace("faraway").unwrap();
    cluster.psql("SELECT pg_reload_conf()").unwrap();
    cluster
        .psql(
            "CREATE TABLE near AS SELECT i FROM generate_series(1, 1000) i;
             CREATE TABLE far TABLESPACE faraway AS SELECT i FROM generate_series(1, 2000) i;
             CREATE INDEX far_i ON far (i) TABLESPACE faraway;",
        )
        .unwrap();
    let target = cluster.home().join("backup");
    let mut tool: Command = cluster.client("pg_basebackup").unwrap();
    tool.args(["-c", "fast", "-Ft", "-z", "-X", "none", "-D"]).arg(&target);
    let output = tool.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.psql("INSERT INTO far SELECT i FROM generate_series(2001, 2500) i").unwrap();
    let last = cluster.psql("SELECT pg_walfile_name(pg_switch_wal())").unwrap();
    while !log.join(&last).exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    (target, log)
}

#[test]
fn archives_and_log_are_brought_back_with_tablespaces_and_nothing_else_is_touched() {
    for installation in installations() {
        let options = Options::default().with("archive_mode", "on").with("autovacuum", "off");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() || cluster.client("pg_basebackup").is_err() {
            continue;
        }
        let (target, log) = backup(&mut cluster);
        // With its log in an archive beside, and as a folder.
        for (name, form) in [("with-log", &["-Ft", "-z"][..]), ("folder", &["-Fp"][..])] {
            let mut tool: Command = cluster.client("pg_basebackup").unwrap();
            let place = cluster.home().join(name);
            let moved = format!(
                "{}={}-far",
                cluster.home().join("tablespace_faraway").display(),
                place.display()
            );
            tool.args(["-c", "fast", "-D"]).arg(&place).args(form);
            if form == ["-Fp"] {
                tool.args(["-T", &moved]);
            }
            let output = tool.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let outcome = drill(&place, &[]);
            let found = drill_of(&outcome);
            assert_eq!(found["verdict"], "passed", "{name}: {} {}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.status, Some(0));
        }
        // A server runs on it.
        let outcome = drill(cluster.data_dir(), &[]);
        assert_eq!(drill_of(&outcome)["verdict"], "impossible", "{}", outcome.stdout);
        let log_argument = log.to_str().unwrap();
        let place = cluster.psql("SELECT pg_relation_filepath('far')").unwrap();
        let place = cluster.data_dir().join(place.trim());
        cluster.psql("CHECKPOINT").unwrap();
        let before = fs::metadata(&place).unwrap().modified().unwrap();
        let outcome = drill(&target, &["--log", log_argument]);
        let found = drill_of(&outcome);
        assert_eq!(found["verdict"], "passed", "{} {}", outcome.stdout, outcome.stderr);
        let rows = cluster.psql("SELECT (SELECT count(*) FROM far) + (SELECT count(*) FROM near)");
        let rows: u64 = rows.unwrap().parse().unwrap();
        assert!(found["rows"].as_u64().unwrap() > rows && rows == 3500, "{found}");
        assert_eq!(fs::metadata(&place).unwrap().modified().unwrap(), before);
        assert_eq!(found["amcheck"], installation.has("pg_amcheck"));

        // Without a segment in the middle, the set cannot be opened.
        // A history file beside it names the segment in which the backup began.
        let names = fs::read_dir(&log).unwrap().map(|it| it.unwrap().file_name());
        let labels = names.filter_map(|name| {
            let name = name.into_string().unwrap();
            name.strip_suffix(".backup").map(|name| name[..24].to_owned())
        });
        let needed = &log.join(labels.min().unwrap());
        let bytes = fs::read(needed).unwrap();
        fs::remove_file(needed).unwrap();
        let outcome = drill(&target, &["--log", log_argument]);
        assert_eq!(drill_of(&outcome)["verdict"], "impossible", "{}", outcome.stdout);
        assert!(outcome.status != Some(0), "{}", outcome.stdout);
        fs::write(needed, bytes).unwrap();
        assert_eq!(drill_of(&drill(&target, &["--log", log_argument]))["verdict"], "passed");
    }
}

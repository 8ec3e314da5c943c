//! `pagewarden survey`: every kind of target, sound and not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use pagewarden_scratch::postgres::StopMode;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::clusters::{any_installation, contents, metadata, sample};
use crate::mariadb_samples::{Shape, installation, server};
use crate::runner::{Outcome, Started, pagewarden, run};
use crate::{sqlite, sqlserver};

/// A run in which nothing is known of this machine, or what is in `state`.
fn command(state: &Path) -> Command {
    let mut command = pagewarden();
    command.env("XDG_STATE_HOME", state).arg("survey");
    command
}

fn survey(path: &Path) -> (Option<i32>, Value) {
    let state = tempfile::tempdir().unwrap();
    let outcome = run(command(state.path()).arg("--json").arg(path));
    let object: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr));
    assert_eq!(object["pagewarden"], env!("CARGO_PKG_VERSION"));
    assert_eq!(object["command"], "survey");
    assert!(object["verdict"].is_string() && object["seconds"].is_number(), "{object}");
    (outcome.status, object)
}

fn screen(path: &Path, state: &Path) -> Outcome {
    let outcome = run(command(state).arg(path));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines.len() <= 24, "one screen: {}", outcome.stdout);
    for title in ["What it is", "Protection", "Strength", "Is it sound", "Reading", "Next"] {
        assert!(lines.iter().any(|line| line.starts_with(title)), "{title}: {}", outcome.stdout);
    }
    for line in lines {
        let is_copied = line.contains("pagewarden ") || line.starts_with('/');
        assert!(is_copied || line.chars().count() <= 80, "{line}");
    }
    outcome
}

fn recommended(object: &Value) -> &str {
    object["recommended"]["command"].as_str().unwrap()
}

fn database(folder: &Path) -> Option<PathBuf> {
    if !sqlite::has_shell() {
        return None;
    }
    sqlite::shell(
        folder,
        ".open shop.db\n\
         CREATE TABLE stock(id INTEGER PRIMARY KEY, data TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)\n\
         INSERT INTO stock SELECT i, hex(randomblob(30)) FROM n;",
    );
    Some(folder.join("shop.db"))
}

#[test]
fn a_cluster_at_rest_running_and_damaged_is_answered_for() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = sample(&installation, true).copy();
    let root = cluster.data_dir().to_owned();
    let before = (contents(&root), metadata(&root));
    let (status, sound) = survey(&root);
    assert_eq!((status, &sound["verdict"]), (Some(0), &json!("intact")), "{sound}");
    assert_eq!((&sound["setting"], &sound["protection"]), (&json!("checksum"), &json!("checksum")));
    assert_eq!(sound["protected_share"], 1.0);
    assert!(sound["engine"].as_str().unwrap().starts_with("PostgreSQL"), "{sound}");
    assert!(sound["strength"]["tested_by"].as_str().unwrap().contains("16-bit"), "{sound}");
    assert!(sound["reading"]["mib_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(sound["price"]["known"], json!([]), "no figure of another machine");
    assert!(recommended(&sound).starts_with("pagewarden check --seal"), "{sound}");
    let state = tempfile::tempdir().unwrap();
    let shown = screen(&root, state.path());
    assert_eq!(shown.status, Some(0));
    assert!(shown.stdout.contains("100 % carry a checksum"), "{}", shown.stdout);
    assert_eq!((contents(&root), metadata(&root)), before, "nothing was written");

    cluster.start().unwrap();
    let (status, live) = survey(&root);
    assert_eq!((status, &live["live"]), (Some(0), &json!(true)), "{live}");
    assert_eq!(live["severities"]["damage"], 0);
    assert!(recommended(&live).starts_with("pagewarden check --nagios"), "{live}");
    cluster.stop(StopMode::Fast).unwrap();

    let file = root.join(sample(&installation, true).file("item"));
    let mut bytes = fs::read(&file).unwrap();
    for page in [3, 5, 7, 9, 11] {
        bytes[page * 8192 + 4000] ^= 4;
    }
    fs::write(&file, bytes).unwrap();
    let (status, damaged) = survey(&root);
    assert_eq!((status, &damaged["verdict"]), (Some(1), &json!("damaged")));
    assert_eq!(damaged["severities"]["damage"], 5);
    assert_eq!(damaged["findings"].as_array().unwrap().len(), 3, "check tells all");
    assert!(recommended(&damaged).starts_with("pagewarden check --html"), "{damaged}");
    let shown = screen(&root, state.path());
    assert!(shown.stdout.contains("and 2 more"), "{}", shown.stdout);
}

#[test]
fn an_unprotected_cluster_is_told_how_to_be_protected_and_at_what_price() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, false).copy();
    let (status, object) = survey(cluster.data_dir());
    assert_eq!((status, &object["verdict"]), (Some(0), &json!("unprotected")), "{object}");
    assert_eq!((&object["setting"], &object["protected_share"]), (&json!("none"), &json!(0.0)));
    assert!(recommended(&object).starts_with("pagewarden protect --mode checksum --dry-run"));
    assert_eq!(object["price"]["command"], "pagewarden cost --short e2b");
    // And what it recommends can be run.
    let state = tempfile::tempdir().unwrap();
    let words: Vec<&str> = recommended(&object).split(' ').skip(1).collect();
    assert_eq!(run(pagewarden().args(words)).status, Some(0));
    let shown = screen(cluster.data_dir(), state.path());
    assert!(shown.stdout.contains("unknown on this machine"), "{}", shown.stdout);
}

#[test]
fn a_sqlite_database_and_its_pack_are_answered_for() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let (status, object) = survey(&database);
    assert_eq!((status, &object["verdict"]), (Some(0), &json!("unprotected")), "{object}");
    assert_eq!(object["format"], "sqlite");
    assert_eq!(object["price"]["command"], "pagewarden cost --short e0-sqlite");
    let pack = folder.path().join("shop.pwk");
    let packed = run(pagewarden().arg("pack").arg(&database).arg("-o").arg(&pack));
    assert_eq!(packed.status, Some(0), "{packed:?}");
    let (status, object) = survey(&pack);
    assert_eq!((status, &object["format"]), (Some(0), &json!("pack")), "{object}");
    assert_eq!(object["verdict"], "intact");
    // Its header knows how long it was.
    let bytes = fs::metadata(&database).unwrap().len();
    fs::OpenOptions::new().write(true).open(&database).unwrap().set_len(bytes - 8192).unwrap();
    let (status, object) = survey(&database);
    assert_eq!((status, &object["verdict"]), (Some(1), &json!("damaged")), "{object}");
}

#[test]
fn an_innodb_directory_is_answered_for_running_and_at_rest() {
    let Some(installation) = installation() else { return };
    let (mut server, _keys) = server(&installation, Shape::USUAL);
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    let (status, live) = survey(&root);
    assert_eq!((status, &live["live"]), (Some(0), &json!(true)), "{live}");
    server.stop().unwrap();
    let (status, object) = survey(&root);
    assert_eq!((status, &object["verdict"]), (Some(0), &json!("intact")), "{object}");
    assert_eq!(object["format"], "innodb");
    assert_eq!(object["price"]["command"], "pagewarden cost --short e0-mariadb");
    screen(&root, &root);
}

#[test]
fn sql_server_files_and_backups_are_told_what_to_do() {
    let (Some(file), Some(backup)) = (
        sqlserver::fixture("empty-checksum-2005.mdf"),
        sqlserver::fixture("das-verifynone-2sets-2008r2.bak"),
    ) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.mdf");
    fs::write(&path, file).unwrap();
    let (status, object) = survey(&path);
    assert_eq!((status, &object["verdict"]), (Some(0), &json!("intact")), "{object}");
    assert_eq!((&object["setting"], &object["protection"]), (&json!("checksum"), &json!("mixed")));
    assert_eq!(object["price"], json!({ "known": [], "command": null }));
    let path = folder.path().join("shop.bak");
    fs::write(&path, backup).unwrap();
    let (status, object) = survey(&path);
    assert_eq!((status, &object["verdict"]), (Some(0), &json!("unprotected")), "{object}");
    assert!(recommended(&object).starts_with("ALTER DATABASE"), "{object}");
    screen(&path, folder.path());
}

/// A backup from a pipe is read once, as it comes.
#[test]
fn a_backup_from_a_pipe_is_answered_for() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, true).copy();
    let mut tar = Command::new("tar")
        .arg("-C")
        .arg(cluster.data_dir())
        .args(["-cf", "-", "."])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let state = tempfile::tempdir().unwrap();
    let outcome =
        run(command(state.path()).args(["--json", "-"]).stdin(tar.stdout.take().unwrap()));
    assert!(tar.wait().unwrap().success());
    let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(object["severities"]["damage"], 0, "{object}");
    assert!(object["pages"]["ok"].as_u64().unwrap() > 500, "{object}");
    assert_eq!(object["reading"]["bytes"], object["bytes"]);
}

#[test]
fn a_survey_that_is_stopped_says_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let state = tempfile::tempdir().unwrap();
    sqlite::shell(
        folder.path(),
        ".open shop.db\nINSERT INTO stock VALUES(10000, zeroblob(4000000));",
    );
    let started =
        Started::spawn(command(state.path()).args(["--json", "--rate", "1MiB/s"]).arg(&database));
    sleep(Duration::from_millis(700));
    started.signal(Signal::INT);
    let outcome = started.wait();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&object["verdict"], &object["stopped"]), (&json!("incomplete"), &json!(true)));
    assert!(recommended(&object).starts_with("pagewarden survey"), "{object}");
}

#[test]
fn what_is_no_database_is_an_error_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, (0..20_000_u32).flat_map(|i| (i * i).to_le_bytes()).collect::<Vec<u8>>())
        .unwrap();
    for path in [&garbage, &folder.path().join("nothing")] {
        let (status, object) = survey(path);
        assert_eq!((status, &object["verdict"]), (Some(2), &json!("incomplete")), "{object}");
        assert!(object["error"].is_string(), "{object}");
    }
}

#[test]
fn the_page_needs_nothing_else_and_says_what_the_screen_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let odd = folder.path().join("<b>&shop.db");
    fs::rename(&database, &odd).unwrap();
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("survey.html");
    let state = tempfile::tempdir().unwrap();
    let run_once = || run(command(state.path()).arg("--html").arg(&page).arg(&odd));
    assert_eq!(run_once().status, Some(0));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("default-src 'none'") && !html.contains("<script"), "{html}");
    for forbidden in ["http://", "https://", "url(", "<b>&shop"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("&lt;b&gt;&amp;shop.db"), "{html}");
    for word in ["Unprotected", "Protection", "Is it sound", "pagewarden protect"] {
        assert!(html.contains(word), "{word}: {html}");
    }
    // An earlier page of `survey` is replaced, nothing else is.
    assert_eq!(run_once().status, Some(0));
    fs::write(&page, "precious").unwrap();
    assert_eq!(run_once().status, Some(2));
    assert_eq!(fs::read(&page).unwrap(), b"precious");
}

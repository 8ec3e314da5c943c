//! `pagewarden protect` on SQLite databases: what the `sqlite3` shell reads from them,
//! rowids included, must be what it read before, whatever happens on the way.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::damage::Dice;
use crate::runner::{check, pagewarden, run};
use crate::sqlite::{has_shell, shell};

/// Every kind of thing that a database may hold.
const CONTENT: &str = "
CREATE TABLE plain (a, b);
CREATE TABLE keyed (id INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT COLLATE NOCASE UNIQUE, n REAL);
CREATE TABLE wide (k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID;
CREATE TABLE taken (rowid TEXT, _rowid_ TEXT);
CREATE TABLE made (a INT, twice INT AS (a * 2) VIRTUAL, thrice INT AS (a * 3) STORED, CHECK (a > -1));
CREATE TABLE \"odd \"\"name\" (\"a b\" INT) STRICT;
CREATE INDEX by_b ON plain (b DESC) WHERE b IS NOT NULL;
CREATE INDEX by_length ON keyed (length(word));
CREATE VIRTUAL TABLE search USING fts5 (body);
CREATE VIRTUAL TABLE box USING rtree (id, x0, x1);
CREATE VIEW both AS SELECT a FROM plain UNION ALL SELECT id FROM keyed;
CREATE TRIGGER t AFTER INSERT ON made BEGIN INSERT INTO plain VALUES (new.a, 'from trigger'); END;
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 400)
INSERT INTO plain SELECT x, hex(randomblob(x % 40)) FROM n;
DELETE FROM plain WHERE a % 3 = 0;
INSERT INTO keyed (word, n) SELECT 'Word ' || a, a / 7.0 FROM plain;
INSERT INTO wide SELECT 'k' || a, randomblob(a * 3) FROM plain;
INSERT INTO taken VALUES ('x', 'y'), ('z', NULL);
INSERT INTO made VALUES (4), (5);
INSERT INTO \"odd \"\"name\" VALUES (7);
INSERT INTO search SELECT word || ' text' FROM keyed;
INSERT INTO box SELECT id, id, id + 1 FROM keyed;
INSERT INTO plain VALUES (1e300, zeroblob(150000)), (NULL, 'Gr\u{fc}\u{df}e');
ANALYZE;
PRAGMA user_version = 77; PRAGMA application_id = 4711; PRAGMA default_cache_size = 123;
";

/// What the shell says of a database.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// A hash of them, for they are too long to be shown: in any order, since VACUUM puts
    /// tables before indexes.
    rows: u64,
    settings: String,
}

fn said(folder: &Path, name: &str) -> Said {
    let dump = shell(folder, &format!(".open {name}\n.dump --preserve-rowids\n"));
    let mut lines: Vec<&str> = dump.lines().collect();
    lines.sort_unstable();
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    let rows = hasher.finish();
    let settings = "encoding page_size auto_vacuum journal_mode user_version application_id \
                    default_cache_size integrity_check";
    let questions: String =
        settings.split_whitespace().map(|name| format!("PRAGMA {name};\n")).collect();
    Said { rows, settings: shell(folder, &format!(".open {name}\n{questions}")) }
}

fn protect(path: &Path, arguments: &[&str]) -> crate::runner::Outcome {
    run(pagewarden().args(["protect", "--json"]).arg(path).args(arguments))
}

/// The result of a run that ended with this status.
fn result(outcome: &crate::runner::Outcome, status: i32) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

fn refusal(path: &Path, arguments: &[&str]) -> String {
    let json = result(&protect(path, arguments), 2);
    let error = json["error"].as_str().unwrap();
    assert!(error.contains("hint: "), "{error}");
    error.to_owned()
}

/// `check` counts every page in use under this mode, and finds nothing.
fn assert_all_pages(path: &Path, mode: &str) {
    let report = check([path]).report();
    assert!(report.raw_findings().is_empty(), "{report:?}");
    let by_mode = &report.target()["by_mode"];
    assert_eq!(by_mode[mode], report.pages("total"), "{report:?}");
    assert_eq!(report.target()["setting"], mode, "{report:?}");
}

fn database(folder: &Path, page_size: u32, options: &str) -> PathBuf {
    let path = folder.join("x.db");
    let _ = fs::remove_file(&path);
    shell(
        folder,
        &format!(
            ".open x.db\n.output /dev/null\nPRAGMA page_size = {page_size};\n{options}\n{CONTENT}"
        ),
    );
    path
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_layout_keeps_its_rows_in_every_mode() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let layouts = [
        "PRAGMA auto_vacuum = FULL;",
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;",
        "PRAGMA encoding = 'UTF-16be'; PRAGMA journal_mode = PERSIST;",
        "PRAGMA encoding = 'UTF-16le'; PRAGMA journal_mode = WAL;",
    ];
    for (page_size, options) in (9..=16).map(|n| 1 << n).zip(layouts.iter().cycle()) {
        let path = database(folder.path(), page_size, options);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = said(folder.path(), "x.db");
        let files = names(folder.path());
        let dry = result(&protect(&path, &["--mode", "checksum", "--dry-run"]), 0);
        assert_eq!((&dry["after"], &dry["bytes_written"]), (&"none".into(), &0.into()));
        assert_eq!(
            (names(folder.path()), said(folder.path(), "x.db")),
            (files.clone(), said(folder.path(), "x.db"))
        );
        let inode = fs::metadata(&path).unwrap().ino();

        let mut json = result(&protect(&path, &["--mode", "checksum"]), 0);
        assert_eq!(json["pages"]["changed"], dry["pages"]["changed"], "{page_size} {options}");
        assert_eq!((&json["before"], &json["after"]), (&"none".into(), &"checksum".into()));
        assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
        assert_all_pages(&path, "checksum");
        for mode in ["torn", "none", "torn", "checksum", "none"] {
            let dry = result(&protect(&path, &["--mode", mode, "--dry-run"]), 0);
            let was = json;
            json = result(&protect(&path, &["--mode", mode]), 0);
            assert_eq!(json["before"], was["after"]);
            assert_eq!((&json["after"], &json["pages"]), (&mode.into(), &dry["pages"]));
            assert_eq!(json["pages"]["changed"], json["pages"]["total"]);
            assert_all_pages(&path, mode);
            let again = result(&protect(&path, &["--mode", mode]), 0);
            assert_eq!(
                (&again["pages"]["changed"], &again["bytes_written"]),
                (&0.into(), &0.into())
            );
        }
        assert_eq!(said(folder.path(), "x.db"), before, "{page_size} {options}");
        assert_eq!(names(folder.path()), files);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }
}

#[test]
fn copies_leave_the_source_as_it_is() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode = WAL;"] {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path(), 4096, options);
        let before = (said(folder.path(), "x.db"), fs::read(&path).unwrap(), names(folder.path()));
        let file = folder.path().join("copy.db");
        let json =
            result(&protect(&path, &["--mode", "torn", "--copy-to", file.to_str().unwrap()]), 0);
        assert_eq!(json["after"], "torn");
        assert_all_pages(&file, "torn");
        assert_eq!(said(folder.path(), "copy.db"), before.0);
        assert!(
            refusal(&path, &["--mode", "torn", "--copy-to", file.to_str().unwrap()])
                .contains("overwrites none")
        );
        // A folder, which is made; of a copy with markers, and of one that needs none.
        let target = folder.path().join("copies");
        let text = target.to_str().unwrap();
        result(&protect(&file, &["--mode", "checksum", "--copy-to", text]), 0);
        assert_all_pages(&target.join("copy.db"), "checksum");
        result(&protect(&path, &["--mode", "none", "--copy-to", text]), 0);
        assert_eq!(fs::read(target.join("x.db")).unwrap(), before.1);
        assert_eq!(said(&target, "copy.db"), before.0);
        assert_eq!(fs::read(&path).unwrap(), before.1);
        fs::remove_dir_all(&target).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(names(folder.path()), before.2);
    }
}

/// A shell that has done `script` and stays.
fn shell_at_work(folder: &Path, script: &str) -> std::process::Child {
    let mut child = Command::new("sqlite3")
        .current_dir(folder)
        .arg("x.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mark = folder.join("mark");
    writeln!(child.stdin.as_mut().unwrap(), "{script}\n.shell touch {}", mark.display()).unwrap();
    while !mark.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(mark).unwrap();
    child
}

fn kill(mut child: std::process::Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_is_in_the_log_alone_is_kept() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path(), 1024, "PRAGMA journal_mode = WAL;");
    for mode in ["checksum", "torn"] {
        kill(shell_at_work(
            folder.path(),
            "PRAGMA wal_autocheckpoint = 0; INSERT INTO plain VALUES ('in the log', 1);",
        ));
        assert!(fs::metadata(folder.path().join("x.db-wal")).unwrap().len() > 0);
        let files = [path.clone(), folder.path().join("x.db-wal")];
        let bytes = files.clone().map(|file| fs::read(file).unwrap());
        let copy = folder.path().join("copy.db");
        let text = copy.to_str().unwrap();
        result(&protect(&path, &["--mode", mode, "--copy-to", text]), 0);
        assert_eq!(files.map(|file| fs::read(file).unwrap()), bytes);
        assert_all_pages(&copy, mode);
        let rows = "SELECT count(*) FROM plain WHERE a = 'in the log';";
        let in_copy = shell(folder.path(), &format!(".open copy.db\n{rows}"));
        fs::remove_file(copy).unwrap();
        // That shell had no VFS, but it is ours that brings the log into the database.
        result(&protect(&path, &["--mode", mode]), 0);
        assert_all_pages(&path, mode);
        assert_eq!(shell(folder.path(), &format!(".open x.db\n{rows}")), in_copy);
        assert_eq!(in_copy, if mode == "checksum" { "1\n" } else { "2\n" });
    }
}

#[test]
fn databases_in_use_are_refused() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode = WAL;"] {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path(), 4096, options);
        let bytes = fs::read(&path).unwrap();
        // Open and idle, reading, writing.
        for script in [
            "SELECT 1 FROM plain LIMIT 1;",
            "BEGIN; SELECT 1 FROM plain LIMIT 1;",
            "BEGIN IMMEDIATE;",
        ] {
            let child = shell_at_work(folder.path(), script);
            let error = refusal(&path, &["--mode", "checksum"]);
            assert!(error.contains("(sqlite3) has it open"), "{error}");
            kill(child);
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
        result(&protect(&path, &["--mode", "checksum"]), 0);
    }
}

#[test]
fn what_cannot_be_done_safely_is_refused() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path(), 4096, "");
    let bytes = fs::read(&path).unwrap();
    let refused = |words: &str, arguments: &[&str]| {
        let error = refusal(&path, &[&["--mode", "checksum"], arguments].concat());
        assert!(error.contains(words), "{error}");
    };
    refused("--skip-damaged is not for SQLite", &["--skip-damaged"]);

    fs::hard_link(&path, folder.path().join("other")).unwrap();
    refused("hard link", &[]);
    fs::remove_file(folder.path().join("other")).unwrap();

    // A transaction that has written to the file, and is killed.
    kill(shell_at_work(
        folder.path(),
        "PRAGMA cache_size = 5; BEGIN; UPDATE plain SET b = hex(randomblob(300));",
    ));
    refused("rollback journal", &[]);
    shell(folder.path(), ".open x.db\nSELECT count(*) FROM plain;");
    assert_eq!(fs::read(&path).unwrap(), bytes);

    // A page that the schema leads to, of random bytes.
    let mut damaged = bytes.clone();
    Dice::seeded().fill(&mut damaged[4096..8192]);
    fs::write(&path, &damaged).unwrap();
    refused("SQLite says", &[]);
    // An index that lacks rows.
    fs::write(&path, &bytes).unwrap();
    shell(
        folder.path(),
        ".open x.db\n.dbconfig defensive off\nPRAGMA writable_schema = ON;\n\
         CREATE INDEX lost ON plain (a);\nUPDATE sqlite_schema SET sql = 'CREATE INDEX lost ON plain (b)' WHERE name = 'lost';\n",
    );
    let error = refusal(&path, &["--mode", "checksum"]);
    assert!(error.contains("REINDEX"), "{error}");

    // Bytes that belong to another program.
    shell(folder.path(), ".open r.db\n.filectrl reserve_bytes 24\nCREATE TABLE t (a);");
    let reserved = folder.path().join("r.db");
    let mut bytes = fs::read(&reserved).unwrap();
    let end = bytes.len();
    bytes[end - 24..].fill(0x7e);
    fs::write(&reserved, bytes).unwrap();
    let error = refusal(&reserved, &["--mode", "checksum"]);
    assert!(error.contains("24 bytes"), "{error}");
    assert_eq!(names(folder.path()), ["r.db", "x.db"]);
    fs::write(&path, b"SQLite format 3\0 and then nothing").unwrap();
    result(&protect(&path, &["--mode", "checksum"]), 2);
}

#[test]
fn damaged_page_is_named_and_nothing_is_changed() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = database(folder.path(), 4096, "");
    result(&protect(&path, &["--mode", "checksum"]), 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[5 * 4096 + 1000] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let json = result(&protect(&path, &["--mode", "torn"]), 1);
    assert_eq!((&json["verdict"], &json["after"]), (&"damaged".into(), &"checksum".into()));
    assert_eq!(json["findings"][0]["page"], 6);
    assert_eq!(json["findings"][0]["kind"], "bit_flip");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(names(folder.path()), ["x.db"]);
}

#[test]
fn sums_of_the_official_vfs_are_known() {
    if !has_shell() {
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sqlite/3.40.1");
    for name in ["cksumvfs-512.db", "cksumvfs-4096.db"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::copy(Path::new(root).join(name), &path).unwrap();
        let before = said(folder.path(), "x.db");
        let bytes = fs::read(&path).unwrap();
        let json = result(&protect(&path, &["--mode", "checksum"]), 0);
        assert_eq!((&json["before"], &json["pages"]["changed"]), (&"checksum".into(), &0.into()));
        assert!(json["warnings"][0].as_str().unwrap().contains("checksum VFS already"), "{json}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        result(&protect(&path, &["--mode", "torn"]), 0);
        assert_all_pages(&path, "torn");
        assert_eq!(said(folder.path(), "x.db"), before);
    }
}

/// Kills runs at moments spread over their length. `PAGEWARDEN_KILLS` says how often.
#[test]
fn killed_at_any_time_the_database_is_whole_and_the_same_command_finishes() {
    if !has_shell() {
        return;
    }
    let kills = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    let mut dice = Dice::seeded();
    let mut interrupted = 0;
    for round in 0..kills.unwrap_or(8) {
        let folder = tempfile::tempdir().unwrap();
        let options = if round % 2 == 0 { "" } else { "PRAGMA journal_mode = WAL;" };
        let path = database(folder.path(), 1024, options);
        let before = said(folder.path(), "x.db");
        let mode = ["checksum", "torn"][round / 2 % 2];
        let mut command = pagewarden();
        command.args(["protect", "--mode", mode, "--rate", "4MiB/s"]).arg(&path);
        let at_work = crate::runner::Started::spawn(&mut command);
        thread::sleep(Duration::from_micros(dice.within(0..1_500_000) as u64));
        at_work.signal(Signal::KILL);
        interrupted += usize::from(at_work.wait().status.is_none());
        assert_eq!(said(folder.path(), "x.db"), before);
        assert!(check([&path]).report().raw_findings().is_empty());
        result(&protect(&path, &["--mode", mode]), 0);
        assert_all_pages(&path, mode);
        assert_eq!(said(folder.path(), "x.db"), before);
        assert_eq!(names(folder.path()), ["x.db"]);
    }
    println!("SQLite: {interrupted} killed in time");
}

#[test]
fn nothing_that_others_commit_meanwhile_is_lost() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode = WAL;"] {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path(), 4096, options);
        shell(folder.path(), ".open x.db\nCREATE TABLE written (n);");
        let (done, committed) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let status = Command::new("sqlite3")
                        .current_dir(folder.path())
                        .args(["-cmd", ".timeout 3000", "x.db", "INSERT INTO written VALUES (1)"])
                        .stderr(Stdio::null())
                        .status()
                        .unwrap();
                    committed.fetch_add(u64::from(status.success()), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            for _ in 0..15 {
                let outcome = protect(&path, &["--mode", "checksum"]);
                assert!(matches!(outcome.status, Some(0..=2)), "{outcome:?}");
                // From then on that writer leaves pages that fail: they are no matter here.
                if outcome.status == Some(0) {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let rows = shell(
            folder.path(),
            ".open x.db\nSELECT count(*) FROM written;\nPRAGMA integrity_check;",
        );
        assert_eq!(rows, format!("{}\nok\n", committed.load(Ordering::Relaxed)), "{options}");
    }
}

/// What a program without SQLite's checksum VFS leaves of one that had it: no program that has it opens
/// the database.
#[test]
fn room_for_sums_without_a_sum_is_refused_in_plain_words() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    shell(
        folder.path(),
        &format!(".open x.db\n.output /dev/null\n.filectrl reserve_bytes 8\n{CONTENT}\nVACUUM;\n"),
    );
    let path = folder.path().join("x.db");
    let before = fs::read(&path).unwrap();
    assert_eq!(before.get(20), Some(&8));
    for arguments in [&["--mode", "checksum"][..], &["--mode", "checksum", "--dry-run"]] {
        let outcome = protect(&path, arguments);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("room for the sums"), "{outcome:?}");
    }
    assert!(fs::read(&path).unwrap() == before);
}

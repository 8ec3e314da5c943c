//! `pagewarden protect --heal`: databases with markers that a program without the VFS wrote come back,
//! with its rows; damaged ones do not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::damage::Dice;
use crate::runner::{Outcome, check, pagewarden, run};
use crate::sqlite::{has_shell, shell};

const PAGE: usize = 4096;
const FILL: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
    CREATE TABLE u(k TEXT PRIMARY KEY) WITHOUT ROWID;
    WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<2000)
    INSERT INTO t SELECT v, hex(v*v*7919), zeroblob(v%9*700)||hex(v) FROM n;
    INSERT INTO u SELECT b FROM t WHERE a%3=0; CREATE INDEX tb ON t(b); DELETE FROM t WHERE a%50=7;";
/// What a program without the VFS does: changed rows, new pages, freed pages, a transaction undone.
const PLAIN_WRITES: &str = "UPDATE t SET b=b||'x' WHERE a BETWEEN 700 AND 720;
    INSERT INTO t SELECT a+5000, b||'new', zeroblob(9000)||'end' FROM t WHERE a<40;
    DELETE FROM t WHERE a BETWEEN 1500 AND 1600; DELETE FROM u WHERE k LIKE '7%';
    BEGIN; DELETE FROM t; ROLLBACK;";

fn protect(path: &Path, arguments: &[&str]) -> Outcome {
    run(pagewarden().args(["protect", "--mode", "checksum", "--json"]).arg(path).args(arguments))
}

fn json(outcome: &Outcome, status: i32) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// A protected database in a folder, as the VFS closed it.
fn protected(folder: &Path, options: &str) -> PathBuf {
    let path = folder.join("x.db");
    let _ = fs::remove_file(&path);
    shell(folder, &format!(".open x.db\n.output /dev/null\n{options}\n{FILL}"));
    json(&protect(&path, &[]), 0);
    path
}

fn rows(folder: &Path, name: &str) -> String {
    shell(folder, &format!(".open {name}\n.dump --preserve-rowids\nPRAGMA integrity_check;"))
}

fn warnings(json: &Value) -> String {
    json["warnings"].to_string()
}

fn assert_protected(path: &Path) {
    let report = check([path]).report();
    assert!(report.raw_findings().is_empty(), "{report:?}");
    assert_eq!(report.target()["setting"], "checksum", "{report:?}");
    assert_eq!(report.pages("ok"), report.pages("total"), "{report:?}");
}

#[test]
fn pages_that_a_plain_program_wrote_are_stamped_again_and_named_by_table() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode=WAL;", "PRAGMA auto_vacuum=FULL;"] {
        let folder = tempfile::tempdir().unwrap();
        let path = protected(folder.path(), options);
        shell(folder.path(), &format!(".open x.db\n.output /dev/null\n{PLAIN_WRITES}"));
        let written = rows(folder.path(), "x.db");
        // Without the word nothing is done.
        let refused = protect(&path, &[]);
        assert!(matches!(refused.status, Some(1 | 2)), "{refused:?}");
        let before = fs::read(&path).unwrap();
        let dry = json(&protect(&path, &["--heal", "--dry-run"]), 0);
        assert_eq!(fs::read(&path).unwrap(), before);
        let healed = json(&protect(&path, &["--heal"]), 0);
        assert_eq!(healed["pages"], dry["pages"], "{options}");
        let changed = healed["pages"]["changed"].as_u64().unwrap();
        let total = healed["pages"]["total"].as_u64().unwrap();
        assert!(changed > 3 && changed < total, "{options} {healed}");
        let said = warnings(&healed);
        for object in ["of t, written without", "of tb, written without"] {
            assert!(said.contains(object), "{options} {said}");
        }
        assert_protected(&path);
        assert_eq!(rows(folder.path(), "x.db"), written, "{options}");
        // Once more: nothing to do.
        assert_eq!(json(&protect(&path, &["--heal"]), 0)["pages"]["changed"], 0);
    }
}

/// Not one marker fits any more: they still say that it is a protected database.
#[test]
fn database_of_which_a_plain_program_wrote_each_page_is_named_and_healed() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = protected(folder.path(), "");
    let every = "DROP TABLE u; DROP INDEX tb; UPDATE t SET a=a+100000, b='', c=zeroblob(3900);
        CREATE TABLE v(b); INSERT INTO v SELECT zeroblob(3000) FROM t;";
    shell(folder.path(), &format!(".open x.db\n.output /dev/null\n{every}"));
    let report = check([&path]).report();
    assert_eq!(report.pages("ok"), 0, "{report:?}");
    assert_eq!(report.verdict(), "suspect", "{report:?}");
    assert_eq!(report.pages("suspect"), report.pages("total"), "{report:?}");
    let written = rows(folder.path(), "x.db");
    json(&protect(&path, &["--heal"]), 0);
    assert_protected(&path);
    assert_eq!(rows(folder.path(), "x.db"), written);
}

/// A backup takes pages out of SQLite's cache.
#[test]
fn backup_made_without_the_vfs_is_healed() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode=WAL;"] {
        let folder = tempfile::tempdir().unwrap();
        protected(folder.path(), options);
        shell(folder.path(), ".open x.db\n.backup copy.db\n");
        let path = folder.path().join("copy.db");
        json(&protect(&path, &["--heal"]), 0);
        assert_protected(&path);
        assert_eq!(rows(folder.path(), "copy.db"), rows(folder.path(), "x.db"));
    }
}

/// VACUUM by a program without the VFS leaves reserved bytes of zero; SQLite on macOS makes 12.
#[test]
fn reserved_bytes_of_zero_are_used_by_nothing() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for reserve in [24, 12] {
        let path = if reserve == 24 {
            let path = protected(folder.path(), "");
            shell(folder.path(), ".open x.db\nVACUUM;");
            path
        } else {
            let _ = fs::remove_file(folder.path().join("mac.db"));
            let made = format!(
                ".open mac.db\n.output /dev/null\n.filectrl reserve_bytes 12\n{FILL}\nVACUUM;"
            );
            shell(folder.path(), &made);
            folder.path().join("mac.db")
        };
        assert_eq!(fs::read(&path).unwrap()[20], reserve);
        let text = run(pagewarden().arg("check").arg(&path)).stdout;
        assert!(
            text.contains(&format!("{reserve} reserved bytes on each page, all zero")),
            "{text}"
        );
        let name = path.file_name().unwrap().to_str().unwrap();
        let before = rows(folder.path(), name);
        json(&protect(&path, &[]), 0);
        assert_protected(&path);
        assert_eq!(rows(folder.path(), name), before);
    }
}

/// What a plain program wrote, and damage to one page more: nothing is stamped, whatever it is.
#[test]
fn nothing_is_healed_over_damage() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = protected(folder.path(), "");
    let original = fs::read(&path).unwrap();
    shell(folder.path(), &format!(".open x.db\n.output /dev/null\n{PLAIN_WRITES}"));
    let written = fs::read(&path).unwrap();
    let untouched: Vec<usize> = (1..original.len() / PAGE)
        .filter(|page| original[page * PAGE..][..PAGE] == written[page * PAGE..][..PAGE])
        .filter(|page| matches!(written[page * PAGE], 2 | 5 | 10 | 13))
        .collect();
    assert!(untouched.len() > 20);
    let mut dice = Dice::seeded();
    for round in 0..40 {
        let page = untouched[dice.within(0..untouched.len())];
        let at = page * PAGE;
        let mut bytes = written.clone();
        let what = match round % 4 {
            0 => {
                bytes[at + dice.within(0..4080)] ^= 1 << dice.within(0..8);
                "a flipped bit"
            }
            1 => {
                bytes[at..at + PAGE].fill(0);
                "a page of zeroes"
            }
            2 => {
                let other = untouched[dice.within(0..untouched.len())];
                bytes.copy_within(other * PAGE..(other + 1) * PAGE, at);
                "another page"
            }
            _ => {
                bytes[at..at + 512].fill(0xa5);
                "a sector of noise"
            }
        };
        if bytes == written {
            continue;
        }
        fs::write(&path, &bytes).unwrap();
        let outcome = protect(&path, &["--heal"]);
        assert!(matches!(outcome.status, Some(1 | 2)), "{what} on page {}: {outcome:?}", page + 1);
        assert!(fs::read(&path).unwrap() == bytes, "{what}: it was written to");
    }
    // Damage alone, in a database that no plain program wrote to.
    let mut bytes = original;
    bytes[untouched[3] * PAGE + 2000..][..40].fill(0x11);
    fs::write(&path, &bytes).unwrap();
    let json = json(&protect(&path, &["--heal"]), 1);
    assert!(warnings(&json).contains("page 1 is as the VFS wrote it"), "{json}");
    assert!(fs::read(&path).unwrap() == bytes);
}

/// Killed at any moment, the database is the old one or the healed one, and the same command ends it.
#[test]
fn healing_that_is_killed_is_done_by_the_same_command() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = protected(folder.path(), "");
    shell(folder.path(), &format!(".open x.db\n.output /dev/null\n{PLAIN_WRITES}"));
    let (bytes, written) = (fs::read(&path).unwrap(), rows(folder.path(), "x.db"));
    let mut dice = Dice::seeded();
    for _ in 0..8 {
        fs::write(&path, &bytes).unwrap();
        let mut child = Command::new(pagewarden().get_program())
            .args(["protect", "--mode", "checksum", "--heal", "--quiet"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(dice.next() % 60));
        let _ = child.kill();
        child.wait().unwrap();
        json(&protect(&path, &["--heal"]), 0);
        assert_protected(&path);
        assert_eq!(rows(folder.path(), "x.db"), written);
    }
}

#[test]
fn heal_is_refused_for_other_engines() {
    let file = tempfile::tempdir().unwrap();
    let cluster = file.path().join("nothing.ibd");
    fs::write(&cluster, [0; 16384 * 4]).unwrap();
    let outcome = protect(&cluster, &["--heal"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
}

/// What was protected with `--guard` is read by the plain shell, which cannot write, in both journal
/// modes; `--mode none` lets it write again.
#[test]
fn guarded_database_is_read_and_not_written_by_a_plain_program() {
    if !has_shell() {
        return;
    }
    for options in ["", "PRAGMA journal_mode=WAL;"] {
        let folder = tempfile::tempdir().unwrap();
        let path = protected(folder.path(), options);
        let before = rows(folder.path(), "x.db");
        json(&protect(&path, &["--guard"]), 0);
        assert_protected(&path);
        let report = check([&path]).report();
        assert!(report.target()["state"].to_string().contains("guarded"), "{report:?}");
        let refused = Command::new("sqlite3")
            .arg(&path)
            .arg("DELETE FROM t")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&refused.stderr);
        assert!(words.contains("readonly database"), "{words}");
        assert_eq!(rows(folder.path(), "x.db"), before);
        assert_protected(&path);
        json(&protect(&path, &[]), 0);
        assert_eq!(fs::read(&path).unwrap()[18], 3, "it stays until it is given up");
        let none = ["protect", "--mode", "none", "--json"];
        json(&run(pagewarden().args(none).arg(&path)), 0);
        shell(folder.path(), ".open x.db\nDELETE FROM t WHERE a=1;");
    }
}

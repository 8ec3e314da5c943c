//! The VFS as the default: programs that take no URI have their databases verified, and those without
//! markers are what they were.

use std::process::Command;

use pagewarden::pack::Method;

use crate::life::LIFE;
use crate::packing::{pack, pack_with_others, settings};
use crate::shell::{self, Folder};

/// Everything a database lives through gives what it gives without the VFS, with markers and without.
#[test]
fn default_vfs_gives_the_same_rows_and_leaves_plain_databases_plain() {
    if !shell::is_there() {
        return;
    }
    for (auto, mode) in ["DELETE", "WAL", "TRUNCATE"].iter().enumerate() {
        let folder = Folder::new();
        let script = LIFE
            .replace("@PAGE", "1024")
            .replace("@AUTO", &auto.to_string())
            .replace("@MODE", mode);
        let plain = folder.run_plain("plain.db", &script);
        let ours = folder.run_default("new.db", &script);
        assert_eq!((&ours.rows, ours.errors.as_str()), (&plain.rows, ""), "{mode}");
        let checked = folder.check("new.db");
        assert_eq!((checked.setting, checked.findings), (Some("checksum"), Vec::new()), "{mode}");

        let more =
            "PRAGMA page_verify; CREATE TEMP TABLE s AS SELECT * FROM t; ATTACH ':memory:' AS m;
            CREATE TABLE m.t AS SELECT * FROM t; UPDATE t SET b='y'||b WHERE a%3=1;
            BEGIN; DELETE FROM t; ROLLBACK; VACUUM; SELECT count(*), sum(length(b)) FROM t;
            SELECT count(*) FROM s, m.t WHERE s.rowid=t.rowid; PRAGMA integrity_check;";
        folder.write("copy.db", &folder.read("plain.db"));
        let expected = folder.run_plain("copy.db", more);
        let ours = folder.run_default("plain.db", more);
        assert_eq!(ours.errors, "", "{mode}");
        assert_eq!(ours.rows, format!("NONE\n{}", expected.rows), "{mode}");
        assert_eq!(folder.read("plain.db"), folder.read("copy.db"), "{mode}");
    }
}

/// A backup by a plain path is protected if its source is, and plain if that is.
#[test]
fn backup_by_a_plain_path_is_what_its_source_is() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let fill = format!("PRAGMA journal_mode={mode}; CREATE TABLE t AS SELECT zeroblob(90000);");
        folder.run_plain("plain.db", &fill);
        folder.run_default("marked.db", &fill);
        for (name, setting) in [("plain.db", "none"), ("marked.db", "checksum")] {
            let script = "INSERT INTO t VALUES(zeroblob(9000)); UPDATE t SET rowid=rowid+5;\n\
                          .backup copy.db\nVACUUM INTO 'into.db';\n";
            let output = folder.run_default(name, script);
            // A backup of what has no room for markers is worth a line in the log.
            let is_said = output.errors.contains("has no page verification");
            assert_eq!(is_said, setting == "none", "{mode} {output:?}");
            let copy = folder.check("copy.db");
            assert_eq!((copy.setting, copy.damage()), (Some(setting), Vec::new()), "{mode}");
            assert_eq!(folder.check("into.db").setting, Some("checksum"), "{mode} {name}");
            std::fs::remove_file(folder.path("copy.db")).unwrap();
            std::fs::remove_file(folder.path("into.db")).unwrap();
        }
    }
}

#[test]
fn default_vfs_names_the_damaged_page_of_a_database_opened_by_its_path() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.run_default("x.db", "CREATE TABLE t AS SELECT hex(zeroblob(30000)) AS a;");
    let mut bytes = folder.read("x.db");
    bytes[4 * 4096 + 77] ^= 4;
    folder.write("x.db", &bytes);
    let output = folder.run_default("x.db", "SELECT length(a||'') FROM t;");
    assert_eq!(output.rows, "");
    assert!(output.errors.contains("page 5 of ") && output.errors.contains("bit 2 of byte 77"));
}

/// By its path, and by a path that goes on into it.
#[test]
fn default_vfs_reads_packs_by_plain_paths() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("all/a")).unwrap();
    folder.run_plain("all/a/b.db", "CREATE TABLE t AS SELECT 7 AS a;");
    folder.run_default("all/c.db", "CREATE TABLE t AS SELECT 8 AS a;");
    let of = |block| settings(block, Method::Zstd(3));
    pack(&folder.path("all/c.db"), &folder.path("one.pwk"), of(65_536));
    pack_with_others(
        &folder.path("all/c.db"),
        &folder.path("all"),
        &folder.path("all.pwk"),
        of(65_536),
    );
    for (name, row) in [("one.pwk", "8\n"), ("all.pwk/a/b.db", "7\n"), ("all.pwk/c.db", "8\n")] {
        let output = folder.run_default(name, "SELECT a FROM t; PRAGMA quick_check;");
        assert_eq!((output.rows, output.errors), (format!("{row}ok\n"), String::new()), "{name}");
        let output =
            folder.run_default("x.db", &format!("ATTACH '{name}' AS p; SELECT a FROM p.t;"));
        assert_eq!((output.rows.as_str(), output.errors.as_str()), (row, ""), "{name}");
        let output = folder.run_default(name, "INSERT INTO t VALUES(1);");
        assert!(output.errors.contains("readonly database"), "{output:?}");
    }
    for (name, words) in [("all.pwk/none.db", "no file none.db in it"), ("all.pwk", "a/b.db")] {
        let output = folder.run_default(name, "SELECT a FROM t;");
        assert!(output.errors.contains(words), "{output:?}");
    }
}

/// For programs that load an extension by its file's name only.
#[test]
fn variable_of_the_environment_makes_it_the_default() {
    if !shell::is_there() {
        return;
    }
    for (word, setting) in [("1", Some("checksum")), ("0", Some("none")), ("", Some("none"))] {
        let folder = Folder::new();
        let output = by_environment(&folder, word);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(folder.check("x.db").setting, setting, "{word}");
    }
    let output = by_environment(&Folder::new(), "yes");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("PAGEWARDEN_SQLITE_DEFAULT is 0 or 1, not yes"), "{errors}");
}

fn by_environment(folder: &Folder, word: &str) -> std::process::Output {
    Command::new("sqlite3")
        .env("PAGEWARDEN_SQLITE_DEFAULT", word)
        .args(["-batch", "-init", "/dev/null", ":memory:"])
        .args(["-cmd", &format!(".load {}", shell::extension().display())])
        .arg("-cmd")
        .arg(format!(".open {}", folder.path("x.db").display()))
        .arg("CREATE TABLE t(a);")
        .output()
        .unwrap()
}

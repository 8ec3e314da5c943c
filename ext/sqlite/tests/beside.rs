//! Programs without the VFS beside those with it: what they may do, and what the guard keeps them from.

use std::fs;
use std::num::NonZeroU32;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker, Mode, Room};
use pagewarden::verdict::PageNo;

use crate::shell::{self, Folder, Random};

const MODES: [&str; 4] = ["DELETE", "TRUNCATE", "PERSIST", "WAL"];
const READ_ONLY: &str = "attempt to write a readonly database";

fn fill(mode: &str) -> String {
    format!(
        "PRAGMA page_size=1024; PRAGMA page_verify=CHECKSUM; PRAGMA journal_mode={mode};
         CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b);
         WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<500)
         INSERT INTO t SELECT v, hex(randomblob(100)) FROM n;"
    )
}

/// What is in the log when the last program leaves it, a plain one brings into the file.
#[test]
fn log_that_a_plain_program_brings_in_carries_markers() {
    if !shell::is_there() {
        return;
    }
    for (setting, cache) in [("CHECKSUM", 2000), ("TORN_PAGE_DETECTION", 5), ("CHECKSUM", 5)] {
        let folder = Folder::new();
        folder.rows("x.db", &fill("WAL"));
        let change = format!(
            "PRAGMA page_verify={setting}; PRAGMA cache_size={cache};
             PRAGMA wal_autocheckpoint=0;
             BEGIN; UPDATE t SET b=hex(randomblob(120)) WHERE a%3=0; SAVEPOINT s;
             UPDATE t SET b='gone'; INSERT INTO t SELECT a+1000, hex(zeroblob(900)) FROM t;
             ROLLBACK TO s; DELETE FROM t WHERE a%7=0; COMMIT;
             INSERT INTO t(b) SELECT hex(randomblob(2000)) FROM t LIMIT 50;
             CREATE TABLE u AS SELECT * FROM t;
             SELECT count(*), sum(length(b)) FROM t;"
        );
        let (copy, rows) = left_in_log(&folder, &change);
        assert!(copy.read("x.db-wal").len() > 100_000);
        let by_plain = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check;
             SELECT count(*), sum(length(b)) FROM t;";
        let plain = copy.run_plain("x.db", by_plain);
        assert_eq!(plain.errors, "");
        let (_, sound) = plain.rows.split_once('\n').unwrap();
        assert_eq!(sound, format!("ok\n{rows}"), "{setting}");
        let checked = copy.check("x.db");
        assert_eq!(checked.damage(), Vec::<&_>::new(), "{setting}, cache of {cache} pages");
        assert_eq!(copy.rows("x.db", "PRAGMA integrity_check;"), "ok\n");
    }
}

/// Runs `change` on `x.db` in a shell that is killed behind it; gives a copy of what that leaves, and
/// the last line that it wrote.
fn left_in_log(folder: &Folder, change: &str) -> (Folder, String) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut shell = folder
        .command("x.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    writeln!(input, "{change}\nSELECT 'end';").unwrap();
    let mut last = String::new();
    for line in BufReader::new(shell.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if line == "end" {
            break;
        }
        last = format!("{line}\n");
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    let copy = Folder::new();
    for name in ["x.db", "x.db-wal"] {
        fs::copy(folder.path(name), copy.path(name)).unwrap();
    }
    (copy, last)
}

#[test]
fn guard_lets_plain_programs_read_and_not_write() {
    if !shell::is_there() {
        return;
    }
    for mode in MODES {
        let folder = Folder::new();
        folder.rows("x.db", &fill(mode));
        assert_eq!(folder.rows("x.db", "PRAGMA page_verify_guard;"), "0\n");
        assert_eq!(folder.run_plain("x.db", "INSERT INTO t(b) VALUES('plain');").errors, "");
        let heal = "UPDATE t SET b=b; DELETE FROM t WHERE b='plain'; VACUUM;";
        folder.run("x.db", &format!("PRAGMA page_verify_ignore=1; {heal}"));
        assert_eq!(folder.rows("x.db", "PRAGMA page_verify_guard = 1;"), "1\n", "{mode}");
        for round in 0..3 {
            let refused = folder.run_plain(
                "x.db",
                "SELECT count(*) FROM t;\nINSERT INTO t(b) VALUES('plain');\nVACUUM;\n\
                 PRAGMA user_version=7;\nPRAGMA user_version;",
            );
            assert_eq!(refused.rows, format!("{}\n0\n", 500 + round), "{mode}");
            assert!(refused.errors.matches(READ_ONLY).count() >= 2, "{mode}: {refused:?}");
            let rows = folder.rows(
                "x.db",
                "PRAGMA page_verify_guard; INSERT INTO t(b) VALUES('ours'); SELECT count(*) FROM t;",
            );
            assert_eq!(rows, format!("1\n{}\n", 501 + round), "{mode}");
            assert_eq!(folder.read("x.db")[18], 3, "{mode}");
            assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode}");
        }
        let kept = "BEGIN; UPDATE t SET b='x'; ROLLBACK; VACUUM; PRAGMA incremental_vacuum; \
                    CREATE TABLE v(a); PRAGMA page_verify_guard; PRAGMA integrity_check;";
        assert_eq!(folder.rows("x.db", kept), "1\nok\n", "{mode}");
        assert_eq!(folder.read("x.db")[18], 3, "{mode}");
        assert_eq!(folder.rows("x.db", "PRAGMA page_verify_guard = off;"), "0\n", "{mode}");
        assert_eq!(folder.run_plain("x.db", "PRAGMA user_version=7;").errors, "", "{mode}");
    }
}

/// Page 1 is in the log where the journal mode is changed, and the guard with it.
#[test]
fn guard_stays_when_the_journal_mode_changes() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.rows("x.db", &fill("DELETE"));
    folder.rows("x.db", "PRAGMA page_verify_guard = 1;");
    for mode in ["WAL", "DELETE", "WAL", "TRUNCATE"] {
        let rows = folder.rows(
            "x.db",
            &format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE \"{mode}{}\"(a);
             PRAGMA page_verify_guard;",
                folder.read("x.db").len()
            ),
        );
        assert_eq!(rows, format!("{}\n1\n", mode.to_lowercase()));
        let plain = folder.run_plain("x.db", "DELETE FROM t;\nSELECT count(*) FROM t;");
        assert!(plain.rows == "500\n" && plain.errors.contains(READ_ONLY), "{mode}: {plain:?}");
        assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode}");
    }
}

#[test]
fn guard_is_refused_where_there_is_no_room_for_it() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.run_plain("plain.db", "CREATE TABLE t(a);");
    let output = folder.run("plain.db", "PRAGMA page_verify_guard; PRAGMA page_verify_guard = 1;");
    assert_eq!(output.rows, "0\n");
    assert!(output.errors.contains("only a database with markers"), "{output:?}");
    folder.rows("x.db", &fill("WAL"));
    let output = folder.run("x.db", "BEGIN; PRAGMA page_verify_guard = 1; COMMIT;");
    assert!(output.errors.contains("inside a transaction"), "{output:?}");
}

/// A copy over a protected database would leave pages without room for markers: refused before it is
/// committed, in every mode.
#[test]
fn copy_of_a_plain_database_over_a_protected_one_changes_nothing() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        folder.rows("x.db", &fill(mode));
        let plain = "CREATE TABLE w(a); WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n \
             WHERE v<900) INSERT INTO w SELECT hex(zeroblob(700)) FROM n;";
        folder.run_plain("plain.db", &format!("PRAGMA page_size=1024; {plain}"));
        let output = folder.run("x.db", "PRAGMA cache_size=5;\n.restore plain.db\n");
        assert!(output.errors.contains("fewer reserved bytes"), "{mode}: {output:?}");
        let rows = folder.rows("x.db", "SELECT count(*) FROM t; PRAGMA integrity_check;");
        assert_eq!(rows, "500\nok\n", "{mode}");
        assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode}");
    }
}

/// Writers with the VFS that are killed, plain readers that play back journals and bring in logs, and
/// plain writers that are refused: no row is lost and no page fails.
#[test]
fn killed_writers_beside_plain_programs_leave_all_that_was_committed() {
    if !shell::is_there() {
        return;
    }
    let mut random = Random(0xbead);
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        folder.rows("x.db", &fill(mode));
        folder.rows("x.db", "PRAGMA page_verify_guard = 1; CREATE TABLE done(n);");
        let mut committed = 0;
        for round in 0..12_u64 {
            let mut script = String::from(
                "PRAGMA busy_timeout=9000; PRAGMA cache_size=8; PRAGMA synchronous=OFF;\n",
            );
            for number in 1..=400 {
                script.push_str(&format!(
                    "BEGIN IMMEDIATE; UPDATE t SET b=hex(randomblob(90)) WHERE a%11={}; \
                     INSERT INTO done VALUES({round}*1000+{number}); COMMIT; \
                     SELECT 'n', {number};\n",
                    number % 11
                ));
            }
            fs::write(folder.path("script.sql"), script).unwrap();
            let mut writer = folder
                .command("x.db")
                .stdin(Stdio::from(fs::File::open(folder.path("script.sql")).unwrap()))
                .stdout(Stdio::from(fs::File::create(folder.path("out")).unwrap()))
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let plain = "PRAGMA busy_timeout=9000;\nSELECT count(*) FROM t;\nDELETE FROM t;";
            for _ in 0..3 {
                thread::sleep(Duration::from_micros(random.below(30_000)));
                let output = folder.run_plain("x.db", plain);
                assert!(output.errors.contains(READ_ONLY), "{mode} {round}: {output:?}");
            }
            writer.kill().unwrap();
            writer.wait().unwrap();
            let said = fs::read_to_string(folder.path("out")).unwrap();
            committed += said.lines().filter(|line| line.starts_with("n|")).count();
            let output = folder.run_plain("x.db", "SELECT count(*) FROM t;");
            assert_eq!((&*output.rows, &*output.errors), ("500\n", ""), "{mode} {round}");
            assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode} {round}");
        }
        let rows = folder.rows(
            "x.db",
            "SELECT count(*) FROM done; PRAGMA integrity_check; PRAGMA page_verify_guard; \
             SELECT count(*) FROM pagewarden_suspect_pages;",
        );
        let (done, rest) = rows.split_once('\n').unwrap();
        assert_eq!(rest, "ok\n1\n0\n", "{mode}");
        assert!(committed > 0 && done.parse::<usize>().unwrap() >= committed, "{mode}: {done}");
    }
}

/// Where SQLite pads its log to sectors and splits what it writes there, nothing is stamped in it, and all
/// is well all the same; a copy over the database then makes a plain one of it, and no mixture.
#[test]
fn log_that_is_written_in_pieces_is_left_as_it_is() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.rows("x.db", &fill("WAL"));
    let name = "x.db?psow=0";
    for _ in 0..3 {
        let rows = folder.rows(
            name,
            "PRAGMA synchronous=FULL; UPDATE t SET b=hex(randomblob(90)) WHERE a%3=0; \
             SELECT count(*) FROM t; PRAGMA integrity_check;",
        );
        assert_eq!(rows, "500\nok\n");
        assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new());
    }
    folder.rows("x.db", "PRAGMA page_verify_guard = 1;");
    let output = folder.run(name, "UPDATE t SET b=1;");
    assert!(output.errors.contains("leave out psow=0"), "{output:?}");
    assert_eq!(folder.rows("x.db", "PRAGMA page_verify_guard = 0;"), "0\n");
    let plain = "CREATE TABLE w(a); WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n \
         WHERE v<900) INSERT INTO w SELECT hex(zeroblob(700)) FROM n;";
    folder.run_plain("plain.db", &format!("PRAGMA page_size=1024; {plain}"));
    let output =
        folder.run(name, "PRAGMA synchronous=FULL; PRAGMA cache_size=5;\n.restore plain.db\n");
    let rows =
        folder.run("x.db", "PRAGMA integrity_check; SELECT count(*), max(length(a)) FROM w;");
    assert_eq!(rows.rows, "ok\n900|1400\n", "{output:?} {rows:?}");
}

/// What an earlier version protected has 16 reserved bytes: it is read, written, vacuumed and brought in
/// from the log as before, and has no guard.
#[test]
fn database_with_sixteen_reserved_bytes_keeps_them() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let fill = fill(mode).replace("PRAGMA page_verify=CHECKSUM;", "");
        folder.run_plain("x.db", &format!(".filectrl reserve_bytes 16\n{fill}"));
        let mut bytes = folder.read("x.db");
        assert_eq!(bytes[20], 16);
        for (number, page) in (1..).map(PageNo).zip(bytes.chunks_exact_mut(1024)) {
            let setting = (number == PageNo(1)).then_some(Mode::Checksum);
            let (mode, database, room) = (Mode::Checksum, NonZeroU32::MIN, Room::Marker);
            page_verify::stamp(page, number, Marker { mode, setting, database, room });
        }
        folder.write("x.db", &bytes);
        assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode}");
        for change in ["UPDATE t SET b=hex(randomblob(90)) WHERE a%3=0;", "VACUUM;"] {
            let rows = folder.rows("x.db", &format!("{change} SELECT count(*) FROM t;"));
            assert_eq!(rows, "500\n", "{mode}");
            assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{mode}");
            assert_eq!(folder.read("x.db")[20], 16);
        }
        let output = folder.run("x.db", "PRAGMA page_verify_guard = 1;");
        assert!(output.errors.contains("16 reserved bytes"), "{output:?}");
        assert_eq!(
            folder.rows("x.db", "PRAGMA page_verify_guard; PRAGMA integrity_check;"),
            "0\nok\n"
        );
    }
}

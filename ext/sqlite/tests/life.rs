//! What databases live through: every page size and journal mode gives the rows that SQLite gives
//! without the extension, and a file on which every page passes.

use pagewarden::formats::sqlite::checksum::page_verify::{Marker, Mode};

use crate::shell::{self, Folder, Random};

pub const LIFE: &str = "
PRAGMA page_size=@PAGE; PRAGMA auto_vacuum=@AUTO; PRAGMA journal_mode=@MODE; PRAGMA cache_size=20;
CREATE TABLE t(a INTEGER PRIMARY KEY, b, c BLOB);
CREATE INDEX i ON t(b);
BEGIN;
WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<1500)
INSERT INTO t SELECT v, hex(v*v*7919), zeroblob(v%3000) FROM n;
COMMIT;
SELECT count(*), sum(length(b)), sum(length(c)) FROM t;
BEGIN; DELETE FROM t WHERE a%3=0;
SAVEPOINT s; UPDATE t SET c=zeroblob(500) WHERE a%5=0; ROLLBACK TO s;
UPDATE t SET b='z' WHERE a%7=0; RELEASE s; COMMIT;
BEGIN; DELETE FROM t; CREATE TABLE u AS SELECT a, zeroblob(900) FROM t; ROLLBACK;
BEGIN; CREATE TABLE u AS SELECT a, zeroblob(900) z FROM t; DROP TABLE u; COMMIT;
SELECT count(*), sum(length(b)), sum(length(c)) FROM t;
PRAGMA incremental_vacuum(5);
PRAGMA integrity_check;
VACUUM;
PRAGMA integrity_check;
SELECT * FROM t WHERE a%17=0;
";

#[test]
fn every_page_size_and_journal_mode_gives_the_same_rows_and_sound_pages() {
    if !shell::is_there() {
        return;
    }
    for (index, mode) in ["DELETE", "TRUNCATE", "PERSIST", "WAL", "MEMORY"].iter().enumerate() {
        for page_size in [512, 1024, 4096, 65_536] {
            let what = format!("{mode} {page_size}");
            let folder = Folder::new();
            let script = LIFE
                .replace("@PAGE", &page_size.to_string())
                .replace("@AUTO", &(index % 3).to_string())
                .replace("@MODE", mode);
            let plain = folder.run_plain("plain.db", &script);
            let rows = folder.rows("x.db", &script);
            assert_eq!(rows, plain.rows, "{what}");
            let copies = "VACUUM INTO 'file:into.db?vfs=pagewarden';\n\
                          .backup main file:backup.db?vfs=pagewarden\n\
                          SELECT count(*) FROM pagewarden_suspect_pages;";
            assert_eq!(folder.rows("x.db", copies), "0\n", "{what}");
            for name in ["x.db", "into.db", "backup.db"] {
                let count = "SELECT count(*) FROM t; PRAGMA integrity_check;";
                assert_eq!(folder.rows(name, count), "1000\nok\n", "{what} {name}");
                let checked = folder.check(name);
                assert_eq!(checked.findings, [], "{what} {name}");
                assert_eq!(checked.setting, Some("checksum"));
                let pages = checked.summary.pages;
                assert!(pages.ok > 0 && pages.ok == pages.total(), "{what} {name} {pages:?}");
            }
        }
    }
}

const MODES: [&str; 5] = ["DELETE", "WAL", "TRUNCATE", "PERSIST", "MEMORY"];

/// Statements at random, with the failures that come of them. Without a journal mode, that changes
/// too.
fn statements(seed: u64, count: u64, journal: Option<&str>) -> String {
    let mut random = Random(seed);
    let mut script = format!(
        "PRAGMA cache_size=15; PRAGMA synchronous=OFF; PRAGMA journal_mode={};\n\
         CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c);\nCREATE INDEX i ON t(c);\n",
        journal.unwrap_or("DELETE")
    );
    for _ in 0..count {
        let (key, size) = (random.below(400), random.below(6000));
        let line = match random.below(24) {
            0..=7 => {
                format!("INSERT OR REPLACE INTO t VALUES({key}, 'b{size}', zeroblob({size}));")
            }
            8..=10 => {
                format!("UPDATE t SET c=hex(zeroblob({})) WHERE a>{key} AND a<{key}+9;", size / 4)
            }
            11..=12 => format!("DELETE FROM t WHERE a BETWEEN {key} AND {key}+7;"),
            13 => "BEGIN;".to_owned(),
            14 => "COMMIT;".to_owned(),
            15 => "ROLLBACK;".to_owned(),
            16 => "SAVEPOINT s;".to_owned(),
            17 => "ROLLBACK TO s;".to_owned(),
            18 => "RELEASE s;".to_owned(),
            19 => format!("INSERT INTO t SELECT a+{key}, b||'x', c FROM t LIMIT 20;"),
            20 if size < 600 => "VACUUM;".to_owned(),
            21 if size < 1500 && journal.is_none() => {
                let mode = MODES[(key % 5) as usize];
                format!("PRAGMA journal_mode={mode};")
            }
            22 if size < 1500 => "PRAGMA wal_checkpoint(TRUNCATE);".to_owned(),
            _ => format!("SELECT a, b, length(c) FROM t WHERE a>={key} ORDER BY a LIMIT 5;"),
        };
        script.push_str(&line);
        script.push('\n');
    }
    script.push_str("SELECT count(*), sum(length(c)), sum(a) FROM t; PRAGMA integrity_check;\n");
    script
}

/// The first line that is not the same, but for the lines of SQLite's log.
fn first_difference(ours: &str, plain: &str) -> Option<(String, String)> {
    let lines = |text: &str| -> Vec<String> {
        let end = "(the end)".to_owned();
        text.lines().filter(|line| !line.starts_with('(')).map(str::to_owned).chain([end]).collect()
    };
    lines(ours).into_iter().zip(lines(plain)).find(|(ours, plain)| ours != plain)
}

/// `PAGEWARDEN_STATEMENTS` sets how many, for each journal mode and page size.
#[test]
fn random_statements_give_what_they_give_without_the_extension() {
    if !shell::is_there() {
        return;
    }
    let count = std::env::var("PAGEWARDEN_STATEMENTS").ok().and_then(|count| count.parse().ok());
    let count: u64 = count.unwrap_or(300);
    let journals = [None].into_iter().chain(MODES.map(Some));
    for (seed, journal) in (0x5eed_0001..).zip(journals) {
        for page_size in [512, 4096, 16_384, 65_536] {
            let what = format!("{journal:?} {page_size} seed {seed:#x}");
            let folder = Folder::new();
            let script = statements(seed + page_size, count, journal);
            let script = format!("PRAGMA page_size={page_size};\n{script}");
            let (plain, ours) =
                (folder.run_plain("plain.db", &script), folder.run("x.db", &script));
            assert_eq!(first_difference(&ours.errors, &plain.errors), None, "{what}");
            assert_eq!(first_difference(&ours.rows, &plain.rows), None, "{what}");
            assert_eq!(folder.check("x.db").damage(), Vec::<&_>::new(), "{what}");
        }
    }
}

/// No locks, or one for good: the file is written all the same, and in full.
#[test]
fn connection_that_locks_otherwise_writes_what_it_writes_without_the_extension() {
    if !shell::is_there() {
        return;
    }
    let fill = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
        WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<900)
        INSERT INTO t SELECT v, hex(v*v*7919)||hex(zeroblob(v%90)) FROM n;";
    let work = "PRAGMA cache_size=5; UPDATE t SET b='x'||b WHERE a%13=0; BEGIN; \
        DELETE FROM t WHERE a%3=0; ROLLBACK; DELETE FROM t WHERE a>700; PRAGMA page_verify=NONE; \
        UPDATE t SET b=b||a WHERE a=5; PRAGMA page_verify=CHECKSUM; INSERT INTO t SELECT a+5000, b \
        FROM t; VACUUM; SELECT * FROM t; PRAGMA integrity_check;";
    for (name, first) in [
        ("x.db?nolock=1", ""),
        ("x.db", "PRAGMA locking_mode=EXCLUSIVE;"),
        ("x.db", "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"),
        ("x.db", "PRAGMA mmap_size=100000000;"),
    ] {
        let what = format!("{name} {first}");
        let folder = Folder::new();
        folder.rows("x.db", fill);
        folder.run_plain("plain.db", fill);
        let script = format!("{first} {work}");
        let plain = folder.run_plain("plain.db", &script).rows;
        let ours = folder.rows(name, &script);
        assert!(plain.ends_with("ok\n"), "{what}");
        // But for what the pragmas of the extension answer, and how much is mapped: nothing.
        let rows = |text: &str| -> Vec<String> {
            let is_row = |line: &&str| !["NONE", "CHECKSUM", "0", "100000000"].contains(line);
            text.lines().filter(is_row).map(str::to_owned).collect()
        };
        assert!(rows(&ours) == rows(&plain), "{what}\n{ours:.600}\n{plain:.600}");
        assert_eq!(folder.check("x.db").findings, [], "{what}");
        assert_eq!(folder.rows("x.db", "PRAGMA integrity_check;"), "ok\n", "{what}");
    }
}

#[test]
fn setting_changes_no_page_but_those_that_are_written() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let fill = "PRAGMA journal_mode=@; CREATE TABLE t(a INTEGER PRIMARY KEY, b);
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<2000)
            INSERT INTO t SELECT v, hex(zeroblob(100)) FROM n;";
        folder.rows("x.db", &fill.replace('@', mode));
        let before = folder.read("x.db");
        let answer = folder.rows("x.db", "PRAGMA page_verify=TORN_PAGE_DETECTION;");
        assert_eq!(answer, "TORN_PAGE_DETECTION\n");
        let after = folder.read("x.db");
        let changed: Vec<_> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        assert!(changed.iter().all(|at| (4080..4096).contains(at)), "{changed:?}");
        let script = "UPDATE t SET b='torn' WHERE a=1000; PRAGMA page_verify=NONE;
            UPDATE t SET b='none' WHERE a=1; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA page_verify;";
        let rows = folder.rows("x.db", script);
        assert!(rows.ends_with("NONE\n"), "{rows}");
        let checked = folder.check("x.db");
        assert_eq!((checked.setting, checked.findings), (Some("none"), Vec::new()));
        let modes = checked.summary.by_mode;
        assert!(modes.checksum > 50 && modes.none > 0, "{mode} {modes:?}");
        assert!(mode == "WAL" || modes.torn > 0, "{mode} {modes:?}");
    }
}

#[test]
fn database_without_markers_gets_them_by_vacuum() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL", "MEMORY"] {
        let folder = Folder::new();
        let fill = format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(a INTEGER PRIMARY KEY, b);
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<3000)
            INSERT INTO t SELECT v, hex(zeroblob(v%100)) FROM n;"
        );
        folder.run_plain("x.db", &fill);
        let convert = format!(
            "PRAGMA journal_mode={mode}; PRAGMA page_verify; PRAGMA page_verify=CHECKSUM; \
             PRAGMA cache_size=5; VACUUM; PRAGMA page_verify; SELECT count(*) FROM t; \
             PRAGMA integrity_check; UPDATE t SET b=b||'x'; PRAGMA wal_checkpoint;"
        );
        let rows = folder.rows("x.db", &convert);
        assert!(rows.contains("NONE\nNONE, and after VACUUM CHECKSUM\n"), "{rows}");
        assert!(rows.contains("3000\nok\n"), "{mode} {rows}");
        assert_eq!(folder.rows("x.db", "PRAGMA page_verify;"), "CHECKSUM\n");
        let checked = folder.check("x.db");
        assert_eq!((checked.setting, checked.findings), (Some("checksum"), Vec::new()), "{mode}");
    }
}

/// What the pragma answers for a database without a page is what its first page will carry, and it
/// carries it without being asked.
#[test]
fn new_database_that_is_attached_is_protected() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    let script = "ATTACH 'file:y.db?vfs=pagewarden' AS y; PRAGMA y.page_verify; \
        CREATE TABLE y.t AS SELECT 1 AS a; PRAGMA y.page_verify; CREATE TABLE main.t(a); \
        PRAGMA main.page_verify;";
    assert_eq!(folder.rows("x.db", script), "CHECKSUM\nCHECKSUM\nCHECKSUM\n");
    let script = "PRAGMA journal_mode=WAL; ATTACH 'file:z.db?vfs=pagewarden' AS \"a \"\"b\"; \
        BEGIN; CREATE TABLE main.u(a); CREATE TABLE z(a); COMMIT; \
        CREATE TABLE \"a \"\"b\".t AS SELECT 1 AS a; \
        ATTACH 'file:torn.db?vfs=pagewarden&page_verify=TORN_PAGE_DETECTION' AS torn; \
        PRAGMA torn.page_size=1024; CREATE TABLE torn.t(a); \
        VACUUM main INTO 'file:into.db?vfs=pagewarden'; ATTACH ':memory:' AS m; CREATE TABLE m.t(a);";
    assert_eq!(folder.rows("x.db", script), "wal\n");
    for name in ["x.db", "y.db", "z.db", "into.db"] {
        let checked = folder.check(name);
        assert_eq!((checked.setting, checked.findings), (Some("checksum"), Vec::new()), "{name}");
        assert_eq!(checked.summary.pages.ok, checked.summary.pages.total(), "{name}");
    }
    let checked = folder.check("torn.db");
    assert_eq!((checked.setting, checked.findings), (Some("torn"), Vec::new()));
}

/// A copy by the backup API takes pages as they are. Without room for markers they cannot be protected,
/// and the program that asked for protection hears it.
#[test]
fn plain_database_is_not_copied_into_a_new_one_that_is_to_be_protected() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.run_plain("plain.db", "CREATE TABLE t AS SELECT 1 AS a;");
    let output = folder.run_default("plain.db", ".backup main file:new.db?vfs=pagewarden");
    assert!(output.errors.contains("Error: disk I/O error"), "{output:?}");
    assert!(output.errors.contains("pagewarden protect --mode checksum"), "{output:?}");
    assert_eq!(folder.read("new.db").len(), 0);
    // VACUUM INTO writes new pages.
    let output = folder.run_default("plain.db", "VACUUM INTO 'file:into.db?vfs=pagewarden';");
    assert_eq!(output.errors, "");
    assert_eq!(folder.check("into.db").setting, Some("checksum"));
}

#[test]
fn setting_that_there_is_not_is_refused_in_words() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    let output = folder.run("x.db?page_verify=FOO", "CREATE TABLE t(a);");
    let words = "x.db: page_verify is NONE, TORN_PAGE_DETECTION or CHECKSUM, not FOO";
    assert!(output.errors.contains(words), "{output:?}");
    assert!(!folder.path("x.db").exists());
    let output = folder.run("x.db", "PRAGMA page_verify=FOO; SELECT 'on';");
    assert!(output.errors.contains("TORN_PAGE_DETECTION or CHECKSUM, not FOO"), "{output:?}");
}

/// A file that cannot be written says so, and is verified like any other.
#[test]
fn read_only_database_keeps_its_setting() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.rows("x.db", "CREATE TABLE t AS SELECT hex(zeroblob(9000)) AS a;");
    for name in ["x.db?mode=ro", "x.db?immutable=1"] {
        let output = folder.run(name, "SELECT length(a) FROM t;\nPRAGMA page_verify=NONE;");
        assert_eq!(output.rows, "18000\n", "{name}");
        assert!(output.errors.contains("read-only"), "{name} {}", output.errors);
    }
    assert_eq!(folder.rows("x.db", "PRAGMA page_verify;"), "CHECKSUM\n");
    let mut bytes = folder.read("x.db");
    let middle = bytes.len() - 5000;
    bytes[middle] ^= 1;
    folder.write("x.db", &bytes);
    for name in ["x.db?mode=ro", "x.db?immutable=1", "x.db?nolock=1", "x.db?cache=shared"] {
        let output = folder.run(name, "SELECT length(a), a FROM t;");
        assert!(output.errors.contains("is damaged"), "{name} {}", output.errors);
    }
}

#[test]
fn official_database_is_verified_and_kept_as_the_official_vfs_has_it() {
    if !shell::is_there() {
        return;
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sqlite/3.40.1");
    for name in ["cksumvfs-512.db", "cksumvfs-4096.db"] {
        let folder = Folder::new();
        folder.write("x.db", &std::fs::read(format!("{golden}/{name}")).unwrap());
        let script = "PRAGMA integrity_check; CREATE TABLE more AS SELECT zeroblob(9000) z; \
                      PRAGMA page_verify;";
        let rows = folder.rows("x.db", script);
        assert_eq!(rows, "ok\nCHECKSUM\n");
        assert_eq!(folder.check("x.db").findings, []);
        let mut bytes = folder.read("x.db");
        let page_size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        bytes[2 * page_size - 20] ^= 1;
        folder.write("x.db", &bytes);
        let output = folder.run("x.db", "PRAGMA integrity_check;");
        assert!(output.errors.contains("is damaged"), "{output:?}");
    }
}

#[test]
fn setting_is_switched_beside_other_processes_that_write() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let begin =
            format!("PRAGMA journal_mode={mode}; CREATE TABLE t(a INTEGER PRIMARY KEY, b);");
        folder.rows("x.db", &begin);
        let writes = "INSERT INTO t(b) VALUES(hex(randomblob(300)));\n\
                      UPDATE t SET b=hex(randomblob(250)) WHERE a%7=abs(random())%7;\n"
            .repeat(100);
        let writes = format!("PRAGMA busy_timeout=30000;\n{writes}");
        let switches = "PRAGMA page_verify=TORN_PAGE_DETECTION;\nPRAGMA page_verify=CHECKSUM;\n";
        std::thread::scope(|scope| {
            let writers = [(); 2].map(|()| scope.spawn(|| folder.run("x.db", &writes)));
            let switched = folder.run("x.db", &switches.repeat(20)).rows;
            assert!(switched.contains("CHECKSUM"), "{mode}");
            for writer in writers {
                let output = writer.join().unwrap();
                assert!(!output.errors.contains("error"), "{mode} {}", output.errors);
            }
        });
        let script = "SELECT count(*) FROM t; PRAGMA integrity_check; \
                      SELECT count(*) FROM pagewarden_suspect_pages;";
        assert_eq!(folder.rows("x.db", script), "200\nok\n0\n", "{mode}");
        assert_eq!(folder.check("x.db").findings, [], "{mode}");
    }
}

/// A checkpoint holds the frames that it verified up to a limit; behind it SQLite reads the log itself. Pages
/// that were logged under another setting get the marker of the one that holds now.
#[test]
fn log_longer_than_a_checkpoint_holds_comes_in_whole() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    let sum = "SELECT count(*), sum(a*length(b)), sum(unicode(substr(b, 7))) FROM t;";
    let rows = folder.rows(
        "x.db",
        &format!(
            "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA page_verify=NONE;
             CREATE TABLE t(a INTEGER PRIMARY KEY, b);
             WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<15000)
             INSERT INTO t SELECT v, hex(randomblob(150)) FROM n;
             PRAGMA page_verify=CHECKSUM;
             UPDATE t SET b=hex(randomblob(150)) WHERE a>3000;
             UPDATE t SET b=hex(randomblob(150)) WHERE a%90=0;
             \n.shell stat -c %s x.db-wal\n\
             {sum} PRAGMA wal_checkpoint(TRUNCATE); {sum} PRAGMA integrity_check;"
        ),
    );
    let lines: Vec<&str> = rows.lines().collect();
    let [_, _, _, _, bytes, before, _, after, sound] = lines[..] else { panic!("{rows}") };
    assert!(bytes.parse::<u64>().unwrap() > 8 << 20, "{rows}");
    assert_eq!((before, sound), (after, "ok"));
    let checked = folder.check("x.db");
    assert_eq!(checked.findings, Vec::new());
    assert_eq!(checked.summary.pages.ok, checked.summary.pages.total());
    let file = folder.read("x.db");
    let (pages, _) = file.as_chunks::<4096>();
    let modes = pages.iter().filter_map(|page| Some(Marker::read(page)?.mode));
    assert!(modes.clone().all(|mode| mode == Mode::Checksum));
    assert_eq!(modes.count(), pages.len());
}

/// Many programs name their page size each time they open a database.
#[test]
fn page_size_that_the_database_has_may_be_asked_for_again() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        folder.rows(
            "x.db",
            &format!("PRAGMA page_size=1024; PRAGMA journal_mode={mode}; CREATE TABLE t(a);"),
        );
        let same =
            "PRAGMA page_size=1024; PRAGMA page_size=7; PRAGMA page_size; INSERT INTO t VALUES(1);
             VACUUM; SELECT count(*) FROM t;";
        for rows in 1..3 {
            assert_eq!(folder.rows("x.db", same), format!("1024\n{rows}\n"), "{mode}");
        }
        let output = folder.run("x.db", "PRAGMA page_size=4096;");
        assert!(output.errors.contains("VACUUM INTO a new one"), "{mode}: {output:?}");
        assert_eq!(folder.check("x.db").findings, Vec::new(), "{mode}");
    }
}

//! `pagewarden check` on what lies beside SQLite databases: logs and journals that the real library
//! wrote, at rest, in use and after `kill -9`, are never called damaged; a flipped bit in a
//! committed frame always is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::Dice;
use crate::runner::{Started, check, check_text};
use crate::sqlite::{has_shell, shell};

const HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 1024;

/// A database and its log of three commits, copied while it was open; its pages have 1 KiB.
struct Logged {
    _folder: TempDir,
    database: PathBuf,
    log: PathBuf,
    sound: Vec<u8>,
}

impl Logged {
    fn new() -> Option<Self> {
        let folder = has_shell().then(|| tempfile::tempdir().unwrap())?;
        shell(
            folder.path(),
            ".open live.db\n.output /dev/null\nPRAGMA page_size = 1024; PRAGMA journal_mode = WAL;\n\
             PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
             PRAGMA wal_checkpoint(RESTART);\n\
             WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 40)\n\
             INSERT INTO t SELECT x, randomblob(700) FROM n;\n\
             UPDATE t SET b = randomblob(800) WHERE a % 2 = 0; DELETE FROM t WHERE a > 35;\n\
             .shell cp live.db copy.db && cp live.db-wal copy.db-wal\n",
        );
        let database = folder.path().join("copy.db");
        let log = folder.path().join("copy.db-wal");
        let sound = fs::read(&log).unwrap();
        assert_eq!((sound.len() - HEADER_BYTES) % FRAME_BYTES, 0);
        let made = Self { _folder: folder, database, log, sound };
        let ends = made.commits();
        assert!(ends.len() == 3 && ends[0] > 10 && ends[2] + 1 == made.frames(), "{ends:?}");
        assert_eq!(made.check().verdict(), "unprotected");
        Some(made)
    }

    fn frames(&self) -> usize {
        (self.sound.len() - HEADER_BYTES) / FRAME_BYTES
    }

    /// The frames that are commits.
    fn commits(&self) -> Vec<usize> {
        let is_commit = |frame: &usize| {
            let at = HEADER_BYTES + frame * FRAME_BYTES;
            self.sound[at + 4..at + 8] != [0; 4]
        };
        (0..self.frames()).filter(is_commit).collect()
    }

    fn check(&self) -> crate::runner::Report {
        check([&self.database]).report()
    }

    /// Checks with a log that was changed, and puts it right again.
    fn check_with(&self, change: impl FnOnce(&mut [u8])) -> crate::runner::Report {
        let mut bytes = self.sound.clone();
        change(&mut bytes);
        fs::write(&self.log, bytes).unwrap();
        let report = self.check();
        fs::write(&self.log, &self.sound).unwrap();
        report
    }
}

fn findings(report: &crate::runner::Report) -> Vec<Value> {
    report.target()["findings"].as_array().unwrap().clone()
}

#[test]
fn any_flipped_bit_of_a_committed_log_is_damage_with_its_frame() {
    let Some(logged) = Logged::new() else { return };
    let mut dice = Dice::seeded();
    for turn in 0..60 {
        // The header, the header of a frame, a page.
        let byte = match turn % 3 {
            0 => dice.within(0..HEADER_BYTES),
            1 => HEADER_BYTES + dice.within(0..logged.frames()) * FRAME_BYTES + dice.within(0..24),
            _ => dice.within(HEADER_BYTES..logged.sound.len()),
        };
        let bit = dice.within(0..8);
        let report = logged.check_with(|log| log[byte] ^= 1 << bit);
        let found = findings(&report);
        assert_eq!(report.verdict(), "damaged", "byte {byte} bit {bit}: {}", report.json);
        assert_eq!(found.len(), 1, "byte {byte} bit {bit}: {}", report.json);
        let frame = byte.checked_sub(HEADER_BYTES).map(|at| at / FRAME_BYTES);
        let begin = frame.map_or(0, |frame| HEADER_BYTES + frame * FRAME_BYTES);
        assert_eq!(found[0]["offset"], begin, "{}", report.json);
        assert_eq!(found[0]["file"], "copy.db-wal");
        assert_eq!(
            (&found[0]["severity"], &found[0]["kind"]),
            (&"damage".into(), &"bit_flip".into())
        );
        assert!(found[0]["hint"].is_string());
    }
    let two = HEADER_BYTES + 3 * FRAME_BYTES + 500;
    let other = HEADER_BYTES + 12 * FRAME_BYTES + 500;
    let report = logged.check_with(|log| {
        log[two] ^= 4;
        log[other] ^= 4;
    });
    assert_eq!(findings(&report).len(), 2, "{}", report.json);
}

/// A power loss leaves this too: the middle of a transaction was lost, and later ones were not.
#[test]
fn commits_behind_a_broken_transaction_are_counted_and_suspect() {
    let Some(logged) = Logged::new() else { return };
    let ends = logged.commits();
    for (frame, commits) in [(0, 3), (ends[0] - 2, 3), (ends[0] + 2, 2), (ends[1] + 2, 1)] {
        let report = logged.check_with(|log| {
            let begin = HEADER_BYTES + frame * FRAME_BYTES + 24;
            log[begin..begin + 512].fill(0x77);
        });
        let found = findings(&report);
        assert_eq!((report.verdict(), found.len()), ("suspect", 1), "{}", report.json);
        let detail = found[0]["detail"].as_str().unwrap();
        let words = match commits {
            1 => "1 commit stands behind it".to_owned(),
            several => format!("{several} commits stand behind it"),
        };
        assert!(detail.contains(&words), "{detail}");
        assert_eq!(found[0]["offset"], HEADER_BYTES + frame * FRAME_BYTES);
    }
}

/// That is what recovery leaves when it has written over a log that was longer.
#[test]
fn commits_behind_a_whole_transaction_are_no_finding() {
    let Some(logged) = Logged::new() else { return };
    let ends = logged.commits();
    let report = logged.check_with(|log| {
        let begin = HEADER_BYTES + (ends[0] + 1) * FRAME_BYTES + 24;
        log[begin..begin + 512].fill(0x77);
    });
    assert_eq!((report.verdict(), findings(&report).len()), ("unprotected", 0), "{}", report.json);
    assert!(report.json.to_string().contains("2 commits stand behind it"), "{}", report.json);
    // A log that ends in the middle of a transaction, and one whose last transaction is torn.
    for cut in [ends[1] + 2, ends[2]] {
        let report = logged.check_with(|log| log[HEADER_BYTES + cut * FRAME_BYTES + 30..].fill(0));
        assert_eq!(findings(&report).len(), 0, "{}", report.json);
    }
}

/// A transaction of which pages went to the log before it was rolled back, and a shorter one
/// written over the first of them.
#[test]
fn rolled_back_transaction_leaves_no_finding() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    shell(
        folder.path(),
        ".open live.db\n.output /dev/null\nPRAGMA journal_mode = WAL; PRAGMA cache_size = 5;\n\
         PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200)\n\
         INSERT INTO t SELECT x, randomblob(700) FROM n;\n\
         BEGIN; UPDATE t SET b = randomblob(900); SAVEPOINT s; UPDATE t SET b = randomblob(600);\n\
         ROLLBACK TO s; UPDATE t SET b = randomblob(700); ROLLBACK; DELETE FROM t WHERE a = 7;\n\
         .shell cp live.db copy.db && cp live.db-wal copy.db-wal\n",
    );
    let report = check([folder.path().join("copy.db")]).report();
    assert_eq!((report.verdict(), findings(&report).len()), ("unprotected", 0), "{}", report.json);
}

/// A process that has the database open says which frames are committed.
#[test]
fn frame_that_a_running_database_counts_as_committed_is_damage() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pagewarden = env!("CARGO_BIN_EXE_pagewarden");
    // Frame 9 is in the middle of a log of 1 KiB pages; noise, so that no bit explains it.
    let at = HEADER_BYTES + 9 * FRAME_BYTES + 100;
    shell(
        folder.path(),
        &format!(
            ".open live.db\n.output /dev/null\nPRAGMA page_size = 1024;\nPRAGMA journal_mode = WAL;\n\
             PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
             WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 40)\n\
             INSERT INTO t SELECT x, randomblob(700) FROM n;\n\
             .shell {pagewarden} check --json live.db >sound.json\n\
             .shell printf 0123456789 | dd of=live.db-wal bs=1 seek={at} conv=notrunc 2>/dev/null\n\
             .shell {pagewarden} check --json live.db >damaged.json; true\n"
        ),
    );
    let report = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.path().join(name)).unwrap()).unwrap()
    };
    let (sound, damaged) = (report("sound.json"), report("damaged.json"));
    assert_eq!(sound["verdict"], "unprotected", "{sound:#}");
    assert_eq!(damaged["verdict"], "damaged", "{damaged:#}");
    let found = damaged["targets"][0]["findings"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{damaged:#}");
    assert_eq!(found[0]["offset"], HEADER_BYTES + 9 * FRAME_BYTES);
    assert!(found[0]["detail"].as_str().unwrap().contains("counts it as committed"));
}

#[test]
fn log_that_cannot_be_opened_makes_the_check_incomplete() {
    let Some(logged) = Logged::new() else { return };
    let user = crate::runner::OrdinaryUser::new();
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    crate::runner::open_to_all(folder.path());
    for name in ["copy.db", "copy.db-wal"] {
        fs::copy(logged.database.with_file_name(name), folder.path().join(name)).unwrap();
        crate::runner::open_to_all(&folder.path().join(name));
    }
    let database = folder.path().join("copy.db");
    assert_eq!(user.check(&database).report().verdict(), "unprotected");
    use std::os::unix::fs::PermissionsExt as _;
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(folder.path().join("copy.db-wal"), closed).unwrap();
    let outcome = user.check(&database);
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{}", report.json);
    assert_eq!(report.target()["unread"][0]["file"], "copy.db-wal", "{}", report.json);
}

/// Copies of two databases in the middle of a transaction, each with its journal, and their pages.
fn two_with_hot_journals(pages: [u32; 2]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, pages) in ["a", "b"].into_iter().zip(pages) {
        let rows = if name == "a" { 400 } else { 700 };
        shell(
            folder.path(),
            &format!(
                ".open live.db\nPRAGMA page_size = {pages};\n\
                 CREATE TABLE {name} (a INTEGER PRIMARY KEY, b BLOB); CREATE INDEX i ON {name} (b);\n\
                 WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {rows})\n\
                 INSERT INTO {name} SELECT x, randomblob(700) FROM n;\n\
                 PRAGMA cache_size = 5; BEGIN; UPDATE {name} SET b = randomblob(650);\n\
                 .shell cp live.db {name}.db && cp live.db-journal {name}.db-journal\n"
            ),
        );
        fs::remove_file(folder.path().join("live.db")).unwrap();
    }
    folder
}

#[test]
fn structure_is_judged_as_it_is_once_the_hot_journal_is_played_back() {
    if !has_shell() {
        return;
    }
    let folder = two_with_hot_journals([1024, 1024]);
    let database = folder.path().join("a.db");
    // What was written a moment ago is looked at again.
    for structure in [&[][..], &["--structure"]] {
        let mut arguments = structure.to_vec();
        arguments.push(database.to_str().unwrap());
        let report = check(arguments).report();
        assert_eq!(findings(&report).len(), 0, "{}", report.json);
        assert!(report.json.to_string().contains("has played the rollback journal back"));
    }
    // The journal of the other database, which has pages of the same size.
    let journal = folder.path().join("a.db-journal");
    fs::copy(folder.path().join("b.db-journal"), &journal).unwrap();
    let report = check([&database]).report();
    assert_eq!(report.verdict(), "damaged", "{}", report.json);
    let hint = findings(&report)[0]["hint"].as_str().unwrap().to_owned();
    assert!(hint.starts_with("copy the database and its -journal before"), "{hint}");
    // SQLite plays it back, and says so too.
    let says = shell(folder.path(), ".open a.db\nPRAGMA integrity_check;\n");
    assert!(!says.trim().ends_with("ok"), "{says}");
}

#[test]
fn hot_journal_of_a_database_with_other_pages_is_suspect() {
    if !has_shell() {
        return;
    }
    let folder = two_with_hot_journals([1024, 4096]);
    let database = folder.path().join("a.db");
    fs::copy(folder.path().join("b.db-journal"), folder.path().join("a.db-journal")).unwrap();
    let report = check([&database]).report();
    let found = findings(&report);
    assert_eq!((report.verdict(), found.len()), ("suspect", 1), "{}", report.json);
    assert_eq!(
        (&found[0]["kind"], &found[0]["file"]),
        (&"misplaced".into(), &"a.db-journal".into())
    );
}

/// A server was killed while it wrote the last pages of the transaction that made the database.
#[test]
fn first_transaction_that_was_interrupted_is_no_damage() {
    if !has_shell() {
        return;
    }
    let folder = two_with_hot_journals([1024, 1024]);
    shell(
        folder.path(),
        ".open new.db\nPRAGMA page_size = 1024; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300)\n\
         INSERT INTO t SELECT x, randomblob(700) FROM n;\n",
    );
    let mut journal = fs::read(folder.path().join("a.db-journal")).unwrap();
    // No record, and no page before it.
    journal.truncate(512);
    journal[8..12].fill(0);
    journal[16..20].fill(0);
    fs::write(folder.path().join("new.db-journal"), journal).unwrap();
    let database = folder.path().join("new.db");
    let report = check([&database]).report();
    assert_eq!(findings(&report).len(), 0, "{}", report.json);
    assert!(report.json.to_string().contains("nothing is left then"), "{}", report.json);
    // So it is.
    let tables = shell(folder.path(), ".open new.db\nSELECT count(*) FROM sqlite_schema;\n");
    assert_eq!(tables.trim(), "0");
}

/// A transaction of several databases is committed once the file is gone whose name their journals
/// end with: SQLite removes them then, and undoes nothing.
#[test]
fn journal_that_a_commit_of_several_databases_left_behind_is_not_hot() {
    if !has_shell() {
        return;
    }
    let folder = two_with_hot_journals([1024, 1024]);
    let (database, journal) = (folder.path().join("a.db"), folder.path().join("a.db-journal"));
    let name = folder.path().join("a.db-mj0123456789").to_str().unwrap().to_owned();
    let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(byte)));
    let mut bytes = fs::read(&journal).unwrap();
    let magic: [u8; 8] = bytes[..8].try_into().unwrap();
    bytes.extend((0x4000_0000_u32 / 1024 + 1).to_be_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    bytes.extend(sum.to_be_bytes());
    bytes.extend(magic);
    fs::write(&journal, &bytes).unwrap();
    fs::write(&name, [0]).unwrap();
    let says = |words: &str| check([&database]).report().json.to_string().contains(words);
    assert!(says("will undo it") && !says("finished with"));
    fs::remove_file(&name).unwrap();
    assert!(says("finished with") && !says("will undo it"));
    // SQLite says the same: it removes the journal, and half a transaction stays.
    let copy = folder.path().join("copy.db");
    fs::copy(&database, &copy).unwrap();
    shell(folder.path(), ".open a.db\nSELECT count(*) FROM a;\n");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&database).unwrap());
    assert!(!journal.exists());
}

/// A copy of the files in the middle of a transaction, with its journal written and counted.
#[test]
fn damaged_record_of_a_hot_journal_is_suspect_and_a_sound_one_is_not() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    shell(
        folder.path(),
        ".open live.db\nPRAGMA page_size = 1024; CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300)\n\
         INSERT INTO t SELECT x, randomblob(700) FROM n;\n\
         PRAGMA cache_size = 5; BEGIN; UPDATE t SET b = randomblob(650);\n\
         .shell cp live.db copy.db && cp live.db-journal copy.db-journal\n",
    );
    let database = folder.path().join("copy.db");
    let report = check([&database]).report();
    assert_eq!(findings(&report).len(), 0, "{}", report.json);
    let journal =
        File::options().write(true).read(true).open(folder.path().join("copy.db-journal"));
    let journal = journal.unwrap();
    // The second record: behind the header's sector, a number, a page and a sum each. The sum has
    // every 200th byte from the end.
    let at = 512 + (1024 + 8) + 4 + 824;
    let mut byte = [0];
    journal.read_exact_at(&mut byte, at).unwrap();
    journal.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    let report = check([&database]).report();
    let found = findings(&report);
    assert_eq!((report.verdict(), found.len()), ("suspect", 1), "{}", report.json);
    assert_eq!(found[0]["file"], "copy.db-journal");
    assert_eq!(found[0]["offset"], 512 + (1024 + 8));
    assert!(found[0]["detail"].as_str().unwrap().contains("record 2 of"), "{}", report.json);
    let text = check_text([&database]).stdout;
    assert!(text.contains("copy.db-journal"), "{text}");
    // The same journal, sound, and cut in its second record.
    journal.write_all_at(&byte, at).unwrap();
    journal.set_len(512 + (1024 + 8) + 100).unwrap();
    let report = check([&database]).report();
    let found = findings(&report);
    assert_eq!((report.verdict(), found.len()), ("suspect", 1), "{}", report.json);
    assert_eq!((&found[0]["kind"], &found[0]["offset"]), (&"truncated".into(), &1544.into()));
    assert!(found[0]["detail"].as_str().unwrap().contains("record 2 of"), "{}", report.json);
}

/// Transactions of all kinds: small, spilling, rolled back, with savepoints and checkpoints.
fn write_load(path: &Path, mode: &str) {
    let mut sql = format!(
        ".timeout 20000\nPRAGMA journal_mode = {mode};\nPRAGMA synchronous = OFF;\n\
         PRAGMA cache_size = 8;\nPRAGMA wal_autocheckpoint = 60;\n"
    );
    for turn in 0..20_000_u32 {
        let a = turn % 290 + 1;
        sql.push_str(&match turn % 7 {
            0 => "BEGIN; UPDATE t SET b = randomblob(700) WHERE a % 3 = 0; ROLLBACK;\n".to_owned(),
            1 => format!("REPLACE INTO t VALUES ({a}, randomblob({}));\n", 100 + turn % 2000),
            2 => format!("UPDATE t SET b = randomblob(400) WHERE a % 5 = {};\n", turn % 5),
            3 => format!(
                "BEGIN; UPDATE t SET b = randomblob(500) WHERE a < 99; SAVEPOINT s; \
                 UPDATE t SET b = randomblob(300) WHERE a < 120; ROLLBACK TO s; \
                 UPDATE t SET b = randomblob(200) WHERE a = {a}; COMMIT;\n"
            ),
            4 => format!("DELETE FROM t WHERE a = {a};\n"),
            5 => ["PRAGMA wal_checkpoint(PASSIVE);\n", "PRAGMA wal_checkpoint(RESTART);\n", "\n"]
                [usize::try_from(turn / 7 % 3).unwrap()]
            .to_owned(),
            _ => "UPDATE t SET b = b WHERE a < 40;\n".to_owned(),
        });
    }
    fs::write(path, sql).unwrap();
}

#[test]
fn databases_that_are_written_and_killed_are_never_damaged() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut checks = 0;
    let mut assert_undamaged = |database: &Path, when: &str| {
        let outcome = check([database]);
        let report = outcome.report();
        checks += 1;
        let damaged =
            findings(&report).into_iter().filter(|finding| finding["severity"] == "damage");
        assert_eq!(damaged.count(), 0, "{when}: {:#}", report.json);
        assert_eq!(outcome.status, Some(0), "{when}: {:#}", report.json);
    };
    for mode in ["WAL", "DELETE", "PERSIST", "TRUNCATE"] {
        let database = folder.path().join(format!("{mode}.db"));
        shell(
            folder.path(),
            &format!(
                ".open {mode}.db\nCREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB);\n\
                 WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 290)\n\
                 INSERT INTO t SELECT x, randomblob(700) FROM n;\n"
            ),
        );
        let script = folder.path().join("load.sql");
        write_load(&script, mode);
        let turns = if mode == "WAL" { 8 } else { 3 };
        for turn in 0..turns {
            let writer = || {
                let mut command = Command::new("sqlite3");
                command.arg(&database).stdin(Stdio::from(File::open(&script).unwrap()));
                Started::spawn(&mut command)
            };
            let mut writers = vec![writer()];
            if turn % 2 == 1 {
                writers.push(writer());
            }
            for _ in 0..3 {
                sleep(Duration::from_millis(60));
                assert_undamaged(&database, &format!("{mode}, in use, turn {turn}"));
            }
            for writer in writers {
                writer.signal(Signal::KILL);
                writer.wait();
            }
            assert_undamaged(&database, &format!("{mode}, killed, turn {turn}"));
        }
        let whole = shell(folder.path(), &format!(".open {mode}.db\nPRAGMA integrity_check;\n"));
        assert_eq!(whole.trim(), "ok");
        assert_undamaged(&database, &format!("{mode}, recovered"));
    }
    assert!(checks >= 60, "{checks}");
}

/// A program that is killed while it copies its log into the database leaves a first page that
/// counts more pages than the file has: recovery has all of them.
#[test]
fn checkpoint_that_was_broken_off_is_no_alarm() {
    let Some(logged) = Logged::new() else { return };
    let mut frames = logged.sound[HEADER_BYTES..].chunks_exact(FRAME_BYTES);
    let first_page = frames.rfind(|frame| frame[..4] == [0, 0, 0, 1]);
    let Some(frame) = first_page else { panic!("the log has no first page") };
    let database = File::options().write(true).open(&logged.database).unwrap();
    let pages = database.metadata().unwrap().len() / 1024;
    database.write_all_at(&frame[24..], 0).unwrap();
    let counted = u32::from_be_bytes(frame[24 + 28..24 + 32].try_into().unwrap());
    assert!(u64::from(counted) > pages, "{counted} {pages}");
    let report = logged.check();
    assert_eq!(report.serious(), [], "{:?}", report.details());
    // Without the log it is less than it was.
    fs::remove_file(&logged.log).unwrap();
    let report = logged.check();
    let serious = report.serious();
    assert!(serious.iter().any(|finding| finding.kind == "truncated"), "{:?}", report.details());
    // The new first page names tables whose pages never left the log.
    assert!(serious.iter().all(|finding| ["truncated", "structure"].contains(&&*finding.kind)));
}

/// A sector of the log that a power failure kept from the disk may differ by one bit from what it was to be:
/// that of a counter, in a log that has begun anew.
#[test]
fn counter_that_a_torn_write_leaves_behind_is_no_flipped_bit_for_certain() {
    if !has_shell() {
        return;
    }
    for (checkpoint, expected) in [("PRAGMA wal_checkpoint(RESTART);", "suspect"), ("", "damage")] {
        let folder = tempfile::tempdir().unwrap();
        shell(
            folder.path(),
            &format!(
                ".open live.db\n.output /dev/null\nPRAGMA page_size = 1024; CREATE TABLE t (a, b);\n\
                 INSERT INTO t VALUES (1, hex(zeroblob(150))), (40, 6);\n\
                 PRAGMA journal_mode = WAL; UPDATE t SET b = 2 WHERE a = 40;\n{checkpoint}\n\
                 UPDATE t SET b = 3 WHERE a = 40;\n\
                 .shell cp live.db copy.db && cp live.db-wal copy.db-wal\n"
            ),
        );
        let database = folder.path().join("copy.db");
        let log = folder.path().join("copy.db-wal");
        let page = fs::read(&database).unwrap()[1024..2048].to_vec();
        let sound = fs::read(&log).unwrap();
        let last = sound.len() - 1024;
        let apart: Vec<_> = (0..1024).filter(|at| page[*at] != sound[last + at]).collect();
        let &[counter] = apart.as_slice() else { panic!("{apart:?}") };
        let said = |at: usize| {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            fs::write(&log, bytes).unwrap();
            let found = findings(&check([&database]).report());
            assert_eq!((found.len(), &found[0]["kind"]), (1, &"bit_flip".into()), "{found:?}");
            found[0]["severity"].as_str().unwrap().to_owned()
        };
        assert_eq!(said(last + counter), expected);
        // The header of the frame is another one in each life of the log.
        assert_eq!(said(last - 1), "damage");
    }
}

/// SQLite deletes the log of an empty file: what was committed is in it alone.
#[test]
fn file_that_was_cut_to_nothing_beside_its_log_is_damage_in_a_folder_too() {
    let Some(logged) = Logged::new() else { return };
    fs::write(&logged.database, "").unwrap();
    let folder = logged.database.parent().unwrap();
    for path in [&logged.database, folder] {
        let report = check([path]).report();
        assert_eq!(report.verdict(), "damaged", "{}", report.json);
        assert!(report.json.to_string().contains("its log has a database"), "{}", report.json);
    }
    // One byte of its mark.
    let mut bytes = fs::read(folder.join("live.db")).unwrap();
    bytes[7] = b'G';
    fs::remove_file(&logged.log).unwrap();
    fs::write(&logged.database, bytes).unwrap();
    let report = check([folder]).report();
    assert_eq!(report.verdict(), "damaged", "{}", report.json);
}

//! What was done to a file afterwards is an I/O error that names the page, never a row.

use crate::shell::{self, Folder, Random};

const PAGE: usize = 4096;

fn database(setting: &str) -> Folder {
    let folder = Folder::new();
    let script = format!(
        "PRAGMA page_verify={setting}; CREATE TABLE t(a INTEGER PRIMARY KEY, b, c BLOB);
        WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<300)
        INSERT INTO t SELECT v, hex(v*v*7919), zeroblob(v%9*1000)||hex(v) FROM n;"
    );
    folder.rows("x.db", &script);
    folder
}

const READ: &str = "SELECT * FROM t;";

/// Where page 1 fails no statement runs, not even on the table of pages that failed.
#[test]
fn pragma_names_the_pages_that_failed_and_the_remedy_where_no_statement_runs() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    assert_eq!(folder.rows("x.db", "PRAGMA page_verify_suspects;"), "none\n");
    folder.run_plain("x.db", "UPDATE t SET b='plain' WHERE a=7;");
    let script = "SELECT count(*) FROM t;\nPRAGMA page_verify_suspects;";
    let output = folder.run("x.db", script);
    assert!(output.rows.starts_with("page 1: checksum: its digest "), "{output:?}");
    assert!(output.rows.contains("hint: ") && output.rows.contains("--heal"), "{output:?}");
    assert!(output.errors.contains("page 1 of ") && output.errors.contains("--heal"), "{output:?}");
}

/// Every row that comes out is one that went in, in order.
fn assert_no_wrong_row(got: &str, sound: &str, what: &str) {
    assert!(sound.starts_with(got), "{what}: a row that was never written");
}

#[test]
fn damaged_page_is_an_error_that_names_it_and_check_agrees() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    let sound = folder.rows("x.db", READ);
    let clean = folder.read("x.db");
    let pages = clean.len() / PAGE;
    let mut random = Random(0xdead);
    for round in 0..60 {
        // All but page 1, which may have no row of t.
        let page = 2 + random.index(pages - 2);
        let other = 2 + (page - 2 + 1 + random.index(pages - 3)) % (pages - 2);
        let at = (page - 1) * PAGE;
        let mut bytes = clean.clone();
        let (what, kind) = match round % 5 {
            0 => {
                bytes[at + random.index(4080)] ^= 1 << random.below(8);
                ("flipped bit", "bit_flip")
            }
            1 => {
                bytes[at..at + PAGE].fill(0);
                ("zeroed page", "zeroed")
            }
            2 => {
                bytes.copy_within((other - 1) * PAGE..other * PAGE, at);
                ("misplaced page", "misplaced")
            }
            3 => {
                let sector = at + 512 * random.index(8);
                bytes[sector..sector + 512].fill(0xa5);
                ("overwritten sector", "checksum")
            }
            _ => {
                bytes[at + 4080..at + PAGE].fill(0);
                ("lost marker", "checksum")
            }
        };
        let what = format!("{what} on page {page}");
        folder.write("x.db", &bytes);
        let output = folder.run("x.db", READ);
        assert_no_wrong_row(&output.rows, &sound, &what);
        assert!(output.rows.len() < sound.len(), "{what}: nothing was seen");
        assert!(output.errors.contains("disk I/O error"), "{what} {}", output.errors);
        assert!(output.errors.contains(&format!("page {page} of ")), "{what} {}", output.errors);
        let checked = folder.check("x.db");
        let [finding] = checked.damage()[..] else { panic!("{what} {checked:?}") };
        assert_eq!(finding.place.page.map(|page| page.0), Some(page as u64), "{what}");
        assert_eq!(finding.kind.name(), kind, "{what}");
    }
}

#[test]
fn torn_page_names_its_stale_sectors() {
    if !shell::is_there() {
        return;
    }
    let folder = database("TORN_PAGE_DETECTION");
    let sound = folder.rows("x.db", READ);
    let old = folder.read("x.db");
    folder.rows("x.db", "UPDATE t SET c=hex(randomblob(100)) WHERE a<20;");
    let new = folder.read("x.db");
    let is_changed = |page: &usize| old[page * PAGE..][..PAGE] != new[page * PAGE..][..PAGE];
    let page = (3..old.len() / PAGE).find(is_changed).unwrap();
    let is_other = |part: &usize| {
        let at = page * PAGE + part * 512;
        old[at..at + 512] != new[at..at + 512]
    };
    let part = (0..7).find(is_other).unwrap();
    let at = page * PAGE + part * 512;
    let mut torn = new.clone();
    torn[at..at + 512].copy_from_slice(&old[at..at + 512]);
    folder.write("x.db", &torn);
    let output = folder.run("x.db", "SELECT sum(length(c)) FROM t;");
    assert!(output.errors.contains(&format!("page {} of ", page + 1)), "{output:?} {sound:.9}");
    let checked = folder.check("x.db");
    assert_eq!(checked.setting, Some("torn"));
    let [finding] = checked.damage()[..] else { panic!("{checked:?}") };
    assert_eq!(finding.kind.name(), "torn");
    assert!(finding.detail.as_deref().unwrap().ends_with(&format!("from {}", part * 512)));
}

/// Known blind spots: an older version of a page, and content in the mode NONE.
#[test]
fn old_page_and_content_without_a_sum_are_not_seen() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    let old = folder.read("x.db");
    folder.rows("x.db", "UPDATE t SET b='new' WHERE a=300;");
    let mut bytes = folder.read("x.db");
    let last = bytes.len() / PAGE - 1;
    let page =
        (1..=last).rev().find(|page| old[page * PAGE..][..PAGE] != bytes[page * PAGE..][..PAGE]);
    let at = page.unwrap() * PAGE;
    bytes[at..at + PAGE].copy_from_slice(&old[at..at + PAGE]);
    folder.write("x.db", &bytes);
    assert_ne!(folder.rows("x.db", "SELECT b FROM t WHERE a=300;"), "new\n");
    assert_eq!(folder.check("x.db").findings, []);

    let folder = database("NONE");
    let mut bytes = folder.read("x.db");
    let at = bytes.len() - PAGE + 1000;
    bytes[at] ^= 1;
    folder.write("x.db", &bytes);
    folder.rows("x.db", READ);
    let at = bytes.len() - PAGE;
    bytes[at..].fill(0);
    folder.write("x.db", &bytes);
    assert!(folder.run("x.db", READ).errors.contains("is damaged: it is all zero"));
}

#[test]
fn ignored_damage_is_read_with_a_warning_and_listed() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    let mut bytes = folder.read("x.db");
    let at = bytes.len() - PAGE + 4000;
    bytes[at] ^= 1;
    folder.write("x.db", &bytes);
    let page = bytes.len() / PAGE;
    let script = format!(
        "PRAGMA page_verify_ignore=1; {READ}\n\
         SELECT page_id, event_type, kind, detail, error_count FROM pagewarden_suspect_pages;"
    );
    let output = folder.run("x.db", &script);
    assert!(output.errors.contains("is damaged, ignored"), "{}", output.errors);
    assert!(!output.errors.contains("error"), "{}", output.errors);
    assert!(output.rows.starts_with("1\n1|"));
    let row = format!("{page}|2|bit_flip|bit 0 of byte 4000 is flipped|1\n");
    assert!(output.rows.ends_with(&row), "{:?}", output.rows.lines().last());
}

#[test]
fn writer_without_the_vfs_is_told_from_damage() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    folder.run_plain("x.db", "UPDATE t SET b='plain' WHERE a=7;");
    assert!(folder.run("x.db", READ).errors.contains("page 1 of "));
    let checked = folder.check("x.db");
    assert_eq!(checked.damage(), Vec::<&_>::new());
    assert!(!checked.findings.is_empty());
    let back = "PRAGMA page_verify_ignore=1; VACUUM; PRAGMA integrity_check;";
    assert!(folder.run("x.db", back).rows.ends_with("ok\n"));
    assert_eq!(folder.check("x.db").findings, []);
    assert_eq!(folder.rows("x.db", "SELECT b FROM t WHERE a=7;"), "plain\n");
}

/// The log's page would become a sound page with wrong content.
#[test]
fn rotten_write_ahead_log_is_not_laundered_by_a_checkpoint() {
    if !shell::is_there() {
        return;
    }
    let folder = database("CHECKSUM");
    folder.rows("x.db", "PRAGMA journal_mode=WAL;");
    let script = "PRAGMA wal_autocheckpoint=0; UPDATE t SET b='in the log';\n\
        .shell printf Z | dd of=x.db-wal bs=1 seek=3000 conv=notrunc status=none\n\
        PRAGMA wal_checkpoint;";
    let before = folder.read("x.db");
    let output = folder.run("x.db", script);
    assert!(output.errors.contains("the write-ahead log is damaged"), "{output:?}");
    assert_eq!(folder.read("x.db"), before);
}

/// Alone with the log there is no shared memory that says how far it is valid.
#[test]
fn rotten_log_is_not_laundered_by_a_connection_that_is_alone_with_it() {
    if !shell::is_there() {
        return;
    }
    const ALONE: &str = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA wal_autocheckpoint=0;";
    const ROT: &str = ".shell printf Z | dd of=x.db-wal bs=1 seek=3000 conv=notrunc status=none\n";
    let folder = database("CHECKSUM");
    folder.rows("x.db", "PRAGMA journal_mode=WAL;");
    let clean = folder.read("x.db");
    let written_here = format!(
        "{ALONE} UPDATE t SET b='in the log';\n{ROT}PRAGMA wal_checkpoint;\n.shell cp x.db y.db\n"
    );
    let output = folder.run("x.db", &written_here);
    assert!(output.errors.contains("the write-ahead log is damaged"), "{output:?}");
    assert_eq!(folder.read("y.db"), clean);

    // The same of a log that was found there, in front of the rest of an older one.
    let folder = database("CHECKSUM");
    folder.rows("x.db", "PRAGMA journal_mode=WAL;");
    folder.rows(
        "x.db",
        "PRAGMA wal_autocheckpoint=0; UPDATE t SET b='before'; PRAGMA wal_checkpoint; \
         UPDATE t SET b='in the log' WHERE a<50;\n\
         .shell cp x.db y.db; cp x.db-wal y.db-wal\n",
    );
    let clean = folder.read("y.db");
    let rot = ROT.replace("x.db", "y.db");
    let found = format!(
        "{ALONE} SELECT max(b) FROM t;\n{rot}PRAGMA wal_checkpoint;\n.shell cp y.db z.db\n"
    );
    let output = folder.run("y.db", &found);
    assert!(output.rows.contains("in the log"), "{output:?}");
    assert!(output.errors.contains("the write-ahead log is damaged"), "{output:?}");
    assert_eq!(folder.read("z.db"), clean);
}

/// What lies on a free page is never read as rows, so it stays as the crash left it, also when the
/// database is changed to WAL mode.
#[test]
fn torn_free_page_is_no_damage_in_any_journal_mode() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = database("CHECKSUM");
        folder.rows("x.db", "PRAGMA secure_delete=0; DELETE FROM t WHERE a>20;");
        let mut bytes = folder.read("x.db");
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        // The freelist's first trunk page is named in the header; its leaves begin at its byte 8.
        let trunk = (word(32) - 1) * PAGE;
        let leaves: Vec<usize> = (0..word(trunk + 4)).map(|at| word(trunk + 8 + 4 * at)).collect();
        assert!(leaves.len() > 20, "{leaves:?}");
        for leaf in leaves {
            bytes[(leaf - 1) * PAGE + 700] ^= 1;
        }
        folder.write("x.db", &bytes);
        let script = format!(
            "PRAGMA journal_mode={mode};\n.backup main file:backup.db?vfs=pagewarden\n\
             SELECT count(*) FROM t; PRAGMA integrity_check; \
             SELECT count(*) FROM pagewarden_suspect_pages;"
        );
        let rows = folder.rows("x.db", &script);
        assert!(rows.ends_with("20\nok\n0\n"), "{mode} {rows}");
        assert_eq!(folder.rows("backup.db", "SELECT count(*) FROM t;"), "20\n", "{mode}");
    }
}

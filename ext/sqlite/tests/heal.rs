//! `PRAGMA page_verify_heal`: what a program without the VFS wrote comes back, with its rows; damage does
//! not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::shell::{self, Checked, Folder, Random};

const PAGE: usize = 1024;
const MODES: [&str; 4] = ["DELETE", "TRUNCATE", "PERSIST", "WAL"];
const HEAL: &str = "PRAGMA page_verify_heal;";
/// What a program without the VFS does: changed rows, new pages, freed pages, a transaction undone.
const PLAIN_WRITES: &str = "UPDATE t SET b=b||'x' WHERE a BETWEEN 70 AND 90;
    INSERT INTO t SELECT a+5000, b||'new', zeroblob(3000)||'end' FROM t WHERE a<20;
    DELETE FROM t WHERE a BETWEEN 300 AND 340; DELETE FROM u WHERE k LIKE '7%';
    BEGIN; DELETE FROM t; ROLLBACK;";
const READ: &str = "SELECT count(*), sum(length(b)), sum(length(c)) FROM t; SELECT count(*) FROM u;
    PRAGMA integrity_check;";

fn fill(options: &str) -> String {
    format!(
        "PRAGMA page_size={PAGE}; {options}
         CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
         CREATE TABLE u(k TEXT PRIMARY KEY) WITHOUT ROWID;
         WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<400)
         INSERT INTO t SELECT v, hex(v*v*7919), zeroblob(v%9*300)||hex(v) FROM n;
         INSERT INTO u SELECT b FROM t WHERE a%3=0; CREATE INDEX tb ON t(b); DELETE FROM t WHERE a%50=7;"
    )
}

/// A protected database that a plain program has written to; what its rows are, in short.
fn written(folder: &Folder, options: &str) -> String {
    let _ = fs::remove_file(folder.path("x.db"));
    folder.rows("x.db", &fill(options));
    let plain = folder.run_plain("x.db", PLAIN_WRITES);
    assert_eq!(plain.errors, "");
    folder.run_plain("x.db", READ).rows
}

fn assert_protected(checked: &Checked) {
    assert!(checked.findings.is_empty(), "{checked:?}");
    assert_eq!(checked.setting, Some("checksum"));
    assert_eq!(checked.summary.pages.ok, checked.summary.pages.total(), "{checked:?}");
}

/// The pages in which two files differ, from 0.
fn differing(one: &[u8], other: &[u8]) -> Vec<usize> {
    let pages = one.chunks(PAGE).zip(other.chunks(PAGE)).enumerate();
    pages.filter(|(_, (one, other))| one != other).map(|(page, _)| page).collect()
}

#[test]
fn pages_that_a_plain_program_wrote_are_stamped_again_and_named_by_table() {
    if !shell::is_there() {
        return;
    }
    let modes = MODES.map(|mode| format!("PRAGMA journal_mode={mode};"));
    for options in modes.iter().map(String::as_str).chain(["PRAGMA auto_vacuum=FULL;"]) {
        let folder = Folder::new();
        let rows = written(&folder, options);
        // The VFS has none of it before.
        let refused = folder.run("x.db", "SELECT count(*) FROM t;\nPRAGMA integrity_check;");
        assert_ne!(refused.errors, "", "{options}");
        let before = folder.read("x.db");
        let dry = folder.rows("x.db", "PRAGMA page_verify_heal = dry_run;");
        assert!(dry.contains("pages would be stamped again"), "{options}: {dry}");
        assert_eq!(folder.read("x.db"), before, "{options}");
        let healed = folder.rows("x.db", &format!("{HEAL} PRAGMA page_verify_suspects;"));
        let (lines, none) = healed.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(none, "none", "{options}");
        assert_eq!(lines, dry.trim_end().replace("would be ", ""), "{options}");
        for object in ["of t, written without the VFS", "of tb, written without the VFS"] {
            assert!(lines.contains(object), "{options}: {lines}");
        }
        // Nothing but reserved bytes was written.
        let after = folder.read("x.db");
        assert_eq!(after.len(), before.len());
        for (page, (old, new)) in before.chunks(PAGE).zip(after.chunks(PAGE)).enumerate() {
            assert_eq!(old[..PAGE - 24], new[..PAGE - 24], "{options}: page {}", page + 1);
        }
        let count = differing(&before, &after).len();
        assert!(count > 3 && count < before.len() / PAGE, "{options}: {count}");
        assert!(lines.ends_with(&format!("{count} pages stamped again")), "{lines}");
        assert_protected(&folder.check("x.db"));
        assert_eq!(folder.rows("x.db", READ), rows, "{options}");
        assert_eq!(folder.rows("x.db", HEAL), "every page passes: nothing to stamp\n");
        folder.rows("x.db", "INSERT INTO t(b) VALUES('ours'); DELETE FROM t WHERE b='ours';");
        assert_eq!(folder.rows("x.db", READ), rows, "{options}");
        assert_eq!(folder.check("x.db").findings.len(), 0, "{options}");
    }
}

/// The default VFS, several databases on one connection, and a connection that reads on afterwards.
#[test]
fn connection_that_heals_goes_on() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.rows("other.db", "CREATE TABLE o(a); INSERT INTO o VALUES(7);");
    let rows = written(&folder, "");
    let output = folder.run_default(
        "x.db",
        &format!(
            "PRAGMA main.page_verify_heal;\nATTACH 'other.db' AS other;\n{READ}\nSELECT a FROM o;"
        ),
    );
    assert!(output.rows.ends_with(&format!("pages stamped again\n{rows}7\n")), "{output:?}");
    assert!(output.errors.is_empty(), "{output:?}");
    assert_protected(&folder.check("x.db"));
}

/// A backup takes pages out of SQLite's cache.
#[test]
fn backup_made_without_the_vfs_is_healed() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        folder.rows("x.db", &fill(&format!("PRAGMA journal_mode={mode};")));
        let script = format!("BEGIN; UPDATE t SET b=b||'ours'; COMMIT;\n.backup copy.db\n{READ}");
        let rows = folder.run("x.db", &script).rows;
        assert!(folder.path("copy.db").exists(), "{mode}");
        folder.rows("copy.db", HEAL);
        assert_protected(&folder.check("copy.db"));
        assert_eq!(folder.rows("copy.db", READ), rows, "{mode}");
    }
}

/// A plain program makes the file shorter, and shares rows out anew: SQLite moves pages, with their markers.
#[test]
fn pages_that_a_plain_program_moved_are_stamped_again() {
    if !shell::is_there() {
        return;
    }
    let shorten = "DELETE FROM t WHERE a<200;".to_owned();
    // The entries of an index come to other places of its tree: of each of these, some move a page.
    let entry = |factor: u32| format!("printf('%07d%0173d', a*{factor}%1000003, a)");
    let share = |round: u32| {
        let update = |n| format!("UPDATE v SET b={} WHERE a%37={n};", entry(7919 + round));
        let updates: String = (round..=round + round % 12).map(|n| update(n % 37)).collect();
        format!("BEGIN; {updates} COMMIT;")
    };
    let table = format!(
        "CREATE TABLE v(a INTEGER PRIMARY KEY, b); CREATE INDEX vb ON v(b);
        WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a+1 FROM n WHERE a<400)
        INSERT INTO v SELECT a, {} FROM n;",
        entry(104_729)
    );
    for options in ["", "PRAGMA auto_vacuum=FULL;"] {
        for mode in ["DELETE", "WAL"] {
            let folder = Folder::new();
            let options = format!("{options} PRAGMA journal_mode={mode};");
            folder.rows("x.db", &format!("{}{table}", fill(&options)));
            let before = folder.read("x.db");
            let is_moved = |after: &[u8], page: &usize| {
                let page = &after[page * PAGE..(page + 1) * PAGE];
                before.chunks(PAGE).any(|former| former == page)
            };
            let mut moved = 0;
            for round in 1..60 {
                if moved > 0 {
                    break;
                }
                folder.write("x.db", &before);
                let script = if options.contains("FULL") { &shorten } else { &share(round) };
                assert_eq!(folder.run_plain("x.db", script).errors, "", "{options}");
                let after = folder.read("x.db");
                let differ = differing(&before, &after).into_iter();
                moved = differ.filter(|page| is_moved(&after, page)).count();
            }
            assert!(moved > 0, "{options}");
            let rows = folder.run_plain("x.db", READ).rows;
            let checked = folder.check("x.db");
            if mode == "DELETE" {
                assert!(checked.damage().is_empty(), "{options}: {:?}", checked.findings);
            }
            let healed = folder.rows("x.db", HEAL);
            assert!(healed.contains("pages stamped again"), "{options}: {healed}");
            assert_protected(&folder.check("x.db"));
            assert_eq!(folder.rows("x.db", READ), rows, "{options}");
        }
    }
}

/// What a plain program wrote, and damage to one page more: nothing is stamped, whatever it is.
#[test]
fn nothing_is_healed_over_damage() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.rows("x.db", &fill(""));
    let original = folder.read("x.db");
    folder.run_plain("x.db", PLAIN_WRITES);
    let written = folder.read("x.db");
    let touched: BTreeSet<_> = differing(&original, &written).into_iter().collect();
    let is_tree = |page: &usize| matches!(written[page * PAGE], 2 | 5 | 10 | 13);
    let untouched: Vec<usize> =
        (1..original.len() / PAGE).filter(|page| !touched.contains(page)).filter(is_tree).collect();
    assert!(untouched.len() > 20);
    let mut random = Random(0x4ea1);
    for round in 0..40 {
        let page = untouched[random.index(untouched.len())];
        let at = page * PAGE;
        let mut bytes = written.clone();
        let what = match round % 4 {
            0 => {
                bytes[at + random.index(PAGE - 24)] ^= 1 << random.below(8);
                "a flipped bit"
            }
            1 => {
                bytes[at..at + PAGE].fill(0);
                "a page of zeroes"
            }
            2 => {
                let other = untouched[random.index(untouched.len())];
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
        folder.write("x.db", &bytes);
        let output = folder.run("x.db", HEAL);
        assert_eq!(output.rows, "", "{what} on page {}", page + 1);
        assert!(output.errors.contains("no page is stamped again"), "{what}: {output:?}");
        assert!(folder.read("x.db") == bytes, "{what}: it was written to");
    }
    // Damage alone, in a database that no plain program wrote to.
    let mut bytes = original;
    bytes[untouched[3] * PAGE + 300..][..40].fill(0x11);
    folder.write("x.db", &bytes);
    let output = folder.run("x.db", HEAL);
    assert!(output.errors.contains("page 1 is as the VFS wrote it"), "{output:?}");
    assert!(folder.read("x.db") == bytes);
}

/// A write that went astray to where its rows fit as well: another table with the same keys, and the end
/// of another large value. The structure is sound.
#[test]
fn page_in_the_place_of_another_one_is_not_taken_for_a_moved_one() {
    if !shell::is_there() {
        return;
    }
    let twin = |name: &str| {
        format!(
            "CREATE TABLE {name}(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(a) AS
            (SELECT 1 UNION ALL SELECT a+1 FROM n WHERE a<200) INSERT INTO {name}
            SELECT a, printf('{name}-%05d', a) FROM n;"
        )
    };
    let large = "CREATE TABLE large(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(a) AS
        (SELECT 1 UNION ALL SELECT a+1 FROM n WHERE a<9) INSERT INTO large
        SELECT a, printf('%01500d', a)||printf('end-%05d', a) FROM n;";
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let options = format!("PRAGMA journal_mode={mode};");
        folder.rows("x.db", &format!("{} {} {} {large}", fill(&options), twin("one"), twin("two")));
        folder.run_plain("x.db", PLAIN_WRITES);
        let written = folder.read("x.db");
        let page_of = |text: &str| {
            let is_there = |page: &[u8]| page.windows(text.len()).any(|at| at == text.as_bytes());
            written.chunks(PAGE).position(is_there).unwrap()
        };
        for (from, to) in [("two-00150", "one-00150"), ("end-00003", "end-00007")] {
            let mut bytes = written.clone();
            let (from_page, to_page) = (page_of(from), page_of(to));
            bytes.copy_within(from_page * PAGE..(from_page + 1) * PAGE, to_page * PAGE);
            folder.write("x.db", &bytes);
            assert_eq!(folder.run_plain("x.db", "PRAGMA integrity_check;").rows, "ok\n", "{to}");
            let output = folder.run("x.db", HEAL);
            assert!(
                output.errors.contains("a page may lie in the place of another one"),
                "{to}: {output:?}"
            );
            assert!(folder.read("x.db") == bytes, "{to}: it was written to");
        }
    }
}

/// Whatever part of the markers reached the disk, but for page 1, which comes last: the same pragma goes on
/// from there.
#[test]
fn healing_that_was_cut_short_is_ended_by_the_same_pragma() {
    if !shell::is_there() {
        return;
    }
    let mut random = Random(0xc07);
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let rows = written(&folder, &format!("PRAGMA journal_mode={mode};"));
        let before = folder.read("x.db");
        folder.rows("x.db", HEAL);
        let after = folder.read("x.db");
        let pages = differing(&before, &after);
        for _ in 0..12 {
            let mut bytes = before.clone();
            for page in pages.iter().copied().filter(|page| *page != 0) {
                if random.below(2) == 0 {
                    let page = page * PAGE..(page + 1) * PAGE;
                    bytes[page.clone()].copy_from_slice(&after[page]);
                }
            }
            folder.write("x.db", &bytes);
            folder.rows("x.db", HEAL);
            assert!(folder.read("x.db") == after, "{mode}");
        }
        assert_eq!(folder.rows("x.db", READ), rows);
    }
}

/// Killed at any moment.
#[test]
fn healing_that_is_killed_leaves_all_rows() {
    if !shell::is_there() {
        return;
    }
    let mut random = Random(0x911);
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let rows = written(&folder, &format!("PRAGMA journal_mode={mode};"));
        let before = folder.read("x.db");
        for round in 0..10 {
            folder.write("x.db", &before);
            let mut child = folder
                .command("x.db")
                .arg(HEAL)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_micros(random.below(60_000)));
            let _ = child.kill();
            child.wait().unwrap();
            assert_eq!(folder.run_plain("x.db", READ).rows, rows, "{mode} {round}");
            folder.rows("x.db", HEAL);
            assert_protected(&folder.check("x.db"));
            assert_eq!(folder.rows("x.db", READ), rows, "{mode} {round}");
        }
    }
}

/// A shell that has run a script and waits; it is ended when this is dropped.
struct Waiting(Child);

impl Waiting {
    fn after(mut command: Command, script: &str) -> Self {
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        writeln!(shell.stdin.as_mut().unwrap(), "{script}\nSELECT 'held';").unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "held"), "{script}");
        Self(shell)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn plain(folder: &Folder) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-init", "/dev/null"]).arg(folder.path("x.db"));
    command
}

/// One that reads or writes keeps the pragma out, and it says so; one that only has the database open does
/// not.
#[test]
fn other_connections_keep_it_out_while_they_work() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let rows = written(&folder, &format!("PRAGMA journal_mode={mode};"));
        let before = folder.read("x.db");
        let idle = Waiting::after(plain(&folder), "SELECT count(*) FROM t;");
        let busy = ["BEGIN IMMEDIATE;", "BEGIN; SELECT count(*) FROM t;"];
        // In WAL mode one that reads what is in the file is not in the way.
        for script in busy.into_iter().take(if mode == "WAL" { 1 } else { 2 }) {
            let held = Waiting::after(plain(&folder), script);
            let output = folder.run("x.db", HEAL);
            assert!(output.errors.contains("another connection uses the database"), "{output:?}");
            assert_eq!(output.rows, "");
            drop(held);
            assert!(folder.read("x.db") == before, "{mode}: {script}");
        }
        if mode == "WAL" {
            // One that reads an older state than that of the log.
            let held = Waiting::after(plain(&folder), "BEGIN; SELECT count(*) FROM t;");
            folder.run_plain("x.db", "PRAGMA wal_autocheckpoint=0; UPDATE t SET b=b WHERE a=1;");
            let output = folder.run("x.db", HEAL);
            assert!(output.errors.contains("another connection uses the database"), "{output:?}");
            drop(held);
        }
        folder.rows("x.db", HEAL);
        drop(idle);
        assert_protected(&folder.check("x.db"));
        assert_eq!(folder.rows("x.db", READ), rows, "{mode}");
    }
}

/// A plain program that was killed while it wrote leaves a journal or a log: SQLite's part comes first.
#[test]
fn what_a_killed_plain_program_left_is_brought_in_first() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let rows = written(&folder, &format!("PRAGMA journal_mode={mode};"));
        let spill = "PRAGMA cache_size=5; PRAGMA cache_spill=5; BEGIN; UPDATE t SET b=b||'gone';";
        drop(Waiting::after(plain(&folder), spill));
        folder.rows("x.db", HEAL);
        assert_protected(&folder.check("x.db"));
        assert_eq!(folder.rows("x.db", READ), rows, "{mode}");
    }
}

#[test]
fn it_is_refused_where_it_has_nothing_to_do() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    folder.run_plain("plain.db", "CREATE TABLE t(a);");
    assert!(folder.run("plain.db", HEAL).errors.contains("carry no markers"));
    written(&folder, "");
    for (name, script, words) in [
        ("x.db", "BEGIN; PRAGMA page_verify_heal; COMMIT;", "inside a transaction"),
        ("x.db?mode=ro", HEAL, "read-only"),
        ("x.db", "PRAGMA page_verify_heal = everything;", "takes nothing, or dry_run"),
        ("x.db?psow=0", HEAL, "psow=0"),
    ] {
        let before = folder.read("x.db");
        let output = folder.run(name, script);
        assert!(output.errors.contains(words), "{name} {script}: {output:?}");
        assert!(folder.read("x.db") == before);
    }
    // VACUUM by a plain program leaves no marker at all: it gets them as any other does.
    folder.run_plain("x.db", "VACUUM;");
    assert!(folder.run("x.db", HEAL).errors.contains("PRAGMA page_verify = CHECKSUM; VACUUM"));
    folder.rows("x.db", "PRAGMA page_verify = CHECKSUM; VACUUM;");
    assert_protected(&folder.check("x.db"));
}

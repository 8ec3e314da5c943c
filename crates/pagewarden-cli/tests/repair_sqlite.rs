//! `pagewarden repair` on SQLite databases: wounded by the hundred, repaired by copies of every
//! history, and compared with what they were. Never may a page be called exact that is not.
//!
//! `PAGEWARDEN_SEEDS` says how many rounds a history, `PAGEWARDEN_SEED` which wounds.

use std::fs::{self, File, FileTimes};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use pagewarden::formats::sqlite::checksum;
use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker, Mode, Room};
use pagewarden::repair::{Options, Outcome, Proof, Request, Verdict, repair};
use pagewarden::verdict::PageNo;
use serde_json::Value;

use crate::damage::Dice;
use crate::runner::{pagewarden, run};
use crate::sqlite::{has_shell, shell};

const PAGE: usize = 1024;
const DATABASE: NonZeroU32 = NonZeroU32::new(0x5EA1_ED01).unwrap();

/// What the pages of a database carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Plain,
    Summed,
    Marked(Mode),
}

const LAYOUTS: [Layout; 4] =
    [Layout::Plain, Layout::Summed, Layout::Marked(Mode::Checksum), Layout::Marked(Mode::Torn)];

/// How the copy that pages are taken from came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    /// A copy of this very state that keeps the time of the file.
    Same,
    /// The same, with a time of its own.
    SameLater,
    /// A copy from this number of transactions ago.
    Older(u32),
    /// Both were restored from one copy, and each had as many transactions.
    Diverged,
    /// From before a transaction in the write-ahead log that does not write page 1.
    OlderInLog,
    /// From between two transactions of a program that keeps the lock.
    Exclusive,
    /// A copy of this very state, in which other pages are damaged, too.
    Damaged,
}

const HISTORIES: [History; 9] = [
    History::Same,
    History::SameLater,
    History::Older(1),
    History::Older(2),
    History::Older(20),
    History::Diverged,
    History::OlderInLog,
    History::Exclusive,
    History::Damaged,
];

/// Gives every page the sum that belongs to it, as a program with the VFS would have.
fn stamp(path: &Path, layout: Layout) {
    let mut bytes = fs::read(path).unwrap();
    for (page, number) in bytes.chunks_exact_mut(PAGE).zip(1_u64..) {
        match layout {
            Layout::Plain => {}
            Layout::Summed => checksum::stamp(page),
            Layout::Marked(mode) => {
                let setting = (number == 1).then_some(mode);
                let marker = Marker { mode, setting, database: DATABASE, room: Room::Marker };
                page_verify::stamp(page, PageNo(number), marker);
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

fn sql(folder: &Path, name: &str, statements: &str) -> String {
    shell(folder, &format!(".open {name}\n{statements}\n"))
}

/// A database with rows, indexes, long values and free pages.
fn create(folder: &Path, name: &str, layout: Layout) {
    let reserve = match layout {
        Layout::Plain => 0,
        Layout::Summed => 8,
        Layout::Marked(_) => 16,
    };
    let _ = sql(
        folder,
        name,
        &format!(
            ".output /dev/null\n.filectrl reserve_bytes {reserve}\nPRAGMA page_size = {PAGE};
CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT, n INT);
CREATE TABLE long (id INTEGER PRIMARY KEY, body BLOB);
CREATE INDEX by_word ON item (word);
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1500)
INSERT INTO item SELECT x, hex(x * 7919 % 10007) || ' word', x FROM n;
INSERT INTO long SELECT id, replace(hex(zeroblob(1500)), '00', 'x' || id) FROM item WHERE id < 12;
CREATE TABLE gone AS SELECT * FROM item WHERE id < 300; DROP TABLE gone;"
        ),
    );
    stamp(&folder.join(name), layout);
}

/// A transaction that changes one row in place, and no index.
fn transact(folder: &Path, name: &str, id: usize, value: u64, before: &str) {
    let update = format!("UPDATE item SET n = {} WHERE id = {id};", 1000 + value % 30_000);
    let _ = sql(folder, name, &format!(".output /dev/null\n{before}\n{update}"));
}

/// The time of a file that no program has written for an hour.
fn age(path: &Path, nanoseconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(3600) + Duration::from_nanos(nanoseconds);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn copy(from: &Path, to: &Path, keeps_time: bool) {
    fs::write(to, fs::read(from).unwrap()).unwrap();
    if keeps_time {
        let time = fs::metadata(from).unwrap().modified().unwrap();
        let times = FileTimes::new().set_modified(time);
        File::options().write(true).open(to).unwrap().set_times(times).unwrap();
    }
}

/// An earlier state of the database itself, of which a torn page may have a half.
///
/// None where the copy is from the middle of a session that keeps the lock: there an old end of a
/// page, with its old sum, is the one thing that the rule by sum cannot exclude, see the docs.
fn before(folder: &Path, source: &Path, history: History) -> Vec<u8> {
    match history {
        History::Older(_) | History::OlderInLog => fs::read(source).unwrap(),
        History::Diverged => fs::read(folder.join("base.db")).unwrap(),
        _ => Vec::new(),
    }
}

/// A database, and a copy of this history.
fn make(folder: &Path, layout: Layout, history: History, dice: &mut Dice) -> (PathBuf, PathBuf) {
    let (path, source) = (folder.join("x.db"), folder.join("copy.db"));
    create(folder, "x.db", layout);
    let id = dice.within(1..1500);
    match history {
        History::Older(count) => {
            age(&path, 1);
            copy(&path, &source, true);
            for _ in 0..count {
                transact(folder, "x.db", dice.within(1..1500), dice.next(), "");
            }
        }
        History::Diverged => {
            copy(&path, &source, false);
            copy(&path, &folder.join("base.db"), false);
            transact(folder, "x.db", id, 1, "");
            transact(folder, "copy.db", id, 2, "");
            stamp(&source, layout);
        }
        History::OlderInLog => {
            transact(folder, "x.db", id, 1, "PRAGMA journal_mode = WAL;");
            stamp(&path, layout);
            copy(&path, &source, false);
            transact(folder, "x.db", id, 2, "");
        }
        History::Exclusive => {
            let update = |value: u32| format!("UPDATE item SET n = {value} WHERE id = {id};");
            let (one, two) = (update(20_001), update(20_002));
            let between = format!(".shell cp {} {}", path.display(), source.display());
            let script = format!("PRAGMA locking_mode = EXCLUSIVE;\n{one}\n{between}\n{two}");
            let _ = sql(folder, "x.db", &format!(".output /dev/null\n{script}"));
            stamp(&source, layout);
        }
        History::Same | History::SameLater | History::Damaged => {}
    }
    stamp(&path, layout);
    age(&path, 123_456_789);
    match history {
        History::Same | History::Damaged => copy(&path, &source, true),
        History::SameLater => copy(&path, &source, false),
        _ => {}
    }
    (path, source)
}

/// Damages pages; the numbers of those that are other ones now.
fn wound(bytes: &mut [u8], older: &[u8], dice: &mut Dice, count: usize) -> Vec<usize> {
    let sound = bytes.to_vec();
    let pages = bytes.len() / PAGE;
    for _ in 0..count {
        let page = dice.within(0..pages);
        let at = page * PAGE;
        match dice.within(0..7) {
            0 => bytes[at + dice.within(0..PAGE)] ^= 1 << dice.within(0..8),
            1 => bytes[at..at + PAGE].fill(0),
            2 => {
                let begin = at + dice.within(0..PAGE - 100);
                let end = begin + dice.within(1..100);
                dice.fill(&mut bytes[begin..end]);
            }
            3 => dice.fill(&mut bytes[at..at + PAGE]),
            // The half of another age, which may bring the sum along.
            4 if older.len() >= at + PAGE => {
                bytes[at + PAGE / 2..at + PAGE].copy_from_slice(&older[at + PAGE / 2..at + PAGE]);
            }
            5 => dice.fill(&mut bytes[at..at + 12]),
            _ => {
                let other = dice.within(0..pages) * PAGE;
                let page = sound[other..other + PAGE].to_vec();
                bytes[other..other + PAGE].copy_from_slice(&sound[at..at + PAGE]);
                bytes[at..at + PAGE].copy_from_slice(&page);
            }
        }
    }
    let differ = |page: &usize| bytes[page * PAGE..][..PAGE] != sound[page * PAGE..][..PAGE];
    (0..pages).filter(differ).map(|page| page + 1).collect()
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    wounded: usize,
    exact: usize,
    older: usize,
    left: usize,
    refused: usize,
}

fn repaired(request: &Request) -> Result<Outcome, pagewarden::Error> {
    repair(request, &Options::default(), &())
}

/// Wounds, repairs, compares, undoes, compares, and puts all back.
fn round(path: &Path, source: &Path, history: History, dice: &mut Dice, tally: &mut Tally) {
    let sound = fs::read(path).unwrap();
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let copied = fs::read(source).unwrap();
    let copied_time = fs::metadata(source).unwrap().modified().unwrap();
    if history == History::Damaged {
        let mut bytes = copied.clone();
        wound(&mut bytes, &sound, dice, 40);
        fs::write(source, bytes).unwrap();
        File::options().write(true).open(source).unwrap().set_modified(copied_time).unwrap();
    }
    let mut bytes = sound.clone();
    // Without checksums some of many are never seen, and then no other page can be believed.
    let count = if dice.within(0..3) == 0 { 1 } else { dice.within(1..14) };
    let older = before(path.parent().unwrap(), source, history);
    let wounded = wound(&mut bytes, &older, dice, count);
    fs::write(path, &bytes).unwrap();
    // Decay of a disk changes no time.
    if dice.within(0..2) == 0 {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    tally.wounded += wounded.len();
    let request = Request {
        sources: vec![source.into()],
        write: true,
        accept_older: dice.within(0..2) == 0,
        ..Request::new(path)
    };
    match repaired(&request) {
        Ok(outcome) => {
            let now = fs::read(path).unwrap();
            for page in &outcome.pages {
                let Some(number) = page.page else { continue };
                let at = (usize::try_from(number).unwrap() - 1) * PAGE;
                let of = |bytes: &[u8]| bytes.get(at..at + PAGE).map(<[u8]>::to_vec);
                match (page.proof, page.after.is_some()) {
                    (Some(Proof::Exact), true) => {
                        assert!(of(&now) == of(&sound), "called exact, and not: {page:?}");
                        tally.exact += 1;
                    }
                    (Some(Proof::Older), true) => tally.older += 1,
                    _ => {
                        assert!(of(&now) == of(&bytes), "written: {page:?}");
                        tally.left += 1;
                    }
                }
            }
            if let Some(undo) = outcome.undo_file {
                let undo = Request { undo: Some(undo), write: true, ..Request::new(path) };
                assert_eq!(repaired(&undo).unwrap().verdict, Verdict::Undone);
            }
        }
        // So little is left of it, or of the copy, that it is no database any more.
        Err(_) => tally.refused += 1,
    }
    assert!(fs::read(path).unwrap() == bytes, "not every byte is back");
    for (path, bytes, time) in [(path, sound, time), (source, copied, copied_time)] {
        fs::write(path, bytes).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}

fn campaign(rounds: usize) -> Tally {
    let mut dice = Dice::seeded();
    let mut sum = Tally::default();
    for layout in LAYOUTS {
        for history in HISTORIES {
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            let (path, source) = make(folder.path(), layout, history, &mut dice);
            let mut tally = Tally::default();
            for _ in 0..rounds {
                round(&path, &source, history, &mut dice, &mut tally);
            }
            println!("{layout:?}, {history:?}: {tally:?}");
            if history == History::Same && rounds > 5 {
                assert!(tally.exact > 0, "{layout:?}: {tally:?}");
            }
            sum.wounded += tally.wounded;
            sum.exact += tally.exact;
            sum.older += tally.older;
            sum.left += tally.left;
            sum.refused += tally.refused;
        }
    }
    println!("in all: {sum:?}");
    sum
}

#[test]
fn wounded_pages_of_sqlite_are_never_called_exact_that_are_not() {
    if has_shell() {
        let sum = campaign(1);
        assert!(sum.exact > 0 && sum.left > 0, "{sum:?}");
    }
}

#[test]
#[ignore = "a campaign of minutes: thousands of wounded pages"]
fn thousands_of_wounded_pages_of_sqlite() {
    let rounds = std::env::var("PAGEWARDEN_SEEDS").ok().and_then(|text| text.parse().ok());
    if has_shell() {
        let sum = campaign(rounds.unwrap_or(40));
        assert!(sum.wounded > 2000, "{sum:?}");
    }
}

fn command(path: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let outcome = run(pagewarden().args(["repair", "--json"]).arg(path).args(arguments));
    (outcome.status, serde_json::from_str(&outcome.stdout).unwrap())
}

fn dump(folder: &Path, name: &str) -> String {
    sql(folder, name, "PRAGMA integrity_check;\n.dump")
}

fn ruin(path: &Path, page: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[(page - 1) * PAGE..][..400].fill(0xE7);
    fs::write(path, bytes).unwrap();
}

/// The damaged pages carry their sums, and the copy is of the same state.
#[test]
fn sqlite_pages_are_planned_repaired_and_undone() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, source) =
        make(folder.path(), Layout::Summed, History::SameLater, &mut Dice::seeded());
    let said = dump(folder.path(), "x.db");
    ruin(&path, 20);
    ruin(&path, 33);
    let wounded = fs::read(&path).unwrap();
    let from = ["--from", source.to_str().unwrap()];
    let (status, plan) = command(&path, &from);
    assert_eq!((status, &plan["verdict"]), (Some(0), &"planned".into()), "{plan}");
    assert!(fs::read(&path).unwrap() == wounded, "a plan wrote");
    let (status, json) = command(&path, &[&from[..], &["--yes"]].concat());
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert_eq!(json["pages"][0]["proof"], "exact", "{json}");
    assert_eq!(json["pages"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(dump(folder.path(), "x.db"), said);
    let undo = folder.path().join("x.db.pagewarden-repair.undo");
    let (status, json) = command(&path, &["--undo", undo.to_str().unwrap()]);
    assert_eq!((status, &json["verdict"]), (Some(0), &"undone".into()), "{json}");
    assert!(fs::read(&path).unwrap() == wounded, "not every byte is back");
    // A copy in its stead, and a compressed source.
    let packed = Command::new("gzip").arg("-k").arg(&source).status().unwrap();
    assert!(packed.success());
    let compressed = format!("{}.gz", source.display());
    let place = folder.path().join("new");
    let arguments = ["--from", &compressed, "--yes", "--copy-to", place.to_str().unwrap()];
    let (status, json) = command(&path, &arguments);
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert!(fs::read(&path).unwrap() == wounded, "the database itself was written");
    assert_eq!(dump(&place, "x.db"), said);
}

/// Both headers and all other pages are equal; only the page itself could say which is right.
#[test]
fn sqlite_copy_that_went_its_own_way_is_never_exact() {
    if !has_shell() {
        return;
    }
    for history in [History::Diverged, History::OlderInLog, History::Exclusive] {
        let folder = tempfile::tempdir().unwrap();
        let mut dice = Dice::seeded();
        let (path, source) = make(folder.path(), Layout::Plain, history, &mut dice);
        let (ours, theirs) = (fs::read(&path).unwrap(), fs::read(&source).unwrap());
        let pages = ours.chunks_exact(PAGE).zip(theirs.chunks_exact(PAGE));
        let differ: Vec<_> =
            pages.zip(1..).filter(|((a, b), _)| a != b).map(|(_, page)| page).collect();
        assert_eq!(differ.len(), 1, "{history:?}: {differ:?}");
        ruin(&path, differ[0]);
        let from = ["--from", source.to_str().unwrap()];
        let (status, json) = command(&path, &from);
        assert_eq!(status, Some(1), "{history:?}: {json}");
        assert_eq!(json["pages"][0]["proof"], "older", "{history:?}: {json}");
        let (status, json) = command(&path, &[&from[..], &["--yes", "--accept-older"]].concat());
        assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
        assert!(fs::read(&path).unwrap() == theirs, "{history:?}");
    }
}

/// The log that a program with the checksum VFS would have written: pages with sums, in frames whose
/// own sums go on from the header's.
fn summed_log(mut log: Vec<u8>) -> Vec<u8> {
    let is_big_endian = log[3] & 1 == 1;
    let word = |bytes: &[u8]| {
        let word = *bytes.first_chunk().unwrap();
        if is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    let big = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().unwrap());
    let (mut one, mut two) = (big(&log[24..]), big(&log[28..]));
    for frame in log[32..].chunks_exact_mut(24 + PAGE) {
        checksum::stamp(&mut frame[24..]);
        let summed = [&frame[..8], &frame[24..]].concat();
        for pair in summed.chunks_exact(8) {
            one = one.wrapping_add(word(pair)).wrapping_add(two);
            two = two.wrapping_add(word(&pair[4..])).wrapping_add(one);
        }
        frame[16..20].copy_from_slice(&one.to_be_bytes());
        frame[20..24].copy_from_slice(&two.to_be_bytes());
    }
    log
}

/// A program that was killed leaves its log, which holds the last version of a page.
#[test]
fn sqlite_page_comes_from_the_committed_frame_of_its_own_log() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), "x.db", Layout::Summed);
    let statements = ".output /dev/null\n.filectrl persist_wal 1\nPRAGMA journal_mode = WAL;\n\
                      PRAGMA wal_autocheckpoint = 0;\nUPDATE item SET n = 7 WHERE id % 50 = 0;\n\
                      .shell kill -9 $PPID";
    let mut shell = Command::new("sqlite3");
    let mut running = shell
        .current_dir(&folder)
        .arg("x.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), statements.as_bytes()).unwrap();
    running.wait().unwrap();
    let (path, log) = (folder.path().join("x.db"), folder.path().join("x.db-wal"));
    let frames = fs::read(&log).unwrap();
    assert!(frames.len() > 10 * PAGE);
    let frames = summed_log(frames);
    fs::write(&log, &frames).unwrap();
    stamp(&path, Layout::Summed);
    let pristine = tempfile::tempdir().unwrap();
    for name in ["x.db", "x.db-wal"] {
        fs::copy(folder.path().join(name), pristine.path().join(name)).unwrap();
    }
    let mut pages = frames[32..]
        .chunks(PAGE + 24)
        .map(|frame| u32::from_be_bytes(*frame.first_chunk().unwrap()) as usize);
    let page = pages.rfind(|page| *page > 1).unwrap();
    ruin(&path, page);
    let (status, json) = command(&path, &["--yes"]);
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert_eq!(json["pages"][0]["proof"], "exact", "{json}");
    assert!(json["pages"][0]["source"].as_str().unwrap().contains("x.db-wal"), "{json}");
    assert!(fs::read(&log).unwrap() == frames, "the log was written");
    assert_eq!(dump(folder.path(), "x.db"), dump(pristine.path(), "x.db"));
}

#[test]
fn sqlite_database_in_use_and_strange_sources_are_refused() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::seeded();
    let (path, source) = make(folder.path(), Layout::Plain, History::SameLater, &mut dice);
    ruin(&path, 20);
    let refusal = |source: &Path, words: &str| {
        let (status, json) = command(&path, &["--from", source.to_str().unwrap()]);
        let error = json["error"].as_str().unwrap_or_default();
        assert_eq!(status, Some(2), "{json}");
        assert!(error.contains(words) && error.contains("hint: "), "{error}");
    };
    refusal(&path, "this is the database");
    let (status, json) = command(&path, &["--from", "copy.db", "--log", "archive"]);
    let error = json["error"].as_str().unwrap_or_default();
    assert!(status == Some(2) && error.contains("for PostgreSQL only"), "{json}");
    create(folder.path(), "summed.db", Layout::Summed);
    refusal(&folder.path().join("summed.db"), "another database");
    let _ = sql(
        folder.path(),
        "other.db",
        &format!(
            "PRAGMA page_size = {PAGE};\nCREATE TABLE t AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL \
             SELECT x + 1 FROM n WHERE x < 3000) SELECT x, hex(x) FROM n;"
        ),
    );
    refusal(&folder.path().join("other.db"), "another database");
    fs::write(folder.path().join("none"), "nothing").unwrap();
    refusal(&folder.path().join("none"), "no SQLite database");
    fs::write(folder.path().join("copy.db-wal"), vec![1; 5000]).unwrap();
    refusal(&source, "waits beside it");
    fs::remove_file(folder.path().join("copy.db-wal")).unwrap();
    fs::write(folder.path().join("x.db-journal"), vec![1; 5000]).unwrap();
    refusal(&source, "rollback journal");
    fs::remove_file(folder.path().join("x.db-journal")).unwrap();
    let mut holder = Command::new("sqlite3")
        .current_dir(&folder)
        .arg("copy.db")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = b"BEGIN EXCLUSIVE;\nSELECT 'held';\n";
    std::io::Write::write_all(holder.stdin.as_mut().unwrap(), begin).unwrap();
    let mut word = [0; 4];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut word).unwrap();
    refusal(&source, "open");
    let (status, json) = command(&source, &[]);
    assert_eq!(status, Some(2), "{json}");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

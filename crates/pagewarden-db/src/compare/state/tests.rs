//! What a state must keep, refuse and see.

use std::collections::BTreeSet;
use std::fs;

use pagewarden::system::{PermissionsExt as _, chown, symlink};

use tempfile::TempDir;

use super::*;
use crate::compare::look::{BUCKETS, Scope};
use crate::compare::mode::Look;
use crate::compare::report::{Difference, Kind};
use crate::compare::split::Split;
use crate::row::record::Record;
use crate::row::{Tag, Value};

fn asked() -> Asked {
    Asked {
        source: "sqlite:a".to_owned(),
        targets: vec!["sqlite:b".to_owned()],
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        differences: 10,
        mode: Mode::Auto,
    }
}

fn name(name: &str) -> TableName {
    TableName { schema: None, name: name.to_owned() }
}

fn key(text: &str) -> Bound {
    Some(vec![Value { tag: Tag::Number, payload: text.as_bytes().to_vec() }])
}

fn range(after: Bound, upto: Bound) -> Scope {
    Scope::Range { after, upto }
}

fn chunk(number: u64, after: Bound, upto: Bound, unequal: &[Scope]) -> Chunk {
    let (mut one, mut other) = (Record::default(), Record::default());
    one.add(7);
    other.add(if unequal.is_empty() { 7 } else { 8 });
    let look = Look {
        mode: Mode::Pushdown,
        rows_source: 1,
        rows_target: 1,
        bytes: 100,
        sums: [one.text(), other.text()],
        alike: one == other,
    };
    Chunk::new(number, (after, upto), &look, unequal)
}

fn found(changed: u64) -> Found {
    let value = |payload: &[u8]| Value { tag: Tag::Bytes, payload: payload.to_vec() };
    let difference = Difference {
        kind: Kind::Changed,
        key: vec![("id\n\"".to_owned(), value(b"5"))],
        columns: vec!["c".to_owned()],
        source: Some(vec![value(b"5"), value(b"\xff\x00")]),
        target: None,
    };
    let places = BTreeSet::from([0]);
    Found { changed, differences: vec![difference], places, ..Found::default() }
}

const STRANGE: &str = "new\nline\";--";

/// A state of two tables: one of chunks of which two were not equal, one of them in two
/// parts, and one of buckets.
fn written() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let state = State::open(&path, &asked()).unwrap();
    assert!(!state.is_resumed);
    let (table, known, anew) = state.table("t", &name(STRANGE), "1".to_owned()).unwrap();
    assert!(!known.is_finished() && !anew);
    table.mode(Mode::Pushdown, "because").unwrap();
    let parts = [range(None, key("3")), range(key("8"), key("10"))];
    table.chunk(chunk(0, None, key("10"), &parts)).unwrap();
    let (other, ..) = state.table("t", &name("words"), "2".to_owned()).unwrap();
    table.chunk(chunk(1, key("10"), key("20"), &[])).unwrap();
    table.settled((0, 1), &found(3)).unwrap();
    let groups = vec![vec![1, 5], vec![9]];
    let rows_of_tiles = vec![1; 1024];
    let (rows_source, rows_target, bytes) = (4, 5, 6);
    let at_least = false;
    let buckets = Buckets { rows_source, rows_target, bytes, rows_of_tiles, groups, at_least };
    other.buckets(buckets).unwrap();
    table.settled((0, 0), &Found::default()).unwrap();
    table.chunk(chunk(2, key("20"), None, &[range(key("20"), None)])).unwrap();
    other.settled((1, 0), &Found::default()).unwrap();
    drop(state);
    (folder, path)
}

#[test]
fn what_was_written_is_known_again_and_gone_on_with() {
    let (_folder, path) = written();
    let state = State::open(&path, &asked()).unwrap();
    assert!(state.is_resumed && state.warning.is_none());
    let (table, known, anew) = state.table("t", &name(STRANGE), "1".to_owned()).unwrap();
    assert!(!anew && !known.is_finished());
    assert_eq!((known.chunks, known.rows_source, known.bytes), (3, 3, 300));
    assert_eq!(known.open.keys().collect::<Vec<_>>(), [&(2, 0)]);
    assert_eq!(known.reached, Reached::End);
    assert_eq!(known.settled.len(), 2);
    assert_eq!(known.settled[0].places, BTreeSet::from([0]));
    assert_eq!(known.choice, Some((Mode::Pushdown, "because".to_owned())));
    assert_eq!(known.map.tiles().iter().map(|tile| tile.rows).collect::<Vec<_>>(), [1, 1, 1]);
    let row = known.settled[0].differences[0].source.as_ref().unwrap();
    assert_eq!((row[1].tag, row[1].payload.as_slice()), (Tag::Bytes, &b"\xff\x00"[..]));
    let (_, words, _) = state.table("t", &name("words"), "2".to_owned()).unwrap();
    assert_eq!((words.chunks, words.rows_target), (BUCKETS as u64, 5));
    assert_eq!((words.map.tiles().len(), words.map.parts_per_tile()), (1024, 64));
    assert!(
        matches!(&words.open[&(0, 0)], Scope::Parts(Split::Buckets, some) if some.len() == 2 && some.contains(&5))
    );
    table.settled((2, 0), &found(1)).unwrap();
    drop(state);
    let state = State::open(&path, &asked()).unwrap();
    let (_, known, _) = state.table("t", &name(STRANGE), "1".to_owned()).unwrap();
    assert!(known.is_finished());
    assert_eq!(known.settled.iter().map(|one| one.changed).sum::<u64>(), 4);
}

#[test]
fn altered_table_begins_anew_and_the_others_go_on() {
    let (_folder, path) = written();
    let state = State::open(&path, &asked()).unwrap();
    let (table, known, anew) = state.table("t", &name(STRANGE), "other".to_owned()).unwrap();
    assert!(anew && known.chunks == 0);
    table.chunk(chunk(0, None, None, &[])).unwrap();
    drop(state);
    let state = State::open(&path, &asked()).unwrap();
    let (_, known, anew) = state.table("t", &name(STRANGE), "other".to_owned()).unwrap();
    assert!(!anew && known.is_finished() && known.chunks == 1 && known.settled.is_empty());
    let (_, words, anew) = state.table("t", &name("words"), "2".to_owned()).unwrap();
    assert!(!anew && words.open.len() == 1);
    // The same name in another target is another table.
    let (_, known, anew) = state.table("u", &name("words"), "2".to_owned()).unwrap();
    assert!(!anew && known.chunks == 0);
}

#[test]
fn another_request_is_refused_by_name_and_the_file_stays() {
    let (_folder, path) = written();
    let before = fs::read(&path).unwrap();
    let other = Asked { source: "sqlite:z".to_owned(), mode: Mode::Native, ..asked() };
    let error = State::open(&path, &other).unwrap_err().to_string();
    assert!(error.contains("source, --mode"), "{error}");
    fs::write(&path, "what another program wrote\n").unwrap();
    let error = State::open(&path, &asked()).unwrap_err().to_string();
    assert!(error.contains("not the state of a comparison"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"what another program wrote\n");
    fs::write(&path, &before).unwrap();
    let first = State::open(&path, &asked()).unwrap();
    let error = State::open(&path, &asked()).unwrap_err().to_string();
    assert!(error.contains("another run has it open"), "{error}");
    drop(first);
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// The chunks of a table, its settled parts and its open ones, and how it is compared.
type Moment = (u64, usize, Vec<PartNumber>, Option<Mode>);

/// What was read of a file, as a run would take it.
fn knowledge(path: &Path) -> Option<Vec<Moment>> {
    let state = State::open(path, &asked()).ok()?;
    let tables = [(STRANGE, "1"), ("words", "2")];
    let known = tables.map(|(table, fingerprint)| {
        let (_, known, _) = state.table("t", &name(table), fingerprint.to_owned()).unwrap();
        let open = known.open.keys().copied().collect();
        (known.chunks, known.settled.len(), open, known.choice.map(|(mode, _)| mode))
    });
    Some(known.to_vec())
}

/// Whatever is cut off or altered, a run knows what an earlier moment of the file said, and
/// nothing else.
#[test]
fn damage_ends_the_file_before_its_line() {
    let (folder, path) = written();
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged");
    let mut moments = Vec::new();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    for end in ends {
        fs::write(&damaged, &bytes[..end]).unwrap();
        let moment = knowledge(&damaged).unwrap();
        // Asking for tables has written their lines.
        moments.push((end, moment));
    }
    assert_eq!(moments.len(), 11);
    for at in (0..bytes.len()).step_by(5) {
        let expected = moments.iter().rev().find(|(end, _)| *end <= at).map(|(_, known)| known);
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        for (what, text) in [("altered", &altered[..]), ("cut", &bytes[..at])] {
            fs::write(&damaged, text).unwrap();
            let known = knowledge(&damaged);
            // An empty file is a new one.
            let expected = if text.is_empty() {
                Some(vec![(0, 0, vec![], None); 2])
            } else {
                expected.cloned()
            };
            assert_eq!(known, expected, "{what} at {at}");
        }
    }
}

#[test]
fn nobody_else_reads_what_is_written_to_a_file_that_was_there() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(State::open(&path, &asked()).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);

    let link = folder.path().join("link");
    let victim = folder.path().join("victim");
    fs::write(&victim, "").unwrap();
    symlink(&victim, &link).unwrap();
    let error = State::open(&link, &asked()).unwrap_err().to_string();
    assert!(error.contains("it is a link"), "{error}");
    assert_eq!(fs::read(&victim).unwrap(), b"");
    // It does not wait for a process at the other end.
    let pipe = folder.path().join("pipe");
    pagewarden::system::fs::mknodat(
        pagewarden::system::fs::CWD,
        &pipe,
        pagewarden::system::fs::FileType::Fifo,
        FileMode::RUSR | FileMode::WUSR,
        0,
    )
    .unwrap();
    let error = State::open(&pipe, &asked()).unwrap_err().to_string();
    assert!(error.contains("it is no file"), "{error}");

    if !geteuid().is_root() {
        eprintln!("SKIPPED in part: only root can give files away");
        return;
    }
    let theirs = folder.path().join("theirs");
    fs::write(&theirs, "").unwrap();
    chown(&theirs, Some(65534), Some(65534)).unwrap();
    let error = State::open(&theirs, &asked()).unwrap_err().to_string();
    assert!(error.contains("another user"), "{error}");
    assert_eq!(fs::read(&theirs).unwrap(), b"");
}

//! A program that SQLite and the VFS are linked into. Packs: many connections on many threads
//! get what they would get from plain files, and share what it takes to read a pack.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod layered;
#[path = "../packing.rs"]
mod packing;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use pagewarden::pack::Method;
use rusqlite::{Connection, ErrorCode, OpenFlags};

const ROWS: i64 = 20_000;

/// A database, plain and packed.
struct Pair {
    plain: PathBuf,
    packed: String,
}

fn connect(name: &str) -> Connection {
    pagewarden_sqlite::register().unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(name, flags).unwrap()
}

fn pair(folder: &Path, name: &str, page_bytes: u32, block_bytes: u32, method: Method) -> Pair {
    let plain = folder.join(format!("{name}.db"));
    let db = Connection::open(&plain).unwrap();
    db.execute_batch(&format!(
        "PRAGMA page_size={page_bytes};
        CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c INT);
        WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<{ROWS})
        INSERT INTO t SELECT v, hex(v*v*7919)||'{name}', v*31%1000 FROM n;
        CREATE INDEX i ON t(c, b);"
    ))
    .unwrap();
    db.close().unwrap();
    let pack = folder.join(format!("{name}.pwk"));
    packing::pack(&plain, &pack, packing::settings(block_bytes, method));
    let packed = format!("file:{}?vfs=pagewarden", pack.display());
    Pair { plain, packed }
}

fn all(db: &Connection, sql: &str) -> Vec<(i64, String)> {
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn connections_on_many_threads_read_what_is_in_the_plain_files() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = [
        pair(folder.path(), "one", 4096, 65_536, Method::Zstd(3)),
        pair(folder.path(), "two", 1024, 16_384, Method::Lz4),
    ];
    thread::scope(|scope| {
        for worker in 0..6_i64 {
            let pairs = &pairs;
            scope.spawn(move || {
                for turn in 0..3 {
                    let own = usize::try_from((worker + turn) % 2).unwrap();
                    let Pair { plain, packed } = &pairs[own];
                    let (plain, packed) = (Connection::open(plain).unwrap(), connect(packed));
                    // Through the table, through the index, and here and there.
                    for sql in
                        ["SELECT a, b FROM t", "SELECT c, b FROM t INDEXED BY i ORDER BY c, b"]
                    {
                        assert!(all(&packed, sql) == all(&plain, sql), "{sql}");
                    }
                    for step in 0..300 {
                        let key = (step * 7919 + worker * 131) % ROWS;
                        let sql = format!("SELECT c, b FROM t WHERE a={key}");
                        assert_eq!(all(&packed, &sql), all(&plain, &sql));
                    }
                    let other = &pairs[1 - own].packed;
                    packed.execute("ATTACH ?1 AS other", [other]).unwrap();
                    let joined: i64 = packed
                        .query_row(
                            "SELECT count(*) FROM t JOIN other.t o ON o.a=t.a AND o.c=t.c",
                            [],
                            |row| row.get(0),
                        )
                        .unwrap();
                    assert_eq!(joined, ROWS);
                }
            });
        }
    });
    let integrity: String = connect(&pairs[0].packed)
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
}

/// Each connection opens the store by itself, and finds what the others put there.
#[test]
#[cfg(target_os = "linux")]
fn connections_share_expanded_pages_with_those_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pair = pair(folder.path(), "one", 4096, 65_536, Method::Zstd(3));
    let name = format!("{}&expanded={}", pair.packed, memory.path().display());
    let sql = "SELECT a, b FROM t";
    let expected = all(&Connection::open(&pair.plain).unwrap(), sql);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(all(&connect(&name), sql) == expected));
        }
    });
    let store = fs::read_dir(&memory).unwrap().next().unwrap().unwrap().path();
    let whole = fs::metadata(&pair.plain).unwrap().len();
    assert!(fs::metadata(store).unwrap().len() > whole);
    assert!(all(&connect(&name), sql) == expected);
    let refused = format!("{}&expanded=/proc/self", pair.packed);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    assert!(Connection::open_with_flags(refused, flags).is_err());
}

/// Threads of this process that read packs, by their names.
#[cfg(target_os = "linux")]
fn readers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.ok()?)).filter(|name| name.starts_with("pack-reader")).count()
}

/// The system takes a moment to forget a thread that was joined.
#[cfg(target_os = "linux")]
fn assert_readers(expected: usize, what: &str) {
    let begin = Instant::now();
    while readers() != expected {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} readers: {what}", readers());
        thread::sleep(Duration::from_millis(2));
    }
}

/// In a process of its own, so that the threads counted are those of this test.
#[test]
#[cfg(target_os = "linux")]
fn connections_share_one_reader_which_goes_with_the_last() {
    const MARK: &str = "PAGEWARDEN_COUNTS_READERS";
    if std::env::var_os(MARK).is_none() {
        let name = "connections_share_one_reader_which_goes_with_the_last";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(MARK, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pair = pair(folder.path(), "one", 4096, 65_536, Method::Zstd(1));
    assert_eq!(readers(), 0);
    let first = connect(&pair.packed);
    all(&first, "SELECT a, b FROM t");
    let threads = readers();
    assert!(threads > 0);
    let others: Vec<_> = (0..8).map(|_| connect(&pair.packed)).collect();
    others.iter().for_each(|db| assert_eq!(all(db, "SELECT a, b FROM t").len(), 20_000));
    assert_readers(threads, "of nine connections");
    let larger = connect(&format!("{}&pack_cache_mib=100", pair.packed));
    assert_readers(2 * threads, "another cache is another reader");
    drop(larger);
    drop(first);
    assert_readers(threads, "of eight connections");
    drop(others);
    assert_readers(0, "of none");
    // Another pack under the same name is another pack.
    let before = connect(&pair.packed);
    fs::remove_file(folder.path().join("one.pwk")).unwrap();
    let again = Connection::open(&pair.plain).unwrap();
    again.execute_batch("DELETE FROM t WHERE a > 10").unwrap();
    again.close().unwrap();
    let settings = packing::settings(4096, Method::Lz4);
    packing::pack(&pair.plain, &folder.path().join("one.pwk"), settings);
    let after = connect(&pair.packed);
    assert_eq!(all(&after, "SELECT a, b FROM t").len(), 10);
    assert_eq!(all(&before, "SELECT a, b FROM t").len(), 20_000);
}

/// What SQLite says of a write, of damage, and of what is not there.
#[test]
fn errors_have_the_codes_that_programs_know() {
    let folder = tempfile::tempdir().unwrap();
    let pair = pair(folder.path(), "one", 4096, 4096, Method::Raw);
    let code = |result: rusqlite::Result<usize>| match result.unwrap_err() {
        rusqlite::Error::SqliteFailure(error, _) => (error.code, error.extended_code),
        other => panic!("{other}"),
    };
    let pack = folder.path().join("one.pwk");
    for path in [&pair.plain, &pack] {
        let db = pagewarden_sqlite::open_read_only(path).unwrap();
        assert_eq!(all(&db, "SELECT a, b FROM t").len(), 20_000);
    }
    let db = connect(&pair.packed);
    assert!(db.is_readonly("main").unwrap());
    assert_eq!(code(db.execute("DELETE FROM t", [])).0, ErrorCode::ReadOnly);
    drop(db);
    let (plain, mut bytes) = (fs::read(&pair.plain).unwrap(), fs::read(&pack).unwrap());
    let page = &plain[5 * 4096..6 * 4096];
    let at = bytes.windows(4096).position(|bytes| bytes == page).unwrap();
    bytes[at + 100] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    let db = connect(&pair.packed);
    let damaged = code(db.query_row("SELECT sum(length(b)) FROM t", [], |_| Ok(0)));
    assert_eq!(damaged, (ErrorCode::SystemIoFailure, 10 | 32 << 8));
    let (file, listed): (String, i64) = db
        .query_row("SELECT file, page_id FROM pagewarden_suspect_pages", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert!(file.ends_with("/one.pwk/one.db") && listed == 6, "{file} {listed}");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let missing = Connection::open_with_flags(format!("{}&file=two.db", pair.packed), flags);
    let Err(rusqlite::Error::SqliteFailure(error, _)) = missing else { panic!("{missing:?}") };
    assert_eq!(error.code, ErrorCode::CannotOpen);
}

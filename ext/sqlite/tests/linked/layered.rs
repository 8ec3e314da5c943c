//! A VFS that is laid over ours: one that passes on what it does not know, as those of SQLite do, and one that
//! does not.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::mem::size_of;
use std::path::Path;
use std::ptr;
use std::sync::Once;

use rusqlite::{Connection, ffi};

/// Below this are SQLite's own operations.
const OWN_OPERATIONS: c_int = 100;
const PASSING: &CStr = c"passing";
const DEAF: &CStr = c"deaf";

/// A file of such a VFS, and ours behind it in the same allocation.
#[repr(C)]
struct Layer {
    base: ffi::sqlite3_file,
    is_deaf: bool,
}

fn below(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: `open` put it there: the allocation goes on.
    unsafe { file.cast::<Layer>().add(1) }.cast()
}

macro_rules! pass {
    ($method:ident, ($($argument:ident: $type:ty),*) -> $result:ty) => {{
        unsafe extern "C" fn pass(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> $result {
            let below = below(file);
            // SAFETY: open, with all of these methods.
            unsafe { ((*(*below).pMethods).$method.unwrap())(below $(, $argument)*) }
        }
        Some(pass)
    }};
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: pass!(xClose, () -> c_int),
    xRead: pass!(xRead, (to: *mut c_void, bytes: c_int, at: i64) -> c_int),
    xWrite: pass!(xWrite, (from: *const c_void, bytes: c_int, at: i64) -> c_int),
    xTruncate: pass!(xTruncate, (bytes: i64) -> c_int),
    xSync: pass!(xSync, (flags: c_int) -> c_int),
    xFileSize: pass!(xFileSize, (bytes: *mut i64) -> c_int),
    xLock: pass!(xLock, (level: c_int) -> c_int),
    xUnlock: pass!(xUnlock, (level: c_int) -> c_int),
    xCheckReservedLock: pass!(xCheckReservedLock, (result: *mut c_int) -> c_int),
    xFileControl: Some(file_control),
    xSectorSize: pass!(xSectorSize, () -> c_int),
    xDeviceCharacteristics: pass!(xDeviceCharacteristics, () -> c_int),
    xShmMap: pass!(xShmMap, (region: c_int, bytes: c_int, extend: c_int, to: *mut *mut c_void) -> c_int),
    xShmLock: pass!(xShmLock, (offset: c_int, count: c_int, flags: c_int) -> c_int),
    xShmBarrier: pass!(xShmBarrier, () -> ()),
    xShmUnmap: pass!(xShmUnmap, (delete: c_int) -> c_int),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: a file of these methods.
    if operation >= OWN_OPERATIONS && unsafe { (*file.cast::<Layer>()).is_deaf } {
        return ffi::SQLITE_NOTFOUND;
    }
    let below = below(file);
    // SAFETY: as in `pass`.
    unsafe { ((*(*below).pMethods).xFileControl.unwrap())(below, operation, argument) }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's arguments, and an allocation that is long enough for both files.
    unsafe {
        let ours = ffi::sqlite3_vfs_find(c"pagewarden".as_ptr());
        let (below, is_deaf) = (below(file), (*vfs).zName == DEAF.as_ptr());
        (*below).pMethods = ptr::null();
        let result = ((*ours).xOpen.unwrap())(ours, name, below, flags, out_flags);
        let methods = if (*below).pMethods.is_null() { ptr::null() } else { &raw const METHODS };
        file.cast::<Layer>()
            .write(Layer { base: ffi::sqlite3_file { pMethods: methods }, is_deaf });
        result
    }
}

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        pagewarden_sqlite::register().unwrap();
        for name in [PASSING, DEAF] {
            // SAFETY: ours is registered and stays, and so does the copy of it.
            unsafe {
                let ours = *ffi::sqlite3_vfs_find(c"pagewarden".as_ptr());
                let bytes = c_int::try_from(size_of::<Layer>()).unwrap();
                let layer = ffi::sqlite3_vfs {
                    szOsFile: ours.szOsFile + bytes,
                    pNext: ptr::null_mut(),
                    zName: name.as_ptr(),
                    xOpen: Some(open),
                    ..ours
                };
                let layer = Box::into_raw(Box::new(layer));
                assert_eq!(ffi::sqlite3_vfs_register(layer, 0), ffi::SQLITE_OK);
            }
        }
    });
}

fn connect(path: &Path, vfs: &CStr) -> Connection {
    register();
    Connection::open(format!("file:{}?vfs={}", path.display(), vfs.to_str().unwrap())).unwrap()
}

fn word(db: &Connection, sql: &str) -> String {
    db.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0))
        .map(|value| match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        })
        .unwrap_or_else(|error| error.to_string())
}

fn assert_sound(path: &Path, rows: i64) {
    let db = super::connect(&format!("file:{}?vfs=pagewarden", path.display()));
    assert_eq!(word(&db, "PRAGMA page_verify"), "CHECKSUM");
    assert_eq!(word(&db, "PRAGMA integrity_check"), "ok");
    assert_eq!(word(&db, "PRAGMA page_verify_suspects"), "none");
    assert_eq!(word(&db, "SELECT count(*) FROM t"), rows.to_string());
}

const FILL: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<500)
    INSERT INTO t SELECT v, hex(randomblob(100)) FROM n;
    BEGIN; UPDATE t SET b='x'; ROLLBACK; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; RELEASE s;
    UPDATE t SET b=b||'y' WHERE a%3=0;";

/// New databases are protected, attached ones too; the pragmas are answered; the log has markers.
#[test]
fn layer_that_passes_on_what_it_does_not_know_changes_nothing() {
    for mode in ["DELETE", "WAL"] {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("x.db"), folder.path().join("y.db"));
        let db = connect(&path, PASSING);
        assert_eq!(word(&db, &format!("PRAGMA journal_mode={mode}")), mode.to_lowercase());
        db.execute_batch(&format!("PRAGMA cache_size=5; PRAGMA wal_autocheckpoint=0; {FILL}"))
            .unwrap();
        let name = format!("file:{}?vfs=passing", other.display());
        db.execute("ATTACH ?1 AS y", [name]).unwrap();
        db.execute_batch("CREATE TABLE y.t AS SELECT * FROM t").unwrap();
        assert_eq!(word(&db, "PRAGMA y.page_verify"), "CHECKSUM");
        assert_eq!(word(&db, "PRAGMA page_verify_guard = 1"), "1");
        // What a plain program brings into a copy carries markers.
        let copy = folder.path().join("copy.db");
        for ending in ["", "-wal"] {
            let (from, to) =
                (format!("{}{ending}", path.display()), format!("{}{ending}", copy.display()));
            if Path::new(&from).exists() {
                fs::copy(from, to).unwrap();
            }
        }
        assert_eq!(fs::metadata(folder.path().join("copy.db-wal")).is_ok(), mode == "WAL");
        let plain = Connection::open(&copy).unwrap();
        assert_eq!(word(&plain, "SELECT count(*) FROM t"), "500");
        plain.close().unwrap();
        assert!(!folder.path().join("copy.db-wal").exists());
        assert_sound(&copy, 500);
        assert_eq!(word(&db, "PRAGMA page_verify_guard = 0"), "0");
        db.close().unwrap();
        assert_sound(&path, 500);
        assert_sound(&other, 500);
        // Healing goes through it, too.
        let plain = Connection::open(&path).unwrap();
        plain.execute_batch("DELETE FROM t WHERE a=7; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        plain.close().unwrap();
        let healed = word(&connect(&path, PASSING), "PRAGMA page_verify_heal");
        assert!(healed.ends_with("stamped again"), "{healed}");
        assert_sound(&path, 499);
    }
}

/// It hides its files: a new database is refused, and one that is there is read and written, its pages
/// stamped where they reach the file.
#[test]
fn layer_that_hides_its_files_leaves_no_database_in_between() {
    for mode in ["DELETE", "WAL"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let refused = connect(&path, DEAF).execute_batch(FILL);
        assert!(refused.is_err());
        assert_eq!(fs::metadata(&path).map_or(0, |it| it.len()), 0);
        fs::remove_file(&path).unwrap();
        let db = connect(&path, PASSING);
        db.execute_batch(&format!("PRAGMA journal_mode={mode}; {FILL}")).unwrap();
        db.close().unwrap();
        let db = connect(&path, DEAF);
        db.execute_batch(
            "PRAGMA cache_size=5; UPDATE t SET b=hex(randomblob(90)); BEGIN; DELETE FROM t; ROLLBACK;
             INSERT INTO t(b) VALUES('one more')",
        )
        .unwrap();
        db.close().unwrap();
        assert_sound(&path, 501);
    }
}

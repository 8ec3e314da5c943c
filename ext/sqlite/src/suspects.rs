//! The pages that failed, as `msdb.suspect_pages` lists them: one row a page, without its end at
//! 1,000 rows. Kept in memory, for the process.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pagewarden::verdict::PageNo;
use rusqlite::vtab::{Context, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor};
use rusqlite::{Connection, Result, ffi};

/// A page that failed.
#[derive(Debug, Clone)]
struct Suspect {
    event_type: i64,
    kind: &'static str,
    detail: String,
    error_count: i64,
    last_update: i64,
}

/// By file and page.
static SUSPECTS: Mutex<BTreeMap<(String, i64), Suspect>> = Mutex::new(BTreeMap::new());

fn suspects() -> MutexGuard<'static, BTreeMap<(String, i64), Suspect>> {
    SUSPECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a page failed. `kind` is a word of `pagewarden check`.
pub fn note(file: &str, page: u64, kind: &'static str, detail: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let key = (file.to_owned(), i64::try_from(page).unwrap_or(i64::MAX));
    let mut suspects = suspects();
    let suspect = suspects.entry(key).or_insert_with(|| Suspect {
        event_type: 0,
        kind,
        detail: String::new(),
        error_count: 0,
        last_update: 0,
    });
    // The numbers of SQL Server: 1 any other error, 2 bad checksum, 3 torn page.
    suspect.event_type = match kind {
        "torn" => 3,
        "checksum" | "bit_flip" => 2,
        _ => 1,
    };
    suspect.kind = kind;
    detail.clone_into(&mut suspect.detail);
    suspect.error_count = suspect.error_count.saturating_add(1);
    suspect.last_update = i64::try_from(now).unwrap_or(i64::MAX);
}

/// These pages of `file` pass again.
pub fn forget(file: &str, pages: &[PageNo]) {
    let mut suspects = suspects();
    for page in pages {
        suspects.remove(&(file.to_owned(), i64::try_from(page.0).unwrap_or(i64::MAX)));
    }
}

/// What to do about a page that fails. With the name of a database it is a line of SQLite's log, which
/// cuts lines at some 200 bytes.
pub const REMEDY: &str = "hint: see pagewarden check; where a program without the VFS wrote, PRAGMA \
                          page_verify_heal or pagewarden protect --mode checksum --heal; else restore it";

/// The pages of `file` that failed, a line each, and what to do; a short word where there are none.
pub fn described(file: &str) -> String {
    let suspects = suspects();
    let pages = suspects.iter().filter(|((of, _), _)| of == file);
    let lines: Vec<_> =
        pages.map(|((_, page), it)| format!("page {page}: {}: {}", it.kind, it.detail)).collect();
    if lines.is_empty() {
        return "none".to_owned();
    }
    format!("{}\n{REMEDY}", lines.join("\n"))
}

const NAME: &str = "pagewarden_suspect_pages";
const SCHEMA: &std::ffi::CStr =
    c"CREATE TABLE x(file, page_id, event_type, kind, detail, error_count, last_update_date)";

/// Gives `db` the table.
pub fn create_module(db: &Connection) -> Result<()> {
    const MODULE: &Module<'static, SuspectTable> = &Module::eponymous_only_module();
    db.create_module(NAME, MODULE, None)
}

#[repr(C)]
struct SuspectTable {
    /// SQLite's own part comes first.
    base: ffi::sqlite3_vtab,
}

// SAFETY: the struct is `repr(C)` and begins with `sqlite3_vtab`.
unsafe impl<'vtab> VTab<'vtab> for SuspectTable {
    type Aux = ();
    type Cursor = SuspectCursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        _: Option<&()>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(std::borrow::Cow<'static, std::ffi::CStr>, Self)> {
        let _ = db;
        Ok((SCHEMA.into(), Self { base: ffi::sqlite3_vtab::default() }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        info.set_estimated_cost(1000.0);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Self::Cursor> {
        Ok(SuspectCursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            rows: Vec::new(),
            row: 0,
            table: PhantomData,
        })
    }
}

#[repr(C)]
struct SuspectCursor<'vtab> {
    /// SQLite's own part comes first.
    base: ffi::sqlite3_vtab_cursor,
    rows: Vec<((String, i64), Suspect)>,
    row: usize,
    table: PhantomData<&'vtab SuspectTable>,
}

// SAFETY: the struct is `repr(C)` and begins with `sqlite3_vtab_cursor`.
unsafe impl VTabCursor for SuspectCursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        self.rows =
            suspects().iter().map(|(key, suspect)| (key.clone(), suspect.clone())).collect();
        self.row = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.row = self.row.saturating_add(1);
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row >= self.rows.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let Some(((file, page), suspect)) = self.rows.get(self.row) else { return Ok(()) };
        match column {
            0 => context.set_result(file),
            1 => context.set_result(page),
            2 => context.set_result(&suspect.event_type),
            3 => context.set_result(&suspect.kind),
            4 => context.set_result(&suspect.detail),
            5 => context.set_result(&suspect.error_count),
            _ => context.set_result(&suspect.last_update),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(i64::try_from(self.row).unwrap_or(i64::MAX))
    }
}

//! The files of a running server's data directory, read through the server: what it has on its disk, each as
//! it is at that moment.
//!
//! `pg_stat_file`, `pg_ls_dir` and `pg_read_binary_file` need a superuser, or a role that was granted
//! `EXECUTE` on them; where there is no file they give NULL (`missing_ok`, since 9.5). Nothing is
//! written, and no checkpoint asked for: pages that wait in the server's memory are seen as
//! they were before.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pagewarden::source::store::{Listed, NotRead, Seen, Store, StorePath, StoredBytes};

use super::{Answer, Postgres, PostgresDialect, open};
use crate::engine::statement::Dialect as _;
use crate::error::{Error, Result};
use crate::location::Location;

/// Of one answer, so that a server needs little memory for it.
const PIECE_BYTES: usize = 1 << 20;
/// Count of fields and the length of the first one, before its bytes.
const FIELD_BEGIN: usize = 6;

/// See the module. Clones share the connection.
#[derive(Clone)]
struct Files {
    root: PathBuf,
    postgres: Arc<Mutex<Postgres>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("root", &self.root).finish_non_exhaustive()
    }
}

/// The data directory of a running server, as a place of files.
///
/// # Errors
/// It is no PostgreSQL, cannot be reached, or refuses.
pub fn data_directory(location: &Location) -> Result<StorePath> {
    let place = location.to_string();
    if location.scheme != super::ENGINE.scheme {
        let reason = "only the files of a PostgreSQL server are read through the server\n\
                      hint: name a copy that was shut down, or a backup";
        return Err(Error::Connect { place, reason: reason.to_owned() });
    }
    let database = location.database.clone().filter(|name| !name.is_empty());
    let database = Some(database.unwrap_or_else(|| "postgres".to_owned()));
    let postgres = open(&Location { database, ..location.clone() })?;
    let root = PathBuf::from(place);
    let files = Files { root: root.clone(), postgres: Arc::new(Mutex::new(postgres)) };
    Ok(StorePath::new(Arc::new(files), root))
}

impl Files {
    /// As the server's functions take it, quoted.
    fn name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let name = below.to_string_lossy();
        PostgresDialect.text(if name.is_empty() { "." } else { &name })
    }

    fn ask(&self, sql: &str) -> io::Result<Vec<Answer>> {
        let mut postgres = self.postgres.lock().unwrap_or_else(PoisonError::into_inner);
        postgres.ask(sql).map_err(|error| not_read(&error))
    }
}

/// What the server did not say is not known.
fn not_read(error: &Error) -> io::Error {
    let mut words = error.to_string();
    if words.contains("permission denied for function") {
        words.push_str("; log in as a superuser, or grant EXECUTE on it to this role");
    }
    NotRead(words).into()
}

impl Store for Files {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let name = self.name(folder);
        let sql = format!(
            "SELECT entry, (pg_stat_file({name} || '/' || entry, true)).* \
             FROM pg_ls_dir({name}, true, false) AS entry"
        );
        let listed = self.ask(&sql)?.into_iter().filter_map(|row| {
            let mut row = row.into_iter();
            Some(Listed { name: row.next()??, seen: seen(row)? })
        });
        Ok(listed.collect())
    }

    fn look(&self, path: &Path) -> io::Result<Seen> {
        let sql = format!("SELECT * FROM pg_stat_file({}, true)", self.name(path));
        let row = self.ask(&sql)?.into_iter().next();
        row.and_then(|row| seen(row.into_iter())).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>> {
        match self.look(file)? {
            Seen::File(length) => {
                let name = self.name(file);
                Ok(Arc::new(OpenFile { files: self.clone(), name, length }))
            }
            Seen::Folder | Seen::Other => Err(io::Error::other("no file")),
        }
    }

    fn is_running(&self) -> bool {
        true
    }
}

/// Of a row of `pg_stat_file`: size, three or four times, and whether it is a folder. `None`: it is gone.
fn seen(mut row: impl DoubleEndedIterator<Item = Option<String>>) -> Option<Seen> {
    let is_folder = row.next_back()??;
    let size = row.next()??.parse().ok()?;
    Some(if is_folder == "t" { Seen::Folder } else { Seen::File(size) })
}

#[derive(Debug)]
struct OpenFile {
    files: Files,
    /// Quoted.
    name: String,
    /// When it was opened.
    length: u64,
}

impl StoredBytes for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = bytes.len().min(left).min(PIECE_BYTES);
        if wanted == 0 {
            return Ok(0);
        }
        let name = &self.name;
        let sql = format!("SELECT pg_read_binary_file({name}, {offset}, {wanted}, true)");
        let mut count = None;
        let mut postgres = self.files.postgres.lock().unwrap_or_else(PoisonError::into_inner);
        let copied = postgres.copy_rows(&sql, 1, &mut |tuple| {
            let length = tuple.get(2..FIELD_BEGIN).and_then(|it| it.first_chunk());
            let length = length.map(|length| i32::from_be_bytes(*length));
            let field = tuple.get(FIELD_BEGIN..).unwrap_or_default();
            if length.is_some_and(|length| length >= 0) {
                let taken = field.len().min(bytes.len());
                let (to, from) = (bytes.get_mut(..taken), field.get(..taken));
                if let (Some(to), Some(from)) = (to, from) {
                    to.copy_from_slice(from);
                    count = Some(taken);
                }
            }
            Ok(())
        });
        copied.map_err(|error| not_read(&error))?;
        count.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

//! What this engine needs of SQLite.

use std::path::Path;

use pagewarden_core::error::Error;

/// SQLite, which this library does not link: a caller that does lends it.
pub trait Library: Sync {
    /// Opens a database and keeps others away until what it gives is dropped. Where it `heals`, pages
    /// whose markers fail are read all the same.
    ///
    /// # Errors
    /// Another program uses it, or SQLite cannot open it.
    fn hold(&self, path: &Path, how: Hold, heals: bool) -> Result<Box<dyn Held>, Error>;
}

/// Who is kept away from a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Everybody: no other program reads or writes.
    Alone,
    /// Writers, of a database in rollback mode. The file is opened for reading only.
    Reading,
}

/// A database that no other program can write to.
///
/// `watch` takes how many bytes were worked through; where it answers false the
/// work ends early, which is then no error.
pub trait Held {
    /// Brings what is in the write-ahead log into the database, and empties the log.
    ///
    /// # Errors
    /// SQLite's own.
    fn checkpoint(&mut self) -> Result<(), Error>;

    /// From here on, the write-ahead log is left as it is, also when this is dropped.
    ///
    /// # Errors
    /// SQLite's own.
    fn leave_log(&mut self) -> Result<(), Error>;

    /// Writes the whole database, as it is for a reader, into an empty file, with
    /// `reserved_bytes` on each page. False if it was ended early.
    ///
    /// # Errors
    /// SQLite's own; a damaged page among them.
    fn write_to(
        &mut self,
        copy: &Path,
        reserved_bytes: u8,
        watch: &dyn Fn(u64) -> bool,
    ) -> Result<bool, Error>;

    /// Reads all rows of both databases, and has SQLite check the copy's structure.
    /// What is different or wrong, in words; nothing else is.
    ///
    /// # Errors
    /// SQLite's own.
    fn compare(&mut self, copy: &Path, watch: &dyn Fn(u64) -> bool) -> Result<Vec<String>, Error>;
}

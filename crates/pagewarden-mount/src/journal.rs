//! A delta that lasts: a log of what has become of names and pages, beside the file
//! with the pages themselves.
//!
//! ```text
//! DIR/pages   slots of 4 KiB
//! DIR/log     "PWDELTA\n", version (4), root of the pack (32), then records:
//!             length of the rest (4), CRC-64/NVME of the rest (8), the rest:
//!             kind (1) and its fields, numbers little-endian, names with their
//!             length (4) before them
//! ```
//!
//! Records are gathered in memory. A sync writes the pages to the device first, then
//! the records that speak of them: so no record that lasts leads to a page that does
//! not. A slot that is no longer used is given to others only after the record that
//! says so lasts. What was not synced may be lost, as on any file system, in the order
//! in which it was done; a log that ends within a record ends before it.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewarden::crc::crc64 as crc;
use pagewarden::pack::Root;
use pagewarden::shell::quoted;
use pagewarden::source::trusted_path::user;
use rustix::io::Errno;

use crate::delta::Slot;
use crate::record::Record;

mod folder;

use folder::Folder;

const BEGIN: &[u8] = b"PWDELTA\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = BEGIN.len() + 4 + 32;
/// Bytes of a mark, and with its length and sum.
const MARK_RECORD_BYTES: u32 = 9;
const MARK_BYTES: usize = 21;
/// More is no record: names are short, and pages come in requests.
const RECORD_BYTES_MAX: u32 = 1 << 20;

/// Why a delta that is to last cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The system refuses.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// What was synced once can be read no longer.
    #[error("cannot use {}: its log is damaged at byte {offset}\nhint: take a copy of the folder, or begin anew with another one", path.display())]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// Where in its log.
        offset: u64,
    },
    /// There is something else in the folder.
    #[error("cannot keep what is written in {}: it holds something else\nhint: name an empty folder, or one that does not exist", .0.display())]
    NotOurs(PathBuf),
    /// It was written over another pack.
    #[error("cannot use {}: it was written over another pack\nhint: mount the pack it belongs to; after --repack that is the new one", .0.display())]
    OtherPack(PathBuf),
    /// A link may lead anywhere by the next time.
    #[error("cannot use {}: it is a link\nhint: name the folder that it leads to", .0.display())]
    Link(PathBuf),
    /// Its owner may have put links into it that lead to files of the user who mounts.
    #[error("cannot use {}: it belongs to {}\nhint: name a folder of your own, or one that does not exist; or mount as that user: sudo -u {} pagewarden mount ...", path.display(), user(*owner), quoted(user(*owner).as_ref()))]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others may have put links into it.
    #[error("cannot use {}: other users can write to it (mode {mode:04o})\nhint: see what is in it, then: chmod 700 {}", path.display(), quoted(path.as_os_str()))]
    Open {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A running process has it.
    #[error("cannot use {}: a running process uses it", .0.display())]
    InUse(PathBuf),
}

/// The log.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Folder,
    /// Something was changed since the pack was made.
    has_changes: AtomicBool,
    gathered: Mutex<Gathered>,
    /// Held while a sync is under way.
    file: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Gathered {
    bytes: Vec<u8>,
    freed: Vec<Slot>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// Where the next sync begins.
    end: u64,
    /// A sync has failed: what lasts is not known, and nothing is called lasting again.
    has_failed: bool,
}

/// What a folder held.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) journal: Journal,
    pub(crate) pages: File,
    pub(crate) records: Vec<Record>,
}

impl Journal {
    /// Opens the folder, or makes it.
    pub(crate) fn open(folder: &Path, root: Root) -> Result<Opened, DurableError> {
        let io_error = |error| DurableError::Io { path: folder.to_owned(), error };
        let held = Folder::open(folder)?;
        if held.has_log().map_err(io_error)? {
            held.close_to_others().map_err(io_error)?;
        } else if held.is_free().map_err(io_error)? {
            begin(&held, root).map_err(io_error)?;
        } else {
            return Err(DurableError::NotOurs(folder.to_owned()));
        }
        let mut log = held.log().map_err(io_error)?;
        match log.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DurableError::InUse(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io_error(error)),
        }
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).map_err(io_error)?;
        let header = bytes.get(..HEADER_BYTES);
        if header.and_then(|header| header.get(..BEGIN.len())) != Some(BEGIN) {
            return Err(DurableError::NotOurs(folder.to_owned()));
        }
        if header != Some(header_of(root).as_slice()) {
            return Err(DurableError::OtherPack(folder.to_owned()));
        }
        let (records, end) = parse(&bytes);
        let rest = bytes.get(end..).unwrap_or_default();
        let end = end as u64;
        if has_mark_behind(rest, end) {
            return Err(DurableError::Damaged { path: folder.to_owned(), offset: end });
        }
        // What is behind was never said to last.
        log.set_len(end).and_then(|()| log.seek(io::SeekFrom::Start(end))).map_err(io_error)?;
        let pages = held.pages().map_err(io_error)?;
        let has_changes = records.iter().any(|record| !matches!(record, Record::Mark { .. }));
        let journal = Self {
            folder: held,
            has_changes: AtomicBool::new(has_changes),
            gathered: Mutex::default(),
            file: Mutex::new(Log { file: log, end, has_failed: false }),
        };
        Ok(Opened { journal, pages, records })
    }

    /// True if the files are not those of the pack.
    pub(crate) fn has_changes(&self) -> bool {
        self.has_changes.load(Ordering::Relaxed)
    }

    /// Begins anew, with no changes, over a pack that has all of them inside. Whenever
    /// this is stopped the folder is as it was, or empty and the new pack's.
    pub(crate) fn restart(&self, pages: &File, root: Root) -> io::Result<()> {
        let mut log = lock(&self.file);
        let new = write_log(&self.folder, root)?;
        // No other process comes in between the name and the room that is given back.
        new.try_lock().map_err(io::Error::from)?;
        self.folder.name_log()?;
        *log = Log { file: new, end: HEADER_BYTES as u64, has_failed: false };
        self.has_changes.store(false, Ordering::Relaxed);
        pages.set_len(0)
    }

    /// Something has become of a name or a page. Says how many bytes wait for a sync.
    pub(crate) fn record(&self, record: &Record) -> usize {
        self.has_changes.store(true, Ordering::Relaxed);
        let mut gathered = lock(&self.gathered);
        frame(&record.to_bytes(), &mut gathered.bytes);
        gathered.bytes.len()
    }

    /// These are no longer needed, once that lasts.
    pub(crate) fn free(&self, slots: Vec<Slot>) {
        lock(&self.gathered).freed.extend(slots);
    }

    /// Makes everything last that was done so far. Gives the slots that may now be
    /// taken again. After the `last` one, damage to any part of the log will be seen.
    pub(crate) fn sync(&self, pages: &File, last: bool) -> Result<Vec<Slot>, Errno> {
        let mut log = lock(&self.file);
        if log.has_failed {
            return Err(Errno::IO);
        }
        let gathered = std::mem::take(&mut *lock(&self.gathered));
        if log.write(pages, &gathered.bytes, last).is_err() {
            log.has_failed = true;
            return Err(Errno::IO);
        }
        Ok(gathered.freed)
    }
}

impl Log {
    fn write(&mut self, pages: &File, records: &[u8], last: bool) -> io::Result<()> {
        pages.sync_data()?;
        if records.is_empty() && !last {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(records.len() + MARK_BYTES);
        frame(&Record::Mark { begin: self.end }.to_bytes(), &mut bytes);
        bytes.extend(records);
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.end = self.end.saturating_add(bytes.len() as u64);
        Ok(())
    }
}

/// A record as it stands in the log.
fn frame(record: &[u8], out: &mut Vec<u8>) {
    out.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(crc(record).to_le_bytes());
    out.extend(record);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn header_of(root: Root) -> Vec<u8> {
    [BEGIN, &VERSION.to_le_bytes(), &root.0].concat()
}

/// Makes the files. The log comes last, so that where there is one there is all.
fn begin(folder: &Folder, root: Root) -> io::Result<()> {
    folder.close_to_others()?;
    folder.make_pages()?.sync_all()?;
    write_log(folder, root)?;
    folder.name_log()
}

/// A log without records, which has not its name yet.
fn write_log(folder: &Folder, root: Root) -> io::Result<File> {
    let mut log = folder.make_log()?;
    log.write_all(&header_of(root))?;
    log.sync_all()?;
    Ok(log)
}

/// The records that are whole, and where they end.
fn parse(bytes: &[u8]) -> (Vec<Record>, usize) {
    let mut records = Vec::new();
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    while let Some((record, behind)) = next_record(rest) {
        records.push(record);
        rest = behind;
    }
    (records, bytes.len().saturating_sub(rest.len()))
}

fn next_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (length, behind) = bytes.split_first_chunk::<4>()?;
    let (sum, behind) = behind.split_first_chunk::<8>()?;
    let length = u32::from_le_bytes(*length);
    let length = usize::try_from(length).ok().filter(|_| length <= RECORD_BYTES_MAX)?;
    let (record, behind) = behind.split_at_checked(length)?;
    let is_sound = crc(record) == u64::from_le_bytes(*sum);
    Some((Record::parse(record).filter(|_| is_sound)?, behind))
}

/// True if a mark in these bytes says that something behind `end` was synced.
fn has_mark_behind(bytes: &[u8], end: u64) -> bool {
    bytes.windows(MARK_BYTES).any(|window| {
        // Cheaper than a sum at every byte.
        window.starts_with(&MARK_RECORD_BYTES.to_le_bytes())
            && matches!(next_record(window), Some((Record::Mark { begin }, _)) if begin > end)
    })
}

#[cfg(test)]
mod tests;

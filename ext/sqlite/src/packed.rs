//! Databases inside packs, as files beneath the shim: in the place of the file that the VFS beneath
//! would have opened stands one that is read out of a pack.
//!
//! Such a file never changes, and it says so to SQLite (`SQLITE_IOCAP_IMMUTABLE`), which takes no
//! lock, looks for no journal and no log, and refuses to write. The shim above verifies its pages
//! as it does those of any file.
//!
//! All connections of a process that have one pack open share one reader: its cache, its threads,
//! and what it knows of who reads in sequence.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::mem::size_of;
use std::path::{Path, PathBuf};
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pagewarden::formats::sqlite::page::header::{DatabaseHeader, HEADER_BYTES, MAGIC};
use pagewarden::pack::{
    BEGIN, Expanded, ExpandedError, Pack, PackError, Reader, ReaderSettings, Search, What,
    open_chain,
};
use pagewarden::source::memory;
use pagewarden::system::{Identity, MetadataExt as _, identity, os_str_of_bytes};
use rusqlite::ffi;

use crate::parent::Parent;
use crate::{allocated, log, suspects};

/// The parameter of a database's name that says which file of the pack it is.
const FILE: &CStr = c"file";
/// The parameter that says how many mebibytes of the pack are kept expanded.
const CACHE: &CStr = c"pack_cache_mib";
/// The parameter that names a folder in memory where expanded pages are kept for all processes.
const EXPANDED: &CStr = c"expanded";
const MEBIBYTE: usize = 1 << 20;
/// What is kept expanded where no parameter says: an eighth of the free memory, between these.
const CACHE_BYTES_MIN: usize = 64 * MEBIBYTE;
const CACHE_BYTES_MAX: usize = 256 * MEBIBYTE;
/// More is hardly meant.
const CACHE_MEBIBYTES_MAX: usize = 1 << 20;
/// What `SQLITE_FCNTL_VFSNAME` says.
const NAME: &str = "pack";
/// A log of no more has no frame.
const WAL_HEADER_BYTES: u64 = 32;
/// This number of names of databases is said where one has to be chosen.
const NAMES_SAID: usize = 5;

/// A file of a pack, as SQLite allocates it.
#[repr(C)]
struct PackedFile {
    base: ffi::sqlite3_file,
    state: *mut Packed,
}

/// What such a file takes of SQLite's memory.
pub const FILE_BYTES: usize = size_of::<PackedFile>();

/// True if what was opened is a pack. The VFS beneath is asked: a descriptor of our own on a plain
/// database, once closed, would take away the locks that others of this process have on it.
pub fn is_pack(file: Parent) -> bool {
    let mut head = [0; BEGIN.len()];
    file.read(&mut head, 0) == ffi::SQLITE_OK && head == *BEGIN.as_bytes()
}

/// A database that is read out of a pack.
#[derive(Debug)]
pub struct Packed {
    open: Arc<OpenPack>,
    /// Its number among the pack's files.
    file: usize,
    bytes: u64,
    /// Where other processes find what this one has expanded, if that is asked for.
    expanded: Option<Expanded>,
    /// 0 where page 1 does not say.
    page_bytes: u64,
    /// For messages: the pack, and the file in it.
    pub path: String,
}

/// A pack that one connection or several have open.
#[derive(Debug)]
struct OpenPack {
    pack: Arc<Pack>,
    reader: Reader,
    /// The process whose threads read it.
    process: u32,
}

/// What a pack is known by among those that are open. The process is part of it: threads of a reader
/// do not follow into a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    process: u32,
    identity: Identity,
    bytes: u64,
    modified: (i64, i64),
    /// As it was asked for: what is free changes from one connection to the next.
    cache_bytes: Option<usize>,
}

impl Key {
    fn of(path: &Path, cache_bytes: Option<usize>) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            cache_bytes,
            process: std::process::id(),
            identity: identity(&metadata, path)?,
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

static OPEN: Mutex<Vec<(Key, Weak<OpenPack>)>> = Mutex::new(Vec::new());

fn open_packs() -> MutexGuard<'static, Vec<(Key, Weak<OpenPack>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenPack {
    /// Opens a pack, or finds it among those that are open.
    fn at(path: &Path, cache_bytes: Option<usize>) -> Result<Arc<Self>, String> {
        let failed = |error: io::Error| error.to_string();
        let key = Key::of(path, cache_bytes).map_err(failed)?;
        let found = |packs: &mut Vec<(Key, Weak<Self>)>| {
            packs.retain(|(_, open)| open.strong_count() > 0);
            packs.iter().find(|(other, _)| *other == key).and_then(|(_, open)| open.upgrade())
        };
        if let Some(open) = found(&mut open_packs()) {
            return Ok(open);
        }
        // Not under the lock: a large pack has a large table.
        let mut pack = Pack::open(path).map_err(|error| error.to_string())?;
        if pack.base_root().is_some() {
            // A delta, with what it builds on.
            let in_a_line = |words: String| words.replace("\nhint: ", "; ");
            pack = open_chain(path, &[], Search::Beside)
                .map_err(|error| in_a_line(error.to_string()))?;
        }
        let pack = Arc::new(pack);
        let cache_bytes = cache_bytes.unwrap_or_else(default_cache_bytes);
        let settings = ReaderSettings { cache_bytes, ..ReaderSettings::default() };
        let reader = Reader::new(Arc::clone(&pack), settings).map_err(failed)?;
        let open = Arc::new(Self { pack, reader, process: key.process });
        let now = Key::of(path, key.cache_bytes).map_err(failed)?;
        if now != key {
            // Another file took its name meanwhile: it is not known which of them this is.
            return Ok(open);
        }
        let mut packs = open_packs();
        if let Some(first) = found(&mut packs) {
            return Ok(first);
        }
        packs.push((key, Arc::downgrade(&open)));
        Ok(open)
    }

    /// The files in it, without folders.
    fn files(&self) -> impl Iterator<Item = (usize, &Path)> {
        let entries = self.pack.entries().iter().enumerate();
        entries
            .filter(|(_, entry)| matches!(entry.what, What::File { .. }))
            .map(|(number, entry)| (number, entry.name.as_path()))
    }

    fn bytes(&self, file: usize) -> u64 {
        self.pack.entries().get(file).map_or(0, |entry| entry.bytes())
    }

    /// The file that is asked for, or else the only database.
    fn database(&self, wanted: Option<&OsStr>) -> Result<usize, String> {
        if let Some(wanted) = wanted {
            let found = self.files().find(|(_, name)| name.as_os_str() == wanted);
            let none = || format!("there is no file {} in it", wanted.to_string_lossy());
            return found.map(|(file, _)| file).ok_or_else(none);
        }
        let files: Vec<_> = self.files().collect();
        if let [(only, _)] = files.as_slice() {
            return Ok(*only);
        }
        let mut databases = Vec::new();
        for (file, name) in files {
            let mut head = [0; MAGIC.len()];
            match self.reader.read_at(file, 0, &mut head) {
                Ok(count) if count == head.len() && head == *MAGIC => databases.push((file, name)),
                Ok(_) => {}
                Err(error) => {
                    return Err(format!(
                        "it is not known whether {} is the database: {error}; say which file to \
                         open with &file=NAME",
                        name.display()
                    ));
                }
            }
        }
        match databases.as_slice() {
            [] => Err("there is no SQLite database in it".to_owned()),
            [(only, _)] => Ok(*only),
            several => {
                let mut words = String::from("there are several databases in it:");
                for (_, name) in several.iter().take(NAMES_SAID) {
                    let _ = write!(words, " {}", name.display());
                }
                if several.len() > NAMES_SAID {
                    words.push_str(" ...");
                }
                words.push_str("; say which with &file=NAME");
                Err(words)
            }
        }
    }

    /// A file without which the database is not what it was.
    fn needed_beside(&self, database: usize) -> Option<String> {
        let name = &self.pack.entries().get(database)?.name;
        let beside = |suffix: &str| {
            let mut name = name.as_os_str().to_owned();
            name.push(suffix);
            let name = PathBuf::from(name);
            let (file, _) = self.files().find(|(_, other)| *other == name)?;
            Some((file, name))
        };
        if let Some((_, name)) = beside("-wal").filter(|(log, _)| self.has_frames(*log)) {
            return Some(format!("its log {} may hold transactions of it", name.display()));
        }
        let (_, name) = beside("-journal").filter(|(journal, _)| self.may_be_hot(*journal))?;
        Some(format!("its rollback journal {} may have to be played back", name.display()))
    }

    fn has_frames(&self, log: usize) -> bool {
        self.bytes(log) > WAL_HEADER_BYTES
    }

    /// SQLite's own question: a journal is over when its first byte is gone, or zero.
    fn may_be_hot(&self, journal: usize) -> bool {
        let mut first = [0];
        let read = self.reader.read_at(journal, 0, &mut first);
        self.bytes(journal) > 0 && !(matches!(read, Ok(1)) && first == [0])
    }
}

impl Packed {
    /// Opens a database inside the pack at `path`: the one that is wanted, or the only one there is.
    ///
    /// # Errors
    ///
    /// What to report: the pack cannot be read, or it is not known which file is the database, or
    /// the database is more than that file.
    pub fn open(path: &Path, wanted: Wanted<'_>) -> Result<Self, String> {
        let failed = |why: String| format!("the pack {} cannot be opened: {why}", path.display());
        let cache_bytes = wanted.cache_bytes().map_err(failed)?;
        let open = OpenPack::at(path, cache_bytes).map_err(failed)?;
        let file = open.database(wanted.file).map_err(failed)?;
        if let Some(needed) = open.needed_beside(file) {
            return Err(failed(format!(
                "{needed}; unpack it, open the database with sqlite3, run PRAGMA \
                 journal_mode = DELETE, and pack it again"
            )));
        }
        let name = open.pack.entries().get(file).map_or(Path::new(""), |entry| &entry.name);
        let inside = path.join(name).to_string_lossy().into_owned();
        let expanded = match wanted.expanded.map(|at| Expanded::open(at.as_ref(), &open.pack, file))
        {
            Some(Err(ExpandedError::NoPlace(why))) => return Err(failed(why)),
            Some(Err(why)) => {
                // Short, for SQLite cuts what it logs.
                log(ffi::SQLITE_WARNING, &format!("pages are not shared: {why}"));
                None
            }
            Some(Ok(expanded)) => Some(expanded),
            None => None,
        };
        let bytes = open.bytes(file);
        let mut packed = Self { open, file, bytes, expanded, page_bytes: 0, path: inside };
        let mut head = [0; HEADER_BYTES];
        let page_bytes = match packed.read_at(0, &mut head) {
            Ok(HEADER_BYTES) => DatabaseHeader::parse(&head).and_then(|header| header.page_size()),
            // SQLite will meet the error again, and report it.
            _ => None,
        };
        packed.page_bytes = page_bytes.map_or(0, |bytes| bytes as u64);
        Ok(packed)
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<usize, PackError> {
        match &self.expanded {
            Some(expanded) => expanded.read_at(&self.open.reader, at, out),
            None => self.open.reader.read_at(self.file, at, out),
        }
    }

    fn read(&self, out: &mut [u8], offset: i64) -> c_int {
        let Ok(at) = u64::try_from(offset) else { return ffi::SQLITE_IOERR_READ };
        match self.read_at(at, out) {
            Ok(count) if count >= out.len() => ffi::SQLITE_OK,
            Ok(count) => {
                out.get_mut(count..).unwrap_or_default().fill(0);
                ffi::SQLITE_IOERR_SHORT_READ
            }
            Err(error) => self.failed(&error, at),
        }
    }

    /// Tells which page cannot be read, and why.
    #[cold]
    fn failed(&self, error: &PackError, at: u64) -> c_int {
        let page = at.checked_div(self.page_bytes).unwrap_or(0).saturating_add(1);
        let path = &self.path;
        if let PackError::Io(error) = error {
            log(ffi::SQLITE_IOERR_READ, &format!("page {page} of {path} cannot be read: {error}"));
            return ffi::SQLITE_IOERR_READ;
        }
        let words = format!("it cannot be had from the pack: {error}");
        suspects::note(path, page, "checksum", &words);
        log(ffi::SQLITE_IOERR_DATA, &format!("page {page} of {path} is damaged: {words}"));
        ffi::SQLITE_IOERR_DATA
    }

    /// Makes a file of SQLite's of it, in SQLite's memory.
    ///
    /// # Safety
    ///
    /// `file` points to [`FILE_BYTES`] bytes, aligned as SQLite aligns files, that no other code
    /// uses until the file is closed.
    pub unsafe fn become_file(self, file: *mut ffi::sqlite3_file) -> Parent {
        let packed = PackedFile {
            base: ffi::sqlite3_file { pMethods: &raw const METHODS },
            state: Box::into_raw(Box::new(self)),
        };
        // SAFETY: by the caller.
        unsafe { file.cast::<PackedFile>().write(packed) };
        // SAFETY: it is open from here to its xClose.
        unsafe { Parent::new(file) }
    }
}

/// There is no shared memory, and no memory map.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: None,
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The state behind a file with these methods.
///
/// # Safety
///
/// `file` is one that [`Packed::become_file`] made and that is open.
unsafe fn state_of<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a Packed> {
    // SAFETY: by the caller. What is behind it is only read, from any thread.
    unsafe { file.cast::<PackedFile>().as_ref()?.state.as_ref() }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; the box was made by `become_file`, and the methods are
    // taken away.
    let packed = unsafe {
        (*file).pMethods = ptr::null();
        Box::from_raw((*file.cast::<PackedFile>()).state)
    };
    if packed.open.process != std::process::id() {
        // A child of the process that opened it: the threads that would be waited for are not here.
        std::mem::forget(packed);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls methods of open files only.
    let Some(packed) = (unsafe { state_of(file) }) else { return ffi::SQLITE_IOERR_READ };
    let out = match usize::try_from(bytes) {
        Ok(bytes) if bytes > 0 && !buffer.is_null() => {
            // SAFETY: a buffer of that length, to be filled.
            unsafe { slice::from_raw_parts_mut(buffer.cast(), bytes) }
        }
        _ => &mut [],
    };
    packed.read(out, offset)
}

unsafe extern "C" fn write(
    _: *mut ffi::sqlite3_file,
    _: *const c_void,
    _: c_int,
    _: ffi::sqlite3_int64,
) -> c_int {
    ffi::SQLITE_READONLY
}

unsafe extern "C" fn truncate(_: *mut ffi::sqlite3_file, _: ffi::sqlite3_int64) -> c_int {
    ffi::SQLITE_READONLY
}

unsafe extern "C" fn sync(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: as for `read`.
    let Some(packed) = (unsafe { state_of(file) }) else { return ffi::SQLITE_IOERR_FSTAT };
    // SAFETY: SQLite's own place for the answer.
    unsafe { *size = i64::try_from(packed.bytes).unwrap_or(i64::MAX) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: SQLite's own place for the answer.
    unsafe { *result = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _: *mut ffi::sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    if op != ffi::SQLITE_FCNTL_VFSNAME {
        return ffi::SQLITE_NOTFOUND;
    }
    // SAFETY: this operation brings a place for a string that SQLite frees.
    unsafe { *argument.cast() = allocated(NAME) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_IMMUTABLE
}

/// What a URI asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    file: Option<&'a OsStr>,
    cache: Option<&'a OsStr>,
    expanded: Option<&'a OsStr>,
}

impl<'a> Wanted<'a> {
    /// The same, for a path that names the file in the pack by itself.
    pub fn with_file(self, file: Option<&'a [u8]>) -> Self {
        Self { file: file.map(os_str_of_bytes).or(self.file), ..self }
    }

    /// # Safety
    ///
    /// `name` is the one that SQLite gave to xOpen for a main file; the words live as long as it.
    pub unsafe fn of(name: *const c_char) -> Self {
        let word = |parameter: &CStr| -> Option<&'a OsStr> {
            // SAFETY: by the caller; the answer is null or a string behind the name.
            let word = unsafe { ffi::sqlite3_uri_parameter(name, parameter.as_ptr()).as_ref() }?;
            // SAFETY: as above.
            Some(os_str_of_bytes(unsafe { CStr::from_ptr(word) }.to_bytes()))
        };
        Self { file: word(FILE), cache: word(CACHE), expanded: word(EXPANDED) }
    }

    fn cache_bytes(&self) -> Result<Option<usize>, String> {
        let Some(word) = self.cache else { return Ok(None) };
        let mebibytes = word.to_str().and_then(|word| word.parse::<usize>().ok());
        let mebibytes = mebibytes.filter(|mebibytes| *mebibytes <= CACHE_MEBIBYTES_MAX);
        let (name, word) = (CACHE.to_string_lossy(), word.to_string_lossy());
        let refused = || format!("{name} is a number of mebibytes, not {word}");
        mebibytes.map(|mebibytes| Some(mebibytes * MEBIBYTE)).ok_or_else(refused)
    }
}

/// The system keeps the pack's bytes as they are stored, so that a block that was let go is
/// expanded again: what is asked for again should have room.
fn default_cache_bytes() -> usize {
    let free = memory::available_bytes().and_then(|free| usize::try_from(free).ok());
    free.map_or(CACHE_BYTES_MIN, |free| (free / 8).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX))
}

/// A pack that cannot be opened is a database that cannot.
pub fn refuse(why: &str) -> c_int {
    log(ffi::SQLITE_CANTOPEN, why);
    ffi::SQLITE_CANTOPEN
}

/// A path that leads into a pack, `all.pwk/a/b.db`, as the pack's path and the file's name in it.
/// Programs that take no URI cannot say `&file=`.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_end = |at: &usize| path.get(..*at).is_some_and(|pack| pack.ends_with(b".pwk"));
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let (pack, file) = path.split_at_checked(slashes.into_iter().find(is_end)?)?;
    let file = file.strip_prefix(b"/").filter(|file| !file.is_empty())?;
    // A folder may be called so.
    Path::new(os_str_of_bytes(pack)).is_file().then_some((pack, file))
}

/// The file system's path of a database, or of the pack that it is in, with its name there.
pub fn path_of(name: &CStr) -> (&Path, Option<&[u8]>) {
    let path = name.to_bytes();
    let (path, file) = split(path).map_or((path, None), |(pack, file)| (pack, Some(file)));
    (Path::new(os_str_of_bytes(path)), file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn the_cache_takes_a_bounded_share_of_what_is_free() {
        assert!((CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&default_cache_bytes()));
    }

    #[test]
    fn path_leads_into_a_file_that_is_called_a_pack() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.pwk");
        let inside = path.join("a/b.db");
        let inside = inside.as_os_str().as_bytes();
        assert_eq!(split(inside), None, "nothing is there");
        fs::write(&path, BEGIN).expect("written");
        assert_eq!(split(inside), Some((path.as_os_str().as_bytes(), b"a/b.db".as_slice())));
        assert_eq!(split(path.as_os_str().as_bytes()), None);
        assert_eq!(split(path.join("").as_os_str().as_bytes()), None);
    }

    #[test]
    fn what_is_no_pack_is_refused_with_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.pwk");
        fs::write(&path, BEGIN).expect("written");
        let why = Packed::open(&path, Wanted::default()).expect_err("it is no pack");
        assert!(why.starts_with("the pack ") && why.contains("it has no end"), "{why}");
        fs::remove_file(&path).expect("removed");
        assert!(OpenPack::at(&path, None).expect_err("it is gone").contains("No such file"));
        assert!(open_packs().is_empty());
    }
}

//! The VFS and its files, as SQLite calls them.
//!
//! A file of this VFS is a [`Shim`] with the parent's file behind it in the same allocation, which
//! is SQLite's. Main files, rollback journals and logs are ours; all others (temporary files,
//! statement journals) are opened by the parent in our place and never come back here.
//!
//! No panic leaves: an `extern "C"` function that panics ends the process instead, and nothing
//! here is meant to.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::num::NonZeroU32;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use pagewarden::formats::sqlite::checksum::page_verify::Mode;
use rusqlite::ffi;

use crate::allocated;
use crate::database::Database;
use crate::guard;
use crate::heal;
use crate::journal::Journal;
use crate::packed::{self, Packed, Wanted};
use crate::parent::Parent;
use crate::pragma::{self, Host};
use crate::wal::{Wal, WalFile};

/// The name to open databases by: `file:x.db?vfs=pagewarden`.
pub const NAME: &CStr = c"pagewarden";
/// The parameter of a database's name that gives its first setting.
const PARAMETER: &CStr = c"page_verify";
/// Writes that are atomic as a batch go without a journal; reads of parts of pages cannot be
/// verified.
const MASKED: c_int = 0x4000 | 0x8000;

/// The operation by which a main file of this VFS names itself, below others that pass on what they do not
/// know. Those under 100 are SQLite's.
pub const OWN_FILE: c_int = 0x5057_4657;

/// A file of this VFS, as SQLite allocates it.
#[repr(C)]
struct Shim {
    base: ffi::sqlite3_file,
    state: *mut State,
}

enum State {
    Main(Box<Database>, *mut *mut ffi::sqlite3),
    Journal(Journal),
    Wal(WalFile),
}

const _: () = assert!(size_of::<Shim>().is_multiple_of(8));

/// The VFS beneath.
struct Beneath(NonNull<ffi::sqlite3_vfs>);

// SAFETY: a VFS is used by any thread, and is never unregistered: the extension stays loaded.
unsafe impl Send for Beneath {}
// SAFETY: as above.
unsafe impl Sync for Beneath {}

static BENEATH: OnceLock<Beneath> = OnceLock::new();

fn beneath() -> *mut ffi::sqlite3_vfs {
    BENEATH.get().map_or(ptr::null_mut(), |vfs| vfs.0.as_ptr())
}

/// Registers the VFS over the default one; once, later calls do nothing.
pub fn register() -> Result<(), c_int> {
    // SAFETY: SQLite's own function; null asks for the default VFS.
    let parent = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    let parent = NonNull::new(parent).ok_or(ffi::SQLITE_ERROR)?;
    let mut is_new = false;
    BENEATH.get_or_init(|| {
        is_new = true;
        Beneath(parent)
    });
    if !is_new {
        return Ok(());
    }
    // SAFETY: registered by SQLite, so it is there and stays.
    let parent = unsafe { parent.as_ref() };
    let own_bytes = c_int::try_from(size_of::<Shim>()).unwrap_or(c_int::MAX);
    let packed_bytes = c_int::try_from(packed::FILE_BYTES).unwrap_or(c_int::MAX);
    let vfs = Box::new(ffi::sqlite3_vfs {
        iVersion: parent.iVersion.min(2),
        szOsFile: parent.szOsFile.max(packed_bytes).saturating_add(own_bytes),
        mxPathname: parent.mxPathname,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: parent.xCurrentTimeInt64.map(|_| current_time_int64 as _),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: the VFS is complete and is never freed.
    match unsafe { ffi::sqlite3_vfs_register(Box::into_raw(vfs), 0) } {
        ffi::SQLITE_OK => Ok(()),
        error => Err(error),
    }
}

/// Makes the VFS, which is registered, the one of databases that name none.
pub fn make_default() -> Result<(), c_int> {
    // SAFETY: SQLite's own functions; what it finds is registered, and stays.
    match unsafe { ffi::sqlite3_vfs_register(ffi::sqlite3_vfs_find(NAME.as_ptr()), 1) } {
        ffi::SQLITE_OK => Ok(()),
        error => Err(error),
    }
}

/// True if a database that names no VFS has this one.
fn is_default() -> bool {
    // SAFETY: SQLite's own functions; null asks for the default.
    unsafe { ptr::eq(ffi::sqlite3_vfs_find(ptr::null()), ffi::sqlite3_vfs_find(NAME.as_ptr())) }
}

/// Forwards a call to the VFS beneath.
macro_rules! forward {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*) $(-> $result:ty, $missing:expr)?) => {
        unsafe extern "C" fn $name(_: *mut ffi::sqlite3_vfs $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: the VFS beneath is registered and stays; the arguments are SQLite's own, for
            // the method of this name.
            match unsafe { beneath().as_ref() }.and_then(|vfs| vfs.$method) {
                // SAFETY: as above.
                Some(method) => unsafe { method(beneath() $(, $argument)*) },
                None => { $($missing as $result)? }
            }
        }
    };
}

type Symbol = Option<unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char)>;

forward!(delete, xDelete, (name: *const c_char, sync: c_int) -> c_int, ffi::SQLITE_IOERR_DELETE);
forward!(access, xAccess, (name: *const c_char, flags: c_int, result: *mut c_int) -> c_int, ffi::SQLITE_IOERR_ACCESS);
forward!(full_pathname_beneath, xFullPathname, (name: *const c_char, bytes: c_int, path: *mut c_char) -> c_int, ffi::SQLITE_CANTOPEN);
forward!(dl_open, xDlOpen, (name: *const c_char) -> *mut c_void, ptr::null_mut::<c_void>());
forward!(dl_error, xDlError, (bytes: c_int, message: *mut c_char));
forward!(dl_sym, xDlSym, (library: *mut c_void, name: *const c_char) -> Symbol, None::<unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char)>);
forward!(dl_close, xDlClose, (library: *mut c_void));
forward!(randomness, xRandomness, (bytes: c_int, buffer: *mut c_char) -> c_int, 0);
forward!(sleep, xSleep, (microseconds: c_int) -> c_int, 0);
forward!(current_time, xCurrentTime, (time: *mut f64) -> c_int, ffi::SQLITE_ERROR);
forward!(current_time_int64, xCurrentTimeInt64, (time: *mut ffi::sqlite3_int64) -> c_int, ffi::SQLITE_ERROR);
forward!(get_last_error, xGetLastError, (bytes: c_int, message: *mut c_char) -> c_int, 0);

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the VFS beneath is registered and stays.
    let Some(parent_open) = unsafe { beneath().as_ref() }.and_then(|vfs| vfs.xOpen) else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite gives a name that it made itself for these kinds of file, or null.
    let main = unsafe { main_of(name, flags) };
    let is_main = flags & ffi::SQLITE_OPEN_MAIN_DB != 0 && !name.is_null();
    if !is_main && main.is_none() {
        // SAFETY: the allocation is longer than the parent asks for; the arguments are SQLite's.
        return unsafe { parent_open(beneath(), name, file, flags, out_flags) };
    }

    // SAFETY: the name of a main file is SQLite's own, with its parameters behind it.
    let initial = if is_main { unsafe { initial_mode(name) } } else { Ok(Mode::Checksum) };
    let initial = match initial {
        Ok(initial) => initial,
        Err(why) => return packed::refuse(&why),
    };

    // SAFETY: SQLite allocated szOsFile bytes: a shim and the parent's file, which is aligned
    // since the shim's length is a multiple of 8.
    let below = unsafe { file.cast::<Shim>().add(1) }.cast::<ffi::sqlite3_file>();
    // SAFETY: `file` is ours to fill. SQLite calls xClose only where methods are set.
    unsafe { (*file).pMethods = ptr::null() };
    // SAFETY: a main file has a name.
    let is_inside = is_main && unsafe { is_inside_pack(name) };
    let result = if is_inside {
        ffi::SQLITE_OK
    } else {
        // SAFETY: as for the call above, with the parent's own part of the allocation.
        unsafe { parent_open(beneath(), name, below, flags, out_flags) }
    };
    if result != ffi::SQLITE_OK {
        // SAFETY: a parent that failed may still want to be closed.
        unsafe { close_failed(below) };
        return result;
    }
    // SAFETY: open from here to xClose.
    let mut parent = unsafe { Parent::new(below) };
    let mut packed_path = None;
    if is_inside || (main.is_none() && packed::is_pack(parent)) {
        if !is_inside {
            parent.close();
        }
        // SAFETY: the name is SQLite's own; `below` is free again and has room for a file of a pack.
        match unsafe { open_packed(name, below) } {
            Ok((file, path)) => (parent, packed_path) = (file, Some(path)),
            Err(why) => return packed::refuse(&why),
        }
        // SAFETY: SQLite's own place for the answer, or null.
        if let Some(out_flags) = unsafe { out_flags.as_mut() } {
            *out_flags = ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_MAIN_DB;
        }
    }
    let state = match main {
        // SAFETY: the main file is open.
        Some(main) => unsafe { beside(main, parent, flags) },
        None => {
            // SAFETY: the name is SQLite's own, with its parameters behind it.
            let name_words = || unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
            let path = packed_path.unwrap_or_else(name_words);
            let mut database = Database::new(parent, path, initial, random_number());
            // SAFETY: as above.
            database.is_chosen = unsafe { is_chosen(name) };
            State::Main(Box::new(database), ptr::null_mut())
        }
    };
    let has_shm = parent.has_shared_memory();
    // SAFETY: the memory is ours; it is freed in `close`.
    unsafe {
        file.cast::<Shim>().write(Shim {
            base: ffi::sqlite3_file { pMethods: if has_shm { &METHODS } else { &METHODS_1 } },
            state: Box::into_raw(Box::new(state)),
        });
    }
    ffi::SQLITE_OK
}

/// # Safety
///
/// `file` was given to the parent to be opened.
unsafe fn close_failed(file: *mut ffi::sqlite3_file) {
    // SAFETY: as the caller says.
    unsafe {
        if !(*file).pMethods.is_null() {
            Parent::new(file).close();
        }
    }
}

/// A log or a journal of an open main file.
///
/// # Safety
///
/// The main file is open, and `parent` is. SQLite closes the log and the journal before the main file, and
/// uses them from one thread at a time.
unsafe fn beside(main: *mut ffi::sqlite3_file, parent: Parent, flags: c_int) -> State {
    if flags & ffi::SQLITE_OPEN_WAL == 0 {
        // SAFETY: as the caller says.
        return State::Journal(unsafe { Journal::new(parent, main) });
    }
    // SAFETY: as the caller says.
    if let Some(database) = unsafe { database_of(main) } {
        database.wal = Some(Wal::new(parent));
    }
    // SAFETY: as the caller says.
    State::Wal(unsafe { WalFile::new(parent, main) })
}

/// True if the path leads into a pack, so that the VFS beneath would find nothing.
///
/// # Safety
///
/// `name` is a string.
unsafe fn is_inside_pack(name: *const c_char) -> bool {
    // SAFETY: by the caller.
    packed::split(unsafe { CStr::from_ptr(name) }.to_bytes()).is_some()
}

/// A path into a pack is that of the pack, and the rest as it stands: the VFS beneath makes none of a
/// file that has a file for a folder.
unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    path: *mut c_char,
) -> c_int {
    // SAFETY: SQLite gives a string.
    let name_bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some((pack, file)) = packed::split(name_bytes) else {
        // SAFETY: SQLite's own arguments.
        return unsafe { full_pathname_beneath(vfs, name, bytes, path) };
    };
    let Ok(pack) = CString::new(pack) else { return ffi::SQLITE_CANTOPEN };
    let needed = c_int::try_from(file.len().saturating_add(2)).unwrap_or(c_int::MAX);
    let Some(left) = bytes.checked_sub(needed).filter(|left| *left > 0) else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: the place is longer than is said, and stays a string of that length.
    let result = unsafe { full_pathname_beneath(vfs, pack.as_ptr(), left, path) };
    if result == ffi::SQLITE_OK {
        // SAFETY: of the `bytes` bytes, the string before it took no more than `left`.
        unsafe {
            let end = path.add(CStr::from_ptr(path).to_bytes().len()).cast::<u8>();
            end.write(b'/');
            ptr::copy_nonoverlapping(file.as_ptr(), end.add(1), file.len());
            end.add(file.len()).add(1).write(0);
        }
    }
    result
}

/// Opens a database inside a pack in the place of the parent's file. Returns what it is called, too.
///
/// # Safety
///
/// `name` is the one that SQLite gave to xOpen for a main file, `below` the parent's part of the
/// allocation, of which nothing is open.
unsafe fn open_packed(
    name: *const c_char,
    below: *mut ffi::sqlite3_file,
) -> Result<(Parent, String), String> {
    // SAFETY: by the caller.
    let (path, wanted) = unsafe { (CStr::from_ptr(name), Wanted::of(name)) };
    let (path, file) = packed::path_of(path);
    let packed = Packed::open(path, wanted.with_file(file))?;
    let path = packed.path.clone();
    // SAFETY: `register` asked for as much memory behind the shim.
    Ok((unsafe { packed.become_file(below) }, path))
}

/// The main file that a journal or log belongs to, if that file is ours.
///
/// # Safety
///
/// `name` and `flags` are those that SQLite gave to xOpen.
unsafe fn main_of(name: *const c_char, flags: c_int) -> Option<*mut ffi::sqlite3_file> {
    if name.is_null() || flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL) == 0 {
        return None;
    }
    // SAFETY: for these two kinds of file, the name is one that SQLite made.
    let main = unsafe { ffi::sqlite3_database_file_object(name) };
    // SAFETY: the main file is open.
    unsafe { beneath_others(main) }
}

/// The main file of this VFS that `file` is, or that lies beneath it where another VFS is laid over this
/// one.
///
/// # Safety
///
/// `file` is null, or an open file that is used by no other thread meanwhile.
unsafe fn beneath_others(file: *mut ffi::sqlite3_file) -> Option<*mut ffi::sqlite3_file> {
    // SAFETY: by the caller.
    if unsafe { database_of(file) }.is_some() {
        return Some(file);
    }
    let mut own: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: by the caller; a file of this VFS writes one pointer, and others do not know the operation.
    unsafe { Parent::new(file).file_control(OWN_FILE, (&raw mut own).cast()) };
    // SAFETY: null, or the answer of a file of this VFS.
    unsafe { database_of(own) }.map(|_| own)
}

/// The state of a main file, if it is one of this VFS.
///
/// # Safety
///
/// As for [`state_of`].
pub unsafe fn database_of<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut Database> {
    // SAFETY: by the caller.
    match unsafe { state_of(file) }? {
        State::Main(database, _) => Some(database),
        State::Journal(_) | State::Wal(_) => None,
    }
}

/// The state of a file, if the file is ours.
///
/// # Safety
///
/// `file` is null, or was opened by some VFS and is used by no other thread meanwhile.
unsafe fn state_of<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut State> {
    // SAFETY: by the caller.
    let methods = unsafe { file.as_ref() }?.pMethods;
    if !ptr::eq(methods, &raw const METHODS) && !ptr::eq(methods, &raw const METHODS_1) {
        return None;
    }
    // SAFETY: with our methods, it was filled by `open`.
    unsafe { (*file.cast::<Shim>()).state.as_mut() }
}

/// Gives a new main database of `db` room for markers, where it is a file of this VFS without
/// a page.
pub fn reserve_in_new(db: *mut ffi::sqlite3) {
    let file = pragma::file_of(db, c"main");
    // SAFETY: SQLite's answer: null, or the connection's open file. The reference ends here:
    // the next call leads back into the file.
    let is_new = matches!(
        unsafe { state_of(file) },
        Some(State::Main(database, _)) if database.file.size() == Ok(0)
    );
    if is_new {
        pragma::reserve_in(db, c"main");
    }
}

/// # Safety
///
/// `name` is the one that SQLite gave to xOpen for a main file.
unsafe fn initial_mode(name: *const c_char) -> Result<Mode, String> {
    // SAFETY: by the caller.
    let Some(word) = (unsafe { parameter(name, PARAMETER) }) else { return Ok(Mode::Checksum) };
    // SAFETY: by the caller.
    let path = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let word = word.to_string_lossy();
    Mode::of_name(&word).ok_or_else(|| format!("{path}: {}", pragma::no_mode(&word)))
}

/// True if the database was to be opened by this VFS, and does not have it for being the default.
///
/// # Safety
///
/// As for [`initial_mode`].
unsafe fn is_chosen(name: *const c_char) -> bool {
    // SAFETY: by the caller.
    !is_default() || unsafe { parameter(name, c"vfs").or(parameter(name, PARAMETER)) }.is_some()
}

/// What a database's name says of `parameter`.
///
/// # Safety
///
/// As for [`initial_mode`]; the answer lives as long as the name.
unsafe fn parameter<'a>(name: *const c_char, parameter: &CStr) -> Option<&'a CStr> {
    // SAFETY: by the caller; the answer is null or a string behind the name.
    let word = unsafe { ffi::sqlite3_uri_parameter(name, parameter.as_ptr()).as_ref() }?;
    // SAFETY: as above.
    Some(unsafe { CStr::from_ptr(word) })
}

fn random_number() -> NonZeroU32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: the buffer is as long as is said.
    unsafe { ffi::sqlite3_randomness(4, bytes.as_mut_ptr().cast()) };
    NonZeroU32::new(u32::from_le_bytes(bytes)).unwrap_or(NonZeroU32::MIN)
}

/// Methods with shared memory, and without where the parent has none. There is no xFetch: memory
/// maps are refused.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods { iVersion: 2, ..METHODS_1 };
static METHODS_1: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// The state behind a file that SQLite calls one of our methods with.
macro_rules! state {
    ($file:expr, $($missing:expr)?) => {
        // SAFETY: SQLite calls methods of open files only, for one file from one thread at a time.
        match unsafe { state_of($file) } {
            Some(state) => state,
            None => return $($missing)?,
        }
    };
}

impl State {
    fn parent(&self) -> Parent {
        match self {
            Self::Main(database, _) => database.file,
            Self::Journal(journal) => journal.file,
            Self::Wal(wal) => wal.file,
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let result = match state!(file, ffi::SQLITE_OK) {
        State::Wal(wal) => wal.close(),
        state => state.parent().close(),
    };
    // SAFETY: made by `open` from a box, and not used again: the methods are taken away.
    unsafe {
        drop(Box::from_raw((*file.cast::<Shim>()).state));
        (*file).pMethods = ptr::null();
    }
    result
}

/// A buffer of SQLite's.
///
/// # Safety
///
/// `buffer` points to `bytes` bytes that no other code uses while the result lives.
unsafe fn buffer_of<'a>(buffer: *mut c_void, bytes: c_int) -> &'a mut [u8] {
    match usize::try_from(bytes) {
        Ok(bytes) if bytes > 0 && !buffer.is_null() => {
            // SAFETY: by the caller.
            unsafe { slice::from_raw_parts_mut(buffer.cast(), bytes) }
        }
        _ => &mut [],
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer of that length, to be filled.
    let buffer = unsafe { buffer_of(buffer, bytes) };
    match state!(file, ffi::SQLITE_IOERR_READ) {
        State::Main(database, _) => database.read(buffer, offset),
        State::Journal(journal) => journal.read(buffer, offset),
        State::Wal(wal) => wal.read(buffer, offset),
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    buffer: *const c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's buffer of that length. Whole pages come from its page cache or its scratch
    // page, both of which it may write and shares with no other thread during the call; the
    // official checksum VFS writes into them in the same way. Anything else is only read.
    let buffer = unsafe { buffer_of(buffer.cast_mut(), bytes) };
    match state!(file, ffi::SQLITE_IOERR_WRITE) {
        State::Main(database, _) => database.write(buffer, offset),
        State::Journal(journal) => journal.write(buffer, offset),
        State::Wal(wal) => wal.write(buffer, offset),
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: ffi::sqlite3_int64) -> c_int {
    match state!(file, ffi::SQLITE_IOERR_TRUNCATE) {
        State::Main(database, _) => database.truncate(bytes),
        State::Journal(journal) => journal.file.truncate(bytes),
        State::Wal(wal) => wal.truncate(bytes),
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    state!(file, ffi::SQLITE_IOERR_FSYNC).parent().sync(flags)
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    match state!(file, ffi::SQLITE_IOERR_FSTAT).parent().size() {
        Ok(bytes) => {
            // SAFETY: SQLite's own place for the answer.
            unsafe { *size = bytes };
            ffi::SQLITE_OK
        }
        Err(error) => error,
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let state = state!(file, ffi::SQLITE_IOERR_LOCK);
    let result = state.parent().lock(level);
    let State::Main(database, db) = state else { return result };
    if result == ffi::SQLITE_OK {
        database.locked(level);
        if level == ffi::SQLITE_LOCK_SHARED && database.is_reserve_due() {
            // SAFETY: SQLite keeps the pointer that it gave us for as long as the file is open.
            let db = unsafe { db.as_ref() }.copied().filter(|db| !db.is_null());
            if let Some(db) = db {
                reserve_in_attached(db, file);
            }
        }
    }
    result
}

/// Gives a database that has no page yet room for markers. SQLite takes this lock when it attaches a
/// database, to read its schema, before anything is written. Calls SQLite, which calls into the file
/// again: no reference to the state is held.
fn reserve_in_attached(db: *mut ffi::sqlite3, file: *mut ffi::sqlite3_file) {
    if let Some(schema) = pragma::schema(Host { db, file }) {
        pragma::reserve_in(db, &schema);
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let state = state!(file, ffi::SQLITE_IOERR_UNLOCK);
    if let State::Main(database, _) = state {
        database.unlocking(level);
    }
    state.parent().unlock(level)
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    result: *mut c_int,
) -> c_int {
    let parent = state!(file, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK).parent();
    // SAFETY: SQLite's own place for the answer.
    unsafe { parent.check_reserved_lock(result) }
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    if op == OWN_FILE {
        // SAFETY: this operation is our own: it brings a place for a pointer.
        unsafe { argument.cast::<*mut ffi::sqlite3_file>().write(file) };
        return ffi::SQLITE_OK;
    }
    if op == ffi::SQLITE_FCNTL_PRAGMA {
        // SAFETY: this operation brings three words: a place for the answer, the name, the
        // argument or null.
        let words = unsafe { slice::from_raw_parts_mut(argument.cast::<*mut c_char>(), 3) };
        // SAFETY: as above.
        if let Some(result) = unsafe { answer_pragma(file, words) } {
            return result;
        }
    }
    let state = state!(file, ffi::SQLITE_NOTFOUND);
    let parent = state.parent();
    let State::Main(database, db) = state else {
        // SAFETY: SQLite's own argument for this operation.
        return unsafe { parent.file_control(op, argument) };
    };
    match op {
        ffi::SQLITE_FCNTL_PDB => *db = argument.cast(),
        ffi::SQLITE_FCNTL_SYNC => {
            let result = database.before_sync();
            if result != ffi::SQLITE_OK {
                return result;
            }
        }
        ffi::SQLITE_FCNTL_COMMIT_PHASETWO => database.committed(),
        ffi::SQLITE_FCNTL_CKPT_START => database.checkpoint_starts(),
        ffi::SQLITE_FCNTL_CKPT_DONE => database.checkpoint_ends(),
        // Space allocated ahead would be pages of zeroes.
        ffi::SQLITE_FCNTL_CHUNK_SIZE | ffi::SQLITE_FCNTL_SIZE_HINT => return ffi::SQLITE_OK,
        _ => {}
    }
    // SAFETY: SQLite's own argument for this operation.
    let result = unsafe { parent.file_control(op, argument) };
    if op == ffi::SQLITE_FCNTL_VFSNAME && result == ffi::SQLITE_OK {
        // SAFETY: this operation brings a place for a string that SQLite frees.
        unsafe {
            let name = argument.cast::<*mut c_char>();
            let below = (*name).as_ref().map(|below| CStr::from_ptr(below).to_string_lossy());
            let own = format!("{}/{}", NAME.to_string_lossy(), below.as_deref().unwrap_or(""));
            ffi::sqlite3_free((*name).cast());
            *name = allocated(&own);
        }
    }
    result
}

/// Answers a pragma that is one of this VFS. Where SQLite is called, it calls into the file again,
/// so no reference to the state is held then.
///
/// # Safety
///
/// `file` is a file of this VFS; `words` are those of a pragma: a place for the answer, the name,
/// and the argument or null.
unsafe fn answer_pragma(file: *mut ffi::sqlite3_file, words: &mut [*mut c_char]) -> Option<c_int> {
    let [answer, name, argument] = words else { return None };
    // SAFETY: by the caller, both are strings or null.
    let text = |word: *mut c_char| unsafe {
        word.as_ref().map(|word| CStr::from_ptr(word).to_string_lossy().into_owned())
    };
    let (name, argument) = (text(*name)?, text(*argument));
    // SAFETY: by the caller. The connection behind the pointer is the one that has it open.
    let (db, is_new) = match unsafe { state_of(file) }? {
        State::Main(database, db) => {
            // SAFETY: SQLite keeps the pointer that it gave us for as long as the file is open.
            let db = unsafe { db.as_ref() }.copied().filter(|db| !db.is_null());
            // Asked only where it matters: it is a call to the system for each pragma.
            (db, pragma::is_setting(&name) && database.file.size() == Ok(0))
        }
        State::Journal(_) | State::Wal(_) => return None,
    };
    let host = db.map(|db| Host { db, file });
    let own = if guard::is_asked(&name) {
        Some(guard::answer(host?, argument.as_deref()))
    } else if heal::is_asked(&name) {
        Some(heal::answer(host?, argument.as_deref()))
    } else {
        None
    };
    if let Some(own) = own {
        let (result, words) = match own {
            Ok(words) => (ffi::SQLITE_OK, words),
            Err(words) => (ffi::SQLITE_ERROR, words),
        };
        *answer = allocated(&words);
        return Some(result);
    }
    let is_change = argument.is_some();
    let schema = host
        .filter(|_| pragma::is_setting(&name) && (is_change || is_new))
        .and_then(|host| Some((host.db, pragma::schema(host)?)));
    if let Some((db, schema)) = schema.as_ref().filter(|_| is_change) {
        pragma::read_something(*db, schema);
        if pragma::is_read_only(*db, schema) {
            *answer = allocated("the setting cannot be written: the database is read-only");
            return Some(ffi::SQLITE_ERROR);
        }
    }
    // SAFETY: by the caller.
    let State::Main(database, _) = unsafe { state_of(file) }? else { return None };
    let row = pragma::answer(database, host, &name, argument.as_deref())?;
    let (result, words) = match row {
        Ok(row) if row.needs_reserve => match schema {
            Some((db, schema)) if pragma::reserve_in(db, &schema) => (ffi::SQLITE_OK, row.words),
            _ if !is_change => (ffi::SQLITE_OK, Mode::None.name().to_owned()),
            _ => (ffi::SQLITE_ERROR, "the connection leaves no room for markers".to_owned()),
        },
        Ok(row) => (ffi::SQLITE_OK, row.words),
        Err(words) => (ffi::SQLITE_ERROR, words),
    };
    *answer = allocated(&words);
    Some(result)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    state!(file, 4096).parent().sector_size()
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    state!(file, 0).parent().device_characteristics() & !MASKED
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    address: *mut *mut c_void,
) -> c_int {
    let state = state!(file, ffi::SQLITE_IOERR_SHMMAP);
    if let State::Main(database, _) = state {
        database.has_shm = true;
    }
    // SAFETY: SQLite's own place for the answer.
    unsafe { state.parent().shm_map(region, bytes, extend, address) }
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    state!(file, ffi::SQLITE_IOERR_SHMLOCK).parent().shm_lock(offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    state!(file,).parent().shm_barrier();
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    let state = state!(file, ffi::SQLITE_IOERR_SHMMAP);
    if let State::Main(database, _) = state {
        database.has_shm = false;
    }
    state.parent().shm_unmap(delete)
}

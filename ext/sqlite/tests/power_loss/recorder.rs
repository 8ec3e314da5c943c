//! A VFS in memory that records what is done to its files. One disk for each thread; connections of
//! one thread only, one after another, so that no lock is ever in the way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::slice;

use rusqlite::ffi;

use crate::disk::{Files, Op, replay};

pub const NAME: &CStr = c"recorder";
/// Of files without a name.
const TEMPORARY: char = '~';

type Region = Box<[u64; 4096]>;

#[derive(Default)]
struct Memory {
    files: Files,
    ops: Vec<Op>,
    shm: BTreeMap<String, Vec<Region>>,
    temporary_count: usize,
    fault: Option<Fault>,
}

/// A call that fails.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// How many calls go well before it.
    pub calls_before: usize,
    /// All that come after it fail as well.
    pub is_lasting: bool,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// Puts other files in place and forgets what was recorded.
pub fn set_files(files: Files) {
    MEMORY.with_borrow_mut(|memory| *memory = Memory { files, ..Memory::default() });
}

pub fn files() -> Files {
    MEMORY.with_borrow(|memory| memory.files.clone())
}

/// From here on a call that reads from files or writes to them fails, or none does.
pub fn set_fault(fault: Option<Fault>) {
    MEMORY.with_borrow_mut(|memory| memory.fault = fault);
}

/// True if a fault was set and has not come yet.
pub fn has_fault_ahead() -> bool {
    MEMORY.with_borrow(|memory| memory.fault.is_some_and(|fault| fault.calls_before > 0))
}

/// Counts a call; true if it is to fail.
fn fails() -> bool {
    MEMORY.with_borrow_mut(|memory| {
        let Some(fault) = &mut memory.fault else { return false };
        if fault.calls_before > 0 {
            fault.calls_before -= 1;
            return false;
        }
        if !fault.is_lasting {
            memory.fault = None;
        }
        true
    })
}

/// What was done since the files were put in place.
pub fn ops() -> Vec<Op> {
    MEMORY.with_borrow(|memory| memory.ops.clone())
}

/// Does to the disk what `op` does, and records it.
pub fn record(op: Op) {
    MEMORY.with_borrow_mut(|memory| {
        match &op {
            Op::Create { name } => {
                memory.files.insert(name.clone(), Vec::new());
            }
            Op::Delete { name, .. } => {
                memory.files.remove(name);
            }
            Op::Write { name, .. } | Op::Truncate { name, .. } => {
                replay(memory.files.get_mut(name).expect("an open file"), &op);
                if name.starts_with(TEMPORARY) {
                    return;
                }
            }
            Op::Sync { .. } | Op::Committed(_) => {}
        }
        memory.ops.push(op);
    });
}

#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    name: *mut String,
}

/// Registers the VFS as the default one.
pub fn register() {
    let vfs = Box::new(ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<File>()).expect("small"),
        mxPathname: 100,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: complete, and never freed.
    let result = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(vfs), 1) };
    assert_eq!(result, ffi::SQLITE_OK);
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
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
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// SQLite's name of a file.
fn text(name: *const c_char) -> String {
    // SAFETY: a string of SQLite's.
    unsafe { CStr::from_ptr(name) }.to_str().expect("our own name").to_owned()
}

fn name_of(file: *mut ffi::sqlite3_file) -> String {
    // SAFETY: opened by `open`, which sets the name, and not closed yet.
    unsafe { (*(*file.cast::<File>()).name).clone() }
}

fn place(offset: ffi::sqlite3_int64) -> usize {
    usize::try_from(offset).expect("no negative offset")
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let name = if name.is_null() {
        MEMORY.with_borrow_mut(|memory| {
            memory.temporary_count += 1;
            format!("{TEMPORARY}{}", memory.temporary_count)
        })
    } else {
        text(name)
    };
    let is_there = MEMORY.with_borrow(|memory| memory.files.contains_key(&name));
    if !is_there {
        if flags & ffi::SQLITE_OPEN_CREATE == 0 {
            // SAFETY: SQLite's own file, to be filled.
            unsafe { (*file).pMethods = ptr::null() };
            return ffi::SQLITE_CANTOPEN;
        }
        if name.starts_with(TEMPORARY) {
            MEMORY.with_borrow_mut(|memory| memory.files.insert(name.clone(), Vec::new()));
        } else {
            record(Op::Create { name: name.clone() });
        }
    }
    let name = Box::into_raw(Box::new(name));
    // SAFETY: SQLite gives as many bytes as were asked for, and a place for the flags or null.
    unsafe {
        file.cast::<File>().write(File { base: ffi::sqlite3_file { pMethods: &METHODS }, name });
        if let Some(out_flags) = out_flags.as_mut() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let name = text(name);
    if !MEMORY.with_borrow(|memory| memory.files.contains_key(&name)) {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    }
    record(Op::Delete { name, is_synced: sync != 0 });
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    let name = text(name);
    // As the unix VFS has it: an empty file does not exist.
    let is_there = MEMORY.with_borrow(|memory| {
        memory
            .files
            .get(&name)
            .is_some_and(|file| flags != ffi::SQLITE_ACCESS_EXISTS || !file.is_empty())
    });
    // SAFETY: SQLite's place for the answer.
    unsafe { *result = c_int::from(is_there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    path: *mut c_char,
) -> c_int {
    // SAFETY: SQLite's string, and its buffer of that length.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes_with_nul();
        assert!(name.len() <= usize::try_from(bytes).expect("a length"));
        ptr::copy_nonoverlapping(name.as_ptr(), path.cast(), name.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(
    _: *mut ffi::sqlite3_vfs,
    bytes: c_int,
    buffer: *mut c_char,
) -> c_int {
    let count = usize::try_from(bytes).expect("a length");
    // SAFETY: SQLite's buffer of that length.
    unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), count) }
        .iter_mut()
        .zip(1..)
        .for_each(|(byte, value)| *byte = value);
    bytes
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, time: *mut f64) -> c_int {
    // SAFETY: SQLite's place for the answer.
    unsafe { *time = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let name = name_of(file);
    if name.starts_with(TEMPORARY) {
        MEMORY.with_borrow_mut(|memory| memory.files.remove(&name));
    }
    // SAFETY: made by `open`, and not used again.
    drop(unsafe { Box::from_raw((*file.cast::<File>()).name) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_READ;
    }
    let count = usize::try_from(bytes).expect("a length");
    // SAFETY: SQLite's buffer of that length.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), count) };
    MEMORY.with_borrow(|memory| {
        let content = memory.files[&name_of(file)].get(place(offset)..).unwrap_or(&[]);
        let there = content.len().min(count);
        buffer[..there].copy_from_slice(&content[..there]);
        buffer[there..].fill(0);
        if there < count { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK }
    })
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    buffer: *const c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_WRITE;
    }
    let count = usize::try_from(bytes).expect("a length");
    // SAFETY: SQLite's buffer of that length.
    let bytes = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), count) }.to_vec();
    record(Op::Write { name: name_of(file), at: place(offset), bytes });
    ffi::SQLITE_OK
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: ffi::sqlite3_int64) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    record(Op::Truncate { name: name_of(file), bytes: place(bytes) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    record(Op::Sync { name: name_of(file) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    if fails() {
        return ffi::SQLITE_IOERR_FSTAT;
    }
    let bytes = MEMORY.with_borrow(|memory| memory.files[&name_of(file)].len());
    // SAFETY: SQLite's place for the answer.
    unsafe { *size = i64::try_from(bytes).expect("small") };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: SQLite's place for the answer.
    unsafe { *result = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// As the unix VFS says by default.
unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    _: c_int,
    _: c_int,
    address: *mut *mut c_void,
) -> c_int {
    let region = usize::try_from(region).expect("a number");
    MEMORY.with_borrow_mut(|memory| {
        let regions = memory.shm.entry(name_of(file)).or_default();
        while regions.len() <= region {
            regions.push(Box::new([0; 4096]));
        }
        // SAFETY: SQLite's place for the answer; a box does not move.
        unsafe { *address = regions[region].as_mut_ptr().cast() };
    });
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(_: *mut ffi::sqlite3_file, _: c_int, _: c_int, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    if delete != 0 {
        MEMORY.with_borrow_mut(|memory| memory.shm.remove(&name_of(file)));
    }
    ffi::SQLITE_OK
}

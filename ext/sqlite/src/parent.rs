//! The file of the VFS beneath, behind plain calls.
//!
//! Every method of a `Parent` forwards to the method of that name; all `unsafe` that this takes is
//! here. A return value is one of SQLite's result codes.

use std::ffi::{c_int, c_void};

use rusqlite::ffi;

/// An open file of the VFS beneath.
#[derive(Debug, Clone, Copy)]
pub struct Parent(*mut ffi::sqlite3_file);

/// Calls a method of the parent, or gives `$missing` where it has none.
macro_rules! call {
    ($parent:expr, $method:ident, $missing:expr $(, $argument:expr)*) => {{
        // SAFETY: `Parent::new` vouches that the file is open, so its method table is set and
        // stays for as long as it is open; SQLite calls for one file from one thread at a time.
        match unsafe { $parent.0.as_ref().and_then(|file| file.pMethods.as_ref()) }
            .and_then(|methods| methods.$method)
        {
            // SAFETY: the method belongs to this file; pointers come from slices and references
            // that outlive the call.
            Some(method) => unsafe { method($parent.0 $(, $argument)*) },
            None => $missing,
        }
    }};
}

impl Parent {
    /// # Safety
    ///
    /// `file` is a file that was opened by its VFS, and is used until it is closed, no longer.
    pub unsafe fn new(file: *mut ffi::sqlite3_file) -> Self {
        Self(file)
    }

    /// True if it has shared memory, without which there is a write-ahead log for one process only.
    pub fn has_shared_memory(self) -> bool {
        // SAFETY: as in `call`.
        unsafe { self.0.as_ref().and_then(|file| file.pMethods.as_ref()) }
            .is_some_and(|methods| methods.iVersion >= 2 && methods.xShmMap.is_some())
    }

    pub fn close(self) -> c_int {
        call!(self, xClose, ffi::SQLITE_OK)
    }

    pub fn read(self, buffer: &mut [u8], offset: i64) -> c_int {
        let Ok(bytes) = c_int::try_from(buffer.len()) else { return ffi::SQLITE_IOERR_READ };
        call!(self, xRead, ffi::SQLITE_IOERR_READ, buffer.as_mut_ptr().cast(), bytes, offset)
    }

    /// Reads what there is; the rest of the buffer is zero.
    pub fn read_or_zero(self, buffer: &mut [u8], offset: i64) -> c_int {
        match self.read(buffer, offset) {
            ffi::SQLITE_IOERR_SHORT_READ => ffi::SQLITE_OK,
            other => other,
        }
    }

    pub fn write(self, buffer: &[u8], offset: i64) -> c_int {
        let Ok(bytes) = c_int::try_from(buffer.len()) else { return ffi::SQLITE_IOERR_WRITE };
        call!(self, xWrite, ffi::SQLITE_IOERR_WRITE, buffer.as_ptr().cast(), bytes, offset)
    }

    pub fn truncate(self, bytes: i64) -> c_int {
        call!(self, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, bytes)
    }

    pub fn sync(self, flags: c_int) -> c_int {
        call!(self, xSync, ffi::SQLITE_IOERR_FSYNC, flags)
    }

    /// The length of the file, or the error.
    pub fn size(self) -> Result<i64, c_int> {
        let mut bytes = 0;
        match call!(self, xFileSize, ffi::SQLITE_IOERR_FSTAT, &raw mut bytes) {
            ffi::SQLITE_OK => Ok(bytes),
            error => Err(error),
        }
    }

    pub fn lock(self, level: c_int) -> c_int {
        call!(self, xLock, ffi::SQLITE_IOERR_LOCK, level)
    }

    pub fn unlock(self, level: c_int) -> c_int {
        call!(self, xUnlock, ffi::SQLITE_IOERR_UNLOCK, level)
    }

    /// # Safety
    ///
    /// `result` may be written to.
    pub unsafe fn check_reserved_lock(self, result: *mut c_int) -> c_int {
        call!(self, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, result)
    }

    /// # Safety
    ///
    /// `argument` is what the operation `op` asks for.
    pub unsafe fn file_control(self, op: c_int, argument: *mut c_void) -> c_int {
        call!(self, xFileControl, ffi::SQLITE_NOTFOUND, op, argument)
    }

    pub fn sector_size(self) -> c_int {
        call!(self, xSectorSize, 4096)
    }

    pub fn device_characteristics(self) -> c_int {
        call!(self, xDeviceCharacteristics, 0)
    }

    /// # Safety
    ///
    /// `address` may be written to.
    pub unsafe fn shm_map(
        self,
        region: c_int,
        bytes: c_int,
        extend: c_int,
        address: *mut *mut c_void,
    ) -> c_int {
        call!(self, xShmMap, ffi::SQLITE_IOERR_SHMMAP, region, bytes, extend, address)
    }

    pub fn shm_lock(self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        call!(self, xShmLock, ffi::SQLITE_IOERR_SHMLOCK, offset, count, flags)
    }

    pub fn shm_barrier(self) {
        call!(self, xShmBarrier, ());
    }

    pub fn shm_unmap(self, delete: c_int) -> c_int {
        call!(self, xShmUnmap, ffi::SQLITE_OK, delete)
    }
}

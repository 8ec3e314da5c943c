//! The rollback journal: stamps the page images that go in, and tells the main file which ones
//! come out.
//!
//! An image is written and read as its page number (4 bytes, big-endian), the page, and 4 bytes of
//! SQLite's own sum, which covers none of the last 24 bytes, and not the versions of page 1.

use std::ffi::c_int;

use rusqlite::ffi;

use crate::database::Database;
use crate::first::FirstPage;
use crate::parent::Parent;
use crate::vfs;

/// The open rollback journal of a database.
#[derive(Debug)]
pub struct Journal {
    pub file: Parent,
    /// The main file, which SQLite closes after its journal.
    main: *mut ffi::sqlite3_file,
    /// A page number that was written, and where the page must follow.
    written: Option<(u32, i64)>,
    /// The same of one that was read.
    read: Option<(u32, i64)>,
    /// Where the sum behind an image lies: four bytes that are no page number.
    sum_at: i64,
}

impl Journal {
    /// # Safety
    ///
    /// `main` is an open main file of this VFS, which is not closed before this journal, and is
    /// used by no other thread at the same time.
    pub unsafe fn new(file: Parent, main: *mut ffi::sqlite3_file) -> Self {
        Self { file, main, written: None, read: None, sum_at: -1 }
    }

    fn main(&mut self) -> Option<&mut Database> {
        // SAFETY: by `new`; SQLite calls into one connection's files one after another, and no
        // reference is kept between calls.
        unsafe { vfs::database_of(self.main) }
    }

    pub fn read(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        let result = self.file.read(buffer, offset);
        if result != ffi::SQLITE_OK {
            return result;
        }
        if let Some(number) = number(buffer) {
            self.read = Some((number, offset.saturating_add(4)));
        } else if let Some((number, at)) = self.read.take()
            && at == offset
            && let Some(main) = self.main()
        {
            main.see_playback(number, buffer);
        }
        result
    }

    pub fn write(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        if let Some(number) = number(buffer) {
            self.written = (offset != self.sum_at).then_some((number, offset.saturating_add(4)));
        } else if let Some((number, at)) = self.written.take()
            && at == offset
        {
            if let Some(main) = self.main()
                && let Err(error) = main.stamp_image(number, buffer)
            {
                return error;
            }
            let bytes = i64::try_from(buffer.len()).unwrap_or(i64::MAX);
            self.sum_at = offset.saturating_add(bytes);
            let result = self.file.write(buffer, offset);
            if number == 1 {
                // The buffer is SQLite's, which does not know the guard.
                FirstPage::show(buffer, false);
            }
            return result;
        }
        self.file.write(buffer, offset)
    }
}

/// Four bytes may be a page number.
fn number(buffer: &[u8]) -> Option<u32> {
    buffer.try_into().ok().map(u32::from_be_bytes)
}

//! Sending written bytes on their way to the device, without waiting.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

/// So much is sent at once by [`InOrder`].
const STRETCH_BYTES: u64 = 4 << 20;

/// Asks the system to begin writing this part of `file` to its device, so that
/// a later `fsync` has less to wait for. A wish: without it everything works the
/// same.
#[cfg(target_os = "linux")]
pub fn begin(file: &File, range: &Range<u64>) {
    use std::os::fd::AsRawFd as _;

    let (Ok(offset), Ok(length)) =
        (i64::try_from(range.start), i64::try_from(range.end.saturating_sub(range.start)))
    else {
        return;
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the
    // call touches no memory of this process.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Asks for nothing.
#[cfg(not(target_os = "linux"))]
pub fn begin(_: &File, _: &Range<u64>) {}

/// A new file that is written from its begin to its end, and sent on its way meanwhile.
#[derive(Debug)]
pub struct InOrder {
    file: File,
    written: u64,
    sent: u64,
}

impl InOrder {
    /// For a file that is empty.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file, written: 0, sent: 0 }
    }
}

impl Write for InOrder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written = self.written.saturating_add(count as u64);
        if self.written.saturating_sub(self.sent) >= STRETCH_BYTES {
            begin(&self.file, &(self.sent..self.written));
            self.sent = self.written;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_was_written_stays_whatever_the_range() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        for range in [0..10_000, 4096..8192, 9_000..1 << 40, 0..0, u64::MAX..u64::MAX] {
            begin(&file, &range);
        }
        assert_eq!(file.metadata().unwrap().len(), 10_000);
    }

    #[test]
    fn what_is_sent_in_order_is_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..9_u32 << 20).map(|at| (at >> 8).to_le_bytes()[0]).collect();
        let mut out = InOrder::new(File::create(&path).unwrap());
        for part in bytes.chunks(700_000) {
            out.write_all(part).unwrap();
        }
        assert!(out.sent > 8 << 20 && out.sent <= out.written);
        out.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}

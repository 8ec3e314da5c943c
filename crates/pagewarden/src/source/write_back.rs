//! Sending written bytes on their way to the device, without waiting.

use std::fs::File;
use std::ops::Range;

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
    // call touches no memory of ours.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Asks for nothing.
#[cfg(not(target_os = "linux"))]
pub fn begin(_: &File, _: &Range<u64>) {}

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
}

//! What of a file the page cache does not hold, read and written past it.
//!
//! A page that is in the page cache is changed there: the program that uses the database
//! next finds it where it was. The rest goes from the device to our memory and back,
//! so that it drives nothing else out of the cache. That also takes a tenth of the
//! processor time, for the system makes no room and no copies; docs/benchmarks-protect.md
//! has the figures.
//!
//! The cache is asked window by window, when the work gets there. What changes in it
//! later costs time and no truth: direct reads see what is dirty in the cache, and
//! direct writes take out of it what they replace.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::source::buffer::ALIGNMENT;
use crate::source::residency::{bytes_present, fetch};
use crate::verify::Caching;

/// Bytes that are gone through one way.
const WINDOW_BYTES: u64 = 2 << 20;
/// Less than this is not worth a descriptor and a request of its own.
const WINDOW_BYTES_MIN: u64 = 256 << 10;
/// A window goes past the cache if the cache lacks one in this number of its bytes. What a
/// server leaves behind is a cache full of small holes: to fill each by a request of
/// its own takes many times as long as to read all of the window at once.
const ABSENT_ONE_OF: u64 = 8;

/// Tells what goes past the page cache, and keeps the descriptor for it.
#[derive(Debug)]
pub struct Cold {
    caching: Caching,
    length: u64,
    /// Whole pages: how many of a window's bytes are in it.
    page_size: u64,
    /// Opened when it is first wanted; `None` where that is refused.
    direct: OnceLock<Option<File>>,
    /// Set when the system refused after all, or from the start.
    refused: AtomicBool,
}

impl Cold {
    /// For the first `length` bytes of a file.
    pub fn new(length: u64, page_size: usize, caching: Caching) -> Self {
        let refused = !page_size.is_multiple_of(ALIGNMENT) || caching == Caching::Cached;
        Self {
            caching,
            length,
            page_size: page_size as u64,
            direct: OnceLock::new(),
            refused: AtomicBool::new(refused),
        }
    }

    /// How to go on from `offset` in `file`: by the descriptor that goes past the cache,
    /// which `open` opens when it is first wanted, or by none; and how far.
    pub fn way_from(
        &self,
        file: &File,
        offset: u64,
        open: impl FnOnce() -> Option<File>,
    ) -> (Option<&File>, u64) {
        if self.refused.load(Ordering::Relaxed) {
            return (None, u64::MAX);
        }
        let window = (offset - offset % WINDOW_BYTES).saturating_add(WINDOW_BYTES);
        let end = window.min(self.length - self.length % self.page_size);
        if offset >= end {
            return (None, u64::MAX);
        }
        if self.caching == Caching::Auto {
            let length = end - offset;
            let Some(present) = bytes_present(file, offset..end) else { return (None, u64::MAX) };
            let absent = length.saturating_sub(present);
            if length < WINDOW_BYTES_MIN || absent.saturating_mul(ABSENT_ONE_OF) < length {
                if absent > 0 {
                    fetch(file, &(offset..end));
                }
                return (None, end);
            }
        }
        match self.direct.get_or_init(open) {
            Some(direct) => (Some(direct), end),
            None => (None, u64::MAX),
        }
    }

    /// To be called when the system refuses to go past the cache.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crate::system::FileExt as _;

    use super::*;
    use crate::source::file::open_regular;
    use crate::source::residency::{Residency, expect_random_reads, forget, residency};

    const LENGTH: u64 = 3 * WINDOW_BYTES + 20480;

    fn descriptor() -> Option<File> {
        tempfile::tempfile().ok()
    }

    /// A file of `LENGTH` bytes of which the page cache holds nothing; `None` where the
    /// temporary folder is memory itself.
    fn absent_file() -> Option<(tempfile::NamedTempFile, File)> {
        let written = tempfile::NamedTempFile::new().unwrap();
        written.as_file().write_all_at(&vec![1; usize::try_from(LENGTH).unwrap()], 0).unwrap();
        written.as_file().sync_all().unwrap();
        let file = open_regular(written.path()).unwrap();
        forget(&file, &(0..LENGTH));
        if residency(&file, 0..LENGTH) != Residency::Nothing {
            eprintln!("skipped, this file system keeps its files in memory");
            return None;
        }
        expect_random_reads(&file);
        Some((written, file))
    }

    #[test]
    fn each_window_is_gone_through_its_own_way() {
        let Some((_name, file)) = absent_file() else { return };
        // The first window is read whole, the second here and there, the third but for
        // little.
        let window = usize::try_from(WINDOW_BYTES).unwrap();
        file.read_exact_at(&mut vec![0; window], 0).unwrap();
        for page in (0..WINDOW_BYTES / 4096).step_by(2) {
            file.read_exact_at(&mut [0; 4096], WINDOW_BYTES + page * 4096).unwrap();
        }
        let most = window - 65536;
        file.read_exact_at(&mut vec![0; most], 2 * WINDOW_BYTES).unwrap();
        let cold = Cold::new(LENGTH, 8192, Caching::Auto);
        let at = |offset| {
            let (direct, end) = cold.way_from(&file, offset, descriptor);
            (direct.is_some(), end)
        };
        assert_eq!(at(8192), (false, WINDOW_BYTES));
        assert_eq!(at(WINDOW_BYTES), (true, 2 * WINDOW_BYTES));
        assert_eq!(at(WINDOW_BYTES + 524_288), (true, 2 * WINDOW_BYTES));
        assert_eq!(at(2 * WINDOW_BYTES), (false, 3 * WINDOW_BYTES));
        // Too little to go another way for, and then what is no whole page.
        assert_eq!(at(3 * WINDOW_BYTES), (false, LENGTH - 4096));
        assert_eq!(at(LENGTH - 4096), (false, u64::MAX));
        cold.refuse();
        assert_eq!(at(WINDOW_BYTES), (false, u64::MAX));
    }

    #[test]
    fn where_no_descriptor_is_to_be_had_all_goes_through_the_cache() {
        let Some((_name, file)) = absent_file() else { return };
        let cold = Cold::new(LENGTH, 8192, Caching::Auto);
        assert!(cold.way_from(&file, 0, || None).0.is_none());
        assert!(cold.way_from(&file, 0, || panic!("asked again")).0.is_none());
    }

    #[test]
    fn what_is_told_to_go_one_way_does() {
        let file = tempfile::tempfile().unwrap();
        let way = |page_size, caching, offset| {
            let cold = Cold::new(20000, page_size, caching);
            let (direct, end) = cold.way_from(&file, offset, descriptor);
            (direct.is_some(), end)
        };
        assert_eq!(way(8192, Caching::Direct, 0), (true, 16384));
        assert_eq!(way(8192, Caching::Direct, 16384), (false, u64::MAX));
        assert_eq!(way(1024, Caching::Direct, 0), (false, u64::MAX));
        assert_eq!(way(8192, Caching::Cached, 0), (false, u64::MAX));
    }
}

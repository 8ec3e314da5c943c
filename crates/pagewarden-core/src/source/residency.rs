//! Which parts of a file the page cache holds.
//!
//! Two ways to ask, neither of which reads or brings in anything:
//!
//! | | since | answers | is open to |
//! | --- | --- | --- | --- |
//! | `cachestat` | Linux 6.5 | how many pages of a range, per folio and so cheaply | all at first, since 6.14 as `mincore` |
//! | `mincore` | always | each page of a mapping | the owner, and who may write |
//!
//! To anybody else `mincore` claims that every page is there. The kernel grants
//! `O_NOATIME` by the same rule (`inode_owner_or_capable`), so a file that was
//! opened with it is one about which `mincore` tells the truth.
//!
//! `preadv2` with `RWF_NOWAIT` would be a third way, but it starts reading what
//! is not there, which is just what must not happen.

use std::fs::File;
use std::ops::Range;

/// How much of a stretch the page cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// All of it.
    Whole,
    /// Some of it.
    Part,
    /// None of it.
    Nothing,
    /// The system does not say.
    Unknown,
}

/// How much of `range` is in the page cache at this moment.
#[must_use]
pub fn residency(file: &File, range: Range<u64>) -> Residency {
    system::residency(file, range)
}

/// How many bytes of `range` are in the page cache at this moment, in whole pages of the
/// system's; `None` if it does not say.
#[must_use]
pub fn bytes_present(file: &File, range: Range<u64>) -> Option<u64> {
    system::bytes_present(file, range)
}

/// The stretches of the first `length` bytes that are not in the page cache,
/// in order; `None` if the system does not say or there are too many of them.
#[must_use]
pub fn absent(file: &File, length: u64) -> Option<Vec<Range<u64>>> {
    system::absent(file, length)
}

/// True if nothing of `range` in the page cache has changed since it was
/// written to the device, and none of it is on its way there; `None` if the
/// system does not say.
#[must_use]
pub fn is_clean(file: &File, range: Range<u64>) -> Option<bool> {
    system::is_clean(file, range)
}

/// Takes `range` out of the page cache, as far as it is clean and unused.
/// Pages that lie only partly in the range stay.
pub fn forget(file: &File, range: &Range<u64>) {
    system::forget(file, range);
}

/// Asks the system to bring in nothing beyond what is read.
pub fn expect_random_reads(file: &File) {
    system::expect_random_reads(file);
}

/// Starts bringing in `range` without waiting for it.
pub fn fetch(file: &File, range: &Range<u64>) {
    system::fetch(file, range);
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::num::NonZero;
    use std::ops::Range;
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::ptr::null_mut;

    use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    use super::Residency;

    /// Bytes that are mapped and asked about at once.
    const CHUNK_BYTES: u64 = 64 << 20;
    /// A map with more stretches than this is no map: 16 MiB of memory.
    const STRETCHES_MAX: usize = 1 << 20;

    pub(super) fn residency(file: &File, range: Range<u64>) -> Residency {
        if range.is_empty() {
            return Residency::Whole;
        }
        let page = page_bytes();
        let pages = range.end.div_ceil(page).saturating_sub(range.start / page);
        match bytes_present(file, range) {
            None => Residency::Unknown,
            Some(0) => Residency::Nothing,
            Some(present) if present / page >= pages => Residency::Whole,
            Some(_) => Residency::Part,
        }
    }

    pub(super) fn bytes_present(file: &File, range: Range<u64>) -> Option<u64> {
        let page = page_bytes();
        let length = range.end.checked_sub(range.start).filter(|length| *length > 0)?;
        if let Some(stat) = cachestat(file, range.start, length) {
            return Some(stat.cached.saturating_mul(page));
        }
        let mut bytes = 0_u64;
        each_page(file, range, |_, present| {
            bytes = bytes.saturating_add(if present { page } else { 0 });
            true
        })?;
        Some(bytes)
    }

    pub(super) fn absent(file: &File, length: u64) -> Option<Vec<Range<u64>>> {
        match residency(file, 0..length) {
            Residency::Whole => return Some(Vec::new()),
            Residency::Nothing => return Some(std::iter::once(0..length).collect()),
            Residency::Unknown => return None,
            Residency::Part => {}
        }
        let mut stretches: Vec<Range<u64>> = Vec::new();
        let mut too_many = false;
        each_page(file, 0..length, |page, present| {
            if present {
                return true;
            }
            if let Some(last) = stretches.last_mut().filter(|last| last.end == page.start) {
                last.end = page.end;
            } else if stretches.len() < STRETCHES_MAX {
                stretches.push(page);
            } else {
                too_many = true;
            }
            !too_many
        })?;
        (!too_many).then_some(stretches)
    }

    pub(super) fn is_clean(file: &File, range: Range<u64>) -> Option<bool> {
        let length = range.end.checked_sub(range.start).filter(|length| *length > 0)?;
        let stat = cachestat(file, range.start, length)?;
        Some(stat.dirty == 0 && stat.writeback == 0)
    }

    pub(super) fn forget(file: &File, range: &Range<u64>) {
        let length = range.end.checked_sub(range.start).and_then(NonZero::new);
        if let Some(length) = length {
            // A wish.
            let _ = fadvise(file, range.start, Some(length), Advice::DontNeed);
        }
    }

    pub(super) fn expect_random_reads(file: &File) {
        let _ = fadvise(file, 0, None, Advice::Random);
    }

    /// What a system brings in at one word, at the least: Linux reads no more
    /// than its read-ahead or the longest request of the device.
    const FETCH_BYTES: u64 = 128 << 10;

    pub(super) fn fetch(file: &File, range: &Range<u64>) {
        let mut at = range.start;
        while let Some(left) = range.end.checked_sub(at).and_then(NonZero::new) {
            let length = left.min(NonZero::new(FETCH_BYTES).unwrap_or(left));
            let _ = fadvise(file, at, Some(length), Advice::WillNeed);
            at += length.get();
        }
    }

    fn page_bytes() -> u64 {
        rustix::param::page_size() as u64
    }

    /// `struct cachestat_range` and `struct cachestat` of `linux/mman.h`.
    #[repr(C)]
    struct CachestatRange {
        offset: u64,
        length: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct Cachestat {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }

    /// The number in the table that all architectures share, but for those
    /// that put an offset of their own on every number.
    const SYS_CACHESTAT: Option<libc::c_long> = {
        let own_numbers = cfg!(any(target_arch = "mips", target_arch = "mips64"));
        let x32 = cfg!(all(target_arch = "x86_64", target_pointer_width = "32"));
        if own_numbers || x32 { None } else { Some(451) }
    };

    /// Pages of the range in the page cache, by state; `None` where the system
    /// call is missing, forbidden or closed to us.
    fn cachestat(file: &File, offset: u64, length: u64) -> Option<Cachestat> {
        let range = CachestatRange { offset, length };
        let mut answer = Cachestat::default();
        // SAFETY: both structures are laid out as the kernel has them and live
        // until the call returns; the last argument is for flags, of which
        // there are none.
        let result = unsafe {
            libc::syscall(SYS_CACHESTAT?, file.as_raw_fd(), &raw const range, &raw mut answer, 0)
        };
        (result == 0).then_some(answer)
    }

    /// Tells `told` of each page from the one with `range.start` on, until it
    /// says false. `None` if the system does not say.
    fn each_page(
        file: &File,
        range: Range<u64>,
        mut told: impl FnMut(Range<u64>, bool) -> bool,
    ) -> Option<()> {
        if !fcntl_getfl(file).ok()?.contains(OFlags::NOATIME) {
            return None;
        }
        let page = page_bytes();
        let mut at = range.start - range.start % page;
        let mut present = Vec::new();
        while at < range.end {
            let length = CHUNK_BYTES.min(range.end - at);
            pages_present(file, at, length, &mut present)?;
            for state in &present {
                // The other bits are reserved.
                if !told(at..at.saturating_add(page).min(range.end), state & 1 == 1) {
                    return Some(());
                }
                at = at.saturating_add(page);
            }
        }
        Some(())
    }

    /// One byte for each page, by `mincore`.
    fn pages_present(file: &File, offset: u64, length: u64, out: &mut Vec<u8>) -> Option<()> {
        let bytes = usize::try_from(length).ok()?;
        out.clear();
        out.resize(bytes.div_ceil(rustix::param::page_size()), 0);
        // SAFETY: a new mapping at a place of the kernel's choice. It is never
        // touched, so that nothing happens if the file becomes shorter.
        let mapping = unsafe {
            mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), offset)
        };
        let mapping = mapping.ok()?;
        // SAFETY: the mapping is `bytes` long and `out` has a byte for each of
        // its pages.
        let result = unsafe { libc::mincore(mapping, bytes, out.as_mut_ptr()) };
        // SAFETY: the mapping was made above and nothing refers to it.
        let _ = unsafe { munmap(mapping, bytes) };
        (result == 0).then_some(())
    }

    #[cfg(test)]
    pub(super) fn by_mincore(file: &File, range: Range<u64>) -> Option<Vec<bool>> {
        let mut pages = Vec::new();
        each_page(file, range, |_, present| {
            pages.push(present);
            true
        })?;
        Some(pages)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::ops::Range;

    use super::Residency;

    pub(super) fn residency(_: &File, _: Range<u64>) -> Residency {
        Residency::Unknown
    }

    pub(super) fn bytes_present(_: &File, _: Range<u64>) -> Option<u64> {
        None
    }

    pub(super) fn absent(_: &File, _: u64) -> Option<Vec<Range<u64>>> {
        None
    }

    pub(super) fn is_clean(_: &File, _: Range<u64>) -> Option<bool> {
        None
    }

    pub(super) fn forget(_: &File, _: &Range<u64>) {}

    pub(super) fn expect_random_reads(_: &File) {}

    pub(super) fn fetch(_: &File, _: &Range<u64>) {}
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use crate::source::file::open_regular;

    const LENGTH: u64 = 4 << 20;

    /// A file on a real file system, clean, so that it can leave the cache;
    /// `None` where the temporary folder is memory itself.
    fn file() -> Option<(tempfile::TempDir, File)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut written = File::create(&path).unwrap();
        written.write_all(&vec![1; usize::try_from(LENGTH).unwrap()]).unwrap();
        written.sync_all().unwrap();
        drop(written);
        let file = open_regular(&path).unwrap();
        forget(&file, &(0..LENGTH));
        if residency(&file, 0..LENGTH) == Residency::Nothing {
            Some((folder, file))
        } else {
            eprintln!("skipped, this file system keeps its files in memory");
            None
        }
    }

    #[test]
    fn a_file_comes_and_goes() {
        let Some((_folder, file)) = file() else { return };
        expect_random_reads(&file);
        assert_eq!(absent(&file, LENGTH), Some(std::iter::once(0..LENGTH).collect()));
        file.read_exact_at(&mut [0; 4096], 2 << 20).unwrap();
        assert_eq!(residency(&file, 0..LENGTH), Residency::Part);
        assert_eq!(residency(&file, 2 << 20..(2 << 20) + 4096), Residency::Whole);
        assert_eq!(bytes_present(&file, 1 << 20..3 << 20), Some(4096));
        assert_eq!(residency(&file, 0..1 << 20), Residency::Nothing);
        let gaps = absent(&file, LENGTH).unwrap();
        assert_eq!((gaps.len(), gaps[0].end, gaps[1].end), (2, 2 << 20, LENGTH));
        forget(&file, &(0..LENGTH));
        assert_eq!(residency(&file, 0..LENGTH), Residency::Nothing);
        let mut all = vec![0; usize::try_from(LENGTH).unwrap()];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(residency(&file, 0..LENGTH), Residency::Whole);
        assert_eq!(absent(&file, LENGTH), Some(Vec::new()));
        assert_eq!(residency(&file, 5..5), Residency::Whole);
    }

    #[test]
    fn both_ways_of_asking_agree() {
        let Some((_folder, file)) = file() else { return };
        expect_random_reads(&file);
        for page in [3, 4, 5, 700] {
            file.read_exact_at(&mut [0; 4096], page * 4096).unwrap();
        }
        let pages = system::by_mincore(&file, 0..LENGTH).unwrap();
        assert_eq!(pages.len(), 1024);
        for (index, present) in pages.iter().enumerate() {
            let at = index as u64 * 4096;
            assert_eq!(residency(&file, at..at + 4096) == Residency::Whole, *present, "{index}");
        }
        // Asking has brought nothing in.
        assert!(pages.iter().filter(|present| **present).count() < 100);
    }

    /// To a process without the right to know, `mincore` answers that all is there.
    #[test]
    fn without_the_owners_right_mincore_is_not_believed() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(path).unwrap();
        assert_eq!(system::by_mincore(&file, 0..4096), None, "opened without O_NOATIME");
    }
}

//! One page read again: the way it was read first, and the other way, to tell
//! damage in the page cache from damage on the device.
//!
//! The copies can be compared only where there are two: the page cache holds
//! the page, and the file system lets us read past it. And they must be the
//! same only while the cached copy is clean, that is, neither changed since it
//! was written to the device nor on its way there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::page::{PageFormat, PageRun, RunVerdict};
use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::residency::{Residency, is_clean, residency};
use crate::verdict::PageNo;
use crate::verify::open_file::OpenFile;
use crate::verify::worker::read_fully;

/// A file whose pages can be read again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again<'a> {
    pub(super) file: &'a OpenFile,
    /// The pages in question were read past the page cache.
    pub(super) was_past: bool,
}

/// How the copies of a failing page differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// The page cache holds the failing one, the device a sound one.
    OnlyCachedFails,
    /// The device holds the failing one, the page cache a sound one.
    OnlyDeviceFails,
    /// They differ, and both fail.
    BothFail,
    /// The device holds the failing one and the page cache a sound one, but it
    /// may be on its way to the device.
    CachedMayBeNewer,
}

/// Copies that differ are compared so often before it is believed: in between
/// a page may have been written and reached the device.
const COMPARISONS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);

impl Again<'_> {
    /// Reads a page the way it was read first, as much of it as there is.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        match self.direct_for(length).filter(|_| self.was_past) {
            Some(direct) => read_page(direct, offset, length),
            None => read_page(&self.file.cached, offset, length),
        }
    }

    /// Compares the copies of a page that failed; `None` if there is only one,
    /// or they are the same.
    pub(super) fn compare(
        &self,
        format: &dyn PageFormat,
        page: PageNo,
        offset: u64,
    ) -> Option<Copies> {
        let length = format.page_size();
        let direct = self.direct_for(length)?;
        let range = offset..offset.checked_add(length as u64)?;
        let cached = &self.file.cached;
        let fails = |bytes: &[u8]| fails(format, page, bytes);
        let mut seen = None;
        for comparison in 0..COMPARISONS {
            if comparison > 0 {
                std::thread::sleep(PAUSE);
            }
            let before = is_clean(cached, range.clone());
            // Else reading through the cache would only read the device again.
            if residency(cached, range.clone()) != Residency::Whole {
                return None;
            }
            let on_device = read_whole(direct, &range)?;
            let in_cache = read_whole(cached, &range)?;
            let after = is_clean(cached, range.clone());
            if on_device == in_cache {
                return None;
            }
            let found = match (fails(&in_cache), fails(&on_device), before.zip(after)) {
                (false, false, _) => return None,
                (_, _, Some((false, _) | (_, false))) => continue,
                (false, true, None) => Copies::CachedMayBeNewer,
                // Not known to be clean: what the cache holds is what counts.
                (true, _, None) => return None,
                (true, false, Some(_)) => Copies::OnlyCachedFails,
                (false, true, Some(_)) => Copies::OnlyDeviceFails,
                (true, true, Some(_)) => Copies::BothFail,
            };
            if seen.is_some_and(|seen| seen != found) {
                return None;
            }
            seen = Some(found);
        }
        seen
    }

    /// The file for direct reads of pages of this length, which must be a
    /// multiple of what direct reads are aligned to.
    fn direct_for(&self, length: usize) -> Option<&File> {
        let file = self.file.direct().filter(|_| length.is_multiple_of(ALIGNMENT))?;
        Some(file)
    }
}

fn read_page(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = AlignedBuffer::new(length);
    let count = read_fully(file, buffer.bytes_mut(), offset)?;
    Ok(buffer.bytes().get(..count).unwrap_or_default().to_vec())
}

fn read_whole(file: &File, range: &Range<u64>) -> Option<Vec<u8>> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    read_page(file, range.start, length).ok().filter(|bytes| bytes.len() == length)
}

fn fails(format: &dyn PageFormat, page: PageNo, bytes: &[u8]) -> bool {
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: page, bytes }, &mut verdict);
    verdict.findings.iter().any(|finding| finding.standing.is_some())
}

impl Copies {
    /// For people, behind what else is known of the page.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::OnlyCachedFails => {
                "the copy in the page cache fails, the one on the device is sound"
            }
            Self::OnlyDeviceFails => {
                "the copy on the device fails, the one in the page cache is sound"
            }
            Self::BothFail => "the page cache and the device hold different bytes, and both fail",
            Self::CachedMayBeNewer => {
                "the copy on the device fails, the one in the page cache is sound and may be on its way there"
            }
        }
    }

    /// What to do next, where it differs from what is done about any damage.
    pub(super) fn advice(self) -> Option<&'static str> {
        match self {
            Self::OnlyCachedFails => Some(
                "suspect this machine's memory, not its disk: test it; what the server reads is wrong until the page leaves the cache",
            ),
            Self::OnlyDeviceFails => Some(
                "copy the file now, through the page cache (cp will do), while the sound copy is still there",
            ),
            Self::BothFail => None,
            Self::CachedMayBeNewer => Some("check again with --direct after a checkpoint"),
        }
    }
}

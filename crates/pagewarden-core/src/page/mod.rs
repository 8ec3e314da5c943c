//! What a page must look like, for each format.
//!
//! A page format is given runs of whole pages with their numbers and says what
//! it thinks of each. It never sees a file, a path or a directory: what it has
//! to know of those (is checksumming on, where does the log end) was put into
//! it by the target that made it.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::page::standings::Standings;
use crate::verdict::{
    ByteOffset, Finding, Kind, ModeCounts, PageCounts, PageNo, Protection, Severity, Standing,
};

pub mod standings;

/// Consecutive whole pages of one file.
#[derive(Debug, Clone, Copy)]
pub struct PageRun<'a> {
    /// The number of the first page.
    pub first: PageNo,
    /// The pages; the length is a multiple of the format's page size.
    pub bytes: &'a [u8],
}

impl<'a> PageRun<'a> {
    /// Each page of `page_size` bytes with its number and what it counts as, in page order.
    pub fn judged<'s>(
        self,
        page_size: usize,
        standings: &'s Standings,
    ) -> impl Iterator<Item = (PageNo, &'a [u8], Option<Standing>)> + use<'a, 's> {
        let pages = (self.first.0..).map(PageNo).zip(self.bytes.chunks_exact(page_size.max(1)));
        let of_each =
            standings.iter().flat_map(|(standing, count)| (0..count).map(move |_| standing));
        pages.zip(of_each).map(|((number, page), standing)| (number, page, standing))
    }
}

/// A finding about one page, before its file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageFinding {
    /// The page.
    pub page: PageNo,
    /// How much is proven.
    pub severity: Severity,
    /// What is wrong.
    pub kind: Kind,
    /// The checksum on the page, hexadecimal.
    pub stored: Option<String>,
    /// The checksum of its content, hexadecimal.
    pub computed: Option<String>,
    /// The evidence in words.
    pub detail: Option<String>,
    /// What to do next, where the page itself tells.
    pub hint: Option<String>,
    /// What the page counts as on account of this finding; `None` where the
    /// page was counted already and this is a remark.
    pub standing: Option<Standing>,
    /// Set where severity and standing are only known at the end of a stream.
    pub unsettled: Option<Unsettled>,
}

/// What the end of a stream needs to know of a page that failed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// Only its sum speaks against it: where pages carry none, nothing does.
    pub by_sum_alone: bool,
    /// The position in the log that its header claims.
    pub lsn: u64,
    /// Its header is all zero.
    pub blank_header: bool,
    /// The most that a failing page of its file proves.
    pub at_most: Severity,
}

impl PageFinding {
    /// What a report says of it: the page lies in this file, at this byte.
    #[must_use]
    pub fn in_file(self, file: &str, offset: Option<ByteOffset>) -> Finding {
        let mut finding = Finding::of_file(file, self.severity, self.kind, String::new())
            .at(Some(self.page), offset)
            .with_sums(self.stored, self.computed);
        finding.detail = self.detail;
        finding.hint = self.hint;
        finding
    }

    /// A page that failed its test, and counts as [`Standing::of_failed`] says.
    #[must_use]
    pub fn failed(page: PageNo, severity: Severity, kind: Kind) -> Self {
        Self {
            page,
            severity,
            kind,
            stored: None,
            computed: None,
            detail: None,
            hint: None,
            standing: Some(Standing::of_failed(severity)),
            unsettled: None,
        }
    }

    /// The same finding with the evidence in words.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// What a format says of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RunVerdict {
    /// The pages that passed or had nothing to test. Pages with a finding
    /// that has a standing are not among them.
    pub counts: PageCounts,
    /// Pages in use by protection, failing ones too.
    pub by_mode: ModeCounts,
    /// What is wrong, in page order.
    pub findings: Vec<PageFinding>,
    /// What each page counts as, in page order.
    pub standings: Standings,
}

impl RunVerdict {
    /// Counts a page in use that passed, or that had nothing to be tested by.
    pub fn pass(&mut self, standing: Standing, protection: Protection) {
        self.counts.add(standing);
        self.by_mode.add(protection);
        self.standings.push(Some(standing));
    }

    /// Counts a page that was never written.
    pub fn empty(&mut self) {
        self.counts.add(Standing::Empty);
        self.standings.push(Some(Standing::Empty));
    }

    /// Passes over a page that is none: it is in no count.
    pub fn skip(&mut self) {
        self.standings.push(None);
    }

    /// Records a page that failed.
    pub fn fail(&mut self, protection: Protection, finding: PageFinding) {
        self.by_mode.add(protection);
        self.standings.push(finding.standing);
        self.findings.push(finding);
    }
}

/// Other pages of the same relation, for a second look at a failing one.
pub trait Neighbours {
    /// How many pages the relation has in all its files.
    fn page_count(&self) -> u64;
    /// The page with that number, or `None` if it cannot be read now.
    fn page(&self, page: PageNo) -> Option<Vec<u8>>;
}

/// One way of laying out and protecting pages.
pub trait PageFormat: Send + Sync + fmt::Debug {
    /// Bytes in a page: a power of two, but for pages that are handed on one by one.
    fn page_size(&self) -> usize;

    /// Judges every page of `run`, in page order: each is counted once, by
    /// [`RunVerdict::pass`], [`RunVerdict::empty`] or [`RunVerdict::fail`], or
    /// left out by [`RunVerdict::skip`].
    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict);

    /// Preferred batch size in bytes for [`judge`](Self::judge); 0 for no preference.
    fn bytes_at_once(&self) -> usize {
        0
    }

    /// A second look at a page that failed, with the rest of its relation
    /// available: may make the finding more precise, never milder.
    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        let _ = (page, finding, neighbours);
    }

    /// The engine may make a page of zeroes of one that it gives back, or store a page of nothing but
    /// zeroes: that a page is zero says nothing then of what it was on another day.
    fn may_become_zero(&self) -> bool {
        false
    }

    /// What is remembered of a sound page in use, for a comparison on another day.
    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        Fingerprint::of_bytes(0, page)
    }
}

/// What a page was at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// Its position in the log; 0 where it has none, or none that says whether
    /// the page has changed.
    pub lsn: u64,
    /// 64 bits of the BLAKE3 hash of what may not change under one position.
    /// Never 0.
    pub hash: u64,
}

impl Fingerprint {
    /// Of bytes that must stay as they are.
    #[must_use]
    pub fn of_bytes(lsn: u64, bytes: &[u8]) -> Self {
        let hash = blake3::hash(bytes);
        let hash = hash.as_bytes().first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        Self { lsn, hash: hash.max(1) }
    }
}

/// Sees the pages of one file once they are judged, for evidence that lies in
/// more than one page, or that is kept for another day.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Sees consecutive pages and what each counts as. Every page that was read
    /// is seen once, in any order, by several threads at a time.
    fn see(&self, run: PageRun<'_>, standings: &Standings);
}

/// A configured format with a page that it must find sound, and what is known
/// of its blind spots. The conformance suite in `page::conformance` runs every
/// specimen of every format through the same damage.
pub struct Specimen {
    /// What this is, for messages.
    pub name: &'static str,
    /// The format as a target would configure it.
    pub format: Box<dyn PageFormat>,
    /// The number of `good`.
    pub page: PageNo,
    /// A page in use that must pass.
    pub good: Vec<u8>,
    /// What `good` counts as: `Ok`, or `Unprotected` for a mode without sums.
    pub standing: Standing,
    /// Makes any page sound for a number from 2 on, as its engine would write
    /// it there. A stamp that does nothing with the number says that a page at
    /// a wrong place is not seen. `None`: the page has no sum.
    pub stamp: Option<fn(&mut [u8], PageNo)>,
    /// Byte ranges in which no flipped bit is seen, by the format's design.
    pub blind_bytes: Vec<Range<usize>>,
    /// Single bit flips outside `blind_bytes` that pass all the same, as
    /// (byte, bit): chance matches of a short sum, or other legal values.
    pub blind_bits: Vec<(usize, u8)>,
    /// What an all-zero page counts as.
    pub zero: Standing,
}

impl fmt::Debug for Specimen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Specimen").field("name", &self.name).finish_non_exhaustive()
    }
}

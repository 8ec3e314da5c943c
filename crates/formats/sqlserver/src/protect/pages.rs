//! The work on the pages: read, judge, give them their protection, write, sync,
//! read back.
//!
//! Pages are judged as `check` judges them. Those that pass get the protection that
//! is wanted, those that were never written stay as they are, and so do those that
//! fail: damaged pages never get a valid checksum.
//!
//! The first page of a file is held back: without it no server takes the file.

use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::checksum::{PAGE_BYTES, Page};
use crate::page::stamp::stamp;
use crate::page::system::{BOOT_PAGE, BootPage};
use crate::protect::database::{Pages, SourceFile};
use pagewarden_core::error::Error;
use pagewarden_core::page::{PageFinding, PageRun, RunVerdict};
use pagewarden_core::protect::disk::{Disk, Written, sync};
use pagewarden_core::protect::outcome::Worked;
use pagewarden_core::protect::read_back::Reader;
use pagewarden_core::protect::threads::{Threads, lock};
use pagewarden_core::protect::{Options, PageTally, stretches};
use pagewarden_core::source::buffer::AlignedBuffer;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::source::write_back;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Place, Protection, Standing};
use pagewarden_core::verify::Progress;

/// Bytes read and written at once: they stay in a core's own cache between.
pub(super) const RUN_BYTES: usize = 512 << 10;
/// Bytes of a file that one thread takes.
const PIECE_BYTES: u64 = 32 << 20;
const PAGE: u64 = PAGE_BYTES as u64;
/// The part of a file that is written last.
pub(super) const FIRST_PAGE: Range<u64> = 0..PAGE;

/// What is to be done to all files of a database.
pub(super) struct Work<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) options: &'a Options,
    pub(super) progress: &'a dyn Progress,
    pub(super) pace: RateLimiter,
    pub(super) wanted: Protection,
    /// Damage does not stop writing.
    pub(super) skip_damaged: bool,
    pub(super) run_bytes: usize,
    /// A damaged page was seen.
    pub(super) damage: AtomicBool,
    pub(super) done: Mutex<Worked>,
}

/// A file on its way into the copy.
pub(super) struct Job<'a> {
    pub(super) source: &'a SourceFile,
    /// `None` where nothing is written.
    pub(super) copy: Option<CopiedFile>,
}

/// A file of the copy while it is written.
pub(super) struct CopiedFile {
    pub(super) written: Written,
    /// It has all bytes of the source already, but for its first page.
    pub(super) is_clone: bool,
    marks: Mutex<Marks>,
}

/// What was written to a file, and what is held back.
#[derive(Debug, Default)]
struct Marks {
    first_page: Vec<u8>,
    stretches: Vec<(Range<u64>, blake3::Hash)>,
}

impl CopiedFile {
    pub(super) fn new(written: Written, is_clone: bool) -> Self {
        Self { written, is_clone, marks: Mutex::default() }
    }
}

impl Work<'_> {
    /// Reads and judges everything, and writes all but the first pages.
    pub(super) fn run(&self, jobs: &[Job<'_>]) -> Result<(), Error> {
        for job in jobs {
            self.judge_file(job);
        }
        let mut pieces = Vec::new();
        for (job, length) in jobs.iter().map(|job| (job, job.source.length())) {
            let mut begin = 0;
            while begin < length {
                let end = begin.saturating_add(PIECE_BYTES).min(length);
                pieces.push((job, begin..end));
                begin = end;
            }
        }
        self.share_out(&pieces, |(job, range), buffer| self.work_on(job, range, buffer))?;
        lock(&self.done).sort_findings();
        Ok(())
    }

    /// Waits until the device holds what was written, and reads it back.
    pub(super) fn settle(&self, jobs: &[Job<'_>]) -> Result<(), Error> {
        let mut stretches = Vec::new();
        for copy in jobs.iter().filter_map(|job| job.copy.as_ref()) {
            sync(self.disk, self.options, &copy.written)?;
            let written = std::mem::take(&mut lock(&copy.marks).stretches);
            stretches.extend(written.into_iter().map(|stretch| (copy, stretch)));
        }
        if !self.options.verify {
            return Ok(());
        }
        self.share_out(&stretches, |(copy, (range, hash)), _| {
            self.read_back(&copy.written, range, hash)
        })
    }

    /// Writes the page that was held back.
    pub(super) fn write_first_page(&self, copy: &CopiedFile) -> Result<(), Error> {
        let first_page = std::mem::take(&mut lock(&copy.marks).first_page);
        self.put(copy, &first_page, FIRST_PAGE.start)
    }

    /// Gives the parts of a work to the threads.
    fn share_out<T: Sync>(
        &self,
        parts: &[T],
        work: impl Fn(&T, &mut [u8]) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let run_bytes = self.pace.step_bytes(self.run_bytes).max(PAGE_BYTES);
        let run_bytes = run_bytes - run_bytes % PAGE_BYTES;
        let threads = Threads::new(&self.options.stop);
        threads.run(self.options.jobs.get().min(parts.len()), || {
            let mut memory = AlignedBuffer::new(run_bytes);
            while !threads.must_stop()
                && let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed))
            {
                work(part, memory.bytes_mut())?;
            }
            Ok(())
        })
    }

    fn must_stop(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn work_on(&self, job: &Job<'_>, range: &Range<u64>, buffer: &mut [u8]) -> Result<(), Error> {
        let source = job.source;
        let mut offset = range.start;
        while offset < range.end && !self.must_stop() {
            let (left, is_hole) = stretch(&source.file, offset, range.end);
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let Some(bytes) = buffer.get_mut(..length) else { return Ok(()) };
            if is_hole {
                // Pages of zeroes may be missed, too.
                bytes.fill(0);
            } else {
                self.pace.pay(length as u64, &self.options.stop);
                let count = read_fully(&source.file, bytes, offset)
                    .map_err(|error| Error::io("read", &source.path, error))?;
                if count < length {
                    return Err(changed_meanwhile(source));
                }
                lock(&self.done).bytes_read += length as u64;
            }
            let changed = match source.pages() {
                Some(pages) => self.judge(source, pages, offset, bytes),
                None => Vec::new(),
            };
            if let Some(copy) = &job.copy {
                self.write(copy, offset, bytes, &changed, is_hole)?;
            }
            self.progress.advance(length as u64);
            offset += length as u64;
        }
        Ok(())
    }

    /// What is wrong with a file as a whole, and the rest of a page at its end.
    fn judge_file(&self, job: &Job<'_>) {
        let Some(pages) = job.source.pages() else { return };
        let mut findings = pages.findings.clone();
        let (length, rest) = (job.source.length(), job.source.length() % PAGE);
        if rest > 0 {
            let detail = format!("the file ends {rest} bytes into a page");
            let mut finding =
                Finding::of_file("", pages.file.partial_page, Kind::Truncated, detail);
            finding.place = place(&job.source.name, length / PAGE);
            findings.push(finding);
        }
        self.found(findings);
    }

    /// Judges pages, and gives those that pass the protection that is wanted; which
    /// of them that changed.
    fn judge(
        &self,
        source: &SourceFile,
        pages: &Pages,
        offset: u64,
        bytes: &mut [u8],
    ) -> Vec<Range<usize>> {
        let whole = bytes.len() - bytes.len() % PAGE_BYTES;
        let Some(bytes) = bytes.get_mut(..whole) else { return Vec::new() };
        let first = PageNo(offset / PAGE);
        let mut verdict = RunVerdict::default();
        pages.file.format.judge(PageRun { first, bytes }, &mut verdict);
        for witness in &pages.file.witnesses {
            witness.see(PageRun { first, bytes }, &verdict.standings);
        }
        let mut tally = PageTally { empty: verdict.counts.empty, ..PageTally::default() };
        let mut changed: Vec<Range<usize>> = Vec::new();
        let mut standings = verdict
            .standings
            .iter()
            .flat_map(|(standing, count)| (0..count).map(move |_| standing));
        for (page, number) in bytes.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().zip(first.0..) {
            let standing = standings.next().flatten();
            if !matches!(standing, Some(Standing::Ok | Standing::Unprotected)) {
                continue;
            }
            if !self.stamp(page, pages.number, number) {
                tally.right += 1;
                continue;
            }
            tally.changed += 1;
            let at = usize::try_from(number - first.0).unwrap_or(0) * PAGE_BYTES;
            stretches::add(&mut changed, at..at + PAGE_BYTES);
        }
        lock(&self.done).pages += tally;
        // Remarks on pages that pass are no damage.
        let failed = verdict.findings.into_iter().filter(|finding| finding.standing.is_some());
        self.found(failed.map(|finding| found_at(source, pages, finding)).collect());
        changed
    }

    fn stamp(&self, page: &mut Page, file: u16, number: u64) -> bool {
        if (file, number) == (1, BOOT_PAGE) {
            BootPage::set(page, self.wanted)
        } else {
            stamp(page, self.wanted)
        }
    }

    fn found(&self, findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        self.damage.store(true, Ordering::Relaxed);
        let mut done = lock(&self.done);
        done.pages.damaged += findings.len() as u64;
        done.findings.extend(findings);
    }

    /// Writes what has to be, but for the first page.
    fn write(
        &self,
        copy: &CopiedFile,
        offset: u64,
        bytes: &[u8],
        changed: &[Range<usize>],
        is_hole: bool,
    ) -> Result<(), Error> {
        if self.damage.load(Ordering::Relaxed) && !self.skip_damaged {
            return Ok(());
        }
        let held_back = match offset == FIRST_PAGE.start {
            true => bytes.len().min(PAGE_BYTES),
            false => 0,
        };
        if held_back > 0 {
            let first_page = bytes.get(..held_back).unwrap_or_default();
            lock(&copy.marks).first_page = first_page.to_vec();
        }
        let whole = 0..bytes.len();
        let stretches = match (copy.is_clone, is_hole) {
            (true, _) => changed,
            (false, true) => &[],
            (false, false) => std::slice::from_ref(&whole),
        };
        for stretch in stretches {
            let begin = stretch.start.max(held_back);
            let part = bytes.get(begin..stretch.end).unwrap_or_default();
            self.put(copy, part, offset + begin as u64)?;
        }
        if self.options.sync {
            write_back::begin(&copy.written.file, &(offset..offset + bytes.len() as u64));
        }
        Ok(())
    }

    fn put(&self, copy: &CopiedFile, bytes: &[u8], offset: u64) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len() as u64;
        self.pace.pay(length, &self.options.stop);
        self.disk
            .write_at(&copy.written, bytes, offset)
            .map_err(|error| Error::io("write", &copy.written.path, error))?;
        lock(&self.done).bytes_written += length;
        if self.options.verify {
            let stretch = (offset..offset + length, blake3::hash(bytes));
            lock(&copy.marks).stretches.push(stretch);
        }
        Ok(())
    }

    /// Reads from the device, and not from memory, where that can be.
    fn read_back(
        &self,
        written: &Written,
        range: &Range<u64>,
        hash: &blake3::Hash,
    ) -> Result<(), Error> {
        let failed = |error| Error::io("read back", &written.path, error);
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        self.pace.pay(length as u64, &self.options.stop);
        let mut reader = Reader::open(&written.path, length).map_err(failed)?;
        let bytes = reader.read(range.start, length).map_err(failed)?;
        if blake3::hash(bytes) != *hash {
            return Err(Error::lost_write(
                &written.path,
                format!(
                    "pages {} to {} do not read back as they were written",
                    range.start / PAGE,
                    (range.end - 1) / PAGE
                ),
                "the device or file system loses writes: check them, and copy to another one",
            ));
        }
        lock(&self.done).bytes_verified += length as u64;
        Ok(())
    }
}

/// How far data or a hole goes from `offset` on, to `end` at most; true for a hole. Pages that are
/// hole only in part are data.
fn stretch(file: &File, offset: u64, end: u64) -> (u64, bool) {
    let until = |found: u64| found.min(end).saturating_sub(offset);
    let hole = stretches::hole_end(file, offset).map_or(0, until);
    if hole >= PAGE {
        return (hole - hole % PAGE, true);
    }
    let data = stretches::data_end(file, offset.saturating_add(hole));
    (until(data).next_multiple_of(PAGE).min(end - offset), false)
}

fn found_at(source: &SourceFile, pages: &Pages, found: PageFinding) -> Finding {
    let offset = found.page.0.checked_mul(PAGE).map(ByteOffset);
    found.in_file(&source.name, offset).about(pages.file.database.as_deref(), None)
}

fn place(file: &str, page: u64) -> Place {
    let offset = page.checked_mul(PAGE).map(ByteOffset);
    Place { file: file.to_owned(), page: Some(PageNo(page)), offset }
}

pub(super) fn changed_meanwhile(source: &SourceFile) -> Error {
    Error::changed(
        &source.path,
        "it was changed while it was copied, so the copy is worth nothing",
        "see that no server uses the database, and run this again",
    )
}

//! The work on the pages: read, judge, set the checksum, write, sync, read back.
//!
//! Each thread takes pieces of a file of its own, large files first, and at the end of
//! those that are left: two that write to one file wait for each other. What the page
//! cache holds is changed there, the rest past it. Files that are written gather
//! until they are worth waiting for the device: then one thread syncs them, reads
//! back what was written, and puts them into the journal, while the others go on.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::protect::files::{Entry, Listing};
use crate::protect::judge::{Judged, Layout, judge_pages};
use crate::protect::read_back::read_back;
use pagewarden_core::error::Error;
use pagewarden_core::protect::batch::Batch;
use pagewarden_core::protect::cold::Cold;
use pagewarden_core::protect::disk::{Disk, Written, is_same_file, remove, sync, sync_unwritten};
use pagewarden_core::protect::journal::{Done, Journal, Stamp};
use pagewarden_core::protect::outcome::{Worked, damage};
use pagewarden_core::protect::threads::{Threads, lock};
use pagewarden_core::protect::{Options, PageTally, stretches};
use pagewarden_core::source::buffer::AlignedBuffer;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::source::residency::expect_random_reads;
use pagewarden_core::source::write_back;
use pagewarden_core::verify::{Caching, Progress};

/// Bytes read and written at once through the page cache: they stay in a core's own
/// cache between.
pub(super) const RUN_BYTES: usize = 512 << 10;
/// How many times as many are past it: the device wants long requests. Memory of
/// that size asks for huge pages.
const RUNS_PAST: usize = 4;
/// With more stretches than this, a run that was read past the page cache is written
/// through it, which gathers them; past it each is a request that is waited for.
const STRETCHES_PAST_MAX: usize = 16;
/// Bytes of a file that one thread takes.
pub(super) const PIECE_BYTES: u64 = 32 << 20;

/// Files, and bytes in them, that are synced together: the first sync of many then
/// commits the file system's own journal for all of them.
pub(super) const BATCH_FILES: usize = 128;
const BATCH_BYTES: u64 = 64 << 20;

/// What is to be done to all files of a listing.
pub(super) struct Work<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) options: &'a Options,
    pub(super) progress: &'a dyn Progress,
    pub(super) listing: &'a Listing,
    pub(super) layout: Layout,
    /// Nothing is written.
    pub(super) dry_run: bool,
    /// Damage does not stop writing.
    pub(super) skip_damaged: bool,
    /// The data directory of a copy that is being made.
    pub(super) copy: Option<&'a Path>,
    /// What an earlier run had finished. Its unfinished files are read back
    /// whole, for it is not known which of their pages it wrote.
    pub(super) done: Option<Done>,
    pub(super) journal: Option<Mutex<Journal<'a>>>,
    /// Asked before anything is written: false if a server has come.
    pub(super) may_write: &'a (dyn Fn() -> bool + Sync),
    pub(super) caching: Caching,
    pub(super) run_bytes: usize,
    pub(super) batch_files: usize,
}

/// A file while it is worked on.
pub(super) struct OpenFile {
    entry: Entry,
    pub(super) name: String,
    source: File,
    /// What is written to: the file itself, or its copy.
    target: Option<Written>,
    /// The copy has all bytes of the source already.
    is_clone: bool,
    cold: Cold,
    pieces_left: AtomicUsize,
    marks: Mutex<Marks>,
}

/// What was done to a file.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Written, in no order.
    pub(super) written: Vec<Range<u64>>,
    /// Where damaged pages begin.
    pub(super) damaged: Vec<u64>,
}

struct Shared<'a, 'w> {
    work: &'a Work<'w>,
    pace: RateLimiter,
    queue: Mutex<Queue>,
    result: Mutex<Worked>,
    /// Files that wait to be synced.
    batch: Batch<Arc<OpenFile>>,
    threads: Threads<'a>,
    /// A damaged page was seen.
    damage: AtomicBool,
}

#[derive(Default)]
struct Queue {
    next_entry: usize,
    /// Files of which pieces are left, and where the next of each begins.
    begun: Vec<(Arc<OpenFile>, u64)>,
}

/// A part of a file, for one thread.
struct Piece {
    file: Arc<OpenFile>,
    range: Range<u64>,
}

impl Work<'_> {
    /// Does it. Findings come in the order of the files' names.
    pub(super) fn run(&self) -> Result<Worked, Error> {
        let shared = Shared {
            work: self,
            pace: RateLimiter::new(self.options.rate),
            queue: Mutex::default(),
            result: Mutex::default(),
            batch: Batch::new(self.batch_files, BATCH_BYTES),
            threads: Threads::new(&self.options.stop),
            damage: AtomicBool::new(false),
        };
        shared.threads.run(self.options.jobs.get(), || shared.work())?;
        // Also when the run is to stop: it is little, and need not be done again.
        shared.settle(&shared.batch.take())?;
        let mut result = std::mem::take(&mut *lock(&shared.result));
        result.sort_findings();
        Ok(result)
    }

    fn writes(&self) -> bool {
        !self.dry_run
    }
}

impl Shared<'_, '_> {
    fn work(&self) -> Result<(), Error> {
        // Huge pages make the copies from and to the page cache cheaper.
        let mut memory = AlignedBuffer::new(self.run_bytes(true));
        let mut last = None;
        while let Some(piece) = self.next(last.as_ref())? {
            self.work_on(&piece, memory.bytes_mut())?;
            if self.threads.must_stop() {
                break;
            }
            if piece.file.pieces_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finish(&piece.file)?;
            }
            last = Some(piece.file);
        }
        Ok(())
    }

    /// How much to read and write at once.
    fn run_bytes(&self, past: bool) -> usize {
        let page_size = self.work.layout.page_size;
        let most = self.work.run_bytes * if past { RUNS_PAST } else { 1 };
        let wanted = self.pace.step_bytes(most).max(page_size);
        wanted - wanted % page_size
    }

    /// The next piece, of the file of the last one if any is left of it; opens the
    /// next file where it must.
    fn next(&self, last: Option<&Arc<OpenFile>>) -> Result<Option<Piece>, Error> {
        let mut queue = lock(&self.queue);
        let is_last =
            |(file, _): &(Arc<OpenFile>, u64)| last.is_some_and(|last| Arc::ptr_eq(file, last));
        let mut index = queue.begun.iter().position(is_last);
        while !self.threads.must_stop() {
            if let Some((file, begin)) = index.and_then(|index| queue.begun.get_mut(index)) {
                let end = begin.saturating_add(PIECE_BYTES).min(file.entry.length);
                let piece = Piece { file: Arc::clone(file), range: *begin..end };
                *begin = end;
                if end == file.entry.length {
                    queue.begun.swap_remove(index.unwrap_or_default());
                }
                return Ok(Some(piece));
            }
            match self.work.listing.entries.get(queue.next_entry).copied() {
                Some(entry) => {
                    queue.next_entry += 1;
                    if let Some(file) = self.open(entry)? {
                        index = Some(queue.begun.len());
                        queue.begun.push((Arc::new(file), 0));
                    }
                }
                None if queue.begun.is_empty() => return Ok(None),
                None => index = Some(0),
            }
        }
        Ok(None)
    }

    /// Opens a file, and makes its copy. `None` if there is nothing to do to it.
    fn open(&self, entry: Entry) -> Result<Option<OpenFile>, Error> {
        let work = self.work;
        let (name, path) = (work.listing.name(&entry), work.listing.path(&entry));
        if let Some(stamp) = work.done.as_ref().and_then(|done| done.get(&name)) {
            let metadata = std::fs::symlink_metadata(&path);
            if metadata.is_ok_and(|metadata| Stamp::of(&metadata) == *stamp) {
                let mut result = lock(&self.result);
                result.files += 1;
                result.files_resumed += 1;
                self.work.progress.advance(entry.length);
                return Ok(None);
            }
        }
        let opened = |error| Error::io("open", &path, error);
        let source;
        let mut target = None;
        let mut is_clone = false;
        match work.copy {
            None if work.writes() => {
                if !(work.may_write)() {
                    return Err(server_came(&path));
                }
                let written = Written::open(&path).map_err(opened)?;
                source = open_regular(&path).map_err(opened)?;
                if !is_same_file(&source, &written.file).map_err(opened)? {
                    return Err(changed_meanwhile(&path));
                }
                target = Some(written);
            }
            None => source = open_regular(&path).map_err(opened)?,
            Some(root) => {
                source = open_regular(&path).map_err(opened)?;
                let copy = root.join(&name);
                remove(work.disk, &copy)?;
                let made = self.create_copy(&copy, &source, entry.length);
                let (written, cloned) = made.map_err(|error| Error::io("copy to", &copy, error))?;
                (target, is_clone) = (Some(written), cloned);
            }
        }
        let length = source.metadata().map_err(opened)?.len();
        if length != entry.length {
            return Err(changed_meanwhile(&path));
        }
        lock(&self.result).files += 1;
        // A file of no pages has no piece either, and is none to sync: nothing of
        // it is claimed.
        if length == 0 && work.copy.is_none() {
            return Ok(None);
        }
        let pieces = usize::try_from(length.div_ceil(PIECE_BYTES)).unwrap_or(usize::MAX).max(1);
        Ok(Some(OpenFile {
            cold: Cold::new(length, work.layout.page_size, work.caching),
            entry,
            name,
            source,
            target,
            is_clone,
            pieces_left: AtomicUsize::new(pieces),
            marks: Mutex::default(),
        }))
    }

    fn create_copy(&self, copy: &Path, source: &File, length: u64) -> io::Result<(Written, bool)> {
        let disk = self.work.disk;
        let written = disk.create(copy, &source.metadata()?)?;
        let cloned = disk.share_blocks(&written, source);
        if !cloned {
            disk.set_length(&written, length)?;
        }
        Ok((written, cloned))
    }

    fn work_on(&self, piece: &Piece, memory: &mut [u8]) -> Result<(), Error> {
        let work = self.work;
        let mut offset = piece.range.start;
        // Which way to go, and how far it holds.
        let (mut direct, mut way_end) = (None, offset);
        while offset < piece.range.end && !self.threads.must_stop() {
            if let Some(hole_end) = self.hole(piece, offset) {
                self.pass_hole(hole_end - offset);
                offset = hole_end;
                continue;
            }
            let file = &piece.file;
            let path = || work.listing.path(&file.entry);
            if offset >= way_end {
                (direct, way_end) =
                    file.cold.way_from(&file.source, offset, || file.open_direct(&path()));
            }
            let most = self.run_bytes(direct.is_some());
            let left = piece.range.end.min(way_end) - offset;
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(most);
            let Some(bytes) = memory.get_mut(..length) else { return Ok(()) };
            self.pace.pay(length as u64, &work.options.stop);
            let count = match read_fully(direct.unwrap_or(&file.source), bytes, offset) {
                // Refused only when it comes to reading.
                Err(error) if direct.is_some() && error.kind() == io::ErrorKind::InvalidInput => {
                    file.cold.refuse();
                    way_end = offset;
                    continue;
                }
                read => read.map_err(|error| Error::io("read", &path(), error))?,
            };
            if count < length {
                return Err(changed_meanwhile(&path()));
            }
            let first =
                first_block(&file.entry, work.layout) + offset / work.layout.page_size as u64;
            let judged = judge_pages(bytes, first, work.layout);
            let written = self.write(file, direct, offset, bytes, &judged)?;
            self.tell(file, offset, length as u64, written, judged);
            offset += length as u64;
        }
        Ok(())
    }

    /// The end of the hole that begins at `offset`, where a copy may leave it one.
    fn hole(&self, piece: &Piece, offset: u64) -> Option<u64> {
        if self.work.copy.is_none() || piece.file.is_clone {
            return None;
        }
        let page = self.work.layout.page_size as u64;
        let end = stretches::hole_end(&piece.file.source, offset)?.min(piece.range.end);
        // Pages that are hole only in part are read.
        let end = end - end % page;
        (end > offset).then_some(end)
    }

    fn pass_hole(&self, length: u64) {
        lock(&self.result).pages.empty += length / self.work.layout.page_size as u64;
        self.work.progress.advance(length);
    }

    /// Writes what has to be, by `direct` what was read by it; how many bytes.
    fn write(
        &self,
        file: &OpenFile,
        direct: Option<&File>,
        offset: u64,
        bytes: &[u8],
        judged: &Judged,
    ) -> Result<u64, Error> {
        let work = self.work;
        if !judged.damaged.is_empty() {
            self.damage.store(true, Ordering::Relaxed);
        }
        // Pages that fail are known by now or not: what is written before is
        // right under either setting.
        let stays = self.damage.load(Ordering::Relaxed) && !work.skip_damaged;
        let Some(target) = file.target.as_ref().filter(|_| work.writes() && !stays) else {
            return Ok(0);
        };
        let whole = 0..bytes.len();
        let copied = work.copy.is_some() && !file.is_clone;
        let wanted = if copied { std::slice::from_ref(&whole) } else { judged.changed.as_slice() };
        let is_past = work.copy.is_none() && wanted.len() <= STRETCHES_PAST_MAX;
        let direct = direct.filter(|_| is_past);
        let mut sum = 0;
        for stretch in wanted {
            let Some(part) = bytes.get(stretch.clone()) else { continue };
            let at = offset + stretch.start as u64;
            self.pace.pay(part.len() as u64, &work.options.stop);
            match direct {
                Some(direct) => work.disk.write_past(target, direct, part, at),
                None => work.disk.write_at(target, part, at),
            }
            .map_err(|error| Error::io("write", &target.path, error))?;
            sum += part.len() as u64;
            stretches::add(&mut lock(&file.marks).written, at..at + part.len() as u64);
        }
        if sum > 0 && work.options.sync && direct.is_none() {
            write_back::begin(&target.file, &(offset..offset + bytes.len() as u64));
        }
        Ok(sum)
    }

    fn tell(&self, file: &OpenFile, offset: u64, length: u64, written: u64, judged: Judged) {
        let first = first_block(&file.entry, self.work.layout);
        let mut result = lock(&self.result);
        result.bytes_read += length;
        result.bytes_written += written;
        result.pages += PageTally { damaged: judged.damaged.len() as u64, ..judged.tally };
        for (at, kind, detail) in judged.damaged {
            let at = offset + at as u64;
            lock(&file.marks).damaged.push(at);
            let block = first + at / self.work.layout.page_size as u64;
            result.findings.push(damage(&file.name, block, at, kind, detail));
        }
        drop(result);
        self.work.progress.advance(length);
    }

    /// All of a file is written: it waits for others, or they for it.
    fn finish(&self, file: &Arc<OpenFile>) -> Result<(), Error> {
        self.settle(&self.batch.add(Arc::clone(file), file.entry.length))
    }

    /// Makes files durable, reads them back, and says so.
    fn settle(&self, batch: &[Arc<OpenFile>]) -> Result<(), Error> {
        let work = self.work;
        if self.damage.load(Ordering::Relaxed) && !work.skip_damaged {
            return Ok(());
        }
        let targets = || batch.iter().filter_map(|file| Some((file, file.target.as_ref()?)));
        let mut unwritten = Vec::new();
        for (file, target) in targets() {
            if work.copy.is_some() {
                let like = file.source.metadata();
                like.and_then(|like| work.disk.set_attributes(target, &like))
                    .map_err(|error| Error::io("copy to", &target.path, error))?;
            } else if work.done.is_none() && lock(&file.marks).written.is_empty() {
                unwritten.push(target);
                continue;
            }
            sync(work.disk, work.options, target)?;
        }
        sync_unwritten(work.disk, work.options, &unwritten)?;
        targets().try_for_each(|(file, target)| self.conclude(file, target))
    }

    /// A file is durable: reads back what was written, and says that it is done.
    fn conclude(&self, file: &OpenFile, target: &Written) -> Result<(), Error> {
        let work = self.work;
        let mut marks = std::mem::take(&mut *lock(&file.marks));
        if work.done.is_some() {
            marks.written.clear();
            marks.written.push(0..file.entry.length);
        }
        if work.options.verify {
            let first = first_block(&file.entry, work.layout);
            let bytes = read_back(target, &marks, first, work.layout, &self.pace, work.options)?;
            lock(&self.result).bytes_verified += bytes;
        }
        if let Some(journal) = work.journal.as_ref().filter(|_| marks.damaged.is_empty()) {
            let metadata =
                target.file.metadata().map_err(|error| Error::io("sync", &target.path, error))?;
            lock(journal)
                .record(&file.name, Stamp::of(&metadata))
                .map_err(|error| Error::io("write the journal of", &target.path, error))?;
        }
        Ok(())
    }
}

impl OpenFile {
    /// For what goes past the page cache: the file itself to read and write, where it
    /// is changed in place, and else to read.
    fn open_direct(&self, path: &Path) -> Option<File> {
        let direct = match self.target.as_ref().filter(|target| target.path == path) {
            Some(target) => target.open_direct(),
            None => read_direct(path, &self.source),
        };
        // Nothing is to be read ahead into the cache of what is read past it.
        direct.inspect(|_| expect_random_reads(&self.source))
    }
}

#[cfg(target_os = "linux")]
fn read_direct(path: &Path, source: &File) -> Option<File> {
    let (file, _) = pagewarden_core::source::file::open_direct(path).ok()?;
    is_same_file(&file, source).ok()?.then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn read_direct(_: &Path, _: &File) -> Option<File> {
    None
}

/// The number of the first block in a file.
fn first_block(entry: &Entry, layout: Layout) -> u64 {
    u64::from(entry.file.segment).saturating_mul(layout.segment_pages)
}

fn changed_meanwhile(path: &Path) -> Error {
    Error::changed(
        path,
        "its length changed while it was worked on",
        "see that no server and no other program changes this data directory",
    )
}

pub(super) fn server_came(path: &Path) -> Error {
    Error::in_use(
        path,
        "a server was started on this cluster meanwhile, so nothing more is written",
        "stop it cleanly, and run this again",
    )
}

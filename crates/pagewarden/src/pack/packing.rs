//! Makes a pack while a target is verified: what compresses is a witness, which
//! sees the pages once they are judged. What no page format looks at is read
//! afterwards.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pagewarden_core::system::{Identity, identity};

use crate::database::{PageFile, Step, Target};
use crate::error::Error;
use crate::pack::SPAN_BYTES;
use crate::pack::codec::Settings;
use crate::pack::content::Content;
use crate::pack::lock;
use crate::pack::read::{Pack, Root};
use crate::pack::table::What;
use crate::pack::write::{Scratch, Totals, Writer};
use crate::page::standings::Standings;
use crate::page::{PageRun, Witness};
use crate::source::file::{open_regular, read_fully};
use crate::source::rate::RateLimiter;
use crate::verdict::{ByteOffset, PageNo};
use crate::verify::Progress;

/// Memory of spans that is kept for the next ones.
const SPARES_MAX: usize = 16;
/// Page sizes are multiples of this.
const SECTOR_BYTES: usize = 512;

/// A pack that is being made.
pub struct Packing<W> {
    content: Arc<Content>,
    shared: Arc<Shared<W>>,
}

struct Shared<W> {
    writer: Writer<W>,
    scratches: Mutex<Vec<Scratch>>,
    /// Memory of spans that were put together: new memory costs more than a copy.
    spares: Mutex<Vec<Vec<u8>>>,
    failed: Mutex<Option<io::Error>>,
    /// Ends the run early: no use in going on once it failed.
    stop: Arc<AtomicBool>,
}

impl<W> fmt::Debug for Packing<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packing").field("content", &self.content).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> Packing<W> {
    /// Begins a pack of `content`, as a delta if there is a base, and returns it with
    /// the target to verify instead.
    /// `stop` is set when the pack cannot be written.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn begin(
        target: Target,
        content: Content,
        settings: Settings,
        base: Option<Arc<Pack>>,
        out: W,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<(Target, Self)> {
        let writer = Writer::begin_delta(out, settings, content.entries.clone(), base)?;
        let shared = Arc::new(Shared {
            writer,
            scratches: Mutex::default(),
            spares: Mutex::default(),
            failed: Mutex::default(),
            stop: Arc::clone(stop),
        });
        let numbers = content.numbers();
        let packing = Self { content: Arc::new(content), shared: Arc::clone(&shared) };
        let steps = target.steps.map(move |step| match step {
            Step::File(mut file) => {
                if let Some(number) = number_of(&file, &numbers) {
                    file.witnesses.push(Arc::new(FileSpans::new(&file, number, &shared)));
                }
                Step::File(file)
            }
            other => other,
        });
        Ok((Target { steps: Box::new(steps), ..target }, packing))
    }

    /// Reads and packs what no page format has looked at, once the target was
    /// verified; at most as many bytes a second as `rate` allows.
    ///
    /// # Errors
    /// A file cannot be read, or has changed since it was listed, or the pack
    /// cannot be written. [`io::ErrorKind::Interrupted`] if it was stopped.
    pub fn pack_rest(
        &self,
        jobs: usize,
        rate: Option<NonZero<u64>>,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let pace = RateLimiter::new(rate);
        let next = AtomicUsize::new(0);
        let first = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    while lock(&first).is_none() {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.content.entries.len() {
                            break;
                        }
                        if let Err(error) = self.pack_file(number, &pace, progress) {
                            lock(&first).get_or_insert(error);
                        }
                    }
                });
            }
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => self.content.check_unchanged(),
        }
    }

    fn pack_file(
        &self,
        number: usize,
        pace: &RateLimiter,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let is_file = |what: What| what != What::Folder;
        if !self.content.entries.get(number).is_some_and(|entry| is_file(entry.what)) {
            return Ok(());
        }
        let missing = self.shared.writer.missing(number);
        if missing.is_empty() {
            return Ok(());
        }
        let path = self.content.path(number);
        let file = open_regular(&path).map_err(|error| Error::io("open", &path, error))?;
        if !self.content.is_listed(number, &file) {
            // A folder on the way to it may have become a link.
            let reason = "another file has taken its place while it was packed";
            return Err(Error::changed(&path, reason, "shut the server down, and pack again"));
        }
        let mut buffer = vec![0; SPAN_BYTES];
        for span in missing {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(Error::io("pack", &path, io::ErrorKind::Interrupted.into()));
            }
            let count = self.shared.writer.span_bytes(number, span);
            pace.pay(count as u64, &self.shared.stop);
            let bytes = buffer.get_mut(..count).unwrap_or_default();
            let read = read_fully(&file, bytes, span.saturating_mul(SPAN_BYTES as u64))
                .map_err(|error| Error::io("read", &path, error))?;
            if read < count {
                let reason = "it became shorter while it was packed";
                return Err(Error::changed(&path, reason, "shut the server down, and pack again"));
            }
            progress.advance(count as u64);
            self.shared
                .add(number, span, bytes)
                .map_err(|error| Error::io("pack", &path, error))?;
        }
        Ok(())
    }

    /// Writes the end of the pack with the report of the check. Returns the writer.
    ///
    /// # Errors
    /// Not all could be written.
    pub fn finish(self, report: &[u8]) -> io::Result<(W, Root, Totals)> {
        let shared = Arc::try_unwrap(self.shared)
            .map_err(|_| io::Error::other("the files are still being read"))?;
        if let Some(error) = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let (out, root, totals) = shared.writer.finish(report)?;
        Ok((out, Root(root), totals))
    }

    /// Why the run was stopped, if that was because the pack could not be written.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        lock(&self.shared.failed).take()
    }
}

/// The entry that a file of pages is, whatever path leads to it.
fn number_of(file: &PageFile, numbers: &HashMap<Identity, usize>) -> Option<usize> {
    if file.selection.is_some() {
        return None;
    }
    let metadata = fs::symlink_metadata(&file.path).ok()?;
    numbers.get(&identity(&metadata, &file.path).ok()?).copied()
}

impl<W: Write> Shared<W> {
    fn add(&self, file: usize, span: u64, bytes: &[u8]) -> io::Result<()> {
        let kept = lock(&self.scratches).pop();
        let mut scratch = match kept {
            Some(scratch) => scratch,
            None => self.writer.scratch()?,
        };
        let added = self.writer.add(&mut scratch, file, span, bytes);
        lock(&self.scratches).push(scratch);
        added
    }
}

/// Puts the pages of a file together to spans.
struct FileSpans<W> {
    shared: Arc<Shared<W>>,
    file: usize,
    first_page: PageNo,
    first_offset: ByteOffset,
    page_size: u64,
    partial: Mutex<HashMap<u64, Partial>>,
}

impl<W> fmt::Debug for FileSpans<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSpans").field("file", &self.file).finish_non_exhaustive()
    }
}

/// A span that not all pages of were seen.
struct Partial {
    bytes: Vec<u8>,
    is_there: Vec<bool>,
}

impl<W: Write + Send> FileSpans<W> {
    fn new(file: &PageFile, number: usize, shared: &Arc<Shared<W>>) -> Self {
        Self {
            shared: Arc::clone(shared),
            file: number,
            first_page: file.first_page,
            first_offset: file.first_offset,
            page_size: file.format.page_size() as u64,
            partial: Mutex::default(),
        }
    }

    fn add(&self, span: u64, bytes: &[u8]) {
        if let Err(error) = self.shared.add(self.file, span, bytes) {
            lock(&self.shared.failed).get_or_insert(error);
            self.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Adds a part of a span; returns all of it when it is the last one.
    fn complete(&self, span: u64, length: usize, begin: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut partial = lock(&self.partial);
        let span_so_far = partial.entry(span).or_insert_with(|| {
            // All of it is overwritten before it counts.
            let mut bytes = lock(&self.shared.spares).pop().unwrap_or_default();
            bytes.resize(length, 0);
            Partial { bytes, is_there: vec![false; length.div_ceil(SECTOR_BYTES)] }
        });
        let end = begin.saturating_add(bytes.len());
        span_so_far.bytes.get_mut(begin..end)?.copy_from_slice(bytes);
        let sectors = begin / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        span_so_far.is_there.get_mut(sectors)?.fill(true);
        if !span_so_far.is_there.iter().all(|sector| *sector) {
            return None;
        }
        partial.remove(&span).map(|partial| partial.bytes)
    }
}

impl<W: Write + Send> Witness for FileSpans<W> {
    fn see(&self, run: PageRun<'_>, _: &Standings) {
        let page = run.first.0.saturating_sub(self.first_page.0);
        let begin = page.saturating_mul(self.page_size);
        let mut offset = self.first_offset.0.saturating_add(begin);
        let mut rest = run.bytes;
        while !rest.is_empty() {
            let span = offset / SPAN_BYTES as u64;
            let begin = usize::try_from(offset % SPAN_BYTES as u64).unwrap_or(0);
            let length = self.shared.writer.span_bytes(self.file, span);
            // What the file has grown by since is not part of the pack.
            let Some(room) = length.checked_sub(begin).filter(|room| *room > 0) else { return };
            let (bytes, others) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if bytes.len() == length {
                self.add(span, bytes);
            } else if let Some(whole) = self.complete(span, length, begin, bytes) {
                self.add(span, &whole);
                let mut spares = lock(&self.shared.spares);
                if spares.len() < SPARES_MAX {
                    spares.push(whole);
                }
            }
            offset = offset.saturating_add(bytes.len() as u64);
            rest = others;
        }
    }
}

//! Packs what comes as a stream, as one file of the very bytes that came.
//!
//! ```text
//! source --> tee --> target: decompressed, taken apart, verified
//!             |
//!             +----> spans --> compressed by threads --> writer
//! ```
//!
//! The target reads as much as it wants; what it leaves is read afterwards.

use std::fmt;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::pack::SPAN_BYTES;
use crate::pack::codec::Settings;
use crate::pack::lock;
use crate::pack::read::Root;
use crate::pack::table::{Attributes, Entry, UNKNOWN_BYTES, What};
use crate::pack::write::{Totals, Writer};
use crate::verify::Progress;

/// Bytes read at once of what the target has left of the stream.
const DRAIN_BYTES: usize = 256 << 10;
/// Of a file that came from nowhere: its owner's alone.
const MODE: u32 = 0o600;

/// A stream whose bytes are packed as they are read.
pub struct Tee {
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tee").finish_non_exhaustive()
    }
}

struct Inner {
    source: Box<dyn Read + Send>,
    /// What was read and is not handed on yet: a span at most.
    pending: Vec<u8>,
    spans: u64,
    bytes: u64,
    is_at_end: bool,
    /// `None` once it is at its end.
    sender: Option<SyncSender<Streamed>>,
}

/// A span to be packed.
struct Streamed {
    span: u64,
    /// It is the only one.
    is_all: bool,
    bytes: Vec<u8>,
}

impl Read for Tee {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        lock(&self.inner).read(bytes)
    }
}

impl Inner {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() || self.is_at_end {
            return Ok(0);
        }
        let count = self.source.read(bytes)?;
        let mut rest = bytes.get(..count).unwrap_or_default();
        if rest.is_empty() {
            self.is_at_end = true;
            if !self.pending.is_empty() {
                self.hand_on();
            }
            self.sender = None;
        }
        self.bytes = self.bytes.saturating_add(count as u64);
        while !rest.is_empty() {
            // Not before more has come: a span that is the whole stream is marked as such.
            if self.pending.len() == SPAN_BYTES {
                self.hand_on();
            }
            let room = SPAN_BYTES.saturating_sub(self.pending.len());
            let (now, later) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            self.pending.extend(now);
            rest = later;
        }
        Ok(count)
    }

    fn hand_on(&mut self) {
        let bytes = std::mem::replace(&mut self.pending, Vec::with_capacity(SPAN_BYTES));
        let is_all = self.is_at_end && self.spans == 0;
        if let Some(sender) = &self.sender {
            // Once packing has failed no thread may receive this; `finish` reports that failure.
            let _ = sender.send(Streamed { span: self.spans, is_all, bytes });
        }
        self.spans = self.spans.saturating_add(1);
    }
}

/// A pack of a stream that is being made.
pub struct StreamPacking<W> {
    inner: Arc<Mutex<Inner>>,
    writer: Arc<Writer<W>>,
    workers: Vec<JoinHandle<()>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl<W> fmt::Debug for StreamPacking<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPacking").finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> StreamPacking<W> {
    /// Begins a pack of `source`, as a file of this name, and returns it with what to
    /// read in the place of the source. `stop` is set when the pack cannot be written.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn begin(
        source: Box<dyn Read + Send>,
        name: PathBuf,
        settings: Settings,
        jobs: NonZero<usize>,
        out: W,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<(Tee, Self)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attributes = Attributes {
            mode: MODE,
            owner: pagewarden_core::system::process::geteuid().as_raw(),
            group: pagewarden_core::system::process::getegid().as_raw(),
            modified_seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            modified_nanoseconds: now.subsec_nanos(),
        };
        let what = What::File { bytes: UNKNOWN_BYTES, has_holes: false, hash: [0; 32] };
        let entry = Entry { name, attributes, what, link: None };
        let writer = Arc::new(Writer::begin(out, settings, vec![entry])?);
        let (sender, receiver) = sync_channel(jobs.get());
        let receiver = Arc::new(Mutex::new(receiver));
        let failed: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let workers = (0..jobs.get())
            .map(|_| {
                let (writer, receiver) = (Arc::clone(&writer), Arc::clone(&receiver));
                let (failed, stop) = (Arc::clone(&failed), Arc::clone(stop));
                std::thread::spawn(move || {
                    if let Err(error) = work(&writer, &receiver) {
                        lock(&failed).get_or_insert(error);
                        stop.store(true, Ordering::Relaxed);
                        // So that the reader of the stream is not kept waiting.
                        while next(&receiver).is_some() {}
                    }
                })
            })
            .collect();
        let inner = Arc::new(Mutex::new(Inner {
            source,
            pending: Vec::with_capacity(SPAN_BYTES),
            spans: 0,
            bytes: 0,
            is_at_end: false,
            sender: Some(sender),
        }));
        Ok((Tee { inner: Arc::clone(&inner) }, Self { inner, writer, workers, failed }))
    }

    /// Reads what the target has left of the stream.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn drain(&self, stop: &AtomicBool, progress: &dyn Progress) -> io::Result<()> {
        let mut bytes = vec![0; DRAIN_BYTES];
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match lock(&self.inner).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => progress.advance(count as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends without a pack: what was written is dropped when this returns, and not at some time later.
    pub fn give_up(self) {
        lock(&self.inner).sender = None;
        for worker in self.workers {
            // What it came to is of no use any more.
            let _ = worker.join();
        }
    }

    /// Why the run was stopped, if that was because the pack could not be written.
    #[must_use]
    pub fn failure(&self) -> Option<io::Error> {
        lock(&self.failed).take()
    }

    /// Writes the end of the pack with the report of the check. Returns the writer.
    ///
    /// # Errors
    /// Not all was read, or could be written.
    pub fn finish(self, report: &[u8]) -> io::Result<(W, Root, Totals)> {
        let bytes = {
            let inner = lock(&self.inner);
            if !inner.is_at_end {
                return Err(io::Error::other("not all of the stream was read"));
            }
            inner.bytes
        };
        for worker in self.workers {
            worker.join().map_err(|_| io::Error::other("a thread that compresses has died"))?;
        }
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let writer = Arc::try_unwrap(self.writer)
            .map_err(|_| io::Error::other("the stream is still being packed"))?;
        let (out, root, totals) = writer.finish_streamed(bytes, report)?;
        Ok((out, Root(root), totals))
    }
}

fn next(receiver: &Mutex<Receiver<Streamed>>) -> Option<Streamed> {
    lock(receiver).recv().ok()
}

fn work<W: Write>(writer: &Writer<W>, receiver: &Mutex<Receiver<Streamed>>) -> io::Result<()> {
    let mut scratch = writer.scratch()?;
    while let Some(Streamed { span, is_all, bytes }) = next(receiver) {
        writer.add_streamed(&mut scratch, span, is_all, &bytes)?;
    }
    Ok(())
}

//! Reads files of a pack, for several threads at once and ahead of those who go
//! through a file: what a mounted pack and a packed SQLite database stand on.
//!
//! ```text
//! read_at --> detector: who goes through the file? --> jobs --> threads that expand
//!    |                                                              |
//!    +--> cache: held, awaited, or claimed and expanded here <------+
//! ```
//!
//! Lookups never hand work to another thread: cached blocks are copied without touching the
//! index; missing ones are read and expanded by the caller.
//!
//! Stored bytes of blocks that lie beside each other are read at once, after the
//! system was asked to fetch them. Each block is tested by its sum whenever it is
//! expanded. What goes wrong ahead of a reader is forgotten: the reader that needs the
//! block finds it absent, tries again, and gets the error.
//!
//! Memory: the cache's bytes, a job for each thread, buffers that are put by for those who look
//! something up, and 16 MiB of the index at most.
//! The threads do not survive a fork of the process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::pack::cache::{Block, Buffers, Cache, Claim, Found, Key};
use crate::pack::codec::{Codec, Decoder};
use crate::pack::layout::{BlockEntry, span_bytes};
use crate::pack::lock;
use crate::pack::read::{Kept, Pack, SpanPlace};
use crate::pack::read_ahead::{Detector, JOB_BYTES};
use crate::pack::table::Entry;
use crate::pack::{PackError, SPAN_BYTES};

/// What leaves of the index may take.
const LEAVES_BYTES_MAX: usize = 16 << 20;
/// Bytes of buffers that are kept ready for lookups. Twice as many at a time would have a thread
/// take the processor from the lookups for longer (`docs/packs-profiles.md`).
const PREPARED_BYTES: usize = 64 << 10;
/// Contexts that are kept for threads of others.
const SCRATCHES_MAX: usize = 16;
const NO_BLOCK: PackError = PackError::Hostile("there is no such block");
const SPAN_WITHOUT_RECORD: PackError = PackError::Hostile("a span without a record has contents");

/// How much a [`Reader`] may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderSettings {
    /// Threads that expand blocks ahead of readers; with none, nothing is read ahead.
    pub threads: usize,
    /// Bytes of expanded blocks that are kept.
    pub cache_bytes: usize,
    /// How far ahead of a reader blocks are expanded.
    pub window_bytes: usize,
    /// Keep blocks that were looked up as a whole. Set to false where callers cache results
    /// themselves, as the kernel does for a mount.
    pub keeps_lookups: bool,
}

impl Default for ReaderSettings {
    /// A thread for each core, 64 MiB, 4 MiB ahead, and lookups are kept.
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Self { threads, cache_bytes: 64 << 20, window_bytes: 4 << 20, keeps_lookups: true }
    }
}

/// Reads files of a pack from anywhere, by any number of threads.
pub struct Reader {
    shared: Arc<Shared>,
    detector: Mutex<Detector>,
    settings: ReaderSettings,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader with threads of its own, which end when it is dropped.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(pack: Arc<Pack>, settings: ReaderSettings) -> io::Result<Self> {
        let spare = settings.window_bytes / pack.block_bytes().max(1);
        // The threads do this first. Without threads it stays undone, and none is woken for it.
        let jobs =
            Jobs { lacks_buffers: settings.keeps_lookups, next_leaf: Some(0), ..Jobs::default() };
        let shared = Arc::new(Shared {
            cache: Cache::new(settings.cache_bytes),
            buffers: Buffers::new(spare.clamp(4, 1024)),
            leaves: Mutex::default(),
            scratches: Mutex::default(),
            jobs: Mutex::new(jobs),
            queued_bytes: AtomicU64::new(0),
            changed: Condvar::new(),
            keeps_lookups: settings.keeps_lookups,
            pack,
        });
        // Who looks something up waits for one read of one block: not for what the system
        // would read around it, and not for the index before it.
        shared.pack.expect_lookups();
        shared.pack.want_index(LEAVES_BYTES_MAX as u64);
        let mut reader = Self {
            shared: Arc::clone(&shared),
            detector: Mutex::new(Detector::new(settings.window_bytes as u64)),
            settings,
            threads: Vec::new(),
        };
        for _ in 0..settings.threads {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name("pack-reader".to_owned());
            // An error ends those that were started: they go with the reader.
            reader.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(reader)
    }

    /// The pack it reads.
    #[must_use]
    pub fn pack(&self) -> &Pack {
        &self.shared.pack
    }

    /// Bytes of a file from `offset` on, as many as there are room for and are in
    /// it; says how many. `file` is its place in [`Pack::entries`].
    ///
    /// # Errors
    /// A block cannot be read, or is damaged: then what is in `out` is not to be used.
    pub fn read_at(&self, file: usize, offset: u64, out: &mut [u8]) -> Result<usize, PackError> {
        let file_bytes = self.shared.file_bytes(file);
        let end = offset.saturating_add(out.len() as u64).min(file_bytes);
        let count = index(end.saturating_sub(offset));
        let Some(mut rest) = out.get_mut(..count).filter(|out| !out.is_empty()) else {
            return Ok(0);
        };
        let is_stream = self.note(file, file_bytes, offset..end);
        if self.shared.read_held(file, offset, rest, is_stream) {
            return Ok(count);
        }
        let mut at = offset;
        while !rest.is_empty() {
            let in_span = (SPAN_BYTES as u64).saturating_sub(at % SPAN_BYTES as u64);
            let (part, others) = rest.split_at_mut(index(in_span).min(rest.len()));
            at = self.shared.read_in_span(file, at, part, is_stream)?;
            rest = others;
        }
        Ok(count)
    }

    /// Tells the detector of a request, and queues what it advises. True for a reader that
    /// goes through the file.
    fn note(&self, file: usize, file_bytes: u64, asked: Range<u64>) -> bool {
        if self.threads.is_empty() {
            return false;
        }
        let queued = self.shared.queued_bytes.load(Ordering::Relaxed);
        let taken = (self.shared.cache.unread_bytes() as u64).saturating_add(queued);
        // Readers that stand still must not leave those without room that go on.
        let room = (self.settings.cache_bytes as u64 / 2).saturating_sub(taken);
        let advice = lock(&self.detector).request(file, file_bytes, asked, room);
        if let Some(ahead) = advice.ahead {
            self.shared.queue(file, ahead);
        }
        advice.is_stream
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.shared.jobs).is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What readers and threads share.
struct Shared {
    pack: Arc<Pack>,
    cache: Cache,
    buffers: Arc<Buffers>,
    leaves: Mutex<Leaves>,
    /// For threads that are not ours.
    scratches: Mutex<Vec<Scratch>>,
    jobs: Mutex<Jobs>,
    /// Of jobs that wait and of those under way.
    queued_bytes: AtomicU64,
    changed: Condvar,
    keeps_lookups: bool,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// Those who look something up run out of buffers.
    lacks_buffers: bool,
    /// The leaf of the index that is to be loaded next, unless a thread is loading one.
    next_leaf: Option<u64>,
    is_over: bool,
}

/// What one of our threads does next.
#[derive(Debug)]
enum Task {
    Expand(Job),
    PrepareBuffers,
    LoadLeaf(u64),
}

/// What is left to be filled for a reader, and where in the file that is.
struct Filling<'a> {
    at: u64,
    rest: &'a mut [u8],
}

impl Filling<'_> {
    /// Fills as much as there is, and says how much. To fill nothing is an error: the caller
    /// would never end.
    fn copy(&mut self, bytes: &[u8]) -> Result<usize, PackError> {
        let (part, count) = self.part(bytes.len())?;
        part.copy_from_slice(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    /// The same with zeroes, `most` of them.
    fn zero(&mut self, most: usize) -> Result<(), PackError> {
        self.part(most)?.0.fill(0);
        Ok(())
    }

    fn part(&mut self, most: usize) -> Result<(&mut [u8], usize), PackError> {
        let count = most.min(self.rest.len());
        if count == 0 {
            return Err(NO_BLOCK);
        }
        let (part, rest) = std::mem::take(&mut self.rest).split_at_mut(count);
        self.rest = rest;
        self.at = self.at.saturating_add(count as u64);
        Ok((part, count))
    }
}

/// Blocks of one span to be expanded ahead of a reader.
#[derive(Debug)]
struct Job {
    file: usize,
    blocks: Range<u64>,
    bytes: u64,
}

/// What a thread needs for expanding.
#[derive(Debug)]
struct Scratch {
    decoder: Decoder,
    stored: Vec<u8>,
    /// For what a delta builds on.
    base: Kept,
}

/// Spans of a leaf of the index.
type Leaf = Arc<Vec<SpanPlace>>;

/// Leaves of the index that were read last.
#[derive(Debug, Default)]
struct Leaves {
    held: HashMap<u64, (Leaf, u64)>,
    held_bytes: usize,
    clock: u64,
}

impl Shared {
    fn file_bytes(&self, file: usize) -> u64 {
        self.pack.entries().get(file).map_or(0, Entry::bytes)
    }

    fn blocks_in_span(&self) -> u64 {
        (SPAN_BYTES / self.pack.block_bytes()) as u64
    }

    /// Bytes of a block, of which a file's last one has fewer.
    fn block_len(&self, file: usize, span: u64, within: usize) -> usize {
        let begin = within.saturating_mul(self.pack.block_bytes());
        let in_span = span_bytes(self.file_bytes(file), span);
        in_span.saturating_sub(begin).min(self.pack.block_bytes())
    }

    /// The places of a leaf's spans, and which of them is that of this span.
    fn leaf(&self, file: usize, span: u64) -> Result<(Leaf, usize), PackError> {
        let (number, within) = self.pack.leaf_of(file, span)?;
        Ok((self.numbered_leaf(number)?, within))
    }

    fn numbered_leaf(&self, number: u64) -> Result<Leaf, PackError> {
        if let Some(leaf) = lock(&self.leaves).get(number) {
            return Ok(leaf);
        }
        let leaf = Arc::new(self.pack.load_leaf(number)?);
        lock(&self.leaves).keep(number, &leaf);
        Ok(leaf)
    }

    /// Fills `out` from one span of a file, and says where it ends in the file.
    fn read_in_span(
        &self,
        file: usize,
        offset: u64,
        out: &mut [u8],
        is_stream: bool,
    ) -> Result<u64, PackError> {
        let block_bytes = self.pack.block_bytes() as u64;
        let span = offset / SPAN_BYTES as u64;
        let (leaf, number) = self.leaf(file, span)?;
        let place = leaf.get(number).ok_or(NO_BLOCK)?;
        let end = offset.saturating_add(out.len() as u64);
        let mut filling = Filling { at: offset, rest: out };
        while filling.at < end {
            let block = filling.at / block_bytes;
            let key = (file, block);
            let begin = index(filling.at % block_bytes);
            let within = index(block % self.blocks_in_span());
            let entry = place.blocks.get(within).ok_or(NO_BLOCK)?;
            if entry.codec == Codec::Zero {
                filling.zero(self.block_len(file, span, within).saturating_sub(begin))?;
                continue;
            }
            match self.cache.find(key) {
                Found::Held(block) => self.copy(&mut filling, key, &block, is_stream)?,
                Found::Awaited(flight) => {
                    // If the thread that had claimed it failed, perhaps this one does not; if
                    // it does, it can say why.
                    if let Some(block) = flight.wait() {
                        self.copy(&mut filling, key, &block, is_stream)?;
                    }
                }
                Found::Absent(claim) => {
                    let whole = self.block_len(file, span, within);
                    let is_all = begin == 0 && filling.rest.len() == whole;
                    if is_all && !is_stream && !self.keeps_lookups && entry.codec != Codec::Base {
                        let (out, _) = filling.part(whole)?;
                        // Who waits for it meanwhile expands it in turn.
                        self.expand_into(&claim, place, *entry, out)?;
                        continue;
                    }
                    let last = end.saturating_sub(1) / block_bytes;
                    let claims = self.claim_more(claim, place, last);
                    let mut scratch = self.scratch();
                    let blocks = self.expand(&mut scratch, place, claims, false);
                    self.put_back(scratch);
                    if !is_stream {
                        self.look_after_buffers();
                    }
                    for (number, block) in (block..).zip(blocks?) {
                        self.copy(&mut filling, (file, number), &block, is_stream)?;
                    }
                }
            }
        }
        Ok(filling.at)
    }

    /// Fills `out` if it lies in one block that is held. False, and nothing is done, if
    /// it does not.
    fn read_held(&self, file: usize, offset: u64, out: &mut [u8], is_stream: bool) -> bool {
        let block_bytes = self.pack.block_bytes() as u64;
        let (block, begin) = (offset / block_bytes, index(offset % block_bytes));
        let end = begin.saturating_add(out.len());
        if end > self.pack.block_bytes() {
            return false;
        }
        let key = (file, block);
        let Some(held) = self.cache.held(key) else { return false };
        let Some(bytes) = held.bytes.get(begin..end) else { return false };
        out.copy_from_slice(bytes);
        if is_stream && end == held.bytes.len() {
            self.cache.finished(key, self.file_bytes(key.0));
        }
        true
    }

    /// Copies what there is to be copied from a block.
    fn copy(
        &self,
        filling: &mut Filling<'_>,
        key: Key,
        block: &Block,
        is_stream: bool,
    ) -> Result<(), PackError> {
        let begin = index(filling.at % self.pack.block_bytes() as u64);
        let bytes = block.bytes.get(begin..).unwrap_or_default();
        let count = filling.copy(bytes)?;
        if is_stream && count == bytes.len() {
            self.cache.finished(key, self.file_bytes(key.0));
        }
        Ok(())
    }

    /// Claims also what follows in the span, up to the block `last`, as long as it is
    /// absent.
    fn claim_more<'a>(&'a self, claim: Claim<'a>, place: &SpanPlace, last: u64) -> Vec<Claim<'a>> {
        let (file, first) = claim.key();
        let mut claims = vec![claim];
        for block in first.saturating_add(1)..=last {
            let within = index(block % self.blocks_in_span());
            let entry = place.blocks.get(within).filter(|entry| entry.codec != Codec::Zero);
            match entry.and_then(|_| self.cache.claim((file, block))) {
                Some(claim) if within > 0 => claims.push(claim),
                _ => break,
            }
        }
        claims
    }

    /// Expands blocks that lie one behind the other in a span. Those that are sound
    /// are published, whatever the others are.
    fn expand(
        &self,
        scratch: &mut Scratch,
        place: &SpanPlace,
        claims: Vec<Claim<'_>>,
        unread: bool,
    ) -> Result<Vec<Arc<Block>>, PackError> {
        let Some(first) = claims.first() else { return Ok(Vec::new()) };
        if place.begin == 0 {
            return Err(SPAN_WITHOUT_RECORD);
        }
        let first = index(first.key().1 % self.blocks_in_span());
        let entries = place.blocks.get(first..first.saturating_add(claims.len()));
        let entries = entries.unwrap_or_default();
        let count = stored_bytes(entries)?;
        let mut begin = place.block_begin(first);
        let stored = room(&mut scratch.stored, count);
        self.pack.stored(begin, stored)?;
        let mut stored = &*stored;
        let (mut blocks, mut damaged) = (Vec::with_capacity(claims.len()), None);
        for (claim, entry) in claims.into_iter().zip(entries) {
            let (file, number) = claim.key();
            let count = usize::try_from(entry.stored_bytes).unwrap_or(usize::MAX);
            let (bytes, others) = stored.split_at_checked(count).unwrap_or_default();
            stored = others;
            let (span, within) =
                (number / self.blocks_in_span(), index(number % self.blocks_in_span()));
            let mut block = self.buffers.block(self.block_len(file, span, within));
            let read = if entry.codec == Codec::Base {
                self.read_from_base(&mut scratch.base, (file, number), &mut block.bytes)
            } else if scratch.decoder.decode(*entry, bytes, &mut block.bytes) {
                Ok(())
            } else {
                Err(PackError::Damaged { part: "block", offset: begin })
            };
            match read {
                Ok(()) => blocks.push(claim.publish(block, unread)),
                Err(error) => {
                    damaged.get_or_insert(error);
                }
            }
            begin = begin.saturating_add(entry.stored_bytes.into());
        }
        damaged.map_or(Ok(blocks), Err)
    }

    /// Expands one block to where it is wanted, and keeps nothing: no memory is taken for
    /// it, and none let go.
    fn expand_into(
        &self,
        claim: &Claim<'_>,
        place: &SpanPlace,
        entry: BlockEntry,
        out: &mut [u8],
    ) -> Result<(), PackError> {
        if place.begin == 0 {
            return Err(SPAN_WITHOUT_RECORD);
        }
        let begin = place.block_begin(index(claim.key().1 % self.blocks_in_span()));
        let count = stored_bytes(&[entry])?;
        let mut scratch = self.scratch();
        let stored = room(&mut scratch.stored, count);
        let read = self.pack.stored(begin, stored).and_then(|()| {
            let is_sound = scratch.decoder.decode(entry, stored, out);
            is_sound.then_some(()).ok_or(PackError::Damaged { part: "block", offset: begin })
        });
        self.put_back(scratch);
        read
    }

    /// A block of a delta that lies in its base.
    fn read_from_base(
        &self,
        kept: &mut Kept,
        (file, block): Key,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let mut contents = self.pack.contents_with(std::mem::take(kept));
        let read = contents.block(file, block, out);
        *kept = contents.into_kept();
        read
    }

    fn scratch(&self) -> Scratch {
        let kept = lock(&self.scratches).pop();
        kept.unwrap_or_else(|| Scratch {
            decoder: self.pack.decoder(),
            stored: Vec::new(),
            base: Kept::default(),
        })
    }

    fn put_back(&self, scratch: Scratch) {
        let mut scratches = lock(&self.scratches);
        if scratches.len() < SCRATCHES_MAX {
            scratches.push(scratch);
        }
    }

    /// Has a stretch of a file expanded.
    fn queue(&self, file: usize, ahead: Range<u64>) {
        let block_bytes = self.pack.block_bytes() as u64;
        let mut jobs = Vec::new();
        let mut at = ahead.start;
        while at < ahead.end {
            let end = (at / JOB_BYTES * JOB_BYTES).saturating_add(JOB_BYTES).min(ahead.end);
            let blocks = at / block_bytes..end.div_ceil(block_bytes);
            // A span at once where one begins: long reads are fewer. For the others it
            // has been said before, unless the stream is new.
            let is_span = at.is_multiple_of(SPAN_BYTES as u64);
            let wanted = if is_span {
                self.blocks_in_span()
            } else {
                blocks.end.saturating_sub(blocks.start)
            };
            self.want(file, blocks.start, wanted);
            jobs.push(Job { file, blocks, bytes: end.saturating_sub(at) });
            at = end;
        }
        let bytes = jobs.iter().fold(0, |sum: u64, job| sum.saturating_add(job.bytes));
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        lock(&self.jobs).waiting.extend(jobs);
        self.changed.notify_all();
    }

    /// Tells the system what will be read: `count` blocks of a span, or as many as
    /// there are.
    fn want(&self, file: usize, block: u64, count: u64) {
        let (span, first) = (block / self.blocks_in_span(), index(block % self.blocks_in_span()));
        let Ok((leaf, number)) = self.leaf(file, span) else { return };
        let Some(place) = leaf.get(number) else { return };
        let end = first.saturating_add(index(count)).min(place.blocks.len());
        let entries = place.blocks.get(first..end).unwrap_or_default();
        if let Ok(count) = stored_bytes(entries) {
            self.pack.want(place.block_begin(first), count as u64);
        }
    }

    /// What our threads do.
    fn work(&self) {
        let mut scratch = self.scratch();
        while let Some(task) = self.next_task() {
            match task {
                Task::Expand(job) => {
                    // A reader that needs what cannot be read will meet the error.
                    let _ = self.expand_ahead(&mut scratch, &job);
                    self.queued_bytes.fetch_sub(job.bytes, Ordering::Relaxed);
                }
                Task::PrepareBuffers => {
                    self.buffers.prepare(self.pack.block_bytes(), self.prepared_buffers());
                }
                Task::LoadLeaf(number) => self.load_ahead(number),
            }
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.is_over {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(Task::Expand(job));
            }
            if std::mem::take(&mut jobs.lacks_buffers) {
                return Some(Task::PrepareBuffers);
            }
            if let Some(number) = jobs.next_leaf.take() {
                return Some(Task::LoadLeaf(number));
            }
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Loads a leaf of the index before a lookup needs it, which would wait for as long as two
    /// lookups take; and the next one, while there is room. One at a time: lookups have the
    /// other cores.
    fn load_ahead(&self, number: u64) {
        // A reader that needs what cannot be read will meet the error.
        let leaf_bytes = self.numbered_leaf(number).map_or(0, |leaf| leaf_bytes(&leaf));
        let next = number.saturating_add(1);
        let room = LEAVES_BYTES_MAX.saturating_sub(lock(&self.leaves).held_bytes);
        if next < self.pack.leaf_count() && leaf_bytes <= room {
            lock(&self.jobs).next_leaf = Some(next);
        }
    }

    /// How many buffers are kept ready.
    fn prepared_buffers(&self) -> usize {
        PREPARED_BYTES / self.pack.block_bytes()
    }

    /// Has buffers prepared where few are left: a page that is new from the system takes as long
    /// as a third of expanding one. Of long blocks there would be one, and a call for each.
    fn look_after_buffers(&self) {
        if self.buffers.spare() >= self.prepared_buffers() / 4 {
            return;
        }
        let mut jobs = lock(&self.jobs);
        if !std::mem::replace(&mut jobs.lacks_buffers, true) {
            drop(jobs);
            self.changed.notify_one();
        }
    }

    fn expand_ahead(&self, scratch: &mut Scratch, job: &Job) -> Result<(), PackError> {
        let (leaf, number) = self.leaf(job.file, job.blocks.start / self.blocks_in_span())?;
        let Some(place) = leaf.get(number) else { return Ok(()) };
        let last = job.blocks.end.saturating_sub(1);
        let mut block = job.blocks.start;
        while block <= last {
            let within = index(block % self.blocks_in_span());
            let entry = place.blocks.get(within).filter(|entry| entry.codec != Codec::Zero);
            let claim = entry.and_then(|_| self.cache.claim((job.file, block)));
            let count = match claim {
                None => 1,
                Some(claim) => {
                    let claims = self.claim_more(claim, place, last);
                    let count = claims.len();
                    // The next blocks may be sound.
                    let _ = self.expand(scratch, place, claims, true);
                    count
                }
            };
            block = block.saturating_add(count as u64);
        }
        Ok(())
    }
}

impl Leaves {
    fn get(&mut self, number: u64) -> Option<Leaf> {
        self.clock = self.clock.saturating_add(1);
        let (leaf, used) = self.held.get_mut(&number)?;
        *used = self.clock;
        Some(Arc::clone(leaf))
    }

    fn keep(&mut self, number: u64, leaf: &Leaf) {
        self.clock = self.clock.saturating_add(1);
        self.held_bytes = self.held_bytes.saturating_add(leaf_bytes(leaf));
        if let Some((other, _)) = self.held.insert(number, (Arc::clone(leaf), self.clock)) {
            self.held_bytes = self.held_bytes.saturating_sub(leaf_bytes(&other));
        }
        while self.held_bytes > LEAVES_BYTES_MAX && self.held.len() > 1 {
            let oldest = self.held.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else { break };
            if let Some((leaf, _)) = self.held.remove(&oldest) {
                self.held_bytes = self.held_bytes.saturating_sub(leaf_bytes(&leaf));
            }
        }
    }
}

/// What a leaf takes, about.
fn leaf_bytes(leaf: &[SpanPlace]) -> usize {
    let of_span = |place: &SpanPlace| {
        size_of::<SpanPlace>().saturating_add(size_of_val::<[BlockEntry]>(&place.blocks))
    };
    leaf.iter().map(of_span).sum()
}

/// What these blocks take in the pack.
fn stored_bytes(entries: &[BlockEntry]) -> Result<usize, PackError> {
    let sum =
        entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.stored_bytes.into()));
    // They are of one span, which is stored at its own length at most.
    match usize::try_from(sum) {
        Ok(sum) if sum <= SPAN_BYTES => Ok(sum),
        _ => Err(PackError::Hostile("a block is stored longer than it is")),
    }
}

/// `count` bytes of a buffer, which grows to as many as were ever asked for.
fn room(buffer: &mut Vec<u8>, count: usize) -> &mut [u8] {
    if buffer.len() < count {
        buffer.resize(count, 0);
    }
    buffer.get_mut(..count).unwrap_or_default()
}

/// A number that is known to be small.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;

//! Blocks of a pack that were expanded and tested, kept in memory for all processes of a user.
//!
//! A process that has just begun holds nothing expanded, and may not live long enough for that to
//! pay. So a process that expands a block of a file puts it into a *store*: a file in a tmpfs that
//! holds the packed file as it is, with holes where no process has put a block yet. What is there
//! is read from there as from the page cache, without being tested again; that is why a store
//! lies in memory and nowhere else.
//!
//! All numbers are little-endian:
//!
//! ```text
//! offset  size  field
//!      0     8  "PWEXPAND"
//!      8     4  version, 1
//!     12     4  bytes in a block
//!     16     8  bytes of the file
//!     24    32  whose blocks these are: see `identity`
//!   4096        for each block a byte: 1 if it is there
//!               at the next multiple of 4096 the file
//! ```
//!
//! A block is written before its byte is, each by a call of its own, so that a process that is
//! killed meanwhile leaves it absent. Two processes that put the same block write the same bytes,
//! and no process ever takes a block out. Nothing is mapped: a file that is cut would be a signal.
//!
//! A store belongs to one user (mode 0600, tested when it is opened), and to one file of a pack as
//! it lies there: not to the root alone, since a pack that was altered may claim any root, and
//! blocks are tested by sums that anybody can compute.

#[cfg(target_os = "linux")]
mod place;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use pagewarden_core::system::{FileExt as _, MetadataExt as _};

use crate::pack::lock;
use crate::pack::read::Pack;
use crate::pack::reader::Reader;
use crate::pack::table::Entry;
use crate::pack::{PackError, Root};
use crate::source::file::{read_at, read_fully};
use crate::source::memory;

const BEGIN: &[u8; 8] = b"PWEXPAND";
const VERSION: u32 = 1;
/// Bytes before the states of blocks; the states take a multiple of it.
const HEAD_BYTES: u64 = 4096;
const HEAD_USED_BYTES: usize = 56;
/// The state of a block that is there.
const READY: u8 = 1;
/// States that are read at once.
const LOOK: usize = 512;
/// Each time a store takes this number of bytes more, it is asked whether there is room.
const ROOM_STEP_BYTES: u64 = 4 << 20;
/// What is read at once for who goes through the file.
const AHEAD_BYTES: usize = 32 << 10;
/// This number of reads one behind the other is no chance: now and then lookups find a page
/// behind the one that leads to it.
const STEPS_MIN: u32 = 3;
/// So much may be skipped on the way.
const SLACK_BYTES: u64 = 16 << 10;
/// More buffers are not kept.
const BUFFERS_MAX: usize = 4;

/// What a store is good for.
const FILLING: u8 = 0;
/// What is there is read, and nothing is added.
const FULL: u8 = 1;
/// It is not what it was.
const GONE: u8 = 2;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpandedError {
    /// The folder can never hold one.
    #[error("{0}")]
    NoPlace(String),
    /// This one cannot be had; the pack can be read without it.
    #[error("{0}")]
    NotNow(String),
}

/// A store of one file of a pack.
#[derive(Debug)]
pub struct Expanded {
    store: File,
    /// Its place in [`Pack::entries`].
    file: usize,
    file_bytes: u64,
    block_bytes: u64,
    /// Where the file begins in the store.
    begin: u64,
    /// Blocks that were seen to be there, a bit each: they stay.
    known: Vec<AtomicU64>,
    use_of: AtomicU8,
    /// What it may take before it is asked again whether there is room. Not what was put in: in huge
    /// pages a block takes more than its length.
    most_bytes: AtomicU64,
    buffers: Mutex<Vec<Vec<u8>>>,
    ahead: Mutex<Ahead>,
}

/// For who goes through the file by pages: a call of the system for each would cost more than
/// copying once more.
#[derive(Debug, Default)]
struct Ahead {
    /// Where the last read ended that these bytes were of no use to.
    next: u64,
    /// Reads that began where the one before ended.
    steps: u32,
    /// Where in the file these bytes are from.
    begin: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    /// Learns of a read that they are of no use to. True for a reader that goes through the file:
    /// it comes from these bytes, but for a page here and there, or has gone on for some time.
    fn note(&mut self, asked: Range<u64>) -> bool {
        let follows = std::mem::replace(&mut self.next, asked.end) == asked.start;
        self.steps = if follows { self.steps.saturating_add(1) } else { 0 };
        let end = self.begin.saturating_add(self.bytes.len() as u64);
        let skipped = asked.start.checked_sub(end).filter(|_| !self.bytes.is_empty());
        self.steps >= STEPS_MIN || skipped.is_some_and(|skipped| skipped <= SLACK_BYTES)
    }

    fn give(&self, offset: u64, out: &mut [u8]) -> bool {
        let within = offset.checked_sub(self.begin).and_then(|within| usize::try_from(within).ok());
        let found = within
            .and_then(|within| self.bytes.get(within..within.saturating_add(out.len())))
            .map(|bytes| out.copy_from_slice(bytes));
        found.is_some()
    }
}

impl Expanded {
    /// Opens the store of a file of a pack in a folder of a tmpfs, or makes it.
    ///
    /// # Errors
    /// The folder does not lie in a tmpfs, or what is there under the store's name is not ours,
    /// or the system refuses.
    pub fn open(folder: &Path, pack: &Pack, file: usize) -> Result<Self, ExpandedError> {
        let file_bytes = pack.entries().get(file).map_or(0, Entry::bytes);
        let block_bytes = pack.block_bytes() as u64;
        let blocks = file_bytes.div_ceil(block_bytes);
        let begin = HEAD_BYTES.saturating_add(blocks.next_multiple_of(HEAD_BYTES));
        let not_now = |error: io::Error| ExpandedError::NotNow(error.to_string());
        let identity = identity(pack, file).map_err(not_now)?;
        let mut head = Vec::with_capacity(HEAD_USED_BYTES);
        head.extend(BEGIN);
        head.extend(VERSION.to_le_bytes());
        head.extend(u32::try_from(block_bytes).unwrap_or(u32::MAX).to_le_bytes());
        head.extend(file_bytes.to_le_bytes());
        head.extend(identity.0);
        // Enough to tell them apart: all of it stands in the head.
        let mut shown = identity.to_string();
        shown.truncate(32);
        let name = format!("pagewarden-{shown}.expanded");
        let wanted = Wanted { name, head, bytes: begin.saturating_add(file_bytes) };
        let words = blocks.div_ceil(64);
        Ok(Self {
            store: place::open(folder, &wanted)?,
            file,
            file_bytes,
            block_bytes,
            begin,
            known: (0..words).map(|_| AtomicU64::new(0)).collect(),
            use_of: AtomicU8::new(FILLING),
            most_bytes: AtomicU64::new(0),
            buffers: Mutex::default(),
            ahead: Mutex::default(),
        })
    }

    /// As [`Reader::read_at`] of this file: from the store what is there, else by the reader, whose
    /// blocks are then put into the store.
    ///
    /// # Errors
    /// A block cannot be read, or is damaged.
    pub fn read_at(
        &self,
        reader: &Reader,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, PackError> {
        if self.read(offset, out) {
            return Ok(out.len());
        }
        let count = usize::try_from(self.file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = count.min(out.len());
        if self.use_of.load(Ordering::Relaxed) != FILLING || count == 0 {
            return reader.read_at(self.file, offset, out);
        }
        let mut buffer = lock(&self.buffers).pop().unwrap_or_default();
        let out = out.get_mut(..count).unwrap_or_default();
        let expanded = self.expand(reader, offset, out, &mut buffer);
        let mut buffers = lock(&self.buffers);
        if buffers.len() < BUFFERS_MAX {
            buffers.push(buffer);
        }
        expanded.map(|()| count)
    }

    /// Fills `out`, all of which lies in the file, and puts the blocks that it lies in into the
    /// store, whole: who expands one has all of it.
    fn expand(
        &self,
        reader: &Reader,
        offset: u64,
        out: &mut [u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        const NO_BLOCK: PackError = PackError::Hostile("there is no such block");
        let begin = offset - offset % self.block_bytes;
        let end = offset.saturating_add(out.len() as u64).next_multiple_of(self.block_bytes);
        let bytes = end.min(self.file_bytes).saturating_sub(begin);
        buffer.resize(usize::try_from(bytes).map_err(io::Error::other)?, 0);
        if reader.read_at(self.file, begin, buffer)? < buffer.len() {
            return Err(NO_BLOCK);
        }
        let within = usize::try_from(offset - begin).map_err(io::Error::other)?;
        let wanted = buffer.get(within..within.saturating_add(out.len())).ok_or(NO_BLOCK)?;
        out.copy_from_slice(wanted);
        let block_bytes = reader.pack().block_bytes();
        for (number, block) in (begin / self.block_bytes..).zip(buffer.chunks(block_bytes)) {
            self.put(number, block);
        }
        Ok(())
    }

    /// Fills `out`, if all of it is there. If not, what is in it is not to be used.
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let end = offset.saturating_add(out.len() as u64);
        if out.is_empty() || end > self.file_bytes || self.use_of.load(Ordering::Relaxed) == GONE {
            return false;
        }
        let mut ahead = lock(&self.ahead);
        if ahead.give(offset, out) {
            return true;
        }
        let is_stream = ahead.note(offset..end);
        if !self.are_ready(offset..end) {
            return false;
        }
        let goal = offset.saturating_add(AHEAD_BYTES as u64).min(self.file_bytes);
        let is_worth_it = is_stream && goal.saturating_sub(end) >= out.len() as u64;
        if !(is_worth_it && self.are_ready(end..goal)) {
            return self.fill(offset, out);
        }
        let Ahead { begin, bytes, .. } = &mut *ahead;
        *begin = offset;
        bytes.resize(usize::try_from(goal - offset).unwrap_or(AHEAD_BYTES), 0);
        if !self.fill(offset, bytes) {
            bytes.clear();
        }
        ahead.give(offset, out)
    }

    /// Reads what is there.
    fn fill(&self, offset: u64, out: &mut [u8]) -> bool {
        let read = read_fully(&self.store, out, self.begin.saturating_add(offset));
        let is_whole = matches!(read, Ok(count) if count == out.len());
        if !is_whole {
            // It was cut, or its file system went.
            self.use_of.store(GONE, Ordering::Relaxed);
        }
        is_whole
    }

    /// True if all blocks are there in which these bytes lie, of which there are some.
    fn are_ready(&self, bytes: Range<u64>) -> bool {
        let last = bytes.end.saturating_sub(1) / self.block_bytes;
        (bytes.start / self.block_bytes..=last).all(|block| self.is_ready(block))
    }

    fn is_ready(&self, block: u64) -> bool {
        let index = usize::try_from(block / 64).unwrap_or(usize::MAX);
        let word = self.known.get(index).map_or(0, |word| word.load(Ordering::Acquire));
        word >> (block % 64) & 1 == 1 || self.look(block)
    }

    /// Looks whether others have put it there, and its neighbours.
    fn look(&self, block: u64) -> bool {
        let first = block - block % LOOK as u64;
        let mut states = [0; LOOK];
        let count = read_at(&self.store, &mut states, HEAD_BYTES.saturating_add(first));
        let states = states.get(..count.unwrap_or(0)).unwrap_or_default();
        let index = usize::try_from(first / 64).unwrap_or(usize::MAX);
        for (word, states) in self.known.iter().skip(index).zip(states.chunks(64)) {
            let ready =
                states.iter().zip(0..).map(|(state, bit)| u64::from(*state == READY) << bit);
            word.fetch_or(ready.fold(0, |all, bit| all | bit), Ordering::Release);
        }
        let within = usize::try_from(block - first).unwrap_or(usize::MAX);
        states.get(within) == Some(&READY)
    }

    /// Puts a block into the store, if there is room. One that was tested.
    fn put(&self, block: u64, bytes: &[u8]) {
        if self.use_of.load(Ordering::Relaxed) != FILLING || self.is_ready(block) {
            return;
        }
        let at = self.begin.saturating_add(block.saturating_mul(self.block_bytes));
        let put = self.prepare(bytes.len() as u64).and_then(|()| {
            self.store.write_all_at(bytes, at)?;
            // Not sooner: from then on the block is believed.
            self.store.write_all_at(&[READY], HEAD_BYTES.saturating_add(block))
        });
        if put.is_err() {
            // No room, as a rule. What is there is as good as before, unless it is gone.
            let _ =
                self.use_of.compare_exchange(FILLING, FULL, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// An error if `bytes` bytes may not be put in.
    fn prepare(&self, bytes: u64) -> io::Result<()> {
        let status = self.store.metadata()?;
        if status.len() != self.begin.saturating_add(self.file_bytes) {
            // A process that goes on writing makes it long again, with holes where blocks were,
            // and no reader could see that.
            self.use_of.store(GONE, Ordering::Relaxed);
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let taken = status.blocks().saturating_mul(512);
        if taken.saturating_add(bytes) <= self.most_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A store takes no more than it leaves free: half of what there would be without it.
        let more = bytes.saturating_add(ROOM_STEP_BYTES);
        if taken.saturating_add(more) > self.free_bytes()?.saturating_sub(more) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.most_bytes.store(taken.saturating_add(more), Ordering::Relaxed);
        Ok(())
    }

    /// What could be had of its file system and of memory.
    fn free_bytes(&self) -> io::Result<u64> {
        let state = pagewarden_core::system::fs::fstatvfs(&self.store)?;
        // One without a bound says that it has no blocks at all.
        let is_bounded = state.f_blocks > 0;
        let in_it = state.f_bavail.saturating_mul(state.f_frsize);
        let in_it = if is_bounded { in_it } else { u64::MAX };
        Ok(memory::available_bytes().unwrap_or(0).min(in_it))
    }
}

/// A store as it is to be.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is none elsewhere"))]
struct Wanted {
    name: String,
    head: Vec<u8>,
    bytes: u64,
}

/// Whose blocks they are: the pack's root, and the very files that it and what it builds on lie in,
/// as they are now.
fn identity(pack: &Pack, file: usize) -> io::Result<Root> {
    let mut hash = blake3::Hasher::new();
    hash.update(BEGIN).update(&VERSION.to_le_bytes()).update(&pack.root().0);
    for number in [file as u64, pack.block_bytes() as u64] {
        hash.update(&number.to_le_bytes());
    }
    for (status, (device, inode)) in pack.statuses()? {
        for number in [device, inode, status.len()] {
            hash.update(&number.to_le_bytes());
        }
        // No user can set the time of the last change.
        let times = [status.mtime(), status.mtime_nsec(), status.ctime(), status.ctime_nsec()];
        for number in times {
            hash.update(&number.to_le_bytes());
        }
    }
    Ok(Root(*hash.finalize().as_bytes()))
}

#[cfg(not(target_os = "linux"))]
mod place {
    use std::fs::File;
    use std::path::Path;

    use super::{ExpandedError, Wanted};

    pub(super) fn open(_: &Path, _: &Wanted) -> Result<File, ExpandedError> {
        Err(ExpandedError::NoPlace("expanded pages are kept on Linux only".to_owned()))
    }
}

#[cfg(test)]
mod tests;

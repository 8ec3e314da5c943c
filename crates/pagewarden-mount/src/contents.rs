//! The bytes of one file: as packed, and over them the pages that were written.
//!
//! A page is copied when a part of it is written first. What lies behind the end of
//! the packed bytes and was not written is zeroes, as in any file with holes, and
//! zeroes that are written there take no room.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use pagewarden::pack::{PackError, Reader};
use rustix::io::Errno;

use crate::delta::{Delta, PAGE_BYTES, Slot};
use crate::record::Record;

/// No file is longer: the system counts in signed numbers.
const BYTES_MAX: u64 = i64::MAX as u64;

/// Why bytes cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The pack has them no longer.
    Packed(PackError),
    /// The delta does not give them.
    Delta(Errno),
}

impl From<PackError> for Unreadable {
    fn from(error: PackError) -> Self {
        Self::Packed(error)
    }
}

impl From<Errno> for Unreadable {
    fn from(error: Errno) -> Self {
        Self::Delta(error)
    }
}

/// Where bytes come from, and go to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stores<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) delta: &'a Delta,
}

/// The bytes of a file.
#[derive(Debug)]
pub(crate) struct Contents {
    /// What the journal calls it: its number in the pack, or one behind all of those.
    pub(crate) number: u64,
    /// Its number in the pack, if it comes from there.
    pub(crate) packed: Option<usize>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    bytes: u64,
    /// How many of the packed bytes still count; never more than `bytes`.
    packed_bytes: u64,
    pages: BTreeMap<u64, Slot>,
    modified: Option<SystemTime>,
}

impl Contents {
    /// Those of a packed file.
    pub(crate) fn packed(number: usize, bytes: u64) -> Self {
        let state = State { bytes, packed_bytes: bytes, pages: BTreeMap::new(), modified: None };
        Self { number: number as u64, packed: Some(number), state: RwLock::new(state) }
    }

    /// A new file's.
    pub(crate) fn empty(number: u64) -> Self {
        let state = State { bytes: 0, packed_bytes: 0, pages: BTreeMap::new(), modified: None };
        Self { number, packed: None, state: RwLock::new(state) }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// When it was last written, if it was since the pack was mounted.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.state().modified
    }

    /// A program has set when it was written.
    pub(crate) fn forget_modified(&self) {
        self.state_mut().modified = None;
    }

    /// Fills the begin of `out`, and says how far: to its end, or the file's.
    pub(crate) fn read(
        &self,
        stores: Stores<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, Unreadable> {
        let state = self.state();
        let end = offset.saturating_add(out.len() as u64).min(state.bytes);
        let count = small(end.saturating_sub(offset));
        let Some(mut rest) = out.get_mut(..count).filter(|out| !out.is_empty()) else {
            return Ok(0);
        };
        let mut at = offset;
        for (page, slot) in state.pages.range(pages_of(offset..end)) {
            let begin = page.saturating_mul(PAGE_BYTES as u64).max(at);
            let (before, others) = rest.split_at_mut(small(begin.saturating_sub(at)));
            self.read_packed(stores.reader, &state, at, before)?;
            let within = small(begin % PAGE_BYTES as u64);
            let count = (PAGE_BYTES - within).min(others.len());
            let (inside, others) = others.split_at_mut(count);
            stores.delta.read(*slot, within, inside)?;
            (at, rest) = (begin.saturating_add(count as u64), others);
        }
        self.read_packed(stores.reader, &state, at, rest)?;
        Ok(count)
    }

    fn read_packed(
        &self,
        reader: &Reader,
        state: &State,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), PackError> {
        let left = small(state.packed_bytes.saturating_sub(offset)).min(out.len());
        let (packed, hole) = out.split_at_mut(left);
        hole.fill(0);
        let Some(number) = self.packed.filter(|_| !packed.is_empty()) else { return Ok(()) };
        if reader.read_at(number, offset, packed)? < packed.len() {
            return Err(PackError::Hostile("a file of it is shorter than it says"));
        }
        Ok(())
    }

    /// Writes, and says how much: all of it, or as much as there was room for.
    pub(crate) fn write(
        &self,
        stores: Stores<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Unreadable> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= BYTES_MAX);
        if end.is_none() {
            return Err(Errno::FBIG.into());
        }
        let mut state = self.state_mut();
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.write_some(stores, &mut state, at, rest) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        // Nothing, written behind the end, makes a file no longer.
        if done > 0 {
            let end = offset.saturating_add(done as u64);
            if end > state.bytes {
                state.bytes = end;
                self.record_length(stores.delta, &state);
            }
            state.modified = Some(SystemTime::now());
            stores.delta.count(done);
        }
        Ok(done)
    }

    /// Writes to one page, or to several at once where they take slots that lie one
    /// behind the other. Nothing is changed by an error.
    fn write_some(
        &self,
        stores: Stores<'_>,
        state: &mut State,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Unreadable> {
        let page = offset / PAGE_BYTES as u64;
        let within = small(offset % PAGE_BYTES as u64);
        let part = bytes.get(..bytes.len().min(PAGE_BYTES - within)).unwrap_or(bytes);
        if let Some(slot) = state.pages.get(&page) {
            stores.delta.write(*slot, within, part)?;
            return Ok(part.len());
        }
        let begin = page.saturating_mul(PAGE_BYTES as u64);
        if begin >= state.packed_bytes && part.iter().all(|byte| *byte == 0) {
            return Ok(part.len());
        }
        if part.len() == PAGE_BYTES {
            return self.write_whole(stores.delta, state, page, bytes, bytes.len());
        }
        let mut whole = [0; PAGE_BYTES];
        self.read_packed(stores.reader, state, begin, &mut whole)?;
        for (place, byte) in whole.iter_mut().skip(within).zip(part) {
            *place = *byte;
        }
        let in_page = within.saturating_add(part.len());
        self.write_whole(stores.delta, state, page, &whole, in_page)?;
        Ok(part.len())
    }

    /// Cuts it, or makes it longer by zeroes.
    pub(crate) fn set_bytes(&self, delta: &Delta, bytes: u64) -> Result<(), Errno> {
        if bytes > BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut state = self.state_mut();
        let tail = small(bytes % PAGE_BYTES as u64);
        if bytes < state.bytes
            && tail > 0
            && let Some(slot) = state.pages.get(&(bytes / PAGE_BYTES as u64))
        {
            let zeroes = [0; PAGE_BYTES];
            delta.write(*slot, tail, zeroes.get(tail..).unwrap_or_default())?;
        }
        let gone = state.pages.split_off(&bytes.div_ceil(PAGE_BYTES as u64));
        state.packed_bytes = state.packed_bytes.min(bytes);
        state.bytes = bytes;
        self.record_length(delta, &state);
        // Once that is on record.
        delta.give_back(gone.into_values().collect());
        state.modified = Some(SystemTime::now());
        Ok(())
    }

    /// Makes sure that it is so long, as if it was written.
    pub(crate) fn allocate(&self, delta: &Delta, range: Range<u64>) -> Result<(), Errno> {
        if range.end > BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut state = self.state_mut();
        if range.end.saturating_sub(state.bytes.max(range.start)) > delta.free_bytes() {
            return Err(Errno::NOSPC);
        }
        state.bytes = state.bytes.max(range.end);
        self.record_length(delta, &state);
        Ok(())
    }

    /// No program will ask for it again.
    pub(crate) fn discard(&self, delta: &Delta) {
        let pages = std::mem::take(&mut self.state_mut().pages);
        delta.give_back(pages.into_values().collect());
    }

    /// Writes whole pages that are in no slot yet, as many as get slots one behind the
    /// other. The file is as long as the first `meant` of the bytes, at least.
    fn write_whole(
        &self,
        delta: &Delta,
        state: &mut State,
        first: u64,
        bytes: &[u8],
        meant: usize,
    ) -> Result<usize, Unreadable> {
        let mut slots: Vec<Slot> = Vec::new();
        for (page, _) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if state.pages.contains_key(&page) {
                break;
            }
            match delta.take() {
                Ok(slot) if slots.last().is_none_or(|last| last.precedes(slot)) => slots.push(slot),
                Ok(slot) => {
                    delta.give_back(vec![slot]);
                    break;
                }
                Err(error) if slots.is_empty() => return Err(error.into()),
                Err(_) => break,
            }
        }
        let count = slots.len().saturating_mul(PAGE_BYTES);
        let Some(slot) = slots.first() else { return Err(Errno::NOSPC.into()) };
        if let Err(error) = delta.write(*slot, 0, bytes.get(..count).unwrap_or_default()) {
            delta.give_back(slots);
            return Err(error.into());
        }
        let begin = first.saturating_mul(PAGE_BYTES as u64);
        let end = begin.saturating_add(count.min(meant) as u64);
        delta.record(|| Record::Pages {
            contents: self.number,
            first,
            slots: slots.clone(),
            bytes: end,
        });
        state.pages.extend((first..).zip(slots));
        Ok(count)
    }

    /// As a journal says: these pages are in these slots.
    pub(crate) fn restore_pages(&self, first: u64, slots: Vec<Slot>, bytes: u64) {
        let mut state = self.state_mut();
        state.pages.extend((first..).zip(slots));
        state.bytes = state.bytes.max(bytes);
    }

    /// As a journal says: it is so long.
    pub(crate) fn restore_length(&self, bytes: u64, packed_bytes: u64) {
        let mut state = self.state_mut();
        let _ = state.pages.split_off(&bytes.div_ceil(PAGE_BYTES as u64));
        state.bytes = bytes;
        state.packed_bytes = state.packed_bytes.min(packed_bytes).min(bytes);
    }

    /// The slots it has.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.state().pages.values().copied().collect()
    }

    fn record_length(&self, delta: &Delta, state: &State) {
        delta.record(|| Record::Length {
            contents: self.number,
            bytes: state.bytes,
            packed_bytes: state.packed_bytes,
        });
    }
}

/// The pages that these bytes touch.
fn pages_of(bytes: Range<u64>) -> Range<u64> {
    bytes.start / PAGE_BYTES as u64..bytes.end.div_ceil(PAGE_BYTES as u64)
}

/// A number that fits, since it counts bytes in memory.
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests;

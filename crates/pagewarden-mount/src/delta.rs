//! What was written since a pack was mounted: pages in one file. It has no name, in
//! memory or in a folder, so that nothing of it is left however we end; or it has one,
//! and a journal beside it, and lasts.
//!
//! Who writes takes slots of a page each, and gives them back when a file is cut or
//! removed; the system then gets their room back.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use pagewarden::pack::Root;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;

use crate::journal::Journal;
use crate::record::Record;

/// What is copied on the first write, and a slot's bytes.
pub(crate) const PAGE_BYTES: usize = 4096;
/// What a new file, folder or link counts as, beside its contents.
const NODE_BYTES: u64 = 1024;

/// How long the room of a removed file is waited for. The system says some time after the
/// removal that no program has the file open any longer; with all processors busy, much later.
const ROOM_WAIT: Duration = Duration::from_secs(2);

/// Records that wait until a program asks for a sync.
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// The place of a page in the delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(u64);

impl Slot {
    pub(crate) fn of(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    fn begin(self) -> u64 {
        self.0.saturating_mul(PAGE_BYTES as u64)
    }

    /// True if `other` lies behind it.
    pub(crate) fn precedes(self, other: Self) -> bool {
        self.0.checked_add(1) == Some(other.0)
    }
}

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that programs wrote, over and over included.
    pub bytes: u64,
    /// What is kept of it now, in whole pages.
    pub held_bytes: u64,
    /// The most there ever was.
    pub held_bytes_max: u64,
}

/// The pages, and who has which.
#[derive(Debug)]
pub(crate) struct Delta {
    file: File,
    slots: Mutex<Slots>,
    /// A removed file has given back what it had.
    left: Condvar,
    bytes_max: u64,
    written: AtomicU64,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Slots {
    free: Vec<Slot>,
    next: u64,
    nodes: u64,
    held_bytes_max: u64,
    /// Files without a name that the system has not let go yet.
    leaving: usize,
    /// Of these, the ones that were waited for in vain: programs have them open.
    kept_open: usize,
    /// How many were let go so far.
    left: u64,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("held_bytes", &self.held_bytes()).finish_non_exhaustive()
    }
}

impl Slots {
    fn held_bytes(&self) -> u64 {
        let pages = self.next.saturating_sub(self.free.len() as u64);
        let pages = pages.saturating_mul(PAGE_BYTES as u64);
        pages.saturating_add(self.nodes.saturating_mul(NODE_BYTES))
    }

    /// Makes sure that there may be so much more.
    fn have_room(&mut self, more: u64, bytes_max: u64) -> Result<(), Errno> {
        let held = self.held_bytes().saturating_add(more);
        if held > bytes_max {
            return Err(Errno::NOSPC);
        }
        self.held_bytes_max = self.held_bytes_max.max(held);
        Ok(())
    }
}

impl Delta {
    /// An empty one, in memory or in a folder.
    pub(crate) fn new(scratch: Option<&Path>, bytes_max: u64) -> io::Result<Self> {
        let file = match scratch {
            Some(folder) => tempfile::tempfile_in(folder)?,
            None => File::from(memfd_create("pagewarden-delta", MemfdFlags::CLOEXEC)?),
        };
        Ok(Self::over(file, bytes_max, None))
    }

    /// One that lasts. Before anything is written, [`Self::restore`] says which slots are in use.
    pub(crate) fn durable(pages: File, journal: Journal, bytes_max: u64) -> Self {
        Self::over(pages, bytes_max, Some(journal))
    }

    fn over(file: File, bytes_max: u64, journal: Option<Journal>) -> Self {
        let (slots, left, written) = (Mutex::default(), Condvar::new(), AtomicU64::new(0));
        Self { file, slots, left, bytes_max, written, journal }
    }

    /// These slots are in use, and `nodes` nodes are new.
    pub(crate) fn restore(&self, mut used: Vec<Slot>, nodes: u64) {
        used.sort_unstable();
        let mut slots = self.slots();
        for slot in used {
            while slots.next < slot.0 {
                let free = Slot(slots.next);
                slots.free.push(free);
                slots.next = slots.next.saturating_add(1);
            }
            slots.next = slot.0.saturating_add(1);
        }
        slots.nodes = nodes;
        slots.held_bytes_max = slots.held_bytes();
    }

    /// Remembers a change, if this is to last.
    pub(crate) fn record(&self, record: impl FnOnce() -> Record) {
        if let Some(journal) = &self.journal
            && journal.record(&record()) > GATHERED_BYTES_MAX
        {
            // Should it fail, the next program that asks for a sync gets the error.
            let _ = self.sync();
        }
    }

    /// Makes all that was done so far last, if anything is to.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        if let Some(journal) = &self.journal {
            self.release(journal.sync(&self.file, false)?);
        }
        Ok(())
    }

    /// The last sync.
    pub(crate) fn finish(&self) -> Result<(), Errno> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.sync(&self.file, true).map(drop))
    }

    /// True if something was changed, and lasts.
    pub(crate) fn has_lasting_changes(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::has_changes)
    }

    /// Forgets all changes, which another pack has inside.
    pub(crate) fn restart(&self, root: Root) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.restart(&self.file, root))
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot. What is in it is anything.
    pub(crate) fn take(&self) -> Result<Slot, Errno> {
        match self.take_now() {
            // What was given back may be waiting for a sync.
            Err(Errno::NOSPC) if self.journal.is_some() => {
                self.sync()?;
                self.take_now()
            }
            taken => taken,
        }
    }

    fn take_now(&self) -> Result<Slot, Errno> {
        let mut slots = self.slots();
        slots.have_room(PAGE_BYTES as u64, self.bytes_max)?;
        if let Some(slot) = slots.free.pop() {
            return Ok(slot);
        }
        let slot = Slot(slots.next);
        slots.next = slots.next.saturating_add(1);
        Ok(slot)
    }

    /// These are no longer needed.
    pub(crate) fn give_back(&self, given: Vec<Slot>) {
        match &self.journal {
            // What lasts may still lead to them.
            Some(journal) => journal.free(given),
            None => self.release(given),
        }
    }

    fn release(&self, mut given: Vec<Slot>) {
        given.sort_unstable();
        for run in given.chunk_by(|one, next| one.precedes(*next)) {
            let Some(first) = run.first() else { continue };
            let bytes = (run.len() as u64).saturating_mul(PAGE_BYTES as u64);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where there are no holes the room is kept for others.
            let _ = fallocate(&self.file, flags, first.begin(), bytes);
        }
        // Those that are taken one after the other are to lie one behind the other.
        given.reverse();
        self.slots().free.append(&mut given);
    }

    /// A file has lost its name, and the system has yet to let it go.
    pub(crate) fn expect_leave(&self) {
        let mut slots = self.slots();
        slots.leaving = slots.leaving.saturating_add(1);
    }

    /// The system has let it go, and what it had is given back.
    pub(crate) fn note_left(&self) {
        let mut slots = self.slots();
        slots.leaving = slots.leaving.saturating_sub(1);
        slots.kept_open = slots.kept_open.min(slots.leaving);
        slots.left = slots.left.wrapping_add(1);
        drop(slots);
        self.left.notify_all();
    }

    /// Does what needs room, and where there is none waits for that of files that were
    /// removed, so that a program which removes one may write another at once. The caller
    /// holds nothing that letting a file go needs.
    pub(crate) fn with_room<T, E>(
        &self,
        is_full: impl Fn(&E) -> bool,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut end = None;
        loop {
            let seen = self.slots().left;
            match work() {
                Err(error) if is_full(&error) => {
                    let end = *end.get_or_insert_with(|| Instant::now() + ROOM_WAIT);
                    if !self.wait_for_one_to_leave(seen, end) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// True once more files were let go than the `seen` ones; false if none will be soon.
    fn wait_for_one_to_leave(&self, seen: u64, end: Instant) -> bool {
        let mut slots = self.slots();
        while slots.left == seen {
            let rest = end.saturating_duration_since(Instant::now());
            if slots.leaving <= slots.kept_open {
                return false;
            }
            if rest.is_zero() {
                slots.kept_open = slots.leaving;
                return false;
            }
            let waited = self.left.wait_timeout(slots, rest);
            (slots, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Room for the name of something new.
    pub(crate) fn take_node(&self) -> Result<(), Errno> {
        let mut slots = self.slots();
        slots.have_room(NODE_BYTES, self.bytes_max)?;
        slots.nodes = slots.nodes.saturating_add(1);
        Ok(())
    }

    /// It is gone.
    pub(crate) fn give_back_node(&self) {
        let mut slots = self.slots();
        slots.nodes = slots.nodes.saturating_sub(1);
    }

    /// Writes within a slot, or over several that lie one behind the other.
    pub(crate) fn write(&self, slot: Slot, within: usize, bytes: &[u8]) -> Result<(), Errno> {
        let written = self.file.write_all_at(bytes, slot.begin().saturating_add(within as u64));
        written.map_err(|error| errno(&error))
    }

    /// Reads within a slot.
    pub(crate) fn read(&self, slot: Slot, within: usize, out: &mut [u8]) -> Result<(), Errno> {
        // Past the end of the file are slots that were taken and never written.
        let begin = slot.begin().saturating_add(within as u64);
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, begin.saturating_add(done as u64)) {
                Ok(0) => {
                    rest.fill(0);
                    break;
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(())
    }

    /// Counts what a program wrote.
    pub(crate) fn count(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How much may be written yet.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.bytes_max.saturating_sub(self.slots().held_bytes())
    }

    pub(crate) fn written(&self) -> Written {
        let slots = self.slots();
        Written {
            bytes: self.written.load(Ordering::Relaxed),
            held_bytes: slots.held_bytes(),
            held_bytes_max: slots.held_bytes_max,
        }
    }
}

/// The system's number of an error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_back_and_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        for scratch in [None, Some(folder.path())] {
            let delta = Delta::new(scratch, 1 << 20).unwrap();
            let slots: Vec<_> = (0..10).map(|_| delta.take().unwrap()).collect();
            for slot in &slots {
                delta.write(*slot, 0, &[7; PAGE_BYTES]).unwrap();
            }
            assert_eq!(delta.written().held_bytes, 40_960);
            delta.give_back(slots.into_iter().step_by(3).collect());
            assert_eq!(delta.written().held_bytes, 6 * 4096);
            let slot = delta.take().unwrap();
            delta.write(slot, 4000, &[9; 96]).unwrap();
            let mut out = [1; 96];
            delta.read(slot, 4000, &mut out).unwrap();
            assert_eq!((out, slot.number()), ([9; 96], 0));
            assert_eq!(delta.written().held_bytes_max, 40_960);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
    }

    #[test]
    fn room_of_a_removed_file_is_waited_for_unless_a_program_keeps_it() {
        let delta = Delta::new(None, 2 * PAGE_BYTES as u64).unwrap();
        let slots = vec![delta.take().unwrap(), delta.take().unwrap()];
        let take = || delta.with_room(|error| *error == Errno::NOSPC, || delta.take());
        assert_eq!(take(), Err(Errno::NOSPC), "no file is leaving");
        delta.expect_leave();
        std::thread::scope(|scope| {
            let taken = scope.spawn(take);
            std::thread::sleep(Duration::from_millis(50));
            delta.give_back(slots);
            delta.note_left();
            assert!(taken.join().unwrap().is_ok());
        });
        assert!(take().is_ok());
        delta.expect_leave();
        let begin = Instant::now();
        assert_eq!(take(), Err(Errno::NOSPC), "a program has it open");
        assert!(begin.elapsed() >= ROOM_WAIT);
        // One lock at a time.
        let counts = || {
            let slots = delta.slots();
            (slots.leaving, slots.kept_open)
        };
        assert_eq!(counts(), (1, 1), "not waited for again");
        assert_eq!(take(), Err(Errno::NOSPC));
        delta.note_left();
        assert_eq!(counts(), (0, 0));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let delta = Delta::new(None, 10 * PAGE_BYTES as u64).unwrap();
        let slots: Vec<_> = (0..9).map(|_| delta.take().unwrap()).collect();
        for _ in 0..4 {
            delta.take_node().unwrap();
        }
        assert_eq!(delta.take_node(), Err(Errno::NOSPC));
        assert_eq!(delta.take(), Err(Errno::NOSPC));
        delta.give_back(slots);
        assert!(delta.take().is_ok());
    }
}

//! Segments that are fetched before their turn: decrypted, decompressed and compared with their sums by
//! whichever thread has time, while the records of those before them are read.
//!
//! A segment waits in a file without a name. There are at most [`AHEAD_BYTES`] in such files, or one
//! segment where that is larger.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::files::archived_log::store::{NoSegment, Shelf};
use crate::files::wal::segment::SegmentName;
use pagewarden_core::database::{Apart, Step};

/// See the module: four segments of the usual size.
const AHEAD_BYTES: u64 = 64 << 20;
/// Segments of a mebibyte are many.
const AHEAD_MAX: u64 = 16;

/// What came of a segment.
pub(super) type Fetched = Result<File, NoSegment>;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    slots: Mutex<BTreeMap<SegmentName, Slot>>,
    changed: Condvar,
}

enum Slot {
    /// Nothing has begun.
    Wanted,
    /// A thread is at it.
    Begun,
    Here(Fetched),
}

impl Ahead {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<SegmentName, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was fetched; waits for a thread that is at it. `None`: it is to be opened now. Segments
    /// before it are wanted no more.
    pub(super) fn take(&self, name: SegmentName) -> Option<Fetched> {
        let mut slots = self.slots();
        while matches!(slots.get(&name), Some(Slot::Begun)) {
            slots = self.changed.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(Slot::Here(fetched)) = slots.remove(&name) else { return None };
        slots.retain(|other, slot| *other > name || matches!(slot, Slot::Begun));
        Some(fetched)
    }

    fn begin(&self, name: SegmentName) -> bool {
        match self.slots().get_mut(&name) {
            Some(slot @ Slot::Wanted) => {
                *slot = Slot::Begun;
                true
            }
            _ => false,
        }
    }
}

/// A thread that has begun to fetch a segment. If it does not come to an end the segment is opened in
/// its turn.
struct Fetching<'a> {
    ahead: &'a Ahead,
    name: SegmentName,
    fetched: Option<Fetched>,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let mut slots = self.ahead.slots();
        match self.fetched.take() {
            Some(fetched) => slots.insert(self.name, Slot::Here(fetched)),
            None => slots.remove(&self.name),
        };
        drop(slots);
        self.ahead.changed.notify_all();
    }
}

/// The segments that were not fetched yet, in the order in which they are read.
pub(super) struct Fetches {
    waiting: VecDeque<SegmentName>,
    segment_bytes: u64,
    ahead_max: usize,
}

impl Fetches {
    pub(super) fn of(shelf: &Shelf, segment_bytes: u32) -> Self {
        let segment_bytes = u64::from(segment_bytes.max(1));
        let ahead_max = (AHEAD_BYTES / segment_bytes).clamp(1, AHEAD_MAX);
        Self {
            waiting: shelf.segments().keys().copied().collect(),
            segment_bytes,
            ahead_max: usize::try_from(ahead_max).unwrap_or(1),
        }
    }

    /// The next one to fetch; `None` while as many are ahead as may be.
    pub(super) fn next(&mut self, shelf: &Arc<Shelf>) -> Option<Step> {
        let mut slots = shelf.ahead.slots();
        if slots.len() >= self.ahead_max {
            return None;
        }
        let name = self.waiting.pop_front()?;
        slots.insert(name, Slot::Wanted);
        drop(slots);
        let (shelf, mut bytes) = (Arc::clone(shelf), Some(self.segment_bytes));
        // It is paid for before it is read.
        let steps = std::iter::from_fn(move || match bytes.take() {
            Some(bytes) => Some(Step::Passed(bytes)),
            None => {
                if shelf.ahead.begin(name) {
                    let mut fetching = Fetching { ahead: &shelf.ahead, name, fetched: None };
                    fetching.fetched = shelf.fetch(name);
                }
                None
            }
        });
        Some(Step::Apart(Apart::new(steps)))
    }
}

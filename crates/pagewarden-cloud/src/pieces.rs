//! Pieces of objects in memory: fetched at once, kept until newer ones need the room.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pagewarden::source::rate::RateLimiter;

/// Bytes of a piece: large enough that a request's time is small against that of its bytes.
pub(crate) const PIECE_BYTES: u64 = 4 << 20;
/// Pieces of that size in memory, beside the one that each reader has: more than are fetched ahead for
/// one file.
const KEPT: usize = 12;
/// Of those, for readers that fetch nothing ahead: at the beginning of a file, or at its end.
const KEPT_FOR_OTHERS: usize = 4;
/// Bytes of all pieces in memory: many small objects take no room from large ones.
const KEPT_BYTES: u64 = KEPT as u64 * PIECE_BYTES;
/// Pieces in memory, however small.
const KEPT_MAX: usize = 256;
/// Pieces that their readers hold besides, at most: one for each that is being read.
const HELD_MAX: usize = 64;
/// First bytes of an object that are kept apart: what a file is gets asked more than once before it is
/// read, and each time costs a request.
const BEGIN_BYTES: usize = 64 << 10;
/// Bytes of all those together: the beginnings of 1,024 objects. Of others it is asked again.
const BEGINS_BYTES_MAX: usize = BEGIN_BYTES << 10;
/// How long a waiting thread does not look whether to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// What came of a piece. The error is in words, for all who wait.
pub(crate) type Fetched = Result<Arc<[u8]>, Arc<io::Error>>;

/// A place for what comes.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    fetched: Mutex<Option<Fetched>>,
    is_here: Condvar,
}

impl Slot {
    /// Puts there what came.
    pub(crate) fn fill(&self, fetched: Fetched) {
        *self.fetched.lock().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
        self.is_here.notify_all();
    }

    fn wait(&self, stop: &AtomicBool) -> Fetched {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(fetched) = &*fetched {
                return fetched.clone();
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Arc::new(io::Error::other("the run was stopped")));
            }
            let waited = self.is_here.wait_timeout(fetched, PATIENCE);
            fetched = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A piece that is not given up before its reader has done with it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) piece: Arc<[u8]>,
    count: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An object, and which piece of it.
type Which = (u64, u64);

/// See the module.
pub(crate) struct Pieces {
    kept: Mutex<Kept>,
    /// Counts uses: the piece that was used longest ago goes first.
    uses: AtomicU64,
    objects: AtomicU64,
    /// Objects of which pieces are fetched ahead.
    readers: AtomicUsize,
    held: Arc<AtomicUsize>,
    begins: Mutex<Begins>,
    next: Mutex<Option<Next>>,
    limiter: RateLimiter,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// Begins to fetch one more piece of what is to be read next.
type Next = Box<dyn FnMut() + Send>;

/// Pieces that are here or on their way.
#[derive(Debug, Default)]
struct Kept {
    pieces: HashMap<Which, Piece>,
    /// Of all together.
    bytes: u64,
}

#[derive(Debug)]
struct Piece {
    last_use: u64,
    bytes: u64,
    slot: Arc<Slot>,
}

impl Kept {
    fn remove(&mut self, which: Which) {
        let bytes = self.pieces.remove(&which).map_or(0, |piece| piece.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Makes room for one more piece.
    fn make_room(&mut self, bytes: u64) {
        let most = KEPT_BYTES.saturating_sub(bytes);
        while self.bytes > most || self.pieces.len() >= KEPT_MAX {
            let oldest = self.pieces.iter().min_by_key(|(_, piece)| piece.last_use);
            let Some(oldest) = oldest.map(|(which, _)| *which) else { break };
            self.remove(oldest);
        }
    }
}

/// The first bytes of objects, by their numbers.
#[derive(Debug, Default)]
struct Begins {
    kept: HashMap<u64, Arc<[u8]>>,
    bytes: usize,
}

impl Pieces {
    pub(crate) fn new(limiter: RateLimiter, stop: Arc<AtomicBool>) -> Self {
        Self {
            kept: Mutex::default(),
            uses: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            held: Arc::default(),
            begins: Mutex::default(),
            next: Mutex::default(),
            limiter,
            stop,
        }
    }

    /// A number for one more object.
    pub(crate) fn new_object(&self) -> u64 {
        self.objects.fetch_add(1, Ordering::Relaxed)
    }

    /// One reader more.
    pub(crate) fn begin_reader(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// One reader less.
    pub(crate) fn end_reader(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps a piece until its reader has done with it; `None`: as many as may be are held.
    pub(crate) fn hold(&self, piece: &Arc<[u8]>) -> Option<Held> {
        let held = Held { piece: Arc::clone(piece), count: Arc::clone(&self.held) };
        (held.count.fetch_add(1, Ordering::Relaxed) < HELD_MAX).then_some(held)
    }

    /// How many pieces a reader may have on their way, so that none pushes out those of others.
    pub(crate) fn share(&self) -> u64 {
        ((KEPT - KEPT_FOR_OTHERS) / self.readers.load(Ordering::Relaxed).max(1)) as u64
    }

    /// Ends all waiting once it is true.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Waits until this number of bytes may be fetched.
    pub(crate) fn pay(&self, bytes: u64) {
        self.limiter.pay(bytes, &self.stop);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a piece of this number of bytes; `fetch` is called with it if it is new, and fills it.
    pub(crate) fn slot(
        &self,
        which: Which,
        bytes: u64,
        fetch: impl FnOnce(Arc<Slot>),
    ) -> Arc<Slot> {
        let last_use = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept();
        if let Some(piece) = kept.pieces.get_mut(&which) {
            piece.last_use = last_use;
            return Arc::clone(&piece.slot);
        }
        kept.make_room(bytes);
        let slot = Arc::new(Slot::default());
        kept.bytes = kept.bytes.saturating_add(bytes);
        kept.pieces.insert(which, Piece { last_use, bytes, slot: Arc::clone(&slot) });
        drop(kept);
        fetch(Arc::clone(&slot));
        slot
    }

    /// This piece was read to its end: it makes room before all others.
    pub(crate) fn give_up_first(&self, which: Which) {
        if let Some(piece) = self.kept().pieces.get_mut(&which) {
            piece.last_use = 0;
        }
    }

    /// True for a piece that is here, or on its way.
    pub(crate) fn is_kept(&self, which: Which) -> bool {
        self.kept().pieces.contains_key(&which)
    }

    /// Has `next` called for each piece that is read once nothing more is to be fetched of what is being
    /// read, so that as many are on their way as before.
    pub(crate) fn call_next(&self, next: Next) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// One more piece is being read of what is on its way to its end.
    pub(crate) fn all_is_begun(&self) {
        if let Some(next) = &mut *self.next.lock().unwrap_or_else(PoisonError::into_inner) {
            next();
        }
    }

    /// Keeps the first of these bytes, with which an object begins, while there is room.
    pub(crate) fn keep_begin(&self, object: u64, bytes: &[u8]) {
        let begin = bytes.get(..BEGIN_BYTES).unwrap_or(bytes);
        let mut begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        let before = begins.kept.get(&object).map_or(0, |kept| kept.len());
        let total = begins.bytes.saturating_sub(before).saturating_add(begin.len());
        if begin.len() > before && total <= BEGINS_BYTES_MAX {
            begins.bytes = total;
            begins.kept.insert(object, Arc::from(begin));
        }
    }

    /// What is kept of an object's first bytes.
    pub(crate) fn begin(&self, object: u64) -> Option<Arc<[u8]>> {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner).kept.get(&object).cloned()
    }

    /// The bytes of a piece, once they are here. One that failed may be asked for again.
    pub(crate) fn wait(&self, which: Which, slot: &Slot) -> Fetched {
        let fetched = slot.wait(&self.stop);
        if fetched.is_err() {
            self.kept().remove(which);
        }
        fetched
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    #[test]
    fn readers_share_the_room_for_pieces() {
        let pieces = Pieces::new(RateLimiter::new(None::<NonZero<u64>>), Arc::default());
        assert_eq!(pieces.share(), 8);
        (0..4).for_each(|_| pieces.begin_reader());
        assert_eq!(pieces.share(), 2);
        (0..100).for_each(|_| pieces.begin_reader());
        assert_eq!(pieces.share(), 0);
        (0..103).for_each(|_| pieces.end_reader());
        assert_eq!(pieces.share(), 8);
    }

    #[test]
    fn no_more_pieces_are_held_than_there_is_room_for() {
        let pieces = Pieces::new(RateLimiter::new(None::<NonZero<u64>>), Arc::default());
        let piece: Arc<[u8]> = Arc::from([1_u8]);
        let mut held: Vec<_> = (0..HELD_MAX).map(|_| pieces.hold(&piece).unwrap()).collect();
        assert!(pieces.hold(&piece).is_none() && pieces.hold(&piece).is_none());
        held.pop();
        held.extend(pieces.hold(&piece));
        assert!(held.len() == HELD_MAX && pieces.hold(&piece).is_none());
    }

    #[test]
    fn pieces_are_fetched_once_while_they_are_kept_and_failures_are_forgotten() {
        let pieces = Pieces::new(RateLimiter::new(None::<NonZero<u64>>), Arc::default());
        let fetches = AtomicU64::new(0);
        let read = |piece, fetched: Fetched| {
            let slot = pieces.slot((0, piece), PIECE_BYTES, |slot| {
                fetches.fetch_add(1, Ordering::Relaxed);
                slot.fill(fetched);
            });
            pieces.wait((0, piece), &slot).is_ok()
        };
        let sound = || -> Fetched { Ok(Arc::from([1_u8])) };
        assert!(!read(0, Err(Arc::new(io::Error::other("503")))));
        assert!(read(0, sound()) && read(0, sound()));
        assert_eq!(fetches.load(Ordering::Relaxed), 2);
        for piece in 1..=KEPT as u64 {
            assert!(read(piece, sound()));
        }
        assert!(read(0, sound()));
        assert_eq!(fetches.load(Ordering::Relaxed), 3 + KEPT as u64);
    }

    #[test]
    fn many_small_pieces_push_out_none_that_are_large() {
        let pieces = Pieces::new(RateLimiter::new(None::<NonZero<u64>>), Arc::default());
        let put = |which, bytes| drop(pieces.slot(which, bytes, drop));
        (0..6).for_each(|large| put((0, large), PIECE_BYTES));
        (0..100).for_each(|small| put((1, small), 1000));
        assert!(pieces.is_kept((0, 0)) && pieces.is_kept((1, 0)));
        (0..KEPT_MAX as u64).for_each(|small| put((2, small), 1000));
        assert!(!pieces.is_kept((0, 0)) && !pieces.is_kept((1, 0)) && pieces.is_kept((2, 0)));
        assert_eq!(pieces.kept().bytes, KEPT_MAX as u64 * 1000);
    }
}

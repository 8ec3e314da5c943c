//! Blocks that were expanded: kept while there is room, and each expanded by one
//! thread however many want it.
//!
//! A block is *claimed* by who finds it absent, who then expands and publishes it;
//! others wait. A claim that is dropped leaves the block absent, and each thread that
//! waited claims it in turn: so every reader that needs the block meets the error, and
//! no other reader does.
//!
//! Room is counted in bytes and made by a clock: what was read since the hand last
//! came by is passed over once.
//!
//! Blocks of files larger than the cache are evicted soon after a scan has passed them
//! (*spent*): a new scan would not find them anyway, and memory that is used again is
//! still in the processor's caches.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::pack::lock;

/// Bytes of the newest spent blocks, which are kept for readers that follow closely.
const SPENT_BYTES: usize = 4 << 20;
/// Places of the clock where nothing is any longer, at most.
const CLOCK_STALE_MAX: usize = 4096;

/// A block of a file: the file's number in the table, the block's in the file.
pub(super) type Key = (usize, u64);

/// Buffers of blocks, to be used again.
#[derive(Debug)]
pub(super) struct Buffers {
    spare: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

impl Buffers {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { spare: Mutex::default(), most })
    }

    /// Puts by buffers of `bytes` bytes, until there are `count`.
    pub(super) fn prepare(&self, bytes: usize, count: usize) {
        while self.spare() < count.min(self.most) {
            // Written, not only reserved: to have memory from the system is what takes time.
            let buffer = vec![u8::MAX; bytes];
            lock(&self.spare).push(buffer);
        }
    }

    /// How many are put by.
    pub(super) fn spare(&self) -> usize {
        lock(&self.spare).len()
    }

    /// A block to be filled. What is in it is anything.
    pub(super) fn block(self: &Arc<Self>, bytes: usize) -> Block {
        let mut buffer = lock(&self.spare).pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        Block { bytes: buffer, home: Arc::clone(self) }
    }
}

/// A block, expanded.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut spare = lock(&self.home.spare);
        if spare.len() < self.home.most {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// All blocks that are expanded, or being expanded.
#[derive(Debug)]
pub(super) struct Cache {
    inner: Mutex<Inner>,
    bytes_max: usize,
    /// Bytes of the held blocks that no reader has read yet. Changed under the lock; every
    /// reader looks at it without the lock.
    unread_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<Key, Slot>,
    /// What is held, in the order in which the hand comes by.
    clock: VecDeque<Key>,
    held_bytes: usize,
    spent: VecDeque<(Key, usize)>,
    spent_bytes: usize,
}

#[derive(Debug)]
enum Slot {
    /// With a place to wait, if a thread waits.
    Claimed(Option<Arc<Flight>>),
    Held(Held),
}

#[derive(Debug)]
struct Held {
    block: Arc<Block>,
    /// A reader has read it since the hand came by.
    used: bool,
    /// It was expanded ahead of a reader who has not come yet.
    unread: bool,
}

/// Where those wait who want a block that another expands.
#[derive(Debug, Default)]
pub(super) struct Flight {
    landed: Mutex<Option<Landed>>,
    changed: Condvar,
}

/// How it ended: with a block, or with none.
type Landed = Option<Arc<Block>>;

impl Flight {
    /// The block; `None` if the thread that had claimed it could not expand it.
    pub(super) fn wait(&self) -> Landed {
        let mut landed = lock(&self.landed);
        loop {
            if let Some(landed) = landed.as_ref() {
                return landed.clone();
            }
            landed = self.changed.wait(landed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn land(&self, block: Landed) {
        *lock(&self.landed) = Some(block);
        self.changed.notify_all();
    }
}

/// What is found where a block may be.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Held(Arc<Block>),
    Awaited(Arc<Flight>),
    Absent(Claim<'a>),
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), bytes_max, unread_bytes: AtomicUsize::new(0) }
    }

    /// For who reads the block now.
    pub(super) fn find(&self, key: Key) -> Found<'_> {
        let mut inner = lock(&self.inner);
        match inner.slots.get_mut(&key) {
            Some(Slot::Held(held)) => Found::Held(self.read(held)),
            Some(Slot::Claimed(flight)) => {
                Found::Awaited(Arc::clone(flight.get_or_insert_default()))
            }
            None => Found::Absent(self.claim_in(&mut inner, key)),
        }
    }

    /// The block, for a reader that reads it now; `None` if it is not held.
    pub(super) fn held(&self, key: Key) -> Option<Arc<Block>> {
        match lock(&self.inner).slots.get_mut(&key) {
            Some(Slot::Held(held)) => Some(self.read(held)),
            _ => None,
        }
    }

    fn read(&self, held: &mut Held) -> Arc<Block> {
        held.used = true;
        if std::mem::take(&mut held.unread) {
            self.unread_bytes.fetch_sub(held.block.bytes.len(), Ordering::Relaxed);
        }
        Arc::clone(&held.block)
    }

    /// For who expands what is absent, and leaves the rest.
    pub(super) fn claim(&self, key: Key) -> Option<Claim<'_>> {
        let mut inner = lock(&self.inner);
        (!inner.slots.contains_key(&key)).then(|| self.claim_in(&mut inner, key))
    }

    fn claim_in(&self, inner: &mut Inner, key: Key) -> Claim<'_> {
        inner.slots.insert(key, Slot::Claimed(None));
        Claim { cache: self, key, is_settled: false }
    }

    /// A reader that goes on has read the block to its end: other blocks need the room more.
    /// The block's file has `file_bytes` bytes.
    pub(super) fn finished(&self, key: Key, file_bytes: u64) {
        let mut inner = lock(&self.inner);
        let Some(Slot::Held(held)) = inner.slots.get_mut(&key) else { return };
        held.used = false;
        if file_bytes <= self.bytes_max as u64 {
            return;
        }
        let bytes = held.block.bytes.len();
        let gone = inner.spend(key, bytes);
        drop(inner);
        // Their buffers go home outside of the lock.
        drop(gone);
    }

    /// Bytes of blocks that were expanded ahead of a reader who has not come yet.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread_bytes.load(Ordering::Relaxed)
    }

    /// True for a held block. Leaves it as it is.
    #[cfg(test)]
    pub(super) fn is_held(&self, key: Key) -> bool {
        matches!(lock(&self.inner).slots.get(&key), Some(Slot::Held(_)))
    }

    /// Bytes of all blocks.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        lock(&self.inner).held_bytes
    }
}

impl Inner {
    /// Lets go the blocks that were spent longest ago, except those that a reader has read since.
    fn spend(&mut self, key: Key, bytes: usize) -> Vec<Held> {
        self.spent.push_back((key, bytes));
        self.spent_bytes = self.spent_bytes.saturating_add(bytes);
        let mut gone = Vec::new();
        while self.spent_bytes > SPENT_BYTES {
            let Some((key, bytes)) = self.spent.pop_front() else { break };
            self.spent_bytes = self.spent_bytes.saturating_sub(bytes);
            let is_spent = |slot: &Slot| matches!(slot, Slot::Held(held) if !held.used);
            if self.slots.get(&key).is_some_and(is_spent) {
                gone.extend(self.take(key));
            }
        }
        // The hand need not come by where nothing is any longer.
        if self.clock.len() > self.slots.len().saturating_add(CLOCK_STALE_MAX) {
            let slots = &self.slots;
            self.clock.retain(|key| slots.contains_key(key));
        }
        gone
    }

    fn take(&mut self, key: Key) -> Option<Held> {
        let Some(Slot::Held(held)) = self.slots.remove(&key) else { return None };
        self.held_bytes = self.held_bytes.saturating_sub(held.block.bytes.len());
        Some(held)
    }

    /// Lets blocks go until there is no more than this.
    fn make_room(&mut self, bytes_max: usize) -> Vec<Held> {
        let mut gone = Vec::new();
        while self.held_bytes > bytes_max {
            let Some(key) = self.clock.pop_front() else { break };
            if let Some(Slot::Held(held)) = self.slots.get_mut(&key)
                && std::mem::take(&mut held.used)
            {
                self.clock.push_back(key);
                continue;
            }
            if matches!(self.slots.get(&key), Some(Slot::Held(_))) {
                gone.extend(self.take(key));
            }
        }
        gone
    }
}

/// The right, and the duty, to expand a block.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    cache: &'a Cache,
    key: Key,
    is_settled: bool,
}

impl Claim<'_> {
    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// The block is there for all. `unread` if it was expanded ahead of its reader.
    pub(super) fn publish(mut self, block: Block, unread: bool) -> Arc<Block> {
        let block = Arc::new(block);
        let bytes = block.bytes.len();
        let (before, gone) = {
            let mut inner = lock(&self.cache.inner);
            // A block that no reader has read yet is worth more than one that a reader has.
            let held = Held { block: Arc::clone(&block), used: unread, unread };
            let before = inner.slots.insert(self.key, Slot::Held(held));
            inner.clock.push_back(self.key);
            inner.held_bytes = inner.held_bytes.saturating_add(bytes);
            let gone = inner.make_room(self.cache.bytes_max);
            let lost = gone.iter().filter(|held| held.unread).map(|held| held.block.bytes.len());
            let lost = lost.sum();
            if unread {
                self.cache.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            self.cache.unread_bytes.fetch_sub(lost, Ordering::Relaxed);
            (before, gone)
        };
        // Their buffers go home outside of the lock.
        drop(gone);
        self.is_settled = true;
        land(before, Some(&block));
        block
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            let before = lock(&self.cache.inner).slots.remove(&self.key);
            land(before, None);
        }
    }
}

/// Gives the result to the threads that wait for what was claimed here. Mostly no thread
/// waits, and no system call is made.
fn land(claimed: Option<Slot>, block: Option<&Arc<Block>>) {
    if let Some(Slot::Claimed(Some(flight))) = claimed {
        flight.land(block.map(Arc::clone));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn publish(cache: &Cache, buffers: &Arc<Buffers>, block: u64, unread: bool) {
        let mut bytes = buffers.block(100);
        bytes.bytes.fill(u8::try_from(block % 256).unwrap());
        cache.claim((0, block)).unwrap().publish(bytes, unread);
    }

    fn is_held(cache: &Cache, block: u64) -> bool {
        matches!(cache.find((0, block)), Found::Held(_))
    }

    #[test]
    fn room_is_bounded_and_what_is_used_stays() {
        let (cache, buffers) = (Cache::new(1000), Buffers::new(4));
        for block in 0..10 {
            publish(&cache, &buffers, block, false);
        }
        assert_eq!(cache.held_bytes(), 1000);
        assert!(is_held(&cache, 0), "it is used, and so passed over");
        for block in 10..14 {
            publish(&cache, &buffers, block, false);
            assert_eq!(cache.held_bytes(), 1000);
        }
        assert!(is_held(&cache, 0) && is_held(&cache, 13));
        assert!(!is_held(&cache, 1) && !is_held(&cache, 4));
        assert!(lock(&buffers.spare).len() <= 4);
    }

    #[test]
    fn buffers_are_put_by_up_to_a_bound_and_taken_before_new_ones() {
        let buffers = Buffers::new(4);
        buffers.prepare(4096, 3);
        assert_eq!(buffers.spare(), 3);
        let short = buffers.block(100);
        assert_eq!((short.bytes.len(), short.bytes.capacity()), (100, 4096));
        assert_eq!(buffers.spare(), 2);
        buffers.prepare(4096, 100);
        assert_eq!(buffers.spare(), 4, "no more than come home");
    }

    #[test]
    fn what_nobody_has_read_is_counted_until_it_is_or_goes() {
        let (cache, buffers) = (Cache::new(300), Buffers::new(0));
        publish(&cache, &buffers, 0, true);
        publish(&cache, &buffers, 1, true);
        assert_eq!(cache.unread_bytes(), 200);
        assert!(is_held(&cache, 0));
        assert_eq!(cache.unread_bytes(), 100);
        for block in 2..20 {
            publish(&cache, &buffers, block, false);
        }
        assert_eq!((cache.unread_bytes(), cache.held_bytes()), (0, 300));
    }

    #[test]
    fn what_was_gone_through_of_a_large_file_is_let_go() {
        const BYTES: usize = 1 << 20;
        let held_after = |file_bytes: u64| {
            let (cache, buffers) = (Cache::new(64 * BYTES), Buffers::new(4));
            for block in 0..40 {
                let claim = cache.claim((0, block)).unwrap();
                claim.publish(buffers.block(BYTES), true);
                assert!(is_held(&cache, block));
                cache.finished((0, block), file_bytes);
                // Another reader reads this one again and again.
                assert!(is_held(&cache, 0), "{block}");
            }
            assert!(is_held(&cache, 39) && cache.unread_bytes() == 0);
            cache.held_bytes() / BYTES
        };
        assert_eq!(held_after(64 << 20), 40, "it can be held as a whole");
        assert_eq!(held_after((64 << 20) + 1), SPENT_BYTES / BYTES + 1);
    }

    #[test]
    fn the_clock_forgets_what_is_gone() {
        let (cache, buffers) = (Cache::new(1 << 30), Buffers::new(4));
        for block in 0..10_000 {
            publish(&cache, &buffers, block, true);
            assert!(is_held(&cache, block));
            cache.finished((0, block), 1 << 40);
        }
        // Blocks of a hundred bytes: none of them has to go yet.
        assert_eq!(cache.held_bytes(), 1_000_000);
        for block in 0..100_000 {
            let key = (1, block);
            let claim = cache.claim(key).unwrap();
            claim.publish(buffers.block(100), false);
            cache.finished(key, 1 << 40);
        }
        let inner = lock(&cache.inner);
        assert!(inner.held_bytes <= SPENT_BYTES + 100, "{}", inner.held_bytes);
        assert!(inner.clock.len() <= inner.slots.len() + CLOCK_STALE_MAX);
    }

    #[test]
    fn who_waits_gets_the_block_or_the_claim() {
        let (cache, buffers) = (Cache::new(1000), Buffers::new(0));
        let Found::Absent(claim) = cache.find((0, 7)) else { panic!("it is absent") };
        thread::scope(|scope| {
            let waiting = scope.spawn(|| match cache.find((0, 7)) {
                Found::Awaited(flight) => flight.wait().is_some(),
                other => panic!("{other:?}"),
            });
            thread::sleep(Duration::from_millis(20));
            drop(claim);
            assert!(!waiting.join().unwrap(), "nothing came of it");
        });
        let Found::Absent(claim) = cache.find((0, 7)) else { panic!("it is absent again") };
        assert!(cache.claim((0, 7)).is_none(), "one claim at a time");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| match cache.find((0, 7)) {
                Found::Awaited(flight) => flight.wait().unwrap().bytes.len(),
                Found::Held(block) => block.bytes.len(),
                other => panic!("{other:?}"),
            });
            claim.publish(buffers.block(100), false);
            assert_eq!(waiting.join().unwrap(), 100);
        });
    }
}

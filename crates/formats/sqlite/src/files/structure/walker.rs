//! Goes from page to page: every step is compared with the bounds of the database, the pages that
//! were reached before, and the pointer map.
//!
//! | pointer map entry | bytes | |
//! |---|---|---|
//! | 0 | 1 | what the page is: 1 root, 2 free, 3 first and 4 later overflow page, 5 other b-tree page |
//! | 1 | 4 | the page that leads to it; 0 for roots and free pages |
//!
//! Facts from SQLite's public documentation (`fileformat2.html`, 1.8).

#![deny(clippy::arithmetic_side_effects)]

use std::sync::{Arc, Mutex, PoisonError};

use super::faults::{Fault, Faults};
use super::pages::{Absent, BATCH_BYTES, Batch, Pages, Reached};
use super::to_u64;
use crate::files::owners::Owners;
use pagewarden_core::verdict::Kind;

/// Pages of the pointer map that are kept.
const MAP_PAGES_KEPT: usize = 16;

/// What leads to a page, as the pointer map has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The schema names it.
    Root,
    /// It is in the freelist.
    Free,
    /// A cell of this page goes on there.
    FirstOverflow(u32),
    /// This overflow page goes on there.
    NextOverflow(u32),
    /// It is a child of this page.
    Child(u32),
}

impl Link {
    fn entry(self) -> (u8, u32) {
        match self {
            Self::Root => (1, 0),
            Self::Free => (2, 0),
            Self::FirstOverflow(page) => (3, page),
            Self::NextOverflow(page) => (4, page),
            Self::Child(page) => (5, page),
        }
    }
}

/// The walk of one state of a database.
#[derive(Debug)]
pub struct Walker {
    /// Its pages.
    pub pages: Pages,
    /// Those that were reached.
    pub reached: Reached,
    /// Pages of which it is asked whose they are.
    pub owners: Option<Owners>,
    faults: Mutex<Faults>,
}

/// Memory that one thread goes on using.
#[derive(Debug, Default)]
pub struct Scratch {
    /// For the children of pages, one a level.
    pub batches: Vec<Batch>,
    /// For the stretches of a page.
    pub stretches: Vec<(u32, u32)>,
    /// For a payload that goes on elsewhere.
    pub payload: Vec<u8>,
    map: Vec<(u32, Vec<u8>)>,
    chain: Batch,
}

impl Walker {
    /// Of these pages, none of which was reached yet.
    #[must_use]
    pub fn new(pages: Pages) -> Self {
        let reached = Reached::new(pages.count);
        Self { pages, reached, owners: None, faults: Mutex::default() }
    }

    /// Adds what is wrong with a page.
    pub fn fault(&self, page: u32, kind: Kind, detail: String, object: Option<&Arc<str>>) {
        let object = object.cloned();
        self.with_faults(|faults| faults.add(Fault { page, parent: None, kind, detail, object }));
    }

    /// Gives access to what was found.
    pub fn with_faults<T>(&self, use_them: impl FnOnce(&mut Faults) -> T) -> T {
        use_them(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Steps from page `from` to `page`; false if it must not be looked at. `what` leads there.
    pub fn step(
        &self,
        scratch: &mut Scratch,
        (from, page): (u32, u32),
        link: Link,
        what: &dyn Fn() -> String,
        object: Option<&Arc<str>>,
    ) -> bool {
        let number = u64::from(page);
        let wrong = if number < 1 || number > self.pages.count {
            Some(format!("page {page} of a database of {} pages", self.pages.count))
        } else if self.pages.is_lock(number) {
            Some(format!("page {page}, which SQLite never uses"))
        } else if self.pages.is_map(number) {
            Some(format!("page {page} of the pointer map"))
        } else if !self.reached.insert(number) {
            Some(format!("page {page}, which is reached from elsewhere, too"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.fault(from, Kind::Structure, format!("{} leads to {wrong}", what()), object);
            self.with_faults(|faults| faults.gap_at(from));
            return false;
        }
        if let Some(owners) = &self.owners {
            owners.see(page, object, matches!(link, Link::Root | Link::Child(_)));
        }
        self.compare_with_map(scratch, page, link);
        true
    }

    /// A page that the file does not have, or that fails its own test, has its finding already.
    pub fn absent(&self, page: u32) {
        self.with_faults(|faults| faults.gap_at(page));
    }

    fn compare_with_map(&self, scratch: &mut Scratch, page: u32, link: Link) {
        if !self.pages.has_map {
            return;
        }
        let Some((map, place)) = self.pages.map_entry(page) else { return };
        if !scratch.map.iter().any(|(kept, _)| *kept == map) {
            let mut bytes = vec![0; self.pages.page_size];
            if self.pages.read(map, &mut bytes).is_err() {
                return self.absent(map);
            }
            if scratch.map.len() >= MAP_PAGES_KEPT {
                scratch.map.remove(0);
            }
            scratch.map.push((map, bytes));
        }
        let kept = scratch.map.iter().find(|(kept, _)| *kept == map);
        let entry = kept.and_then(|(_, bytes)| bytes.get(place..)?.first_chunk::<5>());
        let Some([kind, parent @ ..]) = entry else { return };
        let (is, should) = ((*kind, u32::from_be_bytes(*parent)), link.entry());
        if is != should {
            let is_zero = kept.is_some_and(|(_, bytes)| bytes.iter().all(|byte| *byte == 0));
            let fault = if is_zero { Kind::Zeroed } else { Kind::Structure };
            let detail = format!(
                "the pointer map says kind {} and parent {} of page {page}, which is reached as kind {} \
                 from page {}",
                is.0, is.1, should.0, should.1
            );
            self.fault(map, fault, detail, None);
        }
    }

    /// Follows the overflow pages of a cell on page `from`: `rest` bytes, of which as many are put
    /// into the scratch's payload as `room` allows. False if the chain is broken.
    pub fn overflow(
        &self,
        scratch: &mut Scratch,
        (from, first): (u32, u32),
        mut rest: u64,
        room: usize,
        object: Option<&Arc<str>>,
    ) -> bool {
        let mut batch = std::mem::take(&mut scratch.chain);
        let bytes_each = to_u64(self.pages.usable.saturating_sub(4)).max(1);
        let (mut before, mut page, mut link) = (from, first, Link::FirstOverflow(from));
        let ahead_max = BATCH_BYTES.checked_div(self.pages.page_size).unwrap_or(1).max(1);
        // Pages from here on, up to the other, are in the batch.
        let mut held = 0..0_u32;
        let mut ahead = 1_usize;
        let mut is_whole = true;
        while rest > 0 {
            if !self.step(
                scratch,
                (before, page),
                link,
                &|| "a chain of overflow pages".to_owned(),
                object,
            ) {
                is_whole = false;
                break;
            }
            if !held.contains(&page) {
                // They mostly lie one behind the other; where not, nothing is read ahead.
                ahead = if page == held.end { ahead.saturating_mul(4).min(ahead_max) } else { 1 };
                let left = usize::try_from(rest.div_ceil(bytes_each)).unwrap_or(usize::MAX);
                let pages = u32::try_from(ahead.min(left)).unwrap_or(1);
                let last = u32::try_from(self.pages.count).unwrap_or(u32::MAX);
                held = page..page.saturating_add(pages).min(last.saturating_add(1));
                let wanted: Vec<u32> = held.clone().collect();
                batch.fill(&self.pages, &wanted);
            }
            let Ok(bytes) = batch.get(page, self.pages.page_size) else {
                self.absent(page);
                is_whole = false;
                break;
            };
            let Some((next, content)) =
                bytes.get(..self.pages.usable).and_then(|own| own.split_first_chunk())
            else {
                break;
            };
            let next = u32::from_be_bytes(*next);
            let taken = usize::try_from(rest).unwrap_or(usize::MAX).min(content.len());
            let kept = taken.min(room.saturating_sub(scratch.payload.len()));
            scratch.payload.extend_from_slice(content.get(..kept).unwrap_or_default());
            rest = rest.saturating_sub(to_u64(taken));
            if (next == 0) != (rest == 0) {
                is_whole = false;
                let is_zero = bytes.iter().all(|byte| *byte == 0);
                let kind = if is_zero { Kind::Zeroed } else { Kind::Structure };
                let detail = match next {
                    0 => format!("an overflow page that ends its chain, with {rest} bytes missing"),
                    _ => format!("the last overflow page of its chain goes on to page {next}"),
                };
                self.fault(page, kind, detail, object);
                self.with_faults(|faults| faults.gap_at(page));
                break;
            }
            link = Link::NextOverflow(page);
            (before, page) = (page, next);
        }
        scratch.chain = batch;
        is_whole
    }

    /// Goes along the freelist, of which the header says where it begins and how many pages it has.
    pub fn freelist(&self, scratch: &mut Scratch, first: u32, expected: u32) {
        let entries_max = (self.pages.usable / 4).saturating_sub(2);
        let mut bytes = vec![0; self.pages.page_size];
        let (mut before, mut trunk, mut seen) = (1, first, 0_u64);
        while trunk != 0 {
            let leads = || "the freelist".to_owned();
            if !self.step(scratch, (before, trunk), Link::Free, &leads, None) {
                return;
            }
            if self.pages.read(trunk, &mut bytes).is_err() {
                return self.absent(trunk);
            }
            seen = seen.saturating_add(1);
            let (words, _) = bytes.as_chunks::<4>();
            let word = |at: usize| words.get(at).map_or(0, |word| u32::from_be_bytes(*word));
            let count = usize::try_from(word(1)).unwrap_or(usize::MAX);
            if count > entries_max {
                let detail = format!("as a page of the freelist it has {count} entries");
                self.fault(trunk, Kind::Structure, detail, None);
                return self.with_faults(|faults| faults.gap_at(trunk));
            }
            for at in 0..count {
                let leaf = word(at.saturating_add(2));
                let leads = || format!("entry {at} of the freelist");
                self.step(scratch, (trunk, leaf), Link::Free, &leads, None);
            }
            seen = seen.saturating_add(to_u64(count));
            before = trunk;
            trunk = word(0);
        }
        if seen != u64::from(expected) {
            let is_zero = before != 1 && bytes.iter().all(|byte| *byte == 0);
            let kind = if is_zero { Kind::Zeroed } else { Kind::Structure };
            let detail =
                format!("the header counts {expected} free pages, the freelist has {seen}");
            self.fault(before, kind, detail, None);
            self.with_faults(|faults| faults.gap_at(before));
        }
    }

    /// Reads one page by itself.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, page: u32) -> Result<Vec<u8>, Absent> {
        let mut bytes = vec![0; self.pages.page_size];
        self.pages.read(page, &mut bytes).map(|()| bytes)
    }
}

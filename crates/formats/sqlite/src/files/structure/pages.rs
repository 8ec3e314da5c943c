//! The pages of a database as a reader sees them, and which of them were reached.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::to_u64;
use crate::files::wal::view::View;
use crate::page::header::USABLE_BYTES_MIN;
use crate::page::{SqlitePages, lock_byte_page};
use pagewarden_core::page::{PageFormat as _, PageRun, RunVerdict};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{PageNo, Standing};

/// Bytes read at once where pages are known to be wanted.
pub const BATCH_BYTES: usize = 256 << 10;
/// Pages of which it is remembered whether they were reached: 48 MiB of bits.
const REACHED_PAGES_MAX: u64 = 48 << 23;
/// Bytes of an entry of the pointer map.
const MAP_ENTRY_BYTES: u64 = 5;

/// Why there is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The file ends before it.
    Cut,
    /// It cannot be read.
    Unread,
    /// It fails its own test.
    Failed,
}

/// The pages of one state of a database.
#[derive(Debug)]
pub struct Pages {
    file: File,
    /// How they are judged by themselves.
    format: Arc<SqlitePages>,
    /// Bytes in a page.
    pub page_size: usize,
    /// Of these, SQLite's own.
    pub usable: usize,
    /// Pages of the database.
    pub count: u64,
    /// Whole pages of the file.
    in_file: u64,
    /// The log over it.
    pub log: Option<View>,
    /// The log is a rollback journal, which the next program that opens the database plays back.
    pub is_undone: bool,
    /// Its pages have another form than those of the file: see [`Pages::reserve`].
    is_other_form: bool,
    /// The database has a pointer map.
    pub has_map: bool,
    /// Bytes read so far.
    pub bytes_read: AtomicU64,
}

impl Pages {
    /// Those of `file`, of which `file_bytes` are there.
    #[must_use]
    pub fn new(file: File, format: Arc<SqlitePages>, file_bytes: u64, log: Option<View>) -> Self {
        let page_size = format.page_size;
        let in_file = file_bytes.checked_div(to_u64(page_size)).unwrap_or(0);
        Self {
            file,
            page_size,
            usable: page_size.saturating_sub(usize::from(format.reserved_bytes)),
            format,
            count: 0,
            in_file,
            log,
            is_undone: false,
            is_other_form: false,
            has_map: false,
            bytes_read: AtomicU64::new(0),
        }
    }

    /// The bytes at the end of each page that its header says are not SQLite's own. A transaction that
    /// changes them, and will be undone, has left their new number in the file and the old one in
    /// the log: then what the file's pages carry there says nothing.
    pub fn reserve(&mut self, bytes: u8) {
        let usable = self.page_size.saturating_sub(usize::from(bytes));
        if bytes != self.format.reserved_bytes && usable >= USABLE_BYTES_MIN {
            self.is_other_form = true;
            self.usable = usable;
        }
    }

    /// The number of pages where the header does not say.
    #[must_use]
    pub fn count_by_length(&self) -> u64 {
        self.log.as_ref().map_or(self.in_file, |log| u64::from(log.pages))
    }

    /// Reads one page into `bytes`. What a page that fails its own test leads to is not known: it
    /// counts as absent.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, page: u32, bytes: &mut [u8]) -> Result<(), Absent> {
        self.read_untested(page, bytes)?;
        if self.fails(page, bytes) { Err(Absent::Failed) } else { Ok(()) }
    }

    /// What a page of the file counts as by itself; `None` for one in the log,
    /// or of another form.
    #[must_use]
    pub fn standing(&self, page: u32, bytes: &[u8]) -> Option<Standing> {
        if self.is_other_form || self.is_in_log(page) {
            return None;
        }
        let mut verdict = RunVerdict::default();
        self.format.judge(PageRun { first: PageNo(u64::from(page)), bytes }, &mut verdict);
        verdict.standings.iter().next().and_then(|(standing, _)| standing)
    }

    /// True if a page carries a sum that does not fit.
    fn fails(&self, page: u32, bytes: &[u8]) -> bool {
        let has_sums = self.format.has_sums || self.format.markers.is_some();
        let fails = |standing| matches!(standing, Standing::Damaged | Standing::Suspect);
        has_sums && self.standing(page, bytes).is_some_and(fails)
    }

    /// As [`Pages::read`], whatever the page says of itself.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read_untested(&self, page: u32, bytes: &mut [u8]) -> Result<(), Absent> {
        self.passed(bytes.len());
        if let Some(log) = &self.log
            && let Some(offset) = log.offset(page)
        {
            return if log.read(bytes, offset) { Ok(()) } else { Err(Absent::Unread) };
        }
        match self.offset(page).map(|offset| read_fully(&self.file, bytes, offset)) {
            Some(Ok(count)) if count == bytes.len() => Ok(()),
            Some(Err(_)) => Err(Absent::Unread),
            _ => Err(Absent::Cut),
        }
    }

    /// Where a page begins in the file.
    #[must_use]
    pub fn offset(&self, page: u32) -> Option<u64> {
        u64::from(page).checked_sub(1)?.checked_mul(to_u64(self.page_size))
    }

    /// True if the newest version of a page is in the log.
    #[must_use]
    pub fn is_in_log(&self, page: u32) -> bool {
        self.log.as_ref().is_some_and(|log| log.offset(page).is_some())
    }

    fn passed(&self, bytes: usize) {
        self.bytes_read.fetch_add(to_u64(bytes), Ordering::Relaxed);
    }

    /// The page of the pointer map that has the entry of `page`, and where it is there; `None`
    /// for pages that have none.
    #[must_use]
    pub fn map_entry(&self, page: u32) -> Option<(u32, usize)> {
        let per_page = to_u64(self.usable).checked_div(MAP_ENTRY_BYTES)?;
        let group = u64::from(page).checked_sub(2)?.checked_div(per_page.checked_add(1)?)?;
        let mut map = group.checked_mul(per_page.checked_add(1)?)?.checked_add(2)?;
        if map == lock_byte_page(self.page_size) {
            map = map.checked_add(1)?;
        }
        let place =
            u64::from(page).checked_sub(map)?.checked_sub(1)?.checked_mul(MAP_ENTRY_BYTES)?;
        Some((u32::try_from(map).ok()?, usize::try_from(place).ok()?))
    }

    /// True for pages of the pointer map.
    #[must_use]
    pub fn is_map(&self, page: u64) -> bool {
        let Some(per_group) = to_u64(self.usable).checked_div(MAP_ENTRY_BYTES) else {
            return false;
        };
        let per_group = per_group.saturating_add(1);
        let lock = lock_byte_page(self.page_size);
        let is_first = |page: u64| {
            page.checked_sub(2).and_then(|place| place.checked_rem(per_group)) == Some(0)
        };
        let before = page.saturating_sub(1);
        self.has_map && (is_first(page) && page != lock || before == lock && is_first(before))
    }

    /// True for the page that SQLite never uses.
    #[must_use]
    pub fn is_lock(&self, page: u64) -> bool {
        page == lock_byte_page(self.page_size)
    }
}

/// Some pages, read in the order in which they lie.
#[derive(Debug, Default)]
pub struct Batch {
    /// Ascending by page; what could not be read has no place.
    places: Vec<(u32, Result<usize, Absent>)>,
    bytes: Vec<u8>,
}

impl Batch {
    /// Reads `wanted`, which must be few; what was here before is forgotten.
    pub fn fill(&mut self, pages: &Pages, wanted: &[u32]) {
        let size = pages.page_size;
        let mut order: Vec<u32> = wanted.to_vec();
        order.sort_unstable();
        order.dedup();
        self.places.clear();
        self.bytes.resize(order.len().saturating_mul(size), 0);
        let mut at = 0;
        let mut rest = order.as_slice();
        while let Some(first) = rest.first().copied() {
            let run = self.run_length(pages, rest);
            let end = at_plus(at, run, size);
            let numbers = rest.get(..run).unwrap_or_default();
            let Some(bytes) = self.bytes.get_mut(at..end) else { return };
            let whole = match run {
                1 => pages.read(first, bytes),
                _ => pages.read_run(first, bytes),
            };
            for (index, page) in numbers.iter().enumerate() {
                let place = at_plus(at, index, size);
                // Only a run whose end is missing is read again, page by page.
                let read = match whole {
                    Err(_) if run > 1 => {
                        let bytes = self.bytes.get_mut(place..at_plus(place, 1, size));
                        bytes.map_or(Err(Absent::Unread), |bytes| pages.read(*page, bytes))
                    }
                    Ok(()) if run > 1 => {
                        let bytes = self.bytes.get(place..at_plus(place, 1, size));
                        let fails = bytes.is_none_or(|bytes| pages.fails(*page, bytes));
                        if fails { Err(Absent::Failed) } else { Ok(()) }
                    }
                    other => other,
                };
                self.places.push((*page, read.map(|()| place)));
            }
            rest = rest.get(run..).unwrap_or_default();
            at = end;
        }
    }

    /// How many of the first pages lie one behind the other in the file.
    fn run_length(&self, pages: &Pages, rest: &[u32]) -> usize {
        let first = rest.first().copied().unwrap_or(0);
        let is_next = |(page, index): &(&u32, u32)| {
            **page == first.saturating_add(*index) && !pages.is_in_log(**page)
        };
        rest.iter().zip(0_u32..).take_while(is_next).count().max(1)
    }

    /// One of the pages.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, page: u32, page_size: usize) -> Result<&[u8], Absent> {
        let place = self.places.binary_search_by_key(&page, |(page, _)| *page);
        let place = place.ok().and_then(|place| self.places.get(place)).ok_or(Absent::Unread)?.1?;
        self.bytes.get(place..at_plus(place, 1, page_size)).ok_or(Absent::Unread)
    }
}

impl Pages {
    /// Reads pages that lie one behind the other in the file.
    fn read_run(&self, first: u32, bytes: &mut [u8]) -> Result<(), Absent> {
        self.passed(bytes.len());
        match self.offset(first).map(|offset| read_fully(&self.file, bytes, offset)) {
            Some(Ok(count)) if count == bytes.len() => Ok(()),
            Some(Err(_)) => Err(Absent::Unread),
            _ => Err(Absent::Cut),
        }
    }
}

fn at_plus(at: usize, pages: usize, size: usize) -> usize {
    at.saturating_add(pages.saturating_mul(size))
}

/// A bit for each page that was reached.
#[derive(Debug)]
pub struct Reached {
    words: Vec<AtomicU64>,
    /// Steps that are left where there are too many pages for bits, so that circles end.
    steps: AtomicU64,
    /// Pages that were reached.
    pub count: AtomicU64,
}

impl Reached {
    /// For a database of this number of pages.
    #[must_use]
    pub fn new(pages: u64) -> Self {
        let words =
            if pages <= REACHED_PAGES_MAX { pages.div_ceil(64).saturating_add(1) } else { 0 };
        let words = usize::try_from(words).unwrap_or(0);
        Self {
            words: std::iter::repeat_with(AtomicU64::default).take(words).collect(),
            steps: AtomicU64::new(pages),
            count: AtomicU64::default(),
        }
    }

    /// True if each page is remembered.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.words.is_empty()
    }

    /// Marks a page; false if it was reached before.
    pub fn insert(&self, page: u64) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        if !self.is_exact() {
            let left = |steps: u64| steps.checked_sub(1);
            return self.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
        }
        let Some(word) = self.word(page) else { return false };
        word.fetch_or(1 << (page % 64), Ordering::Relaxed) & 1 << (page % 64) == 0
    }

    /// True if a page was reached.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        self.word(page).is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (page % 64) != 0)
    }

    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(page / 64).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(page_size: usize) -> Pages {
        let file = tempfile::tempfile().unwrap();
        let format = SqlitePages { page_size, ..SqlitePages::default() };
        let mut pages = Pages::new(file, Arc::new(format), 0, None);
        pages.has_map = true;
        pages
    }

    /// Section 1.8 of the documentation: the map's first page is page 2, and each has the entries
    /// of the pages behind it.
    #[test]
    fn pointer_map_lies_where_the_documentation_says() {
        let pages = pages(512);
        assert_eq!(pages.map_entry(3), Some((2, 0)));
        assert_eq!(pages.map_entry(104), Some((2, 505)));
        assert_eq!(pages.map_entry(106), Some((105, 0)));
        assert_eq!(pages.map_entry(2), None);
        assert_eq!((1..=208).filter(|page| pages.is_map(*page)).collect::<Vec<_>>(), [2, 105, 208]);
    }

    #[test]
    fn page_is_reached_once() {
        let reached = Reached::new(100);
        assert!(!reached.contains(77));
        assert!(reached.insert(77));
        assert!(!reached.insert(77));
        assert!(reached.contains(77) && !reached.contains(78));
    }
}

//! Blocks that were in use: those of a heap known from its visibility map and its
//! indexes, those of an index from its other pages. They are compared with the pages
//! that are zero or not there.
//!
//! And rows that an index knows and the heap's page does not hold: a page that
//! lacks the line pointer is older than the index. If only one of several indexes knows
//! it, that index is of another moment than the table and the others.
//!
//! One bit a block and kind of witness, 32 MiB for a tebibyte of 8 KiB pages, and
//! six bytes a block for the rows, as long as they fit into 256 MiB (a third of a
//! tebibyte). Pages are seen as they are read anyway, in any order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::files::evidence::Identity;
use crate::files::witness::{Method, heap, visibility_map};
use pagewarden_core::database::Step;
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Place, Severity, Standing};

/// Names of indexes that are shown.
const NAMES_MAX: usize = 3;
/// Stretches of zero pages in one heap that are kept.
const STRETCHES_MAX: usize = 1 << 16;

/// A heap, or another relation whose pages may be vouched for.
#[derive(Debug)]
pub(in crate::files) struct Watched {
    /// Whole pages in all its files, as they were listed.
    pages: u64,
    page_size: u64,
    /// Pages in a full segment.
    segment_pages: u64,
    /// The name of the first segment in the report.
    stem: String,
    identity: Option<Identity>,
    hint: Option<Arc<str>>,
    by_map: Blocks,
    by_index: Blocks,
    /// By other pages of the same index.
    by_link: Blocks,
    rows: Option<Rows>,
    indexes: Mutex<Vec<KnownIndex>>,
    zero: Mutex<Vec<(u64, u64)>>,
    /// The first page is written when the relation is made, and never emptied.
    needs_first: bool,
    /// The same of every page.
    needs_all: bool,
    /// The end is inside a page or before a segment with content, which is
    /// reported for itself.
    has_odd_end: bool,
}

/// Blocks whose rows are compared with what indexes know of them.
pub(in crate::files) const ROW_BLOCKS_MAX: u64 = 42 << 20;

/// An index on the heap.
#[derive(Debug)]
struct KnownIndex {
    name: Arc<str>,
    /// Its first file in the report.
    file: String,
}

/// For each block, the highest number of a line pointer.
#[derive(Debug)]
struct Rows {
    /// That an index leads to, see [`Indexed`].
    indexed: Vec<AtomicU32>,
    /// That the page has, see [`Held`].
    held: Vec<AtomicU16>,
}

/// What a page says of its rows, in 16 bits: how many line pointers it has (12), whether all of its rows are
/// visible to all (1), and that it was seen and passed its test (1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    count: u16,
    is_all_visible: bool,
}

impl Held {
    const ALL_VISIBLE: u16 = 1 << POINTER_BITS;
    const SEEN: u16 = 1 << 15;

    fn unpack(packed: u16) -> Option<Self> {
        let (count, is_all_visible) = (packed & POINTER_MAX, packed & Self::ALL_VISIBLE != 0);
        (packed & Self::SEEN != 0).then_some(Self { count, is_all_visible })
    }

    fn pack(self) -> u16 {
        let visible = if self.is_all_visible { Self::ALL_VISIBLE } else { 0 };
        Self::SEEN | visible | self.count.min(POINTER_MAX)
    }
}

/// What indexes know of the rows of a block, in 32 bits: the highest line pointer (12),
/// the highest that another index than that one knows (12), and which one it is (8). A
/// page of 32 KiB has 1,163 line pointers at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Indexed {
    highest: u16,
    others: u16,
    by: u8,
}

const POINTER_BITS: u32 = 12;
const POINTER_MAX: u16 = (1 << POINTER_BITS) - 1;
/// Indexes from this one on are not told from one another.
const INDEXES_TOLD: u8 = 255;

impl Indexed {
    fn unpack(packed: u32) -> Self {
        let part =
            |shift: u32| u16::try_from(packed >> shift & u32::from(POINTER_MAX)).unwrap_or(0);
        Self {
            highest: part(0),
            others: part(POINTER_BITS),
            by: u8::try_from(packed >> (2 * POINTER_BITS)).unwrap_or(INDEXES_TOLD),
        }
    }

    fn pack(self) -> u32 {
        u32::from(self.highest)
            | u32::from(self.others) << POINTER_BITS
            | u32::from(self.by) << (2 * POINTER_BITS)
    }

    /// With a line pointer that an index knows; `None` if that says nothing new.
    fn with(self, number: u16, by: u8) -> Option<Self> {
        let number = number.min(POINTER_MAX);
        if self.by == by || self.highest == 0 {
            return (number > self.highest).then_some(Self { highest: number, by, ..self });
        }
        if number > self.highest {
            return Some(Self { highest: number, others: self.highest, by });
        }
        (number > self.others).then_some(Self { others: number, ..self })
    }
}

/// A block of which an index knows rows that its page lacks.
#[derive(Debug, Clone, Copy)]
struct Lacking {
    block: u64,
    indexed: Indexed,
    held: u16,
}

impl Rows {
    fn new(pages: u64) -> Self {
        let count = usize::try_from(pages).unwrap_or(0);
        Self {
            indexed: std::iter::repeat_with(|| AtomicU32::new(0)).take(count).collect(),
            held: std::iter::repeat_with(|| AtomicU16::new(0)).take(count).collect(),
        }
    }

    #[inline]
    fn index(&self, block: u32, number: u16, by: u8) {
        let Some(place) = usize::try_from(block).ok().and_then(|block| self.indexed.get(block))
        else {
            return;
        };
        // Most entries say nothing new, and a load does not take the line from others.
        let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            Indexed::unpack(packed).with(number, by).map(Indexed::pack)
        });
    }

    #[inline]
    fn hold(&self, block: u64, page: &[u8]) {
        let held = Held { count: heap::count(page), is_all_visible: heap::is_all_visible(page) };
        if let Some(place) = usize::try_from(block).ok().and_then(|block| self.held.get(block)) {
            place.store(held.pack(), Ordering::Relaxed);
        }
    }

    /// What the pages say that passed their tests.
    fn seen(&self) -> impl Iterator<Item = (u64, Held)> {
        let held = (0_u64..).zip(&self.held);
        held.filter_map(|(block, held)| Some((block, Held::unpack(held.load(Ordering::Relaxed))?)))
    }

    fn lacking(&self) -> impl Iterator<Item = Lacking> {
        self.seen().filter_map(|(block, Held { count: held, .. })| {
            let indexed = self.indexed.get(usize::try_from(block).ok()?)?;
            let indexed = Indexed::unpack(indexed.load(Ordering::Relaxed));
            (indexed.highest > held).then_some(Lacking { block, indexed, held })
        })
    }
}

/// What is known before any page is read.
#[derive(Debug)]
pub(in crate::files) struct Facts {
    pub(in crate::files) pages: u64,
    pub(in crate::files) page_size: usize,
    pub(in crate::files) segment_pages: u64,
    pub(in crate::files) stem: String,
    pub(in crate::files) identity: Option<Identity>,
    pub(in crate::files) hint: Option<Arc<str>>,
    pub(in crate::files) needs_first: bool,
    pub(in crate::files) needs_all: bool,
    pub(in crate::files) has_odd_end: bool,
    /// Whether there is room to hold its rows against its indexes.
    pub(in crate::files) with_rows: bool,
}

/// A bit for each block, and what lies past the last.
#[derive(Debug, Default)]
struct Blocks {
    bits: OnceLock<Vec<AtomicU64>>,
    /// The lowest and highest block past the end.
    beyond: Mutex<Option<(u64, u64)>>,
}

impl Blocks {
    #[inline]
    fn mark(&self, block: u32, pages: u64) {
        let block = u64::from(block);
        if block >= pages {
            return self.mark_beyond(block);
        }
        let bits = self.bits.get_or_init(|| {
            let words = usize::try_from(pages.div_ceil(64)).unwrap_or(0);
            std::iter::repeat_with(|| AtomicU64::new(0)).take(words).collect()
        });
        let bit = 1 << (block % 64);
        // Most are known already, and a load does not take the line from others.
        if let Some(word) = usize::try_from(block / 64).ok().and_then(|at| bits.get(at))
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    #[cold]
    fn mark_beyond(&self, block: u64) {
        let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        let (lowest, highest) = beyond.unwrap_or((block, block));
        *beyond = Some((lowest.min(block), highest.max(block)));
    }

    fn has(&self, block: u64) -> bool {
        let word = self.bits.get().and_then(|bits| bits.get(usize::try_from(block / 64).ok()?));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1)
    }

    fn beyond(&self) -> Option<(u64, u64)> {
        *self.beyond.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    pub(in crate::files) fn new(facts: Facts) -> Self {
        Self {
            pages: facts.pages,
            page_size: facts.page_size as u64,
            segment_pages: facts.segment_pages.max(1),
            stem: facts.stem,
            identity: facts.identity,
            hint: facts.hint,
            by_map: Blocks::default(),
            by_index: Blocks::default(),
            by_link: Blocks::default(),
            rows: facts.with_rows.then(|| Rows::new(facts.pages)),
            indexes: Mutex::default(),
            zero: Mutex::default(),
            needs_first: facts.needs_first,
            needs_all: facts.needs_all,
            has_odd_end: facts.has_odd_end,
        }
    }

    /// A page of the same index leads to this block.
    pub(in crate::files) fn mark_link(&self, block: u32) {
        self.by_link.mark(block, self.pages);
    }

    /// True if a page of the same index leads to this block.
    pub(in crate::files) fn is_linked(&self, block: u32) -> bool {
        self.by_link.has(u64::from(block))
    }

    /// Whole pages in all its files.
    pub(in crate::files) fn pages(&self) -> u64 {
        self.pages
    }

    /// Its number, the same for all files of an index.
    fn add_index(&self, name: Arc<str>, file: &str) -> u8 {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indexes.iter().position(|index| index.name == name);
        let number = known.unwrap_or_else(|| {
            if indexes.len() < usize::from(INDEXES_TOLD) {
                indexes.push(KnownIndex { name, file: file.to_owned() });
            }
            indexes.len() - 1
        });
        u8::try_from(number).unwrap_or(INDEXES_TOLD)
    }

    fn indexes(&self) -> String {
        let indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<_> = indexes.iter().take(NAMES_MAX).map(|index| &*index.name).collect();
        names.join(", ")
    }

    /// Rows that an index knows and a page lacks: the page is older, if two indexes say
    /// so or there is but one; else that index is of another moment.
    fn conclude_rows(&self, steps: &mut Vec<Step>) {
        let indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alone: BTreeMap<u8, (u64, Lacking)> = BTreeMap::new();
        for lacking in self.rows.iter().flat_map(Rows::lacking) {
            let Lacking { block, indexed, held } = lacking;
            if indexed.others <= held && indexes.len() > 1 {
                alone.entry(indexed.by).or_insert((0, lacking)).0 += 1;
                continue;
            }
            let name =
                indexes.get(usize::from(indexed.by)).map_or("an index", |index| &*index.name);
            let others = if indexed.others > held { " and another index" } else { "" };
            let detail = format!(
                "an older version, it seems: {name}{others} knows its line pointer {}, and it has {held}",
                indexed.highest
            );
            let mut finding = self.finding(block, Kind::Stale, detail);
            // The page is sound by itself, and so is the index.
            finding.severity = Severity::Suspect;
            steps.push(Step::Overruled(finding, Standing::Ok));
        }
        for (by, (count, first)) in alone {
            let Some(index) = indexes.get(usize::from(by)) else { continue };
            let table = self.identity.as_ref().map_or(self.stem.as_str(), |known| &*known.object);
            let detail = format!(
                "of another moment than its table, it seems: it knows rows of {count} pages of {table} that these lack, and no other index knows them (page {}: line pointer {} of {})",
                first.block, first.indexed.highest, first.held
            );
            let mut finding = Finding::of_file(&index.file, Severity::Suspect, Kind::Stale, detail);
            finding.database = self
                .identity
                .as_ref()
                .and_then(|known| known.database.as_deref().map(str::to_owned));
            finding.object = Some(index.name.as_ref().to_owned());
            let hint =
                format!("an index can be built anew from its table: REINDEX INDEX {}", index.name);
            steps.push(Step::Finding(finding.with_hint(hint)));
        }
    }

    /// Pages whose bits in the visibility map are set, and which say themselves that not all of their rows
    /// are visible: scans of an index alone find rows that are deleted. The server clears both at once.
    fn conclude_map(&self, steps: &mut Vec<Step>) {
        for (block, held) in self.rows.iter().flat_map(Rows::seen) {
            if !held.is_all_visible && self.by_map.has(block) {
                let detail = "its bit in the visibility map is set, and it says itself that not all of its \
                              rows are visible to all: the map or the page is an older version, it seems";
                let mut finding = self.finding(block, Kind::Stale, detail.to_owned());
                finding.severity = Severity::Suspect;
                let hint = "see which: count the rows by the table and by an index alone; VACUUM \
                            (DISABLE_PAGE_SKIPPING) makes the map anew";
                steps.push(Step::Overruled(finding.with_hint(hint), Standing::Ok));
            }
        }
    }

    /// What comes of it, once every page was seen.
    pub(in crate::files) fn conclude(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut zero =
            std::mem::take(&mut *self.zero.lock().unwrap_or_else(PoisonError::into_inner));
        zero.sort_unstable();
        for (first, count) in zero {
            for block in first..first.saturating_add(count) {
                let Some(why) = self.why_in_use(block) else { continue };
                let finding = self.finding(block, Kind::Zeroed, format!("all zero, but {why}"));
                steps.push(Step::Overruled(finding, Standing::Empty));
            }
        }
        self.conclude_rows(&mut steps);
        self.conclude_map(&mut steps);
        let ends = [
            (self.by_map.beyond(), "its visibility map has bits".to_owned()),
            (self.by_index.beyond(), format!("entries of {} lead", self.indexes())),
            (self.by_link.beyond(), "other pages of it lead".to_owned()),
        ];
        let highest = |end: &(Option<(u64, u64)>, String)| end.0.map(|(_, highest)| highest);
        let end = ends.into_iter().max_by_key(highest).filter(|_| !self.has_odd_end);
        if let Some((Some((lowest, highest)), who)) = end {
            let detail = format!(
                "the relation ends after {} pages, but {who} to blocks {lowest} to {highest}",
                self.pages
            );
            steps.push(Step::Finding(self.finding(self.pages, Kind::Truncated, detail)));
        }
        steps
    }

    fn why_in_use(&self, block: u64) -> Option<String> {
        if block == 0 && self.needs_first {
            return Some("the first page of such a relation is never empty".to_owned());
        }
        if self.needs_all {
            return Some("no page of an init fork is ever empty".to_owned());
        }
        if self.by_link.has(block) {
            return Some("another page of the index leads to it".to_owned());
        }
        let (map, index) = (self.by_map.has(block), self.by_index.has(block));
        let entries = || format!("entries of {} lead to it", self.indexes());
        match (map, index) {
            (false, false) => None,
            (true, false) => Some("its bit in the visibility map is set".to_owned()),
            (false, true) => Some(entries()),
            (true, true) => {
                Some(format!("its bit in the visibility map is set, and {}", entries()))
            }
        }
    }

    pub(in crate::files) fn finding(&self, block: u64, kind: Kind, detail: String) -> Finding {
        // What lies past the end of a full segment is still the end of that one.
        let is_end = kind == Kind::Truncated && block > 0;
        let segment = (block - u64::from(is_end)) / self.segment_pages;
        let in_segment = block - segment * self.segment_pages;
        let file = match segment {
            0 => self.stem.clone(),
            segment => format!("{}.{segment}", self.stem),
        };
        let mut finding = Finding::of_file("", Severity::Damage, kind, detail);
        finding.place = Place {
            file,
            page: Some(PageNo(block)),
            offset: Some(ByteOffset(in_segment.saturating_mul(self.page_size))),
        };
        if let Some(identity) = &self.identity {
            finding.database = identity.database.as_deref().map(str::to_owned);
            finding.object = Some(identity.object.as_ref().to_owned());
        }
        finding.hint = self.hint.as_deref().map(str::to_owned);
        finding
    }
}

/// Sees the pages of the relation itself: which are zero, and how many line
/// pointers the others have.
#[derive(Debug)]
pub(in crate::files) struct OwnPages(pub(in crate::files) Arc<Watched>);

impl Witness for OwnPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let mut at = run.first.0;
        for (standing, count) in standings.iter() {
            if standing == Some(Standing::Empty) {
                let mut zero = self.0.zero.lock().unwrap_or_else(PoisonError::into_inner);
                if zero.len() < STRETCHES_MAX {
                    zero.push((at, count));
                }
            }
            at = at.saturating_add(count);
        }
        if let Some(rows) = &self.0.rows {
            let page_size = usize::try_from(self.0.page_size).unwrap_or(usize::MAX);
            each_sound(run, standings, page_size, |block, page| {
                rows.hold(block, page);
            });
        }
    }
}

/// Sees the visibility map of a heap.
#[derive(Debug)]
pub(in crate::files) struct MapPages {
    pub(in crate::files) heap: Arc<Watched>,
    pub(in crate::files) page_size: usize,
}

impl Witness for MapPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        each_sound(run, standings, self.page_size, |number, page| {
            let Ok(number) = u32::try_from(number) else { return };
            visibility_map::visit(page, number, |block, _| {
                self.heap.by_map.mark(block, self.heap.pages);
            });
        });
    }
}

/// Sees the pages of an index on a heap.
#[derive(Debug)]
pub(in crate::files) struct IndexPages {
    heap: Arc<Watched>,
    method: Method,
    page_size: usize,
    /// Which of the heap's indexes it is.
    number: u8,
}

impl IndexPages {
    pub(in crate::files) fn new(
        heap: Arc<Watched>,
        method: Method,
        page_size: usize,
        name: Arc<str>,
        file: &str,
    ) -> Self {
        let number = heap.add_index(name, file);
        Self { heap, method, page_size, number }
    }
}

impl Witness for IndexPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let (blocks, pages) = (&self.heap.by_index, self.heap.pages);
        let rows = self.heap.rows.as_ref();
        each_sound(run, standings, self.page_size, |_, page| {
            self.method.visit_runs(page, |tid| {
                blocks.mark(tid.block, pages);
                if let Some(rows) = rows {
                    rows.index(tid.block, tid.number, self.number);
                }
            });
        });
    }
}

/// Calls `each` for every page in use that passed its test, with its number.
pub(in crate::files) fn each_sound(
    run: PageRun<'_>,
    standings: &Standings,
    page_size: usize,
    mut each: impl FnMut(u64, &[u8]),
) {
    for (PageNo(number), page, standing) in run.judged(page_size, standings) {
        if matches!(standing, Some(Standing::Ok | Standing::Unprotected)) {
            each(number, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_that_knows_most_is_remembered_with_what_the_others_know() {
        let mut known = Indexed::unpack(0);
        for (number, by) in [(5, 1), (3, 2), (7, 1), (7, 3), (6, 2), (9, 2), (1, 9)] {
            known = known.with(number, by).unwrap_or(known);
            assert_eq!(Indexed::unpack(known.pack()), known);
        }
        assert_eq!(known, Indexed { highest: 9, others: 7, by: 2 });
        let far = known.with(u16::MAX, 254).unwrap();
        assert_eq!(Indexed::unpack(far.pack()), Indexed { highest: 4095, others: 9, by: 254 });
    }
}

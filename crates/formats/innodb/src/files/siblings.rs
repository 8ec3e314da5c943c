//! Pages of an index that each pass their own test, and contradict one another.
//!
//! The pages of a level are a list that is linked both ways (bytes 8 and 12 of a page). A server
//! writes both sides of a link in one mini-transaction, so that after a clean shutdown they agree. A
//! page that was put back as it was (a lost write), or whose links are wrong under a sum that was
//! made right, denies what the page beside it says. Two pages that contradict each other do not tell
//! which is wrong. In this order:
//!
//! 1. a third page does: a page that is wrong is contradicted by two, each of them by one;
//! 2. what is explained by a page that is named so accuses no other;
//! 3. of two pages alone that one is wrong that says it is the end of a list, if a third page has the
//!    other in it; else the older one by its LSN, which did not get what the newer says;
//! 4. where that leaves it open, or one of them names a page that is not known, the file is `suspect`
//!    and no page is named.
//!
//! Only pages in use that passed their own test have a say: a damaged page makes no sound one suspect.
//! A page that is stored compressed or encrypted has its neighbours in the clear. What it is, MySQL
//! keeps beside them, under no sum; where that says anything but an index page, and of MariaDB's,
//! it is not known what the page is, and it denies nothing.
//! Eight bytes are kept for each page of a file until its end.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::fields::{u32_at, u64_at};
use crate::files::structure::Structure;
use crate::page::allocation::AllocationMap;
use crate::page::fields::{
    MYSQL_ORIGINAL_TYPE, PAGE_TYPE, TYPE_COMPRESSED, TYPE_COMPRESSED_AND_ENCRYPTED,
    TYPE_COMPRESSED_MARK, TYPE_ENCRYPTED, read_u16,
};
use crate::page::is_stored_otherwise;
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Standing};

const BEFORE: usize = 8;
const AFTER: usize = 12;
const LSN: usize = 16;
const HEADER_BYTES: usize = 38;
const TYPE_INDEX: u16 = 17_855;
/// No page.
const NONE: u32 = u32::MAX;

/// A page that did not pass, or was not seen.
const UNKNOWN: u64 = 0;
/// One in use that passed, and is none of an index. No page of an index is between the pages 0 and 1.
const OTHER: u64 = 1;
/// Pages that a finding names.
const NAMED_MAX: usize = 2;

/// Larger files are not gone through: 256 GiB of pages of 16 KiB.
const PAGES_MAX: u64 = 1 << 24;
/// Pages of files that wait for a barrier.
const WAITING_MAX: u64 = 1 << 21;
/// Of a file in which more is wrong the first are reported.
const CONFLICTS_MAX: usize = 1000;

/// What is linked to what in one file.
struct Chain {
    file: String,
    path: PathBuf,
    database: Option<Arc<str>>,
    object: Option<Arc<str>>,
    page_bytes: u64,
    severity: Severity,
    allocated: Arc<AllocationMap>,
    /// The pages before and after each, or one of the marks.
    links: Vec<AtomicU64>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Witness for Chain {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let page_bytes = usize::try_from(self.page_bytes).unwrap_or(usize::MAX);
        for (PageNo(number), page, standing) in run.judged(page_bytes, standings) {
            let slot = usize::try_from(number).ok().and_then(|at| self.links.get(at));
            if let Some(slot) = slot {
                slot.store(self.said(standing, number, page), Ordering::Relaxed);
            }
        }
    }
}

impl Chain {
    fn said(&self, standing: Option<Standing>, number: u64, page: &[u8]) -> u64 {
        // What a map that fails would have in use counts for nothing, as what a free page says.
        if standing != Some(Standing::Ok) || !self.allocated.contains(number) {
            return UNKNOWN;
        }
        match read_u16(page, PAGE_TYPE) {
            TYPE_INDEX => {}
            TYPE_COMPRESSED | TYPE_ENCRYPTED | TYPE_COMPRESSED_AND_ENCRYPTED
                if read_u16(page, MYSQL_ORIGINAL_TYPE) == TYPE_INDEX => {}
            outer if is_stored_otherwise(outer) => return UNKNOWN,
            outer if outer & TYPE_COMPRESSED_MARK != 0 => return UNKNOWN,
            _ => return OTHER,
        }
        Links::of(page).map_or(UNKNOWN, Links::packed)
    }

    fn state(&self, page: u32) -> u64 {
        let slot = usize::try_from(page).ok().and_then(|at| self.links.get(at));
        // Behind the end of the file there is no page.
        slot.map_or(OTHER, |slot| slot.load(Ordering::Relaxed))
    }

    fn links(&self, page: u32) -> Option<Links> {
        let state = self.state(page);
        (!matches!(state, UNKNOWN | OTHER)).then(|| Links::unpacked(state))
    }

    /// Each page of an index with its links.
    fn pages(&self) -> impl Iterator<Item = (u32, Links)> {
        let count = u32::try_from(self.links.len()).unwrap_or(NONE);
        (0..count).filter_map(|page| Some((page, self.links(page)?)))
    }

    /// Where one page says what the other denies.
    fn conflicts(&self) -> Vec<Conflict> {
        let conflicts = self.pages().flat_map(|(page, links)| {
            SIDES.into_iter().filter_map(move |side| {
                let other = links.on(side).filter(|other| *other != NONE)?;
                let denies = match self.state(other) {
                    UNKNOWN => false,
                    OTHER => true,
                    _ => self.links(other).is_some_and(|it| it.on(side.opposite()) != Some(page)),
                };
                denies.then_some(Conflict { page, side, other })
            })
        });
        conflicts.take(CONFLICTS_MAX).collect()
    }

    fn has(&self, page: u32) -> bool {
        usize::try_from(page).is_ok_and(|at| at < self.links.len())
    }

    fn found(&self) -> Vec<Step> {
        let mut left = self.conflicts();
        let mut steps = Vec::new();
        // Two pages contradict one that is wrong, and one each of them.
        while let Some((page, against)) = self.contradicted_by_two(&left) {
            left.retain(|it| it.page != page && it.other != page);
            steps.push(self.named(page, &against));
        }
        let mut seen = BTreeSet::new();
        for conflict in left {
            let Conflict { page, other, .. } = conflict;
            // Both may say it; a page behind the end of a file that was cut is reported already.
            if !seen.insert((page.min(other), page.max(other))) || !self.has(other) {
                continue;
            }
            steps.push(match self.by_a_pair(conflict) {
                Some((wrong, against)) => self.named(wrong, &[against]),
                None => self.open(page, other),
            });
        }
        steps
    }

    /// The page that most others contradict, if two do; of several the oldest.
    fn contradicted_by_two(&self, conflicts: &[Conflict]) -> Option<(u32, Vec<u32>)> {
        let mut opponents: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for Conflict { page, other, .. } in conflicts {
            opponents.entry(*page).or_default().insert(*other);
            opponents.entry(*other).or_default().insert(*page);
        }
        opponents.retain(|page, others| others.len() > 1 && self.has(*page));
        let most = opponents.values().map(BTreeSet::len).max()?;
        opponents.retain(|_, others| others.len() == most);
        let oldest = opponents.into_iter().min_by_key(|(page, _)| self.lsn(*page));
        oldest.map(|(page, others)| (page, others.into_iter().collect()))
    }

    /// Of two pages that nothing else contradicts, the wrong one and the other.
    fn by_a_pair(&self, conflict: Conflict) -> Option<(u32, u32)> {
        let Conflict { page, side, other } = conflict;
        let instead = self.links(other)?.on(side.opposite())?;
        // What `other` says may be right for all that is known.
        if instead != NONE && self.links(instead).is_none() {
            return None;
        }
        // `other` says that it is the end of the list, and a third page has `page` in it.
        let third = self.links(page)?.on(side.opposite()).filter(|third| *third != NONE);
        let third = third.and_then(|third| self.links(third));
        if instead == NONE && third.and_then(|its| its.on(side)) == Some(page) {
            return Some((other, page));
        }
        match self.lsn(page)?.cmp(&self.lsn(other)?) {
            std::cmp::Ordering::Less => Some((page, other)),
            std::cmp::Ordering::Greater => Some((other, page)),
            std::cmp::Ordering::Equal => None,
        }
    }

    fn lsn(&self, page: u32) -> Option<u64> {
        let file = open_regular(&self.path).ok()?;
        let mut header = [0; HEADER_BYTES];
        let offset = u64::from(page).checked_mul(self.page_bytes)?;
        (read_fully(&file, &mut header, offset).ok()? == HEADER_BYTES).then_some(())?;
        u64_at(&header, LSN)
    }

    fn named(&self, page: u32, against: &[u32]) -> Step {
        let newest = against.iter().filter_map(|page| self.lsn(*page)).max();
        let lsns = self.lsn(page).zip(newest);
        let is_older = lsns.is_some_and(|(own, newest)| own < newest);
        let words = match lsns {
            Some((own, newest)) if is_older => {
                format!(": its LSN is {own}, and theirs up to {newest}")
            }
            _ => String::new(),
        };
        let those: Vec<_> = against.iter().take(NAMED_MAX).map(u32::to_string).collect();
        let (pages, contradict) = match those.len() {
            1 => ("page", "contradicts"),
            _ => ("pages", "contradict"),
        };
        let detail = format!(
            "{pages} {} {contradict} it on which page of the index is beside which{words}",
            those.join(" and ")
        );
        let offset = u64::from(page).checked_mul(self.page_bytes);
        let kind = if is_older { Kind::Stale } else { Kind::Structure };
        let page = PageNo(u64::from(page));
        let finding = self.finding(kind, detail).at(Some(page), offset.map(ByteOffset));
        Step::Overruled(finding, Standing::Ok)
    }

    fn open(&self, one: u32, two: u32) -> Step {
        let detail = format!(
            "pages {one} and {two} contradict each other on which page of the index is beside which, \
             and nothing says which of them is wrong"
        );
        let finding = self.finding(Kind::Structure, detail);
        let severity = finding.severity.min(Severity::Suspect);
        Step::Finding(finding.as_grave_as(severity))
    }

    fn finding(&self, kind: Kind, detail: String) -> Finding {
        Finding::of_file(&self.file, self.severity, kind, detail)
            .about(self.database.as_deref(), self.object.as_deref())
            .with_hint(HINT)
    }
}

const HINT: &str = "CHECK TABLE ... EXTENDED in the server names the index; copy the file before anything \
                    else, and restore the table from a backup";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Side(usize);

const BACK: Side = Side(0);
const FORTH: Side = Side(1);
const SIDES: [Side; 2] = [BACK, FORTH];

impl Side {
    fn opposite(self) -> Self {
        if self == BACK { FORTH } else { BACK }
    }
}

/// The pages before and after one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links(pub(super) [u32; 2]);

impl Links {
    /// Those of a page of an index.
    pub(super) fn of(page: &[u8]) -> Option<Self> {
        Some(Self([u32_at(page, BEFORE)?, u32_at(page, AFTER)?]))
    }

    /// Both in one number.
    pub(super) fn packed(self) -> u64 {
        let [before, after] = self.0.map(u64::from);
        before << 32 | after
    }

    pub(super) fn unpacked(packed: u64) -> Self {
        let half = |half: u64| u32::try_from(half & u64::from(NONE)).unwrap_or(NONE);
        Self([half(packed >> 32), half(packed)])
    }

    fn on(self, side: Side) -> Option<u32> {
        self.0.get(side.0).copied()
    }
}

/// `page` says that `other` is beside it, and `other` does not.
#[derive(Debug, Clone, Copy)]
struct Conflict {
    page: u32,
    side: Side,
    other: u32,
}

/// A file whose pages are compared with one another once all of them were seen.
pub(super) trait Compared: fmt::Debug + Send + Sync {
    /// How many there are.
    fn pages(&self) -> u64;

    /// What is wrong.
    fn steps(&self) -> Vec<Step>;
}

impl Compared for Chain {
    fn pages(&self) -> u64 {
        u64::try_from(self.links.len()).unwrap_or(u64::MAX)
    }

    fn steps(&self) -> Vec<Step> {
        self.found()
    }
}

/// The files of a target that are gone through, and were not concluded yet.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    waiting: Mutex<Vec<Arc<dyn Compared>>>,
    /// Those whose structure is looked at.
    structures: Mutex<Vec<Arc<Structure>>>,
}

impl Siblings {
    /// Looks at the pages of a file that is at rest. What is wrong is of this severity.
    pub(super) fn watch(
        &self,
        file: &mut PageFile,
        allocated: &Arc<AllocationMap>,
        severity: Severity,
    ) {
        let page_bytes = u64::try_from(file.format.page_size()).unwrap_or(u64::MAX).max(1);
        let pages = file.listed_bytes.checked_div(page_bytes).unwrap_or(0);
        if file.first_page.0 != 0 || pages > PAGES_MAX || allocated.count() == 0 {
            return;
        }
        let chain = Arc::new(Chain {
            file: file.name.clone(),
            path: file.path.clone(),
            database: file.database.clone(),
            object: file.object.clone(),
            page_bytes,
            severity,
            allocated: Arc::clone(allocated),
            links: (0..pages).map(|_| AtomicU64::new(UNKNOWN)).collect(),
        });
        file.witnesses.push(Arc::clone(&chain) as _);
        self.compare(chain);
    }

    /// Another way to compare the pages of a file.
    pub(super) fn compare(&self, file: Arc<dyn Compared>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// What else the pages of a file say goes with it.
    pub(super) fn add(&self, structure: Option<Arc<Structure>>) {
        let mut structures = self.structures.lock().unwrap_or_else(PoisonError::into_inner);
        structures.extend(structure);
    }

    fn are_many(&self) -> bool {
        let structures = self.structures.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = structures.iter().map(|structure| structure.pages());
        if pages.fold(0, u64::saturating_add) > WAITING_MAX {
            return true;
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = waiting.iter().map(|file| file.pages());
        pages.fold(0, u64::saturating_add) > WAITING_MAX
    }

    fn is_empty(&self) -> bool {
        let structures = self.structures.lock().unwrap_or_else(PoisonError::into_inner);
        structures.is_empty()
            && self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn conclude(&self) -> Vec<Step> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut steps: Vec<_> =
            std::mem::take(&mut *waiting).iter().flat_map(|file| file.steps()).collect();
        drop(waiting);
        let mut structures = self.structures.lock().unwrap_or_else(PoisonError::into_inner);
        let structures = std::mem::take(&mut *structures);
        let place = |step: &Step| match step {
            Step::Finding(finding) | Step::Overruled(finding, _) => {
                finding.place.page.map(|page| (finding.place.file.clone(), page))
            }
            _ => None,
        };
        // A page is reported once.
        let mut told: BTreeSet<_> = steps.iter().filter_map(place).collect();
        for structure in structures {
            let those = structure.conclude();
            steps.extend(those.into_iter().filter(|it| place(it).is_none_or(|it| told.insert(it))));
            steps.extend(structure.note().map(Step::Note));
        }
        steps
    }
}

/// The steps of a target, and behind them, or behind many pages, what contradicts one another.
#[derive(Debug)]
pub(super) struct Comparing<I> {
    steps: I,
    siblings: Arc<Siblings>,
    /// A barrier was given out last.
    is_behind: bool,
    /// A file of pages was given out last.
    was_file: bool,
    ready: VecDeque<Step>,
}

impl<I: Iterator<Item = Step>> Comparing<I> {
    /// See the struct.
    pub(super) fn new(steps: I, siblings: Arc<Siblings>) -> Self {
        Self { steps, siblings, is_behind: false, was_file: false, ready: VecDeque::new() }
    }
}

impl<I: Iterator<Item = Step>> Iterator for Comparing<I> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.is_behind {
            self.is_behind = false;
            self.ready.extend(self.siblings.conclude());
        }
        if let Some(step) = self.ready.pop_front() {
            return Some(step);
        }
        if std::mem::take(&mut self.was_file) && self.siblings.are_many() {
            self.is_behind = true;
            return Some(Step::Barrier);
        }
        if let Some(step) = self.steps.next() {
            self.was_file = matches!(step, Step::File(_));
            return Some(step);
        }
        if self.siblings.is_empty() {
            return None;
        }
        self.is_behind = true;
        Some(Step::Barrier)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
pub(super) mod tests {
    use super::*;
    use crate::page::fields::TYPE_PAGE_COMPRESSED;
    use pagewarden_core::page::{PageFinding, PageFormat, RunVerdict};
    use pagewarden_core::verdict::Protection;

    pub(in crate::files) const PAGE: usize = 4096;

    /// Pages that all pass, but those of type 1, which fail, and those of type 0, which are empty.
    #[derive(Debug)]
    pub(in crate::files) struct Pages;

    impl PageFormat for Pages {
        fn page_size(&self) -> usize {
            PAGE
        }

        fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
            for (page, bytes) in (run.first.0..).zip(run.bytes.chunks_exact(PAGE)) {
                match read_u16(bytes, PAGE_TYPE) {
                    0 => verdict.empty(),
                    1 => verdict.fail(
                        Protection::Checksum,
                        PageFinding::failed(PageNo(page), Severity::Damage, Kind::Checksum),
                    ),
                    _ => verdict.pass(Standing::Ok, Protection::Checksum),
                }
            }
        }
    }

    fn page(page_type: u16, before: u32, after: u32, lsn: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        page[BEFORE..BEFORE + 4].copy_from_slice(&before.to_be_bytes());
        page[AFTER..AFTER + 4].copy_from_slice(&after.to_be_bytes());
        page[LSN..LSN + 8].copy_from_slice(&lsn.to_be_bytes());
        page[PAGE_TYPE..PAGE_TYPE + 2].copy_from_slice(&page_type.to_be_bytes());
        page
    }

    /// What is said of pages with numbers from 0 on, all of them in use but the last two.
    fn told(pages: &[Vec<u8>]) -> Vec<(Severity, Kind, Option<u64>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes = pages.concat();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let mut allocated = AllocationMap::default();
        (0..pages.len() as u64 - 2).for_each(|page| allocated.insert(page));
        let siblings = Arc::<Siblings>::default();
        let format: Arc<dyn PageFormat> = Arc::new(Pages);
        let mut file = PageFile::of("t.ibd", file.path(), bytes.len() as u64, format);
        siblings.watch(&mut file, &Arc::new(allocated), Severity::Damage);
        let mut steps = Comparing::new(std::iter::empty(), Arc::clone(&siblings));
        assert!(matches!(steps.next(), Some(Step::Barrier)));
        let run = PageRun { first: PageNo(0), bytes: &bytes };
        let mut verdict = RunVerdict::default();
        Pages.judge(run, &mut verdict);
        file.witnesses.iter().for_each(|witness| witness.see(run, &verdict.standings));
        let finding = |step| match step {
            Step::Finding(finding) | Step::Overruled(finding, Standing::Ok) => {
                let page = finding.place.page.map(|page| page.0);
                (finding.severity, finding.kind, page)
            }
            _ => panic!(),
        };
        steps.map(finding).collect()
    }

    /// A root and leaves 2 to 7 in their order, with two pages behind that are not in use; changed.
    fn index(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<(Severity, Kind, Option<u64>)> {
        let mut pages = vec![page(8, 0, 0, 5), page(TYPE_INDEX, NONE, NONE, 5)];
        for number in 2..=7_u32 {
            let before = if number == 2 { NONE } else { number - 1 };
            let after = if number == 7 { NONE } else { number + 1 };
            pages.push(page(TYPE_INDEX, before, after, 100 + u64::from(number)));
        }
        pages.extend([page(TYPE_INDEX, 3, 4, 1), page(10, 0, 0, 1)]);
        change(&mut pages);
        told(&pages)
    }

    #[test]
    fn pages_that_agree_are_not_told() {
        assert_eq!(index(|_| ()), []);
        // A page that fails is reported by its own test, and blames no other.
        assert_eq!(index(|pages| pages[4] = page(1, 9, 9, 0)), []);
        assert_eq!(index(|pages| pages[4] = page(1, 0, 0, 0)), []);
        // What is not in use counts for nothing.
        assert_eq!(index(|pages| pages[8] = page(TYPE_INDEX, 2, 5, 999)), []);
    }

    /// MySQL compresses and encrypts pages one by one: those that do not shrink stay as they are.
    #[test]
    fn pages_that_are_stored_compressed_or_encrypted_agree_with_those_beside_them() {
        let original = |page: &mut Vec<u8>, page_type: u16| {
            page[MYSQL_ORIGINAL_TYPE..MYSQL_ORIGINAL_TYPE + 2]
                .copy_from_slice(&page_type.to_be_bytes());
        };
        for outer in [TYPE_COMPRESSED, TYPE_ENCRYPTED, TYPE_COMPRESSED_AND_ENCRYPTED] {
            let stored = |before, after| {
                index(|pages| {
                    pages[4] = page(outer, before, after, 104);
                    original(&mut pages[4], TYPE_INDEX);
                })
            };
            assert_eq!(stored(3, 5), [], "{outer}");
            // What it was before is in the clear, and so is what it says of those beside it.
            let found: Vec<_> = stored(2, 6).iter().map(|it| it.2).collect();
            assert_eq!(found, [Some(4)], "{outer}");
            let of_another_type = index(|pages| {
                pages[4] = page(outer, 0, 0, 104);
                original(&mut pages[4], 10);
            });
            assert_eq!(of_another_type, [], "{outer}");
        }
        for outer in [TYPE_PAGE_COMPRESSED, TYPE_COMPRESSED_MARK | 5] {
            assert_eq!(index(|pages| pages[4] = page(outer, 3, 5, 104)), [], "{outer}");
        }
    }

    #[test]
    fn third_page_decides_which_of_two_is_wrong_whatever_their_lsn() {
        let named = |kind, page| vec![(Severity::Damage, kind, Some(page))];
        for lsn in [1, 104, 999] {
            // Each with one link or both to pages of the index.
            for (before, after) in [(3, 7), (3, 2), (6, 5), (2, 6), (1, 5), (7, 2)] {
                let found = index(|pages| pages[4] = page(TYPE_INDEX, before, after, lsn));
                let pages: Vec<_> = found.iter().map(|it| it.2).collect();
                assert_eq!(pages, [Some(4)], "{before} {after} {lsn}: {found:?}");
            }
            // To a page that is none of an index, and to one behind the end.
            for after in [0, 77] {
                let found = index(|pages| pages[4] = page(TYPE_INDEX, 3, after, lsn));
                assert_eq!(found.iter().map(|it| it.2).collect::<Vec<_>>(), [Some(4)], "{after}");
            }
            // It was no page of an index when it was written last.
            let found = index(|pages| pages[4] = page(10, 0, 0, lsn));
            assert_eq!(found.iter().map(|it| it.2).collect::<Vec<_>>(), [Some(4)]);
        }
        assert_eq!(index(|pages| pages[4] = page(TYPE_INDEX, 2, 6, 1)), named(Kind::Stale, 4));
        let found = index(|pages| pages[4] = page(TYPE_INDEX, 2, 6, 999));
        assert_eq!(found, named(Kind::Structure, 4));
    }

    /// Page 4 was put between 3 and 5, and one of them does not know.
    #[test]
    fn page_that_missed_a_split_is_stale() {
        let stale = |page| vec![(Severity::Damage, Kind::Stale, Some(page))];
        assert_eq!(index(|pages| pages[5] = page(TYPE_INDEX, 3, 6, 50)), stale(5));
        assert_eq!(index(|pages| pages[3] = page(TYPE_INDEX, 2, 5, 50)), stale(3));
    }

    #[test]
    fn of_two_pages_alone_the_lsn_decides_or_nothing_does() {
        let ends = |lsn| index(|pages| pages[6] = page(TYPE_INDEX, 5, NONE, lsn));
        // 7 is the end of the list: of the two that one is wrong that is older.
        assert_eq!(ends(50), [(Severity::Damage, Kind::Stale, Some(6))]);
        assert_eq!(ends(999), [(Severity::Damage, Kind::Stale, Some(7))]);
        assert_eq!(ends(107), [(Severity::Suspect, Kind::Structure, None)]);
        // A third page has 6 in the list.
        let found = index(|pages| pages[5] = page(TYPE_INDEX, 4, NONE, 999));
        assert_eq!(found, [(Severity::Damage, Kind::Structure, Some(5))]);
        // What it names instead is not known: a page that fails.
        let found = index(|pages| {
            pages[5] = page(TYPE_INDEX, 4, 2, 999);
            pages[2] = page(1, 0, 0, 0);
        });
        assert_eq!(found, [(Severity::Suspect, Kind::Structure, None)]);
    }
}

//! What the pages of a data file say of themselves and of one another, under sums that fit.
//!
//! | looked at | when | by |
//! |---|---|---|
//! | pages with rows: header, slots, records; the form of IAM pages | always | [`crate::page::rows`], [`crate::page::maps`] |
//! | pages beside each other, upper levels against the pages below | always, at rest | [`tree`] |
//! | IAM pages against the maps of extents, the free space, and the pages | always, at rest | [`extents`] |
//! | allocation units against their pages | always, at rest | [`units`] |
//!
//! Where a database was not shut down, a page on the disk may be of an earlier moment than the next one. What is
//! older than the last checkpoint is not: that checkpoint wrote all that was changed before. So there pages are
//! compared that were changed before the checkpoint's block of the log, and the others have no say. Of a
//! secondary file it is not known when its last checkpoint was, nor of which version it is, nor whether it is one of
//! tempdb: its pages are neither looked at nor compared.
//!
//! Pages are seen once, in any order; what is remembered of each is in a [`Fact`]. Nothing is followed
//! from page to page, so that no link can lead in a circle. Only pages that are allocated and passed their own tests have a say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::checksum::{PAGE_BYTES, Page};
use crate::files::allocation::FileAllocations;
use crate::page::diff_map::{EXTENT_PAGES, INTERVAL_PAGES};
use crate::page::header::{HAS_TORN_BITS, Header, Lsn, kinds};
use crate::page::maps::{Bits, Iam};
use crate::page::rows::{Place, Pointer, RowPage, Unit};
use crate::page::system::{PFS_PAGES, is_allocated, pfs_bytes, pfs_page_of, with_own_bits};
use crate::page::units::{UNIT_OF_UNITS, UnitRow};
use crate::page::{Allocation, Allocations};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Standing};

mod extents;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests;
mod tree;
mod units;

const HINT: &str = "DBCC CHECKDB names the table or index; copy the files before anything else, and restore \
                    the page or the database from a backup";

/// Pages of larger files are not compared with one another: 32 GiB, of which 112 MiB are remembered.
const PAGES_MAX: u64 = 1 << 22;
const _: () = assert!(size_of::<Fact>() <= 28);
/// Of a file in which more is wrong the first are reported.
const FAULTS_MAX: usize = 1000;
/// Bytes of the maps of allocation units that are remembered of a file.
const MAPS_BYTES_MAX: usize = 1 << 27;
/// Allocation units that are remembered of a file.
const UNITS_MAX: usize = 1 << 20;

/// What is remembered of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Fact {
    /// Its type; 0 for a page that has no say.
    kind: u8,
    level: u8,
    /// Its byte in the free space.
    free_space: u8,
    is_unprotected: bool,
    when: When,
    /// Files of the two links.
    files: [u16; 2],
    before: u32,
    next: u32,
    unit: Unit,
}

impl Fact {
    fn before(&self) -> Pointer {
        Pointer { page: self.before, file: self.files[0] }
    }

    fn next(&self) -> Pointer {
        Pointer { page: self.next, file: self.files[1] }
    }
}

/// When a page was changed, by what its header says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// Before the block of the log with the last checkpoint.
    #[default]
    Before,
    /// In that block, before the checkpoint.
    JustBefore,
    /// Behind the checkpoint.
    Behind,
}

/// A record that leads to the page below.
#[derive(Debug, Clone, Copy)]
struct Child {
    parent: u32,
    page: Pointer,
    /// Its place among the records of its page.
    rank: u16,
}

/// What was seen of a run of pages.
#[derive(Debug, Default)]
struct Found {
    facts: Vec<(u32, Fact)>,
    faults: Vec<(u32, String, Standing)>,
    /// Pages with rows that passed.
    fitting: u64,
    children: Vec<Child>,
    /// Units with upper levels whose records are compressed.
    compressed: Vec<Unit>,
    iams: Vec<(u32, Iam)>,
    free: Vec<(u64, Bits)>,
    mixed: Vec<(u64, Bits)>,
    free_space: Vec<(u64, Vec<u8>)>,
    units: Vec<(u32, UnitRow)>,
}

/// All that was seen of a file.
#[derive(Debug, Default)]
struct Gathered {
    facts: Vec<Fact>,
    faults: BTreeMap<u32, (String, Standing)>,
    fitting: u64,
    failing: u64,
    children: Vec<Child>,
    compressed: BTreeSet<Unit>,
    /// The IAM pages by number.
    iams: BTreeMap<u32, Iam>,
    maps_bytes: usize,
    /// By interval: extents that are free, and mixed ones with a free page.
    free: BTreeMap<u64, Bits>,
    mixed: BTreeMap<u64, Bits>,
    /// Pages of free space that were seen.
    free_space: Vec<u64>,
    units: Vec<(u32, UnitRow)>,
    /// More was there than is remembered.
    is_cut: bool,
}

impl Gathered {
    fn add(&mut self, found: Found) {
        for (page, fact) in found.facts {
            if let Some(place) = at(&mut self.facts, u64::from(page)) {
                *place = Fact { free_space: place.free_space, ..fact };
            }
        }
        self.fitting = self.fitting.saturating_add(found.fitting);
        for (page, words, standing) in found.faults {
            self.failing = self.failing.saturating_add(1);
            self.faults.insert(page, (words, standing));
        }
        while self.faults.len() > FAULTS_MAX {
            self.faults.pop_last();
        }
        let most = self.facts.len().saturating_mul(2).saturating_add(FAULTS_MAX);
        self.is_cut |= self.children.len().saturating_add(found.children.len()) > most;
        self.children.extend(found.children);
        self.children.truncate(most);
        self.compressed.extend(found.compressed);
        for (page, iam) in found.iams {
            self.maps_bytes = self.maps_bytes.saturating_add(iam.extents.bytes());
            match self.maps_bytes > MAPS_BYTES_MAX {
                true => self.is_cut = true,
                false => drop(self.iams.insert(page, iam)),
            }
        }
        self.free.extend(found.free);
        self.mixed.extend(found.mixed);
        for (number, bytes) in found.free_space {
            let first = number.saturating_sub(number % PFS_PAGES);
            for (byte, index) in bytes.iter().zip(0..) {
                if let Some(place) = at(&mut self.facts, first.saturating_add(index)) {
                    place.free_space = *byte;
                }
            }
            self.free_space.push(number);
        }
        self.is_cut |= self.units.len().saturating_add(found.units.len()) > UNITS_MAX;
        self.units.extend(found.units);
        self.units.truncate(UNITS_MAX);
    }

    fn fact(&self, page: u32) -> Fact {
        let fact = usize::try_from(page).ok().and_then(|page| self.facts.get(page));
        fact.copied().unwrap_or_default()
    }

    /// Whether a page of the file is allocated; `None` where that is not known.
    fn is_allocated(&self, page: u32) -> Option<bool> {
        let is_known = self.free_space.binary_search(&pfs_page_of(u64::from(page))).is_ok();
        is_known.then(|| is_allocated(self.fact(page).free_space))
    }

    /// What is known of a page that is allocated and has a say.
    fn in_use(&self, page: u32) -> Option<Fact> {
        let fact = self.fact(page);
        (fact.kind != 0 && self.is_allocated(page) == Some(true)).then_some(fact)
    }

    /// All pages that are allocated and have a say.
    fn pages_in_use(&self) -> impl Iterator<Item = (u32, Fact)> {
        (0_u32..).zip(&self.facts).filter_map(|(page, _)| Some((page, self.in_use(page)?)))
    }

    /// Takes their say from pages of the checkpoint's block of the log and behind it, if one was changed behind the
    /// checkpoint: the database was not shut down as its boot page says, which may be from another moment as in
    /// a backup. False if so.
    fn leave_later_pages(&mut self) -> bool {
        let is_later = |fact: Fact| fact.when == When::Behind && fact.kind != kinds::BOOT;
        if !self.pages_in_use().any(|(_, fact)| is_later(fact)) {
            return true;
        }
        let mut later = BTreeSet::new();
        for (fact, page) in self.facts.iter_mut().zip(0_u64..) {
            if fact.when != When::Before {
                fact.kind = 0;
                later.insert(page);
            }
        }
        self.free_space.retain(|page| !later.contains(page));
        self.free.retain(|interval, _| !later.contains(&map_page(*interval, 2)));
        self.mixed.retain(|interval, _| !later.contains(&map_page(*interval, 3)));
        false
    }

    /// True if each page that is allocated has a say, and of each it is known whether it is.
    fn is_whole(&self) -> bool {
        let mut pages = (0_u32..).zip(&self.facts);
        !self.is_cut
            && pages.all(|(page, fact)| match self.is_allocated(page) {
                Some(is_allocated) => !is_allocated || fact.kind != 0,
                None => false,
            })
    }
}

/// The page that has a map of this interval: the one with this number in the first one. In later ones the maps of
/// free and of mixed extents are the first two pages.
fn map_page(interval: u64, number: u64) -> u64 {
    match interval {
        0 => number,
        _ => interval.saturating_add(number.saturating_sub(2)),
    }
}

fn at(facts: &mut [Fact], page: u64) -> Option<&mut Fact> {
    usize::try_from(page).ok().and_then(|page| facts.get_mut(page))
}

/// What is known of a file before its pages.
#[derive(Debug)]
pub(super) struct Scope {
    /// The number of the file.
    pub(super) number: u16,
    /// Pages in it.
    pub(super) pages: u64,
    /// It ends before its header says.
    pub(super) is_short: bool,
    /// What pages prove that contradict each other.
    pub(super) proves: Severity,
    /// Which pages may be compared.
    pub(super) moment: Moment,
}

/// Which pages of a file are of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// All of them, where none was changed behind this position in the log, that of the last checkpoint.
    Rest(Lsn),
    /// Those that were changed before the block of this position in the log.
    Before(Lsn),
    /// It is not known.
    Unknown,
}

impl Moment {
    /// When a page was changed that has a say, as far as is known before all pages were seen.
    fn of(self, lsn: Lsn) -> Option<When> {
        let (checkpoint, is_at_rest) = match self {
            Self::Rest(checkpoint) => (checkpoint, true),
            Self::Before(checkpoint) => (checkpoint, false),
            Self::Unknown => return None,
        };
        let block = |lsn: Lsn| (lsn.log_file, lsn.block);
        let when = if block(lsn) < block(checkpoint) {
            When::Before
        } else if lsn <= checkpoint {
            When::JustBefore
        } else {
            When::Behind
        };
        (is_at_rest || when == When::Before).then_some(when)
    }
}

/// One data file.
pub(super) struct Structure {
    file: String,
    database: Option<Arc<str>>,
    scope: Scope,
    allocations: Arc<FileAllocations>,
    gathered: Mutex<Gathered>,
}

impl fmt::Debug for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Structure").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Witness for Structure {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let mut found = Found::default();
        for (PageNo(number), page, standing) in run.judged(PAGE_BYTES, standings) {
            if let Some(standing @ (Standing::Ok | Standing::Unprotected)) = standing
                && let (Ok(number), Some(page)) = (u32::try_from(number), page.first_chunk())
            {
                self.look(standing, number, page, &mut found);
            }
        }
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).add(found);
    }
}

impl Structure {
    /// Looks at the pages of a file.
    pub(super) fn watch(
        file: &mut PageFile,
        scope: Scope,
        allocations: &Arc<FileAllocations>,
    ) -> Arc<Self> {
        let mut gathered = Gathered::default();
        if scope.moment != Moment::Unknown && scope.pages <= PAGES_MAX {
            gathered.facts = (0..scope.pages).map(|_| Fact::default()).collect();
        }
        let this = Arc::new(Self {
            file: file.name.clone(),
            database: file.database.clone(),
            scope,
            allocations: Arc::clone(allocations),
            gathered: Mutex::new(gathered),
        });
        file.witnesses.push(Arc::clone(&this) as _);
        this
    }

    /// Pages are compared with one another.
    fn is_comparing(&self) -> bool {
        self.scope.moment != Moment::Unknown && self.scope.pages <= PAGES_MAX
    }

    fn look(&self, standing: Standing, number: u32, page: &Page, found: &mut Found) {
        // The forms of its rows were not seen: of another version, of tempdb, or of a file that says neither.
        if self.scope.moment == Moment::Unknown {
            return;
        }
        let header = Header::parse(page);
        let restored;
        let page = if header.flags & HAS_TORN_BITS == 0 {
            page
        } else {
            restored = with_own_bits(page);
            &restored
        };
        if let Err(words) = self.test(page, &header) {
            // Without a sum it may be read half written, where a server is writing it.
            if standing == Standing::Ok || matches!(self.scope.moment, Moment::Rest(_)) {
                found.faults.push((number, words, standing));
            }
            return;
        }
        let rows = RowPage::new(page, &header);
        found.fitting = found.fitting.saturating_add(u64::from(rows.is_some()));
        let Some(when) = self.scope.moment.of(header.lsn).filter(|_| self.is_comparing()) else {
            return;
        };
        let place = Place::parse(page);
        let fact = Fact {
            kind: header.kind,
            level: place.level,
            free_space: 0,
            is_unprotected: standing == Standing::Unprotected,
            when,
            files: [place.before.file, place.next.file],
            before: place.before.page,
            next: place.next.page,
            unit: place.unit,
        };
        found.facts.push((number, fact));
        let in_interval = u64::from(number) % INTERVAL_PAGES;
        let interval = u64::from(number).saturating_sub(in_interval);
        match header.kind {
            kinds::IAM => found.iams.extend(Iam::parse(page).ok().map(|iam| (number, iam))),
            kinds::GAM if in_interval < EXTENT_PAGES => {
                found.free.push((interval, Bits::parse(page, interval)));
            }
            kinds::SGAM if in_interval < EXTENT_PAGES => {
                found.mixed.push((interval, Bits::parse(page, interval)));
            }
            kinds::PFS => {
                let bytes = pfs_bytes(page, self.scope.number, u64::from(number));
                let bytes = bytes.filter(|_| pfs_page_of(u64::from(number)) == u64::from(number));
                found.free_space.extend(bytes.map(|it| (u64::from(number), it.to_vec())));
            }
            kinds::INDEX => self.look_at_children(number, &place, rows, found),
            kinds::DATA if place.unit == UNIT_OF_UNITS && place.level == 0 => {
                let rows =
                    rows.into_iter().flat_map(|page| page.records().map(move |at| (page, at)));
                let rows = rows.filter_map(|(page, at)| UnitRow::parse(page.bytes_from(at)));
                found.units.extend(rows.map(|row| (number, row)));
            }
            _ => {}
        }
    }

    /// What a page says of itself.
    fn test(&self, page: &Page, header: &Header) -> Result<(), String> {
        if header.kind == kinds::IAM {
            return Iam::parse(page).map(drop);
        }
        match RowPage::new(page, header) {
            Some(rows) => rows.test(),
            None => Ok(()),
        }
    }

    /// Where the records of a page of an index lead. Pages of level 0 are leaves, but above the data of a clustered
    /// index: which of both it is, is not known before all pages were seen. Most records of the
    /// latter lead to pages of this file.
    fn look_at_children(
        &self,
        number: u32,
        place: &Place,
        rows: Option<RowPage<'_>>,
        found: &mut Found,
    ) {
        let Some(rows) = rows else { return };
        if rows.is_compressed() {
            found.compressed.push(place.unit);
            return;
        }
        let begin = found.children.len();
        for (at, rank) in rows.records().zip(0_u16..) {
            found.children.push(Child { parent: number, page: rows.child(at), rank });
        }
        let own = found.children.get(begin..).unwrap_or_default();
        let leads = |child: &&Child| {
            child.page.file == self.scope.number && u64::from(child.page.page) < self.scope.pages
        };
        let count = own.iter().filter(leads).count();
        if place.level == 0 && count.saturating_mul(2) < own.len() {
            found.children.truncate(begin);
        }
    }

    /// What is wrong, once all pages were seen.
    pub(super) fn conclude(&self) -> Vec<Step> {
        let mut gathered =
            std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        gathered.free_space.sort_unstable();
        let mut steps: Vec<_> = self.note_of(&gathered).into_iter().collect();
        if gathered.failing > gathered.fitting {
            steps.push(self.note(
                "most pages with rows have no rows in a form that is known, as where they are encrypted: \
                 what its pages say was not compared",
            ));
            return steps;
        }
        let alone = std::mem::take(&mut gathered.faults);
        for (page, (words, standing)) in alone {
            if self.allocations.of(PageNo(u64::from(page))) == Allocation::Free {
                continue;
            }
            let severity = match standing {
                Standing::Ok => Severity::Damage,
                _ => self.scope.proves,
            };
            steps.push(self.page_fault(page, words, severity, standing));
        }
        if self.is_comparing() {
            let is_at_rest = gathered.leave_later_pages();
            let proves = if is_at_rest { self.scope.proves } else { Severity::Suspect };
            let mut faults = Faults::new();
            let known = self.known_of(&gathered);
            self.compare_links(&gathered, &known, &mut faults);
            self.compare_children(&gathered, &known, &mut faults);
            self.compare_extents(&gathered, &known, &mut faults);
            self.compare_units(&gathered, &known, &mut faults);
            for (page, words) in faults {
                let is_unprotected = gathered.fact(page).is_unprotected;
                let standing = if is_unprotected { Standing::Unprotected } else { Standing::Ok };
                steps.push(self.page_fault(page, words, proves, standing));
            }
        }
        steps.truncate(FAULTS_MAX);
        steps
    }

    /// What was not compared, for people.
    fn note_of(&self, gathered: &Gathered) -> Option<Step> {
        let limit = PAGES_MAX;
        if self.scope.pages > PAGES_MAX {
            Some(self.note(&format!(
                "more than {limit} pages: what they say of one another was not compared"
            )))
        } else if gathered.is_cut {
            Some(self.note(
                "its indexes and maps hold more than is remembered: what its pages say of one another was \
                 compared in part",
            ))
        } else {
            None
        }
    }

    fn note(&self, text: &str) -> Step {
        Step::Note(Note { file: self.file.clone(), text: text.to_owned() })
    }

    fn page_fault(&self, page: u32, words: String, severity: Severity, counted: Standing) -> Step {
        let offset = u64::from(page).checked_mul(PAGE_BYTES as u64).map(ByteOffset);
        let finding = Finding::of_file(&self.file, severity, Kind::Structure, words)
            .about(self.database.as_deref(), None)
            .with_hint(HINT)
            .at(Some(PageNo(u64::from(page))), offset);
        Step::Overruled(finding, counted)
    }

    /// Where something leads that is in a page that has a say.
    fn destination(&self, gathered: &Gathered, known: &Known, to: Pointer) -> Destination {
        if to.file != self.scope.number {
            let is_wrong = known.is_alone;
            return if is_wrong {
                Destination::Wrong("in a file that it does not have")
            } else {
                Destination::Open
            };
        }
        if u64::from(to.page) >= self.scope.pages {
            let is_wrong = !self.scope.is_short;
            return if is_wrong {
                Destination::Wrong("a page behind its end")
            } else {
                Destination::Open
            };
        }
        match gathered.is_allocated(to.page) {
            Some(false) => Destination::Wrong("a page that is not allocated"),
            Some(true) if gathered.fact(to.page).kind != 0 => {
                Destination::Page(gathered.fact(to.page))
            }
            _ => Destination::Open,
        }
    }
}

/// What is wrong with pages, the first thing that was found of each.
type Faults = BTreeMap<u32, String>;

/// Adds what is wrong with a page.
fn add(faults: &mut Faults, page: u32, words: impl FnOnce() -> String) {
    if faults.len() < FAULTS_MAX || faults.contains_key(&page) {
        faults.entry(page).or_insert_with(words);
    }
}

/// See [`Structure::destination`].
enum Destination {
    Page(Fact),
    /// Nothing can be said of it.
    Open,
    Wrong(&'static str),
}

/// What is known of a whole file.
struct Known {
    /// Each page that is allocated has a say, and all units lie in this file alone.
    is_alone: bool,
    units: BTreeMap<Unit, (u32, UnitRow)>,
}

impl Structure {
    fn known_of(&self, gathered: &Gathered) -> Known {
        let units: BTreeMap<_, _> =
            gathered.units.iter().map(|(page, row)| (row.unit, (*page, *row))).collect();
        let is_here = |at: Pointer| at.is_none() || at.file == self.scope.number;
        let is_alone = !self.scope.is_short
            && units.contains_key(&UNIT_OF_UNITS)
            && units.values().all(|(_, row)| row.iam.is_none_or(is_here))
            && gathered.is_whole()
            && gathered.iams.iter().all(|(page, iam)| {
                gathered.in_use(*page).is_none_or(|fact| {
                    iam.begin.file == self.scope.number
                        && is_here(fact.next())
                        && is_here(fact.before())
                })
            });
        Known { is_alone, units }
    }
}

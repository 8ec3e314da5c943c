//! The structure of a database: what its pages say of one another.
//!
//! Ordinary SQLite files carry no sums, so this is the only evidence that there is. A walk starts at
//! the schema and the freelist, and comes to every page once: pages of b-trees, overflow pages, free
//! pages. The pointer map (auto-vacuum) must say the same. What is looked at is the database as a
//! reader would see it, with the committed frames of its log over the file.
//!
//! | part | |
//! |---|---|
//! | `pages` | the pages of one state, and which of them were reached |
//! | `walker` | one step from page to page; chains and lists |
//! | `tree` | one b-tree |
//! | `schema`, `sql` | which trees there are |
//! | `definition`, `condition`, `rows`, `keys`, `cross` | what rows and index entries must be, and say of each other |
//! | `faults` | what was found |
//!
//! A fault is one only if nothing was written in between: where the database changed meanwhile, all
//! is looked at again, and if it never stands still, a note says so. A page that fails its own test
//! has its finding already, and what it leads to is out of reach, not wrong.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use super::journal;
use super::owners::Owners;
use super::sidecars;
use super::to_u64;
use super::wal::view::Logged;
use crate::page::SqlitePages;
use crate::page::btree::TreeKind;
use crate::page::header::{DatabaseHeader, HEADER_BYTES};
use pagewarden_core::database::thread::steps_of;
use pagewarden_core::database::{Description, Settled, Step};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{
    ByteOffset, Finding, Kind, Note, PageNo, Place, Severity, Standing,
};
use pagewarden_core::words::counted;

mod condition;
mod cross;
mod definition;
mod faults;
mod keys;
mod pages;
mod rows;
mod schema;
mod sql;
mod tree;
mod walker;

use cross::Cross;
use faults::{Fault, Faults};
use pages::Pages;
use schema::Schema;
use tree::{Tell, Tree, TreeWalk};
use walker::{Scratch, Walker};

/// How often a database that changes meanwhile is looked at.
const LOOKS_MAX: u32 = 5;
/// Clocks of file systems go on in steps of a few milliseconds: what was written so lately may
/// have been written since.
const LATELY: Duration = Duration::from_millis(100);
/// Steps that wait to be taken.
const STEPS_AHEAD: usize = 64;
/// Progress is reported in stretches of this length.
const TELL_BYTES: u64 = 4 << 20;
/// Pages that nothing leads to are reported one by one up to this number.
const LOST_PAGES_MAX: u64 = 10_000;
const HINT_JOURNAL: &str = "copy the database and its -journal before any program opens it, which plays the \
                            journal back; if that is of another database, check the copy without it";
const HINT: &str = "save what is readable with the sqlite3 shell's .recover, into a new file, and compare \
                    it with a backup; PRAGMA integrity_check says how SQLite sees it";

/// A database whose structure is to be looked at.
#[derive(Debug)]
pub struct Subject {
    /// What it is called in the report.
    pub name: String,
    /// The file that a symbolic link leads to.
    pub real_path: PathBuf,
    /// The file, opened.
    pub file: File,
    /// How its pages are judged by themselves.
    pub format: Arc<SqlitePages>,
    /// Another process has it open.
    pub is_live: bool,
    /// Rows are compared with indexes.
    pub compares: bool,
    /// Pages of which it is asked whose they are.
    pub owners: Option<Owners>,
    /// What is said of the target where its structure could not be judged.
    pub otherwise: Description,
}

/// What came of one look.
#[derive(Debug)]
struct Seen {
    faults: Faults,
    walker: Walker,
    tables: u64,
    indexes: u64,
    /// Indexes that were not compared with their rows.
    not_compared: Vec<Arc<str>>,
    computed: Vec<Arc<str>>,
    /// The schema is too large to be walked as a whole.
    is_cut: bool,
}

/// What would be different if something was written.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: SystemTime,
    head: [u8; HEADER_BYTES],
    /// A rollback journal that will be played back.
    journal: Option<(u64, Option<SystemTime>)>,
}

/// The steps of a look at the structure. It begins when the first is asked for.
#[must_use]
pub fn steps(subject: Subject) -> Box<dyn Iterator<Item = Step> + Send> {
    let name = subject.name.clone();
    let looked = steps_of(name, STEPS_AHEAD, move |steps| subject.look(steps));
    Box::new(std::iter::once(Step::Barrier).chain(looked))
}

/// Tells the pace, and stops once no more steps are taken.
#[derive(Debug)]
struct Teller<'a> {
    steps: &'a SyncSender<Step>,
    bytes_read: &'a AtomicU64,
    told: AtomicU64,
    is_over: AtomicBool,
}

impl Tell for Teller<'_> {
    fn goes_on(&self) -> bool {
        let read = self.bytes_read.load(Ordering::Relaxed);
        let new = read.saturating_sub(self.told.load(Ordering::Relaxed));
        if new >= TELL_BYTES {
            self.told.store(read, Ordering::Relaxed);
            if self.steps.send(Step::Passed(new)).is_err() {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
        !self.is_over.load(Ordering::Relaxed)
    }
}

impl Subject {
    fn look(&self, steps: &SyncSender<Step>) {
        let mut reason = String::new();
        for look in 0..LOOKS_MAX {
            if look > 0 {
                std::thread::sleep(LATELY.saturating_mul(2));
            }
            let Some((stamp, is_settled)) = self.stamp() else {
                "a transaction is running".clone_into(&mut reason);
                continue;
            };
            let is_undone = stamp.journal.is_some();
            let mut logged = match self.logged(is_undone) {
                Ok(logged) => logged,
                Err(text) => {
                    reason = text;
                    continue;
                }
            };
            // Frames that no one will finish may be of a copy that was made piece by piece, and a journal
            // that is not whole undoes less than it must: another check reports that.
            let is_doubtful = match &logged.view {
                Some(journal) if is_undone => journal.is_broken,
                log => log.is_some() && !self.is_live,
            };
            let Some(walked) = self.walk(&stamp, &mut logged, steps) else { return };
            let seen = match walked {
                Ok(seen) => seen,
                Err(text) => {
                    reason = text;
                    continue;
                }
            };
            let is_unchanged = || {
                self.stamp().is_some_and(|(now, _)| now == stamp)
                    && logged.is_unchanged(&self.file, &self.real_path)
            };
            if !seen.is_sound() && self.may_be_half_written(&stamp) {
                "a transaction is running".clone_into(&mut reason);
                continue;
            }
            if seen.is_sound() || is_settled && is_unchanged() {
                let severity = if is_doubtful { Severity::Suspect } else { Severity::Damage };
                // Where no more steps are taken, nothing is left to do.
                let _ = self.tell(&seen, severity, steps);
                if is_undone {
                    let text = "its structure was judged as it is once SQLite has played the rollback journal \
                                back; a journal of another database, or of another moment, ruins it"
                        .to_owned();
                    let _ = steps.send(Step::Note(Note { file: self.name.clone(), text }));
                }
                return;
            }
            "it kept changing while it was looked at".clone_into(&mut reason);
        }
        let text = format!("its structure was not judged: {reason}");
        let _ = steps.send(Step::Note(Note { file: self.name.clone(), text }));
        let _ = steps.send(Step::Settled(Box::new(Settled {
            description: self.otherwise.clone(),
            has_sums: true,
            judge: Box::new(|_, _| {}),
        })));
    }

    /// True while a transaction may have written to the file, and nothing says what it will undo. With a log, a
    /// writer leaves the file alone.
    fn may_be_half_written(&self, stamp: &Stamp) -> bool {
        let is_wal = DatabaseHeader::parse(&stamp.head).is_some_and(|header| header.is_wal());
        !is_wal && sidecars::may_be_written_without_journal(&self.file, &self.real_path)
    }

    /// What a reader sees in place of pages of the file.
    ///
    /// # Errors
    /// Why that is not known.
    fn logged(&self, is_undone: bool) -> Result<Logged, String> {
        let mut logged = Logged::beside(&self.file, &self.real_path)?;
        if is_undone {
            if logged.view.is_some() {
                return Err("both a rollback journal and a write-ahead log are there".to_owned());
            }
            logged.view = journal::undone(&self.real_path, self.format.page_size)?;
        }
        Ok(logged)
    }

    /// The stamp of the file, and whether it was written long enough ago; `None` while a
    /// transaction runs.
    fn stamp(&self) -> Option<(Stamp, bool)> {
        let journal = sidecars::hot_journal(&self.real_path);
        if journal.is_some() && sidecars::is_locked(&self.file) {
            return None;
        }
        let metadata = self.file.metadata().ok()?;
        let mut head = [0; HEADER_BYTES];
        let _ = read_fully(&self.file, &mut head, 0);
        let modified = metadata.modified().ok()?;
        // A time to come says nothing.
        let is_old = |time: SystemTime| time.elapsed().map_or(true, |age| age >= LATELY);
        let is_journal_old = journal.and_then(|(_, modified)| modified).is_none_or(is_old);
        let is_settled = is_old(modified) && is_journal_old;
        Some((Stamp { bytes: metadata.len(), modified, head, journal }, is_settled))
    }

    /// Walks along all there is; `None` if no more steps are taken.
    ///
    /// # Errors
    /// Why there is nothing to walk along.
    fn walk(
        &self,
        stamp: &Stamp,
        logged: &mut Logged,
        steps: &SyncSender<Step>,
    ) -> Option<Result<Seen, String>> {
        let file = match self.file.try_clone() {
            Ok(file) => file,
            Err(error) => return Some(Err(error.to_string())),
        };
        let mut pages = Pages::new(file, Arc::clone(&self.format), stamp.bytes, logged.view.take());
        let mut first = vec![0; pages.page_size];
        let read = pages.read_untested(1, &mut first);
        let Some(header) = read.ok().and_then(|()| DatabaseHeader::parse(&first)) else {
            return Some(Err("its first page cannot be read".to_owned()));
        };
        pages.is_undone = stamp.journal.is_some();
        if pages.is_undone && pages.is_in_log(1) {
            pages.reserve(header.reserved_bytes);
        }
        pages.count = header.page_count().unwrap_or_else(|| pages.count_by_length());
        // More than there is room for are missing; another check reports that.
        pages.count = pages.count.min(pages.count_by_length().saturating_mul(2).max(1));
        pages.has_map = header.largest_root != 0;
        let mut walker = Walker::new(pages);
        walker.owners.clone_from(&self.owners);
        let teller = Teller {
            steps,
            bytes_read: &walker.pages.bytes_read,
            told: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let mut scratch = Scratch::default();
        let mut schema = Schema::new(header.text_encoding);
        let root = Tree::new("sqlite_schema".into(), 1, 1, Some(TreeKind::Table));
        TreeWalk::run(&walker, &root, &mut scratch, &mut schema, &teller);
        walker.freelist(&mut scratch, header.first_trunk, header.free_page_count);
        let (mut tables, mut indexes) = (0_u64, 0_u64);
        let (form, encoding) = (header.schema_format, header.text_encoding);
        let mut cross = Cross::new(&schema, form, encoding, self.compares);
        for object in &schema.objects {
            let count = if object.is_table { &mut tables } else { &mut indexes };
            *count = count.saturating_add(1);
            cross.walk(&walker, object, &mut scratch, &teller);
            if !teller.goes_on() {
                return None;
            }
        }
        if teller.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let roots = schema.objects.iter().map(|object| object.root);
        hold_largest_root(&walker, &header, roots.max().unwrap_or(1));
        cross.compare(&walker);
        let faults = walker.with_faults(std::mem::take);
        let not_compared = std::mem::take(&mut cross.not_compared);
        let computed = std::mem::take(&mut cross.computed);
        let is_cut = schema.is_cut;
        Some(Ok(Seen { faults, walker, tables, indexes, not_compared, computed, is_cut }))
    }

    fn tell(&self, seen: &Seen, severity: Severity, steps: &SyncSender<Step>) -> Result<(), ()> {
        let send = |step| steps.send(step).map_err(drop);
        let note = |text| Step::Note(Note { file: self.name.clone(), text });
        let mut told = 0_u64;
        for fault in &seen.faults.found {
            if self.has_finding(&seen.walker.pages, fault) {
                continue;
            }
            told = told.saturating_add(1);
            send(self.finding(&seen.walker.pages, fault, severity))?;
        }
        if seen.faults.more > 0 {
            send(note(format!("{} more faults of its structure", seen.faults.more)))?;
        }
        if seen.is_cut {
            send(note("the schema is too large: not all of its tables were looked at".to_owned()))?;
        } else if let Some(page) = seen.faults.gap {
            let lost = seen.lost().count();
            if lost > 0 {
                let pages = counted(to_u64(lost), "page");
                send(note(format!(
                    "{pages} out of reach, because page {page} failed or is missing"
                )))?;
            }
        } else if !seen.walker.reached.is_exact() {
            send(note("too many pages to tell whether each is reached".to_owned()))?;
        } else {
            told = told.saturating_add(self.tell_lost(seen, severity, steps)?);
        }
        if let Some(names) = indexes(&seen.not_compared) {
            send(note(format!(
                "not compared with the rows: {names}; of a condition, a statement or values that are not \
                 understood for sure"
            )))?;
        }
        if let Some(names) = indexes(&seen.computed) {
            send(note(format!(
                "{names} of values that are computed: each row has its entry, and what is computed was \
                 not compared"
            )))?;
        }
        if told == 0
            && seen.faults.gap.is_none()
            && !self.format.has_sums
            && self.format.markers.is_none()
        {
            let text = format!(
                "structure sound: {} and {}, every page reached once; what the rows hold carries no \
                 checksum",
                counted(seen.tables, "table"),
                match seen.indexes {
                    1 => "1 index".to_owned(),
                    count => format!("{count} indexes"),
                }
            );
            send(note(text))?;
        }
        Ok(())
    }

    /// Pages that nothing leads to: how many were told.
    fn tell_lost(
        &self,
        seen: &Seen,
        severity: Severity,
        steps: &SyncSender<Step>,
    ) -> Result<u64, ()> {
        let mut told = 0_u64;
        for page in seen.lost() {
            told = told.saturating_add(1);
            let step = if told > LOST_PAGES_MAX {
                let text = format!("more than {LOST_PAGES_MAX} pages that nothing leads to");
                Step::Note(Note { file: self.name.clone(), text })
            } else {
                let detail = "nothing leads to this page: no table or index, and not the freelist"
                    .to_owned();
                let page = u32::try_from(page).unwrap_or(u32::MAX);
                let fault =
                    Fault { page, parent: None, kind: Kind::Structure, detail, object: None };
                if self.has_finding(&seen.walker.pages, &fault) {
                    continue;
                }
                self.finding(&seen.walker.pages, &fault, severity)
            };
            steps.send(step).map_err(drop)?;
            if told > LOST_PAGES_MAX {
                break;
            }
        }
        Ok(told)
    }

    /// True if the page of a fault, or the one that leads to it, fails its own test.
    fn has_finding(&self, pages: &Pages, fault: &Fault) -> bool {
        let fails = |page| {
            matches!(self.standing(pages, page), Some(Standing::Damaged | Standing::Suspect))
        };
        let has_sums = self.format.has_sums || self.format.markers.is_some();
        fails(fault.page) || has_sums && fault.parent.is_some_and(fails)
    }

    /// What a page of the file counts as by itself.
    fn standing(&self, pages: &Pages, page: u32) -> Option<Standing> {
        let mut bytes = vec![0; pages.page_size];
        pages.read_untested(page, &mut bytes).ok()?;
        pages.standing(page, &bytes)
    }

    fn finding(&self, pages: &Pages, fault: &Fault, severity: Severity) -> Step {
        let mut finding = Finding::of_file(&self.name, severity, fault.kind, fault.detail.clone());
        finding.object = fault.object.as_deref().map(str::to_owned);
        finding.hint = Some(if pages.is_undone { HINT_JOURNAL } else { HINT }.to_owned());
        finding.place.page = Some(PageNo(u64::from(fault.page)));
        if let Some(log) = pages.log.as_ref().filter(|_| pages.is_in_log(fault.page)) {
            finding.place = Place {
                file: log.name.clone(),
                offset: log.offset(fault.page).map(ByteOffset),
                ..finding.place
            };
            return Step::Finding(finding);
        }
        finding.place.offset = pages.offset(fault.page).map(ByteOffset);
        match self.standing(pages, fault.page) {
            Some(standing) => Step::Overruled(finding, standing),
            None => Step::Finding(finding),
        }
    }
}

/// Names them; `None` of none.
fn indexes(names: &[Arc<str>]) -> Option<String> {
    let (first, others) = names.split_first()?;
    Some(match others.len() {
        0 => format!("the index {first}"),
        count => format!("the index {first} and {count} more"),
    })
}

impl Seen {
    fn is_sound(&self) -> bool {
        self.faults.found.is_empty() && (self.faults.gap.is_some() || self.lost().next().is_none())
    }

    /// Pages that nothing leads to.
    fn lost(&self) -> impl Iterator<Item = u64> {
        let (pages, reached) = (&self.walker.pages, &self.walker.reached);
        let last = if reached.is_exact() && !self.is_cut { pages.count } else { 0 };
        let is_lost =
            |page: &u64| !reached.contains(*page) && !pages.is_map(*page) && !pages.is_lock(*page);
        (2..=last).filter(is_lost)
    }
}

/// With auto-vacuum the header says which root page is the last.
fn hold_largest_root(walker: &Walker, header: &DatabaseHeader, largest: u32) {
    let is_whole = walker.with_faults(|faults| faults.gap.is_none());
    if is_whole && header.largest_root != 0 && header.largest_root != largest {
        let detail = format!(
            "the header says that the last root page is {}, the schema {largest}",
            header.largest_root
        );
        walker.fault(1, Kind::Structure, detail, None);
    }
}

//! Holds a database against a seal while it is verified.
//!
//! | seen | since then nothing was written | else |
//! | --- | --- | --- |
//! | a page is zero that was not | `zeroed`, damage | damage if a later page of the file is as it was, so that the file was not cut and extended; else suspect if the last page in use before it is as it was; else nothing: a server that extends a cut file by many pages uses the first of them, and may leave the others empty |
//! | a page's LSN is older | `stale`, damage | the same: no LSN goes back |
//! | other bytes under the same LSN, hints left out | `checksum`, damage | the same |
//! | other bytes, without an LSN to tell | `checksum`, damage | nothing: it may have been written; a note says how little the seal proves then |
//! | a file is shorter | `truncated`, damage | a note: VACUUM and TRUNCATE do that |
//! | a file is gone | `missing`, damage | a note: dropped or rewritten |
//!
//! Damage is proven only by a database that was shut down cleanly; elsewhere the
//! same is suspect.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::database::{PageFile, Step, Target};
use crate::error::Error;
use crate::page::standings::Standings;
use crate::page::{Fingerprint, PageFormat, PageRun, Witness};
use crate::seal::write::fingerprint;
use crate::seal::{Sealed, SealedFile, not_of_archives};
use crate::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Place, Severity, Standing, Unread};
use crate::words::LsnText;

/// Findings in one file that are kept: 1 GiB of pages.
const DIFFERING_MAX: usize = 131_072;

/// A database that is compared with a seal.
#[derive(Debug)]
pub struct Against;

impl Against {
    /// The target to verify instead.
    ///
    /// # Errors
    /// The seal is of another database, or this one cannot be compared with a
    /// seal.
    pub fn hold(target: Target, sealed: Sealed) -> Result<Target, Error> {
        let path = target.description.path.clone();
        let now = target.description.epoch.clone();
        let then = sealed.header.epoch.clone();
        let same_format = sealed.header.format == target.description.format
            && sealed.header.page_size == target.description.page_size;
        let of_another =
            now.as_ref().zip(then.as_ref()).is_some_and(|(a, b)| a.database != b.database);
        if !same_format || of_another {
            let hint = "name the seal that was made of this database";
            return Err(Error::refused(&path, "the seal is of another database", hint));
        }
        let went_back =
            now.as_ref().zip(then.as_ref()).is_some_and(|(a, b)| a.position < b.position);
        let ground = Ground {
            same_state: now.as_ref().zip(then.as_ref()).is_some_and(|(a, b)| a.is_same_state(b)),
            at_rest: now.as_ref().is_some_and(|now| now.is_at_rest),
            is_postgres: target.description.format == "postgres",
        };
        let steps = Steps {
            left: sealed.files.clone(),
            sealed,
            ground,
            went_back,
            position: now.as_ref().map(|now| now.position),
            inner: target.steps,
            compared: Vec::new(),
            concluded: Vec::new(),
            shorter: 0,
            phase: Phase::Files,
            ready: VecDeque::new(),
        };
        Ok(Target { steps: Box::new(steps), ..target })
    }
}

#[derive(Debug, Clone, Copy)]
struct Ground {
    /// Nothing was written since the seal.
    same_state: bool,
    at_rest: bool,
    /// Positions in the log as PostgreSQL writes them, and by its name for them.
    is_postgres: bool,
}

impl Ground {
    fn severity(self) -> Severity {
        if self.at_rest { Severity::Damage } else { Severity::Suspect }
    }

    /// A position in the log, for people.
    fn lsn(self, lsn: u64) -> String {
        match self.is_postgres {
            true => format!("pd_lsn {}", LsnText(lsn)),
            false => format!("LSN {lsn}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Files,
    Conclusions,
    Done,
}

struct Steps {
    inner: Box<dyn Iterator<Item = Step> + Send>,
    sealed: Sealed,
    /// Files of the seal that were not come upon.
    left: BTreeMap<String, SealedFile>,
    ground: Ground,
    /// This is an earlier state than the sealed one.
    went_back: bool,
    /// Of this state, if it is known.
    position: Option<u64>,
    compared: Vec<Arc<FileAgainst>>,
    /// What the files of the database themselves said of pages in the end: held back,
    /// since the seal may know something graver of the same pages.
    concluded: Vec<Step>,
    /// Files that are shorter, which may be.
    shorter: u64,
    phase: Phase,
    ready: VecDeque<Step>,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            match self.phase {
                Phase::Files => match self.inner.next() {
                    Some(Step::File(file)) => self.file(file),
                    Some(Step::Pages(_) | Step::Apart(_)) => {
                        self.phase = Phase::Done;
                        return Some(not_of_archives());
                    }
                    Some(step @ Step::Overruled(..)) => self.concluded.push(step),
                    Some(step) => return Some(step),
                    None => {
                        self.phase = Phase::Conclusions;
                        return Some(Step::Barrier);
                    }
                },
                Phase::Conclusions => {
                    self.phase = Phase::Done;
                    self.conclude();
                    self.let_the_gravest_win();
                }
                Phase::Done => return None,
            }
        }
    }
}

impl Steps {
    fn file(&mut self, mut file: PageFile) {
        if let Some(sealed) = self.left.remove(&file.name).filter(|_| !self.went_back) {
            match self.sealed.pages(&sealed) {
                Ok(pages) => {
                    let against = Arc::new(FileAgainst::new(&file, pages, self.ground));
                    self.compared.push(Arc::clone(&against));
                    file.witnesses.push(against);
                    self.length(&file, &sealed);
                }
                Err(error) => self.ready.push_back(Step::Unread(Unread::of_file(
                    file.name.clone(),
                    format!("not compared with the seal: {error}"),
                ))),
            }
        }
        self.ready.push_back(Step::File(file));
    }

    fn length(&mut self, file: &PageFile, sealed: &SealedFile) {
        if file.listed_bytes >= sealed.length {
            return;
        }
        if !self.ground.same_state {
            self.shorter = self.shorter.saturating_add(1);
            return;
        }
        let detail =
            format!("{} bytes, and {} when it was sealed", file.listed_bytes, sealed.length);
        let mut finding =
            Finding::of_file(&file.name, self.ground.severity(), Kind::Truncated, detail);
        let end = file.end(file.listed_bytes);
        finding.place.page = Some(file.page_at(end));
        finding.place.offset = Some(end);
        finding.hint = file.hint.as_deref().map(str::to_owned);
        self.ready.push_back(Step::Finding(finding));
    }

    fn conclude(&mut self) {
        // What was sealed while a server ran has pages newer than its last
        // checkpoint. At rest nothing is newer than the position.
        let sealed = self.compared.iter().map(|file| file.newest_sealed).max();
        let was_running = self.sealed.header.epoch.as_ref().is_some_and(|then| !then.is_at_rest);
        let is_older = was_running
            && self.ground.at_rest
            && self.position.zip(sealed).is_some_and(|(now, sealed)| now < sealed);
        if self.went_back || is_older {
            let detail = "this is an earlier state of the database than the sealed one: it was restored, or all of its storage went back";
            let finding = Finding::of_file("", Severity::Suspect, Kind::Stale, detail.to_owned());
            return self.ready.push_back(Step::Finding(finding));
        }
        let has_positions = self.compared.iter().any(|file| file.newest_sealed > 0);
        if !self.ground.same_state && !self.compared.is_empty() && !has_positions {
            self.note(
                "the database was written since it was sealed, and its pages do not say when they \
                 were: one with other bytes counts as written, so that this seal proves little; make \
                 a new one after each change that is to be kept"
                    .to_owned(),
            );
        }
        for file in std::mem::take(&mut self.compared) {
            self.ready.extend(file.findings());
        }
        let gone = std::mem::take(&mut self.left);
        if self.ground.same_state {
            for name in gone.keys() {
                let detail = "it was there when the database was sealed".to_owned();
                let severity = self.ground.severity();
                self.ready.push_back(Step::Finding(Finding::of_file(
                    name,
                    severity,
                    Kind::Missing,
                    detail,
                )));
            }
        } else if !gone.is_empty() {
            self.note(format!("{} files of the seal are not there any more", gone.len()));
        }
        if self.shorter > 0 {
            self.note(format!("{} files are shorter than when they were sealed", self.shorter));
        }
    }

    /// Of two findings about one page the graver stands, with the words of both; of two
    /// that are alike, that of the database's own files.
    fn let_the_gravest_win(&mut self) {
        let mut own: HashMap<Place, (Finding, Standing)> = HashMap::new();
        let mut order = Vec::new();
        for step in std::mem::take(&mut self.concluded) {
            if let Step::Overruled(finding, standing) = step {
                order.push(finding.place.clone());
                own.insert(finding.place.clone(), (finding, standing));
            }
        }
        for step in &mut self.ready {
            let Step::Overruled(finding, standing) = step else { continue };
            let Some((mut first, counted)) = own.remove(&finding.place) else { continue };
            if first.severity >= finding.severity {
                std::mem::swap(&mut first, finding);
                *standing = counted;
            }
            if let Some(detail) = &first.detail {
                finding.add_detail(detail);
            }
            finding.database = finding.database.take().or(first.database);
            finding.object = finding.object.take().or(first.object);
        }
        let rest = order.iter().filter_map(|place| own.remove(place));
        let rest: Vec<_> =
            rest.map(|(finding, counted)| Step::Overruled(finding, counted)).collect();
        self.ready.extend(rest);
    }

    fn note(&mut self, text: String) {
        self.ready.push_back(Step::Note(Note { file: String::new(), text }));
    }
}

#[derive(Debug, Clone, Copy)]
enum What {
    Zeroed { lsn: u64 },
    Stale { lsn: u64, sealed: u64 },
    Changed { lsn: u64, sealed: u64 },
}

#[derive(Debug, Clone, Copy)]
struct Differing {
    index: u64,
    counted: Standing,
    what: What,
    /// The last page in use before it is not as it was.
    follows_a_change: bool,
}

/// What is known of the pages of a file until all were seen.
#[derive(Debug)]
struct Pages {
    sealed: Vec<Fingerprint>,
    /// What each page is now.
    now: Vec<AtomicU8>,
}

/// Compares the pages of one file.
#[derive(Debug)]
struct FileAgainst {
    name: String,
    hint: Option<Arc<str>>,
    first_page: PageNo,
    first_offset: ByteOffset,
    format: Arc<dyn PageFormat>,
    ground: Ground,
    newest_sealed: u64,
    /// Gone once every page was seen: 17 bytes a page are too much to keep for all
    /// files.
    pages: RwLock<Option<Pages>>,
    /// Pages that were not seen yet.
    left: AtomicI64,
    differing: Mutex<Vec<Differing>>,
    /// One past the last page in use that is as it was.
    unchanged: AtomicU64,
}

/// Zero, or not seen.
const EMPTY: u8 = 0;
const UNCHANGED: u8 = 1;
const CHANGED: u8 = 2;

impl FileAgainst {
    fn new(file: &PageFile, sealed: Vec<Fingerprint>, ground: Ground) -> Self {
        let pages = file.page_count(file.listed_bytes);
        Self {
            name: file.name.clone(),
            hint: file.hint.clone(),
            first_page: file.first_page,
            first_offset: file.first_offset,
            format: Arc::clone(&file.format),
            ground,
            newest_sealed: sealed.iter().map(|page| page.lsn).max().unwrap_or(0),
            pages: RwLock::new(Some(Pages {
                now: std::iter::repeat_with(|| AtomicU8::new(EMPTY)).take(sealed.len()).collect(),
                sealed,
            })),
            left: AtomicI64::new(i64::try_from(pages).unwrap_or(i64::MAX)),
            differing: Mutex::default(),
            unchanged: AtomicU64::new(0),
        }
    }

    /// How a page differs from what was sealed, if that says something.
    fn difference(&self, now: Fingerprint, sealed: Fingerprint) -> Option<What> {
        let (was_empty, is_empty) = (sealed.hash == 0, now.hash == 0);
        let same_state = self.ground.same_state;
        match () {
            () if now == sealed => None,
            () if is_empty && !was_empty && !same_state && self.format.may_become_zero() => None,
            () if is_empty && !was_empty => Some(What::Zeroed { lsn: sealed.lsn }),
            () if same_state && was_empty => {
                Some(What::Changed { lsn: now.lsn, sealed: sealed.lsn })
            }
            () if now.lsn != 0 && now.lsn < sealed.lsn => {
                Some(What::Stale { lsn: now.lsn, sealed: sealed.lsn })
            }
            () if same_state || (now.lsn != 0 && now.lsn == sealed.lsn) => {
                Some(What::Changed { lsn: now.lsn, sealed: sealed.lsn })
            }
            () => None,
        }
    }

    fn findings(&self) -> Vec<Step> {
        self.settle();
        let mut differing = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut differing = std::mem::take(&mut *differing);
        differing.sort_by_key(|page| page.index);
        let unchanged = self.unchanged.load(Ordering::Relaxed);
        let page_size = self.format.page_size() as u64;
        let step = |page: Differing| {
            // Of pages that have none, there is nothing to say of it.
            let at = |lsn| if lsn == 0 { "no LSN".to_owned() } else { self.ground.lsn(lsn) };
            let mut severity = self.ground.severity();
            let (kind, detail) = match page.what {
                What::Zeroed { lsn } => {
                    if !self.ground.same_state && page.index >= unchanged {
                        severity = Severity::Suspect;
                        if page.follows_a_change {
                            return None;
                        }
                    }
                    let lsn = if lsn == 0 { String::new() } else { format!(" ({})", at(lsn)) };
                    (Kind::Zeroed, format!("all zero, and in use when it was sealed{lsn}"))
                }
                What::Stale { lsn, sealed } => (
                    Kind::Stale,
                    format!("an older version: {}, and {} when it was sealed", at(lsn), at(sealed)),
                ),
                What::Changed { lsn: 0, .. } => {
                    (Kind::Checksum, "other bytes than when it was sealed".to_owned())
                }
                What::Changed { lsn, sealed } if lsn != sealed => (
                    Kind::Checksum,
                    format!(
                        "other bytes than when it was sealed: {}, and {} then",
                        at(lsn),
                        at(sealed)
                    ),
                ),
                What::Changed { lsn, .. } => (
                    Kind::Checksum,
                    format!("other bytes than when it was sealed, under the same {}", at(lsn)),
                ),
            };
            let mut finding = Finding::of_file("", severity, kind, detail);
            finding.place = Place {
                file: self.name.clone(),
                page: Some(self.first_page.plus(page.index)),
                offset: Some(ByteOffset(
                    self.first_offset.0.saturating_add(page.index.saturating_mul(page_size)),
                )),
            };
            finding.hint = self.hint.as_deref().map(str::to_owned);
            Some(Step::Overruled(finding, page.counted))
        };
        differing.into_iter().filter_map(step).collect()
    }

    /// Keeps what is known of the pages that differ, and nothing of the others.
    fn settle(&self) {
        let Some(pages) = self.pages.write().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let mut differing = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
        for page in &mut *differing {
            page.follows_a_change = pages.follows_a_change(page.index);
        }
    }
}

impl Pages {
    /// True if the last page in use before this one is not as it was.
    fn follows_a_change(&self, index: u64) -> bool {
        let before = usize::try_from(index).ok().and_then(|index| self.now.get(..index));
        let states = before.unwrap_or_default().iter().rev();
        states.map(|state| state.load(Ordering::Relaxed)).find(|state| *state != EMPTY)
            == Some(CHANGED)
    }
}

impl Witness for FileAgainst {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let page_size = self.format.page_size();
        let known = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known {
            let mut index = run.first.0.saturating_sub(self.first_page.0);
            let mut pages = run.bytes.chunks_exact(page_size);
            for (standing, count) in standings.iter() {
                for page in pages.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX)) {
                    // What failed its own test has its finding.
                    let sound = standing.filter(|standing| match standing {
                        Standing::Ok
                        | Standing::Empty
                        | Standing::Unprotected
                        | Standing::Unverifiable => true,
                        Standing::Damaged | Standing::Suspect | Standing::Undecided => false,
                    });
                    if let Some(counted) = sound {
                        self.compare(known, index, counted, page);
                    }
                    index = index.saturating_add(1);
                }
            }
        }
        drop(known);
        let seen = i64::try_from(run.bytes.len() / page_size).unwrap_or(i64::MAX);
        if self.left.fetch_sub(seen, Ordering::AcqRel) == seen {
            self.settle();
        }
    }
}

impl FileAgainst {
    fn compare(&self, known: &Pages, index: u64, counted: Standing, page: &[u8]) {
        let Ok(at) = usize::try_from(index) else { return };
        let (Some(sealed), Some(place)) = (known.sealed.get(at), known.now.get(at)) else { return };
        let now = fingerprint(&*self.format, page);
        if now.hash != 0 {
            let is_unchanged = now == *sealed;
            place.store(if is_unchanged { UNCHANGED } else { CHANGED }, Ordering::Relaxed);
            if is_unchanged {
                self.unchanged.fetch_max(index.saturating_add(1), Ordering::Relaxed);
            }
        }
        if let Some(what) = self.difference(now, *sealed) {
            let mut all = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() < DIFFERING_MAX {
                all.push(Differing { index, counted, what, follows_a_change: false });
            }
        }
    }
}

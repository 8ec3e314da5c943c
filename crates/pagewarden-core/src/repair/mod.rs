//! Single damaged pages, and pages that files lack, brought back from copies that are proved to be the right version.
//!
//! ```text
//! request --> check: which pages are damaged --> engine: candidates and their proof --> plan
//!                                                                                        |
//!     check again <-- pages, synced, read back <-- undo file, synced <-- lock <---- if --yes
//! ```
//!
//! A plan writes nothing. What is to be overwritten, and what is to be written, goes into the undo file
//! first (`undo_file.rs`), which is synced before the first page changes. So a run that was interrupted
//! at any point is finished by the same command, from that file, or undone by `--undo`; both refuse if
//! a page has become another one meanwhile.
//!
//! What a candidate is, and what proves it, is the engine's matter. What is common is that only
//! [`Proof::Exact`], [`Proof::Replayed`] and [`Proof::Rebuilt`] are written unless the request accepts older versions.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::database::repository::RepositoryOptions;
use crate::database::{Epoch, OpenOptions, Target};
use crate::error::Error;
use crate::page::Fingerprint;
use crate::protect::disk::{Disk, Written};
use crate::source::hold;
use crate::source::store::StorePath;
use crate::verdict::{Finding, Kind, Note, Severity};
use crate::verify::{self, Progress, verify};

pub mod candidate;
mod copied;
pub mod copies;
pub mod undo_file;
mod written;

use copies::Packs;
use undo_file::UndoFile;

/// More damaged pages than this are no matter of single pages, unless the request says so.
pub const PAGES_MAX: usize = 1000;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The database.
    pub path: PathBuf,
    /// Where sound copies of its pages may be.
    pub sources: Vec<StorePath>,
    /// Copies that the engine's own redo brought forward to the end of the database's log.
    pub replayed: Vec<Replayed>,
    /// Folders with log of the database that its server archived.
    pub log: Vec<StorePath>,
    /// What is known of its pages at moments at which it was shut down.
    pub seals: Vec<Arc<dyn SealedPages>>,
    /// What is wanted of a source that is a backup repository.
    pub repository: RepositoryOptions,
    /// A file of keys, where pages can be tested with their key only.
    pub keyring: Option<PathBuf>,
    /// Write; else only say what would be written.
    pub write: bool,
    /// Leave the database as it is, and repair a copy of it here.
    pub copy_to: Option<PathBuf>,
    /// Take older versions of a page where nothing better is proved.
    pub accept_older: bool,
    /// Refuse if more pages than this are damaged.
    pub pages_max: usize,
    /// Bring back what this undo file holds, and nothing else.
    pub undo: Option<PathBuf>,
    /// Where to keep the bytes that are overwritten; by default in the data directory.
    pub undo_file: Option<PathBuf>,
}

impl Request {
    /// A plan for this database, by nothing but itself.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            sources: Vec::new(),
            replayed: Vec::new(),
            log: Vec::new(),
            seals: Vec::new(),
            repository: RepositoryOptions::default(),
            keyring: None,
            write: false,
            copy_to: None,
            accept_older: false,
            pages_max: PAGES_MAX,
            undo: None,
            undo_file: None,
        }
    }

    /// The sources, for an engine that reads them where they are on this machine.
    ///
    /// # Errors
    /// One is in object storage.
    pub fn local_sources(&self) -> Result<Vec<&Path>, Error> {
        let local = |source: &'_ StorePath| source.local_path().is_some();
        if let Some(other) = self.sources.iter().find(|source| !local(source)) {
            let reason = "copies in object storage are read for PostgreSQL only";
            return Err(Error::refused(other.path(), reason, "copy it to a disk, and name that"));
        }
        Ok(self.sources.iter().map(StorePath::path).collect())
    }
}

/// What the pages of a database were at a moment: proof of a version, and no source.
pub trait SealedPages: std::fmt::Debug + Send + Sync {
    /// What it is called.
    fn name(&self) -> String;

    /// Which state of which database it is of; `None`: that was not known.
    fn epoch(&self) -> Option<&Epoch>;

    /// When it was made, in seconds since 1970.
    fn made(&self) -> u64;

    /// The fingerprint that a page of a file had; `None`: it was empty or not there.
    ///
    /// # Errors
    /// The seal cannot be read.
    fn fingerprint(&self, file: &str, page: u64) -> Result<Option<Fingerprint>, Error>;
}

/// A copy on which a server has replayed log.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The source that it was made of.
    pub of: PathBuf,
    /// Its data directory.
    pub root: PathBuf,
}

/// How it is done.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Threads that check; by default one for each core.
    pub jobs: Option<NonZero<usize>>,
    /// Set from outside to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// What shows that a page is the right version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// It is the version that was last written, hints aside.
    Exact,
    /// It is an older version that the engine's own redo brought forward to the end of the log.
    Replayed,
    /// It is what the engine itself makes where the page is unknown.
    Rebuilt,
    /// It is a version that the database has had; changes since are lost with it.
    Older,
}

/// A damaged page, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    /// Relative to the database's path.
    pub file: String,
    /// The engine's own number of the page; `None` for what is no page.
    pub page: Option<u64>,
    /// Where it begins in the file.
    pub offset: Option<u64>,
    /// What is wrong with it.
    pub kind: Kind,
    /// The relation, where it is known.
    pub object: Option<String>,
    /// Where its bytes come from.
    pub source: Option<String>,
    /// What shows that they are right; `None`: there are none that can be taken.
    pub proof: Option<Proof>,
    /// Why, in words.
    pub reason: String,
    /// What to do next, where there is something.
    pub hint: Option<String>,
    /// True if it was written.
    pub written: bool,
    /// BLAKE3 of the bytes before, hexadecimal.
    pub before: Option<String>,
    /// BLAKE3 of the bytes that were or would be written.
    pub after: Option<String>,
}

impl Page {
    /// Of a finding, with nothing known to repair it by.
    pub fn of(finding: &Finding, reason: impl Into<String>) -> Self {
        Self {
            file: finding.place.file.clone(),
            page: finding.place.page.map(|page| page.0),
            offset: finding.place.offset.map(|offset| offset.0),
            kind: finding.kind,
            object: crate::words::relation_name(finding),
            source: None,
            proof: None,
            reason: reason.into(),
            hint: None,
            written: false,
            before: None,
            after: None,
        }
    }
}

/// A page of a plan, with its bytes.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Which page, and what becomes of it.
    pub page: Page,
    /// What the file holds there now; fewer bytes than a page where it ends inside or before it.
    pub old: Vec<u8>,
    /// There is no such file.
    pub is_new_file: bool,
    /// What is to be written; `None`: nothing.
    pub new: Option<Vec<u8>>,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// All damaged pages were repaired.
    #[serde(rename = "repaired")]
    Repaired,
    /// Some were, or could be.
    #[serde(rename = "partly")]
    Partly,
    /// None could be.
    #[serde(rename = "impossible")]
    Impossible,
    /// Nothing was written; what would be is listed.
    #[serde(rename = "planned")]
    Planned,
    /// There is no damaged page.
    #[serde(rename = "nothing to repair")]
    NothingToRepair,
    /// The bytes of an undo file are back.
    #[serde(rename = "undone")]
    Undone,
}

/// What came out, page by page.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The engine and its version.
    pub engine: String,
    /// The damaged pages, in the order of the files.
    pub pages: Vec<Page>,
    /// What a reader should know besides.
    pub warnings: Vec<String>,
    /// Where the overwritten bytes are.
    pub undo_file: Option<PathBuf>,
    /// True if a signal ended the run before it was done.
    pub stopped: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// True if every damaged page was repaired, or would be by this plan.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_planned = self.verdict == Verdict::Planned;
        self.verdict != Verdict::Partly
            && self.pages.iter().all(|page| page.written || is_planned && page.after.is_some())
    }
}

/// An engine whose pages can be repaired.
#[derive(Clone, Copy)]
pub struct Engine {
    /// For help.
    pub summary: &'static str,
    /// True if `path` is one of its databases.
    pub probe: fn(&Path) -> bool,
    /// Opens a database that is at rest, with its file of keys; refuses any other.
    pub open: for<'a> fn(&Path, Option<&Path>, &'a dyn Disk) -> Opened<'a>,
    /// Opens it for a check.
    pub target: fn(&Path, &Metadata, &OpenOptions) -> Result<Target, Error>,
    /// Archived log and backup repositories are sources of its pages.
    pub has_archives: bool,
    /// True for a finding about something that it may bring back, whatever the sources.
    pub treats: fn(&Finding) -> bool,
    /// It may have pages that can be tested with a key only, and takes a file of keys.
    pub has_keys: bool,
    /// Copies a database, which is at rest, to a folder that is empty or does not exist.
    pub copy: fn(&Path, &Path, &Options) -> Result<(), Error>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// What an engine gives of a database, or why it may not be repaired.
pub type Opened<'a> = Result<Box<dyn Patient + 'a>, Error>;

/// A database that is at rest, and may be repaired.
pub trait Patient: Sync {
    /// The engine and its version.
    fn engine(&self) -> String;

    /// Which database this is, whatever has been done to it.
    fn identity(&self) -> String;

    /// Changes whenever a server has run on it. Read anew at each call.
    fn state(&self) -> Result<String, Error>;

    /// True for a finding that is about a page to be repaired.
    fn is_wound(&self, finding: &Finding) -> bool {
        finding.severity == Severity::Damage
    }

    /// What a note of the check means for a repair: pages that it could not test are worth a warning.
    ///
    /// # Errors
    /// The note says that the keys which were given are not those of this database.
    fn warning_of(&self, _: &Note) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Refuses what this engine does not do, before anything is looked for.
    fn check_request(&self, _: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// Finds what each damaged page can be repaired by.
    fn plan(
        &self,
        findings: &[Finding],
        request: &Request,
        packs: Packs,
    ) -> Result<Vec<Planned>, Error>;

    /// What a reader should know besides, once a plan was made.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Keeps servers away while pages are written.
    ///
    /// # Errors
    /// A server runs, or a program has it open.
    fn lock(&self) -> Held<'_>;
}

/// What an engine keeps servers away by, or why it cannot.
pub type Held<'a> = Result<Box<dyn Hold + 'a>, Error>;

/// Keeps servers away until it is released, which is when the work is done or has failed.
pub trait Hold {
    /// True while none has come all the same.
    fn is_held(&self) -> bool {
        true
    }

    /// Lets servers in again: what the system holds by an open file it lets go with the file.
    fn release(self: Box<Self>) {}
}

impl Hold for File {
    /// A program that is just being started may have the file open, too: to close it is not enough.
    fn release(self: Box<Self>) {
        // What cannot be unlocked is when it is closed.
        let _ = hold::unlock(&self);
    }
}

impl Hold for Vec<Written> {}

/// The database that an undo file was made for, by the path that it had then.
///
/// # Errors
/// It is no undo file, or damaged.
pub fn path_of_undo_file(file: &Path) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(UndoFile::read(file)?.path))
}

/// What a repair is done with: the engines there are, and what reads packs.
#[derive(Debug, Clone, Copy)]
pub struct Means<'a> {
    /// What is written to.
    pub disk: &'a dyn Disk,
    /// The engines, in the order in which they are asked.
    pub engines: &'a [Engine],
    /// What reads packs.
    pub packs: Packs,
}

/// Plans a repair, or does it.
///
/// # Errors
/// It cannot be done, or not safely: the database runs or is none that can be repaired, a source is
/// of another database, a file cannot be read or written. Every page is then as it was, or as the
/// undo file that the message names has it.
pub fn repair_with(
    means: Means<'_>,
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let begin = Instant::now();
    let engine = engine_of(&request.path, means.engines)?;
    let asks_archives = !request.log.is_empty()
        || !request.seals.is_empty()
        || request.repository != RepositoryOptions::default();
    if asks_archives && !engine.has_archives {
        let reason = "archived log, seals and repositories are read for PostgreSQL only";
        let hint = "leave out --log, --seal, --stanza, --set and --cipher-pass-file";
        return Err(Error::refused(&request.path, reason, hint));
    }
    if let Some(keyring) = request.keyring.as_ref().filter(|_| !engine.has_keys) {
        let reason = "keys are taken for MySQL and MariaDB only";
        return Err(Error::refused(keyring, reason, "leave out --keyring"));
    }
    let Means { disk, packs, .. } = means;
    let run = Run { disk, packs, request, options, progress, engine };
    let root = root_of(&request.path)?;
    let mut outcome = match (&request.undo, &request.copy_to) {
        (Some(undo), _) => run.undo(&root, undo)?,
        (None, Some(copy)) if request.write => {
            let copy = copied::place(&root, copy);
            copied::make(engine, &root, &copy, request.keyring.as_deref(), options)?;
            run.repair(&copy)?
        }
        (None, _) => run.repair(&root)?,
    };
    outcome.elapsed = begin.elapsed();
    Ok(outcome)
}

/// A database that is one file by its real path, since what belongs to it is beside that.
fn root_of(path: &Path) -> Result<PathBuf, Error> {
    match path.is_file() {
        true => std::fs::canonicalize(path).map_err(|error| Error::io("open", path, error)),
        false => Ok(path.to_owned()),
    }
}

fn engine_of(path: &Path, engines: &[Engine]) -> Result<Engine, Error> {
    std::fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
    engines.iter().copied().find(|engine| (engine.probe)(path)).ok_or_else(|| {
        let names: Vec<_> = engines.iter().map(|engine| engine.summary).collect();
        Error::unrecognised(
            path,
            "no database whose pages can be repaired",
            format!("name one of: {}", names.join(", ")),
        )
    })
}

/// A request on its way.
struct Run<'a> {
    disk: &'a dyn Disk,
    packs: Packs,
    request: &'a Request,
    options: &'a Options,
    progress: &'a dyn Progress,
    engine: Engine,
}

impl<'a> Run<'a> {
    fn open(&self, root: &Path) -> Opened<'a> {
        (self.engine.open)(root, self.request.keyring.as_deref(), self.disk)
    }

    fn repair(&self, root: &Path) -> Result<Outcome, Error> {
        let patient = self.open(root)?;
        patient.check_request(self.request)?;
        let mut outcome = self.outcome(&*patient);
        let resumed = self.unfinished(root, &*patient)?;
        if let Some((path, undo)) = &resumed {
            outcome.undo_file = Some(path.clone());
            outcome.pages = undo.pages.iter().map(undo_file::Saved::as_page).collect();
            if !self.request.write {
                outcome.verdict = Verdict::Planned;
                outcome.warnings.push(format!(
                    "an earlier run was interrupted while it wrote; the same command with --yes finishes it, --undo {} undoes it",
                    path.display()
                ));
                return Ok(outcome);
            }
            Self::under_lock(&*patient, |hold| written::write(self, root, hold, undo))?;
            outcome.pages.iter_mut().for_each(|page| page.written = true);
            outcome.warnings.push("what an interrupted run began is finished".to_owned());
        }
        let state = patient.state()?;
        let Some(findings) = self.findings(root, &*patient, &mut outcome)? else {
            return Ok(outcome);
        };
        let finished = std::mem::take(&mut outcome.pages);
        if findings.is_empty() {
            outcome.verdict = match finished.is_empty() {
                true => Verdict::NothingToRepair,
                false => Verdict::Repaired,
            };
            outcome.pages = finished;
            return Ok(outcome);
        }
        if findings.len() > self.request.pages_max {
            return Err(too_many(root, findings.len(), self.request.pages_max));
        }
        let request = Request { path: root.to_owned(), ..self.request.clone() };
        let planned = patient.plan(&findings, &request, self.packs)?;
        outcome.warnings.extend(patient.warnings());
        if planned.len() > self.request.pages_max {
            return Err(too_many(root, planned.len(), self.request.pages_max));
        }
        if self.options.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            return Ok(outcome);
        }
        if self.request.write {
            let undo = UndoFile::of(root, &*patient, &state, &planned);
            if !undo.pages.is_empty() {
                let path = Self::under_lock(&*patient, |hold| {
                    self.check_unchanged(root, &*patient, &state, &undo)?;
                    let path = written::keep(self, root, &undo)?;
                    written::write(self, root, hold, &undo)?;
                    Ok(path)
                })?;
                outcome.undo_file = Some(path);
            }
        }
        outcome.pages = planned.into_iter().map(|one| one.page).collect();
        self.conclude(root, &*patient, finished, outcome)
    }

    /// Says what came out; what was written is checked again.
    fn conclude(
        &self,
        root: &Path,
        patient: &dyn Patient,
        finished: Vec<Page>,
        mut outcome: Outcome,
    ) -> Result<Outcome, Error> {
        let mut more = 0;
        if self.request.write {
            outcome.pages.iter_mut().for_each(|page| page.written = page.after.is_some());
            if outcome.pages.iter().any(|page| page.written) {
                let warnings = outcome.warnings.len();
                let Some(findings) = self.findings(root, patient, &mut outcome)? else {
                    return Ok(outcome);
                };
                more = unseen_before(&findings, &outcome.pages);
                for page in &mut outcome.pages {
                    let is_same = |one: &&Finding| is_about(one, page);
                    if let Some(finding) = findings.iter().find(is_same).filter(|_| page.written) {
                        let detail = finding.detail.as_deref().unwrap_or("no more is known");
                        page.reason = format!(
                            "{}; written, but the check still finds {}: {detail}",
                            page.reason,
                            finding.kind.name()
                        );
                        page.written = false;
                    }
                }
                if outcome.warnings.len() == warnings {
                    drop_contradicted(&mut outcome.pages, &findings);
                }
            }
        }
        let has_more = outcome.pages.iter().any(|page| page.written) && more > 0;
        if has_more {
            outcome.warnings.push(format!(
                "the check now finds damage in {} that it could not see before: run this again",
                crate::words::counted(more, "other place")
            ));
        }
        outcome.pages.splice(0..0, finished);
        let can = outcome.pages.iter().filter(|page| page.after.is_some()).count();
        let is_whole = outcome.pages.iter().all(|page| page.written);
        outcome.verdict = match (self.request.write, can) {
            (_, 0) => Verdict::Impossible,
            (false, _) => Verdict::Planned,
            (true, _) if is_whole && !has_more => Verdict::Repaired,
            (true, _) => Verdict::Partly,
        };
        Ok(outcome)
    }

    fn undo(&self, root: &Path, path: &Path) -> Result<Outcome, Error> {
        let patient = self.open(root)?;
        let mut outcome = self.outcome(&*patient);
        let undo = UndoFile::read(path)?;
        if undo.identity != patient.identity() {
            return Err(Error::refused(
                path,
                format!("this undo file is of another database ({})", undo.identity),
                "name the database that was repaired",
            ));
        }
        outcome.pages = undo.pages.iter().map(undo_file::Saved::as_undone).collect();
        outcome.undo_file = Some(path.to_owned());
        if !self.request.write {
            written::check_known(root, &undo)?;
            outcome.verdict = Verdict::Planned;
            return Ok(outcome);
        }
        Self::under_lock(&*patient, |hold| {
            written::undo(self, root, hold, &undo)?;
            written::discard(self, path)
        })?;
        outcome.pages.iter_mut().for_each(|page| page.written = true);
        outcome.undo_file = None;
        outcome.verdict = Verdict::Undone;
        Ok(outcome)
    }

    fn outcome(&self, patient: &dyn Patient) -> Outcome {
        Outcome {
            verdict: Verdict::NothingToRepair,
            engine: patient.engine(),
            pages: Vec::new(),
            warnings: Vec::new(),
            undo_file: None,
            stopped: false,
            elapsed: Duration::ZERO,
        }
    }

    /// Does something while no server can start.
    fn under_lock<T>(
        patient: &dyn Patient,
        work: impl FnOnce(&dyn Hold) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let hold = patient.lock()?;
        let done = work(&*hold);
        hold.release();
        done
    }

    /// What an interrupted run left: the undo file of this very state of the database, of which not
    /// all is written.
    fn unfinished(
        &self,
        root: &Path,
        patient: &dyn Patient,
    ) -> Result<Option<(PathBuf, UndoFile)>, Error> {
        let state = patient.state()?;
        for path in written::undo_files(self, root) {
            let Ok(undo) = UndoFile::read(&path) else { continue };
            let is_ours = undo.identity == patient.identity() && undo.state == state;
            if is_ours && written::is_unfinished(root, &undo) {
                return Ok(Some((path, undo)));
            }
        }
        Ok(None)
    }

    /// Nothing has come between the plan and the lock.
    fn check_unchanged(
        &self,
        root: &Path,
        patient: &dyn Patient,
        state: &str,
        undo: &UndoFile,
    ) -> Result<(), Error> {
        if patient.state()? == state && written::holds_old(root, undo) {
            return Ok(());
        }
        Err(Error::changed(root, "it changed while the repair was planned", "run this again"))
    }

    /// What is damaged, one finding a page; `None` if the run was stopped meanwhile.
    fn findings(
        &self,
        root: &Path,
        patient: &dyn Patient,
        outcome: &mut Outcome,
    ) -> Result<Option<Vec<Finding>>, Error> {
        let failed = |error| Error::io("check", root, error);
        let metadata = std::fs::metadata(root).map_err(failed)?;
        let keyring = self.request.keyring.clone();
        let open = OpenOptions { keyring, ..OpenOptions::default() };
        let target = (self.engine.target)(root, &metadata, &open)?;
        let stop = Arc::clone(&self.options.stop);
        let mut options = verify::Options { stop, ..verify::Options::default() };
        options.jobs = self.options.jobs.unwrap_or(options.jobs);
        let mut damage = Damage { patient, findings: Vec::new(), notes: Vec::new(), unread: 0 };
        let verified = verify(target, &options, self.progress, &mut damage).map_err(failed)?;
        if verified.summary.stopped {
            outcome.stopped = true;
            return Ok(None);
        }
        for note in &damage.notes {
            let warning = patient.warning_of(note)?;
            outcome.warnings.extend(warning.filter(|text| !outcome.warnings.contains(text)));
        }
        if damage.unread > 0 {
            outcome.warnings.push(format!(
                "{} could not be read: check says which",
                crate::words::counted(damage.unread, "range")
            ));
        }
        damage.findings.sort_by(|a, b| {
            let key = |one: &Finding| one.place.page.map(|page| page.0);
            (&a.place.file, key(a)).cmp(&(&b.place.file, key(b)))
        });
        Ok(Some(damage.findings))
    }
}

/// True for a finding about a page of a plan.
fn is_about(finding: &Finding, page: &Page) -> bool {
    let number = finding.place.page.map(|page| page.0);
    finding.place.file == page.file
        && (number == page.page || is_of_length(finding.kind) && is_of_length(page.kind))
}

/// Leaves out pages that were never damaged: they contradicted another page of their file, which is
/// repaired now, and `findings` have no word about the file any more.
fn drop_contradicted(pages: &mut Vec<Page>, findings: &[Finding]) {
    let written: HashSet<_> =
        pages.iter().filter(|page| page.written).map(|page| page.file.clone()).collect();
    pages.retain(|page| {
        page.after.is_some()
            || is_of_length(page.kind)
            || !written.contains(&page.file)
            || findings.iter().any(|one| one.place.file == page.file)
    });
}

/// Findings about none of these pages. A catalogue that is missing hides what else is missing, and a
/// first page that is damaged what its file looks like.
fn unseen_before(findings: &[Finding], pages: &[Page]) -> u64 {
    if !pages.iter().any(|page| is_of_length(page.kind) || page.page == Some(0)) {
        return 0;
    }
    let is_known = |one: &&Finding| pages.iter().any(|page| is_about(one, page));
    findings.iter().filter(|one| !is_known(one)).count() as u64
}

/// True for what is wrong with the length of a file.
#[must_use]
pub fn is_of_length(kind: Kind) -> bool {
    matches!(kind, Kind::Truncated | Kind::Missing)
}

/// Refuses what is no matter of single pages.
pub fn too_many(root: &Path, count: usize, pages_max: usize) -> Error {
    let reason = format!("{count} pages and files are damaged, more than --max-pages {pages_max}");
    let hint = "this much is a matter of a whole backup; --max-pages N allows more";
    Error::refused(root, reason, hint)
}

/// Findings about what is to be repaired.
struct Damage<'a> {
    patient: &'a dyn Patient,
    findings: Vec<Finding>,
    notes: Vec<Note>,
    unread: u64,
}

impl verify::Sink for Damage<'_> {
    fn finding(&mut self, finding: &Finding) -> std::io::Result<()> {
        if self.patient.is_wound(finding) && self.findings.len() < verify::KEPT_MAX {
            self.findings.push(finding.clone());
        }
        Ok(())
    }

    fn unread(&mut self, _: &crate::verdict::Unread) -> std::io::Result<()> {
        self.unread = self.unread.saturating_add(1);
        Ok(())
    }

    fn note(&mut self, note: &Note) -> std::io::Result<()> {
        if self.notes.len() < verify::KEPT_MAX {
            self.notes.push(note.clone());
        }
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_though_a_program_that_is_being_started_has_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = file.reopen().unwrap();
        assert!(hold::lock(&held).unwrap());
        // What a child has between fork and exec.
        let _inherited = held.try_clone().unwrap();
        assert!(hold::is_locked(file.as_file()));
        Hold::release(Box::new(held));
        assert!(!hold::is_locked(file.as_file()));
    }
}

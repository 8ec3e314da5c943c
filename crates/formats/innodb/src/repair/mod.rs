//! InnoDB: damaged pages of a data directory of MySQL or MariaDB that was shut down cleanly.
//!
//! | candidate | from |
//! | --- | --- |
//! | the same page of a copy | another data directory, a cold copy or a prepared backup in a folder (`source.rs`) |
//! | the last copy that the server made before it wrote the page | the directory's own doublewrite area: two extents of `ibdata1`, or `#ib_*.dblwr` |
//!
//! `proof.rs` says what a candidate is worth. A candidate passes the page's own test first, of the
//! directory's file and of the copy's, and is of the same tablespace by its number and layout. What can
//! only be tested with a key is no candidate. Two candidates that are both proved and differ prove
//! that something here is wrong: neither is taken.
//!
//! MariaDB from 10.8 on names each page that it changes in its log. Where that log reaches back to the
//! copy, and holds the copy's history, it decides instead of what is left of the damaged page: a page
//! that it does not name is the copy's, one that it names is not.
//!
//! Pages that say where other pages are or belong are never taken in an older version: those of the
//! system tablespace, of the dictionary and of undo tablespaces, and maps of extents, segments and
//! the change buffer in all files.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::files::description::engine_of;
use crate::files::directory::Role;
use crate::files::doublewrite::Doublewrite;
use crate::files::redo::{Changed, Layout as LogLayout, changed_since, names_of_files};
use crate::files::state::{State, is_root};
use crate::files::tablespace::{SYSTEM_SPACE, Tablespace, read_keyring};
use crate::files::untested::{is_about_untested, problem_of_keys};
use crate::page::encryption::Keyring;
use crate::page::fields::{
    LSN, PAGE_TYPE, TYPE_COMPRESSED_MARK, TYPE_ENCRYPTED, TYPE_ENCRYPTED_RTREE, read_u16, read_u64,
};
use crate::page::{InnodbPages, Look, is_stored_otherwise};
use crate::protect::check_state;
use crate::protect::copy::as_it_is;
use crate::protect::lock::Locks;
use pagewarden_core::error::Error;
use pagewarden_core::protect::{self, disk::Disk, disk::System};
use pagewarden_core::repair::candidate::{Candidate, Older, Worth, choose};
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::repair::{
    Engine, Held, Hold, Opened, Options, Page, Patient, Planned, Request, is_of_length,
};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{Finding, Note, Severity, Standing};

mod identity;
mod proof;
mod source;
#[cfg(test)]
mod tests;

use identity::Identity;
use proof::{Pair, contradicts};
use source::{Source, same_pages, same_state_words, tablespace};

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    summary: "MySQL or MariaDB data directory, shut down cleanly",
    probe,
    open,
    has_archives: false,
    treats,
    has_keys: true,
    target: crate::files::open,
    copy,
};

/// Maps of extents, of segments and of the change buffer.
const MAPS: [u16; 4] = [8, 9, 3, 5];
/// Of as many pages as a page has bytes, the first maps extents, the second the change buffer.
const MAP_PLACES: Range<u64> = 0..2;
/// The dictionary of MySQL.
const DICTIONARY: &str = "mysql.ibd";
/// The head of each file of the log, with its checkpoints.
const LOG_HEAD_BYTES: usize = 12 << 10;
const OTHER_KEYS: &str = "name the file with the keys of this very server";
const TO_RESTORE: &str = "restore the file from a backup";
const AFTER_OLDER: &str = "run CHECK TABLE ... EXTENDED, dump the table, compare it with what it must hold, and load it again";

fn probe(path: &Path) -> bool {
    path.is_dir() && is_root(path)
}

fn open<'a>(path: &Path, keyring: Option<&Path>, _: &'a dyn Disk) -> Opened<'a> {
    let keys = keyring.map(read_keyring).transpose()?;
    let state = State::find(path, keys.as_deref());
    check_log_has_key(path, &state, keyring)?;
    check_state(path, &state)?;
    Ok(Box::new(Directory {
        engine: engine_of(path, &state),
        identity: Identity::of(path),
        checkpoint: state.log.as_ref().map(|log| log.checkpoint),
        is_logged_by_page: state
            .log
            .as_ref()
            .is_some_and(|log| log.layout == LogLayout::MiniTransactions),
        page_size: tablespace(path, "ibdata1", None)
            .ok()
            .map(|file| file.geometry.layout.page_size),
        root: path.to_owned(),
        keyring: keyring.map(Path::to_owned),
        keys,
    }))
}

/// Refuses a directory of whose log it is not known what it holds, for want of its key.
fn check_log_has_key(root: &Path, state: &State, keyring: Option<&Path>) -> Result<(), Error> {
    let untested = state.log.as_ref().and_then(|log| log.untested.as_ref());
    let Some(untested) = untested else { return Ok(()) };
    let reason = &untested.reason;
    Err(match keyring {
        Some(keyring) => Error::refused(
            keyring,
            format!("not the keys of the log in {}: {reason}", root.display()),
            OTHER_KEYS,
        ),
        None => Error::refused(
            root,
            format!("its log is encrypted: {reason}"),
            "name the file with the keys: --keyring FILE",
        ),
    })
}

/// A copy of the directory as it is, damage included.
fn copy(source: &Path, target: &Path, options: &Options) -> Result<(), Error> {
    let options =
        protect::Options { stop: Arc::clone(&options.stop), ..protect::Options::default() };
    as_it_is(source, target, &System, &options)
}

/// The number of a file of the system tablespace, by its name.
fn number_of_system_file(name: &str) -> Option<u32> {
    match Role::of(name) {
        Role::System(number) => Some(number),
        _ => None,
    }
}

/// A data directory that is at rest.
#[derive(Debug)]
struct Directory {
    root: PathBuf,
    engine: String,
    identity: Identity,
    /// Where its log ends; a prepared backup may have none.
    checkpoint: Option<u64>,
    /// All that changes a page is in its log: MariaDB from 10.8 on.
    is_logged_by_page: bool,
    /// Bytes in a page of the system tablespace.
    page_size: Option<usize>,
    /// The file of keys, and what it holds.
    keyring: Option<PathBuf>,
    keys: Option<Arc<Keyring>>,
}

impl Patient for Directory {
    fn engine(&self) -> String {
        self.engine.clone()
    }

    fn identity(&self) -> String {
        self.identity.in_words()
    }

    /// The heads of the log's files: a server writes a checkpoint when it is shut down.
    fn state(&self) -> Result<String, Error> {
        let mut hash = blake3::Hasher::new();
        for (name, path) in names_of_files(&self.root) {
            let failed = |error| Error::io("read", &path, error);
            let file = open_regular(&path).map_err(failed)?;
            let mut head = vec![0; LOG_HEAD_BYTES];
            let count = read_fully(&file, &mut head, 0).map_err(failed)?;
            hash.update(name.as_bytes());
            hash.update(head.get(..count).unwrap_or_default());
        }
        Ok(hash.finalize().to_hex().to_string())
    }

    fn is_wound(&self, finding: &Finding) -> bool {
        let name = finding.place.file.rsplit('/').next().unwrap_or_default();
        finding.severity == Severity::Damage && Role::of(name).has_pages()
    }

    fn warning_of(&self, note: &Note) -> Result<Option<String>, Error> {
        match (problem_of_keys(note), &self.keyring) {
            (Some(problem), Some(keyring)) => {
                Err(Error::refused(keyring, problem.to_owned(), OTHER_KEYS))
            }
            _ => Ok(is_about_untested(note).then(|| note.text.clone())),
        }
    }

    fn plan(
        &self,
        findings: &[Finding],
        request: &Request,
        _: Packs,
    ) -> Result<Vec<Planned>, Error> {
        Plan::new(self, findings, request)?.run(findings)
    }

    fn lock(&self) -> Held<'_> {
        Ok(Box::new(Locks::of_directory(&self.root)?))
    }
}

/// The system lets go of it with its files.
impl Hold for Locks {}

/// True for single pages of tablespaces.
fn treats(finding: &Finding) -> bool {
    let name = finding.place.file.rsplit('/').next().unwrap_or_default();
    finding.place.page.is_some() && !is_of_length(finding.kind) && Role::of(name).has_pages()
}

/// A page that is to be repaired, and the file that it is in.
struct Wound {
    name: String,
    number: u64,
    offset: u64,
    file: Arc<Tablespace>,
}

impl Wound {
    fn page_size(&self) -> usize {
        self.file.geometry.layout.page_size
    }

    fn is_system(&self) -> bool {
        self.file.geometry.space_id == Some(SYSTEM_SPACE)
    }

    /// It has a place at which every tablespace has a map: what it is cannot be read off a page that is
    /// compressed or encrypted in some ways.
    fn is_placed_as_map(&self) -> bool {
        /// The first page that lists segments.
        const SEGMENTS: u64 = 2;
        let pages = self.page_size() as u64;
        self.number == SEGMENTS
            || self.number.checked_rem(pages).is_some_and(|place| MAP_PLACES.contains(&place))
    }

    /// Why this page is never taken in an older version, if so.
    fn vital(&self, candidate: &[u8]) -> Option<&'static str> {
        let base = self.name.rsplit('/').next().unwrap_or_default();
        let page_type = self.file.pages.clear_type(candidate);
        let is_map = page_type.is_some_and(|it| MAPS.contains(&it)) || self.is_placed_as_map();
        match Role::of(base) {
            Role::System(_) => Some("a page of the system tablespace"),
            Role::Undo => Some("a page of an undo tablespace"),
            _ if self.is_system() || self.name == DICTIONARY => Some("a page of the dictionary"),
            _ if is_map => Some("a page that maps extents, segments or the change buffer"),
            _ => None,
        }
    }
}

/// What is known of a tablespace in a copy.
type Copied = Result<Arc<Tablespace>, String>;

struct Plan<'a> {
    directory: &'a Directory,
    request: &'a Request,
    doublewrite: Option<Arc<Doublewrite>>,
    sources: Vec<Source>,
    /// What the directory's own log changed, as far back as it can be read.
    changed: Option<Changed>,
    /// Offsets of damaged pages by file, which are no witnesses.
    wounded: HashMap<String, HashSet<u64>>,
    files: HashMap<String, Result<Arc<Tablespace>, String>>,
    copied: HashMap<(usize, String), Copied>,
    /// Other pages that are the same, by the number of the source.
    same: HashMap<(usize, String), Result<u64, String>>,
}

impl<'a> Plan<'a> {
    fn new(
        directory: &'a Directory,
        findings: &[Finding],
        request: &'a Request,
    ) -> Result<Self, Error> {
        let sources: Result<Vec<_>, _> = request
            .local_sources()?
            .into_iter()
            .map(|root| Source::open(root, directory))
            .collect();
        let sources = sources?;
        let ends: Vec<_> = sources.iter().filter_map(|source| source.end).collect();
        let changed = changed_since(&directory.root, &ends);
        let doublewrite = directory.page_size.map(|bytes| Doublewrite::of(&directory.root, bytes));
        let mut plan = Self {
            directory,
            request,
            doublewrite,
            sources,
            changed,
            wounded: HashMap::new(),
            files: HashMap::new(),
            copied: HashMap::new(),
            same: HashMap::new(),
        };
        for finding in findings {
            if let Ok(wound) = plan.wound(finding) {
                plan.wounded.entry(wound.name).or_default().insert(wound.offset);
            }
        }
        Ok(plan)
    }

    fn run(&mut self, findings: &[Finding]) -> Result<Vec<Planned>, Error> {
        let mut planned = Vec::new();
        let mut seen = HashSet::new();
        for finding in findings {
            let wound = match self.wound(finding) {
                Ok(wound) => wound,
                Err(reason) => {
                    let mut page = Page::of(finding, reason);
                    page.hint = Some(TO_RESTORE.to_owned());
                    planned.push(Planned { page, old: Vec::new(), is_new_file: false, new: None });
                    continue;
                }
            };
            if seen.insert((wound.name.clone(), wound.offset)) {
                planned.push(self.page(finding, &wound)?);
            }
        }
        Ok(planned)
    }

    /// The page that a finding is about, or why it is none that can be repaired.
    fn wound(&mut self, finding: &Finding) -> Result<Wound, String> {
        let name = &finding.place.file;
        let page = finding.place.page.filter(|_| !is_of_length(finding.kind));
        let Some(page) = page else {
            return Err("only single pages of tablespaces are repaired".to_owned());
        };
        let is_below = Path::new(name).components().all(|it| matches!(it, Component::Normal(_)));
        if !is_below || !is_plain_file(&self.directory.root.join(name)) {
            return Err("this tablespace lies outside of the data directory".to_owned());
        }
        let (root, keys) = (&self.directory.root, self.directory.keys.as_ref());
        let file = self.files.entry(name.clone()).or_insert_with(|| {
            let opened = tablespace(root, name, keys);
            opened
                .map(Arc::new)
                .map_err(|error| format!("what its pages look like is not known: {error}"))
        });
        let file = Arc::clone(file.as_ref().map_err(Clone::clone)?);
        let page_size = file.geometry.layout.page_size as u64;
        let index = page.0.checked_sub(file.geometry.first_page);
        let offset = index.and_then(|index| index.checked_mul(page_size));
        let offset = offset.ok_or("the page is in another file of its tablespace")?;
        if finding.place.offset.is_some_and(|found| found.0 != offset) {
            return Err("what its pages look like is not known for sure".to_owned());
        }
        Ok(Wound { name: name.clone(), number: page.0, offset, file })
    }

    /// The best that there is for a page.
    fn page(&mut self, finding: &Finding, wound: &Wound) -> Result<Planned, Error> {
        let mut page = Page::of(finding, "");
        // Findings of structure are about a page and name no byte.
        page.offset = Some(wound.offset);
        let path = self.directory.root.join(&wound.name);
        let old = read_page(&path, wound.offset, wound.page_size())
            .map_err(|error| Error::io("read", &path, error))?;
        let Some(old) = old else {
            page.reason = "the file ends before the end of this page".to_owned();
            page.hint = Some(TO_RESTORE.to_owned());
            return Ok(Planned { page, old: Vec::new(), is_new_file: false, new: None });
        };
        page.before = Some(blake3::hash(&old).to_hex().to_string());
        let mut objections = Vec::new();
        let candidates = self.candidates(wound, &old, &mut objections);
        let (best, reason) = choose(candidates, &objections, |one, two| one == two);
        page.reason = reason;
        let mut planned = Planned { page, old, is_new_file: false, new: None };
        match best {
            Some(best) => self.take(wound, best, &mut planned),
            None => {
                let hint = match self.sources.is_empty() {
                    true => {
                        "name a copy: --from DIR, a data directory that was shut down or a prepared backup"
                    }
                    false => "name another copy, or restore the table",
                };
                planned.page.hint = Some(hint.to_owned());
            }
        }
        Ok(planned)
    }

    /// Puts a candidate into the plan, if it may be written.
    fn take(&self, wound: &Wound, best: Candidate, planned: &mut Planned) {
        let never = wound.vital(&best.bytes).map(|vital| {
            format!(
                "{vital} is never taken in an older version: restore the directory from a backup"
            )
        });
        let older = Older {
            is_accepted: self.request.accept_older,
            never: never.as_deref(),
            after: AFTER_OLDER,
        };
        planned.take(best, older);
    }

    /// All candidates for a page that pass the page's own test; the others are objections.
    fn candidates(
        &mut self,
        wound: &Wound,
        old: &[u8],
        objections: &mut Vec<String>,
    ) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for number in 0..self.sources.len() {
            match self.copied_page(number, wound, old) {
                Ok(candidate) => candidates.push(candidate),
                Err(objection) => objections.push(objection),
            }
        }
        candidates.extend(self.doublewritten(wound, old, objections));
        candidates
    }

    fn copied_page(
        &mut self,
        number: usize,
        wound: &Wound,
        old: &[u8],
    ) -> Result<Candidate, String> {
        let source = self.sources.get(number).ok_or("no such source")?;
        let path = source.root.join(&wound.name);
        let name = path.display().to_string();
        let keys = self.directory.keys.as_ref();
        let copied = self.copied.entry((number, wound.name.clone())).or_insert_with(|| {
            if !path.exists() {
                return Err(format!("{name} is not there"));
            }
            let opened = tablespace(&source.root, &wound.name, keys);
            let opened = opened.map_err(|error| format!("{name} cannot be used: {error}"))?;
            is_same_tablespace(&wound.file, &opened)
                .map_err(|why| format!("{name} cannot be used: {why}"))?;
            Ok(Arc::new(opened))
        });
        let theirs = Arc::clone(copied.as_ref().map_err(Clone::clone)?);
        let bytes = read_page(&path, wound.offset, wound.page_size())
            .map_err(|error| format!("{name} cannot be read: {error}"))?
            .ok_or_else(|| format!("{name} has no such page"))?;
        let standing = test(&theirs.pages, wound.number, &bytes)
            .and_then(|standing| match wound.file.geometry.first_is_sound {
                true => test(&wound.file.pages, wound.number, &bytes),
                false => Ok(standing),
            })
            .map_err(|fault| format!("the page in {name} is refused: {fault}"))?;
        let lsn = read_u64(&bytes, LSN);
        self.check_age(lsn).map_err(|why| format!("the page in {name} {why}"))?;
        let source_words = format!("{name} ({})", source.what);
        let shared = source.shared.clone();
        let worth = match self.same_state(number, wound, (old, &bytes), &theirs) {
            Ok(same) => Worth::Exact(same_state_words(same)),
            Err(state) => match self.by_log(number, wound, (old, &bytes), standing) {
                Some(worth) => worth,
                None => match self.by_version(wound, old, &bytes, standing, shared) {
                    Worth::Older(why) => Worth::Older(format!("{why} ({state})")),
                    worth => worth,
                },
            },
        };
        Ok(Candidate { bytes, source: source_words, worth, moment: lsn })
    }

    /// How many other pages of a file are the same, if the copy is of the same shutdown; else why it
    /// is not.
    fn same_state(
        &mut self,
        number: usize,
        wound: &Wound,
        (old, candidate): (&[u8], &[u8]),
        theirs: &Tablespace,
    ) -> Result<u64, String> {
        let source = self.sources.get(number).ok_or("no such source")?;
        source.is_same_state.clone()?;
        if contradicts(old, candidate, self.directory.checkpoint) {
            return Err("the damaged page says that it was changed later".to_owned());
        }
        let (ours, path) = (self.directory.root.join(&wound.name), source.root.join(&wound.name));
        let none = HashSet::new();
        let wounded = self.wounded.get(&wound.name).unwrap_or(&none);
        let same = self
            .same
            .entry((number, wound.name.clone()))
            .or_insert_with(|| same_pages((&ours, &wound.file), (&path, theirs), wounded));
        same.clone()
    }

    /// What the directory's own log says of a page of a copy whose history it shows; `None` where it
    /// does not reach back to the copy.
    fn by_log(
        &self,
        number: usize,
        wound: &Wound,
        (old, candidate): (&[u8], &[u8]),
        standing: Standing,
    ) -> Option<Worth> {
        let end = self.sources.get(number)?.end?;
        let changed = self.changed.as_ref().filter(|changed| changed.since <= end)?;
        let id = (wound.file.geometry.space_id?, u32::try_from(wound.number).ok()?);
        if let Some(last) = changed.last(id).filter(|last| *last > end) {
            return Some(Worth::Older(format!(
                "the directory's log has changed this page up to LSN {last}, and the copy ends at LSN {end}; \
                 what was changed in between is lost"
            )));
        }
        // Pages at the end of these may go without a word about each.
        let may_be_cut = wound.is_system() || Role::of(&wound.name) == Role::Undo;
        let is_exact = !changed.has_space_after(id.0, end)
            && !may_be_cut
            && standing == Standing::Ok
            && !contradicts(old, candidate, self.directory.checkpoint);
        is_exact.then(|| {
            Worth::Exact(format!(
                "the directory's log holds the copy's history up to its end at LSN {end}, was read from \
                 there on, and has no change of this page"
            ))
        })
    }

    /// What the directory's own log says of a copy that its own server made; `None` where it has no
    /// change of the page.
    fn by_own_log(&self, wound: &Wound, lsn: u64, standing: Standing) -> Option<Worth> {
        let changed = self.changed.as_ref()?;
        let id = (wound.file.geometry.space_id?, u32::try_from(wound.number).ok()?);
        let last = changed.last(id)?;
        if last != lsn {
            return Some(Worth::Older(format!(
                "the directory's log has changed this page up to LSN {last}, and this version has LSN {lsn}"
            )));
        }
        let is_exact = standing == Standing::Ok && !changed.has_space_after(id.0, lsn);
        is_exact.then(|| {
            Worth::Exact(format!(
                "the directory's log was read from LSN {} to its end, and its last change of this page is \
                 the one of this version, LSN {lsn}",
                changed.since
            ))
        })
    }

    fn doublewritten(
        &self,
        wound: &Wound,
        old: &[u8],
        objections: &mut Vec<String>,
    ) -> Vec<Candidate> {
        let id = wound.file.geometry.space_id.zip(u32::try_from(wound.number).ok());
        let Some((doublewrite, id)) = self.doublewrite.as_ref().zip(id) else { return Vec::new() };
        let mut candidates = Vec::new();
        for (copy, bytes) in doublewrite.copies(id, wound.page_size()) {
            let place = format!("the doublewrite area ({} at byte {})", copy.file, copy.offset);
            let page_type = read_u16(&bytes, PAGE_TYPE);
            // What is behind the stored part in the slot is of another page.
            let is_whole = matches!(page_type, TYPE_ENCRYPTED | TYPE_ENCRYPTED_RTREE);
            let is_cut = is_stored_otherwise(page_type) && !is_whole
                || page_type & TYPE_COMPRESSED_MARK != 0;
            let tested = match is_cut {
                true => Err("compressed: how it ends in its place is not known".to_owned()),
                false => test(&wound.file.pages, wound.number, &bytes),
            };
            let tested = tested.and_then(|standing| self.check_age(copy.lsn).map(|()| standing));
            match tested {
                Ok(standing) => {
                    let shared = match (self.directory.is_logged_by_page, self.directory.checkpoint)
                    {
                        (true, Some(checkpoint)) => 0..checkpoint,
                        _ => 0..0,
                    };
                    let worth = match self.by_own_log(wound, copy.lsn, standing) {
                        Some(worth) => worth,
                        None => self.by_version(wound, old, &bytes, standing, shared),
                    };
                    candidates.push(Candidate { bytes, source: place, worth, moment: copy.lsn });
                }
                Err(why) => objections.push(format!("the copy in {place} is refused: {why}")),
            }
        }
        candidates
    }

    /// Refuses what is newer than the directory.
    fn check_age(&self, lsn: u64) -> Result<(), String> {
        match self.directory.checkpoint {
            Some(checkpoint) if lsn > checkpoint => Err(format!(
                "is newer (LSN {lsn}) than this directory, whose log ends at {checkpoint}"
            )),
            _ => Ok(()),
        }
    }

    fn by_version(
        &self,
        wound: &Wound,
        damaged: &[u8],
        candidate: &[u8],
        standing: Standing,
        shared: Range<u64>,
    ) -> Worth {
        let Some(checkpoint) = self.directory.checkpoint else {
            return Worth::Older("where this directory's log ended is not known".to_owned());
        };
        if standing != Standing::Ok {
            return Worth::Older("the copy has no checksum that shows that it is sound".to_owned());
        }
        let layout = &wound.file.geometry.layout;
        if let Some([damaged, candidate]) = wound.file.pages.in_the_clear([damaged, candidate]) {
            let (damaged, candidate) = (&*damaged, &*candidate);
            return Pair { layout, damaged, candidate, checkpoint, shared }.judge();
        }
        Pair { layout, damaged, candidate, checkpoint, shared }.judge()
    }
}

/// What a page that is to be taken counts as, or what it breaks.
fn test(pages: &InnodbPages, number: u64, page: &[u8]) -> Result<Standing, String> {
    match pages.look(number, page, None) {
        Look::Sound(Standing::Unverifiable, _) => {
            Err("it is encrypted or compressed in a way that cannot be tested without its key"
                .to_owned())
        }
        Look::Sound(standing, _) => Ok(standing),
        Look::Blank => Err("it is all zero".to_owned()),
        Look::Faulty(fault) => Err(fault.in_words()),
    }
}

/// The number and the layout are the same.
fn is_same_tablespace(ours: &Tablespace, theirs: &Tablespace) -> Result<(), String> {
    let (one, two) = (&ours.geometry, &theirs.geometry);
    let (Some(space), Some(other)) = (one.space_id, two.space_id) else {
        return Err("the number of its tablespace is not known".to_owned());
    };
    if space != other {
        return Err(format!(
            "it is tablespace {other}, and here is {space}: the table was made anew since"
        ));
    }
    let form = |it: &crate::page::layout::Layout| (it.form, it.page_size, it.logical_page_size);
    let flags = ours.header.zip(theirs.header).is_some_and(|(one, two)| one.flags != two.flags);
    if form(&one.layout) != form(&two.layout) || one.first_page != two.first_page || flags {
        return Err("its pages are laid out in another way".to_owned());
    }
    Ok(())
}

fn is_plain_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// A page of a file; `None` if the file ends before it does.
fn read_page(path: &Path, offset: u64, page_size: usize) -> std::io::Result<Option<Vec<u8>>> {
    let file = open_regular(path)?;
    let mut bytes = vec![0; page_size];
    let count = read_fully(&file, &mut bytes, offset)?;
    Ok((count == page_size).then_some(bytes))
}

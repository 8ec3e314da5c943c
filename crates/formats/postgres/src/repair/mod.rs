//! PostgreSQL 10 to 18: damaged pages of a cluster that was shut down cleanly.
//!
//! | candidate | from |
//! | --- | --- |
//! | the same page of a copy | a data directory that was shut down, a base backup (`source.rs`), as a folder or in archives, a repository or a pack (`stored.rs`) |
//! | the last full-page image of the block | the cluster's own `pg_wal`, and archives of it (`log.rs`) |
//! | a zeroed page | of maps of free space and visibility only: a server takes one that it cannot read for empty, which is always safe, and VACUUM fills it again (`fsm_readbuf`, `vm_readbuf`: `RBM_ZERO_ON_ERROR`) |
//!
//! Pages that a file lacks (it is missing, or ends too early) are brought back by the same rules, all of
//! a relation or none, if it is known how long it was (`gap.rs`, `length.rs`).
//!
//! `proof.rs` says what a candidate is worth. A candidate passes the page's own test first: checksum,
//! header, not all zero, not newer than the log. Two candidates that are both proved and differ
//! prove that something here is wrong: neither is taken.
//!
//! A standby counts as shut down only where its files are those of the last checkpoint: else its log
//! is yet to be replayed, and no page on disk has one right version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::checksum::{checksum, hash_pages};
use crate::files::backup::place::{Role, locate};
use crate::files::backup::taking::REST;
use crate::files::catalogue::relations::{Persistence, Relations};
use crate::files::catalogue::transactions::Moment;
use crate::files::catalogue::{self, Catalogue};
use crate::files::control::{ClusterState, Control};
use crate::files::is_root;
use crate::files::names::{Fork, RelationFile};
use crate::files::wal::block::Locator;
use crate::files::wal::segment::SegmentName;
use crate::page::{CHECKSUM_FIELD, Checksums, Header, PostgresPages};
use crate::protect::lock::{ServerLock, check_not_running};
use crate::protect::{Cluster, ENGINE as PROTECT, read_control};
use pagewarden_core::error::Error;
use pagewarden_core::page::PageFormat as _;
use pagewarden_core::protect::disk::Disk;
use pagewarden_core::protect::{self, Wish};
use pagewarden_core::repair::candidate::{self, Candidate, Older, choose};
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::repair::{
    Engine, Held, Hold, Opened, Options, Page, Patient, Planned, Proof, Request, is_of_length,
};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::system::FileExt as _;
use pagewarden_core::verdict::{Finding, Protection, Severity};
use pagewarden_core::words::LsnText;

mod gap;
mod kin;
mod length;
mod log;
mod proof;
mod seal;
mod source;
mod stored;
#[cfg(test)]
mod tests;

use gap::Gap;
use kin::Kin;
use log::{Archived, Block, Log, Wanted};
use proof::{Copy, Worth};
use seal::Seal;
use source::Source;
use stored::Stored;

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    summary: "PostgreSQL data directory, 10 to 18, shut down cleanly",
    probe: is_root,
    open,
    has_archives: true,
    treats,
    has_keys: false,
    target: crate::files::open,
    copy,
};

/// What to do after an older version was taken.
const AFTER_OLDER: &str = "dump the table and compare it with what it must hold; REINDEX all its indexes, and trust none before";
const TO_RESTORE: &str = "restore it from a backup";

fn open<'a>(root: &Path, _: Option<&Path>, disk: &'a dyn Disk) -> Opened<'a> {
    check_not_running(root)?;
    let cluster = Cluster::open(root)?;
    if cluster.version == "9.6" {
        let reason = "PostgreSQL 9.6 does not log all that changes its pages";
        return Err(Error::refused(root, reason, "clusters of 10 to 18 can be repaired"));
    }
    Ok(Box::new(Clustered { disk, cluster }))
}

/// A copy of the cluster as it is, damage included.
fn copy(source: &Path, target: &Path, options: &Options) -> Result<(), Error> {
    check_not_running(source)?;
    let cluster = Cluster::open(source)?;
    let mode = match cluster.control.checksums {
        Checksums::On => Protection::Checksum,
        _ => Protection::None,
    };
    let request = protect::Request {
        copy_to: Some(target.to_owned()),
        ..protect::Request::new(source, Wish::Mode(mode))
    };
    let options = protect::Options { stop: options.stop.clone(), ..protect::Options::default() };
    let outcome = (PROTECT.run)(&request, &options, &())?;
    if outcome.stopped {
        let reason = "the run was stopped before the copy was made";
        return Err(Error::refused(target, reason, "run the same command again"));
    }
    Ok(())
}

/// A cluster that is at rest.
struct Clustered<'a> {
    disk: &'a dyn Disk,
    cluster: Cluster,
}

impl Patient for Clustered<'_> {
    fn engine(&self) -> String {
        format!("PostgreSQL {}", self.cluster.version)
    }

    fn identity(&self) -> String {
        format!("PostgreSQL cluster {}", self.cluster.control.system_identifier)
    }

    fn state(&self) -> Result<String, Error> {
        let path = self.cluster.root.join("global").join("pg_control");
        Ok(blake3::hash(&read_control(&path)?).to_hex().to_string())
    }

    fn plan(
        &self,
        findings: &[Finding],
        request: &Request,
        packs: Packs,
    ) -> Result<Vec<Planned>, Error> {
        let last = last_segment(&self.cluster.control);
        let stored = stored::all(request, &wanted_files(findings), &last, packs)?;
        Plan::new(&self.cluster, findings, request, &stored)?.run(findings)
    }

    fn lock(&self) -> Held<'_> {
        let (root, owner) = (&self.cluster.root, &self.cluster.owner);
        Ok(Box::new(ServerLock::take(self.disk, root, owner)?))
    }
}

impl Hold for ServerLock<'_> {
    fn is_held(&self) -> bool {
        ServerLock::is_held(self)
    }

    fn release(self: Box<Self>) {
        ServerLock::release(*self);
    }
}

/// True for pages of relations, and for main forks that lack some. A file that was named by itself is known
/// by its name.
fn treats(finding: &Finding) -> bool {
    let file = &finding.place.file;
    let found = match locate(file) {
        Some(("", Role::Relation(place))) => Some(place.file),
        _ if file.contains('/') => None,
        _ => RelationFile::parse(file),
    };
    let Some(file) = found.filter(|file| file.session.is_none()) else { return false };
    match is_of_length(finding.kind) {
        true => file.fork == Fork::Main,
        false => finding.place.page.is_some() && file.fork != Fork::Init,
    }
}

/// A page that is to be repaired.
struct Wound<'a> {
    finding: &'a Finding,
    file: RelationFile,
    block: Block,
    path: PathBuf,
    offset: u64,
    /// The file ends inside or before this page, or is not there.
    is_absent: bool,
}

/// What of a copy is needed for these: their files, and what says that a relation is unlogged.
fn wanted_files(findings: &[Finding]) -> HashSet<String> {
    let mut names = HashSet::new();
    for finding in findings {
        let file = &finding.place.file;
        names.insert(file.clone());
        names.extend(file_of(file).map(|(folder, parsed)| init_fork(folder, parsed)));
        names.extend(gap::wanted_files(finding));
    }
    names
}

/// The segment of the log with the checkpoint of the shutdown.
fn last_segment(control: &Control) -> String {
    let bytes = control.wal_segment_bytes.max(1);
    let number = control.checkpoint_lsn.checked_div(u64::from(bytes)).unwrap_or(0);
    let begin = number.saturating_mul(u64::from(bytes));
    let name = SegmentName { timeline: control.timeline, begin }.file_name(bytes);
    format!("pg_wal/{name}")
}

/// The folder of a relation's file, and what its name says.
fn file_of(file: &str) -> Option<(&str, RelationFile)> {
    let (folder, name) = file.rsplit_once('/')?;
    Some((folder, RelationFile::parse(name)?))
}

fn init_fork(folder: &str, file: RelationFile) -> String {
    let init = RelationFile { fork: Fork::Init, segment: 0, ..file }.name();
    format!("{folder}/{init}")
}

struct Plan<'a> {
    cluster: &'a Cluster,
    request: &'a Request,
    log: Result<Log, String>,
    /// Each with what could not be taken out of it, and why.
    sources: Vec<(Source, Copy, BTreeMap<String, String>)>,
    /// Those of this cluster, whose log leads to them.
    seals: Vec<Seal>,
    catalogue: Catalogued,
    /// Damaged pages by file and offset, which are no witnesses.
    wounded: HashSet<(String, u64)>,
    /// What other pages say of a file, by the number of the source.
    kin: HashMap<(usize, String), Kin>,
}

impl<'a> Plan<'a> {
    fn new(
        cluster: &'a Cluster,
        findings: &[Finding],
        request: &'a Request,
        stored: &[Stored],
    ) -> Result<Self, Error> {
        let blocks = findings.iter().filter_map(|one| Some(wound(cluster, one).ok()?.block));
        let gaps = findings.iter().filter_map(|one| Gap::of(cluster, one, request.pages_max));
        let wanted = Wanted {
            blocks: blocks.collect(),
            relations: gaps.map(|gap| (gap.locator, gap.range())).collect(),
        };
        let mut copies = Vec::new();
        for one in stored {
            copies.push((Source::open(one, cluster)?, &one.losses));
        }
        let archives = stored::archives(&request.log, stored)?;
        let since = copies.iter().map(|(source, _)| source.begin()).min().unwrap_or(0);
        let archived = Archived { archives: &archives, since };
        let log = Log::read(&cluster.root, &cluster.control, &cluster.bytes, &wanted, &archived);
        check_settled(cluster, log.as_ref())?;
        let log = match Control::wal_level_of(&cluster.bytes) {
            Some(level) if level > 0 => log,
            _ => log.map(Log::of_minimal_level),
        };
        let mut sources = Vec::new();
        for (source, losses) in copies {
            let copy = source.against(cluster, log.as_ref().map_err(String::as_str))?;
            sources.push((source, copy, losses.clone()));
        }
        let catalogue = Catalogued::of(cluster);
        let wounded = findings
            .iter()
            .filter_map(|one| Some((one.place.file.clone(), one.place.offset?.0)))
            .collect();
        let kin = HashMap::new();
        let seals = seal::all(request, cluster, log.as_ref().ok())?;
        Ok(Self { cluster, request, log, sources, seals, catalogue, wounded, kin })
    }

    fn run(&mut self, findings: &[Finding]) -> Result<Vec<Planned>, Error> {
        let mut planned = Vec::new();
        let mut gaps = HashSet::new();
        for finding in findings {
            if let Some(gap) = Gap::of(self.cluster, finding, self.request.pages_max) {
                if gaps.insert(gap.locator) {
                    planned.extend(self.gap(&gap)?);
                }
                continue;
            }
            planned.push(match wound(self.cluster, finding) {
                Ok(wound) => self.page(&wound)?,
                Err(reason) => not_taken(finding, reason, TO_RESTORE),
            });
        }
        Ok(planned)
    }

    /// The best that there is for a page.
    fn page(&mut self, wound: &Wound<'_>) -> Result<Planned, Error> {
        let page_size = self.cluster.control.page_size;
        let old = read_page(&wound.path, wound.offset, page_size)?;
        let mut planned =
            Planned { page: Page::of(wound.finding, ""), old, is_new_file: false, new: None };
        let page = &mut planned.page;
        let is_map = matches!(wound.file.fork, Fork::FreeSpace | Fork::Visibility);
        if planned.old.len() != page_size && !is_map || planned.old.is_empty() {
            page.reason = "the file ends inside or before this page".to_owned();
            page.hint = Some(TO_RESTORE.to_owned());
            return Ok(planned);
        }
        let hash = |bytes: &[u8]| Some(blake3::hash(bytes).to_hex().to_string());
        page.before = hash(&planned.old);
        if is_map {
            let new = vec![0; page_size];
            page.proof = Some(Proof::Rebuilt);
            page.reason = "a zeroed page of this map means that nothing is known, which is always \
                           safe; VACUUM fills it again"
                .to_owned();
            page.hint = Some("VACUUM the table when the server runs".to_owned());
            page.after = hash(&new);
            planned.new = Some(new);
            return Ok(planned);
        }
        self.take_best(wound, &mut planned, None);
        Ok(planned)
    }

    /// Puts the best candidate into the plan; none is exact if there is a doubt.
    fn take_best(&mut self, wound: &Wound<'_>, planned: &mut Planned, doubt: Option<&str>) {
        let mut objections = Vec::new();
        let mut candidates = self.candidates(wound, &planned.old, &mut objections);
        if let Some(doubt) = doubt {
            for candidate in &mut candidates {
                candidate.worth = candidate::Worth::Older(doubt.to_owned());
            }
        }
        let layout = self.layout();
        let is_same = |one: &[u8], two: &[u8]| layout.fingerprint(one) == layout.fingerprint(two);
        let (best, reason) = choose(candidates, &objections, is_same);
        let page = &mut planned.page;
        page.reason = reason;
        let Some(best) = best else {
            page.hint = Some(match self.sources.is_empty() {
                true => {
                    "name a copy: --from DIR, a base backup or a data directory that was shut down"
                        .to_owned()
                }
                false => "name another copy, or restore the table".to_owned(),
            });
            return;
        };
        let is_accepted = self.request.accept_older;
        planned.take(best, Older { is_accepted, never: None, after: AFTER_OLDER });
    }

    /// All candidates for a page that pass the page's own test; the others are objections.
    fn candidates(
        &mut self,
        wound: &Wound<'_>,
        old: &[u8],
        objections: &mut Vec<String>,
    ) -> Vec<Candidate> {
        let unlogged = self.unlogged(wound);
        let layout = self.layout();
        let newest = self.cluster.control.checkpoint_lsn;
        let log = self.log.as_ref().map_err(String::as_str);
        let mut candidates = Vec::new();
        for (number, (source, copy, losses)) in self.sources.iter().enumerate() {
            let file = &wound.finding.place.file;
            let name = source.name(file);
            let newest = if unlogged.is_none() { newest } else { u64::MAX };
            let (bytes, is_unused) = match taken(source, losses, wound, &layout, newest) {
                Ok(taken) => taken,
                Err(objection) => {
                    objections.push(objection);
                    continue;
                }
            };
            let worth = match &unlogged {
                Some(why) => Worth::Older(why.clone()),
                None if is_unused => proof::of_unused(wound.block, copy, log),
                None => proof::worth(&bytes, wound.block, copy, log),
            };
            let worth = match worth {
                Worth::ExactOfKin(why) => {
                    let key = (number, file.clone());
                    let within = wound.offset / layout.page_size as u64;
                    let first = u64::from(wound.block.number).saturating_sub(within);
                    let (cluster, wounded) = (self.cluster, &self.wounded);
                    let kin = self.kin.entry(key).or_insert_with(|| {
                        let own = Kin::of(source, copy, file, &wound.path, &layout, first, wounded);
                        match own.is_silent() && wound.is_absent {
                            true => gap::kin_beside(source, copy, wound, cluster, &layout, wounded),
                            false => own,
                        }
                    });
                    kin.judge(why, old, &bytes, &layout, newest)
                }
                worth => worth,
            };
            let worth = match worth {
                Worth::Foreign(why) => {
                    objections.push(format!("the page in {name} is refused: {why}"));
                    continue;
                }
                _ if source.is_replayed && unlogged.is_none() => {
                    candidate::Worth::Replayed(format!(
                        "as the server's own redo makes it of a backup and the log up to {}",
                        LsnText(newest)
                    ))
                }
                Worth::Exact(why) => candidate::Worth::Exact(why),
                // What its kin was not asked about is not proved.
                Worth::ExactOfKin(why) | Worth::Older(why) => {
                    let seals = self.seals.iter().filter(|_| unlogged.is_none());
                    match log.ok().and_then(|log| seal::proved(seals, wound, &bytes, &layout, log))
                    {
                        Some(why) => candidate::Worth::Exact(why),
                        None => candidate::Worth::Older(why),
                    }
                }
            };
            let source = format!("{name} ({})", source.what);
            candidates.push(Candidate { bytes, source, worth, moment: copy.since });
        }
        if unlogged.is_none()
            && let Ok(log) = log
        {
            candidates.extend(from_log(wound, log, &layout));
        }
        candidates
    }

    /// What pages of this cluster must look like.
    fn layout(&self) -> PostgresPages {
        let control = &self.cluster.control;
        PostgresPages {
            page_size: control.page_size,
            max_align: control.max_align,
            checksums: control.checksums,
            failure: Severity::Damage,
            recovery: None,
            log_end: None,
            is_logged: true,
        }
    }

    /// Why the log does not have all changes of this relation, if so.
    fn unlogged(&mut self, wound: &Wound<'_>) -> Option<String> {
        let file = &wound.finding.place.file;
        if wound.file.fork == Fork::Init {
            return Some("it is the init fork of an unlogged relation".to_owned());
        }
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let beside = init_fork(folder, wound.file);
        let own = self.cluster.root.join(&beside);
        let copies = self.sources.iter().map(|(source, ..)| source.path(&beside));
        if std::iter::once(own).chain(copies).any(|path| path.exists()) {
            return Some("the relation is unlogged: its changes are not in the log".to_owned());
        }
        self.catalogue.objection(wound.block.locator)
    }
}

/// The page of a copy, if it passes the page's own test and its LSN is at most `newest`, and whether it
/// is one that was never used; or what speaks against it.
fn taken(
    source: &Source,
    losses: &BTreeMap<String, String>,
    wound: &Wound<'_>,
    layout: &PostgresPages,
    newest: u64,
) -> Result<(Vec<u8>, bool), String> {
    let file = &wound.finding.place.file;
    let name = source.name(file);
    if let Some(why) = losses.get(file) {
        return Err(format!("{name} is not taken: {why}"));
    }
    let read = source.read(file, wound.offset, layout.page_size, &wound.path);
    let bytes = match read {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let cut = losses.get(REST).map(|why| format!(", as far as it can be read: {why}"));
            return Err(format!("{name} has no such page{}", cut.unwrap_or_default()));
        }
        Err(error) => return Err(format!("{name} cannot be read: {error}")),
    };
    let is_unused = wound.is_absent && gap::is_unused_end(source, wound, &bytes, layout.page_size);
    let tested = PostgresPages { checksums: source.control.checksums, ..layout.clone() };
    let fault = fault(&bytes, wound.block.number, &tested).filter(|_| !is_unused);
    if let Some(fault) = fault {
        return Err(format!("the page is damaged in {name}, too: {fault}"));
    }
    let lsn = Header::read(&bytes).map_or(0, |header| header.lsn);
    if lsn > newest {
        let lsn = LsnText(lsn);
        return Err(format!("the page in {name} is newer ({lsn}) than this cluster"));
    }
    Ok((bytes, is_unused))
}

/// The image that the log ends with for a page.
fn from_log(wound: &Wound<'_>, log: &Log, layout: &PostgresPages) -> Option<Candidate> {
    let touch = proof::last_image(wound.block, log)?;
    let mut bytes = log.image(wound.block, touch, layout.page_size)?;
    let header = Header::read(&bytes)?;
    if proof::is_gist(&bytes) || proof::is_changed_unseen(&bytes, &header).is_some() {
        return None;
    }
    if layout.checksums == Checksums::On {
        let sum = sum_of(&bytes, wound.block.number);
        bytes.get_mut(CHECKSUM_FIELD)?.copy_from_slice(&sum.to_le_bytes());
    }
    if fault(&bytes, wound.block.number, layout).is_some() {
        return None;
    }
    let position = LsnText(touch.begin);
    Some(Candidate {
        bytes,
        source: format!("full-page image at {position} in {}", log.segment(touch.begin)),
        moment: touch.begin,
        worth: candidate::Worth::Exact(format!(
            "the log holds the whole page at {position}, was read to its end, and has nothing about this block behind that"
        )),
    })
}

/// The plan of a finding that nothing can be done about.
fn not_taken(finding: &Finding, reason: impl Into<String>, hint: &str) -> Planned {
    let mut page = Page::of(finding, reason);
    page.hint = Some(hint.to_owned());
    Planned { page, old: Vec::new(), is_new_file: false, new: None }
}

/// Refuses a standby whose files are not those of its last checkpoint.
fn check_settled(cluster: &Cluster, log: Result<&Log, &String>) -> Result<(), Error> {
    let control = &cluster.control;
    if control.state != ClusterState::ShutDownInRecovery {
        return Ok(());
    }
    let is_settled = control.redo_lsn == control.checkpoint_lsn
        && log.is_ok_and(|log| control.min_recovery_lsn <= log.end);
    match is_settled {
        true => Ok(()),
        false => Err(Error::refused(
            &cluster.root,
            "a standby whose log is yet to be replayed: its pages on disk are not those of one moment",
            "repair its primary, and make the standby anew; or stop the primary first, then the standby",
        )),
    }
}

/// The page that a finding is about, or why it is none that can be repaired.
fn wound<'a>(cluster: &Cluster, finding: &'a Finding) -> Result<Wound<'a>, String> {
    let only = || "only single pages of relations are repaired".to_owned();
    let (Some(page), Some(offset)) = (finding.place.page, finding.place.offset) else {
        return Err(only());
    };
    let Some(("", Role::Relation(place))) = locate(&finding.place.file) else {
        return Err(only());
    };
    if place.file.session.is_some() {
        return Err("a temporary relation, which the server removes when it starts".to_owned());
    }
    let tablespace = match place.tablespace {
        Some(0) => catalogue::DEFAULT_TABLESPACE,
        Some(tablespace) => tablespace,
        None => return Err(only()),
    };
    let fork = match place.file.fork {
        Fork::Main => 0,
        Fork::FreeSpace => 1,
        Fork::Visibility => 2,
        Fork::Init => 3,
    };
    let locator =
        Locator { tablespace, database: place.database.unwrap_or(0), number: place.file.number };
    let number = u32::try_from(page.0).map_err(|_| only())?;
    Ok(Wound {
        finding,
        file: place.file,
        block: Block { locator, fork, number },
        path: cluster.root.join(&finding.place.file),
        offset: offset.0,
        is_absent: false,
    })
}

fn read_page(path: &Path, offset: u64, page_size: usize) -> Result<Vec<u8>, Error> {
    let file = open_regular(path).map_err(|error| Error::io("open", path, error))?;
    let length = file.metadata().map_err(|error| Error::io("open", path, error))?.len();
    let there = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut page = vec![0; page_size.min(there)];
    file.read_exact_at(&mut page, offset).map_err(|error| Error::io("read", path, error))?;
    Ok(page)
}

/// What a page that is to be taken breaks, in words.
fn fault(page: &[u8], block: u32, layout: &PostgresPages) -> Option<String> {
    if page.iter().all(|byte| *byte == 0) {
        return Some("it is all zero".to_owned());
    }
    let Some(header) = Header::read(page) else { return Some("it is too short".to_owned()) };
    if header.upper == 0 {
        return Some("pd_upper is 0".to_owned());
    }
    if let Some(fault) = header.fault(layout.page_size, layout.max_align) {
        return Some(fault);
    }
    let is_wrong = layout.checksums == Checksums::On && header.checksum != sum_of(page, block);
    is_wrong.then(|| "its checksum does not match".to_owned())
}

fn sum_of(page: &[u8], block: u32) -> u16 {
    let mut hash = [0];
    hash_pages(page, page.len(), &mut hash);
    let [hash] = hash;
    checksum(hash, block)
}

/// What the catalogues say of relations, read when they are asked.
struct Catalogued {
    catalogue: Option<Catalogue>,
    relations: HashMap<u32, Relations>,
}

impl Catalogued {
    fn of(cluster: &Cluster) -> Self {
        let catalogue = Catalogue::find(&cluster.root, &cluster.version, &cluster.control);
        Self { catalogue, relations: HashMap::new() }
    }

    /// Why a relation is none whose changes are all in the log, if the catalogues say so. A
    /// relation that they do not list proves nothing: they may be what is damaged.
    fn objection(&mut self, locator: Locator) -> Option<String> {
        let catalogue = self.catalogue.as_ref()?;
        if locator.database == 0 {
            return None;
        }
        let relations = self.relations.entry(locator.database).or_insert_with(|| {
            let databases = catalogue.databases(Moment::AtRest);
            let found = databases.listed.iter().find(|one| one.oid == locator.database);
            found.map(|one| catalogue.relations(one, Moment::AtRest)).unwrap_or_default()
        });
        let found = relations.by_file(locator.tablespace, locator.number)?;
        match found.persistence {
            Persistence::Permanent => None,
            _ => Some("the catalogue calls the relation unlogged or temporary".to_owned()),
        }
    }
}

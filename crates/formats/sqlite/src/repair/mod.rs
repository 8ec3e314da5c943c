//! SQLite: damaged pages of a database that no program has open.
//!
//! | candidate | from |
//! | --- | --- |
//! | the newest committed frame of the page | the database's own write-ahead log |
//! | the same page of a copy | another file of the database, compressed or in a pack (`source.rs`) |
//!
//! `proof.rs` says what a candidate is worth. A hot rollback journal is refused: SQLite itself plays
//! it back when it opens the database, and until then no page has one right version. Free pages are
//! no damage, whatever is on them, and stay as they are.
//!
//! While pages are written, the bytes that SQLite locks are locked, as by a writer.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::geometry;
use crate::files::sidecars::{has_hot_journal, is_locked};
use crate::files::wal::view::{Logged, View};
use crate::page::LOCK_BYTE;
use crate::page::header::{HEADER_BYTES, MAGIC};
use crate::protect::names::beside;
use crate::protect::openers::check_nobody;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, Written};
use pagewarden_core::repair::candidate::{Candidate, Older, Worth, choose};
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::repair::{
    Engine, Held, Opened, Options, Page, Patient, Planned, Request, is_of_length,
};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::hold;
use pagewarden_core::system::FileExt as _;
use pagewarden_core::verdict::{Finding, Severity};

mod pages;
mod proof;
mod source;
#[cfg(test)]
mod tests;

use pages::Pages;
use proof::Against;
use source::Source;

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    summary: "SQLite database that no program has open",
    probe,
    open,
    has_archives: false,
    treats,
    has_keys: false,
    target: crate::files::open,
    copy,
};

/// The pending byte, the reserved byte and the 510 bytes of the shared lock.
const LOCK_BYTES: u64 = 512;
const COPY_BYTES: u64 = 1 << 20;
const TO_RESTORE: &str =
    "restore the file from a backup, or save what is readable with the sqlite3 shell's .recover";
const NEVER_OLDER: &str =
    "the header page and maps are never taken in an older version: restore the database";
const AFTER_OLDER: &str = "run PRAGMA integrity_check and REINDEX, dump the tables and compare them with what they must hold";

fn probe(path: &Path) -> bool {
    let mut head = [0; HEADER_BYTES];
    let is_read = path.is_file()
        && open_regular(path).is_ok_and(|file| file.read_exact_at(&mut head, 0).is_ok());
    is_read && (head.starts_with(MAGIC) || geometry::is_nearly_a_database(&head))
}

/// True for single pages of the main file.
fn treats(finding: &Finding) -> bool {
    let is_beside = ["-wal", "-journal", "-shm"].iter().any(|it| finding.place.file.ends_with(it));
    finding.place.page.is_some() && !is_of_length(finding.kind) && !is_beside
}

fn open<'a>(path: &Path, _: Option<&Path>, _: &'a dyn Disk) -> Opened<'a> {
    let failed = |error| Error::io("open", path, error);
    let file = open_regular(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mut head = vec![0; HEADER_BYTES + 1];
    let count = read_fully(&file, &mut head, 0).map_err(failed)?;
    head.truncate(count);
    let Some(geometry) = geometry::find(&file, metadata.len(), &head) else {
        let reason = "it is not known what pages it has";
        return Err(Error::refused(path, reason, TO_RESTORE));
    };
    if geometry.is_encrypted {
        let reason = "its pages are encrypted, so that no page can be verified";
        return Err(Error::refused(path, reason, "restore it from a backup"));
    }
    if is_locked(&file) {
        return Err(in_use(path));
    }
    check_nobody(path, &metadata)?;
    if has_hot_journal(path) {
        return Err(Error::refused(
            path,
            "a rollback journal waits beside it: SQLite will undo a transaction, and mends the pages that the journal holds",
            "keep a copy of both, let SQLite undo it (sqlite3 FILE 'SELECT count(*) FROM sqlite_schema'), and run this again",
        ));
    }
    let logged = Logged::beside(&file, path)
        .map_err(|reason| Error::refused(path, reason, "stop the programs that use it"))?;
    let pages = Pages { file, bytes: metadata.len(), geometry };
    Ok(Box::new(Database { path: path.to_owned(), pages, log: logged.view }))
}

/// A copy of the file and its log as they are, damage included. The log is there first, so that the
/// copy is never a database without it.
fn copy(source: &Path, target: &Path, _: &Options) -> Result<(), Error> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
    }
    for suffix in ["-journal", "-wal", ""] {
        let (from, to) = (beside(source, suffix), beside(target, suffix));
        if to.exists() {
            let reason = "there is a file of this name already, and a copy overwrites none";
            return Err(Error::refused(&to, reason, "name a folder that is empty"));
        }
        if suffix != "-journal" && from.exists() {
            copy_file(&from, &to).map_err(|error| Error::io("write", &to, error))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    use pagewarden_core::protect::disk::System;

    let source = open_regular(from)?;
    let like = source.metadata()?;
    let target = System.create(to, &like)?;
    let mut bytes = vec![0; usize::try_from(COPY_BYTES).map_err(std::io::Error::other)?];
    let mut offset = 0;
    loop {
        let count = read_fully(&source, &mut bytes, offset)?;
        if count == 0 {
            break;
        }
        System.write_at(&target, bytes.get(..count).unwrap_or_default(), offset)?;
        offset = offset.saturating_add(count as u64);
    }
    System.set_attributes(&target, &like)?;
    System.sync(&target)
}

/// A database that no other process has open.
struct Database {
    path: PathBuf,
    pages: Pages,
    log: Option<View>,
}

impl Database {
    /// The page that a finding is about, or why it is none that can be repaired.
    fn wound(&self, finding: &Finding) -> Result<u32, String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let page = finding.place.page.filter(|_| finding.place.file == name);
        page.and_then(|page| u32::try_from(page.0).ok())
            .filter(|page| *page > 0)
            .ok_or_else(|| "only single pages of the database's own file are repaired".to_owned())
    }
}

impl Patient for Database {
    fn engine(&self) -> String {
        "SQLite 3".to_owned()
    }

    fn identity(&self) -> String {
        let markers = self.pages.geometry.markers;
        let database = markers.map_or(0, |markers| markers.database.get());
        format!("SQLite database {database:08x} of pages of {} bytes", self.pages.page_size())
    }

    /// The length and the log's header. A program that changes a page that was to be written is
    /// seen by the page itself, which the undo file does not know then.
    fn state(&self) -> Result<String, Error> {
        let failed = |error| Error::io("look at", &self.path, error);
        let mut state = fs::metadata(&self.path).map_err(failed)?.len().to_string();
        if let Ok(file) = open_regular(&beside(&self.path, "-wal")) {
            let mut head = [0; 32];
            let count = read_fully(&file, &mut head, 0).map_err(failed)?;
            let length = file.metadata().map_err(failed)?.len();
            if count > 0 {
                state.push_str(&format!("-{length}-{}", blake3::hash(&head).to_hex()));
            }
        }
        Ok(state)
    }

    /// A page of which the log has a later version is suspect only: a checkpoint would mend it.
    fn is_wound(&self, finding: &Finding) -> bool {
        let is_logged = || {
            let page = self.wound(finding).ok()?;
            self.log.as_ref()?.offset(page)
        };
        finding.severity == Severity::Damage
            || finding.severity == Severity::Suspect && is_logged().is_some()
    }

    fn plan(
        &self,
        findings: &[Finding],
        request: &Request,
        packs: Packs,
    ) -> Result<Vec<Planned>, Error> {
        let wounded: HashSet<u32> =
            findings.iter().filter_map(|finding| self.wound(finding).ok()).collect();
        let mut sources = Vec::new();
        for path in request.local_sources()? {
            let source = Source::open(path, &self.path, &self.pages, packs)?;
            let against = Against::compare(&self.pages, &source, &wounded, self.log.as_ref())?;
            against.check_kin(path)?;
            sources.push((source, against));
        }
        findings.iter().map(|finding| self.page(finding, request, &sources)).collect()
    }

    fn lock(&self) -> Held<'_> {
        let failed = |error| Error::io("lock", &self.path, error);
        let file = Written::open(&self.path).map_err(failed)?.file;
        if !hold::lock_in(&file, LOCK_BYTE, LOCK_BYTES).map_err(failed)? {
            return Err(in_use(&self.path));
        }
        Ok(Box::new(file))
    }
}

fn in_use(path: &Path) -> Error {
    Error::in_use(path, "a program has it open", "stop the programs that use it")
}

impl Database {
    /// The best that there is for a page.
    fn page(
        &self,
        finding: &Finding,
        request: &Request,
        sources: &[(Source, Against)],
    ) -> Result<Planned, Error> {
        let mut page = Page::of(finding, "");
        let number = match self.wound(finding) {
            Ok(number) => number,
            Err(reason) => {
                let page = Page { reason, hint: Some(TO_RESTORE.to_owned()), ..page };
                return Ok(Planned { page, old: Vec::new(), is_new_file: false, new: None });
            }
        };
        let read = self.pages.read(number).map_err(|error| Error::io("read", &self.path, error))?;
        let Some(old) = read else {
            page.reason = "the file ends before the end of this page".to_owned();
            page.hint = Some(TO_RESTORE.to_owned());
            return Ok(Planned { page, old: Vec::new(), is_new_file: false, new: None });
        };
        // Findings of structure are about a page and name no byte.
        page.offset = Some(self.pages.offset(number));
        page.before = Some(blake3::hash(&old).to_hex().to_string());
        let mut objections = Vec::new();
        let candidates = self.candidates(number, &old, sources, &mut objections);
        let (best, reason) = choose(candidates, &objections, |one, two| one == two);
        page.reason = reason;
        let mut planned = Planned { page, old, is_new_file: false, new: None };
        let Some(best) = best else {
            let hint = match sources.is_empty() {
                true => "name a copy: --from FILE, a copy or backup of this database",
                false => "name another copy, or restore the database",
            };
            planned.page.hint = Some(hint.to_owned());
            return Ok(planned);
        };
        let is_map = number == 1 || sources.iter().any(|(source, _)| source.is_map(number));
        let never = is_map.then_some(NEVER_OLDER);
        let is_accepted = request.accept_older;
        planned.take(best, Older { is_accepted, never, after: AFTER_OLDER });
        Ok(planned)
    }

    /// All candidates for a page that pass the page's own test; the others are objections.
    fn candidates(
        &self,
        number: u32,
        old: &[u8],
        sources: &[(Source, Against)],
        objections: &mut Vec<String>,
    ) -> Vec<Candidate> {
        if let Some((log, offset)) =
            self.log.as_ref().and_then(|log| Some((log, log.offset(number)?)))
        {
            return self.logged(log, offset, number, objections).into_iter().collect();
        }
        let mut candidates = Vec::new();
        for (source, against) in sources {
            let name = &source.name;
            if source.is_suspected(number) {
                objections.push(format!("the page is damaged in {name}, too"));
                continue;
            }
            let bytes = match source.pages.read(number) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    objections.push(format!("{name} has no such page"));
                    continue;
                }
                Err(error) => {
                    objections.push(format!("{name} cannot be read: {error}"));
                    continue;
                }
            };
            if let Some(fault) = self.pages.fault(number, &bytes) {
                objections.push(format!("the page in {name} is refused: {fault}"));
                continue;
            }
            candidates.push(Candidate {
                worth: against.worth(&self.pages, number, old, &bytes),
                source: format!("{name} ({})", source.what),
                moment: u64::from(against.theirs.change_counter),
                bytes,
            });
        }
        candidates
    }

    /// The newest committed frame of a page: what every reader sees, and a checkpoint would write.
    fn logged(
        &self,
        log: &View,
        offset: u64,
        number: u32,
        objections: &mut Vec<String>,
    ) -> Option<Candidate> {
        let name = &log.name;
        let mut bytes = vec![0; self.pages.page_size()];
        if !log.read(&mut bytes, offset) {
            objections.push(format!("the frame in {name} cannot be read"));
            return None;
        }
        if let Some(fault) = self.pages.fault(number, &bytes) {
            objections.push(format!("the frame in {name} is refused: {fault}"));
            return None;
        }
        let worth = match log.is_broken {
            false => Worth::Exact(
                "the newest committed frame of this page, in a log whose sums fit to its last commit"
                    .to_owned(),
            ),
            true => Worth::Older(
                "frames of the same log follow one that does not fit: later commits may be lost"
                    .to_owned(),
            ),
        };
        let source = format!("frame at byte {offset} of {name}");
        Some(Candidate { bytes, source, worth, moment: 0 })
    }
}

//! SQL Server: damaged pages of data files, planned, and mended in a copy.
//!
//! | candidate | from |
//! | --- | --- |
//! | the page with one flipped bit turned back | the page itself (`page/mend.rs`) |
//! | the same page of a full backup, a differential one, or a copy of the file | a source (`places.rs`, `source.rs`) |
//!
//! `proof.rs` says what a candidate is worth. No SQL Server has read what this writes, so that files of a
//! database are never changed in place: a server restores single pages itself, and the plan has the
//! statements for that (`advice.rs`).
//!
//! That a server has the files open cannot be seen from here on every system. A database that was not
//! shut down cleanly is planned for all the same, since that writes nothing: what may still be in the
//! server's memory or log is no proof then.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, Metadata};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::checksum::{PAGE_BYTES, Page as Bytes};
use crate::files::backup::contents::BackupSet;
use crate::files::data_file;
use crate::page::header::{Header, Tested, fixed_type, tested};
use crate::page::system::{BootPage, has_its_record};
use pagewarden_core::database::{OpenOptions, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, Written};
use pagewarden_core::repair::candidate::{Candidate, Older, Worth, choose};
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::repair::{
    Engine, Held, Opened, Page, Patient, Planned, Request, is_of_length,
};
use pagewarden_core::system::fs::FlockOperation;
use pagewarden_core::system::identity;
use pagewarden_core::verdict::{Finding, Kind, PageNo, Severity};

mod advice;
mod copy;
mod database;
mod places;
mod proof;
mod source;
#[cfg(test)]
mod tests;

use database::{DataFile, Database, PageId, Scan, pages_of};
use places::Places;
use proof::{Case, is_map};
use source::{Against, Source, read_backup, read_copies};

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    summary: "SQL Server data files (.mdf, .ndf) or a folder of them, to a copy",
    probe: database::is_known,
    open,
    has_archives: false,
    treats,
    has_keys: false,
    target,
    copy: copy::copy,
};

const TO_RESTORE: &str = "restore the file or the database from a backup";
const NEVER_OLDER: &str = "file header, boot page, free space and allocation maps are never taken in an older version: restore the database";
const AFTER_OLDER: &str =
    "attach the copy, run DBCC CHECKDB, and compare the tables with what they must hold";

/// True for single pages of data files.
fn treats(finding: &Finding) -> bool {
    finding.place.page.is_some() && !is_of_length(finding.kind)
}

fn open<'a>(path: &Path, _: Option<&Path>, _: &'a dyn Disk) -> Opened<'a> {
    let database = Database::open(path)?;
    Ok(Box::new(Files { database, advice: Mutex::default() }))
}

/// The data file, or those of the folder one after the other, for a check.
fn target(path: &Path, metadata: &Metadata, _: &OpenOptions) -> Result<Target, Error> {
    let options = data_file::one_by_one();
    if !metadata.is_dir() {
        return crate::files::open(path, metadata, &options);
    }
    let database = Database::open(path)?;
    let mut targets = Vec::new();
    for file in database.files.values() {
        let failed = |error| Error::io("open", &file.path, error);
        let opened = crate::files::open_file(&file.path).map_err(failed)?;
        let identity = data_file::Identity { number: file.number, is_log: false };
        targets.push(data_file::open(&file.path, &opened, identity, &options)?);
    }
    let Some(first) = targets.first() else {
        return Err(Error::damaged(path, "no file", TO_RESTORE));
    };
    let mut description = first.description.clone();
    description.path = path.to_owned();
    let steps: Vec<Box<dyn Iterator<Item = Step> + Send>> =
        targets.into_iter().map(|target| target.steps).collect();
    Ok(Target { description, steps: Box::new(steps.into_iter().flatten()), woken: None })
}

/// The data files of a database.
struct Files {
    database: Database,
    /// What a server can do itself, of the last plan.
    advice: Mutex<Vec<String>>,
}

/// All sources, read.
struct Sources {
    sources: Vec<Source>,
    sets: Vec<BackupSet>,
}

impl Files {
    /// The page that a finding is about, or why it is none that can be repaired.
    fn wound(&self, finding: &Finding) -> Result<(&DataFile, u64), String> {
        let file = self.database.named(&finding.place.file);
        let page = finding.place.page.filter(|_| finding.kind != Kind::Truncated);
        file.zip(page.map(|page| page.0)).ok_or_else(|| {
            "only single pages of the data files are repaired: pages behind the end of a file are not".to_owned()
        })
    }

    fn read_sources(
        &self,
        request: &Request,
        packs: Packs,
        against: &Against<'_>,
    ) -> Result<Sources, Error> {
        let mut all = Sources { sources: Vec::new(), sets: Vec::new() };
        for path in request.local_sources()? {
            let places = Places::find(path, &self.database, packs)?;
            let (mut is_used, mut strangers) = (false, Vec::new());
            let backups = places.backups.iter().map(|files| read_backup(files, against));
            let copies = places.copies.iter().map(|copies| Ok(read_copies(copies, against)));
            for read in backups.chain(copies) {
                let read = match read {
                    Err(_) if path.is_dir() => continue,
                    read => read?,
                };
                is_used |= !read.sources.is_empty() || !read.sets.is_empty();
                all.sources.extend(read.sources);
                all.sets.extend(read.sets);
                strangers.extend(read.strangers);
            }
            if !is_used {
                let reason =
                    strangers.pop().unwrap_or_else(|| "no backup set in it can be read".to_owned());
                let hint = "name backups or copies of the database that is to be repaired";
                return Err(Error::refused(path, reason, hint));
            }
        }
        Ok(all)
    }

    /// The best that there is for a page.
    fn page(
        &self,
        finding: &Finding,
        request: &Request,
        sources: &[Source],
        scans: &BTreeMap<u16, Scan>,
    ) -> Planned {
        let mut page = Page::of(finding, "");
        let nothing = |page, reason, hint: &str| Planned {
            page: Page { reason, hint: Some(hint.to_owned()), ..page },
            old: Vec::new(),
            new: None,
            is_new_file: false,
        };
        let (file, number) = match self.wound(finding) {
            Ok(wound) => wound,
            Err(reason) => return nothing(page, reason, TO_RESTORE),
        };
        let Some(old) = file.page(number) else {
            let reason =
                "it cannot be read, or the file ends before the end of this page".to_owned();
            return nothing(page, reason, TO_RESTORE);
        };
        page.offset = number.checked_mul(PAGE_BYTES as u64);
        page.before = Some(blake3::hash(&old).to_hex().to_string());
        let mut objections = Vec::new();
        let mut candidates: Vec<_> = self_mended(file, number, &old).into_iter().collect();
        let mut kept = None;
        for source in sources {
            let Some(candidate) = self.candidate(source, file, number, &mut objections) else {
                continue;
            };
            kept = kept.or(Some(candidate));
            let Some(scan) = scans.get(&file.number) else { continue };
            let database = &self.database;
            let case = Case { database, file, scan, source, number, damaged: &old, candidate };
            candidates.push(Candidate {
                worth: case.worth(),
                source: match source.what.is_empty() {
                    true => source.name.clone(),
                    false => format!("{} ({})", source.name, source.what),
                },
                moment: moment_of(candidate),
                bytes: candidate.to_vec(),
            });
        }
        let never = is_map(file.number, number, kept).then_some(NEVER_OLDER);
        let (best, reason) = choose(candidates, &objections, |one, two| one == two);
        page.reason = reason;
        let mut planned = Planned { page, old: old.to_vec(), new: None, is_new_file: false };
        let Some(best) = best else {
            let hint = match sources.is_empty() {
                true => "name a backup or a copy of the file: --from FILE",
                false => "name another backup, or restore the database",
            };
            planned.page.hint = Some(hint.to_owned());
            return planned;
        };
        planned.take(best, Older { is_accepted: request.accept_older, never, after: AFTER_OLDER });
        planned
    }

    /// The page of a source that is this page, and passes its own test.
    fn candidate<'a>(
        &self,
        source: &'a Source,
        file: &DataFile,
        number: u64,
        objections: &mut Vec<String>,
    ) -> Option<&'a Bytes> {
        let name = &source.name;
        let Some(page) = source.page((file.number, number)) else {
            objections.push(format!("{name} ({}) has no such page", source.what));
            return None;
        };
        let header = Header::parse(page);
        let is_right_kind =
            fixed_type(file.number, number).is_none_or(|expected| expected == header.kind);
        if tested(page, &header) == Tested::Failed
            || !is_right_kind
            || !has_its_record(page, &header)
        {
            objections.push(format!("the page in {name} ({}) is damaged, too", source.what));
            return None;
        }
        let checkpoint = self.database.checkpoint().filter(|_| self.database.is_at_rest());
        if checkpoint.is_some_and(|checkpoint| header.lsn > checkpoint) {
            objections.push(format!(
                "the page in {name} ({}) is newer than this database: LSN {}",
                source.what,
                proof::words(header.lsn)
            ));
            return None;
        }
        Some(page)
    }
}

/// The page with its flipped bit turned back.
fn self_mended(file: &DataFile, number: u64, old: &Bytes) -> Option<Candidate> {
    let mended = pages_of(file.number).mended(PageNo(number), old)?;
    Some(Candidate {
        bytes: mended.page.to_vec(),
        source: "the page itself".to_owned(),
        worth: Worth::Exact(format!(
            "bit {} of byte {} was flipped: with it turned back, the page is the one that belongs here, and \
             its 32-bit checksum fits",
            mended.bit, mended.byte
        )),
        moment: u64::MAX,
    })
}

/// A measure of time of a page: its LSN.
fn moment_of(page: &Bytes) -> u64 {
    let lsn = Header::parse(page).lsn;
    let slot = u64::from(lsn.slot.min(0xFF));
    u64::from(lsn.log_file).min(0xFF_FFFF) << 40 | u64::from(lsn.block) << 8 | slot
}

impl Patient for Files {
    fn engine(&self) -> String {
        match &self.database.boot {
            Some(boot) if boot.says.is_at_rest() => boot.says.engine(),
            Some(boot) => format!("{}, not shut down cleanly", boot.says.engine()),
            None => "SQL Server, no boot page that can be read".to_owned(),
        }
    }

    fn identity(&self) -> String {
        let id = self.database.family().or_else(|| self.database.binding()).unwrap_or_default();
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = self.database.name().unwrap_or("not known");
        let names: Vec<_> = self.database.files.values().map(|file| file.name.as_str()).collect();
        format!("SQL Server database {name} {id}: {}", names.join(", "))
    }

    /// The lengths, and what a server writes into the boot page whenever it has the database.
    fn state(&self) -> Result<String, Error> {
        let mut state = String::new();
        for file in self.database.files.values() {
            let length = fs::metadata(&file.path);
            let length = length.map_err(|error| Error::io("look at", &file.path, error))?.len();
            state.push_str(&format!("{}:{length} ", file.number));
        }
        // Read anew, and as it was before a bit of it was flipped.
        let now = Database::open(&self.database.path)?;
        if let Some(boot) = &now.boot {
            let BootPage { checkpoint, is_clean, .. } = boot.says;
            let lsn = Header::parse(&boot.page).lsn;
            state.push_str(&format!(
                "{} {} {is_clean}",
                proof::words(checkpoint),
                proof::words(lsn)
            ));
        }
        Ok(state)
    }

    /// A page that may be on its way to the disk is a wound where a source proves what belongs there.
    fn is_wound(&self, finding: &Finding) -> bool {
        let is_page = matches!(finding.kind, Kind::Zeroed | Kind::Header | Kind::Misplaced);
        finding.severity == Severity::Damage
            || finding.severity == Severity::Suspect && is_page && finding.place.page.is_some()
    }

    fn check_request(&self, request: &Request) -> Result<(), Error> {
        let id = |path: &Path| identity(&fs::metadata(path).ok()?, path).ok();
        let is_copy = request.copy_to.is_some() && id(&request.path) != id(&self.database.path);
        if !request.write || is_copy {
            return Ok(());
        }
        Err(Error::refused(
            &self.database.path,
            "files of SQL Server are not changed in place",
            "--copy-to DIR, another folder, mends a copy; without --yes, the plan has the statements by which a server restores single pages itself",
        ))
    }

    fn plan(
        &self,
        findings: &[Finding],
        request: &Request,
        packs: Packs,
    ) -> Result<Vec<Planned>, Error> {
        let wounds = findings.iter().filter_map(|finding| self.wound(finding).ok());
        let wounded: HashSet<PageId> = wounds.map(|(file, page)| (file.number, page)).collect();
        let files = self.database.files.values();
        let scans: BTreeMap<u16, Scan> = files
            .map(|file| (file.number, file.scan(&wounded, self.database.checkpoint())))
            .collect();
        let against = Against { database: &self.database, scans: &scans, wounded: &wounded };
        let all = self.read_sources(request, packs, &against)?;
        let planned: Vec<_> = findings
            .iter()
            .map(|finding| self.page(finding, request, &all.sources, &scans))
            .collect();
        let advice = advice::of(&self.database, &planned, &all.sets, &all.sources);
        *self.advice.lock().unwrap_or_else(PoisonError::into_inner) = advice;
        Ok(planned)
    }

    fn warnings(&self) -> Vec<String> {
        self.advice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> Held<'_> {
        let mut locks = Vec::new();
        for file in self.database.files.values() {
            let failed = |error| Error::io("lock", &file.path, error);
            let written = Written::open(&file.path).map_err(failed)?;
            pagewarden_core::system::fs::flock(
                &written.file,
                FlockOperation::NonBlockingLockExclusive,
            )
            .map_err(|_| {
                Error::in_use(&file.path, "a program has locked it", "stop that program")
            })?;
            locks.push(written);
        }
        Ok(Box::new(locks))
    }
}

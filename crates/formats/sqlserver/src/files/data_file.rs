//! A data file (`.mdf`, `.ndf`), or the first page of a log file (`.ldf`), whose body `log_file` reads.
//!
//! The number of the file is that of its pages; the boot page of file 1 says what the database is set
//! to and whether it was shut down cleanly. What that decides:
//!
//! | | cleanly shut down | running, crashed or not known (a secondary file) |
//! |---|---|---|
//! | a page's own protection fails | damage | damage, once it stands still |
//! | an allocated page is zero, of another place, or no page | damage | suspect: it may be on its way |
//! | the file is shorter than its header says | damage | suspect if allocated pages are missing |
//! | the file is shorter than every file is | damage | damage |

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::FORMAT;
use crate::checksum::PAGE_BYTES;
use crate::files::allocation::FileAllocations;
use crate::files::log_file::{LogFile, has_log_behind_its_first_page};
use crate::files::strays::Strays;
use crate::files::structure::{Moment, Scope, Structure};
use crate::files::{evidence_of, file_name, setting_in_words};
use crate::page::SqlServerPages;
use crate::page::header::{Header, Tested, fixed_type, tested};
use crate::page::system::{BOOT_PAGE, BootPage, FileHeader, is_seen};
use pagewarden_core::database::{
    Description, OpenOptions, PageFile, Relation, Segment, Step, Target,
};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity};

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that are asked which file this is: those that every file has.
const VOTERS: u64 = 10;
/// The number of a database's log file, where it has one.
const FIRST_LOG_FILE: u16 = 2;
/// Pages that every file has, and file 1.
const PAGES_MIN: u64 = 8;
const PAGES_MIN_OF_FILE_1: u64 = 10;
/// Votes that prove it.
const VOTES_MIN: usize = 2;
/// Pages that are asked at each of several places of a file without a beginning.
const SAMPLE_PAGES: u64 = 64;
/// Of those, at least this number must name their own place and fit their own sum.
const SAMPLED_MIN: usize = 3;
const HINT: &str = "restore the file from a backup, or the database, and run DBCC CHECKDB";

/// What the first pages of a file say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The number of the file.
    pub(crate) number: u16,
    /// Its first page is all that it has of pages.
    pub(crate) is_log: bool,
}

/// Finds out which file this is; `None` where it is none of SQL Server's.
pub(crate) fn identify(file: &File, path: &Path) -> Option<Identity> {
    let mut votes: Vec<(u16, usize)> = Vec::new();
    let mut first = None;
    for number in 0..VOTERS {
        let Some(page) = read_page(file, number) else { break };
        let header = Header::parse(&page);
        let is_fixed = fixed_type(header.file, number) == Some(header.kind);
        if !is_fixed || !header.is_of(header.file, number) || header.file == 0 {
            continue;
        }
        if number == 0 {
            first = Some(header.file);
        }
        match votes.iter_mut().find(|(file, _)| *file == header.file) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => votes.push((header.file, 1)),
        }
    }
    let has_log = has_log_behind_its_first_page(file);
    let Some((number, count)) = votes.into_iter().max_by_key(|(_, count)| *count) else {
        return has_log.then_some(Identity { number: FIRST_LOG_FILE, is_log: true });
    };
    if count >= VOTES_MIN {
        return Some(Identity { number, is_log: false });
    }
    // Behind its first page a log has none. Nor has a data file that was destroyed from there on:
    // the name decides.
    let extension = path.extension().map(std::ffi::OsStr::to_ascii_lowercase);
    let is_named = |names: &[&str]| {
        extension.as_ref().is_some_and(|extension| names.iter().any(|name| extension == *name))
    };
    let is_log = has_log || is_named(&["ldf"]) || (number != 1 && !is_named(&["mdf", "ndf"]));
    (first == Some(number)).then_some(Identity { number, is_log })
}

/// Finds out which file this is by pages anywhere, where its first ones are lost.
pub(crate) fn identify_by_sample(file: &File) -> Option<Identity> {
    let pages = file.metadata().ok()?.len() / PAGE;
    let mut votes: Vec<(u16, usize)> = Vec::new();
    for part in 0..8 {
        let begin = (pages / 8).saturating_mul(part);
        for number in begin..begin.saturating_add(SAMPLE_PAGES).min(pages) {
            let Some(page) = read_page(file, number) else { break };
            let header = Header::parse(&page);
            let is_sound = header.is_of(header.file, number)
                && header.file != 0
                && tested(&page, &header) == Tested::Sound;
            match votes.iter_mut().find(|(file, _)| is_sound && *file == header.file) {
                Some((_, count)) => *count = count.saturating_add(1),
                None if is_sound => votes.push((header.file, 1)),
                None => {}
            }
        }
    }
    let (number, count) = votes.into_iter().max_by_key(|(_, count)| *count)?;
    (count >= SAMPLED_MIN).then_some(Identity { number, is_log: false })
}

/// Options of those that change single pages: each is judged for itself.
pub(crate) fn one_by_one() -> OpenOptions {
    OpenOptions { no_witness: true, ..OpenOptions::default() }
}

/// Opens a file of which this is known.
pub(crate) fn open(
    path: &Path,
    file: &File,
    identity: Identity,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let real_path = std::fs::canonicalize(path).map_err(|e| Error::io("open", path, e))?;
    let metadata = file.metadata().map_err(|source| Error::io("open", path, source))?;
    let own = open_regular(&real_path).map_err(|source| Error::io("open", path, source))?;
    let boot = (identity.number == 1 && !identity.is_log)
        .then(|| read_settled(file, BOOT_PAGE, BootPage::parse))
        .flatten();
    let header = read_settled(file, 0, FileHeader::parse);
    Ok(DataFile {
        path: path.to_owned(),
        real_path,
        name: file_name(path),
        bytes: metadata.len(),
        modified: metadata.modified().ok(),
        file: own,
        identity,
        boot,
        header,
        is_one_by_one: options.no_witness,
    }
    .into_target())
}

/// A file of which all has been looked at but the pages.
struct DataFile {
    path: PathBuf,
    real_path: PathBuf,
    name: String,
    bytes: u64,
    modified: Option<SystemTime>,
    file: File,
    identity: Identity,
    boot: Option<BootPage>,
    header: Option<FileHeader>,
    /// Pages are not compared with one another.
    is_one_by_one: bool,
}

impl DataFile {
    /// Shut down cleanly, for sure.
    fn is_clean(&self) -> bool {
        self.boot.as_ref().is_some_and(BootPage::is_at_rest)
    }

    /// What evidence from other pages proves.
    fn proves(&self) -> Severity {
        if self.is_clean() { Severity::Damage } else { Severity::Suspect }
    }

    fn into_target(self) -> Target {
        let description = self.description();
        let allocations =
            self.file.try_clone().ok().map(|file| {
                Arc::new(FileAllocations::new(file, self.identity.number, self.proves()))
            });
        let mut steps = self.notes();
        steps.extend(self.missing_pages(allocations.as_deref()));
        let strays = Arc::new(Strays::up_to(self.listed_pages()));
        let log = self.log();
        let pages = self.bytes / PAGE;
        let segment = Segment { path: self.real_path.clone(), first_page: PageNo(0), pages };
        let mut structure = None;
        steps.extend(allocations.map(|allocations| {
            let format = Arc::new(SqlServerPages {
                file: self.identity.number,
                allocations: allocations.clone(),
                writes_checksums: self
                    .boot
                    .as_ref()
                    .is_some_and(|boot| boot.setting == Protection::Checksum),
            });
            let listed_bytes = if self.identity.is_log { PAGE } else { self.bytes };
            let mut pages = PageFile {
                partial_page: if self.identity.is_log { Severity::Notice } else { self.proves() },
                selection: self.identity.is_log.then(|| Arc::from([0])),
                relation: Some(Arc::new(Relation {
                    page_size: PAGE_BYTES,
                    segments: vec![segment],
                })),
                hint: Some(HINT.into()),
                database: self.database().map(Into::into),
                witnesses: vec![strays.clone()],
                ..PageFile::of(self.name.clone(), self.real_path.clone(), listed_bytes, format)
            };
            if !self.identity.is_log && !self.is_one_by_one {
                structure = Some(Structure::watch(&mut pages, self.scope(), &allocations));
            }
            Step::File(pages)
        }));
        steps.push(Step::Barrier);
        let name = self.name.clone();
        let steps = steps
            .into_iter()
            .chain(log.into_iter().flatten())
            .chain(std::iter::once_with(move || strays.note(&name)).flatten())
            .chain(structure.into_iter().flat_map(|structure| structure.conclude()));
        let (file, bytes, modified) = (self.file, self.bytes, self.modified);
        let woken = Box::new(move || {
            file.metadata()
                .map_or(true, |now| now.len() != bytes || now.modified().ok() != modified)
        });
        Target { description, steps: Box::new(steps), woken: Some(woken) }
    }

    /// What the structure needs to know.
    fn scope(&self) -> Scope {
        let is_known = self.boot.as_ref().filter(|boot| is_seen(boot.version));
        let moment = match is_known {
            Some(boot) if boot.is_at_rest() => Moment::Rest(boot.checkpoint),
            // Nothing of it is ever flushed.
            Some(boot) if boot.is_clean => Moment::Unknown,
            Some(boot) => Moment::Before(boot.checkpoint),
            None => Moment::Unknown,
        };
        Scope {
            number: self.identity.number,
            pages: self.bytes / PAGE,
            is_short: self.listed_pages().is_none() || self.shortage().is_some(),
            proves: self.proves(),
            moment,
        }
    }

    /// What follows the first page of a log file.
    fn log(&self) -> Option<LogFile> {
        let file = self.file.try_clone().ok().filter(|_| self.identity.is_log)?;
        Some(LogFile::new(file, self.name.clone(), self.bytes, self.listed_pages()))
    }

    /// Pages that the header counts.
    fn listed_pages(&self) -> Option<u64> {
        self.header.as_ref()?.pages.map(u64::from)
    }

    fn database(&self) -> Option<&str> {
        self.boot.as_ref().and_then(|boot| boot.database.as_deref())
    }

    fn description(&self) -> Description {
        let setting = self.boot.as_ref().map(|boot| boot.setting);
        let mut state = Vec::new();
        match (&self.boot, self.identity) {
            (_, Identity { is_log: true, .. }) => state.push("a log file".to_owned()),
            (Some(boot), _) => {
                state.push(setting_in_words(boot.setting).to_owned());
                let clean = if boot.is_clean {
                    "shut down cleanly"
                } else {
                    "not shut down cleanly: running, or as after a crash"
                };
                state.push(clean.to_owned());
            }
            (None, Identity { number: 1, .. }) => {
                state.push("its boot page cannot be read".to_owned());
            }
            (None, Identity { number, .. }) => {
                state.push(format!("file {number} of its database, whose setting is in file 1"));
            }
        }
        if let Some(name) = self.database() {
            state.push(format!("database {name}"));
        }
        Description {
            part: None,
            path: self.path.clone(),
            format: FORMAT.name,
            engine: self.boot.as_ref().map_or("SQL Server".to_owned(), BootPage::engine),
            page_size: u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX),
            setting,
            state: state.join(", "),
            evidence: evidence_of(setting),
            live: self.boot.as_ref().is_some_and(|boot| !boot.is_clean),
            epoch: None,
        }
    }

    fn notes(&self) -> Vec<Step> {
        let mut texts = Vec::new();
        let begun = self.bytes.div_ceil(PAGE);
        if let Some(pages) = self.listed_pages().filter(|pages| *pages < begun)
            && !self.identity.is_log
        {
            texts.push(format!(
                "the file has {begun} pages, and its header says {pages}: it grew just now, or \
                 the bytes behind page {pages} belong to something else"
            ));
        }
        if let Some((pages, begun)) = self.shortage()
            && self.proves() != Severity::Damage
            && begun >= self.pages_min()
        {
            texts.push(format!(
                "its header says {pages} pages, and it has {begun}: cut behind the last page in \
                 use, as a backup leaves it, or not of one moment"
            ));
        }
        let note = |text| Step::Note(Note { file: self.name.clone(), text });
        texts.into_iter().map(note).collect()
    }

    /// Pages without which there is no such file.
    fn pages_min(&self) -> u64 {
        if self.identity.number == 1 { PAGES_MIN_OF_FILE_1 } else { PAGES_MIN }
    }

    /// The pages that the header counts, and those that there are, where these are fewer.
    fn shortage(&self) -> Option<(u64, u64)> {
        let pages = self.listed_pages()?;
        let begun = self.bytes.div_ceil(PAGE);
        (!self.identity.is_log && begun < pages).then_some((pages, begun))
    }

    /// A file that ends before it should.
    fn missing_pages(&self, allocations: Option<&FileAllocations>) -> Option<Step> {
        let begun = self.bytes.div_ceil(PAGE);
        let in_use = allocations
            .filter(|_| !self.identity.is_log)
            .and_then(|allocations| allocations.interval(begun))
            .map_or(0, |interval| interval.allocated_from(begun));
        let is_stump = !self.identity.is_log && begun < self.pages_min();
        let severity = if is_stump { Severity::Damage } else { self.proves() };
        let detail = match self.shortage() {
            _ if is_stump => format!(
                "the file ends with {begun} of the {} pages that every such file begins with",
                self.pages_min()
            ),
            _ if in_use > 0 => format!(
                "the file ends with {begun} pages, and its page free space says that {in_use} pages \
                 behind that end are allocated"
            ),
            Some((pages, begun)) if severity == Severity::Damage => {
                format!("the file's header says {pages} pages, and the file ends with {begun}")
            }
            _ => return None,
        };
        let finding = Finding::of_file(&self.name, severity, Kind::Truncated, detail)
            .at(Some(PageNo(begun)), begun.checked_mul(PAGE).map(ByteOffset))
            .about(self.database(), None)
            .with_hint(HINT);
        Some(Step::Finding(finding))
    }
}

/// Reads a page; `None` if it cannot be read, or the file ends before it does.
pub(crate) fn read_page(file: &File, number: u64) -> Option<[u8; PAGE_BYTES]> {
    let mut page = [0; PAGE_BYTES];
    let read = read_fully(file, &mut page, number.checked_mul(PAGE)?).ok()?;
    (read == PAGE_BYTES).then_some(page)
}

/// Reads a page that a server may be writing just now.
fn read_settled<T>(
    file: &File,
    number: u64,
    parse: impl Fn(&[u8; PAGE_BYTES]) -> Option<T>,
) -> Option<T> {
    const TRIES: u32 = 3;
    (0..TRIES).find_map(|_| parse(&read_page(file, number)?))
}

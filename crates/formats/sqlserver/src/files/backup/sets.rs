//! What is said of a backup set once all of it came: what it is, what of it is missing, and whether
//! its log is all there.

use std::fmt::Write as _;

use crate::checksum::is_zero;
use crate::files::backup::chains::SetHeader;
use crate::files::backup::extents::{Placed, SetClose};
use crate::files::backup::family::SetBegin;
use crate::files::backup::place::{Address, EXTENT_PAGES};
use crate::files::backup::{Backup, PAGE_BYTES};
use crate::mtf::details::{self, Configuration, Date};
use crate::page::header::Lsn;
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::counted;

const HINT: &str = "make another backup while the database is there";

/// What kind of backup a set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// All of a database.
    Full,
    /// What changed since a full backup.
    Differential,
    /// Log alone.
    Log,
    /// Something else that is a part of a database.
    Partial,
}

impl SetKind {
    pub(super) fn of(begin: &SetBegin, configuration: &Configuration) -> Self {
        let mut data_files = configuration.files.iter().filter(|file| !file.is_log);
        match begin {
            SetBegin { is_differential: true, .. } => Self::Differential,
            SetBegin { is_partial: true, .. } => Self::Partial,
            _ if data_files.all(|file| file.pages == 0) => Self::Log,
            _ => Self::Full,
        }
    }

    /// The word before "backup", with a blank behind it.
    #[must_use]
    pub fn adjective(self) -> &'static str {
        match self {
            Self::Full => "full ",
            Self::Differential => "differential ",
            Self::Log => "log ",
            Self::Partial => "partial ",
        }
    }
}

/// One of the sets in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetWords {
    /// Counted from 1 on.
    pub set: u32,
    /// What kind of backup it is.
    pub kind: SetKind,
    /// Of which database.
    pub database: String,
    /// When it began.
    pub begun: Option<Date>,
}

impl SetWords {
    /// `full backup of database pubs, begun 2019-10-22 09:00:01`
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}backup of database {}", self.kind.adjective(), self.database);
        if let Some(begun) = self.begun {
            let _ = write!(text, ", begun {begun}");
        }
        text
    }
}

impl Backup {
    /// A set is over: what is missing, and what is to be said of all its pages.
    pub(super) fn end_set(&mut self, close: &SetClose) {
        self.hand_on();
        self.say_missing_pages(close);
        self.say_contradiction(close);
        self.say_unlisted(close);
        self.say_other_database(close);
        self.say_log(close);
        self.say_set(close);
        self.hand_header_on(close);
        let files = std::mem::take(&mut self.files);
        let name = self.first_name();
        let strays = files.into_values().map(|file| (name.clone(), file.strays));
        self.after_barrier = Some(strays.collect());
        self.ready.push_back(Step::Barrier);
    }

    fn first_name(&self) -> String {
        self.extents.families.first().map_or_else(String::new, |family| family.name.clone())
    }

    /// All of the set was there to be read.
    fn is_whole(&self) -> bool {
        self.extents.is_complete() && !self.extents.families.iter().any(|family| family.is_broken)
    }

    fn say(&mut self, severity: Severity, kind: Kind, detail: String) {
        let mut finding =
            Finding::of_file(&self.first_name(), severity, kind, detail).with_hint(HINT);
        finding.database = self.configuration.as_ref().map(|of| of.database.clone());
        self.ready.push_back(Step::Finding(finding));
    }

    fn say_missing_pages(&mut self, close: &SetClose) {
        if !self.is_whole() {
            return;
        }
        let Some(configuration) = &self.configuration else { return };
        let mut details = Vec::new();
        for file in configuration.files.iter().filter(|file| !file.is_log) {
            let seen = u16::try_from(file.id).ok().and_then(|id| self.files.get(&id));
            let pages = |extents: u64| extents.saturating_mul(EXTENT_PAGES);
            let came = seen.map_or(0, |seen| pages(seen.extents));
            let promised = u64::from(file.pages);
            if came < promised {
                let text = format!("{promised} pages of file {} follow, and {came} came", file.id);
                details.push((Severity::Damage, text));
            }
            // At its end the set counts what comes again, or says the same once more.
            let ends = close.configuration.iter().flat_map(|end| &end.files);
            let counted = ends.filter(|end| end.id == file.id).map(|end| u64::from(end.pages));
            let again = seen.map_or(0, |seen| pages(seen.again));
            for counted in counted.filter(|count| again < *count) {
                let text = format!(
                    "{counted} pages of file {} come a second time, and {again} came",
                    file.id
                );
                match (again, counted == promised) {
                    (0, true) => {}
                    (0, false) => details.push((Severity::Suspect, text)),
                    _ => details.push((Severity::Damage, text)),
                }
            }
        }
        for (severity, text) in details {
            self.say(severity, Kind::Missing, format!("the backup says that {text}"));
        }
    }

    /// An extent of a differential backup in which nothing is, and no neighbour says where it belongs.
    pub(super) fn say_nowhere(&mut self, placed: &Placed) {
        let pages = placed.bytes.as_chunks::<PAGE_BYTES>().0;
        let is_read = placed.extent.holes.is_empty() && self.is_whole();
        if !self.is_partial || placed.is_certain || !is_read || !pages.iter().all(is_zero) {
            return;
        }
        self.hand_on();
        let name = self.extents.families.get(placed.family).map_or("", |one| one.name.as_str());
        let detail =
            "an extent that is all zero, in a backup of extents that changed: the backup does \
                      not show which one it is"
                .to_owned();
        let mut finding =
            Finding::of_file(name, Severity::Suspect, Kind::Zeroed, detail).with_hint(HINT);
        finding.place.offset = Some(ByteOffset(placed.extent.offset));
        finding.database = self.configuration.as_ref().map(|of| of.database.clone());
        self.ready.push_back(Step::Finding(finding));
    }

    /// What the set says of itself, it says twice.
    fn say_contradiction(&mut self, close: &SetClose) {
        let (Some(begin), Some(end)) = (&self.configuration, &close.configuration) else { return };
        if let Some(what) = begin.contradiction(end) {
            let detail = format!(
                "what backup set {} says of itself at its beginning and at its end differs: {what}",
                self.sets
            );
            self.say(Severity::Suspect, Kind::Header, detail);
        }
    }

    /// The bits of the DIFF map are set when an extent changes and cleared by a full backup, so that every
    /// extent of the backup has its bit in the map that came along.
    fn say_unlisted(&mut self, close: &SetClose) {
        let Some(Address { file, extent }) = close.unlisted else { return };
        let first = extent.saturating_mul(EXTENT_PAGES);
        let last = first.saturating_add(EXTENT_PAGES - 1);
        let detail = format!(
            "the extent of the pages {file}:{first} to {file}:{last} is in this differential backup, \
             whose own map of what changed (DIFF map) does not name it: it is of another backup, or \
             the map is wrong"
        );
        self.say(Severity::Suspect, Kind::Misplaced, detail);
    }

    /// A backup begins with a checkpoint, which the boot page names: the one of the set, or a later one
    /// that came before its end. So it is in all 27 boot pages of 23 sets, 2008 R2 to 2022.
    fn say_other_database(&mut self, close: &SetClose) {
        let (Some(boot), Some(begin)) = (&self.boot, &self.configuration) else { return };
        let lsn = |of: details::Lsn| Lsn { log_file: of.file, block: of.block, slot: of.slot };
        let (first, last) =
            (begin.checkpoint_lsn, close.configuration.as_ref().map(|end| end.last_lsn));
        let is_within =
            lsn(first) <= boot.checkpoint && last.is_none_or(|last| boot.checkpoint <= lsn(last));
        let what = if boot.version != begin.database_version {
            format!("version {}, and the set says {}", boot.version, begin.database_version)
        } else if !is_within {
            let Lsn { log_file, block, slot } = boot.checkpoint;
            let last = last.map_or_else(String::new, |last| format!(" to {last}"));
            format!("the checkpoint {log_file}:{block}:{slot}, and the set is of {first}{last}")
        } else {
            return;
        };
        let detail = format!(
            "the boot page in the data of backup set {} says {what}: the data is of another backup",
            self.sets
        );
        self.say(Severity::Suspect, Kind::Header, detail);
    }

    fn say_log(&mut self, close: &SetClose) {
        let mut is_damaged = false;
        let mut steps = Vec::new();
        for (fault, severity, kind, detail) in close.log.faults(self.extents.families.len() > 1) {
            is_damaged |= severity == Severity::Damage;
            let family = self.extents.families.get(fault.family);
            let name = family.map_or("", |family| family.name.as_str());
            let mut finding = Finding::of_file(name, severity, kind, detail).with_hint(HINT);
            finding.place.offset = Some(ByteOffset(fault.offset));
            finding.database = self.configuration.as_ref().map(|of| of.database.clone());
            steps.push(Step::Finding(finding));
        }
        self.ready.extend(steps);
        if is_damaged || !self.is_whole() || close.families < self.extents.families.len() {
            return;
        }
        let file = format!("{}, log of backup set {}", self.first_name(), self.sets);
        let Some(configuration) = &close.configuration else {
            let error = "the end of the set does not say which log must be in it";
            return self.ready.push_back(Step::Unread(Unread::of_file(file, error)));
        };
        let (first, last) = (configuration.first_lsn, configuration.last_lsn);
        let Some(end) = close.log.ends_before(first, last) else { return };
        if close.log.is_absent() {
            let detail = format!(
                "the log from {first} to {last} is not in the backup, which cannot be restored \
                 without"
            );
            return self.say(Severity::Damage, Kind::Missing, detail);
        }
        let error = format!(
            "the log could be followed from {first} to {end} only, and must go to {last}: it was \
             overwritten, or is in a form that is not known"
        );
        self.ready.push_back(Step::Unread(Unread::of_file(file, error)));
    }

    /// For the chains of a folder.
    fn hand_header_on(&self, close: &SetClose) {
        let Some(headers) = &self.headers else { return };
        let Some(begin) = &self.configuration else { return };
        headers.add(SetHeader {
            id: self.begin.id,
            number: self.sets,
            name: self.begin.name.clone(),
            kind: SetKind::of(&self.begin, begin),
            configuration: close.configuration.clone().unwrap_or_else(|| begin.clone()),
            data_pages: begin.files.iter().map(|file| (file.id, file.pages)).collect(),
            is_whole: self.is_whole() && close.configuration.is_some(),
        });
    }

    /// What this set is.
    fn say_set(&mut self, close: &SetClose) {
        let Some(begin) = &self.configuration else { return };
        let end = close.configuration.as_ref().unwrap_or(begin);
        let words = SetWords {
            set: self.sets,
            kind: SetKind::of(&self.begin, begin),
            database: begin.database.clone(),
            begun: begin.begun.or(self.begin.date),
        };
        let mut text = format!("backup set {}: {}", self.sets, words.text());
        if let Some(ended) = end.ended {
            let _ = write!(text, ", ended {ended}");
        }
        if !self.begin.name.is_empty() {
            let _ = write!(text, ", called '{}'", self.begin.name);
        }
        if words.kind == SetKind::Differential {
            let pages = begin.files.iter().filter(|file| !file.is_log);
            let pages = pages.fold(0, |sum: u64, file| sum.saturating_add(u64::from(file.pages)));
            let _ = write!(
                text,
                "; it holds {} of extents that changed since the full backup of checkpoint {}, \
                 proves only those, and cannot be restored without that backup",
                counted(pages, "page"),
                begin.previous_full_lsn
            );
        }
        let _ = write!(text, "; log {} to {}: ", end.first_lsn, end.last_lsn);
        text.push_str(&match close.log.blocks() {
            (0, _) => "none of it was tested".to_owned(),
            (blocks, 0) => format!("{} with their sums", counted(blocks, "block")),
            (blocks, unsummed) if blocks == unsummed => {
                format!("{} without sums", counted(blocks, "block"))
            }
            (blocks, unsummed) => {
                format!("{}, {unsummed} of them without sums", counted(blocks, "block"))
            }
        });
        if let Some(taker) = &self.taker {
            let mut sets = taker.sets.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            sets.push(words);
        }
        let file = self.first_name();
        self.ready.push_back(Step::Note(Note { file, text }));
    }
}

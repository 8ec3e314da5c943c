//! The log that a backup repository keeps: which of its segments are here and sound, and to which
//! moment they bring each set.
//!
//! [`store`] is what a tool gives, [`folder`] the plainest of them, [`joined`] several; [`read`] reads every segment once, record by record, each with its
//! sum and its link to the one before; [`history`] says which timeline left which; [`reach`] puts that
//! together for the sets; [`mod@moments`] says it in words. Segments are read in the order of timelines, so
//! memory does not grow with the archive.
//!
//! | what is wrong | a set needs it to become consistent | else |
//! | --- | --- | --- |
//! | a segment is not here, between two that are | damage | suspect; a notice where nothing needs it, or where the tool removed it: from behind a set to before the next |
//! | a stored file is not what was stored | damage | suspect, likewise |
//! | a record is not sound, and others follow | damage | suspect, likewise |
//! | the last segment of a timeline ends inside | damage | a notice: a timeline ends where the next one began |
//! | a stored file cannot be looked at | unread | unread |

mod fetched;
mod folder;
mod history;
mod joined;
mod moments;
pub(in crate::files) mod outline;
mod reach;
mod read;
mod store;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use self::fetched::Fetches;
pub(in crate::files) use self::folder::{
    LogFolder, begins_as_log, decoded, no_segment, plain_file,
};
pub(in crate::files) use self::joined::{JoinedLog, TakenOut};
use self::moments::{moments, text_of, text_of_next, to_seconds};
use self::reach::{Need, last_commit, reaches, stretch_of};
use self::read::{Break, Reading, Stretch};
use self::store::Shelf;
pub(crate) use self::store::{LogArchive, NoSegment, StoredSegment};
use crate::FORMAT;
use crate::files::control::Control;
use crate::files::wal::block::Dialect;
use crate::files::wal::segment::{
    Identity, LONG_HEADER_BYTES, LooseSegments, PageHeader, SegmentName,
};
use pagewarden_core::database::repository::{
    Backup, Log, LogGap, Lsn, Outcomes, RepositoryPart, Restorable,
};
use pagewarden_core::database::{Description, Evidence, Settled, Step, Target};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{
    ByteOffset, Finding, Kind, Note, Protection, Severity, StoredPlace, Unread,
};

/// At most this number of segments is asked what log this is.
const ASKED: usize = 16;
/// A segment has 1 MiB to 1 GiB, and pages of 1 to 64 KiB.
const SEGMENT_BYTES: std::ops::RangeInclusive<u32> = 1 << 20..=1 << 30;
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 16;
const FINDINGS_MAX: usize = 1000;
const HINT: &str = "look for it in another copy of the archive, or in the server's own pg_wal; take a \
                    new backup: what lies behind it cannot be brought back from older ones";

/// The logs of a repository.
pub(in crate::files) struct ArchivedLogs {
    /// What the report calls the repository.
    pub(in crate::files) path: PathBuf,
    /// What it is, for people.
    pub(in crate::files) what: String,
    /// One for each cluster.
    pub(in crate::files) logs: Vec<ArchivedLog>,
    /// What came of the sets: one that is damaged brings nothing back.
    pub(in crate::files) outcomes: Outcomes,
}

/// The log of a cluster and the sets that need it.
pub(in crate::files) struct ArchivedLog {
    /// What the tool calls the cluster; said only where there are several.
    pub(in crate::files) name: String,
    /// What the tool keeps.
    pub(in crate::files) archive: Arc<dyn LogArchive>,
    /// All sets, oldest first; those without a begin and an end in the log need none.
    pub(in crate::files) sets: Vec<Arc<Backup>>,
    /// The labels of the sets that are judged; `None`: all of them.
    pub(in crate::files) asked: Option<Vec<String>>,
    /// The tool calls a set done only when its log has been archived.
    pub(in crate::files) waits_for_log: bool,
}

impl ArchivedLogs {
    /// The repository as a target of its own.
    pub(in crate::files) fn into_target(self) -> Target {
        let steps = Steps {
            path: self.path,
            what: self.what,
            outcomes: self.outcomes,
            names: self.logs.len() > 1,
            waiting: self.logs.into(),
            ready: VecDeque::new(),
            reading: None,
            read: Log::default(),
            states: Vec::new(),
            is_done: false,
        };
        let description = steps.description("read from here on".to_owned(), None);
        Target { description, steps: Box::new(steps), woken: None }
    }
}

impl ArchivedLog {
    fn is_asked(&self, label: &str) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.iter().any(|one| one == label))
    }

    /// What sets need whose end the tool knows, or by the log that was read.
    fn needs(&self, ends: &BTreeMap<u64, u64>) -> Vec<Need> {
        self.sets.iter().filter_map(|set| need_of(set, ends)).collect()
    }
}

/// What a set needs whose end the tool knows, or by the log that was read.
fn need_of(set: &Backup, ends: &BTreeMap<u64, u64>) -> Option<Need> {
    let from = set.from_lsn?.0;
    let to = set.to_lsn.map(|lsn| lsn.0).or_else(|| ends.get(&from).copied())?;
    Some(Need { label: set.label.clone(), timeline: set.timeline?, from, to })
}

/// A log that is being read.
struct Open {
    log: ArchivedLog,
    reading: Reading,
    identity: Identity,
    shelf: Arc<Shelf>,
    fetches: Fetches,
}

struct Steps {
    path: PathBuf,
    what: String,
    outcomes: Outcomes,
    /// The name of each cluster is said.
    names: bool,
    waiting: VecDeque<ArchivedLog>,
    ready: VecDeque<Step>,
    reading: Option<Open>,
    /// What is known of the logs that were read.
    read: Log,
    states: Vec<String>,
    is_done: bool,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if let Some(mut open) = self.reading.take() {
                if let Some(fetch) = open.fetches.next(&open.shelf) {
                    self.reading = Some(open);
                    return Some(fetch);
                }
                if open.reading.advance() {
                    // The others were paid for when they were fetched.
                    let bytes = u64::from(open.identity.segment_bytes);
                    let bytes = open.shelf.take_opened().saturating_mul(bytes);
                    self.ready.push_back(Step::Passed(bytes));
                    self.reading = Some(open);
                } else {
                    self.judge(&open.log, &open.reading, open.identity, &open.shelf);
                }
            } else if let Some(log) = self.waiting.pop_front() {
                self.begin(log);
            } else if self.is_done {
                return None;
            } else {
                self.is_done = true;
                self.settle();
            }
        }
    }
}

impl Steps {
    fn description(&self, state: String, log: Option<Arc<Log>>) -> Description {
        Description {
            path: self.path.clone(),
            format: FORMAT.name,
            engine: self.what.clone(),
            page_size: 0,
            setting: Some(Protection::Checksum),
            state,
            evidence: Evidence {
                tested_by: "the sum of every record of the log, and its link to the one before",
                unseen: "what a server never archived",
            },
            live: false,
            epoch: None,
            part: Some(RepositoryPart::Whole(log)),
        }
    }

    /// Says how far all sets can be brought.
    fn settle(&mut self) {
        let log = Arc::new(std::mem::take(&mut self.read));
        let description = self.description(self.states.join("; "), Some(log));
        let judge = Box::new(|_: &mut Finding, _: &_| ());
        self.ready.push_back(Step::Settled(Box::new(Settled {
            description,
            has_sums: true,
            judge,
        })));
    }

    fn judge(&mut self, log: &ArchivedLog, reading: &Reading, identity: Identity, shelf: &Shelf) {
        let judgement = Judgement::new(log, reading, identity, shelf);
        let (one, mut state) = judgement.tell(&mut self.ready, &self.outcomes);
        self.read.segments = self.read.segments.saturating_add(one.segments);
        self.read.gaps.extend(one.gaps);
        self.read.restorable.extend(one.restorable);
        if self.names {
            state = format!("{}: {state}", log.name);
        }
        self.states.push(state);
    }

    fn begin(&mut self, log: ArchivedLog) {
        if log.archive.segments().is_empty() {
            let needs = log.needs(&BTreeMap::new());
            let asked = needs.iter().filter(|need| log.is_asked(&need.label));
            self.ready.extend(asked.map(|need| without_any(need, log.waits_for_log)));
            return;
        }
        match self.identity(&log) {
            Ok(identity) => {
                let archive = Arc::clone(&log.archive);
                let shelf = Arc::new(Shelf::new(archive, identity.segment_bytes));
                let marks = log.sets.iter().filter_map(|set| Some(set.to_lsn?.0)).collect();
                let reading = Reading::new(Arc::clone(&shelf), identity, marks);
                let fetches = Fetches::of(&shelf, identity.segment_bytes);
                self.reading = Some(Open { log, reading, identity, shelf, fetches });
            }
            Err(steps) => self.ready.extend(steps),
        }
    }

    /// Which log this is, by the first segment that says so.
    fn identity(&self, log: &ArchivedLog) -> Result<Identity, Vec<Step>> {
        let expected = log.sets.iter().find_map(|set| set.system_identifier);
        let (mut steps, mut unread) = (Vec::new(), Vec::new());
        for segment in log.archive.segments().iter().take(ASKED) {
            let refused = |kind, offset: Option<u64>, words: String| {
                let stored_offset = offset.map(ByteOffset);
                let origin =
                    StoredPlace { stored_file: segment.stored_file.clone(), stored_offset };
                let finding = Finding::of_file(&segment.name, Severity::Suspect, kind, words);
                Step::Finding(finding.stored_at(origin).with_hint(HINT))
            };
            let file = match log.archive.open(segment) {
                Ok(file) => file,
                Err(NoSegment::Unread(error)) => {
                    unread.push(Unread::of_file(&segment.stored_file, error));
                    continue;
                }
                Err(NoSegment::Damaged(kind, offset, words)) => {
                    steps.push(refused(kind, offset, words));
                    continue;
                }
            };
            let mut bytes = [0_u8; LONG_HEADER_BYTES];
            let header =
                read_fully(&file, &mut bytes, 0).ok().and_then(|_| PageHeader::read(&bytes));
            let known = header.as_ref().and_then(|header| header.identity).filter(|identity| {
                identity.segment_bytes.is_power_of_two()
                    && SEGMENT_BYTES.contains(&identity.segment_bytes)
                    && identity.page_bytes.is_power_of_two()
                    && PAGE_BYTES.contains(&identity.page_bytes)
                    && expected.is_none_or(|expected| expected == identity.system_identifier)
            });
            match (known, header) {
                (Some(_), Some(header)) if Dialect::of_magic(header.magic).is_none() => {
                    let magic = header.magic;
                    let error = format!("the format of the log, 0x{magic:04X}, is not known");
                    unread.push(Unread::of_file(&segment.stored_file, error));
                }
                (Some(identity), _) => return Ok(identity),
                // Nothing of it has come yet.
                (None, _) if segment.is_partial => {}
                (None, _) => {
                    let words = "its first page is none of a log of this cluster".to_owned();
                    steps.push(refused(Kind::Header, None, words));
                }
            }
        }
        let error = "no segment of the log says what log it is: it was not read (--no-log leaves it \
                     out)";
        let path = self.path.display().to_string();
        steps.extend(grouped(unread).into_iter().map(Step::Unread));
        steps.push(Step::Unread(Unread::of_file(path, error)));
        Err(steps)
    }
}

/// What a set is where no segment is here.
fn without_any(need: &Need, waits_for_log: bool) -> Step {
    let file = format!("the log of {}", need.label);
    let (from, to) = (Lsn(need.from), Lsn(need.to));
    let words = format!(
        "no segment of it is here: set {} cannot be made consistent without that from LSN {from} to {to}",
        need.label
    );
    match waits_for_log {
        true => {
            let finding = Finding::of_file(&file, Severity::Damage, Kind::Missing, words);
            Step::Finding(finding.with_hint(HINT))
        }
        false => {
            let error = format!("{words} (--no-log leaves it out)");
            Step::Unread(Unread::of_file(file, error))
        }
    }
}

/// The segments of an archive by their names, for a reader of the log of this cluster.
pub(in crate::files) fn segments_of(
    archive: &Arc<dyn LogArchive>,
    control: &Control,
) -> Arc<dyn LooseSegments> {
    Arc::new(Shelf::new(Arc::clone(archive), control.wal_segment_bytes))
}

/// The log in a folder that `archive_command` or `pg_receivewal` fills.
///
/// # Errors
/// The folder cannot be listed.
pub(crate) fn in_folder(folder: &StorePath) -> io::Result<Arc<dyn LogArchive>> {
    Ok(Arc::new(LogFolder::list_received(folder)?))
}

/// Several logs as one, for a reader of the log of this cluster; an earlier one is asked before a later
/// one. `None`: there are none.
pub(crate) fn segments_of_all(
    archives: &[Arc<dyn LogArchive>],
    control: &Control,
) -> Option<Arc<dyn LooseSegments>> {
    let (first, rest) = archives.split_first()?;
    let mut joined = JoinedLog::of(Arc::clone(first));
    for archive in rest {
        joined.add(Arc::clone(archive), |_| true);
    }
    let joined: Arc<dyn LogArchive> = Arc::new(joined);
    Some(segments_of(&joined, control))
}

/// Joins files that were not read for the same reason, to be reported together.
fn grouped(unread: Vec<Unread>) -> Vec<Unread> {
    let mut groups: Vec<(Unread, u64)> = Vec::new();
    for one in unread {
        match groups.last_mut().filter(|(first, _)| first.error == one.error) {
            Some((_, more)) => *more = more.saturating_add(1),
            None => groups.push((one, 0)),
        }
    }
    let told = groups.into_iter().map(|(first, more)| match more {
        0 => first,
        _ => {
            let error = format!("{}; and {more} more files of the log likewise", first.error);
            Unread::of_file(first.file, error)
        }
    });
    told.collect()
}

/// A stretch of addresses of one timeline in which something is wrong.
struct Fault {
    timeline: u32,
    begin: u64,
    end: u64,
    /// The first segment that it is about.
    first: SegmentName,
    kind: Kind,
    origin: Option<StoredPlace>,
    is_last: bool,
    words: String,
}

/// What is made of the log when all of it was read.
struct Judgement<'a> {
    log: &'a ArchivedLog,
    needs: Vec<Need>,
    stretches: &'a [Stretch],
    shelf: &'a Shelf,
    identity: Identity,
    faults: Vec<Fault>,
    gaps: Vec<LogGap>,
    unread: Vec<Unread>,
}

impl<'a> Judgement<'a> {
    fn new(
        log: &'a ArchivedLog,
        reading: &'a Reading,
        identity: Identity,
        shelf: &'a Shelf,
    ) -> Self {
        let mut judgement = Self {
            log,
            needs: log.needs(&reading.backup_ends),
            stretches: &reading.stretches,
            shelf,
            identity,
            faults: Vec::new(),
            gaps: Vec::new(),
            unread: Vec::new(),
        };
        judgement.find_gaps();
        judgement.find_failures();
        reading.breaks.iter().for_each(|broken| judgement.add_break(broken));
        judgement
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.identity.segment_bytes.max(1))
    }

    fn name(&self, segment: SegmentName) -> String {
        segment.file_name(self.identity.segment_bytes)
    }

    /// Segments that are missing between others of their timeline, or at its beginning: a server that
    /// begins a timeline copies the segment in which it left the other.
    fn find_gaps(&mut self) {
        let bytes = self.segment_bytes();
        let names: Vec<SegmentName> = self.shelf.segments().keys().copied().collect();
        let mut before: Option<SegmentName> = None;
        for after in names {
            let last = before.replace(after).filter(|before| before.timeline == after.timeline);
            let begin = match last {
                Some(last) => Some(last.begin.saturating_add(bytes)),
                None => self.begin_of(after.timeline),
            };
            if let Some(begin) = begin.filter(|begin| *begin < after.begin) {
                self.add_gap(begin, after);
            }
        }
    }

    /// Where a timeline begins, if the log leads there: else what was before a set was removed.
    fn begin_of(&self, timeline: u32) -> Option<u64> {
        let bytes = self.segment_bytes();
        let parent = self.shelf.histories().ancestors_of(timeline).last()?;
        let begin = parent.left_at - parent.left_at % bytes;
        let before = SegmentName { timeline, begin: begin.checked_sub(bytes)? };
        self.shelf.find(before).map(|_| begin)
    }

    /// From `begin` to before `after` there is nothing.
    fn add_gap(&mut self, begin: u64, after: SegmentName) {
        let (timeline, bytes) = (after.timeline, self.segment_bytes());
        let first = SegmentName { timeline, begin };
        let last = SegmentName { timeline, begin: after.begin.saturating_sub(bytes) };
        let words = match (after.begin - begin) / bytes {
            1 => format!("this segment of the log is not here, and {} is", self.name(after)),
            count => format!(
                "{count} segments of the log, up to {}, are not here, and the one behind them is",
                self.name(last)
            ),
        };
        self.gaps.push(LogGap { timeline, first: self.name(first), last: self.name(last) });
        self.faults.push(Fault {
            timeline,
            begin,
            end: after.begin,
            first,
            kind: Kind::Missing,
            origin: None,
            is_last: false,
            words,
        });
    }

    /// Histories that say nothing. A server that follows the newest timeline reads the newest of them.
    fn history_steps(&self) -> Vec<Step> {
        let steps = self.log.archive.histories().into_iter().filter_map(|(timeline, text)| {
            let name = format!("{timeline:08X}.history");
            match text {
                Err(error) => Some(Step::Unread(Unread::of_file(name, error))),
                Ok(_) if !self.shelf.histories().ancestors_of(timeline).is_empty() => None,
                Ok(_) => {
                    let words =
                        "it names no timeline that this one left: a server cannot follow it";
                    let finding =
                        Finding::of_file(&name, Severity::Suspect, Kind::Header, words.to_owned());
                    Some(Step::Finding(finding.with_hint(HINT)))
                }
            }
        });
        steps.collect()
    }

    /// Segments that are stored and have no bytes.
    fn find_failures(&mut self) {
        for (name, why) in self.shelf.failures() {
            let Some(stored) = self.shelf.segments().get(&name) else { continue };
            let stored_file = stored.stored_file.clone();
            match why {
                NoSegment::Unread(error) => self.unread.push(Unread::of_file(stored_file, error)),
                NoSegment::Damaged(kind, offset, words) => self.faults.push(Fault {
                    timeline: name.timeline,
                    begin: name.begin,
                    end: name.begin.saturating_add(self.segment_bytes()),
                    first: name,
                    kind,
                    origin: Some(StoredPlace {
                        stored_file,
                        stored_offset: offset.map(ByteOffset),
                    }),
                    is_last: false,
                    words,
                }),
            }
        }
    }

    fn add_break(&mut self, broken: &Break) {
        let (name, stored) = match self.shelf.find(broken.segment) {
            // What has not come yet.
            Some((_, stored)) if stored.is_partial && broken.is_last => return,
            Some((name, stored)) => (*name, Some(stored.stored_file.clone())),
            None => (broken.segment, None),
        };
        let origin = stored.map(|stored_file| StoredPlace { stored_file, stored_offset: None });
        self.faults.push(Fault {
            timeline: broken.segment.timeline,
            begin: broken.at,
            end: broken.until,
            first: name,
            kind: Kind::Checksum,
            origin,
            is_last: broken.is_last,
            words: format!("at LSN {}: {}", Lsn(broken.at), broken.words),
        });
    }

    /// The labels of the sets that cannot be made consistent with this in their way.
    fn needed_by(&self, fault: &Fault) -> Vec<&str> {
        let needs = self.needs.iter().filter(|need| {
            let path = if need.timeline == fault.timeline {
                true
            } else {
                self.shelf.histories().timeline_at(need.timeline, fault.begin)
                    == Some(fault.timeline)
            };
            let is_asked = self.log.is_asked(&need.label);
            path && is_asked && need.from < fault.end && fault.begin < need.to
        });
        needs.map(|need| need.label.as_str()).collect()
    }

    /// True if no set could use it, or the tool removed what only leads from one set to the next.
    fn is_of_no_use(&self, fault: &Fault) -> bool {
        let bytes = self.segment_bytes();
        let segment_of = |address: u64| address / bytes;
        let is_before_all = self.needs.iter().all(|need| fault.end <= need.from);
        let begins_behind_a_set = self.needs.iter().any(|need| {
            // The segment that a set ends in, and the one that it begins, are kept.
            let last = segment_of(need.to.saturating_sub(1));
            let begin = segment_of(fault.begin);
            need.to <= fault.begin && (last..=last.saturating_add(1)).contains(&begin)
        });
        let ends_before_a_set =
            self.needs.iter().any(|need| segment_of(need.from) == segment_of(fault.end));
        let was_removed = fault.kind == Kind::Missing && begins_behind_a_set && ends_before_a_set;
        is_before_all || was_removed
    }

    fn finding(&self, fault: &Fault) -> Finding {
        let needed_by = self.needed_by(fault);
        let severity = match () {
            () if !needed_by.is_empty() => Severity::Damage,
            () if fault.is_last || self.is_of_no_use(fault) => Severity::Notice,
            () => Severity::Suspect,
        };
        let mut words = fault.words.clone();
        if !needed_by.is_empty() {
            words.push_str(&format!(
                "; without it {} cannot be made consistent",
                needed_by.join(", ")
            ));
        } else if severity == Severity::Suspect {
            words.push_str("; nothing behind it can be brought back from the sets before it");
        }
        let finding = Finding::of_file(&self.name(fault.first), severity, fault.kind, words);
        let finding = match &fault.origin {
            Some(origin) => finding.stored_at(origin.clone()),
            None => finding,
        };
        finding.with_hint(HINT)
    }

    /// A set that no stretch makes consistent, although nothing was found in its way.
    fn without_log(&self, need: &Need) -> Option<Step> {
        let is_told = self
            .faults
            .iter()
            .any(|fault| self.needed_by(fault).iter().any(|label| *label == need.label));
        if is_told || stretch_of(need, self.stretches).is_some() || !self.unread.is_empty() {
            return None;
        }
        let begin = need.from - need.from % self.segment_bytes();
        let first = self.name(SegmentName { timeline: need.timeline, begin });
        // Only what has yet to come can be on its way.
        let mut later = self.shelf.segments().keys();
        let is_newest = !later.any(|name| name.timeline >= need.timeline && name.begin >= need.to);
        let severity = match self.log.waits_for_log || !is_newest {
            true => Severity::Damage,
            false => Severity::Suspect,
        };
        let words = format!(
            "the log of set {}, from LSN {} to {} in timeline {}, is not here: the set cannot be made \
             consistent",
            need.label,
            Lsn(need.from),
            Lsn(need.to),
            need.timeline
        );
        let mut names = self.shelf.segments().keys();
        let has_begun = names.any(|name| name.timeline == need.timeline && name.begin < need.to);
        if !self.log.waits_for_log && !has_begun {
            // It may be kept elsewhere: what is kept here begins later.
            return Some(Step::Unread(Unread::of_file(first, words)));
        }
        let finding = Finding::of_file(&first, severity, Kind::Missing, words);
        Some(Step::Finding(finding.with_hint(HINT)))
    }

    /// Sets that were begun, and of which neither their books nor the log tell where they end.
    fn sets_without_end(&self) -> Vec<Step> {
        let begun = self.log.sets.iter().filter(|set| self.log.is_asked(&set.label));
        let begun = begun.filter_map(|set| Some((&set.label, set.from_lsn?)));
        let unknown =
            begun.filter(|(label, _)| self.needs.iter().all(|need| need.label != **label));
        let steps = unknown.map(|(label, from)| {
            let error = format!(
                "neither a manifest nor the log that is here tells where set {label} ends, which \
                 begins at LSN {from}: how far it can be brought is not known"
            );
            Step::Unread(Unread::of_file(label, error))
        });
        steps.collect()
    }

    /// A server asks for whole segments only.
    fn partial_notes(&self) -> Vec<Step> {
        let partial = self.shelf.segments().values().filter(|stored| stored.is_partial);
        let notes = partial.map(|stored| {
            let text = format!(
                "this segment is still being received: its records count, but a server finds it only \
                 under the name {}, decompressed and filled up with zeroes to its whole length",
                stored.name
            );
            Step::Note(Note { file: stored.stored_file.clone(), text })
        });
        notes.collect()
    }

    fn restorable(&self) -> Vec<Restorable> {
        let mut all = Vec::new();
        for need in self.needs.iter().filter(|need| self.log.is_asked(&need.label)) {
            let Some(own) = stretch_of(need, self.stretches) else { continue };
            let histories = self.shelf.histories();
            let set = self.log.sets.iter().find(|set| set.label == need.label);
            let stopped = set.and_then(|set| set.stopped.as_deref()).and_then(to_seconds);
            // No replay can stop before what was committed meanwhile.
            let committed = last_commit(need, own).map(text_of_next);
            let begun = || set.and_then(|set| set.started.as_deref()).and_then(to_seconds);
            let consistent = stopped.max(committed).or_else(begun);
            for reach in reaches(need, own, self.stretches, histories, self.segment_bytes()) {
                let to_time = reach.time.map(text_of);
                all.push(Restorable {
                    set: need.label.clone(),
                    timeline: reach.timeline,
                    from_lsn: Lsn(need.to),
                    to_lsn: Lsn(reach.to),
                    // A set in which nothing was committed behind its end is as it was then.
                    to_time: to_time.max(consistent.clone()),
                    from_time: consistent.clone(),
                });
            }
        }
        all
    }

    /// Says what is wrong; what is known of the log, in words too.
    fn tell(self, steps: &mut VecDeque<Step>, outcomes: &Outcomes) -> (Log, String) {
        let findings = self.faults.iter().map(|fault| self.finding(fault));
        let mut findings: Vec<Finding> = findings.collect();
        let more = findings.len().saturating_sub(FINDINGS_MAX);
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings.truncate(FINDINGS_MAX);
        steps.extend(findings.into_iter().map(Step::Finding));
        if more > 0 {
            let text = format!("{more} more places in the log are not as they were written");
            steps.push_back(Step::Note(Note { file: String::new(), text }));
        }
        steps.extend(self.history_steps());
        let asked = self.needs.iter().filter(|need| self.log.is_asked(&need.label));
        steps.extend(asked.filter_map(|need| self.without_log(need)));
        steps.extend(self.sets_without_end());
        steps.extend(self.partial_notes());
        let log = Log {
            segments: self.shelf.segments().len() as u64,
            gaps: self.gaps.clone(),
            restorable: self.restorable(),
        };
        steps.extend(grouped(self.unread).into_iter().map(Step::Unread));
        let mut needs = self.needs;
        needs.retain(|need| self.log.is_asked(&need.label));
        let (damaged, sound): (Vec<Need>, Vec<Need>) =
            needs.into_iter().partition(|need| outcomes.is_damaged(&need.label));
        let is_sound = |way: &&Restorable| !outcomes.is_damaged(&way.set);
        let ways: Vec<Restorable> = log.restorable.iter().filter(is_sound).cloned().collect();
        let damaged: Vec<&str> = damaged.iter().map(|need| need.label.as_str()).collect();
        let state = match (damaged.as_slice(), sound.is_empty()) {
            ([], _) => moments(&ways, &sound),
            (_, true) => "no set is sound".to_owned(),
            (damaged, false) => {
                format!("{} (without {}: damaged)", moments(&ways, &sound), damaged.join(", "))
            }
        };
        (log, state)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests;

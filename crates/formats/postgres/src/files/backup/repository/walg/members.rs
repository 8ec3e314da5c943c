//! The files of a set: those of its own parts, and what a delta leaves to the sets before it.
//!
//! A set is read from the newest parts to the oldest. Of each file those pages are taken that no newer
//! set has, so that every page of the database is seen once, in the version that a restore would bring
//! back. A file that comes in several pieces is several members of one name, each with holes where
//! another set has the pages.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::increment::{FIXED_BYTES, Fixed, Newer, Run};
use super::origins::Origins;
use super::sentinel::{FileEntry, Files};
use crate::files::backup::members::{Broken, Members, Piece};
use crate::files::backup::repository::tars::Tars;
use pagewarden_core::database::Step;
use pagewarden_core::source::tar::{Member, MemberKind, TarError};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, StoredPlace};

/// Files that are named one by one where many are lost.
const NAMED_MAX: usize = 20;

/// One set of a chain, opened.
pub(super) struct Level {
    /// Its name.
    pub(super) label: String,
    /// Its parts, in the order in which they are read.
    pub(super) tars: Tars,
    /// Its list of files; `None` where it has none.
    pub(super) files: Option<Files>,
    /// What was found when it was opened.
    pub(super) steps: Vec<Step>,
    /// Nothing of it can be read, and that was said.
    pub(super) is_closed: bool,
}

/// Opens the set of that name, which the one before in the chain builds on; what prevents that is a
/// step to report.
pub(super) type OpenBase =
    Box<dyn FnMut(&str) -> Result<(Level, Option<String>), Box<Step>> + Send>;

/// What follows the newest set of a chain.
pub(super) enum Base {
    /// Nothing.
    None,
    /// The set of this name, which is yet to be read.
    Unread(String),
    /// The set of this name, which this run has found sound.
    Sound(String),
}

/// See the module.
pub(super) struct Chain {
    level: Level,
    base: Base,
    open: OpenBase,
    /// Files that are wanted of this set, if it is an older one; of the newest set all are.
    wanted: Option<HashMap<String, Newer>>,
    /// Files that are wanted of the next.
    left: HashMap<String, Newer>,
    seen: HashSet<String>,
    runs: VecDeque<Run>,
    steps: Vec<Step>,
    /// Set once all parts of this set were read.
    is_level_done: bool,
    /// Where pages come from, for findings about them.
    origins: Arc<Origins>,
}

impl Chain {
    /// The newest set, with what it builds on.
    pub(super) fn new(level: Level, base: Base, open: OpenBase, origins: Arc<Origins>) -> Self {
        let mut chain = Self {
            level,
            base,
            open,
            wanted: None,
            left: HashMap::new(),
            seen: HashSet::new(),
            runs: VecDeque::new(),
            steps: Vec::new(),
            is_level_done: false,
            origins,
        };
        chain.begin_level();
        chain
    }

    fn begin_level(&mut self) {
        self.origins.begin_level(&self.level.label);
        self.steps.append(&mut self.level.steps);
        let Some(files) = &self.level.files else { return };
        for (name, entry) in &files.files {
            if self.wanted.is_none() {
                self.steps.extend(corrupt(&self.level.label, name, entry).map(Step::Finding));
            }
            if !entry.is_skipped {
                continue;
            }
            let newer = match &mut self.wanted {
                None => Some(Newer::default()),
                Some(wanted) => wanted.remove(name),
            };
            self.left.extend(newer.map(|newer| (name.clone(), newer)));
        }
    }

    /// What is to be read of a member; `None` to pass it over.
    fn begin(&mut self, member: &mut Member) -> Option<()> {
        self.runs.clear();
        let is_first = self.wanted.is_none();
        if member.kind != MemberKind::File || member.objection.is_some() {
            self.seen.insert(member.name.clone());
            return is_first.then_some(());
        }
        let newer = match &mut self.wanted {
            None => Newer::default(),
            Some(wanted) => wanted.remove(&member.name)?,
        };
        if !self.seen.insert(member.name.clone()) {
            let detail = "two parts of the set hold a file of this name".to_owned();
            let finding = Finding::of_file(&member.name, Severity::Suspect, Kind::Header, detail);
            self.steps.push(Step::Finding(finding));
        }
        let entry = self.level.files.as_ref().and_then(|files| files.files.get(&member.name));
        match entry {
            Some(entry) if entry.is_incremented => self.begin_pages(member, newer),
            _ => {
                self.runs = newer.of_whole(member.bytes);
                Some(())
            }
        }
    }

    /// Reads the header of a file of changed pages; the member is then the whole file.
    fn begin_pages(&mut self, member: &mut Member, newer: Newer) -> Option<()> {
        let mut fixed = [0_u8; FIXED_BYTES];
        let count = self.level.tars.read(&mut fixed)?;
        let header = Fixed::parse(&fixed).filter(|_| count == FIXED_BYTES);
        let Some(header) = header else {
            return self.no_pages(member, "it does not begin like a file of changed pages");
        };
        if let Some(fault) = header.fault(member.bytes) {
            return self.no_pages(member, &fault);
        }
        // The member is known to have as many, and the number is bounded.
        let mut numbers = vec![0_u8; usize::try_from(header.number_bytes()).ok()?];
        self.level.tars.read(&mut numbers)?;
        match header.numbers(&numbers) {
            Ok(numbers) => {
                self.runs = newer.of_pages(&numbers, header.file_bytes);
                member.bytes = header.file_bytes;
                let newer = newer.and(&numbers, header.file_bytes);
                self.origins.add_pages(&self.level.label, &member.name, numbers);
                self.left.insert(member.name.clone(), newer);
                Some(())
            }
            Err(fault) => self.no_pages(member, &fault),
        }
    }

    fn no_pages(&mut self, member: &Member, fault: &str) -> Option<()> {
        let detail = format!("no file of changed pages, which {} lists: {fault}", self.level.label);
        let finding = Finding::of_file(&member.name, Severity::Damage, Kind::Header, detail);
        self.steps.push(Step::Finding(finding));
        None
    }

    /// Says what the set's list of files has and its parts have not.
    fn end_level(&mut self) {
        let lost = self.level.tars.lost.clone();
        let unlisted = Files::default();
        let files = self.level.files.as_ref().unwrap_or(&unlisted);
        let mut missing: Vec<&str> = match &self.wanted {
            None => {
                let own = files.files.iter().filter(|(_, entry)| !entry.is_skipped);
                own.map(|(name, _)| name.as_str()).collect()
            }
            Some(wanted) => wanted.keys().map(String::as_str).collect(),
        };
        missing.retain(|name| !self.seen.contains(*name));
        let folders: HashSet<&str> = missing.iter().flat_map(|name| folders_above(name)).collect();
        missing.retain(|name| !folders.contains(name));
        missing.sort_unstable();
        let parts: HashMap<&str, &str> = files
            .tar_file_sets
            .iter()
            .flat_map(|(tar, names)| names.iter().map(move |name| (name.as_str(), tar.as_str())))
            .collect();
        let label = &self.level.label;
        // What was not read is not missing, which was said of the part.
        let unread = &self.level.tars.unread;
        missing.retain(|name| match parts.get(name) {
            Some(part) => !unread.contains(&super::shown_part(label, part)),
            None => unread.is_empty(),
        });
        for name in missing.iter().take(NAMED_MAX) {
            let part = parts.get(name).map(|part| super::shown_part(label, part));
            self.steps.push(Step::Finding(missing_file(label, name, part, &lost)));
        }
        let more = missing.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            let detail = format!("{more} more files of {label} are in none of its parts");
            let finding = Finding::of_file("", Severity::Damage, Kind::Missing, detail);
            self.steps.push(Step::Finding(finding));
        }
    }

    /// Goes on to the set that this one builds on; false at the end of the chain.
    fn next_level(&mut self) -> bool {
        if !self.is_level_done {
            self.end_level();
            self.is_level_done = true;
        }
        match std::mem::replace(&mut self.base, Base::None) {
            Base::None => {
                self.say_left();
                false
            }
            Base::Sound(label) => {
                let text = format!(
                    "{} files, or pages of them, are as in {label}, which this run has found sound",
                    self.left.len()
                );
                self.steps.push(Step::Note(Note { file: String::new(), text }));
                false
            }
            Base::Unread(label) => match (self.open)(&label) {
                Ok((level, base)) => {
                    self.wanted = Some(std::mem::take(&mut self.left));
                    if level.is_closed {
                        self.wanted = Some(HashMap::new());
                    }
                    self.base = base.filter(|_| !level.is_closed).map_or(Base::None, Base::Unread);
                    self.level = level;
                    self.seen.clear();
                    self.is_level_done = false;
                    self.begin_level();
                    true
                }
                Err(step) => {
                    if matches!(*step, Step::Unread(_)) {
                        self.left.clear();
                    }
                    self.steps.push(*step);
                    self.say_left();
                    false
                }
            },
        }
    }

    /// What no set of the chain was asked for: the chain ends too early.
    fn say_left(&mut self) {
        let left = std::mem::take(&mut self.left);
        if left.is_empty() {
            return;
        }
        let mut names: Vec<&str> = left.keys().map(String::as_str).collect();
        names.sort_unstable();
        for name in names.iter().take(NAMED_MAX) {
            let detail = format!(
                "the set {} takes it from a set that it builds on, and there is none",
                self.level.label
            );
            let finding = Finding::of_file(name, Severity::Damage, Kind::Missing, detail);
            self.steps.push(Step::Finding(finding));
        }
        let more = names.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            let detail = format!("{more} more files that the set takes from the one it builds on");
            let finding = Finding::of_file("", Severity::Damage, Kind::Missing, detail);
            self.steps.push(Step::Finding(finding));
        }
    }

    /// Takes `bytes` off the run that is read.
    fn take(&mut self, bytes: u64) {
        if let Some(Run::Data(left) | Run::Passed(left) | Run::Absent(left)) = self.runs.front_mut()
        {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// Passes data over that a newer set has.
    fn pass(&mut self, mut bytes: u64) -> Option<()> {
        let mut buffer = [0_u8; 16 << 10];
        while bytes > 0 {
            let room = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
            let count = self.level.tars.read(buffer.get_mut(..room)?)? as u64;
            if count == 0 {
                return None;
            }
            bytes = bytes.saturating_sub(count);
        }
        Some(())
    }
}

impl Members for Chain {
    fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        loop {
            let Some(mut member) = self.level.tars.next() else {
                if self.next_level() {
                    continue;
                }
                return Ok(None);
            };
            if self.begin(&mut member).is_some() {
                return Ok(Some(member));
            }
        }
    }

    fn data_left(&self) -> u64 {
        let bytes = self.runs.iter().map(|run| match run {
            Run::Data(bytes) | Run::Passed(bytes) | Run::Absent(bytes) => *bytes,
        });
        bytes.fold(0, u64::saturating_add)
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        let Some(run) = self.runs.front().copied() else { return Ok(Piece::Data(0)) };
        let piece = match run {
            Run::Absent(count) => Some((count, Piece::Hole(count))),
            Run::Passed(count) => self.pass(count).map(|()| (count, Piece::Hole(count))),
            Run::Data(count) => {
                let room = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
                let read = self.level.tars.read(bytes.get_mut(..room).unwrap_or_default());
                read.filter(|count| *count > 0).map(|count| (count as u64, Piece::Data(count)))
            }
        };
        let Some((count, piece)) = piece else {
            self.runs.clear();
            return Err(Broken::Member);
        };
        self.take(count);
        Ok(piece)
    }

    fn take_steps(&mut self) -> Vec<Step> {
        let mut steps = self.level.tars.take_steps();
        steps.append(&mut self.steps);
        steps
    }
}

/// `""`, `base` and `base/1` of `base/1/1259`.
fn folders_above(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('/').map(|(at, _)| at);
    let above = ends.filter_map(|at| name.get(..at));
    above.chain((!name.is_empty()).then_some(""))
}

/// What WAL-G noted itself when it took the backup with `--verify`: each page was read once, so that one
/// may have been half written.
fn corrupt(label: &str, name: &str, entry: &FileEntry) -> Option<Finding> {
    let blocks = entry.corrupt_blocks.as_ref().filter(|blocks| blocks.corrupt_blocks_count > 0)?;
    let some: Vec<String> =
        blocks.some_corrupt_blocks.iter().take(10).map(u64::to_string).collect();
    let detail = format!(
        "WAL-G noted {} damaged pages when it took {label}: {}",
        blocks.corrupt_blocks_count,
        some.join(", ")
    );
    Some(Finding::of_file(name, Severity::Suspect, Kind::Checksum, detail))
}

fn missing_file(label: &str, name: &str, part: Option<String>, lost: &[String]) -> Finding {
    let detail = match &part {
        Some(part) if lost.contains(part) => {
            format!("it is in {part}, behind the place at which that cannot be read on")
        }
        Some(part) => format!("{label} lists it in {part}, and it is not there"),
        None => format!("{label} lists it, and none of its parts holds it"),
    };
    let finding = Finding::of_file(name, Severity::Damage, Kind::Missing, detail)
        .with_hint("take the part from another copy of the repository, or take a new backup");
    match part {
        Some(stored_file) => finding.stored_at(StoredPlace { stored_file, stored_offset: None }),
        None => finding,
    }
}

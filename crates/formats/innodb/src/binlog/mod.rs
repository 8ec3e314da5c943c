//! Binary logs of MySQL and MariaDB: a file, or the folder in which they are archived.
//!
//! `event` is the form, `file` reads one file, `folder` puts files in order, with their index; `backup`
//! says how far they bring a backup.
//!
//! | what is wrong | severity |
//! | --- | --- |
//! | an event does not fit its sum, or claims a length that cannot be | damage |
//! | a file that is not the last ends inside an event | damage |
//! | the last file ends inside an event | notice: a server was writing it, or went down |
//! | a file between others is not here, or one that the index lists | suspect: nothing behind it follows from what is before |
//! | a file that others follow ends with neither a rotation nor a stop | suspect: the server went down there, or the file was cut |
//! | a file is encrypted | not tested |

mod backup;
mod event;
mod file;
mod folder;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::backup::open_with_log;
use self::event::ENCRYPTED_MAGIC;
use self::file::{End, Scan};
use self::folder::{Folder, LogFile};
use crate::FORMAT;
use pagewarden_core::database::repository::{Binlogs, RepositoryPart};
use pagewarden_core::database::{Description, Evidence, Probe, Settled, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Protection, Severity, Unread};

const HINT: &str = "take another copy of this file, from the server or from a replica; take a new backup: \
                    what lies behind it cannot be brought back from older ones";

/// True for what begins as a binary log does.
fn begins_as_binlog(begin: &[u8]) -> bool {
    let is_described = begin.get(8) == Some(&event::DESCRIPTION);
    begin.starts_with(&event::MAGIC) && is_described || begin.starts_with(&ENCRYPTED_MAGIC)
}

pub(super) fn is_binlog(path: &Path) -> bool {
    read_small(path, event::HEADER_BYTES).is_ok_and(|begin| begins_as_binlog(&begin))
}

/// A folder of binary logs, and of nothing else.
pub(super) fn probe_folder(path: &Path) -> Probe {
    Probe::yes_if(folder::is_one(path))
}

pub(super) fn open_file(path: &Path) -> Result<Target, Error> {
    Ok(target(path, Folder::of_file(path), Vec::new()))
}

pub(super) fn open_folder(path: &Path) -> Result<Target, Error> {
    let folder = Folder::list(path).map_err(|source| Error::io("list", path, source))?;
    Ok(target(path, folder, Vec::new()))
}

/// From where on a backup needs the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    /// What the backup is called.
    set: String,
    file: String,
    position: u64,
}

fn target(path: &Path, folder: Folder, needs: Vec<Need>) -> Target {
    let steps = Steps {
        path: path.to_owned(),
        count: folder.files.len(),
        waiting: folder.files.into(),
        ready: folder.steps.into(),
        scans: Vec::new(),
        needs,
        is_done: false,
    };
    let description = steps.description("read from here on".to_owned(), None);
    Target { description, steps: Box::new(steps), woken: None }
}

struct Steps {
    path: PathBuf,
    count: usize,
    waiting: VecDeque<LogFile>,
    ready: VecDeque<Step>,
    /// What was read, in order.
    scans: Vec<(LogFile, Scan)>,
    needs: Vec<Need>,
    is_done: bool,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if let Some(file) = self.waiting.pop_front() {
                self.read(file);
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
    fn description(&self, state: String, log: Option<Arc<Binlogs>>) -> Description {
        let mut server = self.scans.iter().map(|(_, scan)| scan.server.as_str());
        let server = server.rfind(|server| !server.is_empty()).unwrap_or_default();
        let has_sums = self.scans.iter().filter_map(|(_, scan)| scan.has_sums);
        Description {
            path: self.path.clone(),
            format: FORMAT.name,
            engine: match server.split_once("-MariaDB") {
                Some((version, _)) => format!("MariaDB {version}"),
                None if server.is_empty() => FORMAT.title.to_owned(),
                None => format!("MySQL {}", server.split('-').next().unwrap_or(server)),
            },
            page_size: 0,
            setting: match has_sums.fold(None, |all, one| Some(all.unwrap_or(true) && one)) {
                Some(false) => Some(Protection::None),
                _ => Some(Protection::Checksum),
            },
            state,
            evidence: Evidence {
                tested_by: "the CRC-32 of every event, its length and where it says that it ends",
                unseen: "transactions that a server never wrote, and events that were taken out together \
                         with what names them",
            },
            live: false,
            epoch: None,
            part: Some(RepositoryPart::Binlogs(log)),
        }
    }

    fn read(&mut self, file: LogFile) {
        let asked: Vec<u64> = self
            .needs
            .iter()
            .filter(|need| need.file == file.name)
            .map(|need| need.position)
            .collect();
        let scan = match file::scan(&file.path, &asked) {
            Ok(scan) => scan,
            Err(error) => {
                self.ready.push_back(Step::Unread(Unread::of_file(&file.name, error.to_string())));
                return;
            }
        };
        self.ready.push_back(Step::Passed(scan.bytes));
        for fault in &scan.faults {
            let mut finding =
                Finding::of_file(&file.name, Severity::Damage, fault.kind, fault.words.clone());
            finding.place.offset = Some(ByteOffset(fault.at));
            finding.stored.clone_from(&fault.stored);
            finding.computed.clone_from(&fault.computed);
            self.ready.push_back(Step::Finding(finding.with_hint(HINT)));
        }
        if scan.more_faults > 0 {
            let text = format!("{} more damaged events in this file", scan.more_faults);
            self.ready.push_back(Step::Note(Note { file: file.name.clone(), text }));
        }
        if let Some(from) = scan.encrypted_from {
            let text = format!(
                "encrypted from byte {from} on: its events cannot be tested without the server's key; let \
                 the server send them (mysqlbinlog --read-from-remote-server --raw), and check those files"
            );
            self.ready.push_back(Step::Untested(Note { file: file.name.clone(), text }, 1));
        }
        let last_of_all = self.waiting.iter().all(|later| later.base != file.base);
        self.ready.extend(end_of(&file, &scan, last_of_all));
        let broken = self.broken_chain(&file);
        self.ready.extend(broken);
        self.scans.push((file, scan));
    }

    /// What is wrong between a file and the one before it.
    fn broken_chain(&self, file: &LogFile) -> Option<Step> {
        let (before, scan) = self
            .scans
            .iter()
            .rfind(|(before, _)| before.base == file.base && file.number.is_some())?;
        let missing = file.number?.checked_sub(before.number?)?.checked_sub(1)?;
        let words = match (&scan.end, missing) {
            (End::Rotated(next), 0) if *next != file.name => {
                format!("it goes on in {next}, and the next file here is {}", file.name)
            }
            (_, 0) => return None,
            (_, 1) => format!("the file between it and {} is not here", file.name),
            (_, count) => format!("{count} files between it and {} are not here", file.name),
        };
        let finding = Finding::of_file(&before.name, Severity::Suspect, Kind::Missing, words);
        Some(Step::Finding(finding.with_hint(HINT)))
    }

    /// Says how far all of it goes.
    fn settle(&mut self) {
        let ways = backup::reach(&self.scans, &self.needs);
        self.ready.extend(ways.steps);
        let log = Binlogs {
            files: self.count as u64,
            gaps: backup::gaps(&self.scans),
            reachable: ways.reachable,
        };
        let state = log.in_words();
        let description = self.description(state, Some(Arc::new(log)));
        let has_sums = description.setting == Some(Protection::Checksum);
        let judge = Box::new(|_: &mut Finding, _: &_| ());
        self.ready.push_back(Step::Settled(Box::new(Settled { description, has_sums, judge })));
    }
}

/// What is said of how a file ends.
fn end_of(file: &LogFile, scan: &Scan, is_last: bool) -> Option<Step> {
    if let Some(from) = scan.torn_from {
        let bytes = scan.bytes.saturating_sub(from);
        if is_last {
            let text = format!(
                "it ends inside an event, which begins at byte {from} and of which {bytes} bytes are here: a \
                 server was writing it, or went down"
            );
            return Some(Step::Note(Note { file: file.name.clone(), text }));
        }
        let words =
            format!("it ends inside an event, which begins at byte {from}, and other files follow");
        let mut finding = Finding::of_file(&file.name, Severity::Damage, Kind::Truncated, words);
        finding.place.offset = Some(ByteOffset(from));
        return Some(Step::Finding(finding.with_hint(HINT)));
    }
    let is_known = scan.encrypted_from.is_some() || scan.end != End::Open || scan.is_relay_log;
    // What is damaged may be what ended it.
    if is_last || is_known || !scan.faults.is_empty() {
        return None;
    }
    let words = "others follow it, and it ends with neither a rotation nor a stop: the server went down \
                 there, or the end of the file is lost";
    let finding =
        Finding::of_file(&file.name, Severity::Suspect, Kind::Truncated, words.to_owned());
    Some(Step::Finding(finding.with_hint(HINT)))
}

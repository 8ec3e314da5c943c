//! `pagewarden survey REPOSITORY`: what the books of a backup tool and the names of its files tell.
//!
//! No page and nearly none of the log is read, so nothing is said of whether it is sound: only what is
//! there, what is not, what would follow if all of it is sound, and what it costs to find out.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use pagewarden::database::repository::{Backup, LogOutline, RepositoryKind, RepositoryPart, Sets};
use pagewarden::report::Traffic;
use pagewarden::shell::quoted;
use pagewarden::source::store::StorePath;
use pagewarden::words::{bytes, counted, grouped, printable};
use serde_json::{Value, json};

use super::answers::Answer;
use super::screen;
use crate::args::survey::Survey;
use crate::commands::storage::Storage;
use crate::exit::Exit;
use crate::terminal::{colours, print, width};

/// The number of sets and gaps that are shown; JSON has all.
const SHOWN_MAX: usize = 20;
/// What a check asks a store for at once.
const REQUEST_BYTES: u64 = 4 << 20;

/// What a survey of a repository found.
struct Outlined {
    tool: &'static str,
    path: String,
    sets: Vec<Arc<Backup>>,
    logs: Vec<LogOutline>,
    is_stored: bool,
    traffic: Option<Traffic>,
}

/// Runs the command on a repository.
pub(super) fn run(
    arguments: &Survey,
    kind: &RepositoryKind,
    place: &StorePath,
    storage: &Storage,
) -> Result<Exit> {
    ensure!(
        arguments.html.is_none(),
        "--html is for databases\nhint: pagewarden check --html FILE draws the sets and the log of a \
         repository, once they were read"
    );
    let Sets { targets, outline, .. } = (kind.open)(place, &super::open_options(arguments))?;
    let sets = targets.filter_map(|target| match target.description.part {
        Some(RepositoryPart::Set(backup)) => Some(backup),
        _ => None,
    });
    let sets = sets.collect();
    let outlined = Outlined {
        tool: kind.tool,
        path: arguments.path.to_string_lossy().into_owned(),
        sets,
        logs: outline.map(|outline| outline()).unwrap_or_default(),
        is_stored: place.local_path().is_none(),
        traffic: storage.traffic(),
    };
    if arguments.shown.json {
        print(&format!("{}\n", outlined.object()))?;
    } else {
        print(&screen::lines(&outlined.path, &outlined.answers(), width(), colours()))?;
    }
    Ok(outlined.exit())
}

impl Outlined {
    /// Sets that cannot be made consistent, whatever their files hold.
    fn lacking(&self) -> Vec<&str> {
        self.logs.iter().flat_map(|log| &log.lacking).map(String::as_str).collect()
    }

    fn exit(&self) -> Exit {
        let is_unknown = self.sets.is_empty()
            || self.sets.iter().any(|set| set.from_lsn.is_none())
            || self.logs.is_empty()
            || self.logs.iter().any(|log| log.unknown.is_some());
        let is_lost = |log: &LogOutline| log.waits_for_log && !log.lacking.is_empty();
        if self.logs.iter().any(is_lost) {
            return Exit::Wrong;
        }
        match is_unknown || !self.lacking().is_empty() {
            true => Exit::Unable,
            false => Exit::Fine,
        }
    }

    /// Bytes that a check of all reads, and whether that is all of them.
    fn bytes(&self) -> (u64, bool) {
        let of_sets = self.sets.iter().map(|set| set.repository_bytes);
        let is_all = of_sets.clone().all(|bytes| bytes.is_some());
        let of_logs = self.logs.iter().map(|log| log.stored_bytes);
        (of_sets.flatten().chain(of_logs).fold(0, u64::saturating_add), is_all)
    }

    /// Requests at least: a piece of an object, or a small object, is one.
    fn requests(&self) -> Option<u64> {
        self.is_stored.then(|| {
            let segments: u64 = self.logs.iter().map(|log| log.segments).sum();
            self.bytes().0.div_ceil(REQUEST_BYTES).max(segments)
        })
    }

    fn object(&self) -> Value {
        let (bytes, is_all) = self.bytes();
        let mut object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "survey",
            "verdict": "not checked",
            "path": self.path,
            "tool": self.tool,
            "sets": self.sets.iter().map(|set| json!(**set)).collect::<Vec<_>>(),
            "logs": self.logs,
            "full_check": { "bytes": bytes, "is_lower_bound": !is_all, "requests": self.requests() },
            "recommended": { "command": self.command(), "why": self.why() },
        });
        if let (Some(traffic), Some(object)) = (self.traffic, object.as_object_mut()) {
            object.insert("storage".to_owned(), json!(traffic));
        }
        object
    }

    fn answers(&self) -> Vec<Answer> {
        let plain = |title, lines| Answer { title, lines, is_command: false };
        let count = self.sets.len() as u64;
        let what = match self.sets.last().and_then(|set| set.database_version.as_deref()) {
            Some(version) => {
                let version = printable(version);
                format!(
                    "{} repository, {}, of PostgreSQL {version}",
                    self.tool,
                    counted(count, "set")
                )
            }
            None => format!("{} repository, {}", self.tool, counted(count, "set")),
        };
        vec![
            plain("What it is", vec![what]),
            plain("Sets", self.set_lines()),
            plain(
                "Log",
                self.logs.iter().flat_map(|log| log_lines(log, self.logs.len() > 1)).collect(),
            ),
            plain("If all holds", self.restorable_lines()),
            plain(
                "Is it sound",
                vec![
                    "not checked: only books and names were read, no page and no record".to_owned(),
                ],
            ),
            plain("Full check", self.cost_lines()),
            Answer { title: "Next", lines: vec![self.command(), self.why()], is_command: true },
        ]
    }

    fn set_lines(&self) -> Vec<String> {
        let shown = self.sets.iter().rev().take(SHOWN_MAX).rev();
        let mut lines: Vec<_> = shown.map(|set| set_line(set)).collect();
        if let Some(more) = self.sets.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            lines.insert(0, format!("and {} before these", grouped(more as u64)));
        }
        if lines.is_empty() {
            lines.push("none".to_owned());
        }
        lines
    }

    fn restorable_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for log in &self.logs {
            for way in &log.restorable {
                let from = way.from_time.as_deref().unwrap_or("its end");
                lines.push(format!(
                    "{}: from {} (LSN {}) to LSN {} of timeline {}",
                    printable(&way.set),
                    from,
                    way.from_lsn,
                    way.to_lsn,
                    way.timeline
                ));
            }
            let lacking = log.lacking.iter().map(|set| {
                format!(
                    "{}: not restorable: a part of the log that it needs is not here",
                    printable(set)
                )
            });
            let unknown = log
                .undetermined
                .iter()
                .map(|set| format!("{}: its books do not say which log it needs", printable(set)));
            lines.extend(lacking.chain(unknown));
            lines.extend(log.unknown.iter().map(|why| format!("unknown: {why}")));
        }
        let skipped = lines.len().saturating_sub(SHOWN_MAX);
        if skipped > 0 {
            lines.drain(..skipped);
            lines.insert(0, format!("and {} before these", grouped(skipped as u64)));
        }
        if lines.is_empty() {
            lines.push("unknown: the log was not listed".to_owned());
        }
        lines
    }

    fn cost_lines(&self) -> Vec<String> {
        let (read, is_all) = self.bytes();
        let least = if is_all { "" } else { "at least " };
        let mut line = format!("{least}{} to read", bytes(read));
        if let Some(requests) = self.requests() {
            line.push_str(&format!(", in at least {}", counted(requests, "request")));
        }
        let mut lines =
            vec![line, "how long that takes is not known before the first check".to_owned()];
        lines.extend(self.traffic.map(|traffic| format!("this survey: {traffic}")));
        lines
    }

    fn command(&self) -> String {
        let path = quoted(Path::new(&self.path).as_os_str());
        match self.lacking().is_empty() {
            true => format!("pagewarden check {path}"),
            false => format!("pagewarden check --latest {path}"),
        }
    }

    fn why(&self) -> String {
        match self.lacking().is_empty() {
            true => "it reads every page and every record of the log; nothing else says whether the sets \
                     can be restored"
                .to_owned(),
            false => "take a new backup if the newest set is one of those that cannot be restored".to_owned(),
        }
    }
}

fn set_line(set: &Backup) -> String {
    let mut line = format!("{}: {}", printable(&set.label), set.kind.name());
    if let Some(prior) = &set.prior {
        line.push_str(&format!(" on {}", printable(prior)));
    }
    if let Some(stopped) = set.stopped.as_ref().or(set.started.as_ref()) {
        line.push_str(&format!(", {}", printable(stopped)));
    }
    if let Some(stored) = set.repository_bytes {
        line.push_str(&format!(", {}", bytes(stored)));
    }
    if set.from_lsn.is_none() {
        line.push_str("; its books could not be read");
    }
    line
}

fn log_lines(log: &LogOutline, is_one_of_several: bool) -> Vec<String> {
    let name =
        if is_one_of_several { format!("{}: ", printable(&log.name)) } else { String::new() };
    let mut line =
        format!("{name}{} ({})", counted(log.segments, "segment"), bytes(log.stored_bytes));
    if let (Some(first), Some(last)) = (&log.first, &log.last) {
        line.push_str(&format!(", {first} to {last}"));
    }
    let mut lines = vec![line];
    let gaps = log.gaps.iter().take(SHOWN_MAX);
    lines.extend(gaps.map(|gap| match gap.first == gap.last {
        true => format!("missing: {}", gap.first),
        false => format!("missing: {} to {}", gap.first, gap.last),
    }));
    if let Some(more) = log.gaps.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {} more gaps", grouped(more as u64)));
    }
    if log.gaps.is_empty() && log.segments > 0 {
        lines.push("no name is missing between others".to_owned());
    }
    lines
}

//! What is said of a folder's backups: findings, a sentence for each database, and the tables of JSON.

use crate::files::backup::SetKind;
use crate::files::backup::chains::links::{Database, Lack, Range, Set};
use crate::files::backup::chains::statements::restore;
use crate::files::file_name;
use crate::mtf::details::{Date, Guid};
use pagewarden_core::database::Step;
use pagewarden_core::database::chains::{
    BackupChains, ChainFile, ChainGap, ChainRange, ChainSet, DatabaseChains,
};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::counted;

/// Ranges that are named in a sentence.
const RANGES_MAX: usize = 4;
const HINT: &str = "look for it where backups are kept; make a full backup while the database is there: \
                    later log backups go on from that";

/// Everything that is said.
pub(super) fn tell(databases: &[Database]) -> (Vec<Step>, String, BackupChains) {
    let mut steps = Vec::new();
    let mut sentences = Vec::new();
    let mut chains = BackupChains::default();
    for database in databases {
        let lacks = database.lacks();
        steps.extend(lacks.iter().filter_map(|lack| step(database, *lack)));
        let ranges = database.ranges();
        sentences.push(sentence(&database.name, &ranges));
        let statements = restore(&database.name, &database.newest());
        steps.extend(statement_notes(database, &statements));
        chains.databases.push(DatabaseChains {
            database: database.name.clone(),
            family: guid(database.family),
            sets: database.sets.iter().map(set).collect(),
            restorable: ranges.iter().map(range).collect(),
            gaps: lacks.iter().filter_map(|lack| gap(database, *lack)).collect(),
            restore: statements,
        });
    }
    (steps, sentences.join("; "), chains)
}

fn first_file(set: &Set) -> String {
    set.files.first().map_or_else(String::new, |path| file_name(path))
}

/// `log backup x.trn (begun 2026-04-18 21:10:43)`
fn named(set: &Set) -> String {
    let mut text = format!("{}backup {}", set.kind().adjective(), first_file(set));
    if set.header.number > 1 {
        text.push_str(&format!(", set {}", set.header.number));
    }
    if let Some(begun) = set.begun() {
        text.push_str(&format!(" (begun {begun})"));
    }
    text
}

/// What is said of something that is missing. What may be kept elsewhere, because nothing here is older,
/// was not looked at.
fn step(database: &Database, lack: Lack) -> Option<Step> {
    let found = |set: &Set, severity, text| {
        let mut finding = Finding::of_file(&first_file(set), severity, Kind::Missing, text);
        finding.database = Some(database.name.clone());
        Step::Finding(finding.with_hint(HINT))
    };
    match lack {
        Lack::Gap { before: Some(before), log, is_bridged } => {
            let (before, log) = (database.sets.get(before)?, database.sets.get(log)?);
            let missing = format!(
                "the log from {} to {} is in no backup here that can be used",
                before.last(),
                log.first()
            );
            let (log_named, before) = (named(log), named(before));
            let (severity, text) = match is_bridged {
                true => (
                    Severity::Notice,
                    format!("{missing}: what {before} leaves cannot be brought on by {log_named}"),
                ),
                false => (
                    Severity::Suspect,
                    format!(
                        "{missing}: {log_named} cannot be applied to what {before} leaves, nor what \
                         goes on from it"
                    ),
                ),
            };
            Some(found(log, severity, text))
        }
        Lack::Gap { before: None, log, .. } => {
            let log = database.sets.get(log)?;
            let error = format!(
                "no backup is here from which {} goes on at {}: database {} cannot be restored with it",
                named(log),
                log.first(),
                database.name
            );
            Some(Step::Unread(Unread::of_file(first_file(log), error)))
        }
        Lack::Base { set, base } => {
            let set = database.sets.get(set)?;
            let wanted = set.header.configuration.previous_full_lsn;
            if let Some(base) = base.and_then(|base| database.sets.get(base)) {
                let text = format!(
                    "{} cannot be restored: {}, on which it builds, cannot be used",
                    named(set),
                    named(base)
                );
                return Some(found(set, Severity::Suspect, text));
            }
            let text = format!(
                "{} cannot be restored without the full backup on which it builds, of checkpoint LSN \
                 {wanted}, which is not here",
                named(set)
            );
            let mut fulls = database.sets.iter().filter(|one| one.kind() == SetKind::Full);
            Some(match fulls.any(|full| full.header.configuration.checkpoint_lsn < wanted) {
                true => found(set, Severity::Damage, text),
                false => Step::Unread(Unread::of_file(first_file(set), text)),
            })
        }
    }
}

fn statement_notes(database: &Database, statements: &[String]) -> Vec<Step> {
    let file = format!("database {}", database.name);
    let last = database.newest().last().and_then(|set| set.moment());
    let to = last.map_or(String::new(), |moment| format!(", that of {moment}"));
    let begin = format!("these statements bring it to its newest state{to}:");
    let texts = std::iter::once(begin).chain(statements.iter().cloned());
    let notes = texts.map(|text| Step::Note(Note { file: file.clone(), text }));
    if statements.is_empty() { Vec::new() } else { notes.collect() }
}

/// `pubs: any moment from 2026-04-18 19:55:52 to 2026-04-18 21:10:43 can be restored`.
fn sentence(name: &str, ranges: &[Range]) -> String {
    let time = |date: Option<Date>| date.map_or("an unknown time".to_owned(), |it| it.to_string());
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return format!("{name}: nothing can be restored from the backups that are here");
    };
    if ranges.iter().all(|range| !range.is_state()) {
        let holes = ranges.windows(2).filter_map(|pair| match pair {
            [before, after] => {
                Some(format!("{} to {}", time(before.to_time), time(after.from_time)))
            }
            _ => None,
        });
        let holes: Vec<String> = holes.collect();
        let but = match holes.is_empty() {
            true => String::new(),
            false => format!(", but not {}", holes.join(", ")),
        };
        let (from, to) = (time(first.from_time), time(last.to_time));
        return format!("{name}: any moment from {from} to {to} can be restored{but}");
    }
    let mut words: Vec<String> = ranges
        .iter()
        .take(RANGES_MAX)
        .map(|range| match range.is_state() {
            true => format!("the state of {}", time(range.to_time)),
            false => {
                format!("any moment from {} to {}", time(range.from_time), time(range.to_time))
            }
        })
        .collect();
    let more = ranges.len().saturating_sub(RANGES_MAX);
    if more > 0 {
        words.push(format!("{} more", counted(more as u64, "state or range")));
    }
    let last = words.pop().unwrap_or_default();
    let all = if words.is_empty() { last } else { format!("{} and {last}", words.join(", ")) };
    format!("{name}: {all} can be restored")
}

fn date(date: Option<Date>) -> Option<String> {
    date.map(|date| date.to_string().replace(' ', "T"))
}

fn guid(guid: Guid) -> Option<String> {
    guid.is_set().then(|| guid.to_string())
}

fn range(range: &Range) -> ChainRange {
    ChainRange {
        from_lsn: range.from.decimal(),
        to_lsn: range.to.decimal(),
        from_time: date(range.from_time),
        to_time: date(range.to_time),
    }
}

fn gap(database: &Database, lack: Lack) -> Option<ChainGap> {
    let Lack::Gap { before: Some(before), log, .. } = lack else { return None };
    let (before, log) = (database.sets.get(before)?, database.sets.get(log)?);
    Some(ChainGap {
        from_lsn: before.last().decimal(),
        to_lsn: log.first().decimal(),
        from_time: date(before.moment()),
        to_time: date(log.begun()),
        before: log.files.first()?.display().to_string(),
    })
}

fn set(set: &Set) -> ChainSet {
    let header = &set.header;
    let of = &header.configuration;
    let fork = of.fork;
    let pages = |id: u32| header.data_pages.iter().find(|(file, _)| *file == id).map(|it| it.1);
    let files = of.files.iter().map(|file| ChainFile {
        name: file.name.clone(),
        path: file.path.clone(),
        is_log: file.is_log,
        id: file.id,
        bytes: file.bytes,
        backup_pages: pages(file.id).filter(|_| !file.is_log).unwrap_or(0),
    });
    let (major, minor, build) = of.server_version;
    ChainSet {
        files: set.files.iter().map(|path| path.display().to_string()).collect(),
        stripes: set.stripes,
        position: header.number,
        kind: header.kind.adjective().trim_end().to_owned(),
        name: header.name.clone(),
        id: guid(header.id),
        server: of.server.clone(),
        server_version: format!("{major}.{minor}.{build}"),
        database_version: of.database_version,
        compatibility: of.compatibility,
        created: date(of.created),
        started: date(of.begun),
        finished: date(of.ended),
        first_lsn: of.first_lsn.decimal(),
        last_lsn: of.last_lsn.decimal(),
        checkpoint_lsn: of.checkpoint_lsn.decimal(),
        database_backup_lsn: of.previous_full_lsn.decimal(),
        differential_base: guid(of.base_id),
        recovery_fork: guid(fork.id),
        first_recovery_fork: guid(fork.left),
        fork_point_lsn: fork.left.is_set().then(|| fork.point.decimal()),
        compressed: set.is_compressed,
        bytes: set.bytes,
        database_files: files.collect(),
        unusable: set.unusable.clone(),
    }
}

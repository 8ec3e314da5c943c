//! How far the log goes, and how far it brings backups.

use std::path::{Path, PathBuf};

use super::file::{End, Scan};
use super::folder::{Folder, LogFile};
use super::{HINT, Need};
use crate::files;
use pagewarden_core::database::repository::{BinlogGap, Outcomes, Reachable, Sets};
use pagewarden_core::database::{OpenOptions, Step};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Finding, Kind, Note, Severity};
use pagewarden_core::words::utc_seconds;

/// Where backups say which event is the first that they do not have.
const POSITIONS: [&str; 2] = ["mariadb_backup_binlog_info", "xtrabackup_binlog_info"];
const POSITION_BYTES_MAX: usize = 64 << 10;

/// What follows from the files that were read.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) reachable: Vec<Reachable>,
    pub(super) steps: Vec<Step>,
}

/// Opens backups, and at last the folder with the log.
///
/// # Errors
/// The folder cannot be listed, or a backup cannot be opened.
pub(crate) fn open_with_log(
    paths: &[PathBuf],
    log: &Path,
    options: &OpenOptions,
) -> Result<Sets, Error> {
    let folder = Folder::list(log).map_err(|source| Error::io("list", log, source))?;
    if folder.files.is_empty() {
        let hint = "name the folder with the server's binary logs";
        return Err(Error::unrecognised(log, "a folder without a binary log", hint));
    }
    let (mut targets, mut needs) = (Vec::new(), Vec::new());
    for path in paths {
        let Some(need) = need_of(path) else {
            let reason = format!("it has none of {}", POSITIONS.join(", "));
            let hint = "a backup says there where the log goes on; check it without --log";
            return Err(Error::refused(path, reason, hint));
        };
        let metadata = std::fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
        targets.push(files::open(path, &metadata, options)?);
        needs.push(need);
    }
    let count = targets.len().saturating_add(1);
    let last = super::target(log, folder, needs);
    Ok(Sets::of(count, targets.into_iter().chain([last]), Outcomes::default()))
}

/// Where a backup ends in the log.
fn need_of(path: &Path) -> Option<Need> {
    let text =
        POSITIONS.iter().find_map(|name| read_small(&path.join(name), POSITION_BYTES_MAX).ok())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split_whitespace();
    let file = words.next()?.rsplit('/').next()?.to_owned();
    Some(Need { set: path.display().to_string(), file, position: words.next()?.parse().ok()? })
}

/// Files that are missing between others.
pub(super) fn gaps(scans: &[(LogFile, Scan)]) -> Vec<BinlogGap> {
    let pairs = scans.iter().zip(scans.iter().skip(1));
    let gap = |before: &LogFile, after: &LogFile| {
        let (last, next) = (before.number?, after.number?);
        let is_gap = before.base == after.base && next > last.saturating_add(1);
        let name = |number: u64| format!("{}.{number:06}", before.base);
        is_gap.then(|| BinlogGap {
            first: name(last.saturating_add(1)),
            last: name(next.saturating_sub(1)),
        })
    };
    pairs.filter_map(|((before, _), (after, _))| gap(before, after)).collect()
}

/// How far each backup can be brought; without one, the stretches in which every event is sound.
pub(super) fn reach(scans: &[(LogFile, Scan)], needs: &[Need]) -> Ways {
    let mut ways = Ways::default();
    if needs.is_empty() {
        ways.reachable = stretches(scans);
        return ways;
    }
    for need in needs {
        match way_of(need, scans) {
            Ok(way) => {
                if way.to_time.is_none() {
                    let text = format!("no transaction follows the backup {} in the log", need.set);
                    ways.steps.push(Step::Note(Note { file: need.file.clone(), text }));
                }
                ways.reachable.push(way);
            }
            Err((kind, words)) => {
                let finding = Finding::of_file(&need.file, Severity::Suspect, kind, words);
                ways.steps.push(Step::Finding(finding.with_hint(HINT)));
            }
        }
    }
    ways
}

/// One stretch after the other, joined over the ends of files.
fn stretches(scans: &[(LogFile, Scan)]) -> Vec<Reachable> {
    let mut found: Vec<Reachable> = Vec::new();
    let mut before: Option<(&LogFile, &Scan)> = None;
    for (file, scan) in scans {
        let mut goes_on = before.is_some_and(|(last, end)| follows(last, end, file));
        for stretch in &scan.stretches {
            let joined = found.last_mut().filter(|_| std::mem::take(&mut goes_on));
            match joined {
                Some(way) => extend(way, file, stretch),
                None => {
                    let mut way = Reachable {
                        from_file: file.name.clone(),
                        from_position: stretch.begin,
                        to_file: file.name.clone(),
                        to_position: stretch.begin,
                        ..Reachable::default()
                    };
                    extend(&mut way, file, stretch);
                    found.push(way);
                }
            }
        }
        before = Some((file, scan));
    }
    found.retain(|way| way.to_time.is_some());
    found
}

fn extend(way: &mut Reachable, file: &LogFile, stretch: &super::file::Stretch) {
    let time = |seconds: u32| {
        std::time::UNIX_EPOCH
            .checked_add(std::time::Duration::from_secs(u64::from(seconds)))
            .map(utc_seconds)
    };
    if way.from_time.is_none() {
        way.from_time = stretch.first_time.and_then(time);
    }
    if let Some(last) = stretch.last_commit {
        way.to_file.clone_from(&file.name);
        way.to_position = last;
        way.to_time = stretch.last_time.and_then(time).max(way.to_time.take());
    }
}

/// True if a file goes on where another one ends without a fault.
fn follows(before: &LogFile, scan: &Scan, after: &LogFile) -> bool {
    let is_next = before.base == after.base
        && before
            .number
            .zip(after.number)
            .is_some_and(|(last, next)| last.checked_add(1) == Some(next));
    let is_whole = scan.torn_from.is_none()
        && scan.encrypted_from.is_none()
        && scan.stretches.last().is_some_and(|stretch| stretch.end == scan.bytes);
    let is_named = !matches!(&scan.end, End::Rotated(next) if *next != after.name);
    is_next && is_whole && is_named
}

/// How far a backup can be brought, or why it cannot be at all.
fn way_of(need: &Need, scans: &[(LogFile, Scan)]) -> Result<Reachable, (Kind, String)> {
    let Need { set, file, position } = need;
    let mut from = scans.iter().skip_while(|(one, _)| one.name != *file);
    let Some((first, scan)) = from.next() else {
        let words = format!(
            "it is not here, and the log of backup {set} goes on in it at byte {position}: the backup can \
             be brought to no later moment"
        );
        return Err((Kind::Missing, words));
    };
    if let Some(from) = scan.encrypted_from {
        let words = format!(
            "encrypted from byte {from} on: how far backup {set} can be brought is not known"
        );
        return Err((Kind::Header, words));
    }
    // The end of one event, and no other place.
    let begins = scan.bounds.binary_search(position).is_ok();
    let own = scan.stretches.iter().find(|it| (it.begin..=it.end).contains(position));
    let Some(own) = own.filter(|_| begins || *position == 4) else {
        let words = format!(
            "no sound event begins or ends at byte {position}, where the log of backup {set} goes on: it \
             is of another server, or damaged there"
        );
        return Err((Kind::Structure, words));
    };
    let mut way = Reachable {
        set: Some(set.clone()),
        from_file: file.clone(),
        from_position: *position,
        to_file: file.clone(),
        to_position: *position,
        ..Reachable::default()
    };
    if own.last_commit.is_some_and(|last| last > *position) {
        let after = super::file::Stretch { first_time: None, ..*own };
        extend(&mut way, first, &after);
    }
    let mut before = (first, scan, own.end);
    for (file, scan) in from {
        let (last, end, reached) = before;
        let Some(stretch) = scan.stretches.first().filter(|_| reached == end.bytes) else { break };
        if !follows(last, end, file) {
            break;
        }
        extend(&mut way, file, &super::file::Stretch { first_time: None, ..*stretch });
        before = (file, scan, stretch.end);
    }
    Ok(way)
}

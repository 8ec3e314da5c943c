//! Base backups beside a plain archive of the log: what `archive_command` copies or `pg_receivewal`
//! receives.
//!
//! Each backup is a set, as in the repository of a tool, and the folder with the log is the repository
//! itself. Segments that a backup brought along (`pg_wal`, `pg_wal.tar`) count where the archive has
//! none: a server that is started on that backup finds them.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::archived_log::{
    ArchivedLog, ArchivedLogs, JoinedLog, LogArchive, LogFolder, TakenOut, decoded,
};
use crate::files::backup::books::{Books, Found};
use crate::files::backup::label::LABEL;
use crate::files::backup::log::segments_in;
use crate::files::backup::{log_archive, manifest, walk_of};
use crate::files::wal::segment::SegmentName;
use crate::files::{is_root, read_control_settled};
use pagewarden_core::database::repository::{Backup, BackupKind, Outcomes, RepositoryPart, Sets};
use pagewarden_core::database::{OpenOptions, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_small};
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{Note, Unread};

const LABEL_BYTES_MAX: usize = 16 << 10;
/// The log in a data directory: today's name, and that of 9.6.
const LOG_FOLDERS: [&str; 2] = ["pg_wal", "pg_xlog"];

/// Opens base backups, and at last the log in the folder `log`.
///
/// # Errors
/// The folder cannot be listed, or a backup cannot be opened.
pub(crate) fn open(paths: &[PathBuf], log: &Path, options: &OpenOptions) -> Result<Sets, Error> {
    let folder = LogFolder::list_received(&log.into());
    let folder = folder.map_err(|source| Error::io("list", log, source))?;
    let mut options = options.clone();
    options.wal.get_or_insert_with(|| log.to_owned());
    let mut targets = Vec::new();
    let mut sets = Vec::new();
    for path in paths {
        let set = Arc::new(Books::of(path.display().to_string()));
        targets.push(open_set(path, &set, &options)?);
        sets.push((path.clone(), set));
    }
    let log = log.to_owned();
    let outcomes = Outcomes::default();
    let known = outcomes.clone();
    let last = move || log_of(&log, folder, &sets, known);
    let count = targets.len().saturating_add(1);
    Ok(Sets::of(count, targets.into_iter().chain(std::iter::once_with(last)), outcomes))
}

fn open_set(path: &Path, books: &Arc<Books>, options: &OpenOptions) -> Result<Target, Error> {
    let metadata = fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    if metadata.is_dir() && is_root(path) {
        learn(path, books);
        let mut target = super::super::open(path, &metadata, options)?;
        target.description.part = books.backup().map(RepositoryPart::Set);
        return Ok(target);
    }
    let mut walk = walk_of(&path.into(), metadata.is_dir(), &options.into())?;
    walk.books = Some(Arc::clone(books));
    walk.into_target()
}

/// What a data directory says of itself.
fn learn(root: &Path, books: &Books) {
    let label = read_small(&root.join(LABEL), LABEL_BYTES_MAX).ok();
    let label = label.map(|label| String::from_utf8_lossy(&label).into_owned());
    let control = read_control_settled(root).ok().and_then(Result::ok);
    // What is wrong with the manifest is said where the files are compared with it.
    let manifest = open_regular(&root.join(manifest::NAME)).ok();
    let manifest = manifest.and_then(|it| manifest::read(BufReader::new(it), &mut |_| {}).ok());
    books.learn(label.as_deref(), control.as_ref(), manifest.as_ref());
}

/// The log, when all backups were read.
fn log_of(
    root: &Path,
    folder: LogFolder,
    sets: &[(PathBuf, Arc<Books>)],
    outcomes: Outcomes,
) -> Target {
    let mut steps = Vec::new();
    let mut archive = JoinedLog::of(Arc::new(folder));
    let mut found = Vec::new();
    for (path, books) in sets {
        match books.get() {
            Ok(it) => found.push((path.as_path(), it)),
            Err(why) => {
                let error = format!("how far it can be brought is not known: {why}");
                steps.push(Step::Unread(Unread::of_file(books.label(), error)));
            }
        }
    }
    let mut whole: Vec<Arc<Backup>> = Vec::new();
    for (path, it) in &found {
        if is_whole(it, &found, &outcomes) {
            steps.extend(add_own_log(path, it, &mut archive));
            whole.push(Arc::clone(&it.backup));
        } else {
            let error = "it is incremental, and the backup that it builds on is damaged, or not among \
                         those that were named: it cannot be restored without that";
            steps.push(Step::Unread(Unread::of_file(&it.backup.label, error)));
        }
    }
    whole.sort_by_key(|backup| backup.from_lsn);
    let log = ArchivedLog {
        name: root.display().to_string(),
        archive: Arc::new(archive),
        sets: whole,
        asked: None,
        waits_for_log: false,
    };
    let what = "the log beside base backups".to_owned();
    let mut target =
        ArchivedLogs { path: root.to_owned(), what, logs: vec![log], outcomes }.into_target();
    target.steps = Box::new(steps.into_iter().chain(target.steps));
    target
}

/// True if all backups that one builds on are here and not damaged.
fn is_whole(one: &Found, all: &[(&Path, &Found)], outcomes: &Outcomes) -> bool {
    let mut one = one;
    // Each builds on an older one.
    for _ in 0..=all.len() {
        if one.backup.kind == BackupKind::Full {
            return true;
        }
        let is_prior = |other: &&Found| {
            other.backup.from_lsn.map(|lsn| lsn.0) == one.prior_lsn
                && other.backup.system_identifier == one.backup.system_identifier
                && !outcomes.is_damaged(&other.backup.label)
        };
        let Some(prior) = all.iter().map(|(_, found)| *found).find(is_prior) else { return false };
        one = prior;
    }
    false
}

/// Adds the segments that a backup needs and brought along, where the archive has none.
fn add_own_log(path: &Path, set: &Found, archive: &mut JoinedLog) -> Option<Step> {
    let (timeline, from) = (set.backup.timeline?, set.backup.from_lsn?.0);
    let bytes = u64::from(set.segment_bytes.max(1));
    let begin = SegmentName { timeline, begin: from - from % bytes };
    let to = set.backup.to_lsn.map_or(from.saturating_add(1), |lsn| lsn.0);
    let mut name = begin;
    let mut lacks = false;
    while name.begin < to && !lacks {
        lacks = !archive.has(&name.file_name(set.segment_bytes));
        name.begin = name.begin.saturating_add(bytes);
    }
    if !lacks {
        return None;
    }
    let (own, place) = own_log(path, begin, set.segment_bytes)?;
    let behind = |name: &str| {
        let name = SegmentName::parse(name, set.segment_bytes);
        name.is_some_and(|name| name.timeline == timeline && name.begin >= begin.begin)
    };
    let added = archive.add(own, behind);
    let first = added.iter().min()?;
    let text = format!(
        "the archive does not have this segment, and the backup brought it along in {}: a server that \
         is started on this backup finds it there, one that is started on another does not",
        place.display()
    );
    let more = added.len().saturating_sub(1);
    let text = if more > 0 { format!("{text}; and {more} more likewise") } else { text };
    Some(Step::Note(Note { file: first.clone(), text }))
}

/// The log that a backup brought along, and where it is.
fn own_log(
    path: &Path,
    begin: SegmentName,
    segment_bytes: u32,
) -> Option<(Arc<dyn LogArchive>, PathBuf)> {
    let root = StorePath::local(path);
    for name in LOG_FOLDERS {
        if let Ok(log) = LogFolder::list(&root, &root.join(name), Box::new(decoded)) {
            return Some((Arc::new(log), path.join(name)));
        }
    }
    let folder = if path.is_dir() { path } else { path.parent()? };
    let archive = log_archive(&folder.into())?;
    let files: BTreeMap<_, _> = segments_in(&archive, begin, segment_bytes).ok()?;
    Some((Arc::new(TakenOut::of(archive.name()?, files)), archive.path().to_owned()))
}

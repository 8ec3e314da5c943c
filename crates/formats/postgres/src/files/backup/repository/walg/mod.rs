//! WAL-G.
//!
//! ```text
//! basebackups_005/NAME_backup_stop_sentinel.json   a backup is one only if this is there
//! basebackups_005/NAME/files_metadata.json         its files, and what a delta takes from the one before
//! basebackups_005/NAME/tar_partitions/part_001.tar.lz4 ...   independent archives, in any order
//! basebackups_005/NAME/tar_partitions/pg_control.tar.lz4     the control file alone
//! wal_005/                                         the log
//! ```
//!
//! Names in the archives are absolute and mean the data directory; tablespaces are in the same ones.
//! Files have no sums but those of lz4 and zstd; brotli and LZMA have none, so that only pages tell.
//! WAL-G reads files once and never again, so that a failing page is `suspect` as in every copy of a
//! running server.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::tars::{Form, StoredTar, Tars, stored_finding};
use super::whole::{self, Whole, WholeLog};
use crate::files::archived_log::{ArchivedLog, LogArchive};
use crate::files::backup::ground::Ground;
use crate::files::backup::members::SetTerms;
use crate::files::backup::stream::ArchiveWalk;
use crate::files::backup::taking::Opening;
use pagewarden_core::database::repository::{
    Backup, BackupKind, Lsn, Outcomes, RepositoryKind, RepositoryOptions, Sets,
};
use pagewarden_core::database::{OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::secretstream::Key;
use pagewarden_core::source::store::{Listed, Seen, StorePath};
use pagewarden_core::verdict::{Kind, Note, Unread};

mod increment;
mod key;
mod log;
mod members;
mod origins;
mod sentinel;

use key::{NoKey, Stored};
use members::{Base, Chain, Level};
use origins::Origins;
use sentinel::{BooksError, ENDING, FILES, Files, Sentinel};

/// The tool.
pub(super) const REPOSITORY: RepositoryKind = RepositoryKind { tool: TOOL, probe, open };

const TOOL: &str = "WAL-G";
/// The folder of all backups; the number is that of the layout.
const BACKUPS: &str = "basebackups_005";
/// The folder of a backup's parts.
const PARTS: &str = "tar_partitions";
/// The parts that are read first.
const FIRST: [&str; 2] = ["pg_control.tar", "backup_label.tar"];
/// Sentinels that are looked at before a folder is taken for one of another database's backups.
const LOOKED_AT: usize = 8;

/// The storage that a path belongs to.
#[derive(Debug, Clone)]
struct Storage {
    /// The folder with the folder of all backups.
    root: StorePath,
    /// The one backup that was named.
    only: Option<String>,
}

impl Storage {
    fn of(place: &StorePath) -> Option<Self> {
        if place.join(BACKUPS).is_folder() {
            return Some(Self { root: place.clone(), only: None });
        }
        let place = place.absolute().ok()?;
        if place.name()? == BACKUPS {
            return Some(Self { root: place.parent()?, only: None });
        }
        let folder = place.parent().filter(|_| place.join(PARTS).is_folder())?;
        let root = folder.parent().filter(|_| folder.name() == Some(BACKUPS))?;
        Some(Self { root, only: place.name().map(str::to_owned) })
    }

    fn folder(&self) -> StorePath {
        self.root.join(BACKUPS)
    }

    fn sentinel(&self, label: &str) -> StorePath {
        self.folder().join(format!("{label}{ENDING}"))
    }
}

fn probe(place: &StorePath) -> Probe {
    let Some(storage) = Storage::of(place) else { return Probe::No };
    let Ok((labels, unfinished)) = list(&storage.folder()) else { return Probe::No };
    // Backups of other databases lie in folders of the same name.
    let is_one = |label: &String| {
        let sentinel = Sentinel::read(&storage.sentinel(label));
        sentinel.is_ok_and(|sentinel| sentinel.pg_version.is_some())
            || storage.folder().join(label).join(PARTS).is_folder()
    };
    Probe::yes_if(!unfinished.is_empty() || labels.iter().take(LOOKED_AT).any(is_one))
}

/// Labels that have a sentinel, and those of folders that have none.
fn list(folder: &StorePath) -> io::Result<(Vec<String>, Vec<String>)> {
    let (mut labels, mut folders) = (Vec::new(), Vec::new());
    for Listed { name, seen } in folder.list()? {
        match name.strip_suffix(ENDING) {
            Some(label) => labels.push(label.to_owned()),
            None if !matches!(seen, Seen::File(_))
                && folder.join(&name).join(PARTS).is_folder() =>
            {
                folders.push(name);
            }
            None => {}
        }
    }
    labels.sort_unstable();
    folders.retain(|name| labels.binary_search(name).is_err());
    folders.sort_unstable();
    Ok((labels, folders))
}

/// A backup that has a sentinel.
#[derive(Debug)]
struct Set {
    label: String,
    /// Why nothing is known from the sentinel, if that is so.
    sentinel: Result<Sentinel, BooksError>,
}

fn open(place: &StorePath, options: &OpenOptions) -> Result<Sets, Error> {
    open_for(place, &options.into())
}

pub(super) fn open_for(place: &StorePath, options: &Opening) -> Result<Sets, Error> {
    let path = place.path();
    let Some(storage) = Storage::of(place) else {
        return Err(Error::unrecognised(
            path,
            "no storage of WAL-G",
            format!("name the folder that holds {BACKUPS}"),
        ));
    };
    whole::refuse_stanza(path, &options.repository)?;
    let folder = storage.folder();
    let (labels, unfinished) =
        list(&folder).map_err(|source| Error::io("list", folder.path(), source))?;
    let wanted = &options.repository;
    refuse_absent(&storage, wanted, &labels, &unfinished)?;
    let read = labels.into_iter().map(|label| {
        let sentinel = Sentinel::read(&storage.sentinel(&label));
        Set { label, sentinel }
    });
    let mut sets: Vec<Set> = read.collect();
    sets.sort_by_key(|set| set.sentinel.as_ref().ok().and_then(|sentinel| sentinel.lsn));
    let known = sets.iter().filter_map(|set| {
        let sentinel = set.sentinel.as_ref().ok()?;
        Some(Arc::new(backup(&set.label, sentinel, None, None)))
    });
    let known: Vec<_> = known.collect();
    let all_sets = sets.len();
    sets.retain(|set| {
        wanted.wants(&set.label) && storage.only.as_ref().is_none_or(|only| *only == set.label)
    });
    if wanted.latest {
        sets.drain(..sets.len().saturating_sub(1));
    }
    let has_whole = storage.only.is_none();
    let count = sets.len() + usize::from(has_whole);
    let mut opener = Opener {
        storage: storage.clone(),
        options: options.clone(),
        key: key::find(wanted.cipher_pass_file.as_deref()),
        sound: Arc::default(),
        log: None,
    };
    let log = match wanted.no_log {
        true => WholeLog::LeftOut,
        false => match log::list(&storage, &opener.key) {
            Ok(Some(log)) => {
                let archive: Arc<dyn LogArchive> = Arc::new(log);
                opener.log = Some(Arc::clone(&archive));
                let name = TOOL.to_owned();
                let asked = Some(sets.iter().map(|set| set.label.clone()).collect());
                let log = ArchivedLog { name, archive, sets: known, asked, waits_for_log: false };
                WholeLog::Read(vec![log])
            }
            Ok(None) => WholeLog::Unread("there is no folder of it".to_owned()),
            Err(error) => WholeLog::Unread(error.to_string()),
        },
    };
    let outcomes = Outcomes::default();
    let outline = log.outline();
    let whole = has_whole.then(|| {
        whole::target(Whole {
            root: storage.root.path().to_owned(),
            tool: TOOL,
            sets: all_sets,
            steps: unfinished.iter().map(|label| unfinished_set(label)).collect(),
            log,
            outcomes: outcomes.clone(),
        })
    });
    let targets = sets.into_iter().map(move |set| opener.target(&set)).chain(whole);
    Ok(Sets::of(count, targets, outcomes).with_outline(outline))
}

/// Sets that are wanted by name must be there.
fn refuse_absent(
    storage: &Storage,
    wanted: &RepositoryOptions,
    labels: &[String],
    unfinished: &[String],
) -> Result<(), Error> {
    let all: HashSet<&String> = labels.iter().collect();
    let mut names = wanted.sets.iter().chain(&storage.only);
    let Some(absent) = names.find(|label| !all.contains(label)) else { return Ok(()) };
    let reason = match unfinished.contains(absent) {
        true => format!(
            "the backup {absent} has no sentinel: WAL-G has not finished it, or has removed it"
        ),
        false => format!("there is no backup {absent}"),
    };
    let hint = format!("there are: {}", labels.join(", "));
    Err(Error::refused(storage.root.path(), reason, hint))
}

fn unfinished_set(label: &str) -> Step {
    let text = "a backup without its sentinel: WAL-G has not finished it, or has removed it; it was \
                not judged";
    Step::Note(Note { file: format!("{BACKUPS}/{label}"), text: text.to_owned() })
}

/// A part's name in the report.
fn shown_part(label: &str, part: &str) -> String {
    format!("{BACKUPS}/{label}/{PARTS}/{part}")
}

/// Opens sets, each when it is asked for.
struct Opener {
    storage: Storage,
    options: Opening,
    key: Result<Key, NoKey>,
    /// Sets that this run has found sound.
    sound: Arc<Mutex<Vec<Verified>>>,
    log: Option<Arc<dyn LogArchive>>,
}

/// What came of a set, known once its target was gone through.
struct Verified {
    label: String,
    has_ended: Arc<AtomicBool>,
    has_faults: Arc<AtomicBool>,
}

impl Opener {
    fn target(&self, set: &Set) -> Target {
        let label = &set.label;
        let origins = Arc::new(Origins::new(self.storage.folder()));
        let (level, base, bytes) = match &set.sentinel {
            Ok(sentinel) => {
                let (level, bytes) = self.storage.level(label, sentinel, &self.key);
                let base = if level.is_closed { Base::None } else { self.base(sentinel) };
                (level, base, bytes)
            }
            Err(error) => {
                // Without it WAL-G restores nothing.
                let shown = format!("{BACKUPS}/{label}{ENDING}");
                let what = match error {
                    BooksError::Unread(error) => {
                        Step::Unread(Unread::of_file(&shown, error.to_string()))
                    }
                    BooksError::Missing => {
                        Step::Finding(stored_finding(&shown, Kind::Missing, "it is not there"))
                    }
                    BooksError::Wrong(why) => {
                        let detail = format!("the sentinel cannot be believed: {why}");
                        Step::Finding(stored_finding(&shown, Kind::Header, detail))
                    }
                };
                let error = "without its sentinel nothing is known of the backup, and WAL-G does \
                             not restore it: its parts were not read";
                let unread = Unread::of_file(format!("{BACKUPS}/{label}"), error.to_owned());
                let steps = vec![what, Step::Unread(unread)];
                let tars = Tars::new([], true);
                (
                    Level { label: label.clone(), tars, files: None, steps, is_closed: true },
                    Base::None,
                    None,
                )
            }
        };
        let files = level.files.as_ref().map(|files| files.files.len() as u64);
        let sentinel = set.sentinel.as_ref().ok().cloned().unwrap_or_default();
        let backup = backup(label, &sentinel, files, bytes);
        let has_faults = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::new(AtomicBool::new(false));
        let terms = SetTerms {
            what: format!("{} backup by {TOOL}", backup.kind.name()),
            backup: Arc::new(backup),
            ground: Ground::Copied,
            is_whole: !matches!(base, Base::Sound(_)) && set.sentinel.is_ok(),
            log: self.log.clone(),
            judge: {
                let (has_faults, origins) = (Arc::clone(&has_faults), Arc::clone(&origins));
                Arc::new(move |finding, _| {
                    has_faults.store(true, Ordering::Relaxed);
                    origins.tell(finding);
                })
            },
        };
        let chain = Chain::new(level, base, self.open_base(label), origins);
        let path = PathBuf::from(format!("{}#{label}", self.storage.root.path().display()));
        let mut target = ArchiveWalk::new(path, &self.options).into_set(terms, Box::new(chain));
        let verified = Verified {
            label: label.clone(),
            has_ended: Arc::clone(&has_ended),
            has_faults: Arc::clone(&has_faults),
        };
        self.sound.lock().unwrap_or_else(PoisonError::into_inner).push(verified);
        target.steps = Box::new(Watched { steps: target.steps, has_ended, has_faults });
        target
    }

    fn base(&self, sentinel: &Sentinel) -> Base {
        let Some(base) = sentinel.delta_from.clone() else { return Base::None };
        let sound = self.sound.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sound = sound.iter().any(|one| {
            one.label == base
                && one.has_ended.load(Ordering::Relaxed)
                && !one.has_faults.load(Ordering::Relaxed)
        });
        if is_sound { Base::Sound(base) } else { Base::Unread(base) }
    }

    /// Opens the sets that this one builds on, none of them twice.
    fn open_base(&self, label: &str) -> members::OpenBase {
        let storage = self.storage.clone();
        let key = self.key.clone();
        let mut seen = HashSet::from([label.to_owned()]);
        Box::new(move |label| {
            let shown = format!("{BACKUPS}/{label}{ENDING}");
            let failed = |kind, detail: String| {
                Box::new(Step::Finding(stored_finding(&shown, kind, detail)))
            };
            if label.contains('/') || !seen.insert(label.to_owned()) {
                let detail = "sets build on one another in a circle, or on none".to_owned();
                return Err(failed(Kind::Header, detail));
            }
            match Sentinel::read(&storage.sentinel(label)) {
                Ok(sentinel) => {
                    let (level, _) = storage.level(label, &sentinel, &key);
                    Ok((level, sentinel.delta_from))
                }
                Err(BooksError::Missing) => {
                    let detail = "the set that this one builds on is not there";
                    Err(failed(Kind::Missing, detail.to_owned()))
                }
                Err(BooksError::Unread(error)) => {
                    Err(Box::new(Step::Unread(Unread::of_file(shown.clone(), error.to_string()))))
                }
                Err(BooksError::Wrong(why)) => {
                    let detail = format!("the sentinel of the set that this one builds on: {why}");
                    Err(failed(Kind::Header, detail))
                }
            }
        })
    }
}

/// A set's steps, with an ear for what is wrong with it.
struct Watched {
    steps: Box<dyn Iterator<Item = Step> + Send>,
    has_ended: Arc<AtomicBool>,
    has_faults: Arc<AtomicBool>,
}

impl Iterator for Watched {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = self.steps.next();
        match &step {
            None => self.has_ended.store(true, Ordering::Relaxed),
            Some(Step::Finding(_) | Step::Overruled(..) | Step::Unread(_) | Step::Untested(..)) => {
                self.has_faults.store(true, Ordering::Relaxed);
            }
            Some(_) => {}
        }
        step
    }
}

fn backup(label: &str, sentinel: &Sentinel, files: Option<u64>, bytes: Option<u64>) -> Backup {
    // base_000000010000000000000012_D_...: the segment begins with the timeline.
    let timeline = label.strip_prefix("base_").and_then(|segment| segment.get(..8));
    Backup {
        tool: TOOL,
        label: label.to_owned(),
        kind: match sentinel.delta_from {
            Some(_) => BackupKind::Incremental,
            None => BackupKind::Full,
        },
        prior: sentinel.delta_from.clone(),
        started: sentinel.start_time.clone(),
        stopped: sentinel.finish_time.clone(),
        from_lsn: sentinel.lsn.map(Lsn),
        to_lsn: sentinel.finish_lsn.map(Lsn),
        timeline: timeline.and_then(|digits| u32::from_str_radix(digits, 16).ok()),
        database_version: sentinel.major(),
        system_identifier: sentinel.system_identifier,
        files,
        repository_bytes: bytes,
    }
}

impl Storage {
    /// A set, ready to be read, and the bytes of its parts.
    fn level(
        &self,
        label: &str,
        sentinel: &Sentinel,
        key: &Result<Key, NoKey>,
    ) -> (Level, Option<u64>) {
        let mut steps = Vec::new();
        let files = self.files(label, sentinel, &mut steps);
        // Without it, what is a page and what a header is not known.
        let is_blind = files.is_none() && sentinel.delta_from.is_some();
        let (mut parts, bytes) = match self.parts(label) {
            Ok((parts, bytes)) => (parts, Some(bytes)),
            Err(error) => {
                let folder = format!("{BACKUPS}/{label}/{PARTS}");
                steps.push(match error.kind() {
                    io::ErrorKind::NotFound => Step::Finding(stored_finding(
                        &folder,
                        Kind::Missing,
                        "the folder with the parts of the backup is not there",
                    )),
                    _ => Step::Unread(Unread::of_file(folder, error.to_string())),
                });
                (Vec::new(), None)
            }
        };
        let mut files = files;
        let is_closed = !is_blind && !forms(&mut parts, key, &mut steps, label);
        if is_blind || is_closed {
            parts.clear();
            files = None;
        }
        let tars = Tars::new(parts, true);
        (
            Level { label: label.to_owned(), tars, files, steps, is_closed: is_blind || is_closed },
            bytes,
        )
    }

    /// The list of files.
    fn files(&self, label: &str, sentinel: &Sentinel, steps: &mut Vec<Step>) -> Option<Files> {
        if sentinel.files_metadata_disabled == Some(true) {
            return None;
        }
        let shown = format!("{BACKUPS}/{label}/{FILES}");
        let (kind, detail) = match Files::read(&self.folder().join(label).join(FILES)) {
            Ok(files) => return Some(files),
            Err(BooksError::Unread(error)) => {
                steps.push(Step::Unread(Unread::of_file(shown, error.to_string())));
                return None;
            }
            Err(BooksError::Missing) => (Kind::Missing, "it is not there".to_owned()),
            Err(BooksError::Wrong(why)) => (Kind::Header, why),
        };
        let detail = format!("the list of the backup's files: {detail}");
        steps.push(Step::Finding(stored_finding(&shown, kind, detail)));
        if sentinel.delta_from.is_some() {
            let error = "which files the set takes from the one before it is not known: its parts \
                         were not read";
            steps.push(Step::Unread(Unread::of_file(shown, error.to_owned())));
        }
        None
    }

    /// The parts, in the order in which they are read, and their bytes.
    fn parts(&self, label: &str) -> io::Result<(Vec<StoredTar>, u64)> {
        let mut parts = Vec::new();
        let mut bytes = 0_u64;
        let folder = self.folder().join(label).join(PARTS);
        for Listed { name, seen } in folder.list()? {
            if name.starts_with('.') || !name.contains(".tar") {
                continue;
            }
            if let Seen::File(length) = seen {
                bytes = bytes.saturating_add(length);
            }
            parts.push(StoredTar {
                place: folder.join(&name),
                shown: shown_part(label, &name),
                prefix: String::new(),
                form: Form::default(),
            });
        }
        parts.sort_by_cached_key(|part| {
            let name = part.place.name().unwrap_or_default().to_owned();
            let first = FIRST.iter().position(|first| name.starts_with(first));
            (first.unwrap_or(FIRST.len()), name.len(), name)
        });
        Ok((parts, bytes))
    }
}

/// Finds out how the parts are stored. False if they cannot be read, which was said.
fn forms(
    parts: &mut [StoredTar],
    key: &Result<Key, NoKey>,
    steps: &mut Vec<Step>,
    label: &str,
) -> bool {
    let known = key.as_ref().ok();
    let stored: Vec<_> = parts.iter().map(|part| key::stored(part, known).ok()).collect();
    let is = |wanted: fn(&Stored) -> bool| stored.iter().flatten().any(wanted);
    let is_encrypted = is(|stored| matches!(stored, Stored::Encrypted(_)));
    let is_readable = is_encrypted || is(|stored| matches!(stored, Stored::Plain(_)));
    if is(|stored| *stored == Stored::OpenPgp) {
        let error = "encrypted with OpenPGP, which is not read here: restore the backup into a \
                     scratch folder with wal-g backup-fetch, and check that (gpg -d does not give \
                     these parts back unchanged)";
        steps.push(Step::Unread(Unread::of_file(format!("{BACKUPS}/{label}"), error.to_owned())));
        return false;
    }
    if !is_readable && !parts.is_empty() {
        let why = match key {
            Ok(_) => "the key that was given opens none of its parts".to_owned(),
            Err(no_key) => no_key.to_string(),
        };
        let error = format!(
            "no part begins like an archive: they are encrypted, and {why}; give the libsodium key with --cipher-pass-file FILE or in WALG_LIBSODIUM_KEY and WALG_LIBSODIUM_KEY_TRANSFORM"
        );
        steps.push(Step::Unread(Unread::of_file(format!("{BACKUPS}/{label}"), error)));
        return false;
    }
    for (part, stored) in parts.iter_mut().zip(stored) {
        part.form = match stored {
            Some(Stored::Encrypted(compression)) => Form { compression, key: known.cloned() },
            Some(Stored::Plain(compression)) => Form { compression, key: None },
            // It fails when it is read, and that is said there.
            _ => {
                let is_brotli = part.place.has_ending("br");
                let compression =
                    is_brotli.then_some(pagewarden_core::source::decode::Compression::Brotli);
                Form { compression, key: known.filter(|_| is_encrypted).cloned() }
            }
        };
    }
    true
}

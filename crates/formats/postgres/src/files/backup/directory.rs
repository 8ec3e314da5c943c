//! A base backup in a folder, compared with its manifest: every file is read
//! once more from end to end, after its pages were judged.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

use crate::files::backup::beside;
use crate::files::backup::hash::Hasher;
use crate::files::backup::label::LABEL;
use crate::files::backup::ledger::{is_beyond_manifest, missing, wrong_hash, wrong_length};
use crate::files::backup::manifest::{self, Entry};
use pagewarden_core::database::Step;
use pagewarden_core::database::thread::FAILED;
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::residency::{absent, forget};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};

/// Bytes that are hashed at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Entries that the parser of the manifest is ahead.
const ENTRIES_AHEAD: usize = 256;
const CONTROL: &str = "global/pg_control";
/// Enough to show what lies about.
const NOTES_MAX: u64 = 20;

/// Holds the files of a backup against its manifest, if it has one.
pub(in crate::files) fn against_manifest(root: &Path) -> ManifestCheck {
    ManifestCheck { root: root.to_owned(), state: State::Begin }
}

/// True for a backup that lies as it was taken, but for the `backup_label` that its manifest lists: a server
/// would start on it, and not replay the log from where the backup began. One that was started since has
/// another control file.
pub(in crate::files) fn has_lost_its_label(root: &Path) -> bool {
    let Ok(file) = open_regular(&root.join(manifest::NAME)) else { return false };
    let (mut has_label, mut control) = (false, None);
    let read = manifest::read(BufReader::new(&file), &mut |entry| {
        has_label |= entry.path == LABEL;
        if entry.path == CONTROL {
            control = entry.hash;
        }
    });
    let (Ok(_), true, Some((algorithm, listed))) = (read, has_label, control) else { return false };
    let Ok(content) = fs::read(root.join(CONTROL)) else { return false };
    let mut hasher = Hasher::new(algorithm);
    hasher.update(&content);
    !root.join(LABEL).exists() && hasher.finish() == listed
}

/// See the module.
pub(in crate::files) struct ManifestCheck {
    root: PathBuf,
    state: State,
}

enum State {
    Begin,
    Files(Box<Files>),
    End,
}

/// The way through the manifest's entries.
struct Files {
    entries: Receiver<Entry>,
    /// Those that are still to come.
    left: u64,
    listed: Listed,
    hashing: Option<Hashing>,
}

/// The names in the manifest, by a keyed hash.
#[derive(Default)]
struct Listed {
    keys: RandomState,
    names: HashSet<u64>,
}

/// The file that is hashed.
struct Hashing {
    entry: Entry,
    file: File,
    hasher: Hasher,
    bytes: u64,
    absent: Option<Vec<std::ops::Range<u64>>>,
}

impl ManifestCheck {
    fn begin(&mut self) -> Option<Step> {
        let path = self.root.join(manifest::NAME);
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(unread(manifest::NAME, 0, &error)),
        };
        // Once for its own checksum, once for what it says.
        let left = match manifest::read(BufReader::new(&file), &mut |_| {}) {
            Ok(manifest) => manifest.files,
            Err(error) => {
                let detail = format!("the backup's manifest cannot be believed: {error}");
                let finding =
                    Finding::of_file(manifest::NAME, Severity::Damage, Kind::Checksum, detail);
                return Some(Step::Finding(finding));
            }
        };
        let mut file = file;
        if let Err(error) = file.seek(SeekFrom::Start(0)) {
            return Some(unread(manifest::NAME, 0, &error));
        }
        let (sender, entries) = sync_channel(ENTRIES_AHEAD);
        std::thread::spawn(move || {
            // The first reading has reported any error. Where the run was stopped,
            // no thread receives the entries any more.
            let _ = manifest::read(BufReader::new(file), &mut |entry| {
                let _ = sender.send(entry);
            });
        });
        let files = Files { entries, left, listed: Listed::default(), hashing: None };
        self.state = State::Files(Box::new(files));
        None
    }

    /// What comes of the next file or the next piece of it; `None` where that
    /// is nothing.
    fn advance(&mut self) -> Option<Step> {
        let State::Files(files) = &mut self.state else { return None };
        let Files { entries, left, listed, hashing } = &mut **files;
        if let Some(reading) = hashing {
            let step = reading.read_on().map(|step| excused(&self.root, step));
            if !matches!(step, Some(Step::Passed(_))) {
                *hashing = None;
            }
            return step;
        }
        let Ok(entry) = entries.recv() else {
            if std::mem::take(left) > 0 {
                return Some(Step::Unread(Unread::of_file(manifest::NAME, FAILED)));
            }
            let listed = std::mem::take(listed);
            self.state = State::End;
            return Some(unlisted(&self.root, &listed));
        };
        *left = left.saturating_sub(1);
        listed.add(&entry.path);
        if is_beyond_manifest(&entry.path) {
            return None;
        }
        if leads_out(&entry.path) {
            let detail = "the backup's manifest lists a path outside of it".to_owned();
            let finding = Finding::of_file(manifest::NAME, Severity::Damage, Kind::Header, detail);
            return Some(Step::Finding(finding));
        }
        match Hashing::begin(&self.root, entry) {
            Ok(reading) => {
                *hashing = Some(reading);
                None
            }
            Err(step) => Some(excused(&self.root, *step)),
        }
    }
}

/// Settings are edited where a backup is restored, before a server is started on it: a file
/// of them that is younger than the manifest is no damage.
fn excused(root: &Path, step: Step) -> Step {
    const SETTINGS: [&str; 3] = ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"];
    let Step::Finding(finding) = step else { return step };
    let written = |name: &str| fs::metadata(root.join(name)).and_then(|data| data.modified());
    let name = finding.place.file.as_str();
    let is_edited = SETTINGS.contains(&name)
        && matches!((written(name), written(manifest::NAME)), (Ok(own), Ok(its)) if own > its);
    if !is_edited {
        return Step::Finding(finding);
    }
    let hint = "harmless if the settings were edited since the backup was restored";
    Step::Finding(finding.as_grave_as(Severity::Notice).with_hint(hint))
}

impl Iterator for ManifestCheck {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if matches!(self.state, State::Begin) {
            self.state = State::End;
            if let Some(step) = self.begin() {
                return Some(step);
            }
        }
        loop {
            if matches!(self.state, State::End) {
                return None;
            }
            if let Some(step) = self.advance() {
                return Some(step);
            }
        }
    }
}

impl Listed {
    fn add(&mut self, path: &str) {
        self.names.insert(self.keys.hash_one(path));
    }

    fn has(&self, path: &str) -> bool {
        self.names.contains(&self.keys.hash_one(path))
    }
}

impl Hashing {
    /// What is to be said instead, where there is nothing to hash.
    fn begin(root: &Path, entry: Entry) -> Result<Self, Box<Step>> {
        let path = place_of(root, &entry.path);
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Box::new(Step::Finding(missing(&entry.path))));
            }
            Err(error) => return Err(Box::new(unread(&entry.path, entry.bytes, &error))),
        };
        let length = match file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => return Err(Box::new(unread(&entry.path, entry.bytes, &error))),
        };
        if length != entry.bytes {
            let finding = wrong_length(&entry.path, length, entry.bytes);
            return Err(Box::new(Step::Finding(finding)));
        }
        let Some((algorithm, _)) = entry.hash else { return Err(Box::new(Step::Passed(0))) };
        let absent = absent(&file, length);
        let _ = pagewarden_core::system::fs::fadvise(
            &file,
            0,
            None,
            pagewarden_core::system::fs::Advice::Sequential,
        );
        Ok(Self { entry, file, hasher: Hasher::new(algorithm), bytes: 0, absent })
    }

    /// Reads on; `None` when all was read and found right.
    fn read_on(&mut self) -> Option<Step> {
        let mut bytes = vec![0_u8; CHUNK_BYTES];
        let count = match self.file.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Some(Step::Passed(0));
            }
            Err(error) => return Some(unread(&self.entry.path, self.entry.bytes, &error)),
        };
        if count > 0 {
            self.hasher.update(bytes.get(..count).unwrap_or_default());
            self.bytes = self.bytes.saturating_add(count as u64);
            return Some(Step::Passed(count as u64));
        }
        for gap in self.absent.iter().flatten() {
            forget(&self.file, gap);
        }
        let Some((algorithm, listed)) = &self.entry.hash else { return None };
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(*algorithm));
        (hasher.finish() != *listed)
            .then(|| Step::Finding(wrong_hash(&self.entry.path, *algorithm)))
    }
}

/// Where a file of the manifest is.
fn place_of(root: &Path, path: &str) -> PathBuf {
    let beside = path.strip_prefix("pg_tblspc/").and_then(|rest| {
        let (oid, inside) = rest.split_once('/')?;
        Some(beside::tablespace(root, oid)?.join(inside))
    });
    beside.unwrap_or_else(|| root.join(path))
}

fn unread(path: &str, length: u64, error: &io::Error) -> Step {
    Step::Unread(Unread::stretch(path, ByteOffset(0), length, error.to_string()))
}

fn leads_out(path: &str) -> bool {
    path.is_empty()
        || path.starts_with('/')
        || path.contains('\0')
        || path.split('/').any(|part| part == "..")
}

/// A word on files that the manifest does not list.
fn unlisted(root: &Path, listed: &Listed) -> Step {
    let mut count = 0_u64;
    let mut example = None;
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            let Ok(kind) = entry.file_type() else { continue };
            let is_tablespace = kind.is_symlink() && folder == "pg_tblspc/";
            if kind.is_dir() || is_tablespace {
                folders.push(format!("{path}/"));
            } else if !is_beyond_manifest(&path) && !listed.has(&path) {
                count = count.saturating_add(1);
                if count <= NOTES_MAX {
                    example.get_or_insert(path);
                }
            }
        }
    }
    match example {
        None => Step::Passed(0),
        Some(example) => Step::Note(Note {
            file: example,
            text: match count {
                1 => "a file that the backup's manifest does not list".to_owned(),
                _ => format!("one of {count} files that the backup's manifest does not list"),
            },
        }),
    }
}

//! Plans: everything that one check would look at, cut into units.
//!
//! A unit is one or more whole subjects, which follow one another. It never is a part of one: what
//! `check` says of a database follows from all of its files together.
//!
//! A plan holds paths and options, and nothing secret: a passphrase or key is named by its file.

use std::fs;
use std::io::{BufReader, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagewarden::database::repository::RepositoryOptions;
use pagewarden::database::{Format, OpenOptions, kind_named};
use pagewarden::source::store::{Seen as Stored, StorePath, Stores};
use pagewarden::system::{MetadataExt as _, identity};
use pagewarden::verdict::Note;
use pagewarden::words::{counted, grouped};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::line;
use crate::path::ExactPath;
use crate::subject::{Group, Subject, is_standard_input, units as subjects_of};

/// How a plan begins.
pub const BEGIN: &str = "{\"pagewarden_plan\":";
/// The version of the form. Another one is refused.
const VERSION: u32 = 1;
/// Folders in folders of a store whose bytes are counted.
const DEPTH_MAX: usize = 32;
/// What a user does with a plan that cannot be used.
const HINT: &str = "make it again: pagewarden plan PATH... -o PLAN";

/// How the targets of a plan are opened and judged: what a part must not decide for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// As `--format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// As `--wal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal: Option<PathBuf>,
    /// As `--keyring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
    /// As `--base`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub base: Vec<PathBuf>,
    /// As `--stanza`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stanza: Option<String>,
    /// As `--set`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// As `--latest`.
    #[serde(skip_serializing_if = "is_false")]
    pub latest: bool,
    /// As `--no-log`.
    #[serde(skip_serializing_if = "is_false")]
    pub no_log: bool,
    /// As `--cipher-pass-file`: the name of the file, not what is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher_pass_file: Option<PathBuf>,
    /// As `--settle`, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_ms: Option<u64>,
    /// As `--no-witness`.
    #[serde(skip_serializing_if = "is_false")]
    pub no_witness: bool,
    /// As `--structure`.
    #[serde(skip_serializing_if = "is_false")]
    pub structure: bool,
    /// As `--accept-unverifiable`.
    #[serde(skip_serializing_if = "is_false")]
    pub accept_unverifiable: bool,
}

// By reference: serde calls it so.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

impl Wanted {
    /// The format that every path is taken for.
    #[must_use]
    pub fn kind(&self) -> Option<&'static Format> {
        self.format.as_deref().and_then(kind_named)
    }

    /// How targets are opened, by this number of threads at most.
    #[must_use]
    pub fn open_options(&self, jobs: Option<NonZero<usize>>) -> OpenOptions {
        OpenOptions {
            wal: self.wal.clone(),
            settle: self.settle_ms.map(Duration::from_millis),
            no_witness: self.no_witness,
            structure: self.structure,
            keyring: self.keyring.clone(),
            bases: self.base.clone(),
            repository: RepositoryOptions {
                stanza: self.stanza.clone(),
                sets: self.set.clone(),
                latest: self.latest,
                no_log: self.no_log,
                cipher_pass_file: self.cipher_pass_file.clone(),
            },
            jobs,
        }
    }
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The hash of all of it: results name it.
    pub id: String,
    /// How its targets are opened.
    pub wanted: Wanted,
    /// What is checked.
    pub units: Vec<Unit>,
}

/// What is checked by one process in one go, and has one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    unit: u64,
    /// About how much there is to read.
    pub bytes: u64,
    /// What is in it, in the order of the plan.
    pub subjects: Vec<Planned>,
}

/// A subject of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    paths: Vec<ExactPath>,
    /// How many targets it has.
    pub targets: u64,
    /// What stood at each path.
    seen: Vec<Seen>,
    /// What is to be said of it besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Note>,
}

/// What stood at a path: enough to notice that another thing stands there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Seen {
    /// A regular file.
    File { size: u64, modified_ns: i64, inode: u64 },
    /// A folder. What is in it changes while a server runs, and is not compared.
    Folder { inode: u64 },
    /// A file of a store.
    Object { size: u64 },
    /// Nothing that can be looked at.
    Nothing,
}

#[derive(Serialize, Deserialize)]
struct Header {
    pagewarden_plan: u32,
    pagewarden: String,
    options: Wanted,
}

#[derive(Serialize, Deserialize)]
struct End {
    end: EndOfPlan,
}

#[derive(Serialize, Deserialize)]
struct EndOfPlan {
    units: u64,
    bytes: u64,
}

impl Seen {
    fn at(path: &Path, stores: &dyn Stores) -> Self {
        if let Some(place) = stores.place(path) {
            // Of a folder it is said while it is read what is there.
            return match place.map(|place| place.look()) {
                Ok(Ok(Stored::File(size))) => Self::Object { size },
                _ => Self::Nothing,
            };
        }
        let found = fs::metadata(path).and_then(|it| Ok((identity(&it, path)?, it)));
        match found {
            Ok(((_, inode), it)) if it.is_file() => Self::File {
                size: it.len(),
                modified_ns: it
                    .mtime()
                    .saturating_mul(1_000_000_000)
                    .saturating_add(it.mtime_nsec()),
                inode,
            },
            Ok(((_, inode), it)) if it.is_dir() => Self::Folder { inode },
            _ => Self::Nothing,
        }
    }

    /// What is different now, in words; `None` if nothing is.
    fn change(&self, now: &Self) -> Option<String> {
        match (self, now) {
            _ if self == now => None,
            // Where it is opened, it is said why it cannot be.
            (_, Self::Nothing) => None,
            (
                Self::File { size, modified_ns, inode },
                Self::File { size: size_now, modified_ns: modified_now, inode: inode_now },
            ) => {
                let mut changes = Vec::new();
                if inode != inode_now {
                    changes.push("it is another file".to_owned());
                }
                if size != size_now {
                    let (size, size_now) = (grouped(*size), grouped(*size_now));
                    changes.push(format!("it had {size} bytes and has {size_now}"));
                }
                if modified_ns != modified_now {
                    changes.push("it was written to".to_owned());
                }
                Some(changes.join(", "))
            }
            (Self::Folder { .. }, Self::Folder { .. }) => Some("it is another folder".to_owned()),
            (Self::Nothing, _) => Some("it did not exist then, or was closed".to_owned()),
            (Self::Object { size }, Self::Object { size: now }) => {
                Some(format!("it had {} bytes and has {}", grouped(*size), grouped(*now)))
            }
            (_, Self::Folder { .. }) => Some("it is a folder now".to_owned()),
            (_, Self::File { .. } | Self::Object { .. }) => Some("it is a file now".to_owned()),
        }
    }
}

impl Planned {
    /// Where it is.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(|path| path.0.as_path())
    }

    /// Its first path, by which it is called.
    #[must_use]
    pub fn name(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), |path| path.0.as_path())
    }

    /// The subject itself.
    #[must_use]
    pub fn subject(
        &self,
        kind: Option<&Format>,
        options: &OpenOptions,
        stores: &dyn Stores,
    ) -> Subject {
        let paths: Vec<_> = self.paths().map(Path::to_owned).collect();
        Subject::of(&paths, kind, options, stores)
    }

    /// What is to be said of it: what was known when it was planned, and what changed since.
    #[must_use]
    pub fn notes(&self, stores: &dyn Stores) -> Vec<Note> {
        let changes = self.paths().zip(&self.seen).filter_map(|(path, seen)| {
            let change = seen.change(&Seen::at(path, stores))?;
            let text = format!("it changed since it was planned: {change}");
            let file = match (path.is_dir(), path.file_name()) {
                (false, Some(name)) => name.to_string_lossy().into_owned(),
                _ => String::new(),
            };
            Some(Note { file, text })
        });
        self.notes.iter().cloned().chain(changes).collect()
    }
}

impl Unit {
    /// How the unit is called in messages: its paths, or the first of many.
    #[must_use]
    pub fn name(&self) -> String {
        let first = self.subjects.first().map_or(Path::new(""), Planned::name);
        match self.subjects.len() {
            0 | 1 => first.display().to_string(),
            more => format!("{} and {} more", first.display(), more - 1),
        }
    }
}

impl Plan {
    /// Plans everything that a check of `paths` would look at. Subjects that follow one another
    /// are one unit until it has `unit_bytes`. `measure` says how much there is to read of a
    /// subject of this machine, if that is known.
    ///
    /// # Errors
    /// A folder cannot be listed, or standard input was named; or it cannot be found out what is at
    /// an address.
    pub fn make(
        paths: &[PathBuf],
        wanted: Wanted,
        unit_bytes: u64,
        measure: &dyn Fn(&Path) -> Option<u64>,
        stores: &dyn Stores,
    ) -> Result<Self, Error> {
        if let Some(path) = paths.iter().find(|path| is_standard_input(path)) {
            let hint = "name files and folders; a stream is checked by pagewarden check -";
            return Err(Error::refused(path, "standard input cannot be planned", hint));
        }
        let (kind, options) = (wanted.kind(), wanted.open_options(None));
        let strangers = pagewarden::formats::sqlserver::files::strangers(paths);
        let mut units: Vec<Unit> = Vec::new();
        let mut add = |planned: Planned, bytes: u64| match units.last_mut() {
            Some(unit) if unit.bytes.saturating_add(bytes) <= unit_bytes => {
                unit.bytes = unit.bytes.saturating_add(bytes);
                unit.subjects.push(planned);
            }
            _ => units.push(Unit { unit: units.len() as u64, bytes, subjects: vec![planned] }),
        };
        let size = |place: &StorePath| {
            let length = || bytes_below(place, 0);
            place.local_path().map_or_else(length, |path| {
                let length =
                    || fs::metadata(path).map_or(0, |it| if it.is_file() { it.len() } else { 0 });
                measure(path).unwrap_or_else(length)
            })
        };
        for group in subjects_of(paths, kind, stores)? {
            let (places, files) = match &group {
                Group::One(places) => (places.clone(), places.clone()),
                Group::Backups { folders, backups, .. } => (folders.clone(), backups.concat()),
                Group::Failed(_) => (Vec::new(), Vec::new()),
            };
            let group = match group {
                Group::Failed(error) => return Err(error.into()),
                group => group,
            };
            let bytes = files.iter().map(size).fold(0, u64::saturating_add);
            let is_named =
                |(path, _): &&(PathBuf, Note)| files.iter().any(|file| file.path() == path);
            let paths = || places.iter().map(StorePath::path);
            let planned = Planned {
                seen: paths().map(|path| Seen::at(path, stores)).collect(),
                notes: strangers.iter().filter(is_named).map(|(_, note)| note.clone()).collect(),
                targets: group.subject(kind, &options).count() as u64,
                paths: paths().map(|path| ExactPath(path.to_owned())).collect(),
            };
            add(planned, bytes);
        }
        let mut plan = Self { id: String::new(), wanted, units };
        plan.id = plan.lines()?.1;
        Ok(plan)
    }

    /// Bytes of all units.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.units.iter().map(|unit| unit.bytes).fold(0, u64::saturating_add)
    }

    /// Targets of all units.
    #[must_use]
    pub fn targets(&self) -> u64 {
        self.subjects().map(|subject| subject.targets).fold(0, u64::saturating_add)
    }

    /// Everything that is checked.
    pub fn subjects(&self) -> impl Iterator<Item = &Planned> {
        self.units.iter().flat_map(|unit| &unit.subjects)
    }

    /// Every path that is read.
    #[must_use]
    pub fn read_paths(&self) -> Vec<PathBuf> {
        let wanted = &self.wanted;
        let besides = wanted.wal.iter().chain(&wanted.keyring).chain(&wanted.base);
        let besides = besides.chain(&wanted.cipher_pass_file).cloned();
        self.subjects().flat_map(Planned::paths).map(Path::to_owned).chain(besides).collect()
    }

    /// The plan as it is written, and its hash.
    fn lines(&self) -> Result<(Vec<u8>, String), Error> {
        let write = || {
            let header = Header {
                pagewarden_plan: VERSION,
                pagewarden: pagewarden::VERSION.to_owned(),
                options: self.wanted.clone(),
            };
            let mut lines = Vec::new();
            line::append(&mut lines, &header)?;
            for unit in &self.units {
                line::append(&mut lines, unit)?;
            }
            let before = hasher_of(&lines);
            let end = EndOfPlan { units: self.units.len() as u64, bytes: self.bytes() };
            let (end, id) = line::sealed(&before, &End { end })?;
            lines.extend_from_slice(end.as_bytes());
            Ok((lines, id))
        };
        write().map_err(|source| Error::io("write", Path::new("a plan"), source))
    }

    /// Writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path, to: &mut dyn Write) -> Result<(), Error> {
        let (lines, _) = self.lines()?;
        to.write_all(&lines).map_err(|source| Error::io("write", path, source))
    }

    /// Reads one.
    ///
    /// # Errors
    /// It cannot be read, or is not what [`Plan::write`] wrote.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = fs::File::open(path).map_err(|source| Error::io("open", path, source))?;
        let mut input = BufReader::new(file);
        let mut bytes = Vec::new();
        let mut next = || match line::next(&mut input, &mut bytes) {
            Ok(line) => Ok(line),
            Err(source) if source.kind() == std::io::ErrorKind::InvalidData => {
                Err(Error::refused(path, source.to_string(), HINT))
            }
            Err(source) => Err(Error::io("read", path, source)),
        };
        let refused = |reason: &str| Error::refused(path, reason, HINT);
        let first = match next() {
            Ok(Some(line)) if line.starts_with(BEGIN) => line,
            Err(error @ Error::Io { .. }) => return Err(error),
            _ => return Err(refused("it is no plan of pagewarden")),
        };
        let version: Versioned =
            serde_json::from_str(&first).map_err(|_| refused("its first line is damaged"))?;
        if version.pagewarden_plan != VERSION {
            let reason = format!(
                "it is a plan of version {}, and this pagewarden reads version {VERSION}",
                version.pagewarden_plan
            );
            return Err(Error::refused(path, reason, HINT));
        }
        let header: Header =
            serde_json::from_str(&first).map_err(|_| refused("its first line is damaged"))?;
        let mut before = hasher_of(format!("{first}\n").as_bytes());
        let mut units: Vec<Unit> = Vec::new();
        loop {
            let Some(line) = next()? else {
                return Err(refused("it ends before its last line"));
            };
            if line.starts_with("{\"end\":") {
                let (object, id) = line::unsealed(&before, &line)
                    .ok_or_else(|| refused("it was altered: its hash does not fit its lines"))?;
                let End { end } = serde_json::from_str(&object)
                    .map_err(|_| refused("its last line is damaged"))?;
                if end.units != units.len() as u64 || next()?.is_some() {
                    return Err(refused("its last line does not fit the lines before it"));
                }
                if header.options.format.is_some() && header.options.kind().is_none() {
                    return Err(refused("it names a format that this pagewarden does not know"));
                }
                return Ok(Self { id, wanted: header.options, units });
            }
            before.update(line.as_bytes());
            before.update(b"\n");
            let unit: Unit =
                serde_json::from_str(&line).map_err(|_| refused("a line of it is damaged"))?;
            let is_whole = unit.unit == units.len() as u64
                && unit
                    .subjects
                    .iter()
                    .all(|one| !one.paths.is_empty() && one.paths.len() == one.seen.len());
            if !is_whole {
                return Err(refused("a unit of it is missing or damaged"));
            }
            units.push(unit);
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} of {} ({})",
            counted(self.units.len() as u64, "unit"),
            counted(self.targets(), "target"),
            pagewarden::words::bytes(self.bytes())
        )
    }
}

/// Bytes of a file of a store, or of all files in a folder of it.
fn bytes_below(place: &StorePath, depth: usize) -> u64 {
    match place.look() {
        Ok(Stored::File(bytes)) => bytes,
        Ok(Stored::Folder) if depth < DEPTH_MAX => {
            let listed = place.list().unwrap_or_default();
            let bytes = listed.iter().map(|one| match one.seen {
                Stored::File(bytes) => bytes,
                _ => bytes_below(&place.join(&one.name), depth + 1),
            });
            bytes.fold(0, u64::saturating_add)
        }
        _ => 0,
    }
}

#[derive(Deserialize)]
struct Versioned {
    pagewarden_plan: u32,
}

fn hasher_of(bytes: &[u8]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden::source::store::ThisMachine;

    fn sqlite(path: &Path) {
        let mut bytes = b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20".to_vec();
        bytes.resize(4096, 0);
        fs::write(path, bytes).unwrap();
    }

    fn plan_of(folder: &Path, unit_bytes: u64) -> Plan {
        Plan::make(&[folder.to_owned()], Wanted::default(), unit_bytes, &|_| None, &ThisMachine)
            .unwrap()
    }

    fn written(plan: &Plan, path: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        plan.write(path, &mut bytes).unwrap();
        fs::write(path, &bytes).unwrap();
        bytes
    }

    #[test]
    fn a_plan_comes_back_as_it_was_and_altered_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        (0..5).for_each(|one| sqlite(&folder.path().join(format!("{one}.sqlite"))));
        let plan = plan_of(folder.path(), 8192);
        let units: Vec<_> = plan.units.iter().map(|unit| unit.subjects.len()).collect();
        assert_eq!(units, [2, 2, 1]);
        let file = folder.path().join("plan");
        let bytes = written(&plan, &file);
        assert_eq!(Plan::read(&file).unwrap(), plan);
        assert_eq!(plan_of(folder.path(), 8192).id, plan.id, "the same again");
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1 << (at % 8);
            fs::write(&file, &altered).unwrap();
            Plan::read(&file).unwrap_err();
        }
        let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for gone in 0..lines.len() {
            let mut left = lines.clone();
            left.remove(gone);
            fs::write(&file, left.concat()).unwrap();
            Plan::read(&file).unwrap_err();
        }
        fs::write(&file, [&bytes[..], b"\n"].concat()).unwrap();
        Plan::read(&file).unwrap_err();
    }

    #[test]
    fn what_changed_since_it_was_planned_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sqlite");
        sqlite(&path);
        let plan = plan_of(folder.path(), 0);
        let planned = plan.subjects().next().unwrap();
        assert_eq!(planned.notes(&ThisMachine), []);
        let other = folder.path().join("b");
        sqlite(&other);
        fs::rename(&other, &path).unwrap();
        assert!(
            planned.notes(&ThisMachine)[0].text.contains("another file"),
            "{:?}",
            planned.notes(&ThisMachine)
        );
        fs::write(&path, b"longer or shorter").unwrap();
        let [note] = &planned.notes(&ThisMachine)[..] else { panic!() };
        assert!(note.text.contains("4,096 bytes and has 17"), "{note:?}");
        assert_eq!(note.file, "a.sqlite");
        fs::remove_file(&path).unwrap();
        assert_eq!(planned.notes(&ThisMachine), [], "where it is opened, it is said");
    }

    #[test]
    fn a_plan_of_another_version_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{\"pagewarden_plan\":2,\"new\":{}}\n").unwrap();
        let error = Plan::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }
}

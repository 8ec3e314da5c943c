//! Whole data directories, folders of them, and backups as they lie.
//!
//! | in the data directory | |
//! | --- | --- |
//! | `ibdata1`, `ibdata2` ... | the system tablespace: page numbers go on from file to file |
//! | `undoNNN`, `undo_NNN`, `*.ibu` | undo tablespaces |
//! | `mysql.ibd`, other `*.ibd` | general tablespaces |
//! | `#ib_SIZE_N.dblwr` | copies of pages: their sums only |
//! | `ibtmp1`, `#innodb_temp` | temporary: nothing in them outlives their server, and they are not read |
//! | a folder | a database: `*.ibd`, `*.MAI` with `*.MAD` |
//!
//! Files that hold no pages (MyISAM, CSV and others) are in use and cannot be tested: see `foreign`.
//!
//! The walk is folder by folder, each with its names in order.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::FORMAT;
use crate::files::books::Books;
use crate::files::delta::{META_BYTES_MAX, Meta};
use crate::files::description::{engine_of, in_words, strength};
use crate::files::doublewrite::Doublewrite;
use crate::files::evidence::Evidence;
use crate::files::feed::Before;
use crate::files::foreign::{self, Foreign};
use crate::files::open_files::any_is_open;
use crate::files::places::Places;
use crate::files::redo::NoLog;
use crate::files::siblings::{Comparing, Siblings};
use crate::files::state::{self, Circumstances, State, read_small};
use crate::files::stream::Unpacking;
use crate::files::structure::Definitions;
use crate::files::tablespace::{Context, open_file, read_keyring};
use crate::files::tablespaces::{Opening, OpeningKind, Tablespaces};
use crate::files::untested::{Telling, Untested};
use crate::files::{aria, delta, doublewrite, elsewhere, names};
use crate::page::encryption::Keyring;
use pagewarden_core::database::{Description, Epoch, OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::protect::copy::MARKER;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Protection, Severity, Unread};

/// Tablespaces whose numbers are remembered, to find one that is there twice.
const SPACES_MAX: usize = 1 << 18;
/// A table may be rebuilt again while its new file is checked.
const ROUNDS_MAX: u32 = 3;
const PAGE_BYTES_DEFAULT: usize = 16_384;
/// The smallest of all pages.
const PAGE_BYTES_MIN: u64 = 4096;

/// Thinks about a folder.
pub(super) fn probe(folder: &Path) -> Probe {
    if state::is_root(folder) {
        return Probe::Yes;
    }
    match (holds_tables(folder), state::directory_above(folder)) {
        (true, Some(_)) => Probe::Yes,
        (true, None) => Probe::Maybe,
        (false, _) => Probe::No,
    }
}

fn holds_tables(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let is_table = |name: &str| {
        // Undo tablespaces and doublewrite files may have a folder of their own.
        !matches!(Role::of(name), Role::Foreign | Role::Link | Role::None)
    };
    entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_table))
}

/// Opens a data directory, or a folder of one.
///
/// # Errors
/// It cannot be listed, or is none; or the keys cannot be read.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Target, Error> {
    fs::read_dir(path).map_err(|source| Error::io("list", path, source))?;
    let is_root = state::is_root(path);
    if !is_root && !holds_tables(path) {
        return Err(Error::unrecognised(
            path,
            "not a MySQL or MariaDB data directory: it has no ibdata1, no log and no tables",
            "name the data directory itself (SELECT @@datadir tells it)",
        ));
    }
    let root = match is_root {
        true => path.to_owned(),
        false => state::directory_above(path).unwrap_or_else(|| path.to_owned()),
    };
    // Tables that lie apart from their data directory.
    let is_apart =
        !is_root && root == path && any_is_open(tables_in(path).iter().map(PathBuf::as_path));
    let keyring = options.keyring.as_deref().map(read_keyring).transpose()?;
    let found = if is_apart { State::in_use() } else { State::find(&root, keyring.as_deref()) };
    let part = if is_root { Part::Whole } else { Part::Folder(path) };
    open_part(path, &root, part, found, keyring, options)
}

fn tables_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_table = |path: &PathBuf| Role::of(&file_name(path)) == Role::Tablespace;
    entries.map(|entry| entry.path()).filter(is_table).collect()
}

/// Opens a file in a directory that is in use, crashed or to be prepared, or one that a server
/// has open: then it is not judged by itself. `None` for any other.
///
/// # Errors
/// The keys cannot be read.
pub(super) fn open_inside(path: &Path, options: &OpenOptions) -> Result<Option<Target>, Error> {
    let name = file_name(path);
    let is_table = matches!(Role::of(&name), Role::System(_) | Role::Undo | Role::Tablespace);
    if !is_table {
        return Ok(None);
    }
    let Some(root) = state::directory_above(path) else {
        let folder =
            std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        return match folder.filter(|_| any_is_open([path])) {
            Some(root) => {
                let keyring = options.keyring.as_deref().map(read_keyring).transpose()?;
                open_part(path, &root, Part::File(path), State::in_use(), keyring, options)
                    .map(Some)
            }
            None => Ok(None),
        };
    };
    let keyring = options.keyring.as_deref().map(read_keyring).transpose()?;
    let found = State::find(&root, keyring.as_deref());
    match found.circumstances {
        Circumstances::Running | Circumstances::Crashed | Circumstances::Backup => {
            open_part(path, &root, Part::File(path), found, keyring, options).map(Some)
        }
        Circumstances::AtRest | Circumstances::Prepared | Circumstances::Unknown => Ok(None),
    }
}

fn open_part(
    path: &Path,
    root: &Path,
    part: Part<'_>,
    mut found: State,
    keyring: Option<Arc<Keyring>>,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let own = root.join("ibdata1");
    let elsewhere = Places::of(root).system.filter(|_| !own.exists());
    let first = elsewhere.map_or(own, |place| place.join("ibdata1"));
    let system = open_file(&first, Context::alone("ibdata1".to_owned())).ok();
    let alone = match part {
        Part::File(path) if system.is_none() => open_file(path, Context::alone(String::new())).ok(),
        _ => None,
    };
    let page_size = system
        .as_ref()
        .or(alone.as_ref())
        .map_or(PAGE_BYTES_DEFAULT, |opened| opened.geometry.layout.page_size);
    let known = system.as_ref().map(|opened| opened.geometry.layout.page_size as u64);
    let page_bytes = known.unwrap_or(PAGE_BYTES_MIN);
    let circumstances = found.circumstances;
    let description = Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: engine_of(root, &found),
        page_size: u32::try_from(page_size).unwrap_or(0),
        setting: system.is_some().then_some(Protection::Checksum),
        state: in_words(&found),
        evidence: strength(circumstances),
        live: circumstances.may_change(),
        epoch: found.log.as_ref().map(|log| Epoch {
            database: "innodb".to_owned(),
            position: log.checkpoint,
            is_at_rest: circumstances.is_settled(),
        }),
    };
    let evidence = Evidence::new(root, &mut found, Doublewrite::of(root, page_size));
    let untested = Arc::<Untested>::default();
    let siblings = Arc::<Siblings>::default();
    let folder = first.parent().unwrap_or(root).to_owned();
    let definitions = options.structure.then(|| Definitions::of_directory(folder));
    let tablespaces = Tablespaces::new(
        evidence,
        keyring,
        Arc::clone(&untested),
        Arc::clone(&siblings),
        definitions,
    );
    let walk = Walk::new(root, part, &found, tablespaces, page_bytes);
    let steps = Telling::new(Comparing::new(walk, siblings), untested);
    let root = root.to_owned();
    let woken = Box::new(move || state::is_in_use(&root));
    Ok(Target { description, steps: Box::new(steps), woken: Some(woken) })
}

/// How much of a data directory is gone through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// All of it.
    Whole,
    /// One folder.
    Folder(&'a Path),
    /// One file.
    File(&'a Path),
}

/// What a name in a data directory stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// A file of the system tablespace, by its number.
    System(u32),
    Undo,
    /// A general tablespace, or that of a table.
    Tablespace,
    /// One as a backup holds it.
    Compressed,
    /// The changed pages of one, in an incremental backup.
    Delta,
    /// Both files of an Aria table, listed once.
    Aria,
    Doublewrite,
    /// Lies elsewhere; this file says where.
    Link,
    /// A table of another engine.
    Foreign,
    /// Nothing to do with pages.
    None,
}

impl Role {
    pub(crate) fn of(name: &str) -> Self {
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        match ending {
            "ibd" => return Self::Tablespace,
            "ibu" => return Self::Undo,
            "isl" => return Self::Link,
            aria::INDEX_ENDING | aria::DATA_ENDING => return Self::Aria,
            "delta" if Self::of(stem).has_pages() => return Self::Delta,
            "zst" | "lz4" | "qp" | "xbcrypt" if Self::of(stem).is_worth_unpacking() => {
                return Self::Compressed;
            }
            "MYD" | "CSV" | "ARZ" | "tokudb" => return Self::Foreign,
            _ => {}
        }
        if doublewrite::slot_bytes_of(name).is_some() {
            return Self::Doublewrite;
        }
        let number = |rest: &str| {
            let is_number = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| rest.parse::<u32>().ok()).flatten()
        };
        if let Some(number) = name.strip_prefix("ibdata").and_then(number) {
            return Self::System(number);
        }
        let undo = name.strip_prefix("undo").map(|rest| rest.strip_prefix('_').unwrap_or(rest));
        match undo.and_then(number) {
            Some(_) => Self::Undo,
            None => Self::None,
        }
    }

    pub(crate) fn has_pages(&self) -> bool {
        matches!(self, Self::System(_) | Self::Undo | Self::Tablespace)
    }

    fn is_worth_unpacking(&self) -> bool {
        // One layer, or two: compressed and encrypted.
        self.has_pages() || matches!(self, Self::Delta | Self::Compressed | Self::Aria)
    }
}

/// A folder to go through.
#[derive(Debug, Clone)]
struct Folder {
    path: PathBuf,
    /// The database's name as it is on disk; empty for the data directory itself.
    database: String,
    /// What stands before its files' names in the report.
    prefix: String,
}

impl Folder {
    fn shown(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn is_root(&self) -> bool {
        self.database.is_empty()
    }
}

/// See the module.
pub(crate) struct Walk {
    tablespaces: Tablespaces,
    folders: VecDeque<Folder>,
    /// The folder that is gone through, and the names left in it.
    current: Option<(Folder, std::vec::IntoIter<(Role, String)>)>,
    ready: VecDeque<Step>,
    /// Where each tablespace was seen.
    spaces: HashMap<u32, Box<str>>,
    /// Files with the number of one that was seen before.
    twice: Vec<(u32, Box<str>, Finding)>,
    foreign: Foreign,
    /// A packed file that is being read.
    unpacking: Option<Unpacking>,
    stage: Stage,
    /// What the directory needs; of a part of one that is not asked.
    books: Option<Books>,
    /// How often files that were replaced are looked for.
    rounds_left: u32,
}

/// How far a walk has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Files,
    /// All pages that were given out are to be judged first.
    AtBarrier,
    Over,
}

impl Walk {
    /// Goes through a data directory, or a part of it. Its pages are a multiple of `page_bytes`.
    pub(crate) fn new(
        root: &Path,
        part: Part<'_>,
        state: &State,
        tablespaces: Tablespaces,
        page_bytes: u64,
    ) -> Self {
        let (path, database) = match part {
            Part::Whole => (root.to_owned(), String::new()),
            Part::Folder(folder) => (folder.to_owned(), file_name(folder)),
            Part::File(file) => {
                let folder = std::path::absolute(file).ok();
                let folder = folder.as_deref().and_then(Path::parent).unwrap_or(root).to_owned();
                let is_root = std::path::absolute(root).is_ok_and(|root| root == folder);
                let database = if is_root { String::new() } else { file_name(&folder) };
                (folder, database)
            }
        };
        let folder = Folder { path, database, prefix: String::new() };
        let mut walk = Self {
            tablespaces,
            folders: VecDeque::new(),
            current: None,
            ready: VecDeque::new(),
            spaces: HashMap::new(),
            twice: Vec::new(),
            foreign: Foreign::default(),
            unpacking: None,
            stage: Stage::Files,
            books: None,
            rounds_left: ROUNDS_MAX,
        };
        if root.join(MARKER).is_file() {
            let error = "a copy that --copy-to of pagewarden protect or repair has not finished: run that command \
                         again, or remove the folder";
            walk.ready.push_back(Step::Unread(Unread::of_file(MARKER, error)));
        }
        match part {
            Part::Whole => {
                walk.books = Some(Books::new(root, state, page_bytes, walk.tablespaces.keyring()));
                walk.tell_log(state);
                walk.folders.push_back(folder);
            }
            Part::Folder(_) => walk.folders.push_back(folder),
            Part::File(file) => walk.only(folder, &file_name(file)),
        }
        walk
    }

    /// Goes through one file of a folder.
    fn only(&mut self, folder: Folder, name: &str) {
        if !matches!(Role::of(name), Role::System(_)) {
            self.current = Some((folder, vec![(Role::of(name), name.to_owned())].into_iter()));
            return;
        }
        // Its pages' numbers follow from the files before it.
        let entries = fs::read_dir(&folder.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let files = names.filter_map(|name| match Role::of(&name) {
            Role::System(number) => Some((number, folder.path.join(name))),
            _ => None,
        });
        let mut steps = self.tablespaces.open_system(&files.collect(), &folder.prefix);
        steps.retain(|step| match step {
            Step::File(file) => file.name == name,
            Step::Finding(finding) => finding.place.file == name,
            Step::Note(note) => note.file == name,
            _ => true,
        });
        self.ready.extend(steps);
    }

    /// What is wrong with the log.
    fn tell_log(&mut self, state: &State) {
        let (refused, unread) = match &state.no_log {
            Some(NoLog::Faulty(faults)) => (faults.as_slice(), None),
            Some(NoLog::Unreadable(file, error)) => (&[][..], Some((file, error.to_string()))),
            Some(NoLog::Missing) | None => (&[][..], None),
        };
        let faults = state.log.as_ref().map_or(refused, |log| log.faults.as_slice());
        for fault in faults {
            let severity = if fault.may_be_healthy { Severity::Suspect } else { Severity::Damage };
            let hex = |sum: u32| format!("{sum:08x}");
            let finding = Finding::of_file(&fault.file, severity, fault.kind, fault.detail.clone())
                .at(None, Some(ByteOffset(fault.offset)))
                .with_sums(fault.sums.map(|sums| hex(sums.0)), fault.sums.map(|sums| hex(sums.1)));
            self.ready.push_back(Step::Finding(finding.with_hint(LOG_HINT)));
        }
        if let Some(untested) = state.log.as_ref().and_then(|log| log.untested.as_ref()) {
            let note = Note { file: untested.file.clone(), text: untested.in_words() };
            self.ready.push_back(Step::Untested(note, 1));
        }
        if let Some((file, error)) = unread {
            self.unread(file.clone(), error);
        }
    }

    fn unread(&mut self, file: String, error: String) {
        self.ready.push_back(Step::Unread(Unread::of_file(file, error)));
    }

    fn note(&mut self, file: String, text: impl Into<String>) {
        self.ready.push_back(Step::Note(Note { file, text: text.into() }));
    }

    fn open_folder(&mut self, folder: Folder) {
        let is_live = self.tablespaces.is_live();
        let entries = match fs::read_dir(&folder.path) {
            Ok(entries) => entries,
            Err(error) if is_live && error.kind() == ErrorKind::NotFound => return,
            Err(error) => return self.unread(folder.database, error.to_string()),
        };
        let mut files = Vec::new();
        let mut below = Vec::new();
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_followed = !kind.is_symlink() || self.may_follow(&folder, &name);
            if !is_followed {
                continue;
            }
            let Ok(kind) = fs::metadata(entry.path()).map(|found| found.file_type()) else {
                continue;
            };
            if kind.is_dir() {
                if folder.is_root() && foreign::is_engine(&name) {
                    self.foreign.add("", folder.shown(&name), false);
                } else if folder.is_root() && is_database(&name) {
                    let prefix = format!("{}{name}/", folder.prefix);
                    below.push(Folder { path: entry.path(), database: name, prefix });
                }
            } else if kind.is_file() {
                match Role::of(&name) {
                    Role::None => {}
                    Role::Foreign => {
                        let is_empty = entry.metadata().is_ok_and(|metadata| metadata.len() == 0);
                        self.foreign.add(&folder.database, folder.shown(&name), is_empty);
                    }
                    Role::Aria => {
                        // Both files are one table.
                        let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
                        files.push((Role::Aria, stem.to_owned()));
                    }
                    role => files.push((role, name)),
                }
            }
        }
        files.sort();
        files.dedup();
        self.remember(&folder, &files);
        below.sort_by(|a, b| a.database.cmp(&b.database));
        self.folders.extend(below);
        if folder.is_root() {
            let system = files.iter().filter_map(|(role, name)| match role {
                Role::System(number) => Some((*number, followed(folder.path.join(name)))),
                _ => None,
            });
            let steps = self.tablespaces.open_system(&system.collect(), &folder.prefix);
            self.ready.extend(steps);
            files.retain(|(role, _)| !matches!(role, Role::System(_)));
            self.open_elsewhere(&folder.path);
        }
        self.current = Some((folder, files.into_iter()));
    }

    /// True of a link to what servers follow it to: a database, or a table's file, that lies
    /// elsewhere. Says what it does not follow.
    fn may_follow(&mut self, folder: &Folder, name: &str) -> bool {
        let path = folder.path.join(name);
        let role = Role::of(name);
        let is_file = role.has_pages() || role == Role::Aria;
        let is_folder = folder.is_root() && is_database(name);
        let shown = folder.shown(name);
        let place = match fs::canonicalize(&path) {
            Ok(place) => place,
            Err(_) => {
                if is_file || folder.is_root() && !name.contains('.') {
                    let place = fs::read_link(&path).unwrap_or_default();
                    let error = format!("a link to {}, which cannot be reached", place.display());
                    self.unread(shown, error);
                }
                return false;
            }
        };
        let wanted = if place.is_dir() { is_folder } else { is_file };
        // To where this walk is, or was, or will be.
        let root = folder.path.parent().filter(|_| !folder.is_root()).unwrap_or(&folder.path);
        let leads_back = fs::canonicalize(root)
            .is_ok_and(|root| place.starts_with(&root) || root.starts_with(&place));
        if wanted && leads_back {
            self.unread(
                shown,
                "a link back into this directory, which was not followed".to_owned(),
            );
        }
        wanted && !leads_back
    }

    /// What the files of a folder say of those that must be there too.
    fn remember(&mut self, folder: &Folder, files: &[(Role, String)]) {
        let Some(books) = &mut self.books else { return };
        for (role, name) in files {
            // The others are of no use without the first.
            let is_system = *role == Role::System(1)
                || matches!(role, Role::Compressed | Role::Delta) && name.starts_with("ibdata");
            books.seen.has_system |= is_system && folder.is_root();
            let is_tablespace = matches!(role, Role::Tablespace | Role::Undo);
            books.seen.has_tablespaces |= is_tablespace;
            books.seen.has_aria |= *role == Role::Aria;
            books.seen.has_tables |= is_tablespace && !folder.is_root();
        }
    }

    /// Tablespaces that lie elsewhere: the system's and those of undo logs, where an options file
    /// says so, and those that the dictionary of MySQL names.
    fn open_elsewhere(&mut self, root: &Path) {
        let Some(books) = &mut self.books else { return };
        let places = books.places.clone();
        let list = |place: &Path| {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<_> = names.map(|name| (Role::of(&name), name)).collect();
            names.sort();
            names
        };
        if let Some(place) = places.system.filter(|_| !books.seen.has_system) {
            let files = list(&place).into_iter().filter_map(|(role, name)| match role {
                Role::System(number) => Some((number, place.join(name))),
                _ => None,
            });
            let files: BTreeMap<_, _> = files.collect();
            books.seen.has_system = files.contains_key(&1);
            let prefix = format!("{}/", place.display());
            let steps = self.tablespaces.open_system(&files, &prefix);
            self.ready.extend(steps);
        }
        if !self.tablespaces.are_of_a_backup() {
            let files =
                elsewhere::of_dictionary(root, self.tablespaces.keyring().as_ref()).into_iter();
            // An options file that says where undo logs are is believed: see below.
            let is_asked = |kind| kind != OpeningKind::Undo || places.undo.is_none();
            for (path, kind) in files.filter(|(_, kind)| is_asked(*kind)) {
                let shown = path.display().to_string();
                let (database, object) = (None, None);
                self.open_outside(&Opening { path, shown, database, object, kind });
            }
        }
        let Some(place) = places.undo else { return };
        for (_, name) in list(&place).into_iter().filter(|(role, _)| *role == Role::Undo) {
            let path = place.join(name);
            let shown = path.display().to_string();
            let (database, object) = (None, None);
            self.open(&Opening { path, shown, database, object, kind: OpeningKind::Undo });
        }
    }

    fn next_file(&mut self) {
        let Some((folder, files)) = &mut self.current else { return };
        let Some((role, name)) = files.next() else {
            self.current = None;
            return;
        };
        let folder = folder.clone();
        let shown = folder.shown(&name);
        let path = followed(folder.path.join(&name));
        let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
        let kind = match role {
            Role::Tablespace if names::is_temporary(stem) => OpeningKind::Fleeting,
            Role::Aria if names::is_temporary(&name) => return,
            Role::Tablespace | Role::System(_) => OpeningKind::Tablespace,
            Role::Undo => OpeningKind::Undo,
            Role::Aria => OpeningKind::Aria,
            Role::Doublewrite => {
                let step = self.tablespaces.doublewrite_file(&name, shown, path);
                return self.ready.extend(step);
            }
            Role::Delta => {
                let (database, object) = names_of(&folder, &name);
                let step = match delta::open(&path, &shown) {
                    Ok(opened) => {
                        opened.into_page_file(&shown, path, database, object).map(Step::File)
                    }
                    Err(step) => Some(*step),
                };
                return self.ready.extend(step);
            }
            Role::Compressed => return self.unpack(&folder, &name, &path),
            Role::Link => return self.open_linked(&folder, &path, stem),
            Role::Foreign | Role::None => return,
        };
        let (database, object) = names_of(&folder, &name);
        self.open(&Opening { path, shown, database, object, kind });
    }

    /// The file that a link file stands for. Where that leads nowhere, the dictionary says what is
    /// missing.
    fn open_linked(&mut self, folder: &Folder, link: &Path, stem: &str) {
        let name = format!("{stem}.ibd");
        let followed = elsewhere::of_link(link);
        let Some(path) = followed.filter(|_| !self.tablespaces.are_of_a_backup()) else {
            return self.note(
                folder.shown(&format!("{stem}.isl")),
                "where the server had this table's file, which was not looked for there: it is in this \
                 backup, a file of its name is here, or there is none",
            );
        };
        let (database, object) = names_of(folder, &name);
        let kind = match names::is_temporary(stem) {
            true => OpeningKind::Fleeting,
            false => OpeningKind::Tablespace,
        };
        let shown = folder.shown(&name);
        self.open_outside(&Opening { path, shown, database, object, kind });
    }

    /// A file outside of the directory that its server opens with it.
    fn open_outside(&mut self, opening: &Opening) {
        if elsewhere::is_of_another_server(&opening.path, self.tablespaces.is_live()) {
            let error = "a file of this directory that lies elsewhere: a server has it open that is not \
                         at work on this directory, and it was not checked";
            return self.unread(opening.shown.clone(), error.to_owned());
        }
        let text = format!(
            "checked where it lies, outside of this directory: {}; a copy or a pack of the directory \
             lacks it",
            opening.path.display()
        );
        self.note(opening.shown.clone(), text);
        self.open(opening);
    }

    /// Begins with a file that is packed by itself.
    fn unpack(&mut self, folder: &Folder, name: &str, path: &Path) {
        let shown = folder.shown(name);
        let inner = path.with_extension("");
        let beside = |ending: &str| inner.with_extension(ending);
        let before = Before {
            // Not packed, for it is small.
            meta: read_small(&beside("meta"), META_BYTES_MAX)
                .and_then(|text| Meta::parse(&String::from_utf8_lossy(&text))),
            aria: None,
            keyring: self.tablespaces.keyring(),
            untested: Arc::clone(self.tablespaces.untested()),
        };
        match Unpacking::open(path, &shown, before) {
            Ok(unpacking) => self.unpacking = Some(unpacking),
            Err(error) => self.unread(shown, error),
        }
    }

    fn open(&mut self, opening: &Opening) {
        let opened = self.tablespaces.open(opening);
        if opened.is_foreign {
            let database = opening.database.as_deref().unwrap_or_default();
            self.foreign.add(database, format!("{}.{}", opening.shown, aria::DATA_ENDING), false);
        }
        if let Some(books) = self.books.as_mut().filter(|_| opening.kind == OpeningKind::Undo) {
            books.seen.undo.push((file_name(&opening.path), opened.space));
        }
        if let Some(books) = &mut self.books
            && let Some(space) = opened.space
            && books.seen.numbers.len() < SPACES_MAX
        {
            books.seen.numbers.insert(opening.shown.as_str().into(), space);
        }
        if let Some(space) = opened.space
            && opening.kind != OpeningKind::Fleeting
            && !self.tablespaces.is_live()
            && self.spaces.len() < SPACES_MAX
            && let Some(before) = self.spaces.insert(space, opening.shown.as_str().into())
        {
            let detail = format!("its tablespace number {space} is that of {before} too");
            let finding =
                Finding::of_file(&opening.shown, Severity::Suspect, Kind::Misplaced, detail)
                    .about(opening.database.as_deref(), opening.object.as_deref());
            self.twice.push((space, before, finding.with_hint(TWICE_HINT)));
        }
        self.ready.extend(opened.steps);
    }

    /// What two files with one number are: by what the directory says of them.
    fn tell_twice(&mut self) {
        for (space, before, finding) in std::mem::take(&mut self.twice) {
            let files = [&*before, &*finding.place.file];
            let step = match self.books.as_ref().and_then(|books| books.stray(space, files)) {
                Some(stray) => Step::Note(Note {
                    file: stray.to_owned(),
                    text: format!(
                        "no table's file by the data dictionary, and its tablespace number {space} is \
                         that of another: a copy that was left behind, or that is to be imported"
                    ),
                }),
                None if self.books.as_ref().is_some_and(Books::needs_numbers_once) => {
                    Step::Finding(finding.as_grave_as(Severity::Damage))
                }
                None => Step::Finding(finding),
            };
            self.ready.push_back(step);
        }
    }

    /// What comes when all files were listed.
    fn end(&mut self) {
        if self.stage == Stage::Files {
            self.tell_twice();
            if let Some(books) = self.books.take() {
                self.ready.extend(books.steps(&self.spaces));
            }
            self.ready.extend(std::mem::take(&mut self.foreign).steps());
        }
        if self.stage == Stage::AtBarrier {
            let replaced = self.tablespaces.take_replaced();
            self.stage = if replaced.is_empty() { Stage::Over } else { Stage::Files };
            if self.rounds_left == 0 {
                self.tablespaces.begin_last_round();
            }
            replaced.iter().for_each(|opening| self.open(opening));
            return;
        }
        if !self.tablespaces.is_live() || self.rounds_left == 0 {
            self.stage = Stage::Over;
            return;
        }
        self.rounds_left = self.rounds_left.saturating_sub(1);
        self.stage = Stage::AtBarrier;
        self.ready.push_back(Step::Barrier);
    }
}

const LOG_HINT: &str = "without its log a database that was not shut down cannot be recovered: keep a \
                        copy of all files before anything else, and look for a backup";
const TWICE_HINT: &str = "one of the two is a copy that was left behind: a server takes one of them only, \
                          and MySQL from 8.0 on does not start until the other is moved away";

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if let Some(unpacking) = &mut self.unpacking {
                if !unpacking.advance(&mut self.ready) {
                    self.unpacking = None;
                }
            } else if self.current.is_some() {
                self.next_file();
            } else if let Some(folder) = self.folders.pop_front() {
                self.open_folder(folder);
            } else if self.stage == Stage::Over {
                return None;
            } else {
                self.end();
            }
        }
    }
}

/// Where a link leads; any other path as it is.
fn followed(path: PathBuf) -> PathBuf {
    if !path.is_symlink() {
        return path;
    }
    fs::canonicalize(&path).unwrap_or(path)
}

/// The database and the table of a file, by its folder and its name.
fn names_of(folder: &Folder, name: &str) -> (Option<Arc<str>>, Option<Arc<str>>) {
    if folder.is_root() {
        return (None, None);
    }
    // Of `t.ibd`, `t.ibd.delta` and `t.ibd.zst`.
    let stem = name.split_once(".ibd").map_or(name, |(stem, _)| stem);
    let database = names::decoded(&folder.database);
    let object = names::object(&folder.database, stem);
    (Some(database.into()), Some(object.into()))
}

/// A folder of tables: not one of the server's own.
pub(crate) fn is_database(name: &str) -> bool {
    !name.starts_with('#') && !name.starts_with('.') && name != "lost+found"
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_files_are() {
        for (name, role) in [
            ("ibdata1", Role::System(1)),
            ("ibdata12", Role::System(12)),
            ("ibdata", Role::None),
            ("ibtmp1", Role::None),
            ("undo001", Role::Undo),
            ("undo_002", Role::Undo),
            ("extra.ibu", Role::Undo),
            ("undone", Role::None),
            ("mysql.ibd", Role::Tablespace),
            ("t#P#p0.ibd", Role::Tablespace),
            ("t.ibd.zst", Role::Compressed),
            ("ibdata1.qp", Role::Compressed),
            ("t.ibd.zst.xbcrypt", Role::Compressed),
            ("t.frm.zst", Role::None),
            ("t.ibd.delta", Role::Delta),
            ("t.ibd.meta", Role::None),
            ("t.MAD", Role::Aria),
            ("t.MAI", Role::Aria),
            ("t.MYD", Role::Foreign),
            ("t.MYI", Role::None),
            ("#ib_16384_1.dblwr", Role::Doublewrite),
            ("ib_logfile0", Role::None),
            ("t.isl", Role::Link),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}

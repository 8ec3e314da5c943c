//! Folders of backups: which of them build on one another, to which states they bring each database,
//! what is missing, and the statements that restore it.
//!
//! Files are grouped by what their blocks say, never by their names. Every backup file (with its
//! stripes) is verified as a target of its own; [`links`] then puts together what the sets said of
//! themselves, [`statements`] writes the RESTORE statements, [`told`] says it all.
//!
//! | a backup | fits on |
//! | --- | --- |
//! | full | nothing |
//! | differential | the full backup whose set id it names, where both name one; else that whose checkpoint LSN it names |
//! | log | a state in its reach: its first LSN is not behind that state and its last one is, and the state is of its history (recovery fork), or of the one that its history left, up to where it did |
//!
//! Source: "RESTORE HEADERONLY" and "Recovery Paths" in the documentation of SQL Server; the fields are
//! those of [`details`](crate::mtf::details). No SQL Server was there to restore by
//! these rules: they were tried on real backups with a real gap, and by taking each of them away.
//!
//! A backup that is damaged, or was not read as a whole, counts as not there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::FORMAT;
use crate::files::backup::{Backup, SetKind, extents, media, path_of};
use crate::files::file_name;
use crate::mssqlbak::MAGIC;
use crate::mtf::details::{Configuration, Guid};
use pagewarden_core::database::repository::{Outcomes, RepositoryPart, Sets};
use pagewarden_core::database::{Description, Evidence, FolderKind, Settled, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{Finding, Protection, Unread, Verdict};

mod links;
mod statements;
mod told;

use links::{Database, Set};

/// Backups in a plain folder.
pub(crate) const FOLDER: FolderKind = FolderKind { is_part, open };

/// What a set says of itself.
#[derive(Debug, Clone)]
pub(in crate::files::backup) struct SetHeader {
    /// The set's own id.
    pub(super) id: Guid,
    /// Which one it is in its files, from 1 on.
    pub(super) number: u32,
    /// What it is called; empty for none.
    pub(super) name: String,
    pub(super) kind: SetKind,
    /// As it was when the backup ended.
    pub(super) configuration: Box<Configuration>,
    /// The pages of each file that are in it.
    pub(super) data_pages: Vec<(u32, u32)>,
    /// All of it came.
    pub(super) is_whole: bool,
}

/// Takes the headers of all sets of one backup, one after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers(Arc<Mutex<Vec<SetHeader>>>);

impl Headers {
    /// Takes another one.
    pub(super) fn add(&self, header: SetHeader) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(header);
    }

    fn all(&self) -> Vec<SetHeader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The files of one backup, or of several in the same files.
struct Files {
    places: Vec<StorePath>,
    headers: Headers,
    /// How many files it was striped over, as they say.
    stripes: u16,
    bytes: u64,
    is_compressed: bool,
}

fn is_part(places: &[StorePath]) -> bool {
    places.iter().all(|place| media(place).is_some())
}

/// Opens all backups of a folder, each with its files.
fn open(folder: &StorePath, backups: &[Vec<StorePath>]) -> Sets {
    let outcomes = Outcomes::default();
    let all: Vec<Arc<Files>> = backups.iter().map(|places| Arc::new(Files::of(places))).collect();
    let count = all.len().saturating_add(1);
    let targets = all.clone().into_iter().map(|files| files.target());
    let (folder, known) = (folder.path().to_owned(), outcomes.clone());
    let last = move || chains(&folder, &all, &known);
    Sets::of(count, targets.chain(std::iter::once_with(last)), outcomes)
}

impl Files {
    fn of(places: &[StorePath]) -> Self {
        let first = places.first().and_then(media);
        let lengths = places.iter().filter_map(|place| place.look().ok()?.bytes());
        Self {
            places: places.to_vec(),
            headers: Headers::default(),
            stripes: first.map_or(1, |media| media.families.max(1)),
            bytes: lengths.fold(0, u64::saturating_add),
            is_compressed: places.iter().any(is_compressed),
        }
    }

    fn path(&self) -> &Path {
        path_of(&self.places)
    }

    /// The backup as a target, which hands the headers of its sets on.
    fn target(&self) -> Target {
        let opened = extents(&self.places).and_then(|extents| {
            let mut backup = Backup::new(self.path(), extents);
            backup.headers = Some(self.headers.clone());
            backup.into_target()
        });
        opened.unwrap_or_else(|error| unread(self.path(), &error))
    }

    /// Its sets. `outcome` is what came of its verification, if that was said.
    fn sets(&self, outcome: Option<Verdict>) -> Vec<Set> {
        let why = match outcome {
            Some(Verdict::Damaged) => Some("it is damaged"),
            Some(Verdict::Incomplete) => Some("not all of it was read"),
            _ => None,
        };
        let lacks = usize::from(self.stripes).saturating_sub(self.places.len());
        let sets = self.headers.all().into_iter().map(|header| {
            let lacks = (lacks > 0).then(|| {
                format!(
                    "{lacks} of the {} files that it is striped over are not here",
                    self.stripes
                )
            });
            let cut = (!header.is_whole).then(|| "its end did not come".to_owned());
            let unusable = lacks.or(cut).or_else(|| why.map(str::to_owned));
            Set {
                files: self.places.iter().map(|place| place.path().to_owned()).collect(),
                is_elsewhere: self.places.iter().any(|place| place.local_path().is_none()),
                stripes: self.stripes,
                bytes: self.bytes,
                is_compressed: self.is_compressed,
                unusable,
                header,
            }
        });
        sets.collect()
    }
}

/// The statements that restore single pages of a database by the newest way that these sets give, and then
/// by the log that is not backed up yet. A set comes with its files, and why it cannot be used, if so.
pub(in crate::files::backup) fn page_restore<'a>(
    sets: impl Iterator<Item = (&'a [PathBuf], &'a SetHeader, Option<String>)>,
    database: &str,
    pages: &[String],
) -> Vec<String> {
    let sets = sets.map(|(files, header, unusable)| Set {
        files: files.to_vec(),
        is_elsewhere: false,
        stripes: u16::try_from(files.len()).unwrap_or(u16::MAX),
        bytes: 0,
        is_compressed: false,
        unusable,
        header: header.clone(),
    });
    let databases = Database::all(sets.collect());
    let newest = databases.iter().max_by_key(|one| one.newest().last().map(|set| set.last()));
    newest.map_or_else(Vec::new, |one| statements::restore_pages(database, pages, &one.newest()))
}

fn is_compressed(place: &StorePath) -> bool {
    place.first_bytes(MAGIC.len()).is_ok_and(|begin| begin == MAGIC)
}

fn description(path: &Path, engine: &str, part: RepositoryPart, state: String) -> Description {
    Description {
        path: path.to_owned(),
        format: FORMAT.name,
        engine: engine.to_owned(),
        page_size: 0,
        setting: Some(Protection::Checksum),
        state,
        evidence: Evidence {
            tested_by: "what backups say of themselves, twice each, and whether they fit together",
            unseen: "backups that are kept elsewhere",
        },
        live: false,
        epoch: None,
        part: Some(part),
    }
}

/// A backup that cannot be opened any more.
fn unread(path: &Path, error: &Error) -> Target {
    let step = Step::Unread(Unread::of_file(file_name(path), error.to_string()));
    let state = "not read".to_owned();
    let description = description(path, FORMAT.title, RepositoryPart::Media, state);
    Target { description, steps: Box::new(std::iter::once(step)), woken: None }
}

/// The folder itself, when all its backups were verified.
fn chains(folder: &Path, all: &[Arc<Files>], outcomes: &Outcomes) -> Target {
    const ENGINE: &str = "backups of SQL Server";
    let sets = all.iter().flat_map(|files| files.sets(outcomes.of(files.path()))).collect();
    let databases = Database::all(sets);
    let (steps, state, chains) = told::tell(&databases);
    let part = |chains| RepositoryPart::Chains(chains);
    let end = description(folder, ENGINE, part(Some(Arc::new(chains))), state);
    let settled = Step::Settled(Box::new(Settled {
        description: end,
        has_sums: true,
        judge: Box::new(|_: &mut Finding, _: &_| ()),
    }));
    let begin = description(folder, ENGINE, part(None), "how they fit together".to_owned());
    let steps = steps.into_iter().chain(std::iter::once(settled));
    Target { description: begin, steps: Box::new(steps), woken: None }
}

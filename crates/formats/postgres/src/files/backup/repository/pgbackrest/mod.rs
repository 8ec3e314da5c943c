//! pgBackRest, 2.45 to 2.60: repositories on disk.
//!
//! | path | what is read |
//! | --- | --- |
//! | a repository, the folder that holds `backup` | all sets of all stanzas, or those that were asked for |
//! | `backup/STANZA` | all sets of it |
//! | `backup/STANZA/LABEL` | that set |
//!
//! `stanza` finds the sets, `set` opens one, `members` goes through its files, which are read as
//! `whole` files or put together of `blocks`; `info`, `manifest`, `block_map`, `cipher` and `stored` are the
//! tool's formats.
//!
//! Sources: the tool's documentation, and repositories that it made, each file of which was compared
//! with what the tool restored.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::whole::{self as whole_repository, Whole, WholeLog};
use crate::files::archived_log::{ArchivedLog, LogArchive, outline};
use crate::files::backup::taking::Opening;
use pagewarden_core::database::repository::{Outcomes, RepositoryKind, RepositoryOptions, Sets};
use pagewarden_core::database::{OpenOptions, Probe, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::read_small;
use pagewarden_core::source::store::{Seen, StorePath, is_not_read};
use pagewarden_core::verdict::Note;

mod block_map;
mod blocks;
mod cipher;
mod expiry;
mod info;
mod log;
mod manifest;
mod members;
mod memory;
mod place;
mod required;
mod set;
mod stanza;
mod stored;
mod whole;

use cipher::Passphrase;
use memory::Memory;
use stanza::Stanza;

/// The tool.
pub(super) const REPOSITORY: RepositoryKind = RepositoryKind { tool: TOOL, probe, open };

const TOOL: &str = "pgBackRest";

/// The tool's own variable.
const PASS_VARIABLE: &str = "PGBACKREST_REPO1_CIPHER_PASS";
/// A passphrase is not longer.
const PASS_BYTES_MAX: usize = 64 << 10;
/// Stanzas past which a folder is no repository.
const STANZAS_MAX: usize = 1000;

/// What a path is.
enum Shape {
    /// A repository, with the folders of its stanzas.
    Repository(Vec<StorePath>),
    Stanza,
    Set(String),
}

fn shape_of(path: &StorePath) -> Option<Shape> {
    let is_below_backup = path.parent().is_some_and(|parent| parent.name() == Some("backup"));
    if info::is_there(path, stanza::INFO) || is_below_backup && is_stanza(path) {
        return Some(Shape::Stanza);
    }
    if info::is_there(path, set::MANIFEST) {
        let name = path.canonical().ok()?.name()?.to_owned();
        return Some(Shape::Set(name));
    }
    let backup = path.join("backup");
    let mut stanzas: Vec<_> = backup
        .list()
        .ok()?
        .into_iter()
        .filter(|entry| !matches!(entry.seen, Seen::File(_)))
        .take(STANZAS_MAX)
        .map(|entry| backup.join(entry.name))
        .filter(is_stanza)
        .collect();
    stanzas.sort_by(|a, b| a.path().cmp(b.path()));
    (!stanzas.is_empty()).then_some(Shape::Repository(stanzas))
}

/// True for the folder of a stanza, also of one that has lost the list of its sets, or must not be read.
fn is_stanza(folder: &StorePath) -> bool {
    if info::is_there(folder, stanza::INFO) {
        return true;
    }
    match folder.list() {
        Ok(entries) => entries.iter().take(STANZAS_MAX).any(|entry| {
            manifest::is_label(&entry.name)
                && info::is_there(&folder.join(&entry.name), set::MANIFEST)
        }),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied || is_not_read(&error),
    }
}

fn probe(path: &StorePath) -> Probe {
    Probe::yes_if(shape_of(path).is_some())
}

fn open(place: &StorePath, options: &OpenOptions) -> Result<Sets, Error> {
    open_for(place, &options.into())
}

pub(super) fn open_for(place: &StorePath, options: &Opening) -> Result<Sets, Error> {
    let wanted = &options.repository;
    let passphrase = passphrase(wanted)?;
    let path = place.path();
    let Some(shape) = shape_of(place) else {
        let hint = "name the folder that holds `backup` and `archive`";
        return Err(Error::unrecognised(path, "no pgBackRest repository", hint));
    };
    let above = |levels: usize| {
        let real = place.absolute().unwrap_or_else(|_| place.clone());
        let named = path.ancestors().nth(levels).filter(|it| !it.as_os_str().is_empty());
        place.at(named.or_else(|| real.path().ancestors().nth(levels)).unwrap_or(path))
    };
    let is_repository = matches!(shape, Shape::Repository(_));
    let (repository, folders, only) = match shape {
        Shape::Repository(folders) => (place.clone(), folders, None),
        Shape::Stanza => (above(2), vec![place.clone()], None),
        Shape::Set(label) => (above(3), vec![above(1)], Some(label)),
    };
    let is_wanted = |folder: &StorePath| {
        wanted.stanza.as_ref().is_none_or(|name| folder.name() == Some(name.as_str()))
    };
    let folders: Vec<_> = folders.into_iter().filter(|folder| is_wanted(folder)).collect();
    let mut stanzas: Vec<_> = folders
        .iter()
        .map(|folder| Stanza::open(&repository, folder, passphrase.as_ref()))
        .collect();
    let mut steps: Vec<_> = stanzas.iter_mut().flat_map(Stanza::take_steps).collect();
    if is_repository {
        steps.extend(log::of_no_stanza(&repository, &is_wanted));
    }
    let chosen = chosen(&stanzas, wanted, only.as_deref());
    let is_known = |label: &String| stanzas.iter().any(|stanza| stanza.has(label));
    let unknown = wanted.sets.iter().find(|label| !is_known(label));
    if let Some(label) = unknown.filter(|_| only.is_none()) {
        let labels: Vec<_> = stanzas.iter().flat_map(Stanza::labels).collect();
        let hint = format!("its sets are: {}", labels.join(", "));
        return Err(Error::refused(path, format!("it has no set {label}"), hint));
    }
    if chosen.is_empty() && (wanted.stanza.is_some() || !wanted.sets.is_empty()) {
        return Err(nothing_chosen(path, &stanzas));
    }
    let logs = match wanted.no_log {
        true => Vec::new(),
        false => {
            let asked: Vec<_> = chosen.iter().map(|(_, label)| label.clone()).collect();
            let pass = passphrase.as_ref();
            let of_stanza =
                |stanza| log::of_stanza(&repository, stanza, pass, Some(&asked), &mut steps);
            stanzas.iter().flat_map(of_stanza).collect()
        }
    };
    let archives: HashMap<String, Arc<dyn LogArchive>> = logs
        .iter()
        .flat_map(|log| log.sets.iter().map(|set| (set.label.clone(), Arc::clone(&log.archive))))
        .collect();
    let outcomes = Outcomes::default();
    let outline = (!wanted.no_log).then(|| outline::of(&logs));
    let whole =
        only.is_none().then(|| whole(&repository, &stanzas, steps, logs, (wanted, &outcomes)));
    let count = chosen.len() + usize::from(whole.is_some());
    let options = options.clone();
    let memory = Arc::new(Mutex::new(Memory::default()));
    let sets = chosen.into_iter().filter_map(move |(at, label)| {
        let stanza = stanzas.get(at)?;
        Some(set::open(stanza, &label, archives.get(&label).cloned(), &memory, &options))
    });
    Ok(Sets::of(count, sets.chain(whole), outcomes).with_outline(outline))
}

fn nothing_chosen(path: &Path, stanzas: &[Stanza]) -> Error {
    let labels: Vec<_> = stanzas.iter().flat_map(Stanza::labels).collect();
    let hint = match labels.as_slice() {
        [] => "the repository has no such stanza".to_owned(),
        labels => format!("its sets are: {}", labels.join(", ")),
    };
    Error::refused(path, "it has no set that was asked for", hint)
}

/// The labels that were asked for, each with the place of its stanza.
fn chosen(
    stanzas: &[Stanza],
    wanted: &RepositoryOptions,
    only: Option<&str>,
) -> Vec<(usize, String)> {
    let mut chosen = Vec::new();
    for (at, stanza) in stanzas.iter().enumerate() {
        let labels = stanza.labels().filter(|label| wanted.wants(label));
        let labels: Vec<_> = match only {
            // Also one that is not listed: it was named.
            Some(only) => vec![only],
            None => labels.collect(),
        };
        let skipped = if wanted.latest { labels.len().saturating_sub(1) } else { 0 };
        chosen.extend(labels.into_iter().skip(skipped).map(|label| (at, label.to_owned())));
    }
    chosen
}

/// The repository itself.
fn whole(
    repository: &StorePath,
    stanzas: &[Stanza],
    mut steps: Vec<Step>,
    logs: Vec<ArchivedLog>,
    (wanted, outcomes): (&RepositoryOptions, &Outcomes),
) -> Target {
    let sets = stanzas.iter().flat_map(Stanza::labels).count();
    if sets == 0 {
        let text = "it has no backup set".to_owned();
        steps.push(Step::Note(Note { file: String::new(), text }));
    }
    let log = if wanted.no_log { WholeLog::LeftOut } else { WholeLog::Read(logs) };
    whole_repository::target(Whole {
        root: repository.path().to_owned(),
        tool: TOOL,
        sets,
        steps,
        log,
        outcomes: outcomes.clone(),
    })
}

/// The passphrase that was given, in a file or in the tool's variable.
fn passphrase(options: &RepositoryOptions) -> Result<Option<Passphrase>, Error> {
    let Some(path) = &options.cipher_pass_file else {
        use pagewarden_core::system::OsStringExt as _;
        let value = std::env::var_os(PASS_VARIABLE).filter(|value| !value.is_empty());
        return Ok(value.map(|value| Passphrase::new(value.into_vec())));
    };
    let mut bytes = read_small(path, PASS_BYTES_MAX)
        .map_err(|source| Error::io("read the passphrase from", path, source))?;
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    Ok(Some(Passphrase::new(bytes)))
}

//! What is checked by itself: the targets that paths stand for.

use std::path::{Path, PathBuf};

use pagewarden::Error;
use pagewarden::database::repository::{self, Sets};
use pagewarden::database::{FolderKind, Format, OpenOptions, folder, parts};
use pagewarden::formats::FORMATS;
use pagewarden::source::store::{Seen, StorePath, Stores, ThisMachine, Trouble, is_not_read};

/// What is to be checked at an address, each by itself: a file, a repository of backups, a database in
/// files of its own; or all of them in a folder that is none of these.
///
/// # Errors
/// It cannot be found out, or there is none.
pub(crate) fn targets_at(
    address: &Path,
    place: Result<StorePath, Error>,
    kind: Option<&Format>,
    stores: &dyn Stores,
) -> Result<Vec<StorePath>, Error> {
    let before = stores.trouble().map_or(0, |trouble| trouble.times);
    let place = place?;
    let unseen = |source| match is_not_read(&source) {
        true => unknown(address, &source.to_string()),
        false => Error::io("open", address, source),
    };
    let is_one = repository::kind_of(&place, kind).is_some()
        || match place.look().map_err(unseen)? {
            Seen::File(_) => true,
            Seen::Folder | Seen::Other => folder::mark_of(&place).is_some(),
        };
    if is_one {
        return Ok(vec![place]);
    }
    let found = folder::stored(&place, kind);
    // Where a store did not answer, what is there may have been taken for something else.
    if let Some(Trouble { last, .. }) = stores.trouble().filter(|trouble| trouble.times > before) {
        return Err(unknown(address, &last));
    }
    let found = found?;
    if found.is_empty() {
        let hint = "name the folder that holds the repository or the files, or a single file";
        let reason = "a folder in which no repository of backups and no database was recognised";
        return Err(Error::unrecognised(address, reason, hint));
    }
    Ok(found)
}

fn unknown(address: &Path, why: &str) -> Error {
    let reason = format!("what it is could not be found out: {why}");
    Error::refused(address, reason, "check it again once the store answers")
}

/// What is checked by itself.
#[derive(Debug)]
pub enum Subject {
    /// One target, in one file or folder or in several.
    Target(Vec<PathBuf>),
    /// A file of a store that is no folder of this machine.
    Stored(StorePath),
    /// A backup repository, with its targets or why it cannot be opened.
    Repository(PathBuf, Result<Sets, Error>),
}

impl Subject {
    /// The subject that lies in these paths, which belong together: files, or the folders of backups
    /// that build on one another.
    #[must_use]
    pub fn of(
        paths: Vec<PathBuf>,
        kind: Option<&Format>,
        options: &OpenOptions,
        stores: &dyn Stores,
    ) -> Self {
        if let [path] = paths.as_slice()
            && let Some(place) = stores.place(path)
        {
            return match place {
                Ok(place) => Self::at(place, kind, options),
                Err(error) => Self::Repository(error.path().into(), Err(error)),
            };
        }
        if let Some(backups) = Self::backups_in(&paths, kind, options) {
            return backups;
        }
        let [path] = paths.as_slice() else { return Self::Target(paths) };
        let place = StorePath::local(path);
        match repository::kind_of(&place, kind) {
            Some(tool) => Self::Repository(path.clone(), (tool.open)(&place, options)),
            None => Self::Target(paths),
        }
    }

    /// A file of a store, or a folder of it that is one target.
    pub(crate) fn at(place: StorePath, kind: Option<&Format>, options: &OpenOptions) -> Self {
        if !place.is_folder() {
            return Self::Stored(place);
        }
        let path = place.path().to_owned();
        let sets = match repository::kind_of(&place, kind) {
            Some(tool) => (tool.open)(&place, options),
            None => Err(match folder::mark_of(&place) {
                Some(mark) => {
                    let reason = format!(
                        "a database or a backup in files of its own (it has {mark}), which is not read \
                         there"
                    );
                    let hint =
                        "copy the folder to this machine; name single archives and files of it";
                    Error::refused(&path, reason, hint)
                }
                None => unknown(&path, "it is no longer the folder that it was, or is not shown"),
            }),
        };
        Self::Repository(path, sets)
    }

    /// Backups in these plain folders, if they build on one another.
    fn backups_in(paths: &[PathBuf], kind: Option<&Format>, options: &OpenOptions) -> Option<Self> {
        if !paths.iter().all(|path| path.is_dir() && !folder::is_target(path, kind)) {
            return None;
        }
        let backups = units(paths, kind).ok()?.pop()?;
        matches!(backups, Group::Backups { .. }).then(|| backups.subject(kind, options))?
    }

    /// How many targets it has.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Repository(_, Ok(sets)) => sets.count,
            Self::Repository(_, Err(_)) | Self::Target(_) | Self::Stored(_) => 1,
        }
    }
}

/// Everything that is to be checked, in the order in which it is named: paths that belong together
/// are one subject, and the databases in a folder stand in the place of one that is none itself.
///
/// # Errors
/// A folder cannot be listed.
pub fn groups(paths: &[PathBuf], kind: Option<&Format>) -> Result<Vec<Vec<PathBuf>>, Error> {
    Ok(parts::grouped(&with_folders_listed(paths, kind)?, kind))
}

/// The paths, with the databases in a folder in the place of one that is none itself.
fn with_folders_listed(paths: &[PathBuf], kind: Option<&Format>) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for path in paths {
        let is_plain_folder = path.is_dir() && !folder::is_target(path, kind);
        let databases = if is_plain_folder { folder::databases(path, kind)? } else { Vec::new() };
        match databases.is_empty() {
            // What is wrong with it is said where it is opened.
            true => all.push(path.clone()),
            false => all.extend(databases),
        }
    }
    Ok(all)
}

/// What [`units`] finds.
#[derive(Debug)]
pub(crate) enum Group {
    /// Paths that are one subject.
    One(Vec<PathBuf>),
    /// Backups in plain folders that build on one another: one subject, as the sets of a repository.
    Backups { folders: Vec<PathBuf>, kind: &'static FolderKind, backups: Vec<Vec<PathBuf>> },
}

impl Group {
    /// The address that it is, and where it leads.
    pub(crate) fn address(
        &self,
        stores: &dyn Stores,
    ) -> Option<(PathBuf, Result<StorePath, Error>)> {
        let Self::One(paths) = self else { return None };
        let [path] = paths.as_slice() else { return None };
        Some((path.clone(), stores.place(path)?))
    }

    /// The subject that it is.
    fn subject(self, kind: Option<&Format>, options: &OpenOptions) -> Option<Subject> {
        match self {
            Self::One(paths) => Some(Subject::of(paths, kind, options, &ThisMachine)),
            Self::Backups { folders, kind, backups } => {
                let folder = folders.into_iter().next()?;
                let sets = (kind.open)(&folder, &backups);
                Some(Subject::Repository(folder, Ok(sets)))
            }
        }
    }
}

/// As [`groups`], but backups in plain folders that build on one another stand together, at the end.
pub(crate) fn units(paths: &[PathBuf], kind: Option<&Format>) -> Result<Vec<Group>, Error> {
    let is_listed = |path: &PathBuf| paths.iter().all(|named| named != path);
    let (mut all, mut together) = (Vec::new(), Vec::new());
    for group in groups(paths, kind)? {
        let known = FORMATS.iter().filter(|one| kind.is_none_or(|kind| kind.name == one.name));
        let mut kinds = known.filter_map(|format| format.in_folder.as_ref());
        match kinds.find(|kind| group.iter().all(is_listed) && (kind.is_part)(&group)) {
            Some(kind) => together.push((kind, group)),
            None => all.push(Group::One(group)),
        }
    }
    if let Some(&(chosen, _)) = together.first() {
        let is_plain_folder = |path: &&PathBuf| path.is_dir() && !folder::is_target(path, kind);
        let folders = paths.iter().filter(is_plain_folder).cloned().collect();
        let backups = together.into_iter().map(|(_, group)| group).collect();
        all.push(Group::Backups { folders, kind: chosen, backups });
    }
    Ok(all)
}

/// What is checked, in the order in which it is named: backups in plain folders that build on one
/// another are one subject, as the sets of a repository are.
///
/// # Errors
/// A folder cannot be listed.
pub fn subjects(
    paths: &[PathBuf],
    kind: Option<&Format>,
    options: &OpenOptions,
    stores: &dyn Stores,
) -> Result<Vec<Subject>, Error> {
    let mut subjects = Vec::new();
    for group in units(paths, kind)? {
        match group.address(stores) {
            Some((address, place)) => match targets_at(&address, place, kind, stores) {
                Ok(places) => {
                    subjects.extend(places.into_iter().map(|it| Subject::at(it, kind, options)));
                }
                // Its path has no password in it.
                Err(error) => subjects.push(Subject::Repository(error.path().into(), Err(error))),
            },
            None => subjects.extend(group.subject(kind, options)),
        }
    }
    Ok(subjects)
}

/// True for the name that stands for standard input.
#[must_use]
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

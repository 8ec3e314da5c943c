//! What is checked by itself: the targets that paths stand for.

use std::path::{Path, PathBuf};

use pagewarden::Error;
use pagewarden::database::repository::{self, Sets};
use pagewarden::database::{FolderKind, Format, OpenOptions, folder, parts};
use pagewarden::formats::FORMATS;
use pagewarden::source::store::StorePath;

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
    pub fn of(paths: Vec<PathBuf>, kind: Option<&Format>, options: &OpenOptions) -> Self {
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
    /// The subject that it is.
    fn subject(self, kind: Option<&Format>, options: &OpenOptions) -> Option<Subject> {
        match self {
            Self::One(paths) => Some(Subject::of(paths, kind, options)),
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
) -> Result<Vec<Subject>, Error> {
    let units = units(paths, kind)?;
    Ok(units.into_iter().filter_map(|group| group.subject(kind, options)).collect())
}

/// True for the name that stands for standard input.
#[must_use]
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

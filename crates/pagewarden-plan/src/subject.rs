//! What is checked by itself: the targets that paths stand for.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pagewarden::Error;
use pagewarden::database::repository::{self, Sets};
use pagewarden::database::{FolderKind, Format, OpenOptions, folder, parts, stored};
use pagewarden::formats::FORMATS;
use pagewarden::source::store::{Seen, StorePath, Stores, ThisMachine, Trouble, is_not_read};

/// All files, repositories of backups and databases in files of their own below an address; nothing where it
/// is one of these itself.
///
/// # Errors
/// It cannot be found out, or there is none.
fn targets_at(
    address: &Path,
    place: &StorePath,
    kind: Option<&Format>,
    stores: &dyn Stores,
) -> Result<Vec<StorePath>, Error> {
    let before = stores.trouble().map_or(0, |trouble| trouble.times);
    let unseen = |source| match is_not_read(&source) {
        true => unknown(address, &source.to_string()),
        false => Error::io("open", address, source),
    };
    let is_one = repository::kind_of(place, kind).is_some()
        || match place.look().map_err(unseen)? {
            Seen::File(_) => true,
            Seen::Folder | Seen::Other => folder::mark_of(place).is_some(),
        };
    if is_one {
        return Ok(Vec::new());
    }
    let found = folder::stored(place, kind);
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
    /// One target in a file or folder of a store that is no folder of this machine, or in several files.
    Stored(Vec<StorePath>),
    /// A backup repository, with its targets or why it cannot be opened.
    Repository(PathBuf, Result<Sets, Error>),
}

impl Subject {
    /// It will be read once what is being read is over: a store may fetch it.
    pub fn expect(&self, kind: Option<&Format>) {
        if let Self::Stored(places) = self {
            stored::expect_together(places, kind);
        }
    }

    /// The subject that lies in these paths, which belong together: files, or the folders of backups
    /// that build on one another.
    #[must_use]
    pub fn of(
        paths: &[PathBuf],
        kind: Option<&Format>,
        options: &OpenOptions,
        stores: &dyn Stores,
    ) -> Self {
        let places = paths.iter().map(|path| match stores.place(path) {
            Some(place) => place,
            None => Ok(StorePath::local(path)),
        });
        match places.collect::<Result<Vec<_>, _>>() {
            Ok(places) => Self::backups_in(paths, &places, kind, options, stores)
                .unwrap_or_else(|| Self::at(places, kind, options)),
            Err(error) => Self::failed(error),
        }
    }

    /// Why it is not known what there is.
    fn failed(error: Error) -> Self {
        // Its path has no password in it.
        Self::Repository(error.path().into(), Err(error))
    }

    /// Files that belong together, or a folder that is one target.
    fn at(places: Vec<StorePath>, kind: Option<&Format>, options: &OpenOptions) -> Self {
        let is_local = places.iter().all(|place| place.local_path().is_some());
        if let [place] = places.as_slice()
            && (is_local || place.is_folder())
        {
            let path = place.path().to_owned();
            match repository::kind_of(place, kind) {
                Some(tool) => return Self::Repository(path, (tool.open)(place, options)),
                None if is_local => {}
                None if stored::of_folder(place, kind).is_some() => {}
                None => return Self::Repository(path, Err(unreadable(place))),
            }
        }
        match is_local {
            true => Self::Target(places.iter().map(|place| place.path().to_owned()).collect()),
            false => Self::Stored(places),
        }
    }

    /// Backups in these plain folders, if they build on one another.
    fn backups_in(
        paths: &[PathBuf],
        places: &[StorePath],
        kind: Option<&Format>,
        options: &OpenOptions,
        stores: &dyn Stores,
    ) -> Option<Self> {
        if !places.iter().all(|place| is_plain_folder(place, kind)) {
            return None;
        }
        let group = units(paths, kind, stores).ok()?.pop()?;
        (!matches!(group, Group::One(_))).then(|| group.subject(kind, options))
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

/// A folder that is no target itself.
fn is_plain_folder(place: &StorePath, kind: Option<&Format>) -> bool {
    match place.local_path() {
        Some(path) => path.is_dir() && !folder::is_target(path, kind),
        None => {
            place.is_folder()
                && repository::kind_of(place, kind).is_none()
                && folder::mark_of(place).is_none()
        }
    }
}

/// A folder of a store that is no repository.
fn unreadable(place: &StorePath) -> Error {
    let path = place.path();
    let Some(mark) = folder::mark_of(place) else {
        return unknown(path, "it is no longer the folder that it was, or is not shown");
    };
    let reason = format!(
        "a database or a backup in files of its own (it has {mark}), which is not read there"
    );
    let hint = "copy the folder to this machine; name single archives and files of it";
    Error::refused(path, reason, hint)
}

/// Everything of this machine that is to be checked, in the order in which it is named: paths that belong
/// together are one subject, and the databases in a folder stand in the place of one that is none itself.
///
/// # Errors
/// A folder cannot be listed.
pub fn groups(paths: &[PathBuf], kind: Option<&Format>) -> Result<Vec<Vec<PathBuf>>, Error> {
    let named = Named::all(paths, kind, &ThisMachine)?;
    let paths = |places: Vec<StorePath>| places.iter().map(|it| it.path().to_owned()).collect();
    grouped(named.places, kind).map(|group| group.map(paths)).collect()
}

/// What paths stand for.
#[derive(Default)]
struct Named {
    /// Files and folders, in the order in which they or their folders are named; or why it is not known
    /// what there is.
    places: Vec<Result<StorePath, Error>>,
    /// Those that were not named themselves.
    listed: HashSet<PathBuf>,
    /// The folders that these were found in.
    folders: Vec<StorePath>,
}

impl Named {
    /// With the databases in a folder in the place of one that is none itself.
    fn all(paths: &[PathBuf], kind: Option<&Format>, stores: &dyn Stores) -> Result<Self, Error> {
        let mut all = Self::default();
        for path in paths {
            let Some(place) = stores.place(path) else {
                let place = StorePath::local(path);
                let is_plain_folder = is_plain_folder(&place, kind);
                let found =
                    if is_plain_folder { folder::databases(path, kind)? } else { Vec::new() };
                all.add(place, found.into_iter().map(StorePath::local).collect());
                continue;
            };
            match place.and_then(|place| Ok((targets_at(path, &place, kind, stores)?, place))) {
                Ok((found, place)) => all.add(place, found),
                Err(error) => all.places.push(Err(error)),
            }
        }
        Ok(all)
    }

    /// What was found in a folder; nothing where it is a target itself, or what is wrong with it is said
    /// where it is opened.
    fn add(&mut self, place: StorePath, found: Vec<StorePath>) {
        if found.is_empty() {
            self.places.push(Ok(place));
            return;
        }
        self.folders.push(place);
        self.listed.extend(found.iter().map(|place| place.path().to_owned()));
        self.places.extend(found.into_iter().map(Ok));
    }
}

/// Those that belong together in the place of the first of them.
fn grouped(
    places: Vec<Result<StorePath, Error>>,
    kind: Option<&Format>,
) -> impl Iterator<Item = Result<Vec<StorePath>, Error>> {
    let known: Vec<_> = places.iter().flatten().cloned().collect();
    let mut groups = parts::grouped(&known, kind).into_iter().peekable();
    let begins = |group: &[StorePath], place: &StorePath| {
        group.first().is_some_and(|first| first.path() == place.path())
    };
    places.into_iter().filter_map(move |place| match place {
        Ok(place) => groups.next_if(|group| begins(group, &place)).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// What [`units`] finds.
#[derive(Debug)]
pub(crate) enum Group {
    /// Files that are one subject, or a folder that is.
    One(Vec<StorePath>),
    /// Backups in plain folders that build on one another: one subject, as the sets of a repository.
    Backups { folders: Vec<StorePath>, kind: &'static FolderKind, backups: Vec<Vec<StorePath>> },
    /// It could not be found out what there is.
    Failed(Error),
}

impl Group {
    /// The subject that it is.
    pub(crate) fn subject(self, kind: Option<&Format>, options: &OpenOptions) -> Subject {
        match self {
            Self::One(places) => Subject::at(places, kind, options),
            Self::Backups { folders, kind, backups } => {
                let folder = folders.into_iter().next().unwrap_or_else(|| StorePath::local(""));
                let sets = (kind.open)(&folder, &backups);
                Subject::Repository(folder.path().to_owned(), Ok(sets))
            }
            Self::Failed(error) => Subject::failed(error),
        }
    }
}

/// Everything that is to be checked, in the order in which it is named; but backups in plain folders that
/// build on one another stand together, at the end.
///
/// # Errors
/// A folder of this machine cannot be listed.
pub(crate) fn units(
    paths: &[PathBuf],
    kind: Option<&Format>,
    stores: &dyn Stores,
) -> Result<Vec<Group>, Error> {
    let Named { places, listed, folders } = Named::all(paths, kind, stores)?;
    let (mut all, mut together) = (Vec::new(), Vec::new());
    for group in grouped(places, kind) {
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                all.push(Group::Failed(error));
                continue;
            }
        };
        let known = FORMATS.iter().filter(|one| kind.is_none_or(|kind| kind.name == one.name));
        let mut kinds = known.filter_map(|format| format.in_folder.as_ref());
        let is_listed = group.iter().all(|place| listed.contains(place.path()));
        match kinds.find(|kind| is_listed && (kind.is_part)(&group)) {
            Some(kind) => together.push((kind, group)),
            None => all.push(Group::One(group)),
        }
    }
    if let Some(&(kind, _)) = together.first() {
        let backups = together.into_iter().map(|(_, group)| group).collect();
        all.push(Group::Backups { folders, kind, backups });
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
    let groups = units(paths, kind, stores)?.into_iter();
    Ok(groups.map(|group| group.subject(kind, options)).collect())
}

/// True for the name that stands for standard input.
#[must_use]
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

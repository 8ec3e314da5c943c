//! The folder of a copy while it is filled, and what a data directory holds.
//!
//! While a copy is made, `pagewarden-protect.copy` in its folder says that it is not finished and
//! of what it is one, and lets the same command begin it again. What makes the copy a database is
//! the engine's matter, and comes last.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::protect::Options;
use crate::protect::disk::{Disk, Written, remove, sync_folder};
use crate::source::file::read_small;
use crate::system::FileTypeExt as _;

/// Says that a copy is not finished, and of what.
pub const MARKER: &str = "pagewarden-protect.copy";
/// The same, before it is whole.
const MARKER_BEFORE: &str = "pagewarden-protect.copy.new";
const MARK_BYTES_MAX: usize = 4096;

/// What is in the place of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No folder.
    Nothing,
    /// A folder without files of other programs.
    Empty,
    /// What an interrupted run left.
    Unfinished,
    /// What a run left that was interrupted when all was done.
    Complete,
}

/// The folder that a copy is made in.
#[derive(Debug)]
pub struct CopyFolder<'a> {
    /// What it is on.
    pub disk: &'a dyn Disk,
    /// How it is done.
    pub options: &'a Options,
    /// Where it is.
    pub path: PathBuf,
    /// What the marker says: of what this is a copy.
    mark: String,
}

impl<'a> CopyFolder<'a> {
    /// `state` is what the copy is of: this database, as it is now, changed in this way.
    pub fn new(disk: &'a dyn Disk, options: &'a Options, path: &Path, state: &str) -> Self {
        let mark = format!("unfinished copy by pagewarden protect, not to be used\n{state}\n");
        Self { disk, options, path: path.to_owned(), mark }
    }

    /// The file that says that the copy is unfinished.
    pub fn marker(&self) -> PathBuf {
        self.path.join(MARKER)
    }

    /// Makes sure that no files of other programs are in the way. With a file of the name `last`
    /// the copy is a database; one of the name `begun` is what a run leaves that had just begun.
    pub fn look(&self, last: &str, begun: &str) -> Result<Found, Error> {
        let listed = |error| Error::io("list", &self.path, error);
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            entries => entries.map_err(listed)?,
        };
        let names: Result<Vec<_>, _> =
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let names = names.map_err(listed)?;
        let marked = read_small(&self.marker(), MARK_BYTES_MAX);
        if marked.is_ok_and(|found| found == self.mark.as_bytes()) {
            let is_complete = self.path.join(last).exists();
            return Ok(if is_complete { Found::Complete } else { Found::Unfinished });
        }
        if names.iter().any(|name| name != begun) {
            return Err(Error::refused(
                &self.path,
                "this folder is not empty, and what is in it is no unfinished copy of this database as it is now",
                "name a folder that does not exist or is empty",
            ));
        }
        Ok(Found::Empty)
    }

    /// The same for a copy that [`Self::begin`] began.
    pub fn look_begun(&self, last: &str) -> Result<Found, Error> {
        self.look(last, MARKER_BEFORE)
    }

    /// Makes the folder, and says that what will be in it is an unfinished copy.
    pub fn begin(&self, found: Found, owner: &Metadata) -> Result<(), Error> {
        if matches!(found, Found::Unfinished | Found::Complete) {
            return Ok(());
        }
        self.make(found)?;
        // Whole at once, so that it is found or not.
        let (before, marker) = (self.path.join(MARKER_BEFORE), self.marker());
        remove(self.disk, &before)?;
        let file = self.disk.create(&before, owner).map_err(copying_to(&before))?;
        let write = || {
            self.write_mark(&file)?;
            self.disk.rename(&before, &marker)
        };
        write().map_err(copying_to(&marker))?;
        self.sync_folder(&self.path)
    }

    /// Makes the folder where there is none.
    pub fn make(&self, found: Found) -> Result<(), Error> {
        if found != Found::Nothing {
            return Ok(());
        }
        self.disk.make_folder(&self.path).map_err(copying_to(&self.path))?;
        self.sync_folder(parent_of(&self.path))
    }

    /// Writes what the marker says into a file of its own.
    pub fn write_mark(&self, file: &Written) -> io::Result<()> {
        self.disk.write_at(file, self.mark.as_bytes(), 0)?;
        self.disk.set_length(file, self.mark.len() as u64)?;
        if self.options.sync { self.disk.sync(file) } else { Ok(()) }
    }

    /// Makes the folders of a tree, and the links to those that are elsewhere.
    pub fn make_folders(&self, tree: &Tree) -> Result<(), Error> {
        for folder in &tree.folders {
            let path = self.path.join(&folder.name);
            let made = match &folder.elsewhere {
                None => self.disk.make_folder(&path),
                Some(place) => {
                    remove(self.disk, &path)?;
                    self.disk.make_link(place, &path, &folder.like)
                }
            };
            made.map_err(copying_to(&path))?;
        }
        Ok(())
    }

    /// Makes sure that all names in the folders of a tree outlive a power failure.
    /// Makes sure that the names in a folder of the copy are on the device, as far as that is wanted.
    ///
    /// # Errors
    /// The folder cannot be opened or synced.
    /// Makes sure that the names in a folder of the copy are on the device, as far as that is wanted.
    ///
    /// # Errors
    /// The folder cannot be opened or synced.
    pub fn sync_folders(&self, tree: &Tree) -> Result<(), Error> {
        let folders = tree.folders.iter().rev();
        folders
            .map(|folder| self.path.join(&folder.name))
            .try_for_each(|path| self.sync_folder(&path))
    }

    /// What is left to do when the copy is a database.
    pub fn end(&self, folders: &[Folder]) -> Result<(), Error> {
        let give = |name: &Path, like| {
            let path = self.path.join(name);
            self.disk.set_folder_attributes(&path, like).map_err(copying_to(&path))
        };
        folders.iter().rev().try_for_each(|folder| give(&folder.name, &folder.like))?;
        remove(self.disk, &self.marker())?;
        // Which has changed its time.
        if let Some(folder) = folders.first() {
            give(&folder.name, &folder.like)?;
        }
        self.sync_folder(&self.path)
    }

    /// Makes sure that the names in a folder of the copy are on the device, as far as that is wanted.
    ///
    /// # Errors
    /// The folder cannot be opened or synced.
    pub fn sync_folder(&self, path: &Path) -> Result<(), Error> {
        sync_folder(self.disk, self.options, path)
    }
}

/// What could not be done to a file or folder of a copy.
pub fn copying_to(path: &Path) -> impl FnOnce(io::Error) -> Error + use<'_> {
    move |error| Error::io("copy to", path, error)
}

/// A copy inside its own source would never end, and of two in one place neither would be right.
pub fn check_apart(source: &Path, target: &Path) -> Result<(), Error> {
    let absolute = |path: &Path| {
        let absolute = fs::canonicalize(path).or_else(|_| {
            let parent = fs::canonicalize(parent_of(path))?;
            Ok(parent.join(path.file_name().unwrap_or_default()))
        });
        absolute.map_err(|error| Error::io("open", path, error))
    };
    let (target_path, source_path) = (absolute(target)?, absolute(source)?);
    if target_path.starts_with(&source_path) || source_path.starts_with(&target_path) {
        let reason = format!("this and {} lie inside one another", source.display());
        return Err(Error::refused(target, reason, "name a folder elsewhere"));
    }
    Ok(())
}

fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

/// A folder of a data directory.
#[derive(Debug)]
pub struct Folder {
    /// Below the data directory.
    pub name: PathBuf,
    /// What the folder of the source is like.
    pub like: Metadata,
    /// Where its copy lies, if not in the copy: that has a link to it then.
    pub elsewhere: Option<PathBuf>,
}

/// Everything in a data directory, by its path relative to it.
#[derive(Debug, Default)]
pub struct Tree {
    /// Parents first.
    pub folders: Vec<Folder>,
    /// Regular files.
    pub files: Vec<PathBuf>,
    /// Symbolic links, and what each is like.
    pub links: Vec<(PathBuf, Metadata)>,
    /// What is not in the copy as it is in the source.
    pub warnings: Vec<String>,
}

/// What becomes of a name in a data directory.
#[derive(Debug)]
pub enum Take {
    /// A file, or a folder with all that is in it. Sockets and pipes are left out.
    AsItIs,
    /// Not in the copy; why, where that is to be said.
    LeftOut(Option<&'static str>),
    /// A link that becomes a folder with all that is in the one it leads to.
    Folder(&'static str),
    /// The same link.
    Link(&'static str),
    /// A link to a folder whose copy lies here.
    Elsewhere(PathBuf),
}

/// Asked of every name in a data directory.
type Rule<'a> = dyn Fn(&Path, &Metadata) -> Result<Take, Error> + 'a;

impl Tree {
    /// Of the data directory `root`.
    pub fn of(root: &Path, rule: &Rule<'_>) -> Result<Self, Error> {
        let mut tree = Self::default();
        tree.walk(root, Path::new(""), None, rule)?;
        Ok(tree)
    }

    fn walk(
        &mut self,
        root: &Path,
        name: &Path,
        elsewhere: Option<PathBuf>,
        rule: &Rule<'_>,
    ) -> Result<(), Error> {
        let folder = root.join(name);
        let listed = |error| Error::io("list", &folder, error);
        let like = fs::metadata(&folder).map_err(listed)?;
        self.folders.push(Folder { name: name.to_owned(), like, elsewhere });
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(listed)? {
            names.push(name.join(entry.map_err(listed)?.file_name()));
        }
        names.sort();
        names.into_iter().try_for_each(|name| self.take(root, name, rule))
    }

    fn take(&mut self, root: &Path, name: PathBuf, rule: &Rule<'_>) -> Result<(), Error> {
        let path = root.join(&name);
        let metadata =
            fs::symlink_metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
        let kind = metadata.file_type();
        let mut warn = |text: &str| self.warnings.push(format!("{}: {text}", name.display()));
        match rule(&name, &metadata)? {
            Take::LeftOut(why) => why.into_iter().for_each(warn),
            Take::Folder(text) => {
                warn(text);
                self.walk(root, &name, None, rule)?;
            }
            Take::Elsewhere(place) => self.walk(root, &name, Some(place), rule)?,
            Take::Link(text) => {
                warn(text);
                self.links.push((name, metadata));
            }
            Take::AsItIs if kind.is_dir() => self.walk(root, &name, None, rule)?,
            Take::AsItIs if kind.is_file() => self.files.push(name),
            Take::AsItIs if kind.is_socket() || kind.is_fifo() => warn("no file, left out"),
            Take::AsItIs => {}
        }
        Ok(())
    }
}

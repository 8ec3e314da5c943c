//! The names of a database, of the files beside it, and of one that is not finished.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use pagewarden_core::error::Error;
use pagewarden_core::protect::Outcome;
use pagewarden_core::protect::disk::{Disk, Written};
use pagewarden_core::system::fs::{FlockOperation, flock};

/// Behind the name of a database: one that is being made to take its place.
pub(super) const UNFINISHED: &str = ".pagewarden-protect";

/// A file beside a database, as SQLite names it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Where the changed database goes.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
    /// Nothing must be there yet.
    is_new: bool,
}

impl Place {
    /// The place of `database` itself, or the one named for a copy: a file, or the
    /// folder that it goes to. A name without an extension that does not exist is
    /// that of a folder.
    pub(super) fn find(database: &Path, copy_to: Option<&Path>) -> Result<Self, Error> {
        let Some(target) = copy_to else {
            let folder = database.parent().unwrap_or_else(|| Path::new("/")).to_owned();
            return Ok(Self { path: database.to_owned(), folder, is_new: false });
        };
        let ends_in_slash = target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let is_folder = target.is_dir()
            || (!target.exists() && (ends_in_slash || target.extension().is_none()));
        let path = match database.file_name() {
            Some(name) if is_folder => target.join(name),
            _ => target.to_owned(),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).to_owned();
        Ok(Self { path, folder, is_new: true })
    }

    /// A copy overwrites no database, and no database gets the log of another.
    pub(super) fn check_free(&self) -> Result<(), Error> {
        if !self.is_new {
            return Ok(());
        }
        for suffix in ["", "-journal", "-wal"] {
            let path = beside(&self.path, suffix);
            if fs::symlink_metadata(&path).is_ok() {
                let reason = "there is a file of this name already, and a copy overwrites none";
                return Err(Error::refused(&path, reason, "name a file that does not exist"));
            }
        }
        Ok(())
    }

    fn make_folder(&self, disk: &dyn Disk) -> Result<(), Error> {
        if !self.is_new || self.folder.is_dir() {
            return Ok(());
        }
        disk.make_folder(&self.folder).map_err(|error| Error::io("make", &self.folder, error))
    }
}

/// A database that has not got its name yet. The lock on it distinguishes one that a run
/// is working on from one that an interrupted run left.
pub(super) struct Unfinished {
    pub(super) file: Written,
}

impl Unfinished {
    /// Makes the file, empty, for its owner only; takes away what an interrupted run
    /// left of one.
    pub(super) fn begin(
        disk: &dyn Disk,
        place: &Place,
        like: &Metadata,
        outcome: &mut Outcome,
    ) -> Result<Self, Error> {
        place.make_folder(disk)?;
        let path = beside(&place.path, UNFINISHED);
        match Written::open(&path) {
            Ok(left) => {
                if flock(&left.file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    let reason = "another run of this program is writing it";
                    return Err(Error::in_use(&path, reason, "wait until it has ended"));
                }
                remove(disk, &path)?;
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                outcome.warnings.push(format!("{name}, left by an interrupted run, was removed"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("open", &path, error)),
        }
        // SQLite's journal for the copy would be played into the next one.
        remove(disk, &beside(&path, "-journal"))?;
        let failed = |error| Error::io("write", &path, error);
        let file = disk.create(&path, like).map_err(failed)?;
        flock(&file.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed(error.into()))?;
        Ok(Self { file })
    }

    /// Takes it away. What fails here is found by the next run.
    pub(super) fn discard(self, disk: &dyn Disk) {
        let _ = remove(disk, &self.file.path);
        let _ = remove(disk, &beside(&self.file.path, "-journal"));
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

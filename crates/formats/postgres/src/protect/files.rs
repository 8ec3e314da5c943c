//! The files whose pages carry checksums: those that `pg_checksums` covers, by
//! the names that servers give.
//!
//! | folder | what is in it |
//! | --- | --- |
//! | `global` | relations that all databases share |
//! | `base/OID` | a database |
//! | `pg_tblspc/OID/PG_MAJOR_CATALOGUE/OID` | a database's part of a tablespace; folders of other versions there belong to other clusters |
//!
//! All forks, all segments, temporary and unlogged relations too. Source:
//! `src/bin/pg_checksums/pg_checksums.c`. What could hide a page that is verified
//! later stops the run: a claim must be true of every page.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::names::{Fork, RelationFile, is_known_without_pages};
use pagewarden_core::error::Error;
use pagewarden_core::system::{MetadataExt as _, identity};

/// A folder of relations.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Relative to the data directory.
    pub(super) name: String,
}

/// A file of pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Which folder it is in.
    pub(super) folder: usize,
    pub(super) file: RelationFile,
    pub(super) length: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) folders: Vec<Folder>,
    pub(super) entries: Vec<Entry>,
    pub(super) warnings: Vec<String>,
}

impl Listing {
    /// Lists a cluster's relations. `version` is as in the names of tablespace
    /// folders, `PG_15_202209061`.
    pub(super) fn of(root: &Path, version: &str) -> Result<Self, Error> {
        let mut listing = Self::default();
        let mut seen = HashSet::new();
        let mut add = |listing: &mut Self, path: PathBuf, name: String| {
            let metadata = fs::metadata(&path).map_err(|error| Error::io("open", &path, error))?;
            // Two links to one place, or one back into the cluster.
            let identity = identity(&metadata, &path);
            if seen.insert(identity.map_err(|error| Error::io("open", &path, error))?) {
                listing.folders.push(Folder { path, name });
            }
            Ok::<(), Error>(())
        };
        add(&mut listing, root.join("global"), "global".to_owned())?;
        let mut places = vec![(root.join("base"), "base".to_owned())];
        for (name, path) in names_in(&root.join("pg_tblspc"))? {
            if !is_number(&name) {
                listing.warn_foreign(&format!("pg_tblspc/{name}"));
                continue;
            }
            let folder = path.join(version);
            if !folder.is_dir() {
                return Err(Error::refused(
                    &folder,
                    "this tablespace is not available, and its pages would be left as they are",
                    "mount its file system; a link that leads nowhere must be removed",
                ));
            }
            places.push((folder, format!("pg_tblspc/{name}/{version}")));
        }
        for (place, place_name) in places {
            for (name, path) in names_in(&place)? {
                if name.starts_with("pgsql_tmp") {
                    continue;
                }
                let name_in_root = format!("{place_name}/{name}");
                let metadata = status(&path)?;
                if is_number(&name) && metadata.is_dir() {
                    add(&mut listing, path, name_in_root)?;
                } else if metadata.is_symlink() || metadata.is_dir() {
                    return Err(unexpected(&path));
                } else {
                    listing.warn_foreign(&name_in_root);
                }
            }
        }
        for index in 0..listing.folders.len() {
            listing.add_files(index)?;
        }
        // Large ones first: what is left for the end is then small, and no
        // thread waits long for another.
        listing.entries.sort_by_key(|entry| std::cmp::Reverse(entry.length));
        Ok(listing)
    }

    /// The name of a file, relative to the data directory.
    pub(super) fn name(&self, entry: &Entry) -> String {
        let folder = self.folders.get(entry.folder).map_or("", |folder| &folder.name);
        format!("{folder}/{}", entry.file.name())
    }

    /// Where a file is.
    pub(super) fn path(&self, entry: &Entry) -> PathBuf {
        let folder = self.folders.get(entry.folder).map(|folder| folder.path.as_path());
        folder.unwrap_or_else(|| Path::new("")).join(entry.file.name())
    }

    /// Bytes in all files.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.length))
    }

    fn add_files(&mut self, index: usize) -> Result<(), Error> {
        let Some(folder) = self.folders.get(index) else { return Ok(()) };
        let (folder_name, folder_path) = (folder.name.clone(), folder.path.clone());
        let mut shared = 0_u64;
        for (name, path) in names_in(&folder_path)? {
            let metadata = status(&path)?;
            match RelationFile::parse(&name) {
                Some(file) if file.is_incremental => {
                    return Err(Error::refused(
                        &path,
                        "an incremental backup, which holds only some of the pages",
                        "combine it with its full backup first (pg_combinebackup)",
                    ));
                }
                Some(file) if metadata.is_file() => {
                    shared = shared.saturating_add(u64::from(metadata.nlink() > 1));
                    self.entries.push(Entry { folder: index, file, length: metadata.len() });
                }
                Some(_) => return Err(unexpected(&path)),
                None if is_known_without_pages(&name) => {}
                None if metadata.is_file() => self.warn_foreign(&format!("{folder_name}/{name}")),
                None => return Err(unexpected(&path)),
            }
        }
        if shared > 0 {
            self.warnings.push(format!(
                "{folder_name}: {shared} files have a second name elsewhere (hard links), which shows the same bytes"
            ));
        }
        Ok(())
    }

    fn warn_foreign(&mut self, name: &str) {
        self.warnings.push(format!("{name}: not a relation's name, left alone"));
    }

    /// True if a relation that outlives a shutdown is in another folder than those
    /// that `initdb` fills, or is numbered like a user's.
    pub(super) fn holds_user_data(&self) -> bool {
        /// `FirstNormalObjectId`.
        const FIRST_OF_USERS: u32 = 16384;
        self.folders.iter().any(|folder| {
            let database = folder.name.rsplit('/').next().and_then(|name| name.parse().ok());
            database.is_some_and(|number: u32| number >= FIRST_OF_USERS)
                || folder.name.starts_with("pg_tblspc/")
        }) || self
            .entries
            .iter()
            .any(|entry| entry.file.fork == Fork::Main && entry.file.number >= FIRST_OF_USERS)
    }
}

/// The names in a folder, in order; none if it is not there.
fn names_in(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::io("list", folder, error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("list", folder, error))?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    names.sort();
    Ok(names)
}

fn status(path: &Path) -> Result<fs::Metadata, Error> {
    fs::symlink_metadata(path).map_err(|error| Error::io("look at", path, error))
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

fn unexpected(path: &Path) -> Error {
    Error::refused(
        path,
        "neither a database's folder nor a relation's file, but a server may read it as such",
        "move it out of the data directory, or put in its place what it leads to",
    )
}

//! Copies as they were named: data directories, and those in archives, repositories and packs, of
//! which the files that are needed are taken out into folders of our own.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::files::archived_log::{LogArchive, in_folder};
use crate::files::backup::taking::{ALWAYS, Taken, take_out};
use crate::files::is_root;
use pagewarden_core::error::Error;
use pagewarden_core::repair::Request;
use pagewarden_core::repair::copies::Packs;

/// A copy whose files can be read.
pub(super) struct Stored {
    /// What was named.
    pub(super) shown: PathBuf,
    /// The data directory, or a folder with the files of it that are needed.
    pub(super) root: PathBuf,
    /// What is in it, but could not be taken out, with the reason.
    pub(super) losses: BTreeMap<String, String>,
    /// The log that a tool keeps beside it.
    log: Option<Arc<dyn LogArchive>>,
    /// What is removed with this.
    _kept: Kept,
}

enum Kept {
    Nothing,
    Taken { _taken: Taken },
    Folder { _folder: TempDir },
}

/// All sources of a request.
pub(super) fn all(
    request: &Request,
    wanted: &HashSet<String>,
    packs: Packs,
) -> Result<Vec<Stored>, Error> {
    request.sources.iter().map(|path| one(path, request, wanted, packs)).collect()
}

fn one(
    path: &Path,
    request: &Request,
    wanted: &HashSet<String>,
    packs: Packs,
) -> Result<Stored, Error> {
    let shown = path.to_owned();
    let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
    let as_it_is = Stored {
        root: shown.clone(),
        shown: shown.clone(),
        losses: BTreeMap::new(),
        log: None,
        _kept: Kept::Nothing,
    };
    if metadata.is_dir() && is_root(path) {
        return Ok(as_it_is);
    }
    if metadata.is_file() && (packs.is_pack)(path) {
        let failed = |error| Error::io("unpack into a temporary folder, for", path, error);
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed)?;
        let is_wanted = |name: &str| wanted.contains(name) || ALWAYS.contains(&name);
        (packs.take_out)(path, &is_wanted, folder.path())?;
        let root = folder.path().to_owned();
        return Ok(Stored { root, _kept: Kept::Folder { _folder: folder }, ..as_it_is });
    }
    Ok(match take_out(path, &request.repository, wanted.clone())? {
        Some(taken) if !taken.is_known() => {
            let why: Vec<_> =
                taken.losses.iter().map(|(name, why)| format!("{name}: {why}")).collect();
            let reason = match why.as_slice() {
                [] => "there is no control file of a cluster in it".to_owned(),
                why => format!("it cannot be read: {}", why.join("; ")),
            };
            return Err(Error::damaged(path, reason, "name another copy"));
        }
        Some(mut taken) => Stored {
            shown,
            root: taken.root.clone(),
            losses: std::mem::take(&mut taken.losses),
            log: taken.log.take(),
            _kept: Kept::Taken { _taken: taken },
        },
        // What is wrong with it is said when it is opened.
        None => as_it_is,
    })
}

/// The log in these folders, and that which the sources bring along.
pub(super) fn archives(
    folders: &[PathBuf],
    stored: &[Stored],
) -> Result<Vec<Arc<dyn LogArchive>>, Error> {
    let mut archives = Vec::new();
    for folder in folders {
        archives.push(in_folder(folder).map_err(|error| Error::io("list", folder, error))?);
    }
    archives.extend(stored.iter().filter_map(|one| one.log.clone()));
    Ok(archives)
}

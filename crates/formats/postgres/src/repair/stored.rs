//! Copies as they were named: data directories, and those in archives, repositories and packs, of
//! which the files that are needed are taken out into folders of our own.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use crate::files::archived_log::{LogArchive, in_folder};
use crate::files::backup::label::LABEL;
use crate::files::backup::taking::{ALWAYS, Taken, take_out};
use crate::files::is_root;
use pagewarden_core::error::Error;
use pagewarden_core::repair::Request;
use pagewarden_core::repair::copies::Packs;
use pagewarden_core::source::store::{Seen, StorePath};

const READ_BYTES: usize = 1 << 20;

/// A copy whose files can be read.
pub(super) struct Stored {
    /// What was named.
    pub(super) shown: PathBuf,
    /// The data directory, or a folder with the files of it that are needed.
    pub(super) root: PathBuf,
    /// What is in it, but could not be taken out, with the reason.
    pub(super) losses: BTreeMap<String, String>,
    /// Its files were read while a server ran on them.
    pub(super) is_running: bool,
    /// A server replayed the log of the cluster on it, to its end.
    pub(super) is_replayed: bool,
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

/// All sources of a request. `last_segment` is that with the end of the cluster's log.
pub(super) fn all(
    request: &Request,
    wanted: &HashSet<String>,
    last_segment: &str,
    packs: Packs,
) -> Result<Vec<Stored>, Error> {
    let mut all = Vec::new();
    for place in &request.sources {
        if place.is_running() {
            all.push(of_server(place, wanted, last_segment)?);
            continue;
        }
        let is_local = place.local_path().is_some();
        all.push(match place.look() {
            Ok(Seen::File(_)) if !is_local => one_file(place, request, wanted, packs)?,
            Ok(_) => one(place, request, wanted, packs)?,
            Err(error) => return Err(Error::io("open", place.path(), error)),
        });
    }
    for copy in &request.replayed {
        all.push(Stored {
            shown: copy.of.clone(),
            root: copy.root.clone(),
            losses: BTreeMap::new(),
            is_running: false,
            is_replayed: true,
            log: None,
            _kept: Kept::Nothing,
        });
    }
    Ok(all)
}

/// What is needed of the data directory of a running server. Its control file is read first: all
/// that comes after it is as of its redo position or later.
fn of_server(
    place: &StorePath,
    wanted: &HashSet<String>,
    last_segment: &str,
) -> Result<Stored, Error> {
    let shown = place.path().to_owned();
    let failed = |error| Error::io("copy to a temporary folder (TMPDIR says where)", &shown, error);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed)?;
    // A label of a backup is of no matter here.
    let first = ALWAYS.iter().copied().filter(|name| *name != LABEL);
    for name in first.chain(wanted.iter().map(String::as_str)).chain([last_segment]) {
        let from = match place.join(name).open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(failed)?,
        };
        let to = folder.path().join(name);
        fs::create_dir_all(to.parent().unwrap_or(folder.path())).map_err(failed)?;
        let mut to = fs::File::create_new(to).map_err(failed)?;
        // A file that was cut or dropped meanwhile ends early, and its last pages are not there.
        io::copy(&mut BufReader::with_capacity(READ_BYTES, from), &mut to).map_err(failed)?;
    }
    Ok(Stored {
        shown,
        root: folder.path().to_owned(),
        losses: BTreeMap::new(),
        is_running: true,
        is_replayed: false,
        log: None,
        _kept: Kept::Folder { _folder: folder },
    })
}

/// A file in object storage, an archive or a pack: it is copied to a folder of our own first, and is
/// known by its address all the same.
fn one_file(
    place: &StorePath,
    request: &Request,
    wanted: &HashSet<String>,
    packs: Packs,
) -> Result<Stored, Error> {
    let shown = place.path().to_owned();
    let failed = |error| Error::io("copy to a temporary folder (TMPDIR says where)", &shown, error);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed)?;
    let copy = folder.path().join(place.name().unwrap_or("copy"));
    let mut file = fs::File::create_new(&copy).map_err(failed)?;
    io::copy(&mut place.open().map_err(failed)?, &mut file).map_err(failed)?;
    let taken = one(&StorePath::local(copy), request, wanted, packs)
        .map_err(|error| Error::refused(&shown, error.reason(), "name another copy"))?;
    Ok(Stored { shown, ..taken })
}

fn one(
    place: &StorePath,
    request: &Request,
    wanted: &HashSet<String>,
    packs: Packs,
) -> Result<Stored, Error> {
    let path = place.path();
    let shown = path.to_owned();
    let local = place.local_path();
    let as_it_is = Stored {
        root: shown.clone(),
        shown: shown.clone(),
        losses: BTreeMap::new(),
        is_running: false,
        is_replayed: false,
        log: None,
        _kept: Kept::Nothing,
    };
    if local.is_some_and(is_root) {
        return Ok(as_it_is);
    }
    if local.is_some_and(|path| path.is_file() && (packs.is_pack)(path)) {
        let failed = |error| Error::io("unpack into a temporary folder, for", path, error);
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed)?;
        let is_wanted = |name: &str| wanted.contains(name) || ALWAYS.contains(&name);
        (packs.take_out)(path, &is_wanted, folder.path())?;
        let root = folder.path().to_owned();
        return Ok(Stored { root, _kept: Kept::Folder { _folder: folder }, ..as_it_is });
    }
    Ok(match take_out(place, &request.repository, wanted.clone())? {
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
            is_running: false,
            is_replayed: false,
            log: taken.log.take(),
            _kept: Kept::Taken { _taken: taken },
        },
        None if local.is_none() => {
            let reason = "a folder in which no repository of backups was recognised";
            let hint = "name the folder that holds the repository, or a single file";
            return Err(Error::unrecognised(path, reason, hint));
        }
        // What is wrong with it is said when it is opened.
        None => as_it_is,
    })
}

/// The log in these folders, and that which the sources bring along.
pub(super) fn archives(
    folders: &[StorePath],
    stored: &[Stored],
) -> Result<Vec<Arc<dyn LogArchive>>, Error> {
    let mut archives = Vec::new();
    for folder in folders {
        archives.push(in_folder(folder).map_err(|error| Error::io("list", folder.path(), error))?);
    }
    archives.extend(stored.iter().filter_map(|one| one.log.clone()));
    Ok(archives)
}

//! The copy that is mended: the data files and logs as they are, damage included.
//!
//! Files have a name of Pagewarden's until they are whole, and the primary file gets its own last: what
//! an interrupted run leaves is no database, and the same command begins it again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::checksum::PAGE_BYTES;
use crate::files::data_file::identify;
use crate::files::open_file;
use crate::repair::database::{Database, UNFINISHED};
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk as _, System, Written};
use pagewarden_core::repair::Options;
use pagewarden_core::source::file::read_fully;

const BLOCK_BYTES: usize = 128 * PAGE_BYTES;

/// Copies a data file to a path, or the files of a database to a folder.
pub(super) fn copy(source: &Path, target: &Path, _: &Options) -> Result<(), Error> {
    let pairs = pairs(source, target)?;
    let folder = match source.is_dir() {
        true => target,
        false => target.parent().unwrap_or(Path::new(".")),
    };
    fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
    for (from, to) in &pairs {
        let is_there = to.exists();
        if is_there && !is_same(from, to) {
            let reason = "there is a file of this name already, and a copy overwrites none";
            return Err(Error::refused(to, reason, "name a folder that is empty"));
        }
    }
    let pending: Vec<_> = pairs.iter().filter(|(_, to)| !to.exists()).collect();
    for (from, to) in &pending {
        copy_file(from, &unfinished(to)).map_err(|error| Error::io("write", to, error))?;
    }
    for (_, to) in &pending {
        let named = System.rename(&unfinished(to), to).and_then(|()| System.sync_folder(folder));
        named.map_err(|error| Error::io("rename", to, error))?;
    }
    Ok(())
}

/// What is copied where; the primary file last.
fn pairs(source: &Path, target: &Path) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
    if !source.is_dir() {
        return Ok(vec![(source.to_owned(), target.to_owned())]);
    }
    let database = Database::open(source)?;
    let mut paths = logs(source)?;
    paths.extend(database.files.values().rev().map(|file| file.path.clone()));
    let to = |path: PathBuf| {
        let name = path.file_name().map(|name| target.join(name));
        name.map(|name| (path, name))
    };
    Ok(paths.into_iter().filter_map(to).collect())
}

/// The logs in a folder, without which a server attaches no copy that was not shut down cleanly.
fn logs(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(|error| Error::io("list", folder, error))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_log = |path: &PathBuf| {
        let identity = || identify(&open_file(path).ok()?, path);
        path.is_file() && identity().is_some_and(|identity| identity.is_log)
    };
    let mut logs: Vec<_> = paths.filter(is_log).collect();
    logs.sort();
    Ok(logs)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Copies one file; what an interrupted run left of it is replaced.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_file(from)?;
    let like = source.metadata()?;
    if to.exists() {
        System.remove(to)?;
    }
    let target = System.create(to, &like)?;
    if !System.share_blocks(&target, &source) {
        copy_bytes(&source, &target)?;
    }
    System.set_attributes(&target, &like)?;
    System.sync(&target)
}

/// Zeroes are left out, so that holes stay holes.
fn copy_bytes(source: &File, target: &Written) -> io::Result<()> {
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut offset = 0_u64;
    loop {
        let count = read_fully(source, &mut bytes, offset)?;
        let block = bytes.get(..count).unwrap_or_default();
        if block.iter().any(|byte| *byte != 0) {
            System.write_at(target, block, offset)?;
        }
        offset = offset.saturating_add(count as u64);
        if count < BLOCK_BYTES {
            return System.set_length(target, offset);
        }
    }
}

/// True for files that hold the same bytes.
fn is_same(one: &Path, other: &Path) -> bool {
    let opened = |path: &Path| open_file(path).ok();
    let (Some(one), Some(other)) = (opened(one), opened(other)) else { return false };
    let (mut first, mut second) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut offset = 0_u64;
    loop {
        let counts =
            (read_fully(&one, &mut first, offset), read_fully(&other, &mut second, offset));
        let (Ok(count), Ok(other_count)) = counts else { return false };
        if count != other_count || first.get(..count) != second.get(..count) {
            return false;
        }
        if count < BLOCK_BYTES {
            return true;
        }
        offset = offset.saturating_add(count as u64);
    }
}

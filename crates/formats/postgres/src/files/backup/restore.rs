//! A whole backup brought back into a folder of our own, with the log that is kept beside it: what a restore
//! drill starts a server on.
//!
//! What would make that server reach for anything else is left out: settings, other than those of the
//! database itself, in `postgresql.conf`, `postgresql.auto.conf`, `pg_hba.conf` and the like; signals and `recovery.conf`, which
//! say whom to follow; and `tablespace_map`, by which a server makes links to where the tablespaces were.
//! Tablespaces lie in folders beside the data directory, and the links lead there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::label::{LABEL, Label, TABLESPACE_MAP};
use super::log::segments_in;
use super::taking::{Found, Wanted, take_to};
use crate::files::archived_log::{LogArchive, TakenOut, in_folder};
use crate::files::control::{ClusterState, Control};
use crate::files::is_root;
use crate::files::wal::segment::SegmentName;
use crate::protect::read_control;
use pagewarden_core::database::repository::RepositoryOptions;
use pagewarden_core::error::Error;
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::system::symlink;

/// What is left out.
const LEFT_OUT: [&str; 12] = [
    "postgresql.conf",
    "postgresql.auto.conf",
    "pg_hba.conf",
    "pg_ident.conf",
    "recovery.conf",
    "recovery.done",
    "recovery.signal",
    "standby.signal",
    "postmaster.pid",
    "postmaster.opts",
    "backup_manifest",
    TABLESPACE_MAP,
];

/// Folders that a server needs, which backups may leave out where they are empty.
const FOLDERS: [&str; 14] = [
    "pg_commit_ts",
    "pg_dynshmem",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_wal/archive_status",
];

/// A backup that was brought back.
pub struct Restored {
    /// In a few words what it is.
    pub what: String,
    /// The version of the server, as in 15 or 9.6.
    pub version: String,
    /// Files, and the bytes in them.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// What could not be brought back, with the reason.
    pub losses: BTreeMap<String, String>,
    /// The position that replay begins at.
    begin: u64,
    segment_bytes: u64,
    log: Vec<Arc<dyn LogArchive>>,
}

impl std::fmt::Debug for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restored").field("what", &self.what).finish_non_exhaustive()
    }
}

/// Brings a backup back: a data directory, an archive, a folder of archives, or the set of a repository that the options
/// name, else its newest one. `data` is an empty folder, which becomes the data directory; tablespaces
/// come to folders beside it whose names begin with its own. `log` are folders with log besides.
///
/// # Errors
/// It is no backup of PostgreSQL, holds several databases, or there is no room for it.
pub fn restore(
    place: &StorePath,
    repository: &RepositoryOptions,
    log: &[StorePath],
    data: &Path,
) -> Result<Restored, Error> {
    let path = place.path();
    let refuse = |reason: &str, hint: &str| Err(Error::refused(path, reason, hint));
    let failed = |error| Error::io("restore", path, error);
    let folder = place.local_path().filter(|path| is_root(path));
    let mut found = match folder {
        Some(folder) => Found {
            data: Some(folder.to_owned()),
            backups: vec!["a data directory".to_owned()],
            ..Found::default()
        },
        None => match take_to(place, repository, Wanted::AllBut(&LEFT_OUT), data)? {
            Some(found) => found,
            None => {
                return refuse(
                    "no backup that can be brought back",
                    "name a backup repository, or a base backup in archives or in a folder",
                );
            }
        },
    };
    if let Some(folder) = &found.data {
        copy_data_directory(folder, data).map_err(failed)?;
    }
    for folder in FOLDERS {
        fs::create_dir_all(data.join(folder)).map_err(failed)?;
    }
    let (files, bytes) = counted(data).map_err(failed)?;
    lead_to_tablespaces(data).map_err(failed)?;
    let version = fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default();
    let control = read_control(&data.join("global").join("pg_control"));
    let control = control.ok().and_then(|bytes| Control::parse(&bytes).ok());
    let label = fs::read(data.join(LABEL)).map(|bytes| Label::parse(&bytes)).unwrap_or_default();
    let Some(control) = control.filter(|_| !version.trim().is_empty()) else {
        return Err(nothing_of_it(path, &found.losses));
    };
    if label.is_incremental {
        return refuse(
            "an incremental backup, which holds only some of the pages",
            "combine it with its full backup first (pg_combinebackup)",
        );
    }
    let is_shut_down =
        matches!(control.state, ClusterState::ShutDown | ClusterState::ShutDownInRecovery);
    if label.start_lsn.is_none() && !is_shut_down {
        return refuse(
            "a data directory that was not shut down, and no backup: its files are not of one moment",
            "name a backup",
        );
    }
    let mut archives: Vec<_> = found.log.take().into_iter().collect();
    let begin = label.start_lsn.unwrap_or(control.redo_lsn);
    for beside in log_archives(place) {
        archives.push(log_beside(&beside, &control, begin)?);
    }
    for folder in log {
        archives.push(in_folder(folder).map_err(|error| Error::io("list", folder.path(), error))?);
    }
    Ok(Restored {
        what: found.backups.pop().unwrap_or_default(),
        version: version.trim().to_owned(),
        files,
        bytes,
        losses: found.losses,
        begin,
        segment_bytes: u64::from(control.wal_segment_bytes).max(1),
        log: archives,
    })
}

/// Why there is not even a control file.
fn nothing_of_it(path: &Path, losses: &BTreeMap<String, String>) -> Error {
    let why: Vec<_> = losses.iter().map(|(name, why)| format!("{name}: {why}")).take(3).collect();
    if why.is_empty() {
        return Error::refused(
            path,
            "nothing of it could be brought back",
            "what the check says above tells why: a passphrase or the wanted set may be missing",
        );
    }
    let reason = format!("it cannot be brought back: {}", why.join("; "));
    Error::damaged(path, reason, "name another set")
}

/// The log in an archive that lies beside the backup, from the segment of `begin` on.
fn log_beside(archive: &Path, control: &Control, begin: u64) -> Result<Arc<dyn LogArchive>, Error> {
    let segment_bytes = control.wal_segment_bytes.max(1);
    let first = begin.checked_div(u64::from(segment_bytes)).unwrap_or(0);
    let first = first.saturating_mul(u64::from(segment_bytes));
    let first = SegmentName { timeline: control.timeline, begin: first };
    let segments = segments_in(&archive.into(), first, segment_bytes);
    let segments = segments.map_err(|error| Error::io("read", archive, error))?;
    Ok(Arc::new(TakenOut::of(&archive.to_string_lossy(), segments)))
}

impl Restored {
    /// Writes the log from the backup on to files of the server's names in `folder`. The names of those that
    /// cannot be had, with the reason.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn write_log(&self, folder: &Path) -> io::Result<BTreeMap<String, String>> {
        let mut losses = BTreeMap::new();
        let first = self.begin.checked_div(self.segment_bytes).unwrap_or(0);
        for archive in &self.log {
            // A whole segment, rather than what was received of it before.
            let mut segments: Vec<_> = archive.segments().iter().collect();
            segments.sort_by_key(|segment| segment.is_partial);
            for segment in segments {
                let to = folder.join(&segment.name);
                if number_of(&segment.name, self.segment_bytes).is_none_or(|it| it < first)
                    || !is_plain(&segment.name)
                    || to.exists()
                {
                    continue;
                }
                match archive.open(segment) {
                    Ok(mut from) => {
                        from.rewind()?;
                        io::copy(&mut from, &mut File::create_new(to)?)?;
                    }
                    Err(why) => {
                        losses.insert(segment.stored_file.clone(), format!("{why:?}"));
                    }
                }
            }
            for (timeline, text) in archive.histories() {
                let name = format!("{timeline:08X}.history");
                match text {
                    Ok(text) => fs::write(folder.join(name), text)?,
                    Err(why) => drop(losses.insert(name, why)),
                }
            }
        }
        Ok(losses)
    }
}

impl Restored {
    /// Copies the segments and histories of a server's `pg_wal` from the backup on to `folder`.
    ///
    /// # Errors
    /// One cannot be read, or there is no room.
    pub fn copy_segments(&self, log: &Path, folder: &Path) -> io::Result<()> {
        let first = self.begin.checked_div(self.segment_bytes).unwrap_or(0);
        for entry in fs::read_dir(log)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let to = folder.join(name);
            let is_segment = name.len() == 24
                && number_of(name, self.segment_bytes).is_some_and(|number| number >= first);
            if (is_segment || name.ends_with(".history")) && !to.exists() {
                io::copy(&mut open_regular(&log.join(name))?, &mut File::create_new(to)?)?;
            }
        }
        Ok(())
    }
}

/// The archives of log that `pg_basebackup -Ft -X stream` leaves beside its others.
fn log_archives(place: &StorePath) -> Vec<PathBuf> {
    let Some(path) = place.local_path() else { return Vec::new() };
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(path),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_log = |name: &str| name == "pg_wal.tar" || name.starts_with("pg_wal.tar.");
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_log))
        .map(|entry| entry.path())
        .collect()
}

/// Which segment of its timeline a name stands for.
fn number_of(name: &str, segment_bytes: u64) -> Option<u64> {
    let high = u64::from_str_radix(name.get(8..16)?, 16).ok()?;
    let low = u64::from_str_radix(name.get(16..24)?, 16).ok()?;
    let of_high = (1_u64 << 32).checked_div(segment_bytes)?;
    high.checked_mul(of_high)?.checked_add(low)
}

fn is_plain(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Files below a folder, and the bytes in them.
fn counted(root: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0_u64, 0_u64);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                files = files.saturating_add(1);
                bytes = bytes.saturating_add(metadata.len());
            }
        }
    }
    Ok((files, bytes))
}

/// Copies a data directory as it is, and what its links of tablespaces lead to.
fn copy_data_directory(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    while let Some((from_folder, to_folder)) = folders.pop() {
        fs::create_dir_all(&to_folder)?;
        for entry in fs::read_dir(&from_folder)? {
            let entry = entry?;
            let (source, target) = (entry.path(), to_folder.join(entry.file_name()));
            let kind = entry.file_type()?;
            let is_left_out = from_folder == from
                && entry.file_name().to_str().is_some_and(|name| LEFT_OUT.contains(&name));
            let is_tablespace = kind.is_symlink() && from_folder == from.join("pg_tblspc");
            if is_left_out {
                continue;
            }
            if kind.is_dir() || is_tablespace {
                folders.push((source, target));
            } else if kind.is_file() {
                io::copy(&mut open_regular(&source)?, &mut File::create_new(target)?)?;
            }
        }
    }
    Ok(())
}

/// Moves what came to `pg_tblspc` beside the data directory.
fn lead_to_tablespaces(data: &Path) -> io::Result<()> {
    for entry in fs::read_dir(data.join("pg_tblspc"))? {
        let entry = entry?;
        let mut place = data.as_os_str().to_owned();
        place.push("-tablespace-");
        place.push(entry.file_name());
        let place = PathBuf::from(place);
        fs::rename(entry.path(), &place)?;
        symlink(&place, entry.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_on_their_timeline() {
        assert_eq!(number_of("00000001000000000000000A", 1 << 24), Some(10));
        assert_eq!(number_of("000000010000000200000003", 1 << 24), Some(2 * 256 + 3));
        assert_eq!(number_of("000000010000000200000003", 1 << 30), Some(2 * 4 + 3));
        assert_eq!(number_of("00000001.history", 1 << 24), None);
    }

    #[test]
    fn names_that_lead_out_of_a_folder_are_not_written() {
        assert!(is_plain("00000001000000000000000A"));
        assert!(!is_plain("../00000001000000000000000A") && !is_plain("/etc/passwd"));
    }
}

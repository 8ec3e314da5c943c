//! Writes what is in a pack as files and folders again.
//!
//! Files get their names in a folder that has a temporary one itself until all of
//! it is written, tested and on the device.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::pack::codec::is_zero;
use crate::pack::layout::span_count;
use crate::pack::read::{Contents, Pack};
use crate::pack::table::{Attributes, Entry, What};
use crate::pack::tree::{file_hash, span_hash};
use crate::pack::{PackError, SPAN_BYTES};
use crate::verify::Progress;

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files, without folders.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Writes the entries of a pack that `wanted` takes below `folder`, which exists
/// and is empty.
///
/// # Errors
/// Something cannot be read or written, or is not what was packed: then what
/// stands in the folder is not to be used.
/// [`io::ErrorKind::Interrupted`] if it was stopped.
pub fn restore(
    pack: &Pack,
    folder: &Path,
    wanted: &(dyn Fn(&Entry) -> bool + Sync),
    jobs: usize,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Restored, Error> {
    let entries: Vec<_> =
        pack.entries().iter().enumerate().filter(|(_, entry)| wanted(entry)).collect();
    for (_, entry) in entries.iter().filter(|(_, entry)| entry.what == What::Folder) {
        let path = folder.join(&entry.name);
        fs::create_dir_all(&path).map_err(|error| Error::io("create", &path, error))?;
    }
    let files: Vec<_> = entries.iter().filter(|(_, entry)| entry.what != What::Folder).collect();
    let next = AtomicUsize::new(0);
    let first = Mutex::new(None);
    let failed = || first.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut contents = pack.contents();
                while failed().is_none() {
                    let next = files.get(next.fetch_add(1, Ordering::Relaxed));
                    let Some((number, entry)) = next else { break };
                    let path = folder.join(&entry.name);
                    let written = write_file(&mut contents, *number, entry, &path, stop, progress);
                    if let Err(error) = written {
                        failed().get_or_insert(error);
                    }
                }
            });
        }
    });
    if let Some(error) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    // Innermost first: what is written into a folder changes its times.
    for (_, entry) in entries.iter().rev().filter(|(_, entry)| entry.what == What::Folder) {
        let path = folder.join(&entry.name);
        let opened = File::open(&path);
        opened
            .and_then(|opened| dress(&opened, entry.attributes).and_then(|()| opened.sync_all()))
            .map_err(|error| Error::io("finish", &path, error))?;
    }
    let bytes = files.iter().fold(0_u64, |sum, (_, entry)| sum.saturating_add(entry.bytes()));
    Ok(Restored { files: files.len() as u64, bytes })
}

fn write_file(
    contents: &mut Contents<'_>,
    number: usize,
    entry: &Entry,
    path: &Path,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let What::File { bytes, has_holes, hash } = entry.what else { return Ok(()) };
    let io_error = |action, error| Error::io(action, path, error);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| Error::io("create", parent, error))?;
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|error| io_error("create", error))?;
    let spans = span_count(bytes);
    let mut hashes = Vec::new();
    let mut buffer = Vec::new();
    for span in 0..spans {
        if stop.load(Ordering::Relaxed) {
            return Err(io_error("unpack", io::ErrorKind::Interrupted.into()));
        }
        let damaged =
            contents.span(number, span, &mut buffer).map_err(|error| unreadable(path, error))?;
        if !damaged.is_empty() {
            let begin = span.saturating_mul(SPAN_BYTES as u64);
            return Err(unreadable(path, PackError::Damaged { part: "content", offset: begin }));
        }
        hashes.push(span_hash(span, spans, &buffer));
        if !(has_holes && is_zero(&buffer)) {
            file.write_all_at(&buffer, span.saturating_mul(SPAN_BYTES as u64))
                .map_err(|error| io_error("write", error))?;
        }
        progress.advance(buffer.len() as u64);
    }
    if file_hash(&hashes) != hash {
        return Err(Error::unknown(
            path,
            "what the pack holds of it is not what was packed",
            "check the pack, and take another copy of it",
        ));
    }
    file.set_len(bytes)
        .and_then(|()| dress(&file, entry.attributes))
        .and_then(|()| file.sync_all())
        .map_err(|error| io_error("finish", error))
}

fn unreadable(path: &Path, error: PackError) -> Error {
    match error {
        PackError::Io(error) => Error::io("unpack", path, error),
        other => {
            Error::unknown(path, other.to_string(), "check the pack, and take another copy of it")
        }
    }
}

/// Gives a file or folder the owner, mode and time it had. Only root can give
/// files away: for others they stay their own.
fn dress(file: &File, attributes: Attributes) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (owner, group) = (attributes.owner, attributes.group);
        std::os::unix::fs::fchown(file, Some(owner), Some(group))?;
    }
    file.set_permissions(Permissions::from_mode(attributes.mode))?;
    let nanoseconds = Duration::from_nanos(attributes.modified_nanoseconds.into());
    let seconds = Duration::from_secs(attributes.modified_seconds.unsigned_abs());
    let whole = if attributes.modified_seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    match whole.and_then(|time| time.checked_add(nanoseconds)) {
        Some(time) => file.set_times(FileTimes::new().set_modified(time)),
        None => Ok(()),
    }
}

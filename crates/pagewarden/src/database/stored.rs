//! A single file of a store, as a target.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Format, OpenOptions, Step, Target, open_stream as open_any_stream, open_with, parts};
use crate::error::{Error, ErrorKind};
use crate::formats::FORMATS;
use crate::source::decode::{BEGIN_BYTES, Compression};
use crate::source::store::{Seen, StorePath};
use crate::source::tar::looks_like_tar;
use crate::verdict::Note;
use crate::words;

/// Opens a file of a store, as a stream where it is one. What must be read more than once is copied
/// to a temporary file first, which lives as long as its folder; so is a database with the files beside it
/// that are part of it.
///
/// # Errors
/// It cannot be read, or is nothing we know.
pub fn open(
    place: &StorePath,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<(Target, Option<TempDir>), Error> {
    let sidecars = sidecars(place);
    if sidecars.is_empty()
        && let Some(target) = open_stream(place, kind, options)?
    {
        return Ok((target, None));
    }
    let path = place.path();
    let (folder, copy) = copy(place)?;
    for sidecar in &sidecars {
        copy_into(folder.path(), sidecar)?;
    }
    let mut target = open_with(&copy, kind, options).map_err(|error| {
        let hint = "if you know what it is, say so with --format";
        Error::unrecognised(path, error.reason(), hint)
    })?;
    path.clone_into(&mut target.description.path);
    let bytes = fs::metadata(&copy).map_or(0, |metadata| metadata.len());
    let text = format!("it was copied to a temporary file to be read ({})", words::bytes(bytes));
    let note = Step::Note(Note { file: String::new(), text });
    target.steps = Box::new(std::iter::once(note).chain(target.steps));
    Ok((target, Some(folder)))
}

/// Opens files of a store that belong together, see [`parts::grouped`], or a single
/// one.
///
/// # Errors
/// As [`open`].
pub fn open_together(
    places: &[StorePath],
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<(Target, Option<TempDir>), Error> {
    match (parts::open_parts(places, kind), places.first()) {
        (Some(target), _) => target.map(|target| (target, None)),
        (None, Some(place)) => open(place, kind, options),
        (None, None) => Err(Error::unrecognised(Path::new(""), "nothing", "name a file")),
    }
}

/// The files beside a file of a store that would be part of it.
fn sidecars(place: &StorePath) -> Vec<StorePath> {
    let endings = FORMATS.iter().flat_map(|format| format.sidecars);
    let beside = endings.filter_map(|(ending, _)| {
        let name = format!("{}{ending}", place.name()?);
        Some(place.parent()?.join(name))
    });
    // Who may not ask what is there judges the file alone.
    beside.filter(|beside| matches!(beside.look(), Ok(Seen::File(bytes)) if bytes > 0)).collect()
}

/// Opens a file of a store that is read once from its beginning to its end; `None` if it is of another
/// kind.
///
/// # Errors
/// As [`open`].
pub fn open_stream(
    place: &StorePath,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Option<Target>, Error> {
    let path = place.path();
    let failed = |source: io::Error| Error::io("read", path, source);
    let stored = place.open().map_err(|source| Error::io("open", path, source))?;
    if stored.length().map_err(failed)? == 0 {
        let hint = "there is nothing in it to check";
        return Err(Error::unrecognised(path, "an empty file", hint));
    }
    let streamed = match open_any_stream(path, Box::new(stored), kind, options) {
        Err(error) if error.kind() == ErrorKind::Unrecognised => error,
        other => return other.map(Some),
    };
    let begin = place.first_bytes(BEGIN_BYTES).map_err(failed)?;
    if Compression::of(&begin) != Compression::None || looks_like_tar(&begin) {
        return Err(streamed);
    }
    Ok(None)
}

/// A copy of a file of a store, of the same name, in a folder of its own that removes it.
///
/// # Errors
/// It cannot be read, or there is no room for it.
pub fn copy(place: &StorePath) -> Result<(TempDir, PathBuf), Error> {
    let failed = |source: io::Error| Error::io("read", place.path(), source);
    let folder = tempfile::tempdir().map_err(failed)?;
    let copy = copy_into(folder.path(), place)?;
    Ok((folder, copy))
}

fn copy_into(folder: &Path, place: &StorePath) -> Result<PathBuf, Error> {
    let failed = |source: io::Error| Error::io("read", place.path(), source);
    let copy = folder.join(place.name().unwrap_or("file"));
    let mut file = File::create_new(&copy).map_err(failed)?;
    io::copy(&mut place.open().map_err(failed)?, &mut file).map_err(failed)?;
    Ok(copy)
}

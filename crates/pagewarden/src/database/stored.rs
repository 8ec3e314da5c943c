//! A single file of a store, as a target; or a folder, of formats that are read where they are.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{
    Format, OpenOptions, Probe, Step, StoredKind, Target, folder, open_stream as open_any_stream,
    open_with, parts,
};
use crate::error::{Error, ErrorKind};
use crate::formats::FORMATS;
use crate::source::decode::{BEGIN_BYTES, Compression};
use crate::source::store::{Seen, StorePath};
use crate::source::tar::looks_like_tar;
use crate::verdict::Note;
use crate::words;

/// Marks at the beginning of files are shorter.
const MARK_BYTES: usize = 512;

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
    if let Some(stored) = in_place(place, kind)? {
        return (stored.open)(place, options).map(|target| (target, None));
    }
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

/// What reads a file or folder of a store where it is; `None` if nothing does.
fn in_place(
    place: &StorePath,
    kind: Option<&Format>,
) -> Result<Option<&'static StoredKind>, Error> {
    if place.is_folder() {
        return Ok(of_folder(place, kind));
    }
    let failed = |source: io::Error| Error::io("open", place.path(), source);
    // Whatever it is, its beginning is read: from a file that is open, a piece comes that is kept.
    let mut begin = [0; MARK_BYTES];
    let count = place.open().and_then(|file| file.read_fully(&mut begin, 0)).map_err(failed)?;
    of_file(place, begin.get(..count).unwrap_or_default(), kind)
}

/// What reads a folder of a store where it is, by the mark of its format; `None` if nothing does.
#[must_use]
pub fn of_folder(place: &StorePath, kind: Option<&Format>) -> Option<&'static StoredKind> {
    let (format, _) = folder::marked(place)?;
    let stored = format.in_store.as_ref().filter(|stored| (stored.reads_folder)(place))?;
    kind.is_none_or(|kind| kind.name == format.name).then_some(stored)
}

/// What reads a file of a store that begins with these bytes where it is; `None` if nothing does.
///
/// # Errors
/// The store did not say what it is.
pub fn of_file(
    place: &StorePath,
    begin: &[u8],
    kind: Option<&Format>,
) -> Result<Option<&'static StoredKind>, Error> {
    for format in FORMATS {
        let Some(stored) = &format.in_store else { continue };
        let least = match kind {
            // A name alone proves nothing: another format may know the content.
            None => Probe::Yes,
            Some(kind) if kind.name == format.name => Probe::Maybe,
            Some(_) => continue,
        };
        let probe = (stored.probe)(place, begin);
        if probe.map_err(|source| Error::io("read", place.path(), source))? >= least {
            return Ok(Some(stored));
        }
    }
    Ok(None)
}

/// These files will be opened and read once what is being read is over. A folder has many, which come
/// in their turn.
pub fn expect_together(places: &[StorePath], kind: Option<&Format>) {
    let [place] = places else { return };
    if !place.is_file() {
        return;
    }
    // It was asked for when it was found what it is.
    let begin = place.first_bytes(MARK_BYTES).unwrap_or_default();
    let end_first = of_file(place, &begin, kind).ok().flatten().is_some_and(|it| it.end_first);
    place.expect_whole(end_first);
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

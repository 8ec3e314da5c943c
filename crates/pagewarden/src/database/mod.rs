//! What a path is, by the registry of formats: [`open`] asks each one.

use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use pagewarden_core::database::*;

use crate::error::Error;
use crate::formats::FORMATS;
use crate::source::decode::decode;
use repository::Sets;

pub mod folder;
pub mod parts;
pub mod repository;
pub mod stored;

/// Finds out what `path` is and opens it.
///
/// # Errors
/// The path cannot be looked at, or is nothing we know. Nothing is ever
/// written to it.
pub fn open(path: &Path, kind: Option<&Format>) -> Result<Target, Error> {
    open_with(path, kind, &OpenOptions::default())
}

/// The same with more to go by.
///
/// # Errors
/// As [`open`], and where a folder that was named cannot be listed.
pub fn open_with(
    path: &Path,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Target, Error> {
    look_into(options)?;
    let metadata = std::fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Err(Error::unrecognised(
            path,
            "neither a regular file nor a directory",
            "name a data directory, a relation file or a database file",
        ));
    }
    if let Some(kind) = kind {
        return (kind.open)(path, &metadata, options);
    }
    match best_of(path, &metadata) {
        Some(kind) => (kind.open)(path, &metadata, options),
        None => Err(unknown(path, &metadata)),
    }
}

/// The format that knows a path best.
fn best_of(path: &Path, metadata: &Metadata) -> Option<&'static Format> {
    let best = FORMATS
        .iter()
        .map(|kind| ((kind.probe)(path, metadata), kind))
        .filter(|(probe, _)| *probe != Probe::No)
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, kind)| kind)
}

/// Opens backups of one database with the folder in which its log is archived: each is a set, and the
/// folder is the repository, which says how far they can be brought.
///
/// # Errors
/// As [`open`]; they are of different formats, or of one whose log is not kept so.
pub fn open_with_log(
    paths: &[PathBuf],
    log: &Path,
    kind: Option<&'static Format>,
    options: &OpenOptions,
) -> Result<Sets, Error> {
    const HINT: &str = "name base backups of one cluster, each a folder or an archive";
    look_into(options)?;
    let mut formats = Vec::new();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
        if let Some(tool) = repository::kind_of(&path.as_path().into(), kind) {
            let reason = format!("a repository of {}, which keeps its log itself", tool.tool);
            return Err(Error::refused(path, reason, "leave out --log"));
        }
        let format = kind.or_else(|| best_of(path, &metadata));
        let format = format.ok_or_else(|| unknown(path, &metadata))?;
        let Some(open) = format.with_log else {
            let reason = format!("there is no archive of log beside backups of {}", format.title);
            return Err(Error::refused(path, reason, HINT));
        };
        if formats.last().is_some_and(|(last, _)| *last != format.name) {
            return Err(Error::refused(path, "the backups are of different engines", HINT));
        }
        formats.push((format.name, open));
    }
    match formats.last() {
        Some((_, open)) => open(paths, log, options),
        None => Err(Error::refused(log, "no backup was named", HINT)),
    }
}

/// A folder that was named must be one.
fn look_into(options: &OpenOptions) -> Result<(), Error> {
    match &options.wal {
        Some(wal) => {
            std::fs::read_dir(wal).map(drop).map_err(|source| Error::io("list", wal, source))
        }
        None => Ok(()),
    }
}

/// Opens what comes as a stream that can be read only once. `path` is what it is
/// called in the report.
///
/// # Errors
/// As [`open`], and for everything that must be read more than once.
pub fn open_stream(
    path: &Path,
    source: Box<dyn Read + Send>,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Target, Error> {
    const HINT: &str = "save it to a file and check that";
    look_into(options)?;
    let decoded = decode(source).map_err(|source| Error::io("read", path, source))?;
    let decoded = decoded.look_ahead(STREAM_BEGIN_BYTES);
    if decoded.begin.is_empty() {
        let hint = "check whether the command that writes the stream failed";
        return Err(Error::unrecognised(path, "standard input was empty", hint));
    }
    let streams = || FORMATS.iter().filter_map(|kind| kind.stream.as_ref());
    let of_kind = kind.map(|kind| kind.stream.as_ref());
    let known = streams()
        .filter(|one| of_kind.is_none_or(|kind| kind.is_some_and(|it| it.name == one.name)));
    let best = known
        .map(|stream| ((stream.probe)(&decoded.begin), stream))
        .filter(|(probe, _)| *probe != Probe::No)
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        Some((_, stream)) => (stream.open)(path, decoded, options),
        None => {
            let names: Vec<_> = streams().map(|stream| stream.name).collect();
            let reason = format!("a stream that is no {}", names.join(" and no "));
            Err(Error::unrecognised(path, reason, HINT))
        }
    }
}

/// The target kind of that name.
#[must_use]
pub fn kind_named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|kind| kind.name == name)
}

fn unknown(path: &Path, metadata: &Metadata) -> Error {
    if metadata.is_dir() {
        if let Err(source) = std::fs::read_dir(path) {
            return Error::io("list", path, source);
        }
        if let Some(kind) = repository::kind_of(&path.into(), None) {
            return Error::unrecognised(
                path,
                format!(
                    "a repository of {}, which holds several sets and is no database",
                    kind.tool
                ),
                format!("try: pagewarden check {}", path.display()),
            );
        }
        return match directory_below(path) {
            Some(below) => Error::unrecognised(
                path,
                "not a data directory, but there is one below it",
                format!("try: pagewarden check {}", below.display()),
            ),
            None => Error::unrecognised(
                path,
                "a directory in which no database was recognised",
                "name the data directory itself (for PostgreSQL the one that holds PG_VERSION)",
            ),
        };
    }
    if metadata.len() == 0 {
        return Error::unrecognised(path, "an empty file", "there is nothing in it to check");
    }
    // What may not be read is not recognised either, and that is no matter of formats.
    if let Err(source) = crate::source::file::open_regular(path) {
        return Error::io("open", path, source);
    }
    let names: Vec<_> = FORMATS.iter().map(|kind| kind.name).collect();
    Error::unrecognised(
        path,
        "no database format was recognised in it",
        format!("if you know what it is, say so with --format {}", names.join("|")),
    )
}

/// A target directly below `path`, for people who name the folder above it.
fn directory_below(path: &Path) -> Option<PathBuf> {
    let mut found = None;
    // A look at the first few entries: this is a hint, not a search.
    for entry in std::fs::read_dir(path).ok()?.take(64).flatten() {
        let below = entry.path();
        let Ok(metadata) = std::fs::metadata(&below) else { continue };
        if metadata.is_dir()
            && FORMATS.iter().any(|kind| (kind.probe)(&below, &metadata) == Probe::Yes)
        {
            if found.is_some() {
                return None;
            }
            found = Some(below);
        }
    }
    found
}

//! Backups as they lie: base backups in tar archives, plain or compressed, from
//! files or from a pipe, and the manifest that the server puts beside them.
//!
//! | path | what is read |
//! | --- | --- |
//! | an archive | that archive, once, from its beginning to its end |
//! | a folder with `base.tar` (`.gz`, `.lz4`, `.zst`) | it, and `<oid>.tar` for each tablespace |
//! | `-` | an archive from standard input |
//! | such a folder in a store | the same |
//!
//! Nothing is unpacked. What decides how pages are to be judged (`pg_control`,
//! the manifest) comes last in an archive of the server, or never: see `stream`.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::path::Path;

use pagewarden_core::database::{OpenOptions, Probe, STREAM_BEGIN_BYTES, StoredKind, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::decode::{BEGIN_BYTES, Compression, Decoded, decode};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::source::tar::{Archive, looks_like_tar};

mod apart;
pub(super) mod beside;
mod books;
pub(super) mod directory;
mod end;
mod ground;
pub mod hash;
pub mod label;
mod ledger;
mod log;
pub mod manifest;
mod members;
mod needed;
mod pages;
pub(crate) mod place;
pub(crate) mod repository;
pub mod restore;
mod stream;
pub(crate) mod taking;
pub(crate) mod with_log;

use stream::{ArchiveWalk, Opened, Source};
use taking::Opening;

/// The archive of the data directory itself, without its compression's ending.
const BASE: &str = "base.tar";
/// The archive of the log that was written meanwhile.
const LOG: &str = "pg_wal.tar";
const ENDINGS: [&str; 4] = ["", ".gz", ".lz4", ".zst"];

/// Probes a path by its content.
pub(super) fn probe(path: &Path, is_folder: bool) -> Probe {
    if is_folder {
        return Probe::yes_if(base_archive(&path.into()).is_some());
    }
    let opened = open_archive(&path.into()).ok().flatten();
    let begin = opened.map(|it| it.look_ahead(STREAM_BEGIN_BYTES).begin);
    begin.map_or(Probe::No, |begin| probe_archive(&begin))
}

/// Probes the beginning of an archive: a backup is known by what lies at its top. What is in another
/// archive may be a backup all the same.
pub(crate) fn probe_archive(begin: &[u8]) -> Probe {
    const FILES: [&str; 4] = ["PG_VERSION", "backup_label", "tablespace_map", "backup_manifest"];
    const FOLDERS: [&str; 4] = ["base/", "global/", "pg_wal/", "PG_"];
    if !looks_like_tar(begin) {
        return Probe::No;
    }
    let mut archive = Archive::new(begin);
    while let Ok(Some(member)) = archive.next_member() {
        let name = member.name.as_str();
        let name = name.strip_prefix("./").unwrap_or(name);
        let last = name.rsplit('/').next().unwrap_or(name);
        if FILES.contains(&last) || FOLDERS.iter().any(|folder| name.starts_with(folder)) {
            return Probe::Yes;
        }
    }
    Probe::Maybe
}

/// Opens an archive, or a folder of archives.
///
/// # Errors
/// It cannot be read, or holds nothing of a cluster.
pub(super) fn open(path: &Path, is_folder: bool, options: &OpenOptions) -> Result<Target, Error> {
    walk_of(&path.into(), is_folder, &options.into())?.into_target()
}

/// Folders of archives are read in stores, too; single archives come as streams.
pub(crate) const IN_STORE: StoredKind = StoredKind {
    probe: |_, _| Ok(Probe::No),
    reads_folder: |folder| base_archive(folder).is_some(),
    end_first: false,
    open: |folder, options| walk_of(folder, true, &options.into())?.into_target(),
};

/// The way through an archive, or through a folder of archives.
fn walk_of(place: &StorePath, is_folder: bool, opening: &Opening) -> Result<ArchiveWalk, Error> {
    let path = place.path();
    let mut walk = ArchiveWalk::new(path.to_owned(), opening);
    if is_folder {
        let Some(base) = base_archive(place) else {
            return Err(Error::unrecognised(
                path,
                "a folder without base.tar",
                "name the folder that pg_basebackup --format=tar wrote to",
            ));
        };
        walk.sources = archives_of(place, base)?;
        walk.has_all_tablespaces = true;
        walk.log_archives.extend(log_archive(place));
        walk.log_archives.extend(walk.sources.front().map(|base| base.place.clone()));
        walk.find_manifest(place);
    } else {
        let prefix = tablespace_of(path).map(|oid| format!("pg_tblspc/{oid}/"));
        walk.sources = VecDeque::from([Source {
            place: place.clone(),
            opened: None,
            // In a report on one archive names are those in it.
            shown: String::new(),
            prefix: prefix.unwrap_or_default(),
        }]);
        if let Some(folder) = path.parent().filter(|_| is_named_by_server(path)) {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let folder = place.at(folder);
            walk.log_archives.extend(log_archive(&folder));
            walk.find_manifest(&folder);
        }
        walk.log_archives.push(place.clone());
    }
    Ok(walk)
}

/// Opens an archive that comes as a stream.
///
/// # Errors
/// It cannot be read, or holds nothing of a cluster.
pub(crate) fn open_stream(
    path: &Path,
    stream: Decoded,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let mut walk = ArchiveWalk::new(path.to_owned(), &options.into());
    walk.sources = VecDeque::from([Source {
        place: path.into(),
        opened: Some(Opened::Archive(stream)),
        shown: String::new(),
        prefix: String::new(),
    }]);
    walk.into_target()
}

/// A file's content, decompressed; `None` if it is not there any more or no
/// regular file.
fn open_archive(place: &StorePath) -> std::io::Result<Option<Decoded>> {
    let is_archive =
        |begin: &[u8]| Compression::of(begin) != Compression::None || looks_like_tar(begin);
    let Some(path) = place.local_path() else {
        return match is_archive(&place.first_bytes(BEGIN_BYTES)?) {
            true => decode(Box::new(place.open()?)).map(Some),
            false => Ok(None),
        };
    };
    let real = fs::canonicalize(path)?;
    let mut file = open_regular(&real)?;
    // Looked at first, so that decompressors are made for archives only.
    let mut begin = [0_u8; BEGIN_BYTES];
    let count = file.read(&mut begin)?;
    if !is_archive(begin.get(..count).unwrap_or_default()) {
        return Ok(None);
    }
    let file = open_regular(&real)?;
    let _ = pagewarden_core::system::fs::fadvise(
        &file,
        0,
        None,
        pagewarden_core::system::fs::Advice::Sequential,
    );
    decode(Box::new(file)).map(Some)
}

fn base_archive(folder: &StorePath) -> Option<StorePath> {
    archive_named(folder, BASE)
}

fn log_archive(folder: &StorePath) -> Option<StorePath> {
    archive_named(folder, LOG)
}

fn archive_named(folder: &StorePath, name: &str) -> Option<StorePath> {
    let mut places = ENDINGS.iter().map(|ending| folder.join(format!("{name}{ending}")));
    // Where a store does not say, opening it does.
    places.find(|place| match place.local_path() {
        Some(path) => path.is_file(),
        None => place.is_there(),
    })
}

/// The archives that a server's backup consists of: the base first, which holds
/// the control file, then tablespaces by their oids.
fn archives_of(folder: &StorePath, base: StorePath) -> Result<VecDeque<Source>, Error> {
    let listed = folder.list().map_err(|source| Error::io("list", folder.path(), source))?;
    let mut tablespaces: Vec<(u32, String)> = listed
        .into_iter()
        .filter_map(|it| Some((tablespace_of(Path::new(&it.name))?, it.name)))
        .collect();
    tablespaces.sort();
    let base = Source { place: base, opened: None, shown: String::new(), prefix: String::new() };
    let tablespaces = tablespaces.into_iter().map(|(oid, name)| {
        let (place, prefix) = (folder.join(name), format!("pg_tblspc/{oid}/"));
        Source { place, opened: None, shown: prefix.clone(), prefix }
    });
    Ok(std::iter::once(base).chain(tablespaces).collect())
}

/// The tablespace of an archive that is named like one: `16384.tar.gz`.
fn tablespace_of(path: &Path) -> Option<u32> {
    let stem = stem_of(path)?;
    let canonical = !stem.starts_with('0') && stem.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { stem.parse().ok() } else { None }
}

fn is_named_by_server(path: &Path) -> bool {
    stem_of(path) == Some("base") || tablespace_of(path).is_some()
}

/// What stands before `.tar` and the compression's ending.
fn stem_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix(".tar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_the_server_are_known_by_their_names() {
        for (name, oid, by_server) in [
            ("base.tar", None, true),
            ("base.tar.zst", None, true),
            ("16384.tar", Some(16384), true),
            ("a/16384.tar.lz4", Some(16384), true),
            ("pg_wal.tar", None, false),
            ("016384.tar", None, false),
            ("16384.tar.bz2", None, false),
            ("16384", None, false),
        ] {
            assert_eq!(tablespace_of(Path::new(name)), oid, "{name}");
            assert_eq!(is_named_by_server(Path::new(name)), by_server, "{name}");
        }
    }
}

//! A folder that is no database itself: the databases in it.
//!
//! Backups of SQL Server, or one SQLite file a customer, lie in plain folders. What is
//! recognised by its content is a target; so is what is called like a database, since a
//! file whose first page is destroyed is recognised by nothing else.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::database::{Format, Probe, STREAM_BEGIN_BYTES, repository, stored};
use crate::error::Error;
use crate::formats::FORMATS;
use crate::source::store::{Listed, Seen, StorePath, expecting};

/// Folders in folders that are looked into: links are not followed, so that more than
/// this is a mistake or malice.
const DEPTH_MAX: usize = 32;
/// No file system has to take longer ones.
const SHOWN_BYTES_MAX: u64 = 1 << 40;

/// True if `path` is a target by itself.
#[must_use]
pub fn is_target(path: &Path, kind: Option<&Format>) -> bool {
    fs::metadata(path).is_ok_and(|metadata| best(path, &metadata, kind) != Probe::No)
}

/// The databases below a folder, by name: files, and data directories as a whole. Empty
/// if there is none.
///
/// # Errors
/// A folder cannot be listed: what is in it would go unread without a word.
pub fn databases(folder: &Path, kind: Option<&Format>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    list(folder, kind, 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn list(
    folder: &Path,
    kind: Option<&Format>,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let entries = fs::read_dir(folder).map_err(|source| Error::io("list", folder, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| Error::io("list", folder, source))?;
        let path = entry.path();
        // Of the entry itself: a link leads out of what was named.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if best(&path, &metadata, kind) == Probe::Yes {
                found.push(path);
            } else if depth < DEPTH_MAX {
                list(&path, kind, depth + 1, found)?;
            }
        } else if metadata.is_file()
            && (metadata.len() > 0 && is_named_like_one(&path)
                || best(&path, &metadata, kind) == Probe::Yes)
        {
            found.push(path);
        }
    }
    Ok(())
}

/// A folder of a store that is no database itself, as [`databases`]: the files and repositories of
/// backups in it by name, and folders that are one database in files of their own, which are found and
/// not read there.
///
/// # Errors
/// A folder cannot be listed, or it cannot be found out what a file is.
pub fn stored(folder: &StorePath, kind: Option<&Format>) -> Result<Vec<StorePath>, Error> {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    list_stored(folder, kind, 0, (&mut found, &mut unknown))?;
    let expect = |(place, _): &(StorePath, u64)| place.expect_begin(STREAM_BEGIN_BYTES);
    for (place, bytes) in expecting(unknown, expect) {
        if is_stored_one(&place, bytes, kind)? {
            found.push(place);
        }
    }
    found.sort_by(|one, other| one.path().cmp(other.path()));
    Ok(found)
}

/// Adds what its name says enough of, and apart from it files of which it is to be found out, with their
/// lengths.
fn list_stored(
    folder: &StorePath,
    kind: Option<&Format>,
    depth: usize,
    (found, unknown): (&mut Vec<StorePath>, &mut Vec<(StorePath, u64)>),
) -> Result<(), Error> {
    let listed = folder.list().map_err(|source| Error::io("list", folder.path(), source))?;
    let expect = |Listed { name, seen }: &Listed| {
        if *seen == Seen::Folder {
            folder.join(name).expect_list();
        }
    };
    for Listed { name, seen } in expecting(listed, expect) {
        let place = folder.join(&name);
        match seen {
            Seen::Folder => {
                if repository::kind_of(&place, kind).is_some() || mark_of(&place).is_some() {
                    found.push(place);
                } else if depth < DEPTH_MAX {
                    list_stored(&place, kind, depth + 1, (found, unknown))?;
                }
            }
            Seen::File(bytes) if bytes > 0 => match is_named_like_one(place.path()) {
                true => found.push(place),
                false => unknown.push((place, bytes)),
            },
            // As on a disk, a name may say enough of one that is empty.
            Seen::File(_) => {
                if is_named_like_one(place.path()) && stored::of_file(&place, &[], kind)?.is_some()
                {
                    found.push(place);
                }
            }
            Seen::Other => {}
        }
    }
    Ok(())
}

/// What says that a folder of a store is one database in files of its own.
#[must_use]
pub fn mark_of(folder: &StorePath) -> Option<String> {
    marked(folder).map(|(_, mark)| mark)
}

/// The format of a folder of a store that is one database in files of its own, and what says so.
#[must_use]
pub fn marked(folder: &StorePath) -> Option<(&'static Format, String)> {
    let listed = folder.list().ok()?;
    let mark = |format: &'static Format| Some((format, (format.folder_mark)(folder, &listed)?));
    FORMATS.iter().find_map(mark)
}

/// True for a file of a store whose content is recognised by its first bytes. The formats look at files
/// of this machine: they are shown one that begins as it does, and is as long.
fn is_stored_one(place: &StorePath, bytes: u64, kind: Option<&Format>) -> Result<bool, Error> {
    let failed = |source| Error::io("read", place.path(), source);
    let begin = place.first_bytes(STREAM_BEGIN_BYTES).map_err(failed)?;
    let shown = || -> io::Result<bool> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(place.name().unwrap_or("file"));
        let mut file = File::create_new(&path)?;
        file.write_all(&begin)?;
        file.set_len(bytes.min(SHOWN_BYTES_MAX))?;
        Ok(best(&path, &file.metadata()?, kind) == Probe::Yes)
    };
    let is_one = shown().map_err(|source| Error::io("copy", place.path(), source))?;
    // Some formats have their mark at the end.
    Ok(is_one || stored::of_file(place, &begin, kind)?.is_some())
}

fn best(path: &Path, metadata: &fs::Metadata, kind: Option<&Format>) -> Probe {
    if metadata.is_dir() && repository::kind_of(&path.into(), kind).is_some() {
        return Probe::Yes;
    }
    let kinds = FORMATS.iter().filter(|one| kind.is_none_or(|kind| kind.name == one.name));
    kinds.map(|kind| (kind.probe)(path, metadata)).max().unwrap_or(Probe::No)
}

fn is_named_like_one(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    FORMATS.iter().flat_map(|format| format.endings).any(|known| known.eq_ignore_ascii_case(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_of_a_folder_are_found_by_content_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("customers/one")).unwrap();
        let mut sqlite = b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20".to_vec();
        sqlite.resize(4096, 0);
        fs::write(path("customers/one/data"), &sqlite).unwrap();
        fs::write(path("customers/notes.txt"), "nothing of interest").unwrap();
        fs::write(path("customers/empty.sqlite"), "").unwrap();
        // Its first page is destroyed.
        fs::write(path("shop.MDF"), vec![0xAA; 8192]).unwrap();
        pagewarden_core::system::symlink("/", path("customers/root")).unwrap();
        let found = databases(folder.path(), None).unwrap();
        assert_eq!(found, [path("customers/one/data"), path("shop.MDF")]);
        assert!(!is_target(folder.path(), None));
        assert!(is_target(&path("customers/one/data"), None));
    }
}

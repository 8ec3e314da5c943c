//! What is packed: the files and folders below a path, as they are now.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::pack::table::{Attributes, Entry, ROOT, What};

/// What `st_blocks` counts in, everywhere.
const STATUS_BLOCK_BYTES: u64 = 512;
/// A name has two bytes for its length in a pack.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// What to do about links, sockets and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strays {
    /// A pack that leaves one out would not be what it seems. Links to folders, as
    /// those of tablespaces, are followed.
    Refused,
    /// They are left out; files that are gone before they are looked at, too.
    PassedOver,
}

/// The files and folders below a path.
#[derive(Debug, Clone)]
pub struct Content {
    /// The folder they lie in.
    folder: PathBuf,
    /// Folders before what is in them.
    pub entries: Vec<Entry>,
    /// As the system told of each when it was listed.
    seen: Vec<Seen>,
    /// Folders that were listed, so that links never lead round in circles.
    folders: HashSet<(u64, u64)>,
}

/// What changes when somebody writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Seen {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Content {
    /// Lists what lies below `path`: a folder or a file.
    ///
    /// # Errors
    /// Something cannot be looked at, or is neither a file nor a folder and may not
    /// be passed over.
    pub fn list(path: &Path, strays: Strays) -> Result<Self, Error> {
        let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
        if metadata.is_dir() {
            let mut content = Self::empty(path.to_owned());
            content.add(PathBuf::from(ROOT), &metadata, None)?;
            content.list_folder(Path::new(""), strays)?;
            return Ok(content);
        }
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut content = Self::empty(folder);
        content.add(name, &metadata, None)?;
        Ok(content)
    }

    fn empty(folder: PathBuf) -> Self {
        Self { folder, entries: Vec::new(), seen: Vec::new(), folders: HashSet::new() }
    }

    fn list_folder(&mut self, below: &Path, strays: Strays) -> Result<(), Error> {
        let folder = self.folder.join(below);
        let failed = |error| Error::io("list", &folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort_unstable();
        for name in names {
            let name = below.join(name);
            let path = self.folder.join(&name);
            let metadata = match fs::symlink_metadata(&path) {
                Err(error)
                    if strays == Strays::PassedOver && error.kind() == ErrorKind::NotFound =>
                {
                    continue;
                }
                metadata => metadata.map_err(|error| Error::io("open", &path, error))?,
            };
            let is_stray = !metadata.is_dir() && !metadata.is_file();
            if is_stray && strays == Strays::PassedOver {
                continue;
            }
            if metadata.is_symlink() {
                self.add_link(&name)?;
                self.list_folder(&name, strays)?;
                continue;
            }
            let is_folder = metadata.is_dir();
            self.add(name.clone(), &metadata, None)?;
            if is_folder {
                self.list_folder(&name, strays)?;
            }
        }
        Ok(())
    }

    /// A link to a folder that lies elsewhere.
    fn add_link(&mut self, name: &Path) -> Result<(), Error> {
        let path = self.folder.join(name);
        let refuse = |reason: &str, hint: &str| Err(Error::unknown(&path, reason, hint));
        let followed = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => {
                return refuse(
                    "a link leads to a file outside of this folder, and only folders are followed",
                    "put the file in the place of the link",
                );
            }
            Err(error) => return refuse(&format!("a link leads nowhere: {error}"), "mount it"),
        };
        let failed = |error| Error::io("follow", &path, error);
        let inside = fs::canonicalize(&self.folder).map_err(failed)?;
        let place = fs::canonicalize(&path).map_err(failed)?;
        if place.starts_with(&inside) || inside.starts_with(&place) {
            return refuse(
                "a link leads to a folder that is packed already",
                "put a folder of its own in the place of the link",
            );
        }
        // As it is written, so that it is recognised: PostgreSQL's are absolute.
        let written = fs::read_link(&path).map_err(failed)?;
        let link = if written.is_absolute() { written } else { place };
        self.add(name.to_owned(), &followed, Some(link))
    }

    fn add(
        &mut self,
        name: PathBuf,
        metadata: &Metadata,
        link: Option<PathBuf>,
    ) -> Result<(), Error> {
        let path = self.folder.join(&name);
        let refuse = |reason: &str, hint: &str| Err(Error::unknown(&path, reason, hint));
        // Only links lead round in circles.
        let is_new = self.folders.insert((metadata.dev(), metadata.ino()));
        if link.is_some() && !is_new {
            return refuse(
                "two links lead to this folder",
                "let each tablespace have a folder of its own",
            );
        }
        if !metadata.is_dir() && !metadata.is_file() {
            return refuse("neither a file nor a folder", "shut the server down first");
        }
        let is_long = |path: &Path| path.as_os_str().as_bytes().len() > NAME_BYTES_MAX;
        if is_long(&name) || link.as_deref().is_some_and(is_long) {
            return refuse("its name is too long for a pack", "pack a folder further below");
        }
        let attributes = Attributes {
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
            group: metadata.gid(),
            modified_seconds: metadata.mtime(),
            modified_nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        };
        let what = if metadata.is_dir() {
            What::Folder
        } else {
            let held = metadata.blocks().saturating_mul(STATUS_BLOCK_BYTES);
            let bytes = metadata.len();
            What::File { bytes, has_holes: held < bytes, hash: [0; 32] }
        };
        self.entries.push(Entry { name, attributes, what, link });
        self.seen.push(Seen::of(metadata));
        Ok(())
    }

    /// Where an entry lies.
    #[must_use]
    pub fn path(&self, entry: usize) -> PathBuf {
        self.entries.get(entry).map_or_else(PathBuf::new, |entry| self.folder.join(&entry.name))
    }

    /// The entry of a file, by how the system knows it, since it may be reached by
    /// several paths.
    pub(super) fn numbers(&self) -> HashMap<(u64, u64), usize> {
        let files = self.entries.iter().zip(&self.seen).enumerate();
        let files = files.filter(|(_, (entry, _))| entry.what != What::Folder);
        files.map(|(number, (_, seen))| ((seen.device, seen.inode), number)).collect()
    }

    /// Bytes in all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes()))
    }

    /// The first file that is not what it was when it was listed.
    ///
    /// # Errors
    /// It changed, or is gone.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        const HINT: &str = "shut the server down, and pack again";
        for (number, (entry, seen)) in self.entries.iter().zip(&self.seen).enumerate() {
            let path = self.path(number);
            let metadata = match entry.link {
                Some(_) => fs::metadata(&path),
                None => fs::symlink_metadata(&path),
            };
            let metadata = metadata.map_err(|error| Error::io("open", &path, error))?;
            let is_same = if entry.what == What::Folder {
                (metadata.dev(), metadata.ino()) == (seen.device, seen.inode)
            } else {
                Seen::of(&metadata) == *seen
            };
            if !is_same {
                return Err(Error::unknown(&path, "it changed while it was packed", HINT));
            }
        }
        Ok(())
    }
}

//! What is packed: the files and folders below a path, as they are now.

use std::collections::HashMap;
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
    /// A pack that leaves one out would not be what it seems.
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
            let mut content =
                Self { folder: path.to_owned(), entries: Vec::new(), seen: Vec::new() };
            content.add(PathBuf::from(ROOT), &metadata)?;
            content.list_folder(Path::new(""), strays)?;
            return Ok(content);
        }
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let mut content = Self { folder, entries: Vec::new(), seen: Vec::new() };
        content.add(name, &metadata)?;
        Ok(content)
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
            let is_folder = metadata.is_dir();
            self.add(name.clone(), &metadata)?;
            if is_folder {
                self.list_folder(&name, strays)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, name: PathBuf, metadata: &Metadata) -> Result<(), Error> {
        let path = self.folder.join(&name);
        let refuse = |reason: &str, hint: &str| Err(Error::unknown(&path, reason, hint));
        if metadata.is_symlink() {
            return refuse(
                "a link leads out of this folder, and a pack holds one folder",
                "pack what it leads to by itself",
            );
        }
        if !metadata.is_dir() && !metadata.is_file() {
            return refuse("neither a file nor a folder", "shut the server down first");
        }
        if name.as_os_str().as_bytes().len() > NAME_BYTES_MAX {
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
        self.entries.push(Entry { name, attributes, what });
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
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| Error::io("open", &path, error))?;
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

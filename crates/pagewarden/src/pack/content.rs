//! What is packed: the files and folders below a path, as they are now.
//!
//! Links to folders are followed only where a server makes them: those of PostgreSQL's tablespaces
//! and its log. A user who can write into the folder may plant any other link, to have a pack
//! made by root hold what only root may read. For the same reason root follows only to folders of
//! the cluster's own user, or along links that no other user can have made.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pagewarden_core::system::{
    Identity, MetadataExt as _, OsStrExt as _, identity, identity_of_open,
};

use crate::database::LinkMaker;
use crate::error::Error;
use crate::formats::FORMATS;
use crate::pack::table::{Attributes, Entry, ROOT, What};
use crate::shell::quoted;
use crate::source::trusted_path::{End, foreign, user};

/// Where PostgreSQL keeps the links to its tablespaces.
const TABLESPACES: &str = "pg_tblspc";
/// What `st_blocks` counts in, everywhere.
const STATUS_BLOCK_BYTES: u64 = 512;
/// A name has two bytes for its length in a pack.
const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// What to do about links, sockets and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strays {
    /// A pack that leaves one out would not be what it seems. Links to folders that a server
    /// makes, as those of tablespaces, are followed, and others left out and named.
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
    folders: HashSet<Identity>,
    /// Links to folders that were not followed.
    pub left_out: Vec<PathBuf>,
}

/// What changes when a process writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    identity: Identity,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Seen {
    fn of(metadata: &Metadata, path: &Path) -> Result<Self, Error> {
        Ok(Self {
            identity: identified(metadata, path)?,
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

fn identified(metadata: &Metadata, path: &Path) -> Result<Identity, Error> {
    identity(metadata, path).map_err(|error| Error::io("open", path, error))
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
        Self {
            folder,
            entries: Vec::new(),
            seen: Vec::new(),
            folders: HashSet::new(),
            left_out: Vec::new(),
        }
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
                if self.add_link(&name)? {
                    self.list_folder(&name, strays)?;
                }
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

    /// A link to a folder that lies elsewhere; true if it is followed.
    fn add_link(&mut self, name: &Path) -> Result<bool, Error> {
        let path = self.folder.join(name);
        let refuse = |reason: &str, hint: &str| Err(Error::refused(&path, reason, hint));
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
        if self.folders.contains(&identified(&followed, &path)?) {
            return refuse(
                "two links lead to this folder",
                "let each tablespace have a folder of its own",
            );
        }
        let made_by = maker(&path);
        if made_by == LinkMaker::Unknown
            || made_by == LinkMaker::Logging && !may_follow(&path, &followed)
        {
            self.left_out.push(name.to_owned());
            return Ok(false);
        }
        if !may_follow(&path, &followed) {
            return Err(not_of_the_owner(&path, &followed));
        }
        // As it is written, so that it is recognised: PostgreSQL's are absolute.
        let written = fs::read_link(&path).map_err(failed)?;
        let link = if written.is_absolute() { written } else { place };
        self.add(name.to_owned(), &followed, Some(link))?;
        Ok(true)
    }

    fn add(
        &mut self,
        name: PathBuf,
        metadata: &Metadata,
        link: Option<PathBuf>,
    ) -> Result<(), Error> {
        let path = self.folder.join(&name);
        let refuse = |reason: &str, hint: &str| Err(Error::refused(&path, reason, hint));
        // Only links lead round in circles.
        let seen = Seen::of(metadata, &path)?;
        self.folders.insert(seen.identity);
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
        self.seen.push(seen);
        Ok(())
    }

    /// Where an entry lies.
    #[must_use]
    pub fn path(&self, entry: usize) -> PathBuf {
        self.entries.get(entry).map_or_else(PathBuf::new, |entry| self.folder.join(&entry.name))
    }

    /// True if this is the file that was listed, whatever path has led to it.
    pub(super) fn is_listed(&self, entry: usize, file: &File) -> bool {
        let (Some(seen), Ok(found)) = (self.seen.get(entry), identity_of_open(file)) else {
            return false;
        };
        found == seen.identity
    }

    /// The entry of a file, by how the system knows it, since it may be reached by
    /// several paths.
    pub(super) fn numbers(&self) -> HashMap<Identity, usize> {
        let files = self.entries.iter().zip(&self.seen).enumerate();
        let files = files.filter(|(_, (entry, _))| entry.what != What::Folder);
        files.map(|(number, (_, seen))| (seen.identity, number)).collect()
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
                let is_followed = entry.link.is_none() || may_follow(&path, &metadata);
                is_followed && identified(&metadata, &path)? == seen.identity
            } else {
                Seen::of(&metadata, &path)? == *seen
            };
            if !is_same {
                return Err(Error::changed(&path, "it changed while it was packed", HINT));
            }
        }
        Ok(())
    }
}

/// Who makes such a link, by the formats that know it.
fn maker(link: &Path) -> LinkMaker {
    FORMATS
        .iter()
        .map(|format| (format.link_maker)(link))
        .find(|maker| *maker != LinkMaker::Unknown)
        .unwrap_or(LinkMaker::Unknown)
}

/// The folder that a server's link lies in, or the cluster's where that is another.
fn cluster_of(link: &Path) -> &Path {
    let folder = link.parent().unwrap_or(link);
    match folder.file_name() {
        Some(name) if name == TABLESPACES => folder.parent().unwrap_or(folder),
        _ => folder,
    }
}

/// True unless we are root and the link leads to what its maker may not be able to read: to a
/// folder of another user than the cluster's, along a link that others can have made.
fn may_follow(link: &Path, followed: &Metadata) -> bool {
    if !pagewarden_core::system::process::geteuid().is_root() {
        return true;
    }
    let owner = fs::metadata(cluster_of(link)).map(|cluster| cluster.uid());
    if owner.is_ok_and(|owner| owner == followed.uid()) {
        return true;
    }
    let is_ours = fs::symlink_metadata(link).is_ok_and(|found| found.uid() == 0);
    is_ours && foreign(link, End::Name).is_ok_and(|others| others.is_empty())
}

fn not_of_the_owner(link: &Path, followed: &Metadata) -> Error {
    let owner = fs::metadata(cluster_of(link)).map_or(0, |cluster| cluster.uid());
    let reason = format!(
        "a link leads to a folder of {}, and this cluster belongs to {}: root would pack what {} \
         may not be able to read",
        user(followed.uid()),
        user(owner),
        user(owner)
    );
    let hint =
        format!("pack as that user: sudo -u {} pagewarden pack ...", quoted(user(owner).as_ref()));
    Error::refused(link, reason, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::system::{chown, symlink};

    /// A cluster, as far as names go, and a folder beside it.
    fn cluster() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (folder.path().join("main"), folder.path().join("elsewhere"));
        fs::create_dir_all(root.join("pg_tblspc")).unwrap();
        fs::create_dir_all(root.join("global")).unwrap();
        fs::create_dir_all(elsewhere.join("below")).unwrap();
        fs::write(root.join("PG_VERSION"), "15").unwrap();
        fs::write(elsewhere.join("below/secret"), "x").unwrap();
        (folder, root, elsewhere)
    }

    fn lists(root: &Path, name: &str) -> bool {
        let content = Content::list(root, Strays::Refused).unwrap();
        let is_there = content.entries.iter().any(|entry| entry.name == Path::new(name));
        let secret = content.entries.iter().any(|entry| entry.name.ends_with("secret"));
        assert_eq!(is_there, secret);
        assert_ne!(is_there, content.left_out == [Path::new(name)], "{name} is named");
        content.check_unchanged().unwrap();
        is_there
    }

    #[test]
    fn links_are_followed_only_where_a_server_makes_them() {
        let (_folder, root, elsewhere) = cluster();
        fs::create_dir(root.join("base")).unwrap();
        for (name, is_followed) in [
            ("pg_tblspc/16400", true),
            ("pg_wal", true),
            ("pg_xlog", true),
            ("log", true),
            ("pg_tblspc/x", false),
            ("pg_tblspc/1x", false),
            ("zlink", false),
            ("16400", false),
            ("base/pg_wal", false),
            ("base/16400", false),
        ] {
            symlink(&elsewhere, root.join(name)).unwrap();
            assert_eq!(lists(&root, name), is_followed, "{name}");
            fs::remove_file(root.join(name)).unwrap();
        }
        // Behind one that is followed none is.
        symlink(&elsewhere, root.join("pg_wal")).unwrap();
        let other = root.with_file_name("other");
        fs::create_dir(&other).unwrap();
        symlink(&other, elsewhere.join("16400")).unwrap();
        let content = Content::list(&root, Strays::Refused).unwrap();
        assert_eq!(content.left_out, [Path::new("pg_wal/16400")]);
    }

    #[test]
    fn root_follows_no_link_of_another_user_to_what_is_not_theirs() {
        const OTHER: Option<u32> = Some(65534);
        if !pagewarden_core::system::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give folders away");
            return;
        }
        let (folder, root, elsewhere) = cluster();
        chown(&root, OTHER, OTHER).unwrap();
        chown(root.join("pg_tblspc"), OTHER, OTHER).unwrap();
        for name in ["pg_tblspc/16400", "pg_wal"] {
            symlink(&elsewhere, root.join(name)).unwrap();
            let error = Content::list(&root, Strays::Refused).unwrap_err().to_string();
            assert!(error.contains("a folder of root") && error.contains("sudo -u"), "{error}");
            fs::remove_file(root.join(name)).unwrap();
        }
        symlink(&elsewhere, root.join("log")).unwrap();
        assert!(!lists(&root, "log"));
        fs::remove_file(root.join("log")).unwrap();
        // A folder of the cluster's user; and when it becomes another's meanwhile.
        symlink(&elsewhere, root.join("pg_wal")).unwrap();
        chown(&elsewhere, OTHER, OTHER).unwrap();
        let content = Content::list(&root, Strays::Refused).unwrap();
        content.check_unchanged().unwrap();
        chown(&elsewhere, Some(0), Some(0)).unwrap();
        assert!(content.check_unchanged().is_err());
        drop(folder);
    }
}

//! Whether another user can change where a path leads.
//!
//! The owner of a folder can rename what is in it and put a link in its place, also while a
//! program of root is at work below it. Whatever that program then makes, gives away or writes
//! by its path, it does where the link leads. So root must not work by paths through folders of
//! other users: this module finds these folders on the way from `/` to a path.
//!
//! A folder is trusted if it belongs to root or to the user of this process, and no other user can
//! write to it, or it has the sticky bit and the next name on the way belongs to one of the two.
//! Links on the way are followed as the system follows them. Only users that are trusted can
//! change what was looked at, so a way that is trusted stays so.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::system::fs::{Mode, OFlags};
use crate::system::{MetadataExt as _, OpenOptionsExt as _};

/// Links on one way; as many as Linux follows.
const LINKS_MAX: usize = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const ACCOUNTS: &str = "/etc/passwd";

/// A folder or name on the way that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Which.
    pub path: PathBuf,
    /// To whom it belongs.
    pub owner: u32,
    /// Its owner is trusted, but its mode lets others rename what is in it.
    pub is_open: bool,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        if self.is_open {
            return write!(f, "{path} is open to other users, who can replace what is in it");
        }
        write!(f, "{path} belongs to {}, who can replace what is below it", user(self.owner))
    }
}

/// How far to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// To the name: can another user put something else in its place?
    Name,
    /// Into the folder of that name: can another user replace what is in it, too?
    Inside,
}

/// What other users can change on the way to `path`, outermost first. What does not exist yet
/// ends the way.
///
/// # Errors
/// Something on the way cannot be looked at.
pub fn foreign(path: &Path, end: End) -> io::Result<Vec<Foreign>> {
    walk(path, end, crate::system::process::geteuid().as_raw())
}

/// The same for a process of root, and nothing for one of another user: that can do through any
/// link what its user may do, and no more.
///
/// # Errors
/// See [`foreign`].
pub fn foreign_to_root(path: &Path, end: End) -> io::Result<Vec<Foreign>> {
    if crate::system::process::geteuid().is_root() { foreign(path, end) } else { Ok(Vec::new()) }
}

/// A folder, open, so that no name on the way to it counts any more. A process of root gets one
/// only if no other user can have chosen it, or if it belongs to the only user that can: then what
/// is made in it is made where that user could have made it.
///
/// # Errors
/// It cannot be opened, or may be one that another user has chosen.
pub fn hold(folder: &Path) -> io::Result<File> {
    hold_up_to(folder, End::Inside)
}

/// The same for new files of root's own, which are made and named by the folder's descriptor: others
/// may write to the folder itself.
///
/// # Errors
/// As [`hold`].
pub fn hold_for_new_files(folder: &Path) -> io::Result<File> {
    hold_up_to(folder, End::Name)
}

fn hold_up_to(folder: &Path, end: End) -> io::Result<File> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
    let others = foreign_to_root(folder, end)?;
    let owner = opened.metadata()?.uid();
    match others.iter().find(|other| other.is_open || other.owner != owner) {
        Some(other) => Err(io::Error::new(io::ErrorKind::PermissionDenied, other.to_string())),
        None => Ok(opened),
    }
}

fn walk(path: &Path, end: End, ours: u32) -> io::Result<Vec<Foreign>> {
    let absolute = std::path::absolute(path)?;
    let mut left: VecDeque<OsString> = names(&absolute).collect();
    let mut current = PathBuf::from("/");
    let mut found = Vec::new();
    let mut links = 0_usize;
    while let Some(name) = left.pop_front() {
        if name == ".." {
            current.pop();
            continue;
        }
        let folder = fs::symlink_metadata(&current)?;
        judge_folder(&current, &folder, ours, &mut found);
        let next = current.join(name);
        let metadata = match fs::symlink_metadata(&next) {
            Err(error) if is_absent(&error) => return Ok(found),
            metadata => metadata?,
        };
        let may_be_replaced = folder.mode() & WRITABLE_BY_OTHERS != 0;
        if may_be_replaced && !is_trusted(metadata.uid(), ours) {
            add(&mut found, Foreign { path: next.clone(), owner: metadata.uid(), is_open: false });
        }
        if !metadata.is_symlink() {
            current = next;
            continue;
        }
        links = links.saturating_add(1);
        if links > LINKS_MAX {
            return Err(crate::system::Errno::LOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            current = PathBuf::from("/");
        }
        names(&target).rev().for_each(|name| left.push_front(name));
    }
    if end == End::Inside {
        judge_folder(&current, &fs::symlink_metadata(&current)?, ours, &mut found);
    }
    Ok(found)
}

/// The names on a way. `..` is resolved where it stands, after the links before it.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::ParentDir => Some("..".into()),
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    })
}

fn judge_folder(path: &Path, metadata: &Metadata, ours: u32, found: &mut Vec<Foreign>) {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    let is_open = mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0;
    let is_foreign = !is_trusted(owner, ours);
    if metadata.is_dir() && (is_foreign || is_open) {
        add(found, Foreign { path: path.to_owned(), owner, is_open: !is_foreign });
    }
}

fn add(found: &mut Vec<Foreign>, foreign: Foreign) {
    if !found.iter().any(|earlier| earlier.path == foreign.path) {
        found.push(foreign);
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_trusted(owner: u32, ours: u32) -> bool {
    owner == 0 || owner == ours || Some(owner) == unmapped_owner()
}

/// In a name space of users, whose root is an ordinary user outside, what belongs to users
/// outside, such as `/`, is shown as that of one user: it is as far above us as root is.
fn unmapped_owner() -> Option<u32> {
    static FOUND: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").ok()?;
        let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
        let owner = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        owner.trim().parse().ok().filter(|_| !is_whole)
    })
}

/// What a user is called, as `sudo -u` and messages name it.
#[must_use]
pub fn user(uid: u32) -> String {
    account(uid).map_or_else(|| format!("#{uid}"), |(name, _)| name)
}

/// A user's group.
pub fn group(uid: u32) -> Option<u32> {
    account(uid).map(|(_, group)| group)
}

fn account(uid: u32) -> Option<(String, u32)> {
    let accounts = fs::read_to_string(ACCOUNTS).ok()?;
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        (found == uid && is_plain && !name.is_empty()).then(|| (name.to_owned(), group))
    })
}

/// Makes a folder in one that is held, for this user alone, unless something has its name, and
/// opens it. A link is not followed.
///
/// # Errors
/// It can be neither made nor opened, or is no folder.
pub fn make_in(holder: &File, name: &Path) -> io::Result<File> {
    match crate::system::fs::mkdirat(holder, name, Mode::RWXU) {
        Ok(()) | Err(crate::system::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(crate::system::fs::openat(holder, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{PermissionsExt as _, chown, symlink};

    const OTHER: u32 = 65534;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What is found below the temporary folder; above it the machine is as it is.
    fn found(root: &Path, path: &str, end: End) -> Vec<(String, bool)> {
        let found = foreign(&root.join(path), end).unwrap();
        let below = found.iter().filter_map(|foreign| {
            let name = foreign.path.strip_prefix(root).ok()?;
            Some((name.to_str().unwrap().to_owned(), foreign.is_open))
        });
        below.collect()
    }

    #[test]
    fn folders_that_others_can_write_to_are_found_without_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(found(&root, "a/b/new", End::Name), []);
        mode(&root.join("a"), 0o775);
        assert_eq!(found(&root, "a/b/new", End::Name), [("a".to_owned(), true)]);
        // Entries of a sticky folder that are ours stay where they are.
        mode(&root.join("a"), 0o1777);
        assert_eq!(found(&root, "a/b/new", End::Name), []);
        mode(&root.join("a/b"), 0o777);
        assert_eq!(found(&root, "a/b", End::Name), []);
        assert_eq!(found(&root, "a/b", End::Inside), [("a/b".to_owned(), true)]);
    }

    #[test]
    fn a_way_leads_through_links_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("open/in")).unwrap();
        mode(&root.join("open"), 0o777);
        symlink("open/in", root.join("link")).unwrap();
        symlink(root.join("open/in/../.."), root.join("back")).unwrap();
        let open = [("open".to_owned(), true)];
        assert_eq!(found(&root, "link", End::Inside), open);
        assert_eq!(found(&root, "back/x", End::Name), open);
        assert_eq!(found(&root, "x", End::Name), []);
        symlink("round", root.join("round")).unwrap();
        assert!(foreign(&root.join("round/x"), End::Name).is_err());
    }

    #[test]
    fn folders_and_sticky_entries_of_another_user_are_found_by_root() {
        if !crate::system::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give folders away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("theirs/ours")).unwrap();
        fs::create_dir_all(root.join("sticky/theirs")).unwrap();
        chown(root.join("theirs"), Some(OTHER), None).unwrap();
        chown(root.join("sticky/theirs"), Some(OTHER), None).unwrap();
        mode(&root.join("sticky"), 0o1777);
        assert_eq!(found(&root, "theirs", End::Name), []);
        assert_eq!(found(&root, "theirs/ours/x", End::Name), [("theirs".to_owned(), false)]);
        let sticky = [("sticky/theirs".to_owned(), false)];
        assert_eq!(found(&root, "sticky/theirs", End::Name), sticky);
        let said = foreign(&root.join("theirs/x"), End::Name).unwrap();
        assert!(said.iter().any(|foreign| foreign.owner == OTHER));
        // Held where it belongs to who could have chosen it, and nowhere else.
        assert!(hold(&root.join("theirs")).is_ok());
        assert!(hold(&root.join("theirs/ours")).is_err());
        symlink(root.join("sticky"), root.join("theirs/link")).unwrap();
        assert!(hold(&root.join("theirs/link")).is_err());
        assert!(hold_for_new_files(&root.join("theirs/link")).is_err());
        // Open to others is the folder itself, and not the way to it.
        fs::create_dir(root.join("shared")).unwrap();
        mode(&root.join("shared"), 0o777);
        assert!(hold(&root.join("shared")).is_err());
        assert!(hold_for_new_files(&root.join("shared")).is_ok());
    }
}

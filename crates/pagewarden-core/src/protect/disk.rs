//! Everything that `protect` changes on a disk goes through here, so that tests
//! can see every change, end a run at any of them, and build what a power failure
//! would leave behind.
//!
//! Names are made, opened and removed by the descriptor of their folder, and root does so only
//! where the owner of the file could have done it: in a folder of that owner, or along a way that
//! no other user can change. Else a folder that becomes a link meanwhile would lead root elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::protect::Options;
use crate::source::trusted_path::{End, foreign};
use crate::system::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, linkat, openat, renameat,
    statat, symlinkat, unlinkat,
};
use crate::system::{
    self, DirBuilderExt as _, Errno, FileExt as _, MetadataExt as _, identity_of_open, set_mode,
};

/// A file that is written to, with the name it was opened by.
#[derive(Debug)]
pub struct Written {
    /// The file.
    pub file: File,
    /// Its name.
    pub path: PathBuf,
}

impl Written {
    /// Opens a regular file of the database to change it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = Folder::of(path)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = openat(&folder.held, folder.name, flags, Mode::empty())?.into();
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        folder.check(found.uid())?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// The same file again, to read and write past the page cache; `None` where
    /// that is refused, or the name has passed to another file.
    #[cfg(target_os = "linux")]
    pub fn open_direct(&self) -> Option<File> {
        use std::fs::OpenOptions;
        use std::os::unix::fs::OpenOptionsExt as _;

        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::DIRECT).bits();
        let flags = i32::try_from(flags).unwrap_or(0);
        let options = OpenOptions::new().read(true).write(true).custom_flags(flags).clone();
        let file = options.open(&self.path).ok()?;
        is_same_file(&file, &self.file).ok()?.then_some(file)
    }

    /// Refused.
    #[cfg(not(target_os = "linux"))]
    pub fn open_direct(&self) -> Option<File> {
        None
    }
}

/// The folder of a name, held while something is done to the name.
struct Folder<'a> {
    held: File,
    path: &'a Path,
    name: &'a OsStr,
}

impl<'a> Folder<'a> {
    fn of(path: &'a Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let flags = HOLDING | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = openat(system::fs::CWD, folder, flags, Mode::empty())?.into();
        Ok(Self { held, path: folder, name })
    }

    /// Refuses root what `owner` could not have done here.
    fn check(&self, owner: u32) -> io::Result<()> {
        if !system::process::geteuid().is_root() {
            return Ok(());
        }
        let ours = self.held.metadata()?.uid();
        if ours != 0 && ours == owner {
            return Ok(());
        }
        let others = foreign(self.path, End::Inside)?;
        match others.iter().find(|other| other.is_open || other.owner != ours) {
            None => Ok(()),
            Some(other) => {
                let text = format!("root does not write there: {other}");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
        }
    }

    /// The same for whom the file of the name belongs to.
    fn check_name(&self) -> io::Result<()> {
        self.check(statat(&self.held, self.name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid)
    }
}

/// A descriptor by which names are reached, without any right to list them.
#[cfg(target_os = "linux")]
const HOLDING: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HOLDING: OFlags = OFlags::RDONLY;

/// True if both descriptors lead to one file.
pub fn is_same_file(one: &File, other: &File) -> io::Result<bool> {
    Ok(identity_of_open(one)? == identity_of_open(other)?)
}

/// Changes to a disk; what each method does unless a test wants more of it.
pub trait Disk: fmt::Debug + Sync {
    /// Makes a file that must not exist yet, for the owner of `like`.
    fn create(&self, path: &Path, like: &Metadata) -> io::Result<Written> {
        let folder = Folder::of(path)?;
        folder.check(like.uid())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&folder.held, folder.name, flags, Mode::RUSR | Mode::WUSR)?.into();
        give_to_owner(&file, like)?;
        Ok(Written { file, path: path.to_owned() })
    }

    /// Writes all of `bytes`.
    fn write_at(&self, file: &Written, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.file.write_all_at(bytes, offset)
    }

    /// The same by `direct`, a descriptor of `file` that goes past the page cache.
    /// It outlives a power failure no sooner: the device may still hold it in its
    /// own memory.
    fn write_past(
        &self,
        _file: &Written,
        direct: &File,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        direct.write_all_at(bytes, offset)
    }

    /// Makes the file so long.
    fn set_length(&self, file: &Written, length: u64) -> io::Result<()> {
        file.file.set_len(length)
    }

    /// Makes the file share the blocks of `source`, where the file system can.
    fn share_blocks(&self, file: &Written, source: &File) -> bool {
        clone_blocks(&file.file, source)
    }

    /// Gives the file the owner, mode and times of `like`; but no file that Pagewarden makes ever
    /// runs as its owner or group.
    fn set_attributes(&self, file: &Written, like: &Metadata) -> io::Result<()> {
        give_to_owner(&file.file, like)?;
        set_mode(&file.file, like.mode() & 0o777)?;
        Ok(system::fs::futimens(&file.file, &times(like))?)
    }

    /// Waits until the device holds the file.
    fn sync(&self, file: &Written) -> io::Result<()> {
        file.file.sync_all()
    }

    /// Waits until the device holds everything in the file system of a file.
    fn sync_file_system(&self, file: &Written) -> io::Result<()> {
        sync_file_system(&file.file)
    }

    /// Waits until the device holds the names in a folder.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        system::sync_folder(&system::open_folder(path)?)
    }

    /// Gives a file a second name, which must not exist yet.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (Folder::of(from)?, Folder::of(to)?);
        to.check(statat(&from.held, from.name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid)?;
        Ok(linkat(&from.held, from.name, &to.held, to.name, AtFlags::empty())?)
    }

    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, target) = (Folder::of(from)?, Folder::of(to)?);
        target.check(statat(&from.held, from.name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid)?;
        // In one folder, it is the one that was checked, also if its path leads elsewhere by now.
        let source = if from.path == target.path { &target.held } else { &from.held };
        Ok(renameat(source, from.name, &target.held, target.name)?)
    }

    /// Takes a name away.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let folder = Folder::of(path)?;
        folder.check_name()?;
        Ok(unlinkat(&folder.held, folder.name, AtFlags::empty())?)
    }

    /// Makes a folder, unless it is there.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_folder(path) => Ok(()),
            made => made,
        }
    }

    /// Gives a folder the owner, mode and times of `like`.
    fn set_folder_attributes(&self, path: &Path, like: &Metadata) -> io::Result<()> {
        let folder = File::open(path)?;
        give_to_owner(&folder, like)?;
        set_mode(&folder, like.mode() & 0o7777)?;
        Ok(system::fs::futimens(&folder, &times(like))?)
    }

    /// Makes a symbolic link, for the owner of `like`.
    fn make_link(&self, content: &Path, path: &Path, like: &Metadata) -> io::Result<()> {
        let folder = Folder::of(path)?;
        folder.check(like.uid())?;
        symlinkat(content, &folder.held, folder.name)?;
        let (user, group) = (Some(Uid::from_raw(like.uid())), Some(Gid::from_raw(like.gid())));
        let given = chownat(&folder.held, folder.name, user, group, AtFlags::SYMLINK_NOFOLLOW);
        permitted(given.map_err(io::Error::from))
    }
}

/// The disk as it is.
#[derive(Debug)]
pub struct System;

impl Disk for System {}

/// Takes a name away; false if it was not there.
pub fn remove(disk: &dyn Disk, path: &Path) -> Result<bool, Error> {
    match disk.remove(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("remove", path, error)),
    }
}

/// Waits until the device holds a file, where anything is waited for.
pub fn sync(disk: &dyn Disk, options: &Options, file: &Written) -> Result<(), Error> {
    if !options.sync {
        return Ok(());
    }
    disk.sync(file).map_err(|error| Error::io("sync", &file.path, error))
}

/// From this number on, files of a file system that were not written to are not waited for one by
/// one.
const TOGETHER_MIN: usize = 8;

/// Waits until the device holds files that this run did not write to, where anything is
/// waited for: an interrupted run or a restore may have, shortly before.
///
/// One after the other, each would have the device empty its cache, which for a
/// thousand small files takes longer than to read three gigabytes. The whole file
/// system at once has it do so once. Linux before 5.8 says nothing of writes that
/// failed there; of those, none are this run's.
pub fn sync_unwritten(disk: &dyn Disk, options: &Options, files: &[&Written]) -> Result<(), Error> {
    if !options.sync {
        return Ok(());
    }
    let mut by_device: BTreeMap<u64, Vec<&Written>> = BTreeMap::new();
    for file in files {
        let identity = identity_of_open(&file.file);
        let (device, _) = identity.map_err(|error| Error::io("sync", &file.path, error))?;
        by_device.entry(device).or_default().push(file);
    }
    for files in by_device.into_values() {
        match files.first() {
            Some(first) if cfg!(target_os = "linux") && files.len() >= TOGETHER_MIN => disk
                .sync_file_system(first)
                .map_err(|error| Error::io("sync the file system of", &first.path, error))?,
            _ => files.into_iter().try_for_each(|file| sync(disk, options, file))?,
        }
    }
    Ok(())
}

/// Waits until the device holds the names in a folder, where anything is waited for.
pub fn sync_folder(disk: &dyn Disk, options: &Options, path: &Path) -> Result<(), Error> {
    if !options.sync {
        return Ok(());
    }
    disk.sync_folder(path).map_err(|error| Error::io("sync", path, error))
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Only root can give files away; anybody else's are their own.
fn give_to_owner(file: &File, like: &Metadata) -> io::Result<()> {
    let metadata = file.metadata()?;
    if (metadata.uid(), metadata.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(like.uid()), Gid::from_raw(like.gid()));
    permitted(system::fs::fchown(file, Some(user), Some(group)).map_err(io::Error::from))
}

fn permitted(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(()),
        other => other,
    }
}

fn times(like: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(like.atime(), like.atime_nsec()),
        last_modification: time(like.mtime(), like.mtime_nsec()),
    }
}

#[cfg(target_os = "linux")]
fn clone_blocks(file: &File, source: &File) -> bool {
    system::fs::ioctl_ficlone(file, source).is_ok()
}

#[cfg(target_os = "linux")]
fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(system::fs::syncfs(file)?)
}

/// Not offered for one file system; `sync` waits for none elsewhere.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn clone_blocks(_: &File, _: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn no_file_that_is_made_runs_as_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let like = folder.path().join("like");
        fs::write(&like, "").unwrap();
        fs::set_permissions(&like, Permissions::from_mode(0o6751)).unwrap();
        let like = fs::metadata(like).unwrap();
        assert_eq!(like.mode() & 0o7777, 0o6751);
        let made = System.create(&folder.path().join("made"), &like).unwrap();
        System.set_attributes(&made, &like).unwrap();
        assert_eq!(made.file.metadata().unwrap().mode() & 0o7777, 0o751);
    }

    /// The folder of a table that its owner has swapped for a link, while root replaces the table.
    #[test]
    fn root_makes_and_renames_nothing_where_a_link_of_another_user_leads() {
        use crate::system::{chown, symlink};

        const OTHER: Option<u32> = Some(65534);
        if !system::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can give folders away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (data, private) = (folder.path().join("data"), folder.path().join("private"));
        for path in [&data, &private, &data.join("shop")] {
            fs::create_dir(path).unwrap();
        }
        let table = data.join("shop/t.ibd");
        fs::write(&table, "table").unwrap();
        fs::write(private.join("t.ibd"), "root's").unwrap();
        fs::write(private.join("new"), "root's").unwrap();
        for path in [&data, &data.join("shop"), &table] {
            chown(path, OTHER, OTHER).unwrap();
        }
        let like = fs::metadata(&table).unwrap();
        let new = data.join("shop/new");
        drop(System.create(&new, &like).unwrap());
        System.rename(&new, &table).unwrap();
        assert_eq!(fs::metadata(&table).unwrap().uid(), 65534);
        drop(Written::open(&table).unwrap());

        fs::rename(data.join("shop"), data.join("away")).unwrap();
        symlink(&private, data.join("shop")).unwrap();
        let before = fs::metadata(&private).unwrap().ctime_nsec();
        let refused = [
            System.create(&data.join("shop/other"), &like).map(drop),
            System.create(&data.join("shop/other"), &fs::metadata(&private).unwrap()).map(drop),
            System.rename(&data.join("away/t.ibd"), &data.join("shop/t.ibd")),
            System.link(&data.join("away/t.ibd"), &data.join("shop/u.ibd")),
            System.remove(&new),
            System.make_link(Path::new("x"), &data.join("shop/x"), &like),
            Written::open(&table).map(drop),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            let error = result.expect_err(&number.to_string());
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{number}: {error}");
        }
        assert_eq!(fs::metadata(&private).unwrap().ctime_nsec(), before);
        // What is root's all the way is as it was.
        drop(Written::open(&private.join("t.ibd")).unwrap());
        System.remove(&private.join("new")).unwrap();
    }
}

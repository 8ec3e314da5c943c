//! Calls on files by the names of Unix. Those that change names by the descriptor of a folder, or
//! give files away, are not supported.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::os::windows::ffi::OsStrExt as _;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, GetDiskFreeSpaceExW,
};

use super::{Errno, MetadataExt as _};

pub use super::process::{Gid, Uid};

type Result<T> = std::result::Result<T, Errno>;

macro_rules! flags {
    ($(#[$meta:meta])* $name:ident { $($flag:ident = $value:expr),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(u32);

        #[allow(missing_docs, reason = "as Unix has them")]
        impl $name {
            $(pub const $flag: Self = Self($value);)*

            /// None of them.
            #[must_use]
            pub const fn empty() -> Self {
                Self(0)
            }

            /// As a number.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Of a number.
            #[must_use]
            pub const fn from_bits_retain(bits: u32) -> Self {
                Self(bits)
            }

            /// True if all of the other are in it.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
    };
}

flags! {
    /// How a file is opened. The numbers are our own.
    OFlags {
        RDONLY = 0,
        RDWR = 1,
        CREATE = 2,
        EXCL = 4,
        NOFOLLOW = 8,
        WRONLY = 16,
        TRUNC = 32,
        // Without a meaning here: handles are not inherited, and nothing is waited for.
        NONBLOCK = 64,
        CLOEXEC = 128,
        DIRECTORY = 256,
        NOCTTY = 512,
    }
}

flags! {
    /// Rights of a new file: those that its folder gives.
    Mode { RUSR = 0o400, WUSR = 0o200, RWXU = 0o700 }
}

flags! {
    /// How a name is looked at.
    AtFlags { SYMLINK_NOFOLLOW = 1, SYMLINK_FOLLOW = 2 }
}

flags! {
    /// How an attribute is set.
    XattrFlags { CREATE = 1 }
}

/// The folder in which a process works, from which paths begin.
#[derive(Debug, Clone, Copy)]
pub struct Current;

/// See [`Current`].
pub const CWD: Current = Current;

/// Where names begin.
pub trait Holder {
    /// True for [`CWD`], the only one that is supported.
    fn is_current(&self) -> bool {
        false
    }
}

impl Holder for Current {
    fn is_current(&self) -> bool {
        true
    }
}

impl Holder for File {}
impl<T: Holder> Holder for &T {
    fn is_current(&self) -> bool {
        (**self).is_current()
    }
}

/// What `fstat` says, as far as it is asked for.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as Unix has them")]
pub struct Stat {
    pub st_size: i64,
    pub st_blocks: i64,
    pub st_mode: u32,
    pub st_uid: u32,
}

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as Unix has them")]
pub enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Unknown,
}

impl FileType {
    /// Out of the mode of [`Stat`].
    #[must_use]
    pub fn from_raw_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::RegularFile,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// Opens a file.
///
/// # Errors
/// What the system says; a link that is not to be followed is [`Errno::LOOP`], and a path from a
/// held folder is not supported.
pub fn openat(holder: impl Holder, path: impl AsRef<Path>, flags: OFlags, _: Mode) -> Result<File> {
    if !holder.is_current() {
        return Err(Errno::NOSYS);
    }
    let mut options = OpenOptions::new();
    let writes = flags.contains(OFlags::RDWR) || flags.contains(OFlags::WRONLY);
    options.read(!flags.contains(OFlags::WRONLY)).write(writes);
    match (flags.contains(OFlags::CREATE), flags.contains(OFlags::EXCL)) {
        (true, true) => options.create_new(true),
        (create, _) => options.create(create).truncate(flags.contains(OFlags::TRUNC)),
    };
    // Folders can be opened only so; what is a folder is found out by what it is.
    let mut theirs = FILE_FLAG_BACKUP_SEMANTICS;
    let follows = !flags.contains(OFlags::NOFOLLOW);
    if !follows {
        theirs |= FILE_FLAG_OPEN_REPARSE_POINT;
    }
    let file = options.custom_flags(theirs).open(path).map_err(|error| errno(&error))?;
    let is_link = || file.metadata().is_ok_and(|metadata| metadata.is_symlink());
    if !follows && is_link() { Err(Errno::LOOP) } else { Ok(file) }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::INVAL, Errno)
}

/// What an open file is.
///
/// # Errors
/// What the system says.
pub fn fstat(file: &File) -> Result<Stat> {
    let metadata = file.metadata().map_err(|error| errno(&error))?;
    let kind = match metadata.file_type() {
        kind if kind.is_symlink() => 0o120_000,
        kind if kind.is_dir() => 0o040_000,
        kind if kind.is_file() => 0o100_000,
        _ => 0,
    };
    Ok(Stat {
        st_size: i64::try_from(metadata.len()).unwrap_or(i64::MAX),
        st_blocks: i64::try_from(metadata.blocks()).unwrap_or(i64::MAX),
        st_mode: kind | (metadata.mode() & 0o7777),
        st_uid: metadata.uid(),
    })
}

/// A wish about reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as Unix has them")]
pub enum Advice {
    Sequential,
    WillNeed,
    DontNeed,
    Random,
    Normal,
}

/// Asks for nothing.
///
/// # Errors
/// None.
pub fn fadvise(_: &File, _: u64, _: Option<std::num::NonZero<u64>>, _: Advice) -> Result<()> {
    Ok(())
}

/// How a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as Unix has them")]
pub enum FlockOperation {
    NonBlockingLockExclusive,
    NonBlockingLockShared,
}

/// Locks all of a file, which then other handles can neither read nor write.
///
/// # Errors
/// [`Errno::WOULDBLOCK`] if another has it, or what the system says.
pub fn flock(file: &File, operation: FlockOperation) -> Result<()> {
    let locked = match operation {
        FlockOperation::NonBlockingLockExclusive => file.try_lock(),
        FlockOperation::NonBlockingLockShared => file.try_lock_shared(),
    };
    locked.map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => Errno::WOULDBLOCK,
        std::fs::TryLockError::Error(error) => errno(&error),
    })
}

/// Room of a file system.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as Unix has them")]
pub struct StatVfs {
    pub f_frsize: u64,
    pub f_bavail: u64,
    pub f_blocks: u64,
    pub f_bsize: u64,
}

/// The room of the file system in which a folder is.
///
/// # Errors
/// What the system says.
pub fn statvfs(folder: &Path) -> Result<StatVfs> {
    let mut name: Vec<u16> = folder.as_os_str().encode_wide().collect();
    if name.contains(&0) {
        return Err(Errno::INVAL);
    }
    name.push(0);
    let (mut free, mut total) = (0_u64, 0_u64);
    // SAFETY: the name ends with a zero, and the pointers are to live numbers of the type that is
    // written; the last may be missing.
    let result = unsafe {
        GetDiskFreeSpaceExW(name.as_ptr(), &raw mut free, &raw mut total, std::ptr::null_mut())
    };
    if result == 0 {
        return Err(errno(&io::Error::last_os_error()));
    }
    Ok(StatVfs { f_frsize: 1, f_bavail: free, f_blocks: total, f_bsize: 1 })
}

/// A place in a file by what is there.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as Unix has them")]
pub enum SeekFrom {
    Data(u64),
    Hole(u64),
}

/// Holes are not asked for.
///
/// # Errors
/// Always.
pub fn seek(_: &File, _: SeekFrom) -> Result<u64> {
    Err(Errno::NOSYS)
}

/// A moment.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as Unix has them")]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

/// Times of a file.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as Unix has them")]
pub struct Timestamps {
    pub last_access: Timespec,
    pub last_modification: Timespec,
}

macro_rules! refused {
    ($($name:ident($($type:ty),*) -> $result:ty;)*) => {$(
        /// Not supported here.
        ///
        /// # Errors
        /// Always.
        pub fn $name($(_: $type),*) -> Result<$result> {
            Err(Errno::NOSYS)
        }
    )*};
}

refused! {
    fstatvfs(&File) -> StatVfs;
    flistxattr(&File, &mut [u8]) -> usize;
    fgetxattr(&File, impl AsRef<std::ffi::CStr>, &mut [u8]) -> usize;
    fsetxattr(&File, impl AsRef<std::ffi::CStr>, &[u8], XattrFlags) -> ();
    statat(&File, impl AsRef<Path>, AtFlags) -> Stat;
    renameat(&File, impl AsRef<Path>, &File, impl AsRef<Path>) -> ();
    linkat(&File, impl AsRef<Path>, &File, impl AsRef<Path>, AtFlags) -> ();
    unlinkat(&File, impl AsRef<Path>, AtFlags) -> ();
    symlinkat(impl AsRef<Path>, &File, impl AsRef<Path>) -> ();
    mkdirat(&File, impl AsRef<Path>, Mode) -> ();
    chownat(&File, impl AsRef<Path>, Option<Uid>, Option<Gid>, AtFlags) -> ();
    fchown(&File, Option<Uid>, Option<Gid>) -> ();
    fchmod(&File, Mode) -> ();
    futimens(&File, &Timestamps) -> ();
}

//! Windows: what reading needs, by the names that Unix has.
//!
//! Writers that change names by the descriptor of a folder have no such means here: [`fs`] tells
//! them that it is not supported.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Stdin};
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windows_sys::Win32::Foundation::{
    ERROR_SHARING_VIOLATION, FILETIME, GENERIC_READ, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
    FILE_GENERIC_READ, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_WRITE_ATTRIBUTES,
    GetFileInformationByHandle, ReOpenFile,
};
use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, CTRL_BREAK_EVENT, CTRL_C_EVENT, GetConsoleScreenBufferInfo,
    SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Threading::{GetCurrentThread, GetThreadTimes};

pub mod fs;
pub mod process;

/// What the system calls an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// `ERROR_ACCESS_DENIED`.
    pub const ACCESS: Self = Self(5);
    /// `ERROR_ACCESS_DENIED`, which Windows has in one.
    pub const PERM: Self = Self(5);
    /// `ERROR_LOCK_VIOLATION`.
    pub const AGAIN: Self = Self(33);
    /// `ERROR_LOCK_VIOLATION`.
    pub const WOULDBLOCK: Self = Self(33);
    /// `ERROR_ALREADY_EXISTS`.
    pub const EXIST: Self = Self(183);
    /// `ERROR_FILE_NOT_FOUND`.
    pub const NOENT: Self = Self(2);
    /// `ERROR_INVALID_PARAMETER`.
    pub const INVAL: Self = Self(87);
    /// `ERROR_CANT_RESOLVE_FILENAME`.
    pub const LOOP: Self = Self(1921);
    /// `ERROR_TOO_MANY_OPEN_FILES`.
    pub const MFILE: Self = Self(4);
    /// `ERROR_TOO_MANY_OPEN_FILES`.
    pub const NFILE: Self = Self(4);
    /// `ERROR_NOT_SUPPORTED`.
    pub const NOSYS: Self = Self(50);
    /// `ERROR_NOT_SUPPORTED`.
    pub const OPNOTSUPP: Self = Self(50);
    /// `ERROR_HANDLE_EOF`.
    pub const NXIO: Self = Self(38);
    /// `ERROR_DISK_FULL`.
    pub const NOSPC: Self = Self(112);
    /// `ERROR_FILE_NOT_FOUND`: what is said of a process that is not there.
    pub const SRCH: Self = Self(2);

    /// Its number.
    #[must_use]
    pub fn raw_os_error(self) -> i32 {
        self.0
    }

    /// The same as the standard library has it.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from(self).kind()
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::error::Error for Errno {}

/// Reads and writes at a place.
///
/// Windows moves the position of the handle with them: who uses these reads and writes nothing by
/// position.
pub trait FileExt {
    /// Reads what is there, at most all of `bytes`.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `bytes`.
    ///
    /// # Errors
    /// What the system says, or the file ends before.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// What the system says.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        // Offsets are signed there, and what lies behind is no error elsewhere.
        if i64::try_from(offset).is_err() {
            return Ok(0);
        }
        self.seek_read(bytes, offset)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0_usize;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.seek_write(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0_usize;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.write_at(rest, offset.saturating_add(written as u64)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written = written.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The only user that files here have: rights are those of access lists, which are the system's
/// matter.
const USER: u32 = 0;

/// What a file is beside its bytes. There is nothing here that tells one file from another: that is
/// [`identity`].
pub trait MetadataExt {
    /// Seconds since 1970 at which it was last written to.
    fn mtime(&self) -> i64;
    /// And the nanoseconds.
    fn mtime_nsec(&self) -> i64;
    /// Seconds since 1970 at which it was last read.
    fn atime(&self) -> i64;
    /// And the nanoseconds.
    fn atime_nsec(&self) -> i64;
    /// As [`MetadataExt::mtime`]: of changes beside the bytes, no time is kept.
    fn ctime(&self) -> i64;
    /// And the nanoseconds.
    fn ctime_nsec(&self) -> i64;
    /// As Unix has it, with rights of the owner alone.
    fn mode(&self) -> u32;
    /// The same for all files.
    fn uid(&self) -> u32;
    /// The same for all files.
    fn gid(&self) -> u32;
    /// One: others are not looked for.
    fn nlink(&self) -> u64;
    /// Units of 512 bytes, as if it had no holes.
    fn blocks(&self) -> u64;
    /// Its length.
    fn size(&self) -> u64;
}

fn since_1970(time: io::Result<SystemTime>) -> Duration {
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.unwrap_or_default()
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

impl MetadataExt for Metadata {
    fn mtime(&self) -> i64 {
        seconds(since_1970(self.modified()))
    }

    fn mtime_nsec(&self) -> i64 {
        since_1970(self.modified()).subsec_nanos().into()
    }

    fn atime(&self) -> i64 {
        seconds(since_1970(self.accessed()))
    }

    fn atime_nsec(&self) -> i64 {
        since_1970(self.accessed()).subsec_nanos().into()
    }

    fn ctime(&self) -> i64 {
        self.mtime()
    }

    fn ctime_nsec(&self) -> i64 {
        self.mtime_nsec()
    }

    fn mode(&self) -> u32 {
        let kind = if self.is_dir() { 0o040_000 } else { 0o100_000 };
        let execute = if self.is_dir() { 0o100 } else { 0 };
        let write = if self.permissions().readonly() { 0 } else { 0o200 };
        kind | execute | write | 0o400
    }

    fn uid(&self) -> u32 {
        USER
    }

    fn gid(&self) -> u32 {
        USER
    }

    fn nlink(&self) -> u64 {
        1
    }

    fn blocks(&self) -> u64 {
        self.file_size().div_ceil(512)
    }

    fn size(&self) -> u64 {
        self.file_size()
    }
}

/// Kinds of files that Windows keeps elsewhere.
pub trait FileTypeExt {
    /// False.
    fn is_socket(&self) -> bool;
    /// False.
    fn is_fifo(&self) -> bool;
}

impl FileTypeExt for FileType {
    fn is_socket(&self) -> bool {
        false
    }

    fn is_fifo(&self) -> bool {
        false
    }
}

/// Rights of a new file are those that its folder gives.
pub trait OpenOptionsExt {
    /// Changes nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
    /// The flags of [`fs::OFlags`].
    fn custom_flags(&mut self, flags: i32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut Self {
        let mut theirs = FILE_FLAG_BACKUP_SEMANTICS;
        if fs::OFlags::from_bits_retain(flags.cast_unsigned()).contains(fs::OFlags::NOFOLLOW) {
            theirs |= FILE_FLAG_OPEN_REPARSE_POINT;
        }
        std::os::windows::fs::OpenOptionsExt::custom_flags(self, theirs)
    }
}

/// Rights of a new folder are those that its folder gives.
pub trait DirBuilderExt {
    /// Changes nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

/// Rights as Unix has them.
pub trait PermissionsExt: Sized {
    /// Not known here.
    fn mode(&self) -> u32;
}

impl PermissionsExt for Permissions {
    fn mode(&self) -> u32 {
        if self.readonly() { 0o400 } else { 0o600 }
    }
}

/// Programs that are started.
pub trait CommandExt {
    /// Changes nothing: there are no groups that are ended together.
    fn process_group(&mut self, group: i32) -> &mut Self;
}

impl CommandExt for std::process::Command {
    fn process_group(&mut self, _: i32) -> &mut Self {
        self
    }
}

/// Names as bytes: UTF-8, as far as they are Unicode.
pub trait OsStrExt {
    /// The bytes of the name.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// Names of bytes.
pub trait OsStringExt {
    /// The bytes of the name.
    fn into_vec(self) -> Vec<u8>;
    /// The name of these bytes. What is no UTF-8 is no name here: it gets signs in its place that
    /// no file has, so that it is found nowhere.
    fn from_vec(bytes: Vec<u8>) -> Self;
}

impl OsStringExt for OsString {
    fn into_vec(self) -> Vec<u8> {
        self.into_encoded_bytes()
    }

    fn from_vec(bytes: Vec<u8>) -> Self {
        String::from_utf8_lossy(&bytes).into_owned().into()
    }
}

/// What tells a file from all others: the number of its volume, and its number there.
pub type Identity = (u64, u64);

/// The identity of the file at `path`, behind a link too.
///
/// # Errors
/// It cannot be opened.
pub fn identity(metadata: &Metadata, path: &Path) -> io::Result<Identity> {
    let mut flags = FILE_FLAG_BACKUP_SEMANTICS;
    if metadata.is_symlink() {
        flags |= FILE_FLAG_OPEN_REPARSE_POINT;
    }
    let mut options = OpenOptions::new();
    // No right to read is asked for, so that no other program's sharing is in the way.
    std::os::windows::fs::OpenOptionsExt::custom_flags(options.access_mode(0), flags);
    identity_of_open(&options.open(path)?)
}

/// The identity of an open file.
///
/// # Errors
/// What the system says.
pub fn identity_of_open(file: &File) -> io::Result<Identity> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open while `file` is borrowed, and the pointer is to a live structure of
    // the type that is written.
    let result = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) };
    if result == 0 {
        return Err(io::Error::last_os_error());
    }
    let number = u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow);
    Ok((found.dwVolumeSerialNumber.into(), number))
}

/// The number of the file in its file system, where its metadata has it: not here.
#[must_use]
pub fn inode(_: &Metadata) -> Option<u64> {
    None
}

/// Changes nothing: rights are those that its folder gives.
///
/// # Errors
/// None.
pub fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// Changes nothing, too.
///
/// # Errors
/// None.
pub fn set_mode_of(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

/// Changes nothing, too.
pub fn with_mode<'a, 'b, 'c>(
    builder: &'c mut tempfile::Builder<'a, 'b>,
    _: u32,
) -> &'c mut tempfile::Builder<'a, 'b> {
    builder
}

/// Opens a folder, to give it its times.
///
/// # Errors
/// What the system says.
pub fn open_folder(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.access_mode(FILE_GENERIC_READ | FILE_WRITE_ATTRIBUTES);
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, FILE_FLAG_BACKUP_SEMANTICS);
    options.open(path)
}

/// Nothing: the system keeps names in a log of its own.
///
/// # Errors
/// None.
pub fn sync_folder(_: &File) -> io::Result<()> {
    Ok(())
}

/// Gives a folder the name of another one, which must be empty if it is there.
///
/// # Errors
/// What the system says.
pub fn rename_folder(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::remove_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::rename(from, to)
}

/// The name of these bytes; none, which no file has, of bytes that are not Unicode.
#[must_use]
pub fn os_str_of_bytes(bytes: &[u8]) -> &OsStr {
    OsStr::new(std::str::from_utf8(bytes).unwrap_or_default())
}

/// The path of these bytes; `None` where the system has no such name, which is Unicode.
#[must_use]
pub fn path_of_bytes(bytes: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(bytes).ok().map(PathBuf::from)
}

/// Why files with these names cannot be written here as they are, and which it is: names that the
/// system takes for a device or a stream of another file, or changes, or that differ only in case.
#[must_use]
pub fn unwritable_name<'a>(
    names: impl Iterator<Item = &'a Path>,
) -> Option<(&'a Path, &'static str)> {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    let mut seen = std::collections::HashSet::new();
    for path in names {
        for part in path.components().filter(|part| *part != std::path::Component::CurDir) {
            let std::path::Component::Normal(name) = part else {
                return Some((path, "it leads elsewhere"));
            };
            let name = name.to_string_lossy();
            if name.chars().any(|sign| "<>:\"|?*\\".contains(sign) || sign < ' ') {
                return Some((path, "Windows has no such names"));
            }
            if name.ends_with(['.', ' ']) {
                return Some((path, "Windows takes the last sign from its name"));
            }
            let stem = name.split('.').next().unwrap_or_default().trim_end().to_uppercase();
            let port = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
            let is_port = port.is_some_and(|number| number.chars().count() == 1);
            if is_port || DEVICES.contains(&stem.as_str()) {
                return Some((path, "Windows takes its name for a device"));
            }
        }
        if !seen.insert(path.to_string_lossy().to_lowercase()) {
            return Some((path, "another differs from it only in case"));
        }
    }
    None
}

/// True if another program has the file open to write to it: what a server does with the files of
/// its databases, and a lock is elsewhere. For an instant the file is open without letting others
/// open it to write; engines try that again.
#[must_use]
pub fn is_written_elsewhere(file: &File) -> bool {
    // SAFETY: the handle is open while `file` is borrowed; the others are numbers.
    let again = unsafe {
        ReOpenFile(file.as_raw_handle(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, 0)
    };
    if again == INVALID_HANDLE_VALUE {
        let error = io::Error::last_os_error().raw_os_error();
        return error == i32::try_from(ERROR_SHARING_VIOLATION).ok();
    }
    // SAFETY: the handle was just given to us, and is closed by this file alone.
    drop(unsafe { File::from_raw_handle(again) });
    false
}

/// Makes a link to a folder; users need a right of their own for it.
///
/// # Errors
/// What the system says.
pub fn symlink(content: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
    std::os::windows::fs::symlink_dir(content, path)
}

/// Gives a file away: not supported.
///
/// # Errors
/// Always.
pub fn fchown(_: &File, _: Option<u32>, _: Option<u32>) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

/// Processor time of this thread.
#[must_use]
pub fn processor_time() -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [begun, ended, kernel, user] = &mut times;
    // SAFETY: the handle means the thread that calls, and the pointers are to live structures of the
    // type that is written.
    let result = unsafe {
        GetThreadTimes(
            GetCurrentThread(),
            &raw mut *begun,
            &raw mut *ended,
            &raw mut *kernel,
            &raw mut *user,
        )
    };
    if result == 0 {
        return Duration::ZERO;
    }
    // In units of 100 nanoseconds.
    let of = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos(of(kernel).saturating_add(of(user)).saturating_mul(100))
}

/// True: a read is what waits here.
///
/// # Errors
/// None.
pub fn wait_for_input(_: &Stdin, _: Duration) -> io::Result<bool> {
    Ok(true)
}

/// Reads from standard input.
///
/// # Errors
/// What the system says.
pub fn read_input(input: &Stdin, bytes: &mut [u8]) -> io::Result<usize> {
    input.lock().read(bytes)
}

/// Room for open files needs no making here.
pub fn make_room(_: i32) {}

/// What is done when a user wants the program to end.
type Wish = Box<dyn Fn() + Send + Sync>;

static WISH: std::sync::OnceLock<Wish> = std::sync::OnceLock::new();

/// Calls this on Ctrl-C and Ctrl-Break, on a thread of the system's, from now on.
///
/// # Errors
/// What the system says.
pub fn on_interrupt(wish: Wish) -> io::Result<()> {
    // Only one is asked for.
    let _ = WISH.set(wish);
    // SAFETY: the function lives as long as the program.
    match unsafe { SetConsoleCtrlHandler(Some(interrupted), 1) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What the system calls; true if it is dealt with.
unsafe extern "system" fn interrupted(event: u32) -> windows_sys::core::BOOL {
    let is_wish = matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT);
    if let Some(wish) = WISH.get().filter(|_| is_wish) {
        wish();
    }
    is_wish.into()
}

/// How wide the console of standard output is.
#[must_use]
pub fn terminal_columns() -> Option<usize> {
    let mut found = CONSOLE_SCREEN_BUFFER_INFO::default();
    // SAFETY: the handle of standard output lives as long as the process, and the pointer is to a
    // live structure of the type that is written.
    let result =
        unsafe { GetConsoleScreenBufferInfo(io::stdout().as_raw_handle(), &raw mut found) };
    if result == 0 {
        return None;
    }
    let columns = i32::from(found.srWindow.Right) - i32::from(found.srWindow.Left) + 1;
    usize::try_from(columns).ok().filter(|columns| *columns > 0)
}

/// What this machine is called.
#[must_use]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}

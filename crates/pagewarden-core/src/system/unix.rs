//! Unix: the standard library's and `rustix`'s own.

use std::fs::{File, Metadata};
use std::io::{self, Stdin};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
pub use std::os::unix::ffi::{OsStrExt, OsStringExt};
pub use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
    fchown, symlink,
};
pub use std::os::unix::process::CommandExt;

pub use rustix::io::Errno;
pub use rustix::{event, fs, process};

/// What tells a file from all others: device and inode.
pub type Identity = (u64, u64);

/// The identity of the file with this metadata, which is at `path`.
///
/// # Errors
/// None on Unix.
pub fn identity(metadata: &Metadata, _: &Path) -> io::Result<Identity> {
    Ok((metadata.dev(), metadata.ino()))
}

/// The identity of an open file.
///
/// # Errors
/// What the system says.
pub fn identity_of_open(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The number of the file in its file system, where its metadata has it.
#[must_use]
pub fn inode(metadata: &Metadata) -> Option<u64> {
    Some(metadata.ino())
}

/// Gives an open file or folder these rights.
///
/// # Errors
/// What the system says.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// The same by its path.
///
/// # Errors
/// What the system says.
pub fn set_mode_of(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Has temporary files or folders made with these rights.
pub fn with_mode<'a, 'b, 'c>(
    builder: &'c mut tempfile::Builder<'a, 'b>,
    mode: u32,
) -> &'c mut tempfile::Builder<'a, 'b> {
    builder.permissions(std::fs::Permissions::from_mode(mode))
}

/// Opens a folder, to make what is in it last and to give it its times.
///
/// # Errors
/// What the system says.
pub fn open_folder(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Waits until the device holds the names in a folder.
///
/// # Errors
/// What the system says.
pub fn sync_folder(folder: &File) -> io::Result<()> {
    folder.sync_all()
}

/// Gives a folder the name of another one, which must be empty if it is there.
///
/// # Errors
/// What the system says.
pub fn rename_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

/// The name of these bytes.
#[must_use]
pub fn os_str_of_bytes(bytes: &[u8]) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(bytes)
}

/// The path of these bytes; `None` where the system has no such name.
#[must_use]
pub fn path_of_bytes(bytes: &[u8]) -> Option<PathBuf> {
    Some(std::ffi::OsStr::from_bytes(bytes).into())
}

/// Why files with these names cannot be written here as they are, and which it is.
#[must_use]
pub fn unwritable_name<'a>(_: impl Iterator<Item = &'a Path>) -> Option<(&'a Path, &'static str)> {
    None
}

/// Processor time of this thread.
#[must_use]
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Waits for something to read from standard input, for so long; false if nothing came.
///
/// # Errors
/// What the system says.
pub fn wait_for_input(input: &Stdin, patience: Duration) -> io::Result<bool> {
    let patience = event::Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut waiting = [event::PollFd::new(input, event::PollFlags::IN)];
    match event::poll(&mut waiting, Some(&patience)) {
        Ok(0) | Err(Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Reads from standard input itself and not through the buffer of `Stdin`: what waits there is not
/// seen by [`wait_for_input`].
///
/// # Errors
/// What the system says.
pub fn read_input(input: &Stdin, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(input, bytes)?)
}

/// Makes room for this number of open files. A wish: it may be refused.
pub fn make_room(descriptors: i32) {
    drop(rustix::io::fcntl_dupfd_cloexec(io::stderr(), descriptors));
}

/// How wide the terminal of standard output is.
#[must_use]
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// What this machine is called.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

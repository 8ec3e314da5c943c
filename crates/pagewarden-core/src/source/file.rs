//! Opening files that belong to another program or user.
//!
//! Read-only, regular files only, no symbolic link followed at the last step,
//! no waiting on a FIFO, and without touching the access time where the system
//! lets us.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::system::Errno;
use crate::system::FileExt as _;
use crate::system::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};

/// Opens a regular file for reading.
///
/// # Errors
/// What the system says, or `InvalidInput` for anything that is no regular
/// file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with_status(path).map(|(file, _)| file)
}

/// The same, with what `fstat` says of it.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_with_status(path: &Path) -> io::Result<(File, Stat)> {
    open_with(path, OFlags::empty())
}

/// The same for reads past the page cache, where the file system allows it.
///
/// # Errors
/// As [`open_regular`], and `InvalidInput` where `O_DIRECT` is refused.
#[cfg(target_os = "linux")]
pub fn open_direct(path: &Path) -> io::Result<(File, Stat)> {
    open_with(path, OFlags::DIRECT)
}

/// Reads what is there at `offset`, at most `bytes`; less is no error.
///
/// # Errors
/// What the system says, [`io::ErrorKind::Interrupted`] included.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let read = file.read_at(bytes, offset);
    #[cfg(any(test, feature = "testing"))]
    let read = crate::testing::fault::disturb(file, offset, read);
    read
}

/// Fills `bytes` from `offset` on; how much there was.
///
/// # Errors
/// What the system says.
pub fn read_fully(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0_usize;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read_at(file, rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The first bytes of a small regular file, `bytes_max` at most.
///
/// # Errors
/// What the system says.
pub fn read_small(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = vec![0; bytes_max];
    let count = read_fully(&file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Opens what is there for reading, behind a link too; the caller looks at what it
/// is. As elsewhere here, nothing is waited for and no access time is touched.
///
/// # Errors
/// What the system says.
pub fn open_anything(path: &Path) -> io::Result<File> {
    Ok(open_quietly(path, OFlags::empty())?)
}

fn open_quietly(path: &Path, extra: OFlags) -> Result<File, Errno> {
    // Without O_NONBLOCK, opening a FIFO waits for a writer forever.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | extra;
    match openat(CWD, path, flags | NO_ACCESS_TIME, Mode::empty()) {
        // Only the owner may ask for that.
        Err(Errno::PERM) => Ok(openat(CWD, path, flags, Mode::empty())?.into()),
        other => Ok(other?.into()),
    }
}

fn open_with(path: &Path, extra: OFlags) -> io::Result<(File, Stat)> {
    let file = match open_quietly(path, OFlags::NOFOLLOW | extra) {
        Err(Errno::LOOP) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a symbolic link, not followed",
            ));
        }
        other => other?,
    };
    let status = fstat(&file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((file, status))
}

#[cfg(target_os = "linux")]
const NO_ACCESS_TIME: OFlags = OFlags::NOATIME;
#[cfg(not(target_os = "linux"))]
const NO_ACCESS_TIME: OFlags = OFlags::empty();

//! Takes away what a mount leaves whose process was killed: a folder that answers
//! everything with an error. There is nothing else, since what was written has no
//! name.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::mounted::SUBTYPE;

/// Why nothing was taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CleanupError {
    /// The system refuses.
    #[error("cannot unmount {}: {error}", folder.display())]
    Refused {
        /// What.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// There is something else.
    #[error("cannot clean up {}: a file system of the kind {kind} is mounted there, and no pack", folder.display())]
    NotOurs {
        /// Where.
        folder: PathBuf,
        /// What the system calls it.
        kind: String,
    },
    /// It is in use.
    #[error("cannot clean up {}: a running process serves it\nhint: umount {}, or end that process by Ctrl-C or SIGTERM", .0.display(), .0.display())]
    Alive(PathBuf),
}

/// Takes dead mounts of packs from a folder, and says how many there were.
///
/// # Errors
/// What is mounted there is alive, or is not ours, or the system refuses.
pub fn cleanup(folder: &Path) -> Result<usize, CleanupError> {
    let refused = |error| CleanupError::Refused { folder: folder.to_owned(), error };
    let place = resolve(folder).map_err(refused)?;
    let mut count = 0;
    loop {
        let mounts = fs::read("/proc/self/mountinfo").map_err(refused)?;
        let Some(kind) = topmost(&mounts, &place) else { return Ok(count) };
        if kind != format!("fuse.{SUBTYPE}") {
            // Beneath a dead mount of Pagewarden there may be anything: that stays.
            let not_ours = CleanupError::NotOurs { folder: folder.to_owned(), kind };
            return if count > 0 { Ok(count) } else { Err(not_ours) };
        }
        // Attributes the system may still remember; for a list it must ask.
        let error = fs::read_dir(&place).err();
        let alive = error.and_then(|error| Errno::from_io_error(&error)) != Some(Errno::NOTCONN);
        if alive {
            return Err(CleanupError::Alive(folder.to_owned()));
        }
        detach(&place).map_err(refused)?;
        count += 1;
    }
}

/// The name of a folder that may itself not answer.
fn resolve(folder: &Path) -> io::Result<PathBuf> {
    if let Ok(whole) = fs::canonicalize(folder) {
        return Ok(whole);
    }
    let absolute = std::path::absolute(folder)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

fn detach(place: &Path) -> io::Result<()> {
    match unmount(place, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            let status =
                Command::new("fusermount3").args(["-u", "-z", "--"]).arg(place).status()?;
            if status.success() { Ok(()) } else { Err(Errno::PERM.into()) }
        }
        done => Ok(done?),
    }
}

/// The kind of what was mounted last on a folder, from a list of all mounts: fields
/// divided by spaces, the fifth being the folder, and the kind behind a lonely dash.
fn topmost(mounts: &[u8], place: &Path) -> Option<String> {
    let kind = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let folder = unescape(fields.nth(4)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (folder == place).then(|| String::from_utf8_lossy(kind).into_owned())
    };
    mounts.split(|byte| *byte == b'\n').filter_map(kind).next_back()
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let code = others
            .split_at_checked(3)
            .filter(|_| *first == b'\\')
            .and_then(|(digits, behind)| Some((octal(digits)?, behind)));
        match code {
            Some((byte, behind)) => {
                bytes.push(byte);
                rest = behind;
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_folder() {
        let mounts = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:40 / /mnt/with\\040space rw,nosuid shared:9 master:1 - tmpfs tmp rw\n\
            41 22 0:41 / /mnt/with\\040space rw,nosuid - fuse.pagewarden /x.pwk rw,user_id=0\n";
        let kind = |place: &str| topmost(mounts, Path::new(place));
        assert_eq!(kind("/mnt/with space").as_deref(), Some("fuse.pagewarden"));
        assert_eq!(kind("/").as_deref(), Some("ext4"));
        assert_eq!(kind("/mnt"), None);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cleanup(folder.path()).unwrap(), 0, "nothing is mounted there");
        assert!(matches!(cleanup(Path::new("/proc")), Err(CleanupError::NotOurs { .. })));
        assert!(matches!(cleanup(Path::new("/no/such/place")), Err(CleanupError::Refused { .. })));
    }
}

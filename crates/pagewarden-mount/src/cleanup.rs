//! Takes away what a mount leaves whose process was killed: a folder that answers
//! everything with an error. There is nothing else, since what was written has no
//! name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::mounted::SUBTYPE;
use crate::system::mount_on;

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
        let Some(kind) = mount_on(&place).map_err(refused)?.map(|mount| mount.kind) else {
            return Ok(count);
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(cleanup(folder.path()).unwrap(), 0, "nothing is mounted there");
        assert!(matches!(cleanup(Path::new("/proc")), Err(CleanupError::NotOurs { .. })));
        assert!(matches!(cleanup(Path::new("/no/such/place")), Err(CleanupError::Refused { .. })));
    }
}

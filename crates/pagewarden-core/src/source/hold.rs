//! Holding a file so that no server takes it.
//!
//! InnoDB and Aria lock their files with `fcntl`. Such a lock belongs to a process, which loses
//! it when it closes *any* descriptor of the file; one that belongs to the open file
//! (`F_OFD_SETLK`) stands in the way of others in the same way, and lives as long as the file is
//! open.
//!
//! A program may have a file open that lost its name meanwhile, and may wait for the lock on it: a
//! server of MySQL tries a hundred times, a second between. The system knows: a write lease
//! (`F_SETLEASE`) is given only to who has the file alone.

use std::fs::File;
use std::io;

/// Locks all of a file, which must be open for writing. False if another open file has a lock
/// on it.
///
/// # Errors
/// What the system says.
#[cfg(target_os = "linux")]
pub fn lock(file: &File) -> io::Result<bool> {
    lock_in(file, 0, 0)
}

/// The same for `length` bytes from `begin` on; a length of 0 goes to the end.
///
/// # Errors
/// What the system says.
#[cfg(target_os = "linux")]
pub fn lock_in(file: &File, begin: u64, length: u64) -> io::Result<bool> {
    match set(file, libc::F_WRLCK, begin, length) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        set => set.map(|()| true),
    }
}

/// Ends such a lock at once. To close the file is not enough where a process is just being
/// started: for a moment it has all files that were open.
///
/// # Errors
/// What the system says.
#[cfg(target_os = "linux")]
pub fn unlock(file: &File) -> io::Result<()> {
    set(file, libc::F_UNLCK, 0, 0)
}

#[cfg(target_os = "linux")]
fn set(file: &File, kind: libc::c_int, begin: u64, length: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let lock = libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or(0),
        l_start: libc::off_t::try_from(begin).map_err(io::Error::other)?,
        l_len: libc::off_t::try_from(length).map_err(io::Error::other)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open while `file` is borrowed, and the pointer is to a live lock
    // that the call only reads.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Cannot be done here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn lock(_: &File) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Cannot be done here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn lock_in(_: &File, _: u64, _: u64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// There is none here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn unlock(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// True if anybody has a lock on any part of a file: also who has it open in this process, by
/// [`lock`]. Only asks, and takes none.
#[must_use]
pub fn is_locked(file: &File) -> bool {
    is_locked_in(file, 0, 0)
}

/// The same for `length` bytes from `begin` on; a length of 0 goes to the end.
///
/// Asked of the system itself and not through `rustix`, which takes the number of the process that
/// has the lock for one: a lock of an open file has none, and the system says -1.
#[cfg(unix)]
#[must_use]
pub fn is_locked_in(file: &File, begin: u64, length: u64) -> bool {
    use std::os::fd::AsRawFd as _;

    // SAFETY: all zero is a value of every field.
    let mut question: libc::flock = unsafe { std::mem::zeroed() };
    question.l_type = i16::try_from(libc::F_WRLCK).unwrap_or(0);
    question.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or(0);
    // What the system cannot be asked for asks for more.
    question.l_start = libc::off_t::try_from(begin).unwrap_or(0);
    question.l_len = libc::off_t::try_from(length).unwrap_or(0);
    // SAFETY: the descriptor is open while `file` is borrowed, and the pointer is to a live lock,
    // into which the answer is written.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut question) };
    result == 0 && i32::from(question.l_type) != libc::F_UNLCK
}

/// The same for all of a file that another program may write to: locks of parts are not asked for
/// here without taking them.
#[cfg(windows)]
#[must_use]
pub fn is_locked_in(file: &File, _: u64, _: u64) -> bool {
    crate::system::is_written_elsewhere(file)
}

/// True if a file that has no name any more is open elsewhere too; `None` where the system does
/// not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn is_open_elsewhere(file: &File) -> Option<bool> {
    use std::os::fd::AsRawFd as _;

    // SAFETY: the descriptor is open while `file` is borrowed; the argument is a number.
    let lease =
        |kind: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_WRLCK) == 0 {
        // No process can open a file without a name, so that none waits for this.
        lease(libc::F_UNLCK);
        return Some(false);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Some(true),
        _ => None,
    }
}

/// Not told here.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_open_elsewhere(_: &File) -> Option<bool> {
    None
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;

    fn opened(path: &std::path::Path) -> File {
        fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    /// A server asks in the way of another process: with `fcntl`.
    fn can_be_locked_by_another_process(path: &std::path::Path) -> Option<bool> {
        let script = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); \
                      fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(path).stderr(Stdio::null());
        python.status().ok().map(|status| status.success())
    }

    #[test]
    fn lock_outlives_other_descriptors_of_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ibdata1");
        fs::write(&path, [0; 10]).unwrap();
        let file = opened(&path);
        assert!(!is_locked(&opened(&path)));
        assert!(lock(&file).unwrap());
        assert!(is_locked(&opened(&path)));
        drop(opened(&path));
        assert!(!lock(&opened(&path)).unwrap());
        assert_ne!(can_be_locked_by_another_process(&path), Some(true));
        // A second descriptor of the same opening keeps it.
        let same = file.try_clone().unwrap();
        drop(file);
        assert!(!lock(&opened(&path)).unwrap());
        drop(same);
        assert!(lock(&opened(&path)).unwrap());
        assert_ne!(can_be_locked_by_another_process(&path), Some(false));
    }

    #[test]
    fn lock_that_was_ended_is_nobodys_although_somebody_has_the_opening_still() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ibdata1");
        fs::write(&path, [0; 10]).unwrap();
        let file = opened(&path);
        let _inherited = file.try_clone().unwrap();
        assert!(lock(&file).unwrap());
        unlock(&file).unwrap();
        drop(file);
        assert!(lock(&opened(&path)).unwrap());
    }

    #[test]
    fn lock_on_a_part_of_a_file_is_no_lock_on_another() {
        use std::os::fd::AsRawFd as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        fs::write(&path, [0; 10]).unwrap();
        let file = opened(&path);
        let part = libc::flock {
            l_type: i16::try_from(libc::F_RDLCK).unwrap(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
            l_start: 1 << 30,
            l_len: 512,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the call only reads the lock.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const part) };
        assert_eq!(result, 0);
        let asking = opened(&path);
        assert!(is_locked(&asking) && is_locked_in(&asking, (1 << 30) + 511, 1));
        assert!(!is_locked_in(&asking, (1 << 30) + 512, 100));
        assert!(!is_locked_in(&asking, 0, 1 << 30));
    }

    #[test]
    fn whoever_has_a_nameless_file_open_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ibdata1");
        fs::write(&path, [0; 10]).unwrap();
        let file = opened(&path);
        let other = opened(&path);
        fs::remove_file(&path).unwrap();
        let Some(is_open) = is_open_elsewhere(&file) else {
            eprintln!("SKIPPED: this file system has no leases");
            return;
        };
        assert!(is_open);
        drop(other);
        assert_eq!(is_open_elsewhere(&file), Some(false));
    }
}

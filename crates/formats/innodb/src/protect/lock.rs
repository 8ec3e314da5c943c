//! Keeping servers away while files are replaced.
//!
//! A server locks `ibdata1` (InnoDB) and `aria_log_control` (Aria) before it reads anything else,
//! and does not start where another process has them (MariaDB 10.11: "Unable to lock ./ibdata1").
//! So we lock the same files, in a way that stands in a server's way and that our own reading of
//! them does not undo ([`pagewarden_core::source::hold`]).
//!
//! `ibdata1` is replaced too. The new one is locked before it gets the name, so that there is no
//! moment without a lock. But a server that is about to start may have the old one open and try
//! for its lock once a second (MySQL does, for 100 seconds): it would get it when we let go, and
//! would write to a file that has no name any more. So the old one is not let go while anybody
//! else has it open.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::Written;
use pagewarden_core::source::hold::{is_open_elsewhere, lock, unlock};
use pagewarden_core::system::MetadataExt as _;

/// What the servers of a directory lock.
const NAMES: [&str; 2] = ["ibdata1", "aria_log_control"];
/// Longer than any server tries.
const PATIENCE: Duration = Duration::from_secs(150);
const NAP: Duration = Duration::from_millis(50);

/// No server starts on a directory, or takes a file, while this lives.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Mutex<Vec<(PathBuf, File)>>,
}

impl Locks {
    /// Takes those of a directory.
    ///
    /// # Errors
    /// A server runs, or another run of Pagewarden; or there is nothing to lock.
    pub(crate) fn of_directory(root: &Path) -> Result<Self, Error> {
        let locks = Self::default();
        for name in NAMES {
            locks.take(&root.join(name), root)?;
        }
        if locks.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Err(Error::refused(
                root,
                "it has neither an ibdata1 nor an aria_log_control, by which servers are kept away",
                "name a whole data directory",
            ));
        }
        Ok(locks)
    }

    /// Takes that of one more file, if it is there.
    ///
    /// # Errors
    /// A server or another run of Pagewarden has it.
    pub(super) fn take(&self, path: &Path, whose: &Path) -> Result<(), Error> {
        let file = match Written::open(path) {
            Ok(written) => written.file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("open", path, error)),
        };
        match lock(&file) {
            Ok(true) => {}
            Ok(false) => return Err(running(whose)),
            Err(error) => return Err(Error::io("lock", path, error)),
        }
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), file));
        Ok(())
    }

    /// True if the name of this file is one that is locked.
    pub(super) fn has(&self, path: &Path) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().any(|(name, _)| name == path)
    }

    /// Locks also what is about to get the name.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn hold(&self, path: &Path, file: &File) -> io::Result<()> {
        let file = file.try_clone()?;
        if !lock(&file)? {
            return Err(io::Error::other("another process has locked it"));
        }
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), file));
        Ok(())
    }

    /// Lets servers in again; a warning if another program still has open what was replaced.
    pub(super) fn release(self) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_nameless = |file: &File| file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        let nameless = held.iter().filter(|(_, file)| is_nameless(file));
        let deadline = Instant::now().checked_add(PATIENCE);
        let mut warning = None;
        for (path, file) in nameless {
            while is_open_elsewhere(file) == Some(true) {
                if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                    warning = Some(format!(
                        "another program still has the former {} open: if it is a server that \
                         waits to start, stop it, for it would write to a file that is gone",
                        path.display()
                    ));
                    break;
                }
                std::thread::sleep(NAP);
            }
        }
        drop(held);
        warning
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        for (_, file) in self.held.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // What cannot be unlocked is when it is closed.
            let _ = unlock(file);
        }
    }
}

/// The refusal.
pub(crate) fn running(path: &Path) -> Error {
    Error::in_use(
        path,
        "a server runs on it, or another run of pagewarden",
        "shut the server down (mariadb-admin or mysqladmin shutdown), and start it again afterwards",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn directory() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in NAMES {
            fs::write(folder.path().join(name), [0; 10]).unwrap();
        }
        folder
    }

    #[test]
    fn second_run_is_refused_until_the_first_lets_go() {
        let folder = directory();
        let locks = Locks::of_directory(folder.path()).unwrap();
        let error = Locks::of_directory(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another run"), "{error}");
        assert!(crate::files::state::is_in_use(folder.path()));
        assert_eq!(locks.release(), None);
        Locks::of_directory(folder.path()).unwrap();
    }

    #[test]
    fn directory_without_anything_to_lock_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Locks::of_directory(folder.path()).is_err());
    }

    #[test]
    fn replaced_file_is_locked_under_its_name_all_the_time() {
        let folder = directory();
        let path = folder.path().join("ibdata1");
        let locks = Locks::of_directory(folder.path()).unwrap();
        let new = folder.path().join("new");
        fs::write(&new, [1; 10]).unwrap();
        let written = Written::open(&new).unwrap();
        assert!(locks.has(&path) && !locks.has(&new));
        locks.hold(&path, &written.file).unwrap();
        drop(written);
        fs::rename(&new, &path).unwrap();
        assert!(Locks::of_directory(folder.path()).is_err());
        assert_eq!(locks.release(), None);
        Locks::of_directory(folder.path()).unwrap();
    }

    #[test]
    fn whoever_waits_for_the_former_file_is_waited_for() {
        let folder = directory();
        let path = folder.path().join("ibdata1");
        let locks = Locks::of_directory(folder.path()).unwrap();
        let waits = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        if is_open_elsewhere(&waits).is_none() {
            eprintln!("SKIPPED: this file system has no leases");
            return;
        }
        let patience = Duration::from_millis(400);
        let waiting = std::thread::spawn(move || {
            std::thread::sleep(patience);
            drop(waits);
        });
        let begin = Instant::now();
        assert_eq!(locks.release(), None);
        assert!(begin.elapsed() >= patience);
        waiting.join().unwrap();
    }
}

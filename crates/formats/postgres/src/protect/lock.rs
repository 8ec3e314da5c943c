//! Keeping servers away while a cluster is changed.
//!
//! A server makes `postmaster.pid` with `O_EXCL` when it starts. If it is there,
//! the first line names a process: while that lives, the server refuses; when it
//! is gone, the server takes the file away and starts. A negative number is that
//! of a process that is no postmaster (a single-user server), which `pg_ctl stop`
//! leaves alone. Source: `CreateLockFile` in
//! `src/backend/utils/init/miscinit.c`, `src/include/utils/pidfile.h`; the same
//! from 9.6 to 18, tried on real servers.
//!
//! ```text
//! line  what                       ours
//!    1  process number             minus our own
//!    2  data directory             the same
//!    3  start time                 the same
//!    4  port                       0
//!    5  folder of the socket       words for a user who looks
//! [  7  shared memory              left out: a server would look for it ]
//! ```
//!
//! Ours is a second name of a file of our own, `pagewarden-protect.lock`, which is
//! made first, given to the cluster's owner, filled and locked. So
//! `postmaster.pid` appears whole and at once, its inode says whether it is ours,
//! and two runs of Pagewarden never take each other's for left over.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, Written};
use pagewarden_core::source::file::read_small;
use pagewarden_core::source::presence::Presence;
use pagewarden_core::system::Errno;
use pagewarden_core::system::fs::FlockOperation;
use pagewarden_core::system::{MetadataExt as _, identity, identity_of_open};

/// What a server takes for another server's.
const SERVERS: &str = "postmaster.pid";
/// Our own name of the same file.
const OURS: &str = "pagewarden-protect.lock";

/// What no server writes there.
const WORDS: &str = "pagewarden protect is changing this cluster";

/// No server starts on the cluster while this lives.
pub(crate) struct ServerLock<'a> {
    disk: &'a dyn Disk,
    /// Keeps the lock on the file.
    file: Written,
    servers: PathBuf,
    ours: PathBuf,
    _presence: Presence,
}

impl<'a> ServerLock<'a> {
    /// Takes it, for the cluster in `root`.
    ///
    /// # Errors
    /// A server runs, or another run of Pagewarden, or a lock file says so.
    pub(crate) fn take(disk: &'a dyn Disk, root: &Path, owner: &Metadata) -> Result<Self, Error> {
        let presence = Presence::before(owner.uid()).map_err(|_| {
            Error::not_permitted(
                root,
                "it belongs to another user, whose server could not be kept from starting",
                "run this as the user who owns the data directory",
            )
        })?;
        let (ours, servers) = (root.join(OURS), root.join(SERVERS));
        let file = locked(disk, &ours, owner)?;
        let text = content(root);
        // Synced before it has the name that servers look for: they refuse to
        // start over an empty one.
        let written = disk
            .write_at(&file, text.as_bytes(), 0)
            .and_then(|()| disk.set_length(&file, text.len() as u64))
            .and_then(|()| disk.sync(&file))
            .map_err(|error| Error::io("write", &ours, error));
        let lock = Self { disk, file, servers, ours, _presence: presence };
        match written.and_then(|()| lock.link(root)) {
            Ok(()) => Ok(lock),
            Err(refusal) => {
                lock.release();
                Err(refusal)
            }
        }
    }

    fn link(&self, root: &Path) -> Result<(), Error> {
        let mut linked = self.disk.link(&self.ours, &self.servers);
        if linked.is_err() && !self.is_held() && is_left_over(&self.servers) {
            linked = self
                .disk
                .remove(&self.servers)
                .and_then(|()| self.disk.link(&self.ours, &self.servers));
        }
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A run of Pagewarden that was killed leaves both names.
                if self.is_held() { Ok(()) } else { Err(whose(root, &self.servers)) }
            }
            linked => linked.map_err(|error| Error::io("create", &self.servers, error)),
        }
    }

    /// True while no server has taken it away.
    pub(crate) fn is_held(&self) -> bool {
        is_same(&self.file, &self.servers)
    }

    /// Lets servers in again. What cannot be taken away is stale and stops no server.
    pub(crate) fn release(self) {
        if self.is_held() {
            let _ = self.disk.remove(&self.servers);
        }
        if is_same(&self.file, &self.ours) {
            let _ = self.disk.remove(&self.ours);
        }
    }
}

/// Our own file, locked.
fn locked(disk: &dyn Disk, path: &Path, owner: &Metadata) -> Result<Written, Error> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let opened = match disk.create(path, owner) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Written::open(path),
            other => other,
        };
        let file = match opened {
            // The run that held it has just let go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|error| Error::io("create", path, error))?,
        };
        match pagewarden_core::system::fs::flock(
            &file.file,
            FlockOperation::NonBlockingLockExclusive,
        ) {
            Ok(()) if is_same(&file, path) => return Ok(file),
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => break,
            Err(error) => return Err(Error::io("lock", path, error.into())),
        }
    }
    Err(Error::in_use(
        path,
        "another run of pagewarden is changing this cluster",
        "wait until it has ended",
    ))
}

/// True for Pagewarden's file that has lost its other name, and that no run holds.
fn is_left_over(path: &Path) -> bool {
    let is_ours = read_small(path, 4096)
        .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).lines().nth(4) == Some(WORDS));
    is_ours
        && Written::open(path).is_ok_and(|file| {
            pagewarden_core::system::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive)
                .is_ok()
        })
}

fn is_same(file: &Written, path: &Path) -> bool {
    let found = fs::symlink_metadata(path).and_then(|found| identity(&found, path));
    match (identity_of_open(&file.file), found) {
        (Ok(ours), Ok(found)) => ours == found,
        _ => false,
    }
}

fn content(root: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    format!("-{}\n{}\n{now}\n0\n{WORDS}\n", std::process::id(), root.display())
}

/// Refuses, for there is a lock file that is not this run's.
fn whose(root: &Path, path: &Path) -> Error {
    match running(root) {
        Some(pid) => refusal_of_running(root, pid),
        None => Error::in_use(
            path,
            "a server's lock file is here, though no such process lives on this machine",
            "if no server uses this data directory from anywhere, remove the file",
        ),
    }
}

fn refusal_of_running(root: &Path, pid: i32) -> Error {
    Error::in_use(
        root,
        format!("a server runs on it (process {pid})"),
        "stop it cleanly first (pg_ctl stop), and start it again afterwards",
    )
}

/// Refuses if a server runs, without taking the lock.
pub(crate) fn check_not_running(root: &Path) -> Result<(), Error> {
    match running(root) {
        // What a killed run of Pagewarden left, though its number may be another process's by now.
        Some(_) if is_left_over(&root.join(SERVERS)) => Ok(()),
        Some(pid) => Err(refusal_of_running(root, pid)),
        None => Ok(()),
    }
}

/// The living process that the lock file names.
fn running(root: &Path) -> Option<i32> {
    let bytes = read_small(&root.join(SERVERS), 4096).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    let pid = pid.checked_abs()?;
    let process = pagewarden_core::system::process::Pid::from_raw(pid)?;
    // Who may not be asked lives.
    let lives = pagewarden_core::system::process::test_kill_process(process) != Err(Errno::SRCH);
    lives.then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::protect::disk::System;

    fn folder() -> (tempfile::TempDir, Metadata) {
        let folder = tempfile::tempdir().unwrap();
        let owner = folder.path().metadata().unwrap();
        (folder, owner)
    }

    #[test]
    fn lock_file_names_this_process_and_goes_with_the_lock() {
        let (folder, owner) = folder();
        let root = folder.path();
        let lock = ServerLock::take(&System, root, &owner).unwrap();
        assert!(lock.is_held());
        let text = fs::read_to_string(root.join(SERVERS)).unwrap();
        assert!(text.starts_with(&format!("-{}\n", std::process::id())), "{text}");
        assert!(text.lines().count() < 7, "{text}");
        assert_eq!(running(root), i32::try_from(std::process::id()).ok());
        lock.release();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    }

    #[test]
    fn second_run_is_refused() {
        let (folder, owner) = folder();
        let lock = ServerLock::take(&System, folder.path(), &owner).unwrap();
        let second = ServerLock::take(&System, folder.path(), &owner).err().unwrap();
        assert!(second.to_string().contains("another run"), "{second}");
        assert!(lock.is_held());
    }

    #[test]
    fn what_a_killed_run_left_is_taken_over() {
        let (folder, owner) = folder();
        let root = folder.path();
        fs::write(root.join(OURS), "-999999999\nlonger than what will stand there\n\n\n\n")
            .unwrap();
        fs::hard_link(root.join(OURS), root.join(SERVERS)).unwrap();
        let lock = ServerLock::take(&System, root, &owner).unwrap();
        let text = fs::read_to_string(root.join(SERVERS)).unwrap();
        assert_eq!(text, content(root));
        lock.release();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    }

    #[test]
    fn what_is_left_of_our_lock_without_its_other_name_is_taken_over() {
        let (folder, owner) = folder();
        let root = folder.path();
        fs::write(root.join(SERVERS), content(root)).unwrap();
        let lock = ServerLock::take(&System, root, &owner).unwrap();
        assert!(lock.is_held());
        // But not while a run holds it.
        fs::remove_file(root.join(OURS)).unwrap();
        assert!(ServerLock::take(&System, root, &owner).is_err());
        assert!(lock.is_held());
    }

    #[test]
    fn foreign_lock_file_is_never_touched() {
        for text in ["999999999\n/data\n", "", "nonsense", &format!("{}\n", std::process::id())] {
            let (folder, owner) = folder();
            let path = folder.path().join(SERVERS);
            fs::write(&path, text).unwrap();
            assert!(ServerLock::take(&System, folder.path(), &owner).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn lock_that_a_server_took_is_not_held_and_not_removed() {
        let (folder, owner) = folder();
        let root = folder.path();
        let lock = ServerLock::take(&System, root, &owner).unwrap();
        fs::remove_file(root.join(SERVERS)).unwrap();
        fs::write(root.join(SERVERS), "1\n").unwrap();
        assert!(!lock.is_held());
        lock.release();
        assert_eq!(fs::read_to_string(root.join(SERVERS)).unwrap(), "1\n");
        assert!(!root.join(OURS).exists());
    }
}

//! A mount from its begin to its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use pagewarden::pack::{Pack, Reader, Root};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::delta::{Delta, Written};
use crate::filesystem::{Accounts, PackFiles, READ_AHEAD_BYTES, Watcher};
use crate::journal::{DurableError, Journal};
use crate::options::Options;
use crate::system::mount_on;

/// What the system calls a file system of Pagewarden, after `fuse.`.
pub(crate) const SUBTYPE: &str = "pagewarden";

/// Why a pack cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// Something that is needed first cannot be had.
    #[error("cannot {action} {}: {error}", path.display())]
    Unusable {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// There is something in the folder, which would be hidden.
    #[error("cannot mount on {}: it is not empty\nhint: name a folder that is empty, or that does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// The changes of an earlier mount cannot be resumed.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// An earlier mount was killed.
    #[error("cannot mount on {}: a mount on it has died\nhint: pagewarden mount --cleanup {}", .0.display(), .0.display())]
    Dead(PathBuf),
    /// No FUSE.
    #[error(
        "cannot mount: there is no /dev/fuse here\nhint: modprobe fuse; in a container, hand the device in (--device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoFuse,
    /// No FUSE for this user.
    #[error(
        "cannot mount: this user may not open /dev/fuse\nhint: run as root, or let users open it (chmod a+rw /dev/fuse)"
    )]
    FuseClosed,
    /// Not for us.
    #[error("cannot mount on {}: {error}\nhint: run as root, or install fuse3, whose fusermount3 lets users mount", folder.display())]
    Refused {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// How far an unmount has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// All of it is gone, or will be in a moment.
    Gone,
    /// Detached: nothing new can be opened; open files keep working until they are closed.
    InUse,
    /// All is as it was, since programs have files open.
    Refused,
}

/// A pack that is mounted.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    accounts: Arc<Accounts>,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<()>>,
    ended: Receiver<io::Result<()>>,
}

impl Mounted {
    /// Mounts a pack on a folder, which is made if it does not exist. `source` is what
    /// the system is to show as the device. Any thread may call `watcher` with what
    /// cannot be read.
    ///
    /// # Errors
    /// The folder cannot be used, or the system does not let us.
    pub fn begin(
        pack: Arc<Pack>,
        source: &str,
        folder: &Path,
        options: &Options,
        watcher: Watcher,
    ) -> Result<Self, MountError> {
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoFuse);
        }
        if access("/dev/fuse", Access::READ_OK | Access::WRITE_OK) == Err(Errno::ACCESS) {
            return Err(MountError::FuseClosed);
        }
        let folder = prepare(folder)?;
        let unusable = |action, path: &Path| {
            let path = path.to_owned();
            move |error| MountError::Unusable { action, path, error }
        };
        let scratch = options.scratch.as_deref();
        let (delta, records) = match &options.durable {
            Some(folder) => {
                let opened = Journal::open(folder, pack.root())?;
                let delta = Delta::durable(opened.pages, opened.journal, options.delta_bytes_max);
                (delta, opened.records)
            }
            None => {
                let delta = Delta::new(scratch, options.delta_bytes_max)
                    .map_err(unusable("write to", scratch.unwrap_or(Path::new("memory"))))?;
                (delta, Vec::new())
            }
        };
        let reader =
            Reader::new(pack, options.reader).map_err(unusable("read", Path::new(source)))?;
        let accounts = Arc::new(Accounts { delta, unread_blocks: AtomicU64::new(0) });
        let files = PackFiles::new(reader, options, Arc::clone(&accounts), records, watcher);
        let refused = |error| MountError::Refused { folder: folder.clone(), error };
        let mut session =
            Session::new(files, &folder, &configuration(source, options)).map_err(refused)?;
        let unmounter = session.unmount_callable();
        let (sender, ended) = channel();
        let delta_of = Arc::clone(&accounts);
        let thread = thread::Builder::new().name("mount".to_owned()).spawn(move || {
            let ended = session.run().or_else(gone_meanwhile);
            let lasting = delta_of.delta.finish().map_err(io::Error::from);
            // If we are being dropped, no caller takes this any longer.
            let _ = sender.send(ended.and(lasting));
        });
        let thread = Some(thread.map_err(unusable("serve", &folder))?);
        read_ahead(&folder);
        Ok(Self { folder, accounts, unmounter, thread, ended })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for the end, whatever brings it about. `None` if it has not come in time.
    pub fn wait(&self, limit: Duration) -> Option<io::Result<()>> {
        match self.ended.recv_timeout(limit) {
            Ok(ended) => Some(ended),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Ok(())),
        }
    }

    /// Takes it from the folder.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unmount(&mut self) -> io::Result<Unmounted> {
        let refused = match self.unmounter.unmount() {
            Ok(()) => return Ok(Unmounted::Gone),
            Err(error) => error,
        };
        if Errno::from_io_error(&refused) != Some(Errno::BUSY) {
            return Err(refused);
        }
        unmount(&self.folder, UnmountFlags::DETACH)?;
        Ok(Unmounted::InUse)
    }

    /// Takes it from the folder only if no process has a file of it open, for deltas that
    /// last: a server whose files went from under it would lose what it wrote next.
    ///
    /// # Errors
    /// The system refuses for another reason.
    pub fn unmount_unused(&mut self) -> io::Result<Unmounted> {
        match unmount(&self.folder, UnmountFlags::empty()) {
            Ok(()) => Ok(Unmounted::Gone),
            Err(Errno::BUSY) => Ok(Unmounted::Refused),
            // Who is not root may take away what is his through this program alone.
            Err(Errno::PERM) => {
                let mut command = Command::new("fusermount3");
                let done = command.arg("-u").arg(&self.folder).stderr(Stdio::null()).status()?;
                Ok(if done.success() { Unmounted::Gone } else { Unmounted::Refused })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// True if something was changed in a delta that lasts, now or at an earlier mount.
    #[must_use]
    pub fn has_lasting_changes(&self) -> bool {
        self.accounts.delta.has_lasting_changes()
    }

    /// Empties the folder of a delta that lasts, and makes it that of a pack that has
    /// all of it inside. To be called when the mount has ended, and still holds the
    /// folder against others. Stopped at any moment, the folder is as it was, or empty
    /// and the new pack's.
    ///
    /// # Errors
    /// The system refuses.
    pub fn restart_delta(&self, root: Root) -> io::Result<()> {
        self.accounts.delta.restart(root)
    }

    /// How much was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.accounts.delta.written()
    }

    /// Blocks that a program wanted and that cannot be read.
    #[must_use]
    pub fn unread_blocks(&self) -> u64 {
        self.accounts.unread_blocks.load(Ordering::Relaxed)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Where a process is in it, that stays without us: the caller ends the mount.
        let _ = self.unmount();
        if let Some(Ok(())) = self.wait(Duration::from_secs(1))
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Makes sure that a folder is there and empty, and says what it is called.
fn prepare(folder: &Path) -> Result<PathBuf, MountError> {
    let unusable =
        |action| move |error| MountError::Unusable { action, path: folder.to_owned(), error };
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(unusable("make")(error));
        }
        _ => {}
    }
    let mut listing = match fs::read_dir(folder) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
            return Err(MountError::Dead(folder.to_owned()));
        }
        other => other.map_err(unusable("mount on"))?,
    };
    if listing.next().is_some() {
        return Err(MountError::NotEmpty(folder.to_owned()));
    }
    fs::canonicalize(folder).map_err(unusable("mount on"))
}

fn configuration(source: &str, options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::CUSTOM(format!("subtype={SUBTYPE}")),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if options.is_read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

/// The system ends a mount under a thread that has just been given a request, such as the last
/// file's being closed, with an error of its own. The mount has ended all the same, and who
/// has asked is no longer there.
fn gone_meanwhile(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::ConnectionAborted { Ok(()) } else { Err(error) }
}

/// Has the system read ahead further than it does by default. It knows no better way
/// than a file that only root may write; without it, requests are shorter.
///
/// Nothing may be asked of the mount itself by who serves it: if this process is killed while it
/// waits for its own answer, the system waits for that answer for good.
fn read_ahead(folder: &Path) {
    let Ok(Some(mount)) = mount_on(folder) else { return };
    let setting = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    let _ = fs::write(setting, (READ_AHEAD_BYTES / 1024).to_string());
}

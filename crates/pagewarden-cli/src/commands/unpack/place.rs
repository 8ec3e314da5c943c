//! Where files will be, and the folder that becomes it.
//!
//! ```text
//! PARENT/.pagewarden-NAME.part/   ours alone
//!     state                       what is being unpacked; locked while it is
//!     files/                      becomes PARENT/NAME
//! ```
//!
//! A run resumes what an interrupted one has left there, if that was of the same
//! content; else it removes it. One that nothing was written to is not left behind.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pagewarden::system::fs::{FlockOperation, OFlags, flock};
use pagewarden::system::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, open_folder, rename_folder,
    set_mode_of, sync_folder, with_mode,
};

use anyhow::{Context as _, Result, bail, ensure};

const STATE: &str = "state";
const FILES: &str = "files";
/// What every state begins with.
const BEGIN: &str = "pagewarden unpack 1\n";
const STATE_BYTES_MAX: u64 = 1 << 20;
/// A run that was killed has not always let go of everything when the next begins.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Place {
    /// What it will be called.
    folder: PathBuf,
    /// The mode of an empty folder that has the name, and makes room.
    mode: Option<u32>,
    parent: PathBuf,
    staging: PathBuf,
    /// Locked until it is closed.
    state: Option<File>,
}

impl Place {
    /// Prepares a place for this content, which `state` stands for.
    pub(super) fn prepare(folder: &Path, state: &str) -> Result<Self> {
        let shown = folder.display();
        match fs::read_dir(folder) {
            Ok(mut entries) => ensure!(
                entries.next().is_none(),
                "cannot write {shown}: it is not empty\nhint: name a folder that does not exist"
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(format!("cannot write {shown}")),
        }
        // One that exists by its real name: `.` has no folder that it lies in.
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let parent = match real.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = fs::canonicalize(parent).with_context(|| {
            format!("cannot write {shown}: its parent directory is not accessible")
        })?;
        let Some(name) = real.file_name() else {
            bail!("cannot write {shown}: it names no folder")
        };
        let staging = parent.join(format!(".pagewarden-{}.part", name.to_string_lossy()));
        let locked = lock(&staging, state).with_context(|| format!("cannot write {shown}"))?;
        let mode = fs::metadata(folder).ok().map(|metadata| metadata.mode() & 0o7777);
        Ok(Self { folder: parent.join(name), mode, parent, staging, state: Some(locked) })
    }

    /// The folder that lasts, into which the files are moved.
    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Where the files are written.
    pub(super) fn files(&self) -> PathBuf {
        self.staging.join(FILES)
    }

    /// Makes the folder as open as the one that has its name, or as new ones are: for
    /// files that had no folder of their own.
    pub(super) fn open(&self) -> Result<()> {
        let open = || {
            let mode = match self.mode {
                Some(mode) => mode,
                // Only the system tells the user's mask without a moment of another one.
                None => {
                    let mut builder = tempfile::Builder::new();
                    let sample = with_mode(&mut builder, 0o777).tempdir_in(&self.staging)?;
                    fs::metadata(sample.path())?.mode() & 0o777
                }
            };
            set_mode_of(&self.files(), mode)
        };
        open().with_context(|| format!("cannot write {}", self.folder.display()))
    }

    /// Gives the files their folder. An empty one that has its name makes room.
    pub(super) fn keep(mut self) -> Result<()> {
        let keep = || {
            sync_folder(&open_folder(&self.files())?)?;
            rename_folder(&self.files(), &self.folder)?;
            // The name lasts when the folder does.
            sync_folder(&open_folder(&self.parent)?)
        };
        keep().with_context(|| format!("cannot write {}", self.folder.display()))?;
        // Closed first: some systems remove nothing that is open.
        self.state = None;
        // Of no use any more, and harmless if it stays.
        let _ = fs::remove_dir_all(&self.staging);
        Ok(())
    }

    /// What a path below the temporary folder will be called.
    pub(super) fn final_name(&self, path: &Path) -> Option<PathBuf> {
        Some(self.folder.join(path.strip_prefix(self.files()).ok()?))
    }

    /// Removes all that was written.
    pub(super) fn discard(mut self) {
        self.state = None;
        open_to_removal(&self.files());
        let _ = fs::remove_dir_all(&self.staging);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It fails where something is inside: a later run may resume that.
        if fs::remove_dir(self.files()).is_ok() {
            self.state = None;
            let _ = fs::remove_dir_all(&self.staging);
        }
    }
}

/// Makes the folder, or takes that of an interrupted run.
fn lock(staging: &Path, wanted: &str) -> Result<File> {
    let shown = staging.display();
    match DirBuilder::new().mode(0o700).create(staging) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    // Others may make folders here too, and put into them what they like.
    let metadata = fs::symlink_metadata(staging)?;
    let is_ours = metadata.is_dir()
        && metadata.uid() == pagewarden::system::process::geteuid().as_raw()
        && metadata.mode() & 0o077 == 0;
    ensure!(is_ours, "{shown} is not ours\nhint: see what it is, and remove it");
    let mut state = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(staging.join(STATE))?;
    let begin = Instant::now();
    while flock(&state, FlockOperation::NonBlockingLockExclusive).is_err() {
        if begin.elapsed() > PATIENCE {
            bail!("another run unpacks to the same place\nhint: wait for its end");
        }
        std::thread::sleep(NAP);
    }
    let mut found = String::new();
    let read = (&mut state).take(STATE_BYTES_MAX).read_to_string(&mut found);
    let files = staging.join(FILES);
    if read.is_err() || found != format!("{BEGIN}{wanted}") {
        open_to_removal(&files);
        match fs::remove_dir_all(&files) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        state.set_len(0)?;
        state.rewind()?;
        state.write_all(BEGIN.as_bytes())?;
        state.write_all(wanted.as_bytes())?;
        state.sync_all()?;
    }
    match DirBuilder::new().mode(0o700).create(&files) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(state),
    }
}

/// What was finished may be closed to its owner, as read-only folders are.
fn open_to_removal(folder: &Path) {
    let Ok(metadata) = fs::symlink_metadata(folder) else { return };
    if !metadata.is_dir() {
        return;
    }
    let _ = set_mode_of(folder, 0o700);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_to_removal(&entry.path());
        }
    }
}

/// Bytes that files below a folder hold on the device.
pub(super) fn held_bytes(folder: &Path) -> u64 {
    const STATUS_BLOCK_BYTES: u64 = 512;
    let mut bytes = 0_u64;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        bytes = bytes.saturating_add(if metadata.is_dir() {
            held_bytes(&entry.path())
        } else {
            metadata.blocks().saturating_mul(STATUS_BLOCK_BYTES)
        });
    }
    bytes
}

//! The folder of a file that is written: held open, so that root's file is made and named in the folder
//! that was looked at, wherever another user makes its path lead meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::trusted_path::hold_for_new_files;

/// See the module.
#[derive(Debug)]
pub struct HeldFolder {
    /// Temporary files are removed by a path through it: they are dropped before it.
    file: Arc<File>,
    #[cfg(not(target_os = "linux"))]
    path: PathBuf,
}

impl HeldFolder {
    /// Of the file that will be at `path`.
    ///
    /// # Errors
    /// There is no such folder; or we are root, and another user can make the path lead elsewhere. The
    /// words end a sentence that names the file, and have a hint where there is something to do.
    pub fn of(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let file = hold_for_new_files(folder).map_err(|error| {
            let words = match error.kind() {
                io::ErrorKind::PermissionDenied => format!(
                    "{error}\nhint: name a file in a folder that you may write to; root: in one that \
                     only root, or only its owner, can replace"
                ),
                _ => format!("its folder cannot be opened: {error}"),
            };
            io::Error::new(error.kind(), words)
        })?;
        let held = Self {
            file: Arc::new(file),
            #[cfg(not(target_os = "linux"))]
            path: folder.to_owned(),
        };
        // As in a bare chroot.
        if !held.path().exists() {
            return Err(io::Error::other(
                "the open folder cannot be reached through /proc\n\
                 hint: mount it: mount -t proc proc /proc",
            ));
        }
        Ok(held)
    }

    /// Keeps it open until the process ends, for temporary files that may be dropped after this. There
    /// must be few.
    #[must_use]
    pub fn kept_open(self) -> Self {
        std::mem::forget(Arc::clone(&self.file));
        self
    }

    /// A path that leads into this very folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        #[cfg(target_os = "linux")]
        {
            use crate::system::AsRawFd as _;
            PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
        }
        #[cfg(not(target_os = "linux"))]
        {
            self.path.clone()
        }
    }

    /// Where a file of this name lies in it.
    #[must_use]
    pub fn place_of(&self, path: &Path) -> PathBuf {
        self.path().join(path.file_name().unwrap_or_default())
    }

    /// Makes the names in it last.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        crate::system::sync_folder(&self.file)
    }
}

//! The folder of a file that is written: held open, so that root's file is made and named in the folder
//! that was looked at, wherever another user makes its path lead meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use pagewarden::source::trusted_path::hold_for_new_files;

/// See the module.
#[derive(Debug)]
pub struct HeldFolder {
    /// Open until the process ends: temporary files are removed by a path through it, whenever they
    /// are dropped, and there are few.
    file: &'static File,
    #[cfg(not(target_os = "linux"))]
    path: PathBuf,
}

impl HeldFolder {
    /// Of the file that will be at `path`.
    ///
    /// # Errors
    /// There is no such folder; or we are root, and another user can make the path lead elsewhere.
    pub fn of(path: &Path) -> Result<Self> {
        let shown = path.display();
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let file = hold_for_new_files(folder).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => anyhow!(
                "cannot write {shown}: {error}\nhint: name a file in a folder that you may write \
                 to; root: in one that only root, or only its owner, can replace"
            ),
            _ => anyhow!("cannot write {shown}: its folder cannot be opened: {error}"),
        })?;
        let held = Self {
            file: Box::leak(Box::new(file)),
            #[cfg(not(target_os = "linux"))]
            path: folder.to_owned(),
        };
        // As in a bare chroot.
        if !held.path().exists() {
            return Err(anyhow!(
                "cannot write {shown}: the open folder cannot be reached through /proc\n\
                 hint: mount it: mount -t proc proc /proc"
            ));
        }
        Ok(held)
    }

    /// A path that leads into this very folder.
    pub fn path(&self) -> PathBuf {
        #[cfg(target_os = "linux")]
        {
            use pagewarden::system::AsRawFd as _;
            PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
        }
        #[cfg(not(target_os = "linux"))]
        {
            self.path.clone()
        }
    }

    /// Where a file of this name lies in it.
    pub fn place_of(&self, path: &Path) -> PathBuf {
        self.path().join(path.file_name().unwrap_or_default())
    }

    /// Makes the names in it last.
    pub fn sync(&self) -> io::Result<()> {
        pagewarden::system::sync_folder(self.file)
    }
}

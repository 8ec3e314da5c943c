//! The folder of a delta, held open from the first look on: what is made, opened and renamed in
//! it is so by the descriptor, and never through a link.
//!
//! It holds pages of a database, so it and its files are open to their owner alone. A folder of
//! another user, or one that others can write to, is refused before anything in it is touched:
//! what lies in it may be a link to any file of the user who mounts. One that others can only
//! read, as earlier versions made them, is closed to them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pagewarden::source::trusted_path::{hold, make_in};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::DurableError;

/// The log's name before it is whole.
const LOG_BEFORE: &str = "log.new";
const LOG: &str = "log";
const PAGES: &str = "pages";

#[derive(Debug)]
pub(super) struct Folder {
    held: File,
}

impl Folder {
    /// Opens the folder, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, DurableError> {
        let io_error = |error| DurableError::Io { path: path.to_owned(), error };
        // With a slash behind its name a link would be followed.
        let path: PathBuf = path.components().collect();
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let held = match path.file_name() {
            Some(name) => {
                let holder = hold(parent.unwrap_or(Path::new("."))).map_err(io_error)?;
                make_in(&holder, Path::new(name))
            }
            None => File::open(&path),
        };
        let is_link = || fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        let held = match held {
            Err(_) if is_link() => return Err(DurableError::Link(path)),
            held => held.map_err(io_error)?,
        };
        let found = held.metadata().map_err(io_error)?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(DurableError::Foreign { path, owner: found.uid() });
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(DurableError::Open { path, mode });
        }
        Ok(Self { held })
    }

    /// True if it has a log, and so all of a delta.
    pub(super) fn has_log(&self) -> io::Result<bool> {
        match rustix::fs::statat(&self.held, LOG, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// True if it holds nothing but what a begin has left that ended before its end.
    pub(super) fn is_free(&self) -> io::Result<bool> {
        for entry in Dir::read_from(&self.held)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if ![".", "..", PAGES, LOG_BEFORE].iter().any(|known| name == *known) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes it to other users. To be called when what is in it is known to be a delta.
    pub(super) fn close_to_others(&self) -> io::Result<()> {
        if self.held.metadata()?.mode() & 0o077 != 0 {
            fchmod(&self.held, Mode::RWXU)?;
        }
        Ok(())
    }

    pub(super) fn log(&self) -> io::Result<File> {
        self.file(LOG)
    }

    pub(super) fn pages(&self) -> io::Result<File> {
        self.file(PAGES)
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = openat(&self.held, name, flags, Mode::empty())?.into();
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other(format!("{name} in it is no file")));
        }
        if found.mode() & 0o077 != 0 {
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        }
        Ok(file)
    }

    /// Makes the file of the pages anew.
    pub(super) fn make_pages(&self) -> io::Result<File> {
        self.make(PAGES)
    }

    /// Makes a log that has not its name yet.
    pub(super) fn make_log(&self) -> io::Result<File> {
        self.make(LOG_BEFORE)
    }

    fn make(&self, name: &str) -> io::Result<File> {
        match unlinkat(&self.held, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.held, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Gives the log its name, in the place of an earlier one.
    pub(super) fn name_log(&self) -> io::Result<()> {
        renameat(&self.held, LOG_BEFORE, &self.held, LOG)?;
        self.held.sync_all()
    }
}

//! Copies that pages may come from, as they are kept: when the file that was copied was last written,
//! and those that are compressed or in a pack of one file.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::Error;
use crate::source::decode::{Compression, decode};
use crate::source::file::{open_regular, read_fully};
use crate::system::MetadataExt as _;

/// When a file was last written: seconds and nanoseconds since 1970.
pub type Moment = (i64, i64);

/// Packs, as they are read where there is a reader of packs.
#[derive(Debug, Clone, Copy)]
pub struct Packs {
    /// True if a file is a pack.
    pub is_pack: fn(&Path) -> bool,
    /// Writes the one file of a pack to a path; the time at which that file was last written, where it
    /// is kept.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or holds more than one file; there is no room.
    pub unpack: fn(&Path, &Path) -> Result<Option<Moment>, Error>,
    /// Writes files of a pack to a folder.
    pub take_out: TakeOut,
}

/// Writes the files of a pack that are wanted, by their names in it, below a folder. It fails if the
/// pack cannot be read or is damaged, or if there is no room.
pub type TakeOut = fn(&Path, &dyn Fn(&str) -> bool, &Path) -> Result<(), Error>;

impl Packs {
    /// Where packs cannot be read.
    pub const NONE: Self =
        Self { is_pack: |_| false, unpack: |_, _| Ok(None), take_out: |_, _, _| Ok(()) };
}

/// The time at which the original was written, kept by the copy. Two writes may have one time
/// where they follow within milliseconds, and times of whole seconds come from archives that keep no
/// more: both show nothing.
pub fn moment_of_copy(metadata: &Metadata) -> Option<Moment> {
    let is_fine = metadata.mtime_nsec() != 0;
    let is_later = metadata.ctime() > metadata.mtime().saturating_add(1);
    (is_fine && is_later).then(|| (metadata.mtime(), metadata.mtime_nsec()))
}

/// A copy that was compressed or in a pack, in a folder of our own.
#[derive(Debug)]
pub struct Unpacked {
    folder: TempDir,
    /// When the file was last written before it was compressed or packed, where that is kept.
    pub written: Option<Moment>,
}

const NAME: &str = "copy.db";

impl Unpacked {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Unpacks a copy; `None` if it is neither compressed nor a pack.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or holds more than one file; there is no room.
    pub fn of(path: &Path, metadata: &Metadata, packs: Packs) -> Result<Option<Self>, Error> {
        let failed =
            |error| Error::io("unpack into a temporary folder (TMPDIR says where)", path, error);
        let new = || tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed);
        if (packs.is_pack)(path) {
            let folder = new()?;
            let written = (packs.unpack)(path, &folder.path().join(NAME))?;
            return Ok(Some(Self { folder, written }));
        }
        let file = open_regular(path).map_err(failed)?;
        let mut head = [0; 16];
        let count = read_fully(&file, &mut head, 0).map_err(failed)?;
        if Compression::of(head.get(..count).unwrap_or_default()) == Compression::None {
            return Ok(None);
        }
        let folder = new()?;
        let mut target = File::create(folder.path().join(NAME)).map_err(failed)?;
        let mut decoded = decode(Box::new(file)).map_err(failed)?;
        io::copy(&mut decoded.reader.by_ref(), &mut target).map_err(failed)?;
        // gzip and zstd give the file that they make the time of the one that they read.
        Ok(Some(Self { folder, written: moment_of_copy(metadata) }))
    }
}

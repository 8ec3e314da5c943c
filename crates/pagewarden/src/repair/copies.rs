//! Copies that pages may come from, as they are kept: what a check says of them, when the file that was
//! copied was last written, and those that are compressed or in a pack of one file.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::check::Check;
use crate::error::Error;
use crate::pack::{Search, What, is_pack, open_chain};
use crate::source::decode::{Compression, decode};
use crate::source::file::{open_regular, read_fully};
use crate::verdict::Finding;

const BLOCK_BYTES: usize = 1 << 20;

/// When a file was last written: seconds and nanoseconds since 1970.
pub(crate) type Moment = (i64, i64);

/// All that a check finds in a copy.
///
/// # Errors
/// It cannot be checked.
pub(crate) fn findings_of(path: &Path) -> Result<Vec<Finding>, Error> {
    Ok(Check::new(path).run()?.findings)
}

/// The time at which the original was written, kept by the copy. Two writes may have one time
/// where they follow within milliseconds, and times of whole seconds come from archives that keep no
/// more: both show nothing.
pub(crate) fn moment_of_copy(metadata: &Metadata) -> Option<Moment> {
    let is_fine = metadata.mtime_nsec() != 0;
    let is_later = metadata.ctime() > metadata.mtime().saturating_add(1);
    (is_fine && is_later).then(|| (metadata.mtime(), metadata.mtime_nsec()))
}

/// A copy that was compressed or in a pack, in a folder of our own.
#[derive(Debug)]
pub(crate) struct Unpacked {
    folder: TempDir,
    /// When the file was last written before it was compressed or packed, where that is kept.
    pub(crate) written: Option<Moment>,
}

const NAME: &str = "copy.db";

impl Unpacked {
    /// The file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Unpacks a copy; `None` if it is neither compressed nor a pack.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or holds more than one file; there is no room.
    pub(crate) fn of(path: &Path, metadata: &Metadata) -> Result<Option<Self>, Error> {
        let failed =
            |error| Error::io("unpack into a temporary folder (TMPDIR says where)", path, error);
        let new = || tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(failed);
        if is_pack(path) {
            let folder = new()?;
            let written = unpack(path, &folder.path().join(NAME))?;
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

/// Writes the one database of a pack to `target`; when it was last written before it was packed.
fn unpack(path: &Path, target: &Path) -> Result<Option<Moment>, Error> {
    let failed =
        |error| Error::io("unpack into a temporary folder (TMPDIR says where)", path, error);
    let pack = open_chain(path, &[], Search::Beside)?;
    let is_file = |what: &What| matches!(what, What::File { .. });
    let mut files = pack.entries().iter().enumerate().filter(|(_, entry)| is_file(&entry.what));
    let (Some((number, entry)), None) = (files.next(), files.next()) else {
        let reason = "a pack of more than one file";
        return Err(Error::refused(path, reason, "unpack it, and name the copy in it"));
    };
    let file = File::create(target).map_err(failed)?;
    let mut contents = pack.contents();
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = 0_u64;
    loop {
        let count = contents
            .read_at(number, offset, &mut block)
            .map_err(|error| Error::damaged(path, error.to_string(), "name another copy"))?;
        if count == 0 {
            break;
        }
        let bytes = block.get(..count).unwrap_or_default();
        file.write_all_at(bytes, offset).map_err(failed)?;
        offset = offset.saturating_add(count as u64);
    }
    let attributes = &entry.attributes;
    let packed = std::fs::metadata(path).map_err(failed)?.mtime();
    let is_later = packed > attributes.modified_seconds.saturating_add(1);
    let written = (attributes.modified_seconds, i64::from(attributes.modified_nanoseconds));
    Ok((written.1 != 0 && is_later).then_some(written))
}

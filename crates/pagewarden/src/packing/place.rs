//! Where a pack will be: a file that gets its name, or an object that is seen, once all of it is there.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{Failure, Result, STANDARD_INPUT};
use crate::error::{Error, ErrorKind};
use crate::pack::{Content, Settings, likely_bytes};
use crate::source::held_folder::HeldFolder;
use crate::source::store::{StorePath, Stored, Stores};
use crate::source::write_back::InOrder;
use crate::words::bytes;

/// A pack may be longer than what is in it by this share and these bytes.
const OVERHEAD_SHARE: u64 = 64;
const OVERHEAD_BYTES: u64 = 64 << 20;

/// See the module.
pub(super) struct Place<'a> {
    pub(super) path: PathBuf,
    home: Home,
    stores: &'a dyn Stores,
}

enum Home {
    /// The file is removed by a path through the open folder, and so dropped before it.
    Here {
        file: NamedTempFile,
        held: HeldFolder,
        folder: PathBuf,
    },
    Stored,
}

/// What a pack is written to, from its beginning to its end.
pub(super) enum Out {
    Here(BufWriter<InOrder>),
    Stored(Box<dyn Stored>),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Here(file) => file.write(bytes),
            Self::Stored(object) => object.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Here(file) => file.flush(),
            Self::Stored(object) => object.flush(),
        }
    }
}

impl<'a> Place<'a> {
    /// Makes sure that it can be written, before hours are spent on it.
    pub(super) fn prepare_in<'b>(
        stores: &'a dyn Stores,
        path: &Path,
        sources: impl IntoIterator<Item = &'b Path>,
    ) -> Result<Self> {
        let home = match stores.create(path, None) {
            // What it would be written to is not begun: that there is none was asked.
            Some(object) => {
                object.map(drop)?;
                Home::Stored
            }
            None => Home::prepare(path, sources)?,
        };
        Ok(Self { path: path.to_owned(), home, stores })
    }

    /// Refuses what will hardly fit, by a sample of it.
    pub(super) fn has_room(&self, content: &Content, settings: &Settings) -> Result<()> {
        /// The sample may be a poor one.
        const SHARE: f64 = 0.8;
        let Home::Here { folder, .. } = &self.home else { return Ok(()) };
        let Ok(status) = crate::system::fs::statvfs(folder) else { return Ok(()) };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        // Where all of it fits as it is, nothing is to be found out.
        if free > content.bytes() {
            return Ok(());
        }
        let needed = likely_bytes(content, settings)
            .map_err(Failure::io("estimate the size of", &self.path))?;
        if (free as f64) < needed as f64 * SHARE {
            let text = format!(
                "cannot write {}: it will have about {}, and {} are free in {}\n\
                 hint: make room, or name a file on another device",
                self.path.display(),
                bytes(needed),
                bytes(free),
                folder.display()
            );
            return Err(Failure::new(ErrorKind::NoSpace, &self.path, text));
        }
        Ok(())
    }

    /// A pack that is read for this one.
    pub(super) fn store(&self, path: &Path) -> std::result::Result<StorePath, Error> {
        self.stores.at(path)
    }

    /// What it is written to. `content` are the bytes that are packed, where they are known.
    pub(super) fn out(&self, content: Option<u64>) -> Result<Out> {
        let cannot = Failure::io("write", &self.path);
        if let Home::Here { file, .. } = &self.home {
            let file =
                BufWriter::with_capacity(1 << 20, InOrder::new(file.reopen().map_err(cannot)?));
            return Ok(Out::Here(file));
        }
        let longest = |bytes: u64| {
            bytes.saturating_add(bytes / OVERHEAD_SHARE).saturating_add(OVERHEAD_BYTES)
        };
        match self.stores.create(&self.path, content.map(longest)) {
            Some(object) => Ok(Out::Stored(object?)),
            None => Err(cannot(io::Error::other("it is in no store"))),
        }
    }

    /// Gives it its name, once all of it is on the device, or lets it be seen.
    pub(super) fn keep(self, out: Out) -> Result<()> {
        let Self { path, home, .. } = self;
        let keep = || match (home, out) {
            (Home::Here { held, file, .. }, out) => {
                drop(out);
                file.as_file().sync_all()?;
                file.persist_noclobber(held.place_of(&path))?;
                // The name lasts when the folder does.
                held.sync()
            }
            (Home::Stored, Out::Stored(object)) => object.finish(),
            (Home::Stored, Out::Here(_)) => Err(io::Error::other("it was written elsewhere")),
        };
        keep().map_err(Failure::io("write", &path))
    }
}

impl Home {
    /// A file of this machine.
    fn prepare<'b>(path: &Path, sources: impl IntoIterator<Item = &'b Path>) -> Result<Self> {
        let refused = |why: &str| {
            Err(Failure::refused(path, format!("cannot write {}: {why}", path.display())))
        };
        if path == Path::new(STANDARD_INPUT) {
            let text = "cannot write a pack to standard output\nhint: name a file, and copy that";
            return Err(Failure::refused(path, text));
        }
        if fs::symlink_metadata(path).is_ok() {
            return refused("it exists\nhint: name another file, or remove this one");
        }
        if path.file_name().is_none() {
            return refused("it names no file");
        }
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let real = fs::canonicalize(folder).map_err(|source| {
            let shown = path.display();
            let text = format!("cannot write {shown}: its parent directory is not accessible");
            Failure::Io { path: path.to_owned(), text, source }
        })?;
        for source in sources {
            if fs::canonicalize(source).is_ok_and(|source| real.starts_with(source)) {
                return refused(&format!(
                    "it lies inside {}, which is only read\nhint: name a file somewhere else",
                    source.display()
                ));
            }
        }
        let held = HeldFolder::of(path).map_err(Failure::io("write", path))?;
        let file = tempfile::Builder::new()
            .prefix(".pagewarden-")
            .suffix(".tmp")
            .tempfile_in(held.path())
            // Its own words name the temporary file.
            .map_err(|error| io::Error::from(error.kind()))
            .map_err(Failure::io("write", path))?;
        Ok(Self::Here { folder: real, held, file })
    }
}

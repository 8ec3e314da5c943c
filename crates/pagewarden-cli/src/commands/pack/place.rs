//! Where a pack will be: a file that gets its name, or an object that is seen, once all of it is there.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use pagewarden::Error;
use pagewarden::pack::{Content, Settings, likely_bytes};
use pagewarden::source::store::StorePath;
use pagewarden::source::write_back::InOrder;
use pagewarden::words::bytes;
use tempfile::NamedTempFile;

use super::STANDARD_INPUT;
use crate::commands::storage::{Storage, Stored};
use crate::held_folder::HeldFolder;

/// A pack may be longer than what is in it by this share and these bytes.
const OVERHEAD_SHARE: u64 = 64;
const OVERHEAD_BYTES: u64 = 64 << 20;

/// See the module.
pub(super) struct Place<'a> {
    pub(super) path: PathBuf,
    home: Home,
    storage: Option<&'a Storage>,
}

enum Home {
    Here { folder: PathBuf, held: HeldFolder, file: NamedTempFile },
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
    /// The same as [`Place::prepare`], also for an object of a store.
    pub(super) fn prepare_in<'b>(
        storage: &'a Storage,
        path: &Path,
        sources: impl IntoIterator<Item = &'b Path>,
    ) -> Result<Self> {
        let mut place = match storage.create(path, None) {
            // What it would be written to is not begun: that there is none was asked.
            Some(object) => {
                object.map(drop)?;
                Self { path: path.to_owned(), home: Home::Stored, storage: None }
            }
            None => Self::prepare(path, sources)?,
        };
        place.storage = Some(storage);
        Ok(place)
    }

    /// Makes sure that it can be written, before hours are spent on it.
    pub(super) fn prepare<'b>(
        path: &Path,
        sources: impl IntoIterator<Item = &'b Path>,
    ) -> Result<Self> {
        let shown = path.display();
        ensure!(
            path != Path::new(STANDARD_INPUT),
            "cannot write a pack to standard output\nhint: name a file, and copy that"
        );
        ensure!(
            fs::symlink_metadata(path).is_err(),
            "cannot write {shown}: it exists\nhint: name another file, or remove this one"
        );
        ensure!(path.file_name().is_some(), "cannot write {shown}: it names no file");
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let real = fs::canonicalize(folder).with_context(|| {
            format!("cannot write {shown}: its parent directory is not accessible")
        })?;
        for source in sources {
            ensure!(
                !fs::canonicalize(source).is_ok_and(|source| real.starts_with(source)),
                "cannot write {shown}: it lies inside {}, which is only read\n\
                 hint: name a file somewhere else",
                source.display()
            );
        }
        let held = HeldFolder::of(path)?;
        let file = tempfile::Builder::new()
            .prefix(".pagewarden-")
            .suffix(".tmp")
            .tempfile_in(held.path())
            // Its own words name the temporary file.
            .map_err(|error| io::Error::from(error.kind()))
            .with_context(|| format!("cannot write {shown}"))?;
        let home = Home::Here { folder: real, held, file };
        Ok(Self { path: path.to_owned(), home, storage: None })
    }

    /// Refuses what will hardly fit, by a sample of it.
    pub(super) fn has_room(&self, content: &Content, settings: &Settings) -> Result<()> {
        /// The sample may be a poor one.
        const SHARE: f64 = 0.8;
        let Home::Here { folder, .. } = &self.home else { return Ok(()) };
        let Ok(status) = pagewarden::system::fs::statvfs(folder) else { return Ok(()) };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        // Where all of it fits as it is, nothing is to be found out.
        if free > content.bytes() {
            return Ok(());
        }
        let needed = likely_bytes(content, settings)
            .with_context(|| format!("cannot estimate the size of {}", self.path.display()))?;
        ensure!(
            free as f64 >= needed as f64 * SHARE,
            "cannot write {}: it will have about {}, and {} are free in {}\n\
             hint: make room, or name a file on another device",
            self.path.display(),
            bytes(needed),
            bytes(free),
            folder.display()
        );
        Ok(())
    }

    /// A pack that is read for this one.
    pub(super) fn store(&self, path: &Path) -> Result<StorePath, Error> {
        self.storage.map_or_else(|| Ok(StorePath::local(path)), |storage| storage.at(path))
    }

    /// What it is written to. `content` are the bytes that are packed, where they are known.
    pub(super) fn out(&self, content: Option<u64>) -> Result<Out> {
        if let Home::Here { file, .. } = &self.home {
            let file = BufWriter::with_capacity(1 << 20, InOrder::new(file.reopen()?));
            return Ok(Out::Here(file));
        }
        let longest = |bytes: u64| {
            bytes.saturating_add(bytes / OVERHEAD_SHARE).saturating_add(OVERHEAD_BYTES)
        };
        let object = self.storage.and_then(|it| it.create(&self.path, content.map(longest)));
        let object = object.context("an object that is in no store")??;
        Ok(Out::Stored(object))
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
        keep().with_context(|| format!("cannot write {}", path.display()))
    }
}

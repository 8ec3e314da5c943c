//! Paths that are in object storage: `s3://`, `gs://`, `az://`, `https://`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::database::{self, Format, OpenOptions, Step, Target};
use pagewarden::error::ErrorKind;
use pagewarden::report::Traffic;
use pagewarden::source::decode::{BEGIN_BYTES, Compression};
use pagewarden::source::rate::Rate;
use pagewarden::source::store::{Seen, StorePath};
use pagewarden::source::tar::looks_like_tar;
use pagewarden::verdict::Note;
use pagewarden::{Error, words};
use pagewarden_plan::subject::{Stores, Trouble};
use tempfile::TempDir;

use crate::args::storage::StorageOptions;

/// What is written to a store, from its beginning to its end. Dropping it leaves nothing there.
pub trait Stored: Write + Send {
    /// Ends it. Only then is it there.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The stores that the paths of a run need: none where all are of this machine.
pub struct Storage {
    #[cfg(feature = "cloud")]
    clouds: Option<pagewarden_cloud::Clouds>,
}

#[cfg(feature = "cloud")]
impl Stored for pagewarden_cloud::Upload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (*self).finish()
    }
}

#[cfg(feature = "cloud")]
impl Storage {
    /// As the options say, for these paths.
    pub fn begin<'a>(
        paths: impl IntoIterator<Item = &'a PathBuf>,
        options: &StorageOptions,
        rate: Option<Rate>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        use pagewarden_cloud::{Clouds, Settings};
        if !paths.into_iter().any(|path| is_address(path)) {
            return Ok(Self { clouds: None });
        }
        let clouds = Clouds::new(Settings {
            endpoint: options.endpoint.clone(),
            options: options.storage_option.clone(),
            rate: rate.unwrap_or_default().ceiling(),
            stop: Arc::clone(stop),
        })?;
        Ok(Self { clouds: Some(clouds) })
    }

    /// What a path stands for if it is an address.
    pub fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        let clouds = self.clouds.as_ref().filter(|_| is_address(path))?;
        Some(clouds.place(path))
    }

    /// An object that is written, if the path is an address.
    pub fn create(
        &self,
        path: &Path,
        expected: Option<u64>,
    ) -> Option<Result<Box<dyn Stored>, Error>> {
        let clouds = self.clouds.as_ref().filter(|_| is_address(path))?;
        Some(clouds.upload(path, expected).map(|upload| Box::new(upload) as Box<dyn Stored>))
    }

    /// What a store did not give last, and why.
    pub fn trouble(&self) -> Option<Trouble> {
        let (times, last) = self.clouds.as_ref()?.trouble()?;
        Some(Trouble { times, last })
    }

    /// What is left of something that was not finished, and costs money.
    pub fn left_behind(&self) -> Option<String> {
        self.clouds.as_ref()?.left_behind()
    }

    /// What was asked of the stores, and what came.
    pub fn traffic(&self) -> Option<Traffic> {
        self.clouds.as_ref().map(pagewarden_cloud::Clouds::traffic)
    }
}

/// True for an address.
#[cfg(feature = "cloud")]
pub fn is_address(path: &Path) -> bool {
    pagewarden_cloud::is_address(path)
}

/// True for what looks like an address.
#[cfg(not(feature = "cloud"))]
pub fn is_address(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["s3://", "gs://", "az://", "https://"].iter().any(|scheme| text.starts_with(scheme))
}

#[cfg(not(feature = "cloud"))]
impl Storage {
    /// There are none.
    pub fn begin<'a>(
        _: impl IntoIterator<Item = &'a PathBuf>,
        _: &StorageOptions,
        _: Option<Rate>,
        _: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        Ok(Self {})
    }

    /// Refuses what looks like an address, and no other path.
    pub fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        is_address(path).then(|| {
            let hint = "build it with the feature `cloud`, or copy the files to a disk";
            Err(Error::refused(path, "this build reads no object storage", hint))
        })
    }

    /// As [`Storage::place`].
    pub fn create(&self, path: &Path, _: Option<u64>) -> Option<Result<Box<dyn Stored>, Error>> {
        is_address(path).then(|| {
            let hint = "build it with the feature `cloud`, or name a file";
            Err(Error::refused(path, "this build writes to no object storage", hint))
        })
    }

    /// Nothing.
    pub fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Nothing.
    pub fn left_behind(&self) -> Option<String> {
        None
    }

    /// Nothing.
    pub fn traffic(&self) -> Option<Traffic> {
        None
    }
}

impl Storage {
    /// What a path stands for, of whatever store.
    pub fn at(&self, path: &Path) -> Result<StorePath, Error> {
        self.place(path).unwrap_or_else(|| Ok(StorePath::local(path)))
    }

    /// The single file that an address stands for; `None` for paths of this machine.
    pub fn file(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        let file = |place: StorePath| match place.look() {
            Ok(Seen::File(_)) => Ok(place),
            Ok(Seen::Folder | Seen::Other) => {
                let hint =
                    "name a single file of it; `check` and `survey` take repositories of backups";
                Err(Error::refused(path, "a folder in object storage", hint))
            }
            Err(source) => Err(Error::io("open", path, source)),
        };
        self.place(path).map(|place| place.and_then(file))
    }
}

impl Stores for Storage {
    fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        Self::place(self, path)
    }

    fn trouble(&self) -> Option<Trouble> {
        Self::trouble(self)
    }
}

/// Opens a file of a store, as a stream where it is one. What must be read more than once is copied
/// to a temporary file first, which lives as long as its folder.
pub fn open(
    place: &StorePath,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<(Target, Option<TempDir>), Error> {
    if let Some(target) = open_stream(place, kind, options)? {
        return Ok((target, None));
    }
    let path = place.path();
    let (folder, copy) = copy(place)?;
    let mut target = database::open_with(&copy, kind, options).map_err(|error| {
        let hint = "if you know what it is, say so with --format";
        Error::unrecognised(path, error.reason(), hint)
    })?;
    path.clone_into(&mut target.description.path);
    let bytes = fs::metadata(&copy).map_or(0, |metadata| metadata.len());
    let text = format!("it was copied to a temporary file to be read ({})", words::bytes(bytes));
    let note = Step::Note(Note { file: String::new(), text });
    target.steps = Box::new(std::iter::once(note).chain(target.steps));
    Ok((target, Some(folder)))
}

/// Opens a file of a store that is read once from its beginning to its end; `None` if it is of another
/// kind.
pub fn open_stream(
    place: &StorePath,
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Option<Target>, Error> {
    let path = place.path();
    let failed = |source: io::Error| Error::io("read", path, source);
    let stored = place.open().map_err(|source| Error::io("open", path, source))?;
    if stored.length().map_err(failed)? == 0 {
        let hint = "there is nothing in it to check";
        return Err(Error::unrecognised(path, "an empty file", hint));
    }
    let streamed = match database::open_stream(path, Box::new(stored), kind, options) {
        Err(error) if error.kind() == ErrorKind::Unrecognised => error,
        other => return other.map(Some),
    };
    let begin = place.first_bytes(BEGIN_BYTES).map_err(failed)?;
    if Compression::of(&begin) != Compression::None || looks_like_tar(&begin) {
        return Err(streamed);
    }
    Ok(None)
}

/// A copy of a file of a store, of the same name, in a folder of its own that removes it.
pub fn copy(place: &StorePath) -> Result<(TempDir, PathBuf), Error> {
    let path = place.path();
    let failed = |source: io::Error| Error::io("read", path, source);
    let folder = tempfile::tempdir().map_err(failed)?;
    let copy = folder.path().join(place.name().unwrap_or("file"));
    let mut file = File::create_new(&copy).map_err(failed)?;
    io::copy(&mut place.open().map_err(failed)?, &mut file).map_err(failed)?;
    Ok((folder, copy))
}

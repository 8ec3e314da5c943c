//! Paths that are in object storage: `s3://`, `gs://`, `az://`, `https://`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::Error;
use pagewarden::report::Traffic;
use pagewarden::source::rate::Rate;
use pagewarden::source::store::{Seen, StorePath, Stores, Trouble};

use crate::args::storage::StorageOptions;

/// What is written to a store, from its beginning to its end. Dropping it leaves nothing there.
#[cfg_attr(not(unix), allow(dead_code, reason = "only commands that write databases use it"))]
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
#[cfg_attr(not(unix), allow(dead_code, reason = "only commands that write databases use it"))]
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

    /// An object that is written, if the path is an address.
    pub fn create(
        &self,
        path: &Path,
        expected: Option<u64>,
    ) -> Option<Result<Box<dyn Stored>, Error>> {
        let clouds = self.clouds.as_ref().filter(|_| is_address(path))?;
        Some(clouds.upload(path, expected).map(|upload| Box::new(upload) as Box<dyn Stored>))
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

    /// Refuses an address.
    pub fn create(&self, path: &Path, _: Option<u64>) -> Option<Result<Box<dyn Stored>, Error>> {
        is_address(path).then(|| {
            let hint = "build it with the feature `cloud`, or name a file";
            Err(Error::refused(path, "this build writes to no object storage", hint))
        })
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
    #[cfg(feature = "cloud")]
    fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        Stores::place(self.clouds.as_ref()?, path)
    }

    /// Refuses what looks like an address, and no other path.
    #[cfg(not(feature = "cloud"))]
    fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        is_address(path).then(|| {
            let hint = "build it with the feature `cloud`, or copy the files to a disk";
            Err(Error::refused(path, "this build reads no object storage", hint))
        })
    }

    fn trouble(&self) -> Option<Trouble> {
        #[cfg(feature = "cloud")]
        return self.clouds.as_ref()?.trouble();
        #[cfg(not(feature = "cloud"))]
        None
    }
}

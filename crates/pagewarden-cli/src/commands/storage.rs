//! Paths that are in object storage: `s3://`, `gs://`, `az://`, `https://`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::Error;
use pagewarden::report::Traffic;
use pagewarden::source::rate::Rate;
use pagewarden::source::store::{Created, StorePath, Stores, Trouble};

use crate::args::storage::StorageOptions;

/// The stores that the paths of a run need: none where all are of this machine.
pub struct Storage {
    #[cfg(feature = "cloud")]
    clouds: Option<pagewarden_cloud::Clouds>,
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

    /// What is left of something that was not finished, and costs money.
    #[cfg_attr(not(unix), allow(dead_code, reason = "only commands that write databases use it"))]
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

    /// Nothing.
    pub fn left_behind(&self) -> Option<String> {
        None
    }

    /// Nothing.
    pub fn traffic(&self) -> Option<Traffic> {
        None
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
    #[cfg(feature = "cloud")]
    fn create(&self, path: &Path, expected: Option<u64>) -> Created {
        self.clouds.as_ref()?.create(path, expected)
    }

    /// Refuses an address.
    #[cfg(not(feature = "cloud"))]
    fn create(&self, path: &Path, _: Option<u64>) -> Created {
        is_address(path).then(|| {
            let hint = "build it with the feature `cloud`, or name a file";
            Err(Error::refused(path, "this build writes to no object storage", hint))
        })
    }
}

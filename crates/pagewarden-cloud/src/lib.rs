//! Object stores as places of stored files: S3 and what speaks like it, Google Cloud Storage, Azure,
//! and plain HTTPS. Beside it, the one request that goes the other way: [`post()`].
//!
//! [`Clouds`] turns an address into a [`StorePath`], which the library reads as it reads a folder.
//! The only async code of the project is here: one thread drives all requests, and the threads that
//! verify wait for their bytes.
//!
//! - A file is read in pieces; where it is read in order, several pieces are fetched at once.
//! - A file is the one that was seen first, by its ETag. One that was replaced meanwhile is not read.
//! - What the store answers with 5xx or 429 is asked for again, later each time. All else is an error.
//! - Every error is a [`NotRead`], so that nothing that failed is taken for damage or for health.
//! - What is written, a pack, is an [`Upload`]: seen in its bucket once all of it is there.
//! - Credentials come from the clouds' own variables and files, and are in no message.
//!
//! [`NotRead`]: pagewarden::source::store::NotRead

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use pagewarden::Error;
use pagewarden::report::Traffic;
use pagewarden::source::rate::RateLimiter;
use pagewarden::source::store::{Created, StorePath, Stored, Stores, Trouble};

mod address;
mod aws_files;
mod bucket;
mod connect;
mod expected;
mod fault;
mod http;
mod io_thread;
mod object;
mod pieces;
mod post;
mod upload;

use address::{Address, Scheme};
use bucket::Bucket;
use fault::Secrets;
use http::{Counters, Patience};
use io_thread::IoThread;
use pieces::Pieces;
pub use post::post;
pub use upload::Upload;

/// True for a path that is the address of an object or a folder of objects.
#[must_use]
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(address::has_scheme)
}

/// How the stores are spoken to.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The address of the service, where it is not the cloud's own.
    pub endpoint: Option<String>,
    /// Settings by the names that the clouds give them, such as `region`.
    pub options: Vec<(String, String)>,
    /// Bytes a second that are fetched at most.
    pub rate: Option<NonZero<u64>>,
    /// Ends all waiting once it is true.
    pub stop: Arc<AtomicBool>,
}

/// The stores of a run.
#[derive(Debug)]
pub struct Clouds {
    settings: Settings,
    patience: Patience,
    secrets: Arc<Secrets>,
    io: Arc<IoThread>,
    counters: Arc<Counters>,
    pieces: Arc<Pieces>,
    /// One for each bucket, so that what it has seen is seen once.
    buckets: Mutex<HashMap<String, Arc<Bucket>>>,
    /// What an upload that failed could not remove.
    left_behind: Arc<Mutex<Option<String>>>,
}

impl Clouds {
    /// Stores that are spoken to in this way.
    ///
    /// # Errors
    /// The options cannot be used, or there can be no thread for the requests.
    pub fn new(mut settings: Settings) -> Result<Self, Error> {
        let path = Path::new("--storage-option");
        fault::refuse_secrets(&settings.options)
            .map_err(|(reason, hint)| Error::refused(path, reason, hint))?;
        let patience = Patience::take_from(&mut settings.options)
            .map_err(|reason| Error::refused(path, reason, "as in --storage-option retries=5"))?;
        let limiter = RateLimiter::new(settings.rate);
        Ok(Self {
            secrets: Arc::new(Secrets::of_environment()),
            io: Arc::new(IoThread::begin().map_err(|error| Error::io("begin", path, error))?),
            counters: Arc::default(),
            pieces: Arc::new(Pieces::new(limiter, Arc::clone(&settings.stop))),
            buckets: Mutex::default(),
            left_behind: Arc::default(),
            patience,
            settings,
        })
    }

    /// What an address stands for. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// It is no address, or the settings do not suffice to ask anything.
    pub fn place(&self, address: &Path) -> Result<StorePath, Error> {
        let (bucket, parsed) = self.bucket(address)?;
        Ok(StorePath::new(bucket, parsed.path()))
    }

    /// Begins an object that is written from its beginning to its end, of `expected` bytes at most if
    /// that is known.
    ///
    /// # Errors
    /// As [`Clouds::place`]; the address names no object, or one of a kind that is only read; or there
    /// is such an object already.
    pub fn upload(&self, address: &Path, expected: Option<u64>) -> Result<Upload, Error> {
        let (bucket, parsed) = self.bucket(address)?;
        let path = parsed.path();
        let refused = |reason: &str, hint: &str| Err(Error::refused(&path, reason, hint));
        if matches!(parsed.scheme, Scheme::Https | Scheme::Http) {
            return refused("files of web servers are only read", "name s3://, gs:// or az://");
        }
        if path == Path::new(parsed.root()) {
            return refused("it names a bucket and no object in it", "as in s3://BUCKET/x.pwk");
        }
        let left_behind = Arc::clone(&self.left_behind);
        let upload = bucket.upload(&path, expected, left_behind);
        let upload = upload.and_then(|upload| upload.refuse_existing().map(|()| upload));
        upload.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => {
                let hint = "name another object, or remove this one";
                Error::refused(&path, source.to_string(), hint)
            }
            _ => Error::io("write", &path, source),
        })
    }

    fn bucket(&self, address: &Path) -> Result<(Arc<Bucket>, Address), Error> {
        let refused = |(reason, hint): (String, String)| {
            Error::refused(&address::without_query(address), reason, hint)
        };
        let parsed = Address::parse(address).map_err(refused)?;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = match buckets.get(parsed.root()) {
            Some(bucket) => Arc::clone(bucket),
            None => {
                let http = http::Connector::new(Arc::clone(&self.counters), self.patience);
                let store = connect::connect(&parsed, &self.settings, http, &self.secrets)
                    .map_err(refused)?;
                let bucket = Arc::new(Bucket::new(
                    parsed.root().to_owned(),
                    store,
                    Arc::clone(&self.io),
                    Arc::clone(&self.pieces),
                    Arc::clone(&self.secrets),
                ));
                buckets.insert(parsed.root().to_owned(), Arc::clone(&bucket));
                bucket
            }
        };
        Ok((bucket, parsed))
    }

    /// What is still in a bucket of an upload that failed, and why; it costs money, too.
    #[must_use]
    pub fn left_behind(&self) -> Option<String> {
        self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was asked of the stores so far, and what came: it costs money.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

impl Stored for Upload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (*self).finish()
    }
}

impl Stores for Clouds {
    fn place(&self, path: &Path) -> Option<Result<StorePath, Error>> {
        is_address(path).then(|| Self::place(self, path))
    }

    fn trouble(&self) -> Option<Trouble> {
        self.secrets.trouble()
    }

    fn create(&self, path: &Path, expected: Option<u64>) -> Created {
        let upload = is_address(path).then(|| self.upload(path, expected))?;
        Some(upload.map(|upload| Box::new(upload) as Box<dyn Stored>))
    }
}

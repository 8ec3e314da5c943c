//! Packs that are made, as `pagewarden pack` makes them.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pagewarden::database;
use pagewarden::packing::null;
use pagewarden::packing::{self, Codec, Profile, Request, Watch};
use pagewarden::source::rate::Rate;
use pagewarden_cloud::Clouds;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::run::{self, Done, asked, in_words, kind_name};
use crate::servers::Failure;
use crate::wait;

/// What is asked for, as `pagewarden/_packing.py` hands it over.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct PackOptions {
    format: Option<String>,
    base: Option<PathBuf>,
    tablespace: Option<String>,
    profile: Option<String>,
    codec: Option<String>,
    level: Option<i32>,
    keep_damaged: bool,
    accept_unverifiable: bool,
    jobs: Option<usize>,
    rate: Option<u64>,
    endpoint: Option<String>,
    storage_option: Vec<(String, String)>,
}

/// A value that only some names stand for.
fn named<T>(
    name: Option<&String>,
    option: &str,
    find: fn(&str) -> Option<T>,
) -> PyResult<Option<T>> {
    let wrong = || PyValueError::new_err(format!("{option}: there is no such {option}"));
    name.map(|name| find(name).ok_or_else(wrong)).transpose()
}

impl PackOptions {
    fn request(&self, source: PathBuf) -> PyResult<Request> {
        let least = |option: &str| PyValueError::new_err(format!("{option}: at least 1"));
        let jobs = self.jobs.map(|jobs| NonZero::new(jobs).ok_or_else(|| least("jobs")));
        let rate = self.rate.map(|rate| NonZero::new(rate).ok_or_else(|| least("rate")));
        if self.level.is_some_and(|level| !(1..=22).contains(&level)) {
            return Err(PyValueError::new_err("level: 1 to 22"));
        }
        Ok(Request {
            source,
            format: named(self.format.as_ref(), "format", database::kind_named)?,
            base: self.base.clone(),
            tablespace: self.tablespace.clone(),
            profile: named(self.profile.as_ref(), "profile", Profile::named)?,
            codec: named(self.codec.as_ref(), "codec", Codec::named)?,
            level: self.level,
            keep_damaged: self.keep_damaged,
            accepts_unverifiable: self.accept_unverifiable,
            jobs: jobs.transpose()?,
            rate: rate.transpose()?.map(Rate::AtMost),
        })
    }
}

impl Watch for Done {}

/// The object of `pagewarden pack --json`, why there is none, and what is left in a store of an upload
/// that failed.
type Made = (Option<String>, Option<Failure>, Option<String>);

fn failure(failure: &packing::Failure) -> Failure {
    let path = failure.path().to_string_lossy().into_owned();
    (kind_name(failure.kind()), path, in_words(failure))
}

/// Makes a pack of `source`; without an `output` all of it is read and nothing stored. `progress` is
/// called with the number of bytes that were read so far.
#[pyfunction]
pub fn pack(
    py: Python<'_>,
    source: PathBuf,
    output: Option<PathBuf>,
    options: PackOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Made> {
    let stop: Arc<AtomicBool> = Arc::default();
    let done: Arc<Done> = Arc::default();
    let named = [Some(&source), output.as_ref(), options.base.as_ref()];
    let named: Vec<_> = named.into_iter().flatten().cloned().collect();
    let places = (options.endpoint.clone(), options.storage_option.clone());
    let stores = run::stores(&named, places, options.rate, &stop);
    let stores = stores.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let request = options.request(source)?;
    let counted = Arc::clone(&done);
    let mut tell = wait::teller(progress, move || counted.0.load(Ordering::Relaxed));
    let ended = Arc::clone(&stop);
    let work = move || {
        let made = make(&request, output, stores.as_ref(), &stop, &done);
        let left = stores.as_ref().and_then(Clouds::left_behind);
        match made {
            Ok(object) => (Some(object), None, left),
            Err(error) => (None, Some(failure(&error)), left),
        }
    };
    wait::for_work(py, (&ended, &|_| Ok(())), &mut tell, work)
}

fn make(
    request: &Request,
    output: Option<PathBuf>,
    stores: Option<&Clouds>,
    stop: &Arc<AtomicBool>,
    done: &Done,
) -> packing::Result<String> {
    let begin = Instant::now();
    let places = asked(stores);
    let traffic = || stores.map(Clouds::traffic);
    let object = match output {
        None => null::read(request, places, stop, done, &mut ())?.object(traffic()),
        Some(output) => {
            let packed = packing::pack(request, &output, places, stop, done)?;
            packed.object(&output, begin.elapsed(), traffic())?
        }
    };
    Ok(object.to_string())
}

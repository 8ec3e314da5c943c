//! Tables of live databases: compared, and summed, as `pagewarden compare` and `checksum` do it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagewarden::source::rate::RateLimiter;
use pagewarden::source::store::Stores;
use pagewarden_db::checksum::database::{Ended, Line, Taker, database};
use pagewarden_db::checksum::{self, Function, Strategy};
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Outcome;
use pagewarden_db::compare::sample::Sample;
use pagewarden_db::compare::state::{self, State};
use pagewarden_db::compare::throttle::Limits;
use pagewarden_db::compare::{Course, Options, Request, Watch, compare_on_course, json};
use pagewarden_db::engine;
use pagewarden_db::error::{Error, Result};
use pagewarden_db::location::{Given, Location};
use pagewarden_db::table::TableName;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;

use crate::run::{self, StorageGiven};
use crate::wait;

/// An error as Python gets it: kind, path, message.
pub type Failure = (&'static str, String, String);
/// The object, and why it could not be made, or not all of it.
type Made = (Option<String>, Option<Failure>);

/// What of an error Python gets; nothing of it shows a password.
pub fn failure(error: &Error, place: &str) -> Failure {
    let place = match error {
        Error::Connect { place, .. }
        | Error::Gone { place, .. }
        | Error::Refused { place, .. }
        | Error::NoTable { place, .. } => place,
        _ => place,
    };
    (error.kind(), place.to_owned(), error.to_string())
}

/// Rows that were read so far, and the wish to end.
#[derive(Debug)]
pub struct Reading {
    /// The wish to end.
    pub stop: Arc<AtomicBool>,
    rows: AtomicU64,
    limiter: RateLimiter,
}

impl Reading {
    /// One that reads at most `rate` bytes a second.
    pub fn begin(rate: Option<u64>) -> PyResult<Arc<Self>> {
        let rate = rate.map(|rate| at_least_one(rate, "rate", NonZero::new)).transpose()?;
        let limiter = RateLimiter::new(rate);
        Ok(Arc::new(Self { stop: Arc::default(), rows: AtomicU64::new(0), limiter }))
    }

    /// Counts rows in; ends the reading if that is wished.
    pub fn tell(&self, rows: u64, bytes: u64) -> Result<()> {
        self.limiter.pay(bytes, &self.stop);
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        self.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    /// A URL's location, of files in object storage too.
    pub fn locate(&self, url: &str, given: &Given, storage: StorageGiven) -> Result<Location> {
        let mut location = Location::find(url, given)?;
        let path = PathBuf::from(location.database.clone().unwrap_or_default());
        if location.is_file() {
            let paths = [path];
            let stores = run::stores(&paths, storage, None, &self.stop);
            let place = stores.and_then(|stores| {
                stores.and_then(|stores| Stores::place(&stores, &paths[0])).transpose()
            });
            location.stored = place.map_err(|error| Error::Connect {
                place: location.to_string(),
                reason: error.to_string(),
            })?;
        }
        Ok(location)
    }

    /// Waits for `work`, which reads by this.
    pub fn wait<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> PyResult<T> {
        self.wait_or(py, progress, &|_| Ok(()), work)
    }

    /// The same; `ended` is called if the caller ends it.
    pub fn wait_or<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        ended: wait::Ended<'_>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> PyResult<T> {
        let (counted, working) = (Arc::clone(self), Arc::clone(self));
        let mut tell = wait::teller(progress, move || counted.rows.load(Ordering::Relaxed));
        wait::for_work(py, (&self.stop, ended), &mut tell, move || work(&working))
    }
}

fn at_least_one<T, N>(number: T, name: &str, make: fn(T) -> Option<N>) -> PyResult<N> {
    make(number).ok_or_else(|| PyValueError::new_err(format!("{name}: at least 1")))
}

/// A number of seconds.
fn time(seconds: f64, name: &str) -> PyResult<Duration> {
    let time = Duration::try_from_secs_f64(seconds);
    time.map_err(|_| PyValueError::new_err(format!("{name}: no number of seconds")))
}

fn cores() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Options of a comparison, as `pagewarden/_servers.py` hands them over.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct CompareOptions {
    table: Vec<String>,
    exclude_table: Vec<String>,
    exclude_column: Vec<String>,
    key: Vec<String>,
    snapshot: bool,
    mode: String,
    settle: f64,
    patience: f64,
    differences: usize,
    show_values: bool,
    sql: bool,
    chunk_rows: Option<u64>,
    state: Option<PathBuf>,
    max_load: Option<u64>,
    max_lag: Option<f64>,
    sample: Option<f64>,
    seed: Option<u64>,
    jobs: Option<usize>,
    rate: Option<u64>,
    password_file: Option<PathBuf>,
    target_password_file: Option<PathBuf>,
    endpoint: Option<String>,
    storage_option: Vec<(String, String)>,
}

impl CompareOptions {
    /// How much may be read a second, if that is limited.
    pub fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Where the source is.
    pub fn source(&self, url: &str, reading: &Reading) -> Result<Location> {
        let given = Given { password_file: self.password_file.clone() };
        reading.locate(url, &given, self.storage())
    }

    fn storage(&self) -> StorageGiven {
        (self.endpoint.clone(), self.storage_option.clone())
    }

    /// What is compared; of the locations it is not known yet where they are.
    pub fn request(&self, source: Location, target: Location) -> PyResult<Request> {
        let wrong = |text: &str| PyValueError::new_err(text.to_owned());
        let mode = Mode::named(&self.mode).ok_or_else(|| wrong("mode: there is no such mode"))?;
        let jobs = self.jobs.map(|jobs| at_least_one(jobs, "jobs", NonZero::new)).transpose()?;
        let chunk_rows = match self.chunk_rows {
            Some(0 | 100_001..) => return Err(wrong("chunk_rows: 1 to 100000")),
            other => other,
        };
        Ok(Request {
            source,
            target,
            tables: self.table.clone(),
            excluded_tables: self.exclude_table.clone(),
            excluded_columns: self.exclude_column.clone(),
            key: self.key.clone(),
            jobs: jobs.unwrap_or_else(cores),
            options: Options {
                frozen: self.snapshot,
                settle: time(self.settle, "settle")?,
                patience: time(self.patience, "patience")?,
                listed_max: self.differences,
                chunk_rows,
                mode,
            },
        })
    }

    /// What the object tells of what was asked for.
    pub fn asked(&self) -> json::Asked<'_> {
        json::Asked {
            mode: &self.mode,
            snapshot: self.snapshot,
            from_replicate: false,
            show_values: self.show_values,
            sql: self.sql,
        }
    }

    fn sample(&self) -> PyResult<Option<Sample>> {
        let Some(percent) = self.sample else { return Ok(None) };
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(PyValueError::new_err("sample: more than 0 and at most 100 (percent)"));
        }
        // The standard library's only source of chance. Not longer than JSON's numbers are safe.
        let seed = self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 11);
        Ok(Some(Sample { share: percent / 100.0, seed }))
    }

    fn limits(&self) -> PyResult<Limits> {
        let lag = self.max_lag.map(|lag| time(lag, "max_lag")).transpose()?;
        Ok(Limits { load: self.max_load, lag })
    }

    fn state(&self, request: &Request) -> Result<Option<State>> {
        let Some(path) = &self.state else { return Ok(None) };
        let asked = state::Asked {
            source: state::place(&request.source),
            targets: vec![state::place(&request.target)],
            tables: self.table.clone(),
            excluded_tables: self.exclude_table.clone(),
            excluded_columns: self.exclude_column.clone(),
            differences: self.differences,
            mode: request.options.mode,
        };
        State::open(path, &asked).map(Some)
    }
}

/// Both databases of a comparison.
fn locations(
    options: &CompareOptions,
    source: &str,
    target: &str,
    reading: &Reading,
) -> Result<(Location, Location)> {
    let source = options.source(source, reading)?;
    let given = Given { password_file: options.target_password_file.clone() };
    let target = reading.locate(target, &given, options.storage())?;
    if options.sql && engine::of(&target)?.is_one_table {
        return Err(Error::Unsupported(format!("{target} is not changed by statements")));
    }
    Ok((source, target))
}

/// Compares, and gives the object of `pagewarden compare --json`.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    source: String,
    target: String,
    options: CompareOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Made> {
    let begin = Instant::now();
    let reading = Reading::begin(options.rate)?;
    let (source, target) = match locations(&options, &source, &target, &reading) {
        Ok(both) => both,
        Err(error) => return Ok((None, Some(failure(&error, "")))),
    };
    let place = target.to_string();
    let request = options.request(source, target)?;
    let (sample, limits) = (options.sample()?, options.limits()?);
    reading.wait(py, progress, move |reading| {
        let compared = options.state(&request).and_then(|state| {
            let state = state.as_ref();
            let course = Course { state, limits, sample, ..Course::default() };
            one(&request, &course, reading)
        });
        made(compared, &options, &place, begin)
    })
}

/// Compares one database with one.
pub fn one(request: &Request, course: &Course<'_>, reading: &Reading) -> Result<Outcome> {
    let tell = |rows, bytes| reading.tell(rows, bytes);
    let watch = Watch { tell: &tell, begin: &|_| (), advance: &|_| () };
    compare_on_course(request, course, &watch, &mut |_| ())
}

/// What Python gets of a comparison.
pub fn made(
    compared: Result<Outcome>,
    options: &CompareOptions,
    place: &str,
    begin: Instant,
) -> Made {
    match compared {
        Err(error) => (None, Some(failure(&error, place))),
        // Every table may have been left out, or be somewhere else.
        Ok(outcome) if outcome.tables.is_empty() => {
            let text = "there is no table to compare".to_owned();
            (None, Some(("not_found", place.to_owned(), text)))
        }
        Ok(outcome) => {
            let object = json::object(&options.asked(), &[outcome], begin.elapsed());
            (Some(object.to_string()), None)
        }
    }
}

/// Options of checksums, as `pagewarden/_servers.py` hands them over.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct ChecksumOptions {
    table: Vec<String>,
    strategy: Vec<String>,
    function: String,
    snapshot: bool,
    jobs: usize,
    rate: Option<u64>,
    password_file: Option<PathBuf>,
    endpoint: Option<String>,
    storage_option: Vec<(String, String)>,
}

impl ChecksumOptions {
    fn request(&self, location: Location) -> PyResult<checksum::database::Request> {
        let strategy = |name: &String| match Strategy::named(name) {
            // It writes, which needs more than a name.
            Some(Strategy::Replicate) | None => {
                Err(PyValueError::new_err("strategy: count, native, accum, bitxor or multiset"))
            }
            Some(strategy) => Ok(strategy),
        };
        let function = match self.function.as_str() {
            "md5" => Function::Md5,
            "crc32" => Function::Crc32,
            _ => return Err(PyValueError::new_err("function: md5 or crc32")),
        };
        Ok(checksum::database::Request {
            location,
            tables: self.table.clone(),
            strategies: self.strategy.iter().map(strategy).collect::<PyResult<_>>()?,
            function,
            frozen: self.snapshot,
            chunk_rows: None,
            jobs: at_least_one(self.jobs, "jobs", NonZero::new)?,
        })
    }
}

/// Lines as they come.
#[derive(Debug, Default)]
struct Lines {
    objects: Vec<Value>,
    failed: bool,
    stopped: bool,
}

impl Taker<Error> for Lines {
    fn opened(&mut self, _: &str, _: &[TableName]) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, line: Option<Line>) -> Result<()> {
        match line {
            None => self.stopped = true,
            Some(line) => {
                self.failed |= line.made.is_err();
                self.objects.push(line.object());
            }
        }
        Ok(())
    }
}

/// Sums tables, and gives the object of `pagewarden checksum --json`.
#[pyfunction]
pub fn checksums(
    py: Python<'_>,
    url: String,
    options: ChecksumOptions,
    progress: Option<Py<PyAny>>,
) -> PyResult<Made> {
    let begin = Instant::now();
    let reading = Reading::begin(options.rate)?;
    let given = Given { password_file: options.password_file.clone() };
    let storage = (options.endpoint.clone(), options.storage_option.clone());
    let location = match reading.locate(&url, &given, storage) {
        Ok(location) => location,
        Err(error) => return Ok((None, Some(failure(&error, "")))),
    };
    let place = location.to_string();
    let request = options.request(location)?;
    reading.wait(py, progress, move |reading| {
        let mut lines = Lines::default();
        let tell = |rows, bytes| reading.tell(rows, bytes);
        let summed = database(&request, &tell, &|_| (), &mut lines);
        let error = summed.as_ref().err().map(ToString::to_string);
        let (failed, stopped) = (lines.failed, lines.stopped);
        let ended = Ended { failed, stopped, error: error.as_deref(), elapsed: begin.elapsed() };
        let failed = summed.err().map(|error| failure(&error, &place));
        // Nothing was summed at all: there is no object.
        let object = (failed.is_none() || !lines.objects.is_empty())
            .then(|| ended.object(&lines.objects).to_string());
        (object, failed)
    })
}

//! One check: all subjects that paths stand for, into the reports that were asked for.

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatchIterator, RecordBatchReader};
use pagewarden::database::{Step, Target, parts, stored};
use pagewarden::report::json::JsonReport;
use pagewarden::report::picture::PictureReport;
use pagewarden::report::several::Several;
use pagewarden::report::{Report as _, RunEnd, TargetEnd};
use pagewarden::source::rate::Rate;
use pagewarden::source::store::{Stores, ThisMachine};
use pagewarden::verdict::{Note, Verdict};
use pagewarden::verify::{Options, Progress, Summary, verify};
use pagewarden::{Error, ErrorKind};
use pagewarden_cloud::{Clouds, Settings, is_address};
use pagewarden_plan::plan::Wanted;
use pagewarden_plan::subject::{Subject, subjects};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::tables::{FindingsTable, PagesTable, Table};
use crate::wait;

/// What is asked for, as `pagewarden/__init__.py` hands it over.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Given {
    format: Option<String>,
    wal: Option<PathBuf>,
    keyring: Option<PathBuf>,
    base: Vec<PathBuf>,
    stanza: Option<String>,
    set: Vec<String>,
    latest: bool,
    no_log: bool,
    cipher_pass_file: Option<PathBuf>,
    settle: Option<f64>,
    no_witness: bool,
    structure: bool,
    accept_unverifiable: bool,
    jobs: Option<usize>,
    rate: Option<u64>,
    endpoint: Option<String>,
    storage_option: Vec<(String, String)>,
}

impl Given {
    /// How targets are opened.
    pub fn wanted(&self) -> PyResult<Wanted> {
        let settle = self.settle.map(Duration::try_from_secs_f64).transpose();
        let settle = settle.map_err(|_| PyValueError::new_err("settle: no number of seconds"))?;
        let wanted = Wanted {
            format: self.format.clone(),
            wal: self.wal.clone(),
            keyring: self.keyring.clone(),
            base: self.base.clone(),
            stanza: self.stanza.clone(),
            set: self.set.clone(),
            latest: self.latest,
            no_log: self.no_log,
            cipher_pass_file: self.cipher_pass_file.clone(),
            settle_ms: settle.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
            no_witness: self.no_witness,
            structure: self.structure,
            accept_unverifiable: self.accept_unverifiable,
        };
        if wanted.format.is_some() && wanted.kind().is_none() {
            return Err(PyValueError::new_err("format: there is no such format"));
        }
        Ok(wanted)
    }

    fn options(&self, stop: Arc<AtomicBool>) -> PyResult<Options> {
        let mut options = Options { stop, ..Options::default() };
        options.accepts_unverifiable = self.accept_unverifiable;
        if let Some(jobs) = self.jobs {
            let jobs = NonZero::new(jobs);
            options.jobs = jobs.ok_or_else(|| PyValueError::new_err("jobs: at least 1"))?;
        }
        if let Some(rate) = self.rate {
            let rate = NonZero::new(rate);
            options.rate =
                Rate::AtMost(rate.ok_or_else(|| PyValueError::new_err("rate: at least 1"))?);
        }
        Ok(options)
    }

    /// The stores that these paths need: none where all are of this machine.
    pub fn stores(
        &self,
        paths: &[PathBuf],
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Clouds>, Error> {
        stores(paths, (self.endpoint.clone(), self.storage_option.clone()), self.rate, stop)
    }
}

/// The endpoint and the options of stores, as far as they are given.
pub type StorageGiven = (Option<String>, Vec<(String, String)>);

/// The stores that paths need, by an endpoint and options: none where all are of this machine.
pub fn stores(
    paths: &[PathBuf],
    (endpoint, options): StorageGiven,
    rate: Option<u64>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Clouds>, Error> {
    if !paths.iter().any(|path| is_address(path)) {
        return Ok(None);
    }
    let rate = rate.and_then(NonZero::new);
    Clouds::new(Settings { endpoint, options, rate, stop: Arc::clone(stop) }).map(Some)
}

/// What the stores are to those who only ask them where a path leads.
pub fn asked(stores: Option<&Clouds>) -> &dyn Stores {
    match stores {
        Some(clouds) => clouds,
        None => &ThisMachine,
    }
}

/// What is to be made of what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Made {
    report: bool,
    findings: bool,
    pages: bool,
}

/// What a check found.
#[pyclass(frozen, module = "pagewarden._pagewarden")]
#[derive(Debug)]
pub struct Checked {
    /// The worst of all targets.
    #[pyo3(get)]
    verdict: &'static str,
    /// Targets that were opened.
    #[pyo3(get)]
    opened: u64,
    /// Targets that were not: kind, path, message.
    #[pyo3(get)]
    failed: Vec<(&'static str, String, String)>,
    /// What `check --json` prints.
    #[pyo3(get)]
    json: Option<String>,
    /// The map of the pages, as SVG.
    #[pyo3(get)]
    picture: Option<String>,
    findings: Option<Table>,
    pages: Option<Table>,
}

#[pymethods]
impl Checked {
    /// Rows of the table of findings.
    fn findings_rows(&self) -> usize {
        self.findings.as_ref().map_or(0, Table::rows)
    }

    /// Rows of the table of pages.
    fn pages_rows(&self) -> usize {
        self.pages.as_ref().map_or(0, Table::rows)
    }

    /// The table of findings, as an Arrow stream.
    fn findings_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        stream(py, self.findings.as_ref())
    }

    /// The table of pages, as an Arrow stream.
    fn pages_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        stream(py, self.pages.as_ref())
    }
}

fn stream<'py>(py: Python<'py>, table: Option<&Table>) -> PyResult<Bound<'py, PyCapsule>> {
    let Some(table) = table.cloned() else {
        return Err(PyRuntimeError::new_err("there is no such table"));
    };
    let batches = RecordBatchIterator::new(table.batches.into_iter().map(Ok), table.schema);
    let reader: Box<dyn RecordBatchReader + Send> = Box::new(batches);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), c"arrow_array_stream")
}

/// Bytes that were read so far.
#[derive(Debug, Default)]
pub struct Done(pub AtomicU64);

impl Progress for Done {
    fn advance(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Checks `paths`. `progress` is called with the number of bytes that were read so far.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    given: Given,
    made: Made,
    progress: Option<Py<PyAny>>,
) -> PyResult<Checked> {
    let stop: Arc<AtomicBool> = Arc::default();
    let done: Arc<Done> = Arc::default();
    let wanted = given.wanted()?;
    let options = given.options(Arc::clone(&stop))?;
    let stores = given.stores(&paths, &stop);
    let stores = stores.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let counted = Arc::clone(&done);
    let mut tell = wait::teller(progress, move || counted.0.load(Ordering::Relaxed));
    let work = move || check(&paths, &wanted, &options, stores.as_ref(), made, &done);
    wait::for_work(py, (&stop, &|_| Ok(())), &mut tell, work)?.map_err(PyRuntimeError::new_err)
}

/// Everything that a run adds up.
#[derive(Debug, Default)]
struct Ran {
    total: Summary,
    worst: Option<Verdict>,
    opened: u64,
    failed: Vec<(&'static str, String, String)>,
}

impl Ran {
    fn add(&mut self, verdict: Verdict) {
        self.worst = Some(self.worst.map_or(verdict, |worst| worst.min(verdict)));
    }

    fn verdict(&self) -> Verdict {
        let worst = self.worst.unwrap_or(Verdict::Incomplete);
        if self.total.stopped { worst.min(Verdict::Incomplete) } else { worst }
    }

    /// Takes in that a database could not be opened.
    fn fail(&mut self, path: &Path, error: &Error, reports: &mut Several<'_>) -> io::Result<()> {
        let failed = described(path, error);
        reports.failed_target(&failed.1, &failed.2, SystemTime::now())?;
        self.failed.push(failed);
        self.add(Verdict::Incomplete);
        Ok(())
    }

    /// Verifies a database and adds what came out.
    fn look(
        &mut self,
        target: Target,
        options: &Options,
        done: &Done,
        reports: &mut Several<'_>,
    ) -> io::Result<()> {
        reports.begin_target(&target.description)?;
        let verified = verify(target, options, done, reports)?;
        reports.end_target(&TargetEnd {
            verified: &verified,
            overall: None,
            listed_bytes: None,
            ended: SystemTime::now(),
        })?;
        self.opened += 1;
        self.total += &verified.summary;
        self.add(verified.verdict());
        Ok(())
    }
}

fn check(
    paths: &[PathBuf],
    wanted: &Wanted,
    options: &Options,
    stores: Option<&Clouds>,
    made: Made,
    done: &Done,
) -> Result<Checked, String> {
    let begin = Instant::now();
    let (kind, open_options) = (wanted.kind(), wanted.open_options(Some(options.jobs)));
    let mut ran = Ran::default();
    let (mut json, mut picture) = (Vec::new(), Vec::new());
    let (mut findings, mut pages) = (None, None);
    let strangers = pagewarden::formats::sqlserver::files::strangers(paths);
    let subjects = subjects(paths, kind, &open_options, asked(stores)).unwrap_or_else(|error| {
        ran.failed.push(described(Path::new(""), &error));
        Vec::new()
    });
    let count = subjects.iter().map(Subject::count).sum();
    let mut reports = Several::default();
    if made.report {
        reports.add(JsonReport::begin(&mut json, "check").map_err(|error| error.to_string())?);
        reports.add(PictureReport::new(&mut picture, count));
    }
    if made.findings {
        reports.add(FindingsTable::new(&mut findings));
    }
    if made.pages {
        reports.add(PagesTable::new(&mut pages));
    }
    subjects.first().inspect(|first| first.expect(kind));
    let mut subjects = subjects.into_iter();
    while let Some(subject) = subjects.next() {
        if options.stop.load(Ordering::Relaxed) {
            ran.total.stopped = true;
            break;
        }
        subjects.as_slice().first().inspect(|next| next.expect(kind));
        let (path, opened, copy) = opened(subject, wanted, options.jobs, &strangers);
        match opened {
            Ok(targets) => {
                for target in targets {
                    let looked = ran.look(target, options, done, &mut reports);
                    looked.map_err(|error| error.to_string())?;
                }
            }
            Err(error) => {
                let told = ran.fail(&path, &error, &mut reports);
                told.map_err(|error| error.to_string())?;
            }
        }
        drop(copy);
    }
    let verdict = ran.verdict();
    ran.total.elapsed = begin.elapsed();
    let end = RunEnd {
        verdict,
        total: &ran.total,
        opened: ran.opened,
        protection_missed: false,
        storage: stores.map(Clouds::traffic),
        drill: None,
        ended: SystemTime::now(),
    };
    reports.end(&end).map_err(|error| error.to_string())?;
    drop(reports);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|error| error.to_string());
    Ok(Checked {
        verdict: verdict.name(),
        opened: ran.opened,
        failed: ran.failed,
        json: made.report.then(|| text(json)).transpose()?,
        picture: made.report.then(|| text(picture)).transpose()?,
        findings,
        pages,
    })
}

type Targets = Box<dyn Iterator<Item = Target> + Send>;

/// The databases of a subject by its path, and a folder with the copy of a file of a store that must be read
/// more than once: it lives as long as its target.
fn opened(
    subject: Subject,
    wanted: &Wanted,
    jobs: NonZero<usize>,
    strangers: &[(PathBuf, Note)],
) -> (PathBuf, Result<Targets, Error>, Option<impl Sized>) {
    let (kind, options) = (wanted.kind(), wanted.open_options(Some(jobs)));
    match subject {
        Subject::Target(paths) => {
            let path = paths.first().cloned().unwrap_or_default();
            let of_it = strangers.iter().filter(|(stranger, _)| *stranger == path);
            let notes: Vec<_> = of_it.map(|(_, note)| Step::Note(note.clone())).collect();
            let target = parts::open_together(&paths, kind, &options);
            (path, target.map(|target| alone(with_notes(target, notes))), None)
        }
        Subject::Repository(path, sets) => (path, sets.map(|sets| sets.targets), None),
        Subject::Stored(places) => {
            let path = places.first().map(|place| place.path().to_owned()).unwrap_or_default();
            match stored::open_together(&places, kind, &options) {
                Ok((target, folder)) => (path, Ok(alone(target)), folder),
                Err(error) => (path, Err(error), None),
            }
        }
    }
}

fn alone(target: Target) -> Targets {
    Box::new(std::iter::once(target))
}

/// The target with notes before everything else.
fn with_notes(mut target: Target, notes: Vec<Step>) -> Target {
    target.steps = Box::new(notes.into_iter().chain(target.steps));
    target
}

/// An error as Python gets it: kind, path, message.
pub fn described(path: &Path, error: &Error) -> (&'static str, String, String) {
    (kind_name(error.kind()), path.to_string_lossy().into_owned(), in_words(error))
}

/// As `pagewarden.Error.kind` has it.
pub fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "not_found",
        ErrorKind::PermissionDenied => "permission_denied",
        ErrorKind::Unrecognised => "unrecognised",
        ErrorKind::InUse => "in_use",
        ErrorKind::Changed => "changed",
        ErrorKind::Damaged => "damaged",
        ErrorKind::LostWrite => "lost_write",
        ErrorKind::NoSpace => "no_space",
        ErrorKind::Refused => "refused",
        _ => "io",
    }
}

/// An error with its causes.
pub fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

//! Packs that are read: what is in one, and bytes of its files from anywhere.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewarden::pack::{Entry, Pack, PackError, Reader, ReaderSettings, What};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::servers::Failure;

/// Why a pack cannot be read, as Python gets it.
fn failure(path: &Path, error: &PackError) -> Failure {
    let kind = match error {
        PackError::Io(error) => match error.kind() {
            ErrorKind::NotFound => "not_found",
            ErrorKind::PermissionDenied => "permission_denied",
            _ => "io",
        },
        PackError::NotAPack | PackError::Version(_) => "unrecognised",
        PackError::NoBase(_) => "refused",
        _ => "damaged",
    };
    let path = path.to_string_lossy().into_owned();
    (kind, path.clone(), format!("{path}: {error}"))
}

/// An opened pack.
#[pyclass(frozen, module = "pagewarden._pagewarden")]
#[derive(Debug)]
pub struct Packed {
    path: PathBuf,
    reader: Reader,
}

/// A file or a folder: its name, its bytes if it is a file, the BLAKE3 hash of these, its mode.
type Listed = (PathBuf, Option<u64>, Option<String>, u32);

fn listed(entry: &Entry) -> Listed {
    let (bytes, hash) = match &entry.what {
        What::Folder => (None, None),
        What::File { bytes, hash, .. } => {
            (Some(*bytes), Some(hash.iter().map(|byte| format!("{byte:02x}")).collect()))
        }
    };
    (entry.name.clone(), bytes, hash, entry.attributes.mode)
}

#[pymethods]
impl Packed {
    /// What is in it.
    fn entries(&self) -> Vec<Listed> {
        self.reader.pack().entries().iter().map(listed).collect()
    }

    /// By which it is known: the hash of all names, modes and bytes.
    fn root(&self) -> String {
        self.reader.pack().root().to_string()
    }

    /// The report of the check that was made while packing, as JSON.
    fn report<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, Failed> {
        let report = py.detach(|| self.reader.pack().report());
        Ok(PyBytes::new(py, &report.map_err(|error| Failed(failure(&self.path, &error)))?))
    }

    /// Up to `length` bytes of a file, by its place in the list; fewer at its end.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        file: usize,
        offset: u64,
        length: usize,
    ) -> Result<Bound<'py, PyBytes>, Failed> {
        let entry = self.reader.pack().entries().get(file);
        let left = entry.map_or(0, |entry| entry.bytes().saturating_sub(offset));
        let mut out = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let mut done = 0;
        let read = py.detach(|| {
            while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
                match self.reader.read_at(file, offset + done as u64, rest)? {
                    0 => break,
                    count => done += count,
                }
            }
            Ok::<_, PackError>(())
        });
        read.map_err(|error| Failed(failure(&self.path, &error)))?;
        Ok(PyBytes::new(py, out.get(..done).unwrap_or_default()))
    }
}

/// A failure on its way to Python, as an exception with kind, path and message.
#[derive(Debug)]
pub struct Failed(Failure);

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> Self {
        PyRuntimeError::new_err(failed.0)
    }
}

/// A pack with the one that it builds on, if that is known.
fn on(path: &Path, pack: Pack, base: Option<Pack>) -> Result<Pack, Failed> {
    match base {
        None => Ok(pack),
        Some(base) => pack.with_base(base).map_err(|error| Failed(failure(path, &error))),
    }
}

/// Opens a pack, and those that it builds on, each on the next.
#[pyfunction]
pub fn open_pack(py: Python<'_>, path: PathBuf, base: Vec<PathBuf>) -> Result<Packed, Failed> {
    let opened = py.detach(|| {
        let open = |path: &Path| Pack::open(path).map_err(|error| Failed(failure(path, &error)));
        let mut pack = open(&path)?;
        // Each builds on the next.
        let mut deeper: Option<Pack> = None;
        for path in base.iter().rev() {
            deeper = Some(on(path, open(path)?, deeper)?);
        }
        pack = on(&path, pack, deeper)?;
        if let (true, Some(root)) = (pack.lacks_base(), pack.base_root()) {
            return Err(Failed(failure(&path, &PackError::NoBase(root))));
        }
        // What is read one after the other is expanded ahead.
        let settings = ReaderSettings { threads: 2, ..ReaderSettings::default() };
        let reader = Reader::new(Arc::new(pack), settings);
        reader.map_err(|error| Failed(failure(&path, &PackError::Io(error))))
    });
    Ok(Packed { reader: opened?, path })
}

//! What a check would look at, cut into units for a cluster of machines.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewarden_plan::plan::Plan;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::run::{Given, asked};

/// The units of a plan, each a list of subjects, each a list of paths.
#[pyfunction]
pub fn plan_units(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    given: Given,
    unit_bytes: u64,
) -> PyResult<Vec<Vec<Vec<OsString>>>> {
    let wanted = given.wanted()?;
    let stop = Arc::default();
    let stores = given.stores(&paths, &stop);
    let stores = stores.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let stores = stores.as_ref();
    let plan = py.detach(|| Plan::make(&paths, wanted, unit_bytes, &length, asked(stores)));
    let plan = plan.map_err(|error| PyOSError::new_err(error.to_string()))?;
    // As text: `pathlib` makes one slash of the two in an address.
    let text = |path: &Path| path.as_os_str().to_owned();
    let subject = |paths: &mut dyn Iterator<Item = &Path>| paths.map(text).collect();
    let unit = |unit: &pagewarden_plan::plan::Unit| {
        unit.subjects.iter().map(|planned| subject(&mut planned.paths())).collect()
    };
    Ok(plan.units.iter().map(unit).collect())
}

/// About how much there is to read: the lengths of all files of a folder.
fn length(path: &Path) -> Option<u64> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_file() {
        return Some(metadata.len());
    }
    if !metadata.is_dir() {
        return None;
    }
    let below = fs::read_dir(path).ok()?.flatten().filter_map(|entry| length(&entry.path()));
    Some(below.fold(0, u64::saturating_add))
}

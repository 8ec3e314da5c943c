//! What a check would look at, cut into units for a cluster of machines.

use std::fs;
use std::path::{Path, PathBuf};

use pagewarden_plan::plan::Plan;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::run::Given;

/// The units of a plan, each a list of subjects, each a list of paths.
#[pyfunction]
pub fn plan_units(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    given: Given,
    unit_bytes: u64,
) -> PyResult<Vec<Vec<Vec<PathBuf>>>> {
    let wanted = given.wanted()?;
    let plan = py.detach(|| Plan::make(&paths, wanted, unit_bytes, &length, &ThisMachine));
    let plan = plan.map_err(|error| PyOSError::new_err(error.to_string()))?;
    let subject = |paths: &mut dyn Iterator<Item = &Path>| paths.map(Path::to_owned).collect();
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

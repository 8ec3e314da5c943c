//! Pagewarden as a Python module: `pagewarden._pagewarden`, which `pagewarden/__init__.py` wraps.
//!
//! A run happens in a thread of its own, without Python's lock. The thread that called waits for it,
//! looks for Ctrl-C, and reports progress. What was found is handed over when all is known: JSON, and
//! tables as Arrow streams by the PyCapsule interface, which no Python package is needed for.

use pyo3::prelude::*;

mod capsule;
mod elsewhere;
mod making;
mod pack;
mod run;
mod runs;
mod servers;
mod tables;
mod units;
mod wait;

/// The functions and classes that `pagewarden/__init__.py` wraps.
#[pymodule]
fn _pagewarden(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", pagewarden::VERSION)?;
    let formats: Vec<_> = pagewarden::formats::FORMATS.iter().map(|format| format.name).collect();
    module.add("FORMATS", formats)?;
    module.add_class::<run::Checked>()?;
    module.add_class::<elsewhere::Worker>()?;
    module.add_class::<pack::Packed>()?;
    module.add_function(wrap_pyfunction!(pack::open_pack, module)?)?;
    module.add_function(wrap_pyfunction!(making::pack, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(units::plan_units, module)?)?;
    module.add_function(wrap_pyfunction!(elsewhere::whole_task, module)?)?;
    module.add_function(wrap_pyfunction!(elsewhere::compare_elsewhere, module)?)?;
    module.add_function(wrap_pyfunction!(servers::compare, module)?)?;
    module.add_function(wrap_pyfunction!(servers::checksums, module)?)
}

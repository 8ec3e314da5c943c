//! Arrow's batches out of what other libraries hand over, by the PyCapsule interface.

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The batches of what has `__arrow_c_stream__`.
pub fn batches(of: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let capsule = of.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds such a stream, by the PyCapsule interface of Arrow; it is
    // moved out, which leaves a released one behind.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) };
    RecordBatchStreamReader::try_new(stream)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

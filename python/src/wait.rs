//! Work in a thread of its own, without Python's lock; the thread that called waits for it, looks for
//! Ctrl-C, and reports progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often Ctrl-C is looked for, and progress reported.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is called when the caller ends the work, so that others end theirs.
pub type Ended<'a> = &'a dyn Fn(Python<'_>) -> PyResult<()>;

/// Waits for `work`, which ends soon once `stop` is set and `ended` was called. `tell` reports progress; what it raises ends
/// the work, as Ctrl-C does.
pub fn for_work<T: Send + 'static>(
    py: Python<'_>,
    (stop, ended): (&Arc<AtomicBool>, Ended<'_>),
    tell: &mut dyn FnMut(Python<'_>) -> PyResult<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (send, receive) = mpsc::channel();
    let run = move || {
        // If the other side is gone, so is the interest in it.
        let _ = send.send(work());
    };
    // A receiver cannot be shared with other threads, and Python's lock is given back meanwhile.
    let receive = Mutex::new(receive);
    let thread = std::thread::Builder::new().name("pagewarden".to_owned()).spawn(run)?;
    loop {
        let wait = || {
            let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
            receive.recv_timeout(LOOK_EVERY)
        };
        match py.detach(wait) {
            Ok(done) => {
                tell(py)?;
                return Ok(done);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the work ended without a result"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(error) = py.check_signals().and_then(|()| tell(py)) {
            stop.store(true, Ordering::Relaxed);
            // The caller learns why it was ended, not what went wrong with others.
            let _ = ended(py);
            // The thread ends soon, and must not read on behind the caller's back.
            let _ = py.detach(|| thread.join());
            return Err(error);
        }
    }
}

/// What tells the caller how much was done, whenever that has changed.
pub fn teller(
    progress: Option<Py<PyAny>>,
    done: impl Fn() -> u64,
) -> impl FnMut(Python<'_>) -> PyResult<()> {
    let mut told = 0;
    move |py| {
        let now = done();
        match &progress {
            Some(progress) if now != told => {
                told = now;
                progress.call1(py, (now,)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

//! The thread that drives all requests.
//!
//! A connection is driven by the runtime that opened it, so there is one runtime, and it lives as
//! long as the run.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a waiting thread does not look whether to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct IoThread {
    handle: Handle,
    /// Dropping it ends the thread.
    _alive: oneshot::Sender<()>,
}

impl IoThread {
    pub(crate) fn begin() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("storage".to_owned()).spawn(move || {
            // An error is what comes when the other end is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { handle, _alive: alive })
    }

    /// Begins something, and does not wait for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle.spawn(work)
    }

    /// Does something and waits for it; `None` if `stop` was set meanwhile.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        stop: &AtomicBool,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        let task = self.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                Err(_) => {
                    task.abort();
                    return None;
                }
            }
        }
    }
}

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

    /// Begins something whose result is wanted later. It is given up if that is dropped.
    pub(crate) fn begin_work<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Begun<T> {
        let (sender, result) = mpsc::channel();
        let task = self.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        Begun { result, task }
    }

    /// Does something and waits for it; `None` if `stop` was set meanwhile.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        stop: &AtomicBool,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.begin_work(work).wait(stop)
    }
}

/// Something that the thread does.
#[derive(Debug)]
pub(crate) struct Begun<T> {
    result: mpsc::Receiver<T>,
    task: JoinHandle<()>,
}

impl<T> Begun<T> {
    /// Waits for the result; `None` if `stop` was set meanwhile.
    pub(crate) fn wait(self, stop: &AtomicBool) -> Option<T> {
        loop {
            match self.result.recv_timeout(PATIENCE) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                Err(_) => return None,
            }
        }
    }
}

impl<T> Drop for Begun<T> {
    fn drop(&mut self) {
        // Nothing happens to what has ended.
        self.task.abort();
    }
}

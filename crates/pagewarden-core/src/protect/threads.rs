//! Threads that share a work, and end it together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// See the module.
#[derive(Debug)]
pub struct Threads<'a> {
    /// Set from outside to end the work early.
    stop: &'a AtomicBool,
    has_failed: AtomicBool,
    /// The first error, which ends the work of all.
    failed: Mutex<Option<Error>>,
}

impl<'a> Threads<'a> {
    /// Work that ends early once `stop` is set.
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { stop, has_failed: AtomicBool::new(false), failed: Mutex::default() }
    }

    /// True if `stop` is set, or a thread of the work has failed.
    pub fn must_stop(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Has `count` threads do `work`, which shares it out itself; the first error.
    pub fn run(
        &self,
        count: usize,
        work: impl Fn() -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    if let Err(error) = work() {
                        self.has_failed.store(true, Ordering::Relaxed);
                        lock(&self.failed).get_or_insert(error);
                    }
                });
            }
        });
        lock(&self.failed).take().map_or(Ok(()), Err)
    }
}

/// What a thread left that panicked while it held the lock is whole all the same: what is done
/// under a lock here is put down at its end, in a few assignments.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn first_error_ends_the_work_of_all() {
        let stop = AtomicBool::new(false);
        let threads = Threads::new(&stop);
        let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let result = threads.run(4, || {
            if next.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(Error::refused(Path::new("file"), "reason", "hint"));
            }
            while !threads.must_stop() {
                std::thread::yield_now();
            }
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        assert!(result.unwrap_err().to_string().contains("reason"));
        assert_eq!(ended.into_inner(), 3);
    }

    #[test]
    fn wish_to_stop_is_no_error() {
        let stop = AtomicBool::new(true);
        let threads = Threads::new(&stop);
        assert!(threads.must_stop());
        threads.run(2, || Ok(())).unwrap();
    }
}

//! What will be wanted soon, on its way: small objects, the beginnings of others, lists of folders. A store
//! takes as long for a page as for many, and answers many requests at the same time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::path::Path as Key;

use crate::io_thread::Begun;

/// What is on its way, or here and not taken yet. The oldest is given up first.
const EXPECTED_MAX: usize = 64;
/// Bytes of an object: all together are 16 MiB at most.
pub(crate) const EXPECTED_BYTES_MAX: u64 = 256 << 10;
/// Bytes of a beginning: all together are 64 MiB at most.
pub(crate) const BEGIN_BYTES_MAX: usize = 1 << 20;

type Coming<T> = Begun<io::Result<T>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Expected<T>(Mutex<VecDeque<(Key, Coming<T>)>>);

impl<T> Default for Expected<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Expected<T> {
    fn all(&self) -> MutexGuard<'_, VecDeque<(Key, Coming<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to fetch it, unless that was done.
    pub(crate) fn add(&self, key: &Key, begin: impl FnOnce() -> Coming<T>) {
        let mut all = self.all();
        if all.iter().any(|(other, _)| other == key) {
            return;
        }
        if all.len() >= EXPECTED_MAX {
            all.pop_front();
        }
        all.push_back((key.clone(), begin()));
    }

    /// What was begun, for the one who wants it.
    pub(crate) fn take(&self, key: &Key) -> Option<Coming<T>> {
        let mut all = self.all();
        let place = all.iter().position(|(other, _)| other == key)?;
        all.remove(place).map(|(_, begun)| begun)
    }
}

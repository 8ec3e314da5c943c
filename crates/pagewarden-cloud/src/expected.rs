//! Small objects that will be opened soon, on their way: a store takes as long for a page as for many,
//! and answers many requests at the same time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::path::Path as Key;

use crate::io_thread::Begun;
use crate::object::Version;

/// Objects on their way, or here and not opened yet. The oldest are given up first.
const EXPECTED_MAX: usize = 64;
/// Bytes of one: all together are 16 MiB at most.
pub(crate) const EXPECTED_BYTES_MAX: u64 = 256 << 10;

type Beginning = Begun<io::Result<(Version, Vec<u8>)>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Expected(Mutex<VecDeque<(Key, Beginning)>>);

impl Expected {
    fn all(&self) -> MutexGuard<'_, VecDeque<(Key, Beginning)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to fetch an object, unless that was done.
    pub(crate) fn add(&self, key: &Key, begin: impl FnOnce() -> Beginning) {
        let mut all = self.all();
        if all.iter().any(|(other, _)| other == key) {
            return;
        }
        if all.len() >= EXPECTED_MAX {
            all.pop_front();
        }
        all.push_back((key.clone(), begin()));
    }

    /// What was begun, for the one who opens it.
    pub(crate) fn take(&self, key: &Key) -> Option<Beginning> {
        let mut all = self.all();
        let place = all.iter().position(|(other, _)| other == key)?;
        all.remove(place).map(|(_, begun)| begun)
    }
}

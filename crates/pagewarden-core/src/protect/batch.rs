//! Files that wait for the device together: one sync after another costs less when the first of
//! them has had the file system commit for all.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::protect::threads::lock;

/// How long a file waits at most, once the next one comes.
const TIME_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Batch<T> {
    files_max: usize,
    bytes_max: u64,
    waiting: Mutex<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    files: Vec<T>,
    bytes: u64,
    /// When the first came.
    begun: Option<Instant>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { files: Vec::new(), bytes: 0, begun: None }
    }
}

impl<T> Batch<T> {
    /// A batch of at most this number of files and bytes.
    pub fn new(files_max: usize, bytes_max: u64) -> Self {
        Self { files_max, bytes_max, waiting: Mutex::default() }
    }

    /// Adds a file of `bytes` bytes; gives all that wait when they are worth waiting for.
    pub fn add(&self, file: T, bytes: u64) -> Vec<T> {
        let mut waiting = lock(&self.waiting);
        waiting.files.push(file);
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        let is_young = waiting.begun.get_or_insert_with(Instant::now).elapsed() < TIME_MAX;
        let is_small = waiting.files.len() < self.files_max && waiting.bytes < self.bytes_max;
        if is_young && is_small {
            return Vec::new();
        }
        std::mem::take(&mut *waiting).files
    }

    /// All that wait.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.waiting)).files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_until_they_are_many_or_large() {
        let batch = Batch::new(3, 100);
        assert!(batch.add('a', 10).is_empty() && batch.add('b', 10).is_empty());
        assert_eq!(batch.add('c', 10), ['a', 'b', 'c']);
        assert!(batch.add('d', 10).is_empty());
        assert_eq!(batch.add('e', 90), ['d', 'e']);
        assert!(batch.add('f', 10).is_empty());
        assert_eq!(batch.take(), ['f']);
        assert!(batch.take().is_empty());
    }
}

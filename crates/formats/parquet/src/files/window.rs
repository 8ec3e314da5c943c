//! Bytes of a file that are read once for many small pages.

#![deny(clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;

use pagewarden_core::source::store::StoredFile;

/// Small against a page of the usual size, which is copied out of it in part; large against headers.
const WINDOW_BYTES: usize = 64 << 10;

/// A file with the bytes of it that were read last.
#[derive(Debug)]
pub struct Window {
    file: StoredFile,
    begin: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Of a file.
    #[must_use]
    pub fn new(file: StoredFile) -> Self {
        Self { file, begin: 0, bytes: Vec::new() }
    }

    /// The file, without the bytes.
    #[must_use]
    pub fn into_file(self) -> StoredFile {
        self.file
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &StoredFile {
        &self.file
    }

    /// At least the first `wanted` bytes of `range`, or all of it; fewer only where the file ends.
    ///
    /// # Errors
    /// What the system says.
    pub fn head(&mut self, range: &Range<u64>, wanted: usize) -> io::Result<&[u8]> {
        let available =
            usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let wanted = wanted.min(available);
        if self.held(range.start).len() < wanted {
            self.begin = range.start;
            self.bytes.resize(wanted.max(WINDOW_BYTES).min(available), 0);
            let read = self.file.read_fully(&mut self.bytes, range.start);
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let held = self.held(range.start);
        Ok(held.get(..available).unwrap_or(held))
    }

    /// All bytes of `range`; fewer only where the file ends.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let held = self.held(offset);
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(held.get(..length).unwrap_or(held));
        let filled = bytes.len();
        if filled < length {
            bytes.resize(length, 0);
            let rest = bytes.get_mut(filled..).unwrap_or_default();
            let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            let count = self.file.read_fully(rest, at)?;
            bytes.truncate(filled.saturating_add(count));
        }
        Ok(bytes)
    }

    fn held(&self, offset: u64) -> &[u8] {
        let skipped = offset.checked_sub(self.begin).and_then(|skip| usize::try_from(skip).ok());
        skipped.and_then(|skip| self.bytes.get(skip..)).unwrap_or_default()
    }
}

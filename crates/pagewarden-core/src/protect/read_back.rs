//! Reading what was written back from the device, and not from memory.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::file::{open_regular, read_fully};
use crate::source::residency::forget;

/// A file, read past the page cache if that can be, else after the cache was asked to forget it.
#[derive(Debug)]
pub struct Reader {
    direct: Option<File>,
    cached: File,
    buffer: AlignedBuffer,
}

impl Reader {
    /// Reads up to `bytes_max` at once.
    pub fn open(path: &Path, bytes_max: usize) -> io::Result<Self> {
        Ok(Self {
            direct: open_direct(path),
            cached: open_regular(path)?,
            // What is asked for need not begin and end where direct reads must.
            buffer: AlignedBuffer::new(bytes_max.saturating_add(2 * ALIGNMENT)),
        })
    }

    /// `length` bytes from `offset` on; an error where the file has fewer.
    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let before = offset % ALIGNMENT as u64;
        let skip = usize::try_from(before).unwrap_or(0);
        let span = skip.saturating_add(length).next_multiple_of(ALIGNMENT);
        let begin = offset - before;
        let memory = self.buffer.bytes_mut().get_mut(..span).unwrap_or_default();
        let direct = self.direct.as_ref().map(|file| read_fully(file, memory, begin));
        let count = match direct {
            Some(Ok(count)) => count,
            // Refused only when it comes to reading.
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            Some(Err(_)) | None => {
                self.direct = None;
                forget(&self.cached, &(begin..begin.saturating_add(memory.len() as u64)));
                read_fully(&self.cached, memory, begin)?
            }
        };
        let end = skip.saturating_add(length);
        let bytes = self.buffer.bytes().get(skip..end).filter(|_| count >= end);
        bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> Option<File> {
    crate::source::file::open_direct(path).ok().map(|(file, _)| file)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> Option<File> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_stretch_is_read_and_none_behind_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        for is_direct in [true, false] {
            let mut reader = Reader::open(&path, 12_000).unwrap();
            reader.direct = reader.direct.filter(|_| is_direct);
            for (offset, length) in [(0, 12_000), (4096, 4096), (5000, 7000), (19_999, 1)] {
                let begin = usize::try_from(offset).unwrap();
                assert_eq!(reader.read(offset, length).unwrap(), &bytes[begin..begin + length]);
            }
            let short = reader.read(19_000, 1001).unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}

//! A file that is to take another's place.
//!
//! Blocks are shared with the original where the file system can; else all of it is written,
//! and holes stay holes. It has its name when the device holds all of it and when what was
//! written was read back, past the page cache, and found to be what it should be.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::Path;

use pagewarden_core::crc::crc32c;
use pagewarden_core::error::Error;
use pagewarden_core::protect::Options;
use pagewarden_core::protect::disk::{Disk, Written, remove, sync};
use pagewarden_core::protect::read_back::Reader;
use pagewarden_core::protect::stretches;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::source::rate::RateLimiter;
use pagewarden_core::source::write_back;
use pagewarden_core::system::MetadataExt as _;

/// `st_blocks` counts in these.
const BLOCK_BYTES: u64 = 512;
/// Free bytes that a file system keeps, since others write to it too.
const SPARE_BYTES: u64 = 16 << 20;

/// What it takes to write.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) options: &'a Options,
    pub(super) pace: &'a RateLimiter,
    pub(super) run_bytes: usize,
}

/// See the module.
pub(super) struct Replacement<'a> {
    tools: Tools<'a>,
    pub(super) written: Written,
    /// It has all bytes of the original already.
    is_clone: bool,
    /// What was written, run by run.
    notes: Vec<Note>,
    pub(super) bytes_written: u64,
}

/// A run in which something was written.
struct Note {
    offset: u64,
    length: usize,
    /// CRC-32C of what the run must hold.
    sum: u32,
}

impl<'a> Replacement<'a> {
    /// Makes it at `path`, with all of the original before `offset` in it.
    pub(super) fn begin(
        tools: Tools<'a>,
        path: &Path,
        original: &File,
        offset: u64,
    ) -> Result<Self, Error> {
        let failed = |error| Error::io("copy to", path, error);
        let like = original.metadata().map_err(failed)?;
        remove(tools.disk, path)?;
        let written = tools.disk.create(path, &like).map_err(failed)?;
        let is_clone = tools.disk.share_blocks(&written, original);
        let mut replacement =
            Self { tools, written, is_clone, notes: Vec::new(), bytes_written: 0 };
        let filled = replacement.fill(original, &like, offset);
        if let Err(error) = filled {
            replacement.discard();
            return Err(error);
        }
        Ok(replacement)
    }

    fn fill(&mut self, original: &File, like: &Metadata, end: u64) -> Result<(), Error> {
        if !self.is_clone {
            check_room(&self.written.path, like)?;
        }
        let begun = (|| {
            if !self.is_clone {
                self.tools.disk.set_length(&self.written, like.len())?;
            }
            copy_attributes(original, &self.written.file)?;
            self.tools.disk.set_attributes(&self.written, like)
        })();
        begun.map_err(|error| Error::io("copy to", &self.written.path, error))?;
        if self.is_clone {
            return Ok(());
        }
        let mut buffer = vec![0; self.tools.run_bytes];
        let mut offset = 0;
        while offset < end && !self.tools.options.stop.load(std::sync::atomic::Ordering::Relaxed) {
            let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let Some(bytes) = buffer.get_mut(..length) else { break };
            let count = read_fully(original, bytes, offset)
                .map_err(|error| Error::io("read", &self.written.path, error))?;
            let bytes = bytes.get(..count).filter(|bytes| !bytes.is_empty());
            let Some(bytes) = bytes else { break };
            self.write(original, offset, bytes, &[])?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Writes a run; `changed` are the stretches that are not the original's.
    pub(super) fn write(
        &mut self,
        original: &File,
        offset: u64,
        bytes: &[u8],
        changed: &[Range<usize>],
    ) -> Result<(), Error> {
        let mut stretches = changed.to_vec();
        if !self.is_clone {
            let end = offset + bytes.len() as u64;
            let relative = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            let data = data_in(original, offset..end);
            stretches.extend(data.into_iter().map(|data| relative(data.start)..relative(data.end)));
            stretches = joined(stretches);
        }
        if stretches.is_empty() {
            return Ok(());
        }
        for stretch in &stretches {
            let Some(part) = bytes.get(stretch.clone()) else { continue };
            let at = offset + stretch.start as u64;
            self.tools.pace.pay(part.len() as u64, &self.tools.options.stop);
            self.tools
                .disk
                .write_at(&self.written, part, at)
                .map_err(|error| Error::io("write", &self.written.path, error))?;
            self.bytes_written += part.len() as u64;
        }
        if self.tools.options.sync {
            write_back::begin(&self.written.file, &(offset..offset + bytes.len() as u64));
        }
        if self.tools.options.verify {
            self.notes.push(Note { offset, length: bytes.len(), sum: crc32c(bytes) });
        }
        Ok(())
    }

    /// Waits until the device holds all of it.
    pub(super) fn sync(&self) -> Result<(), Error> {
        sync(self.tools.disk, self.tools.options, &self.written)
    }

    /// Reads what was written back from the device; how many bytes.
    pub(super) fn read_back(&self) -> Result<u64, Error> {
        let path = &self.written.path;
        let failed = |error| Error::io("read back", path, error);
        if self.notes.is_empty() {
            return Ok(0);
        }
        let mut reader = Reader::open(path, self.tools.run_bytes).map_err(failed)?;
        let mut sum = 0_u64;
        for note in &self.notes {
            self.tools.pace.pay(note.length as u64, &self.tools.options.stop);
            let bytes = reader.read(note.offset, note.length).map_err(failed)?;
            if crc32c(bytes) != note.sum {
                return Err(Error::lost_write(
                    path,
                    format!(
                        "{} bytes from {} on do not read back as they were written",
                        note.length, note.offset
                    ),
                    "the device or file system loses writes: check them; the database was not changed",
                ));
            }
            sum += note.length as u64;
        }
        Ok(sum)
    }

    /// Takes it away.
    pub(super) fn discard(self) {
        // If it cannot be, the next run does.
        let _ = self.tools.disk.remove(&self.written.path);
    }
}

/// The stretches of a file that are no holes. Where holes are not told, there are none.
fn data_in(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    let mut data = Vec::new();
    let mut at = range.start;
    while at < range.end {
        if let Some(end) = stretches::hole_end(file, at) {
            at = end;
            continue;
        }
        let end = stretches::data_end(file, at).clamp(at + 1, range.end);
        data.push(at..end);
        at = end;
    }
    data
}

/// Stretches in order, none touching another.
fn joined(mut stretches: Vec<Range<usize>>) -> Vec<Range<usize>> {
    stretches.sort_by_key(|stretch| stretch.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for next in stretches {
        match joined.last_mut().filter(|last| next.start <= last.end) {
            Some(last) => last.end = last.end.max(next.end),
            None => joined.push(next),
        }
    }
    joined
}

/// Refuses where the copy would fill the file system.
fn check_room(path: &Path, like: &Metadata) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(path);
    let Ok(system) = pagewarden_core::system::fs::statvfs(folder) else { return Ok(()) };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let needed = like.blocks().saturating_mul(BLOCK_BYTES).saturating_add(SPARE_BYTES);
    if free >= needed {
        return Ok(());
    }
    Err(Error::no_space(
        path,
        format!(
            "a file is replaced as a whole, which needs {needed} free bytes here, and there are {free}"
        ),
        "make room, or make a changed copy elsewhere (--copy-to)",
    ))
}

/// Access control lists and labels, as far as they may be set.
#[cfg(target_os = "linux")]
fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    use pagewarden_core::system::Errno;
    use pagewarden_core::system::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};

    const BYTES_MAX: usize = 64 << 10;
    let mut names = vec![0_u8; BYTES_MAX];
    let length = match flistxattr(from, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0_u8; BYTES_MAX];
    for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let Ok(length) = fgetxattr(from, name, &mut value) else { continue };
        match fsetxattr(to, name, value.get(..length).unwrap_or_default(), XattrFlags::empty()) {
            // Those of the system are set by it.
            Ok(()) | Err(Errno::PERM | Errno::NOTSUP | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn copy_attributes(_: &File, _: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_joined_in_order() {
        let stretch = |begin, end| begin..end;
        let found = joined(vec![stretch(5, 9), stretch(0, 2), stretch(2, 3), stretch(8, 12)]);
        assert_eq!(found, [stretch(0, 3), stretch(5, 12)]);
    }

    #[test]
    fn holes_are_told_from_data() {
        use pagewarden_core::system::FileExt as _;

        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 256 << 10).unwrap();
        let data = data_in(&file, 0..1 << 20);
        // All of it where holes are not told.
        assert!(data.iter().any(|data| data.contains(&(256 << 10))), "{data:?}");
        assert!(data_in(&file, 0..0).is_empty());
    }
}

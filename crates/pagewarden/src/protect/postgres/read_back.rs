//! Reading back what was written, from the device and not from memory.

use std::fs::File;
use std::path::Path;

use crate::checksum::postgres::{checksum, hash_pages};
use crate::error::Error;
use crate::page::postgres::Header;
use crate::protect::Options;
use crate::protect::disk::Written;
use crate::protect::pace::Pace;
use crate::protect::postgres::pages::{Layout, Marks, RUN_BYTES};
use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::file::{open_regular, read_fully};
use crate::source::residency::forget;

/// Reads what was written and tests every page of it. Past the page cache where
/// the file system allows that, else after the cache was asked to forget it.
/// Gives the bytes that were read.
pub(super) fn read_back(
    target: &Written,
    marks: &Marks,
    first_block: u64,
    layout: Layout,
    pace: &Pace,
    options: &Options,
) -> Result<u64, Error> {
    if marks.written.is_empty() {
        return Ok(0);
    }
    let failed = |error| Error::io("read back", &target.path, error);
    let mut reader = Reader::open(&target.path).map_err(failed)?;
    let mut buffer = AlignedBuffer::new(RUN_BYTES + 2 * ALIGNMENT);
    let mut damaged = marks.damaged.clone();
    damaged.sort_unstable();
    let page = layout.page_size as u64;
    let step = (RUN_BYTES - RUN_BYTES % layout.page_size) as u64;
    let mut sum = 0;
    for stretch in &marks.written {
        let mut begin = stretch.start;
        while begin < stretch.end {
            let end = begin.saturating_add(step).min(stretch.end);
            // The end of a file that ends inside a page was reported already.
            let length = usize::try_from((end - begin) - (end - begin) % page).unwrap_or(0);
            pace.pay(length as u64, &options.stop);
            let bytes = reader.read(&mut buffer, begin, length).map_err(failed)?;
            let block = first_block + begin / page;
            for index in wrong_pages(bytes, block, layout.page_size) {
                let offset = begin + index * page;
                if damaged.binary_search(&offset).is_err() {
                    return Err(Error::unknown(
                        &target.path,
                        format!("block {} does not read back as it was written", block + index),
                        "the device or file system loses writes: check them, and restore this file",
                    ));
                }
            }
            sum += length as u64;
            begin = end;
        }
    }
    Ok(sum)
}

/// Which pages do not carry their checksum; all of them if some are missing.
fn wrong_pages(bytes: &[u8], first_block: u64, page_size: usize) -> Vec<u64> {
    let mut hashes = vec![0; bytes.len() / page_size];
    hash_pages(bytes, page_size, &mut hashes);
    let pages = bytes.chunks_exact(page_size).zip(hashes);
    (0..)
        .zip(pages)
        .filter(|(index, (page, hash))| {
            let block = u32::try_from(first_block + index).unwrap_or(u32::MAX);
            match Header::read(page) {
                Some(header) if header.upper == 0 => page.iter().any(|byte| *byte != 0),
                Some(header) => header.checksum != checksum(*hash, block),
                None => true,
            }
        })
        .map(|(index, _)| index)
        .collect()
}

/// A file, read past the page cache if that can be.
pub(in crate::protect) struct Reader {
    direct: Option<File>,
    cached: File,
}

impl Reader {
    pub(in crate::protect) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { direct: open_direct(path), cached: open_regular(path)? })
    }

    pub(in crate::protect) fn read<'a>(
        &mut self,
        buffer: &'a mut AlignedBuffer,
        offset: u64,
        length: usize,
    ) -> std::io::Result<&'a [u8]> {
        let before = offset % ALIGNMENT as u64;
        let skip = usize::try_from(before).unwrap_or(0);
        let span = (skip + length).next_multiple_of(ALIGNMENT);
        let memory = buffer.bytes_mut().get_mut(..span).unwrap_or_default();
        let count = match &self.direct {
            Some(direct) => match read_fully(direct, memory, offset - before) {
                // Refused only when it comes to reading.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                    self.direct = None;
                    self.read_cached(memory, offset - before)?
                }
                other => other?,
            },
            None => self.read_cached(memory, offset - before)?,
        };
        if count < skip + length {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(buffer.bytes().get(skip..skip + length).unwrap_or_default())
    }

    fn read_cached(&self, memory: &mut [u8], offset: u64) -> std::io::Result<usize> {
        forget(&self.cached, &(offset..offset + memory.len() as u64));
        read_fully(&self.cached, memory, offset)
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

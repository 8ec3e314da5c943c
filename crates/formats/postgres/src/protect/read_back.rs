//! Testing every page that was written, as the device holds it.

use crate::checksum::{checksum, hash_pages};
use crate::page::Header;
use crate::protect::judge::Layout;
use crate::protect::pages::{Marks, RUN_BYTES};
use pagewarden_core::error::Error;
use pagewarden_core::protect::Options;
use pagewarden_core::protect::disk::Written;
use pagewarden_core::protect::read_back::Reader;
use pagewarden_core::source::rate::RateLimiter;

/// Reads what was written and tests every page of it; the bytes that were read.
pub(super) fn read_back(
    target: &Written,
    marks: &Marks,
    first_block: u64,
    layout: Layout,
    pace: &RateLimiter,
    options: &Options,
) -> Result<u64, Error> {
    if marks.written.is_empty() {
        return Ok(0);
    }
    let failed = |error| Error::io("read back", &target.path, error);
    let mut reader = Reader::open(&target.path, RUN_BYTES).map_err(failed)?;
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
            let bytes = reader.read(begin, length).map_err(failed)?;
            let block = first_block + begin / page;
            for index in wrong_pages(bytes, block, layout.page_size) {
                let offset = begin + index * page;
                if damaged.binary_search(&offset).is_err() {
                    return Err(Error::lost_write(
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

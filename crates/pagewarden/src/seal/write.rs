//! Makes a seal while a target is verified.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::database::{PageFile, Step, Target};
use crate::page::standings::Standings;
use crate::page::{Fingerprint, PageFormat, PageRun, Witness};
use crate::seal::{FOOTER_BYTES, HASH_BYTES, Header, MAGIC, VERSION, not_of_archives};
use crate::verdict::PageNo;

/// The level of zstd for LSNs: they shrink to a quarter, at the speed of a disk.
const LEVEL: i32 = 1;

/// A seal that is being made.
pub struct Sealing<W> {
    shared: Arc<Mutex<Inside<W>>>,
}

struct Inside<W> {
    out: W,
    hasher: blake3::Hasher,
    offset: u64,
    index: Vec<u8>,
    files: u64,
    failed: Option<io::Error>,
}

impl<W> fmt::Debug for Sealing<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> Sealing<W> {
    /// Begins a seal of `target` and returns it with the target to verify
    /// instead.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn begin(target: Target, header: &Header, out: W) -> io::Result<(Target, Self)> {
        let json = serde_json::to_vec(header)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut inside = Inside {
            out,
            hasher: blake3::Hasher::new(),
            offset: 0,
            index: Vec::new(),
            files: 0,
            failed: None,
        };
        inside.write(&MAGIC)?;
        inside.write(&VERSION.to_le_bytes())?;
        inside.write(&length.to_le_bytes())?;
        inside.write(&json)?;
        let shared = Arc::new(Mutex::new(inside));
        let sealing = Self { shared: Arc::clone(&shared) };
        let mut said = false;
        let steps = target.steps.map(move |step| match step {
            Step::File(mut file) => {
                file.witnesses.push(Arc::new(FileSeal::new(&file, Arc::clone(&shared))));
                Step::File(file)
            }
            Step::Pages(_) | Step::Apart(_) if !std::mem::replace(&mut said, true) => {
                not_of_archives()
            }
            other => other,
        });
        Ok((Target { steps: Box::new(steps), ..target }, sealing))
    }

    /// Writes what is left to write, once the target was verified, and returns
    /// the writer.
    ///
    /// # Errors
    /// Not all could be written.
    pub fn finish(self) -> io::Result<W> {
        let shared = Arc::try_unwrap(self.shared)
            .map_err(|_| io::Error::other("the seal's files are still being read"))?;
        let mut inside = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = inside.failed.take() {
            return Err(error);
        }
        let begin = inside.offset;
        let bytes = inside.index.len() as u64;
        let index = zstd::bulk::compress(&std::mem::take(&mut inside.index), LEVEL)?;
        inside.write(&index)?;
        let files = inside.files;
        for number in [begin, files, bytes] {
            inside.write(&number.to_le_bytes())?;
        }
        let root = inside.hasher.finalize();
        inside.out.write_all(root.as_bytes())?;
        inside.out.write_all(&MAGIC)?;
        inside.out.flush()?;
        const _: () = assert!(FOOTER_BYTES == 3 * 8 + blake3::OUT_LEN + MAGIC.len());
        Ok(inside.out)
    }
}

impl<W: Write> Inside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)?;
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn add(&mut self, file: &FileFacts, pages: &[Fingerprint]) -> io::Result<()> {
        let begin = self.offset;
        let lsns = zstd::bulk::compress(&packed_lsns(pages), LEVEL)?;
        self.write(&lsns)?;
        let mut hashes = Vec::with_capacity(pages.len().saturating_mul(HASH_BYTES));
        for page in pages {
            hashes.extend(page.hash.to_le_bytes());
        }
        self.write(&hashes)?;
        let name = file.name.as_bytes();
        let index = &mut self.index;
        index.extend(u16::try_from(name.len()).map_err(io::Error::other)?.to_le_bytes());
        index.extend(name);
        index.extend(file.length.to_le_bytes());
        index.extend(file.first_page.0.to_le_bytes());
        index.extend((pages.len() as u64).to_le_bytes());
        index.extend(begin.to_le_bytes());
        index.extend(u32::try_from(lsns.len()).map_err(io::Error::other)?.to_le_bytes());
        self.files = self.files.saturating_add(1);
        Ok(())
    }
}

/// Each LSN as the difference to the one before: neighbours were mostly written
/// one after the other.
fn packed_lsns(pages: &[Fingerprint]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(pages.len().saturating_mul(2));
    let mut last = 0_u64;
    for page in pages {
        let difference = page.lsn.wrapping_sub(last).cast_signed();
        let mut zigzag = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        while zigzag >= 0x80 {
            packed.push(zigzag.to_le_bytes()[0] | 0x80);
            zigzag >>= 7;
        }
        packed.push(zigzag.to_le_bytes()[0]);
        last = page.lsn;
    }
    packed
}

struct FileFacts {
    name: String,
    length: u64,
    first_page: PageNo,
}

/// Takes the fingerprints of one file's pages, and writes them when the last of
/// them was seen, which is when no thread holds the file any more.
struct FileSeal<W: Write> {
    facts: FileFacts,
    format: Arc<dyn PageFormat>,
    pages: Mutex<Vec<Fingerprint>>,
    shared: Arc<Mutex<Inside<W>>>,
}

impl<W: Write> fmt::Debug for FileSeal<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSeal").field("file", &self.facts.name).finish_non_exhaustive()
    }
}

/// An empty page, and a place that was not filled.
const EMPTY: Fingerprint = Fingerprint { lsn: 0, hash: 0 };

impl<W: Write> FileSeal<W> {
    fn new(file: &PageFile, shared: Arc<Mutex<Inside<W>>>) -> Self {
        let facts = FileFacts {
            name: file.name.clone(),
            length: file.listed_bytes,
            first_page: file.first_page,
        };
        Self { facts, format: Arc::clone(&file.format), pages: Mutex::default(), shared }
    }
}

impl<W: Write + Send> Witness for FileSeal<W> {
    fn see(&self, run: PageRun<'_>, _: &Standings) {
        let fingerprints: Vec<_> = run
            .bytes
            .chunks_exact(self.format.page_size())
            .map(|page| fingerprint(&*self.format, page))
            .collect();
        let begin = run.first.0.saturating_sub(self.facts.first_page.0);
        let Ok(begin) = usize::try_from(begin) else { return };
        let end = begin.saturating_add(fingerprints.len());
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() < end {
            pages.resize(end, EMPTY);
        }
        if let Some(place) = pages.get_mut(begin..end) {
            place.copy_from_slice(&fingerprints);
        }
    }
}

/// The fingerprint of a page, which is known to be sound or empty.
pub(super) fn fingerprint(format: &dyn PageFormat, page: &[u8]) -> Fingerprint {
    if page.iter().all(|byte| *byte == 0) { EMPTY } else { format.fingerprint(page) }
}

impl<W: Write> Drop for FileSeal<W> {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let pages = pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut inside = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.failed.is_none()
            && let Err(error) = inside.add(&self.facts, &pages)
        {
            inside.failed = Some(error);
        }
    }
}

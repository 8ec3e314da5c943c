//! Writes a pack, from its beginning to its end.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pack::codec::{Codec, Encoder, Settings};
use crate::pack::layout::{
    BlockEntry, Footer, Header, LEAF_SPANS, Section, file_record, span_bytes, span_count, span_head,
};
use crate::pack::table::{Entry, What};
use crate::pack::tree::{Hash, file_hash, span_hash};
use crate::pack::{crc, table};

/// Of zstd, for the table and the report.
const LEVEL: i32 = 9;

/// How much went into a pack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files, without folders.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Blocks that shrank.
    pub compressed_blocks: u64,
    /// Blocks that did not, and are stored as they are.
    pub raw_blocks: u64,
    /// Blocks of nothing but zeroes.
    pub zero_blocks: u64,
    /// Bytes of the pack.
    pub stored_bytes: u64,
}

/// Writes spans, which may come from several threads and in any order.
pub(super) struct Writer<W> {
    settings: Settings,
    entries: Vec<Entry>,
    inside: Mutex<Inside<W>>,
}

struct Inside<W> {
    out: W,
    position: u64,
    totals: Totals,
    /// Of each file its spans; of a folder none.
    spans: Vec<Vec<Option<Span>>>,
}

/// A span that was written.
struct Span {
    /// Where its record begins; 0 for none.
    begin: u64,
    blocks: Box<[BlockEntry]>,
    hash: Hash,
}

/// What one thread needs to add spans.
#[derive(Debug)]
pub(super) struct Scratch {
    encoder: Encoder,
    stored: Vec<u8>,
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A thread that panicked has ended the run.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Write> Writer<W> {
    /// Begins a pack of these files and folders, whose lengths are settled.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(super) fn begin(out: W, settings: Settings, entries: Vec<Entry>) -> io::Result<Self> {
        let dictionary_bytes =
            u32::try_from(settings.dictionary.len()).map_err(io::Error::other)?;
        let header = Header {
            block_bytes: settings.block_bytes,
            dictionary_bytes,
            dictionary_crc: crc(&settings.dictionary),
        };
        let mut inside = Inside { out, position: 0, totals: Totals::default(), spans: Vec::new() };
        inside.write(&header.to_bytes())?;
        inside.write(&settings.dictionary)?;
        for (number, entry) in (0..).zip(&entries) {
            inside.write(&file_record(number, &entry.to_bytes(false)))?;
            let spans = span_count(entry.bytes());
            let spans = usize::try_from(spans).map_err(io::Error::other)?;
            inside.spans.push((0..spans).map(|_| None).collect());
            if entry.what != What::Folder {
                inside.totals.files += 1;
                inside.totals.bytes = inside.totals.bytes.saturating_add(entry.bytes());
            }
        }
        Ok(Self { settings, entries, inside: Mutex::new(inside) })
    }

    /// What a thread needs that adds spans.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn scratch(&self) -> io::Result<Scratch> {
        Ok(Scratch { encoder: Encoder::new(&self.settings)?, stored: Vec::new() })
    }

    /// Bytes of a span of a file; 0 if it has none such.
    pub(super) fn span_bytes(&self, file: usize, span: u64) -> usize {
        self.entries.get(file).map_or(0, |entry| span_bytes(entry.bytes(), span))
    }

    /// Which spans of a file are still to come.
    pub(super) fn missing(&self, file: usize) -> Vec<u64> {
        let inside = lock(&self.inside);
        let spans = inside.spans.get(file).into_iter().flatten();
        (0..).zip(spans).filter_map(|(span, there)| there.is_none().then_some(span)).collect()
    }

    /// Adds a whole span. One that is there already is left as it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(
        &self,
        scratch: &mut Scratch,
        file: usize,
        span: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let Scratch { encoder, stored } = scratch;
        let file_bytes = self.entries.get(file).map_or(0, Entry::bytes);
        let block_bytes = usize::try_from(self.settings.block_bytes).map_err(io::Error::other)?;
        stored.clear();
        let blocks = bytes.chunks(block_bytes).map(|block| encoder.encode(block, stored));
        let blocks = blocks.collect::<io::Result<Box<[_]>>>()?;
        let hash = span_hash(span, span_count(file_bytes), bytes);
        let numbers = (u32::try_from(file), u32::try_from(span), usize::try_from(span));
        let (Ok(file_number), Ok(span_number), Ok(index)) = numbers else {
            return Err(io::Error::other("more files or longer ones than a pack can hold"));
        };
        let mut inside = lock(&self.inside);
        let place = inside.spans.get(file).and_then(|spans| spans.get(index));
        if !matches!(place, Some(None)) {
            return Ok(());
        }
        let mut begin = 0;
        if blocks.iter().any(|block| block.codec != Codec::Zero) {
            begin = inside.position;
            inside.write(&span_head(file_number, span_number, &blocks))?;
            inside.write(stored)?;
        }
        for block in &blocks {
            let totals = &mut inside.totals;
            let count = match block.codec {
                Codec::Zero => &mut totals.zero_blocks,
                Codec::Raw => &mut totals.raw_blocks,
                _ => &mut totals.compressed_blocks,
            };
            *count = count.saturating_add(1);
        }
        if let Some(place) = inside.spans.get_mut(file).and_then(|spans| spans.get_mut(index)) {
            *place = Some(Span { begin, blocks, hash });
        }
        Ok(())
    }

    /// Writes the end, with the report of what was found on the way. Returns the
    /// writer and the root.
    ///
    /// # Errors
    /// A span is missing, or it cannot be written.
    pub(super) fn finish(self, report: &[u8]) -> io::Result<(W, Hash, Totals)> {
        let mut inside = self.inside.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.entries;
        let index = inside.position;
        let mut leaf = Vec::new();
        let mut in_leaf = 0;
        for (spans, entry) in std::mem::take(&mut inside.spans).into_iter().zip(&mut entries) {
            let mut hashes = Vec::with_capacity(spans.len());
            for span in spans {
                let missing = || io::Error::other("not every byte was packed");
                let span = span.ok_or_else(missing)?;
                leaf.extend(span.begin.to_le_bytes());
                leaf.extend(span.blocks.iter().flat_map(|block| block.to_bytes()));
                hashes.push(span.hash);
                in_leaf += 1;
                if in_leaf == LEAF_SPANS {
                    inside.write_leaf(&mut leaf)?;
                    in_leaf = 0;
                }
            }
            if let What::File { hash, .. } = &mut entry.what {
                *hash = file_hash(&hashes);
            }
        }
        if in_leaf > 0 {
            inside.write_leaf(&mut leaf)?;
        }
        let table = table::to_bytes(&entries);
        let root = *blake3::hash(&table).as_bytes();
        let table = inside.write_section(&table)?;
        let report = inside.write_section(report)?;
        inside.write(&Footer { index, table, report, root }.to_bytes())?;
        inside.out.flush()?;
        inside.totals.stored_bytes = inside.position;
        Ok((inside.out, root, inside.totals))
    }
}

impl<W: Write> Inside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.position = self.position.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn write_leaf(&mut self, leaf: &mut Vec<u8>) -> io::Result<()> {
        leaf.extend(crc(leaf).to_le_bytes());
        self.write(leaf)?;
        leaf.clear();
        Ok(())
    }

    fn write_section(&mut self, bytes: &[u8]) -> io::Result<Section> {
        let stored = zstd::bulk::compress(bytes, LEVEL)?;
        let section = Section {
            begin: self.position,
            stored_bytes: stored.len() as u64,
            bytes: bytes.len() as u64,
            crc: crc(&stored),
        };
        self.write(&stored)?;
        Ok(section)
    }
}

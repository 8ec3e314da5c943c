//! Writes a pack, from its beginning to its end.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::pack::codec::{Codec, Encoder, Settings, block_sum};
use crate::pack::layout::{
    BlockEntry, Footer, Header, LEAF_SPANS, Section, file_record, span_bytes, span_count, span_head,
};
use crate::pack::lock;
use crate::pack::read::{Kept, Pack};
use crate::pack::table::{Entry, UNKNOWN_BYTES, What};
use crate::pack::tree::{Hash, file_hash, span_hash};
use crate::pack::{PackError, SPAN_BYTES, VERSION, VERSION_PLAIN, crc, table};

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
    /// Blocks of a delta that are as they are in its base.
    pub base_blocks: u64,
    /// Bytes of the pack.
    pub stored_bytes: u64,
}

/// Writes spans, which may come from several threads and in any order.
pub(super) struct Writer<W> {
    settings: Settings,
    entries: Vec<Entry>,
    base: Option<Base>,
    inside: Mutex<Inside<W>>,
}

/// What a delta builds on.
struct Base {
    pack: Arc<Pack>,
    /// For each entry its file in the base.
    files: Vec<Option<usize>>,
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
    /// For reading the base.
    kept: Kept,
    block: Vec<u8>,
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a pack of these files and folders, whose lengths are settled, but for
    /// one that comes as a stream.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub(super) fn begin(out: W, settings: Settings, entries: Vec<Entry>) -> io::Result<Self> {
        Self::begin_delta(out, settings, entries, None)
    }

    /// The same; with a base it is a delta to that.
    ///
    /// # Errors
    /// As [`Writer::begin`].
    pub(super) fn begin_delta(
        out: W,
        settings: Settings,
        entries: Vec<Entry>,
        base: Option<Arc<Pack>>,
    ) -> io::Result<Self> {
        let dictionary_bytes =
            u32::try_from(settings.dictionary.len()).map_err(io::Error::other)?;
        let is_plain = base.is_none()
            && entries.iter().all(|entry| entry.link.is_none() && entry.bytes() != UNKNOWN_BYTES);
        let header = Header {
            version: if is_plain { VERSION_PLAIN } else { VERSION },
            block_bytes: settings.block_bytes,
            dictionary_bytes,
            dictionary_crc: crc(&settings.dictionary),
            base: base.as_ref().map(|base| base.root().0),
        };
        let mut inside = Inside { out, position: 0, totals: Totals::default(), spans: Vec::new() };
        inside.write(&header.to_bytes())?;
        inside.write(&settings.dictionary)?;
        for (number, entry) in (0..).zip(&entries) {
            inside.write(&file_record(number, &entry.to_bytes(false)))?;
            let bytes = if entry.bytes() == UNKNOWN_BYTES { 0 } else { entry.bytes() };
            let spans = usize::try_from(span_count(bytes)).map_err(io::Error::other)?;
            inside.spans.push((0..spans).map(|_| None).collect());
            if entry.what != What::Folder {
                inside.totals.files += 1;
                inside.totals.bytes = inside.totals.bytes.saturating_add(bytes);
            }
        }
        let base = base.map(|pack| Base { files: pack.files_named(&entries), pack });
        Ok(Self { settings, entries, base, inside: Mutex::new(inside) })
    }

    /// What a thread needs that adds spans.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn scratch(&self) -> io::Result<Scratch> {
        Ok(Scratch {
            encoder: Encoder::new(&self.settings)?,
            stored: Vec::new(),
            kept: Kept::default(),
            block: Vec::new(),
        })
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
        let file_bytes = self.entries.get(file).map_or(0, Entry::bytes);
        self.add_of(scratch, (file, span), span_count(file_bytes), bytes)
    }

    /// Adds the next span of a file that comes as a stream; `is_all` if it is the
    /// only one.
    ///
    /// # Errors
    /// As [`Writer::add`].
    pub(super) fn add_streamed(
        &self,
        scratch: &mut Scratch,
        span: u64,
        is_all: bool,
        bytes: &[u8],
    ) -> io::Result<()> {
        {
            let index = usize::try_from(span).map_err(io::Error::other)?;
            let mut inside = lock(&self.inside);
            inside.totals.bytes = inside.totals.bytes.saturating_add(bytes.len() as u64);
            let Some(spans) = inside.spans.first_mut() else { return Ok(()) };
            while spans.len() <= index {
                spans.push(None);
            }
        }
        // All that matters is whether there are several.
        self.add_of(scratch, (0, span), if is_all { 1 } else { u64::MAX }, bytes)
    }

    fn add_of(
        &self,
        scratch: &mut Scratch,
        (file, span): (usize, u64),
        spans: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        scratch.stored.clear();
        let blocks = self.encode(scratch, file, span, bytes)?;
        let stored = &scratch.stored;
        let hash = span_hash(span, spans, bytes);
        let numbers = (u32::try_from(file), u32::try_from(span), usize::try_from(span));
        let (Ok(file_number), Ok(span_number), Ok(index)) = numbers else {
            return Err(io::Error::other("more files or longer ones than a pack can hold"));
        };
        let mut inside = lock(&self.inside);
        let place = inside.spans.get(file).and_then(|spans| spans.get(index));
        if !matches!(place, Some(None)) {
            return Ok(());
        }
        // Also of a span that is not stored: a pack that was cut must tell it from
        // one that is lost.
        let begin = inside.position;
        inside.write(&span_head(file_number, span_number, &blocks))?;
        inside.write(stored)?;
        for block in &blocks {
            let totals = &mut inside.totals;
            let count = match block.codec {
                Codec::Zero => &mut totals.zero_blocks,
                Codec::Raw => &mut totals.raw_blocks,
                Codec::Base => &mut totals.base_blocks,
                _ => &mut totals.compressed_blocks,
            };
            *count = count.saturating_add(1);
        }
        if let Some(place) = inside.spans.get_mut(file).and_then(|spans| spans.get_mut(index)) {
            *place = Some(Span { begin, blocks, hash });
        }
        Ok(())
    }

    /// The blocks of a span: those that the base has are not stored. What decides is
    /// their bytes: a sum that is the same is only a reason to compare them.
    fn encode(
        &self,
        scratch: &mut Scratch,
        file: usize,
        span: u64,
        bytes: &[u8],
    ) -> io::Result<Box<[BlockEntry]>> {
        let Scratch { encoder, stored, kept, block: known } = scratch;
        let block_bytes = usize::try_from(self.settings.block_bytes).map_err(io::Error::other)?;
        let blocks = bytes.chunks(block_bytes);
        let Some((base, number)) = self
            .base
            .as_ref()
            .filter(|base| base.pack.block_bytes() == block_bytes)
            .and_then(|base| Some((base, base.files.get(file).copied().flatten()?)))
        else {
            return blocks.map(|block| encoder.encode(block, stored)).collect();
        };
        let first = span.saturating_mul((SPAN_BYTES / block_bytes) as u64);
        let mut contents = base.pack.contents_with(std::mem::take(kept));
        let entries = (first..).zip(blocks).map(|(index, block)| {
            let sum = block_sum(block);
            let may_be_same = sum.is_some() && base.pack.block_sum(number, index) == Some(sum);
            if may_be_same {
                let read = contents.block(number, index, known);
                read.map_err(|error| damaged_base(&base.pack, error))?;
                if known.as_slice() == block {
                    let crc = sum.unwrap_or_default();
                    return Ok(BlockEntry { codec: Codec::Base, stored_bytes: 0, crc });
                }
            }
            encoder.encode(block, stored)
        });
        let entries = entries.collect();
        *kept = contents.into_kept();
        entries
    }

    /// Writes the end of a pack of one file that came as a stream, and turned out to
    /// be so long.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub(super) fn finish_streamed(
        mut self,
        length: u64,
        report: &[u8],
    ) -> io::Result<(W, Hash, Totals)> {
        if let Some(entry) = self.entries.first_mut() {
            if let What::File { bytes, .. } = &mut entry.what {
                *bytes = length;
            }
            let record = file_record(0, &entry.to_bytes(false));
            lock(&self.inside).write(&record)?;
        }
        self.finish(report)
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

fn damaged_base(base: &Pack, error: PackError) -> io::Error {
    match error {
        PackError::Io(error) => error,
        source => io::Error::other(PackError::Base { root: base.root(), source: Box::new(source) }),
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

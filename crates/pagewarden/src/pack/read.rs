//! Reads packs, whole or a block here and there. What a pack says of itself is
//! not believed before it was tested: lengths against the pack's own, blocks by
//! their sums.

use std::collections::HashMap;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pagewarden_core::system::Identity;
use pagewarden_core::system::fs::Advice;

use crate::pack::codec::{Codec, Decoder};
use crate::pack::file::PackFile;
use crate::pack::layout::{
    BLOCK_ENTRY_BYTES, BlockEntry, FOOTER_BYTES, Fields, Footer, HEADER_BYTES_MAX, Header,
    LEAF_SPANS, SPAN_HEAD_BYTES, Section, file_record, span_bytes, span_count, span_head,
};
use crate::pack::table::{self, Entry, UNKNOWN_BYTES, What};
use crate::pack::{PackError, SPAN_BYTES, VERSION_PLAIN, crc};
use crate::source::file::open_regular;
use crate::source::store::StorePath;

/// More is no table: it would be of some ten million files.
const TABLE_BYTES_MAX: u64 = 2 << 30;
/// More is no report: it is kept in memory when it is asked for.
const REPORT_BYTES_MAX: u64 = 1 << 30;
/// What a section may expand to: this multiple of its bytes, past the first mebibytes. No
/// table and no report shrinks by more, but a bomb does. A table holds a hash and a time for
/// nearly each of its files, which do not shrink at all.
const TABLE_RATIO_MAX: u64 = 32;
const REPORT_RATIO_MAX: u64 = 128;
const RATIO_FREE_BYTES: u64 = 16 << 20;
const SUM_BYTES: u64 = size_of::<u64>() as u64;
const NO_SPAN: PackError = PackError::Hostile("there is no such span");

/// What a pack is known by: who knows it knows every byte and every name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root(pub [u8; 32]);

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A tablespace of a PostgreSQL cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PackedTablespace {
    /// What the cluster calls it.
    pub name: String,
    /// The folder in it with the files of the cluster's version.
    pub folder: PathBuf,
}

/// A pack that is open.
#[derive(Debug)]
pub struct Pack {
    file: PackFile,
    pack_bytes: u64,
    header: Header,
    block_bytes: usize,
    dictionary: Arc<[u8]>,
    entries: Vec<Entry>,
    /// Of each entry, counted over all entries before it.
    first_spans: Vec<u64>,
    root: Root,
    index: u64,
    report: Section,
    leaves: Vec<LeafPlace>,
    /// What the records say of spans that the index cannot tell of: for salvage.
    found: HashMap<(u32, u32), SpanPlace>,
    base: Option<Base>,
}

/// What a delta builds on.
#[derive(Debug)]
struct Base {
    pack: Box<Pack>,
    /// For each entry of the delta its file in the base.
    files: Vec<Option<usize>>,
}

/// What a pack that was cut says of itself, by its records.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) header: Header,
    pub(super) dictionary: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    pub(super) found: HashMap<(u32, u32), SpanPlace>,
}

/// A leaf of the index, read when it is first wanted.
#[derive(Debug)]
struct LeafPlace {
    begin: u64,
    bytes: u64,
    leaf: OnceLock<Vec<SpanPlace>>,
}

/// Where a span is, and how its blocks are stored.
#[derive(Debug)]
pub(super) struct SpanPlace {
    /// 0 for nothing but zeroes, without a record.
    pub(super) begin: u64,
    pub(super) blocks: Box<[BlockEntry]>,
}

impl SpanPlace {
    /// Where a block of it is stored.
    pub(super) fn block_begin(&self, within: usize) -> u64 {
        // At most 256 times three bytes: that does not overflow.
        let before = self.blocks.iter().take(within);
        let skipped: u64 = before.map(|entry| u64::from(entry.stored_bytes)).sum();
        let head = SPAN_HEAD_BYTES + self.blocks.len() * BLOCK_ENTRY_BYTES;
        self.begin.saturating_add(head as u64).saturating_add(skipped)
    }
}

impl Pack {
    /// Opens a pack. Its blocks are not looked at yet.
    ///
    /// # Errors
    /// It is no pack, or not all of one, or its table is damaged.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        Self::of(PackFile::Here(open_regular(path)?))
    }

    /// Opens a pack of a store, of which only what is asked for is read.
    ///
    /// # Errors
    /// As [`Pack::open`].
    pub fn open_in(place: &StorePath) -> Result<Self, PackError> {
        Self::of(PackFile::open(place)?)
    }

    fn of(file: PackFile) -> Result<Self, PackError> {
        let pack_bytes = file.length()?;
        let header = read_header(&file, pack_bytes)?;
        let begin = pack_bytes.checked_sub(FOOTER_BYTES as u64).ok_or(PackError::Cut)?;
        let footer = Footer::parse(&read_range(&file, begin, FOOTER_BYTES as u64)?, pack_bytes)?;
        let dictionary_bytes = u64::from(header.dictionary_bytes);
        if dictionary_bytes > footer.index.saturating_sub(header.bytes()) {
            return Err(PackError::Hostile("its dictionary does not lie within it"));
        }
        let dictionary = read_range(&file, header.bytes(), dictionary_bytes)?;
        if crc(&dictionary) != header.dictionary_crc {
            return Err(PackError::Damaged { part: "dictionary", offset: header.bytes() });
        }
        let bytes = section(&file, footer.table, (TABLE_BYTES_MAX, TABLE_RATIO_MAX), "table")?;
        if blake3::hash(&bytes) != footer.root {
            return Err(PackError::Damaged { part: "table", offset: footer.table.begin });
        }
        let entries = table::parse(&bytes)?;
        let block_bytes = usize::try_from(header.block_bytes).map_err(io::Error::other)?;
        let mut pack = Self {
            file,
            pack_bytes,
            header,
            block_bytes,
            dictionary: dictionary.into(),
            entries,
            first_spans: Vec::new(),
            root: Root(footer.root),
            index: footer.index,
            report: footer.report,
            leaves: Vec::new(),
            found: HashMap::new(),
            base: None,
        };
        pack.place_leaves(footer.index, footer.table.begin)?;
        Ok(pack)
    }

    /// A pack without an end, by its records.
    pub(super) fn of_records(file: PackFile, recorded: Recorded) -> io::Result<Self> {
        let pack_bytes = file.length()?;
        Ok(Self {
            file,
            pack_bytes,
            header: recorded.header,
            block_bytes: usize::try_from(recorded.header.block_bytes).map_err(io::Error::other)?,
            dictionary: recorded.dictionary.into(),
            // Without an index nothing is counted by spans.
            first_spans: Vec::new(),
            entries: recorded.entries,
            root: Root([0; 32]),
            index: pack_bytes,
            report: Section::default(),
            leaves: Vec::new(),
            found: recorded.found,
            base: None,
        })
    }

    /// The same with what its records say of the spans that its index cannot tell
    /// of.
    #[must_use]
    pub(super) fn with_records(mut self, found: HashMap<(u32, u32), SpanPlace>) -> Self {
        self.found = found;
        self
    }

    /// What it builds on, if it is a delta.
    #[must_use]
    pub fn base_root(&self) -> Option<Root> {
        self.header.base.map(Root)
    }

    /// True if it is a delta whose base is not available.
    #[must_use]
    pub fn lacks_base(&self) -> bool {
        self.header.base.is_some() && self.base.is_none()
    }

    /// What the system says of its file, and of those of the packs that it builds on.
    pub(super) fn statuses(&self) -> io::Result<Vec<(Metadata, Identity)>> {
        let mut statuses = match &self.base {
            Some(base) => base.pack.statuses()?,
            None => Vec::new(),
        };
        statuses.extend(self.file.status()?);
        Ok(statuses)
    }

    /// How many packs it builds on that are available.
    #[must_use]
    pub fn chain_length(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.pack.chain_length().saturating_add(1))
    }

    /// The same with what it builds on.
    ///
    /// # Errors
    /// That is another pack than the one it was made from.
    pub fn with_base(mut self, base: Self) -> Result<Self, PackError> {
        if self.base_root() != Some(base.root) {
            return Err(PackError::Hostile("its base is another pack"));
        }
        self.base = Some(Base { files: base.files_named(&self.entries), pack: Box::new(base) });
        Ok(self)
    }

    /// For each of these entries its file here.
    pub(super) fn files_named(&self, entries: &[Entry]) -> Vec<Option<usize>> {
        let is_file = |entry: &Entry| entry.what != What::Folder;
        let numbers: HashMap<&Path, usize> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| is_file(entry))
            .map(|(number, entry)| (entry.name.as_path(), number))
            .collect();
        let named = |entry: &Entry| numbers.get(entry.name.as_path()).copied();
        entries.iter().map(|entry| if is_file(entry) { named(entry) } else { None }).collect()
    }

    /// Where each leaf of the index lies, from the lengths of the files.
    fn place_leaves(&mut self, begin: u64, end: u64) -> Result<(), PackError> {
        const HOSTILE: PackError = PackError::Hostile("its index does not fit its files");
        let mut spans = 0_u64;
        for entry in &self.entries {
            self.first_spans.push(spans);
            spans = spans.saturating_add(span_count(entry.bytes()));
        }
        // Each span takes more than this in the index: so much memory is fine.
        if spans.saturating_mul(SUM_BYTES) > end.saturating_sub(begin) {
            return Err(HOSTILE);
        }
        let (mut at, mut bytes, mut in_leaf) = (begin, 0_u64, 0);
        let mut leaves = Vec::new();
        let mut close = |at: &mut u64, bytes: &mut u64| {
            *bytes = bytes.saturating_add(SUM_BYTES);
            leaves.push(LeafPlace { begin: *at, bytes: *bytes, leaf: OnceLock::new() });
            *at = at.saturating_add(std::mem::take(bytes));
        };
        for entry in &self.entries {
            for span in 0..span_count(entry.bytes()) {
                let blocks = self.blocks_in(entry.bytes(), span) * BLOCK_ENTRY_BYTES;
                bytes = bytes.saturating_add(SUM_BYTES).saturating_add(blocks as u64);
                in_leaf += 1;
                if in_leaf == LEAF_SPANS {
                    close(&mut at, &mut bytes);
                    in_leaf = 0;
                }
            }
        }
        if in_leaf > 0 {
            close(&mut at, &mut bytes);
        }
        if at != end {
            return Err(HOSTILE);
        }
        self.leaves = leaves;
        Ok(())
    }

    fn blocks_in(&self, file_bytes: u64, span: u64) -> usize {
        span_bytes(file_bytes, span).div_ceil(self.block_bytes)
    }

    /// What is in it, folders before their files.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What it is known by.
    #[must_use]
    pub fn root(&self) -> Root {
        self.root
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes of the pack itself.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.pack_bytes
    }

    /// What `check` found when the pack was made: JSON.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn report(&self) -> Result<Vec<u8>, PackError> {
        section(&self.file, self.report, (REPORT_BYTES_MAX, REPORT_RATIO_MAX), "report")
    }

    /// The tablespace that it is, if it was packed to be mounted in its place. The
    /// report says so.
    ///
    /// # Errors
    /// The report cannot be read, or is damaged.
    pub fn tablespace(&self) -> Result<Option<PackedTablespace>, PackError> {
        #[derive(serde::Deserialize)]
        struct Told {
            tablespace: Option<PackedTablespace>,
        }
        // What is sound and no such report was not made by `pack --tablespace`.
        let told = serde_json::from_slice(&self.report()?).ok();
        Ok(told.and_then(|told: Told| told.tablespace))
    }

    /// True if the records of files, which no reader uses while there is a table, say
    /// what the table says.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn has_sound_file_records(&self) -> Result<bool, PackError> {
        let mut at = self.header.bytes().saturating_add(self.dictionary.len() as u64);
        for (number, entry) in (0..).zip(&self.entries) {
            let expected = file_record(number, &entry.to_bytes(false));
            let found = read_range(&self.file, at, expected.len() as u64)?;
            if found != expected && !self.is_streamed(number, entry, &found)? {
                return Ok(false);
            }
            at = at.saturating_add(expected.len() as u64);
        }
        Ok(true)
    }

    /// True if this is the record of a file that came as a stream, and the one that
    /// says how long it turned out stands at the end.
    fn is_streamed(&self, number: u32, entry: &Entry, found: &[u8]) -> Result<bool, PackError> {
        let What::File { has_holes, hash, .. } = entry.what else { return Ok(false) };
        let what = What::File { bytes: UNKNOWN_BYTES, has_holes, hash };
        let unknown = Entry { what, ..entry.clone() };
        let last = file_record(number, &entry.to_bytes(false));
        let at = self.index.saturating_sub(last.len() as u64);
        Ok(self.header.version > VERSION_PLAIN
            && file_record(number, &unknown.to_bytes(false)) == found
            && read_range(&self.file, at, last.len() as u64)? == last)
    }

    /// How a block is stored; `None` if there is no such block, or the index cannot be
    /// read.
    fn block_entry(&self, file: usize, block: u64) -> Option<BlockEntry> {
        let per_span = (SPAN_BYTES / self.block_bytes) as u64;
        let place = self.span_place(file, block / per_span).ok()?;
        place.blocks.get(usize::try_from(block % per_span).ok()?).copied()
    }

    /// True for a span of nothing but zeroes.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(super) fn is_zero_span(&self, file: usize, span: u64) -> Result<bool, PackError> {
        let place = self.span_place(file, span)?;
        Ok(place.blocks.iter().all(|block| block.codec == Codec::Zero))
    }

    /// True for a block of a delta that lies in its base.
    pub(crate) fn lies_in_base(&self, file: usize, block: u64) -> bool {
        self.block_entry(file, block).is_some_and(|entry| entry.codec == Codec::Base)
    }

    /// The sum of a block, itself `None` for one of zeroes; `None` if there is no
    /// such block, or the index cannot be read.
    pub(crate) fn block_sum(&self, file: usize, block: u64) -> Option<Option<u64>> {
        let entry = self.block_entry(file, block)?;
        Some((entry.codec != Codec::Zero).then_some(entry.crc))
    }

    /// A way to read from it, for one thread.
    #[must_use]
    pub fn contents(&self) -> Contents<'_> {
        self.contents_with(Kept::default())
    }

    /// The same with what an earlier one left behind.
    pub(super) fn contents_with(&self, kept: Kept) -> Contents<'_> {
        let Kept { decoder, stored, base: lower } = kept;
        let lower = lower.map_or_else(Kept::default, |lower| *lower);
        Contents {
            pack: self,
            decoder: decoder.unwrap_or_else(|| self.decoder()),
            stored,
            base: self.base.as_ref().map(|base| Box::new(base.pack.contents_with(lower))),
        }
    }

    /// The place of a span of a file.
    pub(super) fn span_place(&self, file: usize, span: u64) -> Result<&SpanPlace, PackError> {
        match self.indexed_place(file, span) {
            Err(error) if !self.found.is_empty() => {
                let key = (u32::try_from(file), u32::try_from(span));
                let (Ok(file), Ok(span)) = key else { return Err(NO_SPAN) };
                self.found.get(&(file, span)).ok_or(error)
            }
            place => place,
        }
    }

    /// Where a span begins in the pack, if the index says it.
    pub(crate) fn span_begin(&self, file: usize, span: u64) -> Option<u64> {
        self.span_place(file, span).ok().map(|place| place.begin)
    }

    fn indexed_place(&self, file: usize, span: u64) -> Result<&SpanPlace, PackError> {
        let (number, within) = self.leaf_of(file, span)?;
        let place = self.leaf_place(number)?;
        let leaf = match place.leaf.get() {
            Some(leaf) => leaf,
            None => {
                let leaf = self.read_leaf(place, number)?;
                place.leaf.get_or_init(|| leaf)
            }
        };
        leaf.get(within).ok_or(NO_SPAN)
    }

    /// In which leaf of the index a span of a file is, and at which place there.
    pub(super) fn leaf_of(&self, file: usize, span: u64) -> Result<(u64, usize), PackError> {
        let first = self.first_spans.get(file).ok_or(NO_SPAN)?;
        let number = first.saturating_add(span);
        let within = usize::try_from(number % LEAF_SPANS).map_err(io::Error::other)?;
        Ok((number / LEAF_SPANS, within))
    }

    /// A leaf of the index, read anew and not kept.
    pub(super) fn load_leaf(&self, number: u64) -> Result<Vec<SpanPlace>, PackError> {
        self.read_leaf(self.leaf_place(number)?, number)
    }

    /// How many leaves the index has.
    pub(super) fn leaf_count(&self) -> u64 {
        self.leaves.len() as u64
    }

    fn leaf_place(&self, number: u64) -> Result<&LeafPlace, PackError> {
        let index = usize::try_from(number).map_err(io::Error::other)?;
        self.leaves.get(index).ok_or(NO_SPAN)
    }

    /// Expands its blocks, for one thread.
    pub(super) fn decoder(&self) -> Decoder {
        Decoder::new(Arc::clone(&self.dictionary))
    }

    /// Stored bytes, all of them or none.
    pub(super) fn stored(&self, begin: u64, out: &mut [u8]) -> Result<(), PackError> {
        if begin.saturating_add(out.len() as u64) > self.pack_bytes {
            return Err(PackError::Hostile("a block does not lie within it"));
        }
        fill(&self.file, begin, out)
    }

    /// Has the system read stored bytes that will be wanted soon. Whether it does is
    /// its own affair.
    pub(super) fn want(&self, begin: u64, count: u64) {
        if let Some(count) = NonZero::new(count) {
            self.file.advise(begin, Some(count), Advice::WillNeed);
        }
    }

    /// Has the system read nothing that it was not asked for, in what this one builds
    /// on either. For readers that ask ahead themselves.
    pub(super) fn expect_lookups(&self) {
        self.file.advise(0, None, Advice::Random);
        if let Some(base) = &self.base {
            base.pack.expect_lookups();
        }
    }

    /// Has the system read the leaves of the index, up to `most` bytes of them.
    pub(super) fn want_index(&self, most: u64) {
        let bytes = self.leaves.iter().fold(0_u64, |sum, leaf| sum.saturating_add(leaf.bytes));
        self.want(self.index, bytes.min(most));
    }

    fn read_leaf(&self, place: &LeafPlace, leaf: u64) -> Result<Vec<SpanPlace>, PackError> {
        let damaged = || PackError::Damaged { part: "index", offset: place.begin };
        let bytes = read_range(&self.file, place.begin, place.bytes)?;
        let (covered, sum) = bytes.split_last_chunk().ok_or_else(damaged)?;
        if crc(covered) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut fields = Fields(covered);
        let first = leaf.saturating_mul(LEAF_SPANS);
        let mut file = self.first_spans.partition_point(|begin| *begin <= first).saturating_sub(1);
        let mut spans = Vec::new();
        for number in first.. {
            if fields.0.is_empty() {
                break;
            }
            // Folders and empty files have no spans and begin where the next begins.
            while self.first_spans.get(file.saturating_add(1)).is_some_and(|next| *next <= number) {
                file = file.saturating_add(1);
            }
            let begin = self.first_spans.get(file).copied().unwrap_or_default();
            let file_bytes = self.entries.get(file).map_or(0, Entry::bytes);
            let blocks = self.blocks_in(file_bytes, number.saturating_sub(begin));
            let begin = fields.u64().ok_or_else(damaged)?;
            let blocks = (0..blocks).map(|_| BlockEntry::parse(&mut fields));
            let blocks = blocks.collect::<Option<Box<[_]>>>().ok_or_else(damaged)?;
            spans.push(SpanPlace { begin, blocks });
        }
        Ok(spans)
    }
}

/// What is worth keeping of a [`Contents`] that ends.
#[derive(Debug, Default)]
pub(super) struct Kept {
    decoder: Option<Decoder>,
    stored: Vec<u8>,
    base: Option<Box<Self>>,
}

/// Reads from a pack, block by block or span by span.
#[derive(Debug)]
pub struct Contents<'a> {
    pack: &'a Pack,
    decoder: Decoder,
    stored: Vec<u8>,
    /// Of what a delta builds on.
    base: Option<Box<Contents<'a>>>,
}

impl Contents<'_> {
    /// Bytes of a file from `offset` on, as many as there are room for and are in
    /// it; says how many.
    ///
    /// # Errors
    /// A block cannot be read, or is damaged.
    pub fn read_at(
        &mut self,
        file: usize,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, PackError> {
        let file_bytes = self.pack.entries.get(file).map_or(0, Entry::bytes);
        let block_bytes = self.pack.block_bytes as u64;
        let mut block = Vec::new();
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            if at >= file_bytes {
                break;
            }
            self.block(file, at / block_bytes, &mut block)?;
            let within = usize::try_from(at % block_bytes).map_err(io::Error::other)?;
            let bytes = block.get(within..).unwrap_or_default();
            let count = bytes.len().min(rest.len());
            if count == 0 {
                break;
            }
            for (place, byte) in rest.iter_mut().zip(bytes) {
                *place = *byte;
            }
            done += count;
        }
        Ok(done)
    }

    /// A block of a file, into `out`.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn block(&mut self, file: usize, block: u64, out: &mut Vec<u8>) -> Result<(), PackError> {
        let per_span = (SPAN_BYTES / self.pack.block_bytes) as u64;
        let span = block / per_span;
        let within = usize::try_from(block % per_span).map_err(io::Error::other)?;
        let place = self.pack.span_place(file, span)?;
        let entry =
            *place.blocks.get(within).ok_or(PackError::Hostile("there is no such block"))?;
        let file_bytes = self.pack.entries.get(file).map_or(0, Entry::bytes);
        let rest = span_bytes(file_bytes, span).saturating_sub(within * self.pack.block_bytes);
        out.resize(rest.min(self.pack.block_bytes), 0);
        if entry.codec == Codec::Base {
            let offset = block.saturating_mul(self.pack.block_bytes as u64);
            return self.block_of_base(file, offset, entry, out);
        }
        let begin = place.block_begin(within);
        self.fetch(begin, entry.stored_bytes.into())?;
        if self.decoder.decode(entry, &self.stored, out) {
            return Ok(());
        }
        Err(PackError::Damaged { part: "block", offset: begin })
    }

    /// A block that lies in the base.
    fn block_of_base(
        &mut self,
        file: usize,
        offset: u64,
        entry: BlockEntry,
        out: &mut [u8],
    ) -> Result<(), PackError> {
        let Some(root) = self.pack.base_root() else {
            return Err(PackError::Hostile("it is no delta, and a block lies in its base"));
        };
        let numbers = self.pack.base.as_ref().map(|base| &base.files);
        let (Some(base), Some(files)) = (&mut self.base, numbers) else {
            return Err(PackError::NoBase(root));
        };
        let wrong = |source| PackError::Base { root, source: Box::new(source) };
        let Some(number) = files.get(file).copied().flatten() else {
            return Err(wrong(PackError::Hostile("it lacks a file that the delta builds on")));
        };
        let count = base.read_at(number, offset, out).map_err(wrong)?;
        if count < out.len() || crc(out) != entry.crc {
            return Err(wrong(PackError::Hostile("a block is not what the delta builds on")));
        }
        Ok(())
    }

    /// A whole span of a file, into `out`, by one read. Blocks that are damaged are
    /// zeroes there, and are named by their places in the span.
    ///
    /// # Errors
    /// It cannot be read, or lies in a base that is not available.
    pub fn span(
        &mut self,
        file: usize,
        span: u64,
        out: &mut Vec<u8>,
    ) -> Result<Vec<usize>, PackError> {
        let (damaged, elsewhere) = self.held_span(file, span, out)?;
        match self.pack.base_root() {
            Some(root) if elsewhere > 0 => Err(PackError::NoBase(root)),
            _ => Ok(damaged),
        }
    }

    /// The same of a delta whose base may not be available: blocks that lie there are zeroes, and
    /// the second value is how many they are.
    pub(crate) fn held_span(
        &mut self,
        file: usize,
        span: u64,
        out: &mut Vec<u8>,
    ) -> Result<(Vec<usize>, usize), PackError> {
        let place = self.pack.span_place(file, span)?;
        let file_bytes = self.pack.entries.get(file).map_or(0, Entry::bytes);
        // What is left of another span is overwritten block by block.
        out.resize(span_bytes(file_bytes, span), 0);
        if place.begin == 0 {
            out.fill(0);
            let stored = |entry: &&BlockEntry| entry.codec != Codec::Zero || entry.stored_bytes > 0;
            return match place.blocks.iter().find(stored) {
                Some(_) => Err(PackError::Hostile("a span without a record has contents")),
                None => Ok((Vec::new(), 0)),
            };
        }
        let (Ok(file_number), Ok(span_number)) = (u32::try_from(file), u32::try_from(span)) else {
            return Err(PackError::Hostile("there is no such span"));
        };
        let head = span_head(file_number, span_number, &place.blocks);
        let stored = place
            .blocks
            .iter()
            .fold(0_u64, |sum, entry| sum.saturating_add(entry.stored_bytes.into()));
        self.fetch(place.begin, stored.saturating_add(head.len() as u64))?;
        let kept = std::mem::take(&mut self.stored);
        let (found, mut rest) = kept.split_at_checked(head.len()).unwrap_or_default();
        let is_sound = found == head;
        let (mut damaged, mut elsewhere) = (Vec::new(), 0);
        let mut offset = span.saturating_mul(SPAN_BYTES as u64);
        for (index, (entry, block)) in
            place.blocks.iter().zip(out.chunks_mut(self.pack.block_bytes)).enumerate()
        {
            let count = usize::try_from(entry.stored_bytes).unwrap_or(usize::MAX);
            let (bytes, others) = rest.split_at_checked(count).unwrap_or_default();
            rest = others;
            let is_there = if entry.codec == Codec::Base {
                match self.block_of_base(file, offset, *entry, block) {
                    Err(PackError::NoBase(_)) => {
                        block.fill(0);
                        elsewhere += 1;
                        true
                    }
                    // Damage of the base is reported as such, not as that of a block here.
                    Err(error) => return Err(error),
                    Ok(()) => bytes.is_empty(),
                }
            } else {
                self.decoder.decode(*entry, bytes, block)
            };
            if !is_there {
                block.fill(0);
                damaged.push(index);
            }
            offset = offset.saturating_add(block.len() as u64);
        }
        self.stored = kept;
        if !is_sound {
            return Err(PackError::Damaged { part: "record", offset: place.begin });
        }
        Ok((damaged, elsewhere))
    }

    /// What another one can go on with.
    pub(super) fn into_kept(self) -> Kept {
        Kept {
            decoder: Some(self.decoder),
            stored: self.stored,
            base: self.base.map(|base| Box::new(base.into_kept())),
        }
    }

    fn fetch(&mut self, begin: u64, count: u64) -> Result<(), PackError> {
        if begin.saturating_add(count) > self.pack.pack_bytes {
            return Err(PackError::Hostile("a block does not lie within it"));
        }
        // The most is a span that did not shrink, and its head.
        let count = usize::try_from(count).map_err(io::Error::other)?;
        if count > 2 * SPAN_BYTES {
            return Err(PackError::Hostile("a block is stored longer than it is"));
        }
        self.stored.resize(count, 0);
        fill(&self.pack.file, begin, &mut self.stored)?;
        Ok(())
    }
}

/// The header of a pack.
pub(super) fn read_header(file: &PackFile, pack_bytes: u64) -> Result<Header, PackError> {
    let head = read_range(file, 0, (HEADER_BYTES_MAX as u64).min(pack_bytes))?;
    Header::parse(&head)
}

/// The root that a pack claims, by its last bytes alone.
pub(super) fn claimed_root(place: &StorePath) -> Result<Root, PackError> {
    let file = PackFile::open(place)?;
    let pack_bytes = file.length()?;
    read_header(&file, pack_bytes)?;
    let begin = pack_bytes.checked_sub(FOOTER_BYTES as u64).ok_or(PackError::Cut)?;
    let footer = Footer::parse(&read_range(&file, begin, FOOTER_BYTES as u64)?, pack_bytes)?;
    Ok(Root(footer.root))
}

fn fill(file: &PackFile, offset: u64, out: &mut [u8]) -> Result<(), PackError> {
    let wanted = out.len();
    if file.read_fully(out, offset)? < wanted { Err(PackError::Cut) } else { Ok(()) }
}

/// Reads a stretch that is known to lie within the pack.
pub(super) fn read_range(file: &PackFile, begin: u64, count: u64) -> Result<Vec<u8>, PackError> {
    let mut bytes = vec![0; usize::try_from(count).map_err(io::Error::other)?];
    fill(file, begin, &mut bytes)?;
    Ok(bytes)
}

/// Reads and expands a section, which has `most` bytes at the most, and `ratio` times its stored
/// ones (past [`RATIO_FREE_BYTES`]).
fn section(
    file: &PackFile,
    section: Section,
    (most, ratio): (u64, u64),
    part: &'static str,
) -> Result<Vec<u8>, PackError> {
    use io::Read as _;
    let damaged = || PackError::Damaged { part, offset: section.begin };
    if section.bytes > most || section.stored_bytes > most {
        return Err(PackError::Hostile("its table or its report is too long"));
    }
    let honest = section.stored_bytes.saturating_mul(ratio).saturating_add(RATIO_FREE_BYTES);
    if section.bytes > honest {
        return Err(PackError::Hostile("its table or its report expands out of all proportion"));
    }
    let stored = read_range(file, section.begin, section.stored_bytes)?;
    if crc(&stored) != section.crc {
        return Err(damaged());
    }
    // What it claims to expand to is no reason to take memory.
    let mut bytes = Vec::new();
    let decoder = zstd::stream::Decoder::new(stored.as_slice()).map_err(|_| damaged())?;
    decoder.take(section.bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|_| damaged())?;
    if bytes.len() as u64 != section.bytes {
        return Err(damaged());
    }
    Ok(bytes)
}

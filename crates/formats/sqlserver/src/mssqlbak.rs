//! The container of a compressed SQL Server backup, expanded as it is read.
//!
//! Nothing of this is published. All of it was measured on two backups, by SQL
//! Server 2014 and 2019, in which every sum and every size fits.
//!
//! ```text
//! file
//! offset  size  field
//!      0     8  "MSSQLBAK"
//!      8  4, 4  2 and 3: versions, perhaps
//!  0x1E0        chunks, one after the other, not aligned
//!
//! chunk of data: expands to a stretch of the stream
//!      0     1  0x21
//!      1     1  expanded size in units of 512 bytes, at most 0x80
//!      2     2  compressed length
//!      4    20  memory of the server, never set
//!     24     4  sum over the compressed bytes
//!     28        one block of LZ77 with Huffman codes (`xpress`)
//!
//! padding: so that what follows stands at a multiple of the soft filemark size
//!      0  1, 1  0x24, 0
//!      2     2  length of the zeroes that follow the header
//!      4    20  zero
//!
//! index: places of chunks, for a reader who seeks
//!      0     1  0x2C
//!      1    23  zero
//!     24  2, 2  1 and 1
//!     28     4  count of the entries
//!     32     4  length of all behind the first 24 bytes
//!     36     4  sum over the entries
//!     40        entries: u64 offset in the stream, u64 offset in the file
//!               zeroes, as padding
//!               the 16 bytes from 24 on once more, at the very end
//!
//! "SFMB": a block of the stream as it is, 512 or 4096 bytes (`mtf`)
//! ```
//!
//! The sum: `c` begins as zero; for each little-endian word of 32 bits, the last
//! one filled up with zeroes, `c` is rotated left by one bit and the word added
//! by exclusive or. A chunk's header is in no sum.
//!
//! The stream that comes out is that of an uncompressed backup. The offsets in an
//! index lack what stands before the backup set (8192 in the file measured), so
//! that the first entry is taken to say how much that is. Chunks that are stored
//! as they are, other kinds, and encryption have not been seen: a chunk of an
//! unknown kind is reported and never guessed at.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::io;

use crate::mtf::block_sum_fits;
use crate::stretch::{Stretch, Stretches, Window};
use crate::xpress::{self, Decoder, XpressError};

mod container;
mod fault;
mod index;
mod search;

pub use container::Container;
pub use fault::{Fault, FaultKind};
use search::{CHUNK_BYTES_MAX, SEARCH_BYTES, Search, is_filemark, may_follow};

/// What such a file begins with.
pub const MAGIC: &[u8; 8] = b"MSSQLBAK";

const FILE_HEADER_BYTES: usize = 0x1E0;
const VERSIONS: (u32, u32) = (2, 3);
const DATA: u8 = 0x21;
const PADDING: u8 = 0x24;
const INDEX: u8 = 0x2C;
const FILEMARK: &[u8; 4] = b"SFMB";
const FILEMARK_BYTES_MIN: usize = 512;
const FILEMARK_BYTES_MAX: usize = 4096;
const DATA_HEADER_BYTES: usize = 28;
const HEADER_BYTES: usize = 24;
const UNIT_BYTES: u64 = 512;
const UNITS_MAX: u8 = 0x80;
/// Code lengths and two words of codes.
const COMPRESSED_BYTES_MIN: usize = xpress::TABLE_BYTES + 4;
const COMPRESSED_BYTES_MAX: usize = u16::MAX as usize;
/// Chunks whose places are kept, for indexes: 16 GiB of the stream.
const PLACES_MAX: usize = 1 << 18;
/// Faults kept until someone takes them.
const FAULTS_MAX: usize = 4096;
/// Bytes that may be summed up in searches for the next chunk, at once and more
/// for each byte of the file: one made to look like chunks everywhere must not
/// take forever.
const SEARCH_SUM_BYTES: u64 = 64 << 20;
const SEARCH_SUM_BYTES_EACH: u64 = 16;
/// Where the size of what is lost is unknown, this is assumed: most chunks'.
const ASSUMED_BYTES: u64 = 1 << 16;

/// What a container was made of, so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Chunks of data, lost ones included.
    pub chunks: u64,
    /// Those whose sum fits and that expanded to their size.
    pub chunks_sound: u64,
    /// Paddings.
    pub paddings: u64,
    /// Blocks that are not compressed.
    pub raw_blocks: u64,
    /// Indexes.
    pub indexes: u64,
    /// Their entries.
    pub index_entries: u64,
    /// Those of them that were compared with the chunks.
    pub index_entries_compared: u64,
    /// Bytes of the stream that are lost, some of them by assumption.
    pub lost_bytes: u64,
    /// Faults that were dropped, since the caller had not taken those before.
    pub faults_dropped: u64,
}

/// Where a chunk begins.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: u64,
    stream: u64,
}

/// Expands a container; see the module.
#[derive(Debug)]
pub struct Expanded<S> {
    window: Window<S>,
    decoder: Decoder,
    /// A chunk, expanded; what was not given out is `given..filled`.
    output: Box<[u8]>,
    given: usize,
    filled: usize,
    hole: Option<Stretch>,
    /// Of what follows `output` and `hole`.
    stream_offset: u64,
    places: VecDeque<Place>,
    /// Of the first place kept.
    places_begin: u64,
    /// Nothing of unknown size was lost, so that offsets can be compared.
    is_exact: bool,
    tally: Tally,
    faults: VecDeque<Fault>,
    has_ended: bool,
    /// Bytes summed up in searches.
    searched: u64,
}

/// A data chunk's header, whether or not it is one.
#[derive(Debug, Clone, Copy)]
struct DataHeader {
    kind: u8,
    units: u8,
    compressed_bytes: usize,
    sum: u32,
}

impl DataHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<DATA_HEADER_BYTES>()?;
        let [kind, units, low, high, .., a, b, c, d] = *header;
        let compressed_bytes = usize::from(u16::from_le_bytes([low, high]));
        Some(Self { kind, units, compressed_bytes, sum: u32::from_le_bytes([a, b, c, d]) })
    }

    fn size_is_possible(&self) -> bool {
        (1..=UNITS_MAX).contains(&self.units)
    }

    fn is_possible(&self) -> bool {
        self.kind == DATA
            && self.size_is_possible()
            && self.compressed_bytes >= COMPRESSED_BYTES_MIN
    }

    fn bytes(&self) -> u64 {
        u64::from(self.units).saturating_mul(UNIT_BYTES)
    }
}

/// The block of the chunk the window stands on, as much of it as is there.
fn payload<S: Stretches>(window: &Window<S>, header: DataHeader) -> &[u8] {
    let end = DATA_HEADER_BYTES.saturating_add(header.compressed_bytes);
    window.seen_up_to(end).get(DATA_HEADER_BYTES..).unwrap_or_default()
}

impl<S: Stretches> Expanded<S> {
    /// Expands a file from its beginning.
    pub fn new(source: S) -> Self {
        Self {
            window: Window::new(source),
            decoder: Decoder::new(),
            output: vec![0; xpress::OUTPUT_BYTES_MAX].into_boxed_slice(),
            given: 0,
            filled: 0,
            hole: None,
            stream_offset: 0,
            places: VecDeque::new(),
            places_begin: 0,
            is_exact: true,
            tally: Tally::default(),
            faults: VecDeque::new(),
            has_ended: false,
            searched: 0,
        }
    }

    /// What was seen so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes the faults since the last time.
    pub fn take_faults(&mut self) -> impl Iterator<Item = Fault> {
        std::mem::take(&mut self.faults).into_iter()
    }

    /// Bytes of the file that were passed.
    pub fn file_offset(&self) -> u64 {
        self.window.offset()
    }

    fn fault(&mut self, lost_bytes: u64, kind: FaultKind) {
        self.fault_at(self.window.offset(), lost_bytes, kind);
    }

    fn fault_at(&mut self, file_offset: u64, lost_bytes: u64, kind: FaultKind) {
        if self.faults.len() >= FAULTS_MAX {
            self.tally.faults_dropped = self.tally.faults_dropped.saturating_add(1);
            return;
        }
        let stream_offset = self.stream_offset;
        self.faults.push_back(Fault { file_offset, stream_offset, lost_bytes, kind });
    }

    /// Tells what is wrong and leaves a hole.
    fn lose(&mut self, bytes: u64, is_exact: bool, kind: FaultKind) {
        self.fault(bytes, kind);
        self.leave(bytes, is_exact);
    }

    fn leave(&mut self, bytes: u64, is_exact: bool) {
        self.tally.lost_bytes = self.tally.lost_bytes.saturating_add(bytes);
        self.stream_offset = self.stream_offset.saturating_add(bytes);
        self.hole = (bytes > 0).then_some(Stretch::Hole { bytes, is_exact });
        self.is_exact &= is_exact;
    }

    /// Gives out `bytes` bytes of `output`, which has no more.
    fn give(&mut self, bytes: u64) {
        let filled = usize::try_from(bytes).unwrap_or_default();
        (self.given, self.filled) = (0, filled);
        self.stream_offset = self.stream_offset.saturating_add(bytes);
    }

    /// Remembers that a chunk begins here.
    fn place(&mut self) {
        if self.places.len() >= PLACES_MAX {
            self.places.pop_front();
            self.places_begin = self.places.front().map_or(0, |place| place.file);
        }
        self.places.push_back(Place { file: self.window.offset(), stream: self.stream_offset });
    }

    /// Goes on to the next chunk.
    fn step(&mut self) -> io::Result<()> {
        if self.window.offset() == 0 {
            return self.file_header();
        }
        let head = self.window.see(DATA_HEADER_BYTES)?;
        match head {
            [] => self.has_ended = true,
            [DATA, ..] => self.data()?,
            [PADDING, ..] => self.padding()?,
            [INDEX, ..] => self.index()?,
            _ if is_filemark(head) => self.raw_block()?,
            _ => self.unknown()?,
        }
        Ok(())
    }

    fn file_header(&mut self) -> io::Result<()> {
        let header = self.window.see(FILE_HEADER_BYTES)?;
        let versions = header.get(8..12).and_then(<[u8]>::first_chunk).copied();
        let versions = versions.zip(header.get(12..16).and_then(<[u8]>::first_chunk).copied());
        let versions = versions.map(|(a, b)| (u32::from_le_bytes(a), u32::from_le_bytes(b)));
        let is_whole = header.len() == FILE_HEADER_BYTES;
        match versions {
            Some(versions) if is_whole => {
                if versions != VERSIONS {
                    self.fault(0, FaultKind::Versions(versions.0, versions.1));
                }
                self.window.pass(FILE_HEADER_BYTES);
            }
            _ => {
                self.fault(0, FaultKind::Truncated);
                self.has_ended = true;
            }
        }
        Ok(())
    }

    fn data(&mut self) -> io::Result<()> {
        let Some(header) = DataHeader::read(self.window.seen_up_to(DATA_HEADER_BYTES)) else {
            // The header itself is cut off.
            self.fault(0, FaultKind::Truncated);
            self.has_ended = true;
            return Ok(());
        };
        if header.compressed_bytes < COMPRESSED_BYTES_MIN {
            return self.mend_or_search(header);
        }
        let bytes = DATA_HEADER_BYTES.saturating_add(header.compressed_bytes);
        // With the next chunk's header, which is a witness of this one's length.
        let seen = self.window.see(bytes.saturating_add(DATA_HEADER_BYTES))?;
        let Some(payload) = seen.get(DATA_HEADER_BYTES..bytes) else {
            return self.mend_or_search(header);
        };
        let computed = sum(payload);
        let next_is_plain = may_follow(seen.get(bytes..).unwrap_or_default());
        if computed == header.sum && self.window.is_there(bytes) {
            // A length that is a little off leaves the sum of trailing zeroes.
            if next_is_plain || self.decode(header, header.bytes()).is_ok() {
                self.chunk();
                self.expand(header);
                self.window.pass(bytes);
                return Ok(());
            }
            return self.mend_or_search(header);
        }
        if header.size_is_possible() && next_is_plain {
            self.chunk();
            let kind = if self.window.is_there(bytes) {
                FaultKind::Sum { stored: header.sum, computed }
            } else {
                FaultKind::Unreadable
            };
            self.lose(header.bytes(), true, kind);
            self.window.pass(bytes);
            return Ok(());
        }
        self.mend_or_search(header)
    }

    fn chunk(&mut self) {
        self.place();
        self.tally.chunks = self.tally.chunks.saturating_add(1);
    }

    /// Expands the chunk the window stands on into `output`.
    fn decode(&mut self, header: DataHeader, size: u64) -> Result<(), XpressError> {
        let payload = payload(&self.window, header);
        let output = usize::try_from(size).ok().and_then(|size| self.output.get_mut(..size));
        self.decoder.decode(payload, output.ok_or(XpressError::OutputSize)?)
    }

    /// Gives out the chunk the window stands on, whose sum fits.
    fn expand(&mut self, header: DataHeader) {
        let Err(error) = self.decode(header, header.bytes()) else {
            self.tally.chunks_sound = self.tally.chunks_sound.saturating_add(1);
            self.give(header.bytes());
            return;
        };
        // The sum is right and the size is not in it: the block says its size.
        let payload = payload(&self.window, header);
        let may_end = |size: usize| size > 0 && (size as u64).is_multiple_of(UNIT_BYTES);
        let size = self.decoder.decode_to_end(payload, &mut self.output, may_end);
        if let Ok(size) = size {
            self.fault(0, FaultKind::Header(1));
            self.give(size as u64);
        } else if self.decode(header, header.bytes()) == Err(XpressError::Long) {
            // The sum and the size fit. How a block must end was seen on few.
            self.tally.chunks_sound = self.tally.chunks_sound.saturating_add(1);
            self.give(header.bytes());
        } else {
            let size_is_possible = header.size_is_possible();
            let lost = if size_is_possible { header.bytes() } else { ASSUMED_BYTES };
            self.lose(lost, size_is_possible, FaultKind::Expand(error));
        }
    }

    /// A block of the stream as it stands in the file.
    fn raw_block(&mut self) -> io::Result<()> {
        let head = self.window.seen_up_to(DATA_HEADER_BYTES);
        let declared = head.get(8..10).and_then(<[u8]>::first_chunk).copied();
        let declared = usize::from(u16::from_le_bytes(declared.unwrap_or_default()));
        let seen =
            self.window.see(declared.max(FILEMARK_BYTES_MAX).saturating_add(DATA_HEADER_BYTES))?;
        let fits = |length: &usize| seen.get(*length..).is_none_or(may_follow);
        let length = if block_sum_fits(seen) {
            Some(declared).filter(|length| (*length as u64).is_multiple_of(UNIT_BYTES))
        } else {
            // The walk of the stream tells of the sum.
            [FILEMARK_BYTES_MIN, FILEMARK_BYTES_MAX].into_iter().find(fits)
        };
        let seen = self.window.seen_up_to(length.unwrap_or_default());
        let Some(length) = length.filter(|_| !seen.is_empty()) else { return self.unknown() };
        let count = seen.len();
        if let Some(place) = self.output.get_mut(..count) {
            place.copy_from_slice(seen);
        }
        self.place();
        self.tally.raw_blocks = self.tally.raw_blocks.saturating_add(1);
        if !self.window.is_there(count) {
            self.lose(count as u64, true, FaultKind::Unreadable);
        } else {
            if count < length {
                self.fault(0, FaultKind::Truncated);
            }
            self.give(count as u64);
        }
        self.window.pass(count);
        Ok(())
    }

    fn padding(&mut self) -> io::Result<()> {
        let head = self.window.see(HEADER_BYTES)?;
        let [_, _, low, high, ..] = *head else { return self.unknown() };
        let bytes = usize::from(u16::from_le_bytes([low, high])).saturating_add(HEADER_BYTES);
        let seen = self.window.see(bytes.saturating_add(DATA_HEADER_BYTES))?;
        let (padding, next) = seen.split_at_checked(bytes).unwrap_or((seen, &[]));
        // What it holds does not matter, unless that is the block it is to end at.
        let is_too_long = padding
            .windows(FILEMARK.len())
            .zip(0..)
            .any(|(bytes, at)| bytes == FILEMARK && padding.get(at..).is_some_and(block_sum_fits));
        if is_too_long || !may_follow(next) {
            return self.unknown();
        }
        let is_cut_off = padding.len() < bytes;
        self.tally.paddings = self.tally.paddings.saturating_add(1);
        if is_cut_off {
            self.fault(0, FaultKind::Truncated);
        }
        self.window.pass(bytes);
        Ok(())
    }

    /// Something that is no chunk we know.
    fn unknown(&mut self) -> io::Result<()> {
        let Some(header) = DataHeader::read(self.window.see(DATA_HEADER_BYTES)?) else {
            let seen = self.window.seen_up_to(DATA_HEADER_BYTES);
            let kind = seen.first().copied().unwrap_or_default();
            let file_bytes = seen.len() as u64;
            self.fault(0, FaultKind::Unknown { kind, file_bytes });
            self.has_ended = true;
            return Ok(());
        };
        self.mend_or_search(header)
    }

    /// A header that cannot be right. If the bytes behind it have its sum, up to
    /// where it says or up to the next chunk, it is wrong in one field only.
    fn mend_or_search(&mut self, header: DataHeader) -> io::Result<()> {
        if header.kind != DATA && self.mend(header, header.compressed_bytes, 0)? {
            return Ok(());
        }
        let begin = self.window.offset();
        let mut search = self.search();
        let head = self.window.see(SEARCH_BYTES + CHUNK_BYTES_MAX)?;
        let head_begin = head.first_chunk::<HEADER_BYTES>().copied().unwrap_or_default();
        let mut found = search.first(head, 1);
        self.searched = self.searched.saturating_add(search.used);
        if let Some(at) = found
            && header.kind == DATA
            && self.mend(header, at.saturating_sub(DATA_HEADER_BYTES), 2)?
        {
            return Ok(());
        }
        let is_cut_off = found.is_none()
            && header.is_possible()
            && self.window.seen_up_to(CHUNK_BYTES_MAX).len()
                < header.compressed_bytes.saturating_add(DATA_HEADER_BYTES);
        while found.is_none() && !self.window.see(SEARCH_BYTES)?.is_empty() {
            self.window.pass(SEARCH_BYTES);
            let mut search = self.search();
            found = search.first(self.window.see(SEARCH_BYTES + CHUNK_BYTES_MAX)?, 0);
            self.searched = self.searched.saturating_add(search.used);
        }
        self.window.pass(found.unwrap_or_default());
        let file_bytes = self.window.offset().saturating_sub(begin);
        let Some(kind) = head_begin.first().copied() else { return Ok(()) };
        let lost = if header.kind == DATA && header.size_is_possible() {
            header.bytes()
        } else if head_begin.iter().skip(4).all(|byte| *byte == 0) {
            // A padding or an index, damaged: nothing of the stream.
            0
        } else {
            ASSUMED_BYTES
        };
        if header.kind == DATA {
            self.tally.chunks = self.tally.chunks.saturating_add(1);
        }
        let fault =
            if is_cut_off { FaultKind::Truncated } else { FaultKind::Unknown { kind, file_bytes } };
        self.fault_at(begin, lost, fault);
        self.leave(lost, is_cut_off);
        Ok(())
    }

    fn search(&self) -> Search {
        let earned = self.window.offset().saturating_mul(SEARCH_SUM_BYTES_EACH);
        let left = SEARCH_SUM_BYTES.saturating_add(earned).saturating_sub(self.searched);
        Search { left, used: 0 }
    }

    /// Takes the chunk here as one of data of this length if its sum says so.
    fn mend(&mut self, header: DataHeader, length: usize, wrong: u8) -> io::Result<bool> {
        if !(COMPRESSED_BYTES_MIN..=COMPRESSED_BYTES_MAX).contains(&length) {
            return Ok(false);
        }
        let whole = DATA_HEADER_BYTES.saturating_add(length);
        let payload = self.window.see(whole)?.get(DATA_HEADER_BYTES..whole);
        // Zeroes have a sum of zero.
        let fits = payload.is_some_and(|payload| {
            xpress::begins_with_code_lengths(payload) && sum(payload) == header.sum
        });
        if !fits || !self.window.is_there(whole) {
            return Ok(false);
        }
        self.chunk();
        self.fault(0, FaultKind::Header(wrong));
        self.expand(DataHeader { compressed_bytes: length, ..header });
        self.window.pass(whole);
        Ok(true)
    }
}

/// The sum of a chunk.
fn sum(bytes: &[u8]) -> u32 {
    sum_on(0, bytes)
}

/// Goes on with a sum, past whole words.
fn sum_on(begin: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let add = |sum: u32, word: u32| sum.rotate_left(1) ^ word;
    let sum = words.iter().fold(begin, |sum, word| add(sum, u32::from_le_bytes(*word)));
    if rest.is_empty() {
        return sum;
    }
    let mut last = [0; 4];
    for (place, byte) in last.iter_mut().zip(rest) {
        *place = *byte;
    }
    add(sum, u32::from_le_bytes(last))
}

impl<S: Stretches> Stretches for Expanded<S> {
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
        loop {
            let ready = self.output.get(self.given..self.filled).unwrap_or_default();
            let count = ready.len().min(bytes.len());
            if count > 0 {
                if let (Some(place), Some(ready)) = (bytes.get_mut(..count), ready.get(..count)) {
                    place.copy_from_slice(ready);
                }
                self.given = self.given.saturating_add(count);
                return Ok(Stretch::Bytes(count));
            }
            if let Some(hole) = self.hole.take() {
                return Ok(hole);
            }
            if self.has_ended {
                return Ok(Stretch::End);
            }
            self.step()?;
        }
    }
}

#[cfg(test)]
mod tests;

//! The Microsoft Tape Format, as SQL Server writes its backups, read in order.
//!
//! A backup is a row of descriptor blocks, most of them with streams behind.
//!
//! ```text
//! block: at a multiple of 512
//! offset  size  field
//!      0     4  type
//!      4     4  attributes
//!      8     2  offset of the first stream; of SFMB, its size
//!     10  1, 1  operating system and version: 14 and 1
//!     12     8  displayable size
//!     20     8  logical address
//!     36     4  control block number
//!     44  2, 2  size and offset of operating system data
//!     48     1  string type: 2 is UTF-16
//!     50     2  sum: exclusive or of the 25 words of 16 bits before
//!     52        what the type says: see `mtf::details`
//!
//! stream: at a multiple of 4, counted from the beginning
//!      0     4  type
//!      4     2  file system attributes
//!      6     2  format attributes: 0x2 its length varies, 0x4 the last part of
//!               such a one, 0x8 encrypted, 0x10 compressed, 0x20 checksummed,
//!               0x80 (not in the document) of APAD
//!      8     8  length
//!     16     2  encryption, 0 is none
//!     18     2  compression, 0 is none
//!     20     2  sum: exclusive or of the 10 words of 16 bits before
//!     22        contents
//! ```
//!
//! Source: Microsoft Tape Format Specification, version 1.00a, revision 1.8; the
//! attributes are its table 18. That SQL Server keeps to it, and what follows,
//! was measured on real backups of 2008 R2 to 2019, 113 blocks and 163 streams,
//! all of which have these sums.
//!
//! ```text
//! TAPE SFMB { SSET VOLB MSCI MSDA... MSTL... MSLS SFMB ESET ESET SFMB }...
//!
//! TAPE, the medium, has RAID: see `mtf::details`
//! MSCI, MSLS      have MQCI, the configuration: see `mtf::details`
//! MSDA, data      has APAD, MQDA, and an MQDA of no bytes as the end mark
//! MQDA            two bytes of padding, then whole extents of 64 KiB, the first
//!                 at a multiple of 512, up to the stream's end
//! MSTL, log       may have APAD and MQTL, which begins with two bytes also: then
//!                 log as in the log file, and filler up to a multiple of 64 KiB
//! ESET, the end   has OTCP and TSMP, or nothing
//! SPAD            ends the streams of each block
//! SFMB, filemark  has no streams
//! ```
//!
//! SQL Server 2019 writes a second MSDA, with the first extents once more.
//!
//! No length is believed further than its sum. Where a sum does not fit, that is
//! reported, and the walk goes on at the next block or stream whose sum does; a data
//! stream whose header is lost is read extent by extent up to such a place.
//! Encryption and TDE have not been seen: the format has fields for encryption,
//! and what they say is reported; TDE shows in none of them as far as is known.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use crate::stretch::{Hole, Stretches, Window};

pub mod details;
mod fault;
mod header;

pub use fault::{Fault, FaultKind};
pub use header::{Type, block_sum_fits, looks_like_backup};

use details::{Configuration, Details, Media};
use header::{BLOCKS, BlockHeader, STREAMS, StreamHeader, is_block, is_stream};

/// Extents of a data stream; a data file is made of them.
pub const EXTENT_BYTES: usize = 1 << 16;
/// What a block's header takes of it.
pub const BLOCK_HEADER_BYTES: usize = 52;

const STREAM_HEADER_BYTES: usize = 22;
/// Blocks stand at multiples of this.
const ALIGNMENT: u64 = 512;
/// Before the extents of MQDA.
const EXTENTS_BEGIN: usize = 2;
/// Streams stand at multiples of this.
const STREAM_ALIGNMENT: u64 = 4;
/// A configuration past this is passed unread: about a thousand files.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;
const SEARCH_BYTES: usize = 1 << 16;

const ENCRYPTED: u16 = 0x8;
const COMPRESSED: u16 = 0x10;
const CHECKSUMMED: u16 = 0x20;

/// A descriptor block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it begins in the stream.
    pub offset: u64,
    /// What it is, `SSET`.
    pub kind: Type,
    /// Its attributes; their meaning depends on the type.
    pub attributes: u32,
    /// Backup sets begun so far, this one included.
    pub set: u32,
    /// What its type says. `None` for types without, and where the header's sum
    /// did not fit.
    pub details: Option<Details>,
    /// Where it says that it stands: logical blocks from its set's first block on, and blocks of its
    /// set before it. `None` where the header's sum did not fit.
    pub place: Option<(u64, u32)>,
}

/// A stream's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Where it begins in the stream of all.
    pub offset: u64,
    /// What it is, `MQDA`.
    pub kind: Type,
    /// The format attributes.
    pub attributes: u16,
    /// Bytes of its contents, as it says.
    pub bytes: u64,
    /// The encryption algorithm, 0 for none.
    pub encryption: u16,
    /// The compression algorithm, 0 for none. Backups in a compressed container
    /// have none here.
    pub compression: u16,
    /// Of RAID.
    pub media: Option<Media>,
    /// Of MQCI.
    pub configuration: Option<Configuration>,
}

impl Stream {
    /// Whether it says that it is encrypted. TDE does not show here: its pages
    /// are encrypted before they are backed up.
    pub fn is_encrypted(&self) -> bool {
        self.attributes & ENCRYPTED != 0 || self.encryption != 0
    }

    /// Whether it says that it is compressed.
    pub fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSED != 0 || self.compression != 0
    }

    /// Whether it says that a checksum belongs to it. How SQL Server marks that
    /// has not been seen.
    pub fn is_checksummed(&self) -> bool {
        self.attributes & CHECKSUMMED != 0
    }
}

/// A piece of a data stream, whose bytes were put into the caller's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the stream.
    pub offset: u64,
    /// Its bytes: [`EXTENT_BYTES`], fewer only before a cut or a gap.
    pub bytes: usize,
    /// Backup sets begun so far, this one included.
    pub set: u32,
    /// Data blocks (MSDA) begun in the set so far, this one included.
    pub data_block: u32,
    /// Parts that cannot be read and are zero in the buffer. In order.
    pub holes: Vec<Range<usize>>,
    /// Something before it in its data stream was lost, so that it may not stand
    /// where a page begins, nor be one of data.
    pub is_salvaged: bool,
}

impl Extent {
    /// Whether these of its bytes could be read.
    pub fn is_there(&self, range: Range<usize>) -> bool {
        range.end <= self.bytes
            && self.holes.iter().all(|hole| hole.end <= range.start || range.end <= hole.start)
    }
}

/// What the walk comes across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A block.
    Block(Box<Block>),
    /// A stream of the block before.
    Stream(Box<Stream>),
    /// A piece of the data stream before.
    Extent(Extent),
    /// A piece of the stream of log before.
    Log(Extent),
    /// Something wrong.
    Fault(Fault),
}

/// Walks a stream.
///
/// ```text
/// let container = Container::of(&first_512_bytes, Sectors::new(file)?)?;
/// let mut walk = Walk::new(container);
/// let mut buffer = Box::new([0; EXTENT_BYTES]);
/// while let Some(event) = walk.next_event(&mut buffer)? {
///     match event { Event::Extent(extent) => judge(&buffer[..extent.bytes], &extent), ... }
/// }
/// ```
///
/// Faults of a compressed container and bad sectors wait in the source, whose
/// buffers are bounded: take them now and then, with [`Walk::source_mut`].
#[derive(Debug)]
pub struct Walk<S> {
    window: Window<S>,
    state: State,
    /// The type of the block whose streams these are.
    block: Option<Type>,
    set: u32,
    data_block: u32,
    /// Before the filemark behind ESET.
    is_unfinished: bool,
    ready: VecDeque<Event>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A block is due.
    Block,
    /// A stream is due.
    Stream,
    /// Inside a data stream.
    Extents {
        /// Of the data stream, and where the next one begins. `None`: its end is
        /// to be found.
        left: Option<u64>,
        next: u64,
        /// They are no extents but log.
        is_log: bool,
    },
    End,
}

impl<S: Stretches> Walk<S> {
    /// A walk from the beginning of a stream.
    pub fn new(source: S) -> Self {
        Self {
            window: Window::new(source),
            state: State::Block,
            block: None,
            set: 0,
            data_block: 0,
            is_unfinished: true,
            ready: VecDeque::new(),
        }
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &S {
        self.window.source()
    }

    /// Where the bytes come from, for its faults. Reading from it takes the bytes
    /// from the walk.
    pub fn source_mut(&mut self) -> &mut S {
        self.window.source_mut()
    }

    /// Bytes of the stream that were passed.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// What comes next; `None` at the end. An [`Extent`]'s bytes are put into
    /// `buffer`.
    ///
    /// # Errors
    /// The source's.
    pub fn next_event(&mut self, buffer: &mut [u8; EXTENT_BYTES]) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match self.state {
                State::Block => self.at_block()?,
                State::Stream => self.at_stream()?,
                State::Extents { left, next, is_log } => {
                    self.at_extent(left, next, is_log, buffer)?;
                }
                State::End => return Ok(None),
            }
        }
    }

    fn fault(&mut self, kind: FaultKind) {
        self.fault_at(self.window.offset(), kind);
    }

    fn fault_at(&mut self, offset: u64, kind: FaultKind) {
        self.ready.push_back(Event::Fault(Fault { offset, kind }));
    }

    fn end(&mut self) {
        self.state = State::End;
        if self.is_unfinished {
            self.fault(FaultKind::Unfinished);
        }
    }

    /// Ends where something was cut off.
    fn cut_off(&mut self) {
        self.fault(FaultKind::Truncated);
        self.end();
    }

    fn at_block(&mut self) -> io::Result<()> {
        let offset = self.window.offset();
        let seen = self.window.see(BLOCK_HEADER_BYTES)?;
        if seen.is_empty() {
            self.end();
            return Ok(());
        }
        let Some(header) = BlockHeader::read(seen) else {
            let count = seen.len() as u64;
            let is_block = BLOCKS.iter().any(|kind| seen.starts_with(kind));
            if self.is_unfinished || is_block {
                self.fault(FaultKind::Truncated);
            } else {
                self.fault(FaultKind::Trailing(count));
            }
            self.end();
            return Ok(());
        };
        let is_there = self.window.is_there(BLOCK_HEADER_BYTES);
        if !is_there || header.computed != header.stored || !header.is_plain() {
            return self.at_bad_block(header, is_there);
        }
        let size = usize::from(header.first_stream);
        let seen = self.window.see(size)?;
        if seen.len() < size {
            self.cut_off();
            return Ok(());
        }
        let details = Details::read(header.kind, seen);
        if !BLOCKS.contains(&header.kind.0) {
            self.fault(FaultKind::UnknownBlock(header.kind));
        }
        self.begin_block(offset, header, details);
        self.window.pass(size);
        self.state = if header.kind.0 == *b"SFMB" { State::Block } else { State::Stream };
        Ok(())
    }

    fn begin_block(&mut self, offset: u64, header: BlockHeader, details: Option<Details>) {
        match &header.kind.0 {
            b"SSET" => {
                self.set = self.set.saturating_add(1);
                self.data_block = 0;
                self.is_unfinished = true;
            }
            b"MSDA" => self.data_block = self.data_block.saturating_add(1),
            // The last thing of a set.
            b"SFMB" if self.block == Some(Type(*b"ESET")) => self.is_unfinished = false,
            _ => {}
        }
        self.block = Some(header.kind);
        let BlockHeader { kind, attributes, address, number, stored, computed, .. } = header;
        let (set, place) = (self.set, (stored == computed).then_some((address, number)));
        let block = Block { offset, kind, attributes, set, details, place };
        self.ready.push_back(Event::Block(Box::new(block)));
    }

    /// A block whose header cannot be believed.
    fn at_bad_block(&mut self, header: BlockHeader, is_there: bool) -> io::Result<()> {
        let offset = self.window.offset();
        let BlockHeader { stored, computed, .. } = header;
        let kind = match (is_there, stored == computed) {
            (false, _) => FaultKind::Unreadable,
            (_, true) => FaultKind::Layout,
            (_, false) => FaultKind::BlockSum { stored, computed },
        };
        // The streams of a block that is known by its type, if there are any.
        let size = usize::from(header.first_stream);
        let is_known = is_there && BLOCKS.contains(&header.kind.0) && header.is_plain();
        if is_known && header.kind.0 != *b"SFMB" {
            let seen = self.window.see(size.saturating_add(STREAM_HEADER_BYTES))?;
            if seen.get(size..).is_some_and(is_stream) {
                self.fault(kind);
                self.begin_block(offset, header, None);
                self.window.pass(size);
                self.state = State::Stream;
                return Ok(());
            }
        }
        let was_unfinished = self.is_unfinished;
        let (found, skipped) = self.search()?;
        if found.is_none() && !was_unfinished {
            self.fault_at(offset, FaultKind::Trailing(skipped));
            self.state = State::End;
            return Ok(());
        }
        self.fault_at(offset, kind);
        if is_known {
            self.begin_block(offset, header, None);
        } else {
            self.block = None;
        }
        self.go_on(offset, found, skipped);
        Ok(())
    }

    fn go_on(&mut self, offset: u64, found: Option<State>, skipped: u64) {
        self.fault_at(offset, FaultKind::Skipped(skipped));
        match found {
            Some(state) => self.state = state,
            None => self.end(),
        }
    }

    /// Passes all up to the next block or stream whose header has its sum.
    fn search(&mut self) -> io::Result<(Option<State>, u64)> {
        let begin = self.window.offset();
        let mut first = 1;
        loop {
            let offset = self.window.offset();
            let seen = self.window.see(SEARCH_BYTES + BLOCK_HEADER_BYTES)?;
            let found = places(offset, first).find_map(|at| {
                let bytes = seen.get(at..)?;
                if is_stream(bytes) {
                    return Some((at, State::Stream));
                }
                let place = offset.saturating_add(at as u64);
                let is_here = place.is_multiple_of(ALIGNMENT) && is_block(bytes);
                is_here.then_some((at, State::Block))
            });
            let is_end = seen.is_empty();
            if let Some((at, state)) = found {
                self.window.pass(at);
                return Ok((Some(state), self.window.offset().saturating_sub(begin)));
            }
            if is_end {
                return Ok((None, self.window.offset().saturating_sub(begin)));
            }
            self.window.pass(SEARCH_BYTES);
            first = 0;
        }
    }

    fn at_stream(&mut self) -> io::Result<()> {
        let offset = self.window.offset();
        let seen = self.window.see(STREAM_HEADER_BYTES)?;
        let Some(header) = StreamHeader::read(seen) else {
            self.cut_off();
            return Ok(());
        };
        let is_there = self.window.is_there(STREAM_HEADER_BYTES);
        if !is_there || header.stored != header.computed || !header.kind.is_possible() {
            return self.at_bad_stream(header, is_there);
        }
        let StreamHeader { kind, attributes, bytes, encryption, compression, .. } = header;
        if !STREAMS.contains(&kind.0) {
            self.fault(FaultKind::UnknownStream(kind));
        }
        let mut stream = Stream {
            offset,
            kind,
            attributes,
            bytes,
            encryption,
            compression,
            media: None,
            configuration: None,
        };
        let next = offset.saturating_add(STREAM_HEADER_BYTES as u64).saturating_add(bytes);
        let next = next.checked_next_multiple_of(STREAM_ALIGNMENT).unwrap_or(u64::MAX);
        let is_log = kind.0 == *b"MQTL";
        let is_data = (is_log || kind.0 == *b"MQDA") && bytes >= EXTENTS_BEGIN as u64;
        if is_data && (stream.is_encrypted() || stream.is_compressed()) {
            self.fault(FaultKind::Encoded);
        } else if is_data {
            if !is_log && self.block != Some(Type(*b"MSDA")) {
                // Its block was lost.
                self.block = Some(Type(*b"MSDA"));
                self.data_block = self.data_block.saturating_add(1);
            }
            let left = bytes.saturating_sub(EXTENTS_BEGIN as u64);
            if !is_log && !left.is_multiple_of(EXTENT_BYTES as u64) {
                self.fault(FaultKind::Extents(left));
            }
            self.ready.push_back(Event::Stream(Box::new(stream)));
            self.window.see(STREAM_HEADER_BYTES + EXTENTS_BEGIN)?;
            self.window.pass(STREAM_HEADER_BYTES + EXTENTS_BEGIN);
            self.state = State::Extents { left: Some(left), next, is_log };
            return Ok(());
        }
        if matches!(&kind.0, b"RAID" | b"MQCI") && bytes <= CONFIGURATION_BYTES_MAX {
            let count = usize::try_from(bytes).unwrap_or(usize::MAX);
            let count = count.saturating_add(STREAM_HEADER_BYTES);
            let seen = self.window.see(count)?;
            let contents = seen.get(STREAM_HEADER_BYTES..count).unwrap_or_default();
            if kind.0 == *b"RAID" {
                stream.media = Media::read(contents);
            } else {
                stream.configuration = Configuration::read(contents);
            }
            let is_whole = contents.len() as u64 == bytes;
            if !self.window.is_there(count) {
                (stream.media, stream.configuration) = (None, None);
            } else if kind.0 == *b"MQCI" && is_whole && stream.configuration.is_none() {
                self.fault(FaultKind::Configuration);
            }
        }
        self.ready.push_back(Event::Stream(Box::new(stream)));
        self.pass_to(next)?;
        if kind.0 == *b"SPAD" && self.state == State::Stream {
            self.state = State::Block;
        }
        Ok(())
    }

    /// Passes all up to a place, or ends.
    fn pass_to(&mut self, next: u64) -> io::Result<()> {
        let count = next.saturating_sub(self.window.offset());
        if self.window.pass_unseen(count)? < count {
            self.cut_off();
        }
        Ok(())
    }

    /// A stream whose header cannot be believed.
    fn at_bad_stream(&mut self, header: StreamHeader, is_there: bool) -> io::Result<()> {
        let offset = self.window.offset();
        let StreamHeader { stored, computed, .. } = header;
        self.fault(match (is_there, stored == computed) {
            (false, _) => FaultKind::Unreadable,
            (_, true) => FaultKind::Layout,
            (_, false) => FaultKind::StreamSum { stored, computed },
        });
        // Only extents begin at a multiple of 512.
        let extents = offset.saturating_add((STREAM_HEADER_BYTES + EXTENTS_BEGIN) as u64);
        if self.block.is_some_and(|block| block.0 == *b"MSDA") && extents.is_multiple_of(ALIGNMENT)
        {
            self.window.see(STREAM_HEADER_BYTES + EXTENTS_BEGIN)?;
            self.window.pass(STREAM_HEADER_BYTES + EXTENTS_BEGIN);
            self.state = State::Extents { left: None, next: 0, is_log: false };
            return Ok(());
        }
        let (found, skipped) = self.search()?;
        self.go_on(offset, found, skipped);
        Ok(())
    }

    fn at_extent(
        &mut self,
        left: Option<u64>,
        next: u64,
        is_log: bool,
        buffer: &mut [u8; EXTENT_BYTES],
    ) -> io::Result<()> {
        if left == Some(0) {
            self.state = State::Stream;
            return self.pass_to(next);
        }
        let wanted = left.map_or(EXTENT_BYTES, |left| {
            usize::try_from(left).unwrap_or(usize::MAX).min(EXTENT_BYTES)
        });
        let seen = self.window.see(wanted)?;
        if left.is_none() && is_stream(seen) && self.window.is_there(STREAM_HEADER_BYTES) {
            self.state = State::Stream;
            return Ok(());
        }
        let offset = self.window.offset();
        let place = |at: u64| usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX);
        // What follows a hole of unknown size begins anew.
        let gap = self.window.holes(wanted).find(|hole| !hole.is_exact).map(|hole| hole.at.end);
        let seen = self.window.seen_up_to(wanted);
        let bytes = seen.len().min(gap.map_or(usize::MAX, place));
        if let (Some(to), Some(from)) = (buffer.get_mut(..bytes), seen.get(..bytes)) {
            to.copy_from_slice(from);
        }
        let is_cut_off = seen.len() < wanted;
        if bytes > 0 {
            let range = |hole: &Hole| place(hole.at.start)..place(hole.at.end).min(bytes);
            let extent = Extent {
                offset,
                bytes,
                set: self.set,
                data_block: self.data_block,
                holes: self.window.holes(bytes).map(range).collect(),
                is_salvaged: left.is_none(),
            };
            let event = if is_log { Event::Log(extent) } else { Event::Extent(extent) };
            self.ready.push_back(event);
            self.window.pass(bytes);
        }
        let left = left.filter(|_| gap.is_none() || is_log);
        let left = left.map(|left| left.saturating_sub(bytes as u64));
        self.state = State::Extents { left, next, is_log };
        if is_cut_off && (gap.is_none() || bytes == 0) {
            self.cut_off();
        }
        Ok(())
    }
}

/// Where a stream may begin in the next [`SEARCH_BYTES`], from `first` on.
fn places(offset: u64, first: usize) -> impl Iterator<Item = usize> {
    let begin = offset.saturating_add(first as u64);
    let aligned = begin.checked_next_multiple_of(STREAM_ALIGNMENT).unwrap_or(u64::MAX);
    let first = usize::try_from(aligned.saturating_sub(offset)).unwrap_or(usize::MAX);
    (first..SEARCH_BYTES).step_by(4)
}

#[cfg(test)]
pub(crate) mod tests;

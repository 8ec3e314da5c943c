//! Reads the log from a position on, record by record, to its end.
//!
//! A record begins at a multiple of 8 and goes on behind the header of the next
//! page where it does not fit. The log ends with the first record that is not
//! what it must be: too short, not linked to the one before, with a wrong CRC,
//! or on a page with another address (a recycled file still holds old ones).
//! That is how recovery finds the end, too.
//!
//! Source: `src/backend/access/transam/xlogreader.c`.

use std::fs::File;

use crate::files::wal::block::{
    Dialect, HEAD_BYTES, OF_LOG, RECORD_HEADER_BYTES, RecordHeader, SWITCH,
};
use crate::files::wal::segment::{LONG_HEADER_BYTES, PageHeader, Segments};
use pagewarden_core::crc::Crc32c;
use pagewarden_core::source::file::read_fully;

/// Records begin at multiples of this, on 64-bit machines.
const ALIGNMENT: u64 = 8;
/// How far beyond its apparent end the log is looked at: more than the longest
/// record that is not a rarity.
const LOOK_BEYOND_BYTES: u64 = 32 << 20;
/// `crc` is the last field of a record's header.
const CRC: usize = RECORD_HEADER_BYTES - 4;

/// Why there is no next record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The log ends here: what follows is no record.
    End,
    /// The log is not available from here on; says what is missing.
    Gap(String),
}

/// A record of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it begins.
    pub begin: u64,
    /// Where the next one may begin.
    pub end: u64,
    /// The magic of the page it begins on, which tells the dialect.
    pub magic: u16,
    /// Its header.
    pub header: RecordHeader,
    /// Its first [`HEAD_BYTES`], or more where the reader was told so, or all of it.
    pub head: &'a [u8],
}

/// See the module.
#[derive(Debug)]
pub struct LogReader {
    pages: Pages,
    next: u64,
    /// Where the record before the next one began, once that is known.
    before: Option<u64>,
    head: Vec<u8>,
    /// How much of a record is kept.
    head_bytes: usize,
}

impl LogReader {
    /// A reader whose first record begins at `next`, and which reads
    /// `chunk_bytes` at a time, but at least a page. `before` is where the
    /// record before that one begins, if that is known.
    #[must_use]
    pub fn new(segments: Segments, next: u64, before: Option<u64>, chunk_bytes: usize) -> Self {
        let chunk_bytes = chunk_bytes.max(segments.identity.page_bytes as usize);
        let pages = Pages {
            segments,
            file: None,
            chunk: Vec::new(),
            chunk_bytes,
            chunk_begin: 0,
            magic: None,
        };
        Self { pages, next, before, head: Vec::new(), head_bytes: HEAD_BYTES }
    }

    /// The same, but keeps so much of each record.
    #[must_use]
    pub fn keeping(self, head_bytes: usize) -> Self {
        Self { head_bytes: head_bytes.max(HEAD_BYTES), ..self }
    }

    /// Goes to the first record that begins on the page at `address` or behind it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn go_to(&mut self, mut address: u64) -> Result<(), Stop> {
        let page_bytes = self.pages.page_bytes();
        loop {
            let header = self.pages.header(address)?;
            let inside = if header.continues() { u64::from(header.remaining) } else { 0 };
            let behind = inside.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
            let begin = address.saturating_add(header.bytes() as u64).saturating_add(behind);
            let next = address.saturating_add(page_bytes);
            if begin < next {
                (self.next, self.before) = (begin, None);
                return Ok(());
            }
            address = next;
        }
    }

    /// The next record.
    ///
    /// # Errors
    /// Why there is none.
    pub fn next_record(&mut self) -> Result<Record<'_>, Stop> {
        let page_bytes = self.pages.page_bytes();
        let mut begin = self.next;
        // A record that replaces a lost one is looked for once a page.
        let end = loop {
            let address = begin - begin % page_bytes;
            let header = self.pages.header(address)?;
            let header_bytes = header.bytes() as u64;
            if begin == address {
                begin = begin.saturating_add(header_bytes);
            }
            let offset = begin % page_bytes;
            let inside = header.continues() && offset == header_bytes;
            if offset < header_bytes || !offset.is_multiple_of(ALIGNMENT) || inside {
                return Err(Stop::End);
            }
            match self.assemble(begin, address)? {
                Assembled::Whole { end } => break end,
                Assembled::ReplacedAt(address) => begin = address,
            }
        };
        let header = RecordHeader::read(&self.head).ok_or(Stop::End)?;
        let magic = self.pages.magic.ok_or(Stop::End)?;
        self.before = Some(begin);
        self.next = end;
        Ok(Record { begin, end, magic, header, head: &self.head })
    }

    /// Gathers the record at `begin` on the page at `address`, its first bytes
    /// in `self.head`, and tests it.
    fn assemble(&mut self, begin: u64, mut address: u64) -> Result<Assembled, Stop> {
        self.head.clear();
        let mut crc = Crc32c::new();
        // The length stands before the first page break: records begin at
        // multiples of 8.
        let rest = self.pages.rest(address, begin)?;
        let total = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Stop::End)?;
        if (total as usize) < RECORD_HEADER_BYTES {
            return Err(Stop::End);
        }
        let total = u64::from(total);
        let mut got = 0_u64;
        let mut at = begin;
        loop {
            let fragment = up_to(self.pages.rest(address, at)?, total.saturating_sub(got));
            let header_left = RECORD_HEADER_BYTES.saturating_sub(self.head.len());
            crc.update(fragment.get(header_left..).unwrap_or_default());
            let room = self.head_bytes.saturating_sub(self.head.len());
            self.head.extend_from_slice(up_to(fragment, room as u64));
            got = got.saturating_add(fragment.len() as u64);
            at = at.saturating_add(fragment.len() as u64);
            // Before anything more is believed of a length that may be garbage.
            if self.head.len() >= RECORD_HEADER_BYTES && !self.is_linked(begin) {
                return Err(Stop::End);
            }
            if got >= total {
                break;
            }
            address = address.saturating_add(self.pages.page_bytes());
            let header = self.pages.header(address)?;
            if header.replaces() {
                return Ok(Assembled::ReplacedAt(address));
            }
            if !header.continues() || u64::from(header.remaining) != total.saturating_sub(got) {
                return Err(Stop::End);
            }
            at = address.saturating_add(header.bytes() as u64);
        }
        let header = RecordHeader::read(&self.head).ok_or(Stop::End)?;
        crc.update(self.head.get(..CRC).unwrap_or_default());
        if crc.finish() != header.crc {
            return Err(Stop::End);
        }
        let mut end = at.checked_next_multiple_of(ALIGNMENT).ok_or(Stop::End)?;
        if header.manager == OF_LOG && header.operation() == SWITCH {
            let segment_bytes = self.pages.segments.segment_bytes();
            end = end.checked_next_multiple_of(segment_bytes).ok_or(Stop::End)?;
        }
        Ok(Assembled::Whole { end })
    }

    /// True if a record can be read farther on although there is none where the
    /// next one ought to be: what looks like the end of the log is a hole.
    pub fn goes_on(&mut self) -> bool {
        let page_bytes = self.pages.page_bytes();
        let mut address = self.next - self.next % page_bytes;
        let limit = address.saturating_add(LOOK_BEYOND_BYTES);
        let end = self.next;
        while address < limit {
            address = address.saturating_add(page_bytes);
            let Ok(header) = self.pages.header(address) else { return false };
            let inside = if header.continues() { u64::from(header.remaining) } else { 0 };
            let behind = inside.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
            let begin = address.saturating_add(header.bytes() as u64).saturating_add(behind);
            if begin >= address.saturating_add(page_bytes) {
                continue;
            }
            self.before = None;
            self.next = begin;
            let found = self.next_record().is_ok();
            if found && self.before.is_some_and(|found| found > end) {
                return true;
            }
        }
        false
    }

    /// True if the record in `self.head` names the one before it.
    fn is_linked(&self, begin: u64) -> bool {
        let previous = RecordHeader::read(&self.head).map(|header| header.previous);
        match self.before {
            Some(before) => previous == Some(before),
            None => previous.is_some_and(|previous| previous < begin),
        }
    }
}

/// The pages of the log, read in larger chunks.
#[derive(Debug)]
struct Pages {
    segments: Segments,
    file: Option<(u64, File)>,
    chunk: Vec<u8>,
    chunk_bytes: usize,
    chunk_begin: u64,
    /// Of the first page that was read; all others must have the same.
    magic: Option<u16>,
}

impl Pages {
    /// Bytes in a page; never 0.
    fn page_bytes(&self) -> u64 {
        u64::from(self.segments.identity.page_bytes.max(1))
    }

    /// From `at` to the end of the page at `address`, whose header was seen.
    fn rest(&mut self, address: u64, at: u64) -> Result<&[u8], Stop> {
        let offset = usize::try_from(at.saturating_sub(address)).map_err(|_| Stop::End)?;
        self.page(address)?.get(offset..).filter(|rest| rest.len() >= 4).ok_or(Stop::End)
    }

    /// The header of the page at `address`, if it is one of this log.
    fn header(&mut self, address: u64) -> Result<PageHeader, Stop> {
        let header = PageHeader::read(self.page(address)?).ok_or(Stop::End)?;
        self.test(&header, address)?;
        Ok(header)
    }

    fn test(&mut self, header: &PageHeader, address: u64) -> Result<(), Stop> {
        if header.address != address || header.timeline > self.segments.timeline {
            return Err(Stop::End);
        }
        let begins_file = address.is_multiple_of(self.segments.segment_bytes());
        match header.identity {
            Some(identity) if identity != self.segments.identity => {
                let name = self.segments.name_of(address);
                return Err(Stop::Gap(format!("segment {name} is of another cluster")));
            }
            None if begins_file => return Err(Stop::End),
            _ => {}
        }
        match self.magic {
            None if Dialect::of_magic(header.magic).is_none() => {
                let magic = header.magic;
                return Err(Stop::Gap(format!("the format of the log, 0x{magic:04X}, is unknown")));
            }
            None => self.magic = Some(header.magic),
            Some(magic) if magic != header.magic => return Err(Stop::End),
            Some(_) => {}
        }
        Ok(())
    }

    /// The page at `address`, whatever it holds.
    fn page(&mut self, address: u64) -> Result<&[u8], Stop> {
        let page_bytes = self.segments.identity.page_bytes as usize;
        let within = |chunk_begin: u64, length: usize| {
            let begin = usize::try_from(address.checked_sub(chunk_begin)?).ok()?;
            let end = begin.checked_add(page_bytes)?;
            (end <= length).then_some(begin..end)
        };
        let range = match within(self.chunk_begin, self.chunk.len()) {
            Some(range) => range,
            None => {
                self.load(address)?;
                match within(self.chunk_begin, self.chunk.len()) {
                    Some(range) => range,
                    None => {
                        let name = self.segments.name_of(address);
                        return Err(Stop::Gap(format!("segment {name} is cut short")));
                    }
                }
            }
        };
        self.chunk.get(range).ok_or(Stop::End)
    }

    /// Reads what begins at `address`, up to the end of its file.
    fn load(&mut self, address: u64) -> Result<(), Stop> {
        let segment = self.segments.segment_of(address);
        let segment_bytes = self.segments.identity.segment_bytes;
        let name = || segment.file_name(segment_bytes);
        if self.file.as_ref().is_none_or(|(begin, _)| *begin != segment.begin) {
            self.file = None;
            let file = self.segments.open(address).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Stop::Gap(format!("segment {} is missing", name())),
                _ => Stop::Gap(format!("segment {} cannot be read: {error}", name())),
            })?;
            // The first page says whose log it is, also to who begins farther on.
            let mut bytes = [0_u8; LONG_HEADER_BYTES];
            read_fully(&file, &mut bytes, 0).map_err(|error| {
                Stop::Gap(format!("segment {} cannot be read: {error}", name()))
            })?;
            self.test(&PageHeader::read(&bytes).ok_or(Stop::End)?, segment.begin)?;
            self.file = Some((segment.begin, file));
        }
        let Some((_, file)) = &self.file else { return Err(Stop::End) };
        let offset = address.saturating_sub(segment.begin);
        let left = self.segments.segment_bytes().saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk_bytes);
        self.chunk.clear();
        self.chunk.resize(length, 0);
        let filled = read_fully(file, &mut self.chunk, offset)
            .map_err(|error| Stop::Gap(format!("segment {} cannot be read: {error}", name())))?;
        self.chunk.truncate(filled);
        self.chunk_begin = address;
        Ok(())
    }
}

enum Assembled {
    /// In `head`, tested; the next record begins at `end` or later.
    Whole { end: u64 },
    /// Its rest was lost in a crash: the page at this address begins with
    /// another record in its stead.
    ReplacedAt(u64),
}

/// The first `count` bytes, or all if there are fewer.
fn up_to(bytes: &[u8], count: u64) -> &[u8] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    bytes.get(..count).unwrap_or(bytes)
}

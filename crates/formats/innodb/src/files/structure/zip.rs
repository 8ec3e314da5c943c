//! A page of `ROW_FORMAT=COMPRESSED` as it is stored, and how the page in the clear comes of it.
//!
//! | place | what |
//! |---|---|
//! | 0..94 | the headers of the page in the clear |
//! | 94 | a zlib stream; then a log of records that changed since, up to a zero |
//! | end down, 2 bytes a record | the directory: the list in its order, then removed records; 14 bits place, 0x4000 owns others, 0x8000 deleted |
//! | before it, a record each by number of the heap | of upper levels 4 bytes: the page below; of rows 13: transaction and roll pointer |
//! | before those, of rows | 20 bytes for each value that goes on elsewhere |
//!
//! The stream is of two parts with a flush (`00 00 FF FF`) between them. The first one has a number for
//! each field, of one byte or, from 128 on, of two: length * 2 + 1 if it is never null; 0 and 1 of any
//! length, 126 and 127 of any length above 255. Fields of fixed length that are never null are one. The last number is
//! the field that begins with the transaction, 0 without one; of upper levels, how many fields of the index
//! may be null. The second part is all bytes from 120 on, but those that are stored apart, and five before each record.
//!
//! The log has for each change the record's number in the heap, less one, * 2, + 1 if it was cleared; then the
//! bytes before it (without those five) back to front, and its own.
//!
//! Source: `page0zip.cc` of MariaDB 10.11.

#![deny(clippy::arithmetic_side_effects)]

use flate2::{Decompress, FlushDecompress, Status};

use crate::files::structure::definition::{Field, Index, Order};
use crate::files::structure::record::{self, Extent, Part};
use crate::page::fields::read_u16;
use crate::page::index::{DELETED, FIRST, IndexPage, Place};

const HEADERS: usize = 94;
const SLOT_BYTES: usize = 2;
const CHILD_BYTES: usize = 4;
const VERSION_BYTES: usize = 13;
const REFERENCE_BYTES: usize = 20;
const TRAILER_BYTES: usize = 8;
/// Of the heap in the clear.
const BEGIN: usize = 120;
const INFIMUM: usize = 99;
const SUPREMUM: usize = 112;
/// Before each record.
const HEADER: usize = 5;
const PLACE: u16 = 0x3FFF;
const OWNS: u16 = 0x4000;
const IS_DELETED: u16 = 0x8000;
const FLUSH: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// The page in the clear.
///
/// # Errors
/// It is none that a server writes; in words.
pub(super) fn unpack(page: &IndexPage<'_>, page_size: usize) -> Result<Vec<u8>, String> {
    let directory = Directory::of(page, page_size)?;
    let stream = page.bytes().get(HEADERS..directory.begin).unwrap_or_default();
    let (clear, described, taken) = inflate(stream, page_size)?;
    let (description, records) = clear.split_at_checked(described).unwrap_or_default();
    let kind = Kind::of(description, page.level() == 0)
        .ok_or("its stream does not describe the fields of an index")?;
    let apart = directory.places.len().saturating_mul(kind.bytes_apart());
    let end = directory.begin.checked_sub(apart).filter(|end| *end > HEADERS);
    let end = end.ok_or("what is stored apart does not fit into it")?;
    let log = stream.get(taken..end.saturating_sub(HEADERS)).unwrap_or_default();
    let mut unpacking = Unpacking {
        page: vec![0; page_size],
        stored: *page,
        directory,
        kind,
        known: 0,
        parts: Vec::new(),
    };
    unpacking.begin();
    unpacking.lay_out(records)?;
    let read = unpacking.apply(log)?;
    let log_end = HEADERS.saturating_add(taken).saturating_add(read);
    unpacking.restore(end, log_end).ok_or("what is stored apart of its records does not fit")?;
    unpacking.link();
    unpacking.sparse_directory()?;
    Ok(unpacking.page)
}

/// The directory of a stored page.
struct Directory {
    /// Where it begins on the stored page.
    begin: usize,
    /// In its order, with bits.
    slots: Vec<u16>,
    /// Records in the list.
    listed: usize,
    /// All records by number of the heap.
    places: Vec<usize>,
    /// Of removed records.
    removed: Vec<usize>,
}

impl Directory {
    fn of(page: &IndexPage<'_>, page_size: usize) -> Result<Self, String> {
        let bytes = page.bytes();
        let records = page.heap_count().saturating_sub(2);
        let listed = usize::from(page.record_count());
        let begin = bytes.len().saturating_sub(records.saturating_mul(SLOT_BYTES));
        if page.heap_count() < 2 || listed > records || begin < HEADERS {
            return Err(format!("{listed} records in its list, and {records} in its heap"));
        }
        if page.heap_top() > page_size || page.level() > 32 {
            let (top, level) = (page.heap_top(), page.level());
            return Err(format!("it is of level {level}, and its heap ends at byte {top}"));
        }
        let slots = bytes.get(begin..).unwrap_or_default().rchunks_exact(SLOT_BYTES);
        let slots: Vec<_> = slots.map(|slot| read_u16(slot, 0)).collect();
        let place = |slot: &u16| usize::from(slot & PLACE);
        let mut places: Vec<_> = slots.iter().map(place).collect();
        places.sort_unstable();
        let first = places.first().copied().unwrap_or(usize::MAX);
        let last = places.last().copied().unwrap_or(0);
        let is_twice = places.windows(2).any(|pair| matches!(pair, [one, two] if one == two));
        if is_twice || first < BEGIN.saturating_add(HEADER) || last > page.heap_top() {
            return Err("its directory names a place twice, or one that is not in its heap".into());
        }
        let removed = slots.get(listed..).unwrap_or_default();
        if removed.iter().any(|slot| slot & !PLACE != 0) {
            return Err("its directory has removed records that own others".into());
        }
        let removed = removed.iter().map(place).collect();
        Ok(Self { begin, slots, listed, places, removed })
    }
}

/// What comes out of the stream, how much of that is the description of fields, and how much was taken in.
fn inflate(stream: &[u8], page_size: usize) -> Result<(Vec<u8>, usize, usize), String> {
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let mut clear = vec![0; page_size.saturating_mul(2)];
    let mut inflate = Decompress::new(true);
    let flush = stream.windows(FLUSH.len()).position(|four| four == FLUSH);
    let flush = flush.ok_or("its compressed stream has no end of a description")?;
    let (first, rest) =
        stream.split_at_checked(flush.saturating_add(FLUSH.len())).unwrap_or_default();
    let words = |error| format!("its compressed stream cannot be unpacked: {error}");
    inflate.decompress(first, &mut clear, FlushDecompress::None).map_err(words)?;
    if size(inflate.total_in()) != first.len() {
        return Err("its compressed stream ends in its description".into());
    }
    let described = size(inflate.total_out());
    let room = clear.get_mut(described..).unwrap_or_default();
    match inflate.decompress(rest, room, FlushDecompress::Finish).map_err(words)? {
        Status::StreamEnd => {}
        Status::Ok | Status::BufError => return Err("its compressed stream does not end".into()),
    }
    clear.truncate(size(inflate.total_out()));
    Ok((clear, described, size(inflate.total_in())))
}

/// What a page has, as far as its own stream describes it.
struct Kind {
    is_leaf: bool,
    /// Fields as records have them. Those of fixed length that are never null are one.
    fields: Index,
    /// The field that begins with the transaction and the roll pointer.
    version: Option<usize>,
}

impl Kind {
    fn of(description: &[u8], is_leaf: bool) -> Option<Self> {
        const TWO: u8 = 0x80;
        let mut numbers = Vec::new();
        let mut rest = description.iter();
        while let Some(first) = rest.next() {
            numbers.push(match first & TWO {
                0 => (u16::from(*first), false),
                _ => (u16::from(first & !TWO) << 8 | u16::from(*rest.next()?), true),
            });
        }
        let (last, _) = numbers.pop()?;
        let mut fields: Vec<_> = (0..).zip(numbers).map(|(at, it)| field(at, it)).collect();
        let (count, last) = (fields.len(), usize::from(last));
        let nullable = fields.iter().filter(|field| field.is_nullable).count();
        if !is_leaf {
            // The bits are there of all fields of the index.
            let more = last.checked_sub(nullable)?;
            fields.extend(std::iter::repeat_n(field(count, (0, false)), more));
        }
        let version = Some(last).filter(|at| is_leaf && *at > 0);
        let is_there = version.is_none_or(|at| {
            let length = fields.get(at).and_then(|field| field.fixed);
            length.is_some_and(|length| length >= VERSION_BYTES)
        });
        let fields = Index {
            name: String::new(),
            clustered: 0,
            root: 0,
            fields,
            key_count: count,
            is_altered: false,
            first_count: None,
            is_of_rows: false,
            is_stored: false,
        };
        is_there.then_some(Self { is_leaf, fields, version })
    }

    fn bytes_apart(&self) -> usize {
        match (self.is_leaf, self.version) {
            (false, _) => CHILD_BYTES,
            (true, Some(_)) => VERSION_BYTES,
            (true, None) => 0,
        }
    }
}

/// A field by its number in the description, and whether that has two bytes.
fn field(column: usize, (number, is_two): (u16, bool)) -> Field {
    let is_fixed = is_two || (2..126).contains(&number);
    Field {
        column,
        fixed: is_fixed.then_some(usize::from(number >> 1)),
        is_big: !is_fixed && number >= 126,
        is_nullable: number & 1 == 0,
        is_descending: false,
        order: Order::Unknown,
        is_prefix: false,
        added: 0,
    }
}

fn read(
    kind: &Kind,
    origin: usize,
    byte: impl Fn(usize) -> Option<u8>,
    parts: &mut Vec<Part>,
) -> Option<Extent> {
    parts.clear();
    let place = Place::ordinary(origin);
    let extent = record::compact(&kind.fields, kind.is_leaf, &place, byte, parts)?;
    (extent.0 >= BEGIN).then_some(extent)
}

struct Unpacking<'a> {
    /// In the clear.
    page: Vec<u8>,
    stored: IndexPage<'a>,
    directory: Directory,
    kind: Kind,
    /// Records whose bytes are there.
    known: usize,
    /// Of the record that was read last.
    parts: Vec<Part>,
}

impl Unpacking<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        self.page.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        Some(())
    }

    fn put_u16(&mut self, at: usize, number: usize) -> Option<()> {
        self.put(at, &u16::try_from(number).ok()?.to_be_bytes())
    }

    /// The headers, and the ends of the list.
    fn begin(&mut self) {
        self.put(0, self.stored.bytes().get(..HEADERS).unwrap_or_default());
        self.put(INFIMUM.saturating_sub(HEADER), &[1, 0, 2]);
        self.put(INFIMUM, b"infimum\0");
        self.put(SUPREMUM.saturating_sub(HEADER), &[0, 0, 0x0B, 0, 0]);
        self.put(SUPREMUM, b"supremum");
    }

    fn set_heap_number(&mut self, origin: usize, rank: usize) -> Option<()> {
        let status = u16::from(!self.kind.is_leaf);
        let number = u16::try_from(rank.checked_add(2)?).ok()?.checked_mul(8)?;
        self.put(origin.checked_sub(4)?, &(number | status).to_be_bytes())
    }

    /// The fields of a record, by the bytes before it.
    fn read(&mut self, origin: usize, byte: impl Fn(usize) -> Option<u8>) -> Option<Extent> {
        read(&self.kind, origin, byte, &mut self.parts).filter(|it| it.1 <= self.page.len())
    }

    /// The fields of a record that is on the page.
    fn read_own(&mut self, origin: usize) -> Option<Extent> {
        let page = &self.page;
        let byte = |back: usize| page.get(origin.checked_sub(back)?).copied();
        read(&self.kind, origin, byte, &mut self.parts).filter(|it| it.1 <= page.len())
    }

    /// What of the record is stored apart, front to back.
    fn apart(&self) -> impl Iterator<Item = (usize, usize)> {
        let from_end = |part: &Part, bytes: usize| Some((part.end.checked_sub(bytes)?, part.end));
        let last = self.parts.len().saturating_sub(1);
        (0..).zip(&self.parts).filter_map(move |(at, part): (usize, &Part)| {
            if !self.kind.is_leaf {
                return (at == last).then_some((part.begin, part.end));
            }
            if self.kind.version == Some(at) {
                return Some((part.begin, part.begin.checked_add(VERSION_BYTES)?));
            }
            part.is_outside.then(|| from_end(part, REFERENCE_BYTES)).flatten()
        })
    }

    /// What of the record is not.
    fn pieces(&self, origin: usize, end: usize) -> Option<Vec<(usize, usize)>> {
        let mut pieces = Vec::new();
        let mut from = origin;
        for (begin, behind) in self.apart().chain([(end, end)]) {
            begin.checked_sub(from)?;
            pieces.push((from, begin));
            from = behind;
        }
        Some(pieces)
    }

    /// The records as they were when the page was packed.
    fn lay_out(&mut self, mut clear: &[u8]) -> Result<(), String> {
        let mut at = BEGIN;
        for rank in 0..self.directory.places.len() {
            let origin = self.directory.places.get(rank).copied().unwrap_or_default();
            let words = || format!("the record at byte {origin} does not fit its stream");
            let gap = origin.checked_sub(HEADER).and_then(|to| to.checked_sub(at));
            let gap = gap.ok_or_else(words)?;
            // It may be there since.
            let Some((before, rest)) = clear.split_at_checked(gap) else { break };
            self.put(at, before).ok_or_else(words)?;
            self.set_heap_number(origin, rank).ok_or_else(words)?;
            (at, clear, self.known) = (origin, rest, rank.saturating_add(1));
            if clear.is_empty() {
                break;
            }
            if self.kind.is_leaf && self.kind.version.is_none() {
                continue;
            }
            let (_, end) = self.read_own(origin).ok_or_else(words)?;
            for (begin, end) in self.pieces(origin, end).ok_or_else(words)? {
                let length = end.saturating_sub(begin);
                let (piece, rest) = clear.split_at_checked(length).ok_or_else(words)?;
                self.put(begin, piece).ok_or_else(words)?;
                clear = rest;
            }
            at = end;
        }
        let is_inside = at.saturating_add(clear.len()) <= self.stored.heap_top();
        let put = self.put(at, clear).filter(|()| is_inside);
        put.ok_or_else(|| format!("its stream has {} bytes too many", clear.len()))
    }

    /// What changed since; how many bytes of the log say so.
    fn apply(&mut self, log: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        loop {
            let words = || format!("its log of changes is none from byte {at} of it on");
            match self.change(log.get(at..).unwrap_or_default()).ok_or_else(words)? {
                0 => return Ok(at),
                read => at = at.saturating_add(read),
            }
        }
    }

    /// One change; how many bytes it has, 0 at the end of the log.
    fn change(&mut self, log: &[u8]) -> Option<usize> {
        const TWO: u8 = 0x80;
        let first = *log.first()?;
        let (number, mut rest) = match first & TWO {
            0 => (usize::from(first), log.get(1..)?),
            _ => (usize::from(first & !TWO) << 8 | usize::from(*log.get(1)?), log.get(2..)?),
        };
        if first == 0 {
            return Some(0);
        }
        let (rank, is_cleared) = ((number >> 1).checked_sub(1)?, number & 1 == 1);
        let origin = *self.directory.places.get(rank)?;
        match rank.cmp(&self.known) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal if !is_cleared => self.known = self.known.checked_add(1)?,
            _ => return None,
        }
        self.set_heap_number(origin, rank)?;
        if is_cleared {
            let (_, end) = self.read_own(origin)?;
            self.page.get_mut(origin..end)?.fill(0);
            return log.len().checked_sub(rest.len());
        }
        let byte = |back: usize| {
            let at = back.checked_sub(HEADER)?.checked_sub(1)?;
            rest.get(at).copied()
        };
        let (begin, end) = self.read(origin, byte)?;
        let headers_end = origin.checked_sub(HEADER)?;
        let (before, behind) = rest.split_at_checked(headers_end.checked_sub(begin)?)?;
        rest = behind;
        let own = self.page.get_mut(begin..headers_end)?;
        own.iter_mut().rev().zip(before).for_each(|(to, from)| *to = *from);
        for (begin, end) in self.pieces(origin, end)? {
            let (piece, behind) = rest.split_at_checked(end.checked_sub(begin)?)?;
            self.put(begin, piece)?;
            rest = behind;
        }
        log.len().checked_sub(rest.len())
    }

    /// What is stored apart of each record, down from `end`; the log ends at `log_end`.
    fn restore(&mut self, end: usize, log_end: usize) -> Option<()> {
        let width = self.kind.bytes_apart();
        let mut references = end;
        for rank in 0..self.directory.places.len() {
            let origin = *self.directory.places.get(rank)?;
            if width == 0 {
                break;
            }
            let begin = rank.checked_add(1)?.checked_mul(width)?;
            let own = self.directory.begin.checked_sub(begin)?;
            self.read_own(origin)?;
            let is_removed = self.directory.removed.contains(&origin);
            for (at, to) in self.apart().collect::<Vec<_>>() {
                let length = to.checked_sub(at)?;
                let from = match length {
                    REFERENCE_BYTES if is_removed => {
                        self.put(at, &[0; REFERENCE_BYTES])?;
                        continue;
                    }
                    REFERENCE_BYTES => {
                        references = references.checked_sub(REFERENCE_BYTES)?;
                        references
                    }
                    _ => own,
                };
                (from > log_end).then_some(())?;
                self.put(at, self.stored.bytes().get(from..from.checked_add(length)?)?)?;
            }
        }
        Some(())
    }

    /// The list of records, and that of removed ones.
    fn link(&mut self) {
        let is_first_of_level = !self.kind.is_leaf && self.stored.beside()[0].is_none();
        let mut before = INFIMUM;
        let mut owned = 1_u8;
        let slots = std::mem::take(&mut self.directory.slots);
        for (rank, slot) in (0..).zip(&slots) {
            let origin = usize::from(slot & PLACE);
            let mut info = 0;
            if rank < self.directory.listed {
                if rank == 0 && is_first_of_level {
                    info |= FIRST;
                }
                if slot & IS_DELETED != 0 {
                    info |= DELETED;
                }
                if slot & OWNS != 0 {
                    info |= owned & 0x0F;
                    owned = 0;
                }
                owned = owned.saturating_add(1);
            }
            if rank == self.directory.listed {
                self.lead(before, SUPREMUM);
            } else {
                self.lead(before, origin);
            }
            self.put(origin.saturating_sub(HEADER), &[info]);
            before = origin;
        }
        match slots.len() == self.directory.listed {
            true => self.lead(before, SUPREMUM),
            false => self.lead(before, before),
        }
        self.put(SUPREMUM.saturating_sub(HEADER), &[owned & 0x0F]);
        self.directory.slots = slots;
    }

    /// From a record to the next one; to itself at the end of a list.
    fn lead(&mut self, from: usize, to: usize) {
        let ahead = to.wrapping_sub(from) & usize::from(u16::MAX);
        self.put_u16(from.saturating_sub(2), ahead);
    }

    /// The directory of the page in the clear.
    fn sparse_directory(&mut self) -> Result<(), String> {
        let owners = self.directory.slots.iter().take(self.directory.listed);
        let owners = owners.filter(|slot| *slot & OWNS != 0).map(|slot| usize::from(slot & PLACE));
        let all: Vec<_> = [INFIMUM].into_iter().chain(owners).chain([SUPREMUM]).collect();
        let by_header = self.stored.slot_count();
        if all.len() != by_header {
            let own = all.len();
            return Err(format!("its directory has {own} slots, and {by_header} by its header"));
        }
        let mut at = self.page.len().saturating_sub(TRAILER_BYTES);
        for origin in all {
            at = at.saturating_sub(SLOT_BYTES);
            self.put_u16(at, origin);
        }
        Ok(())
    }
}

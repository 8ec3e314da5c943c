//! The fields of a record, by the definition of its index; and keys that can be compared as bytes.
//!
//! Before a compact record, in front of the five bytes of its header: a bit for each field that may
//! be null, then, back to front, a byte or two for each field of variable length that is not: of two
//! the first has 128 set, and 64 if the rest of the value lies outside. Before a redundant record:
//! where each field ends, in one byte or two, with 128 for null, and of two 64 for outside.
//!
//! Source: `rem0rec.cc` of MariaDB 10.11 and MySQL 8.0.

#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use crate::files::structure::definition::{Field, Index, Order};
use crate::page::fields::{read_u16, read_u32};
use crate::page::index::{IndexPage, Place, STATUS_INSTANT};

/// A field's bytes on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) is_null: bool,
    /// Its last 20 bytes say where the rest is.
    pub(super) is_outside: bool,
    /// Its column was added after the record was written: it has the column's default.
    pub(super) is_missing: bool,
}

impl Part {
    pub(super) fn of<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        page.get(self.begin..self.end).unwrap_or_default()
    }
}

/// Where a record begins with all that is before it, and where it ends.
pub(super) type Extent = (usize, usize);

const HEADER_COMPACT: usize = 5;
const HEADER_REDUNDANT: usize = 6;
const CHILD_BYTES: usize = 4;

/// True if not all fields of a record are known.
pub(super) fn is_of_another_version(index: &Index, place: &Place) -> bool {
    /// The first way of MySQL 8.0 to add columns, up to 8.0.28.
    const INSTANT: u8 = 0x80;
    index.is_altered || place.info & INSTANT != 0
}

/// The key of a record of whose other fields not all are known, if it is where it always is.
pub(super) fn key_parts(index: &Index, place: &Place, parts: &mut Vec<Part>) -> Option<()> {
    parts.clear();
    let mut begin = place.origin;
    for field in index.fields.iter().take(index.key_count) {
        let length = field.fixed.filter(|_| !field.is_nullable)?;
        let end = begin.checked_add(length)?;
        parts.push(Part { begin, end, is_null: false, is_outside: false, is_missing: false });
        begin = end;
    }
    let end = begin.checked_add(CHILD_BYTES)?;
    parts.push(Part { begin, end, is_null: false, is_outside: false, is_missing: false });
    Some(())
}

/// The fields of a record; of upper levels those of the key, and the page below as the last one.
///
/// # Errors
/// It does not fit the index; in words.
pub(super) fn parts(
    index: &Index,
    page: &IndexPage<'_>,
    place: &Place,
    parts: &mut Vec<Part>,
) -> Result<Extent, &'static str> {
    parts.clear();
    let extent = match page.is_compact() {
        true => {
            let bytes = page.bytes();
            let byte = |back: usize| bytes.get(place.origin.checked_sub(back)?).copied();
            compact(index, page.level() == 0, place, byte, parts)
                .filter(|(_, end)| *end <= bytes.len())
        }
        false => redundant(page.bytes(), place, parts),
    };
    let extent = extent.ok_or("its lengths lead out of the page")?;
    let wanted = match page.level() {
        0 => index.fields.len(),
        _ => index.key_count.saturating_add(1),
    };
    if page.level() == 0 && parts.len() < wanted && index.first_count.is_some() {
        let at = extent.1;
        let missing =
            Part { begin: at, end: at, is_null: false, is_outside: false, is_missing: true };
        parts.resize(wanted, missing);
    }
    if parts.len() != wanted {
        return Err("it has another number of fields than its index");
    }
    Ok(extent)
}

/// The fields of a record in the compact form, by the bytes before it: the first one is 1 back.
pub(super) fn compact(
    index: &Index,
    is_leaf: bool,
    place: &Place,
    byte: impl Fn(usize) -> Option<u8>,
    parts: &mut Vec<Part>,
) -> Option<Extent> {
    const TWO: u8 = 0x80;
    const OUTSIDE: u8 = 0x40;
    let (shape, mut back) = shape(index, place, is_leaf, &byte)?;
    let is_there = |(at, field): (usize, &Field)| shape.has(at, field);
    let nullable = (0..).zip(&index.fields).filter(|(at, field)| is_there((*at, *field)));
    let nullable = nullable.filter(|(_, field)| field.is_nullable).count();
    let nulls_at = back.checked_add(1)?;
    back = back.checked_add(nullable.div_ceil(8))?;
    let mut at = place.origin;
    let mut null_bit = 0_usize;
    let count = if is_leaf { index.fields.len() } else { index.key_count };
    for (number, field) in (0..).zip(&index.fields).take(count) {
        if !is_there((number, field)) {
            parts.push(Part {
                begin: at,
                end: at,
                is_null: false,
                is_outside: false,
                is_missing: true,
            });
            continue;
        }
        let mut part =
            Part { begin: at, end: at, is_null: false, is_outside: false, is_missing: false };
        if field.is_nullable {
            let bits = byte(nulls_at.checked_add(null_bit / 8)?)?;
            part.is_null = bits >> (null_bit % 8) & 1 == 1;
            null_bit = null_bit.checked_add(1)?;
        }
        if !part.is_null {
            let length = match field.fixed {
                Some(length) => length,
                None => {
                    back = back.checked_add(1)?;
                    let first = byte(back)?;
                    if field.is_big && first & TWO != 0 {
                        back = back.checked_add(1)?;
                        part.is_outside = first & OUTSIDE != 0;
                        usize::from(first & 0x3f) << 8 | usize::from(byte(back)?)
                    } else {
                        usize::from(first)
                    }
                }
            };
            part.end = at.checked_add(length)?;
            at = part.end;
        }
        parts.push(part);
    }
    if !is_leaf {
        let end = at.checked_add(CHILD_BYTES)?;
        parts.push(Part { begin: at, end, is_null: false, is_outside: false, is_missing: false });
        at = end;
    }
    Some((place.origin.checked_sub(back)?, at))
}

/// Which fields a record has.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Of MariaDB: its first ones.
    count: usize,
    /// Of MySQL: those that were there in a version of the table.
    version: u64,
}

impl Shape {
    fn has(&self, number: usize, field: &Field) -> bool {
        number < self.count && field.added <= self.version
    }
}

/// Which fields a record has; and how many bytes of its header are read.
fn shape(
    index: &Index,
    place: &Place,
    is_leaf: bool,
    byte: impl Fn(usize) -> Option<u8>,
) -> Option<(Shape, usize)> {
    const VERSIONED: u8 = 0x40;
    const TWO: u8 = 0x80;
    let all = index.fields.len();
    let first = index.first_count.unwrap_or(all);
    let at = HEADER_COMPACT.checked_add(1)?;
    if place.status == STATUS_INSTANT && is_leaf {
        // How many more than the first ones, less one.
        let low = byte(at)?;
        let (more, read) = match low & TWO {
            0 => (usize::from(low), 1),
            _ => (usize::from(low & !TWO) | usize::from(byte(at.checked_add(1)?)?) << 7, 2),
        };
        let count = first.checked_add(more)?.checked_add(1)?;
        let shape = Shape { count, version: u64::MAX };
        return Some((shape, HEADER_COMPACT.checked_add(read)?)).filter(|_| count <= all);
    }
    if place.info & VERSIONED != 0 {
        let version = u64::from(byte(at)?);
        return Some((Shape { count: all, version }, at));
    }
    let version = if index.first_count.is_some() { u64::MAX } else { 0 };
    Some((Shape { count: first, version }, HEADER_COMPACT))
}

fn redundant(bytes: &[u8], place: &Place, parts: &mut Vec<Part>) -> Option<Extent> {
    const COUNT_MAX: u16 = 0x3FF;
    let head = read_u16(bytes.get(place.origin.checked_sub(4)?..)?, 0);
    let (count, width) = (usize::from(head >> 1 & COUNT_MAX), if head & 1 == 1 { 1 } else { 2 });
    let mut begin = place.origin;
    let mut back = HEADER_REDUNDANT;
    for _ in 0..count {
        back = back.checked_add(width)?;
        let at = place.origin.checked_sub(back)?;
        let (offset, flags) = if width == 1 {
            let byte = *bytes.get(at)?;
            (usize::from(byte & 0x7f), u16::from(byte & 0x80) << 8)
        } else {
            let word = read_u16(bytes.get(at..)?, 0);
            (usize::from(word & 0x3fff), word & 0xC000)
        };
        let end = place.origin.checked_add(offset)?;
        if end < begin || end > bytes.len() {
            return None;
        }
        let (is_null, is_outside) = (flags & 0x8000 != 0, flags & 0x4000 != 0);
        parts.push(Part { begin, end, is_null, is_outside, is_missing: false });
        begin = end;
    }
    Some((place.origin.checked_sub(back)?, begin))
}

/// True if the JSON of a record of SDI is not on its page.
pub(super) fn is_sdi_outside(page: &IndexPage<'_>, place: &Place) -> bool {
    // No field of it is null; the last one is as long as its index lets it be.
    let first = place.origin.checked_sub(HEADER_COMPACT).and_then(|at| at.checked_sub(1));
    let first = first.and_then(|at| page.bytes().get(at)).copied().unwrap_or(0);
    first & 0xC0 == 0xC0
}

/// The page below, from the last field of a record of an upper level.
pub(super) fn child(page: &[u8], parts: &[Part]) -> Option<u32> {
    let last = parts.last()?.of(page);
    (last.len() == CHILD_BYTES).then(|| read_u32(last, 0))
}

const KEY_BYTES: usize = 64;

/// A key, so that its bytes are in the order of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    bytes: [u8; KEY_BYTES],
    length: usize,
    /// All of it is here.
    is_whole: bool,
}

impl Key {
    /// The key of a record whose fields are known.
    pub(super) fn of(index: &Index, page: &[u8], parts: &[Part]) -> Self {
        let mut key = Self { bytes: [0; KEY_BYTES], length: 0, is_whole: true };
        for (field, part) in index.fields.iter().take(index.key_count).zip(parts) {
            let from = key.length;
            if field.is_nullable {
                key.push(u8::from(!part.is_null));
            }
            let value = part.of(page);
            match field.order {
                _ if part.is_null => {}
                _ if part.is_outside => key.is_whole = false,
                Order::Unknown => key.is_whole = false,
                Order::Folded => key.push_folded(value),
                Order::Float => key.push_float(value),
                Order::Bytes if field.fixed.is_some() => value.iter().for_each(|it| key.push(*it)),
                Order::Bytes => {
                    for byte in value {
                        key.push(*byte);
                        if *byte == 0 {
                            key.push(u8::MAX);
                        }
                    }
                    key.push(0);
                    key.push(0);
                }
            }
            if field.is_descending {
                let pushed = key.bytes.get_mut(from..key.length).unwrap_or_default();
                pushed.iter_mut().for_each(|byte| *byte = !*byte);
            }
            if !key.is_whole {
                break;
            }
        }
        key
    }

    fn push(&mut self, byte: u8) {
        match self.bytes.get_mut(self.length).filter(|_| self.is_whole) {
            Some(place) => {
                *place = byte;
                self.length = self.length.saturating_add(1);
            }
            None => self.is_whole = false,
        }
    }

    /// As far as its characters are in one order in all of those collations. Whether two are equal
    /// is not known, for spaces at the end may count or not.
    fn push_folded(&mut self, value: &[u8]) {
        let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b' ';
        for byte in value.iter().take_while(is_plain) {
            self.push(byte.to_ascii_lowercase());
        }
        self.is_whole = false;
    }

    fn push_float(&mut self, value: &[u8]) {
        let Some(high) = value.last() else { return };
        let is_negative = high & 0x80 != 0;
        for (at, byte) in value.iter().rev().enumerate() {
            let sign = if at == 0 { 0x80 } else { 0 };
            self.push(if is_negative { !byte } else { byte ^ sign });
        }
    }

    fn known(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// `None` where what is known does not tell.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        let length = self.length.min(other.length);
        let [own, others] = [self, other].map(|it| it.known().get(..length).unwrap_or_default());
        match own.cmp(others) {
            Ordering::Equal if self.is_whole && other.is_whole => Some(Ordering::Equal),
            Ordering::Equal => None,
            order => Some(order),
        }
    }

    /// Its first bytes.
    pub(super) fn begin(&self) -> Begin {
        let bytes = self.known().iter().take(16);
        let shifted = bytes.fold((0_u128, 0_u32), |(all, count), byte| {
            (all << 8 | u128::from(*byte), count.saturating_add(8))
        });
        Begin { bits: shifted.0, count: shifted.1 }
    }
}

/// The first sixteen bytes of a key, or fewer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Begin {
    bits: u128,
    count: u32,
}

impl Begin {
    /// True if it is that of a larger key than any with the other one.
    pub(super) fn is_above(&self, other: &Self) -> bool {
        let count = self.count.min(other.count);
        let cut = |it: &Self| it.bits.checked_shr(it.count.saturating_sub(count)).unwrap_or(0);
        count > 0 && cut(self) > cut(other)
    }
}

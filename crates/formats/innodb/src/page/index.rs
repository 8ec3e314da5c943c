//! A page of an index in the clear: its header, its records as a list, its directory.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 38 | 2 | slots of the directory |
//! | 40 | 2 | where the heap of records ends |
//! | 42 | 2 | records in the heap, infimum and supremum too; bit 15: compact form |
//! | 44 | 2 | the first removed record |
//! | 46 | 2 | bytes in removed records |
//! | 48 | 2 | the record inserted last, or 0 |
//! | 50 | 2 | in which direction; MariaDB: the three lowest bits, above them the fields that records had before the first instant column |
//! | 54 | 2 | records in the list |
//! | 56 | 8 | of leaves of secondary indexes: the last transaction |
//! | 64 | 2 | level: 0 for leaves |
//! | 66 | 8 | number of the index |
//! | 74 | 20 | of a root: its segments, each space, page, offset |
//! | end-8 down | 2 each | directory: every fourth to eighth record |
//!
//! Before a record, back to front:
//!
//! | compact | redundant | what |
//! |---|---|---|
//! | 5 | 6 | high half 16 first of its level, 32 deleted, 64 and 128 altered since; low half how many records its directory slot owns |
//! | 4, 13 bits | 5, 13 bits | its number in the heap |
//! | 3, 3 bits | - | 0 of a leaf, 1 of an upper level, 2 infimum, 3 supremum, 4 description of instant columns |
//! | - | 4, 10 bits | number of fields; then a bit: offsets of one byte |
//! | 2 | 2 | the next record: from here, or on the page |
//!
//! A server changes a page in the page cache and writes it as a whole between two changes, so that
//! each image on disk is sound in itself, of a running server too.
//!
//! Sources: `page0types.h`, `rem0rec.h`, `page0page.cc` of MariaDB 10.11 and MySQL 8.0.

#![deny(clippy::arithmetic_side_effects)]

use super::fields::{read_u16, read_u32, read_u64};

/// The type of pages of a B-tree.
pub const TYPE_INDEX: u16 = 17_855;
/// The same with serialised dictionary information.
pub const TYPE_SDI: u16 = 17_853;
/// The root of a table of MariaDB's with instant columns.
pub const TYPE_INSTANT: u16 = 18;

const SLOTS: usize = 38;
const HEAP_TOP: usize = 40;
const HEAP_COUNT: usize = 42;
const FREE: usize = 44;
const GARBAGE: usize = 46;
const LAST_INSERT: usize = 48;
const DIRECTION: usize = 50;
const RECORDS: usize = 54;
const TRANSACTION: usize = 56;
const LEVEL: usize = 64;
const INDEX: usize = 66;
/// Where the segments of a root are: of leaves, and of upper levels.
pub const SEGMENTS: [usize; 2] = [74, 84];
const COMPACT: u16 = 1 << 15;
const TRAILER_BYTES: usize = 8;
const SLOT_BYTES: usize = 2;
const NONE: u32 = u32::MAX;
/// Records that one slot of the directory owns.
const OWNED_MAX: usize = 8;
/// A tree of more has more pages than a file.
const LEVEL_MAX: u16 = 32;
const HEAP_MAX: usize = 8192;

/// 16: the first of its level.
pub const FIRST: u8 = 0x10;
/// 32: deleted.
pub const DELETED: u8 = 0x20;
/// A description of instant columns, where records are.
pub const STATUS_INSTANT: u8 = 4;

/// A page of an index.
#[derive(Debug, Clone, Copy)]
pub struct IndexPage<'a> {
    bytes: &'a [u8],
}

/// A record on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where its first field begins.
    pub origin: usize,
    /// See the table above.
    pub info: u8,
    /// See the table above; 0 in the redundant form.
    pub status: u8,
    heap: usize,
    owned: usize,
    next: usize,
}

impl Place {
    /// A record without marks; nothing else of it is known.
    #[must_use]
    pub fn ordinary(origin: usize) -> Self {
        Self { origin, info: 0, status: 0, heap: 0, owned: 0, next: 0 }
    }
}

impl<'a> IndexPage<'a> {
    /// Such a page, by its type.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let page_type = read_u16(bytes, super::fields::PAGE_TYPE);
        matches!(page_type, TYPE_INDEX | TYPE_SDI | TYPE_INSTANT).then_some(Self { bytes })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True of the compact form.
    #[must_use]
    pub fn is_compact(&self) -> bool {
        read_u16(self.bytes, HEAP_COUNT) & COMPACT != 0
    }

    /// 0 for leaves.
    #[must_use]
    pub fn level(&self) -> u16 {
        read_u16(self.bytes, LEVEL)
    }

    /// The number of its index.
    #[must_use]
    pub fn index(&self) -> u64 {
        read_u64(self.bytes, INDEX)
    }

    /// Of a leaf of another index than the clustered one: the last transaction that changed it.
    #[must_use]
    pub fn transaction(&self) -> u64 {
        read_u64(self.bytes, TRANSACTION)
    }

    /// Records in its list, by its header.
    #[must_use]
    pub fn record_count(&self) -> u16 {
        read_u16(self.bytes, RECORDS)
    }

    /// Records in its heap, by its header, infimum and supremum too.
    #[must_use]
    pub fn heap_count(&self) -> usize {
        usize::from(read_u16(self.bytes, HEAP_COUNT) & !COMPACT)
    }

    /// Slots of its directory, by its header.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        usize::from(read_u16(self.bytes, SLOTS))
    }

    /// Where the heap ends.
    #[must_use]
    pub fn heap_top(&self) -> usize {
        usize::from(read_u16(self.bytes, HEAP_TOP))
    }

    /// Bytes in the records of its list, by its header.
    #[must_use]
    pub fn bytes_of_records(&self) -> usize {
        let garbage = usize::from(read_u16(self.bytes, GARBAGE));
        self.heap_top().saturating_sub(self.heap_begin()).saturating_sub(garbage)
    }

    /// The page before it, and the one behind it.
    #[must_use]
    pub fn beside(&self) -> [Option<u32>; 2] {
        [8, 12].map(|at| Some(read_u32(self.bytes, at)).filter(|page| *page != NONE))
    }

    fn is_alone(&self) -> bool {
        self.beside() == [None, None]
    }

    fn infimum(&self) -> usize {
        if self.is_compact() { 99 } else { 101 }
    }

    fn supremum(&self) -> usize {
        if self.is_compact() { 112 } else { 116 }
    }

    fn heap_begin(&self) -> usize {
        if self.is_compact() { 120 } else { 125 }
    }

    fn directory_begin(&self) -> usize {
        let slots = self.slot_count().saturating_mul(SLOT_BYTES);
        self.bytes.len().saturating_sub(TRAILER_BYTES).saturating_sub(slots)
    }

    fn slot(&self, number: usize) -> Option<usize> {
        let back = number.checked_add(1)?.checked_mul(SLOT_BYTES)?;
        let at = self.bytes.len().checked_sub(TRAILER_BYTES)?.checked_sub(back)?;
        Some(usize::from(read_u16(self.bytes, at)))
    }

    fn place(&self, origin: usize) -> Option<Place> {
        let byte = |back: usize| self.bytes.get(origin.checked_sub(back)?).copied();
        let word = |back: usize| Some(read_u16(self.bytes.get(origin.checked_sub(back)?..)?, 0));
        let next = usize::from(word(2)?);
        let (head, heap, status, next) = if self.is_compact() {
            // Forth or back, within the page; 0 at the end of a list.
            let to = origin.checked_add(next)? & usize::from(u16::MAX);
            let to = if next == 0 { 0 } else { to };
            let status = u8::try_from(word(4)? & 7).ok()?;
            (byte(5)?, word(4)? >> 3, status, to)
        } else {
            (byte(6)?, word(5)? >> 3, 0, next)
        };
        Some(Place {
            origin,
            info: head & 0xF0,
            status,
            heap: usize::from(heap),
            owned: usize::from(head & 0x0F),
            next,
        })
    }

    /// The records of its list, in their order, as far as that leads; no more than there can be.
    pub fn records(&self) -> impl Iterator<Item = Place> + use<'a> {
        let page = *self;
        let mut at = page.place(page.infimum()).map(|infimum| infimum.next);
        let is_user = move |place: &Place| place.origin >= page.heap_begin();
        std::iter::from_fn(move || {
            let place = page.place(at?).filter(is_user)?;
            at = Some(place.next);
            Some(place)
        })
        .take(page.heap_count().min(HEAP_MAX))
    }

    /// What a page in the form of an index cannot be, in words.
    ///
    /// # Errors
    /// It is that.
    pub fn test(&self) -> Result<(), String> {
        self.test_header()?;
        let mut seen = Seen::default();
        let records = self.test_list(&mut seen)?;
        if records != usize::from(self.record_count()) {
            let by_header = self.record_count();
            return Err(format!("its list has {records} records, and {by_header} by its header"));
        }
        self.test_removed(&mut seen, records)?;
        let last = usize::from(read_u16(self.bytes, LAST_INSERT));
        if last != 0 && !self.records().any(|place| place.origin == last) {
            return Err(format!("the record inserted last, at byte {last}, is not in its list"));
        }
        Ok(())
    }

    /// What its header cannot be, in words.
    ///
    /// # Errors
    /// It is that.
    pub fn test_header(&self) -> Result<(), String> {
        let top = self.heap_top();
        let (begin, end) = (self.heap_begin(), self.directory_begin());
        if !(begin..=end).contains(&top) || !(2..=HEAP_MAX).contains(&self.heap_count()) {
            return Err(format!(
                "its heap of {} records ends at byte {top}, and lies between {begin} and {end}",
                self.heap_count()
            ));
        }
        if usize::from(read_u16(self.bytes, GARBAGE)) > top {
            return Err("more bytes in removed records than in its heap".to_owned());
        }
        let level = self.level();
        if level > LEVEL_MAX {
            return Err(format!("it is of level {level}"));
        }
        let direction = read_u16(self.bytes, DIRECTION);
        // Before there were instant columns, pages of the redundant form could have other bytes there.
        let is_instant = read_u16(self.bytes, super::fields::PAGE_TYPE) == TYPE_INSTANT;
        let may_have_fields = self.is_alone() && (is_instant || !self.is_compact());
        if direction & 7 > 5 || direction >> 3 != 0 && !may_have_fields {
            return Err(format!("records are inserted in the direction {direction}"));
        }
        // A root with columns that were removed or moved has other bytes there.
        if direction >> 3 == 0 { self.test_words() } else { Ok(()) }
    }

    /// The words that stand at the ends of its list.
    ///
    /// # Errors
    /// They are not there.
    pub fn test_words(&self) -> Result<(), String> {
        let words: [(usize, &[u8]); 2] =
            [(self.infimum(), b"infimum"), (self.supremum(), b"supremum")];
        let is_as_always = |(at, word): &(usize, &[u8])| {
            self.bytes.get(*at..).is_some_and(|bytes| bytes.starts_with(word))
        };
        match words.iter().all(is_as_always) {
            true => Ok(()),
            false => Err("the words infimum and supremum are not where they always are".to_owned()),
        }
    }

    /// The list from infimum to supremum, and the directory beside it.
    fn test_list(&self, seen: &mut Seen) -> Result<usize, String> {
        let slots = self.slot_count();
        let (infimum, supremum) = (self.infimum(), self.supremum());
        let mut at = infimum;
        let (mut records, mut owned, mut slot) = (0_usize, 0_usize, 0_usize);
        loop {
            let place = self.place(at).ok_or_else(|| format!("a record at byte {at}"))?;
            if !seen.insert(place.heap, self.heap_count()) {
                return Err(format!(
                    "the record at byte {at} has number {} of the heap, which another has, or \
                     none can have",
                    place.heap
                ));
            }
            owned = owned.saturating_add(1);
            if place.owned > 0 {
                let by_slot = self.slot(slot).filter(|_| slot < slots);
                if by_slot != Some(at) || owned != place.owned || owned > OWNED_MAX {
                    return Err(format!(
                        "slot {slot} of its directory leads to byte {}; the list has the record at \
                         byte {at} there, which owns {} of {owned} records",
                        by_slot.unwrap_or(0),
                        place.owned
                    ));
                }
                (owned, slot) = (0, slot.saturating_add(1));
            }
            if at == supremum {
                break;
            }
            if at != infimum {
                self.test_record(&place, records)?;
                records = records.saturating_add(1);
            }
            let next = place.next;
            let is_inside = (self.heap_begin()..self.heap_top()).contains(&next);
            if next != supremum && !is_inside {
                return Err(format!("the record at byte {at} has the next one at byte {next}"));
            }
            at = next;
        }
        if slot != slots || owned != 0 {
            return Err(format!("its list ends at slot {slot} of {slots} of its directory"));
        }
        let end = self.place(supremum).map_or(0, |place| place.next);
        let is_last = end == 0 && self.place(infimum).is_some_and(|it| it.info & !FIRST == 0);
        if is_last { Ok(records) } else { Err("its list goes on behind its end".to_owned()) }
    }

    fn test_record(&self, place: &Place, number: usize) -> Result<(), String> {
        let at = place.origin;
        let is_leaf = self.level() == 0;
        let is_first = number == 0 && self.beside()[0].is_none();
        let is_description = is_leaf && is_first && place.info & FIRST != 0;
        if self.is_compact() {
            let fits = match place.status {
                0 => is_leaf && place.info & FIRST == 0,
                1 => !is_leaf,
                STATUS_INSTANT => is_leaf,
                _ => false,
            };
            if !fits {
                let level = self.level();
                return Err(format!(
                    "the record at byte {at} has status {} on level {level}",
                    place.status
                ));
            }
        }
        let has_mark = place.info & FIRST != 0;
        if !is_leaf && has_mark != is_first || is_leaf && has_mark && !is_description {
            return Err(format!(
                "the record at byte {at} is {}marked as the first of its level",
                if has_mark { "" } else { "not " }
            ));
        }
        // A record of an upper level may be marked as deleted: seen in MariaDB 10.11, of a split whose
        // first record was.
        Ok(())
    }

    /// The removed records, and that there are no others.
    fn test_removed(&self, seen: &mut Seen, records: usize) -> Result<(), String> {
        let mut at = usize::from(read_u16(self.bytes, FREE));
        let mut removed = 0_usize;
        while at != 0 {
            let is_inside = (self.heap_begin()..self.heap_top()).contains(&at);
            let place = self.place(at).filter(|_| is_inside);
            let place = place.filter(|place| seen.insert(place.heap, self.heap_count()));
            let Some(place) = place else {
                return Err(format!("the list of removed records leads to byte {at}"));
            };
            removed = removed.saturating_add(1);
            at = place.next;
        }
        let all = records.saturating_add(removed).saturating_add(2);
        if all != self.heap_count() {
            return Err(format!(
                "{records} records, {removed} removed ones, infimum and supremum, and {} in its heap",
                self.heap_count()
            ));
        }
        Ok(())
    }
}

/// The numbers of the heap that were seen.
struct Seen([u64; HEAP_MAX / 64]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; HEAP_MAX / 64])
    }
}

impl Seen {
    /// False if it was there, or is none of a heap of this size.
    fn insert(&mut self, number: usize, count: usize) -> bool {
        let Some(word) = self.0.get_mut(number / 64).filter(|_| number < count) else {
            return false;
        };
        let bit = 1 << (number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;
    use crate::files::fixture;

    /// A list that leads anywhere ends, and is said.
    #[test]
    fn list_of_records_that_leads_nowhere_ends() {
        for byte in 0..=255_u8 {
            let mut bytes = vec![byte; 16_384];
            bytes[24..26].copy_from_slice(&TYPE_INDEX.to_be_bytes());
            let page = IndexPage::new(&bytes).unwrap();
            assert!(page.test().is_err(), "{byte}");
            assert!(page.records().count() <= HEAP_MAX);
        }
        let short = [0_u8; 26].map(|_| 0x45);
        assert!(IndexPage::new(&short).is_none_or(|page| page.test().is_err()));
    }

    /// Every bit of what a page of a real index says of its own records.
    #[test]
    fn flipped_bit_in_list_or_directory_of_a_real_page_is_found() {
        let Some(packed) = fixture("wild/mysql-9.7.4-mysql.ibd-bit-flip-page-60.zst") else {
            return;
        };
        let bytes = zstd::stream::decode_all(&packed[..]).unwrap();
        let mut tried = 0;
        for page in bytes.chunks_exact(16_384) {
            let Some(sound) = IndexPage::new(page).filter(|page| page.record_count() > 8) else {
                continue;
            };
            assert_eq!(sound.test(), Ok(()));
            tried += 1;
            if tried > 40 {
                continue;
            }
            let status = |at| sound.records().any(|place| place.origin - 3 == at);
            let headers = sound.records().take(5).flat_map(|it| it.origin - 4..it.origin);
            let directory = sound.directory_begin()..page.len() - TRAILER_BYTES;
            let counts = [SLOTS, SLOTS + 1, HEAP_COUNT + 1, RECORDS, RECORDS + 1];
            for at in headers.chain(directory).chain(counts) {
                for bit in 0..8 {
                    // Whether records may have instant columns, the root knows.
                    if bit == 2 && status(at) {
                        continue;
                    }
                    let mut page = page.to_vec();
                    page[at] ^= 1 << bit;
                    assert!(IndexPage::new(&page).unwrap().test().is_err(), "{at} {bit}");
                }
            }
        }
        assert!(tried > 40, "{tried}");
    }
}

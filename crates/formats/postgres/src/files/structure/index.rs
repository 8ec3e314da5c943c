//! The entries of a btree index: in order on each page and from one leaf to the next, and
//! handed on with the rows that they lead to.
//!
//! Pages come in the order of the file. The high key of a leaf waits for the first key of its
//! right neighbour, or the other way round, up to [`WAITING_MAX`].

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::files::catalogue::columns::{Column, IndexShape};
use crate::files::control::u32_at;
use crate::files::structure::downlinks::Downlinks;
use crate::files::structure::live::{Entries, KeyHash, LiveRows};
use crate::files::structure::order::{Compared, Keys};
use crate::files::structure::values::{Value, Values};
use crate::files::witness::Tid;
use crate::files::witness::heap::{LinePointer, count};
use crate::files::witness::node::{self, Node};
use crate::files::witness::tid::{TID_BYTES, u16_at};
use crate::page::HEADER_BYTES;

/// Bytes of keys that wait.
const WAITING_MAX: usize = 64 << 20;
/// Faulty pages that are reported.
const FAULTS_MAX: usize = 1000;

const SIZE: u16 = 0x1FFF;
const OTHER: u16 = 0x2000;
const NULLS: u16 = 0x8000;
/// Of the number of a list's, or an inner page's, entry.
const IS_LIST: u16 = 0x2000;
const COUNT: u16 = 0x0FFF;
/// A key of an inner page has a row behind its columns.
const HAS_ROW: u16 = 0x1000;
/// `INDEX_VAR_MASK`.
const VARIES: u16 = 0x4000;
/// Entries of equal keys are in the order of their rows, from this version on (12).
const VERSION_BY_ROW: u32 = 4;

const KEYS_DO_NOT_FIT: &str = "its keys do not fit into it";
const COLUMNS_DO_NOT_FIT: &str = "its columns do not fit into it";

/// Reads one index.
#[derive(Debug)]
pub(super) struct IndexReader<'a> {
    pub(super) shape: &'a IndexShape,
    /// Of the index.
    pub(super) columns: &'a [Column],
    pub(super) keys: Keys,
    /// The order was looked at when an earlier part of the table was.
    pub(super) is_again: bool,
    version: u32,
    /// High keys by the block that comes next, first keys by their own.
    highs: HashMap<u32, Box<[u8]>>,
    firsts: HashMap<u32, Box<[u8]>>,
    waiting_bytes: usize,
    /// A key did not find room among them.
    is_full: bool,
    downlinks: Downlinks,
    /// What is wrong, by block.
    pub(super) faults: Vec<(u32, String)>,
}

/// An entry of a page.
struct Entry<'p> {
    bytes: &'p [u8],
    values: Vec<Value<'p>>,
}

impl<'a> IndexReader<'a> {
    pub(super) fn new(shape: &'a IndexShape, columns: &'a [Column], is_again: bool) -> Self {
        Self {
            shape,
            columns,
            keys: Keys::of(shape, columns),
            is_again,
            version: 0,
            highs: HashMap::new(),
            firsts: HashMap::new(),
            waiting_bytes: 0,
            is_full: false,
            downlinks: Downlinks::default(),
            faults: Vec::new(),
        }
    }

    /// True if there were more keys than are kept for the pages to which they belong.
    pub(super) fn is_in_part(&self) -> bool {
        self.is_full || self.downlinks.is_full
    }

    /// The next page of the file.
    pub(super) fn page(
        &mut self,
        block: u32,
        page: &[u8],
        entries: &mut Entries<'_>,
        rows: &LiveRows,
    ) {
        const VERSION: usize = 4;
        let (left, right, level) = match node::read(page) {
            Ok(Node::Meta { .. }) => {
                self.version = u32_at(page, HEADER_BYTES + VERSION).unwrap_or(0);
                return;
            }
            Ok(Node::Member { left, right, level, is_half_dead: false, .. }) => {
                (left, right, level)
            }
            // Checks without `--structure` report what is wrong with the page itself.
            Ok(_) | Err(_) => return,
        };
        let high = (right != 0).then(|| self.entry(page, 1, Vec::new())).flatten();
        if right != 0 && high.is_none() && count(page) > 0 {
            return self.fault(block, "its high key: its keys do not fit into it".to_owned());
        }
        if let Some(text) = high.as_ref().and_then(|high| self.inner_fault(high)) {
            return self.fault(block, format!("its high key: {text}"));
        }
        if !self.is_again {
            self.downlinks.page(block, left, high.as_ref().map(|high| high.bytes), self.version);
        }
        let begin = if right == 0 { 1 } else { 2 };
        let mut before: Option<Entry<'_>> = None;
        // Values of an entry that is no longer needed leave their room to the next one.
        let mut room = Vec::new();
        let mut first: Option<Box<[u8]>> = None;
        for number in begin..=count(page) {
            // The first entry of an inner page stands for all keys below the second.
            if level > 0 && number == begin {
                if let Some(text) = self.first_inner_fault(page, number) {
                    return self.fault(block, format!("entry {number}: {text}"));
                }
                continue;
            }
            let entry = match level {
                0 => self.leaf_entry(page, number, room),
                _ => self.inner_entry(page, number, room),
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(text) => return self.fault(block, format!("entry {number}: {text}")),
            };
            // An entry that is marked dead leads to no row that counts.
            if level == 0 && !is_marked_dead(page, number) {
                self.hand_on(&entry, entries);
            }
            if level > 0 && !self.is_again {
                self.downlinks.lead(entry.bytes, self.version);
            }
            if let Some(before) = &before
                && let Some(text) = self.pair(block, number, level, before, &entry, rows)
            {
                return self.fault(block, text);
            }
            if level == 0 && first.is_none() {
                first = Some(entry.bytes.into());
            }
            room = before.replace(entry).map_or_else(Vec::new, |entry| entry.values);
        }
        if let (Some(last), Some(high)) = (&before, &high)
            && self.keys.compare(&last.values, &high.values) == Compared::Known(Ordering::Greater)
        {
            return self.fault(block, "its last key is greater than its high key".to_owned());
        }
        if level == 0 && !self.is_again && !self.keys.is_empty() {
            self.neighbours(block, (left, right), first, high.map(|high| high.bytes.into()));
        }
    }

    /// Once all pages were read: what is wrong between inner pages and their children.
    pub(super) fn finish(&mut self) {
        for (block, text) in self.downlinks.faults() {
            self.fault(block, text);
        }
    }

    /// What is wrong with an entry that leads to a page, or with a high key.
    fn inner_fault(&self, entry: &Entry<'_>) -> Option<String> {
        if self.version < VERSION_BY_ROW {
            return None;
        }
        let (number, info) = (u16_at(entry.bytes, 4), u16_at(entry.bytes, 6));
        if info & OTHER == 0 {
            return Some("it does not say how many keys it has".to_owned());
        }
        let count = usize::from(number & COUNT);
        let has_row = number & HAS_ROW != 0;
        let is_wrong = count == 0
            || count > self.shape.key_count
            || number & !(COUNT | HAS_ROW) != 0
            || has_row && count != self.shape.key_count;
        is_wrong.then(|| {
            format!("it has {count} of {} keys, and flags 0x{number:04x}", self.shape.key_count)
        })
    }

    /// What is wrong with the first entry of an inner page, which has no key.
    fn first_inner_fault(&self, page: &[u8], number: u16) -> Option<String> {
        if self.version < VERSION_BY_ROW {
            return None;
        }
        let bytes = bytes_of(page, number)?;
        let (number, info) = (u16_at(bytes, 4), u16_at(bytes, 6));
        let is_right = info & OTHER != 0 && number & (COUNT | HAS_ROW | IS_LIST) == 0;
        (!is_right).then(|| format!("the first of an inner page has keys, flags 0x{number:04x}"))
    }

    fn inner_entry<'p>(
        &self,
        page: &'p [u8],
        number: u16,
        room: Vec<Value<'p>>,
    ) -> Result<Entry<'p>, String> {
        let entry = self.entry(page, number, room).ok_or(KEYS_DO_NOT_FIT)?;
        self.inner_fault(&entry).map_or(Ok(entry), Err)
    }

    /// An entry that leads to rows, once it is known to be one that a server writes. Most lead
    /// to one row: their columns are read once, for their keys and for what may be wrong.
    fn leaf_entry<'p>(
        &self,
        page: &'p [u8],
        number: u16,
        room: Vec<Value<'p>>,
    ) -> Result<Entry<'p>, String> {
        let bytes = bytes_of(page, number).ok_or(KEYS_DO_NOT_FIT)?;
        let info = u16_at(bytes, 6);
        if info & OTHER != 0 {
            let entry = self.read(bytes, room).ok_or(KEYS_DO_NOT_FIT)?;
            return self.list_fault(&entry).map_or(Ok(entry), Err);
        }
        let begin = if info & NULLS == 0 { 8 } else { 16 };
        let mut reader = Values::new(bytes.get(begin..).ok_or(KEYS_DO_NOT_FIT)?);
        let mut values = room;
        values.clear();
        let mut varies = false;
        for (index, column) in self.columns.iter().enumerate() {
            let is_key = index < self.shape.key_count;
            let value = if is_null(bytes, info, index) {
                Value::Null
            } else {
                varies |= column.bytes < 0;
                let what = if is_key { KEYS_DO_NOT_FIT } else { COLUMNS_DO_NOT_FIT };
                reader.next(column).ok_or(what)?
            };
            if is_key {
                values.push(value);
            }
        }
        let entry = Entry { bytes, values };
        content_fault(info, varies, &reader).map_or(Ok(entry), Err)
    }

    /// What is wrong with an entry that leads to a list of rows.
    fn list_fault(&self, entry: &Entry<'_>) -> Option<String> {
        let info = u16_at(entry.bytes, 6);
        let tid = Tid::read(entry.bytes)?;
        if tid.number & IS_LIST == 0 {
            return Some("it leads to a page, on a leaf".to_owned());
        }
        let end = usize::try_from(tid.block).ok()?;
        let begin = if info & NULLS == 0 { 8 } else { 16 };
        let mut values = Values::new(entry.bytes.get(begin..end).unwrap_or_default());
        let mut varies = false;
        for (index, column) in self.columns.iter().enumerate() {
            if is_null(entry.bytes, info, index) {
                continue;
            }
            varies |= column.bytes < 0;
            if values.next(column).is_none() {
                return Some(COLUMNS_DO_NOT_FIT.to_owned());
            }
        }
        content_fault(info, varies, &values)
    }

    fn fault(&mut self, block: u32, text: String) {
        if self.faults.len() < FAULTS_MAX && !self.is_again {
            self.faults.push((block, text));
        }
    }

    /// An entry with its keys; `None` if they end beyond it.
    fn entry<'p>(&self, page: &'p [u8], number: u16, room: Vec<Value<'p>>) -> Option<Entry<'p>> {
        self.read(bytes_of(page, number)?, room)
    }

    /// `room` is for its values, whatever was in it.
    fn read<'p>(&self, bytes: &'p [u8], room: Vec<Value<'p>>) -> Option<Entry<'p>> {
        let info = u16_at(bytes, 6);
        let number = u16_at(bytes, 4);
        // An inner page or a high key may have the first keys only.
        let keys = match info & OTHER != 0 && number & IS_LIST == 0 {
            true => usize::from(number & COUNT).min(self.shape.key_count),
            false => self.shape.key_count,
        };
        let begin = if info & NULLS == 0 { 8 } else { 16 };
        let mut reader = Values::new(bytes.get(begin..)?);
        let mut values = room;
        values.clear();
        values.reserve(keys);
        for (index, column) in self.columns.iter().enumerate().take(keys) {
            values.push(match is_null(bytes, info, index) {
                true => Value::Null,
                false => reader.next(column)?,
            });
        }
        Some(Entry { bytes, values })
    }

    fn hand_on(&self, entry: &Entry<'_>, entries: &mut Entries<'_>) {
        let mut hash = KeyHash::new();
        for (key, value) in entry.values.iter().enumerate() {
            if !self.shape.is_computed(key) {
                hash.add(*value);
            }
        }
        let hash = hash.finish();
        each_row(entry.bytes, |tid| entries.add(tid, hash));
    }

    /// What is wrong between two entries that follow one another.
    fn pair(
        &self,
        block: u32,
        number: u16,
        level: u32,
        before: &Entry<'_>,
        entry: &Entry<'_>,
        rows: &LiveRows,
    ) -> Option<String> {
        let found = match self.keys.compare(&before.values, &entry.values) {
            Compared::Known(found) => found,
            Compared::Open => return None,
        };
        if found == Ordering::Greater {
            return Some(format!("entry {number} has a smaller key than the one before it"));
        }
        if found != Ordering::Equal || level > 0 {
            return None;
        }
        let has_null = entry.values.contains(&Value::Null);
        if self.shape.is_unique && (!has_null || self.shape.nulls_are_equal) {
            let live = |bytes: &[u8]| {
                let mut found = None;
                each_row(bytes, |tid| found = found.or(rows.is_live(tid).then_some(tid)));
                found
            };
            if let (Some(one), Some(other)) = (live(before.bytes), live(entry.bytes)) {
                return Some(format!(
                    "a unique index with one key for two rows: ({}, {}) and ({}, {}), entry {number} of block {block}",
                    one.block, one.number, other.block, other.number
                ));
            }
        }
        let (mut last, mut first) = (None, None);
        each_row(before.bytes, |tid| last = Some(tid));
        each_row(entry.bytes, |tid| first = first.or(Some(tid)));
        let by_row = self.version >= VERSION_BY_ROW && last >= first;
        by_row
            .then(|| format!("entry {number} has the key of the one before it, and an earlier row"))
    }

    /// Compares the high key of a leaf with the first key of the next.
    fn neighbours(
        &mut self,
        block: u32,
        (left, right): (u32, u32),
        first: Option<Box<[u8]>>,
        high: Option<Box<[u8]>>,
    ) {
        if let Some(high_before) = self.highs.remove(&block) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(high_before.len());
            self.hold(&high_before, first.as_deref(), block);
        } else if left > block
            && let Some(first) = first
        {
            self.wait(block, first, true);
        }
        let Some(high) = high else { return };
        if right > block {
            self.wait(right, high, false);
        } else if let Some(first) = self.firsts.remove(&right) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(first.len());
            self.hold(&high, Some(&first), right);
        }
    }

    fn wait(&mut self, block: u32, key: Box<[u8]>, is_first: bool) {
        let bytes = self.waiting_bytes.saturating_add(key.len());
        if bytes > WAITING_MAX {
            self.is_full = true;
            return;
        }
        self.waiting_bytes = bytes;
        let waiting = if is_first { &mut self.firsts } else { &mut self.highs };
        waiting.insert(block, key);
    }

    fn hold(&mut self, high: &[u8], first: Option<&[u8]>, block: u32) {
        let keys = |key| self.read(key, Vec::new()).map(|entry| entry.values);
        let Some((high, first)) = keys(high).zip(first.and_then(keys)) else { return };
        if self.keys.compare(&high, &first) == Compared::Known(Ordering::Greater) {
            let text = "its first key is smaller than the high key of its left neighbour";
            self.fault(block, text.to_owned());
        }
    }
}

/// The bytes of an entry, as long as it says that it is.
fn bytes_of(page: &[u8], number: u16) -> Option<&[u8]> {
    let at = usize::from(number).checked_mul(4)?.checked_add(HEADER_BYTES)?.checked_sub(4)?;
    let begin = usize::from(u16_at(page, at) & 0x7FFF);
    let rest = page.get(begin..)?;
    rest.get(..usize::from(u16_at(rest, 6) & SIZE))
}

/// What is wrong with an entry whose columns were all read.
fn content_fault(info: u16, varies: bool, values: &Values<'_>) -> Option<String> {
    if varies != (info & VARIES != 0) {
        return Some(format!("t_info is 0x{info:04x}, which its columns contradict"));
    }
    (!values.is_padding_clear()).then(|| "the bytes between its columns are not zero".to_owned())
}

/// True if a column of an entry has no value.
fn is_null(bytes: &[u8], info: u16, index: usize) -> bool {
    if info & NULLS == 0 {
        return false;
    }
    let byte = bytes.get(8_usize.saturating_add(index / 8)).copied().unwrap_or(0);
    byte >> (index % 8) & 1 == 0
}

/// True if the line pointer of an entry says that its row is gone for all.
fn is_marked_dead(page: &[u8], number: u16) -> bool {
    let at = HEADER_BYTES.saturating_add(usize::from(number.saturating_sub(1)) * 4);
    u32_at(page, at).is_some_and(|bits| LinePointer::parse(bits) == LinePointer::Dead)
}

/// Calls `each` for every row that an entry of a leaf leads to.
fn each_row(bytes: &[u8], mut each: impl FnMut(Tid)) {
    let Some(tid) = Tid::read(bytes) else { return };
    if u16_at(bytes, 6) & OTHER == 0 {
        return each(tid);
    }
    if tid.number & IS_LIST == 0 {
        return;
    }
    let list = usize::try_from(tid.block).ok().and_then(|begin| bytes.get(begin..));
    let rows = list.unwrap_or_default().chunks_exact(TID_BYTES);
    rows.take(usize::from(tid.number & COUNT)).filter_map(Tid::read).for_each(each);
}

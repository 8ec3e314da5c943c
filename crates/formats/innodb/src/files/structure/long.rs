//! Values that lie outside of their records. A record has in their place, at the end of what it has
//! of them:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | tablespace |
//! | 4 | 4 | the first page |
//! | 8 | 4 | where it begins there: 38; of MySQL 8.0 and later its version |
//! | 12 | 8 | its bytes; the highest bits: 128 another record owns it, 64 it came from one, 32 it is being written |
//!
//! A page of type 10 has at byte 38 how many bytes, and the next page. MySQL 8.0 and later have a list of
//! parts: on the first page (type 24), and on others (22), of entries of 60 bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 6 each | page and offset of the entry before, and of the one behind |
//! | 12 | 16 | older versions of it |
//! | 48 | 4 | its page: the first one, or one of type 23 |
//! | 52 | 2 | its bytes |
//! | 56 | 4 | its version |
//!
//! Of a compressed table, of MariaDB and of MySQL up to 5.7, the pages (type 11 the first, 12 the others) have one zlib
//! stream from byte 38 on, and the next page at 12. The parts of MySQL 8.0 and later: `zip_parts`.
//!
//! On the first page the version of the value is at byte 40, its bytes there at 54, the list of entries at 64, entries
//! from 96 on. A page of type 23 has its bytes at 39.
//!
//! Sources: `lob0lob.h`, `lob0first.h`, `lob0index.h` of MySQL 8.0, `btr0cur.cc` of MariaDB 10.11.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};
use std::fs::File;

use flate2::{Decompress, FlushDecompress, Status};

use crate::files::structure::tree::Faults;
use crate::files::structure::{Gathered, Long, Structure, TYPE_BLOB, What, zip_parts};
use crate::page::fields::{PAGE_TYPE, read_u16, read_u32};
use crate::page::layout::Form;
use pagewarden_core::source::file::{open_regular, read_fully};

const REFERENCE_BYTES: usize = 20;
const TYPE_LOB_INDEX: u16 = 22;
const TYPE_LOB_DATA: u16 = 23;
const TYPE_LOB_FIRST: u16 = 24;
/// Those of compressed tables.
pub(super) const TYPES_STREAM: [u16; 2] = [11, 12];
const NONE: u32 = u32::MAX;

/// Where the value of a field goes on, by its last bytes; `None` where that is not written yet, or is
/// another record's.
pub(super) fn reference(of: u32, value: &[u8]) -> Option<Long> {
    const FLAGS: u8 = 0xA0;
    let at = value.len().checked_sub(REFERENCE_BYTES)?;
    let rest = value.get(at..)?;
    let (page, bytes) = (read_u32(rest, 4), read_u32(rest, 16));
    let is_own = rest.get(12)? & FLAGS == 0 && bytes > 0 && page != 0;
    is_own.then(|| Long { of, page, version: read_u32(rest, 8), bytes })
}

/// Where a list of parts is on the first page of a value, and the types of the pages with its entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    pub(super) at: usize,
    pub(super) first: u16,
    pub(super) index: u16,
}

/// What was gone to.
pub(super) struct Walk<'a> {
    pub(super) structure: &'a Structure,
    pub(super) gathered: &'a Gathered,
    file: File,
    /// Pages that a value has, each once.
    taken: HashSet<u32>,
    pub(super) read: HashMap<u32, Vec<u8>>,
}

impl Structure {
    /// Each value has all of its pages, and each page one value.
    pub(super) fn compare_long(&self, gathered: &Gathered, faults: &mut Faults) {
        let Ok(file) = open_regular(&self.path) else { return };
        let taken = HashSet::new();
        let mut walk = Walk { structure: self, gathered, file, taken, read: HashMap::new() };
        for long in &gathered.found.long {
            walk.read.clear();
            if let Err((page, words)) = walk.follow(long) {
                faults.entry(page).or_insert(words);
            }
        }
    }
}

/// The page, and what is wrong with it.
pub(super) type Wrong = (u32, String);

/// A stream that is unpacked piece by piece, up to the bytes that it should have.
pub(super) struct Unpacking {
    inflate: Decompress,
    clear: Vec<u8>,
    wanted: u64,
}

impl Unpacking {
    pub(super) fn of(wanted: u64) -> Self {
        Self { inflate: Decompress::new(true), clear: vec![0; 1 << 16], wanted }
    }

    /// Takes a piece; true at the end of the stream. Says what is wrong with it.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<bool, String> {
        let mut rest = piece;
        while !rest.is_empty() {
            let (taken, before) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(rest, &mut self.clear, FlushDecompress::None);
            let status = status
                .map_err(|error| format!("its part of a value cannot be unpacked: {error}"))?;
            let bytes = self.inflate.total_out();
            let is_end = status == Status::StreamEnd;
            if bytes > self.wanted || is_end && bytes != self.wanted {
                return Err(format!(
                    "its part of a value has {bytes} bytes unpacked, not {}",
                    self.wanted
                ));
            }
            if is_end {
                return Ok(true);
            }
            let taken = usize::try_from(self.inflate.total_in().saturating_sub(taken));
            if taken == Ok(0) && bytes == before {
                return Err("its part of a value leads nowhere".to_owned());
            }
            rest = rest.get(taken.unwrap_or(usize::MAX)..).unwrap_or_default();
        }
        Ok(false)
    }
}

impl Walk<'_> {
    fn follow(&mut self, long: &Long) -> Result<(), Wrong> {
        let lost = |what: &str| {
            (
                long.of,
                format!("a value of {} bytes goes on at page {}, {what}", long.bytes, long.page),
            )
        };
        match self.gathered.fact(long.page).what {
            What::Unknown => Ok(()),
            What::Free => Err(lost("which is not in use")),
            What::Type(TYPE_BLOB) => self.follow_pages(long),
            What::Type(TYPE_LOB_FIRST) => self.follow_entries(long),
            What::Type(kind) if kind == TYPES_STREAM[0] && self.is_zip() => {
                self.follow_stream(long)
            }
            What::Type(zip_parts::TYPE_FIRST) if self.is_zip() => self.follow_zip_parts(long),
            What::Type(kind) => Err(lost(&format!("which is of type {kind}"))),
        }
    }

    fn is_zip(&self) -> bool {
        self.structure.layout.form == Form::Zip
    }

    /// A page belongs to one value.
    pub(super) fn take(&mut self, page: u32) -> Result<(), Wrong> {
        match self.taken.insert(page) {
            true => Ok(()),
            false => Err((page, "two values have it, or one twice".to_owned())),
        }
    }

    fn follow_pages(&mut self, long: &Long) -> Result<(), Wrong> {
        let mut bytes = 0_u64;
        let mut at = Some(long.page);
        let mut before = long.of;
        while let Some(page) = at {
            let fact = self.gathered.fact(page);
            match fact.what {
                What::Unknown => return Ok(()),
                What::Type(TYPE_BLOB) => {}
                _ => {
                    let words =
                        format!("its value goes on at page {page}, which has no part of it");
                    return Err((before, words));
                }
            }
            self.take(page)?;
            bytes = bytes.saturating_add(fact.index);
            (before, at) = (page, fact.next);
        }
        if bytes == u64::from(long.bytes) {
            return Ok(());
        }
        Err((long.page, format!("its value has {bytes} bytes, and {} by its record", long.bytes)))
    }

    fn follow_stream(&mut self, long: &Long) -> Result<(), Wrong> {
        const BEGIN: usize = 38;
        let [first, others] = TYPES_STREAM.map(What::Type);
        let mut unpacking = Unpacking::of(u64::from(long.bytes));
        let (mut at, mut wanted) = (Some(long.page), first);
        let mut before = long.of;
        while let Some(page) = at {
            let fact = self.gathered.fact(page);
            if fact.what == What::Unknown {
                return Ok(());
            }
            if fact.what != wanted {
                let words = format!("its value goes on at page {page}, which has no part of it");
                return Err((before, words));
            }
            self.take(page)?;
            let Some(bytes) = self.page(page).map(<[u8]>::to_vec) else { return Ok(()) };
            self.read.remove(&page);
            let piece = bytes.get(BEGIN..).unwrap_or_default();
            if unpacking.take(piece).map_err(|words| (page, words))? {
                return Ok(());
            }
            (before, at, wanted) = (page, fact.next, others);
        }
        Err((long.page, "the compressed stream of its value does not end".to_owned()))
    }

    /// Pages with entries are few: they are read once more.
    pub(super) fn page(&mut self, number: u32) -> Option<&[u8]> {
        if !self.read.contains_key(&number) {
            let mut page = vec![0; self.structure.layout.page_size];
            let bytes = u64::try_from(page.len()).ok()?;
            let offset = u64::from(number).checked_mul(bytes)?;
            read_fully(&self.file, &mut page, offset).ok()?;
            self.read.insert(number, page);
        }
        self.read.get(&number).map(Vec::as_slice)
    }

    fn follow_entries(&mut self, long: &Long) -> Result<(), Wrong> {
        const LIST: List = List { at: 64, first: TYPE_LOB_FIRST, index: TYPE_LOB_INDEX };
        const BYTES: usize = 54;
        self.follow_list::<60>(long, LIST, |walk, entry| {
            let own = walk.page(long.page).map(|page| u64::from(read_u32(page, BYTES)));
            let Some(own) = own else { return Ok(None) };
            let (page, length) = (read_u32(entry, 48), u64::from(read_u16(entry, 52)));
            walk.test_part(long.page, page, length, own)?;
            Ok(Some(length))
        })
    }

    /// Goes through a list of parts. `part` tests the one of an entry, and says how many bytes of the value it has;
    /// `None` where a page of it was not seen, so that the value is not tested further.
    pub(super) fn follow_list<const BYTES: usize>(
        &mut self,
        long: &Long,
        list: List,
        mut part: impl FnMut(&mut Self, &[u8; BYTES]) -> Result<Option<u64>, Wrong>,
    ) -> Result<(), Wrong> {
        const VERSION: usize = 40;
        let first = long.page;
        let wrong = |words: &str| (first, words.to_owned());
        self.take(first)?;
        let Some(page) = self.page(first) else { return Ok(()) };
        if read_u16(page, PAGE_TYPE) != list.first {
            // Stored compressed: the entries would have to be unpacked.
            return Ok(());
        }
        let version = read_u32(page, VERSION);
        let (count, mut at) = (read_u32(page, list.at), address(page, list.at.saturating_add(4)));
        let last = address(page, list.at.saturating_add(10));
        let (mut bytes, mut before, mut seen) = (0_u64, (NONE, 0), 0_u32);
        while at.0 != NONE {
            let is_there = match self.gathered.fact(at.0).what {
                What::Unknown => return Ok(()),
                What::Type(kind) if kind == list.first => at.0 == first,
                What::Type(kind) => kind == list.index,
                What::Free => false,
            };
            let entry = self.page(at.0).and_then(|page| page.get(at.1..)?.first_chunk::<BYTES>());
            let Some(entry) = entry.copied().filter(|_| is_there && seen < count) else {
                return Err(wrong("its list of parts leads to no part of it"));
            };
            if address(&entry, 0) != before && before.0 != NONE {
                return Err(wrong("its list of parts is not linked both ways"));
            }
            let Some(of_part) = part(self, &entry)? else { return Ok(()) };
            bytes = bytes.saturating_add(of_part);
            (before, at) = (at, address(&entry, 6));
            seen = seen.saturating_add(1);
        }
        let is_ended = seen == count && (last == before || last.0 == NONE && before.0 == NONE);
        if !is_ended {
            return Err(wrong("its list of parts ends too early"));
        }
        // A record of an older version has parts that others took the place of.
        if version == long.version && bytes != u64::from(long.bytes) {
            return Err((
                first,
                format!("its value has {bytes} bytes, and {} by its record", long.bytes),
            ));
        }
        Ok(())
    }

    fn test_part(&mut self, first: u32, page: u32, length: u64, own: u64) -> Result<(), Wrong> {
        const BYTES: usize = 39;
        if page == first {
            return match length == own {
                true => Ok(()),
                false => {
                    Err((first, format!("its part here has {own} bytes, and {length} by the list")))
                }
            };
        }
        match self.gathered.fact(page).what {
            What::Unknown => return Ok(()),
            What::Type(TYPE_LOB_DATA) => {}
            _ => {
                return Err((first, format!("a part of its value is page {page}, which has none")));
            }
        }
        self.take(page)?;
        let stored = self.page(page).map_or(length, |bytes| match read_u16(bytes, PAGE_TYPE) {
            TYPE_LOB_DATA => u64::from(read_u32(bytes, BYTES)),
            _ => length,
        });
        self.read.remove(&page);
        match stored == length {
            true => Ok(()),
            false => Err((page, format!("its part has {stored} bytes, and {length} by the list"))),
        }
    }
}

fn address(page: &[u8], at: usize) -> (u32, usize) {
    let rest = page.get(at..).unwrap_or_default();
    (read_u32(rest, 0), usize::from(read_u16(rest, 4)))
}

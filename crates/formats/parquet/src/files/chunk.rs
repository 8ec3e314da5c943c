//! The way through a column chunk, from page to page, and what must come out at its end.
//!
//! A header has no sum. It says how long its page is, so that a header that lies is found at the next
//! one, or at the end of the chunk: sizes, and the number of values, must add up to what the footer says.
//! If a header cannot be read, the pages behind it are found by the offset index, if there is one.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::files::Reading;
use crate::files::batch::{Ahead, BECAME_SHORTER};
use crate::files::footer::Place;
use crate::files::header::{
    PageHeader, PageKind, read_bloom_filter, read_column_index, read_offset_index,
};
use crate::page::codec::Codec;
use crate::page::{Content, ParquetPage};
use crate::thrift::ThriftError;
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{ByteOffset, Kind, Unread};

/// Headers may hold the smallest and the largest value of their page.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Most are shorter.
const HEADER_BYTES: usize = 256;
/// No header begins with twelve zeroes, and none is shorter.
const BLANK_BYTES: usize = 12;
/// A header of a Bloom filter has a dozen.
const BLOOM_HEADER_BYTES: usize = 256;
/// An index of a chunk with millions of pages.
const INDEX_BYTES_MAX: u64 = 256 << 20;
/// The length of an encrypted part, before it.
const MODULE_LENGTH_BYTES: u64 = 4;

/// A column chunk, as the footer describes it.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// `row group 0, column a.b`.
    pub name: Arc<str>,
    /// Where its pages are.
    pub place: Place,
    /// Old versions of parquet-mr forgot the header of the dictionary in the length.
    pub slack_bytes: u64,
    /// How they are compressed.
    pub codec: Codec,
    /// Values in them.
    pub values: u64,
    /// Rows in its row group.
    pub rows: u64,
    /// Bytes of each value, if all have as many.
    pub width: Option<u64>,
    /// What they expand to, with headers; `None` where writers get that wrong.
    pub expanded_bytes: Option<u64>,
    /// They need a key.
    pub is_encrypted: bool,
    /// Where its offset index is.
    pub offset_index: Option<Place>,
    /// Where its column index is.
    pub column_index: Option<Place>,
    /// Where its Bloom filter is, with its length where that is said.
    pub bloom: Option<(u64, Option<u64>)>,
}

/// A chunk that is being read.
#[derive(Debug)]
pub struct Walk {
    chunk: Chunk,
    offset: u64,
    values: u64,
    rows: Option<u64>,
    expanded_bytes: u64,
    /// The data pages, as the offset index has them.
    data: Vec<Place>,
    index: Option<Result<Vec<Place>, ThriftError>>,
    /// The dictionary, if it is not as long as its values are.
    odd_dictionary: Option<String>,
    /// A page of it was passed over.
    is_broken: bool,
}

impl Walk {
    /// Begins with the first page.
    pub fn new(chunk: Chunk, reading: &mut Reading, ready: &mut VecDeque<Step>) -> Self {
        let mut walk = Self {
            offset: chunk.place.begin,
            chunk,
            values: 0,
            rows: Some(0),
            expanded_bytes: 0,
            data: Vec::new(),
            index: None,
            odd_dictionary: None,
            is_broken: false,
        };
        if !walk.chunk.is_encrypted
            && let Some(place) = walk.chunk.offset_index
        {
            walk.index = walk.index_bytes(place, reading, ready).map(|it| read_offset_index(&it));
        }
        walk
    }

    /// Puts what comes next into `ready`; false at the end of the chunk, when all is said.
    pub fn go_on(&mut self, reading: &mut Reading, ready: &mut VecDeque<Step>) -> bool {
        let is_all = self.chunk.slack_bytes > 0 && self.values >= self.chunk.values;
        if self.offset >= self.chunk.place.end() || is_all {
            self.end(reading, ready);
            return false;
        }
        if self.chunk.is_encrypted {
            self.encrypted_page(reading, ready);
        } else {
            self.page(reading, ready);
        }
        true
    }

    fn limit(&self) -> u64 {
        self.chunk.place.end().saturating_add(self.chunk.slack_bytes)
    }

    fn page(&mut self, reading: &mut Reading, ready: &mut VecDeque<Step>) {
        let header = match self.header(reading) {
            Ok(Ok(header)) => header,
            Ok(Err(why)) => return self.broken(&why, reading, ready),
            Err(error) => return self.unread(self.limit(), &error.to_string(), reading, ready),
        };
        let length = header.bytes.saturating_add(header.stored_bytes);
        let left = self.limit().saturating_sub(self.offset);
        if to_u64(length) > left {
            let why =
                format!("it says that {length} bytes are its page, its chunk has {left} more");
            return self.broken(&why, reading, ready);
        }
        let place = Place { begin: self.offset, bytes: to_u64(length) };
        match header.kind {
            PageKind::Data | PageKind::DataV2 => {
                self.values = self.values.saturating_add(header.values);
                self.rows = self.rows.zip(header.rows).map(|(sum, rows)| sum.saturating_add(rows));
                if self.chunk.offset_index.is_some() {
                    self.data.push(place);
                }
            }
            PageKind::Dictionary => self.odd_dictionary = self.odd_dictionary(&header),
            PageKind::Index => {}
        }
        let expanded = to_u64(header.bytes.saturating_add(header.expanded_bytes));
        self.expanded_bytes = self.expanded_bytes.saturating_add(expanded);
        let page = ParquetPage {
            header_bytes: header.bytes,
            stored_bytes: header.stored_bytes,
            sum: header.sum,
            content: header.content(self.chunk.codec),
            expands_all: reading.options.expands_all,
        };
        self.hand_on(page, reading, ready);
    }

    /// A part of the file that is encrypted begins with its length: first the header, then the page.
    fn encrypted_page(&mut self, reading: &mut Reading, ready: &mut VecDeque<Step>) {
        let mut at = self.offset;
        let mut parts = [0_usize; 2];
        for part in &mut parts {
            let head = match reading.window.head(&(at..self.limit()), 4) {
                Ok(head) => head.first_chunk().map(|word| u32::from_le_bytes(*word)),
                Err(error) => return self.unread(self.limit(), &error.to_string(), reading, ready),
            };
            let bytes = head.map(|length| u64::from(length).saturating_add(MODULE_LENGTH_BYTES));
            let left = self.limit().saturating_sub(at);
            let Some(bytes) = bytes.filter(|bytes| *bytes > MODULE_LENGTH_BYTES && *bytes <= left)
            else {
                let why = "it is encrypted, and its length is not one that its chunk has room for";
                return self.broken(why, reading, ready);
            };
            at = at.saturating_add(bytes);
            *part = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        let [header_bytes, stored_bytes] = parts;
        let page = ParquetPage {
            header_bytes,
            stored_bytes,
            sum: None,
            content: Content::Encrypted,
            expands_all: false,
        };
        self.hand_on(page, reading, ready);
    }

    fn header(&self, reading: &mut Reading) -> io::Result<Result<PageHeader, String>> {
        let range = self.offset..self.limit();
        let mut wanted = HEADER_BYTES;
        loop {
            let head = reading.window.head(&range, wanted)?;
            let is_all = head.len() < wanted
                || to_u64(head.len()) >= self.limit().saturating_sub(self.offset);
            match PageHeader::read(head) {
                Ok(header) => return Ok(Ok(header)),
                Err(ThriftError::Ends) if !is_all && wanted < HEADER_BYTES_MAX => {
                    wanted = wanted.max(head.len()).saturating_mul(4);
                }
                Err(error) => {
                    let is_zero = head.iter().take(BLANK_BYTES).all(|byte| *byte == 0);
                    return Ok(Err(if is_zero { ZEROES.to_owned() } else { error.to_string() }));
                }
            }
        }
    }

    fn hand_on(&mut self, page: ParquetPage, reading: &mut Reading, ready: &mut VecDeque<Step>) {
        let length = page.header_bytes.saturating_add(page.stored_bytes);
        let (begin, end) = (self.offset, self.offset.saturating_add(to_u64(length)));
        let mut file = reading.page_file(Arc::new(page));
        // It is not where the file begins, and each page is a run of its own: this gives it
        // its number, whatever its length.
        file.first_offset = ByteOffset(end);
        file.first_page = reading.next_page();
        file.object = Some(Arc::clone(&self.chunk.name));
        let place = Place { begin, bytes: to_u64(length) };
        let ahead = Ahead { file: Arc::new(file), place };
        self.offset = end;
        if reading.options.is_local {
            return reading.batch.push(ahead);
        }
        ready.push_back(match ahead.read(&reading.window) {
            Ok(pages) => Step::Pages(pages),
            Err(unread) => {
                self.is_broken = true;
                Step::Unread(unread)
            }
        });
    }

    /// What cannot be read up to there.
    fn unread(&mut self, end: u64, why: &str, reading: &Reading, ready: &mut VecDeque<Step>) {
        let length = end.saturating_sub(self.offset);
        let unread =
            Unread::stretch(reading.name.clone(), ByteOffset(self.offset), length, why.to_owned());
        ready.push_back(Step::Unread(unread));
        self.offset = end;
        self.is_broken = true;
    }

    /// A header that is none: goes on with the next page that the offset index has.
    fn broken(&mut self, why: &str, reading: &mut Reading, ready: &mut VecDeque<Step>) {
        let index = self.index.as_ref().and_then(|index| index.as_ref().ok());
        let next = index.and_then(|places| {
            let later = |place: &&Place| place.begin > self.offset && place.begin < self.limit();
            places.iter().find(later).map(|place| place.begin)
        });
        let end = next.unwrap_or(self.limit());
        let rest = end.saturating_sub(self.offset);
        let number = reading.next_page();
        let kind = if why == ZEROES { Kind::Zeroed } else { Kind::Header };
        let detail = format!(
            "the header of this page is none: {why}; {rest} bytes from there on could not be tested"
        );
        ready.push_back(Step::Finding(
            reading
                .finding(kind, detail)
                .at(Some(number), Some(ByteOffset(self.offset)))
                .about(None, Some(&self.chunk.name)),
        ));
        self.offset = end;
        self.is_broken = true;
    }

    /// Values of a dictionary stand one behind the other.
    fn odd_dictionary(&self, header: &PageHeader) -> Option<String> {
        let width = self.chunk.width?;
        let bytes = to_u64(header.expanded_bytes);
        (header.values.checked_mul(width) != Some(bytes)).then(|| {
            format!(
                "its dictionary has {} values by its header, of {width} bytes by the schema, and {bytes} bytes",
                header.values
            )
        })
    }

    /// What must fit once all pages were seen.
    fn end(&self, reading: &mut Reading, ready: &mut VecDeque<Step>) {
        self.look_at_bloom_filter(reading, ready);
        if self.chunk.is_encrypted || self.is_broken {
            return;
        }
        let chunk = &self.chunk;
        let mut say = |offset: u64, kind: Kind, detail: String| {
            let finding = reading
                .finding(kind, detail)
                .at(None, Some(ByteOffset(offset)))
                .about(None, Some(&chunk.name));
            ready.push_back(Step::Finding(finding));
        };
        if let Some(detail) = &self.odd_dictionary {
            say(chunk.place.begin, Kind::Structure, detail.clone());
        }
        if self.values != chunk.values {
            let detail = format!(
                "its pages have {} values by their headers, the footer says {}",
                self.values, chunk.values
            );
            say(chunk.place.begin, Kind::Structure, detail);
        } else if let Some(rows) = self.rows.filter(|rows| *rows != chunk.rows)
            && !self.has_no_data()
        {
            let detail = format!(
                "its pages have {rows} rows by their headers, the footer says {}",
                chunk.rows
            );
            say(chunk.place.begin, Kind::Structure, detail);
        } else if let Some(expected) = chunk.expanded_bytes.filter(|it| *it != self.expanded_bytes)
        {
            let detail = format!(
                "its pages expand to {} bytes by their headers, the footer says {expected}",
                self.expanded_bytes
            );
            say(chunk.place.begin, Kind::Structure, detail);
        }
        if let (Some(place), Some(index)) = (chunk.offset_index, &self.index) {
            match index {
                Ok(places) if *places == self.data => {}
                Ok(_) => {
                    say(
                        place.begin,
                        Kind::Structure,
                        "its offset index is not of its pages".into(),
                    );
                }
                Err(why) => {
                    say(place.begin, Kind::Header, format!("its offset index is none: {why}"));
                }
            }
        }
        self.look_at_column_index(reading, ready);
    }

    fn has_no_data(&self) -> bool {
        self.values == 0
    }

    /// The bytes of an index; `None`, and it is said why, if they cannot be read.
    fn index_bytes(
        &self,
        place: Place,
        reading: &Reading,
        ready: &mut VecDeque<Step>,
    ) -> Option<Vec<u8>> {
        // That it reaches out of the file was said.
        let length = usize::try_from(place.bytes).ok()?;
        if place.end() > reading.footer_begin || place.bytes > INDEX_BYTES_MAX {
            return None;
        }
        match reading.window.read(place.begin, length) {
            Ok(bytes) if bytes.len() == length => Some(bytes),
            outcome => {
                let why = outcome.map_or_else(|error| error.to_string(), |_| BECAME_SHORTER.into());
                let begin = ByteOffset(place.begin);
                let unread = Unread::stretch(reading.name.clone(), begin, place.bytes, why);
                ready.push_back(Step::Unread(unread));
                None
            }
        }
    }

    fn look_at_column_index(&self, reading: &Reading, ready: &mut VecDeque<Step>) {
        let Some(place) = self.chunk.column_index else { return };
        let Some(bytes) = self.index_bytes(place, reading, ready) else { return };
        let pages = to_u64(self.data.len());
        let detail = match read_column_index(&bytes) {
            // Without an offset index the data pages were not counted.
            Ok(count) if count == pages || self.chunk.offset_index.is_none() => return,
            Ok(count) => format!("its column index is of {count} pages, it has {pages}"),
            Err(why) => format!("its column index is none: {why}"),
        };
        let finding = reading
            .finding(Kind::Structure, detail)
            .at(None, Some(ByteOffset(place.begin)))
            .about(None, Some(&self.chunk.name));
        ready.push_back(Step::Finding(finding));
    }

    fn look_at_bloom_filter(&self, reading: &Reading, ready: &mut VecDeque<Step>) {
        let Some((begin, expected)) = self.chunk.bloom.filter(|_| !self.chunk.is_encrypted) else {
            return;
        };
        let end = reading.footer_begin;
        let head = usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX);
        let detail = match reading.window.read(begin, head.min(BLOOM_HEADER_BYTES)) {
            Ok(bytes) => match read_bloom_filter(&bytes) {
                Ok(length) if begin.saturating_add(length) > end => {
                    "its Bloom filter reaches into the footer".to_owned()
                }
                Ok(length) if expected.is_some_and(|expected| expected != length) => {
                    "its Bloom filter has another length than the footer says".to_owned()
                }
                Ok(_) => return,
                Err(why) => format!("its Bloom filter has no header: {why}"),
            },
            Err(error) => {
                let length = expected.unwrap_or(0);
                let begin = ByteOffset(begin);
                let unread =
                    Unread::stretch(reading.name.clone(), begin, length, error.to_string());
                return ready.push_back(Step::Unread(unread));
            }
        };
        let finding = reading
            .finding(Kind::Structure, detail)
            .at(None, Some(ByteOffset(begin)))
            .about(None, Some(&self.chunk.name));
        ready.push_back(Step::Finding(finding));
    }
}

/// Why a header is none, if there is nothing.
const ZEROES: &str = "there are only zeroes";

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

//! The header of a page, a structure of Thrift without a sum, and what is said of pages elsewhere.

#![deny(clippy::arithmetic_side_effects)]

use crate::files::footer::Place;
use crate::page::Content;
use crate::page::codec::Codec;
use crate::thrift::{Read, Reader, ThriftError, Wire};

/// What kind of page it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Values.
    Data,
    /// Values, with levels that are never compressed.
    DataV2,
    /// The values that others stand for.
    Dictionary,
    /// Reserved: no writer is known.
    Index,
}

impl PageKind {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data | Self::DataV2 => "data page",
            Self::Dictionary => "dictionary",
            Self::Index => "index page",
        }
    }
}

/// What the header of a page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageHeader {
    /// Its own length.
    pub bytes: usize,
    /// What kind of page it is.
    pub kind: PageKind,
    /// Bytes behind it, as they are stored.
    pub stored_bytes: usize,
    /// The same expanded.
    pub expanded_bytes: usize,
    /// The sum of what is stored.
    pub sum: Option<u32>,
    /// Values with nulls.
    pub values: u64,
    /// Rows that begin in it, where that is said.
    pub rows: Option<u64>,
    /// Levels at its front, which are not compressed.
    pub bare_bytes: usize,
    /// False if it is not compressed, whatever the codec of its chunk.
    pub is_compressed: bool,
    /// What readers of its values must know.
    pub values_in: ValuesIn,
}

/// How the values of a page are written; numbers are those of the format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValuesIn {
    /// The encoding of the values.
    pub encoding: i32,
    /// That of the definition levels, where the page says it.
    pub definition_encoding: i32,
    /// That of the repetition levels, where the page says it.
    pub repetition_encoding: i32,
    /// Bytes of definition levels at its front, in pages of version 2.
    pub definition_bytes: u64,
    /// Bytes of repetition levels at its front, in pages of version 2.
    pub repetition_bytes: u64,
    /// Nulls, in pages of version 2.
    pub nulls: u64,
}

#[derive(Default)]
struct Inner {
    values: Option<u64>,
    rows: Option<u64>,
    nulls: u64,
    levels: [u64; 2],
    is_plain: bool,
    encodings: [i32; 3],
}

impl PageHeader {
    /// Reads one from the beginning of `bytes`.
    ///
    /// # Errors
    /// [`ThriftError::Ends`] if it is longer.
    pub fn read(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let (mut kind, mut expanded, mut stored, mut sum) = (None, None, None, None);
        let (mut data, mut dictionary, mut second, mut index) = (None, None, None, None);
        let mut last = 0;
        while let Some(field) = reader.field(&mut last)? {
            match field {
                (1, Wire::Int) => kind = Some(reader.number()?),
                (2, Wire::Int) => expanded = Some(size(reader)?),
                (3, Wire::Int) => stored = Some(size(reader)?),
                (4, Wire::Int) => sum = Some(reader.number_of_32_bits()?.cast_unsigned()),
                (5, Wire::Structure) => data = Some(inner(reader, PageKind::Data)?),
                (6, Wire::Structure) => {
                    reader.skip(Wire::Structure)?;
                    index = Some(Inner { values: Some(0), ..Inner::default() });
                }
                (7, Wire::Structure) => dictionary = Some(inner(reader, PageKind::Dictionary)?),
                (8, Wire::Structure) => second = Some(inner(reader, PageKind::DataV2)?),
                (_, wire) if wire.is_number() => reader.skip(wire)?,
                (1..=8, _) => return Err(ThriftError::Malformed("a field of another type")),
                (_, wire) => reader.skip(wire)?,
            }
        }
        let (kind, inner) = match kind {
            Some(0) => (PageKind::Data, data),
            Some(1) => (PageKind::Index, index),
            Some(2) => (PageKind::Dictionary, dictionary),
            Some(3) => (PageKind::DataV2, second),
            Some(_) => return Err(ThriftError::Malformed("a kind of page that does not exist")),
            None => return Err(ThriftError::Malformed("no kind of page")),
        };
        let inner = inner.ok_or(ThriftError::Malformed("nothing about its kind of page"))?;
        let (Some(expanded_bytes), Some(stored_bytes)) = (expanded, stored) else {
            return Err(ThriftError::Malformed("no size of the page"));
        };
        let values = inner.values.ok_or(ThriftError::Malformed("no number of values"))?;
        let [one, other] = inner.levels;
        let bare = one.checked_add(other).and_then(|bytes| usize::try_from(bytes).ok());
        let bare_bytes = bare
            .filter(|bytes| *bytes <= stored_bytes && *bytes <= expanded_bytes)
            .ok_or(ThriftError::Malformed("levels that are longer than the page"))?;
        if inner.nulls > values || inner.rows.is_some_and(|rows| rows > values) {
            return Err(ThriftError::Malformed("more rows or nulls than values"));
        }
        Ok(Self {
            bytes: reader.position(),
            kind,
            stored_bytes,
            expanded_bytes,
            sum,
            values,
            rows: inner.rows,
            bare_bytes,
            is_compressed: !inner.is_plain,
            values_in: inner.values_in(),
        })
    }

    /// What is behind it, in a chunk of this codec.
    #[must_use]
    pub fn content(&self, codec: Codec) -> Content {
        Content::Compressed {
            codec: if self.is_compressed { codec } else { Codec::Uncompressed },
            bare_bytes: self.bare_bytes,
            length: self.expanded_bytes.saturating_sub(self.bare_bytes),
        }
    }
}

impl Inner {
    fn values_in(&self) -> ValuesIn {
        let [encoding, definition_encoding, repetition_encoding] = self.encodings;
        let [definition_bytes, repetition_bytes] = self.levels;
        ValuesIn {
            encoding,
            definition_encoding,
            repetition_encoding,
            definition_bytes,
            repetition_bytes,
            nulls: self.nulls,
        }
    }
}

fn size(reader: &mut Reader<'_>) -> Read<usize> {
    let size = reader.number_of_32_bits()?;
    usize::try_from(size).map_err(|_| ThriftError::Malformed("a size that is less than nothing"))
}

/// The part of a header that is for one kind of page.
fn inner(reader: &mut Reader<'_>, kind: PageKind) -> Read<Inner> {
    let is_second = kind == PageKind::DataV2;
    let mut inner = Inner::default();
    // How many of the fields that each such header has, from the first one on.
    let mut needed = 0_i16;
    let all = match kind {
        PageKind::Dictionary => 2,
        PageKind::Data => 4,
        PageKind::DataV2 => 6,
        PageKind::Index => 0,
    };
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        // All that a page of its kind must have are numbers of 32 bits.
        let is_needed = (1..=all).contains(&field.0) && field.1 == Wire::Int;
        needed = needed.saturating_add(i16::from(is_needed));
        match field {
            (1, Wire::Int) => inner.values = Some(reader.size()?),
            (2, Wire::Int) if is_second => inner.nulls = reader.size()?,
            (3, Wire::Int) if is_second => inner.rows = Some(reader.size()?),
            (4, Wire::Int) if is_second => inner.encodings[0] = reader.number_of_32_bits()?,
            (2, Wire::Int) => inner.encodings[0] = reader.number_of_32_bits()?,
            (3, Wire::Int) => inner.encodings[1] = reader.number_of_32_bits()?,
            (4, Wire::Int) => inner.encodings[2] = reader.number_of_32_bits()?,
            (5, Wire::Int) if is_second => inner.levels[0] = reader.size()?,
            (6, Wire::Int) if is_second => inner.levels[1] = reader.size()?,
            (7, wire @ (Wire::True | Wire::False)) if is_second => {
                inner.is_plain = wire == Wire::False;
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    match needed == all {
        true => Ok(inner),
        false => Err(ThriftError::Malformed("not all that each such page has")),
    }
}

/// Where the data pages of a chunk are, with their headers: its offset index.
///
/// # Errors
/// [`ThriftError`]; so if there are bytes behind it.
pub fn read_offset_index(bytes: &[u8]) -> Read<Vec<Place>> {
    let mut reader = Reader::new(bytes);
    let mut places = None;
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::List) => {
                let count = reader.structures()?;
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(page_location(&mut reader)?);
                }
                places = Some(list);
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    match places {
        Some(places) if reader.position() == bytes.len() => Ok(places),
        _ => Err(ThriftError::Malformed("no pages, or bytes behind them")),
    }
}

fn page_location(reader: &mut Reader<'_>) -> Read<Place> {
    let mut place = Place::default();
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::Long) => place.begin = reader.size()?,
            (2, Wire::Int) => place.bytes = reader.size()?,
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(place)
}

/// For how many pages a column index has bounds.
///
/// # Errors
/// [`ThriftError`]; so if there are bytes behind it.
pub fn read_column_index(bytes: &[u8]) -> Read<u64> {
    let mut reader = Reader::new(bytes);
    let mut pages = None;
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        if let (1..=3, Wire::List) = field {
            let count = reader.clone().list()?.0;
            if pages.is_some_and(|pages| pages != count) {
                return Err(ThriftError::Malformed("lists of different lengths"));
            }
            pages = Some(count);
        }
        reader.skip(field.1)?;
    }
    match pages {
        Some(pages) if reader.position() == bytes.len() => Ok(pages),
        _ => Err(ThriftError::Malformed("no bounds, or bytes behind them")),
    }
}

/// How long a Bloom filter is with its header.
///
/// # Errors
/// [`ThriftError`].
pub fn read_bloom_filter(bytes: &[u8]) -> Read<u64> {
    let mut reader = Reader::new(bytes);
    let mut bits = None;
    let mut last = 0;
    while let Some(field) = reader.field(&mut last)? {
        match field {
            (1, Wire::Int) => bits = Some(reader.size()?),
            (2..=4, Wire::Structure) => reader.skip(Wire::Structure)?,
            _ => return Err(ThriftError::Malformed("a field that does not exist")),
        }
    }
    let bits = bits.ok_or(ThriftError::Malformed("no size"))?;
    let header = u64::try_from(reader.position()).unwrap_or(u64::MAX);
    header.checked_add(bits).ok_or(ThriftError::Malformed("a size beyond all files"))
}

//! The stream of `COPY ... (FORMAT binary)`, as PostgreSQL's manual describes it.
//!
//! | part | bytes |
//! |---|---|
//! | signature `PGCOPY\n\377\r\n\0` | 11 |
//! | flags | 4 |
//! | length of the header's extension, and as many bytes | 4 |
//! | per tuple: count of fields, -1 at the end | 2 |
//! | per field: length, -1 for NULL, and as many bytes | 4 |
//!
//! All numbers are big-endian. Pieces of the stream may end anywhere.

use super::wire;
use crate::error::{Error, Result};
use crate::row::Row;
use crate::table::{Column, Form};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEADER_BYTES: usize = SIGNATURE.len() + 8;

/// Finds where the stream's tuples begin and end.
#[derive(Debug)]
pub struct Frames {
    columns: usize,
    /// What has come and is not a whole tuple yet.
    waiting: Vec<u8>,
    begun: bool,
    ended: bool,
}

impl Frames {
    /// Those of tuples of `columns` columns.
    pub fn new(columns: usize) -> Self {
        Self { columns, waiting: Vec::new(), begun: false, ended: false }
    }

    /// Takes a piece, and gives the bytes of each tuple that it completes.
    ///
    /// # Errors
    /// The stream is not what it should be (`Unsupported`), or `see` gave the error.
    pub fn feed(&mut self, piece: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        // Nearly always a piece is a whole tuple, and nothing waits.
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            let used = self.take(piece, see)?;
            self.waiting.extend_from_slice(piece.get(used..).unwrap_or_default());
        } else {
            let mut joined = waiting;
            joined.extend_from_slice(piece);
            let used = self.take(&joined, see)?;
            joined.drain(..used);
            self.waiting = joined;
        }
        Ok(())
    }

    /// The stream is over.
    ///
    /// # Errors
    /// It was cut.
    pub fn end(&self) -> Result<()> {
        if self.ended { Ok(()) } else { Err(malformed("it ends in the middle")) }
    }

    /// Gives whole tuples, and tells how many bytes they are.
    fn take(&mut self, bytes: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        let mut used = 0;
        if !self.begun {
            let Some(header) = header_bytes(bytes)? else { return Ok(0) };
            used = header;
            self.begun = true;
        }
        while !self.ended {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some(length) = self.tuple_bytes(rest)? else { break };
            used += length;
            if !self.ended {
                see(rest.get(..length).unwrap_or_default())?;
            }
        }
        Ok(used)
    }

    /// The length of the tuple at the begin; none if it is not there as a whole.
    fn tuple_bytes(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some((count, mut rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.ended = true;
            return Ok(Some(2));
        }
        if usize::try_from(count) != Ok(self.columns) {
            return Err(malformed("a row has another number of columns"));
        }
        for _ in 0..self.columns {
            let Some((length, after)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            rest = match i32::from_be_bytes(*length) {
                -1 => after,
                length => {
                    let length =
                        usize::try_from(length).map_err(|_| malformed("a length is negative"))?;
                    let Some(after) = after.get(length..) else { return Ok(None) };
                    after
                }
            };
        }
        Ok(Some(bytes.len() - rest.len()))
    }
}

/// Writes the values of a whole tuple into a row.
///
/// # Errors
/// A value is not what its type says (`Unsupported`).
pub fn decode(row: &mut Row, columns: &[(&Column, &Form)], tuple: &[u8]) -> Result<()> {
    let cut = || malformed("a row is cut");
    let (_, mut rest) = tuple.split_first_chunk::<2>().ok_or_else(cut)?;
    row.clear();
    for (column, form) in columns {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        rest = after;
        // -1, and nothing else that is negative, comes this far.
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            row.null();
            continue;
        };
        let (value, after) = rest.split_at_checked(length).ok_or_else(cut)?;
        rest = after;
        wire::append(row, column, form, value)
            .ok_or_else(|| malformed(&format!("a value of column {}", column.name)))?;
    }
    Ok(())
}

fn header_bytes(bytes: &[u8]) -> Result<Option<usize>> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    if !header.starts_with(SIGNATURE) {
        return Err(malformed("it does not begin as one"));
    }
    let Some(extension) = header.last_chunk::<4>().map(|length| u32::from_be_bytes(*length)) else {
        return Ok(None);
    };
    let whole = usize::try_from(extension).ok().and_then(|length| length.checked_add(HEADER_BYTES));
    let whole = whole.ok_or_else(|| malformed("its header is too long"))?;
    Ok((bytes.len() >= whole).then_some(whole))
}

fn malformed(what: &str) -> Error {
    Error::Unsupported(format!("the stream of rows is malformed: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Tag;

    fn column(wire: &str, form: Form) -> Column {
        Column {
            name: "c".to_owned(),
            declared: wire.to_owned(),
            character_set: None,
            wire: wire.to_owned(),
            form,
            nullable: true,
            exact: false,
            filled: crate::table::Filled::Said,
        }
    }

    fn stream() -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 3, 9, 9, 9]);
        for value in [7_i32, -1] {
            bytes.extend_from_slice(&[0, 2, 0, 0, 0, 4]);
            bytes.extend_from_slice(&value.to_be_bytes());
            bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        }
        bytes.extend_from_slice(&[255, 255]);
        bytes
    }

    fn read(pieces: &[&[u8]]) -> Result<Vec<String>> {
        let (integer, text) = (column("int4", Form::Number), column("text", Form::Text));
        let columns = [(&integer, &Form::Number), (&text, &Form::Text)];
        let (mut frames, mut row) = (Frames::new(columns.len()), Row::new());
        let mut rows = Vec::new();
        for piece in pieces {
            frames.feed(piece, &mut |tuple| {
                decode(&mut row, &columns, tuple)?;
                assert_eq!(row.field(1).unwrap().tag, Tag::Null);
                rows.push(String::from_utf8(row.field(0).unwrap().payload.to_vec()).unwrap());
                Ok(())
            })?;
        }
        frames.end()?;
        Ok(rows)
    }

    #[test]
    fn stream_may_be_cut_anywhere() {
        let stream = stream();
        for cut in 0..=stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(read(&[one, other]).unwrap(), ["7", "-1"], "{cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(&bytes).unwrap(), ["7", "-1"]);
    }

    #[test]
    fn stream_that_ends_early_is_no_table() {
        let stream = stream();
        for end in 0..stream.len() {
            assert!(read(&[&stream[..end]]).is_err(), "{end}");
        }
    }

    #[test]
    fn flipped_byte_is_refused_or_a_value_and_never_a_row_more() {
        let mut refused = 0;
        for seed in 0..2000_u32 {
            let mut bytes = stream();
            let place = seed as usize % bytes.len();
            bytes[place] ^= u8::try_from(seed % 255).unwrap() + 1;
            match read(&[&bytes]) {
                // The header may have grown over a row.
                Ok(rows) => assert!(rows.len() <= 2, "{place}"),
                Err(_) => refused += 1,
            }
        }
        // But for four bytes of each value and the flags that may be ignored, all are framing.
        assert!(refused > 1000, "{refused}");
    }
}

//! The values of a row or of an index entry, by the columns of its relation.
//!
//! ```text
//! width -1, by the first byte
//!   xxxxxxx1   up to 127 bytes with this one, which says how many; not aligned
//!   00000001   in the TOAST table: then a tag, 18, and a pointer of 16 bytes
//!   xxxxxx00   aligned; a length of 4 bytes, in multiples of 4, with itself
//!   xxxxxx10   the same, compressed; behind it the length before, in its low 30 bits
//! width -2     up to a byte of zero
//! pointer      length (4) with 4 bytes of header, stored bytes (4, low 30 bits), value (4),
//!              TOAST table (4)
//! ```
//!
//! Sources: `src/include/varatt.h` (`postgres.h` up to 15), `src/include/access/tupmacs.h`.

use crate::files::catalogue::columns::Column;
use crate::files::control::u32_at;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// None.
    Null,
    /// Its bytes, without length.
    Plain(&'a [u8]),
    /// Compressed in place; its length before.
    Compressed(u32),
    /// Elsewhere.
    External(External),
}

/// A pointer to a value in a TOAST table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct External {
    /// Its length, uncompressed.
    pub(super) raw_bytes: u32,
    /// Bytes that are stored.
    pub(super) stored_bytes: u32,
    /// `chunk_id`.
    pub(super) value: u32,
    /// The oid of the TOAST table.
    pub(super) table: u32,
}

/// Tag of a pointer to a TOAST table (`VARTAG_ONDISK`).
const ON_DISK: u8 = 18;
const LENGTH_BITS: u32 = 0x3FFF_FFFF;

/// Reads values one after the other.
#[derive(Debug)]
pub(super) struct Values<'a> {
    data: &'a [u8],
    at: usize,
    is_padding_clear: bool,
}

impl<'a> Values<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, is_padding_clear: true }
    }

    /// From this byte on.
    pub(super) fn from(data: &'a [u8], at: usize) -> Self {
        Self { data, at, is_padding_clear: true }
    }

    /// The next value, of a column that is not null; `None` if it ends beyond the data or is
    /// none that a server writes.
    pub(super) fn next(&mut self, column: &Column) -> Option<Value<'a>> {
        match column.bytes {
            -1 => self.varying(column),
            -2 => {
                let rest = self.data.get(self.at..)?;
                let length = rest.iter().position(|byte| *byte == 0)?;
                self.at = self.at.checked_add(length)?.checked_add(1)?;
                Some(Value::Plain(rest.get(..length)?))
            }
            bytes => {
                self.align(column)?;
                let bytes = usize::try_from(bytes).ok()?;
                self.take(bytes).map(Value::Plain)
            }
        }
    }

    fn align(&mut self, column: &Column) -> Option<()> {
        // One less than a power of two.
        let low_bits: usize = match column.align {
            b'c' => 0,
            b's' => 1,
            b'i' => 3,
            b'd' => 7,
            _ => return None,
        };
        let begin = self.at;
        if begin & low_bits != 0 {
            self.at = (begin | low_bits).checked_add(1)?;
            let padding = self.data.get(begin..self.at)?;
            self.is_padding_clear &= padding.iter().all(|byte| *byte == 0);
        }
        Some(())
    }

    /// True if the bytes between the values, and those behind the last one, are zero: servers
    /// make entries of indexes from memory that is.
    pub(super) fn is_padding_clear(&self) -> bool {
        let rest = self.data.get(self.at..).unwrap_or_default();
        self.is_padding_clear && rest.iter().all(|byte| *byte == 0)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.data.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn varying(&mut self, column: &Column) -> Option<Value<'a>> {
        // Bytes of padding are zero, and no short length is.
        if *self.data.get(self.at)? == 0 {
            self.align(column)?;
        }
        let first = *self.data.get(self.at)?;
        if first == 1 {
            let [_, tag, pointer @ ..] = self.take(18)? else { return None };
            return (*tag == ON_DISK).then(|| External::read(pointer))?.map(Value::External);
        }
        if first & 1 == 1 {
            let all = self.take(usize::from(first >> 1))?;
            return all.get(1..).map(Value::Plain);
        }
        let header = u32_at(self.data, self.at)?;
        let all = self.take(usize::try_from(header >> 2).ok()?)?;
        match header & 3 {
            0 => all.get(4..).map(Value::Plain),
            _ => u32_at(all, 4).map(|length| Value::Compressed(length & LENGTH_BITS)),
        }
    }
}

impl External {
    fn read(pointer: &[u8]) -> Option<Self> {
        Some(Self {
            raw_bytes: u32_at(pointer, 0)?.checked_sub(4)?,
            stored_bytes: u32_at(pointer, 4)? & LENGTH_BITS,
            value: u32_at(pointer, 8)?,
            table: u32_at(pointer, 12)?,
        })
    }
}

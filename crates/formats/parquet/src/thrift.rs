//! Thrift's compact protocol, as far as Parquet uses it: a reader that takes nothing on trust.
//!
//! | | bytes |
//! |---|---|
//! | a field | one byte: 4 bits are added to the last field's number, 4 bits are the type; where the first are 0, the number follows |
//! | a number | in 7 bits a byte, the lowest first; signed ones are zigzag |
//! | bytes | their count, then they |
//! | a list | one byte: 4 bits are the count (15: it follows), 4 bits are the type of its elements |
//! | a structure | its fields, ended by a zero byte |
//!
//! Nothing is reserved on the word of a count: each element takes a byte at least, so that work and
//! memory are bounded by the bytes there are. Structures inside each other are followed
//! `DEPTH_MAX` deep.
//!
//! Source: `thrift-compact-protocol.md` of Apache Thrift.

#![deny(clippy::arithmetic_side_effects)]

use std::fmt;

/// Structures and lists inside each other. Parquet has six.
const DEPTH_MAX: u32 = 24;

/// Why it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThriftError {
    /// The bytes end before it does.
    Ends,
    /// No writer writes this.
    Malformed(&'static str),
}

impl fmt::Display for ThriftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ends => "it does not end where it must",
            Self::Malformed(what) => what,
        })
    }
}

/// What [`Reader`]'s methods return.
pub type Read<T> = Result<T, ThriftError>;

/// The type of a field or element, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// In a field: true. In a list: a byte that says it.
    True,
    /// In a field: false.
    False,
    /// A byte.
    Byte,
    /// A number of 16 bits. Readers pass over a number of another size than they expect.
    Short,
    /// A number of 32 bits.
    Int,
    /// A number of 64 bits.
    Long,
    /// Eight bytes.
    Double,
    /// Bytes with their count.
    Bytes,
    /// A list or a set.
    List,
    /// A map.
    Map,
    /// A structure.
    Structure,
    /// Sixteen bytes.
    Uuid,
}

impl Wire {
    /// True of a number of any size.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Short | Self::Int | Self::Long)
    }

    fn of(code: u8) -> Read<Self> {
        Ok(match code {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4 => Self::Short,
            5 => Self::Int,
            6 => Self::Long,
            7 => Self::Double,
            8 => Self::Bytes,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Structure,
            13 => Self::Uuid,
            _ => return Err(ThriftError::Malformed("a type that does not exist")),
        })
    }
}

/// Bytes that are read from front to back.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads these.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next field of a structure: its number and type; `None` at its end. `last` is the number
    /// of the field before, 0 at the beginning.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn field(&mut self, last: &mut i16) -> Read<Option<(i16, Wire)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        let wire = Wire::of(byte & 0x0F)?;
        let number = match i16::from(byte >> 4) {
            0 => i16::try_from(self.number()?).ok(),
            delta => last.checked_add(delta),
        };
        *last = number.ok_or(ThriftError::Malformed("a field number out of range"))?;
        Ok(Some((*last, wire)))
    }

    /// A number, of whichever size.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn number(&mut self) -> Read<i64> {
        let zigzag = self.count()?;
        let half = i64::try_from(zigzag >> 1).map_err(|_| ThriftError::Malformed("a number"))?;
        Ok(if zigzag & 1 == 0 { half } else { !half })
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn number_of_32_bits(&mut self) -> Read<i32> {
        let number = self.number()?;
        i32::try_from(number).map_err(|_| ThriftError::Malformed("a number of more than 32 bits"))
    }

    /// A number that must not be negative: an offset, a size, a count.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn size(&mut self) -> Read<u64> {
        u64::try_from(self.number()?)
            .map_err(|_| ThriftError::Malformed("a size that is less than nothing"))
    }

    /// Bytes with their count before them.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn bytes(&mut self) -> Read<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    /// The head of a list: how many elements follow, of which type. Each takes a byte at least.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn list(&mut self) -> Read<(u64, Wire)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.count()?,
            short => u64::from(short),
        };
        // Of an empty list, fastparquet writes no type.
        let wire = if count == 0 { Wire::Byte } else { Wire::of(byte & 0x0F)? };
        Ok((count, wire))
    }

    /// The head of a list of structures: how many follow.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn structures(&mut self) -> Read<u64> {
        match self.list()? {
            (count, Wire::Structure) | (count @ 0, _) => Ok(count),
            _ => Err(ThriftError::Malformed("a list of something else")),
        }
    }

    /// Passes over the content of a field.
    ///
    /// # Errors
    /// [`ThriftError`].
    pub fn skip(&mut self, wire: Wire) -> Read<()> {
        self.skip_field(wire, 0)
    }

    fn skip_field(&mut self, wire: Wire, depth: u32) -> Read<()> {
        match wire {
            Wire::True | Wire::False => Ok(()),
            other => self.skip_element(other, depth),
        }
    }

    /// As [`Self::skip_field`]; but truths take a byte in lists.
    fn skip_element(&mut self, wire: Wire, depth: u32) -> Read<()> {
        if depth > DEPTH_MAX {
            return Err(ThriftError::Malformed("structures too deep inside each other"));
        }
        let deeper = depth.saturating_add(1);
        match wire {
            Wire::True | Wire::False | Wire::Byte => self.take(1).map(drop),
            Wire::Short | Wire::Int | Wire::Long => self.count().map(drop),
            Wire::Double => self.take(8).map(drop),
            Wire::Uuid => self.take(16).map(drop),
            Wire::Bytes => self.bytes().map(drop),
            Wire::List => {
                let (count, wire) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(wire, deeper))
            }
            Wire::Map => {
                let count = self.count()?;
                if count == 0 {
                    return Ok(());
                }
                let wires = self.byte()?;
                let (key, value) = (Wire::of(wires >> 4)?, Wire::of(wires & 0x0F)?);
                (0..count).try_for_each(|_| {
                    self.skip_element(key, deeper)?;
                    self.skip_element(value, deeper)
                })
            }
            Wire::Structure => {
                let mut last = 0;
                while let Some((_, wire)) = self.field(&mut last)? {
                    self.skip_field(wire, deeper)?;
                }
                Ok(())
            }
        }
    }

    fn byte(&mut self) -> Read<u8> {
        let byte = *self.bytes.get(self.at).ok_or(ThriftError::Ends)?;
        self.at = self.at.saturating_add(1);
        Ok(byte)
    }

    /// A number without a sign.
    fn count(&mut self) -> Read<u64> {
        let mut count = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte has room for one bit.
            if bits.leading_zeros() < shift {
                break;
            }
            count |= bits.unbounded_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(count);
            }
        }
        Err(ThriftError::Malformed("a number of more than 64 bits"))
    }

    fn take(&mut self, count: u64) -> Read<&'a [u8]> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let bytes = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(ThriftError::Ends)?;
        self.at = self.at.saturating_add(bytes.len());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_thrift_writes() {
        for (bytes, number) in [
            (&[0_u8][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0xAC, 0x02], 150),
            (&[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], i64::MAX),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], i64::MIN),
        ] {
            assert_eq!(Reader::new(bytes).number(), Ok(number), "{bytes:?}");
        }
        assert_eq!(Reader::new(&[0xFF; 3]).number(), Err(ThriftError::Ends));
        assert!(matches!(Reader::new(&[0xFF; 11]).number(), Err(ThriftError::Malformed(_))));
    }

    #[test]
    fn fields_are_counted_from_the_one_before() {
        // Field 2, a number; field 40 by its own number, a truth; the end.
        let mut reader = Reader::new(&[0x26, 8, 0x01, 80, 0]);
        let mut last = 0;
        assert_eq!(reader.field(&mut last), Ok(Some((2, Wire::Long))));
        assert_eq!(reader.number(), Ok(4));
        assert_eq!(reader.field(&mut last), Ok(Some((40, Wire::True))));
        assert_eq!(reader.field(&mut last), Ok(None));
        assert_eq!(reader.position(), 5);
    }

    /// Counts that nothing stands behind, and structures without an end.
    #[test]
    fn hostile_bytes_end_in_an_error() {
        let huge = [0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(Reader::new(&huge).skip(Wire::List), Err(ThriftError::Ends));
        assert_eq!(Reader::new(&huge).skip(Wire::Bytes), Err(ThriftError::Ends));
        let deep = Reader::new(&[0x1C; 5000]).skip(Wire::Structure);
        assert!(matches!(deep, Err(ThriftError::Malformed(_))), "{deep:?}");
        let lists = Reader::new(&[0x19; 5000]).skip(Wire::List);
        assert!(matches!(lists, Err(ThriftError::Malformed(_))), "{lists:?}");
    }
}

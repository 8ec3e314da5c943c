//! Rows of a catalogue, or of any other table, as they lie on a heap page.
//!
//! ```text
//! offset  size  field
//!      0     4  t_xmin        the transaction that made this version
//!      4     4  t_xmax        the transaction, or multixact, that locked or removed it
//!      8     4  t_cid, or t_xvac of VACUUM FULL before 9.0
//!     12     6  t_ctid
//!     18     2  t_infomask2   attributes in the low 11 bits
//!     20     2  t_infomask    see `visibility`; 0x0001 has nulls, 0x0008 has an oid (up to 11)
//!     22     1  t_hoff        where the attributes begin, a multiple of 8 (of 4 on 32-bit machines)
//!     23     n  t_bits        a bit an attribute, 1 for one that is there; if it has nulls
//! t_hoff-4   4  oid           up to 11, if it has one
//! t_hoff        attributes
//! ```
//!
//! Source: `src/include/access/htup_details.h` of 9.6 to 18; the oid is in the
//! header up to 11 and an attribute from 12 on.
//!
//! What we want of a catalogue stands in its first attributes, which are of fixed
//! width and never null: their offsets are constants (see `rows`). A row that has
//! fewer attributes, or a null among them, is none that a server writes.

use crate::files::control::u32_at;
use crate::files::witness::heap::{LinePointer, line_pointers};

const XMIN: usize = 0;
const XMAX: usize = XMIN + 4;
const COUNTS: usize = 18;
const FLAGS: usize = COUNTS + 2;
const DATA_BEGIN: usize = FLAGS + 2;
const NULLS: usize = DATA_BEGIN + 1;
const _: () = assert!(NULLS == 23);

/// `HEAP_HASNULL`.
const HAS_NULLS: u16 = 0x0001;
/// `HEAP_HASOID`, up to 11.
const HAS_OID: u16 = 0x0008;
/// `HEAP_NATTS_MASK`.
const ATTRIBUTES: u16 = 0x07FF;

/// A version of a row, whether it counts or not.
#[derive(Debug, Clone, Copy)]
pub struct Tuple<'a> {
    /// The transaction that made it.
    pub xmin: u32,
    /// The transaction or multixact that locked, replaced or removed it; 0 for
    /// none.
    pub xmax: u32,
    /// `t_infomask`.
    pub flags: u16,
    attributes: u16,
    nulls: Option<&'a [u8]>,
    header_oid: Option<u32>,
    data: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// Reads the bytes that a line pointer leads to; `None` if they are too few.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let flags = u16_at(FLAGS)?;
        let attributes = u16_at(COUNTS)? & ATTRIBUTES;
        let data_begin = usize::from(*bytes.get(DATA_BEGIN)?);
        if data_begin < NULLS {
            return None;
        }
        let header = bytes.get(..data_begin)?;
        let nulls = match flags & HAS_NULLS {
            0 => None,
            _ => Some(header.get(NULLS..)?.get(..usize::from(attributes).div_ceil(8))?),
        };
        let header_oid = match flags & HAS_OID {
            0 => None,
            _ => u32_at(header, data_begin.checked_sub(4)?),
        };
        Some(Self {
            xmin: u32_at(bytes, XMIN)?,
            xmax: u32_at(bytes, XMAX)?,
            flags,
            attributes,
            nulls,
            header_oid,
            data: bytes.get(data_begin..)?,
        })
    }

    /// The oid in the header: of rows that have one, up to 11.
    #[must_use]
    pub fn header_oid(&self) -> Option<u32> {
        self.header_oid
    }

    /// How many attributes it has. Of those that the table got later it has none.
    #[must_use]
    pub fn attributes(&self) -> u16 {
        self.attributes
    }

    /// True if an attribute, counted from 0, is null.
    #[must_use]
    pub fn is_null(&self, index: u16) -> bool {
        self.nulls.is_some_and(|nulls| {
            let byte = nulls.get(usize::from(index / 8)).copied().unwrap_or(0);
            byte >> (index % 8) & 1 == 0
        })
    }

    /// The bytes of the attributes that are not null, each aligned as its type says.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of the attributes, if the first `count` of them are there and
    /// none is null.
    #[must_use]
    pub fn fixed(&self, count: u16) -> Option<&'a [u8]> {
        let are_there = count <= self.attributes && !(0..count).any(|index| self.is_null(index));
        are_there.then_some(self.data)
    }
}

/// Every version of a row that a line pointer of the page leads to.
pub fn tuples(page: &[u8]) -> impl Iterator<Item = Tuple<'_>> {
    line_pointers(page).filter_map(|pointer| match pointer {
        LinePointer::Normal { offset, length } => {
            let bytes = page.get(usize::from(offset)..)?.get(..usize::from(length))?;
            Tuple::parse(bytes)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tuple(attributes: u16, flags: u16, nulls: &[u8], data: &[u8]) -> Vec<u8> {
        let begin = if nulls.is_empty() { 24 } else { 32 };
        let mut bytes = vec![0_u8; begin];
        bytes[..4].copy_from_slice(&700_u32.to_le_bytes());
        bytes[4..8].copy_from_slice(&701_u32.to_le_bytes());
        bytes[18..20].copy_from_slice(&attributes.to_le_bytes());
        bytes[20..22].copy_from_slice(&flags.to_le_bytes());
        bytes[22] = u8::try_from(begin).unwrap();
        bytes[23..23 + nulls.len()].copy_from_slice(nulls);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn attributes_that_are_null_or_missing_are_not_read() {
        let plain = tuple(3, 0, &[], b"data");
        let plain = Tuple::parse(&plain).unwrap();
        assert_eq!((plain.xmin, plain.xmax), (700, 701));
        assert_eq!(plain.fixed(3), Some(&b"data"[..]));
        assert_eq!(plain.fixed(4), None);
        let nulls = tuple(12, HAS_NULLS, &[0b1111_1111, 0b0000_1101], b"data");
        let nulls = Tuple::parse(&nulls).unwrap();
        assert_eq!(nulls.fixed(9), Some(&b"data"[..]));
        assert_eq!(nulls.fixed(10), None);
    }

    #[test]
    fn oid_stands_before_the_attributes() {
        let mut bytes = tuple(3, HAS_OID | HAS_NULLS, &[7], b"data");
        bytes[28..32].copy_from_slice(&1259_u32.to_le_bytes());
        assert_eq!(Tuple::parse(&bytes).unwrap().header_oid(), Some(1259));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(tuple) = Tuple::parse(&bytes) {
                for count in 0..20 {
                    prop_assert!(tuple.fixed(count).is_none_or(|data| data.len() < bytes.len()));
                }
            }
            let _ = tuples(&bytes).count();
        }
    }
}

//! Values of any length, as they lie in a tuple of a little-endian server.
//!
//! | first bytes | value |
//! |---|---|
//! | 1 byte, its low bit set, not 0x01 | as it is; the byte's upper 7 bits are the length, the byte with it |
//! | 0x01, 0x12 | elsewhere (TOAST); 16 bytes follow that say where |
//! | 4 bytes, the low two bits 00 | as it is; the upper 30 bits are the length, these bytes with it |
//! | 4 bytes, the low two bits 10 | compressed; 4 more: length of the value in the low 30 bits, method (0 pglz, 1 lz4) in the upper two |
//!
//! Source: `src/include/varatt.h` (`postgres.h` before 16), `toast_compression.h` and
//! `pg_lzcompress.c`.

use std::ops::Range;

/// A value that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is these bytes of the tuple's data.
    Plain(Range<usize>),
    /// These bytes must be expanded to as many.
    Compressed { bytes: Range<usize>, expanded: usize, method: Method },
    /// Only the server has it.
    Elsewhere,
}

/// How a value was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// PostgreSQL's own.
    Pglz,
    /// A block of LZ4.
    Lz4,
}

/// `VARTAG_ONDISK`, the only kind of pointer that lies on pages.
const TAG_ON_DISK: u8 = 18;
const TOAST_POINTER_BYTES: usize = 18;
/// How much longer a value is than its compressed bytes at most: a byte and a bit of LZ4 stand
/// for no more than 255.
const RATIO_MAX: usize = 256;

/// The value that begins at a place, and where it ends; none if there is none.
pub fn find(data: &[u8], at: usize) -> Option<(Found, usize)> {
    let first = *data.get(at)?;
    if first == 1 {
        let tag = *data.get(at.checked_add(1)?)?;
        let end = at.checked_add(TOAST_POINTER_BYTES)?;
        return (tag == TAG_ON_DISK).then_some((Found::Elsewhere, end));
    }
    if first & 1 == 1 {
        let end = at.checked_add(usize::from(first >> 1))?;
        let bytes = at.checked_add(1)?..end;
        data.get(bytes.clone())?;
        return Some((Found::Plain(bytes), end));
    }
    let word = |at: usize| Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?));
    let header = word(at)?;
    let end = at.checked_add(usize::try_from(header >> 2).ok()?)?;
    let begin = at.checked_add(4)?;
    if header & 3 == 0 {
        data.get(begin..end)?;
        return Some((Found::Plain(begin..end), end));
    }
    let info = word(begin)?;
    let bytes = begin.checked_add(4)?..end;
    let length = data.get(bytes.clone())?.len();
    let expanded = usize::try_from(info & 0x3FFF_FFFF).ok()?;
    let method = match info >> 30 {
        0 => Method::Pglz,
        1 => Method::Lz4,
        _ => return Some((Found::Elsewhere, end)),
    };
    if expanded > length.checked_mul(RATIO_MAX)? {
        return None;
    }
    Some((Found::Compressed { bytes, expanded, method }, end))
}

/// Appends what was compressed; none if it does not come to as many bytes.
pub fn expand(bytes: &[u8], expanded: usize, method: Method, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    match method {
        Method::Pglz => pglz(bytes, expanded, out)?,
        Method::Lz4 => {
            out.resize(begin.checked_add(expanded)?, 0);
            let length = lz4_flex::block::decompress_into(bytes, out.get_mut(begin..)?).ok()?;
            out.truncate(begin.checked_add(length)?);
        }
    }
    (out.len() - begin == expanded).then_some(())
}

/// A control byte tells of the eight items that follow, from its low bit on: 0 is a byte, 1 a
/// match of two bytes (three if it is long) with what came before.
fn pglz(bytes: &[u8], expanded: usize, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    let end = begin.checked_add(expanded)?;
    let mut bytes = bytes.iter().copied();
    'items: while out.len() < end {
        let control = bytes.next()?;
        for bit in 0..8 {
            if out.len() == end {
                break 'items;
            }
            if control >> bit & 1 == 0 {
                out.push(bytes.next()?);
                continue;
            }
            let (high, low) = (bytes.next()?, bytes.next()?);
            let mut length = usize::from(high & 0x0F) + 3;
            if length == 18 {
                length += usize::from(bytes.next()?);
            }
            let back = usize::from(high & 0xF0) << 4 | usize::from(low);
            let from = out.len().checked_sub(back).filter(|from| back > 0 && *from >= begin)?;
            // It may reach into itself.
            for place in from..from.checked_add(length.min(end - out.len()))? {
                out.push(*out.get(place)?);
            }
        }
    }
    bytes.next().is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_tell_where_a_value_is() {
        assert_eq!(find(&[11, 1, 2, 3], 0), None);
        assert_eq!(find(&[9, 1, 2, 3], 0), Some((Found::Plain(1..4), 4)));
        assert_eq!(find(&[0, 20, 0, 0, 0, 7], 1), Some((Found::Plain(5..6), 6)));
        assert_eq!(find(&[7, 1, 18, 0], 1), Some((Found::Elsewhere, 19)));
        assert_eq!(find(&[1, 17, 0], 0), None);
        assert_eq!(find(&[12, 0, 0, 0], 0), None);
        assert_eq!(find(&[3], 0), Some((Found::Plain(1..1), 1)));
        // A length that does not even cover its own header.
        assert_eq!(find(&[8, 0, 0, 0], 0), None);
        assert_eq!(find(&[], 0), None);
    }

    #[test]
    fn matches_may_reach_into_themselves() {
        let mut out = b"before".to_vec();
        // "ab", then five bytes from two back.
        assert_eq!(expand(&[0b100, b'a', b'b', 0x02, 0x02], 7, Method::Pglz, &mut out), Some(()));
        assert_eq!(out, b"beforeabababa");
        // From before the value; from nowhere; too short; too long.
        for bytes in [&[0b10, b'a', 0x00, 0x02][..], &[0b10, b'a', 0, 0], &[0, b'a'], &[0; 10]] {
            let mut out = b"before".to_vec();
            assert_eq!(expand(bytes, 4, Method::Pglz, &mut out), None, "{bytes:?}");
        }
    }
}

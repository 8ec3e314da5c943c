//! Images of whole pages in the log, made pages again.
//!
//! An image leaves out the hole between the line pointers and the tuples, and may be compressed:
//! by pglz, LZ4 (one block) or Zstandard. Replay puts zeros where the hole was, and the position
//! behind the record into the page's header; its checksum is set when it is written.
//!
//! pglz: a control byte announces eight items, the lowest bit first. Bit 0: a byte as it is. Bit 1:
//! a copy from what was written before, two bytes `oooollll oooooooo`: length - 3 in the low four bits
//! (15: a third byte adds to it), offset in the other twelve.
//!
//! Sources: `RestoreBlockImage` in `src/backend/access/transam/xlogreader.c`,
//! `src/common/pg_lzcompress.c`.

use crate::files::wal::block::{Image, Method};

/// The page of an image whose record ends at `lsn`; its checksum is not set. `None`: these bytes are
/// no image of a page of that size.
#[must_use]
pub fn restore(image: &Image, bytes: &[u8], page_size: usize, lsn: u64) -> Option<Vec<u8>> {
    let hole_length = match image.hole_length {
        Some(length) => usize::from(length),
        None => page_size.checked_sub(bytes.len())?,
    };
    let hole_offset = usize::from(image.hole_offset);
    let content_bytes = page_size.checked_sub(hole_length)?;
    let content = match image.method {
        Method::Plain => bytes.to_vec(),
        Method::Pglz => pglz(bytes, content_bytes)?,
        Method::Lz4 => lz4_flex::block::decompress(bytes, content_bytes).ok()?,
        Method::Zstd => zstd::bulk::decompress(bytes, content_bytes).ok()?,
    };
    if content.len() != content_bytes {
        return None;
    }
    let mut page = Vec::with_capacity(page_size);
    page.extend_from_slice(content.get(..hole_offset)?);
    page.resize(page.len().checked_add(hole_length)?, 0);
    page.extend_from_slice(content.get(hole_offset..)?);
    let high = u32::try_from(lsn >> 32).ok()?.to_le_bytes();
    let low = u32::try_from(lsn & 0xFFFF_FFFF).ok()?.to_le_bytes();
    page.get_mut(..4)?.copy_from_slice(&high);
    page.get_mut(4..8)?.copy_from_slice(&low);
    (page.len() == page_size).then_some(page)
}

/// What pglz made of `length` bytes; `None` if it is not that.
fn pglz(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    const LONG: usize = 18;
    let mut out: Vec<u8> = Vec::with_capacity(length);
    let mut source = bytes.iter().copied();
    while let Some(control) = source.next() {
        for bit in 0..8 {
            if out.len() >= length {
                break;
            }
            if control >> bit & 1 == 0 {
                // The last control byte may announce more than there is.
                let Some(byte) = source.next() else { break };
                out.push(byte);
                continue;
            }
            let Some(first) = source.next() else { break };
            let second = source.next()?;
            let offset = usize::from(first & 0xF0) << 4 | usize::from(second);
            let mut count = usize::from(first & 0x0F).checked_add(3)?;
            if count == LONG {
                count = count.checked_add(usize::from(source.next()?))?;
            }
            let begin = out.len().checked_sub(offset).filter(|_| offset > 0)?;
            for at in begin..begin.checked_add(count)? {
                if out.len() < length {
                    out.push(*out.get(at)?);
                }
            }
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(hole: Option<u16>) -> Image {
        Image { length: 8, hole_offset: 3, hole_length: hole, method: Method::Plain }
    }

    #[test]
    fn hole_is_put_back_as_zeros_and_the_position_into_the_header() {
        let bytes: Vec<u8> = (1..=24).collect();
        let image = Image { hole_offset: 10, ..plain(None) };
        let page = restore(&image, &bytes, 32, 0x1_0000_0002).unwrap();
        assert_eq!(page[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(page[8..10], [9, 10]);
        assert_eq!(page[10..18], [0; 8]);
        assert_eq!(page[18..], bytes[10..]);
        // Longer than a page, shorter without a hole, a hole beyond the content.
        assert!(restore(&image, &bytes, 16, 1).is_none());
        assert!(restore(&plain(Some(0)), &bytes, 32, 1).is_none());
        assert!(restore(&Image { hole_offset: 25, ..image }, &bytes, 32, 1).is_none());
    }

    #[test]
    fn pglz_copies_from_what_it_wrote() {
        // "ab", then 18 + 2 bytes from two bytes back, then "c".
        let bytes = [0b0000_0100, b'a', b'b', 0x0F, 2, 2, b'c'];
        let expected = [b"ab".repeat(11), b"c".to_vec()].concat();
        assert_eq!(pglz(&bytes, 23), Some(expected));
        assert_eq!(pglz(&bytes, 24), None);
        // A copy from before the begin, and from nowhere.
        assert_eq!(pglz(&[1, 0, 1], 3), None);
        assert_eq!(pglz(&[2, b'a', 0, 0], 4), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_page_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            hole_offset: u16,
            hole_length: Option<u16>,
            method in prop::sample::select(vec![Method::Plain, Method::Pglz, Method::Lz4, Method::Zstd]),
            lsn: u64,
        ) {
            let image = Image { length: 0, hole_offset, hole_length, method };
            if let Some(page) = restore(&image, &bytes, 512, lsn) {
                prop_assert_eq!(page.len(), 512);
            }
        }
    }
}

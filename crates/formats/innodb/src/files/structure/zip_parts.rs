//! Long values of compressed tables of MySQL 8.0 and later: a list of parts, each one zlib stream.
//!
//! | page | its type | what |
//! |---|---|---|
//! | first | 25 | at 40 the version of the value, at 54 the bytes of a stream here, at 88 the list of parts, from 136 on entries, then entries of pages of fragments, then the bytes |
//! | data | 26 | at 39 its bytes of a stream, from 49 on |
//! | index | 27 | more entries |
//! | fragments | 28 | ends of streams, of several parts |
//! | fragment entries | 29 | entries of pages of fragments |
//!
//! A stream goes on at the page that a first or data page names at 12, until all of its bytes are there; the last of
//! them may be a fragment, whose place is in a list at the end of its page, before the trailer: how many there are, then two
//! bytes each. A fragment has a header of 8 bytes: neighbours, length with the header, number. An entry has 66 bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 6 each | page and offset of the entry before, and of the one behind |
//! | 12 | 16 | older versions of it |
//! | 48 | 4 | the first page of its stream |
//! | 52 | 2 | the number of its fragment, where it has one |
//! | 54 | 4 | its bytes |
//! | 58 | 4 | bytes of its stream |
//! | 62 | 4 | its version |
//!
//! Sources: `zlob0first.h`, `zlob0index.h`, `lob0impl.h` of MySQL 8.0, and tables of MySQL 9.7.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashSet;

use crate::files::structure::long::{List, Unpacking, Walk, Wrong};
use crate::files::structure::{Long, What};
use crate::page::fields::{PAGE_TYPE, read_u16, read_u32};

pub(super) const TYPE_FIRST: u16 = 25;
const TYPE_DATA: u16 = 26;
const TYPE_INDEX: u16 = 27;
const TYPE_FRAGMENTS: u16 = 28;

const NEXT_PAGE: usize = 12;
const ENTRY_BYTES: usize = 66;
/// Of a first page, by the size of the page.
const DATA_OF_FIRST: [(usize, usize); 5] =
    [(16384, 11536), (8192, 7816), (4096, 3736), (2048, 1936), (1024, 586)];
const DATA_OF_OTHERS: usize = 49;
const TRAILER: usize = 8;

/// An entry of the list of parts.
#[derive(Debug, Clone, Copy)]
struct Part {
    page: u32,
    fragment: u16,
    bytes: u32,
    stream_bytes: u32,
}

/// Pages and fragments that this value has.
#[derive(Debug, Default)]
struct Own {
    pages_of_fragments: HashSet<u32>,
    fragments: HashSet<(u32, u16)>,
}

impl Walk<'_> {
    pub(super) fn follow_zip_parts(&mut self, long: &Long) -> Result<(), Wrong> {
        const LIST: List = List { at: 88, first: TYPE_FIRST, index: TYPE_INDEX };
        let mut own = Own::default();
        self.follow_list::<ENTRY_BYTES>(long, LIST, |walk, entry| {
            let part = Part {
                page: read_u32(entry, 48),
                fragment: read_u16(entry, 52),
                bytes: read_u32(entry, 54),
                stream_bytes: read_u32(entry, 58),
            };
            let is_seen = walk.test_zip_part(long.page, part, &mut own)?;
            Ok(is_seen.then_some(u64::from(part.bytes)))
        })
    }

    /// False where a page of it was not seen, so that the value is not tested further.
    fn test_zip_part(&mut self, first: u32, part: Part, own: &mut Own) -> Result<bool, Wrong> {
        let mut unpacking = Unpacking::of(u64::from(part.bytes));
        let mut rest = usize::try_from(part.stream_bytes).unwrap_or(usize::MAX);
        let (mut at, mut before, mut is_ended) = (part.page, first, part.bytes == 0);
        while rest > 0 {
            let no_part = |at: u32| {
                (before, format!("a part of its value is page {at}, which has none of it"))
            };
            let kind = match self.gathered.fact(at).what {
                What::Unknown => return Ok(false),
                What::Type(kind) => kind,
                What::Free => return Err(no_part(at)),
            };
            let is_fragment = kind == TYPE_FRAGMENTS;
            match kind {
                TYPE_FIRST if at == first => {}
                TYPE_DATA => self.take(at)?,
                TYPE_FRAGMENTS => {
                    if own.pages_of_fragments.insert(at) {
                        self.take(at)?;
                    }
                    if !own.fragments.insert((at, part.fragment)) {
                        let number = part.fragment;
                        return Err((at, format!("two parts of a value have fragment {number}")));
                    }
                }
                _ => return Err(no_part(at)),
            }
            let Some(page) = self.page(at).map(<[u8]>::to_vec) else { return Ok(false) };
            if !matches!(kind, TYPE_FIRST) {
                self.read.remove(&at);
            }
            if read_u16(&page, PAGE_TYPE) != kind {
                return Ok(false);
            }
            let piece = if is_fragment {
                fragment(&page, part.fragment).ok_or_else(|| {
                    (at, format!("it has no fragment {}, which a value leads to", part.fragment))
                })?
            } else {
                bytes_of(&page, kind == TYPE_FIRST)
                    .ok_or_else(|| (at, "its bytes of a value reach behind its end".to_owned()))?
            };
            if piece.len() > rest || piece.is_empty() || is_fragment && piece.len() != rest {
                let has = piece.len();
                let words =
                    format!("it has {has} bytes of a part of a value, of which {rest} are left");
                return Err((at, words));
            }
            is_ended |= unpacking.take(piece).map_err(|words| (at, words))?;
            rest = rest.saturating_sub(piece.len());
            (before, at) = (at, read_u32(&page, NEXT_PAGE));
        }
        if !is_ended {
            return Err((before, "the stream of a part of its value does not end".to_owned()));
        }
        Ok(true)
    }
}

/// The bytes of a stream on a first or a data page.
fn bytes_of(page: &[u8], is_first: bool) -> Option<&[u8]> {
    const BYTES_OF_FIRST: usize = 54;
    const BYTES_OF_OTHERS: usize = 39;
    let (at, begin) = if is_first {
        (BYTES_OF_FIRST, DATA_OF_FIRST.iter().find(|(bytes, _)| *bytes == page.len())?.1)
    } else {
        (BYTES_OF_OTHERS, DATA_OF_OTHERS)
    };
    let end = begin.checked_add(usize::try_from(read_u32(page, at)).ok()?)?;
    page.get(..page.len().checked_sub(TRAILER)?)?.get(begin..end)
}

/// A fragment, without its header.
fn fragment(page: &[u8], number: u16) -> Option<&[u8]> {
    const COUNT_FROM_END: usize = 10;
    const HEADER: usize = 8;
    const LENGTH: usize = 4;
    const NUMBER: usize = 6;
    let count_at = page.len().checked_sub(COUNT_FROM_END)?;
    let slot = usize::from(number).checked_add(1)?.checked_mul(2)?;
    let slot_at = count_at.checked_sub(slot)?;
    if number >= read_u16(page, count_at) {
        return None;
    }
    let begin = usize::from(read_u16(page, slot_at));
    let header = page.get(begin..)?.first_chunk::<HEADER>()?;
    if begin == 0 || read_u16(header, NUMBER) != number {
        return None;
    }
    let end = begin.checked_add(usize::from(read_u16(header, LENGTH)))?;
    page.get(..slot_at)?.get(begin.checked_add(HEADER)?..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(page: &mut [u8], at: usize, number: u16) {
        page[at..][..2].copy_from_slice(&number.to_be_bytes());
    }

    #[test]
    fn bytes_of_a_first_page_begin_behind_its_entries() {
        let mut page = vec![0; 4096];
        put(&mut page, 56, 5);
        page[3736..3741].copy_from_slice(b"abcde");
        assert_eq!(bytes_of(&page, true), Some(&b"abcde"[..]));
        put(&mut page, 56, 4096 - 8 - 3736 + 1);
        assert_eq!(bytes_of(&page, true), None);
        let mut page = vec![0; 1024];
        put(&mut page, 41, 3);
        page[49..52].copy_from_slice(b"xyz");
        assert_eq!(bytes_of(&page, false), Some(&b"xyz"[..]));
        page[39] = 0xFF;
        assert_eq!(bytes_of(&page, false), None);
        assert_eq!(bytes_of(&[0; 4000], true), None);
    }

    #[test]
    fn fragment_is_found_by_its_number() {
        let mut page = vec![0; 1024];
        put(&mut page, 1024 - 10, 2);
        put(&mut page, 1024 - 14, 100);
        put(&mut page, 104, 8 + 3);
        put(&mut page, 106, 1);
        page[108..111].copy_from_slice(b"end");
        assert_eq!(fragment(&page, 1), Some(&b"end"[..]));
        // Of no place, behind the last, and of another number.
        assert_eq!(fragment(&page, 0), None);
        assert_eq!(fragment(&page, 2), None);
        put(&mut page, 106, 0);
        assert_eq!(fragment(&page, 1), None);
        // Behind the list, and lengths that reach there.
        put(&mut page, 106, 1);
        put(&mut page, 104, 1000);
        assert_eq!(fragment(&page, 1), None);
        put(&mut page, 104, 7);
        assert_eq!(fragment(&page, 1), None);
    }
}

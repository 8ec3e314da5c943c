//! Which kind of relation a page was made for, by its special space.
//!
//! | relation | bytes of special space | marker |
//! | --- | --- | --- |
//! | heap, free space map, visibility map | 0 | |
//! | btree | 16 | last two bytes, a cycle of VACUUM: at most 0xFF7F |
//! | hash | 16 | last two bytes 0xFF80 |
//! | GiST | 16 | last two bytes 0xFF81 |
//! | SP-GiST | 8 | last two bytes 0xFF82 |
//! | GIN | 8 | last two bytes, its flags: at most 0xFF |
//! | BRIN | 8 | last two bytes 0xF091 to 0xF093 |
//! | sequence | 8 | first four bytes 0x1717 |
//!
//! Metapages of three methods begin with a magic number, behind the header of the page: hash 0x06440640,
//! SP-GiST 0xBA0BABEE, BRIN 0xA8109CFA. A server refuses an index with another one. (That of a btree is
//! tested with the rest of its metapage.)
//!
//! The server writes the special space when it makes a page, and it stays as long as the
//! page does. The markers were chosen to tell the methods apart.
//!
//! Sources: `MAX_BT_CYCLE_ID` in `src/include/access/nbtree.h`, `HASHO_PAGE_ID`,
//! `GIST_PAGE_ID`, `SPGIST_PAGE_ID`, `BRIN_PAGETYPE_META`, `SEQ_MAGIC`, `HASH_MAGIC`,
//! `SPGIST_MAGIC_NUMBER`, `BRIN_META_MAGIC`, 9.6 to 18.

use crate::files::control::u32_at;
use crate::files::witness::Method;
use crate::files::witness::tid::{special, u16_at};
use crate::page::HEADER_BYTES;

/// What a page was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeFor {
    /// A table.
    Heap,
    /// A free space map or a visibility map: like tables, without special space.
    Map,
    /// A sequence.
    Sequence,
    /// An index of this method.
    Index(Method),
}

const SHORT: usize = 8;
const LONG: usize = 16;
/// `MAX_BT_CYCLE_ID`.
const BTREE_CYCLE_MAX: u16 = 0xFF7F;
const HASH_PAGE: u16 = 0xFF80;
const GIST_PAGE: u16 = 0xFF81;
const SPGIST_PAGE: u16 = 0xFF82;
const BRIN_PAGES: std::ops::RangeInclusive<u16> = 0xF091..=0xF093;
/// More than all flags of GIN together.
const GIN_FLAGS_MAX: u16 = 0xFF;
const SEQUENCE_MAGIC: [u8; 4] = 0x1717_u32.to_le_bytes();

impl MadeFor {
    /// True if a page may be one of such a relation. A page of a hash index that was made and not
    /// filled has nothing but zeros there; those of btrees never do: a leaf has a flag, others a level.
    #[must_use]
    pub fn fits(self, page: &[u8]) -> bool {
        let (short, long) = (special::<SHORT>(page), special::<LONG>(page));
        let short_marker = short.map(|special| u16_at(special, SHORT - 2));
        let long_marker = long.map(|special| u16_at(special, LONG - 2));
        match self {
            Self::Heap | Self::Map => special::<0>(page).is_some(),
            Self::Sequence => short.is_some_and(|special| special.starts_with(&SEQUENCE_MAGIC)),
            Self::Index(Method::Btree) => long_marker.is_some_and(|cycle| cycle <= BTREE_CYCLE_MAX),
            Self::Index(Method::Hash) => {
                let is_fresh = long.is_some_and(|special| special.iter().all(|byte| *byte == 0));
                long_marker == Some(HASH_PAGE) || is_fresh
            }
            Self::Index(Method::Gist) => long_marker == Some(GIST_PAGE),
            Self::Index(Method::SpGist) => short_marker == Some(SPGIST_PAGE),
            Self::Index(Method::Gin) => short_marker.is_some_and(|flags| flags <= GIN_FLAGS_MAX),
            Self::Index(Method::Brin) => {
                short_marker.is_some_and(|marker| BRIN_PAGES.contains(&marker))
            }
        }
    }

    /// The magic number of a metapage, and that which its method has; `None` if they are equal, or it has
    /// none.
    #[must_use]
    pub fn other_magic(self, metapage: &[u8]) -> Option<(u32, u32)> {
        let expected = match self {
            Self::Index(Method::Hash) => 0x0644_0640,
            Self::Index(Method::SpGist) => 0xBA0B_ABEE,
            Self::Index(Method::Brin) => 0xA810_9CFA,
            _ => return None,
        };
        let found = u32_at(metapage, HEADER_BYTES)?;
        (found != expected).then_some((found, expected))
    }

    /// In words: "a page of ...".
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Heap => "a table",
            Self::Map => "a free space map or a visibility map",
            Self::Sequence => "a sequence",
            Self::Index(Method::Btree) => "a btree index",
            Self::Index(Method::Hash) => "a hash index",
            Self::Index(Method::Gist) => "a GiST index",
            Self::Index(Method::SpGist) => "an SP-GiST index",
            Self::Index(Method::Gin) => "a GIN index",
            Self::Index(Method::Brin) => "a BRIN index",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(special: &[u8]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let begin = 8192 - special.len();
        page[16..18].copy_from_slice(&u16::try_from(begin).unwrap().to_le_bytes());
        page[begin..].copy_from_slice(special);
        page
    }

    #[test]
    fn every_kind_of_page_fits_one_kind_of_relation() {
        let marked = |bytes: usize, marker: u16| {
            let mut special = vec![0_u8; bytes];
            special[bytes - 2..].copy_from_slice(&marker.to_le_bytes());
            page(&special)
        };
        let mut sequence = vec![0_u8; 8];
        sequence[..4].copy_from_slice(&SEQUENCE_MAGIC);
        let kinds = [
            (MadeFor::Heap, page(&[])),
            (MadeFor::Index(Method::Btree), marked(16, 7)),
            (MadeFor::Index(Method::Hash), marked(16, 0xFF80)),
            (MadeFor::Index(Method::Gist), marked(16, 0xFF81)),
            (MadeFor::Index(Method::SpGist), marked(8, 0xFF82)),
            (MadeFor::Index(Method::Gin), marked(8, 0x83)),
            (MadeFor::Index(Method::Brin), marked(8, 0xF093)),
        ];
        for (one, page) in &kinds {
            let fits: Vec<_> = kinds.iter().filter(|(kind, _)| kind.fits(page)).collect();
            assert_eq!(fits.len(), 1, "{one:?}");
            assert!(one.fits(page));
            assert!(!one.fits(&page[..4000]), "{one:?}");
        }
        // Most leaves of btrees have no cycle of VACUUM.
        let mut leaf = [0_u8; LONG];
        leaf[12] = 1;
        assert!(MadeFor::Index(Method::Btree).fits(&page(&leaf)));
        assert!(!MadeFor::Index(Method::Hash).fits(&page(&leaf)));
        assert!(MadeFor::Index(Method::Hash).fits(&page(&[0; LONG])));
        assert!(MadeFor::Sequence.fits(&page(&sequence)));
        assert!(!MadeFor::Heap.fits(&page(&sequence)));
    }
}

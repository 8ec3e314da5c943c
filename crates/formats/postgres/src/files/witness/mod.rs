//! What pages say of other pages: that a block is in use, that a row is there.
//!
//! A page of zeroes, a file that ends too early and an older version of a page all
//! look healthy by themselves. Other pages know better, and here is what they know.
//! Nothing here reads a file: a page goes in that has passed its own tests, words
//! come out.
//!
//! | witness | what it vouches for |
//! | --- | --- |
//! | [`visibility_map`] | heap blocks that were in use when a bit was set |
//! | [`btree`], [`hash`], [`gist`], [`spgist`], [`gin`] | rows: their block, and their line pointer |
//! | [`links`] | pages of the same index |
//! | [`kind`] | the kind of relation that a page was made for |
//! | [`rows`], [`chains`], [`items`] | what no server writes on a page of a table |
//! | [`node`] | the same of a btree, and a page's place in the tree |
//! | [`heap`] | which line pointers of an intact page can be meant by an index |
//! | [`summary`] | blocks that were changed, and where relations were cut |
//!
//! [`Method`] says which of them a relation's pages are read with, and whose first
//! page can never be empty. BRIN has no rows to vouch for: its ranges may go past
//! the end of a table that VACUUM has cut.
//!
//! What a witness says counts for complete indexes only
//! (`catalogue::relations::Relations::heap_of`): one whose build was broken off
//! keeps entries that no server clears.

pub mod btree;
pub mod chains;
pub mod gin;
pub mod gist;
pub mod hash;
pub mod heap;
pub mod items;
pub mod kind;
pub mod links;
pub mod node;
pub mod rows;
pub mod spgist;
pub mod summary;
pub(super) mod tid;
pub mod visibility_map;

pub use tid::Tid;

/// An access method of indexes that comes with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// btree.
    Btree,
    /// hash.
    Hash,
    /// GiST.
    Gist,
    /// GIN.
    Gin,
    /// SP-GiST.
    SpGist,
    /// BRIN.
    Brin,
}

impl Method {
    /// By the oid in `pg_class.relam`, which is the same in 9.6 to 18 (`pg_am.dat`).
    #[must_use]
    pub fn by_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            403 => Self::Btree,
            405 => Self::Hash,
            783 => Self::Gist,
            2742 => Self::Gin,
            3580 => Self::Brin,
            4000 => Self::SpGist,
            _ => return None,
        })
    }

    /// True if block 0 is a metapage: it is written when the index is made, and can
    /// never be empty. GiST has none; its block 0 is the root.
    #[must_use]
    pub fn has_metapage(self) -> bool {
        self != Self::Gist
    }

    /// The same as [`Method::visit`], but of neighbours that lead to one block `each` may
    /// get only the row with the highest number.
    #[inline]
    pub fn visit_runs(self, page: &[u8], each: impl FnMut(Tid)) {
        match self {
            Self::Btree => btree::visit_runs(page, each),
            other => other.visit(page, each),
        }
    }

    /// Calls `each` for every row that a page of such an index leads to. Pages
    /// that lead to none (metapages, inner and deleted pages) are passed over. An
    /// entry that cannot be read ends the page.
    #[inline]
    pub fn visit(self, page: &[u8], each: impl FnMut(Tid)) {
        match self {
            Self::Btree => btree::visit(page, each),
            Self::Hash => hash::visit(page, each),
            Self::Gist => gist::visit(page, each),
            Self::Gin => gin::visit(page, each),
            Self::SpGist => spgist::visit(page, each),
            Self::Brin => {}
        }
    }
}

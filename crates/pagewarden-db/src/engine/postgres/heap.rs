//! Rows of a table from its pages, as they lie in the server's memory.
//!
//! | file | subject |
//! |---|---|
//! | this one | whose rows of a page are for us to read |
//! | `tuple` | a row on its page, and as the server would send it |
//! | `varlena` | values of any length, which may be compressed or lie elsewhere |
//!
//! What is in doubt here is never an error and never a row: the server is asked for the rows
//! of that page. Which pages these are depends on what a snapshot must see:
//!
//! | page | all of its rows are seen by every snapshot, for |
//! |---|---|
//! | `PD_ALL_VISIBLE` is set | that is what it says; who holds a snapshot keeps VACUUM from saying it of younger rows. A server trusts it as long as it does not replay the log |
//! | all rows are frozen, and no transaction has removed or locked one | that is all that a server asks of such a row, on a standby too |
//! | without rows, or new | there is nothing to see |
//!
//! Sources: `heapgetpage` (from 17 on `heap_prepare_pagescan`) and `HeapTupleSatisfiesMVCC`
//! of PostgreSQL 14 to 18.

pub mod tuple;
mod varlena;

use pagewarden::formats::postgres::files::catalogue::tuple::Tuple;
use pagewarden::formats::postgres::files::witness::heap::{LinePointer, line_pointers};
use pagewarden::formats::postgres::page::{Header, PAGE_ALL_VISIBLE};

use tuple::Layout;

/// `HEAP_XMIN_FROZEN` and `HEAP_XMAX_INVALID` of `t_infomask`: every snapshot sees the row.
const FROZEN_AND_NOT_REMOVED: u16 = 0x0300 | 0x0800;
/// The one layout of pages since 8.3, in the low byte of `pd_pagesize_version`.
const PAGE_LAYOUT: usize = 4;
/// Where `pd_pagesize_version` lies: in the order of the server's bytes.
const PAGE_SIZE_VERSION: usize = 18;

/// The rows of pages, as the server would send them.
#[derive(Debug)]
pub struct Rows {
    layout: Layout,
    /// True if the server replays the log of another.
    in_recovery: bool,
    sent: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// Those of pages of a table.
    pub fn new(layout: Layout, in_recovery: bool) -> Self {
        Self { layout, in_recovery, sent: Vec::new(), ends: Vec::new() }
    }

    /// The rows of a page, each a tuple of `COPY ... (FORMAT binary)`; none if the server must
    /// be asked for them.
    pub fn of(&mut self, page: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
        self.sent.clear();
        self.ends.clear();
        if !page.iter().all(|byte| *byte == 0) {
            self.take(page)?;
        }
        let (sent, mut begin) = (&self.sent, 0);
        Some(self.ends.iter().filter_map(move |end| {
            let row = sent.get(begin..*end);
            begin = *end;
            row
        }))
    }

    fn take(&mut self, page: &[u8]) -> Option<()> {
        let header = Header::read(page)?;
        let size_version = page.get(PAGE_SIZE_VERSION..)?.first_chunk::<2>()?;
        if usize::from(u16::from_le_bytes(*size_version)) != page.len() | PAGE_LAYOUT {
            return None;
        }
        if usize::from(header.lower) > usize::from(header.upper)
            || usize::from(header.upper) > page.len()
        {
            return None;
        }
        let all_visible = header.flags & PAGE_ALL_VISIBLE != 0 && !self.in_recovery;
        for pointer in line_pointers(page) {
            let LinePointer::Normal { offset, length } = pointer else { continue };
            if offset < header.upper {
                return None;
            }
            let bytes = page.get(usize::from(offset)..)?.get(..usize::from(length))?;
            let tuple = Tuple::parse(bytes)?;
            let is_frozen = tuple.flags & FROZEN_AND_NOT_REMOVED == FROZEN_AND_NOT_REMOVED;
            if !all_visible && !is_frozen {
                return None;
            }
            self.layout.send(&tuple, &mut self.sent)?;
            self.ends.push(self.sent.len());
        }
        Some(())
    }
}

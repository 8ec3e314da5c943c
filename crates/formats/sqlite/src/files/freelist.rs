//! The freelist of a SQLite database: pages whose content SQLite throws away.
//!
//! | trunk page | bytes | |
//! |---|---|---|
//! | 0 | 4 | number of the next trunk page, 0 in the last one |
//! | 4 | 4 | number of leaves |
//! | 8 | 4 each | page numbers of the leaves |
//!
//! Trunk pages are written and read like any other page. A leaf is neither logged when it is used
//! again nor read before, so a crash may leave anything on it.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;

use crate::checksum::{page_sum, stored_sum};
use crate::page::header::DatabaseHeader;
use crate::page::{PageSet, SqlitePages};
use pagewarden_core::page::PageFinding;
use pagewarden_core::system::FileExt;
use pagewarden_core::verdict::{Kind, PageNo, Severity};

const ENTRY_BYTES: usize = 4;
/// The two entries in front of the leaves.
const HEAD_ENTRIES: usize = 2;

/// What a walk along the freelist found.
#[derive(Debug, Default)]
pub struct Freelist {
    /// The leaves.
    pub leaves: PageSet,
    /// What no SQLite writes; certain only where nothing waits to be recovered.
    pub fault: Option<PageFinding>,
}

/// Walks along the freelist of `file`. Reads the trunk pages alone, each once.
#[must_use]
pub fn walk(file: &File, format: &SqlitePages, header: &DatabaseHeader, pages: u64) -> Freelist {
    let mut found = Freelist::default();
    let expected = u64::from(header.free_page_count);
    let usable = format.page_size.saturating_sub(usize::from(format.reserved_bytes));
    let leaves_max = (usable / ENTRY_BYTES).saturating_sub(HEAD_ENTRIES);
    let mut page = vec![0; format.page_size];
    let mut seen = 0_u64;
    let mut holder = 1;
    let mut trunk = u64::from(header.first_trunk);
    while trunk != 0 {
        // Each trunk page counts, so a chain in a circle ends here.
        seen = seen.saturating_add(1);
        if trunk < 2 || trunk > pages || seen > expected {
            found.fault = Some(fault(holder, format!("names page {trunk} as the next free page")));
            return found;
        }
        if !read_page(file, trunk, &mut page) {
            return found;
        }
        let fails = match format.markers {
            Some(markers) => !markers.pass(&page, PageNo(trunk)),
            None => format.has_sums && stored_sum(&page) != page_sum(&page),
        };
        if fails {
            // The page's own failure is reported when its turn comes.
            return found;
        }
        holder = trunk;
        let (entries, _) = page.as_chunks::<ENTRY_BYTES>();
        let Some(([next, count], leaves)) = entries.split_first_chunk::<HEAD_ENTRIES>() else {
            return found;
        };
        let count = usize::try_from(u32::from_be_bytes(*count)).unwrap_or(usize::MAX);
        if count > leaves_max {
            found.fault = Some(fault(holder, format!("as a freelist page it has {count} entries")));
            return found;
        }
        for leaf in leaves.iter().take(count) {
            let leaf = u64::from(u32::from_be_bytes(*leaf));
            if leaf < 2 || leaf > pages {
                found.fault = Some(fault(holder, format!("lists page {leaf} as free")));
                return found;
            }
            seen = seen.saturating_add(1);
            found.leaves.insert(leaf);
        }
        trunk = u64::from(u32::from_be_bytes(*next));
    }
    if seen != expected {
        let detail = format!("the header counts {expected} free pages, the freelist has {seen}");
        found.fault = Some(fault(1, detail));
    }
    found
}

fn read_page(file: &File, number: u64, page: &mut [u8]) -> bool {
    let offset = u64::try_from(page.len())
        .ok()
        .and_then(|page_bytes| number.checked_sub(1)?.checked_mul(page_bytes));
    offset.is_some_and(|offset| file.read_exact_at(page, offset).is_ok())
}

fn fault(page: u64, detail: String) -> PageFinding {
    PageFinding::failed(PageNo(page), Severity::Damage, Kind::Header).with_detail(detail)
}

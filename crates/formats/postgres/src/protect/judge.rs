//! What pages of a cluster look like, and which of them get a checksum.

use std::ops::Range;

use crate::checksum::{checksum, hash_pages};
use crate::page::{CHECKSUM_FIELD, Header};
use pagewarden_core::protect::{PageTally, stretches};
use pagewarden_core::verdict::Kind;

/// What pages of a cluster look like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) page_size: usize,
    pub(super) max_align: u16,
    pub(super) segment_pages: u64,
}

/// What was found in a run of pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// Without the damaged ones.
    pub(super) tally: PageTally,
    /// Stretches of pages whose checksum was set.
    pub(super) changed: Vec<Range<usize>>,
    /// Where damaged pages begin, and what is wrong with each.
    pub(super) damaged: Vec<(usize, Kind, String)>,
}

/// Sets the checksum of every whole page that is sound; `first` is the block that the first is.
///
/// A page whose `pd_upper` is 0 is new to `pg_checksums`, whatever else it holds;
/// a server then refuses to read it, unless all of it is zero.
pub(super) fn judge_pages(bytes: &mut [u8], first: u64, layout: Layout) -> Judged {
    let Layout { page_size, max_align, .. } = layout;
    let mut judged = Judged::default();
    let rest = bytes.len() % page_size;
    if rest > 0 {
        let detail = format!("the file ends {rest} bytes into a page");
        judged.damaged.push((bytes.len() - rest, Kind::Truncated, detail));
    }
    let count = bytes.len() / page_size;
    let mut hashes = vec![0; count];
    let Some(whole) = bytes.get_mut(..count * page_size) else { return judged };
    hash_pages(whole, page_size, &mut hashes);
    for (index, (page, hash)) in whole.chunks_exact_mut(page_size).zip(hashes).enumerate() {
        let at = index * page_size;
        let Some(header) = Header::read(page) else { continue };
        if header.upper == 0 {
            if page.iter().all(|byte| *byte == 0) {
                judged.tally.empty += 1;
            } else {
                let detail = "pd_upper is 0 but the page is not empty".to_owned();
                judged.damaged.push((at, Kind::Header, detail));
            }
            continue;
        }
        if let Some(fault) = header.fault(page_size, max_align) {
            judged.damaged.push((at, Kind::Header, fault));
            continue;
        }
        let block = first + index as u64;
        let sum = checksum(hash, u32::try_from(block).unwrap_or(u32::MAX));
        if sum == header.checksum {
            judged.tally.right += 1;
            continue;
        }
        if let Some(field) = page.get_mut(CHECKSUM_FIELD) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
        judged.tally.changed += 1;
        stretches::add(&mut judged.changed, at..at + page_size);
    }
    judged
}

//! What of a page may change while its LSN stays: left out of its fingerprint.
//!
//! A server changes these without the log, as hints, or a server that replays the log
//! (a standby, recovery after a crash) makes the page without them:
//!
//! | on | what |
//! | --- | --- |
//! | every page | pd_checksum, pd_flags, pd_prune_xid, and the hole between pd_lower and pd_upper, which full images leave out |
//! | heap | of a tuple the command numbers at 8, and of t_infomask at 20 that they are combined, and the fates of xmin and xmax: of a tuple that is not frozen all bits about visibility; the bytes between the end of a tuple and the next multiple of 8 |
//! | indexes | line pointers: a normal one may have become dead |
//! | btree, hash, gist, brin | the flags and, in btree, the cycle number in the last four bytes of the special space |
//! | gist | the number of the last split, at the begin of the special space |
//! | spgist | the metapage: its cache of pages with room |
//! | deleted pages of btree, gin and hash | all, with their bounds |
//! | sequences | all: one change in 32 is logged |
//!
//! Heap pages have no special space. Which page of an index it is tells the
//! last word: above 0xFF7F it is not btree's. Sources: `bufmask.c` and the
//! `*_mask` functions that `wal_consistency_checking` uses, `heapam_xlog.h`,
//! `nbtree.h`, `sequence.c`.

use crate::page::{
    CHECKSUM, FIRST_REAL_LSN, FLAGS, HEADER_BYTES, Header, LOWER, MAX_ALIGN, PRUNE_XID, SPECIAL,
};
use pagewarden_core::page::Fingerprint;

/// `SEQ_MAGIC`, alone in the special space.
const SEQUENCE_MAGIC: u32 = 0x1717;
const LINE_POINTER_BYTES: usize = 4;
/// The state of a line pointer: unused, normal, redirected, dead.
const NORMAL: u32 = 1;
const DEAD: u32 = 3;
const STATE_SHIFT: u32 = 15;
const LENGTH_SHIFT: u32 = 17;
/// `t_cid`, or `t_xvac`.
const COMMAND: usize = 8;
const INFOMASK: usize = 20;
/// `HEAP_COMBOCID`: the command number stands for two.
const IS_COMBINED: u16 = 0x0020;
/// `HEAP_XMIN_FROZEN`: `HEAP_XMIN_COMMITTED` and `HEAP_XMIN_INVALID`.
const FROZEN: u16 = 0x0300;
/// `HEAP_XACT_MASK`.
const VISIBILITY: u16 = 0xFFF0;
/// `HEAP_XMAX_COMMITTED`, `HEAP_XMAX_INVALID`: all that hints of a frozen tuple.
const HINTS_IF_FROZEN: u16 = 0x0C00;
/// `GIST_PAGE_ID`.
const GIST_PAGE: u16 = 0xFF81;
/// `HASHO_PAGE_ID`.
const HASH_PAGE: u16 = 0xFF80;
/// `SPGIST_PAGE_ID`.
const SPGIST_PAGE: u16 = 0xFF82;
/// Of its flags, at the begin of the special space.
const SPGIST_META: u8 = 1;
/// What comes before the cache on an SP-GiST metapage.
const SPGIST_MAGIC_BYTES: usize = 4;
/// `LH_PAGE_TYPE`: none of it on a page that is free.
const HASH_PAGE_TYPE: u16 = 15;
/// `BTP_DELETED`.
const BTREE_DELETED: u16 = 4;
/// `GIN_DELETED`.
const GIN_DELETED: u16 = 4;
/// The lowest that says which kind of index a page is of; cycle numbers of btree
/// are not above `MAX_BT_CYCLE_ID`, 0xFF7F.
const LOWEST_PAGE_ID: u16 = 0xFF80;

/// The fingerprint of a page that passed its test.
pub(super) fn of(page: &[u8]) -> Fingerprint {
    let Some(header) = Header::read(page) else { return Fingerprint::of_bytes(0, page) };
    let lsn =
        if header.lsn < FIRST_REAL_LSN || is_sequence(page, &header) { 0 } else { header.lsn };
    let mut masked = page.to_vec();
    mask(&mut masked, &header);
    Fingerprint::of_bytes(lsn, &masked)
}

fn is_sequence(page: &[u8], header: &Header) -> bool {
    let special = page.get(usize::from(header.special)..).unwrap_or_default();
    special.len() <= 8
        && special.first_chunk().map(|word| u32::from_le_bytes(*word)) == Some(SEQUENCE_MAGIC)
}

fn mask(page: &mut [u8], header: &Header) {
    let (lower, upper) = (usize::from(header.lower), usize::from(header.upper));
    let special = usize::from(header.special);
    clear(page, CHECKSUM, FLAGS + 2);
    clear(page, PRUNE_XID, HEADER_BYTES);
    clear(page, lower, upper);
    let is_heap = special == page.len();
    let mut at = HEADER_BYTES;
    // A metapage has no line pointers where others have them; what is taken for
    // some there is masked alike today and another day.
    while let Some(pointer) = page.get(at..lower).and_then(<[u8]>::first_chunk) {
        let pointer = u32::from_le_bytes(*pointer);
        let state = pointer >> STATE_SHIFT & 3;
        if is_heap && state == NORMAL {
            let offset = usize::try_from(pointer & 0x7FFF).unwrap_or(usize::MAX);
            let length = usize::try_from(pointer >> LENGTH_SHIFT).unwrap_or(usize::MAX);
            mask_tuple(page, offset, length);
        } else if !is_heap
            && state == DEAD
            && let Some(bytes) = page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)
        {
            *bytes = (pointer & !(3 << STATE_SHIFT) | NORMAL << STATE_SHIFT).to_le_bytes();
        }
        at = at.saturating_add(LINE_POINTER_BYTES);
    }
    if !is_heap {
        mask_special(page, special);
    }
}

/// As `heap_mask` does it.
fn mask_tuple(page: &mut [u8], offset: usize, length: usize) {
    let end = offset.saturating_add(length);
    clear(page, end, end.checked_next_multiple_of(usize::from(MAX_ALIGN)).unwrap_or(end));
    let Some(tuple) = page.get_mut(offset..) else { return };
    clear(tuple, COMMAND, COMMAND + 4);
    if let Some(bits) = tuple.get_mut(INFOMASK..).and_then(<[u8]>::first_chunk_mut::<2>) {
        let old = u16::from_le_bytes(*bits);
        let hints = if old & FROZEN == FROZEN { HINTS_IF_FROZEN } else { VISIBILITY };
        *bits = (old & !(hints | IS_COMBINED)).to_le_bytes();
    }
}

/// As `btree_mask`, `gin_mask`, `gist_mask` and `hash_mask` do it, where the bytes
/// tell which of them it is.
fn mask_special(page: &mut [u8], special: usize) {
    let end = page.len();
    let bytes = end.saturating_sub(special);
    if bytes < 8 {
        return;
    }
    let last = page.last_chunk().map_or(0, |word| u16::from_le_bytes(*word));
    let flags = page.get(end.saturating_sub(4)..).and_then(<[u8]>::first_chunk);
    let flags = flags.map_or(0, |word| u16::from_le_bytes(*word));
    let is_deleted = match (bytes, last) {
        (16, HASH_PAGE) => flags & HASH_PAGE_TYPE == 0,
        (16, ..LOWEST_PAGE_ID) => flags & BTREE_DELETED != 0,
        (8, ..LOWEST_PAGE_ID) => last & GIN_DELETED != 0,
        _ => false,
    };
    if is_deleted {
        // Replay makes such a page anew and empty, with other bounds.
        clear(page, LOWER, SPECIAL);
        return clear(page, HEADER_BYTES, end);
    }
    // Its cache of pages with room is changed without the log.
    if (bytes, last) == (8, SPGIST_PAGE)
        && page.get(special).is_some_and(|flags| flags & SPGIST_META != 0)
    {
        clear(page, HEADER_BYTES + SPGIST_MAGIC_BYTES, special);
    }
    if (bytes, last) == (16, GIST_PAGE) {
        clear(page, special, special.saturating_add(8));
    }
    // Of others than btree the last word says what they are, and stays.
    clear(page, end.saturating_sub(4), end.saturating_sub(2));
    if last < LOWEST_PAGE_ID {
        clear(page, end.saturating_sub(2), end);
    }
}

fn clear(page: &mut [u8], begin: usize, end: usize) {
    if let Some(bytes) = page.get_mut(begin..end) {
        bytes.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/postgres/15/");
        std::fs::read(format!("{folder}{name}")).unwrap()
    }

    #[test]
    fn hints_change_nothing_and_anything_else_does() {
        let page = golden("heap.3.page");
        let header = Header::read(&page).unwrap();
        let sealed = of(&page);
        assert_eq!(sealed.lsn, header.lsn);
        let tuple = u32::from_le_bytes(*page[HEADER_BYTES..].first_chunk().unwrap()) & 0x7FFF;
        let hint = tuple as usize + INFOMASK + 1;
        let hole = usize::from(header.lower)..usize::from(header.upper);
        for at in 8..page.len() {
            let mut changed = page.clone();
            changed[at] ^= 1;
            let masked = (CHECKSUM..FLAGS + 2).contains(&at)
                || (PRUNE_XID..HEADER_BYTES).contains(&at)
                || hole.contains(&at)
                || is_hint(&page, at);
            // The bounds decide what is masked: only whole pages can be compared.
            if !(FLAGS + 2..PRUNE_XID).contains(&at) {
                assert_eq!(of(&changed) == sealed, masked, "byte {at}");
            }
        }
        assert!(is_hint(&page, hint));
    }

    /// True for what of a tuple may change: its command numbers, the upper byte
    /// of t_infomask as long as it is not frozen, and what follows its end.
    fn is_hint(page: &[u8], at: usize) -> bool {
        let lower = usize::from(Header::read(page).unwrap().lower);
        page[HEADER_BYTES..lower].chunks_exact(4).any(|pointer| {
            let pointer = u32::from_le_bytes(pointer.try_into().unwrap());
            let begin = (pointer & 0x7FFF) as usize;
            let end = begin + (pointer >> LENGTH_SHIFT) as usize;
            let upper_byte = begin + INFOMASK + 1;
            pointer >> STATE_SHIFT & 3 == NORMAL
                && ((begin + COMMAND..begin + COMMAND + 4).contains(&at)
                    || (at == upper_byte && page[at] & 3 != 3)
                    || (end..end.next_multiple_of(8)).contains(&at))
        })
    }

    #[test]
    fn dead_index_entries_and_sequences_are_no_change() {
        let page = golden("btree_leaf.2.page");
        let mut changed = page.clone();
        let at = HEADER_BYTES + 8;
        let pointer = u32::from_le_bytes(*changed[at..].first_chunk().unwrap());
        assert_eq!(pointer >> STATE_SHIFT & 3, NORMAL);
        changed[at..at + 4].copy_from_slice(&(pointer | DEAD << STATE_SHIFT).to_le_bytes());
        let end = changed.len();
        changed[end - 4] ^= 0x40;
        changed[end - 2] ^= 1;
        assert_eq!(of(&changed), of(&page));
        changed[end - 8] ^= 1;
        assert_ne!(of(&changed), of(&page));
        assert_eq!(of(&golden("sequence.0.page")).lsn, 0);
    }
}

//! What of a page may change while its LSN stays: left out of its fingerprint.
//!
//! A server changes these without the log, as hints, or recovery restores the
//! page without them:
//!
//! | on | what |
//! | --- | --- |
//! | every page | pd_checksum, pd_flags, pd_prune_xid, and the hole between pd_lower and pd_upper, which full images leave out |
//! | heap | the four hint bits of t_infomask at 20 of a tuple: the fates of xmin and xmax |
//! | indexes | line pointers: a normal one may have become dead |
//! | btree, hash, gist, brin | the flags and, in btree, the cycle number in the last four bytes of the special space |
//! | sequences | all: one change in 32 is logged |
//!
//! Heap pages have no special space. Which page of an index it is tells the
//! last word: above 0xFF7F it is not btree's. Sources: `bufmask.c` and the
//! `*_mask` functions that `wal_consistency_checking` uses, `heapam_xlog.h`,
//! `nbtree.h`, `sequence.c`.

use crate::page::Fingerprint;
use crate::page::postgres::{CHECKSUM, FLAGS, HEADER_BYTES, Header, PRUNE_XID};

/// `SEQ_MAGIC`, alone in the special space.
const SEQUENCE_MAGIC: u32 = 0x1717;
/// `GistBuildLSN`, `FirstNormalUnloggedLSN`: positions that are none.
const FIRST_REAL_LSN: u64 = 1000;
const LINE_POINTER_BYTES: usize = 4;
/// The state of a line pointer: unused, normal, redirected, dead.
const NORMAL: u32 = 1;
const DEAD: u32 = 3;
const STATE_SHIFT: u32 = 15;
const INFOMASK: usize = 20;
/// `HEAP_XMIN_COMMITTED`, `_INVALID`, `HEAP_XMAX_COMMITTED`, `_INVALID`.
const HINT_BITS: u16 = 0x0F00;

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
            let tuple = usize::try_from(pointer & 0x7FFF).unwrap_or(usize::MAX);
            if let Some(bits) = tuple
                .checked_add(INFOMASK)
                .and_then(|begin| page.get_mut(begin..)?.first_chunk_mut::<2>())
            {
                *bits = (u16::from_le_bytes(*bits) & !HINT_BITS).to_le_bytes();
            }
        } else if !is_heap
            && state == DEAD
            && let Some(bytes) = page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)
        {
            *bytes = (pointer & !(3 << STATE_SHIFT) | NORMAL << STATE_SHIFT).to_le_bytes();
        }
        at = at.saturating_add(LINE_POINTER_BYTES);
    }
    if !is_heap && page.len().saturating_sub(special) >= 8 {
        let end = page.len();
        // Of others than btree the last word says what they are, and stays.
        clear(page, end.saturating_sub(4), end.saturating_sub(2));
        let last = page.last_chunk().map_or(0, |word| u16::from_le_bytes(*word));
        if last <= 0xFF7F {
            clear(page, end.saturating_sub(2), end);
        }
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
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/postgres/15/");
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

    /// The upper byte of t_infomask holds the hints in its low half.
    fn is_hint(page: &[u8], at: usize) -> bool {
        let lower = usize::from(Header::read(page).unwrap().lower);
        page[HEADER_BYTES..lower].chunks_exact(4).any(|pointer| {
            let pointer = u32::from_le_bytes(pointer.try_into().unwrap());
            pointer >> STATE_SHIFT & 3 == NORMAL && (pointer & 0x7FFF) as usize + INFOMASK + 1 == at
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

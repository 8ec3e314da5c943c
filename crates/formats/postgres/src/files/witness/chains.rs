//! Rows that were updated in place (HOT), and the redirects that lead to them, all on one page.
//!
//! ```text
//! index -> line pointer 1, redirect to 3
//!                       3 -> row, HOT_UPDATED, xmax 700, t_ctid 5
//!                       5 -> row, HEAP_ONLY, xmin 700
//! ```
//!
//! | tested | healthy histories that would break a stronger test |
//! | --- | --- |
//! | a redirect leads to a row that is heap-only, and no two to one | |
//! | the new version of a row whose replacement committed is on this page, is heap-only, and its xmin is the xmax of the old one | an update that aborted: its version may be gone, and its line pointer be another row's |
//! | a heap-only row that committed has a redirect, or a row that was updated in place, before it | one that aborted: rows before it may be gone |
//!
//! Rows are asked by their hints alone: who has committed without a hint is not looked up.
//! Sources: `src/backend/access/heap/README.HOT`, `heap_prune_chain` in `pruneheap.c`, and
//! `check_tuple`'s chains in `contrib/amcheck/verify_heapam.c` of 16 to 18.

use crate::files::witness::heap::{LinePointer, count, line_pointers};
use crate::files::witness::rows::{
    CTID, HEAP_ONLY, HOT_UPDATED, ROW_BYTES, Row, XMAX_COMMITTED, XMAX_INVALID, XMAX_IS_MULTI,
    XMAX_LOCK_ONLY, XMIN_COMMITTED, row,
};
use crate::files::witness::tid::Tid;

/// `FrozenTransactionId`: what VACUUM up to 9.3 wrote over xmin.
const FROZEN_TRANSACTION: u32 = 2;

/// Which numbers of line pointers: more than a page of 32 KiB has room for.
struct Marks([u64; 128]);

impl Marks {
    /// False if it was there already.
    fn add(&mut self, number: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(number / 64)) else { return true };
        let bit = 1 << (number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn has(&self, number: u16) -> bool {
        self.0.get(usize::from(number / 64)).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

/// What is wrong with the chains of a page, in words. The tuples must be inside of the page.
#[must_use]
pub fn fault(page: &[u8], block: u32) -> Option<String> {
    let (mut redirected, mut led) = (Marks([0; 128]), Marks([0; 128]));
    for (number, pointer) in (1_u16..).zip(line_pointers(page)) {
        match pointer {
            LinePointer::Redirect(target) => {
                let found = row(page, target).filter(|(row, _)| row.flags_2 & HEAP_ONLY != 0);
                if found.is_none() {
                    return Some(format!(
                        "line pointer {number} redirects to {target}, which is no row that an update in place made"
                    ));
                }
                if !redirected.add(target) {
                    return Some(format!("two line pointers redirect to {target}"));
                }
                led.add(target);
            }
            LinePointer::Normal { offset, .. } => {
                let Some(bytes) = page.get(usize::from(offset)..) else { continue };
                let Some(bytes) = bytes.first_chunk::<ROW_BYTES>() else { continue };
                let old = Row::read(bytes);
                if old.flags_2 & HOT_UPDATED == 0 {
                    continue;
                }
                let next = bytes.get(CTID..).and_then(Tid::read)?;
                if next.block == block {
                    led.add(next.number);
                }
                if let Some(text) = replaced(page, block, old, next) {
                    return Some(format!("row {number}: {text}"));
                }
            }
            LinePointer::Unused | LinePointer::Dead => {}
        }
    }
    (1_u16..).zip(line_pointers(page)).find_map(|(number, pointer)| {
        let LinePointer::Normal { .. } = pointer else { return None };
        let (found, _) = row(page, number)?;
        let is_asked = found.flags_2 & HEAP_ONLY != 0 && found.flags & XMIN_COMMITTED != 0;
        (is_asked && !led.has(number)).then(|| {
            format!("row {number}: it is in no index, and nothing on the page leads to it")
        })
    })
}

/// For each row of the page the number of the line pointer that indexes know it by, from
/// index 1 on; 0 for what no index leads to.
#[must_use]
pub fn roots(page: &[u8], block: u32) -> Vec<u16> {
    let mut roots = vec![0_u16; usize::from(count(page)).saturating_add(1)];
    for (number, pointer) in (1_u16..).zip(line_pointers(page)) {
        let at = match pointer {
            LinePointer::Redirect(target) => target,
            // Nearly every row: known by its own line pointer, and alone.
            LinePointer::Normal { offset, .. } if is_alone(page, offset) => {
                if let Some(root) = roots.get_mut(usize::from(number)) {
                    *root = number;
                }
                continue;
            }
            LinePointer::Normal { .. } => number,
            LinePointer::Unused | LinePointer::Dead => continue,
        };
        follow(page, block, number, at, &mut roots);
    }
    roots
}

/// True if the row that begins here is in indexes, and was not updated in place.
fn is_alone(page: &[u8], offset: u16) -> bool {
    let bytes = page.get(usize::from(offset)..).and_then(|rest| rest.first_chunk::<ROW_BYTES>());
    bytes.is_some_and(|bytes| Row::read(bytes).flags_2 & (HEAP_ONLY | HOT_UPDATED) == 0)
}

/// Marks the rows of a chain that begins at a row, or at the target of a redirect.
fn follow(page: &[u8], block: u32, number: u16, mut at: u16, roots: &mut [u16]) {
    let mut expected = None;
    // A chain is no longer than the page has line pointers: each is led to once.
    while let Some((found, bytes)) = row(page, at)
        && let Some(root) = roots.get_mut(usize::from(at))
        && *root == 0
    {
        let is_first = expected.is_none() && at == number;
        let is_heap_only = found.flags_2 & HEAP_ONLY != 0;
        let is_next = expected.is_none_or(|xmin: Option<u32>| {
            xmin.is_none_or(|xmin| xmin == found.xmin || found.xmin == FROZEN_TRANSACTION)
        });
        if is_first == is_heap_only || !is_next {
            break;
        }
        *root = number;
        let Some(next) = bytes.get(CTID..).and_then(Tid::read) else { break };
        let is_replaced = found.flags_2 & HOT_UPDATED != 0 && found.flags & XMAX_INVALID == 0;
        if !is_replaced || next.block != block {
            break;
        }
        // Who of a multixact has updated it is not asked.
        expected = Some((found.flags & XMAX_IS_MULTI == 0).then_some(found.xmax));
        at = next.number;
    }
}

/// What is wrong with the version that replaced a row in place.
fn replaced(page: &[u8], block: u32, old: Row, next: Tid) -> Option<String> {
    let known = XMAX_COMMITTED | XMAX_INVALID | XMAX_IS_MULTI | XMAX_LOCK_ONLY;
    if old.flags & known != XMAX_COMMITTED {
        return None;
    }
    if next.block != block {
        return Some(format!("it was updated in place, to block {}", next.block));
    }
    let number = next.number;
    let Some((new, _)) = row(page, number) else {
        return Some(format!("it was updated in place, to line pointer {number} without a row"));
    };
    if new.flags_2 & HEAP_ONLY == 0 {
        return Some(format!("it was updated in place, to row {number}, which indexes know"));
    }
    (new.xmin != old.xmax && new.xmin != FROZEN_TRANSACTION).then(|| {
        format!(
            "transaction {} has updated it in place, to row {number} of transaction {}",
            old.xmax, new.xmin
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::witness::rows::tests::{BLOCK, Fields, page, point};

    const DONE: u16 = XMIN_COMMITTED | XMAX_COMMITTED;
    const MADE: u16 = XMIN_COMMITTED | XMAX_INVALID;
    /// A row that was updated in place, and its next version.
    const OLD: Fields = (700, 701, 2, 3 | HOT_UPDATED, DONE);
    const NEW: Fields = (701, 0, 2, 3 | HEAP_ONLY, MADE | 0x2000);

    #[test]
    fn chains_of_healthy_histories_are_no_fault() {
        assert_eq!(fault(&page(&[OLD, NEW]), BLOCK), None);
        // The old row is pruned.
        let mut pruned = page(&[OLD, NEW]);
        point(&mut pruned, 1, 2 | 2 << 15);
        assert_eq!(fault(&pruned, BLOCK), None);
        assert_eq!(roots(&pruned, BLOCK), [0, 0, 1]);
        assert_eq!(roots(&page(&[OLD, NEW]), BLOCK), [0, 1, 1]);
        // An update that aborted: its version is gone, or another row stands there.
        let aborted = (700, 702, 2, 3 | HOT_UPDATED, MADE);
        let other = (703, 0, 2, 3, MADE);
        let mut gone = page(&[aborted, other]);
        assert_eq!(roots(&gone, BLOCK), [0, 1, 2]);
        assert_eq!(fault(&gone, BLOCK), None);
        point(&mut gone, 2, 0);
        assert_eq!(fault(&gone, BLOCK), None);
        // Without a hint it may have aborted.
        let unknown = (700, 702, 2, 3 | HOT_UPDATED, XMIN_COMMITTED);
        assert_eq!(fault(&page(&[unknown, other]), BLOCK), None);
        // A version that aborted is left without the row before it.
        let orphan = (704, 0, 1, 3 | HEAP_ONLY, XMAX_INVALID | 0x2000 | 0x0200);
        assert_eq!(fault(&page(&[orphan]), BLOCK), None);
        // A version that a multixact has locked, and a single transaction updated.
        let locked = (700, 6, 2, 3 | HOT_UPDATED, XMIN_COMMITTED | XMAX_IS_MULTI);
        assert_eq!(fault(&page(&[locked, NEW]), BLOCK), None);
        let frozen = (2, 0, 2, 3 | HEAP_ONLY, MADE | 0x2000);
        assert_eq!(fault(&page(&[OLD, frozen]), BLOCK), None);
    }

    #[test]
    fn chains_that_no_server_leaves_are_faults() {
        let indexed = (701, 0, 2, 3, MADE);
        let of_another = (705, 0, 2, 3 | HEAP_ONLY, MADE | 0x2000);
        for (rows, words) in [
            (vec![OLD], "row 1: it was updated in place, to line pointer 2 without a row"),
            (vec![OLD, indexed], "row 1: it was updated in place, to row 2, which indexes know"),
            (
                vec![OLD, of_another],
                "row 1: transaction 701 has updated it in place, to row 2 of transaction 705",
            ),
            (vec![NEW], "row 1: it is in no index, and nothing on the page leads to it"),
        ] {
            assert_eq!(fault(&page(&rows), BLOCK).as_deref(), Some(words));
        }
        let text = fault(&page(&[OLD, NEW]), BLOCK + 1);
        assert_eq!(text.as_deref(), Some("row 1: it was updated in place, to block 65538"));
        for (bits, words) in [
            (
                3 | 2 << 15,
                "line pointer 1 redirects to 3, which is no row that an update in place made",
            ),
            (1 | 2 << 15, "line pointer 1 redirects to 1,"),
            (7 | 2 << 15, "line pointer 1 redirects to 7,"),
        ] {
            let mut page = page(&[OLD, NEW, indexed]);
            point(&mut page, 1, bits);
            let text = fault(&page, BLOCK).unwrap_or_default();
            assert!(text.starts_with(words), "{text}");
        }
        let mut twice = page(&[OLD, NEW, indexed]);
        point(&mut twice, 1, 2 | 2 << 15);
        point(&mut twice, 3, 2 | 2 << 15);
        assert_eq!(fault(&twice, BLOCK).as_deref(), Some("two line pointers redirect to 2"));
    }
}

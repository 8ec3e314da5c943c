//! What is wrong with the rows of a heap page, seen by the page alone and the limits of its
//! table: a page that fits its sum and that no server writes.
//!
//! | tested | no server breaks it, because |
//! | --- | --- |
//! | tuples inside of the page, aligned, apart | see `items` |
//! | `t_hoff` is that of the attributes, nulls and oid | it is computed of them |
//! | xmin, xmax from the oldest that the table holds up to the next | older ones are frozen before `relfrozenxid` moves; the next was not given out |
//! | a multixact alike | `relminmxid` likewise |
//! | a multixact is not known to have committed | the hint is for single transactions |
//! | attributes not more than the table's, of a row that committed | columns are never removed |
//! | the bits 0x1800 of `t_infomask2` are clear | they have no meaning |
//! | redirects and rows that were updated in place | see `chains` |
//!
//! ```text
//! t_infomask                                   t_infomask2
//!   0x0001  has nulls                            0x07FF  attributes
//!   0x0008  has an oid (up to 11)                0x1800  never set
//!   0x0080  xmax only locks                      0x4000  updated in place (HOT)
//!   0x0100  xmin committed  \ both: frozen       0x8000  in no index (heap-only)
//!   0x0200  xmin aborted    /
//!   0x0400  xmax committed
//!   0x0800  xmax is none, or aborted
//!   0x1000  xmax is a multixact
//!   0x2000  made by an update
//! ```
//!
//! What healthy histories leave behind and is no fault: xmin 0 (an insertion with `ON
//! CONFLICT` that was taken back: `heap_abort_speculative`), xmin and xmax 1 and 2
//! (bootstrap, and rows frozen before 9.4), an xmax of any age with 0x0800 or of a row that
//! is frozen, locks of multixacts from before 9.3 (0x1000 and 0x0080 without 0x0050), `t_ctid`
//! of an update that aborted, more attributes than the table has by an `ALTER TABLE` that
//! aborted.
//!
//! Sources: `src/include/access/htup_details.h`, `src/backend/access/heap/heapam.c` and
//! `contrib/amcheck/verify_heapam.c` of 9.6 to 18.

use crate::files::witness::items::{ALIGN, Tiles, overlap};
use crate::files::witness::tid::u16_at;
use crate::files::witness::{chains, heap};
use crate::page::{HEADER_BYTES, Header};

/// Bytes of a tuple's header up to the bitmap of nulls.
pub(super) const ROW_HEADER: usize = 23;
/// The same with the first byte of the bitmap, as long as every tuple.
pub(super) const ROW_BYTES: usize = 24;
const _: () = assert!(ROW_BYTES == (ROW_HEADER + 7) & !7);
const XMAX: usize = 4;
pub(super) const CTID: usize = 12;
const FLAGS_2: usize = 18;
const FLAGS: usize = 20;
const DATA_BEGIN: usize = 22;

pub(super) const HAS_NULLS: u16 = 0x0001;
pub(super) const HAS_OID: u16 = 0x0008;
/// Key share, or exclusive.
const LOCKS: u16 = 0x0050;
pub(super) const XMAX_LOCK_ONLY: u16 = 0x0080;
/// `HEAP_XMIN_COMMITTED`, of `t_infomask`.
pub const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_INVALID: u16 = 0x0200;
pub(super) const XMAX_COMMITTED: u16 = 0x0400;
pub(super) const XMAX_INVALID: u16 = 0x0800;
pub(super) const XMAX_IS_MULTI: u16 = 0x1000;
const UPDATED: u16 = 0x2000;
pub(super) const FROZEN: u16 = XMIN_COMMITTED | XMIN_INVALID;

const ATTRIBUTES: u16 = 0x07FF;
const NEVER_SET: u16 = 0x1800;
pub(super) const HOT_UPDATED: u16 = 0x4000;
pub(super) const HEAP_ONLY: u16 = 0x8000;
/// The first transaction that is no constant.
const FIRST_TRANSACTION: u32 = 3;

/// Numbers from one up to another, which is not one of them; they go round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The oldest.
    pub oldest: u32,
    /// The one that is given out next.
    pub next: u32,
}

impl Numbers {
    /// True for one of them.
    #[inline]
    #[must_use]
    pub fn has(self, number: u32) -> bool {
        number.wrapping_sub(self.oldest) < self.next.wrapping_sub(self.oldest)
    }
}

/// What the rows of one table cannot go beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Transactions that are not frozen.
    pub transactions: Numbers,
    /// Multixacts.
    pub multixacts: Numbers,
    /// Columns of the table, those that were dropped among them.
    pub columns: u16,
}

/// The header of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) xmin: u32,
    pub(super) xmax: u32,
    pub(super) flags: u16,
    pub(super) flags_2: u16,
    data_begin: u8,
}

impl Row {
    #[inline]
    pub(super) fn read(bytes: &[u8; ROW_BYTES]) -> Self {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |b| u32::from_le_bytes(*b))
        };
        Self {
            xmin: word(0),
            xmax: word(XMAX),
            flags: u16_at(bytes, FLAGS),
            flags_2: u16_at(bytes, FLAGS_2),
            data_begin: bytes.get(DATA_BEGIN).copied().unwrap_or(0),
        }
    }

    /// True of what nearly every row is: nothing needs a second look.
    #[inline]
    fn is_plain(self, length: u32, limits: &Limits) -> bool {
        let is_frozen = self.flags & FROZEN == FROZEN;
        let made = is_frozen || limits.transactions.has(self.xmin);
        let removed = self.flags & XMAX_INVALID != 0
            || self.flags & XMAX_IS_MULTI == 0 && limits.transactions.has(self.xmax);
        let begins = self.data_begin == 24 && self.flags & (HAS_NULLS | HAS_OID) == 0;
        let attributes = self.flags_2 & (ATTRIBUTES | NEVER_SET);
        let fits = length >= 24 && attributes <= limits.columns;
        // Both known to have committed and a multixact is never right.
        let no_multi = self.flags & XMAX_IS_MULTI == 0 && self.flags_2 & HEAP_ONLY == 0;
        made & removed & begins & fits & no_multi
    }

    /// What is wrong with it, in words.
    fn fault(self, length: u16, limits: &Limits) -> Option<String> {
        let Self { xmin, xmax, flags, flags_2, data_begin } = self;
        let attributes = flags_2 & ATTRIBUTES;
        let nulls = if flags & HAS_NULLS == 0 { 0 } else { usize::from(attributes).div_ceil(8) };
        let oid = if flags & HAS_OID == 0 { 0 } else { 4 };
        let begin = (ROW_HEADER + nulls + oid).next_multiple_of(usize::from(ALIGN));
        if usize::from(data_begin) != begin || begin > usize::from(length) {
            return Some(format!(
                "its attributes begin at {data_begin} of {length} bytes, and must begin at {begin}"
            ));
        }
        if flags_2 & NEVER_SET != 0 {
            return Some(format!("t_infomask2 is 0x{flags_2:04x}, of which 0x1800 is never set"));
        }
        let is_committed = flags & XMIN_COMMITTED != 0;
        if is_committed && attributes > limits.columns {
            return Some(format!(
                "it has {attributes} attributes, and its table {} columns",
                limits.columns
            ));
        }
        if flags & FROZEN != FROZEN && !limits.has_transaction(xmin) {
            return Some(limits.transaction("xmin", xmin));
        }
        self.xmax_fault(limits).or_else(|| self.update_fault(xmax))
    }

    fn xmax_fault(self, limits: &Limits) -> Option<String> {
        let Self { xmax, flags, .. } = self;
        if flags & XMAX_IS_MULTI != 0 {
            if flags & XMAX_COMMITTED != 0 {
                return Some("its xmax is a multixact that is known to have committed".to_owned());
            }
            if xmax == 0 {
                return Some("its xmax is a multixact without a number".to_owned());
            }
            let is_old_lock = flags & XMAX_LOCK_ONLY != 0 && flags & LOCKS == 0;
            let is_asked = flags & XMAX_INVALID == 0 && !is_old_lock;
            return (is_asked && !limits.multixacts.has(xmax)).then(|| {
                let Numbers { oldest, next } = limits.multixacts;
                format!("its xmax is multixact {xmax}, not one from {oldest} to before {next}")
            });
        }
        let is_asked = flags & (XMAX_INVALID | XMAX_LOCK_ONLY) == 0;
        (is_asked && !limits.has_transaction(xmax)).then(|| limits.transaction("xmax", xmax))
    }

    /// Of rows that an update made, or replaced in place.
    fn update_fault(self, xmax: u32) -> Option<String> {
        let (flags, flags_2) = (self.flags, self.flags_2);
        if flags_2 & HEAP_ONLY != 0 && flags & UPDATED == 0 {
            return Some("it is in no index, as if an update had made it, and none has".to_owned());
        }
        let is_dead = flags & FROZEN == XMIN_INVALID;
        let is_replaced = flags_2 & HOT_UPDATED != 0 && flags & XMAX_INVALID == 0 && !is_dead;
        (is_replaced && xmax == 0).then(|| "it was updated in place, by no transaction".to_owned())
    }
}

impl Limits {
    fn has_transaction(&self, number: u32) -> bool {
        number < FIRST_TRANSACTION || self.transactions.has(number)
    }

    fn transaction(&self, field: &str, number: u32) -> String {
        let Numbers { oldest, next } = self.transactions;
        format!("its {field} is {number}, not a transaction from {oldest} to before {next}")
    }
}

/// What is wrong with a page of a table, in words; `None` if a server could have written it.
/// `page` has passed its own tests and is one of a heap. It is that of block `block`.
#[must_use]
pub fn fault(page: &[u8], block: u32, limits: &Limits) -> Option<String> {
    let header = Header::read(page)?;
    let (upper, end) = (u32::from(header.upper), u32::from(header.special));
    let pointers = page.get(HEADER_BYTES..usize::from(header.lower)).unwrap_or_default();
    let mut tiles = Tiles::default();
    // Redirects and rows of updates are looked at together.
    let mut has_chains = false;
    for (index, bits) in pointers.as_chunks::<4>().0.iter().enumerate() {
        let bits = u32::from_le_bytes(*bits);
        let state = bits >> 15 & 3;
        if state != 1 {
            has_chains |= state == 2;
            continue;
        }
        let (begin, length) = (bits & 0x7FFF, bits >> 17);
        let at = usize::try_from(begin).unwrap_or(usize::MAX);
        let row = page.get(at..).and_then(|rest| rest.first_chunk::<ROW_BYTES>());
        let is_inside = begin >= upper && begin.wrapping_add(length) <= end && begin & 7 == 0;
        let Some(row) = row.filter(|_| is_inside) else {
            let number = index.saturating_add(1);
            return Some(format!(
                "line pointer {number} leads to bytes {begin} to {}, and tuples are from {upper} to {end}, at multiples of 8",
                begin.saturating_add(length)
            ));
        };
        tiles = tiles.with(begin, length);
        let row = Row::read(row);
        has_chains |= row.flags_2 & (HOT_UPDATED | HEAP_ONLY) != 0;
        if !row.is_plain(length, limits)
            && let Some(text) = row.fault(u16::try_from(length).unwrap_or(u16::MAX), limits)
        {
            return Some(format!("row {}: {text}", index.saturating_add(1)));
        }
    }
    let apart = tiles.fill(upper, end);
    let chains = if has_chains { chains::fault(page, block) } else { None };
    chains.or_else(|| if apart { None } else { overlap(page) })
}

/// The header of the row that a line pointer of this number leads to.
pub(super) fn row(page: &[u8], number: u16) -> Option<(Row, &[u8; ROW_BYTES])> {
    match heap::line_pointer(page, number)? {
        heap::LinePointer::Normal { offset, .. } => {
            let bytes = page.get(usize::from(offset)..)?.first_chunk::<ROW_BYTES>()?;
            Some((Row::read(bytes), bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub const LIMITS: Limits = Limits {
        transactions: Numbers { oldest: 700, next: 800 },
        multixacts: Numbers { oldest: 5, next: 9 },
        columns: 3,
    };
    pub const BLOCK: u32 = 0x1_0002;

    /// A row of a test: xmin, xmax, t_ctid's number, t_infomask2, t_infomask.
    pub type Fields = (u32, u32, u16, u16, u16);

    /// A page with rows of 40 bytes, the first at its end; 24 of them are the header.
    pub fn page(rows: &[Fields]) -> Vec<u8> {
        let mut page = vec![0_u8; 8192];
        let count = u16::try_from(rows.len()).unwrap();
        let mut put = |at: usize, field: u16| {
            page[at..at + 2].copy_from_slice(&field.to_le_bytes());
        };
        put(12, 24 + 4 * count);
        put(14, 8192 - 40 * count);
        put(16, 8192);
        for (index, (xmin, xmax, next, flags_2, flags)) in rows.iter().enumerate() {
            let begin = 8192 - 40 * (index + 1);
            let bits = u32::try_from(begin).unwrap() | 1 << 15 | 40 << 17;
            page[24 + index * 4..][..4].copy_from_slice(&bits.to_le_bytes());
            let row = &mut page[begin..begin + 40];
            row[..4].copy_from_slice(&xmin.to_le_bytes());
            row[4..8].copy_from_slice(&xmax.to_le_bytes());
            row[12..14].copy_from_slice(&1_u16.to_le_bytes());
            row[14..16].copy_from_slice(&2_u16.to_le_bytes());
            row[16..18].copy_from_slice(&next.to_le_bytes());
            row[18..20].copy_from_slice(&flags_2.to_le_bytes());
            row[20..22].copy_from_slice(&flags.to_le_bytes());
            row[22] = 24;
        }
        page
    }

    /// Makes a line pointer another one.
    pub fn point(page: &mut [u8], number: usize, bits: u32) {
        page[20 + number * 4..][..4].copy_from_slice(&bits.to_le_bytes());
    }

    const NONE: u16 = XMAX_INVALID;

    #[test]
    fn rows_that_healthy_histories_leave_are_no_fault() {
        for (what, row) in [
            ("inserted", (700, 0, 1, 3, NONE)),
            ("by the newest transaction", (799, 0, 1, 3, NONE)),
            ("of no attributes", (750, 0, 1, 0, NONE | XMIN_COMMITTED)),
            ("frozen long ago", (17, 0, 1, 3, NONE | FROZEN)),
            ("frozen by 9.3", (2, 0, 1, 3, NONE | XMIN_COMMITTED)),
            ("taken back by ON CONFLICT", (0, 0, 1, 3, NONE)),
            ("replaced during bootstrap", (1, 1, 2, 3, XMIN_COMMITTED | XMAX_COMMITTED)),
            ("deletion aborted long ago", (750, 9, 1, 3, NONE | XMIN_COMMITTED)),
            ("locked long ago", (750, 9, 1, 3, XMIN_COMMITTED | XMAX_LOCK_ONLY)),
            ("locked by several", (750, 8, 1, 3, XMAX_IS_MULTI | XMAX_LOCK_ONLY | 0x10)),
            ("locked by several before 9.3", (750, 99, 1, 3, XMAX_IS_MULTI | XMAX_LOCK_ONLY)),
            ("with a column that was taken back", (750, 0, 1, 4, NONE | XMIN_INVALID)),
            ("deleted, moved to another partition", (750, 760, 0xFFFD, 3, XMIN_COMMITTED)),
        ] {
            assert_eq!(fault(&page(&[row]), BLOCK, &LIMITS), None, "{what}");
        }
        // Numbers go round.
        let numbers = Numbers { oldest: u32::MAX - 5, next: 10 };
        let around = Limits { transactions: numbers, ..LIMITS };
        for (xmin, is_sound) in [(u32::MAX, true), (9, true), (10, false), (u32::MAX - 6, false)] {
            let found = fault(&page(&[(xmin, 0, 1, 3, NONE)]), BLOCK, &around);
            assert_eq!(found.is_none(), is_sound, "{xmin}");
        }
    }

    #[test]
    fn rows_that_no_server_writes_are_faults() {
        for (row, words) in [
            ((699, 0, 1, 3, NONE), "its xmin is 699, not a transaction from 700 to before 800"),
            ((800, 0, 1, 3, NONE), "its xmin is 800"),
            ((750, 800, 1, 3, 0), "its xmax is 800"),
            ((750, 699, 1, 3, XMIN_COMMITTED), "its xmax is 699"),
            ((750, 4, 1, 3, XMAX_IS_MULTI), "its xmax is multixact 4, not one from 5 to before 9"),
            ((750, 9, 1, 3, XMAX_IS_MULTI | XMAX_LOCK_ONLY | 0x40), "its xmax is multixact 9"),
            ((750, 0, 1, 3, XMAX_IS_MULTI | NONE), "a multixact without a number"),
            ((750, 6, 1, 3, XMAX_IS_MULTI | XMAX_COMMITTED), "known to have committed"),
            ((750, 0, 1, 4, NONE | XMIN_COMMITTED), "it has 4 attributes, and its table 3 columns"),
            ((750, 0, 1, 0x803, NONE), "t_infomask2 is 0x0803"),
            (
                (750, 0, 1, 3, NONE | HAS_OID),
                "its attributes begin at 24 of 40 bytes, and must begin at 32",
            ),
            ((750, 0, 1, 9, NONE | HAS_NULLS), "must begin at 32"),
            ((750, 0, 1, 3 | HEAP_ONLY, NONE), "as if an update had made it"),
            ((750, 0, 1, 3 | HOT_UPDATED, 0), "by no transaction"),
        ] {
            let text = fault(&page(&[row]), BLOCK, &LIMITS).unwrap_or_default();
            assert!(text.starts_with("row 1: ") && text.contains(words), "{row:?}: {text}");
        }
    }

    #[test]
    fn tuples_outside_of_their_space_or_over_one_another_are_faults() {
        let row = (750, 0, 1, 3, NONE);
        let sound = page(&[row; 3]);
        assert_eq!(fault(&sound, BLOCK, &LIMITS), None);
        for (bits, words) in [
            (8064 | 1 << 15 | 40 << 17, "line pointer 3 leads to bytes 8064 to 8104"),
            (8160 | 1 << 15 | 40 << 17, "line pointer 3 leads to bytes 8160 to 8200"),
            (8073 | 1 << 15 | 40 << 17, "line pointer 3 leads to bytes 8073"),
            (8072 | 1 << 15 | 16 << 17, "row 3: its attributes begin at 24 of 16 bytes"),
            (8112 | 1 << 15 | 40 << 17, "line pointer 3 leads into the bytes of another"),
            (8072 | 1 << 15 | 48 << 17, "line pointer 3 leads into the bytes of another"),
        ] {
            let mut page = sound.clone();
            point(&mut page, 3, bits);
            let text = fault(&page, BLOCK, &LIMITS).unwrap_or_default();
            assert!(text.starts_with(words), "{bits:x}: {text}");
        }
        // What is free, or dead without its bytes, is no tuple.
        for bits in [0, 3 << 15] {
            let mut page = sound.clone();
            point(&mut page, 2, bits);
            assert_eq!(fault(&page, BLOCK, &LIMITS), None, "{bits:x}");
        }
    }

    proptest! {
        #[test]
        fn no_page_is_too_strange(
            rows in prop::collection::vec(any::<Fields>(), 1..60),
            changes in prop::collection::vec((0..8192_usize, any::<u8>()), 0..60),
            length in 0..=8192_usize,
        ) {
            let mut page = page(&rows);
            for (at, byte) in changes {
                page[at] = byte;
            }
            let _ = fault(&page, BLOCK, &LIMITS);
            let _ = fault(&page[..length], BLOCK, &LIMITS);
        }
    }
}

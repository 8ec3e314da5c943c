//! Whether a version of a row is the one that counts.
//!
//! ```text
//! t_infomask
//!   0x0010  xmax locks in key-share mode
//!   0x0040  xmax locks exclusively
//!   0x0080  xmax only locks
//!   0x0100  xmin is known to have committed        \ both: frozen
//!   0x0200  xmin is known to have aborted          /
//!   0x0400  xmax is known to have committed
//!   0x0800  xmax is none, or known to have aborted
//!   0x1000  xmax is a multixact
//!   0xC000  moved by VACUUM FULL before 9.0
//! ```
//!
//! Source: `src/include/access/htup_details.h` and
//! `src/backend/access/heap/heapam_visibility.c` of 9.6 to 18. The bits are
//! hints: the next process that reads the row after the end of the transaction sets
//! them, and where they are missing the transaction log is asked (`transactions`).

use crate::files::catalogue::transactions::{FIRST_TRANSACTION, Outcome, Transactions, Updater};
use crate::files::catalogue::tuple::Tuple;

const XMAX_EXCLUSIVE_LOCK: u16 = 0x0040;
const XMAX_LOCK_ONLY: u16 = 0x0080;
const XMIN_COMMITTED: u16 = 0x0100;
const XMIN_INVALID: u16 = 0x0200;
const XMAX_COMMITTED: u16 = 0x0400;
const XMAX_INVALID: u16 = 0x0800;
const XMAX_IS_MULTI: u16 = 0x1000;
const MOVED: u16 = 0xC000;
/// Key share, or exclusive.
const LOCKS: u16 = 0x0010 | XMAX_EXCLUSIVE_LOCK;

/// Whether a version of a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Visibility {
    /// Its maker has committed, and no transaction has replaced or removed it.
    Current,
    /// A transaction that may yet commit or abort, or of which nothing can be
    /// read, has made or removed it.
    InDoubt,
    /// It was never committed, or is replaced or removed.
    Dead,
}

/// Who a row itself says has committed, or aborted, where the transaction log must say
/// the same: the hint was set by someone who had asked it.
pub fn hints(tuple: &Tuple<'_>) -> impl Iterator<Item = (u32, Outcome)> {
    let flags = tuple.flags;
    let maker = match flags & (XMIN_COMMITTED | XMIN_INVALID) {
        XMIN_COMMITTED => Some((tuple.xmin, Outcome::Committed)),
        XMIN_INVALID => Some((tuple.xmin, Outcome::Aborted)),
        // Frozen, or not asked yet.
        _ => None,
    };
    let is_removed = flags & XMAX_COMMITTED != 0 && flags & (XMAX_IS_MULTI | XMAX_INVALID) == 0;
    let remover = is_removed.then_some((tuple.xmax, Outcome::Committed));
    let is_plain = flags & MOVED == 0;
    maker.into_iter().chain(remover).filter(move |_| is_plain)
}

/// Whether this version counts.
pub fn visibility(tuple: &Tuple<'_>, transactions: &mut Transactions) -> Visibility {
    let flags = tuple.flags;
    let made = match flags & (XMIN_COMMITTED | XMIN_INVALID) {
        0 if flags & MOVED != 0 => Outcome::Unknown,
        0 => transactions.outcome(tuple.xmin),
        XMIN_INVALID => Outcome::Aborted,
        _ => Outcome::Committed,
    };
    if made == Outcome::Aborted {
        return Visibility::Dead;
    }
    match (made, removed(tuple, transactions)) {
        (_, Outcome::Committed) => Visibility::Dead,
        (Outcome::Committed, Outcome::Aborted) => Visibility::Current,
        _ => Visibility::InDoubt,
    }
}

/// What is wrong with the hint of a version, which the server believes: `pg_xact` says outright that its
/// transaction ended the other way.
pub fn wrong_hint(tuple: &Tuple<'_>, transactions: &mut Transactions) -> Option<String> {
    let (hint, end) = match tuple.flags & (XMIN_COMMITTED | XMIN_INVALID) {
        XMIN_COMMITTED => ("committed", Outcome::Aborted),
        XMIN_INVALID => ("did not commit", Outcome::Committed),
        // None, or it is frozen, and the number means nothing any more.
        _ => return None,
    };
    let word = if end == Outcome::Aborted { "aborted" } else { "committed" };
    let is_wrong = tuple.flags & MOVED == 0
        && tuple.xmin >= FIRST_TRANSACTION
        && transactions.written(tuple.xmin) == Some(end);
    is_wrong.then(|| {
        format!("its hint says that transaction {} {hint}, pg_xact that it {word}", tuple.xmin)
    })
}

/// How the transaction ended that removed or replaced it; `Aborted` if there is
/// none.
fn removed(tuple: &Tuple<'_>, transactions: &mut Transactions) -> Outcome {
    let flags = tuple.flags;
    // An exclusive lock alone is how lockers looked before 9.3.
    let only_locks =
        flags & XMAX_LOCK_ONLY != 0 || flags & (XMAX_IS_MULTI | LOCKS) == XMAX_EXCLUSIVE_LOCK;
    if tuple.xmax == 0 || flags & XMAX_INVALID != 0 || only_locks {
        return Outcome::Aborted;
    }
    if flags & XMAX_IS_MULTI != 0 {
        return match transactions.updater(tuple.xmax) {
            Updater::NoTransaction => Outcome::Aborted,
            Updater::Transaction(updater) => transactions.outcome(updater),
            Updater::Unknown => Outcome::Unknown,
        };
    }
    if flags & XMAX_COMMITTED != 0 {
        return Outcome::Committed;
    }
    transactions.outcome(tuple.xmax)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::catalogue::transactions::Moment;

    /// A version made and removed by two transactions, with its hints.
    fn seen(xmin: u32, xmax: u32, flags: u16) -> Visibility {
        let mut bytes = [0_u8; 24];
        bytes[..4].copy_from_slice(&xmin.to_le_bytes());
        bytes[4..8].copy_from_slice(&xmax.to_le_bytes());
        bytes[20..22].copy_from_slice(&flags.to_le_bytes());
        bytes[22] = 24;
        // Nothing is known of any transaction.
        let root = tempfile::tempdir().unwrap();
        let mut none = Transactions::new(root.path(), 18, 8192, Moment::AtRest);
        visibility(&Tuple::parse(&bytes).unwrap(), &mut none)
    }

    #[test]
    fn hints_are_enough_where_they_are_there() {
        use Visibility::{Current, Dead, InDoubt};
        const FROZEN: u16 = XMIN_COMMITTED | XMIN_INVALID;
        for (xmin, xmax, flags, expected) in [
            (700, 0, XMIN_COMMITTED, Current),
            (700, 0, FROZEN, Current),
            (2, 0, 0, Current),
            (1, 0, 0, Current),
            (700, 0, XMIN_INVALID, Dead),
            (700, 0, 0, InDoubt),
            (700, 0, XMIN_COMMITTED | MOVED, Current),
            (2, 0, MOVED, InDoubt),
            (700, 701, XMIN_COMMITTED, InDoubt),
            (700, 701, XMIN_COMMITTED | XMAX_COMMITTED, Dead),
            (700, 701, FROZEN | XMAX_COMMITTED, Dead),
            (700, 701, XMIN_COMMITTED | XMAX_INVALID, Current),
            (700, 701, XMIN_COMMITTED | XMAX_LOCK_ONLY, Current),
            (700, 701, XMIN_COMMITTED | XMAX_EXCLUSIVE_LOCK, Current),
            (700, 5, XMIN_COMMITTED | XMAX_IS_MULTI | XMAX_LOCK_ONLY, Current),
            (700, 5, XMIN_COMMITTED | XMAX_IS_MULTI, InDoubt),
            (700, 5, XMIN_COMMITTED | XMAX_IS_MULTI | XMAX_EXCLUSIVE_LOCK, InDoubt),
            (700, 701, XMIN_INVALID | XMAX_COMMITTED, Dead),
            // Its remover has committed: so had its maker, or was the same.
            (700, 701, XMAX_COMMITTED, Dead),
        ] {
            assert_eq!(seen(xmin, xmax, flags), expected, "{xmin} {xmax} {flags:#06x}");
        }
    }
}

//! What proves that a candidate is the version of a page that was last written.
//!
//! A candidate comes from a copy of which it is known that its pages are those of some moment at or
//! behind the position `since` of the log, and that its history is that of the cluster up to there. It
//! is exact if one of these holds, and none of the exceptions:
//!
//! | rule | what must be so |
//! | --- | --- |
//! | by LSN | the log names the block; the page's LSN is where the last record about it ends, and nothing behind it may have changed the block without naming it ([`log`](super::log)) |
//! | by position | no record in the log names the block; the log reaches back to `since`; nothing from there on may have changed the block without naming it; the page's LSN is before all of the log; and the copy's file is that of the relation ([`kin`](super::kin)) |
//!
//! | exception | why |
//! | --- | --- |
//! | unlogged and temporary relations | their changes are not in the log |
//! | sequences, and metapages of SP-GiST, unless both were shut down at one checkpoint | a server changes them on disk more often than it says so in the log |
//! | clusters whose `wal_level` is or was minimal, as far back | bulk loads are not in the log |
//! | images of pages of GiST and hash indexes | replay changes such a page behind its image; a build leaves other LSNs on disk |
//! | pages without a checksum, but for images in the log, whose records have sums of their own | nothing shows that the candidate itself is sound |
//!
//! Both rules have a guard against a clone that went its own way, and against a page that the copy
//! itself failed to write: its LSN is one at which the cluster's own log says nothing of this block, or
//! not the last one.

use std::collections::HashSet;

use crate::page::{FIRST_REAL_LSN, Header};
use crate::repair::log::{Block, Log, Touch};
use pagewarden_core::words::{LsnText, counted};

/// `SEQ_MAGIC`.
const SEQUENCE_MAGIC: u32 = 0x1717;
/// `SPGIST_PAGE_ID`, in the last two bytes of a page.
const SPGIST_PAGE: u16 = 0xFF82;
/// `GIST_PAGE_ID`, at the same place.
const GIST_PAGE: u16 = 0xFF81;
/// `SPGIST_META`, a flag at the begin of its special space.
const SPGIST_META: u16 = 1;

/// What of a copy matters for a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    /// Its pages are of this position or later ones.
    pub(super) since: u64,
    /// Both clusters were shut down, as servers that were no standby, at one checkpoint.
    pub(super) is_same_state: bool,
    /// Why nothing can be proved by this copy, if so.
    pub(super) doubt: Option<String>,
}

/// What a candidate is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Worth {
    /// Nothing changed it since; why.
    Exact(String),
    /// The same, if something shows besides that it is a page of this relation ([`kin`](super::kin)).
    ExactOfKin(String),
    /// A version that the page has had, or may have had; why it is no more.
    Older(String),
    /// Not a version of this page.
    Foreign(String),
}

/// What a candidate from a copy is worth.
pub(super) fn worth(page: &[u8], block: Block, copy: &Copy, log: Result<&Log, &str>) -> Worth {
    let Some(header) = Header::read(page) else {
        return Worth::Foreign("it is shorter than a page's header".to_owned());
    };
    let lsn = header.lsn;
    let log = match (&copy.doubt, log) {
        (Some(doubt), _) => return Worth::Older(doubt.clone()),
        (None, Err(why)) => return Worth::Older(format!("the log cannot be asked: {why}")),
        (None, Ok(log)) => log,
    };
    if let Some(what) = is_changed_unseen(page, &header).filter(|_| !copy.is_same_state) {
        return Worth::Older(format!("{what}, which a server changes on disk without the log"));
    }
    match log.touches(block).last() {
        Some(last) => by_lsn(lsn, block, *last, copy, log),
        None => by_position(lsn, block, copy, log),
    }
}

/// The log has records about this block: the page must be what the last of them made.
fn by_lsn(lsn: u64, block: Block, last: Touch, copy: &Copy, log: &Log) -> Worth {
    if let Some(event) = log.last_event(block).filter(|event| event.begin >= last.begin) {
        // Nothing has come after the copy.
        if copy.is_same_state && event.begin < copy.since {
            return by_position(lsn, block, copy, log);
        }
        return Worth::Older(format!("{} at {}", event.what, LsnText(event.begin)));
    }
    // Pages of a GiST index keep the LSN of its build on disk, whatever the log says.
    if copy.is_same_state && lsn < FIRST_REAL_LSN {
        return by_position(lsn, block, copy, log);
    }
    if lsn == last.end {
        return Worth::Exact(format!(
            "its LSN is that of the last record about this block ({}), and the log was read to its end",
            LsnText(last.begin)
        ));
    }
    let touches = log.touches(block);
    let is_known = touches.iter().any(|touch| touch.end == lsn);
    let may_be_known = lsn <= log.begin || log.last_event(block).is_some_and(|it| it.begin >= lsn);
    if !is_known && !may_be_known {
        return own_history(lsn);
    }
    let since = copy.since.max(log.begin);
    let later: Vec<_> = touches.iter().filter(|touch| touch.begin >= since).collect();
    if later.is_empty() {
        return Worth::Older(format!(
            "its LSN is {}, and the last record about this block ends at {}",
            LsnText(lsn),
            LsnText(last.end)
        ));
    }
    Worth::Older(changed_since(&later, copy.since))
}

/// The log has no record about this block.
fn by_position(lsn: u64, block: Block, copy: &Copy, log: &Log) -> Worth {
    let event = log.last_event(block);
    // A database that was made by copying files has the LSNs of the one that was copied.
    if lsn > log.begin && event.is_none_or(|event| event.begin < lsn) {
        return own_history(lsn);
    }
    if copy.since < log.begin {
        return Worth::Older(format!(
            "the copy is as of {}, and the log begins at {}",
            LsnText(copy.since),
            LsnText(log.begin)
        ));
    }
    if let Some(event) = event.filter(|event| event.begin >= copy.since) {
        return Worth::Older(format!("{} at {}", event.what, LsnText(event.begin)));
    }
    match copy.is_same_state {
        true => Worth::ExactOfKin("both were shut down at the same checkpoint".to_owned()),
        false => Worth::ExactOfKin(format!(
            "as of {}; the log was read from there to its end, and says nothing of this block",
            LsnText(copy.since)
        )),
    }
}

/// Of a page that another history has changed.
fn own_history(lsn: u64) -> Worth {
    Worth::Foreign(format!(
        "its LSN is {}, at which the log says nothing of this block: the copy has a history of its own",
        LsnText(lsn)
    ))
}

/// What a zero page is worth that is one of the last of a copy's file, which a server has made and not
/// used yet: such pages are in no record of the log.
pub(super) fn of_unused(block: Block, copy: &Copy, log: Result<&Log, &str>) -> Worth {
    let log = match (&copy.doubt, log) {
        (Some(doubt), _) => return Worth::Older(doubt.clone()),
        (None, Err(why)) => return Worth::Older(format!("the log cannot be asked: {why}")),
        (None, Ok(log)) => log,
    };
    if let Some(last) = log.touches(block).last() {
        return Worth::Foreign(format!(
            "it is all zero, and the log has a record about it at {}",
            LsnText(last.begin)
        ));
    }
    by_position(0, block, copy, log)
}

/// The image that the log ends with for a block, if that proves anything.
pub(super) fn last_image(block: Block, log: &Log) -> Option<Touch> {
    let last = log.touches(block).last().copied()?;
    let is_last = log.last_event(block).is_none_or(|event| event.begin < last.begin);
    (last.has_image && is_last).then_some(last)
}

/// True for a page of which an image in the log is not what is on disk: those of GiST indexes, which keep
/// the LSN of the build that wrote them.
pub(super) fn is_gist(page: &[u8]) -> bool {
    page.last_chunk().map(|word| u16::from_le_bytes(*word)) == Some(GIST_PAGE)
}

/// What may change on disk and not in the log, in words.
pub(super) fn is_changed_unseen(page: &[u8], header: &Header) -> Option<&'static str> {
    if header.lsn == 0 {
        return Some("it is a page without an LSN");
    }
    let special = page.get(usize::from(header.special)..).unwrap_or_default();
    let first = special.first_chunk().map(|word| u32::from_le_bytes(*word));
    if special.len() <= 8 && first == Some(SEQUENCE_MAGIC) {
        return Some("it is a sequence");
    }
    let id = page.last_chunk().map(|word| u16::from_le_bytes(*word));
    let flags = special.first_chunk().map(|word| u16::from_le_bytes(*word));
    let is_meta = special.len() == 8
        && id == Some(SPGIST_PAGE)
        && flags.is_some_and(|flags| flags & SPGIST_META != 0);
    is_meta.then_some("it is the metapage of an SP-GiST index")
}

fn changed_since(later: &[&Touch], since: u64) -> String {
    let transactions: HashSet<u32> =
        later.iter().map(|touch| touch.transaction).filter(|one| *one != 0).collect();
    let last = later.last().map_or(0, |touch| touch.begin);
    format!(
        "as of {} or later; from there on the log changes this block in {} of {}, the last at {}",
        LsnText(since),
        counted(later.len() as u64, "record"),
        counted(transactions.len() as u64, "transaction"),
        LsnText(last)
    )
}

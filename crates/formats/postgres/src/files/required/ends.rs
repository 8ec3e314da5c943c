//! What the log says of the ends of transactions, against `pg_xact` and `pg_twophase`.
//!
//! ```text
//! record of RM_XACT_ID    xl_xid is the transaction; xl_info & 0x70 is
//!   0x00 a commit   0x10 a prepare   0x20 an abort   0x30, 0x40 the end of a prepared one (xl_xid is 0)
//! ```
//!
//! An end is in the log before it is in `pg_xact`, and the checkpoint of a clean stop writes what is missing
//! there. So each end that the log still has is in `pg_xact`, unless a VACUUM has removed that part of it. A
//! prepared transaction has no end, and then a file: the checkpoint writes that, too.
//!
//! Only records count that lead, each linked to the one before, to the checkpoint that the control file names:
//! what was replaced by another history does not. Source: `src/backend/access/transam/{xact,twophase}.c`,
//! `src/include/access/xact.h`, 9.6 to 18.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::Lacks;
use super::status::PAGES_A_SEGMENT;
use crate::files::catalogue::transactions::{Moment, Outcome, Transactions, prepared};
use crate::files::control::Control;
use crate::files::log_end::is_still_at_rest;
use crate::files::state::Circumstances;
use crate::files::wal::block::{OF_TRANSACTIONS, RecordHeader, TRANSACTION_OPERATION};
use crate::files::wal::reader::LogReader;
use crate::files::wal::segment::Segments;
use pagewarden_core::verdict::Kind;
use pagewarden_core::words::{LsnText, counted};

const COMMIT: u8 = 0x00;
const PREPARE: u8 = 0x10;
const ABORT: u8 = 0x20;
const CHUNK_BYTES: usize = 1 << 20;
/// So much of the log is read, up to its end: the size that a server keeps it at, if nothing else is said.
const BYTES_MAX: u64 = 1 << 30;
/// Prepared transactions that are remembered.
const PREPARED_MAX: usize = 1 << 20;
/// Lost files of prepared transactions that are named.
const NAMED_MAX: usize = 100;

/// What the log says and the files do not.
#[derive(Debug, Default)]
struct Ends {
    /// By the number of a file of `pg_xact`: how many, the first transaction, and where its end is.
    otherwise: BTreeMap<u64, (u64, u32, u64)>,
    prepared: Vec<(u32, u64)>,
}

impl Ends {
    fn add(&mut self, header: RecordHeader, at: u64, page_size: u64, status: &mut Transactions) {
        let transaction = header.transaction;
        if header.manager != OF_TRANSACTIONS || transaction == 0 {
            return;
        }
        let is_otherwise = match header.info & TRANSACTION_OPERATION {
            COMMIT => {
                status.has_no_end(transaction)
                    || status.written(transaction) == Some(Outcome::Aborted)
            }
            ABORT => status.written(transaction) == Some(Outcome::Committed),
            PREPARE => {
                if self.prepared.len() < PREPARED_MAX {
                    self.prepared.push((transaction, at));
                }
                false
            }
            _ => false,
        };
        if is_otherwise {
            let file = u64::from(transaction) / 4 / page_size.max(1) / PAGES_A_SEGMENT;
            self.otherwise.entry(file).or_insert((0, transaction, at)).0 += 1;
        }
    }
}

impl Lacks<'_> {
    /// Of a cluster that was shut down cleanly.
    pub(super) fn ends_of_transactions(&mut self, control: &Control, wal: Option<&Path>) {
        if self.cluster.circumstances != Circumstances::AtRest {
            return;
        }
        let root = self.cluster.root.clone();
        let (major, status) = match self.cluster.major.as_str() {
            "9.6" => (9, "pg_clog"),
            _ => (10, "pg_xact"),
        };
        let Some(segments) = self.segments(control, wal) else { return };
        let page_size = self.cluster.page_size;
        let mut transactions = Transactions::new(&root, major, page_size, Moment::AtRest);
        let add = |ends: &mut Ends, header, at| {
            ends.add(header, at, page_size as u64, &mut transactions);
        };
        let Some(ends) = read(&segments, control.checkpoint_lsn, add) else { return };
        // That the folder cannot be read is said elsewhere.
        let files = prepared(&root.join("pg_twophase"));
        let lost = files.map(|files| lost(&ends, &files, &mut transactions)).unwrap_or_default();
        // Files are not those of this log any more once a server has been started.
        if !is_still_at_rest(&root, control.checkpoint_lsn) {
            return;
        }
        for (file, (count, first, at)) in ends.otherwise {
            let path = root.join(status).join(format!("{file:04X}"));
            let detail = format!(
                "the log has the ends of {} that this file does not have so, the first of {first} at {}: it is older than the log, and what they changed is lost or comes back",
                counted(count, "transaction"),
                LsnText(at),
            );
            self.finding(&path, Kind::Stale, detail);
        }
        for (transaction, at) in lost.into_iter().take(NAMED_MAX) {
            let detail = format!(
                "the log has the prepared transaction {transaction} at {}, and neither its end nor its file is here",
                LsnText(at)
            );
            // Of 17 and later it is not known how often numbers began anew, which is in the name.
            self.finding(&root.join("pg_twophase"), Kind::Missing, detail);
        }
    }
}

/// Prepared transactions without an end and without a file.
fn lost(ends: &Ends, files: &HashSet<u32>, status: &mut Transactions) -> Vec<(u32, u64)> {
    let mut lost: Vec<_> = ends.prepared.clone();
    lost.retain(|(transaction, _)| !files.contains(transaction) && status.has_no_end(*transaction));
    lost.sort_unstable();
    lost.dedup_by_key(|(transaction, _)| *transaction);
    lost
}

/// Reads what there is of the log before the record at `last`, which is where it must lead; `None` if it
/// does not.
fn read(
    segments: &Segments,
    last: u64,
    mut add: impl FnMut(&mut Ends, RecordHeader, u64),
) -> Option<Ends> {
    let segment_bytes = segments.segment_bytes();
    let listed: HashSet<u64> = segments
        .listed()
        .filter(|name| name.timeline == segments.timeline)
        .map(|name| name.begin)
        .collect();
    let mut first = segments.segment_of(last).begin;
    while last.saturating_sub(first) < BYTES_MAX
        && let Some(before) = first.checked_sub(segment_bytes)
        && listed.contains(&before)
    {
        first = before;
    }
    let mut reader = LogReader::new(segments.clone(), first, None, CHUNK_BYTES);
    // Behind a break it begins anew, with the next segment.
    while first <= last {
        let mut ends = Ends::default();
        let mut reached = first;
        if reader.go_to(first).is_ok() {
            while let Ok(record) = reader.next_record() {
                if record.begin >= last {
                    return (record.begin == last).then_some(ends);
                }
                add(&mut ends, record.header, record.begin);
                reached = record.end;
            }
        }
        let next = reached.saturating_add(1).checked_next_multiple_of(segment_bytes)?;
        first = next.max(first.saturating_add(segment_bytes));
    }
    None
}

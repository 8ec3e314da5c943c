//! Small files with a sum of their own that a server reads when it starts, and does not start
//! without: prepared transactions, replication slots, origins of replication, settings.
//!
//! ```text
//! pg_twophase/<xid>                  magic (4), length of the file (4) ... CRC-32C of all before (4)
//! pg_replslot/<name>/state           magic (4), CRC-32C of all behind it (4), version (4),
//!                                    length of what follows (4) ...
//! pg_logical/replorigin_checkpoint   magic (4) ... CRC-32C of all before (4)
//! ```
//!
//! Sources: `TwoPhaseFileHeader` in `src/backend/access/transam/twophase.c`,
//! `ReplicationSlotOnDisk` in `src/backend/replication/slot.c`, `CheckPointReplicationOrigin` in
//! `src/backend/replication/logical/origin.c`, 9.6 to 18.

use crate::files::control::u32_at;
use pagewarden_core::crc::crc32c;
use pagewarden_core::verdict::Kind;

/// More than any of them has.
pub(super) const SMALL_BYTES_MAX: usize = 64 << 20;
/// The bytes of a slot's state before what its sum covers, and before what its length covers.
const SLOT_UNSUMMED: usize = 8;
const SLOT_HEAD: usize = 16;
const SLOT_MAGIC: u32 = 0x0105_1CA1;
const ORIGIN_MAGIC: u32 = 0x1257_DADE;

/// What is wrong with a file, and a sentence.
pub(super) type Fault = (Kind, String);

/// The state of a prepared transaction.
pub(super) fn prepared(bytes: &[u8]) -> Option<Fault> {
    let length = u32_at(bytes, 4).and_then(|length| usize::try_from(length).ok());
    if length != Some(bytes.len()) {
        return Some(odd_length(bytes.len(), length));
    }
    sum_at_end(bytes)
}

/// The state of a replication slot.
pub(super) fn slot(bytes: &[u8]) -> Option<Fault> {
    if u32_at(bytes, 0) != Some(SLOT_MAGIC) {
        return Some(wrong_magic(bytes));
    }
    let length = u32_at(bytes, 12).and_then(|length| usize::try_from(length).ok());
    let end = length.and_then(|length| length.checked_add(SLOT_HEAD));
    let Some(summed) = end.and_then(|end| bytes.get(SLOT_UNSUMMED..end)) else {
        return Some(odd_length(bytes.len(), end));
    };
    (u32_at(bytes, 4) != Some(crc32c(summed))).then(wrong_sum)
}

/// How far subscriptions have come.
pub(super) fn origins(bytes: &[u8]) -> Option<Fault> {
    if u32_at(bytes, 0) != Some(ORIGIN_MAGIC) {
        return Some(wrong_magic(bytes));
    }
    sum_at_end(bytes)
}

/// Settings are text.
pub(super) fn settings(bytes: &[u8]) -> Option<Fault> {
    bytes.contains(&0).then(|| {
        let detail = "it holds zero bytes, which no text does: no server reads such settings";
        (Kind::Header, detail.to_owned())
    })
}

fn sum_at_end(bytes: &[u8]) -> Option<Fault> {
    let summed =
        bytes.len().checked_sub(4).and_then(|end| bytes.get(..end).zip(u32_at(bytes, end)));
    match summed {
        Some((summed, sum)) if crc32c(summed) == sum => None,
        Some(_) => Some(wrong_sum()),
        None => Some(odd_length(bytes.len(), None)),
    }
}

fn odd_length(length: usize, expected: Option<usize>) -> Fault {
    let expected = expected.map_or_else(String::new, |bytes| format!(", by its own word {bytes}"));
    (Kind::Truncated, format!("the file has {length} bytes{expected}"))
}

fn wrong_magic(bytes: &[u8]) -> Fault {
    let what =
        if bytes.iter().all(|byte| *byte == 0) { "it is all zero" } else { "its magic is wrong" };
    let what = if bytes.is_empty() { "it is empty" } else { what };
    (Kind::Header, format!("{what}: no server starts with this file"))
}

fn wrong_sum() -> Fault {
    (
        Kind::Checksum,
        "its CRC does not match its content: no server starts with this file".to_owned(),
    )
}

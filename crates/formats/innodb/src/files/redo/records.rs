//! The log of MariaDB 10.8 and later: one ring of mini-transactions.
//!
//! The byte at LSN l lies at 12288 + (l - first LSN) modulo (file size - 12288).
//! A mini-transaction is a row of records, a byte 1 or 0 that changes each time
//! the ring begins anew, eight more bytes where the log is encrypted, and the
//! CRC-32C of all but that one byte. A record:
//!
//! ```text
//! 1 byte   bit 7: the page of the record before, or of no page if there was none
//!          bits 4-6: type; bits 0-3: the length of what follows, or 0
//! varint   the length beyond 15, if those bits are 0; it counts itself
//! varint   tablespace, unless it is the page of the record before
//! varint   page, likewise
//!          the change
//! ```
//!
//! Source: `log0recv.cc` and `mtr0types.h` of MariaDB 10.11.

use pagewarden_core::crc::Crc32c;

use crate::files::fields::{u32_at, u64_at};
use crate::files::redo::{
    Changed, Histories, Layout, LogFault, LogFile, NoLog, PAGES_MAX, PageChanges, Pending,
    READ_BYTES_MAX, RedoLog, sums_of,
};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::Kind;

const RING_BEGIN: u64 = 12_288;
const CHECKPOINTS: [u64; 2] = [4096, 8192];
const CHECKPOINT_LSN: usize = 0;
const CHECKPOINT_CONFIRMED_AT: usize = 8;
const CHECKPOINT_SUM: usize = 60;
const CHECKPOINT_BYTES: usize = 64;

/// `MTR_SIZE_MAX`.
const MINI_TRANSACTION_BYTES_MAX: usize = 1 << 20;
const NONCE_BYTES: usize = 8;
/// Two histories that each changed as much may have the same last few records.
const SHARED_BYTES_MIN: u64 = 1 << 20;
/// The same where both logs are there from their beginning.
const SHARED_WHOLE_BYTES_MIN: u64 = 64 << 10;
/// Logs are compared by pieces of this.
const COMPARED_BYTES: u64 = 256 << 10;
/// More than what follows a checkpoint after a clean shutdown.
const CONFIRMATION_BYTES_MAX: u64 = 64 << 10;
const READ_AHEAD_BYTES: usize = 256 << 10;

const SAME_PAGE: u8 = 0x80;
const TYPE_OF_PAGE: u8 = 0x70;
const FREE_PAGE: u8 = 0x00;
const INIT_PAGE: u8 = 0x10;
const TYPE_OF_FILE: u8 = 0xF0;
const FILE_MODIFY: u8 = 0xB0;
const FILE_CHECKPOINT: u8 = 0xF0;

/// What a record is about.
enum About {
    Freed((u32, u32)),
    Rebuilt((u32, u32)),
    Changed,
    /// Says that a file was changed, or confirms a checkpoint, or fills.
    Nothing,
    /// Makes, renames or removes a file.
    File,
}

/// Where recovery begins.
pub(super) fn newest_checkpoint(file: &LogFile) -> Option<u64> {
    let newest = newest_of(file, &mut Vec::new()).ok()?;
    newest.map(|(checkpoint, _)| checkpoint)
}

/// Compares two logs up to the end of the shorter one, as far back as both still reach.
pub(super) fn histories(ours: &LogFile, theirs: &LogFile) -> Histories {
    let (Some(one), Some(two)) = (newest_checkpoint(ours), newest_checkpoint(theirs)) else {
        return Histories::Unknown;
    };
    let begin = oldest(ours, one).max(oldest(theirs, two));
    let end = one.min(two);
    if begin >= end {
        return Histories::Unknown;
    }
    let mut lsn = end;
    while lsn > begin {
        let from = begin.max(lsn.saturating_sub(COMPARED_BYTES));
        let (Some(one), Some(two)) = (bytes_at(ours, from, lsn), bytes_at(theirs, from, lsn))
        else {
            return Histories::Unknown;
        };
        if one != two {
            // A log that was made anew counts its rounds from there.
            let is_one_log = ours.header == theirs.header && ours.bytes == theirs.bytes;
            return if is_one_log { Histories::Apart } else { Histories::Unknown };
        }
        lsn = from;
    }
    let is_whole = begin == ours.header.start_lsn && begin == theirs.header.start_lsn;
    let enough = if is_whole { SHARED_WHOLE_BYTES_MIN } else { SHARED_BYTES_MIN };
    match end.saturating_sub(begin) >= enough {
        true => Histories::Shared(begin..end),
        false => Histories::Unknown,
    }
}

/// Reads a log that was closed from its beginning, or the first of these positions from which it can
/// be, to its end. At each of them a mini-transaction begins.
pub(super) fn changed_since(file: &LogFile, shutdowns: &[u64]) -> Option<Changed> {
    let checkpoint = newest_checkpoint(file)?;
    let oldest = oldest(file, checkpoint);
    let begins = shutdowns.iter().copied().chain([file.header.start_lsn]);
    let mut begins: Vec<_> = begins.filter(|lsn| *lsn >= oldest && *lsn <= checkpoint).collect();
    begins.sort_unstable();
    begins.into_iter().find_map(|lsn| changed_from(file, lsn, checkpoint))
}

fn changed_from(file: &LogFile, lsn: u64, checkpoint: u64) -> Option<Changed> {
    let mut ring = Ring::new(file, lsn)?;
    let mut changed = Changed { since: lsn, ..Changed::default() };
    let mut transaction = Vec::new();
    let mut end = lsn;
    while ring.next_transaction(&mut transaction).is_some() {
        end = ring.lsn;
        add_changes(&transaction, end, &mut changed)?;
        if changed.pages.len() > PAGES_MAX {
            return None;
        }
    }
    (end > checkpoint && !ring.is_given_up).then_some(changed)
}

/// Adds what the records of a mini-transaction change; `None` where one is not understood.
fn add_changes(mut records: &[u8], lsn: u64, changed: &mut Changed) -> Option<()> {
    let mut has_page = false;
    while !records.is_empty() {
        let head = *records.first()?;
        let is_named = head & SAME_PAGE == 0 || !has_page;
        let (about, behind) = record(records, &mut has_page)?;
        // The page of the record before is there already.
        if is_named && !matches!(about, About::Nothing) {
            let (space, page) = ids_of(records)?;
            match about {
                About::File => {
                    changed.spaces.insert(space, lsn);
                }
                _ => {
                    changed.pages.insert((space, page), lsn);
                }
            }
        }
        records = behind;
    }
    Some(())
}

/// The tablespace and the page that a record names.
fn ids_of(record: &[u8]) -> Option<(u32, u32)> {
    let (head, rest) = record.split_first()?;
    let body = if head & 0x0F == 0 { varint(rest)?.1 } else { rest };
    let (space, body) = varint(body)?;
    Some((space, varint(body)?.0))
}

/// The oldest position that a log of this end still holds.
fn oldest(file: &LogFile, checkpoint: u64) -> u64 {
    let capacity = file.bytes.saturating_sub(RING_BEGIN);
    let end = checkpoint.saturating_add(CONFIRMATION_BYTES_MAX);
    file.header.start_lsn.max(end.saturating_sub(capacity))
}

/// What lies between two positions of the ring.
fn bytes_at(file: &LogFile, begin: u64, end: u64) -> Option<Vec<u8>> {
    let capacity = file.bytes.checked_sub(RING_BEGIN)?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(begin)?).ok()?];
    let within = begin.checked_sub(file.header.start_lsn)?.checked_rem(capacity)?;
    let first = usize::try_from(capacity.checked_sub(within)?).ok()?.min(bytes.len());
    let (front, back) = bytes.split_at_mut_checked(first)?;
    let count = read_fully(&file.file, front, RING_BEGIN.checked_add(within)?).ok()?;
    let rest = read_fully(&file.file, back, RING_BEGIN).ok()?;
    (count == front.len() && rest == back.len()).then_some(bytes)
}

fn fault(file: &LogFile, offset: u64, kind: Kind, detail: &str) -> LogFault {
    LogFault {
        file: file.name.clone(),
        offset,
        kind,
        may_be_healthy: false,
        sums: None,
        detail: detail.to_owned(),
    }
}

/// The newer of the two checkpoints, and where it is confirmed.
fn newest_of(file: &LogFile, faults: &mut Vec<LogFault>) -> Result<Option<(u64, u64)>, NoLog> {
    let unreadable = |error| NoLog::Unreadable(file.name.clone(), error);
    let mut newest: Option<(u64, u64)> = None;
    let mut torn = Vec::new();
    for at in CHECKPOINTS {
        let mut block = [0_u8; CHECKPOINT_BYTES];
        let count = read_fully(&file.file, &mut block, at).map_err(unreadable)?;
        if count < CHECKPOINT_BYTES || block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let sums = sums_of(&block, CHECKPOINT_SUM);
        if sums.0 != sums.1 {
            let detail = "the sum of a checkpoint in the log's header does not fit";
            let fault = fault(file, at, Kind::Checksum, detail);
            torn.push(LogFault { sums: Some(sums), may_be_healthy: true, ..fault });
            continue;
        }
        let lsn = u64_at(&block, CHECKPOINT_LSN).unwrap_or(0);
        let confirmed_at = u64_at(&block, CHECKPOINT_CONFIRMED_AT).unwrap_or(0);
        newest = newest.max(Some((lsn, confirmed_at)));
    }
    // A crash may tear the one that is being written, never both.
    if newest.is_none() {
        torn.iter_mut().for_each(|fault| fault.may_be_healthy = false);
    }
    faults.append(&mut torn);
    Ok(newest)
}

pub(super) fn read(file: &LogFile, mut faults: Vec<LogFault>) -> Result<RedoLog, NoLog> {
    let newest = newest_of(file, &mut faults)?;
    let Some((checkpoint, confirmed_at)) = newest else {
        if faults.is_empty() {
            faults.push(fault(file, 4096, Kind::Header, "the log has no checkpoint"));
        }
        return Err(NoLog::Faulty(faults));
    };
    let mut log = RedoLog {
        layout: Layout::MiniTransactions,
        creator: file.header.creator.clone(),
        checkpoint,
        end: None,
        pending: Pending::Unknown,
        faults,
        untested: None,
    };
    let Some(mut ring) = Ring::new(file, checkpoint) else {
        let detail = "the checkpoint lies outside of the log";
        log.faults.push(fault(file, 4096, Kind::Header, detail));
        return Ok(log);
    };
    let mut changes = Some(PageChanges::default());
    let mut is_changed = false;
    let mut transaction = Vec::new();
    let mut end = checkpoint;
    while ring.next_transaction(&mut transaction).is_some() {
        end = ring.lsn;
        for about in records_of(&transaction) {
            match about {
                About::Nothing => continue,
                About::Freed(page) => {
                    if let Some(changes) = &mut changes {
                        changes.free(page);
                    }
                }
                About::Rebuilt(page) => {
                    if let Some(changes) = &mut changes {
                        changes.rebuild(page);
                    }
                }
                About::Changed | About::File => {}
            }
            is_changed = true;
        }
        changes = changes.take_if(|changes| !changes.is_too_large());
    }
    if ring.is_given_up {
        return Ok(log);
    }
    if end <= confirmed_at {
        let place = ring.place_of(end);
        let detail = "the log breaks off before the record that confirms its checkpoint";
        log.faults.push(fault(file, place, Kind::Checksum, detail));
        return Ok(log);
    }
    log.end = Some(end);
    log.pending = match (is_changed, changes) {
        (false, _) => Pending::Nothing,
        (true, Some(changes)) => Pending::Pages(changes),
        (true, None) => Pending::Unknown,
    };
    Ok(log)
}

/// Bytes of the log by their LSN.
struct Ring<'a> {
    file: &'a LogFile,
    capacity: u64,
    /// The next to be given.
    lsn: u64,
    buffer: Vec<u8>,
    /// The next of the buffer.
    at: usize,
    /// How much may still be read.
    left: u64,
    /// Set where the end was not reached, for want of time or of the system's
    /// help.
    is_given_up: bool,
}

impl<'a> Ring<'a> {
    fn new(file: &'a LogFile, lsn: u64) -> Option<Self> {
        let capacity = file.bytes.checked_sub(RING_BEGIN).filter(|capacity| *capacity > 0)?;
        lsn.checked_sub(file.header.start_lsn)?;
        let left = capacity.min(READ_BYTES_MAX);
        Some(Self { file, capacity, lsn, buffer: Vec::new(), at: 0, left, is_given_up: false })
    }

    fn place_of(&self, lsn: u64) -> u64 {
        let within = lsn.saturating_sub(self.file.header.start_lsn);
        within.checked_rem(self.capacity).unwrap_or(0).saturating_add(RING_BEGIN)
    }

    /// The byte that ends a mini-transaction there: 1 the first time round.
    fn mark_at(&self, lsn: u64) -> u8 {
        let within = lsn.saturating_sub(self.file.header.start_lsn);
        let rounds = within.checked_div(self.capacity).unwrap_or(0);
        u8::from(rounds & 1 == 0)
    }

    fn byte(&mut self) -> Option<u8> {
        if self.at >= self.buffer.len() {
            self.fill()?;
        }
        let byte = *self.buffer.get(self.at)?;
        self.at = self.at.saturating_add(1);
        self.lsn = self.lsn.saturating_add(1);
        Some(byte)
    }

    fn bytes(&mut self, mut count: usize, into: &mut Vec<u8>) -> Option<()> {
        while count > 0 {
            if self.at >= self.buffer.len() {
                self.fill()?;
            }
            let rest = self.buffer.get(self.at..)?;
            let some = rest.get(..count.min(rest.len()))?;
            into.extend_from_slice(some);
            self.at = self.at.saturating_add(some.len());
            self.lsn = self.lsn.saturating_add(u64::try_from(some.len()).ok()?);
            count = count.saturating_sub(some.len());
        }
        Some(())
    }

    fn fill(&mut self) -> Option<()> {
        if self.left == 0 {
            // All round, as in a backup, whose log is as long as it must be.
            self.is_given_up = self.capacity > READ_BYTES_MAX;
            return None;
        }
        let place = self.place_of(self.lsn);
        let to_end = self.file.bytes.saturating_sub(place).min(self.left);
        let length = usize::try_from(to_end).unwrap_or(usize::MAX).min(READ_AHEAD_BYTES);
        self.buffer.resize(length, 0);
        self.at = 0;
        match read_fully(&self.file.file, &mut self.buffer, place) {
            Ok(count) if count > 0 => {
                self.buffer.truncate(count);
                self.left = self.left.saturating_sub(u64::try_from(count).ok()?);
                Some(())
            }
            _ => {
                self.buffer.clear();
                self.is_given_up = true;
                None
            }
        }
    }

    /// The records of the next mini-transaction; `None` where there is none.
    fn next_transaction(&mut self, records: &mut Vec<u8>) -> Option<()> {
        let begin = self.lsn;
        records.clear();
        loop {
            let mark_lsn = self.lsn;
            let head = self.byte()?;
            if head <= 1 {
                if head != self.mark_at(mark_lsn) {
                    return None;
                }
                break;
            }
            records.push(head);
            let mut length = usize::from(head & 0x0F);
            if length == 0 {
                let first = self.byte()?;
                records.push(first);
                let more = varint_bytes(first).checked_sub(1)?;
                let number_at = records.len().checked_sub(1)?;
                self.bytes(more, records)?;
                let (beyond, _) = varint(records.get(number_at..)?)?;
                let beyond = usize::try_from(beyond).ok()?;
                if beyond >= MINI_TRANSACTION_BYTES_MAX {
                    return None;
                }
                length = beyond.checked_add(15)?.checked_sub(more)?.checked_sub(1)?;
            }
            self.bytes(length, records)?;
            if records.len() >= MINI_TRANSACTION_BYTES_MAX {
                return None;
            }
        }
        // Never written.
        if records.is_empty() || self.lsn == begin {
            return None;
        }
        let mut crc = Crc32c::new();
        crc.update(records);
        let mut tail = Vec::with_capacity(NONCE_BYTES + 4);
        if self.file.header.is_encrypted {
            self.bytes(NONCE_BYTES, &mut tail)?;
            crc.update(&tail);
        }
        let sum_at = tail.len();
        self.bytes(4, &mut tail)?;
        let stored = u32_at(&tail, sum_at)?;
        (crc.finish() == stored).then_some(())
    }
}

/// What the records of a mini-transaction are about.
fn records_of(mut records: &[u8]) -> Vec<About> {
    let mut found = Vec::new();
    let mut has_page = false;
    while let Some((about, rest)) = record(records, &mut has_page) {
        found.push(about);
        records = rest;
    }
    // What is not understood may be anything.
    if !records.is_empty() {
        found.push(About::Changed);
    }
    found
}

fn record<'a>(records: &'a [u8], has_page: &mut bool) -> Option<(About, &'a [u8])> {
    let (head, mut rest) = records.split_first()?;
    let mut length = usize::from(head & 0x0F);
    if length == 0 {
        let (beyond, after) = varint(rest)?;
        let taken = rest.len().checked_sub(after.len())?;
        length = usize::try_from(beyond).ok()?.checked_add(15)?.checked_sub(taken)?;
        rest = after;
    }
    let (body, behind) = rest.split_at_checked(length)?;
    if head & SAME_PAGE != 0 && *has_page {
        return Some((About::Changed, behind));
    }
    let ids = varint(body).and_then(|(space, body)| Some((space, varint(body)?.0)));
    if head & SAME_PAGE != 0 {
        let about = match head & TYPE_OF_FILE {
            FILE_MODIFY | FILE_CHECKPOINT => About::Nothing,
            _ => About::File,
        };
        return Some((about, behind));
    }
    *has_page = true;
    let about = match (head & TYPE_OF_PAGE, ids) {
        (FREE_PAGE, Some(page)) => About::Freed(page),
        (INIT_PAGE, Some(page)) => About::Rebuilt(page),
        _ => About::Changed,
    };
    Some((about, behind))
}

/// How many bytes a number takes whose first byte is this.
fn varint_bytes(first: u8) -> usize {
    usize::try_from(first.leading_ones()).unwrap_or(0).saturating_add(1)
}

/// A number, and what follows it: 7, 14, 21 or 28 bits behind as many ones and a
/// zero as there are more bytes, or 32 behind 0xF0; each length begins where the
/// shorter ones end.
fn varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    const BEGINS: [u32; 5] = [0, 0x80, 0x4080, 0x20_4080, 0x1020_4080];
    let first = *bytes.first()?;
    let count = varint_bytes(first);
    if count > BEGINS.len() || (count == BEGINS.len() && first != 0xF0) {
        return None;
    }
    let (taken, rest) = bytes.split_at_checked(count)?;
    let mask = 0x7F_u8.checked_shr(u32::try_from(count.checked_sub(1)?).ok()?).unwrap_or(0);
    let high = u32::from(first & mask);
    let number = taken
        .iter()
        .skip(1)
        .try_fold(high, |number, byte| number.checked_mul(256)?.checked_add(u32::from(*byte)));
    let begin = *BEGINS.get(count.checked_sub(1)?)?;
    Some((number?.checked_add(begin)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read() {
        for (bytes, number) in [
            (&[0x05][..], 5),
            (&[0x7F], 127),
            (&[0x80, 0x00], 128),
            (&[0xBF, 0xFF], 0x407F),
            (&[0xC0, 0x00, 0x00], 0x4080),
            (&[0xE0, 0, 0, 0], 0x20_4080),
            (&[0xF0, 0, 0, 0, 1], 0x1020_4081),
        ] {
            assert_eq!(varint(bytes), Some((number, &[][..])), "{bytes:x?}");
            assert_eq!(varint_bytes(bytes[0]), bytes.len());
        }
        for bytes in [&[][..], &[0x80], &[0xF0, 1, 1, 1], &[0xF1, 0, 0, 0, 0], &[0xFF; 9]] {
            assert_eq!(varint(bytes), None, "{bytes:x?}");
        }
        assert_eq!(varint(&[0xF0, 0xFF, 0xFF, 0xFF, 0xFF]), None, "beyond 32 bits");
    }

    /// The examples of the server's own documentation (`mtr0types.h`).
    #[test]
    fn records_tell_pages_that_are_made_anew_or_given_back() {
        let one = |bytes: &[u8]| {
            let found = records_of(bytes);
            found
                .into_iter()
                .map(|about| match about {
                    About::Freed((space, page)) => format!("free {space:x},{page:x}"),
                    About::Rebuilt((space, page)) => format!("init {space:x},{page:x}"),
                    About::Changed => "change".to_owned(),
                    About::Nothing => "nothing".to_owned(),
                    About::File => "file".to_owned(),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(one(&[0x12, 0x34, 0x56]), ["init 34,56"]);
        assert_eq!(one(&[0x02, 0x34, 0x56]), ["free 34,56"]);
        let write = [0x36, 0x40, 0x57, 0x60, 0x12, 0x34, 0x56];
        assert_eq!(one(&write), ["change"]);
        let same = [0xB5, 0x7F, 0x23, 0x34, 0x56, 0x78];
        assert_eq!(one(&[&write[..], &same].concat()), ["change", "change"]);
        let checkpoint = [0xFA, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(one(&checkpoint), ["nothing"]);
        assert_eq!(one(&[0x84, 1, 0, b'a', b'b']), ["file"]);
        // Cut off: never taken for nothing.
        assert_eq!(one(&[0x36, 0x40]), ["change"]);
    }
}

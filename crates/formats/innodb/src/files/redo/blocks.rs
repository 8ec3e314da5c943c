//! Logs of 512-byte blocks.
//!
//! ```text
//! offset  size  field
//!      0     4  number: 1 + LSN / 512, modulo 2^30; the high bit marks a flush
//!      4     2  bytes in use, this header included; high bit (MySQL 8.0 and later): all behind
//!               the header is encrypted, the sum too
//!      6     2  where the first mini-transaction begins
//!      8     4  epoch, or number of the checkpoint
//!    508     4  CRC-32C of the 508 bytes before, or the legacy sum, or a mark
//!               that there is none
//! ```
//!
//! An LSN counts the bytes of blocks, headers and sums included.

use crate::files::fields::{u16_at, u32_at, u64_at};
use crate::files::redo::keys::{Keys, Opened};
use crate::files::redo::{
    BACKUP_FILE, FLAGS_WITHOUT_LOG, FORMAT_BEFORE_57, FORMAT_MARIADB_105, FORMAT_MYSQL_8030,
    FORMATS_OF_MARIADB, Layout, LogFault, LogFile, NoLog, Pending, READ_BYTES_MAX, RedoLog,
    UntestedBlocks, sums_of,
};
use crate::page::encryption::Keyring;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::Kind;

const BLOCK: usize = 512;
const BLOCK_BYTES: u64 = 512;
/// The header of a file: four blocks.
const FILE_HEADER_BYTES: u64 = 2048;
const CHECKPOINTS: [u64; 2] = [512, 1536];

const CHECKPOINT_NUMBER: usize = 0;
const CHECKPOINT_LSN: usize = 8;
const CHECKPOINT_OFFSET: usize = 16;
const CHECKPOINT_OFFSET_HIGH_BEFORE_57: usize = 300;
/// Before 5.6 there is no high half, and this stands in its place (`LOG_CHECKPOINT_FSP_MAGIC_N_VAL`).
const NO_OFFSET_HIGH_BEFORE_56: u32 = 0x55E7_718B;
/// Before 5.7: the legacy sum of the bytes before.
const SUM: usize = 508;

const NUMBER: usize = 0;
const USED: usize = 4;
const NUMBER_MASK: u32 = 0x7FFF_FFFF;
const NUMBERS: u64 = 1 << 30;
const USED_MASK: u16 = 0x7FFF;
const USED_IS_ENCRYPTED: u16 = 0x8000;
/// The first format in which MySQL encrypts blocks, 8.0.1.
const FORMAT_MYSQL_801: u32 = 2;
const BLOCK_HEADER_BYTES: u64 = 12;
/// Behind it stands the sum.
const LAST_LSN_OF_BLOCK: u64 = 508;
/// Written where sums are switched off.
const NO_SUM: u32 = 0xDEAD_BEEF;

/// The records that confirm a checkpoint and change no page: MySQL 5.7 and
/// MariaDB up to 10.4, and MariaDB 10.5 to 10.7; each with its length.
const CONFIRMATION: (u8, u64) = (0x38, 9);
const CONFIRMATION_OF_105: (u8, u64) = (0xFA, 12);

/// A checkpoint that can be believed.
struct Checkpoint {
    lsn: u64,
    /// Where in the ring; `None` where the files are a row.
    offset: Option<u64>,
}

/// Where a block lies.
#[derive(Clone, Copy)]
struct At {
    file: usize,
    offset: u64,
}

fn is_row(files: &[LogFile]) -> bool {
    let of_mysql = FORMAT_MYSQL_8030..FORMATS_OF_MARIADB;
    files.first().is_some_and(|first| of_mysql.contains(&first.header.format))
}

/// Where recovery begins.
pub(super) fn newest_checkpoint(files: &[LogFile]) -> Option<u64> {
    let newest = newest_of(files, is_row(files), &mut Vec::new()).ok()?;
    newest.map(|checkpoint| checkpoint.lsn)
}

fn newest_of(
    files: &[LogFile],
    is_row: bool,
    faults: &mut Vec<LogFault>,
) -> Result<Option<Checkpoint>, NoLog> {
    let mut newest: Option<Checkpoint> = None;
    for file in files {
        let found = checkpoints_of(file, is_row, faults);
        let found = found.map_err(|error| NoLog::Unreadable(file.name.clone(), error))?;
        let older = |than: &Checkpoint| newest.as_ref().is_none_or(|newest| newest.lsn < than.lsn);
        if let Some(found) = found.filter(older) {
            newest = Some(found);
        }
        // Of a ring only the first file's count.
        if !is_row {
            break;
        }
    }
    Ok(newest)
}

/// `spare_bytes` is the size of the largest file that a row of them keeps for later.
pub(super) fn read(
    files: &[LogFile],
    mut faults: Vec<LogFault>,
    spare_bytes: Option<u64>,
    keyring: Option<&Keyring>,
) -> Result<RedoLog, NoLog> {
    let Some(first) = files.first() else { return Err(NoLog::Missing) };
    let is_row = is_row(files);
    let newest = newest_of(files, is_row, &mut faults)?;
    let Some(checkpoint) = newest else {
        if faults.is_empty() {
            faults.push(LogFault {
                file: first.name.clone(),
                offset: 512,
                kind: Kind::Header,
                may_be_healthy: false,
                sums: None,
                detail: "the log has no checkpoint".to_owned(),
            });
        }
        return Err(NoLog::Faulty(faults));
    };
    let creator = files.iter().rev().map(|file| &file.header.creator);
    let creator = creator.into_iter().find(|creator| !creator.is_empty()).cloned();
    let mut log = RedoLog {
        layout: Layout::Blocks,
        creator: creator.unwrap_or_default(),
        checkpoint: checkpoint.lsn,
        end: None,
        pending: Pending::Unknown,
        faults,
        untested: None,
    };
    let block_lsn = checkpoint.lsn & !BLOCK_BYTES.saturating_sub(1);
    let begin = if is_row {
        locate_in_row(files, block_lsn)
    } else {
        checkpoint.offset.and_then(|offset| locate_in_ring(files, offset & !511))
    };
    let Some(begin) = begin else {
        log.faults.extend(checkpoint_elsewhere(files, &checkpoint));
        return Ok(log);
    };
    let is_without_log = files.iter().any(|file| file.header.flags & FLAGS_WITHOUT_LOG != 0);
    let keys = Keys::of(files, keyring);
    let ends_early = walk(&Files { files, is_row, keys: &keys }, begin, block_lsn, &mut log);
    let has_spare = |last: &LogFile| !is_row || spare_bytes.is_some_and(|spare| spare > last.bytes);
    if let Some(last) = files.last().filter(|last| ends_early && has_spare(last)) {
        log.faults.push(ends_with_its_files(last));
    }
    if is_without_log && is_row {
        // Pages may have changes that no log knows.
        log.pending = Pending::Unknown;
        log.end = None;
    }
    Ok(log)
}

/// The checkpoint lies in none of the files. Of the file that a backup's program made instead of a
/// server's own, nothing is said.
fn checkpoint_elsewhere(files: &[LogFile], checkpoint: &Checkpoint) -> Option<LogFault> {
    let first = files.first().filter(|first| first.name != BACKUP_FILE)?;
    let where_it_is = match checkpoint.offset {
        Some(offset) => format!("byte {offset} of the log"),
        None => format!("LSN {}", checkpoint.lsn),
    };
    let bytes: u64 = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    Some(LogFault {
        file: first.name.clone(),
        offset: CHECKPOINTS[0],
        kind: Kind::Missing,
        // The first LSN behind all files: that of a block yet to be written.
        may_be_healthy: checkpoint.offset.is_none()
            && checkpoint.lsn & BLOCK_BYTES.saturating_sub(1) <= BLOCK_HEADER_BYTES,
        sums: None,
        detail: format!(
            "recovery begins at {where_it_is}, and that is in none of the {} files of the log that \
             are here ({bytes} bytes)",
            files.len()
        ),
    })
}

/// The newer of a file's two checkpoints.
fn checkpoints_of(
    file: &LogFile,
    is_row: bool,
    faults: &mut Vec<LogFault>,
) -> std::io::Result<Option<Checkpoint>> {
    let mut newest: Option<(u64, Checkpoint)> = None;
    let mut torn = Vec::new();
    for at in CHECKPOINTS {
        let mut block = [0_u8; BLOCK];
        if read_fully(&file.file, &mut block, at)? < BLOCK || block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let is_old = file.header.format == FORMAT_BEFORE_57;
        let sums = sums_of(&block, SUM);
        if !is_old && sums.0 != sums.1 {
            torn.push(LogFault {
                file: file.name.clone(),
                offset: at,
                kind: Kind::Checksum,
                may_be_healthy: true,
                sums: Some(sums),
                detail: "the sum of a checkpoint in the log's header does not fit".to_owned(),
            });
            continue;
        }
        let lsn = u64_at(&block, CHECKPOINT_LSN).unwrap_or(0);
        if lsn == 0 {
            continue;
        }
        let offset = match (is_row, is_old) {
            (true, _) => None,
            (false, true) => {
                let low = u32_at(&block, CHECKPOINT_OFFSET).unwrap_or(0);
                let high = u32_at(&block, CHECKPOINT_OFFSET_HIGH_BEFORE_57)
                    .filter(|high| *high != NO_OFFSET_HIGH_BEFORE_56)
                    .unwrap_or(0);
                Some(u64::from(high) << 32 | u64::from(low))
            }
            (false, false) => u64_at(&block, CHECKPOINT_OFFSET),
        };
        let number = match is_row {
            true => lsn,
            false => u64_at(&block, CHECKPOINT_NUMBER).unwrap_or(0),
        };
        if newest.as_ref().is_none_or(|(newest, _)| *newest < number) {
            newest = Some((number, Checkpoint { lsn, offset }));
        }
    }
    // A crash may tear the one that is being written, never both.
    if newest.is_none() {
        torn.iter_mut().for_each(|fault| fault.may_be_healthy = false);
    }
    faults.append(&mut torn);
    Ok(newest.map(|(_, checkpoint)| checkpoint))
}

fn locate_in_row(files: &[LogFile], lsn: u64) -> Option<At> {
    files.iter().enumerate().find_map(|(index, file)| {
        let within = lsn.checked_sub(file.header.start_lsn)?;
        let offset = within.checked_add(FILE_HEADER_BYTES)?;
        (offset < file.bytes).then_some(At { file: index, offset })
    })
}

fn locate_in_ring(files: &[LogFile], offset: u64) -> Option<At> {
    let file_bytes = files.first()?.bytes;
    let index = usize::try_from(offset.checked_div(file_bytes)?).ok()?;
    let offset = offset.checked_rem(file_bytes)?;
    (index < files.len() && offset >= FILE_HEADER_BYTES).then_some(At { file: index, offset })
}

/// The block behind; `None` at the end of a row.
fn next_of(files: &[LogFile], is_row: bool, at: At) -> Option<At> {
    let file = files.get(at.file)?;
    let offset = at.offset.checked_add(BLOCK_BYTES)?;
    if offset.checked_add(BLOCK_BYTES)? <= file.bytes {
        return Some(At { file: at.file, offset });
    }
    let next = at.file.checked_add(1)?;
    match (is_row, next < files.len()) {
        (true, false) => None,
        (false, false) => Some(At { file: 0, offset: FILE_HEADER_BYTES }),
        (_, true) => Some(At { file: next, offset: FILE_HEADER_BYTES }),
    }
}

/// What a block is, where one with this LSN is due.
enum Found {
    /// It, with this number of bytes in use.
    Due(u64, Box<[u8; BLOCK]>),
    /// Another: the log was not written as far.
    Other,
    /// It or another, torn or damaged.
    Bad((u32, u32)),
    /// It, with this number of bytes in use; encrypted, and not to be tested for this reason.
    Closed(u64, String),
}

/// The files that are gone through.
#[derive(Clone, Copy)]
struct Files<'a> {
    files: &'a [LogFile],
    is_row: bool,
    keys: &'a Keys,
}

fn look(file: &LogFile, offset: u64, lsn: u64, keys: &Keys) -> std::io::Result<Found> {
    let mut block = [0_u8; BLOCK];
    if read_fully(&file.file, &mut block, offset)? < BLOCK {
        return Ok(Found::Other);
    }
    let number = u32_at(&block, NUMBER).unwrap_or(0) & NUMBER_MASK;
    let due = lsn.checked_div(BLOCK_BYTES).and_then(|block| block.checked_rem(NUMBERS));
    let due = due.and_then(|due| due.checked_add(1));
    let is_due = due == Some(u64::from(number));
    let sums = sums_of(&block, SUM);
    let fits = sums.0 == sums.1 || sums.0 == NO_SUM || sums.0 == legacy_sum(&block);
    let is_encrypted = !fits && is_encrypted_by_mysql(file, &block);
    if !fits && !file.header.is_encrypted && !is_encrypted {
        // Blank, or what lay here before the log was made.
        return Ok(if is_due { Found::Bad(sums) } else { Found::Other });
    }
    if !is_due {
        return Ok(Found::Other);
    }
    let used = u64::from(u16_at(&block, USED).unwrap_or(0) & USED_MASK);
    if !is_encrypted {
        return Ok(Found::Due(used, Box::new(block)));
    }
    Ok(match keys.open(&block) {
        Opened::Sound(block) => Found::Due(used, block),
        Opened::Bad(sums) => Found::Bad(sums),
        Opened::Closed(reason) => Found::Closed(used, reason),
    })
}

/// True of a block whose sum cannot be tested without the key. One that has the mark by a flipped bit
/// has a sum that fits without it.
fn is_encrypted_by_mysql(file: &LogFile, block: &[u8; BLOCK]) -> bool {
    let is_of_mysql = (FORMAT_MYSQL_801..FORMATS_OF_MARIADB).contains(&file.header.format);
    let used = u16_at(block, USED).unwrap_or(0);
    if !is_of_mysql || used & USED_IS_ENCRYPTED == 0 || u64::from(used & USED_MASK) > BLOCK_BYTES {
        return false;
    }
    let mut without_mark = *block;
    if let Some(field) = without_mark.get_mut(USED..).and_then(<[u8]>::first_chunk_mut) {
        *field = (used & USED_MASK).to_be_bytes();
    }
    let sums = sums_of(&without_mark, SUM);
    sums.0 != sums.1
}

/// Goes from the block of the checkpoint to the end. True if that is where the last file ends, and
/// its last block is full.
fn walk(all: &Files<'_>, begin: At, block_lsn: u64, log: &mut RedoLog) -> bool {
    let Files { files, is_row, keys } = *all;
    let (mut at, mut lsn) = (begin, block_lsn);
    let mut first_block = None;
    let mut passed = 0_u64;
    let mut ends_with_files = false;
    let end = loop {
        let Some(file) = files.get(at.file) else { return false };
        let Ok(found) = look(file, at.offset, lsn, keys) else { return false };
        let found = match found {
            Found::Closed(used, reason) => {
                count_untested(log, file, reason);
                // What is known of it is in its header.
                Found::Due(used, Box::new([0; BLOCK]))
            }
            other => other,
        };
        match found {
            Found::Due(used, block) => {
                if first_block.is_none() && ends_before_checkpoint(used, log.checkpoint) {
                    let detail = "the block of the log's checkpoint ends before it";
                    log.faults.push(fault(file, at, Kind::Header, detail));
                    return false;
                }
                first_block.get_or_insert(block);
                if used < BLOCK_BYTES {
                    break lsn.saturating_add(if used > BLOCK_HEADER_BYTES { used } else { 0 });
                }
            }
            Found::Other if lsn == block_lsn => {
                let detail = "the log has no block where its checkpoint is";
                log.faults.push(fault(file, at, Kind::Header, detail));
                return false;
            }
            Found::Other | Found::Closed(..) => {
                ends_with_files = !is_row && (at.file, at.offset) == (0, FILE_HEADER_BYTES);
                break lsn;
            }
            Found::Bad(sums) => {
                let detail = match goes_on(all, at, lsn) {
                    true => "a log block's sum does not fit, and the log goes on behind it",
                    false => "the sum of the log's last block does not fit",
                };
                log.faults.push(LogFault {
                    // Blocks are not written in order when the power fails. The
                    // one with the checkpoint was on the disk before it.
                    may_be_healthy: lsn != block_lsn,
                    sums: Some(sums),
                    ..fault(file, at, Kind::Checksum, detail)
                });
                return false;
            }
        }
        lsn = lsn.saturating_add(BLOCK_BYTES);
        passed = passed.saturating_add(BLOCK_BYTES);
        match next_of(files, is_row, at) {
            Some(next) if passed < READ_BYTES_MAX => at = next,
            Some(_) => return false,
            None => {
                ends_with_files = true;
                break lsn;
            }
        }
    };
    // A full block at the end of the log has its last bytes behind all LSNs.
    let end = end.max(log.checkpoint);
    log.end = Some(end);
    let is_confirmed = end == log.checkpoint
        || first_block.is_some_and(|block| is_confirmation(&block, files, log.checkpoint, end));
    if is_confirmed {
        log.pending = Pending::Nothing;
    }
    ends_with_files
}

fn count_untested(log: &mut RedoLog, file: &LogFile, reason: String) {
    let new = || UntestedBlocks { file: file.name.clone(), blocks: 0, reason };
    let untested = log.untested.get_or_insert_with(new);
    untested.blocks = untested.blocks.saturating_add(1);
}

/// True if the block behind the one at `at`, of `lsn`, is the log's next one.
fn goes_on(all: &Files<'_>, at: At, lsn: u64) -> bool {
    let Files { files, is_row, keys } = *all;
    next_of(files, is_row, at).is_some_and(|next| {
        let lsn = lsn.saturating_add(BLOCK_BYTES);
        let found = files.get(next.file).map(|file| look(file, next.offset, lsn, keys));
        matches!(found, Some(Ok(Found::Due(..) | Found::Closed(..))))
    })
}

fn fault(file: &LogFile, at: At, kind: Kind, detail: &str) -> LogFault {
    LogFault {
        file: file.name.clone(),
        offset: at.offset,
        kind,
        may_be_healthy: false,
        sums: None,
        detail: detail.to_owned(),
    }
}

/// True if a block with `used` bytes in use does not reach as far as the checkpoint that is in it: a
/// server makes no checkpoint of what it has not written.
fn ends_before_checkpoint(used: u64, checkpoint: u64) -> bool {
    let within = checkpoint & BLOCK_BYTES.saturating_sub(1);
    // The first LSN of a block is the one behind its header, also of a block yet to be written.
    within > BLOCK_HEADER_BYTES && used < within.min(LAST_LSN_OF_BLOCK)
}

/// A log whose last block is full and the last one of its files. One in thousands of killed servers
/// leaves that; a log that lost a file, or the end of one, always does. In a row a server waits at the
/// end of a file while it has no spare one, and files are of different sizes where it was told to keep
/// more or less of them: there only a larger spare file shows that the last one was cut.
fn ends_with_its_files(file: &LogFile) -> LogFault {
    let at = At { file: 0, offset: file.bytes };
    let detail = "the log goes on to the very end of its last file, in the middle of what was written: \
                  a server that was killed leaves that seldom, a file that was cut or removed always";
    LogFault { may_be_healthy: true, ..fault(file, at, Kind::Truncated, detail) }
}

/// True if the log holds nothing behind its checkpoint but the record that
/// confirms it.
fn is_confirmation(block: &[u8; BLOCK], files: &[LogFile], checkpoint: u64, end: u64) -> bool {
    let format = files.first().map_or(0, |file| file.header.format);
    if (FORMAT_MYSQL_8030..FORMATS_OF_MARIADB).contains(&format) {
        return false;
    }
    let at = usize::try_from(checkpoint & 511).unwrap_or(0);
    let length = end.saturating_sub(checkpoint);
    let expected = match format {
        FORMAT_MARIADB_105 => CONFIRMATION_OF_105,
        _ => CONFIRMATION,
    };
    // Only where it lies within one block: else its length is not its own.
    block.get(at).is_some_and(|kind| (*kind, length) == expected)
}

/// Before 5.7, and of MariaDB up to 10.1.
fn legacy_sum(block: &[u8; BLOCK]) -> u32 {
    const SHIFT_MAX: u32 = 24;
    let (mut sum, mut shift) = (1_u32, 0_u32);
    for byte in block.iter().take(SUM) {
        let byte = u32::from(*byte);
        sum &= 0x7FFF_FFFF;
        sum = sum.wrapping_add(byte).wrapping_add(byte << shift);
        shift = if shift >= SHIFT_MAX { 0 } else { shift.wrapping_add(1) };
    }
    sum
}

//! A hot rollback journal: its records against their sums, and the database as it is once they are played
//! back.
//!
//! | journal | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | records behind this header; 0xffffffff: as many as there is room for |
//! | 12 | 4 | nonce, where sums begin |
//! | 16 | 4 | pages of the database before; of the first header |
//! | 20 | 4 | sector size: so long is the header |
//! | 24 | 4 | page size |
//!
//! A record is a page's number, the page, and a sum of every 200th byte from its end, below which
//! most damage passes. Behind the counted records the next header may begin, on a sector. SQLite
//! stops at the first record without its sum, and takes the database for rolled back.
//!
//! Where several databases are changed at once, the journal ends with the name of a file, its length, the
//! sum of its bytes (4 bytes each) and the magic: once that file is gone the transaction is
//! committed, and the journal is left over.
//!
//! Only records that a header counts are judged, and they are `suspect` at most: with
//! `synchronous=NORMAL` the count and the records go to the device together, so that a power loss
//! may leave one without the other. Then the database itself is not changed yet.
//!
//! Facts from SQLite's public documentation (`fileformat2.html`).

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::sidecars::{is_locked, open_beside};
use super::wal::view::{FRAMES_MAX, View};
use super::{HINT_LOG, to_u64};
use crate::page::lock_byte_page;
use pagewarden_core::database::Step;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Unread};

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const HEADER_BYTES: usize = 28;
/// Records are counted by their room.
const UNCOUNTED: u32 = u32::MAX;
/// Where page 1 counts the changes of the schema.
const SCHEMA_COOKIE: u64 = 40;
/// A record's number and sum.
const RECORD_EXTRA_BYTES: usize = 8;
/// Length, sum and magic behind the name of a file.
const SUPER_TAIL_BYTES: usize = 16;
/// As long as a name may be.
const SUPER_NAME_MAX: u32 = 4096;
/// The sum takes one byte in this number of bytes.
const SUM_STEP: usize = 200;

/// What is wrong with the journal beside `path`, the real path of a database that is open as
/// `database` and has pages of `page_bytes`, if that is known; nothing if there is none, or none that will be played back.
pub fn look(database: &File, path: &Path, page_bytes: Option<usize>) -> Vec<Step> {
    let Some((name, file, bytes)) = open_beside(path, "-journal") else { return Vec::new() };
    let Some(file) = file else {
        let error = "it cannot be opened: an interrupted transaction may wait to be undone";
        return if bytes > 0 {
            vec![Step::Unread(Unread::of_file(name, error))]
        } else {
            Vec::new()
        };
    };
    match wrong(&file, bytes, database, page_bytes) {
        Ok(None) => Vec::new(),
        // A transaction that runs writes it, or one that ran did.
        Ok(Some(_)) if is_locked(database) => Vec::new(),
        Ok(found) if again(path, database, page_bytes) != found => Vec::new(),
        Ok(found) => found.map(|wrong| Step::Finding(wrong.finding(&name))).into_iter().collect(),
        Err((_, error)) if error.kind() == io::ErrorKind::UnexpectedEof => Vec::new(),
        Err((offset, error)) => vec![Step::Unread(Unread::stretch(
            name,
            ByteOffset(offset),
            bytes.saturating_sub(offset),
            error.to_string(),
        ))],
    }
}

/// What is wrong with the journal that is there now. Each has a nonce of its own, from which its sums begin.
fn again(path: &Path, database: &File, page_bytes: Option<usize>) -> Option<Wrong> {
    let (_, file, bytes) = open_beside(path, "-journal")?;
    wrong(&file?, bytes, database, page_bytes).ok()?
}

fn wrong(
    file: &File,
    bytes: u64,
    database: &File,
    page_bytes: Option<usize>,
) -> Result<Option<Wrong>, (u64, io::Error)> {
    let mut first_page = None;
    let walked = walk(file, bytes, |page, offset| {
        if page == 1 {
            first_page = Some(offset);
        }
    })?;
    if let Some(broken) = walked.broken.filter(|_| walked.is_counted) {
        return Ok(Some(Wrong::Record(broken)));
    }
    let sizes = walked.first.map(|first| first.page_bytes).zip(page_bytes);
    let Some((journal, page_bytes)) = sizes.filter(|(one, other)| one != other) else {
        return Ok(None);
    };
    let cookie = |file: &File, page: u64| {
        let mut word = [0; 4];
        let offset = page.saturating_add(SCHEMA_COOKIE);
        read(file, &mut word, offset).map(|()| u32::from_be_bytes(word))
    };
    // VACUUM may change the size of pages, and counts as one change of the schema.
    let before = first_page.map(|page| cookie(file, page)).transpose()?;
    let now = cookie(database, 0)?;
    let is_own = before.is_some_and(|before| now.wrapping_sub(before) == 1);
    Ok((!is_own).then_some(Wrong::PageSize { journal, database: page_bytes }))
}

/// What may be wrong with a journal.
#[derive(Debug, PartialEq)]
enum Wrong {
    Record(Broken),
    /// Bytes in a page.
    PageSize {
        journal: usize,
        database: usize,
    },
}

impl Wrong {
    fn finding(&self, name: &str) -> Finding {
        let (journal, database) = match self {
            Self::Record(broken) => return broken.finding(name),
            Self::PageSize { journal, database } => (journal, database),
        };
        let detail = format!(
            "it has pages of {journal} bytes, the database of {database}, and it is not of the state before \
             this one: it looks like the journal of another database, and SQLite will play it back over \
             this one"
        );
        Finding::of_file(name, Severity::Suspect, Kind::Misplaced, detail).with_hint(HINT_LOG)
    }
}

/// A record without its sum, or one that is not there.
#[derive(Debug, PartialEq)]
struct Broken {
    record: u32,
    records: u32,
    page: u32,
    offset: u64,
    /// The stored sum and the right one; `None` where the journal ends before the record does.
    sums: Option<(u32, u32)>,
}

impl Broken {
    fn finding(&self, name: &str) -> Finding {
        let (record, records) = (self.record, self.records);
        let (kind, what) = match self.sums {
            Some(_) => (Kind::Checksum, "does not have its sum"),
            None => (Kind::Truncated, "is not there, since the journal ends"),
        };
        let detail = format!(
            "record {record} of {records} that the journal counts {what}: SQLite will stop undoing here, \
             and take the database for whole; a power loss leaves this, and so does damage to the journal"
        );
        let page = (self.page != 0).then_some(PageNo(u64::from(self.page)));
        let hex = |sum: u32| format!("{sum:08x}");
        let (stored, computed) = self.sums.unzip();
        Finding::of_file(name, Severity::Suspect, kind, detail)
            .at(page, Some(ByteOffset(self.offset)))
            .with_sums(stored.map(hex), computed.map(hex))
            .with_hint(HINT_LOG)
    }
}

/// The database beside a hot journal as it is once SQLite has played that back, which is what the next
/// reader sees. `page_bytes` are those of the database.
///
/// # Errors
/// Why that is not known.
pub fn undone(path: &Path, page_bytes: usize) -> Result<Option<View>, String> {
    let Some((name, file, bytes)) = open_beside(path, "-journal") else { return Ok(None) };
    let file = file.ok_or("the rollback journal cannot be opened")?;
    let mut places = Vec::new();
    let walked = walk(&file, bytes, |page, offset| {
        if to_u64(places.len()) <= FRAMES_MAX {
            places.push((page, offset));
        }
    });
    let walked = walked.map_err(|(_, error)| format!("the rollback journal: {error}"))?;
    let Some(first) = walked.first else { return Ok(None) };
    if first.page_bytes != page_bytes {
        return Err(format!(
            "the rollback journal has pages of {} bytes, the database of {page_bytes}",
            first.page_bytes
        ));
    }
    if first.pages == 0 {
        return Err(
            "the rollback journal undoes the first transaction: nothing is left then".to_owned()
        );
    }
    if walked.is_counted && walked.broken.is_some() {
        return Err("a record of the rollback journal is not as it must be".to_owned());
    }
    if to_u64(places.len()) > FRAMES_MAX {
        return Err("the rollback journal is too long to be remembered".to_owned());
    }
    // Pages that the transaction added are cut off.
    places.retain(|(page, _)| *page <= first.pages);
    let is_broken = walked.broken.is_some();
    Ok(Some(View::new(file, name, places, first.pages, is_broken)))
}

/// The pages that a database has once its hot journal was played back; `None` if that is not known.
pub fn pages_before(path: &Path) -> Option<u64> {
    let (_, file, _) = open_beside(path, "-journal")?;
    let mut head = [0; HEADER_BYTES];
    read(&file?, &mut head, 0).ok()?;
    Header::parse(&head).map(|header| u64::from(header.pages))
}

/// True if the journal belongs to a transaction of several databases that is committed.
pub fn is_left_over(journal: &File, bytes: u64) -> bool {
    super_journal(journal, bytes).is_some_and(|path| !path.exists())
}

fn super_journal(journal: &File, bytes: u64) -> Option<PathBuf> {
    let mut tail = [0; SUPER_TAIL_BYTES];
    let tail_offset = bytes.checked_sub(to_u64(SUPER_TAIL_BYTES))?;
    read(journal, &mut tail, tail_offset).ok()?;
    let word = |at: usize| tail.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    let (length, sum) = (word(0)?, word(4)?);
    if !tail.ends_with(&MAGIC) || !(1..=SUPER_NAME_MAX).contains(&length) {
        return None;
    }
    let mut name = vec![0; usize::try_from(length).ok()?];
    read(journal, &mut name, tail_offset.checked_sub(u64::from(length))?).ok()?;
    // As SQLite adds them up: of a signed type, with wraparound.
    let signed = |byte: &u8| i32::from(byte.cast_signed()).cast_unsigned();
    let computed = name.iter().map(signed).fold(0_u32, u32::wrapping_add);
    let name = String::from_utf8(name).ok()?;
    (computed == sum).then(|| PathBuf::from(name))
}

/// A header: what follows it.
#[derive(Debug, Clone, Copy)]
struct Header {
    records: u32,
    nonce: u32,
    /// Pages of the database before the transaction.
    pages: u32,
    sector_bytes: u64,
    page_bytes: usize,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| u32::from_be_bytes(*word))
        };
        let (sector_bytes, page_bytes) = (word(20)?, word(24)?);
        let is_known = bytes.starts_with(&MAGIC)
            && sector_bytes.is_power_of_two()
            && (32..=65_536).contains(&sector_bytes)
            && page_bytes.is_power_of_two()
            && (512..=65_536).contains(&page_bytes);
        is_known.then_some(Self {
            records: word(8)?,
            nonce: word(12)?,
            pages: word(16)?,
            sector_bytes: u64::from(sector_bytes),
            page_bytes: usize::try_from(page_bytes).ok()?,
        })
    }

    /// How many records follow it, in the bytes that are left behind it, and whether it counts them.
    fn records(&self, room: u64) -> (u32, bool) {
        if self.records != UNCOUNTED {
            return (self.records, true);
        }
        let record = to_u64(self.page_bytes.saturating_add(RECORD_EXTRA_BYTES));
        let records = room.checked_div(record).unwrap_or(0);
        (u32::try_from(records).unwrap_or(u32::MAX), false)
    }
}

/// What a journal holds.
#[derive(Debug, Default)]
struct Walked {
    /// Only the first header holds the sizes.
    first: Option<Header>,
    /// The first record that is not as it must be. SQLite plays back those before it.
    broken: Option<Broken>,
    /// A header counts that record.
    is_counted: bool,
}

/// Goes along the records that SQLite plays back: `take` gets the page of each, and where its content is.
fn walk(
    file: &File,
    bytes: u64,
    mut take: impl FnMut(u32, u64),
) -> Result<Walked, (u64, io::Error)> {
    let mut walked = Walked::default();
    let mut offset = 0;
    while offset < bytes {
        let mut head = [0; HEADER_BYTES];
        match read(file, &mut head, offset) {
            // Behind the last record, where the next header would begin.
            Err((_, error)) if offset > 0 && error.kind() == io::ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        let Some(header) = Header::parse(&head) else { break };
        let first = *walked.first.get_or_insert(header);
        offset = offset.saturating_add(first.sector_bytes);
        let (records, is_counted) = header.records(bytes.saturating_sub(offset));
        walked.is_counted = is_counted;
        let mut record = vec![0; first.page_bytes.saturating_add(RECORD_EXTRA_BYTES)];
        for number in 0..records {
            let at = |page, sums| {
                let record = number.saturating_add(1);
                Some(Broken { record, records, page, offset, sums })
            };
            if offset.saturating_add(to_u64(record.len())) > bytes {
                walked.broken = at(0, None);
                return Ok(walked);
            }
            read(file, &mut record, offset)?;
            let page = record.first_chunk().map_or(0, |page| u32::from_be_bytes(*page));
            // Here the name of a file begins, behind the last record.
            if !is_counted && u64::from(page) == lock_byte_page(first.page_bytes) {
                return Ok(walked);
            }
            if let Some((page, stored, computed)) = broken(&record, header.nonce) {
                walked.broken = at(page, Some((stored, computed)));
                return Ok(walked);
            }
            take(page, offset.saturating_add(4));
            offset = offset.saturating_add(to_u64(record.len()));
        }
        offset = offset.checked_next_multiple_of(first.sector_bytes).unwrap_or(u64::MAX);
    }
    Ok(walked)
}

fn read(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), (u64, io::Error)> {
    let filled = read_fully(file, bytes, offset).map_err(|error| (offset, error))?;
    match filled < bytes.len() {
        true => Err((offset, io::ErrorKind::UnexpectedEof.into())),
        false => Ok(()),
    }
}

/// The page, the stored sum and the right one of a record that does not have it.
fn broken(record: &[u8], nonce: u32) -> Option<(u32, u32, u32)> {
    let (page, rest) = record.split_first_chunk()?;
    let (content, stored) = rest.split_last_chunk()?;
    let (page, stored) = (u32::from_be_bytes(*page), u32::from_be_bytes(*stored));
    let mut computed = nonce;
    let mut place = content.len().checked_sub(SUM_STEP);
    while let Some(at) = place.filter(|at| *at > 0) {
        computed = computed.wrapping_add(u32::from(content.get(at).copied().unwrap_or(0)));
        place = at.checked_sub(SUM_STEP);
    }
    (computed != stored).then_some((page, stored, computed))
}

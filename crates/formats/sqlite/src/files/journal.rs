//! The records of a hot rollback journal against their sums.
//!
//! | journal | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | records behind this header; 0xffffffff: as many as there is room for |
//! | 12 | 4 | nonce, where sums begin |
//! | 20 | 4 | sector size: so long is the header |
//! | 24 | 4 | page size |
//!
//! A record is a page's number, the page, and a sum of every 200th byte from its end, below which
//! most damage passes. Behind the counted records the next header may begin, on a sector. SQLite
//! stops at the first record without its sum, and takes the database for rolled back.
//!
//! Only records that a header counts are judged, and they are `suspect` at most: with
//! `synchronous=NORMAL` the count and the records go to the device together, so that a power loss
//! may leave one without the other. Then the database itself is not changed yet.
//!
//! Facts from SQLite's public documentation (`fileformat2.html`).

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::Path;

use super::sidecars::{is_locked, open_beside};
use super::{HINT_LOG, to_u64};
use pagewarden_core::database::Step;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Unread};

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const HEADER_BYTES: usize = 28;
/// Records are counted by their room.
const UNCOUNTED: u32 = u32::MAX;
/// A record's number and sum.
const RECORD_EXTRA_BYTES: usize = 8;
/// The sum takes one byte in this number of bytes.
const SUM_STEP: usize = 200;

/// What is wrong with the journal beside `path`, the real path of a database that is open as
/// `database`; nothing if there is none, or none that will be played back.
pub fn look(database: &File, path: &Path) -> Vec<Step> {
    let Some((name, file, bytes)) = open_beside(path, "-journal") else { return Vec::new() };
    let Some(file) = file else {
        let error = "it cannot be opened: an interrupted transaction may wait to be undone";
        return if bytes > 0 {
            vec![Step::Unread(Unread::of_file(name, error))]
        } else {
            Vec::new()
        };
    };
    match first_broken(&file, bytes) {
        Ok(None) => Vec::new(),
        // A transaction that runs writes it, or one that ran did.
        Ok(Some(_)) if is_locked(database) => Vec::new(),
        Ok(Some(broken)) if again(path).as_ref() != Some(&broken) => Vec::new(),
        Ok(Some(broken)) => vec![Step::Finding(broken.finding(&name))],
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
fn again(path: &Path) -> Option<Broken> {
    let (_, file, bytes) = open_beside(path, "-journal")?;
    first_broken(&file?, bytes).ok()?
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

/// A header: what follows it.
#[derive(Debug)]
struct Header {
    records: u32,
    nonce: u32,
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
            sector_bytes: u64::from(sector_bytes),
            page_bytes: usize::try_from(page_bytes).ok()?,
        })
    }
}

fn first_broken(file: &File, bytes: u64) -> Result<Option<Broken>, (u64, io::Error)> {
    let mut offset = 0;
    // Only the first header holds the sizes.
    let mut sizes: Option<(u64, usize)> = None;
    while offset < bytes {
        let mut head = [0; HEADER_BYTES];
        read(file, &mut head, offset)?;
        let Some(header) = Header::parse(&head) else { return Ok(None) };
        let (sector_bytes, page_bytes) =
            *sizes.get_or_insert((header.sector_bytes, header.page_bytes));
        if header.records == UNCOUNTED {
            return Ok(None);
        }
        offset = offset.saturating_add(sector_bytes);
        let mut record = vec![0; page_bytes.saturating_add(RECORD_EXTRA_BYTES)];
        for number in 0..header.records {
            let at = |page, sums| {
                let (record, records) = (number.saturating_add(1), header.records);
                Ok(Some(Broken { record, records, page, offset, sums }))
            };
            if offset.saturating_add(to_u64(record.len())) > bytes {
                return at(0, None);
            }
            read(file, &mut record, offset)?;
            if let Some((page, stored, computed)) = broken(&record, header.nonce) {
                return at(page, Some((stored, computed)));
            }
            offset = offset.saturating_add(to_u64(record.len()));
        }
        offset = offset.checked_next_multiple_of(sector_bytes).unwrap_or(u64::MAX);
    }
    Ok(None)
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

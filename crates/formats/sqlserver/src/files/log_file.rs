//! The body of a log file (`.ldf`): virtual log files one behind the other, and the blocks in them.
//!
//! See `page::sqlserver::log` for the format. What follows from it:
//!
//! | what is wrong | what is reported |
//! |---|---|
//! | no virtual log file begins where one must | damage: `zeroed` or `header` |
//! | the file ends inside of one, or has none | damage: `truncated` |
//! | a block fails its test, or is not there, and others follow | see below |
//! | a virtual log file is not filled to its end, and a later one was begun | the same |
//!
//! The log ends with the last block that was written; what a file does not say is where that is. So
//! blocks that are lost at the end of the log cannot be missed here. A server may have a number of
//! blocks under way at once, and if it crashes, any of them may be missing: what lies before a few
//! others is suspect. It is damage where one flipped bit explains it, or more blocks follow than were
//! ever under way.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::time::Duration;

use crate::checksum::SECTOR_BYTES;
use crate::page::log::{
    BlockTest, FIRST_BLOCK, LogBlock, VLF_FIELDS_BYTES, VLF_HEADER_BYTES, VlfHeader, sectors_in,
};
use pagewarden_core::database::Step;
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::{counted, grouped};

const HINT: &str = "run DBCC CHECKDB while the database is there; a database that was shut down \
                    cleanly can be attached without its log (FOR ATTACH_REBUILD_LOG)";
/// Blocks that a server has under way at once: 112, and 32 before SQL Server 2012.
const UNDER_WAY_MAX: u64 = 128;
/// Virtual log files of one file; servers complain of a few thousand.
const VLFS_MAX: usize = 1 << 20;
/// Faults that are reported one by one.
const FAULTS_MAX: usize = 1000;
/// Read at a time.
const READ_BYTES: usize = 1 << 20;
/// No block is larger.
const BLOCK_BYTES_MAX: usize = 1 << 16;
/// Virtual log files begin at multiples of this.
const VLF_ALIGNMENT: usize = 4096;
/// A fault in a file that is in use is looked at again after so long.
const A_MOMENT: Duration = Duration::from_millis(200);

/// The way through a log file behind its first page.
pub(super) struct LogFile {
    file: File,
    name: String,
    bytes: u64,
    /// Pages that the file's header counts.
    pages: Option<u64>,
    vlfs: Option<VecDeque<Vlf>>,
    walked: Vec<Walked>,
    ready: VecDeque<Step>,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Vlf {
    offset: u64,
    header: VlfHeader,
}

/// A virtual log file that was looked through.
struct Walked {
    vlf: Vlf,
    blocks: u64,
    unsummed: u64,
    faults: Vec<Fault>,
    /// Where the last block ends, in sectors, and whether all behind it is zero.
    end: u32,
    is_zero_behind: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    place: u32,
    what: What,
    /// Blocks before it.
    before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Failed(BlockTest),
    Gap { sectors: u32, is_zero: bool },
}

impl LogFile {
    /// Of a file of `bytes` bytes whose header counts `pages` pages.
    pub(super) fn new(file: File, name: String, bytes: u64, pages: Option<u64>) -> Self {
        Self {
            file,
            name,
            bytes,
            pages,
            vlfs: None,
            walked: Vec::new(),
            ready: VecDeque::new(),
            has_ended: false,
        }
    }

    fn finding(&mut self, offset: u64, severity: Severity, kind: Kind, detail: String) {
        let finding = Finding::of_file(&self.name, severity, kind, detail)
            .at(None, Some(ByteOffset(offset)))
            .with_hint(HINT);
        self.ready.push_back(Step::Finding(finding));
    }

    fn unread(&mut self, offset: u64, error: &io::Error) {
        self.ready.push_back(Step::Unread(Unread::stretch(
            self.name.clone(),
            ByteOffset(offset),
            self.bytes.saturating_sub(offset),
            error.to_string(),
        )));
    }

    /// Finds all virtual log files.
    fn list(&mut self) -> VecDeque<Vlf> {
        let listed_bytes = self.pages.and_then(|pages| pages.checked_mul(VLF_HEADER_BYTES));
        let end = listed_bytes.map_or(self.bytes, |listed| listed.min(self.bytes));
        let mut vlfs = VecDeque::new();
        let mut offset = VLF_HEADER_BYTES;
        while offset < end && vlfs.len() < VLFS_MAX {
            let mut fields = [0; VLF_FIELDS_BYTES];
            let read = match read_fully(&self.file, &mut fields, offset) {
                Ok(read) => read,
                Err(error) => {
                    self.unread(offset, &error);
                    return vlfs;
                }
            };
            if let Some(header) = VlfHeader::parse(fields.get(..read).unwrap_or_default(), offset) {
                vlfs.push_back(Vlf { offset, header });
                offset = offset.saturating_add(header.bytes);
                continue;
            }
            let (next, is_zero) = match self.next_vlf(offset, end) {
                Ok(found) => found,
                Err(error) => {
                    self.unread(offset, &error);
                    return vlfs;
                }
            };
            let kind = if is_zero { Kind::Zeroed } else { Kind::Header };
            let detail = format!(
                "no part of the log (virtual log file) begins here, where one must: {} up to the \
                 next one are {}",
                counted(next.saturating_sub(offset), "byte"),
                if is_zero { "all zero" } else { "something else" }
            );
            self.finding(offset, Severity::Damage, kind, detail);
            offset = next;
        }
        self.say_end(offset, listed_bytes);
        self.mark_begun(&mut vlfs);
        vlfs
    }

    /// A part of the log that is said to be unused was written to all the same if its number lies
    /// between those of others, or if its first block has that number. One that is only prepared for use
    /// has an older number than all others or a newer one, and no block.
    fn mark_begun(&self, vlfs: &mut VecDeque<Vlf>) {
        let begun = vlfs.iter().filter(|vlf| vlf.header.is_begun).map(|vlf| vlf.header.sequence);
        let least = begun.clone().min().unwrap_or(u32::MAX);
        let most = begun.max().unwrap_or(0);
        for vlf in vlfs.iter_mut().filter(|vlf| vlf.header.sequence != 0) {
            let mut block = [0; SECTOR_BYTES];
            let first = vlf.offset.saturating_add(VLF_HEADER_BYTES);
            vlf.header.is_begun = vlf.header.is_begun
                || (least..most).contains(&vlf.header.sequence)
                || (read_fully(&self.file, &mut block, first).is_ok()
                    && LogBlock::parse(&block)
                        .is_some_and(|block| block.sequence == vlf.header.sequence));
        }
    }

    /// Where the next virtual log file begins, or the end; and whether all before it is zero.
    fn next_vlf(&self, from: u64, end: u64) -> io::Result<(u64, bool)> {
        let mut buffer = vec![0; READ_BYTES];
        let (mut at, mut is_zero) = (from, true);
        while at < end {
            let read = read_fully(&self.file, &mut buffer, at)?;
            let bytes = buffer.get(..read).unwrap_or_default();
            for (piece, offset) in bytes.chunks(VLF_ALIGNMENT).zip((at..).step_by(VLF_ALIGNMENT)) {
                if offset >= end {
                    break;
                }
                if offset > from && VlfHeader::parse(piece, offset).is_some() {
                    return Ok((offset, is_zero));
                }
                is_zero &= piece.iter().all(|byte| *byte == 0);
            }
            if read < READ_BYTES {
                break;
            }
            at = at.saturating_add(read as u64);
        }
        Ok((end, is_zero))
    }

    /// The last virtual log file ends at `offset`: is that the file's end?
    fn say_end(&mut self, offset: u64, listed_bytes: Option<u64>) {
        let has_none = offset <= VLF_HEADER_BYTES;
        if has_none || offset > self.bytes {
            let detail = if has_none {
                "the file ends behind its first page: there is no log in it".to_owned()
            } else {
                format!(
                    "the file ends with {} bytes, inside of a part of the log (virtual log file) \
                     that ends at byte {offset}",
                    self.bytes
                )
            };
            return self.finding(self.bytes, Severity::Damage, Kind::Truncated, detail);
        }
        let Some(listed) = listed_bytes else { return };
        if self.bytes < listed {
            let detail = format!(
                "the file's header says {listed} bytes, and the file ends with {}",
                self.bytes
            );
            self.finding(self.bytes, Severity::Suspect, Kind::Truncated, detail);
        } else if self.bytes > listed {
            let text = format!(
                "the file is longer than its header says: the bytes behind byte {listed} \
                 are no part of the log"
            );
            self.note(text);
        }
    }

    fn note(&mut self, text: String) {
        self.ready.push_back(Step::Note(Note { file: self.name.clone(), text }));
    }

    /// Looks through a virtual log file; a second time if something is wrong, for a server may be
    /// writing there.
    fn walk(&self, vlf: Vlf) -> io::Result<Option<Walked>> {
        let walked = walk(&self.file, vlf)?;
        if walked.faults.is_empty() {
            return Ok(Some(walked));
        }
        std::thread::sleep(A_MOMENT);
        let mut fields = [0; VLF_FIELDS_BYTES];
        read_fully(&self.file, &mut fields, vlf.offset)?;
        // Whether it was begun was found out by more than its header.
        let now = VlfHeader::parse(&fields, vlf.offset)
            .map(|now| VlfHeader { is_begun: vlf.header.is_begun, ..now });
        if now != Some(vlf.header) {
            return Ok(None);
        }
        let mut again = walk(&self.file, vlf)?;
        again.faults.retain(|fault| walked.faults.contains(fault));
        Ok(Some(again))
    }

    /// All was looked through: what it proves.
    fn judge(&mut self) {
        let mut walked = std::mem::take(&mut self.walked);
        walked.sort_by_key(|walked| walked.vlf.header.sequence);
        let mut later = 0_u64;
        let mut faults = Vec::new();
        for (one, age) in walked.iter().rev().zip(0_u64..) {
            // What a cut took away was told.
            let end = one.vlf.offset.saturating_add(one.vlf.header.bytes);
            if end <= self.bytes && (age > 0 || one.blocks == 0) {
                faults.extend(unfinished(one).map(|fault| (one.vlf, fault, later, age > 0)));
            }
            for fault in &one.faults {
                let behind = one.blocks.saturating_sub(fault.before);
                faults.push((one.vlf, *fault, later.saturating_add(behind), false));
            }
            later = later.saturating_add(one.blocks);
        }
        faults.sort_by_key(|(vlf, fault, ..)| (vlf.offset, fault.place));
        let untold = faults.len().saturating_sub(FAULTS_MAX);
        for (vlf, fault, following, is_end) in faults.into_iter().take(FAULTS_MAX) {
            self.say_fault(vlf, fault, following, is_end);
        }
        if untold > 0 {
            self.note(format!(
                "{} more faults of its blocks are not listed",
                grouped(untold as u64)
            ));
        }
        self.say_what_was_tested(&walked);
    }

    fn say_fault(&mut self, vlf: Vlf, fault: Fault, following: u64, is_end: bool) {
        let offset = u64::from(fault.place).saturating_mul(SECTOR_BYTES as u64);
        let offset = vlf.offset.saturating_add(offset);
        let place = format!("block {}:{} of the log", vlf.header.sequence, fault.place);
        // A part without its first block, and a later one was begun: no crash leaves that.
        let is_lost = is_end && fault.place == FIRST_BLOCK;
        let mut severity = Severity::Suspect;
        if following > UNDER_WAY_MAX || is_lost {
            severity = Severity::Damage;
        }
        let (kind, what) = match fault.what {
            What::Failed(BlockTest::Torn(sector)) => {
                (Kind::Torn, format!("its sector {sector} is of another write"))
            }
            What::Failed(test) => {
                if test.is_one_bit() {
                    severity = Severity::Damage;
                }
                let (stored, computed) = match test {
                    BlockTest::Sum { stored, computed } => (stored, computed),
                    _ => (0, 0),
                };
                let what = format!("it says {stored:#010x} and sums up to {computed:#010x}");
                (Kind::Checksum, what)
            }
            What::Gap { sectors, is_zero: true } => {
                (Kind::Zeroed, format!("it is missing: {sectors} sectors are all zero"))
            }
            What::Gap { sectors, is_zero: false } => {
                (Kind::Header, format!("it is missing: {sectors} sectors hold something else"))
            }
        };
        let follow = match following {
            0 => String::new(),
            count => format!("; {} follow", counted(count, "block")),
        };
        self.finding(offset, severity, kind, format!("{place}: {what}{follow}"));
    }

    fn say_what_was_tested(&mut self, walked: &[Walked]) {
        let sum = |of: fn(&Walked) -> u64| walked.iter().map(of).fold(0_u64, u64::saturating_add);
        let (blocks, unsummed) = (sum(|one| one.blocks), sum(|one| one.unsummed));
        let sums = match unsummed {
            0 => "each with its sum".to_owned(),
            count if count == blocks => "which carry no sums: only their sectors were tested, as \
                                         they are in databases without PAGE_VERIFY CHECKSUM"
                .to_owned(),
            count => format!("{} of them without a sum", grouped(count)),
        };
        self.note(format!(
            "behind its first page is log: {} in {} in use, {sums}; where the log ends only the \
             database knows, so that blocks lost at its very end are not missed",
            counted(blocks, "block"),
            counted(walked.len() as u64, "virtual log file"),
        ));
    }
}

fn sectors_of(vlf: Vlf) -> u32 {
    sectors_in(vlf.header.bytes)
}

/// A virtual log file is filled to its end before the next one is begun.
fn unfinished(one: &Walked) -> Option<Fault> {
    let sectors = sectors_of(one.vlf).saturating_sub(one.end);
    let what = What::Gap { sectors, is_zero: one.is_zero_behind };
    (sectors > 0).then_some(Fault { place: one.end, what, before: one.blocks })
}

/// Looks at the blocks of a virtual log file.
fn walk(file: &File, vlf: Vlf) -> io::Result<Walked> {
    let mut walked = Walked {
        vlf,
        blocks: 0,
        unsummed: 0,
        faults: Vec::new(),
        end: FIRST_BLOCK,
        is_zero_behind: true,
    };
    let sectors = sectors_of(vlf);
    let mut reader = Reader { file, begin: 0, bytes: Vec::new() };
    let mut gap: Option<Fault> = None;
    let mut at = FIRST_BLOCK;
    while at < sectors {
        let offset = u64::from(at).saturating_mul(SECTOR_BYTES as u64);
        let end = vlf.offset.saturating_add(vlf.header.bytes);
        let rest = reader.see(vlf.offset.saturating_add(offset), end)?;
        let is_here = |block: &LogBlock, place| {
            (block.sequence, block.place) == (vlf.header.sequence, place) && block.end() <= sectors
        };
        let block = LogBlock::parse(rest).filter(|block| is_here(block, at));
        let bytes = block.and_then(|block| rest.get(..usize::from(block.bytes)));
        if let (Some(block), Some(bytes)) = (block, bytes) {
            let test = block.test(bytes);
            let follows = rest.get(usize::from(block.bytes)..).unwrap_or_default();
            let leads_on = block.end() == sectors
                || LogBlock::parse(follows).is_some_and(|next| is_here(&next, block.end()));
            if test.passes() || test.is_one_bit() || leads_on {
                if walked.faults.len() < FAULTS_MAX {
                    walked.faults.extend(gap.take());
                }
                gap = None;
                if test.passes() {
                    walked.blocks = walked.blocks.saturating_add(1);
                    let without = u64::from(test == BlockTest::NoSum);
                    walked.unsummed = walked.unsummed.saturating_add(without);
                } else if walked.faults.len() < FAULTS_MAX {
                    let what = What::Failed(test);
                    walked.faults.push(Fault { place: at, what, before: walked.blocks });
                }
                at = block.end();
                walked.end = at;
                continue;
            }
        }
        if rest.is_empty() {
            break;
        }
        let what = What::Gap { sectors: 0, is_zero: true };
        let gap = gap.get_or_insert(Fault { place: at, what, before: walked.blocks });
        if let What::Gap { sectors, is_zero } = &mut gap.what {
            *sectors = sectors.saturating_add(1);
            let sector = rest.get(..SECTOR_BYTES).unwrap_or(rest);
            *is_zero &= sector.iter().all(|byte| *byte == 0);
        }
        at = at.saturating_add(1);
    }
    if let Some(Fault { what: What::Gap { is_zero, .. }, .. }) = gap {
        walked.is_zero_behind = is_zero;
    }
    Ok(walked)
}

/// Reads ahead.
struct Reader<'a> {
    file: &'a File,
    begin: u64,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    /// The bytes from `offset` on: those of the largest block and of the header behind it, fewer
    /// before `end`.
    fn see(&mut self, offset: u64, end: u64) -> io::Result<&[u8]> {
        const SEEN: u64 = (BLOCK_BYTES_MAX + SECTOR_BYTES) as u64;
        let wanted = offset.saturating_add(SEEN).min(end);
        let have = self.begin.saturating_add(self.bytes.len() as u64);
        if offset < self.begin || wanted > have {
            let count = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.bytes.resize(count.min(READ_BYTES), 0);
            let read = read_fully(self.file, &mut self.bytes, offset)?;
            self.bytes.truncate(read);
            self.begin = offset;
        }
        let at = usize::try_from(offset.saturating_sub(self.begin)).unwrap_or(usize::MAX);
        Ok(self.bytes.get(at..).unwrap_or_default())
    }
}

impl Iterator for LogFile {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.has_ended {
                return None;
            }
            let Some(vlfs) = &mut self.vlfs else {
                self.vlfs = Some(self.list());
                continue;
            };
            let Some(vlf) = vlfs.pop_front() else {
                self.has_ended = true;
                self.judge();
                continue;
            };
            if !vlf.header.is_begun {
                continue;
            }
            match self.walk(vlf) {
                Ok(walked) => self.walked.extend(walked),
                Err(error) => self.unread(vlf.offset, &error),
            }
            self.ready.push_back(Step::Passed(vlf.header.bytes));
        }
    }
}

/// True for a file whose first page is lost, and log follows it.
pub(super) fn has_log_behind_its_first_page(file: &File) -> bool {
    let mut fields = [0; VLF_FIELDS_BYTES];
    read_fully(file, &mut fields, VLF_HEADER_BYTES).is_ok_and(|read| read == fields.len())
        && VlfHeader::parse(&fields, VLF_HEADER_BYTES).is_some()
}

//! The frames of a write-ahead log against their sums.
//!
//! | log | bytes | |
//! |---|---|---|
//! | 0 | 4 | magic 0x377f0682, or 0x377f0683 where the sums read big-endian words |
//! | 8 | 4 | page size |
//! | 12 | 4 | how often the log began anew: the checkpoint sequence number |
//! | 16 | 8 | salt |
//! | 24 | 8 | sum of the 24 bytes before it |
//! | 32 | 24 + page each | frame: page number at 0, at 4 the database's pages if it is a commit, salt at 8, sum at 16; then the page |
//!
//! A frame's sum goes on from the one before, over its first 8 bytes and its page. SQLite takes
//! the log up to the last commit in front of the first frame that does not fit, and forgets the
//! rest without a word.
//!
//! That sound frames stand behind one that does not fit proves nothing: a transaction that was
//! rolled back after some of its pages went to the log leaves such frames, and so does recovery
//! after a power loss. So:
//!
//! | what | severity |
//! |---|---|
//! | one flipped bit mends the frame, and the chain then runs on to a commit: the sum has 64 bits | damage |
//! | the same, where a [torn write](torn) may have left it | suspect |
//! | a running database's `-shm` counts the frame as committed | damage |
//! | the last good frame is no commit, and commits follow | suspect, with their number |
//! | the last good frame is a commit, and commits follow | a note |
//!
//! SQLite 3.40.1 itself leaves committed frames without a salt and a sum (16 zero bytes) where a
//! page was written twice in a transaction and a savepoint before both was rolled back. In a
//! running database such a frame and the one behind it are not judged.
//!
//! Facts from SQLite's public documentation (`fileformat2.html`, `walformat.html`).

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::sidecars::{is_locked, open_beside};
use super::{HINT_LOG, to_u64};
use pagewarden_core::database::Step;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::source::hold;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::counted;

mod headless;
mod sum;
mod torn;
pub mod view;

use headless::Lost;
use sum::{Sum, flipped_bit};

const HEADER_BYTES: usize = 32;
const HEADER_SUMMED: usize = 24;
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_SUMMED: usize = 8;
/// Where the parts of a frame's header begin, in bits.
const COMMIT_BIT: u64 = 32;
const SALT_BIT: u64 = 64;
const SUM_BIT: u64 = 128;
/// Those of the salt and the sum.
const UNCOVERED_BITS: u64 = 128;
const MAGIC: u32 = 0x377f_0682;
/// Frames read at once.
const FRAMES_READ: usize = 32;
/// Findings of one log.
const FINDINGS_MAX: usize = 1000;
/// How often a log that changes meanwhile is looked at.
const LOOKS_MAX: u32 = 3;
/// The byte of `-shm` that everybody locks who uses it.
const SHM_LOCK_BYTE: u64 = 128;
const SHM_HEADER_BYTES: usize = 48;
const SHM_VERSION: u32 = 3_007_000;

/// What is wrong with the log beside `path`, the real path of a database that is open as
/// `database`; nothing if there is no log.
pub fn look(database: &File, path: &Path) -> Vec<Step> {
    let Some((name, file, bytes)) = open_beside(path, "-wal") else { return Vec::new() };
    if bytes <= to_u64(HEADER_BYTES) {
        return Vec::new();
    }
    let Some(file) = file else {
        let error = "it cannot be opened: changes that were committed may be in it alone";
        return vec![Step::Unread(Unread::of_file(name, error))];
    };
    let shm = open_regular(&with_suffix(path, "-shm")).ok();
    for _ in 0..LOOKS_MAX {
        let Some((before, committed)) = State::of(database, &file, shm.as_ref()) else { continue };
        let seen = match Log::read(&file) {
            Ok(Some(log)) => log.walk(before.judged(&log, committed)).map(|mut seen| {
                if !seen.is_counted {
                    for broken in &mut seen.broken {
                        broken.may_be_torn = torn::may_be_torn(&log, database, broken);
                    }
                }
                seen
            }),
            Ok(None) if before.at_rest.is_some() => {
                let lost = headless::lost(database, &file, &before);
                let after = State::of(database, &file, shm.as_ref());
                return match lost {
                    // It is in use by now.
                    Some(_) if after.is_none_or(|(after, _)| after != before) => continue,
                    Some(lost) => vec![lost_header(&name, lost)],
                    None => vec![no_header(name)],
                };
            }
            Ok(None) => return Vec::new(),
            Err(fault) => Err(fault),
        };
        // A fault is one only if no process wrote in between.
        let is_unchanged = || {
            let after = State::of(database, &file, shm.as_ref());
            after.is_some_and(|(after, _)| after == before)
        };
        match seen {
            Ok(seen) if seen.is_sound() => return Vec::new(),
            Ok(seen) if is_unchanged() => return seen.into_steps(&name),
            Ok(_) => {}
            // A log that was cut meanwhile.
            Err(fault) if fault.error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(fault) => {
                return vec![Step::Unread(Unread::stretch(
                    name,
                    ByteOffset(fault.offset),
                    fault.bytes,
                    fault.error.to_string(),
                ))];
            }
        }
    }
    Vec::new()
}

/// How many pages the database beside `path` has once recovery has put back what its log
/// holds: as of the last commit before the first frame that does not fit. `None` without one.
pub fn pages_after_recovery(path: &Path) -> Option<u64> {
    let (_, file, _) = open_beside(path, "-wal")?;
    let file = file?;
    let log = Log::read(&file).ok()??;
    let mut frames = Frames::of(&log);
    let (mut before, mut pages) = (log.sum, None);
    for number in 0..log.frames {
        let Some(frame) = frames.get(number).ok()? else { break };
        if !log.fits(before, &frame) {
            break;
        }
        before = frame.stored;
        if frame.commit != 0 {
            pages = Some(u64::from(frame.commit));
        }
    }
    pages
}

fn lost_header(name: &str, lost: Lost) -> Step {
    let Lost { commits, pages } = lost;
    let detail = format!(
        "the header of the write-ahead log is lost, and SQLite will take nothing of this log: {} whose frames \
         prove one another, and {} that the main file does not have",
        counted(commits, "transaction"),
        counted(pages, "page")
    );
    let finding = Finding::of_file(name, Severity::Damage, Kind::Header, detail);
    Step::Finding(finding.at(None, Some(ByteOffset(0))).with_hint(HINT_LOG))
}

fn no_header(file: String) -> Step {
    let text = "the header of the write-ahead log does not have its sum: SQLite will take nothing of \
                this log; a power loss leaves this, and so does damage to the header";
    Step::Note(Note { file, text: text.to_owned() })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A stretch that could not be read.
#[derive(Debug)]
struct Fault {
    offset: u64,
    bytes: u64,
    error: io::Error,
}

/// Who uses the log. Equal before and after a walk: what was judged stood still.
#[derive(Debug, PartialEq, Eq)]
struct State {
    header: [u8; HEADER_BYTES],
    /// The length and the time of a log that no process uses. One in use may grow.
    at_rest: Option<(u64, SystemTime)>,
    /// The salt of the log that the index of a running database is about.
    salt: Option<[u8; 8]>,
}

impl State {
    /// With the frames that the index counts. None while it changes too fast.
    fn of(database: &File, log: &File, shm: Option<&File>) -> Option<(Self, u64)> {
        let mut header = [0; HEADER_BYTES];
        read_fully(log, &mut header, 0).ok()?;
        let metadata = log.metadata().ok()?;
        let in_use = shm.filter(|shm| hold::is_locked_in(shm, SHM_LOCK_BYTE, 1));
        let is_live = in_use.is_some() || is_locked(database);
        let index = match in_use {
            Some(shm) => Some(read_index(shm)?),
            None => None,
        };
        let at_rest = match is_live {
            true => None,
            false => Some((metadata.len(), metadata.modified().ok()?)),
        };
        let salt = index.map(|(salt, _)| salt);
        Some((Self { header, at_rest, salt }, index.map_or(0, |(_, frames)| frames)))
    }

    /// How many frames a running database counts as committed. None for a log at rest, which is
    /// judged as recovery will read it. Of a log in use of which no index says how far it goes, or
    /// that has begun anew and the index does not say so yet, no frame is judged.
    fn judged(&self, log: &Log<'_>, committed: u64) -> Option<u64> {
        let is_of_log = self.salt == Some(log.salt);
        self.at_rest.is_none().then_some(if is_of_log { committed } else { 0 })
    }
}

/// The salt and the number of committed frames, of an index that stands still.
fn read_index(shm: &File) -> Option<([u8; 8], u64)> {
    const READS_MAX: u32 = 100;
    for _ in 0..READS_MAX {
        let mut bytes = [0; 2 * SHM_HEADER_BYTES];
        read_fully(shm, &mut bytes, 0).ok()?;
        let (one, other) = bytes.split_at(SHM_HEADER_BYTES);
        if one == other {
            return index_of(one);
        }
        std::thread::yield_now();
    }
    None
}

/// Numbers are in the order of the machine that runs the database: this one.
#[allow(clippy::host_endian_bytes, reason = "the index is memory, shared with other processes")]
fn index_of(header: &[u8]) -> Option<([u8; 8], u64)> {
    let (words, _) = header.as_chunks::<4>();
    let version = u32::from_ne_bytes(*words.first()?);
    let frames = u32::from_ne_bytes(*words.get(4)?);
    let salt = header.get(32..).and_then(|rest| rest.first_chunk())?;
    (version == SHM_VERSION).then_some((*salt, u64::from(frames)))
}

/// A log whose header was understood.
#[derive(Debug)]
struct Log<'a> {
    file: &'a File,
    page_bytes: usize,
    salt: [u8; 8],
    is_big_endian: bool,
    frames: u64,
    /// How often the log began anew, as far as its header knows.
    lives: u32,
    /// The sum in the header, where the first frame's begins.
    sum: Sum,
    /// The header itself needs a bit flipped, at this bit of the file.
    header_flip: Option<u64>,
}

/// One frame, taken apart.
#[derive(Debug, Clone, Copy)]
struct Frame<'a> {
    page: u32,
    commit: u32,
    salt: [u8; 8],
    stored: Sum,
    summed: &'a [u8],
    content: &'a [u8],
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, content) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>()?;
        let [p0, p1, p2, p3, c0, c1, c2, c3, salt @ .., a, b, c, d, e, f, g, h] = *head;
        Some(Self {
            page: u32::from_be_bytes([p0, p1, p2, p3]),
            commit: u32::from_be_bytes([c0, c1, c2, c3]),
            salt,
            stored: Sum(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])),
            summed: bytes.get(..FRAME_SUMMED)?,
            content,
        })
    }

    fn is_gap(&self) -> bool {
        self.salt == [0; 8] && self.stored == Sum::default()
    }
}

/// A frame that does not fit.
#[derive(Debug)]
struct Broken {
    /// From 0 on.
    frame: u64,
    page: u32,
    stored: Sum,
    computed: Sum,
    /// The bit of the frame that, flipped, mends it.
    flip: Option<u64>,
    /// See [`torn`].
    may_be_torn: bool,
}

/// The first frame that is not taken, and what stands behind it.
#[derive(Debug)]
struct Tail {
    frame: u64,
    after_commit: bool,
    commits: u64,
}

/// What came of a walk.
#[derive(Debug, Default)]
struct Seen {
    header_flip: Option<u64>,
    broken: Vec<Broken>,
    tail: Option<Tail>,
    is_counted: bool,
    frame_bytes: u64,
}

impl<'a> Log<'a> {
    /// None if this is no log, or one that SQLite would forget as a whole.
    fn read(file: &'a File) -> Result<Option<Self>, Fault> {
        let mut header = [0; HEADER_BYTES];
        let fault = |error| Fault { offset: 0, bytes: to_u64(HEADER_BYTES), error };
        let bytes = file.metadata().map_err(fault)?.len();
        read_fully(file, &mut header, 0).map_err(fault)?;
        if let Some(log) = Self::of_header(file, &header, bytes) {
            return Ok(Some(log));
        }
        for bit in 0..to_u64(HEADER_BYTES).saturating_mul(8) {
            let mut mended = header;
            flip(&mut mended, bit);
            let Some(log) = Self::of_header(file, &mended, bytes) else { continue };
            // Several bits may mend the sum: the frames say which is right.
            if Frames::of(&log).get(0)?.is_some_and(|frame| log.fits(log.sum, &frame)) {
                return Ok(Some(Self { header_flip: Some(bit), ..log }));
            }
        }
        Ok(None)
    }

    fn of_header(file: &'a File, header: &[u8; HEADER_BYTES], bytes: u64) -> Option<Self> {
        let word = |at: usize| {
            header
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|word| u32::from_be_bytes(*word))
        };
        let magic = word(0)?;
        let page_bytes = usize::try_from(word(8)?).ok()?;
        let is_known = magic & !1 == MAGIC && page_bytes.is_power_of_two();
        if !is_known || !(512..=65_536).contains(&page_bytes) {
            return None;
        }
        let is_big_endian = magic & 1 == 1;
        let sum = Sum::default().over(header.get(..HEADER_SUMMED)?, is_big_endian);
        if sum != Sum(word(24)?, word(28)?) {
            return None;
        }
        let frame_bytes = to_u64(page_bytes.saturating_add(FRAME_HEADER_BYTES));
        Some(Self {
            file,
            page_bytes,
            lives: word(12)?,
            salt: *header.get(16..).and_then(|rest| rest.first_chunk())?,
            is_big_endian,
            frames: bytes.saturating_sub(to_u64(HEADER_BYTES)).checked_div(frame_bytes)?,
            sum,
            header_flip: None,
        })
    }

    /// What a frame's sum should be.
    fn computed(&self, before: Sum, frame: &Frame<'_>) -> Sum {
        before.over(frame.summed, self.is_big_endian).over(frame.content, self.is_big_endian)
    }

    fn fits(&self, before: Sum, frame: &Frame<'_>) -> bool {
        frame.page != 0 && frame.salt == self.salt && self.computed(before, frame) == frame.stored
    }

    /// Goes through the frames: those that a running database counts as committed, or those that
    /// recovery would read.
    fn walk(&self, committed: Option<u64>) -> Result<Seen, Fault> {
        let mut frames = Frames::of(self);
        match committed {
            Some(count) => self.walk_committed(&mut frames, count.min(self.frames)),
            None => self.walk_at_rest(&mut frames),
        }
    }

    fn seen(&self) -> Seen {
        Seen { frame_bytes: to_u64(self.frame_bytes()), ..Seen::default() }
    }

    fn frame_bytes(&self) -> usize {
        self.page_bytes.saturating_add(FRAME_HEADER_BYTES)
    }

    fn walk_committed(&self, frames: &mut Frames<'_>, count: u64) -> Result<Seen, Fault> {
        let header_flip = self.header_flip.filter(|_| count > 0);
        let mut seen = Seen { is_counted: true, header_flip, ..self.seen() };
        let (mut before, mut is_after_gap) = (self.sum, false);
        for number in 0..count {
            let Some(frame) = frames.get(number)? else { break };
            let (is_gap, stored) = (frame.is_gap(), frame.stored);
            let computed = self.computed(before, &frame);
            let fits = self.fits(before, &frame);
            if !fits && !is_gap && !is_after_gap && seen.broken.len() < FINDINGS_MAX {
                let (page, mends) = (frame.page, self.mends(before, &frame));
                let flip = self.mend(frames, number, mends)?.map(|(bit, _)| bit);
                let broken =
                    Broken { frame: number, page, stored, computed, flip, may_be_torn: false };
                seen.broken.push(broken);
            }
            // The next frame goes on from the sum that was written, whichever half is wrong here.
            let is_written = fits || is_gap || self.next_fits(frames, number, stored)?;
            before = if is_written { stored } else { computed };
            is_after_gap = is_gap;
        }
        Ok(seen)
    }

    fn next_fits(&self, frames: &mut Frames<'_>, number: u64, before: Sum) -> Result<bool, Fault> {
        let next = frames.get(number.saturating_add(1))?;
        Ok(next.is_none_or(|next| self.fits(before, &next)))
    }

    fn walk_at_rest(&self, frames: &mut Frames<'_>) -> Result<Seen, Fault> {
        let mut seen = self.seen();
        let mut before = self.sum;
        // Mended, and no commit behind it yet.
        let mut waiting: Vec<(Broken, bool)> = Vec::new();
        let mut is_commit = false;
        let mut tail = None;
        for number in 0..self.frames {
            let Some(frame) = frames.get(number)? else { break };
            let computed = self.computed(before, &frame);
            let (mut sum, mut commit) = (frame.stored, frame.commit);
            if frame.page == 0 || frame.salt != self.salt || computed != frame.stored {
                let (page, stored) = (frame.page, frame.stored);
                let mends = self.mends(before, &frame);
                let mended = self.mend(frames, number, mends)?;
                let Some((bit, mended_sum)) = mended.filter(|_| waiting.len() < FINDINGS_MAX)
                else {
                    tail = Some((number, is_commit));
                    break;
                };
                let (page, flip) = (mended_word(page, 0, bit), Some(bit));
                let broken =
                    Broken { frame: number, page, stored, computed, flip, may_be_torn: false };
                waiting.push((broken, is_commit));
                sum = mended_sum;
                commit = mended_word(commit, COMMIT_BIT, bit);
            }
            before = sum;
            is_commit = commit != 0;
            if is_commit {
                seen.broken.extend(waiting.drain(..).map(|(broken, _)| broken));
                seen.header_flip = self.header_flip;
            }
        }
        // What leads to no commit is no frame that anybody misses.
        let first = waiting.first().map(|(broken, is_commit)| (broken.frame, *is_commit));
        if let Some((frame, after_commit)) = first.or(tail) {
            let commits = self.commits_behind(frames, frame)?;
            seen.tail = Some(Tail { frame, after_commit, commits });
        }
        Ok(seen)
    }

    /// Commits behind a frame that fit the frame before them.
    fn commits_behind(&self, frames: &mut Frames<'_>, frame: u64) -> Result<u64, Fault> {
        let mut before = match frames.get(frame)? {
            Some(frame) => frame.stored,
            None => return Ok(0),
        };
        let mut commits: u64 = 0;
        for number in frame.saturating_add(1)..self.frames {
            let Some(frame) = frames.get(number)? else { break };
            if frame.commit != 0 && self.fits(before, &frame) {
                commits = commits.saturating_add(1);
            }
            before = frame.stored;
        }
        Ok(commits)
    }

    /// The bits of a frame of which one mends it, each with the sum from which the next frame
    /// then goes on: of the page or its number, and of the sum itself. High bits of both may
    /// have the same effect; the next frame tells which it was.
    fn mends(&self, before: Sum, frame: &Frame<'_>) -> [Option<(u64, Sum)>; 2] {
        let computed = self.computed(before, frame);
        let salt_bits = bits_between(&frame.salt, &self.salt);
        if let (&[bit], true) = (salt_bits.as_slice(), computed == frame.stored) {
            // No sum covers the salt.
            return [Some((SALT_BIT.saturating_add(bit), computed)), None];
        }
        if !salt_bits.is_empty() {
            return [None, None];
        }
        let covered = (frame.summed, frame.content);
        let of_page = flipped_bit(covered, computed, frame.stored, self.is_big_endian)
            // In the frame, the salt and the sum stand between the two.
            .map(|bit| if bit < SALT_BIT { bit } else { bit.saturating_add(UNCOVERED_BITS) })
            .filter(|bit| mended_word(frame.page, 0, *bit) != 0)
            .map(|bit| (bit, frame.stored));
        let sum_bits = bits_between(&frame.stored.to_bytes(), &computed.to_bytes());
        let of_sum = match sum_bits.as_slice() {
            &[bit] if frame.page != 0 => Some((SUM_BIT.saturating_add(bit), computed)),
            _ => None,
        };
        [of_page, of_sum]
    }

    /// The one of several that the next frame bears out.
    fn mend(
        &self,
        frames: &mut Frames<'_>,
        number: u64,
        mends: [Option<(u64, Sum)>; 2],
    ) -> Result<Option<(u64, Sum)>, Fault> {
        if let [Some(first), Some(second)] = mends {
            let is_first = self.next_fits(frames, number, first.1)?;
            return Ok(Some(if is_first { first } else { second }));
        }
        Ok(mends.into_iter().flatten().next())
    }
}

/// A word whose first bit in the frame is `first`, after `flipped` was turned over.
fn mended_word(word: u32, first: u64, flipped: u64) -> u32 {
    let place = flipped.checked_sub(first).and_then(|place| u32::try_from(place).ok());
    place.and_then(|place| (1_u32 << 31).checked_shr(place)).map_or(word, |mask| word ^ mask)
}

/// Frames, read some at a time.
struct Frames<'a> {
    log: &'a Log<'a>,
    buffer: Vec<u8>,
    first: u64,
}

impl<'a> Frames<'a> {
    fn of(log: &'a Log<'a>) -> Self {
        Self { log, buffer: Vec::new(), first: 0 }
    }

    /// None behind the last one.
    fn get(&mut self, number: u64) -> Result<Option<Frame<'_>>, Fault> {
        if number >= self.log.frames {
            return Ok(None);
        }
        let frame_bytes = self.log.frame_bytes();
        let held = to_u64(self.buffer.len().checked_div(frame_bytes).unwrap_or(0));
        if number < self.first || number >= self.first.saturating_add(held) {
            self.fill(number, frame_bytes)?;
        }
        let place = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        Ok(self.buffer.chunks_exact(frame_bytes).nth(place).and_then(Frame::parse))
    }

    fn fill(&mut self, number: u64, frame_bytes: usize) -> Result<(), Fault> {
        let left = self.log.frames.saturating_sub(number);
        let count = usize::try_from(left).unwrap_or(FRAMES_READ).min(FRAMES_READ);
        let bytes = count.saturating_mul(frame_bytes);
        let offset = offset_of(number, to_u64(frame_bytes));
        self.buffer.resize(bytes, 0);
        self.first = number;
        let fault = |error| Fault { offset, bytes: to_u64(bytes), error };
        let filled = read_fully(self.log.file, &mut self.buffer, offset).map_err(fault)?;
        if filled < bytes {
            self.buffer.clear();
            return Err(fault(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }
}

fn offset_of(frame: u64, frame_bytes: u64) -> u64 {
    frame.saturating_mul(frame_bytes).saturating_add(to_u64(HEADER_BYTES))
}

/// Turns a bit over, counted from the highest of the first byte.
fn flip(bytes: &mut [u8], bit: u64) {
    let (byte, mask) = (usize::try_from(bit / 8).unwrap_or(usize::MAX), 0x80_u8 >> (bit % 8));
    if let Some(byte) = bytes.get_mut(byte) {
        *byte ^= mask;
    }
}

/// The places where two stretches of bytes differ, two at most.
fn bits_between(one: &[u8], other: &[u8]) -> Vec<u64> {
    let bytes = (0_u64..).zip(one.iter().zip(other)).filter(|(_, (one, other))| one != other);
    let bits = bytes.flat_map(|(byte, (one, other))| {
        let differing = one ^ other;
        let bits = (0..8_u64).filter(move |bit| differing & (0x80 >> bit) != 0);
        bits.map(move |bit| byte.saturating_mul(8).saturating_add(bit))
    });
    bits.take(2).collect()
}

impl Seen {
    fn is_sound(&self) -> bool {
        self.header_flip.is_none()
            && self.broken.is_empty()
            && self.tail.as_ref().is_none_or(|tail| tail.commits == 0)
    }

    fn into_steps(self, name: &str) -> Vec<Step> {
        // Several frames may hold versions of one page: the offset names the frame.
        let offset = |frame: u64| Some(ByteOffset(offset_of(frame, self.frame_bytes)));
        let mut steps = Vec::new();
        if let Some(bit) = self.header_flip {
            let detail = format!(
                "bit {bit} of the log's header is flipped: SQLite takes nothing of this log, though \
                 its frames are sound up to a commit"
            );
            let mut finding = Finding::of_file(name, Severity::Damage, Kind::BitFlip, detail);
            finding.place.offset = Some(ByteOffset(0));
            steps.push(Step::Finding(finding.with_hint(HINT_LOG)));
        }
        let is_counted = self.is_counted;
        steps.extend(self.broken.iter().map(|broken| {
            Step::Finding(broken.finding(name, is_counted).at(None, offset(broken.frame)))
        }));
        if let Some(tail) = self.tail.filter(|tail| tail.commits > 0) {
            let (number, commits) = (tail.frame.saturating_add(1), tail.commits);
            let transactions = match commits {
                1 => "1 commit stands".to_owned(),
                commits => format!("{commits} commits stand"),
            };
            steps.push(match tail.after_commit {
                true => Step::Note(Note {
                    file: name.to_owned(),
                    text: format!(
                        "frame {number} is the end of the log, and {transactions} behind it: left \
                         over by a recovery, or lost by damage to this frame"
                    ),
                }),
                false => {
                    let detail = format!(
                        "frame {number} does not fit the frames before it, which end in the \
                         middle of a transaction, and {transactions} behind it: SQLite will \
                         forget them; a power loss leaves this, and so does damage to the frame"
                    );
                    let finding = Finding::of_file(name, Severity::Suspect, Kind::Checksum, detail)
                        .at(None, offset(tail.frame))
                        .with_hint(HINT_LOG);
                    Step::Finding(finding)
                }
            });
        }
        steps
    }
}

impl Broken {
    fn finding(&self, name: &str, is_counted: bool) -> Finding {
        let number = self.frame.saturating_add(1);
        let what = match self.flip {
            Some(bit) => {
                format!("one flipped bit explains frame {number}, as in its byte {}", bit / 8)
            }
            None => format!("frame {number} does not have its sum"),
        };
        let so = match is_counted {
            true => {
                "the running database counts it as committed: readers take it as it is, and \
                 recovery would forget it and all behind it"
            }
            false => "SQLite will take nothing of the log from here on, commits that follow too",
        };
        let kind = if self.flip.is_some() { Kind::BitFlip } else { Kind::Checksum };
        let page = match self.page {
            0 => String::new(),
            page => format!(" (page {page})"),
        };
        let (severity, or) = match self.may_be_torn {
            true => {
                (Severity::Suspect, "; or a power failure tore it: then it was promised to none")
            }
            false => (Severity::Damage, ""),
        };
        Finding::of_file(name, severity, kind, format!("{what}{page}; {so}{or}"))
            .with_sums(Some(self.stored.to_hex()), Some(self.computed.to_hex()))
            .with_hint(HINT_LOG)
    }
}

//! The running sum of a write-ahead log, walked before a checkpoint. SQLite itself verifies it in
//! recovery only.
//!
//! | log | bytes | |
//! |---|---|---|
//! | 0 | 4 | magic 0x377f0682, or 0x377f0683 where the sums read big-endian words |
//! | 8 | 4 | page size |
//! | 16 | 8 | salt |
//! | 24 | 8 | sum of the 24 bytes before it |
//! | 32 | 24 + page each | frame: page number and commit size at 0, sum at 16; then the page |
//!
//! | wal-index | bytes | |
//! |---|---|---|
//! | 0, 48 | 48 each | header, twice; numbers in the machine's order |
//! | 16 | 4 | last valid frame |
//! | 32 | 8 | salt, as in the log |
//! | 96 | 4 | frames that are in the main file already |
//!
//! A frame's sum goes on from the one before, over its first 8 bytes and its page. Facts from
//! SQLite's public documentation (`fileformat2.html`, `walformat.html`).
//!
//! A healthy log may have gaps: SQLite 3.40.1 leaves committed frames without a salt and a sum
//! (all 16 bytes zero) where a page was written twice in a transaction and a savepoint before both
//! was rolled back. The frame behind a gap goes on from the gap's zeroes, or from the frame in
//! front of it. (Its recovery stops there; the checkpoint that is asked for here saves the rest.)
//! So each frame is compared with the sum that stands in the frame before it, and a gap and the
//! frame behind it are not judged.

use std::ffi::{c_int, c_void};
use std::num::NonZeroU32;
use std::ptr;

use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker, Mode, Room};
use pagewarden::verdict::PageNo;
use rusqlite::ffi;

use crate::database::{Checkpoint, Database};
use crate::held::Held;
use crate::parent::Parent;
use crate::vfs;

const HEADER_BYTES: usize = 32;
pub const FRAME_HEADER_BYTES: usize = 24;
/// The balance and the marker.
pub const TAIL_BYTES: usize = 24;
const INDEX_HEADER_BYTES: usize = 48;
const INDEX_REGION_BYTES: i32 = 32_768;
/// Frames read at once.
const FRAMES_READ: u32 = 16;
/// A wal-index that is still being written then was left so by a process that ended.
const INDEX_READS_MAX: u32 = 1000;

pub type FrameHeader = [u8; FRAME_HEADER_BYTES];
type Salt = [u8; 8];

/// A frame as it went through this connection: nothing that was read back.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// All zero where the frame was not seen as a whole: page numbers begin at 1.
    header: FrameHeader,
    page: u64,
    /// The page has its marker, by whose digest of all content it is known.
    is_stamped: bool,
}

impl Seen {
    /// This frame is the one that was seen.
    fn fits(&self, header: &FrameHeader, page: &[u8]) -> bool {
        if self.header != *header {
            return false;
        }
        if !self.is_stamped {
            return self.page == sum_of_page(page);
        }
        let number = PageNo(number_of(header).into());
        sum_of_stamped(page) == Some(self.page) && page_verify::verify(page, number).is_some()
    }
}

/// The open log of a database.
///
/// SQLite's sum has a step for every word that waits for the one before, so a walk by it takes
/// longer than all else that a checkpoint computes. What this connection wrote itself, or read in
/// recovery, is remembered by a faster sum, and compared with that first. Only a frame that does
/// not fit, since another process wrote it or it is damaged, is compared with SQLite's.
#[derive(Debug)]
pub struct Wal {
    file: Parent,
    page_size: usize,
    /// Of the frames seen.
    salt: Salt,
    seen: Vec<Seen>,
    /// The header of the frame whose page must follow.
    begun: Option<(usize, FrameHeader)>,
    /// The sums read big-endian words.
    is_big_endian: bool,
    walked: Walked,
    held: Held,
    /// The number of the page that SQLite was given last, where the page passed by its marker.
    given: Option<u32>,
}

/// A running sum.
pub type Sum = (u32, u32);

/// How far the log has been walked.
#[derive(Debug, Default, Clone, Copy)]
struct Walked {
    salt: Salt,
    frames: u32,
    /// The sum that stands in the last of them.
    sum: Sum,
}

/// What the wal-index says of the log.
struct Index {
    last_frame: u32,
    salt: Salt,
    backfilled: u32,
}

impl Wal {
    pub fn new(file: Parent) -> Self {
        let (salt, seen, walked) = (Salt::default(), Vec::new(), Walked::default());
        let (held, given) = (Held::default(), None);
        let begun = None;
        Self { file, page_size: 0, salt, seen, begun, is_big_endian: false, walked, held, given }
    }

    /// Bytes that were read from the log in recovery. Behind its end lie frames of older logs.
    fn see_read(&mut self, bytes: &[u8], offset: i64) {
        let salt = bytes.get(8..).and_then(|rest| rest.first_chunk());
        if offset == 0 || salt == Some(&self.salt) {
            self.see_written(bytes, offset, false);
        }
    }

    /// Bytes that were written to the log; `is_stamped` if they are a page that has the digest of its
    /// content.
    fn see_written(&mut self, bytes: &[u8], offset: i64, is_stamped: bool) {
        self.begun = None;
        let Ok(offset) = usize::try_from(offset) else { return };
        let Some(after_header) = offset.checked_sub(HEADER_BYTES) else {
            match bytes.first_chunk() {
                Some(header) if offset == 0 => self.see_header(header),
                _ => self.seen.clear(),
            }
            return;
        };
        let frame_bytes = self.page_size.saturating_add(FRAME_HEADER_BYTES);
        let (frame, at) = (after_header / frame_bytes, after_header % frame_bytes);
        let (header, page) = match at {
            0 => bytes.split_first_chunk().map_or((None, bytes), |(head, page)| (Some(head), page)),
            _ => (None, bytes),
        };
        let is_whole_page = page.len() == self.page_size && self.page_size != 0;
        match (header, at) {
            (Some(header), _) if page.is_empty() => {
                self.see_frame_header(frame, header);
                self.begun = Some((frame, *header));
            }
            (Some(header), _) if is_whole_page => {
                self.see_frame_header(frame, header);
                self.see_page(frame, page, false);
            }
            (None, FRAME_HEADER_BYTES) if is_whole_page => self.see_page(frame, page, is_stamped),
            _ => {
                // Pieces: what they leave is not known.
                let end = after_header.saturating_add(bytes.len()).div_ceil(frame_bytes);
                let end = end.min(self.seen.len());
                self.seen.get_mut(frame..end).unwrap_or(&mut []).fill(Seen::default());
            }
        }
    }

    fn see_header(&mut self, header: &[u8; HEADER_BYTES]) {
        let Some((page_size, salt)) = page_size_and_salt(header) else { return };
        self.is_big_endian = header.get(3).is_some_and(|magic| magic & 1 == 1);
        if (page_size, salt) != (self.page_size, self.salt) {
            self.seen.clear();
        }
        (self.page_size, self.salt) = (page_size, salt);
    }

    fn see_frame_header(&mut self, frame: usize, header: &FrameHeader) {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *header;
        let salt = [a, b, c, d, e, f, g, h];
        if salt != self.salt {
            self.seen.clear();
            self.salt = salt;
        }
        if let Some(seen) = self.slot(frame) {
            seen.header = *header;
        }
    }

    fn see_page(&mut self, frame: usize, page: &[u8], is_stamped: bool) {
        let stamped = sum_of_stamped(page).filter(|_| is_stamped);
        let sum = stamped.unwrap_or_else(|| sum_of_page(page));
        if let Some(seen) = self.slot(frame) {
            (seen.page, seen.is_stamped) = (sum, stamped.is_some());
        }
    }

    fn slot(&mut self, frame: usize) -> Option<&mut Seen> {
        if frame >= self.seen.len() {
            self.seen.resize(frame.saturating_add(1), Seen::default());
        }
        self.seen.get_mut(frame)
    }

    fn truncated(&mut self, bytes: i64) {
        let frame_bytes = self.page_size.saturating_add(FRAME_HEADER_BYTES);
        let bytes = usize::try_from(bytes).unwrap_or(0);
        self.seen.truncate(bytes.saturating_sub(HEADER_BYTES) / frame_bytes);
    }

    /// The frame whose page `bytes` bytes at `offset` are; `None` if they are not one page.
    pub fn frame_of_page(&mut self, bytes: usize, offset: i64) -> Option<usize> {
        if self.page_size == 0 {
            self.read_header();
        }
        let after = usize::try_from(offset).ok()?.checked_sub(HEADER_BYTES)?;
        let frame_bytes = self.page_size.checked_add(FRAME_HEADER_BYTES)?;
        (bytes == self.page_size && after % frame_bytes == FRAME_HEADER_BYTES)
            .then_some(after / frame_bytes)
    }

    fn read_header(&mut self) {
        let mut header = [0; HEADER_BYTES];
        if self.file.read(&mut header, 0) == ffi::SQLITE_OK {
            self.see_header(&header);
        }
    }

    /// The header of a frame, and whether it was written just now: then the page is written as the
    /// sum in it has it.
    pub fn header_of(&self, frame: usize) -> Option<(FrameHeader, bool)> {
        match self.begun {
            Some((begun, header)) if begun == frame => Some((header, true)),
            _ => Some((self.header_in_file(frame)?, false)),
        }
    }

    fn header_in_file(&self, frame: usize) -> Option<FrameHeader> {
        let frame_bytes = self.page_size.checked_add(FRAME_HEADER_BYTES)?;
        let mut header = [0; FRAME_HEADER_BYTES];
        let result = self.file.read(&mut header, offset_of(frame, frame_bytes)?);
        (result == ffi::SQLITE_OK).then_some(header)
    }

    /// How the log of a frame reads the words that it sums.
    pub fn reads_big_endian(&mut self, header: &FrameHeader) -> bool {
        if header.get(8..).and_then(|rest| rest.first_chunk()) != Some(&self.salt) {
            // Another process has begun the log anew.
            self.read_header();
        }
        self.is_big_endian
    }

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.file.size() == Ok(0)
    }

    /// Walks on to the last frame. False if the log is not what was written there. `main` is the
    /// main file where it has shared memory, which says how far the log is valid; else this
    /// connection is alone with the log, and has seen all of it.
    pub fn is_sound(&mut self, main: Option<Parent>) -> bool {
        let index = match main {
            Some(main) => match Index::read_when_written(main) {
                Some(index) => index,
                None => return true,
            },
            None => Index { last_frame: self.seen_count(), salt: self.salt, backfilled: 0 },
        };
        if index.last_frame == 0 {
            return true;
        }
        let mut header = [0; HEADER_BYTES];
        if self.file.read(&mut header, 0) != ffi::SQLITE_OK {
            return false;
        }
        let Some((_, salt)) = page_size_and_salt(&header) else { return false };
        if salt != index.salt {
            return false;
        }
        self.see_header(&header);
        let is_big_endian = self.is_big_endian;
        // What was walked before may have rotted since, unless it is in the main file.
        if self.walked.salt != salt || self.walked.frames > index.backfilled {
            let sum = add((0, 0), header.get(..24).unwrap_or(&[]), is_big_endian);
            self.walked = Walked { salt, frames: 0, sum };
        }
        self.walk(index.last_frame)
    }

    /// Reads and verifies the frames that are not walked yet, up to `last_frame`, and holds them.
    fn walk(&mut self, last_frame: u32) -> bool {
        let Self { file, page_size, seen, is_big_endian, held, .. } = self;
        let frame_bytes = page_size.saturating_add(FRAME_HEADER_BYTES);
        let mut walked = self.walked;
        let Ok(first) = usize::try_from(walked.frames) else { return false };
        held.begin(first, frame_bytes);
        while walked.frames < last_frame {
            let count = last_frame.saturating_sub(walked.frames).min(FRAMES_READ);
            let (Ok(frames), Ok(first)) = (usize::try_from(count), usize::try_from(walked.frames))
            else {
                return false;
            };
            let Some(offset) = offset_of(first, frame_bytes) else { return false };
            let (bytes, are_stamped) = held.next(frames);
            if file.read(bytes, offset) != ffi::SQLITE_OK {
                return false;
            }
            let frames = bytes.chunks_exact(frame_bytes).zip(are_stamped);
            for ((frame, is_stamped), number) in frames.zip(first..) {
                let Some((head, page)) = frame.split_first_chunk() else { return false };
                let stored = stored_sum(head);
                let seen = seen.get(number).filter(|seen| seen.fits(head, page));
                *is_stamped = seen.is_some_and(|seen| seen.is_stamped);
                if walked.sum != GAP && stored != GAP && seen.is_none() {
                    let (covered, _) = head.split_at(8);
                    let sum = add(walked.sum, covered, *is_big_endian);
                    if add(sum, page, *is_big_endian) != stored {
                        return false;
                    }
                }
                walked.sum = stored;
            }
            walked.frames = walked.frames.saturating_add(count);
        }
        self.walked = walked;
        true
    }

    /// Gives SQLite a page of the log as it was verified when the checkpoint began; false if it is not
    /// held.
    fn give(&mut self, buffer: &mut [u8], offset: i64) -> bool {
        self.given = None;
        let held =
            self.frame_of_page(buffer.len(), offset).and_then(|frame| self.held.frame(frame));
        let Some((head, page)) = held.and_then(|held| held.bytes.split_first_chunk()) else {
            return false;
        };
        buffer.copy_from_slice(page);
        self.given = held.filter(|held| held.is_stamped).map(|_| number_of(head));
        true
    }

    /// The number of the page that was just given to SQLite, where it passed by its marker.
    pub fn take_given(&mut self) -> Option<u32> {
        self.given.take()
    }

    /// The checkpoint is over.
    pub fn let_go(&mut self) {
        self.given = None;
        self.held.end();
    }

    /// Frames from the first one on that were seen as a whole.
    fn seen_count(&self) -> u32 {
        let count = self.seen.iter().take_while(|seen| seen.header != [0; _]).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// The log's file, as SQLite has it open.
#[derive(Debug)]
pub struct WalFile {
    pub file: Parent,
    /// The main file, which SQLite closes after its log.
    main: *mut ffi::sqlite3_file,
}

impl WalFile {
    /// # Safety
    ///
    /// As for [`crate::journal::Journal::new`].
    pub unsafe fn new(file: Parent, main: *mut ffi::sqlite3_file) -> Self {
        Self { file, main }
    }

    fn wal(&mut self) -> Option<&mut Wal> {
        // SAFETY: by `new`; SQLite calls into one connection's files one after another, and no
        // reference is kept between calls.
        unsafe { vfs::database_of(self.main) }?.wal.as_mut()
    }

    fn main(&mut self) -> Option<&mut Database> {
        // SAFETY: as in `wal`.
        unsafe { vfs::database_of(self.main) }
    }

    pub fn read(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        if let Some(main) = self.main()
            && main.checkpoint == Some(Checkpoint::Sound)
            && main.wal.as_mut().is_some_and(|wal| wal.give(buffer, offset))
        {
            main.frame_read(buffer, offset);
            return ffi::SQLITE_OK;
        }
        let result = self.file.read(buffer, offset);
        if result != ffi::SQLITE_OK {
            return result;
        }
        // Recovery reads the header and whole frames; all else reads pages alone.
        if offset == 0 || !buffer.len().is_power_of_two() {
            if let Some(wal) = self.wal() {
                wal.see_read(buffer, offset);
            }
        } else if let Some(main) = self.main() {
            main.frame_read(buffer, offset);
        }
        result
    }

    pub fn write(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        let is_stamped = match self.main().map(|main| main.frame_comes(buffer, offset)) {
            Some(Err(error)) => return error,
            Some(Ok(is_stamped)) => is_stamped,
            None => false,
        };
        let result = self.file.write(buffer, offset);
        if let Some(main) = self.main() {
            if let Some(wal) = main.wal.as_mut() {
                match result {
                    ffi::SQLITE_OK => wal.see_written(buffer, offset, is_stamped),
                    _ => wal.truncated(0),
                }
            }
            main.frame_written(buffer, offset);
        }
        result
    }

    pub fn truncate(&mut self, bytes: i64) -> c_int {
        if let Some(wal) = self.wal() {
            wal.truncated(bytes);
        }
        self.file.truncate(bytes)
    }

    pub fn close(&mut self) -> c_int {
        // SAFETY: as in `wal`.
        if let Some(main) = unsafe { vfs::database_of(self.main) } {
            main.wal = None;
        }
        self.file.close()
    }
}

/// A sum of a page, for this process.
fn sum_of_page(page: &[u8]) -> u64 {
    let (mode, database, room) = (Mode::Checksum, NonZeroU32::MIN, Room::Marker);
    let marker = Marker { mode, setting: None, database, room };
    // The last eight bytes are not in it.
    page_verify::digest(page, marker, PageNo(0)).wrapping_mul(3) ^ page_verify::stored_digest(page)
}

/// A sum of a page that has the digest of its content: that digest, and the balance, which is not in it.
fn sum_of_stamped(page: &[u8]) -> Option<u64> {
    let [a, b, c, d, e, f, g, h, ..] = *page.last_chunk::<TAIL_BYTES>()?;
    let balance = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    Some(page_verify::stored_digest(page) ^ balance.rotate_left(1))
}

/// Where a frame begins in the log.
fn offset_of(frame: usize, frame_bytes: usize) -> Option<i64> {
    i64::try_from(frame.checked_mul(frame_bytes)?.checked_add(HEADER_BYTES)?).ok()
}

/// The number of the page that a frame has.
pub fn number_of([a, b, c, d, ..]: &FrameHeader) -> u32 {
    u32::from_be_bytes([*a, *b, *c, *d])
}

/// Of the log's header; `None` if it is none.
fn page_size_and_salt(header: &[u8; HEADER_BYTES]) -> Option<(usize, Salt)> {
    let page_size = header.get(8..).and_then(|rest| rest.first_chunk())?;
    let salt = header.get(16..).and_then(|rest| rest.first_chunk())?;
    let page_size = usize::try_from(u32::from_be_bytes(*page_size)).ok()?;
    (page_size.is_power_of_two() && page_size <= 65_536).then_some((page_size, *salt))
}

/// What stands in the place of a sum in a gap.
pub const GAP: (u32, u32) = (0, 0);

pub fn stored_sum(header: &FrameHeader) -> Sum {
    let [.., a, b, c, d, e, f, g, h] = *header;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// The sum goes on over `bytes`, two words at a time.
pub fn add(sum: Sum, bytes: &[u8], is_big_endian: bool) -> Sum {
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(sum, |(first, second), pair| {
        let (x, y) = words(*pair, is_big_endian);
        let first = first.wrapping_add(x).wrapping_add(second);
        (first, second.wrapping_add(y).wrapping_add(first))
    })
}

/// The sum before `bytes`, of which it is `sum` behind them.
pub fn take_off(sum: Sum, bytes: &[u8], is_big_endian: bool) -> Sum {
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().rev().fold(sum, |(first, second), pair| {
        let (x, y) = words(*pair, is_big_endian);
        let second = second.wrapping_sub(y).wrapping_sub(first);
        (first.wrapping_sub(x).wrapping_sub(second), second)
    })
}

/// The eight bytes that lead from one sum to another.
pub fn between(before: Sum, after: Sum, is_big_endian: bool) -> [u8; 8] {
    let x = after.0.wrapping_sub(before.0).wrapping_sub(before.1);
    let y = after.1.wrapping_sub(before.1).wrapping_sub(after.0);
    let bytes = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    let ([a, b, c, d], [e, f, g, h]) = (bytes(x), bytes(y));
    [a, b, c, d, e, f, g, h]
}

fn words([a, b, c, d, e, f, g, h]: [u8; 8], is_big_endian: bool) -> (u32, u32) {
    let (x, y) = ([a, b, c, d], [e, f, g, h]);
    if is_big_endian {
        (u32::from_be_bytes(x), u32::from_be_bytes(y))
    } else {
        (u32::from_le_bytes(x), u32::from_le_bytes(y))
    }
}

impl Index {
    /// Others write it in a moment.
    fn read_when_written(main: Parent) -> Option<Self> {
        (0..INDEX_READS_MAX).find_map(|_| {
            let index = Self::read(main);
            if index.is_none() {
                std::thread::yield_now();
            }
            index
        })
    }

    /// `None` if there is no wal-index, or it is being written.
    fn read(main: Parent) -> Option<Self> {
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: `address` may be written to.
        let result = unsafe { main.shm_map(0, INDEX_REGION_BYTES, 0, &raw mut address) };
        if result != ffi::SQLITE_OK || address.is_null() {
            return None;
        }
        // SAFETY: the region is mapped as long as the file is open in WAL mode, is longer than
        // this, and aligned to a page. Others may write it meanwhile, so it is copied by volatile
        // reads, and taken only if both copies of the header are the same.
        let words: [u32; 25] =
            std::array::from_fn(|at| unsafe { address.cast::<u32>().add(at).read_volatile() });
        let (first, rest) = words.split_first_chunk::<{ INDEX_HEADER_BYTES / 4 }>()?;
        let (second, rest) = rest.split_first_chunk::<{ INDEX_HEADER_BYTES / 4 }>()?;
        if first != second {
            return None;
        }
        let [_, _, _, _, last_frame, _, _, _, salt_a, salt_b, ..] = *first;
        // The salt is kept as it is in the file.
        #[allow(clippy::host_endian_bytes)]
        let (salt_a, salt_b) = (salt_a.to_ne_bytes(), salt_b.to_ne_bytes());
        let [a, b, c, d] = salt_a;
        let [e, f, g, h] = salt_b;
        Some(Self { last_frame, salt: [a, b, c, d, e, f, g, h], backfilled: *rest.first()? })
    }
}

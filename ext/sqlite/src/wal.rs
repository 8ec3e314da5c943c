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
//! So each frame is held against the sum that stands in the frame before it, and a gap and the
//! frame behind it are not judged.

use std::ffi::c_void;
use std::ptr;

use rusqlite::ffi;

use crate::parent::Parent;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const INDEX_HEADER_BYTES: usize = 48;
const INDEX_REGION_BYTES: i32 = 32_768;
/// Frames read at once.
const FRAMES_READ: u32 = 16;

/// The log's file, open in the VFS beneath.
#[derive(Debug)]
pub struct WalFile(pub Parent);

/// How far the log has been walked.
#[derive(Debug, Default, Clone, Copy)]
pub struct WalPosition {
    salt: [u8; 8],
    frames: u32,
    /// The sum that stands in the last of them.
    sum: (u32, u32),
}

/// What the wal-index says of the log.
struct Index {
    last_frame: u32,
    salt: [u8; 8],
    backfilled: u32,
}

impl WalPosition {
    /// Walks on to the last frame. False if the log is not what was written there.
    pub fn advance(&mut self, wal: &WalFile, main: Parent) -> bool {
        let Some(index) = Index::read(main) else { return true };
        let mut header = [0; HEADER_BYTES];
        if wal.0.read(&mut header, 0) != ffi::SQLITE_OK {
            return false;
        }
        let word = |at: usize| header.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied();
        let (Some([.., magic]), Some(page_size)) = (word(0), word(8)) else { return false };
        let is_big_endian = magic & 1 == 1;
        let salt = header.get(16..).and_then(|rest| rest.first_chunk::<8>()).copied();
        if salt != Some(index.salt) {
            return false;
        }
        // What was walked before may have rotted since, unless it is in the main file.
        if self.salt != index.salt || self.frames > index.backfilled {
            let sum = add((0, 0), header.get(..24).unwrap_or(&[]), is_big_endian);
            *self = Self { salt: index.salt, frames: 0, sum };
        }
        let Ok(page_size) = usize::try_from(u32::from_be_bytes(page_size)) else { return false };
        let frame_bytes = page_size.saturating_add(FRAME_HEADER_BYTES);
        let mut position = *self;
        let mut buffer = Vec::new();
        while position.frames < index.last_frame {
            let count = index.last_frame.saturating_sub(position.frames).min(FRAMES_READ);
            let Ok(frames) = usize::try_from(count) else { return false };
            buffer.resize(frames.saturating_mul(frame_bytes), 0);
            let Ok(frame_bytes_signed) = i64::try_from(frame_bytes) else { return false };
            let offset = i64::from(position.frames).saturating_mul(frame_bytes_signed);
            if wal.0.read(&mut buffer, offset.saturating_add(32)) != ffi::SQLITE_OK {
                return false;
            }
            for frame in buffer.chunks_exact(frame_bytes) {
                let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
                let (covered, stored) = head.split_at(8);
                let stored = sum_of(stored.get(8..).unwrap_or(&[]));
                if position.sum != GAP && stored != GAP {
                    let sum = add(position.sum, covered, is_big_endian);
                    if add(sum, page, is_big_endian) != stored {
                        return false;
                    }
                }
                position.sum = stored;
            }
            position.frames = position.frames.saturating_add(count);
        }
        *self = position;
        true
    }
}

/// What stands in the place of a sum in a gap.
const GAP: (u32, u32) = (0, 0);

fn sum_of(bytes: &[u8]) -> (u32, u32) {
    let word = |at: usize| {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |word| u32::from_be_bytes(*word))
    };
    (word(0), word(4))
}

/// The sum goes on over `bytes`, two words at a time.
fn add(sum: (u32, u32), bytes: &[u8], is_big_endian: bool) -> (u32, u32) {
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(sum, |(first, second), [a, b, c, d, e, f, g, h]| {
        let (x, y) = ([*a, *b, *c, *d], [*e, *f, *g, *h]);
        let (x, y) = if is_big_endian {
            (u32::from_be_bytes(x), u32::from_be_bytes(y))
        } else {
            (u32::from_le_bytes(x), u32::from_le_bytes(y))
        };
        let first = first.wrapping_add(x).wrapping_add(second);
        (first, second.wrapping_add(y).wrapping_add(first))
    })
}

impl Index {
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

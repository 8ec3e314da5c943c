//! Whether the blocks of a backup follow each other as they were written.
//!
//! Blocks have sums, and nothing that a sum sees tells that one of them is gone, came twice or changed
//! places with another. They say where they stand, though:
//!
//! | block | at | bytes | field |
//! |---|---|---|---|
//! | VOLB, MSCI, MSDA, MSTL, MSLS | 20 | 8 | blocks of 1,024 bytes (TAPE says how many) from the set's SSET on |
//! | | 36 | 4 | blocks of this set before it |
//! | SSET | 62 | 2 | number of the set |
//! | | 80 | 8 | byte of the file at which it begins |
//! | SFMB | 56 | 4 | filemarks before it |
//! | | 72 | 8 | byte of the file at which the one before begins |
//! | ESET, the second | 60 | 8 | byte of the file at which the first begins |
//!
//! Source: MTF 1.00a has the fields (format logical address, control block number, physical block
//! address); they are so in every block of 30 backup sets, 2008 R2 to 2025, full, differential, of the
//! log and striped.

use crate::mtf::Block;
use crate::mtf::details::Details;

/// Bytes of a logical block, where the medium's block does not say.
const LOGICAL_BYTES: u64 = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Order {
    /// Offsets in the stream are those in the file.
    is_plain: bool,
    logical_bytes: u64,
    /// How far bytes of the file are from where they were written; `None` where its beginning is lost.
    file_shift: Option<i128>,
    /// Where the set begins.
    begin: u64,
    /// How far bytes of the set are from where they were written, counted from its begin on;
    /// `None` where that is lost.
    set_shift: Option<i128>,
    /// Blocks of the set so far; `None` where one was not to be read.
    blocks: Option<u32>,
    /// The last set's number, and filemarks so far; `None` where they are not known.
    set: Option<u16>,
    filemarks: Option<u32>,
    filemark: u64,
    end_block: Option<u64>,
}

impl Order {
    pub(super) fn new(is_plain: bool) -> Self {
        Self {
            is_plain,
            logical_bytes: LOGICAL_BYTES,
            file_shift: Some(0),
            begin: 0,
            set_shift: Some(0),
            blocks: None,
            set: Some(0),
            filemarks: Some(0),
            filemark: 0,
            end_block: None,
        }
    }

    /// The beginning of the file is not there: what comes first follows nothing.
    pub(super) fn lose_beginning(&mut self) {
        (self.file_shift, self.set, self.filemarks, self.set_shift) = (None, None, None, None);
        self.blocks = None;
    }

    /// The next block; in what it contradicts those before it.
    pub(super) fn take(&mut self, block: &Block) -> Option<String> {
        let Some((address, number)) = block.place else {
            self.blocks = None;
            return None;
        };
        match (&block.kind.0, &block.details) {
            (b"TAPE", Some(Details::Tape { logical_block_bytes, .. })) => {
                self.logical_bytes = u64::from(*logical_block_bytes).max(1);
                None
            }
            (b"SSET", Some(Details::SetBegin { number, place, .. })) => {
                let due = self.set.replace(*number).map(|before| before.saturating_add(1));
                self.begin_set(block.offset);
                if let Some(due) = due.filter(|due| due != number) {
                    self.stands_at(block.offset, *place);
                    return Some(format!("this is backup set {number}, where set {due} is due"));
                }
                self.said_at("this backup set", block.offset, *place)
            }
            // Its kind was overwritten.
            (b"SSET", _) => {
                self.set = None;
                self.begin_set(block.offset);
                None
            }
            (b"VOLB" | b"MSCI" | b"MSDA" | b"MSTL" | b"MSLS", _) => {
                self.take_numbered(block.offset, address, number)
            }
            (b"ESET", Some(Details::SetEnd { place: 0, .. })) => {
                self.end_block = Some(block.offset);
                None
            }
            (b"ESET", Some(Details::SetEnd { place, .. })) => {
                let first = self.end_block.take();
                match first {
                    Some(first) => {
                        self.said_at("the block before the last of this set", first, *place)
                    }
                    None => {
                        Some("the first of the two blocks that end this set is gone".to_owned())
                    }
                }
            }
            (b"SFMB", Some(Details::Filemark { number, previous })) => {
                let due = self.filemarks.replace(number.saturating_add(1));
                let before = std::mem::replace(&mut self.filemark, block.offset);
                if self.end_block.take().is_some() {
                    return Some(
                        "the second of the two blocks that end this set is gone".to_owned(),
                    );
                }
                if let Some(due) = due.filter(|due| due != number) {
                    return Some(format!("this is filemark {number}, where filemark {due} is due"));
                }
                (*number > 0 && due.is_some())
                    .then(|| self.said_at("the filemark before this", before, *previous))?
            }
            _ => None,
        }
    }

    fn begin_set(&mut self, offset: u64) {
        (self.begin, self.set_shift) = (offset, Some(0));
        (self.blocks, self.end_block) = (Some(1), None);
    }

    /// A block of the set that is counted, and says how far it is from the set's begin.
    fn take_numbered(&mut self, offset: u64, address: u64, number: u32) -> Option<String> {
        let due = self.blocks.replace(number.saturating_add(1));
        let from_begin = i128::from(address).saturating_mul(i128::from(self.logical_bytes));
        let shift = i128::from(offset.saturating_sub(self.begin)).saturating_sub(from_begin);
        let is_moved = self.set_shift.replace(shift).is_some_and(|before| before != shift);
        match due {
            Some(due) if due != number => {
                Some(format!("this is block {number} of its set, where block {due} is due"))
            }
            _ if is_moved => Some(format!(
                "this block was written {from_begin} bytes behind the begin of its set, and is not \
                 there"
            )),
            _ => None,
        }
    }

    /// What says that it was written at `place`, and whether it is as far from there as what came
    /// before.
    fn stands_at(&mut self, offset: u64, place: u64) -> bool {
        let shift = i128::from(offset).saturating_sub(i128::from(place));
        !self.is_plain || self.file_shift.replace(shift).is_none_or(|before| before == shift)
    }

    fn said_at(&mut self, what: &str, offset: u64, place: u64) -> Option<String> {
        (!self.stands_at(offset, place))
            .then(|| format!("{what} was written at byte {place} of its file, and is not there"))
    }
}

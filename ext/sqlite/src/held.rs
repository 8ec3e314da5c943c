//! Frames of the write-ahead log that a checkpoint has verified.
//!
//! They are read in large pieces, in the order of the log, before SQLite reads them one by one in the
//! order of pages. SQLite is then given what was verified: the log is read once, and what comes into the
//! main file is what passed.

/// Bytes held at most. By default a checkpoint comes when the log has 1,000 pages, which is half of it.
const BYTES_MAX: usize = 8 << 20;

/// The frames from one of them on, as many as there is room for.
#[derive(Debug, Default)]
pub struct Held {
    first: usize,
    frame_bytes: usize,
    /// Frames that are held.
    count: usize,
    is_full: bool,
    /// Longer than those frames, or not: it keeps its length from one checkpoint to the next.
    bytes: Vec<u8>,
    are_stamped: Vec<bool>,
}

/// A frame that is held.
#[derive(Debug, Clone, Copy)]
pub struct HeldFrame<'a> {
    /// Its header, and its page.
    pub bytes: &'a [u8],
    /// The page passed by its marker, which has the digest of all its content.
    pub is_stamped: bool,
}

impl Held {
    /// From here on `first` is the first frame that comes.
    pub fn begin(&mut self, first: usize, frame_bytes: usize) {
        (self.first, self.frame_bytes, self.count, self.is_full) = (first, frame_bytes, 0, false);
    }

    /// Where the next `frames` frames are to be read to, and where it is to be said of each whether it is
    /// stamped. Those for which there is no room are not held, nor are any after them.
    pub fn next(&mut self, frames: usize) -> (&mut [u8], &mut [bool]) {
        let begin = self.count;
        let room = BYTES_MAX.checked_div(self.frame_bytes).unwrap_or(0);
        self.is_full |= begin.saturating_add(frames) > room;
        if !self.is_full {
            self.count = begin.saturating_add(frames);
        }
        let end = begin.saturating_add(frames);
        let (from, to) =
            (begin.saturating_mul(self.frame_bytes), end.saturating_mul(self.frame_bytes));
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        if self.are_stamped.len() < end {
            self.are_stamped.resize(end, false);
        }
        let bytes = self.bytes.get_mut(from..to).unwrap_or_default();
        (bytes, self.are_stamped.get_mut(begin..end).unwrap_or_default())
    }

    /// A frame by its number in the log, from 0.
    pub fn frame(&self, number: usize) -> Option<HeldFrame<'_>> {
        let at = number.checked_sub(self.first).filter(|at| *at < self.count)?;
        let from = at.checked_mul(self.frame_bytes)?;
        let bytes = self.bytes.get(from..from.checked_add(self.frame_bytes)?)?;
        Some(HeldFrame { bytes, is_stamped: *self.are_stamped.get(at)? })
    }

    /// Nothing is held any more.
    pub fn end(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each frame says its own number; a short piece after a long one that had no room is not taken for
    /// the frames that would have stood there.
    #[test]
    fn held_frame_is_the_one_of_its_number() {
        let frame_bytes = 65_536 + 24;
        let room = BYTES_MAX / frame_bytes;
        let mut held = Held::default();
        for first in [0, 5] {
            held.begin(first, frame_bytes);
            let mut number = first;
            for frames in std::iter::repeat_n(16, room / 16 + 2).chain([1, 2]) {
                let (bytes, are_stamped) = held.next(frames);
                for (frame, is_stamped) in bytes.chunks_exact_mut(frame_bytes).zip(are_stamped) {
                    frame.fill(u8::try_from(number % 251).unwrap());
                    *is_stamped = number % 2 == 0;
                    number += 1;
                }
            }
            assert!(first.checked_sub(1).is_none_or(|before| held.frame(before).is_none()));
            let count = room / 16 * 16;
            for number in first..number {
                let frame = held.frame(number);
                assert_eq!(frame.is_some(), number < first + count, "{number}");
                let Some(frame) = frame else { continue };
                assert!(frame.bytes.iter().all(|byte| usize::from(*byte) == number % 251));
                assert_eq!(frame.is_stamped, number % 2 == 0);
            }
            held.end();
            assert!(held.frame(first).is_none());
        }
    }
}

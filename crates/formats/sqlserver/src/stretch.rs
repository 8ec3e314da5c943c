//! Bytes in order, of which stretches may be missing, and a window on them.
//!
//! What a container cannot give back (a chunk that does not expand, a bad
//! sector) is a hole of a known or assumed size, so that all behind it keeps its
//! place. Who looks through a [`Window`] sees zeroes there and can ask.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use pagewarden_core::source::file::read_at;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// How many bytes were put at the beginning of the buffer, at least one.
    Bytes(usize),
    /// Bytes that cannot be had.
    Hole {
        /// How many, at least one.
        bytes: u64,
        /// Whether that is known; else what follows may stand elsewhere.
        is_exact: bool,
    },
    /// Nothing.
    End,
}

/// A source of bytes with holes.
pub trait Stretches {
    /// The next stretch. `bytes` is not empty.
    ///
    /// # Errors
    /// It cannot be read on at all.
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch>;
}

/// A source without holes.
#[derive(Debug)]
pub struct Whole<R>(pub R);

impl<R: Read> Stretches for Whole<R> {
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
        loop {
            match self.0.read(bytes) {
                Ok(0) => return Ok(Stretch::End),
                Ok(count) => return Ok(Stretch::Bytes(count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What of a file could not be read.
#[derive(Debug)]
pub struct Bad {
    /// Its bytes.
    pub at: Range<u64>,
    /// What the system said of the first of them.
    pub error: io::Error,
}

/// A file, whose bad sectors are holes.
#[derive(Debug)]
pub struct Sectors {
    file: File,
    at: u64,
    /// The size when it was opened: past it nothing is missing.
    size: u64,
    /// Read in small pieces up to here, since a large one failed.
    small_until: u64,
    bad: Vec<Bad>,
    /// Stretches past [`BAD_MAX`], told by their holes only.
    bad_dropped: u64,
}

/// Read at a time near a bad sector.
const SECTOR_BYTES: u64 = 4096;
/// Bad stretches that are kept until someone takes them.
const BAD_MAX: usize = 4096;

impl Sectors {
    /// Reads a file from its beginning.
    ///
    /// # Errors
    /// Its size cannot be asked for.
    pub fn new(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self { file, at: 0, size, small_until: 0, bad: Vec::new(), bad_dropped: 0 })
    }

    /// The size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes what could not be read since the last time, neighbours joined.
    pub fn take_bad(&mut self) -> impl Iterator<Item = Bad> {
        std::mem::take(&mut self.bad).into_iter()
    }

    /// How many bad stretches were dropped, since the caller had not taken those before.
    pub fn bad_dropped(&self) -> u64 {
        self.bad_dropped
    }

    fn note(&mut self, at: Range<u64>, error: io::Error) {
        let before = self.bad.last_mut().filter(|last| last.at.end == at.start);
        if let Some(before) = before {
            before.at.end = at.end;
        } else if self.bad.len() < BAD_MAX {
            self.bad.push(Bad { at, error });
        } else {
            self.bad_dropped = self.bad_dropped.saturating_add(1);
        }
    }
}

impl Stretches for Sectors {
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
        loop {
            let to_sector_end = SECTOR_BYTES.saturating_sub(self.at % SECTOR_BYTES);
            let is_small = self.at < self.small_until;
            let most = if is_small { to_sector_end } else { u64::MAX };
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
            let buffer = bytes.get_mut(..most).unwrap_or_default();
            match read_at(&self.file, buffer, self.at) {
                Ok(0) => return Ok(Stretch::End),
                Ok(count) => {
                    self.at = self.at.saturating_add(count as u64);
                    return Ok(Stretch::Bytes(count));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if !is_small => {
                    self.small_until = self.at.saturating_add(bytes.len() as u64);
                }
                Err(error) => {
                    let end = self.at.saturating_add(to_sector_end).min(self.size);
                    let count = end.saturating_sub(self.at);
                    if count == 0 {
                        return Err(error);
                    }
                    self.note(self.at..end, error);
                    self.at = end;
                    return Ok(Stretch::Hole { bytes: count, is_exact: true });
                }
            }
        }
    }
}

/// A hole, by its place in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// Its bytes.
    pub at: Range<u64>,
    /// Whether its size is known; else what follows may stand elsewhere.
    pub is_exact: bool,
}

/// Looks ahead in a source, a bounded way.
#[derive(Debug)]
pub struct Window<S> {
    source: S,
    /// What was read and not yet passed is `begin..end`.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Of the first byte not passed.
    offset: u64,
    /// Those not passed, in order.
    holes: VecDeque<Hole>,
    /// What is not yet in `bytes` of the last hole.
    hole_left: u64,
    has_ended: bool,
}

/// Read from the source at a time.
const READ_BYTES: usize = 256 << 10;

impl<S: Stretches> Window<S> {
    /// A window at the beginning.
    pub fn new(source: S) -> Self {
        Self {
            source,
            bytes: Vec::new(),
            begin: 0,
            end: 0,
            offset: 0,
            holes: VecDeque::new(),
            hole_left: 0,
            has_ended: false,
        }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source; a caller that reads from it takes the bytes from this window.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Where the window stands: how many bytes were passed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `count` bytes, fewer only at the end.
    ///
    /// # Errors
    /// The source's.
    pub fn see(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.seen().len() < count && !self.has_ended {
            self.read(count)?;
        }
        let seen = self.seen();
        Ok(seen.get(..count).unwrap_or(seen))
    }

    /// Those of the next `count` bytes that were seen.
    pub fn seen_up_to(&self, count: usize) -> &[u8] {
        let seen = self.seen();
        seen.get(..count).unwrap_or(seen)
    }

    fn seen(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }

    fn read(&mut self, count: usize) -> io::Result<()> {
        let left = self.begin..self.end;
        let filled = left.len();
        if left.start > 0 && left.end <= self.bytes.len() {
            self.bytes.copy_within(left, 0);
        }
        (self.begin, self.end) = (0, filled);
        let room = READ_BYTES.max(count.saturating_sub(filled));
        let wanted = filled.saturating_add(room);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let free = self.bytes.get_mut(filled..wanted).unwrap_or_default();
        if self.hole_left > 0 {
            let part = usize::try_from(self.hole_left).unwrap_or(usize::MAX).min(room);
            free.iter_mut().take(part).for_each(|byte| *byte = 0);
            self.end = filled.saturating_add(part);
            self.hole_left = self.hole_left.saturating_sub(part as u64);
            return Ok(());
        }
        let stretch = self.source.next_stretch(free);
        if let Ok(Stretch::Bytes(count)) = stretch {
            self.end = filled.saturating_add(count.min(room));
        }
        match stretch? {
            Stretch::Bytes(_) => {}
            Stretch::Hole { bytes, is_exact } => {
                let begin = self.offset.saturating_add(self.seen().len() as u64);
                self.holes.push_back(Hole { at: begin..begin.saturating_add(bytes), is_exact });
                self.hole_left = bytes;
            }
            Stretch::End => self.has_ended = true,
        }
        Ok(())
    }

    /// Passes bytes that were seen.
    pub fn pass(&mut self, count: usize) {
        let count = count.min(self.seen().len());
        self.begin = self.begin.saturating_add(count);
        self.offset = self.offset.saturating_add(count as u64);
        while self.holes.front().is_some_and(|hole| hole.at.end <= self.offset) {
            self.holes.pop_front();
        }
    }

    /// Passes bytes that need not have been seen; returns how many there were.
    ///
    /// # Errors
    /// The source's.
    pub fn pass_unseen(&mut self, count: u64) -> io::Result<u64> {
        let mut left = count;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
            let seen = self.see(part)?.len();
            if seen == 0 {
                break;
            }
            self.pass(seen);
            left = left.saturating_sub(seen as u64);
        }
        Ok(count.saturating_sub(left))
    }

    /// The holes that reach into the next `count` bytes, as far as these were
    /// seen.
    pub fn holes(&self, count: usize) -> impl Iterator<Item = &Hole> {
        let end = self.offset.saturating_add(count as u64);
        self.holes.iter().take_while(move |hole| hole.at.start < end)
    }

    /// Whether the next `count` bytes, which were seen, are all there.
    pub fn is_there(&self, count: usize) -> bool {
        self.holes(count).next().is_none()
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use pagewarden_core::testing::fault::{self, Fault};

    /// Stretches from a list, bytes counting up.
    struct List(VecDeque<Stretch>, u8);

    impl Stretches for List {
        fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
            match self.0.pop_front() {
                Some(Stretch::Bytes(count)) => {
                    let given = count.min(bytes.len());
                    for byte in &mut bytes[..given] {
                        self.1 = self.1.wrapping_add(1);
                        *byte = self.1;
                    }
                    if given < count {
                        self.0.push_front(Stretch::Bytes(count - given));
                    }
                    Ok(Stretch::Bytes(given))
                }
                Some(other) => Ok(other),
                None => Ok(Stretch::End),
            }
        }
    }

    fn hole(bytes: u64) -> Stretch {
        Stretch::Hole { bytes, is_exact: bytes < 1000 }
    }

    #[test]
    fn holes_keep_their_place() {
        let list = [Stretch::Bytes(3), hole(2), Stretch::Bytes(2), hole(1), hole(1)];
        let mut window = Window::new(List(list.into(), 0));
        assert_eq!(window.see(4).unwrap(), [1, 2, 3, 0]);
        assert!(window.is_there(3));
        assert!(!window.is_there(4));
        window.pass(1);
        assert_eq!(window.see(6).unwrap(), [2, 3, 0, 0, 4, 5]);
        let holes: Vec<_> = window.holes(6).cloned().collect();
        assert_eq!(holes, [Hole { at: 3..5, is_exact: true }]);
        window.pass(4);
        assert_eq!(window.offset(), 5);
        assert!(window.is_there(2));
        assert_eq!(window.see(9).unwrap(), [4, 5, 0, 0]);
        assert_eq!(window.holes(9).count(), 2);
        window.pass(100);
        assert_eq!(window.offset(), 9);
        assert!(window.see(1).unwrap().is_empty());
    }

    #[test]
    fn large_hole_takes_little_memory() {
        let list = [Stretch::Bytes(1), hole(10_000_000_000), Stretch::Bytes(1)];
        let mut window = Window::new(List(list.into(), 0));
        assert_eq!(window.see(3).unwrap(), [1, 0, 0]);
        assert_eq!(window.pass_unseen(10_000_000_001).unwrap(), 10_000_000_001);
        assert!(window.bytes.capacity() <= 4 * READ_BYTES, "{}", window.bytes.capacity());
        assert!(window.is_there(1));
        assert_eq!(window.see(2).unwrap(), [2]);
        assert_eq!(window.pass_unseen(5).unwrap(), 1);
    }

    #[test]
    fn bad_sectors_are_holes_and_all_else_is_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..999_999_u32).map(|number| (number % 251 + 1) as u8).collect();
        file.write_all(&bytes).unwrap();
        fault::heal(file.path());
        let faults = [Fault::BadByte(300_000), Fault::BadByte(302_000), Fault::BadByte(999_998)];
        for fault in faults.into_iter().chain([Fault::ShortReads(70_000)]) {
            fault::inject(file.path(), fault);
        }
        let mut window = Window::new(Sectors::new(file.reopen().unwrap()).unwrap());
        let mut read: Vec<u8> = Vec::new();
        while !window.see(10_000).unwrap().is_empty() {
            read.extend(window.seen_up_to(10_000));
            window.pass(10_000);
        }
        assert_eq!(read.len(), bytes.len());
        let mut expected = bytes;
        let holes = [299_008..303_104, 999_424..999_999];
        for hole in &holes {
            expected[hole.clone()].fill(0);
        }
        assert!(read == expected);
        let bad: Vec<_> = window.source_mut().take_bad().map(|bad| bad.at).collect();
        assert_eq!(bad, holes.map(|hole| hole.start as u64..hole.end as u64));
        fault::heal(file.path());
    }

    #[test]
    fn bytes_are_the_same_in_any_steps() {
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 251) as u8).collect();
        let mut window = Window::new(Whole(bytes.as_slice()));
        let (mut at, mut step) = (0, 1);
        while at < bytes.len() {
            let seen = window.see(step * 2).unwrap().to_vec();
            assert!(seen == bytes[at..bytes.len().min(at + step * 2)], "{at} {step}");
            window.pass(step);
            at += step;
            step = step * 3 % 90_001 + 1;
        }
        assert!(window.bytes.capacity() <= 4 * READ_BYTES, "{}", window.bytes.capacity());
    }
}

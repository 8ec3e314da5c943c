//! The pages of one catalogue, segment by segment, with a list of those that
//! could not be read.
//!
//! A page counts only if it passes the tests that every page passes: its
//! checksum, where there are checksums, and the rules of its header. In a running
//! cluster a page that fails is read again, since it may have been caught while
//! it was being written. What fails in the end, is all zero or is not there is a
//! [`Gap`]: rows may be missing, and a caller must not conclude anything from that.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::checksum::{checksum, hash_pages};
use crate::files::catalogue::transactions::Moment;
use crate::page::{Checksums, Header};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::file::read_fully;

/// Pages that are read at a time.
const PAGES_AT_ONCE: usize = 16;
/// How often a page is read that a server may be writing.
const LOOKS: u32 = 5;
/// Long enough for a server to finish writing a page.
pub(super) const A_MOMENT: Duration = Duration::from_millis(10);
/// Gaps that are remembered; more are counted.
const GAPS_MAX: usize = 64;

/// A part of a catalogue that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The file.
    pub path: PathBuf,
    /// The block within the relation; `None` for the whole file.
    pub block: Option<u32>,
    /// Why.
    pub reason: GapReason,
}

/// Why a part of a catalogue could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapReason {
    /// The system's word.
    Unreadable(String),
    /// The page fails its test.
    Failing,
    /// The page is all zero. That is legal after a crash, and rows may have been
    /// there.
    Empty,
    /// The file ends inside a page.
    Cut,
    /// The map of file numbers does not name this catalogue, or cannot be
    /// believed.
    NotMapped,
    /// No row lists this catalogue itself.
    NotListed,
    /// A row counts, and is none that a server writes.
    Strange,
    /// It moved to another file as often as it was read.
    Moved,
    /// There is more than fits into memory.
    TooMuch,
}

impl fmt::Display for Gap {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "{}", self.path.display())?;
        if let Some(block) = self.block {
            write!(text, ", block {block}")?;
        }
        match &self.reason {
            GapReason::Unreadable(error) => write!(text, ": {error}"),
            GapReason::Failing => write!(text, ": the page fails its test"),
            GapReason::Empty => write!(text, ": the page is all zero"),
            GapReason::Cut => write!(text, ": the file ends inside a page"),
            GapReason::NotMapped => write!(text, ": does not name a catalogue that it must"),
            GapReason::NotListed => write!(text, ": lists no file for a catalogue"),
            GapReason::Strange => write!(text, ": holds rows that no server writes"),
            GapReason::Moved => write!(text, ": moved to another file while it was read"),
            GapReason::TooMuch => write!(text, ": more rows than are remembered"),
        }
    }
}

/// All parts that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The first of them.
    pub listed: Vec<Gap>,
    /// How many there are.
    pub count: u64,
    /// How many of them are pages that are all zero.
    pub zero_pages: u64,
}

impl Gaps {
    /// True if all was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn add(&mut self, path: &Path, block: Option<u32>, reason: GapReason) {
        self.count = self.count.saturating_add(1);
        let is_zero = u64::from(reason == GapReason::Empty);
        self.zero_pages = self.zero_pages.saturating_add(is_zero);
        if self.listed.len() < GAPS_MAX {
            self.listed.push(Gap { path: path.to_owned(), block, reason });
        }
    }
}

/// How the pages of a cluster look.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) page_size: usize,
    pub(super) max_align: u16,
    pub(super) checksums: Checksums,
    pub(super) segment_pages: u32,
}

enum Soundness {
    Sound,
    Empty,
    Failing,
}

impl Shape {
    fn judge(&self, page: &[u8], block: u32) -> Soundness {
        let Some(header) = Header::read(page) else { return Soundness::Failing };
        if header.is_blank() && page.iter().all(|byte| *byte == 0) {
            return Soundness::Empty;
        }
        let summed = || {
            let mut hash = [0_u32];
            hash_pages(page, self.page_size, &mut hash);
            let [hash] = hash;
            checksum(hash, block)
        };
        let fails = (self.checksums == Checksums::On && summed() != header.checksum)
            || header.upper == 0
            || header.fault(self.page_size, self.max_align).is_some();
        if fails { Soundness::Failing } else { Soundness::Sound }
    }

    /// Calls `each` for all sound pages of a relation, with their numbers.
    pub(super) fn read(
        &self,
        first_file: &Path,
        moment: Moment,
        gaps: &mut Gaps,
        each: impl FnMut(u32, &[u8]),
    ) {
        self.read_blocks(first_file, 0..u32::MAX, moment, gaps, each);
    }

    /// The same for some of its blocks.
    pub(super) fn read_blocks(
        &self,
        first_file: &Path,
        blocks: Range<u32>,
        moment: Moment,
        gaps: &mut Gaps,
        mut each: impl FnMut(u32, &[u8]),
    ) {
        let mut chunk = vec![0_u8; self.page_size.saturating_mul(PAGES_AT_ONCE)];
        let first_segment = blocks.start.checked_div(self.segment_pages).unwrap_or(0);
        for segment in first_segment.. {
            let mut path = first_file.as_os_str().to_owned();
            if segment > 0 {
                path.push(format!(".{segment}"));
            }
            let path = PathBuf::from(path);
            let file = match open_regular(&path) {
                Ok(file) => file,
                Err(error) if segment > 0 && error.kind() == std::io::ErrorKind::NotFound => return,
                Err(error) => {
                    return gaps.add(&path, None, GapReason::Unreadable(error.to_string()));
                }
            };
            let mut block = segment.saturating_mul(self.segment_pages);
            let mut offset = 0_u64;
            if block < blocks.start {
                let before = u64::from(blocks.start.saturating_sub(block));
                offset = before.saturating_mul(self.page_size as u64);
                block = blocks.start;
            }
            loop {
                if block >= blocks.end {
                    return;
                }
                let filled = match read_fully(&file, &mut chunk, offset) {
                    Ok(filled) => filled,
                    Err(error) => {
                        gaps.add(&path, Some(block), GapReason::Unreadable(error.to_string()));
                        break;
                    }
                };
                let mut place = offset;
                for page in chunk.get_mut(..filled).unwrap_or_default().chunks_mut(self.page_size) {
                    if block >= blocks.end {
                        return;
                    }
                    if page.len() < self.page_size {
                        gaps.add(&path, Some(block), GapReason::Cut);
                        break;
                    }
                    match self.judge_again(&file, page, place, block, moment) {
                        Soundness::Sound => each(block, page),
                        Soundness::Empty => gaps.add(&path, Some(block), GapReason::Empty),
                        Soundness::Failing => gaps.add(&path, Some(block), GapReason::Failing),
                    }
                    block = block.saturating_add(1);
                    place = place.saturating_add(self.page_size as u64);
                }
                if filled < chunk.len() {
                    break;
                }
                offset = place;
            }
        }
    }

    fn judge_again(
        &self,
        file: &File,
        page: &mut [u8],
        place: u64,
        block: u32,
        moment: Moment,
    ) -> Soundness {
        let mut looks = 1;
        loop {
            match self.judge(page, block) {
                Soundness::Failing if moment == Moment::Running && looks < LOOKS => {}
                found => return found,
            }
            thread::sleep(A_MOMENT);
            looks += 1;
            match read_fully(file, page, place) {
                Ok(filled) if filled == page.len() => {}
                // Cut off meanwhile: the rows have gone elsewhere, or away.
                _ => return Soundness::Failing,
            }
        }
    }
}

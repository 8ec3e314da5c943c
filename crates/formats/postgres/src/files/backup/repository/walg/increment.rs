//! Files of a delta backup of WAL-G, which hold the changed pages of a file of the database.
//!
//! ```text
//! offset  size   field
//!      0     4   "wi1\x55"
//!      4     8   bytes of the whole file
//!     12     4   number of pages
//!     16   4*n   their numbers within the file, ascending
//!          8192*n  the pages
//! ```
//!
//! All numbers are little-endian. Source: `internal/databases/postgres/pagefile.go` of WAL-G, and its
//! own backups.

use std::collections::VecDeque;

/// What a file of changed pages begins with.
pub(super) const MAGIC: [u8; 4] = *b"wi1\x55";
/// Bytes before the numbers.
pub(super) const FIXED_BYTES: usize = 16;
/// Bytes of a page: WAL-G knows no others.
pub(super) const PAGE_BYTES: u64 = 8192;
/// Pages in a file: segments of 32 GiB, which no build of a distribution has.
const PAGES_MAX: u64 = 1 << 22;
const NUMBER_BYTES: u64 = 4;

/// The fixed part of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    /// Bytes of the whole file.
    pub(super) file_bytes: u64,
    /// How many pages are in it.
    pub(super) count: u64,
}

impl Fixed {
    /// Reads the fixed part; `None` for a file that is no such one.
    pub(super) fn parse(bytes: &[u8; FIXED_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (file_bytes, rest) = rest.split_first_chunk()?;
        let (count, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then(|| Self {
            file_bytes: u64::from_le_bytes(*file_bytes),
            count: u64::from(u32::from_le_bytes(*count)),
        })
    }

    /// What is wrong with it, in a member of `member_bytes`.
    pub(super) fn fault(self, member_bytes: u64) -> Option<String> {
        let Self { file_bytes, count } = self;
        let expected = FIXED_BYTES as u64 + count * (NUMBER_BYTES + PAGE_BYTES);
        if count > PAGES_MAX || !file_bytes.is_multiple_of(PAGE_BYTES) {
            Some(format!("its header claims {count} pages of a file of {file_bytes} bytes"))
        } else if expected != member_bytes {
            Some(format!(
                "{member_bytes} bytes, and a header for {count} pages makes it {expected}"
            ))
        } else {
            None
        }
    }

    /// Bytes of the numbers.
    pub(super) fn number_bytes(self) -> u64 {
        self.count.min(PAGES_MAX) * NUMBER_BYTES
    }

    /// Reads the numbers, of which `bytes` has all.
    ///
    /// # Errors
    /// They are not ascending, or beyond the file's end.
    pub(super) fn numbers(self, bytes: &[u8]) -> Result<Vec<u32>, String> {
        let pages = self.file_bytes / PAGE_BYTES;
        let numbers = bytes.chunks(4).filter_map(|bytes| bytes.first_chunk());
        let numbers: Vec<u32> = numbers.map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let is_sorted = numbers.is_sorted_by(|one, next| one < next);
        if !is_sorted || numbers.last().is_some_and(|last| u64::from(*last) >= pages) {
            return Err(format!("its page numbers are out of order or past page {pages}"));
        }
        Ok(numbers)
    }
}

/// What a file's next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// They come next in the archive, and are wanted.
    Data(u64),
    /// They come next in the archive, and a newer set has others in their place.
    Passed(u64),
    /// They are not in this archive.
    Absent(u64),
}

impl Run {
    fn new(kind: fn(u64) -> Self, bytes: u64) -> Option<Self> {
        (bytes > 0).then(|| kind(bytes))
    }
}

/// What newer sets have of a file: these pages, and of a file of that length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Newer {
    /// Numbers of pages, ascending.
    pub(super) pages: Vec<u32>,
    /// Bytes of the file in the newest set; `None` where that is as before.
    pub(super) bytes: Option<u64>,
}

impl Newer {
    /// The same with the pages of one more set, whose file was so long.
    pub(super) fn and(mut self, pages: &[u32], bytes: u64) -> Self {
        self.pages.extend_from_slice(pages);
        self.pages.sort_unstable();
        self.pages.dedup();
        self.bytes = Some(self.bytes.map_or(bytes, |newest| newest.min(bytes)));
        self
    }

    fn has(&self, page: u64) -> bool {
        let is_cut = self.bytes.is_some_and(|bytes| page.saturating_mul(PAGE_BYTES) >= bytes);
        is_cut || u32::try_from(page).is_ok_and(|page| self.pages.binary_search(&page).is_ok())
    }

    /// The runs of a whole file of `bytes`.
    pub(super) fn of_whole(&self, bytes: u64) -> VecDeque<Run> {
        let end = self.bytes.map_or(bytes, |newest| newest.min(bytes));
        let mut runs = VecDeque::new();
        let mut at = 0_u64;
        for page in &self.pages {
            let begin = u64::from(*page).saturating_mul(PAGE_BYTES);
            if begin >= end {
                break;
            }
            runs.extend(Run::new(Run::Data, begin - at));
            let passed = PAGE_BYTES.min(end - begin);
            runs.push_back(Run::Passed(passed));
            at = begin + passed;
        }
        runs.extend(Run::new(Run::Data, end - at));
        runs.extend(Run::new(Run::Passed, bytes - end));
        runs
    }

    /// The runs of a file of changed pages.
    pub(super) fn of_pages(&self, numbers: &[u32], file_bytes: u64) -> VecDeque<Run> {
        let mut runs = VecDeque::new();
        let mut at = 0_u64;
        for number in numbers {
            let number = u64::from(*number);
            let begin = number.saturating_mul(PAGE_BYTES);
            runs.extend(Run::new(Run::Absent, begin.saturating_sub(at)));
            match (self.has(number), runs.back_mut()) {
                (true, _) => runs.push_back(Run::Passed(PAGE_BYTES)),
                (false, Some(Run::Data(bytes))) => *bytes += PAGE_BYTES,
                (false, _) => runs.push_back(Run::Data(PAGE_BYTES)),
            }
            at = begin.saturating_add(PAGE_BYTES);
        }
        runs.extend(Run::new(Run::Absent, file_bytes.saturating_sub(at)));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    fn fixed(file_bytes: u64, count: u32) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&file_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    #[test]
    fn header_must_fit_its_member() {
        let header = Fixed::parse(&fixed(3 * PAGE, 2)).unwrap();
        assert_eq!(header, Fixed { file_bytes: 3 * PAGE, count: 2 });
        assert_eq!(header.fault(16 + 2 * (4 + PAGE)), None);
        assert!(header.fault(16 + 2 * PAGE).is_some());
        assert!(Fixed::parse(&fixed(5, 0)).unwrap().fault(16).is_some());
        let huge = Fixed::parse(&fixed(u64::MAX - PAGE + 1, u32::MAX)).unwrap();
        assert!(huge.fault(u64::MAX).is_some());
        assert!(huge.number_bytes() <= 16 << 20);
        assert_eq!(Fixed::parse(&[0; FIXED_BYTES]), None);
    }

    #[test]
    fn page_numbers_must_be_ascending_and_inside_the_file() {
        let header = Fixed { file_bytes: 3 * PAGE, count: 2 };
        let bytes = |numbers: [u32; 2]| numbers.map(u32::to_le_bytes).concat();
        assert_eq!(header.numbers(&bytes([0, 2])), Ok(vec![0, 2]));
        for numbers in [[1, 1], [2, 0], [0, 3]] {
            assert!(header.numbers(&bytes(numbers)).is_err(), "{numbers:?}");
        }
    }

    #[test]
    fn runs_leave_out_what_newer_sets_have() {
        let none = Newer::default();
        assert_eq!(none.of_whole(2 * PAGE + 5), [Run::Data(2 * PAGE + 5)]);
        assert_eq!(none.of_whole(0), []);
        let newer = none.clone().and(&[1, 7], 4 * PAGE);
        assert_eq!(
            newer.of_whole(5 * PAGE),
            [Run::Data(PAGE), Run::Passed(PAGE), Run::Data(2 * PAGE), Run::Passed(PAGE)]
        );
        assert_eq!(
            none.of_pages(&[1, 2, 4], 6 * PAGE),
            [
                Run::Absent(PAGE),
                Run::Data(2 * PAGE),
                Run::Absent(PAGE),
                Run::Data(PAGE),
                Run::Absent(PAGE)
            ]
        );
        assert_eq!(
            newer.of_pages(&[1, 2, 4], 5 * PAGE),
            [
                Run::Absent(PAGE),
                Run::Passed(PAGE),
                Run::Data(PAGE),
                Run::Absent(PAGE),
                Run::Passed(PAGE)
            ]
        );
        assert_eq!(
            newer.and(&[0], 3 * PAGE),
            Newer { pages: vec![0, 1, 7], bytes: Some(3 * PAGE) }
        );
    }
}

//! The logs of transaction status that a server needs: which of their segments and pages
//! must be there, by the numbers of the control file.
//!
//! A checkpoint writes all pages of these logs that hold a number from before it. So after
//! a clean stop every page from the oldest to the next number is there. Before recovery
//! the oldest numbers are not known: `pg_database` on disk may be older than what a VACUUM
//! has removed since. There the newest page must be there, and no segment between two others
//! may be missing.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::Lacks;
use crate::files::control::Ids;
use crate::files::evidence::names::Books;
use crate::files::state::Circumstances;
use crate::files::wal::replay::Scanned;
use pagewarden_core::source::file::{open_regular, read_at};
use pagewarden_core::verdict::{Kind, Severity};

/// `SLRU_PAGES_PER_SEGMENT`.
pub(super) const PAGES_A_SEGMENT: u64 = 32;
/// A page with fewer numbers in use may hold none that ended: they may have been those
/// that ran when the server crashed.
const MANY: u64 = 64;

impl Lacks<'_> {
    /// `pg_xact`: two bits a transaction.
    pub(super) fn transactions(&mut self, ids: &Ids, books: &Books) {
        const A_BYTE: u64 = 4;
        let folder = match self.cluster.major.as_str() {
            "9.6" => "pg_clog",
            _ => "pg_xact",
        };
        let oldest = later(ids.oldest_xid, frozen(books, |(xid, _)| xid));
        let a_page = self.cluster.page_size as u64 * A_BYTE;
        let oldest = self.oldest_that_must_be_there(oldest, ids.next_xid, a_page);
        let pages = Pages { a_page, oldest, next: ids.next_xid, enough: Some(MANY) };
        self.status_pages(folder, &pages);
    }

    /// `pg_multixact`: the number of a multixact's first member in four bytes, and its
    /// members in groups of four in 20 bytes.
    pub(super) fn multixacts(&mut self, ids: &Ids, books: &Books) {
        let page_bytes = self.cluster.page_size as u64;
        let oldest = later(ids.oldest_multi, frozen(books, |(_, multi)| multi));
        // Those that were being made when the server crashed are not written yet.
        let is_at_rest = self.cluster.circumstances == Circumstances::AtRest;
        let enough = Some(if is_at_rest { 1 } else { MANY });
        let from = self.oldest_that_must_be_there(oldest, ids.next_multi, page_bytes / 4);
        let offsets = Pages { a_page: page_bytes / 4, oldest: from, next: ids.next_multi, enough };
        self.status_pages("pg_multixact/offsets", &offsets);
        let first = match oldest == ids.next_multi {
            true => Some(ids.next_member),
            false => self.first_member(oldest, page_bytes),
        };
        // Without the oldest one the newest members must be there all the same.
        let first = match first {
            Some(first) => first,
            None if is_at_rest => return,
            None => ids.next_member.saturating_sub(1),
        };
        let a_page = page_bytes / 20 * 4;
        let from = self.oldest_that_must_be_there(first, ids.next_member, a_page);
        let members = Pages { a_page, oldest: from, next: ids.next_member, enough };
        self.status_pages("pg_multixact/members", &members);
    }

    /// The oldest number whose page must be there. Before recovery, where the log says that
    /// old ones are forgotten, or does not tell: the first one of the newest page.
    fn oldest_that_must_be_there(&self, oldest: u32, next: u32, a_page: u64) -> u32 {
        let is_certain =
            self.cluster.circumstances == Circumstances::AtRest || !self.may_come(Scanned::forgets);
        if is_certain || oldest == next {
            return oldest;
        }
        let last = u64::from(next.wrapping_sub(1));
        let begin = u32::try_from(last - last % a_page.max(1)).unwrap_or(0);
        later(oldest, Some(begin))
    }

    /// The number of a multixact's first member.
    fn first_member(&self, multi: u32, page_bytes: u64) -> Option<u32> {
        let at = u64::from(multi) * 4;
        let segment = at / (page_bytes * PAGES_A_SEGMENT);
        let path = self.cluster.root.join("pg_multixact/offsets").join(format!("{segment:04X}"));
        let mut bytes = [0_u8; 4];
        let file = open_regular(&path).ok()?;
        let read = read_at(&file, &mut bytes, at % (page_bytes * PAGES_A_SEGMENT)).ok()?;
        // 0 is none that was recorded.
        (read == 4).then(|| u32::from_le_bytes(bytes)).filter(|first| *first != 0)
    }

    /// Pages that hold a number from the oldest to before the next one must be there,
    /// and that of the next one if it is not the first of its page: a server reads it
    /// when it starts.
    fn status_pages(&mut self, folder: &str, pages: &Pages) {
        let root = self.cluster.root.join(folder);
        if !root.is_dir() {
            return;
        }
        let page_bytes = self.cluster.page_size as u64;
        let mut told = None;
        for page in pages.wanted() {
            let segment = page / PAGES_A_SEGMENT;
            let path = root.join(format!("{segment:04X}"));
            if told == Some(segment) {
                continue;
            }
            let offset = page % PAGES_A_SEGMENT * page_bytes;
            let length = match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                Ok(_) => 0,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    told = Some(segment);
                    let detail = format!(
                        "the control file says that numbers {} to {} are in use, and this segment holds some of them",
                        pages.oldest, pages.next
                    );
                    self.finding(&path, Kind::Missing, detail);
                    continue;
                }
                Err(error) => {
                    told = Some(segment);
                    self.unread(&path, error.to_string());
                    continue;
                }
            };
            if length < offset + page_bytes {
                told = Some(segment);
                let detail = format!(
                    "the file ends after {length} bytes, and numbers {} to {} are in use, by the control file",
                    pages.oldest, pages.next
                );
                self.finding(&path, Kind::Truncated, detail);
            } else if pages.holds_enough(page) {
                match is_zero(&path, offset, self.cluster.page_size) {
                    Ok(true) => {
                        told = Some(segment);
                        let detail = format!(
                            "page {} of this file is all zero, and numbers of it are in use, by the control file",
                            page % PAGES_A_SEGMENT
                        );
                        self.finding_of(&path, Severity::Suspect, Kind::Zeroed, detail);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        told = Some(segment);
                        self.unread(&path, error.to_string());
                    }
                }
            }
        }
    }
}

/// Pages of a log of status by number; numbers begin anew behind the highest.
struct Pages {
    /// Numbers in a page.
    a_page: u64,
    oldest: u32,
    next: u32,
    /// A page that holds more numbers in use than this is not all zero; `None` if it may be.
    enough: Option<u64>,
}

impl Pages {
    /// Numbers of the pages that must be there.
    fn wanted(&self) -> impl Iterator<Item = u64> {
        let a_page = self.a_page.max(1);
        let count = u64::from(self.next.wrapping_sub(self.oldest));
        let first = u64::from(self.oldest);
        // The page of the next number too, unless it is yet to be made.
        let end = first + count + u64::from(!u64::from(self.next).is_multiple_of(a_page));
        let all = (1_u64 << 32).div_ceil(a_page);
        let pages = if end > first { first / a_page..(end - 1) / a_page + 1 } else { 0..0 };
        pages.map(move |page| page % all)
    }

    /// True if the numbers in use on a page are too many for it to be all zero.
    fn holds_enough(&self, page: u64) -> bool {
        let Some(enough) = self.enough else { return false };
        let begin = page * self.a_page;
        let used = self.next.wrapping_sub(self.oldest);
        let is_used = |number: u64| {
            u32::try_from(number).is_ok_and(|number| number.wrapping_sub(self.oldest) < used)
        };
        // What is in use of a page is one stretch, but where numbers begin anew.
        let step = enough.max(1);
        let first = (begin..begin + self.a_page).find(|number| is_used(*number));
        first.is_some_and(|first| {
            let last = first + step - 1;
            last < begin + self.a_page && is_used(last)
        })
    }
}

/// The later of two numbers that begin anew behind the highest.
fn later(a: u32, b: Option<u32>) -> u32 {
    match b {
        Some(b) if b.wrapping_sub(a).cast_signed() > 0 => b,
        _ => a,
    }
}

/// The oldest number that any database still needs, by `pg_database`; `None` if that is
/// not known for sure.
fn frozen(books: &Books, of: impl Fn((u32, u32)) -> u32) -> Option<u32> {
    let databases = books.databases();
    if !databases.gaps.is_empty() {
        return None;
    }
    let numbers = databases.listed.iter().map(|database| of(database.frozen));
    numbers.reduce(|a, b| if b.wrapping_sub(a).cast_signed() < 0 { b } else { a })
}

fn is_zero(path: &Path, offset: u64, bytes: usize) -> std::io::Result<bool> {
    let mut page = vec![0_u8; bytes];
    let read = read_at(&open_regular(path)?, &mut page, offset)?;
    Ok(read == bytes && page.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(oldest: u32, next: u32) -> Vec<u64> {
        Pages { a_page: 100, oldest, next, enough: None }.wanted().collect()
    }

    #[test]
    fn pages_from_the_oldest_to_the_next_number_must_be_there() {
        assert_eq!(wanted(3, 730), [0, 1, 2, 3, 4, 5, 6, 7]);
        // The next number is the first of its page, which is yet to be made.
        assert_eq!(wanted(250, 400), [2, 3]);
        assert_eq!(wanted(250, 401), [2, 3, 4]);
        // Nothing in use: the page of the next number is read all the same.
        assert_eq!(wanted(1, 1), [0]);
        assert_eq!(wanted(0, 0), [] as [u64; 0]);
    }

    #[test]
    fn numbers_begin_anew_behind_the_highest() {
        let last = u64::from(u32::MAX) / 100;
        assert_eq!(wanted(u32::MAX - 10, 50), [last, 0]);
        assert_eq!(later(u32::MAX - 10, Some(5)), 5);
        assert_eq!(later(5, Some(u32::MAX - 10)), 5);
    }

    #[test]
    fn page_with_few_numbers_may_hold_none_that_ended() {
        let pages = Pages { a_page: 1000, oldest: 3, next: 2010, enough: Some(64) };
        assert!(pages.holds_enough(0) && pages.holds_enough(1));
        assert!(!pages.holds_enough(2) && !pages.holds_enough(3));
        let pages = Pages { enough: Some(1), ..pages };
        assert!(pages.holds_enough(2) && !pages.holds_enough(3));
    }
}

//! The pages of a SQLite database.
//!
//! | page | what is judged |
//! |---|---|
//! | page 1 | the database header and the frame of the b-tree page it stands on |
//! | any page, checksum VFS in use | the sum in its last eight bytes |
//! | any page, our own VFS in use | the marker in its last 16 bytes, see `sqlite/marked.rs` |
//! | any other page without it | nothing: `unprotected` (or `empty`, if all zero) |
//! | pages of an encrypted database | nothing: `unverifiable` without the key |
//! | the page of byte 2^30 | never written by SQLite: skipped, and in no count |
//! | pages beyond the database's own count | no part of the database: never damage |
//!
//! A page's kind is not on the page: an overflow page or a freelist leaf may begin with any byte,
//! and so its first byte condemns nothing. Nor does an all-zero page: the sum of zeroes is zero, and
//! an overflow page of a blob of zeroes is all zero. What pages say of one another is looked at once
//! all of them were judged (`sqlite/files/structure.rs`).
//!
//! When a page fails its sum, that is damage unless a healthy history may explain it:
//!
//! | circumstance | why | severity |
//! |---|---|---|
//! | leaf page of the freelist | SQLite neither logs nor reads it: a crash may leave it torn | notice |
//! | beyond the end of the database | left by a crash or allocated ahead | notice |
//! | hot rollback journal | a page half written will be rolled back | suspect |
//! | the page is in the write-ahead log | a page half checkpointed will be written again | suspect |
//! | page 1 fails, with all else on it sound | a writer without the VFS writes page 1 in every transaction, and leaves old sums | suspect |
//! | most pages never got a sum, nor did this one | the VFS was loaded late | suspect |
//! | a freelist too long to remember | the page may be one of its leaves | suspect |
//!
//! In write-ahead log mode a writer without the VFS need not write page 1. Its pages then are
//! reported as damaged, as the VFS itself does when it refuses to read them; the hint names the
//! possibility.
//!
//! What the sum cannot see by its design: a page at the wrong place, an old version of a page, a
//! page zeroed as a whole.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::ops::Range;

use crate::checksum::{FlippedBit, flipped_bit, page_sum, page_sums, stamp, stored_sum};
use pagewarden_core::page::{PageFinding, PageFormat, PageRun, RunVerdict, Specimen};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

pub mod btree;
pub mod header;
pub mod marked;
pub mod record;

use header::{DatabaseHeader, HEADER_BYTES, btree_fault, table_cells_fault};
use marked::Markers;

/// The pages of one SQLite database.
#[derive(Debug, Default)]
pub struct SqlitePages {
    /// Bytes in a page: a power of two from 512 to 65536.
    pub page_size: usize,
    /// Bytes at the end of each page that are not SQLite's own.
    pub reserved_bytes: u8,
    /// The checksum VFS is in use: pages carry sums.
    pub has_sums: bool,
    /// Our own VFS is in use: pages carry markers.
    pub markers: Option<Markers>,
    /// The pages need a key: nothing can be verified.
    pub is_encrypted: bool,
    /// Where the database ends, if its header says so.
    pub page_count: Option<u64>,
    /// Freelist leaves, whose content SQLite never reads.
    pub free_leaves: PageSet,
    /// What may excuse a page that fails.
    pub excuses: Excuses,
    /// What is known to be wrong with single pages from elsewhere.
    pub condemned: Vec<PageFinding>,
}

/// Circumstances in which a page that fails need not be damaged.
#[derive(Debug, Default)]
pub struct Excuses {
    /// A rollback journal waits to be played back.
    pub hot_journal: bool,
    /// Page 1 is zero, and a transaction is running that keeps its journal in memory, or keeps none: the
    /// first of a database may write other pages before page 1.
    pub is_begun: bool,
    /// Pages of which the write-ahead log holds a version, or in front of which it ends the
    /// database.
    pub in_wal: PageSet,
    /// Page 1 looks as if a writer without the checksum VFS had been at work.
    pub foreign_writer: bool,
    /// Most pages never got a sum.
    pub sums_are_rare: bool,
    /// The database is in the write-ahead log mode.
    pub wal_mode: bool,
}

/// A set of page numbers, small where they lie together.
#[derive(Debug, Default)]
pub struct PageSet {
    groups: HashMap<u64, [u64; GROUP_WORDS]>,
    /// This page and all behind it are in the set too.
    tail: Option<u64>,
    is_everything: bool,
}

const WORD_PAGES: u64 = 64;
const GROUP_WORDS: usize = 64;
const GROUP_PAGES: u64 = WORD_PAGES * 64;
/// Half a KiB a group: 16 MiB in all, or 134 million pages that lie together.
const GROUP_COUNT_MAX: usize = 32_768;

impl PageSet {
    /// The set of all pages: for when it is not known which.
    #[must_use]
    pub fn everything() -> Self {
        Self { is_everything: true, ..Self::default() }
    }

    /// Adds a page. A set that would grow too large becomes the set of all pages.
    pub fn insert(&mut self, page: u64) {
        if self.is_everything {
            return;
        }
        if let Some(word) = self
            .groups
            .entry(page / GROUP_PAGES)
            .or_insert([0; GROUP_WORDS])
            .iter_mut()
            .zip(0_u64..)
            .find_map(|(word, at)| (at == page % GROUP_PAGES / WORD_PAGES).then_some(word))
        {
            *word |= 1 << (page % WORD_PAGES);
        }
        if self.groups.len() > GROUP_COUNT_MAX {
            *self = Self::everything();
        }
    }

    /// Adds `first` and all pages behind it.
    pub fn insert_from(&mut self, first: u64) {
        self.tail = Some(self.tail.map_or(first, |tail| tail.min(first)));
    }

    /// True if `page` is in the set.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        self.is_everything
            || self.tail.is_some_and(|first| page >= first)
            || self
                .groups
                .get(&(page / GROUP_PAGES))
                .and_then(|group| group.get(usize::try_from(page % GROUP_PAGES / WORD_PAGES).ok()?))
                .is_some_and(|word| word & 1 << (page % WORD_PAGES) != 0)
    }

    /// True if it stands for all pages.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }
}

/// The byte that SQLite locks, on a page that it never writes.
pub const LOCK_BYTE: u64 = 1 << 30;

/// The page that holds the lock byte; the first page is 1.
#[must_use]
pub fn lock_byte_page(page_size: usize) -> u64 {
    // A page size of 0 has no pages; the caller's bug must not stop the program.
    u64::try_from(page_size)
        .ok()
        .and_then(|size| LOCK_BYTE.checked_div(size))
        .unwrap_or(0)
        .saturating_add(1)
}

/// What page 1 says of itself where pages carry sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstPage {
    /// Nothing is wrong.
    Sound,
    /// Its sum fails, and nothing else.
    StaleSum,
    /// What is wrong with it.
    Wrong(PageFinding),
}

const BEYOND_THE_END: &str = "behind the end of the database, and no part of it";
const FREE_PAGE: &str = "a free page: its content is thrown away";
const NOTHING_TO_DO: &str = "nothing needs to be done";
const NEVER_SUMMED: &str = "carries no sum, like most pages here: it was written while the checksum \
                            VFS was not loaded";
const STALE_FIRST: &str = "sound but for its sum: a program without the checksum VFS may have \
                           written here";
const FOREIGN_WRITER: &str = "page 1 fails as well and is sound but for its sum: a program without \
                              the checksum VFS may have written here";
const PLAYED_BACK_HINT: &str = "copy the database and its journal, open the copy with SQLite, which plays \
                                the journal back, and check the copy";
const BEGUN_HINT: &str = "check again when the transaction is over";
const CHECKPOINTED_HINT: &str = "copy the database and its -wal, run PRAGMA wal_checkpoint(TRUNCATE) on the \
                                 copy, and check the copy";
const FOREIGN_WRITER_HINT: &str = "if PRAGMA integrity_check finds nothing, run VACUUM with the \
                                   checksum VFS loaded and PRAGMA checksum_verification=OFF; else \
                                   restore from a backup";
const WAL_MODE_HINT: &str = "restore from a backup; but if a program without the checksum VFS wrote \
                             here in WAL mode and PRAGMA integrity_check finds nothing, VACUUM with \
                             the VFS loaded and PRAGMA checksum_verification=OFF";

const FOREIGN_WRITER_HINT_MARKED: &str = "pagewarden protect --mode checksum --heal checks the structure and stamps such pages again; if \
     it refuses, restore from a backup";
const WAL_MODE_HINT_MARKED: &str = "restore from a backup; but if a program without the pagewarden VFS wrote here in WAL mode, \
     pagewarden protect --mode checksum --heal checks the structure and stamps such pages again";

impl SqlitePages {
    /// Looks at page 1: its header, its frame and, where pages carry sums, its sum.
    #[must_use]
    pub fn judge_first(&self, page: &[u8]) -> FirstPage {
        let first = PageNo(1);
        let mut finding = PageFinding::failed(first, Severity::Damage, Kind::Header);
        let mut sum_fails = false;
        if let Some(markers) = self.markers {
            sum_fails = !markers.pass(page, first);
            finding = if sum_fails { markers.finding(page, first) } else { finding };
            if sum_fails && finding.kind != Kind::Checksum {
                return FirstPage::Wrong(finding);
            }
        } else if self.has_sums && stored_sum(page) != page_sum(page) {
            sum_fails = true;
            finding.stored = Some(stored_sum(page).to_hex());
            finding.computed = Some(page_sum(page).to_hex());
            if let Some(flip) = flipped_bit(page) {
                finding.kind = Kind::BitFlip;
                return FirstPage::Wrong(finding.with_detail(describe_flip(flip)));
            }
        }
        if page.iter().all(|byte| *byte == 0) {
            finding.kind = Kind::Zeroed;
            return FirstPage::Wrong(finding.with_detail("page 1 is never all zero"));
        }
        let (mut faults, oddities) = self.first_page_faults(page);
        if faults.is_empty() && sum_fails {
            // Is there more than a sum of old? A writer without the VFS leaves a sound page.
            let usable = self.usable_bytes();
            faults.extend(
                table_cells_fault(page, HEADER_BYTES, usable)
                    .map(|fault| format!("as a b-tree page: {fault}")),
            );
        }
        match (faults.is_empty(), oddities.is_empty(), sum_fails) {
            (true, true, false) => return FirstPage::Sound,
            (true, _, true) => return FirstPage::StaleSum,
            (true, false, false) => {
                finding.severity = Severity::Suspect;
                finding.standing = Some(Standing::Suspect);
            }
            (false, _, _) => {}
        }
        faults.extend(oddities);
        FirstPage::Wrong(finding.with_detail(faults.join("; ")))
    }

    fn usable_bytes(&self) -> usize {
        self.page_size.saturating_sub(usize::from(self.reserved_bytes))
    }

    fn first_page_faults(&self, page: &[u8]) -> (Vec<String>, Vec<String>) {
        let Some(header) = DatabaseHeader::parse(page) else {
            return (vec!["the page is cut".to_owned()], Vec::new());
        };
        let mut faults = header.geometry_faults();
        if header.page_size().is_some_and(|size| size != self.page_size) {
            faults.push(format!(
                "the page size is {} where all else says {}",
                header.page_size_field, self.page_size
            ));
        }
        if header.reserved_bytes != self.reserved_bytes {
            faults.push(format!(
                "{} bytes are reserved where all else says {}",
                header.reserved_bytes, self.reserved_bytes
            ));
        }
        if self.is_encrypted {
            return (faults, Vec::new());
        }
        faults.extend(header.field_faults());
        if !matches!(page.get(HEADER_BYTES), Some(5 | 13)) {
            faults.push("the schema's b-tree does not begin at byte 100".to_owned());
        } else if let Some(fault) = btree_fault(page, HEADER_BYTES, self.usable_bytes()) {
            faults.push(format!("as a b-tree page: {fault}"));
        }
        (faults, header.oddities())
    }

    fn judge_page(&self, number: PageNo, page: &[u8], sum_fits: bool, verdict: &mut RunVerdict) {
        let protection = match self.markers {
            Some(markers) => markers.protection_of(page),
            None if self.has_sums => Protection::Checksum,
            None => Protection::None,
        };
        if let Some(known) = self.condemned.iter().find(|finding| finding.page == number) {
            return verdict.fail(protection, known.clone());
        }
        if number == PageNo(1) {
            match self.judge_first(page) {
                FirstPage::Sound => {}
                FirstPage::StaleSum => return verdict.fail(protection, self.failed(number, page)),
                FirstPage::Wrong(finding) => {
                    return verdict.fail(protection, self.excused(finding));
                }
            }
        } else if self.markers.is_none() && page.iter().all(|byte| *byte == 0) {
            return verdict.empty();
        }
        if let Some(markers) = self.markers {
            markers.judge(self, number, page, verdict);
        } else if self.is_encrypted {
            verdict.pass(Standing::Unverifiable, Protection::Checksum);
        } else if !self.has_sums {
            verdict.pass(Standing::Unprotected, Protection::None);
        } else if sum_fits {
            verdict.pass(Standing::Ok, Protection::Checksum);
        } else {
            verdict.fail(protection, self.failed(number, page));
        }
    }

    /// The finding of a page whose sum does not fit its content.
    fn failed(&self, number: PageNo, page: &[u8]) -> PageFinding {
        if let Some(markers) = self.markers {
            return markers.weighed(self, number, page);
        }
        let (stored, computed) = (stored_sum(page), page_sum(page));
        let mut finding = PageFinding {
            stored: Some(stored.to_hex()),
            computed: Some(computed.to_hex()),
            ..PageFinding::failed(number, Severity::Damage, Kind::Checksum)
        };
        if let Some(flip) = flipped_bit(page) {
            finding.kind = Kind::BitFlip;
            finding.detail = Some(describe_flip(flip));
        }
        self.weighed(finding, true, self.excuses.sums_are_rare && stored.0 == 0)
    }

    /// Turns the damage of a failing page into less where a healthy history may explain it.
    /// `may_be_foreign` is true of what a program without the VFS leaves, if there was one.
    fn weighed(
        &self,
        finding: PageFinding,
        may_be_foreign: bool,
        was_never_summed: bool,
    ) -> PageFinding {
        let number = finding.page;
        let milder = |severity, detail: &str, hint: &str| PageFinding {
            stored: finding.stored.clone(),
            computed: finding.computed.clone(),
            hint: Some(hint.to_owned()).filter(|hint| !hint.is_empty()),
            ..PageFinding::failed(number, severity, Kind::Checksum).with_detail(detail)
        };
        if self.page_count.is_some_and(|count| number.0 > count) {
            return milder(Severity::Notice, BEYOND_THE_END, NOTHING_TO_DO);
        }
        if self.free_leaves.is_everything() {
            return milder(Severity::Suspect, "the freelist is too long to know: may be free", "");
        }
        if self.free_leaves.contains(number.0) {
            return milder(Severity::Notice, FREE_PAGE, NOTHING_TO_DO);
        }
        let is_marked = self.markers.is_some();
        let foreign_hint = if is_marked { FOREIGN_WRITER_HINT_MARKED } else { FOREIGN_WRITER_HINT };
        if self.excuses.foreign_writer && may_be_foreign {
            let detail = if number == PageNo(1) { STALE_FIRST } else { FOREIGN_WRITER };
            let milder = milder(Severity::Suspect, detail, foreign_hint);
            // Whether the page was moved is judged by its structure, where it is to be stamped again.
            return match (finding.kind, &finding.detail) {
                (kind @ Kind::Misplaced, Some(own)) => {
                    PageFinding { kind, ..milder }.with_detail(format!("{own}; {detail}"))
                }
                _ => milder,
            };
        }
        if was_never_summed {
            return milder(Severity::Suspect, NEVER_SUMMED, FOREIGN_WRITER_HINT);
        }
        let mut finding = finding;
        if self.excuses.wal_mode {
            let hint = if is_marked { WAL_MODE_HINT_MARKED } else { WAL_MODE_HINT };
            finding.hint = Some(hint.to_owned());
        }
        self.excused(finding)
    }

    /// Turns damage into suspicion where recovery may mend the page.
    fn excused(&self, mut finding: PageFinding) -> PageFinding {
        let (reason, hint) = if self.excuses.hot_journal {
            let reason = "a rollback journal waits to be played back and may hold this page";
            (reason, PLAYED_BACK_HINT)
        } else if self.excuses.is_begun && finding.page == PageNo(1) {
            let reason = "a program is writing to the database, and its journal is no file";
            (reason, BEGUN_HINT)
        } else if self.excuses.in_wal.contains(finding.page.0) {
            let reason =
                "the write-ahead log holds a version of this page, or ends the database before it";
            (reason, CHECKPOINTED_HINT)
        } else {
            return finding;
        };
        if finding.severity == Severity::Damage {
            finding.severity = Severity::Suspect;
            finding.hint = finding.hint.or_else(|| Some(hint.to_owned()));
            finding.standing = Some(Standing::Suspect);
        }
        finding.detail = Some(match finding.detail.take() {
            Some(detail) => format!("{detail}; {reason}"),
            None => reason.to_owned(),
        });
        finding
    }
}

impl PageFormat for SqlitePages {
    /// `secure_delete` overwrites pages that come free, and the end of a long value may be zeroes; but with
    /// a sum no page is all zero.
    fn may_become_zero(&self) -> bool {
        !self.has_sums && self.markers.is_none()
    }

    fn page_size(&self) -> usize {
        self.page_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let skipped = lock_byte_page(self.page_size);
        let mut sums = Vec::new();
        if self.has_sums {
            page_sums(run.bytes, self.page_size, &mut sums);
        }
        let mut sums = sums.into_iter();
        let pages = run.bytes.chunks_exact(self.page_size.max(1));
        for (page, index) in pages.zip(0_u64..) {
            let sum_fits = sums.next().is_some_and(|sum| sum == stored_sum(page));
            let number = run.first.plus(index);
            if number.0 == skipped {
                verdict.skip();
            } else {
                self.judge_page(number, page, sum_fits, verdict);
            }
        }
    }
}

fn describe_flip(flip: FlippedBit) -> String {
    let FlippedBit { byte, bit, candidates } = flip;
    if candidates == 1 {
        format!("one flipped bit explains it: bit {bit} of byte {byte}")
    } else {
        format!(
            "one flipped bit explains it: bit {bit} of byte {byte} or of one of {} bytes more that \
             the sum cannot tell apart",
            candidates.saturating_sub(1)
        )
    }
}

const SPECIMEN_PAGE_SIZE: usize = 512;

/// Pages for the conformance suite.
pub fn specimens() -> Vec<Specimen> {
    let plain = SqlitePages { page_size: SPECIMEN_PAGE_SIZE, ..SqlitePages::default() };
    let plain_first = SqlitePages { page_size: SPECIMEN_PAGE_SIZE, ..SqlitePages::default() };
    let summed = || SqlitePages {
        page_size: SPECIMEN_PAGE_SIZE,
        reserved_bytes: 8,
        has_sums: true,
        ..SqlitePages::default()
    };
    let stamped = |mut page: Vec<u8>| {
        stamp(&mut page);
        page
    };
    let mut specimens = vec![
        Specimen {
            name: "sqlite page without a sum",
            format: Box::new(plain),
            page: PageNo(2),
            good: specimen_leaf(0),
            standing: Standing::Unprotected,
            stamp: None,
            blind_bytes: std::iter::once(0..SPECIMEN_PAGE_SIZE).collect(),
            blind_bits: Vec::new(),
            zero: Standing::Empty,
        },
        Specimen {
            name: "sqlite page 1 without a sum",
            format: Box::new(plain_first),
            page: PageNo(1),
            good: specimen_first(0),
            standing: Standing::Unprotected,
            stamp: None,
            blind_bytes: FIRST_PAGE_BLIND_BYTES.to_vec(),
            blind_bits: FIRST_PAGE_BLIND_BITS.to_vec(),
            zero: Standing::Damaged,
        },
        Specimen {
            name: "sqlite page of the checksum VFS",
            format: Box::new(summed()),
            page: PageNo(2),
            good: stamped(specimen_leaf(8)),
            standing: Standing::Ok,
            stamp: Some(|page, _| stamp(page)),
            blind_bytes: Vec::new(),
            blind_bits: Vec::new(),
            zero: Standing::Empty,
        },
        Specimen {
            name: "sqlite page 1 of the checksum VFS",
            format: Box::new(summed()),
            page: PageNo(1),
            good: stamped(specimen_first(8)),
            standing: Standing::Ok,
            stamp: Some(|page, _| stamp(page)),
            blind_bytes: Vec::new(),
            blind_bits: Vec::new(),
            zero: Standing::Damaged,
        },
    ];
    specimens.extend(marked::specimens(specimen_first, specimen_leaf));
    specimens
}

/// Of page 1 without a sum: fields that may hold anything, and all behind the b-tree header.
const FIRST_PAGE_BLIND_BYTES: &[Range<usize>] =
    &[18..19, 24..32, 40..44, 48..52, 60..64, 68..72, 92..100, 107..SPECIMEN_PAGE_SIZE];
/// Flips that lead from one legal value to another: version to read with 1 to 0, schema format 4 to 0,
/// largest root page 0 to 1 or 2, encoding 1 to 0 or 3.
const FIRST_PAGE_BLIND_BITS: &[(usize, u8)] =
    &[(19, 0), (47, 2), (55, 0), (55, 1), (59, 0), (59, 1)];

/// Page 1 of a database without tables.
fn specimen_first(reserved_bytes: u8) -> Vec<u8> {
    let usable = SPECIMEN_PAGE_SIZE.saturating_sub(usize::from(reserved_bytes));
    let [usable_a, usable_b] = u16::try_from(usable).unwrap_or(0).to_be_bytes();
    let mut page = header::MAGIC.to_vec();
    page.extend([2, 0, 1, 1, reserved_bytes, 64, 32, 32]);
    page.extend([0, 0, 0, 7, 0, 0, 0, 2]);
    page.extend([0; 12]);
    page.extend([0, 0, 0, 4]);
    page.extend([0; 8]);
    page.extend([0, 0, 0, 1]);
    page.extend([0; 32]);
    page.extend([0, 0, 0, 7, 0, 0x2e, 0x5f, 0x39]);
    page.extend([13, 0, 0, 0, 0, usable_a, usable_b, 0]);
    page.resize(SPECIMEN_PAGE_SIZE, 0);
    page
}

/// A leaf of a table with one row.
fn specimen_leaf(reserved_bytes: u8) -> Vec<u8> {
    let cell = [
        18, 1, 2, 45, b'o', b'n', b'e', b' ', b'r', b'o', b'w', b' ', b'o', b'f', b' ', b'a', b' ',
        b't', b'b', b'l',
    ];
    let usable = SPECIMEN_PAGE_SIZE.saturating_sub(usize::from(reserved_bytes));
    let content = usable.saturating_sub(cell.len());
    let [content_a, content_b] = u16::try_from(content).unwrap_or(0).to_be_bytes();
    let mut page = vec![13, 0, 0, 0, 1, content_a, content_b, 0, content_a, content_b];
    page.resize(content, 0);
    page.extend(cell);
    page.resize(SPECIMEN_PAGE_SIZE, 0);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = SPECIMEN_PAGE_SIZE;

    fn summed() -> SqlitePages {
        SqlitePages { page_size: SIZE, reserved_bytes: 8, has_sums: true, ..SqlitePages::default() }
    }

    fn summed_leaf() -> Vec<u8> {
        let mut page = specimen_leaf(8);
        stamp(&mut page);
        page
    }

    fn summed_first() -> Vec<u8> {
        let mut page = specimen_first(8);
        stamp(&mut page);
        page
    }

    fn judge(format: &SqlitePages, first: u64, bytes: &[u8]) -> RunVerdict {
        let mut verdict = RunVerdict::default();
        format.judge(PageRun { first: PageNo(first), bytes }, &mut verdict);
        verdict
    }

    fn only_finding(format: &SqlitePages, number: u64, page: &[u8]) -> PageFinding {
        let mut findings = judge(format, number, page).findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn flipped_bit_is_named() {
        let mut page = summed_leaf();
        page[301] ^= 1 << 3;
        let finding = only_finding(&summed(), 5, &page);
        assert_eq!((finding.severity, finding.kind), (Severity::Damage, Kind::BitFlip));
        assert_eq!(
            finding.detail.as_deref(),
            Some("one flipped bit explains it: bit 3 of byte 301")
        );
        assert_ne!(finding.stored, finding.computed);
    }

    #[test]
    fn overwritten_sector_is_damage() {
        let mut page = summed_leaf();
        page[100..200].fill(0xa5);
        let finding = only_finding(&summed(), 5, &page);
        assert_eq!((finding.severity, finding.kind), (Severity::Damage, Kind::Checksum));
        assert_eq!(finding.standing, Some(Standing::Damaged));
    }

    /// SQLite neither logs nor reads them: after a crash they hold anything.
    #[test]
    fn free_leaf_may_hold_anything() {
        let mut format = summed();
        format.free_leaves.insert(7);
        let page = vec![0xa5; SIZE];
        let finding = only_finding(&format, 7, &page);
        assert_eq!(finding.severity, Severity::Notice);
        assert_eq!(finding.standing, Some(Standing::Suspect));
        assert_eq!(only_finding(&format, 8, &page).severity, Severity::Damage);
    }

    #[test]
    fn pages_behind_the_end_are_never_damage() {
        let format = SqlitePages { page_count: Some(6), ..summed() };
        let page = vec![0xa5; SIZE];
        assert_eq!(only_finding(&format, 6, &page).severity, Severity::Damage);
        assert_eq!(only_finding(&format, 7, &page).severity, Severity::Notice);
    }

    #[test]
    fn page_that_recovery_will_write_again_is_suspect() {
        let mut page = summed_leaf();
        page[300] ^= 1;
        let mut in_wal = PageSet::default();
        in_wal.insert(5);
        let logged = SqlitePages { excuses: Excuses { in_wal, ..Excuses::default() }, ..summed() };
        assert_eq!(only_finding(&logged, 5, &page).severity, Severity::Suspect);
        assert_eq!(only_finding(&logged, 6, &page).severity, Severity::Damage);
        let journalled = SqlitePages {
            excuses: Excuses { hot_journal: true, ..Excuses::default() },
            ..summed()
        };
        assert_eq!(only_finding(&journalled, 6, &page).severity, Severity::Suspect);
        assert_eq!(only_finding(&journalled, 1, &[0; SIZE]).severity, Severity::Suspect);
    }

    /// What one transaction of a program without the VFS leaves on page 1: new counters, an old
    /// sum, and all in order.
    #[test]
    fn old_sum_on_a_sound_page_1_is_told_from_damage() {
        let mut page = summed_first();
        page[24..28].copy_from_slice(&[0, 0, 1, 2]);
        page[92..96].copy_from_slice(&[0, 0, 1, 2]);
        assert_eq!(summed().judge_first(&page), FirstPage::StaleSum);
        page[104] = 1;
        assert!(matches!(summed().judge_first(&page), FirstPage::Wrong(_)));

        let mut flipped = summed_first();
        flipped[27] ^= 1;
        let FirstPage::Wrong(finding) = summed().judge_first(&flipped) else {
            panic!("one flipped bit is no writer's work")
        };
        assert_eq!(finding.kind, Kind::BitFlip);
    }

    #[test]
    fn zeroed_page_1_is_damage_and_any_other_is_empty() {
        for format in [summed(), SqlitePages { page_size: SIZE, ..SqlitePages::default() }] {
            let verdict = judge(&format, 1, &[0; 2 * SIZE]);
            assert_eq!(verdict.counts.empty, 1);
            assert_eq!(verdict.findings.len(), 1);
            assert_eq!(verdict.findings[0].kind, Kind::Zeroed);
        }
    }

    /// The page of byte 2^30 is never written; whatever the file system put there is no damage.
    #[test]
    fn lock_byte_page_is_in_no_count() {
        assert_eq!(lock_byte_page(4096), 262_145);
        assert_eq!(lock_byte_page(65_536), 16_385);
        let bytes = [summed_leaf(), vec![0xa5; SIZE], summed_leaf()].concat();
        let verdict = judge(&summed(), lock_byte_page(SIZE) - 1, &bytes);
        assert_eq!(verdict.counts.ok, 2);
        assert_eq!(verdict.counts.total(), 2);
        assert_eq!(verdict.findings, []);
    }

    #[test]
    fn page_set_holds_what_was_put_in() {
        let mut tail = PageSet::default();
        tail.insert(3);
        tail.insert_from(9);
        tail.insert_from(12);
        assert_eq!(
            (1..14).filter(|page| tail.contains(*page)).collect::<Vec<_>>(),
            [3, 9, 10, 11, 12, 13]
        );

        let mut set = PageSet::default();
        let pages = [0, 1, 63, 64, 4095, 4096, 1 << 31, u64::MAX];
        for page in pages {
            assert!(!set.contains(page));
            set.insert(page);
            assert!(set.contains(page));
        }
        assert!(!set.contains(2) && !set.contains(4097));
        for group in 0..=u64::try_from(GROUP_COUNT_MAX).unwrap() {
            set.insert(group * GROUP_PAGES);
        }
        assert!(set.is_everything() && set.contains(2));
    }
}

//! The pages of SQL Server's data files.
//!
//! Each page says by its own flags what protects it: pages with checksums, with torn bits and with
//! neither lie side by side in one file, whatever the database is set to. So the field that holds the
//! sum is never looked at without its flag: on rewriting under PAGE_VERIFY NONE the flag goes, and
//! what was in the field stays.
//!
//! Not every page of a file is one. A file is made longer without being cleared, so that pages that
//! were never written hold whatever lay on the disk, and flags that are there by chance must not be
//! believed. A page is *formatted* if its header version is 1, its type known, and its page and file
//! numbers are those of its place.
//!
//! | page | counts as |
//! |---|---|
//! | formatted | ok or a finding, by its own protection; unprotected where it has none |
//! | all zero, not allocated | empty |
//! | all zero, allocated | a finding: `zeroed` |
//! | the header of another page, allocated | `misplaced`; `header` where its own sum fails |
//! | anything else, allocated | `header`: it was destroyed |
//! | anything else, not allocated | empty: never written, *stray* bytes of the disk's past |
//! | one flipped bit away from being formatted, its sum then fits | `bit_flip` |
//!
//! Whether a page is allocated, and what follows when it should not be as it is, the target says:
//! see [`Allocations`]. Where that is not known, such a page is suspect.
//!
//! A one-bit mismatch of the sum has 2,048 explanations: it is called a flipped bit only where
//! another rule of the format is broken by that very bit.

#![deny(clippy::arithmetic_side_effects)]

use std::fmt;
use std::sync::Arc;

use crate::checksum::{
    FlippedColumn, PAGE_BYTES, Page, SECTOR_COUNT, TornBits, checksum, flipped_column, is_zero,
    stored, torn_bits,
};
use pagewarden_core::page::{Neighbours, PageFinding, PageFormat, PageRun, RunVerdict};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing, joined};

pub mod diff_map;
pub mod header;
pub mod log;
pub mod maps;
pub mod mend;
pub mod rows;
pub(super) mod specimens;
pub mod stamp;
pub mod system;
pub mod units;

use header::{
    FILE_AT, FLAGS_AT, HAS_CHECKSUM, HAS_TORN_BITS, Header, PAGE_AT, RESERVED, TYPE_AT, Tested,
    VERSION, VERSION_AT, fixed_type, is_known_type, tested,
};
use system::has_its_record;

/// What is known of a page's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// It is not known.
    Unknown,
    /// It is not in use.
    Free,
    /// It is in use, and what it proves when it is no page of its file.
    InUse(Severity),
}

/// Knows which pages are in use. Asked only about pages that are not formatted.
pub trait Allocations: Send + Sync + fmt::Debug {
    /// What is known of a page.
    fn of(&self, page: PageNo) -> Allocation;
}

/// The pages of one data file.
#[derive(Debug, Clone)]
pub struct SqlServerPages {
    /// The number of the file.
    pub file: u16,
    /// Which pages are in use.
    pub allocations: Arc<dyn Allocations>,
    /// Every page that the engine writes gets a checksum: the database is set to it.
    pub writes_checksums: bool,
}

impl SqlServerPages {
    fn judge_page(&self, number: PageNo, page: &Page, verdict: &mut RunVerdict) {
        let header = Header::parse(page);
        if !header.is_of(self.file, number.0) {
            return self.judge_unformatted(number, page, &header, verdict);
        }
        match header.protection() {
            Some(Protection::Checksum) => {
                let computed = checksum(page);
                if computed == stored(page) {
                    self.judge_type(number, page, &header, Protection::Checksum, verdict);
                } else {
                    let finding = self.failed_checksum(number, page, computed);
                    verdict.fail(Protection::Checksum, finding);
                }
            }
            Some(Protection::Torn) => match torn_bits(page) {
                TornBits::Agree => {
                    self.judge_type(number, page, &header, Protection::Torn, verdict);
                }
                bits => verdict.fail(Protection::Torn, self.failed_torn_bits(number, page, bits)),
            },
            Some(Protection::None) => self.judge_unprotected(number, page, &header, verdict),
            None => verdict.fail(Protection::None, self.both_flags(number, page)),
        }
    }

    /// A page that fits: is it what must lie there?
    fn judge_type(
        &self,
        number: PageNo,
        page: &Page,
        header: &Header,
        protection: Protection,
        verdict: &mut RunVerdict,
    ) {
        match fixed_type(self.file, number.0) {
            Some(expected) if expected == header.kind && !has_its_record(page, header) => {
                let detail = "its own protection fits, and the record that every such page has is not \
                              in it: the server cannot read it";
                let finding = self.finding(number, Severity::Damage, Kind::Header);
                verdict.fail(protection, finding.with_detail(detail));
            }
            Some(expected) if expected != header.kind => {
                let detail =
                    format!("a page of type {} where every file has type {expected}", header.kind);
                let finding = self.finding(number, Severity::Damage, Kind::Header);
                verdict.fail(protection, finding.with_detail(detail));
            }
            _ if protection == Protection::None => {
                verdict.pass(Standing::Unprotected, Protection::None);
            }
            _ => verdict.pass(Standing::Ok, protection),
        }
    }

    /// A page without a flag. One that has lost the flag alone still has its sum.
    fn judge_unprotected(
        &self,
        number: PageNo,
        page: &Page,
        header: &Header,
        verdict: &mut RunVerdict,
    ) {
        self.judge_type(number, page, header, Protection::None, verdict);
        if !self.writes_checksums || stored(page) == 0 {
            return;
        }
        let mut flagged = *page;
        flip(&mut flagged, CHECKSUM_FLAG);
        if checksum(&flagged) == stored(page) {
            let mut finding = self.finding(number, Severity::Suspect, Kind::BitFlip);
            // A page that was written unchanged while the database had no checksums looks the same.
            finding.standing = None;
            verdict.findings.push(finding.with_detail(
                "the flag of a page with a checksum is off, and its checksum fits the page with the \
                 flag on: bit 1 of byte 5",
            ));
        }
    }

    fn judge_unformatted(
        &self,
        number: PageNo,
        page: &Page,
        header: &Header,
        verdict: &mut RunVerdict,
    ) {
        let fixed = fixed_type(self.file, number.0);
        let is_zero = is_zero(page);
        let allocation = match fixed {
            // No engine ever leaves these out.
            Some(_) => Allocation::InUse(Severity::Damage),
            None => self.allocations.of(number),
        };
        let severity = match (allocation, is_zero) {
            (Allocation::InUse(severity), _) => severity,
            (Allocation::Free | Allocation::Unknown, true) => return verdict.empty(),
            (Allocation::Unknown, false) => Severity::Suspect,
            (Allocation::Free, false) => match self.flipped_identity(number, page) {
                // This number of bits does not fit by chance.
                Some(_) => Severity::Damage,
                None => return verdict.empty(),
            },
        };
        let why = match (allocation, fixed) {
            (_, Some(_)) => "every file has a page here",
            (Allocation::InUse(_), None) => "the page free space says that it is allocated",
            _ => "it is not known whether it is allocated",
        };
        if is_zero {
            let finding = self.finding(number, severity, Kind::Zeroed);
            return verdict.fail(Protection::None, finding.with_detail(format!("all zero: {why}")));
        }
        let mut finding = self.finding(number, severity, Kind::Header);
        if let Some((byte, bit)) = self.flipped_identity(number, page) {
            finding = self.finding(number, Severity::Damage, Kind::BitFlip);
            finding.detail = Some(format!(
                "one flipped bit explains it: bit {bit} of byte {byte}; without it the page is the \
                 one that belongs here, and fits"
            ));
            return verdict.fail(header.protection().unwrap_or(Protection::None), finding);
        }
        let claim = format!("its header says {}:{}", header.file, header.page);
        finding.detail = Some(match (header.is_formatted(), tested(page, header)) {
            (true, Tested::Sound) => {
                finding.kind = Kind::Misplaced;
                format!("{claim}, and it fits; {why}")
            }
            (true, Tested::Untested) => {
                finding.kind = Kind::Misplaced;
                format!("{claim}, and nothing protects it; {why}")
            }
            (true, Tested::Failed) => {
                finding.stored = Some(hexadecimal(stored(page)));
                finding.computed = (header.protection() == Some(Protection::Checksum))
                    .then(|| hexadecimal(checksum(page)));
                format!("{claim}, and its content does not fit either; {why}")
            }
            (false, _) => format!(
                "no header of a page: version {}, type {}; {why}",
                header.version, header.kind
            ),
        });
        verdict.fail(header.protection().unwrap_or(Protection::None), finding);
    }

    /// The bit that must be turned over to make this the page that belongs here, with a checksum that
    /// fits.
    fn flipped_identity(&self, number: PageNo, page: &Page) -> Option<(usize, u32)> {
        let own = Header::parse(page);
        let place = u32::try_from(number.0).ok()?;
        let wrong_bits = [
            (own.version ^ VERSION).count_ones(),
            (own.page ^ place).count_ones(),
            (own.file ^ self.file).count_ones(),
            u32::from(!is_known_type(own.kind)),
        ];
        if wrong_bits.iter().fold(0, |sum: u32, bits| sum.saturating_add(*bits)) != 1 {
            return None;
        }
        let mut found = None;
        for byte in [VERSION_AT, TYPE_AT].into_iter().chain(PAGE_AT..FILE_AT.saturating_add(2)) {
            for bit in 0..u8::BITS {
                let mut turned = *page;
                flip(&mut turned, (byte, bit));
                let header = Header::parse(&turned);
                let is_it = header.is_of(self.file, number.0)
                    && header.protection() == Some(Protection::Checksum)
                    && checksum(&turned) == stored(&turned);
                if is_it {
                    found = Some((byte, bit));
                }
            }
        }
        found
    }

    fn failed_checksum(&self, number: PageNo, page: &Page, computed: u32) -> PageFinding {
        let mut finding = self.finding(number, Severity::Damage, Kind::Checksum);
        finding.stored = Some(hexadecimal(stored(page)));
        finding.computed = Some(hexadecimal(computed));
        if let Some(column) = flipped_column(stored(page), computed) {
            finding.detail = Some(match self.second_witness(number, page, column) {
                Some((byte, bit, rule)) => {
                    finding.kind = Kind::BitFlip;
                    format!("one flipped bit explains it: bit {bit} of byte {byte}, {rule}")
                }
                None => format!(
                    "one flipped bit would explain it, in any of {} places that the checksum cannot \
                     tell apart: bit {} of a word in sector 0, bit {} in sector 1, and so on to bit \
                     {} in sector 15",
                    FlippedColumn::PLACES,
                    column.bit_in_sector(0),
                    column.bit_in_sector(1),
                    column.bit_in_sector(15),
                ),
            });
        }
        finding
    }

    /// A bit that explains the mismatch and breaks a rule besides.
    fn second_witness(
        &self,
        number: PageNo,
        page: &Page,
        column: FlippedColumn,
    ) -> Option<(usize, u32, &'static str)> {
        let reserved = page.get(RESERVED)?;
        let mut set = reserved.iter().zip(RESERVED).filter(|(value, _)| **value != 0);
        if let (Some((value, byte)), None) = (set.next(), set.next())
            && value.is_power_of_two()
            && column.explains(byte, value.trailing_zeros())
        {
            return Some((byte, value.trailing_zeros(), "which is reserved and zero on all pages"));
        }
        let kind = Header::parse(page).kind;
        let wrong = fixed_type(self.file, number.0)? ^ kind;
        (wrong.is_power_of_two() && column.explains(TYPE_AT, wrong.trailing_zeros())).then(|| {
            (TYPE_AT, wrong.trailing_zeros(), "without which the page has the type of its place")
        })
    }

    fn failed_torn_bits(&self, number: PageNo, page: &Page, bits: TornBits) -> PageFinding {
        let (kind, detail) = match bits {
            TornBits::Agree => (Kind::Torn, String::new()),
            TornBits::NoPattern(pattern) => {
                (Kind::Header, format!("pattern {pattern}, where only 1 and 2 are ever written"))
            }
            TornBits::Torn(sectors) => (Kind::Torn, torn_in_words(sectors)),
        };
        let mut finding = self.finding(number, Severity::Damage, kind).with_detail(detail);
        finding.stored = Some(hexadecimal(stored(page)));
        finding
    }

    /// No server writes both flags.
    fn both_flags(&self, number: PageNo, page: &Page) -> PageFinding {
        for (flag, protection) in [(TORN_FLAG, "checksum"), (CHECKSUM_FLAG, "torn bits")] {
            let mut turned = *page;
            flip(&mut turned, flag);
            if tested(&turned, &Header::parse(&turned)) == Tested::Sound {
                return self.finding(number, Severity::Damage, Kind::BitFlip).with_detail(format!(
                    "one flipped bit explains it: bit {} of byte {}, the second flag of a page \
                     whose {protection} would fit without",
                    flag.1, flag.0
                ));
            }
        }
        self.finding(number, Severity::Damage, Kind::Header)
            .with_detail("flags of a checksum and of torn bits at once, and neither fits")
    }

    fn finding(&self, number: PageNo, severity: Severity, kind: Kind) -> PageFinding {
        let mut finding = PageFinding::failed(number, severity, kind);
        finding.hint = Some(format!(
            "page {file}:{number}: restore it from a good backup (RESTORE DATABASE ... \
             PAGE = '{file}:{number}'), or see what DBCC CHECKDB says of it",
            file = self.file
        ));
        finding
    }
}

/// The byte and the bit of the flags, which are little-endian.
const CHECKSUM_FLAG: (usize, u32) = (FLAGS_AT + 1, HAS_CHECKSUM.trailing_zeros() - u8::BITS);
const TORN_FLAG: (usize, u32) = (FLAGS_AT + 1, HAS_TORN_BITS.trailing_zeros() - u8::BITS);

fn flip(page: &mut Page, (byte, bit): (usize, u32)) {
    if let Some(byte) = page.get_mut(byte) {
        *byte ^= 1_u8.checked_shl(bit).unwrap_or(0);
    }
}

fn hexadecimal(value: u32) -> String {
    format!("{value:08x}")
}

/// `sectors 8 to 15 carry another pattern: torn at 4 KiB`.
fn torn_in_words(sectors: u16) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for sector in (0..u16::BITS).filter(|sector| sectors & 1_u16.rotate_left(*sector) != 0) {
        match runs.last_mut() {
            Some((_, last)) if last.saturating_add(1) == sector => *last = sector,
            _ => runs.push((sector, sector)),
        }
    }
    let listed: Vec<_> = runs
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        })
        .collect();
    let word = if sectors.is_power_of_two() { "sector" } else { "sectors" };
    let verb = if sectors.is_power_of_two() { "carries" } else { "carry" };
    let mut text = format!("{word} {} {verb} another pattern than the header", listed.join(", "));
    if let [(first, last)] = runs.as_slice()
        && usize::try_from(last.saturating_add(1)) == Ok(SECTOR_COUNT)
        && first.is_multiple_of(2)
    {
        let at = first / 2;
        text.push_str(&format!(": torn at {at} KiB"));
    }
    text
}

impl PageFormat for SqlServerPages {
    fn page_size(&self) -> usize {
        PAGE_BYTES
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (page, index) in run.bytes.as_chunks::<PAGE_BYTES>().0.iter().zip(0..) {
            self.judge_page(run.first.plus(index), page, verdict);
        }
    }

    /// A page that says that it belongs elsewhere: what lies there?
    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        let Some(bytes) = page.first_chunk::<PAGE_BYTES>() else { return };
        let header = Header::parse(bytes);
        if finding.kind != Kind::Misplaced || header.file != self.file {
            return;
        }
        let home = PageNo(u64::from(header.page));
        let words = if home.0 >= neighbours.page_count() {
            format!("the file has no page {home}")
        } else {
            match neighbours.page(home) {
                None => return,
                Some(there) if there == page => format!("page {home} holds the same bytes"),
                Some(there) => {
                    let there = there.first_chunk::<PAGE_BYTES>().map(Header::parse);
                    match there.filter(|there| there.is_of(self.file, home.0)) {
                        None => format!("page {home} is not formatted"),
                        Some(there) if there.lsn < header.lsn => {
                            format!("page {home} is older than this: the write was lost there")
                        }
                        Some(_) => format!("page {home} is there, and not older"),
                    }
                }
            }
        };
        finding.detail = Some(joined(finding.detail.take(), &words));
    }
}

#[cfg(test)]
mod tests;

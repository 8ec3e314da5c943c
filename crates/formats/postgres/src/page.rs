//! PostgreSQL pages, the same from 9.3 to 19.
//!
//! ```text
//! offset  size  field
//!      0     8  pd_lsn, two 32-bit words, the high one first
//!      8     2  pd_checksum
//!     10     2  pd_flags            only the low 3 bits are ever set
//!     12     2  pd_lower            end of the line pointers
//!     14     2  pd_upper            start of the tuples; 0 on a new page
//!     16     2  pd_special          start of the special space
//!     18     2  pd_pagesize_version page size in the high byte, layout in the low one
//!     20     4  pd_prune_xid
//!     24        line pointers
//! ```
//!
//! Source: `src/include/storage/bufpage.h` and `PageIsVerified` in
//! `src/backend/storage/page/bufpage.c`; the checksum's constants were
//! confirmed on pages of real servers of every version (`fixtures/postgres`).
//!
//! A server takes a page as sound when its checksum fits and its header passes
//! these rules, or when it is all zero. `pg_checksums` takes every page whose
//! pd_upper is 0 as new; the server does not, and neither do we.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use crate::checksum::{blocks_matching, checksum, hash_pages};
use pagewarden_core::page::{
    Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict, Specimen, Unsettled,
};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};
use pagewarden_core::words::LsnText;

mod fingerprint;

const LSN: usize = 0;
const CHECKSUM: usize = LSN + 8;
const FLAGS: usize = CHECKSUM + 2;
const LOWER: usize = FLAGS + 2;
const UPPER: usize = LOWER + 2;
const SPECIAL: usize = UPPER + 2;
const PAGE_SIZE_VERSION: usize = SPECIAL + 2;
const PRUNE_XID: usize = PAGE_SIZE_VERSION + 2;
/// Where `pd_checksum` lies.
pub(crate) const CHECKSUM_FIELD: Range<usize> = CHECKSUM..FLAGS;
/// Bytes in the page header, where the line pointers begin.
pub const HEADER_BYTES: usize = PRUNE_XID + 4;
const _: () = assert!(HEADER_BYTES == 24);

/// `PD_VALID_FLAG_BITS`: has free line pointers, page full, all visible.
const VALID_FLAGS: u16 = 0x0007;
/// `PD_ALL_VISIBLE`, of `pd_flags`.
pub const PAGE_ALL_VISIBLE: u16 = 0x0004;
/// Those below are positions that are none: 0 of what is not logged, 1 of what is
/// being built (`GistBuildLSN`), up to `FirstNormalUnloggedLSN`.
pub(crate) const FIRST_REAL_LSN: u64 = 1000;
/// `PG_PAGE_LAYOUT_VERSION` since 8.3.
const NEWEST_LAYOUT: u16 = 4;
/// `MAXIMUM_ALIGNOF` of 64-bit servers. A 32-bit one's control file says 4.
pub const MAX_ALIGN: u16 = 8;

/// The page sizes PostgreSQL can be built with.
pub const PAGE_SIZES: [usize; 6] = [1024, 2048, 4096, 8192, 16384, 32768];

/// The fields of a page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Position in the log of the last change, in bytes.
    pub lsn: u64,
    /// The stored checksum.
    pub checksum: u16,
    /// Flag bits.
    pub flags: u16,
    /// Offset to the end of the line pointers.
    pub lower: u16,
    /// Offset to the start of the tuples.
    pub upper: u16,
    /// Offset to the start of the special space.
    pub special: u16,
    /// Page size and layout version.
    pub page_size_version: u16,
}

impl Header {
    /// Reads the header; `None` if `page` is shorter than one.
    #[must_use]
    pub fn read(page: &[u8]) -> Option<Self> {
        let header = page.first_chunk::<HEADER_BYTES>()?;
        let u16_at = |at: usize| {
            let bytes = header.get(at..at.checked_add(2)?)?;
            Some(u16::from_le_bytes(bytes.try_into().ok()?))
        };
        let lsn_high = u32::from_le_bytes(*header.first_chunk()?);
        let lsn_low = u32::from_le_bytes(*header.get(4..)?.first_chunk()?);
        Some(Self {
            lsn: u64::from(lsn_high) << 32 | u64::from(lsn_low),
            checksum: u16_at(CHECKSUM)?,
            flags: u16_at(FLAGS)?,
            lower: u16_at(LOWER)?,
            upper: u16_at(UPPER)?,
            special: u16_at(SPECIAL)?,
            page_size_version: u16_at(PAGE_SIZE_VERSION)?,
        })
    }

    /// True if all fields are zero, as on a page that was never written.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let Self { lsn, checksum, flags, lower, upper, special, page_size_version } = *self;
        lsn == 0 && checksum == 0 && flags | lower | upper | special | page_size_version == 0
    }

    /// The page size that the header claims.
    #[must_use]
    pub fn page_size(&self) -> usize {
        usize::from(self.page_size_version & 0xFF00)
    }

    /// The first rule that this header breaks, in words; `None` if an engine
    /// could have written it on a page of `page_size` bytes, with structures
    /// aligned to `max_align` bytes.
    #[must_use]
    pub fn fault(&self, page_size: usize, max_align: u16) -> Option<String> {
        let layout = self.page_size_version & 0x00FF;
        if self.page_size() != page_size || layout > NEWEST_LAYOUT || layout == 0 {
            return Some(format!(
                "pd_pagesize_version is 0x{:04x} (expected a page size of {page_size} and layout {NEWEST_LAYOUT})",
                self.page_size_version
            ));
        }
        if self.flags & !VALID_FLAGS != 0 {
            return Some(format!(
                "pd_flags is 0x{:04x}, of which only 0x0007 can be set",
                self.flags
            ));
        }
        let bounds_ok = usize::from(self.lower) >= HEADER_BYTES
            && self.lower <= self.upper
            && self.upper <= self.special
            && usize::from(self.special) <= page_size;
        if !bounds_ok {
            return Some(format!(
                "pd_lower {} <= pd_upper {} <= pd_special {} does not hold within {HEADER_BYTES} to {page_size}",
                self.lower, self.upper, self.special
            ));
        }
        if !self.special.is_multiple_of(max_align) {
            return Some(format!("pd_special {} is not aligned", self.special));
        }
        None
    }
}

/// Whether pages carry checksums, from the cluster's control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Off: whatever pd_checksum holds means nothing.
    Off,
    /// On: every page that is not empty must match.
    On,
    /// Being switched on or off by a running server (19 and later): pages may
    /// or may not match, and a mismatch means nothing.
    Changing,
    /// Not known before the end of the stream that the pages come from: they
    /// are tested as if they were on, and what comes out is unsettled.
    Pending,
}

/// Where the write-ahead log ends, for pages that claim to be newer.
pub trait LogEnd: Send + Sync + std::fmt::Debug {
    /// The end of the log, if it is certain, asked after a page with `lsn` was
    /// read. The answer must be an upper bound for every page read before.
    fn end_for(&self, lsn: u64) -> Option<u64>;
}

/// What crash recovery will do to a page, as far as the available log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It overwrites the page without reading it, with what the log holds at
    /// this position, where that is known.
    Overwritten(Option<u64>),
    /// It leaves the page as it is, or fails on it, and no healthy history
    /// explains a page that fails. How this is known, in words.
    Kept(String),
    /// That is not known. Why, in words.
    Unknown(String),
}

/// What to do about a page that recovery overwrites.
pub(crate) const RECOVERY_MENDS: &str = "nothing to do: recovery mends this page";

/// [`Fate::Overwritten`], for people.
pub(crate) fn overwritten_in_words(at: Option<u64>) -> String {
    let at = at.map_or(String::new(), |at| format!(" at {}", LsnText(at)));
    format!("replay of the log overwrites this page (image{at})")
}

/// The log that is yet to be replayed, for the pages of one file.
pub trait Recovery: Send + Sync + std::fmt::Debug {
    /// What will happen to a page whose header says `lsn`, and which failed its
    /// test. May take its time: the first answer reads the log.
    fn fate_of(&self, page: PageNo, lsn: u64) -> Fate;
}

/// What the pages of one PostgreSQL file must look like.
#[derive(Debug, Clone)]
pub struct PostgresPages {
    /// Bytes in a page, from the control file.
    pub page_size: usize,
    /// How the server aligns structures: 8 bytes, or 4 on 32-bit machines.
    pub max_align: u16,
    /// Whether they carry checksums.
    pub checksums: Checksums,
    /// What a page that fails is: `Damage`, or less where crash recovery or a
    /// restart would mend or discard it.
    pub failure: Severity,
    /// What crash recovery will do to pages that fail. `None`: nothing is to be
    /// recovered, or nothing is known of it; `failure` then holds for all.
    pub recovery: Option<Arc<dyn Recovery>>,
    /// Where the log ends. `None`: not known for sure, or these pages have
    /// LSNs of their own (free space maps, unlogged and temporary relations).
    pub log_end: Option<Arc<dyn LogEnd>>,
    /// Whether every change is logged and moves a page's LSN, but for hints.
    pub is_logged: bool,
}

impl PostgresPages {
    /// The protection that pages of this file carry.
    fn protection(&self) -> Protection {
        match self.checksums {
            Checksums::On | Checksums::Pending => Protection::Checksum,
            Checksums::Off | Checksums::Changing => Protection::None,
        }
    }

    /// True if a sum that does not match is a fault of the page.
    fn tests_sums(&self) -> bool {
        self.protection() == Protection::Checksum
    }

    fn judge_page(&self, page: PageNo, bytes: &[u8], hash: Option<u32>, out: &mut RunVerdict) {
        // Runs hold whole pages, so there always is a header.
        let Some(header) = Header::read(bytes) else { return };
        if header.upper == 0 {
            if bytes.iter().all(|byte| *byte == 0) {
                out.empty();
            } else {
                let detail = match header.fault(self.page_size, self.max_align) {
                    Some(fault) => format!("pd_upper is 0 but the page is not empty; {fault}"),
                    None => "pd_upper is 0 but the page is not empty".to_owned(),
                };
                let mut finding = self.failed(page, Kind::Header, &header, &detail);
                self.note_sums(&mut finding, header.checksum, page, hash);
                out.fail(self.protection(), finding);
            }
            return;
        }
        let computed = hash.map(|hash| checksum(hash, low_block(page)));
        let matches = computed.is_none_or(|computed| computed == header.checksum);
        let fault = header.fault(self.page_size, self.max_align);
        if self.tests_sums() && !matches {
            let (kind, detail) = match fault {
                Some(fault) => (Kind::Header, fault),
                None => (Kind::Checksum, mismatch_detail(&header, computed)),
            };
            let mut finding = self.failed(page, kind, &header, &detail);
            self.note_sums(&mut finding, header.checksum, page, hash);
            out.fail(self.protection(), finding);
            return;
        }
        if let Some(fault) = fault {
            let mut finding = self.failed(page, Kind::Header, &header, &fault);
            self.note_sums(&mut finding, header.checksum, page, hash);
            out.fail(self.protection(), finding);
            return;
        }
        if let Some(end) = self.log_end.as_ref().and_then(|log| log.end_for(header.lsn))
            && header.lsn > end
        {
            let detail = format!(
                "pd_lsn is {}, beyond the end of the log at {}",
                LsnText(header.lsn),
                LsnText(end)
            );
            let finding = self.failed(page, Kind::FutureLsn, &header, &detail);
            out.fail(self.protection(), finding);
            return;
        }
        match self.checksums {
            Checksums::On | Checksums::Pending => out.pass(Standing::Ok, Protection::Checksum),
            Checksums::Changing if matches => out.pass(Standing::Ok, Protection::Checksum),
            Checksums::Changing | Checksums::Off => {
                out.pass(Standing::Unprotected, Protection::None);
            }
        }
    }

    /// A page that failed, with the fate that crash recovery has in store for it.
    fn failed(&self, page: PageNo, kind: Kind, header: &Header, detail: &str) -> PageFinding {
        let failed = |severity, fate: &str| {
            let detail =
                if fate.is_empty() { detail.to_owned() } else { format!("{detail}; {fate}") };
            PageFinding::failed(page, severity, kind).with_detail(detail)
        };
        if self.checksums == Checksums::Pending {
            let unsettled = Unsettled {
                by_sum_alone: kind == Kind::Checksum,
                lsn: header.lsn,
                blank_header: header.is_blank(),
                at_most: self.failure,
            };
            return PageFinding { unsettled: Some(unsettled), ..failed(Severity::Suspect, "") };
        }
        let recovery = self.recovery.as_ref().filter(|_| self.failure == Severity::Suspect);
        match recovery.map(|recovery| recovery.fate_of(page, header.lsn)) {
            None => failed(self.failure, ""),
            // A server flushes its log before the pages that follow from it: no crash leaves
            // such a page behind, whatever replay then does to it.
            Some(Fate::Overwritten(_)) if kind == Kind::FutureLsn => failed(
                self.failure,
                "this copy was not made at one moment, as by copying the files of a running \
                 server, or log was lost",
            ),
            Some(Fate::Overwritten(at)) => {
                let finding = failed(Severity::Notice, &overwritten_in_words(at));
                PageFinding { hint: Some(RECOVERY_MENDS.to_owned()), ..finding }
            }
            // A log that was lost leaves sound pages behind that are newer.
            Some(Fate::Kept(_)) if kind == Kind::FutureLsn => failed(self.failure, ""),
            Some(Fate::Kept(why)) => failed(Severity::Damage, &why),
            Some(Fate::Unknown(why)) => failed(
                self.failure,
                &format!("it is not known if replay of the log mends it: {why}"),
            ),
        }
    }

    fn note_sums(&self, finding: &mut PageFinding, stored: u16, page: PageNo, hash: Option<u32>) {
        if self.tests_sums() {
            finding.stored = Some(format!("{stored:04x}"));
            finding.computed = hash.map(|hash| format!("{:04x}", checksum(hash, low_block(page))));
        }
    }
}

/// Block numbers are 32 bits wide; a larger one comes from a file that no
/// server could address and can only fail.
fn low_block(page: PageNo) -> u32 {
    u32::try_from(page.0).unwrap_or(u32::MAX)
}

fn mismatch_detail(header: &Header, computed: Option<u16>) -> String {
    let mut detail = String::new();
    if header.checksum == 0 {
        detail
            .push_str("the stored checksum is 0, which no server writes while checksums are on; ");
    } else if computed.is_some_and(|computed| (computed ^ header.checksum).is_power_of_two()) {
        // 16 bits of checksum are too few to prove it (16 in 65,535 damaged
        // pages look like this by chance), so it is said, not concluded.
        detail
            .push_str("stored and computed differ in one bit: perhaps only pd_checksum flipped; ");
    }
    let _ = write!(detail, "pd_lsn {}", LsnText(header.lsn));
    detail
}

/// Pages hashed at once: enough for every kernel to interleave, few enough
/// for the hashes to live on the stack.
const HASHED_AT_ONCE: usize = 32;

impl PageFormat for PostgresPages {
    fn page_size(&self) -> usize {
        self.page_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let mut page = run.first;
        let mut hashes = [0_u32; HASHED_AT_ONCE];
        let group_bytes = self.page_size.saturating_mul(HASHED_AT_ONCE);
        // What is left of an incomplete page is no page.
        let whole_bytes = run.bytes.len() - run.bytes.len() % self.page_size;
        let whole_pages = run.bytes.get(..whole_bytes).unwrap_or_default();
        for group in whole_pages.chunks(group_bytes) {
            let hashed = self.checksums != Checksums::Off;
            if hashed {
                let pages = group.len() / self.page_size;
                hash_pages(group, self.page_size, hashes.get_mut(..pages).unwrap_or_default());
            }
            for (bytes, hash) in group.chunks_exact(self.page_size).zip(hashes) {
                self.judge_page(page, bytes, hashed.then_some(hash), verdict);
                page = page.plus(1);
            }
        }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        let looks_whole = finding.kind == Kind::Checksum
            && Header::read(page).is_some_and(|header| header.checksum != 0);
        if looks_whole && let Some(home) = find_home(page, self.page_size, finding.page, neighbours)
        {
            finding.kind = Kind::Misplaced;
            finding.detail = Some(home);
        }
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        let fingerprint = fingerprint::of(page);
        if self.is_logged { fingerprint } else { Fingerprint { lsn: 0, ..fingerprint } }
    }
}

/// How many other pages may be read to find one page's home. A 16-bit sum fits
/// one block in 65,535 by chance, so this covers relations of 500 GiB.
const HOME_CANDIDATES: usize = 1024;

/// Looks for the block that `page` was written for. Its checksum fitting a
/// block proves nothing alone; that block must hold the same bytes, or hold in
/// turn a page whose checksum fits here.
fn find_home(
    page: &[u8],
    page_size: usize,
    here: PageNo,
    neighbours: &dyn Neighbours,
) -> Option<String> {
    let stored = Header::read(page)?.checksum;
    let mut hash = [0_u32];
    hash_pages(page, page_size, &mut hash);
    let [hash] = hash;
    let count = u32::try_from(neighbours.page_count()).unwrap_or(u32::MAX);
    for block in blocks_matching(hash, stored, count).take(HOME_CANDIDATES) {
        let home = PageNo(u64::from(block));
        let other = neighbours.page(home).filter(|other| other.len() == page_size);
        let Some(other) = other else { continue };
        if other == page {
            return Some(format!("this is the page of block {home}, which holds the same bytes"));
        }
        let other_stored = Header::read(&other).map_or(0, |header| header.checksum);
        let mut other_hash = [0_u32];
        hash_pages(&other, page_size, &mut other_hash);
        let [other_hash] = other_hash;
        let swapped = other_stored != 0
            && checksum(other_hash, block) != other_stored
            && checksum(other_hash, low_block(here)) == other_stored;
        if swapped {
            return Some(format!("this page and that of block {home} have changed places"));
        }
    }
    None
}

/// Pages for the conformance suite.
pub fn specimens() -> Vec<Specimen> {
    let at_rest = |page_size, checksums| {
        Box::new(PostgresPages {
            page_size,
            max_align: MAX_ALIGN,
            checksums,
            failure: Severity::Damage,
            recovery: None,
            log_end: None,
            is_logged: true,
        })
    };
    let mut specimens = Vec::new();
    for page_size in PAGE_SIZES {
        let page = PageNo(7);
        let mut good = heap_page(page_size);
        stamp(&mut good, page);
        specimens.push(Specimen {
            name: "postgres with checksums",
            format: at_rest(page_size, Checksums::On),
            page,
            good,
            standing: Standing::Ok,
            stamp: Some(stamp),
            blind_bytes: Vec::new(),
            blind_bits: blind_bits(page_size),
            zero: Standing::Empty,
        });
    }
    let unprotected =
        |name, format: Box<dyn PageFormat>, blind_bytes: Vec<Range<usize>>| Specimen {
            name,
            page: PageNo(7),
            good: heap_page(format.page_size()),
            standing: Standing::Unprotected,
            stamp: None,
            blind_bytes,
            blind_bits: header_blind_bits(),
            zero: Standing::Empty,
            format,
        };
    let page_size = 8192;
    // The low byte of pd_upper may be anything between pd_lower and pd_special.
    let blind = vec![LSN..FLAGS, UPPER..UPPER + 1, PRUNE_XID..page_size];
    specimens.push(unprotected(
        "postgres without checksums",
        at_rest(page_size, Checksums::Off),
        blind.clone(),
    ));
    specimens.push(unprotected(
        "postgres while checksums are switched on",
        at_rest(page_size, Checksums::Changing),
        blind,
    ));
    let mut format = at_rest(page_size, Checksums::Off);
    format.log_end = Some(Arc::new(SpecimenLogEnd));
    // An LSN up to the end of the log may be anything.
    let blind = vec![LSN + 4..LSN + 7, CHECKSUM..FLAGS, UPPER..UPPER + 1, PRUNE_XID..page_size];
    specimens.push(unprotected("postgres without checksums, end of log known", format, blind));
    specimens
}

/// Single-bit flips of the specimen page that its 16-bit checksum passes: one
/// in 65,535 does by chance. They depend on every byte of the page.
fn blind_bits(page_size: usize) -> Vec<(usize, u8)> {
    match page_size {
        2048 => vec![(353, 3)],
        4096 => vec![(3990, 7)],
        8192 => vec![(2765, 4), (5940, 5), (6923, 6)],
        32768 => vec![(6286, 1), (8360, 0), (18540, 7), (23138, 3), (24966, 3), (25659, 6)],
        _ => Vec::new(),
    }
}

/// Single-bit flips that make of the specimen page of 8 KiB one with another
/// header that could be real.
fn header_blind_bits() -> Vec<(usize, u8)> {
    let flags = (0..3).map(|bit| (FLAGS, bit));
    // pd_lower is 44: without bit 5 it would point into the header.
    let lower = (0..8).filter(|bit| *bit != 5).map(|bit| (LOWER, bit));
    // Bits 4 and higher would put either of them past what follows it.
    let high = (0..4).flat_map(|bit| [(LOWER + 1, bit), (UPPER + 1, bit)]);
    flags.chain(lower).chain(high).collect()
}

/// The log ends with its first segment.
#[derive(Debug)]
struct SpecimenLogEnd;

impl LogEnd for SpecimenLogEnd {
    fn end_for(&self, _lsn: u64) -> Option<u64> {
        Some((1 << 24) - 1)
    }
}

/// Sets pd_checksum as a server would when it writes `page` to block `number`.
fn stamp(page: &mut [u8], number: PageNo) {
    let mut hash = [0_u32];
    hash_pages(page, page.len(), &mut hash);
    let [hash] = hash;
    let sum = checksum(hash, low_block(number)).to_le_bytes();
    if let Some(field) = page.get_mut(CHECKSUM..FLAGS) {
        field.copy_from_slice(&sum);
    }
}

/// A page as a heap would have it: line pointers, tuples, no special space.
/// The content is pseudo-random, but the same on every call.
fn heap_page(page_size: usize) -> Vec<u8> {
    let mut page = vec![0_u8; page_size];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let upper = page_size / 2;
    for byte in page.iter_mut().skip(upper) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [.., high] = state.to_le_bytes();
        *byte = high;
    }
    let mut put = |at: usize, value: u16| {
        if let Some(field) = page.get_mut(at..at.saturating_add(2)) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    };
    let size = u16::try_from(page_size).unwrap_or(0);
    put(LSN + 4, 0x4D20);
    put(LOWER, 24 + 4 * 5);
    put(UPPER, size / 2);
    put(SPECIAL, size);
    put(PAGE_SIZE_VERSION, size | NEWEST_LAYOUT);
    page
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_checksums(page_size: usize) -> PostgresPages {
        PostgresPages {
            page_size,
            max_align: MAX_ALIGN,
            checksums: Checksums::On,
            failure: Severity::Damage,
            recovery: None,
            log_end: None,
            is_logged: true,
        }
    }

    fn judge(format: &PostgresPages, first: u64, bytes: &[u8]) -> RunVerdict {
        let mut verdict = RunVerdict::default();
        format.judge(PageRun { first: PageNo(first), bytes }, &mut verdict);
        verdict
    }

    /// The first block and the last that a server can address have nothing of
    /// their own.
    #[test]
    fn first_and_last_block_are_judged_like_any_other() {
        for page_size in PAGE_SIZES {
            for number in [0, 1, u64::from(u32::MAX) - 1] {
                let mut page = heap_page(page_size);
                stamp(&mut page, PageNo(number));
                let format = with_checksums(page_size);
                assert_eq!(judge(&format, number, &page).counts.ok, 1, "block {number}");
                assert_eq!(judge(&format, number ^ 2, &page).findings.len(), 1, "block {number}");
            }
        }
    }

    /// `pg_checksums` lets such a page pass: its pd_upper is 0. The server does not.
    #[test]
    fn page_of_zeroes_with_one_bit_set_is_not_empty() {
        let format = with_checksums(8192);
        for at in 0..8192 {
            let mut page = vec![0_u8; 8192];
            page[at] = 1;
            assert_eq!(judge(&format, 3, &page).findings.len(), 1, "byte {at}");
        }
    }

    proptest! {
        /// What has no fault can be sliced by its own bounds.
        #[test]
        fn header_without_a_fault_keeps_within_its_page(
            mut bytes in prop::collection::vec(any::<u8>(), 0..64),
            size in prop_oneof![prop::sample::select(PAGE_SIZES.to_vec()), any::<usize>()],
            max_align in prop_oneof![Just(4_u16), Just(8), any::<u16>()],
            bounds in prop::option::of(prop::array::uniform3(0..40_000_u16)),
        ) {
            if let Some(mut bounds) = bounds.filter(|_| bytes.len() >= HEADER_BYTES) {
                bounds.sort_unstable();
                let claimed = u16::try_from(size & 0xFF00).unwrap_or(0) | NEWEST_LAYOUT;
                bytes[FLAGS..LOWER].fill(0);
                for (at, value) in [LOWER, UPPER, SPECIAL].into_iter().zip(bounds) {
                    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
                }
                bytes[PAGE_SIZE_VERSION..PRUNE_XID].copy_from_slice(&claimed.to_le_bytes());
            }
            let header = Header::read(&bytes);
            prop_assert_eq!(header.is_none(), bytes.len() < HEADER_BYTES);
            if let Some(header) = header.filter(|header| header.fault(size, max_align).is_none()) {
                prop_assert_eq!(header.page_size(), size);
                prop_assert!(HEADER_BYTES <= usize::from(header.lower));
                prop_assert!(header.lower <= header.upper && header.upper <= header.special);
                prop_assert!(usize::from(header.special) <= size);
            }
        }
    }
}

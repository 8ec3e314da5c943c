//! What comes out for pages of every fate.

#![allow(clippy::arithmetic_side_effects, reason = "a test's own numbers")]

use super::*;
use crate::checksum::{restore_torn_bits, stamp_checksum, stamp_torn_bits};
use header::kinds;

#[derive(Debug)]
struct Every(Allocation);

impl Allocations for Every {
    fn of(&self, _: PageNo) -> Allocation {
        self.0
    }
}

const IN_USE: Allocation = Allocation::InUse(Severity::Damage);

fn format(allocation: Allocation) -> SqlServerPages {
    SqlServerPages { file: 1, allocations: Arc::new(Every(allocation)), writes_checksums: true }
}

fn page(number: u32, flags: u16) -> Page {
    let mut page = [0x21; PAGE_BYTES];
    page[..header::HEADER_BYTES].fill(0);
    page[0] = VERSION;
    page[1] = kinds::DATA;
    page[4..6].copy_from_slice(&flags.to_le_bytes());
    page[32..36].copy_from_slice(&number.to_le_bytes());
    page[36] = 1;
    for (byte, value) in page[96..4000].iter_mut().zip(0_usize..) {
        *byte = (value * value / 7).to_le_bytes()[0];
    }
    match flags {
        HAS_CHECKSUM => stamp_checksum(&mut page),
        HAS_TORN_BITS => stamp_torn_bits(&mut page, 2),
        _ => {}
    }
    page
}

fn judge(format: &SqlServerPages, number: u64, page: &Page) -> RunVerdict {
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: PageNo(number), bytes: page }, &mut verdict);
    verdict
}

fn found(allocation: Allocation, number: u64, page: &Page) -> PageFinding {
    let mut findings = judge(&format(allocation), number, page).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn pages_pass_by_what_they_carry_themselves() {
    for (flags, standing) in [
        (HAS_CHECKSUM, Standing::Ok),
        (HAS_TORN_BITS, Standing::Ok),
        (0, Standing::Unprotected),
        (0x8000, Standing::Unprotected),
    ] {
        for allocation in [Allocation::Unknown, Allocation::Free, IN_USE] {
            let verdict = judge(&format(allocation), 57, &page(57, flags));
            assert!(verdict.findings.is_empty(), "{flags:x}: {verdict:?}");
            assert_eq!(verdict.standings.iter().next(), Some((Some(standing), 1)));
        }
    }
}

/// A page that was rewritten while the database had no checksums keeps the sum of old.
#[test]
fn stale_sum_without_its_flag_is_never_looked_at() {
    let mut stale = page(57, HAS_CHECKSUM);
    stale[5] = 0;
    stale[200] ^= 0x5A;
    let verdict = judge(&format(IN_USE), 57, &stale);
    assert_eq!((verdict.counts.unprotected, verdict.findings.len()), (1, 0));
}

#[test]
fn lost_flag_of_a_sound_page_is_suspected_and_changes_no_count() {
    let mut unflagged = page(57, HAS_CHECKSUM);
    unflagged[5] ^= 2;
    let verdict = judge(&format(IN_USE), 57, &unflagged);
    assert_eq!(verdict.counts.unprotected, 1);
    assert_eq!(verdict.findings[0].kind, Kind::BitFlip);
    assert_eq!(verdict.findings[0].severity, Severity::Suspect);
    let mut other = format(IN_USE);
    other.writes_checksums = false;
    assert!(judge(&other, 57, &unflagged).findings.is_empty());
}

#[test]
fn what_is_no_page_is_judged_by_its_use() {
    let zero = [0; PAGE_BYTES];
    let noise = [0xA5; PAGE_BYTES];
    let foreign = page(58, HAS_CHECKSUM);
    for (bytes, kind) in
        [(&zero, Kind::Zeroed), (&noise, Kind::Header), (&foreign, Kind::Misplaced)]
    {
        assert_eq!(judge(&format(Allocation::Free), 57, bytes).counts.empty, 1);
        for severity in [Severity::Suspect, Severity::Damage] {
            let finding = found(Allocation::InUse(severity), 57, bytes);
            assert_eq!((finding.kind, finding.severity), (kind, severity));
            assert!(finding.hint.is_some_and(|hint| hint.contains("1:57")));
        }
    }
    assert_eq!(judge(&format(Allocation::Unknown), 57, &zero).counts.empty, 1);
    assert_eq!(found(Allocation::Unknown, 57, &noise).severity, Severity::Suspect);
    assert_eq!(found(Allocation::Unknown, 57, &foreign).severity, Severity::Suspect);
}

/// Chance gives foreign bytes a version and a flag; the numbers of their place it does not.
#[test]
fn flags_of_foreign_bytes_are_not_believed() {
    let mut foreign = [0x33; PAGE_BYTES];
    foreign[..6].copy_from_slice(&[1, 1, 0, 0, 0, 2]);
    assert_eq!(judge(&format(Allocation::Free), 57, &foreign).counts.empty, 1);
}

#[test]
fn page_of_another_place_with_a_broken_sum_is_no_page() {
    let mut broken = page(9000, HAS_CHECKSUM);
    broken[300] ^= 0xFF;
    assert_eq!(found(IN_USE, 57, &broken).kind, Kind::Header);
}

#[test]
fn flipped_bit_of_a_page_number_is_proven_by_the_sum() {
    for allocation in [IN_USE, Allocation::InUse(Severity::Suspect), Allocation::Free] {
        for byte in [0, 1, 32, 35, 36, 37] {
            let mut flipped = page(57, HAS_CHECKSUM);
            flipped[byte] ^= 1 << 6;
            let finding = found(allocation, 57, &flipped);
            let is = (finding.kind, finding.severity);
            assert_eq!(is, (Kind::BitFlip, Severity::Damage), "byte {byte}");
            assert!(finding.detail.unwrap().contains(&format!("bit 6 of byte {byte}")));
        }
    }
}

#[test]
fn one_bit_of_the_content_has_candidates_and_no_name() {
    let mut flipped = page(57, HAS_CHECKSUM);
    flipped[700] ^= 1 << 3;
    let finding = found(IN_USE, 57, &flipped);
    assert_eq!(finding.kind, Kind::Checksum);
    assert!(finding.detail.unwrap().contains("bit 3 in sector 1"));
    flipped = page(57, HAS_CHECKSUM);
    flipped[70] ^= 1 << 3;
    assert_eq!(found(IN_USE, 57, &flipped).kind, Kind::BitFlip);
}

#[test]
fn two_flags_at_once_are_an_error() {
    for flags in [HAS_CHECKSUM, HAS_TORN_BITS] {
        let mut both = page(57, flags);
        both[5] = 3;
        assert_eq!(found(IN_USE, 57, &both).kind, Kind::BitFlip);
        both[5000] ^= 1;
        both[511 + 512] ^= 3;
        assert_eq!(found(IN_USE, 57, &both).kind, Kind::Header);
    }
}

#[test]
fn torn_sectors_are_named() {
    let mut new = page(57, HAS_TORN_BITS);
    restore_torn_bits(&mut new);
    stamp_torn_bits(&mut new, 1);
    let old = page(57, HAS_TORN_BITS);
    for (sectors, words) in [
        (8..16, "sectors 8 to 15 carry another pattern than the header: torn at 4 KiB"),
        (3..4, "sector 3 carries another pattern than the header"),
        (1..15, "sectors 1 to 14 carry another pattern than the header"),
    ] {
        let mut torn = new;
        for sector in sectors {
            let range = sector * 512..(sector + 1) * 512;
            torn[range.clone()].copy_from_slice(&old[range]);
        }
        let finding = found(IN_USE, 57, &torn);
        assert_eq!((finding.kind, finding.detail.as_deref()), (Kind::Torn, Some(words)));
    }
}

/// These pages every file has, whatever else is known of it.
#[test]
fn pages_that_every_file_has_are_missed_at_once() {
    for number in [0, 1, 2, 3, 6, 7, 9] {
        let finding = found(Allocation::Free, number, &[0; PAGE_BYTES]);
        assert_eq!((finding.kind, finding.severity), (Kind::Zeroed, Severity::Damage));
        let wrong_type = page(u32::try_from(number).unwrap(), HAS_CHECKSUM);
        assert_eq!(found(Allocation::Free, number, &wrong_type).kind, Kind::Header);
    }
    let second = SqlServerPages { file: 3, ..format(Allocation::Free) };
    assert_eq!(judge(&second, 9, &[0; PAGE_BYTES]).counts.empty, 1);
}

struct Relation(Vec<Page>);

impl Neighbours for Relation {
    fn page_count(&self) -> u64 {
        self.0.len() as u64
    }

    fn page(&self, page: PageNo) -> Option<Vec<u8>> {
        self.0.get(usize::try_from(page.0).ok()?).map(|page| page.to_vec())
    }
}

#[test]
fn what_lies_at_a_misplaced_pages_own_place_is_told() {
    let misplaced = page(2, HAS_CHECKSUM);
    let mut older = misplaced;
    let mut newer = misplaced;
    newer[40] = 9;
    older[8000] ^= 1;
    for (there, pages, words) in [
        (misplaced, 3, "page 2 holds the same bytes"),
        ([0; PAGE_BYTES], 3, "page 2 is not formatted"),
        (older, 3, "page 2 is there, and not older"),
        (misplaced, 2, "the file has no page 2"),
    ] {
        let mut finding = found(IN_USE, 57, &misplaced);
        format(IN_USE).explain(&misplaced, &mut finding, &Relation(vec![there; pages]));
        assert!(finding.detail.as_ref().unwrap().ends_with(words), "{finding:?}");
    }
    let mut finding = found(IN_USE, 57, &newer);
    finding.kind = Kind::Misplaced;
    format(IN_USE).explain(&newer, &mut finding, &Relation(vec![misplaced; 3]));
    assert!(finding.detail.unwrap().contains("the write was lost there"));
}

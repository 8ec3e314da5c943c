//! Pages that real servers wrote pass at their own block and nowhere else.

use pagewarden::formats::postgres::checksum::{checksum, hash_pages};
use pagewarden::formats::postgres::files::witness::node;
use pagewarden::formats::postgres::files::witness::rows::{self, Limits, Numbers};
use pagewarden::formats::postgres::page::{Checksums, Header, MAX_ALIGN, PostgresPages};
use pagewarden::page::{PageFormat as _, PageRun, RunVerdict};
use pagewarden::verdict::{Kind, PageNo, Severity, Standing};

use crate::fixtures::{Row, VERSIONS, bytes, table};

struct Golden {
    row: Row,
    name: String,
    block: u32,
    page: Vec<u8>,
}

fn golden_pages() -> impl Iterator<Item = Golden> {
    VERSIONS.into_iter().flat_map(|version| {
        table(version, "manifest.tsv").into_iter().map(move |row| Golden {
            name: format!("{version}/{}", row.text("file")),
            block: row.number("block").unwrap().try_into().unwrap(),
            page: bytes(version, row.text("file")),
            row,
        })
    })
}

fn pages(checksums: Checksums) -> PostgresPages {
    PostgresPages {
        page_size: 8192,
        max_align: MAX_ALIGN,
        checksums,
        failure: Severity::Damage,
        log_end: None,
        is_logged: true,
        recovery: None,
    }
}

fn judge(format: &PostgresPages, block: u64, page: &[u8]) -> RunVerdict {
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: PageNo(block), bytes: page }, &mut verdict);
    verdict
}

#[test]
fn golden_page_passes_at_its_block_with_the_checksum_its_server_computed() {
    for golden in golden_pages() {
        let Golden { row, name, block, page } = golden;
        assert_eq!(page.len() as u64, row.number("page_bytes").unwrap(), "{name}");
        let mut hash = [0];
        hash_pages(&page, page.len(), &mut hash);
        let stored = row.number("checksum").unwrap();
        assert_eq!(u64::from(checksum(hash[0], block)), stored, "{name}");
        // 9.6 cannot compute it itself.
        assert!(row.number("computed").is_none_or(|computed| computed == stored), "{name}");

        let verdict = judge(&pages(Checksums::On), u64::from(block), &page);
        assert_eq!(verdict.findings, [], "{name}");
        assert_eq!((verdict.counts.ok, verdict.counts.total()), (1, 1), "{name}");
        let verdict = judge(&pages(Checksums::Off), u64::from(block), &page);
        assert_eq!(verdict.findings, [], "{name}");
        assert_eq!((verdict.counts.unprotected, verdict.counts.total()), (1, 1), "{name}");
    }
}

#[test]
fn header_of_a_golden_page_reads_as_pageinspect_shows_it() {
    for Golden { row, name, page, .. } in golden_pages() {
        let header = Header::read(&page).unwrap();
        let number = |column| row.number(column).unwrap();
        assert_eq!(u64::from(header.checksum), number("checksum"), "{name}");
        assert_eq!(header.lsn, row.lsn("lsn"), "{name}");
        assert_eq!(u64::from(header.flags), number("flags"), "{name}");
        assert_eq!(u64::from(header.lower), number("lower"), "{name}");
        assert_eq!(u64::from(header.upper), number("upper"), "{name}");
        assert_eq!(u64::from(header.special), number("special"), "{name}");
        assert_eq!(u64::from(header.page_size_version & 0xFF), number("layout"), "{name}");
        assert_eq!(header.page_size() as u64, number("page_bytes"), "{name}");
        assert_eq!(header.fault(8192, MAX_ALIGN), None, "{name}");
    }
}

/// The sum includes the block number modulo 65,535, so no two blocks less than
/// that far apart share one, and a page that moved a little is always seen.
#[test]
fn golden_page_fails_at_every_block_around_its_own() {
    for Golden { name, block, page, .. } in golden_pages() {
        let format = pages(Checksums::On);
        let around = block.saturating_sub(400)..block + 400;
        for other in around.chain([block + 8192, block + 65_534]).filter(|other| *other != block) {
            let verdict = judge(&format, u64::from(other), &page);
            let [finding] = verdict.findings.as_slice() else {
                panic!("{name} passes as block {other}")
            };
            assert_eq!(finding.kind, Kind::Checksum, "{name} as block {other}");
            assert_eq!(finding.severity, Severity::Damage);
            assert_eq!(finding.standing, Some(Standing::Damaged));
            assert_eq!(finding.page, PageNo(u64::from(other)));
            assert_ne!(finding.stored, finding.computed);
            assert_eq!(verdict.counts.total(), 0, "a page with a finding is counted by it");
        }
    }
}

/// Known blindness of the format: blocks that differ by a multiple of 65,535
/// can share a sum. Whether they do is decided by the page's content.
#[test]
fn some_golden_page_passes_two_segments_away() {
    let format = pages(Checksums::On);
    let passing = golden_pages()
        .filter(|golden| {
            let far = u64::from(golden.block) + 2 * 65_535;
            judge(&format, far, &golden.page).findings.is_empty()
        })
        .count();
    assert!(passing > 0 && passing < golden_pages().count(), "{passing}");
}

/// Every bit of every golden page. With 16 bits of sum, chance lets one flip
/// in 65,535 pass: how many did must stay near that.
#[test]
fn single_bit_flips_of_golden_pages_are_found() {
    let format = pages(Checksums::On);
    let (mut tried, mut passed) = (0_u32, 0_u32);
    for Golden { name, block, mut page, .. } in golden_pages() {
        // A step that is odd and no multiple of a row reaches every lane.
        for bit in (0..page.len() * 8).step_by(13) {
            page[bit / 8] ^= 1 << (bit % 8);
            let verdict = judge(&format, u64::from(block), &page);
            page[bit / 8] ^= 1 << (bit % 8);
            tried += 1;
            match verdict.findings.as_slice() {
                [] => passed += 1,
                [finding] => {
                    assert!(
                        matches!(finding.kind, Kind::Checksum | Kind::Header),
                        "{name}: {finding:?}"
                    );
                }
                more => panic!("{name}: {more:?}"),
            }
        }
    }
    assert!(tried > 500_000, "{tried}");
    assert!(passed <= tried / 65_535 * 4, "{passed} of {tried} flips passed");
}

/// Rows and entries that servers of all versions wrote; the same pages with one bit of a row's
/// or an entry's size changed are none.
#[test]
fn golden_pages_hold_rows_and_entries_that_a_server_writes() {
    let numbers = Numbers { oldest: 3, next: 1 << 30 };
    let limits = Limits { transactions: numbers, multixacts: numbers, columns: 1600 };
    let mut count = 0;
    for golden in golden_pages() {
        let Golden { name, block, mut page, .. } = golden;
        let (_, file) = name.split_once('/').unwrap();
        let fault = |page: &[u8]| match file.split('.').next().unwrap() {
            "heap" | "toast" => rows::fault(page, block, &limits),
            "btree_leaf" | "btree_meta" => node::read(page).err(),
            _ => None,
        };
        assert_eq!(fault(&page), None, "{name}");
        if ["heap", "toast", "btree_leaf"].iter().any(|kind| file.starts_with(kind)) {
            // The first line pointer's tuple, eight bytes further.
            page[24] ^= 8;
            assert!(fault(&page).is_some(), "{name}");
            count += 1;
        }
    }
    assert!(count >= 3 * VERSIONS.len(), "{count}");
}

//! A file of 66 GiB that takes a few megabytes: every interval of the pages that
//! say which others are in use.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use pagewarden::checksum::sqlserver::{PAGE_BYTES, Page, stamp_checksum};

use super::{fixture, page_of};
use crate::runner::{Finding, check};

const PAGES: u64 = 66 << 17;
const PFS_PAGES: u64 = 8088;
const GAM_PAGES: u64 = 511_232;

fn made(kind: u8, number: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    page[..6].copy_from_slice(&[1, kind, 0, 0, 0, 2]);
    page[32..36].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
    page[36] = 1;
    page
}

#[test]
fn every_interval_of_a_large_file_says_what_is_in_use() {
    let Some(mut bytes) = fixture("testdb-checksum-2014.mdf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.mdf");
    let file = File::create(&path).unwrap();
    file.set_len(PAGES * PAGE_BYTES as u64).unwrap();
    // As long as its header says: the first copy of the size.
    let header = page_of(&mut bytes, 0);
    let size = header.windows(4).position(|window| window == 408_u32.to_le_bytes()).unwrap();
    header[size..size + 4].copy_from_slice(&u32::try_from(PAGES).unwrap().to_le_bytes());
    stamp_checksum(header);
    file.write_all_at(&bytes, 0).unwrap();
    let put = |page: &mut Page, number: u64| {
        stamp_checksum(page);
        file.write_all_at(page, number * PAGE_BYTES as u64).unwrap();
    };
    let mut expected = Vec::new();
    let mut written = 0;
    for (index, pfs) in (PFS_PAGES..PAGES).step_by(PFS_PAGES as usize).enumerate() {
        let mut page = made(11, pfs);
        page[98..100].copy_from_slice(&8092_u16.to_le_bytes());
        let in_gam = pfs - pfs % GAM_PAGES;
        let mut in_use = vec![pfs, pfs + 1, pfs + 17, pfs + PFS_PAGES - 1];
        // Where a map of extents lies in the interval, too.
        in_use.extend((in_gam + GAM_PAGES < pfs + PFS_PAGES).then_some(in_gam + GAM_PAGES));
        in_use.retain(|number| *number < PAGES);
        in_use.dedup();
        for number in &in_use {
            page[100 + (number - pfs) as usize] = 0x40;
        }
        put(&mut page, pfs);
        written += 1;
        for number in in_use.into_iter().skip(1) {
            match index % 100 {
                // Zero, and in use.
                7 if number == pfs + 17 => {
                    expected.push(Finding::page("large.mdf", number, "damage", "zeroed"));
                }
                // The page of another interval.
                8 if number == pfs + 17 => {
                    put(&mut made(1, number - PFS_PAGES), number);
                    expected.push(Finding::page("large.mdf", number, "damage", "misplaced"));
                }
                _ => {
                    let is_gam = number % GAM_PAGES == 0;
                    put(&mut made(if is_gam { 8 } else { 1 }, number), number);
                    written += 1;
                }
            }
        }
        // Not in use: whatever it holds.
        put(&mut made(1, 5), pfs + 40);
    }
    let report = check([&path]).report();
    assert_eq!(report.serious(), expected);
    assert_eq!(expected.len(), 22, "{expected:?}");
    assert_eq!(report.pages("total"), PAGES);
    assert_eq!(report.pages("ok"), 278 + written);
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("1069 pages were never written"), "{notes}");
    std::fs::remove_file(&path).unwrap();
}

//! Files of many gigabytes that take a few megabytes: every interval of the pages that
//! say which others are in use.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, stamp_checksum};

use rustix::fs::{SeekFrom, seek};

use super::{fixture, page_of};
use crate::runner::{Finding, check, pagewarden, run};

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

/// Makes the file: which findings it must have, and how many pages behind its first 408 are in use.
/// `None` where the file of a real server that it begins with is not here.
fn make(path: &Path, pages: u64, is_damaged: bool) -> Option<(Vec<Finding>, u64)> {
    let mut bytes = fixture("testdb-checksum-2014.mdf")?;
    let file = File::create(path).unwrap();
    file.set_len(pages * PAGE_BYTES as u64).unwrap();
    // As long as its header says: the first copy of the size.
    let header = page_of(&mut bytes, 0);
    let size = header.windows(4).position(|window| window == 408_u32.to_le_bytes()).unwrap();
    header[size..size + 4].copy_from_slice(&u32::try_from(pages).unwrap().to_le_bytes());
    stamp_checksum(header);
    file.write_all_at(&bytes, 0).unwrap();
    let put = |page: &mut Page, number: u64| {
        stamp_checksum(page);
        file.write_all_at(page, number * PAGE_BYTES as u64).unwrap();
    };
    let mut expected = Vec::new();
    let mut written = 0;
    for (index, pfs) in (PFS_PAGES..pages).step_by(PFS_PAGES as usize).enumerate() {
        let mut page = made(11, pfs);
        page[98..100].copy_from_slice(&8092_u16.to_le_bytes());
        let in_gam = pfs - pfs % GAM_PAGES;
        let mut in_use = vec![pfs, pfs + 1, pfs + 17, pfs + PFS_PAGES - 1];
        // Where a map of extents lies in the interval, too.
        in_use.extend((in_gam + GAM_PAGES < pfs + PFS_PAGES).then_some(in_gam + GAM_PAGES));
        in_use.retain(|number| *number < pages);
        in_use.dedup();
        for number in &in_use {
            page[100 + (number - pfs) as usize] = 0x40;
        }
        put(&mut page, pfs);
        written += 1;
        for number in in_use.into_iter().skip(1) {
            match index % 100 {
                // Zero, and in use.
                7 if is_damaged && number == pfs + 17 => {
                    expected.push(Finding::page("large.mdf", number, "damage", "zeroed"));
                }
                // The page of another interval.
                8 if is_damaged && number == pfs + 17 => {
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
    Some((expected, written))
}

#[test]
fn every_interval_of_a_large_file_says_what_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.mdf");
    let Some((expected, written)) = make(&path, PAGES, true) else { return };
    let report = check([&path]).report();
    assert_eq!(report.serious(), expected);
    assert_eq!(expected.len(), 22, "{expected:?}");
    assert_eq!(report.pages("total"), PAGES);
    assert_eq!(report.pages("ok"), 278 + written);
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("1069 pages were never written"), "{notes}");
    std::fs::remove_file(&path).unwrap();
}

/// Nine gibibytes: three maps of extents, and 146 pages of free space.
#[test]
fn large_file_is_copied_with_its_holes_and_all_of_its_intervals() {
    const PAGES: u64 = 9 << 17;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.mdf");
    let Some((expected, written)) = make(&path, PAGES, false) else { return };
    assert_eq!(expected, []);
    let mut source = path.clone();
    for (mode, changed) in
        [("torn", 280 + written), ("none", 280 + written), ("checksum", 280 + written)]
    {
        let copy = folder.path().join(mode);
        let mut command = pagewarden();
        command.args(["protect", "--json", "--mode", mode]).arg(&source).arg("--copy-to");
        let outcome = run(command.arg(&copy));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(
            (&json["pages"]["changed"], &json["pages"]["total"]),
            (&changed.into(), &PAGES.into())
        );
        assert!(outcome.memory_kib < 128 << 10, "{} KiB", outcome.memory_kib);
        source = copy.join("large.mdf");
        let report = check([&source]).report();
        assert_eq!((report.findings(), report.pages("total")), (vec![], PAGES));
        assert_eq!(report.target()["by_mode"][mode], 280 + written);
        // File systems keep their own notes in blocks, too.
        let [copied, blocks] = [&source, &path].map(|path| path.metadata().unwrap().blocks());
        assert!(copied <= blocks + blocks / 10, "{copied} blocks of {blocks}");
    }
    // All pages had a checksum but two, which have one now, too.
    let differing = differing_pages(&path, &source);
    assert_eq!(differing, [7, 12]);
}

/// The pages of two files of one length that are not the same, where either has data.
fn differing_pages(one: &Path, two: &Path) -> Vec<u64> {
    let files = [one, two].map(|path| File::open(path).unwrap());
    let length = files[0].metadata().unwrap().len();
    assert_eq!(length, files[1].metadata().unwrap().len());
    let mut differing = Vec::new();
    let mut offset = 0;
    while offset < length {
        let data = files.iter().filter_map(|file| seek(file, SeekFrom::Data(offset)).ok()).min();
        let Some(data) = data else { break };
        offset = data - data % PAGE_BYTES as u64;
        let [page, other] = files.each_ref().map(|file| {
            let mut page = [0; PAGE_BYTES];
            file.read_exact_at(&mut page, offset).unwrap();
            page
        });
        differing.extend((page != other).then_some(offset / PAGE_BYTES as u64));
        offset += PAGE_BYTES as u64;
    }
    differing
}

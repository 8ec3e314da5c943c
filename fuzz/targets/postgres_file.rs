//! A relation's file that lies alone: page size, segment and checksums are
//! voted on, from arbitrary bytes.
//!
//! The first byte of the input says how the file is named and what is done
//! with the others, which become the file.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden::formats::postgres::checksum::{checksum, hash_pages};
use pagewarden_fuzz::{check, empty_folder};

const NAMES: [&str; 6] =
    ["16384", "16384.7", "16384_fsm.4294967295", "t3_16384", "4294967295.131071", "data"];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    let name = NAMES[usize::from(*mode) % NAMES.len()];
    let mode = usize::from(*mode) / NAMES.len();
    if mode & 1 != 0 {
        // Sums that fit a segment of some number, so that there is something
        // to find.
        let page_size = 1024 << (mode / 2 % 6);
        let first = u32::try_from(mode / 12).unwrap_or(0) * 131_072;
        for (page, block) in bytes.chunks_exact_mut(page_size).zip(first..) {
            let mut hash = [0];
            hash_pages(page, page_size, &mut hash);
            page[8..10].copy_from_slice(&checksum(hash[0], block).to_le_bytes());
        }
    }
    let folder = empty_folder();
    let path = folder.join(name);
    fs::write(&path, &bytes).expect("the folder is ours");
    // Whether it is recognised, and what comes out when it is said to be one.
    check(&path, None, NonZero::<usize>::MIN);
    let report = check(&path, kind_named("postgres"), NonZero::<usize>::MIN);
    let report = report.expect("any regular file can be read as a relation");
    assert_eq!(report.summary.files, 1);
    assert_eq!(report.unread, []);
}

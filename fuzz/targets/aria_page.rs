//! Pages of Aria tables under arbitrary headers.
//!
//! The first bytes say how the table is laid out and which page the input begins
//! with; the rest are pages, of which some get the sum that fits.

use pagewarden::formats::aria::checksum::checksum;
use pagewarden::formats::aria::page::header::AriaHeader;
use pagewarden::formats::aria::page::{AriaFile, AriaPages, Written};
use pagewarden::page::{PageFormat as _, PageRun, RunVerdict};
use pagewarden::verdict::{PageNo, Severity};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let _ = AriaHeader::parse(input);
    let [flags, size, first, bytes @ ..] = input else { return };
    let flag = |bit: u8| flags >> bit & 1 == 1;
    let page_size = 1024_usize << (size % 6);
    let header = AriaHeader {
        page_size,
        index_begin: 0,
        has_sums: true,
        is_encrypted: flag(0),
        is_transactional: flag(1),
        has_data_pages: true,
        is_closed: true,
        is_unused: true,
        rows: 0,
        index_bytes: 0,
        data_bytes: 0,
    };
    let file = if flag(2) { AriaFile::Index(u64::from(size >> 4)) } else { AriaFile::Data };
    let mut bytes = bytes.to_vec();
    if flag(3) {
        for (page, number) in bytes.chunks_exact_mut(page_size).zip(u64::from(*first)..) {
            let sum = checksum(&page[..page_size - 4], number);
            page[page_size - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let format = AriaPages { header, file, failure: Severity::Damage, written: Written::Unknown };
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: PageNo(u64::from(*first)), bytes: &bytes }, &mut verdict);
    let listed = verdict.standings.iter().map(|(_, pages)| pages).sum::<u64>();
    assert_eq!(listed, (bytes.len() / page_size) as u64);
    if flag(3) && file == AriaFile::Data {
        assert!(verdict.findings.is_empty(), "{verdict:?}");
    }
}

//! A DuckDB database of arbitrary bytes.
//!
//! The first byte says which headers and blocks get the sum of their content, so that what they say
//! is believed.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden::formats::duckdb::checksum::stamp;
use pagewarden::formats::duckdb::files::header::{BLOCK_SIZE_MIN, HEADER_BYTES, HEADERS_BYTES};
use pagewarden_fuzz::{check, empty_folder};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [stamped, database @ ..] = input else { return };
    let mut database = database.to_vec();
    let begin = HEADERS_BYTES.min(database.len());
    let (headers, blocks) = database.split_at_mut(begin);
    let headers = headers.chunks_exact_mut(HEADER_BYTES);
    let areas = headers.chain(blocks.chunks_exact_mut(BLOCK_SIZE_MIN));
    for (area, index) in areas.zip(0_u32..) {
        if stamped >> index.min(7) & 1 == 1 {
            stamp(area);
        }
    }
    let path = empty_folder().join("data.duckdb");
    fs::write(&path, &database).expect("the folder is ours");
    check(&path, None, NonZero::<usize>::MIN);
    if let Some(report) = check(&path, kind_named("duckdb"), NonZero::<usize>::MIN) {
        assert!(report.summary.bytes <= database.len() as u64);
        assert!(report.unread.is_empty(), "{:?}", report.unread);
    }
}

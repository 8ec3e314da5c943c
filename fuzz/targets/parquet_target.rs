//! A Parquet file of arbitrary bytes.
//!
//! Behind the first byte is a file; the first byte says whether its marks, and the length of its footer,
//! are put right, and how much of the file the footer is.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden::formats::parquet::files::MAGIC;
use pagewarden_fuzz::{check, empty_folder};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [how, file @ ..] = input else { return };
    let mut file = file.to_vec();
    if how & 1 == 1 {
        let length = (file.len() * usize::from(how >> 1) / 127) as u32;
        file.splice(0..0, MAGIC);
        file.extend(length.to_le_bytes());
    }
    if how & 3 != 0 {
        file.extend(MAGIC);
    }
    let path = empty_folder().join("data.parquet");
    fs::write(&path, &file).expect("the folder is ours");
    check(&path, None, NonZero::<usize>::MIN);
    if let Some(report) = check(&path, kind_named("parquet"), NonZero::<usize>::MIN) {
        assert!(report.summary.bytes <= file.len() as u64);
        assert!(report.unread.is_empty(), "{:?}", report.unread);
    }
}

//! What the tests of several reports report on.

use std::path::PathBuf;

use crate::database::{Description, Evidence};
use crate::verdict::{ByteOffset, PageNo, Protection, Standing, Stretch};

/// A cluster at rest.
pub(super) fn description(path: &str) -> Description {
    Description {
        path: PathBuf::from(path),
        format: "postgres",
        engine: "PostgreSQL 15".to_owned(),
        page_size: 8192,
        setting: Some(Protection::Checksum),
        state: "checksums on, shut down cleanly".to_owned(),
        evidence: Evidence { tested_by: "16-bit checksums", unseen: "older versions" },
        live: false,
        epoch: None,
        part: None,
    }
}

/// Pages of 8 KiB that all count as the same.
pub(super) fn stretch(
    file: &str,
    first: u64,
    pages: u64,
    standing: Option<Standing>,
) -> Stretch<'_> {
    Stretch {
        file,
        first: Some(PageNo(first)),
        offset: ByteOffset(first * 8192),
        pages,
        length: pages * 8192,
        standing,
    }
}

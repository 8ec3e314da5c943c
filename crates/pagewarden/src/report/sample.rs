//! What the tests of several reports report on.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use crate::database::{Description, Evidence};
use crate::report::RunEnd;
use crate::verdict::{ByteOffset, PageNo, Protection, Standing, Stretch, Verdict};
use crate::verify::Summary;

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

/// The end of a run over one target.
pub(super) fn end(verdict: Verdict, total: &Summary) -> RunEnd<'_> {
    RunEnd {
        verdict,
        total,
        opened: 1,
        protection_missed: false,
        storage: None,
        drill: None,
        ended: UNIX_EPOCH,
    }
}

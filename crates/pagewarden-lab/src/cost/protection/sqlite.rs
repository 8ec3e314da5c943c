//! SQLite's official checksum VFS: 64 bits at the end of the page, no page
//! number, and an all-zero page fits. The library's own function computes it.

use pagewarden::checksum::sqlite::{page_sum, stamp, stored_sum};

use super::Protection;

pub(super) const CKSUMVFS: Protection = Protection {
    name: "cksumvfs",
    page_bytes: 4096,
    write: |page, _, _| stamp(page),
    sum_fits: |page, _| page_sum(page) == stored_sum(page),
    is_taken: |page, _| page_sum(page) == stored_sum(page),
};

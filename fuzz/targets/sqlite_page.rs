//! Page 1 of a SQLite database and b-tree pages of arbitrary bytes.
//!
//! The first two bytes of the input say what is done with the others.

use pagewarden::formats::sqlite::checksum::{flipped_bit, page_sum, page_sums, stamp, stored_sum};
use pagewarden::formats::sqlite::page::SqlitePages;
use pagewarden::formats::sqlite::page::header::{DatabaseHeader, btree_fault, table_cells_fault};
use pagewarden::verdict::PageNo;
use pagewarden_fuzz::judge;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [mode, reserved_bytes, bytes @ ..] = input else { return };
    let mut bytes = bytes.to_vec();
    let page_size = 512 << (mode % 8);
    if mode & 8 != 0 && bytes.len() >= page_size {
        bytes.chunks_exact_mut(page_size).for_each(stamp);
    }
    if let Some(header) = DatabaseHeader::parse(&bytes) {
        let faults = [header.geometry_faults(), header.field_faults(), header.oddities()].concat();
        assert!(faults.iter().all(|fault| !fault.is_empty()));
        let _ = (header.library(), header.page_count(), header.page_size());
    }
    for usable in [0, bytes.len().saturating_sub(usize::from(*reserved_bytes)), bytes.len() * 2] {
        for offset in [0, 100, bytes.len(), usize::MAX] {
            let _ = btree_fault(&bytes, offset, usable);
            let _ = table_cells_fault(&bytes, offset, usable);
        }
    }
    let _ = (flipped_bit(&bytes), stored_sum(&bytes), page_sum(&bytes));
    let mut sums = Vec::new();
    page_sums(&bytes, page_size, &mut sums);

    let format = SqlitePages {
        page_size,
        reserved_bytes: *reserved_bytes,
        has_sums: mode & 16 != 0,
        is_encrypted: mode & 32 != 0,
        ..SqlitePages::default()
    };
    let _ = format.judge_first(&bytes);
    let first = if mode & 64 != 0 { PageNo(1) } else { PageNo(u64::from(*reserved_bytes)) };
    judge(&format, first, &bytes);
}

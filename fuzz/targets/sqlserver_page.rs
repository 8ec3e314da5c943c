//! Pages of SQL Server of arbitrary bytes, under any number and in any use.
//!
//! The first four bytes of the input say what is done with the others.

use std::sync::Arc;

use pagewarden::formats::sqlserver::checksum::{
    FlippedColumn, Kernel, PAGE_BYTES, Page, TornBits, checksum, checksum_with, flipped_column,
    restore_torn_bits, stamp_checksum, stamp_torn_bits, stored, torn_bits,
};
use pagewarden::formats::sqlserver::page::{Allocation, Allocations, SqlServerPages};
use pagewarden::page::{Neighbours, PageFormat as _};
use pagewarden::verdict::{PageNo, Severity};
use pagewarden_fuzz::judge;

#[derive(Debug)]
struct Use(u8);

impl Allocations for Use {
    fn of(&self, page: PageNo) -> Allocation {
        match u64::from(self.0).wrapping_add(page.0) % 4 {
            0 => Allocation::Unknown,
            1 => Allocation::Free,
            2 => Allocation::InUse(Severity::Suspect),
            _ => Allocation::InUse(Severity::Damage),
        }
    }
}

struct Others(Vec<u8>);

impl Neighbours for Others {
    fn page_count(&self) -> u64 {
        100
    }

    fn page(&self, page: PageNo) -> Option<Vec<u8>> {
        (!page.0.is_multiple_of(3)).then(|| self.0.clone())
    }
}

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [mode, number, used, stamped, bytes @ ..] = input else { return };
    let mut bytes = bytes.to_vec();
    let begun = bytes.len().div_ceil(PAGE_BYTES).clamp(1, 4);
    bytes.resize(begun * PAGE_BYTES, mode.wrapping_mul(0x21));
    let first = if mode & 1 != 0 { PageNo(u64::from(*number)) } else { PageNo(1 << (number % 64)) };
    for (page, index) in bytes.as_chunks_mut::<PAGE_BYTES>().0.iter_mut().zip(0..) {
        if mode & 2 != 0 {
            page[0] = 1;
            page[1] %= 21;
            let own = u32::try_from(first.plus(index).0).unwrap_or(7);
            page[32..36].copy_from_slice(&own.to_le_bytes());
            page[36..38].copy_from_slice(&[1, 0]);
        }
        match stamped % 4 {
            0 => stamp_checksum(page),
            1 => stamp_torn_bits(page, 1 + stamped / 4 % 2),
            _ => {}
        }
        look_at(page);
    }
    if mode & 4 != 0 {
        let at = usize::from(*number) * 37 % bytes.len();
        bytes[at] ^= 1 << (used % 8);
    }
    let format = SqlServerPages {
        file: 1,
        allocations: Arc::new(Use(*used)),
        writes_checksums: mode & 8 != 0,
    };
    let verdict = judge(&format, first, &bytes);
    let others = Others(bytes[..PAGE_BYTES].to_vec());
    for mut finding in verdict.findings {
        let severity = finding.severity;
        let index = usize::try_from(finding.page.0 - first.0).expect("a page of the run");
        format.explain(&bytes[index * PAGE_BYTES..][..PAGE_BYTES], &mut finding, &others);
        assert!(finding.severity == severity && finding.hint.is_some(), "{finding:?}");
    }
}

fn look_at(page: &mut Page) {
    let sum = checksum(page);
    for kernel in Kernel::all() {
        assert_eq!(checksum_with(*kernel, page), sum);
    }
    if let Some(column) = flipped_column(stored(page), sum) {
        let fits = (0..PAGE_BYTES * 8).filter(|at| column.explains(at / 8, (at % 8) as u32));
        assert_eq!(fits.count(), FlippedColumn::PLACES);
    }
    if torn_bits(page) == TornBits::Agree {
        let mut again = *page;
        restore_torn_bits(&mut again);
        stamp_torn_bits(&mut again, page[60] & 3);
        assert!(again == *page);
    }
}

//! Pages for the conformance suite, one for each kind of protection.

use std::ops::Range;
use std::sync::Arc;

use crate::checksum::{
    PAGE_BYTES, Page, SECTOR_BYTES, restore_torn_bits, stamp_checksum, stamp_torn_bits,
};
use crate::page::header::{
    FILE_AT, FLAGS_AT, HAS_CHECKSUM, HAS_TORN_BITS, HEADER_BYTES, PAGE_AT, VERSION, fixed_type,
    kinds,
};
use crate::page::{Allocation, Allocations, SqlServerPages};
use pagewarden_core::page::Specimen;
use pagewarden_core::verdict::{PageNo, Severity, Standing};

const FILE: u16 = 1;
const PAGE: PageNo = PageNo(40);

/// All of them. In these files every page is in use.
pub(crate) fn all() -> Vec<Specimen> {
    let specimen = |name, stamp: fn(&mut [u8], PageNo)| {
        let mut good = page();
        stamp(&mut good, PAGE);
        Specimen {
            name,
            format: Box::new(format()),
            page: PAGE,
            good,
            standing: Standing::Ok,
            stamp: Some(stamp),
            blind_bytes: Vec::new(),
            blind_bits: Vec::new(),
            zero: Standing::Damaged,
        }
    };
    let checksum = specimen("sqlserver page with a checksum", with_checksum);
    let torn_bits = specimen("sqlserver page with torn bits", with_torn_bits);
    let mut plain = page();
    put_identity(&mut plain, PAGE, 0);
    vec![
        Specimen {
            // The flag of a checksum: without it nothing else counts.
            blind_bits: vec![(FLAGS_AT + 1, 1)],
            ..checksum
        },
        Specimen {
            blind_bytes: TORN_BLIND_BYTES
                .into_iter()
                .chain(sectors_but_their_last_bytes())
                .collect(),
            blind_bits: TORN_BLIND_BITS.into_iter().chain(last_bytes_but_their_pairs()).collect(),
            ..torn_bits
        },
        Specimen {
            name: "sqlserver page without protection",
            standing: Standing::Unprotected,
            good: plain,
            stamp: None,
            blind_bytes: vec![2..5, 6..32, 38..PAGE_BYTES],
            // A flag of torn bits or of a checksum on a page that has none is seen.
            blind_bits: PLAIN_BLIND_BITS.to_vec(),
            ..specimen("", with_checksum)
        },
    ]
}

/// Types 3, 9 and 17 are legal, too; flags beside the two that count.
const PLAIN_BLIND_BITS: [(usize, u8); 9] =
    [(1, 1), (1, 3), (1, 4), (5, 2), (5, 3), (5, 4), (5, 5), (5, 6), (5, 7)];
/// And the flag of torn bits itself; of the field, the pairs of the sectors.
const TORN_BLIND_BITS: [(usize, u8); 16] = [
    (1, 1),
    (1, 3),
    (1, 4),
    (5, 0),
    (5, 2),
    (5, 3),
    (5, 4),
    (5, 5),
    (5, 6),
    (5, 7),
    (60, 2),
    (60, 3),
    (60, 4),
    (60, 5),
    (60, 6),
    (60, 7),
];
/// Of the first sector.
const TORN_BLIND_BYTES: [Range<usize>; 4] = [2..5, 6..32, 38..60, 61..512];

fn sectors_but_their_last_bytes() -> impl Iterator<Item = Range<usize>> {
    (SECTOR_BYTES..PAGE_BYTES)
        .step_by(SECTOR_BYTES)
        .map(|begin| begin..begin.saturating_add(SECTOR_BYTES - 1))
}

fn last_bytes_but_their_pairs() -> impl Iterator<Item = (usize, u8)> {
    sectors_but_their_last_bytes().flat_map(|sector| (2..8).map(move |bit| (sector.end, bit)))
}

#[derive(Debug)]
struct AllInUse;

impl Allocations for AllInUse {
    fn of(&self, _: PageNo) -> Allocation {
        Allocation::InUse(Severity::Damage)
    }
}

fn format() -> SqlServerPages {
    SqlServerPages { file: FILE, allocations: Arc::new(AllInUse), writes_checksums: false }
}

/// A data page with a row in every sector and free space as the engine leaves it.
fn page() -> Vec<u8> {
    let mut page = vec![0; HEADER_BYTES];
    while page.len() < PAGE_BYTES {
        let at = page.len().to_le_bytes();
        page.extend_from_slice(b"one row of a table, ");
        page.extend_from_slice(&at);
        page.resize(page.len().saturating_add(100), 0x21);
    }
    page.truncate(PAGE_BYTES);
    page
}

fn put_identity(page: &mut [u8], number: PageNo, flags: u16) {
    // Numbers beyond are none that a page can say.
    let own = u32::try_from(number.0).unwrap_or(u32::MAX);
    let kind = fixed_type(FILE, number.0).unwrap_or(kinds::DATA);
    let fields: [(usize, &[u8]); 4] = [
        (0, &[VERSION, kind]),
        (FLAGS_AT, &flags.to_le_bytes()),
        (PAGE_AT, &own.to_le_bytes()),
        (FILE_AT, &FILE.to_le_bytes()),
    ];
    // What is read from the page of that kind: the records of a map, or a boot page's version.
    let record: &[(usize, u16)] = match kind {
        kinds::DATA => &[],
        kinds::BOOT => &[(PAGE_BYTES - 2, 96), (96 + 4, 782)],
        _ => &[(PAGE_BYTES - 2, 96), (PAGE_BYTES - 4, 190), (98, 94), (192, 7992)],
    };
    let record = record.iter().map(|(at, value)| (*at, value.to_le_bytes()));
    let record: Vec<_> = record.collect();
    let record = record.iter().map(|(at, bytes)| (*at, bytes.as_slice()));
    for (at, bytes) in fields.into_iter().chain(record) {
        if let Some(place) = page.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
}

fn with_checksum(page: &mut [u8], number: PageNo) {
    put_identity(page, number, HAS_CHECKSUM);
    if let Some(page) = page.first_chunk_mut() {
        stamp_checksum(page);
    }
}

/// Writes one pattern over the content's own bits for the specimen's content, and the other for any
/// other, as pages have that are written one after the other.
fn with_torn_bits(page: &mut [u8], number: PageNo) {
    let Some(page) = page.first_chunk_mut::<PAGE_BYTES>() else { return };
    if is_torn_page(page) {
        restore_torn_bits(page);
    }
    put_identity(page, number, HAS_TORN_BITS);
    let is_first_version =
        page.iter().skip(HEADER_BYTES).eq(self::page().iter().skip(HEADER_BYTES));
    let pattern = if is_first_version { 1 } else { 2 };
    stamp_torn_bits(page, pattern);
}

fn is_torn_page(page: &Page) -> bool {
    page[FLAGS_AT + 1] & HAS_TORN_BITS.to_be_bytes()[0] != 0
}

//! InnoDB's page checksums, as MariaDB offers them.
//!
//! | offset | `crc32` | `full_crc32` |
//! |---|---|---|
//! | 0, u32 | checksum | key version, 0 |
//! | 4, u32 | page number | the same |
//! | 16, u64 | LSN of the last change | the same |
//! | 34, u32 | space number | the same |
//! | end - 8, u32 | checksum again | low half of the LSN |
//! | end - 4, u32 | low half of the LSN | checksum |
//!
//! Integers are big-endian. The sums and their sources: `checksum::innodb`.

use pagewarden::formats::innodb::checksum::{crc32, full_crc32};

use super::{Protection, field, is_zero, put};

/// The default page size.
const PAGE_BYTES: usize = 16384;
const PAGE_NUMBER: usize = 4;
const LSN: usize = 16;
const FLUSH_LSN: usize = 26;
const SPACE: usize = 34;
const SPACE_NUMBER: u32 = 5;

pub(super) const CRC32: Protection = Protection {
    name: "crc32",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        write_header(page, number, generation);
        put_from_end(page, 4, &generation.to_be_bytes());
        let sum = crc32(page).to_be_bytes();
        put(page, 0, &sum);
        put_from_end(page, 8, &sum);
    },
    sum_fits: |page, _| is_zero(page) || crc32_fits(page),
    is_taken: |page, number| {
        let lsn: [u8; 4] = field(page, LSN + 4);
        is_zero(page) || (crc32_fits(page) && lsn == field_from_end(page, 4) && is_of(page, number))
    },
};

pub(super) const FULL_CRC32: Protection = Protection {
    name: "full_crc32",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        write_header(page, number, generation);
        put(page, 0, &[0; 4]);
        put_from_end(page, 8, &generation.to_be_bytes());
        let sum = full_crc32(page).to_be_bytes();
        put_from_end(page, 4, &sum);
    },
    sum_fits: |page, _| is_zero(page) || full_crc32_fits(page),
    is_taken: |page, number| is_zero(page) || (full_crc32_fits(page) && is_of(page, number)),
};

fn write_header(page: &mut [u8], number: u32, generation: u32) {
    put(page, PAGE_NUMBER, &number.to_be_bytes());
    put(page, LSN, &u64::from(generation).to_be_bytes());
    put(page, FLUSH_LSN, &[0; 8]);
    put(page, SPACE, &SPACE_NUMBER.to_be_bytes());
}

fn is_of(page: &[u8], number: u32) -> bool {
    u32::from_be_bytes(field(page, PAGE_NUMBER)) == number
        && u32::from_be_bytes(field(page, SPACE)) == SPACE_NUMBER
}

fn crc32_fits(page: &[u8]) -> bool {
    let sum = crc32(page).to_be_bytes();
    sum == field(page, 0) && sum == field_from_end(page, 8)
}

fn full_crc32_fits(page: &[u8]) -> bool {
    full_crc32(page).to_be_bytes() == field_from_end(page, 4)
}

fn field_from_end<const BYTES: usize>(page: &[u8], from_end: usize) -> [u8; BYTES] {
    field(page, page.len().saturating_sub(from_end))
}

fn put_from_end(page: &mut [u8], from_end: usize, value: &[u8]) {
    let offset = page.len().saturating_sub(from_end);
    put(page, offset, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::fixtures;

    #[test]
    fn every_page_of_real_servers_fits() {
        let files = [
            "innodb/mariadb-10.11/crc32-16k/dyn.ibd",
            "innodb/mariadb-10.11/crc32-16k/red.ibd",
            "innodb/mariadb-10.11/full_crc32-16k/dyn.ibd",
            "innodb/mariadb-10.11/full_crc32-16k/red.ibd",
        ];
        for name in files {
            let fits = if name.contains("full_crc32") { full_crc32_fits } else { crc32_fits };
            let Some(file) = fixtures::read(name) else { return };
            let mut count = 0;
            for (number, page) in (0_u32..).zip(file.chunks_exact(PAGE_BYTES)) {
                if !is_zero(page) {
                    assert!(fits(page), "{name}, page {number}");
                    assert_eq!(u32::from_be_bytes(field(page, PAGE_NUMBER)), number, "{name}");
                    count += 1;
                }
            }
            assert!(count >= 4, "{name} holds only {count} pages in use");
        }
    }
}

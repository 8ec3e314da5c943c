//! SQL Server's PAGE_VERIFY modes.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | header version | 1 in every formatted page |
//! | 1 | page type | 1 is data |
//! | 4, u16 | flags | 0x200: a checksum is on the page, 0x100: torn bits are |
//! | 32, u32; 36, u16 | page number, file number | compared by the engine in every mode |
//! | 40 | LSN of the last change | |
//! | 60, u32 | checksum, or torn bits | |
//!
//! The checksum, the torn bits and their sources: `checksum::sqlserver`.

use pagewarden::formats::sqlserver::checksum::{
    PAGE_BYTES, Page, TornBits, checksum, stamp_checksum, stamp_torn_bits, stored, torn_bits,
};

use super::{Protection, field, put};

const FLAGS: usize = 4;
const PAGE_NUMBER: usize = 32;
const FILE_NUMBER: usize = 36;
const LSN: usize = 40;
const HEADER_BYTES: usize = 96;
const HAS_CHECKSUM: u16 = 0x200;
const HAS_TORN_BITS: u16 = 0x100;
const FILE: u16 = 1;

pub(super) const NONE: Protection = Protection {
    name: "none",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| write_header(page, number, generation, 0),
    sum_fits,
    is_taken,
};

pub(super) const TORN: Protection = Protection {
    name: "torn",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        write_header(page, number, generation, HAS_TORN_BITS);
        if let Some(page) = page.first_chunk_mut() {
            stamp_torn_bits(page, if generation.is_multiple_of(2) { 1 } else { 2 });
        }
    },
    sum_fits,
    is_taken,
};

pub(super) const CHECKSUM: Protection = Protection {
    name: "checksum",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        write_header(page, number, generation, HAS_CHECKSUM);
        if let Some(page) = page.first_chunk_mut() {
            stamp_checksum(page);
        }
    },
    sum_fits,
    is_taken,
};

fn write_header(page: &mut [u8], number: u32, generation: u32, flags: u16) {
    if let Some(header) = page.get_mut(..HEADER_BYTES) {
        header.fill(0);
    }
    put(page, 0, &[1, 1]);
    put(page, FLAGS, &flags.to_le_bytes());
    put(page, PAGE_NUMBER, &number.to_le_bytes());
    put(page, FILE_NUMBER, &FILE.to_le_bytes());
    put(page, LSN, &generation.to_le_bytes());
}

/// The engine goes by the page's own flags: pages of several modes lie side by
/// side, and those without a flag carry nothing to verify.
fn sum_fits(page: &[u8], _number: u32) -> bool {
    let flags = u16::from_le_bytes(field(page, FLAGS));
    let Some(page): Option<&Page> = page.first_chunk() else { return false };
    if flags & HAS_CHECKSUM != 0 {
        stored(page) == checksum(page)
    } else if flags & HAS_TORN_BITS != 0 {
        torn_bits(page) == TornBits::Agree
    } else {
        true
    }
}

fn is_taken(page: &[u8], number: u32) -> bool {
    page.first() == Some(&1)
        && u32::from_le_bytes(field(page, PAGE_NUMBER)) == number
        && u16::from_le_bytes(field(page, FILE_NUMBER)) == FILE
        && sum_fits(page, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::fixtures;

    /// Pages that a real server wrote, of both modes; the numbers are those that
    /// the list beside the files gives.
    #[test]
    fn every_page_of_real_servers_fits() {
        let expected = [
            ("sqlserver/northwind-torn-2008r2.mdf", 0, 405),
            ("sqlserver/pubs-checksum-2008.mdf", 224, 0),
            ("sqlserver/nerddinner-stray-2008r2.mdf", 185, 0),
        ];
        for (name, with_checksum, with_torn_bits) in expected {
            let Some(file) = fixtures::read(name) else { return };
            let mut seen = (0, 0);
            for (number, page) in (0_u32..).zip(file.chunks_exact(PAGE_BYTES)) {
                if page[0] != 1 || u32::from_le_bytes(field(page, PAGE_NUMBER)) != number {
                    continue;
                }
                assert!(is_taken(page, number), "{name}, page {number}");
                let flags = u16::from_le_bytes(field(page, FLAGS));
                seen.0 += u32::from(flags & HAS_CHECKSUM != 0);
                seen.1 += u32::from(flags & HAS_TORN_BITS != 0);
            }
            assert_eq!(seen, (with_checksum, with_torn_bits), "{name}");
        }
    }
}

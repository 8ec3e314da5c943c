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
//! CHECKSUM: 16 sectors of 128 little-endian words, the field itself taken as
//! zero; for each sector `sum = rotate_left(sum, 1) ^ (XOR of its words)`.
//!
//! TORN: the pattern (1 or 2, alternating from write to write) lies in the lowest
//! bits of the field, and in the last byte of each sector but the first; the two
//! bits that it displaces there lie in the field, at twice the sector's number.
//!
//! Source: pages of real servers, 2005 to 2022, which the tests read.

use super::{Protection, field, put};

const PAGE_BYTES: usize = 8192;
const SECTOR_BYTES: usize = 512;
const FLAGS: usize = 4;
const PAGE_NUMBER: usize = 32;
const FILE_NUMBER: usize = 36;
const LSN: usize = 40;
const SUM: usize = 60;
const HEADER_BYTES: usize = 96;
const HAS_CHECKSUM: u16 = 0x200;
const HAS_TORN_BITS: u16 = 0x100;
const PAIR: u32 = 0b11;
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
        write_torn_bits(page, 1 + generation % 2);
    },
    sum_fits,
    is_taken,
};

pub(super) const CHECKSUM: Protection = Protection {
    name: "checksum",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        write_header(page, number, generation, HAS_CHECKSUM);
        let sum = checksum(page);
        put(page, SUM, &sum.to_le_bytes());
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
    let stored = u32::from_le_bytes(field(page, SUM));
    if flags & HAS_CHECKSUM != 0 {
        stored == checksum(page)
    } else if flags & HAS_TORN_BITS != 0 {
        torn_bits_agree(page, stored)
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

fn checksum(page: &[u8]) -> u32 {
    let stored = u32::from_le_bytes(field(page, SUM));
    let mut sum = 0_u32;
    for (index, sector) in page.chunks_exact(SECTOR_BYTES).enumerate() {
        let words = sector.as_chunks::<4>().0.iter();
        let mut folded = words.fold(0, |folded, word| folded ^ u32::from_le_bytes(*word));
        if index == 0 {
            folded ^= stored;
        }
        sum = sum.rotate_left(1) ^ folded;
    }
    sum
}

fn write_torn_bits(page: &mut [u8], pattern: u32) {
    let mut bits = pattern & PAIR;
    let mut shift = 0;
    for last in last_bytes(page) {
        shift += 2;
        bits |= (u32::from(*last) & PAIR) << shift;
        *last = *last & !0b11 | (pattern & PAIR).to_le_bytes()[0];
    }
    put(page, SUM, &bits.to_le_bytes());
}

/// The last byte of each sector but the first.
fn last_bytes(page: &mut [u8]) -> impl Iterator<Item = &mut u8> {
    page.chunks_exact_mut(SECTOR_BYTES).skip(1).filter_map(<[u8]>::last_mut)
}

fn torn_bits_agree(page: &[u8], stored: u32) -> bool {
    let pattern = stored & PAIR;
    let mut last = page.chunks_exact(SECTOR_BYTES).skip(1).filter_map(<[u8]>::last);
    matches!(pattern, 1 | 2) && last.all(|byte| u32::from(*byte) & PAIR == pattern)
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

    /// A real page of a server, written again by our own hand, is the same.
    #[test]
    fn our_own_torn_bits_are_those_of_a_server() {
        let Some(file) = fixtures::read("sqlserver/northwind-torn-2008r2.mdf") else { return };
        let mut compared = 0;
        for page in file.chunks_exact(PAGE_BYTES) {
            if page[0] != 1 || u16::from_le_bytes(field(page, FLAGS)) & HAS_TORN_BITS == 0 {
                continue;
            }
            let stored = u32::from_le_bytes(field(page, SUM));
            let mut plain = page.to_vec();
            for (index, last) in last_bytes(&mut plain).enumerate() {
                let bits = stored >> (2 * (index + 1)) & PAIR;
                *last = *last & !0b11 | bits.to_le_bytes()[0];
            }
            write_torn_bits(&mut plain, stored & PAIR);
            assert_eq!(plain, page);
            compared += 1;
        }
        assert_eq!(compared, 405);
    }
}

//! PostgreSQL's data checksums: 16 bits, with the block number mixed in. The
//! library's own kernels compute them.
//!
//! What a server looks at beside the sum when it reads a page: one whose
//! `pd_upper` is 0 counts as new, and must then be all zero; flags, bounds and
//! alignment of any other must be sane.

use pagewarden::formats::postgres::checksum::{checksum, hash_pages};

use super::{Protection, field, is_zero, put};

const PAGE_BYTES: usize = 8192;
const PAGE_LIMIT: u16 = 8192;
const LSN_LOW: usize = 4;
const CHECKSUM_FIELD: usize = 8;
const FLAGS: usize = 10;
const LOWER: usize = 12;
const UPPER: usize = 14;
const SPECIAL: usize = 16;
const VALID_FLAGS: u16 = 0x0007;
const ALIGNMENT: u16 = 8;

pub(super) const CHECKSUM: Protection = Protection {
    name: "postgres",
    page_bytes: PAGE_BYTES,
    write: |page, number, generation| {
        put(page, LSN_LOW, &generation.to_le_bytes());
        if !has_sane_header(page) {
            // Bytes that are no page of PostgreSQL get a header of one.
            put(page, FLAGS, &[0, 0]);
            put(page, LOWER, &24_u16.to_le_bytes());
            put(page, UPPER, &64_u16.to_le_bytes());
            put(page, SPECIAL, &PAGE_LIMIT.to_le_bytes());
        }
        let sum = sum_of(page, number);
        put(page, CHECKSUM_FIELD, &sum.to_le_bytes());
    },
    sum_fits: |page, number| is_zero(page) || sum_matches(page, number),
    is_taken: |page, number| is_zero(page) || (has_sane_header(page) && sum_matches(page, number)),
};

fn sum_matches(page: &[u8], number: u32) -> bool {
    u16::from_le_bytes(field(page, CHECKSUM_FIELD)) == sum_of(page, number)
}

fn sum_of(page: &[u8], number: u32) -> u16 {
    let mut hash = [0];
    hash_pages(page, PAGE_BYTES, &mut hash);
    let [hash] = hash;
    checksum(hash, number)
}

fn has_sane_header(page: &[u8]) -> bool {
    let at = |offset| u16::from_le_bytes(field(page, offset));
    at(UPPER) != 0
        && at(FLAGS) & !VALID_FLAGS == 0
        && at(LOWER) <= at(UPPER)
        && at(UPPER) <= at(SPECIAL)
        && at(SPECIAL) <= PAGE_LIMIT
        && at(SPECIAL).is_multiple_of(ALIGNMENT)
}

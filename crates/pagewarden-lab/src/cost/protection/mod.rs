//! What engines put on a page, and what they notice by it: plain reference
//! functions for simulations.
//!
//! Each protection makes a page out of any bytes, by the published algorithm,
//! and answers two questions about a page that was read: does its own sum (or
//! its marks) fit, and would the engine take it for the page it asked for? The
//! second also looks at what else the engine compares: the page's number, its
//! header.

mod innodb;
mod postgres;
mod sqlite;
mod sqlserver;

/// Makes any bytes the page `number`, as written for the `generation`th time.
pub type Write = fn(page: &mut [u8], number: u32, generation: u32);

/// A way of protecting pages.
#[derive(Debug)]
pub struct Protection {
    /// As the arm of an experiment is named.
    pub name: &'static str,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Makes any bytes the page `number`, as written for the `generation`th time.
    pub write: Write,
    /// True if the sum or the marks of the page fit.
    pub sum_fits: fn(page: &[u8], number: u32) -> bool,
    /// True if the engine takes it for page `number`.
    pub is_taken: fn(page: &[u8], number: u32) -> bool,
}

/// All of them, weakest first within an engine.
pub const PROTECTIONS: &[Protection] = &[
    sqlserver::NONE,
    sqlserver::TORN,
    sqlserver::CHECKSUM,
    postgres::CHECKSUM,
    innodb::CRC32,
    innodb::FULL_CRC32,
    sqlite::CKSUMVFS,
    sqlite::MARKER_NONE,
    sqlite::MARKER_TORN,
    sqlite::MARKER_CHECKSUM,
];

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// The bytes of a field, or zeroes past the end of the page.
fn field<const BYTES: usize>(page: &[u8], offset: usize) -> [u8; BYTES] {
    page.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; BYTES])
}

fn put(page: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(place) = page.get_mut(offset..).and_then(|rest| rest.get_mut(..value.len())) {
        place.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    fn written(protection: &Protection, seed: u64, generation: u32) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut page = vec![0; protection.page_bytes];
        page.fill_with(|| random.bits().to_le_bytes()[0]);
        (protection.write)(&mut page, 57, generation);
        page
    }

    #[test]
    fn what_was_written_is_taken_for_what_it_is_and_for_nothing_else() {
        for protection in PROTECTIONS {
            for (seed, generation) in [(1, 1), (2, 2), (3, 3)] {
                let page = written(protection, seed, generation);
                assert!((protection.sum_fits)(&page, 57), "{}", protection.name);
                assert!((protection.is_taken)(&page, 57), "{}", protection.name);
                // By its sum or by its number, except SQLite's own, which has none.
                let elsewhere = (protection.is_taken)(&page, 58);
                assert_eq!(elsewhere, protection.name == "cksumvfs", "{}", protection.name);
            }
        }
    }

    #[test]
    fn one_flipped_bit_in_the_body_is_noticed_by_sums_and_by_nothing_else() {
        for protection in PROTECTIONS {
            let mut page = written(protection, 4, 1);
            page[protection.page_bytes / 2 + 1] ^= 0x20;
            let expected = matches!(protection.name, "none" | "torn" | "marker-none");
            assert_eq!((protection.sum_fits)(&page, 57), expected, "{}", protection.name);
        }
    }

    #[test]
    fn zeroed_page_passes_where_engines_take_it_for_new() {
        let passes: Vec<&str> = PROTECTIONS
            .iter()
            .filter(|protection| (protection.is_taken)(&vec![0; protection.page_bytes], 57))
            .map(|protection| protection.name)
            .collect();
        assert_eq!(passes, ["postgres", "crc32", "full_crc32", "cksumvfs"]);
    }
}

//! The map of extents that changed since the last full backup (DIFF map).
//!
//! | page | bytes | |
//! |---|---|---|
//! | 6, then every 511,232 pages | 194 to 8182 | a bit an extent, lowest first; 1: changed since the differential base |
//!
//! Which backup that is stands in the file header, column 21 (its set's id) and 20 (the LSN of its
//! checkpoint). Measured on a full backup, a differential one on it and a full one after both: a full backup
//! clears the bits *while it begins*, and the file header names it *once it has ended*. So the data
//! in a full backup has a map that counts from that backup, and a header that names the one before.

use crate::checksum::{PAGE_BYTES, Page};
use crate::page::header::{Header, Tested, kinds, tested};
use crate::page::system::{has_its_record, with_own_bits};
use pagewarden_core::verdict::Protection;

/// Pages in an extent.
pub const EXTENT_PAGES: u64 = 8;
/// Pages that one map tells of.
pub const INTERVAL_PAGES: u64 = 511_232;
/// Where the bits begin in the page.
pub const BITS_AT: usize = 194;
/// Bytes of bits.
pub const BITS_BYTES: usize = 7988;
const PLACE_IN_INTERVAL: u64 = 6;

const _: () = assert!(BITS_BYTES as u64 * 8 * EXTENT_PAGES == INTERVAL_PAGES);
const _: () = assert!(BITS_AT + BITS_BYTES <= PAGE_BYTES);

/// The map of one interval of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct DiffMap {
    bits: Vec<u8>,
}

impl std::fmt::Debug for DiffMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiffMap").finish_non_exhaustive()
    }
}

/// The number of the page that holds the map of `page`'s extent.
#[must_use]
pub fn map_page_of(page: u64) -> u64 {
    (page / INTERVAL_PAGES).saturating_mul(INTERVAL_PAGES).saturating_add(PLACE_IN_INTERVAL)
}

impl DiffMap {
    /// Reads a map whose checksum fits; `None` for any other page, also for one that carries torn bits or
    /// nothing: those do not show that its bits are sound.
    #[must_use]
    pub fn parse(page: &Page, file: u16, number: u64) -> Option<Self> {
        let header = Header::parse(page);
        let is_map = header.kind == kinds::DIFF_MAP
            && header.is_of(file, number)
            && number == map_page_of(number)
            && header.protection() == Some(Protection::Checksum)
            && tested(page, &header) == Tested::Sound
            && has_its_record(page, &header);
        let own = with_own_bits(page);
        let bits = own.get(BITS_AT..)?.get(..BITS_BYTES)?;
        is_map.then(|| Self { bits: bits.to_vec() })
    }

    /// True if the extent of this page, which must be in the map's interval, has changed. What the map
    /// does not tell counts as changed.
    #[must_use]
    pub fn is_changed(&self, page: u64) -> bool {
        let extent = page % INTERVAL_PAGES / EXTENT_PAGES;
        let byte = usize::try_from(extent / 8).ok().and_then(|at| self.bits.get(at));
        byte.is_none_or(|byte| byte >> (extent % 8) & 1 != 0)
    }
}

/// True for pages that a server changes without setting a bit for them, or that hold the maps: file
/// header, boot page, free space, and the first extent of each interval.
#[must_use]
pub fn is_beyond_the_map(file: u16, page: u64) -> bool {
    let in_interval = page % INTERVAL_PAGES;
    in_interval < EXTENT_PAGES
        || (file, page) == (1, crate::page::system::BOOT_PAGE)
        || page.is_multiple_of(crate::page::system::PFS_PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_of_a_page_is_in_the_first_extent_of_its_interval() {
        assert_eq!(map_page_of(0), 6);
        assert_eq!(map_page_of(511_231), 6);
        assert_eq!(map_page_of(511_232), 511_238);
    }

    #[test]
    fn bits_are_counted_from_the_lowest() {
        let mut bits = vec![0; BITS_BYTES];
        bits[1] = 0b100;
        let map = DiffMap { bits };
        for page in 80..88 {
            assert!(map.is_changed(page), "{page}");
        }
        assert!(!map.is_changed(79) && !map.is_changed(88));
        assert!(map.is_changed(80 + INTERVAL_PAGES));
    }
}

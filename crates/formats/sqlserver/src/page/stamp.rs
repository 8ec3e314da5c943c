//! Giving a page another protection than it has.
//!
//! | to | what is written |
//! |---|---|
//! | checksum | flag 0x200, and the sum of the content |
//! | torn bits | flag 0x100, pattern 1 over the last two bits of sectors 1 to 15, which move to the field |
//! | none | neither flag, and 0 in the field |
//!
//! A page that comes with torn bits gets its own bits back first. The checksum is a function of the
//! content, so that a page that goes elsewhere and comes back to it is the same, byte for byte. Of torn
//! bits the pattern is lost on the way: an engine alternates it from write to write, and begins with 1.
//!
//! An engine that takes the flag off leaves in the field what was there. Here it is made 0, as it is on
//! pages that never had any (17 of 17 on five real files): an old sum that still fits looks like one
//! whose flag was lost.

use crate::checksum::{Page, clear_field, restore_torn_bits, stamp_checksum, stamp_torn_bits};
use crate::page::header::{FLAGS_AT, HAS_CHECKSUM, HAS_TORN_BITS, Header};
use pagewarden_core::verdict::Protection;

/// What the first write with torn bits leaves in each sector.
const FIRST_PATTERN: u8 = 1;

/// Gives a page that is sound this protection; true if it did not have it. One that has it stays as it
/// is.
pub fn stamp(page: &mut Page, wanted: Protection) -> bool {
    let header = Header::parse(page);
    if header.protection() == Some(wanted) {
        return false;
    }
    if header.flags & HAS_TORN_BITS != 0 {
        restore_torn_bits(page);
    }
    restamp(page, wanted);
    true
}

/// Gives a page with its own bits in place this protection, whatever its flags say.
pub(super) fn restamp(page: &mut Page, wanted: Protection) {
    let flag = match wanted {
        Protection::Checksum => HAS_CHECKSUM,
        Protection::Torn => HAS_TORN_BITS,
        Protection::None => 0,
    };
    let flags = Header::parse(page).flags & !(HAS_CHECKSUM | HAS_TORN_BITS) | flag;
    if let Some(field) = page.get_mut(FLAGS_AT..).and_then(<[u8]>::first_chunk_mut) {
        *field = flags.to_le_bytes();
    }
    match wanted {
        Protection::Checksum => stamp_checksum(page),
        Protection::Torn => stamp_torn_bits(page, FIRST_PATTERN),
        Protection::None => clear_field(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{FIELD_AT, PAGE_BYTES};
    use crate::page::header::{Tested, tested};

    const MODES: [Protection; 3] = [Protection::Checksum, Protection::Torn, Protection::None];

    fn noise(seed: u64) -> Page {
        let mut state = seed;
        let mut page = [0; PAGE_BYTES];
        for byte in &mut page {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = state.to_be_bytes()[0];
        }
        page
    }

    /// All that a protection does not touch.
    fn content(page: &Page) -> Page {
        let mut page = *page;
        stamp(&mut page, Protection::None);
        page
    }

    #[test]
    fn page_keeps_its_content_through_all_modes() {
        for seed in 0..20 {
            let mut page = noise(seed);
            restamp(&mut page, Protection::None);
            let plain = page;
            for (from, to) in MODES.into_iter().flat_map(|from| MODES.map(|to| (from, to))) {
                stamp(&mut page, from);
                assert_eq!(content(&page), plain, "{from:?}");
                let before = page;
                assert_eq!(stamp(&mut page, to), from != to, "{from:?} to {to:?}");
                assert_eq!(from == to, page == before, "{from:?} to {to:?}");
                assert_eq!(content(&page), plain, "{from:?} to {to:?}");
                let header = Header::parse(&page);
                assert_eq!(header.protection(), Some(to));
                let is_tested = to != Protection::None;
                let expected = if is_tested { Tested::Sound } else { Tested::Untested };
                assert_eq!(tested(&page, &header), expected);
            }
        }
    }

    /// Neither flag may be left, nor the sum of before: it would look like one whose flag was lost.
    #[test]
    fn page_without_protection_says_nothing_of_what_it_had() {
        let mut page = noise(1);
        restamp(&mut page, Protection::Checksum);
        assert!(stamp(&mut page, Protection::None));
        assert_eq!(page[FIELD_AT..FIELD_AT + 4], [0; 4]);
        assert_eq!(page[FLAGS_AT + 1] & 3, 0);
    }

    /// Other flags mean something else, and are not ours.
    #[test]
    fn other_flags_stay() {
        for mode in MODES {
            let mut page = noise(2);
            page[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&0xC02E_u16.to_le_bytes());
            restamp(&mut page, mode);
            assert_eq!(Header::parse(&page).flags & !0x300, 0xC02E);
        }
    }
}

//! The system tablespace: which of its pages are never zero, where its doublewrite area is, and
//! where a further file of it begins.
//!
//! | page | what | zero |
//! | --- | --- | --- |
//! | 0 | header and first extents | never |
//! | 1, 2 | bitmap of the change buffer, segments | never |
//! | 3 | header of the change buffer | never |
//! | 4 | root of the change buffer | never while it is in use by the extent map |
//! | 5 | transaction system; where the doublewrite area is | never |
//! | 6 | first rollback segment | never |
//! | 7 | header of the dictionary | never |
//! | 8 to 12 | roots of the dictionary's tables, as page 7 names them | never while in use; MySQL 8.0 and later keep the dictionary in `mysql.ibd` |
//! | any | rollback segments, as page 5 names them | never while in use |
//! | any | root of what MySQL 8.0 and later tell of their tables (SDI): page 0 names it behind the key information, 4 bytes of version 1 and 4 of the page | never while in use |
//!
//! Sources: `fsp0types.h`, `dict0boot.h`, `trx0sys.h`; new directories of MySQL 5.5 and 9.7, and of
//! MariaDB 10.1 to 11.8.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io;
use std::path::Path;

use crate::files::doublewrite::{Extents, TRANSACTION_PAGE, extent_pages};
use crate::files::links::single_pages;
use crate::files::tablespace::geometry::{Geometry, HEAD_BYTES};
use crate::files::tablespace::{Context, Member, SYSTEM_SPACE, open_file};
use crate::page::allocation::AllocationMap;
use crate::page::encryption::info_offset;
use crate::page::fields::{BODY, FSP_FLAGS, PAGE_TYPE, read_u16, read_u32};
use crate::page::layout::Layout;
use pagewarden_core::source::file::read_fully;

/// Header of the dictionary.
pub(super) const DICTIONARY_PAGE: u64 = 7;
const ALWAYS: [u64; 6] = [1, 2, 3, 5, 6, DICTIONARY_PAGE];
const CHANGE_BUFFER_ROOT: u64 = 4;
const DICTIONARY_ROOTS: std::ops::RangeInclusive<u64> = 8..=12;
/// Where the header of the dictionary names the roots of its tables.
const ROOTS: usize = BODY + 32;
const ROOT_BYTES: usize = 4;
const ROOTS_COUNT: usize = 5;

/// What the fixed pages of a system tablespace say of it.
pub(super) struct Facts<'a> {
    /// The pages in use; `None` where page 0 fails.
    pub(super) in_use: Option<&'a AllocationMap>,
    /// Page 5, if it passes its test.
    pub(super) transactions: Option<&'a [u8]>,
    /// Page 7, if it passes its test.
    pub(super) dictionary: Option<&'a [u8]>,
    /// It is one of MySQL 8.0 or later, whose dictionary is elsewhere.
    pub(super) has_dictionary_elsewhere: bool,
    /// The root of its SDI.
    pub(super) sdi_root: Option<u64>,
}

/// The root of the SDI, by a page 0 that passes its test.
pub(super) fn sdi_root(layout: &Layout, first: &[u8]) -> Option<u64> {
    const FLAG: u32 = 1 << 14;
    const KEY_INFORMATION_BYTES: usize = 115;
    const VERSION: u32 = 1;
    let at = info_offset(layout)?.checked_add(KEY_INFORMATION_BYTES)?;
    let sdi = first.get(at..)?;
    let is_there = read_u32(first, FSP_FLAGS) & FLAG != 0 && read_u32(sdi, 0) == VERSION;
    is_there.then(|| u64::from(read_u32(sdi, 4)))
}

/// The pages that are never zero, but for page 0.
pub(super) fn fixed_pages(facts: &Facts<'_>) -> Vec<u64> {
    let is_in_use = |page: &u64| facts.in_use.is_none_or(|in_use| in_use.contains(*page));
    let is_root = |page: &u64| match facts.dictionary {
        Some(header) => (0..ROOTS_COUNT).any(|index| {
            let at = ROOTS.saturating_add(index.saturating_mul(ROOT_BYTES));
            u64::from(read_u32(header, at)) == *page
        }),
        None => true,
    };
    let roots = DICTIONARY_ROOTS.filter(|page| !facts.has_dictionary_elsewhere && is_root(page));
    ALWAYS
        .into_iter()
        .chain(
            std::iter::once(CHANGE_BUFFER_ROOT)
                .chain(roots)
                .chain(facts.sdi_root)
                .chain(facts.transactions.into_iter().flat_map(rollback_segments))
                .filter(is_in_use),
        )
        .collect()
}

/// The headers of the rollback segments that lie in the system tablespace, by page 5.
fn rollback_segments(page: &[u8]) -> impl Iterator<Item = u64> {
    const SEGMENTS: usize = BODY + 18;
    const SEGMENT_BYTES: usize = 8;
    const COUNT: usize = 128;
    const NONE: u32 = u32::MAX;
    let slots = page.get(SEGMENTS..).unwrap_or_default().chunks_exact(SEGMENT_BYTES).take(COUNT);
    let slots = slots.map(|slot| (read_u32(slot, 0), read_u32(slot, 4)));
    let own = slots.filter(|(space, page)| *space == SYSTEM_SPACE && *page != NONE && *page > 7);
    own.map(|(_, page)| u64::from(page))
}

/// The pages of the doublewrite area's segment: its extents, and single pages, which servers allocate
/// to have whole extents behind them, and never write. `None` where that cannot be read.
///
/// | offset on page 5 behind the last 200 bytes | bytes | what |
/// |---|---|---|
/// | 0 | 4 | tablespace of the segment's entry |
/// | 4 | 4 | its page |
/// | 8 | 2 | its offset there |
pub(super) fn pages_of_doublewrite(
    layout: &Layout,
    read: impl Fn(u64) -> Option<Vec<u8>>,
) -> Option<Vec<u64>> {
    const BEHIND: usize = 200;
    const TYPE_SEGMENTS: u16 = 3;
    let page = read(TRANSACTION_PAGE)?;
    let Area::At(extents) = Area::find(&page, true) else { return Some(Vec::new()) };
    let header = page.get(page.len().checked_sub(BEHIND)?..)?;
    let (space, number) = (read_u32(header, 0), u64::from(read_u32(header, 4)));
    let at = usize::from(read_u16(header, 8));
    let entries = read(number).filter(|page| read_u16(page, PAGE_TYPE) == TYPE_SEGMENTS)?;
    let single = single_pages(layout, entries.get(at..)?).filter(|_| space == SYSTEM_SPACE)?;
    let those = extents.ranges().into_iter().flatten().chain(single.map(u64::from));
    Some(those.collect())
}

/// Where the doublewrite area is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// By page 5.
    At(Extents),
    /// Page 5 fails: where servers put it when they make the file.
    Perhaps(Extents),
    /// There is none.
    None,
}

impl Area {
    /// By page 5, which passed its test or not.
    pub(crate) fn find(page: &[u8], is_sound: bool) -> Self {
        match Extents::parse(page) {
            Some(extents) if is_sound || Extents::parse_second(page) == Some(extents) => {
                Self::At(extents)
            }
            None if is_sound => Self::None,
            _ => Self::Perhaps(Extents::usual(extent_pages(page.len()))),
        }
    }

    /// By a page 5 whose sum was not tested: it counts as sound if it says the same twice.
    pub(crate) fn of_untested(page: &[u8]) -> Self {
        let says_so_twice = Extents::parse(page) == Extents::parse_second(page)
            && page.iter().any(|byte| *byte != 0);
        Self::find(page, says_so_twice)
    }

    pub(crate) fn extents(self) -> Option<Extents> {
        match self {
            Self::At(extents) | Self::Perhaps(extents) => Some(extents),
            Self::None => None,
        }
    }
}

/// What the files before `ibdata2` and later ones say of it, if they lie beside it.
pub(crate) fn member_beside(path: &Path, number: u32) -> Option<Member> {
    let layout = {
        let first = path.with_file_name("ibdata1");
        let opened = open_file(&first, Context::alone("ibdata1".to_owned())).ok()?;
        opened.geometry.first_is_sound.then_some(opened.geometry.layout)?
    };
    let page_bytes = u64::try_from(layout.page_size).ok()?;
    let mut first_page = 0_u64;
    for before in 1..number {
        let bytes = path.with_file_name(format!("ibdata{before}")).metadata().ok()?.len();
        first_page = first_page.checked_add(bytes.checked_div(page_bytes)?)?;
    }
    Some(Member { layout, space_id: SYSTEM_SPACE, first_page, in_use: None })
}

/// The layout of a further file whose first pages were never written, by those that were. One that
/// is blank as a whole has no page that says anything.
///
/// # Errors
/// What the system says.
pub(super) fn geometry_of_further(file: &File, page_default: Layout) -> io::Result<Geometry> {
    let mut chunk = vec![0; HEAD_BYTES];
    let mut offset = 0_u64;
    loop {
        let count = read_fully(file, &mut chunk, offset)?;
        let bytes = chunk.get(..count).unwrap_or_default();
        if bytes.iter().any(|byte| *byte != 0)
            && let Some(found) = Geometry::find(bytes)
        {
            let page_bytes = u64::try_from(found.layout.page_size).unwrap_or(u64::MAX);
            let before = offset.checked_div(page_bytes).unwrap_or(0);
            if let Some(first_page) = found.first_page.checked_sub(before).filter(|it| *it > 0) {
                return Ok(Geometry { first_page, first_is_sound: false, ..found });
            }
        }
        if count < HEAD_BYTES {
            break;
        }
        offset = offset.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    // Whatever its number, it is not that of a first page.
    Ok(Geometry { layout: page_default, first_page: 1, ..Geometry::of_name_only() })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn fixed_pages_are_those_that_every_server_writes_and_the_roots_that_page_seven_names() {
        let mut in_use = AllocationMap::default();
        (0..13).for_each(|page| in_use.insert(page));
        let mut header = vec![0; 16_384];
        for (index, root) in [8_u32, 9, 10, 11, 99].into_iter().enumerate() {
            let at = ROOTS + index * ROOT_BYTES;
            header[at..at + ROOT_BYTES].copy_from_slice(&root.to_be_bytes());
        }
        let mut facts = Facts {
            in_use: Some(&in_use),
            transactions: None,
            dictionary: Some(&header),
            has_dictionary_elsewhere: false,
            sdi_root: None,
        };
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4, 8, 9, 10, 11]);
        facts.dictionary = None;
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4, 8, 9, 10, 11, 12]);
        facts.has_dictionary_elsewhere = true;
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4]);
        facts.sdi_root = Some(8);
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4, 8]);
        facts.sdi_root = None;
        let mut transactions = vec![0xff; 16_384];
        // In the system tablespace and in use, in it and free, in another.
        for (slot, (space, page)) in [(0_u32, 12_u32), (0, 50), (3, 11)].into_iter().enumerate() {
            let at = BODY + 18 + slot * 8;
            transactions[at..at + 4].copy_from_slice(&space.to_be_bytes());
            transactions[at + 4..at + 8].copy_from_slice(&page.to_be_bytes());
        }
        facts.transactions = Some(&transactions);
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4, 12]);
        facts.transactions = None;
        facts.in_use = None;
        assert_eq!(fixed_pages(&facts), [1, 2, 3, 5, 6, 7, 4]);
        let none = AllocationMap::default();
        facts.in_use = Some(&none);
        assert_eq!(fixed_pages(&facts), ALWAYS);
    }

    #[test]
    fn root_of_the_sdi_is_where_page_zero_says() {
        let layout = Layout::of_flags(0x4800).unwrap();
        let mut first = vec![0; 16_384];
        assert_eq!(sdi_root(&layout, &first), None);
        first[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&0x4800_u32.to_be_bytes());
        assert_eq!(sdi_root(&layout, &first), None);
        first[10_505..10_513].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 8]);
        assert_eq!(sdi_root(&layout, &first), Some(8));
        assert_eq!(sdi_root(&layout, &first[..10_500]), None);
    }

    #[test]
    fn damaged_page_five_is_believed_only_where_it_says_the_same_twice() {
        let mut page = vec![0; 16_384];
        assert_eq!(Area::find(&page, true), Area::None);
        let usual = Extents::usual(64);
        assert_eq!(Area::find(&page, false), Area::Perhaps(usual));
        assert_eq!(usual.ranges(), [64..128, 128..192]);
        for (at, value) in [(10, 536_853_855_u32), (14, 256), (18, 320)] {
            let at = 16_384 - 200 + at;
            page[at..at + 4].copy_from_slice(&value.to_be_bytes());
            page[at + 12..at + 16].copy_from_slice(&value.to_be_bytes());
        }
        let Area::At(extents) = Area::find(&page, false) else { panic!() };
        assert_eq!(extents.ranges(), [256..320, 320..384]);
        assert_eq!(Area::of_untested(&page), Area::At(extents));
        assert_eq!(Area::of_untested(&[0; 16_384]), Area::Perhaps(usual));
        assert_eq!(Area::of_untested(&[1; 16_384]), Area::None);
        page[16_384 - 200 + 15] ^= 1;
        assert_eq!(Area::of_untested(&page), Area::Perhaps(usual));
        assert_eq!(Area::find(&page, false), Area::Perhaps(usual));
        assert!(matches!(Area::find(&page, true), Area::At(_)));
    }
}

//! How the pages of a tablespace file lie: what the flags on page 0 say, if page 0 passes its
//! test under them, else what most of the first pages say, so that a damaged page 0 does not hide
//! the rest.
//!
//! | page 0 | what is believed |
//! |---|---|
//! | passes under its flags, or under those of MariaDB 10.1.0 to 10.1.20 | its flags |
//! | fails | the page size and form under which most of the first pages pass, with numbers in a row |
//! | fails, and no other page has a sum that can be tested | its flags, if a server could have written them; else the page size under which most pages have their number |

use std::collections::HashMap;

use crate::checksum::fold::new_folds;
use crate::page::fields::{
    BODY, FSP_FLAGS, FSP_SPACE_ID, LSN, PAGE_NUMBER, PAGE_TYPE, SPACE_ID,
    TYPE_COMPRESSED_AND_ENCRYPTED, TYPE_ENCRYPTED, TYPE_ENCRYPTED_RTREE, TYPE_FSP_HDR,
    TYPE_PAGE_COMPRESSED_ENCRYPTED, read_u16, read_u32, read_u64,
};
use crate::page::layout::{Form, Layout};
use crate::page::{InnodbPages, Look};

/// Bytes at the beginning of a file that are asked: sixteen of the largest pages.
pub const HEAD_BYTES: usize = 1 << 20;
/// Of each page size and form this number of pages are asked.
const VOTERS: usize = 64;
/// Of the layout that was found.
const SAMPLE_PAGES: usize = 16;
const PAGE_SIZES: [usize; 7] = [16_384, 4096, 8192, 32_768, 65_536, 2048, 1024];

/// How the pages lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Sizes and fields.
    pub layout: Layout,
    /// The number of the first page.
    pub first_page: u64,
    /// The tablespace's number.
    pub space_id: Option<u32>,
    /// The first page passes its test.
    pub first_is_sound: bool,
    /// The flags were not believed.
    pub by_vote: bool,
    /// Most pages pass, but at other places than these: a file of copies.
    pub is_mixture: bool,
    /// Some of the pages asked pass at other places than these.
    pub has_strangers: bool,
}

impl Geometry {
    /// Finds it from the first bytes of a file.
    #[must_use]
    pub fn find(head: &[u8]) -> Option<Self> {
        let by_flags = layouts_of_flags(head);
        let sound = by_flags.iter().find(|layout| is_sound(layout, 0, page_at(head, layout, 0)));
        if let Some(layout) = sound {
            return Some(Self::of(head, *layout, 0, false));
        }
        if let Some((layout, first_page)) = vote(head, &by_flags) {
            let by_vote = !by_flags.contains(&layout);
            return Some(Self::of(head, anything_goes(layout), first_page, by_vote));
        }
        if let Some(layout) = by_flags.first().filter(|_| looks_like_first_page(head)) {
            return Some(Self::of(head, anything_goes(*layout), 0, false));
        }
        let page_size = size_by_numbers(head)?;
        Some(Self::of(head, Layout::guessed(Form::Old, page_size), 0, true))
    }

    /// For a file that has the name of a tablespace, and nothing else.
    #[must_use]
    pub fn of_name_only() -> Self {
        Self {
            layout: Layout::guessed(Form::Old, 16_384),
            first_page: 0,
            space_id: None,
            first_is_sound: false,
            by_vote: true,
            is_mixture: false,
            has_strangers: false,
        }
    }

    /// The rest, where the layout is known.
    #[must_use]
    pub fn of(head: &[u8], layout: Layout, first_page: u64, by_vote: bool) -> Self {
        let first = page_at(head, &layout, 0);
        let first_is_sound = is_sound(&layout, first_page, first);
        let sample = Sample::of(head, &layout, first_page);
        let own = (first_page == 0 && first_is_sound).then(|| read_u32(first, FSP_SPACE_ID));
        let alike = read_u32(first, FSP_SPACE_ID);
        let is_alike = first_page == 0 && alike == read_u32(first, SPACE_ID);
        // Pages of temporary tablespaces have no LSN.
        let is_written = read_u64(first, LSN) != 0 || read_u16(first, PAGE_TYPE) == TYPE_FSP_HDR;
        let unproven = (is_alike && is_written).then_some(alike);
        Self {
            layout,
            first_page,
            space_id: sample.most_common_space(own).or(own).or(unproven),
            first_is_sound,
            by_vote,
            is_mixture: sample.is_mixture(first_page),
            has_strangers: !sample.foreign.is_empty(),
        }
    }
}

/// Flags on a page that fails do not say which pages there may be.
fn anything_goes(layout: Layout) -> Layout {
    Layout {
        may_be_page_compressed: true,
        may_be_encrypted: layout.form != Form::FullCrc32,
        ..layout
    }
}

/// What the flags may mean, likeliest first.
fn layouts_of_flags(head: &[u8]) -> Vec<Layout> {
    if head.len() < BODY.saturating_add(FSP_FLAGS) {
        return Vec::new();
    }
    let flags = read_u32(head, FSP_FLAGS);
    [Layout::of_flags(flags), Layout::of_early_mariadb_flags(flags)].into_iter().flatten().collect()
}

fn page_at<'a>(head: &'a [u8], layout: &Layout, index: usize) -> &'a [u8] {
    head.chunks_exact(layout.page_size.max(1)).nth(index).unwrap_or_default()
}

fn is_sound(layout: &Layout, number: u64, page: &[u8]) -> bool {
    page.len() == layout.page_size
        && matches!(InnodbPages::new(*layout).look(number, page, None), Look::Sound(..))
}

/// Page 0 by its number, its type and its space id, which it has twice.
fn looks_like_first_page(head: &[u8]) -> bool {
    read_u32(head, PAGE_NUMBER) == 0
        && read_u16(head, PAGE_TYPE) == TYPE_FSP_HDR
        && read_u32(head, SPACE_ID) == read_u32(head, FSP_SPACE_ID)
}

/// The layout under which most pages pass with numbers in a row, and the number of the first.
fn vote(head: &[u8], by_flags: &[Layout]) -> Option<(Layout, u64)> {
    let guesses = PAGE_SIZES.iter().flat_map(|size| {
        let forms: &[Form] = if *size <= 16_384 {
            &[Form::Old, Form::FullCrc32, Form::Zip]
        } else {
            &[Form::Old, Form::FullCrc32]
        };
        let forms = if *size < 4096 { forms.get(2..).unwrap_or_default() } else { forms };
        forms.iter().map(|form| Layout::guessed(*form, *size))
    });
    let mut best: Option<(usize, Layout, u64)> = None;
    // Those of the flags first: with as many votes the first wins.
    for layout in by_flags.iter().copied().chain(guesses) {
        let Some((votes, first_page)) = votes(head, &layout) else { continue };
        if best.as_ref().is_none_or(|(most, ..)| votes > *most) {
            best = Some((votes, layout, first_page));
        }
    }
    best.map(|(_, layout, first_page)| (layout, first_page))
}

fn votes(head: &[u8], layout: &Layout) -> Option<(usize, u64)> {
    let mut by_first: HashMap<u64, usize> = HashMap::new();
    let page_size = layout.page_size.max(1);
    let asked = head.get(..page_size.saturating_mul(VOTERS)).unwrap_or(head);
    // One after the other they would take longer than all else that is done to open a file.
    let mut folds = Vec::new();
    if layout.form == Form::Old {
        new_folds(asked, page_size, &mut folds);
    }
    let format = InnodbPages::new(*layout);
    for (page, index) in asked.chunks_exact(page_size).zip(0_usize..) {
        let own = u64::from(read_u32(page, PAGE_NUMBER));
        let Some(first) = own.checked_sub(index as u64) else { continue };
        // A page that can only be tested with a key says nothing about the layout.
        if format.has_fitting_sum(page, folds.get(index).copied()) {
            let votes = by_first.entry(first).or_default();
            *votes = votes.saturating_add(1);
        }
    }
    by_first
        .into_iter()
        .map(|(first, votes)| (votes, first))
        .max_by_key(|(votes, first)| (*votes, std::cmp::Reverse(*first)))
}

/// The page size under which most pages that need a key have their number.
fn size_by_numbers(head: &[u8]) -> Option<usize> {
    const PAGES_MIN: usize = 3;
    let count = |size: &usize| {
        let pages = head.chunks_exact(*size).take(VOTERS).zip(0_u64..);
        let is_locked = |page: &[u8]| {
            matches!(
                read_u16(page, PAGE_TYPE),
                TYPE_ENCRYPTED
                    | TYPE_COMPRESSED_AND_ENCRYPTED
                    | TYPE_ENCRYPTED_RTREE
                    | TYPE_PAGE_COMPRESSED_ENCRYPTED
            )
        };
        pages
            .filter(|(page, at)| u64::from(read_u32(page, PAGE_NUMBER)) == *at && is_locked(page))
            .count()
    };
    let best = PAGE_SIZES.iter().max_by_key(|size| count(size))?;
    (count(best) >= PAGES_MIN).then_some(*best)
}

/// The first pages under a layout.
struct Sample {
    /// Space ids of pages that pass at their place, behind the first.
    placed: Vec<u32>,
    /// Space ids of pages that pass at another place.
    foreign: Vec<u32>,
}

impl Sample {
    fn of(head: &[u8], layout: &Layout, first_page: u64) -> Self {
        let format = InnodbPages::new(*layout);
        let mut sample = Self { placed: Vec::new(), foreign: Vec::new() };
        let pages = head.chunks_exact(layout.page_size.max(1)).take(SAMPLE_PAGES).zip(first_page..);
        for (page, number) in pages.skip(1) {
            let own = u64::from(read_u32(page, PAGE_NUMBER));
            let Some(space) = format.clear_space_id(page) else { continue };
            if own == number {
                sample.placed.push(space);
            } else {
                sample.foreign.push(space);
            }
        }
        sample
    }

    /// The space id of most pages: of more than one if page 0 says otherwise.
    fn most_common_space(&self, of_first: Option<u32>) -> Option<u32> {
        let count = |space: u32| self.placed.iter().filter(|other| **other == space).count();
        let space = self.placed.iter().copied().max_by_key(|space| count(*space))?;
        let agreed = self.placed.len() > 1 && count(space) > self.placed.len() / 2;
        (agreed || of_first.is_none()).then_some(space)
    }

    /// Most pages lie where others belong. A file that begins with page 0 may be damaged like
    /// that, but not by pages of several tablespaces.
    fn is_mixture(&self, first_page: u64) -> bool {
        let mut spaces = self.foreign.clone();
        spaces.sort_unstable();
        spaces.dedup();
        let most = self.foreign.len() > self.placed.len() && self.foreign.len() > 1;
        most && (first_page > 0 || spaces.len() > 1)
    }
}

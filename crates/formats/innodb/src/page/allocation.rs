//! Which pages are in use, by the extent descriptors of the tablespace.
//!
//! | offset in a descriptor | bytes | what |
//! |---|---|---|
//! | 0 | 8 | segment |
//! | 8 | 12 | list |
//! | 20 | 4 | state: 0 none, 1 free, 2 free fragment, 3 full fragment, 4 segment, 5 segment fragment |
//! | 24 | two bits a page | the low one: 1 is free |
//!
//! Descriptors begin at byte 150 of page 0 and of every page whose number is a multiple of
//! the page size. Pages from the free limit on were never initialised.
//!
//! Sources: MariaDB and MySQL `fsp0fsp.h`.

use super::fields::{EXTENT_DESCRIPTORS, FSP_FREE_LIMIT, read_u32};
use super::layout::Layout;

const STATE: usize = 20;
const BITMAP: usize = 24;
const STATE_FREE_FRAGMENT: u32 = 2;
const STATE_LAST: u32 = 5;
const BITS_PER_PAGE: usize = 2;
const WORD_PAGES: u64 = 64;
/// 32 MiB of memory: 4 TiB of pages of 16K.
const PAGES_MAX: u64 = 1 << 28;

/// The pages of a file that are known to be in use.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct AllocationMap {
    words: Vec<u64>,
    /// Pages that would not fit are not known to be in use.
    is_cut: bool,
}

impl AllocationMap {
    /// True if the page is in use.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        usize::try_from(page / WORD_PAGES)
            .ok()
            .and_then(|word| self.words.get(word))
            .is_some_and(|word| word >> (page % WORD_PAGES) & 1 == 1)
    }

    /// True if there were more pages than are kept.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many pages are known to be in use.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Adds a page.
    pub(crate) fn insert(&mut self, page: u64) {
        if page >= PAGES_MAX {
            self.is_cut = true;
            return;
        }
        let Ok(at) = usize::try_from(page / WORD_PAGES) else { return };
        if self.words.len() <= at {
            self.words.resize(at.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word |= 1 << (page % WORD_PAGES);
        }
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, page: u64) {
        let word = usize::try_from(page / WORD_PAGES).ok();
        if let Some(word) = word.and_then(|at| self.words.get_mut(at)) {
            *word &= !(1 << (page % WORD_PAGES));
        }
    }

    /// Adds what a page of descriptors says, which must be sound. `number` is its own,
    /// `free_limit` is page 0's, and of pages from `page_end` on nothing is kept.
    pub fn read(
        &mut self,
        layout: &Layout,
        number: u64,
        free_limit: u64,
        page_end: u64,
        page: &[u8],
    ) {
        let extent_pages = layout.extent_pages();
        let bitmap_bytes = extent_pages.saturating_mul(BITS_PER_PAGE).div_ceil(8);
        let length = BITMAP.saturating_add(bitmap_bytes);
        let extents = layout.page_size.checked_div(extent_pages).unwrap_or(0);
        let end = free_limit.min(page_end);
        let descriptors = page.get(EXTENT_DESCRIPTORS..).unwrap_or_default().chunks_exact(length);
        let firsts = (number..).step_by(extent_pages.max(1));
        for (descriptor, first) in descriptors.take(extents).zip(firsts) {
            if first >= end {
                break;
            }
            let state = read_u32(descriptor, STATE);
            if !(STATE_FREE_FRAGMENT..=STATE_LAST).contains(&state) {
                continue;
            }
            let bitmap = descriptor.get(BITMAP..).unwrap_or_default();
            let free = bitmap.iter().flat_map(|byte| [0, 2, 4, 6].map(|bit| byte >> bit & 1 == 1));
            for (is_free, page) in free.zip(first..end) {
                if !is_free {
                    self.insert(page);
                }
            }
        }
    }
}

/// Page 0's word on where pages begin that were never initialised.
#[must_use]
pub fn free_limit(first_page: &[u8]) -> u64 {
    u64::from(read_u32(first_page, FSP_FREE_LIMIT))
}

/// The numbers of the pages with descriptors, from `first` on.
pub fn descriptor_pages(
    layout: &Layout,
    first: u64,
    end: u64,
) -> impl Iterator<Item = u64> + use<> {
    let step = layout.page_size.max(1);
    let begin = first.next_multiple_of(u64::try_from(step).unwrap_or(u64::MAX));
    (begin..end).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_with(layout: &Layout, extents: &[(u32, u8)]) -> Vec<u8> {
        let bitmap = layout.extent_pages() / 4;
        let mut page = vec![0; EXTENT_DESCRIPTORS];
        for (state, byte) in extents {
            page.extend([0; STATE]);
            page.extend(state.to_be_bytes());
            page.extend(vec![*byte; bitmap]);
        }
        page.resize(layout.page_size, 0);
        page
    }

    #[test]
    fn only_pages_of_extents_in_use_are_known_to_be_in_use() {
        let layout = Layout::of_flags(0x21).unwrap();
        // In the second extent every second page is free.
        let page = page_with(&layout, &[(4, 0xaa), (2, 0xbb), (1, 0xff), (0, 0), (7, 0)]);
        let mut map = AllocationMap::default();
        map.read(&layout, 0, 320, 1000, &page);
        assert_eq!(map.count(), 64 + 32);
        let mut fewer = map.clone();
        [3, 66, 9999].into_iter().for_each(|page| fewer.remove(page));
        assert!(!fewer.contains(3) && fewer.contains(2));
        assert_eq!(fewer.count(), 64 + 31);
        assert!(map.contains(0) && map.contains(63));
        assert!(!map.contains(64) && map.contains(65));
        assert!(!map.contains(128) && !map.contains(192) && !map.contains(256));
    }

    #[test]
    fn nothing_is_known_past_the_free_limit_and_the_end() {
        let layout = Layout::of_flags(0x21).unwrap();
        let page = page_with(&layout, &[(4, 0xaa); 4]);
        for (limit, end) in [(70, 1000), (1000, 70)] {
            let mut map = AllocationMap::default();
            map.read(&layout, 0, limit, end, &page);
            assert_eq!(map.count(), 70);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let layout = Layout::of_flags(0x21).unwrap();
        let page = page_with(&layout, &[(4, 0xaa)]);
        let mut map = AllocationMap::default();
        map.read(&layout, PAGES_MAX - 32, u64::MAX, u64::MAX, &page);
        assert!(map.is_cut());
        assert_eq!(map.count(), 32);
    }

    #[test]
    fn pages_of_descriptors_repeat_every_page_size() {
        let zip = Layout::of_flags(0x23).unwrap();
        assert_eq!(descriptor_pages(&zip, 0, 3000).collect::<Vec<_>>(), [0, 1024, 2048]);
        let large = Layout::of_flags(0x21).unwrap();
        assert_eq!(descriptor_pages(&large, 1, 40_000).collect::<Vec<_>>(), [16_384, 32_768]);
    }
}

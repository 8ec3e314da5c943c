//! What of a file the page cache does not hold, read and written past it.
//!
//! A page that is in the page cache is changed there: whoever uses the database
//! next finds it where it was. The rest goes from the device to our memory and back,
//! so that it drives nothing else out of the cache. That also takes a tenth of the
//! processor time, for the system makes no room and no copies; docs/benchmarks.md
//! has the figures.
//!
//! The cache is asked once, when a file is opened. What changes in it later costs
//! time and no truth: direct reads see what is dirty in the cache, and direct writes
//! take out of it what they replace.

use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::source::buffer::ALIGNMENT;
use crate::source::residency::absent;
use crate::verify::Caching;

/// Shorter stretches are read through the cache: they are not worth a request of
/// their own.
const STRETCH_BYTES_MIN: u64 = 256 << 10;

/// The cold parts of a file, and the descriptor for them.
#[derive(Debug)]
pub(super) struct Cold {
    /// In order; whole pages, aligned as direct reads want them.
    stretches: Vec<Range<u64>>,
    /// Opened when it is first wanted; `None` where that is refused.
    direct: OnceLock<Option<File>>,
    /// Set when the system refused after all.
    refused: AtomicBool,
}

impl Cold {
    /// Asks what of the first `length` bytes of `file` is not in the page cache.
    pub(super) fn of(file: &File, length: u64, page_size: usize, caching: Caching) -> Self {
        let stretches = match caching {
            _ if !page_size.is_multiple_of(ALIGNMENT) => Vec::new(),
            Caching::Cached => Vec::new(),
            Caching::Direct => pages_in(0..length, page_size).into_iter().collect(),
            Caching::Auto => absent(file, length)
                .unwrap_or_default()
                .into_iter()
                .filter_map(|stretch| pages_in(stretch, page_size))
                .filter(|stretch| stretch.end - stretch.start >= STRETCH_BYTES_MIN)
                .collect(),
        };
        Self { stretches, direct: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// How to go on from `offset`: by the descriptor that goes past the cache, which
    /// `open` opens when it is first wanted, or by none; and how far.
    pub(super) fn way_from(
        &self,
        offset: u64,
        open: impl FnOnce() -> Option<File>,
    ) -> (Option<&File>, u64) {
        if self.refused.load(Ordering::Relaxed) {
            return (None, u64::MAX);
        }
        let next = self.stretches.partition_point(|stretch| stretch.end <= offset);
        match self.stretches.get(next) {
            None => (None, u64::MAX),
            Some(stretch) if offset < stretch.start => (None, stretch.start),
            Some(stretch) => match self.direct.get_or_init(open) {
                Some(direct) => (Some(direct), stretch.end),
                None => (None, u64::MAX),
            },
        }
    }

    /// To be called when the system refuses to go past the cache.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

/// The whole pages of a stretch; `None` if there are none.
fn pages_in(stretch: Range<u64>, page_size: usize) -> Option<Range<u64>> {
    let page = page_size as u64;
    let begin = stretch.start.checked_next_multiple_of(page)?;
    let end = stretch.end - stretch.end % page;
    (begin < end).then_some(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(stretches: &[Range<u64>]) -> Cold {
        Cold {
            stretches: stretches.to_vec(),
            direct: OnceLock::new(),
            refused: AtomicBool::new(false),
        }
    }

    #[test]
    fn each_part_is_gone_through_its_own_way() {
        let cold = cold(&[8192..32768, 65536..81920]);
        let at = |offset| {
            let (direct, end) = cold.way_from(offset, || tempfile::tempfile().ok());
            (direct.is_some(), end)
        };
        assert_eq!(at(0), (false, 8192));
        assert_eq!(at(8192), (true, 32768));
        assert_eq!(at(24576), (true, 32768));
        assert_eq!(at(32768), (false, 65536));
        assert_eq!(at(65536), (true, 81920));
        assert_eq!(at(81920), (false, u64::MAX));
        cold.refuse();
        assert_eq!(at(8192), (false, u64::MAX));
    }

    #[test]
    fn where_no_descriptor_is_to_be_had_all_goes_through_the_cache() {
        let cold = cold(&[0..8192, 65536..81920]);
        assert!(cold.way_from(0, || None).0.is_none());
        assert!(cold.way_from(0, || panic!("asked again")).0.is_none());
    }

    #[test]
    fn only_whole_pages_go_past_the_cache() {
        assert_eq!(pages_in(4096..40960, 8192), Some(8192..40960));
        assert_eq!(pages_in(0..20000, 8192), Some(0..16384));
        assert_eq!(pages_in(4096..12288, 8192), None);
        assert_eq!(pages_in(u64::MAX - 5..u64::MAX, 8192), None);
        let file = tempfile::tempfile().unwrap();
        let stretches = |page_size, caching| Cold::of(&file, 20000, page_size, caching).stretches;
        assert_eq!(stretches(8192, Caching::Direct).first(), Some(&(0..16384)));
        assert!(stretches(1024, Caching::Direct).is_empty());
        assert!(stretches(8192, Caching::Cached).is_empty());
    }
}

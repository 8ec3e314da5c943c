//! The pages of one SQLite file, read by their numbers and tested singly.

use std::fs::File;
use std::io;

use crate::checksum::{page_sum, stored_sum};
use crate::files::geometry::Geometry;
use crate::page::{FirstPage, SqlitePages, lock_byte_page};
use pagewarden_core::source::file::read_fully;
use pagewarden_core::verdict::PageNo;

/// See the module.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) geometry: Geometry,
}

impl Pages {
    pub(super) fn page_size(&self) -> usize {
        self.geometry.page_size
    }

    /// Where a page begins.
    pub(super) fn offset(&self, number: u32) -> u64 {
        u64::from(number).saturating_sub(1).saturating_mul(self.page_size() as u64)
    }

    /// A whole page; `None` behind the end of the file, and for the page that SQLite never writes.
    pub(super) fn read(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        if number == 0 || u64::from(number) == lock_byte_page(self.page_size()) {
            return Ok(None);
        }
        let mut page = vec![0; self.page_size()];
        let count = read_fully(&self.file, &mut page, self.offset(number))?;
        Ok((count == page.len()).then_some(page))
    }

    /// Whole pages.
    pub(super) fn count(&self) -> u32 {
        let pages = self.bytes.checked_div(self.page_size() as u64).unwrap_or(0);
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// What a page that is to be taken breaks, in words.
    pub(super) fn fault(&self, number: u32, page: &[u8]) -> Option<String> {
        let geometry = &self.geometry;
        let is_wrong = match geometry.markers {
            Some(markers) => !markers.pass(page, PageNo(u64::from(number))),
            None => geometry.has_sums && stored_sum(page) != page_sum(page),
        };
        if is_wrong {
            return Some("its own checksum does not match".to_owned());
        }
        if number != 1 {
            return None;
        }
        let format = SqlitePages {
            page_size: geometry.page_size,
            reserved_bytes: geometry.reserved_bytes,
            has_sums: geometry.has_sums,
            markers: geometry.markers,
            ..SqlitePages::default()
        };
        (format.judge_first(page) != FirstPage::Sound)
            .then(|| "its header is not one that SQLite writes".to_owned())
    }
}

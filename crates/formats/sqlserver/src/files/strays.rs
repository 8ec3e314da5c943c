//! Counts pages that were never written and hold something all the same.
//!
//! A file is made longer without being cleared where the server may do so (instant file
//! initialisation): such pages hold what lay on the disk before, of any owner. That is no
//! damage, but travels with every copy and backup of the file, and users may want to know.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::{PAGE_BYTES, is_zero};
use pagewarden_core::database::Step;
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{Note, PageNo, Standing};

/// See the module.
#[derive(Debug)]
pub(super) struct Strays {
    count: AtomicU64,
    first: AtomicU64,
    /// Pages from here on are not of the file.
    end: u64,
}

impl Strays {
    pub(super) fn new() -> Self {
        Self::up_to(None)
    }

    /// Counts pages of a file that has `pages` pages.
    pub(super) fn up_to(pages: Option<u64>) -> Self {
        let end = pages.unwrap_or(u64::MAX);
        Self { count: AtomicU64::new(0), first: AtomicU64::new(u64::MAX), end }
    }

    /// What is to be said of them, if there are any.
    pub(super) fn note(&self, file: &str) -> Option<Step> {
        let count = self.count.load(Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        let text = match count {
            0 => return None,
            1 => format!("page {first} was never written and holds foreign bytes"),
            _ => format!(
                "{count} pages were never written and hold foreign bytes, the first is page {first}"
            ),
        };
        let text = format!(
            "{text}: what lay on the disk before (instant file initialisation); it travels with \
             every copy of this file"
        );
        Some(Step::Note(Note { file: file.to_owned(), text }))
    }
}

impl Witness for Strays {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        for (PageNo(number), page, standing) in run.judged(PAGE_BYTES, standings) {
            let is_stray = standing == Some(Standing::Empty) && number < self.end;
            if is_stray && page.first_chunk().is_some_and(|page| !is_zero(page)) {
                self.count.fetch_add(1, Ordering::Relaxed);
                self.first.fetch_min(number, Ordering::Relaxed);
            }
        }
    }
}

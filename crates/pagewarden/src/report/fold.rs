//! Neighbouring pages with the same fault share one line.

use crate::verdict::{Finding, PageNo};

/// A finding, and how many pages in a row have the same fault.
#[derive(Debug, Clone)]
pub struct Folded {
    /// The finding of the first page.
    pub finding: Finding,
    /// How many pages: at least one.
    pub pages: u64,
}

impl Folded {
    /// One finding.
    #[must_use]
    pub fn one(finding: &Finding) -> Self {
        Self { finding: finding.clone(), pages: 1 }
    }

    /// True if `next` is the same fault on the next page.
    #[must_use]
    pub fn takes(&self, next: &Finding) -> bool {
        let (Some(first), Some(page)) = (self.finding.place.page, next.place.page) else {
            return false;
        };
        self.finding.place.file == next.place.file
            && self.finding.kind == next.kind
            && self.finding.severity == next.severity
            && first.plus(self.pages) == page
    }

    /// The number of the last page, where pages are meant.
    #[must_use]
    pub fn last(&self) -> Option<PageNo> {
        Some(self.finding.place.page?.plus(self.pages.saturating_sub(1)))
    }

    /// Stored and computed sums, where they are known and stand for all pages.
    #[must_use]
    pub fn sums(&self) -> Option<(&str, &str)> {
        let (stored, computed) = (self.finding.stored.as_ref()?, self.finding.computed.as_ref()?);
        (self.pages == 1).then_some((stored, computed))
    }
}

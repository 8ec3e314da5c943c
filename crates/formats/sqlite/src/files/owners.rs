//! Whose some pages are: asked before a walk along the structure, answered by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pagewarden_core::verdict::PageNo;

/// Pages that are asked for, and what the walk knows of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Owners(Arc<Mutex<BTreeMap<u64, Option<Arc<str>>>>>);

impl Owners {
    /// Asks for these pages.
    #[must_use]
    pub fn of(pages: &[PageNo]) -> Self {
        Self(Arc::new(Mutex::new(pages.iter().map(|page| (page.0, None)).collect())))
    }

    /// The walk came to a page of `object`; of the freelist or the pointer map where there is none.
    pub(super) fn see(&self, page: u32, object: Option<&Arc<str>>) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners.get_mut(&u64::from(page)) {
            *owner = object.cloned();
        }
    }

    /// The table or index of each page; `None` for one that holds no row and no entry.
    #[must_use]
    pub fn answers(&self) -> BTreeMap<u64, Option<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

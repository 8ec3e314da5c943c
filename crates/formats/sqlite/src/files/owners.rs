//! Whose some pages are: asked before a walk along the structure, answered by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pagewarden_core::verdict::PageNo;

/// What the walk knows of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its table or index; `None` where it holds no row and no entry.
    pub object: Option<Arc<str>>,
    /// It is part of the tree itself: no overflow page.
    pub is_in_tree: bool,
}

/// Pages that are asked for, and what the walk knows of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Owners(Arc<Mutex<BTreeMap<u64, Owner>>>);

impl Owners {
    /// Asks for these pages.
    #[must_use]
    pub fn of(pages: impl IntoIterator<Item = PageNo>) -> Self {
        let pages = pages.into_iter().map(|page| (page.0, Owner::default()));
        Self(Arc::new(Mutex::new(pages.collect())))
    }

    /// The walk came to a page of `object`; of the freelist or the pointer map where there is none.
    pub(super) fn see(&self, page: u32, object: Option<&Arc<str>>, is_in_tree: bool) {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = owners.get_mut(&u64::from(page)) {
            *owner = Owner { object: object.cloned(), is_in_tree };
        }
    }

    /// Whose each page is.
    #[must_use]
    pub fn answers(&self) -> BTreeMap<u64, Owner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

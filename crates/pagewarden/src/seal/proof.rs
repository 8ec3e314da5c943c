//! A seal as proof of the version of single pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::Sealed;
use crate::database::Epoch;
use crate::error::Error;
use crate::page::Fingerprint;
use crate::repair::SealedPages;

/// A seal whose sections are read when they are asked for.
#[derive(Debug)]
pub struct Proof {
    sealed: Sealed,
    sections: Mutex<BTreeMap<String, Arc<Vec<Fingerprint>>>>,
}

impl Proof {
    /// Opens a seal.
    ///
    /// # Errors
    /// As [`Sealed::open`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { sealed: Sealed::open(path)?, sections: Mutex::default() })
    }
}

impl SealedPages for Proof {
    fn name(&self) -> String {
        self.sealed.path().display().to_string()
    }

    fn epoch(&self) -> Option<&Epoch> {
        self.sealed.header.epoch.as_ref()
    }

    fn made(&self) -> u64 {
        self.sealed.header.made
    }

    fn fingerprint(&self, file: &str, page: u64) -> Result<Option<Fingerprint>, Error> {
        let Some(sealed) = self.sealed.files.get(file) else { return Ok(None) };
        let mut sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let section = match sections.get(file) {
            Some(section) => Arc::clone(section),
            None => {
                let section = Arc::new(self.sealed.pages(sealed)?);
                sections.insert(file.to_owned(), Arc::clone(&section));
                section
            }
        };
        let place = page.checked_sub(sealed.first_page.0);
        let place = place.and_then(|place| usize::try_from(place).ok());
        Ok(place.and_then(|place| section.get(place)).copied().filter(|one| one.hash != 0))
    }
}

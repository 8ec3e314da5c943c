//! In which part of which set a page lies: asked only when one fails.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::sentinel::{FILES, Files};
use super::shown_part;
use crate::files::backup::place::{Role, locate};
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::{Finding, StoredPlace};

/// As all builds that are distributed have it.
const SEGMENT_PAGES: u64 = 131_072;

/// See the module.
#[derive(Debug)]
pub(super) struct Origins {
    /// The folder of all backups.
    folder: StorePath,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The sets that were read, newest first.
    labels: Vec<String>,
    /// Pages in files of changed pages, by set and file.
    pages: HashMap<(String, String), Vec<u32>>,
    /// Lists of files, read again.
    files: HashMap<String, Option<Files>>,
}

impl Origins {
    /// Of sets in this folder.
    pub(super) fn new(folder: StorePath) -> Self {
        Self { folder, known: Mutex::default() }
    }

    /// One more set is read.
    pub(super) fn begin_level(&self, label: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.labels.push(label.to_owned());
    }

    /// A set has these pages of a file.
    pub(super) fn add_pages(&self, label: &str, name: &str, numbers: Vec<u32>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.pages.insert((label.to_owned(), name.to_owned()), numbers);
    }

    /// Puts the place of the stored bytes into a finding about a page.
    pub(super) fn tell(&self, finding: &mut Finding) {
        let name = &finding.place.file;
        let Some((_, Role::Relation(place))) = locate(name) else { return };
        let before = u64::from(place.file.segment).saturating_mul(SEGMENT_PAGES);
        let page = finding.place.page.and_then(|page| page.0.checked_sub(before));
        if let Some(stored_file) = self.part_with(name, page) {
            finding.origin = Some(Box::new(StoredPlace { stored_file, stored_offset: None }));
        }
    }

    fn part_with(&self, name: &str, page: Option<u64>) -> Option<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { labels, pages, files } = &mut *known;
        for label in labels.iter() {
            let read = || Files::read(&self.folder.join(label).join(FILES)).ok();
            let files = files.entry(label.clone()).or_insert_with(read).as_ref()?;
            let entry = files.files.get(name)?;
            let is_in_it = || {
                let numbers = pages.get(&(label.clone(), name.to_owned()))?;
                let page = u32::try_from(page?).ok()?;
                numbers.binary_search(&page).ok()
            };
            if entry.is_skipped || (entry.is_incremented && is_in_it().is_none()) {
                continue;
            }
            let mut parts = files.tar_file_sets.iter();
            let part = parts.find(|(_, names)| names.iter().any(|one| one == name));
            return part.map(|(part, _)| shown_part(label, part));
        }
        None
    }
}

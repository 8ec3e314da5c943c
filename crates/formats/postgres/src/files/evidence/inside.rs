//! Pages that fit their sums and that no server writes: rows of tables (`witness::rows`) and
//! entries of btree indexes (`witness::node`), each page by itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::files::evidence::blocks::{Watched, each_sound};
use crate::files::witness::kind::MadeFor;
use crate::files::witness::rows::{self, Limits};
use pagewarden_core::database::Step;
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{Kind, Standing};

/// Faulty pages of one file that are kept.
const FAULTS_MAX: usize = 1 << 14;

/// What was found on pages of one relation, by block.
#[derive(Debug)]
pub(in crate::files) struct Faults {
    own: Arc<Watched>,
    /// What these pages were counted as.
    counted: Standing,
    found: Mutex<Vec<(u64, String)>>,
}

impl Faults {
    pub(in crate::files) fn new(own: Arc<Watched>, counted: Standing) -> Self {
        Self { own, counted, found: Mutex::default() }
    }

    /// Something is wrong with this page, in words.
    pub(in crate::files) fn add(&self, block: u64, text: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < FAULTS_MAX {
            found.push((block, text));
        }
    }

    /// What comes of it, once every page was seen.
    pub(in crate::files) fn conclude(&self) -> Vec<Step> {
        let mut found =
            std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.sort();
        found.dedup_by_key(|(block, _)| *block);
        let step = |(block, text): (u64, String)| {
            Step::Overruled(self.own.finding(block, Kind::Structure, text), self.counted)
        };
        found.into_iter().map(step).collect()
    }
}

/// Of a fault that one page shows.
pub(in crate::files) fn by_itself(text: &str) -> String {
    format!("no server writes such a page: {text}")
}

/// Sees the pages of a table.
#[derive(Debug)]
pub(in crate::files) struct RowPages {
    pub(in crate::files) faults: Arc<Faults>,
    pub(in crate::files) limits: Limits,
    pub(in crate::files) page_size: usize,
}

impl Witness for RowPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        each_sound(run, standings, self.page_size, |block, page| {
            let Ok(number) = u32::try_from(block) else { return };
            if !MadeFor::Heap.fits(page) {
                return;
            }
            if let Some(text) = rows::fault(page, number, &self.limits) {
                self.faults.add(block, by_itself(&text));
            }
        });
    }
}

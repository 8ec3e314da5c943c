//! Pages that fit their sums and that no server writes: rows of tables (`witness::rows`) and
//! entries of btree indexes (`witness::node`), each page by itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::database::Step;
use crate::formats::postgres::files::evidence::blocks::{Watched, each_sound};
use crate::formats::postgres::files::witness::kind::MadeFor;
use crate::formats::postgres::files::witness::rows::{self, Limits};
use crate::page::standings::Standings;
use crate::page::{PageRun, Witness};
use crate::verdict::{Kind, Standing};

/// Faulty pages of one file that are kept.
const FAULTS_MAX: usize = 1 << 14;

/// What was found on pages of one relation, by block.
#[derive(Debug)]
pub(in crate::formats::postgres::files) struct Faults {
    own: Arc<Watched>,
    /// What these pages were counted as.
    counted: Standing,
    found: Mutex<Vec<(u64, String)>>,
}

impl Faults {
    pub(in crate::formats::postgres::files) fn new(own: Arc<Watched>, counted: Standing) -> Self {
        Self { own, counted, found: Mutex::default() }
    }

    /// Something is wrong with this page, in words.
    pub(in crate::formats::postgres::files) fn add(&self, block: u64, text: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < FAULTS_MAX {
            found.push((block, text));
        }
    }

    /// What comes of it, once every page was seen.
    pub(in crate::formats::postgres::files) fn conclude(&self) -> Vec<Step> {
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
pub(in crate::formats::postgres::files) fn by_itself(text: &str) -> String {
    format!("no server writes such a page: {text}")
}

/// Sees the pages of a table.
#[derive(Debug)]
pub(in crate::formats::postgres::files) struct RowPages {
    pub(in crate::formats::postgres::files) faults: Arc<Faults>,
    pub(in crate::formats::postgres::files) limits: Limits,
    pub(in crate::formats::postgres::files) page_size: usize,
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

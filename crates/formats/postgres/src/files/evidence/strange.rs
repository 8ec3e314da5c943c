//! Pages that stand in the file of a relation and were made for another kind of relation:
//! written to a wrong place. A page of another relation of the same kind is not detected.

use std::sync::{Arc, Mutex, PoisonError};

use crate::files::evidence::blocks::{Watched, each_sound};
use crate::files::witness::Method;
use crate::files::witness::kind::MadeFor;
use crate::files::witness::links;
use pagewarden_core::database::Step;
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{Kind, Standing};

/// Strange pages of one relation that are kept.
const STRANGE_MAX: usize = 1 << 16;

/// Sees the pages of a relation, and keeps those made for another kind.
#[derive(Debug)]
pub(in crate::files) struct StrangePages {
    own: Arc<Watched>,
    made_for: MadeFor,
    page_size: usize,
    /// What these pages were counted as.
    counted: Standing,
    strange: Mutex<Vec<u64>>,
    /// The magic number of the metapage, and that which it should be, if they differ.
    magic: Mutex<Option<(u32, u32)>>,
}

impl StrangePages {
    pub(in crate::files) fn new(
        own: Arc<Watched>,
        made_for: MadeFor,
        page_size: usize,
        counted: Standing,
    ) -> Self {
        let (strange, magic) = (Mutex::default(), Mutex::default());
        Self { own, made_for, page_size, counted, strange, magic }
    }

    /// What comes of it, once every page was seen.
    pub(in crate::files) fn conclude(&self) -> Vec<Step> {
        let mut strange =
            std::mem::take(&mut *self.strange.lock().unwrap_or_else(PoisonError::into_inner));
        strange.sort_unstable();
        let words = self.made_for.in_words();
        let step = |block: u64| {
            let detail = format!(
                "the page is sound by itself, and was made for another kind of relation: its special space is not that of {words}"
            );
            Step::Overruled(self.own.finding(block, Kind::Structure, detail), self.counted)
        };
        let magic = *self.magic.lock().unwrap_or_else(PoisonError::into_inner);
        let magic = magic.map(|(found, expected)| {
            let detail = format!(
                "its metapage has the magic number 0x{found:08x}, that of {words} has 0x{expected:08x}: a server refuses the index"
            );
            Step::Overruled(self.own.finding(0, Kind::Structure, detail), self.counted)
        });
        strange.into_iter().map(step).chain(magic).collect()
    }
}

impl Witness for StrangePages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        each_sound(run, standings, self.page_size, |block, page| {
            if self.made_for.fits(page) {
                if block == 0
                    && let Some(magic) = self.made_for.other_magic(page)
                {
                    *self.magic.lock().unwrap_or_else(PoisonError::into_inner) = Some(magic);
                }
                return;
            }
            let mut strange = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
            if strange.len() < STRANGE_MAX {
                strange.push(block);
            }
        });
    }
}

/// Sees the pages of an index, and where they lead within it.
#[derive(Debug)]
pub(in crate::files) struct LinkPages {
    pub(in crate::files) own: Arc<Watched>,
    pub(in crate::files) method: Method,
    pub(in crate::files) page_size: usize,
}

impl Witness for LinkPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let made_for = MadeFor::Index(self.method);
        each_sound(run, standings, self.page_size, |_, page| {
            // What another kind of page would lead to is not in this file.
            if made_for.fits(page) {
                links::visit(self.method, page, |block| self.own.mark_link(block));
            }
        });
    }
}

//! Which pages of a database count as what: runs of pages that count as the same, with every later
//! correction.
//!
//! Corrections come until the end of a target, so nothing is handed out before.

use std::collections::HashMap;

use pagewarden::verdict::{PageCounts, Place, Recount, Standing, Stretch};

/// Consecutive pages of a file that count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The number of the first page, where it is known.
    pub first: Option<u64>,
    /// Where it begins.
    pub offset: u64,
    /// How many they are.
    pub pages: u64,
    /// Bytes of all of them.
    pub length: u64,
    /// What they count as; `None`: they could not be read.
    pub standing: Option<Standing>,
}

/// The runs of one file.
#[derive(Debug)]
pub struct FileRuns {
    /// The file, relative to the target's path.
    pub file: String,
    /// In the order of the file.
    pub runs: Vec<Run>,
}

/// The runs of one target.
#[derive(Debug, Default)]
pub struct TargetRuns {
    /// In the order in which they were read.
    pub files: Vec<FileRuns>,
    by_name: HashMap<String, usize>,
    /// No file before this one has a page that counts as suspect.
    suspect_from: usize,
    /// A correction was about a page that is in no run.
    lost: bool,
}

impl TargetRuns {
    /// Adds pages.
    pub fn add(&mut self, stretch: &Stretch<'_>) {
        let run = Run {
            first: stretch.first.map(|first| first.0),
            offset: stretch.offset.0,
            pages: stretch.pages,
            length: stretch.length,
            standing: stretch.standing,
        };
        let index = match self.by_name.get(stretch.file) {
            Some(index) => *index,
            None => {
                let file = stretch.file.to_owned();
                self.files.push(FileRuns { file: file.clone(), runs: Vec::new() });
                self.by_name.insert(file, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        let Some(file) = self.files.get_mut(index) else { return };
        match file.runs.last_mut().filter(|last| last.goes_on_with(&run)) {
            Some(last) => {
                last.pages += run.pages;
                last.length += run.length;
            }
            None => file.runs.push(run),
        }
    }

    /// Corrects what was added before.
    pub fn correct(&mut self, recount: &Recount) {
        match recount {
            Recount::NoSums => self.each(|run| {
                if run.standing == Some(Standing::Ok) {
                    run.standing = Some(Standing::Unprotected);
                }
            }),
            Recount::Suspect(to) => self.correct_suspect(*to),
            Recount::Page { place, from, to } => self.correct_page(place, *from, *to),
        }
    }

    fn each(&mut self, change: impl Fn(&mut Run)) {
        self.files.iter_mut().flat_map(|file| &mut file.runs).for_each(change);
    }

    fn correct_suspect(&mut self, to: Standing) {
        while let Some(file) = self.files.get_mut(self.suspect_from) {
            let is_suspect = |run: &Run| run.standing == Some(Standing::Suspect) && run.pages > 0;
            if let Some(at) = file.runs.iter().position(is_suspect) {
                return file.change(at, 0, to);
            }
            self.suspect_from += 1;
        }
        self.lost = true;
    }

    fn correct_page(&mut self, place: &Place, from: Standing, to: Standing) {
        let file = self.by_name.get(&place.file).and_then(|index| self.files.get_mut(*index));
        let found = file.and_then(|file| {
            let (run, page) = file.find(place, from)?;
            file.change(run, page, to);
            Some(())
        });
        self.lost |= found.is_none();
    }

    /// True if these runs, page by page, are what was counted.
    pub fn fit(&self, counts: &PageCounts) -> bool {
        let mut sums = PageCounts::default();
        for run in self.files.iter().flat_map(|file| &file.runs) {
            let of = match run.standing {
                None => continue,
                Some(Standing::Ok) => &mut sums.ok,
                Some(Standing::Empty) => &mut sums.empty,
                Some(Standing::Unprotected) => &mut sums.unprotected,
                Some(Standing::Unverifiable) => &mut sums.unverifiable,
                Some(Standing::Undecided) => &mut sums.undecided,
                Some(Standing::Suspect) => &mut sums.suspect,
                Some(Standing::Damaged) => &mut sums.damaged,
            };
            *of += run.pages;
        }
        !self.lost && sums == *counts
    }
}

impl Run {
    fn goes_on_with(&self, next: &Self) -> bool {
        let numbers = match (self.first, next.first) {
            (Some(first), Some(next)) => first.checked_add(self.pages) == Some(next),
            (None, None) => true,
            _ => false,
        };
        let is_countable = self.pages > 0 && next.pages > 0;
        numbers
            && is_countable
            && self.standing == next.standing
            && self.offset.checked_add(self.length) == Some(next.offset)
            // Of pages of one size.
            && self.length * next.pages == next.length * self.pages
    }

    /// Which of its pages, counted from 0, begins there.
    fn page_at(&self, place: &Place) -> Option<u64> {
        let page = match (place.page, self.first, place.offset) {
            (Some(page), Some(first), _) => page.0.checked_sub(first)?,
            (_, _, Some(offset)) => {
                let size = self.length.checked_div(self.pages)?;
                offset.0.checked_sub(self.offset)?.checked_div(size)?
            }
            _ => return None,
        };
        (page < self.pages).then_some(page)
    }

    /// `count` of its pages, from `page` on, as a run.
    fn part(&self, page: u64, count: u64, standing: Option<Standing>) -> Option<Self> {
        let size = self.length.checked_div(self.pages)?;
        (count > 0).then(|| Self {
            first: self.first.map(|first| first + page),
            offset: self.offset + page * size,
            pages: count,
            length: count * size,
            standing,
        })
    }
}

impl FileRuns {
    fn find(&self, place: &Place, from: Standing) -> Option<(usize, u64)> {
        let fits = |(at, run): (usize, &Run)| {
            let page = run.page_at(place)?;
            (run.standing == Some(from)).then_some((at, page))
        };
        if let Some(offset) = place.offset {
            let behind = self.runs.partition_point(|run| run.offset <= offset.0);
            let at = behind.checked_sub(1)?;
            if let Some(found) = self.runs.get(at).and_then(|run| fits((at, run))) {
                return Some(found);
            }
        }
        self.runs.iter().enumerate().find_map(fits)
    }

    /// One page of a run counts as this from now on.
    fn change(&mut self, at: usize, page: u64, to: Standing) {
        let Some(run) = self.runs.get(at).copied() else { return };
        let behind = run.pages.saturating_sub(page + 1);
        let parts = [
            run.part(0, page, run.standing),
            run.part(page, 1, Some(to)),
            run.part(page + 1, behind, run.standing),
        ];
        self.runs.splice(at..=at, parts.into_iter().flatten());
    }
}

//! Pages of zeroes that a page beside them leads to, where a server of MySQL runs, or was killed.
//!
//! While a server runs, most pages of zeroes are pages that it has not written yet. One was written for sure:
//! MySQL writes both sides of a link in one mini-transaction, and does not move its checkpoint on before
//! all pages that were changed until then are written. So where a page in an index was written last
//! before the checkpoint that was read before all pages, those that it leads to were in their places by then;
//! and MySQL never makes a page zero again, also not one that was given back (MariaDB does, so that it
//! is not asked here).
//!
//! One thing is written without the log: an index that is being made. Each of its pages is linked to
//! the next one before that is known to the buffer pool, so that a checkpoint does not wait for it. The root
//! is filled last: an index counts once its root leads to other pages and is older than the checkpoint too.
//!
//! Older than the checkpoint means a smaller LSN, not the same one: without a log (`ALTER INSTANCE
//! DISABLE INNODB REDO_LOG`) and between two changes all have the same.
//!
//! Before it is reported, all of it is looked at once more, in the file that is there then: the page of
//! zeroes, the page that leads to it, the page of segments and the root, each with its own sum.
//!
//! Not seen so: pages of long values, of encrypted and page-compressed tables, of undo logs; a page without
//! one beside it; pages whose neighbours, or whose root, were changed since the checkpoint.
//!
//! Eight bytes are kept for each page of a file until its end. Sources: MySQL `buf0flu.cc`,
//! `log0chkp.cc`, `ddl0bulk.cc`/`btr0load.cc`, and MySQL 9.7 that makes and drops tables and indexes.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::evidence::Evidence;
use crate::files::fields::{u16_at, u64_at};
use crate::files::links::first_pages;
use crate::files::siblings::{Compared, Links};
use crate::page::fields::{PAGE_TYPE, read_u16};
use crate::page::index::TYPE_INDEX;
use crate::page::layout::Layout;
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageFormat, PageRun, RunVerdict, Witness};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Standing};

const LSN: usize = 16;
const LEVEL: usize = 64;
const INDEX: usize = 66;
/// The page of segments that names the roots of the first 42 indexes.
const SEGMENTS_PAGE: u64 = 2;

/// A page that leads nowhere for sure.
const UNKNOWN: u64 = 0;
/// All zero. No page of an index is between the pages 0 and 1.
const ZERO: u64 = 1;
/// Larger files are not gone through: 256 GiB of pages of 16 KiB.
const PAGES_MAX: u64 = 1 << 24;
/// Of a file in which more is zero the first are reported.
const FINDINGS_MAX: usize = 1000;
const HINT: &str = "read the table in the server (CHECK TABLE), and keep a copy of the file before anything \
                    else: a page that the server still has in memory it may write again; otherwise \
                    restore the table from a backup";

/// What leads to what in one file.
pub(super) struct Reached {
    file: String,
    path: PathBuf,
    database: Option<Arc<str>>,
    object: Option<Arc<str>>,
    layout: Layout,
    format: Arc<dyn PageFormat>,
    space: Option<u32>,
    severity: Severity,
    /// All that was changed before was on disk when the check began.
    before: u64,
    evidence: Arc<Evidence>,
    /// The pages before and after each, or one of the marks.
    links: Vec<AtomicU64>,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reached").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Reached {
    /// Looks at the pages of a file; `None` where zeroes prove nothing.
    pub(super) fn watch(
        file: &mut PageFile,
        layout: Layout,
        space: Option<u32>,
        evidence: &Arc<Evidence>,
    ) -> Option<Arc<Self>> {
        let before = evidence.written_before()?;
        let page_bytes = u64::try_from(layout.page_size).unwrap_or(u64::MAX).max(1);
        let pages = file.listed_bytes.checked_div(page_bytes).unwrap_or(0);
        if file.first_page.0 != 0 || pages > PAGES_MAX {
            return None;
        }
        let reached = Arc::new(Self {
            file: file.name.clone(),
            path: file.path.clone(),
            database: file.database.clone(),
            object: file.object.clone(),
            layout,
            format: Arc::clone(&file.format),
            space,
            severity: evidence.circumstances.failure(),
            before,
            evidence: Arc::clone(evidence),
            links: (0..pages).map(|_| AtomicU64::new(UNKNOWN)).collect(),
        });
        file.witnesses.push(Arc::clone(&reached) as _);
        Some(reached)
    }

    fn said(&self, standing: Option<Standing>, page: &[u8]) -> u64 {
        match standing {
            Some(Standing::Empty) if page.iter().all(|byte| *byte == 0) => ZERO,
            Some(Standing::Ok) => self.neighbours(page).map_or(UNKNOWN, Links::packed),
            _ => UNKNOWN,
        }
    }

    /// The pages before and after a page of an index that was not changed since the checkpoint.
    fn neighbours(&self, page: &[u8]) -> Option<Links> {
        let is_asked = read_u16(page, PAGE_TYPE) == TYPE_INDEX
            && u64_at(page, LSN).is_some_and(|lsn| lsn > 0 && lsn < self.before);
        is_asked.then(|| Links::of(page))?
    }

    /// Pages of zeroes, each with the pages that lead to it.
    fn candidates(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (page, slot) in (0_u32..).zip(&self.links) {
            let state = slot.load(Ordering::Relaxed);
            if state == UNKNOWN || state == ZERO {
                continue;
            }
            for other in Links::unpacked(state).0 {
                let slot = usize::try_from(other).ok().and_then(|at| self.links.get(at));
                if slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == ZERO) {
                    found.entry(other).or_default().push(page);
                }
            }
            if found.len() >= FINDINGS_MAX {
                break;
            }
        }
        found
    }

    /// A page as it is now, if it passes its test.
    fn sound_page(&self, file: &File, number: u64) -> Option<Vec<u8>> {
        let page = self.page(file, number)?;
        let mut verdict = RunVerdict::default();
        self.format.judge(PageRun { first: PageNo(number), bytes: &page }, &mut verdict);
        let standing = verdict.standings.iter().next().and_then(|(standing, _)| standing);
        (standing == Some(Standing::Ok)).then_some(page)
    }

    fn page(&self, file: &File, number: u64) -> Option<Vec<u8>> {
        let mut page = vec![0; self.layout.page_size];
        let offset = number.checked_mul(u64::try_from(page.len()).ok()?)?;
        (read_fully(file, &mut page, offset).ok()? == page.len()).then_some(page)
    }

    /// The indexes whose roots lead to other pages and were not changed since the checkpoint.
    fn finished(&self, file: &File) -> HashMap<u64, u32> {
        let segments = self.sound_page(file, SEGMENTS_PAGE).unwrap_or_default();
        let roots = first_pages(&self.layout, &segments, false);
        let finished = roots.filter_map(|root| {
            let page = self.sound_page(file, u64::from(root))?;
            let Links([u32::MAX, u32::MAX]) = self.neighbours(&page)? else { return None };
            (u16_at(&page, LEVEL)? > 0).then(|| Some((u64_at(&page, INDEX)?, root)))?
        });
        finished.collect()
    }

    /// The page that leads to a page of zeroes, if both are still so.
    fn witness_of(
        &self,
        file: &File,
        zero: u32,
        beside: &[u32],
        finished: &HashMap<u64, u32>,
    ) -> Option<u32> {
        if !self.page(file, u64::from(zero))?.iter().all(|byte| *byte == 0) {
            return None;
        }
        beside.iter().copied().find(|number| {
            let leads = || {
                let page = self.sound_page(file, u64::from(*number))?;
                let is_of_index = finished.contains_key(&u64_at(&page, INDEX)?);
                Some(is_of_index && self.neighbours(&page)?.0.contains(&zero))
            };
            leads().unwrap_or(false)
        })
    }

    fn finding(&self, zero: u32, witness: u32) -> Finding {
        let detail = format!(
            "all zero, and page {witness} of its index, which leads to it, was written before the checkpoint: so \
             was this one"
        );
        let offset = u64::from(zero).checked_mul(u64::try_from(self.layout.page_size).unwrap_or(0));
        Finding::of_file(&self.file, self.severity, Kind::Zeroed, detail)
            .at(Some(PageNo(u64::from(zero))), offset.map(ByteOffset))
            .about(self.database.as_deref(), self.object.as_deref())
            .with_hint(HINT)
    }
}

impl Witness for Reached {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        for (PageNo(number), page, standing) in run.judged(self.layout.page_size, standings) {
            let slot = usize::try_from(number).ok().and_then(|at| self.links.get(at));
            if let Some(slot) = slot {
                slot.store(self.said(standing, page), Ordering::Relaxed);
            }
        }
    }
}

impl Compared for Reached {
    fn pages(&self) -> u64 {
        u64::try_from(self.links.len()).unwrap_or(u64::MAX)
    }

    fn steps(&self) -> Vec<Step> {
        let candidates = self.candidates();
        let Some(file) = (!candidates.is_empty()).then(|| open_regular(&self.path).ok()).flatten()
        else {
            return Vec::new();
        };
        let finished = self.finished(&file);
        let found = candidates.into_iter().filter_map(|(zero, beside)| {
            let witness = self.witness_of(&file, zero, &beside, &finished)?;
            let is_mended =
                self.evidence.is_mended(self.space, PageNo(u64::from(zero)), &*self.format);
            (!is_mended).then(|| Step::Overruled(self.finding(zero, witness), Standing::Empty))
        });
        found.collect()
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;
    use crate::files::doublewrite::Doublewrite;
    use crate::files::siblings::tests::{PAGE, Pages};
    use crate::files::state::State;
    use crate::page::layout::Form;

    const CHECKPOINT: u64 = 1000;

    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn of_index(level: u16, before: u32, after: u32, lsn: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        put(&mut page, 8, &before.to_be_bytes());
        put(&mut page, 12, &after.to_be_bytes());
        put(&mut page, LSN, &lsn.to_be_bytes());
        put(&mut page, PAGE_TYPE, &TYPE_INDEX.to_be_bytes());
        put(&mut page, LEVEL, &level.to_be_bytes());
        put(&mut page, INDEX, &77_u64.to_be_bytes());
        page
    }

    /// An index with the root 3, and 4 to 8 in their order, of which 6 is zero.
    fn index() -> Vec<Vec<u8>> {
        let mut segments = vec![0; PAGE];
        put(&mut segments, PAGE_TYPE, &3_u16.to_be_bytes());
        put(&mut segments, 50, &1_u64.to_be_bytes());
        put(&mut segments, 50 + 60, &97_937_874_u32.to_be_bytes());
        put(&mut segments, 50 + 64, &3_u32.to_be_bytes());
        let other = segments.clone();
        let mut pages = vec![other.clone(), other, segments, of_index(1, u32::MAX, u32::MAX, 500)];
        for number in 4..=8_u32 {
            let before = if number == 4 { u32::MAX } else { number - 1 };
            let after = if number == 8 { u32::MAX } else { number + 1 };
            pages.push(of_index(0, before, after, 500));
        }
        pages[6] = vec![0; PAGE];
        pages
    }

    /// What is reported of pages that are changed before they are read, and again behind that.
    fn told(
        change: impl FnOnce(&mut Vec<Vec<u8>>),
        meanwhile: impl FnOnce(&mut Vec<Vec<u8>>),
    ) -> Vec<(u64, Severity)> {
        let mut pages = index();
        change(&mut pages);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.ibd");
        let doublewrite = Doublewrite::of(folder.path(), PAGE);
        let reached = Reached {
            file: "t.ibd".to_owned(),
            path: path.clone(),
            database: None,
            object: None,
            layout: Layout::guessed(Form::Old, PAGE),
            format: Arc::new(Pages),
            space: Some(5),
            severity: Severity::Damage,
            before: CHECKPOINT,
            evidence: Evidence::new(folder.path(), &mut State::in_use(), doublewrite),
            links: pages.iter().map(|_| AtomicU64::new(UNKNOWN)).collect(),
        };
        let bytes = pages.concat();
        let run = PageRun { first: PageNo(0), bytes: &bytes };
        let mut verdict = RunVerdict::default();
        Pages.judge(run, &mut verdict);
        reached.see(run, &verdict.standings);
        meanwhile(&mut pages);
        std::fs::write(&path, pages.concat()).unwrap();
        let finding = |step| match step {
            Step::Overruled(finding, Standing::Empty) => {
                (finding.place.page.unwrap().0, finding.severity)
            }
            other => panic!("{other:?}"),
        };
        reached.steps().into_iter().map(finding).collect()
    }

    #[test]
    fn page_of_zeroes_that_an_old_page_leads_to_was_written() {
        let found = [(6, Severity::Damage)];
        assert_eq!(told(|_| (), |_| ()), found);
        // One of the two pages beside it is enough.
        assert_eq!(told(|pages| pages[5] = of_index(0, 4, 6, CHECKPOINT), |_| ()), found);
        assert_eq!(told(|pages| pages[7] = of_index(0, 6, 8, 0), |_| ()), found);
        // So is one of each of two pages of zeroes.
        let two = told(|pages| pages[7] = vec![0; PAGE], |_| ());
        assert_eq!(two, [(6, Severity::Damage), (7, Severity::Damage)]);
    }

    #[test]
    fn pages_that_may_not_have_been_written_yet_are_no_damage() {
        let is_quiet = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            assert_eq!(told(change, |_| ()), []);
            // It was written, or what led to it was, behind the first look.
            assert_eq!(told(|_| (), change), []);
        };
        // Nothing leads to it but pages that were changed since the checkpoint.
        is_quiet(&|pages| {
            pages[5] = of_index(0, 4, 6, CHECKPOINT);
            pages[7] = of_index(0, 6, 8, CHECKPOINT + 1);
        });
        is_quiet(&|pages| {
            pages[5] = of_index(0, 4, 7, 500);
            pages[7] = of_index(0, 5, 8, 500);
        });
        // An index that is being made: its root leads nowhere yet, or was changed lately.
        is_quiet(&|pages| pages[3] = of_index(0, u32::MAX, u32::MAX, 500));
        is_quiet(&|pages| pages[3] = of_index(1, u32::MAX, u32::MAX, CHECKPOINT));
        is_quiet(&|pages| pages[3] = vec![0; PAGE]);
        // Pages of another index, whose root this is not.
        is_quiet(&|pages| put(&mut pages[3], INDEX, &78_u64.to_be_bytes()));
        // What fails its own test leads nowhere.
        is_quiet(&|pages| {
            put(&mut pages[5], PAGE_TYPE, &1_u16.to_be_bytes());
            put(&mut pages[7], PAGE_TYPE, &1_u16.to_be_bytes());
        });
        is_quiet(&|pages| put(&mut pages[2], PAGE_TYPE, &1_u16.to_be_bytes()));
        is_quiet(&|pages| pages[6] = of_index(0, 5, 7, CHECKPOINT));
    }
}

//! What the rest of a data directory says of a page: its log, and the copies in the
//! doublewrite area.
//!
//! | the page | the rest says | then it is |
//! | --- | --- | --- |
//! | fails, crashed | recovery makes it anew, or it was given back | a notice |
//! | fails, crashed | there is a sound copy, newer than the checkpoint | a notice |
//! | fails, crashed | neither, and the log and the copies are known in full | damage |
//! | fails, at rest | there is a sound copy | damage; the hint says where the copy is |
//! | is zero, at rest | others lead to it, or an index has as many pages too few | damage |
//! | is zero, at rest | in use by the extent map | damage: see below |
//! | is zero, at rest | the same, and an index was never finished | empty: see `links` |
//! | is zero, a prepared backup | nothing leads to it | empty: see `links` |
//! | is zero | a server has come to life since | empty |
//! | is zero, MySQL runs or was killed | a page beside it that is older than the checkpoint leads to it | damage, after a crash suspect: see `reached` |
//! | is newer than the end of the log | | `future_lsn`: copied without its log |
//!
//! A server that is shut down has written every page that its extent maps have in use, but the single
//! pages of the doublewrite area's segment (see `system`): seen in every tablespace of seven versions
//! from MySQL 5.5 to 9.7, also of servers that were killed and had recovered, a dozen times each.
//!
//! Free pages are not asked for their LSN: a tablespace that was imported keeps
//! those of the server that it came from.

#![deny(clippy::arithmetic_side_effects)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::doublewrite::{Doublewrite, GoodCopy};
use crate::files::fields::u64_at;
use crate::files::links::{Lead, Links};
use crate::files::redo::{PageChanges, Pending, newest_checkpoint, written_before};
use crate::files::state::{Circumstances, State, is_in_use};
use crate::files::tablespace::SYSTEM_SPACE;
use crate::page::allocation::AllocationMap;
use pagewarden_core::page::{
    Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict,
};
use pagewarden_core::verdict::{Kind, PageNo, Severity, Standing};

const PAGE_LSN: usize = 16;

/// What a data directory knows of its pages.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) circumstances: Circumstances,
    root: PathBuf,
    doublewrite: Arc<Doublewrite>,
    checkpoint: u64,
    /// Where the log ends, if that is certain, and what a newer page then is.
    log_end: Option<(u64, Severity)>,
    pending: Option<PageChanges>,
    written_before: Option<u64>,
}

/// What recovery does to a page.
enum Fate {
    Rebuilt,
    Freed,
    Kept,
}

impl Evidence {
    /// Takes what it needs out of a directory's state.
    pub(crate) fn new(root: &Path, state: &mut State, doublewrite: Arc<Doublewrite>) -> Arc<Self> {
        let circumstances = state.circumstances;
        let log = state.log.as_mut();
        let (checkpoint, end) = log.as_ref().map_or((0, None), |log| (log.checkpoint, log.end));
        let pending =
            log.and_then(|log| match std::mem::replace(&mut log.pending, Pending::Unknown) {
                Pending::Nothing => Some(PageChanges::default()),
                Pending::Pages(changes) => Some(changes),
                Pending::Unknown => None,
            });
        let log_end = end.and_then(|end| Some((end, circumstances.cross_file()?)));
        Arc::new(Self {
            circumstances,
            root: root.to_owned(),
            doublewrite,
            checkpoint,
            log_end,
            pending,
            written_before: match circumstances {
                Circumstances::Running | Circumstances::Crashed => written_before(root),
                _ => None,
            },
        })
    }

    /// Where recovery begins; 0 where that is not known.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// What a server that runs or was killed had changed before this LSN was on disk before any page was
    /// looked at; `None` where that is not known, or where pages become zero again: see `reached`.
    pub(crate) fn written_before(&self) -> Option<u64> {
        self.written_before
    }

    /// Recovery makes the page anew, takes a copy of it, or has it as a free one.
    pub(crate) fn is_mended(
        &self,
        space: Option<u32>,
        page: PageNo,
        pages: &dyn PageFormat,
    ) -> bool {
        if self.circumstances != Circumstances::Crashed {
            return false;
        }
        let copy = self.copy_of(space, page, pages);
        !matches!(self.fate(space, page), Fate::Kept)
            || copy.is_some_and(|copy| copy.lsn >= self.checkpoint)
    }

    /// The newest sound copy of a page in the doublewrite area.
    fn copy_of(
        &self,
        space: Option<u32>,
        page: PageNo,
        pages: &dyn PageFormat,
    ) -> Option<GoodCopy> {
        let id = (space?, u32::try_from(page.0).ok()?);
        self.doublewrite.good_copy(id, self.log_end.map(|(end, _)| end), pages)
    }

    /// What a page in use is that is all zero; `None` where that proves nothing.
    ///
    /// After a crash it does not, even if the extent map was written before the
    /// checkpoint: such pages were seen in a page_compressed table of a killed
    /// MariaDB server, with nothing of it in map or log. The cause is not known.
    pub(crate) fn zeroed(&self) -> Option<Severity> {
        match self.circumstances {
            Circumstances::AtRest | Circumstances::Prepared => Some(Severity::Damage),
            Circumstances::Unknown => Some(Severity::Suspect),
            Circumstances::Crashed | Circumstances::Running | Circumstances::Backup => None,
        }
    }

    /// False if a server has come to life on the directory since it was looked at:
    /// then a page may be newer than what it is compared with.
    fn still_stands(&self) -> bool {
        let now = newest_checkpoint(&self.root);
        !is_in_use(&self.root) && now.is_none_or(|now| now == self.checkpoint)
    }

    fn fate(&self, space: Option<u32>, page: PageNo) -> Fate {
        let page = u32::try_from(page.0).ok();
        match (&self.pending, space.zip(page)) {
            (Some(changes), Some(page)) if changes.rebuilt.contains(&page) => Fate::Rebuilt,
            (Some(changes), Some(page)) if changes.freed.contains(&page) => Fate::Freed,
            _ => Fate::Kept,
        }
    }
}

/// The pages of one tablespace, judged with what the rest of its directory shows.
#[derive(Debug)]
pub(crate) struct InDirectory {
    /// What the pages must look like.
    pub(crate) pages: Arc<dyn PageFormat>,
    /// The tablespace's number.
    pub(crate) space: Option<u32>,
    /// The pages in use; `None` where all count.
    pub(crate) allocated: Option<Arc<AllocationMap>>,
    /// The pages that others lead to.
    pub(crate) links: Links,
    /// The pages that are never zero, whether others lead to them or not.
    pub(crate) never_zero: Vec<u64>,
    /// What is known.
    pub(crate) evidence: Arc<Evidence>,
}

impl InDirectory {
    fn copy_of(&self, page: PageNo) -> Option<GoodCopy> {
        self.evidence.copy_of(self.space, page, &*self.pages)
    }

    /// Puts into a finding what recovery does to the page. False if nothing is
    /// wrong with it.
    fn weigh(&self, finding: &mut PageFinding) -> bool {
        if finding.kind == Kind::Zeroed {
            let is_fixed = self.never_zero.contains(&finding.page.0);
            let lead = if is_fixed { None } else { self.links.lead_to(finding.page) };
            let is_in_use_for_sure = self.evidence.circumstances == Circumstances::AtRest
                && !self.links.has_unfinished_index();
            let is_nothing = !is_fixed && lead.is_none() && !is_in_use_for_sure;
            if is_nothing || !self.evidence.still_stands() {
                return false;
            }
            let lead = lead.filter(|lead| *lead != Lead::Perhaps || !is_in_use_for_sure);
            if let Some(lead) = lead {
                let (words, at_most) = match lead {
                    Lead::Link => ("others lead to it", Severity::Damage),
                    Lead::Count => ("its index lacks as many pages as are zero", Severity::Damage),
                    Lead::Perhaps => (
                        "an index has too few pages, and this may be one of them",
                        Severity::Suspect,
                    ),
                };
                finding.severity = finding.severity.min(at_most);
                finding.standing = Some(Standing::of_failed(finding.severity));
                finding.detail =
                    Some(pagewarden_core::verdict::joined(finding.detail.take(), words));
            }
        }
        if self.evidence.circumstances != Circumstances::Crashed {
            return true;
        }
        let (severity, detail) = match self.evidence.fate(self.space, finding.page) {
            Fate::Rebuilt => (Severity::Notice, "recovery makes this page anew".to_owned()),
            Fate::Freed => (Severity::Notice, "the log says that it was given back".to_owned()),
            Fate::Kept => match self.copy_of(finding.page) {
                Some(copy) if copy.lsn >= self.evidence.checkpoint => {
                    let place = in_words(&copy);
                    (Severity::Notice, format!("recovery will take the sound copy {place}"))
                }
                _ if self.evidence.pending.is_some() && self.evidence.doublewrite.is_known() => {
                    let detail = "neither the log nor the doublewrite area can mend it";
                    (Severity::Damage, detail.to_owned())
                }
                _ => return true,
            },
        };
        finding.severity = severity;
        finding.standing = Some(Standing::of_failed(severity));
        finding.detail = Some(pagewarden_core::verdict::joined(finding.detail.take(), &detail));
        true
    }

    /// Pages that passed but are newer than the log.
    fn add_future(&self, run: PageRun<'_>, first_index: u64, verdict: &mut RunVerdict) {
        let Some((end, severity)) = self.evidence.log_end else { return };
        let pages = run.bytes.chunks_exact(self.pages.page_size()).zip(0_u64..);
        let newer: Vec<_> = pages
            .filter_map(|(page, index)| Some((index, u64_at(page, PAGE_LSN)?)))
            .filter(|(_, lsn)| *lsn > end)
            .collect();
        if newer.is_empty() || !self.evidence.still_stands() {
            return;
        }
        for (index, lsn) in newer {
            let number = run.first.plus(index);
            let at = first_index.saturating_add(index);
            let standing = standing_at(verdict, at);
            let Some(passed @ (Standing::Ok | Standing::Unprotected | Standing::Unverifiable)) =
                standing
            else {
                continue;
            };
            let is_free =
                self.allocated.as_ref().is_some_and(|allocated| !allocated.contains(number.0));
            let is_copy =
                self.space == Some(SYSTEM_SPACE) && self.evidence.doublewrite.is_copy(number.0);
            if is_free || is_copy {
                continue;
            }
            let detail = format!(
                "its LSN {lsn} lies beyond the end of the log, {end}: the file was copied without \
                 the log that belongs to it, or the log was replaced"
            );
            let finding =
                PageFinding::failed(number, severity, Kind::FutureLsn).with_detail(detail);
            verdict.counts.remove(passed);
            verdict.standings.set(at, finding.standing);
            verdict.findings.push(finding);
        }
    }
}

/// Judges pages, and then what failed with what else is known: false says that nothing is wrong with a
/// page of zeroes, which is empty then.
pub(crate) fn judge_and_weigh(
    pages: &dyn PageFormat,
    run: PageRun<'_>,
    verdict: &mut RunVerdict,
    weigh: impl Fn(&mut PageFinding) -> bool,
) {
    let findings_before = verdict.findings.len();
    let pages_before = pages_in(verdict);
    pages.judge(run, verdict);
    let mut found = verdict.findings.split_off(findings_before);
    found.retain_mut(|finding| {
        let Some(standing) = finding.standing else { return true };
        let index = finding.page.0.saturating_sub(run.first.0).saturating_add(pages_before);
        if !weigh(finding) {
            verdict.counts.add(Standing::Empty);
            // A page in use is counted as one with a sum.
            verdict.by_mode.checksum = verdict.by_mode.checksum.saturating_sub(1);
            verdict.standings.set(index, Some(Standing::Empty));
            return false;
        }
        if finding.standing != Some(standing) {
            verdict.standings.set(index, finding.standing);
        }
        true
    });
    verdict.findings.append(&mut found);
}

fn pages_in(verdict: &RunVerdict) -> u64 {
    verdict.standings.iter().map(|(_, pages)| pages).sum()
}

fn standing_at(verdict: &RunVerdict, index: u64) -> Option<Standing> {
    let mut left = index;
    for (standing, pages) in verdict.standings.iter() {
        match left.checked_sub(pages) {
            None => return standing,
            Some(rest) => left = rest,
        }
    }
    None
}

fn in_words(copy: &GoodCopy) -> String {
    format!("in {} at offset {}, of LSN {}", copy.file, copy.offset, copy.lsn)
}

impl PageFormat for InDirectory {
    fn page_size(&self) -> usize {
        self.pages.page_size()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let findings_before = verdict.findings.len();
        let pages_before = pages_in(verdict);
        judge_and_weigh(&*self.pages, run, verdict, |finding| self.weigh(finding));
        self.add_future(run, pages_before, verdict);
        if let Some(own) = verdict.findings.get_mut(findings_before..) {
            own.sort_by_key(|finding| finding.page);
        }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        self.pages.explain(page, finding, neighbours);
        if finding.severity == Severity::Notice || finding.kind == Kind::FutureLsn {
            return;
        }
        if let Some(copy) = self.copy_of(finding.page) {
            finding.hint = Some(format!("a sound copy of this page is {}", in_words(&copy)));
        }
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        self.pages.fingerprint(page)
    }
}

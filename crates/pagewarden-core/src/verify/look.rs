//! Judges what was read, and looks again at what failed.
//!
//! On a live server a page may be read half written. Such a page is read again,
//! the way it was read first, until it passes, or has stood still (then it is
//! damaged), or has changed to the end (then it is undecided). It is never
//! excused by its LSN. What still fails is read the other way too, so that
//! damage in the page cache and on the device are distinguished.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::database::{PageFile, Relation, Target};
use crate::page::{Neighbours, PageFinding, PageFormat, PageRun, RunVerdict};
use crate::source::file::open_regular;
use crate::verdict::{ByteOffset, Finding, ModeCounts, PageNo, Severity, Standing, joined};
use crate::verify::again::{Again, Copies};
use crate::verify::collect::{Judged, RunOutcome};
use crate::verify::held::Held;
use crate::verify::worker::read_fully;

/// Pauses before a failing page of a live target is read again. Long enough in
/// all for a write that was under way, however slow the device.
const REREAD_AFTER: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1000),
];
/// Reads in a row that must agree before a failing page counts as standing
/// still.
const STANDS_STILL: u32 = 2;

/// Enough to see a pattern: a file that is damaged all over must not be read
/// page by page.
const COMPARED_MAX: u32 = 1000;

/// What is needed to judge, beside the pages.
pub(super) struct Look {
    live: bool,
    stop: Arc<AtomicBool>,
    woken: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// How many more failing pages are read the other way too.
    to_compare: AtomicU32,
}

/// A page that failed, while it is looked at again.
struct Failing {
    finding: PageFinding,
    offset: u64,
    bytes: Vec<u8>,
    unchanged: u32,
    /// By what protection it is counted: one page in use, or none.
    counted: ModeCounts,
}

impl Look {
    pub(super) fn new(target: &mut Target, stop: Arc<AtomicBool>) -> Self {
        Self {
            live: target.description.live,
            stop,
            woken: target.woken.take(),
            to_compare: AtomicU32::new(COMPARED_MAX),
        }
    }

    /// True if files may change while they are read.
    pub(super) fn may_change(&self) -> bool {
        self.live || self.woken.as_ref().is_some_and(|woken| woken())
    }

    fn may_compare(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.to_compare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Judges whole pages that lie at `offset` and adds to `outcome`. Failing
    /// pages of a live target are read again from `again`.
    pub(super) fn judge(
        &self,
        file: &PageFile,
        again: Option<Again<'_>>,
        offset: u64,
        bytes: &[u8],
        outcome: &mut RunOutcome,
    ) {
        if file.selection.is_none() {
            return self.judge_stretch(file, again, offset, bytes, outcome);
        }
        let page_size = file.format.page_size();
        let number_at = |at: usize| file.page_at(ByteOffset(offset + at as u64));
        let mut begin = 0;
        while begin < bytes.len() {
            let first = number_at(begin);
            let mut end = begin + page_size;
            while end < bytes.len()
                && number_at(end) == first.plus(((end - begin) / page_size) as u64)
            {
                end += page_size;
            }
            let stretch = bytes.get(begin..end).unwrap_or_default();
            self.judge_stretch(file, again, offset + begin as u64, stretch, outcome);
            begin = end;
        }
    }

    /// Judges pages whose numbers follow one another.
    fn judge_stretch(
        &self,
        file: &PageFile,
        again: Option<Again<'_>>,
        offset: u64,
        bytes: &[u8],
        outcome: &mut RunOutcome,
    ) {
        outcome.bytes += bytes.len() as u64;
        let first = file.page_at(ByteOffset(offset));
        let mut verdict = RunVerdict::default();
        file.format.judge(PageRun { first, bytes }, &mut verdict);
        let mut newer = Vec::new();
        if !verdict.findings.is_empty() {
            newer = self.look_again(file, again, offset, bytes, &mut verdict, outcome);
        }
        if !file.witnesses.is_empty() {
            let bytes = with_newer(bytes, file.format.page_size(), &newer);
            for witness in &file.witnesses {
                witness.see(PageRun { first, bytes: &bytes }, &verdict.standings);
            }
        }
        outcome.counts += verdict.counts;
        outcome.by_mode += verdict.by_mode;
        outcome.judged.push(Judged {
            file: file.name.clone(),
            first,
            offset,
            page_size: file.format.page_size() as u64,
            standings: verdict.standings,
        });
    }

    /// Returns the pages that turned out to be sound, as they were then.
    fn look_again(
        &self,
        file: &PageFile,
        again: Option<Again<'_>>,
        offset: u64,
        bytes: &[u8],
        verdict: &mut RunVerdict,
        outcome: &mut RunOutcome,
    ) -> Vec<Newer> {
        let mut newer = Vec::new();
        let page_size = file.format.page_size();
        let first = file.page_at(ByteOffset(offset));
        let (mut failing, remarks): (Vec<_>, Vec<_>) = std::mem::take(&mut verdict.findings)
            .into_iter()
            .map(|finding| {
                let index = finding.page.0.saturating_sub(first.0);
                let at = index.saturating_mul(page_size as u64);
                let begin = usize::try_from(at).unwrap_or(usize::MAX);
                let page = bytes.get(begin..).and_then(|rest| rest.get(..page_size));
                let bytes = page.unwrap_or_default().to_vec();
                Failing {
                    finding,
                    offset: offset.saturating_add(at),
                    bytes,
                    unchanged: 0,
                    counted: ModeCounts::default(),
                }
            })
            .partition(|failing| failing.finding.standing.is_some());
        if let Some(again) = again
            && !failing.is_empty()
            && self.may_change()
        {
            failing = settle(&*file.format, again, first, failing, verdict, &mut newer, &self.stop);
        }
        let neighbours = RelationPages { relation: file.relation.as_deref() };
        let mut findings = Vec::with_capacity(failing.len() + remarks.len());
        for mut failing in failing.into_iter().chain(remarks) {
            if let Some(standing) = failing.finding.standing {
                file.format.explain(&failing.bytes, &mut failing.finding, &neighbours);
                let standing = match again {
                    Some(again) if self.may_compare() => {
                        tell_copies_apart(file, again, &mut failing, standing)
                    }
                    _ => standing,
                };
                if Some(standing) != failing.finding.standing {
                    let index = failing.finding.page.0.saturating_sub(first.0);
                    verdict.standings.set(index, Some(standing));
                }
                verdict.counts.add(standing);
            }
            findings.push((failing.offset, failing.finding));
        }
        findings.sort_by_key(|(offset, _)| *offset);
        for (offset, finding) in findings {
            let unsettled = finding.unsettled;
            let finding = place(file, offset, finding);
            match unsettled {
                Some(unsettled) => outcome.held.push(Held { finding, unsettled }),
                None => outcome.findings.push(finding),
            }
        }
        newer
    }
}

/// A page that passed when it was read again.
struct Newer {
    /// Which of its run.
    index: u64,
    bytes: Vec<u8>,
}

/// A run with pages as they were when they were read again.
fn with_newer<'a>(bytes: &'a [u8], page_size: usize, newer: &[Newer]) -> Cow<'a, [u8]> {
    let mut bytes = Cow::Borrowed(bytes);
    for page in newer {
        let index = usize::try_from(page.index).unwrap_or(usize::MAX);
        if let Some(place) = bytes.to_mut().chunks_exact_mut(page_size).nth(index)
            && place.len() == page.bytes.len()
        {
            place.copy_from_slice(&page.bytes);
        }
    }
    bytes
}

/// Reads failing pages again. Returns those that stood still; the others are
/// counted for what they turned out to be.
fn settle(
    format: &dyn PageFormat,
    again: Again<'_>,
    first: PageNo,
    failing: Vec<Failing>,
    verdict: &mut RunVerdict,
    newer: &mut Vec<Newer>,
    stop: &AtomicBool,
) -> Vec<Failing> {
    let index_of = |failing: &Failing| failing.finding.page.0.saturating_sub(first.0);
    let mut proven = Vec::new();
    let mut open = failing;
    for failing in &mut open {
        failing.counted = judged(format, failing.finding.page, &failing.bytes).by_mode;
    }
    for pause in REREAD_AFTER {
        // A run that is stopped has nothing to wait for: what is open then is
        // undecided.
        if open.is_empty() || !slept(pause, stop) {
            break;
        }
        let mut still_open = Vec::new();
        for mut failing in open {
            let bytes = match again.read(failing.offset, failing.bytes.len()) {
                Ok(bytes) if bytes.len() == failing.bytes.len() => bytes,
                // Truncated meanwhile: there is no such page any more.
                Ok(_) => {
                    verdict.by_mode.remove(failing.counted);
                    verdict.standings.set(index_of(&failing), None);
                    continue;
                }
                // The first reading stands.
                Err(_) => {
                    proven.push(failing);
                    continue;
                }
            };
            let mut second = judged(format, failing.finding.page, &bytes);
            // What it is now is what it counts as: one that is empty is not in use any more.
            verdict.by_mode.remove(failing.counted);
            verdict.by_mode += second.by_mode;
            failing.counted = second.by_mode;
            let failed = second.findings.iter().position(|finding| finding.standing.is_some());
            let Some(finding) = failed.map(|index| second.findings.swap_remove(index)) else {
                verdict.counts += second.counts;
                let standing = second.standings.iter().next().and_then(|(standing, _)| standing);
                verdict.standings.set(index_of(&failing), standing);
                newer.push(Newer { index: index_of(&failing), bytes });
                continue;
            };
            if bytes == failing.bytes {
                failing.unchanged += 1;
            } else {
                failing.unchanged = 0;
            }
            if finding.standing != failing.finding.standing {
                verdict.standings.set(index_of(&failing), finding.standing);
            }
            failing.bytes = bytes;
            failing.finding = finding;
            if failing.unchanged >= STANDS_STILL {
                proven.push(failing);
            } else {
                still_open.push(failing);
            }
        }
        open = still_open;
    }
    for failing in &open {
        verdict.counts.add(Standing::Undecided);
        verdict.standings.set(index_of(failing), Some(Standing::Undecided));
    }
    proven
}

fn judged(format: &dyn PageFormat, page: PageNo, bytes: &[u8]) -> RunVerdict {
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: page, bytes }, &mut verdict);
    verdict
}

/// Adds to the finding where the damage is, if that is known, and returns
/// what the page counts as.
fn tell_copies_apart(
    file: &PageFile,
    again: Again<'_>,
    failing: &mut Failing,
    standing: Standing,
) -> Standing {
    let finding = &mut failing.finding;
    let Some(copies) = again.compare(&*file.format, finding.page, failing.offset) else {
        return standing;
    };
    finding.detail = Some(joined(finding.detail.take(), copies.in_words()));
    if let Some(advice) = copies.advice() {
        finding.hint = Some(advice.to_owned());
    }
    // A healthy server may be about to write the sound copy.
    if copies == Copies::CachedMayBeNewer && finding.severity == Severity::Damage {
        finding.severity = Severity::Suspect;
        return Standing::Suspect;
    }
    standing
}

/// Sleeps; false if the run was stopped meanwhile.
fn slept(pause: Duration, stop: &AtomicBool) -> bool {
    const SLICE: Duration = Duration::from_millis(50);
    let begin = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match pause.checked_sub(begin.elapsed()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(SLICE)),
            _ => return true,
        }
    }
}

fn place(file: &PageFile, offset: u64, finding: PageFinding) -> Finding {
    let mut finding = finding
        .in_file(&file.name, Some(ByteOffset(offset)))
        .about(file.database.as_deref(), file.object.as_deref());
    finding.hint = finding.hint.or_else(|| file.hint.as_deref().map(str::to_owned));
    finding
}

/// The other pages of a relation, read one by one.
struct RelationPages<'a> {
    relation: Option<&'a Relation>,
}

impl Neighbours for RelationPages<'_> {
    fn page_count(&self) -> u64 {
        self.relation.map_or(0, Relation::page_count)
    }

    fn page(&self, page: PageNo) -> Option<Vec<u8>> {
        let relation = self.relation?;
        let (path, offset) = relation.locate(page)?;
        let file = open_regular(path).ok()?;
        let mut bytes = vec![0_u8; relation.page_size];
        let count = read_fully(&file, &mut bytes, offset.0).ok()?;
        (count == bytes.len()).then_some(bytes)
    }
}

//! Reads the log of an archive: every segment once, record by record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::files::archived_log::store::Shelf;
use crate::files::control::u64_at;
use crate::files::wal::block::{
    BACKUP_END, Dialect, OF_LOG, OF_TRANSACTIONS, TRANSACTION_OPERATION, touched,
};
use crate::files::wal::reader::{LogReader, Record, Stop};
use crate::files::wal::segment::{
    Identity, LONG_HEADER_BYTES, LooseSegments as _, PageHeader, SegmentName, Segments,
};
use pagewarden_core::source::file::read_fully;

const CHUNK_BYTES: usize = 1 << 20;
/// A commit or an abort, also of a prepared transaction. Their main data begins with the time.
const ENDS_TRANSACTION: [u8; 4] = [0x00, 0x20, 0x30, 0x40];
const ALIGNMENT: u64 = 8;

/// A stretch of one timeline in which every record is sound, and follows the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) timeline: u32,
    /// Where its first record begins.
    pub(super) begin: u64,
    /// Where the one behind its last would begin.
    pub(super) end: u64,
    /// The first and the last end of a transaction in each segment, and in each part of one that the
    /// end of a backup cuts it into: where its record ends, and when it was, in microseconds since
    /// 2000. The last has the latest time of all in its part.
    pub(super) commits: Vec<(u64, i64)>,
}

/// A place at which no sound record follows another, although the log goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Break {
    /// The segment, as the timeline has it that was read.
    pub(super) segment: SegmentName,
    /// The address of the record that is not sound.
    pub(super) at: u64,
    /// Where the next one begins that is; else where the last segment ends.
    pub(super) until: u64,
    /// True if nothing follows in this timeline.
    pub(super) is_last: bool,
    pub(super) words: String,
}

/// Segments that follow one another in a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    timeline: u32,
    /// Where to begin, at a page.
    from: u64,
    /// Behind its last segment.
    end: u64,
    is_last: bool,
    /// A record was not sound before `from`; where, until one is found that is.
    broken: Option<u64>,
}

/// See the module.
pub(super) struct Reading {
    shelf: Arc<Shelf>,
    identity: Identity,
    runs: VecDeque<Run>,
    open: Option<(Run, LogReader, Stretch)>,
    /// Where backups end, as far as that is known.
    marks: BTreeSet<u64>,
    /// Where backups end by the log, by where they began.
    pub(super) backup_ends: BTreeMap<u64, u64>,
    pub(super) stretches: Vec<Stretch>,
    pub(super) breaks: Vec<Break>,
}

impl Reading {
    /// `marks` are the positions at which backups are known to end.
    pub(super) fn new(shelf: Arc<Shelf>, identity: Identity, marks: BTreeSet<u64>) -> Self {
        let runs = runs_of(&shelf, u64::from(identity.segment_bytes.max(1)));
        Self {
            shelf,
            identity,
            runs,
            open: None,
            marks,
            backup_ends: BTreeMap::new(),
            stretches: Vec::new(),
            breaks: Vec::new(),
        }
    }

    /// Reads on for about a segment; false when all was read.
    pub(super) fn advance(&mut self) -> bool {
        let segment_bytes = u64::from(self.identity.segment_bytes.max(1));
        let Some((run, mut reader, mut stretch)) = self.open.take() else {
            let Some(run) = self.runs.pop_front() else { return false };
            self.begin(run);
            return true;
        };
        let begin = stretch.end;
        loop {
            match reader.next_record() {
                Ok(record) => {
                    stretch.end = record.end;
                    let end = record.end;
                    if let Some(began) = backup_ended(&record) {
                        self.marks.insert(end);
                        self.backup_ends.insert(began, end);
                    } else if let Some(time) = time_of(&record) {
                        add_commit(&mut stretch.commits, (end, time), segment_bytes, &self.marks);
                    }
                    let has_crossed = end / segment_bytes != begin / segment_bytes;
                    if has_crossed {
                        self.open = Some((run, reader, stretch));
                        return true;
                    }
                }
                Err(stop) => {
                    self.stopped(run, stretch, &stop);
                    return true;
                }
            }
        }
    }

    /// Looks for the first record of a run.
    fn begin(&mut self, mut run: Run) {
        while let Some((begin, page)) = self.first_record(&run) {
            let mut reader = LogReader::new(self.segments(run.timeline), begin, None, 0);
            let is_sound = match reader.next_record() {
                Ok(_) => true,
                // The only record of the run may go on behind its end.
                Err(Stop::Gap(_)) => run.broken.is_none(),
                Err(Stop::End) => false,
            };
            if is_sound {
                self.say_broken(&run, begin, false);
                let reader = LogReader::new(self.segments(run.timeline), begin, None, CHUNK_BYTES);
                let (timeline, commits) = (run.timeline, Vec::new());
                let stretch = Stretch { timeline, begin, end: begin, commits };
                self.open = Some((Run { broken: None, ..run }, reader, stretch));
                return;
            }
            run.broken.get_or_insert(begin);
            run.from = page.saturating_add(self.page_bytes());
        }
        self.say_broken(&run, run.end, run.is_last);
    }

    fn say_broken(&mut self, run: &Run, until: u64, is_last: bool) {
        let Some(at) = run.broken else { return };
        let segment = self.segments(run.timeline).segment_of(at);
        // In the last segment of the run, what follows is none of this timeline's.
        let is_last = is_last && segment.begin.saturating_add(self.segment_bytes()) >= run.end;
        let words = "the record here is not what was written, by its length, its link to the one \
                     before, its sum or the headers of its pages";
        self.breaks.push(Break { segment, at, until, is_last, words: words.to_owned() });
    }

    /// A stretch is over.
    fn stopped(&mut self, run: Run, stretch: Stretch, stop: &Stop) {
        let at = stretch.end;
        let segment = at - at % self.segment_bytes();
        let behind = segment.saturating_add(self.segment_bytes());
        if stretch.end > stretch.begin {
            self.stretches.push(stretch);
        }
        if at >= run.end {
            return;
        }
        let failed = |begin| self.failure_at(run.timeline, begin);
        match stop {
            // In this segment or, where its last record goes on, in the next one.
            Stop::Gap(_) if failed(segment) => self.later(Run { from: behind, ..run }),
            Stop::Gap(_) if failed(behind) => {
                let from = behind.saturating_add(self.segment_bytes());
                self.later(Run { from, ..run });
            }
            // The last record goes on in a segment that is not here.
            Stop::Gap(_) if behind >= run.end => {}
            Stop::Gap(_) | Stop::End => {
                let page = at - at % self.page_bytes();
                let from = page.saturating_add(self.page_bytes());
                self.later(Run { from, broken: Some(at), ..run });
            }
        }
    }

    fn later(&mut self, run: Run) {
        self.runs.push_front(run);
    }

    fn failure_at(&self, timeline: u32, begin: u64) -> bool {
        self.shelf.has_failed(SegmentName { timeline, begin })
    }

    /// The first place in a run where a record may begin, and the page that says so.
    fn first_record(&self, run: &Run) -> Option<(u64, u64)> {
        let (page_bytes, segment_bytes) = (self.page_bytes(), self.segment_bytes());
        let mut page = run.from;
        while page < run.end {
            let segment = page - page % segment_bytes;
            let name = SegmentName { timeline: run.timeline, begin: segment };
            let Ok(file) = self.shelf.open(name) else {
                page = segment.saturating_add(segment_bytes);
                continue;
            };
            let mut bytes = [0_u8; LONG_HEADER_BYTES];
            let at = page.saturating_sub(segment);
            let header = read_fully(&file, &mut bytes, at).ok();
            let header = header.and_then(|count| PageHeader::read(bytes.get(..count)?));
            let header = header.filter(|header| header.address == page);
            if let Some(header) = header {
                let inside = if header.continues() { u64::from(header.remaining) } else { 0 };
                let inside = inside.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
                let behind = (header.bytes() as u64).saturating_add(inside);
                if behind < page_bytes {
                    return Some((page.saturating_add(behind), page));
                }
            }
            page = page.saturating_add(page_bytes);
        }
        None
    }

    fn segments(&self, timeline: u32) -> Segments {
        let loose: Arc<Shelf> = Arc::clone(&self.shelf);
        Segments { folders: Vec::new(), loose: Some(loose), timeline, identity: self.identity }
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.identity.segment_bytes.max(1))
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.identity.page_bytes.max(1))
    }
}

/// Where a timeline left another, the run begins one segment before its own, so that the record that
/// goes from one into the other is read.
fn runs_of(shelf: &Shelf, segment_bytes: u64) -> VecDeque<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for name in shelf.segments().keys() {
        let end = name.begin.saturating_add(segment_bytes);
        match runs.last_mut() {
            Some(run) if run.timeline == name.timeline && run.end == name.begin => run.end = end,
            last => {
                let is_other = last.is_none_or(|last| last.timeline != name.timeline);
                if let Some(last) = runs.last_mut().filter(|_| is_other) {
                    last.is_last = true;
                }
                let before = name.begin.checked_sub(segment_bytes).filter(|before| {
                    let parent = shelf.histories().timeline_at(name.timeline, *before);
                    parent.is_some_and(|timeline| {
                        let parents = SegmentName { timeline, begin: *before };
                        is_other && shelf.segments().contains_key(&parents)
                    })
                });
                let from = before.unwrap_or(name.begin);
                let timeline = name.timeline;
                runs.push(Run { timeline, from, end, is_last: false, broken: None });
            }
        }
    }
    if let Some(last) = runs.last_mut() {
        last.is_last = true;
    }
    runs.into()
}

/// When a transaction ended, in microseconds since 2000, if that is what a record says.
fn time_of(record: &Record<'_>) -> Option<i64> {
    let operation = record.header.operation() & TRANSACTION_OPERATION;
    if record.header.manager != OF_TRANSACTIONS || !ENDS_TRANSACTION.contains(&operation) {
        return None;
    }
    let main = touched(record.head, Dialect::of_magic(record.magic)?, |_| ())?;
    u64_at(main, 0).map(u64::cast_signed)
}

/// Where the backup began that a record says has ended.
fn backup_ended(record: &Record<'_>) -> Option<u64> {
    if (record.header.manager, record.header.operation()) != (OF_LOG, BACKUP_END) {
        return None;
    }
    let main = touched(record.head, Dialect::of_magic(record.magic)?, |_| ())?;
    u64_at(main, 0)
}

/// Keeps the first and the last of a segment, or of its part before, between or behind the marks.
fn add_commit(
    commits: &mut Vec<(u64, i64)>,
    (at, mut time): (u64, i64),
    segment_bytes: u64,
    marks: &BTreeSet<u64>,
) {
    let segment = |at: u64| at / segment_bytes.max(1);
    if let [.., (first, _), (last, latest)] = commits.as_slice()
        && segment(*first) == segment(at)
        // A record that ends at the mark is before it.
        && marks.range(*first..at).next().is_none()
        && first < last
    {
        // Those that commit at the same time are not always logged in that order.
        time = time.max(*latest);
        commits.pop();
    }
    commits.push((at, time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_commit_are_kept_on_either_side_of_the_end_of_a_backup() {
        let mut commits = Vec::new();
        let marks = BTreeSet::from([0x150]);
        for (at, time) in [
            (0x110, 1),
            (0x120, 5),
            (0x130, 2),
            (0x150, 3),
            (0x160, 6),
            (0x170, 7),
            (0x180, 4),
            (0x210, 8),
        ] {
            add_commit(&mut commits, (at, time), 0x100, &marks);
        }
        let expected = [(0x110, 1), (0x150, 5), (0x160, 6), (0x180, 7), (0x210, 8)];
        assert_eq!(commits, expected, "{commits:x?}");
    }
}

//! Writes down what a run sees: claims, findings, what could not be read.
//!
//! A claim is made of what the engine hands on as judged, in its order, and of nothing else. Once a
//! run was asked to stop, results may come with holes between them: then only what joins what is
//! claimed already is taken.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::database::Reading;
use pagewarden::report::Report;
use pagewarden::verdict::{Finding, Note, Recount, Standing, Stretch, Unread};
use pagewarden::verify::{RUN_BYTES, Sink};
use rusqlite::{Connection, params};

use crate::ledger;
use crate::ledger::claims::{self, Entered, Identity};
use crate::ledger::findings::{self, Room, Run};
use crate::ledger::int;
use crate::ledger::passes::{COUNTS, place_of};
use crate::listing::{identity, identity_of_opened};

/// How often is committed: a kill costs no more work than this.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// And so often while others wait for the ledger.
const COMMIT_AWAITED: Duration = Duration::from_millis(100);
/// Stretches of one file with failing pages that are remembered until their findings come.
const FAILING_MAX: usize = 65_536;

/// Files that were handed out to be read, by name, with what was learned of them.
pub type HandedOut = Arc<Mutex<HashMap<String, Arc<Reading>>>>;

/// Which files a run reads.
#[derive(Debug)]
pub enum Reads {
    /// These, from where on.
    Files {
        /// Where reading begins in each.
        begins: HashMap<String, u64>,
        /// Where each is.
        places: HashMap<String, PathBuf>,
        /// Those that were handed out to be read.
        handed_out: HandedOut,
    },
    /// An archive: nothing is claimed before its end.
    Archive,
}

/// See the module.
pub struct Recorder<'a> {
    db: &'a mut Connection,
    run: Run<'a>,
    reads: &'a Reads,
    stop: &'a AtomicBool,
    report: &'a mut dyn Report,
    current: Option<Current>,
    counts: [i64; 7],
    /// Files of which something could not be read or judged.
    gapped: HashSet<String>,
    /// For how many findings there is room.
    room: Option<Room>,
    is_writing: bool,
    committed: Instant,
    /// Where pages begin whose findings have not come yet: the pages of a run come before its
    /// findings, and may not be claimed without them.
    awaits_findings: Option<u64>,
    /// The last that came was no page: all of the run before has come.
    is_between_runs: bool,
    /// It reads what the pass that ended did not see, or saw damaged.
    is_between_passes: bool,
    /// Something could not be written down.
    has_failed: bool,
}

/// The file whose pages come in.
struct Current {
    name: String,
    /// As the ledger has it; `None` where nothing is claimed.
    file: Option<Entered>,
    /// A file of this name was listed.
    is_listed: bool,
    /// What was judged and is not yet written down.
    pending: Range<u64>,
    /// Where the next page is expected: what is passed over before it is no page.
    next: u64,
    /// Something of it could not be read or judged.
    has_gap: bool,
    /// Pages that failed.
    failing: Vec<Range<u64>>,
}

impl fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("run", &self.run).finish_non_exhaustive()
    }
}

impl<'a> Recorder<'a> {
    /// A record of `run` that hands everything on to `report`.
    pub(crate) fn new(
        db: &'a mut Connection,
        run: Run<'a>,
        reads: &'a Reads,
        stop: &'a AtomicBool,
        report: &'a mut dyn Report,
    ) -> Self {
        Self {
            db,
            run,
            reads,
            stop,
            report,
            current: None,
            counts: [0; 7],
            gapped: HashSet::new(),
            room: None,
            is_writing: false,
            committed: Instant::now(),
            awaits_findings: None,
            is_between_runs: false,
            is_between_passes: false,
            has_failed: false,
        }
    }

    /// The same, of a run between passes.
    pub(crate) fn between_passes(self, is_between_passes: bool) -> Self {
        Self { is_between_passes, ..self }
    }

    /// Writes down the rest. `to_its_end`: the run has come to its end.
    pub(crate) fn finish(mut self, to_its_end: bool) -> rusqlite::Result<()> {
        self.begin()?;
        self.end_file(to_its_end)?;
        if to_its_end {
            self.claim_unseen()?;
        }
        claims::mark_holes(self.db, self.run.target, self.run.now)?;
        self.commit()
    }

    /// Files that were read to their ends, and all of whose pages are none, have not been seen.
    fn claim_unseen(&mut self) -> rusqlite::Result<()> {
        let Reads::Files { begins, handed_out, .. } = self.reads else { return Ok(()) };
        let handed_out = handed_out.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for name in handed_out.keys().filter(|name| !self.gapped.contains(*name)) {
            let Some(begin) = begins.get(name) else { continue };
            let Some(file) = claims::file(self.db, self.run.target, name)? else { continue };
            let claimed: i64 = self
                .db
                .prepare_cached(
                    "SELECT count(*) FROM claim WHERE file = ?1 AND end > ?2 AND pass = ?3",
                )?
                .query_row(params![file.id, int(*begin), self.run.pass], |row| row.get(0))?;
            if claimed == 0 && self.has_its_size(name)? {
                claims::claim(self.db, file.id, *begin, file.end, self.run.pass, self.run.now)?;
            }
        }
        Ok(())
    }

    /// Writes something down; nothing more once that has failed. On a full disk SQLite ends the
    /// transaction by itself, and what comes then would be written without what came before.
    fn write(&mut self, write: impl FnOnce(&mut Self) -> rusqlite::Result<()>) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("the ledger could not be written before"));
        }
        write(self).map_err(|error| {
            self.has_failed = true;
            unwritten(&error)
        })
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        if !self.is_writing {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.is_writing = true;
        }
        Ok(())
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        self.write_claim()?;
        for (place, (name, count)) in COUNTS.iter().zip(&mut self.counts).enumerate() {
            // What is read between passes was counted by the pass that ended. Only what could not be
            // tested is of interest: the verdict needs it.
            let counts = !self.is_between_passes || place == place_of(Standing::Unverifiable);
            if !counts {
                *count = 0;
            }
            if *count != 0 {
                let sql = format!(
                    "UPDATE pass SET {name} = max(0, {name} + ?3) WHERE target = ?1 AND number = ?2"
                );
                self.db.prepare_cached(&sql)?.execute(params![
                    self.run.target,
                    self.run.pass,
                    *count
                ])?;
                *count = 0;
            }
        }
        self.db.execute_batch("COMMIT")?;
        self.is_writing = false;
        self.committed = Instant::now();
        Ok(())
    }

    fn commit_in_time(&mut self) -> rusqlite::Result<()> {
        if !self.is_writing {
            return Ok(());
        }
        let age = self.committed.elapsed();
        if age >= COMMIT_EVERY {
            self.commit()?;
        } else if age >= COMMIT_AWAITED && ledger::is_awaited() {
            self.commit()?;
            thread::sleep(ledger::ROOM);
        }
        Ok(())
    }

    fn write_claim(&mut self) -> rusqlite::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let Some(file) = current.file else { return Ok(()) };
        let Range { start, end } = current.pending.clone();
        if start < end {
            // A file may have grown since it was listed, and the ledger knows nothing of that end.
            let listed = end.min(file.end);
            claims::claim(self.db, file.id, start, listed, self.run.pass, self.run.now)?;
            findings::seen_readable(self.db, self.run, &current.name, start, end)?;
        }
        current.pending = end..end;
        Ok(())
    }

    /// All that comes of a file has come.
    fn end_file(&mut self, in_order: bool) -> rusqlite::Result<()> {
        self.write_claim()?;
        let Some(current) = self.current.take() else { return Ok(()) };
        let Some(file) = current.file else { return Ok(()) };
        if current.has_gap || !in_order || current.next >= file.end {
            return Ok(());
        }
        // What is left at its end was passed over, if the file is as long as it was.
        if self.has_its_size(&current.name)? {
            claims::claim(self.db, file.id, current.next, file.end, self.run.pass, self.run.now)?;
        }
        Ok(())
    }

    /// What was learned of a file that was handed out to be read.
    fn reading(&self, name: &str) -> Option<Arc<Reading>> {
        let Reads::Files { handed_out, .. } = self.reads else { return None };
        handed_out.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
    }

    /// What the file was that was opened to be read; `None` if none was.
    fn opened(&self, name: &str) -> Option<Identity> {
        let Reads::Files { places, .. } = self.reads else { return None };
        identity_of_opened(self.reading(name)?.opened.get()?, places.get(name)?)
    }

    fn was_cut(&self, name: &str) -> bool {
        self.reading(name).is_some_and(|reading| reading.was_cut.load(Ordering::Relaxed))
    }

    /// True if the file that was opened is the one that was listed.
    fn is_the_listed(&self, name: &str) -> rusqlite::Result<bool> {
        let Some(opened) = self.opened(name) else { return Ok(false) };
        let (inode, born): (i64, i64) = self
            .db
            .prepare_cached("SELECT inode, born FROM file WHERE target = ?1 AND name = ?2")?
            .query_row(params![self.run.target, name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok((opened.inode, opened.born) == (inode, born))
    }

    /// True if a file is as long as it was when it was listed, and was so when it was opened and while
    /// it was read.
    fn has_its_size(&self, name: &str) -> rusqlite::Result<bool> {
        let Reads::Files { places, .. } = self.reads else { return Ok(false) };
        let Some(opened) = self.opened(name).filter(|_| !self.was_cut(name)) else {
            return Ok(false);
        };
        let Some(now) = places.get(name).and_then(|place| identity(place)) else {
            return Ok(false);
        };
        let (size, inode): (i64, i64) = self.db.query_row(
            "SELECT size, inode FROM file WHERE target = ?1 AND name = ?2",
            params![self.run.target, name],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let is_of = |it: &Identity| int(it.size) == size && it.inode == inode;
        Ok(is_of(&now) && is_of(&opened))
    }

    /// Makes `name` the file whose pages come in. False if that is not to be: results that come
    /// after the wish to stop, and belong to no file that was begun.
    fn turn_to(&mut self, name: &str) -> rusqlite::Result<bool> {
        if self.current.as_ref().is_some_and(|current| current.name == name) {
            return Ok(true);
        }
        let is_stopping = self.stop.load(Ordering::Relaxed);
        if is_stopping && self.current.is_some() {
            return Ok(false);
        }
        self.end_file(!is_stopping)?;
        let begin = match self.reads {
            Reads::Files { begins, .. } => begins.get(name).copied(),
            Reads::Archive => None,
        };
        let listed = match begin {
            Some(_) => claims::file(self.db, self.run.target, name)?,
            // It came into being after the files were listed.
            None => None,
        };
        let is_listed = listed.is_some();
        // Another file in its place is one that was not listed, and the next run lists it.
        let file = if is_listed && self.is_the_listed(name)? { listed } else { None };
        if file.is_none() {
            self.gapped.insert(name.to_owned());
        }
        let begin = begin.unwrap_or(0);
        self.current = Some(Current {
            name: name.to_owned(),
            file,
            is_listed,
            pending: begin..begin,
            next: begin,
            has_gap: false,
            failing: Vec::new(),
        });
        Ok(true)
    }

    fn take(&mut self, stretch: &Stretch<'_>) -> rusqlite::Result<()> {
        let is_same_file =
            self.current.as_ref().is_some_and(|current| current.name == stretch.file);
        let is_later_run = |begin: u64| stretch.offset.0.saturating_sub(begin) >= RUN_BYTES as u64;
        if self.is_between_runs || !is_same_file || self.awaits_findings.is_some_and(is_later_run) {
            self.awaits_findings = None;
        }
        self.is_between_runs = false;
        if self.awaits_findings.is_none() {
            self.commit_in_time()?;
        }
        self.begin()?;
        if !self.turn_to(stretch.file)? {
            return Ok(());
        }
        let is_stopping = self.stop.load(Ordering::Relaxed);
        let Some(current) = &mut self.current else { return Ok(()) };
        let begin = stretch.offset.0;
        let end = begin.saturating_add(stretch.length);
        if is_stopping && begin != current.next {
            return Ok(());
        }
        let Some(standing) = stretch.standing else {
            let next = current.next.max(end);
            return self.go_on_behind_gap(next);
        };
        if let Some(count) = self.counts.get_mut(place_of(standing)) {
            *count = count.saturating_add(i64::try_from(stretch.pages).unwrap_or(i64::MAX));
        }
        match standing {
            Standing::Damaged | Standing::Suspect | Standing::Undecided => {
                if current.failing.len() >= FAILING_MAX {
                    current.failing.clear();
                }
                self.awaits_findings.get_or_insert(begin);
                // A page that is not whole has no length.
                current.failing.push(begin..end.max(begin.saturating_add(1)));
            }
            Standing::Ok | Standing::Empty | Standing::Unprotected => {
                findings::seen_sound(self.db, self.run, stretch.file, begin, end)?;
            }
            Standing::Unverifiable => {}
        }
        if stretch.length == 0 {
            return Ok(());
        }
        if standing == Standing::Undecided {
            return self.go_on_behind_gap(end);
        }
        if begin < current.next {
            // It was read before; nothing hands on a page twice.
            return Ok(());
        }
        if begin > current.next && self.was_cut(stretch.file) {
            // For a moment it ended there.
            self.go_on_behind_gap(begin)?;
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        // What was passed over since the last page, in order and without a gap, is no page.
        current.next = end;
        current.pending.end = end;
        Ok(())
    }

    /// Claims what was judged up to a gap, and goes on at `next`.
    fn go_on_behind_gap(&mut self, next: u64) -> rusqlite::Result<()> {
        self.write_claim()?;
        if let Some(current) = &mut self.current {
            current.has_gap = true;
            self.gapped.insert(current.name.clone());
            current.next = next;
            current.pending = next..next;
        }
        Ok(())
    }

    fn take_finding(&mut self, finding: &Finding) -> rusqlite::Result<()> {
        self.begin()?;
        let is_own = match (&self.current, finding.place.offset) {
            (Some(current), Some(offset)) => {
                current.is_listed
                    && current.name == finding.place.file
                    && current.failing.iter().any(|range| range.contains(&offset.0))
            }
            _ => false,
        };
        self.is_between_runs = true;
        let mut room = match self.room {
            Some(room) => room,
            None => Room::of(self.db, self.run.target)?,
        };
        findings::record(self.db, self.run, finding, is_own, &mut room)?;
        self.room = Some(room);
        Ok(())
    }

    fn take_unread(&mut self, unread: &Unread) -> rusqlite::Result<()> {
        self.begin()?;
        self.gapped.insert(unread.file.clone());
        findings::record_unread(self.db, self.run, unread)?;
        self.db
            .prepare_cached("UPDATE file SET tried = ?3 WHERE target = ?1 AND name = ?2")?
            .execute(params![self.run.target, unread.file, self.run.pass])?;
        if let Some(current) = &mut self.current
            && current.name == unread.file
        {
            current.has_gap = true;
        }
        self.is_between_runs = true;
        Ok(())
    }

    fn take_recount(&mut self, recount: &Recount) {
        let mut add = |standing: Standing, more: i64| {
            if let Some(count) = self.counts.get_mut(place_of(standing)) {
                *count = count.saturating_add(more);
            }
        };
        match recount {
            Recount::Suspect(to) => {
                add(Standing::Suspect, -1);
                add(*to, 1);
            }
            Recount::Page { from, to, .. } => {
                add(*from, -1);
                add(*to, 1);
            }
            // Only streams settle so; their counts are those of the end.
            _ => {}
        }
    }
}

impl Sink for Recorder<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.write(|it| it.take_finding(finding))?;
        self.report.finding(finding)
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.write(|it| it.take_unread(unread))?;
        self.report.unread(unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.report.note(note)
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        self.write(|it| it.take(stretch))?;
        self.report.pages(stretch)
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        self.take_recount(recount);
        self.report.recount(recount)
    }
}

/// What could not be written down is not claimed, and ends the run.
fn unwritten(error: &rusqlite::Error) -> io::Error {
    io::Error::other(format!("cannot write the ledger: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pagewarden::verdict::{ByteOffset, PageNo};

    use super::*;
    use crate::ledger::claims::Listed;
    use crate::ledger::passes::begin_pass;
    use crate::ledger::tests::ledger;

    #[test]
    fn end_that_grew_after_the_files_were_listed_is_not_claimed() {
        let (folder, _held, mut ledger, target) = ledger();
        let path = folder.path().join("a");
        fs::write(&path, [0; 100]).unwrap();
        let listed = Listed {
            name: "a".to_owned(),
            identity: identity(&path).unwrap(),
            page_size: 10,
            first: 0,
            end: 100,
        };
        ledger.list(target, claims::Look::default(), [listed].into_iter(), 0).unwrap();
        let pass = begin_pass(&ledger.db, target, 0).unwrap();
        fs::write(&path, [0; 150]).unwrap();
        let reading = Reading::default();
        reading.opened.set(fs::metadata(&path).unwrap()).unwrap();
        let reads = Reads::Files {
            begins: HashMap::from([("a".to_owned(), 0)]),
            places: HashMap::from([("a".to_owned(), path)]),
            handed_out: Arc::new(Mutex::new(HashMap::from([("a".to_owned(), Arc::new(reading))]))),
        };
        let run = Run { target, member: "", run: 1, pass, now: 1 };
        let stop = AtomicBool::new(false);
        let mut report = ();
        let mut recorder = Recorder::new(&mut ledger.db, run, &reads, &stop, &mut report);
        let all = Stretch {
            file: "a",
            first: Some(PageNo(0)),
            offset: ByteOffset(0),
            pages: 15,
            length: 150,
            standing: Some(Standing::Ok),
        };
        recorder.pages(&all).unwrap();
        recorder.finish(true).unwrap();
        let claim = "SELECT begin, end FROM claim";
        let claimed: (i64, i64) =
            ledger.db.query_row(claim, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(claimed, (0, 100));
        let coverage = ledger.coverage(target, 1).unwrap();
        assert_eq!((coverage.pages, coverage.verified), (10, 10));
    }
}

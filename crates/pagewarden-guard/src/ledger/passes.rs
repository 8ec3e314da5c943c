//! Passes over a target, and what follows from the ledger: what is due, how much is covered, what
//! the verdict is.

use std::time::Duration;

use anyhow::{Context as _, Result};
use pagewarden::verdict::{Standing, Verdict};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;

use super::{Ledger, TargetId, int, uint};
use crate::moment::lot;

/// A pass begins when the oldest claim is of three quarters of the promised age, so that a pass that
/// takes several nights still ends in time; and up to a twentieth of that age earlier, by the names of
/// machine and database, so that not all begin at the same time.
const DUE_SHARE: (i64, i64) = (3, 4);
const EARLIER: i64 = 20;
/// What could not be opened, and what was left over, is tried again so often.
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(300);

/// What is known of a target as a whole.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Each page is to be verified at least so often.
    pub every_seconds: i64,
    /// The engine and its version.
    pub engine: String,
    /// The name of its format.
    pub format: String,
    /// When it was entered.
    pub added_at: i64,
    /// The pass that is under way, or the last one; 0 before the first.
    pub pass: i64,
    /// The run that listed it last.
    pub run: i64,
    /// When it was last looked at, however that ended.
    pub attempt_at: Option<i64>,
    /// Why that came to nothing.
    pub error: Option<String>,
}

/// A pass over a target.
#[derive(Debug, Clone, Default)]
pub struct Pass {
    /// Its number.
    pub number: i64,
    /// When it began.
    pub begun_at: i64,
    /// When it ended; `None` while it is under way.
    pub ended_at: Option<i64>,
    /// Everything that was there was verified.
    pub is_complete: bool,
    /// It read everything in one run, with what files say of one another.
    pub is_whole: bool,
    /// How long its runs took.
    pub seconds: f64,
    /// Bytes that it read.
    pub bytes: u64,
    /// Pages by what they count as.
    pub counts: [u64; 7],
    /// Files in use without a reader.
    pub untested_files: u64,
    /// The database is set to protect nothing.
    pub is_off: bool,
}

/// The columns of [`Pass::counts`].
pub(crate) const COUNTS: [&str; 7] =
    ["ok", "empty", "unprotected", "unverifiable", "undecided", "suspect", "damaged"];

/// The place of a standing in [`COUNTS`].
pub(crate) fn place_of(standing: Standing) -> usize {
    match standing {
        Standing::Ok => 0,
        Standing::Empty => 1,
        Standing::Unprotected => 2,
        Standing::Unverifiable => 3,
        Standing::Undecided => 4,
        Standing::Suspect => 5,
        Standing::Damaged => 6,
    }
}

impl Pass {
    /// Pages of the pass that count as this.
    #[must_use]
    pub fn count(&self, standing: Standing) -> u64 {
        self.counts.get(place_of(standing)).copied().unwrap_or(0)
    }

    /// All pages that it judged.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// How much of a target is covered by claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Pages that there are.
    pub pages: u64,
    /// Pages that the pass that is under way, or the last one, has verified.
    pub verified: u64,
    /// How long the page has been waiting that waits longest: since it was verified, or since it
    /// is there.
    pub oldest_unverified_seconds: u64,
    /// The promise.
    pub every_seconds: u64,
    /// The promise is broken.
    pub overdue: bool,
    /// The last pass has ended, and covers everything there is.
    pub pass_complete: bool,
    /// A page of the target was verified never.
    #[serde(skip)]
    pub has_holes: bool,
    /// A claim is of a time that has not come: the clock was set back.
    #[serde(skip)]
    pub from_future: bool,
    /// When the oldest claim was made.
    #[serde(skip)]
    pub oldest_at: Option<i64>,
}

impl Coverage {
    /// Some page, or all of it, was verified never.
    #[must_use]
    pub fn has_never(&self) -> bool {
        self.has_holes || self.oldest_at.is_none()
    }
}

/// What a run is to do with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Begin a pass.
    Begin,
    /// Resume the pass that is under way.
    Resume,
    /// Read what the last pass did not see.
    CatchUp,
}

impl Ledger {
    /// What is known of a target.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn entry(&self, target: TargetId) -> Result<Entry> {
        let mut statement = self.db.prepare_cached(
            "SELECT name, path, every_seconds, engine, format, added_at, pass, run, attempt_at, error
             FROM target WHERE id = ?1",
        )?;
        let entry = statement.query_row([target], |row| {
            Ok(Entry {
                name: row.get(0)?,
                path: row.get(1)?,
                every_seconds: row.get(2)?,
                engine: row.get(3)?,
                format: row.get(4)?,
                added_at: row.get(5)?,
                pass: row.get(6)?,
                run: row.get(7)?,
                attempt_at: row.get(8)?,
                error: row.get(9)?,
            })
        });
        entry.context("cannot read the ledger")
    }

    /// The passes of a target, the last first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn passes(&self, target: TargetId, most: usize) -> Result<Vec<Pass>> {
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT number, begun_at, ended_at, is_complete, is_whole, seconds, bytes,
             untested_files, is_off, {} FROM pass WHERE target = ?1 ORDER BY number DESC LIMIT {most}",
            COUNTS.join(", ")
        ))?;
        let rows = statement.query_map([target], |row| {
            let mut counts = [0; 7];
            for (index, count) in counts.iter_mut().enumerate() {
                *count = uint(row.get(9 + index)?);
            }
            Ok(Pass {
                number: row.get(0)?,
                begun_at: row.get(1)?,
                ended_at: row.get(2)?,
                is_complete: row.get(3)?,
                is_whole: row.get(4)?,
                seconds: row.get(5)?,
                bytes: uint(row.get(6)?),
                untested_files: uint(row.get(7)?),
                is_off: row.get(8)?,
                counts,
            })
        })?;
        rows.collect::<Result<_, _>>().context("cannot read the ledger")
    }

    /// How much of a target is covered.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn coverage(&self, target: TargetId, now: i64) -> Result<Coverage> {
        let entry = self.entry(target)?;
        coverage(&self.db, target, &entry, now).context("cannot read the ledger")
    }

    /// What a run at this time has to do; `None` if nothing is due.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn due(&self, target: TargetId, every: Duration, now: i64) -> Result<Option<Due>> {
        let entry = self.entry(target)?;
        if entry.pass == 0 {
            return Ok(Some(Due::Begin));
        }
        let ended: Option<i64> = self
            .db
            .prepare_cached("SELECT ended_at FROM pass WHERE target = ?1 AND number = ?2")?
            .query_row(params![target, entry.pass], |row| row.get(0))
            .optional()?
            .flatten();
        if ended.is_none() {
            return Ok(Some(Due::Resume));
        }
        let coverage = self.coverage(target, now)?;
        let every = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
        // Without a claim there is nothing whose age could be known: the pass that ended tells.
        let oldest = coverage.oldest_at.or(ended).unwrap_or(now);
        if coverage.from_future || now.saturating_sub(oldest) >= due_age(every, &entry.name) {
            return Ok(Some(Due::Begin));
        }
        let left = self.to_catch_up(target, entry.pass)?;
        Ok((!left.is_empty()).then_some(Due::CatchUp))
    }

    /// When the next run has something to do: now, if something is due, but for what could not be
    /// opened last time, which is tried again later.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn next_run(&self, target: TargetId, every: Duration, now: i64) -> Result<i64> {
        let entry = self.entry(target)?;
        if self.due(target, every, now)?.is_some() {
            let failed_at = entry.attempt_at.filter(|_| entry.error.is_some());
            let again = failed_at.map(|at| at.saturating_add(int(AGAIN_AFTER.as_secs())));
            return Ok(again.map_or(now, |again| again.max(now)));
        }
        let every = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
        let coverage = self.coverage(target, now)?;
        let since = coverage.oldest_at.unwrap_or(now);
        Ok(since.saturating_add(due_age(every, &entry.name)))
    }

    /// Begins a pass; returns its number.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn begin_pass(&mut self, target: TargetId, now: i64) -> Result<i64> {
        let tx = self.writing()?;
        let number = begin_pass(&tx, target, now).context("cannot write the ledger")?;
        tx.commit().context("cannot write the ledger")?;
        Ok(number)
    }

    /// The verdict on a target by all that the ledger knows.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn verdict(&self, target: TargetId, now: i64) -> Result<Verdict> {
        let entry = self.entry(target)?;
        let coverage = coverage(&self.db, target, &entry, now)?;
        self.verdict_by(target, &entry, &coverage, &self.passes(target, 2)?)
    }

    /// The verdict on a target of which this is known, and its last two passes.
    pub(crate) fn verdict_by(
        &self,
        target: TargetId,
        entry: &Entry,
        coverage: &Coverage,
        last: &[Pass],
    ) -> Result<Verdict> {
        let open = self.open_counts(target)?;
        let ended = last.iter().find(|pass| pass.ended_at.is_some());
        let untested = ended.is_none_or(|pass| {
            // An undecided page is a hole in the claims.
            pass.untested_files > 0 || pass.count(Standing::Unverifiable) > 0
        });
        let has_unread = self.unread_count(target)? > 0;
        let incomplete = coverage.has_holes || untested || has_unread || entry.error.is_some();
        Ok(if open.damage > 0 {
            Verdict::Damaged
        } else if incomplete {
            Verdict::Incomplete
        } else if open.suspect > 0 {
            Verdict::Suspect
        } else if ended.is_some_and(is_unprotected) {
            Verdict::Unprotected
        } else {
            Verdict::Intact
        })
    }
}

/// Begins a pass in the transaction that is open; returns its number.
pub(crate) fn begin_pass(db: &Connection, target: TargetId, now: i64) -> rusqlite::Result<i64> {
    let number = db.query_row(
        "UPDATE target SET pass = pass + 1 WHERE id = ?1 RETURNING pass",
        [target],
        |row| row.get(0),
    )?;
    db.execute(
        "INSERT INTO pass (target, number, begun_at) VALUES (?1, ?2, ?3)",
        params![target, number, now],
    )?;
    Ok(number)
}

/// True if no pass over a target is under way.
pub(crate) fn is_between_passes(db: &Connection, target: TargetId) -> rusqlite::Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM pass p JOIN target t ON t.id = p.target
        AND t.pass = p.number WHERE t.id = ?1 AND p.ended_at IS NULL)";
    db.prepare_cached(sql)?.query_row([target], |row| row.get(0))
}

/// How old the oldest claim is when a pass begins.
fn due_age(every: i64, name: &str) -> i64 {
    let (part, whole) = DUE_SHARE;
    let latest = every / whole * part + every % whole * part / whole;
    latest - int(lot(name, uint(every / EARLIER)))
}

fn is_unprotected(pass: &Pass) -> bool {
    let used = pass.pages() - pass.count(Standing::Empty);
    pass.is_off || (used > 0 && pass.count(Standing::Unprotected) == used)
}

pub(crate) fn coverage(
    db: &Connection,
    target: TargetId,
    entry: &Entry,
    now: i64,
) -> rusqlite::Result<Coverage> {
    let one = |sql: &str| -> rusqlite::Result<i64> {
        db.prepare_cached(sql)?.query_row([target], |row| row.get(0))
    };
    let pages =
        one("SELECT coalesce(sum((end - first) / page_size), 0) FROM file WHERE target = ?1")?;
    let verified = one("SELECT coalesce(sum((c.end - c.begin) / f.page_size), 0) FROM claim c
         JOIN file f ON f.id = c.file JOIN target t ON t.id = f.target
         WHERE f.target = ?1 AND c.pass = t.pass")?;
    let (oldest, newest) = claimed_between(db, target)?;
    let hole = hole_since(db, target)?;
    let ended = db
        .prepare_cached(
            "SELECT p.ended_at IS NOT NULL FROM pass p JOIN target t
             ON t.id = p.target AND t.pass = p.number WHERE t.id = ?1",
        )?
        .query_row([target], |row| row.get::<_, bool>(0))
        .optional()?
        .unwrap_or(false);
    let waiting = first_of(oldest, hole, entry);
    let age = waiting.map_or(0, |since| now.saturating_sub(since).max(0));
    Ok(Coverage {
        pages: uint(pages),
        verified: uint(verified),
        oldest_unverified_seconds: uint(age),
        every_seconds: uint(entry.every_seconds),
        overdue: age > entry.every_seconds,
        pass_complete: ended && verified == pages,
        has_holes: hole.is_some() || !ended && entry.pass <= 1,
        from_future: newest.is_some_and(|newest| newest > now),
        oldest_at: oldest,
    })
}

/// Since when the page waits that waits longest: since it was verified, or since it is there.
pub(crate) fn waiting_since(
    db: &Connection,
    target: TargetId,
    entry: &Entry,
) -> rusqlite::Result<Option<i64>> {
    let (oldest, _) = claimed_between(db, target)?;
    Ok(first_of(oldest, hole_since(db, target)?, entry))
}

fn first_of(oldest: Option<i64>, hole: Option<i64>, entry: &Entry) -> Option<i64> {
    let never = (entry.pass == 0).then_some(entry.added_at);
    [oldest, hole, never].into_iter().flatten().min()
}

/// When the oldest claim and the newest were made.
fn claimed_between(
    db: &Connection,
    target: TargetId,
) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
    db.prepare_cached(
        "SELECT min(c.at), max(c.at) FROM claim c JOIN file f ON f.id = c.file WHERE f.target = ?1",
    )?
    .query_row([target], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Since when a file has pages that no claim covers.
fn hole_since(db: &Connection, target: TargetId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT min(hole_since) FROM file WHERE target = ?1")?
        .query_row([target], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::claims::{Identity, Listed, claim, file, mark_holes};
    use crate::ledger::tests::ledger;

    const EVERY: Duration = Duration::from_secs(1000);

    /// A ledger with a file of ten pages, verified at 2000 in the first pass.
    fn verified() -> (tempfile::TempDir, crate::state::Held, Ledger, TargetId, i64) {
        let (folder, held, mut ledger, target) = ledger();
        ledger.db.execute("UPDATE target SET every_seconds = 1000", []).unwrap();
        let identity = Identity { inode: 1, born: 1, changed: 1, size: 100 };
        let listed = Listed { name: "a".to_owned(), identity, page_size: 10, first: 0, end: 100 };
        ledger
            .list(target, crate::ledger::claims::Look::default(), std::iter::once(listed), 1990)
            .unwrap();
        assert_eq!(ledger.due(target, EVERY, 1990).unwrap(), Some(Due::Begin));
        let pass = ledger.begin_pass(target, 1995).unwrap();
        assert_eq!(ledger.due(target, EVERY, 1996).unwrap(), Some(Due::Resume));
        let id = file(&ledger.db, target, "a").unwrap().unwrap().id;
        claim(&ledger.db, id, 0, 100, pass, 2000).unwrap();
        mark_holes(&ledger.db, target, 2000).unwrap();
        ledger.db.execute("UPDATE pass SET ended_at = 2001, ok = 10", []).unwrap();
        (folder, held, ledger, target, id)
    }

    #[test]
    fn pass_is_due_before_the_promise_is_broken() {
        let (_folder, _held, ledger, target, _) = verified();
        let begins = 2000 + due_age(1000, "/data");
        assert!((2700..=2750).contains(&begins), "{begins}");
        for (now, due) in [(2001, None), (begins - 1, None), (begins, Some(Due::Begin))] {
            assert_eq!(ledger.due(target, EVERY, now).unwrap(), due, "{now}");
        }
        assert_eq!(ledger.next_run(target, EVERY, 2001).unwrap(), begins);
        assert_eq!(ledger.due(target, Duration::ZERO, 2000).unwrap(), Some(Due::Begin));
        assert!(!ledger.coverage(target, 3000).unwrap().overdue);
        let late = ledger.coverage(target, 3001).unwrap();
        assert!(late.overdue && late.pass_complete && late.oldest_unverified_seconds == 1001);
        assert_eq!(ledger.verdict(target, 3001).unwrap(), Verdict::Intact);
    }

    #[test]
    fn what_could_not_be_opened_is_not_tried_at_once() {
        let (_folder, _held, ledger, target, _) = verified();
        let due = 2800;
        assert_eq!(ledger.next_run(target, EVERY, due).unwrap(), due);
        ledger
            .db
            .execute("UPDATE target SET error = 'no such file', attempt_at = 2790", [])
            .unwrap();
        assert_eq!(ledger.next_run(target, EVERY, due).unwrap(), 3090);
        assert_eq!(ledger.next_run(target, EVERY, 4000).unwrap(), 4000, "nothing tries it");
    }

    #[test]
    fn clock_that_was_set_back_makes_what_is_claimed_due_and_not_young() {
        let (_folder, _held, ledger, target, _) = verified();
        assert_eq!(ledger.due(target, EVERY, 1999).unwrap(), Some(Due::Begin));
        let coverage = ledger.coverage(target, 500).unwrap();
        assert!(coverage.from_future && coverage.oldest_unverified_seconds == 0);
    }

    #[test]
    fn page_that_was_never_read_is_no_part_of_what_is_verified() {
        let (_folder, _held, ledger, target, id) = verified();
        crate::ledger::claims::cut(&ledger.db, id, 50, 60).unwrap();
        mark_holes(&ledger.db, target, 2100).unwrap();
        let coverage = ledger.coverage(target, 2200).unwrap();
        assert_eq!((coverage.pages, coverage.verified, coverage.pass_complete), (10, 9, false));
        assert_eq!(ledger.due(target, EVERY, 2200).unwrap(), Some(Due::CatchUp));
        assert_eq!(ledger.verdict(target, 2200).unwrap(), Verdict::Incomplete);
        // Nothing of it is as old as the promise, but the hole will be.
        assert!(ledger.coverage(target, 3101).unwrap().overdue);
    }
}

//! Findings and their lives: seen first, seen last, gone.
//!
//! A finding by a page's own test is closed when the page passes that test, is cut off, or goes with
//! its file. One by other evidence, or about a file as a whole, is closed when a run that read
//! everything, and so asked for that evidence, does not find it again.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use pagewarden::verdict::{Finding, Severity, SeverityCounts, Unread};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use super::{Ledger, TargetId, int, uint};

/// Open findings of one target that are kept. More would say nothing more, and fill the disk.
pub const OPEN_MAX: i64 = 10_000;

/// A finding that is open, or was.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What it is.
    pub finding: Finding,
    /// Of a repository: in which set.
    pub member: String,
    /// By the page's own test.
    pub is_own: bool,
    /// When it was seen first.
    pub first_at: i64,
    /// When it was seen last.
    pub last_at: i64,
    /// The run that saw it last.
    pub last_run: i64,
    /// When it was closed, and by what.
    pub closed: Option<(i64, String)>,
}

impl Kept {
    /// The fields of `check`, and the finding's life.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(&self.finding).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            if !self.member.is_empty() {
                object.insert("member".to_owned(), self.member.clone().into());
            }
            object.insert("first_seen".to_owned(), crate::moment::shown(self.first_at).into());
            object.insert("last_seen".to_owned(), crate::moment::shown(self.last_at).into());
            let closed = self.closed.as_ref();
            let at = closed.map(|(at, _)| crate::moment::shown(*at));
            object.insert("closed".to_owned(), at.into());
            object.insert("closed_by".to_owned(), closed.map(|(_, by)| by.clone()).into());
        }
        value
    }
}

impl Ledger {
    /// The open findings of a target, in the order of its files.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn open_findings(&self, target: TargetId) -> Result<Vec<Kept>> {
        self.findings(target, "closed_at IS NULL ORDER BY member, file, offset, page, id")
    }

    /// The gravest of the open findings of a target.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn gravest_findings(&self, target: TargetId, most: usize) -> Result<Vec<Kept>> {
        self.findings(
            target,
            &format!(
                "closed_at IS NULL ORDER BY severity = 'damage' DESC, severity = 'suspect' DESC,
                 member, file, offset, page, id LIMIT {most}"
            ),
        )
    }

    /// Findings of a target that were closed, the last of them first.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn closed_findings(&self, target: TargetId, most: usize) -> Result<Vec<Kept>> {
        let limit = format!("closed_at IS NOT NULL ORDER BY closed_at DESC, id DESC LIMIT {most}");
        self.findings(target, &limit)
    }

    fn findings(&self, target: TargetId, which: &str) -> Result<Vec<Kept>> {
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT body, member, is_own, first_at, last_at, last_run, closed_at, closed_by
             FROM finding WHERE target = ?1 AND {which}"
        ))?;
        let mut rows = statement.query([target])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let body: String = row.get(0)?;
            let closed_at: Option<i64> = row.get(6)?;
            let closed_by: Option<String> = row.get(7)?;
            all.push(Kept {
                finding: serde_json::from_str(&body)
                    .context("a finding in the ledger is damaged")?,
                member: row.get(1)?,
                is_own: row.get(2)?,
                first_at: row.get(3)?,
                last_at: row.get(4)?,
                last_run: row.get(5)?,
                closed: closed_at.map(|at| (at, closed_by.unwrap_or_default())),
            });
        }
        Ok(all)
    }

    /// How many findings of a target are open.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn open_counts(&self, target: TargetId) -> Result<SeverityCounts> {
        let mut counts = SeverityCounts::default();
        let mut statement = self.db.prepare_cached(
            "SELECT severity, count(*) FROM finding WHERE target = ?1 AND closed_at IS NULL
             GROUP BY severity",
        )?;
        let mut rows = statement.query([target])?;
        while let Some(row) = rows.next()? {
            let severity: String = row.get(0)?;
            let count = uint(row.get(1)?);
            match severity.as_str() {
                "damage" => counts.damage += count,
                "suspect" => counts.suspect += count,
                _ => counts.notice += count,
            }
        }
        Ok(counts)
    }

    /// How many stretches of a target could not be read, and have not been read since.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn unread_count(&self, target: TargetId) -> Result<u64> {
        let sql = "SELECT count(*) FROM unread WHERE target = ?1";
        Ok(uint(self.db.prepare_cached(sql)?.query_row([target], |row| row.get(0))?))
    }

    /// How many findings each target has ever had.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn findings_ever(&self) -> Result<HashMap<TargetId, u64>> {
        let sql = "SELECT target, count(*) FROM finding GROUP BY target";
        let mut statement = self.db.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, uint(row.get(1)?))))?;
        rows.collect::<Result<_, _>>().context("cannot read the ledger")
    }

    /// What runs before this one could not read of a target, or of one set of it, and has not been
    /// read since.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn unread_before(&self, target: TargetId, member: &str, run: i64) -> Result<Vec<Unread>> {
        let mut statement = self.db.prepare_cached(
            "SELECT file, offset, length, error FROM unread WHERE target = ?1 AND run < ?2
             AND member = ?3 ORDER BY rowid",
        )?;
        let rows = statement.query_map(params![target, run, member], |row| {
            let mut unread = Unread::of_file(row.get::<_, String>(0)?, row.get::<_, String>(3)?);
            unread.offset.0 = uint(row.get(1)?);
            unread.length = uint(row.get(2)?);
            Ok(unread)
        })?;
        rows.collect::<Result<_, _>>().context("cannot read the ledger")
    }
}

/// What a run writes findings down with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) target: TargetId,
    pub(crate) member: &'a str,
    pub(crate) run: i64,
    pub(crate) pass: i64,
    pub(crate) now: i64,
}

/// Writes a finding down: a new one, or one that is open still.
pub(crate) fn record(
    db: &Connection,
    run: Run<'_>,
    finding: &Finding,
    is_own: bool,
    room: &mut Room,
) -> rusqlite::Result<()> {
    let (page, offset) = (finding.place.page, finding.place.offset);
    let page = page.map(|page| int(page.0));
    let offset = offset.map(|offset| int(offset.0));
    let kind = finding.kind.name();
    let body = serde_json::to_string(finding)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    // A page has one open finding of its own, whatever its kind is today.
    let open = db
        .prepare_cached(
            "SELECT id FROM finding WHERE target = ?1 AND member = ?2 AND file = ?3 AND page IS ?4
             AND offset IS ?5 AND is_own = ?6 AND (kind = ?7 OR ?6) AND closed_at IS NULL",
        )?
        .query_row(
            params![run.target, run.member, finding.place.file, page, offset, is_own, kind],
            |row| row.get::<_, i64>(0),
        )
        .optional()?;
    let severity = finding.severity.name();
    if let Some(id) = open {
        db.prepare_cached(
            "UPDATE finding SET last_at = ?2, last_run = ?3, severity = ?4, body = ?5, kind = ?6,
                told = CASE WHEN severity <> 'damage' AND ?4 = 'damage' THEN NULL ELSE told END
             WHERE id = ?1",
        )?
        .execute(params![id, run.now, run.run, severity, body, kind])?;
        return Ok(());
    }
    if !room.take(finding.severity) {
        return Ok(());
    }
    db.prepare_cached(
        "INSERT INTO finding (target, member, file, page, offset, kind, severity, is_own, body,
            first_at, last_at, last_run)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)",
    )?
    .execute(params![
        run.target,
        run.member,
        finding.place.file,
        page,
        offset,
        kind,
        severity,
        is_own,
        body,
        run.now,
        run.run
    ])?;
    Ok(())
}

/// How many more findings of a target may be open. Counted once: it is asked for each finding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    all: i64,
    damage: i64,
}

impl Room {
    /// What open findings leave.
    pub(crate) fn of(db: &Connection, target: TargetId) -> rusqlite::Result<Self> {
        let (all, damage): (i64, i64) = db.query_row(
            "SELECT count(*), coalesce(sum(severity = 'damage'), 0) FROM finding
             WHERE target = ?1 AND closed_at IS NULL",
            [target],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(Self { all: OPEN_MAX - all, damage: OPEN_MAX - damage })
    }

    /// True if there is room for one of this severity. Notices and suspects keep no damage out.
    fn take(&mut self, severity: Severity) -> bool {
        let is_damage = severity == Severity::Damage;
        let left = if is_damage { self.damage } else { self.all };
        if left > 0 {
            self.all -= 1;
            self.damage -= i64::from(is_damage);
        }
        left > 0
    }
}

/// Pages of a file passed their own test: their findings by it are closed.
pub(crate) fn seen_sound(
    db: &Connection,
    run: Run<'_>,
    file: &str,
    begin: u64,
    end: u64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE finding SET closed_at = ?5, closed_by = 'the page was seen sound'
         WHERE target = ?1 AND file = ?2 AND offset >= ?3 AND offset < ?4 AND member = ?6
         AND is_own = 1 AND closed_at IS NULL",
    )?
    .execute(params![run.target, file, int(begin), int(end), run.now, run.member])?;
    Ok(())
}

/// A run has read everything: what it did not find again by evidence between files is gone. Where it
/// could not read something, what it would have found there is not known.
pub(crate) fn seen_all(db: &Connection, run: Run<'_>, own_too: bool) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE finding SET closed_at = ?3, closed_by = 'it was not found again'
         WHERE target = ?1 AND last_run < ?2 AND closed_at IS NULL AND (is_own = 0 OR ?4)
         AND NOT EXISTS (SELECT 1 FROM unread u
            WHERE u.target = ?1 AND u.run = ?2 AND u.member = finding.member)",
        params![run.target, run.run, run.now, own_too],
    )?;
    Ok(())
}

/// A set of a repository was read to its end: what was not found in it again is gone, and what could
/// not be read of it was asked for again.
pub(crate) fn seen_member(db: &Connection, run: Run<'_>) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE finding SET closed_at = ?4, closed_by = 'it was not found again'
         WHERE target = ?1 AND member = ?2 AND last_run < ?3 AND closed_at IS NULL
         AND NOT EXISTS (SELECT 1 FROM unread WHERE target = ?1 AND run = ?3 AND member = ?2)",
        params![run.target, run.member, run.run, run.now],
    )?;
    db.execute(
        "DELETE FROM unread WHERE target = ?1 AND member = ?2 AND run < ?3",
        params![run.target, run.member, run.run],
    )?;
    Ok(())
}

/// A range of a file was read: what could not be read of it before is of no interest any more.
pub(crate) fn seen_readable(
    db: &Connection,
    run: Run<'_>,
    file: &str,
    begin: u64,
    end: u64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM unread WHERE target = ?1 AND run < ?2 AND member = ?3 AND file = ?4
         AND ((offset >= ?5 AND offset < ?6) OR length = 0)",
    )?
    .execute(params![run.target, run.run, run.member, file, int(begin), int(end)])?;
    Ok(())
}

/// A run came to its end: what only earlier ones could not read is of files that are gone, or was
/// asked for again.
pub(crate) fn forget_unread(db: &Connection, run: Run<'_>, all: bool) -> rusqlite::Result<()> {
    db.execute(
        "DELETE FROM unread WHERE target = ?1 AND run < ?2 AND (?3 OR NOT EXISTS
         (SELECT 1 FROM file f WHERE f.target = ?1 AND f.name = unread.file))",
        params![run.target, run.run, all],
    )?;
    Ok(())
}

/// Writes down what could not be read.
pub(crate) fn record_unread(
    db: &Connection,
    run: Run<'_>,
    unread: &Unread,
) -> rusqlite::Result<()> {
    // What an earlier run could not read there either is the same.
    db.prepare_cached(
        "DELETE FROM unread WHERE target = ?1 AND run < ?2 AND member = ?3 AND file = ?4
         AND (offset = ?5 OR ?6 = 0)",
    )?
    .execute(params![
        run.target,
        run.run,
        run.member,
        unread.file,
        int(unread.offset.0),
        int(unread.length)
    ])?;
    db.prepare_cached(
        "INSERT INTO unread (target, run, member, file, offset, length, error)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        run.target,
        run.run,
        run.member,
        unread.file,
        int(unread.offset.0),
        int(unread.length),
        unread.error
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use pagewarden::verdict::{ByteOffset, Kind, PageNo};

    use super::*;
    use crate::ledger::tests::ledger;

    fn finding(file: &str, page: u64, severity: Severity, kind: Kind) -> Finding {
        let mut finding = Finding::of_file(file, severity, kind, String::new());
        finding.place.page = Some(PageNo(page));
        finding.place.offset = Some(ByteOffset(page * 10));
        finding
    }

    fn run(target: TargetId, run: i64) -> Run<'static> {
        Run { target, member: "", run, pass: 1, now: 100 + run }
    }

    fn recorded(db: &Connection, run: Run<'_>, finding: &Finding, is_own: bool) {
        record(db, run, finding, is_own, &mut Room::of(db, run.target).unwrap()).unwrap();
    }

    #[test]
    fn finding_stays_open_until_its_page_is_seen_sound() {
        let (_folder, _held, ledger, target) = ledger();
        let db = &ledger.db;
        recorded(db, run(target, 1), &finding("a", 3, Severity::Damage, Kind::Checksum), true);
        // Another kind of damage to the same page is the same finding.
        recorded(db, run(target, 2), &finding("a", 3, Severity::Damage, Kind::Torn), true);
        let open = ledger.open_findings(target).unwrap();
        assert_eq!(open.len(), 1);
        assert_eq!(
            (open[0].first_at, open[0].last_at, open[0].finding.kind),
            (101, 102, Kind::Torn)
        );
        seen_sound(db, run(target, 3), "a", 0, 30).unwrap();
        seen_sound(db, run(target, 3), "a", 40, 100).unwrap();
        seen_sound(db, run(target, 3), "b", 0, 100).unwrap();
        assert_eq!(ledger.open_counts(target).unwrap().damage, 1);
        seen_sound(db, run(target, 3), "a", 30, 40).unwrap();
        assert_eq!(ledger.open_counts(target).unwrap().damage, 0);
        let closed = ledger.closed_findings(target, 9).unwrap();
        assert_eq!(closed[0].closed, Some((103, "the page was seen sound".to_owned())));
        // Damaged again, it is another finding.
        recorded(db, run(target, 4), &finding("a", 3, Severity::Damage, Kind::Torn), true);
        assert_eq!(ledger.findings_ever().unwrap()[&target], 2);
    }

    #[test]
    fn what_two_runs_could_not_read_is_counted_once() {
        let (_folder, _held, ledger, target) = ledger();
        let db = &ledger.db;
        let mut part = Unread::of_file("a", "Input/output error");
        (part.offset.0, part.length) = (4096, 512);
        record_unread(db, run(target, 1), &part).unwrap();
        record_unread(db, run(target, 2), &part).unwrap();
        assert_eq!(ledger.unread_count(target).unwrap(), 1);
        // The whole file now, with what was one part of it.
        let whole = Unread::of_file("a", "Permission denied");
        record_unread(db, run(target, 3), &whole).unwrap();
        record_unread(db, run(target, 3), &Unread::of_file("b", "Permission denied")).unwrap();
        assert_eq!(ledger.unread_count(target).unwrap(), 2);
        assert!(ledger.unread_before(target, "", 3).unwrap().is_empty());
    }

    #[test]
    fn evidence_between_files_is_gone_only_when_all_was_read_again() {
        let (_folder, _held, ledger, target) = ledger();
        let db = &ledger.db;
        recorded(db, run(target, 1), &finding("a", 3, Severity::Damage, Kind::Stale), false);
        seen_sound(db, run(target, 2), "a", 0, 100).unwrap();
        assert_eq!(ledger.open_counts(target).unwrap().damage, 1);
        // What could not be read may be what told of it.
        record_unread(db, run(target, 2), &Unread::of_file("b", "Permission denied")).unwrap();
        seen_all(db, run(target, 2), false).unwrap();
        assert_eq!(ledger.open_counts(target).unwrap().damage, 1);
        seen_all(db, run(target, 3), false).unwrap();
        assert_eq!(ledger.open_counts(target).unwrap().damage, 0);
    }

    #[test]
    fn notices_do_not_keep_damage_out() {
        let (_folder, _held, ledger, target) = ledger();
        let db = &ledger.db;
        db.execute_batch("BEGIN").unwrap();
        let mut room = Room::of(db, target).unwrap();
        for page in 0..u64::try_from(OPEN_MAX).unwrap() + 5 {
            let notice = finding("a", page, Severity::Notice, Kind::Structure);
            record(db, run(target, 1), &notice, true, &mut room).unwrap();
        }
        recorded(db, run(target, 1), &finding("b", 1, Severity::Damage, Kind::Torn), true);
        let counts = ledger.open_counts(target).unwrap();
        assert_eq!((counts.notice, counts.damage), (uint(OPEN_MAX), 1));
    }
}

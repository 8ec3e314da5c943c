//! Files and claims: which run of pages was verified in which pass, and when.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Ledger, TargetId, int, uint};

/// Claims of one pass that lie together are one, if they are no further apart in time than this;
/// the older time counts.
const ONE_CLAIM_SECONDS: i64 = 3600;

/// What a file looks like, so that another one in its place is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number in the file system.
    pub inode: i64,
    /// When it was made, in nanoseconds; 0 where the file system does not say.
    pub born: i64,
    /// When it was last changed, in nanoseconds; 0 where that says nothing.
    pub changed: i64,
    /// Its length.
    pub size: u64,
}

/// A file as the target lists it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name in the target.
    pub name: String,
    /// What it looks like.
    pub identity: Identity,
    /// Bytes in a page.
    pub page_size: u64,
    /// Where its first page begins.
    pub first: u64,
    /// Where its last whole page ends.
    pub end: u64,
}

/// A file as the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// Its number.
    pub id: i64,
    /// Where its first page begins.
    pub first: u64,
    /// Where its last whole page ends.
    pub end: u64,
}

/// How the files of a target were looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// A server changes them at any time, so that a change alone says nothing.
    pub live: bool,
    /// A folder could not be looked into, or was not there: files that are not listed may be there.
    pub is_blind: bool,
}

impl Ledger {
    /// Enters all files of a target before any is read: claims of files that are not what they
    /// were are dropped. True if files were lost without a reason that is known: of a database at
    /// rest any, of a running one those of a folder that cannot be looked into.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn list(
        &mut self,
        target: TargetId,
        look: Look,
        files: impl Iterator<Item = Listed>,
        now: i64,
    ) -> Result<bool> {
        let Look { live, is_blind } = look;
        let mut is_lost = false;
        let tx = self.writing()?;
        let change = || -> rusqlite::Result<()> {
            tx.execute("UPDATE target SET run = run + 1 WHERE id = ?1", [target])?;
            let run: i64 =
                tx.query_row("SELECT run FROM target WHERE id = ?1", [target], |row| row.get(0))?;
            for file in files {
                is_lost |= list_one(&tx, target, run, live, &file)? && !live;
            }
            let gone = "SELECT id FROM file WHERE target = ?1 AND listed <> ?2";
            tx.execute(&format!("DELETE FROM claim WHERE file IN ({gone})"), params![target, run])?;
            if !is_blind {
                tx.execute(
                    "UPDATE finding SET closed_at = ?3, closed_by = 'the file is gone'
                     WHERE target = ?1 AND closed_at IS NULL AND is_own = 1 AND member = '' AND file IN
                     (SELECT name FROM file WHERE target = ?1 AND listed <> ?2)",
                    params![target, run, now],
                )?;
            }
            let gone = tx.execute(
                "DELETE FROM file WHERE target = ?1 AND listed <> ?2",
                params![target, run],
            )?;
            is_lost |= gone > 0 && (!live || is_blind);
            // Of pages that are cut off nothing can be said any more.
            tx.execute(
                "UPDATE finding SET closed_at = ?2, closed_by = 'the page was cut off'
                 WHERE target = ?1 AND closed_at IS NULL AND is_own = 1 AND member = ''
                 AND offset >= (SELECT f.size FROM file f WHERE f.target = ?1 AND f.name = finding.file)",
                params![target, now],
            )?;
            mark_holes(&tx, target, now)
        };
        change().and_then(|()| tx.commit()).context("cannot write the ledger")?;
        Ok(is_lost)
    }

    /// Files of a target that a reading would begin in, with where: after what this pass has read
    /// of each of them.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn unread_in_pass(&self, target: TargetId, pass: i64) -> Result<HashMap<String, u64>> {
        // Not the first hole: a stretch that cannot be read must not be where every run begins.
        self.beginnings(
            "SELECT f.name, max(f.first, coalesce(
                (SELECT max(c.end) FROM claim c WHERE c.file = f.id AND c.pass = ?2), f.first)) AS begin
             FROM file f WHERE f.target = ?1 AND begin < f.end",
            target,
            pass,
        )
    }

    /// Files with pages that no claim covers, and were not tried in this pass, and those with open
    /// findings of their own.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn to_catch_up(&self, target: TargetId, pass: i64) -> Result<HashMap<String, u64>> {
        let mut files = self.beginnings(
            "SELECT f.name, coalesce(
                (SELECT min(c.end) FROM claim c WHERE c.file = f.id AND NOT EXISTS
                    (SELECT 1 FROM claim d WHERE d.file = c.file AND d.begin = c.end)
                 AND EXISTS (SELECT 1 FROM claim e WHERE e.file = c.file AND e.begin = f.first)),
                f.first) AS begin
             FROM file f WHERE f.target = ?1 AND f.tried < ?2 AND begin < f.end",
            target,
            pass,
        )?;
        let with_findings = self.beginnings(
            "SELECT DISTINCT f.name, f.first FROM file f JOIN finding n
             ON n.target = f.target AND n.file = f.name
             WHERE f.target = ?1 AND n.closed_at IS NULL AND n.is_own = 1 AND ?2 > 0 AND f.first < f.end",
            target,
            pass,
        )?;
        files.extend(with_findings);
        Ok(files)
    }

    fn beginnings(&self, sql: &str, target: TargetId, pass: i64) -> Result<HashMap<String, u64>> {
        let mut statement = self.db.prepare_cached(sql)?;
        let rows = statement.query_map(params![target, pass], |row| {
            Ok((row.get::<_, String>(0)?, uint(row.get(1)?)))
        })?;
        rows.collect::<Result<_, _>>().context("cannot read the ledger")
    }

    /// The number of files of a target that have pages.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn file_count(&self, target: TargetId) -> Result<usize> {
        let sql = "SELECT count(*) FROM file WHERE target = ?1 AND first < end";
        let count: i64 = self.db.query_row(sql, [target], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// Enters one file. True if it is shorter than it was.
fn list_one(
    db: &Connection,
    target: TargetId,
    run: i64,
    live: bool,
    file: &Listed,
) -> rusqlite::Result<bool> {
    let Identity { inode, born, changed, size } = file.identity;
    let mut known = db.prepare_cached(
        "SELECT id, inode, born, changed, size, page_size, first FROM file
         WHERE target = ?1 AND name = ?2",
    )?;
    let known = known
        .query_row(params![target, file.name], |row| {
            let identity = Identity {
                inode: row.get(1)?,
                born: row.get(2)?,
                changed: row.get(3)?,
                size: uint(row.get(4)?),
            };
            Ok((row.get::<_, i64>(0)?, identity, uint(row.get(5)?), uint(row.get(6)?)))
        })
        .optional()?;
    let Some((id, before, page_size, first)) = known else {
        db.prepare_cached(
            "INSERT INTO file (target, name, inode, born, changed, size, page_size, first, end, listed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            target,
            file.name,
            inode,
            born,
            changed,
            int(size),
            int(file.page_size),
            int(file.first),
            int(file.end),
            run
        ])?;
        return Ok(false);
    };
    let is_replaced = (before.inode, before.born) != (inode, born)
        || page_size != file.page_size
        || first != file.first;
    // A time of 0 fits none: it was too young to tell a change from none.
    let is_changed = before.changed != changed || changed == 0 || before.size != size;
    if is_replaced || (is_changed && !live) {
        db.prepare_cached("DELETE FROM claim WHERE file = ?1")?.execute([id])?;
        db.prepare_cached("UPDATE file SET tried = 0 WHERE id = ?1")?.execute([id])?;
    } else if before.size != size {
        cut(db, id, file.end, u64::MAX)?;
    }
    db.prepare_cached(
        "UPDATE file SET inode = ?2, born = ?3, changed = ?4, size = ?5, page_size = ?6, first = ?7,
         end = ?8, listed = ?9 WHERE id = ?1",
    )?
    .execute(params![
        id,
        inode,
        born,
        changed,
        int(size),
        int(file.page_size),
        int(file.first),
        int(file.end),
        run
    ])?;
    Ok(size < before.size)
}

/// Notes since when files have pages that no claim covers.
pub(crate) fn mark_holes(db: &Connection, target: TargetId, now: i64) -> rusqlite::Result<()> {
    let has_hole = "f.end - f.first >
        coalesce((SELECT sum(c.end - c.begin) FROM claim c WHERE c.file = f.id), 0)";
    db.execute(
        &format!("UPDATE file AS f SET hole_since = ?2 WHERE target = ?1 AND hole_since IS NULL AND {has_hole}"),
        params![target, now],
    )?;
    db.execute(
        &format!("UPDATE file AS f SET hole_since = NULL WHERE target = ?1 AND hole_since IS NOT NULL AND NOT {has_hole}"),
        [target],
    )?;
    Ok(())
}

/// The file of that name.
pub(crate) fn file(
    db: &Connection,
    target: TargetId,
    name: &str,
) -> rusqlite::Result<Option<Entered>> {
    db.prepare_cached("SELECT id, first, end FROM file WHERE target = ?1 AND name = ?2")?
        .query_row(params![target, name], |row| {
            Ok(Entered { id: row.get(0)?, first: uint(row.get(1)?), end: uint(row.get(2)?) })
        })
        .optional()
}

/// Takes back what is claimed of a range.
pub(crate) fn cut(db: &Connection, file: i64, begin: u64, end: u64) -> rusqlite::Result<()> {
    let (begin, end) = (int(begin), int(end));
    let mut overlapping = db.prepare_cached(
        "SELECT begin, end, pass, at FROM claim WHERE file = ?1 AND begin < ?3 AND end > ?2",
    )?;
    let claims: Vec<(i64, i64, i64, i64)> = overlapping
        .query_map(params![file, begin, end], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?
        .collect::<Result<_, _>>()?;
    for (from, to, pass, at) in claims {
        db.prepare_cached("DELETE FROM claim WHERE file = ?1 AND begin = ?2")?
            .execute([file, from])?;
        for (from, to) in [(from, to.min(begin)), (from.max(end), to)] {
            if from < to {
                insert(db, file, from, to, pass, at)?;
            }
        }
    }
    Ok(())
}

/// Claims a range that was read and judged.
pub(crate) fn claim(
    db: &Connection,
    file: i64,
    begin: u64,
    end: u64,
    pass: i64,
    at: i64,
) -> rusqlite::Result<()> {
    if begin >= end {
        return Ok(());
    }
    cut(db, file, begin, end)?;
    let (begin, end) = (int(begin), int(end));
    let mut before = db.prepare_cached(
        "UPDATE claim SET end = ?3, at = min(at, ?5)
         WHERE file = ?1 AND end = ?2 AND pass = ?4 AND abs(at - ?5) <= ?6",
    )?;
    if before.execute(params![file, begin, end, pass, at, ONE_CLAIM_SECONDS])? == 0 {
        insert(db, file, begin, end, pass, at)?;
    }
    Ok(())
}

fn insert(
    db: &Connection,
    file: i64,
    begin: i64,
    end: i64,
    pass: i64,
    at: i64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO claim (file, begin, end, pass, at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute([file, begin, end, pass, at])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::ledger;

    fn listed(name: &str, size: u64, changed: i64) -> Listed {
        let identity = Identity { inode: 7, born: 1, changed, size };
        Listed { name: name.to_owned(), identity, page_size: 10, first: 0, end: size / 10 * 10 }
    }

    fn claims(ledger: &Ledger) -> Vec<(i64, i64, i64, i64)> {
        let mut rows = ledger
            .db
            .prepare("SELECT begin, end, pass, at FROM claim ORDER BY file, begin")
            .unwrap();
        let rows =
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn newer_claims_take_the_place_of_older_ones_exactly() {
        let (_folder, _held, mut ledger, target) = ledger();
        ledger.list(target, Look::default(), [listed("a", 100, 5)].into_iter(), 0).unwrap();
        let id = file(&ledger.db, target, "a").unwrap().unwrap().id;
        claim(&ledger.db, id, 0, 100, 1, 50).unwrap();
        claim(&ledger.db, id, 20, 40, 2, 60).unwrap();
        assert_eq!(claims(&ledger), [(0, 20, 1, 50), (20, 40, 2, 60), (40, 100, 1, 50)]);
        claim(&ledger.db, id, 40, 50, 2, 61).unwrap();
        assert_eq!(claims(&ledger), [(0, 20, 1, 50), (20, 50, 2, 60), (50, 100, 1, 50)]);
        // Hours later it is a claim of its own.
        claim(&ledger.db, id, 50, 60, 2, 61 + 7200).unwrap();
        assert_eq!(claims(&ledger).len(), 4);
        claim(&ledger.db, id, 0, 100, 3, 9000).unwrap();
        assert_eq!(claims(&ledger), [(0, 100, 3, 9000)]);
        claim(&ledger.db, id, 30, 30, 4, 9000).unwrap();
        assert_eq!(claims(&ledger), [(0, 100, 3, 9000)]);
    }

    /// The claims that are left of one over all of a file, once it looks like this.
    fn left(live: bool, change: impl FnOnce(&mut Listed)) -> Vec<(i64, i64, i64, i64)> {
        let (_folder, _held, mut ledger, target) = ledger();
        ledger
            .list(target, Look { live, is_blind: false }, [listed("a", 100, 5)].into_iter(), 0)
            .unwrap();
        let id = file(&ledger.db, target, "a").unwrap().unwrap().id;
        claim(&ledger.db, id, 0, 100, 1, 50).unwrap();
        let mut now = listed("a", 100, 5);
        change(&mut now);
        ledger.list(target, Look { live, is_blind: false }, [now].into_iter(), 60).unwrap();
        claims(&ledger)
    }

    #[test]
    fn file_that_is_not_what_it_was_loses_the_claims_it_must() {
        let all = [(0, 100, 1, 50)];
        let resize = |size: u64| {
            move |file: &mut Listed| {
                file.identity.size = size;
                file.end = size;
            }
        };
        for live in [false, true] {
            assert_eq!(left(live, |_| ()), all);
            assert_eq!(left(live, |file| file.identity.inode = 8), []);
            // The same number, for another file.
            assert_eq!(left(live, |file| file.identity.born = 2), []);
            assert_eq!(left(live, |file| file.page_size = 20), []);
        }
        assert_eq!(left(false, |file| file.identity.changed = 6), []);
        assert_eq!(left(true, |file| file.identity.changed = 6), all);
        assert_eq!(left(false, |file| file.identity.changed = 0), []);
        assert_eq!(left(false, resize(50)), []);
        assert_eq!(left(true, resize(50)), [(0, 50, 1, 50)]);
        assert_eq!(left(true, resize(150)), all);
    }

    #[test]
    fn file_that_is_gone_takes_its_claims_along() {
        let (_folder, _held, mut ledger, target) = ledger();
        ledger
            .list(
                target,
                Look { live: true, is_blind: false },
                [listed("a", 100, 5)].into_iter(),
                0,
            )
            .unwrap();
        let id = file(&ledger.db, target, "a").unwrap().unwrap().id;
        claim(&ledger.db, id, 0, 100, 1, 50).unwrap();
        ledger
            .list(
                target,
                Look { live: true, is_blind: false },
                [listed("b", 100, 5)].into_iter(),
                60,
            )
            .unwrap();
        assert_eq!((claims(&ledger), ledger.file_count(target).unwrap()), (vec![], 1));
    }

    #[test]
    fn reading_begins_behind_what_this_pass_has_read() {
        let (_folder, _held, mut ledger, target) = ledger();
        let files = ["a", "b", "c", "d"].map(|name| listed(name, 100, 5));
        ledger
            .list(
                target,
                Look { live: true, is_blind: false },
                files.into_iter().chain([listed("empty", 3, 5)]),
                0,
            )
            .unwrap();
        let id = |name: &str| file(&ledger.db, target, name).unwrap().unwrap().id;
        claim(&ledger.db, id("a"), 0, 100, 2, 50).unwrap();
        claim(&ledger.db, id("b"), 0, 30, 2, 50).unwrap();
        claim(&ledger.db, id("b"), 40, 60, 2, 50).unwrap();
        claim(&ledger.db, id("b"), 60, 100, 1, 50).unwrap();
        claim(&ledger.db, id("c"), 0, 100, 1, 50).unwrap();
        let begins = |pairs: &[(&str, u64)]| {
            pairs
                .iter()
                .map(|(name, begin)| ((*name).to_owned(), *begin))
                .collect::<HashMap<_, _>>()
        };
        assert_eq!(
            ledger.unread_in_pass(target, 2).unwrap(),
            begins(&[("b", 60), ("c", 0), ("d", 0)])
        );
        // With nothing under way, only what no pass has read.
        assert_eq!(ledger.to_catch_up(target, 2).unwrap(), begins(&[("b", 30), ("d", 0)]));
        ledger.db.execute("UPDATE file SET tried = 2 WHERE name = 'b'", []).unwrap();
        assert_eq!(ledger.to_catch_up(target, 2).unwrap(), begins(&[("d", 0)]));
    }
}

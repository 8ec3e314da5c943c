//! What has changed since it was last reported: one transaction marks it as reported and writes the
//! events of all ways.

use anyhow::{Context as _, Result};
use pagewarden::verdict::Finding;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde_json::{Value, json};

use super::way::{Topic, Way};
use crate::config::Subject;
use crate::ledger::passes;
use crate::ledger::{Ledger, TargetId, int};

/// Findings of one kind of event that are shown; all are counted.
pub(super) const SAMPLES_MAX: usize = 20;
/// Changes of a database that are looked at in one transaction, so that a scrub never waits long.
const CHANGES_MAX: usize = 2000;

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Finding,
    Gone,
    Overdue,
    InTime,
    Unreadable,
    Readable,
}

impl What {
    pub(super) const ALL: [Self; 6] =
        [Self::Finding, Self::Unreadable, Self::Overdue, Self::Gone, Self::Readable, Self::InTime];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Gone => "gone",
            Self::Overdue => "overdue",
            Self::InTime => "in_time",
            Self::Unreadable => "unreadable",
            Self::Readable => "readable",
        }
    }

    fn topic(self) -> Topic {
        match self {
            Self::Finding => Topic::Finding,
            Self::Gone => Topic::Gone,
            Self::Overdue | Self::InTime => Topic::Overdue,
            Self::Unreadable | Self::Readable => Topic::Unreadable,
        }
    }
}

/// See [`super::look`].
pub(super) fn look(
    ledger: &mut Ledger,
    subjects: &[Subject],
    ways: &[Way],
    now: i64,
) -> Result<()> {
    if ways.is_empty() {
        return Ok(());
    }
    for subject in subjects {
        let Some(target) = ledger.target(&subject.name)? else { continue };
        let state = state(ledger, subject, target, now)?;
        if !state.has_changed(&ledger.db, target)? {
            continue;
        }
        let write = |ledger: &mut Ledger| -> rusqlite::Result<()> {
            let tx = ledger.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let out = Out { db: &tx, ways, target, now };
            findings(&out)?;
            out.turn(What::Overdue, What::InTime, state.overdue.as_ref())?;
            out.turn(What::Unreadable, What::Readable, state.unreadable.as_ref())?;
            tx.commit()
        };
        write(ledger).context("cannot write the ledger")?;
    }
    Ok(())
}

/// How a database stands; `Some` where that is to be reported, with what is said of it.
struct State {
    overdue: Option<Value>,
    unreadable: Option<Value>,
}

impl State {
    /// False if all of this was reported before.
    fn has_changed(&self, db: &Connection, target: TargetId) -> Result<bool> {
        let mut told = db.prepare_cached("SELECT 1 FROM told WHERE target = ?1 AND what = ?2")?;
        for (what, now) in [(What::Overdue, &self.overdue), (What::Unreadable, &self.unreadable)] {
            if told.exists(params![target, what.name()])? != now.is_some() {
                return Ok(true);
            }
        }
        Ok(db
            .prepare_cached(&format!("SELECT 1 FROM finding WHERE {UNTOLD} LIMIT 1"))?
            .exists([target])?)
    }
}

fn state(ledger: &Ledger, subject: &Subject, target: TargetId, now: i64) -> Result<State> {
    let entry = ledger.entry(target)?;
    let waiting =
        passes::waiting_since(&ledger.db, target, &entry).context("cannot read the ledger")?;
    let age = waiting.map_or(0, |since| now.saturating_sub(since).max(0));
    let every = int(subject.every.as_secs());
    // To begin at once is no promise.
    let overdue = (every > 0 && age > every)
        .then(|| json!({"oldest_unverified_seconds": age, "every_seconds": every}));
    let unread = ledger.unread_count(target)?;
    let first: Option<(String, String)> = ledger
        .db
        .prepare_cached("SELECT file, error FROM unread WHERE target = ?1 ORDER BY rowid LIMIT 1")?
        .query_row([target], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let unreadable = match (entry.error, first) {
        (Some(error), _) => Some(json!({ "error": error })),
        (None, Some((file, error))) => {
            Some(json!({"stretches": unread, "file": file, "error": error}))
        }
        (None, None) => None,
    };
    Ok(State { overdue, unreadable })
}

/// Findings whose last change was not reported.
const UNTOLD: &str = "target = ?1 AND (told IS NULL OR (closed_at IS NOT NULL AND told <> 'gone'))";

/// Where events go.
struct Out<'a> {
    db: &'a Connection,
    ways: &'a [Way],
    target: TargetId,
    now: i64,
}

impl Out<'_> {
    /// Adds changes to an event.
    fn add(&self, what: What, count: usize, samples: &[Value]) -> rusqlite::Result<()> {
        if count == 0 {
            return Ok(());
        }
        for way in self.ways.iter().filter(|way| way.on.contains(&what.topic())) {
            let key = params![way.name, self.target, what.name()];
            let before: Option<String> = self
                .db
                .prepare_cached(
                    "SELECT samples FROM event WHERE way = ?1 AND target = ?2 AND what = ?3",
                )?
                .query_row(key, |row| row.get(0))
                .optional()?;
            let mut all: Vec<Value> =
                before.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            all.extend(samples.iter().cloned());
            all.truncate(SAMPLES_MAX);
            self.db
                .prepare_cached(
                    "INSERT INTO event (way, target, what, at, count, samples)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT DO UPDATE SET count = count + ?5, samples = ?6",
                )?
                .execute(params![
                    way.name,
                    self.target,
                    what.name(),
                    self.now,
                    int(count as u64),
                    Value::Array(all).to_string()
                ])?;
        }
        Ok(())
    }

    /// Reports that a state has begun or ended, once.
    fn turn(&self, begin: What, end: What, state: Option<&Value>) -> rusqlite::Result<()> {
        let key = params![self.target, begin.name()];
        let told = self
            .db
            .prepare_cached("SELECT 1 FROM told WHERE target = ?1 AND what = ?2")?
            .exists(key)?;
        match (told, state) {
            (false, Some(state)) => {
                self.db.execute(
                    "INSERT INTO told (target, what, at) VALUES (?1, ?2, ?3)",
                    params![self.target, begin.name(), self.now],
                )?;
                self.add(begin, 1, std::slice::from_ref(state))
            }
            (true, None) => {
                self.db.execute("DELETE FROM told WHERE target = ?1 AND what = ?2", key)?;
                self.add(end, 1, &[json!({})])
            }
            _ => Ok(()),
        }
    }
}

/// Reports findings that are new, have become damage, or are closed.
fn findings(out: &Out<'_>) -> rusqlite::Result<()> {
    let mut statement = out.db.prepare_cached(&format!(
        "SELECT id, severity, body, told, closed_by FROM finding WHERE {UNTOLD} ORDER BY id
         LIMIT {CHANGES_MAX}"
    ))?;
    let mut rows = statement.query([out.target])?;
    let mut begun = (0, Vec::new());
    let mut gone = (0, Vec::new());
    let mut told_now: Vec<(i64, String)> = Vec::new();
    let add = |list: &mut (usize, Vec<Value>), body: &str, closed_by: Option<&str>| {
        list.0 += 1;
        if list.1.len() < SAMPLES_MAX {
            list.1.push(sample(body, closed_by));
        }
    };
    while let Some(row) = rows.next()? {
        let (id, severity): (i64, String) = (row.get(0)?, row.get(1)?);
        let body: String = row.get(2)?;
        let told: Option<String> = row.get(3)?;
        let closed_by: Option<String> = row.get(4)?;
        // What is harmless wakes no one, neither when it comes nor when it goes.
        let is_alarm = severity != "notice";
        if told.is_none() && is_alarm {
            add(&mut begun, &body, None);
        }
        if closed_by.is_some() && is_alarm {
            add(&mut gone, &body, closed_by.as_deref());
        }
        told_now.push((id, if closed_by.is_some() { "gone".to_owned() } else { severity }));
    }
    drop(rows);
    drop(statement);
    for (id, told) in told_now {
        out.db
            .prepare_cached("UPDATE finding SET told = ?2 WHERE id = ?1")?
            .execute(params![id, told])?;
    }
    out.add(What::Finding, begun.0, &begun.1)?;
    out.add(What::Gone, gone.0, &gone.1)
}

/// What a message says of a finding.
fn sample(body: &str, closed_by: Option<&str>) -> Value {
    let Ok(finding) = serde_json::from_str::<Finding>(body) else { return json!({}) };
    let mut value = json!({
        "file": finding.place.file,
        "page": finding.place.page.map(|page| page.0),
        "severity": finding.severity.name(),
        "kind": finding.kind.name(),
        "object": finding.object,
        "detail": finding.detail,
    });
    if let (Some(object), Some(by)) = (value.as_object_mut(), closed_by) {
        object.insert("closed_by".to_owned(), by.into());
    }
    value
}

//! Tells people and programs of changes: findings, findings that are gone, databases that are overdue
//! or cannot be read.
//!
//! ```text
//! ledger --look--> events, by way and kind --gather--> message --deliver--> taken, or tried again
//! ```
//!
//! Each step is one transaction of the ledger. A change becomes an event in the transaction that marks
//! it as reported, and events become a message in the transaction that removes them, so a kill at any
//! moment neither loses a change nor reports it in two messages. A kill between the moment when a
//! receiver takes a message and the next commit sends that message again, with the same id: a receiver
//! that must not see it twice compares ids.
//!
//! A way has one message under way. Changes that come meanwhile are collected for the next one, which
//! has their number and the first of them: an outage of a receiver, or a disk that dies, makes one
//! message and not thousands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rusqlite::{OptionalExtension as _, params};

use crate::config::Subject;
use crate::ledger::{Ledger, int, uint};
use crate::notify::deliver::Delivery;
use crate::notify::way::Way;

pub(crate) mod changes;
pub mod deliver;
mod message;
pub mod way;

/// A message is given up after this.
const GIVE_UP_SECONDS: i64 = 3 * 24 * 3600;
/// The first wait after a failed attempt, and the longest.
const BACK_OFF_SECONDS: (i64, i64) = (10, 3600);
const HOUR: i64 = 3600;
/// Messages that are done are forgotten after this.
const KEEP_SECONDS: i64 = 30 * 24 * 3600;

/// Where messages go.
pub struct Notifier<'a> {
    /// Posts to webhooks.
    pub post: &'a deliver::Post,
    /// Ends all waiting.
    pub stop: Arc<AtomicBool>,
    /// Takes a line for people.
    pub log: &'a (dyn Fn(&str) + Sync),
}

impl std::fmt::Debug for Notifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

/// A message that has not been taken.
#[derive(Debug)]
struct Waiting {
    number: i64,
    made_at: i64,
    body: String,
    attempts: i64,
    next_at: i64,
}

impl Notifier<'_> {
    /// Makes messages of what is collected, and sends what is due. `at_once`: a run is at its end, and
    /// does not collect any longer.
    ///
    /// # Errors
    /// The ledger cannot be read or written. What a receiver does is no error.
    pub fn send(&self, ledger: &mut Ledger, ways: &[Way], now: i64, at_once: bool) -> Result<()> {
        for way in ways {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let waiting = match waiting(ledger, way)? {
                Some(waiting) => Some(waiting),
                None if gather(ledger, way, now, at_once)? => waiting(ledger, way)?,
                None => None,
            };
            if let Some(waiting) = waiting {
                self.attempt(ledger, way, &waiting, now)?;
            }
        }
        forget(ledger, now)
    }

    fn attempt(&self, ledger: &mut Ledger, way: &Way, waiting: &Waiting, now: i64) -> Result<()> {
        // A clock that was set back must not make anyone wait for years.
        let longest = now.saturating_add(BACK_OFF_SECONDS.1);
        if (now..=longest).contains(&waiting.next_at) && waiting.next_at > now {
            return Ok(());
        }
        let id = format!("{}-{}", ledger.identity()?, waiting.number);
        let delivery = Delivery { id: &id, body: &waiting.body, post: self.post, stop: &self.stop };
        let error = match delivery.by(&way.by) {
            Ok(()) => None,
            // It is sent when the program is started again.
            Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(()),
            Err(error) => Some(error),
        };
        let name = &way.name;
        let is_over = now.saturating_sub(waiting.made_at) >= GIVE_UP_SECONDS;
        let done = (error.is_none() || is_over).then_some(now);
        let attempts = waiting.attempts.saturating_add(1);
        let set = "UPDATE message SET attempts = ?2, next_at = ?3, done_at = ?4, error = ?5
                   WHERE id = ?1";
        let next = now.saturating_add(back_off(attempts));
        let row = params![waiting.number, attempts, next, done, error];
        ledger.db.execute(set, row).context("cannot write the ledger")?;
        match &error {
            Some(error) if is_over => {
                (self.log)(&format!("notify {name}: message {id} is given up: {error}"));
            }
            Some(error) if attempts == 1 => {
                (self.log)(&format!("notify {name}: {error}; it is tried again"));
            }
            None if attempts > 1 => {
                (self.log)(&format!("notify {name}: sent at attempt {attempts}"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes down what has changed, for all ways.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn look(ledger: &mut Ledger, subjects: &[Subject], ways: &[Way], now: i64) -> Result<()> {
    changes::look(ledger, subjects, ways, now)
}

/// How many findings are new or closed and were not looked at: asked often, and answered by an index.
///
/// # Errors
/// The ledger cannot be read.
pub fn untold(ledger: &Ledger) -> Result<u64> {
    let sql = "SELECT count(*) FROM finding
               WHERE told IS NULL OR (closed_at IS NOT NULL AND told <> 'gone')";
    Ok(uint(ledger.db.prepare_cached(sql)?.query_row([], |row| row.get(0))?))
}

fn back_off(attempts: i64) -> i64 {
    let (first, longest) = BACK_OFF_SECONDS;
    let doublings = u32::try_from(attempts.saturating_sub(1).clamp(0, 30)).unwrap_or(30);
    first.saturating_mul(1_i64 << doublings).min(longest)
}

fn waiting(ledger: &Ledger, way: &Way) -> Result<Option<Waiting>> {
    let found = ledger.db.query_row(
        "SELECT id, made_at, body, attempts, next_at FROM message
         WHERE way = ?1 AND done_at IS NULL ORDER BY id LIMIT 1",
        [&way.name],
        |row| {
            Ok(Waiting {
                number: row.get(0)?,
                made_at: row.get(1)?,
                body: row.get(2)?,
                attempts: row.get(3)?,
                next_at: row.get(4)?,
            })
        },
    );
    found.optional().context("cannot read the ledger")
}

/// Makes a message of what is collected, if it is time. True if there is one.
fn gather(ledger: &mut Ledger, way: &Way, now: i64, at_once: bool) -> Result<bool> {
    let oldest: Option<i64> = ledger
        .db
        .query_row("SELECT min(at) FROM event WHERE way = ?1", [&way.name], |row| row.get(0))
        .context("cannot read the ledger")?;
    let Some(oldest) = oldest else { return Ok(false) };
    let wait = int(way.wait.as_secs());
    // An event of the future: the clock was set back.
    if !at_once && oldest <= now && now.saturating_sub(oldest) < wait {
        return Ok(false);
    }
    let sent: i64 = ledger.db.query_row(
        "SELECT count(*) FROM message WHERE way = ?1 AND made_at > ?2 AND made_at <= ?3",
        params![way.name, now.saturating_sub(HOUR), now],
        |row| row.get(0),
    )?;
    if sent >= i64::from(way.per_hour) {
        return Ok(false);
    }
    let body = message::of_events(ledger, &way.name, now)?;
    let write = || -> rusqlite::Result<()> {
        let tx = ledger.db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute(
            "INSERT INTO message (way, made_at, body, next_at) VALUES (?1, ?2, ?3, ?2)",
            params![way.name, now, body],
        )?;
        tx.execute("DELETE FROM event WHERE way = ?1", [&way.name])?;
        tx.commit()
    };
    let mut write = write;
    write().context("cannot write the ledger")?;
    Ok(true)
}

fn forget(ledger: &mut Ledger, now: i64) -> Result<()> {
    let old = "SELECT 1 FROM message WHERE done_at < ?1 LIMIT 1";
    let before = now.saturating_sub(KEEP_SECONDS);
    let is_old = ledger.db.prepare_cached(old)?.exists([before])?;
    if is_old {
        ledger.db.execute("DELETE FROM message WHERE done_at < ?1", [before])?;
    }
    Ok(())
}

/// Messages that were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notifications {
    /// They are tried again.
    pub waiting: u64,
    /// They were given up within the last 30 days.
    pub given_up: u64,
}

/// How the messages of a ledger stand; `None` in one of a version that had none.
///
/// # Errors
/// The ledger cannot be read.
pub fn standing(ledger: &Ledger) -> Result<Option<Notifications>> {
    let mut known =
        ledger.db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'message'")?;
    if !known.exists([])? {
        return Ok(None);
    }
    let counts = ledger.db.query_row(
        "SELECT count(*) FILTER (WHERE done_at IS NULL),
                count(*) FILTER (WHERE done_at IS NOT NULL AND error IS NOT NULL) FROM message",
        [],
        |row| Ok(Notifications { waiting: uint(row.get(0)?), given_up: uint(row.get(1)?) }),
    );
    counts.map(Some).context("cannot read the ledger")
}

/// How often a server looks for changes.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;

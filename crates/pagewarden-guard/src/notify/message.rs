//! A message: what the events of a way say, as JSON, with a text for people in it.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use pagewarden::words::{counted, printable};
use serde_json::{Value, json};

use super::changes::What;
use crate::ledger::{Ledger, uint};
use crate::moment;
use crate::scrub::words::span;

/// Databases that a message shows; all are counted.
const TARGETS_MAX: usize = 100;
/// Lines of the text for one event.
const LINES_MAX: usize = 5;

/// An event with the database it is about.
struct Event {
    what: What,
    name: String,
    path: String,
    engine: String,
    count: u64,
    samples: Vec<Value>,
}

/// The body of a message with all events that wait for a way.
pub(super) fn of_events(ledger: &Ledger, way: &str, now: i64) -> Result<String> {
    let events = events(ledger, way).context("cannot read the ledger")?;
    let host = pagewarden::system::host_name();
    let subject = subject(&events, &host);
    let mut text = format!("{subject}\n");
    for event in events.iter().take(TARGETS_MAX) {
        text.push('\n');
        tell(&mut text, event);
    }
    let left_out = events.len().saturating_sub(TARGETS_MAX);
    if left_out > 0 {
        let _ = writeln!(text, "\nand {left_out} more: pagewarden status");
    }
    let shown: Vec<Value> = events
        .iter()
        .take(TARGETS_MAX)
        .map(|event| {
            json!({
                "what": event.what.name(),
                "name": event.name,
                "path": event.path,
                "engine": event.engine,
                "count": event.count,
                "samples": event.samples,
            })
        })
        .collect();
    Ok(json!({
        "format": "pagewarden message",
        "version": 1,
        "pagewarden": pagewarden::VERSION,
        "host": host,
        "written": moment::shown(now),
        "subject": subject,
        "text": text,
        "events": shown,
        "left_out": left_out,
    })
    .to_string())
}

/// The gravest first.
fn events(ledger: &Ledger, way: &str) -> rusqlite::Result<Vec<Event>> {
    let mut statement = ledger.db.prepare_cached(
        "SELECT e.what, t.name, t.path, t.engine, e.count, e.samples FROM event e
         JOIN target t ON t.id = e.target WHERE e.way = ?1 ORDER BY t.name",
    )?;
    let rows = statement.query_map([way], |row| {
        let what: String = row.get(0)?;
        let samples: String = row.get(5)?;
        Ok(Event {
            what: What::ALL.into_iter().find(|one| one.name() == what).unwrap_or(What::Finding),
            name: row.get(1)?,
            path: row.get(2)?,
            engine: row.get(3)?,
            count: uint(row.get(4)?),
            samples: serde_json::from_str(&samples).unwrap_or_default(),
        })
    })?;
    let mut events: Vec<Event> = rows.collect::<Result<_, _>>()?;
    let rank = |what: What| What::ALL.iter().position(|one| *one == what);
    events.sort_by_key(|event| rank(event.what));
    Ok(events)
}

/// One line: `db1: 3 findings in main; shop is overdue`.
fn subject(events: &[Event], host: &str) -> String {
    let mut parts = Vec::new();
    for what in What::ALL {
        let of_it: Vec<_> = events.iter().filter(|event| event.what == what).collect();
        let Some(first) = of_it.first() else { continue };
        let count: u64 = of_it.iter().map(|event| event.count).sum();
        let place = match of_it.len() {
            1 => printable(&first.name),
            several => format!("{several} databases"),
        };
        let is = if of_it.len() == 1 { "is" } else { "are" };
        parts.push(match what {
            What::Finding => format!("{} in {place}", counted(count, "finding")),
            What::Gone => format!("{} gone in {place}", counted(count, "finding")),
            What::Overdue => format!("{place} {is} overdue"),
            What::InTime => format!("{place} {is} in time again"),
            What::Unreadable => format!("{place} cannot be read"),
            What::Readable => format!("{place} can be read again"),
        });
    }
    format!("{}: {}", printable(host), parts.join("; "))
}

/// An event in a few lines.
fn tell(text: &mut String, event: &Event) {
    let Event { what, name, path, count, samples, .. } = event;
    let (name, path) = (printable(name), printable(path));
    let value = |sample: &Value, key: &str| {
        let value = sample.get(key);
        value.and_then(Value::as_str).map(|text| printable(text.lines().next().unwrap_or_default()))
    };
    let first = samples.first().cloned().unwrap_or_default();
    let seconds = |key: &str| span(first.get(key).and_then(Value::as_u64).unwrap_or(0));
    let _ = match what {
        What::Finding => writeln!(text, "{name} ({path}): {}", counted(*count, "new finding")),
        What::Gone => writeln!(text, "{name} ({path}): {} gone", counted(*count, "finding")),
        What::Overdue => writeln!(
            text,
            "{name} ({path}): overdue: a page was last verified {} ago, not within {}",
            seconds("oldest_unverified_seconds"),
            seconds("every_seconds")
        ),
        What::InTime => writeln!(text, "{name} ({path}): every page is verified in time again"),
        What::Unreadable => {
            let file = value(&first, "file").map(|file| format!("{file}: ")).unwrap_or_default();
            let error = value(&first, "error").unwrap_or_default();
            writeln!(text, "{name} ({path}): cannot be read: {file}{error}")
        }
        What::Readable => writeln!(text, "{name} ({path}): can be read again"),
    };
    if !matches!(what, What::Finding | What::Gone) {
        return;
    }
    for sample in samples.iter().take(LINES_MAX) {
        let page = sample.get("page").and_then(Value::as_u64);
        let page = page.map(|page| format!(" page {page}")).unwrap_or_default();
        let file = value(sample, "file").unwrap_or_default();
        let (severity, kind) = (value(sample, "severity"), value(sample, "kind"));
        let (severity, kind) = (severity.unwrap_or_default(), kind.unwrap_or_default());
        let by = value(sample, "closed_by").map(|by| format!(": {by}")).unwrap_or_default();
        let _ = writeln!(text, "  {file}{page}: {kind} ({severity}){by}");
    }
    let left = count.saturating_sub(samples.len().min(LINES_MAX) as u64);
    if left > 0 {
        let _ = writeln!(text, "  and {left} more");
    }
    if *what == What::Finding {
        let path = pagewarden::shell::quoted(std::ffi::OsStr::new(&event.path));
        let _ = writeln!(text, "  look: pagewarden check {path}");
    }
}

//! The file that evidence is exported to: a line about the file, then a receipt a line.
//!
//! ```text
//! {"format":"pagewarden evidence","version":1,...,"first":7,"hashes":["sha256:...",...]}
//! {... "receipt":7, "previous":"sha256:..." ...}
//! {... "receipt":8, "previous":"sha256:..." ...}
//! ```
//!
//! Each receipt has the hash of the one before it, and the first line has the hashes of all, so that
//! what was altered, removed or moved is named. A signature over the file proves the first line.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hash_of;
use crate::ledger::Ledger;
use crate::moment;

/// What an export begins with.
pub const BEGIN: &str = "{\"format\":\"pagewarden evidence\"";
const FORMAT: &str = "pagewarden evidence";
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    pagewarden: String,
    exported: String,
    since: Option<String>,
    until: Option<String>,
    /// The number of the first receipt.
    first: Option<i64>,
    /// The hash of each receipt.
    hashes: Vec<String>,
}

/// An export.
#[derive(Debug)]
pub struct Export {
    /// The file.
    pub text: String,
    /// How many receipts are in it.
    pub receipts: usize,
}

/// Exports the receipts that were written in a span of time.
///
/// # Errors
/// The ledger cannot be read, or its own chain is broken.
pub fn export(ledger: &Ledger, since: Option<i64>, until: Option<i64>, now: i64) -> Result<Export> {
    let mut statement =
        ledger.db.prepare("SELECT number, at, body FROM receipt ORDER BY number")?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    })?;
    let all: Vec<_> = rows.collect::<Result<_, _>>().context("cannot read the ledger")?;
    let lines: Vec<_> = all.iter().map(|(number, _, body)| (*number, body.as_str())).collect();
    let faults = faults_of_chain(&lines);
    if let Some(fault) = faults.first() {
        bail!(
            "the ledger's own receipts do not fit together: {fault}\n\
             hint: export from a copy of the ledger that was not altered"
        );
    }
    // By number, not by time: a clock that was set back makes no gap.
    let in_span =
        |at: i64| since.is_none_or(|since| at >= since) && until.is_none_or(|until| at < until);
    let first = all.iter().position(|(_, at, _)| in_span(*at));
    let last = all.iter().rposition(|(_, at, _)| in_span(*at));
    let chosen = match (first, last) {
        (Some(first), Some(last)) => all.get(first..=last).unwrap_or_default(),
        _ => &[],
    };
    let head = Head {
        format: FORMAT.to_owned(),
        version: VERSION,
        pagewarden: pagewarden::VERSION.to_owned(),
        exported: moment::shown(now),
        since: since.map(moment::shown),
        until: until.map(moment::shown),
        first: chosen.first().map(|(number, ..)| *number),
        hashes: chosen.iter().map(|(_, _, body)| hash_of(body)).collect(),
    };
    let mut text = serde_json::to_string(&head)?;
    text.push('\n');
    for (_, _, body) in chosen {
        text.push_str(body);
        text.push('\n');
    }
    Ok(Export { text, receipts: chosen.len() })
}

/// What is wrong with the links between receipts.
fn faults_of_chain(lines: &[(i64, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut before: Option<(i64, &str)> = None;
    for (number, body) in lines {
        let receipt: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        if receipt.get("receipt").and_then(Value::as_i64) != Some(*number) {
            faults.push(format!("receipt {number} was altered"));
        } else if let Some((last, text)) = before {
            let previous = receipt.get("previous").and_then(Value::as_str).unwrap_or_default();
            if *number != last + 1 {
                faults.push(format!("receipt {} is missing", last + 1));
            } else if previous != hash_of(text) {
                faults.push(format!("receipt {last} does not fit receipt {number}"));
            }
        }
        before = Some((*number, body));
    }
    faults
}

/// What is in an export, and what is wrong with it.
#[derive(Debug)]
pub struct Proved {
    /// Receipts in it.
    pub receipts: usize,
    /// When it was exported.
    pub exported: String,
    /// What is wrong; empty if nothing is.
    pub faults: Vec<String>,
}

/// Verifies the chain of an export.
///
/// # Errors
/// It is no export.
pub fn prove(text: &str) -> Result<Proved> {
    let mut lines = text.lines();
    let head: Head = lines
        .next()
        .filter(|line| line.starts_with(BEGIN))
        .and_then(|line| serde_json::from_str(line).ok())
        .context("it is no export of pagewarden evidence")?;
    ensure!(
        head.version == VERSION,
        "its version is {}, and this program knows {VERSION}",
        head.version
    );
    let number_of = |index: usize| {
        head.first.unwrap_or(0).saturating_add(i64::try_from(index).unwrap_or(i64::MAX))
    };
    let lines: Vec<&str> = lines.collect();
    let hashes: Vec<_> = lines.iter().map(|line| hash_of(line)).collect();
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for (index, line) in lines.iter().enumerate() {
        let claims = serde_json::from_str::<Value>(line).ok();
        let claims = claims.and_then(|receipt| receipt.get("receipt")?.as_i64());
        let place =
            hashes.get(index).and_then(|hash| head.hashes.iter().position(|one| one == hash));
        match (place, claims) {
            (Some(place), _) => {
                if !known.insert(place) {
                    faults.push(format!("receipt {} is there twice", number_of(place)));
                } else if known.range(place + 1..).next().is_some() {
                    faults.push(format!("receipt {} is not in its place", number_of(place)));
                }
            }
            (None, Some(number)) => faults.push(format!("receipt {number} was altered")),
            (None, None) => faults.push(format!("line {} was altered", index + 2)),
        }
    }
    let altered: BTreeSet<_> = faults.iter().cloned().collect();
    for index in 0..head.hashes.len() {
        let number = number_of(index);
        if !known.contains(&index) && !altered.contains(&format!("receipt {number} was altered")) {
            faults.push(format!("receipt {number} was removed or altered"));
        }
    }
    if faults.is_empty() {
        // The first line may have been made to fit: then the links tell.
        let numbered: Vec<_> =
            lines.iter().enumerate().map(|(index, line)| (number_of(index), *line)).collect();
        faults = faults_of_chain(&numbered);
    }
    Ok(Proved { receipts: lines.len(), exported: head.exported, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An export of five receipts, from number 3 on.
    fn lines() -> Vec<String> {
        let mut previous = "sha256:of the second".to_owned();
        let mut bodies = Vec::new();
        for number in 3..8 {
            let body = serde_json::json!({ "receipt": number, "previous": previous }).to_string();
            previous = hash_of(&body);
            bodies.push(body);
        }
        let head = Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            pagewarden: "0".to_owned(),
            exported: "now".to_owned(),
            since: None,
            until: None,
            first: Some(3),
            hashes: bodies.iter().map(|body| hash_of(body)).collect(),
        };
        bodies.insert(0, serde_json::to_string(&head).unwrap());
        bodies
    }

    fn faults(lines: &[String]) -> Vec<String> {
        prove(&(lines.join("\n") + "\n")).unwrap().faults
    }

    #[test]
    fn an_altered_removed_or_moved_receipt_is_named() {
        assert_eq!(faults(&lines()), [] as [&str; 0]);
        let mut altered = lines();
        altered[2] = altered[2].replace("sha256", "sha257");
        assert_eq!(faults(&altered), ["receipt 4 was altered"]);
        let mut removed = lines();
        removed.remove(3);
        assert_eq!(faults(&removed), ["receipt 5 was removed or altered"]);
        let mut cut = lines();
        cut.pop();
        assert_eq!(faults(&cut), ["receipt 7 was removed or altered"]);
        let mut moved = lines();
        moved.swap(2, 3);
        assert_eq!(faults(&moved), ["receipt 4 is not in its place"]);
        let mut twice = lines();
        twice.insert(3, twice[2].clone());
        assert_eq!(faults(&twice), ["receipt 4 is there twice"]);
        let mut garbage = lines();
        garbage[1] = "{".to_owned();
        assert_eq!(faults(&garbage), ["line 2 was altered", "receipt 3 was removed or altered"]);
        assert!(prove("").is_err() && prove("{}\n").is_err());
    }

    #[test]
    fn first_line_that_was_made_to_fit_does_not_hide_an_altered_receipt() {
        let mut lines = lines();
        let before = hash_of(&lines[2]);
        lines[2] = lines[2].replace("sha256", "sha257");
        lines[0] = lines[0].replace(&before, &hash_of(&lines[2]));
        let expected = ["receipt 3 does not fit receipt 4", "receipt 4 does not fit receipt 5"];
        assert_eq!(faults(&lines), expected);
    }
}

//! Evidence for others: a receipt of each pass that ended, chained by hash.

use anyhow::{Context as _, Result};
use pagewarden::database::Description;
use rusqlite::{OptionalExtension as _, params};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::ledger::passes::COUNTS;
use crate::ledger::{Ledger, TargetId};
use crate::listing::hex;
use crate::moment;

pub mod chain;
pub mod signature;

/// The version of the form of a receipt.
const VERSION: u32 = 1;

/// The hash of a receipt, over its very bytes.
#[must_use]
pub fn hash_of(body: &str) -> String {
    format!("sha256:{}", hex(&Sha256::digest(body.as_bytes())))
}

/// Receipts that are looked through for one of a database.
const LOOKED_THROUGH_MAX: usize = 20_000;

/// What the pages of a database were tested by in the pass that ended last, and what that cannot
/// detect; `None` without such a pass.
///
/// # Errors
/// The ledger cannot be read.
pub fn blind_spots(ledger: &Ledger, name: &str) -> Result<Option<(String, String)>> {
    let found = ledger.db.query_row(
        &format!(
            "SELECT body FROM (SELECT number, body FROM receipt ORDER BY number DESC
                LIMIT {LOOKED_THROUGH_MAX})
             WHERE json_extract(body, '$.name') = ?1 ORDER BY number DESC LIMIT 1"
        ),
        [name],
        |row| row.get::<_, String>(0),
    );
    let body = found.optional().context("cannot read the ledger")?;
    let body = body.and_then(|body| serde_json::from_str::<serde_json::Value>(&body).ok());
    let word = |key: &str| body.as_ref()?.get(key)?.as_str().map(str::to_owned);
    Ok(word("tested_by").zip(word("unseen")))
}

/// Appends the receipt of the last pass of a target, which has ended, in the transaction that is open.
pub(crate) fn append(
    ledger: &Ledger,
    target: TargetId,
    description: &Description,
    seal: Option<&str>,
    now: i64,
) -> Result<()> {
    let entry = ledger.entry(target)?;
    let coverage = ledger.coverage(target, now)?;
    let verdict = ledger.verdict(target, now)?;
    let open = ledger.open_counts(target)?;
    let unread = ledger.unread_count(target)?;
    let pass = ledger.passes(target, 1)?.into_iter().next().context("there is no pass")?;
    let counts: serde_json::Map<_, _> = COUNTS
        .iter()
        .zip(pass.counts)
        .map(|(name, count)| ((*name).to_owned(), count.into()))
        .collect();
    let write = || -> rusqlite::Result<()> {
        let last: Option<(i64, String)> = ledger
            .db
            .query_row("SELECT number, hash FROM receipt ORDER BY number DESC LIMIT 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let (number, previous) = last.map_or((1, None), |(number, hash)| (number + 1, Some(hash)));
        let body = json!({
            "format": "pagewarden receipt",
            "version": VERSION,
            "receipt": number,
            "previous": previous,
            "pagewarden": pagewarden::VERSION,
            "written": moment::shown(now),
            "name": entry.name,
            "path": entry.path,
            "engine": entry.engine,
            "pass": pass.number,
            "begun": moment::shown(pass.begun_at),
            "ended": pass.ended_at.map(moment::shown),
            "seconds": pass.seconds,
            "bytes": pass.bytes,
            "pages": counts,
            "coverage": coverage,
            "in_one_run": pass.is_whole,
            "verdict": verdict,
            "open_findings": {
                "damage": open.damage, "suspect": open.suspect, "notice": open.notice,
            },
            "unread": unread,
            "seal": seal,
            "tested_by": description.evidence.tested_by,
            "unseen": description.evidence.unseen,
        })
        .to_string();
        ledger.db.execute(
            "INSERT INTO receipt (number, at, body, hash) VALUES (?1, ?2, ?3, ?4)",
            params![number, now, body, hash_of(&body)],
        )?;
        Ok(())
    };
    write().context("cannot write the ledger")
}

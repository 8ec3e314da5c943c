//! Which path has which answer.

use anyhow::Result;
use pagewarden::repair::advice::Advice;
use serde_json::json;

use super::admit::admit;
use super::http::{Answer, Asked};
use super::page::target::Shown;
use super::{Shared, page};
use crate::evidence;
use crate::ledger::Ledger;
use crate::ledger::findings::Kept;
use crate::moment;
use crate::notify;
use crate::status::{self, Standing};

/// The longest address that is looked at.
const ADDRESS_BYTES_MAX: usize = 2048;
/// Open findings that a page shows, the gravest first; the JSON has all.
const OPEN_MAX: usize = 200;
/// Closed findings that are shown.
const CLOSED_MAX: usize = 100;
/// Passes that are shown.
const PASSES_MAX: usize = 30;

/// What a request gets.
pub(super) fn answer(shared: &Shared<'_>, asked: &Asked) -> Answer {
    if let Err(refusal) = admit(&shared.settings, asked) {
        return refusal;
    }
    route(shared, &asked.address).unwrap_or_else(|error| {
        // What went wrong is said in the log of the schedule, not to who asks.
        let _ = error;
        Answer::plain(503, "the ledger cannot be read now")
    })
}

fn route(shared: &Shared<'_>, address: &str) -> Result<Answer> {
    if address.len() > ADDRESS_BYTES_MAX {
        return Ok(Answer::plain(414, "the address is too long"));
    }
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let asks = |word: &str| query.split('&').any(|part| part == word);
    let reloads = !asks("still");
    let now = moment::now();
    let read = |names: &[String]| -> Result<(Option<Ledger>, Vec<Standing>)> {
        let ledger = Ledger::read(&shared.settings.state)?;
        let databases = &shared.configuration().databases;
        let all = status::standings(ledger.as_ref(), databases, names, now)?;
        Ok((ledger, all))
    };
    let standings = || read(&[]);
    Ok(match path {
        "/" => {
            let only = query.split('&').find_map(|part| part.strip_prefix("state="));
            Answer::html(page::index::page(&standings()?.1, only, reloads, now))
        }
        "/style.css" => {
            Answer { status: 200, kind: "text/css; charset=utf-8", body: page::STYLE.to_owned() }
        }
        "/healthz" => {
            if shared.is_alive() {
                Answer::plain(200, "ok")
            } else {
                Answer::plain(503, "the schedule stands")
            }
        }
        "/metrics" => {
            let (ledger, all) = standings()?;
            let notifications = ledger.as_ref().map(notify::standing).transpose()?.flatten();
            Answer {
                status: 200,
                kind: "text/plain; version=0.0.4; charset=utf-8",
                body: status::metrics(&all, notifications),
            }
        }
        "/api/v1/status" => {
            let (_, all) = standings()?;
            Answer::json(&json!({
                "pagewarden": pagewarden::VERSION,
                "command": "status",
                "verdict": status::worst(&all),
                "targets": all.iter().map(Standing::to_json).collect::<Vec<_>>(),
                "seconds": 0.0,
            }))
        }
        _ => {
            let standings_of = |name: &str| read(std::slice::from_ref(&name.to_owned()));
            let advice_of = |name: &str| {
                let configuration = shared.configuration();
                configuration.databases.iter().find(|one| one.name == name)?.advice()
            };
            one_target(path, standings_of, advice_of, |one| {
                page::target::page(one, asks("map=age"), reloads, now)
            })?
        }
    })
}

/// What is asked of one target: its page, or its findings.
fn one_target(
    path: &str,
    standings_of: impl Fn(&str) -> Result<(Option<Ledger>, Vec<Standing>)>,
    advice_of: impl Fn(&str) -> Option<Advice>,
    draw: impl Fn(&Shown<'_>) -> String,
) -> Result<Answer> {
    let nothing = || Ok(Answer::plain(404, "there is no such page"));
    let of_findings =
        path.strip_prefix("/api/v1/targets/").and_then(|rest| rest.strip_suffix("/findings"));
    let name = of_findings.or_else(|| path.strip_prefix("/targets/")).and_then(decoded);
    let Some(name) = name else { return nothing() };
    let (ledger, all) = standings_of(&name)?;
    let Some(standing) = all.iter().find(|one| one.name == name) else { return nothing() };
    let Some((ledger, target)) = ledger.as_ref().zip(standing.target) else {
        // One that no run has come to has a page, too.
        let is_page = of_findings.is_none();
        return if is_page { Ok(Answer::html(draw(&Shown::of(standing)))) } else { nothing() };
    };
    let closed = ledger.closed_findings(target, CLOSED_MAX)?;
    if of_findings.is_some() {
        let open = ledger.open_findings(target)?;
        return Ok(Answer::json(&json!({
            "pagewarden": pagewarden::VERSION,
            "name": standing.name,
            "findings": open.iter().map(Kept::to_json).collect::<Vec<_>>(),
            "closed": closed.iter().map(Kept::to_json).collect::<Vec<_>>(),
        })));
    }
    let open = ledger.gravest_findings(target, OPEN_MAX)?;
    let advice = advice_of(&name).filter(|it| open.iter().any(|kept| it.treats(&kept.finding)));
    Ok(Answer::html(draw(&Shown {
        open,
        repair: advice.map(|advice| advice.command()),
        closed,
        passes: ledger.passes(target, PASSES_MAX)?,
        tiles: ledger.tiles(target)?,
        blind: evidence::blind_spots(ledger, &standing.name)?,
        ..Shown::of(standing)
    })))
}

/// A name out of an address. `None` if it is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        // A sign would be taken for a digit.
        let digits = std::str::from_utf8(&digits).ok()?;
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(is_number.then(|| u8::from_str_radix(digits, 16).ok())??);
    }
    String::from_utf8(bytes).ok()
}

/// A name as a part of an address.
pub(super) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut address, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
        address
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_addresses_come_back_as_they_were() {
        for name in ["main", "/var/lib/a b", "\u{e4}<>%&\"'", "../..", "a/b"] {
            assert_eq!(decoded(&encoded(name)).as_deref(), Some(name));
            assert!(!encoded(name).contains(['/', '<', '"', ' ']));
        }
        for broken in ["%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}

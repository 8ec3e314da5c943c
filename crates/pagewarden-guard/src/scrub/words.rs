//! How a target stands, in words.

use pagewarden::report::Overall;
use pagewarden::verdict::Verdict;
use pagewarden::words::{counted, grouped};
use serde_json::{Map, Value};

use crate::ledger::passes::{Coverage, Due};

/// A target by all that is known; `open` are findings of damage and what could not be read.
pub(super) fn overall(
    verdict: Verdict,
    coverage: &Coverage,
    open: (u64, u64),
    due: Option<Due>,
    stopped: bool,
) -> Overall {
    let mut reason = reason(verdict, coverage, open, stopped);
    if due.is_none() {
        reason.push_str("; nothing was due");
    }
    if coverage.overdue {
        let (age, every) = (coverage.oldest_unverified_seconds, coverage.every_seconds);
        let (age, every) = (span(age), span(every));
        reason =
            format!("{reason}; overdue: a page was last verified {age} ago, not within {every}");
    }
    let mut fields = Map::new();
    fields.insert("coverage".to_owned(), serde_json::to_value(coverage).unwrap_or(Value::Null));
    Overall { verdict, reason, fields }
}

fn reason(
    verdict: Verdict,
    coverage: &Coverage,
    (damage, unread): (u64, u64),
    stopped: bool,
) -> String {
    let share = || format!("{} of {}", grouped(coverage.verified), counted(coverage.pages, "page"));
    match verdict {
        Verdict::Damaged => {
            let damage = counted(damage, "finding");
            let rest =
                if stopped { format!("; {} of this pass read", share()) } else { String::new() };
            format!("{damage} of damage{rest}")
        }
        Verdict::Incomplete if stopped => {
            format!("stopped after {} of this pass; the same command resumes it", share())
        }
        Verdict::Incomplete if unread > 0 => "not everything could be read".to_owned(),
        Verdict::Incomplete if coverage.has_holes => {
            format!("{} were verified in this pass, and some never", share())
        }
        Verdict::Incomplete => {
            "some pages could not be tested without a key or a reader of their format".to_owned()
        }
        Verdict::Suspect => "recovery or a rare history could explain what was found".to_owned(),
        Verdict::Unprotected => "nothing wrong seen, but the pages carry no checksums".to_owned(),
        Verdict::Intact => {
            let age = span(coverage.oldest_unverified_seconds);
            format!("every page was verified within the last {age}")
        }
    }
}

/// Seconds as people say them, rounded up: `3 h`, `8 days`.
#[must_use]
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds.div_ceil(60)),
        7200..=172_799 => format!("{} h", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up() {
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (121, "3 min"), (7201, "3 h"), (604_800, "7 days")]
        {
            assert_eq!(span(seconds), text);
        }
    }
}

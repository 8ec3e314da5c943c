//! How things stand, by the ledger alone: no database is read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use pagewarden::verdict::{SeverityCounts, Verdict};
use pagewarden::words::{grouped, printable};
use serde_json::{Value, json};

use crate::config::Subject;
use crate::ledger::passes::{COUNTS, Coverage, Entry, Pass};
use crate::ledger::{Ledger, TargetId};
use crate::moment;
use crate::notify::Notifications;
use crate::scrub::words::span;

/// How one target stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its number; `None` if no run has entered it.
    pub target: Option<TargetId>,
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// The engine and its version; empty where that is not known.
    pub engine: String,
    /// The verdict.
    pub verdict: Verdict,
    /// How much is covered.
    pub coverage: Coverage,
    /// The pass that is under way, if one is.
    pub under_way: Option<Pass>,
    /// The last pass that ended.
    pub last_pass: Option<Pass>,
    /// Open findings.
    pub open: SeverityCounts,
    /// Findings that were ever seen.
    pub ever: u64,
    /// Stretches that could not be read.
    pub unread: u64,
    /// When it was last looked at.
    pub attempt_at: Option<i64>,
    /// Why that came to nothing.
    pub error: Option<String>,
    /// When the next pass is due.
    pub next_run: i64,
}

/// How all databases of the configuration and of the ledger stand, or only those of these names.
///
/// # Errors
/// The ledger cannot be read.
pub fn standings(
    ledger: Option<&Ledger>,
    configured: &[Subject],
    names: &[String],
    now: i64,
) -> Result<Vec<Standing>> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    let is_asked = |one: &str| names.is_empty() || names.iter().any(|name| name == one);
    for subject in configured {
        let target = ledger.map(|ledger| ledger.target(&subject.name)).transpose()?.flatten();
        seen.insert(subject.name.clone());
        if !is_asked(&subject.name) && !is_asked(&subject.path().to_string_lossy()) {
            continue;
        }
        all.push(match (ledger, target) {
            (Some(ledger), Some(target)) => standing(ledger, target, Some(subject), now)?,
            _ => never(subject, now),
        });
    }
    if let Some(ledger) = ledger {
        for (target, name) in ledger.targets()? {
            if !seen.contains(&name) {
                all.push(standing(ledger, target, None, now)?);
            }
        }
    }
    // Asked once for all: there is no index of those that are closed.
    let ever = ledger.map(Ledger::findings_ever).transpose()?.unwrap_or_default();
    for one in &mut all {
        one.ever = one.target.and_then(|target| ever.get(&target)).copied().unwrap_or(0);
    }
    all.retain(|one| is_asked(&one.name) || is_asked(&one.path));
    Ok(all)
}

/// A database that no run has come to.
fn never(subject: &Subject, now: i64) -> Standing {
    Standing {
        target: None,
        name: subject.name.clone(),
        path: subject.path().to_string_lossy().into_owned(),
        engine: String::new(),
        verdict: Verdict::Incomplete,
        coverage: Coverage {
            pages: 0,
            verified: 0,
            oldest_unverified_seconds: 0,
            every_seconds: subject.every.as_secs(),
            overdue: false,
            pass_complete: false,
            has_holes: true,
            from_future: false,
            oldest_at: None,
        },
        under_way: None,
        last_pass: None,
        open: SeverityCounts::default(),
        ever: 0,
        unread: 0,
        attempt_at: None,
        error: None,
        next_run: now,
    }
}

fn standing(
    ledger: &Ledger,
    target: TargetId,
    subject: Option<&Subject>,
    now: i64,
) -> Result<Standing> {
    let entry = ledger.entry(target)?;
    let mut coverage = ledger.coverage(target, now)?;
    let passes = ledger.passes(target, 2)?;
    let verdict = ledger.verdict_by(target, &entry, &coverage, &passes)?;
    let Entry { name, path, engine, attempt_at, error, every_seconds, .. } = entry;
    // The configuration may have been changed since the last run.
    let every =
        subject.map_or(every_seconds, |subject| crate::ledger::int(subject.every.as_secs()));
    coverage.every_seconds = crate::ledger::uint(every);
    coverage.overdue = coverage.oldest_unverified_seconds > coverage.every_seconds;
    let every = std::time::Duration::from_secs(coverage.every_seconds);
    let next_run = ledger.next_run(target, every, now)?;
    Ok(Standing {
        target: Some(target),
        name,
        path,
        engine,
        verdict,
        coverage,
        under_way: passes.first().filter(|pass| pass.ended_at.is_none()).cloned(),
        last_pass: passes.iter().find(|pass| pass.ended_at.is_some()).cloned(),
        open: ledger.open_counts(target)?,
        ever: 0,
        unread: ledger.unread_count(target)?,
        attempt_at,
        error,
        next_run,
    })
}

impl Standing {
    /// Open findings of all severities.
    #[must_use]
    pub fn open_findings(&self) -> u64 {
        self.open.damage + self.open.suspect + self.open.notice
    }

    /// Something of it was not looked at, or at a time that has not come by this clock.
    fn is_unable(&self) -> bool {
        self.error.is_some()
            || self.unread > 0
            || self.target.is_none()
            || self.coverage.from_future
    }

    /// One word for the target: worse than its verdict where the promise is broken.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.verdict {
            Verdict::Damaged => "damaged",
            _ if self.coverage.overdue => "overdue",
            _ if self.target.is_none() || self.last_pass.is_none() && self.under_way.is_none() => {
                "never"
            }
            verdict => verdict.name(),
        }
    }

    /// Mebibytes a second that its passes read at; `None` where that is not known.
    #[must_use]
    pub fn mib_per_second(&self) -> Option<f64> {
        let pass =
            self.under_way.as_ref().filter(|pass| pass.bytes > 0).or(self.last_pass.as_ref())?;
        (pass.seconds > 0.0).then(|| pass.bytes as f64 / f64::from(1 << 20) / pass.seconds)
    }

    /// Seconds that the rest of the pass that is under way takes at its speed so far; `None` where that
    /// is not known.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        let pass = self.under_way.as_ref().filter(|pass| pass.seconds > 0.0)?;
        let Coverage { pages, verified, .. } = self.coverage;
        let left =
            pages.saturating_sub(verified) as f64 / (verified > 0).then_some(verified)? as f64;
        let left = std::time::Duration::try_from_secs_f64(left * pass.seconds).ok()?;
        Some(left.as_secs())
    }

    /// The fields of `status --json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "path": self.path,
            "engine": self.engine,
            "verdict": self.verdict,
            "state": self.state(),
            "coverage": self.coverage,
            "last_pass": self.last_pass.as_ref().map(|pass| json!({
                "finished": pass.ended_at.map(moment::shown),
                "seconds": pass.seconds,
                "bytes": pass.bytes,
                "complete": pass.is_complete,
                "in_one_run": pass.is_whole,
            })),
            "open_findings": self.open_findings(),
            "open": {
                "damage": self.open.damage,
                "suspect": self.open.suspect,
                "notice": self.open.notice,
            },
            "unread": self.unread,
            "last_attempt": self.attempt_at.map(moment::shown),
            "error": self.error,
            "clock_set_back": self.coverage.from_future,
            "next_run": moment::shown(self.next_run),
            "seconds_left": self.seconds_left(),
            "mib_per_second": self.mib_per_second().map(|rate| (rate * 10.0).round() / 10.0),
        })
    }
}

/// The worst verdict of all; `incomplete` where there is none.
#[must_use]
pub fn worst(standings: &[Standing]) -> Verdict {
    standings.iter().map(|one| one.verdict).min().unwrap_or(Verdict::Incomplete)
}

/// A table for people.
#[must_use]
pub fn text(standings: &[Standing], now: i64) -> String {
    let mut rows =
        vec![["name", "state", "covered", "oldest", "findings", "next run"].map(str::to_owned)];
    for one in standings {
        let age = one.coverage.oldest_unverified_seconds;
        let next = match one.next_run.saturating_sub(now) {
            ..=0 => "now".to_owned(),
            left => format!("in {}", span(crate::ledger::uint(left))),
        };
        rows.push([
            printable(&one.name),
            one.state().to_owned(),
            covered(one),
            if one.target.is_some() { span(age) } else { "-".to_owned() },
            grouped(one.open_findings()),
            next,
        ]);
    }
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for one in standings {
        if one.coverage.from_future {
            let _ = writeln!(
                text,
                "{}: the clock was set back: claims of a later time are not believed, and all is \
                 due again",
                printable(&one.name)
            );
        }
        if let Some(error) = &one.error {
            let error = error.lines().next().unwrap_or_default();
            let _ = writeln!(text, "{}: {}", printable(&one.name), printable(error));
        }
    }
    text
}

/// How much of a target is covered. What could not be looked into has no pages that could be counted.
#[must_use]
pub fn covered(one: &Standing) -> String {
    let Coverage { pages, verified, .. } = one.coverage;
    let is_short = one.unread > 0 || one.error.is_some();
    if is_short && verified == pages && pages > 0 {
        "< 100 %".to_owned()
    } else {
        percent(verified, pages)
    }
}

/// A share in percent, never rounded up to all of it.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => {
            let tenths = u128::from(part) * 1000 / u128::from(whole);
            format!("{}.{} %", tenths / 10, tenths % 10)
        }
    }
}

/// One line for a monitoring system, and the exit status of its plugins.
#[must_use]
pub fn nagios(standings: &[Standing]) -> (String, u8) {
    let damaged = standings.iter().filter(|one| one.verdict == Verdict::Damaged).count();
    let overdue = standings.iter().filter(|one| one.coverage.overdue).count();
    let suspect = standings.iter().filter(|one| one.verdict == Verdict::Suspect).count();
    // What has not been verified again yet, but still may be in time, is no reason for an alarm. What was
    // never verified whole is not known to be good.
    let is_unknown = |one: &Standing| one.is_unable() || one.last_pass.is_none();
    let unable = standings.iter().filter(|one| is_unknown(one)).count();
    let (word, status) = match (damaged, overdue + suspect, unable) {
        (1.., ..) => ("CRITICAL", 2),
        (0, 1.., _) => ("WARNING", 1),
        (0, 0, 1..) => ("UNKNOWN", 3),
        (0, 0, 0) if standings.is_empty() => ("UNKNOWN", 3),
        (0, 0, 0) => ("OK", 0),
    };
    let oldest =
        standings.iter().map(|one| one.coverage.oldest_unverified_seconds).max().unwrap_or(0);
    let open: u64 = standings.iter().map(|one| one.open.damage).sum();
    let named = standings.iter().find(|one| match word {
        "CRITICAL" => one.verdict == Verdict::Damaged,
        "WARNING" => one.coverage.overdue || one.verdict == Verdict::Suspect,
        _ => is_unknown(one),
    });
    let named = named.filter(|_| status > 0);
    let named = named.map_or_else(String::new, |one| {
        format!("; first: {} ({})", printable(&one.name).replace('|', "/"), one.state())
    });
    let line = format!(
        "PAGEWARDEN {word} - {damaged} damaged, {overdue} overdue, {unable} not looked at as a whole, of {} \
         databases{named} | damage={open};;0;0 overdue={overdue};0;;0 oldest={oldest}s;;;0",
        standings.len()
    );
    (line, status)
}

/// Figures for Prometheus. Names are those of `check --metrics`, and more.
#[must_use]
pub fn metrics(standings: &[Standing], notifications: Option<Notifications>) -> String {
    let mut text = String::new();
    let mut families = Families { text: &mut text, standings };
    add_passes(&mut families);
    add_findings(&mut families);
    if let Some(Notifications { waiting, given_up }) = notifications {
        let _ = write!(
            text,
            "# HELP pagewarden_notifications Messages that were not taken.\n\
             # TYPE pagewarden_notifications gauge\n\
             pagewarden_notifications{{state=\"waiting\"}} {waiting}\n\
             pagewarden_notifications{{state=\"given_up\"}} {given_up}\n"
        );
    }
    let head = "# HELP pagewarden_build_info The version of pagewarden.\n\
                # TYPE pagewarden_build_info gauge\n";
    format!("{head}pagewarden_build_info{{version=\"{}\"}} 1\n{text}", pagewarden::VERSION)
}

/// Metrics that each target has.
struct Families<'a> {
    text: &'a mut String,
    standings: &'a [Standing],
}

impl Families<'_> {
    /// A metric whose values have labels of their own besides.
    fn labelled(
        &mut self,
        name: &str,
        help: &str,
        values: impl Fn(&Standing) -> Vec<(String, f64)>,
    ) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for one in self.standings {
            for (labels, value) in values(one) {
                let (target, engine) = (label(&one.name), label(&one.engine));
                let _ = writeln!(
                    self.text,
                    "{name}{{target=\"{target}\",engine=\"{engine}\"{labels}}} {value}"
                );
            }
        }
    }

    /// A metric of at most one value a target.
    fn add(&mut self, name: &str, help: &str, value: impl Fn(&Standing) -> Option<f64>) {
        self.labelled(name, help, |one| {
            value(one).map(|value| (String::new(), value)).into_iter().collect()
        });
    }
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// When the targets were looked at, and how far.
fn add_passes(families: &mut Families<'_>) {
    families.add("pagewarden_target_up", "1 if the last run could open the target.", |one| {
        one.attempt_at.map(|_| flag(one.error.is_none()))
    });
    families.add(
        "pagewarden_pass_last_success_timestamp_seconds",
        "When a pass last ended that covered everything, whatever it found.",
        |one| {
            let last = one.last_pass.as_ref().filter(|pass| pass.is_complete);
            last.and_then(|pass| Some(pass.ended_at? as f64))
        },
    );
    families.add(
        "pagewarden_pass_last_attempt_timestamp_seconds",
        "When a run last looked at the target.",
        |one| one.attempt_at.map(|at| at as f64),
    );
    families.add("pagewarden_pass_last_duration_seconds", "How long the last pass read.", |one| {
        one.last_pass.as_ref().map(|pass| pass.seconds)
    });
    families.add(
        "pagewarden_pass_coverage_ratio",
        "The share of the pages that the pass that is under way, or the last one, verified.",
        |one| {
            let Coverage { pages, verified, .. } = one.coverage;
            (pages > 0).then(|| verified as f64 / pages as f64)
        },
    );
    families.add(
        "pagewarden_oldest_verified_timestamp_seconds",
        "When the page was verified that was verified longest ago.",
        |one| one.coverage.oldest_at.map(|at| at as f64),
    );
    families.add("pagewarden_pass_overdue", "1 if a page was not verified in time.", |one| {
        one.target.map(|_| flag(one.coverage.overdue))
    });
}

/// What was found in them.
fn add_findings(families: &mut Families<'_>) {
    let help = "Pages of the last pass by what they count as.";
    families.labelled("pagewarden_pages_scanned", help, |one| {
        let pass = one.last_pass.as_ref();
        let counts = pass.map(|pass| {
            COUNTS
                .iter()
                .zip(pass.counts)
                .map(|(name, count)| (format!(",verdict=\"{name}\""), count as f64))
        });
        counts.into_iter().flatten().collect()
    });
    let help = "Pages that carry nothing to verify them by.";
    families.add("pagewarden_unprotected_pages", help, |one| {
        let pass = one.last_pass.as_ref();
        pass.map(|pass| pass.count(pagewarden::verdict::Standing::Unprotected) as f64)
    });
    families.labelled("pagewarden_open_findings", "Findings that are open.", |one| {
        let open = [
            ("damage", one.open.damage),
            ("suspect", one.open.suspect),
            ("notice", one.open.notice),
        ];
        let known = one.target.is_some();
        open.iter()
            .filter(|_| known)
            .map(|(name, count)| (format!(",severity=\"{name}\""), *count as f64))
            .collect()
    });
    families.add("pagewarden_findings_total", "Findings that were ever seen.", |one| {
        one.target.map(|_| one.ever as f64)
    });
    families.add("pagewarden_unread_stretches", "Stretches that could not be read.", |one| {
        one.target.map(|_| one.unread as f64)
    });
}

/// A value of a label.
fn label(text: &str) -> String {
    let text = pagewarden::report::metrics::plain(text);
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(verdict: Verdict, overdue: bool) -> Standing {
        let mut one = never(&Subject::of_path(std::path::Path::new("/no/such")), 0);
        one.name = "a\"b\\c|d".to_owned();
        (one.target, one.verdict, one.coverage.overdue) = (Some(1), verdict, overdue);
        one.last_pass = Some(Pass { number: 1, ended_at: Some(5), ..Pass::default() });
        one
    }

    #[test]
    fn times_that_have_not_come_are_not_believed() {
        let mut one = one(Verdict::Intact, false);
        assert_eq!(nagios(std::slice::from_ref(&one)).1, 0);
        one.coverage.from_future = true;
        assert_eq!(nagios(std::slice::from_ref(&one)).1, 3);
        assert!(text(&[one], 0).contains("the clock was set back"));
    }

    #[test]
    fn damage_is_critical_and_what_is_overdue_a_warning() {
        for (standings, status) in [
            (vec![one(Verdict::Damaged, true), one(Verdict::Intact, false)], 2),
            (vec![one(Verdict::Intact, true)], 1),
            (vec![one(Verdict::Suspect, false)], 1),
            (vec![one(Verdict::Intact, false)], 0),
            (vec![], 3),
            (vec![never(&Subject::of_path(std::path::Path::new("/x")), 0)], 3),
        ] {
            let (line, got) = nagios(&standings);
            assert_eq!(got, status, "{line}");
            assert_eq!((line.lines().count(), line.matches('|').count()), (1, 1), "{line}");
        }
    }

    #[test]
    fn names_are_escaped_in_labels_and_what_is_unknown_has_no_sample() {
        let mut standing = one(Verdict::Intact, false);
        standing.last_pass = None;
        let text = metrics(&[standing], Some(Notifications { waiting: 1, given_up: 0 }));
        assert!(text.contains("pagewarden_notifications{state=\"waiting\"} 1\n"), "{text}");
        assert!(text.starts_with(pagewarden::report::metrics::BEGIN));
        assert!(text.contains("pagewarden_pass_overdue{target=\"a\\\"b\\\\c|d\",engine=\"\"} 0\n"));
        assert!(!text.contains("last_success_timestamp_seconds{"), "{text}");
    }

    #[test]
    fn a_share_is_never_rounded_up_to_all() {
        assert_eq!(percent(999_999, 1_000_000), "99.9 %");
        assert_eq!(percent(5, 5), "100.0 %");
        assert_eq!(percent(0, 0), "-");
        let mut one = one(Verdict::Incomplete, false);
        (one.coverage.pages, one.coverage.verified) = (5, 5);
        assert_eq!(covered(&one), "100.0 %");
        one.unread = 1;
        assert_eq!(covered(&one), "< 100 %");
    }
}

//! Figures for Prometheus, in its text format, for the folder that
//! node_exporter's textfile collector reads. `docs/metrics.md` lists them.
//!
//! Each run replaces the whole file, yet must not make an alert fall silent. So
//! a run that could not look at everything keeps two things of the file before
//! it: when all was last looked at, and findings, of which such a run may show
//! more, never less.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::database::Description;
use crate::database::repository::RepositoryPart;
use crate::report::sets::{SetsSeen, longest_gap};
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, PageCounts, Severity, SeverityCounts, Unread, Verdict};
use crate::verify::{Sink, Verified};
use crate::words::printable;

/// What every file of metrics begins with.
pub const BEGIN: &str = "# HELP pagewarden_";

const SUCCESS: &str = "pagewarden_pass_last_success_timestamp_seconds";
const FINDINGS: &str = "pagewarden_open_findings";
const SEVERITIES: [Severity; 3] = [Severity::Damage, Severity::Suspect, Severity::Notice];

/// Writes the file; see the module.
#[derive(Debug)]
pub struct MetricsReport<W> {
    out: W,
    previous: Previous,
    /// By the label `target`: no two samples may have the same labels.
    rows: BTreeMap<String, Row>,
    /// Bytes of the current target that could not be read.
    unread_bytes: u64,
    /// Of the repository whose targets come.
    sets: SetsSeen,
}

/// What is known of one target.
#[derive(Debug)]
struct Row {
    engine: String,
    attempt: f64,
    success: Option<f64>,
    findings: Option<SeverityCounts>,
    pass: Option<Pass>,
    /// Of a repository.
    repository: Option<Repository>,
}

#[derive(Debug)]
struct Repository {
    sets: SetsSeen,
    longest_gap: Option<Duration>,
}

#[derive(Debug)]
struct Pass {
    seconds: f64,
    coverage: Option<f64>,
    pages: PageCounts,
    bytes: u64,
    unread_bytes: u64,
}

/// What is kept of the file before, by the label `target`.
#[derive(Debug, Default)]
struct Previous {
    engine: BTreeMap<String, String>,
    success: BTreeMap<String, f64>,
    findings: BTreeMap<String, SeverityCounts>,
}

impl<W: Write> MetricsReport<W> {
    /// A report to `out` that replaces `previous`, the file before it.
    pub fn new(out: W, previous: &str) -> Self {
        let (previous, rows) = (Previous::read(previous), BTreeMap::new());
        Self { out, previous, rows, unread_bytes: 0, sets: SetsSeen::default() }
    }

    fn insert(&mut self, path: String, row: Row) {
        // Two names that are one when written down: the worse one stays.
        let is_worse =
            self.rows.get(&path).is_none_or(|other| other.pass.is_some() || row.pass.is_none());
        if is_worse {
            self.rows.insert(path, row);
        }
    }

    /// Counts a set; at the end of its repository, what came of all.
    fn repository(&mut self, description: &Description, verdict: Verdict) -> Option<Repository> {
        self.sets.add(description, verdict);
        let longest_gap = match &description.part {
            Some(RepositoryPart::Whole(log)) => log.as_deref().and_then(longest_gap),
            Some(RepositoryPart::Chains(_)) => None,
            _ => return None,
        };
        Some(Repository { sets: std::mem::take(&mut self.sets), longest_gap })
    }

    /// Findings of a run that did not see everything: none of those known
    /// before is gone.
    fn never_less(&self, path: &str, now: SeverityCounts) -> SeverityCounts {
        let before = self.previous.findings.get(path).copied().unwrap_or_default();
        SeverityCounts {
            damage: now.damage.max(before.damage),
            suspect: now.suspect.max(before.suspect),
            notice: now.notice.max(before.notice),
        }
    }

    fn text(&self) -> String {
        let mut page = Page::default();
        page.family("pagewarden_build_info", "The version of pagewarden.");
        let _ = writeln!(page.text, "pagewarden_build_info{{version=\"{}\"}} 1", crate::VERSION);
        let each = |page: &mut Page, name, help, value: &dyn Fn(&Row) -> Option<f64>| {
            page.family(name, help);
            for (path, row) in &self.rows {
                if let Some(value) = value(row) {
                    page.sample(name, path, row, None, value);
                }
            }
        };
        each(
            &mut page,
            "pagewarden_target_up",
            "1 if the target could be opened and checked.",
            &|row| Some(f64::from(u8::from(row.pass.is_some()))),
        );
        each(
            &mut page,
            "pagewarden_pass_last_attempt_timestamp_seconds",
            "When the last check ended, however it ended.",
            &|row| Some(row.attempt),
        );
        each(
            &mut page,
            SUCCESS,
            "When a check last ended that looked at everything, whatever it found.",
            &|row| row.success,
        );
        each(
            &mut page,
            "pagewarden_pass_last_duration_seconds",
            "How long the last check took.",
            &|row| row.pass.as_ref().map(|pass| pass.seconds),
        );
        each(
            &mut page,
            "pagewarden_pass_coverage_ratio",
            "The share of the target that the last check could look at.",
            &|row| row.pass.as_ref()?.coverage,
        );
        each(
            &mut page,
            "pagewarden_read_bytes",
            "Bytes that the last check read and judged.",
            &|row| row.pass.as_ref().map(|pass| pass.bytes as f64),
        );
        each(
            &mut page,
            "pagewarden_unread_bytes",
            "Bytes that the last check could not read.",
            &|row| row.pass.as_ref().map(|pass| pass.unread_bytes as f64),
        );
        each(
            &mut page,
            "pagewarden_unprotected_pages",
            "Pages that carry nothing to verify them by.",
            &|row| row.pass.as_ref().map(|pass| pass.pages.unprotected as f64),
        );
        self.pages(&mut page);
        self.findings(&mut page);
        self.repositories(&mut page);
        page.text
    }

    /// Only where there are some: other files stay as they were.
    fn repositories(&self, page: &mut Page) {
        if self.rows.values().all(|row| row.repository.is_none()) {
            return;
        }
        let mut each = |name, help, value: &dyn Fn(&Repository) -> Option<f64>| {
            page.family(name, help);
            for (path, row) in &self.rows {
                if let Some(value) = row.repository.as_ref().and_then(value) {
                    page.sample(name, path, row, None, value);
                }
            }
        };
        each("pagewarden_sets", "Backup sets of the repository that were checked.", &|it| {
            Some(it.sets.seen as f64)
        });
        each("pagewarden_sound_sets", "Those in which nothing is wrong or unread.", &|it| {
            Some(it.sets.sound as f64)
        });
        each(
            "pagewarden_newest_sound_set_timestamp_seconds",
            "When the newest sound set was done.",
            &|it| it.sets.newest_sound.as_ref().map(|(_, done)| since_1970(*done)),
        );
        each(
            "pagewarden_longest_gap_seconds",
            "The longest time between moments that can be restored, in which none can.",
            &|it| it.longest_gap.map(|gap| gap.as_secs_f64()),
        );
    }

    fn pages(&self, page: &mut Page) {
        let name = "pagewarden_pages_scanned";
        page.family(name, "Pages of the last check by what they count as.");
        for (path, row) in &self.rows {
            let Some(pass) = &row.pass else { continue };
            for (verdict, count) in by_standing(&pass.pages) {
                page.sample(name, path, row, Some(("verdict", verdict)), count as f64);
            }
        }
    }

    fn findings(&self, page: &mut Page) {
        page.family(
            FINDINGS,
            "Findings of the last check that looked at everything, and of those since.",
        );
        for (path, row) in &self.rows {
            let Some(findings) = row.findings else { continue };
            for severity in SEVERITIES {
                let count = of_severity(&findings, severity);
                page.sample(FINDINGS, path, row, Some(("severity", severity.name())), count as f64);
            }
        }
    }
}

fn by_standing(pages: &PageCounts) -> [(&'static str, u64); 7] {
    [
        ("ok", pages.ok),
        ("empty", pages.empty),
        ("unprotected", pages.unprotected),
        ("unverifiable", pages.unverifiable),
        ("undecided", pages.undecided),
        ("suspect", pages.suspect),
        ("damaged", pages.damaged),
    ]
}

fn of_severity(counts: &SeverityCounts, severity: Severity) -> u64 {
    match severity {
        Severity::Damage => counts.damage,
        Severity::Suspect => counts.suspect,
        Severity::Notice => counts.notice,
    }
}

fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64().floor())
}

/// The text as it grows.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge");
    }

    fn sample(
        &mut self,
        name: &str,
        path: &str,
        row: &Row,
        label: Option<(&str, &str)>,
        value: f64,
    ) {
        let _ = write!(
            self.text,
            "{name}{{target=\"{}\",engine=\"{}\"",
            escaped(path),
            escaped(&row.engine)
        );
        if let Some((label, value)) = label {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

/// A name without what a terminal obeys. The ends of its lines stay: for these the format has a sign.
#[must_use]
pub fn plain(name: &str) -> String {
    name.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// A label's value as the format wants it, and without what a terminal obeys.
fn escaped(value: &str) -> String {
    plain(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Previous {
    /// Reads what we may have written; whatever is not ours is passed over.
    fn read(text: &str) -> Self {
        let mut previous = Self::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            if name != SUCCESS && name != FINDINGS && name != "pagewarden_target_up" {
                continue;
            }
            let Some((labels, value)) = read_labels(rest) else { continue };
            let Ok(value) = value.trim().parse::<f64>() else { continue };
            let Some(target) = labels.get("target").cloned() else { continue };
            if let Some(engine) = labels.get("engine") {
                previous.engine.insert(target.clone(), engine.clone());
            }
            if !value.is_finite() || value < 0.0 {
                continue;
            }
            if name == SUCCESS {
                previous.success.insert(target, value);
            } else if name == FINDINGS {
                let counts = previous.findings.entry(target).or_default();
                let severity = labels.get("severity").map(String::as_str);
                // Counts are whole; what is not was not written by us.
                let count = format!("{value:.0}").parse().unwrap_or(0);
                match severity {
                    Some("damage") => counts.damage = count,
                    Some("suspect") => counts.suspect = count,
                    Some("notice") => counts.notice = count,
                    _ => {}
                }
            }
        }
        previous
    }
}

/// Reads `name="value",...}` and returns what follows. `None` if it is
/// anything else.
fn read_labels(mut rest: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, behind) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.insert(name, value);
        rest = behind.get(end..)?.strip_prefix('"')?;
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some((labels, rest.strip_prefix('}')?)),
        }
    }
}

impl<W: Write + Send> Sink for MetricsReport<W> {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread_bytes = self.unread_bytes.saturating_add(unread.length);
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write + Send> Report for MetricsReport<W> {
    fn begin_target(&mut self, _: &Description) -> io::Result<()> {
        self.unread_bytes = 0;
        Ok(())
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let Verified { description, summary, .. } = target.verified;
        // As its label says it, by which the file before is read.
        let path = plain(&description.path.to_string_lossy());
        let attempt = since_1970(target.ended);
        let complete = summary.is_complete();
        let coverage = if complete {
            Some(1.0)
        } else if summary.stopped && target.listed_bytes.is_none() {
            None
        } else {
            let seen = summary.bytes.saturating_add(self.unread_bytes);
            let whole = seen.max(target.listed_bytes.unwrap_or(0)).max(1);
            // What is not complete is never 1, however little is missing.
            Some((summary.bytes as f64 / whole as f64).min(0.9999))
        };
        let row = Row {
            engine: description.format.to_owned(),
            attempt,
            success: if complete {
                Some(attempt)
            } else {
                self.previous.success.get(&path).copied()
            },
            findings: Some(if complete {
                summary.severities
            } else {
                self.never_less(&path, summary.severities)
            }),
            pass: Some(Pass {
                seconds: summary.elapsed.as_secs_f64(),
                coverage,
                pages: summary.pages,
                bytes: summary.bytes,
                unread_bytes: self.unread_bytes,
            }),
            repository: self.repository(description, target.verdict()),
        };
        self.insert(path, row);
        Ok(())
    }

    fn failed_target(&mut self, path: &str, _: &str, ended: SystemTime) -> io::Result<()> {
        let path = plain(path);
        let row = Row {
            engine: self.previous.engine.get(&path).cloned().unwrap_or_default(),
            attempt: since_1970(ended),
            success: self.previous.success.get(&path).copied(),
            findings: self.previous.findings.get(&path).copied(),
            pass: None,
            repository: None,
        };
        self.insert(path, row);
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        let text = self.text();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::description;
    use crate::verify::Summary;

    const HOSTILE: &str = "/data/a\"b\\c\nd{e}";

    fn run(previous: &str, at: u64, act: impl FnOnce(&mut MetricsReport<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        let mut report = MetricsReport::new(&mut out, previous);
        act(&mut report);
        let total = Summary::default();
        let ended = UNIX_EPOCH + Duration::from_secs(at);
        let verdict = Verdict::Intact;
        report
            .end(&RunEnd {
                verdict,
                total: &total,
                opened: 1,
                protection_missed: false,
                storage: None,
                drill: None,
                ended,
            })
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    fn target(report: &mut MetricsReport<&mut Vec<u8>>, at: u64, summary: &Summary, listed: u64) {
        let description = description(HOSTILE);
        report.begin_target(&description).unwrap();
        report
            .end_target(&TargetEnd {
                verified: &Verified::of(description.clone(), summary.clone()),
                listed_bytes: Some(listed),
                ended: UNIX_EPOCH + Duration::from_secs(at),
                overall: None,
            })
            .unwrap();
    }

    fn damaged() -> Summary {
        Summary {
            files: 1,
            pages: PageCounts { ok: 98, damaged: 2, ..PageCounts::default() },
            bytes: 819_200,
            severities: SeverityCounts { damage: 2, ..SeverityCounts::default() },
            elapsed: Duration::from_millis(2500),
            ..Summary::default()
        }
    }

    const LABELS: &str = r#"{target="/data/a\"b\\c\nd{e}",engine="postgres""#;

    #[track_caller]
    fn has(text: &str, name: &str, rest: &str) {
        let line = format!("{name}{LABELS}{rest}");
        assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
    }

    #[test]
    fn a_run_is_written_with_hostile_names_escaped() {
        let text = run("", 1000, |report| target(report, 1000, &damaged(), 819_200));
        has(&text, "pagewarden_target_up", "} 1");
        has(&text, "pagewarden_pass_last_attempt_timestamp_seconds", "} 1000");
        has(&text, SUCCESS, "} 1000");
        has(&text, "pagewarden_pass_last_duration_seconds", "} 2.5");
        has(&text, "pagewarden_pass_coverage_ratio", "} 1");
        has(&text, "pagewarden_pages_scanned", ",verdict=\"damaged\"} 2");
        has(&text, FINDINGS, ",severity=\"damage\"} 2");
        for line in text.lines() {
            let known = line.starts_with("# HELP pagewarden_")
                || line.starts_with("# TYPE pagewarden_")
                || line.starts_with("pagewarden_");
            assert!(known, "{line}");
        }
    }

    #[test]
    fn a_run_that_did_not_see_everything_takes_no_finding_back() {
        let first = run("", 1000, |report| target(report, 1000, &damaged(), 819_200));
        let stopped = Summary { stopped: true, bytes: 8192, ..Summary::default() };
        let second = run(&first, 2000, |report| target(report, 2000, &stopped, 819_200));
        has(&second, FINDINGS, ",severity=\"damage\"} 2");
        has(&second, SUCCESS, "} 1000");
        has(&second, "pagewarden_pass_coverage_ratio", "} 0.01");
        let third = run(&second, 3000, |report| {
            let ended = UNIX_EPOCH + Duration::from_secs(3000);
            report.failed_target(HOSTILE, "gone", ended).unwrap();
        });
        has(&third, "pagewarden_target_up", "} 0");
        has(&third, FINDINGS, ",severity=\"damage\"} 2");
        has(&third, SUCCESS, "} 1000");
        assert!(!third.contains("pages_scanned{"), "{third}");
        // A full pass that finds nothing does.
        let clean = Summary { severities: SeverityCounts::default(), ..damaged() };
        let fourth = run(&third, 4000, |report| target(report, 4000, &clean, 819_200));
        has(&fourth, FINDINGS, ",severity=\"damage\"} 0");
        has(&fourth, SUCCESS, "} 4000");
    }

    #[test]
    fn a_target_never_checked_has_no_value_rather_than_zero() {
        let text = run("", 1000, |report| report.failed_target("/x", "gone", UNIX_EPOCH).unwrap());
        assert!(text.contains("pagewarden_target_up{target=\"/x\",engine=\"\"} 0\n"), "{text}");
        assert!(!text.contains(&format!("{SUCCESS}{{")), "{text}");
    }

    #[test]
    fn a_foreign_file_is_passed_over() {
        for text in [
            "pagewarden_open_findings{",
            "pagewarden_open_findings{target=\"",
            "pagewarden_open_findings{target=\"x\\",
            "pagewarden_open_findings{target=\"x\"",
            "pagewarden_open_findings{target=\"x\"} many",
            "pagewarden_open_findings{target=\"x\",severity=\"damage\"} -1",
            "pagewarden_open_findings{target=\"x\",severity=\"damage\"} NaN",
            "}{\"=,",
        ] {
            assert!(Previous::read(text).findings.get("x").is_none_or(|c| c.damage == 0), "{text}");
        }
    }
}

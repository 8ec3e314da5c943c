//! One line for a monitoring system, in the manner of its plugins:
//!
//! ```text
//! PAGEWARDEN CRITICAL - damaged: 3 of 417,032 pages; first ... | damaged=3;;0;0 ...
//! name       state      what a person reads                      figures
//! ```
//!
//! The figures are `name=value[unit];warning;critical;least`, as the
//! guidelines for Nagios plugins fix them; Icinga and others read the same.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use crate::database::Description;
use crate::database::repository::RepositoryPart;
use crate::report::sets::{SetsSeen, longest_gap};
use crate::report::why::why;
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, Severity, Unread, Verdict};
use crate::verify::{Sink, Summary};
use crate::words::{bytes, counted, duration, grouped, printable, shortened};

/// What a monitoring system makes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing to do.
    Ok,
    /// Something to look at.
    Warning,
    /// Something is damaged.
    Critical,
    /// It is not known.
    Unknown,
}

impl State {
    /// The state of a run. Damage that was found stays damage, however much
    /// was left unread.
    #[must_use]
    pub fn of(verdict: Verdict, protection_missed: bool) -> Self {
        match verdict {
            Verdict::Damaged => Self::Critical,
            Verdict::Incomplete => Self::Unknown,
            Verdict::Suspect => Self::Warning,
            Verdict::Unprotected | Verdict::Intact if protection_missed => Self::Warning,
            Verdict::Unprotected | Verdict::Intact => Self::Ok,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// What a name or an error may take of the line, which some systems cut after
/// a thousand characters.
const TEXT_CHARS_MAX: usize = 160;

/// Writes the line; see the module.
#[derive(Debug)]
pub struct NagiosReport<W> {
    out: W,
    /// The verdict on the worst target, and why.
    worst: Option<(Verdict, String)>,
    targets: u64,
    failed: u64,
    first_error: Option<String>,
    /// The path of the current target, where there are several.
    path: Option<String>,
    several: bool,
    /// The first of the gravest findings.
    first_finding: Option<(Severity, String)>,
    first_unread: Option<String>,
    /// Of a repository.
    sets: SetsSeen,
    longest_gap: Option<Duration>,
}

impl<W: Write> NagiosReport<W> {
    /// A report to `out` on `targets` targets.
    pub fn new(out: W, targets: usize) -> Self {
        Self {
            out,
            worst: None,
            targets: 0,
            failed: 0,
            first_error: None,
            path: None,
            several: targets > 1,
            first_finding: None,
            first_unread: None,
            sets: SetsSeen::default(),
            longest_gap: None,
        }
    }

    /// How old the newest sound set is.
    fn age(&self, run: &RunEnd<'_>) -> Option<(&str, Duration)> {
        let (label, done) = self.sets.newest_sound.as_ref()?;
        Some((label, run.ended.duration_since(*done).unwrap_or_default()))
    }

    /// What is said of a repository's sets.
    fn sets_sentence(&self, run: &RunEnd<'_>) -> String {
        let SetsSeen { seen, sound, .. } = self.sets;
        if seen == 0 {
            return String::new();
        }
        let mut text = format!("; {} of {} sound", grouped(sound), counted(seen, "set"));
        if let Some((label, age)) = self.age(run) {
            let _ = write!(text, ", the newest ({}) {} old", one_line(label), duration(age));
        }
        if let Some(gap) = self.longest_gap.filter(|gap| !gap.is_zero()) {
            let _ = write!(text, ", longest gap {}", duration(gap));
        }
        text
    }

    /// The figures of a repository's sets.
    fn sets_figures(&self, run: &RunEnd<'_>) -> String {
        let SetsSeen { seen, sound, .. } = self.sets;
        if seen == 0 {
            return String::new();
        }
        let mut text = format!(" sets={seen};;;0 sound_sets={sound};;;0");
        if let Some((_, age)) = self.age(run) {
            let _ = write!(text, " newest_sound_set_age={}s;;;0", age.as_secs());
        }
        if let Some(gap) = self.longest_gap {
            let _ = write!(text, " longest_gap={}s;;;0", gap.as_secs());
        }
        text
    }

    fn keep_worst(&mut self, verdict: Verdict, why: String) {
        if self.worst.as_ref().is_none_or(|(worst, _)| verdict < *worst) {
            self.worst = Some((verdict, why));
        }
    }

    fn sentence(&self, run: &RunEnd<'_>) -> String {
        let mut text = run.verdict.name().to_owned();
        match &self.worst {
            // Of several targets, the pages of all.
            Some((Verdict::Damaged, _)) => {
                let _ = write!(text, ": {}", why(Verdict::Damaged, run.total));
            }
            Some((verdict, why)) if *verdict == run.verdict => {
                let _ = write!(text, ": {why}");
            }
            _ => {}
        }
        if self.failed > 0 {
            let all = counted(self.targets + self.failed, "target");
            let _ = write!(text, "; {} of {all} could not be checked", grouped(self.failed));
        }
        if run.protection_missed {
            text.push_str("; less is protected than was demanded");
        }
        let first = match run.verdict {
            Verdict::Damaged | Verdict::Suspect => self.first_finding.as_ref().map(|(_, f)| f),
            Verdict::Incomplete => self.first_error.as_ref().or(self.first_unread.as_ref()),
            Verdict::Unprotected | Verdict::Intact => None,
        };
        if let Some(first) = first {
            let _ = write!(text, "; first: {first}");
        }
        text.push_str(&self.sets_sentence(run));
        if self.targets > 0 {
            let Summary { pages, bytes: read, elapsed, .. } = run.total;
            let pages = counted(pages.total(), "page");
            let _ = write!(text, "; {pages} ({}) in {}", bytes(*read), duration(*elapsed));
        }
        if run.total.stopped {
            text.push_str(", stopped early");
        }
        text
    }
}

/// The line of a run that came to nothing.
#[must_use]
pub fn unknown(message: &str) -> String {
    format!("PAGEWARDEN {} - {}", State::Unknown.name(), one_line(message))
}

/// Text without what has a meaning in the line.
fn one_line(text: &str) -> String {
    // A bar would begin the figures.
    let text = text.replace('\n', "; ").replace('|', "\\u{7c}");
    shortened(&printable(&text), TEXT_CHARS_MAX)
}

/// `name=value[unit];warning;critical;least`.
fn figures(total: &Summary) -> String {
    let pages = total.pages;
    let mut text = format!(
        "damaged={};;0;0 suspect={};0;;0 unread={};;;0 undecided={};;;0",
        pages.damaged.max(total.severities.damage),
        // Findings: a page may count as suspect for a harmless reason.
        total.severities.suspect,
        total.unread,
        pages.undecided
    );
    for (name, count, unit) in [
        ("pages", pages.total(), ""),
        ("ok", pages.ok, ""),
        ("empty", pages.empty, ""),
        ("unprotected", pages.unprotected, ""),
        ("unverifiable", pages.unverifiable, ""),
        ("files", total.files, ""),
        ("bytes", total.bytes, "B"),
    ] {
        let _ = write!(text, " {name}={count}{unit};;;0");
    }
    let _ = write!(text, " time={:.3}s;;;0", total.elapsed.as_secs_f64());
    text
}

impl<W: Write + Send> Sink for NagiosReport<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        if self.first_finding.as_ref().is_none_or(|(severity, _)| finding.severity > *severity) {
            let mut text = one_line(&finding.place.file);
            if let Some(page) = finding.place.page {
                let _ = write!(text, " page {page}");
            }
            let _ = write!(text, " ({})", finding.kind.name());
            if let Some(path) = &self.path {
                let _ = write!(text, " in {}", one_line(path));
            }
            self.first_finding = Some((finding.severity, text));
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        if self.first_unread.is_none() {
            self.first_unread =
                Some(format!("{}: {}", one_line(&unread.file), one_line(&unread.error)));
        }
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write + Send> Report for NagiosReport<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.path = self.several.then(|| target.path.to_string_lossy().into_owned());
        Ok(())
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        self.targets += 1;
        let verdict = target.verified.verdict();
        self.keep_worst(verdict, why(verdict, &target.verified.summary));
        let description = &target.verified.description;
        self.sets.add(description, verdict);
        if let Some(RepositoryPart::Whole(Some(log))) = &description.part {
            self.longest_gap = self.longest_gap.max(longest_gap(log));
        }
        Ok(())
    }

    fn failed_target(&mut self, _: &str, error: &str, _: SystemTime) -> io::Result<()> {
        self.failed += 1;
        let first = error.lines().next().unwrap_or_default();
        self.first_error.get_or_insert_with(|| one_line(first));
        Ok(())
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        let state = State::of(run.verdict, run.protection_missed);
        writeln!(
            self.out,
            "PAGEWARDEN {} - {} | {}{}",
            state.name(),
            self.sentence(run),
            figures(run.total),
            self.sets_figures(run)
        )?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::report::sample::{description, end};
    use crate::verdict::{Kind, PageCounts, PageNo, SeverityCounts};
    use crate::verify::Verified;

    fn line(act: impl FnOnce(&mut NagiosReport<&mut Vec<u8>>), run: &RunEnd<'_>) -> String {
        let mut out = Vec::new();
        let mut report = NagiosReport::new(&mut out, 1);
        act(&mut report);
        report.end(run).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(text.matches('|').count(), 1, "{text}");
        text
    }

    #[test]
    fn damage_is_critical_and_says_where() {
        let total = Summary {
            files: 2,
            pages: PageCounts { ok: 997, damaged: 3, ..PageCounts::default() },
            bytes: 8_192_000,
            severities: SeverityCounts { damage: 3, ..SeverityCounts::default() },
            elapsed: Duration::from_millis(1500),
            ..Summary::default()
        };
        let text = line(
            |report| {
                let target = description("/data");
                report.begin_target(&target).unwrap();
                let mut finding =
                    Finding::of_file("a|b\nc", Severity::Damage, Kind::Torn, String::new());
                finding.place.page = Some(PageNo(12));
                report.finding(&finding).unwrap();
                let (listed_bytes, ended) = (None, UNIX_EPOCH);
                report
                    .end_target(&TargetEnd {
                        verified: &Verified::of(target.clone(), total.clone()),
                        listed_bytes,
                        ended,
                        overall: None,
                    })
                    .unwrap();
            },
            &end(Verdict::Damaged, &total),
        );
        assert_eq!(
            text,
            "PAGEWARDEN CRITICAL - damaged: 3 of 1,000 pages; first: a\\u{7c}b; c page 12 (torn); \
             1,000 pages (7.81 MiB) in 1.50 s | damaged=3;;0;0 suspect=0;0;;0 unread=0;;;0 \
             undecided=0;;;0 pages=1000;;;0 ok=997;;;0 empty=0;;;0 unprotected=0;;;0 \
             unverifiable=0;;;0 files=2;;;0 bytes=8192000B;;;0 time=1.500s;;;0\n"
        );
    }

    #[test]
    fn repository_tells_the_age_of_its_newest_sound_set_and_the_longest_gap() {
        use crate::report::sets::tests::{log, set};
        let total = Summary::default();
        let ended = crate::words::time_of("2026-11-23T12:30:00Z").unwrap();
        let text = line(
            |report| {
                let log = Arc::new(log(&[("a", 1, 4), ("b", 9, 11)]));
                let part = Some(RepositoryPart::Whole(Some(log)));
                let whole = Description { part, ..description("/repo") };
                for target in [set("a", 1), set("b|", 9), whole] {
                    let verified = Verified::of(target, total.clone());
                    let (listed_bytes, overall) = (None, None);
                    let end = TargetEnd { verified: &verified, listed_bytes, ended, overall };
                    report.end_target(&end).unwrap();
                }
            },
            &RunEnd { ended, ..end(Verdict::Intact, &total) },
        );
        let words =
            "2 of 2 sets sound, the newest (b\\u{7c}) 3 h 30 min old, longest gap 5 h 0 min";
        assert!(text.contains(words), "{text}");
        let figures = " sets=2;;;0 sound_sets=2;;;0 newest_sound_set_age=12600s;;;0 \
                       longest_gap=18000s;;;0\n";
        assert!(text.ends_with(figures), "{text}");
    }

    #[test]
    fn a_target_that_cannot_be_opened_is_unknown() {
        let total = Summary::default();
        let text = line(
            |report| {
                report.failed_target("/x", "cannot open /x: gone\nhint: look", UNIX_EPOCH).unwrap();
            },
            &end(Verdict::Incomplete, &total),
        );
        let begin = "PAGEWARDEN UNKNOWN - incomplete; 1 of 1 target could not be checked; first: \
                     cannot open /x: gone | damaged=0;;0;0 ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn states_follow_the_verdict() {
        for (verdict, missed, state) in [
            (Verdict::Damaged, false, State::Critical),
            (Verdict::Damaged, true, State::Critical),
            (Verdict::Incomplete, true, State::Unknown),
            (Verdict::Suspect, false, State::Warning),
            (Verdict::Unprotected, false, State::Ok),
            (Verdict::Unprotected, true, State::Warning),
            (Verdict::Intact, true, State::Warning),
            (Verdict::Intact, false, State::Ok),
        ] {
            assert_eq!(State::of(verdict, missed), state);
        }
    }
}

//! The sets of a repository and what its log brings back, on one line of time. Gaps are hatched and
//! outlined, so that they do not depend on colours; it is drawn here, and stretches to any width.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use crate::database::Description;
use crate::database::repository::{Log, RepositoryPart, spans};
use crate::report::html::{class, escaped, more};
use crate::verdict::Verdict;
use crate::words::{duration, time_of, utc_seconds};

/// Sets that are drawn: the newest.
const SETS_MAX: usize = 40;
/// Gaps that are listed.
const GAPS_MAX: usize = 20;
/// What the line of time is wide, in units of its own.
const WIDTH: f64 = 1000.0;
/// The least that is still seen at 400 pixels.
const WIDTH_MIN: f64 = 6.0;

/// A set, and when it was done.
#[derive(Debug, Clone)]
pub(super) struct SetMark {
    label: String,
    verdict: Verdict,
    done: Option<SystemTime>,
}

impl SetMark {
    /// Of a target that is a set.
    pub(super) fn of(description: &Description, verdict: Verdict) -> Option<Self> {
        let Some(RepositoryPart::Set(set)) = &description.part else { return None };
        let done = set.stopped.as_deref().or(set.started.as_deref()).and_then(time_of);
        Some(Self { label: set.label.clone(), verdict, done })
    }
}

/// From when to when.
#[derive(Debug, Clone, Copy)]
struct Line {
    begin: SystemTime,
    seconds: f64,
}

impl Line {
    fn over(times: impl Iterator<Item = SystemTime> + Clone) -> Option<Self> {
        let (begin, end) = (times.clone().min()?, times.max()?);
        let seconds = end.duration_since(begin).ok()?.as_secs_f64().max(1.0);
        Some(Self { begin, seconds })
    }

    fn at(self, time: SystemTime) -> f64 {
        let since = time.duration_since(self.begin).unwrap_or_default().as_secs_f64();
        (since / self.seconds * WIDTH).clamp(0.0, WIDTH)
    }

    /// Where a stretch begins, and how wide it is drawn.
    fn stretch(self, from: SystemTime, to: SystemTime) -> (f64, f64) {
        let (from, to) = (self.at(from), self.at(to));
        let width = (to - from).max(WIDTH_MIN);
        (from.min(WIDTH - width).max(0.0), width)
    }
}

/// Draws it; nothing where times are not known.
pub(super) fn draw(page: &mut String, sets: &[SetMark], log: &Log) {
    let Some(spans) = spans(&log.restorable) else { return };
    let known = |(from, to): &(&str, &str)| Some((time_of(from)?, time_of(to)?));
    let spans: Vec<_> = spans.iter().filter_map(known).collect();
    let ends = spans.iter().flat_map(|(from, to)| [*from, *to]);
    let Some(line) = Line::over(ends.chain(sets.iter().filter_map(|set| set.done))) else { return };
    let gaps: Vec<(SystemTime, SystemTime)> = spans
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] => Some((before.1, after.0)),
            _ => None,
        })
        .collect();
    page.push_str("<h3>Moments that can be restored</h3>\n<div class=\"timeline\">\n");
    row(page, "log", &log_bars(line, &spans, &gaps), "Moments that the log brings back");
    let skipped = sets.len().saturating_sub(SETS_MAX);
    for set in sets.iter().skip(skipped) {
        let label = format!(
            "<code>{}</code> <span class=\"tag {}\">{}</span>",
            escaped(&set.label),
            class(set.verdict),
            set.verdict.name()
        );
        let ways = log.restorable.iter().filter(|way| way.set == set.label);
        let ways = ways.filter_map(|way| {
            Some((time_of(way.from_time.as_deref()?)?, time_of(way.to_time.as_deref()?)?))
        });
        row(page, &label, &set_bars(line, set, ways), &format!("Set {}", escaped(&set.label)));
    }
    let end = line.begin.checked_add(Duration::from_secs_f64(line.seconds)).unwrap_or(line.begin);
    let _ = writeln!(
        page,
        "<p class=\"ends\"><span>{}</span><span>{}</span></p>\n</div>",
        plain(line.begin),
        plain(end)
    );
    more(page, skipped, "set", "older than these");
    list_gaps(page, &gaps);
}

fn row(page: &mut String, label: &str, bars: &str, title: &str) {
    let _ = writeln!(
        page,
        "<p>{label}</p><svg viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{title}\"><rect class=\"rail\" x=\"0\" y=\"7\" width=\"1000\" height=\"2\"/>\
         {bars}</svg>"
    );
}

fn bar(text: &mut String, class: &str, (x, width): (f64, f64), title: &str) {
    let _ = write!(
        text,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"1\" width=\"{width:.1}\" height=\"14\">\
         <title>{title}</title></rect>"
    );
}

fn log_bars(
    line: Line,
    spans: &[(SystemTime, SystemTime)],
    gaps: &[(SystemTime, SystemTime)],
) -> String {
    // Drawn line by line: what fills a pattern would be stretched with the picture.
    const HATCH: f64 = 8.0;
    let mut text = String::new();
    for (from, to) in spans {
        let title = format!("any moment from {} to {}", plain(*from), plain(*to));
        bar(&mut text, "span", line.stretch(*from, *to), &title);
    }
    for (from, to) in gaps {
        let (x, width) = line.stretch(*from, *to);
        let title = format!("nothing from {} to {}", plain(*from), plain(*to));
        bar(&mut text, "gap", (x, width), &title);
        let mut at = x + HATCH / 2.0;
        while at < x + width {
            let _ = write!(text, "<path class=\"hatch\" d=\"M{at:.1} 1V15\"/>");
            at += HATCH;
        }
    }
    text
}

fn set_bars(
    line: Line,
    set: &SetMark,
    ways: impl Iterator<Item = (SystemTime, SystemTime)>,
) -> String {
    let mut text = String::new();
    for (from, to) in ways {
        let title = format!("from {} to {}", plain(from), plain(to));
        let (x, width) = line.stretch(from, to);
        let _ = write!(
            text,
            "<rect class=\"way\" x=\"{x:.1}\" y=\"5\" width=\"{width:.1}\" height=\"6\">\
             <title>{title}</title></rect>"
        );
    }
    if let Some(done) = set.done {
        let class = match set.verdict {
            Verdict::Damaged => "set bad",
            Verdict::Incomplete | Verdict::Suspect => "set fair",
            Verdict::Unprotected | Verdict::Intact => "set good",
        };
        bar(&mut text, class, line.stretch(done, done), &format!("taken {}", plain(done)));
    }
    text
}

fn list_gaps(page: &mut String, gaps: &[(SystemTime, SystemTime)]) {
    if gaps.is_empty() {
        return;
    }
    page.push_str("<ul>\n");
    for (from, to) in gaps.iter().take(GAPS_MAX) {
        let length = to.duration_since(*from).unwrap_or_default();
        let _ = writeln!(
            page,
            "<li>No moment from {} to {} can be restored: {}.",
            plain(*from),
            plain(*to),
            duration(length)
        );
    }
    page.push_str("</ul>\n");
    more(page, gaps.len().saturating_sub(GAPS_MAX), "gap", "<code>--json</code> lists them all");
}

/// `2026-11-23 09:10:11 UTC`
fn plain(time: SystemTime) -> String {
    utc_seconds(time).replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sets::tests::{log, set};

    fn drawn(hours: &[(&str, u32)], ways: &[(&str, u32, u32)]) -> String {
        let sets: Vec<_> = hours
            .iter()
            .filter_map(|(label, hour)| SetMark::of(&set(label, *hour), Verdict::Intact))
            .collect();
        let mut page = String::new();
        draw(&mut page, &sets, &log(ways));
        page
    }

    #[test]
    fn gap_is_drawn_between_its_spans_and_said_in_words() {
        let page = drawn(&[("a", 1), ("b<", 9)], &[("a", 1, 5), ("b<", 9, 11)]);
        assert!(page.contains("class=\"span\" x=\"0.0\" y=\"1\" width=\"400.0\""), "{page}");
        assert!(page.contains("class=\"gap\" x=\"400.0\" y=\"1\" width=\"400.0\""), "{page}");
        assert_eq!(page.matches("class=\"hatch\"").count(), 50, "{page}");
        let words = "No moment from 2026-11-23 05:00:00 UTC to 2026-11-23 09:00:00 UTC can be \
                     restored: 4 h 0 min.";
        assert!(page.contains(words), "{page}");
        assert!(page.contains("b&lt;") && !page.contains("b<"), "{page}");
    }

    #[test]
    fn many_sets_and_unknown_times_do_no_harm() {
        assert_eq!(drawn(&[], &[]), "");
        let hours: Vec<_> = (0..60).map(|at| ("a", at % 24)).collect();
        let page = drawn(&hours, &[("a", 0, 23)]);
        assert_eq!(page.matches("<svg").count(), 1 + SETS_MAX);
        assert!(page.contains("20 more sets"), "{page}");
    }
}

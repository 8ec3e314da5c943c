//! One page for people that needs nothing else: no network, no script, no
//! other file. It fits into [`PAGE_BYTES_MAX`] whatever the database is like,
//! so that it can be sent by mail and kept for years.
//!
//! ```text
//! verdict, as a sentence
//! table of targets              where there are several
//! for each target, worst first
//!     what it is, what came out, what an "ok" is worth
//!     map of its pages
//!     findings, what could not be read, notes
//! ```
//!
//! Names of files come from everyone who could write to the database's folders.
//! Everything but our own words goes through `escaped`, and the page forbids
//! itself scripts and requests.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::SystemTime;

use crate::database::Description;
use crate::database::repository::RepositoryPart;
use crate::report::html::section::Gathered;
use crate::report::html::timeline::SetMark;
use crate::report::why::besides;
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, Recount, Stretch, Unread, Verdict};
use crate::verify::{Sink, Summary, Verified};
use crate::words::{
    bytes, counted, duration, escaped_for_html, grouped, printable, rate, shortened, utc,
};

mod picture;
mod section;
mod timeline;

/// No page is larger than this.
pub const PAGE_BYTES_MAX: usize = 300_000;

/// What every page of the program begins with.
pub const BEGIN: &str = "<!doctype html>\n<!-- pagewarden -->\n";

/// The looks of every page of the program; kept apart because it is another language.
pub const STYLE: &str = include_str!("html/style.css");

/// How every page of the program begins, up to what is on it. Nothing is fetched for it and no
/// script runs, whatever a name in it holds. Title and styles stand there as they are.
#[must_use]
pub fn head(title: &str, styles: &[&str]) -> String {
    format!(
        "{BEGIN}<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} - pagewarden</title>\n<style>\n{}</style></head>\n<body><main>\n",
        styles.concat()
    )
}

/// Tiles on all maps together.
const TILES_MAX: usize = 4096;
/// Targets among which the room is divided; of more, the mildest are only
/// rows of the table.
const SHARES_MAX: usize = 16;
/// What all targets may take, and the rows of the table of targets.
const TARGETS_BYTES: usize = 235_000;
const ROWS_BYTES: usize = 30_000;
/// Characters of a name or of an error that are shown.
const TEXT_CHARS_MAX: usize = 300;

/// Writes the page; see the module.
#[derive(Debug)]
pub struct HtmlReport<W> {
    out: W,
    shares: usize,
    /// What is gathered of the current target.
    current: Gathered,
    rows: Vec<TableRow>,
    sections: Vec<(Verdict, String)>,
    /// Of the repository whose targets come.
    sets: Vec<SetMark>,
}

/// A row of the table of targets.
#[derive(Debug)]
struct TableRow {
    verdict: Verdict,
    html: String,
}

impl<W: Write> HtmlReport<W> {
    /// A page to `out` for about `targets` targets, among which the room is
    /// divided.
    pub fn new(out: W, targets: usize) -> Self {
        Self {
            out,
            shares: targets.clamp(1, SHARES_MAX),
            current: Gathered::default(),
            rows: Vec::new(),
            sections: Vec::new(),
            sets: Vec::new(),
        }
    }

    fn keep(&mut self, verdict: Verdict, row: String, section: String) {
        self.rows.push(TableRow { verdict, html: row });
        self.sections.push((verdict, section));
        drop_mildest(&mut self.sections, TARGETS_BYTES, |(_, html)| html.len(), |(v, _)| *v);
    }

    /// Keeps a set in mind; of the repository at its end, the line of time of its sets.
    fn time_line(&mut self, target: &TargetEnd<'_>) -> String {
        let description = &target.verified.description;
        let mut line = String::new();
        match &description.part {
            Some(RepositoryPart::Whole(log)) => {
                let sets = std::mem::take(&mut self.sets);
                if let Some(log) = log {
                    timeline::draw(&mut line, &sets, log);
                }
            }
            _ => self.sets.extend(SetMark::of(description, target.verdict())),
        }
        line
    }

    fn page(&mut self, run: &RunEnd<'_>) -> String {
        let all = self.rows.len();
        drop_mildest(&mut self.rows, ROWS_BYTES, |row| row.html.len(), |row| row.verdict);
        let word = title_word(run.verdict);
        let mut page = head(word, &[STYLE]);
        let total = run.total;
        let _ = write!(
            page,
            "<header class=\"{}\"><p class=\"word\">{word}</p><h1>{}</h1>\n<p>",
            class(run.verdict),
            sentence(run, all)
        );
        if run.opened > 0 {
            let _ = write!(
                page,
                "Checked {} ({}) of {} in {} ({} MiB/s), ended {}.",
                counted(total.pages.total(), "page"),
                bytes(total.bytes),
                counted(total.files, "file"),
                duration(total.elapsed),
                rate(total.mib_per_second()),
                utc(run.ended)
            );
        } else {
            let _ = write!(page, "Ended {}.", utc(run.ended));
        }
        page.push_str("</p></header>\n");
        if all > 1 {
            page.push_str("<section><h2>Targets</h2><table><thead><tr><th>Target<th>Verdict<th class=\"n\">Pages<th class=\"n\">Damaged</thead><tbody>\n");
            self.rows.iter().for_each(|row| page.push_str(&row.html));
            page.push_str("</tbody></table>\n");
            more(&mut page, all - self.rows.len(), "target", "none of them worse than these");
            page.push_str("</section>\n");
        }
        // Worst first, and as they came where they are alike.
        self.sections.sort_by_key(|(verdict, _)| *verdict);
        self.sections.iter().for_each(|(_, section)| page.push_str(section));
        if self.sections.len() < all {
            let _ = writeln!(
                page,
                "<p class=\"more\">{} more of the table above, no worse, without details here.</p>",
                counted(as_u64(all - self.sections.len()), "target")
            );
        }
        let _ = write!(
            page,
            "<footer>Written by pagewarden {}. Names and numbers of pages only: no content of any \
             row is in this report.</footer>\n</main></body></html>\n",
            crate::VERSION
        );
        page
    }
}

/// Drops elements, the mildest and of those the last first, until the rest
/// takes no more than `room`.
fn drop_mildest<T>(
    elements: &mut Vec<T>,
    room: usize,
    size: impl Fn(&T) -> usize,
    verdict: impl Fn(&T) -> Verdict,
) {
    let mut taken: usize = elements.iter().map(&size).sum();
    while taken > room {
        // The last of several equal maxima.
        let mildest = elements.iter().enumerate().max_by_key(|(_, element)| verdict(element));
        let Some((index, _)) = mildest else { return };
        taken -= size(&elements.remove(index));
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn title_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Damaged => "Damaged",
        Verdict::Incomplete => "Incomplete",
        Verdict::Suspect => "Suspect",
        Verdict::Unprotected => "Unprotected",
        Verdict::Intact => "Intact",
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Damaged => "bad",
        Verdict::Incomplete | Verdict::Suspect | Verdict::Unprotected => "fair",
        Verdict::Intact => "good",
    }
}

/// The verdict on the run as a sentence or two.
fn sentence(run: &RunEnd<'_>, targets: usize) -> String {
    let total = run.total;
    if run.opened == 0 {
        return if total.stopped {
            "The check was stopped before it began.".to_owned()
        } else {
            "Nothing could be checked.".to_owned()
        };
    }
    let failed = as_u64(targets).saturating_sub(run.opened);
    let all = counted(as_u64(targets), "target");
    let mut text = if run.verdict == Verdict::Incomplete && total.is_complete() {
        // What is missing is said below, or in the section of the target.
        "Nothing wrong was found in what could be checked.".to_owned()
    } else {
        target_sentence(run.verdict, total)
    };
    if failed > 0 {
        let _ = write!(text, " {} of {all} could not be checked.", grouped(failed));
    }
    if run.protection_missed {
        text.push_str(" Less is protected than was demanded.");
    }
    text
}

/// The verdict on a target as a sentence or two.
fn target_sentence(verdict: Verdict, summary: &Summary) -> String {
    let pages = &summary.pages;
    match verdict {
        Verdict::Damaged => {
            let what = match (pages.damaged, pages.total()) {
                (0, _) => "Files are damaged or missing.".to_owned(),
                (1, all) => format!("1 of {} is damaged.", counted(all, "page")),
                (damaged, all) => {
                    format!("{} of {} are damaged.", grouped(damaged), counted(all, "page"))
                }
            };
            let what = match besides(summary).filter(|_| pages.damaged > 0) {
                Some(besides) => format!("{what} Besides: {besides}."),
                None => what,
            };
            if summary.stopped {
                format!("{what} The check was stopped before all was read: there may be more.")
            } else if summary.unread > 0 {
                format!("{what} Not everything could be read: there may be more.")
            } else {
                what
            }
        }
        Verdict::Incomplete => {
            let why = if summary.stopped {
                "The check was stopped before all was read."
            } else if summary.unread > 0 {
                "Not everything could be read."
            } else if pages.undecided > 0 {
                "Some pages kept changing to the end and could not be judged."
            } else {
                "Some pages could not be tested without a key or a reader of their format."
            };
            let found = if summary.severities.suspect > 0 {
                "Nothing is certainly damaged in the rest, but something is suspect."
            } else {
                "Nothing wrong was found in the rest."
            };
            format!("{why} {found}")
        }
        Verdict::Suspect => "Nothing is certainly damaged, but something is odd. Recovery or a \
                             rare history could explain it."
            .to_owned(),
        Verdict::Unprotected => "Nothing wrong was seen, but the pages carry no checksums, so \
                                 damage may go undetected."
            .to_owned(),
        Verdict::Intact if pages.unprotected + pages.unverifiable + pages.suspect > 0 => {
            let mut text = "Nothing is damaged.".to_owned();
            for (count, what) in [
                (pages.suspect, "failed the test for a harmless reason, told below"),
                (pages.unprotected, "could not be tested: no checksum"),
                (pages.unverifiable, "could not be tested: no key, or no reader of their format"),
            ] {
                if count > 0 {
                    let _ = write!(text, " {} {what}.", counted(count, "page"));
                }
            }
            text
        }
        Verdict::Intact => "Every page in use was tested and is sound.".to_owned(),
    }
}

/// Text from outside, made harmless for a person and for a browser.
pub(super) fn escaped(text: &str) -> String {
    escaped_for_html(&shortened(&printable(text), TEXT_CHARS_MAX))
}

/// Says that there is more than is listed.
fn more(page: &mut String, count: usize, word: &str, remark: &str) {
    if count > 0 {
        let more = counted(as_u64(count), &format!("more {word}"));
        let _ = writeln!(page, "<p class=\"more\">and {more}, {remark}.</p>");
    }
}

impl<W: Write + Send> Sink for HtmlReport<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.current.finding(finding)
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.current.unread(unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.current.note(note)
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        self.current.pages(stretch)
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        self.current.recount(recount)
    }
}

impl<W: Write + Send> Report for HtmlReport<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.current = Gathered::new(TILES_MAX / self.shares, target.page_size);
        Ok(())
    }

    fn advise(&mut self, command: &str, page: Option<&str>) -> io::Result<()> {
        self.current.repair = Some((command.to_owned(), page.map(str::to_owned)));
        Ok(())
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let line = self.time_line(target);
        let section = self.current.section(target, self.shares, &line);
        let Verified { description, summary, .. } = target.verified;
        let verdict = target.verified.verdict();
        let row = format!(
            "<tr><td><code>{}</code><td><span class=\"tag {}\">{}</span>\
             <td class=\"n\">{}<td class=\"n\">{}\n",
            escaped(&description.path.to_string_lossy()),
            class(verdict),
            verdict.name(),
            grouped(summary.pages.total()),
            grouped(summary.pages.damaged)
        );
        self.keep(verdict, row, section);
        Ok(())
    }

    fn failed_target(&mut self, path: &str, error: &str, _: SystemTime) -> io::Result<()> {
        let path = escaped(path);
        let mut lines = error.lines();
        let mut section = format!(
            "<section><h2><code>{path}</code></h2>\n\
             <p class=\"lead\"><b class=\"fair\">Not checked.</b> {}</p>\n",
            escaped(lines.next().unwrap_or_default())
        );
        for line in lines.take(4) {
            let hint = line.strip_prefix("hint: ").unwrap_or(line);
            let _ = writeln!(section, "<p class=\"hint\">{}</p>", escaped(hint));
        }
        section.push_str("</section>\n");
        let row = format!(
            "<tr><td><code>{path}</code><td><span class=\"tag fair\">not checked</span><td><td>\n"
        );
        self.keep(Verdict::Incomplete, row, section);
        Ok(())
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        let page = self.page(run);
        self.out.write_all(page.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::report::sample::{description, end, stretch};
    use crate::verdict::{
        ByteOffset, Kind, PageCounts, PageNo, Severity, SeverityCounts, Standing,
    };

    /// Grows most when it is escaped.
    const HOSTILE: &str = "<script>alert('1')</script>\u{202e}\x1b[2J\n&\"onload=\"x";

    fn finding(file: &str, page: u64, severity: Severity) -> Finding {
        Finding::of_file(file, severity, Kind::Checksum, "pd_lsn 0/1234".to_owned())
            .at(Some(PageNo(page)), Some(ByteOffset(page * 8192)))
            .with_sums(Some("1a2b".to_owned()), Some("3c4d".to_owned()))
            .with_hint("restore it")
    }

    type Page<'a> = HtmlReport<&'a mut Vec<u8>>;

    fn target(report: &mut Page<'_>, path: &str, summary: &Summary, act: impl Fn(&mut Page<'_>)) {
        let description = description(path);
        report.begin_target(&description).unwrap();
        act(report);
        report
            .end_target(&TargetEnd {
                verified: &Verified::of(description.clone(), summary.clone()),
                listed_bytes: Some(80 << 20),
                ended: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
                overall: None,
            })
            .unwrap();
    }

    fn page(
        targets: usize,
        verdict: Verdict,
        total: &Summary,
        act: impl Fn(&mut Page<'_>),
    ) -> String {
        let mut out = Vec::new();
        let mut report = HtmlReport::new(&mut out, targets);
        act(&mut report);
        let ended = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        report.end(&RunEnd { ended, ..end(verdict, total) }).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.starts_with(BEGIN));
        assert!(page.len() <= PAGE_BYTES_MAX, "{} bytes", page.len());
        harmless(&page);
        page
    }

    /// Nothing that fetches, runs or misleads.
    fn harmless(page: &str) {
        for forbidden in
            ["<script", "<img", "<link", "<iframe", " onload", " src=", " href=", "url(", "@import"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.chars().all(|c| c == '\n' || printable(&c.to_string()).chars().count() == 1));
    }

    fn summary(damaged: u64) -> Summary {
        Summary {
            files: 3,
            pages: PageCounts { ok: 1000, damaged, ..PageCounts::default() },
            bytes: 1000 * 8192,
            severities: SeverityCounts { damage: damaged, ..SeverityCounts::default() },
            elapsed: Duration::from_millis(1500),
            ..Summary::default()
        }
    }

    #[test]
    fn the_verdict_the_counts_and_the_findings_are_on_the_page() {
        let total = summary(3);
        let page = page(1, Verdict::Damaged, &total, |report| {
            target(report, "/data", &total, |report| {
                report.pages(&stretch("base/5/1", 0, 1000, Some(Standing::Ok))).unwrap();
                report.pages(&stretch("base/5/1", 1000, 3, Some(Standing::Damaged))).unwrap();
                for page in [1000, 1001, 1002] {
                    report.finding(&finding("base/5/1", page, Severity::Damage)).unwrap();
                }
            });
        });
        for text in [
            "<h1>3 of 1,003 pages are damaged.</h1>",
            "<b>3</b> damaged",
            "<code>base/5/1</code> pages 1000 to 1002 (3)",
            "restore it",
            "title=\"base/5/1 page 1000 to 1002: 3 damaged\"",
            "ended 2026-09-21 14:13 UTC",
        ] {
            assert!(page.contains(text), "no {text} in\n{page}");
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let total = Summary { unread: 1, ..summary(1) };
        let page = page(2, Verdict::Damaged, &total, |report| {
            target(report, HOSTILE, &total, |report| {
                report.pages(&stretch(HOSTILE, 0, 1, Some(Standing::Damaged))).unwrap();
                let mut bad = finding(HOSTILE, 0, Severity::Damage);
                for text in [&mut bad.detail, &mut bad.hint, &mut bad.object, &mut bad.stored] {
                    *text = Some(HOSTILE.to_owned());
                }
                report.finding(&bad).unwrap();
                let (file, error) = (HOSTILE.to_owned(), HOSTILE.to_owned());
                let unread = Unread::stretch(file, ByteOffset(0), 1, error);
                report.unread(&unread).unwrap();
                let note = Note { file: HOSTILE.to_owned(), text: HOSTILE.to_owned() };
                report.note(&note).unwrap();
            });
            report.failed_target(HOSTILE, HOSTILE, UNIX_EPOCH).unwrap();
        });
        assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\\u{202e}\\u{1b}"));
    }

    #[test]
    fn the_page_stays_small_whatever_is_found() {
        let name = |index: u64| format!("{}{index}", "<&\u{202e}".repeat(200));
        let total = Summary { unread: 5000, ..summary(50_000) };
        let worst = |report: &mut Page<'_>| {
            for index in 0..50_000 {
                let file = name(index);
                let standing = [Some(Standing::Ok), Some(Standing::Damaged), None];
                let standing = standing[usize::try_from(index % 3).unwrap()];
                report.pages(&stretch(&file, 0, 1, standing)).unwrap();
                let mut bad = finding(&file, 0, Severity::Damage);
                (bad.detail, bad.hint) = (Some(file.clone()), Some(file.clone()));
                report.finding(&bad).unwrap();
                let note = Note { file: file.clone(), text: file.clone() };
                report.note(&note).unwrap();
                let error = file.clone();
                report.unread(&Unread::stretch(file, ByteOffset(0), 1, error)).unwrap();
            }
        };
        let one = page(1, Verdict::Damaged, &total, |report| {
            target(report, &name(0), &total, worst);
        });
        assert!(one.len() > 100_000, "{} bytes: is the room used?", one.len());
        assert!(one.contains("more findings, none graver than these"));
        let three = page(3, Verdict::Damaged, &total, |report| {
            (0..3).for_each(|index| target(report, &name(index), &total, worst));
        });
        assert_eq!(three.matches("<h3>Findings</h3>").count(), 3);
    }

    #[test]
    fn of_many_targets_the_worst_stay_on_the_page() {
        let (good, bad) = (summary(0), summary(1));
        let page = page(5000, Verdict::Damaged, &bad, |report| {
            for index in 0..5000 {
                let total = if index == 4999 { &bad } else { &good };
                target(report, &format!("/srv/{index}.sqlite"), total, |report| {
                    report.pages(&stretch("x", 0, 100, Some(Standing::Ok))).unwrap();
                });
            }
        });
        let at = page.find("<h2><code>/srv/4999.sqlite").expect("the damaged one");
        assert_eq!(page.find("<h2><code>"), Some(at), "it comes first");
        assert!(page.contains("more targets, none of them worse than these"));
    }

    #[test]
    fn a_page_without_any_target_says_so() {
        let mut out = Vec::new();
        let mut report = HtmlReport::new(&mut out, 1);
        report.failed_target("/x", "cannot open /x\nhint: look there", UNIX_EPOCH).unwrap();
        let (verdict, total) = (Verdict::Incomplete, Summary::default());
        report.end(&RunEnd { opened: 0, ..end(verdict, &total) }).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.contains("<h1>Nothing could be checked.</h1>"), "{page}");
        assert!(page.contains("<p class=\"hint\">look there</p>"), "{page}");
    }
}

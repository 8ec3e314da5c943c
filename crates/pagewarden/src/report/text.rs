//! Results for people: a line for what a target is, a line for each finding
//! (neighbouring pages with the same fault share one), and one line at the end.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use crate::target::Description;
use crate::verdict::{Finding, Note, PageCounts, Severity, Unread, Verdict};
use crate::verify::{Sink, Summary, mib_per_second};

/// Escape sequences, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    fn paint(self, text: &str, code: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn severity(self, severity: Severity) -> String {
        // Padded before it is painted: escape sequences have no width.
        let word = format!("{:<8}", severity.name());
        match severity {
            Severity::Damage => self.paint(&word, "1;31"),
            Severity::Suspect => self.paint(&word, "33"),
            Severity::Notice => self.paint(&word, "36"),
        }
    }

    fn verdict(self, verdict: Verdict) -> String {
        let code = match verdict {
            Verdict::Damaged => "1;31",
            Verdict::Incomplete | Verdict::Suspect | Verdict::Unprotected => "33",
            Verdict::Intact => "32",
        };
        self.paint(verdict.name(), code)
    }
}

/// Writes the lines; see the module.
#[derive(Debug)]
pub struct TextReport<W> {
    out: W,
    colours: Colours,
    folded: Option<Folded>,
    last_hint: Option<String>,
}

/// A finding, and how many pages after it have the same fault.
#[derive(Debug)]
struct Folded {
    finding: Finding,
    pages: u64,
}

impl<W: Write> TextReport<W> {
    /// A report to `out`.
    pub fn new(out: W, colours: Colours) -> Self {
        Self { out, colours, folded: None, last_hint: None }
    }

    /// Says what a target is.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.last_hint = None;
        writeln!(
            self.out,
            "{}: {}, {} pages, {}",
            printable(&target.path.to_string_lossy()),
            target.engine,
            bytes(u64::from(target.page_size)),
            target.state
        )
    }

    /// Ends a target.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end_target(&mut self, target: &Description, summary: &Summary) -> io::Result<()> {
        self.unfold()?;
        let verdict = summary.verdict(target.setting);
        writeln!(
            self.out,
            "  verdict: {} ({})",
            self.colours.verdict(verdict),
            why(verdict, summary)
        )?;
        if matches!(verdict, Verdict::Intact | Verdict::Damaged | Verdict::Unprotected) {
            writeln!(self.out, "  tested by {}", target.evidence)?;
        }
        Ok(())
    }

    /// Writes the last line.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end(mut self, total: &Summary) -> io::Result<()> {
        writeln!(self.out, "{}", last_line(total))?;
        self.out.flush()
    }

    fn unfold(&mut self) -> io::Result<()> {
        let Some(folded) = self.folded.take() else { return Ok(()) };
        let Finding { place, severity, kind, .. } = &folded.finding;
        let mut line = format!(
            "  {} {:<10} {}",
            self.colours.severity(*severity),
            kind.name(),
            printable(&place.file)
        );
        if let Some(page) = place.page {
            if folded.pages > 1 {
                let last = page.plus(folded.pages - 1);
                let _ = write!(line, " pages {page} to {last} ({} pages)", grouped(folded.pages));
            } else {
                let _ = write!(line, " page {page}");
            }
        }
        if let Some(offset) = place.offset {
            let _ = write!(line, " at byte {}", offset.0);
        }
        let sums = match (&folded.finding.stored, &folded.finding.computed) {
            (Some(stored), Some(computed)) if folded.pages == 1 => {
                Some(format!("stored {stored}, computed {computed}"))
            }
            _ => None,
        };
        // The detail is the first page's; of many, it stands as an example.
        let detail = folded.finding.detail.as_deref().map(printable);
        let evidence: Vec<_> = sums.into_iter().chain(detail).collect();
        if !evidence.is_empty() {
            let _ = write!(line, ": {}", evidence.join("; "));
        }
        writeln!(self.out, "{line}")?;
        if let Some(hint) = &folded.finding.hint
            && self.last_hint.as_ref() != Some(hint)
        {
            writeln!(self.out, "           hint: {}", printable(hint))?;
            self.last_hint = Some(hint.clone());
        }
        Ok(())
    }
}

impl Folded {
    /// True if `next` is the same fault on the next page.
    fn takes(&self, next: &Finding) -> bool {
        let (Some(first), Some(page)) = (self.finding.place.page, next.place.page) else {
            return false;
        };
        self.finding.place.file == next.place.file
            && self.finding.kind == next.kind
            && self.finding.severity == next.severity
            && first.plus(self.pages) == page
    }
}

impl<W: Write + Send> Sink for TextReport<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        match &mut self.folded {
            Some(folded) if folded.takes(finding) => folded.pages += 1,
            _ => {
                self.unfold()?;
                self.folded = Some(Folded { finding: finding.clone(), pages: 1 });
            }
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unfold()?;
        let word = self.colours.paint(&format!("{:<8}", "unread"), "33");
        write!(self.out, "  {word} {}", printable(&unread.file))?;
        if unread.length > 0 {
            write!(self.out, " at byte {}, {}", unread.offset.0, bytes(unread.length))?;
        }
        writeln!(self.out, ": {}", printable(&unread.error))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.unfold()?;
        let word = self.colours.paint(&format!("{:<8}", "note"), "36");
        let about = if note.file.is_empty() {
            String::new()
        } else {
            format!("{}: ", printable(&note.file))
        };
        writeln!(self.out, "  {word} {about}{}", printable(&note.text))
    }
}

/// The verdict in words.
fn why(verdict: Verdict, summary: &Summary) -> String {
    match verdict {
        Verdict::Damaged if summary.pages.damaged == 0 => "files are damaged or missing".to_owned(),
        Verdict::Damaged => format!(
            "{} of {} pages",
            grouped(summary.pages.damaged),
            grouped(summary.pages.total())
        ),
        Verdict::Incomplete if summary.stopped => "stopped before all was read".to_owned(),
        Verdict::Incomplete if summary.unread > 0 => "not everything could be read".to_owned(),
        Verdict::Incomplete if summary.pages.undecided > 0 => {
            "some pages kept changing to the end".to_owned()
        }
        Verdict::Incomplete => "no page could be tested without its key".to_owned(),
        Verdict::Suspect => "recovery or a rare history could explain what was found".to_owned(),
        Verdict::Unprotected => "nothing wrong seen, but the pages carry no checksums".to_owned(),
        Verdict::Intact => "every page that is in use was tested".to_owned(),
    }
}

/// `Checked 417,032 pages (3.18 GiB) of 312 files in 0.64 s (4,970 MiB/s): 3
/// damaged, 12 empty, 0 unprotected`.
#[must_use]
pub fn last_line(total: &Summary) -> String {
    let PageCounts { empty, unprotected, unverifiable, undecided, suspect, damaged, .. } =
        total.pages;
    let mut line = format!(
        "Checked {} pages ({}) of {} files in {} ({} MiB/s): {} damaged, {} empty, {} unprotected",
        grouped(total.pages.total()),
        bytes(total.bytes),
        grouped(total.files),
        duration(total.elapsed),
        rate(mib_per_second(total.bytes, total.elapsed)),
        grouped(damaged),
        grouped(empty),
        grouped(unprotected)
    );
    for (count, word) in [
        (unverifiable, "unverifiable"),
        (undecided, "undecided"),
        (suspect, "suspect"),
        (total.unread, "unread"),
    ] {
        if count > 0 {
            let _ = write!(line, ", {} {word}", grouped(count));
        }
    }
    if total.stopped {
        line.push_str(", stopped early");
    }
    line
}

/// `417,032`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `3.18 GiB`, `8 KiB`, `17 bytes`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in UNITS {
        if count >= size {
            if count.is_multiple_of(size) {
                return format!("{} {unit}", grouped(count / size));
            }
            return format!("{:.2} {unit}", count as f64 / size as f64);
        }
    }
    format!("{count} bytes")
}

fn rate(mib_per_second: f64) -> String {
    if mib_per_second >= 10.0 {
        let whole = format!("{mib_per_second:.0}");
        return whole.parse().map_or(whole, grouped);
    }
    format!("{mib_per_second:.2}")
}

/// `0.64 s`, `12 min 5 s`.
#[must_use]
pub fn duration(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..60 => format!("{:.2} s", elapsed.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A file's name may hold escape sequences; a terminal must not see them.
fn printable(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .flat_map(|c| {
            let escaped = if is_plain(c) { None } else { Some(c.escape_default()) };
            let plain = escaped.is_none().then_some(c);
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (417_032, "417,032"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(8192), "8 KiB");
        assert_eq!(bytes(3_416_326_144), "3.18 GiB");
        assert_eq!(bytes(17), "17 bytes");
    }

    #[test]
    fn control_characters_never_reach_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("gr\u{fc}n"), "gr\u{fc}n");
    }
}

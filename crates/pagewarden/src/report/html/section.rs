//! What the page says of one target, within the room it has.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use crate::report::TargetEnd;
use crate::report::fold::Folded;
use crate::report::html::picture::{counts, draw};
use crate::report::html::{class, escaped, more, target_sentence, title_word};
use crate::report::map::PageMap;
use crate::verdict::{Finding, Note, Protection, Recount, Severity, Stretch, Unread};
use crate::verify::{Sink, Summary, Verified};
use crate::words::{bytes, counted, duration, escaped_for_html, grouped, percent, rate, utc};

/// What the parts of one target may take, in bytes. Several share them.
const FINDINGS_BYTES: usize = 90_000;
const UNREAD_BYTES: usize = 12_000;
const NOTES_BYTES: usize = 8_000;
/// Rows of findings that are kept for each severity.
const FOLDS_MAX: usize = 300;
/// A command that is longer is left out.
const COMMAND_BYTES_MAX: usize = 1000;

/// What is gathered of the current target.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    map: Option<PageMap>,
    /// By severity, so that a thousand notices hide no damage.
    findings: BTreeMap<Severity, Vec<Folded>>,
    /// The last finding kept, for its neighbours.
    last: Option<Severity>,
    unread: Vec<Unread>,
    notes: Vec<Note>,
    notes_count: u64,
    /// The command that plans a repair, and the name of the page that it writes.
    pub(super) repair: Option<(String, Option<String>)>,
}

impl Gathered {
    /// Begins a target with pages of `page_bytes` and room for `tiles_max` tiles.
    pub(super) fn new(tiles_max: usize, page_bytes: u32) -> Self {
        Self { map: Some(PageMap::new(tiles_max, page_bytes)), ..Self::default() }
    }

    /// The section of the target at its end; `line` is what is drawn of a repository's sets.
    pub(super) fn section(&mut self, target: &TargetEnd<'_>, shares: usize, line: &str) -> String {
        let Verified { description, summary, .. } = target.verified;
        let verdict = summary.verdict(description.setting);
        let path = escaped(&description.path.to_string_lossy());
        let mut page = format!("<section><h2><code>{path}</code></h2>\n");
        // The only target's sentence is that of the page.
        if shares > 1 {
            let _ = writeln!(
                page,
                "<p class=\"lead\"><b class=\"{}\">{}.</b> {}</p>",
                class(verdict),
                title_word(verdict),
                target_sentence(verdict, summary)
            );
        }
        facts(&mut page, target);
        page.push_str(line);
        if let Some(mut map) = self.map.take() {
            map.end(target);
            counts(&mut page, summary, &map);
            draw(&mut page, &map, shares);
        }
        self.write_findings(&mut page, summary, FINDINGS_BYTES / shares);
        self.write_repair(&mut page, summary, description.live);
        self.write_unread(&mut page, summary, UNREAD_BYTES / shares);
        self.write_notes(&mut page, NOTES_BYTES / shares);
        page.push_str("</section>\n");
        page
    }

    fn write_findings(&self, page: &mut String, summary: &Summary, room: usize) {
        let all = summary.severities;
        let count = all.damage + all.suspect + all.notice;
        if count == 0 {
            return;
        }
        let _ = write!(
            page,
            "<h3>Findings</h3>\n<table class=\"findings\"><thead><tr><th>Where<th>What\
             <th>Stored<th>Computed<th>Evidence and advice</thead><tbody>\n"
        );
        let end = page.len() + room;
        let mut shown = 0;
        let mut hint = None;
        // The gravest severity is the greatest.
        for folded in self.findings.values().rev().flatten() {
            // Advice that is the same as above is not repeated.
            let is_new = hint != folded.finding.hint.as_ref();
            hint = folded.finding.hint.as_ref();
            let row = finding_row(folded, is_new);
            if page.len() + row.len() > end {
                break;
            }
            page.push_str(&row);
            shown += folded.pages;
        }
        page.push_str("</tbody></table>\n");
        let left = usize::try_from(count.saturating_sub(shown)).unwrap_or(usize::MAX);
        more(page, left, "finding", "none graver than these; <code>--json</code> lists them all");
    }

    /// The command is not shortened: it is pasted. Those that are longer are none of a person's.
    fn write_repair(&self, page: &mut String, summary: &Summary, is_live: bool) {
        let repair = self.repair.as_ref().filter(|(it, _)| it.len() <= COMMAND_BYTES_MAX);
        let Some((command, plan)) = repair.filter(|_| summary.severities.damage > 0) else {
            return;
        };
        let before = if is_live { "Stop the server first. " } else { "" };
        let _ = writeln!(
            page,
            "<h3>Repair</h3>\n<p>{before}This command says which pages can be brought back, and \
             by what proof; it writes nothing:</p>\n<pre class=\"command\">{}</pre>",
            escaped_for_html(command)
        );
        if let Some(plan) = plan {
            let _ = writeln!(
                page,
                "<p>Then <a href=\"{}\">the plan</a> is beside this page: each page before and after, \
                 its source and its proof.</p>",
                escaped_for_html(&address_of(plan))
            );
        }
    }

    fn write_unread(&self, page: &mut String, summary: &Summary, room: usize) {
        if summary.unread == 0 {
            return;
        }
        page.push_str("<h3>Not read</h3>\n<ul>\n");
        let end = page.len() + room;
        let mut shown = 0;
        for unread in &self.unread {
            let mut row = format!("<li><code>{}</code>", escaped(&unread.file));
            if unread.length > 0 {
                let _ = write!(row, " at byte {}, {}", unread.offset.0, bytes(unread.length));
            }
            let _ = writeln!(row, ": {}", escaped(&unread.error));
            if page.len() + row.len() > end {
                break;
            }
            page.push_str(&row);
            shown += 1;
        }
        page.push_str("</ul>\n");
        let left = usize::try_from(summary.unread).unwrap_or(usize::MAX).saturating_sub(shown);
        more(page, left, "stretch", "<code>--json</code> lists them all");
    }

    fn write_notes(&self, page: &mut String, room: usize) {
        if self.notes_count == 0 {
            return;
        }
        page.push_str("<h3>Notes</h3>\n<ul>\n");
        let end = page.len() + room;
        let mut shown = 0;
        for note in &self.notes {
            let mut row = "<li>".to_owned();
            if !note.file.is_empty() {
                let _ = write!(row, "<code>{}</code>: ", escaped(&note.file));
            }
            let _ = writeln!(row, "{}", escaped(&note.text));
            if page.len() + row.len() > end {
                break;
            }
            page.push_str(&row);
            shown += 1;
        }
        page.push_str("</ul>\n");
        let all = usize::try_from(self.notes_count).unwrap_or(usize::MAX);
        more(page, all.saturating_sub(shown), "note", "<code>--json</code> lists them all");
    }
}

impl Sink for Gathered {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        if let Some(last) = self.last
            && let Some(folded) = self.findings.get_mut(&last).and_then(|list| list.last_mut())
            && folded.takes(finding)
        {
            folded.pages += 1;
            return Ok(());
        }
        self.last = None;
        let list = self.findings.entry(finding.severity).or_default();
        if list.len() < FOLDS_MAX {
            list.push(Folded::one(finding));
            self.last = Some(finding.severity);
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        if self.unread.len() < FOLDS_MAX {
            self.unread.push(unread.clone());
        }
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes_count += 1;
        if self.notes.len() < FOLDS_MAX {
            self.notes.push(note.clone());
        }
        Ok(())
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.add(stretch);
        }
        Ok(())
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.recount(recount);
        }
        Ok(())
    }
}

fn facts(page: &mut String, target: &TargetEnd<'_>) {
    let Verified { description, summary, .. } = target.verified;
    let setting = match description.setting {
        Some(Protection::Checksum) => "checksums on",
        Some(Protection::Torn) => "torn page detection on",
        Some(Protection::None) => "checksums off",
        None => "not known",
    };
    page.push_str("<dl>\n");
    let mut fact = |name: &str, text: &str| {
        let _ = writeln!(page, "<div><dt>{name}<dd>{text}</div>");
    };
    let pages = match description.page_size {
        // A log has none.
        0 => String::new(),
        size => format!(", pages of {}", bytes(u64::from(size))),
    };
    fact("Engine", &format!("{}{pages}", escaped(&description.engine)));
    fact("State", &escaped(&description.state));
    fact("Setting", setting);
    fact(
        "Read",
        &match target.listed_bytes.filter(|_| summary.stopped) {
            Some(all) => format!(
                "{} of {} ({}), {}",
                bytes(summary.bytes),
                bytes(all),
                percent(summary.bytes, all),
                counted(summary.files, "file")
            ),
            None => format!("{}, {}", bytes(summary.bytes), counted(summary.files, "file")),
        },
    );
    fact(
        "Time",
        &format!("{} ({} MiB/s)", duration(summary.elapsed), rate(summary.mib_per_second())),
    );
    fact("Ended", &utc(target.ended));
    // Sentences of this program, which are shown whole.
    fact("Tested by", &escaped_for_html(description.evidence.tested_by));
    fact("Cannot detect", &escaped_for_html(description.evidence.unseen));
    page.push_str("</dl>\n");
}

fn finding_row(folded: &Folded, with_hint: bool) -> String {
    let Finding { place, severity, kind, database, object, detail, hint, .. } = &folded.finding;
    let mut row = format!("<tr><td><code>{}</code>", escaped(&place.file));
    if let (Some(page), Some(last)) = (place.page, folded.last()) {
        if folded.pages > 1 {
            let _ = write!(row, " pages {page} to {last} ({})", grouped(folded.pages));
        } else {
            let _ = write!(row, " page {page}");
        }
    }
    if let Some(offset) = place.offset {
        let _ = write!(row, " <small>at byte {}</small>", offset.0);
    }
    if let Some(object) = object {
        let _ = write!(row, " <span class=\"object\">{}", escaped(object));
        if let Some(database) = database {
            let _ = write!(row, " in database {}", escaped(database));
        }
        row.push_str("</span>");
    }
    let class = match severity {
        Severity::Damage => "bad",
        Severity::Suspect => "fair",
        Severity::Notice => "mild",
    };
    let _ = write!(
        row,
        "<td><span class=\"tag {class}\">{}</span> {}",
        severity.name(),
        kind.name().replace('_', " ")
    );
    match folded.sums() {
        Some((stored, computed)) => {
            let (stored, computed) = (escaped(stored), escaped(computed));
            let _ = write!(row, "<td><code>{stored}</code><td><code>{computed}</code>");
        }
        None => row.push_str("<td><td>"),
    }
    let _ = write!(row, "<td>{}", escaped(detail.as_deref().unwrap_or_default()));
    if let Some(hint) = hint.as_ref().filter(|_| with_hint) {
        let _ = write!(row, " <span class=\"hint\">{}</span>", escaped(hint));
    }
    row.push('\n');
    row
}

/// A file beside the page, as an address: no byte of its name can make another of it.
fn address_of(name: &str) -> String {
    let mut address = String::from("./");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

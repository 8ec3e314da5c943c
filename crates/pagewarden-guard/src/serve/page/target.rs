//! One database: its findings with their lives, a map of its pages, its passes, and what the tests
//! cannot detect.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use pagewarden::shell::quoted;
use pagewarden::verdict::Finding;
use pagewarden::words::grouped;

use super::{badge, begin, cell, end, map, meter, passes, text, time};
use crate::ledger::findings::Kept;
use crate::ledger::passes::Pass;
use crate::ledger::tiles::Tiles;
use crate::scrub::words::span;
use crate::serve::route::encoded;
use crate::status::Standing;

/// Findings that a page shows.
const SHOWN_MAX: usize = 200;

/// All that is shown of a database.
#[derive(Debug)]
pub(in crate::serve) struct Shown<'a> {
    pub(in crate::serve) standing: &'a Standing,
    pub(in crate::serve) open: Vec<Kept>,
    pub(in crate::serve) closed: Vec<Kept>,
    pub(in crate::serve) passes: Vec<Pass>,
    pub(in crate::serve) tiles: Tiles,
    /// The command that plans a repair of what is found, where a source is configured.
    pub(in crate::serve) repair: Option<String>,
    /// What pages were tested by in the last pass, and what that cannot detect.
    pub(in crate::serve) blind: Option<(String, String)>,
}

impl<'a> Shown<'a> {
    /// A database of which nothing more is known.
    pub(in crate::serve) fn of(standing: &'a Standing) -> Self {
        Self {
            standing,
            open: Vec::new(),
            closed: Vec::new(),
            passes: Vec::new(),
            tiles: Tiles::default(),
            repair: None,
            blind: None,
        }
    }
}

/// The page; its map shows how old what is known is, or how bad.
pub(in crate::serve) fn page(shown: &Shown<'_>, by_age: bool, reloads: bool, now: i64) -> String {
    let one = shown.standing;
    let address = format!("/targets/{}", encoded(&one.name));
    let mut page = begin(&text(&one.name), reloads);
    let _ = writeln!(
        page,
        "<nav><a href=\"/\">All databases</a></nav><h1>{} {}</h1><p>{} <code>{}</code></p>",
        text(&one.name),
        badge(one.state()),
        text(&one.engine),
        text(&one.path),
    );
    if let Some(error) = &one.error {
        let _ = writeln!(page, "<p class=\"error\">{}</p>", text(error));
    }
    summary(&mut page, one, now);
    let count = |shown: usize, of: u64| match shown as u64 {
        all if all >= of => grouped(of),
        part => format!("{} of {}", grouped(part), grouped(of)),
    };
    let open = shown.open.len().min(SHOWN_MAX);
    let _ = writeln!(page, "<h2>Open findings ({})</h2>", count(open, one.open_findings()));
    findings(&mut page, one, &shown.open);
    if let Some(command) = &shown.repair {
        let _ = writeln!(
            page,
            "<h2>Repair</h2>\n<p>With its server stopped, this command says which pages can be brought \
             back, and by what proof; it writes nothing:</p>\n<p><code>{}</code></p>",
            text(command)
        );
    }
    page.push_str("<h2>Pages</h2>\n");
    map::draw(&mut page, &shown.tiles, one, by_age, &address, now);
    page.push_str("<h2>Passes</h2>\n");
    passes::draw(&mut page, &shown.passes);
    if !shown.closed.is_empty() {
        page.push_str("<h2>Closed findings</h2>\n");
        findings(&mut page, one, &shown.closed);
    }
    page.push_str("<h2>What the tests cannot detect</h2>\n");
    match &shown.blind {
        Some((tested_by, unseen)) => {
            let _ = writeln!(
                page,
                "<p>Pages were tested by {}. Not detected: {}.</p>",
                text(tested_by),
                text(unseen)
            );
        }
        None => page.push_str("<p>No pass has ended yet.</p>\n"),
    }
    end(&mut page, now, reloads, &address);
    page
}

fn summary(page: &mut String, one: &Standing, now: i64) {
    let coverage = &one.coverage;
    let age = span(coverage.oldest_unverified_seconds);
    let _ = write!(page, "<dl><div><dt>This pass</dt><dd>{}</dd></div>", meter(one));
    let _ = write!(
        page,
        "<div><dt>Oldest page</dt><dd>{}; promised: within {}</dd></div>",
        if coverage.has_never() {
            format!("not verified yet, waits for {age}")
        } else {
            format!("verified {age} ago")
        },
        span(coverage.every_seconds)
    );
    let next = if one.next_run <= now { "now".to_owned() } else { time(one.next_run) };
    let _ = write!(page, "<div><dt>Next run</dt><dd>{next}</dd></div>");
    if let Some(rate) = one.mib_per_second() {
        let left = one.seconds_left().map(|left| format!("; {} left of this pass", span(left)));
        let left = left.unwrap_or_default();
        let _ = write!(page, "<div><dt>Speed</dt><dd>{rate:.0} MiB/s{left}</dd></div>");
    }
    if one.unread > 0 {
        let _ =
            write!(page, "<div><dt>Not read</dt><dd>{} stretches</dd></div>", grouped(one.unread));
    }
    page.push_str("</dl>\n");
}

fn findings(page: &mut String, one: &Standing, all: &[Kept]) {
    if all.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str(
        "<table class=\"cards\"><thead><tr><th>File</th><th>Page</th><th>What</th><th>Evidence</th>\
         <th>Life</th><th>Look</th></tr></thead><tbody>\n",
    );
    for kept in all.iter().take(SHOWN_MAX) {
        let finding = &kept.finding;
        let object = finding.object.as_deref().unwrap_or_default();
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{}<small>{}</small></th>",
            text(&finding.place.file),
            text(object),
        );
        let number = finding.place.page.map_or_else(|| "-".to_owned(), |page| page.to_string());
        cell(page, "Page", &number);
        cell(page, "What", &format!("{} ({})", finding.kind.name(), finding.severity.name()));
        cell(page, "Evidence", &evidence(finding));
        let life = match &kept.closed {
            Some((at, by)) => format!("{} to {}: {}", time(kept.first_at), time(*at), text(by)),
            None => format!("since {}, last seen {}", time(kept.first_at), time(kept.last_at)),
        };
        cell(page, "Life", &life);
        cell(page, "Look", &format!("<code>{}</code>", text(&command(one, kept))));
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
    if all.len() > SHOWN_MAX {
        let _ = writeln!(page, "<p>and {} more</p>", grouped((all.len() - SHOWN_MAX) as u64));
    }
}

/// What proves a finding, in a few words.
fn evidence(finding: &Finding) -> String {
    match (&finding.detail, &finding.stored, &finding.computed) {
        (Some(detail), ..) if !detail.is_empty() => text(detail),
        (_, Some(stored), Some(computed)) => {
            format!("stored {}, computed {}", text(stored), text(computed))
        }
        _ => "-".to_owned(),
    }
}

/// The command that shows a finding: of a page's own test the file suffices, and takes less time.
fn command(one: &Standing, kept: &Kept) -> String {
    let place = Path::new(&one.path);
    if !kept.member.is_empty() {
        let (set, place) = (quoted(OsStr::new(&kept.member)), quoted(place.as_os_str()));
        return format!("pagewarden check --set {set} {place}");
    }
    let file = place.join(&kept.finding.place.file);
    let shown = if kept.is_own && file.is_file() { file.as_path() } else { place };
    format!("pagewarden check {}", quoted(shown.as_os_str()))
}

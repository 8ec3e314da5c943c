//! The pages: without scripts, dark and light, everything that comes from files escaped.

use std::fmt::Write as _;

use pagewarden::words::{bytes, grouped, printable};

use super::encoded;
use crate::ledger::findings::Kept;
use crate::ledger::passes::Pass;
use crate::moment;
use crate::scrub::words::span;
use crate::status::{Standing, percent};

/// Findings that a page shows.
const SHOWN_MAX: usize = 500;

/// The style of all pages.
pub(super) const STYLE: &str = include_str!("style.css");

/// Text from elsewhere, as text.
fn text(raw: &str) -> String {
    let mut safe = String::with_capacity(raw.len());
    for letter in printable(raw).chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

fn begin(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"refresh\" content=\"30\">\
         <title>{title}</title><link rel=\"stylesheet\" href=\"/style.css\"></head><body><main>\n"
    )
}

fn end(page: &mut String, now: i64) {
    let _ = writeln!(
        page,
        "<footer>pagewarden {}, at {}; the page loads itself again every 30 s. A page that is \
         verified carried a sum that fits: <code>pagewarden check --verbose</code> says what that \
         cannot detect.</footer></main></body></html>",
        pagewarden::VERSION,
        text(&moment::shown(now))
    );
}

/// A state with a sign, so that its colour is not needed.
fn badge(state: &str) -> String {
    let (class, sign) = match state {
        "damaged" => ("bad", "!"),
        "overdue" => ("late", "&#9719;"),
        "incomplete" | "suspect" | "never" => ("odd", "?"),
        "unprotected" => ("bare", "&#8211;"),
        _ => ("good", "&#10003;"),
    };
    format!("<span class=\"badge {class}\">{sign} {}</span>", text(state))
}

fn meter(one: &Standing) -> String {
    let (part, whole) = (one.coverage.verified, one.coverage.pages);
    format!(
        "<meter min=\"0\" max=\"{}\" value=\"{part}\">{share}</meter> {share}",
        whole.max(1),
        share = percent(part, whole)
    )
}

/// All databases, a line each.
pub(super) fn index(all: &[Standing], now: i64) -> String {
    let mut page = begin("pagewarden");
    let bad = all.iter().filter(|one| one.state() == "damaged").count();
    let late = all.iter().filter(|one| one.coverage.overdue).count();
    let _ = writeln!(
        page,
        "<h1>pagewarden</h1><p class=\"sum\">{} databases, {bad} damaged, {late} overdue</p>",
        all.len()
    );
    page.push_str(
        "<div class=\"wide\"><table><thead><tr><th>Database</th><th>State</th><th>This pass</th>\
         <th>Oldest page</th><th>Open findings</th><th>Last pass ended</th><th>Speed</th>\
         <th>Next</th></tr></thead><tbody>\n",
    );
    for one in all {
        let ended = one.last_pass.as_ref().and_then(|pass| pass.ended_at);
        let age = one.target.map(|_| span(one.coverage.oldest_unverified_seconds));
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\"><a href=\"/targets/{}\">{}</a><small>{}</small></th><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            encoded(&one.name),
            text(&one.name),
            text(if one.engine.is_empty() { &one.path } else { &one.engine }),
            badge(one.state()),
            meter(one),
            age.map_or_else(
                || "-".to_owned(),
                |age| format!("{age} of {}", span(one.coverage.every_seconds))
            ),
            grouped(one.open_findings()),
            ended.map_or_else(|| "never".to_owned(), |at| text(&moment::shown(at))),
            one.mib_per_second().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0} MiB/s")),
            if one.next_run <= now { "now".to_owned() } else { text(&moment::shown(one.next_run)) },
        );
    }
    page.push_str("</tbody></table></div>\n");
    if all.is_empty() {
        page.push_str("<p>No database is configured.</p>\n");
    }
    end(&mut page, now);
    page
}

/// One database: its findings with their lives, its passes.
pub(super) fn target(
    one: &Standing,
    open: &[Kept],
    closed: &[Kept],
    passes: &[Pass],
    now: i64,
) -> String {
    let mut page = begin(&text(&one.name));
    let _ = writeln!(
        page,
        "<p><a href=\"/\">All databases</a></p><h1>{} {}</h1><p>{} <code>{}</code></p><p>{}</p>",
        text(&one.name),
        badge(one.state()),
        text(&one.engine),
        text(&one.path),
        meter(one)
    );
    if let Some(error) = &one.error {
        let _ = writeln!(page, "<p class=\"error\">{}</p>", text(error));
    }
    let _ = writeln!(page, "<h2>Open findings ({})</h2>", open.len());
    findings(&mut page, open);
    if !open.is_empty() {
        let _ = writeln!(
            page,
            "<p>Again, with all that is known of each: <code>pagewarden check {}</code></p>",
            text(&pagewarden::shell::quoted(std::ffi::OsStr::new(&one.path)))
        );
    }
    if !closed.is_empty() {
        let _ = writeln!(page, "<h2>Closed findings</h2>");
        findings(&mut page, closed);
    }
    page.push_str("<h2>Passes</h2>");
    history(&mut page, passes);
    end(&mut page, now);
    page
}

fn findings(page: &mut String, all: &[Kept]) {
    if all.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table><thead><tr><th>File</th><th>Page</th><th>What</th>\
         <th>Evidence</th><th>First seen</th><th>Last seen</th><th>Closed</th></tr></thead><tbody>\n",
    );
    for kept in all.iter().take(SHOWN_MAX) {
        let finding = &kept.finding;
        let object = finding.object.as_deref().unwrap_or_default();
        let closed = kept.closed.as_ref();
        let closed = closed.map(|(at, by)| format!("{}: {by}", moment::shown(*at)));
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}<small>{}</small></th><td>{}</td><td>{} ({})</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            text(&finding.place.file),
            text(object),
            finding.place.page.map_or_else(|| "-".to_owned(), |number| number.to_string()),
            finding.kind.name(),
            finding.severity.name(),
            text(finding.detail.as_deref().unwrap_or_default()),
            text(&moment::shown(kept.first_at)),
            text(&moment::shown(kept.last_at)),
            text(&closed.unwrap_or_default()),
        );
    }
    page.push_str("</tbody></table></div>\n");
    if all.len() > SHOWN_MAX {
        let _ = writeln!(page, "<p>and {} more</p>", grouped((all.len() - SHOWN_MAX) as u64));
    }
}

fn history(page: &mut String, passes: &[Pass]) {
    if passes.is_empty() {
        page.push_str("<p>None yet.</p>\n");
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table><thead><tr><th>Pass</th><th>Begun</th><th>Ended</th>\
         <th>Read</th><th>Time</th><th>Pages</th><th>Damaged</th><th>Covers all</th>\
         <th>In one run</th></tr></thead><tbody>\n",
    );
    let longest = passes.iter().map(|pass| pass.seconds).fold(0.0, f64::max).max(0.001);
    for pass in passes {
        let yes = |value: bool| if value { "yes" } else { "no" };
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td>\
             <td><meter min=\"0\" max=\"{longest:.3}\" value=\"{seconds:.3}\"></meter> {seconds:.1} s\
             </td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            pass.number,
            text(&moment::shown(pass.begun_at)),
            pass.ended_at.map_or_else(|| "under way".to_owned(), |at| text(&moment::shown(at))),
            bytes(pass.bytes),
            grouped(pass.pages()),
            grouped(pass.count(pagewarden::verdict::Standing::Damaged)),
            yes(pass.is_complete),
            yes(pass.is_whole),
            seconds = pass.seconds,
        );
    }
    page.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use pagewarden::verdict::{Finding, Kind, Severity};

    use super::*;
    use crate::config::Subject;

    #[test]
    fn nothing_that_comes_from_files_is_more_than_text() {
        let evil = "<script>alert('1')</script>\"&\u{1b}[2J";
        let subject =
            Subject { name: evil.to_owned(), ..Subject::of_path(std::path::Path::new(evil)) };
        let mut standings = crate::status::standings(None, &[subject], &[], 5).unwrap();
        standings[0].engine = evil.to_owned();
        standings[0].error = Some(evil.to_owned());
        let kept = Kept {
            finding: Finding::of_file(evil, Severity::Damage, Kind::Torn, evil.to_owned()),
            member: String::new(),
            is_own: true,
            first_at: 1,
            last_at: 2,
            last_run: 1,
            closed: Some((3, evil.to_owned())),
        };
        let one = standings[0].clone();
        for page in [
            index(&standings, 5),
            target(&one, std::slice::from_ref(&kept), std::slice::from_ref(&kept), &[], 5),
        ] {
            assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
            assert!(page.contains("&lt;script&gt;"), "{page}");
        }
    }
}

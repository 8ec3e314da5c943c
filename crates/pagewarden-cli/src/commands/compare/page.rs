//! A comparison as one web page: no script, no network, no other file.
//!
//! ```text
//! verdict, as a sentence
//! the databases
//! table of tables, the worst first
//! for each table that has something to say: facts, a map of its parts, what the
//!     differences have in common, the rows that differ
//! ```
//!
//! Names and values come from any user who could write to the databases. Everything but our own
//! words goes through `escaped`, and the page forbids itself scripts and requests.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use pagewarden::report::html::{STYLE, head};
use pagewarden::words::{
    bytes, counted, duration, escaped_for_html, grouped, printable, shortened, utc,
};
use pagewarden_db::compare::map::{PartState, Tile};
use pagewarden_db::compare::report::{Difference, Outcome, TableReport, Verdict, verdict};

use super::shown::{asides, short};

/// No page is much larger than this.
const PAGE_BYTES_MAX: usize = 900_000;
/// Rows of one table that are listed.
const ROWS_MAX: usize = 200;
/// Characters of a name or of an error that are shown.
const TEXT_CHARS_MAX: usize = 300;
/// Neighbouring tiles that are alike share a title, up to this number.
const TILES_ALIKE: usize = 32;

/// What this page needs beside the style of every page of Pagewarden.
const OWN_STYLE: &str = ".wide { overflow-x: auto; } .wide td:first-child { min-width: 120px; }\n\
    .rows td { overflow-wrap: anywhere; min-width: 90px; } .rows td.kind { white-space: nowrap; }\n\
    .values { display: grid; grid-template-columns: auto 1fr; gap: 0 10px; }\n\
    .values span { color: var(--soft); } .scale + ul { margin-top: 12px; }\n\
    @media (max-width: 640px) { .rows thead { display: none; }\n\
    .rows, .rows tbody, .rows tr, .rows td { display: block; } .rows td { border: 0; padding: 1px 0; }\n\
    .rows tr { border-bottom: 1px solid var(--line); padding: 8px 0; } }\n";

/// What is shown.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    /// What was compared.
    pub outcomes: &'a [Outcome],
    /// Why not all of it could be.
    pub error: Option<&'a str>,
    /// True if checksums that replicas made were compared.
    pub replicated: bool,
    /// True if values of rows are shown.
    pub values: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// When it ended.
    pub ended: SystemTime,
}

/// The whole page.
pub(super) fn page(shown: &Shown<'_>) -> String {
    let verdict = match (verdict(tables(shown)), shown.error) {
        (Verdict::Equal, Some(_)) => Verdict::Incomplete,
        (verdict, _) => verdict,
    };
    let word = capitalised(verdict.name());
    let rows: u64 = tables(shown).map(|table| table.rows_source).sum();
    let mut page = head(&format!("{word}: tables compared"), &[STYLE, OWN_STYLE]);
    let _ = write!(
        page,
        "<header class=\"{}\"><p class=\"word\">{word}</p><h1>{}</h1>\n\
         <p>Compared {} ({}) in {}, ended {}.</p></header>\n",
        class(verdict),
        sentence(shown),
        counted(tables(shown).count() as u64, "table"),
        counted(rows, "row"),
        duration(shown.elapsed),
        utc(shown.ended),
    );
    if let Some(error) = shown.error {
        page.push_str("<section><h2>Not compared</h2>\n");
        say_error(&mut page, error);
        page.push_str("</section>\n");
    }
    for outcome in shown.outcomes {
        target(&mut page, shown, outcome);
    }
    let content = if shown.values {
        "It holds values of rows that differ: keep it as you keep the databases."
    } else {
        "Of rows that differ it holds the keys, and no other values."
    };
    let _ = write!(
        page,
        "<footer>Written by pagewarden {}. {content}</footer>\n</main></body></html>\n",
        pagewarden::VERSION
    );
    page
}

fn tables<'a>(shown: &Shown<'a>) -> impl Iterator<Item = &'a TableReport> {
    shown.outcomes.iter().flat_map(|outcome| &outcome.tables)
}

/// What was found, in a sentence.
fn sentence(shown: &Shown<'_>) -> String {
    let of = |wanted| tables(shown).filter(|table| table.verdict() == wanted).count() as u64;
    let (equal, different) = (of(Verdict::Equal), of(Verdict::Different));
    let all = tables(shown).count() as u64;
    let rest = all - equal - different;
    let mut text = match (all, different, rest) {
        (0, ..) => "Nothing could be compared.".to_owned(),
        (1, 0, 0) => "The table is equal.".to_owned(),
        (_, 0, 0) => format!("All {} are equal.", counted(all, "table")),
        (1, 1, _) => "The table is different.".to_owned(),
        (_, 0, _) => "Nothing different was found in what could be compared.".to_owned(),
        _ => format!("{} of {} differ.", grouped(different), counted(all, "table")),
    };
    if different > 0 && rest > 0 {
        let _ = write!(text, " {} could not be compared as a whole.", counted(rest, "more table"));
    }
    text
}

/// Everything of one target.
fn target(page: &mut String, shown: &Shown<'_>, outcome: &Outcome) {
    let _ = write!(
        page,
        "<section><h2>Databases</h2>\n<dl><div><dt>Source, {}</dt><dd><code>{}</code></dd></div>\
         <div><dt>Target, {}</dt><dd><code>{}</code></dd></div></dl>\n",
        escaped(&outcome.source_server),
        escaped(&outcome.source),
        escaped(&outcome.target_server),
        escaped(&outcome.target),
    );
    let mut worst_first: Vec<&TableReport> = outcome.tables.iter().collect();
    worst_first.sort_by_key(|table| std::cmp::Reverse(table.verdict()));
    page.push_str(
        "<h3>Tables</h3>\n<div class=\"wide\"><table><thead><tr><th>Table<th>Verdict<th>Mode\
         <th class=\"n\">Rows<th class=\"n\">In the target<th class=\"n\">Changed\
         <th class=\"n\">Only source<th class=\"n\">Only target<th class=\"n\">Unresolved</thead><tbody>\n",
    );
    let mut left = 0;
    for table in &worst_first {
        if page.len() > PAGE_BYTES_MAX / 2 {
            left += 1;
            continue;
        }
        row(page, shown, table);
    }
    page.push_str("</tbody></table></div>\n");
    more(page, left, "table", "none of them worse than these");
    page.push_str("</section>\n");
    let mut left = 0;
    for table in &worst_first {
        if page.len() > PAGE_BYTES_MAX {
            left += 1;
            continue;
        }
        section(page, shown, table);
    }
    more(page, left, "table", "without details here; <code>--json</code> has them");
}

fn row(page: &mut String, shown: &Shown<'_>, table: &TableReport) {
    let verdict = table.verdict();
    let least = if table.counts_at_least { "at least " } else { "" };
    let _ = write!(
        page,
        "<tr><td><code>{}</code><td><span class=\"tag {}\">{}</span><td>{}",
        escaped(&table.table),
        class(verdict),
        verdict.name(),
        mode(shown, table),
    );
    for rows in [table.rows_source, table.rows_target] {
        let _ = write!(page, "<td class=\"n\">{}", grouped(rows));
    }
    for count in [table.changed, table.only_source, table.only_target, table.unresolved] {
        let text = if count > 0 { format!("{least}{}", grouped(count)) } else { "0".to_owned() };
        let _ = write!(page, "<td class=\"n\">{text}");
    }
    page.push('\n');
}

fn mode(shown: &Shown<'_>, table: &TableReport) -> &'static str {
    if shown.replicated { "replicate" } else { table.mode.name() }
}

/// What there is to say of a table.
fn section(page: &mut String, shown: &Shown<'_>, table: &TableReport) {
    let verdict = table.verdict();
    let read = match table.bytes {
        0 => String::new(),
        read => format!(", {} of rows read", bytes(read)),
    };
    let _ = write!(
        page,
        "<section><h2><code>{}</code></h2>\n<p class=\"lead\"><b class=\"{}\">{}.</b> {} in {}\
         {read}, {}.</p>\n",
        escaped(&table.table),
        class(verdict),
        capitalised(verdict.name()),
        counted(table.chunks, "part"),
        duration(Duration::from_secs_f64(table.seconds.max(0.0))),
        mode(shown, table),
    );
    if !table.mode_because.is_empty() {
        let _ = writeln!(
            page,
            "<p class=\"more\">Mode {}: {}.</p>",
            table.mode.name(),
            escaped(&table.mode_because)
        );
    }
    if let Some(error) = &table.error {
        say_error(page, error);
    }
    if table.stopped {
        page.push_str("<p>Stopped early: the rest of the table was not compared.</p>\n");
    }
    map(page, table);
    let mut points: Vec<String> =
        asides(table).iter().map(|aside| escaped(&capitalised(aside))).collect();
    for one in &table.diagnosis {
        let pattern = one.pattern.as_deref().unwrap_or("no common pattern");
        points.push(format!(
            "Column <code>{}</code>: {}, in {} of the rows listed",
            escaped(&one.column),
            escaped(pattern),
            grouped(one.rows)
        ));
    }
    for one in &table.not_compared {
        points.push(format!(
            "Column <code>{}</code> not compared: {}",
            escaped(&one.column),
            escaped(&one.reason)
        ));
    }
    for one in table.parts_different.iter().take(ROWS_MAX) {
        points.push(format!(
            "Part {} differs, {} and {}: <code>{}</code>",
            one.part,
            counted(one.rows_source, "row"),
            counted(one.rows_target, "row"),
            escaped(if one.rows_of.is_empty() { "all rows" } else { &one.rows_of })
        ));
    }
    if !points.is_empty() {
        page.push_str("<ul>\n");
        points.iter().for_each(|point| page.push_str(&format!("<li>{point}\n")));
        page.push_str("</ul>\n");
    }
    differences(page, shown, table);
    page.push_str("</section>\n");
}

/// The parts of a table, each tile marked by the worst that came of it.
fn map(page: &mut String, table: &TableReport) {
    let tiles = table.map.tiles();
    if tiles.is_empty() {
        return;
    }
    page.push_str("<h3>Parts</h3>\n<div class=\"counts\">");
    for state in [PartState::Different, PartState::Unresolved, PartState::Equal] {
        let count = tiles.iter().filter(|tile| tile.state == state).count() as u64;
        if count > 0 {
            let (class, word) = mark(state);
            let _ = writeln!(
                page,
                "<span><i class=\"{class}\"></i> <b>{}</b> {word}</span>",
                grouped(count)
            );
        }
    }
    let size = match tiles.len() {
        0..=128 => "map large",
        129..=512 => "map",
        _ => "map small",
    };
    let per_tile = counted(table.map.parts_per_tile(), "part");
    let _ = write!(
        page,
        "</div>\n<div class=\"{size}\" role=\"img\" aria-label=\"Map of the parts, {per_tile} a tile\">"
    );
    let mut first = 1;
    let groups = tiles.chunk_by(|one, next| one.state == next.state);
    for alike in groups.flat_map(|alike| alike.chunks(TILES_ALIKE)) {
        let last = first + alike.len() - 1;
        tiles_alike(page, alike, first, last);
        first = last + 1;
    }
    let _ = writeln!(
        page,
        "</div>\n<p class=\"scale\">In the order in which the parts were read, {per_tile} a tile. \
         <span>Point at a tile for its rows.</span></p>",
    );
}

fn tiles_alike(page: &mut String, alike: &[Tile], first: usize, last: usize) {
    let Some(state) = alike.first().map(|tile| tile.state) else { return };
    let (class, word) = mark(state);
    let rows: u64 = alike.iter().map(|tile| tile.rows).sum();
    let which =
        if first == last { format!("Tile {first}") } else { format!("Tiles {first} to {last}") };
    let _ = write!(page, "<b class={class} title=\"{which}: {}, {word}\">", counted(rows, "row"));
    alike.iter().for_each(|_| page.push_str("<i></i>"));
    page.push_str("</b>");
}

/// A state's looks, which are those of pages, and its word.
fn mark(state: PartState) -> (&'static str, &'static str) {
    match state {
        PartState::Different => ("d", "different"),
        PartState::Unresolved => ("c", "unresolved"),
        PartState::Equal => ("o", "equal"),
    }
}

fn differences(page: &mut String, shown: &Shown<'_>, table: &TableReport) {
    if table.differences.is_empty() {
        return;
    }
    let values = if shown.values { "<th>Source and target" } else { "" };
    let _ = write!(
        page,
        "<h3>Rows that differ</h3>\n<table class=\"rows\"><thead><tr><th>How\
         <th>Key<th>Columns{values}</thead><tbody>\n"
    );
    let mut shown_count = 0;
    for one in table.differences.iter().take(ROWS_MAX) {
        if page.len() > PAGE_BYTES_MAX {
            break;
        }
        shown_count += 1;
        difference(page, shown, table, one);
    }
    page.push_str("</tbody></table>\n");
    let left = table.different().saturating_sub(shown_count);
    more(
        page,
        left,
        "row",
        "<code>--json</code> lists as many as <code>--differences</code> allows",
    );
}

fn difference(page: &mut String, shown: &Shown<'_>, table: &TableReport, one: &Difference) {
    // The key of a table without one is all of the row: its values are not for everybody.
    let is_key = table.key_count > 0 || shown.values;
    let key: Vec<String> = one
        .key
        .iter()
        .map(|(column, part)| format!("{} = {}", escaped(column), escaped(&short(part))))
        .collect();
    let key = if is_key { key.join(", ") } else { "(the table has no key)".to_owned() };
    let columns: Vec<String> =
        one.columns.iter().map(|column| format!("<code>{}</code>", escaped(column))).collect();
    let _ = write!(
        page,
        "<tr><td class=\"kind\">{}<td>{key}<td>{}",
        one.kind.name().replace('_', " "),
        columns.join(", ")
    );
    if shown.values {
        page.push_str("<td><div class=\"values\">");
        for (side, row) in [("source", &one.source), ("target", &one.target)] {
            let Some(row) = row else { continue };
            let wanted = table
                .columns
                .iter()
                .zip(row)
                .filter(|(column, _)| one.columns.is_empty() || one.columns.contains(column));
            let values: Vec<String> = wanted
                .map(|(column, part)| format!("{} = {}", escaped(column), escaped(&short(part))))
                .collect();
            let _ = write!(page, "<span>{side}</span><div>{}</div>", values.join(", "));
        }
        page.push_str("</div>");
    }
    page.push('\n');
}

fn say_error(page: &mut String, error: &str) {
    for line in error.lines().take(5) {
        let _ = match line.strip_prefix("hint: ") {
            Some(hint) => writeln!(page, "<p class=\"hint\">{}</p>", escaped(hint)),
            None => writeln!(page, "<p class=\"lead\">{}</p>", escaped(line)),
        };
    }
}

/// Says that there is more than is listed.
fn more(page: &mut String, count: u64, word: &str, remark: &str) {
    if count > 0 {
        let more = counted(count, &format!("more {word}"));
        let _ = writeln!(page, "<p class=\"more\">and {more}, {remark}.</p>");
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Different => "bad",
        Verdict::Incomplete => "fair",
        Verdict::Equal => "good",
    }
}

fn capitalised(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

/// Text from outside, made harmless for a person and for a browser.
fn escaped(text: &str) -> String {
    escaped_for_html(&shortened(&printable(text), TEXT_CHARS_MAX))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use pagewarden_db::compare::report::Kind;
    use pagewarden_db::row::{Tag, Value};

    use super::*;

    const HOSTILE: &str = "<script>alert('1')</script>\u{202e}\n&\"onload=\"x";

    fn value(text: &str) -> Value {
        Value { tag: Tag::Text, payload: text.as_bytes().to_vec() }
    }

    fn different(count: usize) -> TableReport {
        let difference = Difference {
            kind: Kind::Changed,
            key: vec![("id".to_owned(), value("k-value"))],
            columns: vec![HOSTILE.to_owned()],
            source: Some(vec![value("k-value"), value(HOSTILE)]),
            target: Some(vec![value("k-value"), value("secret-value")]),
        };
        let mut report = TableReport {
            table: HOSTILE.to_owned(),
            columns: vec!["id".to_owned(), HOSTILE.to_owned()],
            key_count: 1,
            changed: count as u64,
            differences: vec![difference; count],
            chunks: 3,
            ..TableReport::default()
        };
        (0..3).for_each(|_| report.map.add(10));
        report.map.mark(1, PartState::Different);
        report
    }

    fn shown(tables: Vec<TableReport>, values: bool, error: Option<&str>) -> String {
        let outcomes = [Outcome { source: HOSTILE.to_owned(), tables, ..Outcome::default() }];
        let elapsed = Duration::from_secs(1);
        let outcomes = if error.is_some() { &[] } else { outcomes.as_slice() };
        let page =
            page(&Shown { outcomes, error, replicated: false, values, elapsed, ended: UNIX_EPOCH });
        assert!(page.starts_with(pagewarden::report::html::BEGIN));
        for forbidden in
            ["<script", "<img", "<link", "<iframe", " onload=", " src=", "url(", "http:", "https:"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(!page.contains('\u{202e}'));
        page
    }

    #[test]
    fn values_are_shown_only_where_they_are_asked_for() {
        let page = shown(vec![different(1)], false, None);
        assert!(page.contains("k-value") && !page.contains("secret-value"));
        assert!(page.contains("<p class=\"word\">Different</p><h1>The table is different.</h1>"));
        assert!(page.contains("title=\"Tile 2: 10 rows, different\""), "{page}");
        let page = shown(vec![different(1)], true, None);
        assert!(page.contains("secret-value"));
        let without_key = TableReport { key_count: 0, ..different(1) };
        assert!(!shown(vec![without_key], false, None).contains("k-value"));
    }

    #[test]
    fn the_page_stays_small_and_the_worst_come_first() {
        let mut tables = vec![TableReport::default(); 3000];
        tables.extend(vec![different(500); 20]);
        let page = shown(tables, true, None);
        assert!(page.len() < 2 * PAGE_BYTES_MAX, "{} bytes", page.len());
        assert!(page.contains("<h1>20 of 3,020 tables differ.</h1>"));
        assert!(page.contains("and 300 more rows"));
        assert!(page.find("tag bad") < page.find("tag good"));
    }

    #[test]
    fn what_could_not_be_compared_is_no_equal() {
        let page = shown(Vec::new(), false, Some("cannot connect\nhint: look there"));
        assert!(
            page.contains("<p class=\"word\">Incomplete</p><h1>Nothing could be compared.</h1>")
        );
        assert!(page.contains("<p class=\"hint\">look there</p>"));
        let equal = shown(vec![TableReport::default()], false, None);
        assert!(equal.contains("<h1>The table is equal.</h1>"));
    }
}

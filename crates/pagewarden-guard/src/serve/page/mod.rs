//! The pages: without scripts, dark and light, everything that comes from files escaped.
//!
//! Tables become cards on narrow screens: each cell has the name of its column. A state is a word with a
//! sign, a tile of a map has a pattern: colour alone says nothing.

use std::fmt::Write as _;

use pagewarden::words::printable;

use crate::moment;
use crate::status::{Standing, covered};

pub(super) mod index;
mod map;
mod passes;
pub(super) mod target;

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

/// The top of a page. `reloads`: it loads itself again.
fn begin(title: &str, reloads: bool) -> String {
    let refresh = if reloads { "<meta http-equiv=\"refresh\" content=\"60\">" } else { "" };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">{refresh}\
         <title>{title}</title><link rel=\"stylesheet\" href=\"/style.css\"></head><body><main>\n"
    )
}

/// The foot of a page at this address.
fn end(page: &mut String, now: i64, reloads: bool, address: &str) {
    let (words, other) = if reloads {
        ("it loads itself again every 60 s", format!("<a href=\"{address}?still\">stop that</a>"))
    } else {
        ("it stands still", format!("<a href=\"{address}\">let it load itself again</a>"))
    };
    let _ = writeln!(
        page,
        "<footer>pagewarden {}, at {}; {words} ({other}).</footer></main></body></html>",
        pagewarden::VERSION,
        time(now)
    );
}

/// A moment, for people and programs.
fn time(at: i64) -> String {
    let shown = moment::shown(at);
    let people = shown.replace('T', " ").replace('Z', " UTC");
    format!("<time datetime=\"{}\">{}</time>", text(&shown), text(&people))
}

/// A cell with the name of its column.
fn cell(row: &mut String, column: &str, content: &str) {
    let _ = write!(row, "<td data-label=\"{column}\"><span>{content}</span></td>");
}

/// The sign and the class of a state.
fn sign(state: &str) -> (&'static str, &'static str) {
    match state {
        "damaged" => ("bad", "!"),
        "overdue" => ("late", "&#9719;"),
        "incomplete" | "suspect" | "never" => ("odd", "?"),
        "unprotected" => ("bare", "&#8211;"),
        _ => ("good", "&#10003;"),
    }
}

/// A state with a sign, so that its colour is not needed.
fn badge(state: &str) -> String {
    let (class, sign) = sign(state);
    format!(
        "<span class=\"badge {class}\"><span aria-hidden=\"true\">{sign}</span> {}</span>",
        text(state)
    )
}

fn meter(one: &Standing) -> String {
    let (part, whole) = (one.coverage.verified, one.coverage.pages);
    format!(
        "<meter min=\"0\" max=\"{}\" value=\"{part}\">{share}</meter> {share}",
        whole.max(1),
        share = text(&covered(one))
    )
}

#[cfg(test)]
mod tests {
    use pagewarden::verdict::{Finding, Kind, Severity};

    use super::target::Shown;
    use super::*;
    use crate::config::Subject;
    use crate::ledger::findings::Kept;
    use crate::ledger::tiles::{State, Tile, Tiles};

    #[test]
    fn nothing_that_comes_from_files_is_more_than_text() {
        let evil = "<script>alert('1')</script>\"&\u{1b}[2J";
        let subject =
            Subject { name: evil.to_owned(), ..Subject::of_path(std::path::Path::new(evil)) };
        let mut standings = crate::status::standings(None, &[subject], &[], 5).unwrap();
        standings[0].engine = evil.to_owned();
        standings[0].error = Some(evil.to_owned());
        (standings[0].coverage.pages, standings[0].coverage.verified) = (5, 5);
        let kept = Kept {
            finding: Finding::of_file(evil, Severity::Damage, Kind::Torn, evil.to_owned()),
            member: String::new(),
            is_own: true,
            first_at: 1,
            last_at: 2,
            last_run: 1,
            closed: Some((3, evil.to_owned())),
        };
        let tile = Tile {
            file: evil.to_owned(),
            page: 1,
            state: State::Damaged,
            oldest_at: None,
            covered: 0,
            is_of_pass: false,
        };
        let shown = Shown {
            open: vec![kept.clone()],
            closed: vec![kept],
            tiles: Tiles { tiles: vec![tile], pages_each: 1, pages: 1 },
            blind: Some((evil.to_owned(), evil.to_owned())),
            ..Shown::of(&standings[0])
        };
        let none = index::page(&standings, Some(evil), true, 5);
        assert!(!none.contains("<script") && none.contains("None is in this state"), "{none}");
        for page in [
            index::page(&standings, None, true, 5),
            target::page(&shown, false, true, 5),
            target::page(&shown, true, true, 5),
        ] {
            assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
            assert!(page.contains("&lt;script&gt;"), "{page}");
            // Of what cannot be opened not all is covered.
            assert!(page.contains("&lt; 100 %") && !page.contains("< 100 %"), "{page}");
        }
    }
}

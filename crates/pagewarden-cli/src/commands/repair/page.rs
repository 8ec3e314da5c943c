//! The plan of a repair, or what came of it, as one web page: no script, no network, no other file.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use pagewarden::repair::{Outcome, Page, Verdict};
use pagewarden::report::html::{STYLE, head};
use pagewarden::shell::quoted;
use pagewarden::words::{escaped_for_html, grouped, printable, utc};

use super::{last_line, place_of, what_becomes};

/// Pages that are listed.
const PAGES_MAX: usize = 1000;
/// Characters of a sum that are shown: enough to compare two by eye.
const SUM_CHARS: usize = 16;

/// The whole page. `arguments` are those that the program was given, without its name.
pub fn page(path: &Path, outcome: &Outcome, arguments: &[OsString]) -> String {
    let word = match outcome.verdict {
        Verdict::Planned => "the plan of a repair",
        _ => "a repair",
    };
    let mut page = head(word, &[STYLE]);
    let _ = write!(
        page,
        "<header class=\"{}\"><p class=\"word\">{}</p>\n<h1><code>{}</code></h1>\n\
         <p>{}, {}.</p></header>\n<section>\n",
        class(outcome),
        escaped(&last_line(outcome)),
        escaped(&path.to_string_lossy()),
        escaped(&outcome.engine),
        utc(SystemTime::now()),
    );
    for warning in &outcome.warnings {
        let _ =
            writeln!(page, "<p class=\"lead\"><strong>Warning:</strong> {}</p>", escaped(warning));
    }
    next_step(&mut page, outcome, arguments);
    table(&mut page, outcome);
    let _ = write!(
        page,
        "</section>\n<footer>Written by pagewarden {}. Before and after are BLAKE3 sums of the page; the \
         JSON has them whole. No content of any row is on this page.</footer>\n</main></body></html>\n",
        pagewarden::VERSION
    );
    page
}

fn class(outcome: &Outcome) -> &'static str {
    match outcome.is_whole() && !outcome.stopped {
        true => "good",
        false => "bad",
    }
}

/// The command that does it, or that takes it back.
fn next_step(page: &mut String, outcome: &Outcome, arguments: &[OsString]) {
    let can = outcome.pages.iter().any(|page| page.after.is_some());
    let (words, command) = match (&outcome.undo_file, outcome.verdict) {
        (Some(undo), _) => {
            let words = "The bytes from before are kept. This command brings them back:";
            (words, format!("pagewarden repair --undo {}", quoted(undo.as_os_str())))
        }
        (None, Verdict::Planned) if can => {
            let given: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
            let words =
                "Nothing is written yet. This command does it, and keeps what it overwrites:";
            (words, format!("pagewarden {} --yes", given.join(" ")))
        }
        _ => return,
    };
    let _ = writeln!(
        page,
        "<h3>Next</h3>\n<p>{words}</p>\n<pre class=\"command\">{}</pre>",
        escaped_for_html(&command)
    );
}

fn table(page: &mut String, outcome: &Outcome) {
    if outcome.pages.is_empty() {
        return;
    }
    page.push_str(
        "<h3>Pages</h3>\n<table class=\"findings plan\"><thead><tr><th>Where<th>What becomes of it\
         <th>Before<th>After<th>Source, proof and advice</thead><tbody>\n",
    );
    for one in outcome.pages.iter().take(PAGES_MAX) {
        page.push_str(&row(one));
    }
    page.push_str("</tbody></table>\n");
    let left = outcome.pages.len().saturating_sub(PAGES_MAX);
    if left > 0 {
        let left = grouped(left as u64);
        let _ =
            writeln!(page, "<p class=\"more\">and {left} more; <code>--json</code> lists all</p>");
    }
}

fn row(one: &Page) -> String {
    let sum = |sum: &Option<String>| {
        sum.as_ref().map_or(String::new(), |sum| sum.chars().take(SUM_CHARS).collect())
    };
    let object = one.object.as_deref().map_or(String::new(), |object| {
        format!("<span class=\"object\">{}</span>", escaped(object))
    });
    let source = one
        .source
        .as_deref()
        .map_or(String::new(), |source| format!("from <code>{}</code><br>", escaped(source)));
    let hint = one
        .hint
        .as_deref()
        .map_or(String::new(), |hint| format!("<span class=\"hint\">{}</span>", escaped(hint)));
    format!(
        "<tr><td><code>{}</code>{object}<td>{}, found {}<td><code>{}</code><td><code>{}</code>\
         <td>{source}{}{hint}\n",
        escaped(&place_of(one)),
        what_becomes(one),
        one.kind.name(),
        sum(&one.before),
        sum(&one.after),
        escaped(&one.reason),
    )
}

fn escaped(text: &str) -> String {
    escaped_for_html(&printable(text))
}

//! The answers as one web page: no script, no network, no other file.

use std::fmt::Write as _;

use pagewarden::report::html::{STYLE, head};
use pagewarden::verdict::Verdict;
use pagewarden::words::{escaped_for_html, printable};

use super::Surveyed;
use super::answers::Answer;

/// What the answers need beside the style of every page of Pagewarden.
const OWN_STYLE: &str = "table.answers th { width: 9.5em; font-size: 15px; padding-right: 18px; }\n\
    table.answers td { border-bottom: 1px solid var(--line); }\n\
    table.answers tr:last-child > * { border-bottom: 0; }\n\
    table.answers p { margin: 0 0 4px; } table.answers p + p { color: var(--soft); }\n\
    table.answers code { background: var(--panel); padding: 2px 6px; border-radius: 4px; \
    overflow-wrap: anywhere; }\n\
    table.answers code span { display: inline-block; }\n\
    @media (max-width: 640px) { table.answers th, table.answers td { display: block; width: auto; } \
    table.answers th { border: 0; padding-bottom: 0; font-size: 13px; } }\n";

/// The whole page.
pub(super) fn page(surveyed: &Surveyed, answers: &[Answer]) -> String {
    let word = surveyed.verdict.name();
    let path = escaped(&surveyed.path.to_string_lossy());
    let mut page = head(&format!("{word}: a survey"), &[STYLE, OWN_STYLE]);
    let _ = write!(
        page,
        "<header class=\"{}\"><p class=\"word\">{}</p>\n\
         <h1><code>{path}</code></h1>\n<p>{}, surveyed {}.</p></header>\n\
         <section><table class=\"answers\"><tbody>\n",
        class(surveyed.verdict),
        capitalised(word),
        escaped(&surveyed.description.engine),
        surveyed.ended,
    );
    for answer in answers {
        let _ = write!(page, "<tr><th scope=\"row\">{}<td>", answer.title);
        for (number, line) in answer.lines.iter().enumerate() {
            let _ = if answer.is_command && number == 0 {
                write!(page, "<p><code>{}</code></p>", command(line))
            } else {
                write!(page, "<p>{}</p>", escaped(line))
            };
        }
        page.push('\n');
    }
    let _ = write!(
        page,
        "</tbody></table></section>\n<footer>Written by pagewarden {}. Names and numbers of pages \
         only: no content of any row is in this report.</footer>\n</main></body></html>\n",
        pagewarden::VERSION
    );
    page
}

/// A command whose options are not torn at their hyphens.
fn command(line: &str) -> String {
    let word = |word: &str| {
        let escaped = escaped(word);
        if word.starts_with('-') { format!("<span>{escaped}</span>") } else { escaped }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    escaped_for_html(&printable(text))
}

fn capitalised(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Damaged => "bad",
        Verdict::Incomplete | Verdict::Suspect | Verdict::Unprotected => "fair",
        Verdict::Intact => "good",
    }
}

//! One page for people that needs nothing else: no network, no script, no
//! other file. It fits into [`PAGE_BYTES_MAX`] whatever was run, so that it can
//! be sent by mail and kept for years.
//!
//! ```text
//! what was found, as a sentence to act on
//! each question that the reader has to decide, with its answer
//! every price with its interval against the margin, the document's beside it
//! the control and the noise meanwhile
//! for each experiment: figures by run, tables, tests, stacked bars of counters
//! the documents' figures beside ours
//! machine, plan, settings, samples, and how to run it again
//! ```
//!
//! Names of arms may come from a table of foreign origin. Everything but our
//! own words goes through `escaped`, and the page forbids itself scripts and
//! requests.

use std::fmt::Write as _;

use pagewarden::report::html::head;
use pagewarden::words::{escaped_for_html, printable, shortened};

use crate::cost::decision::DecisionResult;
use crate::cost::record::Run;
use crate::cost::report::words::counted;
use crate::cost::result::{Analysis, ExperimentResult};

mod figures;
mod forest;
mod section;
mod tail;

/// No page is larger than this.
pub const PAGE_BYTES_MAX: usize = 300_000;

/// The looks; kept apart because it is another language.
const STYLE: &str = include_str!("html/style.css");

/// What the experiments' sections may take; the rest is for what is around.
const SECTIONS_BYTES: usize = 170_000;
/// Points in all pictures of runs together.
const POINTS_MAX: usize = 1400;
/// Characters of a name that are shown.
const TEXT_CHARS_MAX: usize = 300;

/// The page.
#[must_use]
pub fn page(analysis: &Analysis, run: &Run) -> String {
    let (class, word) = match analysis.verdict {
        "worse" => ("bad", "Worse"),
        "undecided" => ("fair", "Undecided"),
        "incomplete" => ("fair", "Incomplete"),
        "no worse" => ("good", "No worse"),
        "equivalent" => ("good", "Equivalent"),
        "better" => ("good", "Better"),
        _ => ("mild", "Measured"),
    };
    let mut page = head(&format!("{word}: what protection costs"), &[STYLE]);
    let _ = write!(
        page,
        "<header class=\"{class}\"><p class=\"word\">{word}</p><h1>{}</h1>\n<p>{}</p></header>\n",
        escaped_for_html(&printable(&analysis.sentence)),
        escaped(&circumstances(analysis))
    );
    decisions(&mut page, &analysis.decisions);
    forest::draw(&mut page, analysis);
    forest::controls(&mut page, analysis);
    figures::noise(&mut page, &analysis.noise);
    sections(&mut page, &analysis.experiments);
    tail::seeds(&mut page, &analysis.experiments);
    tail::notes(&mut page, &analysis.notes);
    tail::record(&mut page, analysis);
    let room = PAGE_BYTES_MAX.saturating_sub(page.len() + 2000);
    tail::samples(&mut page, run, room);
    let _ = write!(
        page,
        "<footer>Written by pagewarden {}. Intervals and verdicts are explained in docs/cost.md; \
         this page asks nothing of any network.</footer>\n</main></body></html>\n",
        pagewarden::VERSION
    );
    page
}

/// What the run says to each question that the reader has to decide.
fn decisions(page: &mut String, decisions: &[DecisionResult]) {
    if decisions.is_empty() {
        return;
    }
    page.push_str("<section><h2>What to decide</h2>\n");
    for decision in decisions {
        let _ = write!(
            page,
            "<p><b>{}</b><br>{}",
            escaped(decision.question),
            escaped(&decision.sentence)
        );
        if let Some(needs) = &decision.needs {
            let _ = write!(page, "<br>What is undecided: {}.", escaped(needs));
        }
        page.push_str("</p>\n");
    }
    page.push_str("</section>\n");
}

/// When, on what, and against which margin.
fn circumstances(analysis: &Analysis) -> String {
    let margin = crate::stats::verdict::percent(analysis.margin);
    let mut text = match &analysis.run {
        Some(run) => {
            let processor = run.machine.get("processor").map_or("", String::as_str);
            let on = if processor.is_empty() { String::new() } else { format!(" on {processor}") };
            format!("Measured {}{on}. ", run.begun)
        }
        None => "From a table of runs made elsewhere. ".to_owned(),
    };
    let _ = write!(text, "Differences of up to {margin} % count as none.");
    text
}

/// Each experiment, as far as there is room.
fn sections(page: &mut String, experiments: &[ExperimentResult]) {
    let points: usize = experiments
        .iter()
        .flat_map(|experiment| &experiment.results)
        .flat_map(|result| &result.arms)
        .map(|arm| arm.values.len())
        .sum();
    let mut left = SECTIONS_BYTES;
    let mut dropped = 0;
    for experiment in experiments {
        let section = section::section(experiment, points <= POINTS_MAX, left);
        if section.len() > left {
            dropped += 1;
            continue;
        }
        left -= section.len();
        page.push_str(&section);
    }
    if dropped > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">{} without details here, for want of room; the JSON has them.</p>",
            counted(dropped, "experiment")
        );
    }
}

/// Text from outside, made harmless for a person and for a browser.
fn escaped(text: &str) -> String {
    let text = shortened(&printable(text), TEXT_CHARS_MAX);
    escaped_for_html(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::analyse::analyse;
    use crate::cost::csv;
    use crate::cost::experiment::Better;
    use crate::stats::random::Random;

    fn of_table(table: &str) -> String {
        let run = csv::parse(table.as_bytes(), "table", Better::Lower).unwrap();
        let page = page(&analyse(&run, 0.02), &run);
        assert!(page.starts_with(pagewarden::report::html::BEGIN));
        assert!(page.len() <= PAGE_BYTES_MAX, "{} bytes", page.len());
        for forbidden in [
            "<script", "<img", "<link", "<iframe", " onload", " src=", "url(", "@import",
            "http://", "https://",
        ] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches(" href=").count(), page.matches(" href=\"data:text/csv").count());
        page
    }

    fn table(arms: usize, rows: usize, name: impl Fn(usize) -> String) -> String {
        let mut random = Random::new(31);
        let mut text = "run".to_owned();
        (0..arms).for_each(|arm| text.push_str(&format!(";\"{}\"", name(arm))));
        for row in 0..rows {
            text.push_str(&format!("\n{row}"));
            for _ in 0..arms {
                text.push_str(&format!(";{:.3}", 1000.0 * (0.1 * random.normal()).exp()));
            }
        }
        text
    }

    #[test]
    fn the_page_says_what_the_analysis_says() {
        let page = of_table(
            "run,NONE,SUM\n1,100,110\n2,101,110\n3,99,109.5\n4,100,111\n5,102,112\n6,100,110\n7,98,108\n8,100,110.5\n",
        );
        for text in [
            "<p class=\"word\">Worse</p>",
            "The price of SUM against NONE is 1",
            "SUM against NONE",
            "throughput",
        ] {
            assert!(page.contains(text), "no {text} in\n{page}");
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let page = of_table(&table(3, 8, |arm| format!("<script>alert({arm})</script>&'\u{202e}")));
        assert!(page.contains("&lt;script&gt;alert(1)"));
        assert!(!page.contains('\u{202e}'));
    }

    #[test]
    fn the_page_stays_small_whatever_was_run() {
        of_table(&table(32, 12, |arm| format!("{arm}{}", "<&>".repeat(200))));
        of_table(&table(8, 300, |arm| format!("{arm}{}", "<&>".repeat(200))));
        of_table(&table(2, 20_000, |arm| format!("arm {arm}")));
    }
}

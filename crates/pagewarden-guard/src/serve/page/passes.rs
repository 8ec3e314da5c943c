//! The history of passes: a chart of how long each read, and a table of all about it.

use std::fmt::Write as _;

use pagewarden::verdict::Standing;
use pagewarden::words::{bytes, grouped};

use super::{cell, time};
use crate::ledger::passes::Pass;
use crate::scrub::words::span;

const HEIGHT: f64 = 80.0;
const STEP: usize = 20;

/// Draws chart and table.
pub(super) fn draw(page: &mut String, passes: &[Pass]) {
    if passes.is_empty() {
        page.push_str("<p>None yet.</p>\n");
        return;
    }
    chart(page, passes);
    page.push_str(
        "<table class=\"cards\"><thead><tr><th>Pass</th><th>Begun</th><th>Ended</th><th>Read</th>\
         <th>Time</th><th>Pages</th><th>Damaged</th><th>Covers all</th><th>In one run</th></tr></thead>\
         <tbody>\n",
    );
    for pass in passes {
        let yes = |value: bool| if value { "yes" } else { "no" };
        let _ = write!(page, "<tr><th scope=\"row\">Pass {}</th>", pass.number);
        cell(page, "Begun", &time(pass.begun_at));
        cell(page, "Ended", &pass.ended_at.map_or_else(|| "under way".to_owned(), time));
        cell(page, "Read", &bytes(pass.bytes));
        cell(page, "Time", &seconds(pass));
        cell(page, "Pages", &grouped(pass.pages()));
        cell(page, "Damaged", &grouped(pass.count(Standing::Damaged)));
        cell(page, "Covers all", yes(pass.is_complete));
        cell(page, "In one run", yes(pass.is_whole));
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}

/// How long it read, as people say it.
fn seconds(pass: &Pass) -> String {
    match std::time::Duration::try_from_secs_f64(pass.seconds) {
        Ok(time) if time.as_secs() >= 120 => span(time.as_secs()),
        Ok(time) if time.as_secs() >= 1 => format!("{:.1} s", pass.seconds),
        _ => format!("{:.0} ms", pass.seconds * 1000.0),
    }
}

/// The oldest on the left.
fn chart(page: &mut String, passes: &[Pass]) {
    let longest = passes.iter().map(|pass| pass.seconds).fold(0.0, f64::max).max(0.001);
    let _ = write!(
        page,
        "<figure><svg class=\"chart\" role=\"img\" viewBox=\"0 0 {} {}\" width=\"{0}\" \
         aria-label=\"How long each of the last {} passes read; the table has the figures\">",
        passes.len().max(8) * STEP,
        HEIGHT + 14.0,
        passes.len()
    );
    for (place, pass) in passes.iter().rev().enumerate() {
        let damaged = pass.count(Standing::Damaged);
        let (class, mark) = match pass.ended_at {
            None => ("t-age1", "&#8230;"),
            Some(_) if damaged > 0 => ("t-bad", "!"),
            Some(_) if !pass.is_complete => ("t-odd", "?"),
            Some(_) => ("t-good", ""),
        };
        let height = (pass.seconds / longest * HEIGHT).max(1.0);
        let x = place * STEP;
        let _ = write!(
            page,
            "<g class=\"{class}\"><title>pass {}: {}, {damaged} damaged</title>\
             <rect x=\"{x}\" y=\"{:.1}\" width=\"{}\" height=\"{height:.1}\"/>\
             <text x=\"{}\" y=\"{}\">{mark}</text></g>",
            pass.number,
            seconds(pass),
            HEIGHT - height,
            STEP - 4,
            x + (STEP - 4) / 2,
            HEIGHT + 12.0,
        );
    }
    let _ = writeln!(
        page,
        "</svg><figcaption>How long each pass read, the last on the right; the longest {}.\
         </figcaption></figure>",
        passes
            .iter()
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds))
            .map(seconds)
            .unwrap_or_default()
    );
}

//! All databases, a line each.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pagewarden::words::{counted, grouped};

use super::{badge, begin, cell, end, meter, sign, text, time};
use crate::scrub::words::span;
use crate::serve::route::encoded;
use crate::status::Standing;

/// The page; `only` shows databases of one state.
pub(in crate::serve) fn page(
    all: &[Standing],
    only: Option<&str>,
    reloads: bool,
    now: i64,
) -> String {
    let mut page = begin("pagewarden", reloads);
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for one in all {
        *states.entry(one.state()).or_default() += 1;
    }
    let count = |state: &str| states.get(state).copied().unwrap_or(0);
    let late = all.iter().filter(|one| one.coverage.overdue).count();
    let _ = writeln!(
        page,
        "<h1>pagewarden</h1><p class=\"sum\">{}, {} damaged, {late} overdue</p>",
        counted(all.len() as u64, "database"),
        count("damaged"),
    );
    filters(&mut page, &states, only);
    page.push_str(
        "<table class=\"cards\"><thead><tr><th>Database</th><th>State</th><th>This pass</th>\
         <th>Oldest page</th><th>Open findings</th><th>Last pass ended</th><th>Speed</th>\
         <th>Next</th></tr></thead><tbody>\n",
    );
    let is_shown = |one: &&Standing| only.is_none_or(|state| one.state() == state);
    // What needs someone comes first; otherwise the order of the configuration.
    let mut shown: Vec<_> = all.iter().filter(is_shown).collect();
    shown.sort_by_key(|one| urgency(one.state()));
    for one in shown {
        row(&mut page, one, now);
    }
    page.push_str("</tbody></table>\n");
    if all.is_empty() {
        page.push_str("<p>No database is configured.</p>\n");
    } else if !all.iter().any(|one| is_shown(&one)) {
        page.push_str("<p>None is in this state.</p>\n");
    }
    end(&mut page, now, reloads, "/");
    page
}

/// A link for each state that a database is in.
fn filters(page: &mut String, states: &BTreeMap<&str, usize>, only: Option<&str>) {
    if states.len() < 2 && only.is_none() {
        return;
    }
    let here = |is_here: bool| if is_here { " aria-current=\"page\"" } else { "" };
    let _ = write!(
        page,
        "<nav class=\"filters\" aria-label=\"States\"><a href=\"/\"{}>all</a>",
        here(only.is_none())
    );
    for (state, count) in states {
        let (class, sign) = sign(state);
        let _ = write!(
            page,
            " <a class=\"{class}\" href=\"/?state={state}\"{}><span aria-hidden=\"true\">{sign}</span> \
             {state} {count}</a>",
            here(only == Some(state))
        );
    }
    page.push_str("</nav>\n");
}

fn urgency(state: &str) -> u8 {
    match sign(state).0 {
        "bad" => 0,
        "late" => 1,
        "odd" => 2,
        "bare" => 3,
        _ => 4,
    }
}

fn row(page: &mut String, one: &Standing, now: i64) {
    let ended = one.last_pass.as_ref().and_then(|pass| pass.ended_at);
    let _ = write!(
        page,
        "<tr><th scope=\"row\"><a href=\"/targets/{}\">{}</a><small{}>{}</small></th>",
        encoded(&one.name),
        text(&one.name),
        if one.error.is_some() { " class=\"error\"" } else { "" },
        text(match &one.error {
            Some(error) => error,
            None if one.engine.is_empty() => &one.path,
            None => &one.engine,
        }),
    );
    cell(page, "State", &badge(one.state()));
    cell(page, "This pass", &meter(one));
    let coverage = &one.coverage;
    let (age, every) = (span(coverage.oldest_unverified_seconds), span(coverage.every_seconds));
    let age = match one.target {
        None => "-".to_owned(),
        Some(_) if coverage.has_never() => format!("never, for {age} of {every}"),
        Some(_) => format!("{age} of {every}"),
    };
    cell(page, "Oldest page", &age);
    cell(page, "Open findings", &grouped(one.open_findings()));
    cell(page, "Last pass ended", &ended.map_or_else(|| "never".to_owned(), time));
    let rate = one.mib_per_second().map(|rate| format!("{rate:.0} MiB/s"));
    cell(page, "Speed", rate.as_deref().unwrap_or("-"));
    let next = if one.next_run <= now { "now".to_owned() } else { time(one.next_run) };
    cell(page, "Next", &next);
    page.push_str("</tr>\n");
}

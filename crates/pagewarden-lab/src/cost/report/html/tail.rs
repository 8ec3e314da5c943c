//! What makes a page believable: the documents' figures beside ours, machine,
//! plan and settings, and the samples themselves.

use std::fmt::Write as _;

use crate::cost::record::{Note, Run};
use crate::cost::report::html::escaped;
use crate::cost::report::words::{number, ratio};
use crate::cost::result::{Analysis, ExperimentResult, Sign};
use pagewarden::words::escaped_for_html;

/// Rows of a table; more is for the JSON.
const ROWS_MAX: usize = 60;

/// Their figures and ours.
pub(super) fn seeds(page: &mut String, experiments: &[ExperimentResult]) {
    let rows: Vec<String> = experiments
        .iter()
        .flat_map(|experiment| experiment.results.iter().map(move |result| (experiment, result)))
        .flat_map(|(experiment, result)| {
            result.pairs.iter().map(move |pair| (experiment, result, pair))
        })
        .filter_map(|(experiment, result, pair)| {
            let seed = pair.seed.as_ref()?;
            let (class, sign) = match seed.sign {
                Sign::Same => ("good", "yes"),
                Sign::Other => ("bad", "no"),
                Sign::Open => ("fair", "cannot tell"),
            };
            Some(format!(
                "<tr><td>{}<small> {} {}</small><td>{}<td class=\"n\">x{}<td>{}<td>{}\
                 <td class=\"{class}\">{sign}\n",
                escaped(&experiment.record.name),
                escaped(&result.condition),
                escaped(&result.metric.name),
                escaped(&pair.arm),
                number(seed.ratio),
                escaped(&seed.said),
                pair.ratio.as_ref().map(ratio).unwrap_or_default(),
            ))
        })
        .take(ROWS_MAX)
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<section><h2>The documents' figures and ours</h2>\n<div class=\"wide\"><table><thead><tr>\
         <th>Experiment<th>Arm<th class=\"n\">Theirs<th>As they put it<th>Ours<th>Same direction\
         </thead><tbody>\n{}</tbody></table></div></section>",
        rows.concat()
    );
}

/// What befell the run.
pub(super) fn notes(page: &mut String, notes: &[Note]) {
    if notes.is_empty() {
        return;
    }
    page.push_str("<section><h2>What befell the run</h2>\n");
    for note in notes.iter().take(ROWS_MAX) {
        let class = if note.missing { "warn" } else { "note" };
        let _ = writeln!(
            page,
            "<p class=\"{class}\"><b>{}</b> {}</p>",
            escaped(&note.experiment),
            escaped(&note.text)
        );
    }
    page.push_str("</section>\n");
}

/// Machine, plan, settings.
pub(super) fn record(page: &mut String, analysis: &Analysis) {
    let Some(run) = &analysis.run else { return };
    page.push_str("<section><h2>Machine and plan</h2>\n<dl>\n");
    let mut put = |name: &str, value: &str| {
        let _ = writeln!(page, "<div><dt>{}<dd>{}</div>", escaped(name), escaped(value));
    };
    for (name, value) in run.machine.iter().take(ROWS_MAX) {
        put(name, value);
    }
    let plan = &run.plan;
    put("seed of the order", &plan.seed.to_string());
    put("order", &format!("{:?}", plan.order).to_lowercase());
    put("form", &format!("{:?}", plan.form).to_lowercase());
    put("control", if plan.control { "the baseline twice in every block" } else { "none" });
    let looks = match (plan.budget_seconds, plan.sequential) {
        (Some(seconds), _) => &format!("four, declared beforehand, within {seconds} s"),
        (None, true) => "three, declared beforehand",
        (None, false) => "one, at the end",
    };
    put("looks", looks);
    for (name, value) in analysis.versions.iter().take(ROWS_MAX) {
        put(name, value);
    }
    page.push_str("</dl>\n");
    for experiment in &analysis.experiments {
        let own = experiment
            .record
            .settings
            .iter()
            .filter(|(name, _)| !analysis.versions.contains_key(*name))
            .take(ROWS_MAX);
        let list: Vec<String> =
            own.map(|(name, value)| format!("{} = {}", escaped(name), escaped(value))).collect();
        if !list.is_empty() && page.len() < 270_000 {
            let _ = writeln!(
                page,
                "<p class=\"note\"><b>{}</b>: <code>{}</code></p>",
                escaped(&experiment.record.name),
                list.join("; ")
            );
        }
    }
    let _ = writeln!(
        page,
        "<p class=\"note\">To run it again in the same order:</p>\n<pre>{}</pre></section>",
        escaped_for_html(&command(analysis))
    );
}

/// The command that makes such a run.
fn command(analysis: &Analysis) -> String {
    let Some(run) = &analysis.run else { return String::new() };
    let plan = &run.plan;
    let mut command = format!("pagewarden cost {}", run.experiments.join(" "));
    if plan.form == crate::cost::experiment::Form::Short {
        command.push_str(" --short");
    }
    if let Some(blocks) = plan.blocks {
        let _ = write!(command, " --blocks {blocks}");
    }
    if plan.order != crate::cost::design::Order::Random {
        let _ = write!(command, " --order {}", format!("{:?}", plan.order).to_lowercase());
    }
    if !plan.control {
        command.push_str(" --no-control");
    }
    if let Some(seconds) = plan.budget_seconds {
        let _ = write!(command, " --budget {seconds}s");
    } else if plan.sequential {
        command.push_str(" --sequential");
    }
    let margin = crate::stats::verdict::percent(analysis.margin);
    let _ = write!(command, " --seed {} --margin {margin}%", plan.seed);
    command
}

/// Every sample as a table inside a link, if there is room for it.
pub(super) fn samples(page: &mut String, run: &Run, room: usize) {
    let mut table = String::from("experiment,condition,arm,block,order,warm_up,metric,value\n");
    for sample in &run.samples {
        for (metric, value) in &sample.values {
            let _ = writeln!(
                table,
                "{},{},{},{},{},{},{},{value}",
                cell(&sample.experiment),
                cell(&sample.condition),
                cell(&sample.arm),
                sample.block,
                sample.order,
                sample.warm_up,
                cell(metric)
            );
        }
        if table.len() > room {
            break;
        }
    }
    let link = percent_encoded(&table);
    page.push_str("<section><h2>Samples</h2>\n");
    if link.len() <= room {
        let _ = writeln!(
            page,
            "<p><a download=\"samples.csv\" href=\"data:text/csv,{link}\">Every sample as CSV</a> \
             is inside this page.</p></section>"
        );
    } else {
        page.push_str(
            "<p class=\"note\">Too many for this page; the run's own file and <code>--json</code> \
             have them all.</p></section>\n",
        );
    }
}

fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// As the data of a link.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.,()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

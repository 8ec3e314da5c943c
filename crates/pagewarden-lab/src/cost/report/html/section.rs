//! One experiment: what it asks, its figures run by run, tables and tests.

use std::fmt::Write as _;

use crate::cost::experiment::Kind;
use crate::cost::report::html::escaped;
use crate::cost::report::html::figures::{bar, colour, strip};
use crate::cost::report::html::forest::tag;
use crate::cost::report::words::{
    better, counted, figure, number, p_value, percent, ratio, ratios, share,
};
use crate::cost::result::{ExperimentResult, MetricResult, PairResult};
use pagewarden::words::escaped_for_html;

/// Rows of a table; more is for the JSON.
const ROWS_MAX: usize = 40;
/// Room that is kept for what comes behind the results.
const RESERVE_BYTES: usize = 4000;

/// The section, in at most about `room` bytes.
pub(super) fn section(experiment: &ExperimentResult, points: bool, room: usize) -> String {
    let record = &experiment.record;
    let mut page = String::from("<section><h2>");
    let _ = write!(page, "{}", escaped(&record.name));
    if record.title != record.name {
        let _ = write!(page, ": {}", escaped(&record.title));
    }
    page.push_str("</h2>\n");
    if !record.question.is_empty() {
        let _ = writeln!(page, "<p class=\"lead\">{}</p>", escaped_for_html(&record.question));
    }
    if record.arms.iter().any(|arm| !arm.what.is_empty()) {
        page.push_str("<p class=\"note\">");
        for arm in &record.arms {
            let _ = write!(page, "<b>{}</b>: {}. ", escaped(&arm.name), escaped(&arm.what));
        }
        page.push_str("</p>\n");
    }
    let of_kind =
        |kind: Kind| experiment.results.iter().filter(move |result| result.metric.kind == kind);
    let mut left_out = 0;
    for result in of_kind(Kind::Timed) {
        let mut part = String::new();
        timed(&mut part, result, points);
        if page.len() + part.len() + RESERVE_BYTES > room {
            left_out += 1;
        } else {
            page.push_str(&part);
        }
    }
    stages(&mut page, experiment);
    for kind in [Kind::Exact, Kind::Share, Kind::Found] {
        let results: Vec<&MetricResult> = of_kind(kind).collect();
        matrices(&mut page, &results);
    }
    if left_out > 0 {
        let _ = writeln!(
            page,
            "<p class=\"note\">{} more, for want of room in the JSON only.</p>",
            counted(left_out, "result")
        );
    }
    if !record.by_hand.is_empty() {
        let _ = writeln!(
            page,
            "<details><summary>How to repeat it by hand</summary><pre>{}</pre></details>",
            escaped_for_html(&record.by_hand)
        );
    }
    page.push_str("</section>\n");
    page
}

fn timed(page: &mut String, result: &MetricResult, points: bool) {
    let mut title = escaped(&result.metric.name);
    if !result.condition.is_empty() {
        let _ = write!(title, "; {}", escaped(&result.condition));
    }
    let _ = writeln!(page, "<h3>{title} <small>{}</small></h3>", better(&result.metric));
    for warning in &result.warnings {
        let _ = writeln!(page, "<p class=\"warn\">{}</p>", escaped(warning));
    }
    if result.main {
        strip(page, result, points);
    }
    let unit = &result.metric.unit;
    page.push_str(
        "<div class=\"wide\"><table><thead><tr><th>Arm<th class=\"n\">Blocks<th class=\"n\">Median\
         <th class=\"n\">Robust sd<th class=\"n\">Min<th class=\"n\">Max<th class=\"n\">Trimmed \
         mean<th class=\"n\">Far out</thead><tbody>\n",
    );
    let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| figure(v, unit));
    for arm in result.arms.iter().take(ROWS_MAX) {
        let spread = arm.robust_sd.map(|sd| percent(sd / arm.median));
        let _ = writeln!(
            page,
            "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\
             <td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}",
            escaped(&arm.arm),
            arm.count,
            figure(arm.median, unit),
            spread.unwrap_or_else(|| "-".to_owned()),
            figure(arm.min, unit),
            figure(arm.max, unit),
            of(arm.trimmed_mean),
            arm.outliers.len()
        );
    }
    page.push_str(
        "</tbody></table></div>\n<div class=\"wide\"><table class=\"pairs\"><thead><tr><th>Pair<th>Ratio within \
         blocks [95 %]<th>Ratio of medians<th class=\"n\">Wilcoxon<th class=\"n\">Visible\
         <th>Verdict</thead><tbody>\n",
    );
    for pair in result.told().take(ROWS_MAX) {
        pair_row(page, pair);
    }
    page.push_str("</tbody></table></div>\n");
    if let Some(several) = &result.several {
        let _ = writeln!(
            page,
            "<p class=\"note\">All arms: Friedman chi2 = {:.3}, {}, Kendall W = {:.4}.</p>",
            several.friedman,
            p_value(several.p),
            several.kendall_w
        );
    }
}

fn pair_row(page: &mut String, pair: &PairResult) {
    let named: Vec<String> =
        ratios(pair).iter().map(|(name, of)| format!("{name} {}", ratio(of))).collect();
    let _ = write!(
        page,
        "<tr><td>{} / {}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td>",
        escaped(&pair.arm),
        escaped(&pair.against),
        named.join("<br>"),
        pair.medians.as_ref().map(ratio).unwrap_or_default(),
        pair.p
            .map(|p| p_value(p)
                .trim_start_matches("p = ")
                .trim_start_matches("p ")
                .replace('<', "&lt;"))
            .unwrap_or_default(),
        pair.visible.map(percent).unwrap_or_default()
    );
    if let Some(verdict) = pair.verdict {
        let (class, _) = tag(verdict);
        let _ = write!(
            page,
            "<span class=\"{class}\">{}</span>",
            escaped(pair.phrase.as_deref().unwrap_or_default())
        );
    }
    page.push('\n');
}

/// Counted bytes by stage: stacked bars, an arm each. The stages are the exact
/// metrics that share the beginning of the first one's name (`wal_`), which is
/// their sum.
fn stages(page: &mut String, experiment: &ExperimentResult) {
    let Some((total, others)) = experiment.record.metrics.split_first() else { return };
    let Some((family, _)) = total.name.split_once('_') else { return };
    let stages: Vec<&str> = others
        .iter()
        .filter(|metric| metric.kind == Kind::Exact && metric.unit == total.unit)
        .map(|metric| metric.name.as_str())
        .filter(|name| name.split_once('_').is_some_and(|(begin, _)| begin == family))
        .collect();
    if total.kind != Kind::Exact || stages.len() < 2 {
        return;
    }
    let of = |condition: &str, metric: &str| {
        experiment
            .results
            .iter()
            .find(|result| result.condition == condition && result.metric.name == metric)
    };
    let mains: Vec<&MetricResult> =
        experiment.results.iter().filter(|result| result.main).take(ROWS_MAX).collect();
    let whole = mains.iter().flat_map(|main| &main.arms).map(|arm| arm.median).fold(0.0, f64::max);
    let _ = write!(page, "<h3>{} by step</h3>\n<p class=\"legend\">", escaped(family));
    for (index, stage) in stages.iter().enumerate() {
        let short = stage.split_once('_').map_or(*stage, |(_, rest)| rest);
        let _ = write!(
            page,
            "<span class=\"{}\"><i></i><span>{}</span></span>",
            colour(index),
            escaped(&short.replace('_', " "))
        );
    }
    page.push_str("</p>\n<div class=\"bars\">\n");
    for main in mains {
        if !main.condition.is_empty() {
            let _ = writeln!(page, "<h4>{}</h4>", escaped(&main.condition));
        }
        for arm in &main.arms {
            let parts: Vec<f64> = stages
                .iter()
                .map(|stage| {
                    let stage = of(&main.condition, stage);
                    let found = stage
                        .and_then(|result| result.arms.iter().find(|other| other.arm == arm.arm));
                    found.map_or(0.0, |arm| arm.median)
                })
                .collect();
            let pair = main.pairs.iter().find(|pair| pair.arm == arm.arm);
            let times = pair.and_then(|pair| pair.ratio).map(|of| format!(" (x{:.2})", of.value));
            let text =
                format!("{}{}", figure(arm.median, &main.metric.unit), times.unwrap_or_default());
            bar(page, &arm.arm, &parts, whole, &text);
        }
    }
    page.push_str("</div>\n");
}

/// What needs no statistics: a row a condition, a column an arm.
fn matrices(page: &mut String, results: &[&MetricResult]) {
    let mut names: Vec<&str> = Vec::new();
    for result in results {
        if !names.contains(&result.metric.name.as_str()) {
            names.push(&result.metric.name);
        }
    }
    for name in names {
        let of_metric: Vec<&&MetricResult> =
            results.iter().filter(|result| result.metric.name == name).collect();
        let Some(widest) = of_metric.iter().max_by_key(|result| result.arms.len()) else {
            continue;
        };
        let _ = write!(
            page,
            "<h3>{} <small>{}</small></h3>\n<div class=\"wide\"><table><thead><tr><th>",
            escaped(&name.replace('_', " ")),
            better(&widest.metric)
        );
        let arms: Vec<&str> = widest.arms.iter().map(|arm| arm.arm.as_str()).collect();
        arms.iter().for_each(|arm| {
            let _ = write!(page, "<th class=\"n\">{}", escaped(arm));
        });
        page.push_str("</thead><tbody>\n");
        for result in of_metric.iter().take(ROWS_MAX) {
            let _ = write!(page, "<tr><td>{}", escaped(&result.condition));
            for arm in &arms {
                let _ = write!(page, "<td class=\"n\">{}", cell(result, arm));
            }
            page.push('\n');
        }
        page.push_str("</tbody></table></div>\n");
        let warnings = of_metric.iter().flat_map(|result| &result.warnings).take(3);
        for warning in warnings {
            let _ = writeln!(page, "<p class=\"warn\">{}</p>", escaped(warning));
        }
    }
}

fn cell(result: &MetricResult, arm: &str) -> String {
    let Some(found) = result.arms.iter().find(|other| other.arm == arm) else {
        return String::new();
    };
    match result.metric.kind {
        Kind::Share => found.share.as_ref().map(share).map_or_else(
            || "-".to_owned(),
            |text| text.replacen(" [", "<br><small>[", 1) + "</small>",
        ),
        Kind::Found => {
            let (class, word) = if found.median >= 0.5 { ("good", "yes") } else { ("bad", "no") };
            let why =
                found.word.as_ref().map(|word| format!("<br><small>{}</small>", escaped(word)));
            format!("<b class=\"{class}\">{word}</b>{}", why.unwrap_or_default())
        }
        Kind::Exact | Kind::Timed => {
            let pair = result.pairs.iter().find(|pair| pair.arm == arm);
            let times = pair
                .and_then(|pair| pair.ratio)
                .map(|of| format!("<br><small>x{}</small>", number(of.value)));
            format!("{}{}", figure(found.median, &result.metric.unit), times.unwrap_or_default())
        }
    }
}

//! From samples to results. Pure: the same samples give the same results.

use std::collections::{BTreeMap, BTreeSet};

use crate::cost::compare::{Question, compare};
use crate::cost::decision::decisions;
use crate::cost::experiment::Kind;
use crate::cost::record::{ExperimentRecord, MetricRecord, Run};
use crate::cost::result::{
    Analysis, ArmResult, ExperimentResult, Interval, MetricResult, NoiseResult, Outlier, on_trial,
};
use crate::cost::samples::{CONTROL, Sample};
use crate::cost::sentence;
use crate::stats::share::share;
use crate::stats::summary;
use crate::stats::verdict::{Level, Verdict};

/// How sure an interval of a share is to hold the truth.
const SHARE_CONFIDENCE: f64 = 0.95;

/// The name of the second of two identical arms.
#[must_use]
pub fn control_name(baseline: &str) -> String {
    format!("{baseline} {CONTROL}")
}

/// Analyses all of a run against `margin`.
#[must_use]
pub fn analyse(run: &Run, margin: f64) -> Analysis {
    let experiments: Vec<ExperimentResult> =
        run.experiments.iter().map(|record| experiment(run, record, margin)).collect();
    let incomplete = !run.ended || run.notes.iter().any(|note| note.missing);
    let decisions = decisions(&experiments, margin);
    Analysis {
        verdict: verdict(&experiments, incomplete),
        sentence: sentence::sentence(&experiments, &decisions, margin, incomplete),
        decisions,
        margin,
        run: (run.record.format > 0).then(|| run.record.clone()),
        noise: noise(&run.samples),
        notes: run.notes.clone(),
        incomplete,
        versions: versions(&run.experiments),
        experiments,
    }
}

/// The gravest verdict on a main metric.
fn verdict(experiments: &[ExperimentResult], incomplete: bool) -> &'static str {
    let gravest = on_trial(experiments)
        .into_iter()
        .flat_map(|(_, result)| result.judged())
        .map(|(_, verdict)| verdict)
        .min_by_key(|verdict| gravity(*verdict));
    match gravest {
        Some(Verdict::Worse) => "worse",
        _ if incomplete => "incomplete",
        Some(verdict) => verdict.name(),
        None => "measured",
    }
}

/// The smaller, the graver.
#[must_use]
pub fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Worse => 0,
        Verdict::Undecided { .. } => 1,
        Verdict::NoWorse => 2,
        Verdict::Equivalent => 3,
        Verdict::Better => 4,
    }
}

fn experiment(run: &Run, record: &ExperimentRecord, margin: f64) -> ExperimentResult {
    let samples: Vec<&Sample> = run
        .samples
        .iter()
        .filter(|sample| sample.experiment == record.name && !sample.warm_up)
        .collect();
    let mut results = Vec::new();
    for condition in conditions(record, &samples) {
        let samples: Vec<&Sample> =
            samples.iter().copied().filter(|sample| sample.condition == condition).collect();
        let level = level(run, record, &samples);
        for (index, metric) in record.metrics.iter().enumerate() {
            let question = Question { record, condition: &condition, metric, margin, level };
            results.extend(measured(&question, &samples, index == 0));
        }
    }
    ExperimentResult { record: record.clone(), results }
}

/// The conditions in their order; those that only samples know come last.
fn conditions(record: &ExperimentRecord, samples: &[&Sample]) -> Vec<String> {
    let mut conditions = record.conditions.clone();
    for sample in samples {
        if !conditions.contains(&sample.condition) {
            conditions.push(sample.condition.clone());
        }
    }
    conditions
}

/// What may err here: all of it at the end of a fixed plan; the share of the
/// look at which a sequential one stopped.
fn level(run: &Run, record: &ExperimentRecord, samples: &[&Sample]) -> Level {
    if !run.record.plan.sequential {
        return Level::default();
    }
    let blocks: BTreeSet<u32> = samples.iter().map(|sample| sample.block).collect();
    let looks = run.record.plan.looks(record.blocks);
    let reached = |blocks_at: u32| usize::try_from(blocks_at).is_ok_and(|at| blocks.len() <= at);
    let look = looks.iter().find(|look| reached(look.blocks)).or(looks.last());
    look.map_or_else(Level::default, |look| look.level)
}

/// One metric under one condition, if anything was measured.
fn measured(question: &Question<'_>, samples: &[&Sample], main: bool) -> Option<MetricResult> {
    let metric = question.metric;
    let mut names: Vec<String> = question.record.arms.iter().map(|arm| arm.name.clone()).collect();
    // A table may bring a control of its own.
    let control = names.first().map(|baseline| control_name(baseline));
    names.extend(control.filter(|control| !names.contains(control)));
    let arms: Vec<ArmResult> = names.iter().filter_map(|name| arm(metric, name, samples)).collect();
    if arms.is_empty() {
        return None;
    }
    let mut result = MetricResult {
        condition: question.condition.to_owned(),
        metric: metric.clone(),
        main,
        alpha: question.level.alpha,
        arms,
        pairs: Vec::new(),
        several: None,
        control: None,
        warnings: Vec::new(),
    };
    compare(question, &mut result);
    Some(result)
}

fn arm(metric: &MetricRecord, name: &str, samples: &[&Sample]) -> Option<ArmResult> {
    let mut blocks: BTreeMap<u32, f64> = BTreeMap::new();
    let mut share_of = (0.0, 0.0);
    let mut word = None;
    for sample in samples.iter().filter(|sample| sample.arm == name) {
        let Some(value) = sample.values.get(&metric.name).filter(|value| value.is_finite()) else {
            continue;
        };
        blocks.insert(sample.block, *value);
        let tries = sample.values.get(&format!("{}_of", metric.name)).copied().unwrap_or(0.0);
        share_of = (share_of.0 + value, share_of.1 + tries);
        word = sample.words.get(&metric.name).cloned().or(word);
    }
    let values: Vec<(u32, f64)> = blocks.into_iter().collect();
    let figures: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    let sorted = summary::sorted(&figures);
    let outliers = summary::severe_outliers(&figures);
    Some(ArmResult {
        arm: name.to_owned(),
        count: figures.len(),
        median: summary::median(&figures)?,
        robust_sd: summary::robust_sd(&figures),
        cv: summary::coefficient_of_variation(&figures),
        min: *sorted.first()?,
        max: *sorted.last()?,
        trimmed_mean: summary::trimmed_mean(&figures, 0.2),
        geometric_mean: summary::geometric_mean(&figures),
        outliers: outliers
            .into_iter()
            .filter_map(|at| values.get(at))
            .map(|(block, value)| Outlier { block: *block, value: *value })
            .collect(),
        share: (metric.kind == Kind::Share)
            .then(|| share(share_of.0, share_of.1, SHARE_CONFIDENCE))
            .flatten()
            .map(Interval::from),
        word,
        values,
    })
}

fn noise(samples: &[Sample]) -> Vec<NoiseResult> {
    let mut order: Vec<&Sample> = samples.iter().collect();
    order.sort_by_key(|sample| sample.order);
    let sensors: BTreeSet<&String> =
        samples.iter().flat_map(|sample| sample.noise.keys()).collect();
    sensors
        .into_iter()
        .filter_map(|sensor| {
            let values: Vec<f64> =
                order.iter().filter_map(|sample| sample.noise.get(sensor)).copied().collect();
            let median = summary::median(&values)?;
            let max = values.iter().copied().max_by(f64::total_cmp)?;
            Some(NoiseResult { sensor: sensor.clone(), median, max, values })
        })
        .collect()
}

/// What all experiments agree on, said once.
fn versions(records: &[ExperimentRecord]) -> BTreeMap<String, String> {
    let mut shared: Option<BTreeMap<String, String>> = None;
    for record in records {
        match &mut shared {
            None => shared = Some(record.settings.clone()),
            Some(shared) => shared.retain(|key, value| record.settings.get(key) == Some(value)),
        }
    }
    shared.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::csv;
    use crate::cost::experiment::Better;
    use crate::cost::record::{ArmRecord, SeedRecord};
    use crate::cost::result::Sign;
    use crate::stats::random::Random;

    /// Thirty made-up blocks of three arms. The article's own 30 rows on
    /// PAGE_VERIFY are not available; of what is known of them these have the
    /// medians (1053, 1051.5, 1060.5), Friedman's statistic and p (0.050, 0.975),
    /// the figures far out (3231 and 2552 in row 15, 1776 at most in the first
    /// arm), and the answer `undecided` at 2 %. Means, ratios, their intervals
    /// and the other tests are those of this table, not of the article's.
    const LIKE_THE_ARTICLE: &str = include_str!("like_page_verify.csv");

    fn table(text: &str) -> Analysis {
        analyse(&csv::parse(text.as_bytes(), "t", Better::Lower).unwrap(), 0.02)
    }

    /// Rows of made-up seconds; `planted` is what the second arm takes more.
    fn made(seed: u64, blocks: usize, noise: f64, planted: f64) -> String {
        let mut random = Random::new(seed);
        let mut text = "run,A,B\n".to_owned();
        for block in 0..blocks {
            let shared = 100.0 * (0.1 * random.normal()).exp();
            let a = shared * (noise * random.normal()).exp();
            let b = shared * planted * (noise * random.normal()).exp();
            text.push_str(&format!("{block},{a},{b}\n"));
        }
        text
    }

    /// SciPy 1.17.1: friedmanchisquare, kruskal; wilcoxon(log(y / x)),
    /// mannwhitneyu(y, x); the estimates and their bounds from the sorted means
    /// of log(y / x) at the places of its exact wilcoxon distribution.
    #[test]
    fn table_like_the_articles_gives_the_answers_of_scipy() {
        let analysis = table(LIKE_THE_ARTICLE);
        let result = &analysis.experiments[0].results[0];
        let medians: Vec<f64> = result.arms.iter().map(|arm| arm.median).collect();
        assert_eq!(medians, [1053.0, 1051.5, 1060.5]);
        let several = result.several.as_ref().unwrap();
        let close = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        };
        close(several.friedman, 0.050_420_168);
        close(several.p, 0.975_105_037);
        close(several.p_unpaired.unwrap(), 0.866_528_380);
        for (index, wilcoxon, mann_whitney, larger, ratio, low, high) in [
            (
                0,
                0.670_180_589,
                0.728_229_032,
                0.473_333_333,
                0.992_748_17,
                0.960_531_26,
                1.025_592_75,
            ),
            (
                1,
                0.983_833_581,
                0.574_204_175,
                0.457_222_222,
                0.998_018_6,
                0.943_747_48,
                1.030_916_32,
            ),
            (
                2,
                0.705_128_996,
                0.941_062_541,
                0.506_111_111,
                0.991_210_61,
                0.952_641_93,
                1.024_507_43,
            ),
        ] {
            let pair = &result.pairs[index];
            close(pair.p.unwrap(), wilcoxon);
            close(pair.p_unpaired.unwrap(), mann_whitney);
            close(pair.larger.unwrap(), larger);
            let found = pair.ratio.unwrap();
            close(found.value, ratio);
            close(found.low, low);
            close(found.high, high);
            close(pair.throughput_ratio.unwrap().value, 1.0 / ratio);
        }
        assert_eq!(result.arms[1].outliers[0].block, 14);
        assert_eq!(analysis.verdict, "undecided");
        // Of the other pair nothing was asked.
        assert_eq!(result.pairs[2].verdict, None);
    }

    /// Ways to do something are no prices: what they differ by decides nothing, unless nothing
    /// else was asked.
    #[test]
    fn verdict_and_sentence_are_about_prices_where_there_are_any() {
        let mut price = table(&made(1, 30, 0.001, 1.0)).experiments.remove(0);
        let mut ways = table(&made(2, 30, 0.001, 7.0)).experiments.remove(0);
        ways.record.is_price = false;
        let said = |experiments: &[ExperimentResult]| {
            (verdict(experiments, false), sentence::sentence(experiments, &[], 0.02, false))
        };
        assert_eq!(said(std::slice::from_ref(&ways)).0, "worse");
        let (found, text) = said(&[price.clone(), ways.clone()]);
        assert_eq!(found, "equivalent", "{text}");
        assert!(text.starts_with("The price of B against A is no more than 2 %"), "{text}");
        // A price without a verdict is not mentioned.
        price.results.clear();
        assert_eq!(said(&[price, ways]).0, "worse");
    }

    /// The noise is such that the interval of 30 blocks is about as wide as the
    /// margin: where a false verdict is most likely.
    #[test]
    fn identical_arms_end_equivalent_or_undecided() {
        for noise in [0.005, 0.02, 0.1] {
            let harmless = (0..100)
                .filter(|seed| {
                    let control = table(&control(&made(*seed, 30, noise, 1.0)));
                    let verdict =
                        control.experiments[0].results[0].control.as_ref().unwrap().verdict;
                    matches!(verdict, "equivalent" | "undecided")
                })
                .count();
            assert!(harmless >= 95, "{harmless} of 100 at a noise of {noise}");
        }
    }

    /// Whatever the other arm shows: what made the baseline differ from itself is in it, too.
    #[test]
    fn failed_control_makes_every_verdict_undecided() {
        let rows = |again: f64| {
            let mut text = "run,A,A (again),B\n".to_owned();
            for block in 0..30 {
                let noise = f64::from(block % 5) * 0.01;
                text.push_str(&format!("{block},{},{},{}\n", 100.0 + noise, again + noise, 130.0));
            }
            text
        };
        let found = |again: f64| {
            let analysis = table(&rows(again));
            let result = analysis.experiments[0].results[0].clone();
            (analysis.verdict, result.control.unwrap().verdict, result.pairs[0].clone())
        };
        let (verdict, control, pair) = found(100.0);
        assert_eq!((verdict, control), ("worse", "equivalent"), "{pair:?}");
        let (verdict, control, pair) = found(110.0);
        assert_eq!((verdict, control), ("undecided", "different"), "{pair:?}");
        assert_eq!(pair.verdict, Some(Verdict::Undecided { more: None }));
        assert!(pair.phrase.unwrap().contains("two identical arms differ"));
        // The figures stay.
        assert!(pair.ratio.unwrap().value > 1.2);
    }

    /// The second arm of a table, named as the control of the first.
    fn control(table: &str) -> String {
        let (_, rows) = table.split_once('\n').unwrap();
        let rows: Vec<String> = rows
            .lines()
            .map(|row| {
                let cells: Vec<&str> = row.split(',').collect();
                format!("{},{},{},{}", cells[0], cells[1], cells[2], cells[2])
            })
            .collect();
        format!("run,A,A (again),B\n{}\n", rows.join("\n"))
    }

    #[test]
    fn planted_five_percent_is_found_with_the_planned_blocks() {
        // The noise at which 30 blocks show 5 % with 80 % power.
        let noise = 0.06;
        let found =
            (0..100).filter(|seed| table(&made(*seed, 30, noise, 1.05)).verdict == "worse").count();
        assert!(found >= 80, "{found} of 100");
        let analysis = table(&made(1, 30, noise, 1.0));
        let visible = analysis.experiments[0].results[0].pairs[0].visible.unwrap();
        assert!((0.03..0.06).contains(&visible), "{visible}");
    }

    #[test]
    fn throughput_is_worse_when_it_falls() {
        let text = made(3, 30, 0.01, 1.0 / 1.1);
        let lower = table(&text);
        assert_eq!(lower.verdict, "better");
        let run = csv::parse(text.as_bytes(), "t", Better::Higher).unwrap();
        let higher = analyse(&run, 0.02);
        assert_eq!(higher.verdict, "worse");
        let pair = &higher.experiments[0].results[0].pairs[0];
        let (throughput, time) = (pair.throughput_ratio.unwrap(), pair.time_ratio.unwrap());
        assert!((throughput.value * time.value - 1.0).abs() < 1e-12);
        assert!(throughput.high < 1.0 && time.low > 1.0);
        let price = format!("The price of {} against A is ", pair.arm);
        assert!(higher.sentence.starts_with(&price), "{}", higher.sentence);
        assert!(higher.sentence.contains(" of throughput."), "{}", higher.sentence);
        let saving = format!("The saving of {} against A is ", pair.arm);
        assert!(lower.sentence.starts_with(&saving), "{}", lower.sentence);
    }

    fn sample(arm: &str, condition: &str, values: &[(&str, f64)], word: Option<&str>) -> Sample {
        Sample {
            experiment: "e".to_owned(),
            condition: condition.to_owned(),
            arm: arm.to_owned(),
            block: 0,
            order: 0,
            warm_up: false,
            values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            words: word.map(|word| ("found".to_owned(), word.to_owned())).into_iter().collect(),
            noise: BTreeMap::new(),
        }
    }

    fn experiment_of(kind: Kind, metric: &str, samples: Vec<Sample>) -> MetricResult {
        let record = ExperimentRecord {
            name: "e".to_owned(),
            arms: ["off", "on"]
                .map(|name| ArmRecord { name: name.to_owned(), what: String::new() })
                .to_vec(),
            metrics: vec![MetricRecord {
                name: metric.to_owned(),
                unit: "bytes".to_owned(),
                kind,
                better: Better::Lower,
            }],
            seed_figures: vec![SeedRecord {
                condition: String::new(),
                arm: "on".to_owned(),
                metric: metric.to_owned(),
                ratio: 1.55,
                said: "155 %".to_owned(),
            }],
            ..ExperimentRecord::default()
        };
        let run = Run { experiments: vec![record], samples, ended: true, ..Run::default() };
        let analysis = analyse(&run, 0.02);
        assert_eq!(analysis.verdict, "measured");
        analysis.experiments[0].results[0].clone()
    }

    #[test]
    fn exact_figures_have_a_ratio_and_no_verdict() {
        let samples = vec![
            sample("off", "", &[("wal", 166.1)], None),
            sample("on", "", &[("wal", 293.7)], None),
        ];
        let result = experiment_of(Kind::Exact, "wal", samples);
        let pair = &result.pairs[0];
        assert!((pair.ratio.unwrap().value - 1.768).abs() < 1e-3);
        assert_eq!((pair.verdict, pair.p), (None, None));
        assert_eq!(pair.seed.as_ref().unwrap().sign, Sign::Same);
        assert!(result.warnings.is_empty());
    }

    #[test]
    fn shares_add_up_over_blocks_and_have_an_interval() {
        let mut samples = Vec::new();
        for block in 0..2 {
            let values = [("detected", 3.0 + f64::from(block)), ("detected_of", 10.0)];
            samples.push(Sample { block, ..sample("off", "", &values, None) });
        }
        let result = experiment_of(Kind::Share, "detected", samples);
        let share = result.arms[0].share.unwrap();
        assert!((share.value - 0.35).abs() < 1e-12);
        assert!((share.low - 0.153_909_204_784_541_2).abs() < 1e-9);
    }

    #[test]
    fn what_is_found_keeps_the_word_for_it() {
        let samples = vec![
            sample("on", "", &[("found", 1.0)], Some("checksum")),
            sample("off", "", &[("found", 0.0)], None),
        ];
        let result = experiment_of(Kind::Found, "found", samples);
        assert_eq!(result.arms[1].word.as_deref(), Some("checksum"));
        assert_eq!(result.arms[0].median, 0.0);
    }

    #[test]
    fn an_arm_without_its_baseline_is_compared_with_nothing() {
        let samples = vec![sample("on", "", &[("wal", 1.0)], None)];
        let result = experiment_of(Kind::Exact, "wal", samples);
        assert!(result.pairs.is_empty());
        assert!(result.warnings[0].contains("the baseline has no figures"));
    }

    #[test]
    fn drift_is_said_and_does_not_change_the_verdict() {
        let mut text = "run,A,B\n".to_owned();
        for block in 0..30 {
            let base = 100.0 * 1.02_f64.powi(block);
            let wiggle = 1.0 + 0.001 * f64::from(block * 7 % 5);
            text.push_str(&format!("{block},{base},{}\n", base * wiggle));
        }
        let analysis = table(&text);
        assert_eq!(analysis.verdict, "equivalent");
        let warnings = &analysis.experiments[0].results[0].warnings;
        assert!(warnings.iter().any(|warning| warning.contains("drift")), "{warnings:?}");
    }
}

//! The arms of one metric beside each other: ratios, tests, verdicts.

use crate::cost::analyse::control_name;
use crate::cost::experiment::{Better, Kind};
use crate::cost::record::{ExperimentRecord, MetricRecord};
use crate::cost::result::{
    ArmResult, ControlResult, Interval, MetricResult, PairResult, SeedBeside, SeveralResult, Sign,
};
use crate::stats::association::{drift, memory, spearman};
use crate::stats::bootstrap::ratio_of_medians;
use crate::stats::power::visible_effect;
use crate::stats::several::{friedman, holm, kruskal_wallis};
use crate::stats::signed_rank::signed_rank;
use crate::stats::summary::robust_sd;
use crate::stats::two_samples::mann_whitney;
use crate::stats::verdict::{Judged, Level, Verdict, estimate, judge, mostly_tied, percent};

/// What is asked of the figures of one metric under one condition.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The experiment.
    pub record: &'a ExperimentRecord,
    /// The condition.
    pub condition: &'a str,
    /// The metric.
    pub metric: &'a MetricRecord,
    /// The smallest difference that matters.
    pub margin: f64,
    /// What may err.
    pub level: Level,
}

/// From this number of blocks on, drift and memory are looked for.
const BLOCKS_FOR_WARNINGS: usize = 10;
/// A warning is not to come up by chance: one in a hundred.
const WARNING_ALPHA: f64 = 0.01;
/// Exact figures may differ by so much before it is said: a page here and there.
const EXACT_SPREAD: f64 = 0.001;

/// Puts pairs, tests and warnings into `result`, whose arms are there.
pub fn compare(question: &Question<'_>, result: &mut MetricResult) {
    let Some(baseline) = result.arms.first().map(|arm| arm.arm.clone()) else { return };
    // Without its baseline an arm is compared with nothing.
    let has_baseline = question.record.arms.first().is_some_and(|arm| arm.name == baseline);
    if !has_baseline {
        result.warnings.push("the baseline has no figures: nothing to compare with".to_owned());
        return;
    }
    let again = control_name(&baseline);
    let (control, arms): (Vec<&ArmResult>, Vec<&ArmResult>) =
        result.arms.iter().partition(|arm| arm.arm == again);
    match question.metric.kind {
        Kind::Timed => {
            let mut pairs = timed_pairs(question, &arms);
            let several = several(&arms);
            let against_itself = arms
                .first()
                .zip(control.first())
                .and_then(|(one, other)| control_result(question, one, other));
            let warnings = warnings(question, &arms, against_itself.as_ref());
            if against_itself.as_ref().is_some_and(|control| control.verdict == "different") {
                pairs.iter_mut().for_each(take_verdict_back);
            }
            (result.pairs, result.several) = (pairs, several);
            (result.control, result.warnings) = (against_itself, warnings);
        }
        Kind::Exact => {
            let pairs = with_baseline(&arms, |one, other| exact_pair(question, one, other));
            let warnings = arms.iter().filter_map(|arm| inexact(arm)).collect();
            (result.pairs, result.warnings) = (pairs, warnings);
        }
        Kind::Share | Kind::Found => {}
    }
}

/// What disturbs two identical arms disturbs this pair too, and more blocks do not help.
fn take_verdict_back(pair: &mut PairResult) {
    if pair.verdict.is_some() {
        pair.verdict = Some(Verdict::Undecided { more: None });
        pair.phrase = Some("undecided: two identical arms differ too".to_owned());
        pair.blocks_more = None;
    }
}

fn with_baseline<'a>(
    arms: &[&'a ArmResult],
    pair: impl Fn(&'a ArmResult, &'a ArmResult) -> PairResult,
) -> Vec<PairResult> {
    let Some((baseline, others)) = arms.split_first() else { return Vec::new() };
    others.iter().map(|other| pair(baseline, other)).collect()
}

/// The blocks that two arms share. What is not above nothing has no ratio.
fn shared(one: &ArmResult, other: &ArmResult) -> (Vec<f64>, Vec<f64>) {
    let mut theirs = other.values.iter().peekable();
    let mut both = Vec::new();
    for (block, value) in &one.values {
        while theirs.next_if(|(number, _)| number < block).is_some() {}
        if let Some((_, their_value)) = theirs.next_if(|(number, _)| number == block)
            && *value > 0.0
            && *their_value > 0.0
        {
            both.push((*value, *their_value));
        }
    }
    both.into_iter().unzip()
}

/// A pair, and what is needed to judge it.
struct Compared {
    pair: PairResult,
    costs: Vec<f64>,
    judged: Option<Judged>,
}

/// All pairs: those with the baseline first, and judged; of the others the
/// figures only, for they were not asked about.
fn timed_pairs(question: &Question<'_>, arms: &[&ArmResult]) -> Vec<PairResult> {
    let Some((baseline, others)) = arms.split_first() else { return Vec::new() };
    let mut judged: Vec<Compared> =
        others.iter().map(|other| timed_pair(question, baseline, other)).collect();
    let p: Vec<f64> = judged.iter().map(|pair| pair.pair.p.unwrap_or(1.0)).collect();
    for (compared, corrected) in judged.iter_mut().zip(holm(&p)) {
        let verdict = match &compared.judged {
            Some(judged) => {
                judge(judged, corrected, &compared.costs, question.margin, question.level)
            }
            None => Verdict::Undecided { more: None },
        };
        let pair = &mut compared.pair;
        pair.p_corrected = pair.p.map(|_| corrected);
        pair.phrase = Some(verdict.phrase(question.margin));
        if let Verdict::Undecided { more } = verdict {
            pair.blocks_more = more;
        }
        pair.verdict = Some(verdict);
        pair.seed = seed(question, &pair.arm, pair.ratio);
    }
    let mut pairs: Vec<PairResult> = judged.into_iter().map(|compared| compared.pair).collect();
    let mut rest = others;
    while let Some((one, later)) = rest.split_first() {
        pairs.extend(later.iter().map(|other| timed_pair(question, one, other).pair));
        rest = later;
    }
    pairs
}

/// The logarithm of the cost in each block that two arms share.
fn costs(question: &Question<'_>, first: &[f64], second: &[f64]) -> Vec<f64> {
    let sign = if question.metric.better == Better::Higher { -1.0 } else { 1.0 };
    first.iter().zip(second).map(|(a, b)| sign * (b / a).ln()).collect()
}

fn timed_pair(question: &Question<'_>, one: &ArmResult, other: &ArmResult) -> Compared {
    let (first, second) = shared(one, other);
    let higher = question.metric.better == Better::Higher;
    let costs = costs(question, &first, &second);
    let judged = estimate(&costs, question.level);
    let cost = judged.map(|judged| Interval::exp(judged.estimate));
    let ratio = cost.map(|cost| if higher { cost.inverse() } else { cost });
    let unpaired = mann_whitney(&first, &second);
    let sd = robust_sd(&costs);
    let mut pair = PairResult {
        blocks: costs.len(),
        ratio,
        cost,
        cost_bound: judged.map(|judged| judged.inner.high.exp()),
        medians: ratio_of_medians(&first, &second, 1.0 - question.level.alpha).map(Interval::from),
        p: signed_rank(&costs).map(|test| test.p).or((!costs.is_empty()).then_some(1.0)),
        p_unpaired: unpaired.map(|test| test.p),
        larger: unpaired.map(|test| test.larger),
        pairing: spearman(&first, &second).map(|association| association.rho),
        // Of figures that are mostly the same, that way shows nothing.
        visible: sd
            .filter(|_| !mostly_tied(&costs))
            .and_then(|sd| visible_effect(sd, costs.len(), question.level.alpha))
            .map(f64::exp_m1),
        ..blank(one, other)
    };
    name_ratios(question.metric, &mut pair);
    Compared { pair, costs, judged }
}

/// Time and throughput are each other's inverse; people mean either by
/// "5 percent more", so both are named.
fn name_ratios(metric: &MetricRecord, pair: &mut PairResult) {
    let per_second = metric.unit.starts_with("1/") || metric.unit.ends_with("/s");
    let seconds = matches!(metric.unit.as_str(), "" | "s" | "ms" | "us" | "ns" | "min");
    match metric.better {
        Better::Lower if seconds => {
            pair.time_ratio = pair.ratio;
            pair.throughput_ratio = pair.ratio.map(Interval::inverse);
        }
        Better::Higher if per_second || metric.unit.is_empty() => {
            pair.throughput_ratio = pair.ratio;
            pair.time_ratio = pair.ratio.map(Interval::inverse);
        }
        _ => {}
    }
}

/// Figures that are the same every time: a ratio, and no interval but itself.
fn exact_pair(question: &Question<'_>, one: &ArmResult, other: &ArmResult) -> PairResult {
    let value = other.median / one.median;
    let ratio = value.is_finite().then_some(Interval { value, low: value, high: value });
    let higher = question.metric.better == Better::Higher;
    PairResult {
        blocks: one.count.min(other.count),
        ratio,
        cost: ratio.map(|ratio| if higher { ratio.inverse() } else { ratio }),
        seed: seed(question, &other.arm, ratio),
        ..blank(one, other)
    }
}

fn blank(one: &ArmResult, other: &ArmResult) -> PairResult {
    PairResult {
        arm: other.arm.clone(),
        against: one.arm.clone(),
        blocks: 0,
        ratio: None,
        time_ratio: None,
        throughput_ratio: None,
        cost: None,
        cost_bound: None,
        medians: None,
        p: None,
        p_corrected: None,
        p_unpaired: None,
        larger: None,
        pairing: None,
        visible: None,
        verdict: None,
        phrase: None,
        blocks_more: None,
        seed: None,
    }
}

fn inexact(arm: &ArmResult) -> Option<String> {
    let spread = (arm.max - arm.min) / arm.median.abs();
    (spread > EXACT_SPREAD).then(|| {
        format!(
            "{} is meant to be the same every time and differs by {:.1} % between blocks",
            arm.arm,
            spread * 100.0
        )
    })
}

fn seed(question: &Question<'_>, arm: &str, ours: Option<Interval>) -> Option<SeedBeside> {
    let figure = question.record.seed_figures.iter().find(|figure| {
        figure.arm == arm
            && figure.metric == question.metric.name
            && figure.condition == question.condition
    })?;
    let sign = match ours {
        Some(ours) if ours.low > 1.0 => sign(figure.ratio > 1.0),
        Some(ours) if ours.high < 1.0 => sign(figure.ratio < 1.0),
        _ => Sign::Open,
    };
    Some(SeedBeside { ratio: figure.ratio, said: figure.said.clone(), sign })
}

fn sign(same: bool) -> Sign {
    if same { Sign::Same } else { Sign::Other }
}

fn several(arms: &[&ArmResult]) -> Option<SeveralResult> {
    if arms.len() < 3 {
        return None;
    }
    let (first, others) = arms.split_first()?;
    let blocks: Vec<Vec<f64>> = first
        .values
        .iter()
        .filter_map(|(block, value)| {
            let of = |arm: &&ArmResult| {
                let at = arm.values.binary_search_by_key(block, |(number, _)| *number).ok()?;
                arm.values.get(at).map(|(_, value)| *value)
            };
            let others: Option<Vec<f64>> = others.iter().map(of).collect();
            Some([vec![*value], others?].concat())
        })
        .collect();
    let test = friedman(&blocks)?;
    let figures: Vec<Vec<f64>> =
        arms.iter().map(|arm| arm.values.iter().map(|(_, value)| *value).collect()).collect();
    Some(SeveralResult {
        friedman: test.chi_square,
        p: test.p,
        kendall_w: test.kendall_w,
        mean_ranks: test.mean_ranks,
        p_unpaired: kruskal_wallis(&figures),
    })
}

/// The baseline against itself. `no worse` is no answer here: noise has two
/// sides.
fn control_result(
    question: &Question<'_>,
    one: &ArmResult,
    other: &ArmResult,
) -> Option<ControlResult> {
    let (first, second) = shared(one, other);
    let costs = costs(question, &first, &second);
    let judged = estimate(&costs, question.level)?;
    // That noise depends on the place of a run is a grave thing to say: it takes
    // more than one chance in a hundred.
    let grave = Level { alpha: WARNING_ALPHA.min(question.level.alpha) };
    let different = matches!(
        judge(&estimate(&costs, grave)?, judged.p, &costs, question.margin, grave),
        Verdict::Worse | Verdict::Better
    );
    let verdict = judge(&judged, judged.p, &costs, question.margin, question.level);
    let bound = question.margin.ln_1p();
    Some(ControlResult {
        blocks: costs.len(),
        ratio: Interval::exp(judged.estimate),
        verdict: match verdict {
            _ if different => "different",
            Verdict::Equivalent => "equivalent",
            _ => "undecided",
        },
        wider_than_margin: judged.estimate.high > bound || judged.estimate.low < -bound,
    })
}

fn warnings(
    question: &Question<'_>,
    arms: &[&ArmResult],
    control: Option<&ControlResult>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(control) = control {
        if control.verdict == "different" {
            warnings.push(format!(
                "two identical arms differ ({}): something disturbs the runs by their place, and \
                 no verdict here can be believed",
                ratio_text(&control.ratio)
            ));
        } else if control.wider_than_margin {
            warnings.push(format!(
                "two identical arms differ by {} here, so {} % cannot be resolved with {} blocks",
                ratio_text(&control.ratio),
                percent(question.margin),
                control.blocks
            ));
        }
    }
    let (mut drifting, mut remembering) = (Vec::new(), Vec::new());
    for arm in arms {
        let figures: Vec<f64> = arm.values.iter().map(|(_, value)| *value).collect();
        if figures.len() < BLOCKS_FOR_WARNINGS {
            continue;
        }
        let real = |p: f64| p < WARNING_ALPHA;
        if let Some(found) = drift(&figures).filter(|found| real(found.p)) {
            drifting.push(format!("{} {:.2}", arm.arm, found.rho));
        }
        if let Some(found) = memory(&figures).filter(|found| real(found.p) && found.rho > 0.0) {
            remembering.push(format!("{} {:.2}", arm.arm, found.rho));
        }
    }
    if !drifting.is_empty() {
        warnings.push(format!(
            "figures drift with the run number (rank correlation: {}); blocks are still compared \
             within themselves",
            drifting.join(", ")
        ));
    }
    if !remembering.is_empty() {
        warnings.push(format!(
            "runs resemble the one before (lag-1 rank correlation: {}): something outside came and \
             went; blocks are still compared within themselves",
            remembering.join(", ")
        ));
    }
    if let Some((baseline, others)) = arms.split_first() {
        for other in others {
            let (first, second) = shared(baseline, other);
            let costs = costs(question, &first, &second);
            let found = memory(&costs).filter(|found| {
                costs.len() >= BLOCKS_FOR_WARNINGS && found.p < WARNING_ALPHA && found.rho > 0.0
            });
            if let Some(found) = found {
                warnings.push(format!(
                    "the ratios of {} to {} themselves hang together (lag-1 rank correlation \
                     {:.2}): the interval may be too narrow",
                    other.arm, baseline.arm, found.rho
                ));
            }
        }
    }
    warnings
}

/// `1.012 [0.998, 1.027]`.
#[must_use]
pub fn ratio_text(ratio: &Interval) -> String {
    let bound = |value: f64| {
        if value.is_finite() && value > 0.0 { format!("{value:.3}") } else { "?".to_owned() }
    };
    format!("{:.3} [{}, {}]", ratio.value, bound(ratio.low), bound(ratio.high))
}

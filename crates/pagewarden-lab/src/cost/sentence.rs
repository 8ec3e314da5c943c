//! The first thing that a report says: what was found, and what to do.

use std::fmt::Write as _;

use crate::cost::decision::{Asks, DecisionResult};
use crate::cost::experiment::{Better, Kind};
use crate::cost::result::{ExperimentResult, Interval, MetricResult, PairResult, on_trial};
use crate::stats::verdict::{Verdict, percent};

/// Names of baselines that protect nothing.
const UNPROTECTED: &[&str] = &["off", "none", "plain", "no-hints"];
/// More than this is said in numbers, not as advice.
const CHEAP: f64 = 0.05;
/// This number of prices is named; the rest is below.
const NAMED_MAX: usize = 2;
/// More blocks than this are no plan for a person.
const BLOCKS_SAID_MAX: u64 = 1000;

/// A judged pair of a main metric, with where it comes from.
#[derive(Clone, Copy)]
struct Told<'a> {
    experiment: &'a ExperimentResult,
    result: &'a MetricResult,
    pair: &'a PairResult,
    verdict: Verdict,
}

/// Says it: of several experiments the answers to what a reader has to decide, where they answer any.
#[must_use]
pub fn sentence(
    experiments: &[ExperimentResult],
    decisions: &[DecisionResult],
    margin: f64,
    incomplete: bool,
) -> String {
    let told: Vec<Told<'_>> = on_trial(experiments)
        .into_iter()
        .flat_map(|(experiment, result)| {
            result.judged().map(move |(pair, verdict)| Told { experiment, result, pair, verdict })
        })
        .collect();
    let answers = answers(decisions);
    let mut text = if experiments.len() > 1 && !answers.is_empty() {
        answers
    } else if told.is_empty() {
        counters(experiments)
    } else {
        verdicts(&told, margin, experiments.len() == 1)
    };
    let main = experiments.iter().flat_map(|one| &one.results).filter(|result| result.main);
    if main.filter_map(|result| result.control.as_ref()).any(|one| one.verdict == "different") {
        text.insert_str(0, "Two identical arms differ, so believe no verdict yet. ");
    }
    if incomplete {
        text.push_str(" Not all that was asked for has been measured.");
    }
    text
}

/// `Checksums in PostgreSQL: yes, at a price. Cold data in packs: cheaper.`
fn answers(decisions: &[DecisionResult]) -> String {
    let decided = decisions.iter().filter(|decision| decision.asks != Asks::Effort);
    let answers: Vec<String> =
        decided.map(|decision| format!("{}: {}.", decision.title, decision.answer)).collect();
    answers.join(" ")
}

fn verdicts(told: &[Told<'_>], margin: f64, single: bool) -> String {
    let of = |wanted: &dyn Fn(Verdict) -> bool| -> Vec<Told<'_>> {
        told.iter().copied().filter(|one| wanted(one.verdict)).collect()
    };
    let mut worse = of(&|verdict| verdict == Verdict::Worse);
    let better = of(&|verdict| verdict == Verdict::Better);
    let undecided = of(&|verdict| matches!(verdict, Verdict::Undecided { .. }));
    let fine = told.len() - worse.len() - better.len() - undecided.len();
    worse.sort_by(|one, other| typical(other.pair).total_cmp(&typical(one.pair)));
    let mut text = String::new();
    let margin = percent(margin);
    for one in worse.iter().take(NAMED_MAX) {
        let _ = write!(text, "{} ", price(one, single));
    }
    if worse.len() > NAMED_MAX {
        let _ = match worse.len() - NAMED_MAX {
            1 => write!(text, "1 smaller price is below. "),
            more => write!(text, "{more} smaller prices are below. "),
        };
    }
    // Beside prices, that one kernel beats another is no news to act on.
    let unprotected =
        |one: &Told<'_>| UNPROTECTED.contains(&one.result.baseline().to_lowercase().as_str());
    for one in better.iter().filter(|one| single || unprotected(one)).take(NAMED_MAX) {
        let Told { pair: PairResult { arm, against, .. }, .. } = one;
        let saved = part(one.pair.cost.map(less));
        let place = place(one, single);
        let _ = write!(text, "The saving of {arm} against {against} is {saved}{place}. ");
    }
    if fine > 0 {
        let _ = match (told.len() - fine, fine) {
            (0, 1) => {
                let arms = told.first().map(|one| (&one.pair.arm, &one.pair.against));
                let (arm, against) = arms.map_or(("", ""), |(arm, against)| (arm, against));
                write!(text, "The price of {arm} against {against} is no more than {margin} %. ")
            }
            (0, _) => write!(text, "Nothing here costs measurably more than {margin} %. "),
            _ => write!(text, "{} no more than {margin} % dearer. ", questions(fine, "is", "are")),
        };
    }
    if !undecided.is_empty() {
        let _ = write!(text, "{}", open(&undecided, &margin, told.len()));
    }
    if undecided.is_empty() && told.iter().any(unprotected) {
        let dearest = worse.iter().filter(|one| unprotected(one)).map(|one| typical(one.pair));
        match dearest.reduce(f64::max) {
            None => text.push_str("Turn protection on."),
            Some(cost) if cost < CHEAP => text.push_str("Turn protection on all the same."),
            Some(_) => text.push_str("Weigh that price against what protection finds."),
        }
    }
    text.trim_end().to_owned()
}

/// `1 question is`, `3 questions are`.
fn questions(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 question {one}") } else { format!("{count} questions {many}") }
}

/// What is still open, and what would close it.
fn open(undecided: &[Told<'_>], margin: &str, all: usize) -> String {
    let more = undecided.iter().filter_map(|one| one.pair.blocks_more).max();
    let mut text = if undecided.len() == all {
        let mut arms: Vec<&str> = undecided.iter().map(|one| one.pair.arm.as_str()).collect();
        arms.dedup();
        let against = undecided.first().map_or("", |one| one.pair.against.as_str());
        if arms.len() <= 3 {
            format!(
                "The price of {} against {against} is undecided at a margin of {margin} %",
                arms.join(" and of ")
            )
        } else {
            format!("Nothing is decided yet at a margin of {margin} %")
        }
    } else {
        format!("{} undecided", questions(undecided.len(), "is", "are"))
    };
    match more {
        Some(more) if more <= BLOCKS_SAID_MAX => {
            let _ = write!(text, ": about {more} more blocks would tell. ");
        }
        Some(_) => text.push_str(": it takes many more blocks, or a quieter machine. "),
        None => text.push_str(": it takes more blocks. "),
    }
    text
}

fn typical(pair: &PairResult) -> f64 {
    pair.cost.map_or(0.0, |cost| cost.value - 1.0)
}

/// `The price of checksums against none is 1.8 % [0.9, 2.7] of throughput in
/// select-only with tiny buffers (8 clients).`
fn price(one: &Told<'_>, single: bool) -> String {
    let Told { pair, result, .. } = one;
    let lost = pair.throughput_ratio.filter(|_| result.metric.better == Better::Higher).map(less);
    let (part, what) = match (lost, pair.time_ratio) {
        (Some(lost), _) => (part(Some(lost)), "of throughput".to_owned()),
        (None, Some(ratio)) => (part(Some(ratio)), "more time".to_owned()),
        (None, None) => (part(pair.cost), format!("more {}", result.metric.name)),
    };
    let place = place(one, single);
    format!("The price of {} against {} is {part} {what}{place}.", pair.arm, pair.against)
}

/// The part that is lost, on the same scale: one less a ratio, so that its ends
/// change places.
fn less(ratio: Interval) -> Interval {
    Interval { value: 2.0 - ratio.value, low: 2.0 - ratio.high, high: 2.0 - ratio.low }
}

fn place(one: &Told<'_>, single: bool) -> String {
    let condition = &one.result.condition;
    match (single, condition.is_empty()) {
        (true, true) => String::new(),
        (true, false) => format!(" ({condition})"),
        (false, true) => format!(" in {}", one.experiment.record.title),
        (false, false) => format!(" in {} ({condition})", one.experiment.record.title),
    }
}

/// A ratio above one as a percentage: `1.8 % [0.9, 2.7]`.
fn part(ratio: Option<Interval>) -> String {
    let Some(ratio) = ratio else { return "an unknown part".to_owned() };
    let percent = |value: f64| format!("{:.1}", (value - 1.0) * 100.0);
    if ratio.is_bounded() {
        format!("{} % [{}, {}]", percent(ratio.value), percent(ratio.low), percent(ratio.high))
    } else {
        format!("{} %", percent(ratio.value))
    }
}

/// Where nothing has a verdict: the largest of the exact differences.
fn counters(experiments: &[ExperimentResult]) -> String {
    let results = experiments
        .iter()
        .flat_map(|experiment| experiment.results.iter().map(move |result| (experiment, result)));
    let dearest = results
        .flat_map(|(experiment, result)| {
            result.pairs.iter().map(move |pair| (experiment, result, pair))
        })
        .max_by(|(_, _, one), (_, _, other)| typical(one).total_cmp(&typical(other)));
    match dearest.filter(|(_, _, pair)| typical(pair) > 0.005) {
        Some((experiment, result, pair)) => {
            let told = Told { experiment, result, pair, verdict: Verdict::Worse };
            let ratio = pair.ratio.map_or(1.0, |ratio| ratio.value);
            format!(
                "{} has {ratio:.2} times the {} of {}{}.",
                pair.arm,
                result.metric.name,
                pair.against,
                place(&told, experiments.len() == 1)
            )
        }
        None => noticed(experiments),
    }
}

/// A kind of fault counts as noticed from this share on.
const NOTICED: f64 = 0.99;

/// Where nothing has a price either: which arm notices how many kinds of fault.
fn noticed(experiments: &[ExperimentResult]) -> String {
    let mains: Vec<&MetricResult> =
        experiments.iter().flat_map(|one| &one.results).filter(|result| result.main).collect();
    let Some(widest) = mains.iter().max_by_key(|result| result.arms.len()) else {
        return "Nothing was measured.".to_owned();
    };
    let what = match widest.metric.kind {
        Kind::Found if widest.metric.name == "found" => "Kinds of fault noticed",
        // Anything else that is so or not, condition by condition.
        Kind::Found => widest.metric.name.as_str(),
        Kind::Share => "Kinds of fault noticed in 99 % of all cases",
        Kind::Exact | Kind::Timed => return "Measured; the figures are below.".to_owned(),
    };
    let counts: Vec<String> = widest
        .arms
        .iter()
        .map(|arm| {
            let same = mains.iter().flat_map(|result| &result.arms);
            let same = same.filter(|other| other.arm == arm.arm);
            let count = same
                .filter(|other| {
                    other.share.map_or(other.median >= 0.5, |share| share.value >= NOTICED)
                })
                .count();
            format!("{} {count}", arm.arm)
        })
        .collect();
    format!("{what}, of {}: {}.", mains.len(), counts.join(", "))
}

//! The questions that an administrator has to decide, and what a run answers.
//!
//! Experiments measure; people decide. A decision gathers what the experiments of a run say of one
//! question, and answers it in units that people pay in: transactions a second, minutes, GB. To add
//! one: a line in [`DECISIONS`], and `decides` in the descriptions of its experiments.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::cost::decision::paid::paid;
use crate::cost::result::{ExperimentResult, Interval, MetricResult, PairResult};
use crate::stats::verdict::{Verdict, percent};

mod paid;

/// What kind of answer a question takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Shall this protection be on? A price decides.
    Protection,
    /// Which of these ways? The baseline is the way that is usual.
    Way,
    /// What does it take? Figures answer, and no yes or no.
    Effort,
}

/// A question.
#[derive(Debug)]
pub struct Decision {
    /// As in the samples and in JSON: `postgres-checksums`.
    pub name: &'static str,
    /// What it is about, in a few words: `Checksums in PostgreSQL`.
    pub title: &'static str,
    /// The question: `Shall I turn checksums on in PostgreSQL?`
    pub question: &'static str,
    /// The kind of answer.
    pub asks: Asks,
}

/// An experiment's part in a decision.
#[derive(Debug, Clone, Copy)]
pub struct Decides {
    /// The decision.
    pub decision: &'static Decision,
    /// The arms that it is about; each is compared with the baseline.
    pub arms: &'static [&'static str],
    /// The metrics that are prices; the main one if there are none.
    pub metrics: &'static [&'static str],
}

impl Decides {
    /// An experiment whose main metric is the price of these arms.
    #[must_use]
    pub const fn by_main_metric(
        decision: &'static Decision,
        arms: &'static [&'static str],
    ) -> Self {
        Self { decision, arms, metrics: &[] }
    }
}

/// A part in a decision, as it stands in the samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidesRecord {
    /// The decision's name. One that this version does not know is not answered.
    pub decision: String,
    /// The arms that it is about.
    pub arms: Vec<String>,
    /// The metrics that are prices; the main one if there are none.
    pub metrics: Vec<String>,
}

impl From<&Decides> for DecidesRecord {
    fn from(part: &Decides) -> Self {
        let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            decision: part.decision.name.to_owned(),
            arms: text(part.arms),
            metrics: text(part.metrics),
        }
    }
}

/// Whether to turn checksums on in PostgreSQL.
pub static POSTGRES_CHECKSUMS: Decision = Decision {
    name: "postgres-checksums",
    title: "Checksums in PostgreSQL",
    question: "Shall I turn checksums on in PostgreSQL?",
    asks: Asks::Protection,
};

/// Whether to protect SQLite databases.
pub static SQLITE_PAGE_VERIFY: Decision = Decision {
    name: "sqlite-page-verify",
    title: "PAGE_VERIFY = CHECKSUM in SQLite",
    question: "Shall I turn PAGE_VERIFY = CHECKSUM on in SQLite?",
    asks: Asks::Protection,
};

/// Which of InnoDB's sums.
pub static INNODB_ALGORITHM: Decision = Decision {
    name: "innodb-algorithm",
    title: "full_crc32 instead of crc32 in InnoDB",
    question: "Which checksum algorithm shall InnoDB use?",
    asks: Asks::Way,
};

/// How long it takes to switch.
pub static POSTGRES_SWITCHING: Decision = Decision {
    name: "postgres-switching",
    title: "Turning checksums on at rest",
    question: "How long is PostgreSQL down while checksums are turned on?",
    asks: Asks::Effort,
};

/// Whether to compress data that is only read.
pub static COLD_DATA: Decision = Decision {
    name: "cold-data",
    title: "Cold data in packs",
    question: "Shall I compress cold data?",
    asks: Asks::Way,
};

/// What it takes to read and verify all of a database.
pub static BACKUP_PASS: Decision = Decision {
    name: "backup-pass",
    title: "A pass that reads and verifies everything",
    question: "What does a backup pass cost that verifies every page?",
    asks: Asks::Effort,
};

/// What it takes to make a checksum of a table.
pub static TABLE_CHECKSUMS: Decision = Decision {
    name: "table-checksums",
    title: "Checksums of tables",
    question: "What does it cost to prove that a table is the same on two servers?",
    asks: Asks::Effort,
};

/// Every question, in the order in which reports answer them.
pub static DECISIONS: &[&Decision] = &[
    &POSTGRES_CHECKSUMS,
    &INNODB_ALGORITHM,
    &SQLITE_PAGE_VERIFY,
    &POSTGRES_SWITCHING,
    &COLD_DATA,
    &BACKUP_PASS,
    &TABLE_CHECKSUMS,
];

/// A higher price than this is for the reader to weigh.
const CHEAP: f64 = 0.05;
/// More blocks than this are no plan for a person.
const BLOCKS_SAID_MAX: u64 = 1000;

/// What a run says to one question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecisionResult {
    /// The decision's name.
    pub decision: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The question.
    pub question: &'static str,
    /// The kind of answer.
    #[serde(skip)]
    pub asks: Asks,
    /// One to four words: `yes`, `yes, at a price`, `weigh the price`, `cheaper`, `dearer`, `it depends`,
    /// `no difference`, `measured`, `undecided`, `counted, not timed`.
    pub answer: &'static str,
    /// The answer with the figures that it rests on.
    pub sentence: String,
    /// Every measurement that it rests on.
    pub prices: Vec<Price>,
    /// What would decide it, if it is undecided.
    pub needs: Option<String>,
}

/// One measurement of a decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Price {
    /// The experiment.
    pub experiment: String,
    /// Its title and condition, for people.
    pub place: String,
    /// The arm.
    pub arm: String,
    /// What it is compared with.
    pub against: String,
    /// The price in the units that people pay in: `2263 [1900, 2700] of 97363 transactions a second`.
    pub paid: String,
    /// How much dearer the arm is: above 1 is worse. Without bounds where it was counted, not timed.
    pub cost: Option<Interval>,
    /// The verdict's name; absent of what was counted.
    pub verdict: Option<&'static str>,
}

impl Price {
    fn typical(&self) -> f64 {
        self.cost.map_or(0.0, |cost| cost.value - 1.0)
    }

    fn is(&self, verdict: Verdict) -> bool {
        self.verdict == Some(verdict.name())
    }
}

/// What a run says to each question that it has measured something for.
#[must_use]
pub fn decisions(experiments: &[ExperimentResult], margin: f64) -> Vec<DecisionResult> {
    DECISIONS.iter().filter_map(|decision| decide(decision, experiments, margin)).collect()
}

fn decide(
    decision: &'static Decision,
    experiments: &[ExperimentResult],
    margin: f64,
) -> Option<DecisionResult> {
    let mut prices = Vec::new();
    let mut undecided: Vec<&PairResult> = Vec::new();
    for experiment in experiments {
        for (result, pair) in pairs(decision, experiment) {
            prices.push(price(experiment, result, pair));
            if matches!(pair.verdict, Some(Verdict::Undecided { .. })) {
                undecided.push(pair);
            }
        }
    }
    if prices.is_empty() {
        return None;
    }
    let answer = answer(decision.asks, &prices);
    let needs = needs(&undecided, margin);
    Some(DecisionResult {
        decision: decision.name,
        title: decision.title,
        question: decision.question,
        asks: decision.asks,
        answer,
        sentence: sentence(answer, &prices, margin),
        prices,
        needs,
    })
}

/// The pairs of an experiment that a decision rests on: by the metrics that are prices, its arms
/// against the baseline.
fn pairs<'a>(
    decision: &Decision,
    experiment: &'a ExperimentResult,
) -> Vec<(&'a MetricResult, &'a PairResult)> {
    let Some(part) = experiment.record.decides.as_ref() else { return Vec::new() };
    if part.decision != decision.name {
        return Vec::new();
    }
    let is_price = |result: &&MetricResult| match part.metrics.as_slice() {
        [] => result.main,
        names => names.contains(&result.metric.name),
    };
    let mut pairs = Vec::new();
    for result in experiment.results.iter().filter(is_price) {
        let of_part =
            |pair: &&PairResult| pair.against == result.baseline() && part.arms.contains(&pair.arm);
        pairs.extend(result.pairs.iter().filter(of_part).map(|pair| (result, pair)));
    }
    pairs
}

fn price(experiment: &ExperimentResult, result: &MetricResult, pair: &PairResult) -> Price {
    let record = &experiment.record;
    let mut place = record.title.clone();
    if !result.condition.is_empty() {
        let _ = write!(place, " ({})", result.condition);
    }
    Price {
        experiment: record.name.clone(),
        place,
        arm: pair.arm.clone(),
        against: pair.against.clone(),
        paid: paid(result, pair),
        cost: pair.cost,
        verdict: pair.verdict.map(Verdict::name),
    }
}

/// The answer by the gravest of the judged prices. What was counted has no verdict and decides nothing.
fn answer(asks: Asks, prices: &[Price]) -> &'static str {
    let any = |verdict: Verdict| prices.iter().any(|price| price.is(verdict));
    let is_judged = prices.iter().any(|price| price.verdict.is_some());
    let worse = prices.iter().filter(|price| price.is(Verdict::Worse)).map(Price::typical);
    let dearest = worse.fold(0.0, f64::max);
    match asks {
        Asks::Effort => "measured",
        _ if !is_judged => "counted, not timed",
        Asks::Protection if any(Verdict::Worse) && dearest >= CHEAP => "weigh the price",
        Asks::Way if any(Verdict::Worse) && any(Verdict::Better) => "it depends",
        Asks::Way if any(Verdict::Worse) => "dearer",
        _ if any(Verdict::Undecided { more: None }) => "undecided",
        Asks::Protection if any(Verdict::Worse) => "yes, at a price",
        Asks::Protection => "yes",
        Asks::Way if any(Verdict::Better) => "cheaper",
        Asks::Way => "no difference",
    }
}

/// The dearest price, the largest saving where there is one, and how the others stand to the margin.
fn sentence(answer: &str, prices: &[Price], margin: f64) -> String {
    let mut text = answer.to_owned();
    let by_cost = |one: &&Price, other: &&Price| one.typical().total_cmp(&other.typical());
    let dearest =
        prices.iter().max_by(by_cost).filter(|it| prices.len() == 1 || it.typical() > 0.0);
    let cheapest =
        prices.iter().min_by(by_cost).filter(|it| prices.len() > 1 && it.typical() < 0.0);
    let said = [("at best ", cheapest), ("at worst ", dearest)];
    let said = said.into_iter().filter_map(|(word, price)| Some((word, price?)));
    for (index, (word, price)) in said.enumerate() {
        let word = if prices.len() == 1 { "" } else { word };
        let mark = if index == 0 { ':' } else { ';' };
        let Price { arm, paid, place, .. } = price;
        let _ = write!(text, "{mark} {word}{paid} with {arm} in {place}");
    }
    let judged: Vec<&Price> = prices.iter().filter(|price| price.verdict.is_some()).collect();
    let undecided = judged.iter().filter(|price| price.verdict == Some("undecided")).count();
    let fine = judged.iter().filter(|price| !price.is(Verdict::Worse)).count() - undecided;
    if judged.len() > 1 {
        let margin = percent(margin);
        let _ = write!(
            text,
            "; {fine} of {} measurements are no more than {margin} % dearer",
            judged.len()
        );
        if undecided > 0 {
            let _ = write!(text, ", {undecided} undecided");
        }
    }
    text.push('.');
    text
}

/// What would decide what is undecided: more blocks, or a quieter machine.
fn needs(undecided: &[&PairResult], margin: f64) -> Option<String> {
    if undecided.is_empty() {
        return None;
    }
    let more: Option<u64> = undecided.iter().filter_map(|pair| pair.blocks_more).max();
    if let Some(more) = more.filter(|more| *more <= BLOCKS_SAID_MAX) {
        return Some(format!("about {more} more blocks (--blocks) would decide it"));
    }
    let visible = undecided.iter().filter_map(|pair| pair.visible).reduce(f64::max);
    Some(match visible.filter(|visible| *visible > margin) {
        Some(visible) => format!(
            "it takes a quieter machine: these blocks show {:.1} %, so at {} % the noise must be {:.1} \
             times less",
            visible * 100.0,
            percent(margin),
            visible / margin
        ),
        None => "it takes more blocks (--blocks)".to_owned(),
    })
}

#[cfg(test)]
mod tests;

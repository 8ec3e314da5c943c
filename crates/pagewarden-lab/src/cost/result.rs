//! What comes out of samples. Every report is written from these, and from
//! nothing else; the JSON report is these, field by field.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cost::decision::DecisionResult;
use crate::cost::record::{ExperimentRecord, MetricRecord, Note, RunRecord};
use crate::stats::signed_rank::Estimate;
use crate::stats::verdict::Verdict;

/// A value with the interval around it. JSON has `null` for a bound that so few
/// figures do not give.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl From<Estimate> for Interval {
    fn from(estimate: Estimate) -> Self {
        Self { value: estimate.value, low: estimate.low, high: estimate.high }
    }
}

/// A ratio that goes on to nothing or without end is no bound at all, and 0
/// must not stand for one.
fn known(bound: f64) -> f64 {
    if bound > 0.0 && bound.is_finite() { bound } else { f64::NAN }
}

impl Interval {
    /// From logarithms to ratios.
    #[must_use]
    pub fn exp(estimate: Estimate) -> Self {
        Self {
            value: estimate.value.exp(),
            low: known(estimate.low.exp()),
            high: known(estimate.high.exp()),
        }
    }

    /// Of the inverse ratio.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { value: 1.0 / self.value, low: known(1.0 / self.high), high: known(1.0 / self.low) }
    }

    /// True if both ends are known and above nothing.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.low.is_finite() && self.high.is_finite() && self.low > 0.0
    }
}

/// A figure far from the others of its arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlier {
    /// Its block, from 0.
    pub block: u32,
    /// The figure.
    pub value: f64,
}

/// One arm by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmResult {
    /// Its name; the control's ends in `(again)`.
    pub arm: String,
    /// How many figures.
    pub count: usize,
    /// The figure in the middle.
    pub median: f64,
    /// The standard deviation by the median absolute deviation.
    pub robust_sd: Option<f64>,
    /// The standard deviation as a part of the mean.
    pub cv: Option<f64>,
    /// The smallest figure.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean without a fifth at either end.
    pub trimmed_mean: Option<f64>,
    /// The geometric mean.
    pub geometric_mean: Option<f64>,
    /// Figures more than three interquartile ranges beyond the quartiles.
    pub outliers: Vec<Outlier>,
    /// Of a share: the share, with its interval.
    pub share: Option<Interval>,
    /// Of what is found or not: the word for it.
    pub word: Option<String>,
    /// Block and figure, in order, for pictures.
    pub values: Vec<(u32, f64)>,
}

/// Whether our figure points the same way as the document's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// It does.
    Same,
    /// It points the other way.
    Other,
    /// Our interval holds both ways.
    Open,
}

/// The document's figure beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedBeside {
    /// Its ratio to the baseline.
    pub ratio: f64,
    /// Its own words.
    pub said: String,
    /// Whether both point the same way.
    pub sign: Sign,
}

/// Two arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairResult {
    /// The arm in question.
    pub arm: String,
    /// What it is compared with.
    pub against: String,
    /// How many blocks have both.
    pub blocks: usize,
    /// The typical ratio within a block (Hodges-Lehmann), with its interval.
    pub ratio: Option<Interval>,
    /// The same as a ratio of time, where that is what it is.
    pub time_ratio: Option<Interval>,
    /// The same as a ratio of throughput.
    pub throughput_ratio: Option<Interval>,
    /// How much dearer the arm is: above 1 is worse, whichever way is good.
    pub cost: Option<Interval>,
    /// Up to here the cost may go: one-sided.
    pub cost_bound: Option<f64>,
    /// The ratio of the medians, with the interval of resampled blocks.
    pub medians: Option<Interval>,
    /// Wilcoxon's signed rank test.
    pub p: Option<f64>,
    /// The same after Holm, for the pairs against the baseline.
    pub p_corrected: Option<f64>,
    /// The Mann-Whitney test, which ignores blocks.
    pub p_unpaired: Option<f64>,
    /// The chance that a figure of the arm is the larger one.
    pub larger: Option<f64>,
    /// Spearman's correlation of the two arms over the blocks: what pairing is
    /// worth.
    pub pairing: Option<f64>,
    /// The smallest cost that this number of blocks would show, as a part of one.
    pub visible: Option<f64>,
    /// The verdict; of pairs with the baseline only.
    #[serde(serialize_with = "verdict_name")]
    pub verdict: Option<Verdict>,
    /// The verdict for people.
    pub phrase: Option<String>,
    /// How many blocks more would probably decide.
    pub blocks_more: Option<u64>,
    /// What the document measured.
    pub seed: Option<SeedBeside>,
}

fn verdict_name<S: serde::Serializer>(
    verdict: &Option<Verdict>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    verdict.map(Verdict::name).serialize(serializer)
}

/// All arms together, where there are more than two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeveralResult {
    /// Friedman's statistic.
    pub friedman: f64,
    /// Its p-value.
    pub p: f64,
    /// Kendall's W.
    pub kendall_w: f64,
    /// The mean rank of each arm.
    pub mean_ranks: Vec<f64>,
    /// The p-value of Kruskal and Wallis, which ignores blocks.
    pub p_unpaired: Option<f64>,
}

/// Two identical arms: what noise alone does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlResult {
    /// How many blocks.
    pub blocks: usize,
    /// The ratio between them, which should hold 1.
    pub ratio: Interval,
    /// `equivalent`, `undecided` or `different`.
    pub verdict: &'static str,
    /// Whether noise alone reaches beyond the margin.
    pub wider_than_margin: bool,
}

/// One metric under one condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricResult {
    /// The condition; empty where there is only one.
    pub condition: String,
    /// The metric.
    pub metric: MetricRecord,
    /// True for the one that the verdict is about.
    pub main: bool,
    /// The chance of a wrong verdict; smaller where a sequential run ended early.
    pub alpha: f64,
    /// Each arm, the control too.
    pub arms: Vec<ArmResult>,
    /// Pairs of them: with the baseline first.
    pub pairs: Vec<PairResult>,
    /// All together.
    pub several: Option<SeveralResult>,
    /// The baseline against itself.
    pub control: Option<ControlResult>,
    /// What makes the figures less believable.
    pub warnings: Vec<String>,
}

/// With the control, this number of arms makes pairs that can all be printed.
const ARMS_FEW: usize = 6;

impl MetricResult {
    /// The baseline's name.
    #[must_use]
    pub fn baseline(&self) -> &str {
        self.arms.first().map_or("", |arm| &arm.arm)
    }

    /// The pairs that people are shown: of many arms those with the baseline, since the others
    /// would be more than anybody reads. JSON has all.
    pub fn told(&self) -> impl Iterator<Item = &PairResult> {
        let are_few = self.arms.len() <= ARMS_FEW;
        self.pairs.iter().filter(move |pair| are_few || pair.against == self.baseline())
    }

    /// The pairs that have a verdict.
    pub fn judged(&self) -> impl Iterator<Item = (&PairResult, Verdict)> {
        self.pairs.iter().filter_map(|pair| Some((pair, pair.verdict?)))
    }
}

/// The results that a run's verdict and first sentence are about, each with its experiment: main
/// metrics of experiments on prices, or of all where nothing was asked about a price.
#[must_use]
pub fn on_trial(experiments: &[ExperimentResult]) -> Vec<(&ExperimentResult, &MetricResult)> {
    let all = || {
        let each = experiments.iter();
        each.flat_map(|one| one.results.iter().map(move |result| (one, result)))
            .filter(|(_, result)| result.main)
    };
    let prices: Vec<_> = all().filter(|(one, _)| one.record.is_price).collect();
    let is_judged = prices.iter().any(|(_, result)| result.judged().next().is_some());
    if is_judged { prices } else { all().collect() }
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExperimentResult {
    /// What is known of it.
    #[serde(flatten)]
    pub record: ExperimentRecord,
    /// Each metric under each condition.
    pub results: Vec<MetricResult>,
}

/// What a noise sensor saw in one block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoiseResult {
    /// The sensor.
    pub sensor: String,
    /// The middle over all runs.
    pub median: f64,
    /// The largest.
    pub max: f64,
    /// In the order of the runs.
    #[serde(skip)]
    pub values: Vec<f64>,
}

/// All that comes out of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// The gravest verdict, or `incomplete`, or `measured` where nothing has a
    /// verdict.
    pub verdict: &'static str,
    /// What to make of it.
    pub sentence: String,
    /// The smallest difference that matters, as a part of one.
    pub margin: f64,
    /// How it was run; absent for a table from elsewhere.
    pub run: Option<RunRecord>,
    /// What it says to each question that users have to decide.
    pub decisions: Vec<DecisionResult>,
    /// Each experiment.
    pub experiments: Vec<ExperimentResult>,
    /// What the noise sensors saw.
    pub noise: Vec<NoiseResult>,
    /// What befell the run.
    pub notes: Vec<Note>,
    /// True if something that was asked for is missing.
    pub incomplete: bool,
    /// Settings that all experiments share.
    pub versions: BTreeMap<String, String>,
}

//! What an experiment is.
//!
//! An experiment compares arms (checksums off, on) under one or more conditions
//! (clients 1, 2, 4) by one or more metrics. It is one file in `experiments/`
//! and one line in its registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::cost::decision::Decides;
use crate::cost::own_program::OwnProgram;
use crate::cost::samples::Sample;

/// How a metric's figures are turned into a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A figure with noise: needs blocks, ratios, intervals and a verdict.
    Timed,
    /// The same every time: shown as it is, with its ratio to the baseline.
    Exact,
    /// Successes out of tries, in the metrics `NAME` and `NAME_of`: shown as a
    /// share with its interval.
    Share,
    /// 1 for yes and 0 for no, explained by a word in the sample.
    Found,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Seconds, bytes.
    Lower,
    /// Transactions a second, faults detected.
    Higher,
}

/// One thing that is measured in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// As in the samples: `tps`, `seconds`, `wal_bytes`.
    pub name: &'static str,
    /// What it is counted in: `s`, `1/s`, `bytes`, or empty.
    pub unit: &'static str,
    /// How it becomes a result.
    pub kind: Kind,
    /// Which way is good.
    pub better: Better,
}

/// One of the things that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// As in the samples: `off`, `on`, `crc32`.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
}

/// A figure from the document that the experiment repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeedFigure {
    /// The condition; empty where the experiment has only one.
    pub condition: &'static str,
    /// The arm; the figure is its ratio to the baseline.
    pub arm: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// That ratio, as the document's own figures give it.
    pub ratio: f64,
    /// The figures themselves, as the document has them.
    pub said: &'static str,
}

/// All that is known of an experiment before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// As on the command line: `e2a`.
    pub name: &'static str,
    /// In a few words: `select-only with tiny buffers`.
    pub title: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// The document and measurement that it repeats.
    pub seed: &'static str,
    /// The steps by which a database administrator repeats it by hand.
    pub by_hand: &'static str,
    /// What is compared; the first is the baseline.
    pub arms: &'static [Arm],
    /// What is measured; the first is the one that the verdict is about.
    pub metrics: &'static [Metric],
    /// True if arms differ from the baseline in protection, or whether it is on: their ratio is
    /// its price, and what a run's verdict and its first sentence are about. Else the arms are
    /// ways to do something, of which none is on trial.
    pub is_price: bool,
    /// The question that it helps to decide, if there is one that users have.
    pub decides: Option<Decides>,
    /// What the document measured.
    pub seed_figures: &'static [SeedFigure],
    /// Blocks of a short run and of a whole one. An experiment with exact
    /// metrics only needs one.
    pub blocks: (u32, u32),
}

/// How large a run is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Seconds to a few minutes: a first look.
    Short,
    /// As large as the question needs.
    Whole,
}

/// What an experiment may use.
#[derive(Debug, Clone)]
pub struct Lab {
    /// How large.
    pub form: Form,
    /// The seed of whatever is random.
    pub seed: u64,
    /// Set when the run is to end early.
    pub stop: Arc<AtomicBool>,
    /// For arms that are processes of their own.
    pub program: OwnProgram,
}

/// The word of a reading that has no values.
const UNAVAILABLE: &str = "unavailable";

/// What one run of one arm gave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Metrics and counters by name.
    pub values: BTreeMap<String, f64>,
    /// What is no number: the word that a tool used, a note.
    pub words: BTreeMap<String, String>,
}

impl Reading {
    /// A reading of these values, without words.
    #[must_use]
    pub fn of<const COUNT: usize>(values: [(&str, f64); COUNT]) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { values, words: BTreeMap::new() }
    }

    /// The arm cannot be measured here, and why. The run says so once.
    #[must_use]
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::default().with_word(UNAVAILABLE, why)
    }

    /// Why the arm could not be measured, if that is what this says.
    #[must_use]
    pub fn why_unavailable(&self) -> Option<&str> {
        self.words.get(UNAVAILABLE).map(String::as_str)
    }

    /// Adds a value.
    #[must_use]
    pub fn with_value(mut self, name: &str, value: f64) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Adds a word.
    #[must_use]
    pub fn with_word(mut self, name: &str, word: impl Into<String>) -> Self {
        self.words.insert(name.to_owned(), word.into());
        self
    }
}

/// A kind of experiment.
pub trait Experiment: Sync {
    /// What is known of it.
    fn description(&self) -> &'static Description;

    /// Why it cannot run here, if it cannot: a program is missing, or a right. What needs
    /// nothing always can.
    fn unavailable(&self) -> Option<String> {
        None
    }

    /// Makes what all runs need: data directories, one copy for each arm,
    /// flipped.
    ///
    /// # Errors
    /// It could not be made.
    fn prepare(&self, lab: &Lab) -> anyhow::Result<Box<dyn Prepared>>;
}

/// An experiment with everything in place. Dropped, it leaves nothing behind.
pub trait Prepared {
    /// The conditions, in the order in which they are measured; one empty name
    /// where there is only one.
    fn conditions(&self) -> Vec<String>;

    /// Versions and settings that the result depends on, for the record.
    fn settings(&self) -> BTreeMap<String, String>;

    /// Runs one arm once, under one condition.
    ///
    /// # Errors
    /// The run failed; what was measured before stands.
    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> anyhow::Result<Reading>;

    /// Runs several arms at the same moment, so that all of them meet the same
    /// noise; the readings are in the order of the arms. `None` if the
    /// experiment cannot do that, which is what stands here.
    ///
    /// # Errors
    /// As for [`Prepared::measure`].
    fn measure_together(
        &mut self,
        condition: &str,
        arms: &[Arm],
        block: u32,
    ) -> Option<anyhow::Result<Vec<Reading>>> {
        let _ = (condition, arms, block);
        None
    }

    /// What to make of all samples of this experiment, in words, where the
    /// verdicts do not say it. The run notes it at its end.
    fn conclusion(&self, samples: &[&Sample]) -> Option<String> {
        let _ = samples;
        None
    }
}

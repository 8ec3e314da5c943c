//! The samples of a run: JSON lines, one object a line, the first a header.
//! Nothing is thrown away; every report is made from these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::summary;

/// The version of the format; raised when a reader of the older one would
/// misunderstand.
pub const VERSION: u32 = 1;

/// One run of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The experiment.
    pub experiment: String,
    /// The condition; empty where there is only one.
    pub condition: String,
    /// The arm; the second of two identical ones carries [`CONTROL`] behind its
    /// name.
    pub arm: String,
    /// The block, from 0. Runs of one block are compared with one another.
    pub block: u32,
    /// Its place in the whole run, from 0.
    pub order: u32,
    /// True for the blocks that warm up and do not count.
    pub warm_up: bool,
    /// Metrics and counters by name.
    pub values: BTreeMap<String, f64>,
    /// What is no number.
    #[serde(default)]
    pub words: BTreeMap<String, String>,
    /// What the noise sensors saw meanwhile.
    #[serde(default)]
    pub noise: BTreeMap<String, f64>,
}

/// What marks the second of two identical arms: the A/A control.
pub const CONTROL: &str = "(again)";

/// The median of an arm's figures under a condition, where there are any.
#[must_use]
pub fn median(samples: &[&Sample], condition: &str, arm: &str, metric: &str) -> Option<f64> {
    let of_it = samples.iter().filter(|sample| sample.arm == arm && sample.condition == condition);
    let figures: Vec<f64> = of_it.filter_map(|sample| sample.values.get(metric).copied()).collect();
    summary::median(&figures)
}

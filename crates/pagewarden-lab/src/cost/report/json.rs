//! One JSON object: the results, and every raw sample they were made from. The
//! fields are described in `docs/cost.md`.

use serde::Serialize;
use serde_json::{Value, json};

use crate::cost::record::Run;
use crate::cost::result::Analysis;

/// The object.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json(analysis: &Analysis, run: &Run, seconds: f64) -> serde_json::Result<Value> {
    #[derive(Serialize)]
    struct Report<'a> {
        pagewarden: &'static str,
        command: &'static str,
        seconds: f64,
        #[serde(flatten)]
        analysis: &'a Analysis,
        samples: &'a [crate::cost::samples::Sample],
    }
    serde_json::to_value(Report {
        pagewarden: pagewarden::VERSION,
        command: "cost",
        seconds,
        analysis,
        samples: &run.samples,
    })
}

/// The list of experiments.
#[must_use]
pub fn list(experiments: &[&dyn crate::cost::experiment::Experiment], seconds: f64) -> Value {
    let experiments: Vec<Value> = experiments
        .iter()
        .map(|experiment| {
            let description = experiment.description();
            json!({
                "name": description.name,
                "title": description.title,
                "question": description.question,
                "seed": description.seed,
                "by_hand": description.by_hand,
                "arms": description.arms.iter().map(|arm| arm.name).collect::<Vec<_>>(),
                "metrics": description.metrics.iter().map(|metric| metric.name).collect::<Vec<_>>(),
                "unavailable": experiment.unavailable(),
            })
        })
        .collect();
    json!({
        "pagewarden": pagewarden::VERSION,
        "command": "cost",
        "verdict": "listed",
        "seconds": seconds,
        "experiments": experiments,
    })
}

//! What protection costs on this machine: read from the newest runs of `cost` on it,
//! or unknown. Never a figure from elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pagewarden::database::{self, Description};
use pagewarden_lab::cost::analyse::analyse;
use pagewarden_lab::cost::machine;
use pagewarden_lab::cost::record::{self, Run};
use pagewarden_lab::cost::report::words::ratio;
use pagewarden_lab::cost::result::Interval;

use crate::commands::cost::state_folder;

/// No more runs are looked into, the newest first.
const RUNS_MAX: usize = 20;
/// No run that is larger.
const RUN_BYTES_MAX: u64 = 64 << 20;
/// The number of prices that fit the screen.
const PRICES_MAX: usize = 3;

/// Arms that protect pages by a sum, as the experiments name them.
const PROTECTING: &[&str] = &["checksums", "checksum", "full_crc32"];

/// What protection costs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Price {
    /// What was measured, in sentences; empty if nothing was.
    pub(super) known: Vec<String>,
    /// The command that measures it; `None` where no experiment does.
    pub(super) command: Option<String>,
}

/// The price of an engine's protection.
pub(super) fn price(description: &Description, runs: &[Run]) -> Price {
    let format = database::kind_named(description.format);
    let names = format.map_or(&[][..], |format| format.experiments);
    let mut known = Vec::new();
    for name in names {
        let newest =
            runs.iter().find_map(|run| Some(figures(run, name)).filter(|found| !found.is_empty()));
        known.extend(newest.unwrap_or_default());
    }
    known.truncate(PRICES_MAX);
    let command = names.first().map(|name| format!("pagewarden cost --short {name}"));
    Price { known, command }
}

/// What a run says of one experiment.
fn figures(run: &Run, name: &str) -> Vec<String> {
    let analysis = analyse(run, run.record.plan.margin);
    let mut said = Vec::new();
    for experiment in analysis.experiments.iter().filter(|one| one.record.name == name) {
        for result in experiment.results.iter().filter(|result| result.main) {
            for (pair, verdict) in
                result.judged().filter(|(pair, _)| PROTECTING.contains(&pair.arm.as_str()))
            {
                let Some(cost) = pair.cost.filter(Interval::is_bounded) else { continue };
                let condition = if result.condition.is_empty() {
                    String::new()
                } else {
                    format!(", {}", result.condition)
                };
                said.push(format!(
                    "{}{condition}: {} against {}, {}: {} ({name}, {})",
                    experiment.record.title,
                    pair.arm,
                    pair.against,
                    ratio(&cost),
                    verdict.name(),
                    run.record.begun.split(' ').next().unwrap_or_default(),
                ));
            }
        }
    }
    // Of several conditions the first is the experiment's own choice.
    said.truncate(1);
    said
}

/// The runs of this machine that are kept in the usual folder, the newest first.
pub(super) fn runs() -> Vec<Run> {
    let Ok(folder) = std::fs::read_dir(state_folder()) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .filter(|path| std::fs::metadata(path).is_ok_and(|found| found.len() <= RUN_BYTES_MAX))
        .collect();
    // Their names are the times at which they began.
    paths.sort();
    let here = machine::describe();
    let read = |path: &PathBuf| record::read(path).ok().map(|(run, _)| run);
    let runs = paths.iter().rev().take(RUNS_MAX).filter_map(read);
    runs.filter(|run| is_same_machine(&run.record.machine, &here)).collect()
}

/// Folders are carried from one machine to another.
fn is_same_machine(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    ["processor", "cores", "architecture"].iter().all(|name| one.get(*name) == other.get(*name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_lab::cost::csv;
    use pagewarden_lab::cost::experiment::Better;

    fn description(format: &'static str) -> Description {
        Description {
            path: PathBuf::from("x"),
            format,
            engine: "an engine".to_owned(),
            page_size: 8192,
            setting: None,
            state: String::new(),
            evidence: database::Evidence { tested_by: "", unseen: "" },
            live: false,
            epoch: None,
            part: None,
        }
    }

    /// A run as `cost` keeps it, from a table.
    fn run(name: &str, begun: &str, dearer: f64) -> Run {
        let mut table = String::from("run,off,checksums\n");
        for block in 0..12 {
            let base = 100.0 + f64::from(block % 3);
            table.push_str(&format!("{block},{base},{}\n", base * dearer));
        }
        let mut run = csv::parse(table.as_bytes(), name, Better::Lower).unwrap();
        run.record.begun = begun.to_owned();
        run
    }

    #[test]
    fn what_was_measured_here_is_told_from_the_newest_run() {
        let runs =
            [run("e2b", "2026-02-01 10:00 UTC", 1.2), run("e2b", "2026-01-01 10:00 UTC", 1.5)];
        let price = price(&description("postgres"), &runs);
        assert_eq!(price.known.len(), 1, "{price:?}");
        let said = &price.known[0];
        assert!(
            said.contains("x1.200") && said.contains("worse") && said.contains("2026-02-01"),
            "{said}"
        );
    }

    #[test]
    fn what_was_not_measured_is_unknown_and_has_a_command() {
        let unknown = price(&description("postgres"), &[run("e2d", "2026-02-01 10:00 UTC", 1.2)]);
        assert!(unknown.known.is_empty());
        assert_eq!(unknown.command.as_deref(), Some("pagewarden cost --short e2b"));
        assert_eq!(price(&description("pack"), &[]).command, None);
    }

    #[test]
    fn runs_of_another_machine_are_left_out() {
        let machine = |cores: &str| BTreeMap::from([("cores".to_owned(), cores.to_owned())]);
        assert!(is_same_machine(&machine("2"), &machine("2")));
        assert!(!is_same_machine(&machine("2"), &machine("64")));
    }
}

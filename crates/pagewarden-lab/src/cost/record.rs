//! A run on disk: JSON lines, appended as they come, nothing ever changed.
//!
//! ```text
//! {"line":"run", ...}          once: format, versions, machine, plan
//! {"line":"experiment", ...}   before its samples: arms, metrics, settings
//! {"line":"sample", ...}       one run of one arm
//! {"line":"note", ...}         what could not be run, and why; where a run went on
//! {"line":"end", ...}          the run came to its end
//! ```
//!
//! A line is written in one piece. A run that was killed leaves at worst a last
//! line without its end, which is dropped when the file is read.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::cost::decision::DecidesRecord;
use crate::cost::design::Plan;
use crate::cost::experiment::{Better, Description, Kind};
use crate::cost::samples::{Sample, VERSION};

/// The head of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of the format.
    pub format: u32,
    /// The version of the program.
    pub pagewarden: String,
    /// When it began: `2026-01-31 17:05 UTC`.
    pub begun: String,
    /// What ran it.
    pub machine: BTreeMap<String, String>,
    /// How it was planned.
    pub plan: Plan,
    /// The experiments asked for.
    pub experiments: Vec<String>,
}

/// A metric, as in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricRecord {
    /// As in the samples.
    pub name: String,
    /// What it is counted in.
    pub unit: String,
    /// How it becomes a result.
    pub kind: Kind,
    /// Which way is good.
    pub better: Better,
}

/// An arm, as in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmRecord {
    /// As in the samples.
    pub name: String,
    /// In words.
    pub what: String,
}

/// A figure of the document that is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedRecord {
    /// The condition.
    pub condition: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// The ratio to the baseline.
    pub ratio: f64,
    /// The figures themselves.
    pub said: String,
}

/// An experiment: all that its samples need in order to be understood, also by
/// a later version that no longer has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// As on the command line.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// What it asks.
    pub question: String,
    /// The document and measurement that it repeats.
    pub seed: String,
    /// How to repeat it by hand.
    pub by_hand: String,
    /// The first is the baseline.
    pub arms: Vec<ArmRecord>,
    /// The first is the one that the verdict is about.
    pub metrics: Vec<MetricRecord>,
    /// Whether the ratios to the baseline are prices of protection; they were before this was
    /// written down.
    #[serde(default = "as_before")]
    pub is_price: bool,
    /// The question that it helps to decide; absent in older runs.
    #[serde(default)]
    pub decides: Option<DecidesRecord>,
    /// What the document measured.
    pub seed_figures: Vec<SeedRecord>,
    /// The conditions, in order.
    pub conditions: Vec<String>,
    /// Versions and settings.
    pub settings: BTreeMap<String, String>,
    /// Counted blocks planned.
    pub blocks: u32,
}

fn as_before() -> bool {
    true
}

impl ExperimentRecord {
    /// What the registry knows of an experiment.
    #[must_use]
    pub fn new(description: &Description) -> Self {
        let text = str::to_owned;
        Self {
            name: text(description.name),
            title: text(description.title),
            question: text(description.question),
            seed: text(description.seed),
            by_hand: text(description.by_hand),
            arms: description
                .arms
                .iter()
                .map(|arm| ArmRecord { name: text(arm.name), what: text(arm.what) })
                .collect(),
            metrics: description
                .metrics
                .iter()
                .map(|metric| MetricRecord {
                    name: text(metric.name),
                    unit: text(metric.unit),
                    kind: metric.kind,
                    better: metric.better,
                })
                .collect(),
            is_price: description.is_price,
            decides: description.decides.as_ref().map(DecidesRecord::from),
            seed_figures: description
                .seed_figures
                .iter()
                .map(|figure| SeedRecord {
                    condition: text(figure.condition),
                    arm: text(figure.arm),
                    metric: text(figure.metric),
                    ratio: figure.ratio,
                    said: text(figure.said),
                })
                .collect(),
            ..Self::default()
        }
    }
}

/// What befell a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The experiment, or empty for the whole run.
    pub experiment: String,
    /// What befell it.
    pub text: String,
    /// True if something that was asked for is missing because of it.
    pub missing: bool,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// The head.
    Run(RunRecord),
    /// What the samples that follow are of.
    Experiment(Box<ExperimentRecord>),
    /// One run of one arm.
    Sample(Box<Sample>),
    /// What befell.
    Note(Note),
    /// All that was planned has been done.
    End,
}

/// All that is on disk of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// The head.
    pub record: RunRecord,
    /// The experiments that began.
    pub experiments: Vec<ExperimentRecord>,
    /// Their samples.
    pub samples: Vec<Sample>,
    /// What befell.
    pub notes: Vec<Note>,
    /// Whether the run came to its end.
    pub ended: bool,
}

impl Run {
    /// Takes in one line.
    pub fn add(&mut self, line: Line) {
        match line {
            Line::Run(record) => self.record = record,
            Line::Experiment(record) => {
                // A run that goes on prepares again; what it says now is newer.
                self.experiments.retain(|known| known.name != record.name);
                // What was missing is tried again, and noted again if it still is.
                self.notes.retain(|note| !note.missing || note.experiment != record.name);
                self.experiments.push(*record);
            }
            Line::Sample(sample) => self.samples.push(*sample),
            Line::Note(note) => {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            Line::End => self.ended = true,
        }
    }
}

/// Reads a run, with the length of what is whole: a last line without its end
/// is left out.
///
/// # Errors
/// The file cannot be read, is no run, is of a newer format, or has a line in
/// the middle that is not understood.
pub fn read(path: &Path) -> anyhow::Result<(Run, u64)> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut run = Run::default();
    let lines = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
    for (number, line) in (1..).zip(lines).filter(|(_, line)| !line.is_empty()) {
        if number == 1 {
            check_format(line).with_context(|| format!("cannot use {shown}"))?;
        }
        match serde_json::from_slice(line) {
            Ok(line) => run.add(line),
            Err(error) => bail!("{shown}, line {number}: not understood: {error}"),
        }
    }
    if run.record.format == 0 {
        bail!(
            "{shown} is no run of cost\nhint: it must begin with a line {{\"line\":\"run\", ...}}"
        );
    }
    Ok((run, u64::try_from(whole)?))
}

fn check_format(first: &[u8]) -> anyhow::Result<()> {
    let head: serde_json::Value =
        serde_json::from_slice(first).context("the first line is no JSON: it is no run of cost")?;
    match head.get("format").and_then(serde_json::Value::as_u64) {
        None => bail!("the first line names no format: it is no run of cost"),
        Some(format) if format > u64::from(VERSION) => {
            bail!("it has format {format}, and this program knows up to {VERSION}")
        }
        Some(_) => Ok(()),
    }
}

/// A run that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    /// Where.
    pub path: PathBuf,
}

impl Writer {
    /// Begins a new file.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let open = || OpenOptions::new().append(true).create_new(true).open(path);
        let file = open().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Goes on with a file after its first `whole` bytes.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn resume(path: &Path, whole: u64) -> anyhow::Result<Self> {
        let open = || {
            let file = OpenOptions::new().append(true).open(path)?;
            file.set_len(whole)?;
            std::io::Result::Ok(file)
        };
        let file = open().with_context(|| format!("cannot go on with {}", path.display()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends a line, and waits until it would survive a power cut.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut write = || {
            self.file.write_all(&text)?;
            self.file.sync_data()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Line {
        Line::Run(RunRecord { format: VERSION, ..RunRecord::default() })
    }

    fn sample(block: u32) -> Line {
        Line::Sample(Box::new(Sample {
            experiment: "e".to_owned(),
            condition: String::new(),
            arm: "off".to_owned(),
            block,
            order: block,
            warm_up: false,
            values: BTreeMap::from([("seconds".to_owned(), 1.5)]),
            words: BTreeMap::new(),
            noise: BTreeMap::new(),
        }))
    }

    #[test]
    fn a_file_cut_anywhere_gives_the_lines_that_are_whole_and_goes_on_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut writer = Writer::create(&path).unwrap();
        for line in [head(), sample(0), sample(1)] {
            writer.append(&line).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in second..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (run, whole) = read(&path).unwrap();
            assert!(run.samples.len() < 2);
            let kept = run.samples.len();
            Writer::resume(&path, whole).unwrap().append(&sample(7)).unwrap();
            let (run, _) = read(&path).unwrap();
            assert_eq!(run.samples.len(), kept + 1, "cut at {length}");
            assert_eq!(run.samples.last().unwrap().block, 7);
        }
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let message = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", read(&path).unwrap_err())
        };
        assert!(message("").contains("no run of cost"));
        assert!(message("{\"line\":\"run\"").contains("no run of cost"));
        assert!(message("a,b\n1,2\n").contains("no JSON"));
        assert!(message("{\"line\":\"end\"}\n").contains("names no format"));
        assert!(message("{\"line\":\"run\",\"format\":99}\n").contains("has format 99"));
        let head = serde_json::to_string(&head()).unwrap();
        assert!(message(&format!("{head}\nrubbish\n{head}\n")).contains("line 2"));
        assert!(Writer::create(&path).is_err(), "an existing file is never overwritten");
    }
}

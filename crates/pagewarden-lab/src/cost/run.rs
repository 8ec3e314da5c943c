//! Runs experiments by a plan, and writes every sample down as soon as it is
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::cost::analyse::control_name;
use crate::cost::design::{Block, Order};
use crate::cost::experiment::{Arm, Better, Description, Experiment, Lab, Prepared, Reading};
use crate::cost::own_program::OwnProgram;
use crate::cost::record::{ExperimentRecord, Line, Note, Run, RunRecord, Writer};
use crate::cost::samples::Sample;
use crate::stats::verdict::{Level, Verdict, estimate, judge};

/// What a run needs.
pub struct Request<'a> {
    /// The experiments, in order.
    pub experiments: &'a [&'a dyn Experiment],
    /// What stands in the file, or its head: a run that goes on has samples.
    pub run: Run,
    /// Where new lines go.
    pub writer: Writer,
    /// Set when the run is to end early.
    pub stop: Arc<AtomicBool>,
    /// This program, for arms that are processes of their own.
    pub program: OwnProgram,
    /// Noise sensors: begins to watch, and says what it saw when asked.
    pub sensors: &'a dyn Fn() -> Box<dyn FnOnce() -> BTreeMap<String, f64>>,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Request").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// What happens while it runs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// An experiment makes what it needs, which may take a while.
    Prepares {
        /// Which.
        description: &'a Description,
        /// Its place among those asked for, from 1, and how many there are.
        place: (usize, usize),
    },
    /// One run of one arm begins.
    Runs {
        /// Of which experiment.
        description: &'a Description,
        /// Under which condition.
        condition: &'a str,
        /// Runs of this experiment that are done, and all of them.
        done: (u64, u64),
        /// How long the rest of this experiment will take, once that is known.
        left: Option<Duration>,
    },
    /// Something befell the run.
    Notes(&'a Note),
}

/// Runs what is asked for, or what is left of it, and gives back all of it.
/// Whatever goes wrong with one experiment is noted, and the next one runs.
///
/// # Errors
/// The samples cannot be written.
pub fn run(mut request: Request<'_>, watch: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<Run> {
    if request.run.samples.is_empty() && request.run.experiments.is_empty() {
        let head = Line::Run(request.run.record.clone());
        request.writer.append(&head)?;
    }
    let all = request.experiments.len();
    let budget = request.run.record.plan.budget_seconds.map(Duration::from_secs);
    let end = budget.and_then(|budget| Instant::now().checked_add(budget));
    for (place, experiment) in (1..).zip(request.experiments) {
        if request.stop.load(Ordering::Relaxed) {
            break;
        }
        let description = experiment.description();
        let end = share_of(end, all + 1 - place);
        let mut of_one = OneExperiment { request: &mut request, description, end, watch };
        if let Some(why) = experiment.unavailable() {
            of_one.note(format!("cannot run here: {why}"), true)?;
            continue;
        }
        if of_one.is_done() {
            continue;
        }
        (of_one.watch)(Event::Prepares { description, place: (place, all) });
        match of_one.run(*experiment) {
            Ok(()) => {}
            Err(Failure::Experiment(error)) => {
                if !of_one.request.stop.load(Ordering::Relaxed) {
                    of_one.note(format!("failed: {error:#}"), true)?;
                }
            }
            Err(Failure::Samples(error)) => return Err(error),
        }
    }
    if !request.stop.load(Ordering::Relaxed) && !request.run.ended {
        request.add(Line::End)?;
    }
    Ok(request.run)
}

/// The head of a new run.
#[must_use]
pub fn head(experiments: &[&dyn Experiment], record: RunRecord) -> Run {
    let names = experiments.iter().map(|one| one.description().name.to_owned()).collect();
    Run { record: RunRecord { experiments: names, ..record }, ..Run::default() }
}

/// Why an experiment ended before its end.
enum Failure {
    /// It could not be measured.
    Experiment(anyhow::Error),
    /// What was measured could not be written.
    Samples(anyhow::Error),
}

impl Request<'_> {
    fn add(&mut self, line: Line) -> anyhow::Result<()> {
        self.writer.append(&line)?;
        self.run.add(line);
        Ok(())
    }
}

/// An experiment while it runs.
struct OneExperiment<'a, 'b> {
    request: &'a mut Request<'b>,
    description: &'static Description,
    /// When its share of a budget of time is over.
    end: Option<Instant>,
    watch: &'a mut dyn FnMut(Event<'_>),
}

impl OneExperiment<'_, '_> {
    fn note(&mut self, text: String, missing: bool) -> anyhow::Result<()> {
        let note = Note { experiment: self.description.name.to_owned(), text, missing };
        (self.watch)(Event::Notes(&note));
        self.request.add(Line::Note(note))
    }

    /// A note that every run of an arm would repeat. Nothing of what was asked for is missing: the
    /// machine lacks what the arm is about.
    fn note_once(&mut self, text: String) -> anyhow::Result<()> {
        let name = self.description.name;
        let known = |note: &Note| note.experiment == name && note.text == text;
        if self.request.run.notes.iter().any(known) { Ok(()) } else { self.note(text, false) }
    }

    fn run(&mut self, experiment: &dyn Experiment) -> Result<(), Failure> {
        let plan = self.request.run.record.plan.clone();
        let stop = Arc::clone(&self.request.stop);
        let lab = Lab { form: plan.form, seed: plan.seed, stop, program: self.request.program };
        let mut prepared = experiment.prepare(&lab).map_err(Failure::Experiment)?;
        let conditions = prepared.conditions();
        let record = ExperimentRecord {
            conditions: conditions.clone(),
            settings: prepared.settings(),
            blocks: plan.blocks_of(self.description),
            ..ExperimentRecord::new(self.description)
        };
        self.request.add(Line::Experiment(Box::new(record))).map_err(Failure::Samples)?;
        let per_condition = plan.warm_up_of(self.description) + plan.blocks_of(self.description);
        let arms = self.description.arms.len() + usize::from(plan.controls(self.description));
        let runs = as_u64(conditions.len()) * u64::from(per_condition) * as_u64(arms);
        let mut pace = TimeLeft { begin: Instant::now(), measured: 0, done: 0, all: runs };
        for (index, condition) in conditions.iter().enumerate() {
            let end = share_of(self.end, conditions.len() - index);
            self.condition(prepared.as_mut(), condition, end, &mut pace)?;
            if self.request.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        let name = self.description.name;
        let samples = self.request.run.samples.iter();
        let samples: Vec<&Sample> =
            samples.filter(|sample| sample.experiment == name && !sample.warm_up).collect();
        match prepared.conclusion(&samples) {
            Some(text) => self.note(text, false).map_err(Failure::Samples),
            None => Ok(()),
        }
    }

    /// All blocks of a condition, up to the look that decides or to the end of its time.
    fn condition(
        &mut self,
        prepared: &mut dyn Prepared,
        condition: &str,
        end: Option<Instant>,
        pace: &mut TimeLeft,
    ) -> Result<(), Failure> {
        let plan = self.request.run.record.plan.clone();
        let arms = self.arms();
        let mut duet = plan.order == Order::Duet;
        let schedule = plan.schedule(self.description, condition);
        let all = as_u64(schedule.len()) * as_u64(arms.len());
        let before = pace.done;
        for block in &schedule {
            if self.ends_before(condition, block) {
                break;
            }
            let counted = block.number.saturating_sub(plan.warm_up_of(self.description));
            if counted > 0 && end.is_some_and(|end| Instant::now() >= end) {
                self.out_of_time(condition, counted).map_err(Failure::Samples)?;
                break;
            }
            if self.request.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if duet && !self.together(prepared, condition, block, &arms, pace)? {
                duet = false;
                let text = "its arms cannot run at once: they ran one after the other".to_owned();
                self.note(text, false).map_err(Failure::Samples)?;
            }
            if !duet {
                self.one_by_one(prepared, condition, block, &arms, pace)?;
            }
        }
        // What a look saved is done.
        pace.done = before + all;
        Ok(())
    }

    /// Notes that a share of the budget was over after some blocks.
    fn out_of_time(&mut self, condition: &str, counted: u32) -> anyhow::Result<()> {
        let plan = &self.request.run.record.plan;
        let text = format!(
            "its share of the budget of time was over after {counted} of up to {} blocks{}",
            plan.blocks_of(self.description),
            in_condition(condition)
        );
        self.note_once(text)
    }

    /// Whether a look before `block` says that it is enough.
    fn ends_before(&self, condition: &str, block: &Block) -> bool {
        let plan = &self.request.run.record.plan;
        let Some(counted) = block.number.checked_sub(plan.warm_up_of(self.description)) else {
            return false;
        };
        let blocks = plan.blocks_of(self.description);
        let looks = plan.looks(blocks);
        let look = looks.iter().find(|look| look.blocks == counted && counted < blocks);
        look.is_some_and(|look| self.is_decided(condition, look.level))
    }

    /// Whether a run that goes on has all of this experiment already.
    fn is_done(&self) -> bool {
        let known = &self.request.run.experiments;
        let Some(record) = known.iter().find(|known| known.name == self.description.name) else {
            return false;
        };
        let plan = &self.request.run.record.plan;
        let arms = self.arms().len();
        record.conditions.iter().all(|condition| {
            plan.schedule(self.description, condition)
                .iter()
                .take_while(|block| !self.ends_before(condition, block))
                .all(|block| self.done(condition, block.number).len() == arms)
        })
    }

    /// The arms under the names of their samples; the control is the last.
    fn arms(&self) -> Vec<(Arm, String)> {
        let mut arms: Vec<(Arm, String)> =
            self.description.arms.iter().map(|arm| (*arm, arm.name.to_owned())).collect();
        if self.request.run.record.plan.controls(self.description) {
            arms.extend(arms.first().map(|(arm, name)| (*arm, control_name(name))));
        }
        arms
    }

    fn one_by_one(
        &mut self,
        prepared: &mut dyn Prepared,
        condition: &str,
        block: &Block,
        arms: &[(Arm, String)],
        pace: &mut TimeLeft,
    ) -> Result<(), Failure> {
        let done = self.done(condition, block.number);
        for (arm, name) in block.arms.iter().filter_map(|index| arms.get(*index)) {
            if self.request.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if done.contains(name) {
                pace.done += 1;
                continue;
            }
            self.tell(condition, pace);
            let watching = (self.request.sensors)();
            let reading = prepared.measure(condition, arm, block.number);
            let noise = watching();
            let reading = reading.with_context(|| {
                format!("{name}, block {}{}", block.number + 1, in_condition(condition))
            });
            // A run that was told to stop has measured nothing.
            if self.request.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.keep(condition, block, name, reading.map_err(Failure::Experiment)?, noise)?;
            pace.step(1);
        }
        Ok(())
    }

    /// Runs the arms of a block at once; false if the experiment cannot.
    fn together(
        &mut self,
        prepared: &mut dyn Prepared,
        condition: &str,
        block: &Block,
        arms: &[(Arm, String)],
        pace: &mut TimeLeft,
    ) -> Result<bool, Failure> {
        let chosen: Vec<&(Arm, String)> =
            block.arms.iter().filter_map(|index| arms.get(*index)).collect();
        if self.done(condition, block.number).len() == chosen.len() {
            pace.done += as_u64(chosen.len());
            return Ok(true);
        }
        self.tell(condition, pace);
        let only_arms: Vec<Arm> = chosen.iter().map(|(arm, _)| *arm).collect();
        let watching = (self.request.sensors)();
        let readings = prepared.measure_together(condition, &only_arms, block.number);
        let noise = watching();
        let Some(readings) = readings else { return Ok(false) };
        if self.request.stop.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let readings = readings.map_err(Failure::Experiment)?;
        for ((_, name), reading) in chosen.iter().zip(readings) {
            self.keep(condition, block, name, reading, noise.clone())?;
        }
        pace.step(as_u64(chosen.len()));
        Ok(true)
    }

    /// The arms that a block already has: of a run that goes on.
    fn done(&self, condition: &str, block: u32) -> BTreeSet<String> {
        let samples = self.request.run.samples.iter();
        samples
            .filter(|sample| {
                sample.block == block
                    && sample.condition == condition
                    && sample.experiment == self.description.name
            })
            .map(|sample| sample.arm.clone())
            .collect()
    }

    fn tell(&mut self, condition: &str, pace: &TimeLeft) {
        (self.watch)(Event::Runs {
            description: self.description,
            condition,
            done: (pace.done, pace.all),
            left: pace.left(),
        });
    }

    fn keep(
        &mut self,
        condition: &str,
        block: &Block,
        arm: &str,
        reading: Reading,
        noise: BTreeMap<String, f64>,
    ) -> Result<(), Failure> {
        if let Some(why) = reading.why_unavailable() {
            self.note_once(format!("{arm} is not measured: {why}")).map_err(Failure::Samples)?;
        }
        let order = self.request.run.samples.len();
        let sample = Sample {
            experiment: self.description.name.to_owned(),
            condition: condition.to_owned(),
            arm: arm.to_owned(),
            block: block.number,
            order: u32::try_from(order).unwrap_or(u32::MAX),
            warm_up: block.warm_up,
            // What is no number has no place in JSON.
            values: reading.values.into_iter().filter(|(_, value)| value.is_finite()).collect(),
            words: reading.words,
            noise: noise.into_iter().filter(|(_, value)| value.is_finite()).collect(),
        };
        self.request.add(Line::Sample(Box::new(sample))).map_err(Failure::Samples)
    }

    /// Whether the main metric's verdicts would stand at this look.
    fn is_decided(&self, condition: &str, level: Level) -> bool {
        let (Some(metric), Some((baseline, others))) =
            (self.description.metrics.first(), self.description.arms.split_first())
        else {
            return false;
        };
        let plan = &self.request.run.record.plan;
        let figures = |arm: &str| -> BTreeMap<u32, f64> {
            let samples = self.request.run.samples.iter().filter(|sample| {
                !sample.warm_up
                    && sample.arm == arm
                    && sample.condition == condition
                    && sample.experiment == self.description.name
            });
            samples
                .filter_map(|sample| Some((sample.block, *sample.values.get(metric.name)?)))
                .filter(|(_, value)| *value > 0.0)
                .collect()
        };
        let first = figures(baseline.name);
        // With several arms each question gets its part of the level: Holm's
        // first step, which is stricter than what the analysis will ask.
        let level = Level { alpha: level.alpha / others.len().max(1) as f64 };
        others.iter().all(|arm| {
            let sign = match metric.better {
                Better::Lower => 1.0,
                Better::Higher => -1.0,
            };
            let costs: Vec<f64> = figures(arm.name)
                .iter()
                .filter_map(|(block, value)| Some(sign * (value / first.get(block)?).ln()))
                .collect();
            estimate(&costs, level).is_some_and(|judged| {
                let verdict = judge(&judged, judged.p, &costs, plan.margin, level);
                !matches!(verdict, Verdict::Undecided { .. })
            })
        })
    }
}

/// When the next of `parts` equal parts of the time up to `end` is over.
fn share_of(end: Option<Instant>, parts: usize) -> Option<Instant> {
    let now = Instant::now();
    let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
    end.map(|end| now + end.saturating_duration_since(now) / parts)
}

fn in_condition(condition: &str) -> String {
    if condition.is_empty() { String::new() } else { format!(", {condition}") }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// How much longer a run takes.
struct TimeLeft {
    begin: Instant,
    /// Runs made now: those of an earlier part took no time.
    measured: u64,
    done: u64,
    all: u64,
}

impl TimeLeft {
    fn step(&mut self, runs: u64) {
        self.measured += runs;
        self.done += runs;
    }

    fn left(&self) -> Option<Duration> {
        let rest = self.all.saturating_sub(self.done);
        let seconds = self.begin.elapsed().as_secs_f64() * rest as f64 / self.measured as f64;
        (self.measured > 0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
    }
}

/// Where the samples of a new run go: `FOLDER/cost-20260131-170500.jsonl`.
#[must_use]
pub fn path_in(folder: &Path, began: &str) -> PathBuf {
    let digits: String = began.chars().filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at_checked(8).unwrap_or((&digits, ""));
    folder.join(format!("cost-{day}-{time}.jsonl"))
}

#[cfg(test)]
mod tests;

//! Runs of made-up experiments: whole, stopped, failing, early at an end.

use super::*;
use crate::cost::analyse::analyse;
use crate::cost::design::Plan;
use crate::cost::experiment::{Kind, Metric};
use crate::cost::own_program::OwnProgram;
use crate::cost::record::read;
use crate::cost::samples::VERSION;
use crate::stats::random::Random;

/// Seconds that are made up: `on` takes a fifth more.
struct Fake {
    /// After this number of runs it fails.
    fails_after: Option<u32>,
    /// After this number of runs a user asks for the end.
    stops_after: Option<u32>,
}

static DESCRIPTION: Description = Description {
    name: "fake",
    title: "",
    question: "",
    seed: "",
    by_hand: "",
    arms: &[Arm { name: "off", what: "" }, Arm { name: "on", what: "" }],
    metrics: &[Metric { name: "seconds", unit: "s", kind: Kind::Timed, better: Better::Lower }],
    is_price: true,
    decides: None,
    seed_figures: &[],
    blocks: (4, 30),
};

struct Going {
    runs: u32,
    fails_after: Option<u32>,
    stops_after: Option<u32>,
    stop: Arc<AtomicBool>,
    random: Random,
}

impl Experiment for Fake {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        None
    }

    fn prepare(&self, lab: &Lab) -> anyhow::Result<Box<dyn Prepared>> {
        Ok(Box::new(Going {
            runs: 0,
            fails_after: self.fails_after,
            stops_after: self.stops_after,
            stop: Arc::clone(&lab.stop),
            random: Random::new(lab.seed),
        }))
    }
}

impl Prepared for Going {
    fn conditions(&self) -> Vec<String> {
        vec!["1 client".to_owned(), "2 clients".to_owned()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("version".to_owned(), "1".to_owned())])
    }

    fn measure(&mut self, _: &str, arm: &Arm, _: u32) -> anyhow::Result<Reading> {
        self.runs += 1;
        if self.stops_after == Some(self.runs) {
            self.stop.store(true, Ordering::Relaxed);
        }
        anyhow::ensure!(self.fails_after != Some(self.runs), "the server went away");
        let factor = if arm.name == "on" { 1.2 } else { 1.0 };
        let seconds = factor * (0.02 * self.random.normal()).exp();
        Ok(Reading {
            values: BTreeMap::from([("seconds".to_owned(), seconds)]),
            words: BTreeMap::new(),
        })
    }
}

const WELL: Fake = Fake { fails_after: None, stops_after: None };

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("run.jsonl")
    }

    /// Runs `fake`, beginning anew or going on with what is there.
    fn run(&self, fake: &Fake, plan: Plan) -> Run {
        let experiments: [&dyn Experiment; 1] = [fake];
        let (run, writer) = if self.path().exists() {
            let (run, whole) = read(&self.path()).unwrap();
            (run, Writer::resume(&self.path(), whole).unwrap())
        } else {
            let record = RunRecord { format: VERSION, plan, ..RunRecord::default() };
            (head(&experiments, record), Writer::create(&self.path()).unwrap())
        };
        let request = Request {
            experiments: &experiments,
            run,
            writer,
            stop: Arc::new(AtomicBool::new(false)),
            program: OwnProgram { arm: &[], has_commands: false },
            sensors: &|| Box::new(|| BTreeMap::from([("load".to_owned(), 0.5)])),
        };
        super::run(request, &mut |_| {}).unwrap()
    }
}

fn short() -> Plan {
    Plan { blocks: Some(6), ..Plan::default() }
}

#[test]
fn every_arm_runs_in_every_block_and_all_of_it_is_on_disk() {
    let place = Place::new();
    let run = place.run(&WELL, short());
    assert!(run.ended);
    // Two conditions, seven blocks, two arms and the control.
    assert_eq!(run.samples.len(), 2 * 7 * 3);
    assert_eq!(read(&place.path()).unwrap().0, run);
    let analysis = analyse(&run, 0.02);
    assert_eq!(analysis.verdict, "worse");
    let result = &analysis.experiments[0].results[0];
    assert_eq!((result.pairs[0].blocks, result.arms.len()), (6, 3), "warming up is left out");
    assert!(result.control.is_some());
    assert_eq!(analysis.noise[0].sensor, "load");
}

#[test]
fn stopped_run_goes_on_where_it_was_and_measures_nothing_twice() {
    for stops_after in [1, 5, 20, 30] {
        let place = Place::new();
        let stopped = place.run(&Fake { stops_after: Some(stops_after), ..WELL }, short());
        assert!(!stopped.ended);
        let before = stopped.samples.len();
        assert_eq!(before, usize::try_from(stops_after).unwrap() - 1);
        assert!(analyse(&stopped, 0.02).incomplete);
        let whole = place.run(&WELL, short());
        assert!(whole.ended);
        assert_eq!(whole.samples.len(), 2 * 7 * 3);
        assert_eq!(whole.samples[..before], stopped.samples[..]);
        let places: BTreeSet<(&str, &str, u32)> = whole
            .samples
            .iter()
            .map(|sample| (sample.condition.as_str(), sample.arm.as_str(), sample.block))
            .collect();
        assert_eq!(places.len(), whole.samples.len());
    }
}

#[test]
fn failed_experiment_is_noted_and_keeps_what_it_measured() {
    let place = Place::new();
    let run = place.run(&Fake { fails_after: Some(10), ..WELL }, short());
    assert_eq!(run.samples.len(), 9);
    let note = &run.notes[0];
    assert!(note.missing && note.text.contains("the server went away"), "{note:?}");
    assert!(note.text.contains("block 4, 1 client"), "{note:?}");
    assert!(analyse(&run, 0.02).incomplete);
    // Run again, it is whole, and stays so for a reader of the file.
    let again = place.run(&WELL, short());
    assert!(!analyse(&again, 0.02).incomplete, "{:?}", again.notes);
    assert_eq!(read(&place.path()).unwrap().0, again);
    // What is whole is not even prepared again: this one would fail.
    let third = place.run(&Fake { fails_after: Some(1), ..WELL }, short());
    assert_eq!(third, again);
}

#[test]
fn sequential_plan_ends_a_condition_when_its_verdict_stands() {
    let place = Place::new();
    let run = place.run(&WELL, Plan { sequential: true, ..Plan::default() });
    // A warm-up and the twelve blocks of the first look.
    assert_eq!(run.samples.len(), 2 * 13 * 3);
    let analysis = analyse(&run, 0.02);
    assert_eq!(analysis.verdict, "worse");
    let alpha = analysis.experiments[0].results[0].alpha;
    assert!((alpha - 0.005).abs() < 1e-12, "judged at the level of the look, not {alpha}");
}

#[test]
fn budget_of_time_ends_a_condition_at_a_block_or_when_its_verdict_stands() {
    let place = Place::new();
    let plan =
        |seconds| Plan { sequential: true, budget_seconds: Some(seconds), ..Plan::default() };
    let run = place.run(&WELL, plan(0));
    // A warm-up and one block of three arms, under two conditions.
    assert_eq!(run.samples.len(), 2 * 2 * 3);
    assert!(run.ended);
    let said = |note: &Note| note.text.contains("over after 1 of up to 120 blocks");
    assert_eq!(run.notes.iter().filter(|note| said(note) && !note.missing).count(), 2);

    let run = Place::new().run(&WELL, plan(3600));
    // A warm-up and the fifteen blocks of the first look.
    assert_eq!(run.samples.len(), 2 * 16 * 3);
    assert_eq!(analyse(&run, 0.02).verdict, "worse");
}

#[test]
fn duet_falls_back_aloud_where_arms_cannot_run_at_once() {
    let place = Place::new();
    let run = place.run(&WELL, Plan { order: Order::Duet, ..short() });
    assert_eq!(run.samples.len(), 2 * 7 * 3);
    assert!(run.notes.iter().any(|note| note.text.contains("at once") && !note.missing));
}

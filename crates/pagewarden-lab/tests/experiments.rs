//! Every experiment runs in its short form, one run of each arm, and gives the
//! metrics that it describes; those with exact results give the known ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewarden_lab::cost::experiment::{Arm, Experiment, Form, Kind, Lab, Prepared, Reading};
use pagewarden_lab::cost::experiments::EXPERIMENTS;
use pagewarden_lab::cost::own_program::{self, IS_ARM, OwnProgram};
use pagewarden_scratch::{mariadb, postgres};

/// What makes this test program run an arm of an experiment.
const ARM: &[&str] =
    &["--include-ignored", "--exact", "experiments::arm_runs_where_it_is_asked_for", "--nocapture"];

/// Does nothing unless it was started to be the process of an arm.
#[test]
#[ignore = "no test but a process of one"]
fn arm_runs_where_it_is_asked_for() {
    if std::env::var_os(IS_ARM).is_some() {
        own_program::serve(std::io::stdin(), std::io::stdout()).unwrap();
    }
}

/// The experiment of this name, or nothing, said aloud, where its engines are
/// missing and not required.
pub(crate) fn available(name: &str) -> Option<&'static dyn Experiment> {
    let found = EXPERIMENTS.iter().find(|one| one.description().name == name);
    let experiment = *found.unwrap_or_else(|| panic!("no experiment {name}"));
    if let Some(reason) = experiment.unavailable() {
        // Each says so, or fails.
        postgres::Installation::for_test("15").unwrap();
        mariadb::Installation::for_test().unwrap();
        eprintln!("SKIPPED: {name}: {reason}");
        return None;
    }
    Some(experiment)
}

pub(crate) fn prepare(experiment: &dyn Experiment) -> Box<dyn Prepared> {
    let program = OwnProgram { arm: ARM, has_commands: false };
    let lab = Lab { form: Form::Short, seed: 42, stop: Arc::default(), program };
    experiment.prepare(&lab).unwrap()
}

/// One run of every arm under the first and the last condition.
fn runs_and_gives_its_metrics(name: &str) {
    let Some(experiment) = available(name) else { return };
    let description = experiment.description();
    let mut prepared = prepare(experiment);
    assert!(!prepared.settings().is_empty(), "{name}");
    let conditions = prepared.conditions();
    let mut ends = vec![conditions.first().unwrap(), conditions.last().unwrap()];
    ends.dedup();
    for figure in description.seed_figures {
        assert!(description.arms.iter().any(|arm| arm.name == figure.arm), "{figure:?}");
        assert!(description.metrics.iter().any(|one| one.name == figure.metric), "{figure:?}");
    }
    for condition in ends {
        for arm in description.arms {
            let reading = prepared.measure(condition, arm, 0).unwrap();
            let first = description.metrics[0];
            let value = reading.values.get(first.name);
            let said = reading.why_unavailable().is_some();
            assert!(value.is_some() || said, "{name}, {condition}, {}: {reading:?}", arm.name);
            assert!(reading.values.values().all(|value| value.is_finite()), "{reading:?}");
            if first.kind == Kind::Timed && !said {
                assert!(*value.unwrap() > 0.0, "{name}, {condition}, {}: {reading:?}", arm.name);
            }
        }
    }
    // At once, the control among them, where that is possible.
    let mut arms = description.arms.to_vec();
    arms.push(arms[0]);
    if let Some(readings) = prepared.measure_together(&conditions[0], &arms, 0) {
        let readings = readings.unwrap();
        assert_eq!(readings.len(), arms.len(), "{name}");
        assert!(readings.iter().all(|reading| value(reading, description.metrics[0].name) > 0.0));
    }
    let unknown = Arm { name: "unknown", what: "" };
    assert!(prepared.measure(&conditions[0], &unknown, 0).is_err(), "{name}");
}

#[test]
fn loop_of_selects_and_inserts_runs_on_postgres() {
    runs_and_gives_its_metrics("e0");
}

#[test]
fn loop_of_selects_and_inserts_runs_on_mariadb() {
    runs_and_gives_its_metrics("e0-mariadb");
}

#[test]
fn loop_of_selects_and_inserts_runs_on_sqlite() {
    runs_and_gives_its_metrics("e0-sqlite");
}

/// Packs are made by pagewarden, whose own tests run this experiment with it.
#[test]
fn scan_of_a_read_only_table_runs() {
    runs_and_gives_its_metrics("e1");
}

/// Sums are made by pagewarden, whose own tests run this experiment with it.
#[test]
fn tables_of_every_width_and_engine_are_made() {
    runs_and_gives_its_metrics("e3");
}

#[test]
fn patterns_of_io_run() {
    runs_and_gives_its_metrics("e4b");
}

#[test]
fn database_is_read_to_nowhere() {
    runs_and_gives_its_metrics("e4a");
}

/// Here plain reads are all that can run: they move times of access wherever the
/// file system keeps them, and change nothing else.
#[test]
fn plain_reads_are_told_from_what_changes_nothing() {
    runs_and_gives_its_metrics("e4c");
    let Some(experiment) = available("e4c") else { return };
    let mut prepared = prepare(experiment);
    let read = &experiment.description().arms[2];
    let reading = prepared.measure("SQLite", read, 0).unwrap();
    let (unchanged, word) = (value(&reading, "unchanged") > 0.5, &reading.words["unchanged"]);
    let expected = if unchanged { "nothing has changed" } else { "time of access of 1 file" };
    assert_eq!(word, expected, "{reading:?}");
}

/// What is counted is the same every time, and the markers take their room.
#[test]
fn sequential_scan_runs_on_sqlite() {
    runs_and_gives_its_metrics("e2b-sqlite");
    let Some(experiment) = available("e2b-sqlite") else { return };
    let mut prepared = prepare(experiment);
    let arms = experiment.description().arms;
    let mut bytes = |arm: &Arm| value(&prepared.measure("", arm, 0).unwrap(), "read_bytes");
    let (plain, again, marked) = (bytes(&arms[0]), bytes(&arms[0]), bytes(&arms[3]));
    assert!((plain - again).abs() < 0.5, "{plain} {again}");
    // 4 rounds over 100,000 rows of 96 characters.
    assert!(plain > 4.0 * 9.6e6 && marked >= plain, "{plain} {marked}");
}

#[test]
fn select_only_runs() {
    runs_and_gives_its_metrics("e2a");
}

#[test]
fn sequential_scan_runs() {
    runs_and_gives_its_metrics("e2b");
}

#[test]
fn clients_run() {
    runs_and_gives_its_metrics("e2c");
}

#[test]
fn kernels_run() {
    runs_and_gives_its_metrics("e2d");
}

#[test]
fn matrix_runs() {
    runs_and_gives_its_metrics("e2e");
}

#[test]
fn initialisation_runs() {
    runs_and_gives_its_metrics("e2e-init");
}

#[test]
fn every_description_is_complete() {
    let mut names = Vec::new();
    for experiment in EXPERIMENTS {
        let description = experiment.description();
        names.push(description.name);
        assert!(description.arms.len() >= 2 && !description.metrics.is_empty(), "{description:?}");
        assert!(description.by_hand.starts_with("1. "), "{}", description.name);
        assert!(description.blocks.0 >= 1 && description.blocks.1 >= description.blocks.0);
        let exact = description.metrics.iter().all(|metric| metric.kind != Kind::Timed);
        assert_eq!(description.blocks == (1, 1), exact, "{}", description.name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "names are given once");
}

/// The mechanism behind the price: only a load by the server that is followed by
/// a checkpoint before the first read pays, and then by three quarters.
#[test]
fn log_grows_only_where_a_checkpoint_precedes_the_first_read() {
    let Some(experiment) = available("e2f") else { return };
    let mut prepared = prepare(experiment);
    let conditions = prepared.conditions();
    let of_15: Vec<_> =
        conditions.iter().filter(|name| name.starts_with("PostgreSQL 15")).collect();
    let chosen = if of_15.is_empty() { conditions.iter().collect() } else { of_15 };
    assert_eq!(chosen.len() % 4, 0, "{chosen:?}");
    for condition in chosen {
        let mut readings = BTreeMap::new();
        for arm in experiment.description().arms {
            readings.insert(arm.name, prepared.measure(condition, arm, 0).unwrap());
        }
        let total = |arm: &str| value(&readings[arm], "wal_total");
        for arm in ["hints", "checksums"] {
            let ratio = total(arm) / total("no-hints");
            let pays = condition.ends_with("server load, checkpoint");
            let expected = if pays { 1.6..=1.9 } else { 0.99..=1.01 };
            assert!(expected.contains(&ratio), "{condition}, {arm}: {ratio}");
        }
        // Hint bits logged cost the same, whatever they are logged for.
        let same = total("hints") / total("checksums");
        assert!((0.999..=1.001).contains(&same), "{condition}: {same}");
        assert!(total("compressed") < total("checksums"), "{condition}");
        assert!(value(&readings["no-hints"], "hint_images").abs() < 0.5, "{condition}");
    }
}

/// What each tool lets pass is asserted as passing: a blind spot that closes
/// should be noticed. Ours has none of them.
#[test]
fn blind_spots_of_the_tools_are_the_known_ones() {
    let Some(experiment) = available("e2g") else { return };
    let mut prepared = prepare(experiment);
    // SELECT, pg_checksums, pg_basebackup, pg_amcheck.
    let known = [
        ("bit flip", [true, true, true, true]),
        ("page zeroed", [false, false, false, false]),
        ("page of random bytes", [true, true, false, true]),
        ("LSN all ones and a bit flip", [true, true, false, true]),
        ("pd_upper zero and a bit flip", [true, false, false, true]),
        ("last 3 pages cut off", [false, false, false, false]),
        ("two pages swapped", [true, true, true, true]),
    ];
    let conditions = prepared.conditions();
    assert_eq!(conditions.len() % known.len(), 0);
    for condition in conditions {
        let fault = condition.split_once(": ").map(|(_, fault)| fault).unwrap();
        let (_, of_tools) = known.iter().find(|(name, _)| *name == fault).unwrap();
        let expected = of_tools.iter().copied().chain([true]);
        for (arm, expected) in experiment.description().arms.iter().zip(expected) {
            let reading = prepared.measure(&condition, arm, 0).unwrap();
            let found = value(&reading, "found") > 0.5;
            assert_eq!(found, expected, "{condition}, {}: {:?}", arm.name, reading.words);
        }
    }
}

#[test]
fn switching_survives_a_kill() {
    let Some(experiment) = available("e2h") else { return };
    let mut prepared = prepare(experiment);
    for condition in prepared.conditions() {
        for arm in experiment.description().arms {
            let reading = prepared.measure(&condition, arm, 0).unwrap();
            // `protect` is a command of pagewarden, whose own tests run this experiment with it.
            if reading.why_unavailable().is_some() {
                assert!(arm.name.starts_with("protect"), "{}: {reading:?}", arm.name);
                continue;
            }
            assert!(value(&reading, "sound") > 0.5, "{condition}, {}: {reading:?}", arm.name);
        }
    }
}

/// Shares on real pages, where theory or the page's design says what they are.
#[test]
fn worth_is_what_the_designs_promise() {
    let Some(experiment) = available("e5") else { return };
    let mut prepared = prepare(experiment);
    let share = |prepared: &mut Box<dyn Prepared>, condition: &str, arm: &str, metric: &str| {
        let arm = experiment.description().arms.iter().find(|one| one.name == arm).unwrap();
        let reading = prepared.measure(condition, arm, 0).unwrap();
        value(&reading, metric) / value(&reading, &format!("{metric}_of"))
    };
    for arm in ["checksum", "postgres", "crc32", "full_crc32", "cksumvfs", "marker-checksum"] {
        let found = share(&mut prepared, "1 bit", arm, "detected");
        // InnoDB's crc32 leaves 12 bytes of the header out; 16 bits miss one in 65535.
        assert!(found > 0.998, "{arm}: {found}");
        assert!(share(&mut prepared, "lost write", arm, "detected").abs() < 1e-9, "{arm}");
    }
    assert!(share(&mut prepared, "1 bit", "torn", "by_sum") < 0.02);
    let two_bits = share(&mut prepared, "2 bits", "checksum", "detected");
    assert!((0.955..0.98).contains(&two_bits), "one in 32 cancels out: {two_bits}");
    assert!(share(&mut prepared, "misplaced page", "cksumvfs", "detected").abs() < 1e-9);
    assert!(share(&mut prepared, "misplaced page", "postgres", "detected") > 0.99);
    assert!((share(&mut prepared, "zeroed page", "none", "detected") - 1.0).abs() < 1e-9);
    assert!(share(&mut prepared, "zeroed page", "postgres", "detected").abs() < 1e-9);
    // Our marker has the page's number and is never zero, in every mode.
    for arm in ["marker-none", "marker-torn", "marker-checksum"] {
        for fault in ["misplaced page", "zeroed page"] {
            let found = share(&mut prepared, fault, arm, "detected");
            assert!((found - 1.0).abs() < 1e-9, "{arm}, {fault}: {found}");
        }
        assert!(share(&mut prepared, "lost write", arm, "detected").abs() < 1e-9, "{arm}");
    }
    assert!(share(&mut prepared, "1 bit", "marker-none", "detected") < 0.01);
    // The marker is of one age and a part of another: eight bits tell them apart.
    assert!(share(&mut prepared, "torn write", "marker-torn", "detected") > 0.99);
}

/// What is found in files of whole databases, each fault by its sum or by other pages.
#[test]
fn structure_finds_in_whole_files_what_sums_do_not() {
    let Some(experiment) = available("e5") else { return };
    let mut prepared = prepare(experiment);
    let arms = experiment.description().arms.iter();
    let mut with_right_sums = Vec::new();
    for arm in arms.filter(|arm| arm.name.contains("-file")) {
        let mut counts = |condition: &str| {
            let reading = prepared.measure(condition, arm, 0).unwrap();
            if let Some(why) = reading.why_unavailable() {
                eprintln!("SKIPPED: {}: {why}", arm.name);
                return None;
            }
            let [all, sum, sum_alone, structure_alone, both, of] = [
                "detected",
                "by_sum",
                "by_sum_alone",
                "by_structure_alone",
                "by_both",
                "by_both_of",
            ]
            .map(|name| value(&reading, name));
            let what = format!("{}, {condition}: {reading:?}", arm.name);
            assert!((sum_alone + structure_alone + both - all).abs() < 1e-9, "{what}");
            assert!((sum_alone + both - sum).abs() < 1e-9 && of > 0.0 && all <= of, "{what}");
            Some((sum / of, (structure_alone + both) / of, all / of))
        };
        let Some((by_sum, _, _)) = counts("1 bit") else { continue };
        assert!((by_sum - 1.0).abs() < 1e-9, "{}: {by_sum}", arm.name);
        // Most of such a page is content, of which no other page knows.
        let (_, _, all) = counts("1 bit, sum made right").unwrap();
        with_right_sums.push(all);
        let (by_sum, by_structure, all) = counts("zeroed page").unwrap();
        assert!(all > 0.0, "{}", arm.name);
        if arm.name == "postgres-files" {
            // Legal for the page itself; other pages tell that it was in use.
            assert!(by_sum.abs() < 1e-9 && by_structure > 0.5, "{by_sum} {by_structure}");
        }
        let (by_sum, by_structure, _) = counts("lost write").unwrap();
        // A page of MariaDB that was empty before is one of zeroes in use.
        assert!(by_sum.abs() < 1e-9 || arm.name == "mariadb-files", "{}: {by_sum}", arm.name);
        assert!(by_structure > 0.0, "{}", arm.name);
    }
    // Few faults of each: one database alone may have all of them found.
    let is_whole = |share: &f64| (share - 1.0).abs() < 1e-9;
    let is_some_missed = with_right_sums.is_empty() || !with_right_sums.iter().all(is_whole);
    assert!(is_some_missed, "{with_right_sums:?}");
}

fn value(reading: &Reading, name: &str) -> f64 {
    *reading.values.get(name).unwrap_or_else(|| panic!("no {name} in {reading:?}"))
}

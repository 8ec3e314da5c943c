//! What is merged is never better than what was checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagewarden::database::{Description, Evidence};
use pagewarden::report::json::JsonReport;
use pagewarden::source::store::ThisMachine;
use pagewarden::verdict::{
    Finding, Kind, Note, PageCounts, Protection, Severity, SeverityCounts, Unread, Verdict,
};
use pagewarden::verify::Summary;
use tempfile::TempDir;

use super::*;
use crate::part::Part;
use crate::plan::Wanted;
use crate::result::ResultWriter;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A plan of three units, each with one target.
fn plan_in(folder: &TempDir) -> Plan {
    let paths: Vec<_> = NAMES.iter().map(|name| folder.path().join(name)).collect();
    Plan::make(&paths, Wanted::default(), 0, &|_| Some(1), &ThisMachine).unwrap()
}

/// What a part found in a unit.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Damage,
    MoreDamage,
    Unread,
    NotThere,
}

use Found::{Damage, MoreDamage, NotThere, Nothing, Unread as NotRead};

fn target(path: &Path, found: Found, elapsed: Duration) -> (Verified, Vec<Finding>) {
    let damage = match found {
        Damage => 1,
        MoreDamage => 2,
        _ => 0,
    };
    let finding = |page: u64| {
        let detail = format!("page {page} is not what was written");
        Finding::of_file("x", Severity::Damage, Kind::Checksum, detail)
    };
    let description = Description {
        path: path.to_owned(),
        format: "sqlite",
        engine: "SQLite".to_owned(),
        page_size: 4096,
        setting: Some(Protection::Checksum),
        state: "as it is".to_owned(),
        evidence: Evidence { tested_by: "sums", unseen: "older versions" },
        live: false,
        epoch: None,
        part: None,
    };
    let mut summary = Summary {
        files: 1,
        pages: PageCounts { ok: 10, damaged: damage, ..PageCounts::default() },
        bytes: 40960,
        severities: SeverityCounts { damage, ..SeverityCounts::default() },
        unread: u64::from(matches!(found, NotRead)),
        elapsed,
        ..Summary::default()
    };
    summary.by_mode.checksum = 10;
    (Verified::of(description, summary), (0..damage).map(finding).collect())
}

/// Tells a report what a check of one target would.
fn tell(report: &mut dyn Report, path: &Path, found: Found, elapsed: Duration) {
    let ended = SystemTime::now();
    if matches!(found, NotThere) {
        return report.failed_target(&path.to_string_lossy(), "it is not there", ended).unwrap();
    }
    let (verified, findings) = target(path, found, elapsed);
    report.begin_target(&verified.description).unwrap();
    report.note(&Note { file: String::new(), text: "by the way".to_owned() }).unwrap();
    findings.iter().for_each(|finding| report.finding(finding).unwrap());
    if matches!(found, NotRead) {
        report.unread(&Unread::of_file("y", "no permission")).unwrap();
    }
    report
        .end_target(&TargetEnd { verified: &verified, overall: None, listed_bytes: None, ended })
        .unwrap();
}

/// The result of a part that found this in these units.
fn result(plan: &Plan, found: &[(usize, Found)], seconds: u64) -> Vec<u8> {
    let mut writer = ResultWriter::begin(Vec::new(), plan, Part::WHOLE).unwrap();
    for (unit, found) in found {
        writer.begin_unit(*unit as u64);
        writer.begin_subject(0).unwrap();
        let path = plan.units[*unit].subjects[0].name();
        tell(&mut writer, path, *found, Duration::from_secs(seconds));
        writer.end_unit().unwrap();
    }
    writer.end_result().unwrap()
}

/// The verdict, the failures and the JSON of merged results.
fn merged(folder: &TempDir, plan: &Plan, results: &[&[u8]]) -> (Verdict, Vec<String>, String) {
    let paths: Vec<PathBuf> =
        (0..results.len()).map(|one| folder.path().join(format!("result-{one}"))).collect();
    for (path, bytes) in paths.iter().zip(results) {
        fs::write(path, bytes).unwrap();
    }
    let mut out = Vec::new();
    let mut report = JsonReport::begin(&mut out, "check").unwrap();
    let (mut verdict, mut failures) = (Verdict::Intact, Vec::new());
    let merge = Merge::of(plan.clone(), &paths);
    merge
        .report(&mut report, &mut |outcome| match outcome {
            Outcome::Verified(verified) => verdict = verdict.min(verified.verdict()),
            Outcome::Failed { error, .. } => {
                verdict = verdict.min(Verdict::Incomplete);
                failures.push(error.to_owned());
            }
        })
        .unwrap();
    drop(report);
    (verdict, failures, String::from_utf8(out).unwrap())
}

#[test]
fn merged_rows_are_those_of_one_check() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let all = [(0, Damage), (1, NotRead), (2, NotThere)];
    let mut expected = Vec::new();
    let mut report = JsonReport::begin(&mut expected, "check").unwrap();
    for (unit, found) in all {
        let path = plan.units[unit].subjects[0].name();
        tell(&mut report, path, found, Duration::from_secs(7));
    }
    drop(report);
    // In any order, and over any files.
    let one = result(&plan, &[all[2], all[0]], 7);
    let two = result(&plan, &[all[1]], 7);
    let (verdict, failures, json) = merged(&folder, &plan, &[&two, &one]);
    assert_eq!(json.as_bytes(), expected);
    assert_eq!((verdict, failures.len()), (Verdict::Damaged, 1));
}

#[test]
fn a_unit_without_result_is_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let whole = result(&plan, &[(0, Nothing), (1, Nothing), (2, Nothing)], 1);
    assert_eq!(merged(&folder, &plan, &[&whole]).0, Verdict::Intact);
    let some = result(&plan, &[(0, Nothing), (2, Nothing)], 1);
    let (verdict, failures, _) = merged(&folder, &plan, &[&some]);
    assert_eq!(verdict, Verdict::Incomplete);
    assert!(failures[0].contains("/b: no result"), "{failures:?}");
    assert_eq!(merged(&folder, &plan, &[]).0, Verdict::Incomplete);
    // Damage elsewhere is damage all the same.
    let damaged = result(&plan, &[(2, Damage)], 1);
    assert_eq!(merged(&folder, &plan, &[&damaged]).0, Verdict::Damaged);
}

#[test]
fn a_unit_that_was_begun_and_did_not_end_has_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let mut writer = ResultWriter::begin(Vec::new(), &plan, Part::WHOLE).unwrap();
    writer.begin_unit(1);
    writer.begin_subject(0).unwrap();
    tell(&mut writer, plan.units[1].subjects[0].name(), Nothing, Duration::ZERO);
    let stopped = writer.end_result().unwrap();
    let others = result(&plan, &[(0, Nothing), (2, Nothing)], 1);
    let (verdict, failures, _) = merged(&folder, &plan, &[&stopped, &others]);
    assert_eq!((verdict, failures.len()), (Verdict::Incomplete, 1), "{failures:?}");
}

#[test]
fn the_same_result_twice_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let all = [(0, Nothing), (1, Damage), (2, Nothing)];
    let (one, retry) = (result(&plan, &all, 1), result(&plan, &all, 99));
    assert_ne!(one, retry);
    let expected = merged(&folder, &plan, &[&one]);
    for results in [&[&one[..], &one][..], &[&one, &retry], &[&one, &retry, &one]] {
        assert_eq!(merged(&folder, &plan, results), expected);
    }
}

#[test]
fn of_two_results_that_contradict_each_other_the_damaged_one_counts() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let rest = result(&plan, &[(1, Nothing), (2, Nothing)], 1);
    let of = |found| result(&plan, &[(0, found)], 1);
    for (graver, lighter, verdict) in [
        (Damage, Nothing, Verdict::Damaged),
        (Damage, NotRead, Verdict::Damaged),
        (Damage, NotThere, Verdict::Damaged),
        (MoreDamage, Damage, Verdict::Damaged),
        (NotRead, Nothing, Verdict::Incomplete),
        (NotThere, Nothing, Verdict::Incomplete),
    ] {
        let (graver, lighter) = (of(graver), of(lighter));
        let alone = merged(&folder, &plan, &[&graver, &rest]);
        for results in
            [[&graver[..], &lighter, &rest], [&lighter, &graver, &rest], [&rest, &lighter, &graver]]
        {
            let (found, failures, json) = merged(&folder, &plan, &results);
            assert_eq!(found, verdict);
            assert!(failures.iter().any(|text| text.contains("contradict")), "{failures:?}");
            assert_eq!(json, alone.2, "the graver one is reported");
        }
    }
    // A majority proves nothing.
    let (graver, lighter) = (of(Damage), of(Nothing));
    let results: [&[u8]; 4] = [&lighter, &graver, &lighter, &rest];
    assert_eq!(merged(&folder, &plan, &results).0, Verdict::Damaged);
}

#[test]
fn a_result_with_any_bit_flipped_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let path = folder.path().join("altered");
    let bytes = result(&plan, &[(0, Nothing), (2, Damage)], 1);
    fs::write(&path, &bytes).unwrap();
    ResultFile::read(&path, &plan).unwrap();
    for at in 0..bytes.len() {
        // Each bit of what sums it up, and one of each byte before.
        let bits = if bytes.len() - at <= 200 { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            let mut altered = bytes.clone();
            altered[at] ^= 1 << bit;
            fs::write(&path, &altered).unwrap();
            let read = ResultFile::read(&path, &plan);
            assert!(read.is_err(), "bit {bit} of byte {at} of {}", bytes.len());
        }
    }
}

#[test]
fn a_result_with_lines_lost_added_or_swapped_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let bytes = result(&plan, &[(0, Damage), (1, Nothing), (2, Damage)], 1);
    let path = folder.path().join("altered");
    let refused = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        ResultFile::read(&path, &plan).unwrap_err();
    };
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for one in 0..lines.len() {
        let mut lost = lines.clone();
        lost.remove(one);
        refused(lost.concat());
        let mut twice = lines.clone();
        twice.insert(one, lines[one]);
        refused(twice.concat());
        if one > 0 && lines[one] != lines[one - 1] {
            let mut swapped = lines.clone();
            swapped.swap(one, one - 1);
            refused(swapped.concat());
        }
    }
    (0..bytes.len()).for_each(|end| refused(bytes[..end].to_vec()));
    refused([&bytes[..], b"{}\n"].concat());
}

#[test]
fn a_refused_result_is_never_good_even_if_every_unit_has_another() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan_in(&folder);
    let whole = result(&plan, &[(0, Nothing), (1, Nothing), (2, Nothing)], 1);
    let other =
        Plan::make(&[folder.path().join("a")], Wanted::default(), 0, &|_| Some(1), &ThisMachine)
            .unwrap();
    let foreign = result(&other, &[(0, Nothing)], 1);
    let mut altered = result(&plan, &[(0, Damage)], 1);
    *altered.last_mut().unwrap() = b' ';
    let strange = [
        (&foreign[..], "another plan"),
        (&altered, "cut off"),
        (b"", "no result"),
        (b"\xff\n", "no result"),
    ];
    for (result, says) in strange {
        let (verdict, failures, _) = merged(&folder, &plan, &[&whole, result]);
        assert_eq!((verdict, failures.len()), (Verdict::Incomplete, 1), "{failures:?}");
        assert!(failures[0].contains(says) && failures[0].contains("hint: "), "{failures:?}");
    }
    let merge = Merge::of(plan, &[folder.path().join("none")]);
    let mut failures = Vec::new();
    let mut nowhere = JsonReport::begin(Vec::new(), "check").unwrap();
    merge.report(&mut nowhere, &mut |outcome| failures.push(format!("{outcome:?}"))).unwrap();
    assert!(failures[3].contains("No such file"), "{failures:?}");
}

/// One process must not be able to leave out a database of a unit with several.
#[test]
fn a_result_without_a_subject_of_its_unit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = NAMES.iter().map(|name| folder.path().join(name)).collect();
    let plan = Plan::make(&paths, Wanted::default(), 1 << 20, &|_| Some(1), &ThisMachine).unwrap();
    assert_eq!((plan.units.len(), plan.units[0].subjects.len()), (1, 3));
    let bytes = result(&plan, &[(0, Nothing)], 1);
    assert_eq!(merged(&folder, &plan, &[&bytes]).0, Verdict::Incomplete);
}

//! One check in several processes: `plan`, `check --plan` and `merge`, against `check` itself.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::{any_installation, sample};
use crate::damage::{Damage, Dice, Wound};
use crate::pgbackrest::repository;
use crate::runner::{Outcome, Report, check, pagewarden, run};

/// Where plans and results are, and the words that plan.
struct Split {
    folder: TempDir,
}

impl Split {
    /// Plans what the words say.
    fn of<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Self {
        let split = Self { folder: tempfile::tempdir().unwrap() };
        let outcome = run(pagewarden().arg("plan").args(words).arg("-o").arg(split.plan()));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(outcome.stdout.starts_with("Planned "), "{}", outcome.stdout);
        split
    }

    fn plan(&self) -> PathBuf {
        self.folder.path().join("plan.jsonl")
    }

    fn result(&self, part: usize) -> PathBuf {
        self.folder.path().join(format!("{part}.jsonl"))
    }

    /// Checks one part.
    fn part(&self, part: usize, of: usize) -> Outcome {
        run(pagewarden()
            .args(["check", "--json", "--plan"])
            .arg(self.plan())
            .args(["--part", &format!("{part}/{of}"), "-o"])
            .arg(self.result(part)))
    }

    /// Checks all parts.
    fn parts(&self, of: usize) -> Vec<PathBuf> {
        (1..=of).for_each(|part| {
            let outcome = self.part(part, of);
            assert!(matches!(outcome.status, Some(0..=2)), "{outcome:?}");
            serde_json::from_str::<Value>(&outcome.stdout).unwrap();
        });
        (1..=of).map(|part| self.result(part)).collect()
    }

    fn merge(&self, words: &[&str], results: &[PathBuf]) -> Outcome {
        run(pagewarden().arg("merge").args(words).arg(self.plan()).args(results))
    }
}

/// All that must be the same; the message of a failure, too.
fn timeless(outcome: &Outcome) -> (Option<i32>, Value) {
    (outcome.status, outcome.report().timeless())
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Damages the fifth page of [`golden`] databases of SQLite, which is in use.
fn spoil(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[4 * 512 + 100..][..64].fill(0x5A);
    fs::write(path, bytes).unwrap();
}

/// Databases of several kinds, one of them damaged, one cut off, one that is none.
fn several_databases() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let sqlite = golden("sqlite/3.40.1/cksumvfs-512.db");
    for name in ["a.sqlite", "below/b.sqlite", "below/c.sqlite"] {
        fs::copy(&sqlite, folder.path().join(name)).unwrap();
    }
    spoil(&below.join("b.sqlite"));
    fs::write(below.join("d.sqlite"), "none at all").unwrap();
    fs::write(folder.path().join("notes.txt"), "nothing of interest").unwrap();
    folder
}

#[test]
fn merged_parts_print_and_exit_as_one_check_does() {
    let databases = several_databases();
    let missing = databases.path().join("missing.mdf");
    let named = [databases.path(), &missing];
    let expected = check(named);
    assert_eq!(expected.status, Some(1));
    let targets = expected.report().json["targets"].as_array().unwrap().len();
    assert_eq!(targets, 3, "{}", expected.stdout);
    for (unit, parts) in [("1B", 1), ("1B", 3), ("1B", 9), ("128MiB", 2), ("200KiB", 2)] {
        let split = Split::of(
            ["--unit", unit].map(OsStr::new).into_iter().chain(named.map(Path::as_os_str)),
        );
        let mut results = split.parts(parts);
        results.reverse();
        let merged = split.merge(&["--json"], &results);
        assert_eq!(timeless(&merged), timeless(&expected), "{unit} {parts}");
    }
    let split = Split::of(named);
    let results = split.parts(1);
    // Other ways to print and to exit.
    let text = run(pagewarden().arg("check").args(named));
    let merged = split.merge(&[], &results);
    let without_time = |outcome: &Outcome| {
        let text = outcome.stdout.split(" in ").next().unwrap().to_owned();
        (outcome.status, text, outcome.stderr.clone())
    };
    assert_eq!(without_time(&merged), without_time(&text));
    let nagios = split.merge(&["--nagios"], &results);
    assert_eq!(nagios.status, Some(2), "{nagios:?}");
    assert!(nagios.stdout.contains("CRITICAL"), "{nagios:?}");
    let metrics = split.folder.path().join("pagewarden.prom");
    split.merge(&["--metrics", metrics.to_str().unwrap()], &results);
    assert!(fs::read_to_string(metrics).unwrap().contains("pagewarden_"));
}

#[test]
fn sound_and_suspect_databases_exit_as_asked_for() {
    let sound = golden("sqlite/3.40.1/cksumvfs-512.db");
    let split = Split::of([&sound]);
    let results = split.parts(2);
    assert_eq!(timeless(&split.merge(&["--json"], &results)), timeless(&check([&sound])));
    assert_eq!(split.merge(&["--json", "--min-protected", "100%"], &results).status, Some(0));
    // A database whose pages have no sums.
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare.sqlite");
    let mut bytes = fs::read(&sound).unwrap();
    // Without room for sums at the end of its pages it carries none; its pages no longer fit, too.
    bytes[20] = 0;
    fs::write(&bare, bytes).unwrap();
    let strict = ["--json", "--require-protection"];
    let expected = run(pagewarden().args(["check"]).args(strict).arg(&bare));
    let split = Split::of([&bare]);
    let results = split.parts(1);
    assert_eq!(timeless(&split.merge(&strict, &results)), timeless(&expected));
}

#[test]
fn a_cluster_is_one_unit_and_is_judged_as_a_whole() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let mut dice = Dice::seeded();
    let item = Wound::to(root.join(sample.file("item")));
    let _item = item.inflict(Damage::BitInTuple, &mut dice, 3);
    // Only the catalogue knows that it must be there.
    let _gone = Wound::to(root.join(sample.file("wide_toast"))).remove();
    let expected = check([root]);
    let kinds: Vec<_> = expected.report().findings().into_iter().map(|one| one.kind).collect();
    assert!(kinds.contains(&"missing".to_owned()), "{kinds:?}");
    let split = Split::of([root]);
    let results = split.parts(2);
    assert_eq!(timeless(&split.merge(&["--json"], &results)), timeless(&expected));
    let findings = |outcome: &Outcome| {
        let at = outcome.stdout.find("\"findings\":").unwrap();
        let end = outcome.stdout.find("\"unread\":").unwrap();
        outcome.stdout[at..end].to_owned()
    };
    let merged = split.merge(&["--json"], &results);
    assert_eq!(findings(&merged), findings(&expected), "byte by byte");
    // What decides how it is judged is in the plan.
    let expected = check([OsStr::new("--no-witness"), root.as_os_str()]);
    let split = Split::of([OsStr::new("--no-witness"), root.as_os_str()]);
    let results = split.parts(1);
    assert_eq!(timeless(&split.merge(&["--json"], &results)), timeless(&expected));
}

#[test]
fn sets_and_log_of_a_repository_come_back_as_they_were() {
    for name in ["pgbackrest-2.60-block-zst-pageerror", "pgbackrest-2.60-zst"] {
        let Some((repository, _)) = repository(name) else { return };
        let expected = check([&repository]);
        let targets = expected.report().json["targets"].clone();
        assert!(targets.as_array().unwrap().iter().any(|one| one.get("backup").is_some()));
        let split = Split::of([&repository]);
        let results = split.parts(1);
        assert_eq!(timeless(&split.merge(&["--json"], &results)), timeless(&expected), "{name}");
    }
}

#[test]
fn a_passphrase_is_in_no_plan_and_no_result() {
    let Some((repository, pass)) = repository("pgbackrest-2.60-bundle-gz-cipher") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pass");
    fs::write(&file, &pass).unwrap();
    let option = [OsStr::new("--cipher-pass-file"), file.as_os_str()];
    let split = Split::of(option.into_iter().chain([repository.as_os_str()]));
    let results = split.parts(1);
    let merged = split.merge(&["--json"], &results);
    assert_eq!(merged.status, Some(0), "{merged:?}");
    for path in [&split.plan(), &results[0]] {
        assert!(!fs::read_to_string(path).unwrap().contains(&pass), "{}", path.display());
    }
}

#[test]
fn a_missing_altered_or_foreign_result_is_never_good() {
    let folder = tempfile::tempdir().unwrap();
    let sound = golden("sqlite/3.40.1/cksumvfs-512.db");
    let paths: Vec<_> = ["a", "b"].map(|name| folder.path().join(name)).into_iter().collect();
    for path in &paths {
        fs::copy(&sound, path).unwrap();
    }
    let words = |paths: &[PathBuf]| {
        let unit = ["--unit", "1B"].map(PathBuf::from);
        unit.iter().chain(paths).cloned().collect::<Vec<_>>()
    };
    let split = Split::of(words(&paths));
    let results = split.parts(2);
    assert_eq!(split.merge(&["--json"], &results).status, Some(0));
    // Twice the same.
    let again = [&results[..], &results[..1]].concat();
    assert_eq!(
        timeless(&split.merge(&["--json"], &again)),
        timeless(&split.merge(&["--json"], &results))
    );
    let incomplete = |results: &[PathBuf], says: &str| {
        let merged = split.merge(&["--json"], results);
        assert_eq!((merged.status, merged.report().verdict()), (Some(2), "incomplete"));
        assert!(merged.stderr.contains(says) && merged.stderr.contains("hint: "), "{merged:?}");
        let failed = merged.report().json["failed"].as_array().unwrap().len();
        assert_eq!(failed, 1, "{merged:?}");
    };
    incomplete(&results[..1], "no result of its unit");
    let mut bytes = fs::read(&results[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let altered = split.folder.path().join("altered.jsonl");
    fs::write(&altered, bytes).unwrap();
    incomplete(&[&results[..], &[altered]].concat(), "altered");
    let other = Split::of(words(&paths[..1]));
    let foreign = other.parts(1).remove(0);
    incomplete(&[&results[..], &[foreign]].concat(), "another plan");
    // A retry that sees damage.
    let first = split.folder.path().join("first.jsonl");
    fs::copy(&results[0], &first).unwrap();
    spoil(&paths[0]);
    assert_eq!(split.part(1, 2).status, Some(1));
    for results in [[&results[0], &first, &results[1]], [&first, &results[0], &results[1]]] {
        let merged = split.merge(&["--json"], &results.map(PathBuf::clone));
        assert_eq!((merged.status, merged.report().verdict()), (Some(1), "damaged"));
        assert!(merged.stderr.contains("contradict"), "{merged:?}");
    }
    let no_plan = run(pagewarden().args(["merge", "--json"]).arg(&first).args(&results));
    assert_eq!(no_plan.status, Some(2));
    assert!(no_plan.stderr.contains("no plan"), "{no_plan:?}");
}

#[test]
fn a_file_that_changed_since_it_was_planned_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sqlite");
    fs::copy(golden("sqlite/3.40.1/cksumvfs-512.db"), &path).unwrap();
    let split = Split::of([&path]);
    let notes = |report: &Report| report.target()["notes"].to_string();
    let before = split.merge(&["--json"], &split.parts(1));
    assert!(!notes(&before.report()).contains("planned"));
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([0; 512]);
    fs::write(&path, bytes).unwrap();
    let after = split.merge(&["--json"], &split.parts(1));
    assert!(notes(&after.report()).contains("it changed since it was planned"), "{after:?}");
    let text = split.merge(&[], &split.parts(1));
    assert!(text.stdout.contains("it changed since it was planned"), "{text:?}");
}

#[test]
fn what_cannot_be_planned_or_run_is_refused_with_a_hint() {
    let folder = several_databases();
    let path = folder.path();
    let out = tempfile::tempdir().unwrap();
    let output = out.path().join("x");
    let refused = |words: &[&OsStr], says: &str| {
        let outcome = run(pagewarden().args(words));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(says), "{says}: {outcome:?}");
    };
    let os = OsStr::new;
    let inside = path.join("plan");
    refused(&[os("plan"), path.as_os_str(), os("-o"), inside.as_os_str()], "only read");
    refused(&[os("plan"), os("-"), os("-o"), output.as_os_str()], "standard input");
    let database = path.join("a.sqlite");
    refused(&[os("plan"), os("/usr"), os("-o"), database.as_os_str()], "no report of pagewarden");
    let run_part = [os("check"), os("--plan"), database.as_os_str(), os("-o"), output.as_os_str()];
    refused(&run_part, "no plan");
    refused(&[os("check"), os("--plan"), output.as_os_str()], "--output");
    refused(&[&run_part[..], &[path.as_os_str()]].concat(), "cannot be used with");
    refused(&[&run_part[..], &[os("--part"), os("3/2")]].concat(), "1/N to N/N");
    assert!(!output.exists());
}

//! `pagewarden scrub` and `status`: what is claimed was read, whatever ends a run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::{any_installation, sample};
use crate::damage::{Damage, Dice, Wound};
use crate::pgbackrest;
use crate::runner::{OrdinaryUser, Outcome, Report, Started, pagewarden, run};
use crate::sqlite::{has_shell, shell};

/// A folder with a state folder, and a database of pages that carry sums.
struct Place {
    folder: TempDir,
}

/// What was written within a tick of the clock is read again, since its times do not say yet whether
/// it was changed once more. So nothing is scrubbed before it is older than that.
fn grow_old() {
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// A database of `pages` pages of 4 KiB and a few more, all with sums.
pub fn make_summed(path: &Path, pages: u64) {
    let bytes = pages * 4096;
    shell(
        path.parent().unwrap(),
        &format!(
            "ATTACH '{}' AS d; PRAGMA d.page_size = 4096; CREATE TABLE d.t (a);
             INSERT INTO d.t VALUES (randomblob({bytes}));",
            path.display()
        ),
    );
    let protect = run(pagewarden().args(["protect", "--mode", "checksum"]).arg(path));
    assert_eq!(protect.status, Some(0), "{protect:?}");
}

impl Place {
    /// With a SQLite database of `pages` pages and a few more, if the shell is here.
    fn with_sqlite(pages: u32) -> Option<Self> {
        if !has_shell() {
            return None;
        }
        let place = Self::empty();
        make_summed(&place.database(), u64::from(pages));
        grow_old();
        Some(place)
    }

    fn empty() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("shop.sqlite")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn command<W: AsRef<OsStr>>(&self, command: &str, words: &[W]) -> Command {
        let mut it = pagewarden();
        it.env("XDG_CONFIG_HOME", self.folder.path().join("none")).arg(command);
        it.arg("--state").arg(self.state()).args(words);
        it
    }

    fn scrub<W: AsRef<OsStr>>(&self, words: &[W], path: &Path) -> Outcome {
        grow_old();
        run(self.command("scrub", words).arg("--json").arg(path))
    }

    fn status(&self) -> Value {
        let outcome = run(self.command("status", &["--json"]).arg("-q"));
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
        json["targets"][0].clone()
    }

    fn verified(&self) -> u64 {
        self.status()["coverage"]["verified"].as_u64().unwrap_or(0)
    }
}

fn coverage(report: &Report) -> &Value {
    &report.target()["coverage"]
}

/// Damages every page but the first; returns how many.
fn damage_all_pages(path: &Path) -> u64 {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in 1..pages {
        let mut byte = [0];
        file.read_exact_at(&mut byte, page * 4096 + 1000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], page * 4096 + 1000).unwrap();
    }
    pages - 1
}

#[test]
fn killed_scrub_claims_nothing_that_it_did_not_read_and_is_resumed() {
    let Some(place) = Place::with_sqlite(3000) else { return };
    // Every page that was read leaves a finding, so that findings tell what was read.
    let damaged = damage_all_pages(&place.database());
    let slow = ["--every", "1d", "--rate", "1MiB/s"];
    let mut dice = Dice::seeded();
    let mut before = 0;
    for round in 0..6 {
        let mut started = Started::spawn(place.command("scrub", &slow).arg(place.database()));
        // Not before it has come on, and then at any moment.
        let enough = before + 1 + dice.next() % 60;
        let is_made = || place.state().join("ledger.sqlite").exists();
        while started.is_running() && !(is_made() && place.verified() >= enough) {}
        started.signal(Signal::KILL);
        started.wait();
        let status = place.status();
        let verified = status["coverage"]["verified"].as_u64().unwrap();
        let findings = status["open_findings"].as_u64().unwrap();
        assert!(verified >= enough, "round {round}: {verified} of {enough}");
        assert_eq!(findings + 1, verified, "round {round}: every page that is claimed was read");
        before = verified;
        // On a slow machine it comes further.
        if before > damaged / 2 {
            break;
        }
    }
    // Resumed, it reads what is left and nothing else.
    let outcome = place.scrub(&["--every", "1d"], &place.database());
    assert_eq!(outcome.status, Some(1));
    let report = outcome.report();
    assert_eq!(coverage(&report)["pass_complete"], true);
    assert_eq!(coverage(&report)["verified"], damaged + 1);
    assert_eq!(report.pages("total"), damaged + 1 - before);
    assert_eq!(report.findings().len() as u64, damaged, "of all runs of the pass");
}

#[test]
fn a_budget_ends_a_run_and_the_next_one_resumes() {
    let Some(place) = Place::with_sqlite(1000) else { return };
    let all = fs::metadata(place.database()).unwrap().len() / 4096;
    let mut sum = 0;
    let first = place.scrub(&["--budget", "1s", "--rate", "1MiB/s"], &place.database());
    assert_eq!(first.status, Some(3), "{first:?}");
    let report = first.report();
    assert_eq!((report.verdict(), &report.json["command"]), ("incomplete", &"scrub".into()));
    assert_eq!(coverage(&report)["pass_complete"], false);
    assert_eq!(coverage(&report)["pages"], all);
    sum += report.pages("total");
    let second = place.scrub::<&str>(&[], &place.database());
    assert_eq!(second.status, Some(0), "{second:?}");
    let report = second.report();
    sum += report.pages("total");
    assert_eq!(coverage(&report)["verified"], all);
    assert_eq!(coverage(&report)["pass_complete"], true);
    assert!(sum <= all + 64, "{sum} pages read of {all}");
    // A machine may be too slow to have read anything in that time.
    let notes = report.target()["notes"].to_string();
    assert_eq!(notes.contains("only a part of the files"), report.pages("total") < all, "{notes}");
    // Nothing is due any more, and nothing is read.
    let third = place.scrub::<&str>(&[], &place.database()).report();
    assert_eq!((third.pages("total"), third.json["bytes"].as_u64()), (0, Some(0)));
    assert_eq!((third.verdict(), &coverage(&third)["verified"]), ("intact", &all.into()));
    // With another promise it is.
    let fourth = place.scrub(&["--every", "0s"], &place.database()).report();
    assert_eq!(fourth.pages("total"), all);
}

#[test]
fn a_finding_stays_open_until_its_page_is_seen_sound() {
    let Some(place) = Place::with_sqlite(300) else { return };
    let path = place.database();
    let sound = fs::read(&path).unwrap();
    assert_eq!(place.scrub::<&str>(&[], &path).status, Some(0));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[sound[80 * 4096 + 9] ^ 1], 80 * 4096 + 9).unwrap();
    // The file was changed, and so is due.
    let found = place.scrub::<&str>(&[], &path);
    assert_eq!(found.status, Some(1));
    assert_eq!(found.report().findings().len(), 1);
    // It is read again at every run, though nothing else is due.
    let again = place.scrub::<&str>(&[], &path);
    assert_eq!((again.status, again.report().findings().len()), (Some(1), 1));
    let status = place.status();
    assert_eq!((&status["verdict"], &status["open_findings"]), (&"damaged".into(), &1.into()));
    let line = run(&mut place.command("status", &["--nagios"]));
    assert_eq!(line.status, Some(2));
    assert!(line.stdout.starts_with("PAGEWARDEN CRITICAL - 1 damaged"), "{}", line.stdout);
    file.write_all_at(&sound[80 * 4096 + 9..80 * 4096 + 10], 80 * 4096 + 9).unwrap();
    let mended = place.scrub::<&str>(&[], &path);
    assert_eq!(mended.status, Some(0), "{mended:?}");
    assert_eq!(mended.report().findings(), []);
    let prom = place.folder.path().join("out.prom");
    let metrics = run(place.command("status", &["-q", "--metrics"]).arg(&prom));
    assert_eq!(metrics.status, Some(0), "{metrics:?}");
    let text = fs::read_to_string(prom).unwrap();
    let sample = |name: &str| {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(sample("pagewarden_findings_total{"), "1");
    assert_eq!(sample("pagewarden_open_findings{"), "0");
    assert_eq!(sample("pagewarden_pass_coverage_ratio{"), "1");
    assert_eq!(sample("pagewarden_pass_overdue{"), "0");
}

#[test]
fn files_that_were_replaced_or_are_gone_are_claimed_no_more() {
    let Some(place) = Place::with_sqlite(200) else { return };
    let path = place.database();
    let all = fs::metadata(&path).unwrap().len() / 4096;
    assert_eq!(place.scrub::<&str>(&[], &path).status, Some(0));
    // Another file of the same length and with the same time of its content.
    let other = place.folder.path().join("other");
    fs::copy(&path, &other).unwrap();
    let times = fs::metadata(&path).unwrap();
    fs::File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(times.modified().unwrap())
        .unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(place.scrub::<&str>(&[], &path).report().pages("total"), all);
    // Grown: a page that was never written.
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.set_len((all + 1) * 4096).unwrap();
    let grown = place.scrub::<&str>(&[], &path).report();
    assert_eq!(coverage(&grown)["pages"], all + 1);
    assert_eq!(coverage(&grown)["verified"], all + 1);
    fs::remove_file(&path).unwrap();
    let gone = place.scrub::<&str>(&[], &path);
    assert_eq!(gone.status, Some(2), "{gone:?}");
    let status = place.status();
    assert_eq!(status["verdict"], "incomplete");
    assert!(status["error"].as_str().unwrap().contains("cannot open"), "{status}");
}

#[test]
fn a_second_scrub_of_the_same_state_is_refused() {
    let Some(place) = Place::with_sqlite(6000) else { return };
    let slow = ["--rate", "1MiB/s", "-q"];
    let mut started = Started::spawn(place.command("scrub", &slow).arg(place.database()));
    while started.is_running() && !place.state().join("ledger.sqlite").exists() {}
    let second = place.scrub::<&str>(&[], &place.database());
    assert_eq!(second.status, Some(2), "{second:?}");
    assert!(second.stderr.contains("is held by scrub (process "), "{}", second.stderr);
    let json: Value = serde_json::from_str(&second.stdout).unwrap();
    assert!(json["error"].as_str().unwrap().contains("held by scrub"));
    started.signal(Signal::TERM);
    assert_eq!(started.wait().status, Some(3));
}

#[test]
fn whole_clusters_are_scrubbed_with_what_their_files_say_of_one_another() {
    let Some(installation) = any_installation() else { return };
    let place = Place::empty();
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let first = place.scrub::<&str>(&[], root);
    assert_eq!(first.status, Some(0), "{first:?}");
    let report = first.report();
    let check = crate::runner::check([root]).report();
    assert_eq!(report.target()["pages"], check.target()["pages"]);
    assert_eq!(report.target()["by_mode"], check.target()["by_mode"]);
    assert_eq!(coverage(&report)["verified"], check.pages("total"));
    assert_eq!(coverage(&report)["pages"], check.pages("total"));
    assert_eq!(coverage(&report)["pass_complete"], true);
    let mut dice = Dice::seeded();
    let wound = Wound::to(root.join(sample.file("item"))).inflict(Damage::Noise, &mut dice, 7);
    // Only the file that was changed is read.
    let found = place.scrub::<&str>(&[], root).report();
    assert_eq!((found.verdict(), found.target()["files"].as_u64()), ("damaged", Some(1)));
    drop(wound);
    let mended = place.scrub::<&str>(&[], root).report();
    assert_eq!((mended.verdict(), mended.findings()), ("intact", vec![]));
}

/// Damages page 1 of a table, and mends it the next time.
fn flip(table: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(table).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 8192 + 4000).unwrap();
    file.write_all_at(&[!byte[0]], 8192 + 4000).unwrap();
}

/// Between two passes, too, and findings do not end with what cannot be seen any more.
#[test]
fn files_that_a_cluster_loses_are_missed_at_once() {
    let Some(installation) = any_installation() else { return };
    let place = Place::empty();
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir();
    let table = root.join(sample.file("item"));
    let folder = table.parent().unwrap().to_owned();
    let aside = place.folder.path().join("aside");
    let scrub = || {
        let outcome = place.scrub::<&str>(&[], root);
        (outcome.status, outcome.report())
    };
    assert_eq!(scrub().0, Some(0));
    for lost in [&table, &folder] {
        // Damage that is known must not be taken for mended.
        flip(&table);
        assert_eq!(scrub().0, Some(1), "{}", lost.display());
        fs::rename(lost, &aside).unwrap();
        for round in 0..2 {
            let (status, report) = scrub();
            let what = format!("{} {round}: {:?}", lost.display(), report.details());
            assert_eq!((status, report.verdict()), (Some(1), "damaged"), "{what}");
            assert!(report.serious().iter().any(|it| it.kind == "missing"), "{what}");
        }
        fs::rename(&aside, lost).unwrap();
        assert_eq!(scrub().0, Some(1), "{}: it is there again, with its damage", lost.display());
        flip(&table);
        // What files say of one another is asked when all are read.
        let outcome = place.scrub(&["--every", "0s"], root);
        let ended = (outcome.status, outcome.report().findings());
        assert_eq!(ended, (Some(0), vec![]), "{}", lost.display());
    }
    // Of a database at rest no page goes by itself.
    let file = fs::OpenOptions::new().write(true).open(&table).unwrap();
    file.set_len(file.metadata().unwrap().len() - 8192).unwrap();
    let (_, report) = scrub();
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("all is read again"), "{notes}");
}

/// A folder that cannot be looked into is not an empty one.
#[test]
fn what_lies_in_a_folder_that_is_closed_is_not_verified_and_its_findings_stay() {
    let Some(installation) = any_installation() else { return };
    let place = Place::empty();
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir();
    let table = root.join(sample.file("item"));
    let folder = table.parent().unwrap().to_owned();
    flip(&table);
    assert_eq!(place.scrub::<&str>(&[], root).status, Some(1));
    // To root no folder is closed; one that is a link to itself is.
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).unwrap();
    std::os::unix::fs::symlink(&folder, &folder).unwrap();
    for round in 0..2 {
        let outcome = place.scrub::<&str>(&[], root);
        let report = outcome.report();
        let what = format!("{round}: {:?} {:?}", report.unread(), report.details());
        assert_ne!(report.verdict(), "intact", "{what}");
        assert!(!report.unread().is_empty() || !report.serious().is_empty(), "{what}");
        assert!(place.status()["verdict"] != "intact", "{what}");
    }
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    assert_eq!(place.scrub::<&str>(&[], root).status, Some(1), "the page is as damaged as before");
}

#[test]
fn configuration_names_what_is_scrubbed_and_its_mistakes_have_a_line() {
    let Some(place) = Place::with_sqlite(50) else { return };
    let config = place.folder.path().join("pagewarden.toml");
    fs::write(&config, "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\nevry = \"1d\"\n")
        .unwrap();
    let wrong = run(place.command("scrub", &["--config"]).arg(&config));
    assert_eq!(wrong.status, Some(2));
    assert!(wrong.stderr.contains("pagewarden.toml:4: unknown field `evry`"), "{}", wrong.stderr);
    fs::write(&config, "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\nevery = \"1d\"\n")
        .unwrap();
    let status = |place: &Place| {
        let outcome = run(place.command("status", &["--json", "--config"]).arg(&config));
        serde_json::from_str::<Value>(&outcome.stdout).unwrap()
    };
    let before = status(&place);
    assert_eq!(before["targets"][0]["state"], "never");
    assert_eq!(before["verdict"], "incomplete");
    let all = run(place.command("scrub", &["--json", "--config"]).arg(&config));
    assert_eq!(all.status, Some(0), "{all:?}");
    let named = run(place.command("scrub", &["--config"]).arg(&config).arg("shop"));
    assert_eq!(named.status, Some(0), "{named:?}");
    assert!(named.stdout.contains("nothing was due"), "{}", named.stdout);
    let after = status(&place);
    let target = &after["targets"][0];
    assert_eq!((&target["name"], &target["verdict"]), (&"shop".into(), &"intact".into()));
    assert_eq!(target["coverage"]["every_seconds"], 86_400);
    assert!(target["last_pass"]["finished"].is_string() && target["next_run"].is_string());
    let unknown = run(place.command("scrub", &["--config"]).arg(&config).arg("shoop"));
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.stderr.contains("the names are shop"), "{}", unknown.stderr);
}

#[test]
fn state_that_cannot_be_written_is_said_before_anything_is_read() {
    let user = OrdinaryUser::new();
    let Some(place) = Place::with_sqlite(50) else { return };
    crate::runner::open_to_all(place.folder.path());
    fs::create_dir(place.state()).unwrap();
    fs::set_permissions(place.state(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = user.pagewarden();
    command.args(["scrub", "--json", "--state"]).arg(place.state()).arg(place.database());
    let outcome = run(&mut command);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot write to the state folder"), "{}", outcome.stderr);
    // Nor inside what is verified.
    let inside = place.folder.path().join("x");
    let inside = run(pagewarden().args(["scrub", "--state"]).arg(inside).arg(place.folder.path()));
    assert_eq!(inside.status, Some(2), "{inside:?}");
    assert!(inside.stderr.contains("lies inside"), "{}", inside.stderr);
}

#[test]
fn archives_are_verified_whole_or_not_at_all() {
    let Some(place) = Place::with_sqlite(400) else { return };
    let pack = place.folder.path().join("shop.pwk");
    let made = run(pagewarden().arg("pack").arg(place.database()).arg("-o").arg(&pack));
    assert_eq!(made.status, Some(0), "{made:?}");
    let first = place.scrub::<&str>(&[], &pack);
    assert_eq!(first.status, Some(0), "{first:?}");
    let report = first.report();
    assert_eq!(coverage(&report)["verified"], report.pages("total"));
    assert_eq!(coverage(&report)["pass_complete"], true);
    assert_eq!(place.scrub::<&str>(&[], &pack).report().pages("total"), 0);
    let mut bytes = fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    let damaged = place.scrub::<&str>(&[], &pack);
    assert_eq!(damaged.status, Some(1), "{damaged:?}");
    assert_eq!(place.status()["verdict"], "damaged");
    bytes[middle] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    assert_eq!(place.scrub::<&str>(&[], &pack).status, Some(0));
    assert_eq!(place.status()["open_findings"], 0);
}

#[test]
fn sets_of_a_repository_are_reported_one_by_one_whether_they_were_due_or_not() {
    let Some((repository, _)) = pgbackrest::repository("pgbackrest-2.60-zst") else { return };
    let place = Place::empty();
    let copy = place.folder.path().join("repo");
    let copied = Command::new("cp").arg("-a").arg(&repository).arg(&copy).status().unwrap();
    assert!(copied.success());
    // Of each target: the verdict, findings, pages covered.
    let looked = || {
        let outcome = place.scrub::<&str>(&[], &copy);
        let json = outcome.report().json;
        let each = json["targets"].as_array().unwrap().iter().map(|target| {
            let covered = target["coverage"]["verified"].as_u64().unwrap();
            let findings = target["findings"].as_array().unwrap().len();
            (target["verdict"].as_str().unwrap().to_owned(), findings > 0, covered)
        });
        (outcome.status, each.collect::<Vec<_>>())
    };
    let (status, sound) = looked();
    assert_eq!((status, sound.len()), (Some(0), 4), "{sound:?}");
    let sets = || sound.iter().take(3);
    assert!(sets().all(|(verdict, _, pages)| verdict == "intact" && *pages > 0), "{sound:?}");
    assert_eq!(sound[3].2, sets().map(|(_, _, pages)| pages).sum::<u64>());
    assert_eq!(looked().1, sound, "with nothing due");
    let file = copy.join("backup/demo/20261123-091023F_20261123-091051I/pg_data/base/1/16771.zst");
    let bytes = fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&file, damaged).unwrap();
    for due in [true, false] {
        let (status, seen) = looked();
        let verdicts: Vec<_> = seen.iter().map(|(verdict, any, _)| (&**verdict, *any)).collect();
        let sound = ("intact", false);
        let expected = [sound, sound, ("damaged", true), ("damaged", false)];
        assert_eq!((status, &verdicts[..]), (Some(1), &expected[..]), "due: {due}");
    }
    fs::write(&file, bytes).unwrap();
    let (status, mended) = looked();
    assert_eq!((status, mended), (Some(0), sound), "findings go in the run that misses them");
}

//! Flags, exit statuses, signals and pipes.

use std::ffi::OsStr;
use std::fs;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::clusters::{any_installation, metadata, sample};
use crate::damage::{Damage, Dice, Wound};
use crate::runner::{Started, check, check_text, pagewarden, run};

/// The words and then the path.
fn with<'a>(words: &'a [&'a str], path: &'a std::path::Path) -> Vec<&'a OsStr> {
    words.iter().map(OsStr::new).chain([path.as_os_str()]).collect()
}

#[test]
fn every_way_of_reading_gives_the_same_report() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let mut dice = Dice::seeded();
    let mut wounds = Vec::new();
    for (relation, damage, block) in [
        ("item", Damage::BitInTuple, 3),
        ("item", Damage::Noise, 200),
        ("item_gin", Damage::UpperZero, 1),
        ("wide_toast", Damage::FutureLsn, 9),
        ("elsewhere", Damage::ChecksumZero, 0),
    ] {
        // In the order of wounding: two in one file are undone backwards.
        wounds.push(Wound::to(root.join(sample.file(relation))).inflict(damage, &mut dice, block));
    }
    let sparse = Wound::to(root.join(sample.file("sparse")));
    wounds.push(sparse.change(|bytes| bytes.truncate(bytes.len() - 9)));
    let expected = check([root]).report();
    assert_eq!(expected.findings().len(), 6);
    for words in [
        &["--jobs", "1"][..],
        &["--jobs", "2"],
        &["--jobs", "4"],
        &["-j", "16"],
        &["--direct"],
        &["--cached"],
        &["--io", "threads"],
        &["--io", "auto", "--direct", "--jobs", "3"],
        &["--direct", "--io", "threads", "--jobs", "1"],
        &["--format", "postgres"],
        &["--quiet"],
        &["--progress"],
        &["--rate", "4GiB/s"],
        &["--rate", "none"],
    ] {
        let report = check(with(words, root)).report();
        assert_eq!(report.timeless(), expected.timeless(), "{words:?}");
    }
    while let Some(wound) = wounds.pop() {
        drop(wound);
    }
}

#[test]
fn rate_is_a_ceiling() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let file = sample.cluster.data_dir().join(sample.file("item"));
    let bytes = fs::metadata(&file).unwrap().len();
    let rate = bytes / 2;
    let begin = Instant::now();
    let report = check(with(&["--rate", &format!("{rate}B/s")], &file)).report();
    let elapsed = begin.elapsed().as_secs_f64();
    assert_eq!(report.verdict(), "intact");
    assert_eq!(report.json["bytes"], bytes);
    // The first eighth of a second's worth is not waited for.
    assert!((1.5..6.0).contains(&elapsed), "{elapsed} s for 2 s worth of bytes");
}

#[test]
fn signal_stops_the_run_and_what_was_done_is_reported() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let root = sample.cluster.data_dir();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = pagewarden();
        let mut started = Started::spawn(
            command.args(["check", "--json"]).args(with(&["--rate", "2MiB/s"], root)),
        );
        thread::sleep(Duration::from_millis(700));
        assert!(started.is_running());
        let begin = Instant::now();
        started.signal(signal);
        let outcome = started.wait();
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        let report = outcome.report();
        assert_eq!((outcome.status, report.verdict()), (Some(3), "incomplete"), "{signal:?}");
        assert!(report.json["bytes"].as_u64().unwrap() > 0);
        assert!(report.pages("total") > 0);
        assert_eq!(report.findings(), []);
    }
    // For people too.
    let mut command = pagewarden();
    let started = Started::spawn(command.arg("check").args(with(&["--rate", "2MiB/s"], root)));
    thread::sleep(Duration::from_millis(700));
    started.signal(Signal::INT);
    let outcome = started.wait();
    assert_eq!(outcome.status, Some(3));
    let last = outcome.stdout.lines().last().unwrap();
    assert!(last.starts_with("Checked ") && last.ends_with("stopped early"), "{last}");
}

/// Damage found before the signal stays damage.
#[test]
fn stopped_run_with_damage_says_damaged_and_exits_with_3() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let mut dice = Dice::seeded();
    // `global` is read first.
    let first = root.join(sample.file("pg_database"));
    let _wound = Wound::to(first).inflict(Damage::Noise, &mut dice, 0);
    let mut command = pagewarden();
    let started =
        Started::spawn(command.args(["check", "--json"]).args(with(&["--rate", "2MiB/s"], root)));
    thread::sleep(Duration::from_millis(1500));
    started.signal(Signal::INT);
    let outcome = started.wait();
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(3), "damaged"));
}

#[test]
fn kill_leaves_nothing_in_the_target() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, true).loan();
    let before = metadata(cluster.home());
    let mut command = pagewarden();
    let started = Started::spawn(
        command.args(["check", "--json"]).args(with(&["--rate", "4MiB/s"], cluster.data_dir())),
    );
    thread::sleep(Duration::from_millis(400));
    started.signal(Signal::KILL);
    assert_eq!(started.wait().signal, Some(9));
    let after = metadata(cluster.home());
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
}

#[test]
fn reader_that_has_seen_enough_is_no_reason_for_a_message() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    for words in [&["check"][..], &["check", "--json"]] {
        // Shut down, not only closed: a program that another test starts may still hold a copy of it.
        let (reader, stdout) = UnixStream::pair().unwrap();
        reader.shutdown(Shutdown::Both).unwrap();
        let child = pagewarden()
            .args(words)
            .arg(sample.cluster.data_dir())
            .stdout(OwnedFd::from(stdout))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let (text, status) = (String::from_utf8_lossy(&output.stderr), output.status);
        assert_eq!(text, "", "{words:?}");
        // Not 0: the user did not get the whole answer.
        assert!(matches!(status.code(), Some(1..=3)), "{words:?}: {status:?}");
    }
}

#[test]
fn protection_can_be_required() {
    let Some(installation) = any_installation() else { return };
    let on = sample(&installation, true).cluster.data_dir();
    let off = sample(&installation, false).cluster.data_dir();
    for (words, of_on, of_off) in [
        (&["--require-protection"][..], 0, 1),
        (&["--min-protected", "99%"], 0, 1),
        (&["--min-protected", "100"], 0, 1),
        (&["--min-protected", "0%"], 0, 0),
        (&["--strict"], 0, 0),
    ] {
        assert_eq!(check(with(words, on)).status, Some(of_on), "{words:?}");
        assert_eq!(check(with(words, off)).status, Some(of_off), "{words:?}");
    }
}

#[test]
fn wrong_command_line_says_what_was_meant_and_exits_with_2() {
    for (words, says) in [
        (&["check", "--jsno", "/"][..], "--json"),
        (&["check", "--dircet", "/"], "--direct"),
        (&["chekc", "/"], "check"),
        (&["check"], "PATH"),
        (&["check", "--rate", "fast", "/"], "fast"),
        (&["check", "--rate", "0", "/"], "needs a unit"),
        (&["check", "--rate", "5", "/"], "hint: --rate 5MiB/s"),
        (&["check", "--rate", "0MiB/s", "/"], "hint: --rate 1MiB/s"),
        (&["check", "--rate", "999KiB/s", "/"], "below 1 MiB/s"),
        (&["pack", "--rate", "5", "/", "-o", "x"], "needs a unit"),
        (&["unpack", "--rate", "5", "x.pwk", "x"], "needs a unit"),
        (&["protect", "--mode", "none", "--rate", "5", "/"], "needs a unit"),
        (&["iotest", "--rate", "5", "/"], "needs a unit"),
        (&["survey", "--rate", "5", "/"], "needs a unit"),
        (&["checksum", "--rate", "5", "sqlite:x"], "needs a unit"),
        (&["compare", "--rate", "5", "sqlite:x", "sqlite:y"], "needs a unit"),
        (&["check", "--min-protected", "101%", "/"], "101%"),
        (&["check", "--jobs", "0", "/"], "--jobs"),
        (&["check", "--format", "oracle", "/"], "postgres"),
        (&["check", "--direct", "--cached", "/"], "--cached"),
        (&[], "check"),
    ] {
        let outcome = run(pagewarden().args(words));
        assert_eq!(outcome.status, Some(2), "{words:?}");
        assert!(outcome.stderr.contains(says), "{words:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{words:?}");
    }
    // A script that asked for JSON gets JSON.
    for words in [&["check", "--json", "--jsno", "/"][..], &["check", "--json"]] {
        let outcome = run(pagewarden().args(words));
        assert_eq!(outcome.status, Some(2), "{words:?}");
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert!(json["error"].is_string(), "{json}");
    }
}

#[test]
fn help_and_version_are_for_standard_output() {
    let version = run(pagewarden().arg("--version"));
    assert_eq!(version.stdout, format!("pagewarden {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(version.status, Some(0));
    for words in [&["--help"][..], &["check", "--help"], &["help", "check"], &["man", "--help"]] {
        let outcome = run(pagewarden().args(words));
        assert_eq!(outcome.status, Some(0), "{words:?}");
        assert!(outcome.stdout.contains("Example"), "{words:?}");
    }
}

#[test]
fn target_that_is_not_there_is_an_error_in_json_too() {
    let outcome = check(["/nowhere/at/all"]);
    assert_eq!(outcome.status, Some(2));
    let json = outcome.report().json;
    assert_eq!(json["verdict"], "incomplete");
    assert!(json["error"].as_str().unwrap().contains("/nowhere/at/all"), "{json}");
    assert!(outcome.stderr.contains("/nowhere/at/all"), "{}", outcome.stderr);
    let outcome = check_text(["/nowhere/at/all"]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("cannot open /nowhere/at/all"), "{}", outcome.stderr);
}

/// The worst of them decides, and each that can be checked is.
#[test]
fn several_targets_are_checked_and_a_missing_one_makes_it_incomplete() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let nowhere = OsStr::new("/nowhere");
    let outcome = check([nowhere, root.as_os_str()]);
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
    assert_eq!(report.target()["verdict"], "intact");
    assert_eq!(report.json["failed"][0]["path"], "/nowhere");

    let mut dice = Dice::seeded();
    let _wound = Wound::to(root.join(sample.file("item"))).inflict(Damage::Noise, &mut dice, 1);
    let global = root.join("global");
    let outcome = check([root.as_os_str(), nowhere, global.as_os_str()]);
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"));
    let verdicts: Vec<_> = report.json["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["damaged", "intact"]);
    let bytes: u64 = report.json["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(report.json["bytes"], bytes);
}

/// Who names an address where a file belongs sees no password again, nor does who reads a ledger or plan.
#[test]
fn secrets_in_addresses_are_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let plan = folder.path().join("plan");
    for address in ["https://me:Geheim@127.0.0.1:1/x.db", "https://127.0.0.1:1/x.db?sig=Geheim"] {
        for words in [
            vec!["check"],
            vec!["check", "--json"],
            vec!["check", "--nagios"],
            vec!["survey"],
            vec!["scrub", "--state", state.to_str().unwrap()],
            vec!["plan", "-o", plan.to_str().unwrap()],
            vec!["protect", "--mode", "none"],
            vec!["pack", "--to", "null:"],
        ] {
            let outcome = run(pagewarden().args(&words).arg(address));
            let expected = if words.contains(&"--nagios") { 3 } else { 2 };
            assert_eq!(outcome.status, Some(expected), "{words:?}: {outcome:?}");
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(!said.contains("Geheim"), "{words:?}: {said}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

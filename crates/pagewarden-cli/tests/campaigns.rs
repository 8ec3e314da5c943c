//! Long trials of `scrub` and `serve`; they print what they saw.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::Dice;
use crate::runner::{Started, pagewarden, run};
use crate::scrub::make_summed;
use crate::sqlite::has_shell;

/// How long the kills go on.
const KILL_TIME: Duration = Duration::from_secs(480);

/// A database whose every page but the first is damaged, so that findings tell what was read.
fn damaged_database(folder: &Path, pages: u64) -> Option<u64> {
    if !has_shell() {
        return None;
    }
    let path = folder.join("shop.sqlite");
    make_summed(&path, pages);
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in 1..pages {
        let mut byte = [0];
        file.read_exact_at(&mut byte, page * 4096 + 1000).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], page * 4096 + 1000).unwrap();
    }
    let config = "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\nrate = \"8MiB/s\"\nevery = \"30d\"\n";
    fs::write(folder.join("pagewarden.toml"), config).unwrap();
    Some(pages)
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = pagewarden();
    command.args(words).arg("--config").arg(folder.join("pagewarden.toml"));
    command.arg("--state").arg(folder.join("state"));
    command
}

fn status(folder: &Path) -> Value {
    let outcome = run(&mut command(folder, &["status", "--json", "-q"]));
    let json: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    json["targets"][0].clone()
}

#[test]
#[ignore = "kills for eight minutes"]
fn scrub_and_serve_killed_at_random_moments_claim_only_what_was_read() {
    let folder = TempDir::new().unwrap();
    let Some(pages) = damaged_database(folder.path(), 6000) else { return };
    std::thread::sleep(Duration::from_millis(100));
    let mut dice = Dice::seeded();
    let begin = Instant::now();
    let (mut kills, mut passes, mut progress, mut before) = (0, 0, 0, 0);
    while begin.elapsed() < KILL_TIME {
        let words: &[&str] = if dice.next().is_multiple_of(2) {
            &["scrub", "-q"]
        } else {
            &["serve", "--listen", "127.0.0.1:0"]
        };
        let started = Started::spawn(&mut command(folder.path(), words));
        std::thread::sleep(Duration::from_millis(20 + dice.next() % 4000));
        started.signal(Signal::KILL);
        started.wait();
        kills += 1;
        let status = status(folder.path());
        let verified = status["coverage"]["verified"].as_u64().unwrap_or(0);
        let findings = status["open_findings"].as_u64().unwrap_or(0);
        // The first page is sound, and has no finding.
        assert_eq!(findings, verified.saturating_sub(1), "after {kills} kills");
        assert!(verified >= before, "{before} pages were verified, and now {verified}");
        progress += u64::from(verified > before);
        before = verified;
        if verified == pages {
            passes += 1;
            before = 0;
            fs::remove_dir_all(folder.path().join("state")).unwrap();
        }
    }
    eprintln!(
        "{kills} kills, {progress} of them after more pages than before, {passes} whole passes: no \
         claim of a page that was not read, and none lost"
    );
    assert!(progress > 0 && kills > 10);
}

#[test]
#[ignore = "fills a file system of its own, as root"]
fn full_disk_is_said_and_costs_nothing_that_was_written_down() {
    let folder = TempDir::new().unwrap();
    let Some(pages) = damaged_database(folder.path(), 6000) else { return };
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&state).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    }
    std::thread::sleep(Duration::from_millis(100));
    let full = run(&mut command(folder.path(), &["scrub", "-q", "--rate", "none"]));
    let halfway = status(folder.path());
    let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&state).status();
    let rest = run(&mut command(folder.path(), &["scrub", "-q", "--rate", "none"]));
    let whole = status(folder.path());
    let unmounted = Command::new("umount").arg(&state).status();
    assert!(grown.unwrap().success() && unmounted.unwrap().success());
    assert_eq!(full.status, Some(2), "{full:?}");
    assert!(full.stderr.contains("cannot write the ledger"), "{}", full.stderr);
    let verified = halfway["coverage"]["verified"].as_u64().unwrap();
    let findings = halfway["open_findings"].as_u64().unwrap();
    // A finding may be written down before its page is claimed, never after it.
    assert!(findings + 1 >= verified, "{findings} findings, {verified} pages claimed");
    assert_eq!(rest.status, Some(1), "{rest:?}");
    assert_eq!(whole["coverage"]["verified"].as_u64(), Some(pages));
    assert_eq!(whole["open_findings"].as_u64(), Some(pages - 1), "each once");
    eprintln!("full after {verified} of {pages} pages; with room again, the rest was read");
}

//! Long trials of `scrub` and `serve`; they print what they saw.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::Dice;
use crate::runner::{Started, pagewarden, run};
use crate::scrub::make_summed;
use crate::sqlite::{has_shell, shell};

/// How long the kills go on.
const KILL_TIME: Duration = Duration::from_secs(480);

/// Work that a kill may cost.
const LOSS_MAX: Duration = Duration::from_secs(5);

/// A database whose every page but the first is damaged, so that findings tell what was read.
struct Target {
    folder: TempDir,
    sound: Vec<u8>,
    /// Its pages now, and the byte that is wrong in each: another one after each change.
    pages: u64,
    byte: usize,
}

impl Target {
    fn new(pages: u64, rate: &str) -> Option<Self> {
        if !has_shell() {
            return None;
        }
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shop.sqlite");
        make_summed(&path, pages);
        let sound = fs::read(path).unwrap();
        let config = format!(
            "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\nrate = \"{rate}\"\nevery = \"30d\"\n"
        );
        fs::write(folder.path().join("pagewarden.toml"), config).unwrap();
        let pages = sound.len() as u64 / 4096;
        let mut target = Self { folder, sound, pages, byte: 1000 };
        target.write("shop.sqlite");
        Some(target)
    }

    /// Writes all pages, with another byte of each damaged.
    fn write(&mut self, name: &str) {
        self.byte += 1;
        let length = usize::try_from(self.pages * 4096).unwrap();
        let mut bytes = self.sound[..length].to_vec();
        for page in bytes.chunks_mut(4096).skip(1) {
            page[self.byte] ^= 0x40;
        }
        let path = self.folder.path().join(name);
        let file = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.set_len(length as u64).unwrap();
        drop(file);
        // What was written within a tick of the clock is not known to be old yet.
        std::thread::sleep(Duration::from_millis(100));
    }

    /// Makes it longer or shorter, in place or as another file.
    fn change(&mut self, dice: &mut Dice) {
        let most = self.sound.len() as u64 / 4096;
        self.pages = most / 2 + dice.next() % (most / 2 + 1);
        if dice.next().is_multiple_of(2) {
            self.write("shop.sqlite");
        } else {
            self.write("new");
            let path = |name: &str| self.folder.path().join(name);
            fs::rename(path("new"), path("shop.sqlite")).unwrap();
        }
    }

    /// How long ago the ledger was last written.
    fn written_ago(&self) -> Option<Duration> {
        let log = fs::metadata(self.folder.path().join("state/ledger.sqlite-wal")).ok()?;
        log.modified().ok()?.elapsed().ok()
    }

    /// Pages that are claimed, and those of which the ledger knows the byte that is wrong now: only who
    /// read them since they were written can.
    fn claimed_and_seen(&self) -> (u64, u64) {
        let folder = self.folder.path();
        let verified = status(folder)["coverage"]["verified"].as_u64().unwrap_or(0);
        if verified == 0 {
            return (0, 0);
        }
        let script = format!(
            "ATTACH '{}' AS l; SELECT count(DISTINCT page) FROM l.finding WHERE closed_at IS NULL \
             AND body LIKE '%byte {}%';",
            folder.join("state/ledger.sqlite").display(),
            self.byte
        );
        (verified, shell(folder, &script).trim().parse().unwrap_or(0))
    }
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
    let Some(mut target) = Target::new(5000, "1MiB/s") else { return };
    let folder = target.folder.path().to_owned();
    let mut dice = Dice::seeded();
    let begin = Instant::now();
    let (mut kills, mut changes, mut progress, mut passes, mut before) = (0, 0, 0, 0, 0);
    let mut loss = Duration::ZERO;
    // What the ledger says of the file that was there before, until a run has looked.
    let mut stale = None;
    while begin.elapsed() < KILL_TIME {
        if before == target.pages || dice.next().is_multiple_of(8) {
            passes += u32::from(before == target.pages);
            target.change(&mut dice);
            changes += 1;
            stale = stale.or(Some(before));
            before = 0;
        }
        let words: &[&str] = if dice.next().is_multiple_of(2) {
            &["scrub", "-q"]
        } else {
            &["serve", "--listen", "127.0.0.1:0"]
        };
        let most = if dice.next().is_multiple_of(6) { 9000 } else { 1500 };
        let started = Started::spawn(&mut command(&folder, words));
        std::thread::sleep(Duration::from_millis(20 + dice.next() % most));
        started.signal(Signal::KILL);
        let lost = target.written_ago();
        started.wait();
        kills += 1;
        let (verified, seen) = target.claimed_and_seen();
        if seen == 0 && Some(verified) == stale {
            // It was killed before it saw that the file is another one.
            continue;
        }
        stale = None;
        // The first page is sound, and has no finding.
        assert!(verified <= seen + 1, "{verified} claimed, {seen} read, after {kills} kills");
        assert!(verified >= before, "{before} pages were verified, and now {verified}");
        // From its first claim on it was at work all the time.
        if let Some(lost) = lost.filter(|_| (before + 1..target.pages).contains(&verified)) {
            loss = loss.max(lost);
            assert!(lost <= LOSS_MAX, "the last {lost:?} are lost");
        }
        progress += u32::from(verified > before);
        before = verified;
    }
    eprintln!(
        "{kills} kills, {progress} of them after more pages than before, {changes} changes of the \
         file, {passes} whole passes: no claim of a page that was not read since it was written, and \
         none lost; the last {loss:?} of work lost at most"
    );
    assert!(progress > 0 && changes > 0 && kills > 10);
}

/// A file system in memory, for root. Its end unmounts it.
struct Mounted(PathBuf);

impl Mounted {
    /// `None`, said aloud, where that is not allowed.
    fn at(folder: &Path, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no file system can be mounted here");
            return None;
        }
        Some(Self(folder.to_owned()))
    }

    /// Changes its options.
    fn again(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(
            Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success()
        );
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[ignore = "mounts a file system of its own, as root"]
fn state_that_becomes_read_only_is_said_and_nothing_is_lost() {
    let Some(target) = Target::new(3000, "1MiB/s") else { return };
    let (folder, pages) = (target.folder.path(), target.pages);
    let state = folder.join("state");
    fs::create_dir(&state).unwrap();
    let Some(disk) = Mounted::at(&state, "size=64m") else { return };
    let first = run(&mut command(folder, &["scrub", "-q", "--budget", "2s"]));
    // Its time was used up, with damage in what it has read.
    assert_eq!(first.status, Some(1), "{first:?}");
    let before = status(folder)["coverage"]["verified"].as_u64().unwrap();
    assert!(before > 0 && before < pages);
    disk.again("ro");
    for words in [&["scrub", "-q"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = run(&mut command(folder, words));
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("cannot write"), "{}", refused.stderr);
        assert_eq!(status(folder)["coverage"]["verified"].as_u64(), Some(before));
    }
    disk.again("rw");
    let rest = run(&mut command(folder, &["scrub", "-q", "--rate", "none"]));
    assert_eq!(rest.status, Some(1), "{rest:?}");
    let whole = status(folder);
    assert_eq!(whole["coverage"]["verified"].as_u64(), Some(pages));
    assert_eq!(whole["open_findings"].as_u64(), Some(pages - 1), "each once");
}

#[test]
#[ignore = "fills a file system of its own, as root"]
fn full_disk_is_said_and_costs_nothing_that_was_written_down() {
    let Some(target) = Target::new(6000, "none") else { return };
    let (folder, pages) = (&target.folder, target.pages);
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let Some(disk) = Mounted::at(&state, "size=1m") else { return };
    let full = run(&mut command(folder.path(), &["scrub", "-q", "--rate", "none"]));
    let halfway = status(folder.path());
    disk.again("size=64m");
    let rest = run(&mut command(folder.path(), &["scrub", "-q", "--rate", "none"]));
    let whole = status(folder.path());
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

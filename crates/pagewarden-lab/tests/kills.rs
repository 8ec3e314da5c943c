//! An experiment that is killed, at whatever moment, leaves nothing: no process,
//! no file, no control group.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use pagewarden_lab::cost::experiments::EXPERIMENTS;
use pagewarden_lab::stats::random::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::experiments::{available, prepare};

/// Says to the test that is killed which experiment it is to run.
const VICTIM: &str = "PAGEWARDEN_LAB_VICTIM";
/// Those that start servers of either kind, copy, limit memory, flip.
const KILLED: &[&str] = &["e2f", "e0-mariadb", "e2e", "e2h", "e2g", "e5", "e0-sqlite"];
const KILLS: u32 = 3;
const LIFE_MAX_SECONDS: f64 = 8.0;
/// A busy machine may take long over ending a server.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn nothing_is_left_of_a_killed_experiment() {
    if available("e2f").is_none() {
        return;
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let kills = number("PAGEWARDEN_KILLS").unwrap_or(u64::from(KILLS));
    let seed = number("PAGEWARDEN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    for _ in 0..kills {
        let experiment = KILLED[random.below(KILLED.len())];
        let after = Duration::from_secs_f64(LIFE_MAX_SECONDS * random.uniform());
        let signal = if random.below(2) == 0 { Signal::KILL } else { Signal::INT };
        kill(experiment, after, signal, seed);
    }
}

fn kill(experiment: &str, after: Duration, signal: Signal, seed: u64) {
    let what = format!("{experiment} after {after:?} by {signal:?}, seed {seed}");
    // Short, because sockets lie in it, and open to the servers' user.
    let home = tempfile::Builder::new().prefix("lab-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args([
            "--include-ignored",
            "--exact",
            "kills::victim_runs_until_it_is_killed",
            "--nocapture",
        ])
        .env(VICTIM, experiment)
        .env("TMPDIR", home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let mut homes = Vec::new();
    while begin.elapsed() < after && victim.try_wait().unwrap().is_none() {
        homes.extend(names(home.path()));
        thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_child(&victim);
    // It may have come to its end by itself.
    let _ = kill_process(pid, signal);
    victim.wait().unwrap();
    homes.extend(names(home.path()));
    homes.sort();
    homes.dedup();

    let begin = Instant::now();
    loop {
        let files = names(home.path());
        let processes = processes_in(home.path());
        let groups: Vec<_> = homes.iter().filter(|name| has_control_group(name)).collect();
        if files.is_empty() && processes.is_empty() && groups.is_empty() {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}: {files:?} {processes:?} {groups:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processes that work below `folder` or were told of it, with their words.
fn processes_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let words = entries.filter_map(|entry| {
        let process = entry.path();
        let works = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        (works || words.contains(folder.to_str()?)).then_some(words)
    });
    words.collect()
}

fn has_control_group(name: &str) -> bool {
    ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .iter()
        .any(|root| Path::new(root).join(name).is_dir())
}

/// Does nothing unless it was started to be killed.
#[test]
#[ignore = "no test but a process of one"]
fn victim_runs_until_it_is_killed() {
    let Ok(name) = env::var(VICTIM) else { return };
    let experiment = EXPERIMENTS.iter().find(|one| one.description().name == name).unwrap();
    let mut prepared = prepare(*experiment);
    for condition in prepared.conditions() {
        for arm in experiment.description().arms {
            prepared.measure(&condition, arm, 0).unwrap();
        }
    }
}

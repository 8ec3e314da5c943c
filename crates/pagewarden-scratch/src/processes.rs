//! The processes of one server, found through `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How often a process that is expected to end is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Sends `signal`; a process that is gone already counts as reached.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The children of `parent`.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// Waits until none of `pids` runs, at most `limit`. True when all have ended.
pub(crate) fn wait_for_end(pids: &[u32], limit: Duration) -> bool {
    let begin = Instant::now();
    loop {
        // A dead process stays as a zombie where no process collects orphans,
        // as in many containers.
        let running =
            pids.iter().any(|pid| stat(*pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X')));
        if !running {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        thread::sleep(POLL);
    }
}

/// Waits until `pid` is stopped or gone, at most `limit`.
pub(crate) fn wait_for_stop(pid: u32, limit: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < limit
        && stat(pid).is_some_and(|stat| !matches!(stat.state, 'T' | 'Z' | 'X'))
    {
        thread::sleep(POLL);
    }
}

struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `42 (name) S 1 ...`: the name may itself hold spaces and brackets.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_with_brackets_in_the_name_is_read() {
        let stat = parse_stat("42 (a) R (b) S 17 42 42 0").unwrap();
        assert_eq!((stat.state, stat.parent), ('S', 17));
        assert!(parse_stat("").is_none());
    }
}

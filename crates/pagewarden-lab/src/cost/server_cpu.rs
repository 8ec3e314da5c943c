//! Processor time of a whole server: its first process, all that have come from
//! it, and those that have ended meanwhile.
//!
//! A backend's own time is not enough: the input workers of PostgreSQL 18 read
//! and verify pages outside of the backend that asked for them.
//!
//! | field of `/proc/PID/stat`, from 1 | what |
//! |---|---|
//! | 4 | parent |
//! | 14, 15 | ticks in user mode, in the kernel |
//! | 16, 17 | the same of children that have ended and been waited for, and of theirs |

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Ticks a second: since Linux 2.6 this is what every architecture's `/proc`
/// counts in, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of processor time that the server whose first process is `pid` has
/// used since its start; `None` if there is no such process. Exact to a
/// hundredth of a second for each of its processes.
#[must_use]
pub fn seconds(pid: u32) -> Option<f64> {
    let entries = fs::read_dir("/proc").ok()?;
    let processes: BTreeMap<u32, Process> = entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, Process::parse(&stat)?))
        })
        .collect();
    processes.contains_key(&pid).then(|| tree_ticks(&processes, pid) / TICKS_PER_SECOND)
}

/// Seconds of processor time that the threads of one process have used that have not ended, to
/// the nanosecond: for work too short for the ticks of [`seconds`], by a server of one process
/// that keeps its threads. `None` if there is no such process.
#[must_use]
pub fn thread_seconds(pid: u32) -> Option<f64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let on_cpu = |path: PathBuf| -> Option<f64> {
        // On a processor, waiting for one, and how often: nanoseconds, nanoseconds, times.
        fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    let nanoseconds: Vec<f64> = threads.filter_map(|thread| on_cpu(thread.ok()?.path())).collect();
    (!nanoseconds.is_empty()).then(|| nanoseconds.iter().sum::<f64>() / 1e9)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Process {
    parent: u32,
    ticks: f64,
}

impl Process {
    /// `42 (name) S 1 ...`: the name may itself hold spaces and brackets.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(1);
        let parent = fields.next()?.parse().ok()?;
        // Fields 5 to 13 lie between.
        let ticks: Vec<f64> = fields.skip(9).take(4).map_while(|word| word.parse().ok()).collect();
        (ticks.len() == 4).then(|| Self { parent, ticks: ticks.iter().sum() })
    }
}

/// The ticks of `root` and of everything that has come from it.
fn tree_ticks(processes: &BTreeMap<u32, Process>, root: u32) -> f64 {
    let belongs = |pid: u32| {
        let mut pid = pid;
        // A tree is never as deep as there are processes: an end for circles,
        // which numbers used again could make while we looked.
        for _ in 0..processes.len() {
            if pid == root {
                return true;
            }
            let Some(process) = processes.get(&pid) else { return false };
            pid = process.parent;
        }
        false
    };
    processes.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, process)| process.ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn stat_line_with_brackets_in_the_name_is_read() {
        let line = "42 (a) R (b) S 17 42 42 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 1 0";
        assert_eq!(Process::parse(line), Some(Process { parent: 17, ticks: 26.0 }));
        assert_eq!(Process::parse("42 (a) S 17"), None);
    }

    #[test]
    fn threads_of_a_process_are_summed() {
        let own = std::process::id();
        let before = thread_seconds(own).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(30);
        while std::time::Instant::now() < end {}
        let used = thread_seconds(own).unwrap() - before;
        assert!(used > 0.0 && used < 600.0, "{used}");
        assert_eq!(thread_seconds(u32::MAX), None);
    }

    #[test]
    fn children_of_children_count_and_strangers_do_not() {
        let process = |parent, ticks| Process { parent, ticks };
        let processes = BTreeMap::from([
            (10, process(1, 1.0)),
            (11, process(10, 2.0)),
            (12, process(11, 4.0)),
            (20, process(1, 8.0)),
            (30, process(31, 16.0)),
            (31, process(30, 32.0)),
        ]);
        assert!((tree_ticks(&processes, 10) - 7.0).abs() < f64::EPSILON);
    }

    #[test]
    fn time_of_a_child_that_has_ended_counts() {
        let before = seconds(std::process::id()).unwrap();
        let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", burn]).status().unwrap().success());
        let used = seconds(std::process::id()).unwrap() - before;
        assert!(used > 0.03, "{used}");
        assert_eq!(seconds(u32::MAX), None);
    }
}

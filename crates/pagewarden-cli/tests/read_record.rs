//! What a run has read of its files, as the kernel saw it: `strace` writes down each read with its
//! file, place and time. None of this is Pagewarden's code.
//!
//! `io_uring` is refused to the run, since what goes through it is no system call. So each read of a
//! page is a `pread64`, whose line tells where it ended. A file is known by its inode and its time of
//! birth. `fstat` of a descriptor tells its inode and its last change, and of all births that are known
//! of that inode, from `statx` and from the test itself, the last one before that change is the file's.
//! What is not known is taken as not read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The number and the birth of a file, as the ledger has them.
pub type Identity = (i64, i64);

/// A read that has ended: when, in seconds, and which bytes came.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub begun: f64,
    pub ended: f64,
    pub begin: i64,
    pub end: i64,
}

/// All reads of each file.
pub type Record = HashMap<Identity, Vec<Read>>;

/// True if reads can be written down here.
pub fn has_strace() -> bool {
    let mut trial = Command::new("strace");
    let ran = trial.args(["-D", "-f", "--seccomp-bpf", "true"]).stderr(Stdio::null()).status();
    let is_here = ran.is_ok_and(|status| status.success());
    if !is_here {
        eprintln!("skipped: no strace that may trace here");
    }
    is_here
}

/// A run whose reads are written down.
pub struct Traced {
    pub child: Child,
    log: PathBuf,
}

impl Traced {
    /// Starts `command`. The tracer is not our child, but the run is, so that it can be killed alone.
    pub fn spawn(command: &Command, log: &Path) -> Self {
        let _ = fs::remove_file(log);
        let calls = "trace=openat,fstat,statx,pread64,preadv,preadv2,io_uring_setup";
        let mut traced = Command::new("strace");
        traced.args([
            "-D",
            "-f",
            "--seccomp-bpf",
            "-y",
            "-v",
            "-s",
            "0",
            "-ttt",
            "-T",
            "-e",
            calls,
        ]);
        traced.args(["-e", "inject=io_uring_setup:error=ENOSYS", "-o"]).arg(log);
        traced.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            traced.env(name, value.unwrap_or(OsStr::new("")));
        }
        let errors = fs::File::create(log.with_extension("stderr")).unwrap();
        let traced = traced.stdin(Stdio::null());
        let child = traced.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        Self { child, log: log.to_owned() }
    }

    /// Kills the run at once, as if the power of the machine had failed for it alone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = fs::read_to_string(self.log.with_extension("stderr")).unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
    }

    /// Adds what was read to `record`; `born` are files that the test has made. Waits for the tracer's
    /// last line.
    pub fn read(&self, born: &[Identity], record: &mut Record) {
        let begin = Instant::now();
        let main = self.child.id().to_string();
        let is_whole = |text: &str| {
            let last = text.lines().rev().take(99).find(|line| line.starts_with(&main));
            last.is_some_and(|line| line.contains("+++ ")) && text.ends_with('\n')
        };
        loop {
            let text =
                String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned();
            if is_whole(&text) {
                return add(&text, born, record);
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "the tracer does not end: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Calls that have begun, and what is known of descriptors.
#[derive(Default)]
struct State {
    /// By thread: when the call began, and its line so far.
    begun: HashMap<String, (f64, String)>,
    /// By descriptor: inode and last change. All threads share them.
    files: HashMap<String, (i64, i64)>,
    /// By inode: births.
    born: HashMap<i64, Vec<i64>>,
    /// Reads of descriptors that these files were behind.
    reads: Vec<((i64, i64), Read)>,
}

fn add(text: &str, born: &[Identity], record: &mut Record) {
    let mut state = State::default();
    for (inode, born) in born {
        state.born.entry(*inode).or_default().push(*born);
    }
    for line in text.lines() {
        // The number of the thread is padded.
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((time, call)) = rest.trim_start().split_once(' ') else { continue };
        let Ok(time) = time.parse::<f64>() else { continue };
        if let Some(first) = call.strip_suffix(" <unfinished ...>") {
            state.begun.insert(thread.to_owned(), (time, first.to_owned()));
        } else if let Some(rest) = call.strip_prefix("<... ") {
            // Resumed: it began earlier, and ends now.
            let Some((begun, first)) = state.begun.remove(thread) else { continue };
            let rest = rest.split_once(" resumed>").map_or("", |(_, rest)| rest);
            state.take(&format!("{first}{rest}"), begun, time);
        } else {
            let lasted =
                call.rsplit_once('<').and_then(|(_, text)| text.trim_end_matches('>').parse().ok());
            state.take(call, time, time + lasted.unwrap_or(0.0));
        }
    }
    state.end(record);
}

impl State {
    fn take(&mut self, call: &str, begun: f64, ended: f64) {
        let result = call.rsplit_once(" = ").map_or("", |(_, result)| result);
        let count = result.split(['<', ' ']).next().and_then(|count| count.parse::<i64>().ok());
        let Some(count) = count.filter(|count| *count >= 0) else { return };
        let descriptor = call.split_once('(').and_then(|(_, rest)| rest.split_once('<'));
        let descriptor = descriptor.map_or("", |(number, _)| number).to_owned();
        let field = |name: &str| call.split_once(name).and_then(|(_, rest)| number(rest));
        if call.starts_with("openat(") {
            self.files.remove(&count.to_string());
        } else if call.starts_with("fstat(") {
            let changed = field("st_ctime=").zip(field("st_ctime_nsec=")).map(nanoseconds);
            if let Some(file) = field("st_ino=").zip(changed) {
                self.files.insert(descriptor, file);
            }
        } else if call.starts_with("statx(") {
            let born = call.split_once("stx_btime=").and_then(|(_, rest)| {
                let seconds = number(rest.strip_prefix("{tv_sec=")?)?;
                Some(nanoseconds((seconds, number(rest.split_once("tv_nsec=")?.1)?)))
            });
            if let Some((inode, born)) = field("stx_ino=").zip(born) {
                self.born.entry(inode).or_default().push(born);
            }
        } else if call.starts_with("pread64(") {
            let offset = call.rsplit_once(" = ").and_then(|(call, _)| {
                number(call.trim_end().trim_end_matches(')').rsplit_once(", ")?.1)
            });
            if let (Some(begin), Some(file)) = (offset, self.files.get(&descriptor)) {
                self.reads.push((*file, Read { begun, ended, begin, end: begin + count }));
            }
        }
    }

    fn end(self, record: &mut Record) {
        for ((inode, changed), read) in self.reads {
            let born = self.born.get(&inode).into_iter().flatten();
            if let Some(born) = born.filter(|born| **born <= changed).max() {
                record.entry((inode, *born)).or_default().push(read);
            }
        }
    }
}

fn nanoseconds((seconds, more): (i64, i64)) -> i64 {
    seconds * 1_000_000_000 + more
}

/// The number that a text begins with.
fn number(text: &str) -> Option<i64> {
    text.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// What of `begin..end` is in none of these ranges.
pub fn missing(begin: i64, end: i64, ranges: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut ranges: Vec<_> = ranges.filter(|(from, to)| *from < end && *to > begin).collect();
    ranges.sort_unstable();
    let mut at = begin;
    let mut missing = Vec::new();
    for (from, to) in ranges {
        if from > at {
            missing.push((at, from));
        }
        at = at.max(to);
    }
    if at < end {
        missing.push((at, end));
    }
    missing
}

#[test]
fn reads_of_files_are_taken_from_lines_of_the_tracer_and_nothing_else_is() {
    let text = "\
7 10.4 statx(AT_FDCWD</x>, \"/x/a\", 0, 0, {stx_ino=5, stx_btime={tv_sec=2, tv_nsec=9} /* x */}) = 0 <0.1>
7 10.5 openat(AT_FDCWD</x>, \"/x/a\", O_RDONLY) = 3</x/a> <0.1>
7 10.6 fstat(3</x/a>, {st_ino=5, st_ctime=4 /* x */, st_ctime_nsec=1}) = 0 <0.1>
8 11.0 pread64(3</x/a>,  <unfinished ...>
7  11.5 pread64(3</x/a>, \"\"..., 4096, 8192) = 100 <0.25>
7 11.6 pread64(4</x/b>, \"\"..., 4096, 0) = 4096 <0.25>
7 11.7 pread64(3</x/a>, 0x1, 4096, 4096) = -1 EIO (Input/output error) <0.1>
8 12.5 <... pread64 resumed>\"\"..., 4096, 0) = 4096 <1.5>
8 13.0 pread64(3</x/a>,  <unfinished ...>
7 13.1 openat(AT_FDCWD</x>, \"/x/b\", O_RDONLY) = 3</x/b> <0.1>
7 13.2 pread64(3</x/b>, \"\"..., 4096, 0) = 4096 <0.1>
8 13.5 +++ killed by SIGKILL +++
";
    let mut record = Record::new();
    add(text, &[(5, 1), (5, 5_000_000_000)], &mut record);
    let reads = &record[&(5, 2_000_000_009)];
    let found: Vec<_> =
        reads.iter().map(|read| (read.begun, read.ended, read.begin, read.end)).collect();
    assert_eq!(found, [(11.5, 11.75, 8192, 8292), (11.0, 12.5, 0, 4096)]);
    assert_eq!(record.len(), 1);
    assert_eq!(missing(0, 50, [(30, 60), (5, 10), (8, 20)].into_iter()), [(0, 5), (20, 30)]);
}

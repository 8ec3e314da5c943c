//! Runs the real program, watches its memory, and reads its JSON.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// No run of these tests takes this long, on the slowest disk: one that does hangs.
const LIMIT: Duration = Duration::from_secs(600);
/// The user without rights of every Unix system.
const WITHOUT_RIGHTS: u32 = 65534;

/// The program, with nothing in its environment that changes what it does.
pub fn pagewarden() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewarden"));
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// A user who may not read everything: the one that runs the test, or one without rights if
/// that is root. Has a copy of the program, since the build directory may be closed to
/// others.
pub struct OrdinaryUser {
    copy: Option<TempDir>,
}

impl OrdinaryUser {
    pub fn new() -> Self {
        let copy = rustix::process::geteuid().is_root().then(|| {
            let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
            let copy = folder.path().join("pagewarden");
            fs::copy(env!("CARGO_BIN_EXE_pagewarden"), &copy).unwrap();
            open_to_all(folder.path());
            open_to_all(&copy);
            folder
        });
        Self { copy }
    }

    /// The program, as this user runs it.
    pub fn pagewarden(&self) -> Command {
        match &self.copy {
            Some(folder) => {
                let mut command = Command::new(folder.path().join("pagewarden"));
                command.env_remove("NO_COLOR").stdin(Stdio::null());
                command.uid(WITHOUT_RIGHTS).gid(WITHOUT_RIGHTS).current_dir("/");
                command
            }
            None => pagewarden(),
        }
    }

    /// The folder in which this user finds the program.
    pub fn programs(&self) -> PathBuf {
        let built = || Path::new(env!("CARGO_BIN_EXE_pagewarden")).parent().unwrap();
        self.copy.as_ref().map_or_else(built, TempDir::path).to_owned()
    }

    /// A shell of this user's.
    pub fn shell(&self) -> Command {
        let mut command = Command::new("bash");
        if self.copy.is_some() {
            command.uid(WITHOUT_RIGHTS).gid(WITHOUT_RIGHTS);
        }
        command
    }

    /// Gives a file or folder to this user.
    pub fn own(&self, path: &Path) {
        if self.copy.is_some() {
            std::os::unix::fs::chown(path, Some(WITHOUT_RIGHTS), Some(WITHOUT_RIGHTS)).unwrap();
        }
    }

    /// `pagewarden check --json PATH` of a cluster made by hand, to its end.
    pub fn check(&self, path: &Path) -> Outcome {
        run(self.pagewarden().args(["check", "--no-witness", "--json"]).arg(path))
    }
}

/// Lets every user in.
pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `pagewarden check --json ARGUMENTS`, to its end.
pub fn check<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Outcome {
    run(pagewarden().args(["check", "--json"]).args(arguments))
}

/// The same at full speed: a check of what a server has open stands back for whatever else this
/// machine does, and beside other tests that may take minutes.
pub fn check_at_full_speed<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Outcome {
    run(pagewarden().args(["check", "--json", "--rate", "none"]).args(arguments))
}

/// `pagewarden check ARGUMENTS`, to its end.
pub fn check_text<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Outcome {
    run(pagewarden().arg("check").args(arguments))
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Outcome {
    Started::spawn(command).wait()
}

/// A run that is under way.
pub struct Started {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Started {
    /// Starts a command, its output collected.
    pub fn spawn(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // A child of another thread holds the copy of the program that
                // we have just written, until it has become what it is to be.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                other => break other.unwrap(),
            }
        };
        let collect = |mut pipe: Box<dyn std::io::Read + Send>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).unwrap();
                bytes
            })
        };
        let stdout = collect(Box::new(child.stdout.take().unwrap()));
        let stderr = collect(Box::new(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Outcome {
        let begin = Instant::now();
        let mut memory_kib = 0;
        let mut pause = Duration::from_micros(500);
        let status = loop {
            memory_kib = memory_kib.max(peak_memory_kib(self.child.id()));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("the program does not end within {LIMIT:?}");
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        };
        let text = |pipe: JoinHandle<Vec<u8>>| {
            String::from_utf8(pipe.join().unwrap()).expect("output is UTF-8")
        };
        let outcome = Outcome {
            status: status.code(),
            signal: status.signal(),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            memory_kib,
        };
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        assert_ne!(outcome.status, Some(101), "{outcome:?}");
        outcome
    }
}

/// The most memory a running process has had; 0 once it has ended. Asked often
/// enough, the last answer is close to the truth.
///
/// A child goes by our name, and has our memory, until it has become the program.
fn peak_memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if !status.starts_with("Name:\tpagewarden\n") {
        return 0;
    }
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// What a run answered.
#[derive(Debug)]
pub struct Outcome {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub memory_kib: u64,
}

impl Outcome {
    /// The JSON object. Fails unless it is the only thing on standard output
    /// and keeps the promises that hold for every run.
    pub fn report(&self) -> Report {
        let json: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.stdout, self.stderr));
        assert_eq!(json["pagewarden"], env!("CARGO_PKG_VERSION"));
        assert!(json["seconds"].is_number(), "{json}");
        let report = Report { json };
        report.keep_promises();
        let verdict = report.json["verdict"].as_str().expect("a verdict");
        let expected: &[i32] = match verdict {
            "damaged" => &[1, 3],
            "incomplete" => &[2, 3],
            "suspect" | "unprotected" | "intact" => &[0, 1],
            other => panic!("verdict {other}"),
        };
        let status = self.status.expect("no signal ended it");
        assert!(expected.contains(&status), "verdict {verdict}, exit status {status}");
        report
    }
}

/// A JSON report.
#[derive(Debug, Clone)]
pub struct Report {
    pub json: Value,
}

/// A finding, without the words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub file: String,
    pub page: Option<u64>,
    pub offset: Option<u64>,
    pub severity: String,
    pub kind: String,
}

impl Finding {
    /// A page of 8 KiB in a file that is a relation's first segment.
    pub fn page(file: &str, page: u64, severity: &str, kind: &str) -> Self {
        Self::page_at(file, page, page * 8192, severity, kind)
    }

    /// A page at any place.
    pub fn page_at(file: &str, page: u64, offset: u64, severity: &str, kind: &str) -> Self {
        let (page, offset) = (Some(page), Some(offset));
        Self { page, offset, ..Self::file(file, severity, kind) }
    }

    /// A whole file.
    pub fn file(file: &str, severity: &str, kind: &str) -> Self {
        Self {
            file: file.to_owned(),
            page: None,
            offset: None,
            severity: severity.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// What every finding has, whatever its value.
const FINDING_FIELDS: [&str; 11] = [
    "file", "page", "offset", "severity", "kind", "database", "object", "stored", "computed",
    "detail", "hint",
];

impl Report {
    pub fn verdict(&self) -> &str {
        self.json["verdict"].as_str().unwrap()
    }

    /// The only target.
    pub fn target(&self) -> &Value {
        let targets = self.json["targets"].as_array().unwrap();
        assert_eq!(targets.len(), 1, "{}", self.json);
        &targets[0]
    }

    /// The target's findings as they are.
    pub fn raw_findings(&self) -> &[Value] {
        self.target()["findings"].as_array().unwrap()
    }

    /// The target's findings in their order.
    pub fn findings(&self) -> Vec<Finding> {
        self.raw_findings().iter().map(finding).collect()
    }

    /// Findings that are worse than a notice.
    pub fn serious(&self) -> Vec<Finding> {
        let serious = |finding: &Finding| finding.severity != "notice";
        self.findings().into_iter().filter(serious).collect()
    }

    /// The evidence of all findings, to be searched for words.
    pub fn details(&self) -> Vec<&str> {
        self.raw_findings().iter().map(|one| one["detail"].as_str().unwrap_or_default()).collect()
    }

    /// A page count of the target, by name.
    pub fn pages(&self, name: &str) -> u64 {
        self.target()["pages"][name].as_u64().unwrap_or_else(|| panic!("no count {name}"))
    }

    /// The files that could not be read, with the error.
    pub fn unread(&self) -> BTreeMap<&str, &str> {
        let unread = self.target()["unread"].as_array().unwrap();
        unread.iter().map(|u| (u["file"].as_str().unwrap(), u["error"].as_str().unwrap())).collect()
    }

    /// All that must be the same however a run was done: not the times.
    pub fn timeless(&self) -> Value {
        let mut json = self.json.clone();
        let strip = |value: &mut Value| {
            if let Some(object) = value.as_object_mut() {
                object.remove("seconds");
                object.remove("mib_per_second");
            }
        };
        strip(&mut json);
        for target in json["targets"].as_array_mut().unwrap() {
            strip(target);
        }
        json
    }

    fn keep_promises(&self) {
        let Some(targets) = self.json["targets"].as_array() else {
            assert!(self.json["error"].is_string(), "{}", self.json);
            return;
        };
        for target in targets {
            let pages = target["pages"].as_object().unwrap();
            let count = |name: &str| pages[name].as_u64().unwrap();
            let sum: u64 =
                pages.keys().filter(|name| *name != "total").map(|name| count(name)).sum();
            assert_eq!(count("total"), sum, "{target}");
            for name in ["ok", "empty", "unprotected", "unverifiable", "undecided", "damaged"] {
                assert!(pages.contains_key(name), "{target}");
            }
            for name in ["path", "format", "engine", "page_size", "protection", "files", "bytes"] {
                assert!(!target[name].is_null(), "{name}: {target}");
            }
            let by_mode = target["by_mode"].as_object().unwrap();
            let used: u64 = by_mode.values().map(|count| count.as_u64().unwrap()).sum();
            assert!(used <= count("total") - count("empty"), "{target}");

            let findings = target["findings"].as_array().unwrap();
            let mut seen = BTreeMap::new();
            for one in findings {
                for field in FINDING_FIELDS {
                    assert!(one.as_object().unwrap().contains_key(field), "{field}: {one}");
                }
                let found = finding(one);
                assert!(!Path::new(&found.file).is_absolute(), "{one}");
                assert!(["damage", "suspect", "notice"].contains(&found.severity.as_str()));
                if found.page.is_some() {
                    *seen.entry((found.file, found.page)).or_insert(0) += 1;
                }
            }
            let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
            assert!(twice.is_empty(), "one finding a page: {twice:?}");
            let damaged =
                findings.iter().filter(|one| one["severity"] == "damage" && !one["page"].is_null());
            assert!(count("damaged") <= damaged.count() as u64, "{target}");
        }
    }
}

fn finding(value: &Value) -> Finding {
    Finding {
        file: value["file"].as_str().unwrap().to_owned(),
        page: value["page"].as_u64(),
        offset: value["offset"].as_u64(),
        severity: value["severity"].as_str().unwrap().to_owned(),
        kind: value["kind"].as_str().unwrap().to_owned(),
    }
}

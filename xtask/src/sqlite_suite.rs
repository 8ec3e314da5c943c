//! `cargo xtask sqlite-suite`: SQLite's own test scripts through our VFS.
//!
//! Each script runs plainly, through the VFS by its name, and through the VFS as the default one,
//! each time in a process and a folder of its own. A test that passes plainly must pass through
//! the VFS, but for those in
//! `expected.txt`, which has the reason of each. Tests that only one of two runs has
//! are counted and not judged: scripts that let calls fail go on until none is left, and
//! the VFS makes others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use pagewarden_scratch::postgres::servers_dir;

use crate::servers::{execute, say};
use crate::sqlite_source;

/// Arguments of `cargo xtask sqlite-suite`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only scripts whose names contain one of these
    scripts: Vec<String>,
    /// Seconds after which a script is ended; its tests up to there count
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Scripts at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How the VFS is asked for: by its name, or as the default one; both if this is not given
    #[arg(long)]
    kind: Vec<Kind>,
    /// A folder for what the scripts print: a run that was ended goes on from what is there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// How databases are opened through the VFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Vfs,
    Default,
}

impl Kind {
    /// Its word for `drive.tcl`.
    fn word(self) -> &'static str {
        match self {
            Self::Vfs => "vfs",
            Self::Default => "default",
        }
    }

    fn described(self) -> &'static str {
        match self {
            Self::Vfs => "through the VFS by its name",
            Self::Default => "through the VFS as the default one",
        }
    }
}

/// Lists of other scripts, measurements, and what takes hours.
const LISTS: [&str; 12] = [
    "all",
    "quick",
    "veryquick",
    "extraquick",
    "full",
    "permutations",
    "soak",
    "mallocAll",
    "rtree",
    "fts3",
    "async",
    "fuzz",
];
/// Parts of names of scripts about memory and speed, on which the VFS has no bearing.
const OTHER_MATTERS: [&str; 4] = ["malloc", "speed", "bigfile", "fuzz"];

/// A script's outcomes: plainly, and of each kind that was asked for.
type Results = BTreeMap<String, (Outcome, Vec<Outcome>)>;

/// Tests of a script by what came of them.
#[derive(Debug, Default)]
struct Outcome {
    passed: BTreeSet<String>,
    /// With what was expected and what came.
    failed: BTreeMap<String, String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let work = servers_dir().join("sqlite-suite");
    let fixture = work.join("build/testfixture");
    if !fixture.is_file() {
        build(&work)?;
    }
    let version = fs::read_to_string(source(&work)?.join("VERSION"))?;
    let suite = Suite {
        fixture: fs::canonicalize(fixture)?,
        extension: extension()?,
        driver: fs::canonicalize("ext/sqlite/tests/sqlite_suite/drive.tcl")?,
        seconds: arguments.seconds,
        keep: arguments.keep.clone(),
    };
    suite.keep.as_ref().map_or(Ok(()), fs::create_dir_all)?;
    let scripts = scripts(&source(&work)?, &arguments.scripts)?;
    ensure!(!scripts.is_empty(), "no script has such a name");
    let kinds = match arguments.kind.as_slice() {
        [] => &[Kind::Vfs, Kind::Default],
        kinds => kinds,
    };
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Results::new());
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let plain = suite.run("plain", script)?;
                        let ours = kinds.iter().map(|kind| suite.run(kind.word(), script));
                        let outcomes = (plain, ours.collect::<Result<_>>()?);
                        let mut results = results.lock().map_err(|_| anyhow::anyhow!("a panic"))?;
                        results.insert(name(script), outcomes);
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?
        })
    })?;
    let results = results.into_inner().map_err(|_| anyhow::anyhow!("a panic"))?;
    let mut unexpected = 0;
    for (at, kind) in kinds.iter().enumerate() {
        let pairs = results.values().filter_map(|(plain, ours)| Some((plain, ours.get(at)?)));
        unexpected += judge(version.trim(), *kind, pairs)?;
    }
    ensure!(unexpected == 0, "{unexpected} tests pass only without the VFS");
    Ok(())
}

/// Fetches SQLite's source and builds its test program.
fn build(work: &Path) -> Result<()> {
    fs::create_dir_all(work.join("build"))?;
    let source = match source(work) {
        Ok(source) => source,
        Err(_) => sqlite_source::fetch(work)?,
    };
    let mut configure = Command::new(fs::canonicalize(source)?.join("configure"));
    execute(configure.arg("--enable-all").current_dir(work.join("build")))
        .context("hint: apt-get install tcl8.6-dev gcc make")?;
    execute(Command::new("make").args(["-j2", "testfixture"]).current_dir(work.join("build")))
}

fn source(work: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(work.join("source"))? {
        let path = entry?.path();
        if path.join("VERSION").is_file() {
            return Ok(fs::canonicalize(path)?);
        }
    }
    anyhow::bail!("{} holds no source of SQLite", work.display())
}

/// Builds the extension; gives its path without its ending, as SQLite wants it.
fn extension() -> Result<PathBuf> {
    let manifest = "ext/sqlite/Cargo.toml";
    let mut cargo = Command::new(env!("CARGO"));
    execute(cargo.args(["build", "--release", "--locked", "--manifest-path", manifest]))?;
    Ok(fs::canonicalize("ext/sqlite/target/release")?.join("libpagewarden_sqlite"))
}

fn name(script: &Path) -> String {
    script.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn scripts(source: &Path, wanted: &[String]) -> Result<Vec<PathBuf>> {
    let mut scripts = Vec::new();
    for entry in fs::read_dir(source.join("test"))? {
        let path = entry?.path();
        let name = name(&path);
        let is_meant = !LISTS.contains(&name.as_str())
            && !OTHER_MATTERS.iter().any(|matter| name.contains(matter))
            && (wanted.is_empty() || wanted.iter().any(|word| name.contains(word)));
        if path.extension().is_some_and(|ending| ending == "test") && is_meant {
            scripts.push(path);
        }
    }
    scripts.sort();
    Ok(scripts)
}

struct Suite {
    fixture: PathBuf,
    extension: PathBuf,
    driver: PathBuf,
    seconds: u32,
    keep: Option<PathBuf>,
}

impl Suite {
    fn run(&self, kind: &str, script: &Path) -> Result<Outcome> {
        let kept = self.keep.as_ref().map(|folder| folder.join(format!("{}.{kind}", name(script))));
        if let Some(text) = kept.as_ref().and_then(|file| fs::read(file).ok()) {
            return Ok(Outcome::of(&String::from_utf8_lossy(&text)));
        }
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &self.seconds.to_string()]).arg(&self.fixture);
        command.arg(&self.driver).arg(kind).arg(script).current_dir(folder.path());
        command.env("PAGEWARDEN_EXTENSION", &self.extension).stdin(Stdio::null());
        let output = command.output().context("cannot run timeout")?;
        if let Some(file) = kept {
            fs::write(file, &output.stdout)?;
        }
        Ok(Outcome::of(&String::from_utf8_lossy(&output.stdout)))
    }
}

impl Outcome {
    /// Takes what a script printed apart: `NAME... Ok`, or `! NAME expected: [..]` and
    /// `! NAME got: [..]`, or `NAME...` and `Error: ..` on the next line.
    fn of(text: &str) -> Self {
        let mut outcome = Self::default();
        let mut begun = None;
        for line in text.lines() {
            if let Some(name) = line.strip_suffix("... Ok") {
                outcome.passed.insert(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("! ") {
                let (name, words) = rest.split_once(' ').unwrap_or((rest, ""));
                outcome.failed.entry(name.to_owned()).or_default().push_str(words);
            } else if let (Some(words), Some(name)) = (line.strip_prefix("Error: "), begun) {
                outcome.failed.insert(String::from(name), words.to_owned());
            }
            begun = line.strip_suffix("...");
        }
        outcome
    }
}

/// Says what came of the scripts; how many tests differ without a reason that is known.
fn judge<'a>(
    version: &str,
    kind: Kind,
    results: impl Iterator<Item = (&'a Outcome, &'a Outcome)>,
) -> Result<usize> {
    let expected = fs::read_to_string("ext/sqlite/tests/sqlite_suite/expected.txt")?;
    let reasons: Vec<(&str, &str)> = expected
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(begin, reason)| match begin.split_once(':') {
            Some((only, begin)) => (only == kind.word()).then_some((begin, reason)),
            None => Some((begin, reason)),
        })
        .collect();
    let mut scripts = 0;
    let (mut passed, mut plainly, mut only_plain, mut unexpected) = (0, 0, 0, Vec::new());
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (plain, ours) in results {
        scripts += 1;
        passed += ours.passed.len();
        plainly += plain.passed.len();
        let is_told =
            |name: &&String| ours.passed.contains(*name) || ours.failed.contains_key(*name);
        only_plain += plain.passed.iter().filter(|name| !is_told(name)).count();
        for (name, words) in &ours.failed {
            if plain.failed.contains_key(name) {
                continue;
            }
            match reasons.iter().find(|(begin, _)| name.starts_with(begin)) {
                Some((_, reason)) => *met.entry(reason.trim()).or_default() += 1,
                None => unexpected.push(format!("{name} {words}")),
            }
        }
    }
    say(&format!(
        "SQLite {version}: {scripts} scripts; {plainly} tests pass plainly, {passed} {}; \
         {only_plain} ran only plainly",
        kind.described()
    ))?;
    for (reason, count) in met {
        say(&format!("{count} differ as expected: {reason}"))?;
    }
    for line in &unexpected {
        say(line)?;
    }
    Ok(unexpected.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_prints_is_taken_apart() {
        let text = "a-1.1... Ok\na-1.2...\n! a-1.2 expected: [1]\n! a-1.2 got:      [0]\nTime: 3\n\
                    a-1.3...\nError: disk I/O error\nError: of no test";
        let outcome = Outcome::of(text);
        assert_eq!(outcome.passed.iter().collect::<Vec<_>>(), ["a-1.1"]);
        assert_eq!(outcome.failed["a-1.2"], "expected: [1]got:      [0]");
        assert_eq!(outcome.failed["a-1.3"], "disk I/O error");
        assert_eq!(outcome.failed.len(), 2);
    }
}

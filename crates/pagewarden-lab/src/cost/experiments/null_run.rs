//! E4c: a run to nowhere changes nothing of what it reads, and moves no base.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use serde_json::Value;

use crate::cost::cold::files_below;
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::own_program::{OwnProgram, Task};
use crate::cost::subjects::{ENGINES, Subject};
use crate::cost::{program, reading};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct NullRun;

/// Access times are set so much before the run: older than what file systems think worth keeping.
const DAYS_BEFORE: i64 = 3;
const SECONDS_OF_A_DAY: i64 = 86_400;
const BASE: &str = "base.pwk";
const METRIC: &str = "unchanged";
const NO_PACK: &str = "this program has no command `pack`";

static DESCRIPTION: Description = Description {
    name: "e4c",
    title: "a run to nowhere changes nothing",
    question: "Does pagewarden pack --to null: change any byte or time of a file, or what the next delta holds?",
    seed: "BACKUP to NUL: without COPY_ONLY it moves the base of differential backups",
    by_hand: "\
1. A stopped database; pagewarden pack DIR -o base.pwk; change some rows, and stop it again.
2. pagewarden pack --base base.pwk DIR -o before.pwk; b3sum of every file; touch -a -d '3 days ago' on every file;
   stat of every file.
3. pagewarden pack --to null: DIR (or pagewarden check, or cat of every file).
4. stat and b3sum again: length, hash, times of content (mtime), of access (atime) and of change (ctime).
5. pagewarden pack --base base.pwk DIR -o after.pwk: the same root, as many blocks of the base
   and of zeros as before.pwk.
Plain reads move the times of access wherever the file system keeps them, which shows that step 4 can notice it.",
    arms: &[
        Arm { name: "null", what: "pagewarden pack --to null:" },
        Arm { name: "check", what: "pagewarden check" },
        Arm { name: "read", what: "plain reads of every file, for comparison: access times move unless the file system keeps none" },
    ],
    metrics: &[Metric { name: METRIC, unit: "", kind: Kind::Found, better: Better::Higher }],
    is_price: true,
    decides: None,
    seed_figures: &[],
    blocks: (1, 1),
};

impl Experiment for NullRun {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let mut subjects = BTreeMap::new();
        for engine in ENGINES {
            // No figure depends on its size.
            let subject = Subject::make(engine, Form::Short, &lab.stop);
            let mut subject = subject.with_context(|| engine.to_owned())?;
            if let Ok(subject) = &mut subject {
                if let Some(mut command) = lab.program.command(&["pack", "--quiet"]) {
                    command.arg(subject.path()).arg("-o").arg(BASE).current_dir(subject.beside());
                    program::expect(&mut command, "", &lab.stop)?;
                }
                subject.change(&lab.stop)?;
            }
            subjects.insert(engine, subject);
        }
        Ok(Box::new(Runs { subjects, program: lab.program, stop: Arc::clone(&lab.stop) }))
    }
}

/// What two deltas of the same bytes have in common. The report of the check inside has its own times,
/// and so other lengths; and zstd makes a block some bytes longer or shorter by what the same thread
/// compressed before, so that one at the edge is stored as it is or is not.
fn parts_of(packed: &Value) -> Value {
    let whole = ["root", "files", "bytes"].map(|name| packed.get(name));
    let blocks = ["zero", "base"].map(|name| packed.get("blocks").and_then(|it| it.get(name)));
    serde_json::json!([whole, blocks])
}

struct Runs {
    subjects: BTreeMap<&'static str, Result<Subject, String>>,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

impl Runs {
    /// What a delta to the base holds now; `None` if this program makes none.
    fn delta(&self, subject: &Subject) -> Result<Option<Value>> {
        const DELTA: &str = "delta.pwk";
        let words = ["pack", "--quiet", "--json", "--base", BASE, "-o", DELTA];
        let Some(mut command) = self.program.command(&words) else { return Ok(None) };
        command.arg(subject.path()).current_dir(subject.beside());
        let output = program::expect(&mut command, "", &self.stop)?;
        fs::remove_file(subject.beside().join(DELTA))?;
        let json: Value = serde_json::from_str(&output.stdout)
            .with_context(|| format!("pack says {}", output.said()))?;
        let packed = json.get("packed").filter(|packed| packed.is_object());
        let packed = packed.with_context(|| format!("no delta was made: {json}"))?;
        Ok(Some(parts_of(packed)))
    }

    /// Reads all of it; false if this program cannot.
    fn read(&self, arm: &Arm, subject: &Subject) -> Result<bool> {
        let words: &[&str] = match arm.name {
            "null" => &["pack", "--to", "null:", "--quiet"],
            "check" => &["check", "--quiet"],
            "read" => {
                let files = files_of(subject)?;
                Task::Read(reading::Task { files }).run()?;
                return Ok(true);
            }
            other => bail!("no arm {other}"),
        };
        let Some(mut command) = self.program.command(words) else { return Ok(false) };
        command.arg(subject.path()).current_dir(subject.beside());
        program::expect(&mut command, "", &self.stop)?;
        Ok(true)
    }
}

impl Prepared for Runs {
    fn conditions(&self) -> Vec<String> {
        ENGINES.iter().map(|engine| (*engine).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        for (engine, subject) in &self.subjects {
            let word = if subject.is_ok() { "here" } else { "not here" };
            settings.insert((*engine).to_owned(), word.to_owned());
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        ensure!(DESCRIPTION.arms.contains(arm), "no arm {}", arm.name);
        let subject = match self.subjects.get(condition).context("no such engine")? {
            Ok(subject) => subject,
            Err(reason) => return Ok(Reading::unavailable(format!("{condition}: {reason}"))),
        };
        let delta = self.delta(subject)?;
        let files = files_of(subject)?;
        let hashes = hashes(&files)?;
        set_access_times_back(&files)?;
        let before = states(&files)?;
        if !self.read(arm, subject)? {
            return Ok(Reading::unavailable(NO_PACK));
        }
        let after_files = files_of(subject)?;
        let mut changes = changes(&before, &states(&after_files)?);
        let after = self::hashes(&after_files)?;
        add(&mut changes, "content", hashes.iter().filter(|one| !after.contains(one)).count());
        if self.delta(subject)? != delta {
            changes.push("the next delta".to_owned());
        }
        let word = match (changes.as_slice(), &delta) {
            ([], Some(_)) => "nothing has changed, nor has the next delta".to_owned(),
            ([], None) => "nothing has changed".to_owned(),
            (changes, _) => changes.join(", "),
        };
        let unchanged = f64::from(u8::from(changes.is_empty()));
        Ok(Reading::of([(METRIC, unchanged), ("files", files.len() as f64)])
            .with_word(METRIC, word))
    }
}

/// What can be seen of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    length: u64,
    modified: (i64, i64),
    accessed: (i64, i64),
    changed: (i64, i64),
}

fn states(files: &[PathBuf]) -> Result<BTreeMap<PathBuf, State>> {
    let state = |path: &PathBuf| {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        let state = State {
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            accessed: (metadata.atime(), metadata.atime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Ok((path.clone(), state))
    };
    files.iter().map(state).collect()
}

/// What differs, in words.
fn changes(before: &BTreeMap<PathBuf, State>, after: &BTreeMap<PathBuf, State>) -> Vec<String> {
    let mut changes = Vec::new();
    let gone = before.keys().filter(|path| !after.contains_key(*path)).count();
    let new = after.keys().filter(|path| !before.contains_key(*path)).count();
    add(&mut changes, "missing", gone);
    add(&mut changes, "new", new);
    let count = |differs: &dyn Fn(&State, &State) -> bool| {
        let both = before.iter().filter_map(|(path, state)| Some((state, after.get(path)?)));
        both.filter(|(one, other)| differs(one, other)).count()
    };
    add(&mut changes, "length", count(&|one, other| one.length != other.length));
    add(&mut changes, "time of content", count(&|one, other| one.modified != other.modified));
    add(&mut changes, "time of access", count(&|one, other| one.accessed != other.accessed));
    add(&mut changes, "time of change", count(&|one, other| one.changed != other.changed));
    changes
}

fn add(changes: &mut Vec<String>, what: &str, count: usize) {
    if count > 0 {
        changes.push(format!("{what} of {count} {}", if count == 1 { "file" } else { "files" }));
    }
}

fn hashes(files: &[PathBuf]) -> Result<Vec<(PathBuf, blake3::Hash)>> {
    let mut buffer = vec![0; 1 << 20];
    let hash = |path: &PathBuf| {
        let cannot = || format!("cannot read {}", path.display());
        let mut file = File::open(path).with_context(cannot)?;
        let mut hasher = blake3::Hasher::new();
        loop {
            let count = file.read(&mut buffer).with_context(cannot)?;
            match buffer.get(..count) {
                Some(bytes) if count > 0 => hasher.update(bytes),
                _ => return Ok((path.clone(), hasher.finalize())),
            };
        }
    };
    files.iter().map(hash).collect()
}

/// So far that the next read is worth a new time to every file system that keeps any.
fn set_access_times_back(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let cannot = || format!("cannot set the access time of {}", path.display());
        let metadata = fs::metadata(path).with_context(cannot)?;
        let seconds = metadata.mtime().min(metadata.atime());
        let last_access = Timespec { tv_sec: seconds - DAYS_BEFORE * SECONDS_OF_A_DAY, tv_nsec: 0 };
        let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, path, &times, AtFlags::empty()).with_context(cannot)?;
    }
    Ok(())
}

fn files_of(subject: &Subject) -> Result<Vec<PathBuf>> {
    files_of_path(&subject.path())
}

fn files_of_path(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_dir() { files_below(path) } else { Ok(vec![path.to_owned()]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path) -> Vec<PathBuf> {
        fs::write(folder.join("a"), "text").unwrap();
        files_of_path(folder).unwrap()
    }

    #[test]
    fn every_kind_of_change_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let files = file(folder.path());
        let before = states(&files).unwrap();
        assert!(changes(&before, &states(&files).unwrap()).is_empty());
        set_access_times_back(&files).unwrap();
        let told = changes(&before, &states(&files).unwrap()).join(", ");
        assert!(told.contains("time of access of 1 file"), "{told}");
        assert!(!told.contains("content"), "{told}");
        fs::write(folder.path().join("a"), "longer text").unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        let after = files_of_path(folder.path()).unwrap();
        let told = changes(&before, &states(&after).unwrap()).join(", ");
        assert!(told.contains("new of 1 file, length of 1 file"), "{told}");
        assert!(changes(&before, &BTreeMap::new())[0].contains("missing of 1 file"));
    }

    #[test]
    fn deltas_are_told_apart_by_what_they_hold_and_not_by_how_it_is_stored() {
        let packed = |compressed: u64, raw: u64, base: u64| {
            serde_json::json!({
                "root": "r", "files": 2, "bytes": 9, "stored_bytes": 7 + raw,
                "blocks": {"compressed": compressed, "raw": raw, "zero": 1, "base": base},
            })
        };
        assert_eq!(parts_of(&packed(18, 0, 4)), parts_of(&packed(17, 1, 4)));
        assert_ne!(parts_of(&packed(18, 0, 4)), parts_of(&packed(18, 0, 5)));
    }

    #[test]
    fn content_is_told_apart_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let files = file(folder.path());
        let before = hashes(&files).unwrap();
        fs::write(folder.path().join("a"), "tesT").unwrap();
        assert_ne!(before, hashes(&files).unwrap());
    }
}

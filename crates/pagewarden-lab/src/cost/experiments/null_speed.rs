//! E4a: a whole database, read to nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::cost::cold::{cool_down, files_below};
use crate::cost::decision::{BACKUP_PASS, Decides};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::own_program::{OwnProgram, Task};
use crate::cost::subjects::{ENGINES, Subject};
use crate::cost::{program, reading};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct NullSpeed;

const COLD: &str = "cold";
const WARM: &str = "warm";
const MEBIBYTE: f64 = 1_048_576.0;
/// What the document calls a megabyte.
const MEGABYTE: f64 = 1e6;

static DESCRIPTION: Description = Description {
    name: "e4a",
    title: "a whole database read to nowhere",
    question: "How fast does pagewarden pack --to null: read and verify a whole database, beside plain reads of the same files?",
    seed: "BACKUP to NUL: 25.7 to 412.7 MB/s (decimal) on ten systems",
    by_hand: "\
1. A stopped database: pgbench -i -s 100 with data checksums; a table of MariaDB; a file of SQLite.
2. Cold: the files taken out of the page cache. Warm: read once before.
3. By turns: time pagewarden pack --to null: DIR; and a program that reads every file of it, 1 MiB at a time.
4. Bytes by seconds: MiB/s, and the document's MB/s by 10^6.",
    arms: &[
        Arm { name: "read", what: "plain reads of 1 MiB, one after the other, nothing verified" },
        Arm { name: "null", what: "pagewarden pack --to null: every page verified" },
    ],
    metrics: &[
        Metric { name: "mib_per_second", unit: "MiB/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "mb_per_second", unit: "MB/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "bytes", unit: "bytes", kind: Kind::Exact, better: Better::Lower },
    ],
    is_price: false,
    decides: Some(Decides::by_main_metric(&BACKUP_PASS, &["null"])),
    seed_figures: &[],
    blocks: (5, 10),
};

impl Experiment for NullSpeed {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let mut subjects = BTreeMap::new();
        for engine in ENGINES {
            let subject = Subject::make(engine, lab.form, &lab.stop);
            subjects.insert(engine, subject.with_context(|| engine.to_owned())?);
        }
        Ok(Box::new(Runs { subjects, program: lab.program, stop: Arc::clone(&lab.stop) }))
    }
}

struct Runs {
    subjects: BTreeMap<&'static str, Result<Subject, String>>,
    program: OwnProgram,
    stop: Arc<AtomicBool>,
}

impl Prepared for Runs {
    fn conditions(&self) -> Vec<String> {
        let both = |engine: &str| [COLD, WARM].map(|state| format!("{engine}, {state}"));
        ENGINES.iter().flat_map(|engine| both(engine)).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([("plain reads".to_owned(), "1 MiB".to_owned())]);
        for (engine, subject) in &self.subjects {
            let word = match subject {
                Ok(Subject::Postgres(cluster)) => cluster.installation().version.clone(),
                Ok(_) => "here".to_owned(),
                Err(_) => "not here".to_owned(),
            };
            settings.insert((*engine).to_owned(), word);
        }
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        ensure!(DESCRIPTION.arms.contains(arm), "no arm {}", arm.name);
        let (engine, state) = condition.split_once(", ").context("there is no such condition")?;
        let subject = match self.subjects.get(engine).context("no such engine")? {
            Ok(subject) => subject,
            Err(reason) => return Ok(Reading::unavailable(format!("{engine}: {reason}"))),
        };
        let task = Task::Read(reading::Task { files: files_of(subject)? });
        if state == COLD {
            if let Err(reason) = cool_down(subject.home())? {
                return Ok(Reading::unavailable(reason));
            }
        } else {
            task.run()?;
        }
        let (seconds, bytes) = match arm.name {
            "read" => {
                let reading = self.program.arm(&task, subject.beside(), &self.stop)?;
                (reading.values.get("seconds").copied(), reading.values.get("bytes").copied())
            }
            "null" => {
                let words = ["pack", "--to", "null:", "--json", "--quiet"];
                let Some(mut command) = self.program.command(&words) else {
                    return Ok(Reading::unavailable("this program has no command `pack`"));
                };
                command.arg(subject.path()).current_dir(subject.beside());
                let output = program::expect(&mut command, "", &self.stop)?;
                let json: Value = serde_json::from_str(&output.stdout)
                    .with_context(|| format!("pack says {}", output.said()))?;
                let field = |name: &str| json.get(name).and_then(Value::as_f64);
                (field("seconds"), field("bytes"))
            }
            other => bail!("no arm {other}"),
        };
        let seconds = seconds.filter(|seconds| *seconds > 0.0).context("no time was measured")?;
        let bytes = bytes.context("no bytes were counted")?;
        Ok(Reading::of([
            ("mib_per_second", bytes / MEBIBYTE / seconds),
            ("mb_per_second", bytes / MEGABYTE / seconds),
            ("seconds", seconds),
            ("bytes", bytes),
        ]))
    }
}

/// What a whole copy of the database would hold.
fn files_of(subject: &Subject) -> Result<Vec<std::path::PathBuf>> {
    let path = subject.path();
    if path.is_dir() { files_below(&path) } else { Ok(vec![path]) }
}

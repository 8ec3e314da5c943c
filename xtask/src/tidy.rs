//! The rules of the house that no compiler knows: who may see whom, how long a
//! file may be, what may stand in it. See `CONTRIBUTING.md`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// A file past this is asked whether it still has one subject.
const LINES_MAX: usize = 900;

/// What the files of a folder must not mention: data flows one way.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "crates/pagewarden/src/checksum",
        &[
            "crate::page",
            "crate::source",
            "crate::target",
            "crate::verify",
            "crate::report",
            "std::fs",
            "std::path",
        ],
    ),
    (
        "crates/pagewarden/src/page",
        &[
            "crate::source",
            "crate::target",
            "crate::verify",
            "crate::report",
            "std::fs",
            "std::path",
        ],
    ),
    (
        "crates/pagewarden/src/source",
        &["crate::page", "crate::target", "crate::verify", "crate::report", "crate::checksum"],
    ),
    ("crates/pagewarden/src/target", &["crate::verify", "crate::report"]),
    (
        "crates/pagewarden/src/verify",
        &[
            "crate::report",
            "crate::checksum",
            "target::postgres",
            "target::sqlite",
            "target::innodb",
            "page::postgres",
            "page::sqlite",
            "page::innodb",
        ],
    ),
    ("crates/pagewarden-lab/src/stats", &["crate::cost", "std::fs", "std::path", "pagewarden"]),
    ("crates/pagewarden-lab/src/cost/report", &["cost::run", "cost::experiments", "std::fs"]),
    (
        "crates/pagewarden/src/report",
        &["crate::page", "crate::source", "crate::checksum", "std::fs"],
    ),
];

/// Where `unsafe` may stand: the input and output, checksum-kernel and
/// foreign-function edges.
const UNSAFE: &[&str] = &[
    "crates/pagewarden/src/source",
    "crates/pagewarden/src/checksum",
    // The socket of a driver's connection, which lends its number only.
    "crates/pagewarden-db/src/engine/mysql/raw.rs",
    // What the system counted for one child: the standard library does not ask.
    "bench/src/process.rs",
    // Loads SQLite's own checksum VFS into an arm's process.
    "crates/pagewarden-lab/src/cost/sqlite/official.rs",
    // SQLite's side of the VFS: C calls in, C calls out.
    "ext/sqlite/src",
    // A VFS below ours, that remembers what it is told to write.
    "ext/sqlite/tests/power_loss/recorder.rs",
];

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Looks at every Rust file of the project.
pub fn run() -> Result<()> {
    let root = root();
    let mut faults = Vec::new();
    let mut files = Vec::new();
    for folder in ["crates", "bench", "demo", "ext", "fuzz", "xtask"] {
        find(&root.join(folder), &mut files)?;
    }
    ensure!(!files.is_empty(), "no Rust files below {}", root.display());
    for path in &files {
        let name = path.strip_prefix(&root)?.to_string_lossy().into_owned();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        look(&name, &text, &mut faults);
    }
    ensure!(faults.is_empty(), "tidy:\n  {}", faults.join("\n  "));
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let skipped = path.file_name().is_some_and(|name| name == "target" || name == "corpus");
        if path.is_dir() && !skipped {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn look(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        faults.push(format!("{name}: {lines} lines; does it still have one subject?"));
    }
    if !text.starts_with("//!") {
        faults.push(format!("{name}: begins without saying what it is (//!)"));
    }
    // Tests may look across: they are not part of the flow.
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (index, line) in code.lines().enumerate() {
        let mut fault = |what: String| faults.push(format!("{name}:{}: {what}", index + 1));
        let comment = line.trim_start().starts_with("//");
        for (folder, forbidden) in ARROWS {
            let told = forbidden.iter().find(|word| !comment && line.contains(**word));
            if let Some(word) = told.filter(|_| name.starts_with(folder)) {
                fault(format!("{folder} must not know of {word}"));
            }
        }
        let is_unsafe = !comment && (line.contains("unsafe {") || line.contains("unsafe fn"));
        if is_unsafe
            && !UNSAFE.iter().any(|folder| name.starts_with(folder))
            && name != "xtask/src/tidy.rs"
        {
            fault("unsafe outside the edges where it is allowed".to_owned());
        }
    }
    for (index, line) in text.lines().enumerate() {
        // Names of other alphabets are wanted in tests of what is printed.
        if !line.is_ascii() && !text.contains("tidy: not ascii") {
            faults.push(format!("{name}:{}: not ASCII", index + 1));
        }
    }
}

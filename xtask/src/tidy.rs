//! The rules of the house that no compiler knows: who may see whom, how long a
//! file may be, what may stand in it. See `CONTRIBUTING.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A file past this is asked whether it still has one subject.
const LINES_MAX: usize = 900;

/// The library.
const LIBRARY: &str = "crates/pagewarden/src/";

/// What the rooms of the library may import, each but itself: data flows one way. A room that is
/// not listed may import nothing. In `formats`, each engine is a room of its own, see [`room`].
const ROOMS: &[(&str, &[&str])] = &[
    ("crc32c", &[]),
    ("verdict", &[]),
    ("words", &["verdict"]),
    ("error", &["words"]),
    ("shell", &["words"]),
    ("source", &["error", "shell", "words"]),
    ("page", &["verdict", "words"]),
    ("database", &["error", "formats", "page", "protect", "repair", "source", "verdict", "words"]),
    ("verify", &["database", "error", "page", "source", "verdict", "words"]),
    ("protect", &["crc32c", "error", "formats", "source", "verdict", "verify", "words"]),
    ("report", &["database", "error", "verdict", "verify", "words"]),
    ("seal", &["database", "error", "page", "source", "verdict", "words"]),
    (
        "pack",
        &["database", "error", "formats", "page", "shell", "source", "verdict", "verify", "words"],
    ),
    (
        "repair",
        &["check", "error", "formats", "pack", "protect", "source", "verdict", "verify", "words"],
    ),
    ("check", &["database", "error", "formats", "source", "verdict", "verify"]),
    ("formats", &["database", "page", "protect", "repair"]),
    ("formats/*/checksum", &["crc32c", "verdict"]),
    ("formats/*/page", &["crc32c", "formats/*/checksum", "page", "verdict", "words"]),
    (
        "formats/*",
        &[
            "crc32c", "database", "error", "page", "protect", "repair", "source", "verdict",
            "verify", "words",
        ],
    ),
    // Aria's files lie in the directories of MariaDB, and are opened with them.
    ("formats/innodb", &["formats/aria/page"]),
    ("formats/pack", &["pack"]),
];

/// What else the files of a folder must not mention.
const ARROWS: &[(&str, &[&str])] = &[
    ("crates/pagewarden/src/page", &["std::fs", "std::path"]),
    ("crates/pagewarden/src/report", &["std::fs"]),
    ("crates/pagewarden-lab/src/stats", &["crate::cost", "std::fs", "std::path", "pagewarden"]),
    ("crates/pagewarden-lab/src/cost/report", &["cost::run", "cost::experiments", "std::fs"]),
];

/// Where `unsafe` may stand: the input and output, checksum-kernel and
/// foreign-function edges.
const UNSAFE: &[&str] = &[
    "crates/pagewarden/src/source",
    "crates/pagewarden/src/crc32c",
    "crates/pagewarden/src/formats/aria/checksum",
    "crates/pagewarden/src/formats/innodb/checksum",
    "crates/pagewarden/src/formats/postgres/checksum",
    "crates/pagewarden/src/formats/sqlite/checksum",
    "crates/pagewarden/src/formats/sqlserver/checksum",
    // The socket of a driver's connection, which lends its number only.
    "crates/pagewarden-db/src/engine/mysql/raw.rs",
    // What the system counted for one child: the standard library does not ask.
    "bench/src/process.rs",
    // Loads SQLite's own checksum VFS into an arm's process.
    "crates/pagewarden-lab/src/cost/sqlite/official.rs",
    // SQLite's side of the VFS: C calls in, C calls out.
    "ext/sqlite/src",
    // A VFS below ours, that remembers what it is asked to write.
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
    let names = files(&root)?;
    for name in names.iter().filter(|name| name.ends_with(".rs")) {
        let Ok(text) = fs::read_to_string(root.join(name)) else {
            // Git still lists a file that was just removed.
            ensure!(!root.join(name).exists(), "cannot read {name}");
            continue;
        };
        look(name, &text, &mut faults);
    }
    crate::words::look(&root, &names, &mut faults)?;
    ensure!(faults.is_empty(), "tidy:\n  {}", faults.join("\n  "));
    Ok(())
}

/// Every Rust file and every text that git knows, or would add. Not by the names of folders: one that
/// is called as Cargo's own must not go unseen.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.md"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    ensure!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).context("a file's name is no text")?;
    let files: Vec<_> = listed.lines().map(str::to_owned).collect();
    ensure!(!files.is_empty(), "no Rust files below {}", root.display());
    Ok(files)
}

/// The lines that are no test, with their numbers. Relies on the format: an item ends
/// with a brace as far to the left as it began.
fn lines_without_tests(text: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            kept.push((number, line));
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        for (_, line) in lines.by_ref() {
            let is_at_margin = line.len() - line.trim_start().len() == indent;
            let line = line.trim();
            if is_at_margin
                && !line.starts_with("#[")
                && (line == "}" || line.ends_with(';') || line.ends_with("{}"))
            {
                break;
            }
        }
    }
    kept
}

/// The room of a path in the library, such as `verify` or `formats/postgres`: of an engine's
/// checksums and pages, which see no files, `formats/postgres/page`.
fn room(path: &[&str]) -> String {
    match path {
        ["formats", engine, part @ ("checksum" | "page"), ..] => format!("formats/{engine}/{part}"),
        ["formats", engine, ..] => format!("formats/{engine}"),
        [first, ..] => (*first).to_owned(),
        [] => String::new(),
    }
}

/// The room of a file; `None` outside the library, for its tests, and for its front door.
fn room_of_file(name: &str) -> Option<String> {
    let path = name.strip_prefix(LIBRARY)?.strip_suffix(".rs")?;
    let path: Vec<_> = path.split('/').filter(|part| *part != "mod").collect();
    let is_test = path.iter().any(|part| matches!(*part, "tests" | "conformance" | "specimens"));
    (!is_test && path != ["lib"]).then(|| room(&path))
}

/// The rooms that a line names.
fn imports(line: &str) -> impl Iterator<Item = String> {
    line.split("crate::").skip(1).map(|rest| {
        let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
        let path = rest.split(|c| !is_path(c)).next().unwrap_or_default();
        let parts: Vec<_> = path.split("::").filter(|part| !part.is_empty()).collect();
        // A macro, or a name of the front door.
        let is_room =
            parts.first().is_some_and(|part| part.starts_with(|c: char| c.is_lowercase()));
        room(if is_room { &parts } else { &[] })
    })
}

/// True if [`ROOMS`] lets one room import the other.
fn may_import(room: &str, other: &str) -> bool {
    // What is common to all formats is no engine's.
    let is_registry = other.strip_prefix("formats/").is_some_and(|engine| {
        matches!(engine, "FORMATS") || engine.starts_with(|c: char| c.is_uppercase())
    });
    let other = if is_registry { "formats" } else { other };
    let engine = room.strip_prefix("formats/").and_then(|rest| rest.split('/').next());
    let is_part = room.matches('/').count() == 2;
    let own = engine.map(|engine| format!("formats/{engine}"));
    if other.is_empty() || other == room {
        return true;
    }
    if let (Some(own), false) = (&own, is_part)
        && other.starts_with(&format!("{own}/"))
    {
        return true;
    }
    ROOMS.iter().any(|(name, allowed)| {
        let pattern = |text: &str| text.replace('*', engine.unwrap_or("*"));
        let is_mine = pattern(name) == room;
        is_mine && allowed.iter().any(|word| pattern(word) == other)
    })
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
    for (number, line) in lines_without_tests(text) {
        let mut fault = |what: String| faults.push(format!("{name}:{number}: {what}"));
        let comment = line.trim_start().starts_with("//");
        for (folder, forbidden) in ARROWS {
            let told = forbidden.iter().find(|word| !comment && line.contains(**word));
            if let Some(word) = told.filter(|_| name.starts_with(folder)) {
                fault(format!("{folder} must not know of {word}"));
            }
        }
        for other in imports(line).filter(|_| !comment) {
            if let Some(room) = room_of_file(name).filter(|room| !may_import(room, &other)) {
                fault(format!("{room} must not import {other}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        look(name, text, &mut faults);
        faults
    }

    #[test]
    fn files_that_break_a_rule_are_named_with_their_line() {
        let page = "crates/pagewarden/src/page/new.rs";
        assert_eq!(faults(page, "//! Pages.\n\nuse crate::words::bytes;\n"), [] as [&str; 0]);
        for (name, text, expected) in [
            (page, "//! Pages.\nuse crate::verify::Options;\n", ":2: page must not import verify"),
            (
                "crates/pagewarden/src/database/x.rs",
                "//! X.\n\nuse crate::verify::Summary;\n",
                ":3: database must not import verify",
            ),
            (
                "crates/pagewarden/src/formats/sqlite/files.rs",
                "//! X.\nuse crate::formats::innodb::checksum::fold;\n",
                ":2: formats/sqlite must not import formats/innodb/checksum",
            ),
            (
                "crates/pagewarden/src/formats/sqlite/page.rs",
                "//! X.\nuse crate::formats::sqlite::files::Sidecars;\n",
                ":2: formats/sqlite/page must not import formats/sqlite",
            ),
            (
                "crates/pagewarden/src/new.rs",
                "//! X.\nuse crate::verdict::Kind;\n",
                ":2: new must not import verdict",
            ),
            (page, "//! Pages.\nfn f() {\n    unsafe { g() }\n}\n", ":3: unsafe outside"),
            (page, "use std::io;\n", "begins without saying"),
            (page, "//! Gr\u{fc}n.\n", ":1: not ASCII"),
        ] {
            let found = faults(name, text);
            assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:?}");
        }
        let long = format!("//! Long.\n{}", "\n".repeat(LINES_MAX));
        assert_eq!(faults(page, &long).len(), 1);
    }

    #[test]
    fn only_tests_may_look_across_and_not_what_stands_behind_them() {
        let page = "crates/pagewarden/src/page/new.rs";
        let test = "#[cfg(test)]\nmod tests {\n    use crate::verify::Options;\n\n    fn f() {\n    }\n}\n";
        assert_eq!(faults(page, &format!("//! P.\n{test}")), [] as [&str; 0]);
        let behind = format!("//! P.\n{test}use crate::verify::Options;\n");
        assert_eq!(faults(page, &behind).len(), 1);
        let short = "//! P.\n#[cfg(test)]\nmod tests;\nuse crate::verify::Options;\n";
        assert_eq!(faults(page, short).len(), 1);
    }

    #[test]
    fn the_tree_keeps_the_rules() {
        run().unwrap();
    }

    #[test]
    fn every_room_of_the_library_is_looked_at() {
        let files = files(&root()).unwrap();
        for folder in ["database", "formats", "verify", "page", "protect", "seal"] {
            let folder = format!("crates/pagewarden/src/{folder}/");
            assert!(files.iter().any(|file| file.starts_with(&folder)), "{folder}");
        }
    }
}

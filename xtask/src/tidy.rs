//! The rules of the house that no compiler knows: who may see whom, how long a
//! file may be, what may stand in it. See `CONTRIBUTING.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A file past this is asked whether it still has one subject.
const LINES_MAX: usize = 900;
/// Lines of code in the body of a function, but for tests, blank lines and comments.
const BODY_LINES_MAX: usize = 70;

/// A crate, or the crates of a folder, whose rooms may not all see each other: data flows one way.
/// That no format sees another, and that the core sees none, is the compiler's matter.
struct House {
    /// Where its files are; `*` is the name of one crate.
    place: &'static str,
    /// What each room may import, beside itself: rooms of the same crate, and those of the core as
    /// `core/...`. A room that is not listed may import nothing, unless there is a room `*`.
    rooms: &'static [(&'static str, &'static [&'static str])],
}

const HOUSES: &[House] = &[
    House {
        place: "crates/pagewarden-core/src/",
        rooms: &[
            ("crc", &[]),
            ("verdict", &[]),
            ("words", &["verdict"]),
            ("error", &["words"]),
            ("system", &[]),
            ("shell", &["system", "words"]),
            ("source", &["error", "shell", "system", "testing", "words"]),
            ("page", &["verdict", "words"]),
            ("database", &["error", "page", "protect", "repair", "source", "verdict", "words"]),
            ("verify", &["database", "error", "page", "source", "system", "verdict", "words"]),
            ("protect", &["crc", "error", "source", "system", "verdict", "verify", "words"]),
            (
                "repair",
                &[
                    "database", "error", "page", "protect", "source", "system", "verdict",
                    "verify", "words",
                ],
            ),
            ("testing", &["error", "page", "protect", "repair", "verdict"]),
        ],
    },
    House {
        place: "crates/formats/*/src/",
        rooms: &[
            ("checksum", &["core/crc", "core/verdict"]),
            ("page", &["checksum", "core/crc", "core/page", "core/verdict", "core/words"]),
            (
                "*",
                &[
                    "checksum",
                    "core/crc",
                    "core/database",
                    "core/error",
                    "core/page",
                    "core/protect",
                    "core/repair",
                    "core/source",
                    "core/system",
                    "core/verdict",
                    "core/verify",
                    "core/words",
                    "page",
                ],
            ),
        ],
    },
    House {
        place: "crates/pagewarden/src/",
        rooms: &[
            (
                "formats",
                &[
                    "database", "error", "pack", "page", "protect", "repair", "source", "verdict",
                    "words",
                ],
            ),
            ("database", &["error", "formats", "source", "verdict", "words"]),
            ("protect", &["error", "formats", "verify"]),
            (
                "repair",
                &[
                    "core/system",
                    "error",
                    "formats",
                    "pack",
                    "protect",
                    "shell",
                    "verdict",
                    "verify",
                ],
            ),
            ("report", &["database", "error", "verdict", "verify", "words"]),
            ("seal", &["database", "error", "page", "repair", "source", "verdict", "words"]),
            (
                "pack",
                &[
                    "core/system",
                    "crc",
                    "database",
                    "error",
                    "formats",
                    "page",
                    "shell",
                    "source",
                    "verdict",
                    "verify",
                    "words",
                ],
            ),
            ("check", &["database", "error", "formats", "source", "verdict", "verify"]),
            (
                "packing",
                &[
                    "database", "error", "formats", "pack", "report", "source", "system",
                    "verdict", "verify", "words",
                ],
            ),
        ],
    },
];

/// Formats that build on another one. Aria's files lie in the directories of MariaDB, and are opened
/// with them.
const NEIGHBOURS: &[(&str, &str)] = &[("innodb", "aria")];

/// What else the files of a folder must not mention.
const ARROWS: &[(&str, &[&str])] = &[
    ("crates/pagewarden-core/src/page", &["std::fs", "std::path"]),
    ("crates/pagewarden/src/report", &["std::fs"]),
    ("crates/pagewarden-lab/src/stats", &["crate::cost", "std::fs", "std::path", "pagewarden"]),
    ("crates/pagewarden-lab/src/cost/report", &["cost::run", "cost::experiments", "std::fs"]),
];

/// Where `unsafe` may stand: the input and output, checksum-kernel and
/// foreign-function edges.
const UNSAFE: &[&str] = &[
    "crates/pagewarden-core/src/source",
    // Calls of Windows that the standard library does not make.
    "crates/pagewarden-core/src/system",
    "crates/pagewarden-core/src/crc",
    "crates/formats/aria/src/checksum",
    "crates/formats/innodb/src/checksum",
    "crates/formats/postgres/src/checksum",
    "crates/formats/sqlite/src/checksum",
    "crates/formats/sqlserver/src/checksum",
    // The socket of a driver's connection, which lends its number only.
    "crates/pagewarden-db/src/engine/mysql/raw.rs",
    // What the system counted for one child: the standard library does not ask.
    "bench/src/process.rs",
    // Loads SQLite's own checksum VFS into an arm's process.
    "crates/pagewarden-lab/src/cost/sqlite/official.rs",
    // A stream of Arrow, moved out of the capsule in which another library hands it over.
    "python/src/capsule.rs",
    // SQLite's side of the VFS: C calls in, C calls out.
    "ext/sqlite/src",
    // VFSs over ours, which pass on what they are asked to do.
    "ext/sqlite/tests/linked/layered.rs",
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
    look_at_formats(&root, &mut faults)?;
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

/// The house and the room of a file; `None` outside of houses, for tests, and for a front door.
fn room_of_file(name: &str) -> Option<(&'static House, String)> {
    let (house, path) = HOUSES.iter().find_map(|house| Some((house, below(name, house.place)?)))?;
    let path: Vec<_> = path.strip_suffix(".rs")?.split('/').collect();
    let is_test = path.iter().any(|part| matches!(*part, "tests" | "specimens"));
    let first = path.first().copied().unwrap_or_default();
    (!is_test && first != "lib").then(|| (house, first.to_owned()))
}

/// What is left of a path below a place.
fn below<'a>(name: &'a str, place: &str) -> Option<&'a str> {
    match place.split_once("*/") {
        None => name.strip_prefix(place),
        Some((before, behind)) => {
            name.strip_prefix(before)?.split_once('/')?.1.strip_prefix(behind)
        }
    }
}

/// The rooms that a line names: those of its own crate, and of the core as `core/...`.
fn imports(line: &str) -> impl Iterator<Item = String> {
    let named = |line: &str, begin: &'static str, prefix: &'static str| -> Vec<String> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        line.split(begin)
            .skip(1)
            .map(|rest| rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len())))
            // A macro, or a name of the front door, has no room.
            .filter(|(room, behind)| {
                room.starts_with(|c: char| c.is_lowercase()) && !behind.starts_with('!')
            })
            .map(|(room, _)| room)
            .map(|room| format!("{prefix}{room}"))
            .collect()
    };
    let core = named(line, "pagewarden_core::", "core/");
    named(line, "crate::", "").into_iter().chain(core)
}

/// True if the house lets one room import the other.
fn may_import(house: &House, room: &str, other: &str) -> bool {
    let known = |name: &str| house.rooms.iter().any(|(known, _)| *known == name);
    let listed = |name: &str| match known(name) || !known("*") || name.starts_with("core/") {
        true => name.to_owned(),
        false => "*".to_owned(),
    };
    let (room, other) = (listed(room), listed(other));
    // The library shows what the core has by the same name.
    room == other
        || other.strip_prefix("core/") == Some(&room)
        || house
            .rooms
            .iter()
            .any(|(name, allowed)| *name == room && allowed.contains(&other.as_str()))
}

/// Every crate of a format runs the suite, is in the registry, and builds on no other format.
fn look_at_formats(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let registry = root.join("crates/pagewarden/src/formats/mod.rs");
    let registry = fs::read_to_string(&registry).context("the registry")?;
    let folder = root.join("crates/formats");
    for entry in fs::read_dir(&folder).context("crates/formats")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let read = |file: &str| {
            let path = folder.join(&name).join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        if !read("src/lib.rs")?.contains("pagewarden_core::conformance!(") {
            faults.push(format!("crates/formats/{name}: does not run the conformance suite"));
        }
        if !registry.contains(&format!("pagewarden_format_{name} as {name};")) {
            faults.push(format!("crates/formats/{name}: is not in the registry"));
        }
        let manifest = read("Cargo.toml")?;
        let others = manifest.split("\npagewarden-format-").skip(1);
        for other in others.filter_map(|rest| rest.split(['.', ' ']).next()) {
            if !NEIGHBOURS.contains(&(&name, other)) {
                faults.push(format!("crates/formats/{name}: must not build on {other}"));
            }
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
            if let Some((house, room)) = room_of_file(name)
                && !may_import(house, &room, &other)
            {
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
    look_at_functions(name, text, faults);
    for (index, line) in text.lines().enumerate() {
        // Names of other alphabets are wanted in tests of what is printed.
        if !line.is_ascii() && !text.contains("tidy: not ascii") {
            faults.push(format!("{name}:{}: not ASCII", index + 1));
        }
    }
}

/// Functions are short enough to be read at once. Relies on the format, as [`lines_without_tests`] does.
fn look_at_functions(name: &str, text: &str, faults: &mut Vec<String>) {
    if name.contains("/tests/") || name.ends_with("/tests.rs") || name.starts_with("fuzz/") {
        return;
    }
    let mut lines = lines_without_tests(text).into_iter().peekable();
    while let Some((number, line)) = lines.next() {
        let (indent, Some(function)) = (indent_of(line), function_named(line)) else { continue };
        // Of a declaration that goes over several lines, all to the brace; of one without a body, none.
        let mut head = line;
        while !head.ends_with(['{', '}', ';']) {
            let Some((_, next)) = lines.next() else { return };
            head = next;
        }
        if !head.ends_with('{') {
            continue;
        }
        let is_end = |line: &str| line.trim() == "}" && indent_of(line) == indent;
        let mut inner = lines.clone();
        let body = inner.by_ref().map(|(_, line)| line).take_while(|line| !is_end(line));
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let count = body.filter(is_code).count();
        if count > BODY_LINES_MAX {
            faults.push(format!("{name}:{number}: {function} has {count} lines of code"));
        }
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name of the function whose declaration begins in this line.
fn function_named(line: &str) -> Option<&str> {
    const BEFORE: &[&str] = &["const", "async", "unsafe", "extern", "\"C\""];
    let (before, behind) = line.trim_start().split_once("fn ")?;
    let mut before = before.split_whitespace();
    let is_it = before.all(|word| word.starts_with("pub") || BEFORE.contains(&word));
    let end = behind.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    is_it.then(|| behind.split_at(end).0)
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
        let page = "crates/pagewarden-core/src/page/new.rs";
        assert_eq!(faults(page, "//! Pages.\n\nuse crate::words::bytes;\n"), [] as [&str; 0]);
        for (name, text, expected) in [
            (page, "//! Pages.\nuse crate::verify::Options;\n", ":2: page must not import verify"),
            (
                "crates/pagewarden-core/src/database/x.rs",
                "//! X.\n\nuse crate::verify::Summary;\n",
                ":3: database must not import verify",
            ),
            (
                "crates/formats/sqlite/src/checksum.rs",
                "//! X.\nuse pagewarden_core::source::file;\n",
                ":2: checksum must not import core/source",
            ),
            (
                "crates/formats/sqlite/src/page.rs",
                "//! X.\nuse crate::files::Sidecars;\n",
                ":2: page must not import files",
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
    fn long_functions_are_named() {
        let page = "crates/pagewarden-core/src/page/new.rs";
        let of = |lines: usize| {
            let body = "        g();\n\n        // Why.\n".repeat(lines);
            format!(
                "//! P.\nimpl P {{\n    pub(super) const fn f(\n        a: u8,\n    ) -> u8 {{\n{body}    }}\n}}\n"
            )
        };
        assert_eq!(faults(page, &of(BODY_LINES_MAX)), [] as [&str; 0]);
        let found = faults(page, &of(BODY_LINES_MAX + 1));
        assert_eq!(found, [format!("{page}:3: f has 71 lines of code")]);
        let test = format!("//! P.\n#[cfg(test)]\n{}", of(90).replace("//! P.\n", ""));
        assert_eq!(faults(page, &test), [] as [&str; 0]);
    }

    #[test]
    fn only_tests_may_look_across_and_not_what_stands_behind_them() {
        let page = "crates/pagewarden-core/src/page/new.rs";
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
        for house in HOUSES {
            for (room, _) in house.rooms {
                let is_there = |name: &&String| match room_of_file(name) {
                    Some((its, name)) => {
                        its.place == house.place && (name == *room || *room == "*")
                    }
                    None => false,
                };
                assert!(files.iter().any(|file| is_there(&file)), "{}{room}", house.place);
            }
        }
    }
}

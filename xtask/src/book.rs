//! The rules of the book in `docs/`: every page has its place in the contents, none is too long to be
//! read at once, and every link leads somewhere, from the book and into it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The folder of the book.
const BOOK: &str = "docs/";

/// Its table of contents.
const CONTENTS: &str = "docs/SUMMARY.md";

/// A page past this has two subjects.
const WORDS_MAX: usize = 1500;

/// Pages that are still longer: one that was split leaves this list for good.
const LONGER: &[&str] = &[];

/// Where files are named that are not there: the tests of this file.
const NOT_READ: &str = "xtask/src/book.rs";

/// Texts whose paths must lead somewhere, with what stands for the placeholders in them: the errands are
/// walked with the smallest format and the smallest command.
const MAPS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];
const PLACEHOLDERS: &[(&str, &str)] = &[("<name>", "duckdb"), ("<command>", "survey")];

/// Looks at every page, and at every other text and source that names one.
pub fn run() -> Result<()> {
    let root = crate::tidy::root();
    let mut texts = BTreeMap::new();
    for name in crate::tidy::files(&root)? {
        // Git still lists a file that was just removed.
        if root.join(&name).exists() {
            let text = fs::read_to_string(root.join(&name)).with_context(|| name.clone())?;
            texts.insert(name, text);
        }
    }
    let faults = look(&texts, &|name| root.join(name).exists());
    ensure!(faults.is_empty(), "book:\n  {}", faults.join("\n  "));
    Ok(())
}

/// All faults of these files; `exists` answers for those that are no text.
fn look(texts: &BTreeMap<String, String>, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    contents(texts, &mut faults);
    for name in MAPS {
        let text = texts.get(*name).map_or("", String::as_str);
        faults.extend(lost_paths(text, texts, exists).map(|path| format!("{name}: no {path}")));
    }
    for (name, text) in texts {
        if is_page(name) {
            let words = text.split_whitespace().count();
            if (words > WORDS_MAX) != LONGER.contains(&name.as_str()) {
                faults.push(format!("{name}: {words} words; the most are {WORDS_MAX}"));
            }
        }
        if name.ends_with(".md") {
            for (line, target) in links(text) {
                if let Some(fault) = follow(name, &target, texts, exists) {
                    faults.push(format!("{name}:{line}: {target}: {fault}"));
                }
            }
        }
        if name != NOT_READ {
            for (line, page) in mentions(text) {
                if let Some(fault) = follow("", &page, texts, exists) {
                    faults.push(format!("{name}:{line}: {page}: {fault}"));
                }
            }
        }
    }
    faults
}

/// The paths between backticks that lead nowhere: neither from the root, nor as the end of the path of a
/// file or folder.
fn lost_paths<'a>(
    text: &'a str,
    texts: &'a BTreeMap<String, String>,
    exists: &'a dyn Fn(&str) -> bool,
) -> impl Iterator<Item = String> + 'a {
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|word| word.contains('/') && !word.contains([' ', '*', '\n']));
    let filled = paths.map(|path| {
        PLACEHOLDERS.iter().fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
    });
    filled.filter(move |path| {
        let inside = format!("/{path}");
        let is_end = |file: &String| match path.ends_with('/') {
            true => file.contains(&inside),
            false => file.ends_with(&inside),
        };
        !exists(path) && !texts.keys().any(is_end)
    })
}

fn is_page(name: &str) -> bool {
    name.starts_with(BOOK) && name.ends_with(".md") && name != CONTENTS
}

/// Every page has one line in the contents.
fn contents(texts: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    let mut listed = BTreeSet::new();
    for (line, target) in texts.get(CONTENTS).into_iter().flat_map(|text| links(text)) {
        if !listed.insert(format!("{BOOK}{target}")) {
            faults.push(format!("{CONTENTS}:{line}: {target} is listed twice"));
        }
    }
    for page in texts.keys().filter(|name| is_page(name) && !listed.contains(*name)) {
        faults.push(format!("{page}: not in {CONTENTS}"));
    }
}

/// What is wrong with a link that stands in a file; nothing with one to another machine.
fn follow(
    from: &str,
    target: &str,
    texts: &BTreeMap<String, String>,
    exists: &dyn Fn(&str) -> bool,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = (if path.is_empty() { Some(from.to_owned()) } else { join(from, path) })
    else {
        return Some("leads out of the project".to_owned());
    };
    if from.starts_with(BOOK) && !file.starts_with(BOOK) {
        return Some("leads out of the book".to_owned());
    }
    match texts.get(&file) {
        Some(text) if !anchor.is_empty() && !anchors(text).contains(anchor) => {
            Some(format!("{file} has no such heading"))
        }
        Some(_) => None,
        None if exists(&file) => None,
        None => Some(format!("there is no {file}")),
    }
}

/// A relative path, as seen from a file. `None` if it leads above the root.
fn join(from: &str, path: &str) -> Option<String> {
    let folder = Path::new(from).parent().and_then(Path::to_str).unwrap_or_default();
    let mut parts: Vec<_> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop().filter(|part| !part.is_empty())?,
            name => parts.push(name),
        }
    }
    parts.retain(|part| !part.is_empty());
    Some(parts.join("/"))
}

/// The lines of a text that are no code, with their numbers: code in a line is taken out.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code && !line.starts_with("    ") {
            let parts = line.split('`').enumerate();
            let kept: Vec<_> =
                parts.map(|(at, part)| if at % 2 == 0 { part } else { "" }).collect();
            lines.push((number, kept.join("`")));
        }
    }
    lines
}

/// Where the links of a text lead, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// The pages that a text or a source names from the root of the project, as in `docs/json.md`.
fn mentions(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (at, _) in line.match_indices(BOOK) {
            let before = line.get(..at).and_then(|before| before.chars().next_back());
            if before.is_some_and(|letter| letter.is_alphanumeric() || "/.-_".contains(letter)) {
                continue;
            }
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/-_.#".contains(letter);
            let name = line.get(at..).unwrap_or_default();
            let name = name.split(|letter| !is_part(letter)).next().unwrap_or_default();
            let name = name.trim_end_matches('.');
            if name.ends_with(".md") || name.contains(".md#") {
                found.push((number, name.to_owned()));
            }
        }
    }
    found
}

/// The names that mdBook and GitHub give to the headings of a text.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading.trim());
        let times = seen.entry(name.clone()).or_default();
        names.insert(if *times == 0 { name } else { format!("{name}-{times}") });
        *times += 1;
    }
    names
}

fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    });
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# One\n\n## What it `does`: now\n\n[two](two.md#here), [self](#one)\n";

    fn faults(changes: &[(&str, &str)]) -> Vec<String> {
        let mut texts: BTreeMap<_, _> = [
            (CONTENTS, "# Contents\n\n- [One](one.md)\n- [Two](two.md)\n"),
            ("docs/one.md", PAGE),
            ("docs/two.md", "# Two\n\n## Here\n"),
            ("README.md", "[One](docs/one.md#what-it-does-now) ![map](docs/map.svg)\n"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into();
        for (name, text) in changes {
            texts.insert((*name).to_owned(), (*text).to_owned());
        }
        look(&texts, &|name| name == "docs/map.svg")
    }

    #[test]
    fn a_book_without_faults_has_none() {
        assert_eq!(faults(&[]), [] as [&str; 0]);
    }

    #[test]
    fn every_fault_is_named_with_its_file_and_line() {
        let long = "word ".repeat(WORDS_MAX + 1);
        for (name, text, expected) in [
            ("docs/three.md", "# Three\n", "docs/three.md: not in docs/SUMMARY.md"),
            ("docs/two.md", &long, "docs/two.md: 1501 words"),
            (
                CONTENTS,
                "[One](one.md)\n[Two](two.md)\n[Two](two.md)\n",
                ":3: two.md is listed twice",
            ),
            (CONTENTS, "[One](one.md)\n[Two](two.md)\n[4](four.md)\n", "there is no docs/four.md"),
            (
                "docs/two.md",
                "# Two\n",
                "docs/one.md:5: two.md#here: docs/two.md has no such heading",
            ),
            (
                "docs/two.md",
                "## Here\n[x](../README.md)\n",
                ":2: ../README.md: leads out of the book",
            ),
            ("README.md", "[x](../x.md)\n", "README.md:1: ../x.md: leads out of the project"),
            ("README.md", "[x](docs/no.svg)\n", "there is no docs/no.svg"),
            (
                "src/a.rs",
                "//! See `docs/no.md`.\n",
                "src/a.rs:1: docs/no.md: there is no docs/no.md",
            ),
            ("src/a.rs", "// docs/one.md#no\n", "docs/one.md has no such heading"),
        ] {
            let found = faults(&[(name, text)]);
            assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn links_in_code_and_to_other_machines_are_not_followed() {
        let text =
            "## Here\n`[x](no.md)` [y](https://example.org/docs/no.md)\n\n```\n[z](no.md)\n```\n";
        assert_eq!(faults(&[("docs/two.md", text)]), [] as [&str; 0]);
        assert_eq!(mentions("https://sqlite.org/docs/no.md"), []);
    }

    #[test]
    fn headings_of_one_name_are_counted() {
        let names = anchors("# A b\n## A b\n```\n# c\n```\n### `pack --to`\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a-b", "a-b-1", "pack---to"]);
    }

    #[test]
    fn path_that_leads_nowhere_is_named() {
        let texts = BTreeMap::from([("crates/x/src/verify/held.rs".to_owned(), String::new())]);
        let text =
            "`verify/held.rs` and `src/verify/`, `verify/gone.rs`, `x/y z`, `docs/<name>.md`";
        let lost: Vec<_> = lost_paths(text, &texts, &|_| false).collect();
        assert_eq!(lost, ["verify/gone.rs", "docs/duckdb.md"]);
    }

    #[test]
    fn the_book_keeps_the_rules() {
        run().unwrap();
    }
}

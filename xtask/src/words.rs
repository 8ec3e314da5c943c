//! Words that do not stand in what people read: comments, help, messages, documentation.
//!
//! They belong to a private English: each hides who does what, or stands for a standard term. See
//! "Plain English" in `CONTRIBUTING.md`. Rust files are read as a whole, with their code: no name in it
//! looks like one of these words.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// What is not written, and what is written instead.
const WORDS: &[(&str, &str)] = &[
    ("nobody", "name who does not: no process, no server, no user"),
    ("somebody", "name who does: a program, a user, another process"),
    ("whoever", "name who does: a reader, a caller, a program that"),
    ("so many", "name the number: the number of pages"),
    ("to be had", "available"),
    ("at hand", "available"),
    ("of ours", "name whose: Pagewarden's, this library's"),
    ("held against", "compared with"),
    ("gone on with", "resumed"),
    ("goes on where it was", "resumes"),
    ("passes unseen", "is not detected"),
    ("told apart", "distinguished"),
    ("is told", "say who reports what: the note says, is reported"),
    ("are told", "say who reports what: the note says, are reported"),
    ("be told", "be known, be reported"),
];

/// A user of every Unix system, whose name is one of these words.
const UNIX_USER: &str = "\"nobody\"";

/// The list itself is the one file that has them.
const LIST: &str = "xtask/src/words.rs";

/// Looks at the given files, adding to `faults` what stands in them.
pub fn look(root: &Path, names: &[String], faults: &mut Vec<String>) -> Result<()> {
    for name in names.iter().filter(|name| *name != LIST) {
        // Git still lists a file that was just removed.
        if root.join(name).exists() {
            let text = fs::read_to_string(root.join(name)).with_context(|| name.clone())?;
            faults.extend(found(name, &text));
        }
    }
    Ok(())
}

/// The words in a text, with their lines; a phrase may begin on one line and end on the next.
fn found(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().map(content).collect();
    let mut faults = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1).map_or("", String::as_str);
        let both = format!("{line} {next}");
        for (word, instead) in WORDS {
            let begins_here = |(at, _): &(usize, &str)| *at < line.len();
            if both
                .match_indices(word)
                .take_while(begins_here)
                .any(|(at, _)| stands_alone(&both, at, word))
            {
                faults.push(format!("{name}:{}: \"{word}\": {instead}", index + 1));
            }
        }
    }
    faults
}

/// A line without what marks it as a comment, in lower case.
fn content(line: &str) -> String {
    let words = line.trim().trim_start_matches(['/', '!', '#', '*', '|']).trim();
    words.replace(UNIX_USER, "\"\"").to_lowercase()
}

fn stands_alone(text: &str, at: usize, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let before = text.get(..at).and_then(|text| text.chars().next_back());
    let behind = text.get(at + word.len()..).and_then(|text| text.chars().next());
    !before.is_some_and(is_part) && !behind.is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_wherever_they_stand() {
        let text = "//! Nobody reads it.\n/// The file is\n/// told to wait.\nlet name = \"so many pages\";\n";
        let lines: Vec<_> = found("a.rs", text).iter().map(|fault| fault[..7].to_owned()).collect();
        assert_eq!(lines, ["a.rs:1:", "a.rs:2:", "a.rs:4:"]);
    }

    #[test]
    fn names_and_longer_words_are_none() {
        let texts = [
            "let is_told = nobody_knows;",
            "this told",
            "somebody_else",
            "plain English\n",
            "let user = \"nobody\";",
        ];
        for text in texts {
            assert_eq!(found("a.rs", text), Vec::<String>::new(), "{text}");
        }
    }
}

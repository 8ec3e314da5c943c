//! Every command line of the book and of the README is one that the program takes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Arguments;

/// What ends a command, so that another may begin behind it.
const ENDS: [&str; 6] = ["|", "||", "&&", ";", "&", "("];

/// The words of a line, as a shell takes them apart; `None` where a quote is not closed, which output
/// of programs may have. Signs that end a command are words of their own.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == letter => break,
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '|' | '&' | ';' | '(' | ')' => {
                words.extend(word.take());
                let is_double = letter != ';' && letters.next_if_eq(&letter).is_some();
                words.push(if is_double {
                    format!("{letter}{letter}")
                } else {
                    letter.to_string()
                });
            }
            '<' | '>' => {
                // The number before it is that of a descriptor.
                if word.as_deref().is_some_and(|word| word.parse::<u8>().is_err()) {
                    words.extend(word.take());
                }
                word = None;
                while letters.next_if(|next| "<>& ".contains(*next)).is_some() {}
                while letters.next_if(|next| *next != ' ').is_some() {}
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

/// The calls of the program on a line: its arguments, with its name.
fn calls(line: &str) -> Vec<Vec<String>> {
    let words = words(line).unwrap_or_default();
    let mut calls = Vec::new();
    for command in words.split(|word| ENDS.contains(&word.as_str()) || word == ")") {
        let is_program = |word: &String| word == "pagewarden" || word.ends_with("/pagewarden");
        // Other programs' words, and other languages than the shell's.
        let is_other = command.first().is_some_and(|first| {
            matches!(
                first.as_str(),
                "cp" | "cargo"
                    | "install"
                    | "ls"
                    | "apt"
                    | "object"
                    | "-"
                    | "ssh-keygen"
                    | "warning:"
            )
        });
        if let Some(at) = command.iter().position(is_program).filter(|_| !is_other) {
            calls.push(command.iter().skip(at).cloned().collect());
        }
    }
    calls
}

/// The lines of code in a page, with their numbers; a line that ends with a backslash goes on.
fn code(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    // The language of the block that a line is in.
    let (mut language, mut goes_on) = (None, false);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(named) = line.trim_start().strip_prefix("```") {
            language = if language.is_some() { None } else { Some(named) };
            continue;
        }
        let is_code = match language {
            Some(language) => matches!(language, "" | "sh" | "bash" | "console" | "text" | "ini"),
            None => line.starts_with("    "),
        };
        if !is_code {
            continue;
        }
        let line = line.trim();
        let (line, continues) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let line = line.strip_prefix("$ ").unwrap_or(line);
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(line),
            None => lines.push((number, line.to_owned())),
        }
        goes_on = continues;
    }
    lines
}

/// What is wrong with a call, in the words of the command line. Values that only the reader knows
/// (`$1`, `...`) are not judged.
fn fault(call: &[String]) -> Option<String> {
    let is_open = |word: &String| word.contains('$') || word.contains("...") || word == "RATE";
    match Arguments::try_parse_from(call) {
        Ok(_) => None,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
            ErrorKind::ValueValidation | ErrorKind::InvalidValue if call.iter().any(is_open) => {
                None
            }
            _ => Some(error.to_string().lines().next().unwrap_or_default().to_owned()),
        },
    }
}

/// What is wrong with a line. What is said of a command may stand behind it, with blanks between.
fn line_fault(line: &str) -> Option<String> {
    let wrong = |line: &str| calls(line).iter().find_map(|call| fault(call));
    let why = wrong(line)?;
    let (command, remark) = line.rsplit_once("  ").unwrap_or((line, ""));
    let is_remark = remark.starts_with(char::is_alphanumeric) && !calls(command).is_empty();
    (!is_remark || wrong(command).is_some()).then_some(why)
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_command_line_of_the_book_is_one_that_the_program_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut found);
    let (mut count, mut faults) = (0, Vec::new());
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in code(&text) {
            // How a command is called in general, in brackets.
            if line.contains('<') && line.contains('>') || line.contains(" [") {
                continue;
            }
            count += calls(&line).len();
            let place = path.strip_prefix(&root).unwrap().display();
            faults
                .extend(line_fault(&line).map(|why| format!("{place}:{number}: {line}\n  {why}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 150, "only {count} command lines were found");
}

#[test]
fn a_wrong_flag_and_a_wrong_command_are_faults() {
    for (line, is_right) in [
        ("sudo -u postgres pagewarden check --rate 100MiB/s DIR > out.txt 2>&1 || mail dba", true),
        ("zstd -dc a.zst | /usr/bin/pagewarden check -   # from a pipe", true),
        ("pagewarden check --nagios --rate $ARG2$ $ARG1$", true),
        ("pagewarden check DIR     as by pg_basebackup -Fp", true),
        ("pagewarden chek DIR     as by pg_basebackup -Fp", false),
        ("pagewarden check DIR     --no-such-flag", false),
        ("pagewarden check --rate fast DIR", false),
        ("pagewarden check --no-such-flag DIR", false),
        ("true && pagewarden chek DIR", false),
        ("pagewarden check", false),
        ("cat a | pagewarden check --json --nagios -", false),
    ] {
        let calls = calls(line);
        assert_eq!(calls.len(), 1, "{line}");
        assert_eq!(line_fault(line).is_none(), is_right, "{line}: {:?}", fault(&calls[0]));
    }
    assert_eq!(code("```sh\npagewarden \\\n  check a\n```\ntext\n").len(), 1);
    assert_eq!(calls("ls -l pagewarden check"), Vec::<Vec<String>>::new());
}

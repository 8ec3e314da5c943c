//! `pagewarden man --markdown`: the reference of the book, from the command line's own definition.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, Command};

/// Writes a page for the program and one for each command.
pub fn write_all(program: &Command, folder: &Path) -> io::Result<()> {
    for (name, text) in pages(program) {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// The names of the pages and their text, the program's own first.
fn pages(program: &Command) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut left = vec![program];
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let name = name.strip_prefix("pagewarden-").unwrap_or(name);
        pages.push((format!("{name}.md"), page(command)));
        left.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()));
    }
    pages
}

fn page(command: &Command) -> String {
    let title = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage:").unwrap_or(&usage);
    let usage: Vec<_> = usage.lines().map(str::trim).collect();
    let mut page = format!(
        "# {title}\n\n{}\n\n```text\n{}\n```\n",
        about.map(|text| paragraphs(&text.to_string()).join("\n\n")).unwrap_or_default(),
        usage.join("\n")
    );
    let inner: Vec<_> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
    if !inner.is_empty() {
        page.push_str("\n## Commands\n\n");
    }
    for inner in inner {
        let name = inner.get_display_name().unwrap_or_else(|| inner.get_name());
        let file = name.strip_prefix("pagewarden-").unwrap_or(name);
        let about = inner.get_about().map(|text| prose(&text.to_string())).unwrap_or_default();
        let _ = writeln!(page, "- [{}]({file}.md): {about}", inner.get_name());
    }
    let (positional, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .partition(|argument| argument.is_positional());
    for (title, arguments) in [("Arguments", positional), ("Options", options)] {
        if !arguments.is_empty() {
            let _ = write!(page, "\n## {title}\n\n");
        }
        for argument in arguments {
            page.push_str(&entry(argument));
        }
    }
    let behind = command.get_after_long_help().or(command.get_after_help());
    for paragraph in behind.map(ToString::to_string).unwrap_or_default().split("\n\n") {
        page.push_str(&section(paragraph));
    }
    page
}

/// An argument with all that is said of it.
fn entry(argument: &Arg) -> String {
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long().map(|name| format!("--{name}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let takes_value = argument.get_action().takes_values();
    let values: Vec<_> = argument.get_value_names().into_iter().flatten().collect();
    let values: Vec<_> = values.iter().map(|value| format!("<{value}>")).collect();
    let mut what = names.join(", ");
    if takes_value {
        let space = if what.is_empty() { "" } else { " " };
        what = format!("{what}{space}{}", values.join(" "));
    }
    let help = argument.get_long_help().or(argument.get_help());
    let mut text = help.map(|help| paragraphs(&help.to_string()).join(" ")).unwrap_or_default();
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let possible: Vec<_> = argument.get_possible_values();
    let possible: Vec<_> = possible.iter().map(clap::builder::PossibleValue::get_name).collect();
    if takes_value && !possible.is_empty() {
        let _ = write!(text, " One of `{}`.", possible.join("`, `"));
    }
    if takes_value && !defaults.is_empty() {
        let _ = write!(text, " Without it: `{}`.", defaults.join(" "));
    }
    format!("- `{what}`: {text}\n")
}

/// A paragraph that stands behind the options: one that begins with a word and a colon is a section.
fn section(paragraph: &str) -> String {
    let (head, rest) = paragraph.split_once(':').unwrap_or(("", paragraph));
    match head.trim() {
        title @ ("Example" | "Examples") => {
            let lines: Vec<_> = rest.trim_matches('\n').lines().map(example).collect();
            format!("\n## {title}\n\n```sh\n{}\n```\n", lines.join("\n"))
        }
        "Exit status" => format!("\n## Exit status\n\n{}.\n", prose(rest.trim_end_matches('.'))),
        "" if rest.trim().is_empty() => String::new(),
        _ => format!("\n```text\n{}\n```\n", paragraph.trim_matches('\n')),
    }
}

/// A line of examples: what is said of it stands behind two blanks, and becomes a remark.
fn example(line: &str) -> String {
    let line = line.strip_prefix("  ").unwrap_or(line);
    match line.rsplit_once("  ") {
        Some((command, remark)) if !remark.starts_with(['-', '#']) => {
            format!("{command}  # {remark}")
        }
        _ => line.to_owned(),
    }
}

/// The paragraphs of a help text, each a whole sentence.
fn paragraphs(text: &str) -> Vec<String> {
    let paragraphs = text.split("\n\n").map(prose).filter(|text| !text.is_empty());
    let ends = |text: &str| text.ends_with(['.', ':', '?', ']']);
    paragraphs.map(|text| if ends(&text) { text } else { text + "." }).collect()
}

/// Text in which Markdown must not see signs of its own, but those of code.
fn prose(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut is_code = false;
    let mut escaped = String::new();
    for letter in words.join(" ").chars() {
        is_code ^= letter == '`';
        if !is_code && matches!(letter, '<' | '*' | '[' | ']' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::args::help;

    /// The pages of the book are part of it, so that links lead to them where no book was built.
    #[test]
    fn the_reference_in_the_book_is_what_the_program_says() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands"));
        let mut program = help::command().disable_help_subcommand(true);
        program.build();
        let mut names = BTreeSet::new();
        for (name, text) in pages(&program) {
            let stored = fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(stored == text, "docs/commands/{name} is old: run `make reference`");
            names.insert(name);
        }
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&name), "docs/commands/{name}: there is no such command");
        }
    }

    #[test]
    fn what_is_said_of_an_example_is_a_remark() {
        assert_eq!(example("  pagewarden x a.pwk   all of it"), "pagewarden x a.pwk   # all of it");
        assert_eq!(example("  pagewarden x a.pwk"), "pagewarden x a.pwk");
        assert_eq!(example("             all of it"), "           # all of it");
        assert_eq!(paragraphs("a <b>\n  [c]\n\nd_e `f_g`"), ["a \\<b> \\[c\\]", "d\\_e `f_g`."]);
    }
}

//! What `-h` shows: the commands by what they are for, and of each command what most people need,
//! on one screen of 24 lines. `--help` and the manual have everything.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::{Arguments, STYLES};

/// The commands by what they are for.
const GROUPS: &[(&str, &[&str])] = &[
    ("Look", &["check", "survey", "scrub", "status", "serve", "evidence"]),
    ("Act", &["protect", "repair"]),
    ("Keep", &["pack", "mount", "unpack"]),
    ("Equal", &["compare", "checksum"]),
    ("Measure", &["iotest", "cost"]),
    ("Share", &["plan", "merge"]),
    ("Set up", &["completions", "man"]),
];

/// Of each command with many options, those that `-h` shows, and one example.
const SHORT: &[(&str, &[&str], &str)] = &[
    (
        "check",
        &["json", "structure", "seal", "against", "keyring", "html", "verbose"],
        "pagewarden check /var/lib/postgresql/15/main",
    ),
    ("survey", &["format", "keyring", "html", "json", "quiet"], "pagewarden survey shop.sqlite"),
    (
        "scrub",
        &["config", "budget", "every", "strict", "json"],
        "pagewarden scrub --every 7d --budget 2h /var/lib/postgresql/15/main",
    ),
    (
        "protect",
        &["mode", "dry-run", "copy-to", "json"],
        "pagewarden protect --mode checksum --dry-run /var/lib/postgresql/15/main",
    ),
    (
        "repair",
        &["from", "yes", "copy-to", "accept-older", "undo", "json"],
        "pagewarden repair /var/lib/postgresql/15/main --from /backup/base",
    ),
    (
        "pack",
        &["output", "to", "base", "estimate", "json"],
        "pagewarden pack /var/lib/postgresql/15/old -o old.pwk",
    ),
    ("unpack", &["only", "salvage", "json"], "pagewarden unpack old.pwk /srv/old"),
    (
        "mount",
        &["base", "owner", "durable", "read-only", "cleanup"],
        "pagewarden mount old.pwk /mnt/old",
    ),
    (
        "checksum",
        &["table", "strategy", "snapshot", "password-file", "json"],
        "pagewarden checksum postgres://ann@db1/shop",
    ),
    (
        "compare",
        &["table", "exclude-table", "sql", "show-values", "json"],
        "pagewarden compare mysql://ann@old/shop postgres://ann@new/shop",
    ),
    (
        "plan",
        &["output", "unit", "format", "structure", "json"],
        "pagewarden plan /backups -o plan.jsonl",
    ),
    ("iotest", &["size", "time", "against", "judge", "json"], "pagewarden iotest /var/lib/mysql"),
];

/// The command line with its short help.
pub fn command() -> Command {
    let program = SHORT.iter().fold(Arguments::command(), |program, (name, shown, example)| {
        program.mut_subcommand(name, |command| shortened(command, shown, example))
    });
    let groups = groups(&program);
    program.help_template(format!(
        "{{about-section}}\n{{usage-heading}} {{usage}}\n\n{groups}\n{{options}}{{after-help}}"
    ))
}

/// With only some of its options in the short help, and one example.
fn shortened(command: Command, shown: &[&str], example: &str) -> Command {
    let name = command.get_name().to_owned();
    let all = command.get_after_help().cloned().unwrap_or_default();
    command
        .mut_args(|argument| {
            let is_hidden = argument.get_long().is_some_and(|long| !shown.contains(&long));
            argument.hide_short_help(is_hidden)
        })
        .after_help(format!(
            "Example:\n  {example}\n\nAll options and more examples: pagewarden {name} --help"
        ))
        .after_long_help(all)
}

/// A line for each command, below the heading of its group.
fn groups(program: &Command) -> String {
    let (header, literal) = (STYLES.get_header(), STYLES.get_literal());
    let mut text = String::new();
    for (group, names) in GROUPS {
        let mut heading = *group;
        for name in *names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                text,
                "{header}{heading:<9}{header:#}{literal}{name:<12}{literal:#} {about}"
            );
            heading = "";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter()).collect();
        grouped.sort();
        let program = command();
        let mut all: Vec<_> = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        all.sort_unstable();
        assert_eq!(grouped, all.iter().collect::<Vec<_>>());
        assert_eq!(
            program.clone().render_help().to_string().lines().next(),
            Some("Is my data still what was written?")
        );
        command().debug_assert();
    }

    #[test]
    fn short_help_is_one_screen_and_names_options_that_exist() {
        let mut program = command().term_width(80);
        program.build();
        let mut wrong = String::new();
        for (name, shown, example) in SHORT {
            let inner = program.find_subcommand_mut(name).unwrap();
            for option in *shown {
                let exists = inner.get_arguments().any(|a| a.get_long() == Some(*option));
                assert!(exists, "{name} has no --{option}");
            }
            let help = inner.render_help().to_string();
            let lines = help.lines().count();
            // clap does not wrap the usage.
            let text = help.lines().filter(|line| !line.starts_with("Usage:"));
            let columns = text.map(|line| line.chars().count()).max();
            if lines > 24 || columns > Some(80) {
                wrong.push_str(&format!("{name}: {lines} lines, {columns:?} columns\n{help}\n"));
            }
            assert!(example.starts_with(&format!("pagewarden {name} ")), "{example}");
            let long = inner.render_long_help().to_string();
            assert!(long.contains("Exit status:") || long.contains("Example"), "{long}");
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}

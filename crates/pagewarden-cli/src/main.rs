//! The `pagewarden` program: reads the command line, runs a command, and turns
//! its result into an exit status.

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

mod args;
mod commands;
mod exit;
mod progress;

use args::{Arguments, Command};
use exit::Exit;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    let result = match arguments.command {
        Command::Check(check) => commands::check::run(&check),
        Command::Completions(completions) => commands::completions::run(&completions),
        Command::Man(man) => commands::man::run(&man),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

/// Help and version go to standard output and are no failure; a wrong command
/// line is one, which a script that asked for JSON can read as JSON.
fn usage(error: &clap::Error) -> Exit {
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Fine,
        _ => {
            if std::env::args_os().any(|argument| argument == "--json") {
                exit::report_usage_as_json(error);
            }
            Exit::Unable
        }
    }
}

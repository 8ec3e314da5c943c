//! The `pagewarden` program: reads the command line, runs a command, and turns
//! its result into an exit status.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::bail;
use clap::FromArgMatches as _;
use clap::error::ErrorKind;

mod args;
mod commands;
mod descriptors;
mod exit;
mod owner_rights;
mod progress;
mod replaced_file;
mod signals;
mod terminal;

use args::{Arguments, Command};
use exit::Exit;

fn main() -> ExitCode {
    // No command: only `cost` starts this.
    #[cfg(unix)]
    if commands::cost::is_arm() {
        return commands::cost::run_arm().unwrap_or_else(|error| exit::report(&error)).into();
    }
    #[cfg(not(unix))]
    if let Some(name) = commands::elsewhere::named() {
        return exit::report(&commands::elsewhere::refused(name)).into();
    }
    let read = args::help::command().try_get_matches();
    let arguments = match read.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    descriptors::make_room();
    let result = match arguments.command {
        // These know addresses, and show them without what is secret.
        Command::Check(_) | Command::Checksum(_) | Command::Compare(_) => Ok(()),
        #[cfg(unix)]
        Command::Repair(_) => refuse_secrets(
            std::env::args_os()
                .skip(1)
                .filter(|word| commands::repair::server(word.as_ref()).is_none()),
        ),
        _ => refuse_secrets(std::env::args_os().skip(1)),
    };
    let result = result.and_then(|()| match arguments.command {
        Command::Check(check) => commands::check::run(&check),
        Command::Plan(plan) => commands::plan::run(plan),
        Command::Merge(merge) => commands::merge::run(&merge),
        Command::Unpack(unpack) => commands::unpack::run(unpack),
        #[cfg(unix)]
        Command::Pack(pack) => commands::pack::run(&pack),
        #[cfg(unix)]
        Command::Mount(mount) => commands::mount::run(&mount),
        #[cfg(unix)]
        Command::Protect(protect) => commands::protect::run(&protect),
        #[cfg(unix)]
        Command::Repair(repair) => commands::repair::run(&repair),
        Command::Checksum(checksum) => commands::checksum::run(&checksum),
        Command::Compare(compare) => commands::compare::run(&compare),
        #[cfg(unix)]
        Command::Cost(cost) => commands::cost::run(&cost),
        #[cfg(unix)]
        Command::Iotest(iotest) => commands::iotest::run(&iotest),
        Command::Survey(survey) => commands::survey::run(&survey),
        Command::Scrub(scrub) => commands::scrub::run(&scrub),
        Command::Status(status) => commands::status::run(&status),
        #[cfg(unix)]
        Command::Serve(serve) => commands::serve::run(&serve),
        Command::Evidence(evidence) => commands::evidence::run(&evidence),
        Command::Completions(completions) => commands::completions::run(&completions),
        Command::Man(man) => commands::man::run(&man),
        #[cfg(not(unix))]
        _ => Err(commands::elsewhere::refused("this command")),
    });
    match result {
        Ok(exit) => exit.into(),
        Err(error) if is_monitored() => exit::report_to_monitoring(&format!("{error:#}")).into(),
        Err(error) => exit::report(&error).into(),
    }
}

/// An address with a password, or a signed one, would stand in errors, plans and ledgers as if it were a
/// file's name.
fn refuse_secrets(words: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    for word in words {
        let word = word.to_string_lossy();
        let Some((_, rest)) = word.split_once("://") else { continue };
        let authority = rest.split('/').next().unwrap_or_default();
        if authority.contains('@') || rest.contains('?') {
            bail!(
                "an address with a user, a password or a signature in it\n\
                 hint: other users of this machine can see a command line: use the cloud's \
                 variables or files"
            );
        }
    }
    Ok(())
}

/// Help and version go to standard output and are no failure; a wrong command
/// line is one, which a script that asked for JSON can read as JSON.
fn usage(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Exit::Fine
        }
        // A monitoring system shows one line, and takes no other status for
        // a plugin that could not do its work.
        _ if is_monitored() => {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            exit::report_to_monitoring(first.strip_prefix("error: ").unwrap_or(first))
        }
        _ => {
            let message = error.to_string();
            match exit::lines_shown(&message) {
                safe if safe != message => {
                    let _ = io::stderr().write_all(safe.as_bytes());
                }
                // In colours, where that is a terminal.
                _ => {
                    let _ = error.print();
                }
            }
            if std::env::args_os().any(|argument| argument == "--json") {
                exit::report_usage_as_json(error);
            }
            Exit::Unable
        }
    }
}

/// True if the command line asks for a monitoring plugin's manners, also when
/// it is wrong in other ways.
fn is_monitored() -> bool {
    std::env::args_os().any(|argument| argument == "--nagios")
}

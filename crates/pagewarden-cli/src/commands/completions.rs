//! `pagewarden completions`: from the command line's own definition.

use std::io;

use clap::CommandFactory as _;

use crate::args::{Arguments, Completions};
use crate::exit::Exit;

/// Prints the script.
pub fn run(arguments: &Completions) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pagewarden", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Exit::Fine)
}

//! `pagewarden man`: the manual, from the command line's own definition.

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::{Arguments, Man};
use crate::exit::Exit;

/// Writes a page for the program and one for each command.
pub fn run(arguments: &Man) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("cannot create {}", arguments.folder.display()))?;
    clap_mangen::generate_to(Arguments::command(), &arguments.folder)
        .with_context(|| format!("cannot write into {}", arguments.folder.display()))?;
    Ok(Exit::Fine)
}

//! Developer commands: `cargo xtask <command>`.

#![forbid(unsafe_code)]

mod golden;
mod servers;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer commands of this workspace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install real database servers for the tests into target/servers
    Servers(servers::Arguments),
    /// Make the golden pages under fixtures/postgres from real servers
    Golden(golden::Arguments),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Task::Servers(arguments) => servers::run(&arguments),
        Task::Golden(arguments) => golden::run(&arguments),
    }
}

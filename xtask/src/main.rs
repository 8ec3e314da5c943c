//! Developer commands: `cargo xtask <command>`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)]

mod book;
mod check;
mod cksumvfs;
mod golden;
mod other_servers;
mod release;
mod servers;
mod sqlite_source;
mod sqlite_suite;
mod tidy;
mod words;

use std::process::ExitCode;

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
    /// Check every rule a machine can check: format, tidiness, lints, documentation
    Check,
    /// Install real database servers for the tests into target/servers
    Servers(servers::Arguments),
    /// Build SQLite's own checksum VFS into target/servers, for the laboratory
    Cksumvfs,
    /// Run SQLite's own test scripts through the VFS of ext/sqlite, beside plain runs
    SqliteSuite(sqlite_suite::Arguments),
    /// Set the version in all manifests, and date the changelog
    Release(release::Arguments),
    /// Make the golden pages under fixtures/postgres from real servers
    Golden(golden::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Check => check::run(),
        Task::Servers(arguments) => servers::run(&arguments),
        Task::Cksumvfs => cksumvfs::run(),
        Task::SqliteSuite(arguments) => sqlite_suite::run(&arguments),
        Task::Release(arguments) => release::run(&arguments),
        Task::Golden(arguments) => golden::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

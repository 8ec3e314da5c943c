//! `cargo xtask check`: every rule a machine can check.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{book, tidy};

/// Runs all of it; the first failure ends it.
pub fn run() -> Result<()> {
    cargo("format", &["fmt", "--all", "--check"], &[])?;
    tidy::run()?;
    book::run()?;
    cargo(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"],
        &[],
    )?;
    cargo(
        "documentation",
        &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"],
        &[("RUSTDOCFLAGS", "--deny warnings")],
    )
}

fn cargo(what: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(tidy::root())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "{what}: `cargo {}` failed", arguments.join(" "));
    Ok(())
}

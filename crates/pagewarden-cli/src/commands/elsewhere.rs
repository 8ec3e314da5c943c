//! Commands that need what only Unix has: on Windows they say so, and do nothing.

use anyhow::anyhow;

/// Why a command is not run here.
pub fn refused(name: &str) -> anyhow::Error {
    anyhow!(
        "{name} does not run on Windows\nhint: run it on Linux, on the database or a copy of it"
    )
}

/// Commands that are not run here.
const NAMES: [&str; 7] = ["pack", "mount", "protect", "repair", "cost", "iotest", "serve"];

/// The command of this command line, if it is not run here: whatever its options are.
pub fn named() -> Option<&'static str> {
    let word = std::env::args_os().nth(1)?;
    NAMES.into_iter().find(|name| word == *name)
}

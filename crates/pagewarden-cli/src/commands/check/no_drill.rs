//! `check --restore-drill` where no server can be started for it.

use std::sync::atomic::AtomicBool;

use pagewarden::report::drill::Drill;

use crate::args::Check;
use crate::commands::elsewhere;
use crate::commands::storage::Storage;

/// What is to be brought back: nothing.
pub enum Wanted {}

impl Wanted {
    /// Refused.
    ///
    /// # Errors
    /// Always.
    pub fn of(_: &Check, _: &str, _: &Storage) -> anyhow::Result<Self> {
        Err(elsewhere::refused("check --restore-drill"))
    }
}

/// There is never one to run.
pub fn run(wanted: &Wanted, _: &AtomicBool) -> Drill {
    match *wanted {}
}

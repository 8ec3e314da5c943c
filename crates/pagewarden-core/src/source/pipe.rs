//! Standard input that can be given up: a writer that has gone silent must not
//! keep a run from ending when a user stops it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::system::{read_input, wait_for_input};

/// How often it is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub struct StandardInput {
    input: io::Stdin,
    stop: Arc<AtomicBool>,
}

impl StandardInput {
    /// Standard input, until `stop` is set.
    #[must_use]
    pub fn new(stop: Arc<AtomicBool>) -> Self {
        Self { input: io::stdin(), stop }
    }
}

impl Read for StandardInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the run was stopped"));
            }
            if wait_for_input(&self.input, PATIENCE)? {
                return read_input(&self.input, bytes);
            }
        }
    }
}

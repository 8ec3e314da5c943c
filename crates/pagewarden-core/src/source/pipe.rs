//! Standard input that can be given up: a writer that has gone silent must not
//! keep a run from ending when a user stops it.

use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often it is asked whether to go on.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

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
        // Not through the buffer of `Stdin`: what waits there is not seen by
        // `poll`.
        let input: BorrowedFd<'_> = self.input.as_fd();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the run was stopped"));
            }
            let mut waiting = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut waiting, Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return rustix::io::read(input, bytes).map_err(io::Error::from),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

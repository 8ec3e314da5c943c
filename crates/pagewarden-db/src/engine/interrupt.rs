//! Statements that send nothing until they are done, and how they are ended before.
//!
//! Rows that come can be left alone; a sum over a whole table cannot. While the server works
//! on it another thread asks whether it is still wanted, and if not, has the server end it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Connection;
use crate::checksum::Tell;
use crate::error::{Error, Result};

/// Ends what a connection's server is at, from another thread. It may come to nothing, and
/// may be asked again.
pub type Interrupt = Box<dyn Fn() + Send>;

/// How often it is asked whether the statement is still wanted.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// Does `work`, which is one statement, and ends it once `tell` gives an error.
///
/// # Errors
/// Those of `work`, or that of `tell`: then the connection may have a statement less.
pub fn interruptible<T>(
    connection: &mut dyn Connection,
    tell: &Tell<'_>,
    work: impl FnOnce(&mut dyn Connection) -> Result<T>,
) -> Result<T> {
    tell(0, 0)?;
    let Some(interrupt) = connection.interrupt() else { return work(connection) };
    let (done, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let mut unwanted: Option<Error> = None;
            while ended.recv_timeout(ASKED_EVERY) == Err(RecvTimeoutError::Timeout) {
                unwanted = unwanted.or_else(|| tell(0, 0).err());
                if unwanted.is_some() {
                    // Again and again: the first may come before the statement does.
                    interrupt();
                }
            }
            unwanted
        });
        let result = work(connection);
        drop(done);
        match asking.join() {
            Ok(Some(unwanted)) => Err(unwanted),
            _ => result,
        }
    })
}

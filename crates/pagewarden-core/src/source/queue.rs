//! Direct reads in flight: submitted one by one, completed in any order.
//!
//! Two ways of doing it: [`BlockingQueue`] reads when it is waited for, one at
//! a time, so that several threads are needed for several reads in flight;
//! `uring::UringQueue`, on Linux, keeps many in flight from one thread.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::file::read_at;

/// What a read in flight is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub usize);

/// Reads in flight.
pub trait ReadQueue {
    /// How many reads can be in flight.
    fn depth(&self) -> usize;

    /// How many are.
    fn in_flight(&self) -> usize;

    /// Starts a read of `length` bytes at `offset`, a multiple of the
    /// alignment, into a buffer that no read in flight has. The length is at most the one the queue was made for and is
    /// rounded up to the alignment.
    ///
    /// # Errors
    /// The read could not be started; nothing is in flight on its account.
    fn submit(&mut self, file: &Arc<File>, offset: u64, length: usize) -> io::Result<Slot>;

    /// Waits for one read and says how many bytes it brought. Its bytes stay
    /// in [`ReadQueue::bytes`] until the next `submit`.
    ///
    /// # Errors
    /// The queue itself failed, which loses every read in flight; no other can
    /// be submitted.
    fn wait(&mut self) -> io::Result<(Slot, io::Result<usize>)>;

    /// The buffer of a completed read.
    fn bytes(&self, slot: Slot) -> &[u8];
}

/// One read at a time, in the thread that waits for it.
#[derive(Debug)]
pub struct BlockingQueue {
    buffer: AlignedBuffer,
    pending: Option<(Arc<File>, u64, usize)>,
}

impl BlockingQueue {
    /// A queue for reads of at most `length` bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { buffer: AlignedBuffer::new(length), pending: None }
    }
}

impl ReadQueue for BlockingQueue {
    fn depth(&self) -> usize {
        1
    }

    fn in_flight(&self) -> usize {
        usize::from(self.pending.is_some())
    }

    fn submit(&mut self, file: &Arc<File>, offset: u64, length: usize) -> io::Result<Slot> {
        self.pending = Some((Arc::clone(file), offset, length.next_multiple_of(ALIGNMENT)));
        Ok(Slot(0))
    }

    fn wait(&mut self) -> io::Result<(Slot, io::Result<usize>)> {
        let Some((file, offset, length)) = self.pending.take() else {
            return Err(io::Error::other("no read is in flight"));
        };
        let buffer = self.buffer.bytes_mut().get_mut(..length).unwrap_or_default();
        let read = loop {
            match read_at(&file, buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        Ok((Slot(0), read))
    }

    fn bytes(&self, _slot: Slot) -> &[u8] {
        self.buffer.bytes()
    }
}

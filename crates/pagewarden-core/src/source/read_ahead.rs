//! A stream that a thread of its own reads ahead, so that it is decrypted, decompressed and summed while
//! what came before is judged.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use crate::source::decode::fill_until_broken;

/// Read at a time: little enough to still be in the processor's cache when it is judged.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are ahead, beside the one that is being read and the one that is being taken.
const AHEAD: usize = 2;

/// How many threads of this kind there may be.
#[derive(Debug, Default)]
pub struct Seats(AtomicUsize);

impl Seats {
    /// This number of seats.
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(count)))
    }

    /// One of them, if there is one left.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Seat> {
        let less = |free: usize| free.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.ok().map(|_| Seat(Arc::clone(self)))
    }
}

/// The right to one thread, which ends with this.
#[derive(Debug)]
pub struct Seat(Arc<Seats>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module. The thread has ended once this is dropped.
#[derive(Debug)]
pub struct ReadAhead {
    /// An empty piece is the end of the stream.
    pieces: Option<Receiver<io::Result<Vec<u8>>>>,
    /// Pieces that were taken, to be filled again.
    used: Sender<Vec<u8>>,
    piece: Vec<u8>,
    /// Bytes of it that were taken.
    taken: usize,
    thread: Option<JoinHandle<()>>,
    _seat: Seat,
}

impl ReadAhead {
    /// Begins to read.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(source: Box<dyn Read + Send>, seat: Seat) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(AHEAD);
        let (used, empty) = channel();
        let builder = thread::Builder::new().name("read-ahead".to_owned());
        let thread = builder.spawn(move || read_on(source, &sender, &empty))?;
        let (pieces, thread) = (Some(pieces), Some(thread));
        Ok(Self { pieces, used, piece: Vec::new(), taken: 0, thread, _seat: seat })
    }

    /// The next piece; empty at the end.
    fn next(&mut self) -> io::Result<()> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        let next = pieces.recv().unwrap_or_else(|_| {
            // It ended without a word.
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
            Ok(Vec::new())
        });
        if !matches!(&next, Ok(piece) if !piece.is_empty()) {
            self.pieces = None;
        }
        let used = std::mem::replace(&mut self.piece, next?);
        self.taken = 0;
        // Nothing is filled any more if the thread has ended.
        let _ = self.used.send(used);
        Ok(())
    }
}

impl Read for ReadAhead {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.taken >= self.piece.len() {
            if bytes.is_empty() {
                return Ok(0);
            }
            self.next()?;
        }
        let there = self.piece.get(self.taken..).unwrap_or_default();
        let count = there.len().min(bytes.len());
        if let (Some(room), Some(there)) = (bytes.get_mut(..count), there.get(..count)) {
            room.copy_from_slice(there);
        }
        self.taken = self.taken.saturating_add(count);
        Ok(count)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            // What it read is wanted no more, nor is why it could not.
            let _ = thread.join();
        }
    }
}

fn read_on(
    mut source: Box<dyn Read + Send>,
    pieces: &SyncSender<io::Result<Vec<u8>>>,
    used: &Receiver<Vec<u8>>,
) {
    loop {
        let mut piece = used.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let (filled, error) = fill_until_broken(&mut source, &mut piece);
        piece.truncate(filled);
        // What came before an error is good.
        let is_end = filled == 0 || error.is_some();
        let is_wanted = (filled == 0 && error.is_some()) || pieces.send(Ok(piece)).is_ok();
        if let Some(error) = error.filter(|_| is_wanted) {
            // It may be wanted no more by now.
            let _ = pieces.send(Err(error));
        }
        if is_end || !is_wanted {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat() -> Seat {
        Seats::new(1).take().unwrap()
    }

    /// Numbers, up to an end of some kind.
    struct Numbers(usize, fn() -> io::Result<usize>);

    impl Read for Numbers {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = self.0.min(bytes.len()).min(100_000);
            if count == 0 {
                return (self.1)();
            }
            for byte in bytes.iter_mut().take(count) {
                *byte = self.0.to_le_bytes()[0];
                self.0 -= 1;
            }
            Ok(count)
        }
    }

    #[test]
    fn gives_what_the_stream_gives_up_to_its_end() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3_000_000] {
            let mut expected = Vec::new();
            Numbers(length, || Ok(0)).read_to_end(&mut expected).unwrap();
            let mut ahead = ReadAhead::new(Box::new(Numbers(length, || Ok(0))), seat()).unwrap();
            let mut read = Vec::new();
            ahead.read_to_end(&mut read).unwrap();
            assert!(read == expected && ahead.read(&mut [0]).unwrap() == 0, "{length} bytes");
        }
    }

    #[test]
    fn error_comes_behind_what_was_read_before_it() {
        let source = Numbers(700_000, || Err(io::Error::other("bad")));
        let mut ahead = ReadAhead::new(Box::new(source), seat()).unwrap();
        let mut read = Vec::new();
        let error = ahead.read_to_end(&mut read).unwrap_err();
        assert_eq!((error.to_string().as_str(), read.len()), ("bad", 700_000));
    }

    #[test]
    fn stream_that_is_not_wanted_is_given_up_and_its_seat_is_free_again() {
        let seats = Seats::new(1);
        let source = Numbers(usize::MAX, || Ok(0));
        let mut ahead = ReadAhead::new(Box::new(source), seats.take().unwrap()).unwrap();
        ahead.read_exact(&mut [0; 1000]).unwrap();
        assert!(seats.take().is_none());
        drop(ahead);
        assert!(seats.take().is_some());
    }

    #[test]
    #[should_panic(expected = "of the other thread")]
    fn panic_is_that_of_the_reader() {
        let source = Numbers(10, || panic!("of the other thread"));
        let mut ahead = ReadAhead::new(Box::new(source), seat()).unwrap();
        let _ = ahead.read_to_end(&mut Vec::new());
    }
}

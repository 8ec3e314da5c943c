//! Reads and writes in flight, each of them timed: what `check` reads with, as an
//! instrument.
//!
//! ```text
//! submit:  the clock of a transfer starts
//! wait:    some transfer is done, and its clock stops
//! ```
//!
//! [`ring`] has one thread with many transfers in flight, by `io_uring`;
//! [`threads`] has a thread for each of them, where there is no `io_uring`. Files
//! are the caller's; a caller that passes one that may only be read has nothing to
//! fear from a write. Buffers lie in ordinary pages: `check` has huge ones, which some
//! devices reward, but hardly any database reads into such.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
#[cfg(target_os = "linux")]
use crate::source::queue::{ReadQueue as _, Slot};
#[cfg(target_os = "linux")]
use crate::source::uring::UringQueue;
use crate::system::FileExt as _;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// One transfer.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The file. For transfers past the page cache its offsets and lengths are
    /// multiples of the alignment.
    pub file: Arc<File>,
    /// Which way.
    pub direction: Direction,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes, a multiple of the alignment.
    pub length: usize,
}

/// A transfer that is done.
#[derive(Debug)]
pub struct Done {
    /// Which way it went.
    pub direction: Direction,
    /// From its submission until it was known to be done.
    pub latency: Duration,
    /// How many bytes went, or what the system says.
    pub result: io::Result<usize>,
}

/// Transfers in flight.
pub trait TransferQueue: Send {
    /// How many can be in flight.
    fn depth(&self) -> usize;

    /// How many are.
    fn in_flight(&self) -> usize;

    /// Starts a transfer.
    ///
    /// # Errors
    /// It could not be started; nothing is in flight on its account.
    fn submit(&mut self, transfer: &Transfer) -> io::Result<()>;

    /// Waits until one is done.
    ///
    /// # Errors
    /// The queue itself failed; it takes no more.
    fn wait(&mut self) -> io::Result<Done>;
}

/// How many transfers are in flight, and what they carry.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// How many at most.
    pub depth: usize,
    /// No transfer is longer.
    pub length_max: usize,
    /// What is written, over and over.
    pub payload: &'a [u8],
}

/// A queue by `io_uring`.
///
/// # Errors
/// The system has none, or forbids it.
#[cfg(target_os = "linux")]
pub fn ring(shape: &Shape<'_>) -> io::Result<Box<dyn TransferQueue>> {
    let mut queue = UringQueue::of_ordinary_pages(shape.depth, shape.length_max)?;
    queue.fill(shape.payload)?;
    let begun = (0..queue.depth()).map(|_| None).collect();
    Ok(Box::new(Ring { queue, begun, written: 0 }))
}

/// A queue by `io_uring`, which only Linux has.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn ring(_: &Shape<'_>) -> io::Result<Box<dyn TransferQueue>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// True if [`ring`] can be relied on here.
#[must_use]
pub fn has_ring() -> bool {
    #[cfg(target_os = "linux")]
    {
        UringQueue::prove().is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        false
    }
}

#[cfg(target_os = "linux")]
struct Ring {
    queue: UringQueue,
    /// The clock of each slot in flight.
    begun: Vec<Option<(Instant, Direction)>>,
    written: u64,
}

#[cfg(target_os = "linux")]
impl TransferQueue for Ring {
    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn submit(&mut self, transfer: &Transfer) -> io::Result<()> {
        let Transfer { file, direction, offset, length } = transfer;
        let begin = Instant::now();
        let Slot(index) = match direction {
            Direction::Read => self.queue.submit(file, *offset, *length)?,
            Direction::Write => {
                self.written += 1;
                self.queue.submit_write(file, *offset, *length, self.written)?
            }
        };
        if let Some(slot) = self.begun.get_mut(index) {
            *slot = Some((begin, *direction));
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Done> {
        let (Slot(index), result) = self.queue.wait()?;
        let begun = self.begun.get_mut(index).and_then(Option::take);
        let Some((begin, direction)) = begun else {
            return Err(io::Error::other("a transfer ended that was not begun"));
        };
        Ok(Done { direction, latency: begin.elapsed(), result })
    }
}

/// A queue by threads, one for each transfer in flight.
#[must_use]
pub fn threads(shape: &Shape<'_>) -> Box<dyn TransferQueue> {
    let (send_job, jobs) = channel::<(Transfer, Instant)>();
    let (send_done, done) = channel();
    let jobs = Arc::new(Mutex::new(jobs));
    let depth = shape.depth.max(1);
    let workers = (0_u64..)
        .take(depth)
        .map(|number| {
            let (jobs, done) = (Arc::clone(&jobs), send_done.clone());
            let mut buffer =
                AlignedBuffer::of_ordinary_pages(shape.length_max.next_multiple_of(ALIGNMENT));
            fill(buffer.bytes_mut(), shape.payload);
            std::thread::spawn(move || work(&jobs, &done, &mut buffer, number << 40))
        })
        .collect();
    Box::new(Threads { jobs: Some(send_job), done, workers, depth, in_flight: 0 })
}

struct Threads {
    /// `None` once no more come.
    jobs: Option<Sender<(Transfer, Instant)>>,
    done: Receiver<Done>,
    workers: Vec<JoinHandle<()>>,
    depth: usize,
    in_flight: usize,
}

impl TransferQueue for Threads {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, transfer: &Transfer) -> io::Result<()> {
        let ended = || io::Error::other("the threads that read and write have ended");
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send((transfer.clone(), Instant::now())).map_err(|_| ended())?;
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Done> {
        if self.in_flight == 0 {
            return Err(io::Error::other("nothing is in flight"));
        }
        let done = self.done.recv().map_err(io::Error::other)?;
        self.in_flight -= 1;
        Ok(done)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(
    jobs: &Mutex<Receiver<(Transfer, Instant)>>,
    done: &Sender<Done>,
    buffer: &mut AlignedBuffer,
    mut stamp: u64,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((transfer, begin)) = job else { return };
        let direction = transfer.direction;
        stamp += 1;
        let result = carry(&transfer, buffer.bytes_mut(), stamp);
        if done.send(Done { direction, latency: begin.elapsed(), result }).is_err() {
            return;
        }
    }
}

/// Does a transfer, and waits for it.
fn carry(transfer: &Transfer, buffer: &mut [u8], stamp: u64) -> io::Result<usize> {
    let Some(bytes) = buffer.get_mut(..transfer.length) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if transfer.direction == Direction::Write {
        for stretch in bytes.chunks_mut(ALIGNMENT) {
            if let Some(place) = stretch.first_chunk_mut::<8>() {
                *place = stamp.to_le_bytes();
            }
        }
    }
    loop {
        let result = match transfer.direction {
            Direction::Read => transfer.file.read_at(bytes, transfer.offset),
            Direction::Write => transfer.file.write_at(bytes, transfer.offset),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fills `bytes` with `payload`, over and over.
fn fill(bytes: &mut [u8], payload: &[u8]) {
    if payload.is_empty() {
        return;
    }
    for part in bytes.chunks_mut(payload.len()) {
        if let Some(source) = payload.get(..part.len()) {
            part.copy_from_slice(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape<'static> = Shape { depth: 3, length_max: 16 << 10, payload: b"abcdefgh" };

    fn queues() -> Vec<Box<dyn TransferQueue>> {
        let mut queues = vec![threads(&SHAPE)];
        match ring(&SHAPE) {
            Ok(ring) if has_ring() => queues.push(ring),
            _ => eprintln!("skipped: no io_uring here"),
        }
        queues
    }

    #[test]
    fn what_was_written_is_what_is_read_and_each_has_its_time() {
        for mut queue in queues() {
            let file = Arc::new(tempfile::tempfile().unwrap());
            for direction in [Direction::Write, Direction::Read] {
                for number in 0..8_u64 {
                    if queue.in_flight() == queue.depth() {
                        assert_eq!(queue.wait().unwrap().result.unwrap(), 16 << 10);
                    }
                    let file = Arc::clone(&file);
                    let (offset, length) = (number * (16 << 10), 16 << 10);
                    queue.submit(&Transfer { file, direction, offset, length }).unwrap();
                }
                while queue.in_flight() > 0 {
                    let done = queue.wait().unwrap();
                    assert_eq!(done.direction, direction);
                    assert!(done.latency > Duration::ZERO);
                    assert_eq!(done.result.unwrap(), 16 << 10);
                }
            }
            assert_eq!(file.metadata().unwrap().len(), 8 * (16 << 10));
            let mut bytes = [0; 16];
            file.read_exact_at(&mut bytes, 4096).unwrap();
            assert_eq!(&bytes[8..], b"abcdefgh");
            assert_ne!(&bytes[..8], b"abcdefgh", "every stretch is stamped");
        }
    }

    #[test]
    fn a_write_to_a_file_opened_for_reading_fails_and_changes_nothing() {
        for mut queue in queues() {
            let named = tempfile::NamedTempFile::new().unwrap();
            let file = Arc::new(File::open(named.path()).unwrap());
            let direction = Direction::Write;
            queue.submit(&Transfer { file, direction, offset: 0, length: 4096 }).unwrap();
            assert!(queue.wait().unwrap().result.is_err());
            assert_eq!(named.as_file().metadata().unwrap().len(), 0);
        }
    }

    #[test]
    fn waiting_for_nothing_is_an_error() {
        for mut queue in queues() {
            assert!(queue.wait().is_err());
        }
    }
}

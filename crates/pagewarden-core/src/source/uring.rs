//! Many reads in flight from one thread, by Linux's `io_uring`.
//!
//! ```text
//! submit:  slot free --> slot in flight    the kernel may write to its buffer
//! wait:    slot in flight --> slot done    the buffer is ours again
//! ```
//!
//! What makes this sound: a buffer that the kernel may write to is only ever
//! known here by its address, never by a reference; the file of a read stays
//! open until the read is done; and neither is given up before every read in
//! flight is done, or is leaked if that cannot be found out.
//!
//! Needs `IORING_OP_READ` (Linux 5.6). Containers and hardened systems often
//! forbid the interface altogether or in part, so [`UringQueue::prove`] tries it
//! out before it is relied on.

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::queue::{ReadQueue, Slot};

mod write;

/// Reads in flight through one ring.
pub struct UringQueue {
    ring: IoUring,
    /// Where each slot's buffer begins; see the module for why by address.
    buffers: Vec<NonNull<u8>>,
    /// Bytes in each buffer.
    buffer_bytes: usize,
    /// Keeps the buffers.
    memory: AlignedBuffer,
    /// The file of each read in flight, and the offset in it.
    files: Vec<Option<(Arc<File>, u64)>>,
    in_flight: usize,
    /// The ring failed: what was in flight may be so forever.
    lost: bool,
}

// SAFETY: the addresses in `buffers` are those of memory that the queue owns;
// nothing else in it is bound to a thread.
unsafe impl Send for UringQueue {}

impl std::fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringQueue")
            .field("depth", &self.files.len())
            .field("in_flight", &self.in_flight)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl UringQueue {
    /// A queue of `depth` reads of at most `length` bytes each.
    ///
    /// # Errors
    /// The system has no `io_uring` or forbids it.
    pub fn new(depth: usize, length: usize) -> io::Result<Self> {
        Self::with_memory(depth, length, AlignedBuffer::new)
    }

    /// The same, with its buffers in memory that `allocate` makes of a length.
    fn with_memory(
        depth: usize,
        length: usize,
        allocate: fn(usize) -> AlignedBuffer,
    ) -> io::Result<Self> {
        let depth = depth.max(1);
        let buffer_bytes = length.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let entries = u32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        // Forgotten by a child process: only we know when it may be freed.
        let ring = IoUring::builder().dontfork().build(entries)?;
        let mut memory = allocate(buffer_bytes * depth);
        let base = memory.address();
        let buffers = (0..depth)
            .map(|index| {
                // SAFETY: `memory` holds `depth` times `buffer_bytes`.
                unsafe { base.add(index * buffer_bytes) }
            })
            .collect();
        let files = (0..depth).map(|_| None).collect();
        Ok(Self { ring, buffers, buffer_bytes, memory, files, in_flight: 0, lost: false })
    }

    /// Tries it out: reads a byte from a pipe, which needs no file.
    ///
    /// # Errors
    /// As [`UringQueue::new`], and where reads cannot be begun or fail.
    pub fn prove() -> io::Result<()> {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(b"!")?;
        let reader = Arc::new(File::from(OwnedFd::from(reader)));
        let mut queue = Self::new(1, ALIGNMENT)?;
        queue.submit(&reader, 0, 1)?;
        let (slot, count) = queue.wait()?;
        if count? == 1 && queue.bytes(slot).first() == Some(&b'!') {
            Ok(())
        } else {
            Err(io::Error::other("io_uring reads wrongly here"))
        }
    }

    /// Waits for the kernel to be done with one read.
    fn reap(&mut self) -> io::Result<(Slot, io::Result<usize>)> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                let index = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                let result = entry.result();
                let Some(begun) = self.files.get_mut(index).and_then(Option::take) else {
                    return Err(io::Error::other("io_uring completed a read that was not begun"));
                };
                self.in_flight -= 1;
                let read = usize::try_from(result)
                    .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
                #[cfg(any(test, feature = "testing"))]
                let read = crate::testing::fault::disturb(&begun.0, begun.1, read);
                drop(begun);
                return Ok((Slot(index), read));
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Short of memory, or too many completions wait to be taken.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY))
                        && self.has_begun() =>
                {
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// True if the kernel has taken at least one of the reads in flight, so
    /// that a completion will come.
    fn has_begun(&mut self) -> bool {
        self.ring.submission().len() < self.in_flight
    }
}

impl ReadQueue for UringQueue {
    fn depth(&self) -> usize {
        self.files.len()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, file: &Arc<File>, offset: u64, length: usize) -> io::Result<Slot> {
        let bytes = length.next_multiple_of(ALIGNMENT);
        let free = self.files.iter().position(Option::is_none).filter(|_| !self.lost);
        let Some(index) = free.filter(|_| bytes <= self.buffer_bytes) else {
            return Err(io::Error::other("no room for another read"));
        };
        let place = self.files.get_mut(index).zip(self.buffers.get(index));
        let (Some((keep, buffer)), Ok(count)) = (place, u32::try_from(bytes)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_ptr(), count)
            .offset(offset)
            .build()
            .user_data(index as u64);
        // SAFETY: the buffer is `buffer_bytes` long and the slot was free, so
        // no reference to it exists or can be had until the read is done. File
        // and buffer are kept until then: see `reap`, `lose` and `drop`.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        *keep = Some((Arc::clone(file), offset));
        self.in_flight += 1;
        // Begins it now, since the caller may have other things to do before
        // it waits. What the kernel does not take now it is given in `wait`.
        let _ = self.ring.submit();
        Ok(Slot(index))
    }

    fn wait(&mut self) -> io::Result<(Slot, io::Result<usize>)> {
        if self.in_flight == 0 {
            return Err(io::Error::other("no read is in flight"));
        }
        self.reap().inspect_err(|_| self.lose())
    }

    fn bytes(&self, slot: Slot) -> &[u8] {
        match (self.files.get(slot.0), self.buffers.get(slot.0)) {
            // SAFETY: no read is in flight for this slot, so the kernel is done
            // with its buffer. The bytes were zeroed at first, and the next
            // read into them needs `&mut self`.
            (Some(None), Some(buffer)) => unsafe {
                std::slice::from_raw_parts(buffer.as_ptr(), self.buffer_bytes)
            },
            _ => &[],
        }
    }
}

impl UringQueue {
    /// Gives up the ring without giving up what the kernel may still use.
    fn lose(&mut self) {
        self.lost = true;
        self.in_flight = 0;
        mem::forget(mem::replace(&mut self.memory, AlignedBuffer::new(0)));
        for file in &mut self.files {
            mem::forget(file.take());
        }
        self.buffers.clear();
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        // Reads of files cannot be called back, but they do end.
        while self.in_flight > 0 {
            if self.wait().is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 64 << 10;

    /// Where the interface is forbidden these tests have nothing to test.
    fn queue(depth: usize) -> Option<UringQueue> {
        match UringQueue::prove().and_then(|()| UringQueue::new(depth, LENGTH)) {
            Ok(queue) => Some(queue),
            Err(error) => {
                eprintln!("skipped, no io_uring here: {error}");
                None
            }
        }
    }

    /// A file in which every 8 bytes hold their own offset.
    fn counting_file(length: usize) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..length as u64).step_by(8).flat_map(u64::to_le_bytes).collect();
        file.write_all(bytes.get(..length).unwrap()).unwrap();
        Arc::new(file)
    }

    fn offset_in(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(*bytes.first_chunk().unwrap())
    }

    #[test]
    fn every_read_brings_its_own_bytes() {
        let Some(mut queue) = queue(5) else { return };
        let file = counting_file(LENGTH * 64);
        let mut expected = [0; 5];
        let (mut next, mut done) = (0_u64, 0);
        while done < 64 {
            while next < 64 && queue.in_flight() < queue.depth() {
                let slot = queue.submit(&file, next * LENGTH as u64, LENGTH).unwrap();
                expected[slot.0] = next * LENGTH as u64;
                next += 1;
            }
            let (slot, count) = queue.wait().unwrap();
            assert_eq!(count.unwrap(), LENGTH);
            let bytes = queue.bytes(slot);
            assert_eq!(offset_in(bytes), expected[slot.0]);
            assert_eq!(offset_in(&bytes[LENGTH - 8..]), expected[slot.0] + LENGTH as u64 - 8);
            done += 1;
        }
        assert_eq!(queue.in_flight(), 0);
    }

    #[test]
    fn the_end_of_a_file_is_a_short_read_and_a_closed_name_an_error() {
        let Some(mut queue) = queue(2) else { return };
        let file = counting_file(5000);
        queue.submit(&file, 4096, 4096).unwrap();
        let (slot, count) = queue.wait().unwrap();
        assert_eq!(count.unwrap(), 904);
        assert_eq!(offset_in(queue.bytes(slot)), 4096);
        let folder = Arc::new(File::open("/").unwrap());
        queue.submit(&folder, 0, 4096).unwrap();
        let (_, count) = queue.wait().unwrap();
        assert_eq!(count.unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_full_queue_a_long_read_and_an_idle_wait_are_refused() {
        let Some(mut queue) = queue(1) else { return };
        let file = counting_file(LENGTH);
        assert!(queue.wait().is_err());
        let Some(mut queue) = self::queue(1) else { return };
        assert!(queue.submit(&file, 0, LENGTH + 1).is_err());
        queue.submit(&file, 0, LENGTH).unwrap();
        assert!(queue.submit(&file, 0, LENGTH).is_err());
        assert!(queue.bytes(Slot(0)).is_empty(), "in flight, so it must not be read");
        assert!(queue.bytes(Slot(9)).is_empty());
        queue.wait().unwrap().1.unwrap();
    }

    /// The buffer must not be freed, nor the file closed, before the read is
    /// done: a read from an empty pipe is not done until something is written.
    #[test]
    fn dropping_waits_for_what_is_in_flight() {
        let Some(mut queue) = queue(2) else { return };
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Arc::new(File::from(OwnedFd::from(reader)));
        queue.submit(&reader, 0, 16).unwrap();
        let dropping = std::thread::spawn(move || drop(queue));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!dropping.is_finished());
        assert_eq!(Arc::strong_count(&reader), 2);
        writer.write_all(b"now").unwrap();
        dropping.join().unwrap();
        assert_eq!(Arc::strong_count(&reader), 1);
    }

    #[test]
    fn a_lost_ring_takes_no_more_reads_and_leaks_what_is_in_flight() {
        let Some(mut queue) = queue(2) else { return };
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = Arc::new(File::from(OwnedFd::from(reader)));
        let slot = queue.submit(&reader, 0, 16).unwrap();
        queue.lose();
        assert_eq!(queue.in_flight(), 0);
        assert!(queue.bytes(slot).is_empty());
        assert!(queue.submit(&reader, 0, 16).is_err());
        drop(queue);
        assert_eq!(Arc::strong_count(&reader), 2);
        // Ends the read, whether or not the kernel has called it back.
        writer.write_all(b"late").unwrap();
    }
}

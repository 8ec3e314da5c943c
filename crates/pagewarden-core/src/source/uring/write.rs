//! Writes through the same ring, for measurements in files of our own.
//!
//! What makes reads sound makes writes sound too: the kernel reads a buffer that
//! no other code may touch before the write is done, and the file stays open.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use io_uring::{opcode, types};

use crate::source::buffer::{ALIGNMENT, AlignedBuffer};
use crate::source::queue::Slot;
use crate::source::uring::UringQueue;

impl UringQueue {
    /// A queue as [`UringQueue::new`] makes it, but with buffers in ordinary pages,
    /// as other programs have them.
    ///
    /// # Errors
    /// As [`UringQueue::new`].
    pub fn of_ordinary_pages(depth: usize, length: usize) -> io::Result<Self> {
        Self::with_memory(depth, length, AlignedBuffer::of_ordinary_pages)
    }

    /// Fills every buffer with `payload`, over and over, for writes to come.
    /// Reads overwrite it.
    ///
    /// # Errors
    /// Something is in flight, whose buffer is not ours.
    pub fn fill(&mut self, payload: &[u8]) -> io::Result<()> {
        if self.in_flight > 0 || self.lost {
            return Err(io::Error::other("cannot fill buffers in flight"));
        }
        if payload.is_empty() {
            return Ok(());
        }
        for buffer in &self.buffers {
            let mut filled = 0;
            while filled < self.buffer_bytes {
                let count = payload.len().min(self.buffer_bytes - filled);
                // SAFETY: `filled + count` is at most the buffer's length, and
                // `count` at most the payload's; nothing is in flight, and no
                // reference to a buffer outlives the borrow of the queue.
                unsafe {
                    buffer.as_ptr().add(filled).copy_from_nonoverlapping(payload.as_ptr(), count);
                }
                filled += count;
            }
        }
        Ok(())
    }

    /// Starts a write of `length` bytes, a multiple of the alignment, at
    /// `offset`. `stamp` is put at the beginning of each aligned stretch, so
    /// that no two writes are alike. Ends in [`ReadQueue::wait`] as a read does.
    ///
    /// [`ReadQueue::wait`]: crate::source::queue::ReadQueue::wait
    ///
    /// # Errors
    /// The write could not be started; nothing is in flight on its account.
    pub fn submit_write(
        &mut self,
        file: &Arc<File>,
        offset: u64,
        length: usize,
        stamp: u64,
    ) -> io::Result<Slot> {
        let free = self.files.iter().position(Option::is_none).filter(|_| !self.lost);
        let fits = length <= self.buffer_bytes && length.is_multiple_of(ALIGNMENT);
        let Some(index) = free.filter(|_| fits) else {
            return Err(io::Error::other("no room for another write"));
        };
        let place = self.files.get_mut(index).zip(self.buffers.get(index));
        let (Some((keep, buffer)), Ok(count)) = (place, u32::try_from(length)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let stamp = stamp.to_le_bytes();
        for begin in (0..length).step_by(ALIGNMENT) {
            // SAFETY: `begin` is a multiple of the alignment below the buffer's
            // length, which is one too, so that eight bytes fit; the slot was
            // free, so no other code has the buffer.
            unsafe {
                buffer.as_ptr().add(begin).copy_from_nonoverlapping(stamp.as_ptr(), stamp.len());
            }
        }
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), buffer.as_ptr(), count)
            .offset(offset)
            .build()
            .user_data(index as u64);
        // SAFETY: as for a read: buffer and file are kept until it is done.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        *keep = Some((Arc::clone(file), offset));
        self.in_flight += 1;
        let _ = self.ring.submit();
        Ok(Slot(index))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::source::queue::ReadQueue as _;

    const LENGTH: usize = 16 << 10;

    fn queue(depth: usize) -> Option<UringQueue> {
        match UringQueue::prove().and_then(|()| UringQueue::new(depth, LENGTH)) {
            Ok(queue) => Some(queue),
            Err(error) => {
                eprintln!("skipped, no io_uring here: {error}");
                None
            }
        }
    }

    #[test]
    fn every_write_lands_at_its_offset_with_its_stamp() {
        let Some(mut queue) = queue(3) else { return };
        queue.fill(b"0123456789abcdef").unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        for number in 0..7_u64 {
            if queue.in_flight() == queue.depth() {
                assert_eq!(queue.wait().unwrap().1.unwrap(), LENGTH);
            }
            queue.submit_write(&file, number * LENGTH as u64, LENGTH, number + 1).unwrap();
        }
        while queue.in_flight() > 0 {
            assert_eq!(queue.wait().unwrap().1.unwrap(), LENGTH);
        }
        let mut bytes = vec![0; LENGTH * 7];
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (number, written) in (1_u64..).zip(bytes.chunks(LENGTH)) {
            for stretch in written.chunks(ALIGNMENT) {
                assert_eq!(u64::from_le_bytes(*stretch.first_chunk().unwrap()), number);
                assert_eq!(&stretch[8..24], b"89abcdef01234567");
            }
        }
    }

    #[test]
    fn a_write_that_does_not_fit_and_a_file_that_may_only_be_read_are_errors() {
        let Some(mut queue) = queue(1) else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert!(queue.submit_write(&file, 0, LENGTH + ALIGNMENT, 0).is_err());
        assert!(queue.submit_write(&file, 0, 512, 0).is_err());
        assert_eq!(queue.in_flight(), 0);
        let named = tempfile::NamedTempFile::new().unwrap();
        let read_only = Arc::new(File::open(named.path()).unwrap());
        queue.submit_write(&read_only, 0, LENGTH, 0).unwrap();
        assert!(queue.fill(b"x").is_err(), "in flight, so it must not be touched");
        assert!(queue.wait().unwrap().1.is_err());
        assert_eq!(read_only.metadata().unwrap().len(), 0);
    }
}

//! Memory to read into, aligned as `O_DIRECT` wants it.

#[cfg(target_os = "linux")]
use std::ptr::NonNull;

/// Alignment that every device and file system accepts for direct reads.
pub const ALIGNMENT: usize = 4096;

/// A huge page of x86-64 and of 64-bit Arm with 4 KiB pages. Where huge pages
/// are larger, this is only an alignment.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A fixed stretch of zeroed memory that begins at a multiple of
/// [`ALIGNMENT`].
///
/// Stretches of 2 MiB and more ask for huge pages: a direct read into one is a
/// single piece for the device, where one into 4 KiB pages is 256 pieces a
/// mebibyte and more than some devices take at once.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Allocates `length` bytes. Memory is only used when it is touched.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self::with_pages(length, length >= HUGE_PAGE_BYTES)
    }

    /// Allocates `length` bytes without asking for huge pages: what most programs
    /// read into, and so what their reads are to be compared with.
    #[must_use]
    pub fn of_ordinary_pages(length: usize) -> Self {
        Self::with_pages(length, false)
    }

    fn with_pages(length: usize, huge: bool) -> Self {
        let alignment = if huge { HUGE_PAGE_BYTES } else { ALIGNMENT };
        // A zeroed vector of this size comes untouched from the system.
        let memory = vec![0_u8; length + alignment];
        let begin = memory.as_ptr().align_offset(alignment);
        // `align_offset` is allowed to give up; then direct reads fail and
        // cached ones still work.
        let begin = if begin < alignment { begin } else { 0 };
        let mut buffer = Self { memory, begin, length };
        if huge {
            advise_huge_pages(buffer.bytes_mut());
        }
        buffer
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.begin..self.begin + self.length).unwrap_or_default()
    }

    /// The bytes, to be read into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.begin..self.begin + self.length).unwrap_or_default()
    }

    /// Where the bytes begin, for a reader that is not part of this program.
    /// Valid for as long as the buffer lives, wherever it is moved to.
    #[cfg(target_os = "linux")]
    pub(super) fn address(&mut self) -> NonNull<u8> {
        NonNull::from(self.bytes_mut()).cast()
    }
}

/// A wish; without it everything works the same.
#[cfg(target_os = "linux")]
fn advise_huge_pages(bytes: &mut [u8]) {
    let whole = bytes.len() - bytes.len() % HUGE_PAGE_BYTES;
    if !bytes.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES) {
        return;
    }
    let begin = bytes.as_mut_ptr().cast();
    // SAFETY: the range lies within `bytes`, which is ours alone, and this
    // advice changes neither its content nor its mapping.
    let _ = unsafe { rustix::mm::madvise(begin, whole, rustix::mm::Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &mut [u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_the_alignment_and_has_the_length_asked_for() {
        for length in [0, 1, 4096, 1 << 20, 2 << 20, (5 << 20) + 1] {
            let mut buffer = AlignedBuffer::new(length);
            assert_eq!(buffer.bytes().len(), length);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
            let mut ordinary = AlignedBuffer::of_ordinary_pages(length);
            assert_eq!(ordinary.bytes().len(), length);
            assert_eq!(ordinary.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }

    #[test]
    fn is_zero_and_can_be_written_to_the_last_byte() {
        let mut buffer = AlignedBuffer::new(3 << 20);
        assert!(buffer.bytes().iter().all(|byte| *byte == 0));
        buffer.bytes_mut().fill(7);
        assert!(buffer.bytes().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn its_address_outlives_a_move() {
        let mut buffer = AlignedBuffer::new(1 << 20);
        let address = buffer.address();
        let moved = Box::new(buffer);
        assert_eq!(moved.bytes().as_ptr(), address.as_ptr().cast_const());
    }
}

//! Memory to read into, aligned as `O_DIRECT` wants it.

/// Alignment that every device and file system accepts for direct reads.
pub const ALIGNMENT: usize = 4096;

/// A fixed stretch of zeroed memory that begins at a multiple of
/// [`ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Allocates `length` bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let memory = vec![0_u8; length + ALIGNMENT];
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        // `align_offset` is allowed to give up; then direct reads fail and
        // cached ones still work.
        let begin = if begin < ALIGNMENT { begin } else { 0 };
        Self { memory, begin, length }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_the_alignment_and_has_the_length_asked_for() {
        for length in [0, 1, 4096, 1 << 20] {
            let mut buffer = AlignedBuffer::new(length);
            assert_eq!(buffer.bytes().len(), length);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}

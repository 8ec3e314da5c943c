//! How the page cache holds a file: in pieces as long as those in which it was written.
//!
//! A file system with large folios keeps what came with one write in one piece. What is read out of
//! the cache is copied piece by piece, so that `cat` takes half as long again where pieces are as
//! short as a database server's, and everything that is measured against it looks better.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;

/// What a copy or a restore writes at a time.
const LARGE_BYTES: usize = 1 << 20;

/// A state of the page cache.
#[derive(Debug, Clone, Copy)]
pub struct Pieces {
    /// Who leaves it so.
    pub left_by: &'static str,
    /// Bytes in each write.
    pub bytes: usize,
}

/// What is measured, for a server that writes `page_bytes` bytes at a time.
pub const fn states(page_bytes: usize) -> [Pieces; 2] {
    [
        Pieces { left_by: "a server that wrote its pages", bytes: page_bytes },
        Pieces { left_by: "a copy", bytes: LARGE_BYTES },
    ]
}

impl Pieces {
    /// Copies `source` to a new file that is in the page cache in such pieces, and on the disk, so
    /// that nothing is written while something is measured. An incomplete file may be left behind
    /// by an error.
    pub fn copy(self, source: &Path, target: &Path) -> anyhow::Result<()> {
        let reader = File::open(source).with_context(|| source.display().to_string())?;
        let mut writer = File::create_new(target).with_context(|| target.display().to_string())?;
        let mut piece = Vec::with_capacity(self.bytes);
        loop {
            piece.clear();
            (&reader).take(self.bytes as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                break;
            }
            writer.write_all(&piece)?;
        }
        writer.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("a"), folder.path().join("b"));
        let bytes: Vec<u8> = (0..u8::MAX).cycle().take(100_001).collect();
        std::fs::write(&source, &bytes).unwrap();
        for pieces in states(16_384) {
            pieces.copy(&source, &target).unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), bytes);
            assert!(pieces.copy(&source, &target).is_err());
            std::fs::remove_file(&target).unwrap();
        }
    }
}

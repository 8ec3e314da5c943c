//! A file's end and its first page, of one moment.
//!
//! Between two transactions nothing is locked, so that whole ones pass between two looks, and the first
//! page counts pages that the file did not have when its end was asked for.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::{File, Metadata};
use std::time::SystemTime;

use super::read_first_page;
use super::sidecars::is_locked;

/// A database that was written so often while it was looked at is in use.
const GLANCES: u32 = 8;

/// What was seen.
pub(super) struct Glance {
    pub bytes: u64,
    pub modified: Option<SystemTime>,
    pub first_page: Vec<u8>,
    /// Another process has it open; or it was written whenever it was looked at.
    pub is_live: bool,
}

impl Glance {
    /// `metadata` may be older.
    pub fn settled(file: &File, metadata: &Metadata, page_size: usize) -> Self {
        let first_page = read_first_page(file, page_size);
        let mut glance = Self {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            first_page,
            is_live: false,
        };
        for _ in 0..GLANCES {
            glance.is_live = is_locked(file);
            let first_page = read_first_page(file, page_size);
            let Ok(now) = file.metadata() else { break };
            // No lock, and the same on both sides of it: each transaction counts itself on page 1.
            let is_same = now.len() == glance.bytes && first_page == glance.first_page;
            glance = Self { bytes: now.len(), modified: now.modified().ok(), first_page, ..glance };
            if is_same {
                return glance;
            }
        }
        Self { is_live: true, ..glance }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use pagewarden_core::source::hold;

    use super::*;

    #[test]
    fn transaction_between_two_looks_is_seen_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        std::fs::write(&path, [1; 1024]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let before = file.metadata().unwrap();
        file.write_all_at(&[2; 2048], 0).unwrap();
        let glance = Glance::settled(&file, &before, 512);
        assert_eq!((glance.bytes, glance.first_page), (2048, vec![2; 512]));
        assert!(!glance.is_live);
        assert_eq!(glance.modified, file.metadata().unwrap().modified().ok());
    }

    #[test]
    fn database_that_is_locked_is_live_and_looked_at_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        std::fs::write(&path, [1; 1024]).unwrap();
        let file = File::open(&path).unwrap();
        let holder = File::options().read(true).write(true).open(&path).unwrap();
        assert!(hold::lock(&holder).unwrap());
        assert!(Glance::settled(&file, &file.metadata().unwrap(), 512).is_live);
    }
}

//! Stretches of a file: those that changed, and those that are holes.

use std::fs::File;
use std::ops::Range;

/// Adds a stretch that lies behind all others; it goes on with the last one where it can.
pub fn add<T: PartialEq>(stretches: &mut Vec<Range<T>>, next: Range<T>) {
    match stretches.last_mut().filter(|last| last.end == next.start) {
        Some(last) => last.end = next.end,
        None => stretches.push(next),
    }
}

/// Where the hole ends that begins at `offset`; `u64::MAX` where nothing follows it. `None` if
/// there is data, or the system does not say.
pub fn hole_end(file: &File, offset: u64) -> Option<u64> {
    // Moves the descriptor's position, which no read or write uses.
    match crate::system::fs::seek(file, crate::system::fs::SeekFrom::Data(offset)) {
        Ok(data) => (data > offset).then_some(data),
        Err(crate::system::Errno::NXIO) => Some(u64::MAX),
        Err(_) => None,
    }
}

/// Where the data ends that begins at `offset`; `u64::MAX` where the system does not
/// say.
pub fn data_end(file: &File, offset: u64) -> u64 {
    crate::system::fs::seek(file, crate::system::fs::SeekFrom::Hole(offset)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::system::FileExt as _;

    use super::*;

    #[test]
    fn neighbours_become_one() {
        let mut stretches = Vec::new();
        for next in [0..4, 4..8, 12..16, 16..20] {
            add(&mut stretches, next);
        }
        assert_eq!(stretches, [0..8, 12..20]);
    }

    #[test]
    fn holes_are_told_from_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 256 << 10).unwrap();
        assert_eq!(hole_end(&file, 256 << 10), None);
        assert!(data_end(&file, 256 << 10) > 256 << 10);
        // Where the file system knows of no holes there are none.
        let has_holes = hole_end(&file, 0).is_some();
        assert_eq!(hole_end(&file, 0), has_holes.then_some(256 << 10));
        assert_eq!(hole_end(&file, 512 << 10), has_holes.then_some(u64::MAX));
        assert_eq!(hole_end(&file, 1 << 20), Some(u64::MAX));
    }
}

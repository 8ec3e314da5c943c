//! What a run has verified in a repository, so that bytes that several sets share are read once.
//!
//! What a set adds is known when the next one is opened, so that it makes no difference which of its
//! files were read first.
//!
//! Only what is sound is remembered: what is damaged is read again, and named, in each set that needs it.
//! Whether pages passed is known when a set has ended; the names of files with a failing page
//! are then kept, and such files are read again too.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};

/// Stored files, and blocks of super blocks, past which no more is remembered: both together are at
/// most some 64 MiB, and as much again while a set is read that adds as many.
const FILES_MAX: usize = 2_000_000;
const BLOCKS_MAX: usize = 8_000_000;
/// Names of files with failing pages past which every file counts as one.
const TAINTED_MAX: usize = 100_000;

/// Blocks of a super block, each with its mark.
type Marks = Box<[(u32, u32)]>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memory {
    keys: RandomState,
    files: HashSet<u64>,
    /// By super block: for each of its blocks a mark of what it was verified as, or 0.
    super_blocks: HashMap<u64, Box<[u32]>>,
    blocks: usize,
    tainted: HashSet<String>,
    new_files: Vec<u64>,
    new_blocks: Vec<(u64, Marks)>,
    new_block_count: usize,
}

impl Memory {
    /// What was remembered until now is known from here on.
    pub(super) fn begin_set(&mut self) {
        let mut files = std::mem::take(&mut self.new_files);
        files.sort_unstable();
        let room = FILES_MAX.saturating_sub(self.files.len());
        self.files.extend(files.into_iter().take(room));
        let mut blocks = std::mem::take(&mut self.new_blocks);
        self.new_block_count = 0;
        blocks.sort_unstable();
        for (key, marks) in blocks {
            self.know_blocks(key, &marks);
        }
    }

    /// True if pages of this file failed in a set before.
    pub(super) fn is_tainted(&self, name: &str) -> bool {
        self.tainted.len() >= TAINTED_MAX || self.tainted.contains(name)
    }

    /// Remembers that pages of this file failed.
    pub(super) fn taint(&mut self, name: &str) {
        if self.tainted.len() < TAINTED_MAX && !self.tainted.contains(name) {
            self.tainted.insert(name.to_owned());
        }
    }

    /// True if stored bytes with these properties were sound.
    pub(super) fn has_file(&self, file: &impl Hash) -> bool {
        self.files.contains(&self.keys.hash_one(file))
    }

    /// Remembers that stored bytes with these properties are sound.
    pub(super) fn add_file(&mut self, file: &impl Hash) {
        if self.new_files.len() < FILES_MAX {
            self.new_files.push(self.keys.hash_one(file));
        }
    }

    /// The mark of a block that is verified as something.
    pub(super) fn mark(&self, block: &impl Hash) -> u32 {
        let [a, b, c, d, ..] = self.keys.hash_one(block).to_le_bytes();
        u32::from_le_bytes([a, b, c, d]).max(1)
    }

    /// True if all these blocks of a super block, with their marks, were sound.
    pub(super) fn has_blocks(&self, super_block: &impl Hash, marks: &[(u32, u32)]) -> bool {
        let known = self.super_blocks.get(&self.keys.hash_one(super_block));
        known.is_some_and(|known| {
            marks.iter().all(|(number, mark)| {
                usize::try_from(*number).is_ok_and(|number| known.get(number) == Some(mark))
            })
        })
    }

    /// Remembers that these blocks of a super block, with their marks, are sound.
    pub(super) fn add_blocks(&mut self, super_block: &impl Hash, marks: &[(u32, u32)]) {
        let count = self.new_block_count.saturating_add(marks.len());
        if count <= BLOCKS_MAX {
            self.new_block_count = count;
            self.new_blocks.push((self.keys.hash_one(super_block), marks.into()));
        }
    }

    fn know_blocks(&mut self, key: u64, marks: &[(u32, u32)]) {
        let last = marks.iter().map(|(number, _)| *number).max().unwrap_or(0);
        let Ok(length) = usize::try_from(last).map(|last| last.saturating_add(1)) else { return };
        let before = self.super_blocks.get(&key).map_or(0, |known| known.len());
        let more = length.saturating_sub(before);
        if self.blocks.saturating_add(more) > BLOCKS_MAX {
            return;
        }
        self.blocks = self.blocks.saturating_add(more);
        let mut known = self.super_blocks.remove(&key).unwrap_or_default().into_vec();
        known.resize(known.len().max(length), 0);
        for (number, mark) in marks {
            let place = usize::try_from(*number).ok().and_then(|number| known.get_mut(number));
            if let Some(place) = place {
                *place = *mark;
            }
        }
        self.super_blocks.insert(key, known.into_boxed_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_known_only_as_what_they_were_verified_as() {
        let mut memory = Memory::default();
        let (first, second) = (memory.mark(&"block 0"), memory.mark(&"block 1"));
        memory.add_blocks(&"super", &[(1, second)]);
        memory.add_blocks(&"super", &[(0, first)]);
        assert!(!memory.has_blocks(&"super", &[(0, first)]), "of the set that is being read");
        memory.begin_set();
        assert!(memory.has_blocks(&"super", &[(0, first), (1, second)]));
        assert!(!memory.has_blocks(&"super", &[(0, second)]));
        assert!(!memory.has_blocks(&"super", &[(2, second)]));
        assert!(!memory.has_blocks(&"other", &[(0, first)]));
    }

    #[test]
    fn files_with_failing_pages_are_known() {
        let mut memory = Memory::default();
        memory.taint("base/1/1259");
        assert!(memory.is_tainted("base/1/1259") && !memory.is_tainted("base/1/1249"));
    }
}

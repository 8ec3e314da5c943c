//! The patterns in which databases read and write. [`PATTERNS`] is the registry:
//! table, JSON, documentation and the jobs for fio come from it.
//!
//! The seven are those that SQL Server's own literature tells apart; what they are
//! called there is what PostgreSQL and InnoDB do under other names
//! ([`Pattern::likened`]). Block sizes and weights are of the same origin, the
//! depths those with which these engines go about it.

/// Where the next block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Behind the last one, in several streams, each with a part of the file.
    Sequential {
        /// Streams, each by a thread of its own, which share the depth.
        streams: usize,
        /// Percent of the blocks that lie anywhere instead.
        astray: u8,
    },
    /// Anywhere.
    Random,
}

/// When the device must have what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Nothing is written, or the writer does not wait until it is stored.
    Never,
    /// After each write.
    EachWrite,
    /// At the end, and the time counts.
    AtEnd,
}

/// A block size and how often it comes, in percent of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Bytes.
    pub bytes: usize,
    /// Percent.
    pub percent: u8,
}

/// A way in which a database reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// As in the table and in JSON.
    pub name: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// Who does it.
    pub likened: &'static str,
    /// Where blocks lie.
    pub access: Access,
    /// How large they are. Of [`PAGE`] bytes where it is the database's page.
    pub blocks: &'static [Block],
    /// Percent of them that are written.
    pub write_percent: u8,
    /// How many are in flight.
    pub depth: usize,
    /// When they must be on the device.
    pub sync: Sync,
}

/// Stands for the size of a database's page, which is the user's to say.
pub const PAGE: usize = 0;

const KIB: usize = 1 << 10;

/// A log's writes are small, in a mix of a busy system's.
const LOG_BLOCKS: &[Block] = &[
    Block { bytes: 512, percent: 10 },
    Block { bytes: 4 * KIB, percent: 40 },
    Block { bytes: 16 * KIB, percent: 25 },
    Block { bytes: 32 * KIB, percent: 15 },
    Block { bytes: 60 * KIB, percent: 10 },
];

/// The patterns, in the order in which they are run.
pub const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "oltp-log",
        title: "appends to a log, each flushed before the next",
        likened: "SQL Server's log, PostgreSQL's WAL, InnoDB's redo log",
        access: Access::Sequential { streams: 1, astray: 0 },
        blocks: LOG_BLOCKS,
        write_percent: 100,
        depth: 1,
        sync: Sync::EachWrite,
    },
    Pattern {
        name: "oltp-data",
        title: "single pages anywhere, four reads to a write",
        likened: "pages missing from the buffer pool, and its writer",
        access: Access::Random,
        blocks: &[Block { bytes: PAGE, percent: 100 }],
        write_percent: 20,
        depth: 8,
        sync: Sync::Never,
    },
    Pattern {
        name: "bulk-insert",
        title: "writes one after the other, flushed at the end",
        likened: "BULK INSERT, COPY, LOAD DATA, building an index",
        access: Access::Sequential { streams: 1, astray: 0 },
        blocks: &[
            Block { bytes: 8 * KIB, percent: 10 },
            Block { bytes: 32 * KIB, percent: 20 },
            Block { bytes: 64 * KIB, percent: 30 },
            Block { bytes: 128 * KIB, percent: 40 },
        ],
        write_percent: 100,
        depth: 8,
        sync: Sync::AtEnd,
    },
    Pattern {
        name: "read-ahead",
        title: "scans, two at a time",
        likened: "a table scan with read-ahead",
        access: Access::Sequential { streams: 2, astray: 0 },
        blocks: &[
            Block { bytes: 64 * KIB, percent: 25 },
            Block { bytes: 128 * KIB, percent: 25 },
            Block { bytes: 256 * KIB, percent: 50 },
        ],
        write_percent: 0,
        depth: 8,
        sync: Sync::Never,
    },
    Pattern {
        name: "backup",
        title: "reads all of it in large blocks",
        likened: "BACKUP, pg_basebackup, mariabackup",
        access: Access::Sequential { streams: 1, astray: 0 },
        blocks: &[Block { bytes: 1024 * KIB, percent: 100 }],
        write_percent: 0,
        depth: 8,
        sync: Sync::Never,
    },
    Pattern {
        name: "restore",
        title: "reads and writes as much, flushed at the end",
        likened: "RESTORE, copying a data directory",
        access: Access::Sequential { streams: 1, astray: 0 },
        blocks: &[Block { bytes: 64 * KIB, percent: 100 }],
        write_percent: 50,
        depth: 8,
        sync: Sync::AtEnd,
    },
    Pattern {
        name: "checkdb",
        title: "reads all of it, a block in a hundred elsewhere",
        likened: "DBCC CHECKDB, pg_amcheck, pagewarden check",
        access: Access::Sequential { streams: 1, astray: 1 },
        blocks: &[Block { bytes: 8 * KIB, percent: 10 }, Block { bytes: 64 * KIB, percent: 90 }],
        write_percent: 0,
        depth: 32,
        sync: Sync::Never,
    },
];

impl Pattern {
    /// The pattern of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PATTERNS.iter().find(|pattern| pattern.name == name)
    }

    /// True if it only reads, and so is given no descriptor that can write.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.write_percent == 0
    }

    /// The most that it may write in a file of `file_bytes` bytes: a log is short, and all of them
    /// together stay below two and a half times the file.
    #[must_use]
    pub fn written_bytes_max(&self, file_bytes: u64) -> u64 {
        let eighths = match (self.sync, self.write_percent) {
            (_, 0) => return u64::MAX,
            (Sync::EachWrite, _) => 2,
            (_, 100) => 8,
            (Sync::AtEnd, _) => 6,
            _ => 4,
        };
        file_bytes / 8 * eighths
    }

    /// How many go along it at a time.
    #[must_use]
    pub fn streams(&self) -> usize {
        match self.access {
            Access::Sequential { streams, .. } => streams.max(1),
            Access::Random => 1,
        }
    }

    /// The bytes of a block, where the database has pages of `page` bytes.
    #[must_use]
    pub fn block_bytes(block: &Block, page: usize) -> usize {
        if block.bytes == PAGE { page } else { block.bytes }
    }

    /// The bytes of the block that a number from 0 to 99 stands for.
    #[must_use]
    pub fn block(&self, chance: usize, page: usize) -> usize {
        let mut left = chance;
        for block in self.blocks {
            let share = usize::from(block.percent);
            if left < share {
                return Self::block_bytes(block, page);
            }
            left -= share;
        }
        self.largest_block(page)
    }

    /// The largest block.
    #[must_use]
    pub fn largest_block(&self, page: usize) -> usize {
        self.blocks.iter().map(|block| Self::block_bytes(block, page)).max().unwrap_or(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_whole() {
        for pattern in PATTERNS {
            let percent: u32 = pattern.blocks.iter().map(|block| u32::from(block.percent)).sum();
            assert_eq!(percent, 100, "{}", pattern.name);
            assert!(pattern.depth > 0 && pattern.write_percent <= 100);
            assert!(pattern.name.len() <= 12, "{} fits its column", pattern.name);
            // Only the flushed log has blocks below the alignment of direct transfers.
            let is_aligned = pattern.blocks.iter().all(|block| block.bytes.is_multiple_of(4 * KIB));
            assert_eq!(is_aligned, pattern.sync != Sync::EachWrite, "{}", pattern.name);
            assert_eq!(pattern.sync == Sync::Never, pattern.write_percent < 50);
            assert_eq!(Pattern::named(pattern.name), Some(pattern));
        }
        assert_eq!(PATTERNS.len(), 7);
    }
}

//! How large a pack would be, from a sample of its blocks, compressed as they would
//! be.
//!
//! The blocks are in *strata*: each large file is one, all others are one together.
//! Of a stratum, cut into equal stretches, one block of each is taken; where there
//! is room for all blocks, all are. The expected size is what the blocks of each
//! stratum have on average, times their number; the interval holds the true size in
//! 19 of 20 cases, by the variance within the strata (as if blocks were taken at
//! random, which makes it rather too wide) and Student's t.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::pack::codec::{Encoder, Settings};
use crate::pack::content::Content;
use crate::pack::layout::{
    BLOCK_ENTRY_BYTES, FOOTER_BYTES, HEADER_BYTES_MAX, LEAF_SPANS, SPAN_HEAD_BYTES, span_count,
};
use crate::pack::lock;
use crate::pack::table::{Entry, What};
use crate::source::file::{open_regular, read_fully};
use crate::source::residency::{Residency, expect_random_reads, forget, residency};

/// Fewer blocks of a stratum say nothing of how they differ.
const BLOCKS_MIN: u64 = 4;
/// Blocks that are taken from a file while it is open.
const BLOCKS_AT_ONCE: usize = 16;
/// Steps through `0..1` that never come near each other again: the golden ratio's.
const GOLDEN_STEP: f64 = 0.618_033_988_749_894_9;

/// A size that is not known for sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeInterval {
    /// Hardly less.
    pub low: u64,
    /// On average.
    pub expected: u64,
    /// Hardly more.
    pub high: u64,
}

/// What a pack would be.
#[derive(Debug)]
pub struct Estimate {
    /// In the order of the content; of a folder nothing but its entry.
    files: Vec<FileSize>,
    strata: Vec<Stratum>,
    block_bytes: u64,
    fixed_bytes: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that were looked at.
    pub sampled_bytes: u64,
}

/// What is known of a file's part of a pack.
#[derive(Debug, Clone, Copy)]
struct FileSize {
    /// What the pack says of it and its blocks, however they are stored.
    overhead_bytes: u64,
    blocks: u64,
    stratum: usize,
}

/// Blocks that are judged by each other.
#[derive(Debug, Clone, Copy, Default)]
struct Stratum {
    blocks: u64,
    taken: u64,
    stored_bytes: f64,
    stored_squares: f64,
}

impl Stratum {
    fn add(&mut self, stored: u32) {
        let stored = f64::from(stored);
        self.taken = self.taken.saturating_add(1);
        self.stored_bytes += stored;
        self.stored_squares += stored * stored;
    }

    fn mean(&self) -> f64 {
        if self.taken == 0 { 0.0 } else { self.stored_bytes / self.taken as f64 }
    }

    /// Of the sum over `blocks` of its blocks.
    fn variance(&self, blocks: u64) -> f64 {
        if self.taken < 2 {
            return 0.0;
        }
        let (taken, blocks, all) = (self.taken as f64, blocks as f64, self.blocks as f64);
        let squares = self.stored_squares - self.stored_bytes * self.mean();
        let of_block = (squares / (taken - 1.0)).max(0.0);
        let of_mean = of_block * (1.0 - taken / all) / taken;
        // Which of its blocks a part of the stratum has is not known, either.
        let of_part = of_block * blocks * (1.0 - blocks / all);
        of_mean * blocks * blocks + of_part
    }
}

/// A sum of estimates.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    expected: f64,
    variance: f64,
    /// Of Welch and Satterthwaite's formula for the degrees of freedom.
    squares: f64,
}

impl Sum {
    fn add(&mut self, overhead_bytes: u64, stratum: &Stratum, blocks: u64) {
        let variance = stratum.variance(blocks);
        self.expected += overhead_bytes as f64 + stratum.mean() * blocks as f64;
        self.variance += variance;
        let freedom = stratum.taken.saturating_sub(1).max(1) as f64;
        self.squares += variance * variance / freedom;
    }

    fn interval(&self) -> SizeInterval {
        let freedom = if self.squares > 0.0 {
            self.variance * self.variance / self.squares
        } else {
            f64::INFINITY
        };
        let half = student(freedom) * self.variance.max(0.0).sqrt();
        SizeInterval {
            low: whole(self.expected - half),
            expected: whole(self.expected),
            high: whole(self.expected + half),
        }
    }
}

/// A size as whole bytes.
fn whole(bytes: f64) -> u64 {
    format!("{:.0}", bytes.clamp(0.0, 1e18)).parse().unwrap_or(0)
}

/// How many standard deviations hold 95 % with `freedom` degrees of freedom: the
/// expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5), which is right to
/// 0.5 % from 4 degrees on.
fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    let terms = [
        (z3 + Z) / 4.0,
        (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / 96.0,
        (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / 384.0,
    ];
    let freedom = freedom.max(1.0);
    (1..).zip(terms).fold(Z, |sum, (power, term)| sum + term / freedom.powi(power))
}

/// How to take a sample.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    /// Bytes to look at, at most (a few more where there are many large files).
    pub bytes_max: u64,
    /// Threads that compress.
    pub jobs: usize,
}

/// Blocks of a file to be taken.
#[derive(Debug, PartialEq, Eq)]
struct Taking {
    file: usize,
    stratum: usize,
    blocks: Vec<u64>,
}

impl Estimate {
    /// Takes a sample of `content` and compresses it.
    ///
    /// # Errors
    /// A file cannot be read ([`io::ErrorKind::Interrupted`] if `stop` was set). One
    /// that is gone since it was listed counts as the others.
    pub fn make(
        content: &Content,
        settings: &Settings,
        sampling: Sampling,
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
        let block_bytes = u64::from(settings.block_bytes);
        let (mut estimate, takings) = Self::plan(content, settings, sampling.bytes_max);
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let strata = Mutex::new((std::mem::take(&mut estimate.strata), 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..sampling.jobs.max(1) {
                scope.spawn(|| {
                    let Ok(mut encoder) = Encoder::new(settings) else { return };
                    while lock(&failed).is_none() {
                        let Some(taking) = takings.get(next.fetch_add(1, Ordering::Relaxed)) else {
                            break;
                        };
                        match take(content, taking, block_bytes, &mut encoder, stop) {
                            Ok((stored, bytes)) => {
                                let (strata, sampled) = &mut *lock(&strata);
                                *sampled = sampled.saturating_add(bytes);
                                if let Some(stratum) = strata.get_mut(taking.stratum) {
                                    stored.into_iter().for_each(|stored| stratum.add(stored));
                                }
                            }
                            Err(error) => {
                                let path = content.path(taking.file);
                                lock(&failed).get_or_insert(Error::io("read", &path, error));
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        (estimate.strata, estimate.sampled_bytes) =
            strata.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(estimate)
    }

    /// Which blocks to take.
    fn plan(content: &Content, settings: &Settings, bytes_max: u64) -> (Self, Vec<Taking>) {
        let block_bytes = u64::from(settings.block_bytes);
        let blocks_of = |entry: &Entry| entry.bytes().div_ceil(block_bytes);
        let all = content.entries.iter().map(blocks_of).fold(0, u64::saturating_add);
        let wanted = (bytes_max / block_bytes).max(BLOCKS_MIN).min(all);
        let share = |blocks: u64| {
            let share = u128::from(wanted) * u128::from(blocks) / u128::from(all.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        // The first one is of all files that have none of their own.
        let mut strata = vec![Stratum::default()];
        let mut files = Vec::new();
        let mut takings = Vec::new();
        let mut small = Vec::new();
        for (number, entry) in content.entries.iter().enumerate() {
            let blocks = blocks_of(entry);
            let has_own = share(blocks) >= BLOCKS_MIN || wanted == all;
            let stratum = if has_own { strata.len() } else { 0 };
            files.push(FileSize { overhead_bytes: overhead(entry, block_bytes), blocks, stratum });
            if has_own {
                strata.push(Stratum { blocks, ..Stratum::default() });
                add_takings(&mut takings, number, stratum, spread(blocks, share(blocks)));
            } else if let Some(stratum) = strata.first_mut() {
                stratum.blocks = stratum.blocks.saturating_add(blocks);
                small.push((number, blocks));
            }
        }
        let small_blocks = strata.first().map_or(0, |stratum| stratum.blocks);
        let mut places = spread(small_blocks, share(small_blocks).max(BLOCKS_MIN)).peekable();
        let mut begin = 0_u64;
        for (number, blocks) in small {
            let end = begin.saturating_add(blocks);
            let within = std::iter::from_fn(|| places.next_if(|place| *place < end));
            let within: Vec<u64> = within.map(|place| place.saturating_sub(begin)).collect();
            add_takings(&mut takings, number, 0, within.into_iter());
            begin = end;
        }
        let spans = content.entries.iter().map(|entry| span_count(entry.bytes()));
        let leaves = spans.fold(0, u64::saturating_add).div_ceil(LEAF_SPANS);
        let fixed = HEADER_BYTES_MAX + FOOTER_BYTES + settings.dictionary.len();
        let fixed_bytes = leaves.saturating_mul(size_of::<u64>() as u64) + fixed as u64;
        let bytes = content.bytes();
        let estimate = Self { files, strata, block_bytes, fixed_bytes, bytes, sampled_bytes: 0 };
        (estimate, takings)
    }

    /// The whole pack, but for the report in it.
    #[must_use]
    pub fn total(&self) -> SizeInterval {
        let mut sum = Sum { expected: self.fixed_bytes as f64, ..Sum::default() };
        for stratum in &self.strata {
            sum.add(0, stratum, stratum.blocks);
        }
        sum.expected += self.files.iter().map(|file| file.overhead_bytes as f64).sum::<f64>();
        sum.interval()
    }

    /// Some entries of the content, by their numbers.
    #[must_use]
    pub fn part(&self, entries: &[usize]) -> SizeInterval {
        let mut sum = Sum::default();
        for file in entries.iter().filter_map(|entry| self.files.get(*entry)) {
            if let Some(stratum) = self.strata.get(file.stratum) {
                sum.add(file.overhead_bytes, stratum, file.blocks);
            }
        }
        sum.interval()
    }

    /// True if every block was looked at, so that the size is sure.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.strata.iter().all(|stratum| stratum.taken >= stratum.blocks)
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }
}

/// Cuts the blocks of a file into what is taken at once.
fn add_takings(
    takings: &mut Vec<Taking>,
    file: usize,
    stratum: usize,
    blocks: impl Iterator<Item = u64>,
) {
    let blocks: Vec<u64> = blocks.collect();
    for blocks in blocks.chunks(BLOCKS_AT_ONCE) {
        takings.push(Taking { file, stratum, blocks: blocks.to_vec() });
    }
}

/// One of each of `taken` equal stretches of `0..blocks`; all of them if there are no
/// more.
fn spread(blocks: u64, taken: u64) -> impl Iterator<Item = u64> {
    let taken = taken.min(blocks);
    let mut within = 0.5;
    (0..taken).map(move |stretch| {
        let at = |stretch: u64| {
            let at = u128::from(blocks) * u128::from(stretch) / u128::from(taken.max(1));
            u64::try_from(at).unwrap_or(u64::MAX)
        };
        let (begin, end) = (at(stretch), at(stretch.saturating_add(1)));
        within = (within + GOLDEN_STEP) % 1.0;
        let length = end.saturating_sub(begin);
        begin.saturating_add(whole((within * length as f64).floor())).min(end.saturating_sub(1))
    })
}

/// What a pack says of a file or folder, however its blocks are stored.
fn overhead(entry: &Entry, block_bytes: u64) -> u64 {
    // In a record and in the table; the latter is compressed, but for its hash.
    let named = entry.to_bytes(false).len().saturating_add(entry.to_bytes(true).len());
    if entry.what == What::Folder {
        return named as u64;
    }
    let per_span = SPAN_HEAD_BYTES + size_of::<u64>();
    let spans = span_count(entry.bytes()).saturating_mul(per_span as u64);
    // In the span's record and in the index.
    let blocks = entry.bytes().div_ceil(block_bytes).saturating_mul(2 * BLOCK_ENTRY_BYTES as u64);
    spans.saturating_add(blocks).saturating_add(named as u64)
}

/// Compresses some blocks of a file. Returns the stored size of each, and how many
/// bytes were read.
fn take(
    content: &Content,
    taking: &Taking,
    block_bytes: u64,
    encoder: &mut Encoder,
    stop: &AtomicBool,
) -> io::Result<(Vec<u32>, u64)> {
    let file = match open_regular(&content.path(taking.file)) {
        Ok(file) => file,
        // Servers that run remove files.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error),
    };
    expect_random_reads(&file);
    let mut buffer = vec![0; usize::try_from(block_bytes).map_err(io::Error::other)?];
    let (mut stored, mut bytes) = (Vec::new(), 0_u64);
    let mut out = Vec::new();
    for block in &taking.blocks {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let begin = block.saturating_mul(block_bytes);
        let count = read_undisturbing(&file, &mut buffer, begin)?;
        let block = buffer.get(..count).unwrap_or_default();
        out.clear();
        stored.push(encoder.encode(block, &mut out)?.stored_bytes);
        bytes = bytes.saturating_add(count as u64);
    }
    Ok((stored, bytes))
}

/// Reads through the page cache, and takes out of it what was not there before.
pub(super) fn read_undisturbing(file: &File, buffer: &mut [u8], begin: u64) -> io::Result<usize> {
    let range = begin..begin.saturating_add(buffer.len() as u64);
    let was_absent = residency(file, range.clone()) == Residency::Nothing;
    let count = read_fully(file, buffer, begin)?;
    if was_absent {
        forget(file, &range);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::path::Path;

    use crate::pack::{Method, SPAN_BYTES, Strays};

    const BLOCK: u32 = 16 << 10;

    fn settings() -> Settings {
        Settings { block_bytes: BLOCK, method: Method::Zstd(1), dictionary: Vec::new() }
    }

    fn estimate(content: &Content, bytes_max: u64) -> Estimate {
        let sampling = Sampling { bytes_max, jobs: 2 };
        Estimate::make(content, &settings(), sampling, &AtomicBool::new(false)).unwrap()
    }

    /// Blocks that shrink by anything between nothing and a hundred times, in no
    /// order.
    fn write_file(path: &Path, blocks: u32, seed: u64) {
        let mut noise = seed;
        let mut next = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            u32::try_from(noise >> 33).unwrap()
        };
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let random = next() % BLOCK;
            bytes
                .extend((0..BLOCK).map(|at| if at < random { next().to_le_bytes()[0] } else { 7 }));
        }
        fs::write(path, bytes).unwrap();
    }

    /// What the blocks of these files come to, all of them.
    fn truth(content: &Content) -> u64 {
        let all = estimate(content, u64::MAX);
        assert!(all.is_exact());
        let total = all.total();
        assert_eq!((total.low, total.high), (total.expected, total.expected));
        total.expected
    }

    #[test]
    fn every_block_looked_at_gives_the_size_of_the_pack() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        write_file(&folder.path().join("large"), 200, 1);
        write_file(&folder.path().join("below/small"), 3, 2);
        fs::write(folder.path().join("below/empty"), "").unwrap();
        fs::write(folder.path().join("zero"), vec![0; 5 << 20]).unwrap();
        let content = Content::list(folder.path(), Strays::Refused).unwrap();
        let expected = truth(&content);
        let writer =
            crate::pack::write::Writer::begin(Vec::new(), settings(), content.entries.clone())
                .unwrap();
        let mut scratch = writer.scratch().unwrap();
        for (number, entry) in content.entries.iter().enumerate() {
            if entry.what == What::Folder {
                continue;
            }
            let bytes = fs::read(content.path(number)).unwrap();
            for (span, bytes) in (0..).zip(bytes.chunks(SPAN_BYTES)) {
                writer.add(&mut scratch, number, span, bytes).unwrap();
            }
        }
        let (pack, ..) = writer.finish(b"{}").unwrap();
        // The table is compressed.
        let difference = expected.abs_diff(pack.len() as u64);
        assert!(difference < 200, "{expected} is not {}", pack.len());
    }

    /// In 19 of 20 samples the interval holds the truth; with 40 files, 34 do in all
    /// but one of a hundred runs.
    #[test]
    fn interval_holds_the_truth_as_often_as_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut held = 0;
        for seed in 0..40 {
            write_file(&path, 400, seed * 7919 + 3);
            let content = Content::list(&path, Strays::Refused).unwrap();
            let (truth, estimate) = (truth(&content), estimate(&content, 20 * u64::from(BLOCK)));
            assert_eq!(estimate.sampled_bytes, 20 * u64::from(BLOCK));
            assert!(!estimate.is_exact());
            let total = estimate.total();
            assert!(total.low < total.expected && total.expected < total.high);
            assert!(total.high - total.low < truth, "an interval that says nothing: {total:?}");
            held += u32::from((total.low..=total.high).contains(&truth));
            assert_eq!(estimate.part(&[0]).expected + estimate.fixed_bytes, total.expected);
        }
        assert!(held >= 34, "{held} of 40");
    }

    #[test]
    fn many_small_files_are_judged_by_each_other() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..200 {
            write_file(&folder.path().join(format!("{number}")), 2, number + 1);
        }
        write_file(&folder.path().join("large"), 400, 5);
        let content = Content::list(folder.path(), Strays::Refused).unwrap();
        let (truth, estimate) = (truth(&content), estimate(&content, 80 * u64::from(BLOCK)));
        let total = estimate.total();
        assert!((total.low..=total.high).contains(&truth), "{total:?} {truth}");
        let parts: Vec<usize> = (0..content.entries.len()).collect();
        let sum: u64 = parts.iter().map(|part| estimate.part(&[*part]).expected).sum();
        assert!((sum + estimate.fixed_bytes).abs_diff(total.expected) < 300, "{sum} {total:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_a_stop_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_file(&path, 10, 1);
        let content = Content::list(&path, Strays::Refused).unwrap();
        let sampling = Sampling { bytes_max: 1 << 20, jobs: 1 };
        let stopped = AtomicBool::new(true);
        assert!(Estimate::make(&content, &settings(), sampling, &stopped).is_err());
        fs::remove_file(&path).unwrap();
        let gone = estimate(&content, 1 << 20);
        assert_eq!(gone.sampled_bytes, 0);
        fs::create_dir(&path).unwrap();
        let stop = AtomicBool::new(false);
        assert!(Estimate::make(&content, &settings(), sampling, &stop).is_err());
    }

    #[test]
    fn samples_lie_in_all_parts_and_never_twice() {
        for (blocks, taken) in [(1, 1), (10, 3), (1000, 37), (5, 50), (0, 4)] {
            let places: Vec<u64> = spread(blocks, taken).collect();
            assert_eq!(places.len() as u64, taken.min(blocks));
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
            assert!(places.iter().all(|place| *place < blocks), "{places:?}");
        }
    }

    /// Against a table of Student's t, 97.5 %.
    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, expected) in [(4.0, 2.776), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)] {
            let found = student(freedom);
            assert!((found - expected).abs() < 0.005 * expected, "{freedom}: {found}");
        }
    }
}

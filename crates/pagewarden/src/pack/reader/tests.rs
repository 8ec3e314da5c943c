//! A reader against the plain bytes, alone and with others, in sound and damaged packs.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::pack::codec::{Method, Settings};
use crate::pack::tests::{content, file, packed};

/// Bytes that shrink, with a stretch of zeroes that is longer than any block, and an
/// end that is no whole block.
fn large() -> Vec<u8> {
    let mut bytes = content(9 * SPAN_BYTES + 12_345);
    bytes[3_000_000..6_500_000].fill(0);
    bytes
}

struct Sample {
    _folder: TempDir,
    path: PathBuf,
    files: Vec<Vec<u8>>,
}

impl Sample {
    fn new(block_bytes: u32, method: Method) -> Self {
        let files = vec![large(), b"short".to_vec(), Vec::new(), content(700_000)];
        Self::of(files, block_bytes, method)
    }

    fn of(files: Vec<Vec<u8>>, block_bytes: u32, method: Method) -> Self {
        let entry = |(number, bytes): (usize, &Vec<u8>)| {
            (file(&format!("f{number}"), bytes), bytes.clone())
        };
        let entries: Vec<_> = files.iter().enumerate().map(entry).collect();
        let settings = Settings { block_bytes, method, dictionary: Vec::new() };
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x.pwk");
        fs::write(&path, packed(&entries, &settings)).unwrap();
        Self { _folder: folder, path, files }
    }

    fn reader(&self, settings: ReaderSettings) -> Reader {
        Reader::new(Arc::new(Pack::open(&self.path).unwrap()), settings).unwrap()
    }

    /// Flips a bit in the middle of a stored block of the large file, and says where
    /// the block begins.
    fn damage(&self, block: u64) -> u64 {
        let pack = Pack::open(&self.path).unwrap();
        let per_span = (SPAN_BYTES / pack.block_bytes()) as u64;
        let place = pack.span_place(0, block / per_span).unwrap();
        let within = index(block % per_span);
        let begin = place.block_begin(within);
        let mut bytes = fs::read(&self.path).unwrap();
        bytes[index(begin) + place.blocks[within].stored_bytes as usize / 2] ^= 0x10;
        fs::write(&self.path, bytes).unwrap();
        begin
    }
}

const SMALL: ReaderSettings =
    ReaderSettings { threads: 2, cache_bytes: 2 << 20, window_bytes: 1 << 20, keeps_lookups: true };
/// As a mount has it.
const PASSING: ReaderSettings = ReaderSettings { keeps_lookups: false, ..SMALL };

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// Reads anywhere, as a database does and as a scan does, and compares.
fn read_around(reader: &Reader, files: &[Vec<u8>], seed: u64, requests: usize) {
    let mut dice = Dice(seed);
    let mut out = vec![0; 1 << 20];
    let mut scan = 0;
    for _ in 0..requests {
        let number = dice.below(files.len());
        let block_bytes = reader.pack().block_bytes();
        let (number, offset, count) = match dice.below(4) {
            0 => (0, scan, 128 << 10),
            1 => {
                let block = dice.below(files[number].len().div_ceil(block_bytes) + 1);
                (number, block * block_bytes, block_bytes)
            }
            2 => (number, dice.below(files[number].len() + 100), 8192),
            _ => (number, dice.below(files[number].len() + 100), dice.below(out.len())),
        };
        let plain = files[number].get(offset..).unwrap_or_default();
        let plain = &plain[..plain.len().min(count)];
        out.fill(0xaa);
        let got = reader.read_at(number, offset as u64, &mut out[..count]).unwrap();
        assert!(out[..got] == *plain, "file {number}, {count} bytes at {offset}");
        scan = if number == 0 && offset == scan { scan + count } else { scan } % files[0].len();
        let held = reader.shared.cache.held_bytes();
        assert!(held <= reader.settings.cache_bytes, "{held}");
    }
}

#[test]
fn whatever_is_read_is_what_was_packed() {
    for (block_bytes, method) in [
        (4096, Method::Lz4),
        (16 << 10, Method::Zstd(1)),
        (64 << 10, Method::Zstd(3)),
        (256 << 10, Method::Raw),
        (1 << 20, Method::Lz4),
    ] {
        let sample = Sample::new(block_bytes, method);
        for settings in [
            SMALL,
            ReaderSettings { threads: 0, ..SMALL },
            ReaderSettings { cache_bytes: 0, ..SMALL },
            ReaderSettings::default(),
            PASSING,
        ] {
            read_around(&sample.reader(settings), &sample.files, 7, 80);
        }
    }
}

#[test]
fn many_read_at_once() {
    let sample = Sample::new(16 << 10, Method::Zstd(1));
    for settings in [SMALL, PASSING] {
        let reader = sample.reader(settings);
        thread::scope(|scope| {
            for seed in 0..8 {
                // Pairs of them want the same.
                let (reader, files) = (&reader, &sample.files);
                scope.spawn(move || read_around(reader, files, seed / 2, 150));
            }
        });
    }
}

/// Pages in any order and parts of them, each as it was packed.
fn read_pages(reader: &Reader, plain: &[u8], page: usize, seed: u64, requests: usize) {
    let (mut dice, mut out) = (Dice(seed), vec![0; page]);
    for _ in 0..requests {
        let begin = dice.below(plain.len() / page) * page + dice.below(2) * 24;
        let expected = &plain[begin..plain.len().min(begin + page - 24)];
        let out = &mut out[..page - 24];
        out.fill(0xaa);
        let got = reader.read_at(0, begin as u64, out).unwrap();
        assert!(out[..got] == *expected, "{begin}");
        let held = reader.shared.cache.held_bytes();
        assert!(held <= reader.settings.cache_bytes, "{held}");
    }
}

#[test]
fn what_is_held_is_read_by_many_at_once_and_needs_no_file() {
    let sample = Sample::new(4096, Method::Zstd(1));
    let reader = sample.reader(ReaderSettings { cache_bytes: 16 << 20, ..SMALL });
    let mut all = vec![0; sample.files[0].len()];
    reader.read_at(0, 0, &mut all).unwrap();
    fs::OpenOptions::new().write(true).open(&sample.path).unwrap().set_len(0).unwrap();
    thread::scope(|scope| {
        for seed in 0..8 {
            let (reader, plain) = (&reader, &sample.files[0]);
            scope.spawn(move || read_pages(reader, plain, 4096, seed, 4000));
        }
    });
    // Of another file nothing is held: it has to be read.
    assert!(reader.read_at(3, 0, &mut [0; 4096]).is_err());
}

#[test]
fn a_small_cache_bounds_what_many_hold_of_small_blocks() {
    for block_bytes in [4096, 8192] {
        let sample = Sample::new(block_bytes, Method::Lz4);
        let reader = sample.reader(ReaderSettings { cache_bytes: 256 << 10, ..SMALL });
        thread::scope(|scope| {
            for seed in 0..8 {
                let (reader, plain) = (&reader, &sample.files[0]);
                scope.spawn(move || read_pages(reader, plain, 8192, seed, 1000));
            }
        });
        assert!(reader.shared.cache.held_bytes() <= 256 << 10);
        assert!(reader.shared.cache.unread_bytes() <= 256 << 10);
    }
}

#[test]
fn outside_of_files_there_is_nothing() {
    let sample = Sample::new(16 << 10, Method::Lz4);
    let reader = sample.reader(SMALL);
    let mut out = [1; 10];
    for (number, offset) in [(0, u64::MAX), (0, sample.files[0].len() as u64), (2, 0), (99, 0)] {
        assert_eq!(reader.read_at(number, offset, &mut out).unwrap(), 0);
    }
    assert_eq!(reader.read_at(1, 3, &mut out).unwrap(), 2);
    assert_eq!(reader.read_at(0, 0, &mut []).unwrap(), 0);
}

/// Waits until a block is held without anybody having asked for it.
fn is_expanded_ahead(reader: &Reader, block: u64) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        if reader.shared.cache.is_held((0, block)) {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

#[test]
fn a_scan_is_read_ahead_and_a_lookup_is_not() {
    let sample = Sample::new(64 << 10, Method::Zstd(1));
    let reader = sample.reader(ReaderSettings { threads: 1, ..ReaderSettings::default() });
    let mut out = vec![0; 64 << 10];
    for block in [100_u64, 20, 130] {
        reader.read_at(0, block << 16, &mut out).unwrap();
    }
    assert_eq!(reader.shared.cache.held_bytes(), 3 << 16, "nothing but what was asked for");
    for block in 0..3_u64 {
        reader.read_at(0, block << 16, &mut out).unwrap();
    }
    assert!(is_expanded_ahead(&reader, 7));
    assert!(reader.shared.cache.unread_bytes() > 0);
}

#[test]
fn who_looks_something_up_finds_buffers_put_by() {
    let sample = Sample::new(4096, Method::Zstd(1));
    let reader = sample.reader(ReaderSettings::default());
    let reaches = |count: usize| {
        let begin = Instant::now();
        while reader.shared.buffers.spare() < count && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(2));
        }
        reader.shared.buffers.spare() >= count
    };
    assert!(reaches(PREPARED_BYTES / 4096), "at the begin");
    let mut out = [0; 4096];
    // Of more blocks than there were buffers.
    for step in 0..100_u64 {
        reader.read_at(0, (step * 37 % 700) << 12, &mut out).unwrap();
    }
    assert!(reaches(PREPARED_BYTES / 4096 / 4), "again");
}

#[test]
fn the_index_is_at_hand_before_it_is_needed() {
    // A span each.
    let sample = Sample::of(vec![vec![7]; 200], 4096, Method::Zstd(1));
    let reader = sample.reader(ReaderSettings::default());
    let held = || lock(&reader.shared.leaves).held.len() as u64;
    let begin = Instant::now();
    while held() < reader.pack().leaf_count() && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((held(), reader.pack().leaf_count()), (4, 4));
}

#[test]
fn a_lookup_that_is_not_kept_takes_no_memory() {
    let sample = Sample::new(4096, Method::Zstd(1));
    let reader = sample.reader(PASSING);
    let mut out = [0; 4096];
    for step in 0..300_u64 {
        let begin = (step * 37 % 700) << 12;
        assert_eq!(reader.read_at(0, begin, &mut out).unwrap(), 4096);
        assert!(out == sample.files[0][index(begin)..][..4096], "{begin}");
    }
    assert_eq!((reader.shared.cache.held_bytes(), reader.shared.buffers.spare()), (0, 0));
    // A part of a block is kept, since the rest may be wanted next.
    reader.read_at(0, 5 << 12, &mut out[..100]).unwrap();
    assert_eq!(reader.shared.cache.held_bytes(), 4096);
}

#[test]
fn a_damaged_block_is_named_by_all_who_need_it_and_by_nobody_else() {
    let sample = Sample::new(64 << 10, Method::Zstd(3));
    let begin = sample.damage(20);
    for settings in [SMALL, PASSING, ReaderSettings { threads: 0, ..SMALL }] {
        let reader = sample.reader(settings);
        for _ in 0..3 {
            for (number, plain) in sample.files[0].chunks(64 << 10).enumerate() {
                let mut out = vec![0; 64 << 10];
                match reader.read_at(0, (number as u64) << 16, &mut out) {
                    Err(PackError::Damaged { part: "block", offset }) => {
                        assert_eq!((number, offset), (20, begin));
                    }
                    got => {
                        assert_ne!(number, 20, "it must fail each time");
                        assert!(out[..got.unwrap()] == *plain, "{number}");
                    }
                }
            }
        }
        // A request that touches it fails as a whole, by several threads at once.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut out = vec![0; 300_000];
                    let read = reader.read_at(0, (20 << 16) - 100_000, &mut out);
                    assert!(matches!(read, Err(PackError::Damaged { .. })));
                });
            }
        });
    }
}

#[test]
fn a_pack_that_is_cut_under_its_reader_is_an_error_and_no_hang() {
    let sample = Sample::new(64 << 10, Method::Zstd(1));
    let reader = sample.reader(ReaderSettings { threads: 2, ..SMALL });
    let mut out = vec![0; 128 << 10];
    for step in 0..4_u64 {
        reader.read_at(0, step << 17, &mut out).unwrap();
    }
    fs::OpenOptions::new().write(true).open(&sample.path).unwrap().set_len(1000).unwrap();
    let failures = (0..40_u64).filter(|step| reader.read_at(0, step << 17, &mut out).is_err());
    assert!(failures.count() > 5);
}

#[test]
fn threads_end_with_their_reader() {
    let sample = Sample::new(64 << 10, Method::Zstd(3));
    let pack = Arc::new(Pack::open(&sample.path).unwrap());
    for _ in 0..20 {
        let reader = Reader::new(Arc::clone(&pack), ReaderSettings::default()).unwrap();
        let mut out = vec![0; 128 << 10];
        for step in 0..4_u64 {
            reader.read_at(0, step << 17, &mut out).unwrap();
        }
        drop(reader);
        assert_eq!(Arc::strong_count(&pack), 1);
    }
}

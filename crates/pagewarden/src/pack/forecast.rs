//! How long a scan of a pack would take beside one of the plain files, from what is
//! measured here: how fast blocks of this database expand, and how fast its device
//! reads.
//!
//! With `D` bytes a second from the device, `d` bytes a second expanded by a core,
//! `r` times smaller and `n` cores, the time of a cold scan beside that of the plain
//! files is
//!
//! ```text
//! max(1 / r, D / (d * max(n - 1, 1)))
//! ```
//!
//! One core is left to the program that scans. Measured on two cores with `D` held to 250 MB
//! a second: 0.78 and 0.45 for two databases of which this gives 0.74 and 0.43;
//! with `n` cores in the formula it would be 0.74 and 0.29.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pack::codec::{Decoder, Encoder, Method, Settings};
use crate::pack::content::Content;
use crate::pack::estimate::read_undisturbing;
use crate::pack::layout::BlockEntry;
use crate::source::buffer::AlignedBuffer;
use crate::source::file::open_regular;
use crate::verify::timing::Stopwatch;

/// Less is read in a moment, packed or not.
const BYTES_MIN: u64 = 16 << 20;
/// Blocks are taken from here and there, together this number of bytes ...
const SAMPLE_BYTES: u64 = 8 << 20;
/// ... and fewer where they take long to compress.
const SLOW_SAMPLE_BYTES: u64 = 2 << 20;
/// Levels of zstd from which on they do.
const SLOW_LEVEL: i32 = 10;
/// Processor time for which blocks are expanded.
const DECODE_TIME: Duration = Duration::from_millis(40);
/// How long the device is read, and how much at most.
const READ_TIME: Duration = Duration::from_millis(200);
const READ_BYTES_MAX: u64 = 512 << 20;
/// Reads in flight, each of [`READ_BYTES`].
const READERS: usize = 4;
const READ_BYTES: usize = 1 << 20;
/// What `st_blocks` counts in, everywhere.
const STATUS_BLOCK_BYTES: u64 = 512;

/// What blocks of a database become with a method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coding {
    /// The method.
    pub method: Method,
    /// How many times smaller they are.
    pub ratio: f64,
    /// Bytes that a core expands and tests in a second of its time.
    pub decode_bytes_per_second: f64,
}

/// How fast a pack of a database could be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// As it would be made.
    pub chosen: Coding,
    /// Another way to make it.
    pub other: Coding,
    /// Cores of this machine.
    pub cores: usize,
    /// Bytes that the database's device reads in a second; `None` where reads past
    /// the page cache are refused, or were not to be measured.
    pub read_bytes_per_second: Option<f64>,
}

impl Forecast {
    /// How long a cold scan takes, as a multiple of a scan of the plain files.
    #[must_use]
    pub fn cold_scan(&self, coding: &Coding) -> Option<f64> {
        let read = self.read_bytes_per_second?;
        let cores = u32::try_from(self.cores.saturating_sub(1).max(1)).unwrap_or(u32::MAX);
        let decode = coding.decode_bytes_per_second * f64::from(cores);
        let (shrunk, expanding) = (1.0 / coding.ratio, read / decode);
        (decode > 0.0 && coding.ratio > 0.0).then(|| shrunk.max(expanding))
    }

    /// Measures. `None` if there is too little to measure by, or all of it zeroes.
    /// The device is left alone unless `may_read_device`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn measure(
        content: &Content,
        settings: &Settings,
        cores: usize,
        may_read_device: bool,
        stop: &AtomicBool,
    ) -> io::Result<Option<Self>> {
        if content.bytes() < BYTES_MIN {
            return Ok(None);
        }
        let is_slow = matches!(settings.method, Method::Zstd(level) if level >= SLOW_LEVEL);
        let bytes = if is_slow { SLOW_SAMPLE_BYTES } else { SAMPLE_BYTES };
        let sample = sample(content, settings.block_bytes, bytes)?;
        let method = match settings.method {
            Method::Lz4 => Method::Zstd(3),
            Method::Raw | Method::Zstd(_) => Method::Lz4,
        };
        // A dictionary was made for the method that was chosen.
        let other = Settings { method, dictionary: Vec::new(), ..*settings };
        let (Some(chosen), Some(other)) = (coding(&sample, settings)?, coding(&sample, &other)?)
        else {
            return Ok(None);
        };
        let read_bytes_per_second = if may_read_device { read_rate(content, stop) } else { None };
        Ok(Some(Self { chosen, other, cores, read_bytes_per_second }))
    }
}

/// Blocks that are not all zero, at even distances.
fn sample(content: &Content, block_bytes: u32, bytes_max: u64) -> io::Result<Vec<Vec<u8>>> {
    let block = u64::from(block_bytes);
    let every = content.bytes().div_ceil((bytes_max / block).max(1)).max(block);
    let mut blocks = Vec::new();
    // Where the next one is, counted over all files; not at their beginnings, which
    // are of a kind of their own.
    let (mut next, mut begin) = (every / 2, 0_u64);
    for (number, entry) in content.entries.iter().enumerate() {
        let end = begin.saturating_add(entry.bytes());
        if next < end {
            let file = match open_regular(&content.path(number)) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            while next < end {
                let within = next.saturating_sub(begin);
                next = next.saturating_add(every);
                let Some(file) = &file else { continue };
                let mut bytes = vec![0; usize::try_from(block).map_err(io::Error::other)?];
                let count = read_undisturbing(file, &mut bytes, within - within % block)?;
                bytes.truncate(count);
                if bytes.iter().any(|byte| *byte != 0) {
                    blocks.push(bytes);
                }
            }
        }
        begin = end;
    }
    Ok(blocks)
}

/// What these blocks become; `None` if there are none.
fn coding(blocks: &[Vec<u8>], settings: &Settings) -> io::Result<Option<Coding>> {
    let mut encoder = Encoder::new(settings)?;
    let mut encoded: Vec<(BlockEntry, Vec<u8>, usize)> = Vec::new();
    for block in blocks {
        let mut stored = Vec::new();
        let entry = encoder.encode(block, &mut stored)?;
        encoded.push((entry, stored, block.len()));
    }
    let sum = |of: fn(&(BlockEntry, Vec<u8>, usize)) -> usize| -> f64 {
        encoded.iter().map(|block| of(block) as f64).sum()
    };
    let (bytes, stored) = (sum(|(_, _, bytes)| *bytes), sum(|(_, stored, _)| stored.len()));
    if bytes <= 0.0 || stored <= 0.0 {
        return Ok(None);
    }
    let mut decoder = Decoder::new(Arc::from(settings.dictionary.as_slice()));
    let mut out = vec![0; usize::try_from(settings.block_bytes).map_err(io::Error::other)?];
    // Contexts are made for the first block, once.
    let mut round = |decoder: &mut Decoder| {
        encoded.iter().all(|(entry, stored, bytes)| {
            out.get_mut(..*bytes).is_some_and(|out| decoder.decode(*entry, stored, out))
        })
    };
    let mut rounds = 0_u32;
    let watch = Stopwatch::start();
    while rounds == 0 || watch.computed() < DECODE_TIME {
        if !round(&mut decoder) {
            return Err(io::Error::other("a block did not expand to what it was"));
        }
        rounds = rounds.saturating_add(1);
    }
    let seconds = watch.computed().as_secs_f64().max(f64::MIN_POSITIVE);
    Ok(Some(Coding {
        method: settings.method,
        ratio: bytes / stored,
        decode_bytes_per_second: bytes * f64::from(rounds) / seconds,
    }))
}

/// How fast the device of the largest file without holes is read past the page
/// cache. Leaves the page cache as it is.
fn read_rate(content: &Content, stop: &AtomicBool) -> Option<f64> {
    use pagewarden_core::system::MetadataExt as _;
    let mut files: Vec<_> =
        content.entries.iter().enumerate().map(|(number, entry)| (entry.bytes(), number)).collect();
    files.sort_unstable();
    let (file, bytes) = files.into_iter().rev().take(READERS).find_map(|(_, number)| {
        let file = open_past_cache(&content.path(number))?;
        let metadata = file.metadata().ok()?;
        let held = metadata.blocks().saturating_mul(STATUS_BLOCK_BYTES);
        let whole = metadata.len() - metadata.len() % READ_BYTES as u64;
        (whole >= BYTES_MIN && held >= metadata.len()).then_some((file, whole))
    })?;
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    let end = bytes.min(READ_BYTES_MAX);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut buffer = AlignedBuffer::new(READ_BYTES);
                while begin.elapsed() < READ_TIME && !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(READ_BYTES as u64, Ordering::Relaxed);
                    if at >= end || !read_one(&file, &mut buffer, at) {
                        break;
                    }
                    done.fetch_add(READ_BYTES as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let (bytes, seconds) = (done.load(Ordering::Relaxed), begin.elapsed().as_secs_f64());
    (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds)
}

fn read_one(file: &File, buffer: &mut AlignedBuffer, at: u64) -> bool {
    let read = crate::source::file::read_fully(file, buffer.bytes_mut(), at);
    matches!(read, Ok(count) if count == READ_BYTES)
}

#[cfg(target_os = "linux")]
fn open_past_cache(path: &std::path::Path) -> Option<File> {
    crate::source::file::open_direct(path).ok().map(|(file, _)| file)
}

#[cfg(not(target_os = "linux"))]
fn open_past_cache(_: &std::path::Path) -> Option<File> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    use crate::pack::Strays;

    fn forecast(ratio: f64, decode: f64, read: Option<f64>, cores: usize) -> Option<f64> {
        let method = Method::Zstd(3);
        let chosen = Coding { method, ratio, decode_bytes_per_second: decode };
        let forecast = Forecast { chosen, other: chosen, cores, read_bytes_per_second: read };
        forecast.cold_scan(&forecast.chosen)
    }

    #[test]
    fn a_scan_waits_for_the_slower_of_device_and_decoder() {
        let close = |value: Option<f64>, expected: f64| {
            assert!((value.unwrap() - expected).abs() < 1e-9, "{value:?} is not {expected}");
        };
        // A slow disk: what counts is how much less is read.
        close(forecast(2.0, 600e6, Some(250e6), 2), 0.5);
        // A fast one: one of two cores expands.
        close(forecast(1.36, 600e6, Some(1000e6), 2), 1000.0 / 600.0);
        close(forecast(4.0, 600e6, Some(900e6), 4), 0.5);
        close(forecast(4.0, 600e6, Some(900e6), 1), 1.5);
        assert_eq!(forecast(2.0, 600e6, None, 2), None);
        assert_eq!(forecast(2.0, 0.0, Some(1e9), 2), None);
    }

    /// On bytes that shrink by a known factor, and on ones that do not.
    #[test]
    fn what_is_measured_is_what_blocks_become() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut noise = 1_u64;
        let bytes: Vec<u8> = (0..20_u32 << 20)
            .map(|at| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Of each 64 KiB the second half is zero.
                if at % 65_536 < 32_768 { (noise >> 56).to_le_bytes()[0] } else { 0 }
            })
            .collect();
        fs::write(&path, &bytes).unwrap();
        let content = Content::list(&path, Strays::Refused).unwrap();
        let of = |method| {
            let settings = Settings { block_bytes: 64 << 10, method, dictionary: Vec::new() };
            let stop = AtomicBool::new(false);
            Forecast::measure(&content, &settings, 2, false, &stop).unwrap().unwrap()
        };
        let zstd = of(Method::Zstd(3));
        assert!((zstd.chosen.ratio - 2.0).abs() < 0.02, "{zstd:?}");
        assert_eq!((zstd.other.method, zstd.read_bytes_per_second), (Method::Lz4, None));
        let raw = of(Method::Raw);
        assert!((raw.chosen.ratio - 1.0).abs() < 1e-9, "{raw:?}");
        assert!(raw.chosen.decode_bytes_per_second > 50e6, "{raw:?}");
        // Too little to say anything.
        fs::write(&path, &bytes[..1 << 20]).unwrap();
        let content = Content::list(&path, Strays::Refused).unwrap();
        let settings =
            Settings { block_bytes: 64 << 10, method: Method::Raw, dictionary: Vec::new() };
        let stop = AtomicBool::new(false);
        assert_eq!(Forecast::measure(&content, &settings, 2, true, &stop).unwrap(), None);
    }
}

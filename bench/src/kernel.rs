//! How fast each PostgreSQL page hash kernel is, beside plain Rust on this build's baseline.
//!
//! Thread CPU time, so other work on the machine disturbs little. The kernels take turns within
//! each round, so a change of clock speed meets all of them. The pages lie where they would in use:
//! 32 KiB and 256 KiB stay in the caches of one core, 1 MiB may fill them, 256 MiB comes from memory.
#![allow(clippy::print_stdout)]

use std::hint::black_box;

use pagewarden::formats::postgres::checksum::{Kernel, hash_pages_with};
use rustix::time::{ClockId, clock_gettime};

const PAGE_SIZE: usize = 8192;
const PLACES: [(&str, usize); 4] =
    [("32 KiB", 32 << 10), ("256 KiB", 256 << 10), ("1 MiB", 1 << 20), ("256 MiB", 256 << 20)];
/// Bytes hashed in one timed run: long enough that reading the clock does not count.
const RUN_BYTES: usize = 256 << 20;
const ROUND_COUNT: usize = 15;

/// Measures and prints the table. Fails only if a kernel's hashes differ from the plain ones: a
/// speed would mean nothing then.
pub fn run() -> anyhow::Result<()> {
    if cfg!(target_feature = "sse4.1") {
        println!("note: built for more than baseline x86-64, so the ratio to plain is too small");
    }
    println!(
        "PostgreSQL page hash, {PAGE_SIZE} byte pages, one thread, CPU time, {ROUND_COUNT} rounds"
    );
    println!("{:<8} {:<8} {:>8} {:>16} {:>9}", "pages", "kernel", "GB/s", "min..max", "vs plain");
    let bytes = random_bytes(PLACES.iter().map(|place| place.1).max().unwrap_or_default());
    for (name, size) in PLACES {
        report(name, bytes.get(..size).unwrap_or_default())?;
    }
    Ok(())
}

fn report(place: &str, pages: &[u8]) -> anyhow::Result<()> {
    let kernels: Vec<Kernel> = Kernel::all().iter().copied().filter(|k| k.available()).collect();
    let mut hashes = vec![0; pages.len() / PAGE_SIZE];
    hash_pages_with(Kernel::Plain, pages, PAGE_SIZE, &mut hashes);
    let reference = hashes.clone();

    let mut speeds = vec![Vec::with_capacity(ROUND_COUNT); kernels.len()];
    for _ in 0..ROUND_COUNT {
        for (kernel, speeds) in kernels.iter().zip(&mut speeds) {
            hashes.fill(0);
            speeds.push(gigabytes_per_second(*kernel, pages, &mut hashes));
            anyhow::ensure!(hashes == reference, "{} differs from plain", kernel.name());
        }
    }

    let mut plain = None;
    for (kernel, mut speeds) in kernels.iter().zip(speeds) {
        speeds.sort_by(f64::total_cmp);
        let (Some(min), Some(median), Some(max)) =
            (speeds.first(), speeds.get(speeds.len() / 2), speeds.last())
        else {
            continue;
        };
        let spread = format!("{min:.1}..{max:.1}");
        let ratio = median / *plain.get_or_insert(*median);
        println!("{place:<8} {:<8} {median:>8.1} {spread:>16} {ratio:>8.2}x", kernel.name());
    }
    Ok(())
}

fn gigabytes_per_second(kernel: Kernel, pages: &[u8], hashes: &mut [u32]) -> f64 {
    let repeat_count = RUN_BYTES.div_ceil(pages.len().max(1));
    let begin = thread_seconds();
    for _ in 0..repeat_count {
        hash_pages_with(black_box(kernel), black_box(pages), PAGE_SIZE, black_box(hashes));
    }
    let seconds = thread_seconds() - begin;
    let bytes = pages.len() as f64 * repeat_count as f64;
    bytes / seconds / 1e9
}

/// CPU time of this thread so far.
pub fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes without a pattern, the same on each run (xorshift64).
pub fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(count);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

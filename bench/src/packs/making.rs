//! How fast packs are made and unpacked, beside the programs that do the same without looking; and
//! beside what of it is not ours to change: blocks compressed and nothing else, files copied and
//! on the device.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context as _;

use crate::cache::FileSet;
use crate::process::measure;
use crate::samples::{Ratio, spread};

/// zstd's level in packs that are made without options, and its threads.
const ZSTD: [&str; 4] = ["-3", "-T2", "-q", "-f"];
const LEVEL: i32 = 3;
const THREADS: usize = 2;
/// A block of such a pack, and what is read at once.
const BLOCK_BYTES: usize = 64 << 10;
const RUN_BYTES: usize = 1 << 20;
/// The goals that this project set itself.
const PACK_GOAL: f64 = 1.6;
const UNPACK_GOAL: f64 = 0.8;
const NULL_GOAL: f64 = 0.95;

/// The places of `pack --to null:` and, behind it, `check` among what is run.
const NULL: usize = 4;

/// All files of a database.
#[derive(Debug)]
pub struct Made {
    /// Where they lie,
    pub folder: PathBuf,
    /// below these names.
    pub names: Vec<OsString>,
    /// The argument of `pack` and `check`: what they look at.
    pub source: PathBuf,
    /// The arguments that `unpack` needs besides.
    pub unpack: Vec<OsString>,
}

/// Measures, and prints speeds as ratios: more than one is faster. What is made goes into `folder`.
#[allow(clippy::print_stdout)]
pub fn run(pagewarden: &Path, made: &Made, folder: &Path, rounds: usize) -> anyhow::Result<()> {
    let place = |name: &str| folder.join(name);
    let (archive, compressed, pack) = (place("files.tar"), place("files.zst"), place("pack.pwk"));
    let mut tar = Command::new("tar");
    measure(tar.arg("-cf").arg(&archive).arg("-C").arg(&made.folder).args(&made.names), false)?;
    let mut files = FileSet { files: Vec::new() };
    for name in &made.names {
        add_below(&made.folder.join(name), &mut files)?;
    }
    let ours = || Command::new(pagewarden);
    let source = made.source.as_path();
    let mut times: [Vec<f64>; 6] = Default::default();
    let mut rates: [Vec<f64>; 2] = Default::default();
    let (mut compressed_alone, mut copied_alone) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut zstd = Command::new("zstd");
        zstd.args(ZSTD).arg(&archive).arg("-o").arg(&compressed);
        let mut packing = ours();
        packing.args(["pack", "--quiet"]).arg(source).arg("-o").arg(&pack);
        let mut decoding = ours();
        decoding.args(["check", "--quiet"]).arg(&pack);
        let mut unpacking = ours();
        unpacking.args(["unpack", "--quiet"]).args(&made.unpack).arg(&pack).arg(place("unpacked"));
        let mut null = ours();
        // Not quiet: the device is looked at only where the output reports it.
        null.args(["pack", "--json", "--to", "null:"]).arg(source);
        let mut checking = ours();
        checking.args(["check", "--json"]).arg(source);
        let commands = [zstd, packing, decoding, unpacking, null, checking];
        for (number, mut command) in commands.into_iter().enumerate() {
            // What one has written is not for the next to wait for, and the system may have taken
            // something out of the page cache.
            rustix::fs::sync();
            files.warm_up()?;
            let measured = measure(&mut command, number >= NULL)?;
            if let Some(times) = times.get_mut(number) {
                times.push(measured.wall.as_secs_f64());
            }
            if let Some(rates) = number.checked_sub(NULL).and_then(|index| rates.get_mut(index)) {
                rates.push(rate(&measured.output)?);
            }
        }
        compressed_alone.push(compress(&archive)?);
        copied_alone.push(copy(made, &place("copied"))?);
        fs::remove_file(&pack)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            }
        }
    }
    let [zstd, packing, decoding, unpacking, null, checking] = &times;
    println!("\nin the page cache; speeds to each other, paired");
    line("pack", packing, "zstd -3 -T2 of a tar", zstd, PACK_GOAL);
    line("", packing, "its blocks compressed alone", &compressed_alone, 0.0);
    line("unpack", unpacking, "check of the pack", decoding, UNPACK_GOAL);
    line("", unpacking, "files copied and synced alone", &copied_alone, 0.0);
    line("pack --to null:", null, "check", checking, NULL_GOAL);
    let [null, checking] = &rates;
    if let Some(ratio) = Ratio::new(null, checking) {
        let (ours, theirs) = (spread(null), spread(checking));
        println!("{:<16} MiB/s as they say themselves {ours}, {theirs}: {:.2}", "", ratio.paired);
    }
    Ok(())
}

/// Adds all files at a path and below it.
fn add_below(path: &Path, files: &mut FileSet) -> anyhow::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            add_below(&entry?.path(), files)?;
        }
    } else if metadata.is_file() && metadata.len() > 0 {
        files.files.push((path.to_owned(), metadata.len()));
    }
    Ok(())
}

/// MiB/s, as a program says itself.
fn rate(json: &[u8]) -> anyhow::Result<f64> {
    let object: serde_json::Value = serde_json::from_slice(json)?;
    object.get("mib_per_second").and_then(serde_json::Value::as_f64).context("no rate was told")
}

/// Seconds for compressing the blocks of a file, and throwing them away.
fn compress(archive: &Path) -> anyhow::Result<f64> {
    let file = File::open(archive)?;
    let next = AtomicU64::new(0);
    let work = || -> anyhow::Result<()> {
        let mut zstd = zstd::bulk::Compressor::new(LEVEL)?;
        let mut run = vec![0; RUN_BYTES];
        let mut out = Vec::with_capacity(zstd::zstd_safe::compress_bound(BLOCK_BYTES));
        loop {
            let count =
                file.read_at(&mut run, next.fetch_add(RUN_BYTES as u64, Ordering::Relaxed))?;
            if count == 0 {
                return Ok(());
            }
            for block in run.get(..count).unwrap_or_default().chunks(BLOCK_BYTES) {
                out.clear();
                zstd.compress_to_buffer(block, &mut out)?;
            }
        }
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds for copying the files into a folder, until the device holds them.
fn copy(made: &Made, folder: &Path) -> anyhow::Result<f64> {
    fs::create_dir(folder)?;
    rustix::fs::sync();
    let mut copying = Command::new("cp");
    copying.arg("-r").args(made.names.iter().map(|name| made.folder.join(name))).arg(folder);
    let copied = measure(&mut copying, false)?.wall;
    let synced = measure(Command::new("sync").arg("-f").arg(folder), false)?.wall;
    Ok((copied + synced).as_secs_f64())
}

#[allow(clippy::print_stdout)]
fn line(name: &str, ours: &[f64], other: &str, theirs: &[f64], goal: f64) {
    let Some(ratio) = Ratio::new(theirs, ours) else { return };
    println!("{name:<16} {} s, {other} {} s", spread(ours), spread(theirs));
    print!("{:<16} speed {:.2}", "", ratio.paired);
    // What is measured beside a floor has no goal.
    if goal > 0.0 {
        let word = if ratio.paired >= goal { "met" } else { "NOT met" };
        print!("; goal at least {goal:.2}: {word}");
    }
    println!();
}

//! How fast packs are made and unpacked, beside the programs that do the same without looking.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::measure;
use crate::samples::{Ratio, spread};

/// zstd's level in packs that are made without options, and its threads.
const ZSTD: [&str; 4] = ["-3", "-T2", "-q", "-f"];
/// The goals that this project set itself.
const PACK_GOAL: f64 = 1.6;
const UNPACK_GOAL: f64 = 0.8;
const NULL_GOAL: f64 = 0.95;

/// All files of a database.
#[derive(Debug)]
pub struct Made {
    /// Where they lie,
    pub folder: PathBuf,
    /// below these names.
    pub names: Vec<OsString>,
    /// What `pack` and `check` are told to look at.
    pub source: PathBuf,
    /// What `unpack` must be told besides.
    pub unpack: Vec<OsString>,
}

/// Measures, and prints speeds as ratios: more than one is faster. What is made goes into `folder`.
#[allow(clippy::print_stdout)]
pub fn run(pagewarden: &Path, made: &Made, folder: &Path, rounds: usize) -> anyhow::Result<()> {
    let place = |name: &str| folder.join(name);
    let (archive, compressed, pack) = (place("files.tar"), place("files.zst"), place("pack.pwk"));
    let mut tar = Command::new("tar");
    measure(tar.arg("-cf").arg(&archive).arg("-C").arg(&made.folder).args(&made.names), false)?;
    let ours = || Command::new(pagewarden);
    let source = made.source.as_path();
    let mut times: [Vec<f64>; 6] = Default::default();
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
        null.args(["pack", "--quiet", "--to", "null:"]).arg(source);
        let mut checking = ours();
        checking.args(["check", "--quiet"]).arg(source);
        let commands = [zstd, packing, decoding, unpacking, null, checking];
        for (mut command, times) in commands.into_iter().zip(&mut times) {
            // What one has written is not for the next to wait for.
            rustix::fs::sync();
            times.push(measure(&mut command, false)?.wall.as_secs_f64());
        }
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
    line("unpack", unpacking, "check of the pack", decoding, UNPACK_GOAL);
    line("pack --to null:", null, "check", checking, NULL_GOAL);
    Ok(())
}

#[allow(clippy::print_stdout)]
fn line(name: &str, ours: &[f64], other: &str, theirs: &[f64], goal: f64) {
    let Some(ratio) = Ratio::new(theirs, ours) else { return };
    let word = if ratio.paired >= goal { "met" } else { "NOT met" };
    println!("{name:<16} {} s, {other} {} s", spread(ours), spread(theirs));
    println!("{:<16} speed {:.2}; goal at least {goal:.2}: {word}", "", ratio.paired);
}

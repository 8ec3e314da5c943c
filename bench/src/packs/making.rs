//! How fast packs are made and unpacked, beside the programs that do the same without looking.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::process::measure;
use crate::samples::{Ratio, spread};

/// zstd's level in packs that are made without options, and its threads.
const ZSTD: [&str; 4] = ["-3", "-T2", "-q", "-f"];
/// The goals that this project set itself.
const PACK_GOAL: f64 = 1.6;
const UNPACK_GOAL: f64 = 0.8;
const NULL_GOAL: f64 = 0.95;

/// Measures, and prints speeds as ratios: more than one is faster.
#[allow(clippy::print_stdout)]
pub fn run(pagewarden: &Path, database: &Path, rounds: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(database.parent().context("a file lies in a folder")?)?;
    let place = |name: &str| folder.path().join(name);
    let (archive, compressed, pack) = (place("files.tar"), place("files.zst"), place("pack.pwk"));
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(&archive).arg("-C").arg(database.parent().unwrap_or(database));
    measure(tar.arg(database.file_name().unwrap_or_default()), false)?;
    let ours = || Command::new(pagewarden);
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        let mut zstd = Command::new("zstd");
        zstd.args(ZSTD).arg(&archive).arg("-o").arg(&compressed);
        let mut packing = ours();
        packing.args(["pack", "--quiet"]).arg(database).arg("-o").arg(&pack);
        let mut decoding = ours();
        decoding.args(["check", "--quiet"]).arg(&pack);
        let mut unpacking = ours();
        unpacking.args(["unpack", "--quiet"]).arg(&pack).arg(place("unpacked"));
        let mut null = ours();
        null.args(["pack", "--quiet", "--to", "null:"]).arg(database);
        let mut checking = ours();
        checking.args(["check", "--quiet"]).arg(database);
        let commands = [zstd, packing, decoding, unpacking, null, checking];
        for (mut command, times) in commands.into_iter().zip(&mut times) {
            // What one has written is not for the next to wait for.
            rustix::fs::sync();
            times.push(measure(&mut command, false)?.wall.as_secs_f64());
        }
        fs::remove_file(&pack)?;
        fs::remove_dir_all(place("unpacked"))?;
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

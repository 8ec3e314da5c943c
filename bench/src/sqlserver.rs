//! `pagewarden check` on a SQL Server data file in the page cache, beside `cat`.
//!
//! The file is made here: every page carries a checksum, as in a database of
//! today, and every page is allocated. It is measured in two states of the page
//! cache, see `pieces.rs`. Contenders run once in each round, in an order that turns.
#![allow(clippy::print_stdout)]

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, stamp_checksum};

use crate::cache::FileSet;
use crate::check::at_most;
use crate::pieces::{Pieces, states};
use crate::process::measure;
use crate::samples::{Ratio, median, spread};
use crate::subject::{load, pagewarden};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Mebibytes of the file
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// How often each contender runs
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Where to make the file; it is removed afterwards
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// The goal that this project set itself.
const CPU_TO_CAT: f64 = 1.25;
const PFS_PAGES: u64 = 8088;
const PAGES_PER_MEBIBYTE: u64 = (1 << 20) / PAGE_BYTES as u64;

/// Runs the benchmark and prints its table.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let folder = match &arguments.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let path = folder.path().join("bench.mdf");
    let pages = arguments.mebibytes.saturating_mul(PAGES_PER_MEBIBYTE);
    make(&path, pages).with_context(|| format!("cannot make {}", path.display()))?;
    for pieces in states(PAGE_BYTES) {
        let copy = folder.path().join("copy.mdf");
        pieces.copy(&path, &copy)?;
        measure_file(arguments.rounds, &pagewarden, &copy, pieces)?;
        std::fs::remove_file(&copy)?;
    }
    println!("\nload {}", load());
    Ok(())
}

fn measure_file(
    rounds: usize,
    pagewarden: &Path,
    path: &Path,
    pieces: Pieces,
) -> anyhow::Result<()> {
    let files = FileSet { files: vec![(path.to_owned(), std::fs::metadata(path)?.len())] };
    println!(
        "\n{} bytes of SQL Server in the page cache as left by {}, {} bytes at a time; {rounds} \
         rounds, load {}",
        files.bytes(),
        pieces.left_by,
        pieces.bytes,
        load()
    );
    let check = |jobs: &str| {
        let mut command = Command::new(pagewarden);
        command.args(["check", "--quiet", jobs]).arg(path);
        command
    };
    let mut cat = Command::new("cat");
    cat.arg(path);
    let mut contenders = [("cat", cat), ("check -j1", check("-j1")), ("check -j2", check("-j2"))];
    let mut cpu = vec![Vec::new(); contenders.len()];
    let mut wall = vec![Vec::new(); contenders.len()];
    let count = contenders.len();
    for round in 0..rounds {
        for index in 0..count {
            let turn = (index + round) % count;
            files.warm_up()?;
            let Some((name, command)) = contenders.get_mut(turn) else { continue };
            let measured = measure(command, false).with_context(|| (*name).to_owned())?;
            cpu.get_mut(turn).into_iter().for_each(|all| all.push(measured.cpu.as_secs_f64()));
            wall.get_mut(turn).into_iter().for_each(|all| all.push(measured.wall.as_secs_f64()));
        }
    }
    println!("{:<12} {:>22} {:>22} {:>7}", "", "CPU seconds", "wall seconds", "MB/s");
    for ((name, _), (cpu, wall)) in contenders.iter().zip(cpu.iter().zip(&wall)) {
        let speed = files.bytes() as f64 / median(wall.clone()).unwrap_or(f64::NAN) / 1e6;
        println!("{name:<12} {:>22} {:>22} {speed:>7.0}", spread(cpu), spread(wall));
    }
    let [cat, one, _] = cpu.as_slice() else { return Ok(()) };
    at_most("CPU of check -j1 to cat", Ratio::new(one, cat), CPU_TO_CAT);
    Ok(())
}

/// Writes a data file in which every page is allocated and has its checksum.
fn make(path: &Path, pages: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut state = 1_u64;
    for number in 0..pages {
        let mut page = [0_u8; PAGE_BYTES];
        let is_pfs = number == 1 || (number > 0 && number.is_multiple_of(PFS_PAGES));
        let kind = match number {
            0 => 15,
            2 => 8,
            3 => 9,
            6 => 16,
            7 => 17,
            9 => 13,
            _ if is_pfs => 11,
            _ => 1,
        };
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = page.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
                place.copy_from_slice(bytes);
            }
        };
        put(0, &[1, kind, 0, 0, 0, 2]);
        put(32, &u32::try_from(number)?.to_le_bytes());
        put(36, &[1]);
        if is_pfs {
            put(98, &8092_u16.to_le_bytes());
            put(100, &[0x40; 8088]);
        } else if kind == 1 {
            for at in (96..PAGE_BYTES).step_by(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
                put(at, &state.to_le_bytes());
            }
        }
        stamp_checksum(&mut page);
        file.write_all(&page)?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

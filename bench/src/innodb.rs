//! `pagewarden check` on one large tablespace in the page cache, beside `cat` and MariaDB's
//! `innochecksum`: processor time, in pairs, for each kind of sum.
//!
//! A temporary MariaDB writes the tablespaces of `crc32` and `full_crc32`. That with the sum
//! `innodb`, which this server no longer writes, is a copy of the first with other sums; its
//! `innochecksum` cannot check it. Each is measured in two states of the page cache, see `pieces.rs`.
#![allow(clippy::print_stdout)]

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use pagewarden::formats::innodb::checksum::fold::{new_fold, old_fold};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::cache::FileSet;
use crate::check::{Contender, at_most, memory};
use crate::pieces::{Pieces, states};
use crate::process::measure;
use crate::samples::{Ratio, spread};
use crate::subject::{load, pagewarden};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Mebibytes in each tablespace
    #[arg(long, default_value_t = 1100)]
    mebibytes: u64,
    /// How often each contender runs
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Where the tablespaces are kept; made if they are not there
    #[arg(long)]
    dir: PathBuf,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// The goals that this project set itself.
const CPU_TO_CAT: f64 = 1.25;
const CPU_TO_CAT_LEGACY: f64 = 2.5;
const CPU_TO_INNOCHECKSUM: f64 = 1.0;

const PAGE_BYTES: usize = 16_384;
/// Two rows fill a page.
const ROW_BYTES: u64 = 7_900;
const ROWS_PER_MEBIBYTE: u64 = 128;
const ROWS_AT_ONCE: u64 = 10_000;

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    fs::create_dir_all(&arguments.dir)?;
    let crc32 = tablespace(arguments, "crc32")?;
    let full_crc32 = tablespace(arguments, "full_crc32")?;
    let legacy = arguments.dir.join("innodb.ibd");
    if !legacy.exists() {
        stamp_legacy(&crc32, &legacy)?;
    }
    rustix::fs::sync();
    println!("{} rounds, one thread each, load {}", arguments.rounds, load());
    let copies = tempfile::tempdir_in(&arguments.dir)?;
    for (file, sum) in [(&full_crc32, "full_crc32"), (&crc32, "crc32"), (&legacy, "innodb")] {
        for pieces in states(PAGE_BYTES) {
            let copy = copies.path().join(format!("{sum}.ibd"));
            pieces.copy(file, &copy)?;
            measure_file(arguments, &pagewarden, &copy, sum, pieces)?;
            fs::remove_file(&copy)?;
        }
    }
    println!("\nload {}", load());
    Ok(())
}

fn measure_file(
    arguments: &Arguments,
    pagewarden: &Path,
    file: &Path,
    sum: &str,
    pieces: Pieces,
) -> anyhow::Result<()> {
    let files = FileSet { files: vec![(file.to_owned(), fs::metadata(file)?.len())] };
    println!(
        "\n{sum}: {} bytes in the page cache as left by {}, {} bytes at a time; load {}",
        files.bytes(),
        pieces.left_by,
        pieces.bytes,
        load()
    );
    let mut check = Command::new(pagewarden);
    check.args(["check", "--quiet", "-j1"]).arg(file);
    let mut cat = Command::new("cat");
    cat.arg(file);
    let mut contenders = vec![Contender::new("cat", cat), Contender::new("check -j1", check)];
    let mut innochecksum = Command::new("innochecksum");
    innochecksum.arg(file);
    if sum != "innodb" && measure(&mut innochecksum, false).is_ok() {
        contenders.push(Contender::new("innochecksum", innochecksum));
    }
    let count = contenders.len();
    for round in 0..arguments.rounds {
        for index in 0..count {
            files.warm_up()?;
            if let Some(contender) = contenders.get_mut((index + round) % count) {
                contender.run().with_context(|| contender.name.clone())?;
            }
        }
    }
    for contender in &contenders {
        println!(
            "{:<14} CPU {:>22} s   wall {:>22} s",
            contender.name,
            spread(&contender.cpu),
            spread(&contender.wall)
        );
    }
    let [cat, check, peers @ ..] = contenders.as_slice() else { return Ok(()) };
    let goal = if sum == "innodb" { CPU_TO_CAT_LEGACY } else { CPU_TO_CAT };
    at_most("CPU of check -j1 to cat", Ratio::new(&check.cpu, &cat.cpu), goal);
    for peer in peers {
        let ratio = Ratio::new(&check.cpu, &peer.cpu);
        at_most("CPU of check -j1 to innochecksum", ratio, CPU_TO_INNOCHECKSUM);
        println!(
            "innochecksum to cat {:.3}",
            Ratio::new(&peer.cpu, &cat.cpu).map_or(f64::NAN, |it| it.paired)
        );
    }
    memory(&[check]);
    Ok(())
}

/// A tablespace that MariaDB wrote under this `innodb_checksum_algorithm`.
fn tablespace(arguments: &Arguments, algorithm: &str) -> anyhow::Result<PathBuf> {
    let file = arguments.dir.join(format!("{algorithm}.ibd"));
    if file.exists() {
        return Ok(file);
    }
    println!("making {} of {} MiB", file.display(), arguments.mebibytes);
    let installation =
        Installation::find().context("no MariaDB\nhint: apt-get install mariadb-server")?;
    let setting = format!("innodb_checksum_algorithm={algorithm}");
    let options = [
        setting.as_str(),
        "innodb_buffer_pool_size=256M",
        "innodb_flush_log_at_trx_commit=0",
        "innodb_doublewrite=OFF",
    ];
    let mut server = Server::install(&installation, &options)?;
    server.start()?;
    server.sql("CREATE DATABASE bench")?;
    server.sql("CREATE TABLE bench.t (id BIGINT PRIMARY KEY, v VARBINARY(8000)) ENGINE=InnoDB")?;
    let rows = arguments.mebibytes * ROWS_PER_MEBIBYTE;
    for first in (1..=rows).step_by(usize::try_from(ROWS_AT_ONCE)?) {
        let last = (first + ROWS_AT_ONCE - 1).min(rows);
        server.sql(&format!(
            "USE bench; INSERT INTO t SELECT seq, CONCAT(RANDOM_BYTES(1000), REPEAT(MD5(seq), {}))
             FROM seq_{first}_to_{last}",
            (ROW_BYTES - 1000) / 32
        ))?;
    }
    server.stop()?;
    fs::copy(server.data_dir().join("bench/t.ibd"), &file)?;
    Ok(file)
}

/// A copy with the sums of before `crc32`.
fn stamp_legacy(source: &Path, target: &Path) -> anyhow::Result<()> {
    println!("making {}", target.display());
    let mut reader = BufReader::new(File::open(source)?);
    let mut writer = BufWriter::new(File::create(target)?);
    let mut page = vec![0_u8; PAGE_BYTES];
    while reader.read_exact(&mut page).is_ok() {
        if page.iter().any(|byte| *byte != 0) {
            let sum = new_fold(&page);
            put(&mut page, 0, sum);
            let sum = old_fold(&page);
            put(&mut page, PAGE_BYTES - 8, sum);
        }
        writer.write_all(&page)?;
    }
    writer.flush()?;
    Ok(())
}

fn put(page: &mut [u8], offset: usize, sum: u32) {
    if let Some(field) = page.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
        *field = sum.to_be_bytes();
    }
}

//! How fast the sums of InnoDB's and SQL Server's pages and those in the markers of our SQLite VFS
//! are: each kernel beside what it is to beat, in turns within each round, in CPU time of one
//! thread.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::num::NonZeroU32;

use anyhow::ensure;
use crc_fast::CrcAlgorithm;
use pagewarden::crc::crc32c;
use pagewarden::formats::innodb::checksum::fold::{new_fold, new_folds};
use pagewarden::formats::sqlite::checksum::page_verify::{Marker, Mode, Room, digest};
use pagewarden::formats::sqlserver::checksum;
use pagewarden::source::buffer::ALIGNMENT;
use pagewarden::verdict::PageNo;

use crate::kernel::{random_bytes, thread_seconds};

const PAGE_BYTES: usize = 16_384;
/// A page of SQLite, as most databases have it.
const MARKED_PAGE_BYTES: usize = 4096;
const PLACES: [(&str, usize); 4] =
    [("32 KiB", 32 << 10), ("256 KiB", 256 << 10), ("1 MiB", 1 << 20), ("256 MiB", 256 << 20)];
/// Bytes summed in one timed run.
const RUN_BYTES: usize = 64 << 20;
const ROUND_COUNT: usize = 15;

/// The sums of all pages.
type Sums = fn(&[u8]) -> Vec<u32>;

/// Ways to the same sums.
type Ways = Vec<(String, Sums)>;

/// Measures and prints the tables. Fails only if two ways come to different sums.
pub fn run() -> anyhow::Result<()> {
    let longest = PLACES.iter().map(|place| place.1).max().unwrap_or_default();
    let bytes = random_bytes(longest + ALIGNMENT);
    // Pages lie so that no line of the cache has bytes of two, as in buffers that were read into.
    let begin = bytes.as_ptr().align_offset(ALIGNMENT);
    let bytes = bytes.get(begin..).unwrap_or_default();
    let crc: Ways = vec![
        ("crc-fast".to_owned(), |pages| of_each(pages, crc_fast::crc32_iscsi)),
        ("ours".to_owned(), |pages| of_each(pages, crc32c)),
    ];
    table("CRC-32C, pages of 16384 bytes", &crc, bytes)?;
    let fold: Ways = vec![
        ("one page".to_owned(), |pages| of_each(pages, new_fold)),
        ("side by side".to_owned(), |pages| {
            let mut sums = Vec::new();
            new_folds(pages, PAGE_BYTES, &mut sums);
            sums
        }),
    ];
    table("sum innodb, pages of 16384 bytes", &fold, bytes)?;
    let sectors: Ways = vec![
        ("portable".to_owned(), |pages| of_sql_server(pages, checksum::Kernel::Portable)),
        ("fastest".to_owned(), |pages| of_sql_server(pages, checksum::Kernel::best())),
    ];
    table("SQL Server, pages of 8192 bytes", &sectors, bytes)?;
    let markers: Ways = vec![
        ("crc-fast".to_owned(), |pages| with_marker(pages, Mode::Checksum, of_all)),
        ("ours".to_owned(), |pages| digests(pages, Mode::Checksum)),
    ];
    table("marker of the SQLite VFS, CHECKSUM, pages of 4096 bytes", &markers, bytes)?;
    let markers: Ways = vec![
        ("part by part".to_owned(), |pages| with_marker(pages, Mode::Torn, of_parts)),
        ("ours".to_owned(), |pages| digests(pages, Mode::Torn)),
    ];
    table("marker of the SQLite VFS, TORN_PAGE_DETECTION, pages of 4096 bytes", &markers, bytes)
}

/// The low halves of the digests of all pages, as if each were page 1.
fn digests(pages: &[u8], mode: Mode) -> Vec<u32> {
    let marker = Marker { mode, setting: None, database: NonZeroU32::MIN, room: Room::Marker };
    let pages = pages.chunks_exact(MARKED_PAGE_BYTES);
    pages.map(|page| low_half(digest(page, marker, PageNo(1)))).collect()
}

/// The same, by another function for the sum.
fn with_marker(pages: &[u8], mode: Mode, sum: fn(&[u8]) -> u64) -> Vec<u32> {
    // What page and database number put into a digest is the same for all.
    let nothing = [0; MARKED_PAGE_BYTES];
    let mixed = digests(&nothing, mode).first().copied().unwrap_or(0) ^ low_half(sum(&nothing));
    pages.chunks_exact(MARKED_PAGE_BYTES).map(|page| low_half(sum(page)) ^ mixed).collect()
}

fn of_all(page: &[u8]) -> u64 {
    crc_fast::checksum(
        CrcAlgorithm::Crc64Nvme,
        page.split_last_chunk::<8>().map_or(page, |it| it.0),
    )
}

fn of_parts(page: &[u8]) -> u64 {
    let content = page.split_last_chunk::<8>().map_or(page, |it| it.0);
    content.chunks(MARKED_PAGE_BYTES / 8).zip(0_u32..).fold(0, |sum, (part, index)| {
        sum | crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, part) >> 24 << (8 * index)
    })
}

fn low_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn of_each(pages: &[u8], sum: fn(&[u8]) -> u32) -> Vec<u32> {
    pages.chunks_exact(PAGE_BYTES).map(sum).collect()
}

fn of_sql_server(pages: &[u8], kernel: checksum::Kernel) -> Vec<u32> {
    let pages = pages.as_chunks::<{ checksum::PAGE_BYTES }>().0;
    pages.iter().map(|page| checksum::checksum_with(kernel, page)).collect()
}

fn table(name: &str, ways: &Ways, bytes: &[u8]) -> anyhow::Result<()> {
    println!("\n{name}, one thread, GB/s of CPU time, median and least..most of {ROUND_COUNT}");
    for (place, length) in PLACES {
        let pages = bytes.get(..length).unwrap_or_default();
        let mut speeds = vec![Vec::new(); ways.len()];
        for _ in 0..ROUND_COUNT {
            let mut expected = None;
            for ((name, sums), speeds) in ways.iter().zip(&mut speeds) {
                let repeats = (RUN_BYTES / pages.len().max(1)).max(1);
                let begin = thread_seconds();
                for _ in 1..repeats {
                    black_box(sums(black_box(pages)));
                }
                let sums = sums(black_box(pages));
                let seconds = thread_seconds() - begin;
                speeds.push(pages.len() as f64 * repeats as f64 / seconds / 1e9);
                ensure!(*expected.get_or_insert_with(|| sums.clone()) == sums, "{name} differs");
            }
        }
        for ((name, _), mut speeds) in ways.iter().zip(speeds) {
            speeds.sort_by(f64::total_cmp);
            let at = |index: usize| speeds.get(index).copied().unwrap_or(f64::NAN);
            let (least, median, most) = (at(0), at(ROUND_COUNT / 2), at(ROUND_COUNT - 1));
            println!(
                "{place:<8} {name:<13} {median:>7.1} {:>16}",
                format!("{least:.1}..{most:.1}")
            );
        }
    }
    Ok(())
}

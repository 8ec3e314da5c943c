//! Our engine and fio, paired on the same file.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagewarden_lab::iotest::drive::{Method, Trial, drive};
use pagewarden_lab::iotest::fio;
use pagewarden_lab::iotest::patterns::{PATTERNS, Pattern};
use pagewarden_lab::iotest::payload::payload;
use pagewarden_lab::iotest::workplace::{Wanted, Workplace};
use pagewarden_lab::stats::summary::median;

/// Pairs of each pattern, and how long each of a pair runs. A device may be served at
/// one speed for some seconds and then at another (1.4 times as fast where this was
/// written): the two of a pair lie closer together than that, and there are many.
const PAIRS: u64 = 31;
const TIME: Duration = Duration::from_millis(700);

fn trial(pattern: &Pattern, seed: u64, file_bytes: u64) -> Trial<'_> {
    Trial {
        pattern,
        depth: pattern.depth,
        page: 8192,
        time: TIME,
        // Long enough that beginning and end do not count, and no more written than that.
        written_bytes_max: if pattern.only_reads() { u64::MAX } else { 2 * file_bytes },
        seed,
        rate: None,
    }
}

/// Each pattern by us and by fio in turn, A B B A: the median of the ratios lies
/// between 0.9 and 1.1. It takes a quiet machine (where others wait for the
/// processor, single ratios go from 0.5 to 3), and about six minutes:
/// `cargo test --release --package pagewarden-lab --test main -- --ignored --nocapture fio`.
/// `PAGEWARDEN_IOTEST_DIR` names the folder, by default /tmp.
#[test]
#[ignore = "needs a quiet machine and six minutes"]
fn fio_measures_what_we_measure() {
    assert!(fio::version().is_some(), "fio is not installed");
    let folder = std::env::var_os("PAGEWARDEN_IOTEST_DIR").unwrap_or_else(|| "/tmp".into());
    let payload = payload(0, 1);
    let wanted = Wanted::new(Path::new(&folder), 1 << 30, &payload);
    let stop = AtomicBool::new(false);
    let place = Workplace::make(&wanted, &stop, &|_| ()).unwrap();
    let method = Method::best();
    let mut unlike = Vec::new();
    for pattern in PATTERNS {
        let mut ratios: Vec<f64> = (0..PAIRS)
            .map(|pair| {
                let trial = trial(pattern, pair, place.file_bytes);
                let ours = || drive(&trial, &place, &payload, method, &stop).unwrap();
                let theirs = || fio::run(&trial, &place, method, &stop).unwrap();
                let (ours, theirs) = if pair % 2 == 0 {
                    let ours = ours();
                    (ours, theirs())
                } else {
                    let theirs = theirs();
                    (ours(), theirs)
                };
                ours.mib_per_second / theirs.mib_per_second
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let middle = median(&ratios).unwrap();
        println!(
            "{:<12} ours / fio: median {middle:.3}, from {:.3} to {:.3}, {PAIRS} pairs",
            pattern.name,
            ratios[0],
            ratios[ratios.len() - 1]
        );
        if !(0.9..=1.1).contains(&middle) {
            unlike.push((pattern.name, middle));
        }
    }
    assert!(unlike.is_empty(), "{unlike:?}");
}

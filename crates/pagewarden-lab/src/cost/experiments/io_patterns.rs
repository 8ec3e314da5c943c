//! E4b: the patterns in which databases read and write, on one disk. Patterns and engine are
//! those of `iotest`; here they run in blocks, so that what one disk gives to different
//! patterns is not mixed up with what it gives at different moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use pagewarden::words::bytes;
use pagewarden_scratch::home::Home;

use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::samples::{Sample, median};
use crate::iotest::device::Device;
use crate::iotest::diagnosis::{doubts, sentences};
use crate::iotest::drive::{Method, Trial, drive};
use crate::iotest::measured::{LatencySummary, Measured};
use crate::iotest::patterns::{PATTERNS, Pattern};
use crate::iotest::payload::payload;
use crate::iotest::session::{PatternResult, Session};
use crate::iotest::workplace::{Wanted, Workplace};

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct IoPatterns;

const AS_ENGINES_DO: &str = "as many in flight as engines have";
const ONE: &str = "one in flight for each stream";
/// The place of `read-ahead` among the patterns: what every disk is made to do well, so that
/// the others are compared with it.
const READ_AHEAD: usize = 3;
/// Bytes of the page of PostgreSQL and of SQL Server.
const PAGE_BYTES: usize = 8192;

const MIB_PER_SECOND: &str = "mib_per_second";
const IOPS: &str = "iops";
const P50: &str = "p50_us";
const P99: &str = "p99_us";
const MEAN: &str = "mean_us";
const CPU: &str = "cpu_us_per_transfer";

static DESCRIPTION: Description = Description {
    name: "e4b",
    title: "the patterns of database I/O",
    question: "How much of what a disk gives to read-ahead does it give to a log, to single pages, to loads, backups, restores and verification, and how much of that is owed to requests in flight?",
    seed: "BACKUP to NUL: a table of patterns, with blocks of 512 bytes to 1 MiB",
    by_hand: "\
1. pagewarden iotest DIR names the patterns and runs each once; docs/iotest.md has their blocks and depths.
2. A file of 1 GiB on the disk in question, filled with what cannot be compressed, past the page cache (O_DIRECT).
3. By turns, many times: each pattern for two seconds (pagewarden iotest --no-sweep --pattern NAME --time 2s DIR, or fio
   with what pagewarden iotest --engine fio starts), once with as many requests in flight as engines have, once with
   one for each stream.
4. Compare the ratios of neighbouring runs with read-ahead.",
    arms: &ARMS,
    metrics: &[
        metric(MIB_PER_SECOND, "MiB/s", Better::Higher),
        metric(IOPS, "1/s", Better::Higher),
        metric(P50, "us", Better::Lower),
        metric(P99, "us", Better::Lower),
        metric(CPU, "us", Better::Lower),
    ],
    is_price: false,
    decides: None,
    seed_figures: &[],
    blocks: (8, 12),
};

const fn metric(name: &'static str, unit: &'static str, better: Better) -> Metric {
    Metric { name, unit, kind: Kind::Timed, better }
}

/// Every pattern, from read-ahead on.
#[allow(clippy::indexing_slicing, reason = "the compiler runs it, and would say so")]
const ARMS: [Arm; PATTERNS.len()] = {
    let mut arms = [Arm { name: "", what: "" }; PATTERNS.len()];
    let mut at = 0;
    while at < PATTERNS.len() {
        let pattern = &PATTERNS[(READ_AHEAD + at) % PATTERNS.len()];
        arms[at] = Arm { name: pattern.name, what: pattern.title };
        at += 1;
    }
    arms
};

/// How large a run is.
#[derive(Debug, Clone, Copy)]
struct Size {
    file_bytes: u64,
    /// What bounds the bytes that a pattern writes, see [`Pattern::written_bytes_max`]: a
    /// run has many blocks, and disks wear.
    written_bytes: u64,
    time: Duration,
}

impl Experiment for IoPatterns {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let size = match lab.form {
            Form::Short => Size {
                file_bytes: 128 << 20,
                written_bytes: 64 << 20,
                time: Duration::from_millis(200),
            },
            Form::Whole => {
                Size { file_bytes: 1 << 30, written_bytes: 256 << 20, time: Duration::from_secs(2) }
            }
        };
        let home = Home::new()?;
        let payload = payload(0, lab.seed);
        let wanted = Wanted::new(home.path(), size.file_bytes, &payload);
        let place = Workplace::make(&wanted, &lab.stop, &|_| ())?;
        let device = Device::below(home.path());
        let (seed, stop) = (lab.seed, Arc::clone(&lab.stop));
        Ok(Box::new(Disk { size, device, payload, seed, stop, place, _home: home }))
    }
}

struct Disk {
    size: Size,
    device: Device,
    payload: Vec<u8>,
    seed: u64,
    stop: Arc<AtomicBool>,
    place: Workplace,
    // After the file in it.
    _home: Home,
}

impl Prepared for Disk {
    fn conditions(&self) -> Vec<String> {
        vec![AS_ENGINES_DO.to_owned(), ONE.to_owned()]
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let past_cache = if self.place.is_direct { "yes" } else { "no: refused" };
        let unknown = || "unknown".to_owned();
        BTreeMap::from([
            ("file".to_owned(), bytes(self.place.file_bytes)),
            ("page of oltp-data".to_owned(), bytes(PAGE_BYTES as u64)),
            ("seconds of one measurement".to_owned(), self.size.time.as_secs_f64().to_string()),
            ("past the page cache".to_owned(), past_cache.to_owned()),
            ("requests in flight by".to_owned(), Method::best().name().to_owned()),
            ("file system".to_owned(), self.device.file_system.clone().unwrap_or_else(unknown)),
            ("disk".to_owned(), self.device.disk.clone().unwrap_or_else(unknown)),
        ])
    }

    fn measure(&mut self, condition: &str, arm: &Arm, block: u32) -> Result<Reading> {
        let pattern = Pattern::named(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        let depth = match condition {
            AS_ENGINES_DO => pattern.depth,
            ONE => pattern.streams(),
            other => bail!("{other} is not measured"),
        };
        let trial = Trial {
            pattern,
            depth,
            page: PAGE_BYTES,
            time: self.size.time,
            written_bytes_max: pattern.written_bytes_max(self.size.written_bytes),
            // Every arm of a block goes to the same places.
            seed: self.seed.wrapping_add(u64::from(block)),
            rate: None,
        };
        let measured = drive(&trial, &self.place, &self.payload, Method::best(), &self.stop)?;
        Ok(Reading::of([
            (MIB_PER_SECOND, measured.mib_per_second),
            (IOPS, measured.iops),
            (P50, measured.latency_us.p50),
            (P99, measured.latency_us.p99),
            (MEAN, measured.latency_us.mean),
            (CPU, measured.cpu_us_per_transfer),
            ("outstanding", measured.outstanding),
            ("written_bytes", measured.bytes_written as f64),
        ]))
    }

    /// What `iotest` would say of the medians, and why they may mean less than they seem to.
    fn conclusion(&self, samples: &[&Sample]) -> Option<String> {
        let session = Session {
            device: self.device.clone(),
            file_bytes: self.place.file_bytes,
            is_direct: self.place.is_direct,
            patterns: PATTERNS.iter().filter_map(|pattern| medians(samples, pattern)).collect(),
            ..Session::default()
        };
        let doubts = doubts(&session).into_iter().filter(|doubt| doubt.is_serious);
        let doubts = doubts.map(|doubt| format!("In doubt: {}.", doubt.text));
        let said: Vec<String> = sentences(&session).into_iter().chain(doubts).collect();
        (!said.is_empty()).then(|| said.join(" "))
    }
}

fn medians(samples: &[&Sample], pattern: &Pattern) -> Option<PatternResult> {
    let of = |metric: &str| median(samples, AS_ENGINES_DO, pattern.name, metric);
    let latency_us = LatencySummary {
        mean: of(MEAN)?,
        p50: of(P50)?,
        p99: of(P99)?,
        ..LatencySummary::default()
    };
    let measured = Measured {
        mib_per_second: of(MIB_PER_SECOND)?,
        iops: of(IOPS)?,
        cpu_us_per_transfer: of(CPU)?,
        latency_us,
        ..Measured::default()
    };
    Some(PatternResult { name: pattern.name, depth: pattern.depth, measured, fio: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_an_arm_and_read_ahead_the_baseline() {
        assert_eq!(ARMS[0].name, "read-ahead");
        for pattern in PATTERNS {
            assert!(ARMS.iter().any(|arm| arm.name == pattern.name), "{}", pattern.name);
        }
    }
}

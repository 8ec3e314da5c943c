//! The same reads with one, two, four ... in flight: where does more of them stop
//! to help?

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::iotest::drive::{Method, Trial, drive};
use crate::iotest::measured::Measured;
use crate::iotest::patterns::{Access, Block, PAGE, Pattern, Sync};
use crate::iotest::workplace::Workplace;

/// The depths that are tried.
pub const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// From here on more in flight brings no more than a tenth.
const KNEE_SHARE: f64 = 0.9;

const fn reads(access: Access, blocks: &'static [Block]) -> Pattern {
    Pattern {
        name: "reads",
        title: "",
        likened: "",
        access,
        blocks,
        write_percent: 0,
        depth: 1,
        sync: Sync::Never,
    }
}

const IN_ORDER: Access = Access::Sequential { streams: 1, astray: 0 };

const RANDOM: Pattern = reads(Access::Random, &[Block { bytes: PAGE, percent: 100 }]);
const ORDERED: Pattern = reads(IN_ORDER, &[Block { bytes: 256 << 10, percent: 100 }]);

/// What is swept: a name, and what is read.
const SWEEPS: [(&str, &Pattern); 2] = [("random", &RANDOM), ("sequential", &ORDERED)];

/// The scan of the compressed table: small requests, one after the other.
const SCANS: [&Pattern; 3] = [
    &reads(IN_ORDER, &[Block { bytes: 4 << 10, percent: 100 }]),
    &reads(IN_ORDER, &[Block { bytes: 64 << 10, percent: 100 }]),
    &reads(IN_ORDER, &[Block { bytes: 1 << 20, percent: 100 }]),
];
const SCAN_DEPTHS: [usize; 2] = [1, 8];

/// Trials that belong to neither, to tell how long all of it takes.
pub const STEPS: usize = DEPTHS.len() * SWEEPS.len();
/// The same of the scans.
pub const SCAN_STEPS: usize = SCANS.len() * SCAN_DEPTHS.len();

/// One of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// Requests in flight.
    pub depth: usize,
    /// Bytes of each.
    pub block_bytes: usize,
    /// What came out.
    pub measured: Measured,
}

/// Reads of one kind at several depths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sweep {
    /// `random` or `sequential`.
    pub name: &'static str,
    /// Bytes of each read.
    pub block_bytes: usize,
    /// At each depth.
    pub steps: Vec<Step>,
    /// The least depth with nine tenths of the best throughput.
    pub knee: Option<usize>,
}

/// What all trials have in common.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// The file.
    pub place: &'a Workplace,
    /// How transfers are kept in flight.
    pub method: Method,
    /// Bytes of the database's page.
    pub page: usize,
    /// How long each takes.
    pub time: Duration,
    /// No more bytes than this a second.
    pub rate: Option<NonZero<u64>>,
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

impl Common<'_> {
    fn step(&self, pattern: &Pattern, depth: usize) -> anyhow::Result<Step> {
        let trial = Trial {
            pattern,
            depth,
            page: self.page,
            time: self.time,
            // Nothing is written, and no limit of it may end the trial.
            written_bytes_max: u64::MAX,
            seed: depth as u64,
            rate: self.rate,
        };
        let measured = drive(&trial, self.place, &[], self.method, self.stop)?;
        Ok(Step { depth, block_bytes: pattern.largest_block(self.page), measured })
    }
}

/// Sweeps over the depths. `told` hears of every step.
///
/// # Errors
/// The file cannot be read.
pub fn sweeps(common: &Common<'_>, told: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Sweep>> {
    let mut sweeps = Vec::new();
    for (name, pattern) in SWEEPS {
        let mut steps = Vec::new();
        for depth in DEPTHS {
            if common.stop.load(Ordering::Relaxed) {
                break;
            }
            told(&format!("{name} reads, {depth} in flight"));
            steps.push(common.step(pattern, depth)?);
        }
        // The last one was cut short.
        if common.stop.load(Ordering::Relaxed) {
            steps.pop();
        }
        let block_bytes = pattern.largest_block(common.page);
        sweeps.push(Sweep { name, block_bytes, knee: knee(&steps), steps });
    }
    Ok(sweeps)
}

/// Scans by small and large requests, alone and several at a time.
///
/// # Errors
/// The file cannot be read.
pub fn scans(common: &Common<'_>, told: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for pattern in SCANS {
        for depth in SCAN_DEPTHS {
            if common.stop.load(Ordering::Relaxed) {
                return Ok(steps);
            }
            told(&format!("scan by {} KiB, {depth} in flight", pattern.largest_block(0) >> 10));
            steps.push(common.step(pattern, depth)?);
        }
    }
    if common.stop.load(Ordering::Relaxed) {
        steps.pop();
    }
    Ok(steps)
}

/// The least depth that has nine tenths of the best throughput.
#[must_use]
pub fn knee(steps: &[Step]) -> Option<usize> {
    let rate = |step: &Step| step.measured.mib_per_second;
    let best = steps.iter().map(rate).fold(0.0, f64::max);
    let found = steps.iter().find(|step| rate(step) >= best * KNEE_SHARE)?;
    (steps.len() > 1 && best > 0.0).then_some(found.depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step((depth, mib_per_second): (usize, f64)) -> Step {
        Step {
            depth,
            block_bytes: 8192,
            measured: Measured { mib_per_second, ..Measured::default() },
        }
    }

    #[test]
    fn the_knee_is_the_least_depth_with_nearly_all_of_it() {
        let knee_of = |rates: &[(usize, f64)]| {
            let steps: Vec<Step> = rates.iter().copied().map(step).collect();
            knee(&steps)
        };
        assert_eq!(knee_of(&[(1, 146.0), (8, 352.0), (32, 550.0)]), Some(32));
        assert_eq!(knee_of(&[(1, 100.0), (2, 195.0), (4, 200.0), (8, 190.0)]), Some(2));
        assert_eq!(knee_of(&[(1, 1636.0), (8, 1366.0)]), Some(1));
        assert_eq!(knee_of(&[(1, 100.0)]), None, "one figure is no curve");
        assert_eq!(knee_of(&[]), None);
    }
}

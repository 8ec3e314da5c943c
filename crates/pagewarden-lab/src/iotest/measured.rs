//! What was measured of one pattern.

use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;

/// An hour in nanoseconds: no transfer takes longer.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Latencies as they come, to three digits.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    ///
    /// # Errors
    /// None for these bounds, which are constants.
    pub fn new() -> anyhow::Result<Self> {
        let bounded = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
        Ok(Self(bounded.context("cannot count latencies")?))
    }

    /// Takes in one.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_MAX_NS));
    }

    /// Takes in those of another thread.
    pub fn add_all(&mut self, other: &Self) {
        // Both have the same bounds, so that this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What has to be known of them, in microseconds.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        LatencySummary {
            mean: self.0.mean() / 1000.0,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1000.0,
        }
    }
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Their mean.
    pub mean: f64,
    /// Half of them are no longer.
    pub p50: f64,
    /// 95 of a hundred.
    pub p95: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What was measured of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads and writes that were done.
    pub transfers: u64,
    /// How long it took, a flush at its end included.
    pub seconds: f64,
    /// Mebibytes a second.
    pub mib_per_second: f64,
    /// Reads and writes a second.
    pub iops: f64,
    /// How long each took, in microseconds.
    pub latency_us: LatencySummary,
    /// Processor time of one, in microseconds.
    pub cpu_us_per_transfer: f64,
    /// How many were under way at a time, in the mean: their number a second
    /// times how long one takes (Little's law).
    pub outstanding: f64,
}

/// The raw sums of a run.
#[derive(Debug)]
pub struct Tally {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Each transfer's time.
    pub latencies: Latencies,
}

impl Tally {
    /// Nothing yet.
    ///
    /// # Errors
    /// As [`Latencies::new`].
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { bytes_read: 0, bytes_written: 0, latencies: Latencies::new()? })
    }

    /// Adds what another thread did.
    pub fn add_all(&mut self, other: &Self) {
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.latencies.add_all(&other.latencies);
    }

    /// Figures, from the sums and how long it all took.
    #[must_use]
    pub fn measured(&self, elapsed: Duration, cpu: Duration) -> Measured {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let transfers = self.latencies.count();
        let latency_us = self.latencies.summary();
        let bytes = self.bytes_read.saturating_add(self.bytes_written);
        let iops = transfers as f64 / seconds;
        Measured {
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            transfers,
            seconds,
            mib_per_second: bytes as f64 / f64::from(1 << 20) / seconds,
            iops,
            latency_us,
            cpu_us_per_transfer: cpu.as_secs_f64() * 1e6 / transfers.max(1) as f64,
            outstanding: iops * latency_us.mean / 1e6,
        }
    }
}

/// Processor time of this program so far, its helpers in the kernel included.
#[must_use]
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_the_sums() {
        let mut tally = Tally { bytes_read: 100 << 20, ..Tally::new().unwrap() };
        for milliseconds in 1..=1000 {
            tally.latencies.add(Duration::from_millis(milliseconds));
        }
        let measured = tally.measured(Duration::from_secs(10), Duration::from_millis(50));
        assert_eq!(measured.transfers, 1000);
        assert!((measured.mib_per_second - 10.0).abs() < 1e-9);
        assert!((measured.iops - 100.0).abs() < 1e-9);
        assert!((measured.latency_us.p50 / 500_000.0 - 1.0).abs() < 0.002);
        assert!((measured.latency_us.p99 / 990_000.0 - 1.0).abs() < 0.002);
        assert!((measured.latency_us.max / 1_000_000.0 - 1.0).abs() < 0.002);
        assert!((measured.cpu_us_per_transfer - 50.0).abs() < 1e-6);
        // 100 a second, each of half a second.
        assert!((measured.outstanding / 50.05 - 1.0).abs() < 0.002);
    }

    #[test]
    fn threads_add_up() {
        let mut sum = Tally::new().unwrap();
        for milliseconds in [1, 3] {
            let mut one = Tally { bytes_written: 10, ..Tally::new().unwrap() };
            one.latencies.add(Duration::from_millis(milliseconds));
            sum.add_all(&one);
        }
        let measured = sum.measured(Duration::from_secs(1), Duration::ZERO);
        assert_eq!((measured.bytes_written, measured.transfers), (20, 2));
        assert!((measured.latency_us.mean / 2000.0 - 1.0).abs() < 0.002);
    }

    #[test]
    fn nothing_measured_is_no_division_by_zero() {
        let measured = Tally::new().unwrap().measured(Duration::ZERO, Duration::ZERO);
        assert!(measured.mib_per_second.abs() < f64::EPSILON);
        assert!(measured.outstanding.is_finite());
    }
}

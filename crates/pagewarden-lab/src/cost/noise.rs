//! What else the machine did while a run was measured.
//!
//! | name | what | source |
//! |---|---|---|
//! | `load` | tasks that ran or waited for the disk, mean of the last minute | `/proc/loadavg` |
//! | `busy_share` | of all processors' time: not idle | `/proc/stat`, `cpu` |
//! | `steal_share` | of all processors' time: taken by other guests of the host | the same |
//! | `context_switches_per_second` | of the whole machine | `/proc/stat`, `ctxt` |
//! | `pressure_cpu_share` | of the time: some task waited for a processor | `/proc/pressure/cpu` |
//! | `pressure_io_share` | of the time: some task waited for the disk | `/proc/pressure/io` |
//!
//! A source that the system does not have is simply absent.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Sensors that were read once, at the begin.
#[derive(Debug)]
pub struct Sensors {
    began: Instant,
    counters: Counters,
}

/// What only grows.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Counters {
    processors: Option<Processors>,
    context_switches: Option<f64>,
    /// Microseconds.
    pressure_cpu: Option<f64>,
    /// Microseconds.
    pressure_io: Option<f64>,
}

/// Time of all processors, in ticks.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Processors {
    total: f64,
    idle: f64,
    steal: f64,
}

impl Sensors {
    /// Reads what grows for the first time.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), counters: Counters::read() }
    }

    /// What happened since.
    #[must_use]
    pub fn stop(self) -> BTreeMap<String, f64> {
        let mut noise = Counters::read().since(self.counters, self.began.elapsed().as_secs_f64());
        if let Some(load) = load(&fs::read_to_string("/proc/loadavg").unwrap_or_default()) {
            noise.insert("load".to_owned(), load);
        }
        noise
    }
}

impl Counters {
    fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = read("/proc/stat");
        Self {
            processors: processors(&stat),
            context_switches: stat
                .lines()
                .find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok()),
            pressure_cpu: some_microseconds(&read("/proc/pressure/cpu")),
            pressure_io: some_microseconds(&read("/proc/pressure/io")),
        }
    }

    fn since(self, earlier: Self, seconds: f64) -> BTreeMap<String, f64> {
        let mut noise = BTreeMap::new();
        if seconds <= 0.0 {
            return noise;
        }
        let mut put = |name: &str, now: Option<f64>, then: Option<f64>, divisor: f64| {
            if let (Some(now), Some(then)) = (now, then)
                && divisor > 0.0
            {
                noise.insert(name.to_owned(), (now - then).max(0.0) / divisor);
            }
        };
        let microseconds = seconds * 1e6;
        put(
            "context_switches_per_second",
            self.context_switches,
            earlier.context_switches,
            seconds,
        );
        put("pressure_cpu_share", self.pressure_cpu, earlier.pressure_cpu, microseconds);
        put("pressure_io_share", self.pressure_io, earlier.pressure_io, microseconds);
        if let (Some(now), Some(then)) = (self.processors, earlier.processors) {
            let total = now.total - then.total;
            put("steal_share", Some(now.steal), Some(then.steal), total);
            put("busy_share", Some(now.total - now.idle), Some(then.total - then.idle), total);
        }
        noise
    }
}

/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`: what
/// guests of this machine used is in the first two already.
fn processors(stat: &str) -> Option<Processors> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
    (ticks.len() >= 4).then(|| Processors {
        total: ticks.iter().take(8).sum(),
        idle: at(3) + at(4),
        steal: at(7),
    })
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=4834614608`
fn some_microseconds(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

fn load(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let stat = |line: &str| processors(line).unwrap();
        let then = Counters {
            processors: Some(stat("cpu  100 0 50 800 50 0 0 0 0 0\nctxt 5\n")),
            context_switches: Some(1000.0),
            pressure_cpu: Some(0.0),
            pressure_io: None,
        };
        let now = Counters {
            processors: Some(stat("cpu  150 0 50 820 60 0 0 20 7 0\n")),
            context_switches: Some(3000.0),
            pressure_cpu: Some(500_000.0),
            pressure_io: Some(1.0),
        };
        let noise = now.since(then, 2.0);
        let expected = [
            ("busy_share", 0.7),
            ("context_switches_per_second", 1000.0),
            ("pressure_cpu_share", 0.25),
            ("steal_share", 0.2),
        ];
        assert_eq!(noise.len(), expected.len(), "an absent source is absent: {noise:?}");
        for (name, value) in expected {
            assert!((noise[name] - value).abs() < 1e-12, "{name}: {noise:?}");
        }
    }

    #[test]
    fn files_of_the_system_are_read() {
        let pressure = "some avg10=1.64 avg60=1.97 avg300=1.54 total=4834614608\nfull total=7\n";
        assert_eq!(some_microseconds(pressure), Some(4_834_614_608.0));
        assert_eq!(some_microseconds(""), None);
        assert_eq!(load("0.17 0.40 2.07 1/99 4242\n"), Some(0.17));
        assert_eq!(processors("cpu0 1 2 3 4\n"), None);
    }
}

//! A rate that yields: as fast as the device allows while it is ours alone, and a share of it while
//! others use it.
//!
//! Four times a second it is looked what the device beneath the target moved, and what of that this
//! process moved. While others move anything to speak of and the device is busy, the rate is cut,
//! by half at most a look; as they leave, it grows again, until it is no ceiling any more. What is
//! read from the page cache is no use of the device, and is never held back.
//!
//! Where the system does not say what a device does, the rate is not held back at all.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::source::device::{Counted, Device, SECTOR_BYTES};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes a second of others below which the device counts as ours alone: logs of the system.
const OTHERS_MIN: u64 = 256 << 10;
/// How busy a device is left while others use it: a device that always has something to do makes
/// everybody wait.
const BUSY: f64 = 0.5;
/// A run never gets slower than this, or it would not end.
const FLOOR: u64 = 4 << 20;

/// What happened between two looks, in bytes a second.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    own: u64,
    others: u64,
    /// The share of the time in which the device had something to do.
    busy: f64,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Yielding {
    device: Option<Device>,
    last: Option<(Instant, Counted, u64)>,
    ceiling: Option<u64>,
}

impl Yielding {
    /// For what lies at `path`.
    pub(crate) fn at(path: &Path) -> Self {
        Self { device: Device::beneath(path), last: None, ceiling: None }
    }

    /// Bytes a second that may be read now; `None`: no ceiling.
    pub(crate) fn ceiling(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.last.is_none_or(|(then, ..)| now.duration_since(then) >= LOOK);
        if let Some(device) = self.device.as_ref().filter(|_| is_due) {
            let look = device.counted().zip(own_bytes());
            if let (Some((then, before, own_before)), Some((after, own))) = (self.last, look) {
                let seconds = now.duration_since(then).as_secs_f64();
                let moved = after.bytes_since(&before);
                let own = own.saturating_sub(own_before).min(moved);
                let traffic = Traffic {
                    own: per_second(own, seconds),
                    others: per_second(moved - own, seconds),
                    busy: (after.busy_since(&before).as_secs_f64() / seconds).min(1.0),
                };
                self.ceiling = next_ceiling(self.ceiling, traffic);
            }
            self.last = look.map(|(counted, own)| (now, counted, own));
        }
        self.ceiling
    }
}

/// The ceiling after what was seen under the last one.
fn next_ceiling(ceiling: Option<u64>, traffic: Traffic) -> Option<u64> {
    let Traffic { own, others, busy } = traffic;
    if others >= OTHERS_MIN && busy > BUSY && own > 0 {
        let share = (BUSY / busy).max(0.5);
        let reached = ceiling.map_or(own, |ceiling| ceiling.min(own));
        return Some(scaled(reached, share).max(FLOOR));
    }
    let ceiling = ceiling?;
    let grown = scaled(ceiling, if others >= OTHERS_MIN { 1.25 } else { 2.0 });
    // What is not reached holds nothing back.
    (grown <= own.max(FLOOR).saturating_mul(4)).then_some(grown)
}

fn per_second(bytes: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { scaled(bytes, 1.0 / seconds) } else { 0 }
}

/// `bytes` times a factor that is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

/// Bytes that this process had devices read and write (`/proc/self/io`), whatever it took from the
/// page cache.
fn own_bytes() -> Option<u64> {
    own_bytes_in(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn own_bytes_in(text: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(": ")?.trim().parse::<u64>().ok()
    };
    Some(value("read_bytes")?.saturating_add(value("write_bytes")?))
}

impl Counted {
    fn bytes_since(&self, before: &Self) -> u64 {
        self.sectors.wrapping_sub(before.sectors).saturating_mul(SECTOR_BYTES)
    }

    fn busy_since(&self, before: &Self) -> Duration {
        Duration::from_millis(self.busy_milliseconds.wrapping_sub(before.busy_milliseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn own_bytes_are_those_of_devices() {
        let text = "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 512\n\
                    cancelled_write_bytes: 0\n";
        assert_eq!(own_bytes_in(text), Some(4608));
        assert_eq!(own_bytes_in("rchar: 5\n"), None);
    }

    #[test]
    fn alone_on_a_device_nothing_is_held_back() {
        let alone = Traffic { own: 500 * MIB, others: 100 << 10, busy: 1.0 };
        assert_eq!(next_ceiling(None, alone), None);
        // Others who leave it room need none.
        assert_eq!(next_ceiling(None, Traffic { others: 9 * MIB, busy: 0.4, ..alone }), None);
        // What comes from the page cache takes nothing from them.
        assert_eq!(next_ceiling(None, Traffic { own: 0, others: 900 * MIB, busy: 1.0 }), None);
    }

    #[test]
    fn beside_others_it_falls_to_the_floor_and_comes_back() {
        let mut ceiling = None;
        let mut own = 800 * MIB;
        for _ in 0..20 {
            ceiling = next_ceiling(ceiling, Traffic { own, others: 3 * MIB, busy: 1.0 });
            assert!(ceiling.is_some_and(|now| now < own || now == FLOOR), "{ceiling:?} {own}");
            own = ceiling.unwrap();
        }
        assert_eq!(ceiling, Some(FLOOR));
        let looks = (1..60).find(|_| {
            let own = ceiling.unwrap_or(800 * MIB).min(800 * MIB);
            ceiling = next_ceiling(ceiling, Traffic { own, others: 0, busy: 0.2 });
            ceiling.is_none_or(|ceiling| ceiling > 800 * MIB)
        });
        assert!(looks.is_some_and(|looks| looks < 12), "{looks:?}");
    }

    #[test]
    fn ceiling_that_is_not_reached_goes() {
        let slow = Traffic { own: 5 * MIB, others: 0, busy: 0.1 };
        assert_eq!(next_ceiling(Some(64 * MIB), slow), None);
        assert_eq!(next_ceiling(Some(8 * MIB), slow), Some(16 * MIB));
    }

    #[test]
    fn without_a_device_there_is_no_ceiling() {
        let mut yielding = Yielding { device: None, last: None, ceiling: None };
        assert_eq!(yielding.ceiling(Instant::now()), None);
    }
}

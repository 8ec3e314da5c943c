//! What is left of the disk beneath the target: all of it while it is ours alone, and a share of it
//! while others use it.
//!
//! Four times a second it is looked what the device beneath the target moved, what of that this
//! process moved, how long a request took, and how much of the time something in the system stood
//! still for a disk (`/proc/pressure/io`). The device is crowded while others move anything to speak
//! of and it is busy, or its requests take twice as long as they did at best and something stands
//! still. Then the rate is cut, to a quarter at the first look and by half at most at each later one:
//! from the speed of a fast disk to the floor in about a second. As the others leave, it grows again,
//! until it is no ceiling any more. What is read from the page cache is no use of the device, and is
//! never held back.
//!
//! Where the system does not say what a device does, the rate is not held back at all.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{FLOOR, GROWTH_ALONE, GROWTH_BESIDE, per_second, scaled};
use crate::source::device::{Counted, Device, SECTOR_BYTES};

/// Bytes a second of others below which the device counts as ours alone: logs of the system.
const OTHERS_MIN: u64 = 256 << 10;
/// How busy a device is left while others use it: a device that always has something to do makes
/// everybody wait.
const BUSY: f64 = 0.5;
/// Requests take too long from this multiple of the best time on.
const SLOW: f64 = 2.0;
/// From this share of what others move on, slow requests may be the fault of this process.
const BLAME: f64 = 0.25;
/// The best time is forgotten by this much a look: a device may have become another one.
const FORGET: f64 = 1.01;
/// Requests in a look from which their time is believed.
const REQUESTS_MIN: u64 = 8;
/// The share of the time in which something stands still for a disk, from which on that matters.
const STANDSTILL: f64 = 0.05;
/// What is kept at the look in which others come, and at most lost at each later one.
const FIRST_SHARE: f64 = 0.25;
const SHARE: f64 = 0.5;

/// What happened between two looks, in bytes a second.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    own: u64,
    others: u64,
    /// The share of the time in which the device had something to do.
    busy: f64,
    /// Requests take too long, and something stands still for it.
    is_slow: bool,
}

impl Traffic {
    fn is_crowded(self) -> bool {
        let is_slow = self.is_slow && self.own >= scaled(self.others, BLAME);
        self.others >= OTHERS_MIN && self.own > 0 && (self.busy > BUSY || is_slow)
    }
}

/// What one look saw.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    device: Counted,
    own: u64,
    /// Bytes that this run had asked for.
    asked: u64,
    /// Microseconds in which something stood still for a disk; `None` where the system does not tell.
    stalled: Option<u64>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Disk {
    device: Option<Device>,
    last: Option<Look>,
    ceiling: Option<u64>,
    asked: u64,
    /// The best time of a request, in milliseconds.
    best: Option<f64>,
}

impl Disk {
    /// For what lies at `path`.
    pub(super) fn beneath(path: &Path) -> Self {
        Self { device: Device::beneath(path), last: None, ceiling: None, asked: 0, best: None }
    }

    /// True if both are the same disk.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.device == other.device
    }

    /// Counts what is read.
    pub(super) fn take(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_add(bytes);
    }

    /// Bytes a second that may be read now; `None`: no ceiling.
    pub(super) fn ceiling(&mut self, now: Instant, look: Duration, is_alone: bool) -> Option<u64> {
        let is_due = self.last.is_none_or(|last| now.duration_since(last.at) >= look);
        if let Some(device) = self.device.as_ref().filter(|_| is_due) {
            let look = device.counted().zip(own_bytes()).map(|(device, own)| Look {
                at: now,
                device,
                own,
                asked: self.asked,
                stalled: stalled(),
            });
            if let (Some(before), Some(after)) = (self.last, look) {
                let traffic = self.traffic(&before, &after, is_alone);
                self.ceiling = next_ceiling(self.ceiling, traffic);
            }
            self.last = look;
        }
        self.ceiling
    }

    /// What happened between two looks.
    fn traffic(&mut self, before: &Look, after: &Look, is_alone: bool) -> Traffic {
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let moved = after.device.bytes_since(&before.device);
        let mut own = after.own.saturating_sub(before.own).min(moved);
        if !is_alone {
            own = own.min(after.asked.saturating_sub(before.asked));
        }
        let stands_still = after.stalled.zip(before.stalled).is_none_or(|(after, before)| {
            Duration::from_micros(after.saturating_sub(before)).as_secs_f64() > STANDSTILL * seconds
        });
        let time = after.device.request_time_since(&before.device);
        let best = self.best.map(|best| best * FORGET);
        let is_slow = time.zip(best).is_some_and(|(time, best)| time > SLOW * best);
        self.best = [time, best].into_iter().flatten().reduce(f64::min);
        Traffic {
            own: per_second(own, seconds),
            others: per_second(moved - own, seconds),
            busy: (after.device.busy_since(&before.device).as_secs_f64() / seconds).min(1.0),
            is_slow: is_slow && stands_still,
        }
    }
}

/// The ceiling after what was seen under the last one.
fn next_ceiling(ceiling: Option<u64>, traffic: Traffic) -> Option<u64> {
    let Traffic { own, others, busy, .. } = traffic;
    if traffic.is_crowded() {
        let least = if ceiling.is_none() { FIRST_SHARE } else { SHARE };
        let share =
            if ceiling.is_none() || traffic.is_slow { least } else { (BUSY / busy).max(least) };
        let reached = ceiling.map_or(own, |ceiling| ceiling.min(own));
        return Some(scaled(reached, share).max(FLOOR));
    }
    let ceiling = ceiling?;
    let grown = scaled(ceiling, if others >= OTHERS_MIN { GROWTH_BESIDE } else { GROWTH_ALONE });
    // What is not reached holds nothing back.
    (grown <= own.max(FLOOR).saturating_mul(4)).then_some(grown)
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

/// Microseconds in which a task stood still for a disk, since the system began.
fn stalled() -> Option<u64> {
    stalled_in(&std::fs::read_to_string("/proc/pressure/io").ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=383193551`, of Linux's Documentation/accounting/psi.
fn stalled_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

impl Counted {
    /// How long a request took, in milliseconds; `None` of too few.
    fn request_time_since(&self, before: &Self) -> Option<f64> {
        let requests = self.requests.wrapping_sub(before.requests);
        let time = self.request_milliseconds.wrapping_sub(before.request_milliseconds);
        // A disk that answers at once counts no time at all.
        (requests >= REQUESTS_MIN).then(|| (time as f64 / requests as f64).max(0.05))
    }

    fn bytes_since(&self, before: &Self) -> u64 {
        self.sectors.wrapping_sub(before.sectors).saturating_mul(SECTOR_BYTES)
    }

    fn busy_since(&self, before: &Self) -> Duration {
        Duration::from_millis(self.busy_milliseconds.wrapping_sub(before.busy_milliseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LOOK;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn traffic(own: u64, others: u64, busy: f64) -> Traffic {
        Traffic { own, others, busy, is_slow: false }
    }

    #[test]
    fn fast_disk_is_left_to_others_within_a_second() {
        // Four looks, by a device that is not busy but has become slow.
        let mut own = 800 * MIB;
        let mut ceiling = None;
        for _ in 0..4 {
            let slow = Traffic { is_slow: true, ..traffic(own, MIB, 0.3) };
            ceiling = next_ceiling(ceiling, slow);
            own = ceiling.unwrap();
        }
        assert_eq!(ceiling, Some(25 * MIB));
    }

    #[test]
    fn requests_that_take_longer_count_only_where_something_stands_still() {
        let mut disk = Disk::beneath(Path::new("/proc/self/stat"));
        let begin = Instant::now();
        let mut look =
            Look { at: begin, device: Counted::default(), own: 0, asked: 0, stalled: Some(0) };
        let mut next = |milliseconds: u64, stalled: u64| {
            let before = look;
            look.at += LOOK;
            look.device.requests += 100;
            look.device.request_milliseconds += 100 * milliseconds;
            look.device.sectors += 8192;
            look.stalled = look.stalled.map(|before| before + stalled);
            disk.traffic(&before, &look, true).is_slow
        };
        assert!(!next(2, 0), "nothing to compare with");
        assert!(!next(3, 100_000));
        assert!(next(9, 100_000));
        assert!(!next(9, 1000), "nothing waits for it");
    }

    #[test]
    fn pressure_is_read_from_the_line_of_all_tasks() {
        let text = "some avg10=21.30 avg60=19.58 avg300=20.02 total=383193551\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=5362215\n";
        assert_eq!(stalled_in(text), Some(383_193_551));
        assert_eq!(stalled_in("full total=1\n"), None);
        assert_eq!(stalled_in(""), None);
    }

    #[test]
    fn own_bytes_are_those_of_devices() {
        let text = "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 512\n\
                    cancelled_write_bytes: 0\n";
        assert_eq!(own_bytes_in(text), Some(4608));
        assert_eq!(own_bytes_in("rchar: 5\n"), None);
    }

    #[test]
    fn alone_on_a_device_nothing_is_held_back() {
        let alone = Traffic { own: 500 * MIB, others: 100 << 10, busy: 1.0, is_slow: true };
        assert_eq!(next_ceiling(None, alone), None);
        // Others who leave it room need none.
        assert_eq!(
            next_ceiling(None, Traffic { others: 9 * MIB, busy: 0.4, is_slow: false, ..alone }),
            None
        );
        // What comes from the page cache takes nothing from them.
        assert_eq!(next_ceiling(None, Traffic { own: 0, others: 900 * MIB, ..alone }), None);
    }

    #[test]
    fn beside_others_it_falls_to_the_floor_and_comes_back() {
        let mut ceiling = None;
        let mut own = 800 * MIB;
        for _ in 0..20 {
            ceiling = next_ceiling(ceiling, traffic(own, 3 * MIB, 1.0));
            assert!(ceiling.is_some_and(|now| now < own || now == FLOOR), "{ceiling:?} {own}");
            own = ceiling.unwrap();
        }
        assert_eq!(ceiling, Some(FLOOR));
        let looks = (1..60).find(|_| {
            let own = ceiling.unwrap_or(800 * MIB).min(800 * MIB);
            ceiling = next_ceiling(ceiling, traffic(own, 0, 0.2));
            ceiling.is_none_or(|ceiling| ceiling > 800 * MIB)
        });
        assert!(looks.is_some_and(|looks| looks < 12), "{looks:?}");
    }

    #[test]
    fn ceiling_that_is_not_reached_goes() {
        let slow = traffic(5 * MIB, 0, 0.1);
        assert_eq!(next_ceiling(Some(64 * MIB), slow), None);
        assert_eq!(next_ceiling(Some(8 * MIB), slow), Some(16 * MIB));
    }

    #[test]
    fn without_a_device_there_is_no_ceiling() {
        let mut disk = Disk::beneath(Path::new("/proc/self/stat"));
        assert_eq!(disk.ceiling(Instant::now(), LOOK, true), None);
    }
}

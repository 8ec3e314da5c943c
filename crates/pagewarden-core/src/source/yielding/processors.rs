//! What is left of the processors.
//!
//! Linux counts what all processors did (`/proc/stat`), and what this process did
//! (`/proc/self/stat`). While others take a good part of the time, this process takes no more than what
//! is left up to a limit below all of it: a server whose processors never rest answers late. A share of
//! what is read is held back in proportion, and what comes from the page cache, too.
//!
//! Time that a hypervisor gave to other machines counts as idle. Within a container the counts are
//! those of the whole machine. Where the system does not tell, nothing is held back.

use std::time::{Duration, Instant};

use super::{GROWTH_ALONE, GROWTH_BESIDE, per_second, scaled};

/// The share of all processors' time below which others count as none.
const OTHERS_MIN: f64 = 0.25;
/// The share of all processors' time that all may use together while others use it.
const BUSY: f64 = 0.8;
/// A run never gets slower than this, in bytes a second: that takes a few hundredths of a processor.
const FLOOR: u64 = 64 << 20;
/// What is kept at a look, at least.
const SHARE_MIN: f64 = 0.25;

/// Time of processors up to a moment, in ticks of the system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    all: u64,
    /// Of all: nothing to do, or given to other machines.
    idle: u64,
    /// Of all: this process.
    own: u64,
}

/// What happened between two looks.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// Bytes a second that this run read.
    read: u64,
    /// Shares of all processors' time.
    own: f64,
    others: f64,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    counted: Counted,
    taken: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Processors {
    last: Option<Look>,
    ceiling: Option<u64>,
    taken: u64,
}

impl Processors {
    /// Counts what is read.
    pub(super) fn take(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Bytes a second that may be read now; `None`: no ceiling.
    pub(super) fn ceiling(&mut self, now: Instant, look: Duration) -> Option<u64> {
        if self.last.is_none_or(|last| now.duration_since(last.at) >= look) {
            let look = counted().map(|counted| Look { at: now, counted, taken: self.taken });
            let used = self.last.zip(look).and_then(|(before, after)| used(&before, &after));
            if let Some(used) = used {
                self.ceiling = next_ceiling(self.ceiling, used);
            }
            self.last = look;
        }
        self.ceiling
    }
}

/// `None` where no tick was counted.
fn used(before: &Look, after: &Look) -> Option<Used> {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let since = |count: fn(&Counted) -> u64| {
        count(&after.counted).saturating_sub(count(&before.counted)) as f64
    };
    let all = Some(since(|counted| counted.all)).filter(|all| *all > 0.0)?;
    let own = (since(|counted| counted.own) / all).min(1.0);
    let idle = since(|counted| counted.idle) / all;
    let read = per_second(after.taken.saturating_sub(before.taken), seconds);
    Some(Used { read, own, others: (1.0 - idle - own).max(0.0) })
}

/// The ceiling after what was seen under the last one.
fn next_ceiling(ceiling: Option<u64>, used: Used) -> Option<u64> {
    let Used { read, own, others } = used;
    let is_alone = others < OTHERS_MIN;
    // By how much more this process may use.
    let room = if own > 0.0 { (BUSY - others).max(0.0) / own } else { f64::INFINITY };
    if !is_alone && room < 1.0 {
        let reached = ceiling.map_or(read, |ceiling| ceiling.min(read));
        return Some(scaled(reached, room.max(SHARE_MIN)).max(FLOOR));
    }
    let ceiling = ceiling?;
    let reached = read.max(FLOOR).saturating_mul(4);
    if is_alone {
        // What is not reached holds nothing back.
        return Some(scaled(ceiling, GROWTH_ALONE)).filter(|grown| *grown <= reached);
    }
    Some(scaled(ceiling, room.min(GROWTH_BESIDE)).min(reached))
}

fn counted() -> Option<Counted> {
    let of_all = std::fs::read_to_string("/proc/stat").ok()?;
    let of_this = std::fs::read_to_string("/proc/self/stat").ok()?;
    counted_in(&of_all, &of_this)
}

/// The first line of `/proc/stat` is that of all processors, in ticks: user, nice, system, idle,
/// iowait, irq, softirq, steal, and guests, which are in user and nice already. In `/proc/self/stat` user
/// and system are the 14th and 15th word; the second is a name in brackets, with anything in it
/// (Linux's Documentation/filesystems/proc).
fn counted_in(of_all: &str, of_this: &str) -> Option<Counted> {
    let all: Vec<u64> = of_all
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .take(8)
        .collect();
    let [_, _, _, idle, waiting, _, _, stolen] = *all.as_slice() else { return None };
    let (_, of_this) = of_this.rsplit_once(") ")?;
    let mut words = of_this.split(' ').skip(11).map_while(|word| word.parse::<u64>().ok());
    Some(Counted {
        all: all.iter().sum(),
        idle: idle.saturating_add(waiting).saturating_add(stolen),
        own: words.next()?.saturating_add(words.next()?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::LOOK;
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn time_is_counted_for_all_and_for_this_process() {
        let all = "cpu  100 20 30 4000 50 6 7 800 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let this = "4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 41 17 99 98 20 0";
        let counted = counted_in(all, this).unwrap();
        assert_eq!(counted, Counted { all: 5013, idle: 4850, own: 58 });
        assert_eq!(counted_in("intr 1\n", this), None);
        assert_eq!(counted_in(all, "4711 (a) S 1"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_system_tells() {
        assert!(counted().is_some_and(|counted| counted.all >= counted.idle));
    }

    #[test]
    fn shares_are_of_all_processors() {
        let before = Look { at: Instant::now(), counted: Counted::default(), taken: 0 };
        let counted = Counted { all: 50, idle: 10, own: 15 };
        let after = Look { at: before.at + LOOK, counted, taken: 100 * MIB };
        let used = used(&before, &after).unwrap();
        assert_eq!(used.read, 400 * MIB);
        assert!((used.own - 0.3).abs() < 1e-9 && (used.others - 0.5).abs() < 1e-9, "{used:?}");
        assert!(super::used(&before, &before).is_none());
    }

    #[test]
    fn what_others_leave_is_used_and_no_more() {
        // Others want 0.7 of all; each byte a second costs this process the same.
        let own = |read: u64| (read as f64 / (2000 * MIB) as f64 * 0.9).min(0.3);
        let mut read = 600 * MIB;
        let mut ceiling = None;
        for look in 0..20 {
            ceiling = next_ceiling(ceiling, Used { read, own: own(read), others: 0.7 });
            read = ceiling.unwrap();
            assert!(look < 1 || own(read) < 0.11, "{look}: {read}");
        }
        assert!(own(read) > 0.09, "{read}");
        // They go, and nothing is held back any more.
        let looks = (1..40).find(|_| {
            let reached = ceiling.unwrap_or(2000 * MIB).min(2000 * MIB);
            ceiling = next_ceiling(ceiling, Used { read: reached, own: 0.5, others: 0.05 });
            ceiling.is_none()
        });
        assert!(looks.is_some_and(|looks| looks < 12), "{looks:?}");
    }

    #[test]
    fn processors_that_others_take_whole_leave_the_floor() {
        let mut ceiling = None;
        for _ in 0..6 {
            let read = ceiling.unwrap_or(2000 * MIB);
            ceiling = next_ceiling(ceiling, Used { read, own: 0.1, others: 0.9 });
        }
        assert_eq!(ceiling, Some(FLOOR));
    }

    #[test]
    fn alone_nothing_is_held_back() {
        assert_eq!(next_ceiling(None, Used { read: 4000 * MIB, own: 0.9, others: 0.1 }), None);
        // Nor beside others where there is room.
        assert_eq!(next_ceiling(None, Used { read: 900 * MIB, own: 0.2, others: 0.4 }), None);
    }
}

//! What the block device beneath a path is doing for others.
//!
//! Linux counts for each device (`/sys/dev/block/*/stat`, numbers in a line):
//!
//! | place | |
//! | --- | --- |
//! | 0, 4 | requests read, written |
//! | 2, 6 | sectors of 512 bytes read, written |
//! | 3, 7 | milliseconds that these requests took, all added |
//! | 8 | requests in flight |
//! | 9 | milliseconds in which there was at least one |

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is looked.
const LOOKS: u32 = 10;
/// How often where nothing happens.
const LOOKS_MIN: u32 = 2;

/// What a device did over a short while.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceLoad {
    /// As the system calls it: `sda`.
    pub name: String,
    /// The share of the time in which it had something to do.
    pub busy: f64,
    /// The most requests that were seen in flight.
    pub in_flight: u64,
    /// Bytes read and written a second.
    pub bytes_per_second: u64,
}

/// Looks at the device that `path` lies on for about `time`, or for a fifth of it
/// where it does nothing at all; `None` where the system does not tell, or there is
/// no such device.
#[must_use]
pub fn device_load(path: &Path, time: Duration) -> Option<DeviceLoad> {
    let device = Device::beneath(path)?;
    let name = device.place.file_name()?.to_str()?.to_owned();
    let begin = Instant::now();
    let mut looks = vec![device.counted()?];
    for number in 1..=LOOKS {
        std::thread::sleep(time / LOOKS);
        looks.push(device.counted()?);
        if number >= LOOKS_MIN && is_idle(&looks) {
            break;
        }
    }
    load(name, &looks, begin.elapsed())
}

/// Where the system tells of the disk that `path` lies on, which is the same for all paths on it;
/// `None` where it does not tell, or there is no such disk.
#[must_use]
pub fn disk_beneath(path: &Path) -> Option<PathBuf> {
    Device::beneath(path).map(|device| device.place)
}

/// A block device that the system counts for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Where the system tells of it.
    place: PathBuf,
}

impl Device {
    /// The disk that `path` lies on; `None` where the system does not tell, or there is none.
    pub(super) fn beneath(path: &Path) -> Option<Self> {
        let device = Self { place: system::place(path)? };
        device.counted().map(|_| device)
    }

    /// What it did since the system began.
    pub(super) fn counted(&self) -> Option<Counted> {
        parse(&std::fs::read_to_string(self.place.join("stat")).ok()?)
    }
}

/// What was counted up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) sectors: u64,
    pub(super) requests: u64,
    pub(super) request_milliseconds: u64,
    in_flight: u64,
    pub(super) busy_milliseconds: u64,
}

pub(super) const SECTOR_BYTES: u64 = 512;

/// Reads a line of counts.
fn parse(line: &str) -> Option<Counted> {
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [reads, _, read, read_time, writes, _, written, write_time, in_flight, busy, ..] = *numbers
    else {
        return None;
    };
    Some(Counted {
        sectors: read.wrapping_add(written),
        requests: reads.wrapping_add(writes),
        request_milliseconds: read_time.wrapping_add(write_time),
        in_flight,
        busy_milliseconds: busy,
    })
}

/// True if nothing was done between these looks, nor at any of them.
fn is_idle(looks: &[Counted]) -> bool {
    looks
        .first()
        .is_some_and(|first| first.in_flight == 0 && looks.iter().all(|look| look == first))
}

/// What was done between the first of some looks and the last, over this time.
fn load(name: String, looks: &[Counted], time: Duration) -> Option<DeviceLoad> {
    let (first, last) = (looks.first()?, looks.last()?);
    let seconds = time.as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let busy = Duration::from_millis(last.busy_milliseconds.wrapping_sub(first.busy_milliseconds));
    let bytes = last.sectors.wrapping_sub(first.sectors).saturating_mul(SECTOR_BYTES);
    let microseconds = time.as_micros().max(1);
    let bytes_per_second = u128::from(bytes).saturating_mul(1_000_000) / microseconds;
    Some(DeviceLoad {
        name,
        busy: (busy.as_secs_f64() / seconds).min(1.0),
        in_flight: looks.iter().map(|look| look.in_flight).max()?,
        bytes_per_second: u64::try_from(bytes_per_second).unwrap_or(u64::MAX),
    })
}

/// The device that a line of `/proc/self/mountinfo` says is mounted over `path`:
/// the deepest mount, and of two at one place the later.
/// `36 35 98:0 /root /mount/point rw - ext3 /dev/root rw`
#[cfg(any(test, target_os = "linux"))]
fn mounted_device<'a>(mounts: &'a str, path: &Path) -> Option<&'a Path> {
    let mut best = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split_whitespace().nth(4) else { continue };
        let depth = Path::new(point).components().count();
        if path.starts_with(point) && best.is_none_or(|(other, _)| depth >= other) {
            best = Some((depth, right.split_whitespace().nth(1)));
        }
    }
    best.and_then(|(_, device)| device).map(Path::new).filter(|device| device.is_absolute())
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};

    use super::mounted_device;

    /// Where the system tells of the disk: of a partition the whole one, since they
    /// share what it can do.
    pub(super) fn place(path: &Path) -> Option<PathBuf> {
        let path = fs::canonicalize(path).ok()?;
        let of = |number: u64| {
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            let here = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
            if here.join("partition").exists() {
                return here.parent().map(Path::to_owned);
            }
            Some(here)
        };
        if let Some(place) = of(fs::metadata(&path).ok()?.dev()) {
            return Some(place);
        }
        // File systems that span devices have numbers of their own.
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        of(fs::metadata(mounted_device(&mounts, &path)?).ok()?.rdev())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::{Path, PathBuf};

    pub(super) fn place(_: &Path) -> Option<PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_looks_is_the_load() {
        let line = "57705387 2671920 1000 52116639 110358357 6461005 2000 78439234 3 9435164 1 2 3";
        let first = parse(line).unwrap();
        let expected = Counted {
            sectors: 3000,
            requests: 57_705_387 + 110_358_357,
            request_milliseconds: 52_116_639 + 78_439_234,
            in_flight: 3,
            busy_milliseconds: 9_435_164,
        };
        assert_eq!(first, expected);
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("a b c d e f g h i j k"), None);
        let looks = [
            first,
            Counted { in_flight: 9, ..first },
            Counted {
                sectors: 3000 + 2048,
                in_flight: 0,
                busy_milliseconds: 9_435_164 + 150,
                ..first
            },
        ];
        let load = load("sda".to_owned(), &looks, Duration::from_millis(500)).unwrap();
        let expected = DeviceLoad {
            name: "sda".to_owned(),
            busy: 0.3,
            in_flight: 9,
            bytes_per_second: 2 << 20,
        };
        assert_eq!(load, expected);
        assert!(!is_idle(&looks) && !is_idle(&[first, first]), "three are in flight");
        let idle = Counted { in_flight: 0, ..first };
        assert!(is_idle(&[idle, idle]) && !is_idle(&[idle, first, idle]));
        // A flush moves no sectors.
        assert!(!is_idle(&[idle, Counted { busy_milliseconds: 9_435_165, ..idle }]));
    }

    #[test]
    fn mounts_are_asked_for_the_deepest() {
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      30 27 0:40 /sub /data rw - btrfs /dev/vdb rw\n\
                      31 30 0:41 / /data/memory rw - tmpfs tmpfs rw\n";
        let of = |path: &str| mounted_device(mounts, Path::new(path));
        assert_eq!(of("/etc/x"), Some(Path::new("/dev/vda")));
        assert_eq!(of("/data/base"), Some(Path::new("/dev/vdb")));
        assert_eq!(of("/data/memory/x"), None, "no device at all");
    }

    #[test]
    fn memory_has_no_device() {
        if cfg!(target_os = "linux") {
            assert_eq!(device_load(Path::new("/proc/self/stat"), Duration::from_millis(1)), None);
            assert_eq!(disk_beneath(Path::new("/proc/self/stat")), None);
        }
    }
}

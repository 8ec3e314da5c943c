//! What the figures say, in sentences: what limits what, and how far the figures
//! can be believed. Pure functions of a [`Session`].

use serde::Serialize;

use pagewarden::words::{bytes, rate};

use crate::iotest::measured::Measured;
use crate::iotest::patterns::{PATTERNS, Pattern};
use crate::iotest::session::Session;

/// A device without a protected cache needs longer than this for a flush: the
/// fastest that are sold take some tens of microseconds, and those have capacitors.
const FLUSH_US_PLAUSIBLE: f64 = 100.0;
/// Less than a device needs for a read, past the page cache.
const READ_US_PLAUSIBLE: f64 = 10.0;
/// From this share of a core on, it is the processor that limits.
const CORE_SHARE: f64 = 0.85;
/// Two patterns that should be alike are not, from this ratio on.
const UNLIKE: f64 = 0.6;

/// Why figures may not mean what they seem to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// What it is about: `memory`, `flush`, `cache`, `size`, `payload`, `load`.
    pub about: &'static str,
    /// True if figures are hardly what a database would see.
    pub is_serious: bool,
    /// In words.
    pub text: String,
}

/// All reasons for doubt, and what was looked at without finding one.
#[must_use]
pub fn doubts(session: &Session) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let memory = memory(session);
    let is_memory = memory.is_some();
    doubts.extend(memory);
    doubts.extend(flush(session));
    // There, O_DIRECT passes nothing by.
    doubts.extend((!is_memory).then(|| cache(session)));
    doubts.extend(size(session));
    doubts.push(payload(session));
    doubts.extend(load(session));
    doubts
}

/// File systems that keep their files in memory, though some of them take O_DIRECT.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "hugetlbfs", "devtmpfs"];

fn memory(session: &Session) -> Option<Doubt> {
    let system = session.device.file_system.as_deref()?;
    IN_MEMORY.contains(&system).then(|| Doubt {
        about: "memory",
        is_serious: true,
        text: format!("{system} is a file system in memory: no disk was measured"),
    })
}

fn flush(session: &Session) -> Option<Doubt> {
    let log = session.pattern("oltp-log")?;
    let taken = micros(log.latency_us.p50);
    let is_fast = log.latency_us.p50 < FLUSH_US_PLAUSIBLE;
    let (is_serious, text) = match (is_fast, session.device.is_write_through) {
        (true, Some(true)) => (
            false,
            format!(
                "a flush takes {taken}; the disk says that it has no cache to flush, and its word is all there is"
            ),
        ),
        (true, _) => (
            true,
            format!(
                "a flush takes {taken}, too little for a device to have stored anything: a protected cache, or no flush at all"
            ),
        ),
        (false, _) => (false, format!("a flush takes {taken}, as long as storing something does")),
    };
    Some(Doubt { about: "flush", is_serious, text })
}

fn cache(session: &Session) -> Doubt {
    let system = session.device.file_system.as_deref().unwrap_or("the file system");
    if !session.is_direct {
        return Doubt {
            about: "cache",
            is_serious: true,
            text: format!("{system} refuses O_DIRECT: what is read comes from memory"),
        };
    }
    let one = session.sweep("random").and_then(|sweep| sweep.steps.first());
    match one.filter(|step| step.measured.latency_us.p50 < READ_US_PLAUSIBLE) {
        Some(step) => Doubt {
            about: "cache",
            is_serious: true,
            text: format!(
                "a read past the page cache takes {}: a cache below answers, not a disk",
                micros(step.measured.latency_us.p50)
            ),
        },
        None => Doubt {
            about: "cache",
            is_serious: false,
            text: format!("{system} takes O_DIRECT: the page cache of this system is out of it"),
        },
    }
}

fn size(session: &Session) -> Option<Doubt> {
    let memory = session.device.memory_bytes?;
    if session.file_bytes > memory {
        return Some(Doubt {
            about: "size",
            is_serious: false,
            text: format!("the test file ({}) is larger than memory", bytes(session.file_bytes)),
        });
    }
    Some(Doubt {
        about: "size",
        is_serious: !session.is_direct,
        text: format!(
            "the test file ({}) is smaller than memory ({}): a cache of a host or of an array may hold it; --size makes it larger",
            bytes(session.file_bytes),
            bytes(memory)
        ),
    })
}

fn payload(session: &Session) -> Doubt {
    let percent = session.compressible_percent;
    let text = match percent {
        0 => "what was written cannot be compressed, nor recognised as written before".to_owned(),
        percent => format!("{percent} % of what was written can be compressed away"),
    };
    Doubt { about: "payload", is_serious: percent > 90, text }
}

fn load(session: &Session) -> Option<Doubt> {
    let load = session.load?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (load > cores as f64 * 0.5).then(|| Doubt {
        about: "load",
        is_serious: load > cores as f64,
        text: format!("the machine had other work: load {load:.1} on {cores} cores"),
    })
}

/// What the figures say, most useful first.
#[must_use]
pub fn sentences(session: &Session) -> Vec<String> {
    let mut said = Vec::new();
    said.extend(commit(session));
    said.extend(backup(session));
    said.extend(session.sweeps.iter().filter_map(|sweep| {
        let knee = sweep.knee?;
        let at = |depth: usize| sweep.steps.iter().find(|step| step.depth == depth);
        let (first, best) = (at(1)?, at(knee)?);
        let gain = best.measured.mib_per_second / first.measured.mib_per_second.max(1e-9);
        let block = bytes(sweep.block_bytes as u64);
        Some(if knee == 1 {
            format!("{} reads of {block} gain nothing from more than one in flight.", sweep.name)
        } else {
            format!(
                "{} reads of {block} gain up to {knee} in flight: x{gain:.1} of one.",
                sweep.name
            )
        })
    }));
    said.extend(scan(session));
    said.extend(processor(session));
    said.iter_mut().for_each(|text| capitalise(text));
    said
}

fn capitalise(text: &mut str) {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
}

fn commit(session: &Session) -> Option<String> {
    let log = session.pattern("oltp-log")?;
    Some(format!(
        "a commit that waits for its flush takes {} in the mean (half of them within {}, 99 of a hundred within {}): {} a second, one after the other.",
        micros(log.latency_us.mean),
        micros(log.latency_us.p50),
        micros(log.latency_us.p99),
        rate(log.iops),
    ))
}

/// A backup and a scan read the same bytes.
fn backup(session: &Session) -> Option<String> {
    let (backup, ahead) = (session.pattern("backup")?, session.pattern("read-ahead")?);
    let ratio = backup.mib_per_second / ahead.mib_per_second.max(1e-9);
    let figures =
        format!("{} against {} MiB/s", rate(backup.mib_per_second), rate(ahead.mib_per_second));
    if ratio < UNLIKE {
        return Some(format!(
            "the backup pattern is {:.1} times slower than read-ahead ({figures}): large requests are cut up or queue somewhere, in a driver or a limit of the host.",
            1.0 / ratio.max(1e-9)
        ));
    }
    if ratio > 1.0 / UNLIKE {
        return Some(format!(
            "the backup pattern is {ratio:.1} times faster than read-ahead ({figures}): scans gain from larger requests."
        ));
    }
    Some(format!("backup and read-ahead are alike ({figures}), as they should be."))
}

/// The compressed scan: neither disk nor processor busy, and slow all the same.
fn scan(session: &Session) -> Option<String> {
    const BLOCK: usize = 64 << 10;
    let at = |depth: usize| {
        session.scans.iter().find(|step| step.block_bytes == BLOCK && step.depth == depth)
    };
    let (one, several) = (&at(1)?.measured, &at(8)?.measured);
    let gain = several.mib_per_second / one.mib_per_second.max(1e-9);
    let (slow, fast) = (rate(one.mib_per_second), rate(several.mib_per_second));
    Some(if gain > 1.5 {
        format!(
            "a scan by single requests of 64 KiB, as of a compressed file, waits {} for each and reads {slow} MiB/s; with 8 in flight it is {fast} MiB/s, x{gain:.1}: alone it leaves disk and processor idle.",
            micros(one.latency_us.mean),
        )
    } else {
        format!(
            "a scan by single requests of 64 KiB loses little here: {slow} MiB/s, with 8 in flight {fast} MiB/s."
        )
    })
}

fn processor(session: &Session) -> Option<String> {
    let busy: Vec<&str> = session
        .patterns
        .iter()
        .filter(|result| core_share(&result.measured) > CORE_SHARE)
        .map(|result| result.name)
        .collect();
    (!busy.is_empty()).then(|| {
        format!("{}: the processor that submits is the limit, not the disk.", busy.join(", "))
    })
}

/// Processor time a second: 1 is one core.
#[must_use]
pub fn core_share(measured: &Measured) -> f64 {
    measured.cpu_us_per_transfer * measured.iops / 1e6
}

/// A real backup, or the reading of a real database, beside the patterns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// Bytes that were read.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Mebibytes a second.
    pub mib_per_second: f64,
    /// Cores that were busy, in the mean; `None` where that is not known.
    pub cores_busy: Option<f64>,
    /// Threads that worked.
    pub jobs: Option<usize>,
    /// Files that were read.
    pub files: Option<u64>,
    /// Whether it lies on the disk that was measured; `None` where that is not known.
    pub is_same_disk: Option<bool>,
}

/// What limits a reading, in words.
#[must_use]
pub fn limits(reading: &Reading, session: &Session) -> Vec<String> {
    let mut said = Vec::new();
    if reading.is_same_disk == Some(false) {
        said.push(
            "It lies on another disk than the one that was measured: no comparison holds."
                .to_owned(),
        );
    }
    let mine = reading.mib_per_second;
    let rates =
        [("backup", session.pattern("backup")), ("read-ahead", session.pattern("read-ahead"))];
    let best = rates
        .iter()
        .filter_map(|(name, measured)| Some((*name, measured.as_ref()?.mib_per_second)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let Some((name, best)) = best.filter(|(_, best)| *best > 0.0 && mine > 0.0) else {
        said.push(
            "The backup and read-ahead patterns were not measured: nothing to hold it against."
                .to_owned(),
        );
        return said;
    };
    said.push(format!(
        "It reads {} MiB/s; this disk gives {} MiB/s in the {name} pattern: x{:.2} of that.",
        rate(mine),
        rate(best),
        mine / best
    ));
    said.push(why(reading, session, mine / best));
    said
}

fn why(reading: &Reading, session: &Session, share: f64) -> String {
    /// Smaller files are opened more than they are read.
    const FILE_BYTES_SMALL: u64 = 256 << 10;
    let busy = reading.cores_busy.zip(reading.jobs).map(|(busy, jobs)| busy / jobs.max(1) as f64);
    let per_file = reading.files.filter(|files| *files > 0).map(|files| reading.bytes / files);
    let alone = session.sweep("sequential").and_then(|sweep| sweep.steps.first());
    let alone = alone.map(|step| step.measured.mib_per_second);
    if share > 1.25 {
        return "That is more than the patterns got: larger requests, huge pages, or a cache on the way.".to_owned();
    }
    if share >= 0.8 {
        return "The disk is the limit: only a faster one would help.".to_owned();
    }
    if let Some(busy) = busy.filter(|busy| *busy > CORE_SHARE) {
        return format!(
            "The processor is the limit: {:.0} % of every thread's time is work.",
            busy * 100.0
        );
    }
    if per_file.is_some_and(|mean| mean < FILE_BYTES_SMALL) {
        let mean = bytes(per_file.unwrap_or(0));
        return format!("Its files are small ({mean} in the mean): opening them takes the time.");
    }
    if alone.is_some_and(|alone| reading.mib_per_second <= alone * 1.2) {
        return format!(
            "It is no faster than one request at a time ({} MiB/s by 256 KiB): too few are in flight.",
            rate(alone.unwrap_or(0.0))
        );
    }
    "Neither the disk nor a processor was its limit: something between them, a driver, a limit of the host, or requests that are too small.".to_owned()
}

/// A time as people read it: `71 us`, `1.2 ms`, `2.5 s`.
#[must_use]
pub fn micros(micros: f64) -> String {
    match micros {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 10_000.0 => format!("{:.1} ms", us / 1000.0),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1000.0),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// Patterns of which nothing is known because the session was stopped.
#[must_use]
pub fn not_run(session: &Session) -> Vec<&'static str> {
    let ran = |pattern: &&Pattern| session.pattern(pattern.name).is_none();
    if session.stopped {
        PATTERNS.iter().filter(ran).map(|pattern| pattern.name).collect()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::device::Device;
    use crate::iotest::measured::LatencySummary;
    use crate::iotest::session::PatternResult;
    use crate::iotest::sweep::{Step, Sweep};

    fn measured(mib_per_second: f64, p50: f64) -> Measured {
        Measured {
            mib_per_second,
            iops: 1000.0,
            latency_us: LatencySummary { p50, mean: p50, ..LatencySummary::default() },
            ..Measured::default()
        }
    }

    fn session(patterns: &[(&'static str, f64, f64)]) -> Session {
        let patterns = patterns.iter().map(|(name, rate, p50)| PatternResult {
            name,
            depth: 8,
            measured: measured(*rate, *p50),
            fio: None,
        });
        let step = Step { depth: 1, block_bytes: 256 << 10, measured: measured(300.0, 800.0) };
        Session {
            patterns: patterns.collect(),
            is_direct: true,
            file_bytes: 1 << 30,
            device: Device { memory_bytes: Some(8 << 30), ..Device::default() },
            sweeps: vec![Sweep {
                name: "sequential",
                block_bytes: 256 << 10,
                steps: vec![step],
                knee: None,
            }],
            ..Session::default()
        }
    }

    fn is_serious(session: &Session, about: &str) -> bool {
        doubts(session).iter().any(|doubt| doubt.about == about && doubt.is_serious)
    }

    #[test]
    fn a_flush_that_is_too_fast_is_doubted_unless_the_disk_has_no_cache() {
        let mut fast = session(&[("oltp-log", 40.0, 71.0)]);
        assert!(is_serious(&fast, "flush"));
        fast.device.is_write_through = Some(true);
        assert!(!is_serious(&fast, "flush"));
        assert!(!is_serious(&session(&[("oltp-log", 4.0, 900.0)]), "flush"));
    }

    #[test]
    fn cached_reads_are_said_to_be_cached() {
        let mut cached = session(&[]);
        cached.is_direct = false;
        assert!(is_serious(&cached, "cache"));
        assert!(is_serious(&cached, "size"));
        assert!(!is_serious(&session(&[]), "cache"));
    }

    /// It takes O_DIRECT, and passes no cache by.
    #[test]
    fn file_system_in_memory_is_the_first_serious_doubt() {
        for system in ["tmpfs", "ramfs"] {
            let mut session = session(&[("oltp-log", 40.0, 2.0)]);
            session.device.file_system = Some(system.to_owned());
            let doubts = doubts(&session);
            assert!(doubts[0].about == "memory" && doubts[0].is_serious, "{doubts:?}");
            assert!(doubts[0].text.contains("a file system in memory"), "{doubts:?}");
            assert!(!doubts.iter().any(|doubt| doubt.about == "cache"), "{doubts:?}");
        }
        assert!(!doubts(&session(&[])).iter().any(|doubt| doubt.about == "memory"));
    }

    #[test]
    fn a_backup_pattern_that_lags_is_named() {
        let slow = session(&[("backup", 200.0, 1.0), ("read-ahead", 600.0, 1.0)]);
        let said = sentences(&slow).join("\n");
        assert!(said.contains("3.0 times slower than read-ahead"), "{said}");
        let alike = session(&[("backup", 580.0, 1.0), ("read-ahead", 600.0, 1.0)]);
        assert!(sentences(&alike).join("\n").contains("alike"));
    }

    #[test]
    fn what_limits_a_reading_is_named() {
        let disk = session(&[("backup", 1000.0, 1.0), ("read-ahead", 900.0, 1.0)]);
        let reading = |mib_per_second: f64| Reading {
            bytes: 1 << 30,
            seconds: 1.0,
            mib_per_second,
            cores_busy: Some(0.5),
            jobs: Some(2),
            files: Some(10),
            is_same_disk: Some(true),
        };
        let said = |reading: &Reading| limits(reading, &disk).join("\n");
        assert!(said(&reading(950.0)).contains("The disk is the limit"));
        assert!(said(&reading(2000.0)).contains("more than the patterns got"));
        assert!(said(&reading(310.0)).contains("too few are in flight"));
        assert!(said(&reading(600.0)).contains("something between"));
        let busy = Reading { cores_busy: Some(1.9), ..reading(500.0) };
        assert!(said(&busy).contains("The processor is the limit"));
        let small = Reading { files: Some(100_000), ..reading(200.0) };
        assert!(said(&small).contains("Its files are small"));
        let elsewhere = Reading { is_same_disk: Some(false), ..reading(950.0) };
        assert!(said(&elsewhere).contains("another disk"));
        assert!(
            limits(&reading(1.0), &session(&[])).join("").contains("nothing to hold it against")
        );
    }

    #[test]
    fn times_read_well() {
        for (us, text) in [
            (7.25, "7.2 us"),
            (71.0, "71 us"),
            (1234.0, "1.2 ms"),
            (25_000.0, "25 ms"),
            (2.5e6, "2.5 s"),
        ] {
            assert_eq!(micros(us), text);
        }
    }
}

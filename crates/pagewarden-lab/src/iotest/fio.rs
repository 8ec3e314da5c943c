//! The same patterns by fio, where it is installed: a second opinion on our own
//! engine, in the same file.
//!
//! fio is handed our descriptor by its number in `/proc`, since the file has no
//! name, and `--readonly` where a pattern only reads.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::iotest::drive::{Method, Trial};
use crate::iotest::measured::{LatencySummary, Measured};
use crate::iotest::patterns::{Access, Pattern, Sync};
use crate::iotest::workplace::Workplace;

/// How often it is asked whether fio has ended.
const POLL: Duration = Duration::from_millis(50);

/// The version of fio, if there is one.
#[must_use]
pub fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Runs a trial by fio.
///
/// # Errors
/// fio cannot be started, fails, or says what is not understood.
pub fn run(
    trial: &Trial<'_>,
    place: &Workplace,
    method: Method,
    stop: &AtomicBool,
) -> anyhow::Result<Measured> {
    let pattern = trial.pattern;
    let context = || format!("fio cannot run {}", pattern.name);
    let mut child = Command::new("fio")
        .args(arguments(trial, place, method))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(context)?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (text, said) = std::thread::scope(|scope| {
        let out = scope.spawn(|| all_of(out.as_mut()));
        let err = scope.spawn(|| all_of(err.as_mut()));
        let ended = wait(&mut child, stop);
        let texts = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        ended.map(|()| texts)
    })
    .with_context(context)?;
    // fio puts warnings before its object.
    let object = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    parse(object, pattern.sync == Sync::EachWrite)
        .with_context(|| format!("{}: {}", context(), said.trim()))
}

fn all_of(source: Option<&mut impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(source) = source {
        let _ = source.take(16 << 20).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, stop: &AtomicBool) -> anyhow::Result<()> {
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("it ended with {status}");
        }
        if stop.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            bail!("stopped");
        }
        std::thread::sleep(POLL);
    }
}

/// The trial in fio's words.
fn arguments(trial: &Trial<'_>, place: &Workplace, method: Method) -> Vec<String> {
    let pattern = trial.pattern;
    let file = match pattern.sync {
        Sync::EachWrite => &place.buffered,
        _ if pattern.only_reads() => &place.reading,
        _ => &place.writing,
    };
    let is_log = pattern.sync == Sync::EachWrite;
    let engine = match method {
        _ if is_log => "psync",
        Method::Ring => "io_uring",
        // Its depth is then that of threads that call pread.
        Method::Threads => "posixaio",
    };
    let streams = pattern.streams();
    let mut arguments = vec![
        format!("--name={}", pattern.name),
        // By the number in our own process: the file has no name.
        format!("--filename=/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()),
        "--output-format=json".to_owned(),
        "--group_reporting".to_owned(),
        "--thread".to_owned(),
        "--fallocate=none".to_owned(),
        "--randrepeat=0".to_owned(),
        format!("--ioengine={engine}"),
        format!("--direct={}", u8::from(place.is_direct && !is_log)),
        // In whole milliseconds: of 0.5 seconds it takes the 0.
        format!("--runtime={}ms", trial.time.as_millis().max(500)),
        format!("--rw={}", mode(pattern)),
        format!("--numjobs={streams}"),
        format!("--iodepth={}", (trial.depth / streams).max(1)),
        format!("--size={}", place.file_bytes / streams as u64),
    ];
    if streams > 1 {
        arguments.push(format!("--offset_increment={}", place.file_bytes / streams as u64));
    }
    let blocks: Vec<String> = pattern
        .blocks
        .iter()
        .map(|block| format!("{}/{}", Pattern::block_bytes(block, trial.page), block.percent))
        .collect();
    arguments.push(format!("--bssplit={}", blocks.join(":")));
    if let Access::Sequential { astray, .. } = pattern.access
        && astray > 0
    {
        arguments.push(format!("--percentage_random={astray}"));
    }
    if pattern.only_reads() {
        arguments.extend(["--readonly".to_owned(), "--time_based".to_owned()]);
    } else {
        let all = trial.written_bytes_max / u64::from(pattern.write_percent.max(1));
        arguments.push(format!("--io_size={}", all.saturating_mul(100)));
    }
    if pattern.write_percent > 0 && pattern.write_percent < 100 {
        arguments.push(format!("--rwmixwrite={}", pattern.write_percent));
    }
    // A map of what was read is our engine's no more than a database's.
    if mode(pattern).starts_with("rand") {
        arguments.push("--norandommap".to_owned());
    }
    match pattern.sync {
        Sync::EachWrite => arguments.push("--fdatasync=1".to_owned()),
        Sync::AtEnd => arguments.push("--end_fsync=1".to_owned()),
        Sync::Never => {}
    }
    arguments
}

fn mode(pattern: &Pattern) -> &'static str {
    let is_random = match pattern.access {
        Access::Random => true,
        // fio takes a share of random blocks only where all may be.
        Access::Sequential { astray, .. } => astray > 0,
    };
    match (pattern.write_percent, is_random) {
        (0, false) => "read",
        (0, true) => "randread",
        (100, false) => "write",
        (100, true) => "randwrite",
        (_, false) => "rw",
        (_, true) => "randrw",
    }
}

/// Reads fio's object. Percentiles are those of the direction that most went; of
/// a direction in which nothing went there are none. Where each write `is_flushed`,
/// they are those of the flushes, which fio counts apart.
fn parse(text: &str, is_flushed: bool) -> anyhow::Result<Measured> {
    let object: Value = serde_json::from_str(text).context("its answer is no JSON")?;
    let job = object.pointer("/jobs/0").context("its answer holds no job")?;
    if let Some(error) = job.get("error").and_then(Value::as_i64).filter(|error| *error != 0) {
        bail!("{}", std::io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(0)));
    }
    let number = |path: &str| job.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let count = |path: &str| job.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let (reads, writes) = (count("/read/total_ios"), count("/write/total_ios"));
    let transfers = reads.saturating_add(writes);
    let seconds = number("/read/runtime").max(number("/write/runtime")) / 1000.0;
    if transfers == 0 || seconds <= 0.0 {
        bail!("it did nothing");
    }
    let (bytes_read, bytes_written) = (count("/read/io_bytes"), count("/write/io_bytes"));
    let most = if reads >= writes { "read" } else { "write" };
    let times = if is_flushed { "sync/lat_ns".to_owned() } else { format!("{most}/clat_ns") };
    let at = |key: &str| number(&format!("/{times}/percentile/{key}")) / 1000.0;
    let flush = if is_flushed { number("/sync/lat_ns/mean") / 1000.0 } else { 0.0 };
    let mean = (number("/read/lat_ns/mean") * reads as f64
        + number("/write/lat_ns/mean") * writes as f64)
        / transfers as f64
        / 1000.0
        + flush;
    let latency_us = LatencySummary {
        mean,
        p50: at("50.000000"),
        p95: at("95.000000"),
        p99: at("99.000000"),
        p999: at("99.900000"),
        max: number(&format!("/{times}/max")) / 1000.0,
    };
    // Percent of the time of its threads, in the mean of them.
    let cpu_seconds = (number("/usr_cpu") + number("/sys_cpu")) / 100.0 * seconds;
    let iops = transfers as f64 / seconds;
    let bytes = bytes_read.saturating_add(bytes_written);
    Ok(Measured {
        bytes_read,
        bytes_written,
        transfers,
        seconds,
        mib_per_second: bytes as f64 / f64::from(1 << 20) / seconds,
        iops,
        latency_us,
        cpu_us_per_transfer: cpu_seconds * 1e6 / transfers as f64,
        outstanding: iops * mean / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::drive::tests::trial;
    use crate::iotest::patterns::PATTERNS;
    use crate::iotest::payload::payload;
    use crate::iotest::workplace::Wanted;

    const BYTES: u64 = 16 << 20;

    #[test]
    fn answer_of_fio_is_understood() {
        // Shortened from fio 3.33; percentiles are absent where nothing went.
        let text = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "backup", "error": 0,
            "usr_cpu": 10.0, "sys_cpu": 15.0,
            "read": {"io_bytes": 1048576000, "total_ios": 1000, "runtime": 2000,
                "lat_ns": {"mean": 500000.0}, "clat_ns": {"max": 900000, "percentile":
                {"50.000000": 400000, "95.000000": 600000, "99.000000": 700000, "99.900000": 800000}}},
            "write": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {"mean": 0.0},
                "clat_ns": {"max": 0}}}]}"#;
        let measured = parse(text, false).unwrap();
        assert!((measured.mib_per_second - 500.0).abs() < 1e-9);
        assert!((measured.iops - 500.0).abs() < 1e-9);
        assert!((measured.latency_us.p99 - 700.0).abs() < 1e-9);
        assert!((measured.outstanding - 0.25).abs() < 1e-9);
        assert!((measured.cpu_us_per_transfer - 500.0).abs() < 1e-9);
        for text in ["", "{}", "{\"jobs\": []}", "{\"jobs\": [{\"error\": 5}]}", "{\"jobs\": [{}]}"]
        {
            assert!(parse(text, false).is_err(), "{text}");
        }
    }

    /// Where fio is installed; `PAGEWARDEN_REQUIRE=fio` forbids that it is not.
    #[test]
    fn fio_runs_every_pattern_in_a_file_without_a_name() {
        if version().is_none() {
            let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
            assert!(!required.contains("fio"), "PAGEWARDEN_REQUIRE names fio: it is not here");
            eprintln!("SKIPPED: fio is not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let payload = payload(0, 1);
        let wanted = Wanted::new(folder.path(), BYTES, &payload);
        let stop = AtomicBool::new(false);
        let place = Workplace::make(&wanted, &stop, &|_| ()).unwrap();
        for pattern in PATTERNS {
            let trial = Trial { time: Duration::from_millis(700), ..trial(pattern) };
            let measured = run(&trial, &place, Method::best(), &stop).unwrap();
            assert!(measured.transfers > 0, "{}", pattern.name);
            assert_eq!(measured.bytes_written == 0, pattern.only_reads(), "{}", pattern.name);
            assert!(measured.bytes_written <= 8 << 20, "{}: {measured:?}", pattern.name);
            if pattern.only_reads() {
                assert!(measured.seconds >= 0.7, "{}: {measured:?}", pattern.name);
            }
        }
        assert_eq!(place.buffered.metadata().unwrap().len(), BYTES);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}

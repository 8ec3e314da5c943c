//! A session on a terminal: a table of the patterns, curves, and sentences. It fits
//! 80 columns.

use std::fmt::Write as _;

use pagewarden::words::{bytes, counted, printable, rate};

use crate::iotest::diagnosis::{limits, micros, not_run, sentences};
use crate::iotest::measured::Measured;
use crate::iotest::report::Beside;
use crate::iotest::session::Session;
use crate::iotest::sweep::Sweep;

/// Lines are no longer.
const WIDTH: usize = 80;

/// The session as text.
#[must_use]
pub fn text(session: Option<&Session>, folder: &str, beside: &Beside) -> String {
    let mut text = String::new();
    if let Some(session) = session {
        head(&mut text, session, folder);
        if !session.patterns.is_empty() {
            patterns(&mut text, session);
        }
        fio(&mut text, session);
        curves(&mut text, session);
        said(&mut text, "What it says", &sentences(session));
        let doubts: Vec<String> = session
            .doubts
            .iter()
            .map(|doubt| {
                let word = if doubt.is_serious { "doubtful" } else { "fine" };
                format!("{word}: {} - {}", doubt.about, doubt.text)
            })
            .collect();
        said(&mut text, "How far to believe it", &doubts);
    }
    for judgement in &beside.judged {
        let name = match judgement.backup.statement.as_str() {
            "" => "A backup",
            statement => statement,
        };
        said(&mut text, name, &judgement.sentences);
    }
    if let (Some((path, reading)), Some(session)) = (&beside.against, session) {
        said(&mut text, &format!("Reading {}", printable(path)), &limits(reading, session));
    }
    if let Some(session) = session {
        last(&mut text, session);
    }
    text
}

fn head(text: &mut String, session: &Session, folder: &str) {
    let system = session.device.file_system.as_deref().unwrap_or("an unknown file system");
    let disk = session.device.disk.as_deref().unwrap_or("a disk that does not say what it is");
    let _ = writeln!(text, "{}: {system} on {disk}", printable(folder));
    let way = if session.is_direct { "past the page cache" } else { "through the page cache" };
    let _ = writeln!(
        text,
        "  a file of {}, {way}, by {}; pages of {}\n",
        bytes(session.file_bytes),
        session.method,
        bytes(session.page_bytes as u64)
    );
}

fn row(text: &mut String, name: &str, measured: &Measured) {
    let latency = &measured.latency_us;
    let _ = writeln!(
        text,
        "{name:<14}{:>7}{:>9}{:>7}{:>7}{:>7}{:>7}{:>7}{:>8}{:>6.1}",
        rate(measured.mib_per_second),
        rate(measured.iops),
        short(latency.p50),
        short(latency.p95),
        short(latency.p99),
        short(latency.p999),
        short(latency.max),
        short(measured.cpu_us_per_transfer),
        measured.outstanding,
    );
}

/// `71us`, `1.2ms`: for columns.
fn short(us: f64) -> String {
    micros(us).replace(' ', "")
}

fn patterns(text: &mut String, session: &Session) {
    let _ = writeln!(
        text,
        "{:<14}{:>7}{:>9}{:>7}{:>7}{:>7}{:>7}{:>7}{:>8}{:>6}",
        "pattern", "MiB/s", "IOPS", "p50", "p95", "p99", "p99.9", "max", "cpu/IO", "open"
    );
    for result in &session.patterns {
        row(text, result.name, &result.measured);
        if let (true, Some(dsync)) = (result.name == "oltp-log", &session.log_by_dsync) {
            row(text, "  by O_DSYNC", dsync);
        }
    }
    let _ = writeln!(text, "(open: requests under way at a time, in the mean)\n");
}

fn fio(text: &mut String, session: &Session) {
    let Some(version) = &session.fio else { return };
    let _ = writeln!(
        text,
        "{:<14}{:>9}{:>9}{:>8}{:>9}{:>9}",
        version, "MiB/s", "ours", "ratio", "p50", "ours"
    );
    for result in &session.patterns {
        let Some(fio) = &result.fio else { continue };
        let _ = writeln!(
            text,
            "{:<14}{:>9}{:>9}{:>8.2}{:>9}{:>9}",
            result.name,
            rate(fio.mib_per_second),
            rate(result.measured.mib_per_second),
            result.measured.mib_per_second / fio.mib_per_second.max(1e-9),
            short(fio.latency_us.p50),
            short(result.measured.latency_us.p50),
        );
    }
    text.push('\n');
}

fn curves(text: &mut String, session: &Session) {
    for sweep in session.sweeps.iter().filter(|sweep| !sweep.steps.is_empty()) {
        curve(text, sweep);
    }
    if session.scans.is_empty() {
        return;
    }
    let _ = writeln!(text, "scans, one request at a time and 8:");
    let mut line = String::new();
    for step in &session.scans {
        let block = bytes(step.block_bytes as u64);
        let figure = rate(step.measured.mib_per_second);
        if step.depth == 1 {
            let _ = write!(line, "  {block}: {figure}");
        } else {
            let _ = write!(line, ", {figure} MiB/s;");
        }
    }
    let _ = writeln!(text, "{}\n", line.trim_end_matches(';'));
}

fn curve(text: &mut String, sweep: &Sweep) {
    let knee = sweep.knee.map_or(String::new(), |knee| format!(" (knee at {knee})"));
    let _ = writeln!(
        text,
        "{} reads of {}, by requests in flight{knee}:",
        sweep.name,
        bytes(sweep.block_bytes as u64)
    );
    let mut line = |name: &str, cell: &dyn Fn(&crate::iotest::sweep::Step) -> String| {
        let _ = write!(text, "  {name:<10}");
        for step in &sweep.steps {
            let _ = write!(text, "{:>9}", cell(step));
        }
        text.push('\n');
    };
    line("in flight", &|step| step.depth.to_string());
    line("MiB/s", &|step| rate(step.measured.mib_per_second));
    line("p50", &|step| short(step.measured.latency_us.p50));
    line("p99", &|step| short(step.measured.latency_us.p99));
    text.push('\n');
}

fn said(text: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for sentence in sentences {
        wrapped(text, sentence);
    }
    text.push('\n');
}

/// A sentence as an item of a list.
fn wrapped(text: &mut String, sentence: &str) {
    let mut line = String::from("  -");
    for word in sentence.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = String::from("   ");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn last(text: &mut String, session: &Session) {
    let serious = session.doubts.iter().filter(|doubt| doubt.is_serious).count();
    let missing = not_run(session);
    let read: u64 = session.patterns.iter().map(|result| result.measured.bytes_read).sum();
    if session.stopped {
        let rest = if missing.is_empty() { "the rest".to_owned() } else { missing.join(", ") };
        let _ = writeln!(text, "Stopped early, without:");
        wrapped(text, &rest);
    }
    let doubts = match serious {
        0 => String::new(),
        count => format!("{}; ", counted(count as u64, "doubt")),
    };
    let _ = writeln!(
        text,
        "{}: {} read, {} written; {doubts}nothing left behind",
        counted(session.patterns.len() as u64, "pattern"),
        bytes(read),
        bytes(session.bytes_written),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iotest::diagnosis::doubts;
    use crate::iotest::measured::LatencySummary;
    use crate::iotest::patterns::PATTERNS;
    use crate::iotest::session::PatternResult;
    use crate::iotest::sweep::{DEPTHS, Step};

    fn session() -> Session {
        let measured = Measured {
            bytes_read: 99_999_999_999,
            mib_per_second: 12_345.6,
            iops: 1_234_567.0,
            latency_us: LatencySummary {
                mean: 900.0,
                p50: 123.0,
                p95: 5_678.0,
                p99: 123_456.0,
                p999: 999_999.0,
                max: 9_999_999.0,
            },
            cpu_us_per_transfer: 123.4,
            outstanding: 31.9,
            ..Measured::default()
        };
        let steps: Vec<Step> = DEPTHS
            .iter()
            .map(|depth| Step { depth: *depth, block_bytes: 8192, measured })
            .collect();
        let patterns = PATTERNS.iter().map(|pattern| PatternResult {
            name: pattern.name,
            depth: pattern.depth,
            measured,
            fio: Some(measured),
        });
        let mut session = Session {
            file_bytes: 1 << 30,
            page_bytes: 8192,
            is_direct: true,
            method: "io_uring",
            fio: Some("fio-3.33".to_owned()),
            patterns: patterns.collect(),
            log_by_dsync: Some(measured),
            sweeps: vec![Sweep { name: "random", block_bytes: 8192, knee: Some(16), steps }],
            scans: [(1, 64 << 10), (8, 64 << 10)]
                .map(|(depth, block_bytes)| Step { depth, block_bytes, measured })
                .to_vec(),
            load: Some(99.0),
            bytes_written: 3_999_999_999,
            ..Session::default()
        };
        session.doubts = doubts(&session);
        session
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_nothing_is_missing() {
        let text = text(Some(&session()), "/srv/data", &Beside::default());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{}: {line}", line.chars().count());
        }
        for pattern in PATTERNS {
            assert!(text.contains(pattern.name), "{text}");
        }
        for part in
            ["knee at 16", "by O_DSYNC", "fio-3.33", "doubtful: load", "nothing left behind"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_missing_of_a_stopped_session_is_told() {
        let mut session = session();
        session.stopped = true;
        session.patterns.clear();
        let text = text(Some(&session), "/srv/data", &Beside::default());
        let (_, rest) = text.split_once("Stopped early, without:").unwrap();
        assert!(rest.contains("oltp-log") && rest.contains("checkdb"), "{rest}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn a_path_cannot_speak_to_the_terminal() {
        let text = text(Some(&session()), "/srv/\u{1b}[2J", &Beside::default());
        assert!(!text.contains('\u{1b}'));
    }
}

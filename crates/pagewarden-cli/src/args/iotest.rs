//! The command line of `pagewarden iotest`.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use pagewarden::source::rate::Rate;
#[cfg(unix)]
use pagewarden_lab::iotest::patterns::PATTERNS;

/// Measure what a disk can do, by the patterns of database work
///
/// Creates an unnamed file in DIR, reads and writes it as a log, a buffer pool, a bulk load, a
/// scan, a backup, a restore and a verification do, and frees its space however the run ends. Takes under 2 minutes, less than
/// 2 GiB of room, and writes less than 4 GiB. Nothing that exists is written to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden iotest /var/lib/postgresql                    what this disk can do\n  \
    pagewarden iotest --against /var/lib/mysql /var/lib      and what of it a database gets\n  \
    pagewarden iotest --engine fio --size 8GiB /srv          with fio's figures beside ours\n  \
    pagewarden iotest --judge messages.txt /srv              what BACKUP TO NUL: said of it\n  \
    pagewarden iotest --judge messages.txt                   only what the messages say\n\n\
    Exit status: 0 measured, 2 it could not be measured, 3 stopped early: what was measured until\n\
    then is shown.")]
pub struct Iotest {
    /// The folder to measure in: a real one, no symbolic link, on the disk in question
    #[arg(value_name = "DIR", required_unless_present = "judge")]
    pub folder: Option<PathBuf>,

    /// Bytes in the test file; larger than the caches of a host or an array, if it can be
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = super::parse_size)]
    pub size: u64,

    /// Bytes to leave free in the file system [default: 1GiB, or a tenth of it if that is less]
    #[arg(long, value_name = "BYTES", value_parser = super::parse_size)]
    pub reserve: Option<u64>,

    /// A page of the database: 8KiB (PostgreSQL, SQL Server), 16KiB (InnoDB), 4KiB (SQLite)
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = parse_page)]
    pub page_size: usize,

    /// How long each pattern is run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = super::parse_time)]
    pub time: Duration,

    /// Only this pattern; may be given several times
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(pattern_names()))]
    pub pattern: Vec<String>,

    /// Leave out the sweep over requests in flight and the scans
    #[arg(long)]
    pub no_sweep: bool,

    /// Compressible share of the written data, for example 50%
    #[arg(long, value_name = "PERCENT", default_value = "0",
        value_parser = parse_share)]
    pub compressible: u8,

    /// Who runs the patterns: we, or fio too, as a second opinion
    #[arg(long, value_name = "ENGINE", default_value = "own",
        value_parser = PossibleValuesParser::new(["own", "fio"]))]
    pub engine: String,

    /// How to keep requests in flight
    #[arg(long, value_name = "METHOD", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "uring", "threads"]))]
    pub io: String,

    /// Also read this database and discard it, and say what limits the reading
    #[arg(long, value_name = "PATH", requires = "folder")]
    pub against: Option<PathBuf>,

    /// Judge what BACKUP ... TO DISK = 'NUL:' said, in any language; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub judge: Vec<PathBuf>,

    /// Threads that read for --against [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Read and write no faster than this, for example 200MiB/s: for a disk that others need;
    /// none is no ceiling
    #[arg(long, value_name = "BYTES/S", value_parser = super::parse_rate,
        default_value = "none", hide_default_value = true)]
    pub rate: Rate,

    #[command(flatten)]
    pub shown: super::Shown,
}

/// None where it does not run.
#[cfg(not(unix))]
fn pattern_names() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(unix)]
fn pattern_names() -> Vec<&'static str> {
    PATTERNS.iter().map(|pattern| pattern.name).collect()
}

/// Sizes that pages of databases have.
fn parse_page(text: &str) -> Result<usize, String> {
    let bytes = super::parse_size(text)?;
    match usize::try_from(bytes) {
        Ok(page) if page.is_power_of_two() && (4096..=65_536).contains(&page) => Ok(page),
        _ => Err(format!("'{text}' is no page size (4KiB, 8KiB, 16KiB, 32KiB or 64KiB)")),
    }
}

fn parse_share(text: &str) -> Result<u8, String> {
    let percent = super::parse_percent(text)?;
    // Whole percents will do, and the range was checked.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(percent.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_those_of_databases() {
        assert_eq!(parse_page("16KiB"), Ok(16_384));
        for text in ["512", "12KiB", "1MiB", "x"] {
            assert!(parse_page(text).is_err(), "{text}");
        }
        assert_eq!(parse_share("50%"), Ok(50));
        assert!(parse_share("101").is_err());
    }
}

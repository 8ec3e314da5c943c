//! The command line. What is said here is also the help and the man page.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand};
use pagewarden::source::rate::Rate;
use pagewarden_plan::part::Part;

#[cfg(test)]
mod book;
pub mod checksum;
pub mod compare;
pub mod cost;
pub mod evidence;
pub mod help;
pub mod iotest;
pub mod mount;
pub mod pack;
pub mod plan;
pub mod protect;
pub mod repair;
pub mod scrub;
pub mod serve;
pub mod status;
pub mod storage;
pub mod survey;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Is my data still what was written?
///
/// Pagewarden verifies the pages of database files and data directories,
/// without needing the server. Only `protect` and `repair --yes` ever write to them.
#[derive(Debug, Parser)]
#[command(name = "pagewarden", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = "Example:\n  pagewarden check /var/lib/postgresql/15/main\n\n\
    Exit status: 0 nothing wrong, 1 something is wrong, 2 could not look at all of it,\n\
    3 stopped early.")]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Check(Box<Check>),
    Plan(plan::Plan),
    Merge(plan::Merge),
    Unpack(Unpack),
    Pack(pack::Pack),
    Mount(mount::Mount),
    Protect(protect::Protect),
    Repair(repair::Repair),
    Checksum(checksum::Checksum),
    Compare(compare::Compare),
    Cost(cost::Cost),
    Iotest(iotest::Iotest),
    Survey(survey::Survey),
    Scrub(scrub::Scrub),
    Status(status::Status),
    Serve(serve::Serve),
    Evidence(evidence::Evidence),
    Completions(Completions),
    Man(Man),
}

/// Verify every page of database files and data directories
///
/// Finds out by itself what each PATH is: a data directory of PostgreSQL, MySQL
/// or MariaDB, a folder or a file in one, a SQL Server data file, a backup, a
/// SQLite or a DuckDB database, a Parquet file. Reads only what is named, and writes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden check /var/lib/postgresql/15/main      a whole cluster, running or not\n  \
    pagewarden check base/5/16397 shop.sqlite         one relation, one SQLite database\n  \
    pagewarden check /var/lib/mysql                   MySQL or MariaDB, running or not\n  \
    pagewarden check shop/orders.ibd                  one InnoDB tablespace\n  \
    pagewarden check backup/base.tar.gz               a base backup as it lies\n  \
    pagewarden check shop1.bak shop2.bak              a SQL Server backup in two stripes\n  \
    pagewarden check s3://backups/pgbackrest          backups in object storage\n  \
    pg_basebackup -D - -Ft -X none | pagewarden check -\n  \
    mariabackup --backup --stream=xbstream | pagewarden check -\n  \
    pagewarden check --json --rate 100MiB/s DIR       for scripts, at a gentle pace\n\n\
    Exit status: 0 nothing wrong, 1 damage found (or --strict, --require-protection or\n\
    --min-protected not met), 2 not everything could be looked at, 3 stopped early.")]
pub struct Check {
    /// Databases or backups; - reads a backup from standard input
    ///
    /// Repositories of backups, archives and single files, and folders of them, may also be in object
    /// storage: s3://BUCKET/PREFIX, gs://, az://, https://.
    #[arg(required_unless_present = "plan", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Check a part of a plan that `pagewarden plan` made; `pagewarden merge` puts results together
    #[arg(long, value_name = "PLAN", requires = "output", help_heading = "Plans",
        conflicts_with_all = ["paths", "format", "wal", "log", "keyring", "base", "stanza", "set", "latest",
        "no_log", "restore_drill", "cipher_pass_file", "settle", "map", "picture", "html", "metrics", "no_witness", "structure",
        "seal", "against", "accept_unverifiable", "server", "repair_from", "config"])]
    pub plan: Option<PathBuf>,

    /// Which part of the plan: 2/5 is the second of five
    #[arg(long, value_name = "I/N", requires = "plan", help_heading = "Plans")]
    pub part: Option<Part>,

    /// Where to write the result of the part
    #[arg(short, long, value_name = "RESULT", requires = "plan", help_heading = "Plans")]
    pub output: Option<PathBuf>,

    /// Take every PATH for this format instead of finding out
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(format_names()))]
    pub format: Option<String>,

    /// Where more of a PostgreSQL cluster's log lies than in its pg_wal, such as an archive
    ///
    /// Tells which torn pages of a crashed cluster or a backup recovery will mend.
    #[arg(long, value_name = "DIR")]
    pub wal: Option<PathBuf>,

    /// The folder in which the log of the server is archived that the backups are of
    ///
    /// What archive_command copies or pg_receivewal receives, compressed or not; of backups by
    /// mariabackup or xtrabackup, the folder with the server's binary logs. Reads all of it, and
    /// says which moments each BACKUP can be brought to, and which files are missing.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["seal", "against", "server", "stanza", "set", "latest", "no_log"])]
    pub log: Option<PathBuf>,

    /// A file with the keys of encrypted InnoDB pages
    ///
    /// That of MySQL's component_keyring_file (JSON), or of MariaDB's
    /// file_key_management. Without it, pages that need a key count as
    /// unverifiable.
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// A pack that a delta builds on (pack --base); may be given several times
    ///
    /// Without it, only what a delta itself holds is verified.
    #[arg(long, value_name = "OLDER.pwk")]
    pub base: Vec<PathBuf>,

    /// Of a backup repository, only this stanza (pgBackRest) or server
    #[arg(long, value_name = "NAME")]
    pub stanza: Option<String>,

    /// Of a backup repository, only the set of this label; may be given several times
    #[arg(long, value_name = "LABEL")]
    pub set: Vec<String>,

    /// Of a backup repository, only the newest set
    #[arg(long, conflicts_with = "set")]
    pub latest: bool,

    /// Do not read the archived log of a backup repository
    #[arg(long)]
    pub no_log: bool,

    /// Of a PostgreSQL backup, restore the newest set, or this one, into a temporary server, and read all of it
    ///
    /// It is brought back to a temporary folder (TMPDIR says where), a server of the same version, which
    /// must be installed here, replays the log to its end, every row is read, and pg_amcheck
    /// looks at tables and indexes. Then all of it is removed.
    #[arg(long, value_name = "SET", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub restore_drill: Option<String>,

    /// A file with the passphrase of an encrypted backup repository
    ///
    /// The passphrase of pgBackRest, or the libsodium key of WAL-G. Without it the tool's own
    /// variable is used: PGBACKREST_REPO1_CIPHER_PASS, WALG_LIBSODIUM_KEY.
    #[arg(long, value_name = "FILE")]
    pub cipher_pass_file: Option<PathBuf>,

    #[command(flatten)]
    pub storage: storage::StorageOptions,

    /// Wait so long for a running server's next checkpoint where evidence needs one, as in 10m
    ///
    /// A hole between the files of a running server may be a moment's matter.
    /// What still stands after a checkpoint that began and ended since the
    /// first look is damage; without one it stays suspect.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub settle: Option<Duration>,

    /// Ask the running server which files it has: mysql://USER@HOST/, mysql://USER@/?socket=PATH
    ///
    /// MySQL 8.0 and later, MariaDB 10.2 and later, with the PROCESS privilege and no other. Files
    /// that are missing, cut or begin with zeroes are then told of a server that runs, too.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,

    /// A file with the password for --server
    #[arg(long, value_name = "FILE", requires = "server")]
    pub password_file: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Print one line for a monitoring system, and exit as its plugins do
    ///
    /// 0 OK; 1 WARNING: something is suspect, or --require-protection or
    /// --min-protected is missed; 2 CRITICAL: damage; 3 UNKNOWN: not
    /// everything could be looked at.
    #[arg(long, conflicts_with = "json")]
    pub nagios: bool,

    /// Draw a map of the pages after the report
    #[arg(long, conflicts_with_all = ["json", "nagios"])]
    pub map: bool,

    /// Write the report as a web page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Draw the map of the pages as an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,

    /// Write figures for Prometheus (node_exporter's textfile collector)
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// Judge every page by itself only
    ///
    /// Else, in a PostgreSQL cluster that was shut down cleanly, catalogues,
    /// visibility maps, indexes and summaries of the log are asked which files
    /// must be there and which pages were in use.
    #[arg(long)]
    pub no_witness: bool,

    /// Also compare pages with one another: trees, lists, rows with their index entries
    ///
    /// SQLite, and PostgreSQL after a clean stop: rows against indexes, and the order
    /// of keys; PostgreSQL also TOAST values. InnoDB: records, keys, rows against indexes
    /// and long values, of a running server each page by itself. Without it, all else that pages say of
    /// one another is looked at.
    #[arg(long, conflicts_with = "no_witness")]
    pub structure: bool,

    /// Write a seal: what the database looks like now, if nothing is wrong with it
    ///
    /// Holds a fingerprint of every page, about ten bytes each; --against compares the
    /// database with it on another day.
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    pub seal: Option<PathBuf>,

    /// Compare the database with a seal of an earlier day
    ///
    /// Finds what no page tells: zeroed pages, pages that went back to an older
    /// version, files that were cut or are gone.
    #[arg(long, value_name = "SEAL")]
    pub against: Option<PathBuf>,

    /// Name the command that plans a repair from this source beside each damaged page
    ///
    /// Anything that `repair --from` takes; may be given several times. The source is not read.
    #[arg(long, value_name = "SOURCE")]
    pub repair_from: Vec<PathBuf>,

    /// Folder with archived log for that command
    #[arg(long, value_name = "DIR", requires = "repair_from")]
    pub repair_log: Vec<PathBuf>,

    /// The configuration of scrub: its repair_from and repair_log, for databases that it names
    #[arg(long, value_name = "FILE", conflicts_with = "repair_from")]
    pub config: Option<PathBuf>,

    /// Do not count pages that need a key or a reader that is missing as a gap in the check
    ///
    /// They are still counted as unverifiable. Without this, one such page makes
    /// the verdict incomplete and the exit status 2.
    #[arg(long)]
    pub accept_unverifiable: bool,

    /// Say what pages are tested by, and which damage these tests cannot detect
    #[arg(short, long, conflicts_with_all = ["json", "nagios"])]
    pub verbose: bool,

    #[command(flatten)]
    pub demands: Demands,

    /// Threads that verify pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Read past the page cache, to judge what the device holds
    #[arg(long, conflicts_with = "cached")]
    pub direct: bool,

    /// Read through the page cache only
    #[arg(long)]
    pub cached: bool,

    /// How to keep direct reads in flight
    #[arg(long, value_name = "METHOD", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "uring", "threads"]))]
    pub io: String,

    #[command(flatten)]
    pub pace: ReadLimits,
}

/// What must be so for an exit status of 0, besides that nothing is damaged
#[derive(Debug, Clone, Copy, Args)]
pub struct Demands {
    /// Exit with 1 also when something is merely suspect
    #[arg(long)]
    pub strict: bool,

    /// Exit with 1 when the database is not set to protect its pages, or none is protected
    #[arg(long)]
    pub require_protection: bool,

    /// Exit with 1 when less than this share of the pages in use is protected
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub min_protected: Option<f64>,
}

/// Extract the files of a pack, or the data files of a SQL Server backup
///
/// From a pack: the same files again, with their modes and times, and as root with their owners.
/// DIR must not exist or be empty, and gets its name when everything is verified and on the
/// device. Run the same command again to resume an interrupted run.
///
/// From a backup: every page is verified on the way, and written as it is in the backup; damaged
/// pages are reported and extracted as they are. The backup's log is not applied, so the files
/// are not a consistent database. Parts of a file that the backup leaves out are holes. Existing
/// files are not overwritten.
#[derive(Debug, Args)]
#[command(
    override_usage = "pagewarden unpack [OPTIONS] <FILE>... <DIR>",
    after_help = "Examples:\n  \
    pagewarden unpack old.pwk DIR               all that was packed\n  \
    pagewarden unpack old.pwk --only base/5 DIR a part of it\n  \
    pagewarden unpack new.pwk DIR --base old.pwk  a delta and its base\n  \
    pagewarden unpack --salvage cut.pwk DIR     the sound part of a damaged pack\n  \
    pagewarden unpack shop.bak files/           the data files of a backup\n  \
    pagewarden unpack a.bak b.bak files/        of one that is striped over two files\n  \
    pagewarden unpack --set 2 shop.bak files/   of the second backup in the file\n  \
    pagewarden unpack s3://packs/old.pwk DIR    a pack in object storage\n\n\
    Exit status: 0 all extracted and nothing wrong, 1 damage found, 2 not all of it could be\n\
    extracted, 3 stopped early."
)]
pub struct Unpack {
    /// A pack, or the files of one backup, all its stripes; last, the folder to extract to
    ///
    /// The folder is made if it does not exist. A file may also be in object storage:
    /// s3://BUCKET/KEY, gs://, az://, https://.
    #[arg(required = true, value_name = "FILE... DIR")]
    pub files: Vec<PathBuf>,

    /// The last of `files`, after [`Unpack::take_folder`]: as an argument of its own it could not
    /// stand behind options.
    #[arg(skip)]
    pub folder: PathBuf,

    /// Of a pack only this file or folder; may be given several times
    #[arg(long, value_name = "NAME")]
    pub only: Vec<PathBuf>,

    /// A pack that a delta builds on (pack --base); may be given several times
    ///
    /// What is not named is looked for beside the pack that builds on it.
    #[arg(long, value_name = "OLDER.pwk")]
    pub base: Vec<PathBuf>,

    /// Put a tablespace (or other linked folder) that was at OLD at NEW
    ///
    /// As in pg_basebackup: both are absolute paths, NEW must not exist or be empty. To put it
    /// where it was, name OLD twice.
    #[arg(short = 'T', long, value_name = "OLD=NEW", value_parser = parse_mapping)]
    pub tablespace_mapping: Vec<(PathBuf, PathBuf)>,

    /// Extract what is sound of a truncated or altered pack, and name what is lost
    ///
    /// A file of which something is missing gets .partial behind its name, with
    /// holes where it is.
    #[arg(long)]
    pub salvage: bool,

    /// Which of several backup sets, counted from 1 on, as RESTORE does (FILE = 1)
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub set: u32,

    /// Put back the bits of each sound page that torn bits displaced, and take their flag off
    ///
    /// For programs that read rows. The engine does this itself when it reads a
    /// page; without this option files are as RESTORE writes them.
    #[arg(long)]
    pub restore_bits: bool,

    /// Files are always as long as they were; scripts of earlier versions name this
    #[arg(long, hide = true)]
    pub full_size: bool,

    #[command(flatten)]
    pub storage: storage::StorageOptions,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Threads that verify pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    #[command(flatten)]
    pub pace: ReadLimits,
}

impl Unpack {
    /// Takes the folder from the end of the names. None if there is nothing before it.
    #[must_use]
    pub fn take_folder(mut self) -> Option<Self> {
        self.folder = self.files.pop()?;
        (!self.files.is_empty()).then_some(self)
    }
}

/// How fast a command reads, and what is seen of it meanwhile
#[derive(Debug, Args)]
pub struct ReadLimits {
    /// Read no faster than this, for example 200MiB/s; none is no ceiling; auto yields to
    /// whatever else uses the disk, and is the default where a server lives on it
    #[arg(long, value_name = "BYTES/S", value_parser = parse_rate)]
    pub rate: Option<Rate>,

    /// Show no progress
    #[arg(short, long, conflicts_with = "progress")]
    pub quiet: bool,

    /// Show progress as plain lines, every few seconds, also without a terminal
    #[arg(long)]
    pub progress: bool,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  pagewarden completions bash > /etc/bash_completion.d/pagewarden"
)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pagewarden man /usr/local/share/man/man1")]
pub struct Man {
    /// Where to write pagewarden.1, pagewarden-check.1 ...
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Write pages of the book instead: check.md ...
    #[arg(long, hide = true)]
    pub markdown: bool,
}

/// What a command shows, and while it runs. Also behind a word such as `analyse`, where a command
/// takes one.
#[derive(Debug, Clone, Copy, Args)]
pub struct Shown {
    /// Print one JSON object on standard output
    #[arg(long, global = true)]
    pub json: bool,

    /// Show no progress
    #[arg(short, long, conflicts_with = "progress", global = true)]
    pub quiet: bool,

    /// Show progress as plain lines, every few seconds, also without a terminal
    #[arg(long, global = true)]
    pub progress: bool,
}

fn parse_mapping(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let is_escaped = |at: usize| text.get(..at).is_some_and(|before| before.ends_with('\\'));
    let middle = text.match_indices('=').map(|(at, _)| at).find(|at| !is_escaped(*at));
    let (old, new) = middle.and_then(|at| text.split_at_checked(at)).ok_or("it is OLD=NEW")?;
    let path = |text: &str| PathBuf::from(text.replace("\\=", "="));
    let (old, new) = (path(old), path(new.get(1..).unwrap_or_default()));
    if old.is_absolute() && new.is_absolute() {
        Ok((old, new))
    } else {
        Err("both paths must be absolute".to_owned())
    }
}

fn format_names() -> Vec<&'static str> {
    pagewarden::formats::FORMATS.iter().map(|kind| kind.name).collect()
}

/// A size as people write it: `8KiB`, `64 MB`, `1G`, `512`. Units by powers of
/// 1024, but for `kB`, `MB`, `GB`, `TB`, which are powers of 1000.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" | "bytes" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => return Err(format!("unknown unit '{other}' (try KiB, MiB, GiB, kB, MB, GB)")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "the size is too large".to_owned());
    }
    let number: f64 =
        number.parse().map_err(|_| format!("'{text}' is not a size (try 8KiB, 64 MB)"))?;
    let bytes = (number * factor as f64).round();
    // 2^53: up to here a double counts bytes exactly.
    if (0.0..9_007_199_254_740_992.0).contains(&bytes) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(bytes as u64)
    } else {
        Err("the size is too large".to_owned())
    }
}

/// The lowest ceiling that is taken. Below it a run ends on no day that its user meant.
const RATE_MIN: u64 = 1 << 20;

/// A rate as people write it: `200MiB/s`, `1G`, `none`, `auto`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let text = text.trim();
    match text {
        "none" => return Ok(Rate::Unlimited),
        "auto" => return Ok(Rate::Yielding),
        _ => {}
    }
    let size = text.strip_suffix("/s").unwrap_or(text).trim_end();
    if !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("a rate needs a unit\nhint: --rate {size}MiB/s, or --rate none"));
    }
    let bytes = parse_size(size)?;
    match NonZero::new(bytes).filter(|bytes| bytes.get() >= RATE_MIN) {
        Some(bytes) => Ok(Rate::AtMost(bytes)),
        None => Err("a rate below 1 MiB/s would hardly end\n\
                     hint: --rate 1MiB/s is the lowest; --rate none is no ceiling"
            .to_owned()),
    }
}

/// A time as people write it: `30s`, `10m`, `1.5h`, `7d`, `90`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        other => return Err(format!("unknown unit '{other}' (try 30s, 10m, 1h, 7d)")),
    };
    let number: f64 =
        number.parse().map_err(|_| format!("'{text}' is not a time (try 30s, 10m, 1h)"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("'{text}' is too long"))
}

pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_ascii_lowercase(), value.to_owned())),
        _ => Err("not KEY=VALUE".to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("8KiB", 8192),
            ("64 MB", 64_000_000),
            ("1G", 1 << 30),
            ("512", 512),
            ("1.5k", 1536),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1.2.3", "5 miles", "-1", "99999999999T", "1e400", "NaN"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("10m", 600_000),
            ("30 s", 30_000),
            ("1.5h", 5_400_000),
            ("90", 90_000),
            ("5ms", 5),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "m", "10 moons", "-1s", "1.2.3s", "99999999999999999999h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_and_percentages_are_checked() {
        for (text, bytes) in
            [("200MiB/s", 200 << 20), ("1 MiB/s", 1 << 20), ("2MB", 2_000_000), ("1.5G", 3 << 29)]
        {
            assert_eq!(parse_rate(text).map(Rate::ceiling), Ok(NonZero::new(bytes)), "{text}");
        }
        assert_eq!(parse_rate("none"), Ok(Rate::Unlimited));
        assert_eq!(parse_rate("auto"), Ok(Rate::Yielding));
        for text in ["0", "5", "5/s", "200000000", "0MiB/s", "1MB/s", "1023KiB/s", "", "fast"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_percent("99%"), Ok(99.0));
        assert!(parse_percent("101%").is_err());
        assert!(parse_percent("NaN").is_err());
    }
}

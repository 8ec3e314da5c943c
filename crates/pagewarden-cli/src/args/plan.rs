//! Arguments of `plan` and `merge`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::args::storage::StorageOptions;
use crate::args::{Demands, format_names, parse_size, parse_time};

/// Split one check into units for several machines
///
/// Lists what `check` would look at, and writes the list to a file. Each unit is one or more whole
/// databases: what is said of a database follows from all of its files. Options that decide how
/// databases are judged belong to the plan. Name absolute paths if the parts run in other folders.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    pagewarden plan /backups -o plan.jsonl\n  \
    pagewarden check --plan plan.jsonl --part 1/2 -o 1.jsonl      on one machine\n  \
    pagewarden check --plan plan.jsonl --part 2/2 -o 2.jsonl      on another\n  \
    pagewarden merge plan.jsonl 1.jsonl 2.jsonl                   one report, as of one check")]
pub struct Plan {
    /// Data directories, database files, backups, folders of them; s3://, gs://, az:// addresses
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Where to write the plan
    #[arg(short, long, value_name = "PLAN")]
    pub output: PathBuf,

    /// Put databases that follow one another into one unit, up to this size
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = parse_size)]
    pub unit: u64,

    /// Take every PATH for this format instead of finding out
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(format_names()))]
    pub format: Option<String>,

    /// Where more of a PostgreSQL cluster's log lies than in its pg_wal, such as an archive
    #[arg(long, value_name = "DIR")]
    pub wal: Option<PathBuf>,

    /// A file with the keys of encrypted InnoDB pages; the plan holds its name only
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// A pack that a delta builds on (pack --base); may be given several times
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

    /// A file with the passphrase of an encrypted backup repository; the plan holds its name only
    #[arg(long, value_name = "FILE")]
    pub cipher_pass_file: Option<PathBuf>,

    /// Wait so long for a running server's next checkpoint where evidence needs one, as in 10m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub settle: Option<Duration>,

    /// Judge every page by itself only
    #[arg(long)]
    pub no_witness: bool,

    /// Compare pages with one another as data structures, too
    #[arg(long, conflicts_with = "no_witness")]
    pub structure: bool,

    /// Do not count pages that need a key or a reader that is missing as a gap in the check
    #[arg(long)]
    pub accept_unverifiable: bool,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Print nothing when it is done
    #[arg(short, long)]
    pub quiet: bool,

    /// How object storage is spoken to
    #[command(flatten)]
    pub storage: StorageOptions,
}

/// Put the results of a plan's parts into one report
///
/// Prints and exits as one `check` of everything would. A unit without a result, a result that was
/// altered or belongs to another plan, or two results of one unit that contradict each other, make
/// it incomplete. The same result given twice counts once.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pagewarden merge plan.jsonl result-*.jsonl")]
pub struct Merge {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,

    /// Results of its parts
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Print one line for a monitoring system, and exit as its plugins do
    #[arg(long, conflicts_with = "json")]
    pub nagios: bool,

    /// Write figures for Prometheus (node_exporter's textfile collector)
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// Say what pages are tested by, and which damage these tests cannot detect
    #[arg(short, long, conflicts_with_all = ["json", "nagios"])]
    pub verbose: bool,

    #[command(flatten)]
    pub demands: Demands,
}

//! `pagewarden compare`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use pagewarden_db::compare::mode::Mode;

use super::{ReadLimits, parse_percent, parse_time};

/// Prove the tables of live databases equal, or name the rows that differ
///
/// Compares the tables of TARGET with those of SOURCE, across servers and engines, by the
/// values of their rows. Reads only. On tables that are being written to, a row that
/// differs is looked at again: a change that has not arrived yet is no difference, and
/// what keeps changing is called unresolved.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden compare postgres://ann@db1/shop postgres://ann@db2/shop\n  \
    pagewarden compare mysql://ann@old/shop postgres://ann@new/shop --table orders\n  \
    pagewarden compare postgres://ann@db1/shop parquet:lake/orders --key id\n  \
    pagewarden compare sqlite:a.db sqlite:b.db --sql         statements that make b equal\n  \
    pagewarden compare mysql:///shop sqlite:copy.db --snapshot --json\n  \
    pagewarden compare mysql://ann@a/shop mysql://ann@b/shop --state shop.state --max-load 20\n  \
    pagewarden compare mysql://ann@a/shop mysql://ann@b/shop --sample 5%\n  \
    pagewarden compare postgres://ann@here/shop postgres://ann@far/shop --mode pushdown\n  \
    pagewarden compare sqlite:a.db sqlite:b.db --html equal.html --show-values\n  \
    pagewarden compare --from-replicate mysql://ann@primary/shop mysql://ann@replica/shop\n\n\
    Exit status: 0 equal, 1 different, 2 not everything could be compared, 3 stopped early.")]
pub struct Compare {
    /// The reference: postgres://user@host/database, mysql://... (MariaDB too), sqlite:PATH,
    /// parquet:PATH (a file, a folder, a Delta or Iceberg table)
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// The databases to compare with it
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,

    /// Only this table; may be given several times
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,

    /// Leave this table out; may be given several times
    #[arg(long, value_name = "TABLE")]
    pub exclude_table: Vec<String>,

    /// Leave this column out, as COLUMN or TABLE.COLUMN; may be given several times
    #[arg(long, value_name = "COLUMN")]
    pub exclude_column: Vec<String>,

    /// The columns that identify a row, as COLUMN,COLUMN [default: the primary key of SOURCE, else
    /// that of TARGET]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with = "from_replicate")]
    pub key: Vec<String>,

    /// Read each side in one snapshot, and report every difference at once
    ///
    /// For databases at rest: two snapshots of databases in use are not of the same moment.
    #[arg(long)]
    pub snapshot: bool,

    /// How parts of tables are compared [default: the fastest way that both sides support]
    ///
    /// stream: rows are read from both sides. native: the servers hash by functions of their
    /// own (PostgreSQL, both of one version). pushdown: the servers hash by MD5, also across
    /// engines; for slow networks. Where a way is not supported, and for parts that
    /// differ, rows are read. The report says for each table which way was used, and why.
    #[arg(long, value_name = "MODE", default_value = "auto", hide_default_value = true,
        conflicts_with = "from_replicate",
        value_parser = PossibleValuesParser::new(Mode::ALL.iter().map(|(name, _)| *name)))]
    pub mode: String,

    /// How long both versions of a row must stay unchanged before it counts as different
    ///
    /// Must be longer than the replication lag of the target.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time,
        conflicts_with = "snapshot")]
    pub settle: Duration,

    /// How long rows that keep changing are read again
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time,
        conflicts_with = "snapshot")]
    pub patience: Duration,

    /// List at most N rows of a table
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub differences: usize,

    /// Also show the values that differ
    #[arg(long)]
    pub show_values: bool,

    /// Print statements that make the target equal; they are not executed
    ///
    /// For the listed rows only. Each statement applies only if the row still has the expected values.
    #[arg(long, conflicts_with = "nagios")]
    pub sql: bool,

    /// Rows to read at a time [default: as many as take half a second]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub chunk_rows: Option<u64>,

    /// Record progress in FILE, so that the same command resumes from there
    ///
    /// After an end by a signal, a crash, or a server that went away. What was compared is
    /// not read again, but for rows that were unresolved. FILE is refused for another
    /// comparison, and a table whose definition has changed begins anew. It holds the values
    /// of rows that differ, readable by its owner only.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["snapshot", "sample", "from_replicate"])]
    pub state: Option<PathBuf>,

    /// Pause while either server works on more than N statements
    ///
    /// Threads_running of MariaDB and MySQL, active backends of PostgreSQL (which needs
    /// pg_read_all_stats), without the one that asks. Asked between the parts of a table.
    #[arg(long, value_name = "N", conflicts_with = "from_replicate")]
    pub max_load: Option<u64>,

    /// Pause while the target, a replica, is further behind than this, for example 10s
    #[arg(long, value_name = "TIME", value_parser = parse_time,
        conflicts_with_all = ["snapshot", "from_replicate"])]
    pub max_lag: Option<Duration>,

    /// Compare a part of each table, chosen at random, and say what it says of the rest
    ///
    /// Of 10,000 ranges of the key; for keys of whole or decimal numbers. Tables of up to 5000
    /// rows are compared wholly. A sample proves nothing equal: the verdict is incomplete.
    #[arg(long, value_name = "PERCENT", value_parser = parse_share, conflicts_with = "from_replicate")]
    pub sample: Option<f64>,

    /// Choose the ranges that an earlier sample has chosen
    #[arg(long, value_name = "N", requires = "sample")]
    pub seed: Option<u64>,

    /// Look at unresolved rows again and again, until all are settled or it is ended
    #[arg(long, conflicts_with_all = ["snapshot", "from_replicate", "nagios"])]
    pub watch: bool,

    /// Read what checksum --strategy replicate left on a primary and its replicas
    ///
    /// SOURCE is the primary; each TARGET a replica, whose parts are waited for (--patience).
    #[arg(long, conflicts_with_all = ["snapshot", "exclude_column", "sql", "show_values", "chunk_rows"])]
    pub from_replicate: bool,

    /// A file that holds the source's password and nothing else, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// The same for the targets
    #[arg(long, value_name = "FILE")]
    pub target_password_file: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Print one line for a monitoring system, and exit as its plugins do
    ///
    /// 0 OK: equal; 2 CRITICAL: different; 3 UNKNOWN: not everything could be compared.
    #[arg(long, conflicts_with = "json")]
    pub nagios: bool,

    /// Write a page for people: tables, maps of their parts, rows that differ
    ///
    /// One file that needs no other and no network. Values are in it with --show-values only.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write figures for Prometheus (node_exporter's textfile collector)
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,

    /// Tables that are compared at the same time [default: the available cores]
    ///
    /// Each with a connection to either side. With --snapshot one, for a view belongs to
    /// one connection.
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    #[command(flatten)]
    pub pace: ReadLimits,

    #[command(flatten)]
    pub storage: super::storage::StorageOptions,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match parse_percent(text)? {
        0.0 => Err("a sample is more than nothing".to_owned()),
        percent => Ok(percent / 100.0),
    }
}

//! `pagewarden checksum`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use pagewarden_db::checksum::Strategy;

use super::ReadLimits;

/// Make checksums of the tables of a live database
///
/// Reads only, but for the strategy replicate. A URL is postgres://user@host/database, mysql://user@host/database (also for
/// MariaDB), sqlite:PATH or parquet:PATH (a file, a folder, a Delta or Iceberg table). Passwords are better kept out of it: see --password-file and
/// docs/compare.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden checksum postgres://ann@db1/shop              all tables of the schema public\n  \
    pagewarden checksum mysql:///shop --table orders         one table, by the local socket\n  \
    pagewarden checksum sqlite:shop.db --json                for scripts\n  \
    pagewarden checksum parquet:orders.parquet               a Parquet file\n  \
    pagewarden checksum mysql:///shop --side-by-side --strategy count,native,multiset\n\n\
    Exit status: 0 done, 2 not all of it could be done, 3 stopped early.")]
pub struct Checksum {
    /// The databases
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<String>,

    /// Only this table; may be given several times
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,

    /// How: multiset is equal across engines and sees rows that stand twice
    ///
    /// count counts rows; native is the engine's own (CHECKSUM TABLE, sums of
    /// hash_record_extended); accum and bitxor are those of older tools; replicate (MySQL,
    /// MariaDB) writes sums into a table pagewarden_checksums by statements that replicas run
    /// again over their own rows, for compare --from-replicate.
    #[arg(long, value_name = "STRATEGY", value_delimiter = ',', default_value = "multiset",
        value_parser = PossibleValuesParser::new(Strategy::ALL.iter().map(|(name, _)| *name)))]
    pub strategy: Vec<String>,

    /// What accum and bitxor hash with; replicate takes md5 only
    #[arg(long, value_name = "FUNCTION", default_value = "md5",
        value_parser = PossibleValuesParser::new(["crc32", "md5"]))]
    pub function: String,

    /// Print a line a table with its rows, its size and the seconds of each strategy, and no sums
    #[arg(long, conflicts_with = "json")]
    pub side_by_side: bool,

    /// Read all tables in one snapshot
    #[arg(long)]
    pub snapshot: bool,

    /// Allow replicate to write on the primary and, through its log, on all replicas
    #[arg(long)]
    pub yes: bool,

    /// With replicate, rows per statement [default: as many as take 0.3 seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub chunk_rows: Option<u64>,

    /// A file that holds the password and nothing else, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Tables that are summed at the same time, each by a connection of its own
    ///
    /// With more than one, times tell less. With --snapshot one, for a view belongs to one
    /// connection.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub jobs: NonZero<usize>,

    #[command(flatten)]
    pub pace: ReadLimits,

    #[command(flatten)]
    pub storage: super::storage::StorageOptions,
}

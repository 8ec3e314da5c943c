//! `pagewarden pack`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, ValueEnum};
use pagewarden::source::rate::Rate;

/// Make one compressed, verified file from a database that is no longer written
///
/// Every page is verified on the way, and a damaged database is not packed. Each block of a pack
/// can be read by itself, and is verified whenever it is read. The database must be shut down.
/// It is not changed.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("sink").required(true).args(["output", "to", "estimate"]))]
#[command(after_help = "Examples:\n  \
    pagewarden pack /var/lib/postgresql/15/old -o old.pwk\n  \
    pagewarden pack --profile oltp stock.sqlite -o stock.pwk   for lookups of single rows\n  \
    pagewarden check old.pwk                                   is it still what was packed?\n  \
    pagewarden unpack old.pwk DIR                              the very files again\n  \
    pagewarden pack --base old.pwk DIR -o new.pwk              only what has changed since\n  \
    pg_basebackup -D - -Ft -X none | pagewarden pack - -o backup.tar.pwk\n  \
    pagewarden pack DIR -o s3://packs/old.pwk                  into object storage\n  \
    pagewarden pack --to null: DIR                             how fast can all of it be read?\n  \
    pagewarden pack --estimate --profile archive DIR           how large would it be?\n\n\
    Exit status: 0 done, 1 damage found (no pack was made, or with --keep-damaged it holds\n\
    the damage), 2 it could not be done, 3 stopped early: no pack was made.")]
pub struct Pack {
    /// A data directory, a database file or a backup; - reads a backup from standard input
    ///
    /// A single file or an archive may also be in object storage: s3://BUCKET/KEY, gs://, az://,
    /// https://.
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,

    /// The pack, which must not exist: a file, or an object of s3://, gs:// or az://
    #[arg(short, long, value_name = "FILE.pwk")]
    pub output: Option<PathBuf>,

    /// Read and verify everything as a backup would, and store nothing
    #[arg(long, value_name = "null:", value_parser = ["null:"])]
    pub to: Option<String>,

    /// Take SOURCE for this format instead of finding out
    #[arg(long, value_name = "FORMAT", conflicts_with = "tablespace",
        value_parser = PossibleValuesParser::new(super::format_names()))]
    pub format: Option<String>,

    /// Say how large the pack would be, table by table, from a sample of blocks
    #[arg(long, conflicts_with_all = ["base", "tablespace", "keep_damaged"])]
    pub estimate: bool,

    /// Store only what has changed since an earlier pack, which is needed to read this one
    ///
    /// What has changed is decided by the bytes of each block. The earlier pack may
    /// itself be made with --base; what it builds on is looked for beside it.
    #[arg(long, value_name = "OLDER.pwk", conflicts_with = "to")]
    pub base: Option<PathBuf>,

    /// Pack one tablespace of the PostgreSQL cluster SOURCE, to be mounted in its place
    ///
    /// Only if every page of its tables is frozen, as the visibility maps and the
    /// rows themselves show; else the VACUUM to run is named.
    #[arg(long, value_name = "NAME", conflicts_with = "to")]
    pub tablespace: Option<String>,

    /// What the pack is optimized for
    #[arg(long, value_enum, conflicts_with = "to")]
    pub profile: Option<Profile>,

    /// Compression of blocks, instead of the profile's
    #[arg(long, value_enum, conflicts_with = "to")]
    pub codec: Option<Codec>,

    /// Level of zstd, instead of the profile's
    #[arg(long, value_name = "N", conflicts_with = "to",
        value_parser = clap::value_parser!(i32).range(1..=22))]
    pub level: Option<i32>,

    /// Pack damaged pages too, as they are, and what could not be looked at in full
    ///
    /// The pack remembers what was found.
    #[arg(long, conflicts_with = "to")]
    pub keep_damaged: bool,

    /// Do not count pages that need a key or a reader that is missing as a gap in the check
    #[arg(long)]
    pub accept_unverifiable: bool,

    #[command(flatten)]
    pub storage: super::storage::StorageOptions,

    /// Report progress each time this many percent are done
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub stats: Option<u8>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Threads that verify and compress [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Read no faster than this, for example 200MiB/s; none is no ceiling; auto yields to
    /// whatever else uses the disk, and is the default where a server lives on it
    #[arg(long, value_name = "BYTES/S", value_parser = super::parse_rate)]
    pub rate: Option<Rate>,

    /// Show no progress
    #[arg(short, long, conflicts_with = "progress")]
    pub quiet: bool,

    /// Show progress as plain lines, every few seconds, also without a terminal
    #[arg(long)]
    pub progress: bool,
}

/// What `--profile` takes. Without one blocks have 64 KiB, by zstd of level 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Lookups of single rows: a block for each page, with a dictionary
    Oltp,
    /// Scans of whole tables: blocks of 256 KiB
    Scan,
    /// Smallest size, slow to make: blocks of 1 MiB, zstd of level 19
    Archive,
}

/// What `--codec` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// No compression
    Raw,
    /// LZ4: larger, decompresses at the speed of memory
    Lz4,
    /// Zstandard
    Zstd,
}

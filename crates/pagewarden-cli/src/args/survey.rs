//! The command line of `pagewarden survey`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use pagewarden::source::rate::Rate;

/// What is this database, what protects it, is it sound, and what to do next: one screen
///
/// Reads all of it once, verifies every page, and stores nothing. Whatever `check`
/// knows it knows too: data directories, single files, backups, packs; running or not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden survey /var/lib/postgresql/15/main\n  \
    pagewarden survey --html survey.html /var/lib/mysql       the same as a page to send\n  \
    pagewarden survey --json shop.bak\n  \
    pagewarden survey s3://backups/base.tar.zst               in object storage\n  \
    pagewarden survey /var/lib/pgbackrest                     sets, log, gaps, cost of a check\n\n\
    Exit status: 0 nothing wrong, 1 damage found, 2 not everything could be looked at, 3 stopped\n\
    early.")]
pub struct Survey {
    /// A data directory, a database file, a backup, a pack; - reads a backup from standard input
    ///
    /// Of a repository of backups, what its books and the names of its files tell. A repository, an
    /// archive or a single file may also be in object storage: s3://BUCKET/PREFIX, gs://, az://,
    /// https://.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Take it for this format instead of finding out
    #[arg(long, value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(super::format_names()))]
    pub format: Option<String>,

    /// A file with the keys of encrypted InnoDB pages
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// Of a backup repository, only this stanza (pgBackRest)
    #[arg(long, value_name = "NAME")]
    pub stanza: Option<String>,

    /// A file with the passphrase of an encrypted backup repository
    #[arg(long, value_name = "FILE")]
    pub cipher_pass_file: Option<PathBuf>,

    /// Do not count pages that need a key or a reader that is missing as a gap in the check
    #[arg(long)]
    pub accept_unverifiable: bool,

    /// Write the same as a web page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Threads that verify pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Read no faster than this, for example 200MiB/s; none is no ceiling; auto yields to
    /// whatever else uses the disk, and is the default where a server lives on it
    #[arg(long, value_name = "BYTES/S", value_parser = super::parse_rate)]
    pub rate: Option<Rate>,

    #[command(flatten)]
    pub storage: super::storage::StorageOptions,

    #[command(flatten)]
    pub shown: super::Shown,
}

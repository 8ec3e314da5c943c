//! `pagewarden repair`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use pagewarden::repair::PAGES_MAX;

use super::storage::StorageOptions;

/// Bring damaged pages back from copies that are proved to be the right version
///
/// Says what it would do; writes with --yes only. The database must be shut down cleanly. Before the
/// first page is written, the bytes that it replaces are kept in an undo file. Interrupted at any
/// point, the same command finishes, and --undo brings back what was there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden repair DIR --from BACKUP               what would be repaired, and by what\n  \
    pagewarden repair DIR --from BACKUP --yes         do it\n  \
    pagewarden repair DIR --from base.tar.gz --log ARCHIVE\n  \
                                                      by an archive and the log since\n  \
    pagewarden repair DIR --from STANDBY --from BACKUP --copy-to NEW --yes\n  \
                                                      leave DIR alone, repair a copy of it\n  \
    pagewarden repair DIR --undo DIR/pagewarden-repair.undo\n  \
                                                      bring back what was there\n\n\
    Exit status: 0 all damaged pages are repaired (or, without --yes, can be), 1 some cannot,\n\
    2 refused, 3 stopped early.")]
pub struct Repair {
    /// A data directory of PostgreSQL (10 to 18), MySQL or MariaDB that was shut down cleanly, a
    /// SQLite database, or data files of SQL Server
    ///
    /// Of SQL Server a data file (.mdf, .ndf) or the folder of one database: it is planned, with the
    /// statements by which the server restores pages itself, and mended in a copy only (--copy-to).
    ///
    /// With --undo, by default the one that the undo file was made for.
    #[arg(value_name = "PATH", required_unless_present = "undo")]
    pub path: Option<PathBuf>,

    /// Where sound copies of its pages may be; may be given several times
    ///
    /// A data directory of the same cluster that was shut down (a standby, a file copy), a base backup
    /// as a folder or as archives, a repository of pgBackRest, Barman or WAL-G (its newest set, and
    /// its log), or a pack; for MySQL and MariaDB a data directory that was shut down, or a prepared
    /// backup. For SQLite another file of the same database, also compressed or in a
    /// pack. For SQL Server full and differential backups (.bak, .dif), log backups (.trn, for the
    /// statements), copies of the data files, and folders and packs of these. The database's own log is asked
    /// in any case. For PostgreSQL, archives, repositories and packs may be in object storage (s3://, gs://,
    /// az://, https://); postgres://USER@HOST is a running standby or primary.
    #[arg(long, value_name = "SOURCE", num_args = 1..)]
    pub from: Vec<PathBuf>,

    /// Folder with archived log of a PostgreSQL cluster; may be given several times
    ///
    /// What archive_command or pg_receivewal fills: segments, also compressed, also in object storage. It reaches further
    /// back than the server's own pg_wal, and so proves more pages.
    #[arg(long, value_name = "DIR")]
    pub log: Vec<PathBuf>,

    /// A seal of a PostgreSQL cluster that was shut down, as proof; may be given several times
    ///
    /// Made by check --seal. A page of an older copy that is the one that was sealed counts as of the seal.
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with = "undo")]
    pub seal: Vec<PathBuf>,

    /// The database in a repository of pgBackRest that has several
    #[arg(long, value_name = "NAME", requires = "from")]
    pub stanza: Option<String>,

    /// The backup set of a repository [default: the newest]
    #[arg(long, value_name = "LABEL", requires = "from")]
    pub set: Option<String>,

    /// File with the passphrase or key of an encrypted repository
    #[arg(long, value_name = "FILE", requires = "from")]
    pub cipher_pass_file: Option<PathBuf>,

    /// A file with the keys of encrypted InnoDB pages, of PATH and of its copies
    ///
    /// That of MySQL's component_keyring_file (JSON), or of MariaDB's file_key_management. Without it,
    /// pages that need a key are neither tested nor repaired.
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,

    /// A file that holds the password of a server and nothing else, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "from")]
    pub password_file: Option<PathBuf>,

    /// Write; without this nothing is changed
    #[arg(long)]
    pub yes: bool,

    /// Leave PATH as it is, and repair a copy of it here
    ///
    /// DIR must not exist or be empty.
    #[arg(long, value_name = "DIR", conflicts_with = "undo")]
    pub copy_to: Option<PathBuf>,

    /// Bring what is only older forward by PostgreSQL's own redo, from the backups that are named
    ///
    /// Each backup is brought back to a temporary folder (TMPDIR says where), and a server of the same
    /// version, which must be installed here, replays the log on it to the end of this cluster's. Pages are
    /// taken from there. Needs room for the whole backup, and all log since (--log).
    #[arg(long, requires = "from", conflicts_with = "undo")]
    pub replay: bool,

    /// Take older versions of pages where nothing better is proved; what changed since is lost
    #[arg(long)]
    pub accept_older: bool,

    /// Refuse if more pages than this are damaged
    #[arg(long, value_name = "N", default_value_t = PAGES_MAX)]
    pub max_pages: usize,

    /// Bring back the bytes that an undo file holds, now; needs no --yes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "log", "accept_older", "undo_file"])]
    pub undo: Option<PathBuf>,

    /// Where to keep the bytes that are overwritten [default: in or beside PATH, its name ends in pagewarden-repair.undo]
    #[arg(long, value_name = "FILE")]
    pub undo_file: Option<PathBuf>,

    /// How object storage is spoken to
    #[command(flatten)]
    pub storage: StorageOptions,

    /// Threads that check pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Write the plan, or what came of it, as a web page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Show no progress
    #[arg(short, long, conflicts_with = "progress")]
    pub quiet: bool,

    /// Show progress as plain lines, every few seconds, also without a terminal
    #[arg(long)]
    pub progress: bool,
}

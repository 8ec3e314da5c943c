//! `pagewarden evidence`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Receipts of every pass, for others: export them, sign them, verify an export
///
/// Each pass of `scrub` and `serve` that ended leaves a receipt in the ledger, with the hash of the
/// one before it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden evidence export --since 2026-10-01 -o october.jsonl --sign ~/.ssh/id_ed25519\n  \
    pagewarden evidence verify october.jsonl\n  \
    ssh-keygen -Y verify -f signers -I ops -n pagewarden -s october.jsonl.sig < october.jsonl")]
pub struct Evidence {
    /// The configuration [default: /etc/pagewarden/pagewarden.toml, then the user's]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// The folder of the ledger [default: /var/lib/pagewarden for root, else the user's]
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,

    /// Print one JSON object on standard output
    #[arg(long, global = true)]
    pub json: bool,

    /// Print nothing where nothing is wrong
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with receipts.
#[derive(Debug, Subcommand)]
pub enum Action {
    Export(Export),
    Verify(Verify),
}

/// Write the receipts of a span of time into a file, a line each
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    pagewarden evidence export --since 2026-10-01 --until 2026-11-01 -o october.jsonl")]
pub struct Export {
    /// Only receipts from this time on, as 2026-10-01 or 2026-10-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = pagewarden_guard::moment::parse)]
    pub since: Option<i64>,

    /// Only receipts from before this time
    #[arg(long, value_name = "TIME", value_parser = pagewarden_guard::moment::parse)]
    pub until: Option<i64>,

    /// Where to write them
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Sign the file with this ed25519 key of OpenSSH; the signature is FILE.sig
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
}

/// Verify an export: that no receipt was altered, removed or moved, and the signature beside it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    pagewarden evidence verify october.jsonl\n  \
    pagewarden evidence verify october.jsonl --key ops.pub   signed, and by this key\n\n\
    Exit status: 0 nothing is wrong with it, 1 something is, 2 it cannot be read.")]
pub struct Verify {
    /// The export
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The public key that must have signed it
    ///
    /// Without it the signature in FILE.sig, if there is one, is verified with the key in it.
    #[arg(long, value_name = "FILE.pub")]
    pub key: Option<PathBuf>,
}
